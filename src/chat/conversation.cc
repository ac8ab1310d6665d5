#include "chat/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <iterator>
#include <set>
#include <string_view>
#include <utility>

#include "base/json_digits.h"
#include "chat/answer.h"
#include "chat/tool_words.h"

namespace weft::chat {
namespace {

using Fault = std::optional<MessageFault>;

Fault Wrong(const char* member, std::string message, const char* code = "invalid_type") {
    return MessageFault{0, member, std::move(message), code};
}

// Builds a new object, because each removal of a member takes linear time.
void DropNulls(OrderedJson& object) {
    if (std::ranges::none_of(object, [](const OrderedJson& value) { return value.is_null(); })) {
        return;
    }
    OrderedJson kept = OrderedJson::object();
    auto& members = kept.get_ref<OrderedJson::object_t&>();
    for (auto& [name, value] : object.items()) {
        if (!value.is_null()) members.emplace_back(name, std::move(value));
    }
    object = std::move(kept);
}

void RenameRole(OrderedJson& message) {
    if (HasRole(message, "developer")) message["role"] = "system";
    if (HasRole(message, "function")) message["role"] = "tool";
}

// The text of a part of reasoning, as Mistral's clients send it: a text or a list of text parts.
std::string ThoughtOf(const OrderedJson& part) {
    std::string thought = TextMember(part, "thinking");
    const auto parts = part.find("thinking");
    if (parts == part.end() || !parts->is_array()) return thought;
    for (const OrderedJson& each : *parts) {
        if (each.is_object()) thought += TextMember(each, "text");
    }
    return thought;
}

Fault FitContent(OrderedJson& message) {
    auto content = message.find("content");
    const bool assistant = HasRole(message, "assistant");
    if (content != message.end() && !content->is_string()) {
        std::string text, thought;
        std::vector<size_t> sizes;
        if (Fault fault = ReadContentText(*content, assistant, "content", text, &sizes, &thought)) {
            fault->member = "content";
            return fault;
        }
        *content = std::move(text);
        message[kPartsMember] = std::move(sizes);
        AddThought(std::move(thought), message);
        content = message.find("content");
    }
    const bool missing = content == message.end();
    const std::string refusal = assistant ? TextMember(message, "refusal") : "";
    if (missing && !assistant && !HasRole(message, "tool")) {
        return Wrong("content", "'content' is missing.", "missing");
    }
    if (missing || (!refusal.empty() && *content == "")) message["content"] = refusal;
    return {};
}

// Converts the calls of one message; `limits` covers the arguments of all messages.
Fault FitCalls(OrderedJson& message, JsonLimits& limits) {
    const auto legacy = message.find("function_call");
    if (legacy != message.end() && legacy->is_object() && !message.contains("tool_calls")) {
        OrderedJson call{{"type", "function"}, {"function", std::move(*legacy)}};
        message.erase("function_call");
        message["tool_calls"] = OrderedJson::array({std::move(call)});
    }
    const auto calls = message.find("tool_calls");
    if (calls == message.end()) return {};
    if (!calls->is_array()) return Wrong("tool_calls", "'tool_calls' must be a list of calls.");
    for (OrderedJson& call : *calls) {
        if (!call.is_object())
            return Wrong("tool_calls", "An element of 'tool_calls' is not an object.");
        if (!call.contains("function") && call.contains("name")) {
            OrderedJson function = std::move(call);
            call = {{"type", "function"}};
            if (function.contains("id")) call["id"] = function["id"];
            call["function"] = std::move(function);
        }
        const auto function = call.find("function");
        if (function == call.end() || !function->is_object()) continue;
        const auto arguments = function->find("arguments");
        if (arguments == function->end() || !arguments->is_string()) continue;
        size_t used = 0;
        auto parsed = ParseJsonWithDigits(arguments->get_ref<const std::string&>(), limits, &used);
        limits.values -= std::min(limits.values, used);
        if (!parsed.ok() && parsed.error().code == ErrorCode::kUnsupported) {
            return Wrong(
                "tool_calls",
                fmt::format("'tool_calls' exceeds a limit on JSON: {}.", parsed.error().message),
                "invalid_value");
        }
        if (parsed.ok()) *arguments = std::move(parsed).value();  // else it stays a string
    }
    return {};
}

// Results within the message with the calls, as Gemma 4's first template reads them.
Fault CheckResponses(const OrderedJson& message) {
    const auto results = message.find(kResponsesMember);
    if (results == message.end()) return {};
    const auto object = [](const OrderedJson& each) { return each.is_object(); };
    if (results->is_array() && std::ranges::all_of(*results, object)) return {};
    return Wrong(kResponsesMember, "'tool_responses' must be a list of objects.");
}

// In ascending order.
constexpr std::string_view kEfforts[] = {"none", "minimal", "low", "medium",
                                         "high", "xhigh",   "max"};

// The prompt of a question with these variables; nullopt: the template rejects them.
std::optional<std::string> Probe(const Chat& chat, OrderedJson variables) {
    ChatInput input = OneQuestion("", "Do it.");
    input.extra = std::move(variables);
    const auto text = chat.Render(input);
    return text.ok() ? std::optional(std::string(text->view())) : std::nullopt;
}

void FindThinking(const Chat& chat, ConversationForms& forms) {
    const auto with = [&](bool on) {
        return Probe(chat, {{"enable_thinking", on}, {"thinking", on}});
    };
    forms.switches_thinking = with(true) != with(false);
    const auto plain = Probe(chat, OrderedJson::object());
    forms.opens_reasoning = plain && EndsInReasoning(*plain);
    if (chat.source().find("reasoning_effort") == std::string::npos) return;
    std::set<std::string> prompts;
    for (const std::string_view effort : kEfforts) {
        const auto prompt = Probe(chat, {{"reasoning_effort", effort}});
        if (!prompt) continue;
        forms.efforts.emplace_back(effort);
        prompts.insert(*prompt);
    }
    forms.reads_effort = prompts.size() > 1;
    if (forms.efforts.size() == std::size(kEfforts)) forms.efforts.clear();
}

}  // namespace

void AddThought(std::string thought, OrderedJson& message) {
    if (thought.empty() || !TextMember(message, "reasoning_content").empty()) return;
    message["reasoning_content"] = std::move(thought);
}

ConversationForms FindForms(const Chat& chat) {
    ConversationForms forms{FindCapabilities(chat, false), FindCapabilities(chat, true)};
    FindThinking(chat, forms);
    return forms;
}

bool IsEffort(std::string_view word) {
    return std::ranges::find(kEfforts, word) != std::end(kEfforts);
}

std::string NearestEffort(const ConversationForms& forms, const std::string& effort) {
    const auto place = [](std::string_view word) { return std::ranges::find(kEfforts, word); };
    if (forms.efforts.empty() || !IsEffort(effort)) return effort;
    const auto distance = [&](const std::string& other) {
        return std::abs(place(other) - place(effort));
    };
    std::string nearest = forms.efforts.front();
    for (const std::string& other : forms.efforts) {
        if (distance(other) <= distance(nearest)) nearest = other;
    }
    return nearest;
}

void NameThinking(OrderedJson& variables) {
    const auto thinks = variables.find("enable_thinking");
    if (thinks == variables.end() || variables.contains("thinking")) return;
    OrderedJson value = *thinks;
    variables["thinking"] = std::move(value);
}

void WrapFunctions(OrderedJson& list) {
    for (OrderedJson& tool : list) {
        if (!tool.is_object() || tool.contains("function") || !tool.contains("name")) continue;
        OrderedJson function = std::move(tool);
        tool = {{"type", "function"}};
        tool["function"] = std::move(function);
    }
}

Fault ReadContentText(const OrderedJson& content, bool assistant, const std::string& name,
                      std::string& text, std::vector<size_t>* sizes, std::string* thought) {
    text.clear();
    if (content.is_string()) {
        text = content.get<std::string>();
        return {};
    }
    if (!content.is_array()) {
        return Wrong(
            "", fmt::format("Invalid type for '{}': expected a string or a list of parts.", name));
    }
    for (const OrderedJson& part : content) {
        const std::string type = part.is_object() ? TextMember(part, "type") : "";
        if (assistant && thought != nullptr && type == "thinking") {
            *thought += ThoughtOf(part);
            continue;
        }
        const bool refusal = assistant && type == "refusal";
        if (!refusal && type != "text" && type != "input_text" && type != "output_text") {
            return Wrong("",
                         fmt::format("This model accepts text only, not parts of type '{}'.",
                                     type.substr(0, 40)),
                         "unsupported_content");
        }
        const auto words = part.find(refusal ? "refusal" : "text");
        if (words == part.end() || !words->is_string()) {
            return Wrong("", fmt::format("A part of '{}' has no text.", name));
        }
        const std::string& piece = words->get_ref<const std::string&>();
        text += piece;
        if (sizes != nullptr) sizes->push_back(piece.size());
    }
    return {};
}

Fault PrepareConversation(const ConversationForms& forms, ChatInput& input) {
    if (!input.messages.is_array()) return {};  // Render reports the error
    const TemplateCapabilities& form = forms.Of(input);
    JsonLimits limits{.bytes = SIZE_MAX};
    for (size_t i = 0; i < input.messages.size(); ++i) {
        OrderedJson& message = input.messages[i];
        if (!message.is_object()) continue;
        DropNulls(message);
        RenameRole(message);
        Fault fault = FitContent(message);
        if (!fault) fault = FitCalls(message, limits);
        if (!fault && form.tool_responses) fault = CheckResponses(message);
        if (!fault) continue;
        fault->at = i;
        return fault;
    }
    FitConversation(form, input);
    return {};
}

}  // namespace weft::chat
