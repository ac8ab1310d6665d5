// adapter_config.json: every key of peft's LoraConfig is read, is harmless, or is refused by name.
// Values are those that peft 0.21 writes.
#include "model_files/lora/adapter_config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "model_files/lora/adapter.h"
#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

using nlohmann::json;

// As save_pretrained() writes a plain LoRA adapter.
json Saved() {
    return json::parse(R"({
        "alora_invocation_tokens": null, "alpha_pattern": {}, "arrow_config": null,
        "auto_mapping": null, "base_model_name_or_path": "org/model", "bias": "none",
        "corda_config": null, "ensure_weight_tying": false, "eva_config": null,
        "exclude_modules": null, "fan_in_fan_out": false, "inference_mode": true,
        "init_lora_weights": true, "kasa_config": null, "layer_replication": null,
        "layers_pattern": null, "layers_to_transform": null, "loftq_config": {}, "lora_alpha": 32,
        "lora_bias": false, "lora_dropout": 0.0, "lora_ga_config": null, "megatron_config": null,
        "megatron_core": "megatron.core", "modules_to_save": null, "monteclora_config": null,
        "peft_type": "LORA", "peft_version": "0.21.2", "qalora_group_size": 16, "r": 16,
        "rank_pattern": {}, "revision": null, "target_modules": ["q_proj", "v_proj"],
        "target_parameters": null, "task_type": "CAUSAL_LM", "trainable_token_indices": null,
        "use_bdlora": null, "use_dora": false, "use_qalora": false, "use_rslora": false,
        "velora_config": null})");
}

class AdapterConfig : public testing::Test {
  protected:
    Result<LoraOptions> Read(const json& change) {
        json config = Saved();
        config.update(change);
        support::WriteText(dir_ / "adapter_config.json", config.dump());
        return ReadAdapterConfig(dir_.path());
    }

    test::TempDir dir_;
};

TEST_F(AdapterConfig, HarmlessKeysAreAccepted) {
    const json taken[] = {
        json::object(),
        {{"peft_type", "lora"}},
        {{"r", 16.0}},
        {{"layers_to_transform", {0, 1, 2}}},
        {{"init_lora_weights", "gaussian"}},
        {{"init_lora_weights", "orthogonal"}},
        {{"init_lora_weights", false}},
        {{"init_lora_weights", "eva"}, {"eva_config", {{"rho", 2.0}, {"tau", 0.99}}}},
        // Converted by save_pretrained(path_initial_model_for_weight_conversion=...).
        {{"init_lora_weights", true}, {"corda_config", {{"corda_method", "ipm"}}}},
        {{"auto_mapping", {{"base_model_class", "LlamaForCausalLM"}, {"unsloth_fixed", true}}}},
        {{"task_type", nullptr}, {"peft_version", nullptr}, {"revision", "main"}},
        {{"modules_to_save", json::array()}, {"layer_replication", json::array()}},
        {{"lora_dropout", 0.05}, {"inference_mode", false}, {"merge_weights", true}},
        {{"rank_pattern", {{"q_proj", 16}}}, {"alpha_pattern", {{"v_proj", 32}}}},
        {{"a_key_of_tomorrow", nullptr}, {"another", false}, {"third", 0}, {"fourth", ""}}};
    for (const json& change : taken) {
        const auto words = Read(change);
        ASSERT_TRUE(words.ok()) << words.error().message;
        EXPECT_EQ(words->rank, 16);
        EXPECT_EQ(words->alpha, 32);
        EXPECT_EQ(words->targets, "q_proj,v_proj");
        EXPECT_EQ(*AdapterDropout(dir_.path()), change.value("lora_dropout", 0.0));
    }
    EXPECT_TRUE(Read({{"use_rslora", true}})->rslora);
    EXPECT_EQ(Read({{"target_modules", "all-linear"}})->targets, "all");
}

