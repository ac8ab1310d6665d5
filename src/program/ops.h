// The ops of a Program. Each op is defined in one place: its attributes, and a row that describes
// its operands, its accesses to them and its traits. Gradient ops follow their ops.
//
// An op is a struct with a row `kRow` and its name in WEFT_OPS at the end. The row determines:
// checks of operand counts, shapes, types and accesses (check.cc); byte counts (cost.cc); the
// operands that keep all bits when a training step uses narrow types (train/graph.cc); the ops that
// a device may run on half of a step's rows; and the check that a backend's calls access operands
// as the row states (backend/cpu/lowering.h).
//
// A row's operands, inputs -> outputs:
//
//     "x[T,k] weight[n,k]:weight (bias[n]) -> y[T,n]:f64"
//
//     [T,k]    dimensions. One letter is the same number everywhere in the row; T and R are rows of
//              the step (or a rank's share of them); `..` is any dimensions, the same ones in all
//              operands of the row; `_` is any number
//     ( )      optional: all operands in between are present, or none. The attributes' Has(name)
//              states which. For one group per row, Has may be absent or return nullopt: the number
//              of operands then decides
//     x*       one or more operands like this
//     +=       on an output: the op adds to it. It is also the last input
//     :i32     numbers of tokens, rows or experts; all other operands are floats, but messages
//              (Trait::kMessage) move both
//     :f64     may be float64
//     :state   a KV cache: read and written
//     :slots   recurrent state (Storage::kSlots): read and written
//     :spent   undefined after the op
//     :weight  the matrix of a product: in training it may be of a block type
//     :exact   keeps all bits when training uses narrow types
//     :chosen  a stack of experts; the op touches only experts that a token chose
//     :part    the op reads as many of its bytes as it writes
//     :narrow  when training uses narrow types, a sum of branches that the op reads is narrow, too,
//              although `add` keeps all bits
//
// Show(show) lists an op's attributes for prints: show(name, value), show.Where(name, value) if the
// value is not zero, show.Flag(name, bool) if it is true.
#pragma once

#include <algorithm>
#include <any>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "program/latent.h"
#include "program/op_row.h"
#include "program/pool_windows.h"
#include "program/recurrent.h"
#include "program/streams.h"
#include "program/ungated.h"
#include "program/update.h"
#include "program/weigh_rows.h"
#include "tensor/activation.h"
#include "tensor/loss_terms.h"
#include "tensor/temperature.h"

namespace weft::program {

// ---- Rows of the step ---------------------------------------------------------------------------

// Rows of the table; ids outside of it give zeros. In training, a row of the table may get noise
// (NEFTune: Jain et al. 2023): its amplitude times a number from -1 to 1 for each key and column
// (tensor/noise.h).
struct Embedding {
    static constexpr OpRow kRow{"embedding",
                                "tokens[T]:i32 table[n,d] (keys[T]:i32 amplitudes[T]) -> y[T,d]",
                                Pass::kBoth, Trait::kRowWise | Trait::kStream | Trait::kExact};
    int64_t first_row = 0;
    void Show(auto& show) const { show("first_row", first_row); }
};
struct EmbeddingGrad {
    static constexpr OpRow kRow{"embedding_grad",
                                "dy[T,d] tokens[T]:i32 -> dtable[n,d]+=", Pass::kBackward,
                                Trait::kExact, 1};
    int64_t first_row = 0;
    void Show(auto& show) const { show("first_row", first_row); }
};

struct SelectRows {  // the rows of x with the given numbers
    static constexpr OpRow kRow{"select_rows", "x[T,n]:part rows[R]:i32 -> y[R,n]", Pass::kBoth,
                                Trait::kExact};
};
struct SelectRowsGrad {  // dy in the given rows, zeros in all others
    static constexpr OpRow kRow{"select_rows_grad", "dy[R,n] rows[R]:i32 -> dx[T,n]",
                                Pass::kBackward, Trait::kExact, 1};
};

// ---- Norms --------------------------------------------------------------------------------------

struct RmsNorm {
    static constexpr OpRow kRow{"rms_norm", "x[T,n] (weight[_]) (squares[T,m]) -> y[T,n]",
                                Pass::kBoth, Trait::kRowWise | Trait::kCheap, 4};
    float eps = 1e-5f;
    int64_t group = 0;  // columns per group: n, or head_dim for QK norm
    // With squares (group is then n): x is this rank's part of rows of `whole` columns. Column
    // `square` of squares holds the sum of squares of the whole row.
    int64_t whole = 0, square = 0;
    bool plain = false;     // has no weight
    bool centered = false;  // subtracts the mean of the group first: LayerNorm
    bool apart = false;     // weight [n]: one per group. Else [group], shared by all groups
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "weight" ? !plain : whole != 0;
    }
    void Show(auto& show) const {
        show("eps", eps);
        show("group", group);
        show.Flag("plain", plain);
        show.Flag("centered", centered);
        show.Flag("apart", apart);
        if (whole == 0) return;
        show("whole", whole);
        show("square", square);
    }
};
struct RmsNormGradInput {
    static constexpr OpRow kRow{
        "rms_norm_grad_input",
        "dy[T,n] x[T,n] (weight[_]) (squares[T,m]:exact) -> dx[T,n] (dsquares[T,m]:exact)",
        Pass::kBackward, Trait::kRowWise, 8};
    float eps = 1e-5f;
    int64_t group = 0;
    bool plain = false, centered = false, apart = false;  // as in RmsNorm
    int64_t whole = 0, square = 0;  // dx then is the part that does not pass through squares
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "weight" ? !plain : whole != 0;
    }
    void Show(auto& show) const {
        show("eps", eps);
        show("group", group);
        show.Flag("plain", plain);
        show.Flag("centered", centered);
        show.Flag("apart", apart);
        if (whole == 0) return;
        show("whole", whole);
        show("square", square);
    }
};
struct RmsNormGradWeight {
    static constexpr OpRow kRow{"rms_norm_grad_weight",
                                "dy[T,n] x[T,n] (squares[T,_]:exact) -> dw[_]+=", Pass::kBackward,
                                0, 6};
    float eps = 1e-5f;
    int64_t group = 0;
    bool centered = false, apart = false;
    int64_t whole = 0, square = 0;
    std::optional<bool> Has(std::string_view) const { return whole != 0; }
    void Show(auto& show) const {
        show("eps", eps);
        show("group", group);
        show.Flag("centered", centered);
        show.Flag("apart", apart);
        if (whole == 0) return;
        show("whole", whole);
        show("square", square);
    }
};

