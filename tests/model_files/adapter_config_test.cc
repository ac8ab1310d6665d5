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

class AdapterConfigFile : public testing::Test {
  protected:
    Result<AdapterConfig> Read(const json& change, LoraUse use = LoraUse::kTrain) {
        json config = Saved();
        config.update(change);
        support::WriteText(dir_ / "adapter_config.json", config.dump());
        return ReadAdapterConfig(dir_.path(), use);
    }

    test::TempDir dir_;
};

TEST_F(AdapterConfigFile, HarmlessKeysAreAccepted) {
    const json taken[] = {
        json::object(),
        {{"peft_type", "lora"}},
        {{"r", 16.0}},
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
        {{"rank_pattern", {{"q_proj", 8}}}, {"alpha_pattern", {{"v_proj", 2.5}}}},
        {{"fan_in_fan_out", true}},
        {{"a_key_of_tomorrow", nullptr}, {"another", false}, {"third", 0}, {"fourth", ""}}};
    for (const json& change : taken) {
        const auto words = Read(change);
        ASSERT_TRUE(words.ok()) << words.error().message;
        EXPECT_EQ(words->words.rank, 16);
        EXPECT_EQ(words->words.alpha, 32);
        EXPECT_EQ(words->words.targets, "q_proj,v_proj");
        EXPECT_EQ(*AdapterDropout(dir_.path()), change.value("lora_dropout", 0.0));
    }
    EXPECT_TRUE(Read({{"use_rslora", true}})->words.rslora);
    for (const json& change :
         {json{{"use_dora", true}}, json{{"bias", "all"}}, json{{"modules_to_save", {"lm_head"}}},
          json{{"trainable_token_indices", {5, 7}}}}) {
        EXPECT_TRUE(Read(change, LoraUse::kApply).ok()) << change;
        EXPECT_FALSE(Read(change).ok()) << change;
    }
    EXPECT_EQ(Read({{"trainable_token_indices", {5, 7}}}, LoraUse::kApply)->tokens[""],
              (std::vector<int64_t>{5, 7}));
    for (const json& wrong :
         {json{{"trainable_token_indices", "5"}}, json{{"trainable_token_indices", {-5}}},
          json{{"trainable_token_indices", {uint64_t{1} << 63}}},
          json{{"trainable_token_indices", {{"embed_tokens", {1.5}}}}}}) {
        EXPECT_FALSE(Read(wrong, LoraUse::kApply).ok()) << wrong;
    }
    // Only the tensors show which modules have an adapter.
    const json shown[] = {{{"target_modules", "all-linear"}},
                          {{"target_modules", ".*(q|v)_proj"}},
                          {{"exclude_modules", {"k_proj"}}},
                          {{"target_parameters", {"mlp.experts.down_proj"}}},
                          {{"layers_to_transform", 0}},
                          {{"layers_to_transform", {0, 1}}, {"layers_pattern", "layers"}}};
    for (const json& change : shown) {
        const auto words = Read(change);
        ASSERT_TRUE(words.ok()) << words.error().message;
        EXPECT_EQ(words->words.targets, "") << change;
    }
}

// The first pattern of the file counts, as in PEFT, whatever the order of the alphabet.
TEST_F(AdapterConfigFile, PatternsAreTriedInTheOrderOfTheFile) {
    const std::string wide = R"("q_proj": 16)", narrow = R"("layers.0.q_proj": 64)";
    for (const bool wide_first : {true, false}) {
        const std::string all = wide_first ? wide + "," + narrow : narrow + ", " + wide;
        json config = Saved();
        config.erase("alpha_pattern");
        config.erase("rank_pattern");
        std::string text = config.dump();
        text.resize(text.size() - 1);
        text += ", \"alpha_pattern\": {" + all + "}, \"rank_pattern\": {" + all + "}}";
        support::WriteText(dir_ / "adapter_config.json", text);
        const auto read = ReadAdapterConfig(dir_.path(), LoraUse::kTrain);
        ASSERT_TRUE(read.ok()) << read.error().message;
        EXPECT_EQ(read->RankOf("model.layers.0.q_proj"), wide_first ? 16 : 64);
        EXPECT_EQ(read->AlphaOf("model.layers.0.q_proj"), wide_first ? 16 : 64);
        EXPECT_EQ(read->AlphaOf("model.layers.1.q_proj"), 16);
    }
}

// As in PEFT: an expression for the whole end of a name, from a dot on; the first that fits.
TEST_F(AdapterConfigFile, PatternsAreForEndsOfNames) {
    const auto read = Read({{"rank_pattern", {{"a.q_proj", 1}, {"q_proj", 2}, {"1\\..*up", 3}}},
                            {"alpha_pattern", {{"model.layers.0.mlp.(up|down)", 0.5}}}});
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->RankOf("model.layers.0.a.q_proj"), 1);
    EXPECT_EQ(read->RankOf("model.layers.0.b.q_proj"), 2);
    EXPECT_EQ(read->RankOf("model.layers.0.b.kq_proj"), 16);
    EXPECT_EQ(read->RankOf("model.layers.0.q_proj.b"), 16);
    EXPECT_EQ(read->RankOf("model.layers.1.mlp.up"), 3);
    EXPECT_EQ(read->RankOf("model.layers.11.mlp.up"), 16);
    EXPECT_EQ(read->AlphaOf("model.layers.0.mlp.down"), 0.5);
    EXPECT_EQ(read->AlphaOf("model.layers.1.mlp.down"), 32);
    for (const json& wrong : {json{{"q_proj", -1}}, json{{"q_proj", "2"}}, json{1, 2}, json(3)}) {
        const auto refused = Read({{"rank_pattern", wrong}});
        ASSERT_FALSE(refused.ok()) << wrong;
        EXPECT_EQ(refused.error().code, ErrorCode::kCorrupt);
        EXPECT_NE(refused.error().message.find("rank_pattern"), std::string::npos);
    }
    const auto refused = Read({{"alpha_pattern", {{"(q_proj", 1}}}});
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find("(q_proj"), std::string::npos);
}

TEST_F(AdapterConfigFile, KeysThatChangeResultsAreRefusedByName) {
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
        {{{"use_dora", true}}, {"use_dora", "weft merge"}},
        {{{"alora_invocation_tokens", {1, 2}}}, {"alora_invocation_tokens"}},
        {{{"kasa_config", {{"beta", 0.1}}}}, {"kasa_config"}},
        {{{"monteclora_config", {{"num_samples", 4}}}}, {"monteclora_config"}},
        {{{"bias", "lora_only"}}, {"bias"}},
        {{{"lora_bias", true}}, {"lora_bias"}},
        {{{"modules_to_save", {"lm_head"}}}, {"modules_to_save"}},
        {{{"trainable_token_indices", {{"embed_tokens", {5}}}}}, {"trainable_token_indices"}},
        {{{"use_qalora", true}}, {"use_qalora"}},
        {{{"megatron_config", {{"tp", 2}}}}, {"megatron_config"}},
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

TEST_F(AdapterConfigFile, OtherKindsAreRefusedByName) {
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
