// Implementations of AnswerParser: one class per answer format.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/tool_types.h"

namespace weft::chat {

class AnswerParser::Grammar {
  public:
    Grammar() = default;
    virtual ~Grammar() = default;
    Grammar(const Grammar&) = delete;
    Grammar& operator=(const Grammar&) = delete;

    virtual void Push(std::string_view text, AnswerDelta& delta) = 0;
    virtual void Finish(AnswerDelta& delta) = 0;
    virtual bool in_reasoning() const { return false; }
};

// Options common to all formats.
struct GrammarOptions {
    bool in_reasoning = false;
    bool parts = false;
    bool verbatim = false;  // see AnswerParser
    // Null if the functions are unknown.
    std::shared_ptr<const ToolTypes> tools{};

    // False if no functions were offered: text that looks like a call is then content.
    bool wants_calls() const { return tools == nullptr || !tools->empty(); }
    const ToolTypes& types() const {
        static const ToolTypes none;
        return tools == nullptr ? none : *tools;
    }
};

// Formats with markers around reasoning and calls.
std::unique_ptr<AnswerParser::Grammar> MakeTagGrammar(ToolCallFormat family,
                                                      GrammarOptions options);
// Calls without markers: kLlama3, kJsonList and kGlm4.
std::unique_ptr<AnswerParser::Grammar> MakeLlamaGrammar(ToolCallFormat family,
                                                        GrammarOptions options);
// gpt-oss: messages whose head names their channel.
std::unique_ptr<AnswerParser::Grammar> MakeHarmonyGrammar(GrammarOptions options);
// Muse Glimmer: like gpt-oss, with calls in tags.
std::unique_ptr<AnswerParser::Grammar> MakeAtemGrammar(GrammarOptions options);

struct FoundMarker {
    size_t at = std::string_view::npos;
    size_t marker = 0;  // index of the marker
};
// The first marker at or after `from`; the longer one if two begin at the same place.
FoundMarker FindMarker(std::string_view text, const std::vector<std::string_view>& markers,
                       size_t from = 0);
// Length of the longest suffix of `text` that is a prefix of a marker.
size_t BegunAtEnd(std::string_view text, const std::vector<std::string_view>& markers);

}  // namespace weft::chat
