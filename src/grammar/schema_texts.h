// What a schema says about strings: pattern, format and lengths, which hold together.
#pragma once

#include <optional>
#include <string>

#include "grammar/builder.h"
#include "grammar/schema_keywords.h"
#include "grammar/text_automaton.h"

namespace weft::grammar {

class SchemaTexts {
  public:
    // Where they can't be kept together, a pattern goes before a format, and that before lengths.
    // A format says nothing beside a pattern if it isn't known, or if no text follows both: by
    // itself it is a remark (draft 2020-12, format-annotation), and clients send such.
    static Result<SchemaTexts> Read(const Schema& schema, const std::string& path,
                                    const Leniency& leniency, TextBudget& budget);

    // Any text.
    bool Free() const { return !Expressed() && !Counted(); }
    // Lengths alone.
    bool Counted() const { return !Expressed() && (least_ > 0 || most_ < kNoLimit); }
    uint32_t least() const { return least_; }
    uint32_t most() const { return most_; }
    // Of others: the text itself, or as it stands between the quotes of JSON.
    Result<GrammarBuilder::Expr> Inside(bool json_string, GrammarBuilder& builder) const;

  private:
    static constexpr uint32_t kNoLimit = GrammarBuilder::kNoLimit;
    struct Rule {
        const char* keyword;
        std::string expression;
        std::optional<TextAutomaton> texts{};  // of an expression that takes one
    };
    bool Expressed() const { return texts_.has_value() || !rules_.empty(); }
    Status ReadRules(const Schema& schema, const std::string& path, const Leniency& leniency,
                     TextBudget& budget);
    static Result<Rule> ReadRule(const char* keyword, std::string expression, TextBudget& budget);
    Result<TextAutomaton> Together(TextBudget& budget) const;

    std::vector<Rule> rules_;  // texts follow all of them
    uint32_t least_ = 0, most_ = kNoLimit;
    std::optional<TextAutomaton> texts_;  // all together, where it takes more than one expression
};

}  // namespace weft::grammar
