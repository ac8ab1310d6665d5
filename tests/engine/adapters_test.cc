// Requests with different LoRA adapters in one batch: each gets the same tokens as alone, and a
// request without an adapter the same as without any adapters. The prefix cache keeps adapters
// apart, prompt lookup changes no answer, and the step message carries the adapters.
#include <gtest/gtest.h>

#include <mutex>

#include "engine/engine.h"
#include "support/nightly.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

using support::TinyAdapter;

class Ear final : public Listener {
  public:
    void OnToken(const GeneratedToken& token, std::string_view) override {
        tokens.push_back(token.chance.id);
        chances.push_back(token.chance.logprob);
    }
    void OnEmbedding(std::vector<float> said) override { vector = std::move(said); }
    void OnEnd(std::string_view, const Result<Ending>& ended) override {
        EXPECT_TRUE(ended.ok()) << (ended.ok() ? "" : ended.error().message);
        if (ended.ok()) ending = *ended;
    }
    std::vector<int32_t> tokens;
    std::vector<float> chances, vector;
    Ending ending;
};

class Adapters : public testing::TestWithParam<DType> {
  protected:
    void SetUp() override {
        support::TinyFile file{.hyper = support::OddHyper(), .dtype = GetParam()};
        file.hyper.layers = 2;
        support::WriteTinyGguf(model_, file);
        // Other ranks, other matrices, other scales.
        const TinyAdapter adapters[] = {
            {.rank = 8, .seed = "one"},
            {.rank = 3, .alpha = 5, .targets = "mlp", .seed = "two"},
            {.rank = 20, .targets = "q_proj,o_proj", .seed = "three", .dora = true, .whole = true}};
        for (const TinyAdapter& adapter : adapters) {
            support::WriteTinyAdapter(dir_ / adapter.seed, model_, adapter);
            all_.push_back({adapter.seed, dir_ / adapter.seed});
        }
    }

    std::unique_ptr<Engine> Open(const std::vector<model_files::NamedAdapter>& adapters,
                                 int64_t kv_tokens = 4096, int64_t max_seqs = 6, bool cache = true,
                                 const DraftOptions& draft = {}) {
        Job job;
        job.model = model_;
        job.threads = 1;
        job.ctx = 320;
        job.kv_tokens = kv_tokens;
        job.chunk = 64;
        job.self_test = false;
        job.outputs = model::Outputs::kBoth;
        job.adapters = adapters;
        const EngineOptions options{.max_seqs = max_seqs, .prefix_cache = cache, .draft = draft};
        auto engine = Engine::Start({}, job, options);
        EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
        return engine.ok() ? std::move(*engine) : nullptr;
    }
    // The prompts have a common beginning.
    static Request RequestOf(int number, int32_t adapter) {
        Request request;
        for (int i = 0; i < 130; ++i) request.prompt.push_back(97 + (i * i) % 7);
        request.prompt.push_back(100 + number / 4);
        request.max_tokens = 12 + 5 * (number % 3);
        request.ignore_eos = true;
        request.logprobs = 0;
        request.adapter = adapter;
        return request;
    }
    static std::vector<std::shared_ptr<Ear>> Say(Engine& engine,
                                                 const std::vector<Request>& requests) {
        std::vector<std::shared_ptr<Ear>> ears;
        for (const Request& request : requests) {
            ears.push_back(std::make_shared<Ear>());
            const auto id = engine.Submit(request, ears.back());
            EXPECT_TRUE(id.ok()) << (id.ok() ? "" : id.error().message);
        }
        engine.Drain();
        const Status ran = engine.Run();
        EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
        return ears;
    }

    test::TempDir dir_;
    const std::string model_ = dir_ / "tiny.gguf";
    std::vector<model_files::NamedAdapter> all_;
};

TEST_P(Adapters, BatchGivesTheTokensOfSingleRequests) {
    constexpr int kRequests = 12;
    std::vector<Request> requests;
    std::vector<std::shared_ptr<Ear>> alone;
    for (int i = 0; i < kRequests; ++i) {
        const int32_t adapter = i % 4;
        requests.push_back(RequestOf(i, adapter));
        // The same request in an engine with this adapter only.
        Request request = requests.back();
        std::vector<model_files::NamedAdapter> only;
        if (adapter > 0) only.push_back(all_[static_cast<size_t>(adapter) - 1]);
        request.adapter = adapter > 0 ? 1 : 0;
        auto engine = Open(only, 320, 1, false);
        ASSERT_NE(engine, nullptr);
        alone.push_back(Say(*engine, {request})[0]);
    }
    for (size_t i = 1; i < 4; ++i) {
        EXPECT_NE(alone[i]->chances, alone[0]->chances) << "adapter " << i << " adds nothing";
    }
    // Enough pages, and so few that sequences preempt each other.
    for (const int64_t kv_tokens : {4096, 384}) {
        for (const bool cache : {true, false}) {
            auto engine = Open(all_, kv_tokens, 6, cache);
            ASSERT_NE(engine, nullptr);
            const auto ears = Say(*engine, requests);
            for (size_t i = 0; i < ears.size(); ++i) {
                EXPECT_EQ(ears[i]->tokens, alone[i]->tokens) << i << ", cache " << cache;
                EXPECT_EQ(ears[i]->chances, alone[i]->chances) << i << ", cache " << cache;
            }
            const bool hit = engine->stats().schedule.cache_hit > 0;
            EXPECT_TRUE(hit == cache || kv_tokens == 384) << "nothing stays where room is short";
        }
    }
}

