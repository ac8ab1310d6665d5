#include "chat/template/arithmetic.h"

#include <charconv>
#include <cmath>
#include <optional>

#include "chat/template/print.h"

namespace weft::chat::jinja {
namespace {

constexpr int kMostDigits = 100;  // decimals of a formatted float

std::string_view Symbol(BinaryOp op) {
    switch (op) {
        case BinaryOp::kAdd: return "+";
        case BinaryOp::kSubtract: return "-";
        case BinaryOp::kMultiply: return "*";
        case BinaryOp::kDivide: return "/";
        case BinaryOp::kFloorDivide: return "//";
        case BinaryOp::kModulo: return "%";
        case BinaryOp::kPower: return "**";
    }
    return "";
}

std::optional<int64_t> IntPower(int64_t base, int64_t exponent) {
    int64_t result = 1;
    for (; exponent > 0; exponent /= 2) {
        if (exponent % 2 == 1 && __builtin_mul_overflow(result, base, &result)) return {};
        if (exponent > 1 && __builtin_mul_overflow(base, base, &base)) return {};
    }
    return result;
}

// nullopt: overflow.
std::optional<int64_t> IntResult(BinaryOp op, int64_t a, int64_t b) {
    int64_t result = 0;
    switch (op) {
        case BinaryOp::kAdd:
            return __builtin_add_overflow(a, b, &result) ? std::nullopt : std::optional(result);
        case BinaryOp::kSubtract:
            return __builtin_sub_overflow(a, b, &result) ? std::nullopt : std::optional(result);
        case BinaryOp::kMultiply:
            return __builtin_mul_overflow(a, b, &result) ? std::nullopt : std::optional(result);
        case BinaryOp::kFloorDivide:
            if (b == -1) return IntResult(BinaryOp::kSubtract, 0, a);
            return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
        case BinaryOp::kModulo:
            if (b == -1) return 0;
            return a % b + (a % b != 0 && (a < 0) != (b < 0) ? b : 0);
        case BinaryOp::kPower: return IntPower(a, b);
        case BinaryOp::kDivide: break;  // gives a float; handled elsewhere
    }
    return {};
}

double FloatResult(BinaryOp op, double a, double b) {
    switch (op) {
        case BinaryOp::kAdd: return a + b;
        case BinaryOp::kSubtract: return a - b;
        case BinaryOp::kMultiply: return a * b;
        case BinaryOp::kDivide: return a / b;
        case BinaryOp::kFloorDivide:  // as Python, whose result is exact: 1.0 // 0.1 is 9.0
            return std::round((a - FloatResult(BinaryOp::kModulo, a, b)) / b);
        case BinaryOp::kModulo: {
            const double rest = std::fmod(a, b);
            return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
        }
        case BinaryOp::kPower: return std::pow(a, b);
    }
    return 0;
}

Value CalculateNumbers(Meter& meter, BinaryOp op, const Value& left, const Value& right) {
    const bool divides =
        op == BinaryOp::kDivide || op == BinaryOp::kFloorDivide || op == BinaryOp::kModulo;
    if (divides && right.number() == 0) meter.Fail(ErrorCode::kCorrupt, "division by zero");
    const bool floats = !left.IsInteger() || !right.IsInteger() || op == BinaryOp::kDivide ||
                        (op == BinaryOp::kPower && right.integer() < 0);
    if (floats) return Value(FloatResult(op, left.number(), right.number()));
    const auto result = IntResult(op, left.integer(), right.integer());
    if (!result) {
        meter.Fail(ErrorCode::kUnsupported,
                   "an integer result of more than 64 bits is not supported: {} {} {}",
                   left.integer(), Symbol(op), right.integer());
    }
    return Value(*result);
}

Value Repeat(Meter& meter, const Value& of, int64_t times) {
    if (of.Is(Kind::kText)) {
        TextBuilder text(meter);
        for (int64_t i = 0; i < times && !of.text().empty(); ++i) {
            meter.Step();
            text.Append(of.text());
        }
        return std::move(text).Finish();
    }
    ListBuilder list(meter);
    for (int64_t i = 0; i < times && !of.items().empty(); ++i) {
        meter.Step();
        for (const Value& item : of.items()) list.Add(item);
    }
    return std::move(list).Finish(of.list()->tuple);
}

Value Join(Meter& meter, const Value& left, const Value& right) {
    if (left.Is(Kind::kText)) {
        TextBuilder text(meter);
        text.Append(left.text());
        text.Append(right.text());
        return std::move(text).Finish();
    }
    ListBuilder list(meter);
    for (const Value* part : {&left, &right}) {
        meter.Step(part->items().size());
        for (const Value& item : part->items()) list.Add(item);
    }
    return std::move(list).Finish(left.list()->tuple);
}

// Iterates over the values that a format consumes.
class Taken {
  public:
    Taken(Meter& meter, const Value& values) : meter_(meter), values_(values) {}

    const Value& Next() {
        const bool tuple = values_.Is(Kind::kList) && values_.list()->tuple;
        const size_t size = tuple ? values_.items().size() : 1;
        if (at_ >= size) meter_.Fail(ErrorCode::kCorrupt, "a format has more fields than values");
        return tuple ? values_.items()[at_++] : (++at_, values_);
    }
    void End() const {
        const bool tuple = values_.Is(Kind::kList) && values_.list()->tuple;
        const bool rest =
            tuple ? at_ < values_.items().size() : at_ == 0 && !values_.Is(Kind::kDict);
        if (rest) meter_.Fail(ErrorCode::kCorrupt, "a format has fewer fields than values");
    }

