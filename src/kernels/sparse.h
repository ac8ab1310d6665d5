// Sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2"): an indexer scores the cached positions for
// each row and chooses the `top` positions with the highest scores, and latent attention reads only
// these. Another kind of indexer scores blocks of positions for each KV head, and attention reads
// only the chosen blocks (MiniMax 2026, "MiniMax-M3").
//
// The keys of a layer's indexer are in a separate cache, which has rows of `dim` elements in the
// layout of latent.h. LatentWrite (latent.h) with rank = dim and rope = 0 writes them.
// In DeepSeek-V4, the indexer chooses windows of several positions, and attention also reads the
// last positions one by one.
// As in args.h, kernels take (args, part, parts) and allocate nothing, and a row's bits do not
// depend on other rows.
#pragma once

#include <algorithm>
#include <limits>

#include "kernels/latent.h"

namespace weft::kernels {

// In steps of at most this many rows, threads divide the positions of each row among them. In
// larger steps, each thread computes whole rows.
inline constexpr int64_t kIndexSharedRows = 16;

struct IndexRows {
    std::span<const Sequence> sequences;
    const float* q = nullptr;        // [rows, heads * dim]
    const float* weights = nullptr;  // [rows, heads]
    int64_t heads = 0, dim = 0;      // dim: at most kMostLatentColumns
    int64_t top = 0;
    KvCache cache;               // head_dim = dim, kv_heads = 1
    float* scratch = nullptr;    // [parts, scratch_floats]
    int64_t scratch_floats = 0;  // IndexScratch(heads, dim, positions)
    int64_t positions = 0;       // maximum number of positions of a sequence
    float* shared = nullptr;     // [kIndexSharedRows, positions], shared by all threads
    Windows windows{};           // windows that are chosen, if stride > 1; else positions are
    // `chosen` has the positions of the chosen windows, and of the window that has not ended.
    bool lists_positions = false;
    int64_t Columns() const {  // of a row of `chosen`
        return lists_positions ? (top + 1) * windows.stride - 1 : top;
    }
};
int64_t IndexScratch(int64_t heads, int64_t dim, int64_t positions);

// Computes the scores if there are at most kIndexSharedRows rows; otherwise does nothing. Rows that
// choose all their positions get no scores.
struct IndexScoresArgs {
    IndexRows rows;
};
// Chooses positions by the scores in `shared`. If there are more than kIndexSharedRows rows, this
// kernel computes the scores itself.
struct IndexChooseArgs {
    IndexRows rows;
    int32_t* chosen = nullptr;  // [rows, rows.Columns()]: ascending positions, padded with -1
};

// An indexer of blocks: a block's score for a head is the largest q . key over its positions. If a
// row sees more than rows.top blocks, the last `local` ones are always chosen.
//   rows: `weights` is null, and the scores of a row have the shape [heads, rows.positions /
//   heads].
struct BlockScoresArgs {
    IndexRows rows;
    int64_t block = 0, local = 1;
};
struct BlockChooseArgs {
    BlockScoresArgs scores;
    int32_t* chosen = nullptr;  // [rows, heads, top]: ascending blocks, padded with -1
};
// The value of IndexRows::positions for block scores of sequences with at most `positions`
// positions.
inline int64_t BlockScoreFloats(int64_t heads, int64_t positions, int64_t block) {
    return heads * ((positions + block - 1) / block);
}

// Attention of each row and KV head to its chosen blocks. `all` must have no window, chunks or
// sinks.
struct BlockAttentionArgs {
    AttentionArgs all;
    const int32_t* chosen = nullptr;  // [rows, kv_heads, top], for this rank's KV heads
    int64_t kv_heads = 0, top = 0, block = 0;
    // The blocks that a row chose for a KV head.
    const int32_t* Chosen(int64_t row, int64_t kv_head) const {
        return chosen + (row * kv_heads + kv_head) * top;
    }
};

// y = x times slope[head] * log(position + 1) + offset[head].
struct ScaleHeadsArgs {
    const float* x = nullptr;  // [rows, cols]
    const int32_t* positions = nullptr;
    const float* slope = nullptr;  // [heads]
    const float* offset = nullptr;
    int64_t rows = 0, cols = 0, heads = 0;
    float* y = nullptr;  // [rows, cols]
};
void ScaleHeads(const ScaleHeadsArgs& args, int part, int parts);

// Latent attention of each row to its chosen positions.
struct SparseLatentArgs {
    LatentAttentionArgs all;
    const int32_t* chosen = nullptr;  // [rows, top]
    int64_t top = 0;
};

// For each head: out = softmax(scale * q . row) . row, over the cache rows of the last `window`
// positions and over pooled windows. The latter are the windows in `chosen`, or all windows if
// `chosen` is null. sinks: [heads], one more score per head, whose value is zeros.
struct WindowAttentionArgs {
    std::span<const Sequence> sequences;
    const float* q = nullptr;  // [rows, heads * width]
    int64_t heads = 0, width = 0, window = 0;
    float scale = 1;
    const float* sinks = nullptr;
    KvCache cache;    // head_dim = width
    KvCache entries;  // cache of windows; if its data is null, there are none
    Windows windows{};
    const int32_t* chosen = nullptr;  // [rows, top], in the form of IndexChooseArgs
    int64_t top = 0;
    float* scratch = nullptr;    // [parts, scratch_floats]
    int64_t scratch_floats = 0;  // LatentScratch(width, 0)
    float* out = nullptr;        // [rows, heads * width]
};
// The cache rows that row `row` of the step, at `position`, attends to.
class WindowRows {
  public:
    WindowRows(const WindowAttentionArgs& args, const Sequence& sequence, int64_t row,
               int64_t position)
        : args_(args),
          sequence_(sequence),
          first_(std::max<int64_t>(position - args.window + 1, 0)),
          single_(position + 1 - first_) {
        if (args.entries.data == nullptr) return;
        seen_ = args.windows.Seen(position);
        if (args.chosen == nullptr) return;
        seen_ = std::min(seen_, args.top);
        chosen_ = args.chosen + row * args.top;
    }
    int64_t count() const { return single_ + seen_; }
    const std::byte* At(int64_t i) const {
        if (i < single_) return PagedRow(args_.cache, sequence_, first_ + i);
        const int64_t w = chosen_ == nullptr ? i - single_ : chosen_[i - single_];
        return PagedRow(args_.entries, sequence_, args_.windows.Row(w));
    }