struct ColumnRange {
    int64_t begin = 0, count = 0;
};
struct SumSquares {  // each input's sum of squares, in its own column
    static constexpr OpRow kRow{"sum_squares", "x*[T,_] -> y[T,_]:f64", Pass::kBoth,
                                Trait::kRowWise | Trait::kExact};
    std::vector<ColumnRange> columns;  // per input: the columns that this rank adds to the sum
    void Show(auto& show) const { show("columns", columns); }
};
struct SumSquaresGrad {  // of one input: 2 * x * dy[:, column] in its columns, zeros elsewhere
    static constexpr OpRow kRow{"sum_squares_grad", "dy[T,_] x[T,n] -> dx[T,n]", Pass::kBackward,
                                Trait::kRowWise | Trait::kExact, 1};
    int64_t column = 0;
    ColumnRange columns;
    void Show(auto& show) const {
        show("column", column);
        show("columns", std::vector<ColumnRange>{columns});
    }
};

// ---- Products -----------------------------------------------------------------------------------

struct MatMul {  // y = x . weight^T + bias
    static constexpr OpRow kRow{"mat_mul", "x[T,k] weight[n,k]:weight (bias[n]) -> y[T,n]:f64",
                                Pass::kBoth, Trait::kRowWise | Trait::kProduct};
    Cut cut = Cut::kNone;  // kNone on one rank; with kColumns only one rank has the bias
    // With kRows, if some rows are on several ranks (replicated KV heads): the number of rows of
    // the whole weight. It is equal on all ranks. 0: each row is on one rank.
    int64_t shared_rows = 0;
    // Sums over many columns use float64, so that they hardly depend on how columns are cut over
    // ranks. The output is f64 if a sum over ranks follows; otherwise it is rounded to f32. Runs of
    // this many columns are first added in float32; 0: float32 throughout.
    int64_t segment_cols = 0;
    void Show(auto& show) const {
        show.Where("cut", cut);
        show.Where("shared_rows", shared_rows);
        show.Where("segment_cols", segment_cols);
    }
};
struct MatMulGradInput {
    static constexpr OpRow kRow{"mat_mul_grad_input", "dy[T,n] weight[n,k]:weight -> dx[T,k]",
                                Pass::kBackward, Trait::kRowWise | Trait::kProductGradInput};
};
struct MatMulGradWeight {  // dw += dy^T . x
    static constexpr OpRow kRow{"mat_mul_grad_weight",
                                "dy[T,n] x[T,k] -> dw[n,k]+=", Pass::kBackward,
                                Trait::kProductGradWeight};
};

struct AddBias {
    static constexpr OpRow kRow{"add_bias", "x[T,n] bias[n] -> y[T,n]", Pass::kBoth,
                                Trait::kRowWise, 1};
    int64_t shared_rows = 0;  // as in MatMul, for the bias
    void Show(auto& show) const { show.Where("shared_rows", shared_rows); }
};
struct BiasGrad {  // db += column sums of dy
    static constexpr OpRow kRow{"bias_grad", "dy[T,n] -> db[n]+=", Pass::kBackward, 0, 1};
};

// Multiplies each head's columns of x by the head's own matrix W: y = x . W^T. transposed (training
// only): y = x . W, which is also the gradient of x.
struct HeadMatMul {  // no Trait::kProduct: bytes determine the time of small matrices
    static constexpr OpRow kRow{"head_mat_mul", "x[T,_] weight[m,n,k]:weight -> y[T,_]",
                                Pass::kBoth, Trait::kRowWise};
    bool transposed = false;
    void Show(auto& show) const { show.Flag("transposed", transposed); }
};
struct HeadMatMulGradWeight {  // dW += rows^T . columns of each head
    static constexpr OpRow kRow{"head_mat_mul_grad_weight",
                                "rows[T,_] columns[T,_] -> dw[m,n,k]+=", Pass::kBackward, 0};
};

// Adapters beside a product (LoRA: Hu et al. 2021; DoRA: Liu et al. 2024), a norm or a bias. In the
// rows of sequences that use an adapter,
//
//     y = gain * y + (x . a^T) . b^T + shift        or, without b,        y = x . a^T + shift
//
// with those of a [r, k], b [n, r], gain [n, 1] and shift [n, 1] that the adapter has. Other rows
// do not change. The step states which rows use an adapter; without such rows, it skips the op.
struct Adapt {
    // rows: the row of the step of each row of y, if y has rows R.
    static constexpr OpRow kRow{"adapt", "x[T,k] (rows[T]:i32) parts*[_,_] -> y[T,n]:f64+=",
                                Pass::kInference, Trait::kRowWise};
    enum Part : uint8_t { kA = 1, kB = 2, kGain = 4, kShift = 8 };
    std::vector<int32_t> adapters;  // ascending, from 1
    std::vector<uint8_t> parts;     // the sum of each adapter's parts
    // As in the MatMul before this op. Not 0: sums over columns use float64, because each rank may
    // have only a part of the columns.
    int64_t segment_cols = 0;
    bool of_outputs = false;  // y has rows R
    // The input that is a part of adapters[i]; kNoValue: it has none.
    ValueId PartOf(const std::vector<ValueId>& inputs, size_t i, Part part) const;
    std::optional<bool> Has(std::string_view) const { return of_outputs; }
    void Show(auto& show) const {
        show("adapters", adapters);
        if (std::ranges::any_of(parts, [](uint8_t p) { return p != (kA | kB); })) {
            show("parts", parts);
        }
        show.Where("segment_cols", segment_cols);
    }
};

