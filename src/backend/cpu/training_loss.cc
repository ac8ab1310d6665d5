#include "backend/cpu/training_loss.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"

namespace weft::backend {
namespace {

namespace dense = kernels::dense;
using program::OpKind;

// Of a chunk's logits: enough rows that packing the weight is a small part of a product.
constexpr int64_t kChunkBytes = 64 << 20;
constexpr int64_t kRowUnit = 32;
// Of a weight of a block type that is widened at a time.
constexpr int64_t kWidenedBytes = 8 << 20;

int64_t FloatBytes(int64_t count) {
    return count * static_cast<int64_t>(sizeof(float));
}
// As many rows of `row_bytes` as are in `bytes`, at least some.
int64_t RowsIn(int64_t bytes, int64_t row_bytes) {
    return std::max(bytes / row_bytes / kRowUnit, int64_t{1}) * kRowUnit;
}

struct Head {
    const TrainingOperand *x, *weight, *targets;
    const program::LinearCrossEntropy* attributes;
    bool gradient, packed;
    int64_t vocab() const { return weight->rows; }
    // Each chunk widens the weight anew: its logits may have half of what the whole would take.
    int64_t ChunkRows() const {
        int64_t bytes = kChunkBytes;
        if (packed) bytes = std::max(bytes, RowBytes(weight->dtype, vocab() * weight->cols) / 2);
        return std::min(RowsIn(bytes, FloatBytes(vocab())), x->rows);
    }
    // Rows of the weight that are multiplied at a time.
    int64_t BlockRows() const {
        return packed ? WidenedRows(vocab(), RowBytes(weight->dtype, weight->cols)) : vocab();
    }
    int64_t blocks() const { return (vocab() + BlockRows() - 1) / BlockRows(); }
};

Head HeadOf(const TrainingCall& call) {
    const bool gradient = call.op->kind() == OpKind::kLinearCrossEntropyGrad;
    const size_t first = gradient ? 1 : 0;
    const auto* attributes = gradient ? &call.op->as<program::LinearCrossEntropyGrad>().forward
                                      : &call.op->as<program::LinearCrossEntropy>();
    return {&call.in[first], &call.in[first + 1],        &call.in[first + 2], attributes,
            gradient,        call.packed.data != nullptr};
}

TrainingOperand RowRange(const TrainingOperand& x, int64_t begin, int64_t count) {
    TrainingOperand rows = x;
    rows.data += RowBytes(x.dtype, begin * x.cols);
    rows.rows = count;
    return rows;
}

// One chunk of rows: its products.
class Chunk {
  public:
    Chunk(const TrainingCall& call, const TrainingContext& context, int64_t begin)
        : call_(call), context_(context), head_(HeadOf(call)), begin_(begin) {
        const int64_t count = std::min(head_.ChunkRows(), head_.x->rows - begin);
        x_ = RowRange(*head_.x, begin, count);
        logits_ = {reinterpret_cast<std::byte*>(context.logits), DType::kF32, count, head_.vocab()};
    }

    int64_t rows() const { return x_.rows; }
    // Their products with block b of the weight.
    dense::GemmArgs Logits(int64_t b) const {
        const TrainingOperand weight = Block(b);
        dense::GemmArgs args = ProductArgs(x_, false, weight, true, logits_, context_.compute);
        args.c = args.c.From(0, b * head_.BlockRows());
        args.n = weight.rows;
        return args;
    }
    dense::GemmArgs GradInput(int64_t b) const {
        const TrainingOperand weight = Block(b);
        dense::GemmArgs args =
            ProductArgs(logits_, false, weight, false, GradSum(), context_.compute);
        args.a.data = logits_.floats() + b * head_.BlockRows();
        args.k = weight.rows;
        args.accumulate = b > 0;
        return args;
    }
    // Fills block b's place, which all blocks of a packed weight share.
    void Widen(int64_t b, const OpTeam& team) const {
        const TrainingOperand block = Block(b);
        const TrainingOperand from = RowRange(call_.packed, b * head_.BlockRows(), block.rows);
        UnpackRows(from, block, context_, team.part, team.parts);
    }
    // The sum over all blocks, to where it belongs.
    void PutGradient(const OpTeam& team) const {
        const TrainingOperand to = Gradient(), from = GradSum();
        if (from.data == to.data) return;
        const dense::ScaleArgs args = {from.matrix(), rows(), to.cols, 1, to.matrix()};
        context_.dense->scale(args, team.part, team.parts);
    }
    dense::GemmArgs GradWeight() const {
        dense::GemmArgs args =
            ProductArgs(logits_, true, x_, false, call_.out[1], context_.compute);
        args.accumulate = true;
        return args;
    }
    dense::LossArgs Loss() const {
        dense::LossArgs args;
        args.logits = context_.logits;
        args.logits_stride = args.cols = head_.vocab();
        args.targets = head_.targets->ints() + begin_;
        args.rows = rows();
        args.dloss = context_.loss_gradient;
        args.losses = context_.losses + begin_;
        return args;
    }

