// Behavior that Ollama's package cannot show with a model that calls no tools: reasoning and calls,
// streamed and complete, an error in a stream; and the routes.
#include "serve/api/ollama/ollama_dialect.h"

#include <gtest/gtest.h>

#include "base/deadline.h"
#include "chat/chat.h"
#include "model_files/model_file.h"
#include "model_files/read_tokenizer.h"
#include "serve/api/gate.h"
#include "serve/api/ollama/ollama.h"
#include "serve/api/served.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::serve {
namespace {

std::vector<Json> JsonLinesOf(const std::string& out) {
    std::vector<Json> lines;
    for (size_t at = 0; at < out.size();) {
        const size_t end = out.find('\n', at);
        EXPECT_NE(end, std::string::npos) << "a line has no end";
        lines.push_back(Json::parse(out.substr(at, end - at)));
        at = end + 1;
    }
    return lines;
}

OllamaOptions Words(bool chat) {
    OllamaOptions words;
    words.chat = chat;
    words.model = std::string("m:latest");
    words.begin_ns = NowNs();
    if (!chat) words.context = {5, 6};
    return words;
}

std::vector<Json> Said(bool chat) {
    const Served served;
    const auto dialect = MakeOllamaDialect(served, Words(chat));
    std::string out;
    dialect->Begin(out);
    dialect->Delta(0, {"", "Hm \xff", {}}, {}, out);
    dialect->Delta(0, {"I \"look\"", "", {}}, {}, out);
    dialect->Delta(0, {"", "", {{"find", {{"what", "x"}}}, {"odd", Json(5)}}}, {}, out);
    dialect->EndChoice(0, {"tool_calls", "", false, {7, 8}}, out);
    dialect->End({10, 4, 7, 0.5, 1, 3}, out);
    return JsonLinesOf(out);
}

TEST(OllamaDialect, StreamsMessages) {
    const auto lines = Said(true);
    ASSERT_EQ(lines.size(), 4u);
    for (const Json& line : lines) {
        EXPECT_EQ(line["model"], "m:latest");
        EXPECT_EQ(line["message"]["role"], "assistant");
        EXPECT_EQ(line["done"], &line == &lines.back());
    }
    EXPECT_EQ(lines[0]["message"]["thinking"], "Hm \xef\xbf\xbd");
    EXPECT_EQ(lines[0]["message"]["content"], "");
    EXPECT_EQ(lines[1]["message"]["content"], "I \"look\"");
    const Json& calls = lines[2]["message"]["tool_calls"];
    ASSERT_EQ(calls.size(), 2u);
    EXPECT_EQ(calls[0]["function"]["name"], "find");
    EXPECT_EQ(calls[0]["function"]["arguments"], Json({{"what", "x"}}));
    EXPECT_TRUE(calls[1]["function"]["arguments"].is_object());
    EXPECT_EQ(calls[1]["function"]["index"], 1);
    const Json& last = lines[3];
    EXPECT_EQ(last["done_reason"], "stop");
    EXPECT_EQ(last["prompt_eval_count"], 10);
    EXPECT_EQ(last["eval_count"], 7);
    EXPECT_EQ(last["load_duration"], 500'000'000);
    EXPECT_EQ(last["prompt_eval_duration"], 500'000'000);
    EXPECT_EQ(last["eval_duration"], 2'000'000'000);
    EXPECT_FALSE(last.contains("context"));
}

TEST(OllamaDialect, StreamsResponses) {
    const auto lines = Said(false);
    ASSERT_EQ(lines.size(), 4u);
    EXPECT_EQ(lines[0]["thinking"], "Hm \xef\xbf\xbd");
    EXPECT_EQ(lines[1]["response"], "I \"look\"");
    EXPECT_EQ(lines[2]["tool_calls"][0]["function"]["name"], "find");
    EXPECT_EQ(lines[3]["context"], Json({5, 6, 7, 8}));
}

TEST(OllamaDialect, CompleteAnswerHasAllFields) {
    const Served served;
    Choice choice;
    choice.said = {"text", "thought", {{"find", Json::object()}}};
    choice.end.finish = "length";
    const auto dialect = MakeOllamaDialect(served, Words(true));
    const Json whole = Json::parse(dialect->Whole({choice}, {3, 0, 2}));
    EXPECT_EQ(whole["message"]["content"], "text");
    EXPECT_EQ(whole["message"]["thinking"], "thought");
    EXPECT_EQ(whole["message"]["tool_calls"].size(), 1u);
    EXPECT_EQ(whole["done"], true);
    EXPECT_EQ(whole["done_reason"], "length");
}

TEST(OllamaDialect, AnErrorIsALine) {
    const Served served;
    const auto dialect = MakeOllamaDialect(served, Words(true));
    EXPECT_STREQ(dialect->StreamType(), "application/x-ndjson");
    std::string out;
    dialect->Delta(0, {"a", "", {}}, {}, out);
    dialect->Fail({503, "rank 1 was lost \xff", "", "rank_lost"}, out);
    const auto lines = JsonLinesOf(out);
    ASSERT_EQ(lines.size(), 2u);
    EXPECT_EQ(lines[1], Json({{"error", "rank 1 was lost \xef\xbf\xbd"}}));
}

TEST(OllamaDialect, LoadRequestsGetAnEmptyAnswer) {
    const Json said = Json::parse(OllamaNothing(Words(true), "load"));
    EXPECT_EQ(said["done_reason"], "load");
    EXPECT_EQ(said["message"]["content"], "");
    EXPECT_EQ(Json::parse(OllamaNothing(Words(false), "unload"))["response"], "");
}

TEST(OllamaRoutes, AreFoundByMethodAndPath) {
    EXPECT_NE(FindRoute("POST", "/api/chat"), nullptr);
    EXPECT_NE(FindRoute("HEAD", "/api/tags"), nullptr);
    EXPECT_NE(FindRoute("DELETE", "/api/delete"), nullptr);
    EXPECT_EQ(FindRoute("GET", "/api/chat"), nullptr);
    EXPECT_EQ(FindRoute("POST", "/api/chat/"), nullptr);
    EXPECT_EQ(FindRoute("GET", "/api/status"), nullptr);
}

TEST(OllamaRoutes, ErrorsUseTheFormatOfThePath) {
    const ApiError error{400, "bad", "x", "y"};
    EXPECT_EQ(ErrorFor("/api/chat", error), R"({"error":"bad"})");
    EXPECT_TRUE(Json::parse(ErrorFor("/api/status", error))["error"].is_object());
    EXPECT_TRUE(Json::parse(ErrorFor("/v1/chat/completions", error))["error"].is_object());
    EXPECT_EQ(WhileLoading("/api/chat").body, R"({"error":"The model is loading."})");
}

TEST(OllamaRoutes, TimesAreOfRfc3339) {
    EXPECT_EQ(OllamaTime(0), "1970-01-01T00:00:00.000000000Z");
    EXPECT_EQ(OllamaTime(1'700'000'000), "2023-11-14T22:13:20.000000000Z");
    EXPECT_EQ(OllamaTime().size(), 30u);
}

TEST(OllamaDialect, ASilentStreamHasLinesThatSayNothing) {
    const Served served;
    for (const bool chat : {true, false}) {
        std::string out;
        MakeOllamaDialect(served, Words(chat))->Waiting(0, out);
        const Json line = JsonLinesOf(out).at(0);
        EXPECT_EQ(chat ? line["message"]["content"] : line["response"], "");
        EXPECT_EQ(line["done"], false);
    }
}

// Clients ask for tools only where the card has them.
TEST(ModelCard, AFaultyTemplateForToolsLeavesToolsOut) {
    const test::TempDir dir;
    for (const bool faulty : {false, true}) {
        support::TinyFile file{.hyper = support::OddHyper()};
        file.chat_template = "{% for m in messages %}{{ m.content }}{% endfor %}";
        file.tool_template = faulty ? "{% for m in %}"
                                    : "{% for m in messages %}{{ m.content }}"
                                      "{% endfor %}{{ tools }}";
        support::WriteTinyGguf(dir / "m.gguf", file);
        const auto source = *model_files::OpenModel(dir / "m.gguf");
        const auto tokenizer = *model_files::LoadTokenizer(*source);
        const auto chat = chat::Chat::Load(source->meta(), *tokenizer);
        ASSERT_TRUE(chat.ok()) << chat.error().message;
        EXPECT_EQ(DescribeModel(*source, dir / "m.gguf", &*chat).tools, !faulty);
    }
}

TEST(ModelCard, SizesInWords) {
    EXPECT_EQ(ParametersText(134'515'008), "134.52M");
    EXPECT_EQ(ParametersText(999'960'000), "1.0B");
    EXPECT_EQ(ParametersText(8'030'261'248), "8.0B");
    EXPECT_EQ(ParametersText(1'500), "1.50K");
}

}  // namespace
}  // namespace weft::serve
