// Tools and items of the Responses API, as the model and the client see them.
#include "serve/api/openai/response_tools.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <tuple>

#include "serve/api/openai/response_input.h"
#include "serve/api/openai/responses_dialect.h"
#include "serve/api/served.h"

namespace weft::serve {
namespace {

// What Codex 0.163 sends, shortened.
const char* const kCodexTools = R"([
    {"type": "function", "name": "exec_command", "description": "Runs a command.", "strict": false,
     "parameters": {"type": "object", "properties": {"cmd": {"type": "string"}}}},
    {"type": "namespace", "name": "multi_agent_v1", "description": "Sub-agents.", "tools": [
        {"type": "function", "name": "close_agent", "description": "Close.", "strict": false,
         "parameters": {"type": "object", "properties": {"target": {"type": "string"}}}},
        {"type": "custom", "name": "script", "description": "Runs JavaScript."}]},
    {"type": "custom", "name": "apply_patch", "description": "Edits files.",
     "format": {"type": "grammar", "syntax": "lark", "definition": "start: \"a\""}},
    {"type": "tool_search", "execution": "client", "description": "Search.",
     "parameters": {"type": "object"}},
    {"type": "web_search", "external_web_access": false},
    {"type": "image_generation", "output_format": "png"},
    {"type": "later_than_this_test"}])";

struct Read {
    Conversation conversation;
    ResponseTools tools;
    ResponseInput input;
    Json items = Json::array();
    std::optional<ApiError> error;
};

const FindItem kNoItems = [](const std::string&, int64_t&) { return nullptr; };

Read ReadBody(const Json& body, const FindItem& find = kNoItems) {
    Read read;
    Fields fields(body);
    read.input = ReadResponseInput(fields, read.items, find, read.tools, read.conversation);
    read.tools.Read(fields, fields.List("tools"), "tools", read.conversation);
    read.tools.ReadChoice(fields, read.conversation);
    read.error = fields.error();
    return read;
}

Read ReadTools(const Json& tools, const Json& choice = nullptr) {
    return ReadBody({{"input", "Hi"}, {"tools", tools}, {"tool_choice", choice}});
}

Read ReadItems(const char* items) {
    return ReadBody({{"input", Json::parse(items)}});
}

std::string Names(const Json& tools) {
    std::string names;
    for (const Json& tool : tools) names += tool["function"]["name"].get<std::string>() + " ";
    return names;
}

TEST(ResponseTools, AreOfferedAsFunctions) {
    const Read read = ReadTools(Json::parse(kCodexTools));
    ASSERT_FALSE(read.error) << read.error->message;
    const Json& offered = read.conversation.input.tools;
    EXPECT_EQ(Names(offered),
              "exec_command multi_agent_v1__close_agent multi_agent_v1__script apply_patch ");
    EXPECT_EQ(offered[1]["function"]["description"], "Sub-agents.\n\nClose.");
    EXPECT_EQ(offered[2]["function"]["parameters"]["required"], Json::array({"input"}));
    const auto said = offered[3]["function"]["description"].get<std::string>();
    EXPECT_NE(said.find("lark grammar:\nstart: \"a\""), said.npos) << said;
    EXPECT_EQ(read.tools.Of("multi_agent_v1__close_agent"),
              ResponseTool({"close_agent", "multi_agent_v1", false}));
    EXPECT_EQ(read.tools.Of("multi_agent_v1.script"),
              ResponseTool({"script", "multi_agent_v1", true}));
    EXPECT_EQ(read.tools.Of("close_agent"), ResponseTool({"close_agent", "multi_agent_v1", false}));
    EXPECT_EQ(read.tools.Of("apply_patch"), ResponseTool({"apply_patch", "", true}));
    EXPECT_EQ(read.tools.Of("unknown"), ResponseTool({"unknown", "", false}));
}