    // The loss over all ranks' logits. The kernel gives the softmax over this rank's own, less
    // one in column 0 (its target here); a row's factor makes it the softmax over all.
    Status CutLoss(const OpTeam& team) const {
        dense::LossArgs args = Loss();
        const auto count = static_cast<size_t>(rows());
        LossBuffers& buffers = *context_.loss_buffers;
        if (team.part == 0) Prepare(buffers, args);
        team.barrier();
        dense::LossArgs own = args;
        own.targets = buffers.zeros.data();
        own.dloss = 1;
        context_.dense->loss(own, team.part, team.parts);
        team.barrier();
        Status status;
        if (team.part == 0) {
            status = Join(buffers, args);
            buffers.failed = !status.ok();
        }
        team.barrier();
        if (buffers.failed) return status;
        const kernels::Range range =
            kernels::Share(static_cast<int64_t>(count), 1, team.part, team.parts);
        for (int64_t row = range.begin; row < range.end; ++row) ScaleRow(buffers, args, row);
        return {};
    }

    // The first row's logits over all ranks' vocabulary.
    Status Predict(LossBuffers& buffers) const {
        const auto own = static_cast<size_t>(head_.vocab());
        if (head_.attributes->cut == program::Cut::kNone) {
            buffers.predicted.assign(context_.logits, context_.logits + own);
            return {};
        }
        coll::Comm& tensor = *context_.groups.tensor;
        net::OpTag tag;
        tag.op = "logits";
        tag.step = context_.step;
        const auto ranks = static_cast<size_t>(tensor.size());
        std::vector<size_t> counts(ranks), bytes(ranks, sizeof(size_t));
        counts[static_cast<size_t>(tensor.rank())] = own;
        WEFT_TRY(tensor.AllGather(std::as_writable_bytes(std::span(counts)), bytes, tag));
        const auto first = static_cast<size_t>(head_.attributes->first_row);
        buffers.predicted.resize(std::accumulate(counts.begin(), counts.end(), size_t{0}));
        WEFT_CHECK(first + own <= buffers.predicted.size());
        std::copy_n(context_.logits, own, buffers.predicted.data() + first);
        for (size_t r = 0; r < ranks; ++r) bytes[r] = counts[r] * sizeof(float);
        return tensor.AllGather(std::as_writable_bytes(std::span(buffers.predicted)), bytes, tag);
    }

  private:
    TrainingOperand Block(int64_t b) const {
        TrainingOperand block = *head_.weight;
        block.rows = std::min(head_.BlockRows(), head_.vocab() - b * head_.BlockRows());
        return block;
    }
    TrainingOperand Gradient() const { return RowRange(call_.out[0], begin_, rows()); }
    // Blocks are summed up in float32, behind the logits.
    TrainingOperand GradSum() const {
        if (head_.blocks() == 1) return Gradient();
        auto* const behind = logits_.floats() + head_.ChunkRows() * head_.vocab();
        return {reinterpret_cast<std::byte*>(behind), DType::kF32, rows(), head_.weight->cols};
    }

    int64_t Local(int64_t row) const {
        return head_.targets->ints()[begin_ + row] - head_.attributes->first_row;
    }

    void Prepare(LossBuffers& buffers, const dense::LossArgs& args) const {
        const auto count = static_cast<size_t>(rows());
        buffers.zeros.assign(count, 0);
        buffers.firsts.resize(count);
        buffers.scales.resize(count);
        buffers.stats.resize(static_cast<size_t>(context_.groups.tensor->size()) * count * 2);
        float* mine = Mine(buffers);
        for (int64_t row = 0; row < rows(); ++row) {
            const float* logits = args.logits + row * args.cols;
            const int64_t target = Local(row);
            buffers.firsts[static_cast<size_t>(row)] = logits[0];
            mine[row * 2 + 1] = target >= 0 && target < args.cols ? logits[target] : 0.0f;
        }
    }
    float* Mine(LossBuffers& buffers) const {
        return buffers.stats.data() + context_.groups.tensor->rank() * rows() * 2;
    }

