// Superblocks of 256 weights: the scales (and minima) of the groups of weights are integers times
// an f16 factor. First the scale of each group is searched alone and rounded to such an integer.
// Then the best among neighboring integers is chosen for each group, and the f16 factors are
// computed again, by least squares over all groups of a block.
#pragma once

#include "tensor/encode/fit.h"

namespace weft::encode::WEFT_ENCODE_LEVEL {

// Rounds to the nearest f16.
WEFT_INLINE float AsF16(float value) {
    return F16ToF32(F32ToF16(value));
}

// Integer scales and f16 factors of 16 groups. kEach consecutive groups form a block.
struct Grid {
    alignas(64) float scale[kGroups], min[kGroups];  // integers
    alignas(64) float d[kGroups], dmin[kGroups];     // f16 factors, equal within a block
};

inline float InverseOf(float value) {
    return std::fabs(value) > 1e-37f ? 1.0f / value : 0.0f;
}

inline float ToInteger(float value, float low, float high) {
    const float clamped = value > low ? (value < high ? value : high) : low;
    return (clamped + 12582912.0f) - 12582912.0f;
}

// ---- Scales and minima (Q2_K, Q4_K, Q5_K) -------------------------------------------------------

// Computes the factors from the largest scale and the largest minimum of each block, and rounds
// scales and minima to integers.
template <int N, int kEach>
void StartAffineGrid(const Pack<N>& pack, float most, Grid& grid) {
    for (int b = 0; b < kGroups; b += kEach) {
        float top_scale = 0, top_min = 0;
        for (int g = b; g < b + kEach; ++g) {
            top_scale = pack.scale[g] > top_scale ? pack.scale[g] : top_scale;
            top_min = -pack.offset[g] > top_min ? -pack.offset[g] : top_min;
        }
        const float d = AsF16(top_scale / most), dmin = AsF16(top_min / most);
        for (int g = b; g < b + kEach; ++g) {
            grid.d[g] = d;
            grid.dmin[g] = dmin;
            grid.scale[g] = ToInteger(pack.scale[g] * InverseOf(d), 0, most);
            grid.min[g] = ToInteger(-pack.offset[g] * InverseOf(dmin), 0, most);
        }
    }
}

struct GridChoice {
    Lanes scale, min, error;
};

// Computes the codes for `scale` and the current minimum, then the best minimum for these codes.
template <int N>
WEFT_INLINE GridChoice TryAffine(const Pack<N>& pack, int at, const Whole& whole, const Grid& grid,
                                 Lanes scale, float top, float most) {
    const Lanes dmin = Load(grid.dmin + at), d = Load(grid.d + at) * scale;
    const Sums sums = AffineSums(pack, at, Inverse(d), -(dmin * Load(grid.min + at)), top);
    const Lanes wanted = Ratio(d * sums.q - whole.x, whole.w);
    const Lanes min = RoundClamped(wanted * Inverse(dmin), 0, most);
    const Lanes offset = dmin * min;
    const Lanes error = d * (d * sums.qq - 2.0f * (offset * sums.q + sums.qx)) +
                        offset * (offset * whole.w + 2.0f * whole.x);
    return {scale, min, error};
}

template <int N>
void ChooseAffine(const Pack<N>& pack, float top, float most, Grid& grid) {
    for (int at = 0; at < kGroups; at += kLanes) {
        const Whole whole = WholeSums(pack, at);
        const Lanes middle = Load(grid.scale + at);
        GridChoice best = TryAffine(pack, at, whole, grid, middle, top, most);
        for (const float step : {-1.0f, 1.0f}) {
            const Lanes scale = Min(Max(middle + step, Splat(0)), Splat(most));
            const GridChoice other = TryAffine(pack, at, whole, grid, scale, top, most);
            const auto better = other.error < best.error;
            best.scale = better ? other.scale : best.scale;
            best.min = better ? other.min : best.min;
            best.error = better ? other.error : best.error;
        }
        Store(grid.scale + at, best.scale);
        Store(grid.min + at, best.min);
    }
}

// Sets pack.scale and pack.offset from the grid.
template <int N>
void UseAffineGrid(const Grid& grid, Pack<N>& pack) {
    for (int g = 0; g < kGroups; ++g) {
        pack.scale[g] = grid.d[g] * grid.scale[g];
        pack.offset[g] = -(grid.dmin[g] * grid.min[g]);
    }
}

// Computes both factors of each block by least squares, for the codes that result from the current
// factors.
template <int N, int kEach>
void SolveAffineGrid(Pack<N>& pack, float top, Grid& grid) {
    alignas(64) float w[kGroups], x[kGroups], q[kGroups], qq[kGroups], qx[kGroups];
    UseAffineGrid(grid, pack);
    for (int at = 0; at < kGroups; at += kLanes) {
        const Whole whole = WholeSums(pack, at);
        const Sums sums =
            AffineSums(pack, at, Inverse(Load(pack.scale + at)), Load(pack.offset + at), top);
        Store(w + at, whole.w);
        Store(x + at, whole.x);
        Store(q + at, sums.q);
        Store(qq + at, sums.qq);
        Store(qx + at, sums.qx);
    }
    for (int b = 0; b < kGroups; b += kEach) {
        double ss = 0, sm = 0, mm = 0, sx = 0, mx = 0;
        for (int g = b; g < b + kEach; ++g) {
            const double s = grid.scale[g], m = grid.min[g];
            ss += s * s * qq[g];
            sm += s * m * q[g];
            mm += m * m * w[g];
            sx += s * qx[g];
            mx += m * x[g];
        }
        const double det = ss * mm - sm * sm;
        double d = ss > 0 ? sx / ss : 0, dmin = 0;
        if (det > 1e-9 * ss * mm) {
            d = (sx * mm - sm * mx) / det;
            dmin = (sm * sx - ss * mx) / det;
        }
        if (!(d > 0) || !(dmin >= 0) || !(d < 65504) || !(dmin < 65504)) continue;
        for (int g = b; g < b + kEach; ++g) {
            grid.d[g] = AsF16(static_cast<float>(d));
            grid.dmin[g] = AsF16(static_cast<float>(dmin));
        }
    }
}

// Scales and minima are in 0..most, codes in 0..top. Leaves the codes in the pack.
template <int N>
void FitAffineGrid(Pack<N>& pack, float top, float most, const Search& search, int rounds,
                   Grid& grid) {
    constexpr int kEach = 256 / N;
    FitAffine<N, Offset::kNotPositive>(pack, top, search);
    StartAffineGrid<N, kEach>(pack, most, grid);
    for (int r = 0; r < rounds; ++r) {
        ChooseAffine(pack, top, most, grid);
        SolveAffineGrid<N, kEach>(pack, top, grid);
    }
    UseAffineGrid(grid, pack);
    AffineCodes(pack, top);
}

// ---- Scales alone (Q3_K, Q6_K, IQ4_XS) ----------------------------------------------------------

// Scales are integers in -most .. most - 1.
template <int N, int kEach>
void StartLinearGrid(const Pack<N>& pack, float most, Grid& grid) {
    for (int b = 0; b < kGroups; b += kEach) {
        float top = 0;
        for (int g = b; g < b + kEach; ++g) {
            if (std::fabs(pack.scale[g]) > std::fabs(top)) top = pack.scale[g];
        }
        const float d = AsF16(-top / most);
        for (int g = b; g < b + kEach; ++g) {
            grid.d[g] = d;
            grid.scale[g] = ToInteger(pack.scale[g] * InverseOf(d), -most, most - 1);
        }
    }
}

template <class Values, int N>
void ChooseLinear(const Pack<N>& pack, float most, Grid& grid) {
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes d = Load(grid.d + at), middle = Load(grid.scale + at);
        Lanes best = middle, least = Splat(3e38f);
        for (const float step : {0.0f, -1.0f, 1.0f}) {
            const Lanes scale = Min(Max(middle + step, Splat(-most)), Splat(most - 1));
            const Lanes size = d * scale;
            const Sums sums = LinearSums<Values>(pack, at, Inverse(size));
            const Lanes error = size * (size * sums.qq - 2.0f * sums.qx);
            best = error < least ? scale : best;
            least = error < least ? error : least;
        }
        Store(grid.scale + at, best);
    }
}

