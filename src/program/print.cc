// Prints a Program: one line an op, then the weights, states and inputs it names.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "program/program.h"

namespace weft::program {
namespace {

const char* CutName(Cut cut) {
    switch (cut) {
        case Cut::kNone: return "none";
        case Cut::kRows: return "rows";
        case Cut::kColumns: return "columns";
    }
    return "";
}

const char* ScoreName(GateScore score) {
    switch (score) {
        case GateScore::kSoftmax: return "softmax";
        case GateScore::kSigmoid: return "sigmoid";
    }
    return "";
}

std::string SliceText(const Value& weight) {
    const WeightSlice& slice = weight.slice;
    const bool stack = weight.shape.rank == 3;
    return fmt::format("{}[{}{}:, {}:]", slice.name,
                       stack ? fmt::format("{}:, ", slice.first_matrix) : "", slice.row_begin,
                       slice.col_begin) +
           (slice.transposed ? " transposed" : "");
}

const char* GroupName(Group group) {
    switch (group) {
        case Group::kTensor: return "tensor";
        case Group::kPipeline: return "pipeline";
        case Group::kData: return "data";
        case Group::kTied: return "tied";
        case Group::kWorld: return "world";
    }
    return "";
}

std::string Text(const Attention& a) {
    std::string text = fmt::format(
        "heads={} kv_heads={} head_dim={} first_head={} first_kv_head={} group={} scale={:.6g}",
        a.heads, a.kv_heads, a.head_dim, a.first_head, a.first_kv_head, a.group, a.scale);
    if (a.window != 0) text += fmt::format(" window={}", a.window);
    if (a.soft_cap != 0) text += fmt::format(" soft_cap={:.6g}", a.soft_cap);
    return text + (a.sinks ? " sinks" : "");
}

std::string Text(const LinearCrossEntropy& a) {
    if (a.cut == Cut::kNone) return "";
    return fmt::format("cut={} first_row={}", CutName(a.cut), a.first_row);
}

std::string Text(const std::vector<ElementRange>& ranges) {
    std::string text = "ranges=";
    for (const auto& [begin, end] : ranges) text += fmt::format("{}-{},", begin, end);
    return text.substr(0, text.size() - 1);
}
std::string Text(const std::vector<UpdateRun>& runs) {
    std::string text = "runs=";
    for (const UpdateRun& run : runs) {
        text += fmt::format("{}+{}{},", run.begin, run.count, run.decays ? "d" : "");
    }
    return text.substr(0, text.size() - 1);
}
std::string Text(const std::vector<FactoredRun>& runs) {
    std::string text = "runs=";
    for (const FactoredRun& run : runs) {
        text += fmt::format("{}:{}-{},", run.tensor.number, run.range.begin, run.range.end);
    }
    return text.substr(0, text.size() - 1);
}

std::string Text(Activation activation) {
    return fmt::format("activation={}", ActivationName(activation));
}

// The attributes of an op as "key=value ...": an overload for each struct that has any.
struct AttributeText {
    std::string operator()(const Embedding& a) const {
        return fmt::format("first_row={}", a.first_row);
    }
    std::string operator()(const RmsNorm& a) const {
        const std::string text =
            fmt::format("eps={:.3g} group={}{}", a.eps, a.group, a.plain ? " plain" : "");
        return a.whole == 0 ? text : fmt::format("{} whole={} square={}", text, a.whole, a.square);
    }
    std::string operator()(const SumSquares& a) const {
        std::string text = "columns=";
        for (const auto& [begin, count] : a.columns) {
            text += fmt::format("{}{}+{}", text.back() == '=' ? "" : ",", begin, count);
        }
        return text;
    }
    std::string operator()(const MatMul& a) const {
        std::string text = a.cut == Cut::kNone ? "" : fmt::format("cut={}", CutName(a.cut));
        if (a.shared_rows != 0) text += fmt::format(" shared_rows={}", a.shared_rows);
        if (a.segment_cols == 0) return text;
        return fmt::format("{}{}segment_cols={}", text, text.empty() ? "" : " ", a.segment_cols);
    }
    std::string operator()(const Rope& a) const {
        const std::string text =
            fmt::format("head_dim={} rotary_dim={} pairs={} sign={}", a.head_dim, a.rotary_dim,
                        a.neighbours ? "neighbours" : "halves", a.sign);
        return a.magnitude == 1 ? text : fmt::format("{} magnitude={:.6g}", text, a.magnitude);
    }
    std::string operator()(const Attention& a) const { return Text(a); }
    std::string operator()(const Glu& a) const { return Text(a.activation); }
    std::string operator()(const GluGrad& a) const { return Text(a.activation); }
    std::string operator()(const AddBias& a) const {
        return a.shared_rows == 0 ? "" : fmt::format("shared_rows={}", a.shared_rows);
    }
    std::string operator()(const Scale& a) const { return fmt::format("factor={:.6g}", a.factor); }
    std::string operator()(const SoftCap& a) const { return fmt::format("cap={:.6g}", a.cap); }
    std::string operator()(const AllReduce& a) const {
        return fmt::format("group={}", GroupName(a.group));
    }
    std::string operator()(const AllGather& a) const {
        return fmt::format("group={} parts={} begin={}", GroupName(a.group),
                           fmt::join(a.parts, "+"), a.begin);
    }
    std::string operator()(const SliceColumns& a) const { return fmt::format("begin={}", a.begin); }
    std::string operator()(const PadColumns& a) const { return fmt::format("begin={}", a.begin); }
    std::string operator()(const Route& a) const {
        std::string text = fmt::format("score={}", ScoreName(a.score));
        if (a.groups > 1) {
            text += fmt::format(" groups={} groups_used={} group_best={}", a.groups, a.groups_used,
                                a.group_best);
        }
        return fmt::format("{}{}{} scale={:.6g}", text, a.renormalise ? " renormalise" : "",
                           a.factors ? " factors" : "", a.scale);
    }
    std::string operator()(const ExpertMatMul& a) const {
        return fmt::format("first_expert={} cut={}", a.first_expert, CutName(a.cut));
    }
    std::string operator()(const ExpertSum& a) const {
        return fmt::format("first_expert={} cut={} segment_cols={}{}{}", a.first_expert,
                           CutName(a.cut), a.segment_cols, a.bias ? " bias" : "",
                           a.base ? " base" : "");
    }
    std::string operator()(const LoadBalance& a) const { return fmt::format("used={}", a.used); }
    std::string operator()(const LoadBalanceGrad& a) const { return (*this)(a.forward); }
    std::string operator()(const RouteGrad& a) const { return (*this)(a.forward); }
    template <typename T>
    requires(std::is_same_v<T, ExpertMatMulGradInput> ||
             std::is_same_v<T, ExpertMatMulGradWeight> || std::is_same_v<T, ExpertSumGradInput> ||
             std::is_same_v<T, ExpertSumGradWeight>) std::string
    operator()(const T& a) const {
        return fmt::format("first_expert={}", a.first_expert);
    }
    std::string operator()(const PickColumns& a) const {
        return fmt::format("heads={} begin={}", a.heads, a.begin);
    }
    std::string operator()(const LatentAttention& a) const {
        return fmt::format("heads={} scale={:.6g}", a.heads, a.scale);
    }
    std::string operator()(const Adapt& a) const {
        return fmt::format("adapters={}{}", fmt::join(a.adapters, ","),
                           a.segment_cols == 0 ? "" : fmt::format(" segment={}", a.segment_cols));
    }
    std::string operator()(const LinearCrossEntropy& a) const { return Text(a); }
    std::string operator()(const LinearCrossEntropyGrad& a) const { return Text(a.forward); }
    std::string operator()(const GatherShares& a) const {
        return fmt::format("parts={} begin={}", fmt::join(a.parts, "+"), a.begin);
    }
    std::string operator()(const ReduceShares& a) const {
        return fmt::format("parts={} begin={}{}", fmt::join(a.parts, "+"), a.begin,
                           a.adds ? "" : " anew");
    }
    std::string operator()(const SumOver& a) const {
        return fmt::format("group={}", GroupName(a.group));
    }
    std::string operator()(const AddSquares& a) const { return Text(a.ranges); }
    std::string operator()(const AdamUpdate& a) const {
        return fmt::format("beta1={} beta2={} eps={} l2={} decay={} {}", a.beta1, a.beta2, a.eps,
                           a.l2, a.decay, Text(a.runs));
    }
    std::string operator()(const Adam8bitUpdate& a) const { return (*this)(a.adam); }
    std::string operator()(const SgdUpdate& a) const {
        return fmt::format("momentum={} dampening={} l2={}{} {}", a.momentum, a.dampening, a.l2,
                           a.nesterov ? " nesterov" : "", Text(a.runs));
    }
    std::string operator()(const AdafactorSums& a) const {
        return Text(a.runs) + (a.sizes ? " sizes" : "");
    }
    std::string operator()(const AdafactorMoments& a) const {
        return fmt::format("tensors={} decay_rate={} eps_square={}", a.tensors.size(), a.decay_rate,
                           a.eps_square);
    }
    std::string operator()(const AdafactorSizes& a) const { return Text(a.runs); }
    std::string operator()(const AdafactorUpdate& a) const {
        return fmt::format("eps_scale={} clip_threshold={} decay={}{}{} {}", a.eps_scale,
                           a.clip_threshold, a.decay, a.scale_parameter ? " scale_parameter" : "",
                           a.relative_step ? " relative_step" : "", Text(a.runs));
    }
    std::string operator()(const Send& a) const { return fmt::format("peer={}", a.peer); }
    std::string operator()(const Recv& a) const { return fmt::format("peer={}", a.peer); }
    std::string operator()(const RmsNormGradInput& a) const {
        return fmt::format("eps={:.3g} group={}", a.eps, a.group);
    }
    std::string operator()(const RmsNormGradWeight& a) const {
        return fmt::format("eps={:.3g} group={}", a.eps, a.group);
    }
    std::string operator()(const AttentionGrad& a) const { return Text(a.forward); }
    std::string operator()(const EmbeddingGrad& a) const {
        return fmt::format("first_row={}", a.first_row);
    }
    template <typename T>
    std::string operator()(const T&) const {
        static_assert(std::is_empty_v<T>, "an op with attributes needs its own line above");
        return "";
    }
};

std::string NamesOf(const Program& program, const std::vector<ValueId>& ids) {
    std::string text;
    for (ValueId id : ids) {
        if (!text.empty()) text += ", ";
        text += program.value(id).name;
    }
    return text;
}

const char* StorageName(Storage storage) {
    switch (storage) {
        case Storage::kWeight: return "weight";
        case Storage::kActivation: return "activation";
        case Storage::kState: return "state";
        case Storage::kInput: return "input";
        case Storage::kGradient: return "gradient";
        case Storage::kView: return "view";
        case Storage::kOptimizer: return "optimizer";
    }
    return "";
}

}  // namespace

std::string Print(const Program& program) {
    std::string text;
    for (size_t i = 0; i < program.ops.size(); ++i) {
        const Op& op = program.ops[i];
        text += fmt::format("{:4}  ", i);
        if (!op.outputs.empty()) {
            text += fmt::format("{} {} = ", NamesOf(program, op.outputs),
                                program.value(op.outputs[0]).shape.Text());
        }
        text += fmt::format("{}({})", OpName(op.kind()), NamesOf(program, op.inputs));
        const std::string attributes = op.attributes.Visit(AttributeText{});
        if (!attributes.empty()) text += "  " + attributes;
        text += '\n';
    }
    for (const Value& value : program.values) {
        if (value.storage == Storage::kActivation) continue;
        text += fmt::format("{} {} {} {}", StorageName(value.storage), value.name,
                            Info(value.dtype).name, value.shape.Text());
        if (value.storage == Storage::kWeight) {
            text += " = " + SliceText(value);
        } else if (value.storage == Storage::kView) {
            text += fmt::format(" = {} from {}", program.value(value.base).name, value.base_begin);
        }
        text += '\n';
    }
    return text;
}

}  // namespace weft::program