// Adapters beside the products of experts. Each adapter has a stack a [m, r, k] and a stack b [m,
// n, r], of the same experts as the product's stack.
struct ExpertPairs {
    std::vector<int32_t> adapters;  // ascending, from 1
    int64_t first_expert = 0;
    int64_t segment_cols = 0;  // as in Adapt
    void Show(auto& show) const {
        show("adapters", adapters);
        show("first_expert", first_expert);
        show.Where("segment_cols", segment_cols);
    }
};
struct AdaptExperts {  // y += (x . a^T) . b^T, with the matrices of each row's expert
    static constexpr OpRow kRow{
        "adapt_experts", "x[T,..,k] ids[T,K]:i32 pairs*[m,_,_] -> y[T,K,n]+=", Pass::kInference,
        Trait::kRowWise};
    ExpertPairs pairs;
    void Show(auto& show) const { pairs.Show(show); }
};
struct AdaptExpertSum {  // y += the sum over a token's experts of weight * ((x . a^T) . b^T)
    static constexpr OpRow kRow{
        "adapt_expert_sum",
        "x[T,K,k] ids[T,K]:i32 weights[T,K]:exact pairs*[m,_,_] -> y[T,n]:f64+=", Pass::kInference,
        Trait::kRowWise};
    ExpertPairs pairs;
    void Show(auto& show) const { pairs.Show(show); }
};

// ---- Attention ----------------------------------------------------------------------------------

struct Rope {
    static constexpr OpRow kRow{"rope", "x[T,n] positions[T]:i32 -> y[T,n]", Pass::kBoth,
                                Trait::kRowWise};
    int64_t head_dim = 0, rotary_dim = 0;
    bool neighbours = false;
    float sign = 1;                        // -1: rotates back, for the gradient
    std::vector<float> inverse_frequency;  // [rotary_dim / 2], scaling already applied
    float magnitude = 1;                   // factor of cosines and sines (YaRN, LongRoPE)
    bool last = false;                     // rotates the last columns of a head; else the first
    int64_t behind = 0;                    // rotates by max(0, position - behind)
    void Show(auto& show) const {
        show("head_dim", head_dim);
        show("rotary_dim", rotary_dim);
        show("pairs", neighbours ? "neighbours" : "halves");
        show("sign", sign);
        if (magnitude != 1) show("magnitude", magnitude);
        show.Flag("last", last);
        show.Where("behind", behind);
    }
};

struct Attention {
    // With caches: appends k and v to the pages, then q attends through the pages. Without caches
    // (training): q attends causally to the rows of its own sequence in this step.
    // ahead: q also attends to the later rows of its sequence in this step, so a step must hold all
    // rows of the sequence. Only with caches.
    // lse: log(sum(exp(scores))) of each row and head, for the gradient, in the backend's layout.
    // chosen: the output of index_blocks.
    static constexpr OpRow kRow{
        "attention",
        "q[T,n] k[T,m] v[T,l] (sinks[_]) (chosen[T,K]:i32) (k_cache[c,d]:state v_cache[c,e]:state)"
        " -> out[T,o] (lse[T,h]:exact)",
        Pass::kBoth, Trait::kSeesEarlier | Trait::kAttention};
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    int64_t first_head = 0, first_kv_head = 0;  // model head at which this rank's heads begin
    int64_t group = 1;                          // query heads per KV head of the model
    float scale = 1;
    int64_t window = 0;     // number of keys that a query attends to, including its own; 0: all.
                            // With `ahead`, on each side
    float soft_cap = 0;     // not 0: scaled scores s become soft_cap * tanh(s / soft_cap)
    bool sinks = false;     // each head has an extra score, its sink, with a zero value
    int64_t value_dim = 0;  // columns of a value and of a head's result; 0: head_dim
    int64_t chunk = 0;      // not 0: a query sees keys from the last multiple of this on
    int64_t block = 0;      // not 0: keys per block; a query sees its KV head's `chosen`
    bool ahead = false;
    // [heads] or empty. ALiBi (Press et al. 2022): each score also has the head's slope times (the
    // key's position - the query's).
    std::vector<float> slopes;
    int64_t ValueDim() const { return value_dim == 0 ? head_dim : value_dim; }
    bool cached(size_t inputs) const { return inputs == FirstCache() + 2; }
    size_t FirstCache() const { return 3u + (sinks ? 1u : 0u) + (block != 0 ? 1u : 0u); }
    std::optional<bool> Has(std::string_view operand) const {
        if (operand == "chosen") return block != 0;
        return operand == "sinks" ? std::optional(sinks) : std::nullopt;
    }
    void Show(auto& show) const {
        show("heads", heads);
        show("kv_heads", kv_heads);
        show("head_dim", head_dim);
        show("first_head", first_head);
        show("first_kv_head", first_kv_head);
        show("group", group);
        show("scale", scale);
        show.Where("window", window);
        show.Where("soft_cap", soft_cap);
        show.Flag("sinks", sinks);
        show.Where("value_dim", value_dim);
        show.Where("chunk", chunk);
        show.Where("block", block);
        show.Flag("ahead", ahead);
        if (!slopes.empty()) show("slopes", slopes);
    }
};
struct AttentionGrad {
    static constexpr OpRow kRow{
        "attention_grad",
        "dout[T,n]:narrow q[T,n] k[T,m] v[T,m] out[T,n] lse[T,h]:exact (sinks[h])"
        " -> dq[T,n] dk[T,m] dv[T,m] (dsinks[T,h]:exact)",
        Pass::kBackward, Trait::kAttention};
    Attention forward;  // dsinks: each row's addend to the gradient of the sinks
    std::optional<bool> Has(std::string_view) const { return forward.sinks; }
    void Show(auto& show) const { forward.Show(show); }
};

// ---- Element by element -------------------------------------------------------------------------

