#include "plan/op_times.h"

#include <algorithm>
#include <cmath>

#include "base/json.h"
#include "plan/walk.h"

namespace weft::plan {
namespace {

using program::Trait;

constexpr JsonLimits kTraceLimits = {.bytes = size_t{300} << 20, .values = size_t{1} << 26};

// Whether the op is neither a product of weights nor a collective.
bool IsRest(const program::Op& op) {
    return !op.Is(Trait::kProduct | Trait::kTransfer);
}

// The lower quartile, because other load on the machine only adds time.
double Quartile(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto at = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 4);
    std::ranges::nth_element(values, at);
    return *at;
}

OpTimes::Work& operator+=(OpTimes::Work& work, const OpTimes::Work& more) {
    work.flops += more.flops;
    work.bytes += more.bytes;
    work.seconds += more.seconds;
    return work;
}

}  // namespace

Result<OpTimes> OpTimes::Read(program::Program program, const std::vector<std::string>& traces) {
    OpTimes times;
    times.program_ = std::move(program);
    for (const std::string& trace : traces) WEFT_TRY(times.AddRank(trace));
    return times;
}

// Steps of one rank.
Result<std::map<int64_t, OpTimes::Step>> OpTimes::StepsOf(const std::string& trace) const {
    WEFT_ASSIGN(const nlohmann::json events, ParseJsonText("[" + trace + "]", kTraceLimits));
    std::map<int64_t, Step> steps;
    for (const auto& event : events) {
        const int64_t op = event["args"]["op"], number = event["args"]["step"];
        if (op < 0 || op >= static_cast<int64_t>(program_.ops.size())) {
            return MakeError(ErrorCode::kCorrupt, "a timeline names op {}; there are {}", op,
                             program_.ops.size());
        }
        const double begin_us = event["ts"], took_us = event["dur"];
        const auto [found, is_new] = steps.try_emplace(number);
        Step& step = found->second;
        if (is_new) {
            step.begin_us = begin_us;
            step.op_s.resize(program_.ops.size(), 0);
        }
        // (A collective has two events: waiting and sending.)
        step.op_s[static_cast<size_t>(op)] += took_us * 1e-6;
        step.begin_us = std::min(step.begin_us, begin_us);
        step.end_us = std::max(step.end_us, begin_us + took_us);
    }
    for (auto at = steps.begin(); at != steps.end(); ++at) {
        Step& step = at->second;
        step.rest_s = (step.end_us - step.begin_us) * 1e-6;
        for (size_t op = 0; op < step.op_s.size(); ++op) {
            if (!IsRest(program_.ops[op])) step.rest_s -= step.op_s[op];
        }
        if (at == steps.begin()) continue;
        const auto before = std::prev(at);
        const bool follows = before->first + 1 == at->first;
        if (follows) step.gap_s = (step.begin_us - before->second.end_us) * 1e-6;
    }
    return steps;
}

Status OpTimes::AddRank(const std::string& trace) {
    WEFT_ASSIGN(const auto steps, StepsOf(trace));
    for (const auto& [number, its] : steps) {
        const auto [found, is_new] = steps_.emplace(number, its);
        Step& step = found->second;
        if (is_new) continue;
        for (size_t op = 0; op < its.op_s.size(); ++op) {
            // The rank that enters a collective last does not wait, so its time is the collective's
            // cost.
            const bool shared = program_.ops[op].Is(Trait::kTransfer);
            double& seconds = step.op_s[op];
            seconds = shared ? std::min(seconds, its.op_s[op]) : std::max(seconds, its.op_s[op]);
        }
        step.rest_s = std::max(step.rest_s, its.rest_s);
    }
    return {};
}

template <typename Each>
void OpTimes::ForOps(const StepRange& steps, const Each& each) const {
    const std::vector<program::OpCost> costs = program::Cost(program_, steps.shape);
    for (size_t i = 0; i < program_.ops.size(); ++i) {
        std::vector<double> seconds;
        for (auto at = steps_.lower_bound(steps.first);
             at != steps_.end() && at->first <= steps.last; ++at) {
            seconds.push_back(at->second.op_s[i]);
        }
        const bool sum = program_.ops[i].Is(Trait::kAllReduce);
        const int64_t bytes =
            sum ? costs[i].wire_bytes : costs[i].read_bytes + costs[i].written_bytes;
        each(program_.ops[i],
             Work{costs[i].flops, static_cast<double>(bytes), Quartile(std::move(seconds))});
    }
}

