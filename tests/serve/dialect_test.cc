// Behavior that the official packages cannot show with a model that calls no tools: reasoning and
// calls, streamed and complete, in each API's format.
#include "serve/api/dialect.h"

#include <gtest/gtest.h>

#include "serve/api/anthropic/messages.h"
#include "serve/api/gate.h"
#include "serve/api/openai/responses_dialect.h"
#include "serve/api/served.h"

namespace weft::serve {
namespace {

Served Named() {
    Served served;
    served.name = std::string("m");  // avoids a false warning of GCC 12
    return served;
}

chat::AnswerDelta Content(std::string text) {
    return {std::move(text), {}, {}};
}
chat::AnswerDelta Reasoning(std::string text) {
    return {{}, std::move(text), {}};
}
chat::AnswerDelta Call(std::string name, Json arguments) {
    return {{}, {}, {{std::move(name), std::move(arguments)}}};
}

// An answer with reasoning, text and two tool calls.
std::string Streamed(Dialect& dialect) {
    std::string out;
    dialect.Begin(out);
    dialect.Delta(0, Reasoning("Hm"), {}, out);
    dialect.Delta(0, Reasoning("m."), {}, out);
    dialect.Delta(0, Content("I \"look"), {}, out);
    dialect.Delta(0, Content("\".\xff"), {}, out);
    dialect.Delta(0, Call("find", {{"what", "x"}}), {}, out);
    dialect.Delta(0, Call("stop", Json::object()), {}, out);
    dialect.EndChoice(0, {"tool_calls"}, out);
    dialect.End({10, 4, 7}, out);
    return out;
}

// Parses the events; each must have the type given by its line.
std::vector<Json> EventsOf(const std::string& out) {
    std::vector<Json> events;
    size_t at = 0;
    while (at < out.size()) {
        const size_t end = out.find("\n\n", at);
        const std::string event = out.substr(at, end - at);
        const size_t line = event.find('\n');
        EXPECT_EQ(event.substr(0, 7), "event: ");
        EXPECT_EQ(event.substr(line + 1, 6), "data: ");
        events.push_back(Json::parse(event.substr(line + 7)));
        EXPECT_EQ(events.back()["type"], event.substr(7, line - 7));
        at = end + 2;
    }
    return events;
}

std::string Types(const std::vector<Json>& events) {
    std::string types;
    for (const Json& event : events) types += event["type"].get<std::string>() + " ";
    return types;
}

TEST(MessagesDialect, StreamsBlocks) {
    const Served served = Named();
    const auto events = EventsOf(Streamed(*MakeMessagesDialect(served, 10)));
    EXPECT_EQ(Types(events),
              "message_start ping "
              "content_block_start content_block_delta content_block_delta content_block_delta "
              "content_block_stop "
              "content_block_start content_block_delta content_block_delta content_block_stop "
              "content_block_start content_block_delta content_block_stop "
              "content_block_start content_block_delta content_block_stop "
              "message_delta message_stop ");
    EXPECT_EQ(events[0]["message"]["usage"]["input_tokens"], 10);
    EXPECT_EQ(events[2]["content_block"]["type"], "thinking");
    EXPECT_EQ(events[3]["delta"]["thinking"], "Hm");
    EXPECT_EQ(events[5]["delta"]["type"], "signature_delta");
    EXPECT_EQ(events[7]["content_block"]["type"], "text");
    EXPECT_EQ(events[9]["delta"]["text"], "\".\xef\xbf\xbd");
    EXPECT_EQ(events[11]["content_block"]["type"], "tool_use");
    EXPECT_EQ(events[11]["content_block"]["name"], "find");
    EXPECT_EQ(Json::parse(events[12]["delta"]["partial_json"].get<std::string>()),
              Json({{"what", "x"}}));
    for (size_t i = 2, block = 0; i < 17; ++i) {
        EXPECT_EQ(events[i]["index"], block) << i;
        block += events[i]["type"] == "content_block_stop" ? 1 : 0;
    }
    const Json& end = events[17];
    EXPECT_EQ(end["delta"]["stop_reason"], "tool_use");
    EXPECT_EQ(end["usage"]["input_tokens"], 6);
    EXPECT_EQ(end["usage"]["cache_read_input_tokens"], 4);
    EXPECT_EQ(end["usage"]["output_tokens"], 7);
}

// Some clients drop comments of event streams, and end a stream without events.
TEST(ResponsesDialect, RepeatsThatItIsInProgress) {
    const Served served = Named();
    const auto dialect = MakeResponsesDialect(served, {.head = {{"id", "r"}}});
    std::string out;
    dialect->Begin(out);
    dialect->Delta(0, Content("So"), {}, out);
    dialect->Waiting(0, out);
    dialect->Delta(0, Content("."), {}, out);
    const auto events = EventsOf(out);
    EXPECT_EQ(Types(events),
              "response.created response.in_progress response.output_item.added "
              "response.content_part.added response.output_text.delta response.in_progress "
              "response.output_text.delta ");
    for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
}

// A call in pieces gives the same events as a complete one, with more deltas.
std::string Pieced(Dialect& dialect) {
    std::string out;
    const auto part = [&](chat::CallPart piece) {
        chat::AnswerDelta delta;
        delta.call_parts.push_back(std::move(piece));
        dialect.Delta(0, delta, {}, out);
    };
    dialect.Begin(out);
    dialect.Delta(0, Content("So"), {}, out);
    part({"find", "{\"wh", true, false});
    part({"", "at\": \"x\"}", false, false});
    part({"", "", false, true});
    dialect.EndChoice(0, {"tool_calls"}, out);
    dialect.End({10, 4, 7}, out);
    return out;
}

TEST(MessagesDialect, CallsInPieces) {
    const Served served = Named();
    const auto events = EventsOf(Pieced(*MakeMessagesDialect(served, 10)));
    EXPECT_EQ(Types(events),
              "message_start ping content_block_start content_block_delta content_block_stop "
              "content_block_start content_block_delta content_block_delta content_block_stop "
              "message_delta message_stop ");
    EXPECT_EQ(events[5]["content_block"]["name"], "find");
    EXPECT_EQ(events[6]["delta"]["partial_json"], "{\"wh");
    EXPECT_EQ(events[7]["delta"]["partial_json"], "at\": \"x\"}");
}

TEST(ResponsesDialect, CallsInPieces) {
    const Served served = Named();
    const auto events = EventsOf(Pieced(*MakeResponsesDialect(served, {.head = {{"id", "r"}}})));
    EXPECT_EQ(Types(events),
              "response.created response.in_progress response.output_item.added "
              "response.content_part.added response.output_text.delta response.output_text.done "
              "response.content_part.done response.output_item.done response.output_item.added "
              "response.function_call_arguments.delta response.function_call_arguments.delta "
              "response.function_call_arguments.done response.output_item.done "
              "response.completed ");
    EXPECT_EQ(events[11]["arguments"], "{\"what\": \"x\"}");
    EXPECT_EQ(events[12]["item"]["name"], "find");
    EXPECT_EQ(events[13]["response"]["output"][1]["arguments"], "{\"what\": \"x\"}");
}

TEST(MessagesDialect, CompleteAnswerHasTheSameBlocks) {
    const Served served = Named();
    Choice choice;
    choice.said = {"text", "thought", {{"find", {{"what", "x"}}}, {"odd", Json(5)}}};
    choice.end.finish = "tool_calls";
    const Json whole = Json::parse(MakeMessagesDialect(served, 10)->Whole({choice}, {10, 0, 7}));
    ASSERT_EQ(whole["content"].size(), 4u);
    EXPECT_EQ(whole["content"][0]["thinking"], "thought");
    EXPECT_EQ(whole["content"][1]["text"], "text");
    EXPECT_EQ(whole["content"][2]["input"], Json({{"what", "x"}}));
    EXPECT_TRUE(whole["content"][3]["input"].is_object());
    EXPECT_EQ(whole["stop_reason"], "tool_use");
}

TEST(MessagesDialect, ReportsTheStopReason) {
    const Served served = Named();
    const auto reason = [&](ChoiceEnd end) {
        Choice choice;
        choice.end = std::move(end);
        const Json whole = Json::parse(MakeMessagesDialect(served, 1)->Whole({choice}, {}));
        return whole["stop_reason"].get<std::string>() + " " + whole["stop_sequence"].dump();
    };
    EXPECT_EQ(reason({"stop"}), "end_turn null");
    EXPECT_EQ(reason({"stop", "END"}), "stop_sequence \"END\"");
    EXPECT_EQ(reason({"length"}), "max_tokens null");
    EXPECT_EQ(reason({"length", "", true}), "model_context_window_exceeded null");
}

TEST(ResponsesDialect, StreamsItems) {
    const Served served = Named();
    const auto dialect = MakeResponsesDialect(served, {.head = {{"id", "resp_1"}}});
    const auto events = EventsOf(Streamed(*dialect));
    EXPECT_EQ(Types(events),
              "response.created response.in_progress "
              "response.output_item.added response.content_part.added "
              "response.reasoning_text.delta response.reasoning_text.delta "
              "response.reasoning_text.done response.content_part.done response.output_item.done "
              "response.output_item.added response.content_part.added "
              "response.output_text.delta response.output_text.delta "
              "response.output_text.done response.content_part.done response.output_item.done "
              "response.output_item.added response.function_call_arguments.delta "
              "response.function_call_arguments.done response.output_item.done "
              "response.output_item.added response.function_call_arguments.delta "
              "response.function_call_arguments.done response.output_item.done "
              "response.completed ");
    for (size_t i = 0; i < events.size(); ++i) EXPECT_EQ(events[i]["sequence_number"], i);
    size_t item = 0;
    for (size_t i = 2; i + 1 < events.size(); ++i) {
        EXPECT_EQ(events[i]["output_index"], item) << i;
        item += events[i]["type"] == "response.output_item.done" ? 1 : 0;
    }
    EXPECT_EQ(events[13]["text"], "I \"look\".\xef\xbf\xbd");
    EXPECT_EQ(events[18]["arguments"], R"({"what":"x"})");
    const Json& response = events.back()["response"];
    EXPECT_EQ(response["status"], "completed");
    ASSERT_EQ(response["output"].size(), 4u);
    for (size_t i = 0, seen = 0; i < events.size(); ++i) {
        if (events[i]["type"] == "response.output_item.done") {
            EXPECT_EQ(events[i]["item"], response["output"][seen++]);
        }
    }
    EXPECT_EQ(response["usage"]["input_tokens_details"]["cached_tokens"], 4);
}

// A stream and a complete answer have the same items, whatever the answer lacks.
TEST(ResponsesDialect, EmptyAnswers) {
    const Served served = Named();
    const auto types = [](const Json& response) {
        std::string all;
        for (const Json& item : response["output"]) {
            all += item["type"].get<std::string>() + " ";
            if (item["type"] != "message") continue;
            EXPECT_EQ(item["content"][0]["text"], "");
            EXPECT_EQ(item["status"], response["status"]);
        }
        return all;
    };
    const auto items = [&](const char* reasoning, const char* finish) {
        const auto make = [&] { return MakeResponsesDialect(served, {.head = {{"id", "r"}}}); };
        Choice choice;
        choice.said.reasoning = reasoning;
        choice.end.finish = finish;
        const Json whole = Json::parse(make()->Whole({choice}, {.reasoning_tokens = 3}));
        EXPECT_EQ(whole["usage"]["output_tokens_details"]["reasoning_tokens"], 3);
        const auto dialect = make();
        std::string out;
        dialect->Begin(out);
        if (*reasoning != '\0') dialect->Delta(0, choice.said, {}, out);
        dialect->EndChoice(0, choice.end, out);
        dialect->End({}, out);
        EXPECT_EQ(types(EventsOf(out).back()["response"]), types(whole));
        return types(whole);
    };
    EXPECT_EQ(items("", "stop"), "message ");
    EXPECT_EQ(items("", "length"), "message ");
    EXPECT_EQ(items("Hm", "stop"), "reasoning message ");
    EXPECT_EQ(items("Hm", "length"), "reasoning ");
}

TEST(ResponsesDialect, AnErrorInAStreamIsItsLastEvent) {
    const Served served = Named();
    const auto dialect = MakeResponsesDialect(served, {.head = {{"id", "resp_1"}}});
    std::string out;
    dialect->Begin(out);
    dialect->Fail({503, "rank 1 was lost"}, out);
    const auto events = EventsOf(out);
    EXPECT_EQ(events.back()["type"], "response.failed");
    EXPECT_EQ(events.back()["response"]["error"]["message"], "rank 1 was lost");
}

// Agents recognize a full context by the words of the API that they speak: Claude Code, litellm
// (is_error_str_context_window_exceeded), Codex (is_context_window_error), llama.cpp's web page.
TEST(FullContexts, EachApiHasItsOwnWords) {
    const ApiError error = TooLong({.tokens = 900, .context = 256}, "messages");
    const auto sent = [&](const char* path) { return Json::parse(ErrorFor(path, error)); };
    const Json anthropic = sent("/v1/messages");
    EXPECT_EQ(anthropic["error"]["type"], "invalid_request_error");
    EXPECT_EQ(anthropic["error"]["message"], "prompt is too long: 900 tokens > 255 maximum");
    const Json chat = sent("/v1/chat/completions")["error"];
    EXPECT_EQ(chat["code"], "context_length_exceeded");
    EXPECT_EQ(chat["param"], "messages");
    const auto message = [](const Json& of) { return of["message"].get<std::string>(); };
    EXPECT_TRUE(
        message(chat).starts_with("This model's maximum context length is 256 tokens. "
                                  "However, your messages resulted in 900 tokens"))
        << message(chat);
    const Json responses = sent("/v1/responses")["error"];
    EXPECT_EQ(responses["code"], "context_length_exceeded");
    EXPECT_TRUE(
        message(responses).starts_with("Your input exceeds the context window of this "
                                       "model. "));
    const Json llama = sent("/completion")["error"];
    EXPECT_EQ(llama["type"], "exceed_context_size_error");
    EXPECT_EQ(llama["n_prompt_tokens"], 900);
    EXPECT_EQ(llama["n_ctx"], 256);
    EXPECT_TRUE(
        message(llama).starts_with("request (900 tokens) exceeds the available context "
                                   "size (256 tokens), try increasing it"));
    const ApiError bound = TooLong({.tokens = 900, .context = 256, .at_least = true}, "messages");
    for (const char* path :
         {"/v1/messages", "/v1/chat/completions", "/v1/responses", "/completion", "/api/chat"}) {
        EXPECT_NE(ErrorFor(path, bound).find("at least 900 tokens"), std::string::npos) << path;
        EXPECT_EQ(ErrorFor(path, error).find("at least 900"), std::string::npos) << path;
    }
    EXPECT_TRUE(sent("/api/chat")["error"].get<std::string>().starts_with(
        "the prompt is longer than the context length currently available to the model"));
    const ApiError text = TooLong({.tokens = 300, .context = 256, .answers = false}, "input[1]");
    EXPECT_TRUE(Json::parse(ErrorFor("/api/embed", text))["error"].get<std::string>().starts_with(
        "the input length exceeds the context length"));
    EXPECT_NE(message(Json::parse(OpenAiError(text))["error"]).find("'input[1]' resulted in 300"),
              std::string::npos);
}

// Codex looks for the code in a stream's last event, not in an HTTP error.
TEST(FullContexts, AStreamOfResponsesFailsInTheStream) {
    const Served served = Named();
    const auto dialect = MakeResponsesDialect(served, {.head = {{"id", "resp_1"}}});
    const ApiError error = TooLong({.tokens = 900, .context = 256}, "input");
    EXPECT_TRUE(dialect->StreamsRefusal(error));
    EXPECT_FALSE(dialect->StreamsRefusal({400, "no", "input", "invalid_value"}));
    EXPECT_FALSE(MakeMessagesDialect(served, 1)->StreamsRefusal(error));
    std::string out;
    dialect->Begin(out);
    dialect->Fail(error, out);
    const auto events = EventsOf(out);
    EXPECT_EQ(Types(events), "response.created response.in_progress response.failed ");
    EXPECT_EQ(events[2]["response"]["status"], "failed");
    EXPECT_EQ(events[2]["response"]["error"]["code"], "context_length_exceeded");
}

}  // namespace
}  // namespace weft::serve