struct Glu {  // act(gate) * up
    static constexpr OpRow kRow{"glu", "gate[..] up[..] -> y[..]", Pass::kBoth,
                                Trait::kRowWise | Trait::kCheap};
    Activation activation = Activation::kSilu;
    float limit = 0;           // not 0: act(gate) is at most this, and up within +- this
    bool limits_gate = false;  // the gate itself is at most `limit` (DeepSeek-V4)
    void Show(auto& show) const {
        show("activation", activation);
        show.Where("limit", limit);
        show.Flag("limits_gate", limits_gate);
    }
};
struct GluGrad {
    static constexpr OpRow kRow{"glu_grad", "dout[..]:narrow gate[..] up[..] -> dgate[..] dup[..]",
                                Pass::kBackward, Trait::kRowWise, 11};
    Activation activation = Activation::kSilu;
    float limit = 0;  // as in Glu
    bool limits_gate = false;
    void Show(auto& show) const {
        show("activation", activation);
        show.Where("limit", limit);
        show.Flag("limits_gate", limits_gate);
    }
};

struct Add {
    static constexpr OpRow kRow{"add", "a[..] b[..] -> y[..]", Pass::kBoth,
                                Trait::kRowWise | Trait::kStream | Trait::kExact, 1};
};
struct Scale {  // factor * x; its own gradient
    static constexpr OpRow kRow{"scale", "x[..] -> y[..]", Pass::kBoth, Trait::kRowWise, 1};
    float factor = 1;
    void Show(auto& show) const { show("factor", factor); }
};
struct ScaleByPosition {  // x * temperature.At(position); its own gradient
    static constexpr OpRow kRow{"scale_by_position", "x[T,n] positions[T]:i32 -> y[T,n]",
                                Pass::kBoth, Trait::kRowWise, 1};
    Temperature temperature;
    void Show(auto& show) const {
        show("beta", temperature.beta);
        show("length", temperature.length);
        show.Where("offset", temperature.offset);
    }
};
struct SoftCap {  // cap * tanh(x / cap)
    static constexpr OpRow kRow{"soft_cap", "x[..] -> y[..]", Pass::kBoth, Trait::kRowWise, 12};
    float cap = 1;
    void Show(auto& show) const { show("cap", cap); }
};
struct SoftCapGrad {  // dy * (1 - tanh(x / cap)^2)
    static constexpr OpRow kRow{"soft_cap_grad", "dy[..] x[..] -> dx[..]", Pass::kBackward,
                                Trait::kRowWise, 14};
    float cap = 1;
    void Show(auto& show) const { show("cap", cap); }
};
struct Zero {
    static constexpr OpRow kRow{"zero", "-> y[..]:f64", Pass::kTraining,
                                Trait::kStream | Trait::kExact};
};

struct SliceColumns {  // columns [begin, begin + m)
    static constexpr OpRow kRow{"slice_columns", "x[..,n]:part:exact -> y[..,m]", Pass::kBackward,
                                Trait::kRowWise};
    int64_t begin = 0;
    void Show(auto& show) const { show("begin", begin); }
};
struct PadColumns {  // x at columns [begin, begin + m), zeros elsewhere
    static constexpr OpRow kRow{"pad_columns", "x[..,m] -> y[..,n]:exact", Pass::kBoth,
                                Trait::kRowWise | Trait::kCheap};
    int64_t begin = 0;
    void Show(auto& show) const { show("begin", begin); }
};

// ---- Transfers ----------------------------------------------------------------------------------

struct AllReduce {  // x summed over the group, f32
    static constexpr OpRow kRow{
        "all_reduce", "x[..]:f64:spent -> y[..]", Pass::kBoth,
        Trait::kRowWise | Trait::kStream | Trait::kExact | Trait::kAllReduce};
    Group group = Group::kTensor;
    void Show(auto& show) const { show("group", group); }
};
struct AllGather {  // columns of all ranks, in rank order
    static constexpr OpRow kRow{
        "all_gather", "x[T,_] -> y[T,_]", Pass::kBoth,
        Trait::kRowWise | Trait::kStream | Trait::kExact | Trait::kAllGather};
    Group group = Group::kTensor;
    std::vector<int64_t> parts;  // columns of each rank
    int64_t begin = 0;           // this rank's first column in the output
    void Show(auto& show) const {
        show("group", group);
        show("parts", parts);
        show("begin", begin);
    }
};
struct Send {  // to rank `peer` of the world
    static constexpr OpRow kRow{"send", "x[..] ->", Pass::kBoth,
                                Trait::kRowWise | Trait::kExact | Trait::kMessage};
    int peer = 0;
    void Show(auto& show) const { show("peer", peer); }
};
struct Recv {  // from rank `peer` of the world
    static constexpr OpRow kRow{"recv", "-> x[..]", Pass::kBoth,
                                Trait::kRowWise | Trait::kStream | Trait::kExact | Trait::kMessage};
    int peer = 0;
    void Show(auto& show) const { show("peer", peer); }
};

// Ops on rows that tensor ranks divide (program/sequence_parallel.h). S is a rank's share of T.
struct GatherRows {  // the rows of all ranks
    static constexpr OpRow kRow{"gather_rows", "x[S,n] -> y[T,n]", Pass::kTraining,
                                Trait::kCheap | Trait::kAllGather};
};
struct ReduceScatterRows {  // this rank's rows of the sum over the group
    static constexpr OpRow kRow{"reduce_scatter_rows", "x[T,n]:spent -> y[S,n]", Pass::kTraining,
                                Trait::kStream | Trait::kExact | Trait::kReduceScatter};
};
struct SliceRows {  // this rank's rows
    static constexpr OpRow kRow{"slice_rows", "x[T,n]:part -> y[S,n]", Pass::kBackward,
                                Trait::kExact};
};
// Rows that the ranks of a context group divide (program/context_parallel.h). `parts`: columns of
// each rank; they may overlap.
struct AllToAll {
    static constexpr OpRow kRow{"all_to_all", "x[_,_] -> y[_,_]", Pass::kTraining,
                                Trait::kCheap | Trait::kAllGather};
    std::vector<ColumnRange> parts;
    // Whether x has this rank's rows, and y this rank's columns of all rows. If false, x has the
    // columns and y the rows; each column of y is the sum over the ranks that have it.
    bool to_columns = true;
    void Show(auto& show) const {
        show("parts", parts);
        show.Flag("to_columns", to_columns);
    }
};

