// Shapes from config.json files that omit keys, set them to null or name other kinds of layers:
// each shape equals that of transformers or is refused, and is never silently another model.
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "model/hyper.h"
#include "plan/shapes.h"
#include "support/temp_dir.h"

namespace weft::plan {
namespace {

using nlohmann::json;

json Config(const json& more) {
    json config = {{"hidden_size", 256},          {"intermediate_size", 512},
                   {"num_hidden_layers", 4},      {"num_attention_heads", 4},
                   {"num_key_value_heads", 2},    {"vocab_size", 1000},
                   {"tie_word_embeddings", false}};
    config.update(more);
    return config;
}
json Deepseek() {
    return Config({{"model_type", "deepseek_v3"},
                   {"kv_lora_rank", 64},
                   {"q_lora_rank", 96},
                   {"qk_nope_head_dim", 32},
                   {"qk_rope_head_dim", 32},
                   {"v_head_dim", 32},
                   {"num_hidden_layers", 5},
                   {"n_routed_experts", 16}});
}
json Qwen(const json& more = json::object()) {
    json config = Config({{"model_type", "qwen3_moe"},
                          {"num_experts", 8},
                          {"num_experts_per_tok", 2},
                          {"moe_intermediate_size", 64}});
    config.update(more);
    return config;
}

void ExpectShapeRefused(const json& config, const std::string& said) {
    const auto shape = MakeShape(config.dump(), "a", "");
    ASSERT_FALSE(shape.ok()) << config;
    EXPECT_NE(shape.error().message.find(said), std::string::npos) << shape.error().message;
}

// Experts of each layer; 0: it is dense.
std::vector<int64_t> ExpertsOf(const json& config) {
    const auto shape = MakeShape(config.dump(), "a", "");
    EXPECT_TRUE(shape.ok()) << shape.error().message;
    std::vector<int64_t> experts;
    for (int64_t layer = 0; shape.ok() && layer < config["num_hidden_layers"]; ++layer) {
        const std::string block = fmt::format("blk.{}.", layer);
        const auto* stack = (*shape)->FindTensor(block + "ffn_up_exps.weight");
        const auto* dense = (*shape)->FindTensor(block + "ffn_up.weight");
        EXPECT_NE(stack == nullptr, dense == nullptr) << layer;
        experts.push_back(stack == nullptr ? 0 : stack->dims[2]);
    }
    return experts;
}

TEST(ConfigJson, MissingExpertCountsAreTransformersDefaults) {
    json config = Deepseek();
    config.erase("n_routed_experts");
    EXPECT_EQ(ExpertsOf(config), (std::vector<int64_t>{0, 0, 0, 256, 256}));
    config = Qwen();
    config.erase("num_experts");
    config.erase("moe_intermediate_size");
    const auto shape = MakeShape(config.dump(), "a", "");
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    const auto* up = (*shape)->FindTensor("blk.0.ffn_up_exps.weight");
    ASSERT_NE(up, nullptr);
    EXPECT_EQ(up->dims[1], 768);
    EXPECT_EQ(up->dims[2], 128);
    config = Config({{"model_type", "mixtral"}});
    EXPECT_EQ(ExpertsOf(config), (std::vector<int64_t>{8, 8, 8, 8}));
}

TEST(ConfigJson, UnknownExpertLayoutsAreRejected) {
    json config = Config({{"model_type", "minimax_m2"}, {"num_experts_per_tok", 2}});
    ExpectShapeRefused(config, "'num_local_experts'");
    config = Deepseek();
    config["model_type"] = "kimi_k2";
    config.erase("n_routed_experts");
    ExpectShapeRefused(config, "'n_routed_experts' is missing, and this model needs it");
    ExpectShapeRefused(Qwen({{"num_experts", nullptr}}), "'num_experts'");
    ExpectShapeRefused(Qwen({{"num_experts", 0}}), "'num_experts' is 0");
    ExpectShapeRefused(Qwen({{"moe_intermediate_size", nullptr}}),
                       "'moe_intermediate_size' is null");
    ExpectShapeRefused(Config({{"model_type", "glm4_moe"}, {"moe_intermediate_size", nullptr}}),
                       "'moe_intermediate_size' is null");
}

TEST(ConfigJson, DenseLayersAreDense) {
    EXPECT_EQ(ExpertsOf(Qwen()), (std::vector<int64_t>{8, 8, 8, 8}));
    EXPECT_EQ(ExpertsOf(Qwen({{"decoder_sparse_step", 2}})), (std::vector<int64_t>{0, 8, 0, 8}));
    EXPECT_EQ(ExpertsOf(Qwen({{"mlp_only_layers", {0, 3}}})), (std::vector<int64_t>{0, 8, 8, 0}));
    // And it can be planned.
    const auto shape = MakeShape(Qwen({{"decoder_sparse_step", 2}}).dump(), "a", "");
    ASSERT_TRUE(shape.ok());
    const auto walk = ModelWalk::Make(**shape, DType::kF16);
    ASSERT_TRUE(walk.ok()) << walk.error().message;
    EXPECT_NE(walk->kind_of_layer()[0], walk->kind_of_layer()[1]);
    EXPECT_EQ(walk->kind_of_layer()[0], walk->kind_of_layer()[2]);
}

TEST(ConfigJson, LayersOfOtherKindsAreRefused) {
    json types = {"linear_attention", "full_attention", "full_attention", "full_attention"};
    for (const char* model : {"llama", "mistral", "qwen3", "granite"}) {
        ExpectShapeRefused(Config({{"model_type", model}, {"layer_types", types}}),
                           "layer 0 has type 'linear_attention'");
    }
    ExpectShapeRefused(Config({{"model_type", "minimax_m2"}, {"attn_type_list", {1, 0, 1, 1}}}),
                       "'attn_type_list'");
}

TEST(ConfigJson, UnsupportedModelsNameTheMissingFeature) {
    ExpectShapeRefused(Config({{"model_type", "kimi_k3"}}),
                       "model_type 'kimi_k3' is not supported: Kimi-K3; it needs gates by column, "
                       "blocks of residuals");
    ExpectShapeRefused(Config({{"model_type", "nosuch"}}), "model_type 'nosuch' is not supported");
}

TEST(ConfigJson, KeysAreThereOnce) {
    std::string text = Config({{"model_type", "llama"}}).dump();
    ASSERT_TRUE(MakeShape(text, "a", "").ok());
    text.insert(1, "\"hidden_size\": 128, ");
    const auto twice = MakeShape(text, "a", "");
    ASSERT_FALSE(twice.ok());
    EXPECT_NE(twice.error().message.find("a/config.json"), std::string::npos);
    EXPECT_NE(twice.error().message.find("a repeated key in an object"), std::string::npos);
}

// The vectors of RoPE's scaling are in config.json, too.
TEST(ConfigJson, LongRope) {
    const json scaling = {{"type", "longrope"},
                          {"long_factor", std::vector<double>(32, 2.0)},
                          {"short_factor", std::vector<double>(32, 1.0)}};
    json config = Config({{"model_type", "phi3"},
                          {"max_position_embeddings", 131072},
                          {"original_max_position_embeddings", 4096},
                          {"rope_scaling", scaling}});
    const auto shape = MakeShape(config.dump(), "a", "q8_0");
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    for (const char* name : {"rope_factors_long.weight", "rope_factors_short.weight"}) {
        const auto* tensor = (*shape)->FindTensor(name);
        ASSERT_NE(tensor, nullptr);
        EXPECT_EQ(tensor->dtype, DType::kF32);
        EXPECT_EQ(tensor->bytes, 32 * sizeof(float));
    }
    const auto hyper = model::ReadHyper(**shape);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    EXPECT_EQ(hyper->ropes.far.inverse_frequency[0], 0.5f);
    EXPECT_EQ(hyper->ropes.all.inverse_frequency[0], 1.0f);
    config["rope_scaling"]["long_factor"].erase(0);
    ExpectShapeRefused(config, "32 numbers");
}

json Packed(const json& more) {
    json quantization = {
        {"quant_method", "compressed-tensors"},
        {"format", "pack-quantized"},
        {"config_groups", {{"group_0", {{"weights", {{"num_bits", 4}, {"group_size", 32}}}}}}}};
    quantization.update(more);
    return quantization;
}

// Weights of a file's own types: what 'weft run' of that folder holds.
TEST(ConfigJson, QuantizationOfTheFileCounts) {
    json config = Deepseek();
    config["quantization_config"] =
        Packed({{"ignore",
                 {"lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                  "re:.*mlp\\.(gate|up|gate_up|down)_proj.*"}}});
    const auto type_of = [](const json& of, const std::string& type, const char* name) {
        const auto shape = MakeShape(of.dump(), "a", type);
        EXPECT_TRUE(shape.ok()) << shape.error().message;
        const auto* tensor = shape.ok() ? (*shape)->FindTensor(name) : nullptr;
        EXPECT_NE(tensor, nullptr) << name;
        return tensor == nullptr ? DType::kF32 : tensor->dtype;
    };
    for (const char* name : {"ffn_up_exps", "ffn_gate_exps", "ffn_down_exps"}) {
        const std::string tensor = fmt::format("blk.3.{}.weight", name);
        EXPECT_EQ(type_of(config, "", tensor.c_str()), DType::kW4) << name;
        EXPECT_EQ(type_of(config, "q8_0", tensor.c_str()), DType::kQ8_0) << name;
    }
    for (const char* name :
         {"token_embd", "output", "blk.0.ffn_up", "blk.3.attn_output", "blk.3.ffn_up_shexp"}) {
        EXPECT_EQ(type_of(config, "", fmt::format("{}.weight", name).c_str()), DType::kBF16)
            << name;
    }
    config = Config(
        {{"model_type", "llama"},
         {"quantization_config", {{"quant_method", "gptq"}, {"bits", 8}, {"group_size", 128}}}});
    EXPECT_EQ(type_of(config, "", "blk.0.attn_q.weight"), DType::kW8);
    EXPECT_EQ(type_of(config, "", "token_embd.weight"), DType::kBF16);
}

// GPTQModel's "dynamic" gives modules another width, or leaves them out; its first expression that
// matches counts, in the order of the text.
TEST(ConfigJson, ModulesWithSchemesOfTheirOwnCount) {
    json config = Config(
        {{"model_type", "llama"},
         {"quantization_config", {{"quant_method", "gptq"}, {"bits", 4}, {"group_size", 128}}}});
    std::string text = config.dump();
    const std::string bits = "\"bits\":4";
    const size_t at = text.find(bits);
    ASSERT_NE(at, text.npos);
    text.replace(at, bits.size(),
                 bits +
                     ",\"dynamic\":{\"+:.*up_proj\":{\"bits\":8},\"+:.*mlp.*\":{\"bits\":4},"
                     "\"-:.*v_proj\":{}}");
    const auto shape = MakeShape(text, "a", "");
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    for (const auto& [name, type] : {std::pair("ffn_up", DType::kW8),
                                     {"ffn_down", DType::kW4},
                                     {"attn_q", DType::kW4},
                                     {"attn_v", DType::kBF16}}) {
        const auto* tensor = (*shape)->FindTensor(fmt::format("blk.0.{}.weight", name));
        ASSERT_NE(tensor, nullptr) << name;
        EXPECT_EQ(tensor->dtype, type) << name;
    }
}

// A note says if quantized weights are held as BF16 or if their type is unknown.
TEST(ConfigJson, QuantizationThatDoesNotCountIsNoted) {
    const test::TempDir dir;
    const std::string file = dir / "config.json";
    for (const auto& [quantization, said] : std::vector<std::pair<json, const char*>>{
             {{{"quant_method", "fp8"}, {"weight_block_size", {128, 128}}}, ""},
             {{{"quant_method", "modelopt"}, {"quant_algo", "FP8"}}, ""},
             {{{"quant_method", "modelopt"}, {"quant_algo", "MXFP8"}}, "as BF16"},
             {{{"quant_method", "fp8"}, {"weight_block_size", {32, 32}}}, "as BF16"},
             {{{"quant_method", "hqq"}}, "quant_method 'hqq' is not supported"},
             {{{"quant_method", "bitsandbytes"}, {"load_in_4bit", true}}, "as BF16"},
             {{{"quant_method", "modelopt"}, {"quant_algo", "NVFP4"}}, ""},
             {Packed(json::object()), ""}}) {
        json config = Config({{"model_type", "llama"}, {"quantization_config", quantization}});
        std::ofstream(file) << config.dump();
        const auto opened = OpenWalk(file);
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        EXPECT_EQ(opened->note.empty(), std::string_view(said).empty()) << opened->note;
        EXPECT_NE(opened->note.find(said), std::string::npos) << opened->note;
    }
}

// The default of tie_word_embeddings.
TEST(ConfigJson, EmbeddingsAreTiedWhereTransformersTiesThem) {
    for (const auto& [model, tied] :
         std::initializer_list<std::pair<const char*, bool>>{{"llama", false},
                                                             {"mistral", false},
                                                             {"qwen2", false},
                                                             {"qwen3", false},
                                                             {"phi3", false},
                                                             {"olmo2", false},
                                                             {"granite", false},
                                                             {"gemma2", true},
                                                             {"gemma3_text", true},
                                                             {"smollm3", true},
                                                             {"mixtral", false},
                                                             {"gpt_oss", false}}) {
        json config = Config({{"model_type", model}, {"num_experts_per_tok", 2}});
        config.erase("tie_word_embeddings");
        if (std::string(model) == "gpt_oss") config["sliding_window"] = 128;
        const auto shape = MakeShape(config.dump(), "a", "");
        ASSERT_TRUE(shape.ok()) << model << shape.error().message;
        EXPECT_EQ((*shape)->FindTensor("output.weight") == nullptr, tied) << model;
    }
}

}  // namespace
}  // namespace weft::plan
