// Requests and answers of well-behaved clients.
#include <atomic>
#include <thread>

#include "support/http_case.h"

namespace weft::serve {
namespace {

class Http : public HttpCase {};

TEST_F(Http, AnswersOneRequestAfterTheOtherOnAConnection) {
    Start();
    RawClient client = Connect();
    for (int i = 0; i < 3; ++i) {
        const RawAnswer answer = client.Ask(Post("/echo?q=1", "body " + std::to_string(i)));
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(answer.body, "POST /echo q=1 body " + std::to_string(i));
        EXPECT_EQ(answer.Header("Content-Type"), "text/plain");
        EXPECT_FALSE(answer.Has("Connection"));
        EXPECT_TRUE(answer.Has("Date"));
        EXPECT_EQ(answer.Header("X-Request-Id").rfind("req_", 0), 0u);
    }
    EXPECT_EQ(server_->stats().accepted, 1u);
    EXPECT_EQ(server_->stats().requests, 3u);
    EXPECT_TRUE(Until([&] { return server_->open_exchanges() == 0; }));
}

TEST_F(Http, StreamsInChunksThatGoOutAtOnce) {
    Start();
    RawClient client = Connect();
    RawAnswer whole = client.Ask(Get("/stream"));
    EXPECT_EQ(whole.body, "one two three");
    EXPECT_TRUE(whole.whole);

    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin(200, {{"Content-Type", "text/event-stream"}});
    exchange->Write("data: 1\n\n");
    EXPECT_TRUE(client.ReadUntil("9\r\ndata: 1\n\n\r\n"));
    exchange->Write("data: 2\n\n");
    EXPECT_TRUE(client.ReadUntil("9\r\ndata: 2\n\n\r\n"));
    EXPECT_EQ(client.came().find("0\r\n\r\n"), std::string::npos);
    exchange->End();
    EXPECT_TRUE(client.ReadUntil("\r\n0\r\n\r\n"));
    EXPECT_TRUE(Until([&] { return exchange->backlog_bytes() == 0; }));
    EXPECT_FALSE(exchange->gone());
}

TEST_F(Http, PipelinedRequestsAreAnsweredInOrder) {
    Start();
    RawClient client = Connect();
    std::string all = Get("/hold");
    for (int i = 0; i < 20; ++i) all += Post("/echo", std::to_string(i)) + Get("/stream");
    client.Send(all);
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    EXPECT_FALSE(client.ReadSome(Deadline::In(30))) << "answered before the one that came first";
    exchange->Send(200, {}, "held");
    EXPECT_EQ(client.Answer().body, "held");
    for (int i = 0; i < 20; ++i) {
        EXPECT_EQ(client.Answer().body, "POST /echo  " + std::to_string(i));
        EXPECT_EQ(client.Answer().body, "one two three");
    }
}

TEST_F(Http, LargeBodiesBothWays) {
    Start();
    RawClient client = Connect();
    const RawAnswer answer = client.Ask(Get("/size?20000000"));
    EXPECT_TRUE(answer.whole);
    EXPECT_EQ(answer.body, std::string(20'000'000, 'x'));
    const std::string body(3'000'000, 'y');
    EXPECT_EQ(client.Ask(Post("/echo", body)).body, "POST /echo  " + body);
    std::string chunked = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 300; ++i) chunked += "2710\r\n" + std::string(10'000, 'y') + "\r\n";
    EXPECT_EQ(client.Ask(chunked + "0\r\n\r\n").body, "POST /echo  " + body);
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
}

TEST_F(Http, Head) {
    Start();
    RawClient client = Connect();
    for (const char* path : {"/size?5000", "/stream", "/echo"}) {
        client.Send(std::string("HEAD ") + path + " HTTP/1.1\r\nHost: x\r\n\r\n");
        const RawAnswer answer = client.Answer(true);
        EXPECT_EQ(answer.status, 200);
        if (std::string(path) == "/size?5000") {
            EXPECT_EQ(answer.Header("Content-Length"), "5000");
        }
    }
    EXPECT_EQ(client.Ask(Get("/echo")).body, "GET /echo  ");  // no byte of a body in between
}

TEST_F(Http, Http10) {
    Start();
    RawClient closed = Connect();
    RawAnswer answer = closed.Ask("GET /stream HTTP/1.0\r\n\r\n");
    EXPECT_EQ(answer.body, "one two three");
    EXPECT_FALSE(answer.Has("Transfer-Encoding"));
    EXPECT_EQ(answer.Header("Connection"), "close");
    RawClient kept = Connect();
    for (int i = 0; i < 2; ++i) {
        answer = kept.Ask("GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        EXPECT_EQ(answer.Header("Connection"), "keep-alive");
        EXPECT_EQ(answer.body, "GET /echo  ");
    }
    // Only closing the connection marks the end of a stream.
    answer = kept.Ask("GET /stream HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
    EXPECT_EQ(answer.Header("Connection"), "close");
    EXPECT_TRUE(answer.whole);
    RawClient asked = Connect();
    answer = asked.Ask(Get("/echo", "Connection: close\r\n"));
    EXPECT_EQ(answer.Header("Connection"), "close");
    EXPECT_TRUE(asked.ReadToEnd());
}

TEST_F(Http, ExpectContinue) {
    Start();
    RawClient client = Connect();
    const std::string whole = Post("/echo", "body", "Expect: 100-continue\r\n");
    client.Send(whole.substr(0, whole.size() - 4));
    EXPECT_EQ(client.Answer().status, 100);
    EXPECT_EQ(client.Ask("body").body, "POST /echo  body");
    // A body that has already arrived gets no 100 Continue.
    EXPECT_EQ(client.Ask(whole).status, 200);
    // A body that is too large is refused before it is sent.
    client.Send(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n"
        "Expect: 100-continue\r\n\r\n");
    EXPECT_EQ(client.Answer().status, 413);
}

TEST_F(Http, RequestIdsComeBack) {
    Start();
    EXPECT_EQ(Ask(Get("/echo", "x-request-id: trace-7.a_b:c\r\n")).Header("X-Request-Id"),
              "trace-7.a_b:c");
    EXPECT_EQ(Ask(Get("/echo", "X-Request-Id: a b\r\n")).Header("X-Request-Id").rfind("req_", 0),
              0u);
    EXPECT_EQ(Ask(Get("/../x", "X-Request-Id: mine\r\n")).Header("X-Request-Id").rfind("req_", 0),
              0u);  // refused at its first line; the rest was not read
    EXPECT_EQ(Ask("POST / HTTP/1.1\r\nHost: x\r\nX-Request-Id: mine\r\nContent-Length: x\r\n\r\n")
                  .Header("X-Request-Id"),
              "mine");
}

// A half-closed client still reads; an interim response distinguishes it from a disconnected one.
TEST_F(Http, AHalfClosedClientIsAnswered) {
    Start();
    for (const bool stream : {false, true}) {
        RawClient client = Connect();
        client.Send(Get("/hold") + Get("/echo"));
        const auto exchange = TakeHeld();
        ASSERT_NE(exchange, nullptr);
        if (stream) exchange->Begin(200, {{"Content-Type", "text/event-stream"}});
        client.EndSending();
        // The server asks whether the client still reads.
        EXPECT_TRUE(client.ReadUntil(stream ? ":\n\n" : "HTTP/1.1 100"));
        EXPECT_FALSE(exchange->gone());
        if (stream) {
            exchange->Write("data: 1\n\n");
            exchange->End();
        } else {
            EXPECT_EQ(client.Answer().status, 100);
            exchange->Send(200, {}, "held");
        }
        const RawAnswer answer = client.Answer();
        EXPECT_EQ(answer.status, 200);
        EXPECT_EQ(answer.body, stream ? ":\n\ndata: 1\n\n" : "held");
        EXPECT_EQ(client.Answer().body, "GET /echo  ") << "what came before the end is answered";
        EXPECT_TRUE(client.ReadToEnd());
        EXPECT_TRUE(Until([&] { return server_->open_exchanges() == 0; }));
    }
    EXPECT_EQ(server_->stats().client_gone, 0u);
}

TEST_F(Http, RequestTextCannotInjectHeaders) {
    Start();
    RawClient client = Connect();
    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Send(200,
                   {{"X-Echo", "a\r\nX-Evil: 1\r\n\r\nbody"},
                    {"X-Na\r\nme", "v"},
                    {"Content-Length", "99"},
                    {"transfer-encoding", "chunked"}},
                   "ok");
    const RawAnswer answer = client.Answer();
    EXPECT_EQ(answer.Header("X-Echo"), "a  X-Evil: 1    body");
    EXPECT_FALSE(answer.Has("X-Evil"));
    EXPECT_EQ(answer.body, "ok");
    EXPECT_EQ(client.Ask(Get("/echo")).body, "GET /echo  ");
}

TEST_F(Http, AReleasedExchangeIsAnswered) {
    Start();
    RawClient client = Connect();
    for (const char* path : {"/drop", "/throw"}) {
        const RawAnswer answer = client.Ask(Get(path));
        EXPECT_EQ(answer.status, 500);
        EXPECT_NE(answer.Error(), "");
    }
    const RawAnswer part = client.Ask(Get("/dropped"));
    EXPECT_EQ(part.status, 200);
    EXPECT_EQ(part.body, "part");
    EXPECT_FALSE(part.whole) << "a stream that was cut looks complete";
    EXPECT_TRUE(client.ReadToEnd());
}

TEST_F(Http, CallsOutOfOrderHaveNoEffect) {
    Start();
    RawClient client = Connect();
    client.Send(Get("/hold"));
    auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Write("early");
    exchange->End();
    exchange->Begin(200, {});
    exchange->Begin(500, {});
    exchange->Send(404, {}, "no");
    exchange->Write("");  // would be the last chunk
    exchange->Write("a");
    exchange->End();
    exchange->Write("late");
    exchange->End();
    exchange->Send(404, {}, "no");
    const RawAnswer answer = client.Answer();
    EXPECT_EQ(answer.status, 200);
    EXPECT_EQ(answer.body, "a");
    EXPECT_TRUE(answer.whole);
    EXPECT_EQ(client.Ask(Get("/echo")).status, 200);
    EXPECT_FALSE(exchange->gone());
}

TEST_F(Http, CorsAndOptions) {
    Start({.allow_origins = {"https://chat.example"}});
    const std::string from = "Origin: https://chat.example\r\n";
    EXPECT_NE(
        Ask(Get("/echo", from)).Header("Access-Control-Expose-Headers").find("X-Weft-Left-Out"),
        std::string::npos);
    EXPECT_EQ(Ask(Get("/echo", from)).Header("Access-Control-Allow-Origin"),
              "https://chat.example");
    EXPECT_EQ(Ask(Get("/echo", from)).Header("Vary"), "Origin");
    EXPECT_FALSE(
        Ask(Get("/echo", "Origin: https://evil.example\r\n")).Has("Access-Control-Allow-Origin"));
    EXPECT_FALSE(Ask(Get("/echo")).Has("Access-Control-Allow-Origin"));
    // Refusals of the layer itself have CORS headers too, so that a page can read the reason.
    EXPECT_EQ(Ask("POST /echo HTTP/1.1\r\nHost: x\r\n" + from + "Content-Length: 99999999\r\n\r\n")
                  .Header("Access-Control-Allow-Origin"),
              "https://chat.example");
    const std::string options = "OPTIONS /v1/chat/completions HTTP/1.1\r\nHost: x\r\n";
    const RawAnswer preflight =
        Ask(options + from +
            "Access-Control-Request-Method: POST\r\n"
            "Access-Control-Request-Headers: authorization,content-type,x-stainless-os\r\n\r\n");
    EXPECT_EQ(preflight.status, 204);
    EXPECT_EQ(preflight.Header("Access-Control-Allow-Origin"), "https://chat.example");
    EXPECT_EQ(preflight.Header("Access-Control-Allow-Headers"),
              "authorization,content-type,x-stainless-os");
    EXPECT_NE(preflight.Header("Access-Control-Allow-Methods").find("POST"), std::string::npos);
    EXPECT_FALSE(preflight.Has("Content-Length"));
    const RawAnswer foreign = Ask(options +
                                  "Origin: https://evil.example\r\n"
                                  "Access-Control-Request-Method: POST\r\n\r\n");
    EXPECT_FALSE(foreign.Has("Access-Control-Allow-Methods"));
    EXPECT_NE(Ask("OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n").Header("Allow").find("GET"),
              std::string::npos);

    Start({.allow_origins = {"*"}});
    EXPECT_EQ(Ask(Get("/echo", from)).Header("Access-Control-Allow-Origin"), "*");
    Start();
    EXPECT_FALSE(Ask(Get("/echo", from)).Has("Access-Control-Allow-Origin"));
}

TEST_F(Http, AcceptsOnlyAllowedHosts) {
    HttpOptions options;
    NeedNoKeys(options);
    Start(options);
    const auto status = [&](const std::string& host) {
        return Ask("GET /echo HTTP/1.1\r\nHost: " + host + "\r\n\r\n").status;
    };
    for (const char* host : {"localhost", "LocalHost:8080", "127.0.0.1:1", "[::1]", "[::1]:80"}) {
        EXPECT_EQ(status(host), 200) << host;
    }
    for (const char* host : {"evil.example", "localhost.evil.example:8080", "[::2]:80", ":80"}) {
        EXPECT_EQ(status(host), 421) << host;
    }
    EXPECT_EQ(Ask("GET /echo HTTP/1.0\r\n\r\n").status, 200);
    options.allowed_hosts = {"evil.example", "*"};
    NeedNoKeys(options);
    Start(options);
    EXPECT_EQ(status("any.example"), 200);
}

// A form, or a fetch without preflight, reaches any server that the browser can reach.
TEST_F(Http, RefusesRequestsFromOtherOrigins) {
    Start({.allow_origins = {"https://chat.example"}});
    const std::string host = "127.0.0.1:" + std::to_string(server_->port());
    const auto post = [&](const std::string& headers, const char* method = "POST") {
        return Ask(std::string(method) + " /echo HTTP/1.1\r\nHost: " + host + "\r\n" + headers +
                   "Content-Length: 2\r\n\r\n{}");
    };
    const std::string text = "Content-Type: text/plain\r\n";
    const std::string json = "Content-Type: application/json; charset=utf-8\r\n";
    for (const std::string origin :
         {"null", "https://evil.example", "http://127.0.0.1:1", "http://localhost", "file://",
          "http://127.0.0.1", "https://chat.example.evil.example", "HTTPS://CHAT.EXAMPLE",
          "chrome-extension://abc", "https://chat.example, null", ""}) {
        for (const std::string& type : {text, json, std::string()}) {
            const RawAnswer answer = post("Origin: " + origin + "\r\n" + type);
            EXPECT_EQ(answer.status, 403) << origin << " " << type;
            EXPECT_NE(answer.body.find("--allow-origin"), std::string::npos) << answer.body;
            EXPECT_NE(answer.body.find("origin_not_allowed"), std::string::npos) << answer.body;
            EXPECT_FALSE(answer.Has("Access-Control-Allow-Origin")) << origin;
        }
    }
    for (const char* method : {"PUT", "DELETE", "PATCH", "MADE-UP"}) {
        EXPECT_EQ(post("Origin: https://evil.example\r\n", method).status, 403) << method;
    }
    const std::string own = "Origin: http://" + host + "\r\n";
    EXPECT_EQ(post(own + json).status, 200);
    EXPECT_EQ(post(own + "Origin: null\r\n" + json).status, 403) << "each of them counts";
    EXPECT_EQ(post("Origin: https://chat.example\r\n" + json).status, 200);
    // Requests from other clients are not restricted.
    for (const std::string& type : {text, json, std::string()}) {
        EXPECT_EQ(post(type).status, 200) << type;
    }
    EXPECT_EQ(post("Sec-Fetch-Site: none\r\n" + text).status, 200);
    // Pages must send JSON as application/json.
    for (const std::string& type :
         {text, std::string("Content-Type: application/jsonp\r\n"), std::string()}) {
        EXPECT_EQ(post(own + type).status, 415) << type;
        EXPECT_EQ(post("Sec-Fetch-Site: cross-site\r\n" + type).status, 415) << type;
        EXPECT_EQ(post("Origin: https://chat.example\r\n" + type).status, 415) << type;
    }
    // Reads are still answered; the browser hides the answer from the page's script.
    EXPECT_EQ(Ask(Get("/echo", "Origin: https://evil.example\r\n")).status, 200);
}

// A compressed body would be reported as invalid JSON. The body comes with the head, or later.
TEST_F(Http, RefusesCodedBodies) {
    Start();
    const auto status = [&](const std::string& coding, const char* body) {
        return Ask("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Encoding: " + coding +
                   "\r\nContent-Length: 2\r\n\r\n" + body)
            .status;
    };
    for (const char* coding : {"gzip", "br", "gzip, identity", "deflate"}) {
        EXPECT_EQ(status(coding, "{}"), 415) << coding;
        EXPECT_EQ(status(coding, ""), 415) << coding;
    }
    for (const char* coding : {"", "identity", "Identity"}) EXPECT_EQ(status(coding, "{}"), 200);
}

TEST_F(Http, AcceptsItsOwnPageBehindAProxy) {
    Start();
    const auto post = [&](const std::string& headers) {
        return Ask("POST /echo HTTP/1.1\r\n" + headers +
                   "Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{}")
            .status;
    };
    const std::string page = "Origin: https://chat.example\r\n";
    EXPECT_EQ(post("Host: chat.example\r\n" + page), 200);
    EXPECT_EQ(post("Host: Chat.Example:443\r\n" + page), 200);
    EXPECT_EQ(post("Host: chat.example:8443\r\n" + page), 403) << "another port";
    EXPECT_EQ(post("Host: chat.example:80\r\n" + page), 403) << "that of http";
    EXPECT_EQ(post("Host: chat.example:443\r\nOrigin: http://chat.example\r\n"), 403);
    EXPECT_EQ(post("Host: chat.example:80\r\nOrigin: http://chat.example\r\n"), 200);
    // Sec-Fetch-Site overrides the names.
    for (const char* site : {"cross-site", "same-site"}) {
        const std::string says = std::string("Sec-Fetch-Site: ") + site + "\r\n";
        EXPECT_EQ(post("Host: chat.example\r\n" + says + page), 403);
    }
    // The proxy uses another Host.
    EXPECT_EQ(post("Host: upstream:8080\r\n" + page), 403);
    EXPECT_EQ(post("Host: upstream:8080\r\nX-Forwarded-Host: chat.example\r\n" + page), 200);
    EXPECT_EQ(post("Host: upstream:8080\r\nSec-Fetch-Site: same-origin\r\n" + page), 200);
    EXPECT_EQ(post("Host: upstream:8080\r\nSec-Fetch-Site: same-origin\r\nOrigin: null\r\n"), 403);
    Start({.allow_origins = {"*"}});
    EXPECT_EQ(post("Host: x\r\n" + page), 200);
    EXPECT_EQ(post("Host: x\r\nOrigin: null\r\n"), 200) << "all means files, too";
}

TEST_F(Http, DrainsOpenExchangesAndRefusesNewOnes) {
    Start({.drain_paths = {"/echo"}, .retry_after_s = 7});
    RawClient streaming = Connect(), idle = Connect();
    streaming.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin(200, {});
    exchange->Write("before ");
    EXPECT_EQ(idle.Ask(Get("/echo")).status, 200);
    server_->Drain();
    EXPECT_TRUE(idle.ReadToEnd()) << "an idle connection stays open";
    RawClient fresh = Connect();
    const RawAnswer refused = fresh.Ask(Get("/stream"));
    EXPECT_EQ(refused.status, 503);
    EXPECT_EQ(refused.Header("Retry-After"), "7");
    EXPECT_EQ(refused.Header("Connection"), "close");
    EXPECT_NE(refused.Error(), "");
    EXPECT_TRUE(fresh.ReadToEnd());
    EXPECT_EQ(Ask(Get("/echo")).status, 200);
    EXPECT_TRUE(Until([&] { return server_->open_exchanges() == 1; }));
    exchange->Write("after");
    exchange->End();
    const RawAnswer answer = streaming.Answer();
    EXPECT_EQ(answer.body, "before after");
    EXPECT_TRUE(answer.whole);
    EXPECT_TRUE(streaming.ReadToEnd());
    EXPECT_TRUE(Until([&] { return server_->open_exchanges() == 0; }));
}

TEST_F(Http, KeepAliveEndsBeforeRequestsAreRefused) {
    Start();
    RawClient idle = Connect();
    EXPECT_EQ(idle.Ask(Get("/echo")).Header("Connection"), "");
    server_->EndKeepAlive();
    const RawAnswer last = idle.Ask(Get("/echo"));
    EXPECT_EQ(last.status, 200);
    EXPECT_EQ(last.Header("Connection"), "close");
    EXPECT_TRUE(idle.ReadToEnd());
    EXPECT_EQ(Ask(Get("/echo")).status, 200) << "new connections are accepted";
    server_->Drain();
    EXPECT_EQ(Ask(Get("/echo")).status, 503);
}

TEST_F(Http, AnAnswerWithoutCloseKeepsItsPromise) {
    Start();
    RawClient client = Connect();
    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin(200, {});
    server_->EndKeepAlive();
    exchange->End();
    EXPECT_EQ(client.Answer().Header("Connection"), "");
    const RawAnswer last = client.Ask(Get("/echo"));
    EXPECT_EQ(last.status, 200);
    EXPECT_EQ(last.Header("Connection"), "close");
    EXPECT_TRUE(client.ReadToEnd());
}

// A server that ends after Drain() waits for exactly these requests.
TEST_F(Http, NoRequestReachesTheHandlerAfterDrain) {
    Start();
    std::atomic<bool> over{false};
    std::vector<std::thread> clients;
    for (int i = 0; i < 4; ++i) {
        clients.emplace_back([&] {
            while (!over) Ask(Get("/echo"));
        });
    }
    EXPECT_TRUE(Until([&] { return server_->stats().requests > 50; }));
    server_->Drain();
    const uint64_t reached = server_->stats().requests;
    const uint64_t refused = server_->stats().refused;
    EXPECT_TRUE(Until([&] { return server_->stats().refused > refused + 50; }));
    EXPECT_EQ(server_->stats().requests, reached);
    over = true;
    for (std::thread& client : clients) client.join();
}

TEST_F(Http, ExchangesOutliveTheServer) {
    Start();
    RawClient client = Connect();
    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin(200, {});
    std::atomic<int> calls{0};
    exchange->OnDisconnect([&] { ++calls; });
    server_.reset();
    EXPECT_EQ(calls, 1);
    EXPECT_TRUE(exchange->gone());
    exchange->Write("x");
    exchange->End();
    exchange->OnDisconnect([&] { ++calls; });
    EXPECT_EQ(calls, 2) << "gone already: called at once";
    EXPECT_EQ(exchange->request().path, "/hold");
    EXPECT_TRUE(client.ReadToEnd());
}

TEST_F(Http, ManyThreadsAnswerManyClients) {
    Start({.threads = 2});
    constexpr int kClients = 24, kRounds = 20, kWriters = 3;
    std::atomic<bool> stop{false};
    std::vector<std::thread> writers;
    for (int i = 0; i < kWriters; ++i) {
        writers.emplace_back([&] {
            while (!stop) {
                const auto exchange = TryTakeHeld();
                if (exchange == nullptr) {
                    std::this_thread::yield();
                    continue;
                }
                exchange->Begin(200, {});
                for (int chunk = 0; chunk < 10; ++chunk) exchange->Write(exchange->request().id);
                exchange->End();
            }
        });
    }
    std::vector<std::thread> clients;
    std::atomic<int> right{0};
    for (int i = 0; i < kClients; ++i) {
        clients.emplace_back([&, i] {
            RawClient client(server_->port());
            for (int round = 0; round < kRounds; ++round) {
                const std::string id = std::to_string(i) + "-" + std::to_string(round) + ".";
                const RawAnswer answer = client.Ask(Get("/hold", "X-Request-Id: " + id + "\r\n"));
                std::string expected;
                for (int chunk = 0; chunk < 10; ++chunk) expected += id;
                right += answer.body == expected && answer.whole;
            }
        });
    }
    for (std::thread& thread : clients) thread.join();
    stop = true;
    for (std::thread& thread : writers) thread.join();
    EXPECT_EQ(right, kClients * kRounds);
    EXPECT_EQ(server_->stats().requests, static_cast<uint64_t>(kClients * kRounds));
}

TEST_F(Http, RecordsReportTheOutcome) {
    Start();
    RawClient client = Connect();
    client.Ask(Post("/echo", "x", "X-Request-Id: one\r\n"));
    client.Send(Get("/%2e%2e/secret"));
    EXPECT_EQ(client.Answer().status, 400);
    RawClient left = Connect();
    left.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    left.Close();
    ASSERT_TRUE(Until([&] { return Records().size() == 3; }));
    const auto records = Records();
    EXPECT_EQ(records[0].id, "one");
    EXPECT_EQ(records[0].method, "POST");
    EXPECT_EQ(records[0].path, "/echo");
    EXPECT_EQ(records[0].status, 200);
    EXPECT_GT(records[0].sent_bytes, 50u);
    EXPECT_GE(records[0].seconds, 0);
    EXPECT_LT(records[0].seconds, 60);
    EXPECT_EQ(records[0].peer.rfind("127.0.0.1:", 0), 0u);
    EXPECT_FALSE(records[0].gone || records[0].refused);
    EXPECT_EQ(records[1].status, 400);
    EXPECT_TRUE(records[1].refused);
    EXPECT_TRUE(records[2].gone);
    EXPECT_EQ(records[2].status, 0);
    EXPECT_EQ(records[2].path, "/hold");
}

TEST(HttpStart, ErrorsNameTheFault) {
    const auto start = [](HttpOptions options) {
        auto server = HttpServer::Start(std::move(options), [](std::shared_ptr<Exchange>) {});
        return server.ok() ? std::string() : server.error().message;
    };
    auto first = HttpServer::Start({.port = 0}, [](std::shared_ptr<Exchange>) {});
    ASSERT_TRUE(first.ok());
    const std::string taken = start({.port = (*first)->port()});
    EXPECT_NE(taken.find("another program listens on this port"), std::string::npos) << taken;
    EXPECT_NE(taken.find("--port"), std::string::npos);
    EXPECT_NE(taken.find("127.0.0.1:" + std::to_string((*first)->port())), std::string::npos);
    EXPECT_NE(start({.host = "192.0.2.1", .port = 0}).find("192.0.2.1"), std::string::npos);
    EXPECT_NE(start({.host = "no.such.host.invalid", .port = 0}).find("--host"), std::string::npos);
    EXPECT_NE(start({.host = "", .port = 0}).find("--host"), std::string::npos);
    EXPECT_NE(start({.port = 65536}).find("65536"), std::string::npos);
    EXPECT_NE(start({.port = 0, .tls_cert = "x"}).find("--tls-key"), std::string::npos);
    // The port of a closed server is free at once, whatever connections it had.
    const int port = (*first)->port();
    RawClient client(port);
    client.Ask("GET / HTTP/1.0\r\n\r\n");
    first->reset();
    EXPECT_EQ(start({.port = port}), "");
}

TEST(HttpStart, ListensOnNamesAndBothFamilies) {
    const int probe = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in6 loopback{};
    loopback.sin6_family = AF_INET6;
    loopback.sin6_addr = in6addr_loopback;
    const bool has_v6 =
        probe >= 0 && ::bind(probe, reinterpret_cast<sockaddr*>(&loopback), sizeof loopback) == 0;
    if (probe >= 0) ::close(probe);
    const auto answers = [](int port, int family) {
        const int fd = ::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);
        sockaddr_in6 v6{};
        v6.sin6_family = AF_INET6;
        v6.sin6_addr = in6addr_loopback;
        v6.sin6_port = htons(static_cast<uint16_t>(port));
        sockaddr_in v4{};
        v4.sin_family = AF_INET;
        v4.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
        v4.sin_port = v6.sin6_port;
        const bool ok = family == AF_INET6
                            ? ::connect(fd, reinterpret_cast<sockaddr*>(&v6), sizeof v6) == 0
                            : ::connect(fd, reinterpret_cast<sockaddr*>(&v4), sizeof v4) == 0;
        ::close(fd);
        return ok;
    };
    const struct {
        const char *host, *url;
        bool v4, v6;
    } cases[] = {{"127.0.0.1", "http://127.0.0.1:", true, false},
                 {"0.0.0.0", "http://0.0.0.0:", true, false},
                 {"localhost", "http://localhost:", true, false},
                 {"::1", "http://[::1]:", false, true},
                 {"[::1]", "http://[::1]:", false, true},
                 {"::", "http://[::]:", true, true}};
    for (const auto& entry : cases) {
        SCOPED_TRACE(entry.host);
        if (entry.v6 && !has_v6) continue;  // the other four test the logic
        auto server =
            HttpServer::Start({.host = entry.host, .port = 0}, [](std::shared_ptr<Exchange>) {});
        ASSERT_TRUE(server.ok()) << server.error().message;
        EXPECT_EQ((*server)->url(), entry.url + std::to_string((*server)->port()));
        EXPECT_EQ(answers((*server)->port(), AF_INET), entry.v4);
        if (entry.v6) {
            EXPECT_TRUE(answers((*server)->port(), AF_INET6));
        }
    }
}

}  // namespace
}  // namespace weft::serve
