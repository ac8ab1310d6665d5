// RoPE and soft caps of Hugging Face folders against transformers: every kind of RoPE, in every
// family, with its optional keys (tests/data/rope_golden.safetensors, made by
// tools/make_rope_golden.py).
#include <gtest/gtest.h>

#include <filesystem>

#include "model/rope_notes.h"
#include "model_files/hf/folder.h"
#include "quantize/quantize.h"
#include "support/hf_folder.h"
#include "support/loaded_rank.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

using Json = nlohmann::json;

// The error of float32 sums over two layers.
constexpr double kRopeBound = 5e-4;

const HfGolden& RopeFile() {
    static const HfGolden golden(TestData("/rope_golden.safetensors"));
    return golden;
}

struct RopeCase {
    std::string name, family;
    int64_t tokens = 0;
    Json set, drop;
};

std::vector<std::string> CaseNames() {
    return RopeFile().Cases("/case");
}

RopeCase RopeCaseOf(const std::string& name) {
    const Json read = Json::parse(RopeFile().Text(name + "/case"));
    return {name, read["family"], read["tokens"], read["set"], read["drop"]};
}

// A folder of a family, with some config keys set and others removed.
void WriteFolder(const std::string& folder, const std::string& family, const Json& set,
                 const Json& drop = Json::array()) {
    Json config = Json::parse(RopeFile().Text(family + "/base"));
    for (const auto& [key, value] : set.items()) config[key] = value;
    for (const auto& key : drop) config.erase(key.get<std::string>());
    std::filesystem::create_directories(folder);
    WriteText(folder + "/config.json", config.dump());
    WriteTensors(folder, RopeFile().Tensors(family));
}

// The logits of the golden file's rows, in a job whose sequences have exactly these tokens.
std::vector<float> RopeLogits(const model_files::ModelSource& source, int64_t tokens) {
    const auto hyper = model::ReadHyper(source);
    if (!hyper.ok()) ADD_FAILURE() << hyper.error().message;
    if (!hyper.ok()) return {};
    model::BuildOptions build;
    build.kv_dtype = DType::kF32;
    build.context = tokens;
    const auto plan = model::PlanShards(*hyper, source, {});
    const auto program = model::BuildProgram(*hyper, plan->shards[0], source, build);
    if (!program.ok()) ADD_FAILURE() << program.error().message;
    if (!program.ok()) return {};
    backend::CpuOptions options;
    options.level = CpuLevel::kReference;
    LoadedRank rank(*program, source, options);
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < tokens; ++i) {
        const double share = Formula("tokens", static_cast<uint32_t>(i)) * 0.5 + 0.5;
        ids.push_back(static_cast<int32_t>(share * static_cast<double>(hyper->vocab)));
    }
    const std::vector<float> all = rank.Logits(ids, static_cast<size_t>(tokens));
    const size_t vocab = static_cast<size_t>(hyper->vocab);
    std::vector<float> rows;
    for (const int64_t row : {tokens / 2, tokens - 1}) {
        const auto begin = all.begin() + row * hyper->vocab;
        rows.insert(rows.end(), begin, begin + static_cast<int64_t>(vocab));
    }
    return rows;
}

class RopeGolden : public testing::TestWithParam<std::string> {};

TEST_P(RopeGolden, LogitsAreThoseOfTransformers) {
    const test::TempDir dir;
    const RopeCase one = RopeCaseOf(GetParam());
    WriteFolder(dir / "model", one.family, one.set, one.drop);
    const auto source = model_files::hf::OpenFolder(dir / "model");
    ASSERT_TRUE(source.ok()) << source.error().message;
    const std::vector<float> expected = RopeFile().Floats(one.name + "/logits");
    const std::vector<float> logits = RopeLogits(**source, one.tokens);
    ASSERT_EQ(logits.size(), expected.size());
    const size_t vocab = expected.size() / 2;
    for (size_t row = 0; row < 2; ++row) {
        const double error = RelativeL2(std::span(logits).subspan(row * vocab, vocab),
                                        std::span(expected).subspan(row * vocab, vocab));
        EXPECT_TRUE(error <= kRopeBound) << "row " << row << ": " << error;
    }

    // The same from a GGUF file that is written from the folder.
    quantize::QuantizeOptions options;
    options.type = quantize::FindFileType("F32").value();
    const auto quantized = quantize::PlanQuantize(**source, options);
    ASSERT_TRUE(quantized.ok()) << quantized.error().message;
    const auto written = quantize::WriteQuantized(**source, *quantized, dir / "model.gguf", {});
    ASSERT_TRUE(written.ok()) << written.error().message;
    const auto file = model_files::OpenModel(dir / "model.gguf");
    ASSERT_TRUE(file.ok()) << file.error().message;
    EXPECT_EQ(RopeLogits(**file, one.tokens), logits);
}

