#include "chat/call_frame.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/json_digits.h"
#include "chat/answer_calls.h"
#include "chat/answer_rules.h"
#include "chat/tool_types.h"

namespace weft::chat {
namespace {

// Words that occur in no template. The keys are in alphabetical order, because some templates sort
// them.
constexpr std::string_view kFramed = "weft_framed_function";
constexpr std::string_view kKeys[] = {"framed_key_a", "framed_key_b", "framed_key_c"};
constexpr std::string_view kFramedText = "weft framed text";
constexpr std::string_view kNumbers[] = {"75319", "86420"};
// Limits on the template's output: a rendered conversation, and the text after a call.
constexpr size_t kMostTurnBytes = 1 << 17, kMostAfterBytes = 512;

OrderedJson FramedArguments() {
    return {{kKeys[0], kFramedText}, {kKeys[1], 75319}, {kKeys[2], 86420}};
}

OrderedJson FramedTools() {
    OrderedJson properties = OrderedJson::object();
    properties[std::string(kKeys[0])] = {{"type", "string"}, {"description", "A text."}};
    for (size_t i = 1; i < 3; ++i) {
        properties[std::string(kKeys[i])] = {{"type", "integer"}, {"description", "A number."}};
    }
    return OrderedJson::array(
        {{{"type", "function"},
          {"function",
           {{"name", kFramed},
            {"description", "A function."},
            {"parameters", {{"type", "object"}, {"properties", std::move(properties)}}}}}}});
}

std::string RenderedWith(const Chat& chat, const TemplateCapabilities& form, bool call) {
    ChatInput input = OneQuestion("", "Do it.");
    input.tools = FramedTools();
    input.now_s = 1;
    input.add_generation_prompt = !call;
    if (call) {
        OrderedJson function{{"name", kFramed}, {"arguments", FramedArguments()}};
        OrderedJson one{{"id", "call_0"}, {"type", "function"}, {"function", function}};
        input.messages.push_back({{"role", "assistant"},
                                  {"content", ""},
                                  {"tool_calls", OrderedJson::array({std::move(one)})}});
    }
    FitConversation(form, input);
    const auto text = chat.Render(input);
    return text.ok() ? text->bytes() : "";
}

// The template's text for the call, after the start of the answer and without reasoning.
std::string CallTurn(const Chat& chat, const TemplateCapabilities& form, ToolCallFormat family) {
    const AnswerRules rules = RulesOf(family);
    std::string prompt = RenderedWith(chat, form, false);
    const std::string turn = RenderedWith(chat, form, true);
    if (prompt.empty() || turn.empty()) return "";
    if (std::max(prompt.size(), turn.size()) > kMostTurnBytes) return "";
    if (!turn.starts_with(prompt) && !rules.think_begin.empty()) {
        prompt.resize(std::min(prompt.rfind(rules.think_begin), prompt.size()));
    }
    while (!prompt.empty() && !turn.starts_with(prompt) &&
           std::string_view(" \t\r\n").find(prompt.back()) != std::string_view::npos) {
        prompt.pop_back();
    }
    if (!turn.starts_with(prompt)) return "";
    std::string_view call = std::string_view(turn).substr(prompt.size());
    const size_t name = call.find(kFramed);
    if (name == call.npos || rules.think_end.empty()) return std::string(call);
    const size_t thought = call.substr(0, name).rfind(rules.think_end);
    if (thought != call.npos) call.remove_prefix(thought + rules.think_end.size());
    return std::string(call.substr(std::min(call.find_first_not_of("\r\n"), call.size())));
}

// Size of the JSON object at the start of `text`, without nested brackets; 0: no object with these
// arguments.
size_t FramedJsonEnd(std::string_view text) {
    const size_t end = text.find('}');
    return end != text.npos && ReadJson(text.substr(0, end + 1)) == FramedArguments() ? end + 1 : 0;
}

// Tries to read `rest`, the text after the name, as JSON arguments.
bool FrameJson(std::string_view rest, CallFrame& frame) {
    const size_t key = rest.find(kKeys[0]);
    const size_t begin = key == rest.npos ? key : rest.rfind('{', key);
    if (begin == rest.npos) return false;
    const size_t size = FramedJsonEnd(rest.substr(begin));
    if (size == 0) return false;
    frame.arguments = CallFrame::Arguments::kJson;
    frame.middle = rest.substr(0, begin);
    frame.after = rest.substr(begin + size);
    return true;
}

size_t CommonBegin(std::string_view a, std::string_view b) {
    return static_cast<size_t>(std::ranges::mismatch(a, b).in1 - a.begin());
}

size_t CommonEnd(std::string_view a, std::string_view b) {
    size_t size = 0;
    while (size < std::min(a.size(), b.size()) && a[a.size() - 1 - size] == b[b.size() - 1 - size])
        ++size;
    return size;
}

// Tries to read `rest` as key-value pairs.
bool FramePairs(std::string_view rest, CallFrame& frame) {
    const std::string_view marks[] = {kKeys[0],    kFramedText, kKeys[1],
                                      kNumbers[0], kKeys[2],    kNumbers[1]};
    std::vector<std::string_view> around;  // text before each mark, and after the last one
    for (const std::string_view mark : marks) {
        const size_t at = rest.find(mark);
        if (at == rest.npos) return false;
        around.push_back(rest.substr(0, at));
        rest.remove_prefix(at + mark.size());
    }
    // A string may be quoted; numbers are not.
    const std::string_view value = around[3], separator = around[4];
    if (around[5] != value || !around[1].starts_with(value) || !around[2].ends_with(separator)) {
        return false;
    }
    const std::string_view quote = around[1].substr(value.size());
    if (around[2] != std::string(quote).append(separator)) return false;
    const size_t open = CommonEnd(around[0], separator);
    const std::string_view end = separator.substr(0, separator.size() - open);
    const size_t close = CommonBegin(end, rest);
    const bool json = quote == "\"" || quote == "'";
    frame.arguments = quote.empty() ? CallFrame::Arguments::kTexts
                      : json        ? CallFrame::Arguments::kValues
                                    : CallFrame::Arguments::kQuoted;
    frame.quote = frame.arguments == CallFrame::Arguments::kQuoted ? quote : "";
    frame.middle = around[0].substr(0, around[0].size() - open);
    frame.before_key = separator.substr(separator.size() - open);
    frame.before_value = value;
    frame.behind_value = end.substr(0, close);
    frame.between = end.substr(close);
    frame.after = rest.substr(close);
    return true;
}

// A call as a constrained model writes it, with or without arguments.
std::string Written(const CallFrame& frame, bool arguments) {
    std::string text = frame.before;
    text.append(kFramed).append(frame.middle);
    const OrderedJson given = arguments ? FramedArguments() : OrderedJson::object();
    if (frame.arguments == CallFrame::Arguments::kJson) return text + given.dump() + frame.after;
    for (const auto& [key, value] : given.items()) {
        if (key != kKeys[0]) text += frame.between;
        text += frame.before_key + key + frame.before_value;
        const bool bare = frame.arguments != CallFrame::Arguments::kValues && value.is_string();
        text += bare ? frame.quote + value.get<std::string>() + frame.quote : value.dump();
        text += frame.behind_value;
    }
    return text + frame.after;
}

bool ReadsBack(const CallFrame& frame, bool arguments) {
    AnswerParser parser(frame.family, false, false,
                        std::make_shared<const ToolTypes>(FramedTools()));
    AnswerDelta all = parser.Push(Written(frame, arguments));
    AnswerDelta rest = parser.Finish();
    for (ToolCall& call : rest.tool_calls) all.tool_calls.push_back(std::move(call));
    const OrderedJson given = arguments ? FramedArguments() : OrderedJson::object();
    return all.tool_calls.size() == 1 && all.tool_calls[0].name == kFramed &&
           all.tool_calls[0].arguments == given && all.content.empty() && rest.content.empty();
}

// Removes the prefix `begin` from `text`; false if it is absent.
bool Skip(std::string_view& text, std::string_view begin) {
    if (!text.starts_with(begin)) return false;
    text.remove_prefix(begin.size());
    return true;
}

// Returns the text before `end` and consumes both; nullopt if `end` is absent.
std::optional<std::string_view> UpTo(std::string_view& text, std::string_view end) {
    const size_t at = end.empty() ? text.npos : text.find(end);
    if (at == text.npos) return {};
    const std::string_view before = text.substr(0, at);
    text.remove_prefix(at + end.size());
    return before;
}

// Consumes the value at the start of `rest`; nullopt if it is incomplete.
std::optional<OrderedJson> PairValue(const CallFrame& frame, const std::string& name,
                                     std::string_view key, const ToolTypes& types,
                                     std::string_view& rest) {
    if (frame.arguments == CallFrame::Arguments::kQuoted && Skip(rest, frame.quote)) {
        const auto text = UpTo(rest, frame.quote);
        if (!text || !Skip(rest, frame.behind_value)) return {};
        return OrderedJson(*text);
    }
    const auto text = UpTo(rest, frame.behind_value);
    if (!text) return {};
    if (frame.arguments == CallFrame::Arguments::kTexts) return types.ValueOf(name, key, *text);
    OrderedJson value = ReadJson(*text);
    if (value.is_discarded()) return {};
    return value;
}

// A model's text may be invalid UTF-8.
std::string Compact(const OrderedJson& value) {
    return DumpJson(value);
}

// The complete pairs of `rest`, as the beginning of a JSON object.
std::string BegunPairs(const CallFrame& frame, const std::string& name, const ToolTypes& types,
                       std::string_view rest) {
    std::string json = "{";
    for (bool first = true; first || Skip(rest, frame.between); first = false) {
        if (!Skip(rest, frame.before_key)) break;
        const auto key = UpTo(rest, frame.before_value);
        if (!key) break;
        const auto value = PairValue(frame, name, *key, types, rest);
        if (!value) break;
        json += first ? "" : ",";
        json += Compact(OrderedJson(*key)) + ":" + Compact(*value);
    }
    return json;
}

}  // namespace

std::optional<CallPart> BegunCall(const CallFrame& frame, std::string_view text,
                                  const ToolTypes& types) {
    if (!Skip(text, frame.before)) return {};
    // If `middle` is empty, the name ends at the first key.
    const size_t key = frame.middle.empty() ? text.find(frame.before_key) : text.npos;
    const auto written = key == text.npos ? UpTo(text, frame.middle) : text.substr(0, key);
    if (!written) return {};
    if (key != text.npos) text.remove_prefix(key);
    const OrderedJson name = ReadJson('"' + std::string(*written) + '"');
    if (!name.is_string() || name == "") return {};
    CallPart part{.name = name.get<std::string>(), .begins = true};
    part.arguments = frame.arguments == CallFrame::Arguments::kJson
                         ? std::string(text)
                         : BegunPairs(frame, part.name, types, text);
    return part;
}

CallFrame FindCallFrame(const Chat& chat, const TemplateCapabilities& form, ToolCallFormat family) {
    const std::string turn = CallTurn(chat, form, family);
    const size_t name = turn.find(kFramed);
    CallFrame frame;
    frame.family = family;
    if (name == turn.npos || turn.find(kFramed, name + 1) != turn.npos) return CallFrame();
    frame.before = turn.substr(0, name);
    const std::string_view rest = std::string_view(turn).substr(name + kFramed.size());
    if (!FrameJson(rest, frame) && !FramePairs(rest, frame)) return CallFrame();
    // The text that ends the turn is not part of the call.
    std::string after = std::exchange(frame.after, "");
    after.resize(std::min(after.size(), kMostAfterBytes));
    for (size_t size = 0; size <= after.size(); ++size) {
        frame.after = after.substr(0, size);
        if (ReadsBack(frame, true) && ReadsBack(frame, false)) return frame;
    }
    return CallFrame();
}

}  // namespace weft::chat
