#include "model_files/score_head.h"

#include "base/dangling_link.h"
#include "model_files/hf/json.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

using hf::Config;

constexpr const char *kOutput = "cls.output", *kDense = "cls", *kNorm = "cls.norm";

// The tensor BASE.weight [rows, columns] and, if there is one, BASE.bias.
Result<DenseStep> ReadDense(const ModelSource& source, const std::string& base, int64_t columns) {
    WEFT_ASSIGN(const TensorInfo* weight, source.NeedTensor(base + ".weight"));
    const TensorInfo* bias = source.FindTensor(base + ".bias");
    if (weight->cols != columns || (bias != nullptr && bias->cols * bias->rows != weight->rows)) {
        return MakeError(ErrorCode::kCorrupt, "{}: {}.weight has {} columns; expected {}",
                         source.name(), base, weight->cols, columns);
    }
    DenseStep dense{.columns = columns, .rows = weight->rows};
    WEFT_ASSIGN(dense.weight, source.ReadFloats(*weight));
    if (bias == nullptr) return dense;
    WEFT_ASSIGN(dense.bias, source.ReadFloats(*bias));
    return dense;
}

// Rows 0 and 1 of `dense` become one: their difference.
void Subtract(DenseStep& dense) {
    const auto columns = static_cast<size_t>(dense.columns);
    for (size_t i = 0; i < columns; ++i) dense.weight[i] -= dense.weight[columns + i];
    dense.weight.resize(columns);
    if (!dense.bias.empty()) dense.bias = {dense.bias[0] - dense.bias[1]};
    dense.rows = 1;
}

bool IsOfModules(const std::string& folder) {
    return !folder.empty() && IsListed(folder + "/modules.json");
}

// As CrossEncoder of sentence-transformers 6.2 chooses it.
Status ReadActivation(const std::string& folder, EmbeddingHead& head) {
    if (folder.empty()) return {};
    WEFT_ASSIGN(const Config config, Config::ReadIfThere(folder + "/config.json"));
    WEFT_ASSIGN(const Config inner, config.Sub({"sentence_transformers"}));
    WEFT_ASSIGN(const Config own,
                Config::ReadIfThere(folder + "/config_sentence_transformers.json"));
    std::string name;
    if (IsOfModules(folder)) {
        WEFT_ASSIGN(name, own.StringOr({"activation_fn"}, ""));
    }
    if (name.empty()) {
        WEFT_ASSIGN(name, inner.StringOr({"activation_fn"}, ""));
    }
    if (name.empty()) {
        WEFT_ASSIGN(name, config.StringOr({"sbert_ce_default_activation_function"}, ""));
    }
    if (name.empty()) return {};
    const auto activation = ActivationOfName(name);
    if (!activation) {
        return MakeError(ErrorCode::kUnsupported, "{}: activation '{}' of scores is not supported",
                         folder, hf::Shown(name));
    }
    head.activation = *activation;
    return {};
}

}  // namespace

bool IsOfScoreHead(std::string_view tensor) {
    return tensor.starts_with("cls.");
}

bool HasScoreHead(const ModelSource& source) {
    return source.FindTensor(std::string(kOutput) + ".weight") != nullptr;
}

Result<bool> ReadsMessages(const ModelSource& source) {
    const std::string folder = source.folder();
    if (!IsOfModules(folder)) return true;
    WEFT_ASSIGN(const Config transformer,
                Config::ReadIfThere(folder + "/sentence_bert_config.json"));
    WEFT_ASSIGN(const Config kinds, transformer.Sub({"modality_config"}));
    return kinds.Has("message");
}

