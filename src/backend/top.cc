#include "backend/top.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace weft::backend {
namespace {

// Parallel lanes in the search for the largest value, which then runs at the speed of memory.
constexpr size_t kLanes = 16;

Candidate Largest(std::span<const float> values) {
    float most[kLanes];
    uint32_t nans[kLanes] = {};
    std::ranges::fill(most, -INFINITY);
    const auto see = [&](size_t lane, float value) {
        most[lane] = value > most[lane] ? value : most[lane];
        nans[lane] |= value != value ? 1u : 0u;
    };
    const size_t whole = values.size() / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) see(lane, values[i + lane]);
    }
    for (size_t i = whole; i < values.size(); ++i) see(0, values[i]);
    const float best = *std::ranges::max_element(most);
    if (std::ranges::any_of(nans, [](uint32_t seen) { return seen != 0; })) {
        return {std::numeric_limits<float>::quiet_NaN(), 0};
    }
    return {best, static_cast<int32_t>(std::ranges::find(values, best) - values.begin())};
}

}  // namespace

// Keeps a heap of the best values so far, so that nothing sorts all values.
void TopK(std::span<const float> values, std::span<Candidate> out) {
    WEFT_CHECK(!out.empty() && out.size() <= values.size());
    const Candidate largest = Largest(values);
    std::ranges::fill(out, largest);
    if (out.size() == 1 || std::isnan(largest.value)) return;
    for (size_t i = 0; i < out.size(); ++i) out[i] = {values[i], static_cast<int32_t>(i)};
    std::ranges::make_heap(out, Better);  // the worst is in front
    for (size_t i = out.size(); i < values.size(); ++i) {
        if (!(values[i] > out.front().value)) continue;
        std::ranges::pop_heap(out, Better);
        out.back() = {values[i], static_cast<int32_t>(i)};
        std::ranges::push_heap(out, Better);
    }
    std::ranges::sort_heap(out, Better);
}

}  // namespace weft::backend
