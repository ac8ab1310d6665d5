// Every op is lowered on Vulkan devices, or a row here gives the reason. This needs no device: an
// op without a reason in WhyNotLowered and without a Lower() does not link.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "backend/gpu/dry_run.h"
#include "backend/gpu/gpu_device.h"
#include "backend/gpu/lower/lower.h"
#include "program/program.h"
#include "shaders/shaders.h"

namespace weft::backend::on_gpu {
namespace {

using program::OpKind;

#define WEFT_WHY(name) WhyNotLowered<program::name>(),
constexpr std::array<const char*, program::kOpKinds> kWhyNot = {WEFT_OPS(WEFT_WHY)};
#undef WEFT_WHY

// Besides transfers, which the executable runs.
struct NotLowered {
    OpKind kind;
    const char* why;
};
constexpr NotLowered kNotLowered[] = {
    {OpKind::kLinearCrossEntropy, "it has to be expanded first (program/loss.h)"},
    {OpKind::kLinearCrossEntropyGrad, "it has to be expanded first (program/loss.h)"},
};

TEST(VulkanLowering, EveryOpIsLoweredOrHasAReason) {
    for (size_t i = 0; i < program::kOpKinds; ++i) {
        const auto kind = static_cast<OpKind>(i);
        const auto* const row = std::ranges::find(kNotLowered, kind, &NotLowered::kind);
        std::string_view expected = row == std::end(kNotLowered) ? "" : row->why;
        if (program::RowOf(kind).Is(program::Trait::kTransfer)) {
            expected = "a transfer; it is not computed";
        }
        const std::string_view why = kWhyNot[i] == nullptr ? "" : kWhyNot[i];
        EXPECT_EQ(why, expected) << program::OpName(kind);
    }
}

// The kernel that multiplies `rows` rows by a Q4_K weight on an AMD GPU.
KernelUse MatvecOf(int32_t rows, int64_t outputs, int64_t cols) {
    gpu::Description gpu = CommonGpu();
    gpu.subgroup = gpu.most_subgroup = 64;
    gpu.fast_integer_dot = true;
    program::Program program;
    const auto x = program.AddValue({"x", DType::kF32, {program::kTokens, cols}});
    const auto w =
        program.AddValue({"w", DType::kQ4_K, {outputs, cols}, program::Storage::kWeight});
    program.Emit(program::MatMul{}, {x, w}, "y", {program::kTokens, outputs});
    StepShape shape;
    shape.rows = rows;
    const auto kernels = KernelsOf(program, Fusion(), gpu, {&shape, 1}, {ArithmeticOf(gpu, {})});
    if (!kernels.ok()) return {kernels.error().message, {}, 0, 0};
    return *std::ranges::find(*kernels, "matvec_dot_q4_k", &KernelUse::shader);
}

// On a GPU with subgroups of 32 and 64, an expert's short rows do not leave 40 of 64 lanes idle,
// and several rows of x share the weight's decoded codes with more outputs.
TEST(VulkanLowering, MatvecsFillSubgroupsOfAmd) {
    if (shaders::Names().empty()) GTEST_SKIP() << "built without shaders";
    for (const auto& [cols, lanes] : {std::pair{768, 32u}, {2816, 32u}, {4096, 64u}, {1536, 64u}}) {
        const KernelUse kernel = MatvecOf(1, 2048, cols);
        EXPECT_EQ(kernel.constants[0], lanes) << cols;
        EXPECT_EQ(kernel.subgroup, lanes) << cols;
    }
    for (const int32_t rows : {1, 2, 4, 8}) {
        EXPECT_EQ(MatvecOf(rows, 4096, 4096).constants[2], 4u) << rows;
        EXPECT_EQ(MatvecOf(rows, 512, 4096).constants[2], 2u) << rows;
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
