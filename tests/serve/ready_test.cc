// /ready depends on steps: a long prompt that progresses stays ready; probes run one at a time.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "serve/api/api.h"
#include "support/kept_exchange.h"
#include "support/limits.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::serve {
namespace {

// Longer than a step of two tokens on any machine, shorter than a step of 4,000.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kReadyMs = 2000;
#else
constexpr int64_t kReadyMs = 400;
#endif

class Nobody final : public engine::Listener {
  public:
    void OnToken(const engine::GeneratedToken&, std::string_view) override {}
    void OnEnd(std::string_view, const Result<engine::Ending>&) override {}
};

class Ready : public testing::Test {
  protected:
    void SetUp() override {
        support::TinyFile file{.hyper = support::OddHyper("llama")};
        file.hyper.layers = 2;
        support::WriteTinyGguf(dir_ / "m", file);
        engine::Job job;
        job.model = dir_ / "m";
        job.threads = 1;
        job.ctx = 4096;
        job.kv_tokens = 8192;
        job.chunk = 2;
        job.self_test = false;
        engine_ = engine::Engine::Start({}, job, {2, true}).value();
        served_.name = "m";
        served_.engine = engine_.get();
        options_.ready_ms = kReadyMs;
        options_.max_waiting = 1;
        api_ = std::make_unique<Api>(served_, options_);
    }
    std::shared_ptr<KeptExchange> Ask() {
        auto exchange = std::make_shared<KeptExchange>("GET", "/ready");
        api_->Handle(exchange);
        return exchange;
    }

    test::TempDir dir_;
    std::unique_ptr<engine::Engine> engine_;
    Served served_;
    ApiOptions options_;
    std::unique_ptr<Api> api_;
};

TEST_F(Ready, AServerThatLeavesIsNotReadyAndAnswers) {
    api_->Leave();
    EXPECT_EQ(Ask()->status_, 503);
    EXPECT_NE(Ask()->text_.find("draining"), std::string::npos);
    const auto health = std::make_shared<KeptExchange>("GET", "/health");
    api_->Handle(health);
    EXPECT_EQ(health->status_, 200);
    const auto asked = std::make_shared<KeptExchange>("POST", "/v1/completions");
    asked->request_.body = R"({"prompt": [97, 98], "max_tokens": 1, "ignore_eos": true})";
    api_->Handle(asked);
    // Once no request is being read, the engine has them all, and may drain.
    EXPECT_TRUE(test::Until([&] { return !api_->reading(); }));
    engine_->Drain();
    ASSERT_TRUE(engine_->Run().ok());
    EXPECT_TRUE(test::Until([&] { return asked->over_.load(); }));
    EXPECT_EQ(asked->status_, 200) << asked->text_;
}

TEST_F(Ready, ARequestThatWaitsToBeReadCounts) {
    options_.workers = 0;  // nobody reads it
    Api api(served_, options_);
    EXPECT_FALSE(api.reading());
    const auto asked = std::make_shared<KeptExchange>("POST", "/v1/completions");
    asked->request_.body = R"({"prompt": "a"})";
    api.Handle(asked);
    EXPECT_TRUE(api.reading());
    asked->Leave();
    EXPECT_FALSE(api.reading());
}

TEST_F(Ready, ALongPromptStaysReady) {
    engine::Request request;
    request.prompt.assign(4000, 97);
    request.max_tokens = 1;
    ASSERT_TRUE(engine_->Submit(request, std::make_shared<Nobody>()).ok());
    std::vector<int> answers;
    std::thread asker([&] {
        EXPECT_TRUE(test::Until([&] { return engine_->counters().steps >= 20; }));
        for (const test::Pace probes(5'000); engine_->counters().last_token_ns == 0;
             probes.Next()) {
            const auto exchange = Ask();
            if (engine_->counters().last_token_ns == 0) answers.push_back(exchange->status_);
        }
        engine_->Drain();
    });
    ASSERT_TRUE(engine_->Run().ok());
    asker.join();
    ASSERT_FALSE(answers.empty());
    for (const int status : answers) EXPECT_EQ(status, 200) << "a step ended just now";
}

// The counts behind 429, /metrics and /api/status, also for requests that arrive during a step.
TEST_F(Ready, EveryRequestIsCountedAtAnyTime) {
    constexpr int64_t kRequests = 40;
    engine::Request request;
    request.prompt.assign(60, 97);
    request.max_tokens = 1;
    for (int64_t i = 0; i < kRequests; ++i) {
        ASSERT_TRUE(engine_->Submit(request, std::make_shared<Nobody>()).ok());
    }
    std::atomic<bool> over{false};
    int64_t least = kRequests, most = kRequests;
    std::thread asker([&] {
        while (!over) {
            const engine::EngineCounters c = engine_->counters();
            const int64_t counted = c.schedule.waiting + c.schedule.running + c.ended;
            least = std::min(least, counted);
            most = std::max(most, counted);
            if (c.ended == kRequests) engine_->Drain();
            std::this_thread::yield();
        }
    });
    EXPECT_TRUE(engine_->Run().ok());
    over = true;
    asker.join();
    EXPECT_EQ(least, kRequests);
    EXPECT_EQ(most, kRequests);
}

TEST_F(Ready, ConcurrentProbesRunOnce) {
    std::vector<std::shared_ptr<KeptExchange>> asked;
    for (int i = 0; i < 50; ++i) asked.push_back(Ask());
    EXPECT_EQ(engine_->counters().schedule.waiting, 1);
    engine_->Drain();
    ASSERT_TRUE(engine_->Run().ok());
    for (const auto& exchange : asked) EXPECT_EQ(exchange->status_, 200) << exchange->text_;
    EXPECT_EQ(engine_->counters().prompt_tokens, 1);
    EXPECT_EQ(Ask()->status_, 503) << "it is over";
}

}  // namespace
}  // namespace weft::serve
