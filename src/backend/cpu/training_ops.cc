#include "backend/cpu/training_ops.h"

#include <algorithm>
#include <cstring>
#include <optional>
#include <type_traits>

#include "backend/cpu/training_experts.h"
#include "backend/cpu/training_loss.h"
#include "base/check.h"
#include "program/timeline.h"
#include "tensor/encode.h"
#include "tensor/half.h"

namespace weft::backend {
namespace {

namespace dense = kernels::dense;
using Operand = TrainingOperand;
using program::OpKind;

// The matrix product that an op is; none for others. Weights are [n, k].
std::optional<dense::GemmArgs> ProductOf(const TrainingCall& call, dense::Compute compute) {
    const auto& in = call.in;
    const auto& out = call.out;
    if (call.op->kind() == OpKind::kMatMul) {  // y = x . W^T
        return ProductArgs(in[0], false, in[1], true, out[0], compute);
    }
    if (call.op->kind() == OpKind::kMatMulGradInput) {  // dx = dy . W
        return ProductArgs(in[0], false, in[1], false, out[0], compute);
    }
    if (call.op->kind() == OpKind::kMatMulGradWeight) {  // dW += dy^T . x
        dense::GemmArgs g = ProductArgs(in[0], true, in[1], false, out[0], compute);
        g.accumulate = true;
        return g;
    }
    return std::nullopt;
}

// Operands from `first` on are q, k and v.
dense::CausalArgs AttentionOf(const TrainingCall& call, const TrainingContext& context,
                              const program::Attention& a, size_t first, const Operand& out,
                              const Operand& lse) {
    return {context.sequences,
            call.in[first].matrix(),
            call.in[first + 1].matrix(),
            call.in[first + 2].matrix(),
            a.heads,
            a.kv_heads,
            a.head_dim,
            a.first_head,
            a.group,
            a.first_kv_head,
            a.scale,
            out.matrix(),
            lse.floats(),
            lse.rows,
            context.compute,
            a.window,
            a.soft_cap};
}

std::optional<dense::CausalArgs> CausalOf(const TrainingCall& call,
                                          const TrainingContext& context) {
    const auto* a = call.op->attributes.If<program::Attention>();
    if (a == nullptr) return std::nullopt;
    // (Where nothing before it is trained, no gradient goes through it, and it has no lse.)
    const bool keeps = call.out.size() == 2;
    return AttentionOf(call, context, *a, 0, call.out[0], keeps ? call.out[1] : Operand{});
}

std::optional<dense::CausalGradArgs> CausalGradOf(const TrainingCall& call,
                                                  const TrainingContext& context) {
    const auto* a = call.op->attributes.If<program::AttentionGrad>();
    if (a == nullptr) return std::nullopt;
    return dense::CausalGradArgs{AttentionOf(call, context, a->forward, 1, call.in[4], call.in[5]),
                                 call.in[0].matrix(), call.out[0].matrix(), call.out[1].matrix(),
                                 call.out[2].matrix()};
}

std::span<const std::byte> BytesOfRows(const Operand& x, int64_t row, int64_t rows) {
    const int64_t bytes = RowBytes(x.dtype, x.cols);
    return {x.data + row * bytes, static_cast<size_t>(rows * bytes)};
}

// One op: an overload for each kind, its operands in the order of program.h.
struct OpDoer {
    const TrainingCall& call;
    const TrainingContext& context;
    int part, parts;

    const Operand& in(size_t i) const { return call.in[i]; }
    const Operand& out(size_t i) const { return call.out[i]; }

    // f(row) for this part's rows.
    template <typename F>
    void ForRows(int64_t rows, const F& f) const {
        const kernels::Range range = kernels::Share(rows, 1, part, parts);
        for (int64_t row = range.begin; row < range.end; ++row) f(row);
    }
    // y = x, row by row, in whatever types.
    void CopyRow(const Operand& x, int64_t from, const Operand& y, int64_t to, int64_t col = 0,
                 int64_t into = 0) const {
        const int64_t cols = std::min(x.cols, y.cols);
        context.dense->scale({x.matrix().From(from, col), 1, cols, 1, y.matrix().From(to, into)}, 0,
                             1);
    }
    static void ClearRow(const Operand& y, int64_t row) {
        const int64_t bytes = RowBytes(y.dtype, y.cols);
        std::memset(y.data + row * bytes, 0, static_cast<size_t>(bytes));
    }

