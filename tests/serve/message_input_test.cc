// Messages and tools of the Messages API, as the model sees them.
#include "serve/api/anthropic/message_input.h"

#include <gtest/gtest.h>

#include "serve/api/media.h"

namespace weft::serve {
namespace {

struct Read {
    Conversation conversation;
    std::set<std::string> notices;
    std::optional<ApiError> error;
};

Read ReadBody(const Json& body) {
    Read read;
    Fields fields(body);
    ReadTurnsAndTools(fields, read.conversation, read.notices);
    read.error = fields.error();
    return read;
}

Read ReadTools(const char* tools, const char* messages = R"([{"role": "user", "content": "Hi"}])") {
    return ReadBody({{"messages", Json::parse(messages)}, {"tools", Json::parse(tools)}});
}

// One line per message: role, calls or content, reasoning.
std::string Seen(const char* messages) {
    const Read read = ReadBody({{"messages", Json::parse(messages)}});
    if (read.error) return "error: " + read.error->message;
    std::string seen;
    for (const Json& message : read.conversation.input.messages) {
        seen += message["role"].get<std::string>() + ": " + message["content"].get<std::string>();
        for (const Json& call : message.value("tool_calls", Json::array())) {
            seen += " " + call["function"]["name"].get<std::string>() +
                    call["function"]["arguments"].dump();
        }
        seen += "\n";
    }
    return seen;
}

std::string Names(const Json& tools) {
    std::string names;
    for (const Json& tool : tools) names += tool["function"]["name"].get<std::string>() + " ";
    return names;
}

TEST(MessageTools, ClientsToolsHaveTheirSchema) {
    const Read read = ReadTools(R"([
        {"type": "bash_20250124", "name": "bash"},
        {"type": "text_editor_20250728", "name": "str_replace_based_edit_tool",
         "max_characters": 10000},
        {"type": "text_editor_20241022", "name": "str_replace_editor"},
        {"type": "memory_20250818", "name": "memory"},
        {"name": "weather", "strict": true, "input_schema": {"type": "object"},
         "cache_control": {"type": "ephemeral"}}])");
    ASSERT_FALSE(read.error) << read.error->message;
    const Json& tools = read.conversation.input.tools;
    EXPECT_EQ(Names(tools), "bash str_replace_based_edit_tool str_replace_editor memory weather ");
    EXPECT_TRUE(tools[0]["function"]["parameters"]["properties"].contains("command"));
    EXPECT_NE(tools[0]["function"]["description"], "");
    const auto commands = [&](size_t i) {
        return tools[i]["function"]["parameters"]["properties"]["command"]["enum"].dump();
    };
    EXPECT_EQ(commands(1), R"(["view","create","str_replace","insert"])");
    EXPECT_EQ(commands(2), R"(["view","create","str_replace","insert","undo_edit"])");
    EXPECT_EQ(commands(3), R"(["view","create","str_replace","insert","delete","rename"])");
    EXPECT_EQ(tools[4]["function"]["strict"], true);
    EXPECT_TRUE(read.notices.empty());
}

// Anthropic's pages "Text editor tool" and "Memory tool", and the schemas of AI SDK 3 and Effect
// for the former versions.
TEST(MessageTools, EditorsTakeTheirVersionsMembers) {
    const struct {
        const char* type;
        bool undoes, inserts_new_str;
    } cases[] = {{"text_editor_20241022", true, true},
                 {"text_editor_20250124", true, true},
                 {"text_editor_20250429", false, true},
                 {"text_editor_20250728", false, false},
                 {"memory_20250818", false, false}};
    for (const auto& each : cases) {
        const Read read =
            ReadBody({{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                      {"tools", Json::array({{{"type", each.type}, {"name", "e"}}})}});
        ASSERT_FALSE(read.error) << each.type;
        const Json members =
            read.conversation.input.tools[0]["function"]["parameters"]["properties"];
        const Json& commands = members["command"]["enum"];
        EXPECT_EQ(std::ranges::count(commands, Json("undo_edit")), each.undoes) << each.type;
        EXPECT_EQ(members.contains("insert_text"), !each.inserts_new_str) << each.type;
        EXPECT_TRUE(members.contains("new_str")) << each.type;
        EXPECT_EQ(members["view_range"]["minItems"], 2) << each.type;
        EXPECT_EQ(members["view_range"]["maxItems"], 2) << each.type;
    }
}

TEST(MessageTools, ServersToolsAreLeftOut) {
    for (const char* type : {"web_search_20250305", "web_fetch_20260318", "code_execution_20250825",
                             "tool_search_tool_regex_20251119", "tool_search_tool_bm25",
                             "computer_20251124", "mcp_toolset", "later_than_this_test_20300101"}) {
        const Read read = ReadBody({{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                    {"tools", Json::array({{{"type", type}, {"name", "x"}}})}});
        EXPECT_FALSE(read.error) << type;
        EXPECT_TRUE(read.conversation.input.tools.empty()) << type;
        ASSERT_EQ(read.notices.size(), 1u) << type;
        EXPECT_EQ(read.notices.begin()->find("later_than"), std::string::npos);
    }
    EXPECT_TRUE(ReadTools(R"([{"type": "costum", "name": "a", "input_schema": {}}])").error);
    const Read forced = ReadBody({{"messages", {{{"role", "user"}, {"content", "Hi"}}}},
                                  {"tools", Json::array({{{"type", "web_search_20250305"}}})},
                                  {"tool_choice", {{"type", "any"}}}});
    ASSERT_TRUE(forced.error);
    EXPECT_EQ(forced.error->param, "tool_choice");
}

TEST(MessageTools, DeferredToolsWaitForAReference) {
    const char* const tools = R"([
        {"name": "ToolSearch", "input_schema": {"type": "object"}},
        {"name": "WebFetch", "input_schema": {"type": "object"}, "defer_loading": true},
        {"name": "Placeholder", "input_schema": {"type": "object"}, "defer_loading": true}])";
    EXPECT_EQ(Names(ReadTools(tools).conversation.input.tools), "ToolSearch ");
    const char* const loads = R"([
        {"role": "user", "content": "Fetch."},
        {"role": "assistant", "content": [
            {"type": "tool_use", "id": "a", "name": "ToolSearch", "input": {"query": "fetch"}}]},
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a", "content": [
            {"type": "tool_reference", "tool_name": "WebFetch"}]}]}])";
    EXPECT_EQ(Names(ReadTools(tools, loads).conversation.input.tools), "ToolSearch WebFetch ");
    EXPECT_EQ(Seen(loads),
              "user: Fetch.\nassistant:  ToolSearch{\"query\":\"fetch\"}\n"
              "tool: The tool WebFetch is now available.\n");
    // The search tool of the server is omitted, so nothing else would load deferred tools.
    EXPECT_EQ(Names(ReadTools(R"([
        {"type": "tool_search_tool_bm25_20251119", "name": "tool_search_tool_bm25"},
        {"name": "late", "input_schema": {"type": "object"}, "defer_loading": true}])")
                        .conversation.input.tools),
              "late ");
}

