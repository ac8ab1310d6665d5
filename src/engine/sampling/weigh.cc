#include "engine/sampling/weigh.h"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <functional>
#include <limits>

namespace weft::engine {
namespace {

constexpr size_t kLanes = 8;

// The least exponent. 2^n is 0 for it, because n = -127 has the bits of 0.
constexpr float kLeast = -88;

// exp(x) for x in [kLeast, 0]: 2^n exp(r), where |r| <= log(2) / 2. The polynomial has the
// coefficients of the Cephes library (Moshier 1992).
[[gnu::always_inline]] inline float Exp(float x) {
    constexpr float kRounding = 0x1.8p23f;  // x + kRounding rounds to an integer
    const float shifted = x * 1.44269504f + kRounding;
    const float n = shifted - kRounding;
    const float r = (x - n * 0.693359375f) - n * -2.12194440e-4f;
    float p = 1.9875691500e-4f;
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    const uint32_t power = (std::bit_cast<uint32_t>(shifted) + 127) << 23;  // 2^n
    return (p * (r * r) + r + 1) * std::bit_cast<float>(power);
}

// (The exponents have a loop of their own, because GCC does not vectorize the limit and Exp in
// one.)
[[gnu::always_inline]] inline double SetBlock(const float* logits, size_t count, float best,
                                              float scale, float* weights) {
    for (size_t i = 0; i < count; ++i) {
        const float x = scale * (logits[i] - best);
        weights[i] = x > kLeast ? x : kLeast;
    }
    for (size_t i = 0; i < count; ++i) weights[i] = Exp(weights[i]);
    double lanes[kLanes] = {};
    const size_t whole = count / kLanes * kLanes;
    for (size_t i = 0; i < whole; i += kLanes) {
        for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] += double{weights[i + lane]};
    }
    for (size_t i = whole; i < count; ++i) lanes[i - whole] += double{weights[i]};
    return ((lanes[0] + lanes[4]) + (lanes[1] + lanes[5])) +
           ((lanes[2] + lanes[6]) + (lanes[3] + lanes[7]));
}

#if defined(__x86_64__)
// Wider vectors give the same results, only faster.
__attribute__((target("avx2"))) double SetBlockWide(const float* logits, size_t count, float best,
                                                    float scale, float* weights) {
    return SetBlock(logits, count, best, scale, weights);
}
#endif

using SetFunction = double (*)(const float*, size_t, float, float, float*);

double SetBlockNarrow(const float* logits, size_t count, float best, float scale, float* weights) {
    return SetBlock(logits, count, best, scale, weights);
}

SetFunction FastestSet() {
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx2")) return SetBlockWide;
#endif
    return SetBlockNarrow;
}

// Calls see(i) for each requested value, ascending. There are few.
template <typename Wanted, typename See>
void ForEachWanted(std::span<const float> values, const Wanted& wanted, const See& see) {
    constexpr size_t kStep = 32;
    size_t i = 0;
    for (; i + kStep <= values.size(); i += kStep) {
        uint32_t found = 0;
        for (size_t j = 0; j < kStep; ++j) found |= static_cast<uint32_t>(wanted(values[i + j]));
        if (found == 0) continue;
        for (size_t j = 0; j < kStep; ++j) {
            if (wanted(values[i + j])) see(i + j);
        }
    }
    for (; i < values.size(); ++i) {
        if (wanted(values[i])) see(i);
    }
}

// Buckets of weights from 0 to 1: 32 for each power of two, numbered from the smallest weight.
constexpr size_t kBuckets = 127 * 32 + 1;
[[gnu::always_inline]] inline uint32_t BucketOf(float weight) {
    return std::bit_cast<uint32_t>(weight) >> 18;
}

}  // namespace

void Weights::Set(std::span<const float> logits, float best, float scale) {
    static const SetFunction set = FastestSet();
    weights_.resize(logits.size());
    sums_.clear();
    total_ = 0;
    for (size_t begin = 0; begin < logits.size(); begin += kBlock) {
        const size_t count = std::min(kBlock, logits.size() - begin);
        const double sum = set(logits.data() + begin, count, best, std::min(scale, 1e30f),
                               weights_.data() + begin);
        sums_.push_back(sum);
        total_ += sum;
    }
}

size_t Weights::Find(double share) const {
    double left = share * total_;
    size_t block = 0;
    bool within = false;
    for (size_t i = 0; i < sums_.size() && !within; ++i) {
        if (sums_[i] == 0) continue;
        block = i;
        within = left < sums_[i];
        if (!within) left -= sums_[i];
    }
    size_t found = block * kBlock;
    const size_t end = std::min(found + kBlock, weights_.size());
    for (size_t i = found; i < end; ++i) {
        if (weights_[i] == 0) continue;
        found = i;
        left -= double{weights_[i]};
        // After the end of all sums (by rounding), the last weight is found.
        if (within && left < 0) break;
    }
    return found;
}

void FindAtLeast(std::span<const float> values, float least, std::vector<uint32_t>& indices) {
    indices.clear();
    ForEachWanted(
        values, [&](float value) { return value >= least; },
        [&](size_t i) { indices.push_back(static_cast<uint32_t>(i)); });
}

void TopPCut::Set(std::span<const float> values, const Weights& weights, double share) {
    const std::span<const float> all = weights.all();
    sums_.assign(kBuckets, 0);
    for (const float weight : all) sums_[BucketOf(weight)] += double{weight};
    double left = share * weights.total();
    uint32_t cut = kBuckets - 1;
    while (cut > 0 && sums_[cut] < left) left -= sums_[cut--];
    bucket_.clear();
    ForEachWanted(
        all, [&](float weight) { return BucketOf(weight) == cut; },
        [&](size_t i) {
            bucket_.push_back({values[i], all[i]});
        });
    CutBucket(left);
}

// Finds the cut among bucket_. wanted: the sum of weights that the bucket must contribute.
void TopPCut::CutBucket(double wanted) {
    std::ranges::sort(bucket_, std::greater<>{}, &Entry::value);
    least_ = -std::numeric_limits<float>::infinity();
    ties_ = std::numeric_limits<int64_t>::max();
    double sum = 0;
    for (const Entry& entry : bucket_) {
        if (sum >= wanted && sum > 0) break;
        ties_ = entry.value == least_ ? ties_ + 1 : 1;
        least_ = entry.value;
        sum += double{entry.weight};
    }
}

}  // namespace weft::engine