    void operator()(const program::Embedding& a) const {
        const Operand &tokens = in(0), &table = in(1), &y = out(0);
        ForRows(y.rows, [&](int64_t row) {
            const int64_t at = tokens.ints()[row] - a.first_row;
            if (at < 0 || at >= table.rows) {
                ClearRow(y, row);
            } else if (Info(table.dtype).quantized) {
                WEFT_CHECK(y.dtype == DType::kF32);
                Decode(table.dtype, BytesOfRows(table, at, 1),
                       std::span(y.floats() + row * y.cols, static_cast<size_t>(y.cols)),
                       context.level);
            } else {
                CopyRow(table, at, y, row);
            }
        });
    }

    // Rows of one token are added up first, so that each row of the table is rounded once.
    void operator()(const program::EmbeddingGrad& a) const {
        const Operand &dy = in(0), &tokens = in(1), &table = out(0);
        auto* sum = reinterpret_cast<float*>(Scratch().data());
        const dense::Matrix sums{sum, table.cols};
        for (int64_t first = 0; first < dy.rows; ++first) {
            const int64_t at = tokens.ints()[first] - a.first_row;
            const bool mine = at >= 0 && at < table.rows && at % parts == part;
            if (!mine || !context.chains.is_first[static_cast<size_t>(first)]) continue;
            std::fill_n(sum, table.cols, 0.0f);
            for (int32_t i = static_cast<int32_t>(first); i >= 0;
                 i = context.chains.next[static_cast<size_t>(i)]) {
                context.dense->add({sums, dy.matrix().From(i, 0), 1, table.cols, sums}, 0, 1);
            }
            const dense::Matrix to = table.matrix().From(at, 0);
            context.dense->add({to, sums, 1, table.cols, to}, 0, 1);
        }
    }

    void operator()(const program::RmsNorm& a) const {
        context.dense->rms_norm({in(0).matrix(), a.plain ? nullptr : in(1).floats(), a.eps,
                                 out(0).rows, out(0).cols, a.group, out(0).matrix()},
                                part, parts);
    }
    dense::RmsNormGradArgs NormOf(float eps, int64_t group) const {
        dense::RmsNormGradArgs args;
        args.dy = in(0).matrix();
        args.x = in(1).matrix();
        args.eps = eps;
        args.rows = in(1).rows;
        args.cols = in(1).cols;
        args.group = group;
        return args;
    }
    void operator()(const program::RmsNormGradInput& a) const {
        dense::RmsNormGradArgs args = NormOf(a.eps, a.group);
        args.weight = in(2).floats();
        args.dx = out(0).matrix();
        context.dense->norm_grad_input(args, part, parts);
    }
    void operator()(const program::RmsNormGradWeight& a) const {
        dense::RmsNormGradArgs args = NormOf(a.eps, a.group);
        args.dw = out(0).floats();
        context.dense->norm_grad_weight(args, part, parts);
    }

    void operator()(const program::MatMul&) const { Multiply(); }
    void operator()(const program::MatMulGradInput&) const { Multiply(); }
    void operator()(const program::MatMulGradWeight&) const { Multiply(); }
    void Multiply() const {
        context.dense->gemm(*ProductOf(call, context.compute), Scratch(), part, parts);
    }
    std::span<std::byte> Scratch() const { return ScratchOf(context, part); }

    void operator()(const program::Rope& a) const {
        context.dense->rope({in(0).matrix(), call.table, a.sign, a.neighbours, in(0).rows,
                             in(0).cols / a.head_dim, a.head_dim, a.rotary_dim, out(0).matrix()},
                            part, parts);
    }

    void operator()(const program::Attention&) const {
        context.dense->causal(*CausalOf(call, context), Scratch(), part, parts);
    }
    void operator()(const program::AttentionGrad&) const {
        context.dense->causal_grad(*CausalGradOf(call, context), Scratch(), part, parts);
    }

