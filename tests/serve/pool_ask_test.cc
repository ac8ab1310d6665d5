// Tests how a server of several models reads requests and joins metrics.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "serve/pool/ask.h"
#include "serve/pool/merge_metrics.h"

namespace weft::serve {
namespace {

PoolRequest Asked(const std::string& path, const std::string& body) {
    HttpRequest request;
    request.method = "POST";
    request.path = path;
    request.body = body;
    PoolRequest ask;
    const auto error = ReadPoolRequest(request, ask);
    EXPECT_FALSE(error) << error->message;
    return ask;
}

TEST(PoolAskTest, ReadsModelAndStream) {
    const PoolRequest ask = Asked("/v1/chat/completions", R"({"model": "b", "stream": true})");
    EXPECT_EQ(ask.model, "b");
    EXPECT_EQ(ask.form, StreamForm::kOpenAi);
    EXPECT_EQ(Asked("/v1/chat/completions", "{}").form, StreamForm::kNone);
    EXPECT_EQ(Asked("/v1/embeddings", R"({"stream": true})").form, StreamForm::kNone);
    EXPECT_EQ(Asked("/v1/messages", R"({"stream": true})").form, StreamForm::kAnthropic);
    EXPECT_EQ(Asked("/v1/responses", R"({"stream": true})").form, StreamForm::kResponses);
    EXPECT_EQ(Asked("/completion", R"({"stream": true})").form, StreamForm::kLlama);
}

TEST(PoolAskTest, ReadsOllamasFields) {
    PoolRequest ask = Asked("/api/chat", R"({"name": "b:latest", "messages": [{}]})");
    EXPECT_EQ(ask.model, "b:latest");
    EXPECT_EQ(ask.form, StreamForm::kLines);  // a stream unless the request says otherwise
    EXPECT_EQ(ask.keep_ms, std::nullopt);
    ask = Asked("/api/generate", R"({"model": "b", "keep_alive": 0})");
    EXPECT_TRUE(ask.unloads);
    ask = Asked("/api/generate", R"({"model": "b", "keep_alive": 0, "prompt": "x"})");
    EXPECT_FALSE(ask.unloads);
    EXPECT_EQ(ask.keep_ms, 0);
    HttpRequest request;
    request.method = "POST";
    request.path = "/api/chat";
    request.body = "{}";
    const auto error = ReadPoolRequest(request, ask);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->message, "model is required");
}

// Slot actions may omit the body, as at a server of one model.
TEST(PoolAskTest, AnActionOnASlotMayHaveNoBody) {
    HttpRequest request;
    request.method = "POST";
    request.path = "/slots/0";
    request.query = "action=erase&model=b";
    PoolRequest ask;
    EXPECT_FALSE(ReadPoolRequest(request, ask));
    EXPECT_EQ(ask.model, "b");
    request.path = "/completion";
    EXPECT_TRUE(ReadPoolRequest(request, ask));
}

TEST(PoolAskTest, ReadsTheModelOfAQuery) {
    HttpRequest request;
    request.method = "GET";
    request.path = "/props";
    request.query = "a=b&model=qwen3%3A8b+x&c";
    PoolRequest ask;
    EXPECT_FALSE(ReadPoolRequest(request, ask));
    EXPECT_EQ(ask.model, "qwen3:8b x");
    for (const char* query : {"", "model=", "model", "models=x", "model=%"}) {
        request.query = query;
        PoolRequest odd;
        EXPECT_FALSE(ReadPoolRequest(request, odd));
        EXPECT_EQ(odd.model, std::string(query) == "model=%" ? "%" : "") << query;
    }
}

TEST(PoolAskTest, RejectsInvalidJson) {
    HttpRequest request;
    request.method = "POST";
    request.path = "/v1/completions";
    for (const char* body : {"", "[]", "{", "\"model\""}) {
        request.body = body;
        PoolRequest ask;
        const auto error = ReadPoolRequest(request, ask);
        ASSERT_TRUE(error) << body;
        EXPECT_EQ(error->status, 400);
    }
}

TEST(PoolAskTest, ReadsKeepAlive) {
    const std::vector<std::pair<Json, int64_t>> good = {
        {300, 300'000},   {0, 0},         {-1, -1},
        {"5m", 300'000},  {"0", 0},       {"1h30m", 5'400'000},
        {"-1m", -1},      {"1.5s", 1500}, {-0.0001, -1},
        {"+5m", 300'000}, {"100ms", 100}, {1e300, 1'000'000'000'000},
        {-1e300, -1}};
    for (const auto& [value, ms] : good) EXPECT_EQ(KeepAliveMs(value), ms) << value;
    for (const Json& value : {Json("5"), Json(""), Json("m"), Json("5x"), Json("5m "), Json("-"),
                              Json(nullptr), Json(true), Json("nan"), Json("1e3s")}) {
        EXPECT_EQ(KeepAliveMs(value), std::nullopt) << value;
    }
}

TEST(PoolAskTest, RefusesAKeepAliveThatIsNoDuration) {
    HttpRequest request;
    request.method = "POST";
    request.path = "/api/chat";
    for (const char* value : {"\"300\"", "\"abc\"", "\"\"", "true", "[]"}) {
        request.body = fmt::format(R"({{"model": "m", "keep_alive": {}}})", value);
        PoolRequest ask;
        const auto error = ReadPoolRequest(request, ask);
        ASSERT_TRUE(error) << value;
        EXPECT_EQ(error->status, 400);
        EXPECT_EQ(error->param, "keep_alive");
    }
    request.body = R"({"model": "m", "keep_alive": null})";
    PoolRequest ask;
    EXPECT_FALSE(ReadPoolRequest(request, ask));
    EXPECT_EQ(ask.keep_ms, std::nullopt);
}

TEST(PoolAskTest, DistinguishesAnEmptyNameFromNone) {
    HttpRequest request;
    request.method = "POST";
    request.path = "/v1/completions";
    for (const auto& [body, empty] :
         {std::pair(R"({"model": ""})", true), std::pair(R"({"prompt": "a"})", false)}) {
        request.body = body;
        PoolRequest ask;
        EXPECT_FALSE(ReadPoolRequest(request, ask));
        EXPECT_EQ(ask.names_nothing, empty) << body;
    }
}

TEST(PoolAskTest, WritesErrorsIntoStreams) {
    const std::string body = R"({"error":{"message":"m","type":"t","param":null,"code":"c"}})";
    EXPECT_EQ(ErrorEvent(StreamForm::kOpenAi, body), "data: " + body + "\n\ndata: [DONE]\n\n");
    EXPECT_EQ(ErrorEvent(StreamForm::kAnthropic, body), "event: error\ndata: " + body + "\n\n");
    EXPECT_EQ(ErrorEvent(StreamForm::kLines, body), body + "\n");
    EXPECT_EQ(ErrorEvent(StreamForm::kResponses, body),
              "event: error\ndata: {\"type\":\"error\",\"sequence_number\":0,\"code\":\"c\","
              "\"message\":\"m\",\"param\":null}\n\n");
}

TEST(MergeMetricsTest, KeepsOneHelpAndTypeOfEachName) {
    const std::vector<std::string> texts = {
        "# HELP a A\n# TYPE a counter\na{m=\"1\"} 1\n# HELP b B\n# TYPE b gauge\nb 2\n",
        "# HELP c C\n# TYPE c gauge\nc 3\n# HELP a A\n# TYPE a counter\na{m=\"2\"} 4\n", "",
        "junk"};
    EXPECT_EQ(MergeMetrics(texts),
              "# HELP a A\n# TYPE a counter\na{m=\"1\"} 1\na{m=\"2\"} 4\n"
              "# HELP b B\n# TYPE b gauge\nb 2\n"
              "# HELP c C\n# TYPE c gauge\nc 3\n");
}

}  // namespace
}  // namespace weft::serve
