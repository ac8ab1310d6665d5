// Sizes of the KV cache and of the context, by memory and by flags.
#include "engine/rank/cache_size.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

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

    // Returns why the context has its size.
    std::string SizeWith(const char* memory_mib) {
        ::setenv("WEFT_MEMORY_MIB", memory_mib, 1);
        const auto why = SizeCache(job_, options_, 1);
        EXPECT_TRUE(why.ok()) << why.error().message;
        return why.ok() ? *why : "";
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
    const std::string why = SizeWith("64");
    EXPECT_NE(why.find("of the model's 131072"), why.npos) << why;
    EXPECT_EQ(job_.ctx, 64 * 1024 * 1024 * 2 / 5 / kTokenBytes / 64 * 64);
    EXPECT_EQ(job_.kv_tokens, job_.ctx + 64) << "rounded up to whole pages";
}

TEST_F(CacheSize, LittleMemoryLeavesAUsualContext) {
    SizeWith("16");
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
    EXPECT_FALSE(SizeCache(job_, options_, 1).ok());
}

}  // namespace
}  // namespace weft::engine
