#include "model/model.h"

#include <algorithm>
#include <array>
#include <utility>

namespace weft::model {
namespace {

struct Architecture {
    Family family;
    program::ValueId (*build)(Builder&, program::ValueId);
    bool experts = false;  // also exists with experts
};

// Architectures whose files may have a draft head; its layer is built by `build`.
constexpr std::array<std::string_view, 7> kWithDraftHead = {
    "deepseek2", "deepseek32", "glm-dsa", "glm4moe", "qwen35", "qwen35moe", "qwen3next"};

// `tested`: cases of tests/support/golden_models.h, compared with transformers in every layout.
constexpr std::array kArchitectures = {
    Architecture{{"afmoe", "Trinity (Arcee)",
                  "gates by column, norms on both sides, windows, leading dense layers", "trinity"},
                 BuildAfmoe,
                 true},
    Architecture{{"bailingmoe2", "Ling 2, Ring 2",
                  "normed heads, partial RoPE, leading dense layers, groups of experts", "ling2"},
                 BuildQwen3,
                 true},
    Architecture{{"bailingmoe3", "Ling 3, Ring 3",
                  "Kimi Delta Attention, gated latent attention, leading dense layers, groups of "
                  "experts",
                  "ling3"},
                 BuildKimiLinear,
                 true},
    Architecture{
        {"cohere2", "Command A, Command R7B",
         "LayerNorm, attention beside the MLP, windows, layers without positions", "cohere2"},
        BuildCohere2},
    Architecture{{"cohere2moe", "Cohere 2 with experts",
                  "as cohere2; leading dense layers, a shared expert", "cohere2Moe"},
                 BuildCohere2,
                 true},
    Architecture{{"command-r", "Command R, R+",
                  "LayerNorm, attention beside the MLP; heads with LayerNorms of their own",
                  "commandR, commandRPlus"},
                 BuildCohere2},
    Architecture{{"deci", "Llama-3.3-Nemotron-Super", "layers without attention or MLP", "deci"},
                 BuildDeci},
    Architecture{{"deepseek2",
                  "DeepSeek V2 (and Lite), V3, R1, Kimi-K2 to K2.7 (text), GLM 4.7 Flash, Youtu",
                  "latent attention, YaRN, leading dense layers, groups of experts, temperature",
                  "deepseekV2, deepseekV3, kimiK2, youtu"},
                 BuildDeepSeek2,
                 true},
    Architecture{{"deepseek32", "DeepSeek V3.2",
                  "sparse latent attention, YaRN, leading dense layers, groups of experts",
                  "deepseekV32, deepseekV32Top"},
                 BuildDeepSeek2,
                 true},
    Architecture{{"deepseek4", "DeepSeek V4 (Flash, Pro)",
                  "hyper-connections, windows, pooled keys, an indexer, sinks, experts by token",
                  "deepseekV4"},
                 BuildDeepSeek4,
                 true},
    Architecture{
        {"dots1", "dots.llm1", "normed heads, leading dense layers, shared experts", "dots1"},
        BuildQwen3,
        true},
    Architecture{{"ernie4_5", "ERNIE 4.5 (dense)", "as llama", "ernie"}, BuildLlama},
    Architecture{{"ernie4_5-moe", "ERNIE 4.5 with experts (text)",
                  "leading dense layers, a shared expert", "ernieMoe"},
                 BuildLlama,
                 true},
    Architecture{
        {"exaone-moe", "K-EXAONE",
         "normed heads, windows, layers without positions, leading dense layers", "exaoneMoe"},
        BuildExaoneMoe,
        true},
    Architecture{{"exaone4", "EXAONE 4", "normed heads, windows, layers without positions",
                  "exaone4, exaone4Whole"},
                 BuildExaone4},
    Architecture{{"falcon-h1", "Falcon-H1", "attention beside Mamba-2 in each layer",
                  "falconH1, falconH1Normed"},
                 BuildFalconH1},
    Architecture{{"gemma", "Gemma 1", "as llama, with GeGLU", "gemma1"}, BuildGemma1},
    Architecture{{"gemma2", "Gemma 2", "windows, soft caps", "gemma2"}, BuildGemma2},
    Architecture{{"gemma3", "Gemma 3 (text)", "windows, RoPE of two bases", "gemma3"}, BuildGemma3},
    Architecture{
        {"gemma4", "Gemma 4 (text: 31B, 26B-A4B, 12B, E4B, E2B)",
         "heads that differ by layer, V from K; experts beside a dense MLP; embeddings by layer, "
         "shared KV caches",
         "gemma4, gemma4Moe, gemma4Small, gemma4Wide"},
        BuildGemma4,
        true},
    Architecture{{"glm-dsa", "GLM 5 to 5.2",
                  "sparse latent attention, layers that share a choice, leading dense layers",
                  "glmDsa, glmDsaTop"},
                 BuildDeepSeek2,
                 true},
    Architecture{{"glm4", "GLM 4 (0414: 9B, 32B)", "norms on both sides, partial RoPE", "glm4"},
                 BuildGlm4},
    Architecture{{"glm4moe", "GLM 4.5 to 4.7, Solar-Open",
                  "normed heads, partial RoPE, leading dense layers", "glm4moe, solarOpen"},
                 BuildGlm4Moe,
                 true},
    Architecture{{"gpt-oss", "gpt-oss", "windows, sinks, biases, clamped SwiGLU, YaRN", "gptOss"},
                 BuildGptOss,
                 true},
    Architecture{
        {"granite", "Granite 3 (dense), Granite 4 Micro", "scales", "granite, graniteMicro"},
        BuildGranite},
    Architecture{{"granitehybrid", "Granite 4 H, dense and with experts",
                  "scales, Mamba-2, attention without positions, a shared expert",
                  "graniteHybrid, graniteHybridMoe"},
                 BuildGranite,
                 true},
    Architecture{
        {"granitemoe", "Granite 3 with experts", "scales", "graniteMoe"}, BuildGranite, true},
    Architecture{{"hunyuan-dense", "Hunyuan 0.5B to 7B", "heads normed after RoPE, NTK", "hunyuan"},
                 BuildHunyuan},
    Architecture{{"hunyuan-moe", "Hunyuan A13B", "heads normed after RoPE, NTK, a shared expert",
                  "hunyuanMoe"},
                 BuildHunyuan,
                 true},
    Architecture{{"hy_v3", "Hy3", "normed heads, leading dense layers, a shared expert", "hyV3"},
                 BuildQwen3,
                 true},
    Architecture{{"internlm2", "InternLM 2", "as llama", "internlm2"}, BuildLlama},
    Architecture{{"kimi-linear", "Kimi Linear",
                  "Kimi Delta Attention, latent attention without positions, leading dense layers",
                  "kimiLinear"},
                 BuildKimiLinear,
                 true},
    Architecture{
        {"laguna", "Laguna", "gates by head or column, heads and RoPE that differ by layer, YaRN",
         "laguna, lagunaWhole"},
        BuildLaguna,
        true},
    Architecture{{"lfm2", "LFM2, LFM2.5 (dense)", "gated short convolutions, normed heads", "lfm2"},
                 BuildLfm2},
    Architecture{{"lfm2moe", "LFM2, LFM2.5 with experts",
                  "gated short convolutions, normed heads, leading dense layers", "lfm2moe"},
                 BuildLfm2,
                 true},
    Architecture{{"llama", "Llama 1-3.x, Mistral, Ministral 8B, Mixtral, SmolLM 1-2",
                  "linear, Llama 3's and YaRN RoPE; windows; experts; temperature",
                  "llama, llamaTied, llamaLinear, llama3Rope, mistral, ministral, mixtral"},
                 BuildLlama,
                 true},
    Architecture{{"llama4", "Llama 4 (text), MobileLLM-R1",
                  "attention in chunks, layers without positions, temperature, a shared expert",
                  "llama4, llama4Dense"},
                 BuildLlama4,
                 true},
    Architecture{{"mimo2", "MiMo V2 Flash",
                  "values narrower than keys, sinks, heads and RoPE that differ by layer", "mimo2"},
                 BuildMimo2,
                 true},
    Architecture{{"minicpm", "MiniCPM", "scales", "minicpm"}, BuildGranite},
    Architecture{{"minimax-m2", "MiniMax M2", "norms over all heads, partial RoPE", "minimaxM2"},
                 BuildMiniMaxM2,
                 true},
    Architecture{{"minimax-m3", "MiniMax M3 (text)",
                  "block-sparse attention, normed heads, partial RoPE, clamped SwiGLU, leading "
                  "dense layers",
                  "minimaxM3, minimaxM3Top"},
                 BuildQwen3,
                 true},
    Architecture{{"mistral-large4", "Mistral Large 4 (text, folders)",
                  "sparse latent attention, latents shared by layers, layers without positions, "
                  "temperature by head, a soft cap",
                  "mistralLarge4"},
                 BuildDeepSeek2,
                 true},
    Architecture{{"mistral3", "Ministral 3, Devstral 2", "YaRN, temperature", "ministral3"},
                 BuildLlama,
                 true},
    Architecture{{"mistral4", "Mistral Small 4", "latent attention, YaRN, temperature", "mistral4"},
                 BuildDeepSeek2,
                 true},
    Architecture{
        {"muse-glimmer", "Muse Glimmer (text)",
         "gates by column, norms on both sides, windows, layers without positions", "museGlimmer"},
        BuildMuseGlimmer},
    Architecture{{"nemotron_h", "Nemotron-H, Nemotron Nano 2",
                  "Mamba-2, attention without positions, MLPs of ReLU squared", "nemotronH"},
                 BuildNemotronH},
    Architecture{{"nemotron_h_moe", "Nemotron 3 (Nano, Super)",
                  "the same, with ungated experts, a shared one, latent experts",
                  "nemotronHMoe, nemotronHLatent"},
                 BuildNemotronH,
                 true},
    Architecture{{"olmo2", "OLMo 2, OLMo 3", "norms over all heads, windows, YaRN", "olmo2, olmo3"},
                 BuildOlmo2},
    Architecture{{"olmoe", "OLMoE", "norms over all heads", "olmoe"}, BuildMiniMaxM2, true},
    Architecture{{"phi3", "Phi-3, Phi-3.5-mini, Phi-4", "fused tensors, LongRoPE, partial RoPE",
                  "phi3Short, phi3Long"},
                 BuildPhi3},
    Architecture{{"qwen2", "Qwen 1.5 to 2.5", "biases, YaRN", "qwen2, qwen2Yarn"}, BuildQwen2},
    Architecture{
        {"qwen2moe", "Qwen 1.5 and 2 with experts", "biases, a gated shared expert", "qwen2moe"},
        BuildQwen2,
        true},
    Architecture{{"qwen2vl", "Qwen2-VL, Qwen2.5-VL (text)", "biases", "qwen2vl"}, BuildQwen2},
    Architecture{{"qwen3", "Qwen 3 (dense)", "normed heads", "qwen3Tied"}, BuildQwen3},
    Architecture{{"qwen3moe", "Qwen 3 with experts", "normed heads", "qwen3moe"}, BuildQwen3, true},
    Architecture{{"qwen35", "Qwen 3.5, 3.6 (dense, text)",
                  "gated delta nets, gated attention, partial RoPE", "qwen35"},
                 BuildQwen3Next},
    Architecture{{"qwen35moe", "Qwen 3.5, 3.6 with experts (text)",
                  "the same, with a gated shared expert", "qwen35moe"},
                 BuildQwen3Next,
                 true},
    Architecture{{"qwen3next", "Qwen3-Next, Qwen3-Coder-Next",
                  "gated delta nets, gated attention, partial RoPE, a gated shared expert",
                  "qwen3next, qwen3nextMoe"},
                 BuildQwen3Next,
                 true},
    Architecture{{"qwen3vl", "Qwen3-VL (text)", "normed heads", "qwen3vl"}, BuildQwen3},
    Architecture{{"qwen3vlmoe", "Qwen3-VL with experts (text)", "normed heads", "qwen3vlmoe"},
                 BuildQwen3,
                 true},
    Architecture{{"seed_oss", "Seed-OSS", "biases", "seedOss"}, BuildGlm4Moe},
    Architecture{{"smollm3", "SmolLM 3", "layers without positions", "smollm3"}, BuildSmolLm3},
    Architecture{{"step35", "Step 3.5 Flash",
                  "a gate per head, gated units with a limit, heads and RoPE that differ by layer",
                  "step35"},
                 BuildStep35,
                 true},
};

const Architecture* FindArchitecture(std::string_view name) {
    const auto found = std::ranges::find_if(
        kArchitectures, [&](const Architecture& a) { return a.family.architecture == name; });
    return found == kArchitectures.end() ? nullptr : &*found;
}

// Checks the limits of the device's kernels.
Status CheckTarget(const Hyper& hyper, const std::string& model, const program::Target& target) {
    const auto check = [&](const char* what, int64_t value, int64_t most) -> Status {
        if (value <= most) return {};
        return MakeError(ErrorCode::kUnsupported, "{}: {} {}; the device supports at most {}",
                         model, value, what, most);
    };
    if (hyper.windowing.streams > 0 && !target.pools_windows) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: DeepSeek-V4's attention to pooled windows does not run on this "
                         "device; use --device cpu",
                         model);
    }
    WEFT_TRY(check("experts in a layer", hyper.moe.experts, target.most_experts));
    WEFT_TRY(check("columns in a cached row of latent attention",
                   hyper.latent.rank + hyper.latent.rope, target.most_latent_columns));
    return check("columns in a cached row of an indexer", hyper.indexer.dim,
                 target.most_latent_columns);
}

}  // namespace

