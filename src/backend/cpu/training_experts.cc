#include "backend/cpu/training_experts.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/experts.h"

namespace weft::backend {
namespace {

namespace dense = kernels::dense;
using Operand = TrainingOperand;
using program::OpKind;

constexpr auto kFloat = static_cast<int64_t>(sizeof(float));

// Where an op of expert matrices has its operands. Its rows of scratch are gathered from one of
// them, and hold sums.
struct Form {
    size_t ids, stack;
    int64_t first_expert;
};
Form FormOf(const program::Op& op) {
    switch (op.kind()) {
        case OpKind::kExpertMatMul: return {1, 2, op.as<program::ExpertMatMul>().first_expert};
        case OpKind::kExpertSum: return {1, 3, op.as<program::ExpertSum>().first_expert};
        case OpKind::kExpertMatMulGradInput:
            return {1, 2, op.as<program::ExpertMatMulGradInput>().first_expert};
        case OpKind::kExpertMatMulGradWeight:
            return {2, 3, op.as<program::ExpertMatMulGradWeight>().first_expert};
        case OpKind::kExpertSumGradInput:
            return {2, 4, op.as<program::ExpertSumGradInput>().first_expert};
        case OpKind::kExpertSumGradWeight:
            return {2, 4, op.as<program::ExpertSumGradWeight>().first_expert};
        default: break;
    }
    WEFT_CHECK(!"no op of expert matrices");
    return {};
}

bool HasMatrices(OpKind kind) {
    return kind == OpKind::kExpertMatMul || kind == OpKind::kExpertSum ||
           kind == OpKind::kExpertMatMulGradInput || kind == OpKind::kExpertMatMulGradWeight ||
           kind == OpKind::kExpertSumGradInput || kind == OpKind::kExpertSumGradWeight;
}

Operand RowsOf(const Operand& x, int64_t begin, int64_t count) {
    Operand rows = x;
    rows.data += RowBytes(x.dtype, begin * x.cols);
    rows.rows = count;
    return rows;
}

class Doer {
  public:
    Doer(const TrainingCall& call, const TrainingContext& context, const OpTeam& team)
        : call_(call), context_(context), team_(team), buffers_(*context.experts) {}

    // ---- Products with each expert's matrix -------------------------------------------------

    void operator()(const program::ExpertMatMul&) {
        const Operand gathered = Gather(in(0), 0);
        ForExperts([&](const Operand& weight, int64_t begin, int64_t count) {
            Multiply(ProductArgs(RowsOf(gathered, begin, count), false, weight, true,
                                 RowsOf(out(0), begin, count), context_.compute));
        });
        ClearRest(out(0));
    }

    void operator()(const program::ExpertSum& a) {
        const Operand sums = Floats(0, out(0).cols);
        ForExperts([&](const Operand& weight, int64_t begin, int64_t count) {
            Multiply(ProductArgs(RowsOf(in(0), begin, count), false, weight, true,
                                 RowsOf(sums, begin, count), context_.compute));
        });
        team_.barrier();
        AddUp(sums, in(2).floats(), a.base ? &call_.in.back() : nullptr);
    }

    void operator()(const program::ExpertMatMulGradInput&) {
        const Operand sums = Floats(0, out(0).cols);
        ForExperts([&](const Operand& weight, int64_t begin, int64_t count) {
            Multiply(ProductArgs(RowsOf(in(0), begin, count), false, weight, false,
                                 RowsOf(sums, begin, count), context_.compute));
        });
        team_.barrier();
        AddUp(sums, nullptr, nullptr);
    }

    void operator()(const program::ExpertMatMulGradWeight&) {
        const Operand gathered = Gather(in(1), 0);
        ForExperts([&](const Operand& weight, int64_t begin, int64_t count) {
            AddProduct(RowsOf(in(0), begin, count), RowsOf(gathered, begin, count), weight);
        });
    }

    void operator()(const program::ExpertSumGradInput&) {
        const Operand gathered = Gather(in(0), 0);
        const Operand products = Floats(BytesOf(gathered), out(0).cols);
        ForExperts([&](const Operand& weight, int64_t begin, int64_t count) {
            Multiply(ProductArgs(RowsOf(gathered, begin, count), false, weight, false,
                                 RowsOf(products, begin, count), context_.compute));
        });
        team_.barrier();
        auto* const row = reinterpret_cast<float*>(ScratchOf(context_, team_.part).data());
        ForRows(slots(), [&](int64_t slot) {
            const int64_t at = buffers_.place[static_cast<size_t>(slot)];
            out(1).floats()[slot] = 0;
            if (at < 0) return;
            Copy(in(1), at, {reinterpret_cast<std::byte*>(row), DType::kF32, 1, in(1).cols}, 0, 1);
            const float* product = products.floats() + at * products.cols;
            out(1).floats()[slot] = Dot(product, row, products.cols);
            Copy(products, at, out(0), at, in(3).floats()[slot]);
        });
        ClearRest(out(0));
    }

