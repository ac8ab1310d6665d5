#include "tokenizer/split.h"

#include <algorithm>

#include "base/utf8.h"
#include "tokenizer/byte_spelling.h"

namespace weft::tokenizer {
namespace {

using Word = WordList::Word;

// Part of a word: a match of an expression, or the text between two matches.
struct Stretch {
    Word word;
    bool match;
};

size_t SplitPointLength(std::string_view text, size_t at) {
    return std::max<size_t>(CodePointLength(text, at), 1);
}

class RegexStep : public SplitStep {
  public:
    RegexStep(Regex regex, SplitBehavior behavior, bool invert)
        : regex_(std::move(regex)), behavior_(behavior), invert_(invert) {}

    void Apply(WordList& list) const override {
        RegexRun run(list.text.size());
        std::vector<Word> cut;
        cut.reserve(list.words.size() + list.text.size() / 8);
        std::vector<Stretch> stretches;
        for (const Word word : list.words) {
            stretches.clear();
            Find(run, list.Text(word), word.begin, stretches);
            Put(stretches, cut);
        }
        list.words = std::move(cut);
    }

  private:
    // Appends the matches and the text between them, which together cover the word.
    void Find(RegexRun& run, std::string_view word, size_t offset,
              std::vector<Stretch>& stretches) const {
        size_t done = 0;
        RegexRun::Range found{};
        for (size_t at = 0; at <= word.size();) {
            // No match, or a limit was hit: the rest stays one word.
            if (!run.Next(regex_, word, at, found)) break;
            Add(done, found.begin, false, offset, stretches);
            Add(found.begin, found.end, true, offset, stretches);
            done = at = found.end;
            if (found.begin < found.end) continue;
            at +=
                // an empty match splits here; continue after the next character
                at < word.size() ? SplitPointLength(word, at) : 1;
        }
        Add(done, word.size(), false, offset, stretches);
    }

    void Add(size_t begin, size_t end, bool match, size_t offset,
             std::vector<Stretch>& stretches) const {
        if (begin < end) stretches.push_back({{offset + begin, offset + end}, match != invert_});
    }

    void Put(std::vector<Stretch>& stretches, std::vector<Word>& cut) const {
        const auto before = static_cast<ptrdiff_t>(cut.size());
        bool previous = false;
        switch (behavior_) {
            case SplitBehavior::kIsolated:
                for (const Stretch& s : stretches) cut.push_back(s.word);
                return;
            case SplitBehavior::kRemoved:
                for (const Stretch& s : stretches) {
                    if (!s.match) cut.push_back(s.word);
                }
                return;
            case SplitBehavior::kContiguous:
                for (const Stretch& s : stretches) {
                    const bool joins = std::ssize(cut) > before && s.match == previous;
                    joins ? void(cut.back().end = s.word.end) : cut.push_back(s.word);
                    previous = s.match;
                }
                return;
            case SplitBehavior::kMergedWithPrevious:
                for (const Stretch& s : stretches) {
                    const bool joins = std::ssize(cut) > before && s.match && !previous;
                    joins ? void(cut.back().end = s.word.end) : cut.push_back(s.word);
                    previous = s.match;
                }
                return;
            case SplitBehavior::kMergedWithNext:
                for (size_t i = stretches.size(); i-- > 0;) {
                    const Stretch& s = stretches[i];
                    const bool joins = std::ssize(cut) > before && s.match && !previous;
                    joins ? void(cut.back().begin = s.word.begin) : cut.push_back(s.word);
                    previous = s.match;
                }
                std::reverse(cut.begin() + before, cut.end());
                return;
        }
    }

    Regex regex_;
    SplitBehavior behavior_;
    bool invert_;
};

// The original expressions take quadratic time in the length of a run. Here one expression finds
// the runs, and counting splits them.
class DigitStep : public SplitStep {
  public:
    explicit DigitStep(DigitRule rule) : rule_(rule), digits_(Regex::Make(Pattern(rule)).value()) {}

    void Apply(WordList& list) const override {
        RegexRun run(list.text.size());
        std::vector<Word> cut;
        for (const Word word : list.words) {
            const std::string_view text = list.Text(word);
            size_t done = 0;
            RegexRun::Range found{};
            for (size_t at = 0; at < text.size() && run.Next(digits_, text, at, found);) {
                at = found.end;
                if (rule_ != DigitRule::kSeams) Add(word, done, found.begin, cut);
                if (rule_ != DigitRule::kSeams) done = found.begin;
                Groups(text, word, found, done, cut);
                if (rule_ != DigitRule::kSeams) Add(word, done, found.end, cut);
                if (rule_ != DigitRule::kSeams) done = found.end;
            }
            Add(word, done, text.size(), cut);
        }
        list.words = std::move(cut);
    }

  private:
    static std::string_view Pattern(DigitRule rule) {
        switch (rule) {
            case DigitRule::kRuns: return R"(\p{N}++)";
            // Only a run that no letter, mark, number or connector follows.
            case DigitRule::kWholeWords:
                return R"((?<!\p{Nd})\p{Nd}++(?![\p{L}\p{M}\p{Nd}\p{Nl}\p{Pc})"
                       R"(\xB2\xB3\xB9\xBC-\xBE]))";
            case DigitRule::kSeams: return R"(\p{Nd}++)";
        }
        return {};
    }

