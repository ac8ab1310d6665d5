#include "serve/api/anthropic/message_input.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>
#include <vector>

#include "serve/api/constraint.h"
#include "serve/api/dialect.h"
#include "serve/api/media.h"
#include "serve/api/members.h"
#include "serve/api/openai/tool_choice.h"

namespace weft::serve {
namespace {

constexpr size_t kMostTurns = 10000;

// Types of tools that are left out, with all their versions.
constexpr std::string_view kLeftOut[] = {"web_search",       "web_fetch", "code_execution",
                                         "tool_search_tool", "computer",  "browser_toolset",
                                         "mcp_toolset",      "advisor"};

// Tools that the client runs and whose schema Anthropic's models have learned.
struct KnownTool {
    std::string_view kind;
    const char* description;
    const char* schema;
};

constexpr KnownTool kKnown[] = {
    {"bash", "Runs a command in a bash shell that persists between calls.",
     R"({"type": "object", "properties": {
         "command": {"type": "string", "description": "The command to run."},
         "restart": {"type": "boolean", "description": "Restarts the shell instead."}}})"},
    {"text_editor", "Views, creates and edits text files.",
     R"({"type": "object", "required": ["command", "path"], "properties": {
         "command": {"type": "string", "enum": ["view", "create", "str_replace", "insert"]},
         "path": {"type": "string", "description": "Path of the file or folder."},
         "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2,
             "maxItems": 2,
             "description": "view: the first and the last line to show; -1: the end."},
         "file_text": {"type": "string", "description": "create: the file's content."},
         "old_str": {"type": "string",
             "description": "str_replace: the text to replace, which must occur once."},
         "new_str": {"type": "string", "description": "str_replace: the new text."},
         "insert_line": {"type": "integer",
             "description": "insert: the line behind which the text goes; 0: the beginning."},
         "insert_text": {"type": "string", "description": "insert: the text."}}})"},
    {"memory", "Keeps notes in files below /memories.",
     R"({"type": "object", "required": ["command"], "properties": {
         "command": {"type": "string",
             "enum": ["view", "create", "str_replace", "insert", "delete", "rename"]},
         "path": {"type": "string", "description": "Path below /memories."},
         "view_range": {"type": "array", "items": {"type": "integer"}, "minItems": 2,
             "maxItems": 2},
         "file_text": {"type": "string", "description": "create: the file's content."},
         "old_str": {"type": "string", "description": "str_replace: the text to replace."},
         "new_str": {"type": "string", "description": "str_replace: the new text."},
         "insert_line": {"type": "integer"},
         "insert_text": {"type": "string"},
         "old_path": {"type": "string", "description": "rename: the path so far."},
         "new_path": {"type": "string", "description": "rename: the new path."}}})"},
};
// In these versions of the editor, insert takes new_str. The first two also have the command
// undo_edit.
constexpr std::string_view kOldEditors[] = {"text_editor_20241022", "text_editor_20250124",
                                            "text_editor_20250429"};
constexpr auto kUndoingEditors = std::span(kOldEditors).first<2>();

const KnownTool* Known(std::string_view type) {
    const auto known = std::ranges::find_if(kKnown, [&](const KnownTool& tool) {
        return !KindOf(std::span(&tool.kind, 1), type).empty();
    });
    return known == std::end(kKnown) ? nullptr : known;
}

Json SchemaOf(const KnownTool& known, std::string_view type) {
    Json schema = Json::parse(known.schema);
    if (KindOf(kOldEditors, type).empty()) return schema;
    Json& members = schema["properties"];
    if (!KindOf(kUndoingEditors, type).empty()) members["command"]["enum"].push_back("undo_edit");
    members["new_str"]["description"] = "str_replace, insert: the new text.";
    members.erase("insert_text");
    return schema;
}

// The blocks of one message, grouped as templates expect them.
struct Blocks {
    std::string text, thinking;
    bool apart = false;  // the text ends with a document
    Json calls = Json::array(), results = Json::array();
};

