// Attention in tiles of 64 keys, and writing of the cache rows that it reads.
//
// A block of up to 96 queries that share a KV head goes over the keys tile by tile, with the online
// softmax of flash attention (Dao et al. 2022): scores of the tile, the new maximum, weights by
// exp2 (the query is scaled by log2 e beforehand), values. If many queries share a tile, it is
// converted to floats once. A few queries read the cache directly, decoding its blocks as they are
// multiplied, and their KV heads alternate tile by tile, so that pages are read in address order.
// Keys and values may have different types.
//
// A query's bits depend only on that query: tiles begin at multiples of 64 positions regardless of
// the step, a score is one chain of FMAs over dims, an output one chain over keys, and masked keys
// add an exact zero. Tiles outside a window are not read. So a row has the same bits alone and
// among others, in any chunk and on any number of parts.
//
// For a BF16 cache on CPUs that multiply BF16 (Simd::kDots), queries and weights are rounded to
// BF16, and a chain adds two dims, or two keys, at a time. A sum of weights uses the rounded
// weights. (Queries are rounded if keys are BF16, weights if values are.)
//
// If rows choose blocks of keys (sparse.h), tiles that no query of a block sees are skipped, and
// other keys that a query does not see get a weight of zero.
#include <algorithm>
#include <cstring>
#include <limits>

#include "kernels/attention_split.h"
#include "kernels/reference/ops.h"
#include "kernels/vector/cache_blocks.h"
#include "kernels/vector/choice.h"
#include "kernels/vector/math.h"

