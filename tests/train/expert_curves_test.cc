// Ten steps of small models with experts against transformers' losses, load-balance losses and
// gradient norms (tests/data/expert_losses.json, made by tools/make_expert_curves.py).
#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "support/train_golden.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

using nlohmann::json;
using support::TrainGolden;

constexpr int kVocab = 512, kHidden = 128, kFfn = 96, kLayers = 3, kHeads = 4, kKvHeads = 2,
              kHeadDim = 32, kExperts = 8, kUsed = 2, kSequences = 4, kLength = 33;

// As for dense models (trainer_test.cc): two correct implementations differ by 2e-6. An expert
// choice that depends on rounding would show as 1e-4; in these curves no two candidates are that
// close.
constexpr double kTolerance = 5e-5;

struct Form {
    bool mixtral = false, renormalise = true;
    double aux = 0;
};

std::map<std::string, std::vector<int64_t>> ShapesOf(const Form& form) {
    std::map<std::string, std::vector<int64_t>> shapes = {
        {"model.embed_tokens.weight", {kVocab, kHidden}}, {"model.norm.weight", {kHidden}}};
    const std::string mlp = form.mixtral ? "block_sparse_moe." : "mlp.";
    const char *const gate = form.mixtral ? "w1" : "gate_proj",
                      *const up = form.mixtral ? "w3" : "up_proj",
                      *const down = form.mixtral ? "w2" : "down_proj";
    for (int layer = 0; layer < kLayers; ++layer) {
        const std::string at = fmt::format("model.layers.{}.", layer);
        shapes[at + "input_layernorm.weight"] = {kHidden};
        shapes[at + "post_attention_layernorm.weight"] = {kHidden};
        shapes[at + "self_attn.q_proj.weight"] = {kHeads * kHeadDim, kHidden};
        shapes[at + "self_attn.k_proj.weight"] = {kKvHeads * kHeadDim, kHidden};
        shapes[at + "self_attn.v_proj.weight"] = {kKvHeads * kHeadDim, kHidden};
        shapes[at + "self_attn.o_proj.weight"] = {kHidden, kHeads * kHeadDim};
        for (const char* norm : {"q_norm", "k_norm"}) {
            if (!form.mixtral) shapes[fmt::format("{}self_attn.{}.weight", at, norm)] = {kHeadDim};
        }
        shapes[at + mlp + "gate.weight"] = {kExperts, kHidden};
        for (int e = 0; e < kExperts; ++e) {
            const std::string expert = fmt::format("{}{}experts.{}.", at, mlp, e);
            shapes[expert + gate + ".weight"] = {kFfn, kHidden};
            shapes[expert + up + ".weight"] = {kFfn, kHidden};
            shapes[expert + down + ".weight"] = {kHidden, kFfn};
        }
    }
    return shapes;
}

void WriteFolder(const std::string& folder, const Form& form) {
    std::map<std::string, support::SafeBytes> tensors;
    uint64_t number = 0;
    for (const auto& [name, shape] : ShapesOf(form)) {
        const auto count = static_cast<size_t>(shape[0] * (shape.size() > 1 ? shape[1] : 1));
        const float add = shape.size() > 1 ? 0.0f : 1.0f;
        tensors[name] = {"F32", shape,
                         support::BytesOfValues(TrainGolden::Noise(number++, count, add))};
    }
    support::WriteTensors(folder, tensors);
    json config = {{"model_type", form.mixtral ? "mixtral" : "qwen3_moe"},
                   {"hidden_act", "silu"},
                   {"torch_dtype", "float32"},
                   {"vocab_size", kVocab},
                   {"hidden_size", kHidden},
                   {"intermediate_size", kFfn},
                   {"num_hidden_layers", kLayers},
                   {"num_attention_heads", kHeads},
                   {"num_key_value_heads", kKvHeads},
                   {"head_dim", kHeadDim},
                   {"num_experts_per_tok", kUsed},
                   {form.mixtral ? "num_local_experts" : "num_experts", kExperts},
                   {"rms_norm_eps", 1e-5},
                   {"rope_theta", 10000.0},
                   {"max_position_embeddings", 512},
                   {"router_aux_loss_coef", form.aux},
                   {"output_router_logits", form.aux > 0},
                   {"tie_word_embeddings", true}};
    if (!form.mixtral) {
        config["moe_intermediate_size"] = kFfn;
        config["norm_topk_prob"] = form.renormalise;
    }
    support::WriteText(folder + "/config.json", config.dump());
}

Batch ExpertCurvesMakeBatch() {
    Batch batch;
    batch.global_sequences = kSequences;
    for (uint64_t k = 0; k < kSequences; ++k) {
        Sequence sequence;
        const auto token = [&](uint64_t i) {
            return static_cast<int32_t>(TrainGolden::Bits(3, k, i) % kVocab);
        };
        for (uint64_t i = 0; i + 1 < kLength; ++i) {
            sequence.tokens.push_back(token(i));
            sequence.targets.push_back(token(i + 1));
        }
        sequence.begins = {0};
        sequence.used = kLength - 1;
        batch.global_targets += kLength - 1;
        batch.sequences.push_back(std::move(sequence));
    }
    return batch;
}

struct Case {
    const char* curve;
    Form form;
    const char* recompute = "none";
    int threads = 1;
};
void PrintTo(const Case& test, std::ostream* out) {
    *out << test.curve << " " << test.recompute;
}

class ExpertCurve : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(Transformers, ExpertCurve,
                         testing::Values(Case{"mixtral", {true, true, 0.02}},
                                         Case{"qwen3moe", {false, true, 0.1}},
                                         Case{"qwen3moe", {false, true, 0.1}, "selective", 2},
                                         Case{"qwen3moe", {false, true, 0.1}, "full"},
                                         Case{"qwen3moe_as_scored", {false, false, 0}}),
                         [](const auto& test) {
                             return fmt::format("{}{}", test.param.curve, test.index);
                         });

TEST_P(ExpertCurve, IsTheSame) {
    const test::TempDir folder;
    WriteFolder(folder.path(), GetParam().form);
    std::ifstream file(support::TestData("/expert_losses.json"));
    const json curve = json::parse(file).at("cases").at(GetParam().curve);
    auto cluster = cluster::Cluster::Launch({}, "");
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    TrainerOptions options;
    options.model = folder.path();
    options.threads = GetParam().threads;
    options.sequence = kLength - 1;
    options.micro_batch = kSequences;
    options.recompute = GetParam().recompute;
    options.update.beta2 = 0.95;
    options.update.weight_decay = 0.1;
    auto trainer = Trainer::Make(options, **cluster);
    ASSERT_TRUE(trainer.ok()) << trainer.error().message;
    const Batch batch = ExpertCurvesMakeBatch();
    for (size_t step = 0; step < curve.at("losses").size(); ++step) {
        const auto report = (*trainer)->Step(batch, curve.at("lr"));
        ASSERT_TRUE(report.ok()) << report.error().message;
        const auto near = [&](const char* what, double got) {
            const double expected = curve.at(what).at(step);
            EXPECT_TRUE(std::abs(got / expected - 1) <= kTolerance)
                << what << " of step " << step << ": " << got << " not " << expected;
        };
        near("losses", report->loss);
        near("grad_norms", report->grad_norm);
        EXPECT_EQ(report->aux_loss.has_value(), GetParam().form.aux > 0);
        if (report->aux_loss) near("balance", *report->aux_loss);
    }
}

}  // namespace
}  // namespace weft::train
