// Values that hw/ reads from this machine are plausible, and WEFT_CPU lowers the level but never
// raises it.
#include "hw/cpu.h"

#include <gtest/gtest.h>
#include <stdlib.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace weft {
namespace {

class CpuWish : public testing::Test {
  protected:
    void SetUp() override {
        if (const char* wish = ::getenv("WEFT_CPU")) before_ = wish;
        ::unsetenv("WEFT_CPU");
    }
    void TearDown() override {
        before_.empty() ? ::unsetenv("WEFT_CPU") : ::setenv("WEFT_CPU", before_.c_str(), 1);
    }
    static CpuLevel With(const char* wish, const CpuFeatures& features) {
        ::setenv("WEFT_CPU", wish, 1);
        return BestCpuLevel(features);
    }
    std::string before_;
};

CpuFeatures Full() {
    CpuFeatures features;
    features.avx2 = features.avx512 = features.avx512_vnni = features.avx512_bf16 = true;
    features.amx = true;
    return features;
}

// Kernels built for more than 1024 possible cores refuse smaller sets.
TEST(Cores, AreFoundAboveTheUsualNumber) {
    std::vector<size_t> asked;
    const auto large = [&](size_t bytes, cpu_set_t* set) {
        asked.push_back(bytes);
        if (bytes < 8192 / 8) {
            errno = EINVAL;
            return false;
        }
        for (const size_t core : {3, 1023, 1024, 8191}) CPU_SET_S(core, bytes, set);
        return true;
    };
    EXPECT_EQ(AllowedCores(large), (std::vector<int>{3, 1023, 1024, 8191}));
    EXPECT_EQ(asked, (std::vector<size_t>{128, 256, 512, 1024}));
    // A kernel that always fails: the search ends.
    for (const int error : {EINVAL, EPERM}) {
        const auto none = [&](size_t, cpu_set_t*) {
            errno = error;
            return false;
        };
        EXPECT_EQ(AllowedCores(none), std::vector<int>{0});
    }
    const std::vector<int> here = AllowedCores();
    EXPECT_TRUE(RunThisThreadOn(here));
    EXPECT_EQ(AllowedCores(), here);
}

TEST_F(CpuWish, BestLevelFollowsTheFeatures) {
    EXPECT_EQ(BestCpuLevel(CpuFeatures{}), CpuLevel::kReference);
    EXPECT_EQ(BestCpuLevel(Full()), CpuLevel::kAmx);
    CpuFeatures no_amx = Full();
    no_amx.amx = false;
    EXPECT_EQ(BestCpuLevel(no_amx), CpuLevel::kAvx512);
    CpuFeatures no_vnni = Full();
    no_vnni.avx512_vnni = false;
    EXPECT_EQ(BestCpuLevel(no_vnni), CpuLevel::kAvx2);
    CpuFeatures no_bf16 = Full();
    no_bf16.avx512_bf16 = false;
    EXPECT_EQ(BestCpuLevel(no_bf16), CpuLevel::kAvx2);
}

// CPUs with AVX-VNNI and without AVX-512, with AVX-512 and without AVX-VNNI, and with both.
TEST_F(CpuWish, DotProductsOfBytesMakeAvxVnni) {
    using enum CpuLevel;
    CpuFeatures narrow;
    narrow.avx2 = narrow.avx_vnni = true;
    EXPECT_EQ(UsableCpuLevels(narrow), (std::vector{kReference, kAvx2, kAvxVnni}));
    EXPECT_EQ(BestCpuLevel(narrow), kAvxVnni);
    EXPECT_EQ(UsableCpuLevels(Full()), (std::vector{kReference, kAvx2, kAvx512, kAmx}));
    CpuFeatures both = Full();
    both.avx_vnni = true;
    EXPECT_EQ(UsableCpuLevels(both), (std::vector{kReference, kAvx2, kAvxVnni, kAvx512, kAmx}));
    CpuFeatures no_avx2;
    no_avx2.avx_vnni = true;
    EXPECT_EQ(UsableCpuLevels(no_avx2), std::vector{kReference});
}

TEST_F(CpuWish, ProductsOfMatricesMakeI8mm) {
    CpuFeatures arm;
    arm.i8mm = true;
    EXPECT_EQ(BestCpuLevel(arm), CpuLevel::kReference) << "without dot products";
    arm.dotprod = true;
    EXPECT_EQ(BestCpuLevel(arm), CpuLevel::kI8mm);
}

TEST_F(CpuWish, DotProductsMakeNeon) {
    CpuFeatures arm;
    arm.dotprod = true;
    EXPECT_EQ(BestCpuLevel(arm), CpuLevel::kNeon);
}

#if defined(__aarch64__)  // only there WEFT_CPU knows these levels
TEST_F(CpuWish, ArmIsLoweredAndNeverRaised) {
    CpuFeatures arm;
    arm.dotprod = true;
    EXPECT_EQ(With("i8mm", arm), CpuLevel::kNeon);
    EXPECT_EQ(With("i8mm", CpuFeatures{}), CpuLevel::kReference);
    arm.i8mm = true;
    EXPECT_EQ(With("i8mm", arm), CpuLevel::kI8mm);
    EXPECT_EQ(With("neon", arm), CpuLevel::kNeon);
    EXPECT_EQ(With("reference", arm), CpuLevel::kReference);
}

// The kernel's feature list, read by another method than DetectCpu's.
TEST(Cpu, ArmFeaturesAreThoseOfTheSystem) {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line) && !line.starts_with("Features")) {
    }
    if (!file) GTEST_SKIP() << "/proc/cpuinfo has no line of Features";
    const CpuFeatures features = DetectCpu();
    EXPECT_EQ(features.dotprod, (line + " ").find(" asimddp ") != std::string::npos) << line;
    EXPECT_EQ(features.i8mm, (line + " ").find(" i8mm ") != std::string::npos) << line;
}
#endif