namespace weft::kernels::WEFT_SET {
namespace {

constexpr float kLog2E = 1.44269504f;
constexpr int kMicroRows = 6;  // queries whose sums are in registers at a time
// Up to this number, the cache is read without conversion.
constexpr int64_t kDirectQueries = 12;

// Loads one of the two factors: rows of a tile (K: a dim of 64 keys; V: the values of a key), kStep
// at a time. The other factors are consecutive floats, or pairs of BF16.
//   kElementBytes  from a column to the next of a row in memory
//   kRowElement    bytes of a row per column
template <DType dtype>
struct SingleRows {
    static constexpr bool kBlocks = false;
    static constexpr int64_t kStep = 1;
    static constexpr int64_t kElementBytes = dtype == DType::kF32 ? 4 : 2;
    static constexpr int64_t kRowElement = kElementBytes;
    // A tile that is read from the cache comes from memory; converted tiles are in the core's
    // caches. (Float32 caches are for reference runs.)
    static constexpr bool kPrefetch = dtype != DType::kF32;
    // `rows` rows remain.
    static Float Load(const std::byte* from, int64_t /*stride*/ = 0, int64_t /*rows*/ = 1) {
        if constexpr (dtype == DType::kF32) return Simd::Load(reinterpret_cast<const float*>(from));
        if constexpr (dtype == DType::kF16) return Simd::LoadF16(from);
        if constexpr (dtype == DType::kBF16) return Simd::LoadBF16(from);
    }
    static float Factor(const float* factors, int64_t i) { return factors[i]; }
    static Float Add(Float x, Float y, Float sum) { return Simd::Fma(x, y, sum); }
};

// Two rows of BF16 in the cache's layout; masked rows are not read.
template <typename S>
struct RowPairs {
    static constexpr bool kBlocks = false;
    static constexpr int64_t kStep = 2, kElementBytes = 2, kRowElement = 2;
    static constexpr bool kPrefetch = true;
    static Float Load(const std::byte* from, int64_t stride, int64_t rows) {
        return rows > 1 ? S::PairRows(from, from + stride) : S::PairRow(from);
    }
    static float Factor(const float* factors, int64_t i) { return factors[i / 2]; }
    static Float Add(Float x, Float y, Float sum) { return S::Dot(x, y, sum); }
};

// The same, already interleaved.
template <typename S>
struct PairedRows : RowPairs<S> {
    static constexpr int64_t kElementBytes = 4;
    static constexpr bool kPrefetch = false;
    static Float Load(const std::byte* from, int64_t, int64_t) {
        return Simd::Load(reinterpret_cast<const float*>(from));
    }
};

// Blocks of 32 elements.
template <typename Type>
struct BlockRows : Type {
    static constexpr bool kBlocks = true;
};

// Number of vectors whose sums, for `rows` queries, fit the registers.
constexpr int Columns(int rows) {
    if (Simd::kRegisters == 32) return 4;
    return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

// One tile: K [head_dim][64], V [keys] rows.
struct Tile {
    int64_t begin = 0, keys = 0;
    const std::byte* k = nullptr;
    const std::byte* v = nullptr;
    int64_t v_stride = 0;  // bytes from one row to the next
    // The tile that is read next, and prefetched meanwhile.
    const std::byte* next_k = nullptr;
    const std::byte* next_v = nullptr;
    int64_t first_query = 0, end_query = 0;  // of the block, that may see some of the keys
};

// The memory of a block's queries: views into a Bundle.
struct Block {
    AttentionRun run;
    int64_t begin = 0, count = 0;  // queries [begin, begin + count) of the run
    int64_t head_dim = 0, value_dim = 0;
    int64_t padded = 0;        // the larger of the two, padded
    float* q = nullptr;        // [count][padded], scaled
    float* out = nullptr;      // [count][padded], weighted sums of values so far
    float* scores = nullptr;   // [count][64]; later the weights
    float* sums = nullptr;     // [count][16], sums of weights by lane
    float* largest = nullptr;  // [count], largest score so far
    float* shrink = nullptr;   // [count], factor by which the last change of `largest` scales the
                               // sums
    int64_t* first = nullptr;  // [count], positions of the first and last key that a query sees
    int64_t* last = nullptr;
    Choice* choices = nullptr;  // of the block's rows, if they choose blocks of keys; else null
    uint64_t* keys = nullptr;   // [count], keys of the tile that a query sees

    bool Sees(int64_t query) const { return choices == nullptr || keys[query] != 0; }
    bool SeesAny(int64_t query, int64_t rows) const {
        if (choices == nullptr) return true;
        return std::any_of(keys + query, keys + query + rows, [](uint64_t of) { return of != 0; });
    }
    int64_t Row(int64_t query) const { return (begin + query) / run.heads; }
    // The first tile from `position` on of which a query may see something.
    int64_t Next(int64_t position) const {
        position = std::max(position, Begin());
        if (choices != nullptr) {
            int64_t next = Choice::kNone;
            for (int64_t i = 0; i <= Row(count - 1) - Row(0); ++i) {
                next = std::min(next, choices[i].Next(position));
            }
            position = next;
        }
        return position < End() ? position : Choice::kNone;
    }

    // An estimate of Next that does not advance the choices: for the first row.
    int64_t Ahead(int64_t position) const {
        if (choices == nullptr) return position;
        Choice choice = choices[0];
        return choice.Next(position);
    }

    int64_t value_padded() const { return (value_dim + 15) / 16 * 16; }
    // The tiles that any query of the block sees.
    int64_t Begin() const { return first[0] / kTileKeys * kTileKeys; }
    int64_t End() const { return last[count - 1] + 1; }
};

// Stores the sums of kRows rows, `stride` floats apart.
template <int kRows, int kCols>
inline void StoreSums(float* to, int64_t stride, const Float (&sums)[kRows][kCols]) {
    for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kCols; ++c) {
            Simd::Store(to + r * stride + c * Simd::kLanes, sums[r][c]);
        }
    }
}

// ---- Scores ------------------------------------------------------------------------------------

template <typename Source, int kRows, int kCols>
inline void ScoreStrip(const Block& block, const Tile& tile, int64_t query, int64_t column) {
    constexpr int64_t kStride = kTileKeys * Source::kRowElement;
    constexpr int64_t kVector = Simd::kLanes * Source::kElementBytes;
    const std::byte* k = tile.k + column * kVector;
    const std::byte* next = tile.next_k + column * kVector;
    const float* q = block.q + query * block.padded;
    Float sums[kRows][kCols];
    for (auto& row : sums) {
        for (Float& sum : row) sum = Simd::Zero();
    }
    for (int64_t d = 0; d < block.head_dim; d += Source::kStep) {
        Float keys[kCols];
        for (int c = 0; c < kCols; ++c) {
            keys[c] = Source::Load(k + d * kStride + c * kVector, kStride, block.head_dim - d);
            if (!Source::kPrefetch || c * kVector % 64 != 0) continue;
            for (int64_t i = d; i < d + Source::kStep; ++i) {
                __builtin_prefetch(next + i * kStride + c * kVector);
            }
        }
        for (int r = 0; r < kRows; ++r) {
            const Float value = Simd::Set(Source::Factor(q + r * block.padded, d));
            for (int c = 0; c < kCols; ++c) sums[r][c] = Source::Add(value, keys[c], sums[r][c]);
        }
    }
    StoreSums(block.scores + query * kTileKeys + column * Simd::kLanes, kTileKeys, sums);
}

// As ScoreStrip, for keys in blocks.
template <typename Source, int kRows, int kCols>
inline void BlockScoreStrip(const Block& block, const Tile& tile, int64_t query, int64_t column) {
    const int64_t lane = column * Simd::kLanes;
    const std::byte* k = tile.k;
    const std::byte* next = tile.next_k + lane;
    Float sums[kRows][kCols];
    for (auto& row : sums) {
        for (Float& sum : row) sum = Simd::Zero();
    }
    for (int64_t first = 0; first < block.head_dim; first += kCacheBlock) {
        const float* q = block.q + query * block.padded + first;
        typename Source::Scale scales[kCols];
        for (int c = 0; c < kCols; ++c) scales[c] = Source::KeyScale(k, lane + c * Simd::kLanes);
        for (int64_t i = 0; i < Source::kCodes; ++i) __builtin_prefetch(next + i * kSlotGroup);
        const auto add = [&](auto high) {
            for (int64_t d = 0; d < 16; ++d) {
                const int64_t element = d + (high ? 16 : 0);
                if (!high || !Source::kNibbles) {
                    __builtin_prefetch(next + (Source::kCodes + element) * kSlotGroup);
                }
                Float keys[kCols];
                for (int c = 0; c < kCols; ++c) {
                    keys[c] = Source::template KeyElements<high>(k, d, lane + c * Simd::kLanes,
                                                                 scales[c]);
                }
                for (int r = 0; r < kRows; ++r) {
                    const Float value = Simd::Set(q[r * block.padded + element]);
                    for (int c = 0; c < kCols; ++c) {
                        sums[r][c] = Simd::Fma(value, keys[c], sums[r][c]);
                    }
                }
            }
        };
        add(std::false_type{});
        add(std::true_type{});
        k += Source::kBytes * kSlotGroup;
        next += Source::kBytes * kSlotGroup;
    }
    StoreSums(block.scores + query * kTileKeys + lane, kTileKeys, sums);
}

template <typename Source, int kRows, int kCols = Columns(kRows)>
inline void Scores(const Block& block, const Tile& tile, int64_t query, int64_t column,
                   int64_t columns) {
    for (; column + kCols <= columns; column += kCols) {
        if constexpr (Source::kBlocks) {
            BlockScoreStrip<Source, kRows, kCols>(block, tile, query, column);
        } else {
            ScoreStrip<Source, kRows, kCols>(block, tile, query, column);
        }
    }
    if constexpr (kCols > 1) {
        if (column < columns) {
            Scores<Source, kRows, kCols / 2>(block, tile, query, column, columns);
        }
    }
}

// ---- Softmax -----------------------------------------------------------------------------------

// Sets the lanes of vector `c` of a tile that are outside keys [skipped, seen) to `fill`.
inline Float Masked(Float x, int64_t c, int64_t skipped, int64_t seen, Float fill) {
    const int64_t before = skipped - c * Simd::kLanes, left = seen - c * Simd::kLanes;
    if (left < Simd::kLanes) x = Simd::Select(std::max<int64_t>(left, 0), x, fill);
    if (before > 0) x = Simd::Select(std::min<int64_t>(before, Simd::kLanes), fill, x);
    return x;
}

// With a soft cap, queries are scaled by 1 / soft_cap and not by log2 e.
inline void CapScores(const Block& block, float soft_cap, int64_t query, int64_t rows,
                      int64_t columns) {
    const auto cap = Simd::Set(soft_cap * kLog2E);
    for (int64_t i = query; i < query + rows; ++i) {
        float* scores = block.scores + i * kTileKeys;
        for (int64_t c = 0; c < columns; ++c) {
            float* at = scores + c * Simd::kLanes;
            Simd::Store(at, Simd::Mul(cap, Tanh(Simd::Load(at))));
        }
    }
}

// Adds the bias of ALiBi: a head's slope times (key - query). Scores are in units of log(2).
inline void SlopeScores(const Block& block, const Tile& tile, const float* slopes, int64_t query,
                        int64_t rows, int64_t columns) {
    for (int64_t i = query; i < query + rows; ++i) {
        const int64_t head = block.run.first_head + (block.begin + i) % block.run.heads;
        const auto slope = Simd::Set(slopes[head] * kLog2E);
        float* scores = block.scores + i * kTileKeys;
        for (int64_t c = 0; c < columns; ++c) {
            alignas(64) float steps[Simd::kLanes];
            for (int64_t lane = 0; lane < Simd::kLanes; ++lane) {
                steps[lane] =
                    static_cast<float>(tile.begin + c * Simd::kLanes + lane - block.last[i]);
            }
            float* at = scores + c * Simd::kLanes;
            Simd::Store(at, Simd::Fma(slope, Simd::Load(steps), Simd::Load(at)));
        }
    }
}

// Vector `c` of a tile's scores as weights, for a query that sees keys [skipped, seen) of the tile.
template <bool kChoice>
inline Float Weight(const float* scores, int64_t c, int64_t skipped, int64_t seen, Float largest) {
    const Float score = Simd::Load(scores + c * Simd::kLanes);
    Float weight = Exp2(Simd::Sub(score, largest));
    if constexpr (kChoice) {
        const Float least = Simd::Set(std::numeric_limits<float>::lowest());
        weight = Simd::WhereLess(score, least, Simd::Zero(), weight);
    }
    return Masked(weight, c, skipped, seen, Simd::Zero());
}

// Turns the scores of queries [query, query + rows) into weights, single or in pairs, and updates
// maxima and sums. `columns`: vectors of the tile that any of the queries sees.
template <bool kPairs, bool kChoice, typename S = Simd>
inline void Softmax(Block& block, const Tile& tile, int64_t query, int64_t rows, int64_t columns) {
    constexpr int64_t kLanes = Simd::kLanes;
    const Float nothing = Simd::Set(-std::numeric_limits<float>::infinity());
    for (int64_t i = query; i < query + rows; ++i) {
        const int64_t seen = block.last[i] + 1 - tile.begin;
        const int64_t skipped = block.first[i] - tile.begin;
        const float* scores = block.scores + i * kTileKeys;
        Float most = nothing;
        for (int64_t c = 0; c < columns; ++c) {
            const Float score = Simd::Load(scores + c * kLanes);
            most = Simd::Max(most, Masked(score, c, skipped, seen, nothing));
        }
        const float largest = std::max(block.largest[i], Simd::Largest(most));
        block.shrink[i] = kChoice && !block.Sees(i) ? 0 : block.largest[i] - largest;
        block.largest[i] = largest;
    }
    static_assert(kMicroRows < kLanes);
    const Float shrink = Exp2(Simd::LoadFirst(block.shrink + query, rows));
    Simd::StoreFirst(block.shrink + query, shrink, rows);
    for (int64_t i = query; i < query + rows; ++i) {
        const int64_t seen = block.last[i] + 1 - tile.begin;
        const int64_t skipped = block.first[i] - tile.begin;
        float* scores = block.scores + i * kTileKeys;
        if (kChoice && !block.Sees(i)) {
            std::fill_n(scores, columns * kLanes, 0.0f);
            continue;
        }
        float* sums = block.sums + i * 16;
        const Float largest = Simd::Set(block.largest[i]);
        Float sum = Simd::Mul(Simd::Load(sums), Simd::Set(block.shrink[i]));
        for (int64_t c = 0; c < columns; c += kPairs ? 2 : 1) {
            Float weight = Weight<kChoice>(scores, c, skipped, seen, largest);
            if constexpr (kPairs) {
                const Float second = c + 1 < columns
                                         ? Weight<kChoice>(scores, c + 1, skipped, seen, largest)
                                         : Simd::Zero();
                const Float pairs = S::Pairs(weight, second);
                Simd::Store(scores + c * kLanes / 2, pairs);
                sum = Simd::Add(sum, Simd::Add(S::FirstOfPairs(pairs), S::SecondOfPairs(pairs)));
            } else {
                Simd::Store(scores + c * kLanes, weight);
                sum = Simd::Add(sum, weight);
            }
        }
        Simd::Store(sums, sum);
    }
}

// value_pairs: weights are stored in pairs.
[[gnu::noinline]] void Soften(Block& block, const Tile& tile, int64_t query, int64_t rows,
                              int64_t columns, bool value_pairs) {
    if (block.choices == nullptr) {
        if constexpr (Simd::kDots) {
            if (value_pairs) return Softmax<true, false>(block, tile, query, rows, columns);
        }
        return Softmax<false, false>(block, tile, query, rows, columns);
    }
    for (int64_t i = query; i < query + rows; ++i) {
        HideScores(block.keys[i], block.scores + i * kTileKeys);
    }
    if constexpr (Simd::kDots) {
        if (value_pairs) return Softmax<true, true>(block, tile, query, rows, columns);
    }
    Softmax<false, true>(block, tile, query, rows, columns);
}

// ---- Values ------------------------------------------------------------------------------------

// Loads the sums of values so far, scaled for the new maximum.
template <int kRows, int kCols>
inline void LoadShrunk(const Block& block, int64_t query, const float* out,
                       Float (&sums)[kRows][kCols]) {
    for (int r = 0; r < kRows; ++r) {
        const Float shrink = Simd::Set(block.shrink[query + r]);
        for (int c = 0; c < kCols; ++c) {
            sums[r][c] = Simd::Mul(Simd::Load(out + r * block.padded + c * Simd::kLanes), shrink);
        }
    }
}

template <typename Source, int kRows, int kCols>
inline void ValueStrip(const Block& block, const Tile& tile, int64_t query, int64_t keys,
                       int64_t column) {
    float* out = block.out + query * block.padded + column * Simd::kLanes;
    Float sums[kRows][kCols];
    LoadShrunk(block, query, out, sums);
    constexpr int64_t kVector = Simd::kLanes * Source::kElementBytes;
    const std::byte* v = tile.v + column * kVector;
    const std::byte* next = tile.next_v + column * kVector;
    const float* weights = block.scores + query * kTileKeys;
    for (int64_t j = 0; j < keys; j += Source::kStep) {
        Float values[kCols];
        for (int c = 0; c < kCols; ++c) {
            values[c] = Source::Load(v + c * kVector, tile.v_stride, keys - j);
            if (!Source::kPrefetch || c * kVector % 64 != 0) continue;
            for (int64_t i = 0; i < Source::kStep; ++i) {
                __builtin_prefetch(next + i * tile.v_stride + c * kVector);
            }
        }
        for (int r = 0; r < kRows; ++r) {
            const Float weight = Simd::Set(Source::Factor(weights + r * kTileKeys, j));
            for (int c = 0; c < kCols; ++c) sums[r][c] = Source::Add(weight, values[c], sums[r][c]);
        }
        v += Source::kStep * tile.v_stride;
        next += Source::kStep * tile.v_stride;
    }
    StoreSums(out, block.padded, sums);
}

// As ValueStrip, for kCount blocks of values, from block `first` on.
template <typename Source, int kRows, int kCount>
inline void BlockValueStrip(const Block& block, const Tile& tile, int64_t query, int64_t keys,
                            int64_t first) {
    constexpr int kHalf = 16 / Simd::kLanes, kCols = 2 * kHalf * kCount;
    float* out = block.out + query * block.padded + first * kCacheBlock;
    Float sums[kRows][kCols];
    LoadShrunk(block, query, out, sums);
    const std::byte* v = tile.v + first * Source::kBytes;
    const std::byte* next = tile.next_v + first * Source::kBytes;
    const float* weights = block.scores + query * kTileKeys;
    for (int64_t j = 0; j < keys; ++j) {
        Float values[kCols];
        for (int b = 0; b < kCount; ++b) {
            const std::byte* from = v + b * Source::kBytes;
            const auto scale = Source::RowScale(from);
            Float* to = values + b * 2 * kHalf;
            for (int i = 0; i < kHalf; ++i) {
                const int64_t d = i * Simd::kLanes;
                to[i] = Source::template RowElements<false>(from, d, scale);
                to[kHalf + i] = Source::template RowElements<true>(from, d, scale);
            }
        }
        __builtin_prefetch(next);
        for (int r = 0; r < kRows; ++r) {
            const Float weight = Simd::Set(weights[r * kTileKeys + j]);
            for (int c = 0; c < kCols; ++c) {
                sums[r][c] = Simd::Fma(weight, values[c], sums[r][c]);
            }
        }
        v += tile.v_stride;
        next += tile.v_stride;
    }
    StoreSums(out, block.padded, sums);
}

template <typename Source, int kRows>
inline void BlockValues(const Block& block, const Tile& tile, int64_t query, int64_t keys) {
    constexpr int kCount = Simd::kRegisters == 32 ? 2 : 1;
    const int64_t blocks = block.value_dim / kCacheBlock;
    int64_t first = 0;
    for (; first + kCount <= blocks; first += kCount) {
        BlockValueStrip<Source, kRows, kCount>(block, tile, query, keys, first);
    }
    if (first < blocks) BlockValueStrip<Source, kRows, 1>(block, tile, query, keys, first);
}

template <typename Source, int kRows, int kCols = Columns(kRows)>
inline void Values(const Block& block, const Tile& tile, int64_t query, int64_t keys,
                   int64_t column, int64_t columns) {
    for (; column + kCols <= columns; column += kCols) {
        ValueStrip<Source, kRows, kCols>(block, tile, query, keys, column);
    }
    if constexpr (kCols > 1) {
        if (column < columns) {
            Values<Source, kRows, kCols / 2>(block, tile, query, keys, column, columns);
        }
    }
}

// ---- A tile ------------------------------------------------------------------------------------

template <int kRows, typename Function>
inline void WithRows(int64_t rows, Function function) {
    if constexpr (kRows == 1) {
        function(std::integral_constant<int, 1>{});
    } else if (rows == kRows) {
        function(std::integral_constant<int, kRows>{});
    } else {
        WithRows<kRows - 1>(rows, function);
    }
}

// Finds the queries of the block that see any of the tile.
void FindQueries(Block& block, Tile& tile) {
    tile.first_query = 0, tile.end_query = block.count;
    while (block.last[tile.first_query] < tile.begin) ++tile.first_query;
    while (block.first[tile.end_query - 1] >= tile.begin + tile.keys) --tile.end_query;
    for (int64_t i = tile.first_query; i < tile.end_query && block.choices != nullptr; ++i) {
        Choice& choice = block.choices[block.Row(i) - block.Row(0)];
        const bool sees = choice.Next(tile.begin) == tile.begin;
        block.keys[i] = sees ? choice.Keys(tile.begin) : 0;
    }
}

// Calls on(query, rows, keys) for the queries that see any of the tile, kMicroRows at a time, and
// the number of its keys up to the last one that they see.
template <typename On>
inline void ForQueries(const Block& block, const Tile& tile, On on) {
    for (int64_t query = tile.first_query; query < tile.end_query; query += kMicroRows) {
        const int64_t rows = std::min<int64_t>(kMicroRows, tile.end_query - query);
        if (!block.SeesAny(query, rows)) continue;
        // Rows ascend, so the last query sees the most keys.
        on(query, rows, std::min(tile.keys, block.last[query + rows - 1] + 1 - tile.begin));
    }
}

// Calls on(query, constant) for `rows` queries: as many at a time as fit the registers beside what
// decodes the source.
template <typename Source, typename On>
inline void ForRows(int64_t query, int64_t rows, On on) {
    constexpr int kMost = Source::kBlocks && Simd::kRegisters < 32 ? 3 : kMicroRows;
    for (int64_t i = 0; i < rows; i += kMost) {
        WithRows<kMost>(std::min<int64_t>(kMost, rows - i),
                        [&](auto constant) { on(query + i, constant); });
    }
}

// Computes the weights of the tile's keys.
template <typename Source>
void WeighTile(Block& block, const Tile& tile, const AttentionArgs& args, bool value_pairs) {
    ForQueries(block, tile, [&](int64_t query, int64_t rows, int64_t keys) {
        const int64_t columns = (keys + Simd::kLanes - 1) / Simd::kLanes;
        ForRows<Source>(query, rows, [&](int64_t first, auto constant) {
            Scores<Source, decltype(constant)::value>(block, tile, first, 0, columns);
        });
        if (args.soft_cap != 0) CapScores(block, args.soft_cap, query, rows, columns);
        if (args.slopes != nullptr) SlopeScores(block, tile, args.slopes, query, rows, columns);
        Soften(block, tile, query, rows, columns, value_pairs);
    });
}

// Adds the tile's values, by their weights.
template <typename Source>
void AddTile(Block& block, const Tile& tile) {
    ForQueries(block, tile, [&](int64_t query, int64_t rows, int64_t keys) {
        ForRows<Source>(query, rows, [&](int64_t first, auto constant) {
            constexpr int kRows = decltype(constant)::value;
            if constexpr (Source::kBlocks) {
                BlockValues<Source, kRows>(block, tile, first, keys);
            } else {
                Values<Source, kRows>(block, tile, first, keys, 0,
                                      block.value_padded() / Simd::kLanes);
            }
        });
    });
}

// Locates the block's tile at position `begin` in the cache.
Tile FindTile(const AttentionArgs& args, const Block& block, int64_t begin) {
    const KvCache& cache = args.k_cache;
    const AttentionRun& run = block.run;
    const int64_t page = run.sequence->pages.data()[begin / cache.page_tokens];
    Tile tile;
    tile.begin = begin;
    tile.keys = std::min(kTileKeys, block.End() - begin);
    tile.k = cache.Row(page, run.kv_head, begin % cache.page_tokens);
    tile.v = args.v_cache.Row(page, run.kv_head, begin % cache.page_tokens);
    tile.v_stride = args.v_cache.RowStride();
    return tile;
}

// ---- Conversion of a tile to floats ------------------------------------------------------------

// Converts `count` elements of a row; pads the last vector with zeros.
template <DType dtype>
inline void ConvertRow(const std::byte* from, int64_t count, float* to) {
    using Elements = SingleRows<dtype>;
    constexpr int64_t kBytes = Elements::kElementBytes;
    ForVectors(
        0, count, [&](int64_t i) { Simd::Store(to + i, Elements::Load(from + i * kBytes)); },
        [&](int64_t i, int64_t left) {
            std::byte padded[kBytes * Simd::kLanes] = {};
            std::memcpy(padded, from + i * kBytes, static_cast<size_t>(left * kBytes));
            Simd::Store(to + i, Elements::Load(padded));
        });
}

inline void ConvertFloats(DType dtype, const std::byte* from, int64_t count, float* to) {
    if (dtype == DType::kF32) return ConvertRow<DType::kF32>(from, count, to);
    if (dtype == DType::kF16) return ConvertRow<DType::kF16>(from, count, to);
    ConvertRow<DType::kBF16>(from, count, to);
}

// Converts a tile's keys to floats [head_dim][64].
void ConvertKeys(const Block& block, DType dtype, Tile& tile, float* k) {
    if (Info(dtype).quantized) {
        WithCacheBlock(dtype, [&](auto type) {
            ConvertKeyBlocks<decltype(type)>(tile.k, block.head_dim / kCacheBlock, k);
        });
    } else {
        ConvertFloats(dtype, tile.k, block.head_dim * kTileKeys, k);
    }
    tile.k = tile.next_k = reinterpret_cast<const std::byte*>(k);
}

// Converts a tile's values to floats [64][padded].
void ConvertValues(const Block& block, DType dtype, Tile& tile, float* v) {
    for (int64_t j = 0; j < tile.keys; ++j) {
        float* row = v + j * block.padded;
        const std::byte* from = tile.v + j * tile.v_stride;
        if (Info(dtype).quantized) {
            WithCacheBlock(dtype, [&](auto type) {
                ConvertBlocks<decltype(type)>(from, block.value_dim / kCacheBlock, row);
            });
            continue;
        }
        std::fill(row + block.value_padded() - 16, row + block.value_padded(), 0.0f);
        ConvertFloats(dtype, from, block.value_dim, row);
    }
    tile.v = tile.next_v = reinterpret_cast<const std::byte*>(v);
    tile.v_stride = block.padded * 4;
}

// Interleaves `count` columns of two BF16 rows (null: zeros); pads the last vector with zeros.
template <typename S>
inline void PairTwoRows(const std::byte* first, const std::byte* second, int64_t count, float* to) {
    const auto pair = [&](const std::byte* a, const std::byte* b, int64_t i) {
        Simd::Store(to + i, b != nullptr ? S::PairRows(a, b) : S::PairRow(a));
    };
    ForVectors(
        0, count,
        [&](int64_t i) { pair(first + 2 * i, second != nullptr ? second + 2 * i : nullptr, i); },
        [&](int64_t i, int64_t left) {
            std::byte a[2 * Simd::kLanes] = {}, b[2 * Simd::kLanes] = {};
            const auto bytes = static_cast<size_t>(2 * left);
            std::memcpy(a, first + 2 * i, bytes);
            if (second != nullptr) std::memcpy(b, second + 2 * i, bytes);
            pair(a, second != nullptr ? b : nullptr, i);
        });
}

// Interleaves pairs of a BF16 tile's keys: [head_dim / 2][64].
template <typename S>
void PairKeys(const Block& block, Tile& tile, float* k) {
    constexpr int64_t kStride = kTileKeys * 2;
    for (int64_t d = 0; d < block.head_dim; d += 2) {
        const std::byte* row = tile.k + d * kStride;
        const std::byte* second = d + 1 < block.head_dim ? row + kStride : nullptr;
        PairTwoRows<S>(row, second, kTileKeys, k + d / 2 * kTileKeys);
    }
    tile.k = tile.next_k = reinterpret_cast<const std::byte*>(k);
}

// Interleaves pairs of a BF16 tile's values: [keys / 2][padded].
template <typename S>
void PairValues(const Block& block, Tile& tile, float* v) {
    for (int64_t j = 0; j < tile.keys; j += 2) {
        float* to = v + j / 2 * block.padded;
        std::fill(to + block.value_padded() - 16, to + block.value_padded(), 0.0f);
        const std::byte* row = tile.v + j * tile.v_stride;
        const std::byte* second = j + 1 < tile.keys ? row + tile.v_stride : nullptr;
        PairTwoRows<S>(row, second, block.value_dim, to);
    }
    tile.v = tile.next_v = reinterpret_cast<const std::byte*>(v);
    tile.v_stride = block.padded * 2;
}

// ---- A block -----------------------------------------------------------------------------------

// Calls run(source) for a cache that is read directly.
template <typename Run>
void WithSource(DType dtype, Run run) {
    if (dtype == DType::kF32) return run(SingleRows<DType::kF32>{});
    if (dtype == DType::kF16) return run(SingleRows<DType::kF16>{});
    if (dtype == DType::kBF16) return run(SingleRows<DType::kBF16>{});
    WithCacheBlock(dtype, [&](auto type) { run(BlockRows<decltype(type)>{}); });
}

// Whether a cache is multiplied in pairs of BF16.
bool MeetsPairs(const KvCache& cache) {
    return Simd::kDots && cache.dtype == DType::kBF16;
}

// Converts a query's `padded` floats, zeroed beyond the head, to pairs in place.
template <typename S>
inline void PairQuery(float* q, int64_t head_dim, int64_t padded) {
    std::fill(q + head_dim, q + padded, 0.0f);
    if constexpr (S::kDots) {
        for (int64_t d = 0; d < padded; d += 2 * Simd::kLanes) {
            const auto first = Simd::Load(q + d);
            const bool two = d + Simd::kLanes < padded;
            const auto second = two ? Simd::Load(q + d + Simd::kLanes) : Simd::Zero();
            Simd::Store(q + d / 2, S::Pairs(first, second));
        }
    }
}

void BeginBlock(const AttentionArgs& args, const Block& block) {
    const AttentionRun& run = block.run;
    const bool capped = args.soft_cap != 0;
    const auto scale = Simd::Set(capped ? args.scale / args.soft_cap : args.scale * kLog2E);
    for (int64_t i = 0; i < block.count; ++i) {
        const int64_t row = (block.begin + i) / run.heads;
        const int64_t head = run.first_head + (block.begin + i) % run.heads;
        const float* q =
            args.q + (run.sequence->row_begin + row) * args.q_stride + head * block.head_dim;
        float* to = block.q + i * block.padded;
        ForVectors(
            0, block.head_dim,
            [&](int64_t d) { Simd::Store(to + d, Simd::Mul(Simd::Load(q + d), scale)); },
            [&](int64_t d, int64_t left) {
                Simd::Store(to + d, Simd::Mul(Simd::LoadFirst(q + d, left), scale));
            });
        if (MeetsPairs(args.k_cache)) PairQuery<Simd>(to, block.head_dim, block.padded);
        block.first[i] = args.FirstKey(run.sequence->position + row);
        block.last[i] = args.LastKey(*run.sequence, row);
        // A sink counts as an earlier score with a value of zeros.
        const bool sink = args.sinks != nullptr;
        block.largest[i] =
            sink ? args.sinks[head] * kLog2E : -std::numeric_limits<float>::infinity();
        std::fill_n(block.sums + i * 16, 16, 0.0f);
        if (sink) block.sums[i * 16] = 1.0f;
    }
    std::fill_n(block.out, block.count * block.padded, 0.0f);
}

void EndBlock(const AttentionArgs& args, const Block& block) {
    const AttentionRun& run = block.run;
    for (int64_t i = 0; i < block.count; ++i) {
        const int64_t row = (block.begin + i) / run.heads;
        const int64_t head = run.first_head + (block.begin + i) % run.heads;
        const float* from = block.out + i * block.padded;
        float* out =
            args.out + (run.sequence->row_begin + row) * args.out_stride + head * block.value_dim;
        const auto share = Simd::Set(1.0f / Simd::Sum(Simd::Load(block.sums + i * 16)));
        // Adding zero turns -0 into +0: a masked key's exact zero may or may not already have done
        // so.
        const auto value = [&](int64_t d) {
            return Simd::Fma(Simd::Load(from + d), share, Simd::Zero());
        };
        ForVectors(
            0, block.value_dim, [&](int64_t d) { Simd::Store(out + d, value(d)); },
            [&](int64_t d, int64_t left) { Simd::StoreFirst(out + d, value(d), left); });
    }
}

// ---- Blocks that walk over the keys together ---------------------------------------------------

// One large block, or several small ones of the same sequence (the KV heads of a token).
class Bundle {
  public:
    // blocks: null, or the rows' choices.
    Bundle(const AttentionArgs& args, const BlockAttentionArgs* blocks, int part)
        : args_(args),
          chosen_(blocks),
          head_dim_(args.k_cache.head_dim),
          value_dim_(args.v_cache.head_dim),
          padded_((std::max(head_dim_, value_dim_) + 15) / 16 * 16) {
        q_ = args.scratch + part * args.scratch_floats;
        out_ = q_ + kBlockQueries * padded_;
        scores_ = out_ + kBlockQueries * padded_;
        sums_ = scores_ + kBlockQueries * kTileKeys;
        k_tile_ = sums_ + kBlockQueries * 16;
        v_tile_ = k_tile_ + kTileKeys * padded_;
    }

