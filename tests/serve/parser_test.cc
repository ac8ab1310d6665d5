// Requests parsed from bytes split anywhere; malformed requests and their status.
#include "serve/http/parser.h"

#include <gtest/gtest.h>

namespace weft::serve {
namespace {

using Step = RequestParser::Step;

struct Parsed {
    Step step = Step::kMore;
    Refusal refusal;
    HttpRequest request;
    std::string rest;
    bool keep_alive = false;
};

// Feeds `bytes` in pieces of `piece`; unconsumed bytes are passed again, as a connection does.
Parsed Parse(std::string_view bytes, size_t piece, const ParserLimits& limits = {}) {
    RequestParser parser(limits);
    Parsed parsed;
    std::string waiting;
    for (size_t at = 0; at < bytes.size() && parsed.step != Step::kDone; at += piece) {
        waiting += bytes.substr(at, piece);
        std::string_view view = waiting;
        do {
            parsed.step = parser.Feed(view);
        } while (parsed.step == Step::kHead && !view.empty());
        waiting = std::string(view);
        if (parsed.step == Step::kRefused) {
            parsed.refusal = parser.refusal();
            return parsed;
        }
        if (parsed.step == Step::kDone) {
            parsed.rest = waiting;
            if (at + piece < bytes.size()) parsed.rest += bytes.substr(at + piece);
        }
    }
    if (parsed.step == Step::kDone) {
        parsed.keep_alive = parser.keep_alive();
        parsed.request = parser.Take();
    }
    return parsed;
}

TEST(Parser, AnyCutGivesTheSameRequest) {
    const std::string chunked =
        "\r\nPOST /v1/a%20b?x=%zz&y HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: Chunked\r\n"
        "X-Empty:\r\nX-Request-Id: abc-1\r\n\r\n"
        "4\r\nabcd\r\nA;ext=\"1\"\r\n0123456789\r\n0\r\nX-Host: h\r\nX-Trailer: t\r\n\r\n"
        "GET /next";
    const std::string plain =
        "POST /v1/a%20b?x=%zz&y HTTP/1.1\r\nhost: h\r\nContent-Length: 14\r\nX-Empty:\r\n"
        "X-Request-Id: abc-1\r\n\r\nabcd0123456789GET /next";
    for (const std::string& bytes : {chunked, plain}) {
        for (size_t piece = 1; piece <= bytes.size(); ++piece) {
            SCOPED_TRACE(piece);
            const Parsed parsed = Parse(bytes, piece);
            ASSERT_EQ(parsed.step, Step::kDone) << parsed.refusal.message;
            EXPECT_EQ(parsed.request.method, "POST");
            EXPECT_EQ(parsed.request.target, "/v1/a%20b?x=%zz&y");
            EXPECT_EQ(parsed.request.path, "/v1/a b");
            EXPECT_EQ(parsed.request.query, "x=%zz&y");
            EXPECT_EQ(parsed.request.body, "abcd0123456789");
            EXPECT_EQ(parsed.request.id, "abc-1");
            EXPECT_EQ(parsed.request.headers.size(), 4u);
            EXPECT_EQ(parsed.request.Header("HOST"), "h");
            EXPECT_EQ(parsed.request.Header("x-trailer"), "");
            EXPECT_EQ(parsed.request.Header("Content-Length"), bytes == plain ? "14" : "");
            EXPECT_TRUE(parsed.keep_alive);
            EXPECT_EQ(parsed.rest, "GET /next");
        }
    }
}

TEST(Parser, KeepAliveFollowsTheVersion) {
    EXPECT_TRUE(Parse("GET / HTTP/1.1\r\nHost: h\r\n\r\n", 99).keep_alive);
    EXPECT_FALSE(Parse("GET / HTTP/1.1\r\nHost: h\r\nConnection: Close\r\n\r\n", 99).keep_alive);
    EXPECT_FALSE(Parse("GET / HTTP/1.0\r\n\r\n", 99).keep_alive);
    EXPECT_TRUE(Parse("GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", 99).keep_alive);
}

TEST(Parser, ReplacesUnsafeRequestIds) {
    for (const std::string& id :
         std::vector<std::string>{"", "a b", "a\"b", "<x>", std::string(129, 'a')}) {
        const Parsed parsed =
            Parse("GET / HTTP/1.1\r\nHost: h\r\nX-Request-Id: " + id + "\r\n\r\n", 999);
        EXPECT_EQ(parsed.request.id.size(), 28u) << id;
        EXPECT_EQ(parsed.request.id.rfind("req_", 0), 0u) << id;
    }
}

struct Bad {
    int status;
    std::string bytes;
};

TEST(Parser, RejectsMalformedRequests) {
    const std::string host = "Host: h\r\n";
    const std::string post = "POST / HTTP/1.1\r\n" + host;
    const Bad cases[] = {
        {400, "\x16\x03\x01\x02"},  // TLS
        {400, std::string("\0", 1)},
        {400, "GET\r\n\r\n"},
        {400, "GET / H\r\n\r\n"},
        {400, " GET / HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET  / HTTP/1.1\r\n" + host + "\r\n"},
        {400, "G(T / HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET /\r\n\r\n"},  // HTTP/0.9
        {400, "GET / x HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET / HTTX/1.1\r\n" + host + "\r\n"},
        {400, "GET / HTTP/1.1 \r\n" + host + "\r\n"},
        {400, "GET / HTTP/1.x\r\n" + host + "\r\n"},
        {505, "GET / HTTP/1.2\r\n" + host + "\r\n"},
        {505, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"},
        {505, "GET / HTTP/9.9\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n\r\n"},  // no Host
        {400, "GET / HTTP/1.1\r\n" + host + host + "\r\n"},
        {400, "GET / HTTP/1.1\n"},
        {400, "GET / HTTP/1.1\rX"},
        {400, "GET / HTTP/1.1\r\nHost : h\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\n Host: h\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost\r\n\r\n"},
        {400, "GET / HTTP/1.1\r\nHost: h\rX: y\r\n\r\n"},
        {400, std::string("GET / HTTP/1.1\r\nHost: h\0", 24)},
        {400, "CONNECT h:80 HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET * HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET x HTTP/1.1\r\n" + host + "\r\n"},
        {400, "GET ftp://h/x HTTP/1.1\r\n" + host + "\r\n"},
        {417, "POST / HTTP/1.1\r\n" + host + "Expect: a-miracle\r\nContent-Length: 1\r\n\r\n"},
        // Requests that two parsers could split differently.
        {400, post + "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {400, post + "Transfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n"},
        {400, post + "Content-Length: 1\r\nTransfer-Encoding: identity\r\n\r\n"},
        {400, post + "Content-Length: 1\r\nContent-Length: 2\r\n\r\n"},
        {400, post + "Content-Length: 1, 2\r\n\r\n"},
        {400, post + "Content-Length: +1\r\n\r\n"},
        {400, post + "Content-Length: -1\r\n\r\n"},
        {400, post + "Content-Length: 0x1\r\n\r\n"},
        {400, post + "Content-Length: 1 1\r\n\r\n"},
        {400, post + "Content-Length:\r\n\r\n"},
        {400, post + "Content-Length: 99999999999999999999\r\n\r\n"},
        {400, post + "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, post + "Transfer-Encoding: identity\r\n\r\n"},
        {501, post + "Transfer-Encoding: identity\r\nContent-Length: 1\r\n\r\n"},
        {501, post + "Transfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n"},
        {501, post + "Transfer-Encoding: gzip, chunked\r\n\r\n"},
        {501, post + "Transfer-Encoding: chunked, gzip\r\n\r\n"},
        {501, post + "Transfer-Encoding: xchunked\r\n\r\n"},
        {400, "POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
        {400, post + "Transfer-Encoding: chunked\r\n\r\nx\r\n"},
        {400, post + "Transfer-Encoding: chunked\r\n\r\n-1\r\n"},
        {400, post + "Transfer-Encoding: chunked\r\n\r\n1\r\nabc\r\n\r\n"},
        {400, post + "Transfer-Encoding: chunked\r\n\r\n1 ;\r\na\r\n"},
        {400, post + "Transfer-Encoding: chunked\r\n\r\n11111111111111111\r\n"},
    };
    for (const Bad& bad : cases) {
        SCOPED_TRACE(bad.bytes);
        for (size_t piece : {size_t{1}, size_t{7}, bad.bytes.size()}) {
            const Parsed parsed = Parse(bad.bytes, piece);
            EXPECT_EQ(parsed.step, Step::kRefused) << piece;
            EXPECT_EQ(parsed.refusal.status, bad.status) << parsed.refusal.message;
            EXPECT_FALSE(parsed.refusal.message.empty());
        }
    }
}

TEST(Parser, EnforcesLimits) {
    const ParserLimits limits{.head_bytes = 256, .headers = 4, .body_bytes = 10};
    const std::string begin = "POST / HTTP/1.1\r\nHost: h\r\n";
    const auto status = [&](const std::string& bytes, size_t piece) {
        const Parsed parsed = Parse(bytes, piece, limits);
        return parsed.step == Step::kDone ? 200 : parsed.refusal.status;
    };
    for (size_t piece : {1, 16, 100'000}) {
        SCOPED_TRACE(piece);
        EXPECT_EQ(status("GET /" + std::string(400, 'a'), piece), 414);
        EXPECT_EQ(status("GET /" + std::string(400, 'a') + " HTTP/1.1\r\nHost: h\r\n\r\n", piece),
                  414);
        EXPECT_EQ(status("GET / HTTP/1.1\r\nHost: " + std::string(400, 'a'), piece), 431);
        EXPECT_EQ(status(begin + "X: " + std::string(200, 'a') +
                             "\r\nY: 1234567890123456789012345\r\n\r\n",
                         piece),
                  431);
        EXPECT_EQ(status(begin + "X: " + std::string(223, 'a') + "\r\n\r\n", piece), 200);
        EXPECT_EQ(status(begin + "X: " + std::string(224, 'a') + "\r\n\r\n", piece), 431);
        EXPECT_EQ(status(begin + "A: 1\r\nB: 1\r\nC: 1\r\n\r\n", piece), 200);
        EXPECT_EQ(status(begin + "A: 1\r\nB: 1\r\nC: 1\r\nD: 1\r\n\r\n", piece), 431);
        EXPECT_EQ(status(begin + "Content-Length: 10\r\n\r\n0123456789", piece), 200);
        EXPECT_EQ(status(begin + "Content-Length: 11\r\n\r\n", piece), 413);
        const std::string chunked = begin + "Transfer-Encoding: chunked\r\n\r\n";
        EXPECT_EQ(status(chunked + "6\r\n012345\r\n4\r\n6789\r\n0\r\n\r\n", piece), 200);
        EXPECT_EQ(status(chunked + "6\r\n012345\r\n5\r\n", piece), 413);
        EXPECT_EQ(status(chunked + "ffffffffffffffff\r\n", piece), 413);
        EXPECT_EQ(status(chunked + "1;" + std::string(400, 'x'), piece), 400);
        EXPECT_EQ(status(chunked + "0\r\nX: " + std::string(400, 'x'), piece), 431);
        EXPECT_EQ(status(std::string(400, '\r') + "\n", piece), 400);
        std::string empty_lines;
        for (int i = 0; i < 200; ++i) empty_lines += "\r\n";
        EXPECT_EQ(status(empty_lines, piece), 431);
    }
}

// The limit of a folded header is below that of the head; trailers count as headers.
TEST(Parser, NamesTheHeadersThatAreTooLong) {
    const ParserLimits limits{.head_bytes = 1 << 20};
    const std::string begin = "POST / HTTP/1.1\r\nHost: h\r\n";
    const std::string body = begin + "Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n";
    std::string folded = begin + "X: a";
    for (int i = 0; i < 200'000; ++i) folded += "\r\n b";
    for (const size_t piece : {size_t{5000}, folded.size()}) {
        const Parsed parsed = Parse(folded + "\r\n\r\n", piece, limits);
        EXPECT_EQ(parsed.refusal.status, 431);
        EXPECT_EQ(parsed.refusal.message,
                  "a header folded over several lines is longer than 4096 bytes; write it in one "
                  "line");
    }
    const Parsed parsed = Parse(body + "X: " + std::string(2 << 20, 'a'), 5000, limits);
    EXPECT_EQ(parsed.refusal.status, 431);
    EXPECT_EQ(parsed.refusal.message, "the request's trailers are longer than 1048576 bytes");
    const Parsed line = Parse(
        begin + "Transfer-Encoding: chunked\r\n\r\n1;" + std::string(2 << 20, 'a'), 5000, limits);
    EXPECT_EQ(line.refusal.status, 400);
}

TEST(Target, IsDecodedOnceAndChecked) {
    const struct {
        const char *target, *path, *query;
    } good[] = {
        {"/", "/", ""},
        {"/v1/models?x=1?2", "/v1/models", "x=1?2"},
        {"/a%20b%2Fc", "/a b/c", ""},
        {"/%252e%252e/x", "/%2e%2e/x", ""},  // decoded once
        {"/...", "/...", ""},
        {"/a..b/..c", "/a..b/..c", ""},
        {"//double//", "//double//", ""},
        {"/%C3%A9", "/\xc3\xa9", ""},
        {"/x?../%00\\", "/x", "../%00\\"},
        {"http://host:80/p?q", "/p", "q"},
        {"HTTPS://host", "/", ""},
        {"http://host?q", "/?", ""},
        {"*", "*", ""},
    };
    for (const auto& entry : good) {
        std::string path, query;
        const auto split = SplitTarget(entry.target, path, query);
        if (std::string_view(entry.path) == "/?") {  // authority without a path
            EXPECT_FALSE(split.ok());
            continue;
        }
        EXPECT_TRUE(split.ok()) << entry.target;
        EXPECT_EQ(path, entry.path);
        EXPECT_EQ(query, entry.query);
    }
    for (const char* bad :
         {"",        "a",          "/..",           "/../etc/passwd", "/a/../b",     "/a/..",
          "/.",      "/./a",       "/%2e%2e/x",     "/a/%2E%2e",      "/a%2f..%2fb", "/%00",
          "/a%00b",  "/a\\b",      "/%5c",          "/%0a",           "/%0d%0aX",    "/%7f",
          "/%",      "/%1",        "/%zz",          "/%-1",           "/#f",         "/%ff",
          "/%c0%ae", "/%ed%a0%80", "/%f5%80%80%80", "/\xff",          "/%c3",        "?x",
          "#",       "**",         "http:/x"}) {
        std::string path, query;
        EXPECT_FALSE(SplitTarget(bad, path, query).ok()) << bad;
    }
}

}  // namespace
}  // namespace weft::serve
