// Folders of DeepSeek V4: the spellings of config.json, refusals by name, the tables of experts by
// token id, and FP8 and FP4 weights with DeepSeek's names for scales.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <tuple>

#include "model_files/hf/folder.h"
#include "model_files/hf/folder_config.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::model_files::hf {
namespace {

using nlohmann::json;
using support::HfGolden;
using support::SafeBytes;
using Tensors = std::map<std::string, SafeBytes>;

const HfGolden& V4Golden() {
    static const HfGolden golden(support::TestData("/families/deepseekV4.safetensors"));
    return golden;
}
json V4Config() {
    return json::parse(V4Golden().Text("deepseekV4/config"));
}

Result<std::unique_ptr<ModelSource>> OpenV4(const test::TempDir& dir, const json& config,
                                            const Tensors& tensors) {
    support::WriteText(dir / "config.json", config.dump());
    support::WriteTensors(dir.path(), tensors);
    return OpenFolder(dir.path());
}

TEST(HfDeepseek4, KeysAreRefusedByName) {
    const json yarn = V4Config()["rope_scaling"];
    for (const auto& [key, value] :
         {std::pair{"scoring_func", json("sigmoid")}, std::pair{"topk_method", json("greedy")},
          std::pair{"compress_ratios", json::array({4, 4})},
          std::pair{"compress_ratios", json::array({-1, 4, 8, 4, 8})},
          std::pair{"hidden_act", json("gelu")}, std::pair{"attention_bias", json(true)},
          std::pair{"swiglu_limit", json(-1.0)}, std::pair{"hc_mult", json(0)},
          std::pair{"o_groups", json()}, std::pair{"num_hash_layers", json(-1)},
          std::pair{"rope_scaling",
                    json(yarn).patch(json::parse(
                        R"([{"op": "add", "path": "/attention_factor", "value": 1.2}])"))},
          std::pair{"sliding_window", json(0)}}) {
        json config = V4Config();
        config[key] = value;
        const test::TempDir dir;
        const auto opened = OpenV4(dir, config, V4Golden().Tensors("deepseekV4"));
        ASSERT_FALSE(opened.ok()) << key;
        EXPECT_NE(opened.error().message.find(key), std::string::npos) << opened.error().message;
    }
}

// The keys of transformers 5.
TEST(HfDeepseek4, BothSpellingsAreTheSame) {
    json config = V4Config();
    const json yarn = config["rope_scaling"];
    json pooled = {{"rope_type", "yarn"},
                   {"rope_theta", 160000.0},
                   {"attention_factor", 1.0},
                   {"partial_rotary_factor", 0.25}};
    for (const char* key :
         {"factor", "beta_fast", "beta_slow", "original_max_position_embeddings"}) {
        pooled[key] = yarn[key];
    }
    for (const char* key : {"rope_scaling", "compress_ratios", "num_hash_layers",
                            "compress_rope_theta", "qk_rope_head_dim", "topk_method"}) {
        config.erase(key);
    }
    config["partial_rotary_factor"] = 0.25;
    config["rope_parameters"] = {{"main", {{"rope_type", "default"}, {"rope_theta", 10000.0}}},
                                 {"compress", pooled}};
    config["layer_types"] = {"sliding_attention", "compressed_sparse_attention",
                             "heavily_compressed_attention", "compressed_sparse_attention",
                             "heavily_compressed_attention"};
    config["compress_rates"] = {{"compressed_sparse_attention", 4},
                                {"heavily_compressed_attention", 8}};
    config["mlp_layer_types"] = {"hash_moe", "hash_moe", "moe", "moe", "moe"};
    json published = V4Config();
    published["compress_ratios"].erase(5);  // of the layer that predicts further tokens
    const auto want = ParseFolderConfig(published.dump(), "m");
    const auto got = ParseFolderConfig(config.dump(), "m");
    ASSERT_TRUE(want.ok()) << want.error().message;
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(want->header, got->header);
    config["mlp_layer_types"] = {"moe", "hash_moe", "moe", "moe", "moe"};
    EXPECT_FALSE(ParseFolderConfig(config.dump(), "m").ok());
    config["mlp_layer_types"] = {"hash_moe", "hash_moe", "moe", "moe", "moe"};
    config["compress_rates"]["compressed_sparse_attention"] = 2;
    EXPECT_FALSE(ParseFolderConfig(config.dump(), "m").ok());
    config["compress_rates"]["compressed_sparse_attention"] = 4;
    for (const json& kind : {json(5), json::array(), json::object()}) {
        config["rope_parameters"]["compress"]["rope_type"] = kind;
        EXPECT_FALSE(ParseFolderConfig(config.dump(), "m").ok()) << kind;
    }
}

TEST(HfDeepseek4, TablesHoldExpertIds) {
    const std::string name = "layers.0.ffn.gate.tid2eid";
    Tensors tensors = V4Golden().Tensors("deepseekV4");
    std::vector<int64_t> ids(83 * 2);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int64_t>(i % 6);
    tensors[name].data = support::BytesOfValues(ids);
    {
        const test::TempDir dir;
        const auto opened = OpenV4(dir, V4Config(), tensors);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        const TensorInfo* table = (*opened)->FindTensor("blk.0.ffn_gate_tid2eid.weight");
        ASSERT_NE(table, nullptr);
        EXPECT_EQ(table->dtype, DType::kI32);
        std::vector<int32_t> rows(4);
        ASSERT_TRUE(
            (*opened)
                ->ReadRows(*table, 5, 2, 0, 2, std::as_writable_bytes(std::span(rows)), nullptr)
                .ok());
        EXPECT_EQ(rows, (std::vector<int32_t>{4, 5, 0, 1}));
    }
    for (const int64_t wrong : {int64_t{6}, int64_t{-1}, int64_t{1} << 33}) {
        ids[7] = wrong;
        tensors[name].data = support::BytesOfValues(ids);
        const test::TempDir dir;
        const auto opened = OpenV4(dir, V4Config(), tensors);
        ASSERT_FALSE(opened.ok());
        EXPECT_NE(opened.error().message.find("tid2eid"), std::string::npos);
    }
    tensors[name] = {"F32", {83, 2}, std::vector<std::byte>(83 * 2 * 4)};
    const test::TempDir dir;
    EXPECT_FALSE(OpenV4(dir, V4Config(), tensors).ok());
}

// FP8 in blocks of 128 x 128 with E8M0 scales; experts in FP4 with one scale per 32 columns.
TEST(HfDeepseek4, ScalesAsDeepSeekNamesThem) {
    Tensors tensors = V4Golden().Tensors("deepseekV4");
    const auto bytes = [](size_t count, int step) {
        std::vector<std::byte> made(count);
        for (size_t i = 0; i < count; ++i) {
            made[i] = static_cast<std::byte>((i * static_cast<size_t>(step)) % 120);
        }
        return made;
    };
    tensors["layers.0.attn.wq_b.weight"] = {"F8_E4M3", {256, 40}, bytes(256 * 40, 7)};
    tensors["layers.0.attn.wq_b.scale"] = {"F8_E8M0", {2, 1}, {std::byte{128}, std::byte{126}}};
    for (int expert = 0; expert < 6; ++expert) {
        const std::string name = fmt::format("layers.0.ffn.experts.{}.w1", expert);
        tensors[name + ".weight"] = {"I8", {96, 48}, bytes(96 * 48, 11)};
        tensors[name + ".scale"] = {
            "F8_E8M0", {96, 3}, std::vector<std::byte>(96 * 3, std::byte{127})};
    }
    json config = V4Config();
    config["quantization_config"] = {{"quant_method", "fp8"},
                                     {"fmt", "e4m3"},
                                     {"weight_block_size", {128, 128}},
                                     {"scale_fmt", "ue8m0"},
                                     {"activation_scheme", "dynamic"}};
    const test::TempDir dir;
    const auto opened = OpenV4(dir, config, tensors);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    const TensorInfo* q = (*opened)->FindTensor("blk.0.attn_q_b.weight");
    ASSERT_NE(q, nullptr);
    const std::vector<float> floats = (*opened)->ReadFloats(*q).value();
    // E4M3 code 7 is 7 * 2^-9; code 14 is (1 + 6/8) * 2^(1 - 7). The scales are 2 and 1/2.
    EXPECT_EQ(floats[1], 2 * 7.0f / 512);
    EXPECT_EQ(floats[2], 2 * 1.75f / 64);
    const float last = floats[128 * 40];
    const int code = (128 * 40 * 7) % 120;
    EXPECT_EQ(last, 0.5f * (1 + static_cast<float>(code % 8) / 8) *
                        std::exp2(static_cast<float>(code / 8 - 7)));
    const TensorInfo* experts = (*opened)->FindTensor("blk.0.ffn_gate_exps.weight");
    ASSERT_NE(experts, nullptr);
    EXPECT_EQ(experts->dtype, DType::kMXFP4);
    const std::vector<float> fours = (*opened)->ReadFloats(*experts).value();
    constexpr float kValues[] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
    EXPECT_EQ(fours[2], -kValues[11 & 7]);  // byte 1 is 11: its low four bits first
    EXPECT_EQ(fours[3], kValues[0]);
}

}  // namespace
}  // namespace weft::model_files::hf
