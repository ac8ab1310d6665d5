// The Program: what one rank computes in one step, as a flat list of ops over values.
//
// Built once per rank by model/, executed by a backend, and walked by everything else: shape
// check, liveness plan, print, cost, differentiate. Communication is not a special case:
// collectives are ops.
//
// Values. A value has a dtype, a shape, and a storage class. Dimensions are concrete but for two
// that are bound at each step: kTokens (rows of the step) and kOutputs (rows whose logits are
// wanted). Activations are float32 [kTokens, n].
//
// Ops. An op is a variant of small attribute structs; its kind is the variant's alternative, so a
// walk is a std::visit (or a switch over kind() without default) and a new op does not compile
// until every walk handles it. Inputs and outputs are value ids in the order each struct states.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "program/update.h"
#include "tensor/activation.h"
#include "tensor/dtype.h"

namespace weft::program {

using ValueId = int32_t;
inline constexpr ValueId kNoValue = -1;

inline constexpr int64_t kTokens = -1;   // T: rows of the step
inline constexpr int64_t kOutputs = -2;  // R: rows of the step whose logits are wanted
// Own rows of T that are shared out over `ranks` tensor ranks: rank r of n has rows
// [T r / n, T (r + 1) / n). What plans memory counts the most that a rank may have.
constexpr int64_t RowShare(int64_t ranks) {
    return -16 - ranks;
}
// The ranks of such a dimension; 0 for others.
constexpr int64_t SharingRanks(int64_t dim) {
    return dim < -16 ? -16 - dim : 0;
}

struct Shape {
    std::array<int64_t, 4> dims{};
    int rank = 0;

