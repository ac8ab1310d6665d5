#include "model_files/hf/draft_folder.h"

#include <algorithm>
#include <filesystem>

#include "model_files/draft_source.h"
#include "model_files/hf/assembly.h"

namespace weft::model_files::hf {
namespace {

constexpr std::string_view kLayers = "eagle_aux_hidden_state_layer_ids";
constexpr int64_t kMostVocab = 1 << 26, kMostWidth = 1 << 20, kMostDepth = 4096;

std::string ClassOf(const Config& config) {
    const auto names = config.Strings({"architectures"});
    return names.ok() && !names->empty() ? names->front() : "";
}

constexpr std::string_view kEagle = "eagle3", kDflash = "dflash";

// "eagle3", "dflash", or the published name of another kind.
Result<std::string> KindOf(const Config& config) {
    WEFT_ASSIGN(std::string kind, config.StringOr({"speculators_model_type"}, ""));
    if (!kind.empty()) return kind;
    const std::string class_name = ClassOf(config);
    if (class_name == "DFlashDraftModel") return std::string(kDflash);
    const bool other = class_name.find("DFlash") != class_name.npos ||
                       class_name.find("DSpark") != class_name.npos || config.Has("dflash_config");
    return other ? class_name : std::string(kEagle);
}

// The keys of the layers and of the block, without nesting. speculators leaves out keys of layers
// that have the defaults of transformers.
Result<Config> Flat(const Config& config) {
    WEFT_ASSIGN(const std::string kind, KindOf(config));
    if ((kind != kEagle && kind != kDflash) || config.Has("kv_lora_rank")) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a draft head of type '{}' ({}) is not supported; EAGLE-3 heads with "
                         "Llama's layer and DFlash heads with Qwen 3's layers are",
                         config.where(), Shown(kind), Shown(ClassOf(config)));
    }
    WEFT_ASSIGN(const Config block, config.Sub({"dflash_config"}));
    WEFT_ASSIGN(const Config layer, config.Sub({"transformer_layer_config"}));
    if (layer.json().empty()) return config.With(block);
    Json usual = {{"hidden_size", 4096}, {"intermediate_size", 11008}, {"num_attention_heads", 32},
                  {"vocab_size", 32000}, {"rms_norm_eps", 1e-6},       {"hidden_act", "silu"}};
    WEFT_ASSIGN(const std::string type, layer.StringOr({"model_type"}, ""));
    if (type == "qwen3") {
        usual.update({{"intermediate_size", 22016},
                      {"num_hidden_layers", 32},
                      {"num_key_value_heads", 32},
                      {"head_dim", 128},
                      {"vocab_size", 151936}});
    }
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
    for (int64_t& layer : layers) {
        if (layer < -1 || layer >= kMostDepth) return config.Corrupt(kLayers, "numbers of layers");
        ++layer;
    }
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
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostWidth));
    WEFT_ASSIGN(const int64_t target, config.IntOr({"target_hidden_size"}, 1, kMostWidth, hidden));
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

// The layers in which a row of a block sees later rows: by default, those without a window.
Result<std::vector<bool>> LayersAhead(const Config& config) {
    WEFT_ASSIGN(const int64_t layers, config.NeedInt({"num_hidden_layers"}, 1, kMostDepth));
    WEFT_ASSIGN(const std::vector<std::string> types, config.Strings({"layer_types"}));
    WEFT_ASSIGN(const bool always, config.BoolOr({"sliding_window_non_causal"}, false));
    WEFT_ASSIGN(const bool causal, config.BoolOr({"is_causal"}, false));
    std::vector<bool> ahead;
    for (size_t i = 0; i < static_cast<size_t>(layers); ++i) {
        const bool slides = i < types.size() && types[i] == "sliding_attention";
        ahead.push_back(config.Has("is_causal") ? !causal : always || !slides);
    }
    return ahead;
}

// z-lab's layer i means the output of layer i, speculators' the input.
Result<std::vector<int64_t>> LayersOfBlock(const Config& config) {
    constexpr std::string_view kOutputs = "target_layer_ids",
                               kInputs = "aux_hidden_state_layer_ids";
    WEFT_ASSIGN(std::vector<int64_t> layers, config.Ints({kInputs}));
    if (!layers.empty()) return layers;
    WEFT_ASSIGN(layers, config.Ints({kOutputs}));
    if (layers.empty()) return config.Corrupt(kOutputs, "the layers of the model that it reads");
    for (int64_t& layer : layers) {
        if (layer < 0 || layer >= kMostDepth) return config.Corrupt(kOutputs, "numbers of layers");
        ++layer;
    }
    return layers;
}

Result<int64_t> BlockSize(const Config& config) {
    const bool nested = config.Has("speculators_model_type");
    return config.IntOr({"block_size"}, 2, kMostBlock, nested ? 8 : 16);
}

// (output_multiplier and final_logit_softcapping are the model's own.)
Status DflashMeta(const Config& config, MetaWriter& meta) {
    for (const char* key : {"sample_from_anchor", "shift_label", "fc_layernorm"}) {
        WEFT_TRY(config.MustBe(key, false));
    }
    WEFT_TRY(config.MustBe("projector_type", "dflash"));
    WEFT_TRY(WriteCommon(config, meta));
    WEFT_ASSIGN(const int64_t window, config.IntOr({"sliding_window"}, 0, 1ll << 31, 0));
    WEFT_TRY(WriteWindow(config, meta, window, [](int64_t) { return false; }));
    WEFT_ASSIGN(const std::vector<bool> ahead, LayersAhead(config));
    meta.Bools("ahead", ahead);
    WEFT_ASSIGN(const std::vector<int64_t> layers, LayersOfBlock(config));
    meta.Ints("target_layers", layers);
    WEFT_ASSIGN(const int64_t hidden, config.NeedInt({"hidden_size"}, 1, kMostWidth));
    WEFT_ASSIGN(const int64_t target, config.IntOr({"target_hidden_size"}, 1, kMostWidth, hidden));
    meta.Int("target_length", target);
    WEFT_ASSIGN(const int64_t block, BlockSize(config));
    meta.Int("block_size", block);
    WEFT_ASSIGN(const int64_t mask, config.NeedInt({"mask_token_id"}, 0, kMostVocab));
    meta.Int("mask_token_id", mask);
    WEFT_ASSIGN(const double scale, config.F64Or({"input_embedding_scale"}, 1));
    meta.F32("input_scale", scale);
    meta.String("folder", std::filesystem::path(config.where()).parent_path().string());
    return {};
}

