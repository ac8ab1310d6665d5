// Multi-head latent attention (DeepSeek-AI 2024, "DeepSeek-V2"), in the absorbed form: the cache
// has one row per position, [latent (rank) | rotated key (rope)]. All heads use this row as their
// key, and its latent part as their value. HeadMatMul (kernels/experts.h) applies a head's key
// matrix to the query before this kernel runs, and the head's value matrix to the result
// afterwards.
//
// The cache holds rows of rank + rope elements, in the layout of a V cache (KvCache) with one head.
// As in args.h, kernels take (args, part, parts) and allocate nothing, and a row's bits do not
// depend on other rows.
#pragma once

#include "kernels/args.h"

namespace weft::kernels {

// kLatentQueries: number of queries that are computed together. kLatentTile: number of positions
// that are computed together.
inline constexpr int64_t kLatentQueries = 32;
inline constexpr int64_t kLatentTile = 64;

// Windows of `stride` positions. In the windows' cache, `row_positions` positions share a row; a
// window is stored in the row of its last position.
struct Windows {
    int64_t stride = 1, row_positions = 1;
    // The number of windows that end at `position` or before.
    int64_t Seen(int64_t position) const { return (position + 1) / stride; }
    bool Ends(int64_t position) const { return (position + 1) % stride == 0; }
    // The row of window w, counted from the first row of the sequence's first page.
    int64_t Row(int64_t w) const { return ((w + 1) * stride - 1) / row_positions; }
};
// The address of row `row`, counted from the first row of the sequence's first page.
inline std::byte* PagedRow(const KvCache& cache, const Sequence& sequence, int64_t row) {
    const int32_t page = sequence.pages.data()[row / cache.page_tokens];
    return cache.Row(page, 0, row % cache.page_tokens);
}

struct LatentWriteArgs {
    std::span<const Sequence> sequences;
    const float* latent = nullptr;  // [rows, rank]
    const float* key = nullptr;     // [rows, rope], rotated
    int64_t rank = 0, rope = 0;
    KvCache cache;      // head_dim = rank + rope, at most kMostLatentColumns; kv_heads = 1
    Windows windows{};  // rows that do not end a window are not written
};
inline constexpr int64_t kMostLatentColumns = 1024;
void LatentWrite(const LatentWriteArgs& args, int part, int parts);

// out = softmax(scale * (q_latent . latent + q_key . key)) . latent, causal, per head.
struct LatentAttentionArgs {
    std::span<const Sequence> sequences;
    const float* q_latent = nullptr;  // [rows, heads * rank]
    const float* q_key = nullptr;     // [rows, heads * rope]
    int64_t heads = 0, rank = 0, rope = 0;
    KvCache cache;
    float scale = 1;
    float* scratch = nullptr;    // [parts, scratch_floats]
    int64_t scratch_floats = 0;  // LatentScratch(rank, rope)
    float* out = nullptr;        // [rows, heads * rank]
    const float* sinks =
        nullptr;  // [heads] or null: one more score per head, with a value of zeros
};
int64_t LatentScratch(int64_t rank, int64_t rope);

// Copies columns [begin, begin + size) of each head; a head has `head_cols` columns.
struct PickColumnsArgs {
    const float* x = nullptr;  // [rows, heads * head_cols]
    int64_t rows = 0, heads = 0, head_cols = 0, begin = 0, size = 0;
    float* y = nullptr;  // [rows, heads * size]
};
void PickColumns(const PickColumnsArgs& args, int part, int parts);

}  // namespace weft::kernels
