#include "train/data/messages.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/json.h"
#include "base/text.h"
#include "chat/conversation.h"
#include "chat/tool_words.h"
#include "model_files/hf/json.h"
#include "train/data/record.h"
#include "train/data/record_lines.h"

namespace weft::train {
namespace {

using chat::OrderedJson;

struct RoleName {
    std::string_view said, role;
};
// Role names of data sets, besides the roles themselves.
constexpr RoleName kRoleNames[] = {
    {"human", "user"},
    {"prompter", "user"},
    {"gpt", "assistant"},
    {"chatgpt", "assistant"},
    {"gpt-4", "assistant"},
    {"gpt4", "assistant"},
    {"claude", "assistant"},
    {"bing", "assistant"},
    {"bard", "assistant"},
    {"model", "assistant"},
    {"bot", "assistant"},
    {"chatbot", "assistant"},
    {"ai", "assistant"},
    {"agent", "assistant"},
    {"observation", "tool"},
    {"function_response", "tool"},
    {"function-response", "tool"},
    {"tool_response", "tool"},
    {"ipython", "tool"},
    {"function_call", "call"},
    {"function-call", "call"},
    {"tool_call", "call"},
    {"tool_calls", "call"},
    {"function", "function"},
    {"user", "user"},
    {"assistant", "assistant"},
    {"system", "system"},
    {"tool", "tool"},
    {"developer", "system"},
};

// Parses a ShareGPT value as calls: {"name", "arguments"} or a list of them. Returns null if the
// value is not a call.
OrderedJson CallsOf(const OrderedJson& value) {
    OrderedJson said =
        value.is_string() ? OrderedJsonOrDiscarded(value.get_ref<const std::string&>()) : value;
    if (said.is_object()) said = OrderedJson::array({std::move(said)});
    if (!said.is_array() || said.empty()) return nullptr;
    OrderedJson calls = OrderedJson::array();
    for (OrderedJson& function : said) {
        if (!function.is_object() || !function.contains("name")) return nullptr;
        if (!function.contains("arguments")) {
            if (!function.contains("parameters")) return nullptr;
            function["arguments"] = function["parameters"];
            function.erase("parameters");
        }
        calls.push_back({{"type", "function"}, {"function", std::move(function)}});
    }
    return calls;
}

// Members with a message's text.
constexpr const char* kContentNames[] = {"content", "value", "text"};

OrderedJson ContentOf(const OrderedJson& message) {
    for (const char* name : kContentNames) {
        const auto content = message.find(name);
        if (content == message.end() || content->is_null()) continue;
        if (content->is_number()) {
            if (auto text = TextOfValue(*content)) return *std::move(text);
        }
        return *content;
    }
    return nullptr;
}

// Errors: an answer without anything to learn.
Status CheckAnswer(const OrderedJson& message) {
    for (const char* name : {"content", "tool_calls", "function_call", "reasoning_content",
                             "reasoning", "thinking", "refusal"}) {
        const auto said = message.find(name);
        if (said != message.end() && !said->empty()) return {};
    }
    return MakeError(ErrorCode::kCorrupt,
                     "the assistant's message has no 'content' (and no 'tool_calls'). Remove the "
                     "record, or write the answer into 'content'");
}

// Errors: a call whose arguments are neither an object nor the JSON text of one. A server may be
// lenient with such a call; a model that learns such calls writes calls that no parser reads.
Status CheckCall(const OrderedJson& function) {
    const auto given = function.is_object() ? function.find("arguments") : function.end();
    if (given == function.end() || given->is_null() || given->is_object() || *given == "") {
        return {};
    }
    const bool text = given->is_string();
    if (text && OrderedJsonOrDiscarded(given->get_ref<const std::string&>()).is_object()) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "the arguments of the call of '{}' are {}; expected an object, or its JSON "
                     "text (Python's print of a dict is not JSON)",
                     model_files::hf::Shown(chat::TextMember(function, "name")),
                     text ? "a text that is not a JSON object" : given->type_name());
}

Status CheckCalls(const OrderedJson& message) {
    const auto legacy = message.find("function_call");
    if (legacy != message.end()) WEFT_TRY(CheckCall(*legacy));
    const auto calls = message.find("tool_calls");
    if (calls == message.end() || !calls->is_array()) return {};
    for (const OrderedJson& call : *calls) {
        const bool wrapped = call.is_object() && call.contains("function");
        WEFT_TRY(CheckCall(wrapped ? call["function"] : call));
    }
    return {};
}

// Whether a text names a role as messages do, in JSON or in Python: 'role': 'user'.
bool NamesRole(std::string_view text) {
    const auto quoted = [](std::string_view rest) {
        return rest.starts_with('"') || rest.starts_with('\'');
    };
    for (const std::string_view name : {"role", "from"}) {
        for (size_t at = text.find(name); at != text.npos; at = text.find(name, at + 1)) {
            std::string_view rest = text.substr(at + name.size());
            if (!quoted(rest)) continue;
            rest = Trim(rest.substr(1));
            if (!rest.starts_with(':')) continue;
            rest = Trim(rest.substr(1));
            const size_t end = quoted(rest) ? rest.find(rest[0], 1) : rest.npos;
            if (end != rest.npos && !RoleNamed(rest.substr(1, end - 1)).empty()) return true;
        }
    }
    return false;
}

// Renames a message's ShareGPT members and roles; other messages stay unchanged.
Status UseOpenAiNames(OrderedJson& message) {
    const char* const member = message.contains("role") ? "role" : "from";
    const auto said = message.find(member);
    // The template's renderer reports this error.
    if (said == message.end() || !said->is_string()) return {};
    std::string role = RoleNamed(said->get_ref<const std::string&>());
    if (role.empty()) {
        const bool own = std::string_view(member) == "role";
        return MakeError(ErrorCode::kCorrupt, "'{}' is '{}'; expected {}", member,
                         model_files::hf::Shown(said->get_ref<const std::string&>()),
                         own ? "system, developer, user, assistant or tool"
                             : "human, gpt, system, tool, observation, function_call or "
                               "function_response");
    }
    // In OpenAI's form, `function` is a result; in ShareGPT's, it may also be a call.
    if (std::string_view(member) == "role" && role == "function") return {};
    OrderedJson content = ContentOf(message), calls;
    if (role == "call" || role == "function") {
        calls = CallsOf(content);
        const bool is_call = role == "call" || !calls.is_null();
        role = is_call ? "assistant" : "tool";
        if (!calls.is_null()) content = "";
    } else if (const auto call = message.find("tool_call"); call != message.end()) {
        calls = CallsOf(*call);
        // (Data sets have words such as "none" there.)
        const std::string text = call->is_string() ? call->get<std::string>() : call->dump();
        if (calls.is_null() && (text.starts_with("{") || text.starts_with("[{"))) {
            return MakeError(ErrorCode::kCorrupt,
                             "'tool_call' is not a call; expected {{\"name\": ..., \"arguments\": "
                             "{{...}}}}, a list of such objects, or their JSON text");
        }
    }
    OrderedJson renamed{{"role", role}};
    if (!content.is_null() || role != "assistant") renamed["content"] = std::move(content);
    if (!calls.is_null()) renamed["tool_calls"] = std::move(calls);
    for (auto& [name, value] : message.items()) {
        const bool taken = name == "role" || name == "from" ||
                           std::ranges::find(kContentNames, name) != std::end(kContentNames);
        if (!taken) renamed[name] = std::move(value);
    }
    if (role == "assistant") WEFT_TRY(CheckAnswer(renamed));
    message = std::move(renamed);
    return {};
}

// Whether a text is the JSON of a list of messages. A list in another notation that names a role
// (Python's print) counts, too: ListOf names its fault.
bool HoldsMessages(std::string_view text) {
    text = Trim(text);
    if (!text.starts_with('[') || !Trim(text.substr(1)).starts_with('{')) return false;
    const auto list = ParseOrderedJsonText(text);
    if (!list.ok()) return NamesRole(text);
    // (Other JSON may have roles, too, such as roles of an event or of members of a team.)
    bool known = false;
    for (const OrderedJson& each : *list) {
        if (!each.is_object()) return false;
        const auto role = each.find(each.contains("role") ? "role" : "from");
        if (role == each.end() || !role->is_string()) return false;
        const auto has = [&each](const char* name) { return each.contains(name); };
        if (!std::ranges::any_of(kContentNames, has) && !has("tool_calls")) return false;
        known = known || !RoleNamed(role->get_ref<const std::string&>()).empty();
    }
    return known;
}

// A list, or the JSON text of a list.
Result<OrderedJson> ListOf(const OrderedJson& value, std::string_view name, std::string_view what) {
    OrderedJson list = value;
    if (value.is_string()) {
        auto parsed = ParseOrderedJsonText(value.get_ref<const std::string&>(), {.unique = true});
        if (!parsed.ok()) {
            return MakeError(ErrorCode::kCorrupt,
                             "'{}' is a string that is not JSON ({}); expected {} (Python's print "
                             "of a list is not JSON)",
                             name, parsed.error().message, what);
        }
        list = std::move(parsed).value();
    }
    if (list.is_array()) return list;
    return MakeError(ErrorCode::kCorrupt, "'{}' is {}; expected {}", name, list.type_name(), what);
}

}  // namespace

