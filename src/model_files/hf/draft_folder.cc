#include "model_files/hf/draft_folder.h"

#include <algorithm>
#include <filesystem>

#include "model_files/hf/assembly.h"

namespace weft::model_files::hf {
namespace {

constexpr std::string_view kLayers = "eagle_aux_hidden_state_layer_ids";
constexpr int64_t kMostVocab = 1 << 26;

std::string ClassOf(const Config& config) {
    const auto names = config.Strings({"architectures"});
    return names.ok() && !names->empty() ? names->front() : "";
}

// The keys of the layer, which speculators nests without those that have transformers' defaults.
Result<Config> Flat(const Config& config) {
    WEFT_ASSIGN(const std::string kind, config.StringOr({"speculators_model_type"}, "eagle3"));
    const std::string class_name = ClassOf(config);
    if (kind != "eagle3" || class_name.starts_with("DFlash") || config.Has("kv_lora_rank")) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a draft head of type '{}' ({}) is not supported; EAGLE-3 heads with "
                         "Llama's layer are",
                         config.where(), Shown(kind), Shown(class_name));
    }
    WEFT_ASSIGN(const Config layer, config.Sub({"transformer_layer_config"}));
    if (layer.json().empty()) return config;
    const Json usual = {{"hidden_size", 4096},       {"intermediate_size", 11008},
                        {"num_attention_heads", 32}, {"vocab_size", 32000},
                        {"rms_norm_eps", 1e-6},      {"hidden_act", "silu"}};
    return config.With(usual).With(layer);
}

// The layers of the model whose input the head reads. In eagle_config, ModelOpt and SpecForge count
// the layers whose output they read; the outer key of speculators counts as vLLM does.
Result<std::vector<int64_t>> LayersOf(const Config& config) {
    WEFT_ASSIGN(std::vector<int64_t> layers, config.Ints({kLayers}));
    if (!layers.empty()) return layers;
    WEFT_ASSIGN(const Config inner, config.Sub({"eagle_config"}));
    WEFT_ASSIGN(const bool used, inner.BoolOr({"use_aux_hidden_state"}, true));
    if (!used) return inner.Corrupt("use_aux_hidden_state", "true: Weft reads EAGLE-3 heads");
    WEFT_ASSIGN(layers, inner.Ints({kLayers}));
    for (int64_t& layer : layers) ++layer;
    return layers;
}

Status EagleMeta(const Config& config, MetaWriter& meta) {
    WEFT_ASSIGN([[maybe_unused]] const int64_t one, config.NeedInt({"num_hidden_layers"}, 1, 1));
    for (const std::string_view key : {"fc_norm", "norm_before_fc", "parallel_drafting"}) {
        WEFT_TRY(config.MustBe(key, false));
    }
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    if (std::ranges::find(types, "sliding_attention") != types.end()) {
        return config.Corrupt("layer_types", "full_attention");
    }
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(std::vector<int64_t> layers, LayersOf(config));
    std::ranges::sort(layers);
    if (!layers.empty()) meta.Ints("target_layers", layers);
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_ASSIGN(const int64_t target, config.IntOr({"target_hidden_size"}, 1, 1 << 20, hidden));
    meta.Int("target_length", target);
    WEFT_ASSIGN(const bool normed, config.BoolOr({"norm_before_residual"}, false));
    meta.Bool("norm_before_residual", normed);
    // SpecForge's key of that name is about the logits.
    const bool nested = config.Has("speculators_model_type");
    if (!nested) WEFT_TRY(config.MustBe("norm_output", true));
    WEFT_ASSIGN(const bool output, config.BoolOr({"norm_output"}, false));
    meta.Bool("norm_output", nested && output);
    meta.String("folder", std::filesystem::path(config.where()).parent_path().string());
    return {};
}

constexpr Rule kEagleRules[] = {{"hidden_norm", "hidden_norm", Form::kNorm}};

}  // namespace

