#include "chat/template/print.h"

#include <algorithm>
#include <cmath>

#include "chat/template/letters.h"
#include "chat/template/strings.h"

namespace weft::chat::jinja {
namespace {

constexpr size_t kBytesAStep = 8;  // for a text whose characters are examined one by one

void AppendQuoted(TextBuilder& builder, const Text& text) {
    const std::string_view bytes = text.view();
    builder.meter().Step(bytes.size() / kBytesAStep);
    const bool doubles = bytes.find('\'') != bytes.npos && bytes.find('"') == bytes.npos;
    const char quote = doubles ? '"' : '\'';
    builder.Append(std::string_view(&quote, 1));
    for (size_t at = 0; at < bytes.size();) {
        const size_t end = NextPoint(bytes, at);
        const int32_t point = PointAt(bytes, at);
        const uint32_t source = text.SourceAt(at);
        if (point == '\n') {
            builder.Append("\\n", source);
        } else if (point == '\r') {
            builder.Append("\\r", source);
        } else if (point == '\t') {
            builder.Append("\\t", source);
        } else if (point == '\\' || point == quote) {
            builder.Append("\\", source);
            builder.AppendCut(text, at, end);
        } else if (IsPrintable(point)) {
            builder.AppendCut(text, at, end);
        } else if (point < 0x100) {
            builder.Append(fmt::format("\\x{:02x}", point), source);
        } else if (point < 0x10000) {
            builder.Append(fmt::format("\\u{:04x}", point), source);
        } else {
            builder.Append(fmt::format("\\U{:08x}", point), source);
        }
        at = end;
    }
    builder.Append(std::string_view(&quote, 1));
}

void AppendItems(TextBuilder& builder, const Value& list) {
    const bool tuple = list.list()->tuple;
    builder.Append(tuple ? "(" : "[");
    bool first = true;
    for (const Value& item : list.items()) {
        if (!first) builder.Append(", ");
        first = false;
        AppendRepr(builder, item);
    }
    if (tuple && list.items().size() == 1) builder.Append(",");
    builder.Append(tuple ? ")" : "]");
}

void AppendEntries(TextBuilder& builder, const Value& dict) {
    builder.Append("{");
    bool first = true;
    for (const Entry& entry : dict.entries()) {
        if (!first) builder.Append(", ");
        first = false;
        AppendRepr(builder, entry.first);
        builder.Append(": ");
        AppendRepr(builder, entry.second);
    }
    builder.Append("}");
}

class JsonWriter {
  public:
    JsonWriter(TextBuilder& builder, const JsonStyle& style) : out_(builder), style_(style) {}

    void Write(const Value& value) {
        out_.meter().Step();
        switch (value.kind()) {
            case Kind::kNone: return out_.Append("null");
            case Kind::kBool: return out_.Append(value.truth() ? "true" : "false");
            case Kind::kInt: return out_.Append(fmt::format("{}", value.integer()));
            case Kind::kFloat: return WriteFloat(value.number());
            case Kind::kText:
                return value.IsDigits() ? out_.Append(value.text()) : WriteText(value.text());
            case Kind::kList: return WriteList(value.items());
            case Kind::kDict: return WriteDict(value.entries());
            case Kind::kUndefined:
                out_.meter().Fail(ErrorCode::kCorrupt,
                                  "'{}' is undefined, which JSON cannot represent",
                                  value.undefined_name());
            case Kind::kSpace:
            case Kind::kMacro:
            case Kind::kLoop:
            case Kind::kMethod: break;
        }
        out_.meter().Fail(ErrorCode::kCorrupt, "JSON cannot represent {}", value.type_name());
    }

  private:
    void WriteFloat(double value) {
        if (std::isnan(value)) return out_.Append("NaN");
        if (std::isinf(value)) return out_.Append(value > 0 ? "Infinity" : "-Infinity");
        out_.Append(FloatText(value));
    }

    void WriteText(const Text& text) {
        const std::string_view bytes = text.view();
        out_.meter().Step(bytes.size() / kBytesAStep);
        out_.Append("\"");
        size_t plain = 0;
        for (size_t at = 0; at < bytes.size();) {
            const size_t end = NextPoint(bytes, at);
            const std::string escape = Escape(PointAt(bytes, at));
            if (!escape.empty()) {
                out_.AppendCut(text, plain, at);
                out_.Append(escape, text.SourceAt(at));
                plain = end;
            }
            at = end;
        }
        out_.AppendCut(text, plain, bytes.size());
        out_.Append("\"");
    }

