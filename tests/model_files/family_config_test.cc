// Keys of config.json that a family reads or refuses, where transformers computes something else
// than the other families do. The files of tests/data/families, with some keys set and removed.
#include <gtest/gtest.h>

#include <filesystem>

#include "model/hyper.h"
#include "model_files/gguf.h"
#include "model_files/hf/folder.h"
#include "model_files/hf/folder_config.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

using Json = nlohmann::json;
using model::Hyper;

HfGolden GoldenOf(const std::string& model) {
    for (const char* folder : {"/families/", "/encoders/"}) {
        const std::string file = TestData(folder + model + ".safetensors");
        if (std::filesystem::exists(file)) return HfGolden(file);
    }
    return {};
}

// Writes a folder; `set` replaces keys of config.json, those that are null here go.
void WriteWith(const std::string& folder, const std::string& model, const Json& set) {
    const HfGolden golden = GoldenOf(model);
    golden.Write(model, folder);
    Json config = Json::parse(golden.Text(model + "/config"));
    for (const auto& [key, value] : set.items()) {
        if (value.is_null()) {
            config.erase(key);
        } else {
            config[key] = value;
        }
    }
    WriteText(folder + "/config.json", config.dump());
    WriteText(folder + "/tokenizer.json", SmallTokenizer());
}

struct RefusedKey {
    const char* model;
    const char* set;
    const char* word;  // in the error
};
void PrintTo(const RefusedKey& one, std::ostream* out) {
    *out << one.model << " " << one.set;
}

const RefusedKey kRefusedKeys[] = {
    {"qwen2", R"({"is_causal": false})", "is_causal"},
    {"exaone4", R"({"is_causal": false})", "is_causal"},
    {"exaone4Whole", R"({"sliding_window": 8})", "sliding_window"},
    {"deepseekV2", R"({"topk_method": "noaux_tc"})", "topk_method"},
    {"deepseekV3", R"({"topk_method": "greedy", "n_group": 2, "topk_group": 1})", "topk_method"},
    {"mpt", R"({"logit_scale": 0.5})", "logit_scale"},
    {"mpt", R"({"no_bias": false})", "no_bias"},
    {"mpt", R"({"attn_config": {"qk_ln": true}})", "qk_ln"},
    {"mpt", R"({"attn_config": {"alibi": false}})", "alibi"},
    {"bloom", R"({"apply_residual_connection_post_layernorm": true})",
     "apply_residual_connection_post_layernorm"},
    {"modernBert", R"({"rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 4,
                       "rope_theta": 160000.0}}})",
     "rope_parameters"},
    {"smollm3", R"({"sliding_window": 8, "layer_types": ["sliding_attention"]})", "layer_types"},
    {"gptNeox", R"({"kv_lora_rank": 1, "qk_rope_head_dim": 0})", "num_attention_heads"},
    {"gptNeo", R"({"attention_layers": null, "attention_types": [[[], 9000000000000000000]]})",
     "attention_layers"},
    {"xglm", R"({"max_position_embeddings": 1048576})", "max_position_embeddings"},
};

class FamilyRefuses : public testing::TestWithParam<RefusedKey> {};

TEST_P(FamilyRefuses, NamesTheKey) {
    const test::TempDir dir;
    WriteWith(dir / "model", GetParam().model, Json::parse(GetParam().set));
    ExpectRefusedFolder(dir / "model", GetParam().word);
}

INSTANTIATE_TEST_SUITE_P(All, FamilyRefuses, testing::ValuesIn(kRefusedKeys));

Hyper HyperOf(const std::string& model, const Json& set) {
    const test::TempDir dir;
    WriteWith(dir / "model", model, set);
    const auto source = model_files::hf::OpenFolder(dir / "model");
    if (!source.ok()) ADD_FAILURE() << source.error().message;
    if (!source.ok()) return {};
    const auto hyper = model::ReadHyper(**source);
    if (!hyper.ok()) ADD_FAILURE() << hyper.error().message;
    return hyper.ok() ? *hyper : Hyper();
}

// RoBERTa's tokenizers give both texts of a pair the first type, even if the model has two.
TEST(Roberta, HasOneTypeOfTokens) {
    const test::TempDir dir;
    WriteWith(dir / "model", "roberta", {{"type_vocab_size", 2}});
    std::map<std::string, SafeBytes> tensors = GoldenOf("roberta").Tensors("roberta");
    int changed = 0;
    for (auto& [name, tensor] : tensors) {
        if (!name.ends_with("token_type_embeddings.weight")) continue;
        tensor.shape[0] = 2;
        tensor.data.resize(2 * tensor.data.size());
        ++changed;
    }
    ASSERT_EQ(changed, 1);
    WriteTensors(dir / "model", tensors);
    const auto source = model_files::hf::OpenFolder(dir / "model");
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto hyper = model::ReadHyper(**source);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    EXPECT_EQ(hyper->token_types, 1);
}

