// API keys are isolated: a key cannot detect another key's prompts. The prefix cache belongs to a
// key or to its group; /api/status shows a key its own errors.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "serve/api/api.h"
#include "support/kept_exchange.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::serve {
namespace {

constexpr int64_t kPromptTokens = 200;

class Tenants : public testing::Test {
  protected:
    void SetUp() override {
        support::TinyFile file{.hyper = support::OddHyper("llama")};
        file.hyper.layers = 2;
        support::WriteTinyGguf(dir_ / "m", file);
        engine::Job job;
        job.model = dir_ / "m";
        job.threads = 1;
        job.ctx = 512;
        job.kv_tokens = 4096;
        job.chunk = 64;
        job.self_test = false;
        job.outputs = model::Outputs::kBoth;  // also embeddings
        engine_ = engine::Engine::Start({}, job, {4, true}).value();
        served_.name = "m";
        served_.engine = engine_.get();
        served_.hyper = engine_->hyper();
        served_.longest_piece_bytes = 1;
        std::ofstream(dir_ / "keys").close();
        std::filesystem::permissions(std::string(dir_ / "keys"), std::filesystem::perms(0600));
        std::ofstream(dir_ / "keys") << KeyLine("alice", "key-a", {}) << "\n"
                                     << KeyLine("bob", "key-b", {}) << "\n"
                                     << KeyLine("carol", "key-c", {}) << " group=team\n"
                                     << KeyLine("dave", "key-d", {}) << " group=team\n";
        log_ = std::make_unique<RequestLog>(false);
    }
    void MakeApi(bool with_keys, bool shared, ApiOptions options = {}) {
        options.log = log_.get();
        options.shared_prefix_cache = shared;
        if (with_keys) {
            keys_ = KeyStore::Open(dir_ / "keys").value();
            options.keys = keys_.get();
        }
        api_ = std::make_unique<Api>(served_, options);
    }
    static std::shared_ptr<KeptExchange> Asked(const std::string& method, const std::string& path,
                                               const std::string& key, const Json& body) {
        auto exchange = std::make_shared<KeptExchange>(method, path);
        exchange->request_.headers = {{"Authorization", "Bearer " + key}};
        exchange->request_.body = Dump(body);
        return exchange;
    }
    Json Ask(const std::string& method, const std::string& path, const std::string& key,
             const Json& body) {
        const auto exchange = Asked(method, path, key, body);
        api_->Handle(exchange);
        EXPECT_TRUE(test::Until([&] { return exchange->over_.load(); }));
        return Json::parse(exchange->text_, nullptr, false);
    }
    // Tokens of the long prompt found in the cache.
    int64_t Cached(const std::string& key, const char* path = "/v1/completions") {
        Json prompt = Json::array();
        for (int64_t i = 0; i < kPromptTokens; ++i) prompt.push_back(97 + i % 7);
        const Json answer =
            Ask("POST", path, key, {{"prompt", prompt}, {"max_tokens", 1}, {"temperature", 0}});
        // The tokens count once the last step is complete.
        ++asked_;
        EXPECT_TRUE(test::Until([&] { return engine_->counters().ended >= asked_; }));
        const Json usage = answer.value("usage", Json::object());
        EXPECT_EQ(usage.value("prompt_tokens", 0), kPromptTokens) << answer;
        return usage.value("prompt_tokens_details", Json::object()).value("cached_tokens", -1);
    }
    // Rows computed by the engine so far.
    int64_t rows() const { return engine_->counters().step_rows; }
    // Runs the engine's loop on this thread, and `asks` on another.
    void Run(const std::function<void()>& asks) {
        std::thread asker([&] {
            asks();
            engine_->Drain();
        });
        EXPECT_TRUE(engine_->Run().ok());
        asker.join();
    }

