#include "chat/answer_rules.h"

#include <utility>

#include "chat/template/literals.h"

namespace weft::chat {
namespace {

// DeepSeek's markers use the wide bar U+FF5C and SentencePiece's blank U+2581.
#define WEFT_BAR "\xEF\xBD\x9C"
#define WEFT_GAP "\xE2\x96\x81"

CallForm TagForm(CallReader read, const std::span<const TaggedCall>& tagged = kTaggedCalls) {
    return {.begin = "<tool_call>",
            .end = "</tool_call>",
            .read = read,
            .streams = true,
            .tags = true,
            .tagged = &tagged};
}

AnswerRules QwenRules() {
    return {"<think>", "</think>", {TagForm(ReadTaggedCall)}, {"<|im_end|>", "<|endoftext|>"}};
}

// tight: without line ends around values.
AnswerRules CoderRules(bool tight) {
    AnswerRules rules = QwenRules();
    const auto& tagged = tight ? kTightCalls : kTaggedCalls;
    rules.calls = {TagForm(tight ? ReadTightTaggedCall : ReadTaggedCall, tagged)};
    // Coder models sometimes omit the opening tag; then there is only the closing tag.
    constexpr std::string_view kFunction = "<function=";
    rules.calls.push_back({.begin = kFunction,
                           .end = "</function>",
                           .read = tight ? ReadTightFunction : ReadBareFunction,
                           .kept = kFunction.size(),
                           .tags = true,
                           .tagged = &tagged});
    for (const char* tag : {"</tool_call>", "<seed:tool_call>", "</seed:tool_call>"}) {
        rules.dropped.push_back(tag);
    }
    return rules;
}

AnswerRules SeedRules() {
    AnswerRules rules = CoderRules(true);
    rules.think_begin = "<seed:think>";
    rules.think_end = "</seed:think>";
    rules.dropped.push_back("<seed:eos>");
    return rules;
}

// In Hy3 every tag contains the checkpoint's name.
#define WEFT_HY(tag) "<" tag ":opensource>"
AnswerRules HunyuanRules() {
    const CallForm call = {.begin = WEFT_HY("tool_call"),
                           .end = WEFT_HY("/tool_call"),
                           .read = ReadHunyuanCall,
                           .tags = true};
    return {WEFT_HY("think"),
            WEFT_HY("/think"),
            {call},
            {WEFT_HY("tool_calls"), WEFT_HY("/tool_calls")}};
}
#undef WEFT_HY

AnswerRules HunyuanPreviewRules() {
    return {"<think>", "</think>", {TagForm(ReadTaggedCall)}, {"<tool_calls>", "</tool_calls>"}};
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
            {TagForm(ReadTaggedCall)},
            {"<|user|>", "<|observation|>", "<|assistant|>", "<|endoftext|>"}};
}

AnswerRules KimiRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<|tool_call_begin|>", .end = "<|tool_call_end|>", .read = ReadKimiCall}},
            {"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|im_end|>"}};
}

AnswerRules MiniMaxRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<minimax:tool_call>",
              .end = "</minimax:tool_call>",
              .read = ReadMiniMaxCalls,
              .tags = true,
              .tagged = &kMiniMaxCalls}},
            {"[e~["}};
}

AnswerRules MiniMaxM3Rules() {
    return {"<mm:think>",
            "</mm:think>",
            {{.begin = "]<]minimax[>[<tool_call>",
              .end = "]<]minimax[>[</tool_call>",
              .read = ReadMiniMaxM3Calls,
              .tags = true}},
            {"[e~["}};
}

// Reasoning has its own channel; the first line is the channel's name.
AnswerRules GemmaRules() {
    return {"<|channel>thought",
            "<channel|>",
            {{.begin = "<|tool_call>",
              .end = "<tool_call|>",
              .read = [](std::string_view text,
                         const ToolTypes&) { return ReadGemmaCall(text, kGemmaQuote); },
              .style = ValueScan::Style::kGemma}},
            {"<turn|>", "<|tool_response>", "<eos>"}};
}

AnswerRules GraniteRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<|tool_call|>", .read = ReadCallList, .repeats = true},
             {.begin = "<tool_call>", .read = ReadCallList, .repeats = true}},
            {"</tool_call>", "<|end_of_text|>"},
            {},
            "<response>",
            "</response>",
            true};
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
    const CallForm call = {
        .begin = begin, .end = end, .read = ReadPythonOrJson, .style = ValueScan::Style::kPython};
    return {"<think>", "</think>", {call}, {"<|im_end|>", "<|endoftext|>"}};
}

