// Every architecture on a Vulkan device against the logits (of encoders, the hidden states) of
// transformers.
#include <gtest/gtest.h>

#include <cmath>

#include "base/text.h"
#include "model/model.h"
#include "support/architecture_case.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "vulkan/usable_device.h"

namespace weft::backend::on_gpu {
namespace {

class VulkanArchitectures : public testing::TestWithParam<model::Family> {};

INSTANTIATE_TEST_SUITE_P(All, VulkanArchitectures, testing::ValuesIn(model::Families()),
                         [](const auto& one) {
                             std::string name(one.param.architecture);
                             std::ranges::replace(name, '-', '_');
                             return name;
                         });

double ErrorOf(std::span<const float> got, std::span<const float> want) {
    double error = 0, size = 0;
    for (size_t i = 0; i < want.size(); ++i) {
        error += std::pow(double{got[i]} - double{want[i]}, 2);
        size += std::pow(double{want[i]}, 2);
    }
    return std::sqrt(error / size);
}

// The bound is twice that of tests/backend/families_test.cc, because GPU functions are less exact.
void CheckCase(const std::string& name) {
    SCOPED_TRACE(name);
    constexpr double kBound = 2 * 5.4e-5;
    const support::ArchitectureCase c(name);
    ASSERT_NE(c.source, nullptr);
    model::BuildOptions options;
    options.kv_dtype = DType::kF32;
    options.context = 64;
    options.target = TheVulkan()->info().target;
    options.target.float64_reductions = false;
    const model::Hyper hyper = model::ReadHyper(*c.source).value();
    const model::ShardPlan plan = model::PlanShards(hyper, *c.source, {}).value();
    if (hyper.encoder) options.outputs = model::Outputs::kHidden;
    const auto program = model::BuildProgram(hyper, plan.shards[0], *c.source, options);
    ASSERT_TRUE(program.ok()) << program.error().message;
    support::LoadedRank rank(TheVulkan(), *program, *c.source);
    if (hyper.token_types > 1) rank.set_second(c.second);
    const size_t vocab = c.logits.size() / c.tokens.size();
    for (const size_t piece : {size_t{64}, size_t{5}, size_t{1}}) {
        if (hyper.encoder && piece < c.tokens.size()) continue;  // a step has whole texts
        const std::vector<float> got = rank.Logits(c.tokens, piece);
        ASSERT_EQ(got.size(), c.logits.size());
        for (size_t row = 0; row < c.tokens.size(); ++row) {
            const double error = ErrorOf(std::span(got).subspan(row * vocab, vocab),
                                         std::span(c.logits).subspan(row * vocab, vocab));
            EXPECT_FALSE(!(error <= kBound)) << "row " << row << " by " << piece << ": " << error;
        }
    }
}

// Daily, the first case of each architecture.
TEST_P(VulkanArchitectures, EqualTransformers) {
    WEFT_NEEDS_VULKAN();
    std::string list(GetParam().tested);
    std::erase(list, ',');
    const std::vector<std::string_view> cases = Words(list);
    ASSERT_FALSE(cases.empty());
    for (const std::string_view name : cases) {
        if (name == cases[0] || weft::test::Nightly()) CheckCase(std::string(name));
    }
}

}  // namespace
}  // namespace weft::backend::on_gpu
