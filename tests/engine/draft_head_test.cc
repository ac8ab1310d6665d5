// Answers with drafts of the model's own MTP head equal those without drafts: alone and in batches,
// with the prefix cache and preemption, and after recurrent state.
#include <gtest/gtest.h>

#include "engine/engine.h"
#include "engine/rank/cache_size.h"
#include "support/draft_head_file.h"
#include "support/nightly.h"
#include "support/temp_dir.h"

namespace weft::engine {
namespace {

using support::HeadFile;
using support::TinyFile;

constexpr const char* kHead = DraftOptions::kDraftHead;
constexpr const char* kModels[] = {"glm4moe",   "deepseek2",     "qwen35",
                                   "qwen3next", support::kEagle, support::kDflash};

class HeadEar final : public Listener {
  public:
    void OnToken(const GeneratedToken& token, std::string_view) override {
        tokens.push_back(token.chance.id);
    }
    void OnEnd(std::string_view, const Result<Ending>& end) override {
        EXPECT_TRUE(end.ok()) << (end.ok() ? "" : end.error().message);
    }
    std::vector<int32_t> tokens;
};

constexpr int kRequests = 9;  // distinct requests; each is made twice

class DraftHeadAnswers : public testing::TestWithParam<const char*> {
  protected:
    std::string Write(bool sure) {
        const std::string path = dir_ / (sure ? "sure.gguf" : "unsure.gguf");
        support::WriteTinyGguf(path, HeadFile(GetParam(), sure));
        if (apart_) support::WriteSeparateHead(GetParam(), dir_ / "head", path, sure);
        return path;
    }
    static Job JobOf(const std::string& model, int64_t kv_tokens = 0) {
        Job job;
        job.model = model;
        job.threads = 1;
        job.ctx = 320;
        job.kv_tokens = kv_tokens;
        job.chunk = 32;
        job.self_test = false;
        return job;
    }
    static Request RequestOf(int number) {
        Request request;
        for (int i = 0; i < 50 + 13 * (number % 3); ++i) {
            request.prompt.push_back(97 + (i * i) % 7);
        }
        request.prompt.push_back(100 + number);
        request.max_tokens = 12 + 14 * (number % 5);
        request.ignore_eos = true;
        request.sampler.temperature = number % 3 == 1 ? 0.7f : 0.0f;
        request.sampler.seed = static_cast<uint64_t>(number);
        return request;
    }
    static std::vector<std::vector<int32_t>> GenerateAll(Engine& engine, int count) {
        std::vector<std::shared_ptr<HeadEar>> ears;
        for (int i = 0; i < count; ++i) {
            ears.push_back(std::make_shared<HeadEar>());
            EXPECT_TRUE(engine.Submit(RequestOf(i % kRequests), ears.back()).ok());
        }
        engine.Drain();
        const Status ran = engine.Run();
        EXPECT_TRUE(ran.ok()) << (ran.ok() ? "" : ran.error().message);
        std::vector<std::vector<int32_t>> said;
        for (const auto& ear : ears) said.push_back(ear->tokens);
        return said;
    }
    static std::unique_ptr<Engine> Open(const Job& job, const EngineOptions& options) {
        auto engine = Engine::Start({}, job, options);
        EXPECT_TRUE(engine.ok()) << (engine.ok() ? "" : engine.error().message);
        return engine.ok() ? std::move(*engine) : nullptr;
    }

