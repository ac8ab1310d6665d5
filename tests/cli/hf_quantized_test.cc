// Hugging Face folders with 4- and 8-bit weights in the whole program: the logits equal those of
// the same numbers in F32, on one rank and on two, for a dense model and one with experts.
#include <gtest/gtest.h>

#include "support/hf_quantize.h"
#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

struct Case {
    const char* name;
    HfLayout layout;
};
void PrintTo(const Case& one, std::ostream* out) {
    *out << one.name;
}

class HfQuantized : public testing::TestWithParam<Case> {
  protected:
    Matrix Logits(const std::string& folder, const std::string& flags) {
        const std::string npy = dir_ / "logits.npy";
        std::filesystem::remove(npy);
        const Ran ran = RunWeft(Words{"logits", folder, "--tokens", "1,77,20,33,50,9,61,5,5,82,14",
                                      "--npy", npy, "--all", "-t", "1"} +
                                SplitWords(flags));
        EXPECT_EQ(ran.status, 0) << flags << ": " << ran.err;
        return ran.status == 0 ? ReadNpy(npy) : Matrix();
    }

    void Expect(const std::string& folder, const Matrix& expected, const std::string& flags,
                double bound) {
        SCOPED_TRACE(flags);
        const Matrix got = Logits(folder, flags);
        ASSERT_EQ(got.rows, expected.rows);
        for (size_t row = 0; row < got.rows; ++row) {
            EXPECT_LE(RelativeL2(got.Row(row), expected.Row(row)), bound) << "row " << row;
        }
    }

    test::TempDir dir_;
};

// Some 60 ops in a row, each a sum of at most 96 float32 products: 60 * sqrt(96) * 2^-24.
constexpr double kFloat32 = 3.5e-5;
// Activations rounded to 8 bits in blocks of 32.
constexpr double kInt8Rounding = 4e-2;
// Additional error of a split over ranks (layout_test.cc).
constexpr double kQuantizedWeights = 5e-3;

// FP8 models are wider: 60 * sqrt(192) * 2^-24. Some CPUs round activations to BF16, before 21
// products in a row: sqrt(21) * 2^-9.
constexpr double kFp8 = 5e-5, kBf16Rounding = 9e-3;

// qwen2moe's experts have 32 columns, one block: on two ranks each expert is whole on one rank.
TEST_P(HfQuantized, LogitsAreThoseOfTheNumbers) {
    const bool fp8 = IsFp8(GetParam().layout);
    // (Each layout with one of the models daily.)
    const char* const models[] = {"qwen2", "qwen2moe"};
    for (const char* model : test::Some(models, 2, static_cast<size_t>(GetParam().layout))) {
        SCOPED_TRACE(model);
        const std::string quantized = dir_ / (std::string(model) + "-quantized");
        const std::string floats = dir_ / (std::string(model) + "-floats");
        WriteQuantized(model, GetParam().layout, quantized, floats);
        const Matrix expected = Logits(floats, "--reference");
        ASSERT_GT(expected.rows, 10u);
        for (const char* layout : {"--tp 1", "--tp 2", "--tp 2 --tensor-split 2,1"}) {
            Expect(quantized, expected, layout + std::string(" --reference"),
                   fp8 ? kFp8 : kFloat32);
        }
        const Matrix one = Logits(quantized, "--kv-dtype f32");
        ASSERT_EQ(one.rows, expected.rows);
        for (size_t row = 0; row < one.rows; ++row) {
            EXPECT_LE(RelativeL2(one.Row(row), expected.Row(row)),
                      fp8 ? kBf16Rounding : kInt8Rounding)
                << "row " << row;
        }
        Expect(quantized, one, "--kv-dtype f32 --tp 2", kQuantizedWeights);
        Expect(quantized, one, "--kv-dtype f32 --tp 2 --pp 2", kQuantizedWeights);
    }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, HfQuantized,
    testing::Values(Case{"awq", HfLayout::kAwq}, Case{"gptq4", HfLayout::kGptq4},
                    Case{"gptq8", HfLayout::kGptq8}, Case{"packed4", HfLayout::kPacked4},
                    Case{"packed8", HfLayout::kPacked8}, Case{"fp8Blocks", HfLayout::kFp8Blocks},
                    Case{"fp8Rows", HfLayout::kFp8Rows}),
    [](const auto& one) { return std::string(one.param.name); });

}  // namespace
}  // namespace weft::support