    static void Add(Word word, size_t begin, size_t end, std::vector<Word>& cut) {
        if (begin < end) cut.push_back({word.begin + begin, word.begin + end});
    }

    // Appends the words that end before the run's last three digits, before its last six, and so
    // on.
    static void Groups(std::string_view text, Word word, RegexRun::Range run, size_t& done,
                       std::vector<Word>& cut) {
        size_t count = 0;
        for (size_t at = run.begin; at < run.end; at += SplitPointLength(text, at)) ++count;
        for (size_t at = run.begin; at < run.end; at += SplitPointLength(text, at), --count) {
            if (count % 3 != 0) continue;
            Add(word, done, at, cut);
            done = at;
        }
    }

    DigitRule rule_;
    Regex digits_;
};

// Scans from the end: a regular expression would start at each character of every run.
class SpacesAtEndStep : public SplitStep {
  public:
    SpacesAtEndStep()
        : spaces_(
              Regex::Make("(?<![" WEFT_REGEX_SPACES "])[" WEFT_REGEX_SPACES R"(]++\z)").value()) {}

    void Apply(WordList& list) const override {
        RegexRun run(list.text.size());
        std::vector<Word> cut;
        for (const Word word : list.words) {
            RegexRun::Range found{};
            const bool any = run.Next(spaces_, list.Text(word), 0, found) && found.begin > 0;
            if (any) cut.push_back({word.begin, word.begin + found.begin});
            cut.push_back({any ? word.begin + found.begin : word.begin, word.end});
        }
        list.words = std::move(cut);
    }

  private:
    Regex spaces_;
};

class PrependSpaceStep : public SplitStep {
  public:
    void Apply(WordList& list) const override {
        const bool needed = std::any_of(list.words.begin(), list.words.end(),
                                        [&](Word word) { return list.text[word.begin] != ' '; });
        if (!needed) return;
        std::string text;
        std::vector<Word> cut;
        for (const Word word : list.words) {
            const size_t begin = text.size();
            if (list.text[word.begin] != ' ') text += ' ';
            text += list.Text(word);
            cut.push_back({begin, text.size()});
        }
        list.Rewrite(std::move(text), std::move(cut));
    }
};

class SpellBytesStep : public SplitStep {
  public:
    void Apply(WordList& list) const override {
        if (list.spelled) return;
        std::string text;
        text.reserve(list.text.size() + list.text.size() / 4);
        std::vector<Word> cut;
        for (const Word word : list.words) {
            const size_t begin = text.size();
            AppendSpelled(list.Text(word), text);
            cut.push_back({begin, text.size()});
        }
        list.Rewrite(std::move(text), std::move(cut));
        list.spelled = true;
    }
};

class MarkSpacesStep : public SplitStep {
  public:
    MarkSpacesStep(std::string mark, PrependMark prepend, bool split)
        : mark_(std::move(mark)), prepend_(prepend), split_(split) {}

    void Apply(WordList& list) const override {
        std::string text;
        text.reserve(list.text.size() + list.text.size() / 4 + mark_.size());
        std::vector<Word> cut;
        for (size_t i = 0; i < list.words.size(); ++i) {
            const size_t begin = text.size();
            Rewrite(list.Text(list.words[i]), i == 0 && list.first, text);
            if (split_) Cut(text, begin, cut);
            if (!split_ && begin < text.size()) cut.push_back({begin, text.size()});
        }
        list.Rewrite(std::move(text), std::move(cut));
    }

  private:
    void Rewrite(std::string_view word, bool first, std::string& text) const {
        const bool has = word.starts_with(' ') || word.starts_with(mark_);
        const bool wanted =
            prepend_ == PrependMark::kAlways || (prepend_ == PrependMark::kFirst && first);
        if (wanted && !has) text += mark_;
        for (const char c : word) c == ' ' ? text += mark_ : text += c;
    }

    // Appends words that begin at each mark, and at `begin`.
    void Cut(std::string_view text, size_t begin, std::vector<Word>& cut) const {
        while (begin < text.size()) {
            const size_t end = std::min(text.find(mark_, begin + 1), text.size());
            cut.push_back({begin, end});
            begin = end;
        }
    }

    std::string mark_;
    PrependMark prepend_;
    bool split_;
};

}  // namespace

std::unique_ptr<const SplitStep> SplitByRegex(Regex regex, SplitBehavior behavior, bool invert) {
    return std::make_unique<RegexStep>(std::move(regex), behavior, invert);
}

std::unique_ptr<const SplitStep> SplitDigitsFromRight(DigitRule rule) {
    return std::make_unique<DigitStep>(rule);
}

std::unique_ptr<const SplitStep> SplitSpacesAtEnd() {
    return std::make_unique<SpacesAtEndStep>();
}

std::unique_ptr<const SplitStep> PrependSpace() {
    return std::make_unique<PrependSpaceStep>();
}

std::unique_ptr<const SplitStep> SpellBytes() {
    return std::make_unique<SpellBytesStep>();
}

std::unique_ptr<const SplitStep> MarkSpaces(std::string mark, PrependMark prepend, bool split) {
    return std::make_unique<MarkSpacesStep>(std::move(mark), prepend, split);
}

void PreTokenizer::Split(WordList& list) const {
    for (const auto& step : steps_) step->Apply(list);
}

}  // namespace weft::tokenizer