    bool Fits(const AttentionRun& run, int64_t count) const {
        if (blocks_ == 0) return true;
        return blocks_ < kMostBlocks && used_ + count <= kBlockQueries && count <= kDirectQueries &&
               block_[0].count <= kDirectQueries && block_[0].run.sequence == run.sequence;
    }
    void Add(const AttentionRun& run, int64_t begin, int64_t count) {
        block_[blocks_++] = {run,
                             begin,
                             count,
                             head_dim_,
                             value_dim_,
                             padded_,
                             q_ + used_ * padded_,
                             out_ + used_ * padded_,
                             scores_ + used_ * kTileKeys,
                             sums_ + used_ * 16,
                             largest_ + used_,
                             shrink_ + used_,
                             first_ + used_,
                             last_ + used_};
        if (chosen_ != nullptr) TakeChoices(block_[blocks_ - 1]);
        used_ += count;
    }
    // Computes all added blocks, then clears the bundle.
    void Attend() {
        for (int64_t i = 0; i < blocks_; ++i) BeginBlock(args_, block_[i]);
        for (int64_t position = Next(0); position != Choice::kNone;
             position = Next(position + kTileKeys)) {
            for (int64_t i = 0; i < blocks_; ++i) {
                if (block_[i].Next(position) == position) AttendAt(i, position);
            }
        }
        for (int64_t i = 0; i < blocks_; ++i) EndBlock(args_, block_[i]);
        blocks_ = used_ = 0;
    }