TEST(MessageTools, ChangeWithinAConversation) {
    const char* const tools = R"([
        {"name": "a", "input_schema": {"type": "object"}},
        {"name": "b", "input_schema": {"type": "object"}, "defer_loading": true}])";
    const Read read = ReadTools(tools, R"([
        {"role": "user", "content": "Hi"},
        {"role": "system", "content": [
            {"type": "tool_addition", "tool": {"type": "tool_reference", "name": "b"}},
            {"type": "tool_addition", "tool": {"type": "tool_definition", "definition":
                {"name": "c", "input_schema": {"type": "object"}}}},
            {"type": "tool_removal", "tool": {"type": "tool_reference", "name": "a"}}]},
        {"role": "system", "content": "For now.", "clear_at": "next_user_message"},
        {"role": "assistant", "content": "Ho"},
        {"role": "user", "content": "Hi"}])");
    ASSERT_FALSE(read.error) << read.error->message;
    EXPECT_EQ(Names(read.conversation.input.tools), "b c ");
    EXPECT_EQ(read.conversation.input.messages.size(), 3u) << "without the passing message";
}

TEST(MessageInput, CallsOfServersBecomeCallsAndResults) {
    EXPECT_EQ(Seen(R"([
        {"role": "user", "content": "Search."},
        {"role": "assistant", "content": [
            {"type": "text", "text": "I search."},
            {"type": "server_tool_use", "id": "s1", "name": "web_search",
             "input": {"query": "weft"}},
            {"type": "web_search_tool_result", "tool_use_id": "s1", "content": [
                {"type": "web_search_result", "title": "Weft", "url": "https://a.b",
                 "encrypted_content": "EqgfCioIARgB", "page_age": "1 day"}]},
            {"type": "text", "text": "Found it."},
            {"type": "server_tool_use", "id": "s2", "name": "bash_code_execution",
             "input": {"command": "ls"}},
            {"type": "bash_code_execution_tool_result", "tool_use_id": "s2", "content": {
                "type": "bash_code_execution_result", "stdout": "a.txt", "stderr": "",
                "return_code": 0, "content": []}},
            {"type": "server_tool_use", "id": "s3", "name": "paused", "input": {}},
            {"type": "tool_use", "id": "t1", "name": "read", "input": {"path": "a.txt"}}]},
        {"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "t1", "is_error": true, "content": "no file"}]},
        {"role": "assistant", "content": [
            {"type": "mcp_tool_use", "id": "m1", "name": "roll", "server_name": "dice",
             "input": {}},
            {"type": "mcp_tool_result", "tool_use_id": "m1", "is_error": false,
             "content": [{"type": "text", "text": "4"}]}]}])"),
              "user: Search.\n"
              "assistant: I search. web_search{\"query\":\"weft\"}\n"
              "tool: title: Weft\nurl: https://a.b\npage_age: 1 day\n"
              "assistant: Found it. bash_code_execution{\"command\":\"ls\"}\n"
              "tool: stdout: a.txt\nstderr: \nreturn_code: 0\n"
              "assistant:  read{\"path\":\"a.txt\"}\n"
              "tool: Error: no file\n"
              "assistant:  roll{}\n"
              "tool: 4\n");
}