void Join(std::string& text, const std::string& more, const char* between = "\n") {
    if (!text.empty() && !more.empty()) text += between;
    text += more;
}

// Members that the model does not see.
bool IsHidden(std::string_view name) {
    constexpr std::string_view kHidden[] = {"type", "cache_control", "citations", "signature",
                                            "file_id"};
    return std::ranges::find(kHidden, name) != std::end(kHidden) || name.starts_with("encrypted_");
}

// The text of a document; nullopt: its source is not text.
std::optional<std::string> DocumentText(const Json& document);

// A tool's result as text.
std::string ResultText(const Json& result) {
    if (result.is_null()) return "";
    if (result.is_string()) return result.get<std::string>();
    if (!result.is_structured()) return Dump(result);
    std::string text;
    if (result.is_array()) {
        bool apart = false;  // the last block was not plain text
        for (const Json& block : result) {
            const bool plain = block.is_object() && block.value("type", Json()) == "text";
            if (plain && !apart) {
                text += ResultText(block);
            } else {
                Join(text, ResultText(block));
            }
            apart = !plain;
        }
        return text;
    }
    const std::string type = Fields(result).Text("type", "");
    if (type == "text") return Fields(result).Text("text", "");
    if (std::string note = NoteOf(result); !note.empty()) return note;
    if (type == "document") return DocumentText(result).value_or("");
    if (type == "tool_reference") {
        return fmt::format("The tool {} is now available.", Fields(result).Text("tool_name", ""));
    }
    for (const auto& [name, value] : result.items()) {
        if (IsHidden(name) || value.is_null()) continue;
        Join(text, value.is_structured() ? ResultText(value)
                                         : fmt::format("{}: {}", name, ResultText(value)));
    }
    if (!text.empty() || type.empty()) return text;
    return fmt::format("[a block of type {}, which this model cannot see]", type.substr(0, 40));
}

std::optional<std::string> DocumentText(const Json& document) {
    Fields fields(document);
    Fields source(fields.Object("source"));
    const std::string type = source.Text("type", "");
    std::string text;
    if (type == "text") {
        text = source.Text("data", "");
    } else if (type == "content") {
        text = ResultText(source.Get("content"));
    } else {
        return std::nullopt;
    }
    std::string head = fields.Text("title", "");
    Join(head, fields.Text("context", ""));
    Join(head, text, "\n\n");
    return head;
}

// Reads messages in order: a tool result refers to its call by id, but templates need the name.
class MessageReader {
  public:
    explicit MessageReader(Json& messages) : messages_(messages) {}

    void Read(Fields& message) {
        const std::string role = message.Choice("role", "", {"user", "assistant", "system"});
        if (role == "system") return ReadSystem(message);
        if (role == "user") DropPassing();
        const bool says = role == "assistant";
        const size_t before = messages_.size();
        Blocks blocks;
        const Json& content = message.Get("content");
        if (content.is_string()) {
            blocks.text = content.get<std::string>();
        } else if (!content.is_array()) {
            message.Fail("content", "Expected a string or a list of blocks.", "invalid_type");
        } else {
            for (const Json& json : content) ReadBlock(message, json, says, blocks);
        }
        if (message.error()) return;
        for (Json& result : blocks.results) messages_.push_back(std::move(result));
        const bool rest = !(blocks.text.empty() && blocks.thinking.empty() && blocks.calls.empty());
        if (!rest && messages_.size() > before) return;
        Add(role, blocks);
    }

    // Names of deferred tools that are loaded, of tools that were removed, and definitions of
    // tools that messages brought.
    std::set<std::string> loaded, removed;
    Json defined = Json::array();

