// When a step runs in parts of its rows, so that one part computes during the all-reduces of the
// other parts (cpu/step_parts.h, vulkan/step_parts.h), and in how many. Processors, GPUs and the
// planner divide steps by these rules.
#pragma once

#include <algorithm>
#include <cstdint>

namespace weft::backend {

// With four parts the wire idles less than with two, but the weights are read four times.
inline constexpr int64_t kMostParts = 4;
// A step runs in parts only if its all-reduces have at least this many bytes. Handing a smaller sum
// to the other thread takes at least as long as the sum.
inline constexpr int64_t kLeastSumInParts = 512 << 10;

// The smallest number of rows of a part on a processor. With this many rows, arithmetic still
// limits the part's speed, not reading weights.
inline constexpr int64_t kLeastRowsOfPart = 64;
// The smallest number of rows of a part on a device. A part has more rows than a product that
// matrix units divide along the columns (vulkan/products.h), because the division changes bits.
// Each expert gets at least 16 rows on average. experts: number of experts of a layer. used: number
// of experts that a row uses; 0: none.
constexpr int64_t LeastRowsOfDevicePart(int64_t experts, int64_t used) {
    constexpr int64_t kLeast = 129, kRowsOfExpert = 16;
    const int64_t by_expert = used > 0 ? kRowsOfExpert * experts / used : 0;
    return std::max(kLeast, by_expert);
}

// The number of parts of a step of `rows` rows, on a processor and on a device (where it is at most
// `most`); 0: the step runs as a whole. On a device, a step of 1024 rows without experts has four
// parts.
constexpr int64_t PartsOfRows(int64_t rows) {
    return rows < 2 * kLeastRowsOfPart ? 0 : std::min(rows / kLeastRowsOfPart, kMostParts);
}
constexpr int64_t DevicePartsOfRows(int64_t rows, int64_t least_rows, int64_t most = kMostParts) {
    if (rows < 2 * least_rows) return 0;
    return std::min<int64_t>(rows < 7 * least_rows ? 2 : 4, most);
}

// The memory of parts on a device. most_rows: largest number of rows of a step. most_parts: number
// of parts of such a step (DevicePartsOfRows).
struct DevicePartSpace {
    int64_t most_rows, most_parts;
    // The most rows of a part.
    constexpr int64_t rows() const { return (most_rows + most_parts - 1) / most_parts; }
};
// As DevicePartsOfRows, but with more parts if the parts would not fit into `room` bytes.
constexpr int64_t DevicePartsOfRows(int64_t rows, int64_t least_rows, const DevicePartSpace& room) {
    int64_t parts = DevicePartsOfRows(rows, least_rows, room.most_parts);
    while (parts > 0 && parts < room.most_parts && parts * room.rows() < rows) ++parts;
    return parts;
}

}  // namespace weft::backend
