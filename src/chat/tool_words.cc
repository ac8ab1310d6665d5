#include "chat/tool_words.h"

#include <algorithm>
#include <utility>

#include "base/json_digits.h"

namespace weft::chat {
namespace {

constexpr size_t kMostResponseValues = size_t{1} << 16;  // of all results of a conversation

// In place, because a conversation may have thousands of consecutive results.
void AddWords(OrderedJson& message, std::string_view words, const char* between = "\n") {
    OrderedJson& content = message["content"];
    if (!content.is_string()) content = "";
    auto& text = content.get_ref<std::string&>();
    if (!text.empty() && !words.empty()) text += between;
    text += words;
}

// {"name": ..., "arguments": {...}} of each call with a function.
OrderedJson CallObjects(const OrderedJson& calls) {
    OrderedJson said = OrderedJson::array();
    for (const OrderedJson& call : calls) {
        OrderedJson function =
            call.is_object() ? call.value("function", OrderedJson()) : OrderedJson();
        if (!function.is_object()) continue;
        said.push_back({{"name", TextMember(function, "name")},
                        {"arguments", function.value("arguments", OrderedJson::object())}});
    }
    return said;
}

// f(a="x", b=1), with JSON values.
void AppendPythonCall(const OrderedJson& call, std::string& out) {
    out += call["name"].get_ref<const std::string&>();
    out += '(';
    const OrderedJson& arguments = call["arguments"];
    const char* comma = "";
    for (auto it = arguments.begin(); arguments.is_object() && it != arguments.end(); ++it) {
        out += std::exchange(comma, ", ");
        out += it.key();
        out += '=';
        AppendJson(*it, out);
    }
    out += ')';
}

}  // namespace

bool HasCalls(const OrderedJson& message) {
    const auto calls = message.find("tool_calls");
    return calls != message.end() && calls->is_array() && !calls->empty();
}

bool HasRole(const OrderedJson& message, std::string_view role) {
    const auto found = message.find("role");
    return found != message.end() && found->is_string() &&
           found->get_ref<const std::string&>() == role;
}

std::string TextMember(const OrderedJson& object, const char* name) {
    const auto found = object.find(name);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

void AppendJson(const OrderedJson& value, std::string& out) {
    const bool object = value.is_object();
    if (!object && !value.is_array()) {
        out += DumpJson(value);
        return;
    }
    out += object ? '{' : '[';
    const char* comma = "";
    for (auto it = value.begin(); it != value.end(); ++it) {
        out += std::exchange(comma, ", ");
        if (object) {
            AppendJson(OrderedJson(it.key()), out);
            out += ": ";
        }
        AppendJson(*it, out);
    }
    out += object ? '}' : ']';
}

std::string CallWords(const OrderedJson& calls, ToolCallFormat family) {
    const OrderedJson said = CallObjects(calls);
    if (said.empty()) return "";
    std::string words;
    if (family == ToolCallFormat::kGranite || family == ToolCallFormat::kPhi) {
        words = "<|tool_call|>";
        AppendJson(said, words);
        if (family == ToolCallFormat::kPhi) words += "<|/tool_call|>";
        return words;
    }
    if (family == ToolCallFormat::kLfm2) {
        words = "<|tool_call_start|>[";
        for (const OrderedJson& call : said) {
            if (!words.ends_with('[')) words += ", ";
            AppendPythonCall(call, words);
        }
        return words + "]<|tool_call_end|>";
    }
    for (const OrderedJson& call : said) {
        if (!words.empty()) words += '\n';
        if (family == ToolCallFormat::kOlmo) {
            AppendPythonCall(call, words);
            continue;
        }
        words += "<tool_call>\n";
        AppendJson(call, words);
        words += "\n</tool_call>";
    }
    return words;
}

void CallsAsWords(OrderedJson& messages, ToolCallFormat family) {
    for (OrderedJson& message : messages) {
        if (!HasRole(message, "assistant") || !HasCalls(message)) continue;
        const std::string words = CallWords(message["tool_calls"], family);
        message.erase("tool_calls");
        AddWords(message, words);
    }
}

OrderedJson ResultsAsWords(OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    bool behind_result = false;
    for (OrderedJson& message : messages) {
        const bool result = HasRole(message, "tool");
        if (result) {
            std::string words =
                "<tool_response>\n" + TextMember(message, "content") + "\n</tool_response>";
            message = {{"role", "user"}, {"content", std::move(words)}};
        }
        const bool joins = (result || behind_result) && !fitted.empty() &&
                           HasRole(fitted.back(), "user") && HasRole(message, "user");
        if (joins) {
            AddWords(fitted.back(), TextMember(message, "content"));
        } else {
            fitted.push_back(std::move(message));
        }
        behind_result = result;
    }
    return fitted;
}

void ReadResponses(OrderedJson& messages) {
    JsonLimits limits{.values = kMostResponseValues};
    for (OrderedJson& message : messages) {
        if (!HasRole(message, "tool")) continue;
        message.erase(kResponseMember);
        size_t used = 0;
        auto json = ParseJsonWithDigits(TextMember(message, "content"), limits, &used);
        if (!json.ok()) continue;
        limits.values -= std::min(limits.values, used);
        message[kResponseMember] = *std::move(json);
    }
}

std::string ToolsWords(const OrderedJson& tools, const std::string& example) {
    std::string words =
        "You can call functions, if they help with what is asked. These are there:\n<tools>\n";
    for (const OrderedJson& tool : tools) {
        AppendJson(tool.is_object() && tool.contains("function") ? tool["function"] : tool, words);
        words += '\n';
    }
    words += "</tools>\n";
    if (!example.empty()) {
        return words + "Write calls exactly in this form, one behind the other:\n" + example +
               "\nWhere no call is needed, answer in words.";
    }
    return words +
           "For each call write a JSON object with the function's name and its arguments, in this "
           "form:\n<tool_call>\n{\"name\": \"the function's name\", \"arguments\": {\"an "
           "argument\": \"its value\"}}\n</tool_call>\nWhat the calls gave comes next, within "
           "<tool_response></tool_response>. Where no call is needed, answer in words.";
}

void AddSystemWords(OrderedJson& messages, const std::string& words) {
    if (messages.empty() || !HasRole(messages[0], "system")) {
        messages.insert(messages.begin(), OrderedJson{{"role", "system"}, {"content", ""}});
    }
    const std::string said = TextMember(messages[0], "content");
    messages[0]["content"] = said.empty() ? words : said + "\n\n" + words;
}

OrderedJson FitSystems(bool join_opening, bool late_as_user, OrderedJson& messages) {
    OrderedJson fitted = OrderedJson::array();
    bool opening = true, behind_late = false;
    for (OrderedJson& message : messages) {
        const bool system = HasRole(message, "system");
        opening = opening && system;
        const bool late = late_as_user && system && !opening;
        if (late) message["role"] = "user";
        const bool users = (late || behind_late) && HasRole(message, "user");
        const bool joins =
            !fitted.empty() && (opening ? join_opening : users && HasRole(fitted.back(), "user"));
        if (joins) {
            AddWords(fitted.back(), TextMember(message, "content"), "\n\n");
            fitted.back().erase(kPartsMember);  // the sizes are those of the text before
        } else {
            fitted.push_back(std::move(message));
        }
        behind_late = late;
    }
    return fitted;
}

OrderedJson FitTurns(bool join, bool answer, OrderedJson& messages) {
    const auto is_text = [](const OrderedJson& message) {
        const auto content = message.find("content");
        return content != message.end() && content->is_string() && !HasCalls(message);
    };
    const auto is_left_out = [](const OrderedJson& message) {
        const auto weight = message.find(kLossMember);
        return weight != message.end() && *weight == 0;
    };
    OrderedJson fitted = OrderedJson::array();
    for (OrderedJson& message : messages) {
        const bool user = HasRole(message, "user");
        const bool reasons = std::ranges::any_of(kReasoningMembers, [&](const char* name) {
            return !TextMember(message, name).empty();
        });
        const bool same = !fitted.empty() && HasRole(fitted.back(), user ? "user" : "assistant") &&
                          (user || HasRole(message, "assistant"));
        if (join && same && !reasons && is_text(fitted.back()) && is_text(message) &&
            is_left_out(fitted.back()) == is_left_out(message)) {
            AddWords(fitted.back(), TextMember(message, "content"), "\n\n");
            fitted.back().erase(kPartsMember);  // the sizes are those of the text before
            continue;
        }
        if (answer && user && !fitted.empty() && HasRole(fitted.back(), "tool")) {
            fitted.push_back({{"role", "assistant"}, {"content", "OK."}, {kLossMember, 0}});
        }
        fitted.push_back(std::move(message));
    }
    return fitted;
}

void SystemAsUser(OrderedJson& messages) {
    if (messages.empty() || !HasRole(messages[0], "system")) return;
    if (messages.size() < 2 || !HasRole(messages[1], "user")) {
        messages[0]["role"] = "user";
        return;
    }
    const std::string system = TextMember(messages[0], "content");
    const std::string user = TextMember(messages[1], "content");
    if (!system.empty()) messages[1]["content"] = user.empty() ? system : system + "\n\n" + user;
    messages.erase(messages.begin());
}

}  // namespace weft::chat