// Keys of published folders, and the slopes of 6 heads: those of 4, then the first odd ones of 8.
TEST(FamilyDefaults, AlibiModelsHaveOldNamesAndSlopesByHead) {
    const Json bloom = {{"n_embed", 96},
                        {"hidden_size", nullptr},
                        {"num_attention_heads", 6},
                        {"n_head", nullptr},
                        {"n_inner", nullptr},
                        {"seq_length", 128},
                        {"offset_alibi", 100},
                        {"attention_softmax_in_fp32", true},
                        {"skip_bias_add", true},
                        {"masked_softmax_fusion", true},
                        {"unk_token_id", 0},
                        {"bias_dropout_fusion", true}};
    const Hyper read = HyperOf("bloom", bloom);
    EXPECT_EQ(read.context, 128);
    EXPECT_EQ(read.slopes, (std::vector<float>{0x1p-2, 0x1p-4, 0x1p-6, 0x1p-8, 0x1p-1, 0x1p-3}));
    const Json attention = {{"alibi", true},
                            {"alibi_bias_max", 16},
                            {"attn_impl", "torch"},
                            {"attn_pdrop", 0},
                            {"attn_type", "multihead_attention"},
                            {"attn_uses_sequence_id", false},
                            {"clip_qkv", nullptr},
                            {"prefix_lm", false},
                            {"qk_ln", false},
                            {"softmax_scale", nullptr}};
    const Json mpt = {{"attn_config", attention},
                      {"embedding_fraction", 1.0},
                      {"expansion_ratio", 4},
                      {"learned_pos_emb", true},
                      {"logit_scale", nullptr},
                      {"no_bias", true},
                      {"norm_type", "low_precision_layernorm"},
                      {"verbose", 0},
                      {"init_device", "cpu"},
                      {"tokenizer_name", "EleutherAI/gpt-neox-20b"}};
    const Hyper steep = HyperOf("mpt", mpt);
    EXPECT_EQ(steep.clamp, 0);
    EXPECT_EQ(steep.slopes, (std::vector<float>{0x1p-4, 0x1p-8, 0x1p-12, 0x1p-16, 0x1p-2, 0x1p-6}));
    // Falcon's factor on scores applies to the bias as well.
    EXPECT_EQ(HyperOf("falconAlibi", {}).slopes.front(), 0x1p-4f);
}

// The configuration classes' own defaults.
// The metadata of a case's config.json with some keys set.
std::vector<std::byte> MetadataWith(const std::string& model, const Json& set) {
    const bool own = std::filesystem::exists(TestData("/families/" + model + ".safetensors"));
    const HfGolden golden =
        own ? HfGolden(TestData("/families/" + model + ".safetensors")) : HfGolden();
    Json config = Json::parse(golden.Text(model + "/config"));
    for (const auto& [key, value] : set.items()) config[key] = value;
    const auto folder = model_files::hf::ParseFolderConfig(config.dump(), "model");
    EXPECT_TRUE(folder.ok()) << model << ": " << folder.error().message;
    return folder.ok() ? folder->header : std::vector<std::byte>();
}

// Routers of these families do not read these keys in transformers.
TEST(FamilyIgnores, KeysOfOtherRouters) {
    const Json all = {{"n_group", 3},
                      {"topk_group", 1},
                      {"routed_scaling_factor", 2.5},
                      {"scoring_func", "softplus"},
                      {"score_function", "softplus"},
                      {"norm_topk_prob", false}};
    for (const char* model : {"mixtral", "gptOss", "minimaxM2", "llama4", "graniteMoe",
                              "hunyuanMoe", "ernieMoe", "laguna", "trinity", "step35", "hyV3"}) {
        EXPECT_EQ(MetadataWith(model, all), MetadataWith(model, Json::object())) << model;
    }
    Json most = all;
    most.erase("norm_topk_prob");
    for (const char* model : {"olmoe", "qwen3moe", "qwen2moe", "qwen3next", "cohere2Moe"}) {
        EXPECT_EQ(MetadataWith(model, most), MetadataWith(model, Json::object())) << model;
    }
    const Json function = {{"scoring_func", "softmax"}};
    for (const char* model : {"deepseekV3", "glm4moe", "dots1", "mimo2", "exaoneMoe"}) {
        EXPECT_EQ(MetadataWith(model, function), MetadataWith(model, Json::object())) << model;
    }
    const Json scale = {{"routed_scaling_factor", 2.75}};
    EXPECT_NE(MetadataWith("deepseekV3", scale), MetadataWith("deepseekV3", Json::object()));
}

TEST(FamilyIgnores, FalseForNoNumberAndNullForTheUsual) {
    const Json untied = {{"tie_word_embeddings", false}},
               unsaid = {{"tie_word_embeddings", nullptr}};
    EXPECT_EQ(MetadataWith("llama", unsaid), MetadataWith("llama", untied));
    for (const char* key : {"sliding_window", "q_lora_rank"}) {
        const Json no = {{key, false}}, null = {{key, nullptr}};
        EXPECT_EQ(MetadataWith("mistral", no), MetadataWith("mistral", null)) << key;
    }
    const Json none = {{"n_shared_experts", false}}, zero = {{"n_shared_experts", 0}};
    EXPECT_EQ(MetadataWith("glm4moe", none), MetadataWith("glm4moe", zero));
}