INSTANTIATE_TEST_SUITE_P(All, RopeGolden, testing::ValuesIn(CaseNames()),
                         [](const auto& one) { return one.param; });

// transformers ignores these keys with a warning; vLLM applies attn_factor and
// extrapolation_factor.
TEST(RopeKeys, ThatNothingReadsAreNamed) {
    const test::TempDir dir;
    const Json yarn = {{"rope_type", "yarn"}, {"factor", 4.0}};
    const auto ropes_of = [&](const Json& more, const std::string& family) {
        Json params = yarn;
        params.update(more);
        WriteFolder(dir / "model", family, {{"rope_parameters", params}});
        const auto source = model_files::hf::OpenFolder(dir / "model");
        EXPECT_TRUE(source.ok()) << source.error().message;
        const model::Hyper hyper = model::ReadHyper(**source).value();
        return std::pair(hyper.ropes.all, model::RopeNotes(**source, hyper));
    };
    const auto plain = ropes_of(Json::object(), "llama");
    EXPECT_EQ(plain.second, std::vector<std::string>());
    const Json neutral = {{"attn_factor", 1}, {"extrapolation_factor", 1.0}, {"alpha", nullptr}};
    EXPECT_EQ(ropes_of(neutral, "llama"), plain);
    const Json unread = {{"attn_factor", 0.8782488562869419},
                         {"extrapolation_factor", 0.5},
                         {"apply_yarn_scaling", false},
                         {"alpha", 1000.0}};
    for (const auto& [key, value] : unread.items()) {
        const auto [rope, notes] = ropes_of({{key, value}}, "llama");
        EXPECT_EQ(rope, plain.first) << key;
        ASSERT_EQ(notes.size(), 1u) << key;
        EXPECT_NE(notes[0].find(key), std::string::npos) << notes[0];
        EXPECT_NE(notes[0].find(value.dump()), std::string::npos) << notes[0];
    }
}

// ---- What is refused ----------------------------------------------------------------------------

struct Refused {
    const char* family;
    const char* set;   // keys of config.json
    const char* word;  // in the error: the key or the kind
};
void PrintTo(const Refused& one, std::ostream* out) {
    *out << one.family << " " << one.set;
}