// Weights that ZeRO shards over the ranks with different data (zero.h). `parts`: elements of each
// of these ranks; `begin`: this rank's first element.
struct ZeroAllGather {  // from all ranks
    static constexpr OpRow kRow{"zero_all_gather", "share[_] -> all[_]", Pass::kBackward,
                                Trait::kAllGather | Trait::kBeside};
    std::vector<int64_t> parts;
    int64_t begin = 0;
    void Show(auto& show) const {
        show("parts", parts);
        show("begin", begin);
    }
};
struct ZeroReduceScatter {  // share += this rank's part of the sum over ranks
    static constexpr OpRow kRow{"zero_reduce_scatter",
                                "all[_]:spent -> share[_]+=", Pass::kBackward,
                                Trait::kReduceScatter | Trait::kBeside};
    std::vector<int64_t> parts;
    int64_t begin = 0;
    bool adds = true;  // false: share, which may lie in `all`, is overwritten
    void Show(auto& show) const {
        show("parts", parts);
        show("begin", begin);
        show.Flag("anew", !adds);
    }
};

// ---- Mixtures of experts ------------------------------------------------------------------------
//
// A value [T, K, n] has a row for each of a token's K experts. The backend chooses the order of
// these rows in memory.

// The score of logits: softmax, sigmoid, or the square root of softplus (DeepSeek-V4). kSparseMixer
// (Liu et al. 2024; without bias, groups and renormalization): the weight of a chosen expert is its
// softmax among the experts that were not chosen before it and whose logits x are within `jitter`
// of its own logit m: (m - x) / max(|x|, m) <= jitter.
enum class GateScore { kSoftmax, kSigmoid, kSqrtSoftplus, kSparseMixer };
struct Route {
    // Chooses the K experts with the highest score + bias; ties go to the lower id. The bias
    // affects only the choice. Without bias and groups the logits decide, because sigmoids that
    // round to 1 are equal. Weights are the scores of the chosen experts, in the order of choice.
    // by_token: the table row of the token lists the expert ids, each below E.
    static constexpr OpRow kRow{
        "route",
        "logits[T,E]:exact (bias[E]) (factors[E]) (tokens[T]:i32 table[V,1,K]:i32)"
        " -> ids[T,K]:i32 weights[T,K]:exact",
        Pass::kBoth, Trait::kRowWise | Trait::kOnce | Trait::kRouter, 8};
    GateScore score = GateScore::kSoftmax;
    float jitter = 0;
    // Experts form `groups` of equal size. Only the `groups_used` groups with the highest sums of
    // their best `group_best` experts are eligible.
    int64_t groups = 1, groups_used = 1, group_best = 1;
    bool renormalise = false;  // weights of a token add up to 1 (before scale)
    float scale = 1;
    bool factors = false;   // an input multiplies the weight of each chosen expert
    bool by_token = false;  // without bias, factors and groups
    std::optional<bool> Has(std::string_view operand) const {
        if (operand == "factors") return factors;
        if (operand == "tokens" || operand == "table") return by_token;
        return by_token ? std::optional(false) : std::nullopt;
    }
    void Show(auto& show) const {
        show("score", score);
        show.Where("jitter", jitter);
        if (groups > 1) {
            show("groups", groups);
            show("groups_used", groups_used);
            show("group_best", group_best);
        }
        show.Flag("renormalise", renormalise);
        show.Flag("factors", factors);
        show.Flag("by_token", by_token);
        show("scale", scale);
    }
};
// The gradient of the logits, from the gradient of the weights. The choice has no gradient, so the
// bias has none.
struct RouteGrad {
    static constexpr OpRow kRow{"route_grad",
                                "dweights[T,K]:exact logits[T,E]:exact ids[T,K]:i32 (factors[E])"
                                " -> dlogits[T,E]:exact",
                                Pass::kBackward};
    Route forward;
    std::optional<bool> Has(std::string_view) const { return forward.factors; }
    void Show(auto& show) const { forward.Show(show); }
};
struct RouteFactorsGrad {
    static constexpr OpRow kRow{"route_factors_grad",
                                "dweights[T,K]:exact logits[T,E]:exact ids[T,K]:i32"
                                " -> dfactors[E]+=",
                                Pass::kBackward};
    Route forward;
    void Show(auto& show) const { forward.Show(show); }
};

// Multiplies each row by the matrix of its expert. This rank holds experts [first_expert,
// first_expert + m). Later ops ignore rows of other experts.
struct ExpertMatMul {
    static constexpr OpRow kRow{
        "expert_mat_mul",
        "x[T,..,k] ids[T,K]:i32 weight[m,n,k]:weight:chosen (bias[m,1,n]:chosen)"
        " -> y[T,K,n]",
        Pass::kBoth, Trait::kRowWise | Trait::kProduct};
    int64_t first_expert = 0;
    Cut cut = Cut::kNone;
    void Show(auto& show) const {
        show("first_expert", first_expert);
        show("cut", cut);
    }
};
// Gradients of expert_mat_mul and of expert_sum. Rows of experts that other ranks hold count as
// zeros.
struct ExpertMatMulGradInput {
    static constexpr OpRow kRow{"expert_mat_mul_grad_input",
                                "dy[T,K,n] ids[T,K]:i32 weight[m,n,k]:weight:chosen -> dx[T,..,k]",
                                Pass::kBackward, Trait::kProductGradInput};
    int64_t first_expert = 0;
    void Show(auto& show) const { show("first_expert", first_expert); }
};
struct ExpertMatMulGradWeight {
    static constexpr OpRow kRow{"expert_mat_mul_grad_weight",
                                "dy[T,K,n] x[T,..,k] ids[T,K]:i32 -> dw[m,n,k]:chosen+=",
                                Pass::kBackward, Trait::kProductGradWeight};
    int64_t first_expert = 0;
    void Show(auto& show) const { show("first_expert", first_expert); }
};

