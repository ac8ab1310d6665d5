// POST /v1/embeddings: OpenAI's Embeddings API; and what others that answer with vectors share.
//
// Each text is a request of its own to the engine, which reads it like any prompt and pools its
// hidden states (engine/batch/pooling.h); so long texts go in chunks between others' tokens, and a
// text has the same vector in any company. Of a long list only some are there at a time, so that
// it fills no queue.
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

inline constexpr size_t kMostEmbeddingTexts = 2048;  // of a request, as OpenAI has it

struct EmbeddingPlan {
    std::vector<engine::Request> requests;
    int64_t dimensions = 0;  // the first so many, made length 1 again; 0: all
    bool base64 = false;     // little-endian float32, as OpenAI has it; else a list of numbers
    Headers headers{};       // of the answer, besides its type
    // How other APIs word it; empty: as OpenAI. vectors: as EmbeddingText has them.
    std::function<std::string(const std::vector<std::string>& vectors, const AnswerRecord& record)>
        body{};
    std::string (*error_body)(const ApiError& error) = OpenAiError;
    std::string reply{};  // not empty: the whole answer, as there is nothing to compute
};

// Errors: what the client hears.
std::optional<ApiError> PlanEmbeddings(const Json& body, const Served& served, EmbeddingPlan& plan);

// `vector` with its first `dimensions` numbers (0: all), as JSON.
std::string EmbeddingText(std::vector<float> vector, int64_t dimensions, bool base64);

class EmbeddingAnswer : public std::enable_shared_from_this<EmbeddingAnswer> {
  public:
    using Observer = Answer::Observer;
    using Later = Answer::Later;
    // What is wrong with a text (too long, ...) is answered before anything is begun. observer:
    // called once, at the end. Any thread.
    static void Start(const Served& served, std::shared_ptr<Exchange> exchange, EmbeddingPlan plan,
                      Later later, Observer observer);

  private:
    class TextListener;
    EmbeddingAnswer(const Served& served, std::shared_ptr<Exchange> exchange, EmbeddingPlan plan,
                    Later later, Observer observer);
    void SubmitNext();
    void OnText(size_t index, std::vector<float> vector, const Result<engine::Ending>& ending);
    void CancelAll();
    void AddSpent(int64_t prompt_tokens);
    void Fail(const ApiError& error);
    size_t BytesToWord() const;
    void Send();
    std::string Body(const std::vector<std::string>& vectors) const;
    void Observe();

    const Served& served_;
    std::shared_ptr<Exchange> exchange_;
    EmbeddingPlan plan_;
    const Later later_;
    Observer observer_;
    std::mutex mutex_;  // of all below
    std::vector<std::vector<float>> vectors_;
    std::vector<int64_t> ids_;
    AnswerRecord record_;
    size_t next_ = 0, left_ = 0, running_ = 0;
    bool over_ = false;
};

}  // namespace weft::serve
