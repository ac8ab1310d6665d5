// A model's answer, taken apart: what it says, what it thinks, and which tools it calls.
//
// The text of an answer, fed as it comes, becomes deltas of content and reasoning and whole tool
// calls. Half a marker is never shown: text that may be the begin of one is held back until it is
// known. Families:
//
//   kPlain     content only
//   kQwen      <think>...</think>, <tool_call>{"name": ..., "arguments": {...}}</tool_call>
//              (Qwen, Hermes and many others)
//   kLlama3    {"name": ..., "parameters": {...}} as the whole answer, also after <|python_tag|>
//              and several with ";" between
//   kDeepSeek  <think>...</think>, <|tool_calls_begin|><|tool_call_begin|>...<|tool_call_end|>
//              with DeepSeek's wide bars; R1 and V3 put the arguments into a ```json fence, V3.1
//              puts them after the separator
//   kMistral   [TOOL_CALLS][{...}, {...}], and [TOOL_CALLS]name[ARGS]{...}; [THINK]...[/THINK]
//   kHarmony   gpt-oss: <|channel|>analysis|commentary|final ... <|message|>...<|end|>
//
// The text must hold the special tokens by name (decode with skip_special off). A call that can't
// be read (no JSON, no name) is given back as content, markers and all: nothing is lost.
// Bounds: what is held back is at most kMostHeldBytes; a longer call becomes content.
// Thread: one answer, one AnswerParser.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"

namespace weft::chat {

enum class AnswerFamily { kPlain, kQwen, kLlama3, kDeepSeek, kMistral, kHarmony };

struct ToolCall {
    std::string name;
    OrderedJson arguments;  // an object, or whatever the model wrote that is JSON

    bool operator==(const ToolCall&) const = default;
};

// A piece of a call that is given as it is written: its name first, then pieces of its arguments'
// JSON, as the model writes it (and as broken as it may be).
struct CallPart {
    std::string name{};  // where it begins
    std::string arguments{};
    bool begins = false;
    bool ends = false;  // and all of it is there; one that is cut off has no end

    bool operator==(const CallPart&) const = default;
};

// What is new since the last delta; of a whole answer: all of it.
struct AnswerDelta {
    std::string content;
    std::string reasoning;
    std::vector<ToolCall> tool_calls;
    std::vector<CallPart> call_parts{};  // of calls that are not among tool_calls

    bool empty() const {
        return content.empty() && reasoning.empty() && tool_calls.empty() && call_parts.empty();
    }
};

// By the markers in a model's template; where it has none of them, kPlain.
AnswerFamily FamilyOf(std::string_view chat_template);
// "qwen", "llama3", ...: for messages.
std::string_view FamilyName(AnswerFamily family);

class AnswerParser {
  public:
    static constexpr size_t kMostHeldBytes = size_t{1} << 20;

    // begins_in_reasoning: the prompt ended inside a <think> that the template opened.
    // parts: calls come in pieces where the family's form allows it (kQwen, kHarmony), else whole.
    explicit AnswerParser(AnswerFamily family, bool begins_in_reasoning = false,
                          bool parts = false);
    ~AnswerParser();
    AnswerParser(AnswerParser&&) noexcept;
    AnswerParser& operator=(AnswerParser&&) noexcept;

    // What `text` adds.
    AnswerDelta Push(std::string_view text);
    // The answer is over: what was held back.
    AnswerDelta Finish();

    class Grammar;  // of one family

  private:
    std::unique_ptr<Grammar> grammar_;
};

// A whole answer at once. `partial`: it is cut off, and what may begin a marker at its end is left
// out.
AnswerDelta ParseAnswer(AnswerFamily family, std::string_view text, bool partial = false);

// Whether a rendered prompt leaves the model inside its reasoning: it ends with "<think>" (or
// "[THINK]").
bool EndsInReasoning(std::string_view prompt);

}  // namespace weft::chat