// A list of calls between two markers.
AnswerRules ListRules(std::string_view begin, std::string_view end,
                      std::vector<std::string_view> dropped) {
    const CallForm call = {.begin = begin, .end = end, .read = ReadCallList};
    return {"<think>", "</think>", {call}, std::move(dropped)};
}

AnswerRules CohereRules() {
    AnswerRules rules = ListRules("<|START_ACTION|>", "<|END_ACTION|>",
                                  {"<|END_RESPONSE|>", "<|END_TEXT|>", "<|END_OF_TURN_TOKEN|>"});
    rules.begins = {"<|START_RESPONSE|>", "<|START_TEXT|>"};
    rules.think_begin = "<|START_THINKING|>";
    rules.think_end = "<|END_THINKING|>";
    return rules;
}

// Reasoning, text and calls are separate messages.
AnswerRules SolarRules() {
    return {"<|think|>",
            "<|end|>",
            {{.begin = "<|tool_call:begin|>", .end = "<|tool_call:end|>", .read = ReadSolarCall}},
            {"<|tool_calls|>", "<|calls|>", "<|flush|>", "<|end|>"},
            {"<|begin|>assistant", "<|content|>"}};
}

// The names of V3.2, then of V4.
AnswerRules DsmlRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<" WEFT_BAR "DSML" WEFT_BAR "function_calls>",
              .end = "</" WEFT_BAR "DSML" WEFT_BAR "function_calls>",
              .read = ReadDsmlCalls,
              .tags = true,
              .tagged = &kDsmlCalls},
             {.begin = "<" WEFT_BAR "DSML" WEFT_BAR "tool_calls>",
              .end = "</" WEFT_BAR "DSML" WEFT_BAR "tool_calls>",
              .read = ReadDsmlCalls,
              .tags = true,
              .tagged = &kDsmlCalls}},
            {"<" WEFT_BAR "end" WEFT_GAP "of" WEFT_GAP "sentence" WEFT_BAR ">"}};
}

// LFM 2.5 does not escape quotes in strings, so only the brackets show where a call ends.
AnswerRules Lfm2Rules() {
    AnswerRules rules = PythonRules("<|tool_call_start|>", "<|tool_call_end|>");
    rules.calls[0].read = [](std::string_view text, const ToolTypes& types) {
        const std::string_view calls = TrimBlanks(text);
        const bool json = calls.starts_with('{') || calls.starts_with("[{");
        return json ? ReadCallList(calls, types) : ReadPythonCalls(calls, true);
    };
    rules.calls[0].last = "])}";
    return rules;
}

AnswerRules HunyuanA13bRules() {
    AnswerRules rules = ListRules("<tool_calls>", "</tool_calls>", {"<|eos|>"});
    rules.frame_begin = "<answer>";
    rules.frame_end = "</answer>";
    rules.calls[0].read = ReadHunyuanList;
    rules.calls.push_back(TagForm(ReadTaggedCall));
    rules.calls[1].streams = false;
    rules.calls[1].tagged = nullptr;
    return rules;
}

// GigaChat 3, 3.1 and 3.5. The tags of 3.5 are DeepSeek's with another name.
AnswerRules GigaChatRules() {
    return {"<think>",
            "</think>",
            {{.begin = "function call<|role_sep|>", .read = ReadCallList},
             {.begin = "<|function_call|>", .read = ReadCallList},
             {.begin = "<" WEFT_BAR "GCML" WEFT_BAR "tool_calls>",
              .end = "</" WEFT_BAR "GCML" WEFT_BAR "tool_calls>",
              .read = ReadGcmlCalls,
              .tags = true,
              .tagged = &kGcmlCalls}},
            {"<|message_sep|>", "<|role_sep|>", "</s>"}};
}

AnswerRules AprielRules() {
    AnswerRules rules =
        ListRules("<tool_calls>", "</tool_calls>", {"[END FINAL RESPONSE]", "<|end|>"});
    rules.think_begin = "Here are my reasoning steps:";
    rules.think_end = "[BEGIN FINAL RESPONSE]";
    return rules;
}

AnswerRules MiniCpm5Rules() {
    constexpr std::string_view kFunction = "<function name=";
    return {"<think>",
            "</think>",
            {{.begin = kFunction,
              .end = "</function>",
              .read = ReadMiniCpmCalls,
              .kept = kFunction.size(),
              .tags = true}},
            {"<|im_end|>", "<|tool_call_start|>", "<|tool_call_end|>"}};
}

