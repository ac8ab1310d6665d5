#include "chat/answer.h"

#include <algorithm>
#include <utility>

#include "chat/answer_calls.h"
#include "chat/answer_grammar.h"

namespace weft::chat {

namespace {

// DeepSeek's markers use the wide bar U+FF5C.
constexpr std::string_view kDeepSeekTurn =
    "<\xEF\xBD\x9C"
    "Assistant\xEF\xBD\x9C>";
constexpr std::string_view kDsmlTag =
    "\xEF\xBD\x9C"
    "DSML\xEF\xBD\x9C";

class PlainGrammar : public AnswerParser::Grammar {
  public:
    void Push(std::string_view text, AnswerDelta& delta) override { delta.content += text; }
    void Finish(AnswerDelta&) override {}
};

std::unique_ptr<AnswerParser::Grammar> GrammarOf(AnswerFamily family, GrammarOptions options) {
    switch (family) {
        case AnswerFamily::kPlain: return std::make_unique<PlainGrammar>();
        case AnswerFamily::kLlama3: return MakeLlamaGrammar(std::move(options));
        case AnswerFamily::kHarmony: return MakeHarmonyGrammar(std::move(options));
        case AnswerFamily::kAtem: return MakeAtemGrammar(std::move(options));
        case AnswerFamily::kQwen:
        case AnswerFamily::kQwenCoder:
        case AnswerFamily::kDeepSeek:
        case AnswerFamily::kMistral:
        case AnswerFamily::kGlm:
        case AnswerFamily::kKimi:
        case AnswerFamily::kMiniMax:
        case AnswerFamily::kGemma:
        case AnswerFamily::kGranite:
        case AnswerFamily::kPhi:
        case AnswerFamily::kOlmo:
        case AnswerFamily::kLfm2:
        case AnswerFamily::kHunyuan:
        case AnswerFamily::kHunyuanPreview:
        case AnswerFamily::kSeed:
        case AnswerFamily::kCohere:
        case AnswerFamily::kNemotron:
        case AnswerFamily::kSolar:
        case AnswerFamily::kDsml:
        case AnswerFamily::kErnie:
        case AnswerFamily::kHunyuanA13b:
        case AnswerFamily::kMiniMaxM3: break;
    }
    return MakeTagGrammar(family, std::move(options));
}

}  // namespace

// Scans the text once for all markers. Searching each marker separately would scan a long text to
// its end for every marker that is absent.
FoundMarker FindMarker(std::string_view text, const std::vector<std::string_view>& markers,
                       size_t from) {
    std::string firsts;
    for (const std::string_view marker : markers) {
        if (firsts.find(marker[0]) == firsts.npos) firsts += marker[0];
    }
    FoundMarker found;
    for (size_t at = text.find_first_of(firsts, from); at != text.npos;
         at = text.find_first_of(firsts, at + 1)) {
        for (size_t i = 0; i < markers.size(); ++i) {
            if (!text.substr(at).starts_with(markers[i])) continue;
            const bool longer =
                found.at == text.npos || markers[i].size() > markers[found.marker].size();
            if (longer) found = {at, i};
        }
        if (found.at != text.npos) return found;
    }
    return found;
}

size_t BegunAtEnd(std::string_view text, const std::vector<std::string_view>& markers) {
    size_t most = 0;
    for (const std::string_view marker : markers) {
        for (size_t size = std::min(marker.size() - 1, text.size()); size > most; --size) {
            if (text.ends_with(marker.substr(0, size))) most = size;
        }
    }
    return most;
}

AnswerFamily FamilyOf(std::string_view chat_template) {
    // Markers of a single family come first; several families use <tool_call> and <think>.
    static constexpr std::pair<std::string_view, AnswerFamily> kMarkers[] = {
        {"<|channel|>", AnswerFamily::kHarmony},
        {"<atem:function_calls>", AnswerFamily::kAtem},
        {kDsmlTag, AnswerFamily::kDsml},
        {kDeepSeekTurn, AnswerFamily::kDeepSeek},
        {":opensource>", AnswerFamily::kHunyuan},
        {"<tool_sep>", AnswerFamily::kHunyuanPreview},
        {"<TOOLCALL>", AnswerFamily::kNemotron},
        {"<seed:think>", AnswerFamily::kSeed},
        {"<seed:tool_call>", AnswerFamily::kSeed},
        {"<arg_key>", AnswerFamily::kGlm},
        {"<|tool_call_begin|>", AnswerFamily::kKimi},
        {"<minimax:tool_call>", AnswerFamily::kMiniMax},
        {"]<]minimax[>[", AnswerFamily::kMiniMaxM3},
        {"<|tool_call>", AnswerFamily::kGemma},
        {"<function_calls>", AnswerFamily::kOlmo},
        {"<|tool_list_start|>", AnswerFamily::kLfm2},
        {"<|tool_call_start|>", AnswerFamily::kLfm2},
        {"List of tools: [", AnswerFamily::kLfm2},
        {"<|/tool|>", AnswerFamily::kPhi},
        {"functools[", AnswerFamily::kPhi},
        {"<|/tool_call|>", AnswerFamily::kPhi},
        {"<|tool_call|>", AnswerFamily::kGranite},
        {"<|tool_call:begin|>", AnswerFamily::kSolar},
        {"<|START_ACTION|>", AnswerFamily::kCohere},
        {"<|START_RESPONSE|>", AnswerFamily::kCohere},
        {"<response>", AnswerFamily::kErnie},
        {"<answer>", AnswerFamily::kHunyuanA13b},
        {"<function=", AnswerFamily::kQwenCoder},
        {"<tool_call>", AnswerFamily::kQwen},
        {"[TOOL_CALLS]", AnswerFamily::kMistral},
        {"[THINK]", AnswerFamily::kMistral},
        {"<|python_tag|>", AnswerFamily::kLlama3},
        {"<|start_header_id|>", AnswerFamily::kLlama3},
        {"<|header_start|>", AnswerFamily::kLlama3},
        {"<|start_of_role|>", AnswerFamily::kGranite},
        {"<think>", AnswerFamily::kQwen},
    };
    for (const auto& [marker, family] : kMarkers) {
        if (chat_template.find(marker) != chat_template.npos) return family;
    }
    return AnswerFamily::kPlain;
}

std::string_view FamilyName(AnswerFamily family) {
    switch (family) {
        case AnswerFamily::kPlain: return "plain";
        case AnswerFamily::kQwen: return "qwen";
        case AnswerFamily::kQwenCoder: return "qwen-coder";
        case AnswerFamily::kLlama3: return "llama3";
        case AnswerFamily::kDeepSeek: return "deepseek";
        case AnswerFamily::kMistral: return "mistral";
        case AnswerFamily::kHarmony: return "harmony";
        case AnswerFamily::kGlm: return "glm";
        case AnswerFamily::kKimi: return "kimi";
        case AnswerFamily::kMiniMax: return "minimax";
        case AnswerFamily::kGemma: return "gemma";
        case AnswerFamily::kGranite: return "granite";
        case AnswerFamily::kPhi: return "phi";
        case AnswerFamily::kOlmo: return "olmo";
        case AnswerFamily::kLfm2: return "lfm2";
        case AnswerFamily::kHunyuan: return "hunyuan";
        case AnswerFamily::kHunyuanPreview: return "hunyuan-preview";
        case AnswerFamily::kSeed: return "seed";
        case AnswerFamily::kCohere: return "cohere";
        case AnswerFamily::kNemotron: return "nemotron";
        case AnswerFamily::kSolar: return "solar";
        case AnswerFamily::kDsml: return "dsml";
        case AnswerFamily::kErnie: return "ernie";
        case AnswerFamily::kHunyuanA13b: return "hunyuan-a13b";
        case AnswerFamily::kMiniMaxM3: return "minimax-m3";
        case AnswerFamily::kAtem: return "atem";
    }
    return "";
}

AnswerParser::AnswerParser(AnswerFamily family, bool begins_in_reasoning, bool parts,
                           std::shared_ptr<const ToolTypes> tools)
    : grammar_(GrammarOf(family, {begins_in_reasoning, parts, std::move(tools)})) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

AnswerDelta AnswerParser::Push(std::string_view text) {
    AnswerDelta delta;
    grammar_->Push(text, delta);
    return delta;
}

AnswerDelta AnswerParser::Finish() {
    AnswerDelta delta;
    grammar_->Finish(delta);
    return delta;
}

bool EndsInReasoning(std::string_view prompt) {
    prompt = TrimBlanks(prompt);
    return prompt.ends_with("<think>") || prompt.ends_with("<think:opensource>") ||
           prompt.ends_with("<seed:think>") || prompt.ends_with("[THINK]") ||
           prompt.ends_with("<mm:think>") ||
           prompt.ends_with("<|START_THINKING|>") || prompt.ends_with("<|think|>") ||
           prompt.ends_with("<|channel>thought");
}

}  // namespace weft::chat
