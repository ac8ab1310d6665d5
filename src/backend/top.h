// The best of many values, in order: what greedy choice and top-k want of a row of logits. A device
// with memory of its own makes the same in place.
#pragma once

#include <cstdint>
#include <span>

namespace weft::backend {

// One of the best of some values: which, and how large it is.
struct Candidate {
    float value = 0;
    int32_t index = 0;
};
// Whether a goes before b.
inline bool Better(const Candidate& a, const Candidate& b) {
    return a.value != b.value ? a.value > b.value : a.index < b.index;
}
// out: the out.size() best of `values` (at least as many), the largest first, of equals the one of
// the lowest index. Where one is NaN, the first of `out` is NaN.
void TopK(std::span<const float> values, std::span<Candidate> out);

}  // namespace weft::backend