    void operator()(const program::ExpertSumGradWeight&) {
        const Operand gathered = Gather(in(0), 0, in(3).floats());
        ForExperts([&](const Operand& weight, int64_t begin, int64_t count) {
            AddProduct(RowsOf(gathered, begin, count), RowsOf(in(1), begin, count), weight);
        });
    }

    // ---- Routers ----------------------------------------------------------------------------

    void operator()(const program::Route& a) {
        kernels::RouteArgs args;
        args.logits = in(0).floats();
        if (call_.in.size() > 1) args.bias = in(1).floats();
        args.rows = in(0).rows;
        args.experts = in(0).cols;
        args.used = out(0).cols;
        args.sigmoid = a.score == program::GateScore::kSigmoid;
        args.groups = a.groups;
        args.groups_used = a.groups_used;
        args.group_best = a.group_best;
        args.renormalise = a.renormalise;
        args.scale = a.scale;
        args.ids = reinterpret_cast<int32_t*>(out(0).data);
        args.weights = out(1).floats();
        kernels::Route(args, team_.part, team_.parts);
    }

    // Of w = scale * s / sum(s) (or scale * s), s the scores of the chosen.
    void operator()(const program::RouteGrad& grad) {
        const program::Route& a = grad.forward;
        const int64_t used = in(0).cols, experts = in(1).cols;
        ForRows(in(0).rows, [&](int64_t row) {
            const float* dweights = in(0).floats() + row * used;
            const int32_t* ids = in(2).ints() + row * used;
            float* const d = out(0).floats() + row * experts;
            const bool sigmoid = a.score == program::GateScore::kSigmoid;
            Scores(in(1).floats() + row * experts, experts, sigmoid, d);
            float chosen[kernels::kMostExperts];
            double sum = 0, dot = 0, across = 0;
            for (int64_t k = 0; k < used; ++k) {
                chosen[k] = d[ids[k]];
                sum += double{chosen[k]};
                dot += double{chosen[k]} * double{dweights[k]};
            }
            const double inverse = a.renormalise ? 1 / sum : 1.0;
            const double mean = a.renormalise ? dot / sum : 0.0;
            const auto dscore = [&](int64_t k) {
                return double{a.scale} * (double{dweights[k]} - mean) * inverse;
            };
            for (int64_t k = 0; k < used && !sigmoid; ++k) across += double{chosen[k]} * dscore(k);
            for (int64_t e = 0; e < experts; ++e) {
                d[e] = sigmoid ? 0.0f : static_cast<float>(-double{d[e]} * across);
            }
            for (int64_t k = 0; k < used; ++k) {
                const double slope =
                    sigmoid ? double{chosen[k]} * (1 - double{chosen[k]}) : double{chosen[k]};
                d[ids[k]] += static_cast<float>(slope * dscore(k));
            }
        });
    }

    void operator()(const program::GateRows&) {
        ForRows(out(0).rows,
                [&](int64_t row) { Copy(in(0), row, out(0), row, Sigmoid(in(1).floats()[row])); });
    }

    void operator()(const program::GateRowsGrad&) {
        auto* const scratch = ScratchOf(context_, team_.part).data();
        const int64_t cols = in(0).cols;
        const Operand dy{scratch, DType::kF32, 1, cols};
        const Operand x{scratch + cols * kFloat, DType::kF32, 1, cols};
        ForRows(in(0).rows, [&](int64_t row) {
            const float gate = Sigmoid(in(2).floats()[row]);
            Copy(in(0), row, dy, 0, 1);
            Copy(in(1), row, x, 0, 1);
            out(1).floats()[row] = Dot(dy.floats(), x.floats(), cols) * gate * (1 - gate);
            Copy(dy, 0, out(0), row, gate);
        });
    }