std::optional<std::string> TextOfValue(const OrderedJson& value) {
    if (value.is_string()) return value.get<std::string>();
    const bool exact = value.is_number_integer() ||
                       (value.is_number_float() && std::abs(value.get<double>()) < 0x1p53);
    return exact ? std::optional(value.dump()) : std::nullopt;
}

std::string_view KindOf(const OrderedJson& value) {
    if (value.is_object() && value.size() == 1 && value.contains(kUnread)) {
        return "a value that is not read, such as bytes that are not UTF-8";
    }
    return value.is_number() && !TextOfValue(value) ? "a number of too many digits"
                                                    : value.type_name();
}

bool IsListOfObjects(const OrderedJson& value) {
    if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        // (A parser of JSON skips these blanks and a byte order mark.)
        const size_t begin = text.find_first_not_of("\xEF\xBB\xBF \t\r\n");
        return begin != text.npos && text[begin] == '[';
    }
    return value.is_array() &&
           std::ranges::all_of(value, [](const OrderedJson& each) { return each.is_object(); });
}

std::string RoleNamed(std::string_view said) {
    const std::string lower = LowerCase(said);
    const auto known = std::ranges::find(kRoleNames, lower, &RoleName::said);
    return known == std::end(kRoleNames) ? "" : std::string(known->role);
}