    test::TempDir dir_;
    const bool apart_ = support::HasSeparateHead(GetParam());
    const bool blocks_ = std::string_view(GetParam()) == support::kDflash;
    const std::string draft_ = apart_ ? dir_ / "head" : std::string(kHead);
};

INSTANTIATE_TEST_SUITE_P(All, DraftHeadAnswers, testing::ValuesIn(kModels),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(DraftHeadAnswers, GreedyOnesAreTheSame) {
    for (const bool sure : {true, false}) {
        const std::string model = Write(sure);
        const auto plain = Open(JobOf(model), OneAtATime({}));
        const auto always =
            Open(JobOf(model), OneAtATime({.model = draft_, .tokens = 3, .always = true}));
        const auto adaptive = Open(JobOf(model), OneAtATime({.model = draft_}));
        ASSERT_TRUE(plain && always && adaptive);
        for (const int number : {0, 2}) {
            Request request = RequestOf(number);
            request.sampler.temperature = 0;
            request.max_tokens = 80;
            const auto expected = plain->Generate(request), got = always->Generate(request);
            ASSERT_TRUE(expected.ok() && got.ok());
            EXPECT_EQ(got->tokens, expected->tokens);
            EXPECT_EQ(got->steps + got->accepted, 79);
            EXPECT_EQ(adaptive->Generate(request)->tokens, expected->tokens);
            // A head that can derive the next token from the last one is right in at least 3 of 4
            // cases, at every position of a draft. (The DFlash head knows those that repeat.)
            if (sure) {
                EXPECT_GT(got->acceptance(), blocks_ ? 0.4 : 0.75);
                EXPECT_GT(got->tokens_per_step(), blocks_ ? 2.2 : 3.0);
            } else {
                EXPECT_LT(got->acceptance(), 0.5);
            }
        }
    }
}

TEST_P(DraftHeadAnswers, BatchGivesTheTokensOfSingleRequests) {
    const std::string model = Write(true);
    const auto one = Open(JobOf(model), OneAtATime({}));
    std::vector<std::vector<int32_t>> alone;
    for (int i = 0; i < kRequests; ++i) alone.push_back(one->Generate(RequestOf(i))->tokens);
    for (int i = 0; i < kRequests; ++i) alone.push_back(alone[static_cast<size_t>(i)]);
    int64_t preempted = 0;
    for (const int64_t kv_tokens : {4096, 320}) {
        for (const bool cache : {true, false}) {
            if (!test::Nightly() && cache != (kv_tokens == 4096)) continue;
            SCOPED_TRACE(testing::Message() << kv_tokens << " tokens of KV, cache " << cache);
            const EngineOptions options{.max_seqs = 6,
                                        .prefix_cache = cache,
                                        .draft = {.model = draft_, .tokens = 3, .always = true}};
            const auto engine = Open(JobOf(model, kv_tokens), options);
            ASSERT_NE(engine, nullptr);
            EXPECT_EQ(GenerateAll(*engine, 2 * kRequests), alone);
            const EngineStats stats = engine->stats();
            EXPECT_GT(stats.drafts.accepted, stats.drafts.drafted / (blocks_ ? 5 : 2));
            EXPECT_EQ(stats.schedule.cache_hit > 0, cache);
            preempted += stats.schedule.preemptions;
        }
    }
    EXPECT_GT(preempted, 0);
}

// The same seed gives the same answer, and accepted drafts stay.
TEST_P(DraftHeadAnswers, DrawnOnesFollowTheSeed) {
    const std::string model = Write(true);
    const auto engine = Open(JobOf(model), OneAtATime({.model = draft_, .tokens = 2}));
    ASSERT_NE(engine, nullptr);
    Request request = RequestOf(1);
    request.max_tokens = 60;
    const Generation once = *engine->Generate(request), again = *engine->Generate(request);
    EXPECT_EQ(once.tokens, again.tokens);
    EXPECT_EQ(once.tokens.size(), 60u);
    if (!blocks_) {
        EXPECT_GT(once.accepted, once.drafted / 2);
    }
}

TEST_P(DraftHeadAnswers, AModelWithoutOneIsRefused) {
    TinyFile file = HeadFile(GetParam(), false);
    file.hyper.draft_head = false;
    support::WriteTinyGguf(dir_ / "plain.gguf", file);
    const std::string model = dir_ / "plain.gguf";
    const auto refused = Engine::Start({}, JobOf(model), OneAtATime({.model = kHead}));
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
    EXPECT_NE(refused.error().message.find("has no multi-token prediction head"), std::string::npos)
        << refused.error().message;
}

// The default KV cache has space for the head's cache.
TEST_P(DraftHeadAnswers, TheirCacheIsCounted) {
    Job plain = JobOf(Write(false)), with = plain;
    EngineOptions options{.max_seqs = 1};
    ASSERT_TRUE(SizeCache(plain, options).ok());
    options.draft.model = draft_;
    ASSERT_TRUE(SizeCache(with, options).ok());
    EXPECT_GE(plain.kv_tokens, with.kv_tokens);
    if (apart_) with.draft_folder = draft_;
    const auto source = OpenModelOf(with).value();
    const model::Hyper hyper = model::ReadHyper(*source).value();
    const int64_t own = *model::CacheBytesPerToken(hyper, *source, DType::kF16);
    const int64_t both = *model::CacheBytesPerToken(hyper, *source, DType::kF16, true);
    EXPECT_GT(both, own);
}

}  // namespace
}  // namespace weft::engine