// base + the sum over a token's experts of weight * (x . expert^T + bias), added in float64 in the
// order of the experts' ids.
struct ExpertSum {
    static constexpr OpRow kRow{
        "expert_sum",
        "x[T,K,k] ids[T,K]:i32 weights[T,K]:exact weight[m,n,k]:weight:chosen"
        " (bias[m,1,n]:chosen) (base[T,n]:f64:exact) -> y[T,n]:f64:exact",
        Pass::kBoth, Trait::kRowWise | Trait::kProduct};
    int64_t first_expert = 0;
    Cut cut = Cut::kNone;      // with kColumns only one rank has the bias
    int64_t segment_cols = 0;  // as in MatMul
    bool bias = false, base = false;
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "bias" ? bias : base;
    }
    void Show(auto& show) const {
        show("first_expert", first_expert);
        show("cut", cut);
        show("segment_cols", segment_cols);
        show.Flag("bias", bias);
        show.Flag("base", base);
    }
};
struct ExpertSumGradInput {  // dweights: the dot product of dy . weight and x
    static constexpr OpRow kRow{"expert_sum_grad_input",
                                "dy[T,n]:exact x[T,K,k] ids[T,K]:i32 weights[T,K]:exact"
                                " weight[m,n,k]:weight:chosen -> dx[T,K,k] dweights[T,K]:exact",
                                Pass::kBackward, Trait::kProductGradInput};
    int64_t first_expert = 0;
    void Show(auto& show) const { show("first_expert", first_expert); }
};
struct ExpertSumGradWeight {
    static constexpr OpRow kRow{"expert_sum_grad_weight",
                                "dy[T,n] x[T,K,k] ids[T,K]:i32 weights[T,K] -> dw[m,n,k]:chosen+=",
                                Pass::kBackward, Trait::kProductGradWeight};
    int64_t first_expert = 0;
    void Show(auto& show) const { show("first_expert", first_expert); }
};

// The biases of experts, which are ops of their own in training. x + the bias of the row's expert:
struct ExpertBias {
    static constexpr OpRow kRow{"expert_bias",
                                "x[T,K,n] ids[T,K]:i32 bias[m,1,n]:chosen:exact -> y[T,K,n]",
                                Pass::kTraining, Trait::kRowWise, 1};
    int64_t first_expert = 0;
    void Show(auto& show) const { show("first_expert", first_expert); }
};
// base + the sum over a token's experts of weight * bias.
struct ExpertBiasSum {
    static constexpr OpRow kRow{"expert_bias_sum",
                                "base[T,n]:exact ids[T,K]:i32 weights[T,K]:exact"
                                " bias[m,1,n]:chosen:exact -> y[T,n]:exact",
                                Pass::kTraining, Trait::kRowWise, 2};
    int64_t first_expert = 0;
    void Show(auto& show) const { show("first_expert", first_expert); }
};
struct ExpertBiasSumGrad {
    static constexpr OpRow kRow{"expert_bias_sum_grad",
                                "dy[T,n]:exact ids[T,K]:i32 bias[m,1,n]:chosen:exact"
                                " -> dweights[T,K]:exact",
                                Pass::kBackward, Trait::kRowWise, 2};
    int64_t first_expert = 0;
    void Show(auto& show) const { show("first_expert", first_expert); }
};
// The gradient of the bias of expert_bias, or with weights, of expert_bias_sum.
struct ExpertBiasGrad {
    static constexpr OpRow kRow{
        "expert_bias_grad",
        "dy[T,..,n] ids[T,K]:i32 (weights[T,K]:exact) -> db[m,1,n]:chosen:exact+=", Pass::kBackward,
        0, 2};
    int64_t first_expert = 0;
    bool weighs = false;
    std::optional<bool> Has(std::string_view) const { return weighs; }
    void Show(auto& show) const {
        show("first_expert", first_expert);
        show.Flag("weighs", weighs);
    }
};

enum class RowGate { kSigmoid, kSoftplus, kProduct };
// x * sigmoid(gate), softplus(gate) or gate. gate's number of columns divides x's.
struct GateRows {
    static constexpr OpRow kRow{"gate_rows", "x[T,n] gate[T,_]:exact -> y[T,n]", Pass::kBoth,
                                Trait::kRowWise, 1};
    RowGate gate = RowGate::kSigmoid;
    void Show(auto& show) const {
        if (gate != RowGate::kSigmoid) show("gate", gate);
    }
};
struct GateRowsGrad {
    static constexpr OpRow kRow{"gate_rows_grad",
                                "dy[T,n] x[T,n] gate[T,g]:exact -> dx[T,n] dgate[T,g]:exact",
                                Pass::kBackward, Trait::kRowWise, 3};
    RowGate gate = RowGate::kSigmoid;
    void Show(auto& show) const {
        if (gate != RowGate::kSigmoid) show("gate", gate);
    }
};

// Statistics of a layer's router, added to `load`: for each expert the number of times that rows
// chose it, and the sum over rows of its softmax(logits).
struct RouterLoad {
    static constexpr OpRow kRow{"router_load",
                                "logits[T,E]:exact ids[T,K]:i32 (load[2,E]:exact) -> y[2,E]:exact",
                                Pass::kTraining, Trait::kOnce, 4};
};
struct RouterLoadGrad {  // counts have no gradient
    static constexpr OpRow kRow{"router_load_grad",
                                "dload[2,E]:exact logits[T,E]:exact -> dlogits[T,E]:exact",
                                Pass::kBackward};
};
// For the `load` of N rows that chose `used` experts each: E * the sum over experts of (count / N)
// (sum / N). Equals `used` if the load is balanced (Fedus et al. 2021, in transformers' form).
struct LoadBalance {
    static constexpr OpRow kRow{"load_balance", "load[2,E]:exact -> loss[1]:exact", Pass::kTraining,
                                0, 2};
    int64_t used = 1;
    void Show(auto& show) const { show("used", used); }
};
struct LoadBalanceGrad {
    static constexpr OpRow kRow{
        "load_balance_grad", "dloss[1]:exact load[2,E]:exact -> dload[2,E]:exact", Pass::kBackward};
    LoadBalance forward;
    void Show(auto& show) const { forward.Show(show); }
};

