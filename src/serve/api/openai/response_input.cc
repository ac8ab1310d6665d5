#include "serve/api/openai/response_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "serve/api/dialect.h"
#include "serve/api/media.h"
#include "serve/api/openai/response_store.h"

namespace weft::serve {
namespace {

constexpr size_t kMostItems = 10000;
constexpr std::string_view kSeal = "weft:";

enum class Use { kCall, kResult, kNothing };

// How an item becomes part of the conversation.
struct ItemKind {
    std::string_view type;
    Use use;
    const char* name = nullptr;    // function that is called; null: the item's name
    const char* input = nullptr;   // member with the call's arguments
    const char* output = nullptr;  // member with the result
};

// A call of a tool on OpenAI's servers has its result in the same item. The model saw no text of a
// call without a result.
constexpr ItemKind kKinds[] = {
    {"function_call", Use::kCall, nullptr, "arguments"},
    {"custom_tool_call", Use::kCall, nullptr, kCustomInput},
    {"local_shell_call", Use::kCall, "local_shell", "action"},
    {"shell_call", Use::kCall, "shell", "action"},
    {"apply_patch_call", Use::kCall, "apply_patch", "operation"},
    {"computer_call", Use::kCall, "computer", "action"},
    {"tool_search_call", Use::kCall, "tool_search", "arguments"},
    {"program", Use::kCall, "program", "code"},
    {"mcp_call", Use::kCall, nullptr, "arguments", "output"},
    {"code_interpreter_call", Use::kCall, "code_interpreter", "code", "outputs"},
    {"file_search_call", Use::kCall, "file_search", "queries", "results"},
    {"function_call_output", Use::kResult, nullptr, nullptr, "output"},
    {"custom_tool_call_output", Use::kResult, nullptr, nullptr, "output"},
    {"local_shell_call_output", Use::kResult, "local_shell", nullptr, "output"},
    {"shell_call_output", Use::kResult, "shell", nullptr, "output"},
    {"apply_patch_call_output", Use::kResult, "apply_patch", nullptr, "output"},
    {"computer_call_output", Use::kResult, "computer", nullptr, "output"},
    {"tool_search_output", Use::kResult, "tool_search", nullptr, "tools"},
    {"program_output", Use::kResult, "program", nullptr, "result"},
    {"web_search_call", Use::kNothing},
    {"image_generation_call", Use::kNothing},
    {"mcp_list_tools", Use::kNothing},
    {"mcp_approval_request", Use::kNothing},
    {"mcp_approval_response", Use::kNothing},
    {"context_compaction", Use::kNothing},
    {"ghost_snapshot", Use::kNothing},
};

bool IsWords(const Json& part) {
    const Json type = part.is_object() ? part.value("type", Json()) : Json();
    return type == "text" || type == "input_text" || type == "output_text";
}

// A tool's result as text. Images, recordings and files become notes, so that an agent whose tool
// returned one can continue. Other parts are shown as JSON.
std::string ResultText(const Json& result) {
    if (result.is_null()) return "";
    if (result.is_string()) return result.get<std::string>();
    const Json list = result.is_array() ? result : Json::array({result});
    const auto is_known = [](const Json& part) { return IsWords(part) || !NoteOf(part).empty(); };
    if (!std::ranges::any_of(list, is_known)) return list.empty() ? "" : Dump(result);
    std::string text;
    for (const Json& part : list) {
        const std::string note = NoteOf(part);
        text += IsWords(part) ? Fields(part).Text("text", "") : !note.empty() ? note : Dump(part);
    }
    return text;
}

bool LacksText(const Json& result) {
    return result.is_array() && std::ranges::any_of(result, [](const Json& part) {
               return IsWords(part) && !part.value("text", Json()).is_string();
           });
}

class ItemReader {
  public:
    ItemReader(ResponseTools& tools, Conversation& conversation)
        : tools_(tools), conversation_(conversation), messages_(conversation.input.messages) {}

    void Read(Fields& item) {
        const std::string type = item.Text("type", "message");
        const auto kind = std::ranges::find(kKinds, std::string_view(type), &ItemKind::type);
        if (asked.compacts) item.Fail("type", "No item may follow a 'compaction_trigger'.");
        if (kind != std::end(kKinds)) {
            ReadKind(item, *kind);
        } else if (type == "message") {
            ReadMessage(item);
        } else if (type == "agent_message") {
            messages_.push_back({{"role", "user"}, {"content", ResultText(item.Get("content"))}});
        } else if (type == "reasoning") {
            ReadReasoning(item);
        } else if (type == "compaction" || type == "compaction_summary") {
            ReadCompaction(item);
        } else if (type == "compaction_trigger") {
            asked.compacts = true;
        } else if (type == "additional_tools") {
            ReadTools(item);
        } else if (type == "configuration_update") {
            Fields reasoning(item.Object("reasoning"), item.PathOf("reasoning."));
            Fields text(item.Object("text"), item.PathOf("text."));
            if (reasoning.Has("effort")) asked.effort_member = reasoning.PathOf("effort");
            asked.effort = reasoning.Text("effort", asked.effort);
            if (text.Has("format")) asked.format = text.Get("format");
            item.Adopt(reasoning);
        } else {
            item.Fail("type",
                      fmt::format("Items of type '{}' are not supported.", type.substr(0, 40)),
                      "unsupported_value");
        }
    }

