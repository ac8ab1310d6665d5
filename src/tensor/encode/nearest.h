// Finds the entry of a codebook (books.h) with the smallest weighted error, for groups of weights
// and a given scale. Tries all entries of the codebook, for kLanes groups at once.
//
// The error of an entry with values q is the sum of w (x - scale q)^2. The part of the error that
// depends on the entry is -scale times the entry's score:
//
//     sum of q (2 w x - scale w q)
//
// The scores of all halves of entries are kept in tables. The lowest mantissa bits of the score of
// a high half are replaced by the half itself (a relative change of at most 2^-15). So the maximum
// of such scores gives both the best score and its half.
#pragma once

#include "tensor/encode/books.h"
#include "tensor/encode/fit.h"

namespace weft::encode::WEFT_ENCODE_LEVEL {

// Lists of values; the indices in an entry select from such a list. Scales in a file are relative
// to these values.
struct Iq2Values {
    static constexpr int kBits = 2, kCount = 8, kSize = 3;
    static constexpr float kList[kSize] = {1, 3.125f, 5.375f};  // 8, 25, 43
    static constexpr float kPeak = 5.375f;
    WEFT_INLINE Lanes Value(Lanes place) { return 1.0f + place * (2.0625f + 0.0625f * place); }
};

struct Iq3XxsValues {
    static constexpr int kBits = 3, kCount = 4, kSize = 8;
    static constexpr float kList[kSize] = {1, 3, 5, 7, 9, 11, 13, 15.5f};  // 4, 12, ... 52, 62
    static constexpr float kPeak = 15.5f;
    WEFT_INLINE Lanes Value(Lanes place) {
        return 1.0f + 2.0f * place + (place > 6.5f ? Splat(0.5f) : Splat(0));
    }
};

struct Iq3SValues {
    static constexpr int kBits = 3, kCount = 4, kSize = 8;
    static constexpr float kList[kSize] = {1, 3, 5, 7, 9, 11, 13, 15};
    static constexpr float kPeak = 15;
    WEFT_INLINE Lanes Value(Lanes place) { return 1.0f + 2.0f * place; }
};

// -1, 0 and 1, plus 1/8 (kSign = 1) or minus 1/8 (kSign = -1).
template <int kSign>
struct Iq1Values {
    static constexpr int kBits = 2, kCount = 8, kSize = 3;
    static constexpr float kMiddle = 0.125f * kSign;
    static constexpr float kList[kSize] = {kMiddle - 1, kMiddle, kMiddle + 1};
    static constexpr float kPeak = 1.125f;
    WEFT_INLINE Lanes Value(Lanes place) { return place + (kMiddle - 1.0f); }
};

// Scores of all halves of entries, indexed by the half.
template <class V>
struct Halves {
    static constexpr int kBits = V::kBits * V::kCount / 2;
    static constexpr int32_t kMask = (1 << kBits) - 1;
    alignas(64) float low[1 << kBits][kLanes];
    alignas(64) float high[1 << kBits][kLanes];
};

// Scores of the pairs of values for weights `i` and `i` + 1; the first weight's index varies
// fastest.
template <class V, int N>
WEFT_INLINE void ScorePair(const Pack<N>& pack, int at, int i, Lanes scale,
                           Lanes (&pair)[V::kSize * V::kSize]) {
    Lanes each[2][V::kSize];
    for (int k = 0; k < 2; ++k) {
        const Lanes w = Load(pack.w[i + k] + at);
        const Lanes twice = 2.0f * w * Load(pack.x[i + k] + at), least = w * scale;
#pragma GCC unroll 8
        for (int v = 0; v < V::kSize; ++v) each[k][v] = V::kList[v] * (twice - V::kList[v] * least);
    }
#pragma GCC unroll 8
    for (int b = 0; b < V::kSize; ++b) {
#pragma GCC unroll 8
        for (int a = 0; a < V::kSize; ++a) pair[V::kSize * b + a] = each[0][a] + each[1][b];
    }
}

template <class V, bool kTagged>
WEFT_INLINE void PutScore(float (*table)[kLanes], int half, Lanes score) {
    if constexpr (kTagged) {
        const Ints bits = ((Ints)score & ~Halves<V>::kMask) | half;
        score = (Lanes)bits;
    }
    Store(table[half], score);
}

// Fills the table for the half that begins at weight `i`.
template <class V, bool kTagged, int N>
WEFT_INLINE void ScoreHalf(const Pack<N>& pack, int at, int i, Lanes scale,
                           float (*table)[kLanes]) {
    constexpr int kSize = V::kSize, kPairs = kSize * kSize;
    Lanes first[kPairs];
    ScorePair<V>(pack, at, i, scale, first);
    const auto place = [](int p) { return p % kSize | p / kSize << V::kBits; };
    if constexpr (V::kCount == 4) {
        for (int p = 0; p < kPairs; ++p) PutScore<V, kTagged>(table, place(p), first[p]);
    } else {
        Lanes second[kPairs];
        ScorePair<V>(pack, at, i + 2, scale, second);
        for (int q = 0; q < kPairs; ++q) {
#pragma GCC unroll 9
            for (int p = 0; p < kPairs; ++p) {
                PutScore<V, kTagged>(table, place(p) | place(q) << 2 * V::kBits,
                                     first[p] + second[q]);
            }
        }
    }
}

struct Nearest {
    Ints entry;
    Lanes score;
};

// Finds the nearest entry for the weights from `i` on.
template <class V, int N>
void FindNearest(const Book& book, const Pack<N>& pack, int at, int i, Lanes scale,
                 Nearest& found) {
    using Table = Halves<V>;
    Table table;
    ScoreHalf<V, false>(pack, at, i, scale, table.low);
    ScoreHalf<V, true>(pack, at, i + V::kCount / 2, scale, table.high);
    Lanes best = Splat(-INFINITY);
    Ints low = Ints{} + book.lists[0].low, high = Ints{} + book.high[book.lists[0].begin];
    for (const Book::List& list : book.lists) {
        const uint8_t* at_high = &book.high[list.begin];
        Lanes most[4];
        for (int k = 0; k < 4; ++k) most[k] = Load(table.high[at_high[k]]);
        for (int j = 4; j < list.count; j += 4) {
#pragma GCC unroll 4
            for (int k = 0; k < 4; ++k) {
                most[k] = Max(Load(table.high[at_high[j + k]]), most[k]);
            }
        }
        const Lanes top = Max(Max(most[0], most[1]), Max(most[2], most[3]));
        const Lanes score = top + Load(table.low[list.low]);
        const auto better = score > best;
        best = better ? score : best;
        low = better ? Ints{} + list.low : low;
        high = better ? (Ints)top : high;
    }
    found = {low | (high & Table::kMask) << Table::kBits, best};
}

// Adds to `sums` the terms of the weights from `i` on, whose codes are the values of `entry`.
template <class V, int N>
WEFT_INLINE void AddEntry(const Pack<N>& pack, int at, int i, Ints entry, Sums& sums) {
    for (int k = 0; k < V::kCount; ++k) {
        const Ints place = entry >> k * V::kBits & ((1 << V::kBits) - 1);
        const Lanes q = V::Value(__builtin_convertvector(place, Lanes));
        Sums::AddTo(sums, Load(pack.x[i + k] + at), Load(pack.w[i + k] + at), q);
    }
}

// ---- Whole groups -------------------------------------------------------------------------------

// Each kind of group has kEntries (entries per group), a codebook, and Find, which finds the
// nearest entries for a scale and their sums.

template <class V, int N, const Book& (*kBook)()>
struct Signless {
    static constexpr int kEntries = N / V::kCount;
    static constexpr float kPeak = V::kPeak;
    static void Find(const Pack<N>& pack, int at, Lanes scale, Ints* entries, Sums& sums) {
        const Book& book = kBook();
        for (int e = 0; e < kEntries; ++e) {
            Nearest found;
            FindNearest<V>(book, pack, at, e * V::kCount, scale, found);
            entries[e] = found.entry;
            AddEntry<V>(pack, at, e * V::kCount, found.entry, sums);
        }
    }
};

// IQ1: tries both offsets. kShared consecutive entries share an offset. Bit 16 of an entry is set
// if the offset is negative.
template <int N, int kShared>
struct Ternary {
    static constexpr int kEntries = N / 8;
    static constexpr float kPeak = 1.125f;
    using More = Iq1Values<1>;
    using Less = Iq1Values<-1>;
    static void Find(const Pack<N>& pack, int at, Lanes scale, Ints* entries, Sums& sums) {
        const Book& book = Iq1Book();
        for (int first = 0; first < kEntries; first += kShared) {
            Nearest more[kShared], less[kShared];
            Lanes gain = Splat(0);
            for (int e = 0; e < kShared; ++e) {
                FindNearest<More>(book, pack, at, (first + e) * 8, scale, more[e]);
                FindNearest<Less>(book, pack, at, (first + e) * 8, scale, less[e]);
                gain += less[e].score - more[e].score;
            }
            Sums with_more, with_less;
            for (int e = 0; e < kShared; ++e) {
                AddEntry<More>(pack, at, (first + e) * 8, more[e].entry, with_more);
                AddEntry<Less>(pack, at, (first + e) * 8, less[e].entry, with_less);
                entries[first + e] = gain > 0.0f ? less[e].entry | 1 << 16 : more[e].entry;
            }
            sums.qq += gain > 0.0f ? with_less.qq : with_more.qq;
            sums.qx += gain > 0.0f ? with_less.qx : with_more.qx;
        }
    }
};

using GroupIq1S = Ternary<32, 4>;
using GroupIq1M = Ternary<16, 1>;
using GroupIq2Xxs = Signless<Iq2Values, 32, Iq2XxsBook>;
using GroupIq2Xs = Signless<Iq2Values, 16, Iq2XsBook>;
using GroupIq2S = Signless<Iq2Values, 16, Iq2SBook>;
using GroupIq3Xxs = Signless<Iq3XxsValues, 32, Iq3XxsBook>;
using GroupIq3S = Signless<Iq3SValues, 32, Iq3SBook>;

}  // namespace weft::encode::WEFT_ENCODE_LEVEL
