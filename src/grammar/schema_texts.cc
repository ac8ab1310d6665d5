#include "grammar/schema_texts.h"

#include "grammar/regex_grammar.h"
#include "grammar/schema_formats.h"

namespace weft::grammar {
namespace {

// That it is an expression that grammars know.
Status CheckExpression(std::string_view expression) {
    GrammarBuilder builder;
    WEFT_TRY(ExprFromRegex(expression, {.search = true}, builder));
    return {};
}

}  // namespace

Result<SchemaTexts> SchemaTexts::Read(const Schema& schema, const std::string& path,
                                      const Leniency& leniency) {
    SchemaTexts out;
    WEFT_ASSIGN(out.least_, SchemaCount(schema, "minLength", 0, path));
    WEFT_ASSIGN(out.most_, SchemaCount(schema, "maxLength", kNoLimit, path));
    if (out.least_ > out.most_) return SchemaError(path, "'minLength' is above 'maxLength'");
    WEFT_TRY(out.ReadRules(schema, path, leniency));
    const bool counted = out.least_ > 0 || out.most_ < kNoLimit;
    if (out.rules_.empty() || (out.rules_.size() == 1 && !counted)) return out;
    auto together = out.Together();
    if (together.ok() && together->Empty()) {
        return SchemaError(path, "no text follows its 'pattern', 'format' and lengths together");
    }
    if (together.ok()) {
        out.texts_ = std::move(*together);
        return out;
    }
    const char* const first = out.rules_[0].keyword;
    const auto leave = [&](const char* keyword) {
        return leniency.LeaveOut(path, keyword,
                                 SchemaError(path, "'{}' beside '{}': {}", first, keyword,
                                             together.error().message));
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
                              const Leniency& leniency) {
    if (const Schema* const pattern = Find(schema, "pattern"); pattern != nullptr) {
        if (!pattern->is_string()) return SchemaError(path, "'pattern' is no text");
        const auto& text = pattern->get_ref<const std::string&>();
        const Status known = CheckExpression(text);
        if (known.ok()) {
            rules_.push_back({"pattern", text});
        } else {
            const Error refusal = SchemaError(path, "'pattern': {}", known.error().message);
            if (known.error().code != ErrorCode::kUnsupported) return refusal;
            WEFT_TRY(leniency.LeaveOut(path, "pattern", refusal));
        }
    }
    if (const Schema* const format = Find(schema, "format"); format != nullptr) {
        if (!format->is_string()) return SchemaError(path, "'format' is no text");
        const auto& name = format->get_ref<const std::string&>();
        const std::string_view expression = PatternOfFormat(name);
        if (!expression.empty()) {
            rules_.push_back({"format", std::string(expression)});
        } else {
            WEFT_TRY(leniency.LeaveOut(path, "format",
                                       SchemaError(path,
                                                   "the format '{}' is not supported; those of "
                                                   "strings that are: {}",
                                                   ShownPath(name), kKnownFormats)));
        }
    }
    return {};
}

Result<TextAutomaton> SchemaTexts::Together() const {
    WEFT_ASSIGN(TextAutomaton texts, TextsOfRegex(rules_[0].expression, true));
    for (size_t i = 1; i < rules_.size(); ++i) {
        WEFT_ASSIGN(const TextAutomaton more, TextsOfRegex(rules_[i].expression, true));
        WEFT_ASSIGN(texts, texts.And(more));
    }
    if (least_ == 0 && most_ == kNoLimit) return texts;
    WEFT_ASSIGN(const TextAutomaton lengths, TextAutomaton::OfLengths(least_, most_));
    return texts.And(lengths);
}

Result<GrammarBuilder::Expr> SchemaTexts::Inside(bool json_string, GrammarBuilder& builder) const {
    if (texts_) return texts_->Written(json_string, builder);
    return ExprFromRegex(rules_[0].expression, {.search = true, .json_string = json_string},
                         builder);
}

}  // namespace weft::grammar
