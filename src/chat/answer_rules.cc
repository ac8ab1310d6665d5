#include "chat/answer_rules.h"

#include <utility>

#include "chat/literals.h"

namespace weft::chat {
namespace {

// DeepSeek's markers use the wide bar U+FF5C and SentencePiece's blank U+2581.
#define WEFT_BAR "\xEF\xBD\x9C"
#define WEFT_GAP "\xE2\x96\x81"

const CallForm kTagForm = {
    .begin = "<tool_call>", .end = "</tool_call>", .read = ReadTaggedCall, .streams = true};

AnswerRules QwenRules(bool coder) {
    AnswerRules rules{"<think>", "</think>", {kTagForm}, {"<|im_end|>", "<|endoftext|>"}};
    if (!coder) return rules;
    // Coder models sometimes omit the opening tag; then the closing tag stands alone.
    constexpr std::string_view kFunction = "<function=";
    rules.calls.push_back({.begin = kFunction,
                           .end = "</function>",
                           .read = ReadBareFunction,
                           .kept = kFunction.size()});
    for (const char* tag : {"</tool_call>", "<seed:tool_call>", "</seed:tool_call>"}) {
        rules.dropped.push_back(tag);
    }
    return rules;
}

AnswerRules SeedRules() {
    AnswerRules rules = QwenRules(true);
    rules.think_begin = "<seed:think>";
    rules.think_end = "</seed:think>";
    rules.dropped.push_back("<seed:eos>");
    return rules;
}

// In Hy3 every tag contains the checkpoint's name.
#define WEFT_HY(tag) "<" tag ":opensource>"
AnswerRules HunyuanRules() {
    const CallForm call = {
        .begin = WEFT_HY("tool_call"), .end = WEFT_HY("/tool_call"), .read = ReadHunyuanCall};
    return {WEFT_HY("think"),
            WEFT_HY("/think"),
            {call},
            {WEFT_HY("tool_calls"), WEFT_HY("/tool_calls")}};
}
#undef WEFT_HY

AnswerRules HunyuanPreviewRules() {
    return {"<think>", "</think>", {kTagForm}, {"<tool_calls>", "</tool_calls>"}};
}

AnswerRules DeepSeekRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<" WEFT_BAR "tool" WEFT_GAP "call" WEFT_GAP "begin" WEFT_BAR ">",
              .end = "<" WEFT_BAR "tool" WEFT_GAP "call" WEFT_GAP "end" WEFT_BAR ">",
              .read = ReadDeepSeekCall}},
            {"<" WEFT_BAR "tool" WEFT_GAP "calls" WEFT_GAP "begin" WEFT_BAR ">",
             "<" WEFT_BAR "tool" WEFT_GAP "calls" WEFT_GAP "end" WEFT_BAR ">",
             "<" WEFT_BAR "end" WEFT_GAP "of" WEFT_GAP "sentence" WEFT_BAR ">"}};
}

AnswerRules GlmRules() {
    return {"<think>",
            "</think>",
            {kTagForm},
            {"<|user|>", "<|observation|>", "<|assistant|>", "<|endoftext|>"}};
}

AnswerRules KimiRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<|tool_call_begin|>", .end = "<|tool_call_end|>", .read = ReadKimiCall}},
            {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|im_end|>"}};
}

AnswerRules MiniMaxRules() {
    return {
        "<think>",
        "</think>",
        {{.begin = "<minimax:tool_call>", .end = "</minimax:tool_call>", .read = ReadMiniMaxCalls}},
        {"[e~["}};
}

AnswerRules MiniMaxM3Rules() {
    return {"<mm:think>",
            "</mm:think>",
            {{.begin = "]<]minimax[>[<tool_call>",
              .end = "]<]minimax[>[</tool_call>",
              .read = ReadMiniMaxM3Calls}},
            {"[e~["}};
}

// Reasoning has its own channel; the first line is the channel's name.
AnswerRules GemmaRules() {
    return {"<|channel>thought",
            "<channel|>",
            {{.begin = "<|tool_call>",
              .end = "<tool_call|>",
              .read = [](std::string_view text, const ToolTypes&) { return ReadGemmaCall(text); },
              .style = ValueScan::Style::kGemma}},
            {"<turn|>", "<|tool_response>", "<eos>"}};
}

AnswerRules GraniteRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<|tool_call|>", .read = ReadCallList, .repeats = true},
             {.begin = "<tool_call>", .read = ReadCallList, .repeats = true}},
            {"</tool_call>", "<response>", "</response>", "<|end_of_text|>"}};
}

AnswerRules PhiRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<|tool_call|>", .read = ReadCallList, .repeats = true},
             {.begin = "functools[", .read = ReadCallList, .kept = 1}},
            {"<|/tool_call|>", "<|end|>", "<|endoftext|>"}};
}

