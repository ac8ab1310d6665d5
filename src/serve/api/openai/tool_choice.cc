#include "serve/api/openai/tool_choice.h"

#include <fmt/format.h>

#include <set>
#include <string>

namespace weft::serve {
namespace {

// Returns "" if the tool has no name.
std::string FunctionName(const Json& tool) {
    Fields fields(tool);
    const Json& function = fields.Object("function");
    return Fields(function.is_null() ? tool : function).Text("name", "");
}

std::set<std::string> ListedNames(Fields& choice, const Json& tools) {
    const Json& list = choice.List("tools");
    if (list.empty() || list.size() > kMostTools) {
        choice.Fail("tools", fmt::format("'{}' must be a list of 1 to {} functions.",
                                         choice.PathOf("tools"), kMostTools));
    }
    std::set<std::string> known, names;
    for (const Json& tool : tools) known.insert(FunctionName(tool));
    for (size_t i = 0; i < list.size() && !choice.error(); ++i) {
        const std::string name = FunctionName(list[i]);
        if (!name.empty() && known.contains(name)) {
            names.insert(name);
            continue;
        }
        choice.Fail("tools", fmt::format("'{}[{}]' names '{}', which is not a function of 'tools'.",
                                         choice.PathOf("tools"), i, name.substr(0, 100)));
    }
    return names;
}

}  // namespace

void ForceTool(Fields& fields, const std::string& name, Conversation& conversation,
               const char* member) {
    for (const Json& tool : conversation.input.tools) {
        if (tool["function"]["name"] != name) continue;
        conversation.forced_tool = name;
        return;
    }
    const std::string_view list = conversation.older_calls ? "functions" : "tools";
    fields.Fail(member, fmt::format("'{}' does not name a function of '{}'.", member, list));
}

void AllowTools(Fields& fields, const Json& allowed, const std::string& path,
                Conversation& conversation) {
    Fields choice(allowed, path);
    const std::string mode = choice.Choice("mode", "", {"auto", "required"});
    const std::set<std::string> names = ListedNames(choice, conversation.input.tools);
    if (const auto& error = choice.error()) {
        return fields.Fail(error->param.c_str(), error->message, error->code);
    }
    Json kept = Json::array();
    for (const Json& tool : conversation.input.tools) {
        if (names.contains(FunctionName(tool))) kept.push_back(tool);
    }
    conversation.input.tools = std::move(kept);
    if (mode == "required") conversation.forced_tool.assign(1, '*');
}

std::string_view KindOf(std::span<const std::string_view> kinds, std::string_view type) {
    for (const std::string_view kind : kinds) {
        if (!type.starts_with(kind)) continue;
        const std::string_view version = type.substr(kind.size());
        if (version.empty() || version[0] == '_' || version[0] == '-') return kind;
    }
    return {};
}

std::string NoticeOfTools(std::string_view kind) {
    return fmt::format("tools of {} are left out of requests: this server does not run tools",
                       kind.empty() ? "an unknown type" : fmt::format("the type '{}'", kind));
}

}  // namespace weft::serve
