#include "chat/answer_calls.h"

#include "chat/answer_grammar.h"

#include <algorithm>
#include <utility>

#include "base/json_digits.h"
#include "chat/json_repair.h"

namespace weft::chat {
namespace {

constexpr std::string_view kCallBlanks = " \t\r\n";
constexpr size_t kMostValues = 1 << 18;  // per call
// per call in XML; each parameter is compared with all others
constexpr size_t kMostParameters = 1000;
// DeepSeek's markers use the wide bar U+FF5C and SentencePiece's blank U+2581.
constexpr std::string_view kDeepSeekSeparator =
    "<\xEF\xBD\x9C"
    "tool\xE2\x96\x81sep\xEF\xBD\x9C>";

// bare: accept a call without arguments.
std::optional<ToolCall> FromJson(OrderedJson json, bool bare) {
    if (!json.is_object()) return {};
    if (const auto inner = json.find("function"); inner != json.end() && inner->is_object()) {
        return FromJson(OrderedJson(*inner), bare);
    }
    auto name = json.find("name");
    if (name == json.end()) name = json.find("tool_name");
    if (name == json.end() || !name->is_string() || *name == "") return {};
    ToolCall call{name->get<std::string>(), OrderedJson::object()};
    for (const char* key : {"arguments", "parameters"}) {
        const auto found = json.find(key);
        if (found == json.end()) continue;
        if (found->is_null() || *found == "") return call;  // none
        call.arguments = std::move(*found);
        // Some models write the object as a JSON string.
        if (call.arguments.is_string()) {
            OrderedJson inner = ReadJson(call.arguments.get_ref<const std::string&>());
            if (inner.is_object()) call.arguments = std::move(inner);
        }
        return call;
    }
    if (!bare) return {};
    return call;
}

Calls One(std::optional<ToolCall> call) {
    if (!call) return {};
    std::vector<ToolCall> calls;
    calls.push_back(std::move(*call));
    return calls;
}

// End of the JSON object or list at text[0], found by its brackets; npos: unterminated.
size_t JsonEnd(std::string_view text) {
    int depth = 0;
    bool quoted = false;
    for (size_t at = 0; at < text.size(); ++at) {
        const char c = text[at];
        if (quoted) {
            if (c == '\\') ++at;
            if (c == '"') quoted = false;
            continue;
        }
        if (c == '"') quoted = true;
        if (c == '{' || c == '[') ++depth;
        if ((c == '}' || c == ']') && --depth == 0) return at + 1;
    }
    return text.npos;
}

#define WEFT_DSML  \
    "\xEF\xBD\x9C" \
    "DSML\xEF\xBD\x9C"
#define WEFT_GCML  \
    "\xEF\xBD\x9C" \
    "GCML\xEF\xBD\x9C"
constexpr ArgumentTags kQwenTags = {"<parameter=", ">", "", "</parameter>", true};
constexpr ArgumentTags kTightTags = {"<parameter=", ">", "", "</parameter>"};
constexpr ArgumentTags kGlmTags = {"<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"};
constexpr ArgumentTags kLongcatTags = {"<longcat_arg_key>", "</longcat_arg_key>",
                                       "<longcat_arg_value>", "</longcat_arg_value>"};
constexpr ArgumentTags kHunyuanTags = {"<arg_key:opensource>", "</arg_key:opensource>",
                                       "<arg_value:opensource>", "</arg_value:opensource>"};
constexpr ArgumentTags kMiniMaxTags = {"<parameter name=", ">", "", "</parameter>"};
constexpr ArgumentTags kMiniCpmTags = {"<param name=", ">", "", "</param>", false, true};
constexpr ArgumentTags kAtemTags = {"<atem:parameter name=", ">", "", "</atem:parameter>"};
constexpr ArgumentTags kDsmlTags = {"<" WEFT_DSML "parameter name=", ">", "",
                                    "</" WEFT_DSML "parameter>"};
constexpr ArgumentTags kGcmlTags = {"<" WEFT_GCML "parameter name=", ">", "",
                                    "</" WEFT_GCML "parameter>"};
constexpr TaggedCall kTaggedForms[] = {{"<function=", kQwenTags}, {"", kGlmTags}};
constexpr TaggedCall kTightForms[] = {{"<function=", kTightTags}, {"", kGlmTags}};
constexpr TaggedCall kLongcatForms[] = {{"", kLongcatTags}};
constexpr TaggedCall kMiniMaxForms[] = {{"<invoke name=", kMiniMaxTags}};
constexpr TaggedCall kDsmlForms[] = {{"<" WEFT_DSML "invoke name=", kDsmlTags}};
constexpr TaggedCall kGcmlForms[] = {{"<" WEFT_GCML "invoke name=", kGcmlTags}};

// Finds a value's end. A value may contain the end tag, so the first end tag followed by another
// key or by nothing is preferred; then the first end tag. Models forget the last end tag: without
// an end tag, the value ends at the next key or at the end of the text.
size_t ValueEnd(std::string_view text, const ArgumentTags& tags) {
    const size_t first = text.find(tags.value_end);
    for (size_t end = first; end != text.npos; end = text.find(tags.value_end, end + 1)) {
        const size_t next = text.find_first_not_of(kCallBlanks, end + tags.value_end.size());
        if (next == text.npos || text.substr(next).starts_with(tags.key_begin)) return end;
    }
    return std::min({first, text.find(tags.key_begin), text.size()});
}

// Parses all of `text` as arguments of the call.
bool ReadTaggedArguments(std::string_view text, const ArgumentTags& tags, const ToolTypes& types,
                         ToolCall& call) {
    for (text = TrimBlanks(text); !text.empty(); text = TrimBlanks(text)) {
        if (!text.starts_with(tags.key_begin)) return false;
        text.remove_prefix(tags.key_begin.size());
        const size_t key_end = text.find(tags.key_end);
        if (key_end == text.npos || call.arguments.size() >= kMostParameters) return false;
        const WrittenKey key(text.substr(0, key_end));
        text.remove_prefix(key_end + tags.key_end.size());
        if (!tags.value_begin.empty()) {
            text = TrimBlanks(text);
            if (!text.starts_with(tags.value_begin)) return false;
            text.remove_prefix(tags.value_begin.size());
        }
        const size_t end = ValueEnd(text, tags);
        const std::string_view value = text.substr(0, end);
        text.remove_prefix(end);
        if (text.starts_with(tags.value_end)) text.remove_prefix(tags.value_end.size());
        call.arguments[key.name] = key.ValueOf(call.name, ValueText(value, tags), types);
    }
    return true;
}

// <function=NAME>...</function>; the end tag may be missing.
Calls ReadFunctionXml(std::string_view text, const ArgumentTags& tags, const ToolTypes& types) {
    constexpr std::string_view kOpen = "<function=", kClose = "</function>";
    const size_t name_end = text.find('>');
    if (!text.starts_with(kOpen) || name_end == text.npos) return {};
    ToolCall call{std::string(WithoutQuotes(text.substr(kOpen.size(), name_end - kOpen.size()))),
                  OrderedJson::object()};
    if (!IsCallName(call.name)) return {};
    text = TrimBlanks(text.substr(name_end + 1));
    if (text.ends_with(kClose)) text.remove_suffix(kClose.size());
    if (text.starts_with('{')) {  // Llama: JSON between the tags
        call.arguments = ReadWrittenJson(TrimBlanks(text));
        if (!call.arguments.is_object()) return {};
        return One(std::move(call));
    }
    if (!ReadTaggedArguments(text, tags, types, call)) return {};
    return One(std::move(call));
}

// NAME, an optional `behind_name`, and pairs of keys and values.
Calls ReadPairs(std::string_view text, std::string_view behind_name, const ArgumentTags& tags,
                const ToolTypes& types) {
    const size_t name_end =
        std::min({text.find(behind_name), text.find(tags.key_begin), text.size()});
    ToolCall call{std::string(TrimBlanks(text.substr(0, name_end))), OrderedJson::object()};
    if (!IsCallName(call.name)) return {};
    text.remove_prefix(name_end);
    if (text.starts_with(behind_name)) text.remove_prefix(behind_name.size());
    if (!ReadTaggedArguments(text, tags, types, call)) return {};
    return One(std::move(call));
}

// NAME and JSON, as text or in a fence.
Calls ReadNameAndJson(std::string_view name, std::string_view rest) {
    constexpr std::string_view kFence = "```";
    name = TrimBlanks(name);
    rest = TrimBlanks(rest);
    if (rest.starts_with(kFence)) {
        const size_t line = rest.find('\n');
        if (line == rest.npos || !rest.ends_with(kFence)) return {};
        rest = rest.substr(line, rest.size() - line - kFence.size());
    }
    OrderedJson arguments = rest.empty() ? OrderedJson::object() : ReadWrittenJson(rest);
    if (!IsCallName(name) || arguments.is_discarded()) return {};
    return One(ToolCall{std::string(name), std::move(arguments)});
}

size_t Count(std::string_view text, std::string_view part) {
    size_t count = 0;
    for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
    return count;
}

// The start of the tag that ends a call. A value may contain calls: an end that a call or nothing
// follows counts if every value before it has ended.
size_t InvokeEnd(std::string_view text, const ArgumentTags& invoke, const ArgumentTags& tags) {
    const std::string_view close = invoke.value_end;
    size_t open_values = 0, counted = 0;
    for (size_t end = text.find(close); end != text.npos; end = text.find(close, end + 1)) {
        const std::string_view more = text.substr(counted, end - counted);
        open_values += Count(more, tags.key_begin) - Count(more, tags.value_end);
        counted = end;
        const size_t next = text.find_first_not_of(kCallBlanks, end + close.size());
        const bool ends = next == text.npos || text.substr(next).starts_with(invoke.key_begin);
        if (ends && open_values == 0) return end;
    }
    return ValueEnd(text, invoke);
}

// One or more calls between `invoke.key_begin NAME>` and invoke.value_end.
Calls ReadInvokes(std::string_view text, const ArgumentTags& invoke, const ArgumentTags& tags,
                  const ToolTypes& types) {
    const std::string_view open = invoke.key_begin, close = invoke.value_end;
    std::vector<ToolCall> calls;
    // The tag that ends the last call may be missing together with the end marker.
    std::string whole(TrimBlanks(text));
    if (!whole.ends_with(close)) whole += close;
    text = whole;
    for (text = TrimBlanks(text); !text.empty(); text = TrimBlanks(text)) {
        const size_t name_end = text.find('>');
        if (!text.starts_with(open) || name_end == text.npos) return {};
        ToolCall call{std::string(WithoutQuotes(text.substr(open.size(), name_end - open.size()))),
                      OrderedJson::object()};
        text.remove_prefix(name_end + 1);
        const size_t end = InvokeEnd(text, invoke, tags);
        const std::string_view arguments = text.substr(0, end);
        text.remove_prefix(end);
        if (text.starts_with(close)) text.remove_prefix(close.size());
        if (!IsCallName(call.name) || !ReadTaggedArguments(arguments, tags, types, call)) return {};
        calls.push_back(std::move(call));
    }
    if (calls.empty()) return {};
    return calls;
}

// Inside <tool_call>: the formats of ReadTaggedCall; `tags` are those of Qwen-Coder's XML.
Calls ReadTagged(std::string_view text, const ArgumentTags& tags, const ToolTypes& types) {
    text = TrimBlanks(text);
    if (text.starts_with('{')) {
        const Calls one = One(FromJson(ReadWrittenJson(text), true));
        return one ? one : ReadLlamaCalls(text);
    }
    if (text.starts_with('[')) return ReadCallList(text, types);
    if (text.starts_with("<function=")) {
        const Calls calls = ReadInvokes(text, {"<function=", "", "", "</function>"}, tags, types);
        return calls ? calls : ReadFunctionXml(text, tags, types);
    }
    // Hunyuan's dense models: the name, then JSON in a fence.
    const size_t line = text.find('\n');
    if (line != text.npos && TrimBlanks(text.substr(line)).starts_with("```")) {
        return ReadNameAndJson(text.substr(0, line), text.substr(line));
    }
    return ReadPairs(text, "<tool_sep>", kGlmTags, types);  // GLM, Hy3-preview
}

// Parser of MiniMax M3's tags, each preceded by a mark. Consumes the text; returns false on errors.
class MarkedTags {
  public:
    MarkedTags(std::string_view text, const ToolTypes& types) : text_(text), types_(types) {}

