// The least rows of a part of a step that runs in parts (step_parts.h), for devices and the
// planner.
#pragma once

#include <algorithm>
#include <cstdint>

#include "backend/executable.h"

namespace weft::backend::vulkan {

// Each part reads the weights again. With so many rows it is still limited by arithmetic: at least
// 16 rows for each expert on average. experts: of a layer, of which each row uses `used`; 0: none.
constexpr int64_t LeastRowsOfPart(int64_t experts, int64_t used) {
    constexpr int64_t kRowsOfExpert = 16;
    const int64_t by_expert = used > 0 ? kRowsOfExpert * experts / used : 0;
    return std::max(kLeastDeviceRowsInHalves / 2, by_expert);
}
// The number of parts of a step of `rows` rows, at most `most`; 0: it runs as a whole. With four
// parts the wire idles less, but the weights are read four times.
constexpr int64_t PartsOfRows(int64_t rows, int64_t least_rows, int64_t most) {
    if (rows < 2 * least_rows) return 0;
    return std::min<int64_t>(rows < 8 * least_rows ? 2 : 4, most);
}

}  // namespace weft::backend::vulkan
