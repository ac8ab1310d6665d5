// Adapters on a matrix product (program::Adapt), in the rows that use an adapter:
//
//     y = gain * y + (x . a^T) . b^T + shift        or, without b,        y = x . a^T + shift
//
// with a [r, k] and b [n, r]. There are two kernels, down (x . a^T, if there is a b) and up (the
// rest); all threads must finish down before up begins.
//
// As in kernels.h, kernels take (args, part, parts) and allocate nothing, and a row's bits do not
// depend on the other rows, on their adapters or on `parts`. Rows without an adapter are not
// touched.
// Down divides the columns of x into kAdaptChunks chunks. In a step with few rows, the parts divide
// the chunks too, and up adds the chunks' sums; in other steps, down adds them. Both add in order.
// Activations and sums are float32 for adapters of any type. For a product whose columns may be
// divided over ranks, the columns form segments: the float32 sum of each segment is added in
// float64, so that results barely depend on the division.
#pragma once

#include "kernels/args.h"

namespace weft::kernels {

inline constexpr int64_t kAdaptChunks = 8;
inline constexpr size_t kFewAdaptedRows = 16;
inline constexpr int64_t kMostAdaptRows = 8;  // rows that up computes together

// The matrices A and B of one adapter for one product, F32 or BF16, packed in strips of 16 rows:
// [strip][col][16]. gain, shift: [rows of y], which is the packed form of one column. Null: absent.
struct AdapterPair {
    int32_t adapter = 0;
    PackedMatrix a, b;
    const float *gain = nullptr, *shift = nullptr;
    int64_t a_bytes = 0, b_bytes = 0;  // per expert; a and b belong to the first
};

// AdapterBytes returns the size of a packed [rows, cols] matrix; PackAdapter packs it, as
// Kernels::pack does.
int64_t AdapterBytes(DType dtype, int64_t rows, int64_t cols);
void PackAdapter(const PackedMatrix& matrix, int64_t row_begin, int64_t count,
                 const std::byte* source, int64_t source_stride_bytes);

// A row of a step and its adapter. Rows with the same adapter are adjacent.
struct AdaptedRow {
    int32_t row = 0;
    int32_t adapter = 0;
};

// The experts of rows (kernels/experts.h), for a product with a matrix for each expert. Only a and
// b are used.
struct AdaptedSlots {
    const int32_t* ids = nullptr;    // [rows, used]; null: not a product of experts
    const int32_t* place = nullptr;  // as in ExpertPlan
    int64_t used = 0, first_expert = 0;
    bool by_token = false;  // x has a row per row of the step; else per place
    // [rows, used]: y has a row per row of the step, to which each slot's result is added, times
    // its weight. Null: y has a row per place.
    const float* weights = nullptr;
};

// u = x . a^T, for rows whose adapter is in `pairs`.
struct AdaptDownArgs {
    std::span<const AdapterPair> pairs;  // ascending by adapter
    std::span<const AdaptedRow> rows;
    AdaptedSlots slots;
    const float* x = nullptr;
    int64_t x_stride = 0;
    int64_t segment_cols = 0;  // not 0: float32 sums over this many columns are added up in float64
    // [place in `rows`, or its slot; AdaptChunksOf(rows.size()); u_stride]. A single chunk holds
    // the sum of all.
    float* u = nullptr;
    double* wide_u = nullptr;  // used instead of u if segment_cols is not 0
    int64_t u_stride = 0;      // the largest rank, rounded up to a strip
};

// Changes y in the rows whose adapter is in `pairs`, or `wide` if it is not null. If both y and
// wide are set, then y = wide, rounded, in all rows of the step.
struct AdaptUpArgs {
    std::span<const AdapterPair> pairs;
    std::span<const AdaptedRow> rows;
    AdaptedSlots slots;
    const float* x = nullptr;  // of pairs without b
    int64_t x_stride = 0;
    int64_t segment_cols = 0;
    const float* u = nullptr;
    const double* wide_u = nullptr;
    int64_t u_stride = 0;
    float* y = nullptr;  // [row of the step, or place; y_stride]
    double* wide = nullptr;
    int64_t y_stride = 0;          // stride of y and wide
    int64_t cols = 0;              // number of rows of b
    int64_t all_rows = 0;          // number of rows of the step
    std::byte* scratch = nullptr;  // [parts, scratch_bytes]; of pairs with b
    int64_t scratch_bytes = 0;     // AdaptUpScratch(u_stride)
};
constexpr int64_t AdaptUpScratch(int64_t u_stride) {
    return kMostAdaptRows * u_stride * static_cast<int64_t>(sizeof(double));
}

struct AdaptKernels {
    Kernel<AdaptDownArgs> adapt_down = nullptr;
    Kernel<AdaptUpArgs> adapt_up = nullptr;
};

// Chunks of u for a row. rows: all rows of the call.
constexpr int64_t AdaptChunksOf(size_t rows) {
    return rows > kFewAdaptedRows ? 1 : kAdaptChunks;
}
// The most rows x chunks of u in calls of at most `rows` rows.
constexpr int64_t MostAdaptChunks(int64_t rows) {
    const auto few = static_cast<int64_t>(kFewAdaptedRows);
    return rows > few * kAdaptChunks ? rows : (rows < few ? rows : few) * kAdaptChunks;
}

// Helpers for the kernels of all CPU levels.

// The columns of a chunk. A segment lies in one chunk.
constexpr Range AdaptChunk(int64_t cols, int64_t segment_cols, int64_t chunk) {
    return Share(cols, segment_cols == 0 ? 32 : segment_cols, static_cast<int>(chunk),
                 static_cast<int>(kAdaptChunks));
}

// A block is a sequence of rows with the same adapter,
// which are computed together.
struct AdaptBlock {
    const AdapterPair* pair = nullptr;
    std::span<const AdaptedRow> rows;
};
// Removes the next block (at most `most` rows) from the front of `rows`. The block's `pair` is null
// if `pairs` has no pair for the adapter.
AdaptBlock NextBlock(std::span<const AdapterPair> pairs, size_t most,
                     std::span<const AdaptedRow>& rows);

// Rows of x, u and y that belong together.
struct AdaptPlace {
    int64_t x = 0, u = 0, y = 0;
    float weight = 1;
};
// Calls work(pair, places) for blocks of at most kMost of the rows `some`. The pair has the
// matrices of the rows' expert.
template <int kMost, typename Work>
void EachAdaptBlock(std::span<const AdapterPair> pairs, const AdaptedSlots& slots,
                    std::span<const AdaptedRow> all, const Range& some, const Work& work) {
    const bool experts = slots.ids != nullptr;
    auto rows =
        all.subspan(static_cast<size_t>(some.begin), static_cast<size_t>(some.end - some.begin));
    while (!rows.empty()) {
        const auto [pair, block] = NextBlock(pairs, experts ? 1 : kMost, rows);
        if (pair == nullptr) continue;
        const int64_t first = block.data() - all.data();
        AdaptPlace places[kMost];
        if (!experts) {
            for (size_t i = 0; i < block.size(); ++i) {
                const int64_t row = block[i].row;
                places[i] = {row, first + static_cast<int64_t>(i), row};
            }
            work(*pair, std::span<const AdaptPlace>(places, block.size()));
            continue;
        }
        const int64_t row = block[0].row;
        for (int64_t slot = row * slots.used; slot < (row + 1) * slots.used; ++slot) {
            const int64_t place = slots.place[slot];
            if (place < 0) continue;
            const int64_t expert = slots.ids[slot] - slots.first_expert;
            AdapterPair own = *pair;
            own.a.data += expert * pair->a_bytes;
            own.b.data += expert * pair->b_bytes;
            const bool sums = slots.weights != nullptr;
            const int64_t u = first * slots.used + slot - row * slots.used;
            places[0] = {slots.by_token ? row : place, u, sums ? row : place,
                         sums ? slots.weights[slot] : 1};
            work(own, std::span<const AdaptPlace>(places, 1));
        }
    }
}

}  // namespace weft::kernels