    // All ranks' (log of the sum, logit of the target) of each row; from these the row's loss, and
    // its factor.
    Status Join(LossBuffers& buffers, const dense::LossArgs& args) const {
        coll::Comm& tensor = *context_.groups.tensor;
        float* mine = Mine(buffers);
        for (int64_t row = 0; row < rows(); ++row) {
            mine[row * 2] = args.losses[row] + buffers.firsts[static_cast<size_t>(row)];
        }
        net::OpTag tag;
        tag.op = "linear_cross_entropy";
        tag.step = context_.step;
        const std::vector<size_t> bytes(static_cast<size_t>(tensor.size()),
                                        static_cast<size_t>(rows()) * 2 * sizeof(float));
        WEFT_TRY(tensor.AllGather(std::as_writable_bytes(std::span(buffers.stats)), bytes, tag));
        for (int64_t row = 0; row < rows(); ++row) {
            const auto of = [&](int rank) {
                return buffers.stats.data() + (rank * rows() + row) * 2;
            };
            double most = -INFINITY, sum = 0, target = 0;
            for (int r = 0; r < tensor.size(); ++r) most = std::max(most, double{of(r)[0]});
            for (int r = 0; r < tensor.size(); ++r) {
                sum += std::exp(double{of(r)[0]} - most);
                target += double{of(r)[1]};
            }
            const double all = most + std::log(sum);
            args.losses[row] = static_cast<float>(all - target);
            buffers.scales[static_cast<size_t>(row)] =
                static_cast<float>(std::exp(double{mine[row * 2]} - all)) * args.dloss;
        }
        return {};
    }

    void ScaleRow(const LossBuffers& buffers, const dense::LossArgs& args, int64_t row) const {
        float* logits = args.logits + row * args.cols;
        const float scale = buffers.scales[static_cast<size_t>(row)];
        logits[0] += 1;
        for (int64_t col = 0; col < args.cols; ++col) logits[col] *= scale;
        const int64_t target = Local(row);
        if (target >= 0 && target < args.cols) logits[target] -= args.dloss;
    }

    const TrainingCall& call_;
    const TrainingContext& context_;
    const Head head_;
    const int64_t begin_;
    TrainingOperand x_, logits_;
};

}  // namespace

bool IsLossOp(OpKind kind) {
    return kind == OpKind::kLinearCrossEntropy || kind == OpKind::kLinearCrossEntropyGrad;
}

int64_t WidenedRows(int64_t rows, int64_t row_bytes) {
    return std::min(RowsIn(kWidenedBytes, row_bytes), rows);
}

int64_t LogitsBytes(const TrainingCall& call) {
    if (!IsLossOp(call.op->kind())) return 0;
    const Head head = HeadOf(call);
    const int64_t sums = head.gradient && head.blocks() > 1 ? head.weight->cols : 0;
    return FloatBytes(head.ChunkRows() * (head.vocab() + sums));
}

int64_t LossScratchBytes(const TrainingCall& call, const TrainingContext& context) {
    const Chunk chunk(call, context, 0);
    const auto bytes = context.dense->gemm_scratch_bytes;
    int64_t most = bytes(chunk.Logits(0));
    if (!HeadOf(call).gradient) return most;
    most = std::max(most, bytes(chunk.GradInput(0)));
    return call.out.size() == 2 ? std::max(most, bytes(chunk.GradWeight())) : most;
}

Status ComputeLoss(const TrainingCall& call, const TrainingContext& context, const OpTeam& team) {
    const Head head = HeadOf(call);
    if (!head.gradient && !context.evaluates) return {};
    const auto multiply = [&](const dense::GemmArgs& args) {
        context.dense->gemm(args, ScratchOf(context, team.part), team.part, team.parts);
    };
    const auto with_block = [&](const Chunk& chunk, int64_t b) {
        if (!head.packed) return;
        chunk.Widen(b, team);
        team.barrier();
    };
    for (int64_t begin = 0; begin < head.x->rows; begin += head.ChunkRows()) {
        const Chunk chunk(call, context, begin);
        for (int64_t b = 0; b < head.blocks(); ++b) {
            with_block(chunk, b);
            multiply(chunk.Logits(b));
            team.barrier();
        }
        if (context.predicts) {
            return team.part == 0 ? chunk.Predict(*context.loss_buffers) : Status();
        }
        if (head.attributes->cut == program::Cut::kNone) {
            context.dense->loss(chunk.Loss(), team.part, team.parts);
        } else {
            const Status status = chunk.CutLoss(team);
            if (context.loss_buffers->failed) return status;
        }
        team.barrier();
        if (!head.gradient) continue;
        for (int64_t b = 0; b < head.blocks(); ++b) {
            with_block(chunk, b);
            multiply(chunk.GradInput(b));
            team.barrier();
        }
        if (call.out.size() == 2) multiply(chunk.GradWeight());
        chunk.PutGradient(team);
        team.barrier();
    }
    return {};
}

}  // namespace weft::backend
