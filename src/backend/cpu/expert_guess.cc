#include "backend/cpu/expert_guess.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace weft::backend {
namespace {

using program::Op;
using program::OpKind;
using program::ValueId;

// Steps with more rows are judged by some of them.
constexpr int64_t kMostRows = 16;

// The op that writes the value, and its index.
size_t WriterOf(const program::Program& program, ValueId id) {
    const auto writes = [&](const Op& op) {
        return std::ranges::find(op.outputs, id) != op.outputs.end();
    };
    return static_cast<size_t>(std::ranges::find_if(program.ops, writes) - program.ops.begin());
}

}  // namespace

ExpertGuess::ExpertGuess(const Buffers& buffers)
    : buffers_(buffers), program_(buffers.chunked().program) {
    if (buffers.options().drive_memory == 0) return;
    for (size_t i = 0; i < program_.ops.size(); ++i) {
        if (program_.ops[i].kind() == OpKind::kRoute) routers_.push_back(FindRouter(i));
    }
}

// hidden is kNoValue if the router has another form.
ExpertGuess::Router ExpertGuess::FindRouter(size_t route) const {
    Router found{program_.ops[route].outputs[0], 0, 0, route};
    size_t last = 0;
    for (size_t i = route; i < program_.ops.size(); ++i) {
        const Op& op = program_.ops[i];
        if (!program::IsOfExperts(op) || op.inputs[1] != found.ids) continue;
        if (last == 0) last = i;
        if (const auto* product = op.attributes.If<program::ExpertMatMul>()) {
            found.first_expert = product->first_expert;
            found.count = program_.value(op.inputs[2]).shape[0];
        }
    }
    const size_t ops = program_.ops.size();
    found.product = WriterOf(program_, program_.ops[route].inputs[0]);
    if (last == 0 || found.count == 0 || found.product == ops) return found;
    const Op& product = program_.ops[found.product];
    if (product.kind() != OpKind::kMatMul) return found;
    found.norm = WriterOf(program_, product.inputs[0]);
    if (found.norm == ops) return found;
    const auto* norm = program_.ops[found.norm].attributes.If<program::RmsNorm>();
    const ValueId hidden = program_.ops[found.norm].inputs[0];
    const program::Value& rows = program_.value(hidden);
    const auto& weight = program_.value(product.inputs[1]);
    const bool known =
        norm != nullptr && !norm->centered && !norm->apart && norm->whole == 0 &&
        norm->group == rows.shape[1] && rows.dtype == DType::kF32 && rows.shape.rank == 2 &&
        rows.shape[0] == program::kTokens &&
        buffers_.kernels().activation_format(weight.dtype) == kernels::ActivationFormat::kNone &&
        !program_.ops[route].as<program::Route>().by_token;
    if (known) found.hidden = hidden;
    for (size_t i = last; i < ops; ++i) {
        const auto& inputs = program_.ops[i].inputs;
        found.hidden_stays |= std::ranges::find(inputs, hidden) != inputs.end();
    }
    return found;
}

// The next router after the router of `ids`, if it fits that router's rows; else null.
const ExpertGuess::Router* ExpertGuess::After(ValueId ids) const {
    const auto now = std::ranges::find(routers_, ids, &Router::ids);
    if (now == routers_.end() || now + 1 == routers_.end()) return nullptr;
    const Router& next = now[1];
    const bool known = now->hidden != program::kNoValue && next.hidden != program::kNoValue;
    if (!known || !now->hidden_stays) return nullptr;
    const bool fits = program_.value(now->hidden).shape[1] == program_.value(next.hidden).shape[1];
    return fits ? &next : nullptr;
}

ValueId ExpertGuess::NextOf(ValueId ids) const {
    const Router* next = After(ids);
    return next == nullptr ? program::kNoValue : next->ids;
}

ExpertGuess::Guess ExpertGuess::Next(ValueId ids, int64_t rows, int slot) {
    const Router& next = *After(ids);
    const Router& now = (&next)[-1];
    const int64_t cols = program_.value(now.hidden).shape[1];
    const int64_t judged = std::min(rows, kMostRows);
    normed_.resize(static_cast<size_t>(judged * cols));
    const auto* hidden = reinterpret_cast<const float*>(buffers_.At(now.hidden, slot));
    for (int64_t i = 0; i < judged; ++i) {
        Normalise(next, hidden + i * rows / judged * cols, normed_.data() + i * cols);
    }
    Choose(next, judged);
    return {next.ids, best_};
}

void ExpertGuess::Normalise(const Router& router, const float* hidden, float* out) const {
    const Op& op = program_.ops[router.norm];
    const auto& norm = op.as<program::RmsNorm>();
    const int64_t cols = norm.group;
    double sum = 0;
    for (int64_t i = 0; i < cols; ++i) sum += double{hidden[i]} * double{hidden[i]};
    const double mean = sum / static_cast<double>(cols);
    const auto scale = static_cast<float>(1 / std::sqrt(mean + double{norm.eps}));
    const float* weight =
        norm.plain ? nullptr : reinterpret_cast<const float*>(buffers_.At(op.inputs[1]));
    for (int64_t i = 0; i < cols; ++i) {
        out[i] = hidden[i] * scale * (weight == nullptr ? 1.0f : weight[i]);
    }
}

// Sets best_ to this rank's experts that the normed rows choose.
void ExpertGuess::Choose(const Router& router, int64_t rows) {
    const Op& op = program_.ops[router.product];
    const auto floats = [&](ValueId id) { return reinterpret_cast<const float*>(buffers_.At(id)); };
    kernels::MatMulArgs product;
    product.weight = buffers_.matrix(op.inputs[1]);
    product.x = normed_.data();
    product.x_stride = product.weight.cols;
    product.rows = rows;
    if (op.inputs.size() == 3) product.bias = floats(op.inputs[2]);
    logits_.resize(static_cast<size_t>(rows * product.weight.rows));
    product.y = logits_.data();
    product.y_stride = product.weight.rows;
    buffers_.kernels().matmul(product, 0, 1);

    const Op& chooses = program_.ops[router.route];
    const auto& form = chooses.as<program::Route>();
    kernels::RouteArgs route;
    route.logits = logits_.data();
    if (chooses.inputs.size() == (form.factors ? 3u : 2u)) route.bias = floats(chooses.inputs[1]);
    route.rows = rows;
    route.experts = product.weight.rows;
    route.used = program_.value(router.ids).shape[1];
    route.score = static_cast<kernels::RouterScore>(form.score);
    route.jitter = form.jitter;
    route.groups = form.groups;
    route.groups_used = form.groups_used;
    route.group_best = form.group_best;
    ids_.resize(static_cast<size_t>(rows * route.used));
    weights_.resize(ids_.size());
    route.ids = ids_.data();
    route.weights = weights_.data();
    kernels::Route(route, 0, 1);

    votes_.assign(static_cast<size_t>(router.count), 0);
    for (const int32_t id : ids_) {
        const int64_t own = id - router.first_expert;
        if (own >= 0 && own < router.count) ++votes_[static_cast<size_t>(own)];
    }
    best_.resize(votes_.size());
    std::iota(best_.begin(), best_.end(), 0);
    std::erase_if(best_, [&](int32_t e) { return votes_[static_cast<size_t>(e)] == 0; });
    std::ranges::stable_sort(best_, std::ranges::greater(),
                             [&](int32_t e) { return votes_[static_cast<size_t>(e)]; });
}

}  // namespace weft::backend
