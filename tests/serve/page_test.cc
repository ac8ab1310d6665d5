// The web page's files over HTTP.
#include "serve/page.h"

#include <gtest/gtest.h>

#include "support/kept_exchange.h"
#include "support/raw_client.h"

namespace weft::serve {
namespace {

using test::RawAnswer;
using test::RawClient;

class Page : public ::testing::Test {
  protected:
    void SetUp() override {
        HttpOptions options;
        options.port = 0;
        auto started = HttpServer::Start(options, [](std::shared_ptr<Exchange> exchange) {
            if (!ServePage(*exchange)) exchange->Send(404, {}, "not the page's");
        });
        ASSERT_TRUE(started.ok()) << started.error().message;
        server_ = std::move(started).value();
    }
    RawAnswer Ask(const std::string& method, const std::string& path,
                  const std::string& more = {}) const {
        RawClient client(server_->port());
        client.Send(method + " " + path + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n");
        return client.Answer(method == "HEAD");
    }

    std::unique_ptr<HttpServer> server_;
};

TEST_F(Page, EveryFileIsServedWholeWithItsType) {
    ASSERT_GE(PageFiles().size(), 3u);
    for (const PageFile& file : PageFiles()) {
        const RawAnswer answer = Ask("GET", "/assets/" + std::string(file.name));
        EXPECT_EQ(answer.status, 200) << file.name;
        EXPECT_EQ(answer.body, PageText(file)) << file.name;
        EXPECT_FALSE(answer.body.empty()) << file.name;
        EXPECT_EQ(answer.Header("Content-Encoding"), "") << file.name;
        EXPECT_EQ(answer.Header("Vary"), "Accept-Encoding") << file.name;
        EXPECT_EQ(answer.Header("Content-Type"), file.type) << file.name;
        EXPECT_EQ(answer.Header("ETag"), file.etag) << file.name;
        EXPECT_EQ(answer.Header("X-Content-Type-Options"), "nosniff");
        EXPECT_EQ(answer.Header("Cache-Control"), "no-cache");
    }
}

TEST_F(Page, TheRootIsThePageWithAPolicyThatForbidsInlineScripts) {
    const RawAnswer answer = Ask("GET", "/");
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.Header("Content-Type"), "text/html; charset=utf-8");
    EXPECT_EQ(answer.body.rfind("<!doctype html>", 0), 0u);
    EXPECT_NE(answer.body.find("</html>"), std::string::npos);
    const std::string policy(answer.Header("Content-Security-Policy"));
    EXPECT_NE(policy.find("default-src 'self'"), std::string::npos);
    EXPECT_NE(policy.find("connect-src 'self'"), std::string::npos);
    EXPECT_EQ(policy.find("unsafe"), std::string::npos);
}

TEST_F(Page, ThePageNamesOnlyFilesThatAreThere) {
    const std::string body = Ask("GET", "/").body;
    int named = 0;
    for (size_t at = body.find("\"assets/"); at != std::string::npos;
         at = body.find("\"assets/", at + 1)) {
        const std::string path = body.substr(at + 1, body.find('"', at + 1) - at - 1);
        EXPECT_EQ(Ask("GET", "/" + path).status, 200) << path;
        ++named;
    }
    EXPECT_GE(named, 2);
    EXPECT_EQ(body.find("://"), std::string::npos) << "a resource of somebody else's";
}

TEST_F(Page, TextGoesOutCompressedWhereTheClientTakesIt) {
    const std::string plain = Ask("GET", "/assets/style.css").body;
    for (const char* taken : {"gzip", "br, gzip;q=0.5", "deflate, gzip , br"}) {
        const RawAnswer zipped =
            Ask("GET", "/assets/style.css", std::string("Accept-Encoding: ") + taken + "\r\n");
        EXPECT_EQ(zipped.Header("Content-Encoding"), "gzip") << taken;
        EXPECT_LT(zipped.body.size() * 2, plain.size());
        EXPECT_EQ(zipped.body.substr(0, 2), "\x1f\x8b");
        EXPECT_NE(zipped.Header("ETag"), Ask("GET", "/assets/style.css").Header("ETag"));
        const std::string etag(zipped.Header("ETag"));
        const RawAnswer same = Ask("GET", "/assets/style.css",
                                   "Accept-Encoding: gzip\r\nIf-None-Match: " + etag + "\r\n");
        EXPECT_EQ(same.status, 304);
        EXPECT_EQ(same.Header("ETag"), etag);
    }
    for (const char* refused : {"br", "gzip;q=0", "gzip; q=0.0", "xgzip", ""}) {
        const RawAnswer answer =
            Ask("GET", "/assets/style.css", std::string("Accept-Encoding: ") + refused + "\r\n");
        EXPECT_EQ(answer.Header("Content-Encoding"), "") << refused;
        EXPECT_EQ(answer.body, plain) << refused;
    }
}

TEST_F(Page, ThePageListsItsLibraries) {
    const std::string list = Ask("GET", "/assets/libraries.js").body;
    for (const PageFile& file : PageFiles()) {
        if (!file.name.starts_with("lib/")) continue;
        EXPECT_NE(list.find('"' + std::string(file.name) + '"'), std::string::npos) << file.name;
    }
    EXPECT_NE(list.find("export const libraries"), std::string::npos);
}

TEST_F(Page, InvalidGzipGivesNoText) {
    const unsigned char bytes[40] = {0x1f, 0x8b, 8};
    PageFile file{"x", "text/plain", "\"x\"", bytes, sizeof bytes, true};
    EXPECT_EQ(PageText(file), "");
    file.size_bytes = 3;
    EXPECT_EQ(PageText(file), "");
    file.zipped = false;
    EXPECT_EQ(PageText(file).size(), 3u);
}

// An I/O thread sends the same bytes to every client: it neither decompresses nor copies a file.
TEST_F(Page, FilesAreKeptInBothForms) {
    for (const PageFile& file : PageFiles()) {
        if (file.name == "index.html" || file.name == "openapi.json") continue;
        const std::string path = "/assets/" + std::string(file.name);
        for (const bool zip : {false, true}) {
            std::string_view sent[2];
            for (std::string_view& each : sent) {
                KeptExchange exchange("GET", path);
                if (zip) exchange.request_.headers.emplace_back("Accept-Encoding", "gzip");
                ASSERT_TRUE(ServePage(exchange));
                each = exchange.kept_;
            }
            EXPECT_FALSE(sent[0].empty()) << path;
            EXPECT_EQ(sent[0].data(), sent[1].data()) << path;
        }
    }
}

TEST_F(Page, AMatchingEtagGets304) {
    const std::string etag(Ask("GET", "/").Header("ETag"));
    const RawAnswer same = Ask("GET", "/", "If-None-Match: \"a\", W/" + etag + "\r\n");
    EXPECT_EQ(same.status, 304);
    EXPECT_EQ(same.body, "");
    EXPECT_EQ(same.Header("ETag"), etag);
    EXPECT_EQ(Ask("GET", "/", "If-None-Match: \"other\"\r\n").status, 200);
}

TEST_F(Page, OtherPathsAndMethodsAreNotServed) {
    for (const char* path : {"/assets/", "/assets/none.js", "/assets", "/index.html", "/x",
                             "/assets/%2e%2e/index.html", "/assets//app.js"}) {
        EXPECT_NE(Ask("GET", path).status, 200) << path;
    }
    EXPECT_EQ(Ask("POST", "/", "Content-Length: 0\r\n").status, 404);
    const RawAnswer head = Ask("HEAD", "/");
    EXPECT_EQ(head.status, 200);
    EXPECT_EQ(head.body, "");
}

}  // namespace
}  // namespace weft::serve
