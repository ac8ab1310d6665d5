// Serving models with Mamba-2 layers or with pooled windows: in a batch, with few pages, from the
// prefix cache and with drafts, each request gets the same tokens as alone.
#include <gtest/gtest.h>

#include <mutex>

#include "engine/engine.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/temp_dir.h"

namespace weft::engine {
namespace {

class MambaEar final : public Listener {
  public:
    void OnToken(const GeneratedToken& token, std::string_view) override {
        const std::lock_guard lock(mutex_);
        tokens_.push_back(token.chance.id);
    }
    void OnEnd(std::string_view, const Result<Ending>& ending) override {
        EXPECT_TRUE(ending.ok()) << (ending.ok() ? "" : ending.error().message);
    }
    std::vector<int32_t> tokens() const {
        const std::lock_guard lock(mutex_);
        return tokens_;
    }

  private:
    mutable std::mutex mutex_;
    std::vector<int32_t> tokens_;
};

// Prompts with common beginnings, of at least two pages.
Request MambaRequest(int number) {
    Request request;
    for (int i = 0; i < 66 + 21 * (number % 3); ++i) request.prompt.push_back(5 + (i * i) % 7);
    request.prompt.push_back(20 + number);
    request.max_tokens = 10 + 9 * (number % 4);
    request.ignore_eos = true;
    request.sampler.temperature = number % 2 == 0 ? 0.0f : 0.9f;
    request.sampler.seed = static_cast<uint64_t>(number);
    return request;
}

class MambaServed : public testing::TestWithParam<const char*> {};
INSTANTIATE_TEST_SUITE_P(All, MambaServed, testing::Values("nemotronHMoe", "deepseekV4"),
                         [](const auto& one) { return std::string(one.param); });

TEST_P(MambaServed, BatchGivesTheTokensOfSingleRequests) {
    constexpr int kClients = 8;
    const test::TempDir dir;
    const std::string name = GetParam();
    const support::HfGolden golden(support::TestData("/families/" + name + ".safetensors"));
    golden.Write(name, dir / "model");
    support::WriteText(dir / "model/tokenizer.json", support::SmallTokenizer());
    const auto job_of = [&](int64_t kv_tokens) {
        Job job;
        job.model = dir / "model";
        job.threads = 1;
        job.ctx = 192;
        job.kv_tokens = kv_tokens;
        job.chunk = 64;
        job.self_test = false;
        return job;
    };
    std::vector<std::vector<int32_t>> alone;
    for (int i = 0; i < kClients; ++i) {
        auto engine = Engine::Start({}, job_of(0), OneAtATime({}));
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        alone.push_back((*engine)->Generate(MambaRequest(i))->tokens);
        EXPECT_EQ(alone.back().size(), static_cast<size_t>(MambaRequest(i).max_tokens));
    }
    int64_t preempted = 0, hit = 0, drafted = 0;
    for (const bool few : {false, true}) {
        const DraftOptions guesses{.lookup = true, .tokens = 5, .always = true};
        const EngineOptions options{
            .max_seqs = 4, .prefix_cache = true, .draft = few ? guesses : DraftOptions()};
        auto engine = Engine::Start({}, job_of(few ? 256 : 2048), options);
        ASSERT_TRUE(engine.ok()) << engine.error().message;
        std::vector<std::shared_ptr<MambaEar>> ears;
        for (int i = 0; i < kClients; ++i) {
            ears.push_back(std::make_shared<MambaEar>());
            ASSERT_TRUE((*engine)->Submit(MambaRequest(i), ears.back()).ok());
        }
        (*engine)->Drain();
        ASSERT_TRUE((*engine)->Run().ok());
        for (size_t i = 0; i < kClients; ++i) {
            EXPECT_EQ(ears[i]->tokens(), alone[i]) << "request " << i << ", few pages: " << few;
        }
        const EngineStats stats = (*engine)->stats();
        preempted += stats.schedule.preemptions;
        hit += stats.schedule.cache_hit;
        drafted += stats.drafts.drafted;
    }
    EXPECT_GT(preempted, 0);
    EXPECT_GT(hit, 0);
    EXPECT_GT(drafted, 0);
}

}  // namespace
}  // namespace weft::engine
