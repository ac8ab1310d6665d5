// Unusual metadata is read into Hyper, or refused by name before anything is loaded.
#include "model/hyper.h"

#include <gtest/gtest.h>

#include "model/rope_notes.h"
#include "support/golden_experts.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::support {
namespace {

class HyperTest : public testing::Test {
  protected:
    Result<model::Hyper> Read(const TinyFile& file) {
        const std::string path = dir_ / "model.gguf";
        WriteTinyGguf(path, file);
        source_ = model_files::OpenModel(path).value();
        return model::ReadHyper(*source_);
    }
    TinyFile File(const std::string& architecture) const {
        model::Hyper hyper = OddHyper(architecture);
        hyper.hidden = 64;
        hyper.ffn = 128;  // for two ranks
        return {.hyper = hyper};
    }
    std::vector<std::string> Notes(const TinyFile& file) {
        const auto hyper = Read(file);
        return model::RopeNotes(*source_, *hyper);
    }
    void ExpectRefused(const TinyFile& file, ErrorCode code, const std::string& what) {
        const auto hyper = Read(file);
        ASSERT_FALSE(hyper.ok()) << what;
        EXPECT_EQ(hyper.error().code, code) << hyper.error().message;
        EXPECT_NE(hyper.error().message.find(what), std::string::npos) << hyper.error().message;
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
};

TEST_F(HyperTest, WindowsFollowThePatternOrTheArchitecture) {
    TinyFile file = File("llama");
    EXPECT_FALSE(Read(file)->IsWindowed(0));
    file.numbers["attention.sliding_window"] = 7;
    EXPECT_EQ(Read(file)->windowed, (std::vector<bool>{true, true, true}));
    file.windowed = {false, true, false};
    EXPECT_EQ(Read(file)->windowed, file.windowed);
    EXPECT_EQ(Read(file)->window, 7);
    file.windowed = {false, true};
    ExpectRefused(file, ErrorCode::kCorrupt, "sliding_window_pattern");
    file = File("gemma2");
    EXPECT_EQ(Read(file)->windowed, (std::vector<bool>{true, false, true}));
    EXPECT_EQ(Read(file)->window, 4096);
    EXPECT_EQ(Read(file)->logit_cap, 30.0f);
}

// llama.cpp's converter omits the factors of MiniCPM 3 and the columns of its values.
TEST_F(HyperTest, MiniCpm3HasTheFactorsThatFilesOmit) {
    model_files::GgufWriter writer;
    writer.String("general.architecture", "minicpm3");
    for (const auto& [key, value] : {std::pair{"block_count", 62u},
                                     {"context_length", 32768u},
                                     {"embedding_length", 2560u},
                                     {"feed_forward_length", 6400u},
                                     {"attention.head_count", 40u},
                                     {"attention.head_count_kv", 40u},
                                     {"attention.kv_lora_rank", 256u},
                                     {"attention.q_lora_rank", 768u},
                                     {"attention.key_length", 96u},
                                     {"rope.dimension_count", 32u}}) {
        writer.U32(std::string("minicpm3.") + key, value);
    }
    writer.F32("minicpm3.attention.layer_norm_rms_epsilon", 1e-5f);
    const int64_t dims[] = {2560, 5};
    writer.Tensor("token_embd.weight", DType::kF32, dims, std::vector<std::byte>(2560 * 5 * 4));
    const std::string path = dir_ / "cpm.gguf";
    ASSERT_TRUE(WriteFile(path, writer.File()).ok());
    source_ = model_files::OpenModel(path).value();
    const auto hyper = model::ReadHyper(*source_);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    EXPECT_EQ(hyper->latent.value, 64);
    EXPECT_EQ(hyper->latent.nope, 64);
    EXPECT_FLOAT_EQ(hyper->embedding_scale, 12);
    EXPECT_FLOAT_EQ(hyper->residual_scale, 1.4f / std::sqrt(62.0f));
    EXPECT_FLOAT_EQ(hyper->logit_scale, 0.1f);
}

// Peng et al. 2023: fast pairs stay, slow ones are divided by the factor; the magnitude is 0.1 ln 4
// + 1.
TEST_F(HyperTest, YarnBlendsBothEnds) {
    TinyFile file = File("qwen2");
    file.numbers = {{"rope.scaling.factor", 4}, {"rope.scaling.original_context_length", 256}};
    file.strings = {{"rope.scaling.type", "yarn"}};
    const model::Ropes ropes = Read(file)->ropes;
    EXPECT_NEAR(ropes.all.magnitude, 0.1 * std::log(4.0) + 1, 1e-6);
    const std::vector<float>& angles = ropes.all.inverse_frequency;
    EXPECT_EQ(angles.front(), 1.0f);
    EXPECT_NEAR(angles.back(), std::pow(10000.0, -30.0 / 32) / 4, 1e-9);
    file.numbers["rope.scaling.yarn_log_multiplier"] = 0.1;  // mscale_all_dim 1, equal to mscale
    EXPECT_EQ(Read(file)->ropes.all.magnitude, 1.0f);
    EXPECT_EQ(Read(file)->ropes.yarn_factor, 4);
}

// YaRN's factor is the new length divided by the original one; for other scalings, context_length
// is the extended context.
TEST_F(HyperTest, ContextIncludesTheYarnExtension) {
    TinyFile file = File("qwen3");
    file.numbers = {{"rope.scaling.factor", 4}, {"rope.scaling.original_context_length", 256}};
    for (const auto& [type, context] :
         {std::pair{"yarn", 1024}, std::pair{"linear", 512}, std::pair{"none", 512}}) {
        file.strings = {{"rope.scaling.type", type}};
        EXPECT_EQ(Read(file)->context, context) << type;
    }
    file.strings = {{"rope.scaling.type", "yarn"}};
    file.numbers["rope.scaling.original_context_length"] = 100;  // less than context_length
    EXPECT_EQ(Read(file)->context, 512);
    file.numbers["rope.scaling.original_context_length"] = 1u << 31;
    EXPECT_EQ(Read(file)->context, 1ll << 31);
    file.numbers.erase("rope.scaling.original_context_length");
    EXPECT_EQ(Read(file)->context, 4 * 512);
    const model::Hyper hyper = *Read(file);
    EXPECT_TRUE(model::CheckContext(hyper, 2048, "--ctx 2048").ok());
    const Status beyond = model::CheckContext(hyper, 2049, "--ctx 2049");
    ASSERT_FALSE(beyond.ok());
    EXPECT_EQ(beyond.error().code, ErrorCode::kUsage);
    EXPECT_EQ(beyond.error().message.find("--ctx 2049: "), 0u) << beyond.error().message;
    EXPECT_NE(beyond.error().message.find("2048 tokens"), std::string::npos);
}

// Keys have the same meaning as in llama.cpp: rope.scaling.attn_factor multiplies the type's
// magnitude, and yarn_attn_factor changes nothing; in OLMo 3's files either is the whole magnitude.
TEST_F(HyperTest, RopeKeysCountAsInLlamaCpp) {
    TinyFile file = File("qwen2");
    const model::Rope plain = Read(file)->ropes.all;
    file.numbers = {{"rope.scale_linear", 4}};  // the key of older files
    EXPECT_FLOAT_EQ(Read(file)->ropes.all.inverse_frequency[1], plain.inverse_frequency[1] / 4);
    file.numbers = {{"rope.scaling.factor", 0}};
    EXPECT_EQ(Read(file)->ropes.all, plain);
    file.numbers = {{"rope.scaling.factor", 4}};
    file.strings = {{"rope.scaling.type", "none"}};
    EXPECT_EQ(Read(file)->ropes.all, plain);
    file.strings = {{"rope.scaling.type", "dynamic"}};
    EXPECT_EQ(Read(file)->ropes.all, plain);
    EXPECT_EQ(Read(file)->ropes.dynamic_factor, 4);
    file.strings = {{"rope.scaling.type", "linear"}};
    file.numbers["rope.scaling.attn_factor"] = 1.5;
    file.numbers["rope.scaling.yarn_attn_factor"] = 2;
    EXPECT_FLOAT_EQ(Read(file)->ropes.all.magnitude, 1.5);
    const double yarn = 0.1 * std::log(4.0) + 1;
    for (const char* architecture : {"qwen2", "olmo2"}) {
        file = File(architecture);
        file.strings = {{"rope.scaling.type", "yarn"}};
        file.numbers = {{"rope.scaling.factor", 4}, {"rope.scaling.attn_factor", 1.25}};
        const bool whole = std::string_view(architecture) == "olmo2";
        EXPECT_NEAR(Read(file)->ropes.all.magnitude, whole ? 1.25 : 1.25 * yarn, 1e-6);
        EXPECT_EQ(Notes(file), std::vector<std::string>());
        // DeepSeek-R1-0528-Qwen3-8B: 1 / m(4), from config.json's attn_factor.
        file.numbers = {{"rope.scaling.factor", 4}, {"rope.scaling.yarn_attn_factor", 1 / yarn}};
        EXPECT_NEAR(Read(file)->ropes.all.magnitude, whole ? 1 / yarn : yarn, 1e-6);
        const std::vector<std::string> notes = Notes(file);
        ASSERT_EQ(notes.size(), whole ? 0u : 1u);
        if (whole) continue;
        EXPECT_NE(notes[0].find("yarn_attn_factor"), std::string::npos);
        for (const double usual : {yarn, -1.0}) {
            file.numbers["rope.scaling.yarn_attn_factor"] = usual;
            EXPECT_EQ(Notes(file), std::vector<std::string>()) << usual;
        }
    }
}

// llama.cpp refuses files without the epsilon, and uses the base 10000 if none is given.
TEST_F(HyperTest, KeysThatFilesLack) {
    for (const auto& [architecture, epsilon] :
         {std::pair{"llama", "llama.attention.layer_norm_rms_epsilon"},
          std::pair{"stablelm", "stablelm.attention.layer_norm_epsilon"},
          std::pair{"cohere2", "cohere2.attention.layer_norm_epsilon"},
          std::pair{"mpt", "mpt.attention.layer_norm_epsilon"}}) {
        const std::string prefix = std::string(architecture) + ".";
        for (const bool has : {false, true}) {
            model_files::GgufWriter writer;
            writer.String("general.architecture", architecture);
            for (const char* key : {"block_count", "embedding_length", "feed_forward_length",
                                    "attention.head_count"}) {
                writer.U32(prefix + key, 8);
            }
            writer.U32(prefix + "attention.key_length", 8);
            if (has) writer.F32(epsilon, 1e-5f);
            const int64_t dims[] = {8, 5};
            writer.Tensor("token_embd.weight", DType::kF32, dims,
                          std::vector<std::byte>(size_t{8} * 5 * 4));
            ASSERT_TRUE(WriteFile(dir_ / "lacks.gguf", writer.File()).ok());
            source_ = model_files::OpenModel(dir_ / "lacks.gguf").value();
            const auto hyper = model::ReadHyper(*source_);
            ASSERT_EQ(hyper.ok(), has) << architecture;
            if (!has) {
                EXPECT_NE(hyper.error().message.find(epsilon), std::string::npos)
                    << hyper.error().message;
                continue;
            }
            const bool rotates = std::string_view(architecture) != "mpt";
            const std::vector<std::string> notes = model::RopeNotes(*source_, *hyper);
            ASSERT_EQ(notes.size(), rotates ? 1u : 0u) << architecture;
            if (!rotates) continue;
            EXPECT_NE(notes[0].find(prefix + "rope.freq_base"), std::string::npos);
            EXPECT_NE(notes[0].find("10000"), std::string::npos);
        }
    }
}

// NTK scaling of Hunyuan's files: the base times alpha^(dim / (dim - 2)).
TEST_F(HyperTest, AlphaRaisesTheBaseOrIsRefused) {
    TinyFile file = File("hunyuan-dense");
    const model::Rope plain = Read(file)->ropes.all;
    file.numbers = {{"rope.scaling.alpha", 8}};
    const auto dim = static_cast<double>(file.hyper.rotary_dim);
    const double turns = std::pow(8.0, -2.0 / (dim - 2));  // of the second pair
    EXPECT_NEAR(Read(file)->ropes.all.inverse_frequency[1], plain.inverse_frequency[1] * turns,
                1e-6);
    file = File("qwen2");
    file.numbers = {{"rope.scaling.alpha", 8}};
    ExpectRefused(file, ErrorCode::kUnsupported, "scaling.alpha");
    file.numbers = {{"rope.scaling.alpha", 0}};
    EXPECT_TRUE(Read(file).ok());
}

// Gemma 3's windowed layers have no RoPE scaling, in long jobs either.
TEST_F(HyperTest, LongRopeDoesNotApplyToPlainWindows) {
    for (const char* architecture : {"gemma3", "phi3"}) {
        TinyFile file = File(architecture);
        file.numbers = {{"attention.sliding_window", 7},
                        {"rope.freq_base_swa", 10000},
                        {"rope.scaling.original_context_length", 64},
                        {"rope.scaling.attn_factor", 1.5}};
        file.strings = {{"rope.scaling.type", "longrope"}};
        file.vectors = {{"rope_factors_short.weight", std::vector<float>(16, 2)},
                        {"rope_factors_long.weight", std::vector<float>(16, 4)}};
        const auto hyper = Read(file);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        const model::Ropes& ropes = hyper->ropes;
        const bool plain = std::string_view(architecture) == "gemma3";
        EXPECT_EQ(ropes.Of(false, 64).inverse_frequency[0], 0.5f);
        EXPECT_EQ(ropes.Of(false, 65).inverse_frequency[0], 0.25f);
        EXPECT_EQ(ropes.Of(true, 64).inverse_frequency[0], plain ? 1.0f : 0.5f);
        EXPECT_EQ(ropes.Of(true, 65).inverse_frequency[0], plain ? 1.0f : 0.25f);
        EXPECT_EQ(ropes.Of(true, 65).magnitude, plain ? 1.0f : 1.5f);
    }
}

TEST_F(HyperTest, UnknownFeaturesAreRefused) {
    TinyFile file = File("llama");
    file.strings = {{"rope.scaling.type", "ntk"}};
    ExpectRefused(file, ErrorCode::kUnsupported, "'ntk'");
    file.strings = {{"rope.scaling.type", "yarn"}};
    file.numbers = {{"rope.scaling.yarn_ext_factor", 0.5}};
    ExpectRefused(file, ErrorCode::kUnsupported, "yarn_ext_factor");
    file.strings = {};
    file.numbers = {{"rope.scaling.yarn_ext_factor", 1}};
    ExpectRefused(file, ErrorCode::kUnsupported, "yarn_ext_factor");
    file = File("phi3");
    file.strings = {{"rope.scaling.type", "longrope"}};
    ExpectRefused(file, ErrorCode::kCorrupt, "rope_factors_short.weight");
    file.vectors["rope_factors_long.weight"] = {1, 2};
    ExpectRefused(file, ErrorCode::kCorrupt, "2 factors; expected 16");
    file = File("llama");
    file.numbers = {{"logit_scale", 2}};
    ExpectRefused(file, ErrorCode::kUnsupported, "llama.logit_scale");
    file = File("qwen2");
    file.bools = {{"attention.causal", true}};
    EXPECT_TRUE(Read(file).ok());
    file.bools = {{"attention.causal", false}};
    ExpectRefused(file, ErrorCode::kUnsupported, "qwen2.attention.causal is false");
    file.bools = {};
    file.numbers = {{"attention.temperature_scale", 0.1}};
    ExpectRefused(file, ErrorCode::kUnsupported, "temperature_scale");
    file.numbers = {{"attention.value_scale", 0.5}};
    ExpectRefused(file, ErrorCode::kUnsupported, "value_scale");
    file.numbers = {{"swiglu_clamp_exp", 7}};
    ExpectRefused(file, ErrorCode::kUnsupported, "swiglu_clamp_exp");
    file = File("gemma3");
    file.numbers = {{"attention.shared_kv_layers", 2}};
    ExpectRefused(file, ErrorCode::kUnsupported, "shared_kv_layers");
    file.numbers = {{"embedding_length_per_layer_input", 256}};
    ExpectRefused(file, ErrorCode::kUnsupported, "per_layer_input");
}

// Defaults that Llama 4's files omit: chunks of 8192 in all but every fourth layer, the
// temperature, the shared expert, and that the model with 128 experts does not norm heads.
TEST_F(HyperTest, Llama4) {
    TinyFile file = File("llama4");
    file.hyper.layers = 5;
    file.hyper.moe.experts = 6;
    file.hyper.moe.used = 1;
    file.hyper.moe.ffn = 24;
    const auto hyper = Read(file);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    EXPECT_TRUE(hyper->chunked && hyper->unit_heads && hyper->moe.weighs_input);
    EXPECT_EQ(hyper->window, 8192);
    EXPECT_EQ(hyper->windowed, (std::vector<bool>{true, true, true, false, true}));
    EXPECT_EQ(hyper->temperature.beta, 0.1f);
    EXPECT_EQ(hyper->temperature.length, 8192);
    EXPECT_EQ(hyper->temperature.offset, 1);
    EXPECT_EQ(hyper->moe.shared_ffn, 24);
    EXPECT_EQ(hyper->moe.route.score, program::GateScore::kSigmoid);
    EXPECT_FALSE(hyper->moe.route.renormalise);
    file.hyper.moe.experts = 128;
    EXPECT_FALSE(Read(file)->unit_heads);
    file.numbers = {{"attention.sliding_window", 0}};
    EXPECT_FALSE(Read(file)->chunked);
    EXPECT_EQ(Read(file)->temperature.beta, 0);
}

// A layer reads the cache of the last layer of its kind that writes one.
TEST_F(HyperTest, SharedCaches) {
    TinyFile file = File("gemma4");
    const auto set = [&](int64_t shared, std::vector<bool> windowed) {
        file.hyper.layers = static_cast<int64_t>(windowed.size());
        file.numbers = {{"attention.shared_kv_layers", static_cast<double>(shared)},
                        {"attention.sliding_window", 4}};
        file.windowed = std::move(windowed);
    };
    set(3, {true, true, false, true, false, true});
    const auto hyper = Read(file);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    for (const auto& [layer, source] : std::map<int, int>{{1, 1}, {2, 2}, {3, 1}, {4, 2}, {5, 1}}) {
        EXPECT_EQ(hyper->KvLayer(layer), source);
    }
    set(2, {true, true, false, true});
    ExpectRefused(file, ErrorCode::kCorrupt, "layer 2 has no earlier layer without a window");
    set(4, {true, true, false, true});
    ExpectRefused(file, ErrorCode::kCorrupt, "shared_kv_layers");
}

TEST_F(HyperTest, TemperatureOfQueries) {
    TinyFile file = File("llama");
    EXPECT_EQ(Read(file)->temperature.beta, 0);
    file.numbers = {{"attention.temperature_scale", 0.25},
                    {"rope.scaling.original_context_length", 128}};
    EXPECT_EQ(Read(file)->temperature.beta, 0.25f);
    EXPECT_EQ(Read(file)->temperature.length, 128);
    file.numbers["attention.temperature_length"] = 64;
    EXPECT_EQ(Read(file)->temperature.length, 64);
    file.numbers["attention.temperature_scale"] = -1;
    ExpectRefused(file, ErrorCode::kCorrupt, "attention.temperature_scale is -1");
    file.numbers["attention.temperature_scale"] = 0.25;
    file.numbers["attention.temperature_length"] = 0;
    ExpectRefused(file, ErrorCode::kCorrupt, "attention.temperature_length");
}

// If a file has no head size and more heads than columns, heads would have no columns.
TEST_F(HyperTest, HeadsOfSizeZeroAreRefused) {
    model_files::GgufWriter writer;
    writer.String("general.architecture", "llama");
    for (const char* key : {"block_count", "feed_forward_length", "attention.head_count_kv"}) {
        writer.U32(std::string("llama.") + key, 1);
    }
    writer.U32("llama.embedding_length", 32);
    writer.U32("llama.attention.head_count", 64);
    writer.F32("llama.attention.layer_norm_rms_epsilon", 1e-5f);
    writer.Tensor("token_embd.weight", DType::kF32, std::vector<int64_t>{32, 2},
                  std::vector<std::byte>(256));
    const std::string path = dir_ / "headless.gguf";
    ASSERT_TRUE(WriteFile(path, writer.File()).ok());
    const auto source = model_files::OpenModel(path);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto hyper = model::ReadHyper(**source);
    ASSERT_FALSE(hyper.ok());
    EXPECT_NE(hyper.error().message.find("head dims (key 0"), std::string::npos)
        << hyper.error().message;
}

// A list of zeros contains no width.
TEST_F(HyperTest, AModelWithoutAnMlpIsRefused) {
    model_files::GgufWriter writer;
    writer.String("general.architecture", "llama");
    writer.U32("llama.block_count", 2);
    writer.U32("llama.embedding_length", 32);
    writer.U32("llama.attention.head_count", 2);
    writer.I32s("llama.feed_forward_length", std::vector<int32_t>{0, 0});
    writer.Tensor("token_embd.weight", DType::kF32, std::vector<int64_t>{32, 2},
                  std::vector<std::byte>(256));
    const std::string path = dir_ / "narrow.gguf";
    ASSERT_TRUE(WriteFile(path, writer.File()).ok());
    const auto source = model_files::OpenModel(path);
    ASSERT_TRUE(source.ok()) << source.error().message;
    const auto hyper = model::ReadHyper(**source);
    ASSERT_FALSE(hyper.ok());
    EXPECT_NE(hyper.error().message.find("has no columns"), std::string::npos)
        << hyper.error().message;
}

// In Ollama's files of Qwen 3.5 with experts.
TEST_F(HyperTest, AWidthOfZeroIsThatOfAnExpert) {
    for (const bool experts : {true, false}) {
        model_files::GgufWriter writer;
        writer.String("general.architecture", "qwen3moe");
        for (const char* key : {"block_count", "embedding_length", "attention.head_count"}) {
            writer.U32(std::string("qwen3moe.") + key, 8);
        }
        writer.U32("qwen3moe.attention.key_length", 8);
        writer.F32("qwen3moe.attention.layer_norm_rms_epsilon", 1e-5f);
        writer.U32("qwen3moe.feed_forward_length", 0);
        if (experts) {
            writer.U32("qwen3moe.expert_feed_forward_length", 12);
            writer.U32("qwen3moe.expert_count", 4);
            writer.U32("qwen3moe.expert_used_count", 2);
        }
        writer.Tensor("token_embd.weight", DType::kF32, std::vector<int64_t>{8, 5},
                      std::vector<std::byte>(160));
        ASSERT_TRUE(WriteFile(dir_ / "zero.gguf", writer.File()).ok());
        source_ = model_files::OpenModel(dir_ / "zero.gguf").value();
        const auto hyper = model::ReadHyper(*source_);
        ASSERT_EQ(hyper.ok(), experts);
        if (experts) {
            EXPECT_EQ(hyper->ffn, 12);
            continue;
        }
        EXPECT_NE(hyper.error().message.find("feed_forward_length"), std::string::npos)
            << hyper.error().message;
    }
}

// Without its bias, norm or scale, a model's answers would be wrong without an error.
TEST_F(HyperTest, UnusedTensorsAreRefused) {
    TinyFile file = File("llama");
    file.vectors["blk.1.attn_strange.weight"] = {1, 2, 3};
    const model::Hyper hyper = Read(file).value();
    const auto plan = model::PlanShards(hyper, *source_, {1, 3, {}, {}});
    for (const model::Shard& shard : plan->shards) {
        const auto program = model::BuildProgram(hyper, shard, *source_, {});
        EXPECT_EQ(program.ok(), shard.layers.begin != 1);
        if (program.ok()) continue;
        EXPECT_EQ(program.error().code, ErrorCode::kUnsupported);
        EXPECT_NE(program.error().message.find("blk.1.attn_strange.weight"), std::string::npos);
    }
    // The file counts too few layers.
    file.vectors = {{"blk.3.attn_norm.weight", {1}}};
    const model::Hyper whole = Read(file).value();
    const auto one = model::PlanShards(whole, *source_, {});
    const auto program = model::BuildProgram(whole, one->shards[0], *source_, {});
    ASSERT_FALSE(program.ok());
    EXPECT_NE(program.error().message.find("blk.3.attn_norm.weight"), std::string::npos);
}

// Positions behind the table would have no vector.
TEST_F(HyperTest, EveryPositionHasAVector) {
    TinyFile file = File("llama");
    file.vectors["position_embd.weight"] =
        std::vector<float>(static_cast<size_t>(file.hyper.hidden));
    const model::Hyper hyper = Read(file).value();
    const auto plan = model::PlanShards(hyper, *source_, {});
    const auto program = model::BuildProgram(hyper, plan->shards[0], *source_, {});
    ASSERT_FALSE(program.ok());
    EXPECT_NE(program.error().message.find("for 1 positions; expected "), std::string::npos)
        << program.error().message;
}

// Files of GLM 4.7 Flash do not state the kind of scores; their correction bias implies it.
TEST_F(HyperTest, CorrectionBiasRequiresSigmoids) {
    TinyFile file = ExpertLatentFile(0.1);
    EXPECT_EQ(Read(file)->moe.route.score, program::GateScore::kSoftmax);
    file.vectors["blk.1.exp_probs_b.bias"] = std::vector<float>(12);
    EXPECT_EQ(Read(file)->moe.route.score, program::GateScore::kSigmoid);
    file.numbers["expert_gating_func"] = 1;
    EXPECT_EQ(Read(file)->moe.route.score, program::GateScore::kSoftmax);
}

// The norms of latents have a separate epsilon, for which there is no key.
TEST_F(HyperTest, LatentsAreNormedWithTheirOwnEpsilon) {
    TinyFile file = ExpertSparseFile(true, true);
    file.hyper.rms_eps = 0.25f;
    const model::Hyper hyper = Read(file).value();
    const auto plan = model::PlanShards(hyper, *source_, {});
    const program::Program program =
        model::BuildProgram(hyper, plan->shards[0], *source_, {}).value();
    int of_latents = 0;
    for (const program::Op& op : program.ops) {
        const auto* norm = op.attributes.If<program::RmsNorm>();
        if (norm == nullptr || norm->centered) continue;
        const std::string& name = program.value(op.outputs[0]).name;
        const bool latent = name.ends_with("attn_q_a_norm") || name.ends_with("attn_kv_a_norm");
        EXPECT_EQ(norm->eps, latent ? 1e-6f : 0.25f) << name;
        of_latents += latent ? 1 : 0;
    }
    EXPECT_EQ(of_latents, 2 * hyper.layers);
}

// A job whose sequences never exceed the number of chosen positions needs no indexer.
TEST_F(HyperTest, IndexerIsBuiltOnlyWhereItChooses) {
    TinyFile file = ExpertSparseFile(true, true);
    const model::Hyper hyper = Read(file).value();
    EXPECT_EQ(hyper.context, 512);
    EXPECT_EQ(hyper.indexer.top, 5);
    EXPECT_TRUE(hyper.indexer.neighbours);
    const auto build = [&](const model::Hyper& of, int64_t context) {
        const auto plan = model::PlanShards(of, *source_, {});
        model::BuildOptions options;
        options.context = context;
        return model::BuildProgram(of, plan->shards[0], *source_, options);
    };
    const auto count = [&](int64_t context) {
        const program::Program built = build(hyper, context).value();
        return std::ranges::count_if(built.ops, [](const program::Op& op) {
            return op.kind() == program::OpKind::kIndexTopK;
        });
    };
    EXPECT_EQ(count(0), 2);
    EXPECT_EQ(count(6), 2);
    EXPECT_EQ(count(5), 0);
    file.vectors["blk.0.indexer.strange.weight"] = {1, 2, 3};
    const auto strange = build(Read(file).value(), 0);
    ASSERT_FALSE(strange.ok());
    EXPECT_NE(strange.error().message.find("blk.0.indexer.strange.weight"), std::string::npos);
    // In a model without an indexer, the same tensor would change results.
    TinyFile plain = File("llama");
    plain.vectors["blk.0.indexer.proj.weight"] = {1, 2, 3};
    EXPECT_FALSE(build(Read(plain).value(), 0).ok());
}

TEST_F(HyperTest, KeysOfAnIndexerAreChecked) {
    const auto refused = [&](const auto& change, ErrorCode code, const char* what) {
        TinyFile file = ExpertSparseFile(true, true);
        change(file);
        ExpectRefused(file, code, what);
    };
    refused([](TinyFile& f) { f.hyper.indexer.top = 0; }, ErrorCode::kNotFound,
            "attention.indexer.top_k");
    refused([](TinyFile& f) { f.hyper.indexer.heads = 1025; }, ErrorCode::kCorrupt,
            "attention.indexer.head_count");
    refused([](TinyFile& f) { f.hyper.indexer.dim = 8; }, ErrorCode::kUnsupported,
            "an indexer of 8 columns, 16 of them rotated");
    refused(
        [](TinyFile& f) {
            f.hyper.indexer.own = {false, true, true};
        },
        ErrorCode::kCorrupt,
        "attention.indexer.types has entries for 3 layers, with 0 for the first");
    refused([](TinyFile& f) { f.numbers["attention.layer_norm_epsilon"] = -1; },
            ErrorCode::kCorrupt, "attention.layer_norm_epsilon");
}

// An indexer of blocks is in the Program if a sequence may exceed the number of chosen positions,
// and only in the layers that have one.
TEST_F(HyperTest, KeysOfAnIndexerOfBlocks) {
    TinyFile file = ExpertGoldenFile("minimaxM3Top");
    const model::Hyper hyper = Read(file).value();
    EXPECT_EQ(hyper.indexer.top, 6);
    const auto plan = model::PlanShards(hyper, *source_, {});
    const auto indexers = [&](int64_t context) {
        model::BuildOptions options;
        options.context = context;
        const auto program = model::BuildProgram(hyper, plan->shards[0], *source_, options).value();
        return std::ranges::count_if(program.ops, [](const program::Op& op) {
            return op.kind() == program::OpKind::kIndexBlocks;
        });
    };
    EXPECT_EQ(indexers(6), 0);
    EXPECT_EQ(indexers(7), 2);
    const auto refused = [&](auto change, ErrorCode code, std::string_view said) {
        TinyFile changed = file;
        change(changed.hyper.indexer);
        ExpectRefused(changed, code, std::string(said));
    };
    refused([](model::Indexer& m) { m.heads = 2; }, ErrorCode::kUnsupported, "head_count is 2");
    refused([](model::Indexer& m) { m.dim = 6; }, ErrorCode::kUnsupported, "key_length 6");
    refused([](model::Indexer& m) { m.local = 0; }, ErrorCode::kCorrupt, "local_blocks");
    refused([](model::Indexer& m) { m.local = 3; }, ErrorCode::kCorrupt, "local_blocks");
    refused([](model::Indexer& m) { m.top = 1 << 30; }, ErrorCode::kCorrupt, "top_k");
    file.hyper.indexer.top = 0;
    ExpectRefused(file, ErrorCode::kNotFound, "attention.indexer.top_k");
}

// A layer without an indexer uses the choice of the layer before, which must be on the same stage.
TEST_F(HyperTest, StagesBeginWithAnIndexer) {
    const model::Hyper hyper = Read(ExpertSparseFile(true, true)).value();
    const auto plan =
        model::PlanShards(hyper, *source_, model::MakeLayout(2, 1, 2, {1, 2}).value());
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->shards[1].layers, (model::Span{2, 3}));
    EXPECT_EQ(plan->notes.back(),
              "pipeline cut 1 of 3 layers moved from 1 to 2, before a layer with its own indexer");
    const auto many = model::PlanShards(hyper, *source_, model::MakeLayout(3, 1, 3, {}).value());
    ASSERT_FALSE(many.ok());
    EXPECT_NE(many.error().message.find("begin with a layer with its own indexer"),
              std::string::npos)
        << many.error().message;
}

// Limits of the device's kernels are refused with numbers, before anything is read. Layers with
// state have no KV heads; all other layers have the same number.
TEST_F(HyperTest, LayersWithStateHaveNoAttentionHeads) {
    TinyFile file = File("lfm2");
    AddShortConv(file.hyper);
    EXPECT_EQ(Read(file)->kv_heads, 3);
    EXPECT_EQ(Read(file)->recurrent.heads, 1);  // 64 columns are not divided
    file.hyper.recurrent.taps = 9;
    ExpectRefused(file, ErrorCode::kCorrupt, "lfm2.shortconv.l_cache");
    file.hyper.recurrent.taps = 3;
    file.hyper.layers = 3;  // the layer with attention would be the fourth
    EXPECT_TRUE(Read(file).ok());
}

// Only Ling 3 has a bound on decays.
TEST_F(HyperTest, BoundsOfDecays) {
    TinyFile file = ExpertGoldenFile("ling3");
    EXPECT_EQ(Read(file)->recurrent.floor, -5.0f);
    EXPECT_TRUE(Read(file)->latent.rotates);
    for (const double bound : {0.0, 5.0, -1000.0}) {
        file.numbers["kda.gate_lower_bound"] = bound;
        ExpectRefused(file, ErrorCode::kUnsupported, "bailingmoe3.kda.gate_lower_bound");
    }
    file = ExpertGoldenFile("kimiLinear");
    EXPECT_FALSE(Read(file)->latent.rotates);
    file.numbers["kda.gate_lower_bound"] = -5;
    ExpectRefused(file, ErrorCode::kUnsupported, "kimi-linear.kda.gate_lower_bound");
}

TEST_F(HyperTest, DeviceLimitsAreObeyed) {
    TinyFile file = File("qwen3moe");
    file.hyper.moe.experts = 8;
    file.hyper.moe.used = 2;
    file.hyper.moe.ffn = 32;
    const model::Hyper hyper = Read(file).value();
    const auto plan = model::PlanShards(hyper, *source_, {});
    model::BuildOptions options;
    options.target.most_experts = 8;
    EXPECT_TRUE(model::BuildProgram(hyper, plan->shards[0], *source_, options).ok());
    options.target.most_experts = 7;
    const auto refused = model::BuildProgram(hyper, plan->shards[0], *source_, options);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUnsupported);
    EXPECT_NE(refused.error().message.find("8 experts"), std::string::npos)
        << refused.error().message;
    EXPECT_NE(refused.error().message.find("at most 7"), std::string::npos);
}