    ResponseInput asked;

  private:
    void ReadMessage(Fields& item) {
        std::string role = item.Choice("role", "", {"user", "assistant", "system", "developer"});
        if (role == "developer") role = "system";
        Json message{{"role", role}, {"content", ReadContent(item, "content")}};
        if (role == "assistant") TakeThoughts(message);
        if (role == "user") thoughts_.clear();  // no answer follows in this turn
        messages_.push_back(std::move(message));
    }
    void ReadReasoning(Fields& item) {
        std::string text;
        for (const Json& part : item.List("content")) text += Fields(part).Text("text", "");
        const auto sealed = Unsealed(item.Text("encrypted_content", ""));
        if (text.empty()) text = sealed.value_or("");
        for (const Json& part : item.List("summary")) {
            if (text.empty()) text = Fields(part).Text("text", "");
        }
        thoughts_ += text;
    }
    void ReadCompaction(Fields& item) {
        const auto summary = Unsealed(item.Text("encrypted_content", ""));
        if (!summary) {
            return item.Fail("encrypted_content",
                             "This summary was made by another server, and only that server can "
                             "read it. Start a new conversation, or compact this one again from "
                             "its messages.",
                             "unsupported_value");
        }
        messages_.push_back(
            {{"role", "user"},
             {"content", "Summary of the conversation up to this point:\n\n" + *summary}});
    }
    void ReadTools(Fields& item) {
        const Json& list = item.List("tools");
        tools_.Read(item, list, item.PathOf("tools"), conversation_);
    }
    void ReadKind(Fields& item, const ItemKind& kind) {
        switch (kind.use) {
            case Use::kCall: return ReadCall(item, kind);
            case Use::kResult: {
                const bool search = kind.type == "tool_search_output";
                if (search) ReadTools(item);
                if (const Json& result = item.Get(kind.output);
                    !(result.is_null() || result.is_string() || result.is_structured())) {
                    item.Fail(kind.output, "A result must be a string or a list of parts.",
                              "invalid_type");
                } else if (LacksText(result)) {
                    item.Fail(kind.output, "The 'text' of a text part must be a string.",
                              "invalid_type");
                }
                return AddResult(IdOf(item), kind.name,
                                 search ? ToolsText(item) : item.Get(kind.output));
            }
            case Use::kNothing: return;
        }
    }
    // The result of a search for tools: their names as the model sees them.
    static Json ToolsText(Fields& item) {
        std::string names;
        const auto add = [&](const std::string& space, const Json& tool) {
            const std::string name = Fields(tool).Text("name", "");
            names += (names.empty() ? "" : ", ") + ResponseTools::ShownName(space, name);
        };
        for (const Json& tool : item.List("tools")) {
            Fields of(tool);
            const Json& inner = of.List("tools");
            if (inner.empty()) add("", tool);
            for (const Json& one : inner) add(of.Text("name", ""), one);
        }
        return "Available tools: " + (names.empty() ? "none" : names);
    }
    static std::string IdOf(Fields& item) {
        return item.Text("call_id", item.Has("call_id") ? "" : item.Text("id", ""));
    }
    void ReadCall(Fields& item, const ItemKind& kind) {
        const bool whole = kind.output != nullptr;  // with its result
        if (whole && !item.Has(kind.output)) return;
        const std::string id = IdOf(item);
        const std::string name =
            kind.name != nullptr
                ? kind.name
                : ResponseTools::ShownName(item.Text("namespace", ""), item.Text("name", ""));
        Json arguments = item.Get(kind.input);
        if (std::string_view(kind.input) == "arguments") {
            const std::string text =
                arguments.is_object() ? Dump(arguments) : item.Text("arguments", "{}");
            if (!inner_.Read(text, item, "arguments", arguments)) return;
        } else if (!arguments.is_object()) {
            arguments = {{kind.input, std::move(arguments)}};
        }
        AddCall(id, name, std::move(arguments));
        if (whole) AddResult(id, nullptr, item.Get(kind.output));
    }
    void AddCall(const std::string& id, const std::string& name, Json arguments) {
        names_[id] = name;
        if (messages_.empty() || messages_.back()["role"] != "assistant") {
            messages_.push_back({{"role", "assistant"}, {"content", ""}});
        }
        TakeThoughts(messages_.back());
        messages_.back()["tool_calls"].push_back(
            {{"id", id},
             {"type", "function"},
             {"function", {{"name", name}, {"arguments", std::move(arguments)}}}});
    }
    void AddResult(const std::string& id, const char* otherwise, const Json& result) {
        const auto name = names_.find(id);
        const char* const unknown = otherwise == nullptr ? "" : otherwise;
        messages_.push_back({{"role", "tool"},
                             {"tool_call_id", id},
                             {"name", name != names_.end() ? name->second : unknown},
                             {"content", ResultText(result)}});
    }
    void TakeThoughts(Json& message) {
        if (thoughts_.empty()) return;
        std::string thoughts = message.value("reasoning_content", "");
        if (!thoughts.empty()) thoughts += '\n';
        message["reasoning_content"] = thoughts + std::exchange(thoughts_, "");
    }

