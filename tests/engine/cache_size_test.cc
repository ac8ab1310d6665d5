// Sizes of the KV cache and of the context, by memory and by flags.
#include "engine/rank/cache_size.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

constexpr int64_t kContext = 131072;
constexpr int64_t kTokenBytes = 3 * 2 * 3 * 32 * 2;  // layers, K and V, heads, head_dim, F16

class CacheSize : public testing::Test {
  protected:
    CacheSize() {
        support::TinyFile file{.hyper = support::OddHyper("llama")};
        file.hyper.context = kContext;
        support::WriteTinyGguf(dir_ / "m.gguf", file);
        job_.model = dir_ / "m.gguf";
        job_.device = "cpu";
    }
    ~CacheSize() override { ::unsetenv("WEFT_MEMORY_MIB"); }

    // Starts the ranks, which size the cache of job_. Returns why the context has its size; the
    // error, if they do not start.
    std::string SizeWith(const char* memory_mib) {
        ::setenv("WEFT_MEMORY_MIB", memory_mib, 1);
        const auto chosen = SizeCache(job_, options_);
        if (!chosen.ok()) return chosen.error().message;
        const auto engine = Engine::Start({}, job_, options_);
        if (!engine.ok()) return engine.error().message;
        job_ = (*engine)->rank().job();
        EXPECT_EQ((*engine)->context(), job_.ctx);
        return *chosen ? WhyContext(job_, (*engine)->hyper()) : "";
    }

    test::TempDir dir_;
    Job job_;
    EngineOptions options_{.max_seqs = 4};
};

TEST_F(CacheSize, TheDefaultIsTheModelsContext) {
    EXPECT_EQ(SizeWith("2000"), "the model's own");
    EXPECT_EQ(job_.ctx, kContext);
    EXPECT_EQ(job_.kv_tokens, kContext) << "one whole sequence, or four of 8192 tokens";
}

TEST_F(CacheSize, TheDefaultIsWhatFits) {
    const std::string why = SizeWith("200");
    EXPECT_NE(why.find("of the model's 131072"), why.npos) << why;
    EXPECT_EQ(job_.ctx, 200 * 1024 * 1024 * 2 / 5 / kTokenBytes / 64 * 64);
    EXPECT_EQ(job_.kv_tokens, job_.ctx);
}

TEST_F(CacheSize, LittleMemoryLeavesAUsualContext) {
    const std::string why = SizeWith("95");
    EXPECT_NE(why.find("the free memory"), why.npos) << why;
    EXPECT_EQ(job_.ctx, 8192);
    EXPECT_EQ(job_.kv_tokens, 8192);
}

TEST_F(CacheSize, FlagsAreKept) {
    job_.ctx = 1000;
    EXPECT_EQ(SizeWith("2000"), "");
    EXPECT_EQ(job_.ctx, 1024) << "whole pages";
    EXPECT_EQ(job_.kv_tokens, 4 * 1024);
    job_.ctx = 0;
    job_.kv_tokens = 20000;
    const std::string why = SizeWith("2000");
    EXPECT_NE(why.find("--kv-tokens"), why.npos) << why;
    EXPECT_EQ(job_.ctx, 19968);
    job_.ctx = 0;
    job_.kv_tokens = 1000;
    SizeWith("2000");
    EXPECT_LE(job_.ctx, 1024);
    job_.ctx = 2048;
    job_.kv_tokens = 1024;
    EXPECT_FALSE(SizeCache(job_, options_).ok());
}

// Flags that use memory: the default cache leaves space for each, and any two together must not
// exceed the free memory.
TEST_F(CacheSize, AllThatTakesMemoryIsInOneSum) {
    constexpr int64_t kEach = 150 << 20;
    const std::pair<const char*, void (*)(Job&, EngineOptions&)> takers[] = {
        {"--kv-tokens", [](Job& job, EngineOptions&) { job.kv_tokens += kEach / kTokenBytes; }},
        {"--cache-ram", [](Job& job, EngineOptions&) { job.cache_ram = kEach; }},
        {"--draft",
         [](Job& job, EngineOptions& options) {
             // The draft model's cache has as many tokens as the model's.
             options.draft.model = job.model;
             job.kv_tokens = std::max(job.kv_tokens, kEach / kTokenBytes / 2);
         }},
    };
    const Job asked = job_;
    const auto start = [&](std::initializer_list<int> which) {
        job_ = asked;
        job_.ctx = job_.kv_tokens = 1024;
        options_ = {.max_seqs = 4};
        for (const int taker : which) takers[taker].second(job_, options_);
        return SizeWith("260");
    };
    for (int one = 0; one < 3; ++one) {
        EXPECT_EQ(start({one}), "") << takers[one].first;
        for (int other = 0; other < one; ++other) {
            const std::string why = start({other, one});
            EXPECT_NE(why.find("but 260 MiB are free"), why.npos)
                << takers[one].first << " and " << takers[other].first << ": " << why;
        }
    }
    // The default cache is smaller beside either.
    job_ = asked;
    options_ = {.max_seqs = 4};
    SizeWith("260");
    const int64_t alone = job_.kv_tokens;
    for (const int taker : {1, 2}) {
        job_ = asked;
        options_ = {.max_seqs = 4};
        takers[taker].second(job_, options_);
        if (taker == 2) job_.kv_tokens = 0;
        SizeWith("260");
        EXPECT_LT(job_.kv_tokens, alone) << takers[taker].first;
        EXPECT_GE(job_.kv_tokens, 8192) << takers[taker].first;
    }
}

// The smallest quotient over all memories decides; ranks that share a memory add up.
TEST(CacheTokens, FitEveryMemory) {
    constexpr uint64_t kGb = 1'000'000'000;
    const auto fit = [](std::vector<CacheSpace> rooms) { return TokensThatFit(rooms, 0.4); };
    EXPECT_EQ(fit({{"a", 10 * kGb, 0, 1000}}), 4'000'000) << "0.4 of the memory";
    EXPECT_EQ(fit({{"a", 10 * kGb, 8 * kGb, 1000}}), 1'000'000) << "0.9 of it with the weights";
    EXPECT_EQ(fit({{"a", 10 * kGb, 9 * kGb, 1000}}), 0);
    EXPECT_EQ(fit({{"a", 10 * kGb, 0, 1000}, {"b", 10 * kGb, 8 * kGb, 500}}), 2'000'000);
    EXPECT_EQ(fit({{"a", 10 * kGb, 4 * kGb, 1000}, {"a", 10 * kGb, 4 * kGb, 1000}}), 500'000);
    EXPECT_EQ(fit({{"a", 10 * kGb, 8 * kGb, 1000}, {"a2", kGb, kGb, 0}}), 1'000'000)
        << "a memory without a part of the cache";
    EXPECT_EQ(TokensThatFit(std::vector<CacheSpace>{{"a", 10 * kGb, 0, 1000}}, 0.1), 1'000'000);
}

}  // namespace
}  // namespace weft::engine
