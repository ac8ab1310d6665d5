// Lowers inference: weights are packed, activations are float32.
#include <algorithm>
#include <cstring>
#include <deque>
#include <map>
#include <set>
#include <tuple>
#include <utility>

#include "backend/cpu/stream_calls.h"
#include "kernels/dense/lookup.h"
#include "kernels/recurrent.h"
#include "kernels/relu.h"

namespace weft::backend {
namespace {

using program::Op;
using program::OpKind;
using program::Pass;
using program::Trait;
using program::ValueId;

void RunCausalConv(const kernels::Kernels& kernels, const kernels::CausalConvArgs& args, int part,
                   int parts) {
    kernels::RecurrentKernelsFor(kernels.level).causal_conv(args, part, parts);
}
void RunDeltaRule(const kernels::Kernels& kernels, const kernels::DeltaRuleArgs& args, int part,
                  int parts) {
    kernels::RecurrentKernelsFor(kernels.level).delta_rule(args, part, parts);
}

class InferenceLowerer final : StreamCalls {
  public:
    InferenceLowerer(const program::Program& program, const CompileOptions& options,
                     const kernels::Kernels& kernels, Buffers& buffers)
        : StreamCalls(program, options, kernels, buffers),
          rows_(std::max(options.max_tokens, options.max_outputs)) {
        FindSegmented();
    }

    Result<CallLists> Run() {
        buffers_.pairs().clear();
        CallLists lists;
        WEFT_ASSIGN(lists.plain, RunAll());
        adapts_ = std::ranges::any_of(program_.ops,
                                      [](const auto& op) { return op.kind() == OpKind::kAdapt; });
        if (!adapts_) return lists;
        WEFT_ASSIGN(lists.adapted, RunAll());
        return lists;
    }

  private:
    // Finds sums over columns that are no sums over ranks. They are rounded here, after the
    // adapters, just as they are rounded after the all-reduce if there are several ranks.
    void FindSegmented() {
        for (const Op& op : program_.ops) {
            const auto* adapt = op.attributes.If<program::Adapt>();
            if (adapt == nullptr || adapt->segment_cols == 0 || IsWide(op.outputs[0])) continue;
            segmented_.insert(op.outputs[0]);
        }
    }

    // Makes ops after a kept value prepare their shared tables again. A run may begin there, and
    // its inputs may differ from those of earlier ops (Executable::Write).
    void ForgetShared() {
        std::ranges::fill(quantized_value_, program::kNoValue);
        planned_ids_ = program::kNoValue;
        tables_made_.clear();
    }
    bool IsKept(ValueId id) const {
        return std::ranges::find(options_.keep, id) != options_.keep.end();
    }

    Result<std::vector<Call>> RunAll() {
        ForgetShared();
        for (size_t i = 0; i < program_.ops.size(); ++i) {
            op_ = static_cast<int32_t>(i);
            const Op& op = program_.ops[i];
            if (op.kind() != OpKind::kAdapt) TakeUps();
            WEFT_TRY(LowerOp(op));
            if (std::ranges::any_of(op.outputs, [&](ValueId id) { return IsKept(id); })) {
                ForgetShared();
            }
        }
        TakeUps();
        PlaceBarriers(calls_, options_);
        FuseEpilogues(calls_);
        return std::exchange(calls_, {});
    }

    kernels::ActivationFormat FormFor(const Op& op) const {
        return kernels_.activation_format(program_.value(WeightOf(op)).dtype);
    }
    bool Quantizes(const Op& op) const { return FormFor(op) != kernels::ActivationFormat::kNone; }
    // Whether the value has a row for each token and expert.
    bool IsSlots(ValueId id) const { return program_.value(id).shape.rank == 3; }

    using StreamCalls::Lower;
    // Lowers one op. The template at the end refuses training ops; an inference op without an
    // overload does not compile.
    Status LowerOp(const Op& op) {
        return op.attributes.Visit([&](const auto& a) { return Lower(op, a); });
    }

    Status Lower(const Op& op, const program::Embedding& a) {
        CallOf<kernels::EmbeddingArgs> call;
        call.args.weight = buffers_.matrix(op.inputs[1]);
        call.args.first_row = a.first_row;
        call.Reads(call.args.tokens, Of(op.inputs[0]));
        call.Rows(call.args.count);
        call.Writes(call.args.y, Of(op.outputs[0]));
        call.args.y_stride = Cols(op.outputs[0]);
        return Push<&kernels::Kernels::embedding>(call, op.outputs[0]);
    }