Status ReadListsOfTable(OrderedJson& row) {
    // A column in another notation is an error unless the record may have another form.
    const auto has = [&row](const char* name) { return row.contains(name); };
    constexpr const char* kOthers[] = {"text", "messages", "conversations"};
    const bool other = std::ranges::any_of(kOthers, has);
    const auto read = [&](std::initializer_list<const char*> names) -> Status {
        for (const char* name : names) {
            const auto cell = row.find(name);
            if (cell == row.end()) continue;
            if (!HoldsMessages(cell->get_ref<const std::string&>())) return {};
        }
        for (const char* name : names) {
            const auto cell = row.find(name);
            if (cell == row.end()) continue;
            auto list = ListOf(*cell, name, "a list of messages");
            if (!list.ok()) return other ? Status() : Status(list.error());
            *cell = std::move(list).value();
        }
        return {};
    };
    WEFT_TRY(read({"chosen", "rejected"}));
    if (!has("prompt")) return {};  // a response may belong to an instruction
    for (const char* name : {"prompt", "completion", "response"}) WEFT_TRY(read({name}));
    return {};
}

Result<OrderedJson> ListOfMessages(const OrderedJson& value, std::string_view name) {
    WEFT_ASSIGN(OrderedJson list, ListOf(value, name, "a list of messages"));
    for (size_t i = 0; i < list.size(); ++i) {
        if (!list[i].is_object()) continue;
        Status good = RefuseMedia(list[i]);
        if (good.ok()) good = UseOpenAiNames(list[i]);
        if (good.ok()) good = CheckCalls(list[i]);
        if (!good.ok()) {
            return MakeError(good.error().code, "message {} of '{}': {}", i + 1, name,
                             good.error().message);
        }
    }
    return list;
}

Result<OrderedJson> ToolsOf(const OrderedJson& record) {
    for (const char* const name : {"tool_choice", "function_call"}) {
        const auto choice = record.find(name);
        if (choice != record.end() && *choice == "none") return OrderedJson();
    }
    for (const std::string_view name : {"tools", "functions"}) {
        const auto given = record.find(name);
        if (given == record.end() || given->is_null() || *given == "") continue;
        // (A column may have this name.)
        if (name == "functions" && !IsListOfObjects(*given)) continue;
        WEFT_ASSIGN(OrderedJson list, ListOf(*given, name, "a list of functions"));
        chat::WrapFunctions(list);
        if (!list.empty()) return list;
    }
    return OrderedJson();
}

Result<OrderedJson> TemplateVariablesOf(const OrderedJson& record) {
    constexpr const char* kName = "chat_template_kwargs";
    const auto given = record.find(kName);
    if (given == record.end() || given->is_null() || *given == "") return OrderedJson();
    OrderedJson variables = *given;
    if (given->is_string()) {
        auto parsed = ParseOrderedJsonText(given->get_ref<const std::string&>());
        if (parsed.ok()) variables = std::move(parsed).value();
    }
    if (!variables.is_object()) {
        return MakeError(ErrorCode::kCorrupt,
                         "'{}' is {}; expected an object with variables of the chat template",
                         kName, variables.type_name());
    }
    for (auto at = variables.begin(); at != variables.end();) {
        at = at->is_null() ? variables.erase(at) : std::next(at);
    }
    return variables.empty() ? OrderedJson() : variables;
}

}  // namespace weft::train