  private:
    void ReadSystem(Fields& message) {
        const bool passing = message.Text("clear_at", "never") == "next_user_message";
        Json texts = Json::array();
        if (message.Get("content").is_array()) {
            for (const Json& json : message.Get("content")) {
                if (!ChangeTools(json)) texts.push_back(json);
            }
        }
        const Json& content = message.Get("content");
        if (texts.empty() && (content.is_null() || content.is_array())) return;
        const Json with{{"content", texts.empty() ? content : texts}};
        Fields rest(with, message.PathOf(""));
        Json text = ReadContent(rest, "content");
        message.Adopt(rest);
        if (passing) passing_.push_back(messages_.size());
        messages_.push_back({{"role", "system"}, {"content", std::move(text)}});
    }
    // Removes system messages that hold for one turn only.
    void DropPassing() {
        while (!passing_.empty()) {
            messages_.erase(passing_.back());
            passing_.pop_back();
        }
    }
    // Applies a block that adds or removes a tool. Returns false for other blocks.
    bool ChangeTools(const Json& json) {
        Fields block(json);
        const std::string type = json.is_object() ? block.Text("type", "") : "";
        if (type != "tool_addition" && type != "tool_removal") return false;
        Fields tool(block.Object("tool"));
        const Json& definition = tool.Object("definition");
        std::string name = tool.Text("name", "");
        if (definition.is_object()) {
            name = Fields(definition).Text("name", "");
            defined.push_back(definition);
        }
        const bool adds = type == "tool_addition";
        (adds ? loaded : removed).insert(name);
        (adds ? removed : loaded).erase(name);
        return true;
    }
    // Consecutive turns of one role are one turn, except a text behind calls.
    void Add(const std::string& role, Blocks& blocks) {
        const bool joins = !messages_.empty() && messages_.back()["role"] == role &&
                           (blocks.text.empty() || !messages_.back().contains("tool_calls"));
        if (!joins) messages_.push_back({{"role", role}, {"content", ""}});
        Json& turn = messages_.back();
        const auto join = [&](const char* name, const std::string& more, const char* between) {
            if (!turn.contains(name)) turn[name] = "";
            Join(turn[name].get_ref<std::string&>(), more, between);
        };
        join("content", blocks.text, "\n\n");
        if (!blocks.thinking.empty()) join("reasoning_content", blocks.thinking, "\n");
        for (Json& call : blocks.calls) turn["tool_calls"].push_back(std::move(call));
    }
    void ReadBlock(Fields& message, const Json& json, bool says, Blocks& blocks) {
        Fields block(json);
        const std::string type = block.Text("type", "");
        if (type == "text" && block.Get("text").is_string()) {
            Join(blocks.text, block.Text("text", ""), blocks.apart ? "\n\n" : "");
            blocks.apart = false;
        } else if (!says && (type == "document" || type == "search_result")) {
            const auto text = type == "document" ? DocumentText(json) : ResultText(json);
            if (text) Join(blocks.text, *text, "\n\n");
            blocks.apart = true;
            if (!text) {
                block.Fail("source",
                           "This server reads documents whose source is 'text' or 'content', not "
                           "PDFs, addresses and uploaded files. Send the document's text.",
                           "unsupported_content");
            }
        } else if (!says && type == "tool_result") {
            AddResult(block, blocks);
        } else if (says && !ReadAssistantBlock(block, type, blocks) && !ChangeTools(json)) {
            Refuse(message, type);
        } else if (!says && !ChangeTools(json)) {
            Refuse(message, type);
        }
        if (block.error()) message.Fail("content", block.error()->message, block.error()->code);
    }
    static void Refuse(Fields& message, const std::string& type) {
        message.Fail("content",
                     fmt::format("Blocks of type '{}' are not supported here; expected text, "
                                 "documents of text, tool_use, tool_result or thinking.",
                                 type.substr(0, 40)),
                     "unsupported_content");
    }
    // A block of an assistant message. Returns false if the type is not known.
    bool ReadAssistantBlock(Fields& block, const std::string& type, Blocks& blocks) {
        if (type == "thinking") {
            Join(blocks.thinking, block.Text("thinking", ""));
        } else if (type == "tool_use") {
            blocks.calls.push_back(Call(block));
        } else if (type == "server_tool_use" || type == "mcp_tool_use") {
            run_[block.Text("id", "")] = Call(block);
        } else if (type.ends_with("_tool_result")) {
            AddRun(block, blocks);
        } else if (type == "compaction") {
            Compact(block.Text("content", ""), blocks);
        } else {
            return type == "redacted_thinking" || type == "fallback" || type == "mcp_tool_listing";
        }
        return true;
    }
    Json Call(Fields& block) {
        const std::string id = block.Text("id", ""), name = block.Text("name", "");
        names_[id] = name;
        const Json& input = block.Object("input");
        return {{"id", id},
                {"type", "function"},
                {"function",
                 {{"name", name}, {"arguments", input.is_null() ? Json::object() : input}}}};
    }
    Json Result(Fields& block) {
        const std::string id = block.Text("tool_use_id", "");
        std::string text = ResultText(block.Get("content"));
        if (block.Bool("is_error", false)) text = "Error: " + text;
        Load(block.Get("content"));
        return {{"role", "tool"},
                {"tool_call_id", id},
                {"name", names_.contains(id) ? names_[id] : ""},
                {"content", text}};
    }
    void AddResult(Fields& block, Blocks& blocks) {
        const Json& content = block.Get("content");
        if (!content.is_null() && !content.is_string() && !content.is_array()) {
            block.Fail("content", "The content of a tool_result must be a string or a list.",
                       "invalid_type");
        }
        const auto lacks_text = [](const Json& part) {
            return part.is_object() && part.value("type", Json()) == "text" &&
                   !part.value("text", Json()).is_string();
        };
        if (content.is_array() && std::ranges::any_of(content, lacks_text)) {
            block.Fail("content", "The 'text' of a text block must be a string.", "invalid_type");
        }
        blocks.results.push_back(Result(block));
    }
    // The result of a call that a server ran within the turn: the turn becomes a call, its result
    // and what follows.
    void AddRun(Fields& block, Blocks& blocks) {
        const auto call = run_.find(block.Text("tool_use_id", ""));
        if (call == run_.end()) return;
        blocks.calls.push_back(std::move(call->second));
        run_.erase(call);
        Add("assistant", blocks);
        messages_.push_back(Result(block));
        blocks = {};
    }
    // Loads the tools that a result refers to.
    void Load(const Json& content) {
        if (!content.is_structured()) return;
        if (content.is_object() && content.value("type", Json()) == "tool_reference") {
            loaded.insert(Fields(content).Text("tool_name", ""));
        }
        for (const Json& inner : content) Load(inner);
    }
    // A summary replaces what is before it, except the system's messages.
    void Compact(const std::string& summary, Blocks& blocks) {
        if (summary.empty()) return;
        Json kept = Json::array();
        for (Json& message : messages_) {
            if (message["role"] == "system") kept.push_back(std::move(message));
        }
        kept.push_back(
            {{"role", "user"},
             {"content", "Summary of the conversation up to this point:\n\n" + summary}});
        messages_ = std::move(kept);
        passing_.clear();
        blocks = {};
    }