    void operator()(const program::Glu& a) const {
        context.dense->glu({in(0).matrix(), in(1).matrix(), out(0).rows, out(0).cols,
                            out(0).matrix(), a.activation},
                           part, parts);
    }
    void operator()(const program::GluGrad& a) const {
        context.dense->glu_grad({in(0).matrix(), in(1).matrix(), in(2).matrix(), in(0).rows,
                                 in(0).cols, out(0).matrix(), out(1).matrix(), a.activation},
                                part, parts);
    }

    void operator()(const program::Add&) const {
        context.dense->add(
            {in(0).matrix(), in(1).matrix(), out(0).rows, out(0).cols, out(0).matrix()}, part,
            parts);
    }
    void operator()(const program::AddBias&) const {
        context.dense->add_bias(
            {in(0).matrix(), in(1).floats(), out(0).rows, out(0).cols, out(0).matrix()}, part,
            parts);
    }
    void operator()(const program::BiasGrad&) const {
        context.dense->bias_grad({in(0).matrix(), in(0).rows, in(0).cols, out(0).floats()}, part,
                                 parts);
    }
    void operator()(const program::Scale& a) const {
        context.dense->scale({in(0).matrix(), out(0).rows, out(0).cols, a.factor, out(0).matrix()},
                             part, parts);
    }

    void operator()(const program::SelectRows&) const {
        ForRows(out(0).rows, [&](int64_t row) { CopyRow(in(0), in(1).ints()[row], out(0), row); });
    }
    // Each row was selected at most once.
    void operator()(const program::SelectRowsGrad&) const {
        ForRows(out(0).rows, [&](int64_t row) {
            const int32_t *begin = in(1).ints(), *end = begin + in(0).rows;
            const int32_t* found = std::lower_bound(begin, end, static_cast<int32_t>(row));
            if (found == end || *found != row) {
                ClearRow(out(0), row);
            } else {
                CopyRow(in(0), found - begin, out(0), row);
            }
        });
    }

    void operator()(const program::Zero&) const {
        const Operand& y = out(0);
        const int64_t bytes = RowBytes(y.dtype, y.rows * y.cols);
        const kernels::Range range = kernels::Share(bytes, 4096, part, parts);
        std::memset(y.data + range.begin, 0, static_cast<size_t>(range.end - range.begin));
    }
    void operator()(const program::SliceRows&) const {
        const int64_t begin = FirstRow(in(0).rows, *context.groups.tensor);
        ForRows(out(0).rows, [&](int64_t row) { CopyRow(in(0), begin + row, out(0), row); });
    }
    void operator()(const program::SliceColumns& a) const {
        ForRows(out(0).rows, [&](int64_t row) { CopyRow(in(0), row, out(0), row, a.begin); });
    }
    void operator()(const program::PadColumns& a) const {
        ForRows(out(0).rows, [&](int64_t row) {
            ClearRow(out(0), row);
            CopyRow(in(0), row, out(0), row, 0, a.begin);
        });
    }

