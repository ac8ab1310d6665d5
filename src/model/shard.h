// The shard plan: which heads, MLP columns, vocabulary rows and layers each rank holds.
//
// World rank = stage * tp + tensor rank; rank 0 is in the first stage. Shares are relative sizes
// (`--tensor-split 3,2,1`), so that unequal machines can hold unequal parts. The model is cut into
// these units:
//   attention   query heads, as many at a time as are needed to cut the columns of o_proj between
//               blocks (CutBlock). A rank holds every KV head that its query heads read. So a KV
//               head is on several ranks if a cut divides its group of query heads, or if there are
//               more ranks than KV heads
//   recurrent   value heads of layers with state, as many at a time as for attention. A rank holds
//               every key head of its value heads (in Qwen3-Next, and in Mamba-2 with norms over
//               groups, all value heads of a key head stay on one rank). Gated short convolutions
//               are cut by columns, in blocks of 64
//   MLP         columns, in multiples of the cut block of the down projection
//   experts     columns of each expert, as for the MLP, over the tensor ranks of one expert group.
//               `--ep E` divides the tensor ranks into E groups, each of which has some of the
//               experts (any number). Default: one group, or the fewest groups with which the
//               columns can be cut
//   vocabulary  rows, in multiples of 16
//   pipeline    whole layers; the output matrix counts as layers of the same total size
// If a block size does not allow the cut that results from the shares, the nearest allowed cut is
// used, and a note says so (ShardPlan::notes).
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
    int ep = 0;                     // number of expert groups of the tp ranks, a divisor of tp; 0:
                                    // chosen by PlanShards
    bool whole_blocks = false;      // do not cut inside a quantization block; for training, where
                                    // each column of a weight has one owner
    int size() const { return tp * pp; }
};

// The half-open range [begin, end).
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
    Span windowed_heads;  // query heads of windowed layers; equal to `heads` if all layers have as
                          // many heads
    std::vector<Span> layer_ffn;           // MLP columns by layer, if layers differ; else empty
    Span experts, expert_ffn, shared_ffn;  // experts of this rank; columns of each of them; columns
                                           // of the shared expert
    Span recurrent_heads, recurrent_keys;  // value and key heads of recurrent layers
    std::vector<int64_t> vocab_parts;      // vocabulary rows of each tensor rank, for the
                                           // all-gather of logits
    bool kv_replicated = false;            // a KV head is on several ranks
    const Span& FfnOf(int64_t layer) const {
        const auto index = static_cast<size_t>(layer);
        return index < layer_ffn.size() ? layer_ffn[index] : ffn;
    }
    bool first_stage() const { return stage == 0; }
    bool last_stage() const { return stage == layout.pp - 1; }
};

// Parses "3,2,1": up to 8192 positive numbers; "" gives an empty list. Errors: kUsage.
Result<std::vector<double>> ParseShares(const std::string& text);

// Completes the user's tp, pp and shares to a layout for `ranks` ranks. If tp and pp are 0, tp =
// ranks. If one of them is 0, it is ranks divided by the other. shares: one per tensor rank; or one
// per stage (if tp is 1); or the shares of the tensor ranks, then those of the stages. ep: number
// of expert groups of the tensor ranks; 0: as many as the model needs. Errors: kUsage if these
// numbers do not match.
Result<Layout> MakeLayout(int ranks, int tp, int pp, const std::vector<double>& shares, int ep = 0);

// The cut block of a matrix with `columns` input columns: the matrix is cut at multiples of this
// number of columns. It is the quantization block of the dtype, with these exceptions. A matrix
// with fewer than 16 blocks of 256 columns is cut at multiples of 128 columns, and one with fewer
// than 4 such blocks at multiples of 32 columns. Matrices with 8 or 12 blocks are still cut at
// whole blocks, because 2 and 4 ranks can share them evenly. BF16 has cut blocks of 32 columns,
// because kernels add the products of 32 columns together. A rank whose columns begin or end inside
// a block holds the whole block and multiplies the rest of it by zeros (Builder::WholeBlocks). Wide
// matrices have large cut blocks, because they have enough of them, and long float32 sums are
// faster.
int64_t CutBlock(DType dtype, int64_t columns);

// MLP columns are cut at multiples of this number and of the cut block of the down projection. It
// is also the length of the segments that a segmented mat_mul sums, so that segments are the same
// for any number of ranks. It is 64 or 32 if `columns` is a multiple of that. Otherwise it is 32
// (or less if there are fewer than 256 columns), and the last rank has the remaining columns.
int64_t ColumnUnit(int64_t columns);

struct ShardPlan {
    std::vector<Shard> shards;       // indexed by world rank
    std::vector<std::string> notes;  // about cuts that a block size moved
};

// Errors: kUnsupported if a rank would hold nothing; the message names the unit that is cut and the
// largest number of ranks that works.
Result<ShardPlan> PlanShards(const Hyper& hyper, const model_files::ModelSource& source,
                             const Layout& layout);

}  // namespace weft::model
