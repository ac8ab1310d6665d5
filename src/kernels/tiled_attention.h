// Attention in tiles of 64 keys, once for vectors of any width (Simd: avx2/simd.h, avx512/simd.h).
//
// A block of up to 96 queries that share a KV head goes over the keys tile by tile, with the online
// softmax of flash attention (Dao et al. 2022): scores of the tile, the new maximum, weights by
// exp2 (the query is scaled by log2 e beforehand), values. Where many queries share a tile it is
// converted to floats once; few queries read it from the cache.
//
// The bits of a query's result depend on that query alone: tiles begin at multiples of 64
// positions whatever the step holds, a score is one chain of FMAs over dims, an output one chain
// over keys, and what a mask leaves out adds an exact zero. So one row gives the same bits as that
// row among many, in any chunk and on any number of parts.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/attention_split.h"
#include "kernels/vector_ops.h"

namespace weft::kernels {

inline constexpr int kTileGroups = kTileKeys / kSlotGroup;
inline constexpr int kMicroRows = 6;           // queries whose sums are in registers at a time
inline constexpr int64_t kDirectQueries = 12;  // up to here the cache is read without converting

template <typename Simd>
inline constexpr int64_t kTileVectors = kTileKeys / Simd::kLanes;

// How kLanes elements of a cache become floats.
template <typename Simd, DType dtype>
struct Element {
    static constexpr int64_t kBytes = dtype == DType::kF32 ? 4 : 2;
    static typename Simd::Float Load(const std::byte* from) {
        if constexpr (dtype == DType::kF32) return Simd::Load(reinterpret_cast<const float*>(from));
        if constexpr (dtype == DType::kF16) return Simd::LoadF16(from);
        if constexpr (dtype == DType::kBF16) return Simd::LoadBF16(from);
    }
};

// Vectors side by side whose sums, with `rows` queries, fit the registers.
template <typename Simd>
constexpr int Columns(int rows) {
    if (Simd::kRegisters == 32) return 4;
    return rows == 1 ? 8 : rows <= 3 ? 4 : 2;
}

// One tile: K as groups of 16 keys, [head_dim][16]; V as runs of 16 rows.
struct Tile {
    int64_t begin = 0, keys = 0;
    const std::byte* k[kTileGroups] = {};
    const std::byte* v[kTileGroups] = {};
    int64_t v_stride = 0;  // bytes from a row to the next
};

// The queries of a block, in the part's scratch.
template <typename Simd>
struct Block {
    Block(float* scratch, int64_t dims) : head_dim(dims), padded((dims + 15) / 16 * 16) {
        q = scratch;
        out = q + kBlockQueries * padded;
        scores = out + kBlockQueries * padded;
        sums = scores + kBlockQueries * kTileKeys;
        k_tile = sums + kBlockQueries * 16;
        v_tile = k_tile + kTileKeys * padded;
    }
    int64_t head_dim, padded;
    int64_t count = 0;
    float *q, *out;  // [count][padded]: scaled; weighted sum of values so far
    float* scores;   // [count][64], then the weights
    float* sums;     // [count][16]: of weights, by lane
    float *k_tile, *v_tile;
    float largest[kBlockQueries + 16];  // score so far
    float shrink[kBlockQueries + 16];   // what the last change of `largest` does to the sums
    int64_t last[kBlockQueries];        // position of the last key that a query sees
};

// ---- Scores ------------------------------------------------------------------------------------

template <typename Simd, DType dtype, int kRows, int kCols>
inline void ScoreStrip(const Block<Simd>& block, const Tile& tile, int64_t query, int64_t column) {
    using Float = typename Simd::Float;
    using Elements = Element<Simd, dtype>;
    const std::byte* k[kCols];
    for (int c = 0; c < kCols; ++c) {
        const int64_t key = (column + c) * Simd::kLanes;
        k[c] = tile.k[key / kSlotGroup] + key % kSlotGroup * Elements::kBytes;
    }
    const float* q = block.q + query * block.padded;
    Float sums[kRows][kCols];
    for (auto& row : sums) {
        for (Float& sum : row) sum = Simd::Zero();
    }
    for (int64_t d = 0; d < block.head_dim; ++d) {
        Float keys[kCols];
        for (int c = 0; c < kCols; ++c) {
            keys[c] = Elements::Load(k[c] + d * kSlotGroup * Elements::kBytes);
        }
        for (int r = 0; r < kRows; ++r) {
            const Float value = Simd::Set(q[r * block.padded + d]);
            for (int c = 0; c < kCols; ++c) sums[r][c] = Simd::Fma(value, keys[c], sums[r][c]);
        }
    }
    float* to = block.scores + query * kTileKeys + column * Simd::kLanes;
    for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kCols; ++c) {
            Simd::Store(to + r * kTileKeys + c * Simd::kLanes, sums[r][c]);
        }
    }
}