    bool AtEnd() {
        text_ = TrimBlanks(text_);
        return text_.empty();
    }
    bool Call(ToolCall& call) {
        constexpr std::string_view kInvoke = "invoke name=";
        std::string tag;
        if (!Open(tag) || !tag.starts_with(kInvoke)) return false;
        call = {std::string(WithoutQuotes(std::string_view(tag).substr(kInvoke.size()))),
                OrderedJson::object()};
        if (!IsCallName(call.name)) return false;
        while (!Close("invoke")) {
            std::string key;
            if (AtEnd()) return true;  // models forget the last tag
            if (++values_ > kMostParameters || !Open(key)) return false;
            OrderedJson value = Value(key, 0);
            if (value.is_discarded()) return false;
            const bool words = value.is_string();
            call.arguments[key] =
                words ? types_.ValueOf(call.name, key, value.get_ref<std::string&>()) : value;
        }
        return true;
    }

  private:
    static constexpr std::string_view kMark = "]<]minimax[>[";
    static constexpr int kMostDepth = 64;

    // Reads MARK<tag>, any tag except a closing one.
    bool Open(std::string& tag) {
        std::string_view rest = TrimBlanks(text_);
        if (!rest.starts_with(kMark)) return false;
        rest.remove_prefix(kMark.size());
        const size_t end = rest.find('>');
        if (!rest.starts_with('<') || rest.starts_with("</") || end == rest.npos) return false;
        tag = rest.substr(1, end - 1);
        text_ = rest.substr(end + 1);
        return !tag.empty();
    }
    bool Close(const std::string& tag) {
        const std::string_view rest = TrimBlanks(text_);
        const std::string close = std::string(kMark) + "</" + tag + ">";
        if (!rest.starts_with(close)) return false;
        text_ = rest.substr(close.size());
        return true;
    }
    // Reads the value after MARK<tag> through its closing tag: a string, an object or a list.
    OrderedJson Value(const std::string& tag, int depth) {
        const OrderedJson none = OrderedJson(OrderedJson::value_t::discarded);
        if (depth > kMostDepth) return none;
        std::string key;
        if (!Open(key)) {
            const size_t end = text_.find(std::string(kMark) + "</" + tag + ">");
            if (end == text_.npos) return none;
            OrderedJson words = std::string(text_.substr(0, end));
            text_.remove_prefix(end);
            return Close(tag) ? words : none;
        }
        const bool list = key == "item";
        OrderedJson value = list ? OrderedJson::array() : OrderedJson::object();
        do {
            OrderedJson inner = Value(key, depth + 1);
            if (inner.is_discarded() || ++values_ > kMostParameters) return none;
            if (inner.is_string()) inner = types_.ValueOf("", "", inner.get_ref<std::string&>());
            if ((key == "item") != list) return none;
            list ? value.push_back(std::move(inner)) : void(value[key] = std::move(inner));
        } while (Open(key));
        return Close(tag) ? value : none;
    }

