// The functions of map.comp, with their numbers: for the shader, and for backend/gpu/lower/maps.cc.
MAP(kAdd, 0) MAP(kAddBias, 1) MAP(kScale, 2) MAP(kSoftCap, 3) MAP(kGateRows, 4)
MAP(kSoftplusRows, 5) MAP(kProductRows, 6) MAP(kScaleByPosition, 7) MAP(kReluSquared, 8)
MAP(kLimitedSilu, 9) MAP(kSilu, 10) MAP(kGeluTanh, 11) MAP(kClampedSilu, 12) MAP(kSoftCapGrad, 13)
MAP(kSiluGrad, 14) MAP(kGeluTanhGrad, 15) MAP(kZero, 16) MAP(kGeluAlone, 17) MAP(kXielu, 18)
MAP(kRelu, 19) MAP(kGelu, 20) MAP(kSiluAlone, 21) MAP(kClamp, 22) MAP(kLimitedGate, 23)
MAP(kSparsify, 24) MAP(kIdentities, 25) MAP(kClampedSiluGrad, 26) MAP(kLimitedSiluGrad, 27)
MAP(kLimitedGateGrad, 28) MAP(kReluSquaredGrad, 29) MAP(kGeluAloneGrad, 30) MAP(kXieluGrad, 31)
MAP(kReluGrad, 32) MAP(kExactGeluGrad, 33) MAP(kSiluAloneGrad, 34) MAP(kClampGrad, 35)
