// Models initialized with random weights: the tensors that config.json requires, the distribution
// that it specifies, the same bits however they are read, and errors with a next step.
#include "model_files/hf/scratch.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "model_files/hf/folder.h"
#include "model_files/hf/json.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"

namespace weft::model_files::hf {
namespace {

Json LlamaConfig() {
    return {
        {"model_type", "llama"},      {"hidden_size", 48},        {"intermediate_size", 80},
        {"num_hidden_layers", 2},     {"num_attention_heads", 6}, {"num_key_value_heads", 2},
        {"vocab_size", 500},          {"rms_norm_eps", 1e-5},     {"max_position_embeddings", 64},
        {"tie_word_embeddings", true}};
}

class Scratch : public testing::Test {
  protected:
    std::unique_ptr<ModelSource> Open(const Json& config, uint64_t seed = 1) {
        support::WriteText(dir_ / "config.json", config.dump());
        auto opened = OpenScratch(dir_.path(), seed);
        EXPECT_TRUE(opened.ok()) << opened.error().message;
        return opened.ok() ? std::move(opened).value() : nullptr;
    }
    static std::set<std::string> Names(const ModelSource& model) {
        std::set<std::string> names;
        for (const TensorInfo& tensor : model.tensors()) names.insert(tensor.name);
        return names;
    }
    static std::vector<float> All(const ModelSource& model, const char* name) {
        const TensorInfo* tensor = model.FindTensor(name);
        EXPECT_NE(tensor, nullptr) << name;
        return tensor == nullptr ? std::vector<float>() : model.ReadFloats(*tensor).value();
    }

    test::TempDir dir_;
};

// The mean of n numbers is within 5 / sqrt(n) deviations of the true one, the variance within 5
// sqrt(2 / n), and the fraction of numbers in an interval within 2.5 / sqrt(n) of its probability,
// except with a probability of one in a million. (The distribution itself: synthetic_weights.h.)
TEST_F(Scratch, MatricesAreNormal) {
    Json config = LlamaConfig();
    config["initializer_range"] = 0.1;
    config["vocab_size"] = 2000;
    const auto model = Open(config);
    ASSERT_NE(model, nullptr);
    const std::vector<float> values = All(*model, "token_embd.weight");
    ASSERT_EQ(values.size(), 2000u * 48);
    const auto n = static_cast<double>(values.size());
    double sum = 0, squares = 0;
    for (const float v : values) {
        sum += v / 0.1;
        squares += v / 0.1 * (v / 0.1);
    }
    EXPECT_NEAR(sum / n, 0, 5 / std::sqrt(n));
    EXPECT_NEAR(squares / n, 1, 5 * std::sqrt(2 / n));
    for (const double z : {-2.0, -1.0, -0.5, 0.0, 0.7, 1.5, 2.5}) {
        const auto below = static_cast<double>(
            std::ranges::count_if(values, [&](float v) { return v / 0.1 < z; }));
        EXPECT_NEAR(below / n, std::erfc(-z / std::sqrt(2.0)) / 2, 0.003 + 2.5 / std::sqrt(n)) << z;
    }
    EXPECT_NE(All(*model, "blk.0.attn_q.weight"), All(*model, "blk.1.attn_q.weight"));
}

TEST_F(Scratch, AnySliceHasTheSameBits) {
    const auto model = Open(LlamaConfig());
    ASSERT_NE(model, nullptr);
    const TensorInfo* tensor = model->FindTensor("blk.1.ffn_up.weight");
    ASSERT_NE(tensor, nullptr);
    const std::vector<float> whole = model->ReadFloats(*tensor).value();
    std::vector<float> part(7 * 11);
    uint64_t read = 0;
    ASSERT_TRUE(
        model->ReadRows(*tensor, 3, 7, 13, 11, std::as_writable_bytes(std::span(part)), &read)
            .ok());
    EXPECT_EQ(read, part.size() * sizeof(float));
    for (size_t row = 0; row < 7; ++row) {
        for (size_t col = 0; col < 11; ++col) {
            EXPECT_EQ(part[row * 11 + col], whole[(3 + row) * 48 + 13 + col]);
        }
    }
}

// The first numbers of seed 1, on every machine and in every version: checkpoints depend on them.
// (They were recorded when the generator was written.)
TEST_F(Scratch, OnlyTheSeedChangesValues) {
    const auto one = Open(LlamaConfig(), 1), again = Open(LlamaConfig(), 1),
               other = Open(LlamaConfig(), 2);
    const auto values = All(*one, "token_embd.weight");
    EXPECT_EQ(values, All(*again, "token_embd.weight"));
    EXPECT_NE(values, All(*other, "token_embd.weight"));
    EXPECT_EQ(*one->Fingerprint(), *again->Fingerprint());
    EXPECT_NE(*one->Fingerprint(), *other->Fingerprint());
    const float expected[] = {-0.00336975f, 0.0204065f, -0.0067633055f, 0.01040039f};
    for (size_t i = 0; i < 4; ++i) EXPECT_FLOAT_EQ(values[i], expected[i]) << i;
}

// The tensors of a saved model of the family, with the same names.
TEST_F(Scratch, FamiliesHaveTheirTensors) {
    auto model = Open(LlamaConfig());
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->tensors().size(), 2u + 2 * 9);
    EXPECT_EQ(model->FindTensor("blk.0.attn_k.weight")->rows, 2 * 8);
    for (const float one : All(*model, "blk.1.ffn_norm.weight")) EXPECT_EQ(one, 1.0f);

