// A model's answer, taken apart: what it says, what it thinks, and which tools it calls.
//
// The text of an answer, fed as it comes, becomes deltas of content and reasoning and whole tool
// calls. Half a marker is never shown: text that may be the begin of one is held back until it is
// known. Families:
//
//   kPlain     content only
//   kQwen      <think>...</think>, <tool_call>{"name": ..., "arguments": {...}}</tool_call>
//              (Qwen, Hermes, SmolLM 3 and many others)
//   kQwenCoder within the tags <function=f><parameter=k>v</parameter></function>, or without them
//   kGlm       within the tags f<arg_key>k</arg_key><arg_value>v</arg_value>
//   kLlama3    {"name": ..., "parameters": {...}} as the answer's begin, after <|python_tag|> or
//              behind a call, and where the function is one of those offered, on a line of its
//              own; [f(k="v")] where it is; <function=f>{...}</function>
//   kDeepSeek  <think>...</think>, <|tool_calls_begin|><|tool_call_begin|>...<|tool_call_end|>
//              with DeepSeek's wide bars; R1 and V3 put the arguments into a ```json fence, V3.1
//              puts them after the separator
//   kMistral   [TOOL_CALLS][{...}, {...}], and [TOOL_CALLS]name[ARGS]{...}; [THINK]...[/THINK]
//   kHarmony   gpt-oss: <|channel|>analysis|commentary|final ... <|message|>...<|end|>
//   kKimi      <think>, <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{...}
//              <|tool_call_end|>
//   kMiniMax   <think>, <minimax:tool_call><invoke name="f"><parameter name="k">v</parameter>
//              </invoke></minimax:tool_call>
//   kGemma     Gemma 4: <|channel>thought...<channel|>, <|tool_call>call:f{k:<|"|>v<|"|>}
//              <tool_call|>
//   kGranite   <think>, <|tool_call|>[{...}, {...}]
//   kPhi       Phi-4-mini: <|tool_call|>[{...}]<|/tool_call|>, and functools[{...}]
//   kOlmo      OLMo 3: <think>, <function_calls>f(k="v")</function_calls>
//   kLfm2      LFM 2: <think>, <|tool_call_start|>[f(k="v"), g()]<|tool_call_end|>
//   kHunyuan   Hy3: <think:opensource>, <tool_calls:opensource>, then as GLM with such names of its
//              tags and <tool_sep:opensource> behind the function's name
//   kHunyuanPreview  Hy3-preview: the same without ":opensource"
//   kSeed      Seed-OSS: <seed:think>...</seed:think>, functions as kQwenCoder within
//              <seed:tool_call>
//   kCohere    Command A, Command R7B: <|START_THINKING|>...<|END_THINKING|>, <|START_ACTION|>
//              [{"tool_name": ..., "parameters": {...}}]<|END_ACTION|>, <|START_RESPONSE|>...
//   kNemotron  Nemotron Nano 2: <think>, <TOOLCALL>[{...}]</TOOLCALL>
//   kSolar     Solar-Open: <|think|>...<|end|>, <|tool_call:begin|>ID<|tool_call:name|>f
//              <|tool_call:args|>{...}<|tool_call:end|>
//   kDsml      DeepSeek V3.2 and V4: <think>, <|DSML|function_calls> (V4: tool_calls) with wide
//              bars, then as kMiniMax;
//              string="true" says that a value is a text
//   kErnie     ERNIE 4.5: as kQwen, and the answer between <response> and </response>
//   kMiniMaxM3 <mm:think>...</mm:think>; a mark, ]<]minimax[>[, before each tag of <tool_call>
//              <invoke name="f"><k>v</k></invoke></tool_call>; values that are lists and objects
//              are tags, too
//   kAtem      Muse Glimmer: to=self, to=user or to=f, then <|message|>...<|eom|>; a call is
//              <atem:function_calls><atem:invoke name="f"><atem:parameter name="k">v
//              </atem:parameter></atem:invoke></atem:function_calls>
//   kHunyuanA13b  <think>, <answer>...</answer>, <tool_calls>[{...}]</tool_calls>
//
// The text must hold the special tokens by name (decode with skip_special off). A call that can't
// be read (no JSON, no name) is given back as content, markers and all: nothing is lost. An end
// marker within a text of the call's JSON, or within a value between tags, is part of that text.
// Bounds: what is held back is at most kMostHeldBytes; a longer call becomes content.
// Thread: one answer, one AnswerParser.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/chat_template.h"

namespace weft::chat {

enum class AnswerFamily {
    kPlain,
    kQwen,
    kLlama3,
    kDeepSeek,
    kMistral,
    kHarmony,
    kQwenCoder,
    kGlm,
    kKimi,
    kMiniMax,
    kGemma,
    kGranite,
    kPhi,
    kOlmo,
    kLfm2,
    kHunyuan,
    kHunyuanPreview,
    kSeed,
    kCohere,
    kNemotron,
    kSolar,
    kDsml,
    kErnie,
    kHunyuanA13b,
    kMiniMaxM3,
    kAtem,
};

class ToolTypes;

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
    // parts: calls come in pieces where the family's form allows it (JSON within <tool_call>,
    // kHarmony), else whole.
    // tools: the functions that were offered: what types arguments have that come as plain text.
    // Where there are none of them (but the pointer isn't null), what looks like a call is content.
    explicit AnswerParser(AnswerFamily family, bool begins_in_reasoning = false, bool parts = false,
                          std::shared_ptr<const ToolTypes> tools = nullptr);
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

// What ends the family's reasoning.
std::string_view ThinkEnd(AnswerFamily family);

// Whether a rendered prompt leaves the model inside its reasoning: it ends with "<think>" (or
// "[THINK]").
bool EndsInReasoning(std::string_view prompt);

}  // namespace weft::chat
