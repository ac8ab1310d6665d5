// Built-in methods of Python's str, list and dict, and of `loop`.
#include <algorithm>
#include <optional>

#include "chat/template/arguments.h"
#include "chat/template/arithmetic.h"
#include "chat/template/builtins.h"
#include "chat/template/letters.h"
#include "chat/template/strings.h"

namespace weft::chat::jinja {
namespace {

using TextMethod = Value (*)(Meter&, const Text&, const Bound&);

template <Ends kEnds>
Value StripMethod(Meter& meter, const Text& self, const Bound& bound) {
    const TextRange left = Strip(meter, self.view(), kEnds, bound.OptionalText(0));
    return MakeText(meter, self.Cut(left.begin, left.end));
}

template <Case kCase>
Value CaseMethod(Meter& meter, const Text& self, const Bound&) {
    return ChangeCase(meter, self, kCase);
}

template <bool kRight>
Value SplitMethod(Meter& meter, const Text& self, const Bound& bound) {
    const auto separator = bound.OptionalText(0);
    return kRight ? SplitRight(meter, self, separator, bound.Int(1, -1))
                  : Split(meter, self, separator, bound.Int(1, -1));
}

Value SplitLinesMethod(Meter& meter, const Text& self, const Bound& bound) {
    return SplitLines(meter, self, bound.Truth(0, false));
}

Value ReplaceMethod(Meter& meter, const Text& self, const Bound& bound) {
    return Replace(meter, self, bound.NeedText(0).view(), bound.NeedText(1), bound.Int(2, -1));
}

// The part of the text between the arguments `start` and `end`, which count characters; nullopt if
// it begins after its end.
std::optional<std::string_view> Window(Meter& meter, const Text& self, const Bound& bound) {
    if (!bound.Has(1) && !bound.Has(2)) return self.view();
    meter.Read(self.size());
    const auto points = static_cast<int64_t>(CountPoints(self.view()));
    const auto index = [&](size_t at, int64_t fallback) {
        const int64_t given = bound.At(at).Is(Kind::kNone) ? fallback : bound.Int(at, fallback);
        return given < 0 ? std::max<int64_t>(given + points, 0) : given;
    };
    const int64_t start = index(1, 0), end = std::min(index(2, points), points);
    if (start > end) return {};
    const size_t begin = PointOffset(self.view(), static_cast<size_t>(start));
    return self.view().substr(begin, PointOffset(self.view(), static_cast<size_t>(end)) - begin);
}

template <bool kStart>
Value StartsMethod(Meter& meter, const Text& self, const Bound& bound) {
    const auto text = Window(meter, self, bound);
    const auto fits = [&](std::string_view part) {
        meter.Read(part.size());
        return text && (kStart ? text->starts_with(part) : text->ends_with(part));
    };
    const Value& parts = bound.Need(0);
    if (!parts.Is(Kind::kList) || !parts.list()->tuple)
        return Value(fits(bound.NeedText(0).view()));
    return Value(std::any_of(parts.items().begin(), parts.items().end(), [&](const Value& part) {
        return part.Is(Kind::kText) && fits(part.text().view());
    }));
}

// Byte offset of the needle in the text.
std::optional<size_t> FindPlace(Meter& meter, const Text& self, const Bound& bound, bool last) {
    const std::string_view needle = bound.NeedText(0).view();
    const auto text = Window(meter, self, bound);
    if (!text) return {};
    const size_t found = last ? FindLast(meter, *text, needle) : FindIn(meter, *text, needle, 0);
    if (found == text->npos) return {};
    return static_cast<size_t>(text->data() - self.view().data()) + found;
}

template <bool kLast, bool kMust>
Value FindMethod(Meter& meter, const Text& self, const Bound& bound) {
    const auto found = FindPlace(meter, self, bound, kLast);
    if (found) return Value(static_cast<int64_t>(CountPoints(self.view().substr(0, *found))));
    if (kMust) meter.Fail(ErrorCode::kCorrupt, "index(): the value was not found");
    return Value(int64_t{-1});
}

Value CountMethod(Meter& meter, const Text& self, const Bound& bound) {
    const std::string_view needle = bound.NeedText(0).view();
    const auto text = Window(meter, self, bound);
    if (!text) return Value(int64_t{0});
    if (needle.empty()) {
        meter.Read(text->size());
        return Value(static_cast<int64_t>(CountPoints(*text) + 1));
    }
    int64_t count = 0;
    for (size_t at = 0; (at = FindIn(meter, *text, needle, at)) != text->npos;) {
        ++count;
        at += needle.size();
    }
    return Value(count);
}

// (before, separator, after) at the first or last separator. Without a separator: the text and two
// empty texts.
template <bool kLast>
Value PartitionMethod(Meter& meter, const Text& self, const Bound& bound) {
    const std::string_view separator = bound.NeedText(0).view();
    if (separator.empty()) {
        meter.Fail(ErrorCode::kCorrupt, "partition(): the separator is empty");
    }
    const size_t found =
        kLast ? FindLast(meter, self.view(), separator) : FindIn(meter, self.view(), separator, 0);
    const bool has = found != std::string_view::npos;
    const size_t at = has ? found : kLast ? 0 : self.size();
    ListBuilder parts(meter);
    parts.AddCut(self, 0, at);
    parts.AddCut(self, at, has ? at + separator.size() : at);
    parts.AddCut(self, has ? at + separator.size() : at, self.size());
    return std::move(parts).Finish(true);
}

template <Ends kEnds>
Value PadMethod(Meter& meter, const Text& self, const Bound& bound) {
    bound.Need(0);
    const std::string_view with = bound.Has(1) ? bound.NeedText(1).view() : " ";
    if (with.size() != 1) {
        meter.Fail(ErrorCode::kUnsupported, "padding with '{}': expected one ASCII character",
                   with);
    }
    return Pad(meter, self, bound.Int(0, 0), kEnds, with[0]);
}

Value JoinMethod(Meter& meter, const Text& self, const Bound& bound) {
    TextBuilder out(meter);
    bool first = true;
    const auto parts = Iterate(meter, bound.Need(0));
    for (const Value& part : parts->items) {
        meter.Step();
        if (!part.Is(Kind::kText)) {
            meter.Fail(ErrorCode::kCorrupt, "join() of {}", part.type_name());
        }
        if (!first) out.Append(self);
        first = false;
        out.Append(part.text());
    }
    return std::move(out).Finish();
}

Value FormatMethod(Meter& meter, const Text& self, const Bound& bound) {
    return FormatBraces(meter, self, bound.values());
}

template <bool kPrefix>
Value RemoveMethod(Meter& meter, const Text& self, const Bound& bound) {
    const std::string_view part = bound.NeedText(0).view();
    meter.Read(part.size());
    const bool fits = kPrefix ? self.view().starts_with(part) : self.view().ends_with(part);
    if (!fits) return MakeText(meter, self);
    return MakeText(meter, kPrefix ? self.Cut(part.size(), self.size())
                                   : self.Cut(0, self.size() - part.size()));
}

// kEmpty: the answer for an empty text.
template <bool (*kIs)(int32_t), bool kEmpty = false>
Value AllMethod(Meter& meter, const Text& self, const Bound&) {
    meter.Read(self.size());
    for (size_t at = 0; at < self.size(); at = NextPoint(self.view(), at)) {
        if (!kIs(PointAt(self.view(), at))) return Value(false);
    }
    return Value(kEmpty || !self.empty());
}

// isupper(), islower(): at least one letter of the case, and none of another case.
template <bool kUpper>
Value IsCaseMethod(Meter& meter, const Text& self, const Bound&) {
    meter.Read(self.size());
    bool any = false;
    for (size_t at = 0; at < self.size(); at = NextPoint(self.view(), at)) {
        const int32_t point = PointAt(self.view(), at);
        if (IsTitle(point) || (kUpper ? IsLower(point) : IsUpper(point))) return Value(false);
        any = any || (kUpper ? IsUpper(point) : IsLower(point));
    }
    return Value(any);
}

// istitle(): each word begins in upper case and continues in lower case.
Value IsTitleMethod(Meter& meter, const Text& self, const Bound&) {
    meter.Read(self.size());
    bool any = false, inside = false;
    for (size_t at = 0; at < self.size(); at = NextPoint(self.view(), at)) {
        const int32_t point = PointAt(self.view(), at);
        const bool begins = IsUpper(point) || IsTitle(point);
        if (begins ? inside : IsLower(point) && !inside) return Value(false);
        inside = begins || IsLower(point);
        any = any || inside;
    }
    return Value(any);
}

bool IsAscii(int32_t point) {
    return point < 0x80;
}

constexpr struct {
    std::string_view name, parameters;
    TextMethod method;
} kTextMethods[] = {
    {"strip", "chars", StripMethod<Ends::kBoth>},
    {"lstrip", "chars", StripMethod<Ends::kLeft>},
    {"rstrip", "chars", StripMethod<Ends::kRight>},
    {"upper", "", CaseMethod<Case::kUpper>},
    {"lower", "", CaseMethod<Case::kLower>},
    {"capitalize", "", CaseMethod<Case::kCapital>},
    {"title", "", CaseMethod<Case::kTitle>},
    {"casefold", "", CaseMethod<Case::kFolded>},
    {"center", "width fillchar", PadMethod<Ends::kBoth>},
    {"ljust", "width fillchar", PadMethod<Ends::kRight>},
    {"rjust", "width fillchar", PadMethod<Ends::kLeft>},
    {"partition", "sep", PartitionMethod<false>},
    {"rpartition", "sep", PartitionMethod<true>},
    {"split", "sep maxsplit", SplitMethod<false>},
    {"rsplit", "sep maxsplit", SplitMethod<true>},
    {"splitlines", "keepends", SplitLinesMethod},
    {"startswith", "prefix start end", StartsMethod<true>},
    {"endswith", "prefix start end", StartsMethod<false>},
    {"replace", "old new count", ReplaceMethod},
    {"find", "sub start end", FindMethod<false, false>},
    {"rfind", "sub start end", FindMethod<true, false>},
    {"index", "sub start end", FindMethod<false, true>},
    {"rindex", "sub start end", FindMethod<true, true>},
    {"count", "sub start end", CountMethod},
    {"join", "parts", JoinMethod},
    {"format", "*", FormatMethod},
    {"removeprefix", "part", RemoveMethod<true>},
    {"removesuffix", "part", RemoveMethod<false>},
    {"isdigit", "", AllMethod<IsDigit>},
    {"isnumeric", "", AllMethod<IsNumeric>},
    {"isdecimal", "", AllMethod<IsDecimal>},
    {"isalpha", "", AllMethod<IsAlpha>},
    {"isalnum", "", AllMethod<IsAlphaNumeric>},
    {"isspace", "", AllMethod<IsSpace>},
    {"isascii", "", AllMethod<IsAscii, true>},
    {"isprintable", "", AllMethod<IsPrintable, true>},
    {"istitle", "", IsTitleMethod},
    {"isupper", "", IsCaseMethod<true>},
    {"islower", "", IsCaseMethod<false>},
};

constexpr std::string_view kDictMethods[] = {"get", "items", "keys", "values", "copy"};
constexpr std::string_view kListMethods[] = {"index", "count", "copy"};
constexpr std::string_view kLoopMethods[] = {"cycle"};
// Methods that modify a dict or list; jinja2's immutable sandbox refuses to call them.
constexpr std::string_view kDictChanges[] = {"pop", "popitem", "update", "setdefault", "clear"};
constexpr std::string_view kListChanges[] = {"append", "extend", "insert",  "pop",
                                             "remove", "sort",   "reverse", "clear"};

template <size_t kSize>
std::string_view Among(const std::string_view (&names)[kSize], std::string_view name) {
    const auto* found = std::find(std::begin(names), std::end(names), name);
    return found == std::end(names) ? std::string_view() : *found;
}

Value CallDict(Interpreter& in, const Value& self, std::string_view name,
               const CallValues& values) {
    Meter& meter = in.meter();
    if (name == "get") {
        const Bound bound(meter, "get()", values, "key default");
        const Value* found = Lookup(meter, self, bound.Need(0));
        if (found != nullptr) return *found;
        return bound.Has(1) ? bound.At(1) : Value(None{});
    }
    const Bound bound(meter, "a dict's method", values, "");
    if (name == "copy") return self;
    ListBuilder list(meter);
    for (const Entry& entry : self.entries()) {
        meter.Step();
        list.Add(name == "items"  ? MakePair(meter, entry.first, entry.second)
                 : name == "keys" ? entry.first
                                  : entry.second);
    }
    return std::move(list).Finish();
}

Value CallList(Interpreter& in, const Value& self, std::string_view name,
               const CallValues& values) {
    Meter& meter = in.meter();
    if (name == "copy") return self;
    const Bound bound(meter, "a list's method", values, "value");
    int64_t count = 0;
    for (size_t at = 0; at < self.items().size(); ++at) {
        if (!Equal(meter, self.items()[at], bound.Need(0))) continue;
        if (name == "index") return Value(static_cast<int64_t>(at));
        ++count;
    }
    if (name == "index") meter.Fail(ErrorCode::kCorrupt, "index(): the value was not found");
    return Value(count);
}

}  // namespace

std::string_view MethodName(const Value& self, std::string_view name) {
    if (self.Is(Kind::kText)) {
        for (const auto& method : kTextMethods) {
            if (method.name == name) return method.name;
        }
    }
    std::string_view found;
    if (self.Is(Kind::kDict)) {
        found = Among(kDictMethods, name);
        if (found.empty()) found = Among(kDictChanges, name);
    } else if (self.Is(Kind::kList)) {
        found = Among(kListMethods, name);
        if (found.empty() && !self.list()->tuple) found = Among(kListChanges, name);
    } else if (self.Is(Kind::kLoop)) {
        found = Among(kLoopMethods, name);
    }
    return found;
}

Value CallMethod(Interpreter& in, const Value& self, std::string_view name,
                 const CallValues& values) {
    Meter& meter = in.meter();
    if (self.Is(Kind::kText)) {
        for (const auto& method : kTextMethods) {
            if (method.name != name) continue;
            const Bound bound(meter, name, values, method.parameters);
            return method.method(meter, self.text(), bound);
        }
    }
    if (self.Is(Kind::kDict) && !Among(kDictMethods, name).empty()) {
        return CallDict(in, self, name, values);
    }
    if (self.Is(Kind::kList) && !Among(kListMethods, name).empty()) {
        return CallList(in, self, name, values);
    }
    if (self.Is(Kind::kLoop)) {
        if (values.positional.empty()) meter.Fail(ErrorCode::kCorrupt, "cycle(): no values");
        return values.positional[self.loop().at % values.positional.size()];
    }
    meter.Fail(
        ErrorCode::kUnsupported,
        "'{}' would change {}; templates cannot change values. Use a namespace or make a new value",
        name, self.type_name());
}

}  // namespace weft::chat::jinja
