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
    void Finish(bool, AnswerDelta&) override {}
    bool Takes(std::string_view) const override { return true; }
};

std::unique_ptr<AnswerParser::Grammar> GrammarOf(ToolCallFormat family, GrammarOptions options) {
    switch (family) {
        case ToolCallFormat::kPlain: return std::make_unique<PlainGrammar>();
        case ToolCallFormat::kLlama3:
        case ToolCallFormat::kGlm4:
        case ToolCallFormat::kJsonList: return MakeLlamaGrammar(family, std::move(options));
        case ToolCallFormat::kHarmony: return MakeHarmonyGrammar(std::move(options));
        case ToolCallFormat::kAtem: return MakeAtemGrammar(std::move(options));
        case ToolCallFormat::kQwen:
        case ToolCallFormat::kQwenCoder:
        case ToolCallFormat::kDeepSeek:
        case ToolCallFormat::kMistral:
        case ToolCallFormat::kGlm:
        case ToolCallFormat::kKimi:
        case ToolCallFormat::kMiniMax:
        case ToolCallFormat::kGemma:
        case ToolCallFormat::kGranite:
        case ToolCallFormat::kPhi:
        case ToolCallFormat::kOlmo:
        case ToolCallFormat::kLfm2:
        case ToolCallFormat::kHunyuan:
        case ToolCallFormat::kHunyuanPreview:
        case ToolCallFormat::kSeed:
        case ToolCallFormat::kCohere:
        case ToolCallFormat::kNemotron:
        case ToolCallFormat::kSolar:
        case ToolCallFormat::kDsml:
        case ToolCallFormat::kErnie:
        case ToolCallFormat::kHunyuanA13b:
        case ToolCallFormat::kQwenCoderTight:
        case ToolCallFormat::kGigaChat:
        case ToolCallFormat::kApriel:
        case ToolCallFormat::kMiniCpm5:
        case ToolCallFormat::kFunctionGemma:
        case ToolCallFormat::kCommandR:
        case ToolCallFormat::kInternS1:
        case ToolCallFormat::kApertus:
        case ToolCallFormat::kLongcat:
        case ToolCallFormat::kJamba:
        case ToolCallFormat::kMiniMaxM3: break;
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

bool Touches(std::string_view token, const std::vector<std::string_view>& markers) {
    return std::ranges::any_of(markers, [&](std::string_view marker) {
        return marker.find(token) != marker.npos || token.find(marker) != token.npos;
    });
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

Likely OnlyMarkers(std::string_view text, size_t at, const std::vector<std::string_view>& markers,
                   const std::vector<std::string_view>& calls, bool over) {
    constexpr size_t kMostBytes = 4096;
    for (;;) {
        if (at > kMostBytes) return Likely::kNo;
        at = std::min(text.find_first_not_of(" \t\r\n", at), text.size());
        const std::string_view rest = text.substr(at);
        if (rest.empty()) return over ? Likely::kYes : Likely::kUnknown;
        const auto begins = [&](std::string_view marker) { return rest.starts_with(marker); };
        if (std::ranges::any_of(calls, begins)) return Likely::kYes;
        const auto begun_by = [&](std::string_view marker) { return marker.starts_with(rest); };
        bool begun = std::ranges::any_of(calls, begun_by);
        size_t size = 0;
        for (const std::string_view marker : markers) {
            if (begins(marker)) size = std::max(size, marker.size());
            begun = begun || begun_by(marker);
        }
        if (size == 0) return begun && !over ? Likely::kUnknown : Likely::kNo;
        at += size;
    }
}

bool GrammarOptions::IsControl(std::string_view marker) const {
    const bool letters = tokens.letters != TokenReading::Letters::kNowhere;
    if (tokens.tokenizer == nullptr || letters) return false;
    const std::vector<int32_t> ids =
        tokens.tokenizer->Encode(marker, {.add_special = false, .parse_special = true});
    return std::ranges::any_of(ids, [&](int32_t id) { return tokens.tokenizer->IsSpecial(id); });
}

ToolCallFormat FamilyOf(std::string_view text) {
    // Markers of a single family come first; several families use <tool_call> and <think>.
    static constexpr std::pair<std::string_view, ToolCallFormat> kMarkers[] = {
        {"<|channel|>", ToolCallFormat::kHarmony},
        {"<atem:function_calls>", ToolCallFormat::kAtem},
        {kDsmlTag, ToolCallFormat::kDsml},
        {kDeepSeekTurn, ToolCallFormat::kDeepSeek},
        {":opensource>", ToolCallFormat::kHunyuan},
        {"<tool_sep>", ToolCallFormat::kHunyuanPreview},
        {"<|role_sep|>", ToolCallFormat::kGigaChat},
        {"[BEGIN FINAL RESPONSE]", ToolCallFormat::kApriel},
        {"<TOOLCALL>", ToolCallFormat::kNemotron},
        {"<|tools_prefix|>", ToolCallFormat::kApertus},
        {"<seed:think>", ToolCallFormat::kSeed},
        {"<seed:tool_call>", ToolCallFormat::kSeed},
        {"<longcat_think>", ToolCallFormat::kLongcat},
        {"<longcat_tool_call>", ToolCallFormat::kLongcat},
        {"<arg_key>", ToolCallFormat::kGlm},
        {"<|tool_call_begin|>", ToolCallFormat::kKimi},
        {"<minimax:tool_call>", ToolCallFormat::kMiniMax},
        {"]<]minimax[>[", ToolCallFormat::kMiniMaxM3},
        {"<|tool_call>", ToolCallFormat::kGemma},
        {"<start_function_call>", ToolCallFormat::kFunctionGemma},
        {"<|action_start|>", ToolCallFormat::kInternS1},
        {"<function_calls>", ToolCallFormat::kOlmo},
        {"<|tool_list_start|>", ToolCallFormat::kLfm2},
        {"<|tool_call_start|>", ToolCallFormat::kLfm2},
        {"List of tools: [", ToolCallFormat::kLfm2},
        {"<|/tool|>", ToolCallFormat::kPhi},
        {"functools[", ToolCallFormat::kPhi},
        {"<|/tool_call|>", ToolCallFormat::kPhi},
        {"<|tool_call|>", ToolCallFormat::kGranite},
        {"<|tool_call:begin|>", ToolCallFormat::kSolar},
        {"<|START_ACTION|>", ToolCallFormat::kCohere},
        {"<|START_RESPONSE|>", ToolCallFormat::kCohere},
        {"Action:\n```json", ToolCallFormat::kCommandR},
        {"Action: ```json", ToolCallFormat::kCommandR},
        {"<response>", ToolCallFormat::kErnie},
        {"<answer>", ToolCallFormat::kHunyuanA13b},
        {"<function name=", ToolCallFormat::kMiniCpm5},
        {"<function=", ToolCallFormat::kQwenCoder},
        {"<tool_call>", ToolCallFormat::kQwen},
        {"<tool_calls>", ToolCallFormat::kJamba},
        {"[TOOL_CALLS]", ToolCallFormat::kMistral},
        {"[THINK]", ToolCallFormat::kMistral},
        {"<|python_tag|>", ToolCallFormat::kLlama3},
        {"<|start_header_id|>", ToolCallFormat::kLlama3},
        {"<|header_start|>", ToolCallFormat::kLlama3},
        {"<|start_of_role|>", ToolCallFormat::kGranite},
        {"<|observation|>", ToolCallFormat::kGlm4},
        {"<think>", ToolCallFormat::kQwen},
    };
    for (const auto& [marker, family] : kMarkers) {
        if (text.find(marker) != text.npos) return family;
    }
    return ToolCallFormat::kPlain;
}

std::string_view FamilyName(ToolCallFormat family) {
    switch (family) {
        case ToolCallFormat::kPlain: return "plain";
        case ToolCallFormat::kQwen: return "qwen";
        case ToolCallFormat::kQwenCoder: return "qwen-coder";
        case ToolCallFormat::kLlama3: return "llama3";
        case ToolCallFormat::kDeepSeek: return "deepseek";
        case ToolCallFormat::kMistral: return "mistral";
        case ToolCallFormat::kHarmony: return "harmony";
        case ToolCallFormat::kGlm: return "glm";
        case ToolCallFormat::kKimi: return "kimi";
        case ToolCallFormat::kMiniMax: return "minimax";
        case ToolCallFormat::kGemma: return "gemma";
        case ToolCallFormat::kGranite: return "granite";
        case ToolCallFormat::kPhi: return "phi";
        case ToolCallFormat::kOlmo: return "olmo";
        case ToolCallFormat::kLfm2: return "lfm2";
        case ToolCallFormat::kHunyuan: return "hunyuan";
        case ToolCallFormat::kHunyuanPreview: return "hunyuan-preview";
        case ToolCallFormat::kSeed: return "seed";
        case ToolCallFormat::kCohere: return "cohere";
        case ToolCallFormat::kNemotron: return "nemotron";
        case ToolCallFormat::kSolar: return "solar";
        case ToolCallFormat::kDsml: return "dsml";
        case ToolCallFormat::kErnie: return "ernie";
        case ToolCallFormat::kHunyuanA13b: return "hunyuan-a13b";
        case ToolCallFormat::kMiniMaxM3: return "minimax-m3";
        case ToolCallFormat::kAtem: return "atem";
        case ToolCallFormat::kQwenCoderTight: return "qwen-coder-tight";
        case ToolCallFormat::kGigaChat: return "gigachat";
        case ToolCallFormat::kApriel: return "apriel";
        case ToolCallFormat::kMiniCpm5: return "minicpm5";
        case ToolCallFormat::kFunctionGemma: return "functiongemma";
        case ToolCallFormat::kGlm4: return "glm4";
        case ToolCallFormat::kCommandR: return "command-r";
        case ToolCallFormat::kInternS1: return "intern-s1";
        case ToolCallFormat::kApertus: return "apertus";
        case ToolCallFormat::kJsonList: return "json-list";
        case ToolCallFormat::kLongcat: return "longcat";
        case ToolCallFormat::kJamba: return "jamba";
    }
    return "";
}

AnswerParser::AnswerParser(ToolCallFormat family, bool begins_in_reasoning, bool parts,
                           std::shared_ptr<const ToolTypes> tools, bool verbatim,
                           const TokenReading& tokens)
    : grammar_(GrammarOf(family, {begins_in_reasoning, parts, verbatim, std::move(tools), tokens})),
      tokens_(tokens) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

AnswerDelta AnswerParser::Push(std::string_view text, int32_t token) {
    AnswerDelta delta;
    if (token < 0 || tokens_.tokenizer == nullptr) {
        grammar_->Push(text, delta);
    } else {
        grammar_->Push(Read(text, token), delta);
    }
    Unmark(delta);
    return delta;
}

// The text for the grammar: with kLetters in text that spells a token, and without control tokens
// that are no markers.
std::string AnswerParser::Read(std::string_view text, int32_t token) {
    constexpr size_t kMostMarkerBytes = 64;
    const tokenizer::Tokenizer& tokenizer = *tokens_.tokenizer;
    const auto marks = [&](int32_t id) {
        return tokenizer.IsSpecial(id) || tokenizer.Type(id) == tokenizer::TokenType::kUserDefined;
    };
    const bool special = tokenizer.IsSpecial(token);
    std::string_view own = marks(token) ? tokenizer.Piece(token) : "";
    const bool begins = special || own.find_first_of("<[]") == 0;
    if (!begins || !text.ends_with(own)) own = "";
    const std::string_view marker = special ? own : "";
    text.remove_suffix(marker.size());
    using enum TokenReading::Letters;
    std::string read;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        // A user-defined token counts as text, but its characters may end another marker.
        const size_t least = i + 1 == text.size() ? own.size() - marker.size() : 0;
        letters_ += c;
        bool spells = false;
        const bool plain = tokens_.letters == kNowhere ||
                           (tokens_.letters == kBehindReasoning && grammar_->in_reasoning());
        if (plain && (c == '>' || c == ']' || c == '[')) {
            std::string_view end = letters_;
            end.remove_prefix(end.size() - std::min(end.size(), kMostMarkerBytes));
            for (size_t at = end.find_first_of("<[]");
                 !spells && at != end.npos && end.size() - at > std::max<size_t>(least, 1);
                 at = end.find_first_of("<[]", at + 1)) {
                spells = marks(tokenizer.Find(end.substr(at)));
            }
        }
        if (spells) read += kLetters;
        marked_ = marked_ || spells;
        read += c;
        if (letters_.size() > 2 * kMostMarkerBytes) letters_.erase(0, kMostMarkerBytes);
    }
    const bool drops = special && !tokens_.shows_special;
    if (marker.empty() || (drops && !grammar_->Takes(marker))) return read;
    letters_.clear();
    return read.append(marker);
}

namespace {

void UnmarkJson(OrderedJson& value) {
    if (value.is_string()) std::erase(value.get_ref<std::string&>(), kLetters);
    if (value.is_array()) {
        for (OrderedJson& each : value) UnmarkJson(each);
    }
    if (!value.is_object()) return;
    OrderedJson plain = OrderedJson::object();
    for (const auto& [key, each] : value.items()) {
        std::string name = key;
        std::erase(name, kLetters);
        UnmarkJson(each);
        plain[name] = std::move(each);
    }
    value = std::move(plain);
}

}  // namespace

// Removes each kLetters.
void AnswerParser::Unmark(AnswerDelta& delta) const {
    if (!marked_) return;
    std::erase(delta.content, kLetters);
    std::erase(delta.reasoning, kLetters);
    for (CallPart& part : delta.call_parts) {
        std::erase(part.name, kLetters);
        std::erase(part.arguments, kLetters);
    }
    for (ToolCall& call : delta.tool_calls) {
        std::erase(call.name, kLetters);
        UnmarkJson(call.arguments);
    }
}

bool AnswerParser::in_reasoning() const {
    return grammar_->in_reasoning();
}

AnswerDelta AnswerParser::Finish(bool ended) {
    AnswerDelta delta;
    grammar_->Finish(ended, delta);
    Unmark(delta);
    return delta;
}

bool EndsInReasoning(std::string_view prompt) {
    static constexpr std::string_view kBegins[] = {
        "<think>",          "<think:opensource>", "<seed:think>",
        "[THINK]",          "<mm:think>",         "<|START_THINKING|>",
        "<|think|>",        "<|channel>thought",  "Here are my reasoning steps:",
        "<|inner_prefix|>", "<longcat_think>"};
    prompt = TrimBlanks(prompt);
    return std::ranges::any_of(kBegins,
                               [&](std::string_view begin) { return prompt.ends_with(begin); });
}

}  // namespace weft::chat