// Python calls; some models write JSON instead.
Calls ReadPythonOrJson(std::string_view text, const ToolTypes& types) {
    const std::string_view calls = TrimBlanks(text);
    if (calls.starts_with('{') || calls.starts_with("[{")) return ReadCallList(calls, types);
    return ReadPythonCalls(calls);
}

AnswerRules PythonRules(std::string_view begin, std::string_view end) {
    const CallForm call = {.begin = begin,
                           .end = end,
                           .read = ReadPythonOrJson,
                           .style = ValueScan::Style::kPython};
    return {"<think>", "</think>", {call}, {"<|im_end|>", "<|endoftext|>"}};
}

// A list of calls between two markers.
AnswerRules ListRules(std::string_view begin, std::string_view end,
                      std::vector<std::string_view> dropped) {
    const CallForm call = {.begin = begin, .end = end, .read = ReadCallList};
    return {"<think>", "</think>", {call}, std::move(dropped)};
}

AnswerRules CohereRules() {
    AnswerRules rules =
        ListRules("<|START_ACTION|>", "<|END_ACTION|>",
                  {"<|START_RESPONSE|>", "<|END_RESPONSE|>", "<|START_TEXT|>", "<|END_TEXT|>",
                   "<|END_OF_TURN_TOKEN|>"});
    rules.think_begin = "<|START_THINKING|>";
    rules.think_end = "<|END_THINKING|>";
    return rules;
}

// Reasoning, text and calls are separate messages.
AnswerRules SolarRules() {
    return {"<|think|>",
            "<|end|>",
            {{.begin = "<|tool_call:begin|>", .end = "<|tool_call:end|>", .read = ReadSolarCall}},
            {"<|begin|>assistant", "<|content|>", "<|tool_calls|>", "<|calls|>", "<|flush|>"}};
}

// The names of V3.2, then of V4.
AnswerRules DsmlRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<" WEFT_BAR "DSML" WEFT_BAR "function_calls>",
              .end = "</" WEFT_BAR "DSML" WEFT_BAR "function_calls>",
              .read = ReadDsmlCalls},
             {.begin = "<" WEFT_BAR "DSML" WEFT_BAR "tool_calls>",
              .end = "</" WEFT_BAR "DSML" WEFT_BAR "tool_calls>",
              .read = ReadDsmlCalls}},
            {"<" WEFT_BAR "end" WEFT_GAP "of" WEFT_GAP "sentence" WEFT_BAR ">"}};
}

AnswerRules ErnieRules() {
    AnswerRules rules = QwenRules(false);
    rules.dropped = {"<response>", "</response>", "</s>"};
    return rules;
}

}  // namespace

AnswerRules RulesOf(ToolCallFormat family) {
    switch (family) {
        case ToolCallFormat::kQwen: return QwenRules(false);
        case ToolCallFormat::kQwenCoder: return QwenRules(true);
        case ToolCallFormat::kDeepSeek: return DeepSeekRules();
        case ToolCallFormat::kMistral:
            return {"[THINK]",
                    "[/THINK]",
                    {{.begin = "[TOOL_CALLS]", .read = ReadMistralCalls}},
                    {"</s>"}};
        case ToolCallFormat::kGlm: return GlmRules();
        case ToolCallFormat::kKimi: return KimiRules();
        case ToolCallFormat::kMiniMax: return MiniMaxRules();
        case ToolCallFormat::kGemma: return GemmaRules();
        case ToolCallFormat::kGranite: return GraniteRules();
        case ToolCallFormat::kPhi: return PhiRules();
        case ToolCallFormat::kOlmo: return PythonRules("<function_calls>", "</function_calls>");
        case ToolCallFormat::kHunyuan: return HunyuanRules();
        case ToolCallFormat::kHunyuanPreview: return HunyuanPreviewRules();
        case ToolCallFormat::kSeed: return SeedRules();
        case ToolCallFormat::kCohere: return CohereRules();
        case ToolCallFormat::kLfm2: return PythonRules("<|tool_call_start|>", "<|tool_call_end|>");
        case ToolCallFormat::kNemotron:
            return ListRules("<TOOLCALL>", "</TOOLCALL>", {"<SPECIAL_12>"});
        case ToolCallFormat::kSolar: return SolarRules();
        case ToolCallFormat::kDsml: return DsmlRules();
        case ToolCallFormat::kErnie: return ErnieRules();
        case ToolCallFormat::kMiniMaxM3: return MiniMaxM3Rules();
        case ToolCallFormat::kHunyuanA13b:
            return ListRules("<tool_calls>", "</tool_calls>", {"<answer>", "</answer>", "<|eos|>"});
        case ToolCallFormat::kPlain:
        case ToolCallFormat::kLlama3:
        case ToolCallFormat::kHarmony:
        case ToolCallFormat::kAtem: break;  // these have their own grammars
    }
    return {};
}

std::string_view ThinkEnd(ToolCallFormat family) {
    const std::string_view end = RulesOf(family).think_end;
    return end.empty() ? "</think>" : end;
}

}  // namespace weft::chat