    Json& messages_;
    std::map<std::string, std::string> names_;  // names of calls, by id
    std::map<std::string, Json> run_;           // calls that a server ran, without result yet
    std::vector<size_t> passing_;               // places of system messages for one turn
};

// One entry of `tools`. Returns null for a tool that is left out.
Json ReadTool(Fields& tool, std::set<std::string>& notices) {
    const std::string type = tool.Text("type", "custom");
    const KnownTool* known = Known(type);
    const std::string_view kind = KindOf(kLeftOut, type);
    if (type != "custom" && known == nullptr && (!kind.empty() || !tool.Has("input_schema"))) {
        notices.insert(NoticeOfTools(kind));
        return nullptr;
    }
    if (type != "custom" && known == nullptr) {
        tool.Fail("type", fmt::format("Tools of type '{}' are not supported.", type.substr(0, 40)));
    }
    Json function{{"name", tool.Text("name", "")}};
    if (function["name"] == "") tool.Fail("name", "A tool must have a name.");
    if (known != nullptr) function["description"] = known->description;
    if (tool.Has("description")) function["description"] = tool.Text("description", "");
    if (tool.Bool("strict", false)) function["strict"] = true;
    const Json& schema = tool.Object("input_schema");
    function["parameters"] = known != nullptr   ? SchemaOf(*known, type)
                             : schema.is_null() ? NoParameters()
                                                : schema;
    return {{"type", "function"}, {"function", std::move(function)}};
}

