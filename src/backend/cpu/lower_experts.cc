// Lowers mixtures of experts in training. Rows of a value [T, K, n] are sorted by expert, so an
// expert's rows form one matrix. Rows after those of this rank's experts are zeros.
#include "backend/cpu/lower_training.h"

namespace weft::backend {

using program::Op;
using program::ValueId;

namespace {

constexpr auto kInt = static_cast<int64_t>(sizeof(int32_t));

}  // namespace

// ---- The plan -----------------------------------------------------------------------------------

TrainingLowerer::Experts TrainingLowerer::ExpertsOf(ValueId ids, ValueId stack,
                                                    int64_t first) const {
    const program::Shape& shape = ShapeOf(stack);
    return {ids, stack, first, shape[0], Cols(ids), shape[1], shape[2]};
}

// Plans all slots in the order of their experts, once for the ops of a layer.
Status TrainingLowerer::Plan(const Experts& experts) {
    if (planned_ids_ == experts.ids) return {};
    planned_ids_ = experts.ids;
    CallOf<kernels::PlanExpertsArgs> call;
    kernels::PlanExpertsArgs& args = call.args;
    const int64_t slots = MostRows(experts.ids) * experts.used;
    // (The first planning op of a layer names the ids.)
    call.Reads(args.ids, Of(experts.ids));
    args.used = experts.used;
    args.first_expert = experts.first;
    args.count = experts.count;
    call.Writes(args.plan.begin, PlanBegin(experts));
    call.Writes(args.plan.slots, ScratchBytes("slots", slots * kInt));
    call.Writes(args.plan.place, ScratchBytes("places", slots * kInt));
    Rows(call, args.rows, experts.ids);
    return Push<kernels::PlanExperts>(call);
}

OperandRegion TrainingLowerer::PlanBegin(const Experts& experts) {
    return ScratchBytes("plan", (experts.count + 1) * kInt);
}

template <typename Args>
void TrainingLowerer::ReadsPlan(CallOf<Args>& call, kernels::ExpertPlan& plan,
                                const Experts& experts) {
    const int64_t slots = MostRows(experts.ids) * experts.used;
    call.Reads(plan.begin, PlanBegin(experts));
    call.Reads(plan.slots, ScratchBytes("slots", slots * kInt));
    call.Reads(plan.place, ScratchBytes("places", slots * kInt));
}

TrainingLowerer::Plain TrainingLowerer::ScratchSlots(const std::string& name,
                                                     const Experts& experts, DType dtype,
                                                     int64_t cols) {
    const int64_t slots = MostRows(experts.ids) * experts.used;
    return {dtype, cols, ScratchBytes(name, RowBytes(dtype, slots * cols))};
}

// ---- Calls --------------------------------------------------------------------------------------

// Row i is the row of x for slot i's token, times the slot's weight if there are weights.
Status TrainingLowerer::PushGather(const Experts& experts, ValueId x, const Plain& to,
                                   ValueId weights) {
    CallOf<dense::GatherRowsArgs> call;
    dense::GatherRowsArgs& args = call.args;
    ReadsPlan(call, args.plan, experts);
    args.experts = experts.count;
    args.used = experts.used;
    In(call, args.x, x);
    if (weights != program::kNoValue) call.Reads(args.weights, Of(weights));
    args.cols = to.cols;
    call.Writes(args.y.data, to.region);
    args.y.stride = to.cols;
    args.y.type = ElementOf(to.dtype);
    return Push<dense::GatherRows>(call);
}

// A stack of a block type is widened and multiplied expert by expert.
Status TrainingLowerer::PushExpertGemm(const Experts& experts, dense::ExpertProduct product,
                                       const Plain& a, const Plain& b, const Plain& c) {
    const bool packed = Info(TypeOf(experts.stack)).quantized;
    const int64_t step = packed ? 1 : experts.count;
    for (int64_t first = 0; first < experts.count; first += step) {
        CallOf<dense::ExpertGemmArgs> call;
        dense::ExpertGemmArgs& args = call.args;
        args.product = product;
        args.compute = compute();
        args.first = first;
        args.last = first + step;
        args.n = experts.n;
        args.k = experts.k;
        const auto set = [](auto& matrix, const Plain& x) {
            matrix.stride = x.cols;
            matrix.type = ElementOf(x.dtype);
        };
        call.Reads(args.begin, PlanBegin(experts));
        call.Reads(args.a.data, a.region);
        set(args.a, a);
        if (product == dense::ExpertProduct::kTN) {
            call.Reads(args.b.data, b.region);
            set(args.b, b);
            call.Changes(args.dw.data, c.region);
            set(args.dw, c);
        } else {
            WEFT_ASSIGN(const Plain w,
                        packed ? Widened(experts.stack, first * experts.n, experts.n, &experts)
                               : Result<Plain>(Slots(experts.stack)));
            call.Reads(args.w.data, w.region);
            set(args.w, w);
            call.Writes(args.c.data, c.region);
            set(args.c, c);
        }
        const int64_t slots = MostRows(experts.ids) * experts.used;
        Owns(call, args.scratch, args.scratch_bytes,
             dense::ExpertGemmScratchBytes(kernels_, args, slots));
        WEFT_TRY(Push<dense::ExpertGemm>(call));
    }
    return {};
}

Status TrainingLowerer::PushClearRest(const Experts& experts, ValueId y) {
    CallOf<dense::ClearRestArgs> call;
    ReadsPlan(call, call.args.plan, experts);
    call.args.experts = experts.count;
    call.args.used = experts.used;
    call.args.cols = Cols(y);
    Out(call, call.args.y, y);
    Rows(call, call.args.tokens, experts.ids);
    return Push<dense::ClearRest>(call);
}

Status TrainingLowerer::PushCombine(const Experts& experts, const Plain& sums, ValueId weights,
                                    ValueId base, ValueId y) {
    CallOf<dense::CombineArgs> call;
    dense::CombineArgs& args = call.args;
    ReadsPlan(call, args.plan, experts);
    args.used = experts.used;
    call.Reads(args.x, sums.region);
    if (weights != program::kNoValue) call.Reads(args.weights, Of(weights));
    if (base != program::kNoValue) In(call, args.base, base);
    args.cols = Cols(y);
    Out(call, args.y, y);
    Rows(call, args.tokens, experts.ids);
    Owns(call, args.scratch, args.scratch_bytes, dense::CombineScratchBytes(args));
    return Push<dense::Combine>(call);
}

// ---- Ops ----------------------------------------------------------------------------------------

Status TrainingLowerer::Lower(const Op& op, const program::ExpertMatMul& a) {
    if (op.inputs.size() == 4) return Unsupported("experts' biases have no gradient");
    const ValueId x = op.inputs[0], y = op.outputs[0];
    const Experts experts = ExpertsOf(op.inputs[1], op.inputs[2], a.first_expert);
    WEFT_TRY(Plan(experts));
    const Plain gathered = ScratchSlots("gathered", experts, TypeOf(x), experts.k);
    WEFT_TRY(PushGather(experts, x, gathered, program::kNoValue));
    WEFT_TRY(PushExpertGemm(experts, dense::ExpertProduct::kNT, gathered, {}, Slots(y)));
    return PushClearRest(experts, y);
}

Status TrainingLowerer::Lower(const Op& op, const program::ExpertSum& a) {
    if (a.bias) return Unsupported("experts' biases have no gradient");
    const Experts experts = ExpertsOf(op.inputs[1], op.inputs[3], a.first_expert);
    WEFT_TRY(Plan(experts));
    const Plain sums = ScratchSlots("sums", experts, DType::kF32, experts.n);
    WEFT_TRY(PushExpertGemm(experts, dense::ExpertProduct::kNT, Slots(op.inputs[0]), {}, sums));
    return PushCombine(experts, sums, op.inputs[2], a.base ? op.inputs.back() : program::kNoValue,
                       op.outputs[0]);
}

Status TrainingLowerer::Lower(const Op& op, const program::ExpertMatMulGradInput& a) {
    const Experts experts = ExpertsOf(op.inputs[1], op.inputs[2], a.first_expert);
    WEFT_TRY(Plan(experts));
    const Plain sums = ScratchSlots("sums", experts, DType::kF32, experts.k);
    WEFT_TRY(PushExpertGemm(experts, dense::ExpertProduct::kNN, Slots(op.inputs[0]), {}, sums));
    return PushCombine(experts, sums, program::kNoValue, program::kNoValue, op.outputs[0]);
}

Status TrainingLowerer::Lower(const Op& op, const program::ExpertMatMulGradWeight& a) {
    const ValueId dy = op.inputs[0], x = op.inputs[1], dw = op.outputs[0];
    const Experts experts = ExpertsOf(op.inputs[2], dw, a.first_expert);
    WEFT_TRY(Plan(experts));
    const Plain gathered = ScratchSlots("gathered", experts, TypeOf(x), experts.k);
    WEFT_TRY(PushGather(experts, x, gathered, program::kNoValue));
    return PushExpertGemm(experts, dense::ExpertProduct::kTN, Slots(dy), gathered, Slots(dw));
}

Status TrainingLowerer::Lower(const Op& op, const program::ExpertSumGradInput& a) {
    const ValueId dy = op.inputs[0], x = op.inputs[1], dx = op.outputs[0];
    const Experts experts = ExpertsOf(op.inputs[2], op.inputs[4], a.first_expert);
    WEFT_TRY(Plan(experts));
    const Plain gathered = ScratchSlots("gathered", experts, TypeOf(dy), experts.n);
    WEFT_TRY(PushGather(experts, dy, gathered, program::kNoValue));
    const Plain products = ScratchSlots("sums", experts, DType::kF32, experts.k);
    WEFT_TRY(PushExpertGemm(experts, dense::ExpertProduct::kNN, gathered, {}, products));
    CallOf<dense::ExpertWeightGradArgs> call;
    dense::ExpertWeightGradArgs& args = call.args;
    ReadsPlan(call, args.plan, experts);
    args.used = experts.used;
    call.Reads(args.products, products.region);
    In(call, args.x, x);
    call.Reads(args.weights, Of(op.inputs[3]));
    args.cols = experts.k;
    Out(call, args.dx, dx);
    call.Writes(args.dweights, Of(op.outputs[1]));
    Rows(call, args.tokens, experts.ids);
    Owns(call, args.scratch, args.scratch_bytes, dense::ExpertWeightGradScratchBytes(args));
    WEFT_TRY(Push<dense::ExpertWeightGrad>(call));
    return PushClearRest(experts, dx);
}

Status TrainingLowerer::Lower(const Op& op, const program::ExpertSumGradWeight& a) {
    const ValueId dy = op.inputs[0], x = op.inputs[1], dw = op.outputs[0];
    const Experts experts = ExpertsOf(op.inputs[2], dw, a.first_expert);
    WEFT_TRY(Plan(experts));
    const Plain gathered = ScratchSlots("gathered", experts, TypeOf(dy), experts.n);
    WEFT_TRY(PushGather(experts, dy, gathered, op.inputs[3]));
    return PushExpertGemm(experts, dense::ExpertProduct::kTN, gathered, Slots(x), Slots(dw));
}

// ---- Routers ------------------------------------------------------------------------------------

Status TrainingLowerer::Lower(const Op& op, const program::Route& a) {
    if (a.factors) return Unsupported("experts' factors have no gradient");
    if (a.by_token) return Unsupported("experts by token have no gradient");
    CallOf<kernels::RouteArgs> call;
    kernels::RouteArgs& args = call.args;
    call.Reads(args.logits, Of(op.inputs[0]));
    if (op.inputs.size() > 1) call.Reads(args.bias, Of(op.inputs[1]));
    args.experts = Cols(op.inputs[0]);
    args.used = Cols(op.outputs[0]);
    args.score = static_cast<kernels::RouterScore>(a.score);
    args.groups = a.groups;
    args.groups_used = a.groups_used;
    args.group_best = a.group_best;
    args.renormalise = a.renormalise;
    args.scale = a.scale;
    if (args.experts > kernels::kMostExperts) {
        return Unsupported(fmt::format("{} experts; at most {} are supported", args.experts,
                                       kernels::kMostExperts));
    }
    call.Writes(args.ids, Of(op.outputs[0]));
    call.Writes(args.weights, Of(op.outputs[1]));
    Rows(call, args.rows, op.inputs[0]);
    return Push<kernels::Route>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::RouteGrad& a) {
    CallOf<dense::RouteGradArgs> call;
    dense::RouteGradArgs& args = call.args;
    call.Reads(args.dweights, Of(op.inputs[0]));
    call.Reads(args.logits, Of(op.inputs[1]));
    call.Reads(args.ids, Of(op.inputs[2]));
    args.experts = Cols(op.inputs[1]);
    args.used = Cols(op.inputs[0]);
    args.sigmoid = a.forward.score == program::GateScore::kSigmoid;
    args.renormalise = a.forward.renormalise;
    args.scale = a.forward.scale;
    call.Writes(args.dlogits, Of(op.outputs[0]));
    Rows(call, args.rows, op.inputs[0]);
    return Push<dense::RouteGrad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::GateRows& a) {
    if (Cols(op.inputs[1]) != 1 || a.gate != program::RowGate::kSigmoid) {
        return Unsupported("gates by head have no gradient");
    }
    CallOf<dense::GateRowsArgs> call;
    In(call, call.args.x, op.inputs[0]);
    call.Reads(call.args.gate, Of(op.inputs[1]));
    call.args.cols = Cols(op.inputs[0]);
    Out(call, call.args.y, op.outputs[0]);
    Rows(call, call.args.rows, op.outputs[0]);
    return Push<dense::GateRows>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::GateRowsGrad&) {
    CallOf<dense::GateRowsGradArgs> call;
    dense::GateRowsGradArgs& args = call.args;
    In(call, args.dy, op.inputs[0]);
    In(call, args.x, op.inputs[1]);
    call.Reads(args.gate, Of(op.inputs[2]));
    args.cols = Cols(op.inputs[0]);
    Out(call, args.dx, op.outputs[0]);
    call.Writes(args.dgate, Of(op.outputs[1]));
    Rows(call, args.rows, op.inputs[0]);
    Owns(call, args.scratch, args.scratch_bytes, dense::GateRowsGradScratchBytes(args));
    return Push<dense::GateRowsGrad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::RouterLoad&) {
    const ValueId logits = op.inputs[0], ids = op.inputs[1];
    const OperandRegion scores = ScratchBytes("scores", MostRows(logits) * Cols(logits) * kFloat);
    CallOf<dense::RouterScoresArgs> make;
    make.Reads(make.args.logits, Of(logits));
    make.args.experts = Cols(logits);
    make.Writes(make.args.scores, scores);
    Rows(make, make.args.rows, logits);
    WEFT_TRY(Push<dense::RouterScores>(make));
    CallOf<dense::RouterLoadArgs> call;
    dense::RouterLoadArgs& args = call.args;
    call.Reads(args.scores, scores);
    call.Reads(args.ids, Of(ids));
    args.experts = Cols(logits);
    args.used = Cols(ids);
    if (op.inputs.size() == 3) call.Reads(args.before, Of(op.inputs[2]));
    call.Writes(args.load, Of(op.outputs[0]));
    Rows(call, args.rows, logits);
    return Push<dense::RouterLoad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::RouterLoadGrad&) {
    CallOf<dense::RouterLoadGradArgs> call;
    call.Reads(call.args.dload, Of(op.inputs[0]));
    call.Reads(call.args.logits, Of(op.inputs[1]));
    call.args.experts = Cols(op.inputs[1]);
    call.Writes(call.args.dlogits, Of(op.outputs[0]));
    Rows(call, call.args.rows, op.inputs[1]);
    return Push<dense::RouterLoadGrad>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::LoadBalance& a) {
    CallOf<dense::LoadBalanceArgs> call;
    call.Reads(call.args.load, Of(op.inputs[0]));
    call.args.experts = Cols(op.inputs[0]);
    call.args.used = a.used;
    call.Writes(call.args.y, Of(op.outputs[0]));
    return Push<dense::LoadBalance>(call);
}

Status TrainingLowerer::Lower(const Op& op, const program::LoadBalanceGrad& a) {
    CallOf<dense::LoadBalanceGradArgs> call;
    call.Reads(call.args.dy, Of(op.inputs[0]));
    call.Reads(call.args.load, Of(op.inputs[1]));
    call.args.experts = Cols(op.inputs[1]);
    call.args.used = a.forward.used;
    call.Writes(call.args.dload, Of(op.outputs[0]));
    return Push<dense::LoadBalanceGrad>(call);
}

}  // namespace weft::backend