    std::string_view text_;
    const ToolTypes& types_;
    size_t values_ = 0;
};

}  // namespace

const std::span<const TaggedCall> kTaggedCalls = kTaggedForms, kTightCalls = kTightForms,
                                  kLongcatCalls = kLongcatForms, kMiniMaxCalls = kMiniMaxForms,
                                  kDsmlCalls = kDsmlForms, kGcmlCalls = kGcmlForms;

bool IsCallName(std::string_view text) {
    return !text.empty() && text.size() <= 256 && text.find_first_of(" \t\r\n<>{}\"") == text.npos;
}

std::string_view TrimBlanks(std::string_view text) {
    const size_t begin = text.find_first_not_of(kCallBlanks);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(kCallBlanks) - begin + 1);
}

OrderedJson ReadJson(std::string_view text) {
    std::string plain;
    if (text.find(kLetters) != text.npos) {
        plain = text;
        std::erase(plain, kLetters);
        text = plain;
    }
    auto parsed = ParseJsonWithDigits(text, {.values = kMostValues});
    return parsed.ok() ? *std::move(parsed) : OrderedJson(OrderedJson::value_t::discarded);
}

OrderedJson ReadWrittenJson(std::string_view text) {
    OrderedJson json = ReadJson(text);
    if (json.is_discarded()) json = ReadJson(Repaired(text));
    return json;
}

