// For each of 16 groups of N weights, searches the scale (and the offset) that minimizes
//
//     sum of w (x - scale * code - offset)^2
//
// where each code is the integer (or the list value) nearest to its weight. A candidate scale
// determines the codes, and the codes determine the best scale, by least squares in closed form.
// The best candidate is refined by repeating these two steps from its best scale.
#pragma once

#include <cmath>

#include "tensor/encode/lanes.h"
#include "tensor/half.h"
#include "tensor/quant_bytes.h"

namespace weft::encode::WEFT_ENCODE_LEVEL {

inline constexpr int kGroups = 16;

// 16 groups of N weights, transposed: element i of all groups is contiguous.
template <int N>
struct Pack {
    alignas(64) float x[N][kGroups];
    alignas(64) float w[N][kGroups];
    alignas(64) float q[N][kGroups];  // codes
    alignas(64) float scale[kGroups];
    alignas(64) float offset[kGroups];
    bool weighed;  // importance weights were given
};

// Loads `groups` consecutive groups and fills the remaining groups of the pack with zeros.
// importance: one value per column, from the first group's first column on; may be null.
template <int N>
void LoadPack(const float* src, int groups, const float* importance, Pack<N>& pack) {
    pack.weighed = importance != nullptr;
    for (int g = 0; g < groups; ++g) {
        for (int i = 0; i < N; ++i) pack.x[i][g] = src[g * N + i];
    }
    for (int g = groups; g < kGroups; ++g) {
        for (int i = 0; i < N; ++i) pack.x[i][g] = 0;
    }
    if (importance != nullptr) {
        for (int g = 0; g < kGroups; ++g) {
            const float* from = importance + (g < groups ? g : 0) * N;
            for (int i = 0; i < N; ++i) pack.w[i][g] = from[i];
        }
    }
    for (int at = 0; at < kGroups; at += kLanes) {
        Lanes squares = Splat(0);
        for (int i = 0; i < N; ++i) {
            const Lanes x = Load(pack.x[i] + at);
            squares += x * x;
        }
        const Lanes mean = squares * (1.0f / N);
        Lanes root;
        for (int k = 0; k < kLanes; ++k) root[k] = std::sqrt(mean[k]);
        root = Max(root, Splat(1e-30f));
        for (int i = 0; i < N; ++i) {
            const Lanes weight = root + Abs(Load(pack.x[i] + at));
            const Lanes given = importance != nullptr ? Load(pack.w[i] + at) : Splat(1.0f);
            Store(pack.w[i] + at, weight * given);
        }
    }
}

// Weighted sums over a group, from which the best scale is computed.
struct Sums {
    Lanes q = Splat(0), qq = Splat(0), qx = Splat(0);
    WEFT_INLINE void AddTo(Sums& sums, Lanes x, Lanes w, Lanes q) {
        const Lanes wq = w * q;
        sums.q += wq;
        sums.qq += wq * q;
        sums.qx += wq * x;
    }
};

// ---- Scale and offset ---------------------------------------------------------------------------

struct Affine {
    Lanes scale, offset, error;  // error: without the term sum of w x^2, which is the same for all
                                 // candidates
};

enum class Offset { kAny, kNotPositive };

struct Whole {
    Lanes w, x;  // sums of w and of w x
};

template <Offset kOffset>
WEFT_INLINE Affine SolveAffine(const Whole& whole, const Sums& sums) {
    const Lanes det = whole.w * sums.qq - sums.q * sums.q;
    const Lanes safe_det = det > 1e-6f * whole.w * sums.qq ? det : Splat(0);
    Lanes scale = Max(Ratio(whole.w * sums.qx - sums.q * whole.x, safe_det), Splat(0));
    Lanes offset = Ratio(whole.x - scale * sums.q, whole.w);
    if constexpr (kOffset == Offset::kNotPositive) {
        const Lanes alone = Max(Ratio(sums.qx, sums.qq), Splat(0));
        scale = offset > 0.0f ? alone : scale;
        offset = offset > 0.0f ? Splat(0) : offset;
    }
    const Lanes error = scale * (scale * sums.qq + 2.0f * (offset * sums.q - sums.qx)) +
                        offset * (offset * whole.w - 2.0f * whole.x);
    return {scale, offset, error};
}

WEFT_INLINE void KeepBetter(Affine& best, const Affine& other) {
    const auto better = other.error < best.error;
    best.scale = better ? other.scale : best.scale;
    best.offset = better ? other.offset : best.offset;
    best.error = better ? other.error : best.error;
}

// The sums of a group for codes in 0..top, given the inverse of the scale and the offset.
template <int N>
WEFT_INLINE Sums AffineSums(const Pack<N>& pack, int at, Lanes inverse, Lanes offset, float top) {
    Sums sums;
    for (int i = 0; i < N; ++i) {
        const Lanes x = Load(pack.x[i] + at);
        const Lanes q = RoundClamped((x - offset) * inverse, 0, top);
        Sums::AddTo(sums, x, Load(pack.w[i] + at), q);
    }
    return sums;
}

template <int N>
WEFT_INLINE Whole WholeSums(const Pack<N>& pack, int at) {
    Whole whole{Splat(0), Splat(0)};
    for (int i = 0; i < N; ++i) {
        const Lanes w = Load(pack.w[i] + at);
        whole.w += w;
        whole.x += w * Load(pack.x[i] + at);
    }
    return whole;
}

// Candidates of the search. Candidate c, for c in 0..count - 1, divides the range of the weights
// into top + first + c * step steps. The best candidate is then refined `repeats` times.
struct Search {
    float first, step;
    int count, repeats;
};

// Fills pack.scale and pack.offset.
template <int N, Offset kOffset>
void FitAffine(Pack<N>& pack, float top, const Search& search) {
    for (int at = 0; at < kGroups; at += kLanes) {
        Lanes low = Load(pack.x[0] + at), high = low;
        for (int i = 1; i < N; ++i) {
            low = Min(Load(pack.x[i] + at), low);
            high = Max(Load(pack.x[i] + at), high);
        }
        if constexpr (kOffset == Offset::kNotPositive) low = Min(low, Splat(0));
        const Whole whole = WholeSums(pack, at);
        const Lanes steps = Inverse(high - low);
        Affine best{Splat(0), low, Splat(3e38f)};
        for (int c = 0; c < search.count; ++c) {
            const Lanes inverse =
                steps * (top + search.first + search.step * static_cast<float>(c));
            KeepBetter(best, SolveAffine<kOffset>(whole, AffineSums(pack, at, inverse, low, top)));
        }
        for (int r = 0; r < search.repeats; ++r) {
            const Sums sums = AffineSums(pack, at, Inverse(best.scale), best.offset, top);
            KeepBetter(best, SolveAffine<kOffset>(whole, sums));
        }
        Store(pack.scale + at, best.scale);
        Store(pack.offset + at, best.offset);
    }
}

// Computes the codes for the pack's scales and offsets.
template <int N>
void AffineCodes(Pack<N>& pack, float top) {
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes inverse = Inverse(Load(pack.scale + at)), offset = Load(pack.offset + at);
        for (int i = 0; i < N; ++i) {
            const Lanes q = (Load(pack.x[i] + at) - offset) * inverse;
            Store(pack.q[i] + at, RoundClamped(q, 0, top));
        }
    }
}

