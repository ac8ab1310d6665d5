#include "chat/template/arguments.h"

#include <algorithm>

#include "base/text.h"

namespace weft::chat::jinja {

Bound::Bound(Meter& meter, std::string_view what, const CallValues& values, std::string_view names)
    : meter_(meter), what_(what), given_(values), names_(Words(names)), values_(names_.size()) {
    if (names == "*") return;
    if (values.positional.size() > names_.size()) {
        meter.Fail(ErrorCode::kUnsupported, "{} got {} arguments; it takes at most {}", what,
                   values.positional.size(), names_.size());
    }
    for (size_t i = 0; i < values.positional.size(); ++i) values_[i] = &values.positional[i];
    for (const auto& [name, value] : values.named) {
        const auto found = std::find(names_.begin(), names_.end(), name);
        const auto at = static_cast<size_t>(found - names_.begin());
        if (found == names_.end()) {
            meter.Fail(ErrorCode::kUnsupported, "{} has no parameter '{}'", what, name);
        }
        if (values_[at] != nullptr) {
            meter.Fail(ErrorCode::kCorrupt, "{} gets '{}' twice", what, name);
        }
        values_[at] = &value;
    }
}

const Value& Bound::At(size_t at) const {
    return values_[at] == nullptr ? undefined_ : *values_[at];
}

const Value& Bound::Need(size_t at) const {
    if (!Has(at)) meter_.Fail(ErrorCode::kCorrupt, "{} needs '{}'", what_, names_[at]);
    return At(at);
}

const Text& Bound::NeedText(size_t at) const {
    const Value& value = Need(at);
    if (!value.Is(Kind::kText)) {
        meter_.Fail(ErrorCode::kCorrupt, "{}: '{}' is {}, expected a string", what_, names_[at],
                    value.type_name());
    }
    return value.text();
}

std::optional<std::string_view> Bound::OptionalText(size_t at) const {
    if (!Has(at) || At(at).Is(Kind::kNone)) return {};
    return NeedText(at).view();
}

int64_t Bound::Int(size_t at, int64_t fallback) const {
    if (!Has(at)) return fallback;
    if (!At(at).IsInteger()) {
        meter_.Fail(ErrorCode::kCorrupt, "{}: '{}' is {}, expected an int", what_, names_[at],
                    At(at).type_name());
    }
    return At(at).integer();
}

}  // namespace weft::chat::jinja
