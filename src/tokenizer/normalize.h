// Normalizers: steps applied to text before it is split into words. The steps have the semantics of
// Hugging Face tokenizers and SentencePiece.
//
// Input is valid UTF-8. Time is linear, except for sorting combining marks (n log n). Insertions
// may grow a text to at most 32 times its size plus 64 KB: real vocabularies stay far below this,
// while a chain of steps could double the text each time.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/charsmap.h"
#include "tokenizer/regex.h"

namespace weft::tokenizer {

class NormalizeStep {
  public:
    virtual ~NormalizeStep() = default;
    // most: maximum bytes of the result. An insertion that would exceed it is skipped; case changes
    // are not limited.
    virtual std::string Apply(std::string_view text, size_t most) const = 0;
};

using NormalizeSteps = std::vector<std::unique_ptr<const NormalizeStep>>;

class Normalizer {
  public:
    Normalizer() = default;
    explicit Normalizer(NormalizeSteps steps) : steps_(std::move(steps)) {}
    bool empty() const { return steps_.empty(); }
    std::string Apply(std::string_view text) const;

  private:
    NormalizeSteps steps_;
};

// Unicode normalization forms: NFC (compose) or NFD; with `compatible`, NFKC or NFKD.
std::unique_ptr<const NormalizeStep> NormalForm(bool compose, bool compatible);
std::unique_ptr<const NormalizeStep> Lowercase();
// Removes all marks; with `only_nonspacing`, only marks of category Mn.
std::unique_ptr<const NormalizeStep> StripAccents(bool only_nonspacing = false);
// BERT: removes U+FFFD, control, format and private characters, and turns white space into spaces.
std::unique_ptr<const NormalizeStep> CleanText();
// BERT: puts spaces around each Chinese character.
std::unique_ptr<const NormalizeStep> SpaceChinese();
// Prepends `words` to non-empty text.
std::unique_ptr<const NormalizeStep> Prepend(std::string words);
std::unique_ptr<const NormalizeStep> Replace(Regex pattern, std::string words);
std::unique_ptr<const NormalizeStep> StripSpaces(bool left, bool right);

// SentencePiece's table as Hugging Face applies it: per grapheme, the shortest rule first.
std::unique_ptr<const NormalizeStep> Precompiled(Charsmap charsmap);

// SentencePiece's normalization: the table of rules, then white space. User-defined tokens stay
// unchanged; `kept` finds them (may be nullptr; must outlive the step).
class SpecialScanner;
struct SentencePieceRules {
    Charsmap charsmap;
    bool add_dummy_prefix = true;  // a space in front, or at the end with `suffix`
    bool remove_extra_spaces = true;
    bool escape_spaces = true;  // spaces become U+2581
    bool suffix = false;
    const SpecialScanner* kept = nullptr;
};
std::unique_ptr<const NormalizeStep> SentencePiece(SentencePieceRules rules);

}  // namespace weft::tokenizer