AnswerRules FunctionGemmaRules() {
    return {"<think>",
            "</think>",
            {{.begin = "<start_function_call>",
              .end = "<end_function_call>",
              .read = [](std::string_view text,
                         const ToolTypes&) { return ReadGemmaCall(text, kEscapeQuote); },
              .style = ValueScan::Style::kEscape}},
            {"<end_of_turn>", "<start_function_response>", "<eos>"}};
}

AnswerRules CommandRRules() {
    AnswerRules rules = ListRules("Action:\n```json", "```", {"<|END_OF_TURN_TOKEN|>"});
    rules.calls[0].read = ReadActions;
    rules.calls.push_back(rules.calls[0]);
    rules.calls[1].begin = "Action: ```json";
    return rules;
}

AnswerRules InternS1Rules() {
    AnswerRules rules = QwenRules();
    rules.calls.clear();
    for (const char* begin : {"<|action_start|><|plugin|>", "<|action_start|> <|plugin|>",
                              "<|action_start|>\n<|plugin|>"}) {
        rules.calls.push_back({.begin = begin, .end = "<|action_end|>", .read = ReadCallList});
    }
    return rules;
}

AnswerRules ApertusRules() {
    AnswerRules rules = ListRules("<|tools_prefix|>", "<|tools_suffix|>", {"<|assistant_end|>"});
    rules.calls[0].read = ReadNamedCalls;
    rules.think_begin = "<|inner_prefix|>";
    rules.think_end = "<|inner_suffix|>";
    return rules;
}

AnswerRules LongcatRules() {
    CallForm call = TagForm(ReadLongcatCall);
    call.begin = "<longcat_tool_call>";
    call.end = "</longcat_tool_call>";
    return {"<longcat_think>", "</longcat_think>", {call}, {"</longcat_s>"}};
}

AnswerRules ErnieRules() {
    AnswerRules rules = QwenRules();
    rules.dropped = {"</s>"};
    rules.frame_begin = "<response>";
    rules.frame_end = "</response>";
    rules.frame_behind_thought = true;
    return rules;
}

}  // namespace

AnswerRules RulesOf(ToolCallFormat family) {
    switch (family) {
        case ToolCallFormat::kQwen: return QwenRules();
        case ToolCallFormat::kQwenCoder: return CoderRules(false);
        case ToolCallFormat::kQwenCoderTight: return CoderRules(true);
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
        case ToolCallFormat::kLfm2: return Lfm2Rules();
        case ToolCallFormat::kNemotron:
            return ListRules("<TOOLCALL>", "</TOOLCALL>", {"<SPECIAL_12>"});
        case ToolCallFormat::kSolar: return SolarRules();
        case ToolCallFormat::kDsml: return DsmlRules();
        case ToolCallFormat::kErnie: return ErnieRules();
        case ToolCallFormat::kMiniMaxM3: return MiniMaxM3Rules();
        case ToolCallFormat::kHunyuanA13b: return HunyuanA13bRules();
        case ToolCallFormat::kGigaChat: return GigaChatRules();
        case ToolCallFormat::kApriel: return AprielRules();
        case ToolCallFormat::kMiniCpm5: return MiniCpm5Rules();
        case ToolCallFormat::kFunctionGemma: return FunctionGemmaRules();
        case ToolCallFormat::kCommandR: return CommandRRules();
        case ToolCallFormat::kInternS1: return InternS1Rules();
        case ToolCallFormat::kApertus: return ApertusRules();
        case ToolCallFormat::kLongcat: return LongcatRules();
        case ToolCallFormat::kJamba: return ListRules("<tool_calls>", "</tool_calls>", {"<|eom|>"});
        case ToolCallFormat::kPlain:
        case ToolCallFormat::kLlama3:
        case ToolCallFormat::kGlm4:
        case ToolCallFormat::kJsonList:
        case ToolCallFormat::kHarmony:
        case ToolCallFormat::kAtem: break;  // these have their own grammars
    }
    return {};
}

std::string_view ThinkBegin(ToolCallFormat family) {
    return RulesOf(family).think_begin;
}

std::string_view ThinkEnd(ToolCallFormat family) {
    const std::string_view end = RulesOf(family).think_end;
    return end.empty() ? "</think>" : end;
}

}  // namespace weft::chat