TEST_F(AdapterConfig, KeysThatChangeResultsAreRefusedByName) {
    const json bdlora = {{"target_modules_bd_a", {"q_proj"}}, {"nblocks", 2}};
    const struct {
        json change;
        std::vector<const char*> said;
    } cases[] = {
        {{{"init_lora_weights", "pissa"}}, {"init_lora_weights", "pissa", "convert"}},
        {{{"init_lora_weights", "pissa_niter_16"}}, {"path_initial_model_for_weight_conversion"}},
        {{{"init_lora_weights", "PiSSA"}}, {"init_lora_weights"}},
        {{{"init_lora_weights", "olora"}}, {"olora", "path_initial_model"}},
        {{{"init_lora_weights", "corda"}}, {"corda", "path_initial_model"}},
        {{{"init_lora_weights", "lora_ga"}}, {"lora_ga", "path_initial_model"}},
        {{{"init_lora_weights", "loftq"}, {"loftq_config", {{"loftq_bits", 4}}}}, {"LoftQ"}},
        {{{"init_lora_weights", "of tomorrow"}}, {"init_lora_weights", "of tomorrow"}},
        {{{"init_lora_weights", 3}}, {"init_lora_weights"}},
        {{{"layer_replication", {{0, 4}, {2, 5}}}}, {"layer_replication", "repeated"}},
        {{{"use_bdlora", bdlora}}, {"use_bdlora", "BD-LoRA"}},
        {{{"arrow_config", {{"top_k", 3}}}}, {"arrow_config"}},
        {{{"use_dora", true}}, {"use_dora", "merge_and_unload"}},
        {{{"alora_invocation_tokens", {1, 2}}}, {"alora_invocation_tokens"}},
        {{{"kasa_config", {{"beta", 0.1}}}}, {"kasa_config"}},
        {{{"monteclora_config", {{"num_samples", 4}}}}, {"monteclora_config"}},
        {{{"rank_pattern", {{"q_proj", 8}}}}, {"rank_pattern"}},
        {{{"alpha_pattern", {{"q_proj", 8}}}}, {"alpha_pattern"}},
        {{{"bias", "lora_only"}}, {"bias"}},
        {{{"lora_bias", true}}, {"lora_bias"}},
        {{{"fan_in_fan_out", true}}, {"fan_in_fan_out"}},
        {{{"modules_to_save", {"lm_head"}}}, {"modules_to_save"}},
        {{{"trainable_token_indices", {{"embed_tokens", {5}}}}}, {"trainable_token_indices"}},
        {{{"target_parameters", {"mlp.experts.down_proj"}}}, {"target_parameters"}},
        {{{"layers_to_transform", 0}}, {"layers_to_transform"}},
        {{{"layers_to_transform", {0, 1}}, {"layers_pattern", "layers"}}, {"layers_to_transform"}},
        {{{"exclude_modules", {"k_proj"}}}, {"exclude_modules"}},
        {{{"use_qalora", true}}, {"use_qalora"}},
        {{{"megatron_config", {{"tp", 2}}}}, {"megatron_config"}},
        {{{"target_modules", ".*(q|v)_proj"}}, {"target_modules", "list"}},
        {{{"a_key_of_tomorrow", true}}, {"a_key_of_tomorrow", "not known"}},
        {{{"nested", {{"x", 1}}}}, {"nested"}}};
    for (const auto& [change, said] : cases) {
        const auto words = Read(change);
        ASSERT_FALSE(words.ok()) << change;
        EXPECT_EQ(words.error().code, ErrorCode::kUnsupported) << change;
        for (const char* word : said) {
            EXPECT_NE(words.error().message.find(word), std::string::npos)
                << words.error().message << "\nlacks " << word;
        }
    }
}

TEST_F(AdapterConfig, OtherKindsAreRefusedByName) {
    for (const char* kind : {"ADALORA", "IA3", "LOHA", "LOKR", "VERA", "OFT", "XLORA", "BONE",
                             "PREFIX_TUNING", "RANDLORA"}) {
        const auto words = Read({{"peft_type", kind}});
        ASSERT_FALSE(words.ok()) << kind;
        EXPECT_NE(words.error().message.find(kind), std::string::npos) << words.error().message;
        EXPECT_NE(words.error().message.find("merge"), std::string::npos);
    }
    support::WriteText(dir_ / "adapter.gguf", "GGUF");
    const auto file = ReadAdapterConfig(dir_ / "adapter.gguf");
    ASSERT_FALSE(file.ok());
    EXPECT_NE(file.error().message.find("folder"), std::string::npos) << file.error().message;
    const auto expect = [&](const char* word) {
        const std::string error = ReadAdapterConfig(dir_ / "other").error().message;
        for (const char* each : {word, "no adapter_config.json", "weft train --lora"}) {
            EXPECT_NE(error.find(each), std::string::npos) << error;
        }
    };
    std::filesystem::create_directories(dir_ / "other");
    expect("empty folder");
    support::WriteText(dir_ / "other/readme", "");
    expect("Give a folder");
    support::WriteText(dir_ / "other/adapter_model.bin", "");
    expect("PyTorch");
    support::WriteText(dir_ / "other/config.json", "{}");
    expect("a model, not an adapter");
}

}  // namespace
}  // namespace weft::model_files
