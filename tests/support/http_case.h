// An HTTP server for tests with a handler that depends on the path:
//     /echo     the method, path, query and body
//     /hold     no answer until the test gives one
//     /stream   three chunks
//     /size?N   N bytes
//     /drop     releases the exchange;  /dropped: after a chunk of a stream;  /throw: throws
// A header x-api-key has the name of the request's key.
#pragma once

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <stdexcept>

#include "serve/http/server.h"
#include "support/raw_client.h"
#include "support/wait.h"

namespace weft::serve {

using test::RawAnswer;
using test::RawClient;

class HttpCase : public ::testing::Test {
  protected:
    void TearDown() override {
        held_.clear();
        server_.reset();
    }

    void Start(HttpOptions options = {}) {
        options.port = 0;
        options.observer = [this](const HttpRecord& record) {
            const std::lock_guard lock(mutex_);
            records_.push_back(record);
            changed_.notify_all();
        };
        auto started = HttpServer::Start(
            options, [this](std::shared_ptr<Exchange> exchange) { Handle(std::move(exchange)); });
        ASSERT_TRUE(started.ok()) << started.error().message;
        server_ = std::move(started).value();
    }
    RawClient Connect(int receive_buffer = 0) const {
        RawClient client(server_->port(), receive_buffer);
        EXPECT_TRUE(client.connected());
        return client;
    }
    // Sends one request on a new connection.
    RawAnswer Ask(const std::string& bytes) const { return Connect().Ask(bytes); }

    // The next exchange of /hold.
    std::shared_ptr<Exchange> TakeHeld() {
        std::unique_lock lock(mutex_);
        const bool there = changed_.wait_for(lock, std::chrono::milliseconds(test::kAnswerMs),
                                             [&] { return !held_.empty(); });
        EXPECT_TRUE(there) << "the request didn't come to the handler";
        if (!there) return nullptr;
        auto exchange = held_.front();
        held_.pop_front();
        return exchange;
    }
    // As TakeHeld; null: none yet.
    std::shared_ptr<Exchange> TryTakeHeld() {
        const std::lock_guard lock(mutex_);
        if (held_.empty()) return nullptr;
        auto exchange = held_.front();
        held_.pop_front();
        return exchange;
    }
    // Waits until `condition` holds; it may read the exchanges that the test holds.
    template <typename Condition>
    bool Until(Condition condition, int64_t most_ms = test::kAnswerMs) {
        return test::Until(condition, Deadline::In(most_ms));
    }
    std::vector<HttpRecord> Records() {
        const std::lock_guard lock(mutex_);
        return records_;
    }

    static std::string Get(const std::string& path, const std::string& more = {}) {
        return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + more + "\r\n";
    }
    static std::string Post(const std::string& path, const std::string& body,
                            const std::string& more = {}) {
        return "POST " + path +
               " HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(body.size()) + "\r\n" +
               more + "\r\n" + body;
    }

    std::unique_ptr<HttpServer> server_;

  private:
    void Handle(std::shared_ptr<Exchange> exchange) {
        const HttpRequest& request = exchange->request();
        const Headers text = {{"Content-Type", "text/plain"}};
        if (const auto key = request.Header("x-api-key"); !key.empty()) {
            exchange->Note([&](RequestNote& note) { note.key = key; });
        }
        if (request.path == "/hold") {
            const std::lock_guard lock(mutex_);
            held_.push_back(std::move(exchange));
            changed_.notify_all();
        } else if (request.path == "/stream") {
            exchange->Begin(200, {{"Content-Type", "text/event-stream"}});
            for (const char* chunk : {"one ", "two ", "three"}) exchange->Write(chunk);
            exchange->End();
        } else if (request.path == "/size") {
            exchange->Send(200, text,
                           std::string(std::strtoull(request.query.c_str(), nullptr, 10), 'x'));
        } else if (request.path == "/dropped") {
            exchange->Begin(200, text);
            exchange->Write("part");
        } else if (request.path == "/throw") {
            throw std::runtime_error("the test's own");
        } else if (request.path != "/drop") {
            exchange->Send(
                200, text,
                request.method + " " + request.path + " " + request.query + " " + request.body);
        }
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::shared_ptr<Exchange>> held_;
    std::vector<HttpRecord> records_;
};

}  // namespace weft::serve