TEST(MessageInput, ReadsDocumentsOfText) {
    EXPECT_EQ(Seen(R"([{"role": "user", "content": [
        {"type": "document", "title": "Notes", "context": "Of May.",
         "source": {"type": "text", "media_type": "text/plain", "data": "Line."},
         "citations": {"enabled": true}, "cache_control": {"type": "ephemeral"}},
        {"type": "document", "source": {"type": "content", "content": [
            {"type": "text", "text": "One. "}, {"type": "text", "text": "Two."}]}},
        {"type": "search_result", "source": "https://a.b", "title": "A",
         "content": [{"type": "text", "text": "Found."}]},
        {"type": "text", "text": "What is it?"}]}])"),
              "user: Notes\nOf May.\n\nLine.\n\nOne. Two.\n\nsource: https://a.b\ntitle: A\nFound."
              "\n\nWhat is it?\n");
    for (const char* source :
         {R"({"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="})",
          R"({"type": "url", "url": "https://a.b/c.pdf"})",
          R"({"type": "file", "file_id": "f"})"}) {
        const Json document{{"type", "document"}, {"source", Json::parse(source)}};
        const Json user{{"role", "user"}, {"content", Json::array({document})}};
        const Read read = ReadBody({{"messages", Json::array({user})}});
        ASSERT_TRUE(read.error) << source;
        EXPECT_EQ(read.error->code, "unsupported_content");
        EXPECT_NE(read.error->message.find("Send the document's text"), std::string::npos);
    }
    // A tool's result must not end an agent's conversation.
    EXPECT_EQ(Seen(R"([{"role": "user", "content": [{"type": "tool_result", "tool_use_id": "a",
        "content": [{"type": "text", "text": "Page 1:"},
                    {"type": "image", "source": {"type": "base64", "data": "AA"}},
                    {"type": "document", "source": {"type": "base64", "data": "AA"}}]}]}])"),
              "tool: Page 1:\n[an image, which this model cannot see]\n"
              "[a document, which this model cannot read]\n");
}

TEST(MessageInput, ASummaryReplacesWhatIsBefore) {
    EXPECT_EQ(Seen(R"([
        {"role": "system", "content": "Be terse."},
        {"role": "user", "content": "Old."},
        {"role": "assistant", "content": [
            {"type": "text", "text": "Older."},
            {"type": "compaction", "content": "We met."},
            {"type": "text", "text": "Well."}]},
        {"role": "user", "content": "Now?"}])"),
              "system: Be terse.\nuser: Summary of the conversation up to this point:\n\nWe met.\n"
              "assistant: Well.\nuser: Now?\n");
}

TEST(MessageInput, ResultsOfUnknownBlocks) {
    const auto seen = [](const std::string& content) {
        return Seen((R"([{"role": "user", "content": [
            {"type": "tool_result", "tool_use_id": "a", "content": )" +
                     content + "}]}]")
                        .c_str());
    };
    EXPECT_EQ(seen(R"([{"type": "zzz"}])"),
              "tool: [a block of type zzz, which this model cannot see]\n");
    EXPECT_EQ(seen(R"([{"type": "text", "text": ""}])"), "tool: \n");
    EXPECT_EQ(seen(R"([{"type": "audio", "source": {"type": "base64", "data": "AAAA"}},
        {"type": "sound", "source": {"type": "base64", "data": "AAAA"}}, {"type": "text",
         "text": "ok"}])"),
              "tool: [a recording, which this model cannot hear]\n"
              "[a file, which this model cannot read]\nok\n");
    EXPECT_NE(seen(R"([{"type": "text", "text": 5}])").find("must be a string"), std::string::npos);
}

Json Noted(std::string_view body, bool everywhere) {
    Json json = Json::parse(body);
    NoteMedia(json, everywhere);
    return json;
}