    // The gradient takes the logits' place at once, where the rows are in the cache; nothing else
    // reads them.
    void operator()(const program::SoftmaxCrossEntropy&) const {
        if (context.predicts) {
            const float* row = in(0).floats();
            if (part == 0) context.loss_buffers->predicted.assign(row, row + in(0).cols);
            return;
        }
        dense::LossArgs args;
        args.logits = in(0).floats();
        args.logits_stride = args.cols = in(0).cols;
        args.targets = in(1).ints();
        args.rows = in(0).rows;
        args.dloss = context.loss_gradient;
        args.losses = context.losses;
        context.dense->loss(args, part, parts);
    }
    void operator()(const program::SoftmaxCrossEntropyGrad&) const {
        ForRows(out(0).rows, [&](int64_t row) { CopyRow(in(1), row, out(0), row); });
    }
};

// The ops that OpDoer knows; the rest is refused before anything runs.
template <typename Attributes>
constexpr bool kComputes = std::is_invocable_v<const OpDoer&, const Attributes&>;

int64_t ScratchOfOp(const TrainingCall& call, const TrainingContext& context) {
    if (const auto causal = CausalOf(call, context)) {
        return context.dense->causal_scratch_bytes(*causal);
    }
    if (const auto causal = CausalGradOf(call, context)) {
        return context.dense->causal_grad_scratch_bytes(*causal);
    }
    if (IsLossOp(call.op->kind())) return LossScratchBytes(call, context);
    if (IsExpertOp(call.op->kind())) return ExpertScratchBytes(call, context);
    if (call.op->kind() == OpKind::kEmbeddingGrad) {
        return call.out[0].cols * static_cast<int64_t>(sizeof(float));
    }
    const std::optional<dense::GemmArgs> product = ProductOf(call, context.compute);
    return product ? context.dense->gemm_scratch_bytes(*product) : 0;
}

}  // namespace

kernels::dense::GemmArgs ProductArgs(const TrainingOperand& a, bool a_turned,
                                     const TrainingOperand& b, bool b_turned,
                                     const TrainingOperand& c, kernels::dense::Compute compute) {
    dense::GemmArgs g;
    g.a = {a.data, a_turned ? 1 : a.cols, a_turned ? a.cols : 1, a.element()};
    g.b = {b.data, b_turned ? 1 : b.cols, b_turned ? b.cols : 1, b.element()};
    g.c = c.matrix();
    g.m = c.rows;
    g.n = c.cols;
    g.k = a_turned ? a.rows : a.cols;
    g.compute = compute;
    return g;
}

std::span<std::byte> ScratchOf(const TrainingContext& context, int part) {
    const auto bytes = static_cast<size_t>(context.scratch_bytes);
    return context.scratch.subspan(static_cast<size_t>(part) * bytes, bytes);
}

bool IsTrainingOp(const program::Op& op) {
    const bool others =
        IsLossOp(op.kind()) || IsExpertOp(op.kind()) || program::IsOfUpdate(op.kind());
    if (program::IsTransfer(op.kind()) || others) return true;
    if (op.kind() == OpKind::kAttention) {
        const auto& a = op.as<program::Attention>();
        return op.inputs.size() == 3 && !a.sinks;
    }
    if (op.kind() == OpKind::kMatMul && op.inputs.size() == 3) return false;  // see train/graph.h
    if (op.kind() == OpKind::kRmsNorm && op.as<program::RmsNorm>().whole != 0) return false;
    return op.attributes.Visit([](const auto& a) { return kComputes<std::decay_t<decltype(a)>>; });
}

void Unpack(const TrainingCall& call, const TrainingContext& context, int part, int parts) {
    UnpackRows(call.packed, call.in[*program::WeightInput(call.op->kind())], context, part, parts);
}

void UnpackRows(const TrainingOperand& from, const TrainingOperand& to,
                const TrainingContext& context, int part, int parts) {
    const kernels::Range share = kernels::Share(from.rows, 1, part, parts);
    const auto cols = static_cast<size_t>(from.cols);
    auto* const row_floats = reinterpret_cast<float*>(ScratchOf(context, part).data());
    for (int64_t row = share.begin; row < share.end; ++row) {
        const bool direct = to.dtype == DType::kF32;
        float* const floats = direct ? to.floats() + row * to.cols : row_floats;
        Decode(from.dtype, BytesOfRows(from, row, 1), std::span(floats, cols), context.level);
        if (direct) continue;
        const dense::Matrix wide{floats, from.cols};
        context.dense->scale({wide, 1, from.cols, 1, to.matrix().From(row, 0)}, 0, 1);
    }
}

int64_t ScratchBytes(const TrainingCall& call, const TrainingContext& context) {
    const int64_t row = call.packed.cols * static_cast<int64_t>(sizeof(float));
    return std::max(row, ScratchOfOp(call, context));
}

void Compute(const TrainingCall& call, const TrainingContext& context, int part, int parts) {
    const OpDoer doer{call, context, part, parts};
    call.op->attributes.Visit([&](const auto& a) {
        if constexpr (kComputes<std::decay_t<decltype(a)>>) {
            doer(a);
        } else {
            WEFT_CHECK(!"not for training");
        }
    });
}

Status Communicate(const TrainingCall& call, const TrainingContext& context) {
    const HostValue none;
    net::OpTag tag;
    tag.op = program::OpName(call.op->kind());
    tag.step = context.step;
    return RunTransfer(*call.op, call.in.empty() ? none : call.in[0],
                       call.out.empty() ? none : call.out[0], context.groups, tag);
}

}  // namespace weft::backend
