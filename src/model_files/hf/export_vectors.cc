#include "model_files/hf/export_vectors.h"

#include <algorithm>
#include <filesystem>
#include <variant>

#include "model_files/embedding_head.h"
#include "model_files/read_tokenizer.h"
#include "model_files/score_head.h"

namespace weft::model_files::hf {
namespace {

constexpr std::string_view kCausal = "ForCausalLM", kScores = "ForSequenceClassification";

Json ModuleOf(int number, const std::string& name, const std::string& path) {
    return {{"idx", number},
            {"name", std::to_string(number)},
            {"path", path},
            {"type", "sentence_transformers.models." + name}};
}

}  // namespace

Status SetScoreConfig(const ModelSource& source, Json& config) {
    if (!HasScoreHead(source)) return {};
    WEFT_ASSIGN(const Config read, Config::Parse(config.dump(), source.name()));
    WEFT_ASSIGN(const std::vector<std::string> classes, read.Strings({"architectures"}));
    if (classes.empty()) {
        return read.Corrupt("architectures", "the model's class, such as LlamaForCausalLM");
    }
    std::string name = classes[0];
    if (name.ends_with(kCausal)) {
        name.replace(name.size() - kCausal.size(), kCausal.size(), kScores);
        config["architectures"] = Json::array({name});
    }
    WEFT_ASSIGN(const TensorInfo* head, source.NeedTensor("cls.output.weight"));
    const bool named = config.contains("id2label") && config["id2label"].is_object() &&
                       static_cast<int64_t>(config["id2label"].size()) == head->rows;
    if (!named) {
        Json names = Json::object(), numbers = Json::object();
        for (int64_t i = 0; i < head->rows; ++i) {
            const std::string number = std::to_string(i), label = "LABEL_" + number;
            names[number] = label;
            numbers[label] = i;
        }
        config["id2label"] = names;
        config["label2id"] = numbers;
    }
    if (!HasTokenizer(source)) return {};
    WEFT_ASSIGN(const auto tokenizer, LoadTokenizer(source));
    const tokenizer::TokenizerData& data = tokenizer->data();
    const int32_t padding = data.pad >= 0 ? data.pad : data.eos;
    if (padding >= 0) config["pad_token_id"] = padding;
    return {};
}

Result<std::map<std::string, std::string>> ModuleFiles(const ModelSource& source) {
    std::map<std::string, std::string> files;
    if (HasScoreHead(source)) return files;
    WEFT_ASSIGN(const std::string architecture, source.meta().StringOr("general.architecture", ""));
    const std::string key = architecture + ".pooling_type";
    WEFT_ASSIGN(const int64_t type, source.meta().IntOr(key, 0, 100, 0));
    std::error_code ignored;
    const bool modules = !source.folder().empty() &&
                         std::filesystem::exists(source.folder() + "/modules.json", ignored);
    if (type == 0 && !modules) return files;
    WEFT_ASSIGN(const EmbeddingHead head, ReadEmbeddingHead(source));
    const bool units = std::ranges::all_of(
        head.steps, [](const HeadStep& step) { return std::holds_alternative<UnitStep>(step); });
    if (!units || head.scores || head.poolings.size() != 1) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: modules.json has more than a Pooling and a Normalize, which Weft "
                         "does not write",
                         source.name());
    }
    // (GGUF's pooling_type, which training sets, comes before modules.json.)
    constexpr Pooling kTypes[] = {Pooling::kLast, Pooling::kMean, Pooling::kCls, Pooling::kLast};
    const Pooling pooling = type >= 1 && type <= 3 ? kTypes[type] : head.poolings[0];
    WEFT_ASSIGN(const int64_t hidden,
                source.meta().Int(architecture + ".embedding_length", 1, 1 << 20));
    const Json pooled = {{"word_embedding_dimension", hidden},
                         {"pooling_mode_cls_token", pooling == Pooling::kCls},
                         {"pooling_mode_mean_tokens", pooling == Pooling::kMean},
                         {"pooling_mode_max_tokens", pooling == Pooling::kMax},
                         {"pooling_mode_mean_sqrt_len_tokens", pooling == Pooling::kMeanSqrt},
                         {"pooling_mode_weightedmean_tokens", pooling == Pooling::kWeighted},
                         {"pooling_mode_lasttoken", pooling == Pooling::kLast},
                         {"include_prompt", head.pools_prompt}};
    Json list = {ModuleOf(0, "Transformer", ""), ModuleOf(1, "Pooling", "1_Pooling")};
    if (head.normalizes()) list.push_back(ModuleOf(2, "Normalize", "2_Normalize"));
    files["modules.json"] = list.dump(2) + "\n";
    files["1_Pooling/config.json"] = pooled.dump(2) + "\n";
    return files;
}

}  // namespace weft::model_files::hf
