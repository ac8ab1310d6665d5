#include "backend/cpu/training_ops.h"

#include <algorithm>
#include <optional>
#include <type_traits>

#include "base/check.h"
#include "kernels/reference/backward.h"

namespace weft::backend {
namespace {

namespace dense = kernels::dense;
namespace ref = kernels::reference;
using Operand = TrainingOperand;
using program::OpKind;

// The matrix product that an op is; none for others. Weights are [n, k].
std::optional<dense::GemmArgs> ProductOf(const TrainingCall& call) {
    const auto args = [](const Operand& a, bool a_turned, const Operand& b, bool b_turned,
                         const Operand& c) {
        dense::GemmArgs g;
        g.a = {a.data, a_turned ? 1 : a.cols, a_turned ? a.cols : 1};
        g.b = {b.data, b_turned ? 1 : b.cols, b_turned ? b.cols : 1};
        g.c = c.matrix();
        g.m = c.rows;
        g.n = c.cols;
        g.k = a_turned ? a.rows : a.cols;
        return g;
    };
    if (call.op->kind() == OpKind::kMatMul) {  // y = x . W^T
        return args(call.in[0], false, call.in[1], true, call.out[0]);
    }
    if (call.op->kind() == OpKind::kMatMulGradInput) {  // dx = dy . W
        return args(call.in[0], false, call.in[1], false, call.out[0]);
    }
    if (call.op->kind() == OpKind::kMatMulGradWeight) {  // dW += dy^T . x
        dense::GemmArgs g = args(call.in[0], true, call.in[1], false, call.out[0]);
        g.accumulate = true;
        return g;
    }
    return std::nullopt;
}

dense::CausalArgs AttentionOf(const TrainingCall& call, const TrainingContext& context,
                              const program::Attention& a, size_t first, const Operand& out) {
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
            call.lse,
            call.lse_stride,
            context.compute};
}

std::optional<dense::CausalArgs> CausalOf(const TrainingCall& call,
                                          const TrainingContext& context) {
    const auto* a = std::get_if<program::Attention>(&call.op->attributes);
    if (a == nullptr) return std::nullopt;
    return AttentionOf(call, context, *a, 0, call.out[0]);
}

std::optional<dense::CausalGradArgs> CausalGradOf(const TrainingCall& call,
                                                  const TrainingContext& context) {
    const auto* a = std::get_if<program::AttentionGrad>(&call.op->attributes);
    if (a == nullptr) return std::nullopt;
    return dense::CausalGradArgs{AttentionOf(call, context, a->forward, 1, call.attended),
                                 call.in[0].matrix(), call.out[0].matrix(), call.out[1].matrix(),
                                 call.out[2].matrix()};
}

// One op: an overload for each kind, its operands in the order of program.h.
struct Doer {
    const TrainingCall& call;
    const TrainingContext& context;
    int part, parts;

    const Operand& in(size_t i) const { return call.in[i]; }
    const Operand& out(size_t i) const { return call.out[i]; }
    kernels::Range ShareOf(int64_t count) const { return kernels::Share(count, 1, part, parts); }

    // f(row) for this part's rows.
    template <typename F>
    void ForRows(int64_t rows, const F& f) const {
        const kernels::Range range = ShareOf(rows);
        for (int64_t row = range.begin; row < range.end; ++row) f(row);
    }

    void operator()(const program::Embedding& a) const {
        const Operand &tokens = in(0), &table = in(1), &y = out(0);
        ForRows(y.rows, [&](int64_t row) {
            float* to = y.data + row * y.cols;
            const int64_t at = tokens.ints()[row] - a.first_row;
            if (at < 0 || at >= table.rows) {
                std::fill_n(to, y.cols, 0.0f);
            } else {
                std::copy_n(table.data + at * table.cols, y.cols, to);
            }
        });
    }

    void operator()(const program::RmsNorm& a) const {
        dense::RmsNormArgs args;
        args.x = in(0).matrix();
        if (!a.plain) args.weight = in(1).data;
        args.eps = a.eps;
        args.rows = out(0).rows;
        args.cols = out(0).cols;
        args.group = a.group;
        args.y = out(0).matrix();
        context.dense->rms_norm(args, part, parts);
    }

