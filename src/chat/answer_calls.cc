#include "chat/answer_calls.h"

#include <algorithm>
#include <utility>

#include "base/json.h"

namespace weft::chat {
namespace {

constexpr std::string_view kCallBlanks = " \t\r\n";
constexpr size_t kMostValues = 1 << 18;   // of one call
constexpr size_t kMostParameters = 1000;  // of one in XML: each is looked for among all
// DeepSeek's markers have wide bars (U+FF5C) and blanks of SentencePiece (U+2581).
constexpr std::string_view kDeepSeekSeparator =
    "<\xEF\xBD\x9C"
    "tool\xE2\x96\x81sep\xEF\xBD\x9C>";

std::optional<ToolCall> FromJson(OrderedJson json) {
    if (!json.is_object()) return {};
    const auto name = json.find("name");
    if (name == json.end() || !name->is_string()) return {};
    ToolCall call{name->get<std::string>(), OrderedJson::object()};
    for (const char* key : {"arguments", "parameters"}) {
        const auto found = json.find(key);
        if (found == json.end()) continue;
        call.arguments = std::move(*found);
        // Some models write the object as a string.
        if (call.arguments.is_string()) {
            OrderedJson inner = ReadJson(call.arguments.get_ref<const std::string&>());
            if (inner.is_object()) call.arguments = std::move(inner);
        }
        return call;
    }
    return {};
}

Calls One(std::optional<ToolCall> call) {
    if (!call) return {};
    std::vector<ToolCall> calls;
    calls.push_back(std::move(*call));
    return calls;
}

// The end of the JSON object or list that begins at text[0], by its brackets; npos: it has none.
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

bool IsName(std::string_view text) {
    return !text.empty() && text.size() <= 256 && text.find_first_of(" \t\r\n<>{}\"") == text.npos;
}

// A value of Qwen's XML: JSON where it is some, else the text without the line ends around it.
OrderedJson ParameterValue(std::string_view text) {
    if (text.starts_with('\n')) text.remove_prefix(1);
    if (text.ends_with('\n')) text.remove_suffix(1);
    OrderedJson json = ReadJson(text);
    return json.is_discarded() ? OrderedJson(std::string(text)) : json;
}

Calls ReadFunctionXml(std::string_view text) {
    constexpr std::string_view kOpen = "<function=", kClose = "</function>";
    constexpr std::string_view kKey = "<parameter=", kKeyEnd = "</parameter>";
    const size_t name_end = text.find('>');
    if (!text.starts_with(kOpen) || name_end == text.npos) return {};
    ToolCall call{std::string(text.substr(kOpen.size(), name_end - kOpen.size())),
                  OrderedJson::object()};
    if (!IsName(call.name)) return {};
    text = TrimBlanks(text.substr(name_end + 1));
    while (text.starts_with(kKey)) {
        const size_t key_end = text.find('>');
        const size_t end = text.find(kKeyEnd);
        if (key_end == text.npos || end == text.npos || end < key_end) return {};
        if (call.arguments.size() >= kMostParameters) return {};
        const std::string key(text.substr(kKey.size(), key_end - kKey.size()));
        call.arguments[key] = ParameterValue(text.substr(key_end + 1, end - key_end - 1));
        text = TrimBlanks(text.substr(end + kKeyEnd.size()));
    }
    if (text != kClose) return {};
    return One(std::move(call));
}

}  // namespace

std::string_view TrimBlanks(std::string_view text) {
    const size_t begin = text.find_first_not_of(kCallBlanks);
    if (begin == text.npos) return {};
    return text.substr(begin, text.find_last_not_of(kCallBlanks) - begin + 1);
}

OrderedJson ReadJson(std::string_view text) {
    return OrderedJsonOrDiscarded(text, {.values = kMostValues});
}

Calls ReadQwenCall(std::string_view text) {
    text = TrimBlanks(text);
    if (text.starts_with("<function=")) return ReadFunctionXml(text);
    return One(FromJson(ReadJson(text)));
}

Calls ReadLlamaCalls(std::string_view text) {
    std::vector<ToolCall> calls;
    for (text = TrimBlanks(text); !text.empty();) {
        if (!text.starts_with('{')) return {};
        const size_t end = JsonEnd(text);
        if (end == text.npos) return {};
        auto call = FromJson(ReadJson(text.substr(0, end)));
        if (!call) return {};
        calls.push_back(std::move(*call));
        text = TrimBlanks(text.substr(end));
        if (text.starts_with(';') || text.starts_with(',')) text = TrimBlanks(text.substr(1));
    }
    if (calls.empty()) return {};
    return calls;
}

Calls ReadDeepSeekCall(std::string_view text) {
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
    constexpr std::string_view kFence = "```";
    if (rest.starts_with(kFence)) {
        const size_t line = rest.find('\n');
        if (line == rest.npos || !rest.ends_with(kFence)) return {};
        rest = rest.substr(line, rest.size() - line - kFence.size());
    }
    OrderedJson arguments = ReadJson(rest);
    if (!IsName(name) || arguments.is_discarded()) return {};
    return One(ToolCall{std::string(name), std::move(arguments)});
}

Calls ReadMistralCalls(std::string_view text) {
    text = TrimBlanks(text);
    std::vector<ToolCall> calls;
    if (text.starts_with('[')) {
        OrderedJson list = ReadJson(text);
        if (!list.is_array() || list.empty()) return {};
        for (OrderedJson& item : list) {
            auto call = FromJson(std::move(item));
            if (!call) return {};
            calls.push_back(std::move(*call));
        }
        return calls;
    }
    const size_t name_end = text.find_first_of("[{");
    const size_t object = text.find('{');
    if (object == text.npos) return {};
    const std::string_view name = TrimBlanks(text.substr(0, name_end));
    OrderedJson arguments = ReadJson(text.substr(object));
    if (!IsName(name) || arguments.is_discarded()) return {};
    return One(ToolCall{std::string(name), std::move(arguments)});
}

}  // namespace weft::chat