#if defined(__x86_64__)
TEST_F(CpuWish, AvxVnniIsLoweredAndNeverRaised) {
    CpuFeatures narrow;
    narrow.avx2 = narrow.avx_vnni = true;
    EXPECT_EQ(With("amx", narrow), CpuLevel::kAvxVnni);
    EXPECT_EQ(With("avxvnni", narrow), CpuLevel::kAvxVnni);
    EXPECT_EQ(With("avx2", narrow), CpuLevel::kAvx2);
    EXPECT_EQ(With("avxvnni", Full()), CpuLevel::kAvx2) << "without AVX-VNNI";
    CpuFeatures both = Full();
    both.avx_vnni = true;
    EXPECT_EQ(With("avxvnni", both), CpuLevel::kAvxVnni);
}

// The kernel's flags, read by another method than DetectCpu's.
TEST(Cpu, FeaturesAreThoseOfTheSystem) {
    std::ifstream file("/proc/cpuinfo");
    std::string line;
    while (std::getline(file, line) && !line.starts_with("flags")) {
    }
    if (!file) GTEST_SKIP() << "/proc/cpuinfo has no line of flags";
    const CpuFeatures features = DetectCpu();
    const auto has = [&](const char* name) {
        return (line + " ").find(" " + std::string(name) + " ") != std::string::npos;
    };
    EXPECT_EQ(features.avx2, has("avx2") && has("fma") && has("f16c")) << line;
    EXPECT_EQ(features.avx_vnni, has("avx_vnni")) << line;
    EXPECT_EQ(features.avx512_vnni, has("avx512_vnni")) << line;
}
#endif

TEST_F(CpuWish, LowersAndNeverRaises) {
    EXPECT_EQ(With("reference", Full()), CpuLevel::kReference);
    EXPECT_EQ(With("avx2", Full()), CpuLevel::kAvx2);
    EXPECT_EQ(With("avx512", Full()), CpuLevel::kAvx512);
    EXPECT_EQ(With("amx", Full()), CpuLevel::kAmx);
    EXPECT_EQ(With("avx512", CpuFeatures{}), CpuLevel::kReference);
    EXPECT_EQ(With("amx", CpuFeatures{}), CpuLevel::kReference);
    EXPECT_EQ(With("avx2", CpuFeatures{}), CpuLevel::kReference);
}

TEST(Cpu, LevelsHaveNames) {
    EXPECT_STREQ(CpuLevelName(CpuLevel::kReference), "reference");
    EXPECT_STREQ(CpuLevelName(CpuLevel::kAvx2), "avx2");
    EXPECT_STREQ(CpuLevelName(CpuLevel::kAvxVnni), "avxvnni");
    EXPECT_STREQ(CpuLevelName(CpuLevel::kAvx512), "avx512");
    EXPECT_STREQ(CpuLevelName(CpuLevel::kAmx), "amx");
    EXPECT_STREQ(CpuLevelName(CpuLevel::kNeon), "neon");
    EXPECT_STREQ(CpuLevelName(CpuLevel::kI8mm), "i8mm");
}

TEST(Cpu, DetectionAgreesWithItself) {
    const CpuFeatures features = DetectCpu();
    EXPECT_FALSE(features.model.empty());
    EXPECT_TRUE(!features.avx512 || features.avx2) << "AVX-512 without AVX2";
    EXPECT_TRUE(!features.avx_vnni || features.avx2);
    EXPECT_TRUE(!features.avx512_bf16 || features.avx512);
    EXPECT_TRUE(!features.amx || features.avx512_bf16);
}

TEST(Cpu, CoresAreThisProcessOwn) {
    const std::vector<int> cores = AllowedCores();
    ASSERT_FALSE(cores.empty());
    EXPECT_TRUE(std::is_sorted(cores.begin(), cores.end()));
    EXPECT_EQ(std::adjacent_find(cores.begin(), cores.end()), cores.end());
}

TEST(Memory, ResidentSetGrowsWithTouchedPages) {
    const uint64_t before = ResidentBytes();
    EXPECT_GT(before, 1u << 20);
    constexpr size_t kBytes = 64u << 20;
    std::vector<char> touched(kBytes, 1);
    EXPECT_GE(ResidentBytes(), before + kBytes / 2);
    EXPECT_GT(touched[kBytes / 2], 0);
    EXPECT_GT(AvailableMemoryBytes(), 16u << 20);
}

TEST(PinnedThread, GivesItsThreadTheCoresBack) {
    const std::vector<int> before = AllowedCores();
    {
        const PinnedThread pinned{std::span(before).last(1)};
        EXPECT_EQ(AllowedCores(), std::vector<int>{before.back()});
    }
    EXPECT_EQ(AllowedCores(), before);
}

TEST(PinnedThread, EndingInAnotherThreadChangesNoThread) {
    const std::vector<int> before = AllowedCores();
    auto pinned = std::make_unique<PinnedThread>(std::span(before).last(1));
    std::vector<int> others;
    std::thread([&] {
        RunThisThreadOn(before);
        pinned.reset();
        others = AllowedCores();
    }).join();
    EXPECT_EQ(others, before);
    EXPECT_EQ(AllowedCores(), std::vector<int>{before.back()});
    RunThisThreadOn(before);
}

TEST(RunThisThreadOn, RefusesInvalidCores) {
    const std::vector<int> before = AllowedCores();
    EXPECT_FALSE(RunThisThreadOn({}));
    const std::vector<int> none = {-1, 1 << 20};
    EXPECT_FALSE(RunThisThreadOn(none));
    EXPECT_EQ(AllowedCores(), before);
}

}  // namespace
}  // namespace weft