    // Returns "" for a character that needs no escape.
    std::string Escape(int32_t point) const {
        switch (point) {
            case '"': return "\\\"";
            case '\\': return "\\\\";
            case '\n': return "\\n";
            case '\r': return "\\r";
            case '\t': return "\\t";
            case '\f': return "\\f";
            case '\b': return "\\b";
            default: break;  // a code point, not an enum value
        }
        if (point >= 0x20 && (point < 0x7F || !style_.ascii)) return {};
        if (point < 0x10000) return fmt::format("\\u{:04x}", point);
        const int32_t rest = point - 0x10000;
        return fmt::format("\\u{:04x}\\u{:04x}", 0xD800 + (rest >> 10), 0xDC00 + (rest & 0x3FF));
    }

    void Break() {
        if (!style_.indent) return;
        out_.Append("\n");
        for (int i = 0; i < level_; ++i) out_.Append(*style_.indent);
    }

    void Separate(bool first) {
        if (first) {
            ++level_;
        } else {
            const bool bare = style_.indent && !style_.own_separators;
            out_.Append(bare ? "," : style_.item_separator);
        }
        Break();
    }

    void WriteList(const std::vector<Value>& items) {
        if (items.empty()) return out_.Append("[]");
        out_.Append("[");
        bool first = true;
        for (const Value& item : items) {
            Separate(std::exchange(first, false));
            Write(item);
        }
        --level_;
        Break();
        out_.Append("]");
    }

    void WriteKey(const Value& key) {
        if (key.Is(Kind::kText)) return WriteText(key.text());
        out_.Append("\"");
        Write(key);
        out_.Append("\"");
    }

    void WriteDict(const std::vector<Entry>& entries) {
        if (entries.empty()) return out_.Append("{}");
        std::vector<const Entry*> order;
        for (const Entry& entry : entries) order.push_back(&entry);
        if (style_.sort_keys) {
            std::stable_sort(order.begin(), order.end(), [&](const Entry* a, const Entry* b) {
                return Less(out_.meter(), a->first, b->first);
            });
        }
        out_.Append("{");
        bool first = true;
        for (const Entry* entry : order) {
            Separate(std::exchange(first, false));
            WriteKey(entry->first);
            out_.Append(style_.key_separator);
            Write(entry->second);
        }
        --level_;
        Break();
        out_.Append("}");
    }

    TextBuilder& out_;
    const JsonStyle& style_;
    int level_ = 0;
};

}  // namespace

std::string FloatText(double value) {
    if (std::isnan(value)) return "nan";
    if (std::isinf(value)) return value > 0 ? "inf" : "-inf";
    std::string text = fmt::format("{}", value);
    if (text.find_first_of(".e") == text.npos) text += ".0";
    return text;
}

void AppendRepr(TextBuilder& builder, const Value& value) {
    builder.meter().Step();
    if (value.Is(Kind::kText) && !value.IsDigits()) return AppendQuoted(builder, value.text());
    if (value.Is(Kind::kUndefined)) return builder.Append("Undefined");
    AppendStr(builder, value);
}

void AppendStr(TextBuilder& builder, const Value& value) {
    builder.meter().Step();
    switch (value.kind()) {
        case Kind::kUndefined: return;
        case Kind::kNone: return builder.Append("None");
        case Kind::kBool: return builder.Append(value.truth() ? "True" : "False");
        case Kind::kInt: return builder.Append(fmt::format("{}", value.integer()));
        case Kind::kFloat: return builder.Append(FloatText(value.number()));
        case Kind::kText: return builder.Append(value.text());
        case Kind::kList:
            if (!value.IsContent()) return AppendItems(builder, value);
            for (const Value& part : value.items()) AppendStr(builder, part);
            return;
        case Kind::kDict:
            if (!value.IsPart()) return AppendEntries(builder, value);
            return AppendStr(builder, *Lookup(builder.meter(), value, "text"));
        case Kind::kSpace: return builder.Append("<Namespace>");
        case Kind::kMacro: return builder.Append("<Macro>");
        case Kind::kLoop: return builder.Append("<LoopContext>");
        case Kind::kMethod: return builder.Append("<function>");
    }
}

Value Str(Meter& meter, const Value& value) {
    if (value.Is(Kind::kText)) return value;
    TextBuilder builder(meter);
    AppendStr(builder, value);
    return std::move(builder).Finish();
}

Value ToJson(Meter& meter, const Value& value, const JsonStyle& style) {
    TextBuilder builder(meter);
    JsonWriter(builder, style).Write(value);
    return std::move(builder).Finish();
}

}  // namespace weft::chat::jinja