// ---- Scale alone --------------------------------------------------------------------------------

// Integers in -kMost .. kMost - 1.
template <int kMost>
struct Centered {
    static constexpr float kPeak = -kMost;
    WEFT_INLINE Lanes Nearest(Lanes t) { return RoundClamped(t, -kMost, kMost - 1); }
};

// The values of IQ4_NL. Nearest compares with the 15 midpoints between neighbors.
struct Iq4 {
    static constexpr float kPeak = -127;
    WEFT_INLINE Lanes Nearest(Lanes t) {
        Lanes value = Splat(quant::kIq4Values[0]);
#pragma GCC unroll 15
        for (size_t k = 1; k < 16; ++k) {
            const float low = quant::kIq4Values[k - 1], high = quant::kIq4Values[k];
            value += t > 0.5f * (low + high) ? Splat(high - low) : Splat(0);
        }
        return value;
    }
};

struct Linear {
    Lanes scale, gain;  // gain: the error of all-zero codes minus this error
};

WEFT_INLINE void KeepBetter(Linear& best, const Sums& sums) {
    const Lanes scale = Ratio(sums.qx, sums.qq), gain = scale * sums.qx;
    const auto better = gain > best.gain;
    best.scale = better ? scale : best.scale;
    best.gain = better ? gain : best.gain;
}

template <class Values, int N>
WEFT_INLINE Sums LinearSums(const Pack<N>& pack, int at, Lanes inverse) {
    Sums sums;
    for (int i = 0; i < N; ++i) {
        const Lanes x = Load(pack.x[i] + at);
        Sums::AddTo(sums, x, Load(pack.w[i] + at), Values::Nearest(x * inverse));
    }
    return sums;
}

// The value of largest magnitude in each group, with its sign.
template <int N>
WEFT_INLINE Lanes PeakOf(const Pack<N>& pack, int at) {
    Lanes peak = Splat(0);
    for (int i = 0; i < N; ++i) {
        const Lanes x = Load(pack.x[i] + at);
        peak = Abs(x) > Abs(peak) ? x : peak;
    }
    return peak;
}

// Fills pack.scale without a search, so that the peak is represented exactly.
template <class Values, int N>
void KeepPeaks(Pack<N>& pack) {
    for (int at = 0; at < kGroups; at += kLanes) {
        Store(pack.scale + at, PeakOf(pack, at) * (1.0f / Values::kPeak));
    }
}

// Fills pack.scale. The weight of largest magnitude maps to a value near Values::kPeak, which is
// negative, so a scale may be negative.
template <class Values, int N>
void FitLinear(Pack<N>& pack, const Search& search) {
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes steps = Inverse(PeakOf(pack, at));
        Linear best{Splat(0), Splat(0)};
        for (int c = 0; c < search.count; ++c) {
            const float cut = search.first + search.step * static_cast<float>(c);
            KeepBetter(best, LinearSums<Values>(pack, at, steps * (Values::kPeak - cut)));
        }
        for (int r = 0; r < search.repeats; ++r) {
            KeepBetter(best, LinearSums<Values>(pack, at, Inverse(best.scale)));
        }
        Store(pack.scale + at, best.scale);
    }
}

template <class Values, int N>
void LinearCodes(Pack<N>& pack) {
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes inverse = Inverse(Load(pack.scale + at));
        for (int i = 0; i < N; ++i) {
            Store(pack.q[i] + at, Values::Nearest(Load(pack.x[i] + at) * inverse));
        }
    }
}

}  // namespace weft::encode::WEFT_ENCODE_LEVEL
