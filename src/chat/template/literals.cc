#include "chat/template/literals.h"

#include <cctype>
#include <charconv>
#include <utility>

#include "base/json_digits.h"

namespace weft::chat {
namespace {

constexpr int kMostLiteralDepth = 100;
constexpr size_t kMostLiterals = 1 << 18;

void AppendUtf8(uint32_t point, std::string& out) {
    if (point < 0x80) {
        out += static_cast<char>(point);
        return;
    }
    const int more = point < 0x800 ? 1 : point < 0x10000 ? 2 : 3;
    const uint32_t heads[] = {0, 0xC0, 0xE0, 0xF0};
    out += static_cast<char>(heads[more] | point >> (6 * more));
    for (int i = more - 1; i >= 0; --i) out += static_cast<char>(0x80 | ((point >> (6 * i)) & 63));
}

// Consumes values from the front of a text. After an error all further reads fail.
class LiteralReader {
  public:
    // quote: Gemma's mark around strings, with bare keys; empty: Python's syntax. raw: as in
    // ReadPythonCalls.
    explicit LiteralReader(std::string_view text, std::string_view quote = {}, bool raw = false)
        : text_(text), quote_(quote), gemma_(!quote.empty()), raw_(raw) {}

    bool Is(std::string_view wanted) {
        SkipSpace();
        if (!text_.substr(at_).starts_with(wanted)) return false;
        at_ += wanted.size();
        return true;
    }
    bool AtEnd() {
        SkipSpace();
        return at_ == text_.size();
    }
    // Reads a name: letters of any script, digits, and marks as in user-id and @odata.type.
    std::string_view Word() {
        constexpr std::string_view kMarks = "_.-$@:";
        SkipSpace();
        const size_t begin = at_;
        while (at_ < text_.size() && (static_cast<unsigned char>(text_[at_]) >= 0x80 ||
                                      std::isalnum(static_cast<unsigned char>(text_[at_])) != 0 ||
                                      kMarks.find(text_[at_]) != kMarks.npos)) {
            ++at_;
        }
        return text_.substr(begin, at_ - begin);
    }
    // Discarded: no valid value.
    OrderedJson Value() {
        if (++values_ > kMostLiterals || depth_ > kMostLiteralDepth) return None();
        if (gemma_ && Is(quote_)) return GemmaText();
        if (Is("{")) return Object();
        if (Is("[")) return List("]");
        if (!gemma_ && Is("(")) return List(")");
        if (AtEnd()) return None();
        if (!gemma_ && AtString()) return Strings();
        if (text_[at_] == '"' || text_[at_] == '\'') return Text();
        return Scalar();
    }
    // Reads the members through "}".
    OrderedJson Object() {
        ++depth_;
        OrderedJson object = OrderedJson::object();
        while (!Is("}")) {
            OrderedJson key = Key();
            if (!key.is_string() || !Is(":")) return None();
            OrderedJson value = Value();
            if (value.is_discarded() || object.size() >= kMostMembers) return None();
            object[key.get_ref<const std::string&>()] = std::move(value);
            if (!Is(",") && !text_.substr(at_).starts_with('}')) return None();
        }
        --depth_;
        return object;
    }

    static constexpr size_t kMostMembers = 1000;  // each member is compared with all others

  private:
    static OrderedJson None() { return OrderedJson(OrderedJson::value_t::discarded); }