    // Makes a call for each group with its own weights.
    Status Lower(const Op& op, const program::RmsNorm& a) {
        const int64_t cols = Cols(op.outputs[0]), step = a.apart ? a.group : cols;
        for (int64_t at = 0; at < cols; at += step) WEFT_TRY(LowerNorm(op, a, at, step));
        return {};
    }
    Status LowerNorm(const Op& op, const program::RmsNorm& a, int64_t begin, int64_t cols) {
        CallOf<dense::RmsNormArgs> call;
        dense::RmsNormArgs& args = call.args;
        In(call, args.x, op.inputs[0], begin);
        if (!a.plain) args.weight = Vector(op.inputs[1]) + begin;
        Out(call, args.y, op.outputs[0], begin);
        args.eps = a.eps;
        args.centered = a.centered;
        args.group = a.group;
        args.cols = cols;
        if (a.whole != 0) {
            call.Reads(args.squares, Of(op.inputs[2]), a.square * kFloat);
            args.squares_stride = Cols(op.inputs[2]);
            args.whole = a.whole;
        }
        call.Rows(args.rows);
        call.call.light = true;
        return Push<&kernels::Kernels::rms_norm>(call, op.outputs[0]);
    }

    // Makes a call for each input.
    Status Lower(const Op& op, const program::SumSquares& a) {
        for (size_t i = 0; i < a.columns.size(); ++i) {
            CallOf<kernels::SumSquaresArgs> call;
            kernels::SumSquaresArgs& args = call.args;
            call.Reads(args.x, Of(op.inputs[i]), a.columns[i].begin * kFloat);
            args.x_stride = Cols(op.inputs[i]);
            args.cols = a.columns[i].count;
            const OperandRegion y = Of(op.outputs[0]);
            const auto column = static_cast<int64_t>(i);
            if (IsWide(op.outputs[0])) {
                call.Writes(args.wide, y, column * kDouble);
            } else {
                call.Writes(args.y, y, column * kFloat);
            }
            args.y_stride = Cols(op.outputs[0]);
            call.Rows(args.rows);
            WEFT_TRY(Push<&kernels::Kernels::sum_squares>(call, op.outputs[0]));
        }
        return {};
    }

    // The left operand of a product: x, or its prepared form.
    template <typename Args>
    void ReadsLeft(CallOf<Args>& call, const Op& op) {
        const ValueId x = op.inputs[0];
        call.args.x_stride = Cols(x);
        if (Quantizes(op)) {
            call.Reads(call.args.quantized, Quantized(x, FormFor(op)));
        } else {
            call.Reads(call.args.x, Of(x));
        }
    }

    Status Lower(const Op& op, const program::MatMul& a) {
        CallOf<kernels::MatMulArgs> call;
        kernels::MatMulArgs& args = call.args;
        const ValueId y = op.outputs[0];
        args.weight = buffers_.matrix(op.inputs[1]);
        ReadsLeft(call, op);
        if (op.inputs.size() == 3) args.bias = Vector(op.inputs[2]);
        args.segment_cols = a.segment_cols;
        args.x_used = used_columns_[op.inputs[0]];
        if (IsWide(y)) {
            call.Writes(args.wide, Of(y));
        } else if (adapts_ && segmented_.contains(y)) {
            call.Writes(args.wide, Adapted(y));  // Adapt rounds it
        } else {
            call.Writes(args.y, Of(y));
        }
        args.y_stride = Cols(y);
        call.Rows(args.rows);
        return Push<&kernels::Kernels::matmul>(call, y);
    }

    OperandRegion Adapted(ValueId y) { return ScratchRows("adapted", Cols(y) * kDouble, rows_); }