std::map<std::pair<DType, double>, OpTimes::Work> OpTimes::Products(
    const StepRange& steps, const model::Moe* experts) const {
    std::map<std::pair<DType, double>, Work> products;
    const program::StepShape& shape = steps.shape;
    ForOps(steps, [&](const program::Op& op, const Work& work) {
        if (!op.Is(Trait::kProduct) || IsOfExperts(op) != (experts != nullptr)) return;
        const program::Shape& out = program_.value(op.outputs[0]).shape;
        const program::Value& weight = program_.value(program::WeightOf(op));
        const int64_t rows = out.Elements(shape.rows(), shape.outputs) / out[out.rank - 1];
        auto each = static_cast<double>(rows);
        if (experts != nullptr) {
            each = std::round(RowsOfExpert(*experts, weight.shape[0], shape.rows()) * 10) / 10;
        }
        products[{weight.dtype, each}] += work;
    });
    return products;
}

OpTimes::Work OpTimes::WorkOf(const StepRange& steps, bool attention) const {
    Work all;
    ForOps(steps, [&](const program::Op& op, const Work& work) {
        if (IsRest(op) && op.Is(Trait::kAttention) == attention) all += work;
    });
    return all;
}

int OpTimes::attentions() const {
    return static_cast<int>(std::ranges::count_if(
        program_.ops, [](const program::Op& op) { return op.Is(Trait::kAttention); }));
}

OpTimes::Rest OpTimes::RestOf(const StepRange& steps) const {
    Rest rest;
    std::vector<double> rests, gaps;
    for (auto at = steps_.lower_bound(steps.first); at != steps_.end() && at->first <= steps.last;
         ++at) {
        rests.push_back(at->second.rest_s);
        if (at->first > steps.first && at->second.gap_s > 0) gaps.push_back(at->second.gap_s);
    }
    rest.seconds = Quartile(std::move(rests));
    rest.gap_s = Quartile(std::move(gaps));
    rest.ops = static_cast<int>(std::ranges::count_if(program_.ops, IsRest));
    return rest;
}

OpTimes::Sums OpTimes::SumsOf(const StepRange& steps) const {
    Work all;
    int count = 0;
    ForOps(steps, [&](const program::Op& op, const Work& work) {
        if (!op.Is(Trait::kAllReduce)) return;
        all += work;
        ++count;
    });
    return count == 0 ? Sums{} : Sums{all.bytes / count, all.seconds / count};
}

Result<double> HopSeconds(const std::vector<std::string>& traces, int64_t first, int64_t last) {
    struct Messages {
        double send_us = 0, received_us = 0;  // begin of the first send, end of the last receive
    };
    const auto sends = fmt::format("{} ", program::OpName(program::OpKind::kSend));
    const auto receives = fmt::format("{} ", program::OpName(program::OpKind::kRecv));
    std::map<int64_t, double> hops_us;  // by step
    std::map<int64_t, size_t> told;
    for (size_t stage = 0; stage < traces.size(); ++stage) {
        WEFT_ASSIGN(const nlohmann::json events,
                    ParseJsonText("[" + traces[stage] + "]", kTraceLimits));
        std::map<int64_t, Messages> steps;
        for (const auto& event : events) {
            const std::string name = event["name"];
            const int64_t number = event["args"]["step"];
            if (number < first || number > last) continue;
            const double begin_us = event["ts"], took_us = event["dur"];
            Messages& messages = steps[number];
            if (name.starts_with(sends) && messages.send_us == 0) messages.send_us = begin_us;
            if (name.starts_with(receives)) messages.received_us = begin_us + took_us;
        }
        for (const auto& [number, messages] : steps) {
            if (messages.send_us == 0 || messages.received_us == 0) continue;
            const double waits_us = messages.received_us - messages.send_us;
            hops_us[number] += waits_us;  // (negative if a stage receives first and then computes)
            ++told[number];
        }
    }
    std::vector<double> hops_s;
    for (const auto& [number, us] : hops_us) {
        if (told[number] == traces.size()) hops_s.push_back(us * 1e-6);
    }
    if (hops_s.empty()) {
        return MakeError(ErrorCode::kCorrupt, "no step's timelines have messages of {} stages",
                         traces.size());
    }
    return Quartile(std::move(hops_s)) / static_cast<double>(traces.size());
}

}  // namespace weft::plan
