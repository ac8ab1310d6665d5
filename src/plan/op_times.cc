#include "plan/op_times.h"

#include <algorithm>

#include "base/json.h"
#include "program/timeline.h"

namespace weft::plan {
namespace {

using program::OpKind;

constexpr JsonLimits kTraceLimits = {.bytes = size_t{300} << 20, .values = size_t{1} << 26};

bool IsWeightProduct(OpKind kind) {
    return kind == OpKind::kMatMul || kind == OpKind::kExpertMatMul || kind == OpKind::kExpertSum;
}
bool IsAttentionOp(OpKind kind) {
    return kind == OpKind::kAttention || kind == OpKind::kLatentAttention;
}

// What one value in four is below: other work of the machine only ever adds time.
double Quartile(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto quarter = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
    std::ranges::nth_element(values, quarter);
    return *quarter;
}

OpTimes::Work& operator+=(OpTimes::Work& work, const OpTimes::Work& more) {
    work.flops += more.flops;
    work.bytes += more.bytes;
    work.seconds += more.seconds;
    return work;
}

OpTimes::Work WorkOf(const program::OpCost& cost, double seconds) {
    return {cost.flops, static_cast<double>(cost.read_bytes + cost.written_bytes), seconds};
}

}  // namespace

Result<OpTimes> OpTimes::Read(program::Program program, const std::vector<std::string>& traces) {
    OpTimes times;
    times.program_ = std::move(program);
    for (const std::string& trace : traces) WEFT_TRY(times.AddRank(trace));
    return times;
}

Status OpTimes::AddRank(const std::string& trace) {
    WEFT_ASSIGN(const nlohmann::json events, ParseJsonText("[" + trace + "]", kTraceLimits));
    struct Span {
        double begin_us = 0, end_us = 0;
    };
    std::map<int64_t, Span> spans;
    std::map<int64_t, std::vector<double>> seconds;  // by step and op: of this rank
    for (const auto& event : events) {
        const int64_t op = event["args"]["op"], step = event["args"]["step"];
        if (op < 0 || op >= static_cast<int64_t>(program_.ops.size())) {
            return MakeError(ErrorCode::kCorrupt, "a timeline names op {}; there are {}", op,
                             program_.ops.size());
        }
        const double begin_us = event["ts"], took_us = event["dur"];
        // (A collective has two events, waiting and sending.)
        auto& of_ops = seconds[step];
        of_ops.resize(program_.ops.size(), 0);
        of_ops[static_cast<size_t>(op)] += took_us * 1e-6;
        const auto [span, is_new] = spans.try_emplace(step, Span{begin_us, begin_us + took_us});
        span->second.begin_us = std::min(span->second.begin_us, begin_us);
        span->second.end_us = std::max(span->second.end_us, begin_us + took_us);
    }
    for (const auto& [number, of_ops] : seconds) {
        Step& step = steps_[number];
        step.op_s.resize(program_.ops.size(), 0);
        for (size_t op = 0; op < of_ops.size(); ++op) {
            step.op_s[op] = std::max(step.op_s[op], of_ops[op]);
        }
        const Span& span = spans[number];
        step.span_s = std::max(step.span_s, (span.end_us - span.begin_us) * 1e-6);
    }
    return {};
}

std::vector<double> OpTimes::Quartiles(int64_t first, int64_t last) const {
    std::vector<double> quartiles;
    for (size_t op = 0; op < program_.ops.size(); ++op) {
        std::vector<double> values;
        for (auto at = steps_.lower_bound(first); at != steps_.end() && at->first <= last; ++at) {
            values.push_back(at->second.op_s[op]);
        }
        quartiles.push_back(Quartile(std::move(values)));
    }
    return quartiles;
}

std::map<std::pair<DType, int64_t>, OpTimes::Work> OpTimes::Products(
    const program::StepShape& shape, int64_t first, int64_t last) const {
    std::map<std::pair<DType, int64_t>, Work> products;
    const std::vector<double> seconds = Quartiles(first, last);
    const std::vector<program::OpCost> costs = program::Cost(program_, shape);
    for (size_t i = 0; i < program_.ops.size(); ++i) {
        const program::Op& op = program_.ops[i];
        // Those of experts meet other rows than the step has.
        if (op.kind() != OpKind::kMatMul) continue;
        const program::Shape& out = program_.value(op.outputs[0]).shape;
        const int64_t rows = out.Elements(shape.rows(), shape.outputs) / out[out.rank - 1];
        const DType type = program_.value(program::WeightOf(op)).dtype;
        products[{type, rows}] += WorkOf(costs[i], seconds[i]);
    }
    return products;
}

OpTimes::Work OpTimes::Attention(const program::StepShape& shape, int64_t first,
                                 int64_t last) const {
    Work work;
    const std::vector<double> seconds = Quartiles(first, last);
    const std::vector<program::OpCost> costs = program::Cost(program_, shape);
    for (size_t i = 0; i < program_.ops.size(); ++i) {
        if (IsAttentionOp(program_.ops[i].kind())) work += WorkOf(costs[i], seconds[i]);
    }
    return work;
}

OpTimes::Rest OpTimes::RestOf(int64_t first, int64_t last) const {
    Rest rest;
    std::vector<double> spans;
    for (auto at = steps_.lower_bound(first); at != steps_.end() && at->first <= last; ++at) {
        spans.push_back(at->second.span_s);
    }
    rest.step_s = rest.seconds = Quartile(std::move(spans));
    const std::vector<double> seconds = Quartiles(first, last);
    for (size_t i = 0; i < program_.ops.size(); ++i) {
        const OpKind kind = program_.ops[i].kind();
        if (IsWeightProduct(kind) || program::IsTransfer(kind)) {
            rest.seconds -= seconds[i];
        } else {
            ++rest.ops;
        }
    }
    return rest;
}

OpTimes::Sums OpTimes::SumsOf(const program::StepShape& shape, int64_t first, int64_t last) const {
    Sums sums;
    int count = 0;
    const std::vector<double> seconds = Quartiles(first, last);
    const std::vector<program::OpCost> costs = program::Cost(program_, shape);
    for (size_t i = 0; i < program_.ops.size(); ++i) {
        if (program_.ops[i].kind() != OpKind::kAllReduce) continue;
        sums.bytes += static_cast<double>(costs[i].wire_bytes);
        sums.seconds += seconds[i];
        ++count;
    }
    if (count > 0) {
        sums.bytes /= count;
        sums.seconds /= count;
    }
    return sums;
}

}  // namespace weft::plan
