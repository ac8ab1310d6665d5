// A Dialect words one request's answer as its API has it: OpenAI's chat completions, completions
// and responses, Anthropic's messages, Ollama's chat and generate. It knows JSON and nothing of
// HTTP, threads or models.
//
// As a stream: Begin, any number of Delta and EndChoice (choices come mixed), End; each appends
// server-sent events (WHATWG HTML, "server-sent events") to `out`, or what StreamType says. As a
// whole: Whole.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "chat/answer.h"
#include "engine/engine.h"
#include "serve/api/fields.h"
#include "serve/api/served.h"

namespace weft::serve {

struct Usage {
    int64_t prompt_tokens = 0, cached_tokens = 0, said_tokens = 0;
    double queue_s = 0, first_token_s = 0, total_s = 0;  // the longest of the choices'
};

// How a choice ended, as OpenAI has it: "stop", "length", "tool_calls".
struct ChoiceEnd {
    std::string finish;
    std::string stop_text{};        // which of the stop texts it was; empty: none
    bool context_full = false;      // "length": of the context, not the one that was asked for
    std::vector<int32_t> tokens{};  // all that were said, where the plan keeps them
};

// One choice, whole. A call that was cut off is among said.call_parts, as one part.
struct Choice {
    chat::AnswerDelta said;
    std::vector<engine::SaidToken> tokens;
    // How likely the prompt's tokens were, if that was asked for. The first has NaN.
    std::vector<engine::SaidToken> prompt{};
    ChoiceEnd end;
};

class Dialect {
  public:
    virtual ~Dialect() = default;
    // The Content-Type of a stream.
    virtual const char* StreamType() const { return "text/event-stream; charset=utf-8"; }
    virtual void Begin(std::string& out) = 0;
    // tokens: those that the delta came with; empty unless log-probabilities were asked for.
    virtual void Delta(int choice, const chat::AnswerDelta& delta,
                       std::span<const engine::SaidToken> tokens, std::string& out) = 0;
    virtual void EndChoice(int choice, const ChoiceEnd& end, std::string& out) = 0;
    virtual void End(const Usage& usage, std::string& out) = 0;
    virtual void Fail(const ApiError& error, std::string& out) = 0;

    virtual std::string Whole(const std::vector<Choice>& choices, const Usage& usage) = 0;
    virtual std::string ErrorBody(const ApiError& error) = 0;
};

// {"error": {...}} as OpenAI has it.
std::string OpenAiError(const ApiError& error);
// A text as a JSON string with its quotes; what is not UTF-8 becomes U+FFFD.
std::string Quoted(std::string_view text);
std::string Dump(const Json& json);
// "call_" and the like, and random letters: an id for a tool call or an answer.
std::string MakeId(std::string_view prefix);
// An id for a tool call that the model's own template takes back: as MakeId, or nine letters and
// digits where the template demands that.
std::string MakeCallId(const Served& served, std::string_view prefix);

}  // namespace weft::serve