    void SkipSpace() {
        while (at_ < text_.size() &&
               std::string_view(" \t\r\n").find(text_[at_]) != std::string_view::npos) {
            ++at_;
        }
    }
    OrderedJson List(std::string_view end) {
        ++depth_;
        OrderedJson list = OrderedJson::array();
        while (!Is(end)) {
            OrderedJson value = Value();
            if (value.is_discarded()) return None();
            list.push_back(std::move(value));
            if (!Is(",") && !text_.substr(at_).starts_with(end)) return None();
        }
        --depth_;
        return list;
    }
    OrderedJson Key() {
        if (gemma_ && Is(quote_)) return GemmaText();
        SkipSpace();
        const char first = at_ < text_.size() ? text_[at_] : '\0';
        if (first == '"' || first == '\'' || !gemma_) return Value();
        const size_t end = KeyEnd();
        const std::string_view key = TrimBlanks(text_.substr(at_, end - at_));
        if (key.empty()) return None();
        at_ = end;
        return std::string(key);
    }
    // The colon after the bare key at at_. A key may contain colons, too ("09:00"): if the value is
    // quoted or bracketed, it begins right behind the colon.
    size_t KeyEnd() const {
        const size_t first = text_.find_first_of(":,{}", at_);
        for (size_t end = first; end != text_.npos && text_[end] == ':';
             end = text_.find_first_of(":,{}", end + 1)) {
            const std::string_view value = TrimBlanks(text_.substr(end + 1));
            if (value.starts_with(quote_) || value.find_first_of("{[\"") == 0) return end;
        }
        return std::min(first, text_.size());
    }
    OrderedJson GemmaText() {
        const size_t end = text_.find(quote_, at_);
        if (end == text_.npos) return None();
        const std::string_view inner = text_.substr(at_, end - at_);
        at_ = end + quote_.size();
        return std::string(inner);
    }
    // Whether a Python string begins here, also r"..." or u"...".
    bool AtString() const {
        const std::string_view rest = text_.substr(at_);
        const size_t quote = rest.find_first_of("rRuU") == 0 ? 1 : 0;
        return quote < rest.size() && (rest[quote] == '"' || rest[quote] == '\'');
    }
    // Adjacent strings are one.
    OrderedJson Strings() {
        if (raw_ && depth_ == 0 && text_[at_] == '\'') return Text();
        std::string all;
        do {
            const bool plain = (text_[at_] | 0x20) == 'r';
            if (std::isalpha(static_cast<unsigned char>(text_[at_])) != 0) ++at_;
            OrderedJson one = Text(plain);
            if (one.is_discarded()) return one;
            all += one.get_ref<const std::string&>();
        } while (!AtEnd() && AtString());
        return all;
    }
    // plain: a backslash is a character.
    OrderedJson Text(bool plain = false) {
        const char quote = text_[at_++];
        if (raw_ && depth_ == 0 && quote == '\'') return RawText();
        const std::string three(3, quote);
        const bool longer = !gemma_ && text_.substr(at_ - 1).starts_with(three);
        if (longer) at_ += 2;
        const std::string_view end = std::string_view(three).substr(0, longer ? 3 : 1);
        std::string out;
        while (at_ < text_.size() && !text_.substr(at_).starts_with(end)) {
            if (text_[at_] == '\\' && plain) {
                out += text_.substr(at_, 2);
                at_ += std::min<size_t>(2, text_.size() - at_);
            } else if (text_[at_] != '\\') {
                out += text_[at_++];
            } else if (!Escape(out)) {
                return None();
            }
        }
        if (at_ == text_.size()) return None();
        at_ += end.size();
        return out;
    }
    // The text up to the first quote that ends an argument.
    OrderedJson RawText() {
        for (size_t end = at_; (end = text_.find('\'', end)) != text_.npos; ++end) {
            if (!EndsArgument(text_.substr(end + 1))) continue;
            const std::string_view inner = text_.substr(at_, end - at_);
            at_ = end + 1;
            return std::string(inner);
        }
        return None();
    }
    // Whether `rest` begins with ", name=", or with ")" before the next call or the end.
    static bool EndsArgument(std::string_view rest) {
        LiteralReader reader(rest);
        if (reader.Is(")")) {
            if (reader.Is(",") || reader.Is(";")) {
                return !reader.Word().empty() && reader.Is("(");
            }
            reader.Is("]");
            return reader.AtEnd();
        }
        return reader.Is(",") && !reader.Word().empty() && reader.Is("=");
    }
    bool Escape(std::string& out) {
        if (++at_ >= text_.size()) return false;
        const char c = text_[at_++];
        constexpr std::string_view kLetters = "ntrbf0", kBytes("\n\t\r\b\f\0", 6);
        const size_t simple = kLetters.find(c);
        if (simple != kLetters.npos) {
            out += kBytes[simple];
            return true;
        }
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
        if (digits > 0) return Point(digits, out);
        if (c == '\n') return true;  // a line continuation
        if (std::string_view("\\'\"/").find(c) == std::string_view::npos) out += '\\';
        out += c;
        return true;
    }
    bool Point(size_t digits, std::string& out) {
        uint32_t point = 0;
        if (!Hex(digits, point)) return false;
        const bool first = point >= 0xD800 && point < 0xDC00;
        if (first && text_.substr(at_).starts_with("\\u")) {
            at_ += 2;
            uint32_t second = 0;
            if (!Hex(4, second) || second < 0xDC00 || second > 0xDFFF) return false;
            point = 0x10000 + ((point - 0xD800) << 10) + (second - 0xDC00);
        }
        if (point > 0x10FFFF || (point >= 0xD800 && point <= 0xDFFF)) return false;
        AppendUtf8(point, out);
        return true;
    }
    bool Hex(size_t digits, uint32_t& value) {
        if (text_.size() - at_ < digits) return false;
        for (size_t i = 0; i < digits; ++i, ++at_) {
            const auto c = static_cast<unsigned char>(text_[at_]);
            if (std::isxdigit(c) == 0) return false;
            value = value << 4 | static_cast<uint32_t>(c <= '9' ? c - '0' : (c | 32) - 'a' + 10);
        }
        return true;
    }
    // A number or a word; Gemma's strings may lack their quotes.
    OrderedJson Scalar() {
        const size_t end =
            std::min(text_.find_first_of(gemma_ ? ",}]" : ",}]) \t\r\n:", at_), text_.size());
        const std::string_view word = TrimBlanks(text_.substr(at_, end - at_));
        at_ = end;
        if (word == "True" || word == "true") return true;
        if (word == "False" || word == "false") return false;
        if (word == "None" || word == "none" || word == "null") return nullptr;
        OrderedJson number = gemma_ ? ReadJson(word) : PythonNumber(word);
        if (number.is_number() || IsDigits(number)) return number;
        return gemma_ && !word.empty() ? OrderedJson(std::string(word)) : None();
    }