// A device without float64 gets Programs that have none.
TEST_F(HyperTest, DeviceChoosesWideSums) {
    for (const char* architecture : {"llama", "olmo2"}) {
        const model::Hyper hyper = Read(File(architecture)).value();
        const auto plan = model::PlanShards(hyper, *source_, {2, 1, {}, {}});
        for (const bool wide : {true, false}) {
            model::BuildOptions options;
            options.target.float64_reductions = wide;
            const auto program = model::BuildProgram(hyper, plan->shards[0], *source_, options);
            ASSERT_TRUE(program.ok()) << program.error().message;
            const bool found = std::ranges::any_of(
                program->values,
                [](const program::Value& value) { return value.dtype == DType::kF64; });
            EXPECT_EQ(found, wide) << architecture;
            EXPECT_EQ(program::Print(*program).find("segment_cols") != std::string::npos, wide);
        }
    }
}

// A bias is added wherever the file has one: llama with attention_bias.
TEST_F(HyperTest, BiasesAreOptional) {
    TinyFile file = File("llama");
    const model::Hyper& h = file.hyper;
    file.vectors["blk.0.attn_q.bias"] = std::vector<float>(static_cast<size_t>(9 * 32), 0.5f);
    file.vectors["blk.0.attn_output.bias"] =
        std::vector<float>(static_cast<size_t>(h.hidden), 0.5f);
    const model::Hyper hyper = Read(file).value();
    const auto plan = model::PlanShards(hyper, *source_, {2, 1, {}, {}});
    for (const model::Shard& shard : plan->shards) {
        const auto program = model::BuildProgram(hyper, shard, *source_, {});
        ASSERT_TRUE(program.ok()) << program.error().message;
        const std::string text = program::Print(*program);
        EXPECT_NE(text.find("blk.0.attn_q.bias)  cut=rows"), std::string::npos);
        EXPECT_NE(text.find("add_bias(l0.attn_output.sum, blk.0.attn_output.bias)"),
                  std::string::npos);
    }
}

}  // namespace
}  // namespace weft::support
