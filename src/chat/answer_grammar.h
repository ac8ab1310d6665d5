// Implementations of AnswerParser: one class per answer format.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "chat/answer.h"
#include "chat/tool_types.h"

namespace weft::chat {

// Marks characters that spell a token with a byte that is not valid UTF-8, before the last
// character. No marker is found in them, and the answer does not contain this byte.
inline constexpr char kLetters = '\xFF';

class AnswerParser::Grammar {
  public:
    Grammar() = default;
    virtual ~Grammar() = default;
    Grammar(const Grammar&) = delete;
    Grammar& operator=(const Grammar&) = delete;

    virtual void Push(std::string_view text, AnswerDelta& delta) = 0;
    // ended: see AnswerParser::Finish.
    virtual void Finish(bool ended, AnswerDelta& delta) = 0;
    // Whether a control token may be part of a marker or a call here.
    virtual bool Takes(std::string_view token) const = 0;
    virtual bool in_reasoning() const { return false; }
};

// Options common to all formats.
struct GrammarOptions {
    bool in_reasoning = false;
    bool parts = false;
    bool verbatim = false;  // see AnswerParser
    // Null if the functions are unknown.
    std::shared_ptr<const ToolTypes> tools{};
    TokenReading tokens{};

    // Whether the model writes the marker with a control token, so that no text can be meant.
    bool IsControl(std::string_view marker) const;
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

enum class Likely { kYes, kNo, kUnknown };

// Whether a function's name may begin with the character.
inline bool BeginsName(char letter) {
    const char lower = static_cast<char>(letter | 0x20);
    return letter == '_' || (lower >= 'a' && lower <= 'z') || (letter >= '0' && letter <= '9') ||
           (letter & 0x80) != 0;
}

struct FoundMarker {
    size_t at = std::string_view::npos;
    size_t marker = 0;  // index of the marker
};
// The first marker at or after `from`; the longer one if two begin at the same place.
FoundMarker FindMarker(std::string_view text, const std::vector<std::string_view>& markers,
                       size_t from = 0);
// Whether a marker is in the token, or the token in a marker.
bool Touches(std::string_view token, const std::vector<std::string_view>& markers);
// Length of the longest suffix of `text` that is a prefix of a marker.
size_t BegunAtEnd(std::string_view text, const std::vector<std::string_view>& markers);
// Whether only markers follow at `at`, up to the end of the answer (over) or to one of `calls`.
Likely OnlyMarkers(std::string_view text, size_t at, const std::vector<std::string_view>& markers,
                   const std::vector<std::string_view>& calls, bool over);

}  // namespace weft::chat
