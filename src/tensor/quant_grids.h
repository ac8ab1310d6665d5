// Code books of the IQ types: entry i holds the values of a group of weights, each as its place in
// the type's short list of magnitudes (quant_iq.cc). Eight values of 2 bits (value k in bits 2k),
// or four of 3 bits. Facts of the file format; made by tools/make_quant_grids.py.
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
