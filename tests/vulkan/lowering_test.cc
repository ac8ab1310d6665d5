// Every op is lowered on Vulkan devices, or a row here says why not. This needs no device: an op
// without a reason in WhyNotLowered and without a Lower() does not link.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <string_view>

#include "backend/gpu/lower/lower.h"
#include "program/program.h"

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
    {OpKind::kStreamWeights, "GPUs have no kernel for it"},
    {OpKind::kMergeStreams, "GPUs have no kernel for it"},
    {OpKind::kMixStreams, "GPUs have no kernel for it"},
    {OpKind::kPoolWindows, "GPUs have no kernel for it"},
    {OpKind::kWindowAttention, "GPUs have no kernel for it"},
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

}  // namespace
}  // namespace weft::backend::on_gpu