    // Sums over rows in order, each part those of its own experts.
    void operator()(const program::RouterLoad&) {
        const int64_t rows = in(0).rows, experts = in(0).cols;
        const Operand scores{buffers_.rows, DType::kF32, rows, experts};
        ForRows(rows, [&](int64_t row) {
            Scores(in(0).floats() + row * experts, experts, false, scores.floats() + row * experts);
        });
        team_.barrier();
        const kernels::Range mine = kernels::Share(experts, 1, team_.part, team_.parts);
        for (int64_t e = mine.begin; e < mine.end; ++e) {
            double sum = 0;
            for (int64_t row = 0; row < rows; ++row) {
                sum += double{scores.floats()[row * experts + e]};
            }
            const int32_t *begin = in(1).ints(), *end = begin + in(1).rows * in(1).cols;
            const auto count = static_cast<double>(std::count(begin, end, static_cast<int32_t>(e)));
            const bool first = call_.in.size() == 2;
            const float* before = first ? nullptr : in(2).floats();
            const double counts = first ? 0 : double{before[e]};
            const double sums = first ? 0 : double{before[experts + e]};
            out(0).floats()[e] = static_cast<float>(counts + count);
            out(0).floats()[experts + e] = static_cast<float>(sums + sum);
        }
    }

    void operator()(const program::RouterLoadGrad&) {
        const int64_t experts = in(1).cols;
        const float* dsums = in(0).floats() + experts;
        ForRows(in(1).rows, [&](int64_t row) {
            float* const d = out(0).floats() + row * experts;
            Scores(in(1).floats() + row * experts, experts, false, d);
            double across = 0;
            for (int64_t e = 0; e < experts; ++e) across += double{d[e]} * double{dsums[e]};
            for (int64_t e = 0; e < experts; ++e) {
                d[e] = static_cast<float>(double{d[e]} * (double{dsums[e]} - across));
            }
        });
    }

    void operator()(const program::LoadBalance& a) {
        if (team_.part != 0) return;
        const Balance balance = BalanceOf(in(0), a.used);
        double sum = 0;
        for (int64_t e = 0; e < balance.experts; ++e) {
            sum += double{balance.counts[e]} * double{balance.sums[e]};
        }
        buffers_.balance = balance.factor * sum;
        out(0).floats()[0] = static_cast<float>(buffers_.balance);
    }

    void operator()(const program::LoadBalanceGrad& a) {
        if (team_.part != 0) return;
        const Balance balance = BalanceOf(in(1), a.forward.used);
        const double factor = double{in(0).floats()[0]} * balance.factor;
        float* const d = out(0).floats();
        std::fill_n(d, balance.experts, 0.0f);
        for (int64_t e = 0; e < balance.experts; ++e) {
            d[balance.experts + e] = static_cast<float>(factor * double{balance.counts[e]});
        }
    }

    template <typename T>
    void operator()(const T&) {
        WEFT_CHECK(!"no op of experts");
    }

    // All slots in the order of their experts; made once for the ops of a layer.
    void Plan() {
        const Form form = FormOf(*call_.op);
        const program::ValueId ids = call_.op->inputs[form.ids];
        if (buffers_.ids == ids) return;
        team_.barrier();  // all have looked
        if (team_.part == 0) {
            const Operand& chosen = in(form.ids);
            kernels::PlanExpertsArgs args{chosen.ints(),     chosen.rows,          chosen.cols,
                                          form.first_expert, in(form.stack).count, {}};
            buffers_.begin.resize(static_cast<size_t>(args.count) + 1);
            buffers_.slots.resize(static_cast<size_t>(slots()));
            args.plan = {buffers_.begin.data(), buffers_.slots.data()};
            kernels::PlanExperts(args, 0, 1);
            buffers_.place.assign(static_cast<size_t>(slots()), -1);
            for (int32_t i = 0; i < buffers_.begin.back(); ++i) {
                buffers_.place[static_cast<size_t>(buffers_.slots[static_cast<size_t>(i)])] = i;
            }
            buffers_.ids = ids;
        }
        team_.barrier();
    }

  private:
    struct Balance {
        const float *counts, *sums;
        int64_t experts;
        double factor;
    };

    const Operand& in(size_t i) const { return call_.in[i]; }
    const Operand& out(size_t i) const { return call_.out[i]; }
    const Operand& ids() const { return in(FormOf(*call_.op).ids); }
    int64_t used() const { return ids().cols; }
    int64_t slots() const { return ids().rows * ids().cols; }
    int64_t held() const { return buffers_.begin.back(); }
    static int64_t BytesOf(const Operand& x) {
        return (RowBytes(x.dtype, x.rows * x.cols) + 63) / 64 * 64;
    }

