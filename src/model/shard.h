// The shard plan: which heads, MLP columns, vocabulary rows and layers each rank holds.
//
// World rank = stage * tp + tensor rank; rank 0 is in the first stage. Shares are weights
// (`--tensor-split 3,2,1`), so that unequal machines hold unequal parts. Units of the cuts:
//   attention   query heads, in steps such that the columns of o_proj are cut between blocks
//               (CutBlock). A rank holds every KV head that its query heads read, so KV heads are
//               replicated where a cut is inside a group, or if there are more ranks than KV heads
//   recurrent   value heads of layers with state, in steps as for attention. A rank holds every key
//               head of its value heads (in Qwen3-Next, and in Mamba-2 with normed groups, key
//               heads are never divided). Gated short convolutions are cut by columns, in blocks of
//               64
//   MLP         columns, in multiples of the cut block of the down projection
//   experts     columns of each expert, as for the MLP, over the tensor ranks of one expert group.
//               `--ep E` divides the tensor ranks into E groups, each with its own whole experts
//               (any number). Default: one group, or the fewest groups with which the columns can
//               be cut
//   vocabulary  rows, in multiples of 16
//   pipeline    whole layers; the output matrix counts as the number of layers of the same size
// If a block size forbids the cut that the shares ask for, the nearest allowed cut is used, and a
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
    int ep = 0;                     // expert groups of the tp ranks, divides tp; 0: chosen
    bool whole_blocks = false;      // no cut inside a quantization block: for training, where each
                                    // column of a weight has one owner
    int size() const { return tp * pp; }
};

// Half-open range.
struct Span {
    int64_t begin = 0, end = 0;
    int64_t size() const { return end - begin; }
    bool operator==(const Span&) const = default;
};

// The parts of the model that one rank holds.
struct Shard {
    int rank = 0, stage = 0, tensor_rank = 0;
    Layout layout;
    Span layers, heads, kv_heads, ffn, vocab;
    Span windowed_heads;  // query heads of windowed layers: equal to `heads` if the numbers are the
                          // same
    std::vector<Span> layer_ffn;           // MLP columns by layer, if layers differ; else empty
    Span experts, expert_ffn, shared_ffn;  // experts held; columns of each; columns of the shared
                                           // one
    Span recurrent_heads, recurrent_keys;  // value and key heads of recurrent layers
    std::vector<int64_t> vocab_parts;      // vocabulary rows of each tensor rank, for the
                                           // all-gather of logits
    bool kv_replicated = false;            // some KV head is on several ranks
    const Span& FfnOf(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);
        return index < layer_ffn.size() ? layer_ffn[index] : ffn;
    }
    bool first_stage() const { return stage == 0; }
    bool last_stage() const { return stage == layout.pp - 1; }
};

// Parses "3,2,1": up to 1024 positive numbers; "" gives an empty list. Errors: kUsage.
Result<std::vector<double>> ParseShares(const std::string& text);

// Completes the user's tp, pp and shares to a layout for `ranks` ranks. If tp and pp are 0, tp =
// ranks; if one is 0, it is ranks / the other. shares: one per tensor rank, or one per stage (if tp
// is 1), or both lists, one after the other. ep: expert groups of the tensor ranks, 0: as many as
// the model needs. Errors: kUsage if they do not match.
Result<Layout> MakeLayout(int ranks, int tp, int pp, const std::vector<double>& shares, int ep = 0);

// The cut block of a matrix with `columns` input columns: the number of columns that a cut never
// divides. It is the quantization block of the dtype, but a matrix with fewer than 16 (4) blocks of
// 256 is cut at multiples of 128 (32) columns. 8 and 12 blocks stay whole, since 2 and 4 ranks
// share them evenly. BF16 counts as blocks of 32, whose products the kernels add together. A rank
// whose columns begin or end inside a block holds the whole block and multiplies the rest of it by
// zeros (Builder::WholeBlocks). Wide matrices keep large units: they still have enough of them, and
// long float32 sums are faster.
int64_t CutBlock(DType dtype, int64_t columns);

// The number of MLP columns that a cut never divides, apart from the cut block of the down
// projection. It is the length of the segments that a segmented mat_mul sums, so that segments are
// the same for any number of ranks: 64 or 32 if that divides the columns, else 32 (fewer below 256
// columns), with the remainder on the last rank.
int64_t ColumnUnit(int64_t columns);

struct ShardPlan {
    std::vector<Shard> shards;       // by world rank
    std::vector<std::string> notes;  // about cuts that a block size moved
};

// Errors: kUnsupported if a rank would hold nothing, naming what was cut and the largest number of
// ranks that works.
Result<ShardPlan> PlanShards(const Hyper& hyper, const model_files::ModelSource& source,
                             const Layout& layout);

}  // namespace weft::model
