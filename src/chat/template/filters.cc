// Built-in filters.
#include <algorithm>
#include <cctype>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <optional>

#include "chat/template/arguments.h"
#include "chat/template/arithmetic.h"
#include "chat/template/builtins.h"
#include "chat/template/letters.h"
#include "chat/template/print.h"
#include "chat/template/strings.h"

namespace weft::chat::jinja {
namespace {

using Filter = Value (*)(Interpreter&, const Value&, const Bound&);

constexpr int64_t kMostIndent = 1000;
constexpr int64_t kMostPrecision = 100;

// ---- texts

Value Center(Interpreter& in, const Value& of, const Bound& bound) {
    return Pad(in.meter(), Str(in.meter(), of).text(), bound.Int(0, 80), Ends::kBoth);
}

template <Case kCase>
Value CaseFilter(Interpreter& in, const Value& of, const Bound&) {
    return ChangeCase(in.meter(), Str(in.meter(), of).text(), kCase);
}

Value Trim(Interpreter& in, const Value& of, const Bound& bound) {
    const Value text = Str(in.meter(), of);
    const TextRange left =
        Strip(in.meter(), text.text().view(), Ends::kBoth, bound.OptionalText(0));
    return MakeText(in.meter(), text.text().Cut(left.begin, left.end));
}

Value ReplaceFilter(Interpreter& in, const Value& of, const Bound& bound) {
    const Value text = Str(in.meter(), of);
    const Value from = Str(in.meter(), bound.Need(0)), to = Str(in.meter(), bound.Need(1));
    const bool counted = bound.Has(2) && !bound.At(2).Is(Kind::kNone);
    return Replace(in.meter(), text.text(), from.text().view(), to.text(),
                   counted ? bound.Int(2, -1) : -1);
}

Value StringFilter(Interpreter& in, const Value& of, const Bound&) {
    return Str(in.meter(), of);
}

Value FormatFilter(Interpreter& in, const Value& of, const Bound& bound) {
    const CallValues& values = bound.values();
    ListBuilder list(in.meter());
    for (const Value& value : values.positional) list.Add(value);
    if (!values.named.empty()) {
        in.meter().Fail(ErrorCode::kUnsupported, "format with named arguments is not supported");
    }
    const Value text = Str(in.meter(), of);
    return FormatPercent(in.meter(), text.text(), std::move(list).Finish(true));
}

// A temporary copy of a text; charged as work, not as a value.
std::string Copied(Meter& meter, const Value& text) {
    meter.Read(text.text().size());
    return text.text().bytes();
}

std::string IndentOf(Meter& meter, const Value& width) {
    if (width.Is(Kind::kText)) return Copied(meter, width);
    if (!width.IsInteger() || width.integer() > kMostIndent) {
        meter.Fail(ErrorCode::kCorrupt,
                   "indent: the width is neither a string nor an int from 0 to {}", kMostIndent);
    }
    return std::string(static_cast<size_t>(std::max<int64_t>(width.integer(), 0)), ' ');
}

Value Indent(Interpreter& in, const Value& of, const Bound& bound) {
    Meter& meter = in.meter();
    const std::string indent = bound.Has(0) ? IndentOf(meter, bound.At(0)) : "    ";
    const bool blank = bound.Truth(2, false);
    TextBuilder whole(meter);
    AppendStr(whole, of);
    whole.Append("\n");
    const Value lines = SplitLines(meter, whole.text(), false);
    TextBuilder out(meter);
    if (bound.Truth(1, false)) out.Append(indent);
    bool first = true;
    for (const Value& line : lines.items()) {
        if (!first) out.Append("\n");
        if (!first && (blank || !line.text().empty())) out.Append(indent);
        first = false;
        out.Append(line.text());
    }
    return std::move(out).Finish();
}

Value Escape(Interpreter& in, const Value& of, const Bound&) {
    static constexpr std::pair<std::string_view, std::string_view> kWords[] = {
        {"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}, {"'", "&#39;"}, {"\"", "&#34;"}};
    Value text = Str(in.meter(), of);
    for (const auto& [from, to] : kWords) {
        text = Replace(in.meter(), text.text(), from, Text(std::string(to)), -1);
    }
    return text;
}

Value WordCount(Interpreter& in, const Value& of, const Bound&) {
    const Value text = Str(in.meter(), of);
    in.meter().Read(text.text().size());
    const std::string_view bytes = text.text().view();
    int64_t words = 0;
    bool inside = false;
    for (size_t at = 0; at < bytes.size(); at = NextPoint(bytes, at)) {
        const int32_t point = PointAt(bytes, at);
        const bool letter = point == '_' || IsAlphaNumeric(point);
        words += letter && !inside ? 1 : 0;
        inside = letter;
    }
    return Value(words);
}

Value JsonFilter(Interpreter& in, const Value& of, const Bound& bound) {
    Meter& meter = in.meter();
    JsonStyle style;
    style.ascii = bound.Truth(0, false);
    style.sort_keys = bound.Truth(3, false);
    if (bound.Has(1) && !bound.At(1).Is(Kind::kNone)) style.indent = IndentOf(meter, bound.At(1));
    if (bound.Has(2) && !bound.At(2).Is(Kind::kNone)) {
        const auto parts = Iterate(meter, bound.At(2));
        const auto text = [](const Value& value) { return value.Is(Kind::kText); };
        const bool two =
            parts->items.size() == 2 && std::all_of(parts->items.begin(), parts->items.end(), text);
        if (!two) meter.Fail(ErrorCode::kCorrupt, "tojson: 'separators' must be two strings");
        style.item_separator = Copied(meter, parts->items[0]);
        style.key_separator = Copied(meter, parts->items[1]);
        style.own_separators = true;
    }
    return ToJson(meter, of, style);
}

// ---- numbers

// The number in a text as int() and float() read it: without white space around it, with ASCII
// digits, and without underscores between digits. Returns "" for an underscore elsewhere, and for
// the separators U+001C to U+001F, which are white space only to str. letters: they count as
// digits.
std::string NumberWord(Meter& meter, const Value& of, bool letters) {
    meter.Read(of.text().size());
    if (of.text().view().find_first_of("\x1C\x1D\x1E\x1F") != std::string_view::npos) return {};
    const TextRange range = Strip(meter, of.text().view(), Ends::kBoth, {});
    const std::string_view text = of.text().view().substr(0, range.end);
    std::string word;
    const auto ends_in_digit = [&] {
        const auto last = static_cast<unsigned char>(word.empty() ? '_' : word.back());
        return letters ? std::isalnum(last) != 0 : std::isdigit(last) != 0;
    };
    bool under = false;
    for (size_t at = range.begin; at < text.size(); at = NextPoint(text, at)) {
        const int32_t point = PointAt(text, at);
        if (point == '_') {
            if (under || !ends_in_digit()) return {};
            under = true;
            continue;
        }
        if (IsDecimal(point)) {
            word += static_cast<char>('0' + DecimalValue(point));
        } else {
            word += text.substr(at, NextPoint(text, at) - at);
        }
        if (under && !ends_in_digit()) return {};
        under = false;
    }
    return under ? std::string() : word;
}

std::optional<double> FloatOf(Meter& meter, const Value& of) {
    if (of.IsNumber()) return of.number();
    if (!of.Is(Kind::kText)) return {};
    const std::string word = NumberWord(meter, of, false);
    if (word.empty() || word.find_first_of("xXpP(") != word.npos) return {};
    char* end = nullptr;
    const double number = std::strtod(word.c_str(), &end);
    if (end != word.c_str() + word.size()) return {};
    return number;
}

[[noreturn]] void FailTooLong(Meter& meter) {
    meter.Fail(ErrorCode::kUnsupported, "int: an integer of more than 64 bits is not supported");
}

// int(word, base) of Python. Base 0: by the prefix.
std::optional<int64_t> IntOf(Meter& meter, std::string_view word, int64_t base) {
    if (base != 0 && (base < 2 || base > 36)) return {};
    const bool negative = word.starts_with('-');
    if (negative || word.starts_with('+')) word.remove_prefix(1);
    constexpr std::pair<char, int> kPrefixes[] = {{'x', 16}, {'o', 8}, {'b', 2}};
    bool prefixed = false;
    for (const auto& [letter, prefix_base] : kPrefixes) {
        const bool has = word.size() > 2 && word[0] == '0' && (word[1] | 0x20) == letter;
        if (!has || prefixed || (base != 0 && base != prefix_base)) continue;
        base = prefix_base;
        word.remove_prefix(2);
        prefixed = true;
    }
    const bool zeros = word.find_first_not_of('0') == word.npos;
    if (base == 0 && word.starts_with('0') && !zeros) return {};  // as in Python's source
    if (word.starts_with('-')) return {};
    std::string digits = negative ? "-" : "";
    digits += word;
    int64_t number = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), number,
                                      base == 0 ? 10 : static_cast<int>(base));
    if (read.ptr != digits.data() + digits.size()) return {};
    if (read.ec == std::errc::result_out_of_range) FailTooLong(meter);
    return read.ec == std::errc() ? std::optional(number) : std::nullopt;
}

Value IntFilter(Interpreter& in, const Value& of, const Bound& bound) {
    Meter& meter = in.meter();
    const Value fallback = bound.Has(0) ? bound.At(0) : Value(int64_t{0});
    const int64_t base = bound.Int(1, 10);
    if (of.IsInteger()) return Value(of.integer());
    if (of.Is(Kind::kText)) {
        const auto number = IntOf(meter, NumberWord(meter, of, true), base);
        if (number) return Value(*number);
    }
    const auto number = FloatOf(meter, of);
    if (!number || !std::isfinite(*number)) return fallback;
    if (!(std::abs(*number) < 9.2e18)) FailTooLong(meter);
    return Value(static_cast<int64_t>(*number));
}

Value FloatFilter(Interpreter& in, const Value& of, const Bound& bound) {
    const auto number = FloatOf(in.meter(), of);
    if (number) return Value(*number);
    return bound.Has(0) ? bound.At(0) : Value(0.0);
}

Value Round(Interpreter& in, const Value& of, const Bound& bound) {
    Meter& meter = in.meter();
    const int64_t precision = bound.Int(0, 0);
    const std::string_view method = bound.OptionalText(1).value_or("common");
    if (!in.Defined(of).IsNumber() || precision < 0 || precision > kMostPrecision) {
        meter.Fail(ErrorCode::kUnsupported, "round() of {} to {} digits is not supported",
                   of.type_name(), precision);
    }
    const double number = of.number();
    if (method == "common") {
        if (of.IsInteger()) return Value(of.integer());
        if (!std::isfinite(number)) return of;
        // Formatting rounds correctly, halves to even.
        return Value(std::strtod(fmt::format("{:.{}f}", number, precision).c_str(), nullptr));
    }
    const double scale = std::pow(10.0, static_cast<double>(precision));
    if (method == "ceil") return Value(std::ceil(number * scale) / scale);
    if (method == "floor") return Value(std::floor(number * scale) / scale);
    meter.Fail(ErrorCode::kCorrupt, "round(): unknown method '{}'", method);
}

Value Abs(Interpreter& in, const Value& of, const Bound&) {
    if (in.Defined(of).Is(Kind::kFloat)) return Value(std::abs(of.number()));
    if (!of.IsInteger()) in.meter().Fail(ErrorCode::kCorrupt, "abs of {}", of.type_name());
    return of.integer() < 0 ? Negate(in.meter(), of) : Value(of.integer());
}

// ---- lists and dicts

Value Default(Interpreter& in, const Value& of, const Bound& bound) {
    const bool missing = of.Is(Kind::kUndefined) || (bound.Truth(1, false) && !of.truth());
    if (!missing) return of;
    return bound.Has(0) ? bound.At(0) : MakeText(in.meter(), "");
}

Value LengthFilter(Interpreter& in, const Value& of, const Bound&) {
    return Value(static_cast<int64_t>(Length(in.meter(), of)));
}

// Evaluates a path such as a.b.0 on an item, for filters with `attribute`.
Value Path(Interpreter& in, Value item, const Value& path) {
    if (path.IsInteger()) return in.Item(item, path);
    if (!path.Is(Kind::kText)) {
        in.meter().Fail(ErrorCode::kCorrupt, "{} cannot be used as an attribute name",
                        path.type_name());
    }
    const Value parts = Split(in.meter(), path.text(), ".", -1);
    for (const Value& part : parts.items()) {
        const std::string_view name = part.text().view();
        int64_t index = 0;
        const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
        const bool number = read.ec == std::errc() && read.ptr == name.data() + name.size();
        item = in.Item(item, number ? Value(index) : part);
    }
    return item;
}

Value JoinFilter(Interpreter& in, const Value& of, const Bound& bound) {
    Meter& meter = in.meter();
    const Value separator = bound.Has(0) ? Str(meter, bound.At(0)) : MakeText(meter, "");
    const bool by_path = bound.Has(1) && !bound.At(1).Is(Kind::kNone);
    TextBuilder out(meter);
    bool first = true;
    const auto items = Iterate(meter, of);
    for (const Value& item : items->items) {
        if (!first) out.Append(separator.text());
        first = false;
        AppendStr(out, by_path ? Path(in, item, bound.At(1)) : item);
    }
    return std::move(out).Finish();
}

template <bool kLast>
Value EndOf(Interpreter& in, const Value& of, const Bound&) {
    if (of.Is(Kind::kText)) return CharacterAt(in.meter(), of, kLast ? -1 : 0);
    const auto items = Iterate(in.meter(), of);
    if (items->items.empty()) return Value(Undefined{});
    return kLast ? items->items.back() : items->items.front();
}

Value ListOf(Meter& meter, const std::vector<Value>& items) {
    ListBuilder list(meter);
    for (const Value& item : items) list.Add(item);
    return std::move(list).Finish();
}

Value ListFilter(Interpreter& in, const Value& of, const Bound&) {
    return ListOf(in.meter(), Iterate(in.meter(), of)->items);
}

Value Items(Interpreter& in, const Value& of, const Bound&) {
    if (of.Is(Kind::kUndefined)) return ListOf(in.meter(), {});
    if (!of.Is(Kind::kDict)) {
        in.meter().Fail(ErrorCode::kCorrupt, "items: the value is {}, expected a dict",
                        of.type_name());
    }
    return CallMethod(in, of, "items", {});
}

// Sort key; lower-cased if case is ignored.
Value SortKey(Meter& meter, const Value& value, bool case_sensitive) {
    if (case_sensitive || !value.Is(Kind::kText)) return value;
    return ChangeCase(meter, value.text(), Case::kLower);
}

Value Sorted(Meter& meter, const std::vector<Value>& items, const std::vector<Value>& keys,
             bool reverse) {
    std::vector<size_t> order(items.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return reverse ? Less(meter, keys[b], keys[a]) : Less(meter, keys[a], keys[b]);
    });
    ListBuilder list(meter);
    for (const size_t i : order) list.Add(items[i]);
    return std::move(list).Finish();
}

Value DictSort(Interpreter& in, const Value& of, const Bound& bound) {
    Meter& meter = in.meter();
    const std::string_view by = bound.OptionalText(1).value_or("key");
    if (by != "key" && by != "value") meter.Fail(ErrorCode::kCorrupt, "dictsort by '{}'", by);
    const Value pairs = Items(in, in.Defined(of), bound);
    ListBuilder keys(meter);
    for (const Value& pair : pairs.items()) {
        keys.Add(SortKey(meter, pair.items()[by == "key" ? 0 : 1], bound.Truth(0, false)));
    }
    const Value made = std::move(keys).Finish();
    return Sorted(meter, pairs.items(), made.items(), bound.Truth(2, false));
}

// Keys of the items: by comma-separated attributes, or the items themselves.
Value KeysOf(Interpreter& in, const std::vector<Value>& items, const Value& attribute,
             bool case_sensitive) {
    Meter& meter = in.meter();
    ListBuilder keys(meter);
    for (const Value& item : items) {
        if (attribute.Is(Kind::kUndefined) || attribute.Is(Kind::kNone)) {
            keys.Add(SortKey(meter, item, case_sensitive));
        } else if (!attribute.Is(Kind::kText)) {
            keys.Add(SortKey(meter, Path(in, item, attribute), case_sensitive));
        } else {
            ListBuilder key(meter);
            const Value paths = Split(meter, attribute.text(), ",", -1);
            for (const Value& path : paths.items()) {
                key.Add(SortKey(meter, Path(in, item, path), case_sensitive));
            }
            keys.Add(std::move(key).Finish());
        }
    }
    return std::move(keys).Finish();
}

Value Sort(Interpreter& in, const Value& of, const Bound& bound) {
    const auto items = Iterate(in.meter(), of);
    const Value keys = KeysOf(in, items->items, bound.At(2), bound.Truth(1, false));
    return Sorted(in.meter(), items->items, keys.items(), bound.Truth(0, false));
}

Value Unique(Interpreter& in, const Value& of, const Bound& bound) {
    const auto items = Iterate(in.meter(), of);
    const Value keys = KeysOf(in, items->items, bound.At(1), bound.Truth(0, false));
    ListBuilder list(in.meter());
    for (size_t i = 0; i < items->items.size(); ++i) {
        const auto here = keys.items().begin() + static_cast<ptrdiff_t>(i);
        const bool seen = std::any_of(keys.items().begin(), here, [&](const Value& key) {
            return Equal(in.meter(), key, *here);
        });
        if (!seen) list.Add(items->items[i]);
    }
    return std::move(list).Finish();
}

template <bool kMost>
Value Extreme(Interpreter& in, const Value& of, const Bound& bound) {
    const auto items = Iterate(in.meter(), of);
    if (items->items.empty()) return Value(Undefined{});
    const Value keys = KeysOf(in, items->items, bound.At(1), bound.Truth(0, false));
    size_t best = 0;
    for (size_t i = 1; i < items->items.size(); ++i) {
        const Value& key = keys.items()[i];
        const Value& held = keys.items()[best];
        if (kMost ? Less(in.meter(), held, key) : Less(in.meter(), key, held)) best = i;
    }
    return items->items[best];
}

Value Sum(Interpreter& in, const Value& of, const Bound& bound) {
    const bool by_path = bound.Has(0) && !bound.At(0).Is(Kind::kNone);
    Value sum = bound.Has(1) ? bound.At(1) : Value(int64_t{0});
    const auto items = Iterate(in.meter(), of);
    for (const Value& item : items->items) {
        const Value each = by_path ? Path(in, item, bound.At(0)) : item;
        sum = Calculate(in.meter(), BinaryOp::kAdd, sum, in.Defined(each));
    }
    return sum;
}

Value Reverse(Interpreter& in, const Value& of, const Bound&) {
    const Value plain = of.Is(Kind::kText) ? MakeText(in.meter(), of.text()) : of;
    std::vector<Value> items = Iterate(in.meter(), plain)->items;
    std::reverse(items.begin(), items.end());
    if (!of.Is(Kind::kText)) return ListOf(in.meter(), items);
    TextBuilder text(in.meter());
    for (const Value& item : items) text.Append(item.text());
    return std::move(text).Finish();
}

// The arguments from index `from` on.
CallValues Rest(const CallValues& values, size_t from) {
    CallValues rest;
    rest.positional.assign(values.positional.begin() + static_cast<ptrdiff_t>(from),
                           values.positional.end());
    rest.named = values.named;
    return rest;
}

const Text& NameAt(Meter& meter, std::string_view what, const CallValues& values, size_t at) {
    if (at >= values.positional.size() || !values.positional[at].Is(Kind::kText)) {
        meter.Fail(ErrorCode::kCorrupt, "{} needs a name", what);
    }
    return values.positional[at].text();
}

Value Map(Interpreter& in, const Value& of, const Bound& any) {
    const CallValues& values = any.values();
    ListBuilder list(in.meter());
    if (!of.truth()) return std::move(list).Finish();  // also none
    const auto items = Iterate(in.meter(), of);
    if (values.positional.empty()) {
        const Bound bound(in.meter(), "map", values, "attribute default");
        for (const Value& item : items->items) {
            Value value = Path(in, item, bound.Need(0));
            list.Add(value.Is(Kind::kUndefined) && bound.Has(1) ? bound.At(1) : std::move(value));
        }
        return std::move(list).Finish();
    }
    const std::string_view name = NameAt(in.meter(), "map", values, 0).view();
    const CallValues rest = Rest(values, 1);
    for (const Value& item : items->items) {
        const Level level(in.meter());
        list.Add(ApplyFilter(in, name, item, rest));
    }
    return std::move(list).Finish();
}

// select, reject, selectattr, rejectattr: tests the items or an attribute of them.
template <bool kAttribute, bool kKeep>
Value Select(Interpreter& in, const Value& of, const Bound& bound) {
    const CallValues& values = bound.values();
    Meter& meter = in.meter();
    constexpr size_t kTest = kAttribute ? 1 : 0;
    if (kAttribute) NameAt(meter, "selectattr", values, 0);
    const bool tests = values.positional.size() > kTest;
    const CallValues rest = Rest(values, tests ? kTest + 1 : kTest);
    ListBuilder list(meter);
    if (!of.truth()) return std::move(list).Finish();  // also none
    const auto items = Iterate(meter, of);
    for (const Value& item : items->items) {
        meter.Step();
        const Value value = kAttribute ? Path(in, item, values.positional[0]) : item;
        const bool holds =
            tests ? ApplyTest(in, NameAt(meter, "select", values, kTest).view(), value, rest)
                  : value.truth();
        if (holds == kKeep) list.Add(item);
    }
    return std::move(list).Finish();
}

Value AttributeFilter(Interpreter& in, const Value& of, const Bound& bound) {
    bound.NeedText(0);
    return in.Item(of, bound.At(0));
}

constexpr struct {
    std::string_view name, parameters;
    Filter filter;
} kFilters[] = {
    {"abs", "", Abs},
    {"attr", "name", AttributeFilter},
    {"capitalize", "", CaseFilter<Case::kCapital>},
    {"center", "width", Center},
    {"count", "", LengthFilter},
    {"d", "default_value boolean", Default},
    {"default", "default_value boolean", Default},
    {"dictsort", "case_sensitive by reverse", DictSort},
    {"e", "", Escape},
    {"escape", "", Escape},
    {"first", "", EndOf<false>},
    {"float", "default", FloatFilter},
    {"format", "*", FormatFilter},
    {"indent", "width first blank", Indent},
    {"int", "default base", IntFilter},
    {"items", "", Items},
    {"join", "d attribute", JoinFilter},
    {"last", "", EndOf<true>},
    {"length", "", LengthFilter},
    {"list", "", ListFilter},
    {"lower", "", CaseFilter<Case::kLower>},
    {"map", "*", Map},
    {"max", "case_sensitive attribute", Extreme<true>},
    {"min", "case_sensitive attribute", Extreme<false>},
    {"reject", "*", Select<false, false>},
    {"rejectattr", "*", Select<true, false>},
    {"replace", "old new count", ReplaceFilter},
    {"reverse", "", Reverse},
    {"round", "precision method", Round},
    {"safe", "", StringFilter},
    {"select", "*", Select<false, true>},
    {"selectattr", "*", Select<true, true>},
    {"sort", "reverse case_sensitive attribute", Sort},
    {"string", "", StringFilter},
    {"sum", "attribute start", Sum},
    {"title", "", CaseFilter<Case::kTitleWord>},
    {"tojson", "ensure_ascii indent separators sort_keys", JsonFilter},
    {"trim", "chars", Trim},
    {"unique", "case_sensitive attribute", Unique},
    {"upper", "", CaseFilter<Case::kUpper>},
    {"wordcount", "", WordCount},
};

}  // namespace

Value ApplyFilter(Interpreter& in, std::string_view name, const Value& of,
                  const CallValues& values) {
    in.meter().Step();
    for (const auto& [known, parameters, filter] : kFilters) {
        if (known == name) return filter(in, of, Bound(in.meter(), known, values, parameters));
    }
    in.meter().Fail(ErrorCode::kUnsupported, "the filter '{}' is not supported", name);
}

}  // namespace weft::chat::jinja
