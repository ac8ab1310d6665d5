#include "serve/api/tool_choice.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace weft::serve {
namespace {

// Empty: it has none.
std::string FunctionName(const Json& tool) {
    Fields fields(tool);
    const Json& function = fields.Object("function");
    return Fields(function.is_null() ? tool : function).Text("name", "");
}

// The names of the functions that `choice` lists.
std::vector<std::string> ListedNames(Fields& choice, const Json& tools) {
    const Json& list = choice.List("tools");
    if (list.empty() || list.size() > kMostTools) {
        choice.Fail("tools", fmt::format("'{}' must be a list of 1 to {} functions.",
                                         choice.PathOf("tools"), kMostTools));
    }
    std::vector<std::string> names;
    for (size_t i = 0; i < list.size() && !choice.error(); ++i) {
        const std::string name = FunctionName(list[i]);
        const bool known = std::ranges::any_of(
            tools, [&](const Json& tool) { return FunctionName(tool) == name; });
        if (known && !name.empty()) {
            names.push_back(name);
            continue;
        }
        choice.Fail("tools", fmt::format("'{}[{}]' names '{}', which is no function of 'tools'.",
                                         choice.PathOf("tools"), i, name.substr(0, 100)));
    }
    return names;
}

}  // namespace

void ForceTool(Fields& fields, const std::string& name, Conversation& conversation) {
    for (const Json& tool : conversation.input.tools) {
        if (tool["function"]["name"] != name) continue;
        conversation.forced_tool = name;
        return;
    }
    fields.Fail("tool_choice", "'tool_choice' names no function of 'tools'.");
}

void AllowTools(Fields& fields, const Json& allowed, const std::string& path,
                Conversation& conversation) {
    Fields choice(allowed, path);
    const std::string mode = choice.Choice("mode", "", {"auto", "required"});
    const std::vector<std::string> names = ListedNames(choice, conversation.input.tools);
    if (const auto& error = choice.error()) {
        return fields.Fail(error->param.c_str(), error->message, error->code);
    }
    Json kept = Json::array();
    for (const Json& tool : conversation.input.tools) {
        if (std::ranges::find(names, FunctionName(tool)) != names.end()) kept.push_back(tool);
    }
    conversation.input.tools = std::move(kept);
    if (mode == "required") conversation.forced_tool.assign(1, '*');
}

}  // namespace weft::serve
