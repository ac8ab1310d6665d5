// Logits and gradients of tiny models in float32, by the reference kernels, against PyTorch's
// (tests/data/gradients.safetensors, made by tools/make_gradient_golden.py).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <string_view>

#include "support/paths.h"
#include "support/training.h"

namespace weft::support {
namespace {

// The tensors of a safetensors file whose names begin with `prefix`, without it.
Tensors ReadGolden(const std::string& prefix) {
    std::ifstream file(support::TestData("/gradients.safetensors"), std::ios::binary);
    const std::string bytes{std::istreambuf_iterator<char>(file), {}};
    EXPECT_GT(bytes.size(), 8u) << "no golden file";
    uint64_t header_bytes = 0;
    std::memcpy(&header_bytes, bytes.data(), 8);
    const auto header = nlohmann::json::parse(bytes.substr(8, header_bytes));
    Tensors tensors;
    for (const auto& [name, info] : header.items()) {
        if (!name.starts_with(prefix)) continue;
        const size_t begin = info.at("data_offsets").at(0), end = info.at("data_offsets").at(1);
        std::vector<float> data((end - begin) / sizeof(float));
        std::memcpy(data.data(), bytes.data() + 8 + header_bytes + begin, end - begin);
        tensors[name.substr(prefix.size())] = Cast<double>(data);
    }
    return tensors;
}

struct GradientGoldenCase {
    const char* name;
    const char* architecture;
    bool tied;
    bool experts = false;
    model::Hyper Hyper() const {
        if (experts) return TinyExpertHyper(architecture);
        const bool gemma = std::string_view(architecture).starts_with("gemma");
        return gemma ? TinyGemmaHyper(architecture, tied) : TinyHyper(architecture, tied);
    }
};
void PrintTo(const GradientGoldenCase& model, std::ostream* out) {
    *out << model.name;
}

class Golden : public testing::TestWithParam<GradientGoldenCase> {};

INSTANTIATE_TEST_SUITE_P(PyTorch, Golden,
                         testing::Values(GradientGoldenCase{"llama", "llama", false},
                                         GradientGoldenCase{"llamaTied", "llama", true},
                                         GradientGoldenCase{"qwen2Tied", "qwen2", true},
                                         GradientGoldenCase{"qwen3", "qwen3", false},
                                         GradientGoldenCase{"mixtral", "llama", false, true},
                                         GradientGoldenCase{"qwen3moe", "qwen3moe", false, true},
                                         GradientGoldenCase{"gemma2Tied", "gemma2", true},
                                         GradientGoldenCase{"gemma3Tied", "gemma3", true}),
                         [](const auto& test) { return std::string(test.param.name); });

// Rounding: a value is the end of some 20 ops in a row forward and as many backward, each a sum of
// at most 50 products, whose error grows like sqrt(50) * 2^-24 = 4e-7 of the largest; 40 of them in
// the same direction make 1.7e-5.
constexpr double kTolerance = 1.7e-5;

void Check(const GradientGoldenCase& model, const model::Layout& layout) {
    const model::Hyper hyper = model.Hyper();
    const TinySource source(hyper);
    const Batch batch = MakeBatch(hyper, {5, 1, 4});
    Tensors expected = ReadGolden(std::string(model.name) + "/");
    Training<float> training(hyper, source, layout);
    training.Run(batch);
    EXPECT_LE(RelativeError(Cast<double>(training.Logits()), expected.at("logits")), kTolerance);
    expected.erase("logits");
    std::erase_if(expected, [](const auto& entry) { return entry.first.starts_with("balance"); });
    const Tensors gradients = training.Gradients(1e-4);
    EXPECT_EQ(gradients.size(), expected.size());
    for (const auto& [name, gradient] : expected) {
        ASSERT_TRUE(gradients.contains(name)) << name;
        EXPECT_LE(RelativeError(gradients.at(name), gradient), kTolerance) << name;
    }
}

// The load-balance loss of experts, over all layers together, on however many stages they are.
void CheckBalance(const GradientGoldenCase& model, const model::Layout& layout) {
    const model::Hyper hyper = model.Hyper();
    const TinySource source(hyper);
    Batch batch = MakeBatch(hyper, {5, 1, 4});
    std::ranges::fill(batch.dlogits, 0.0);
    batch.dbalance = 1;
    for (const program::Recompute recompute :
         {program::Recompute::kNone, program::Recompute::kFull}) {
        Training<float> training(hyper, source, layout, {}, recompute, true);
        training.Run(batch);
        const std::string prefix = std::string(model.name) + "/balance";
        EXPECT_LE(RelativeError({training.Balance()}, ReadGolden(prefix).at("")), kTolerance);
        const Tensors gradients = training.Gradients(1e-4);
        for (const auto& [name, gradient] : ReadGolden(prefix + "/")) {
            ASSERT_TRUE(gradients.contains(name)) << name;
            EXPECT_LE(RelativeError(gradients.at(name), gradient), kTolerance) << name;
        }
    }
}

TEST_P(Golden, OneRank) {
    Check(GetParam(), {});
}
TEST_P(Golden, TwoTensorRanks) {
    Check(GetParam(), {2, 1, {}, {}});
}
TEST_P(Golden, ThreeTensorRanksTwoStages) {
    Check(GetParam(), {3, 2, {}, {}});
}
TEST_P(Golden, TwoExpertGroupsTwoStages) {
    if (!GetParam().experts) return;
    Check(GetParam(), {2, 2, {}, {}, 2});
}
TEST_P(Golden, LoadBalance) {
    if (!GetParam().experts) return;
    CheckBalance(GetParam(), {});
    CheckBalance(GetParam(), {2, 2, {}, {}, 2});
}

}  // namespace
}  // namespace weft::support
