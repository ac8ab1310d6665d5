// Methods of the paths, and the answers to other methods.
#include "serve/api/routes.h"

#include <gtest/gtest.h>

#include "serve/api/gate.h"

namespace weft::serve {
namespace {

TEST(Routes, ListMethodsOfAPath) {
    EXPECT_EQ(AllowedMethods("/v1/chat/completions"), "POST");
    EXPECT_EQ(AllowedMethods("/v1/models"), "GET, HEAD");
    EXPECT_EQ(AllowedMethods("/v1/models/a/b"), "GET, HEAD");
    EXPECT_EQ(AllowedMethods("/v1/responses"), "POST");
    EXPECT_EQ(AllowedMethods("/v1/responses/resp_1"), "GET, HEAD, DELETE");
    EXPECT_EQ(AllowedMethods("/v1/responses/resp_1/input_items"), "GET, HEAD");
    EXPECT_EQ(AllowedMethods("/v1/responses/compact"), "POST");
    EXPECT_FALSE(FindStored("/v1/responses/compact"));
    EXPECT_EQ(AllowedMethods("/"), "GET, HEAD");
    EXPECT_EQ(AllowedMethods("/api/tags"), "GET, HEAD");
    EXPECT_EQ(AllowedMethods("/api/delete"), "DELETE");
    for (const char* path : {"/v1", "/v1/responses/", "/v1/responses/a/b", "/v1/responses//a",
                             "/v1/responses/input_items", "/v1/responses//input_items",
                             "/v1/responses/a/b/input_items", "/api/nothing", "/assets/none"}) {
        const bool id = path == std::string_view("/v1/responses/input_items");
        EXPECT_EQ(AllowedMethods(path), id ? "GET, HEAD, DELETE" : "") << path;
    }
    EXPECT_TRUE(Lists("GET, HEAD, DELETE", "HEAD"));
    EXPECT_FALSE(Lists("GET, HEAD, DELETE", "EA"));
    EXPECT_FALSE(Lists("GET, HEAD, DELETE", "POST"));
    EXPECT_EQ(NoSuchRoute("PUT", "/a", "").status, 404);
    EXPECT_EQ(NoSuchRoute("PUT", "/v1/models", "GET, HEAD").status, 405);
}

// A request's body is not read if its path accepts no POST.
TEST(Routes, AreJudgedByTheHead) {
    const auto judge = [](std::string method, std::string path, const char* bytes) {
        HttpRequest head;
        head.method = std::move(method);
        head.path = std::move(path);
        head.headers = {{"Content-Length", bytes}};
        return JudgeHead(head, nullptr).refusal;
    };
    EXPECT_FALSE(judge("POST", "/v1/messages", "100000"));
    EXPECT_FALSE(judge("PUT", "/v1/messages", "10"));  // the handler refuses it
    const auto put = judge("PUT", "/v1/messages", "100000");
    ASSERT_TRUE(put);
    EXPECT_EQ(put->status, 405);
    EXPECT_EQ(put->headers, (Headers{{"Allow", "POST"}}));
    EXPECT_EQ(Json::parse(put->body)["type"], "error");
    EXPECT_EQ(judge("POST", "/props", "1")->status, 405);
    EXPECT_EQ(judge("POST", "/nothing", "1")->status, 404);
    EXPECT_TRUE(judge("POST", "/nothing", "1")->headers.empty());
    EXPECT_EQ(judge("GET", "/props", "100000")->status, 400);
    EXPECT_EQ(judge("PUT", "/nothing", "100000")->status, 400);
}

}  // namespace
}  // namespace weft::serve
