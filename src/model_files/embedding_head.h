// How a model computes one vector for a text: the pooling of its tokens' hidden states, and the
// following steps. The vector of a reranker is one number, the score of a query and a document.
//
// A folder of sentence-transformers (6.2) lists its modules in modules.json: a Transformer, a
// Pooling (N_Pooling/config.json), then any of Dense (a matrix, a bias and an activation),
// LayerNorm, Normalize and Dropout (nothing at inference). Its config_sentence_transformers.json
// has prompts that precede texts, by name. Longer texts are cut: to max_seq_length of
// sentence_bert_config.json, else to model_max_length of tokenizer_config.json and to the model's
// positions. A GGUF file has ARCHITECTURE.pooling_type: 0 none, 1 mean, 2
// first token, 3 last token, 4 a reranker.
//
// Rerankers: score_head.h.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model_files {

enum class Pooling {
    kLast,      // the last token's state
    kMean,      // the mean over all tokens
    kCls,       // the first token's state
    kMax,       // the largest value of each column
    kMeanSqrt,  // the sum over all tokens, divided by the square root of their number
    kWeighted,  // the mean, weighted by position: 1 for the first token, 2 for the second
};
// "last", "mean", "cls", "max", "mean_sqrt_len", "weightedmean".
const char* PoolingName(Pooling pooling);
std::optional<Pooling> PoolingOfName(std::string_view name);

enum class DenseActivation { kIdentity, kTanh, kRelu, kSigmoid, kSilu, kGelu };
// By the name of the class: "torch.nn.modules.activation.Sigmoid".
std::optional<DenseActivation> ActivationOfName(std::string_view name);

// activation(W x + b).
struct DenseStep {
    int64_t columns = 0;  // of x
    int64_t rows = 0;
    std::vector<float> weight{}, bias{};  // [rows, columns]; [rows], or empty
    DenseActivation activation = DenseActivation::kIdentity;
};

// (x - mean) / sqrt(variance + eps) * weight + bias.
struct NormStep {
    std::vector<float> weight, bias;
};

struct UnitStep {};  // x / |x|
using HeadStep = std::variant<UnitStep, DenseStep, NormStep>;

// Tokens whose logits give a score: the logit of `yes` minus the logit of `no`. -1: none.
struct ScoreTokens {
    int64_t yes = -1, no = -1;
};

struct EmbeddingHead {
    bool from_file = false;  // the model's files state the pooling
    // If there are several, the vector holds their results one after the other.
    std::vector<Pooling> poolings{Pooling::kLast};
    std::vector<HeadStep> steps{UnitStep{}};
    bool scores = false;  // the vector is a reranker's score
    // The score head of a causal model ignores tokens with this id at the end: transformers reads
    // the score at the last token that is not padding. -1: the head ignores none.
    int32_t padding = -1;
    DenseActivation activation = DenseActivation::kSigmoid;  // of a score
    ScoreTokens score_tokens{};  // in modules.json; SetScoreTokens makes the step of them
    std::string prompt{};        // precedes each text (of a pair: the query)
    std::map<std::string, std::string, std::less<>> prompts{};  // by name
    bool pools_prompt = true;  // false: the pooling excludes the prompt's tokens
    int64_t most_tokens =
        0;  // a longer text is cut to this number, including special tokens; 0: no limit
    bool cuts_begin = false;  // a cut text loses its beginning, not its end

    // Columns of a vector, for hidden states of `hidden` columns.
    int64_t Columns(int64_t hidden) const;
    // Whether the last step normalizes the vector to length 1.
    bool normalizes() const {
        return !steps.empty() && std::holds_alternative<UnitStep>(steps.back());
    }
    // The steps after the pooling. pooled: the results of `poolings`. Errors: kCorrupt if a number
    // of the result is not finite.
    Result<std::vector<float>> Apply(std::vector<float> pooled) const;
    float Activated(float score) const;
};

// Without modules.json and pooling_type: the last token's state, normalized, as in vLLM. Errors
// name file and key: kUnsupported (another module, pooling or activation), kCorrupt, kNotFound (a
// file that modules.json needs).
Result<EmbeddingHead> ReadEmbeddingHead(const ModelSource& source);

}  // namespace weft::model_files