ToolCall CallAsWritten(std::string name, std::string arguments) {
    OrderedJson json = ReadWrittenJson(arguments);
    if (!json.is_discarded()) return {std::move(name), std::move(json)};
    return {std::move(name), Repaired(arguments), true};
}

std::string ToolCall::ArgumentsText() const {
    return as_written ? arguments.get<std::string>() : DumpJson(arguments);
}

Calls ReadHunyuanCall(std::string_view text, const ToolTypes& types) {
    return ReadPairs(text, "<tool_sep:opensource>", kHunyuanTags, types);
}

Calls ReadLongcatCall(std::string_view text, const ToolTypes& types) {
    const bool json = TrimBlanks(text).find_first_of("{[") == 0;
    return json ? ReadTaggedCall(text, types) : ReadPairs(text, "<tool_sep>", kLongcatTags, types);
}

std::string_view WithoutQuotes(std::string_view text) {
    text = TrimBlanks(text);
    const bool quoted = text.size() >= 2 && (text[0] == '"' || text[0] == '\'');
    return quoted && text.back() == text[0] ? text.substr(1, text.size() - 2) : text;
}

Calls ReadTaggedCall(std::string_view text, const ToolTypes& types) {
    return ReadTagged(text, kQwenTags, types);
}

Calls ReadTightTaggedCall(std::string_view text, const ToolTypes& types) {
    return ReadTagged(text, kTightTags, types);
}