template <typename Simd, DType dtype, int kRows, int kCols = Columns<Simd>(kRows)>
inline void Scores(const Block<Simd>& block, const Tile& tile, int64_t query, int64_t column,
                   int64_t columns) {
    for (; column + kCols <= columns; column += kCols) {
        ScoreStrip<Simd, dtype, kRows, kCols>(block, tile, query, column);
    }
    if constexpr (kCols > 1) {
        if (column < columns) {
            Scores<Simd, dtype, kRows, kCols / 2>(block, tile, query, column, columns);
        }
    }
}

// ---- Softmax -----------------------------------------------------------------------------------

// Turns the scores of queries [query, query + rows) into weights and brings maxima and sums up to
// date. `columns`: vectors of the tile that any of them sees.
template <typename Simd>
inline void Softmax(Block<Simd>& block, const Tile& tile, int64_t query, int64_t rows,
                    int64_t columns) {
    using Float = typename Simd::Float;
    constexpr int64_t kLanes = Simd::kLanes;
    const Float nothing = Simd::Set(-std::numeric_limits<float>::infinity());
    for (int64_t i = query; i < query + rows; ++i) {
        const int64_t seen = block.last[i] + 1 - tile.begin;
        const float* scores = block.scores + i * kTileKeys;
        Float most = nothing;
        for (int64_t c = 0; c < columns; ++c) {
            Float score = Simd::Load(scores + c * kLanes);
            const int64_t left = seen - c * kLanes;
            if (left < kLanes) score = Simd::Select(std::max<int64_t>(left, 0), score, nothing);
            most = Simd::Max(most, score);
        }
        const float largest = std::max(block.largest[i], Simd::Largest(most));
        block.shrink[i] = block.largest[i] - largest;
        block.largest[i] = largest;
    }
    for (int64_t i = query; i < query + rows; i += kLanes) {
        const Float shrink = Exp2<Simd>(Simd::Load(block.shrink + i));
        Simd::StoreFirst(block.shrink + i, shrink, std::min(kLanes - 1, query + rows - i));
    }
    for (int64_t i = query; i < query + rows; ++i) {
        const int64_t seen = block.last[i] + 1 - tile.begin;
        float* scores = block.scores + i * kTileKeys;
        float* sums = block.sums + i * 16;
        const Float largest = Simd::Set(block.largest[i]);
        Float sum = Simd::Mul(Simd::Load(sums), Simd::Set(block.shrink[i]));
        for (int64_t c = 0; c < columns; ++c) {
            Float weight = Exp2<Simd>(Simd::Sub(Simd::Load(scores + c * kLanes), largest));
            const int64_t left = seen - c * kLanes;
            if (left < kLanes) {
                weight = Simd::Select(std::max<int64_t>(left, 0), weight, Simd::Zero());
            }
            Simd::Store(scores + c * kLanes, weight);
            sum = Simd::Add(sum, weight);
        }
        Simd::Store(sums, sum);
    }
}

// ---- Values ------------------------------------------------------------------------------------

