// Normalizers: what happens to text before it is cut into words. The steps are those of Hugging
// Face tokenizers and of SentencePiece, and mean the same.
//
// Text is valid UTF-8. Time is linear in it, save for the sorting of marks (n log n). A text grows
// to 32 times its size and 64 KB at most by what steps put into it: no real vocabulary's do more,
// and steps behind one another could double it each.
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
    // most: what would make the whole longer stays as it is, save for a change of letters.
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

// Unicode's normal forms. `compatible`: the K ones.
std::unique_ptr<const NormalizeStep> NormalForm(bool compose, bool compatible);
std::unique_ptr<const NormalizeStep> Lowercase();
// Takes away all marks.
std::unique_ptr<const NormalizeStep> StripAccents();
// In front of a text that is not empty.
std::unique_ptr<const NormalizeStep> Prepend(std::string words);
std::unique_ptr<const NormalizeStep> Replace(Regex pattern, std::string words);
std::unique_ptr<const NormalizeStep> StripSpaces(bool left, bool right);

// Hugging Face's reading of SentencePiece's table: by grapheme, and the shortest rule decides.
std::unique_ptr<const NormalizeStep> Precompiled(Charsmap charsmap);

// SentencePiece's normalization: the table of rules, then white space. What is a user-defined token
// passes as it is (`kept` finds them; may be nullptr; must outlive the step).
class SpecialScanner;
struct SentencePieceRules {
    Charsmap charsmap;
    bool add_dummy_prefix = true;  // a space in front (or at the end, with `suffix`)
    bool remove_extra_spaces = true;
    bool escape_spaces = true;  // spaces become U+2581
    bool suffix = false;
    const SpecialScanner* kept = nullptr;
};
std::unique_ptr<const NormalizeStep> SentencePiece(SentencePieceRules rules);

}  // namespace weft::tokenizer
