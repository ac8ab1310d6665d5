// Codebooks of the IQ types. An entry packs a group of weights, each as an index into the type's
// list of values (quant_iq.cc): eight 2-bit indices (index k begins at bit 2k), or four 3-bit
// indices. The codebooks are part of the file format. tools/make_quant_grids.py generates them.
#pragma once

#include <array>
#include <cstdint>

namespace weft {

extern const std::array<uint16_t, 256> kIq2XxsGrid;  // eight values of {8, 25, 43}
extern const std::array<uint16_t, 512> kIq2XsGrid;
extern const std::array<uint16_t, 1024> kIq2SGrid;
extern const std::array<uint16_t, 2048> kIq1Grid;    // eight values of {-1, 0, 1}
extern const std::array<uint16_t, 256> kIq3XxsGrid;  // four values of {4, 12, ... 52, 62}
extern const std::array<uint16_t, 512> kIq3SGrid;    // four values of {1, 3, ... 15}

}  // namespace weft
