// A product on the device of a weight and rows that a test created.
#pragma once

#include <gtest/gtest.h>

#include <vector>

#include "vulkan/bench_emitter.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu::test {

// An emitter for a step with as many rows as x (floats [rows, weight.cols]).
inline BenchEmitter EmitterFor(const std::shared_ptr<gpu::Device>& device,
                               const RandomWeight& weight, const std::vector<float>& x) {
    const int64_t rows = static_cast<int64_t>(x.size()) / weight.cols;
    return {device, StepShape{.rows = static_cast<int32_t>(rows)}};
}

// x * weight^T + bias, floats [rows, weight.rows]. bias: floats [weight.rows], or empty.
// dispatches: if not null, gets the number of dispatches.
inline std::vector<float> Multiply(BenchEmitter& e, const RandomWeight& weight,
                                   const std::vector<float>& x, const std::vector<float>& bias = {},
                                   size_t* dispatches = nullptr) {
    using program::kTokens;
    const program::ValueId in = e.AddFloats({kTokens, weight.cols}, x);
    const program::ValueId w = e.AddWeight(weight.dtype, {weight.rows, weight.cols}, weight.blocks);
    const program::ValueId out = e.AddFloats({kTokens, weight.rows});
    std::vector<program::ValueId> inputs = {in, w};
    if (!bias.empty()) inputs.push_back(e.AddVector(bias));
    const Status lowered = e.Lower(program::MatMul{}, inputs, {out});
    EXPECT_TRUE(lowered.ok()) << lowered.error().message;
    if (dispatches != nullptr) *dispatches = e.dispatch_count();
    const Status run = lowered.ok() ? e.Run() : Status{};
    EXPECT_TRUE(run.ok()) << run.error().message;
    return e.Floats(out);
}

}  // namespace weft::backend::on_gpu::test