TEST(ResponseTools, LeaveOutThoseOfOtherServers) {
    std::string all;
    const Read codex = ReadTools(Json::parse(kCodexTools));
    for (const std::string& notice : codex.tools.notices()) all += notice + "\n";
    for (const char* kind : {"'tool_search'", "'web_search'", "'image_generation'", "unknown"}) {
        EXPECT_NE(all.find(kind), all.npos) << kind << " in " << all;
    }
    EXPECT_EQ(all.find("later_than"), all.npos) << "text of the request";
    for (const char* type :
         {"web_search_preview_2025_03_11", "code_interpreter", "local_shell", "file_search", "mcp",
          "computer_use_preview", "shell", "apply_patch", "programmatic_tool_calling"}) {
        const Read read = ReadTools(Json::array({{{"type", type}}}));
        EXPECT_FALSE(read.error) << type;
        EXPECT_EQ(read.tools.notices().size(), 1u) << type;
        EXPECT_TRUE(read.conversation.input.tools.empty()) << type;
    }
}

TEST(ResponseTools, RejectInvalidTools) {
    const auto refused = [](const char* tools) {
        const Read read = ReadTools(Json::parse(tools));
        return read.error ? read.error->param : "";
    };
    EXPECT_EQ(refused(R"([{"name": "f"}])"), "tools[0].type");
    EXPECT_EQ(refused(R"([1])"), "tools[0].type");
    EXPECT_EQ(refused(R"([{"type": "functoin", "name": "f", "parameters": {}}])"), "tools[0].type");
    EXPECT_EQ(refused(R"([{"type": "custom"}])"), "tools[0].name");
    EXPECT_EQ(refused(R"([{"type": "custom", "name": "f", "format": {"type": "sql"}}])"),
              "tools[0].format.type");
    EXPECT_EQ(refused(R"([{"type": "custom", "name": "f",
                           "format": {"type": "grammar", "syntax": "lark"}}])"),
              "tools[0].format.definition");
    EXPECT_EQ(refused(R"([{"type": "namespace", "name": "n", "tools": [{"type": "function"}]}])"),
              "tools[0].tools[0].name");
    EXPECT_EQ(refused(R"([{"type": "namespace", "name": "n",
                           "tools": [{"type": "namespace", "name": "m"}]}])"),
              "tools[0].tools[0].type");
    EXPECT_EQ(refused(R"([{"type": "function", "name": "n__f"},
                          {"type": "namespace", "name": "n",
                           "tools": [{"type": "function", "name": "f"}]}])"),
              "tools[1].tools[0].name");
}

TEST(ResponseTools, Choice) {
    const auto choose = [](const char* choice) {
        const Read read = ReadTools(Json::parse(kCodexTools), Json::parse(choice));
        return read.error ? "error at " + read.error->param
                          : Names(read.conversation.input.tools) + "forced " +
                                read.conversation.forced_tool;
    };
    const std::string all =
        "exec_command multi_agent_v1__close_agent multi_agent_v1__script apply_patch ";
    EXPECT_EQ(choose(R"("required")"), all + "forced *");
    EXPECT_EQ(choose(R"("none")"), "forced ");
    EXPECT_EQ(choose(R"({"type": "custom", "name": "apply_patch"})"), all + "forced apply_patch");
    EXPECT_EQ(choose(R"({"type": "function", "name": "close_agent",
                         "namespace": "multi_agent_v1"})"),
              all + "forced multi_agent_v1__close_agent");
    EXPECT_EQ(choose(R"({"type": "web_search_preview"})"), "error at tool_choice");
    EXPECT_EQ(choose(R"({"type": "function", "name": "no"})"), "error at tool_choice");
    EXPECT_EQ(choose(R"({"type": "other"})"), "error at tool_choice.type");
    EXPECT_EQ(choose(R"({"type": "allowed_tools", "mode": "auto", "tools": [
                         {"type": "custom", "name": "apply_patch"}, {"type": "image_generation"},
                         {"type": "namespace", "name": "multi_agent_v1"}]})"),
              "multi_agent_v1__close_agent multi_agent_v1__script apply_patch forced ");
    EXPECT_EQ(choose(R"({"type": "allowed_tools", "mode": "auto",
                         "tools": [{"type": "web_search"}]})"),
              "forced ");
    EXPECT_EQ(choose(R"({"type": "allowed_tools", "mode": "required",
                         "tools": [{"type": "web_search"}]})"),
              "error at tool_choice");
    EXPECT_EQ(choose(R"({"type": "allowed_tools", "mode": "auto", "tools": []})"),
              "error at tool_choice.tools");
    const Read none = ReadTools(Json::array({{{"type", "web_search"}}}), "required");
    ASSERT_TRUE(none.error);
    EXPECT_EQ(none.error->param, "tool_choice");
}

