// Built-in tests, for `is`.
#include <algorithm>

#include "chat/template/arguments.h"
#include "chat/template/arithmetic.h"
#include "chat/template/builtins.h"
#include "chat/template/strings.h"

namespace weft::chat::jinja {
namespace {

using Test = bool (*)(Interpreter&, const Value&, const CallValues&);

template <Kind kKind>
bool IsKind(Interpreter& in, const Value& of, const CallValues& values) {
    const Bound bound(in.meter(), "a type test", values, {});
    return of.Is(kKind);
}

bool IsDefined(Interpreter&, const Value& of, const CallValues&) {
    return !of.Is(Kind::kUndefined);
}

bool IsTrue(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kBool) && of.truth();
}

bool IsFalse(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kBool) && !of.truth();
}

bool IsNumber(Interpreter&, const Value& of, const CallValues&) {
    return of.IsNumber();
}

bool IsIterable(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kText) || of.Is(Kind::kList) || of.Is(Kind::kDict) ||
           of.Is(Kind::kUndefined) || of.Is(Kind::kLoop);
}

bool IsSequence(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kText) || of.Is(Kind::kList) || of.Is(Kind::kDict) ||
           of.Is(Kind::kUndefined);
}

bool IsCallable(Interpreter&, const Value& of, const CallValues&) {
    return of.Is(Kind::kMacro) || of.Is(Kind::kMethod);
}

int64_t Remainder(Interpreter& in, const Value& of, const Value& by) {
    const Value rest = Calculate(in.meter(), BinaryOp::kModulo, in.Defined(of), in.Defined(by));
    return rest.IsNumber() && rest.number() == 0 ? 0 : 1;
}

bool IsEven(Interpreter& in, const Value& of, const CallValues&) {
    return Remainder(in, of, Value(int64_t{2})) == 0;
}

bool IsOdd(Interpreter& in, const Value& of, const CallValues&) {
    return Remainder(in, of, Value(int64_t{2})) != 0;
}

bool IsDivisible(Interpreter& in, const Value& of, const CallValues& values) {
    const Bound bound(in.meter(), "divisibleby", values, {"num"});
    return Remainder(in, of, bound.Need(0)) == 0;
}

const Value& Other(Interpreter& in, const CallValues& values) {
    if (values.positional.size() != 1) {
        in.meter().Fail(ErrorCode::kCorrupt, "a comparison got {} values",
                        values.positional.size());
    }
    return values.positional[0];
}

bool IsEqual(Interpreter& in, const Value& of, const CallValues& values) {
    return Equal(in.meter(), of, Other(in, values));
}

bool IsUnequal(Interpreter& in, const Value& of, const CallValues& values) {
    return !Equal(in.meter(), of, Other(in, values));
}

bool IsSame(Interpreter& in, const Value& of, const CallValues& values) {
    const Value& other = Other(in, values);
    return of.kind() == other.kind() && Equal(in.meter(), of, other);
}

bool IsLess(Interpreter& in, const Value& of, const CallValues& values) {
    return Less(in.meter(), of, Other(in, values));
}

bool IsGreater(Interpreter& in, const Value& of, const CallValues& values) {
    return Less(in.meter(), Other(in, values), of);
}

bool IsAtMost(Interpreter& in, const Value& of, const CallValues& values) {
    return IsLess(in, of, values) || IsEqual(in, of, values);
}

bool IsAtLeast(Interpreter& in, const Value& of, const CallValues& values) {
    return IsGreater(in, of, values) || IsEqual(in, of, values);
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
    {"even", IsEven},
    {"false", IsFalse},
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
    {"odd", IsOdd},
    {"sameas", IsSame},
    {"sequence", IsSequence},
    {"string", IsKind<Kind::kText>},
    {"true", IsTrue},
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
