// AnswerParser: splits a model's output into content, reasoning and tool calls.
//
// It reads the text as it arrives and returns deltas of content and reasoning, and complete tool
// calls. Text that may begin a marker is held back until more text shows whether it does, so a
// partial marker is never shown. Formats by family:
//
//   kPlain     content only
//   kQwen      <think>...</think>, <tool_call>{"name": ..., "arguments": {...}}</tool_call>
//              (Qwen, Hermes, SmolLM 3 and many others)
//   kQwenCoder inside the tags: <function=f><parameter=k>v</parameter></function>, with a line end
//              on each side of the value; the tags may be missing
//   kQwenCoderTight  the same without line ends around the value (MiMo V2)
//   kGlm       inside the tags: f<arg_key>k</arg_key><arg_value>v</arg_value>
//   kLlama3    {"name": ..., "parameters": {...}} at the answer's start, after <|python_tag|> or
//              after another call; for an offered function also on a line of its own; there also
//              [f(k="v")]; <function=f>{...}</function>
//   kDeepSeek  <think>...</think>, <|tool_calls_begin|><|tool_call_begin|>...<|tool_call_end|>
//              with DeepSeek's wide bars; R1 and V3 write the arguments in a ```json fence, V3.1
//              after the separator
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
//   kHunyuan   Hy3: <think:opensource>, <tool_calls:opensource>, then as GLM with ":opensource" in
//              each tag, and <tool_sep:opensource> after the function's name
//   kHunyuanPreview  Hy3-preview: the same without ":opensource"
//   kSeed      Seed-OSS: <seed:think>...</seed:think>, functions as in kQwenCoder inside
//              <seed:tool_call>
//   kCohere    Command A, Command R7B: <|START_THINKING|>...<|END_THINKING|>, <|START_ACTION|>
//              [{"tool_name": ..., "parameters": {...}}]<|END_ACTION|>, <|START_RESPONSE|>...
//   kNemotron  Nemotron Nano 2: <think>, <TOOLCALL>[{...}]</TOOLCALL>
//   kSolar     Solar-Open: <|think|>...<|end|>, <|tool_call:begin|>ID<|tool_call:name|>f
//              <|tool_call:args|>{...}<|tool_call:end|>
//   kDsml      DeepSeek V3.2 and V4: <think>, <|DSML|function_calls> (V4: tool_calls) with wide
//              bars, then as kMiniMax;
//              string="true" marks a string value
//   kErnie     ERNIE 4.5: as kQwen, with the answer in <response> and </response>
//   kMiniMaxM3 <mm:think>...</mm:think>; the mark ]<]minimax[>[ before each tag of <tool_call>
//              <invoke name="f"><k>v</k></invoke></tool_call>; lists and objects are nested tags
//   kAtem      Muse Glimmer: to=self, to=user or to=f, then <|message|>...<|eom|>; a call is
//              <atem:function_calls><atem:invoke name="f"><atem:parameter name="k">v
//              </atem:parameter></atem:invoke></atem:function_calls>
//   kHunyuanA13b  <think>, <answer>...</answer>, <tool_calls>[{...}]</tool_calls>; the dense models
//              <tool_calls><tool_call>f, then a ```json fence, </tool_call></tool_calls>
//   kGigaChat  GigaChat 3: "function call<|role_sep|>" {...}, 3.1: <|function_call|>{...}, 3.5: as
//              kDsml with GCML in the bars
//   kApriel    "Here are my reasoning steps:" ... [BEGIN FINAL RESPONSE], <tool_calls>[{...}]
//              </tool_calls>
//   kMiniCpm5  <think>, <function name="f"><param name="k">v</param></function>; v may be CDATA
//   kFunctionGemma  <start_function_call>call:f{k:<escape>v<escape>}<end_function_call>
//   kGlm4      GLM-4-0414, GLM-4-9B: f, a line end and {...}, as the whole message
//   kCommandR  Action: and a ```json fence with [{"tool_name": ..., "parameters": {...}}]
//   kInternS1  <think>, <|action_start|><|plugin|>{"name": ..., "parameters": {...}}<|action_end|>
//   kApertus   <|inner_prefix|>...<|inner_suffix|>, <|tools_prefix|>[{"f": {...}}]<|tools_suffix|>
//   kJsonList  xLAM 2: [{"name": ..., "arguments": {...}}] without markers, at the answer's start
//   kLongcat   LongCat-Flash: <longcat_think>...</longcat_think>, <longcat_tool_call>, then as
//   kQwen
//              or as kGlm with "longcat_" in each tag
//   kJamba     Jamba: <tool_calls>[{"name": ..., "arguments": {...}}]</tool_calls>
//
// The text must contain special tokens by name (decode with skip_special off). If a marker is a
// token of the vocabulary, only the token counts: the same characters in other tokens are text. A
// marker that is only text counts at its position in the format: reasoning at the beginning, the
// end of a turn at the end. A control token that is no marker is dropped. A call in reasoning
// counts only if no end of the reasoning follows it. A call that cannot be parsed (invalid JSON, no
// name) becomes text with its markers, so no text is lost. An end marker inside a JSON string of a
// call, or inside a value between tags, belongs to the value.
// With parts, JSON arguments and long strings between tags are returned while they arrive.
// Limit: at most kMostHeldBytes are held back; a longer call becomes content.
// Thread: one AnswerParser per answer, one thread at a time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/template/chat_template.h"
#include "tokenizer/tokenizer.h"

