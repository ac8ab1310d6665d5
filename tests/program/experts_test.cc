// The walks over Programs with experts and latent attention: check, print, cost, differentiate.
#include <gtest/gtest.h>

#include <algorithm>

#include "program/cost.h"
#include "program/differentiate.h"
#include "support/tiny_model.h"

namespace weft::program {
namespace {

model::Hyper ExpertHyper() {
    model::Hyper h = support::TinyHyper("llama", false);
    h.moe.experts = 6;
    h.moe.used = 2;
    h.moe.ffn = 32;
    h.moe.shared_ffn = 128;  // two units
    h.moe.route.score = GateScore::kSigmoid;
    return h;
}

model::Hyper LatentHyper() {
    model::Hyper h = support::TinyHyper("deepseek2", false);
    h.latent = {.rank = 16, .q_rank = 8, .nope = 6, .rope = 2, .value = 5};
    h.kv_heads = h.heads;
    h.head_dim = 8;
    h.rotary_dim = 2;
    h.ropes.all.inverse_frequency = {1};
    return h;
}

Program WholeProgram(const model::Hyper& hyper) {
    return support::Build(hyper, support::TinySource(hyper), {}, {})[0];
}

Op& First(Program& program, OpKind kind) {
    return *std::ranges::find_if(program.ops, [&](const Op& op) { return op.kind() == kind; });
}

TEST(ExpertPrograms, ChecksTakeEveryLayout) {
    for (const model::Hyper& h : {ExpertHyper(), LatentHyper()}) {
        const support::TinySource source(h);
        for (const model::Layout& layout :
             {model::Layout{}, {2, 1, {}, {}, 0}, {1, 2, {}, {}, 0}}) {
            for (const Program& program : support::Build(h, source, layout, {})) {
                const Status status = CheckShapes(program);
                EXPECT_TRUE(status.ok()) << status.error().message;
            }
        }
    }
}

TEST(ExpertPrograms, ChecksNameWhatIsBroken) {
    const auto refused = [](const model::Hyper& h, OpKind kind, auto spoil) {
        Program program = WholeProgram(h);
        spoil(program, First(program, kind));
        const Status status = CheckShapes(program);
        ASSERT_FALSE(status.ok()) << OpName(kind);
        EXPECT_NE(status.error().message.find(OpName(kind)), std::string::npos)
            << status.error().message;
    };
    refused(ExpertHyper(), OpKind::kRoute, [](Program&, Op& op) {
        op.attributes.If<Route>()->groups = 4;  // of six experts
    });
    refused(ExpertHyper(), OpKind::kRoute, [](Program& program, Op& op) {
        program.values[static_cast<size_t>(op.outputs[0])].dtype = DType::kF32;
    });
    refused(ExpertHyper(), OpKind::kExpertMatMul,
            [](Program&, Op& op) { std::swap(op.inputs[0], op.inputs[1]); });
    refused(ExpertHyper(), OpKind::kExpertSum,
            [](Program&, Op& op) { op.attributes.If<ExpertSum>()->base = false; });
    refused(LatentHyper(), OpKind::kHeadMatMul,
            [](Program&, Op& op) { std::swap(op.inputs[0], op.inputs[1]); });
    refused(LatentHyper(), OpKind::kPickColumns,
            [](Program&, Op& op) { op.attributes.If<PickColumns>()->begin = 1000; });
    refused(LatentHyper(), OpKind::kLatentAttention,
            [](Program&, Op& op) { op.attributes.If<LatentAttention>()->heads = 1; });
}

TEST(ExpertPrograms, PrintNamesExpertsAndTheirSlices) {
    const model::Hyper h = ExpertHyper();
    const support::TinySource source(h);
    const std::string text = Print(support::Build(h, source, {2, 1, {}, {}, 2}, {})[1]);
    for (const char* part :
         {"l0.experts, l0.expert_weights [T, 2] = route(l0.ffn_gate_inp, "
          "blk.0.exp_probs_b.bias)  score=sigmoid",
          "l0.ffn_gate_exps [T, 2, 32] = expert_mat_mul(", "first_expert=3",
          "weight blk.0.ffn_down_exps.weight F32 [3, 18, 32] = blk.0.ffn_down_exps.weight[3:, 0:, "
          "0:]"}) {
        EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
    }
}

// One token reads the matrices of two of six experts; three tokens read at most six.
TEST(ExpertPrograms, CostCountsTheExpertsThatAreTouched) {
    const model::Hyper h = ExpertHyper();
    const Program program = WholeProgram(h);
    const auto costs = [&](int64_t tokens) {
        const std::vector<OpCost> all = Cost(program, tokens, 1, 0);
        std::vector<OpCost> own;
        for (size_t i = 0; i < all.size(); ++i) {
            if (program.ops[i].kind() == OpKind::kExpertMatMul) own.push_back(all[i]);
        }
        return own;
    };
    const int64_t matrix_bytes = h.moe.ffn * h.hidden * 4;
    for (const auto& [tokens, touched] :
         {std::pair<int64_t, int64_t>{1, 2}, {2, 4}, {3, 6}, {9, 6}}) {
        const OpCost cost = costs(tokens)[0];
        const int64_t ids_bytes = tokens * h.moe.used * 4;
        EXPECT_EQ(cost.read_bytes, touched * matrix_bytes + tokens * h.hidden * 4 + ids_bytes);
        EXPECT_EQ(cost.flops, 2 * tokens * h.moe.used * h.moe.ffn * h.hidden);
    }
}

TEST(ExpertPrograms, TheLatentCacheIsReadOnceForAllHeads) {
    const model::Hyper h = LatentHyper();
    const Program program = WholeProgram(h);
    const std::vector<OpCost> near = Cost(program, 1, 1, 0), far = Cost(program, 1, 1, 100);
    const int64_t row = (h.latent.rank + h.latent.rope) * 2;  // F16
    EXPECT_EQ(Total(far).read_bytes - Total(near).read_bytes, h.layers * 100 * row);
}

TEST(ExpertPrograms, DifferentiateRefusesWhatItDoesNotKnowByName) {
    const auto refused = [](const Program& program, const char* what) {
        const auto back = Differentiate(program, {program.Find("logits"), {}});
        ASSERT_FALSE(back.ok()) << what;
        EXPECT_NE(back.error().message.find(what), std::string::npos) << back.error().message;
    };
    refused(WholeProgram(LatentHyper()), "(latent_attention) has no gradient yet");
    Program tokens = WholeProgram(ExpertHyper());
    First(tokens, OpKind::kRoute).attributes.If<Route>()->score = GateScore::kSqrtSoftplus;
    refused(tokens, "(route): no gradient of roots of softplus");
    model::Hyper h = support::TinyHyper("gpt-oss", false);
    h.moe = ExpertHyper().moe;
    h.moe.shared_ffn = 0;
    refused(WholeProgram(h), "(expert_mat_mul): no gradient of experts' biases");
}

}  // namespace
}  // namespace weft::program
