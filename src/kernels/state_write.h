// Where a step stores a sequence's recurrent state (kernels/recurrent.h), beside the slot that
// holds it after the last row.
#pragma once

#include <cstdint>

namespace weft::kernels {

// After row `row` of the step the state is stored in slot `slot`.
struct StateWrite {
    int32_t row = 0, slot = 0;
    bool operator==(const StateWrite&) const = default;
};

}  // namespace weft::kernels