    Json config = LlamaConfig();
    config["tie_word_embeddings"] = false;
    config["attention_bias"] = config["mlp_bias"] = true;
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 32}};
    model = Open(config);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->tensors().size(), 2u + 2 + 2 * (9 + 7));
    for (const float zero : All(*model, "blk.0.ffn_down.bias")) EXPECT_EQ(zero, 0.0f);
    EXPECT_EQ(All(*model, "rope_freqs.weight").size(), 4u);
    EXPECT_GT(All(*model, "rope_freqs.weight").back(), 1.0f);

    config = LlamaConfig();
    config["model_type"] = "qwen2";
    const auto qwen2 = Names(*Open(config));
    EXPECT_TRUE(qwen2.contains("blk.1.attn_v.bias"));
    EXPECT_FALSE(qwen2.contains("blk.1.attn_output.bias"));

    config["model_type"] = "qwen3";
    config["head_dim"] = 16;
    model = Open(config);
    ASSERT_NE(model, nullptr);
    EXPECT_EQ(model->FindTensor("blk.0.attn_q.weight")->rows, 6 * 16);
    EXPECT_EQ(All(*model, "blk.0.attn_k_norm.weight"), std::vector<float>(16, 1.0f));
}

TEST_F(Scratch, NamesMissingFiles) {
    const auto error = [&] {
        const auto opened = OpenScratch(dir_.path(), 1);
        EXPECT_FALSE(opened.ok());
        return opened.ok() ? std::string() : opened.error().message;
    };
    EXPECT_NE(error().find("config.json"), std::string::npos) << error();
    EXPECT_FALSE(LacksWeights(dir_.path()));
    Json config = LlamaConfig();
    support::WriteText(dir_ / "config.json", config.dump());
    EXPECT_TRUE(LacksWeights(dir_.path()));

    support::WriteText(dir_ / "tokenizer.json", support::SmallTokenizer());
    config["vocab_size"] = 3;
    support::WriteText(dir_ / "config.json", config.dump());
    EXPECT_NE(error().find("'vocab_size' is 3, but the folder's tokenizer has"), std::string::npos)
        << error();

    config["model_type"] = "gemma2";
    support::WriteText(dir_ / "config.json", config.dump());
    EXPECT_NE(error().find("llama, qwen2, qwen3"), std::string::npos) << error();
    config = LlamaConfig();
    config["initializer_range"] = 0;
    support::WriteText(dir_ / "config.json", config.dump());
    EXPECT_NE(error().find("initializer_range"), std::string::npos) << error();
    config.erase("hidden_size");
    support::WriteText(dir_ / "config.json", config.dump());
    EXPECT_NE(error().find("hidden_size"), std::string::npos) << error();
}

}  // namespace
}  // namespace weft::model_files::hf