std::string SupportedArchitectures() {
    std::string list;
    for (const Architecture& architecture : kArchitectures) {
        list += (list.empty() ? "" : ", ") + std::string(architecture.family.architecture);
    }
    return list;
}

std::vector<Family> Families() {
    std::vector<Family> families;
    for (const Architecture& architecture : kArchitectures) {
        families.push_back(architecture.family);
    }
    return families;
}

bool IsSupported(const std::string& architecture) {
    return FindArchitecture(architecture) != nullptr;
}

bool KnowsDraftHead(const std::string& architecture) {
    return std::ranges::find(kWithDraftHead, architecture) != kWithDraftHead.end();
}

Status CheckDraftHead(const Hyper& hyper, const std::string& model) {
    if (hyper.draft_head) return {};
    return MakeError(ErrorCode::kUsage,
                     "--draft mtp: {} has no multi-token prediction head that Weft supports. Use "
                     "--draft MODEL, or --prompt-lookup",
                     model);
}

Result<program::Program> BuildProgram(const Hyper& hyper, const Shard& shard,
                                      const model_files::ModelSource& source,
                                      const BuildOptions& options) {
    const Architecture* architecture = FindArchitecture(hyper.architecture);
    if (architecture == nullptr) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: architecture '{}' is not supported. Supported: {}.", source.name(),
                         hyper.architecture, SupportedArchitectures());
    }
    if (hyper.moe.experts > 0 && !architecture->experts) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a mixture of {} experts is not supported for architecture '{}'",
                         source.name(), hyper.moe.experts, hyper.architecture);
    }
    WEFT_TRY(CheckTarget(hyper, source.name(), options.target));
    Builder builder(hyper, shard, source, options);
    const program::ValueId x = architecture->build(builder, builder.Enter());
    builder.Leave(x);
    if (options.draft_head) {
        WEFT_TRY(CheckDraftHead(hyper, source.name()));
        if (shard.last_stage()) {
            builder.EndDraftHead(architecture->build(builder, builder.BeginDraftHead(x)));
        } else {
            builder.RecvDraftHead();
        }
    }
    return std::move(builder).Finish();
}

namespace {

// The Program of a single rank with all layers.
Result<program::Program> WholeProgram(const Hyper& hyper, const model_files::ModelSource& source,
                                      const BuildOptions& options) {
    WEFT_ASSIGN(const Layout layout, MakeLayout(1, 1, 1, {}));
    WEFT_ASSIGN(const ShardPlan plan, PlanShards(hyper, source, layout));
    return BuildProgram(hyper, plan.shards[0], source, options);
}

}  // namespace

Result<int64_t> StateBytesPerSlot(const Hyper& hyper, const model_files::ModelSource& source) {
    if (!hyper.has_state()) return 0;
    WEFT_ASSIGN(const program::Program program, WholeProgram(hyper, source, {}));
    return program::SlotBytes(program);
}

Result<int64_t> CacheBytesPerToken(const Hyper& hyper, const model_files::ModelSource& source,
                                   KvTypes kv_dtype, bool draft_head) {
    BuildOptions options;
    options.kv_dtype = kv_dtype;
    options.draft_head = draft_head;
    WEFT_ASSIGN(const program::Program program, WholeProgram(hyper, source, options));
    return program::StateBytes(program, program::kLeastPage) / program::kLeastPage;
}

}  // namespace weft::model
