// Lowers training: values are row-major, in the types of the Program. This file has products, rows,
// attention and transfers; experts and updates have their own files.
#include "backend/cpu/lower_training.h"

#include <algorithm>
#include <cstring>

#include "program/communication.h"
#include "tensor/quant.h"

namespace weft::backend {
namespace {

using program::Op;
using program::ValueId;

// A weight of a block type that is larger than this when widened is widened some rows at a time.
constexpr int64_t kWholeBytes = 32 << 20, kWidenedBytes = 8 << 20, kWidenedUnit = 32;

struct GemmCall {
    dense::GemmArgs gemm;
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
void RunGemm(const kernels::Kernels& kernels, const GemmCall& a, int part, int parts) {
    kernels.gemm(a.gemm, OwnPart(a, part), part, parts);
}

struct CausalCall {
    dense::CausalArgs causal;
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
void RunCausal(const kernels::Kernels& kernels, const CausalCall& a, int part, int parts) {
    kernels.causal(a.causal, OwnPart(a, part), part, parts);
}
struct CausalGradCall {
    dense::CausalGradArgs causal;
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};
void RunCausalGrad(const kernels::Kernels& kernels, const CausalGradCall& a, int part, int parts) {
    kernels.causal_grad(a.causal, OwnPart(a, part), part, parts);
}

// Copies this rank's rows of x, from row `first` on.
struct SliceRowsCall {
    dense::CopyColumnsArgs copy;
    int64_t first = 0;
};
void RunSliceRows(const kernels::Kernels& kernels, const SliceRowsCall& a, int part, int parts) {
    dense::CopyColumnsArgs copy = a.copy;
    copy.x = copy.x.From(a.first, 0);
    dense::CopyColumns(kernels, copy, part, parts);
}

}  // namespace

// ---- The walk -----------------------------------------------------------------------------------

Result<std::vector<Call>> TrainingLowerer::Run() {
    for (size_t i = 0; i < program_.ops.size(); ++i) {
        op_ = static_cast<int32_t>(i);
        // Data derived in one part is not valid in the next, which may belong to another slot.
        const bool begins =
            std::ranges::any_of(chunked_.chunks, [&](const program::ModelChunk& chunk) {
                return i == chunk.begin || i == chunk.backward_begin;
            });
        if (begins) {
            tables_made_.clear();
            planned_ids_ = program::kNoValue;
        }
        const Op& op = program_.ops[i];
        WEFT_TRY(CheckTypes(op));
        WEFT_TRY(op.attributes.Visit([&](const auto& a) { return LowerAny(op, a); }));
    }
    PlaceBarriers(calls_, options_);
    if (options_.beside) PlaceWaits(calls_, options_);
    return std::move(calls_);
}

Status TrainingLowerer::CheckTypes(const Op& op) const {
    const std::optional<size_t> weight = program::WeightInput(op.kind());
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        const program::Value& value = program_.value(op.inputs[i]);
        const bool reads = weight == i || op.kind() == program::OpKind::kEmbedding;
        if (Info(value.dtype).quantized && !reads) {
            return Unsupported(fmt::format("training cannot read {} of type {}", value.name,
                                           Info(value.dtype).name));
        }
    }
    const bool wide = !op.outputs.empty() && TypeOf(op.outputs[0]) == DType::kF64;
    const bool of_pass = static_cast<size_t>(op_) < chunked_.chunks.back().end;
    return wide && of_pass ? Unsupported("a training pass needs float32 sums") : Status();
}

// ---- Rows ---------------------------------------------------------------------------------------

Status TrainingLowerer::Lower(const Op& op, const program::Embedding& a) {
    CallOf<dense::LookupArgs> call;
    dense::LookupArgs& args = call.args;
    const ValueId table = op.inputs[1], y = op.outputs[0];
    if (Info(TypeOf(table)).quantized) {
        if (TypeOf(y) != DType::kF32)
            return Unsupported("rows of a block type need float32 output");
        call.Reads(args.blocks, Of(table));
        args.block_type = TypeOf(table);
    } else {
        In(call, args.table, table);
    }
    args.table_rows = ShapeOf(table)[0];
    args.first_row = a.first_row;
    call.Reads(args.ids, Of(op.inputs[0]));
    args.cols = Cols(y);
    Out(call, args.y, y);
    Rows(call, args.count, y);
    return Push<dense::Lookup>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::EmbeddingGrad& a) {
    CallOf<dense::EmbeddingGradArgs> call;
    dense::EmbeddingGradArgs& args = call.args;
    const ValueId dy = op.inputs[0], table = op.outputs[0];
    In(call, args.dy, dy);
    call.Reads(args.tokens, Of(op.inputs[1]));
    call.Binds(args.order, Bound::kTokenOrder);
    args.cols = Cols(dy);
    args.table_rows = ShapeOf(table)[0];
    args.first_row = a.first_row;
    Change(call, args.table, table);
    Rows(call, args.count, dy);
    Owns(call, args.scratch, args.scratch_bytes, dense::EmbeddingGradScratchBytes(args));
    return Push<dense::EmbeddingGrad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::SelectRows&) {
    CallOf<dense::LookupArgs> call;
    dense::LookupArgs& args = call.args;
    In(call, args.table, op.inputs[0]);
    call.Reads(args.ids, Of(op.inputs[1]));
    args.cols = Cols(op.outputs[0]);
    Out(call, args.y, op.outputs[0]);
    Rows(call, args.count, op.outputs[0]);
    MoreRows(call, args.table_rows, op.inputs[0]);
    return Push<dense::Lookup>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::SelectRowsGrad&) {
    CallOf<dense::ScatterRowsArgs> call;
    dense::ScatterRowsArgs& args = call.args;
    In(call, args.x, op.inputs[0]);
    call.Reads(args.ids, Of(op.inputs[1]));
    args.cols = Cols(op.outputs[0]);
    Out(call, args.y, op.outputs[0]);
    Rows(call, args.rows, op.outputs[0]);
    MoreRows(call, args.count, op.inputs[0]);
    return Push<dense::ScatterRows>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::RmsNorm& a) {
    if (a.whole != 0) return Unsupported("norms over rows that ranks share out have no gradient");
    CallOf<dense::RmsNormArgs> call;
    dense::RmsNormArgs& args = call.args;
    In(call, args.x, op.inputs[0]);
    if (!a.plain) call.Reads(args.weight, Of(op.inputs[1]));
    args.eps = a.eps;
    args.centered = a.centered;
    args.group = a.group;
    args.cols = Cols(op.outputs[0]);
    Out(call, args.y, op.outputs[0]);
    Rows(call, args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::rms_norm>(call);
}

CallOf<dense::RmsNormGradArgs> TrainingLowerer::NormGrad(const Op& op, float eps, int64_t group) {
    CallOf<dense::RmsNormGradArgs> call;
    In(call, call.args.dy, op.inputs[0]);
    In(call, call.args.x, op.inputs[1]);
    call.args.eps = eps;
    call.args.group = group;
    call.args.cols = Cols(op.inputs[1]);
    return call;
}

Status TrainingLowerer::Lower(const Op& op, const program::RmsNormGradInput& a) {
    CallOf<dense::RmsNormGradArgs> call = NormGrad(op, a.eps, a.group);
    call.Reads(call.args.weight, Of(op.inputs[2]));
    Out(call, call.args.dx, op.outputs[0]);
    Rows(call, call.args.rows, op.inputs[1]);
    return Push<&kernels::Kernels::norm_grad_input>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::RmsNormGradWeight& a) {
    CallOf<dense::RmsNormGradArgs> call = NormGrad(op, a.eps, a.group);
    call.Changes(call.args.dw, Of(op.outputs[0]));
    Rows(call, call.args.rows, op.inputs[1]);
    return Push<&kernels::Kernels::norm_grad_weight>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::Rope& a) {
    if (a.behind != 0) return Unsupported("training supports no rotation behind the position");
    const OperandRegion table =
        ScratchBytes(TableName(a), a.rotary_dim * options_.max_tokens * kFloat);
    if (std::ranges::find(tables_made_, table.data) == tables_made_.end()) {
        tables_made_.push_back(table.data);
        CallOf<kernels::RopeTableArgs> make;
        make.Reads(make.args.positions, Of(op.inputs[1]));
        make.args.inverse_frequency = a.inverse_frequency.data();
        make.args.rotary_dim = a.rotary_dim;
        make.args.magnitude = a.magnitude;
        make.Writes(make.args.out, table);
        Rows(make, make.args.rows, op.inputs[1]);
        WEFT_TRY(Push<&kernels::Kernels::rope_table>(make));
    }
    CallOf<dense::RopeArgs> call;
    dense::RopeArgs& args = call.args;
    In(call, args.x, op.inputs[0]);
    call.Reads(args.cos_sin, table);
    args.sign = a.sign;
    args.neighbours = a.neighbours;
    args.last = a.last;
    args.head_dim = a.head_dim;
    args.rotary_dim = a.rotary_dim;
    args.heads = Cols(op.outputs[0]) / a.head_dim;
    Out(call, args.y, op.outputs[0]);
    Rows(call, args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::rope>(call);
}

// Cosines and sines: ropes of the same angles share a table.
std::string TrainingLowerer::TableName(const program::Rope& a) {
    const std::pair angles{a.inverse_frequency, a.magnitude};
    const auto known = std::ranges::find(angles_, angles);
    const auto number = known - angles_.begin();
    if (known == angles_.end()) angles_.push_back(angles);
    return fmt::format("table {}", number);
}

Status TrainingLowerer::Lower(const Op& op, const program::Glu& a) {
    if (a.limit != 0) return Unsupported("gated units with a clamp have no backward op yet");
    CallOf<dense::GluArgs> call;
    In(call, call.args.gate, op.inputs[0]);
    In(call, call.args.up, op.inputs[1]);
    call.args.cols = Cols(op.outputs[0]);
    call.args.activation = a.activation;
    Out(call, call.args.out, op.outputs[0]);
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::glu>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::GluGrad& a) {
    CallOf<dense::GluGradArgs> call;
    In(call, call.args.dout, op.inputs[0]);
    In(call, call.args.gate, op.inputs[1]);
    In(call, call.args.up, op.inputs[2]);
    call.args.cols = Cols(op.inputs[0]);
    call.args.activation = a.activation;
    Out(call, call.args.dgate, op.outputs[0]);
    Out(call, call.args.dup, op.outputs[1]);
    Rows(call, call.args.rows, op.inputs[0]);
    return Push<&kernels::Kernels::glu_grad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::Add&) {
    CallOf<dense::AddArgs> call;
    In(call, call.args.a, op.inputs[0]);
    In(call, call.args.b, op.inputs[1]);
    call.args.cols = Cols(op.outputs[0]);
    Out(call, call.args.y, op.outputs[0]);
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::add>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::AddBias&) {
    CallOf<dense::AddBiasArgs> call;
    In(call, call.args.x, op.inputs[0]);
    call.Reads(call.args.bias, Of(op.inputs[1]));
    call.args.cols = Cols(op.outputs[0]);
    Out(call, call.args.y, op.outputs[0]);
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::add_bias>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::BiasGrad&) {
    CallOf<dense::BiasGradArgs> call;
    In(call, call.args.dy, op.inputs[0]);
    call.args.cols = Cols(op.inputs[0]);
    call.Changes(call.args.db, Of(op.outputs[0]));
    Rows(call, call.args.rows, op.inputs[0]);
    return Push<&kernels::Kernels::bias_grad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::Scale& a) {
    CallOf<dense::ScaleArgs> call;
    In(call, call.args.x, op.inputs[0]);
    call.args.cols = Cols(op.outputs[0]);
    call.args.factor = a.factor;
    Out(call, call.args.y, op.outputs[0]);
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::scale>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::ScaleByPosition& a) {
    CallOf<dense::ScaleArgs> call;
    In(call, call.args.x, op.inputs[0]);
    call.Reads(call.args.positions, Of(op.inputs[1]));
    call.args.cols = Cols(op.outputs[0]);
    call.args.temperature = a.temperature;
    Out(call, call.args.y, op.outputs[0]);
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::scale>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::SoftCap& a) {
    CallOf<kernels::SoftCapArgs> call;
    WEFT_TRY(NeedFloats(op.inputs[0], op.outputs[0]));
    call.Reads(call.args.x, Of(op.inputs[0]));
    call.Writes(call.args.y, Of(op.outputs[0]));
    call.args.cols = Cols(op.outputs[0]);
    call.args.cap = a.cap;
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::soft_cap>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::SoftCapGrad& a) {
    CallOf<dense::SoftCapGradArgs> call;
    WEFT_TRY(NeedFloats(op.inputs[0], op.outputs[0]));
    call.Reads(call.args.dy, Of(op.inputs[0]));
    call.Reads(call.args.x, Of(op.inputs[1]));
    call.Writes(call.args.dx, Of(op.outputs[0]));
    call.args.cols = Cols(op.outputs[0]);
    call.args.cap = a.cap;
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::soft_cap_grad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::Zero&) {
    CallOf<dense::FillArgs> call;
    const OperandRegion y = Of(op.outputs[0]);
    call.Writes(call.args.y, y);
    call.args.bytes = y.bytes;
    return Push<dense::Fill>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::SliceRows&) {
    CallOf<SliceRowsCall> call;
    call.args.copy = {};
    call.Binds(call.args.first, Bound::kFirstOwnRow);
    CopyColumns(call, call.args.copy, op, 0, 0);
    return Push<RunSliceRows>(call);
}
Status TrainingLowerer::Lower(const Op& op, const program::SliceColumns& a) {
    CallOf<dense::CopyColumnsArgs> call;
    CopyColumns(call, call.args, op, a.begin, 0);
    return Push<dense::CopyColumns>(call);
}
Status TrainingLowerer::Lower(const Op& op, const program::PadColumns& a) {
    CallOf<dense::CopyColumnsArgs> call;
    CopyColumns(call, call.args, op, 0, a.begin);
    return Push<dense::CopyColumns>(call);
}
template <typename Args>
void TrainingLowerer::CopyColumns(CallOf<Args>& call, dense::CopyColumnsArgs& args, const Op& op,
                                  int64_t x_begin, int64_t y_begin) {
    In(call, args.x, op.inputs[0]);
    args.x_begin = x_begin;
    args.y_begin = y_begin;
    args.cols = std::min(Cols(op.inputs[0]), Cols(op.outputs[0]));
    args.y_cols = Cols(op.outputs[0]);
    Out(call, args.y, op.outputs[0]);
    Rows(call, args.rows, op.outputs[0]);
}

// ---- Products -----------------------------------------------------------------------------------

Status TrainingLowerer::Lower(const Op& op, const program::MatMul&) {  // y = x . W^T
    if (op.inputs.size() == 3) return Unsupported("a bias is an op of its own (train/graph.cc)");
    const ValueId x = op.inputs[0], weight = op.inputs[1], y = op.outputs[0];
    const int64_t rows = ShapeOf(weight)[0], cols = Cols(weight), block = BlockRows(weight);
    for (int64_t at = 0; at < rows; at += block) {
        const int64_t count = std::min(block, rows - at);
        WEFT_ASSIGN(const Plain w, Widened(weight, at, count));
        CallOf<GemmCall> call;
        dense::GemmArgs& g = call.args.gemm;
        call.Reads(g.a.data, Of(x));
        SetOperand(g.a, {TypeOf(x), cols}, false);
        call.Reads(g.b.data, w.region);
        SetOperand(g.b, {w.dtype, cols}, true);
        call.Writes(g.c.data, Of(y), RowBytes(TypeOf(y), at));
        g.c.stride = rows;
        g.c.type = ElementOf(TypeOf(y));
        g.n = count;
        g.k = cols;
        WEFT_TRY(PushGemm(call, g.m, x));
    }
    return {};
}

// dx = dy . W. With several blocks of W the sum stays float32 until it is complete.
Status TrainingLowerer::Lower(const Op& op, const program::MatMulGradInput&) {
    const ValueId dy = op.inputs[0], weight = op.inputs[1], dx = op.outputs[0];
    const int64_t rows = ShapeOf(weight)[0], cols = Cols(weight), block = BlockRows(weight);
    const bool sums = block < rows && TypeOf(dx) != DType::kF32;
    const int64_t most = MostRows(dx);
    const OperandRegion sum = sums ? ScratchBytes("sums", most * cols * kFloat) : Of(dx);
    const DType sum_type = sums ? DType::kF32 : TypeOf(dx);
    for (int64_t at = 0; at < rows; at += block) {
        const int64_t count = std::min(block, rows - at);
        WEFT_ASSIGN(const Plain w, Widened(weight, at, count));
        CallOf<GemmCall> call;
        dense::GemmArgs& g = call.args.gemm;
        call.Reads(g.a.data, Of(dy), RowBytes(TypeOf(dy), at));
        SetOperand(g.a, {TypeOf(dy), rows}, false);
        call.Reads(g.b.data, w.region);
        SetOperand(g.b, {w.dtype, cols}, false);
        call.Writes(g.c.data, sum);
        g.c.stride = cols;
        g.c.type = ElementOf(sum_type);
        g.n = cols;
        g.k = count;
        g.accumulate = at > 0;
        WEFT_TRY(PushGemm(call, g.m, dx));
    }
    if (!sums) return {};
    CallOf<dense::ScaleArgs> call;
    call.Reads(call.args.x.data, sum);
    call.args.x.stride = call.args.cols = cols;
    Out(call, call.args.y, dx);
    Rows(call, call.args.rows, dx);
    return Push<&kernels::Kernels::scale>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::MatMulGradWeight&) {  // dW += dy^T . x
    const ValueId dy = op.inputs[0], x = op.inputs[1], dw = op.outputs[0];
    CallOf<GemmCall> call;
    dense::GemmArgs& g = call.args.gemm;
    call.Reads(g.a.data, Of(dy));
    SetOperand(g.a, {TypeOf(dy), Cols(dy)}, true);
    call.Reads(g.b.data, Of(x));
    SetOperand(g.b, {TypeOf(x), Cols(x)}, false);
    Change(call, g.c, dw);
    g.m = Cols(dy);
    g.n = Cols(x);
    g.accumulate = true;
    return PushGemm(call, g.k, x);
}

// rows: the dimension that equals the rows of rows_like.
template <typename Gemm>
Status TrainingLowerer::PushGemm(CallOf<Gemm>& call, int64_t& rows, ValueId rows_like) {
    call.args.gemm.compute = compute();
    rows = MostRows(rows_like);
    Owns(call, call.args.scratch, call.args.scratch_bytes,
         kernels_.gemm_scratch_bytes(call.args.gemm));
    Rows(call, rows, rows_like);
    return Push<RunGemm>(call);
}

// turned: reads the row-major operand by columns.
void TrainingLowerer::SetOperand(dense::GemmOperand& operand, const Plain& x, bool turned) {
    operand.row = turned ? 1 : x.cols;
    operand.col = turned ? x.cols : 1;
    operand.type = ElementOf(x.dtype);
}

// Number of rows of a weight that are multiplied at a time.
int64_t TrainingLowerer::BlockRows(ValueId weight) const {
    const int64_t rows = ShapeOf(weight)[0], row_bytes = RowBytes(options_.compute, Cols(weight));
    if (!Info(TypeOf(weight)).quantized || rows * row_bytes <= kWholeBytes) return rows;
    return std::min(std::max(kWidenedBytes / row_bytes / kWidenedUnit, int64_t{1}) * kWidenedUnit,
                    rows);
}

// Rows of a weight as products read them: rows of a block type are widened to scratch memory. For
// experts, `count` is the rows of one matrix, and matrices that no row of the step chose are
// skipped.
Result<TrainingLowerer::Plain> TrainingLowerer::Widened(ValueId weight, int64_t begin,
                                                        int64_t count, const Experts* experts) {
    const DType dtype = TypeOf(weight);
    const int64_t cols = Cols(weight);
    if (!Info(dtype).quantized) return Plain{dtype, cols, Of(weight)};
    const Plain wide{options_.compute, cols,
                     ScratchBytes("widened", RowBytes(options_.compute, count * cols))};
    CallOf<dense::DecodeArgs> call;
    dense::DecodeArgs& args = call.args;
    args.dtype = dtype;
    call.Reads(args.x, Of(weight), begin * RowBytes(dtype, cols));
    args.matrix_rows = count;
    args.cols = cols;
    if (experts != nullptr) {
        call.Reads(args.begin, PlanBegin(*experts),
                   begin / count * static_cast<int64_t>(sizeof(int32_t)));
    }
    call.Writes(args.y.data, wide.region);
    args.y.stride = cols;
    args.y.type = ElementOf(wide.dtype);
    Owns(call, args.scratch, args.scratch_bytes, dense::DecodeScratchBytes(args));
    WEFT_TRY(Push<dense::Decode>(call));
    return wide;
}

// ---- Attention ----------------------------------------------------------------------------------

void TrainingLowerer::SetHeads(dense::CausalArgs& args, const program::Attention& a) const {
    args.heads = a.heads;
    args.kv_heads = a.kv_heads;
    args.head_dim = a.head_dim;
    args.first_head = a.first_head;
    args.group = a.group;
    args.first_kv_head = a.first_kv_head;
    args.scale = a.scale;
    args.window = a.window;
    args.soft_cap = a.soft_cap;
    args.compute = compute();
}

Status TrainingLowerer::CheckAttention(const Op& op, const program::Attention& a,
                                       size_t first) const {
    if (a.cached(op.inputs.size() - first)) return Unsupported("training has no KV cache");
    return a.sinks ? Unsupported("no gradient of sinks is known") : Status();
}

// Pretends that one sequence has all rows, the longest possible.
void TrainingLowerer::PretendSequence(dense::CausalArgs& args) {
    whole_step_ = {0, static_cast<int32_t>(options_.max_tokens), 0, {}};
    args.sequences = {&whole_step_, 1};
}

Status TrainingLowerer::Lower(const Op& op, const program::Attention& a) {
    WEFT_TRY(CheckAttention(op, a, 0));
    CallOf<CausalCall> call;
    dense::CausalArgs& args = call.args.causal;
    In(call, args.q, op.inputs[0]);
    In(call, args.k, op.inputs[1]);
    In(call, args.v, op.inputs[2]);
    SetHeads(args, a);
    Out(call, args.out, op.outputs[0]);
    // (If nothing before it is trained, no gradient passes through it, and it has no lse.)
    if (op.outputs.size() == 2) {
        call.Writes(args.lse, Of(op.outputs[1]));
        MoreRows(call, args.lse_stride, op.outputs[0]);
    }
    PretendSequence(args);
    Owns(call, call.args.scratch, call.args.scratch_bytes, kernels_.causal_scratch_bytes(args));
    call.Binds(args.sequences, Bound::kSequences);
    return Push<RunCausal>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::AttentionGrad& a) {
    WEFT_TRY(CheckAttention(op, a.forward, op.inputs.size() - 3));
    CallOf<CausalGradCall> call;
    dense::CausalGradArgs& args = call.args.causal;
    In(call, args.dout, op.inputs[0]);
    In(call, args.forward.q, op.inputs[1]);
    In(call, args.forward.k, op.inputs[2]);
    In(call, args.forward.v, op.inputs[3]);
    SetHeads(args.forward, a.forward);
    Reads(call, args.forward.out, op.inputs[4]);
    call.Reads(args.forward.lse, Of(op.inputs[5]));
    MoreRows(call, args.forward.lse_stride, op.inputs[0]);
    Out(call, args.dq, op.outputs[0]);
    Out(call, args.dk, op.outputs[1]);
    Out(call, args.dv, op.outputs[2]);
    PretendSequence(args.forward);
    Owns(call, call.args.scratch, call.args.scratch_bytes,
         kernels_.causal_grad_scratch_bytes(args));
    call.Binds(args.forward.sequences, Bound::kSequences);
    return Push<RunCausalGrad>(call);
}

// ---- Losses -------------------------------------------------------------------------------------

Status TrainingLowerer::Lower(const Op& op, const program::SoftmaxStats& a) {
    CallOf<dense::SoftmaxStatsArgs> call;
    call.Reads(call.args.logits, Of(op.inputs[0]));
    call.Reads(call.args.targets, Of(op.inputs[1]));
    call.args.cols = Cols(op.inputs[0]);
    call.args.first = a.first_row;
    call.Writes(call.args.stats, Of(op.outputs[0]));
    Rows(call, call.args.rows, op.inputs[0]);
    return Push<&kernels::Kernels::softmax_stats>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::CrossEntropy&) {
    CallOf<dense::CrossEntropyArgs> call;
    call.Reads(call.args.stats, Of(op.inputs[0]));
    call.Reads(call.args.targets, Of(op.inputs[1]));
    call.args.ranks = Cols(op.inputs[0]) / dense::kSoftmaxStats;
    call.Writes(call.args.losses, Of(op.outputs[0]));
    Rows(call, call.args.rows, op.inputs[0]);
    return Push<dense::CrossEntropy>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::CrossEntropyGrad& a) {
    CallOf<dense::CrossEntropyGradArgs> call;
    call.Reads(call.args.dloss, Of(op.inputs[0]));
    call.Reads(call.args.stats, Of(op.inputs[1]));
    call.Reads(call.args.targets, Of(op.inputs[2]));
    call.Changes(call.args.logits, Of(op.outputs[0]));
    call.args.ranks = Cols(op.inputs[1]) / dense::kSoftmaxStats;
    call.args.cols = Cols(op.outputs[0]);
    call.args.first = a.first_row;
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<&kernels::Kernels::cross_entropy_grad>(call);
}

// ---- Transfers ----------------------------------------------------------------------------------

Status TrainingLowerer::PushTransfer(const Op& op) {
    CallOf<TransferArgs> call;
    TransferArgs& args = call.args;
    const program::Operands operands = program::OperandsOf(op).value();
    call.call.kind =
        op.kind() == program::OpKind::kAllReduce ? CallKind::kAllReduce : CallKind::kTransfer;
    call.call.beside = options_.beside && static_cast<size_t>(op_) < chunked_.chunks.back().end &&
                       program::MayOverlap(op.kind());
    if (!op.inputs.empty()) {
        const ValueId x = op.inputs[0];
        const bool spent =
            operands.inputs[0]->spent || operands.inputs[0]->access == program::Access::kAdd;
        spent ? call.Changes(args.in, Of(x)) : call.Reads(args.in, Of(x));
        args.in_dtype = TypeOf(x);
        args.in_cols = Cols(x);
        Rows(call, args.rows, x);
    }
    if (!op.outputs.empty()) {
        const ValueId y = op.outputs[0];
        const bool adds = operands.outputs[0]->access == program::Access::kAdd;
        adds ? call.Changes(args.out, Of(y)) : call.Writes(args.out, Of(y));
        args.out_dtype = TypeOf(y);
        args.out_cols = Cols(y);
        MoreRows(call, args.out_rows, y);
        if (op.inputs.empty()) Rows(call, args.rows, y);
    }
    Add(call.Take());
    return {};
}

Result<std::vector<Call>> LowerTraining(const program::ChunkedProgram& chunked,
                                        const CompileOptions& options,
                                        const kernels::Kernels& kernels, Buffers& buffers) {
    return TrainingLowerer(chunked, options, kernels, buffers).Run();
}

}  // namespace weft::backend
