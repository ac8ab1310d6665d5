// Encoders of the codebook types IQ1, IQ2 and IQ3 (layouts: tensor/quant_iq.cc). Signs are split
// off first. The scale of a group is an odd integer times the block's f16 factor.
#pragma once

#include "tensor/encode/blocks.h"
#include "tensor/encode/nearest.h"

namespace weft::encode::WEFT_ENCODE_LEVEL {

// ---- Signs --------------------------------------------------------------------------------------

enum class Signs { kAny, kEven };

// The signs of 16 groups, one bit per weight: bits[i][g] has the signs of weights 8 i to 8 i + 7 of
// group g.
template <int N>
struct SignBits {
    alignas(64) int32_t bits[N / 8][kGroups];
};

// Makes weights positive and records their signs. kEven: the format requires that each eight
// weights have an even number of minus signs. If the number is odd, the recorded sign of one weight
// is flipped, the one that costs the least error; that weight then stays negative.
template <Signs kSigns, int N>
void TakeSigns(Pack<N>& pack, SignBits<N>& signs) {
    for (int at = 0; at < kGroups; at += kLanes) {
        for (int e = 0; e < N / 8; ++e) {
            Ints bits = {}, cheapest = {};
            Lanes least = Splat(INFINITY);
            for (int k = 0; k < 8; ++k) {
                float* x = pack.x[8 * e + k] + at;
                const Lanes size = Abs(Load(x)), cost = Load(pack.w[8 * e + k] + at) * size;
                bits |= Load(x) < 0.0f ? Ints{} + (1 << k) : Ints{};
                cheapest = cost < least ? Ints{} + (1 << k) : cheapest;
                least = Min(cost, least);
                Store(x, size);
            }
            if constexpr (kSigns == Signs::kEven) {
                Ints odd = bits ^ bits >> 4;
                odd ^= odd >> 2;
                odd = (odd ^ odd >> 1) & 1;
                cheapest = odd != 0 ? cheapest : Ints{};
                bits ^= cheapest;
                for (int k = 0; k < 8; ++k) {
                    const Lanes size = Load(pack.x[8 * e + k] + at);
                    Store(pack.x[8 * e + k] + at, cheapest == 1 << k ? -size : size);
                }
            }
            std::memcpy(signs.bits[e] + at, &bits, sizeof bits);
        }
    }
}

// ---- Scales -------------------------------------------------------------------------------------

// In these searches, candidate c is the scale that equals the largest weight of the group divided
// by ((first + c * step) times the largest value of the list).
inline constexpr Search kSearchIq3 = {0.80f, 0.08f, 6, 1};
inline constexpr Search kSearchIq2 = {0.76f, 0.10f, 6, 1};
inline constexpr Search kSearchIq1 = {0.90f, 0.20f, 6, 1};

// The result of fitting a pack.
template <class Group>
struct Found {
    Grid grid;
    alignas(64) int32_t entries[Group::kEntries][kGroups];
};

// Fills pack.scale. If all weights of a group are of similar size, the first candidate maps them to
// the smallest value of the list.
template <class Group, int N>
void FitBook(Pack<N>& pack, const Search& search) {
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes peak = Abs(PeakOf(pack, at));
        Lanes lowest = peak;
        for (int i = 0; i < N; ++i) lowest = Min(Abs(Load(pack.x[i] + at)), lowest);
        const auto alike = lowest > 0.75f * peak;
        Ints ignored[Group::kEntries];
        Linear best{Splat(0), Splat(0)};
        for (int c = 0; c < search.count + search.repeats; ++c) {
            const float cut = Group::kPeak * (search.first + search.step * static_cast<float>(c));
            Lanes tried = c < search.count ? peak * (1.0f / cut) : best.scale;
            if (c == 0) tried = alike ? peak : tried;
            Sums sums;
            Group::Find(pack, at, tried, ignored, sums);
            sums.qx = Max(sums.qx, Splat(0));
            KeepBetter(best, sums);
        }
        Store(pack.scale + at, best.scale);
    }
}

inline float ToOdd(float value, float most) {
    return 2 * ToInteger((value - 1) * 0.5f, 0, (most - 1) * 0.5f) + 1;
}

// Starts with d such that the block's largest scale is `most`, and rounds all scales to odd
// integers.
template <int N>
void StartOddGrid(const Pack<N>& pack, float most, Grid& grid) {
    constexpr int kEach = 256 / N;
    for (int b = 0; b < kGroups; b += kEach) {
        float top = 0;
        for (int g = b; g < b + kEach; ++g) top = pack.scale[g] > top ? pack.scale[g] : top;
        const float d = AsF16(top / most);
        for (int g = b; g < b + kEach; ++g) {
            grid.d[g] = d;
            grid.scale[g] = ToOdd(pack.scale[g] * InverseOf(d), most);
        }
    }
}