constexpr Family kEagleFamily = {.model_type = "Llama EAGLE-3",
                                 .architecture = kEagleArchitecture,
                                 .rules = {kPreNormRules, kEagleRules, kAttentionRules, kMlpRules},
                                 .meta = EagleMeta,
                                 .adjust = Flat,
                                 .defaults = R"({"max_position_embeddings": 2048})"};

bool IsDraftHead(const Config& config) {
    const std::string class_name = ClassOf(config);
    return config.Has("draft_vocab_size") || config.Has("speculators_model_type") ||
           class_name.find("Eagle3") != class_name.npos || class_name.starts_with("DFlash");
}

bool IsDraftFolder(const std::string& path) {
    std::error_code ignored;
    const auto file = std::filesystem::path(path) / "config.json";
    if (path.empty() || !std::filesystem::is_regular_file(file, ignored)) return false;
    const auto config = Config::Read(file.string());
    return config.ok() && IsDraftHead(*config);
}

Status Assembly::AddEagle() {
    prefix_ = Has("model.fc.weight") ? "model." : "";
    const bool middle = std::ranges::any_of(files_.tensors(), [&](const SafeTensor& tensor) {
        return tensor.name.starts_with(prefix_ + "midlayer.");
    });
    layers_prefix_ = prefix_ + "layers.";
    WEFT_TRY(AddLayer(0, prefix_ + (middle ? "midlayer." : "layers.0.")));
    WEFT_ASSIGN(const int64_t vocab, config_.NeedInt({"vocab_size"}, 1, kMostVocab));
    WEFT_ASSIGN(const int64_t drafts, config_.IntOr({"draft_vocab_size"}, 1, vocab, vocab));
    const auto add = [&](const char* gguf, const std::string& name, int64_t rows) -> Status {
        WEFT_ASSIGN(MatrixPtr matrix, Checked(Linear(name), name + ".weight", rows));
        Add(gguf, std::move(matrix));
        return {};
    };
    WEFT_ASSIGN(const int64_t hidden, config_.NeedInt({"hidden_size"}, 1, 1 << 20));
    WEFT_TRY(add("fc.weight", prefix_ + "fc", hidden));
    WEFT_TRY(add("output.weight", "lm_head", drafts));
    const std::string norm = prefix_ + "norm.weight", table = prefix_ + "embed_tokens";
    WEFT_ASSIGN(MatrixPtr column, Checked(Column(norm), norm, hidden));
    AddVector("output_norm.weight", std::move(column));
    if (Has(table + ".weight")) WEFT_TRY(add("token_embd.weight", table, vocab));
    WEFT_TRY(AddRopeFactors());
    return AddDraftTokens(drafts, vocab);
}

// The folder has the difference between each draft token and the model's token.
Status Assembly::AddDraftTokens(int64_t drafts, int64_t vocab) {
    Use("t2d");
    const SafeTensor* tensor = Use("d2t");
    if (tensor == nullptr && drafts == vocab) return {};
    if (tensor == nullptr) return Missing("d2t");
    WEFT_ASSIGN(const std::vector<int64_t> read, Integers(*tensor, 1));
    if (std::ssize(read) != drafts) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: tensor 'd2t' has {} numbers; draft_vocab_size is {}", folder_,
                         read.size(), drafts);
    }
    std::vector<int32_t> tokens;
    for (int64_t draft = 0; draft < drafts; ++draft) {
        const int64_t step = read[static_cast<size_t>(draft)];
        if (step < -draft || step >= vocab - draft) {
            return MakeError(ErrorCode::kCorrupt,
                             "{}: tensor 'd2t' has the value {} for draft token {}; expected {} to "
                             "{}, so that the token is in the vocabulary",
                             folder_, step, draft, -draft, vocab - draft - 1);
        }
        tokens.push_back(static_cast<int32_t>(draft + step));
    }
    Add("d2t.weight", FromInts(std::move(tokens), drafts));
    return {};
}

}  // namespace weft::model_files::hf
