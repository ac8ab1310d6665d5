// Many requests at once on whole models: each gets the same tokens as alone, whatever else is in
// its steps, with few pages and with a warm prefix cache. A cancelled request affects no other.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>

#include "engine/engine.h"
#include "support/nightly.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::engine {
namespace {

using support::OddHyper;
using support::TinyFile;

TinyFile FileOf(const std::string& name) {
    TinyFile file{.hyper = OddHyper(name == "q8_0" ? "llama" : name)};
    file.hyper.layers = 2;
    if (name == "q8_0") file.dtype = DType::kQ8_0;
    if (name == "gemma3") {
        file.hyper.layers = 6;
        file.hyper.tied = true;
        file.numbers = {{"attention.sliding_window", 6}};
    }
    if (name == "qwen3next" || name == "qwen35") {
        file.hyper.hidden = 144;
        file.hyper.ffn = 96;
        support::AddState(file.hyper, name == "qwen35");
    }
    if (name == "lfm2") {
        file.hyper.hidden = 144;
        file.hyper.ffn = 96;
        support::AddShortConv(file.hyper);
    }
    if (name == "deepseek2" || name == "kimi-linear") {
        model::Hyper& h = file.hyper;
        h.hidden = 144;
        h.ffn = 96;
        h.moe.experts = 10;
        h.moe.used = 3;
        h.moe.ffn = 96;
        h.latent = {.rank = 64, .q_rank = 0, .nope = 32, .rope = 16, .value = 24};
        h.head_dim = 48;
        h.rotary_dim = 16;
        h.moe.shared_ffn = 192;
        file.form.dense_layers = 1;
    }
    if (name == "kimi-linear") support::AddKimiDelta(file.hyper);
    return file;
}

// Records the answer.
class BatchEar final : public Listener {
  public:
    void OnToken(const GeneratedToken& token, std::string_view text) override {
        const std::lock_guard lock(mutex_);
        tokens_.push_back(token.chance.id);
        said_.push_back(token);
        text_ += text;
    }
    void OnPrompt(const GeneratedToken& token) override {
        const std::lock_guard lock(mutex_);
        said_.push_back(token);
    }
    void OnEnd(std::string_view rest, const Result<Ending>& ending) override {
        const std::lock_guard lock(mutex_);
        EXPECT_FALSE(over_) << "ended twice";
        over_ = true;
        text_ += rest;
        if (ending.ok()) {
            ending_ = *ending;
        } else {
            error_ = ending.error();
        }
    }
    bool over() const { return Locked(over_); }
    std::vector<int32_t> tokens() const { return Locked(tokens_); }
    std::vector<GeneratedToken> said() const { return Locked(said_); }
    std::string text() const { return Locked(text_); }
    Ending ending() const { return Locked(ending_); }
    std::optional<Error> error() const { return Locked(error_); }