    Shape() = default;
    Shape(std::initializer_list<int64_t> list);
    bool operator==(const Shape&) const = default;
    int64_t operator[](int i) const { return dims[static_cast<size_t>(i)]; }
    // Elements when T and R are bound.
    int64_t Elements(int64_t tokens, int64_t outputs) const;
    std::string Text() const;  // "[T, 576]"
};

enum class Storage {
    kWeight,      // from the model file (or a trained parameter)
    kActivation,  // lives in the arena, from its first write to its last read
    kState,       // KV pages: outlives the step
    kInput,       // bound at each step: token ids, positions
    kGradient,    // of a weight: accumulates (+=) over steps, outside the arena
    kOptimizer,   // what an optimizer keeps of weights: outlives all steps
    kView,        // a range of the elements of another value
};

// Which part of a tensor of the file a weight value holds: rows [row_begin, row_begin + dims[0])
// and columns [col_begin, col_begin + dims[1]) of the tensor `name`. A stack of matrices [m, n, k]
// holds those rows and columns of m matrices of the file, which has them one below the other; a
// stack [m, 1, n] is m vectors.
struct WeightSlice {
    std::string name;
    int64_t row_begin = 0;
    int64_t col_begin = 0;
    int64_t home_row = 0;  // where the matrix begins that this is a part of (Q, K, V in one tensor)
    int64_t first_matrix = 0;  // stacks: the first matrix, and the rows that each has in the file
    int64_t matrix_rows = 0;
    bool transposed = false;  // stacks: the file holds each matrix turned, rows as columns
};

struct Value {
    std::string name;  // unique in its Program, as printed: "l0.attn.q"
    DType dtype = DType::kF32;
    Shape shape;
    Storage storage = Storage::kActivation;
    WeightSlice slice{};  // weights only
    // kView: elements [base_begin, ...) of `base`, which is no view, has no T or R, and the same
    // dtype.
    ValueId base = kNoValue;
    int64_t base_begin = 0;
};

// The row of the file's tensor that holds row `row` of a weight; a stack's rows are counted
// through.
int64_t FileRow(const Value& weight, int64_t row);
// Matrix i of a stack, as a weight of its own.
Value MatrixOf(const Value& stack, int64_t i);

// Bytes of a KV state (kState) with so many positions.
int64_t StateBytes(const Value& state, int64_t positions);

// How a MatMul's weight is cut over the TP group; differentiate needs it to place the transposed
// collectives: a column-parallel weight makes the gradient of its input partial.
enum class Cut { kNone, kRows, kColumns };  // kRows: outputs are shared out; kColumns: inputs are

// ---- Ops: attributes; inputs -> outputs ---------------------------------------------------------

struct Embedding {  // tokens [T] i32, table [n, d] -> [T, d]; rows outside it give zeros
    int64_t first_row = 0;
};
struct RmsNorm {  // x [T, n], (weight [group]), (squares [T, m]) -> [T, n]
    float eps = 1e-5f;
    int64_t group = 0;  // columns per group: n, or head_dim for QK norm
    // With squares (group is n then): x is this rank's part of rows of `whole` columns, whose sum
    // of squares is column `square` of squares.
    int64_t whole = 0, square = 0;
    bool plain = false;  // has no weight
};
struct SumSquares {  // x_0 [T, n_0], x_1 [T, n_1], ... -> [T, inputs], f32 or f64
    struct Columns {
        int64_t begin = 0, count = 0;
    };
    std::vector<Columns> columns;  // of each input: those that this rank adds to the sum
};
struct MatMul {            // x [T, k], weight [n, k], (bias [n]) -> [T, n] = x . weight^T + bias
    Cut cut = Cut::kNone;  // kNone on one rank; a bias under kColumns stands on one rank only
    // kRows only: rows of the whole weight where some of them are on several ranks (KV heads
    // that are replicated), the same on all ranks; 0 where each row is on one rank.
    int64_t shared_rows = 0;
    // Sums over many columns go through float64, so that they hardly depend on how columns are cut
    // over ranks: the output is f64 where a sum over ranks follows, else it is rounded to f32.
    // So many columns are added in float32 first; 0: all of them, and no float64.
    int64_t segment_cols = 0;
};
struct Rope {  // x [T, heads * head_dim], positions [T] i32 -> same shape
    int64_t head_dim = 0, rotary_dim = 0;
    bool neighbours = false;
    float sign = 1;
    std::vector<float> inverse_frequency;  // [rotary_dim / 2], scaling already applied
    float magnitude = 1;                   // of cosines and sines (YaRN, LongRoPE)
};
// q [T, h*hd], k [T, kv*hd], v as k, (sinks [h]), (k_cache, v_cache) -> [T, h*hd], (lse [T, h])
struct Attention {
    // With caches: k and v are appended to the pages, then q attends through the pages. Without
    // (training): q attends causally to the rows of its own sequence in this step.
    int64_t heads = 0, kv_heads = 0, head_dim = 0;
    int64_t first_head = 0, first_kv_head = 0;  // of the model, where this rank's heads begin
    int64_t group = 1;                          // query heads per KV head of the model
    float scale = 1;
    int64_t window = 0;  // keys that a query sees, its own the last of them; 0: all before it
    float soft_cap = 0;  // not 0: scaled scores s become soft_cap * tanh(s / soft_cap)
    bool sinks = false;  // each head has one score more, its sink, with a value of zeros
    // lse: log(sum(exp(scores))) of each row and head, for the gradient. Its layout is the
    // backend's own.
    bool cached(size_t inputs) const { return inputs == (sinks ? 6u : 5u); }
};
struct Glu {  // gate [T, n], up [T, n] -> act(gate) * up
    Activation activation = Activation::kSilu;
};
struct Add {};                // a [T, n], b [T, n] -> [T, n]
struct AddBias {              // x [T, n], bias [n] -> [T, n]
    int64_t shared_rows = 0;  // as in MatMul, of the bias
};
struct Scale {  // x -> factor * x
    float factor = 1;
};
struct SoftCap {  // x -> cap * tanh(x / cap)
    float cap = 1;
};
struct SelectRows {};  // x [T, n], output rows [R] i32 -> [R, n]
struct AllReduce {     // x (f32 or f64) -> x summed over the group, f32
    Group group = Group::kTensor;
};
struct AllGather {  // x [R, n_mine] -> [R, sum of parts]: columns of all ranks, in rank order
    Group group = Group::kTensor;
    std::vector<int64_t> parts;  // columns of each rank
    int64_t begin = 0;           // where this rank's columns begin in the output
};
// Rows that are shared out over the tensor group (program/row_shares.h), n ranks:
struct GatherRows {};         // x [T/n, m] -> [T, m]: all ranks' rows
struct ReduceScatterRows {};  // x [T, m] -> [T/n, m]: own rows of the sum over the group
struct SliceRows {};          // x [T, m] -> [T/n, m]: own rows
struct Send {                 // x -> nothing; to rank `peer` of the world
    int peer = 0;
};
struct Recv {  // nothing -> x; from rank `peer` of the world
    int peer = 0;
};
struct Zero {};        // nothing -> zeros
struct SliceColumns {  // x [T, n] -> [T, m]: columns [begin, begin + m)
    int64_t begin = 0;
};
struct PadColumns {  // x [T, m] -> [T, n]: x at columns [begin, begin + m), zeros elsewhere
    int64_t begin = 0;
};

// Mixtures of experts. A value [T, K, n] has a row for each of a token's K experts; which row lies
// where in memory is the backend's own business.
enum class GateScore { kSoftmax, kSigmoid };
// logits [T, E], (bias [E]), (factors [E]) -> ids [T, K] i32, weights [T, K]
struct Route {
    // The K experts of the highest score + bias; the bias chooses, and weighs nothing. Equal ones:
    // the lower id. Weights are the scores of the chosen, in the order of choice.
    GateScore score = GateScore::kSoftmax;
    // Experts stand in `groups` of equal size, of which only `groups_used` can be chosen from:
    // those with the highest sums of their best `group_best` experts.
    int64_t groups = 1, groups_used = 1, group_best = 1;
    bool renormalise = false;  // weights of a token add up to 1 (before scale)
    float scale = 1;
    bool factors = false;  // the last input multiplies the weight of each chosen expert
};
// x [T, k] or [T, K, k], ids [T, K], weight [m, n, k], (bias [m, 1, n]) -> [T, K, n]: each row
// times the matrix of its expert. This rank holds experts [first_expert, first_expert + m): rows of
// others are left out by all that follows.
struct ExpertMatMul {
    int64_t first_expert = 0;
    Cut cut = Cut::kNone;
};
// x [T, K, k], ids [T, K], weights [T, K], weight [m, n, k], (bias [m, 1, n]), (base [T, n]) ->
// [T, n]: base + the sum over a token's experts of weight * (x . expert^T + bias), added up in
// float64 in the order of the experts' ids. Output and base are f32 or f64.
struct ExpertSum {
    int64_t first_expert = 0;
    Cut cut = Cut::kNone;      // kColumns: a bias stands on one rank only
    int64_t segment_cols = 0;  // as in MatMul
    bool bias = false, base = false;
};
struct GateRows {};  // x [T, n], gate [T, 1] -> x * sigmoid(gate)
// How a layer's router shares out the rows: logits [T, E], ids [T, K], (load [2, E]) -> [2, E]: how
// many of ids are each expert, and the sums over rows of softmax(logits), added to `load`.
struct RouterLoad {};
// load [2, E] of N rows, `used` ids each -> [1]: E * the sum over experts of (count / N) (sum / N);
// `used` where rows are shared out evenly (Fedus et al. 2021, as transformers computes it).
struct LoadBalance {
    int64_t used = 1;
};
// x [T, m * k], weight [m, n, k] -> [T, m * n]: each head's columns times the matrix of the head.
struct HeadMatMul {};
// x [T, heads * m] -> [T, heads * n]: columns [begin, begin + n) of each head's.
struct PickColumns {
    int64_t heads = 1, begin = 0;
};
// Latent attention, absorbed: q_latent [T, h * rank], q_key [T, h * rope], latent [T, rank],
// key [T, rope], cache [1, rank + rope] -> [T, h * rank]. A position's latent and key are one row
// of the cache, which all heads read: as key both, as value the latent.
struct LatentAttention {
    int64_t heads = 0;
    float scale = 1;
};

// LoRA adapters beside a product (Hu et al. 2021): x [T, k], then a [r, k], b [n, r] of each that
// has this matrix, and y [T, n], which the op adds to: y += (x . a^T) . b^T in the rows of
// sequences that use the adapter; other rows keep their bits. Which rows those are comes with the
// step, and a step in which there are none leaves the op out. y is f32 or f64.
struct Adapt {
    std::vector<int32_t> adapters;  // numbers, from 1, ascending: of each pair
    // As in the MatMul before it. Not 0: sums over columns, of which each rank may have a part, go
    // through float64.
    int64_t segment_cols = 0;
    ValueId A(const std::vector<ValueId>& inputs, size_t i) const { return inputs[1 + 2 * i]; }
    ValueId B(const std::vector<ValueId>& inputs, size_t i) const { return inputs[2 + 2 * i]; }
};

// logits [R, V], targets [R] i32 -> [1]: the sum over rows of -log softmax(logits)[target]. A row
// with a negative target counts nothing. The mean over tokens is the caller's: it scales dloss.
struct SoftmaxCrossEntropy {};

// The same loss of x [R, k], weight [n, k], targets [R] i32 -> [1], without ever holding all logits
// x . weight^T. cut kRows: the vocabulary's rows are shared out over the tensor group, this rank
// has those from first_row on, and the loss is that of all.
struct LinearCrossEntropy {
    Cut cut = Cut::kNone;
    int64_t first_row = 0;
};

// Weights that are shared out over the ranks that see different data (train/ ZeRO; `parts` are the
// elements of each of these ranks, `begin` is where this rank's are):
struct GatherShares {  // share [parts[own]] -> [sum of parts], from all ranks
    std::vector<int64_t> parts;
    int64_t begin = 0;
};
struct ReduceShares {  // x [sum of parts], share [parts[own]] -> share += own part of x's sum
    std::vector<int64_t> parts;
    int64_t begin = 0;
    bool adds = true;  // else share, which may be a part of x, becomes the sum; x is lost
};

// Ops that differentiate() writes. Each computes what its comment says; gradients of weights
// accumulate into a kGradient value (its last input is also its output).
struct MatMulGradInput {};   // dy [T, n], weight [n, k] -> dx [T, k]
struct MatMulGradWeight {};  // dy [T, n], x [T, k], dw [n, k] -> dw += dy^T . x
struct BiasGrad {};          // dy [T, n], db [n] -> db += column sums of dy
struct RmsNormGradInput {    // dy, x, weight -> dx
    float eps = 1e-5f;
    int64_t group = 0;
};
struct RmsNormGradWeight {  // dy, x, dw -> dw +=
    float eps = 1e-5f;
    int64_t group = 0;
};
struct AttentionGrad {  // dout, q, k, v, out, lse -> dq, dk, dv
    Attention forward;
};
struct GluGrad {  // dout, gate, up -> dgate, dup
    Activation activation = Activation::kSilu;
};
struct EmbeddingGrad {  // dy [T, d], tokens [T], dtable [n, d] -> dtable +=
    int64_t first_row = 0;
};
// Route's weights to its logits: dweights [T, K], logits [T, E], ids [T, K] -> dlogits [T, E]. The
// choice itself has no gradient, and so neither has the bias that takes part in it.
struct RouteGrad {
    Route forward;
};
// Of expert_mat_mul with a row of x for each token, and of expert_sum. Rows of experts that other
// ranks hold count as zeros.
struct ExpertMatMulGradInput {  // dy [T, K, n], ids [T, K], weight [m, n, k] -> dx [T, k]
    int64_t first_expert = 0;
};
struct ExpertMatMulGradWeight {  // dy [T, K, n], x [T, k], ids [T, K], dw [m, n, k] -> dw +=
    int64_t first_expert = 0;
};
// dy [T, n], x [T, K, k], ids [T, K], weights [T, K], weight [m, n, k] -> dx [T, K, k], dweights
// [T, K] (the dot product of dy . weight and x)
struct ExpertSumGradInput {
    int64_t first_expert = 0;
};
// dy [T, n], x [T, K, k], ids [T, K], weights [T, K], dw [m, n, k] -> dw +=
struct ExpertSumGradWeight {
    int64_t first_expert = 0;
};
struct GateRowsGrad {};    // dy, x [T, n], gate [T, 1] -> dx [T, n], dgate [T, 1]
struct RouterLoadGrad {};  // dload [2, E], logits [T, E] -> dlogits; counts have no gradient
struct LoadBalanceGrad {   // dloss [1], load [2, E] -> dload [2, E]
    LoadBalance forward;
};
struct SelectRowsGrad {};           // dy [R, n], output rows [R] -> dx [T, n]: zeros elsewhere
struct SoftmaxCrossEntropyGrad {};  // dloss [1], logits [R, V], targets [R] -> dlogits [R, V]
// dloss [1], x [R, k], weight [n, k], targets [R], (dw [n, k]) -> dx [R, k], (dw +=). With cut
// kRows dx is partial: this rank's rows' part.
struct LinearCrossEntropyGrad {
    LinearCrossEntropy forward;
};

using OpAttributes = std::variant<
    Embedding, RmsNorm, SumSquares, MatMul, Rope, Attention, Glu, Add, AddBias, Scale, SoftCap,
    SelectRows, AllReduce, AllGather, GatherRows, ReduceScatterRows, SliceRows, Send, Recv, Zero,
    SliceColumns, PadColumns, Route, ExpertMatMul, ExpertSum, GateRows, RouterLoad, LoadBalance,
    HeadMatMul, PickColumns, LatentAttention, Adapt, SoftmaxCrossEntropy, LinearCrossEntropy,
    GatherShares, ReduceShares, MatMulGradInput, MatMulGradWeight, BiasGrad, RmsNormGradInput,
    RmsNormGradWeight, AttentionGrad, GluGrad, RouteGrad, ExpertMatMulGradInput,
    ExpertMatMulGradWeight, ExpertSumGradInput, ExpertSumGradWeight, GateRowsGrad, RouterLoadGrad,
    LoadBalanceGrad, EmbeddingGrad, SelectRowsGrad, SoftmaxCrossEntropyGrad, LinearCrossEntropyGrad,
    SumOver, AddSquares, AdamUpdate, Adam8bitUpdate, SgdUpdate, AdafactorSums, AdafactorMoments,
    AdafactorSizes, AdafactorUpdate>;

enum class OpKind {  // in the variant's order
    kEmbedding,
    kRmsNorm,
    kSumSquares,
    kMatMul,
    kRope,
    kAttention,
    kGlu,
    kAdd,
    kAddBias,
    kScale,
    kSoftCap,
    kSelectRows,
    kAllReduce,
    kAllGather,
    kGatherRows,
    kReduceScatterRows,
    kSliceRows,
    kSend,
    kRecv,
    kZero,
    kSliceColumns,
    kPadColumns,
    kRoute,
    kExpertMatMul,
    kExpertSum,
    kGateRows,
    kRouterLoad,
    kLoadBalance,
    kHeadMatMul,
    kPickColumns,
    kLatentAttention,
    kAdapt,
    kSoftmaxCrossEntropy,
    kLinearCrossEntropy,
    kGatherShares,
    kReduceShares,
    kMatMulGradInput,
    kMatMulGradWeight,
    kBiasGrad,
    kRmsNormGradInput,
    kRmsNormGradWeight,
    kAttentionGrad,
    kGluGrad,
    kRouteGrad,
    kExpertMatMulGradInput,
    kExpertMatMulGradWeight,
    kExpertSumGradInput,
    kExpertSumGradWeight,
    kGateRowsGrad,
    kRouterLoadGrad,
    kLoadBalanceGrad,
    kEmbeddingGrad,
    kSelectRowsGrad,
    kSoftmaxCrossEntropyGrad,
    kLinearCrossEntropyGrad,
    kSumOver,
    kAddSquares,
    kAdamUpdate,
    kAdam8bitUpdate,
    kSgdUpdate,
    kAdafactorSums,
    kAdafactorMoments,
    kAdafactorSizes,
    kAdafactorUpdate,
};
const char* OpName(OpKind kind);          // "mat_mul"
constexpr bool IsOfUpdate(OpKind kind) {  // of program/update.h
    return kind >= OpKind::kSumOver;
}

struct Op {
    OpAttributes attributes;
    std::vector<ValueId> inputs;  // optional ones that are absent are left out
    std::vector<ValueId> outputs;