    template <typename F>
    void ForRows(int64_t rows, const F& f) const {
        const kernels::Range range = kernels::Share(rows, 1, team_.part, team_.parts);
        for (int64_t row = range.begin; row < range.end; ++row) f(row);
    }

    // y = factor * x, row by row, in whatever types.
    void Copy(const Operand& x, int64_t from, const Operand& y, int64_t to, float factor) const {
        context_.dense->scale({x.matrix().From(from, 0), 1, x.cols, factor, y.matrix().From(to, 0)},
                              0, 1);
    }
    void Add(const Operand& x, int64_t from, const Operand& y, int64_t to) const {
        const dense::Matrix sum = y.matrix().From(to, 0);
        context_.dense->add({x.matrix().From(from, 0), sum, 1, x.cols, sum}, 0, 1);
    }

    // Floats of a row for each slot, `offset` bytes into the shared rows.
    Operand Floats(int64_t offset, int64_t cols) const {
        return {buffers_.rows + offset, DType::kF32, slots(), cols};
    }

    // Row i is the row of x of slot i's token, times the slot's weight where there are weights.
    Operand Gather(const Operand& x, int64_t offset, const float* weights = nullptr) const {
        const Operand gathered{buffers_.rows + offset, x.dtype, slots(), x.cols};
        ForRows(held(), [&](int64_t i) {
            const int64_t slot = buffers_.slots[static_cast<size_t>(i)];
            Copy(x, slot / used(), gathered, i, weights == nullptr ? 1.0f : weights[slot]);
        });
        team_.barrier();
        return gathered;
    }

    // out(0)[t] = base[t] + the sum over the slots of t, in their order, of weight * row.
    void AddUp(const Operand& rows, const float* weights, const Operand* base) const {
        ForRows(out(0).rows, [&](int64_t token) {
            int64_t first = -1;
            for (int64_t k = 0; k < used(); ++k) {
                const int64_t slot = token * used() + k;
                const int64_t at = buffers_.place[static_cast<size_t>(slot)];
                if (at < 0) continue;
                if (weights != nullptr) Copy(rows, at, rows, at, weights[slot]);
                if (first >= 0) Add(rows, at, rows, first);
                if (first < 0) first = at;
            }
            if (base != nullptr && first >= 0) Add(*base, token, rows, first);
            if (first >= 0) {
                Copy(rows, first, out(0), token, 1);
            } else if (base != nullptr) {
                Copy(*base, token, out(0), token, 1);
            } else {
                Clear(out(0), token, token + 1);
            }
        });
    }

    static void Clear(const Operand& y, int64_t begin, int64_t end) {
        const int64_t from = RowBytes(y.dtype, begin * y.cols);
        const int64_t to = RowBytes(y.dtype, end * y.cols);
        std::memset(y.data + from, 0, static_cast<size_t>(to - from));
    }
    // Rows that no expert of this rank has.
    void ClearRest(const Operand& y) const {
        ForRows(slots() - held(), [&](int64_t i) { Clear(y, held() + i, held() + i + 1); });
    }

    // f(an expert's matrix, its first row, its rows). A matrix of a block type is decoded first.
    template <typename F>
    void ForExperts(const F& f) const {
        const Operand& stack = in(FormOf(*call_.op).stack);
        const int64_t matrix_rows = stack.rows / stack.count;
        for (int64_t e = 0; e < stack.count; ++e) {
            const int64_t begin = buffers_.begin[static_cast<size_t>(e)];
            const int64_t count = buffers_.begin[static_cast<size_t>(e) + 1] - begin;
            if (count == 0) continue;
            if (call_.packed.data == nullptr) {
                f(RowsOf(stack, e * matrix_rows, matrix_rows), begin, count);
                continue;
            }
            const Operand matrix = RowsOf(stack, 0, matrix_rows);
            team_.barrier();
            UnpackRows(RowsOf(call_.packed, e * matrix_rows, matrix_rows), matrix, context_,
                       team_.part, team_.parts);
            team_.barrier();
            f(matrix, begin, count);
        }
    }

    void Multiply(const dense::GemmArgs& args) const {
        context_.dense->gemm(args, ScratchOf(context_, team_.part), team_.part, team_.parts);
    }
    // dw += dy^T . x
    void AddProduct(const Operand& dy, const Operand& x, const Operand& dw) const {
        dense::GemmArgs args = ProductArgs(dy, true, x, false, dw, context_.compute);
        args.accumulate = true;
        Multiply(args);
    }

