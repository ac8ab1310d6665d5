// Malformed, slow, greedy and disconnecting clients: each limit, with short times. The server
// continues to serve other clients.
#include <malloc.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <future>
#include <thread>

#include "support/http_case.h"
#include "support/limits.h"
#include "support/wait.h"

namespace weft::serve {
namespace {

class HttpLimit : public HttpCase {
  protected:
    void TearDown() override {
        if (server_ != nullptr) {
            EXPECT_EQ(Ask(Get("/echo")).status, 200) << "the server serves nobody any more";
        }
        HttpCase::TearDown();
    }
    void ExpectRefused(RawClient& client, int status) {
        const RawAnswer answer = client.Answer();
        EXPECT_EQ(answer.status, status);
        EXPECT_NE(answer.Error(), "") << answer.body;
        EXPECT_EQ(answer.Header("Content-Type"), "application/json");
        EXPECT_EQ(answer.Header("Connection"), "close");
        EXPECT_TRUE(answer.Has("X-Request-Id"));
        EXPECT_TRUE(client.ReadToEnd()) << "the connection stays open";
        EXPECT_EQ(client.came(), "") << "more than one answer";
    }
    void ExpectRefused(const std::string& bytes, int status) {
        SCOPED_TRACE(bytes.substr(0, 80));
        RawClient client = Connect();
        client.Send(bytes);
        ExpectRefused(client, status);
    }
    // Milliseconds until `condition` holds.
    template <typename Condition>
    int64_t TimeUntil(Condition condition) {
        const int64_t begin_ns = NowNs();
        EXPECT_TRUE(Until(condition));
        return (NowNs() - begin_ns) / 1'000'000;
    }
};

TEST_F(HttpLimit, RejectsMalformedRequests) {
    Start();
    ExpectRefused("\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", 400);  // TLS on a plain port
    ExpectRefused("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505);
    ExpectRefused("GET / HTTP/1.1\nHost: x\n", 400);
    ExpectRefused("\r\n\r\n\r\nnonsense\r\n\r\n", 400);
    ExpectRefused(Get("/a/../../etc/passwd"), 400);
    ExpectRefused(Get("/%2e%2e%2fetc"), 400);
    ExpectRefused(Get("/%00"), 400);
    ExpectRefused(Get("/a\\b"), 400);
    ExpectRefused("GET /\xff HTTP/1.1\r\nHost: x\r\n\r\n", 400);
    EXPECT_EQ(Ask(Get("/%252e%252e/x")).body, "GET /%2e%2e/x  ");
    EXPECT_EQ(server_->stats().requests, 1u);
    EXPECT_EQ(server_->stats().refused, 9u);
}

TEST_F(HttpLimit, RejectsRequestSmuggling) {
    Start();
    const std::string inner = "GET /echo?smuggled HTTP/1.1\r\nHost: x\r\n\r\n";
    ExpectRefused(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 6\r\n"
        "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n" +
            inner,
        400);
    ExpectRefused("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: xchunked\r\n\r\n" + inner,
                  501);
    ExpectRefused(
        "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\nContent-Length: 4\r\n\r\n" + inner,
        400);
    EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(HttpLimit, LongHeads) {
    Start();
    ExpectRefused("GET /" + std::string(20'000, 'a'), 414);
    ExpectRefused("GET / HTTP/1.1\r\nHost: x\r\nX: " + std::string(20'000, 'a'), 431);
    std::string many = "GET / HTTP/1.1\r\nHost: x\r\n";
    for (int i = 0; i < 1000; ++i) many += "A: b\r\n";
    ExpectRefused(many + "\r\n", 431);
    EXPECT_EQ(Ask(Get("/echo", "X: " + std::string(16'000, 'a') + "\r\n")).status, 200);
}

TEST_F(HttpLimit, LargeBodiesAreNotRead) {
    Start({.limits = {.body_bytes = 1'000'000}});
    ExpectRefused("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 1000001\r\n\r\n", 413);
    EXPECT_LT(server_->stats().received_bytes, 1000u);
    EXPECT_EQ(Ask(Post("/echo", std::string(1'000'000, 'b'))).status, 200);
    std::string chunked = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (int i = 0; i < 11; ++i) chunked += "186a0\r\n" + std::string(100'000, 'b') + "\r\n";
    ExpectRefused(chunked, 413);
    // A client that sends everything before it reads still gets the reason.
    RawClient client = Connect();
    std::string huge = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 100000000\r\n\r\n";
    huge.append(100'000'000, 'b');
    EXPECT_TRUE(client.Send(huge));
    ExpectRefused(client, 413);
    EXPECT_EQ(server_->stats().body_bytes, 0u);
}

TEST_F(HttpLimit, ManyLargeBodiesAtOnce) {
    Start({.limits = {.all_bodies_bytes = 1'000'000}});
    std::vector<RawClient> clients;
    for (int i = 0; i < 3; ++i) {
        clients.push_back(Connect());
        clients.back().Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 400000\r\n\r\n" +
                            std::string(399'999, 'b'));
        if (i < 2) {
            const auto bytes = static_cast<uint64_t>(399'999 * (i + 1));
            EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == bytes; }));
        }
    }
    ExpectRefused(clients[2], 503);
    EXPECT_EQ(clients[0].Ask("b").status, 200);
    EXPECT_EQ(clients[1].Ask("b").status, 200);
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
}

// Complete answers, as of /v1/responses/ID.
TEST_F(HttpLimit, ManyUnreadLargeAnswers) {
    constexpr size_t kBytes = 20'000'000;  // more than socket buffers hold
    Start({.limits = {.all_bodies_bytes = 5 * kBytes / 2, .slow_ms = 600'000}});
    std::vector<RawClient> clients;
    std::vector<std::shared_ptr<Exchange>> held;
    const auto hold = [&](const char* client, size_t bytes) {
        clients.push_back(Connect(4096));
        clients.back().Send(Get("/hold"));
        held.push_back(TakeHeld());
        held.back()->Note([&](RequestNote& note) { note.key = client; });
        return held.back()->Hold(bytes);
    };
    for (const char* client : {"a", "b"}) {
        ASSERT_FALSE(hold(client, kBytes).has_value());
        held.back()->Send(200, {}, std::string(kBytes, 'x'));
    }
    EXPECT_EQ(server_->stats().body_bytes, 2 * kBytes);
    const auto too_many = hold("a", kBytes);
    ASSERT_TRUE(too_many.has_value());
    EXPECT_EQ(too_many->status, 429);
    EXPECT_EQ(too_many->code, "too_many_large_requests");
    const auto no_room = hold("c", kBytes);
    ASSERT_TRUE(no_room.has_value());
    EXPECT_EQ(no_room->status, 503);
    EXPECT_NE(no_room->message.find("50000000 (--max-bodies-size)"), std::string::npos)
        << no_room->message;
    EXPECT_FALSE(hold("c", kBytes / 4).has_value()) << "others' answers have room";
    EXPECT_EQ(clients[0].Answer().body.size(), kBytes);
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == kBytes + kBytes / 4; }));
    EXPECT_FALSE(hold("a", kBytes / 2).has_value()) << "it was read";
    clients.clear();
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
}

// An answer counts while it grows.
TEST_F(HttpLimit, CountsAnAnswerWhileItGrows) {
    Start({.limits = {.all_bodies_bytes = 1'000'000}});
    RawClient client = Connect(), other = Connect();
    client.Send(Get("/hold"));
    const auto growing = TakeHeld();
    for (size_t bytes = 100'000; bytes <= 900'000; bytes += 100'000) {
        EXPECT_FALSE(growing->Hold(bytes).has_value());
        EXPECT_FALSE(growing->Hold(bytes / 2).has_value()) << "it has as much already";
        EXPECT_EQ(server_->stats().body_bytes, bytes);
    }
    other.Send(Get("/hold"));
    const auto late = TakeHeld();
    EXPECT_TRUE(late->Hold(200'000).has_value());
    EXPECT_FALSE(late->Hold(100'000).has_value());
    EXPECT_TRUE(growing->Hold(2'000'000).has_value());
    late->Send(200, {}, "small");
    EXPECT_EQ(other.Answer().body, "small");
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 900'000; }));
    EXPECT_FALSE(growing->Hold(2'000'000).has_value()) << "one alone may be larger";
    growing->Send(200, {}, std::string(2'000'000, 'x'));
    EXPECT_EQ(client.Answer().body.size(), 2'000'000u);
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
}

// Work memory counts until the work is done; a single request may exceed the limit.
TEST_F(HttpLimit, MemoryOfTheWorkCounts) {
    Start({.limits = {.all_bodies_bytes = 1'000'000}});
    RawClient client = Connect(), other = Connect(), gone = Connect();
    const auto hold = [&](RawClient& asks) {
        asks.Send(Post("/hold", std::string(1000, 'b')));
        const auto exchange = TakeHeld();
        exchange->Note([](RequestNote& note) { note.key = "a"; });
        return exchange;
    };
    const auto large = hold(client), late = hold(other);
    EXPECT_FALSE(large->Reserve(600'000, false).has_value()) << "more than the half of one key";
    EXPECT_FALSE(large->Reserve(900'000, false).has_value()) << "it has some already";
    const auto refusal = late->Reserve(600'000, false);
    ASSERT_TRUE(refusal.has_value());
    EXPECT_EQ(refusal->status, 503);
    EXPECT_TRUE(late->Hold(600'000).has_value());
    EXPECT_FALSE(late->Hold(300'000).has_value());
    large->Release();
    EXPECT_FALSE(late->Reserve(600'000, false).has_value());
    late->Send(200, {}, "small");
    EXPECT_EQ(other.Answer().body, "small");
    large->Send(200, {}, "small");
    EXPECT_EQ(client.Answer().body, "small");
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
    const auto alone = hold(gone);
    EXPECT_FALSE(alone->Reserve(2'000'000, false).has_value());
    gone.Reset();
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
    const auto first = hold(client), second = hold(other);
    EXPECT_FALSE(first->Reserve(400'000, true).has_value());
    const auto of_key = second->Reserve(200'000, true);
    ASSERT_TRUE(of_key.has_value());
    EXPECT_EQ(of_key->status, 429);
    first->Send(200, {}, "small");
    EXPECT_EQ(client.Answer().body, "small");
    EXPECT_TRUE(Until([&] { return !second->Reserve(200'000, true).has_value(); }));
}

// Streams and complete answers of many clients that do not read, and one that reads.
TEST_F(HttpLimit, UnreadAnswersStayWithinTheLimit) {
    constexpr uint64_t kMost = 18'000'000, kEach = 4'000'000;
    Start({.limits = {.all_bodies_bytes = kMost, .slow_ms = 0}});
    RawClient reader = Connect();
    reader.Send(Get("/hold"));
    const auto read = TakeHeld();
    read->Begin(200, {});
    std::vector<RawClient> clients;
    std::vector<std::shared_ptr<Exchange>> streams;
    std::string came;
    for (int i = 0; i < 60; ++i) {
        clients.push_back(Connect(4096));
        clients.back().Send(Get("/hold"));
        const auto exchange = TakeHeld();
        ASSERT_NE(exchange, nullptr);
        if (i % 2 == 0) {
            exchange->Send(200, {}, std::string(2 * kEach, 'x'));
        } else {
            exchange->Begin(200, {});
            for (uint64_t part = 0; part < 20; ++part) {
                exchange->Write(std::string(kEach / 10, 'x'));
            }
            streams.push_back(exchange);
        }
        EXPECT_LE(server_->stats().body_bytes, kMost + 2 * kEach);
        read->Write("still here ");
    }
    read->End();
    EXPECT_EQ(reader.Answer().body.size(), 60 * 11u);
    EXPECT_TRUE(Until([&] { return server_->stats().cut_off >= 50; }));
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes <= kMost; }));
    clients.clear();
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
    const auto records = Records();
    EXPECT_TRUE(std::ranges::any_of(records, [](const HttpRecord& record) {
        return record.note.error.find("--max-bodies-size") != std::string::npos;
    }));
}

// A later client does not wait for the deadline of clients that do not read.
TEST_F(HttpLimit, SlowReadersMakeRoom) {
    constexpr size_t kBytes = 20'000'000;
    Start({.limits = {.all_bodies_bytes = 2 * kBytes, .stall_ms = 600'000, .slow_ms = 50}});
    std::vector<RawClient> clients;
    const auto hold = [&] {
        clients.push_back(Connect(4096));
        clients.back().Send(Get("/hold"));
        return TakeHeld();
    };
    for (int i = 0; i < 2; ++i) hold()->Send(200, {}, std::string(kBytes, 'x'));
    const auto late = hold();
    EXPECT_TRUE(Until([&] { return !late->Hold(kBytes).has_value(); }));
    EXPECT_GE(server_->stats().cut_off, 1u);
    late->Send(200, {}, std::string(kBytes, 'y'));
    EXPECT_EQ(clients.back().Answer().body.size(), kBytes);
}

TEST_F(HttpLimit, SlowHeads) {
    Start({.limits = {.head_ms = 150}});
    RawClient stopped = Connect(), trickling = Connect();
    stopped.Send("GET /echo HTTP/1.1\r\nHost:");
    const int64_t begin_ns = NowNs();
    const std::string slow = Get("/echo", "X: " + std::string(500, 'a') + "\r\n");
    std::thread sender([&] {
        const test::Pace pace(5'000);
        for (size_t at = 0; at < slow.size() && trickling.Send(slow.substr(at, 1)); ++at) {
            pace.Next();
        }
    });
    ExpectRefused(stopped, 408);
    const int64_t ms = (NowNs() - begin_ns) / 1'000'000;
    EXPECT_GE(ms, 150);
    sender.join();
    EXPECT_EQ(trickling.Answer().status, 408);
    EXPECT_EQ(server_->stats().timed_out, 2u);
}

TEST_F(HttpLimit, SlowBodies) {
    Start({.limits = {.body_ms = 600, .body_grace_ms = 100, .body_bytes_per_s = 10'000}});
    const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n";
    RawClient stopped = Connect(), slow = Connect();
    stopped.Send(head + std::string(1'000, 'b'));  // extends the deadline by 100 ms
    ExpectRefused(stopped, 408);
    // Fast enough by rate, but not complete in time.
    slow.Send(head);
    const int64_t begin_ns = NowNs();
    const test::Pace pace(45'000);
    for (int i = 0; i < 18; ++i) {
        slow.Send(std::string(1'000, 'b'));
        pace.Next();
    }
    ExpectRefused(slow, 408);
    EXPECT_GE((NowNs() - begin_ns) / 1'000'000, 600);
    EXPECT_EQ(server_->stats().timed_out, 2u);
}

TEST_F(HttpLimit, ASteadyBodyIsNotSlow) {
    Start({.limits = {.body_grace_ms = 100, .body_bytes_per_s = 10'000}});
    RawClient client = Connect();
    client.Send("POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 20000\r\n\r\n");
    const test::Pace pace(15'000);
    for (int i = 0; i < 20; ++i) {
        client.Send(std::string(1'000, 'b'));
        pace.Next();
    }
    EXPECT_EQ(client.Answer().status, 200);
}

// Fast sending at first gains no time: a body that stops or trickles is refused soon.
TEST_F(HttpLimit, ABodyThatStopsAfterAFastBegin) {
    Start({.limits = {.body_grace_ms = 200, .body_bytes_per_s = 1'000}});
    const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 9000000\r\n\r\n";
    RawClient stopped = Connect(), trickling = Connect();
    stopped.Send(head + std::string(8'000'000, 'b'));
    trickling.Send(head + std::string(8'000'000, 'b'));
    const int64_t begin_ns = NowNs();
    std::thread sender([&] {  // 5 KB/s: enough for a small body
        const test::Pace pace(10'000);
        for (int i = 0; i < 400 && trickling.Send(std::string(50, 'b')); ++i) pace.Next();
    });
    ExpectRefused(stopped, 408);
    EXPECT_EQ(trickling.Answer().status, 408);
    EXPECT_LT((NowNs() - begin_ns) / 1'000'000, test::LimitMs(3000));
    sender.join();
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
}

// A request is refused by its head before its body arrives, and nothing is counted.
TEST_F(HttpLimit, RefusesByHeadBeforeTheBody) {
    HttpOptions options{.limits = {.all_bodies_bytes = 1'000'000, .body_ms = 60'000}};
    options.judge_head = [](const HttpRequest& head) {
        HeadVerdict verdict{.client = std::string(head.Header("Key"))};
        if (verdict.client.empty()) {
            verdict.refusal = Refusal{401, "no key", "none", {{"WWW-Authenticate", "Bearer"}}};
        }
        return verdict;
    };
    Start(options);
    const std::string head = "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 900000\r\n";
    std::vector<RawClient> strangers;
    for (int i = 0; i < 8; ++i) {
        strangers.push_back(Connect());
        strangers.back().Send(head + "\r\n" + std::string(899'999, 'b'));
    }
    RawClient continues = Connect(), chunked = Connect(), silent = Connect();
    continues.Send(head + "Expect: 100-continue\r\n\r\n");
    chunked.Send("POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab");
    silent.Send(head + "\r\n");
    for (RawClient* client : {&continues, &chunked, &silent, &strangers[0], &strangers[7]}) {
        const RawAnswer answer = client->Answer();
        EXPECT_EQ(answer.status, 401);
        EXPECT_EQ(answer.Header("WWW-Authenticate"), "Bearer");
        EXPECT_EQ(answer.Error(), "no key");
    }
    EXPECT_EQ(server_->stats().body_bytes, 0u);
    EXPECT_EQ(server_->stats().requests, 0u);
    // With a key, a large body is accepted.
    EXPECT_EQ(Ask(Post("/echo", std::string(400'000, 'b'), "Key: a\r\n")).status, 200);
    // The handler judges a body that has already arrived, and the connection continues.
    RawClient small = Connect();
    EXPECT_EQ(small.Ask(Post("/echo", "short")).status, 200);
    EXPECT_EQ(small.Ask(Post("/echo", "short")).status, 200);
}

TEST_F(HttpLimit, OneClientHoldsHalfOfTheBodies) {
    HttpOptions options{.limits = {.all_bodies_bytes = 1'000'000}};
    options.judge_head = [](const HttpRequest& head) {
        return HeadVerdict{.client = std::string(head.Header("Key"))};
    };
    Start(options);
    const auto begun = [](const std::string& key) {
        return "POST /echo HTTP/1.1\r\nHost: x\r\nKey: " + key +
               "\r\nContent-Length: 300000\r\n\r\n" + std::string(299'999, 'b');
    };
    RawClient first = Connect(), second = Connect(), other = Connect();
    first.Send(begun("a"));
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 299'999; }));
    second.Send(begun("a"));
    ExpectRefused(second, 429);
    other.Send(begun("b"));
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 599'998; }));
    EXPECT_EQ(first.Ask("b").status, 200);
    EXPECT_EQ(other.Ask("b").status, 200);
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
    EXPECT_EQ(Ask(begun("a") + "b").status, 200);
}

// A single larger body is accepted; a client over its share is refused before the body arrives.
TEST_F(HttpLimit, ASingleLargeBodyIsAccepted) {
    HttpOptions options{.limits = {.all_bodies_bytes = 1'000'000, .body_ms = 60'000}};
    options.judge_head = [](const HttpRequest& head) {
        return HeadVerdict{.client = std::string(head.Header("Key"))};
    };
    Start(options);
    const std::string head =
        "POST /echo HTTP/1.1\r\nHost: x\r\nKey: a\r\nContent-Length: 900000\r\n\r\n";
    for (int i = 0; i < 2; ++i) {
        EXPECT_EQ(Ask(head + std::string(900'000, 'b')).status, 200);
        EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
    }
    RawClient first = Connect(), second = Connect();
    first.Send(head + std::string(10, 'b'));
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 10; }));
    second.Send(head);
    ExpectRefused(second, 429);
    EXPECT_EQ(first.Ask(std::string(899'990, 'b')).status, 200);
}

TEST_F(HttpLimit, IdleConnectionsAreClosed) {
    constexpr int64_t kIdleMs = 150;
    Start({.limits = {.idle_ms = kIdleMs}});
    RawClient fresh = Connect(), used = Connect();
    EXPECT_EQ(used.Ask(Get("/echo")).status, 200);
    const int64_t begin_ns = NowNs();
    test::Outlast(kIdleMs * 2 / 3);
    EXPECT_EQ(used.Ask(Get("/echo")).status, 200);  // restarts the idle time
    EXPECT_TRUE(fresh.ReadToEnd());
    EXPECT_EQ(fresh.came(), "");
    EXPECT_TRUE(used.ReadToEnd());
    EXPECT_GE((NowNs() - begin_ns) / 1'000'000, 250);
    // A connection that waits for its answer is not idle.
    RawClient waiting = Connect();
    waiting.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    EXPECT_FALSE(waiting.ReadSome(Deadline::In(400)));
    exchange->Send(200, {}, "late");
    EXPECT_EQ(waiting.Answer().body, "late");
}

TEST_F(HttpLimit, HalfSentRequests) {
    Start();
    for (const char* half : {"G", "GET /echo HTTP/1.1\r\nHost: x\r\n",
                             "POST /echo HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\n\r\n1234",
                             "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
                             "1\r\na\r\n0\r\n"}) {
        RawClient client = Connect();
        client.Send(half);
        client.EndSending();
        EXPECT_EQ(client.Answer().status, 400) << half;
        RawClient gone = Connect();
        gone.Send(half);
        gone.Reset();
    }
    RawClient silent = Connect();
    silent.EndSending();
    EXPECT_TRUE(silent.ReadToEnd());
    EXPECT_EQ(silent.came(), "");
    EXPECT_TRUE(Until([&] { return server_->stats().connections == 0; }));
    EXPECT_EQ(server_->stats().requests, 0u);
}

TEST_F(HttpLimit, AClientThatLeavesIsNoticedAtOnce) {
    Start();
    for (const bool begun : {false, true}) {
        for (const bool reset : {false, true}) {
            RawClient client = Connect();
            client.Send(Get("/hold"));
            const auto exchange = TakeHeld();
            ASSERT_NE(exchange, nullptr);
            if (begun) exchange->Begin(200, {{"Content-Type", "text/event-stream"}});
            std::atomic<int> calls{0};
            exchange->OnDisconnect([&] { ++calls; });
            EXPECT_EQ(Ask(Get("/echo")).status, 200);  // by the thread that detects ends
            EXPECT_EQ(calls, 0);
            EXPECT_FALSE(exchange->gone());
            reset ? client.Reset() : client.Close();
            EXPECT_LT(TimeUntil([&] { return calls > 0; }), 500);
            EXPECT_TRUE(exchange->gone());
            EXPECT_EQ(server_->open_exchanges(), 0u);
            exchange->Write("x");
            exchange->End();
            EXPECT_EQ(calls, 1);
        }
    }
    EXPECT_EQ(server_->stats().client_gone, 4u);
}

TEST_F(HttpLimit, ThePipelineIsBoundedAndADisconnectIsNoticed) {
    Start();
    RawClient client = Connect();
    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    std::atomic<bool> gone{false};
    exchange->OnDisconnect([&] { gone = true; });
    std::string flood;
    while (flood.size() < 30'000'000) flood += Get("/echo");
    EXPECT_FALSE(client.Send(flood, 300)) << "the server takes requests without end";
    EXPECT_LT(server_->stats().received_bytes, 200'000u);
    EXPECT_FALSE(gone);
    client.Close();
    // The end of the stream is behind unread bytes; a write detects it.
    exchange->Begin(200, {});
    EXPECT_LT(TimeUntil([&] { return gone.load(); }), 1'000);
}

TEST_F(HttpLimit, AFullPipelineContinues) {
    Start({.limits = {.head_bytes = 512}});
    RawClient client = Connect();
    constexpr int kMore = 300;
    std::string all = Get("/hold");
    for (int i = 0; i < kMore; ++i) all += Post("/echo", std::to_string(i));
    client.Send(all);
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    EXPECT_EQ(Ask(Get("/echo")).status, 200);  // the thread that reads has read what it may
    exchange->Send(200, {}, "held");
    EXPECT_EQ(client.Answer().body, "held");
    for (int i = 0; i < kMore; ++i) {
        ASSERT_EQ(client.Answer().body, "POST /echo  " + std::to_string(i));
    }
}

// The handler blocks the I/O thread twice: until all pipelines have arrived, and until the other
// client's request has arrived after some of theirs.
TEST_F(HttpLimit, LongPipelinesTakeTurnsWithOtherClients) {
    constexpr int kClients = 40, kEach = 50, kBefore = 125;
    // The server outlives this function if an assertion fails.
    struct Events {
        std::promise<void> all_sent, reached, asked;
        std::atomic<int> served{0}, served_before{-1};
    };
    const auto events = std::make_shared<Events>();
    const auto wait = [](std::promise<void>& event) {
        EXPECT_EQ(event.get_future().wait_for(std::chrono::milliseconds(test::kAnswerMs)),
                  std::future_status::ready);
    };
    const auto answer = [events, wait](std::shared_ptr<Exchange> exchange) {
        if (exchange->request().path == "/one") events->served_before = events->served.load();
        if (exchange->request().path == "/many") {
            const int number = ++events->served;
            if (number == 1) wait(events->all_sent);
            if (number == kBefore) {
                events->reached.set_value();
                wait(events->asked);
            }
        }
        exchange->Send(200, {}, "answer");
    };
    auto server = HttpServer::Start({.port = 0}, answer);
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    RawClient other = Connect();
    EXPECT_EQ(other.Ask(Get("/echo")).status, 200);
    std::string pipeline;
    for (int i = 0; i < kEach; ++i) pipeline += Get("/many");
    std::vector<RawClient> clients;
    for (int i = 0; i < kClients; ++i) {
        clients.push_back(Connect());
        EXPECT_TRUE(clients.back().Send(pipeline));
    }
    events->all_sent.set_value();
    wait(events->reached);
    EXPECT_TRUE(other.Send(Get("/one")));
    events->asked.set_value();
    EXPECT_EQ(other.Answer().status, 200);
    // The running request, and one or two turns until the sockets are polled.
    EXPECT_LE(events->served_before.load(), kBefore + 3);
    for (RawClient& client : clients) {
        for (int i = 0; i < kEach; ++i) ASSERT_EQ(client.Answer().body, "answer");
    }
    EXPECT_EQ(events->served.load(), kClients * kEach);
}

// A client that reads gets as many turns as the other clients.
TEST_F(HttpLimit, AnUnreadPipelineIsNotAnswered) {
    constexpr int kRequests = 1000;
    constexpr size_t kBytes = 64 << 10;
    // The server outlives this function if an assertion fails.
    const auto unread = std::make_shared<std::atomic<size_t>>(0);
    auto server = HttpServer::Start({.port = 0}, [unread](std::shared_ptr<Exchange> exchange) {
        const bool large = exchange->request().path == "/unread";
        *unread += large ? kBytes : 0;
        exchange->Send(200, {}, std::string(large ? kBytes : 10, 'x'));
    });
    ASSERT_TRUE(server.ok()) << server.error().message;
    server_ = std::move(server).value();
    RawClient silent = Connect(4096), reader = Connect();
    std::string pipeline, silent_pipeline;
    for (int i = 0; i < kRequests; ++i) {
        pipeline += Get("/read");
        silent_pipeline += Get("/unread");
    }
    EXPECT_TRUE(silent.Send(silent_pipeline));
    EXPECT_TRUE(reader.Send(pipeline));
    for (int i = 0; i < kRequests; ++i) ASSERT_EQ(reader.Answer().body.size(), 10u);
    EXPECT_LE(unread->load(), size_t{1} << 20);
    for (int i = 0; i < kRequests; ++i) ASSERT_EQ(silent.Answer().body.size(), kBytes);
}

// However much a handler writes at once: only a client that does not read loses its answer.
TEST_F(HttpLimit, AStreamFarAheadOfItsReaderArrivesWhole) {
    Start({.limits = {.slow_ms = 0}});
    RawClient client = Connect(4096);
    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    constexpr size_t kBytes = 8 << 20;
    exchange->Begin(200, {});
    exchange->Write(std::string(kBytes, 'c'));
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes > kBytes / 2; }));
    exchange->Write("end");
    exchange->End();
    const RawAnswer answer = client.Answer();
    EXPECT_TRUE(answer.whole);
    EXPECT_EQ(answer.body.size(), kBytes + 3);
    EXPECT_EQ(server_->stats().cut_off, 0u);
    EXPECT_TRUE(Until([&] { return server_->stats().body_bytes == 0; }));
}

// A reader that resumes after many short chunks gets them in time linear in their number, because
// other clients of the same loop wait meanwhile.
TEST_F(HttpLimit, ManyShortChunksAreSentInLinearTime) {
    Start();
    RawClient client = Connect(4096);
    client.Send(Get("/hold"));
    const auto exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    constexpr size_t kChunks = 1'000'000;
    exchange->Begin(200, {});
    for (size_t i = 0; i < kChunks; ++i) exchange->Write("x");
    exchange->End();
    std::string buffer(1 << 20, '\0'), last;
    const Deadline deadline = Deadline::In(test::kAnswerMs);
    while (!last.ends_with("0\r\n\r\n")) {
        const ssize_t some = ::recv(client.fd(), buffer.data(), buffer.size(), 0);
        ASSERT_GT(some, 0);
        ASSERT_FALSE(deadline.expired());
        last.append(buffer, 0, static_cast<size_t>(some));
        last.erase(0, last.size() - std::min<size_t>(last.size(), 5));
    }
}

// Clients that leave before their answers begin; half: they only shut down their sending side.
TEST_F(HttpLimit, ClientsOfBothVersionsThatLeaveAreNoticed) {
    Start();
    for (const char* version : {"1.0", "1.1"}) {
        for (const bool streams : {false, true}) {
            for (const char* how : {"close", "reset", "half"}) {
                SCOPED_TRACE(std::string(version) + how + (streams ? " stream" : ""));
                RawClient client = Connect();
                client.Send(std::string("GET /hold HTTP/") + version + "\r\nHost: x\r\n\r\n");
                const auto exchange = TakeHeld();
                ASSERT_NE(exchange, nullptr);
                if (streams) exchange->Begin(200, {{"Content-Type", "text/event-stream"}});
                const bool half = how == std::string("half");
                if (half) {
                    client.EndSending();
                } else {
                    how == std::string("close") ? client.Close() : client.Reset();
                }
                // Without an answer, a waiting client of HTTP/1.0 cannot be distinguished from one
                // that has disconnected.
                const bool stays = half && (streams || version == std::string("1.1"));
                EXPECT_TRUE(stays || Until([&] { return exchange->gone(); }));
                if (!stays) continue;
                streams ? exchange->Write("answer") : exchange->Send(200, {}, "answer");
                exchange->End();
                EXPECT_TRUE(client.ReadToEnd());
                EXPECT_NE(client.came().find("answer"), std::string::npos);
            }
        }
    }
    // A short answer also reaches a client of HTTP/1.0 that has shut down its side.
    RawClient client = Connect();
    client.Send("GET /echo HTTP/1.0\r\n\r\n");
    client.EndSending();
    EXPECT_TRUE(client.ReadToEnd());
    EXPECT_NE(client.came().find("GET /echo"), std::string::npos);
}

// The time in which an answer to a client of HTTP/1.0 must begin counts from the request's turn,
// not from the end of the client's input before it. (A busy machine may take longer, so there are
// trials.)
TEST_F(HttpLimit, ALaterRequestOfAnEndedClientHasItsTime) {
    Start();
    std::string came;
    for (int trial = 0; trial < 10 && came.find("answer") == came.npos; ++trial) {
        RawClient client = Connect();
        client.Send(
            "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\nGET /hold HTTP/1.0\r\n\r\n");
        client.EndSending();
        const auto exchange = TakeHeld();
        ASSERT_NE(exchange, nullptr);
        EXPECT_EQ(Ask(Get("/echo")).status, 200);  // the loop has looked at its timers
        exchange->Send(200, {}, "answer");
        EXPECT_TRUE(client.ReadToEnd());
        came = client.came();
    }
    EXPECT_NE(came.find("answer"), came.npos);
}

// Proxies and clients end silent streams.
TEST_F(HttpLimit, ASilentStreamIsFilled) {
    Start({.limits = {.silence_ms = 20}});
    RawClient client = Connect();
    client.Send(Get("/hold"));
    const std::shared_ptr<Exchange> exchange = TakeHeld();
    ASSERT_NE(exchange, nullptr);
    exchange->Begin(200, {{"Content-Type", "text/event-stream"}});
    std::atomic<int> fills = 0;
    exchange->OnSilence([&] {
        ++fills;
        return std::string("data: silence\n\n");
    });
    EXPECT_TRUE(Until([&] { return fills >= 3; }));
    exchange->EndWith("data: end\n\n");
    const Deadline deadline = Deadline::In(10'000);
    while (client.came().find("data: end") == std::string::npos) {
        ASSERT_TRUE(client.ReadSome(deadline));
    }
    const std::string came = client.came();
    EXPECT_NE(came.find("data: silence"), came.npos) << came;
    EXPECT_LT(came.rfind("data: silence"), came.find("data: end"));
}

TEST_F(HttpLimit, AReaderThatStopsIsCutOff) {
    Start({.limits = {.stall_ms = 200}});
    for (const char* path : {"/size?30000000", "/hold"}) {
        SCOPED_TRACE(path);
        const uint64_t before = server_->stats().cut_off;
        RawClient client = Connect(4096);
        client.Send(Get(path));
        std::shared_ptr<Exchange> exchange;
        if (std::string(path) == "/hold") {
            exchange = TakeHeld();
            ASSERT_NE(exchange, nullptr);
            exchange->Begin(200, {});
            // More than any socket buffer (tcp_wmem), once a busy server writes it.
            Until([&] {
                exchange->Write(std::string(400'000, 'c'));
                return exchange->backlog_bytes() >= 16'000'000 || exchange->gone();
            });
        }
        EXPECT_TRUE(Until([&] { return server_->stats().cut_off == before + 1; }));
        EXPECT_TRUE(exchange == nullptr || Until([&] { return exchange->gone(); }));
    }
}

TEST_F(HttpLimit, ASlowButSteadyReaderIsNotCutOff) {
    const int64_t stall_ms = test::TimeoutMs(250);
    Start({.limits = {.stall_ms = stall_ms}});
    RawClient client = Connect();
    client.Send(Get("/size?8000000"));
    size_t got = 0;
    char buffer[100'000];
    const test::Pace pace(stall_ms * 40);
    while (got < 8'000'000) {  // 80 reads, each after 1/25 of the stall time
        const ssize_t some = ::recv(client.fd(), buffer, sizeof buffer, 0);
        ASSERT_GT(some, 0);
        got += static_cast<size_t>(some);
        pace.Next();
    }
    EXPECT_EQ(server_->stats().cut_off, 0u);
}

// The socket's buffer has megabytes and accepts more once a third is free: bytes that the reader
// takes before that count as progress.
TEST_F(HttpLimit, ASlowReaderOfALargeAnswerIsNotCutOff) {
    const int64_t stall_ms = test::TimeoutMs(500);
    Start({.limits = {.stall_ms = stall_ms}});
    RawClient client = Connect();
    client.Send(Get("/size?20000000"));
    char buffer[16'000];
    const test::Pace pace(stall_ms * 27);
    for (int reads = 0; reads < 150; ++reads) {  // four times the stall time in total
        const ssize_t some = ::recv(client.fd(), buffer, sizeof buffer, 0);
        ASSERT_GT(some, 0);
        pace.Next();
    }
    EXPECT_EQ(server_->stats().cut_off, 0u);
}

// Resident memory of this process.
size_t ResidentBytes() {
    std::ifstream file("/proc/self/statm");
    size_t total = 0, resident = 0;
    file >> total >> resident;
    return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(HttpLimit, FiveThousandIdleConnectionsCostLittle) {
    constexpr size_t kConnections = 5'000;
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    const rlim_t wanted = 2 * kConnections + 200;  // this process holds both ends
    if (limit.rlim_cur < wanted) {
        limit.rlim_cur = std::min(wanted, limit.rlim_max);
        ::setrlimit(RLIMIT_NOFILE, &limit);
    }
    if (limit.rlim_cur < wanted) {
        GTEST_SKIP() << "NOT TESTED: the hard limit of open files is " << limit.rlim_max << ", "
                     << wanted << " are needed ('ulimit -Hn')";
    }
    // idle_ms: longer than opening them takes
    Start({.limits = {.max_strangers = kConnections + 1, .idle_ms = 600'000}});
    std::vector<RawClient> clients;
    clients.reserve(kConnections);
    EXPECT_EQ(Ask(Get("/echo")).status, 200);  // allocations made by the first request
    ::malloc_trim(0);
    const size_t before = ResidentBytes();
    for (size_t i = 0; i < kConnections; ++i) {
        clients.push_back(Connect());
        // Half of them have served a request with a body and a long answer.
        if (i % 2 == 0) {
            clients.back().Send(Post("/size?20000", std::string(5'000, 'b')));
            ASSERT_EQ(clients.back().Answer().body.size(), 20'000u);
        }
    }
    ASSERT_TRUE(Until([&] { return server_->stats().connections == kConnections; }));
    const size_t bytes = std::max(before, ResidentBytes()) - before;
    std::printf("%zu idle connections: %.1f MB, %.1f KB each\n", kConnections,
                static_cast<double>(bytes) * 1e-6,
                static_cast<double>(bytes) / kConnections * 1e-3);
// sanitizers use memory of their own
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)
    EXPECT_LE(bytes, 100'000'000u / 4);  // 100 MB are promised; a few KB per connection are usual
#endif
    // They still work.
    for (size_t i = 0; i < kConnections; i += 500) {
        EXPECT_EQ(clients[i].Ask(Get("/echo")).status, 200);
    }
}

}  // namespace
}  // namespace weft::serve