constexpr Rule kEagleRules[] = {{"hidden_norm", "hidden_norm", Form::kNorm}};

constexpr Family kEagleFamily = {.model_type = "Llama EAGLE-3",
                                 .architecture = kHeadArchitectures[0],
                                 .rules = {kPreNormRules, kEagleRules, kAttentionRules, kMlpRules},
                                 .meta = EagleMeta,
                                 .adjust = Flat,
                                 .defaults = R"({"max_position_embeddings": 2048})"};

constexpr Family kDflashFamily = {
    .model_type = "DFlash",
    .architecture = kHeadArchitectures[1],
    .rules = {kPreNormRules, kAttentionRules, kQkNormRules, kMlpRules},
    .meta = DflashMeta,
    .adjust = Flat,
    .defaults = R"({"max_position_embeddings": 32768, "head_dim": 128})"};

}  // namespace

const Family& HeadFamily(const Config& config) {
    const auto kind = KindOf(config);
    return kind.ok() && *kind == kDflash ? kDflashFamily : kEagleFamily;
}

bool IsHeadFamily(const Family& family) {
    return &family == &kEagleFamily || &family == &kDflashFamily;
}

bool IsDraftHead(const Config& config) {
    const std::string class_name = ClassOf(config);
    const auto names = [&](const char* part) { return class_name.find(part) != class_name.npos; };
    return config.Has("draft_vocab_size") || config.Has("speculators_model_type") ||
           config.Has("dflash_config") || names("Eagle3") || names("DFlash") || names("DSpark");
}

bool IsDraftFolder(const std::string& path) {
    std::error_code ignored;
    const auto file = std::filesystem::path(path) / "config.json";
    if (path.empty() || !std::filesystem::is_regular_file(file, ignored)) return false;
    const auto config = Config::Read(file.string());
    return config.ok() && IsDraftHead(*config);
}

int64_t BlockOfFolder(const std::string& path) {
    if (!IsDraftFolder(path)) return 0;
    const auto config = Config::Read((std::filesystem::path(path) / "config.json").string());
    if (!config.ok() || &HeadFamily(*config) != &kDflashFamily) return 0;
    const auto flat = Flat(*config);
    if (!flat.ok()) return 0;
    const auto block = BlockSize(*flat);
    return block.ok() ? *block - 1 : 0;
}

Status Assembly::AddSeparateHead() {
    prefix_ = HasLinear("model.fc") ? "model." : "";
    const bool middle = std::ranges::any_of(files_.tensors(), [&](const SafeTensor& tensor) {
        return tensor.name.starts_with(prefix_ + "midlayer.");
    });
    layers_prefix_ = prefix_ + "layers.";
    for (int64_t layer = 0; layer < layers_; ++layer) {
        const std::string own = middle ? "midlayer." : fmt::format("layers.{}.", layer);
        WEFT_TRY(AddLayer(layer, prefix_ + own));
    }
    WEFT_TRY(AddHeadEnds());
    return AddRopeFactors();
}

// A DFlash head uses the model's output matrix unless the folder has one. (speculators may save
// copies of the model's norm and output matrix, which training compares with.)
Status Assembly::AddHeadEnds() {
    const bool blocks = &family_ == &kDflashFamily;
    WEFT_ASSIGN(const int64_t vocab, config_.NeedInt({"vocab_size"}, 1, kMostVocab));
    WEFT_ASSIGN(const int64_t drafts, config_.IntOr({"draft_vocab_size"}, 1, vocab, vocab));
    WEFT_ASSIGN(const int64_t hidden, config_.NeedInt({"hidden_size"}, 1, kMostWidth));
    const auto add = [&](const char* gguf, const std::string& name, int64_t rows) -> Status {
        WEFT_ASSIGN(MatrixPtr matrix, Checked(Linear(name), name + ".weight", rows));
        Add(gguf, std::move(matrix));
        return {};
    };
    const auto norm = [&](const char* gguf, const std::string& name) -> Status {
        WEFT_ASSIGN(MatrixPtr column, Checked(Column(name), name, hidden));
        AddVector(gguf, std::move(column));
        return {};
    };
    WEFT_TRY(add("fc.weight", prefix_ + "fc", hidden));
    WEFT_TRY(norm("output_norm.weight", prefix_ + "norm.weight"));
    if (blocks) WEFT_TRY(norm("hidden_norm.weight", prefix_ + "hidden_norm.weight"));
    const bool output = !blocks || drafts < vocab || HasLinear("lm_head");
    if (output) WEFT_TRY(add("output.weight", "lm_head", drafts));
    const std::string table = prefix_ + "embed_tokens";
    if (HasLinear(table)) WEFT_TRY(add("token_embd.weight", table, vocab));
    if (blocks) {
        for (const char* copy : {"verifier_norm.weight", "verifier_lm_head.weight"}) Use(copy);
    }
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