// For each group, tries the current scale, the next smaller and the next larger odd integer, and
// keeps the best. Then solves for d by least squares, for the entries found.
template <class Group, int N>
void ImproveOddGrid(const Pack<N>& pack, float most, Grid& grid) {
    constexpr int kEach = 256 / N;
    alignas(64) float qq[kGroups], qx[kGroups];
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes d = Load(grid.d + at), middle = Load(grid.scale + at);
        Lanes best = middle, least = Splat(3e38f);
        Sums kept;
        for (const float step : {0.0f, -2.0f, 2.0f}) {
            const Lanes scale = Min(Max(middle + step, Splat(1)), Splat(most)), size = d * scale;
            Ints ignored[Group::kEntries];
            Sums sums;
            Group::Find(pack, at, size, ignored, sums);
            const Lanes error = size * (size * sums.qq - 2.0f * sums.qx);
            const auto better = error < least;
            best = better ? scale : best;
            least = better ? error : least;
            kept.qq = better ? sums.qq : kept.qq;
            kept.qx = better ? sums.qx : kept.qx;
        }
        Store(grid.scale + at, best);
        Store(qq + at, kept.qq);
        Store(qx + at, kept.qx);
    }
    for (int b = 0; b < kGroups; b += kEach) {
        double ss = 0, sx = 0;
        for (int g = b; g < b + kEach; ++g) {
            const double s = grid.scale[g];
            ss += s * s * qq[g];
            sx += s * qx[g];
        }
        const double d = ss > 0 ? sx / ss : 0;
        if (!(d > 0) || !(d < 65504)) continue;
        for (int g = b; g < b + kEach; ++g) grid.d[g] = AsF16(static_cast<float>(d));
    }
}

template <class Group, int N>
void FitOddGrid(Pack<N>& pack, float most, const Search& search, int rounds, Found<Group>& found) {
    FitBook<Group>(pack, search);
    StartOddGrid(pack, most, found.grid);
    for (int r = 0; r < rounds; ++r) ImproveOddGrid<Group>(pack, most, found.grid);
    for (int at = 0; at < kGroups; at += kLanes) {
        const Lanes scale = Load(found.grid.d + at) * Load(found.grid.scale + at);
        Ints entries[Group::kEntries];
        Sums ignored;
        Group::Find(pack, at, scale, entries, ignored);
        for (int e = 0; e < Group::kEntries; ++e) {
            std::memcpy(found.entries[e] + at, &entries[e], sizeof entries[e]);
        }
    }
}

// ---- Bytes --------------------------------------------------------------------------------------

inline void OrByte(std::byte* p, int bits) {
    *p |= static_cast<std::byte>(bits);
}

inline void PutU16(std::byte* p, int value) {
    const auto bits = static_cast<uint16_t>(value);
    std::memcpy(p, &bits, sizeof bits);
}

// The code of an odd scale.
inline int ScaleCode(const Grid& grid, int g) {
    return static_cast<int>(grid.scale[g]) >> 1;
}

inline int IndexOf(const Book& book, int32_t entry) {
    return book.index[static_cast<size_t>(entry & 0xffff)];
}

// Packs four groups of seven signs, and a scale, into a u32.
inline void PutSignsAndScale(const SignBits<32>& signs, const Grid& grid, int g, std::byte* dst) {
    uint32_t word = static_cast<uint32_t>(ScaleCode(grid, g)) << 28;
    for (int e = 0; e < 4; ++e) word |= static_cast<uint32_t>(signs.bits[e][g] & 127) << 7 * e;
    std::memcpy(dst, &word, sizeof word);
}

inline void EncodeIq3Xxs(Pack<32>& pack, int groups, std::byte* dst) {
    static thread_local SignBits<32> signs;
    static thread_local Found<GroupIq3Xxs> found;
    TakeSigns<Signs::kEven>(pack, signs);
    FitOddGrid(pack, 31, kSearchIq3, 1, found);
    for (int b = 0; b < groups; b += 8, dst += 98) {
        PutF16(dst, found.grid.d[b]);
        for (int s = 0; s < 8; ++s) {
            for (int e = 0; e < 8; ++e) {
                const int index = IndexOf(Iq3XxsBook(), found.entries[e][b + s]);
                dst[2 + 8 * s + e] = static_cast<std::byte>(index);
            }
            PutSignsAndScale(signs, found.grid, b + s, dst + 66 + 4 * s);
        }
    }
}

inline void EncodeIq3S(Pack<32>& pack, int groups, std::byte* dst) {
    static thread_local SignBits<32> signs;
    static thread_local Found<GroupIq3S> found;
    TakeSigns<Signs::kAny>(pack, signs);
    FitOddGrid(pack, 31, kSearchIq3, 1, found);
    for (int b = 0; b < groups; b += 8, dst += 110) {
        PutF16(dst, found.grid.d[b]);
        std::memset(dst + 66, 0, 8);
        std::memset(dst + 106, 0, 4);
        for (int s = 0; s < 8; ++s) {
            for (int e = 0; e < 8; ++e) {
                const int index = IndexOf(Iq3SBook(), found.entries[e][b + s]);
                dst[2 + 8 * s + e] = static_cast<std::byte>(index & 255);
                OrByte(dst + 66 + s, index >> 8 << e);
            }
            for (int e = 0; e < 4; ++e) {
                dst[74 + 4 * s + e] = static_cast<std::byte>(signs.bits[e][b + s]);
            }
            OrByte(dst + 106 + s / 2, ScaleCode(found.grid, b + s) << s % 2 * 4);
        }
    }
}