    test::TempDir dir_;
    std::unique_ptr<engine::Engine> engine_;
    std::unique_ptr<RequestLog> log_;
    std::unique_ptr<KeyStore> keys_;
    Served served_;
    std::unique_ptr<Api> api_;
    int64_t asked_ = 0;
};

TEST_F(Tenants, KeysDoNotShareThePrefixCache) {
    MakeApi(true, false);
    Run([&] {
        EXPECT_EQ(Cached("key-a"), 0);
        EXPECT_EQ(Cached("key-a"), kPromptTokens - 1) << "its own";
        const int64_t before = rows();
        EXPECT_EQ(Cached("key-b"), 0);
        EXPECT_GE(rows() - before, kPromptTokens) << "the whole prompt is computed";
        EXPECT_EQ(Cached("key-b"), kPromptTokens - 1);
        EXPECT_EQ(Cached("key-a"), kPromptTokens - 1) << "both are kept";
    });
}

TEST_F(Tenants, KeysOfAGroupShare) {
    MakeApi(true, false);
    Run([&] {
        EXPECT_EQ(Cached("key-c"), 0);
        EXPECT_EQ(Cached("key-d"), kPromptTokens - 1);
        EXPECT_EQ(Cached("key-a"), 0) << "is not of the group";
    });
}

TEST_F(Tenants, AllKeysShareIfConfigured) {
    MakeApi(true, true);
    Run([&] {
        EXPECT_EQ(Cached("key-a"), 0);
        EXPECT_EQ(Cached("key-b"), kPromptTokens - 1);
    });
}

TEST_F(Tenants, WithoutKeysThereIsOneTenant) {
    MakeApi(false, false);
    Run([&] {
        EXPECT_EQ(Cached("x"), 0);
        EXPECT_EQ(Cached("y"), kPromptTokens - 1);
    });
}

// A request that continues a large conversation has a small body.
TEST_F(Tenants, AConversationThatARequestKeepsCounts) {
    served_.chat =
        chat::Chat::Make("{% for m in messages %}{{ m.content }}{% endfor %}", engine_->tokenizer())
            .value();
    served_.forms = chat::FindForms(*served_.chat);
    MakeApi(true, false);
    const Json unseen{{"type", "web_search_call"}, {"action", std::vector<int>(10'000)}};
    const Json said{{"role", "user"}, {"content", "a"}};
    Run([&] {
        const Json first = Ask("POST", "/v1/responses", "key-a",
                               {{"input", Json::array({said, unseen})}, {"max_output_tokens", 1}});
        ASSERT_TRUE(first.contains("id")) << first;
        const auto next = Asked(
            "POST", "/v1/responses", "key-a",
            {{"previous_response_id", first["id"]}, {"input", "b"}, {"max_output_tokens", 1}});
        next->most_bytes_ = 100'000;
        api_->Handle(next);
        EXPECT_TRUE(test::Until([&] { return next->over_.load(); }));
        EXPECT_EQ(next->status_, 429) << next->text_;
    });
}

TEST_F(Tenants, SlotsOfKeysTakeTurns) {
    std::string order;
    for (const char* key : {"a", "a", "a", "b"}) {
        engine::SlotRequest slot{.file = "x", .restores = true, .key = key};
        slot.done = [&order, key](const auto&) { order += key; };
        engine_->Submit(std::move(slot));
    }
    engine::SlotRequest left{.file = "x", .restores = true, .key = "c"};
    left.gone = [] { return true; };
    left.done = [&order](const auto& done) {
        order += done.error().code == ErrorCode::kCancelled ? "-" : "c";
    };
    engine_->Submit(std::move(left));
    Run([] {});
    EXPECT_EQ(order, "ab-aa");
}

TEST_F(Tenants, ASlotThatWaitsCountsAsARunningRequest) {
    std::ofstream(dir_ / "keys", std::ios::app)
        << KeyLine("erin", "restore", {.concurrent = 1}) << "\n"
        << KeyLine("finn", "save", {.concurrent = 1}) << "\n";
    served_.slot_folder = dir_.path();
    MakeApi(true, false);
    for (const std::string key : {"restore", "save"}) {
        SCOPED_TRACE(key);
        const auto ask = [&] {
            const auto exchange = Asked("POST", "/slots/0", key, {{"filename", "x"}});
            exchange->request_.query = "action=" + key;
            api_->Handle(exchange);
            return exchange;
        };
        const auto first = ask(), second = ask();  // (the engine does not run)
        EXPECT_TRUE(test::Until([&] { return second->over_.load(); }));
        EXPECT_EQ(second->status_, 429);
        EXPECT_FALSE(first->over_);
    }
}

// A key sees only its own errors.
TEST_F(Tenants, AKeySeesItsOwnErrors) {
    MakeApi(true, false);
    for (const char* key : {"alice", "bob", ""}) {
        HttpRecord record;
        record.id = std::string("id-of-") + key;
        record.status = 500;
        record.note.key = key;
        log_->Add(record);
    }
    const auto seen = [&](const std::string& key) {
        std::vector<std::string> ids;
        const Json status = Ask("GET", "/api/status", key, nullptr);
        for (const Json& error : status["errors"]) ids.push_back(error["id"]);
        return ids;
    };
    EXPECT_EQ(seen("key-a"), std::vector<std::string>{"id-of-alice"});
    EXPECT_EQ(seen("key-b"), std::vector<std::string>{"id-of-bob"});
    EXPECT_TRUE(seen("key-c").empty());
    api_.reset();
    MakeApi(false, false);
    EXPECT_EQ(seen("").size(), 3u) << "without keys there is one user";
}

// Views of many ranks or slots take long: no I/O thread makes them, and a full queue refuses none.
TEST_F(Tenants, ViewsAreMadeByAnotherThread) {
    Metrics metrics("weft", {"m", 64, 16, true, "f16"});
    for (const size_t workers : {0u, 1u}) {
        ApiOptions options;
        options.workers = workers;
        options.max_waiting = 0;
        options.metrics = &metrics;
        MakeApi(false, false, options);
        for (const char* path : {"/metrics", "/api/status", "/slots"}) {
            const auto exchange = std::make_shared<KeptExchange>("GET", path);
            api_->Handle(exchange);
            EXPECT_TRUE(workers == 0 ? !exchange->over_ : test::Until([&] {
                return exchange->over_.load();
            })) << path;
            EXPECT_EQ(exchange->status_, workers == 0 ? 0 : 200) << path;
        }
        api_.reset();
    }
}

TEST_F(Tenants, RefusalsReportTheQueueLength) {
    ApiOptions options;
    options.max_waiting = 2;
    options.workers = 0;  // no thread reads the requests
    api_ = std::make_unique<Api>(served_, options);
    std::vector<std::shared_ptr<KeptExchange>> exchanges;
    for (int i = 0; i < 3; ++i) {
        exchanges.push_back(std::make_shared<KeptExchange>("POST", "/v1/completions"));
        api_->Handle(exchanges.back());
    }
    EXPECT_FALSE(exchanges[1]->over_);
    EXPECT_EQ(exchanges[2]->status_, 429);
    EXPECT_NE(exchanges[2]->text_.find("2 requests are waiting; the limit is 2"), std::string::npos)
        << exchanges[2]->text_;
}

// A name that is given to another key does not keep the old key's cache.
TEST_F(Tenants, AReusedNameGetsItsOwnCache) {
    const ApiKey before = KeyRing::Parse(KeyLine("alice", "old", {}), "keys")->keys()[0];
    const ApiKey after = KeyRing::Parse(KeyLine("alice", "new", {}), "keys")->keys()[0];
    const ApiKey renamed = KeyRing::Parse(KeyLine("bob", "old", {}), "keys")->keys()[0];
    EXPECT_NE(TenantOf(before), TenantOf(after));
    EXPECT_EQ(TenantOf(before), TenantOf(renamed));
}

// No thread reads the requests.
TEST_F(Tenants, OneKeyLeavesRowsForOthers) {
    for (const bool with_keys : {true, false}) {
        ApiOptions options;
        options.max_waiting = 6;
        options.workers = 0;
        MakeApi(with_keys, false, options);
        std::vector<std::shared_ptr<KeptExchange>> asked;
        for (const char* key : {"key-a", "key-a", "key-a", "key-a", "key-b", "key-b", "key-b"}) {
            asked.push_back(std::make_shared<KeptExchange>("POST", "/tokenize"));
            asked.back()->request_.headers = {{"Authorization", std::string("Bearer ") + key}};
            api_->Handle(asked.back());
        }
        const size_t refused = with_keys ? 3 : 6;
        for (size_t i = 0; i < asked.size(); ++i) {
            EXPECT_EQ(asked[i]->status_, i == refused ? 429 : 0) << asked[i]->text_;
        }
        const Json error = Json::parse(asked[refused]->text_)["error"];
        EXPECT_EQ(error["code"], with_keys ? "too_many_waiting" : "server_overloaded");
        if (with_keys) {
            EXPECT_EQ(error["message"],
                      "3 requests of the key 'alice' are waiting; the limit is 3 (half of "
                      "--max-waiting). Try again later.");
        }
    }
}

// Cancelled requests free their places.
TEST_F(Tenants, CancelledRequestsDoNotWait) {
    ApiOptions options;
    options.max_waiting = 6;
    for (const size_t workers : {0u, 1u}) {  // waiting to be parsed; waiting in the engine
        options.workers = workers;
        MakeApi(true, false, options);
        const auto post = [&](const std::string& key) {
            auto exchange = std::make_shared<KeptExchange>("POST", "/v1/completions");
            exchange->request_.headers = {{"Authorization", "Bearer " + key}};
            exchange->request_.body = R"({"prompt": [97, 98], "max_tokens": 1, "n": 2})";
            api_->Handle(exchange);
            return exchange;
        };
        for (int i = 0; i < 200; ++i) {
            const auto left = post("key-a");
            ASSERT_EQ(left->status_, 0) << i << left->text_;
            EXPECT_TRUE(
                test::Until([&] { return !(workers > 0 && engine_->waiting("alice").own < 2); }));
            left->Leave();
            ASSERT_EQ(engine_->waiting("alice").own, 0);
        }
        EXPECT_EQ(post("key-b")->status_, 0);
        EXPECT_EQ(post("key-a")->status_, 0);
        api_.reset();
    }
}

// Keys that use all places leave one to each other key.
TEST_F(Tenants, AKeyWithoutRequestsAlwaysGetsAPlace) {
    ApiOptions options;
    options.max_waiting = 6;
    options.workers = 0;
    MakeApi(true, false, options);
    std::vector<std::shared_ptr<KeptExchange>> asked;
    const auto post = [&](const std::string& key) {
        asked.push_back(std::make_shared<KeptExchange>("POST", "/tokenize"));
        asked.back()->request_.headers = {{"Authorization", "Bearer " + key}};
        api_->Handle(asked.back());
        return asked.back()->status_.load();
    };
    for (const char* key : {"key-a", "key-a", "key-a", "key-b", "key-b", "key-b"}) {
        EXPECT_EQ(post(key), 0);
    }
    EXPECT_EQ(post("key-a"), 429);
    EXPECT_EQ(post("key-c"), 0);
    EXPECT_EQ(post("key-d"), 0);
    EXPECT_EQ(post("key-c"), 429);
}

// An answer counts while it is generated, and ends when the limit is reached.
TEST_F(Tenants, LongAnswersCountTowardTheLimit) {
    MakeApi(true, false);
    const auto ask = [&](const char* path, const Json& body, size_t most_bytes) {
        auto exchange = std::make_shared<KeptExchange>("POST", path);
        exchange->request_.headers = {{"Authorization", "Bearer key-a"}};
        exchange->request_.body = Dump(body);
        exchange->most_bytes_ = most_bytes;
        api_->Handle(exchange);
        EXPECT_TRUE(test::Until([&] { return exchange->over_.load(); }));
        return exchange;
    };
    const Json logprobs{
        {"prompt", {97}}, {"max_tokens", 400}, {"n", 4}, {"logprobs", 5}, {"ignore_eos", true}};
    Run([&] {
        const auto refused = ask("/v1/completions", logprobs, 200'000);
        EXPECT_EQ(refused->status_, 503) << refused->text_;
        EXPECT_EQ(Json::parse(refused->text_)["error"]["code"], "too_many_large_requests");
        EXPECT_TRUE(test::Until([&] { return engine_->counters().cancelled >= 4; }));
        EXPECT_LT(engine_->counters().generated_tokens, 4 * 200) << "it does not go on";
        const auto whole = ask("/v1/completions", logprobs, 10'000'000);
        EXPECT_EQ(whole->status_, 200);
        EXPECT_GE(whole->held_bytes_, whole->text_.size());
        const Json texts{{"input", std::vector<std::vector<int>>(20, {97, 98})}};
        EXPECT_EQ(ask("/v1/embeddings", texts, 1'000)->status_, 503);
        const auto vectors = ask("/v1/embeddings", texts, 10'000'000);
        EXPECT_EQ(vectors->status_, 200) << vectors->text_;
        EXPECT_GE(vectors->held_bytes_, vectors->text_.size());
        EXPECT_EQ(ask("/detokenize", {{"tokens", std::vector<int>(500, 97)}}, 100)->status_, 503);
    });
}

// A request cancelled before it ran is not charged.
TEST_F(Tenants, RequestsThatDidNotRunAreNotCharged) {
    std::ofstream(dir_ / "keys") << KeyLine("alice", "key-a", {.requests_per_minute = 2}) << "\n";
    MakeApi(true, false);
    const Json body{{"prompt", {97, 98}}, {"max_tokens", 1}};
    const auto cancel = [&] {
        auto exchange = std::make_shared<KeptExchange>("POST", "/v1/completions");
        exchange->request_.headers = {{"Authorization", "Bearer key-a"}};
        exchange->request_.body = Dump(body);
        api_->Handle(exchange);
        EXPECT_TRUE(test::Until([&] { return engine_->waiting("alice").own != 0; }));
        exchange->Leave();
        return exchange;
    };
    for (int i = 0; i < 2; ++i) EXPECT_EQ(cancel()->status_, 0);
    Run([&] {
        EXPECT_TRUE(test::Until([&] { return engine_->counters().cancelled >= 2; }));
        for (const bool answered : {true, true, false}) {
            const Json answer = Ask("POST", "/v1/completions", "key-a", body);
            EXPECT_EQ(answer.contains("choices"), answered) << answer;
        }
    });
}

// A client that has its answer may ask again at once: the key's slot is free by then.
TEST_F(Tenants, APlaceIsFreeWhenTheClientHasItsAnswer) {
    std::ofstream(dir_ / "keys") << KeyLine("alice", "key-a", {.concurrent = 1}) << "\n";
    MakeApi(true, false);
    struct Row {
        const char* path;
        Json body;
        int status;
        size_t most_bytes = SIZE_MAX;
    };
    const Json said{{"prompt", {97}}, {"max_tokens", 3}, {"ignore_eos", true}};
    const auto with = [](Json body, const Json& more) { return body.update(more), body; };
    const Row rows[] = {
        {"/v1/completions", said, 200},
        {"/v1/completions", with(said, {{"stream", true}}), 200},
        {"/v1/completions", with(said, {{"n", 3}}), 200},
        {"/v1/completions", with(said, {{"max_tokens", 300}, {"logprobs", 5}}), 200},
        {"/v1/completions", with(said, {{"max_tokens", 300}, {"logprobs", 5}}), 503, 1000},
        {"/v1/completions", with(said, {{"n", 3}, {"max_tokens", 400}, {"logprobs", 5}}), 503,
         1000},
        {"/v1/completions", with(said, {{"prompt", std::vector<int>(600, 97)}}), 400},
        {"/v1/completions", with(said, {{"n", "many"}}), 400},
        {"/completion", said, 200},
        {"/v1/embeddings", {{"input", std::vector<std::vector<int>>(70, {97, 98})}}, 200},
        {"/v1/embeddings", {{"input", {97, 98}}}, 503, 10},
        {"/v1/embeddings", {{"input", ""}}, 400},
        {"/tokenize", {{"content", "a"}}, 200},
        {"/tokenize", {{"content", 1}}, 400},
        {"/detokenize", {{"tokens", std::vector<int>(500, 97)}}, 503, 100},
        {"/slots/0?action=erase", Json::object(), 501}};
    const auto make = [&](const Row& row) {
        const std::string path = row.path;
        auto exchange = std::make_shared<KeptExchange>("POST", path.substr(0, path.find('?')));
        exchange->request_.headers = {{"Authorization", "Bearer key-a"}};
        exchange->request_.body = Dump(row.body);
        exchange->most_bytes_ = row.most_bytes;
        return exchange;
    };
    Run([&] {
        for (const Row& row : rows) {
            SCOPED_TRACE(std::string(row.path) + row.body.dump());
            const auto first = make(row), next = make(rows[12]);
            first->on_over_ = [&] { api_->Handle(next); };
            api_->Handle(first);
            ASSERT_TRUE(test::Until([&] { return next->over_.load(); }));
            EXPECT_EQ(first->status_, row.status) << first->text_;
            EXPECT_EQ(next->status_, 200) << next->text_;
        }
    });
}

}  // namespace
}  // namespace weft::serve
