#include "grammar/schema_texts.h"

#include <algorithm>

#include "grammar/regex_grammar.h"
#include "grammar/schema_formats.h"

namespace weft::grammar {
Result<SchemaTexts> SchemaTexts::Read(const Schema& schema, const std::string& path,
                                      const Leniency& leniency, TextBudget& budget) {
    SchemaTexts out;
    WEFT_ASSIGN(out.least_, SchemaCount(schema, "minLength", 0, path));
    WEFT_ASSIGN(out.most_, SchemaCount(schema, "maxLength", kNoLimit, path));
    if (out.least_ > out.most_) return SchemaError(path, "'minLength' is above 'maxLength'");
    WEFT_TRY(out.ReadRules(schema, path, leniency, budget));
    const bool counted = out.least_ > 0 || out.most_ < kNoLimit;
    if (out.rules_.empty() || (out.rules_.size() == 1 && !counted)) return out;
    auto together = out.Together(budget);
    if (together.ok() && together->Empty() && out.rules_.size() > 1) {
        // zod's z.iso.time() combines the format of a time with zone and a pattern without one.
        const bool differs = schema.value("format", Schema()) == "time";
        WEFT_TRY((differs ? leniency.Lenient() : leniency)
                     .LeaveOut(path, "format",
                               SchemaError(path, "no text satisfies its 'pattern' and 'format'")));
        out.rules_.resize(1);
        if (!counted) return out;
        together = out.Together(budget);
    }
    if (together.ok() && together->Empty()) {
        return SchemaError(path, "no text satisfies its 'pattern', 'format' and lengths together");
    }
    if (together.ok()) {
        out.texts_ = std::move(*together);
        return out;
    }
    const char* const first = out.rules_[0].keyword;
    const auto leave = [&](const char* keyword) {
        return leniency.LeaveOut(
            path, keyword,
            SchemaError(path, "'{}' beside '{}': {}", first, keyword, together.error().message));
    };
    if (out.rules_.size() > 1) WEFT_TRY(leave(out.rules_[1].keyword));
    if (out.least_ > 0) WEFT_TRY(leave("minLength"));
    if (out.most_ < kNoLimit) WEFT_TRY(leave("maxLength"));
    out.rules_.resize(1);
    out.least_ = 0;
    out.most_ = kNoLimit;
    return out;
}

Status SchemaTexts::ReadRules(const Schema& schema, const std::string& path,
                              const Leniency& leniency, TextBudget& budget) {
    for (const char* const keyword : {"pattern", "format"}) {
        const Schema* const found = Find(schema, keyword);
        if (found == nullptr) continue;
        if (!found->is_string()) return SchemaError(path, "'{}' is not a string", keyword);
        const auto& text = found->get_ref<const std::string&>();
        const bool format = std::string_view(keyword) == "format";
        const std::string_view known = format ? PatternOfFormat(text, Counted()) : "";
        if (format && (IsHint(text) || (known.empty() && !rules_.empty()))) continue;
        const auto rule = ReadRule(keyword, format ? std::string(known) : text, budget);
        if (rule.ok() && !(format && rule->expression.empty())) {
            rules_.push_back(*rule);
            continue;
        }
        const Error refusal =
            rule.ok()
                ? SchemaError(path,
                              "the format '{}' is not supported; supported formats of strings: {}",
                              ShownPath(text), kKnownFormats)
                : SchemaError(path, "'{}': {}", keyword, rule.error().message);
        if (!rule.ok() && rule.error().code != ErrorCode::kUnsupported) return refusal;
        WEFT_TRY(leniency.LeaveOut(path, keyword, refusal));
    }
    return {};
}

// Compiles a supported expression. Look-ahead needs an automaton, which is kept.
Result<SchemaTexts::Rule> SchemaTexts::ReadRule(const char* keyword, std::string expression,
                                                TextBudget& budget) {
    Rule rule{keyword, std::move(expression)};
    if (HasLookAhead(rule.expression)) {
        WEFT_ASSIGN(rule.texts, TextsOfRegex(rule.expression, true, budget));
    } else {
        GrammarBuilder scratch;
        const RegexForm form{.search = true, .json_string = true};
        WEFT_ASSIGN(const auto expr, ExprFromRegex(rule.expression, form, scratch));
        const uint64_t states = scratch.StatesOf(expr);
        budget.most_states = std::max(budget.most_states, states);
        if (states > budget.limit_states) {
            return MakeError(ErrorCode::kUnsupported, "it makes the grammar too large");
        }
    }
    return rule;
}

Result<TextAutomaton> SchemaTexts::Together(TextBudget& budget) const {
    const auto texts_of = [&](const Rule& rule) -> Result<TextAutomaton> {
        if (rule.texts) return *rule.texts;
        return TextsOfRegex(rule.expression, true, budget);
    };
    WEFT_ASSIGN(TextAutomaton texts, texts_of(rules_[0]));
    for (size_t i = 1; i < rules_.size(); ++i) {
        WEFT_ASSIGN(const TextAutomaton more, texts_of(rules_[i]));
        WEFT_ASSIGN(texts, texts.And(more, budget));
    }
    if (least_ == 0 && most_ == kNoLimit) return texts;
    return texts.OfLengths(least_, most_, budget);
}

Result<GrammarBuilder::Expr> SchemaTexts::Inside(bool json_string, GrammarBuilder& builder) const {
    if (texts_) return texts_->Written(json_string, builder);
    if (rules_[0].texts) return rules_[0].texts->Written(json_string, builder);
    return ExprFromRegex(rules_[0].expression, {.search = true, .json_string = json_string},
                         builder);
}

}  // namespace weft::grammar