    // A number of JSON or of Python, such as 0x1F, 1_000 and .5.
    static OrderedJson PythonNumber(std::string_view word) {
        std::string digits(word);
        std::erase(digits, '_');
        const size_t sign = digits.find_first_of("+-") == 0 ? 1 : 0;
        const std::string size = digits.substr(sign);
        constexpr std::pair<std::string_view, int> kBases[] = {{"0x", 16}, {"0o", 8}, {"0b", 2}};
        for (const auto& [begin, base] : kBases) {
            if (!size.starts_with(begin)) continue;
            int64_t number = 0;
            const std::string whole = digits.substr(0, sign).append(size.substr(2));
            const char* const end = whole.data() + whole.size();
            const auto read = std::from_chars(whole.data(), end, number, base);
            return read.ptr == end && read.ec == std::errc() ? OrderedJson(number) : None();
        }
        if (digits.starts_with('+')) digits.erase(0, 1);
        if (size.starts_with('.')) digits.insert(digits.find('.'), 1, '0');
        if (digits.ends_with('.')) digits += '0';
        return ReadJson(digits);
    }

    std::string_view text_;
    const std::string_view quote_;
    const bool gemma_, raw_;
    size_t at_ = 0, values_ = 0;
    int depth_ = 0;
};

// Reads "f(a=1)".
bool ReadPythonCall(LiteralReader& reader, ToolCall& call) {
    call = {std::string(reader.Word()), OrderedJson::object()};
    if (call.name.empty() || !reader.Is("(")) return false;
    for (bool more = true; !reader.Is(")");) {
        const std::string key(reader.Word());
        if (!more || key.empty() || !reader.Is("=")) return false;
        OrderedJson value = reader.Value();
        if (value.is_discarded() || call.arguments.size() >= LiteralReader::kMostMembers) {
            return false;
        }
        call.arguments[key] = std::move(value);
        more = reader.Is(",");
    }
    return true;
}

}  // namespace

OrderedJson ReadPythonValue(std::string_view text) {
    LiteralReader reader(text);
    OrderedJson value = reader.Value();
    if (value.is_discarded() || !reader.AtEnd()) {
        return OrderedJson(OrderedJson::value_t::discarded);
    }
    return value;
}

Calls ReadPythonCalls(std::string_view text, bool raw) {
    LiteralReader reader(text, {}, raw);
    const bool listed = reader.Is("[");
    std::vector<ToolCall> calls;
    while (!reader.AtEnd() && !(listed && reader.Is("]"))) {
        ToolCall call;
        if (!ReadPythonCall(reader, call)) return {};
        calls.push_back(std::move(call));
        if (!reader.Is(",")) reader.Is(";");
    }
    if (!reader.AtEnd() || calls.empty()) return {};
    return calls;
}

Calls ReadGemmaCall(std::string_view text, std::string_view quote) {
    LiteralReader reader(text, quote);
    if (!reader.Is("call:")) return {};
    std::string name(reader.Word());
    if (name.empty() || !reader.Is("{")) return {};
    OrderedJson arguments = reader.Object();
    if (arguments.is_discarded() || !reader.AtEnd()) return {};
    std::vector<ToolCall> calls;
    calls.push_back({std::move(name), std::move(arguments)});
    return calls;
}

}  // namespace weft::chat