// Every division of the JSON gives the same text.
TEST(CustomText, DecodesPieces) {
    const std::string text = "*** Begin Patch\n+\"a\\b\" \xc3\xa4 \xf0\x9f\x98\x80\t\n";
    for (const std::string& json : {Json{{"input", text}}.dump(),
                                    " { \"input\" : " + Json(text).dump(-1, ' ', true) + " } "}) {
        for (size_t cut = 0; cut <= json.size(); ++cut) {
            CustomText pieces;
            std::string got = pieces.Push(json.substr(0, cut));
            got += pieces.Push(json.substr(cut));
            EXPECT_EQ(got + pieces.Finish(), text) << cut;
        }
        CustomText bytes;
        std::string got;
        for (const char c : json) got += bytes.Push(std::string(1, c));
        EXPECT_EQ(got + bytes.Finish(), text);
    }
    EXPECT_EQ(CustomTextOf("{\"patch\":\"a\nb\\tc\"}"), "a\nb\tc") << "a bare newline";
    EXPECT_EQ(CustomTextOf("\"a\\nb\""), "a\nb");
    EXPECT_EQ(CustomTextOf("{\"a\":[1]}"), "{\"a\":[1]}");
    EXPECT_EQ(CustomTextOf("plain"), "plain");
    EXPECT_EQ(CustomTextOf("{\"input\":\"cut of"), "cut of");
    EXPECT_EQ(CustomTextOf(""), "");
}

// Items of earlier turns become calls and their results.
TEST(ResponseInput, ReadsEveryKindOfItem) {
    const Read read = ReadItems(R"([
        {"role": "user", "content": "Go."},
        {"type": "reasoning", "summary": [], "encrypted_content": "weft:I look."},
        {"type": "function_call", "call_id": "a", "name": "close_agent", "namespace": "multi",
         "arguments": "{\"target\":\"x\"}", "id": "fc_1", "status": "completed"},
        {"type": "function_call_output", "call_id": "a", "output": [
            {"type": "input_text", "text": "Done."},
            {"type": "input_image", "image_url": "data:image/png;base64,AA"}]},
        {"type": "custom_tool_call", "call_id": "b", "name": "apply_patch", "input": "*** Begin"},
        {"type": "custom_tool_call_output", "call_id": "b", "output": "ok"},
        {"type": "local_shell_call", "call_id": "c", "id": "lsh_1", "status": "completed",
         "action": {"type": "exec", "command": ["ls"]}},
        {"type": "local_shell_call_output", "id": "c", "output": "a.txt"},
        {"type": "shell_call", "call_id": "d", "action": {"commands": ["ls"]}},
        {"type": "shell_call_output", "call_id": "d", "output": [
            {"stdout": "b.txt", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}}]},
        {"type": "web_search_call", "id": "ws_1", "status": "completed",
         "action": {"type": "search", "query": "weft"}},
        {"type": "image_generation_call", "id": "ig_1", "result": "AAAA"},
        {"type": "mcp_call", "id": "mcp_1", "name": "roll", "server_label": "dice",
         "arguments": "{\"n\":1}", "output": "4"},
        {"type": "code_interpreter_call", "id": "ci_1", "code": "1+1", "outputs": null},
        {"type": "tool_search_call", "call_id": "e", "execution": "client",
         "arguments": {"query": "x"}},
        {"type": "tool_search_output", "call_id": "e", "tools": [
            {"type": "namespace", "name": "crm", "description": "", "tools": [
                {"type": "function", "name": "find", "parameters": {"type": "object"},
                 "defer_loading": true}]}]},
        {"type": "additional_tools", "role": "developer", "tools": [
            {"type": "function", "name": "more", "parameters": {"type": "object"}}]},
        {"type": "configuration_update", "reasoning": {"effort": "low"}},
        {"type": "agent_message", "author": "helper", "recipient": "main",
         "content": [{"type": "input_text", "text": "Ready."}]},
        {"type": "compaction", "encrypted_content": "weft:We met."}])");
    ASSERT_FALSE(read.error) << read.error->param << ": " << read.error->message;
    std::string seen;
    for (const Json& message : read.conversation.input.messages) {
        const Json calls = message.value("tool_calls", Json::array());
        seen += message["role"].get<std::string>();
        for (const Json& call : calls) {
            seen += " " + call["function"]["name"].get<std::string>() +
                    call["function"]["arguments"].dump();
        }
        if (calls.empty()) seen += " " + message.value("name", "") + ": ";
        if (calls.empty()) seen += message["content"].get<std::string>();
        seen += message.value("reasoning_content", "") + "\n";
    }
    EXPECT_EQ(seen,
              "user : Go.\n"
              "assistant multi__close_agent{\"target\":\"x\"}I look.\n"
              "tool multi__close_agent: Done.[an image, which this model cannot see]\n"
              "assistant apply_patch{\"input\":\"*** Begin\"}\n"
              "tool apply_patch: ok\n"
              "assistant local_shell{\"type\":\"exec\",\"command\":[\"ls\"]}\n"
              "tool local_shell: a.txt\n"
              "assistant shell{\"commands\":[\"ls\"]}\n"
              "tool shell: [{\"stdout\":\"b.txt\",\"stderr\":\"\",\"outcome\":{\"type\":\"exit\","
              "\"exit_code\":0}}]\n"
              "assistant roll{\"n\":1}\n"
              "tool roll: 4\n"
              "assistant tool_search{\"query\":\"x\"}\n"
              "tool tool_search: Available tools: crm__find\n"
              "user : Ready.\n"
              "user : Summary of the conversation up to this point:\n\nWe met.\n");
    EXPECT_EQ(Names(read.conversation.input.tools), "crm__find more ");
    EXPECT_EQ(read.input.effort, "low");
    EXPECT_FALSE(read.input.compacts);
}

