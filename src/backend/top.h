// Selects the largest of many values, in descending order, for greedy sampling and top-k over a row
// of logits. Devices with their own memory select the same values by their own kernels.
#pragma once

#include <cstdint>
#include <span>

namespace weft::backend {

// One selected value and its index.
struct Candidate {
    float value = 0;
    int32_t index = 0;
};
// Whether `a` is ordered before `b`.
inline bool Better(const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.index < b.index;
}
// out: the out.size() largest of `values` (which has at least as many elements), largest first;
// equal values are ordered by index. If any value is NaN, the first element of `out` is NaN.
void TopK(std::span<const float> values, std::span<Candidate> out);

}  // namespace weft::backend
