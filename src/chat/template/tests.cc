// Built-in tests, for `is`.

#include "chat/template/arguments.h"
#include "chat/template/arithmetic.h"
#include "chat/template/builtins.h"

namespace weft::chat::jinja {
namespace {

using Test = bool (*)(Interpreter&, const Value&, const CallValues&);

template <Kind kKind>
bool IsKind(Interpreter& in, const Value& of, const CallValues& values) {
    const Bound bound(in.meter(), "a type test", values, "");
    return of.Is(kKind);
}

bool IsDefined(Interpreter&, const Value& of, const CallValues&) {
    return !of.Is(Kind::kUndefined);
}

template <bool kTrue>
bool IsBool(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kBool) && of.truth() == kTrue;
}

bool IsNumber(Interpreter&, const Value& of, const CallValues&) {
    return of.IsNumber();
}

bool IsSequence(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kText) || of.Is(Kind::kList) || of.Is(Kind::kDict) ||
           of.Is(Kind::kUndefined);
}

bool IsIterable(Interpreter& in, const Value& of, const CallValues& values) {
    return IsSequence(in, of, values) || of.Is(Kind::kLoop);
}

bool IsCallable(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kMacro) || of.Is(Kind::kMethod);
}

bool Divides(Interpreter& in, const Value& by, const Value& of, double rest = 0) {
    const Value left = Calculate(in.meter(), BinaryOp::kModulo, in.Defined(of), in.Defined(by));
    return left.IsNumber() && left.number() == rest;
}

template <bool kEven>
bool IsEven(Interpreter& in, const Value& of, const CallValues&) {
    return Divides(in, Value(int64_t{2}), of, kEven ? 0 : 1);
}

bool IsDivisible(Interpreter& in, const Value& of, const CallValues& values) {
    return Divides(in, Bound(in.meter(), "divisibleby", values, "num").Need(0), of);
}

const Value& Other(Interpreter& in, const CallValues& values) {
    if (values.positional.size() != 1) {
        in.meter().Fail(ErrorCode::kCorrupt, "a comparison got {} values",
                        values.positional.size());
    }
    return values.positional[0];
}

template <bool kLess, bool kGreater, bool kEqual>
bool Compares(Interpreter& in, const Value& of, const CallValues& values) {
    const Value& other = Other(in, values);
    return (kLess && Less(in.meter(), of, other)) || (kGreater && Less(in.meter(), other, of)) ||
           (kEqual && Equal(in.meter(), of, other));
}

bool IsUnequal(Interpreter& in, const Value& of, const CallValues& values) {
    return !Equal(in.meter(), of, Other(in, values));
}

bool IsSame(Interpreter& in, const Value& of, const CallValues& values) {
    const Value& other = Other(in, values);
    return of.kind() == other.kind() && Equal(in.meter(), of, other);
}

bool IsIn(Interpreter& in, const Value& of, const CallValues& values) {
    return Contains(in.meter(), Other(in, values), of);
}

template <bool kUpper>
bool IsCase(Interpreter& in, const Value& of, const CallValues&) {
    if (!of.Is(Kind::kText)) return false;
    const std::string_view method = kUpper ? "isupper" : "islower";
    return CallMethod(in, of, method, {}).truth();
}

constexpr auto IsEqual = Compares<false, false, true>;
constexpr auto IsLess = Compares<true, false, false>, IsAtMost = Compares<true, false, true>;
constexpr auto IsGreater = Compares<false, true, false>, IsAtLeast = Compares<false, true, true>;

constexpr struct {
    std::string_view name;
    Test test;
} kTests[] = {
    {"!=", IsUnequal},
    {"<", IsLess},
    {"<=", IsAtMost},
    {"==", IsEqual},
    {">", IsGreater},
    {">=", IsAtLeast},
    {"boolean", IsKind<Kind::kBool>},
    {"callable", IsCallable},
    {"defined", IsDefined},
    {"divisibleby", IsDivisible},
    {"eq", IsEqual},
    {"equalto", IsEqual},
    {"even", IsEven<true>},
    {"false", IsBool<false>},
    {"float", IsKind<Kind::kFloat>},
    {"ge", IsAtLeast},
    {"greaterthan", IsGreater},
    {"gt", IsGreater},
    {"in", IsIn},
    {"integer", IsKind<Kind::kInt>},
    {"iterable", IsIterable},
    {"le", IsAtMost},
    {"lessthan", IsLess},
    {"lower", IsCase<false>},
    {"lt", IsLess},
    {"mapping", IsKind<Kind::kDict>},
    {"ne", IsUnequal},
    {"none", IsKind<Kind::kNone>},
    {"number", IsNumber},
    {"odd", IsEven<false>},
    {"sameas", IsSame},
    {"sequence", IsSequence},
    {"string", IsKind<Kind::kText>},
    {"true", IsBool<true>},
    {"undefined", IsKind<Kind::kUndefined>},
    {"upper", IsCase<true>},
};

}  // namespace

bool ApplyTest(Interpreter& in, std::string_view name, const Value& of, const CallValues& values) {
    in.meter().Step();
    for (const auto& [known, test] : kTests) {
        if (known == name) return test(in, of, values);
    }
    in.meter().Fail(ErrorCode::kUnsupported, "the test '{}' is not supported", name);
}

}  // namespace weft::chat::jinja