// Each part of a result by itself: no bytes of a medium reach the prompt.
TEST(ResponseInput, PartsOfResults) {
    const struct {
        const char *result, *seen;
    } cases[] = {
        {R"([{"type": "input_text", "text": "ok "}, {"type": "input_image", "image_url": "data:"},
             {"type": "input_file", "file_data": "AAAA"}])",
         "ok [an image, which this model cannot see][a file, which this model cannot read]"},
        {R"([{"type": "input_audio", "input_audio": {"data": "AAAA"}}])",
         "[a recording, which this model cannot hear]"},
        {R"([{"type": "logs", "logs": "1"}, {"type": "image", "url": "data:"}])",
         R"({"type":"logs","logs":"1"}[an image, which this model cannot see])"},
        {R"([{"type": "image", "data": "AAAA"},
             {"type": "resource", "resource": {"uri": "u", "blob": "AAAA"}}])",
         "[an image, which this model cannot see][a file, which this model cannot read]"},
        {R"({"type": "computer_screenshot", "image_url": "data:"})",
         "[an image, which this model cannot see]"},
        {R"([{"type": "a", "x": 1}, {"type": "b"}])", R"([{"type":"a","x":1},{"type":"b"}])"},
        {R"([])", ""}};
    for (const auto& [result, seen] : cases) {
        const std::string items = fmt::format(
            R"([{{"type": "function_call_output", "call_id": "a", "output": {}}}])", result);
        const Read read = ReadItems(items.c_str());
        ASSERT_FALSE(read.error) << result;
        EXPECT_EQ(read.conversation.input.messages[0]["content"], seen) << result;
    }
}

