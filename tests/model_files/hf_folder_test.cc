// Folders that Weft refuses, with the errors; metadata from old and new spellings of config.json.
#include "model_files/hf/folder.h"

#include <gtest/gtest.h>

#include <functional>

#include "model_files/content.h"
#include "model_files/gguf.h"
#include "model_files/hf/family.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::model_files::hf {
namespace {

using nlohmann::json;
using support::HfGolden;
using support::SafeBytes;

class Folder : public testing::Test {
  protected:
    explicit Folder(const std::string& name = "llama")
        : tensors_(golden_.Tensors(name)), config_(json::parse(golden_.Text(name + "/config"))) {}
    // The error of OpenFolder; empty: it opens.
    std::string Error() {
        support::WriteText(dir_ / "config.json", config_.dump());
        support::WriteTensors(dir_.path(), tensors_);
        const auto opened = OpenFolder(dir_.path());
        return opened.ok() ? "" : opened.error().message;
    }
    void ExpectError(const std::string& part) {
        const std::string message = Error();
        EXPECT_NE(message.find(part), std::string::npos) << message;
    }

    HfGolden golden_;
    std::map<std::string, SafeBytes> tensors_;
    json config_;
    test::TempDir dir_;
};

TEST_F(Folder, Opens) {
    EXPECT_EQ(Error(), "");
}

// Names of published pytorch_model.bin: of the class without a head, with copies of a tied
// embedding, and with tables that transformers computes.
TEST(OlderFolders, HaveOtherNames) {
    const struct {
        const char *name, *from, *to, *more, *copied;
    } folders[] = {{"opt", "model.decoder.", "decoder.", "", ""},
                   {"biogpt", "", "", "output_projection.weight", "biogpt.embed_tokens.weight"},
                   {"xglm", "", "", "model.embed_positions.weights", "model.layer_norm.weight"}};
    for (const auto& [name, from, to, more, copied] : folders) {
        const HfGolden golden(support::TestData(fmt::format("/families/{}.safetensors", name)));
        std::map<std::string, SafeBytes> tensors;
        for (const auto& [tensor, bytes] : golden.Tensors(name)) {
            const bool begins = *from != 0 && tensor.starts_with(from);
            tensors[begins ? to + tensor.substr(std::strlen(from)) : tensor] = bytes;
        }
        if (*more != 0) tensors[more] = tensors.at(copied);
        const test::TempDir dir;
        support::WriteText(dir / "config.json", golden.Text(std::string(name) + "/config"));
        support::WriteTensors(dir.path(), tensors);
        const auto opened = OpenFolder(dir.path());
        EXPECT_TRUE(opened.ok()) << opened.error().message;
    }
}

TEST_F(Folder, NamesTheMissingTensor) {
    tensors_.erase("model.layers.1.mlp.up_proj.weight");
    ExpectError("tensor 'model.layers.1.mlp.up_proj.weight' is missing; a llama model needs it");
}

TEST_F(Folder, NamesTheUnknownTensor) {
    tensors_["model.layers.0.mlp.lora_A.weight"] = tensors_.begin()->second;
    ExpectError("tensor 'model.layers.0.mlp.lora_A.weight' is not supported in a llama");
}

TEST_F(Folder, IgnoresUnneededTensors) {
    const SafeBytes some{"F32", {1}, std::vector<std::byte>(4)};
    for (const char* name : {"model.layers.0.self_attn.rotary_emb.inv_freq",
                             "vision_tower.x.weight", "model.layers.0.self_attn.k_scale"}) {
        tensors_[name] = some;
    }
    EXPECT_EQ(Error(), "");
}

// Layers after the model's belong to a draft head, or else config.json is wrong.
TEST_F(Folder, RefusesMoreLayersThanItsConfigHas) {
    const SafeBytes some{"F32", {1}, std::vector<std::byte>(4)};
    tensors_["model.layers.3.mlp.down_proj.weight"] = some;
    ExpectError("is of layer 3");
    tensors_["model.layers.3.eh_proj.weight"] = some;
    EXPECT_EQ(Error(), "");
    tensors_.erase("model.layers.3.eh_proj.weight");
    config_["num_nextn_predict_layers"] = 1;
    EXPECT_EQ(Error(), "");
}

TEST_F(Folder, RefusesOtherModelsByName) {
    config_["model_type"] = "xlstm";
    ExpectError("model_type 'xlstm' is not supported. Supported: RefinedWeb, ");
    // Known models, also by the type of the text part, are refused by their reason.
    const struct {
        const char *outer, *inner, *needs;
    } known[] = {{"qwen4_exp", "qwen4_exp_text", "Qwen3.8-Flash-Next; it needs hyper-connections"},
                 {"kimi_k3", "kimi_k3_text", "Kimi-K3; it needs"},
                 {"deepseek_v41", "", "DeepSeek V4.1; it needs"},
                 {"deepseek_v41_text", "", "DeepSeek V4.1; it needs"},
                 {"some_wrapper", "kimi_k3_text", "Kimi-K3; it needs"}};
    for (const auto& [outer, inner, needs] : known) {
        config_["model_type"] = outer;
        config_["text_config"] = json::object();
        if (*inner != 0) config_["text_config"]["model_type"] = inner;
        config_["vision_config"] = json::object();
        ExpectError(std::string("model_type '") + outer + "' is not supported: ");
        ExpectError(needs);
        EXPECT_EQ(Error().find("Supported:"), std::string::npos) << Error();
    }
    config_.erase("text_config");
    config_.erase("vision_config");
    config_["model_type"] = "llama";
    config_["hidden_act"] = "quick_gelu";
    ExpectError("'hidden_act' is \"quick_gelu\"; expected a known activation");
    config_["hidden_act"] = "silu";
    config_["quantization_config"] = {{"quant_method", "hqq"}};
    ExpectError("quant_method 'hqq' is not supported. Supported: fp8, awq");
}

TEST_F(Folder, NamesTheWrongKey) {
    config_["num_hidden_layers"] = "three";
    ExpectError("config.json: 'num_hidden_layers' is \"three\"; expected a whole number");
    config_["num_hidden_layers"] = 1 << 30;
    ExpectError("'num_hidden_layers' is 1073741824");
    config_.erase("num_hidden_layers");
    ExpectError("'num_hidden_layers' is missing, and this model needs it");
}

// Fewer than two dims of a head would be rotated.
TEST_F(Folder, RequiresRotatedDims) {
    const json llama3 = {{"rope_type", "llama3"},
                         {"factor", 8.0},
                         {"low_freq_factor", 1.0},
                         {"high_freq_factor", 4.0},
                         {"original_max_position_embeddings", 8192}};
    const json longrope = {
        {"rope_type", "longrope"}, {"long_factor", json::array()}, {"short_factor", json::array()}};
    config_["head_dim"] = 8;
    for (const json& scaling : {llama3, longrope}) {
        config_["rope_scaling"] = scaling;
        config_["partial_rotary_factor"] = 0.01;
        ExpectError("'partial_rotary_factor'");
        config_.erase("partial_rotary_factor");
        config_["head_dim"] = 1;
        ExpectError("'partial_rotary_factor'");
        config_["head_dim"] = 8;
    }
    config_["head_dim"] = 1;
    config_["rope_scaling"] = {{"rope_type", "proportional"}, {"factor", 2.0}};
    ExpectError("'partial_rotary_factor'");
}

TEST_F(Folder, RefusesNonWeightTypes) {
    SafeBytes& tensor = tensors_["model.layers.0.mlp.up_proj.weight"];
    tensor.dtype = "I32";
    ExpectError("tensor 'model.layers.0.mlp.up_proj.weight' has dtype I32");
    tensor.dtype = "F8_E4M3";
    tensor.data.resize(tensor.data.size() / 4);
    ExpectError("'model.layers.0.mlp.up_proj' is F8_E4M3 without weight_scale_inv");
}

TEST_F(Folder, NeedsItsFiles) {
    EXPECT_NE(OpenFolder(dir_.path()).error().message.find("config.json"), std::string::npos);
    support::WriteText(dir_ / "config.json", "{");
    EXPECT_NE(OpenFolder(dir_.path()).error().message.find("not valid JSON"), std::string::npos);
    support::WriteText(dir_ / "config.json", config_.dump());
    EXPECT_NE(OpenFolder(dir_.path()).error().message.find("neither model.safetensors nor"),
              std::string::npos);
}

// An output matrix that differs from the embedding is used, whatever config.json says, as in
// transformers.
TEST_F(Folder, TiesTheOutputIfTheConfigSaysSo) {
    config_["tie_word_embeddings"] = true;
    EXPECT_EQ(Error(), "");
    EXPECT_NE(OpenFolder(dir_.path()).value()->FindTensor("output.weight"), nullptr);
    tensors_["lm_head.weight"] = tensors_["model.embed_tokens.weight"];
    EXPECT_EQ(Error(), "");
    EXPECT_EQ(OpenFolder(dir_.path()).value()->FindTensor("output.weight"), nullptr);
    const auto rows = static_cast<size_t>(tensors_["lm_head.weight"].shape[0]);
    for (size_t row = 0; row < rows; ++row) {  // one that differs is enough
        std::vector<std::byte>& head = tensors_["lm_head.weight"].data;
        std::byte& value = head[(row + 1) * (head.size() / rows) - 1];
        value ^= std::byte{1};
        EXPECT_EQ(Error(), "");
        EXPECT_NE(OpenFolder(dir_.path()).value()->FindTensor("output.weight"), nullptr) << row;
        value ^= std::byte{1};
    }
    tensors_.erase("lm_head.weight");
    EXPECT_EQ(Error(), "");
    EXPECT_EQ(OpenFolder(dir_.path()).value()->FindTensor("output.weight"), nullptr);
    tensors_["lm_head.weight"] = tensors_["model.embed_tokens.weight"];
    config_["tie_word_embeddings"] = false;
    EXPECT_EQ(Error(), "");
    EXPECT_NE(OpenFolder(dir_.path()).value()->FindTensor("output.weight"), nullptr);
}

// config.json says that keys serve as values, but the folder has values.
TEST(HfKeys, SharedKeyAndValueMatrix) {
    const HfGolden golden;
    const std::string name = "gemma4Unified";
    json config = json::parse(golden.Text(name + "/config"));
    std::map<std::string, SafeBytes> tensors = golden.Tensors(name);
    for (auto& [tensor, bytes] : golden.Tensors(name)) {
        std::string values = tensor;
        const size_t at = values.find("self_attn.k_proj");
        if (at != values.npos) values.replace(at, 16, "self_attn.v_proj");
        tensors.try_emplace(values, bytes);
    }
    const test::TempDir dir;
    support::WriteText(dir / "config.json", config.dump());
    support::WriteTensors(dir.path(), tensors);
    const auto opened = OpenFolder(dir.path());
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(opened.error().message.find("'attention_k_eq_v' is true; expected false"),
              std::string::npos)
        << opened.error().message;
}

// The embedding would replace it, and the answers would be wrong.
TEST_F(Folder, NeedsItsOutputMatrix) {
    tensors_.erase("lm_head.weight");
    config_["tie_word_embeddings"] = false;
    ExpectError("tensor 'lm_head.weight' is missing");
    config_.erase("tie_word_embeddings");
    ExpectError("tensor 'lm_head.weight' is missing");
    config_["architectures"] = {"LlamaForSequenceClassification"};
    ExpectError("tensor 'score.weight' is missing, which LlamaForSequenceClassification has");
}

TEST_F(Folder, HasAnIdentityOfItsBytes) {
    const auto identity = [&] {
        EXPECT_EQ(Error(), "");  // writes the folder
        return ReadIdentity(*OpenFolder(dir_.path()).value()).value();
    };
    const std::string before = identity();
    EXPECT_EQ(identity(), before);
    for (auto& [name, tensor] : tensors_) {
        std::byte& middle = tensor.data[tensor.data.size() / 3];
        middle ^= std::byte{1};
        EXPECT_NE(identity(), before) << name;
        middle ^= std::byte{1};
    }
    config_["rope_theta"] = 12345.0;
    EXPECT_NE(identity(), before);
}

// ---- Metadata -----------------------------------------------------------------------------------

// The metadata made from a config.json.
struct Meta {
    explicit Meta(json config) {
        const Config whole = Config::Parse(config.dump(), "config.json").value();
        const Family* family = FindFamily(whole).value();
        GgufWriter writer;
        MetaWriter writes(writer, *family);
        const Status status = family->meta(TextConfig(whole, *family).value(), writes);
        EXPECT_TRUE(status.ok()) << status.error().message;
        bytes = writer.Header();
        meta.emplace("config.json", ParseGguf(bytes, bytes.size(), "config.json").value().entries);
    }
    std::vector<std::byte> bytes;
    std::optional<Metadata> meta;
};

// The error for a folder of a golden case after `change`; empty: it opens.
std::string SaidOf(const std::string& name, const std::function<void(json&)>& change,
                   const HfGolden& golden = HfGolden()) {
    json config = json::parse(golden.Text(name + "/config"));
    change(config.contains("text_config") ? config["text_config"] : config);
    const test::TempDir dir;
    support::WriteText(dir / "config.json", config.dump());
    support::WriteTensors(dir.path(), golden.Tensors(name));
    const auto opened = OpenFolder(dir.path());
    return opened.ok() ? "" : opened.error().message;
}

// transformers pads the numbers of layers with zeros to one width: "05" beside "10".
TEST(HfKeys, LayerNumbersMayBeginWithZeros) {
    const json golden = json::parse(HfGolden().Text("gemma4Unified/config"));
    const auto head_dim = [&](const char* number) {
        json config = golden;
        json& layers = config["text_config"]["per_layer_config"];
        layers = {{number, layers["5"]}};
        return Meta(config).meta->Int("gemma4.attention.key_length", 1, 1024).value();
    };
    EXPECT_EQ(head_dim("5"), 32);
    EXPECT_EQ(head_dim("05"), 32);
    EXPECT_EQ(head_dim("005"), 32);
    EXPECT_EQ(head_dim("15"), 16);
    const std::string said = SaidOf("gemma4Unified", [&](json& text) {
        text["per_layer_config"]["05"] = text["per_layer_config"]["5"];
    });
    EXPECT_NE(said.find("one key per layer"), std::string::npos) << said;
}

// Keys that change results, in the families that have them.
TEST(HfKeys, AreRefusedByName) {
    const struct {
        const char *name, *key;
        json value;
    } cases[] = {{"hyV3", "qk_norm", false},
                 {"hyV3", "route_norm", false},
                 {"hyV3", "moe_router_use_sigmoid", false},
                 {"hyV3", "mlp_layer_types", json::array({"dense", "sparse"})},
                 {"glm47flash", "mlp_layer_types", json::array({"dense", "other", "sparse"})},
                 {"glmDsa", "rope_interleave", false},
                 {"dots1", "norm_topk_prob", nullptr},
                 {"qwen3vlmoe", "moe_intermediate_size", 20},
                 {"glmDsa", "layer_types", json::array({"indexed_attention", "other", "other"})},
                 {"glmDsa", "index_topk", 0},
                 {"glmDsa", "indexer_types", json::array({"full", "other", "full"})},
                 {"glmDsa", "indexer_types", json::array({"shared", "full", "full"})},
                 {"glmDsa", "indexer_rope_interleave", false},
                 {"deepseekV32", "indexer_rope_interleave", true},
                 {"minimaxM3", "use_qk_norm", false},
                 {"minimaxM3", "qk_norm_type", "per_layer"},
                 {"minimaxM3", "hidden_act", "gelu"},
                 {"minimaxM3", "swiglu_alpha", 1.5},
                 {"minimaxM3", "layer_types", json::array({"full_attention", "other", "other"})},
                 {"minimaxM3", "layer_types", json::array({"full_attention"})},
                 {"minimaxM3", "index_topk_blocks", 0},
                 {"minimaxM3", "index_local_blocks", 0},
                 {"deepseekV32", "index_topk", nullptr},
                 {"mistralLarge4", "no_rope_layers", json::array({1, 1, 0})},
                 {"mistralLarge4", "kv_source_layers", json::array({0, 1, 2, 3, 4})},
                 {"mistralLarge4", "kv_source_layers", json::array({0, 0, 0, 1, 2, 1})},
                 {"lfm2", "conv_bias", true},
                 {"lfm2", "layer_types", json::array({"conv", "conv", "conv", "conv"})},
                 {"lfm2", "block_ffn_dim_multiplier", -1.0},
                 {"lfm2moe", "conv_L_cache", 1},
                 {"kimiLinear", "mla_use_nope", false},
                 {"kimiLinear", "linear_num_heads", 5},
                 {"kimiLinear", "moe_router_activation_func", "tanh"},
                 {"kimiLinear", "linear_conv_kernel_dim", 5},
                 {"ling3", "kda_safe_gate", false},
                 {"ling3", "no_kda_lora", false},
                 {"ling3", "gated_attention_proj_granularity_type", "element_wise"},
                 {"ling3", "kda_lower_bound", 1.0}};
    for (const auto& [name, key, value] : cases) {
        const std::string said = SaidOf(name, [&](json& config) { config[key] = value; });
        std::string_view expected = key;
        if (expected == "moe_intermediate_size") expected = "experts.gate_up_proj";
        if (expected == "moe_router_activation_func") expected = "scoring_func";
        if (expected == "linear_conv_kernel_dim") expected = "q_conv1d.weight";
        if (expected == "layer_types" && name == std::string("lfm2")) expected = "a conv layer";
        EXPECT_NE(said.find(expected), std::string::npos) << name << ": " << said;
    }
    for (const auto& [name, key, value] :
         {std::tuple{"qwen2vl", "mrope_section", json::array({2, 3, 4})},
          std::tuple{"qwen2vl", "mrope_section", json::array({2, -3, 9})},
          std::tuple{"ministral3", "llama_4_scaling_beta", json()},
          std::tuple{"ministral3", "llama_4_scaling_beta", json(-1.0)},
          std::tuple{"mistral4", "partial_rotary_factor", json(0.3)}}) {
        const std::string said =
            SaidOf(name, [&](json& config) { config["rope_parameters"][key] = value; });
        EXPECT_NE(said.find(key), std::string::npos) << name << ": " << said;
    }
}

// Families whose golden files are separate folders.
TEST(HfKeys, OfLlama4AndGemma4AreRefusedByName) {
    const json types = json::array({"chunked_attention", "other", "full_attention", "other"});
    const struct {
        const char *name, *key;
        json value;
    } cases[] = {{"llama4", "no_rope_layers", json::array({1, 1, 0, 0})},
                 {"llama4", "no_rope_layers", json::array({1, 1})},
                 {"llama4", "layer_types", types},
                 {"llama4", "attention_chunk_size", nullptr},
                 {"llama4", "floor_scale", 0},
                 {"llama4", "intermediate_size_mlp", nullptr},
                 {"llama4Dense", "no_rope_layers", json::array({1, 1, 1, 0})},
                 {"gemma4Small", "num_kv_shared_layers", 7},
                 {"gemma4Wide", "hidden_size_per_layer_input", -1}};
    for (const auto& [name, key, value] : cases) {
        const HfGolden golden(support::TestData(fmt::format("/families/{}.safetensors", name)));
        const std::string said = SaidOf(
            name, [&](json& config) { config[key] = value; }, golden);
        EXPECT_NE(said.find(key), std::string::npos) << name << ": " << said;
    }
}

TEST(HfMetadata, MultimodalRopeIsPlainForText) {
    const HfGolden golden;
    const json fresh = json::parse(golden.Text("qwen2vl/config"));
    json old = fresh;
    json& text = old["text_config"];
    text["rope_theta"] = text["rope_parameters"]["rope_theta"];
    text["rope_scaling"] = {{"type", "mrope"}, {"mrope_section", {2, 3, 3}}};
    text.erase("rope_parameters");
    EXPECT_EQ(Meta(old).bytes, Meta(fresh).bytes);
    EXPECT_EQ(Meta(fresh).meta->Ints("qwen2vl.rope.dimension_sections").value(),
              (std::vector<int64_t>{2, 3, 3, 0}));
    json vision = json::parse(golden.Text("qwen3vl/config"));
    EXPECT_EQ(Meta(vision).meta->Int("qwen3vl.n_deepstack_layers", 0, 9).value(), 1);
}

// As llama.cpp's converter writes them.
TEST(HfMetadata, TemperatureAndYarnOfMistral) {
    const HfGolden golden;
    const Meta three(json::parse(golden.Text("ministral3/config")));
    EXPECT_EQ(three.meta->F64("mistral3.rope.scaling.yarn_log_multiplier").value(), 1.0);
    EXPECT_FALSE(three.meta->Has("mistral3.rope.scaling.attn_factor"));
    EXPECT_EQ(three.meta->F64("mistral3.attention.temperature_scale").value(), double{0.7f});
    const Meta four(json::parse(golden.Text("mistral4/config")));
    EXPECT_EQ(four.meta->F64("mistral4.rope.scaling.yarn_log_multiplier").value(), double{0.1f});
    EXPECT_EQ(four.meta->Int("mistral4.attention.temperature_length", 0, 99).value(), 5);
    EXPECT_EQ(four.meta->Int("mistral4.rope.dimension_count", 0, 99).value(), 8);
}

// A config.json as transformers writes it, and one as in published folders.
TEST(HfMetadata, IndexerOfBlocks) {
    const json fresh = json::parse(HfGolden().Text("minimaxM3/config"));
    json old = fresh;
    json& text = old["text_config"];
    for (const char* key : {"layer_types", "mlp_layer_types", "index_n_heads", "index_head_dim",
                            "index_block_size", "index_topk_blocks", "index_local_blocks"}) {
        text.erase(key);
    }
    text["hidden_act"] = "swigluoai";
    text["n_shared_experts"] = 1;
    text["moe_layer_freq"] = {0, 1, 1};
    text["sparse_attention_config"] = {
        {"sparse_num_index_heads", 2},       {"sparse_index_dim", 16},  {"sparse_block_size", 4},
        {"sparse_topk_blocks", 3},           {"sparse_local_block", 1}, {"sparse_init_block", 0},
        {"sparse_attention_freq", {0, 1, 1}}};
    EXPECT_EQ(Meta(old).bytes, Meta(fresh).bytes);
    const Meta meta(fresh);
    EXPECT_EQ(meta.meta->Int("minimax-m3.attention.indexer.top_k", 0, 9).value(), 3);
    EXPECT_EQ(meta.meta->Int("minimax-m3.attention.indexer.block_size", 0, 9).value(), 4);
    EXPECT_EQ(meta.meta->Ints("minimax-m3.attention.indexer.types").value(),
              (std::vector<int64_t>{0, 1, 1}));
    EXPECT_EQ(meta.meta->Int("minimax-m3.feed_forward_length", 0, 99).value(), 64);
    EXPECT_EQ(meta.meta->Int("minimax-m3.leading_dense_block_count", 0, 9).value(), 1);
}

// GLM 5: by layer type, by a pattern, or every n-th layer from a given one on.
TEST(HfMetadata, LayersWithAnIndexer) {
    json config = json::parse(HfGolden().Text("glmDsaTop/config"));
    const auto own = [](const json& of) {
        return Meta(of).meta->Ints("glm-dsa.attention.indexer.types").value();
    };
    EXPECT_EQ(own(config), (std::vector<int64_t>{1, 0, 1, 0}));
    config.erase("indexer_types");
    EXPECT_EQ(own(config), (std::vector<int64_t>{1, 1, 1, 1}));
    config["index_topk_pattern"] = "FSSF";
    EXPECT_EQ(own(config), (std::vector<int64_t>{1, 0, 0, 1}));
    config.erase("index_topk_pattern");
    config["index_topk_freq"] = 2;
    config["index_skip_topk_offset"] = 1;
    EXPECT_EQ(own(config), (std::vector<int64_t>{1, 0, 1, 0}));
    config["index_skip_topk_offset"] = 2;
    EXPECT_EQ(own(config), (std::vector<int64_t>{1, 1, 0, 1}));
}

TEST(HfMetadata, OldAndNewSpellingsAreTheSame) {
    const HfGolden golden;
    const json fresh = json::parse(golden.Text("deepseekV3/config"));
    json old = fresh;
    old.erase("rope_parameters");
    old["rope_theta"] = 10000.0;
    old["rope_scaling"] = fresh["rope_parameters"];
    old["rope_scaling"].erase("rope_theta");
    old["rope_scaling"].erase("rope_type");
    old["rope_scaling"]["type"] = "yarn";
    EXPECT_EQ(Meta(old).bytes, Meta(fresh).bytes);
    const Meta meta(fresh);
    EXPECT_EQ(meta.meta->Int("deepseek2.attention.key_length_mla", 0, 100).value(), 20);
    EXPECT_EQ(meta.meta->String("deepseek2.rope.scaling.type").value(), "yarn");
    EXPECT_EQ(meta.meta->Int("deepseek2.expert_gating_func", 0, 9).value(), 2);
}

// The spelling of published folders, and the one that transformers makes from it.
TEST(HfMetadata, PublishedSpellingsOfRecurrentModels) {
    const HfGolden golden;
    const json kimi = json::parse(golden.Text("kimiLinear/config"));
    json published = kimi;
    published.erase("layer_types");
    published.erase("mlp_layer_types");
    for (const char* key : {"linear_num_heads", "linear_head_dim", "linear_conv_kernel_dim"}) {
        published.erase(key);
    }
    published["first_k_dense_replace"] = 1;
    published["linear_attn_config"] = {{"full_attn_layers", {2}},
                                       {"kda_layers", {1, 3, 4}},
                                       {"num_heads", 6},
                                       {"head_dim", 12},
                                       {"short_conv_kernel_size", 4}};
    EXPECT_EQ(Meta(published).bytes, Meta(kimi).bytes);
    EXPECT_EQ(Meta(kimi).meta->Ints("kimi-linear.attention.head_count_kv").value(),
              (std::vector<int64_t>{0, 1, 0, 0}));

    const json lfm = json::parse(golden.Text("lfm2/config"));
    published = lfm;
    published.erase("layer_types");
    published.erase("intermediate_size");
    published["full_attn_idxs"] = {1};
    published["block_ff_dim"] = 150;
    published["tie_embedding"] = true;
    EXPECT_EQ(Meta(published).bytes, Meta(lfm).bytes);
    EXPECT_EQ(Meta(lfm).meta->Int("lfm2.feed_forward_length", 0, 999).value(), 128);

    // Layers after the last whole group have attention.
    json ling = json::parse(golden.Text("ling3/config"));
    ling.erase("layer_types");
    ling["layer_group_size"] = 3;
    EXPECT_EQ(Meta(ling).meta->Ints("bailingmoe3.attention.head_count_kv").value(),
              (std::vector<int64_t>{0, 0, 1, 1}));
}

TEST(HfMetadata, SlidingWindowsApplyOnlyIfUsed) {
    const HfGolden golden;
    json config = json::parse(golden.Text("qwen2/config"));
    config["sliding_window"] = 32;
    config["use_sliding_window"] = false;
    EXPECT_FALSE(Meta(config).meta->Has("qwen2.attention.sliding_window"));
    config["use_sliding_window"] = true;
    config["max_window_layers"] = 2;
    config.erase("layer_types");
    const Meta used(config);
    EXPECT_EQ(used.meta->Int("qwen2.attention.sliding_window", 0, 99).value(), 32);
    EXPECT_EQ(used.meta->Ints("qwen2.attention.sliding_window_pattern").value(),
              (std::vector<int64_t>{0, 0, 1}));
    config = json::parse(golden.Text("mistral/config"));
    EXPECT_FALSE(Meta(config).meta->Has("llama.attention.sliding_window"));
    config.erase("sliding_window");
    EXPECT_EQ(Meta(config).meta->Int("llama.attention.sliding_window", 0, 9999).value(), 4096);
}

TEST(HfMetadata, TextConfigOverridesTheRest) {
    const HfGolden golden;
    const json text = json::parse(golden.Text("gemma3/config"));
    const json both = {{"model_type", "gemma3"}, {"text_config", text}, {"hidden_size", 7}};
    EXPECT_EQ(Meta(both).bytes, Meta(text).bytes);
    json old = text;
    old.erase("layer_types");
    old.erase("rope_parameters");
    old["rope_theta"] = 1e6;
    old["rope_local_base_freq"] = 1e4;
    old["sliding_window_pattern"] = 6;
    EXPECT_EQ(Meta(old).bytes, Meta(text).bytes);
}

}  // namespace
}  // namespace weft::model_files::hf