// Keys for which transformers gives an error, or which it ignores against the file.
const Refused kRefused[] = {
    {"llama", R"({"rope_parameters": {"rope_type": "linear", "factor": null}})", "factor"},
    {"llama", R"({"rope_parameters": {"rope_type": "linear"}})", "factor"},
    {"llama", R"({"rope_parameters": {"rope_type": "dynamic", "factor": null}})", "factor"},
    {"llama", R"({"rope_parameters": {"rope_type": "yarn"}})", "factor"},
    {"llama", R"({"rope_parameters": {"rope_type": "llama3", "factor": 8.0,
                  "high_freq_factor": 4.0}})",
     "low_freq_factor"},
    {"llama", R"({"rope_parameters": {"rope_type": "longrope", "factor": 8.0,
                  "long_factor": [1, 2]}})",
     "long_factor"},
    {"llama", R"({"rope_parameters": {"rope_type": null}})", "rope_type"},
    {"llama", R"({"rope_scaling": {"rope_type": null, "type": "linear", "factor": 2}})",
     "rope_type"},
    {"llama", R"({"rope_scaling": {"factor": 2}})", "rope_type"},
    {"llama", R"({"rope_parameters": {"rope_type": "default", "rope_theta": null}})", "rope_theta"},
    {"llama", R"({"rope_theta": null})", "rope_theta"},
    {"llama", R"({"rope_parameters": {"rope_type": "mrope", "mrope_section": [2, 3]}})", "mrope"},
    {"llama", R"({"rope_parameters": {"rope_type": "yarn", "factor": 2,
                  "original_max_position_embeddings": null}})",
     "original_max_position_embeddings"},
    {"llama", R"({"rope_parameters": {"rope_type": "yarn", "factor": 2, "truncate": 1}})",
     "truncate"},
    {"llama", R"({"rope_parameters": {"rope_type": "yarn", "factor": 2,
                  "attention_factor": -1}})",
     "attention_factor"},
    {"llama", R"({"rope_parameters": {"rope_type": "default", "partial_rotary_factor": 0.5}})",
     "partial_rotary_factor"},
    {"qwen3", R"({"partial_rotary_factor": 0.5})", "partial_rotary_factor"},
    {"olmo2", R"({"rotary_dim": 8})", "rotary_dim"},
    {"glm4_moe", R"({"rope_parameters": {"rope_type": "default",
                     "partial_rotary_factor": null}})",
     "partial_rotary_factor"},
    {"llama", R"({"rope_parameters": {"full_attention": {"rope_type": "default"}}})",
     "full_attention"},
    {"gemma3_text", R"({"rope_parameters": {"rope_type": "linear", "factor": 4}})",
     "rope_parameters"},
    {"gemma3_text", R"({"rope_scaling": {"type": "linear", "factor": 4}})", "rope_scaling"},
    {"gemma3_text", R"({"rope_parameters": {"full_attention": {"rope_type": "default"},
                        "sliding_attention": {"rope_type": "linear", "factor": 4}}})",
     "linear"},
    {"gemma3_text", R"({"rope_parameters": {"full_attention": {"rope_type": "yarn", "factor": 4,
                        "truncate": false}}})",
     "truncate"},
    {"gemma3_text", R"({"rope_local_base_freq": null})", "rope_local_base_freq"},
    {"gemma3_text", R"({"sliding_window": null})", "sliding_window"},
    {"gemma4_text", R"({"rope_parameters": {"full_attention": {"rope_type": "default",
                        "rope_theta": 5000.0}}})",
     "sliding_attention"},
    {"gemma4_text", R"({"attn_logit_softcapping": 20.0})", "attn_logit_softcapping"},
    {"olmo3", R"({"rope_theta": 10000.0})", "rope_theta"},
    {"gemma2", R"({"attn_logit_softcapping": 0.0})", "attn_logit_softcapping"},
    {"gemma2", R"({"final_logit_softcapping": -1.0})", "final_logit_softcapping"},
    {"gemma2", R"({"query_pre_attn_scalar": null})", "query_pre_attn_scalar"},
    {"gemma2", R"({"sliding_window": null})", "sliding_window"},
    {"gemma2", R"({"use_bidirectional_attention": true})", "use_bidirectional_attention"},
    {"mistral", R"({"final_logit_softcapping": 30.0})", "final_logit_softcapping"},
    {"granite", R"({"attention_multiplier": null})", "attention_multiplier"},
    {"granite", R"({"logits_scaling": null})", "logits_scaling"},
    {"llama", R"({"rms_norm_eps": null})", "rms_norm_eps"},
    {"llama", R"({"max_position_embeddings": null})", "max_position_embeddings"},
    {"qwen3", R"({"head_dim": null})", "head_dim"},
    {"mistral", R"({"sliding_window": 8,
                    "layer_types": ["sliding_attention", "full_attention"]})",
     "layer_types"},
    {"phi3", R"({"rope_parameters": {"rope_type": "linear", "factor": 4}})", "linear"},
    {"phi3", R"({"rope_parameters": {"rope_type": "longrope", "short_mscale": 1.2}})",
     "short_mscale"},
    {"deepseek_v3", R"({"rope_parameters": {"rope_type": "linear", "factor": 4,
                        "mscale_all_dim": 1.0}})",
     "mscale_all_dim"},
    {"deepseek_v3", R"({"rope_parameters": {"rope_type": "yarn", "factor": null,
                        "mscale_all_dim": 1.0}})",
     "factor"},
};

class RopeRefused : public testing::TestWithParam<Refused> {};

TEST_P(RopeRefused, NamesTheKey) {
    const test::TempDir dir;
    WriteFolder(dir / "model", GetParam().family, Json::parse(GetParam().set));
    ExpectRefusedFolder(dir / "model", GetParam().word);
}

INSTANTIATE_TEST_SUITE_P(All, RopeRefused, testing::ValuesIn(kRefused));

}  // namespace
}  // namespace weft::support