  private:
    const WindowAttentionArgs& args_;
    const Sequence& sequence_;
    const int64_t first_, single_;
    int64_t seen_ = 0;
    const int32_t* chosen_ = nullptr;
};

// Stores in `top` the positions of the top.size() highest scores, ascending; of equal scores, the
// lower positions. There must be more scores than that.
void ChooseHighest(std::span<const float> scores, std::span<int32_t> top);
// Chooses all positions, for a row that sees at most top.size() of them.
void ChooseAll(int64_t positions, std::span<int32_t> top);
// Replaces the first rows.top numbers of windows by what IndexRows::lists_positions describes, for
// a row that sees `positions` positions.
void ListPositions(const IndexRows& rows, int64_t positions, std::span<int32_t> chosen);

struct SparseKernels {
    Kernel<IndexScoresArgs> index_scores = nullptr;
    Kernel<IndexChooseArgs> index_choose = nullptr;
    Kernel<SparseLatentArgs> latent = nullptr;
    Kernel<BlockScoresArgs> block_scores = nullptr;
    Kernel<BlockChooseArgs> block_choose = nullptr;
    Kernel<BlockAttentionArgs> block_attention = nullptr;
    Kernel<WindowAttentionArgs> windows = nullptr;
};

// Calls on(number, sequence, row, keys) for each row of the step; number counts the rows from 0.
// `row` is the row of q; it sees `keys` positions of `sequence`.
template <typename OnRow>
inline void ForIndexRows(std::span<const Sequence> sequences, OnRow on) {
    int64_t number = 0;
    for (const Sequence& sequence : sequences) {
        for (int64_t i = 0; i < sequence.row_count; ++i) {
            on(number++, sequence, sequence.row_begin + i, sequence.position + i + 1);
        }
    }
}
inline int64_t CountRows(std::span<const Sequence> sequences) {
    int64_t rows = 0;
    for (const Sequence& sequence : sequences) rows += sequence.row_count;
    return rows;
}

// The two index kernels, for the instruction set whose function `score` is passed: score(rows,
// sequence, row, begin, count, out) computes the scores of positions [begin, begin + count), at
// most kLatentTile of them.
template <typename Score>
inline void RunIndexScores(const IndexScoresArgs& args, int part, int parts, Score score) {
    const IndexRows& rows = args.rows;
    if (CountRows(rows.sequences) > kIndexSharedRows) return;
    int64_t tile = 0;
    ForIndexRows(rows.sequences,
                 [&](int64_t number, const Sequence& sequence, int64_t row, int64_t positions) {
                     const int64_t keys = rows.windows.Seen(positions - 1);
                     if (keys <= rows.top) return;
                     for (int64_t begin = 0; begin < keys; begin += kLatentTile) {
                         if (tile++ % parts != part) continue;
                         score(sequence, row, begin, std::min(kLatentTile, keys - begin),
                               rows.shared + number * rows.positions + begin);
                     }
                 });
}
template <typename Score>
inline void RunIndexChoose(const IndexChooseArgs& args, int part, int parts, Score score) {
    const IndexRows& rows = args.rows;
    const bool shared = CountRows(rows.sequences) <= kIndexSharedRows;
    ForIndexRows(rows.sequences, [&](int64_t number, const Sequence& sequence, int64_t row,
                                     int64_t positions) {
        const int64_t keys = rows.windows.Seen(positions - 1);
        if (number % parts != part) return;
        const std::span<int32_t> out(args.chosen + row * rows.Columns(),
                                     static_cast<size_t>(rows.Columns()));
        if (keys <= rows.top) return ChooseAll(rows.lists_positions ? positions : keys, out);
        float* const own = rows.scratch + part * rows.scratch_floats;
        for (int64_t begin = 0; !shared && begin < keys; begin += kLatentTile) {
            score(sequence, row, begin, std::min(kLatentTile, keys - begin), own + begin);
        }
        const float* from = shared ? rows.shared + number * rows.positions : own;
        ChooseHighest({from, static_cast<size_t>(keys)}, out.first(static_cast<size_t>(rows.top)));
        if (rows.lists_positions) ListPositions(rows, positions, out);
    });
}

// The same kernels for blocks: score(rows, sequence, row, begin, count, block, out, pitch) computes
// the scores of the blocks in which positions [begin, begin + count) lie. begin is a multiple of
// `block`. out: [heads, pitch].
//
// ForStretches calls on(begin, count) for ranges of positions that consist of whole blocks and have
// about kLatentTile positions or more. The ranges cover the blocks that must be scored for a row
// that sees `keys` positions: all blocks before the local ones.
template <typename OnStretch>
inline void ForStretches(const BlockScoresArgs& args, int64_t keys, OnStretch on) {
    const int64_t each = std::max<int64_t>(1, kLatentTile / args.block) * args.block;
    const int64_t end = ((keys - 1) / args.block + 1 - args.local) * args.block;
    for (int64_t begin = 0; begin < end; begin += each) on(begin, std::min(each, end - begin));
}
inline bool SeesMoreBlocks(const BlockScoresArgs& args, int64_t keys) {
    return (keys - 1) / args.block + 1 > args.rows.top;
}
template <typename Score>
inline void RunBlockScores(const BlockScoresArgs& args, int part, int parts, Score score) {
    const IndexRows& rows = args.rows;
    if (CountRows(rows.sequences) > kIndexSharedRows) return;
    int64_t tile = 0;
    ForIndexRows(rows.sequences,
                 [&](int64_t number, const Sequence& sequence, int64_t row, int64_t keys) {
                     if (!SeesMoreBlocks(args, keys)) return;
                     ForStretches(args, keys, [&](int64_t begin, int64_t count) {
                         if (tile++ % parts != part) return;
                         score(sequence, row, begin, count, args.block,
                               rows.shared + number * rows.positions + begin / args.block,
                               rows.positions / rows.heads);
                     });
                 });
}
template <typename Score>
inline void RunBlockChoose(const BlockChooseArgs& args, int part, int parts, Score score) {
    const IndexRows& rows = args.scores.rows;
    const int64_t block = args.scores.block, pitch = rows.positions / rows.heads;
    const bool shared = CountRows(rows.sequences) <= kIndexSharedRows;
    ForIndexRows(rows.sequences,
                 [&](int64_t number, const Sequence& sequence, int64_t row, int64_t keys) {
                     if (number % parts != part) return;
                     const int64_t blocks = (keys - 1) / block + 1;
                     const auto out = [&](int64_t head) {
                         return std::span(args.chosen + (row * rows.heads + head) * rows.top,
                                          static_cast<size_t>(rows.top));
                     };
                     if (!SeesMoreBlocks(args.scores, keys)) {
                         for (int64_t head = 0; head < rows.heads; ++head)
                             ChooseAll(blocks, out(head));
                         return;
                     }
                     float* from = rows.shared + number * rows.positions;
                     if (!shared) {
                         from = rows.scratch + part * rows.scratch_floats;
                         ForStretches(args.scores, keys, [&](int64_t begin, int64_t count) {
                             score(sequence, row, begin, count, block, from + begin / block, pitch);
                         });
                     }
                     for (int64_t head = 0; head < rows.heads; ++head) {
                         float* const own = from + head * pitch;
                         std::fill(own + blocks - args.scores.local, own + blocks,
                                   std::numeric_limits<float>::infinity());
                         ChooseHighest({own, static_cast<size_t>(blocks)}, out(head));
                     }
                 });
}

}  // namespace weft::kernels