    OpKind kind() const { return static_cast<OpKind>(attributes.index()); }
    template <typename T>
    const T& as() const {
        return std::get<T>(attributes);
    }
};

struct Program {
    std::vector<Value> values;
    std::vector<Op> ops;

    ValueId AddValue(Value value);
    // Appends an op whose output is a new activation; returns the output.
    ValueId Emit(OpAttributes attributes, std::vector<ValueId> inputs, std::string name,
                 Shape shape);
    const Value& value(ValueId id) const { return values[static_cast<size_t>(id)]; }
    ValueId Find(std::string_view name) const;  // kNoValue where there is none
    // What holds the value's elements: a view's base, else itself.
    ValueId HomeOf(ValueId id) const {
        return value(id).storage == Storage::kView ? value(id).base : id;
    }
};

// Checks every op's operand count, shapes, dtypes, and that each activation is written before it
// is read. The error names op number, kind and value.
Status CheckShapes(const Program& program);

// One line an op, then one a weight and state value: the golden text of a model. Deterministic.
std::string Print(const Program& program);

// Where each activation lives in one arena, from liveness: a value's bytes are free for others
// after its last use. Offsets are 64-byte aligned; -1 for values that are not activations.
struct ArenaPlan {
    std::vector<int64_t> offsets;  // by ValueId
    int64_t size_bytes = 0;
};
// tokens, outputs: the most rows that a step may have. `keep` values stay alive to the end.
ArenaPlan PlanArena(const Program& program, int64_t tokens, int64_t outputs,
                    const std::vector<ValueId>& keep = {});

// The same of all states of a Program.
int64_t StateBytes(const Program& program, int64_t positions);

}  // namespace weft::program