    // Makes two calls. The second calls of consecutive ops (Q, K and V) are emitted together, so
    // that the team meets once for all of them.
    Status Lower(const Op& op, const program::Adapt& a) {
        if (!adapts_) return {};
        std::vector<kernels::AdapterPair>& pairs = buffers_.pairs().emplace_back();
        for (size_t i = 0; i < a.adapters.size(); ++i) {
            pairs.push_back({a.adapters[i], buffers_.matrix(a.A(op.inputs, i)),
                             buffers_.matrix(a.B(op.inputs, i))});
        }
        const ValueId y = op.outputs[0];
        const bool wide = a.segment_cols != 0;
        const int64_t stride = AdapterStride(op);
        const auto turn = static_cast<int64_t>(ups_.size());
        const OperandRegion u =
            ScratchRows(fmt::format("adapter {}", turn), stride * (wide ? kDouble : kFloat), rows_);
        CallOf<kernels::AdaptDownArgs> down;
        CallOf<kernels::AdaptUpArgs>& up = ups_.emplace_back(Up{{}, op_, y}).call;
        down.args.pairs = up.args.pairs = pairs;
        down.Binds(down.args.rows, Bound::kAdapted);
        up.Binds(up.args.rows, Bound::kAdapted);
        down.Reads(down.args.x, Of(op.inputs[0]));
        down.args.x_stride = Cols(op.inputs[0]);
        down.args.segment_cols = a.segment_cols;
        down.args.u_stride = up.args.u_stride = stride;
        if (wide) {
            down.Writes(down.args.wide_u, u);
            up.Reads(up.args.wide_u, u);
            up.Changes(up.args.wide, IsWide(y) ? Of(y) : Adapted(y));
        } else {
            down.Writes(down.args.u, u);
            up.Reads(up.args.u, u);
        }
        if (!IsWide(y)) up.Changes(up.args.y, Of(y));
        if (segmented_.contains(y)) {  // all rows are rounded
            up.Rows(up.args.all_rows);
            up.call.whole = true;
        }
        up.args.y_stride = up.args.cols = Cols(y);
        return Push<&kernels::Kernels::adapt_down>(down, y);
    }

    void TakeUps() {
        const int32_t op = op_;
        for (Up& up : ups_) {
            op_ = up.op;
            WEFT_CHECK(Push<&kernels::Kernels::adapt_up>(up.call, up.rows_like).ok());
        }
        op_ = op;
        ups_.clear();
    }

    // The prepared form of x, made once for consecutive MatMuls that read x.
    OperandRegion Quantized(ValueId x, kernels::ActivationFormat as) {
        const int64_t factor = IsSlots(x) ? program_.value(x).shape[1] : 1;
        const int64_t row_bytes = factor * kernels_.quantized_bytes(Cols(x));
        for (int i : {0, 1}) {
            if (quantized_value_[i] == x && activation_format_[i] == as) {
                return QuantizedRows(i, row_bytes);
            }
        }
        next_quantized_ ^= 1;
        quantized_value_[next_quantized_] = x;
        activation_format_[next_quantized_] = as;
        CallOf<kernels::QuantizeActivationsArgs> call;
        const OperandRegion out = QuantizedRows(next_quantized_, row_bytes);
        call.args.as = as;
        call.Reads(call.args.x, Of(x));
        call.args.cols = call.args.x_stride = Cols(x);
        call.Writes(call.args.out, out);
        call.call.light = !IsSlots(x);
        WEFT_CHECK(PushRowWise<&kernels::Kernels::quantize_activations>(call, x).ok());
        return out;
    }

    // Pushes a row-wise call over rows like those of `rows_like`.
    template <auto kKernel, typename Args>
    Status PushRowWise(CallOf<Args>& call, ValueId rows_like) {
        call.Rows(call.args.rows);
        if (IsSlots(rows_like)) {
            OperandRegion chosen = PlanBegin();
            chosen.data += planned_.count * static_cast<int64_t>(sizeof(int32_t));
            chosen.bytes = sizeof(int32_t);
            call.RowsFrom(chosen);
        }
        return Push<kKernel>(call, rows_like);
    }

