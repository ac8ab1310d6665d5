#include "backend/top.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace weft::backend {
namespace {

// Parallel lanes in the search for the largest value. With this many, the search runs at the speed
// of memory.
constexpr size_t kLanes = 32;

struct Lanes {
    float most[kLanes];
    uint32_t nans[kLanes];
};

// values: a multiple of kLanes.
[[gnu::always_inline]] inline void SeeLanes(std::span<const float> values, Lanes& lanes) {
    Lanes own = lanes;  // in registers
    for (size_t i = 0; i < values.size(); i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) {
            const float value = values[i + lane];
            own.most[lane] = value > own.most[lane] ? value : own.most[lane];
            own.nans[lane] |= value != value ? 1u : 0u;
        }
    }
    lanes = own;
}

#if defined(__x86_64__)
// Wider vectors give the same results, only faster.
__attribute__((target("avx2"))) void SeeLanesWide(std::span<const float> values, Lanes& lanes) {
    SeeLanes(values, lanes);
}
#endif

Candidate Largest(std::span<const float> values) {
    Lanes lanes{};
    std::ranges::fill(lanes.most, -INFINITY);
    const std::span<const float> whole = values.first(values.size() / kLanes * kLanes);
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) {
        SeeLanesWide(whole, lanes);
    } else {
        SeeLanes(whole, lanes);
    }
#else
    SeeLanes(whole, lanes);
#endif
    bool nan = std::ranges::any_of(lanes.nans, [](uint32_t seen) { return seen != 0; });
    float best = *std::ranges::max_element(lanes.most);
    for (const float value : values.subspan(whole.size())) {
        best = std::max(best, value);
        nan = nan || std::isnan(value);
    }
    if (nan) return {std::numeric_limits<float>::quiet_NaN(), 0};
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
    std::ranges::make_heap(out, Better);  // the smallest candidate is in front
    const auto see = [&](size_t i) {
        if (!(values[i] > out.front().value)) return;
        std::ranges::pop_heap(out, Better);
        out.back() = {values[i], static_cast<int32_t>(i)};
        std::ranges::push_heap(out, Better);
    };
    size_t i = out.size();
    for (; i + kLanes <= values.size(); i += kLanes) {
        const float worst = out.front().value;
        uint32_t better = 0;  // few blocks have better values, so this loop decides the speed
        for (size_t j = 0; j < kLanes; ++j) better |= values[i + j] > worst ? 1u : 0u;
        for (size_t j = 0; j < kLanes && better != 0; ++j) see(i + j);
    }
    for (; i < values.size(); ++i) see(i);
    std::ranges::sort_heap(out, Better);
}

}  // namespace weft::backend