    void operator()(const program::MatMul&) const { Multiply(*ProductOf(call)); }
    void operator()(const program::MatMulGradInput&) const { Multiply(*ProductOf(call)); }
    void operator()(const program::MatMulGradWeight&) const { Multiply(*ProductOf(call)); }

    void Multiply(dense::GemmArgs args) const {
        args.compute = context.compute;
        context.dense->gemm(args, Scratch(), part, parts);
    }
    std::span<std::byte> Scratch() const {
        const auto bytes = static_cast<size_t>(context.scratch_bytes);
        return context.scratch.subspan(static_cast<size_t>(part) * bytes, bytes);
    }

    void operator()(const program::Rope& a) const {
        dense::RopeArgs args;
        args.x = in(0).matrix();
        args.cos_sin = call.table;
        args.sign = a.sign;
        args.neighbours = a.neighbours;
        args.rows = in(0).rows;
        args.heads = in(0).cols / a.head_dim;
        args.head_dim = a.head_dim;
        args.rotary_dim = a.rotary_dim;
        args.y = out(0).matrix();
        context.dense->rope(args, part, parts);
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
            {in(0).matrix(), in(1).data, out(0).rows, out(0).cols, out(0).matrix()}, part, parts);
    }
    void operator()(const program::Scale& a) const {
        context.dense->scale(
            {in(0).matrix(), out(0).rows, out(0).cols, a.factor, out(0).matrix()}, part, parts);
    }

    void operator()(const program::SelectRows&) const {
        const int64_t cols = out(0).cols;
        ForRows(out(0).rows, [&](int64_t row) {
            std::copy_n(in(0).data + in(1).ints()[row] * cols, cols, out(0).data + row * cols);
        });
    }
    void operator()(const program::SelectRowsGrad&) const {
        ref::SelectRowsGrad({in(0).data, in(0).cols, in(1).ints(), in(0).rows, out(0).rows,
                             out(0).cols, out(0).data, out(0).cols},
                            part, parts);
    }

    void operator()(const program::Zero&) const {
        ForRows(out(0).rows, [&](int64_t row) {
            std::fill_n(out(0).data + row * out(0).cols, out(0).cols, 0.0f);
        });
    }
    void operator()(const program::SliceColumns& a) const {
        ForRows(out(0).rows, [&](int64_t row) {
            std::copy_n(in(0).data + row * in(0).cols + a.begin, out(0).cols,
                        out(0).data + row * out(0).cols);
        });
    }
    void operator()(const program::PadColumns& a) const {
        ForRows(out(0).rows, [&](int64_t row) {
            float* to = out(0).data + row * out(0).cols;
            std::fill_n(to, out(0).cols, 0.0f);
            std::copy_n(in(0).data + row * in(0).cols, in(0).cols, to + a.begin);
        });
    }

    // The gradient takes the logits' place at once, where the rows are in the cache; nothing else
    // reads them.
    void operator()(const program::SoftmaxCrossEntropy&) const {
        dense::LossArgs args;
        args.logits = in(0).data;
        args.logits_stride = args.cols = in(0).cols;
        args.targets = in(1).ints();
        args.rows = in(0).rows;
        args.dloss = context.loss_gradient;
        args.losses = context.losses;
        context.dense->loss(args, part, parts);
    }
    void operator()(const program::SoftmaxCrossEntropyGrad&) const {
        ForRows(out(0).rows, [&](int64_t row) {
            std::copy_n(in(1).data + row * in(1).cols, in(1).cols, out(0).data + row * out(0).cols);
        });
    }

    void operator()(const program::BiasGrad&) const {
        context.dense->bias_grad({in(0).matrix(), in(0).rows, in(0).cols, out(0).data}, part,
                                 parts);
    }

    dense::RmsNormGradArgs NormOf(float eps, int64_t group) const {
        dense::RmsNormGradArgs args;
        args.dy = in(0).matrix();
        args.x = in(1).matrix();
        args.cols = in(1).cols;
        args.rows = in(1).rows;
        args.eps = eps;
        args.group = group;
        return args;
    }
    void operator()(const program::RmsNormGradInput& a) const {
        dense::RmsNormGradArgs args = NormOf(a.eps, a.group);
        args.weight = in(2).data;
        args.dx = out(0).matrix();
        context.dense->norm_grad_input(args, part, parts);
    }
    void operator()(const program::RmsNormGradWeight& a) const {
        dense::RmsNormGradArgs args = NormOf(a.eps, a.group);
        args.dw = out(0).data;
        context.dense->norm_grad_weight(args, part, parts);
    }
    void operator()(const program::EmbeddingGrad& a) const {
        ref::EmbeddingGrad({in(0).data, in(0).cols, in(1).ints(), in(0).rows, a.first_row,
                            out(0).rows, in(0).cols, out(0).data},
                           part, parts);
    }
};