template <typename Simd, DType dtype, int kRows, int kCols>
inline void ValueStrip(const Block<Simd>& block, const Tile& tile, int64_t query, int64_t keys,
                       int64_t column) {
    using Float = typename Simd::Float;
    using Elements = Element<Simd, dtype>;
    float* out = block.out + query * block.padded + column * Simd::kLanes;
    Float sums[kRows][kCols];
    for (int r = 0; r < kRows; ++r) {
        const Float shrink = Simd::Set(block.shrink[query + r]);
        for (int c = 0; c < kCols; ++c) {
            sums[r][c] = Simd::Mul(Simd::Load(out + r * block.padded + c * Simd::kLanes), shrink);
        }
    }
    for (int64_t first = 0; first < keys; first += kSlotGroup) {
        const std::byte* v = tile.v[first / kSlotGroup] + column * Simd::kLanes * Elements::kBytes;
        const float* weights = block.scores + query * kTileKeys + first;
        const int64_t count = std::min(kSlotGroup, keys - first);
        for (int64_t j = 0; j < count; ++j) {
            Float values[kCols];
            for (int c = 0; c < kCols; ++c) {
                values[c] = Elements::Load(v + c * Simd::kLanes * Elements::kBytes);
            }
            for (int r = 0; r < kRows; ++r) {
                const Float weight = Simd::Set(weights[r * kTileKeys + j]);
                for (int c = 0; c < kCols; ++c) {
                    sums[r][c] = Simd::Fma(weight, values[c], sums[r][c]);
                }
            }
            v += tile.v_stride;
        }
    }
    for (int r = 0; r < kRows; ++r) {
        for (int c = 0; c < kCols; ++c) {
            Simd::Store(out + r * block.padded + c * Simd::kLanes, sums[r][c]);
        }
    }
}

template <typename Simd, DType dtype, int kRows, int kCols = Columns<Simd>(kRows)>
inline void Values(const Block<Simd>& block, const Tile& tile, int64_t query, int64_t keys,
                   int64_t column, int64_t columns) {
    for (; column + kCols <= columns; column += kCols) {
        ValueStrip<Simd, dtype, kRows, kCols>(block, tile, query, keys, column);
    }
    if constexpr (kCols > 1) {
        if (column < columns) {
            Values<Simd, dtype, kRows, kCols / 2>(block, tile, query, keys, column, columns);
        }
    }
}

// ---- A tile ------------------------------------------------------------------------------------

template <int kRows = kMicroRows, typename Function>
inline void WithRows(int64_t rows, Function function) {
    if constexpr (kRows == 1) {
        function(std::integral_constant<int, 1>{});
    } else if (rows == kRows) {
        function(std::integral_constant<int, kRows>{});
    } else {
        WithRows<kRows - 1>(rows, function);
    }
}

// All queries of the block that see anything of the tile.
template <typename Simd, DType dtype>
void AttendTile(Block<Simd>& block, const Tile& tile) {
    int64_t first = 0;
    while (block.last[first] < tile.begin) ++first;
    // Rows ascend, so the last query of a micro-block sees the most.
    const auto seen = [&](int64_t query, int64_t rows) {
        return std::min(tile.keys, block.last[query + rows - 1] + 1 - tile.begin);
    };
    for (int64_t query = first; query < block.count; query += kMicroRows) {
        const int64_t rows = std::min<int64_t>(kMicroRows, block.count - query);
        const int64_t groups = (seen(query, rows) + kSlotGroup - 1) / kSlotGroup;
        const int64_t columns = groups * kSlotGroup / Simd::kLanes;
        WithRows(rows, [&](auto constant) {
            Scores<Simd, dtype, decltype(constant)::value>(block, tile, query, 0, columns);
        });
        Softmax(block, tile, query, rows, columns);
    }
    for (int64_t query = first; query < block.count; query += kMicroRows) {
        const int64_t rows = std::min<int64_t>(kMicroRows, block.count - query);
        WithRows(rows, [&](auto constant) {
            Values<Simd, dtype, decltype(constant)::value>(block, tile, query, seen(query, rows), 0,
                                                           block.padded / Simd::kLanes);
        });
    }
}

// Where the tile's K and V stand in the cache.
template <typename Simd>
Tile FindTile(const AttentionArgs& args, const AttentionRun& run, int64_t begin, int64_t end) {
    const KvCache& cache = args.k_cache;
    Tile tile;
    tile.begin = begin;
    tile.keys = std::min(kTileKeys, end - begin);
    tile.v_stride = args.v_cache.RowStride();
    for (int64_t first = 0; first < tile.keys; first += kSlotGroup) {
        const int64_t position = begin + first;
        const int64_t page = run.sequence->pages.data()[position / cache.page_tokens];
        const int64_t slot = position % cache.page_tokens;
        tile.k[first / kSlotGroup] = cache.Row(page, run.kv_head, slot);
        tile.v[first / kSlotGroup] = args.v_cache.Row(page, run.kv_head, slot);
    }
    return tile;
}