  private:
    template <typename T>
    T Locked(const T& value) const {
        const std::lock_guard lock(mutex_);
        return value;
    }
    mutable std::mutex mutex_;
    std::vector<int32_t> tokens_;
    std::vector<GeneratedToken> said_;
    std::string text_;
    Ending ending_;
    std::optional<Error> error_;
    bool over_ = false;
};

Job JobOf(const std::string& model, int64_t kv_tokens) {
    Job job;
    job.model = model;
    job.threads = 1;
    job.ctx = 320;
    job.kv_tokens = kv_tokens;
    job.chunk = 64;
    job.self_test = false;
    return job;
}

// Prompts with common beginnings, greedy and sampled, with and without penalties.
Request RequestOf(int number) {
    Request request;
    for (int i = 0; i < 70 + 13 * (number % 4); ++i) request.prompt.push_back(97 + (i * i) % 7);
    request.prompt.push_back(100 + number);
    request.max_tokens = 12 + 7 * (number % 5);
    request.ignore_eos = true;
    request.sampler.temperature = number % 3 == 0 ? 0.0f : 0.9f;
    request.sampler.seed = static_cast<uint64_t>(number);
    request.sampler.frequency_penalty = number % 4 == 1 ? 0.5f : 0.0f;
    return request;
}

class Batch : public testing::TestWithParam<const char*> {
  protected:
    static bool HasState() { return FileOf(GetParam()).hyper.has_state(); }
    std::string Write(const std::string& name) {
        support::WriteTinyGguf(dir_ / name, FileOf(name));
        return dir_ / name;
    }
    // A different model with the same vocabulary.
    std::string Other() {
        TinyFile file = FileOf("llama");
        model::Hyper& h = file.hyper;
        h.layers = 1;
        h.hidden = 64;
        h.ffn = 96;
        h.heads = 2;
        h.kv_heads = 1;
        support::WriteTinyGguf(dir_ / "other", file);
        return dir_ / "other";
    }
    static std::unique_ptr<Engine> Open(const std::string& model, int64_t kv_tokens,
                                        int64_t max_seqs, bool cache,
                                        const DraftOptions& draft = {}) {
        const EngineOptions options{.max_seqs = max_seqs, .prefix_cache = cache, .draft = draft};
        auto engine = Engine::Start({}, JobOf(model, kv_tokens), options);
        EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
        return engine.ok() ? std::move(*engine) : nullptr;
    }
    // Runs all requests at once; returns their answers.
    static std::vector<std::shared_ptr<BatchEar>> GenerateAll(Engine& engine, int count) {
        std::vector<std::shared_ptr<BatchEar>> ears;
        for (int i = 0; i < count; ++i) {
            ears.push_back(std::make_shared<BatchEar>());
            EXPECT_TRUE(engine.Submit(RequestOf(i), ears.back()).ok());
        }
        engine.Drain();
        const Status ran = engine.Run();
        EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
        return ears;
    }
    test::TempDir dir_;
};

TEST_P(Batch, BatchGivesTheTokensOfSingleRequests) {
    constexpr int kRequests = 12;
    const std::string model = Write(GetParam());
    std::vector<std::vector<int32_t>> alone;
    for (int i = 0; i < kRequests; ++i) {
        auto engine = Engine::Start({}, JobOf(model, 0), OneAtATime({}));
        ASSERT_TRUE(engine.ok());
        alone.push_back((*engine)->Generate(RequestOf(i))->tokens);
    }
    // Enough pages, and so few that sequences preempt each other; with and without the prefix
    // cache; with drafts in every step, as many as pay off, and none; from the model itself and
    // from another one.
    const std::string other = Other();
    const DraftOptions kDrafts[] = {{},
                                    {.lookup = true, .tokens = 7, .always = true},
                                    {.lookup = true},
                                    {.model = model, .tokens = 3, .always = true},
                                    {.model = other, .tokens = 4, .always = true},
                                    {.model = other}};
    size_t turn = 0;
    int64_t preempted = 0;
    for (const int64_t kv_tokens : {4096, 384}) {
        ++turn;
        for (const bool cache : {true, false}) {
            ++turn;
            for (const DraftOptions& draft : kDrafts) {
                if (!weft::test::InTurn(turn++, 4)) continue;
                if (HasState() && draft.model == model) continue;  // it can't draft
                SCOPED_TRACE(testing::Message() << kv_tokens << " tokens of KV, cache " << cache
                                                << ", drafts " << draft.tokens << draft.model);
                auto engine = Open(model, kv_tokens, 6, cache, draft);
                ASSERT_NE(engine, nullptr);
                const auto ears = GenerateAll(*engine, kRequests);
                for (int i = 0; i < kRequests; ++i) {
                    EXPECT_EQ(ears[static_cast<size_t>(i)]->tokens(), alone[static_cast<size_t>(i)])
                        << "request " << i;
                }
                const EngineStats stats = engine->stats();
                EXPECT_EQ(stats.ended, kRequests);
                const ScheduleStats& s = stats.schedule;
                EXPECT_EQ(s.free_pages + s.idle_pages, s.pages);
                EXPECT_EQ(s.cache_hit > 0, cache);
                if (kv_tokens == 4096) {
                    EXPECT_EQ(s.preemptions, 0);
                }
                preempted += s.preemptions;
                if (HasState() && draft.lookup) continue;  // its answers do not repeat
                if (draft.always) {
                    EXPECT_GT(stats.drafts.accepted, 0);
                }
                // The model's own drafts are accepted, also sampled ones, which use the same random
                // numbers.
                if (draft.model == model) {
                    EXPECT_GT(stats.drafts.accepted, stats.drafts.drafted * 4 / 5);
                } else if (draft.always) {
                    EXPECT_GT(stats.drafts.drafted, stats.drafts.accepted);
                }
                if (!draft.on()) {
                    EXPECT_EQ(stats.drafts.drafted, 0);
                }
            }
        }
    }
    EXPECT_GT(preempted, 0);
}

// A prompt that differs from another from the middle of a page on: the common tokens come from the
// cache, and the answer is the same.
TEST_P(Batch, APageIsSharedAsFarAsItGoes) {
    const std::string model = Write(GetParam());
    const auto ask = [&](Engine& engine, int number) {
        Request request = RequestOf(0);
        request.prompt.resize(150, 99);
        if (number > 0) request.prompt[100] = 98;  // in the second page
        for (int i = 0; i < 7 * number; ++i) request.prompt.push_back(101 + i);
        auto ear = std::make_shared<BatchEar>();
        EXPECT_TRUE(engine.Submit(request, ear).ok());
        return ear;
    };
    std::vector<std::shared_ptr<BatchEar>> ears[2];
    for (const bool cache : {false, true}) {
        auto engine = Open(model, 4096, 1, cache);  // one sequence at a time
        ASSERT_NE(engine, nullptr);
        for (int i = 0; i < 4; ++i) ears[cache].push_back(ask(*engine, i));
        engine->Drain();
        ASSERT_TRUE(engine->Run().ok());
    }
    for (size_t i = 0; i < 4; ++i) {
        EXPECT_EQ(ears[1][i]->tokens(), ears[0][i]->tokens()) << i;
        EXPECT_EQ(ears[0][i]->ending().cached_tokens, 0);
    }
    if (HasState()) {  // only at page boundaries, where the state was kept
        EXPECT_EQ(ears[1][1]->ending().cached_tokens, 0);
        EXPECT_EQ(ears[1][2]->ending().cached_tokens, 128);
        EXPECT_EQ(ears[1][3]->ending().cached_tokens, 128);
        return;
    }
    EXPECT_EQ(ears[1][1]->ending().cached_tokens, 100);
    EXPECT_EQ(ears[1][2]->ending().cached_tokens, 157) << "all of the prompt before";
    EXPECT_EQ(ears[1][3]->ending().cached_tokens, 164);
}

INSTANTIATE_TEST_SUITE_P(Models, Batch,
                         testing::Values("llama", "q8_0", "gemma3", "deepseek2", "qwen3next",
                                         "qwen35", "lfm2", "kimi-linear"));

// Prompts that branch off others: the first one keeps no state at that place, the second one does,
// and the third one uses it.
using RecurrentBatch = Batch;
TEST_F(RecurrentBatch, AStateIsKeptWherePromptsPart) {
    support::WriteTinyGguf(dir_ / "model", FileOf("qwen3next"));
    auto engine = Open(dir_ / "model", 4096, 1, true);
    ASSERT_NE(engine, nullptr);
    std::vector<std::shared_ptr<BatchEar>> ears;
    for (int i = 0; i < 3; ++i) {
        Request request = RequestOf(0);
        request.prompt.resize(70, 99);
        request.prompt.resize(200, 100 + i);
        ears.push_back(std::make_shared<BatchEar>());
        ASSERT_TRUE(engine->Submit(request, ears.back()).ok());
    }
    engine->Drain();
    ASSERT_TRUE(engine->Run().ok());
    EXPECT_EQ(ears[0]->ending().cached_tokens, 0);
    EXPECT_EQ(ears[1]->ending().cached_tokens, 0);
    EXPECT_EQ(ears[2]->ending().cached_tokens, 64);
}

using EngineTest = Batch;

TEST_F(EngineTest, CancelledRequestLeavesTheBatchAtOnce) {
    support::WriteTinyGguf(dir_ / "m", FileOf("llama"));
    auto engine = Open(dir_ / "m", 4096, 4, true);
    ASSERT_NE(engine, nullptr);
    auto leaver = std::make_shared<BatchEar>(), stayer = std::make_shared<BatchEar>();
    Request endless = RequestOf(0);
    endless.max_tokens = -1;
    const auto id = engine->Submit(endless, leaver);
    ASSERT_TRUE(id.ok());
    ASSERT_TRUE(engine->Submit(RequestOf(1), stayer).ok());
    std::thread other([&] {
        EXPECT_TRUE(test::Until([&] { return leaver->tokens().size() >= 5; }));
        engine->Cancel(*id);
        engine->Cancel(*id);
        engine->Cancel(12345);
        engine->Drain();
    });
    EXPECT_TRUE(engine->Run().ok());
    other.join();
    ASSERT_TRUE(leaver->error().has_value());
    EXPECT_EQ(leaver->error()->code, ErrorCode::kCancelled);
    EXPECT_EQ(stayer->ending().finish, "length");
    const ScheduleStats stats = engine->stats().schedule;
    EXPECT_EQ(stats.free_pages + stats.idle_pages, stats.pages);
    EXPECT_FALSE(engine->Submit(RequestOf(1), stayer).ok()) << "it is drained";
}

// A step samples the tokens of its requests, and scores prompt tokens, on several threads.
TEST_F(EngineTest, TokensDrawnTogetherAreThoseDrawnAlone) {
    constexpr int kRequests = 9;
    support::WriteTinyGguf(dir_ / "m", FileOf("llama"));
    std::vector<std::shared_ptr<BatchEar>> ears[2];
    for (const bool together : {false, true}) {
        Job job = JobOf(dir_ / "m", 4096);
        job.threads = together ? 3 : 1;
        auto engine = Engine::Start({}, job, {.max_seqs = together ? kRequests : 1});
        ASSERT_TRUE(engine.ok());
        for (int i = 0; i < kRequests; ++i) {
            Request request = RequestOf(i);
            request.logprobs = i % 4 - 1;
            request.prompt_logprobs = i % 3 == 0 ? 2 : -1;
            request.cached = false;
            ears[together].push_back(std::make_shared<BatchEar>());
            ASSERT_TRUE((*engine)->Submit(request, ears[together].back()).ok());
        }
        (*engine)->Drain();
        ASSERT_TRUE((*engine)->Run().ok());
        EXPECT_EQ((*engine)->stats().drawn_ahead > 0, together);
    }
    for (size_t i = 0; i < kRequests; ++i) {
        const auto alone = ears[0][i]->said(), together = ears[1][i]->said();
        ASSERT_EQ(together.size(), alone.size()) << "request " << i;
        for (size_t t = 0; t < alone.size(); ++t) {
            EXPECT_EQ(together[t].chance.id, alone[t].chance.id);
            EXPECT_EQ(together[t].chance.logprob, alone[t].chance.logprob);
            EXPECT_EQ(together[t].rank, alone[t].rank);
            ASSERT_EQ(together[t].best.size(), alone[t].best.size());
            for (size_t b = 0; b < alone[t].best.size(); ++b) {
                EXPECT_EQ(together[t].best[b].id, alone[t].best[b].id);
                EXPECT_EQ(together[t].best[b].logprob, alone[t].best[b].logprob);
            }
        }
    }
}

TEST_F(EngineTest, WhatCanNeverRunIsRefusedWithTheNumbers) {
    support::WriteTinyGguf(dir_ / "m", FileOf("llama"));
    auto engine = Open(dir_ / "m", 0, 4, true);
    ASSERT_NE(engine, nullptr);
    Request request = RequestOf(0);
    request.prompt.resize(320, 97);
    auto refused = engine->Submit(request, std::make_shared<BatchEar>());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("320 tokens"), std::string::npos);
    request.prompt = {-1};
    EXPECT_FALSE(engine->Submit(request, std::make_shared<BatchEar>()).ok());
    request.prompt.clear();
    EXPECT_FALSE(engine->Submit(request, std::make_shared<BatchEar>()).ok());
    request = RequestOf(0);
    request.sampler.temperature = NAN;
    EXPECT_FALSE(engine->Submit(request, std::make_shared<BatchEar>()).ok());
    request = RequestOf(0);
    request.prompt.assign(321, 97);
    request.max_tokens = 0;
    refused = engine->Submit(request, std::make_shared<BatchEar>());
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("at most 320 fit"), std::string::npos);
    // A prompt that generates nothing may fill the context.
    auto ear = std::make_shared<BatchEar>();
    request.prompt.resize(320);
    request.prompt_logprobs = 0;
    ASSERT_TRUE(engine->Submit(request, ear).ok());
    engine->Drain();
    EXPECT_TRUE(engine->Run().ok());
    EXPECT_EQ(ear->ending().finish, "length");
    EXPECT_EQ(ear->said().size(), 319u);
}

TEST_F(EngineTest, TheAnswerEndsWithTheContext) {
    support::WriteTinyGguf(dir_ / "m", FileOf("llama"));
    auto engine = Open(dir_ / "m", 0, 4, true);
    ASSERT_NE(engine, nullptr);
    const auto ear = std::make_shared<BatchEar>();
    Request request = RequestOf(0);
    request.max_tokens = 1'000'000'000'000;
    ASSERT_TRUE(engine->Submit(request, ear).ok());
    engine->Drain();
    EXPECT_TRUE(engine->Run().ok());
    EXPECT_EQ(ear->ending().finish, "context");
    EXPECT_EQ(ear->tokens().size() + request.prompt.size(), 320u);
}

}  // namespace
}  // namespace weft::engine
