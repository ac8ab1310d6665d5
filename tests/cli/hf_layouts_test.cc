// Hugging Face folders in every layout against transformers, for families whose layers differ in
// heads, windows or RoPE, where a wrong key would show on some ranks only.
#include <gtest/gtest.h>

#include "hw/cpu.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

// Rounding error of float32 sums over at most seven layers.
constexpr double kBound = 5e-4;
// The fast kernels sum in other orders. From AVX-512 on, those for BF16 weights round rows to BF16,
// after which a random model may give any logits; so these logits are compared with transformers'
// logits over rows rounded at the same places.
constexpr double kFastBound = 3e-2;

bool RoundsRows(const HfGolden& golden, const std::string& name) {
    return golden.Has(name + "/logits_rounded") && BestCpuLevel(DetectCpu()) >= CpuLevel::kAvx512;
}

class HfLayouts : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        golden_.Write(GetParam(), folder_, 2);
        WriteText(folder_ + "/tokenizer.json", SmallTokenizer());
        for (const int32_t token : golden_.Tokens(GetParam())) {
            if (!tokens_.empty()) tokens_ += ',';
            tokens_ += std::to_string(token);
        }
    }
    void Expect(const std::string& flags, double bound, const std::string& logits = "logits") {
        SCOPED_TRACE(flags);
        const std::string npy = dir_ / "logits.npy";
        const Ran ran = RunWeft(Words{"logits", folder_, "--tokens", tokens_, "--npy", npy, "--all",
                                      "-t", "1", "--kv-dtype", "f32"} +
                                SplitWords(flags));
        ASSERT_EQ(ran.status, 0) << ran.err;
        const Matrix got = ReadNpy(npy);
        const std::vector<float> expected = golden_.Floats(GetParam() + "/" + logits);
        const size_t vocab = expected.size() / golden_.Tokens(GetParam()).size();
        ASSERT_EQ(got.rows * vocab, expected.size());
        for (size_t row = 0; row < got.rows; ++row) {
            EXPECT_LE(RelativeL2(got.Row(row), std::span(expected).subspan(row * vocab, vocab)),
                      bound)
                << "row " << row;
        }
    }

    test::TempDir dir_;
    std::string folder_ = dir_ / "model", tokens_;
    HfGolden golden_;
};

TEST_P(HfLayouts, LogitsAreThoseOfTransformers) {
    std::vector<std::string> layouts = {
        "--tp 1", "--pp 2", "--tp 2", "--tp 3", "--tp 2 --tensor-split 2,1", "--tp 2 --pp 2"};
    if (GetParam() == "gemma4Moe") layouts.push_back("--tp 2 --ep 2");
    for (const std::string& layout : layouts) Expect(layout + " --reference", kBound);
    const char* logits = RoundsRows(golden_, GetParam()) ? "logits_rounded" : "logits";
    Expect("--tp 1", kFastBound, logits);
    Expect("--tp 2", kFastBound, logits);
}

INSTANTIATE_TEST_SUITE_P(Families, HfLayouts, testing::Values("olmo3", "gemma4", "gemma4Moe"),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace weft::support