// ---- Conversion of a tile to floats ------------------------------------------------------------

template <typename Simd>
inline float HalfAt(const std::byte* from) {
    std::byte padded[2 * Simd::kLanes] = {};
    std::memcpy(padded, from, 2);
    float value[Simd::kLanes];
    Simd::Store(value, Simd::LoadF16(padded));
    return value[0];
}

// `count` elements in a row; the last vector is filled up with zeros.
template <typename Simd, DType dtype>
inline void ConvertRow(const std::byte* from, int64_t count, float* to) {
    using Elements = Element<Simd, dtype>;
    ForVectors<Simd>(
        0, count,
        [&](int64_t i) { Simd::Store(to + i, Elements::Load(from + i * Elements::kBytes)); },
        [&](int64_t i, int64_t left) {
            std::byte padded[Elements::kBytes * Simd::kLanes] = {};
            std::memcpy(padded, from + i * Elements::kBytes,
                        static_cast<size_t>(left * Elements::kBytes));
            Simd::Store(to + i, Elements::Load(padded));
        });
}

template <typename Simd>
inline void ConvertQ8Row(const std::byte* from, int64_t count, float* to) {
    constexpr int64_t kBlockBytes = 34;
    for (int64_t first = 0; first < count; first += 32, from += kBlockBytes) {
        const auto scale = Simd::Set(HalfAt<Simd>(from));
        for (int64_t i = 0; i < 32; i += Simd::kLanes) {
            Simd::Store(to + first + i, Simd::Mul(scale, Simd::LoadI8(from + 2 + i)));
        }
    }
}

// A K group of Q8_0: [blocks] of [16] scales and [32][16] values; `to` [head_dim][16].
template <typename Simd>
inline void ConvertQ8Group(const std::byte* from, int64_t head_dim, float* to) {
    for (int64_t first = 0; first < head_dim; first += 32, from += 34 * kSlotGroup) {
        for (int64_t lane = 0; lane < kSlotGroup; lane += Simd::kLanes) {
            const auto scale = Simd::LoadF16(from + 2 * lane);
            const std::byte* values = from + 2 * kSlotGroup + lane;
            for (int64_t d = 0; d < 32; ++d) {
                Simd::Store(to + (first + d) * kSlotGroup + lane,
                            Simd::Mul(scale, Simd::LoadI8(values + d * kSlotGroup)));
            }
        }
    }
}

// The same tile as floats in the block's scratch.
template <typename Simd>
Tile ConvertTile(const Block<Simd>& block, DType dtype, const Tile& tile) {
    Tile floats = tile;
    const int64_t head_dim = block.head_dim;
    floats.v_stride = block.padded * 4;
    const auto convert = [&](const std::byte* from, int64_t count, float* to) {
        if (dtype == DType::kF32) return ConvertRow<Simd, DType::kF32>(from, count, to);
        if (dtype == DType::kF16) return ConvertRow<Simd, DType::kF16>(from, count, to);
        if (dtype == DType::kBF16) return ConvertRow<Simd, DType::kBF16>(from, count, to);
        ConvertQ8Row<Simd>(from, count, to);
    };
    for (int64_t first = 0; first < tile.keys; first += kSlotGroup) {
        const int64_t group = first / kSlotGroup;
        float* k = block.k_tile + first * head_dim;
        float* v = block.v_tile + first * block.padded;
        if (dtype == DType::kQ8_0) {
            ConvertQ8Group<Simd>(tile.k[group], head_dim, k);
        } else {
            convert(tile.k[group], head_dim * kSlotGroup, k);
        }
        for (int64_t j = 0; j < std::min(kSlotGroup, tile.keys - first); ++j) {
            float* row = v + j * block.padded;
            std::fill(row + std::max<int64_t>(block.padded - 16, 0), row + block.padded, 0.0f);
            convert(tile.v[group] + j * tile.v_stride, head_dim, row);
        }
        floats.k[group] = reinterpret_cast<const std::byte*>(k);
        floats.v[group] = reinterpret_cast<const std::byte*>(v);
    }
    return floats;
}