template <int N>
void UseLinearGrid(const Grid& grid, Pack<N>& pack) {
    for (int g = 0; g < kGroups; ++g) pack.scale[g] = grid.d[g] * grid.scale[g];
}

template <class Values, int N, int kEach>
void SolveLinearGrid(Pack<N>& pack, Grid& grid) {
    alignas(64) float qq[kGroups], qx[kGroups];
    UseLinearGrid(grid, pack);
    for (int at = 0; at < kGroups; at += kLanes) {
        const Sums sums = LinearSums<Values>(pack, at, Inverse(Load(pack.scale + at)));
        Store(qq + at, sums.qq);
        Store(qx + at, sums.qx);
    }
    for (int b = 0; b < kGroups; b += kEach) {
        double ss = 0, sx = 0;
        for (int g = b; g < b + kEach; ++g) {
            const double s = grid.scale[g];
            ss += s * s * qq[g];
            sx += s * qx[g];
        }
        const double d = ss > 0 ? sx / ss : 0;
        if (!(std::fabs(d) < 65504) || d == 0) continue;
        for (int g = b; g < b + kEach; ++g) grid.d[g] = AsF16(static_cast<float>(d));
    }
}

template <class Values, int N>
void FitLinearGrid(Pack<N>& pack, float most, const Search& search, int rounds, Grid& grid) {
    constexpr int kEach = 256 / N;
    FitLinear<Values>(pack, search);
    StartLinearGrid<N, kEach>(pack, most, grid);
    for (int r = 0; r < rounds; ++r) {
        ChooseLinear<Values>(pack, most, grid);
        SolveLinearGrid<Values, N, kEach>(pack, grid);
    }
    UseLinearGrid(grid, pack);
    LinearCodes<Values>(pack);
}

}  // namespace weft::encode::WEFT_ENCODE_LEVEL
