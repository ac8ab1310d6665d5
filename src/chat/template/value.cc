#include "chat/template/value.h"

#include <algorithm>

#include "chat/template/strings.h"

namespace weft::chat::jinja {
namespace {

constexpr int kDeepest = 200;       // nesting of lists and dicts
constexpr size_t kBodyBytes = 128;  // overhead per value

int CheckDepth(const Meter& meter, int depth) {
    if (depth > kDeepest) {
        meter.Fail(ErrorCode::kCorrupt, "lists and dicts nest deeper than {}", kDeepest);
    }
    return depth;
}

bool EqualLists(Meter& meter, const std::vector<Value>& a, const std::vector<Value>& b) {
    return a.size() == b.size() &&
           std::equal(a.begin(), a.end(), b.begin(),
                      [&](const Value& x, const Value& y) { return Equal(meter, x, y); });
}

bool EqualDicts(Meter& meter, const Value& a, const Value& b) {
    if (a.entries().size() != b.entries().size()) return false;
    return std::all_of(a.entries().begin(), a.entries().end(), [&](const Entry& entry) {
        const Value* other = Lookup(meter, b, entry.first);
        return other != nullptr && Equal(meter, entry.second, *other);
    });
}

}  // namespace

int64_t Value::integer() const {
    return Is(Kind::kBool) ? int64_t{std::get<bool>(data_)} : std::get<int64_t>(data_);
}

double Value::number() const {
    return Is(Kind::kFloat) ? std::get<double>(data_) : static_cast<double>(integer());
}

bool Value::truth() const {
    switch (kind()) {
        case Kind::kUndefined:
        case Kind::kNone: return false;
        case Kind::kBool:
        case Kind::kInt: return integer() != 0;
        case Kind::kFloat: return number() != 0;
        case Kind::kText: return !text().empty();
        case Kind::kList: return !items().empty();
        case Kind::kDict: return !entries().empty();
        case Kind::kLoop: return !loop().items->items.empty();
        case Kind::kSpace:
        case Kind::kMacro:
        case Kind::kMethod: return true;
    }
    return false;
}

bool Value::IsContent() const {
    if (Is(Kind::kText)) return std::get<5>(data_)->content;
    return Is(Kind::kList) && list()->content;
}

bool Value::IsPart() const {
    return Is(Kind::kDict) && dict()->part;
}

Value Value::part() const {
    if (!Is(Kind::kText) || std::get<5>(data_)->part == nullptr) return Value();
    return Value(std::get<5>(data_)->part);
}

int Value::depth() const {
    if (Is(Kind::kList)) return list()->depth;
    if (Is(Kind::kDict)) return std::get<7>(data_)->depth;
    if (Is(Kind::kLoop)) return loop().items->depth + 1;
    if (Is(Kind::kMethod)) return method().self.depth() + 1;
    return 0;
}

std::string_view Value::type_name() const {
    switch (kind()) {
        case Kind::kUndefined: return "undefined";
        case Kind::kNone: return "none";
        case Kind::kBool: return "a bool";
        case Kind::kInt: return "an int";
        case Kind::kFloat: return "a float";
        case Kind::kText: return "a string";
        case Kind::kList: return list()->tuple ? "a tuple" : "a list";
        case Kind::kDict: return "a dict";
        case Kind::kSpace: return "a namespace";
        case Kind::kMacro: return "a macro";
        case Kind::kLoop: return "a loop";
        case Kind::kMethod: return "a function";
    }
    return "";
}

void TextBuilder::Append(std::string_view bytes, uint32_t source) {
    charge_.Grow(text_.room(), bytes.size());
    text_.Append(bytes, source);
}

void TextBuilder::AppendCut(const Text& text, size_t begin, size_t end) {
    charge_.Grow(text_.room(), end - begin);
    charge_.Add(text.given().size() * sizeof(TextRange));
    text_.AppendCut(text, begin, end);
}

Value TextBuilder::Finish(bool content, std::shared_ptr<const DictData> part) && {
    charge_.Add(kBodyBytes);
    return Value(std::make_shared<const TextData>(
        TextData{std::move(text_), std::move(charge_), content, false, std::move(part)}));
}

void ListBuilder::Add(Value value) {
    charge_.Grow(items_, 1);
    depth_ = std::max(depth_, value.depth());
    CheckDepth(meter_, depth_ + 1);
    items_.push_back(std::move(value));
}

void ListBuilder::AddCut(const Text& text, size_t begin, size_t end) {
    TextBuilder part(meter_);
    part.AppendCut(text, begin, end);
    Add(std::move(part).Finish());
}

Value ListBuilder::Finish(bool tuple, bool content) && {
    charge_.Add(kBodyBytes);
    return Value(std::make_shared<const ListData>(
        ListData{std::move(items_), tuple, depth_ + 1, std::move(charge_), content}));
}

void DictBuilder::Set(const Value& key, Value value) {
    const bool hashable = key.Is(Kind::kText) || key.IsNumber() || key.Is(Kind::kNone);
    if (!hashable) {
        meter_.Fail(ErrorCode::kUnsupported, "{} as a dict key is not supported", key.type_name());
    }
    for (Entry& entry : entries_) {
        if (!Equal(meter_, entry.first, key)) continue;
        depth_ = std::max(depth_, value.depth());
        CheckDepth(meter_, depth_ + 1);
        entry.second = std::move(value);
        return;
    }
    Add(key, std::move(value));
}

void DictBuilder::Add(Value key, Value value) {
    charge_.Grow(entries_, 1);
    depth_ = std::max(depth_, value.depth());
    CheckDepth(meter_, depth_ + 1);
    entries_.emplace_back(std::move(key), std::move(value));
}

Value DictBuilder::Finish(bool part) && {
    charge_.Add(kBodyBytes);
    return Value(std::make_shared<const DictData>(
        DictData{std::move(entries_), depth_ + 1, std::move(charge_), part}));
}

Value MakeText(Meter& meter, Text text) {
    Charge charge(&meter);
    charge.Add(text.size() + text.given().size() * sizeof(TextRange) + kBodyBytes);
    return Value(std::make_shared<const TextData>(TextData{std::move(text), std::move(charge)}));
}

Value MakeText(Meter& meter, std::string_view bytes, uint32_t source) {
    TextBuilder builder(meter);
    builder.Append(bytes, source);
    return std::move(builder).Finish();
}

Value MakeDigits(Meter& meter, std::string_view digits, uint32_t source) {
    Charge charge(&meter);
    charge.Add(digits.size() + sizeof(TextRange) + kBodyBytes);
    TextData data{Text(std::string(digits), source), std::move(charge)};
    data.digits = true;
    return Value(std::make_shared<const TextData>(std::move(data)));
}

Value MakeConstant(std::string bytes) {
    return Value(std::make_shared<const TextData>(TextData{Text(std::move(bytes)), Charge()}));
}

namespace {

// Makes {"type": "text", "text": ...}.
Value MakePart(Meter& meter, Value text) {
    DictBuilder part(meter);
    part.Add(MakeText(meter, "type"), MakeText(meter, "text"));
    part.Add(MakeText(meter, "text"), std::move(text));
    return std::move(part).Finish(true);
}

}  // namespace

Value MakeContent(Meter& meter, std::string_view text, uint32_t source) {
    TextBuilder builder(meter);
    builder.Append(text, source);
    return std::move(builder).Finish(true);
}

Value MakeContent(Meter& meter, const std::vector<std::string_view>& parts, uint32_t source) {
    ListBuilder list(meter);
    for (const std::string_view text : parts) {
        list.Add(MakePart(meter, MakeText(meter, text, source)));
    }
    return std::move(list).Finish(false, true);
}

Value CharacterAt(Meter& meter, const Value& text, int64_t index) {
    const std::string_view bytes = text.text().view();
    const auto size = static_cast<int64_t>(Length(meter, text));
    const bool part = text.IsContent() && (index == 0 || index == -1);
    if (index < 0) index += size;
    const bool there = index >= 0 && index < size;
    if (!there && !part) return Value(Undefined{});
    TextBuilder character(meter);
    if (there) {
        const size_t begin = PointOffset(bytes, static_cast<size_t>(index));
        meter.Read(begin);
        character.AppendCut(text.text(), begin, NextPoint(bytes, begin));
    }
    return std::move(character).Finish(false, part ? MakePart(meter, text).dict() : nullptr);
}

Value MakePair(Meter& meter, Value first, Value second) {
    ListBuilder pair(meter);
    pair.Add(std::move(first));
    pair.Add(std::move(second));
    return std::move(pair).Finish(true);
}

Value MakeMethod(Value self, std::string_view name) {
    return Value(std::make_shared<const Method>(Method{std::move(self), name}));
}

bool Equal(Meter& meter, const Value& a, const Value& b) {
    meter.Step();
    if (a.IsNumber() && b.IsNumber()) {
        if (a.IsInteger() && b.IsInteger()) return a.integer() == b.integer();
        return a.number() == b.number();
    }
    if (a.kind() != b.kind()) return false;
    switch (a.kind()) {
        case Kind::kUndefined:
        case Kind::kNone: return true;
        case Kind::kText:
            meter.Read(std::min(a.text().size(), b.text().size()));
            return a.text().view() == b.text().view();
        case Kind::kList:
            return a.list()->tuple == b.list()->tuple && EqualLists(meter, a.items(), b.items());
        case Kind::kDict: return EqualDicts(meter, a, b);
        case Kind::kSpace: return &a.space() == &b.space();
        case Kind::kMacro: return a.macro().body == b.macro().body;
        case Kind::kLoop: return &a.loop() == &b.loop();
        case Kind::kMethod:
            return a.method().name == b.method().name &&
                   Equal(meter, a.method().self, b.method().self);
        case Kind::kBool:
        case Kind::kInt:
        case Kind::kFloat: break;  // numbers are handled above
    }
    return false;
}

bool Less(Meter& meter, const Value& a, const Value& b) {
    meter.Step();
    if (a.IsNumber() && b.IsNumber()) {
        if (a.IsInteger() && b.IsInteger()) return a.integer() < b.integer();
        return a.number() < b.number();
    }
    if (a.Is(Kind::kText) && b.Is(Kind::kText)) {
        meter.Read(std::min(a.text().size(), b.text().size()));
        return a.text().view() < b.text().view();  // byte order equals code point order in UTF-8
    }
    if (a.Is(Kind::kList) && b.Is(Kind::kList)) {
        const size_t both = std::min(a.items().size(), b.items().size());
        for (size_t i = 0; i < both; ++i) {
            if (!Equal(meter, a.items()[i], b.items()[i])) {
                return Less(meter, a.items()[i], b.items()[i]);
            }
        }
        return a.items().size() < b.items().size();
    }
    for (const Value* value : {&a, &b}) {
        if (!value->Is(Kind::kUndefined)) continue;
        meter.Fail(ErrorCode::kCorrupt, "'{}' is undefined", value->undefined_name());
    }
    meter.Fail(ErrorCode::kCorrupt, "{} and {} cannot be ordered", a.type_name(), b.type_name());
}

bool Contains(Meter& meter, const Value& place, const Value& needle) {
    switch (place.kind()) {
        case Kind::kUndefined: return false;
        case Kind::kText:
            if (!needle.Is(Kind::kText)) {
                meter.Fail(ErrorCode::kCorrupt, "'in' needs a string to search in a string, got {}",
                           needle.type_name());
            }
            return FindIn(meter, place.text().view(), needle.text().view(), 0) !=
                   std::string_view::npos;
        case Kind::kList:
            return std::any_of(place.items().begin(), place.items().end(),
                               [&](const Value& item) { return Equal(meter, item, needle); });
        case Kind::kDict:
            if (needle.Is(Kind::kDict) || (needle.Is(Kind::kList) && !needle.list()->tuple)) {
                meter.Fail(ErrorCode::kCorrupt, "{} cannot be a dict key", needle.type_name());
            }
            return Lookup(meter, place, needle) != nullptr;
        case Kind::kNone:
        case Kind::kBool:
        case Kind::kInt:
        case Kind::kFloat:
        case Kind::kSpace:
        case Kind::kMacro:
        case Kind::kLoop:
        case Kind::kMethod: break;
    }
    meter.Fail(ErrorCode::kCorrupt, "'in' cannot search in {}", place.type_name());
}

const Value* Lookup(Meter& meter, const Value& dict, std::string_view key) {
    meter.Step(dict.entries().size() * (1 + key.size() / 64) / 8 + 1);
    for (const Entry& entry : dict.entries()) {
        if (entry.first.Is(Kind::kText) && entry.first.text().view() == key) return &entry.second;
    }
    return nullptr;
}

const Value* Lookup(Meter& meter, const Value& dict, const Value& key) {
    if (key.Is(Kind::kText)) return Lookup(meter, dict, key.text().view());
    for (const Entry& entry : dict.entries()) {
        if (Equal(meter, entry.first, key)) return &entry.second;
    }
    return nullptr;
}

std::shared_ptr<const ListData> Iterate(Meter& meter, const Value& value) {
    ListBuilder list(meter);
    switch (value.kind()) {
        case Kind::kUndefined: break;
        case Kind::kList: return value.list();
        case Kind::kDict:
            for (const Entry& entry : value.entries()) list.Add(entry.first);
            break;
        case Kind::kText: {
            if (value.IsContent()) {
                list.Add(MakePart(meter, value));
                break;
            }
            const Text& text = value.text();
            for (size_t at = 0; at < text.size();) {
                const size_t end = NextPoint(text.view(), at);
                list.AddCut(text, at, end);
                at = end;
            }
            break;
        }
        case Kind::kNone:
        case Kind::kBool:
        case Kind::kInt:
        case Kind::kFloat:
        case Kind::kSpace:
        case Kind::kMacro:
        case Kind::kLoop:
        case Kind::kMethod:
            meter.Fail(ErrorCode::kCorrupt, "{} is not iterable", value.type_name());
    }
    return std::move(list).Finish().list();
}

size_t Length(Meter& meter, const Value& value) {
    switch (value.kind()) {
        case Kind::kUndefined: return 0;
        case Kind::kText: meter.Read(value.text().size()); return CountPoints(value.text().view());
        case Kind::kList: return value.items().size();
        case Kind::kDict: return value.entries().size();
        case Kind::kLoop: return value.loop().items->items.size();
        case Kind::kNone:
        case Kind::kBool:
        case Kind::kInt:
        case Kind::kFloat:
        case Kind::kSpace:
        case Kind::kMacro:
        case Kind::kMethod: break;
    }
    meter.Fail(ErrorCode::kCorrupt, "{} has no length", value.type_name());
}

}  // namespace weft::chat::jinja