void ReadTools(Fields& fields, const MessageReader& read, Conversation& conversation,
               std::set<std::string>& notices) {
    Json tools = fields.List("tools");
    for (const Json& tool : read.defined) tools.push_back(tool);
    if (tools.size() > kMostTools) {
        return fields.Fail("tools", fmt::format("tools: the limit is {} entries.", kMostTools));
    }
    constexpr std::string_view kSearch[] = {"tool_search_tool"};
    const bool searches = std::ranges::any_of(tools, [&](const Json& tool) {
        return !KindOf(kSearch, Fields(tool).Text("type", "")).empty();
    });
    for (size_t i = 0; i < tools.size(); ++i) {
        Fields tool(tools[i], fmt::format("tools.{}.", i));
        Json function = ReadTool(tool, notices);
        const std::string name = tool.Text("name", "");
        const bool waits = tool.Bool("defer_loading", false) && !searches;
        if (tool.error()) {
            return fields.Fail(tool.error()->param.c_str(),
                               tool.error()->param + ": " + tool.error()->message);
        }
        if (function.is_null()) AddNames(conversation.left_out, "tools");
        if (function.is_null() || read.removed.contains(name)) continue;
        if (waits && !read.loaded.contains(name)) continue;
        conversation.input.tools.push_back(std::move(function));
    }
}

void ReadToolChoice(Fields& fields, Conversation& conversation) {
    Fields choice(fields.Object("tool_choice"), "tool_choice.");
    const std::string type = choice.Choice("type", "auto", {"auto", "any", "tool", "none"});
    conversation.parallel_calls = !choice.Bool("disable_parallel_tool_use", false);
    if (choice.error()) return fields.Adopt(choice);
    if (type == "tool") return ForceTool(fields, choice.Text("name", ""), conversation);
    if (type == "any" && conversation.input.tools.empty()) {
        fields.Fail("tool_choice", fields.List("tools").empty()
                                       ? "tool_choice requires tools."
                                       : "tool_choice requires a call, but this server can call "
                                         "none of the tools.");
    }
    if (type == "any") conversation.forced_tool.assign(1, '*');
    if (type == "none") conversation.input.tools = nullptr;
}

}  // namespace

void ReadTurnsAndTools(Fields& fields, Conversation& conversation, std::set<std::string>& notices) {
    Json& out = conversation.input.messages;
    if (fields.Has("system")) {
        out.push_back({{"role", "system"}, {"content", ReadContent(fields, "system")}});
    }
    const Json& messages = fields.List("messages");
    if (messages.empty() || messages.size() > kMostTurns) {
        return fields.Fail(
            "messages", fmt::format("messages: expected a list of 1 to {} messages.", kMostTurns));
    }
    MessageReader reader(out);
    for (size_t i = 0; i < messages.size(); ++i) {
        Fields message(messages[i], fmt::format("messages.{}.", i));
        reader.Read(message);
        if (!message.error()) continue;
        const ApiError error = *message.error();
        return fields.Fail(error.param.c_str(), error.param + ": " + error.message, error.code);
    }
    if (out.empty()) return fields.Fail("messages", "messages: no message has content.");
    ReadTools(fields, reader, conversation, notices);
    if (!fields.error()) ReadToolChoice(fields, conversation);
}

}  // namespace weft::serve
