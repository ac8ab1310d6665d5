// POST /v1/embeddings: OpenAI's Embeddings API, and the parts shared with other APIs' embedding
// endpoints.
//
// Each text is its own engine request, which runs prefill only and pools the hidden states
// (engine/batch/pooling.h). Long texts are therefore prefilled in chunks between other requests'
// tokens, and a text's vector does not depend on the rest of the batch. A long list is submitted a
// few texts at a time, so that it does not fill the queue.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "serve/api/answer.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

inline constexpr size_t kMostEmbeddingTexts = 2048;  // per request, as in OpenAI

struct EmbeddingPlan {
    std::vector<engine::Request> requests;
    // Number of leading values to keep, renormalized if the model normalizes; 0: all.
    int64_t dimensions = 0;
    bool base64 = false;  // base64 of little-endian float32 (OpenAI); else a list of numbers
    LeftMembers left{};   // for the log
    Headers headers{};    // response headers besides Content-Type
    // Formats another API's response; empty: OpenAI's format. vectors: EmbeddingText of each.
    std::function<std::string(const std::vector<std::string>& vectors, const AnswerRecord& record)>
        body{};
    // The same of the numbers themselves (rerank.h).
    using Vectors = std::vector<std::vector<float>>;
    std::function<std::string(const Vectors& vectors, const AnswerRecord& record)> of_numbers{};
    size_t more_bytes = 0;  // of the response besides the vectors
    std::string (*error_body)(const ApiError& error) = OpenAiError;
    std::string reply{};  // not empty: the complete response; the engine is not called
};

// Error: the response for the client.
std::optional<ApiError> PlanEmbeddings(const Json& body, const Served& served, EmbeddingPlan& plan);

// The tokens of `prompt` that precede each text and that the pooling leaves out; 0: none.
int64_t UnpooledTokens(const Served& served, std::string_view prompt);

// The first `dimensions` numbers (0: all) of `vector`, as JSON. normalizes: they get length 1
// again.
std::string EmbeddingText(std::vector<float> vector, int64_t dimensions, bool normalizes,
                          bool base64);

class EmbeddingAnswer : public std::enable_shared_from_this<EmbeddingAnswer> {
  public:
    using Observer = Answer::Observer;
    using Later = Answer::Later;
    // Invalid texts (too long, ...) get an error response before any text starts. observer: called
    // once, at the end. Thread: any.
    static void Start(const Served& served, std::shared_ptr<Exchange> exchange, EmbeddingPlan plan,
                      Later later, Observer observer);

  private:
    class TextListener;
    EmbeddingAnswer(const Served& served, std::shared_ptr<Exchange> exchange, EmbeddingPlan plan,
                    Later later, Observer observer);
    void SubmitNext();
    void OnText(size_t index, std::vector<float> vector, const Result<engine::Ending>& ending);
    void CancelAll();
    void AddUsage(int64_t prompt_tokens);
    void Fail(const ApiError& error);
    void SendFailure();
    size_t BytesToFormat() const;
    void Send();
    std::string Body() const;
    void Observe();

    const Served& served_;
    std::shared_ptr<Exchange> exchange_;
    EmbeddingPlan plan_;
    const Later later_;
    Observer observer_;
    std::mutex mutex_;  // guards all members below
    std::vector<std::vector<float>> vectors_;
    std::vector<int64_t> ids_;
    AnswerRecord record_;
    ApiError failure_;  // if record_ has an error
    size_t next_ = 0, left_ = 0, running_ = 0;
    bool over_ = false;
};

}  // namespace weft::serve
