// Every layout gives the result of one rank: logits over TP, PP, uneven splits, transports and
// dtypes.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::support {
namespace {

constexpr const char* kTokens =
    "1,77,200,33,250,9,104,61,180,5,5,222,90,14,131,47,66,201,7,112,19,240,58,3,88";

const char* const kLayouts[] = {"--tp 2",
                                "--tp 3",
                                "--tp 4",
                                "--pp 2",
                                "--pp 3",
                                "--tp 2 --pp 2",
                                "--tp 2 --tensor-split 3,1",
                                "--tp 3 --tensor-split 1,4,2",
                                "--pp 2 --tensor-split 2,1",
                                "--tp 3 --overlap on",
                                "--tp 2 --pp 2 --overlap on"};

std::string Text(const std::string& layout, const char* flags) {
    return layout + " " + flags;
}

constexpr DType kQuantized[] = {DType::kF16,  DType::kBF16, DType::kQ4_0, DType::kQ4_1,
                                DType::kQ8_0, DType::kQ4_K, DType::kQ6_K};

class Layouts : public testing::Test {
  protected:
    // A file of the odd shape in this dtype.
    std::string Model(DType dtype, const std::string& architecture = "llama") {
        const std::string path = dir_ / (architecture + std::string(Info(dtype).name) + ".gguf");
        WriteTinyGguf(path, {.hyper = OddHyper(architecture), .dtype = dtype});
        return path;
    }

    Matrix Logits(const std::string& model, const Words& flags) {
        const std::string npy = dir_ / "logits.npy";
        std::filesystem::remove(npy);
        const Ran ran =
            RunWeft(Words{"logits", model, "--tokens", kTokens, "--npy", npy, "-t", "1"} + flags);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return ran.status == 0 ? ReadNpy(npy) : Matrix();
    }

    void Compare(const std::string& model, const Matrix& one, const std::string& flags,
                 double bound) {
        SCOPED_TRACE(model + " " + flags);
        const Matrix many = Logits(model, SplitWords(flags + " --verify --all"));
        ASSERT_EQ(many.rows, one.rows);
        for (size_t row = 0; row < one.rows; ++row) {
            EXPECT_LE(RelativeL2(many.Row(row), one.Row(row)), bound) << "row " << row;
        }
    }

    test::TempDir dir_;
};

// A layout changes where sums over columns are split. These sums use float64, so later rounding
// (the f16 cache, int8 activations) almost always gives the same result. If a split falls inside a
// segment, a rounding may occasionally flip.
constexpr double kFloatWeights = 1e-4;
constexpr double kLayoutQuantizedWeights = 5e-3;
// The fast kernels against float32 activations: the size of the rounding itself, to int8 (at most
// 1/254 of a block's peak) or, for BF16 weights, to BF16 (at most 1/512 of each).
constexpr double kRoundedActivations = 3e-2;

TEST_F(Layouts, F32OverSharedMemory) {
    const std::string model = Model(DType::kF32);
    const Matrix one = Logits(model, {"--all", "--kv-dtype", "f32"});
    ASSERT_EQ(one.rows, 25u);
    for (const char* layout : kLayouts)
        Compare(model, one, Text(layout, "--kv-dtype f32"), kFloatWeights);
}

TEST_F(Layouts, F32OverTcp) {
    const std::string model = Model(DType::kF32);
    const Matrix one = Logits(model, {"--all", "--kv-dtype", "f32"});
    for (const char* layout : kLayouts) {
        Compare(model, one, Text(layout, "--kv-dtype f32 --transport tcp"), kFloatWeights);
    }
}

TEST_F(Layouts, EveryDtypeWithReferenceKernels) {
    for (DType dtype : test::Some(kQuantized, 3)) {
        const std::string model = Model(dtype);
        const Matrix one = Logits(model, {"--all", "--reference"});
        for (const char* layout : {"--tp 3", "--tp 2 --pp 2 --tensor-split 2,1,1,1"}) {
            Compare(model, one, Text(layout, "--reference"), kFloatWeights);
        }
    }
}

TEST_F(Layouts, EveryDtypeWithFastKernels) {
    for (DType dtype : test::Some(kQuantized, 3, 1)) {
        const std::string model = Model(dtype);
        const Matrix one = Logits(model, {"--all"});
        Compare(model, one, "--tp 3", kLayoutQuantizedWeights);
        Compare(model, one, "--pp 3", 0);  // the same sums: equal bits
    }
}

TEST_F(Layouts, EveryArchitecture) {
    for (const char* architecture : {"qwen2", "qwen3"}) {
        const std::string model = Model(DType::kF32, architecture);
        const Matrix one = Logits(model, {"--all"});
        for (const char* layout : {"--tp 4", "--tp 2 --pp 2"}) {
            Compare(model, one, layout, kFloatWeights);
        }
    }
}

TEST_F(Layouts, FastKernelsAgainstTheReference) {
    for (DType dtype : {DType::kQ4_1, DType::kBF16}) {
        const std::string model = Model(dtype);
        const Matrix reference = Logits(model, {"--all", "--reference"});
        Compare(model, reference, "--tp 1", kRoundedActivations);
        Compare(model, reference, "--tp 4", kRoundedActivations);
    }
}

// Prefill chunks of any size give the logits of the whole prompt.
TEST_F(Layouts, ChunksOfThePrompt) {
    const std::string model = Model(DType::kF32);
    const Matrix one = Logits(model, {});
    ASSERT_EQ(one.rows, 1u);
    for (const char* flags : {"--prefill-chunk 1", "--prefill-chunk 7", "--prefill-chunk 7 --tp 2",
                              "--prefill-chunk 3 --pp 3", "--prefill-chunk 24 --tp 2 --pp 2"}) {
        SCOPED_TRACE(flags);
        EXPECT_LE(RelativeL2(Logits(model, SplitWords(flags)).data, one.data), kFloatWeights);
    }
}

// KV types: the cache's rounding is small relative to the f32 cache, and layouts round alike. The
// bounds of blocks follow from half a step: 1/254 of the peak for q8_0, up to 8 times that for q5_1
// (a range of two peaks in 31 steps), 16 times for q4_0 (8 steps per peak).
TEST_F(Layouts, KvTypes) {
    const std::string model = Model(DType::kF32);
    const Matrix exact = Logits(model, {"--kv-dtype", "f32"});
    for (const auto& [kv, bound] : {std::pair("f16", 2e-3),
                                    {"bf16", 1e-2},
                                    {"q8_0", 2e-2},
                                    {"q5_1", 8 * 2e-2},
                                    {"q4_0", 16 * 2e-2},
                                    {"q8_0,q4_0", 16 * 2e-2},
                                    {"f16,q5_1", 8 * 2e-2}}) {
        SCOPED_TRACE(kv);
        const Matrix one = Logits(model, {"--kv-dtype", kv});
        EXPECT_LE(RelativeL2(one.data, exact.data), bound);
        for (const char* layout : {"--tp 3", "--pp 2", "--tp 2 --prefill-chunk 5"}) {
            Words words = SplitWords(layout);
            words.insert(words.end(), {"--kv-dtype", kv});
            EXPECT_LE(RelativeL2(Logits(model, words).data, one.data), kFloatWeights) << layout;
        }
    }
}

}  // namespace
}  // namespace weft::support