// ---- Losses -------------------------------------------------------------------------------------
//
// The loss of a row is -log softmax(logits)[target], and LossTerms (tensor/loss_terms.h); a row
// with a negative target has none. The vocabulary may be cut over the tensor group. Each rank then
// has the logits of its own part of the vocabulary, from token first_row on, and the ranks gather
// LossTerms::stats() numbers per row (softmax_stats).

// The output projection and the loss in one op: logits = soft_cap(scale * (x . weight^T + bias)).
// `parts`: the tokens of each tensor rank (empty: one rank has all). No backend executes this op or
// its gradient: ExpandLoss (loss.h) replaces them by ops that never hold all logits.
struct LinearCrossEntropy {
    static constexpr OpRow kRow{"linear_cross_entropy",
                                "x[R,k] weight[n,k]:weight targets[R]:i32 (bias[n]) -> "
                                "loss[R]:exact",
                                Pass::kTraining, Trait::kProduct | Trait::kLogits};
    Cut cut = Cut::kNone;
    int64_t first_row = 0;
    std::vector<int64_t> parts{};
    float scale = 1, soft_cap = 0;  // soft_cap 0: none
    bool biased = false;
    LossTerms terms{};  // of the backward pass
    std::optional<bool> Has(std::string_view) const { return biased; }
    void Show(auto& show) const {
        show.Flag("biased", biased);
        if (cut != Cut::kNone) {
            show("cut", cut);
            show("first_row", first_row);
            show("parts", parts);
        }
        if (scale != 1) show("scale", scale);
        show.Where("soft_cap", soft_cap);
        show.Where("smoothing", terms.smoothing);
        show.Where("z_loss", terms.z_loss);
    }
};
struct LinearCrossEntropyGrad {  // with cut kRows, dx is partial: this rank's rows of weight only
    static constexpr OpRow kRow{"linear_cross_entropy_grad",
                                "dloss[R]:exact x[R,k] weight[n,k]:weight targets[R]:i32 (bias[n])"
                                " -> dx[R,k] (dw[n,k]+=) (db[n]+=)",
                                Pass::kBackward, Trait::kProductGradWeight | Trait::kLogits};
    LinearCrossEntropy forward;
    bool trains_weight = false, trains_bias = false;
    std::optional<bool> Has(std::string_view operand) const {
        if (operand == "bias") return forward.biased;
        return operand == "dw" ? trains_weight : trains_bias;
    }
    void Show(auto& show) const { forward.Show(show); }
};

// For each row: the largest logit, the sum of exp(logit - largest), the target's logit (0 if
// another rank has it), and with `sums` the sum of the logits.
struct SoftmaxStats {
    static constexpr OpRow kRow{"softmax_stats",
                                "logits[T,V]:exact targets[T]:i32 -> stats[T,m]:exact",
                                Pass::kBackward, Trait::kRowWise, 2};
    int64_t first_row = 0;
    bool sums = false;
    void Show(auto& show) const {
        show("first_row", first_row);
        show.Flag("sums", sums);
    }
};
// stats: the statistics of all ranks, one after another. hits: 1 where no logit is larger than the
// target's, else 0.
struct CrossEntropy {
    static constexpr OpRow kRow{"cross_entropy",
                                "stats[T,m]:exact targets[T]:i32 -> losses[T]:exact hits[T]:exact",
                                Pass::kBackward, Trait::kRowWise, 3};
    LossTerms terms{};
    void Show(auto& show) const {
        show.Where("smoothing", terms.smoothing);
        show.Where("z_loss", terms.z_loss);
    }
};
// Replaces logits by their gradients: dloss * (softmax(logits) (1 + 2 z_loss lse) -
// (1 - smoothing) onehot(target) - smoothing / tokens).
struct CrossEntropyGrad {
    static constexpr OpRow kRow{
        "cross_entropy_grad",
        "dloss[T]:exact stats[T,m]:exact targets[T]:i32 -> logits[T,V]:exact+=", Pass::kBackward};
    int64_t first_row = 0;
    LossTerms terms{};
    void Show(auto& show) const {
        show("first_row", first_row);
        show.Where("smoothing", terms.smoothing);
        show.Where("z_loss", terms.z_loss);
    }
};

// ---- All of them --------------------------------------------------------------------------------