  private:
    Meter& meter_;
    const Value& values_;
    size_t at_ = 0;
};

void AppendFormatted(TextBuilder& out, char type, int digits, const Value& value) {
    Meter& meter = out.meter();
    if (type == 's') return AppendStr(out, value);
    if (type == 'r') return AppendRepr(out, value);
    if (!value.IsNumber()) {
        meter.Fail(ErrorCode::kCorrupt, "'%{}' of {}", type, value.type_name());
    }
    if (type == 'f') return out.Append(fmt::format("{:.{}f}", value.number(), digits));
    if (value.IsInteger()) return out.Append(fmt::format("{}", value.integer()));
    if (!(std::abs(value.number()) < 9e18)) {
        meter.Fail(ErrorCode::kUnsupported, "an integer of more than 64 bits is not supported");
    }
    out.Append(fmt::format("{}", static_cast<int64_t>(value.number())));
}

}  // namespace

Value Negate(Meter& meter, const Value& of) {
    if (of.Is(Kind::kFloat)) return Value(-of.number());
    if (!of.IsInteger()) meter.Fail(ErrorCode::kCorrupt, "'-' before {}", of.type_name());
    return Calculate(meter, BinaryOp::kSubtract, Value(int64_t{0}), of);
}

Value Calculate(Meter& meter, BinaryOp op, const Value& left, const Value& right) {
    if (left.IsNumber() && right.IsNumber()) return CalculateNumbers(meter, op, left, right);
    const auto sequence = [](const Value& value) {
        return value.Is(Kind::kText) || value.Is(Kind::kList);
    };
    if (op == BinaryOp::kAdd && sequence(left) && left.kind() == right.kind() &&
        (left.Is(Kind::kText) || left.list()->tuple == right.list()->tuple)) {
        return Join(meter, left, right);
    }
    if (op == BinaryOp::kMultiply && sequence(left) && right.IsInteger()) {
        return Repeat(meter, left, right.integer());
    }
    if (op == BinaryOp::kMultiply && left.IsInteger() && sequence(right)) {
        return Repeat(meter, right, left.integer());
    }
    if (op == BinaryOp::kModulo && left.Is(Kind::kText)) {
        return FormatPercent(meter, left.text(), right);
    }
    meter.Fail(ErrorCode::kCorrupt, "'{}' of {} and {}", Symbol(op), left.type_name(),
               right.type_name());
}

Value FormatPercent(Meter& meter, const Text& format, const Value& values) {
    TextBuilder out(meter);
    Taken taken(meter, values);
    const std::string_view text = format.view();
    size_t plain = 0;
    for (size_t at = 0; (at = text.find('%', at)) != text.npos;) {
        meter.Step();
        out.AppendCut(format, plain, at);
        int digits = 6;
        const size_t percent = at++;
        if (at < text.size() && text[at] == '.') {
            const auto read =
                std::from_chars(text.data() + at + 1, text.data() + text.size(), digits);
            at = static_cast<size_t>(read.ptr - text.data());
        }
        const char type = at < text.size() ? text[at] : '\0';
        const bool known =
            type == '%' || type == 's' || type == 'r' || type == 'd' || type == 'i' || type == 'f';
        const bool plain_type = at == percent + 1 || type == 'f';
        if (!known || !plain_type || digits < 0 || digits > kMostDigits) {
            meter.Fail(ErrorCode::kUnsupported, "the format '{}'",
                       text.substr(percent, at + 1 - percent));
        }
        if (type == '%') {
            out.AppendCut(format, at, at + 1);
        } else {
            AppendFormatted(out, type, digits, taken.Next());
        }
        plain = ++at;
    }
    out.AppendCut(format, plain, text.size());
    taken.End();
    return std::move(out).Finish();
}

Value FormatBraces(Meter& meter, const Text& format, const CallValues& values) {
    TextBuilder out(meter);
    const std::string_view text = format.view();
    size_t plain = 0, next = 0;
    for (size_t at = 0; (at = text.find_first_of("{}", at)) != text.npos;) {
        meter.Step();
        out.AppendCut(format, plain, at);
        if (at + 1 < text.size() && text[at + 1] == text[at]) {  // {{ is a literal brace
            out.AppendCut(format, at, at + 1);
            plain = at += 2;
            continue;
        }
        const size_t end = text.find('}', at);
        if (text[at] == '}' || end == text.npos) {
            meter.Fail(ErrorCode::kCorrupt, "a format has a single '{}'", text[at]);
        }
        const std::string_view field = text.substr(at + 1, end - at - 1);
        const Value* value = nullptr;
        size_t index = next;
        const auto read = std::from_chars(field.data(), field.data() + field.size(), index);
        const bool number = read.ec == std::errc() && read.ptr == field.data() + field.size();
        if (field.empty()) ++next;
        if ((field.empty() || number) && index < values.positional.size()) {
            value = &values.positional[index];
        }
        for (const auto& [name, named] : values.named) {
            if (name == field) value = &named;
        }
        if (value == nullptr) {
            meter.Fail(ErrorCode::kUnsupported,
                       "the format field '{{{}}}' is not supported, or its value is missing",
                       field);
        }
        AppendStr(out, *value);
        plain = at = end + 1;
    }
    out.AppendCut(format, plain, text.size());
    return std::move(out).Finish();
}

}  // namespace weft::chat::jinja
