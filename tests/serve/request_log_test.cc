// Lines of the request log with any client input, and the recent errors.
#include "serve/request_log.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

namespace weft::serve {
namespace {

HttpRecord Record(int status, std::string path = "/v1/completions") {
    HttpRecord record;
    record.id = "req_1";
    record.peer = "10.0.0.7:1";
    record.method = "POST";
    record.path = std::move(path);
    record.status = status;
    record.seconds = 0.5327;
    record.sent_bytes = 77;
    return record;
}

TEST(RequestLog, Lines) {
    HttpRecord record = Record(200);
    record.note = {.key = "alice",
                   .prompt_tokens = 12,
                   .cached_tokens = 0,
                   .generated_tokens = 3,
                   .queue_s = 0.0004,
                   .first_token_s = 0.041};
    EXPECT_EQ(RequestLine(record, "T", false),
              "weft: time=T peer=10.0.0.7:1 id=req_1 key=alice method=POST path=/v1/completions "
              "status=200 prompt=12 cached=0 generated=3 queue_ms=0.4 first_token_ms=41.0 "
              "total_ms=532.7 bytes=77\n");
    const auto json = nlohmann::json::parse(RequestLine(record, "T", true));
    EXPECT_EQ(json["level"], "info");
    EXPECT_EQ(json["generated"], 3);
    EXPECT_FALSE(json.contains("error"));
    EXPECT_FALSE(json.contains("gone"));
    EXPECT_FALSE(json.contains("left_out"));
    record.note.left_out = "uniqueItems,not";
    EXPECT_NE(RequestLine(record, "T", false).find(" left_out=uniqueItems,not\n"),
              std::string::npos);
}

TEST(RequestLog, RequestTextCannotInjectLines) {
    HttpRecord record = Record(500, "/a b\"c=\n\x1b[31m\xff");
    record.method = "GE\tT";
    record.note.error = "one\ntwo \"three\"";
    record.gone = true;
    const std::string text = RequestLine(record, "T", false);
    EXPECT_EQ(text.find('\n'), text.size() - 1) << text;
    for (const char c : text.substr(0, text.size() - 1)) {
        EXPECT_TRUE(c >= ' ' && c < '\x7f') << text;
    }
    EXPECT_NE(text.find("error=\"one\\ntwo \\\"three\\\"\""), std::string::npos) << text;
    EXPECT_NE(text.find(" gone=true"), std::string::npos);
    const auto json = nlohmann::json::parse(RequestLine(record, "T", true));
    EXPECT_EQ(json["level"], "error");
    record.path.assign(1 << 20, 'x');
    EXPECT_LT(RequestLine(record, "T", true).size(), 6000u);
}

TEST(RequestLog, KeepsRecentErrors) {
    RequestLog log(false);
    for (const int status : {200, 400, 401, 404, 413}) log.Add(Record(status));
    EXPECT_TRUE(log.errors().empty()) << "a client's own";
    HttpRecord cut = Record(200);
    cut.note.error = "a rank was lost";
    log.Add(cut);
    log.Add(Record(503));
    ASSERT_EQ(log.errors().size(), 2u);
    EXPECT_EQ(log.errors()[0].text, "a rank was lost");
    EXPECT_EQ(log.errors()[1].text, "answered with status 503");
    for (int i = 0; i < 200; ++i) log.Add(Record(500, fmt::format("/{}", i)));
    ASSERT_EQ(log.errors().size(), RequestLog::kMostErrors);
    EXPECT_EQ(log.errors().back().path, "/199");
    EXPECT_EQ(log.errors().front().path, "/150");
}

// A load balancer probes once a second for minutes.
TEST(RequestLog, ProbesDuringLoadingAreNotErrors) {
    RequestLog log(false);
    HttpRecord probe = Record(503, "/ready");
    for (const char* method : {"GET", "HEAD"}) {
        probe.method = method;
        probe.note.error = "The model is loading.";
        log.Add(probe);
    }
    probe.status = 0;
    probe.gone = true;
    log.Add(probe);
    EXPECT_TRUE(log.errors().empty());
    probe.status = 500;
    log.Add(probe);
    log.Add(Record(503));
    EXPECT_EQ(log.errors().size(), 2u) << "what failed is one";
}

}  // namespace
}  // namespace weft::serve
