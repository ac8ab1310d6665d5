// Models with Mamba-2 layers, and one with ALiBi, on a Vulkan device (folders of
// tests/data/families) against the CPU's reference kernels, in steps of any partition.
#include <gtest/gtest.h>

#include <cmath>

#include "model_files/hf/folder.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/loaded_rank.h"
#include "support/temp_dir.h"
#include "support/tiny_model.h"
#include "vulkan/usable_device.h"

namespace weft::backend {
namespace {

double ErrorOfMamba(const std::vector<float>& got, const std::vector<float>& want) {
    if (got.size() != want.size()) return INFINITY;
    double error = 0, size = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        error += std::pow(double{got[i]} - double{want[i]}, 2);
        size += std::pow(double{want[i]}, 2);
    }
    return std::sqrt(error / size);
}

class VulkanMamba : public testing::TestWithParam<const char*> {};

// Norms of several groups and of one; MLPs with squared ReLU; experts of fewer columns.
INSTANTIATE_TEST_SUITE_P(All, VulkanMamba,
                         testing::Values("nemotronHLatent", "graniteHybrid", "falconAlibi"),
                         [](const auto& one) { return std::string(one.param); });

// The same bound as in executable_test.cc: float32 throughout.
constexpr double kMambaError = 5e-5;

TEST_P(VulkanMamba, AnyPartitionIntoStepsGivesTheReference) {
    WEFT_NEEDS_VULKAN();
    const std::string name = GetParam();
    const support::HfGolden golden(support::TestData("/families/" + name + ".safetensors"));
    const test::TempDir dir;
    golden.Write(name, dir / "model");
    support::WriteText(dir / "model/tokenizer.json", support::SmallTokenizer());
    const auto source = model_files::hf::OpenFolder(dir / "model").value();
    const model::Hyper hyper = model::ReadHyper(*source).value();
    model::BuildOptions options;
    options.kv_dtype = DType::kF32;
    options.target.float64_reductions = false;
    const auto programs = support::Build(hyper, *source, {}, options);
    ASSERT_EQ(programs.size(), 1u);
    const std::vector<int32_t> tokens = golden.Tokens(name);
    const std::vector<float> want =
        support::LoadedRank(programs[0], *source, {}).Logits(tokens, tokens.size());
    support::LoadedRank rank(TheVulkan(), programs[0], *source);
    for (const size_t piece : {size_t{64}, size_t{1}, size_t{7}}) {
        const std::vector<float> got = rank.Logits(tokens, piece);
        EXPECT_FALSE(!(ErrorOfMamba(got, want) <= kMambaError))
            << "pieces of " << piece << ": " << ErrorOfMamba(got, want);
    }
    const auto few = std::span(tokens).first(8);
    EXPECT_EQ(rank.Logits(few, 3), rank.Logits(few, 1));
}

}  // namespace
}  // namespace weft::backend