// The same prompt repeatedly: KV pages of one adapter are not used for another.
TEST_P(Adapters, PrefixCacheSeparatesAdapters) {
    std::vector<Request> requests;
    for (const int32_t adapter : {0, 1, 2, 1, 0, 2}) requests.push_back(RequestOf(0, adapter));
    auto engine = Open(all_, 4096, 1);  // one sequence at a time
    ASSERT_NE(engine, nullptr);
    const auto ears = Say(*engine, requests);
    for (size_t i : {0, 1, 2}) EXPECT_EQ(ears[i]->ending.cached_tokens, 0) << i;
    for (const auto& [again, first] : {std::pair(3, 1), {4, 0}, {5, 2}}) {
        const Ear &a = *ears[static_cast<size_t>(again)], &b = *ears[static_cast<size_t>(first)];
        EXPECT_EQ(a.ending.cached_tokens, 130) << again;
        EXPECT_EQ(a.chances, b.chances) << again;
    }
}

// Rows of drafted tokens use the sequence's adapter, like the row before them.
TEST_P(Adapters, ADraftChangesNoAnswer) {
    std::vector<Request> requests;
    for (int i = 0; i < 12; ++i) {
        requests.push_back(RequestOf(i, i % 4));
        requests.back().max_tokens = 80;
        requests.back().sampler.temperature = i < 8 ? 0.0f : 1.5f;
        requests.back().sampler.seed = static_cast<uint64_t>(i);
    }
    auto plain = Open(all_);
    ASSERT_NE(plain, nullptr);
    const auto expected = Say(*plain, requests);
    // A draft model has no adapters; for requests without one it equals the model.
    const DraftOptions kDrafts[] = {{.lookup = true, .tokens = 7, .always = true},
                                    {.model = model_, .tokens = 4, .always = true}};
    size_t turn = 0;
    for (const DraftOptions& draft : kDrafts) {
        for (const int64_t kv_tokens : weft::test::Some(std::vector{4096, 512}, 2, turn++)) {
            auto guessing = Open(all_, kv_tokens, 6, true, draft);
            ASSERT_NE(guessing, nullptr);
            const auto got = Say(*guessing, requests);
            const DraftCounts drafts = guessing->stats().drafts;
            EXPECT_GT(drafts.accepted, 60);
            EXPECT_GT(drafts.drafted, drafts.accepted);
            for (size_t i = 0; i < got.size(); ++i) {
                EXPECT_EQ(got[i]->tokens, expected[i]->tokens) << i << ", " << kv_tokens;
                EXPECT_EQ(got[i]->chances, expected[i]->chances) << i << ", " << kv_tokens;
            }
        }
    }
}

TEST_P(Adapters, EmbeddingsUseThemToo) {
    std::vector<Request> requests;
    for (const int32_t adapter : {0, 1, 0, 1}) {
        requests.push_back(RequestOf(0, adapter));
        requests.back().pooling = {Pooling::kLast};
    }
    auto engine = Open(all_);
    ASSERT_NE(engine, nullptr);
    const auto ears = Say(*engine, requests);
    EXPECT_EQ(ears[0]->vector, ears[2]->vector);
    EXPECT_EQ(ears[1]->vector, ears[3]->vector);
    EXPECT_NE(ears[0]->vector, ears[1]->vector);
}

TEST_P(Adapters, OneThatIsNotThereIsRefused) {
    auto engine = Open({all_[0]});
    ASSERT_NE(engine, nullptr);
    for (const int32_t adapter : {-1, 2}) {
        EXPECT_FALSE(engine->Submit(RequestOf(0, adapter), std::make_shared<Ear>()).ok());
    }
    engine->Drain();
    EXPECT_TRUE(engine->Run().ok());
}

INSTANTIATE_TEST_SUITE_P(Types, Adapters, testing::Values(DType::kF32, DType::kQ8_0),
                         [](const auto& type) { return std::string(Info(type.param).name); });

TEST(AdaptersOfAJob, Travel) {
    Job job;
    job.adapters = {{"a", "x/y"}, {"b", "z"}};
    const auto back = JobFromJson(JobToJson(job));
    ASSERT_TRUE(back.ok());
    EXPECT_EQ(back->adapters, job.adapters);
    StepData step, got;
    step.Append(std::vector<int32_t>{5, 6}, 3, {.pages = {1}, .adapter = 2});
    step.Append(std::vector<int32_t>{7}, 0, {.pages = {0}});
    std::vector<int32_t> words;
    EncodeStep(step, words);
    ASSERT_TRUE(DecodeStep(words, got).ok());
    EXPECT_EQ(got.sequences[0].adapter, 2);
    EXPECT_EQ(got.sequences[1].adapter, 0);
    step.sequences[0].adapter = -1;
    EncodeStep(step, words);
    EXPECT_FALSE(DecodeStep(words, got).ok());
}

TEST(AdaptersOfAJob, AreNamedOnce) {
    EXPECT_EQ(model_files::ParseAdapter("a=b=c")->folder, "b=c");
    for (const char* word : {"", "a", "=a", "a="}) {
        const auto parsed = model_files::ParseAdapter(word);
        ASSERT_FALSE(parsed.ok()) << word;
        EXPECT_EQ(parsed.error().code, ErrorCode::kUsage);
    }
}

}  // namespace
}  // namespace weft::engine
