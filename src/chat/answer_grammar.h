// The machines behind AnswerParser: text in, deltas out; one a form that answers have.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"

namespace weft::chat {

class AnswerParser::Grammar {
  public:
    Grammar() = default;
    virtual ~Grammar() = default;
    Grammar(const Grammar&) = delete;
    Grammar& operator=(const Grammar&) = delete;

    virtual void Push(std::string_view text, AnswerDelta& delta) = 0;
    virtual void Finish(AnswerDelta& delta) = 0;
};

// What all of them are made with.
struct GrammarOptions {
    bool in_reasoning = false;
    bool parts = false;
    // Null: which functions there are is not known.
    std::shared_ptr<const ToolTypes> tools{};

    // False: no functions were offered, and so what looks like a call is text.
    bool wants_calls() const { return tools == nullptr || !tools->empty(); }
    const ToolTypes& types() const {
        static const ToolTypes none;
        return tools == nullptr ? none : *tools;
    }
};

// Families with markers around reasoning and calls.
std::unique_ptr<AnswerParser::Grammar> MakeTagGrammar(AnswerFamily family, GrammarOptions options);
// Llama 3: JSON without any markers.
std::unique_ptr<AnswerParser::Grammar> MakeLlamaGrammar(GrammarOptions options);
// gpt-oss: messages with a head that says what they are.
std::unique_ptr<AnswerParser::Grammar> MakeHarmonyGrammar(GrammarOptions options);
// Muse Glimmer: the same, with calls between tags.
std::unique_ptr<AnswerParser::Grammar> MakeAtemGrammar(GrammarOptions options);

struct FoundMarker {
    size_t at = std::string_view::npos;
    size_t marker = 0;  // which
};
// The first of some markers in a text at or behind `from`; of two at one place the longer.
FoundMarker FindMarker(std::string_view text, const std::vector<std::string_view>& markers,
                       size_t from = 0);
// Bytes at the end of `text` that begin one of the markers.
size_t BegunAtEnd(std::string_view text, const std::vector<std::string_view>& markers);

}  // namespace weft::chat
