#include "serve/api/openai/response_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/api/constraint.h"
#include "serve/api/members.h"
#include "serve/api/openai/tool_choice.h"

namespace weft::serve {
namespace {

// Types of tools that are left out, with all their versions ("web_search_preview_2025_03_11").
constexpr std::string_view kLeftOut[] = {"web_search",
                                         "file_search",
                                         "image_generation",
                                         "code_interpreter",
                                         "tool_search",
                                         "local_shell",
                                         "shell",
                                         "apply_patch",
                                         "computer",
                                         "mcp",
                                         "programmatic_tool_calling"};
constexpr size_t kMostGrammarBytes = 64 << 10;

// The schema of a custom tool's function. Adds the grammar to `description`, because a call that is
// not forced is not constrained.
Json CustomParameters(Fields& tool, std::string& description) {
    Json input{{"type", "string"}, {"description", "The whole input of the tool, as plain text."}};
    Fields format(tool.Object("format"), tool.PathOf("format."));
    const std::string type = format.Choice("type", "text", {"text", "grammar"});
    if (type == "grammar") {
        const std::string syntax = format.Choice("syntax", "", {"lark", "regex"});
        const std::string definition = format.Text("definition", "");
        if (definition.empty() || definition.size() > kMostGrammarBytes) {
            format.Fail("definition",
                        fmt::format("A grammar must have 1 to {} bytes.", kMostGrammarBytes));
        }
        description += fmt::format("{}The input must match this {} grammar:\n{}",
                                   description.empty() ? "" : "\n\n", syntax, definition);
        if (syntax == "regex") input["pattern"] = fmt::format("^(?:{})$", definition);
    }
    tool.Adopt(format);
    return {{"type", "object"},
            {"properties", {{kCustomInput, std::move(input)}}},
            {"required", Json::array({kCustomInput})},
            {"additionalProperties", false}};
}

// The length of the UTF-8 character at the beginning of `text`, which may lack its end.
size_t CharacterBytes(std::string_view text) {
    const auto lead = static_cast<unsigned char>(text[0]);
    const size_t length = lead < 0xc0 ? 1 : lead < 0xe0 ? 2 : lead < 0xf0 ? 3 : 4;
    const auto rest = text.substr(1, length - 1);
    const bool sound = std::ranges::all_of(
        rest, [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; });
    return sound ? length : 1;
}

// Whether a \u escape with these digits needs a second one.
bool FirstSurrogate(std::string_view digits) {
    return (digits[0] == 'd' || digits[0] == 'D') &&
           std::string_view("89abAB").find(digits[1]) != std::string_view::npos;
}

// The inside of a JSON string, with the bare newlines escaped that models write.
std::string Escaped(std::string_view inside) {
    std::string out;
    for (const char c : inside) {
        const auto byte = static_cast<unsigned char>(c);
        out += byte < 0x20 ? fmt::format("\\u{:04x}", byte) : std::string(1, c);
    }
    return out;
}

}  // namespace

std::string ResponseTools::ShownName(const std::string& name_space, const std::string& name) {
    if (name_space.empty()) return name;
    return name_space + (name_space.ends_with('_') ? "" : "__") + name;
}

void ResponseTools::Read(Fields& fields, const Json& tools, const std::string& path,
                         Conversation& conversation) {
    for (size_t i = 0; i < tools.size() && !fields.error(); ++i) {
        ReadOne(fields, tools[i], fmt::format("{}[{}].", path, i), "", conversation);
    }
}

void ResponseTools::ReadOne(Fields& fields, const Json& json, const std::string& path,
                            const std::string& name_space, Conversation& conversation) {
    Fields tool(json, path);
    const std::string type = tool.Text("type", ""), name = tool.Text("name", "");
    std::string description = tool.Text("description", "");
    const bool space = type == "namespace", custom = type == "custom";
    if (!space && !custom && type != "function") {
        LeaveOut(tool, type);
        AddNames(conversation.left_out, "tools");
        return fields.Adopt(tool);
    }
    if (name.empty()) tool.Fail("name", "A tool must have a name.");
    if (space && !name_space.empty()) {
        tool.Fail("type", "A namespace must not contain a namespace.", "unsupported_value");
    }
    const Json& inner = tool.List("tools");
    if (tool.error()) return fields.Adopt(tool);
    if (space) {
        const size_t before = conversation.input.tools.size();
        for (size_t i = 0; i < inner.size() && !fields.error(); ++i) {
            ReadOne(fields, inner[i], fmt::format("{}tools[{}].", path, i), name, conversation);
        }
        // The model has no place for a namespace's description, so its first function has it.
        Json& list = conversation.input.tools;
        if (description.empty() || list.size() == before) return;
        Json& first = list[before]["function"];
        first["description"] = description + "\n\n" + first.value("description", "");
        return;
    }
    const std::string shown = ShownName(name_space, name);
    if (!AddName(tool, shown, {name, name_space, custom})) return fields.Adopt(tool);
    Json function{{"name", shown}};
    const Json& schema = tool.Object("parameters");
    Json parameters = custom             ? CustomParameters(tool, description)
                      : schema.is_null() ? NoParameters()
                                         : schema;
    if (tool.Has("description") || !description.empty()) function["description"] = description;
    if (tool.Bool("strict", false)) function["strict"] = true;
    function["parameters"] = std::move(parameters);
    if (tool.error()) return fields.Adopt(tool);
    conversation.input.tools.push_back({{"type", "function"}, {"function", std::move(function)}});
    if (conversation.input.tools.size() > kMostTools) {
        fields.Fail("tools", fmt::format("'tools' has more than {} functions.", kMostTools));
    }
}

// Leaves out tools of unknown types, too, because clients often get new types. A tool with
// `parameters` is a function, so an unknown type is an error there.
void ResponseTools::LeaveOut(Fields& tool, const std::string& type) {
    const std::string_view kind = KindOf(kLeftOut, type);
    if (type.empty() || (kind.empty() && tool.Has("parameters"))) {
        return tool.Fail("type",
                         fmt::format("'{}' must be 'function', 'custom' or 'namespace', not '{}'.",
                                     tool.PathOf("type"), type.substr(0, 40)),
                         "unsupported_value");
    }
    notices_.insert(NoticeOfTools(kind));
}

// Returns false if the tool is already offered, or another tool has its name, which is an error.
bool ResponseTools::AddName(Fields& tool, const std::string& shown, const ResponseTool& known) {
    const auto [place, added] = shown_.emplace(shown, known);
    if (added) return true;
    if (place->second == known) return false;
    tool.Fail("name",
              fmt::format("The model would see two tools by the name '{}'.", shown.substr(0, 100)));
    return false;
}

// The names that the model sees of the tools in a list of allowed tools.
Json ResponseTools::AllowedNames(const Json& listed) const {
    Json names = Json::array();
    for (const Json& entry : listed) {
        Fields tool(entry);
        const std::string type = tool.Text("type", "function"), name = tool.Text("name", "");
        if (!KindOf(kLeftOut, type).empty()) continue;
        if (type != "namespace") {
            names.push_back({{"name", ShownName(tool.Text("namespace", ""), name)}});
            continue;
        }
        for (const auto& [shown, known] : shown_) {
            if (known.name_space == name) names.push_back({{"name", shown}});
        }
    }
    return names;
}

void ResponseTools::ReadChoice(Fields& fields, Conversation& conversation) const {
    const auto none_left = [&] {
        const bool any = !fields.List("tools").empty();
        fields.Fail("tool_choice", any ? "'tool_choice' requires a call, but this server can call "
                                         "none of the tools."
                                       : "'tool_choice' is set, but 'tools' is not.");
    };
    Json choice = fields.Get("tool_choice");
    if (!choice.is_object()) {
        const std::string word = fields.Choice("tool_choice", "auto", {"none", "auto", "required"});
        if (word == "none") conversation.input.tools = nullptr;
        if (word != "required") return;
        if (conversation.input.tools.empty()) return none_left();
        return conversation.forced_tool.assign(1, '*'), void();
    }
    Fields chosen(choice, "tool_choice.");
    const std::string type = chosen.Text("type", "");
    if (!KindOf(kLeftOut, type).empty()) return none_left();
    if (type == "allowed_tools" && chosen.Get("tools").is_array()) {
        const bool listed = !choice["tools"].empty();
        choice["tools"] = AllowedNames(choice["tools"]);
        if (!listed || !choice["tools"].empty()) {
            return AllowTools(fields, choice, "tool_choice.", conversation);
        }
        conversation.input.tools = nullptr;
        if (chosen.Text("mode", "auto") == "required") none_left();
        return;
    }
    chosen.Choice("type", "", {"function", "custom", "allowed_tools"});
    if (type == "allowed_tools") chosen.Fail("tools", "'tool_choice.tools' must be a list.");
    const std::string name = chosen.Text("name", ""), space = chosen.Text("namespace", "");
    if (chosen.error()) return fields.Adopt(chosen);
    ForceTool(fields, ShownName(space, name), conversation);
}

ResponseTool ResponseTools::Of(const std::string& shown) const {
    const auto found = shown_.find(shown);
    if (found != shown_.end()) return found->second;
    // Models shorten names of namespaces or join them by another character.
    for (const auto& [name, tool] : shown_) {
        if (tool.name_space.empty()) continue;
        if (tool.name == shown || tool.name_space + "." + tool.name == shown) return tool;
    }
    return {shown};
}

std::string CustomText::Push(std::string_view json) {
    if (at_ == At::kBehind) return "";
    held_ += json;
    if (at_ == At::kBefore) Open();
    if (at_ != At::kInside) return "";
    // The longest part that ends neither inside an escape nor between two surrogates.
    size_t end = 0, at = 0;
    while (at < held_.size() && held_[at] != '"') {
        size_t length = CharacterBytes(std::string_view(held_).substr(at));
        if (held_[at] == '\\') length = held_.compare(at, 2, "\\u") == 0 ? 6 : 2;
        if (at + length > held_.size()) break;
        if (length == 6 && FirstSurrogate(std::string_view(held_).substr(at + 2, 2))) {
            if (at + 8 > held_.size()) break;
            if (held_.compare(at + 6, 2, "\\u") == 0) length = 12;
            if (at + length > held_.size()) break;
        }
        at += length;
        end = at;
    }
    const std::string part = Escaped(std::string_view(held_).substr(0, end));
    if (at < held_.size() && held_[at] == '"') at_ = At::kBehind;
    held_.erase(0, end);
    const Json text = Json::parse('"' + part + '"', nullptr, false);
    return text.is_string() ? text.get<std::string>() : part;
}

// Skips {"NAME": " once it is complete.
void CustomText::Open() {
    size_t at = 0;
    const auto skip = [&](std::string_view what) {
        at = held_.find_first_not_of(" \t\r\n", at);
        if (at == std::string::npos || held_[at] != what[0]) return false;
        ++at;
        return true;
    };
    if (!skip("{") || !skip("\"")) return;
    at = held_.find('"', at);
    if (at == std::string::npos || !skip("\"") || !skip(":") || !skip("\"")) return;
    held_.erase(0, at);
    at_ = At::kInside;
}

std::string CustomText::Finish() {
    if (at_ == At::kBehind) return "";
    at_ = At::kBehind;
    if (!held_.starts_with('"')) return std::exchange(held_, "");
    const Json text = Json::parse(held_, nullptr, false);
    return text.is_string() ? text.get<std::string>() : std::exchange(held_, "");
}

std::string CustomTextOf(const std::string& json) {
    CustomText text;
    std::string whole = text.Push(json);
    return whole + text.Finish();
}

}  // namespace weft::serve
