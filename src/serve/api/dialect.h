// A Dialect formats one answer for its API: OpenAI's chat completions, completions and responses,
// Anthropic's messages, Ollama's chat and generate. It depends on JSON only, not on HTTP, threads
// or models.
//
// Stream: Begin, any number of Delta and EndChoice (choices interleave), End. Each call appends
// server-sent events (WHATWG HTML, "server-sent events") to `out`, or the format that StreamType
// names. Complete answer: Whole.
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
    int64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    double queue_s = 0, first_token_s = 0, total_s = 0;  // maximum over the choices
    int64_t reasoning_tokens = 0;  // how many of generated_tokens are reasoning, with its markers
};

using engine::PromptProgress;

// End of a choice. finish: OpenAI's "stop", "length" or "tool_calls".
struct ChoiceEnd {
    std::string finish;
    std::string stop_text{};        // the stop string that matched; empty: none
    bool context_full = false;      // "length" because the context is full, not by max_tokens
    std::vector<int32_t> tokens{};  // all generated tokens, if the plan keeps them
};

// One complete choice. An unfinished call is one part in said.call_parts.
struct Choice {
    chat::AnswerDelta said;
    std::vector<engine::GeneratedToken> tokens;
    // Log-probabilities of the prompt's tokens, if requested; NaN for the first token.
    std::vector<engine::GeneratedToken> prompt{};
    ChoiceEnd end;
};

class Dialect {
  public:
    virtual ~Dialect() = default;
    // The Content-Type of a stream.
    virtual const char* StreamType() const { return "text/event-stream; charset=utf-8"; }
    // Whether the end of a stream repeats the request or the answer.
    virtual bool repeats() const { return false; }
    // The number of the slot that remembers the text (llama/slots.h). Called before Begin.
    virtual void UseSlot(int64_t /*id*/) {}
    // Counts and times of the choice that the next Delta or EndChoice is about, up to there. Only
    // if the plan has `timings`.
    virtual void Progress(const Usage& /*usage*/) {}
    // How far the prompt of the choice is computed; the next Waiting shows it. Only if the plan has
    // `prompt_progress`.
    virtual void PromptProgress(const PromptProgress& /*progress*/) {}
    virtual void Begin(std::string& out) = 0;
    // tokens: the delta's tokens; empty unless log-probabilities were requested.
    virtual void Delta(int choice, const chat::AnswerDelta& delta,
                       std::span<const engine::GeneratedToken> tokens, std::string& out) = 0;
    // Data that a client ignores, while the choice has nothing to say: proxies and clients end
    // silent streams. Not a comment of server-sent events, which some clients' parsers drop.
    virtual void Waiting(int choice, std::string& out) { Delta(choice, {}, {}, out); }
    virtual void EndChoice(int choice, const ChoiceEnd& end, std::string& out) = 0;
    virtual void End(const Usage& usage, std::string& out) = 0;
    virtual void Fail(const ApiError& error, std::string& out) = 0;

    // Whether a stream that is refused at once is a stream, with Fail, and not an HTTP error.
    virtual bool StreamsRefusal(const ApiError& /*error*/) const { return false; }

    virtual std::string Whole(const std::vector<Choice>& choices, const Usage& usage) = 0;
    virtual std::string ErrorBody(const ApiError& error) = 0;
};

// OpenAI's error body: {"error": {...}}.
std::string OpenAiError(const ApiError& error);
// The error's text in OpenAI's words.
std::string OpenAiMessage(const ApiError& error);
// A JSON string with its quotes; invalid UTF-8 becomes U+FFFD.
std::string Quoted(std::string_view text);
std::string Dump(const Json& json);
// A random id for a tool call or an answer: `prefix` ("call_") and random letters.
std::string MakeId(std::string_view prefix);
// A tool call id that the model's chat template accepts: MakeId, or nine alphanumeric characters
// where the template requires them.
std::string MakeCallId(const Served& served, std::string_view prefix);

}  // namespace weft::serve