Calls ReadBareFunction(std::string_view text, const ToolTypes& types) {
    return ReadFunctionXml(TrimBlanks(text), kQwenTags, types);
}

Calls ReadTightFunction(std::string_view text, const ToolTypes& types) {
    return ReadFunctionXml(TrimBlanks(text), kTightTags, types);
}

Calls ReadCallList(std::string_view text, const ToolTypes&) {
    OrderedJson json = ReadWrittenJson(TrimBlanks(text));
    if (json.is_object()) return One(FromJson(std::move(json), true));
    if (!json.is_array() || json.empty()) return {};
    std::vector<ToolCall> calls;
    for (OrderedJson& item : json) {
        auto call = FromJson(std::move(item), true);
        if (!call) return {};
        calls.push_back(std::move(*call));
    }
    return calls;
}

Calls ReadNamedCalls(std::string_view text, const ToolTypes&) {
    OrderedJson json = ReadWrittenJson(TrimBlanks(text));
    if (!json.is_array() || json.empty()) return {};
    std::vector<ToolCall> calls;
    for (OrderedJson& item : json) {
        if (!item.is_object()) return {};
        for (auto& [name, arguments] : item.items()) {
            if (!IsCallName(name) || !arguments.is_object()) return {};
            calls.push_back({name, std::move(arguments)});
        }
    }
    if (calls.empty()) return {};
    return calls;
}

Calls ReadMiniMaxCalls(std::string_view text, const ToolTypes& types) {
    return ReadInvokes(text, {"<invoke name=", "", "", "</invoke>"}, kMiniMaxTags, types);
}

Calls ReadMiniMaxM3Calls(std::string_view text, const ToolTypes& types) {
    MarkedTags tags(text, types);
    std::vector<ToolCall> calls;
    while (!tags.AtEnd()) {
        if (!tags.Call(calls.emplace_back())) return {};
    }
    if (calls.empty()) return {};
    return calls;
}

Calls ReadDsmlCalls(std::string_view text, const ToolTypes& types) {
    return ReadInvokes(text, {"<" WEFT_DSML "invoke name=", "", "", "</" WEFT_DSML "invoke>"},
                       kDsmlTags, types);
}

Calls ReadGcmlCalls(std::string_view text, const ToolTypes& types) {
    return ReadInvokes(text, {"<" WEFT_GCML "invoke name=", "", "", "</" WEFT_GCML "invoke>"},
                       kGcmlTags, types);
}
#undef WEFT_DSML
#undef WEFT_GCML

Calls ReadMiniCpmCalls(std::string_view text, const ToolTypes& types) {
    return ReadInvokes(text, {"<function name=", "", "", "</function>"}, kMiniCpmTags, types);
}

Calls ReadHunyuanList(std::string_view text, const ToolTypes& types) {
    constexpr std::string_view kBegin = "<tool_call>", kEnd = "</tool_call>";
    text = TrimBlanks(text);
    if (!text.starts_with(kBegin)) return ReadCallList(text, types);
    std::vector<ToolCall> calls;
    for (; !text.empty(); text = TrimBlanks(text)) {
        if (!text.starts_with(kBegin)) return {};
        text.remove_prefix(kBegin.size());
        // An end tag in an argument does not end the call.
        size_t end = text.find(kEnd);
        while (end != text.npos && !TrimBlanks(text.substr(0, end)).ends_with("```")) {
            end = text.find(kEnd, end + 1);
        }
        const Calls call = ReadTaggedCall(text.substr(0, end), types);
        if (!call) return {};
        calls.insert(calls.end(), call->begin(), call->end());
        text.remove_prefix(end == text.npos ? text.size() : end + kEnd.size());
    }
    return calls;
}

