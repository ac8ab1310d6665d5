// Common part of OpenAI's chat completions and completions: choices in chunks, a separate usage
// chunk, [DONE], errors, and the envelope of a complete answer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "serve/api/dialect.h"
#include "serve/api/openai/logprobs.h"
#include "serve/api/served.h"

namespace weft::serve {

class OpenAiDialect : public Dialect {
  public:
    bool prompt_logprobs = false;  // a complete answer has vLLM's prompt_logprobs
    TokenNames token_names = TokenNames::kTexts;
    bool timings = false;  // a complete answer has llama-server's timings

    void Progress(const Usage& usage) override { progress_ = usage; }
    void PromptProgress(const serve::PromptProgress& progress) override {
        prompt_progress_ = progress;
    }
    void Begin(std::string&) override {}
    void End(const Usage& usage, std::string& out) override;
    void Fail(const ApiError& error, std::string& out) override;
    std::string ErrorBody(const ApiError& error) override { return OpenAiError(error); }
    std::string Whole(const std::vector<Choice>& choices, const Usage& usage) override;

  protected:
    // adapter: gives the answer's "model". prefix: of the answer's id. object, chunk: "object" of
    // an answer and of a stream chunk. usage: the stream reports usage. logprobs: log-probabilities
    // were requested.
    OpenAiDialect(const Served& served, int32_t adapter, const char* prefix, const char* object,
                  const char* chunk, bool usage, bool logprobs);
    // said: JSON members of the choice's text ("\"text\":..."). logprobs, finish: JSON values.
    void Chunk(int choice, const std::string& said, const std::string& logprobs,
               const std::string& finish, std::string& out);
    // JSON of the choice at `index` in a complete answer, without its log-probabilities.
    virtual Json ChoiceJson(const Choice& choice, size_t index) = 0;
    // JSON text of the choice's log-probabilities.
    virtual std::string LogprobsOf(const Choice& choice, size_t index) = 0;

    const Served& served_;
    const bool usage_, logprobs_;

  private:
    const std::string& model_;
    const std::string id_;
    const char* const object_;
    const int64_t created_;
    const std::string head_;  // JSON prefix of every chunk
    std::optional<Usage> progress_;
    std::optional<serve::PromptProgress> prompt_progress_;
};

}  // namespace weft::serve