inline void EncodeIq2Xxs(Pack<32>& pack, int groups, std::byte* dst) {
    static thread_local SignBits<32> signs;
    static thread_local Found<GroupIq2Xxs> found;
    TakeSigns<Signs::kEven>(pack, signs);
    FitOddGrid(pack, 31, kSearchIq2, 2, found);
    for (int b = 0; b < groups; b += 8, dst += 66) {
        PutF16(dst, found.grid.d[b]);
        for (int s = 0; s < 8; ++s) {
            for (int e = 0; e < 4; ++e) {
                const int index = IndexOf(Iq2XxsBook(), found.entries[e][b + s]);
                dst[2 + 8 * s + e] = static_cast<std::byte>(index);
            }
            PutSignsAndScale(signs, found.grid, b + s, dst + 6 + 8 * s);
        }
    }
}

inline void EncodeIq2Xs(Pack<16>& pack, int, std::byte* dst) {
    static thread_local SignBits<16> signs;
    static thread_local Found<GroupIq2Xs> found;
    TakeSigns<Signs::kEven>(pack, signs);
    FitOddGrid(pack, 31, kSearchIq2, 2, found);
    PutF16(dst, found.grid.d[0]);
    std::memset(dst + 66, 0, 8);
    for (int s = 0; s < 16; ++s) {
        for (int e = 0; e < 2; ++e) {
            const int index = IndexOf(Iq2XsBook(), found.entries[e][s]);
            PutU16(dst + 2 + 4 * s + 2 * e, index | (signs.bits[e][s] & 127) << 9);
        }
        OrByte(dst + 66 + s / 2, ScaleCode(found.grid, s) << s % 2 * 4);
    }
}

inline void EncodeIq2S(Pack<16>& pack, int, std::byte* dst) {
    static thread_local SignBits<16> signs;
    static thread_local Found<GroupIq2S> found;
    TakeSigns<Signs::kAny>(pack, signs);
    FitOddGrid(pack, 31, kSearchIq2, 2, found);
    PutF16(dst, found.grid.d[0]);
    std::memset(dst + 66, 0, 16);
    for (int s = 0; s < 16; ++s) {
        for (int e = 0; e < 2; ++e) {
            const int index = IndexOf(Iq2SBook(), found.entries[e][s]), g = 2 * s + e;
            dst[2 + g] = static_cast<std::byte>(index & 255);
            dst[34 + g] = static_cast<std::byte>(signs.bits[e][s]);
            OrByte(dst + 66 + g / 4, index >> 8 << g % 4 * 2);
        }
        OrByte(dst + 74 + s / 2, ScaleCode(found.grid, s) << s % 2 * 4);
    }
}

inline void EncodeIq1S(Pack<32>& pack, int groups, std::byte* dst) {
    static thread_local Found<GroupIq1S> found;
    FitOddGrid(pack, 15, kSearchIq1, 2, found);
    for (int b = 0; b < groups; b += 8, dst += 50) {
        PutF16(dst, found.grid.d[b]);
        for (int s = 0; s < 8; ++s) {
            int word = ScaleCode(found.grid, b + s) << 12 | found.entries[0][b + s] >> 16 << 15;
            for (int e = 0; e < 4; ++e) {
                const int index = IndexOf(Iq1Book(), found.entries[e][b + s]);
                dst[2 + 4 * s + e] = static_cast<std::byte>(index & 255);
                word |= index >> 8 << 3 * e;
            }
            PutU16(dst + 34 + 2 * s, word);
        }
    }
}

inline void EncodeIq1M(Pack<16>& pack, int, std::byte* dst) {
    static thread_local Found<GroupIq1M> found;
    FitOddGrid(pack, 15, kSearchIq1, 2, found);
    std::memset(dst + 32, 0, 16);
    int scales[4];  // the top 4 bits of each element hold 4 of the 16 bits of d, the lowest bits
                    // first
    for (int i = 0; i < 4; ++i) scales[i] = (F32ToF16(found.grid.d[0]) >> 4 * i & 15) << 12;
    for (int s = 0; s < 16; ++s) {
        for (int e = 0; e < 2; ++e) {
            const int32_t entry = found.entries[e][s];
            const int index = IndexOf(Iq1Book(), entry);
            dst[2 * s + e] = static_cast<std::byte>(index & 255);
            OrByte(dst + 32 + s, (index >> 8 | entry >> 16 << 3) << 4 * e);
        }
        scales[s / 4] |= ScaleCode(found.grid, s) << s % 4 * 3;
    }
    for (int i = 0; i < 4; ++i) PutU16(dst + 48 + 2 * i, scales[i]);
}

}  // namespace weft::encode::WEFT_ENCODE_LEVEL
