// The cost walk against closed forms, which depend on the model's shape, not on the ops.
#include "program/cost.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "program/differentiate.h"
#include "support/tiny_model.h"

namespace weft::program {
namespace {

using support::SmolLm2Hyper;
using support::TinyHyper;
using support::TinySource;

OpCost TotalOf(const Program& program, int64_t tokens, int64_t outputs, int64_t context) {
    return Total(Cost(program, tokens, outputs, context));
}

Program OneRank(const model::Hyper& hyper, DType dtype = DType::kF32, bool cache = true) {
    return support::Build(hyper, TinySource(hyper, dtype), {}, {DType::kF16, cache})[0];
}

// Elements of all weight matrices of one layer.
int64_t LayerMatrices(const model::Hyper& h) {
    return h.hidden * h.head_dim * (2 * h.heads + 2 * h.kv_heads) + 3 * h.hidden * h.ffn;
}

TEST(Cost, ALlamaStepByItsClosedForm) {
    const model::Hyper h = TinyHyper("llama", false);
    const Program program = OneRank(h);
    for (const int64_t tokens : {1, 7}) {
        for (const int64_t context : {0, 100}) {
            const int64_t outputs = 1;
            const int64_t pairs = tokens * context + tokens * (tokens + 1) / 2;
            const int64_t q = h.heads * h.head_dim, kv = h.kv_heads * h.head_dim;
            const int64_t layer = 2 * tokens * LayerMatrices(h)             // projections
                                  + (4 * h.head_dim + 4) * h.heads * pairs  // attention
                                  + 3 * tokens * (q + kv)                   // RoPE of q and k
                                  + 2 * 4 * tokens * h.hidden               // two norms
                                  + 5 * tokens * h.ffn + 2 * tokens * h.hidden;
            const int64_t head = 4 * outputs * h.hidden + 2 * outputs * h.hidden * h.vocab;
            const OpCost total = TotalOf(program, tokens, outputs, context);
            EXPECT_EQ(total.flops, h.layers * layer + head);
            EXPECT_EQ(total.wire_bytes, 0);
        }
    }
}

// Keys that the rows of a windowed layer see, one by one.
TEST(Cost, AWindowBoundsPairsAndTheCacheThatIsRead) {
    model::Hyper h = TinyHyper("llama", false);
    h.window = 6;
    h.windowed = {true, true};
    const Program windowed = OneRank(h), all = OneRank(TinyHyper("llama", false));
    const int64_t each = h.layers * (4 * h.head_dim + 4) * h.heads;
    for (const int64_t tokens : {1, 4, 9}) {
        for (const int64_t context : {0, 3, 5, 6, 40}) {
            int64_t fewer = 0;
            for (int64_t row = 0; row < tokens; ++row) {
                fewer += std::max<int64_t>(0, context + row + 1 - h.window);
            }
            const OpCost some = TotalOf(windowed, tokens, 1, context);
            const OpCost most = TotalOf(all, tokens, 1, context);
            EXPECT_EQ(most.flops - some.flops, each * fewer) << tokens << " at " << context;
            const int64_t position = 2 * h.layers * h.kv_heads * h.head_dim * 2;
            EXPECT_EQ(most.read_bytes - some.read_bytes,
                      std::max<int64_t>(0, context - h.window + 1) * position);
        }
    }
}

// Forward and backward, without a cache.
TEST(Cost, WindowsAndSoftCapsOfTraining) {
    for (const int64_t window : {0, 1, 6, 9, 20}) {
        for (const float cap : {0.0f, 30.0f}) {
            model::Hyper h = TinyHyper("llama", false);
            h.attention_cap = cap;
            h.window = window;
            if (window != 0) h.windowed = {true, true};
            const Program forward = OneRank(h, DType::kF32, false);
            const auto back = Differentiate(forward, {forward.Find("logits"), {}});
            ASSERT_TRUE(back.ok()) << back.error().message;
            double pairs = 0;
            for (int64_t row = 0; row < 9; ++row) {
                pairs += static_cast<double>(window == 0 ? row + 1 : std::min(row + 1, window));
            }
            const double there = static_cast<double>(4 * h.head_dim + (cap > 0 ? 16 : 4));
            const double again = static_cast<double>(10 * h.head_dim + (cap > 0 ? 23 : 8));
            const std::vector<OpCost> costs = Cost(back->program, 9, 1, 0);
            for (size_t i = 0; i < costs.size(); ++i) {
                const OpKind kind = back->program.ops[i].kind();
                if (kind != OpKind::kAttention && kind != OpKind::kAttentionGrad) continue;
                const double each = kind == OpKind::kAttention ? there : again;
                EXPECT_EQ(costs[i].flops, each * static_cast<double>(h.heads) * pairs);
            }
        }
    }
}

TEST(Cost, SmolLm2TakesTwoFlopsAParameterAndToken) {
    const model::Hyper h = SmolLm2Hyper();
    const int64_t parameters =
        h.vocab * h.hidden + h.layers * (LayerMatrices(h) + 2 * h.hidden) + h.hidden;
    EXPECT_EQ(parameters, 134515008);
    const double flops = TotalOf(OneRank(h), 1, 1, 0).flops;
    EXPECT_GT(flops, 2.0 * static_cast<double>(parameters));
    EXPECT_LT(flops, 2.02 * static_cast<double>(parameters));
}

// One token reads each weight once, in the file's bytes, but of the embedding table as a lookup
// one row; and K and V of every position.
TEST(Cost, ADecodedTokenReadsEachWeightOnceAndTheCache) {
    for (const DType dtype : {DType::kF32, DType::kQ4_1}) {
        const model::Hyper h = SmolLm2Hyper();
        const Program program = OneRank(h, dtype);
        int64_t weights = 0, activations = 0;
        for (const Value& value : program.values) {
            const int64_t bytes = RowBytes(value.dtype, value.shape.Elements(1, 1));
            if (value.storage == Storage::kWeight) weights += bytes;
        }
        for (const Op& op : program.ops) {
            for (ValueId id : op.inputs) {
                const Storage storage = program.value(id).storage;
                if (storage != Storage::kActivation && storage != Storage::kInput) continue;
                activations += 4 * program.value(id).shape.Elements(1, 1);
            }
        }
        const int64_t lookup = RowBytes(dtype, h.hidden);
        const int64_t position = 2 * h.layers * h.kv_heads * h.head_dim * 2;  // K and V in f16
        for (const int64_t context : {0, 1000}) {
            EXPECT_EQ(TotalOf(program, 1, 1, context).read_bytes,
                      weights + lookup + activations + (context + 1) * position);
        }
        EXPECT_EQ(TotalOf(program, 1, 1, 9).written_bytes, TotalOf(program, 1, 1, 0).written_bytes);
    }
}

bool IsShared(OpKind kind) {
    return kind == OpKind::kMatMul || kind == OpKind::kAttention || kind == OpKind::kGlu;
}

TEST(Cost, TwoTensorRanksShareTheWorkAndPayOnTheWire) {
    model::Hyper h = SmolLm2Hyper();
    h.heads = 12;  // so that two ranks share KV heads evenly
    h.kv_heads = 4;
    const TinySource source(h, DType::kQ4_1);
    const Program whole = OneRank(h, DType::kQ4_1);
    const auto halves = support::Build(h, source, {2, 1, {}, {}}, {});
    const int64_t tokens = 5, outputs = 2, context = 30;
    const auto shared_flops = [&](const Program& program) {
        const auto costs = Cost(program, tokens, outputs, context);
        double flops = 0;
        for (size_t i = 0; i < costs.size(); ++i) {
            if (IsShared(program.ops[i].kind())) flops += costs[i].flops;
        }
        return flops;
    };
    for (const Program& half : halves) {
        EXPECT_EQ(2 * shared_flops(half), shared_flops(whole));
        const int64_t hidden = tokens * h.hidden * 4;
        EXPECT_EQ(TotalOf(half, tokens, outputs, context).wire_bytes,
                  // the embedding in float32, the layers' sums in float64
                  (2 * 2 * h.layers + 1) * hidden + outputs * h.vocab * 4);
    }
}

TEST(Cost, PipelineStagesSumToTheWhole) {
    const model::Hyper h = SmolLm2Hyper();
    const TinySource source(h, DType::kF16);
    double flops = 0;
    const auto stages = support::Build(h, source, {1, 3, {}, {}}, {});
    for (const Program& stage : stages) flops += TotalOf(stage, 3, 1, 2).flops;
    EXPECT_EQ(flops, TotalOf(OneRank(h, DType::kF16), 3, 1, 2).flops);
    const int64_t hidden = 3 * h.hidden * 4, logits = h.vocab * 4;
    EXPECT_EQ(TotalOf(stages[0], 3, 1, 2).wire_bytes, hidden + logits);
    EXPECT_EQ(TotalOf(stages[1], 3, 1, 2).wire_bytes, 2 * hidden);
    EXPECT_EQ(TotalOf(stages[2], 3, 1, 2).wire_bytes, hidden + logits);
}

// The rule of thumb 2 N forward, 4 N backward, exact for matrices: backward does each product twice
// (but for nothing before the embedding).
TEST(Cost, BackwardMatricesCostTwiceForward) {
    const model::Hyper h = TinyHyper("qwen2", true);
    const Program forward = OneRank(h, DType::kF32, false);
    DifferentiateOptions options;
    options.output = forward.Find("logits");
    const auto backward = Differentiate(forward, options);
    ASSERT_TRUE(backward.ok());
    const auto costs = Cost(backward->program, 9, 4, 0);
    double products = 0, gradients = 0, biases = 0;
    for (size_t i = 0; i < costs.size(); ++i) {
        const OpKind kind = backward->program.ops[i].kind();
        if (kind == OpKind::kMatMul) products += costs[i].flops;
        if (kind == OpKind::kMatMulGradInput || kind == OpKind::kMatMulGradWeight) {
            gradients += costs[i].flops;
        }
        if (kind == OpKind::kBiasGrad) biases += costs[i].flops;
    }
    EXPECT_GT(biases, 0);
    EXPECT_EQ(gradients, 2 * (products - biases));
}

}  // namespace
}  // namespace weft::program