Calls ReadActions(std::string_view text, const ToolTypes& types) {
    Calls calls = ReadCallList(text, types);
    if (calls) {
        std::erase_if(*calls, [](const ToolCall& call) {
            return call.name == "directly-answer" || call.name == "directly_answer";
        });
    }
    return calls;
}

Calls ReadAtemCalls(std::string_view text, const ToolTypes& types) {
    constexpr std::string_view kBegin = "<atem:function_calls>", kEnd = "</atem:function_calls>";
    text = TrimBlanks(text);
    if (!text.starts_with(kBegin)) return {};
    text.remove_prefix(kBegin.size());
    if (text.ends_with(kEnd)) text.remove_suffix(kEnd.size());
    return ReadInvokes(text, {"<atem:invoke name=", "", "", "</atem:invoke>"}, kAtemTags, types);
}

Calls ReadSolarCall(std::string_view text, const ToolTypes&) {
    constexpr std::string_view kName = "<|tool_call:name|>", kArguments = "<|tool_call:args|>";
    const size_t name_at = text.find(kName);
    if (name_at == text.npos) return {};
    text.remove_prefix(name_at + kName.size());
    const size_t name_end = text.find(kArguments);
    if (name_end == text.npos) return {};
    const std::string_view name = TrimBlanks(text.substr(0, name_end));
    const std::string_view rest = TrimBlanks(text.substr(name_end + kArguments.size()));
    OrderedJson arguments = rest.empty() ? OrderedJson::object() : ReadWrittenJson(rest);
    if (!IsCallName(name) || !arguments.is_object()) return {};
    return One(ToolCall{std::string(name), std::move(arguments)});
}

Calls ReadKimiCall(std::string_view text, const ToolTypes&) {
    constexpr std::string_view kSeparator = "<|tool_call_argument_begin|>";
    const size_t separator = text.find(kSeparator);
    if (separator == text.npos) return {};
    std::string_view name = TrimBlanks(text.substr(0, separator));
    if (name.starts_with("functions.")) name.remove_prefix(name.find('.') + 1);
    const size_t number = name.rfind(':');
    if (number != name.npos && name.find_first_not_of("0123456789", number + 1) == name.npos) {
        name = name.substr(0, number);
    }
    const std::string_view rest = TrimBlanks(text.substr(separator + kSeparator.size()));
    OrderedJson arguments = rest.empty() ? OrderedJson::object() : ReadWrittenJson(rest);
    if (!IsCallName(name) || !arguments.is_object()) return {};
    return One(ToolCall{std::string(name), std::move(arguments)});
}

Calls ReadLlamaCalls(std::string_view text) {
    std::vector<ToolCall> calls;
    for (text = TrimBlanks(text); !text.empty();) {
        if (!text.starts_with('{')) return {};
        const size_t end = JsonEnd(text);
        if (end == text.npos) return {};
        auto call = FromJson(ReadWrittenJson(text.substr(0, end)), false);
        if (!call) return {};
        calls.push_back(std::move(*call));
        text = TrimBlanks(text.substr(end));
        if (text.starts_with(';') || text.starts_with(',')) text = TrimBlanks(text.substr(1));
    }
    if (calls.empty()) return {};
    return calls;
}

Calls ReadDeepSeekCall(std::string_view text, const ToolTypes&) {
    const size_t separator = text.find(kDeepSeekSeparator);
    if (separator == text.npos) return {};
    std::string_view name = TrimBlanks(text.substr(0, separator));
    std::string_view rest = TrimBlanks(text.substr(separator + kDeepSeekSeparator.size()));
    if (name == "function" && !rest.starts_with('{')) {
        const size_t line = rest.find('\n');
        if (line == rest.npos) return {};
        name = TrimBlanks(rest.substr(0, line));
        rest = TrimBlanks(rest.substr(line));
    }
    return ReadNameAndJson(name, rest);
}

Calls ReadMistralCalls(std::string_view text, const ToolTypes& types) {
    text = TrimBlanks(text);
    if (text.starts_with('[') || text.starts_with('{')) return ReadCallList(text, types);
    const size_t name_end = text.find_first_of("[{");
    const size_t object = text.find('{');
    if (object == text.npos) return {};
    const std::string_view name = TrimBlanks(text.substr(0, name_end));
    OrderedJson arguments = ReadWrittenJson(text.substr(object));
    if (!IsCallName(name) || arguments.is_discarded()) return {};
    return One(ToolCall{std::string(name), std::move(arguments)});
}

}  // namespace weft::chat
