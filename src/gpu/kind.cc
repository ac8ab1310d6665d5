#include "gpu/device.h"

namespace weft::gpu {

const char* KindName(Kind kind) {
    switch (kind) {
        case Kind::kDiscrete: return "discrete";
        case Kind::kIntegrated: return "integrated";
        case Kind::kVirtual: return "virtual";
        case Kind::kCpu: return "cpu";
    }
    return "?";
}

}  // namespace weft::gpu
