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

std::shared_ptr<Device> Placed(const program::HostOps& host_ops,
                               std::shared_ptr<Device> gpu = TheVulkan()) {
    return MakePlacedDevice(std::move(gpu), MakeCpuDevice({2, {}, true, CpuLevel::kReference}),
                            host_ops);
}

class VulkanPlaced : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(All, VulkanPlaced, testing::ValuesIn(support::kExpertCases),
                         [](const auto& test) { return std::string(test.param); });

// Checks the logits of a model's tokens, in steps of `pieces` rows, with a device.
struct Checked {
    explicit Checked(const std::string& model)
        : name(model),
          golden({model, true}),
          program(golden.Build(DType::kF32, 1).at(0)),
          file(support::LogitsPath(model, "/moe_logits.safetensors")),
          want(file.Tensor(model + "/logits")) {
        for (const float token : file.Tensor(name + "/tokens")) {
            tokens.push_back(static_cast<int32_t>(token));
        }
    }
    void Run(const std::shared_ptr<Device>& device, std::initializer_list<size_t> pieces) {
        support::LoadedRank rank(device, program, *golden.source);
        const size_t vocab = want.size() / tokens.size();
        for (const size_t piece : pieces) {
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
        use = rank.executable().memory();
    }

    const std::string name;
    const GoldenProgram golden;
    const program::Program program;
    const support::GoldenFile file;
    const std::vector<float> want;
    std::vector<int32_t> tokens;
    MemoryUse use;
};

bool IsDaily(const std::string& name) {
    return name == "deepseekV3" || name == "gemma4Moe" || name == "lfm2moe";
}

TEST_P(VulkanPlaced, EqualsTransformers) {
    SKIP_TO_NIGHT_UNLESS(IsDaily(GetParam()));
    WEFT_NEEDS_VULKAN();
    Checked checked(GetParam());
    const int64_t layers = checked.golden.hyper.layers;
    for (const program::HostOps& host_ops :
         {program::HostOps{layers, 0}, program::HostOps{1, 0}, program::HostOps{0, layers - 1}}) {
        SCOPED_TRACE(
            fmt::format("{} layers' experts, {} layers", host_ops.expert_layers, host_ops.layers));
        checked.Run(Placed(host_ops), {64, 1});
    }
}

// Steps of five rows or more read the experts' weights from the host, with memory that the host
// maps and with copies. The device has places for three stacks.
TEST_P(VulkanPlaced, StreamedExpertsEqualTransformers) {
    SKIP_TO_NIGHT_UNLESS(IsDaily(GetParam()));
    WEFT_NEEDS_VULKAN();
    Checked checked(GetParam());
    const int64_t layers = checked.golden.hyper.layers;
    const program::HostOps handed{layers, 0}, all{layers, 0, false, 1}, many{layers, 0, false, 5};
    checked.Run(Placed(many), {64, 1, 5});
    const uint64_t streamed_bytes = checked.use.weight_bytes;
    checked.Run(Placed(all), {1});
    checked.Run(Placed(many, OpenVulkan({.maps_memory = false})), {64, 4});
    checked.Run(Placed(handed), {});
    const uint64_t places_bytes = streamed_bytes - checked.use.weight_bytes;
    int64_t largest_bytes = 0, stacks = 0;
    for (const program::Value& value : checked.program.values) {
        const bool stack = value.storage == program::Storage::kWeight && value.shape.rank == 3;
        if (!stack || value.name.find("_exps.weight") == value.name.npos) continue;
        largest_bytes = std::max(largest_bytes, RowBytes(value.dtype, value.shape.Elements(0, 0)));
        ++stacks;
    }
    if (stacks == 0) return;
    EXPECT_GE(places_bytes, static_cast<uint64_t>(largest_bytes));
    EXPECT_LE(places_bytes, 3 * (static_cast<uint64_t>(largest_bytes) + (16 << 10)));
}

// The border is measured before the first step.
TEST(VulkanPlacedBorder, IsMeasured) {
    WEFT_NEEDS_VULKAN();
    Checked checked("qwen3moe");
    const program::HostOps measured{checked.golden.hyper.layers, 0, false, -1};
    testing::internal::CaptureStderr();
    checked.Run(Placed(measured), {64, 1});
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find(" rows, a layer takes the processor "), std::string::npos) << log;
}

}  // namespace
}  // namespace weft::backend::on_gpu