    ResponseTools& tools_;
    Conversation& conversation_;
    Json& messages_;
    std::map<std::string, std::string> names_;  // names of calls, by id
    std::string thoughts_;                      // reasoning of the next message
    InnerJson inner_;
};

bool IsReference(const Json& item) {
    const auto type = item.find("type");
    if (type != item.end() && !type->is_null()) return *type == "item_reference";
    return item.contains("id") && !item.contains("role");
}

// The request's own items, with references resolved.
Json OwnItems(Fields& fields, const Json& before, const FindItem& find) {
    const Json& input = fields.Get("input");
    if (input.is_null() && !before.empty()) return Json::array();
    const bool list = input.is_array() && !input.empty();
    if (!(input.is_string() || list) || before.size() + input.size() > kMostItems) {
        fields.Fail("input", fmt::format("'input' must be a string or a list; with the items of "
                                         "earlier responses it must have 1 to {} items.",
                                         kMostItems));
        return Json::array();
    }
    if (!list) return Json::array({{{"type", "message"}, {"role", "user"}, {"content", input}}});
    std::set<std::string> known;
    for (const Json& item : before) known.insert(Fields(item).Text("id", ""));
    known.erase("");
    Json own = Json::array();
    int64_t referred_bytes = 0;
    for (size_t i = 0; i < input.size(); ++i) {
        const std::string name = fmt::format("input[{}]", i);
        if (!input[i].is_object()) {
            fields.Fail(name.c_str(), fmt::format("'{}' must be an object.", name), "invalid_type");
            return Json::array();
        }
        if (!IsReference(input[i])) {
            own.push_back(input[i]);
            continue;
        }
        const std::string id = Fields(input[i]).Text("id", "");
        if (known.contains(id)) continue;  // each item appears once
        const Json* item = find(id, referred_bytes);
        referred_bytes += item == nullptr ? 0 : HeldBytes(*item);
        if (referred_bytes > kMostReferredBytes) {
            fields.Fail(name.c_str(),
                        fmt::format("The items that 'input' refers to hold more than {} bytes.",
                                    kMostReferredBytes));
            return Json::array();
        }
        if (item != nullptr) {
            own.push_back(*item);
            continue;
        }
        fields.Fail((name + ".id").c_str(),
                    fmt::format("Item with id '{}' not found: this server finds items of the "
                                "responses that it stores. Send the item itself.",
                                id.substr(0, 100)),
                    "item_not_found");
        return Json::array();
    }
    return own;
}

}  // namespace

ResponseInput ReadResponseInput(Fields& fields, Json& items, const FindItem& find,
                                ResponseTools& tools, Conversation& conversation) {
    const std::string instructions = fields.Text("instructions", "");
    if (!instructions.empty()) {
        conversation.input.messages.push_back({{"role", "system"}, {"content", instructions}});
    }
    Json own = OwnItems(fields, items, find);
    ItemReader reader(tools, conversation);
    for (const Json& item : items) {
        Fields kept(item, "previous_response_id.");
        reader.Read(kept);
        fields.Adopt(kept);
    }
    for (size_t i = 0; i < own.size() && !fields.error(); ++i) {
        Fields item(own[i], fmt::format("input[{}].", i));
        reader.Read(item);
        fields.Adopt(item);
    }
    for (Json& item : own) {
        if (item.value("type", Json()) != "compaction_trigger") items.push_back(std::move(item));
    }
    return reader.asked;
}

std::string Sealed(std::string_view text) {
    return std::string(kSeal) + std::string(text);
}

std::optional<std::string> Unsealed(std::string_view content) {
    if (!content.starts_with(kSeal)) return std::nullopt;
    return std::string(content.substr(kSeal.size()));
}

}  // namespace weft::serve
