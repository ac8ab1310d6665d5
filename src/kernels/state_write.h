// A place where a step stores a sequence's recurrent state (kernels/recurrent.h), in addition to
// the slot for the state after the last row.
#pragma once

#include <cstdint>

namespace weft::kernels {

// The state after row `row` of the step is stored in slot `slot`.
struct StateWrite {
    int32_t row = 0, slot = 0;
    bool operator==(const StateWrite&) const = default;
};

}  // namespace weft::kernels