TEST(ResponseInput, RejectsUnreadableItems) {
    const auto refused = [](const char* items) {
        const Read read = ReadItems(items);
        return read.error ? read.error->param : "";
    };
    EXPECT_EQ(refused(R"([{"type": "compaction", "encrypted_content": "gAAAA"}])"),
              "input[0].encrypted_content");
    EXPECT_EQ(refused(R"([{"type": "mood"}])"), "input[0].type");
    EXPECT_EQ(refused(R"([{"type": "item_reference", "id": "msg_1"}])"), "input[0].id");
    EXPECT_EQ(refused(R"([{"id": "msg_1"}])"), "input[0].id");
    EXPECT_EQ(refused(R"([{"type": "function_call_output", "call_id": "a", "output": 1}])"),
              "input[0].output");
    EXPECT_EQ(refused(R"([{"type": "function_call_output", "call_id": "a",
                          "output": [{"type": "input_text", "text": 5}]}])"),
              "input[0].output");
    EXPECT_EQ(refused(R"([{"type": "additional_tools", "tools": [{"type": "function"}]}])"),
              "input[0].tools[0].name");
    EXPECT_EQ(refused(R"([{"type": "compaction_trigger"}, {"role": "user", "content": "a"}])"),
              "input[1].type");
}

TEST(ResponseInput, ReplacesReferences) {
    const Json body{
        {"input", Json::array({{{"id", "msg_x_o0"}}, {{"role", "user"}, {"content", "And?"}}})}};
    const Json item{{"type", "message"}, {"role", "assistant"}, {"content", "Three."}};
    const Read read = ReadBody(body, [&](const std::string& id, int64_t&) {
        EXPECT_EQ(id, "msg_x_o0");
        return &item;
    });
    ASSERT_FALSE(read.error);
    EXPECT_EQ(read.conversation.input.messages[0]["content"], "Three.");
    EXPECT_EQ(read.items[0]["content"], "Three.") << "stored with the item itself";
}

TEST(ResponsesDialect, CallsHaveTheClientsNames) {
    Served served;
    served.name = std::string("m");
    const auto make = [&] {
        ResponseForm form{.head = {{"id", "resp_x"}, {"created_at", 0}}};
        form.tools = ReadTools(Json::parse(kCodexTools)).tools;
        return MakeResponsesDialect(served, std::move(form));
    };
    Choice choice;
    choice.said.tool_calls = {{"multi_agent_v1__close_agent", {{"target", "x"}}},
                              {"apply_patch", {{"input", "a\nb"}}}};
    const Json whole = Json::parse(make()->Whole({choice}, {}));
    const Json& output = whole["output"];
    EXPECT_EQ(output[0]["type"], "function_call");
    EXPECT_EQ(output[0]["name"], "close_agent");
    EXPECT_EQ(output[0]["namespace"], "multi_agent_v1");
    EXPECT_EQ(output[1]["type"], "custom_tool_call");
    EXPECT_EQ(output[1]["name"], "apply_patch");
    EXPECT_EQ(output[1]["input"], "a\nb");
    EXPECT_EQ(output[1]["id"], "ctc_x_o1");
    EXPECT_FALSE(output[1].contains("arguments") || output[1].contains("namespace"));

    const auto dialect = make();
    std::string out;
    chat::AnswerDelta delta;
    for (const auto& [name, text, begins, ends] :
         {std::tuple("apply_patch", "{\"input\": \"a", true, false),
          {"", "\\nb", false, false},
          {"", "\"}", false, false},
          {"", "", false, true}}) {
        delta.call_parts = {{name, text, begins, ends}};
        dialect->Delta(0, delta, {}, out);
    }
    std::string types, text;
    Json done;
    for (size_t at = 0; (at = out.find("data: ", at)) != out.npos; at += 6) {
        const Json event = Json::parse(out.substr(at + 6, out.find('\n', at) - at - 6));
        types += event["type"].get<std::string>() + " ";
        text += event.value("delta", "");
        if (event.contains("item")) done = event["item"];
    }
    EXPECT_EQ(types,
              "response.output_item.added response.custom_tool_call_input.delta "
              "response.custom_tool_call_input.delta response.custom_tool_call_input.done "
              "response.output_item.done ");
    EXPECT_EQ(text, "a\nb");
    EXPECT_EQ(done["input"], "a\nb");
    EXPECT_EQ(done["status"], "completed");
}