    static float Sigmoid(float x) { return 1.0f / (1.0f + std::exp(-x)); }
    static void Scores(const float* logits, int64_t experts, bool sigmoid, float* scores) {
        if (sigmoid) {
            std::transform(logits, logits + experts, scores, Sigmoid);
            return;
        }
        const float most = *std::max_element(logits, logits + experts);
        double sum = 0;
        for (int64_t e = 0; e < experts; ++e) {
            scores[e] = std::exp(logits[e] - most);
            sum += double{scores[e]};
        }
        const auto inverse = static_cast<float>(1 / sum);
        for (int64_t e = 0; e < experts; ++e) scores[e] *= inverse;
    }
    // In eight sums, so that it runs in vectors.
    static float Dot(const float* a, const float* b, int64_t count) {
        float sums[8] = {};
        const int64_t whole = count / 8 * 8;
        for (int64_t i = 0; i < whole; i += 8) {
            for (int64_t j = 0; j < 8; ++j) sums[j] += a[i + j] * b[i + j];
        }
        for (int64_t i = whole; i < count; ++i) sums[i - whole] += a[i] * b[i];
        float sum = 0;
        for (const float part : sums) sum += part;
        return sum;
    }

    static Balance BalanceOf(const Operand& load, int64_t used) {
        const float* counts = load.floats();
        double choices = 0;
        for (int64_t e = 0; e < load.cols; ++e) choices += double{counts[e]};
        const double rows = std::max(choices / static_cast<double>(used), 1.0);
        return {counts, counts + load.cols, load.cols,
                static_cast<double>(load.cols) / (rows * rows)};
    }

    const TrainingCall& call_;
    const TrainingContext& context_;
    const OpTeam& team_;
    ExpertBuffers& buffers_;
};

int64_t Slots(const TrainingCall& call) {
    const Operand& ids = call.in[FormOf(*call.op).ids];
    return ids.rows * ids.cols;
}

}  // namespace

bool IsExpertOp(OpKind kind) {
    return HasMatrices(kind) || kind == OpKind::kRoute || kind == OpKind::kRouteGrad ||
           kind == OpKind::kGateRows || kind == OpKind::kGateRowsGrad ||
           kind == OpKind::kRouterLoad || kind == OpKind::kRouterLoadGrad ||
           kind == OpKind::kLoadBalance || kind == OpKind::kLoadBalanceGrad;
}

int64_t ExpertRowsBytes(const TrainingCall& call) {
    const OpKind kind = call.op->kind();
    if (kind == OpKind::kRouterLoad) return call.in[0].rows * call.in[0].cols * kFloat;
    if (!HasMatrices(kind)) return 0;
    const Operand& stack = call.in[FormOf(*call.op).stack];
    const int64_t both = kind == OpKind::kExpertSumGradInput ? stack.cols : 0;
    const int64_t cols = std::max(stack.cols, stack.rows / stack.count) + both;
    return Slots(call) * cols * kFloat + 64;
}

// (Of all slots as one expert's.)
int64_t ExpertScratchBytes(const TrainingCall& call, const TrainingContext& context) {
    const OpKind kind = call.op->kind();
    int64_t row = 0;
    if (kind == OpKind::kGateRowsGrad) row = 2 * call.in[0].cols * kFloat;
    if (!HasMatrices(kind)) return row;
    const Operand& stack = call.in[FormOf(*call.op).stack];
    const Operand matrix = RowsOf(stack, 0, stack.rows / stack.count);
    const Operand wide{nullptr, DType::kF32, Slots(call), matrix.rows};
    const Operand narrow{nullptr, DType::kF32, Slots(call), matrix.cols};
    const auto bytes = context.dense->gemm_scratch_bytes;
    const dense::GemmArgs products[] = {
        ProductArgs(narrow, false, matrix, true, wide, context.compute),
        ProductArgs(wide, false, matrix, false, narrow, context.compute),
        ProductArgs(wide, true, narrow, false, matrix, context.compute)};
    for (const dense::GemmArgs& product : products) row = std::max(row, bytes(product));
    return std::max(row, stack.cols * kFloat);
}

void ComputeExperts(const TrainingCall& call, const TrainingContext& context, const OpTeam& team) {
    Doer doer(call, context, team);
    if (HasMatrices(call.op->kind())) doer.Plan();
    call.op->attributes.Visit([&](const auto& a) { doer(a); });
}

}  // namespace weft::backend
