// Lowers the ops of hyper-connections and of the pooling of windows.
#pragma once

#include "backend/cpu/latent_calls.h"
#include "kernels/pool_windows.h"
#include "kernels/streams.h"

namespace weft::backend {

class StreamCalls : protected LatentCalls {
  protected:
    using LatentCalls::LatentCalls;
    using LatentCalls::Lower;

    Status Lower(const Op& op, const program::StreamWeights& a) {
        CallOf<kernels::StreamWeightsArgs> call;
        kernels::StreamWeightsArgs& args = call.args;
        call.Reads(args.logits, Of(op.inputs[0]));
        args.base = Vector(op.inputs[1]);
        args.scale = Vector(op.inputs[2]);
        args.cols = Cols(op.outputs[0]);
        args.streams = a.streams;
        args.iterations = a.iterations;
        args.eps = a.eps;
        call.Writes(args.y, Of(op.outputs[0]));
        call.Rows(args.rows);
        return Push<kernels::StreamWeights>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::MergeStreams& a) {
        CallOf<kernels::MergeStreamsArgs> call;
        kernels::MergeStreamsArgs& args = call.args;
        call.Reads(args.x, Of(op.inputs[0]));
        call.Reads(args.weights, Of(op.inputs[1]));
        args.cols = Cols(op.outputs[0]);
        args.streams = a.streams;
        args.weight_cols = Cols(op.inputs[1]);
        call.Writes(args.y, Of(op.outputs[0]));
        call.Rows(args.rows);
        return Push<kernels::MergeStreams>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::MixStreams& a) {
        CallOf<kernels::MixStreamsArgs> call;
        kernels::MixStreamsArgs& args = call.args;
        if (op.inputs.size() > 1) {
            call.Reads(args.x, Of(op.inputs[0]));
            call.Reads(args.weights, Of(op.inputs[1]));
        }
        call.Reads(args.update, Of(op.inputs.back()));
        args.cols = Cols(op.inputs.back());
        args.streams = a.streams;
        call.Writes(args.y, Of(op.outputs[0]));
        call.Rows(args.rows);
        return Push<kernels::MixStreams>(call, op.outputs[0]);
    }

    Status Lower(const Op& op, const program::PoolWindows& a) {
        CallOf<kernels::PoolWindowsArgs> call;
        kernels::PoolWindowsArgs& args = call.args;
        call.Binds(args.sequences, Bound::kStates);
        call.Reads(args.values, Of(op.inputs[0]));
        call.Reads(args.gates, Of(op.inputs[1]));
        call.Reads(args.positions, Of(op.inputs[2]));
        args.bias = Vector(op.inputs[3]);
        args.width = Cols(op.outputs[0]);
        args.window = ShapeOf(op.inputs[3])[0];
        args.overlaps = a.overlaps;
        ChangesSlots(call, op.inputs[4]);
        call.Writes(args.y, Of(op.outputs[0]));
        return Push<kernels::PoolWindows>(call, op.outputs[0]);
    }
};

}  // namespace weft::backend
