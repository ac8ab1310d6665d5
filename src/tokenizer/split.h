// Pre-tokenizers: how text is cut into words before a model turns each word into tokens.
//
// A pre-tokenizer is a list of steps. A step cuts every word of the step before it, or rewrites the
// words (spaces as U+2581, bytes as code points). Steps see valid UTF-8 only: pipeline.h puts one
// U+FFFD for each byte that is none, and the bytes back afterwards.
//
// The steps are those of Hugging Face tokenizers, and mean the same; families.h has the lists that
// GGUF files know by name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/regex.h"

namespace weft::tokenizer {

// A text and the words it is cut into, ascending, none of them empty. Between words, text may be
// left out.
struct WordList {
    struct Word {
        size_t begin;
        size_t end;
    };
    explicit WordList(std::string_view given, bool is_first = true) : text(given), first(is_first) {
        if (!given.empty()) words.push_back({0, given.size()});
    }
    WordList(const WordList&) = delete;  // `text` may view `owned`
    WordList& operator=(const WordList&) = delete;

    std::string_view Text(Word word) const {
        return text.substr(word.begin, word.end - word.begin);
    }
    // Takes `rewritten` as the text from now on.
    void Rewrite(std::string rewritten, std::vector<Word> cut) {
        owned = std::move(rewritten);
        text = owned;
        words = std::move(cut);
    }

    std::string_view text;
    std::string owned;  // `text`, once a step has rewritten it
    std::vector<Word> words;
    bool first;            // the first word is where the whole text begins
    bool spelled = false;  // each byte is written as one code point (byte_spelling.h)
};

class SplitStep {
  public:
    virtual ~SplitStep() = default;
    virtual void Apply(WordList& list) const = 0;
};

using SplitSteps = std::vector<std::unique_ptr<const SplitStep>>;

// What becomes of the places where an expression matches.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Cuts at the matches of `regex`; `invert` takes what lies between them for the matches.
std::unique_ptr<const SplitStep> SplitByRegex(Regex regex, SplitBehavior behavior, bool invert);
// Runs of numbers (\p{N}) in groups of three from their right end: 12|345|678. With `whole_words`
// only runs of digits (\p{Nd}) that no letter or mark follows, as `\d{1,3}(?=(?:\d{3})*\b)` has it.
// With `seams` the digits stay with the text before their first group, as
// `(?=(\d{3})+(?!\d))` has it.
enum class DigitRule { kRuns, kWholeWords, kSeams };
std::unique_ptr<const SplitStep> SplitDigitsFromRight(DigitRule rule);
// White space at the very end of each word.
std::unique_ptr<const SplitStep> SplitSpacesAtEnd();
// A space in front of each word that does not begin with one.
std::unique_ptr<const SplitStep> PrependSpace();
// Bytes as code points (byte_spelling.h), for steps after this one that look at these.
std::unique_ptr<const SplitStep> SpellBytes();

// Spaces become `mark`; a mark is put in front; words begin at marks.
enum class PrependMark { kNever, kFirst, kAlways };
std::unique_ptr<const SplitStep> MarkSpaces(std::string mark, PrependMark prepend, bool split);

class PreTokenizer {
  public:
    PreTokenizer() = default;  // leaves a text whole
    explicit PreTokenizer(SplitSteps steps) : steps_(std::move(steps)) {}
    void Split(WordList& list) const;
    bool empty() const { return steps_.empty(); }

  private:
    SplitSteps steps_;
};

}  // namespace weft::tokenizer