TEST(Media, ResultsOfToolsGetNotes) {
    const char* const body = R"({"messages": [
        {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:"}}]},
        {"role": "tool", "tool_call_id": "1", "content": [
            {"type": "text", "text": "Shot:"}, {"type": "image_url", "image_url": {"url": "x"}}]},
        {"role": "tool", "content": "", "images": ["aGk="]}]})";
    Json tools = Json::parse(body);
    tools["messages"][1]["content"][1] = {{"type", "text"}, {"text", kImageNote}};
    tools["messages"][2] = {{"role", "tool"}, {"content", kImageNote}};
    EXPECT_EQ(Noted(body, false), tools);
    tools["messages"][0]["content"][0] = {{"type", "text"}, {"text", kImageNote}};
    EXPECT_EQ(Noted(body, true), tools);
}

TEST(Media, EveryKindGetsANote) {
    const struct {
        const char *part, *note;
    } parts[] = {
        {R"({"type": "image", "source": {"type": "base64", "data": ""}})", "image"},
        {R"({"type": "input_image", "image_url": "x"})", "image"},
        {R"({"type": "input_audio", "input_audio": {}})", "recording"},
        {R"({"type": "video_url", "video_url": {}})", "video"},
        {R"({"type": "file", "file": {"file_id": "f"}})", "file"},
        {R"({"type": "input_file", "file_id": "f"})", "file"},
        {R"({"type": "document", "source": {"type": "base64", "data": ""}})", "document"},
        {R"({"type": "document", "source": {"type": "text", "data": "words"}})", nullptr},
        {R"({"type": "text", "text": "an image"})", nullptr},
        {R"({"type": "tool_result", "content": [{"type": "image"}]})", nullptr},
        {R"({"type": "resource", "resource": {"uri": "u", "blob": "AA"}})", "file"},
        {R"({"type": "zzz", "source": {"type": "base64", "data": "AA"}})", "file"},
        {R"({"type": "resource", "resource": {"uri": "u", "text": "T"}})", nullptr},
        {R"({"type": "user_profile", "profile": "x"})", nullptr},
        {R"({"type": "text_image_note", "text": "x"})", nullptr},
        {R"({"type": "videogame", "text": "x"})", nullptr},
        {R"({"type": "documentation", "url": "x"})", nullptr},
        {R"({"type": "image_url", "text": "A caption", "image_url": {}})", "A caption\n[an image"},
        {R"({"type": "container_upload", "file_id": "f"})", "file"},
        {R"({"type": "image-data", "data": "AA"})", "image"},
        {R"({"type": "input_image_base64", "data": "AA"})", "image"},
        {R"({"type": "file-search", "query": "x"})", nullptr},
        {R"({"type": "computer_screenshot", "image_url": "x"})", "image"},
        {R"("a file")", nullptr}};
    for (const auto& [part, note] : parts) {
        for (const char* name : {"messages", "input"}) {
            const Json given = Json::parse(part);
            Json body{{name, {{{"role", "user"}, {"content", Json::array({given})}}}}};
            NoteMedia(body, true);
            const Json& now = body[name][0]["content"][0];
            if (note == nullptr) {
                EXPECT_EQ(now, given);
            } else {
                EXPECT_EQ(now["type"], "text");
                EXPECT_NE(now["text"].get<std::string>().find(note), std::string::npos) << now;
            }
        }
    }
    const Json prompt = Noted(R"({"prompt": "What?", "images": ["aGk="]})", true);
    EXPECT_EQ(prompt, Json({{"prompt", "What?\n" + std::string(kImageNote)}}));
    // Images have one note, so that a body of empty texts does not grow.
    const Json images(std::vector<std::string>(100'000, ""));
    for (const Json& content : {Json(""), Json::array()}) {
        const Json body{
            {"messages", {{{"role", "tool"}, {"content", content}, {"images", images}}}}};
        const std::string noted = Noted(body.dump(), false).dump();
        EXPECT_NE(noted.find("[100000 images, which this model cannot see]"), noted.npos)
            << content;
        EXPECT_LT(noted.size(), 200u);
    }
    const Json list = Noted(R"({"messages": [{"role": "user", "images": ["aGk="],
        "content": [{"type": "text", "text": "What?"}]}]})",
                            true);
    EXPECT_EQ(list["messages"][0], Json::parse(R"({"role": "user", "content": [
        {"type": "text", "text": "What?"},
        {"type": "text", "text": "[an image, which this model cannot see]"}]})"));
    for (const char* odd : {R"({"messages": 5})", R"({"messages": [5, null, {"content": 5}]})",
                            R"({"messages": [{"role": 5, "content": [5], "images": {}}]})",
                            R"({"input": "text", "images": []})"}) {
        EXPECT_EQ(Noted(odd, true), Json::parse(odd));
    }
}

}  // namespace
}  // namespace weft::serve