Status ReadScoreHead(const ModelSource& source, EmbeddingHead& head) {
    const Metadata& meta = source.meta();
    WEFT_ASSIGN(const std::string architecture, meta.StringOr("general.architecture", ""));
    WEFT_ASSIGN(int64_t columns, meta.Int(architecture + ".embedding_length", 1, 1 << 20));
    WEFT_ASSIGN(const bool causal, meta.BoolOr(architecture + ".attention.causal", true));
    Config config;
    if (!source.folder().empty()) {
        WEFT_ASSIGN(config, Config::ReadIfThere(source.folder() + "/config.json"));
    }
    WEFT_ASSIGN(const std::string pooling, config.StringOr({"classifier_pooling"}, "cls"));
    WEFT_ASSIGN(const int64_t type, meta.IntOr(architecture + ".pooling_type", 0, 100, 0));
    const bool mean = pooling == "mean" || (source.folder().empty() && type == 1);
    head.scores = head.from_file = true;
    head.poolings = {causal ? Pooling::kLast : mean ? Pooling::kMean : Pooling::kCls};
    WEFT_ASSIGN(const int64_t end, meta.IntOr("tokenizer.ggml.eos_token_id", 0, INT32_MAX, -1));
    WEFT_ASSIGN(const int64_t padding,
                meta.IntOr("tokenizer.ggml.padding_token_id", 0, INT32_MAX, end));
    const std::string id = "pad_token_id";
    if (causal && (source.folder().empty() || config.Has(id))) {
        WEFT_ASSIGN(const int64_t own, config.IntOr({id}, -1, INT32_MAX, padding));
        head.padding = static_cast<int32_t>(own);
    }
    head.steps.clear();
    if (source.FindTensor(std::string(kDense) + ".weight") != nullptr) {
        WEFT_ASSIGN(DenseStep dense, ReadDense(source, kDense, columns));
        const TensorInfo* norm = source.FindTensor(std::string(kNorm) + ".weight");
        dense.activation = norm == nullptr ? DenseActivation::kTanh : DenseActivation::kGelu;
        columns = dense.rows;
        head.steps.emplace_back(std::move(dense));
        if (norm != nullptr) {
            NormStep step;
            WEFT_ASSIGN(step.weight, source.ReadFloats(*norm));
            if (std::ssize(step.weight) != columns) {
                return MakeError(ErrorCode::kCorrupt, "{}: {}.weight has {} elements; expected {}",
                                 source.name(), kNorm, step.weight.size(), columns);
            }
            if (const TensorInfo* bias = source.FindTensor(std::string(kNorm) + ".bias")) {
                WEFT_ASSIGN(step.bias, source.ReadFloats(*bias));
            }
            if (!step.bias.empty() && std::ssize(step.bias) != columns) {
                return MakeError(ErrorCode::kCorrupt, "{}: {}.bias has {} elements; expected {}",
                                 source.name(), kNorm, step.bias.size(), columns);
            }
            head.steps.emplace_back(std::move(step));
        }
    }
    WEFT_ASSIGN(DenseStep output, ReadDense(source, kOutput, columns));
    if (type == 4 && causal && output.rows == 2) Subtract(output);
    if (output.rows != 1) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: a classifier of {} labels; a reranker has one label", source.name(),
                         output.rows);
    }
    head.steps.emplace_back(std::move(output));
    return ReadActivation(source.folder(), head);
}

Status SetScoreTokens(const ModelSource& source, ScoreTokens tokens, EmbeddingHead& head) {
    const TensorInfo* matrix = source.FindTensor("output.weight");
    if (matrix == nullptr) {
        WEFT_ASSIGN(matrix, source.NeedTensor("token_embd.weight"));
    }
    for (const char* other : {"output.scale", "output.bias"}) {
        if (source.FindTensor(other) == nullptr) continue;
        return MakeError(ErrorCode::kUnsupported, "{}: scores by tokens do not support {}",
                         source.name(), other);
    }
    const int64_t count = tokens.no < 0 ? 1 : 2;
    DenseStep dense{.columns = matrix->cols, .rows = count};
    dense.weight.resize(static_cast<size_t>(count * matrix->cols));
    std::vector<std::byte> bytes(RowBytes(matrix->dtype, matrix->cols));
    for (int64_t i = 0; i < count; ++i) {
        const int64_t row = i == 0 ? tokens.yes : tokens.no;
        if (row < 0 || row >= matrix->rows) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: scores come from token {}; the vocabulary has {}", source.name(),
                             row, matrix->rows);
        }
        WEFT_TRY(source.ReadRows(*matrix, row, 1, 0, matrix->cols, bytes, nullptr));
        DequantizeRow(
            matrix->dtype, bytes,
            std::span(dense.weight)
                .subspan(static_cast<size_t>(i * matrix->cols), static_cast<size_t>(matrix->cols)));
    }
    if (count == 2) Subtract(dense);
    head.scores = head.from_file = true;
    head.score_tokens = tokens;
    head.poolings = {Pooling::kLast};
    head.steps.clear();
    head.steps.emplace_back(std::move(dense));
    return ReadActivation(source.folder(), head);
}

}  // namespace weft::model_files
