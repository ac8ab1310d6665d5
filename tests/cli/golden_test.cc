// Logits of the whole program against transformers' (tests/data/model_logits.safetensors, made by
// tools/make_model_golden.py); quantized files against their dequantized weights.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "support/golden_models.h"
#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

class Transformers : public testing::TestWithParam<GoldenCase> {
  protected:
    void SetUp() override {
        path_ = dir_ / "golden.gguf";
        WriteGolden(GetParam(), path_);
        expected_ = Golden(GetParam().name + std::string("/logits"));
        tokens_ = GoldenTokens(GetParam());
    }
    void Check(const Words& flags, double bound) {
        const std::string npy = dir_ / "logits.npy";
        const Ran ran = RunWeft(Words{"logits", path_, "--all", "--npy", npy, "--tokens",
                                      fmt::format("{}", fmt::join(tokens_, ","))} +
                                flags);
        ASSERT_EQ(ran.status, 0) << ran.err;
        const Matrix logits = ReadNpy(npy);
        ASSERT_EQ(logits.rows, tokens_.size());
        for (size_t row = 0; row < logits.rows; ++row) {
            const auto golden = std::span(expected_).subspan(row * logits.cols, logits.cols);
            EXPECT_LE(RelativeL2(logits.Row(row), golden), bound) << "row " << row;
        }
    }

    test::TempDir dir_;
    std::string path_;
    std::vector<float> expected_;
    std::vector<int> tokens_;
};

INSTANTIATE_TEST_SUITE_P(Golden, Transformers, testing::ValuesIn(GoldenCases()),
                         [](const auto& test) { return std::string(test.param.name); });

// tests/model and tests/backend compare every family daily, in more layouts and kernels, without
// processes.
bool IsDaily(std::string_view name) {
    return name == "llama" || name == "gemma3" || name == "qwen3next";
}

// Some 30 ops in a row, each a sum of at most 144 float32 products: 30 * sqrt(144) * 2^-24.
TEST_P(Transformers, ReferenceKernelsOnTwoTensorRanksAndStages) {
    SKIP_TO_NIGHT_UNLESS(IsDaily(GetParam().name));
    Check({"--reference", "--tp", "2", "--pp", "2"}, 2.2e-5);
}
// Float weights are exact in the fast kernels, too; the f16 cache rounds to 2^-11.
TEST_P(Transformers, FastKernelsOnThreeUnevenTensorRanks) {
    SKIP_TO_NIGHT_UNLESS(IsDaily(GetParam().name));
    Check({"--tp", "3", "--tensor-split", "3,1,2"}, 2e-3);
}

class Quantized : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(EveryDtype, Quantized,
                         testing::Values("F16", "BF16", "Q4_0", "Q4_1", "Q8_0", "Q4_K", "Q6_K"),
                         [](const auto& test) { return std::string(test.param); });

// With the reference kernels a quantized file equals its dequantized weights.
TEST_P(Quantized, IsItsDequantizedWeights) {
    const test::TempDir dir;
    std::vector<Matrix> logits;
    for (bool dequantized : {false, true}) {
        const std::string path = dir / "model.gguf", npy = dir / "logits.npy";
        WriteTinyGguf(path, {.hyper = OddHyper(),
                             .dtype = DTypeOfName(GetParam()).value(),
                             .dequantized = dequantized});
        const Ran ran = RunWeft({"logits", path, "--tokens", "1,200,31,44,5,160,7,8,90", "--all",
                                 "--npy", npy, "--reference"});
        ASSERT_EQ(ran.status, 0) << ran.err;
        logits.push_back(ReadNpy(npy));
    }
    for (size_t row = 0; row < logits[0].rows; ++row) {
        EXPECT_LE(RelativeL2(logits[0].Row(row), logits[1].Row(row)), 5e-4);
    }
}

}  // namespace
}  // namespace weft::support
