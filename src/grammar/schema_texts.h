// Restrictions on strings: pattern, format and lengths, which apply together.
#pragma once

#include <optional>
#include <string>

#include "grammar/builder.h"
#include "grammar/schema_keywords.h"
#include "grammar/text_automaton.h"

namespace weft::grammar {

class SchemaTexts {
  public:
    // If the restrictions cannot be combined, pattern takes precedence over format, and format over
    // lengths. Beside a pattern, an unknown format is ignored: format is only an annotation (draft
    // 2020-12, format-annotation). If no text matches both, `leniency` decides whether the format
    // is ignored. "time" is always ignored then, because clients combine it with such patterns.
    static Result<SchemaTexts> Read(const Schema& schema, const std::string& path,
                                    const Leniency& leniency, TextBudget& budget);

    // Whether there is no restriction.
    bool Free() const { return !Expressed() && !Counted(); }
    // Whether only lengths are restricted.
    bool Counted() const { return !Expressed() && (least_ > 0 || most_ < kNoLimit); }
    uint32_t least() const { return least_; }
    uint32_t most() const { return most_; }
    // If neither Free() nor Counted(): an expression for the texts, as plain text or as the
    // contents of a JSON string.
    Result<GrammarBuilder::Expr> Inside(bool json_string, GrammarBuilder& builder) const;

  private:
    static constexpr uint32_t kNoLimit = GrammarBuilder::kNoLimit;
    struct Rule {
        const char* keyword;
        std::string expression;
        std::optional<TextAutomaton> texts{};  // for expressions that need an automaton
    };
    bool Expressed() const { return texts_.has_value() || !rules_.empty(); }
    Status ReadRules(const Schema& schema, const std::string& path, const Leniency& leniency,
                     TextBudget& budget);
    static Result<Rule> ReadRule(const char* keyword, std::string expression, TextBudget& budget);
    Result<TextAutomaton> Together(TextBudget& budget) const;

    std::vector<Rule> rules_;  // all of them apply
    uint32_t least_ = 0, most_ = kNoLimit;
    // intersection of all expressions, if there are several
    std::optional<TextAutomaton> texts_;
};

}  // namespace weft::grammar