    Status Lower(const Op& op, const program::Route& a) {
        CallOf<kernels::RouteArgs> call;
        kernels::RouteArgs& args = call.args;
        call.Reads(args.logits, Of(op.inputs[0]));
        if (a.by_token) {
            call.Reads(args.tokens, Of(op.inputs[1]));
            args.table = Vector(op.inputs[2]);
            args.vocab = ShapeOf(op.inputs[2])[0];
        } else {
            if (a.factors) args.factors = Vector(op.inputs.back());
            if (op.inputs.size() == (a.factors ? 3u : 2u)) args.bias = Vector(op.inputs[1]);
        }
        args.experts = Cols(op.inputs[0]);
        args.used = Cols(op.outputs[0]);
        args.score = static_cast<kernels::RouterScore>(a.score);
        args.groups = a.groups;
        args.groups_used = a.groups_used;
        args.group_best = a.group_best;
        args.renormalise = a.renormalise;
        args.scale = a.scale;
        call.Writes(args.ids, Of(op.outputs[0]));
        call.Writes(args.weights, Of(op.outputs[1]));
        if (args.experts > kernels::kMostExperts) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} (route): {} experts; at most {} are supported", op_,
                             args.experts, kernels::kMostExperts);
        }
        call.Rows(args.rows);
        return Push<kernels::Route>(call, op.outputs[0]);
    }

    // Makes the plan of `count` experts (0: those of the op's weight), unless it is the current
    // plan: ops that share ids follow one another.
    Status Plan(const Op& op, int64_t first_expert, int64_t count = 0) {
        const ValueId ids = op.inputs[1];
        if (count == 0) count = program_.value(WeightOf(op)).shape[0];
        const bool at_hand =
            planned_ids_ == ids && planned_.first_expert == first_expert && planned_.count == count;
        if (at_hand) return {};
        if (IsSlots(op.inputs[0])) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} ({}): its input rows are sorted by another choice of "
                             "experts than its own",
                             op_, program::OpName(op.kind()));
        }
        CallOf<kernels::PlanExpertsArgs> call;
        call.args.used = Cols(ids);
        call.args.first_expert = first_expert;
        call.args.count = count;
        planned_ = call.args;
        call.Reads(call.args.ids, Of(ids));
        call.Writes(call.args.plan.begin, PlanBegin());
        call.Writes(call.args.plan.slots, PlanSlots());
        call.Rows(call.args.rows);
        planned_ids_ = ids;
        return Push<kernels::PlanExperts>(call, ids);
    }

    // The experts' matrices, the plan of their rows, and x.
    template <typename Args>
    void ReadsExperts(CallOf<Args>& call, const Op& op) {
        call.args.weight = buffers_.stack(WeightOf(op));
        call.Reads(call.args.plan.begin, PlanBegin());
        call.Reads(call.args.plan.slots, PlanSlots());
        call.args.used = planned_.used;
        ReadsLeft(call, op);
        OwnsGroupScratch(call);
    }
    template <typename Args>
    void OwnsGroupScratch(CallOf<Args>& call) {
        Owns(call, call.args.scratch, call.args.scratch_bytes,
             kernels::GroupScratchBytes(kernels_, call.args.weight.cols));
    }

    Status Lower(const Op& op, const program::WeighRows& a) {
        WEFT_TRY(Plan(op, a.first_expert, a.experts));
        CallOf<kernels::WeighRowsArgs> call;
        kernels::WeighRowsArgs& args = call.args;
        call.Reads(args.x, Of(op.inputs[0]));
        call.Reads(args.weights, Of(op.inputs[2]));
        call.Reads(args.plan.begin, PlanBegin());
        call.Reads(args.plan.slots, PlanSlots());
        args.cols = Cols(op.inputs[0]);
        args.used = planned_.used;
        args.experts = planned_.count;
        call.Writes(args.y, Of(op.outputs[0]));
        call.Writes(args.rest, Of(op.outputs[1]));
        call.Rows(args.rows);
        return Push<kernels::WeighRows>(call, op.outputs[1]);
    }

    Status Lower(const Op& op, const program::ExpertMatMul& a) {
        WEFT_TRY(Plan(op, a.first_expert));
        CallOf<kernels::ExpertMatMulArgs> call;
        ReadsExperts(call, op);
        if (op.inputs.size() == 4) call.args.bias = Vector(op.inputs[3]);
        call.args.by_token = !IsSlots(op.inputs[0]);
        call.Writes(call.args.y, Of(op.outputs[0]));
        call.args.y_stride = Cols(op.outputs[0]);
        return Push<kernels::ExpertMatMul>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::ExpertSum& a) {
        WEFT_TRY(Plan(op, a.first_expert));
        CallOf<kernels::ExpertSumArgs> call;
        kernels::ExpertSumArgs& args = call.args;
        const ValueId y = op.outputs[0];
        ReadsExperts(call, op);
        if (a.bias) args.bias = Vector(op.inputs[4]);
        call.Reads(args.weights, Of(op.inputs[2]));
        args.segment_cols = a.segment_cols;
        args.x_used = used_columns_[op.inputs[0]];
        if (a.base) {
            const ValueId base = op.inputs.back();
            IsWide(base) ? call.Reads(args.wide_base, Of(base)) : call.Reads(args.base, Of(base));
        }
        call.Writes(args.wide, IsWide(y) ? Of(y) : ScratchRows("wide", Cols(y) * kDouble, rows_));
        if (!IsWide(y)) call.Writes(args.y, Of(y));
        call.Rows(args.rows);
        return Push<kernels::ExpertSum>(call, y);
    }

    // The columns of each gate are one row of the kernel.
    Status Lower(const Op& op, const program::GateRows& a) {
        CallOf<kernels::GateRowsArgs> call;
        const int64_t gates = Cols(op.inputs[1]);
        call.Reads(call.args.x, Of(op.inputs[0]));
        call.Reads(call.args.gate, Of(op.inputs[1]));
        call.Writes(call.args.y, Of(op.outputs[0]));
        call.args.cols = Cols(op.outputs[0]) / gates;
        call.args.softplus = a.gate == program::RowGate::kSoftplus;
        call.Rows(call.args.rows, gates);
        return Push<kernels::GateRows>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::PadColumns& a) {
        CallOf<kernels::dense::CopyColumnsArgs> call;
        kernels::dense::CopyColumnsArgs& args = call.args;
        const ValueId x = op.inputs[0], y = op.outputs[0];
        call.Reads(args.x.data, Of(x));
        call.Writes(args.y.data, Of(y));
        args.x.stride = args.cols = Cols(x);
        args.y.stride = args.y_cols = Cols(y);
        args.y_begin = a.begin;
        used_columns_[y] = {a.begin, a.begin + Cols(x)};
        call.call.light = !IsSlots(x);
        return PushRowWise<kernels::dense::CopyColumns>(call, x);
    }

    Status Lower(const Op& op, const program::CausalConv& a) {
        CallOf<kernels::CausalConvArgs> call;
        kernels::CausalConvArgs& args = call.args;
        call.Binds(args.sequences, Bound::kStates);
        call.Reads(args.x, Of(op.inputs[0]));
        args.weight = Vector(op.inputs[1]);
        if (a.biased(op.inputs.size())) args.bias = Vector(op.inputs[2]);
        if (a.gated) {
            call.Reads(args.inner, Of(op.inputs.end()[-3]));
            call.Reads(args.outer, Of(op.inputs.end()[-2]));
        }
        args.cols = Cols(op.outputs[0]);
        args.taps = Cols(op.inputs[1]);
        args.silu = a.silu;
        ChangesSlots(call, op.inputs.back());
        call.Writes(args.y, Of(op.outputs[0]));
        if (args.taps > kernels::kMostTaps) {
            return MakeError(ErrorCode::kUnsupported,
                             "program op {} (causal_conv): {} taps; at most {} are supported", op_,
                             args.taps, kernels::kMostTaps);
        }
        return Push<RunCausalConv>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::DeltaRule& a) {
        const program::Shape& state = ShapeOf(op.inputs[7]);
        const int64_t heads = state[0], each = a.by_channel ? state[1] : 1;
        const size_t rates = a.ssd ? 4 : 5;
        const OperandRegion fade = ScratchRows("fade", heads * each * kFloat, rows_);
        const OperandRegion strength = ScratchRows("strength", heads * kFloat, rows_);
        CallOf<kernels::DeltaGatesArgs> gates;
        gates.Reads(gates.args.decay, Of(op.inputs[3]));
        if (!a.ssd) gates.Reads(gates.args.beta, Of(op.inputs[4]));
        gates.args.a = Vector(op.inputs[rates]);
        gates.args.dt = Vector(op.inputs[rates + 1]);
        gates.args.heads = heads;
        gates.args.each = each;
        gates.args.floor = a.floor;
        gates.Writes(gates.args.fade, fade);
        gates.Writes(gates.args.strength, strength);
        gates.Rows(gates.args.rows);
        WEFT_TRY(Push<kernels::DeltaGates>(gates, op.outputs[0]));
        CallOf<kernels::DeltaRuleArgs> call;
        kernels::DeltaRuleArgs& args = call.args;
        call.Binds(args.sequences, Bound::kStates);
        call.Reads(args.q, Of(op.inputs[0]));
        call.Reads(args.k, Of(op.inputs[1]));
        call.Reads(args.v, Of(op.inputs[2]));
        call.Reads(args.fade, fade);
        call.Reads(args.strength, strength);
        if (a.ssd) args.skip = Vector(op.inputs[6]);
        args.heads = heads;
        args.key_heads = a.key_heads;
        args.key_dim = state[1];
        args.value_dim = state[2];
        args.each = each;
        args.first_head = a.first_head;
        args.first_key_head = a.first_key_head;
        args.group = a.group;
        args.cycle = a.cycle;
        args.query_scale = a.query_scale;
        args.key_scale = a.key_scale;
        ChangesSlots(call, op.inputs[7]);
        OwnsFloats(call, kernels::DeltaScratch(args.key_dim));
        call.Writes(args.y, Of(op.outputs[0]));
        return Push<RunDeltaRule>(call, op.outputs[0]);
    }
    // Rows are quantized per head.
    Status Lower(const Op& op, const program::HeadMatMul&) {
        CallOf<kernels::HeadMatMulArgs> call;
        const kernels::PackedStack& weight = buffers_.stack(op.inputs[1]);
        call.args.weight = weight;
        if (Quantizes(op)) {
            next_quantized_ ^= 1;
            quantized_value_[next_quantized_] = program::kNoValue;
            const OperandRegion quantized = QuantizedRows(
                next_quantized_, weight.count * kernels_.quantized_bytes(weight.cols));
            CallOf<kernels::QuantizeActivationsArgs> quantize;
            quantize.args.as = FormFor(op);
            quantize.Reads(quantize.args.x, Of(op.inputs[0]));
            quantize.args.cols = quantize.args.x_stride = weight.cols;
            quantize.Writes(quantize.args.out, quantized);
            quantize.Rows(quantize.args.rows, weight.count);
            quantize.call.light = true;
            WEFT_TRY(Push<&kernels::Kernels::quantize_activations>(quantize, op.inputs[0]));
            call.Reads(call.args.quantized, quantized);
        } else {
            call.Reads(call.args.x, Of(op.inputs[0]));
        }
        call.Writes(call.args.y, Of(op.outputs[0]));
        OwnsGroupScratch(call);
        call.Rows(call.args.rows);
        return Push<kernels::HeadMatMul>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::Rope& a) {
        const OperandRegion table =
            ScratchRows(TableName(a), a.rotary_dim * kFloat, options_.max_tokens);
        if (std::ranges::find(tables_made_, table.data) == tables_made_.end()) {
            tables_made_.push_back(table.data);
            CallOf<kernels::RopeTableArgs> make;
            make.Reads(make.args.positions, Of(op.inputs[1]));
            make.args.inverse_frequency = a.inverse_frequency.data();
            make.args.rotary_dim = a.rotary_dim;
            make.args.magnitude = a.magnitude;
            make.args.behind = a.behind;
            make.Writes(make.args.out, table);
            make.Rows(make.args.rows);
            WEFT_TRY(Push<&kernels::Kernels::rope_table>(make, op.outputs[0]));
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
        call.Rows(args.rows);
        return Push<&kernels::Kernels::rope>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::Attention& a) {
        if (!a.cached(op.inputs.size())) {
            return MakeError(
                ErrorCode::kUnsupported,
                "program op {} (attention) has no KV cache; only a training program may lack one",
                op_);
        }
        const ValueId k_cache = op.inputs.end()[-2], v_cache = op.inputs.back();
        CallOf<kernels::KvWriteArgs> write;
        write.Binds(write.args.sequences, Bound::kSequences);
        write.Reads(write.args.k, Of(op.inputs[1]));
        write.Reads(write.args.v, Of(op.inputs[2]));
        write.args.k_stride = Cols(op.inputs[1]);
        write.args.v_stride = Cols(op.inputs[2]);
        write.args.k_cache = buffers_.cache(k_cache);
        write.args.v_cache = buffers_.cache(v_cache);
        write.Writes(write.args.k_cache.data, Of(k_cache));
        write.Writes(write.args.v_cache.data, Of(v_cache));
        WEFT_TRY(Push<&kernels::Kernels::kv_write>(write, op.outputs[0]));
        if (a.block != 0) {
            CallOf<kernels::BlockAttentionArgs> blocks;
            FillAttention(blocks, blocks.args.all, op, a);
            FillBlocks(blocks, op, a);
            return Push<RunBlockAttention>(blocks, op.outputs[0]);
        }
        CallOf<kernels::AttentionArgs> call;
        FillAttention(call, call.args, op, a);
        return Push<&kernels::Kernels::attention>(call, op.outputs[0]);
    }
    // args: the arguments of `call`, or a part of them.
    template <typename Args>
    void FillAttention(CallOf<Args>& call, kernels::AttentionArgs& args, const Op& op,
                       const program::Attention& a) {
        const ValueId k_cache = op.inputs.end()[-2], v_cache = op.inputs.back();
        call.Binds(args.sequences, Bound::kSequences);
        call.Reads(args.q, Of(op.inputs[0]));
        args.q_stride = Cols(op.inputs[0]);
        args.out_stride = Cols(op.outputs[0]);
        args.k_cache = buffers_.cache(k_cache);
        args.v_cache = buffers_.cache(v_cache);
        call.Reads(args.k_cache.data, Of(k_cache));
        call.Reads(args.v_cache.data, Of(v_cache));
        args.heads = a.heads;
        args.first_head = a.first_head;
        args.group = a.group;
        args.first_kv_head = a.first_kv_head;
        args.scale = a.scale;
        args.window = a.window;
        args.chunk = a.chunk;
        args.soft_cap = a.soft_cap;
        if (a.sinks) args.sinks = Vector(op.inputs[3]);
        const int64_t floats =
            kernels_.attention_scratch(std::max(a.head_dim, a.ValueDim()), a.group);
        Owns(call, args.scratch, args.scratch_floats, floats * kFloat, kFloat);
        call.Writes(args.out, Of(op.outputs[0]));
    }

    Status Lower(const Op& op, const program::Glu& a) {
        CallOf<dense::GluArgs> call;
        dense::GluArgs& args = call.args;
        In(call, args.gate, op.inputs[0]);
        In(call, args.up, op.inputs[1]);
        Out(call, args.out, op.outputs[0]);
        args.cols = Cols(op.outputs[0]);
        args.activation = a.activation;
        args.limit = a.limit;
        args.limits_gate = a.limits_gate;
        return PushRowWise<&kernels::Kernels::glu>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::ReluSquared&) {
        CallOf<kernels::ReluSquaredArgs> call;
        call.Reads(call.args.x, Of(op.inputs[0]));
        call.Writes(call.args.y, Of(op.outputs[0]));
        call.args.cols = Cols(op.outputs[0]);
        return PushRowWise<kernels::ReluSquared>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::AddBias&) {
        CallOf<dense::AddBiasArgs> call;
        call.args.bias = Vector(op.inputs[1]);
        call.call.light = true;
        return PushMap<&kernels::Kernels::add_bias>(op, call);
    }

    Status Lower(const Op& op, const program::Scale& a) {
        CallOf<dense::ScaleArgs> call;
        call.args.factor = a.factor;
        call.call.light = true;
        return PushMap<&kernels::Kernels::scale>(op, call);
    }

    Status Lower(const Op& op, const program::ScaleByPosition& a) {
        CallOf<dense::ScaleArgs> call;
        call.Reads(call.args.positions, Of(op.inputs[1]));
        call.args.temperature = a.temperature;
        call.call.light = true;
        return PushMap<&kernels::Kernels::scale>(op, call);
    }

    Status Lower(const Op& op, const program::SoftCap& a) {
        CallOf<kernels::SoftCapArgs> call;
        call.args.cap = a.cap;
        call.Reads(call.args.x, Of(op.inputs[0]));
        call.Writes(call.args.y, Of(op.outputs[0]));
        call.args.cols = Cols(op.outputs[0]);
        call.Rows(call.args.rows);
        return Push<&kernels::Kernels::soft_cap>(call, op.outputs[0]);
    }

    // x [rows, cols] -> y of the same shape.
    template <auto kKernel, typename Args>
    Status PushMap(const Op& op, CallOf<Args>& call) {
        In(call, call.args.x, op.inputs[0]);
        Out(call, call.args.y, op.outputs[0]);
        call.args.cols = Cols(op.outputs[0]);
        call.Rows(call.args.rows);
        return Push<kKernel>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::Add&) {
        CallOf<dense::AddArgs> call;
        In(call, call.args.a, op.inputs[0]);
        In(call, call.args.b, op.inputs[1]);
        Out(call, call.args.y, op.outputs[0]);
        call.args.rows = 1;  // all rows as one row, whose elements the parts divide
        call.Rows(call.args.cols, Cols(op.outputs[0]));
        call.call.light = true;
        return Push<&kernels::Kernels::add>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::SelectRows&) {
        CallOf<dense::LookupArgs> call;
        OperandRegion x = Of(op.inputs[0]);  // any rows of it
        x.bytes = std::exchange(x.row_bytes, 0) * options_.max_tokens;
        const int64_t cols = Cols(op.outputs[0]);
        call.Reads(call.args.table.data, x);
        call.Reads(call.args.ids, Of(op.inputs[1]));
        call.Writes(call.args.y.data, Of(op.outputs[0]));
        call.args.cols = call.args.table.stride = call.args.y.stride = cols;
        call.args.table_rows = options_.max_tokens;
        call.Rows(call.args.count);
        return Push<dense::Lookup>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::AllReduce&) {
        // In a step in parts (step_parts.h), another part may have overwritten the prepared form by
        // then.
        std::ranges::fill(quantized_value_, program::kNoValue);
        return PushTransfer(op, CallKind::kAllReduce);
    }
    Status Lower(const Op& op, const program::AllGather&) { return PushTransfer(op); }
    Status Lower(const Op& op, const program::Send&) { return PushTransfer(op); }
    Status Lower(const Op& op, const program::Recv&) { return PushTransfer(op); }

    template <typename T>
    requires(T::kRow.pass != Pass::kInference && T::kRow.pass != Pass::kBoth) Status
        Lower(const Op&, const T&) {
        return Unsupported("is a training op, but the Program is for inference");
    }

    Status PushTransfer(const Op& op, CallKind kind = CallKind::kTransfer) {
        CallOf<TransferArgs> call;
        call.call.kind = kind;
        if (!op.inputs.empty()) {
            const ValueId x = op.inputs[0];
            // (Wide values are summed in place.)
            IsWide(x) ? call.Changes(call.args.in, Of(x)) : call.Reads(call.args.in, Of(x));
            call.args.in_dtype = program_.value(x).dtype;
            call.args.in_cols = Cols(x);
        }
        if (!op.outputs.empty()) {
            call.Writes(call.args.out, Of(op.outputs[0]));
            call.args.out_dtype = program_.value(op.outputs[0]).dtype;
            call.args.out_cols = Cols(op.outputs[0]);
        }
        call.Rows(call.args.rows);
        return Push(call.Take(), op.outputs.empty() ? op.inputs[0] : op.outputs[0]);
    }
    // ---- Scratch ----------------------------------------------------------------------------

    // Two buffers of quantized activations, so that the next one does not wait for readers of the
    // last.
    OperandRegion QuantizedRows(int which, int64_t row_bytes) {
        return ScratchRows(which == 0 ? "prepared" : "prepared 1", row_bytes, rows_);
    }
    // The plan of a mixture of experts (kernels/experts.h).
    OperandRegion PlanBegin() {
        return ScratchBytes("plan", (planned_.count + 1) * static_cast<int64_t>(sizeof(int32_t)));
    }
    OperandRegion PlanSlots() {
        return ScratchBytes("slots", planned_.used * rows_ * static_cast<int64_t>(sizeof(int32_t)));
    }
    // Cosines and sines: ropes of the same angles share a table.
    std::string TableName(const program::Rope& a) {
        const std::tuple angles{a.inverse_frequency, a.magnitude, a.behind};
        const auto known = std::ranges::find(angles_, angles);
        const auto number = known - angles_.begin();
        if (known == angles_.end()) angles_.push_back(angles);
        return fmt::format("table {}", number);
    }
    // Floats per row of an Adapt op's x . a^T.
    int64_t AdapterStride(const Op& op) const {
        int64_t rank = 0;
        const auto& a = op.as<program::Adapt>();
        for (size_t i = 0; i < a.adapters.size(); ++i) {
            rank = std::max(rank, ShapeOf(a.A(op.inputs, i))[0]);
        }
        return (rank + kernels::kStripRows - 1) / kernels::kStripRows * kernels::kStripRows;
    }

    const int64_t rows_;  // maximum rows of a call
    std::set<ValueId> segmented_;
    std::map<ValueId, kernels::Range> used_columns_;  // of padded values; 0, 0 for others
    std::vector<std::tuple<std::vector<float>, float, int64_t>> angles_;
    ValueId quantized_value_[2] = {program::kNoValue, program::kNoValue};
    kernels::ActivationFormat activation_format_[2] = {};
    int next_quantized_ = 0;
    kernels::PlanExpertsArgs planned_;  // the current plan
    ValueId planned_ids_ = program::kNoValue;
    struct Up {
        CallOf<kernels::AdaptUpArgs> call;
        int32_t op;
        ValueId rows_like;
    };
    bool adapts_ = false;  // this list contains the Adapt ops
    std::deque<Up> ups_;   // pending second calls of Adapt ops
    std::vector<std::byte*> tables_made_;
};

}  // namespace

Result<CallLists> LowerInference(const program::Program& program, const CompileOptions& options,
                                 const kernels::Kernels& kernels, Buffers& buffers) {
    return InferenceLowerer(program, options, kernels, buffers).Run();
}

}  // namespace weft::backend
