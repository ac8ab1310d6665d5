// Hyper-connections: the weights of residual streams, and the streams' sums and mixtures. The
// weights of AltUp's streams (Gemma 3n).
#include <cstdint>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/products.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;

struct StreamWeightsArgs {
    uint64_t logits = 0, base = 0, scale = 0, y = 0;
    uint32_t cols = 0, iterations = 0;
    float eps = 0, magnitude = 0;
};
// stream_weights.comp.
enum class Weighing : uint32_t { kConnect, kPredict, kCorrect };
static_assert(program::kMostStreams * program::kMostStreams <= 64);  // the kernel's workgroup

// streams.comp.
enum class Mode : uint32_t { kMerge, kMix, kKeep, kSpread, kScale };
struct StreamsArgs {
    uint64_t x = 0, weights = 0, update = 0, y = 0;
    uint32_t cols = 0, weight_cols = 0;
};

// cols: of a stream.
Status RunStreams(const Emitter& e, const Operands& io, Mode mode, int64_t streams,
                  StreamsArgs args, int64_t cols, int64_t rows) {
    const uint32_t size = GroupSize(e.gpu());
    args.cols = static_cast<uint32_t>(cols);
    return io.Run("streams", {size, streams, mode}, args, {CeilDiv(cols, size), rows, 1});
}

// An op that weighs x by a matrix or a row of weights.
Status RunWeighed(Emitter& e, const Op& op, Mode mode, int64_t streams, int64_t weight_cols) {
    const program::ValueId y = op.outputs[0];
    Operands io(e);
    StreamsArgs args;
    args.x = io.Reads(op.inputs[0]);
    args.weights = io.Reads(op.inputs[1]);
    args.weight_cols = static_cast<uint32_t>(weight_cols);
    args.y = io.Writes(y);
    return RunStreams(e, io, mode, streams, args, e.Cols(y), e.Rows(y));
}

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::StreamWeights& a) {
    Operands io(e);
    StreamWeightsArgs args;
    args.logits = io.Reads(op.inputs[0]);
    args.base = io.Reads(op.inputs[1]);
    args.scale = io.Reads(op.inputs[2]);
    args.y = io.Writes(op.outputs[0]);
    args.cols = static_cast<uint32_t>(e.Cols(op.outputs[0]));
    args.iterations = static_cast<uint32_t>(a.iterations);
    args.eps = a.eps;
    args.magnitude = a.magnitude;
    return io.Run("stream_weights", {64, a.streams, Weighing::kConnect}, args,
                  {1, e.Rows(op.outputs[0]), 1});
}

Status Lower(Emitter& e, const Op& op, const program::AltUpWeights& a) {
    Operands io(e);
    StreamWeightsArgs args;
    args.logits = io.Reads(op.inputs[0]);
    args.y = io.Writes(op.outputs[0]);
    args.cols = static_cast<uint32_t>(e.Cols(op.outputs[0]));
    const Weighing how = a.corrects ? Weighing::kCorrect : Weighing::kPredict;
    return io.Run("stream_weights", {64, a.streams, how}, args, {1, e.Rows(op.outputs[0]), 1});
}

Status Lower(Emitter& e, const Op& op, const program::MergeStreams& a) {
    return RunWeighed(e, op, Mode::kMerge, a.streams, e.Cols(op.inputs[1]));
}

Status Lower(Emitter& e, const Op& op, const program::MixStreams& a) {
    const program::ValueId update = op.inputs.back(), y = op.outputs[0];
    Operands io(e);
    StreamsArgs args;
    Mode mode = Mode::kSpread;
    if (op.inputs.size() > 1) {
        mode = e.Cols(op.inputs[1]) == 2 * a.streams ? Mode::kKeep : Mode::kMix;
        args.x = io.Reads(op.inputs[0]);
        args.weights = io.Reads(op.inputs[1]);
        args.weight_cols = static_cast<uint32_t>(e.Cols(op.inputs[1]));
    }
    args.update = io.Reads(update);
    args.y = io.Writes(y);
    return RunStreams(e, io, mode, a.streams, args, e.Cols(update), e.Rows(y));
}

Status Lower(Emitter& e, const Op& op, const program::ScaleColumns&) {
    return RunWeighed(e, op, Mode::kScale, 1, e.Cols(op.inputs[0]));
}

}  // namespace weft::backend::on_gpu
