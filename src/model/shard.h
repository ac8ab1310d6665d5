// The shard plan: which heads, MLP columns, vocabulary rows and layers each rank holds.
//
// World rank = stage * tp + tensor rank; rank 0 is in the first stage. Shares are weights
// (`--split 3,2,1`), so unequal machines carry unequal parts. Units that a cut may not divide:
//   attention   query heads, in steps that keep o_proj's columns on cut blocks (CutBlock);
//               a rank holds every KV head that its query heads read (so KV heads are replicated
//               where a cut falls inside a group, or where there are more ranks than KV heads)
//   recurrent   value heads of layers with state, in steps like attention's; a rank holds every
//               key head of its value heads (whole ones of Qwen3-Next, and of Mamba-2 where
//               groups are normed). Of gated short convolutions columns, in blocks of 64
//   MLP         columns, in multiples of the cut block of the down projection
//   experts     columns of each, as the MLP's, over the tensor ranks of one expert group: `--ep E`
//               makes E groups of the tensor ranks, each with whole experts (any number) of its
//               own. Unsaid: one group, or the fewest with which the columns can be cut
//   vocabulary  rows, in multiples of 16
//   pipeline    whole layers; the output matrix counts as the layers that it weighs
// Where a block forbids the cut that the shares ask for, the nearest allowed one is taken and a
// note says so.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model/hyper.h"
#include "tensor/dtype.h"

namespace weft::model {

struct Layout {
    int tp = 1;
    int pp = 1;
    std::vector<double> tp_shares;  // [tp], empty: even
    std::vector<double> pp_shares;  // [pp], empty: even
    int ep = 0;                     // expert groups of the tp ranks, divides tp; 0: as needed
    bool whole_blocks = false;      // no cut inside of a quantization block: for training, where
                                    // each column of a weight has one owner
    int size() const { return tp * pp; }
};

// Half-open range.
struct Span {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
    bool operator==(const Span&) const = default;
};

// What one rank holds.
struct Shard {
    int rank = 0, stage = 0, tensor_rank = 0;
    Layout layout;
    Span layers, heads, kv_heads, ffn, vocab;
    Span windowed_heads;  // query heads of layers with a window: `heads`, where they are as many
    std::vector<Span> layer_ffn;           // by layer, where MLPs differ; else empty
    Span experts, expert_ffn, shared_ffn;  // experts held, columns of each, of the shared one
    Span recurrent_heads, recurrent_keys;  // value and key heads of recurrent layers
    std::vector<int64_t> vocab_parts;      // rows of each tensor rank, for the all-gather of logits
    bool kv_replicated = false;            // some KV head is on several ranks
    const Span& FfnOf(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);
        return index < layer_ffn.size() ? layer_ffn[index] : ffn;
    }
    bool first_stage() const { return stage == 0; }
    bool last_stage() const { return stage == layout.pp - 1; }
};

// Parses "3,2,1": positive numbers, at most 1024 of them, "" is none. kUsage otherwise.
Result<std::vector<double>> ParseShares(const std::string& text);

// tp, pp and shares as the user gave them -> a layout for `ranks` ranks. Both 0: tp = ranks. One
// 0: ranks / the other. Shares: one a tensor rank, or one a stage (where tp is 1), or both in a
// row. ep: expert groups of the tensor ranks, 0: as many as the model needs. kUsage where they
// don't fit.
Result<Layout> MakeLayout(int ranks, int tp, int pp, const std::vector<double>& shares, int ep = 0);

// Columns of a matrix of `columns` input columns that a cut never divides: the quantization block
// of its dtype, or, of a block of 256 where the matrix is narrower than 16 (4) blocks, 128 (32)
// columns. 8 and 12 blocks are cut as they are: 2 and 4 ranks share them evenly. BF16 counts as
// blocks of 32, whose products the kernels add together.
// A rank whose columns begin or end inside of a block holds all of that block, and multiplies the
// rest of it by zeros (Builder::WholeBlocks). Coarse units cut wide matrices finely enough, and
// long float32 sums are faster.
int64_t CutBlock(DType dtype, int64_t columns);

// MLP columns that a cut never divides, the down projection's cut block apart: as many as
// a segmented mat_mul adds up at a time, so that its segments are the same on any number of ranks.
// 64 or 32 where that divides the columns, else 32, or fewer of less than 256 columns; the last
// rank then has what is left.
int64_t ColumnUnit(int64_t columns);

struct ShardPlan {
    std::vector<Shard> shards;       // by world rank
    std::vector<std::string> notes;  // cuts that a block size moved
};

// kUnsupported where a rank would be left with nothing, naming what was to be cut and the largest
// number of ranks that works.
Result<ShardPlan> PlanShards(const Hyper& hyper, const model_files::ModelSource& source,
                             const Layout& layout);

}  // namespace weft::model