  private:
    static constexpr int64_t kMostBlocks = 32;

    int64_t Next(int64_t position) const {
        int64_t next = Choice::kNone;
        for (int64_t i = 0; i < blocks_; ++i) next = std::min(next, block_[i].Next(position));
        return next;
    }
    void TakeChoices(Block& block) {
        block.choices = choices_ + used_;
        block.keys = keys_ + used_;
        for (int64_t row = block.Row(0); row <= block.Row(block.count - 1); ++row) {
            const int32_t* chosen =
                chosen_->Chosen(block.run.sequence->row_begin + row, block.run.kv_head);
            block.choices[row - block.Row(0)] = {chosen, chosen_->top, chosen_->block};
        }
    }

    void AttendAt(int64_t index, int64_t position) {
        Block& block = block_[index];
        Tile tile = FindTile(args_, block, position);
        const int64_t after = index + 1 < blocks_ ? index + 1 : 0;
        const int64_t next = block_[after].Ahead(after == 0 ? position + kTileKeys : position);
        const Tile next_tile =
            next < block_[after].End() ? FindTile(args_, block_[after], next) : tile;
        tile.next_k = next_tile.k;
        tile.next_v = next_tile.v;
        FindQueries(block, tile);
        Weigh(block, tile);
        Add(block, tile);
    }

