// The kernel of pool_windows (program/pool_windows.h has the formula). As in recurrent.h, a row's
// bits depend neither on how a sequence is divided into steps nor on the number of parts.
#pragma once

#include "kernels/recurrent.h"

namespace weft::kernels {

struct PoolWindowsArgs {
    std::span<const StateSequence> sequences;
    const float* values = nullptr;       // [rows, Columns()]
    const float* gates = nullptr;        // [rows, Columns()]
    const int32_t* positions = nullptr;  // [rows]
    const float* bias = nullptr;         // [window, Columns()]
    int64_t width = 0, window = 1;
    bool overlaps = false;
    StateSlots state;    // per slot: [3 or 6, width]
    float* y = nullptr;  // [rows, width]
    int64_t Columns() const { return overlaps ? 2 * width : width; }
};
void PoolWindows(const PoolWindowsArgs& args, int part, int parts);

}  // namespace weft::kernels