TEST(ResponseInput, ReferencesDoNotDoubleItems) {
    Conversation conversation;
    ResponseTools tools;
    Json items = Json::parse(R"([{"role": "user", "content": "One.", "id": "mine"}])");
    const Json body{{"input", Json::parse(R"([{"type": "item_reference", "id": "mine"},
                                              {"role": "user", "content": "Two."}])")}};
    Fields fields(body);
    ReadResponseInput(fields, items, kNoItems, tools, conversation);
    ASSERT_FALSE(fields.error());
    EXPECT_EQ(items.size(), 2u);
    EXPECT_EQ(conversation.input.messages.size(), 2u);
}

// A reference has sixty bytes and stands for an item of any size.
TEST(ResponseInput, ReferencesCountAsTheirItems) {
    const Json item{{"type", "image_generation_call"}, {"result", std::string(1 << 20, 'A')}};
    int finds = 0;
    const FindItem find = [&](const std::string&, int64_t&) { return ++finds, &item; };
    const Json reference{{"type", "item_reference"}, {"id", "item_a_1"}};
    Json body{{"input", Json::array()}};
    for (int i = 0; i < 1000; ++i) body["input"].push_back(reference);
    const Read many = ReadBody(body, find);
    ASSERT_TRUE(many.error);
    EXPECT_EQ(many.error->message,
              "The items that 'input' refers to hold more than 134217728 bytes.");
    EXPECT_LT(finds, 130);
    EXPECT_TRUE(many.items.empty());
    body["input"].erase(body["input"].begin() + 10, body["input"].end());
    const Read few = ReadBody(body, find);
    EXPECT_FALSE(few.error);
    EXPECT_EQ(few.items.size(), 10u);
}

TEST(ResponseInput, AConversationNeedsNoInput) {
    Conversation conversation;
    ResponseTools tools;
    Json items = Json::parse(R"([{"role": "user", "content": "One."}])");
    const Json body = Json::object();
    Fields fields(body);
    ReadResponseInput(fields, items, kNoItems, tools, conversation);
    EXPECT_FALSE(fields.error());
    EXPECT_EQ(conversation.input.messages.size(), 1u);
}

TEST(ResponsesDialect, SummariesEndWithASentence) {
    Served served;
    served.name = std::string("m");
    const auto summary = [&](const char* text, const char* finish) {
        Choice choice;
        choice.said = {text, "", {}};
        choice.end.finish = finish;
        const ResponseForm form{.head = {{"id", "resp_x"}, {"created_at", 0}}, .compacts = true};
        const Json response = Json::parse(MakeResponsesDialect(served, form)->Whole({choice}, {}));
        return response["output"][0]["encrypted_content"].get<std::string>();
    };
    EXPECT_EQ(summary("We met. It ra", "length"), "weft:We met.");
    EXPECT_EQ(summary("We met. It ra", "stop"), "weft:We met. It ra");
    EXPECT_EQ(summary("A 1.5 b", "length"), "weft:A 1.5 b");
}

TEST(ResponsesDialect, SummariesAreOneItem) {
    Served served;
    served.name = std::string("m");
    Choice choice;
    choice.said = {"We met.", "Hm.", {}};
    ResponseForm form{.head = {{"id", "resp_x"}, {"created_at", 0}}, .compacts = true};
    const Json response = Json::parse(MakeResponsesDialect(served, form)->Whole({choice}, {}));
    ASSERT_EQ(response["output"].size(), 1u);
    EXPECT_EQ(response["output"][0]["type"], "compaction");
    EXPECT_EQ(Unsealed(response["output"][0]["encrypted_content"].get<std::string>()), "We met.");
    form.kept = Json::array({{{"role", "user"}}});
    const Json compacted = Json::parse(MakeResponsesDialect(served, form)->Whole({choice}, {}));
    EXPECT_EQ(compacted["object"], "response.compaction");
    EXPECT_EQ(compacted["output"].size(), 2u);
    EXPECT_EQ(compacted["output"][1]["type"], "compaction");
}

}  // namespace
}  // namespace weft::serve