    // Whether the block's queries read a cache directly.
    static bool IsDirect(const Block& block, const KvCache& cache) {
        return block.count <= kDirectQueries && cache.head_dim % 16 == 0;
    }

    template <typename S = Simd>
    void Weigh(Block& block, Tile& tile) {
        const KvCache& cache = args_.k_cache;
        const bool direct = IsDirect(block, cache);
        const auto run = [&]<typename Source>(Source) {
            WeighTile<Source>(block, tile, args_, MeetsPairs(args_.v_cache));
        };
        if constexpr (S::kDots) {
            if (MeetsPairs(cache)) {
                if (direct) return run(RowPairs<S>{});
                PairKeys<S>(block, tile, k_tile_);
                return run(PairedRows<S>{});
            }
        }
        if (direct) return WithSource(cache.dtype, run);
        if (cache.dtype != DType::kF32) ConvertKeys(block, cache.dtype, tile, k_tile_);
        run(SingleRows<DType::kF32>{});
    }

    template <typename S = Simd>
    void Add(Block& block, Tile& tile) {
        const KvCache& cache = args_.v_cache;
        const bool direct = IsDirect(block, cache);
        const auto run = [&]<typename Source>(Source) { AddTile<Source>(block, tile); };
        if constexpr (S::kDots) {
            if (MeetsPairs(cache)) {
                if (direct) return run(RowPairs<S>{});
                PairValues<S>(block, tile, v_tile_);
                return run(PairedRows<S>{});
            }
        }
        if (direct) return WithSource(cache.dtype, run);
        if (cache.dtype != DType::kF32 || cache.head_dim % 16 != 0) {
            ConvertValues(block, cache.dtype, tile, v_tile_);
        }
        run(SingleRows<DType::kF32>{});
    }