// A share of the whole config holds for layers whose own parameters have none.
TEST(FamilyDefaults, LagunasShareIsThatOfAllLayers) {
    const Json base = {{"rope_type", "default"}, {"rope_theta", 10000.0}};
    const Json both = {{"full_attention", base}, {"sliding_attention", base}};
    const auto of = [&](const Json& set) {
        const std::vector<std::byte> bytes = MetadataWith("laguna", set);
        const model_files::Metadata meta(
            "laguna", model_files::ParseGguf(bytes, bytes.size(), "laguna").value().entries);
        return std::pair(meta.Int("laguna.rope.dimension_count", 1, 1024).value(),
                         meta.Int("laguna.rope.dimension_count_swa", 1, 1024).value());
    };
    EXPECT_EQ(of({{"rope_parameters", both}}), std::pair(int64_t{16}, int64_t{16}));
    EXPECT_EQ(of({{"rope_parameters", both}, {"partial_rotary_factor", 0.5}}),
              std::pair(int64_t{8}, int64_t{8}));
    Json own = both;
    own["full_attention"]["partial_rotary_factor"] = 0.25;
    EXPECT_EQ(of({{"rope_parameters", own}, {"partial_rotary_factor", 0.5}}),
              std::pair(int64_t{4}, int64_t{8}));
}

TEST(FamilyDefaults, AreThoseOfTransformers) {
    EXPECT_EQ(
        HyperOf("commandR", {{"rope_theta", nullptr}, {"rope_parameters", nullptr}}).ropes.all,
        HyperOf("commandR", {{"rope_theta", 5e5}, {"rope_parameters", nullptr}}).ropes.all);
    const Json none = {{"layernorm_epsilon", nullptr}, {"rms_norm_eps", nullptr}};
    EXPECT_FLOAT_EQ(HyperOf("mimo2", none).rms_eps, 1e-5f);
    const Json greedy = {{"topk_method", nullptr}, {"n_group", 2}, {"topk_group", 1}};
    EXPECT_EQ(HyperOf("deepseekV2", greedy).moe.route.groups, 1);
}

// Without layer_types, the pattern of windows begins after first_k_dense_replace layers, whatever
// mlp_layer_types says.
TEST(FamilyDefaults, Cohere2MoeCountsItsWindowsFromItsOwnKey) {
    const Json none = {{"layer_types", nullptr}};
    EXPECT_EQ(HyperOf("cohere2Moe", none).windowed, (std::vector{true, true, false, true}));
    const Json first = {{"layer_types", nullptr}, {"first_k_dense_replace", 1}};
    EXPECT_EQ(HyperOf("cohere2Moe", first).windowed, (std::vector{false, true, true, false}));
}

// By default, the windows of SmolLM 3 are in layers without RoPE.
TEST(FamilyDefaults, SmolLm3WindowsAreInLayersWithoutRope) {
    const Json none = {{"layer_types", nullptr}, {"use_sliding_window", true}};
    EXPECT_EQ(HyperOf("smollm3Windows", none).windowed, (std::vector{false, true, false, true}));
}

// Layers without positions have no scaled scores.
TEST(FamilyDefaults, YarnLeavesLatentAttentionWithoutPositions) {
    const Json yarn = {{"rope_parameters",
                        {{"rope_type", "yarn"},
                         {"rope_theta", 1e4},
                         {"factor", 4.0},
                         {"original_max_position_embeddings", 64},
                         {"mscale", 1.0},
                         {"mscale_all_dim", 1.0}}}};
    EXPECT_EQ(HyperOf("kimiLinear", yarn).attention_scale,
              HyperOf("kimiLinear", Json::object()).attention_scale);
    EXPECT_GT(HyperOf("deepseekV3", yarn).attention_scale,
              HyperOf("deepseekV3", {{"rope_parameters", nullptr}, {"rope_scaling", nullptr}})
                  .attention_scale);
}

// A norm of the mean stays one, whatever other epsilon the file has.
TEST(FamilyDefaults, CohereCentersItsNorms) {
    const Hyper hyper = HyperOf("commandR", {{"rms_norm_eps", 0.25}});
    EXPECT_EQ(hyper.rms_eps, HyperOf("commandR", Json::object()).rms_eps);
}

TEST(FamilyDefaults, MimoRotatesAThirdInTheDefaultType) {
    const auto ropes = [](const Json& full, const Json& windowed) {
        return HyperOf("mimo2", {{"rope_theta", nullptr},
                                 {"partial_rotary_factor", nullptr},
                                 {"rope_parameters",
                                  {{"full_attention", full}, {"sliding_attention", windowed}}}});
    };
    const Json plain = {{"rope_type", "default"}, {"rope_theta", 1e4}};
    Json third = plain;
    third["partial_rotary_factor"] = 0.334;
    const Hyper said = ropes(third, third), usual = ropes(plain, plain);
    EXPECT_EQ(usual.rotary_dim, said.rotary_dim);
    EXPECT_LT(usual.rotary_dim, usual.head_dim);
}

}  // namespace
}  // namespace weft::support
