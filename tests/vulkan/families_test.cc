// Models of tests/data/families on a Vulkan device against the logits of transformers: families
// with ops that no other family has.
#include <gtest/gtest.h>

#include <cmath>

#include "model_files/hf/folder.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

class VulkanFamilies : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Some, VulkanFamilies,
                         testing::Values("cohere2", "hunyuan", "laguna", "lagunaWhole", "mimo2",
                                         "step35", "commandRPlus", "falconH1"),
                         [](const auto& one) { return std::string(one.param); });

// The bound is twice that of tests/backend/families_test.cc, because GPU functions are less exact.
TEST_P(VulkanFamilies, EqualTransformers) {
    SKIP_TO_NIGHT_UNLESS(false);
    WEFT_NEEDS_VULKAN();
    constexpr double kBound = 2 * 5.4e-5;
    const std::string name = GetParam();
    const weft::test::TempDir dir;
    const support::HfGolden golden(support::TestData("/families/" + name + ".safetensors"));
    golden.Write(name, dir / "model");
    support::WriteText(dir / "model/tokenizer.json", support::SmallTokenizer());
    const auto source = model_files::hf::OpenFolder(dir / "model").value();
    model::BuildOptions options;
    options.kv_dtype = DType::kF32;
    options.target.float64_reductions = false;
    const model::Hyper hyper = model::ReadHyper(*source).value();
    const program::Program program = support::Build(hyper, *source, {}, options).at(0);
    const std::vector<int32_t> tokens = golden.Tokens(name);
    const std::vector<float> want = golden.Floats(name + "/logits");
    support::LoadedRank rank(TheVulkan(), program, *source);
    const size_t vocab = want.size() / tokens.size();
    for (const size_t piece : {size_t{64}, size_t{5}, size_t{1}}) {
        const std::vector<float> got = rank.Logits(tokens, piece);
        ASSERT_EQ(got.size(), want.size());
        for (size_t row = 0; row < tokens.size(); ++row) {
            double error = 0, size = 0;
            for (size_t i = row * vocab; i < (row + 1) * vocab; ++i) {
                error += std::pow(double{got[i]} - double{want[i]}, 2);
                size += std::pow(double{want[i]}, 2);
            }
            EXPECT_FALSE(!(std::sqrt(error / size) <= kBound))
                << "row " << row << " by " << piece << ": " << std::sqrt(error / size);
        }
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
