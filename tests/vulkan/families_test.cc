// Every architecture on a Vulkan device against the logits (of encoders, the hidden states) of
// transformers.
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "base/text.h"
#include "coll/comm.h"
#include "model/model.h"
#include "support/architecture_case.h"
#include "support/loaded_rank.h"
#include "support/nightly.h"
#include "support/op_forms.h"
#include "support/ranks.h"
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
void ExpectLikeTransformers(const std::vector<float>& got, const support::ArchitectureCase& c,
                            size_t piece) {
    constexpr double kBound = 2 * 5.4e-5;
    ASSERT_EQ(got.size(), c.logits.size());
    const size_t vocab = c.logits.size() / c.tokens.size();
    for (size_t row = 0; row < c.tokens.size(); ++row) {
        const double error = ErrorOf(std::span(got).subspan(row * vocab, vocab),
                                     std::span(c.logits).subspan(row * vocab, vocab));
        EXPECT_FALSE(!(error <= kBound)) << "row " << row << " by " << piece << ": " << error;
    }
}

// A case's model, and its Programs for a number of tensor ranks.
struct CaseModel {
    support::ArchitectureCase c;
    model::Hyper hyper;
    explicit CaseModel(const std::string& name) : c(name) {
        if (c.source != nullptr) hyper = model::ReadHyper(*c.source).value();
    }
    std::vector<program::Program> Programs(int tp) const {
        model::BuildOptions options;
        options.kv_dtype = DType::kF32;
        options.context = 64;
        options.target = TheVulkan()->info().target;
        options.target.float64_reductions = false;
        if (hyper.encoder) options.outputs = model::Outputs::kHidden;
        return support::Build(hyper, *c.source, {tp, 1, {}, {}}, options);
    }
    // Steps of encoders have whole texts.
    std::vector<size_t> Pieces() const {
        return hyper.encoder ? std::vector<size_t>{64} : std::vector<size_t>{64, 5, 1};
    }
    std::vector<float> Logits(const std::shared_ptr<Device>& device,
                              const program::Program& program, size_t piece,
                              const Communicators& groups = {}) const {
        support::LoadedRank rank(device, program, *c.source);
        if (hyper.token_types > 1) rank.set_second(c.second);
        return rank.Logits(c.tokens, piece, groups);
    }
};

void CheckCase(const std::string& name) {
    SCOPED_TRACE(name);
    const CaseModel model(name);
    ASSERT_NE(model.c.source, nullptr);
    const std::vector<program::Program> programs = model.Programs(1);
    ASSERT_EQ(programs.size(), 1u);
    for (const size_t piece : model.Pieces()) {
        ExpectLikeTransformers(model.Logits(TheVulkan(), programs[0], piece), model.c, piece);
    }
}

// Two tensor ranks, each with its own device.
void CheckRanks(const std::string& name) {
    SCOPED_TRACE(name);
    const CaseModel model(name);
    ASSERT_NE(model.c.source, nullptr);
    const std::vector<program::Program> programs = model.Programs(2);
    ASSERT_EQ(programs.size(), 2u);
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, size_t{1} << 20).value();
    std::vector<std::vector<float>> got(2);
    weft::test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const std::vector<int> ranks = {0, 1};
        const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
        const auto comm = coll::Comm::Make(fabric, ranks, channel, 60'000).value();
        const auto r = static_cast<size_t>(fabric.rank);
        got[r] = model.Logits(OpenVulkan(), programs[r], 64, support::OneGroup(*comm).groups);
    });
    ExpectLikeTransformers(got[0], model.c, 64);
    EXPECT_EQ(got[0], got[1]) << "tensor ranks differ";
}

std::string FirstCase(const model::Family& family) {
    return std::string(family.tested.substr(0, family.tested.find(',')));
}

std::set<std::string> FormsOf(const model::Family& family) {
    return support::OpForms(CaseModel(FirstCase(family)).Programs(1)[0]);
}

// Architectures whose first cases have every form of an op.
std::set<std::string_view> DailyArchitectures() {
    const std::vector<model::Family> families = model::Families();
    std::vector<std::set<std::string>> forms;
    for (const model::Family& family : families) forms.push_back(FormsOf(family));
    const std::vector<bool> chosen = support::FewWithAllForms(std::move(forms));
    std::set<std::string_view> daily;
    for (size_t i = 0; i < families.size(); ++i) {
        if (chosen[i]) daily.insert(families[i].architecture);
    }
    return daily;
}

TEST(VulkanDaily, HasEveryFormOfAnOp) {
    WEFT_NEEDS_VULKAN();
    const std::set<std::string_view> few = DailyArchitectures();
    std::set<std::string> all, daily;
    for (const model::Family& family : model::Families()) {
        const std::set<std::string> forms = FormsOf(family);
        all.insert(forms.begin(), forms.end());
        if (few.contains(family.architecture)) daily.insert(forms.begin(), forms.end());
    }
    EXPECT_GT(all.size(), 50u);
    EXPECT_EQ(daily, all);
}

TEST_P(VulkanArchitectures, EqualTransformers) {
    WEFT_NEEDS_VULKAN();
    static const std::set<std::string_view> kDaily = DailyArchitectures();
    SKIP_TO_NIGHT_UNLESS(kDaily.contains(GetParam().architecture));
    std::string list(GetParam().tested);
    std::erase(list, ',');
    const std::vector<std::string_view> cases = Words(list);
    ASSERT_FALSE(cases.empty());
    for (const std::string_view name : cases) {
        if (name == cases[0] || weft::test::Nightly()) CheckCase(std::string(name));
    }
}

// Nightly, and daily those whose sums over ranks other families lack.
TEST_P(VulkanArchitectures, TensorRanksEqualTransformers) {
    WEFT_NEEDS_VULKAN();
    SKIP_TO_NIGHT_UNLESS(GetParam().architecture == "gemma3n");
    CheckRanks(FirstCase(GetParam()));
}

}  // namespace
}  // namespace weft::backend::on_gpu