// ---- A block -----------------------------------------------------------------------------------

template <typename Simd>
void BeginBlock(const AttentionArgs& args, const AttentionRun& run, int64_t begin,
                Block<Simd>& block) {
    const auto scale = Simd::Set(args.scale * 1.44269504f);  // log2 e
    for (int64_t i = 0; i < block.count; ++i) {
        const int64_t row = (begin + i) / run.heads;
        const int64_t head = run.first_head + (begin + i) % run.heads;
        const float* q =
            args.q + (run.sequence->row_begin + row) * args.q_stride + head * block.head_dim;
        float* to = block.q + i * block.padded;
        ForVectors<Simd>(
            0, block.head_dim,
            [&](int64_t d) { Simd::Store(to + d, Simd::Mul(Simd::Load(q + d), scale)); },
            [&](int64_t d, int64_t left) {
                Simd::Store(to + d, Simd::Mul(Simd::LoadFirst(q + d, left), scale));
            });
        block.last[i] = run.sequence->position + row;
        block.largest[i] = -std::numeric_limits<float>::infinity();
    }
    std::fill(block.out, block.out + block.count * block.padded, 0.0f);
    std::fill(block.sums, block.sums + block.count * 16, 0.0f);
    std::fill(std::begin(block.shrink), std::end(block.shrink), 0.0f);
}

template <typename Simd>
void EndBlock(const AttentionArgs& args, const AttentionRun& run, int64_t begin,
              const Block<Simd>& block) {
    for (int64_t i = 0; i < block.count; ++i) {
        const int64_t row = (begin + i) / run.heads;
        const int64_t head = run.first_head + (begin + i) % run.heads;
        const float* from = block.out + i * block.padded;
        float* out =
            args.out + (run.sequence->row_begin + row) * args.out_stride + head * block.head_dim;
        const auto share = Simd::Set(1.0f / Simd::Sum(Simd::Load(block.sums + i * 16)));
        // The added zero makes a -0, which a masked key's exact zero might have turned, a +0.
        const auto value = [&](int64_t d) {
            return Simd::Fma(Simd::Load(from + d), share, Simd::Zero());
        };
        ForVectors<Simd>(
            0, block.head_dim, [&](int64_t d) { Simd::Store(out + d, value(d)); },
            [&](int64_t d, int64_t left) { Simd::StoreFirst(out + d, value(d), left); });
    }
}

template <typename Simd>
void AttendBlock(const AttentionArgs& args, const AttentionRun& run, int64_t begin,
                 Block<Simd>& block) {
    const DType dtype = args.k_cache.dtype;
    const bool convert = dtype == DType::kQ8_0 || block.head_dim % 16 != 0 ||
                         (block.count > kDirectQueries && dtype != DType::kF32);
    BeginBlock(args, run, begin, block);
    const int64_t end = block.last[block.count - 1] + 1;
    for (int64_t position = 0; position < end; position += kTileKeys) {
        const Tile tile = FindTile<Simd>(args, run, position, end);
        if (convert) {
            AttendTile<Simd, DType::kF32>(block, ConvertTile(block, dtype, tile));
        } else if (dtype == DType::kF16) {
            AttendTile<Simd, DType::kF16>(block, tile);
        } else if (dtype == DType::kBF16) {
            AttendTile<Simd, DType::kBF16>(block, tile);
        } else {
            AttendTile<Simd, DType::kF32>(block, tile);
        }
    }
    EndBlock(args, run, begin, block);
}

template <typename Simd>
void AttentionTiles(const AttentionArgs& args, int part, int parts) {
    Block<Simd> block(args.scratch + part * args.scratch_floats, args.k_cache.head_dim);
    AttentionShare share(args, part, parts);
    AttentionRun run;
    while (share.Next(&run)) {
        for (int64_t begin = run.begin; begin < run.end; begin += kBlockQueries) {
            block.count = std::min(kBlockQueries, run.end - begin);
            AttendBlock(args, run, begin, block);
        }
    }
}

}  // namespace weft::kernels