// clang-format off
#define WEFT_OPS(OP) \
    OP(Embedding) OP(EmbeddingGrad) \
    OP(SelectRows) OP(SelectRowsGrad) \
    OP(RmsNorm) OP(RmsNormGradInput) OP(RmsNormGradWeight) \
    OP(SumSquares) OP(SumSquaresGrad) \
    OP(MatMul) OP(MatMulGradInput) OP(MatMulGradWeight) \
    OP(AddBias) OP(BiasGrad) \
    OP(HeadMatMul) OP(HeadMatMulGradWeight) \
    OP(Adapt) OP(AdaptExperts) OP(AdaptExpertSum) \
    OP(Rope) \
    OP(Attention) OP(AttentionGrad) \
    OP(IndexTopK) OP(IndexBlocks) OP(LatentAttention) OP(WindowAttention) OP(PickColumns) \
    OP(PadHeads) OP(ScaleHeads) OP(ScaleHeadsGrad) \
    OP(CausalConv) OP(CausalConvGrad) OP(CausalConvGradWeight) OP(DeltaRule) OP(DeltaRuleGrad) \
    OP(StreamWeights) OP(MergeStreams) OP(MixStreams) OP(PoolWindows) \
    OP(AltUpWeights) OP(MatchStreams) OP(ScaleColumns) OP(RowMoments) OP(Sparsify) \
    OP(Glu) OP(GluGrad) OP(Activate) OP(ActivateGrad) \
    OP(Add) OP(Scale) OP(ScaleByPosition) OP(SoftCap) OP(SoftCapGrad) OP(Zero) \
    OP(SliceColumns) OP(PadColumns) \
    OP(AllReduce) OP(AllGather) OP(Send) OP(Recv) \
    OP(GatherRows) OP(ReduceScatterRows) OP(SliceRows) OP(AllToAll) \
    OP(ZeroAllGather) OP(ZeroReduceScatter) \
    OP(Route) OP(RouteGrad) OP(RouteFactorsGrad) \
    OP(WeighRows) OP(WeighRowsGrad) OP(IdentityExperts) \
    OP(ExpertMatMul) OP(ExpertMatMulGradInput) OP(ExpertMatMulGradWeight) \
    OP(ExpertSum) OP(ExpertSumGradInput) OP(ExpertSumGradWeight) \
    OP(ExpertBias) OP(ExpertBiasSum) OP(ExpertBiasSumGrad) OP(ExpertBiasGrad) \
    OP(GateRows) OP(GateRowsGrad) \
    OP(RouterLoad) OP(RouterLoadGrad) \
    OP(LoadBalance) OP(LoadBalanceGrad) \
    OP(SoftmaxStats) OP(CrossEntropy) OP(CrossEntropyGrad) \
    OP(LinearCrossEntropy) OP(LinearCrossEntropyGrad) \
    OP(SumOver) OP(AddSquares) \
    OP(AdamUpdate) OP(Adam8bitUpdate) OP(SgdUpdate) OP(LionUpdate) \
    OP(ScheduleFreeUpdate) OP(ScheduleFreeView) OP(MuonUpdate) \
    OP(AdafactorSums) OP(AdafactorMoments) OP(AdafactorSizes) OP(AdafactorUpdate)
// clang-format on

#define WEFT_KIND(name) k##name,
enum class OpKind { WEFT_OPS(WEFT_KIND) };
#undef WEFT_KIND

#define WEFT_ONE(name) +1
inline constexpr size_t kOpKinds = WEFT_OPS(WEFT_ONE);
#undef WEFT_ONE

template <typename T>
struct KindOfOp;
#define WEFT_KIND_OF(name)                               \
    template <>                                          \
    struct KindOfOp<name> {                              \
        static constexpr OpKind kKind = OpKind::k##name; \
    };
WEFT_OPS(WEFT_KIND_OF)
#undef WEFT_KIND_OF

template <typename T>
concept IsOp = requires {
    KindOfOp<T>::kKind;
};

// One of the structs above. It is not a std::variant, because every file that holds an op would
// then compile the copies and destructors of all of them: two seconds per file.
class OpAttributes {
  public:
    template <IsOp T>
    OpAttributes(T op) : kind_(KindOfOp<T>::kKind), held_(std::move(op)) {}

    OpKind kind() const { return kind_; }
    // The struct if it is a T; otherwise nullptr.
    template <IsOp T>
    const T* If() const {
        return std::any_cast<T>(&held_);
    }
    template <IsOp T>
    T* If() {
        return std::any_cast<T>(&held_);
    }
    // walk(attributes) for any op; all overloads return the same type.
    template <typename Walk>
    auto Visit(Walk&& walk) const {
        switch (kind_) {
#define WEFT_VISIT(name) \
    case OpKind::k##name: return walk(*If<name>());
            WEFT_OPS(WEFT_VISIT)
#undef WEFT_VISIT
        }
        std::abort();  // no op has another kind
    }

  private:
    OpKind kind_;
    std::any held_;
};

const OpRow& RowOf(OpKind kind);

struct Op {
    OpAttributes attributes;
    std::vector<ValueId> inputs;  // without absent optional inputs
    std::vector<ValueId> outputs;

    OpKind kind() const { return attributes.kind(); }
    bool Is(unsigned trait) const { return RowOf(kind()).Is(trait); }
    template <typename T>
    const T& as() const {
        const T* found = attributes.If<T>();
        if (found == nullptr) std::abort();  // the caller has checked the kind
        return *found;
    }
};

// ---- The rows, read -----------------------------------------------------------------------------

const char* OpName(OpKind kind);  // "mat_mul"
inline bool IsOfUpdate(OpKind kind) {
    return RowOf(kind).pass == Pass::kUpdate;
}

enum class Access : uint8_t { kRead, kWrite, kAdd };

// An operand as described by a row.
struct Operand {
    std::string_view name;
    std::array<char, 4> dims{};  // letters, digits, '_', '.' for `..`
    int rank = 0;                // of dims
    Access access = Access::kRead;
    int group = 0;  // number of its optional group; 0: not optional
    bool many = false, index = false, wide = false, state = false, spent = false, weight = false;
    bool exact = false, chosen = false, part = false, narrow = false, slots = false;
    // Whether the operand's first dimension is (or for `..`, may be) rows of the step.
    bool by_rows() const { return dims[0] == 'T' || dims[0] == 'R' || dims[0] == '.'; }
};

// The operands of an op's inputs and outputs. An operand to which the op adds is in both lists.
struct Operands {
    std::vector<const Operand*> inputs, outputs;
};
// Nullopt: the number of operands does not match the row.
std::optional<Operands> OperandsOf(const Op& op);
// Whether an operand of the op is a stack of experts of which the op touches the chosen ones
// (:chosen).
bool IsOfExperts(const Op& op);
inline bool IsOfAdapters(OpKind kind) {
    return kind == OpKind::kAdapt || kind == OpKind::kAdaptExperts ||
           kind == OpKind::kAdaptExpertSum;
}
// The index of the input that is :weight; nullopt for other ops.
std::optional<size_t> WeightInput(OpKind kind);
inline ValueId WeightOf(const Op& product) {
    return product.inputs[*WeightInput(product.kind())];
}

}  // namespace weft::program
