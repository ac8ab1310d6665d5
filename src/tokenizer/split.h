// Pre-tokenizers: split text into words before a model turns each word into tokens.
//
// A pre-tokenizer is a list of steps. Each step splits the words of the previous one, or rewrites
// them (spaces as U+2581, bytes as code points). Steps get valid UTF-8 only: pipeline.h replaces
// each invalid byte by U+FFFD and restores the bytes afterwards.
//
// The steps have the semantics of Hugging Face tokenizers; families.h has the lists of steps that
// GGUF knows by name.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/regex.h"

namespace weft::tokenizer {

// A text and its words: ascending, non-empty. Text between words may be dropped.
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
    // Replaces the text and the words.
    void Rewrite(std::string rewritten, std::vector<Word> cut) {
        owned = std::move(rewritten);
        text = owned;
        words = std::move(cut);
    }

    std::string_view text;
    std::string owned;  // storage of `text` after a rewrite
    std::vector<Word> words;
    bool first;            // the first word is at the beginning of the whole text
    bool spelled = false;  // each byte is written as one code point (byte_spelling.h)
};

class SplitStep {
  public:
    virtual ~SplitStep() = default;
    virtual void Apply(WordList& list) const = 0;
};

using SplitSteps = std::vector<std::unique_ptr<const SplitStep>>;

// Treatment of an expression's matches; the names are those of Hugging Face tokenizers.
enum class SplitBehavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Splits at the matches of `regex`; `invert` splits at the text between matches instead.
std::unique_ptr<const SplitStep> SplitByRegex(Regex regex, SplitBehavior behavior, bool invert);
// Splits runs of digits into groups of three from the right: 12|345|678.
//   kRuns        runs of numbers (\p{N})
//   kWholeWords  only runs of digits (\p{Nd}) not followed by a letter or mark, as in
//                `\d{1,3}(?=(?:\d{3})*\b)`
//   kSeams       digits stay attached to the text before their first group, as in
//                `(?=(\d{3})+(?!\d))`
enum class DigitRule { kRuns, kWholeWords, kSeams };
std::unique_ptr<const SplitStep> SplitDigitsFromRight(DigitRule rule);
// Splits off white space at the very end of each word.
std::unique_ptr<const SplitStep> SplitSpacesAtEnd();
// Prepends a space to each word that does not begin with one.
std::unique_ptr<const SplitStep> PrependSpace();
// Rewrites bytes as code points (byte_spelling.h) for the following steps.
std::unique_ptr<const SplitStep> SpellBytes();

// Replaces spaces by `mark`. prepend: which words get a mark in front (kFirst: the first word of
// the whole text). split: a new word begins at each mark.
enum class PrependMark { kNever, kFirst, kAlways };
std::unique_ptr<const SplitStep> MarkSpaces(std::string mark, PrependMark prepend, bool split);

class PreTokenizer {
  public:
    PreTokenizer() = default;  // keeps a text whole
    explicit PreTokenizer(SplitSteps steps) : steps_(std::move(steps)) {}
    void Split(WordList& list) const;
    bool empty() const { return steps_.empty(); }

  private:
    SplitSteps steps_;
};

}  // namespace weft::tokenizer
