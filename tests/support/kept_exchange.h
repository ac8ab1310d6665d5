// An Exchange that stores the response, for tests of handlers.
#pragma once

#include <atomic>
#include <functional>
#include <mutex>
#include <string>
#include <string_view>

#include "serve/http/server.h"

namespace weft::serve {

class KeptExchange final : public Exchange {
  public:
    KeptExchange() = default;
    KeptExchange(std::string method, std::string path) {
        request_.method = std::move(method);
        request_.path = std::move(path);
    }
    const HttpRequest& request() const override { return request_; }
    void Send(int status, Headers, std::string body) override {
        status_ = status;
        text_ = std::move(body);
        End();
    }
    void SendKept(int status, Headers headers, std::string_view body) override {
        kept_ = body;
        Send(status, std::move(headers), std::string(body));
    }
    void Begin(int status, Headers) override { status_ = status; }
    void Write(std::string chunk) override { text_ += chunk; }
    void End() override {
        over_ = true;
        if (on_over_) on_over_();
    }
    bool gone() const override { return gone_; }
    void OnDisconnect(std::function<void()> callback) override {
        {
            const std::lock_guard lock(mutex_);
            if (!gone_) return on_gone_.swap(callback);
        }
        callback();
    }
    void OnSilence(std::function<std::string()> fill) override { fill_ = std::move(fill); }
    // What a silent stream gets.
    std::string Fill() { return fill_ ? fill_() : ""; }
    // The client disconnects.
    void Leave() {
        std::function<void()> callback;
        {
            const std::lock_guard lock(mutex_);
            gone_ = true;
            callback.swap(on_gone_);
        }
        if (callback) callback();
    }
    size_t backlog_bytes() const override { return 0; }
    std::optional<Refusal> Hold(size_t bytes) override {
        held_bytes_ = bytes;
        if (bytes <= most_bytes_) return {};
        return Refusal{503, "no room", "too_many_large_requests"};
    }
    std::optional<Refusal> Reserve(size_t bytes, bool of_key) override {
        if (!of_key || bytes <= most_bytes_) return {};
        return Refusal{429, "no room", "too_many_large_requests"};
    }
    void Release() override {}
    void Note(const std::function<void(RequestNote&)>& edit) override { edit(note_); }

    HttpRequest request_;
    RequestNote note_;
    std::function<void()> on_over_;  // called when the client has the answer
    std::string_view kept_;          // the body of SendKept
    size_t most_bytes_ = SIZE_MAX;   // limit of Hold(), and of Reserve() for a key
    std::atomic<size_t> held_bytes_{0};
    std::string text_;
    std::atomic<int> status_{0};
    std::atomic<bool> over_{false};

  private:
    std::mutex mutex_;
    std::function<std::string()> fill_;
    std::function<void()> on_gone_;
    std::atomic<bool> gone_{false};
};

}  // namespace weft::serve