namespace weft::chat {

enum class ToolCallFormat {
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
    kQwenCoderTight,
    kGigaChat,
    kApriel,
    kMiniCpm5,
    kFunctionGemma,
    kGlm4,
    kCommandR,
    kInternS1,
    kApertus,
    kJsonList,
    kLongcat,
    kJamba,
};

class ToolTypes;

struct ToolCall {
    std::string name;
    OrderedJson arguments;    // an object, or other JSON that the model wrote
    bool as_written = false;  // the arguments are no JSON: a string of the model's text

    // As OpenAI's API sends them: JSON, or the model's text.
    std::string ArgumentsText() const;
    bool operator==(const ToolCall&) const = default;
};

// A streamed part of a call: first the name, then pieces of the arguments' JSON as the model writes
// it. The text may be no JSON, as in ToolCall.
struct CallPart {
    std::string name{};  // only in the first part
    std::string arguments{};
    bool begins = false;
    bool ends = false;  // the call is complete; an unfinished call has no end

    bool operator==(const CallPart&) const = default;
};

// New text and calls since the last delta; for a complete answer, all of them.
struct AnswerDelta {
    std::string content;
    std::string reasoning;
    std::vector<ToolCall> tool_calls;
    std::vector<CallPart> call_parts{};  // parts of calls that are not in tool_calls

    bool empty() const {
        return content.empty() && reasoning.empty() && tool_calls.empty() && call_parts.empty();
    }
};

// Detects the family by the markers in a text: a chat template's source, and what it renders
// (template_capabilities.h); kPlain if there are none.
ToolCallFormat FamilyOf(std::string_view text);
// "qwen", "llama3", ...; for messages.
std::string_view FamilyName(ToolCallFormat family);

// How the tokens of an answer are read.
struct TokenReading {
    const tokenizer::Tokenizer* tokenizer = nullptr;  // null: the answer is only text
    // The part of the answer in which markers spelled as text count, too, because a grammar may
    // have made the model spell them.
    enum class Letters { kNowhere, kBehindReasoning, kAnywhere } letters = Letters::kNowhere;
    bool shows_special = false;  // control tokens of no marker are shown
};

class AnswerParser {
  public:
    static constexpr size_t kMostHeldBytes = size_t{1} << 20;

    // begins_in_reasoning: the prompt ends inside a <think> that the template opened.
    // parts: stream calls in parts if the family's format allows it (JSON inside <tool_call>,
    // kHarmony).
    // tools: the offered functions, with the types of arguments written as plain text; null: not
    // known. If there are none (empty()), text that looks like a call is content.
    // verbatim: a constraint produced the text, so markers count only before it: text that begins
    // neither reasoning nor a call is content to its end.
    explicit AnswerParser(ToolCallFormat family, bool begins_in_reasoning = false,
                          bool parts = false, std::shared_ptr<const ToolTypes> tools = nullptr,
                          bool verbatim = false, const TokenReading& tokens = {});
    ~AnswerParser();
    AnswerParser(AnswerParser&&) noexcept;
    AnswerParser& operator=(AnswerParser&&) noexcept;

    // Consumes `text` and returns the new delta. token: the last token of the text, if its other
    // tokens are ordinary ones; -1: text that the template wrote, whose markers all count.
    AnswerDelta Push(std::string_view text, int32_t token = -1);
    // Ends the answer and returns what was held back.
    // ended: the model has ended its turn, maybe with a token that was not pushed. False: a limit
    // may have cut the answer off.
    AnswerDelta Finish(bool ended = false);
    // Whether the text so far ends in reasoning.
    bool in_reasoning() const;

    class Grammar;  // parser of one format

  private:
    std::string Read(std::string_view text, int32_t token);
    void Unmark(AnswerDelta& delta) const;

    std::unique_ptr<Grammar> grammar_;
    TokenReading tokens_;
    std::string letters_;  // end of the text in ordinary tokens
    bool marked_ = false;  // the text has a kLetters
};

// The markers that begin and end the family's reasoning. ThinkBegin: empty if the family has none.
std::string_view ThinkBegin(ToolCallFormat family);
std::string_view ThinkEnd(ToolCallFormat family);

// Texts of a family whose turn is a list of messages with heads; empty for other families.
struct MessageHeads {
    std::string_view reasoning{};  // head and beginning of a reasoning message
    std::string_view final{};      // beginning of the final message's head
    std::string_view body{};       // end of that head; the text follows
    std::string_view end{};        // ends a message
    std::string_view start{};      // begins the next message
};
MessageHeads HeadsOf(ToolCallFormat family);

// Whether the prompt ends inside reasoning: with "<think>", "[THINK]" or Apriel's first words.
bool EndsInReasoning(std::string_view prompt);

}  // namespace weft::chat