// The ops that Doer knows; the rest is refused before anything runs.
template <typename Attributes>
constexpr bool kComputes = std::is_invocable_v<const Doer&, const Attributes&>;

Status Gather(const TrainingCall& call, const program::AllGather& a, coll::Comm& comm,
              const net::OpTag& tag) {
    const TrainingOperand &x = call.in[0], &y = call.out[0];
    std::vector<size_t> bytes;
    for (const int64_t part : a.parts) bytes.push_back(static_cast<size_t>(part) * sizeof(float));
    for (int64_t row = 0; row < y.rows; ++row) {
        float* to = y.data + row * y.cols;
        std::copy_n(x.data + row * x.cols, x.cols, to + a.begin);
        const std::span<float> all(to, static_cast<size_t>(y.cols));
        WEFT_TRY(comm.AllGather(std::as_writable_bytes(all), bytes, tag));
    }
    return {};
}

}  // namespace

bool IsCommunication(OpKind kind) {
    return kind == OpKind::kAllReduce || kind == OpKind::kAllGather || kind == OpKind::kSend ||
           kind == OpKind::kRecv;
}

bool IsTrainingOp(const program::Op& op) {
    if (IsCommunication(op.kind())) return true;
    if (op.kind() == OpKind::kAttention) {
        const auto& a = op.as<program::Attention>();
        return op.inputs.size() == 3 && a.window == 0 && a.soft_cap == 0 && !a.sinks;
    }
    if (op.kind() == OpKind::kMatMul && op.inputs.size() == 3) return false;  // see train/graph.h
    if (op.kind() == OpKind::kRmsNorm && op.as<program::RmsNorm>().whole != 0) return false;
    return std::visit([](const auto& a) { return kComputes<std::decay_t<decltype(a)>>; },
                      op.attributes);
}

int64_t ScratchBytes(const TrainingCall& call, const TrainingContext& context) {
    if (const auto causal = CausalOf(call, context)) {
        return context.dense->causal_scratch_bytes(*causal);
    }
    if (const auto causal = CausalGradOf(call, context)) {
        return context.dense->causal_grad_scratch_bytes(*causal);
    }
    std::optional<dense::GemmArgs> product = ProductOf(call);
    if (!product) return 0;
    product->compute = context.compute;
    return context.dense->gemm_scratch_bytes(*product);
}

void Compute(const TrainingCall& call, const TrainingContext& context, int part, int parts) {
    const Doer doer{call, context, part, parts};
    std::visit(
        [&](const auto& a) {
            if constexpr (kComputes<std::decay_t<decltype(a)>>) {
                doer(a);
            } else {
                WEFT_CHECK(!"not for training");
            }
        },
        call.op->attributes);
}

Status Communicate(const TrainingCall& call, const TrainingContext& context) {
    net::OpTag tag;
    tag.op = program::OpName(call.op->kind());
    tag.step = context.step;
    const auto bytes = [](const TrainingOperand& x) {
        return std::as_writable_bytes(std::span(x.data, static_cast<size_t>(x.rows * x.cols)));
    };
    if (call.op->kind() == OpKind::kAllReduce) {
        const TrainingOperand &x = call.in[0], &y = call.out[0];
        const auto count = static_cast<size_t>(x.rows * x.cols);
        std::copy_n(x.data, count, y.data);
        return context.groups.tensor->AllReduce(std::span(y.data, count), tag);
    }
    if (const auto* gather = std::get_if<program::AllGather>(&call.op->attributes)) {
        return Gather(call, *gather, *context.groups.tensor, tag);
    }
    if (const auto* send = std::get_if<program::Send>(&call.op->attributes)) {
        return context.groups.world->Send(bytes(call.in[0]), send->peer, tag);
    }
    const auto& recv = call.op->as<program::Recv>();
    return context.groups.world->Recv(bytes(call.out[0]), recv.peer, tag);
}

}  // namespace weft::backend
