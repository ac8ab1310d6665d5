// config.json of models with Mamba-2 layers: its spellings, and refusals by name.
#include <gtest/gtest.h>

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

HfGolden MambaGolden(const std::string& name) {
    return HfGolden(support::TestData("/families/" + name + ".safetensors"));
}

// The error for a folder after `change`; empty: it opens.
std::string MambaSaid(const std::string& name, const std::function<void(json&)>& change) {
    const HfGolden golden = MambaGolden(name);
    json config = json::parse(golden.Text(name + "/config"));
    change(config);
    const test::TempDir dir;
    support::WriteText(dir / "config.json", config.dump());
    support::WriteTensors(dir.path(), golden.Tensors(name));
    const auto opened = OpenFolder(dir.path());
    return opened.ok() ? "" : opened.error().message;
}

TEST(HfMamba, KeysAreRefusedByName) {
    const json open = {{"__float__", "Infinity"}};
    for (const auto& [name, key, value] :
         {std::tuple{"nemotronH", "time_step_limit", json::array({0.001, open})},
          std::tuple{"nemotronH", "time_step_limit", json::array({0.0, 0.5})},
          std::tuple{"nemotronH", "time_step_limit", json(3)},
          std::tuple{"nemotronH", "mlp_hidden_act", json("silu")},
          std::tuple{"nemotronH", "mamba_hidden_act", json("gelu")},
          std::tuple{"nemotronH", "layers_block_type", json::array({"mlp", "other"})},
          std::tuple{"nemotronH", "n_groups", json(5)},
          std::tuple{"nemotronH", "conv_kernel", json(0)},
          std::tuple{"graniteHybrid", "mamba_n_groups", json(13)},
          std::tuple{"mamba2", "n_groups", json(5)},
          std::tuple{"bamba", "mamba_n_groups", json(5)},
          std::tuple{"falconH1", "mamba_n_groups", json(3)},
          std::tuple{"graniteHybrid", "mamba_d_head", json(20)},
          std::tuple{"graniteHybrid", "position_embedding_type", json("alibi")},
          std::tuple{"graniteHybrid", "layer_types", json::array({"mamba"})},
          std::tuple{"falconH1", "attention_bias", json(true)},
          std::tuple{"falconH1", "mamba_proj_bias", json(true)},
          std::tuple{"falconH1", "mamba_conv_bias", json(false)},
          std::tuple{"graniteHybrid", "mamba_conv_bias", json()},
          std::tuple{"nemotronH", "use_conv_bias", json(false)},
          std::tuple{"falconH1", "mamba_rms_norm", json(true)},
          std::tuple{"falconH1", "ssm_multipliers", json::array({1.0, 2.0})},
          std::tuple{"falconH1", "key_multiplier", json(-1.0)},
          std::tuple{"falconH1Normed", "mamba_norm_before_gate", json(true)}}) {
        const std::string said = MambaSaid(name, [&](json& config) { config[key] = value; });
        const bool norms = std::string_view(key) == "mamba_rms_norm";
        EXPECT_NE(said.find(norms ? "mamba_norm_before_gate" : key), std::string::npos)
            << name << " " << key << ": " << said;
    }
}

// As published: Mamba-2 has no rank of steps. (A read of a key that is not there is undefined; the
// sanitizers' builds end there.)
TEST(HfMamba, NoRankOfStepsIsNeeded) {
    EXPECT_EQ(MambaSaid("mamba2", [](json& config) { config.erase("time_step_rank"); }), "");
}

// Letters for the kinds of layers, and Python's word for infinity, as in published folders.
TEST(HfMamba, PublishedSpellingsAreTheSame) {
    const std::string fresh = MambaGolden("nemotronHMoe").Text("nemotronHMoe/config");
    json old = json::parse(fresh);
    old.erase("layers_block_type");
    old["hybrid_override_pattern"] = "ME*EM-";
    old["num_hidden_layers"] = 6;
    old.erase("head_dim");
    old["attention_head_dim"] = 16;
    std::string text = old.dump();
    const std::string word = R"({"__float__":"Infinity"})";
    ASSERT_NE(text.find(word), std::string::npos);
    text.replace(text.find(word), word.size(), "Infinity");
    const auto want = ParseFolderConfig(fresh, "model"), got = ParseFolderConfig(text, "model");
    ASSERT_TRUE(want.ok()) << want.error().message;
    ASSERT_TRUE(got.ok()) << got.error().message;
    EXPECT_EQ(got->header, want->header);
    EXPECT_EQ(got->family->architecture, "nemotron_h_moe");
}

// A name that contains the word, a string with a quote and the word, and a word in a list.
TEST(HfMamba, InfinityIsReadOnlyOutsideStrings) {
    const Config config =
        Config::Parse(R"({"NaN": "a \" Infinity", "b": [-Infinity, NaN]})", "config.json").value();
    EXPECT_EQ(config.json()["NaN"], "a \" Infinity");
    EXPECT_EQ(config.json()["b"][0], (json{{"__float__", "-Infinity"}}));
    EXPECT_EQ(config.json()["b"][1], (json{{"__float__", "NaN"}}));
    EXPECT_FALSE(Config::Parse(R"({"a": Infinit})", "config.json").ok());
}

}  // namespace
}  // namespace weft::model_files::hf
