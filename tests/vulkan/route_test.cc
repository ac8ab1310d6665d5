// A product that scores experts and the choice by these scores in one kernel: the bits of two
// kernels.
#include <gtest/gtest.h>

#include <bit>
#include <vector>

#include "backend/gpu/lower/fuse.h"
#include "support/nightly.h"
#include "vulkan/bench_emitter.h"
#include "vulkan/weight_types.h"

namespace weft::backend::on_gpu {
namespace {

using test::BenchEmitter;
using test::kTokens;
using test::RandomValues;
using test::RandomWeight;
using test::ValueId;

struct RouteCase {
    DType dtype = DType::kF32;
    int64_t rows = 1, experts = 37, used = 4, cols = 48;
    bool sums_bias = false, ranks_by_bias = false, factors = false;
    program::Route route{};
};

struct Routed {
    std::vector<float> logits, weights;
    std::vector<int32_t> ids;
    size_t dispatches = 0;
};

class Router {
  public:
    Router(const std::shared_ptr<gpu::Device>& device, const RouteCase& c, uint32_t seed)
        : e_(device, StepShape{.rows = static_cast<int32_t>(c.rows)}) {
        const RandomWeight weight(c.dtype, c.experts, c.cols, seed);
        std::vector<ValueId> inputs = {
            e_.AddFloats({kTokens, c.cols}, RandomValues(c.rows * c.cols, seed + 1)),
            e_.AddWeight(c.dtype, {c.experts, c.cols}, weight.blocks)};
        if (c.sums_bias) inputs.push_back(e_.AddVector(RandomValues(c.experts, seed + 2)));
        logits_ = e_.AddFloats({kTokens, c.experts});
        ids_ = e_.AddInts({kTokens, c.used});
        weights_ = e_.AddFloats({kTokens, c.used});
        e_.AddOp(program::MatMul{}, std::move(inputs), {logits_});
        program::Route route = c.route;
        route.factors = c.factors;
        std::vector<ValueId> scored = {logits_};
        if (c.ranks_by_bias) scored.push_back(e_.AddVector(RandomValues(c.experts, seed + 3)));
        if (c.factors) scored.push_back(e_.AddVector(RandomValues(c.experts, seed + 4)));
        e_.AddOp(route, std::move(scored), {ids_, weights_});
    }
    Routed OneByOne() {
        Poison();
        EXPECT_TRUE(e_.LowerNumber(0).ok() && e_.LowerNumber(1).ok());
        return Run();
    }
    Routed AsOne() {
        Poison();
        const Status lowered = LowerRun(e_, {RouteRun{0, 1}, {0, 1}});
        EXPECT_TRUE(lowered.ok()) << lowered.error().message;
        return Run();
    }

  private:
    void Poison() {
        for (const ValueId id : {logits_, ids_, weights_}) e_.Poison(id);
    }
    Routed Run() {
        Routed routed;
        routed.dispatches = e_.dispatch_count();
        const Status run = e_.Run();
        EXPECT_TRUE(run.ok()) << run.error().message;
        routed.logits = e_.Floats(logits_);
        routed.weights = e_.Floats(weights_);
        routed.ids = e_.Ints(ids_);
        return routed;
    }
    BenchEmitter e_;
    ValueId logits_ = 0, ids_ = 0, weights_ = 0;
};

void ExpectBitsOfTwo(const std::shared_ptr<gpu::Device>& device, const RouteCase& c, uint32_t seed,
                     size_t dispatches = 1) {
    SCOPED_TRACE(fmt::format("{}, {} rows, {} of {} experts, {} columns", Info(c.dtype).name,
                             c.rows, c.used, c.experts, c.cols));
    Router router(device, c, seed);
    const Routed want = router.OneByOne();
    EXPECT_EQ(want.dispatches, 2u);
    for (int again = 0; again < 3; ++again) {
        const Routed got = router.AsOne();
        EXPECT_EQ(got.dispatches, dispatches);
        EXPECT_EQ(got.logits, want.logits);
        EXPECT_EQ(got.ids, want.ids);
        EXPECT_EQ(got.weights, want.weights);
    }
    // (Memory that was not written is NaN, which equals nothing.)
    EXPECT_EQ(want.weights, want.weights);
}

TEST(VulkanRoute, InTheProductThatScores) {
    WEFT_VULKAN(device);
    uint32_t seed = 800;
    size_t turn = 0;
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
        for (const int64_t experts : {8, 37, 256, 1024}) {
            for (const int64_t rows : {1, 2}) {
                if (dtype != DType::kF32 && rows > 1) continue;
                RouteCase c{dtype, rows, experts};
                ++seed;
                if (!weft::test::InTurn(++turn, 3)) continue;
                c.cols = seed % 2 == 0 ? 64 : 37;
                c.sums_bias = seed % 3 == 0;
                c.ranks_by_bias = seed % 5 == 0;
                c.factors = seed % 7 == 0;
                c.route.renormalise = seed % 2 == 1;
                c.route.scale = 1.5f;
                if (seed % 4 == 0) c.route.score = program::GateScore::kSigmoid;
                if (experts == 256) {
                    c.route.groups = 8;
                    c.route.groups_used = 3;
                    c.route.group_best = 2;
                }
                ExpectBitsOfTwo(device, c, seed);
            }
        }
    }
}

TEST(VulkanRoute, ApartInLongerStepsAndForQuantizedWeights) {
    WEFT_VULKAN(device);
    ExpectBitsOfTwo(device, {.rows = 3}, 900, 2);
    ExpectBitsOfTwo(device, {.dtype = DType::kQ8_0, .cols = 64}, 901, 2);
}

}  // namespace
}  // namespace weft::backend::on_gpu