    const AttentionArgs& args_;
    const BlockAttentionArgs* chosen_;
    int64_t head_dim_, value_dim_, padded_;
    float *q_, *out_, *scores_, *sums_, *k_tile_, *v_tile_;
    float largest_[kBlockQueries];
    float shrink_[kBlockQueries];
    int64_t first_[kBlockQueries];
    int64_t last_[kBlockQueries];
    Choice choices_[kBlockQueries];
    uint64_t keys_[kBlockQueries];
    Block block_[kMostBlocks];
    int64_t blocks_ = 0, used_ = 0;
};

// costs: `args`, with the largest cost of a row as the window.
void AttendAll(const AttentionArgs& args, const AttentionArgs& costs,
               const BlockAttentionArgs* blocks, int part, int parts) {
    Bundle bundle(args, blocks, part);
    AttentionShare share(costs, part, parts);
    AttentionRun run;
    while (share.Next(&run)) {
        for (int64_t begin = run.begin; begin < run.end; begin += kBlockQueries) {
            const int64_t count = std::min(kBlockQueries, run.end - begin);
            if (!bundle.Fits(run, count)) bundle.Attend();
            bundle.Add(run, begin, count);
        }
    }
    bundle.Attend();
}

void Attention(const AttentionArgs& args, int part, int parts) {
    AttendAll(args, args, nullptr, part, parts);
}

// ---- Writing the cache --------------------------------------------------------------------------

// Rounds kLanes floats at a time to F32, F16 or BF16 elements.
inline void StoreAs(DType dtype, std::byte* to, Float x) {
    if (dtype == DType::kF32) return Simd::Store(reinterpret_cast<float*>(to), x);
    if (dtype == DType::kF16) return Simd::StoreF16(to, x);
    Simd::StoreBF16(to, x);
}

// Rounds a row of floats to `dtype`. Writes whole vectors, so `to` needs space for up to kLanes
// more.
inline void RoundRow(DType dtype, const float* row, int64_t count, int64_t element, std::byte* to) {
    ForVectors(
        0, count, [&](int64_t i) { StoreAs(dtype, to + i * element, Simd::Load(row + i)); },
        [&](int64_t i, int64_t left) {
            StoreAs(dtype, to + i * element, Simd::LoadFirst(row + i, left));
        });
}

// Writes rows to float caches; head_dim is at most 512.
void KvWrite(const KvWriteArgs& args, int part, int parts) {
    const KvCache& keys = args.k_cache;
    const KvCache& values = args.v_cache;
    if (Info(keys.dtype).quantized || Info(values.dtype).quantized) {
        return reference::KvWrite(args, part, parts);
    }
    const int64_t head_dim = keys.head_dim, value_dim = values.head_dim;
    const int64_t element = Info(keys.dtype).block_bytes;
    const int64_t value_element = Info(values.dtype).block_bytes;
    alignas(64) std::byte rounded[(512 + Simd::kLanes) * 4];
    for (const Sequence& sequence : args.sequences) {
        const Range share = Share(sequence.row_count * keys.kv_heads, 1, part, parts);
        for (int64_t unit = share.begin; unit < share.end; ++unit) {
            const int64_t head = unit / sequence.row_count;
            const int64_t index = unit % sequence.row_count;
            const int64_t row = sequence.row_begin + index;
            const int64_t position = sequence.position + index;
            const int64_t page = sequence.pages.data()[position / keys.page_tokens];
            const int64_t slot = position % keys.page_tokens;
            const int64_t lane = slot % kSlotGroup;
            RoundRow(keys.dtype, args.k + row * args.k_stride + head * head_dim, head_dim, element,
                     rounded);
            std::byte* to = keys.Row(page, head, slot - lane) + lane * element;
            for (int64_t d = 0; d < head_dim; ++d) {
                std::byte* at = to + d * kSlotGroup * element;
                if (element == 2) {
                    std::memcpy(at, rounded + d * 2, 2);
                } else {
                    std::memcpy(at, rounded + d * 4, 4);
                }
            }
            const float* const v = args.v + row * args.v_stride + head * value_dim;
            RoundRow(values.dtype, v, value_dim, value_element, rounded);
            std::memcpy(values.Row(page, head, slot), rounded,
                        static_cast<size_t>(value_dim * value_element));
        }
    }
}

}  // namespace

void BlockAttention(const BlockAttentionArgs& args, int part, int parts) {
    AttentionArgs costs = args.all;
    costs.window = args.top * args.block;
    AttendAll(args.all, costs, &args, part, parts);
}

void SetAttention(Kernels& table) {
    table.kv_write = KvWrite;
    table.attention = Attention;
    table.attention_scratch = [](int64_t head_dim, int64_t) {
        return AttentionScratchFloats(head_dim);
    };
}

}  // namespace weft::kernels::WEFT_SET
