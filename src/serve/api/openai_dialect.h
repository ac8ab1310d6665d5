// What OpenAI's chat completions and completions have in common: choices in chunks, the usage in a
// chunk of its own, [DONE], errors, and the frame of a whole answer.
#pragma once

#include <string>
#include <vector>

#include "serve/api/dialect.h"
#include "serve/api/served.h"

namespace weft::serve {

class OpenAiDialect : public Dialect {
  public:
    bool prompt_chances = false;  // a whole answer has vLLM's prompt_logprobs

    void Begin(std::string&) override {}
    void End(const Usage& usage, std::string& out) override;
    void Fail(const ApiError& error, std::string& out) override;
    std::string ErrorBody(const ApiError& error) override { return OpenAiError(error); }
    std::string Whole(const std::vector<Choice>& choices, const Usage& usage) override;

  protected:
    // adapter: whose name the answer gives as its model. prefix: of the answer's id. object, chunk:
    // what the API calls an answer, and a piece of one. usage: the stream says it. chances:
    // log-probabilities are wanted.
    OpenAiDialect(const Served& served, int32_t adapter, const char* prefix, const char* object,
                  const char* chunk, bool usage, bool chances);
    // said: what the choice says, as members ("\"text\":..."); chances, finish: as JSON.
    void Chunk(int choice, const std::string& said, const std::string& chances,
               const std::string& finish, std::string& out) const;
    // The members of choice number `index` of its own, in a whole answer.
    virtual Json ChoiceJson(const Choice& choice, size_t index) = 0;

    const Served& served_;
    const bool usage_, chances_;

  private:
    const std::string& model_;
    const std::string id_;
    const char* const object_;
    const int64_t created_;
    const std::string head_;  // of every chunk
};

}  // namespace weft::serve
