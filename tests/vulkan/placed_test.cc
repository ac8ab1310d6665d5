// Experts and layers of the host's processor beside a Vulkan device, against transformers' logits.
#include "backend/placed/placed_device.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_device.h"
#include "support/golden_file.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "vulkan/golden_program.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

// Twice the bound of tests/backend/experts_golden_test.cc, because GPU functions are less exact.
constexpr double kBound = 2 * 5.3e-5;

std::shared_ptr<Device> Placed(const program::HostOps& host_ops) {
    return MakePlacedDevice(TheVulkan(), MakeCpuDevice({1, {}, true, CpuLevel::kReference}),
                            host_ops);
}

class VulkanPlaced : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, VulkanPlaced, testing::ValuesIn(support::kExpertCases),
                         [](const auto& test) { return std::string(test.param); });

TEST_P(VulkanPlaced, EqualsTransformers) {
    const std::string name = GetParam();
    SKIP_TO_NIGHT_UNLESS(name == "deepseekV3" || name == "gemma4Moe" || name == "lfm2moe");
    WEFT_NEEDS_VULKAN();
    const GoldenProgram golden({name, true});
    const program::Program program = golden.Build(DType::kF32, 1).at(0);
    const support::GoldenFile file(support::LogitsPath(name, "/moe_logits.safetensors"));
    const std::vector<float> want = file.Tensor(name + "/logits");
    std::vector<int32_t> tokens;
    for (const float token : file.Tensor(name + "/tokens")) {
        tokens.push_back(static_cast<int32_t>(token));
    }
    const size_t vocab = want.size() / tokens.size();
    const int64_t layers = golden.hyper.layers;
    for (const program::HostOps& host_ops :
         {program::HostOps{layers, 0}, program::HostOps{1, 0}, program::HostOps{0, layers - 1}}) {
        SCOPED_TRACE(
            fmt::format("{} layers' experts, {} layers", host_ops.expert_layers, host_ops.layers));
        support::LoadedRank rank(Placed(host_ops), program, *golden.source);
        for (const size_t piece : {size_t{64}, size_t{1}}) {
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
}

}  // namespace
}  // namespace weft::backend::on_gpu
