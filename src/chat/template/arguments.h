// Binds the arguments of a built-in's call to its parameters, by position and by name.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "chat/template/interpreter.h"

namespace weft::chat::jinja {

class Bound {
  public:
    // `what`: the built-in's name, for errors. names: the parameters, as words; "*": any arguments,
    // which are not bound. Fails for too many arguments, an unknown name, and a parameter given
    // twice. All views must outlive the object.
    Bound(Meter& meter, std::string_view what, const CallValues& values, std::string_view names);

    const CallValues& values() const { return given_; }
    bool Has(size_t at) const { return values_[at] != nullptr; }
    // The argument of parameter `at`; undefined if not given.
    const Value& At(size_t at) const;
    // As At, but fails if the argument is not given.
    const Value& Need(size_t at) const;
    // The argument as text; fails for another type. OptionalText: nullopt if absent or none.
    const Text& NeedText(size_t at) const;
    std::optional<std::string_view> OptionalText(size_t at) const;
    int64_t Int(size_t at, int64_t fallback) const;
    bool Truth(size_t at, bool fallback) const { return Has(at) ? At(at).truth() : fallback; }

  private:
    Meter& meter_;
    std::string_view what_;
    const CallValues& given_;
    std::vector<std::string_view> names_;
    std::vector<const Value*> values_;
    Value undefined_;
};

}  // namespace weft::chat::jinja
