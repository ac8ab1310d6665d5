// Twenty steps of a small Llama against PyTorch's losses and gradient norms.
#include "train/trainer.h"

#include <gtest/gtest.h>

#include "support/temp_dir.h"
#include "support/train_golden.h"

namespace weft::train {
namespace {

using support::TrainGolden;

// Two right answers differ by 2e-6 in these curves, the least of eight planted mistakes by 5e-4.
constexpr double kTolerance = 5e-5;

struct Case {
    const char* curve;
    int64_t micro_batch;
    int threads;
};

class Curve : public testing::TestWithParam<Case> {};

INSTANTIATE_TEST_SUITE_P(PyTorch, Curve,
                         testing::Values(Case{"full", 8, 2}, Case{"full", 3, 1},
                                         Case{"full_masked_warmup", 2, 2},
                                         Case{"lora", 8, 2}, Case{"lora", 3, 1}),
                         [](const auto& test) {
                             return fmt::format("{}By{}", test.param.curve, test.param.micro_batch);
                         });

TEST_P(Curve, IsTheSame) {
    const test::TempDir folder;
    TrainGolden::WriteFolder(folder.path());
    const nlohmann::json curve = TrainGolden::Curves().at(GetParam().curve);
    auto cluster = cluster::Cluster::Launch({}, "");
    ASSERT_TRUE(cluster.ok()) << cluster.error().message;
    TrainerOptions options;
    options.model = folder.path();
    options.threads = GetParam().threads;
    options.sequence = TrainGolden::kLength - 1;
    options.micro_batch = GetParam().micro_batch;
    options.adam = {0.9, 0.95, 1e-8, 0.1};
    if (std::string_view(GetParam().curve) == "lora") {
        TrainGolden::WriteAdapter(folder.path());
        options.lora.from = folder.path();
    }
    auto trainer = Trainer::Make(options, **cluster);
    ASSERT_TRUE(trainer.ok()) << trainer.error().message;
    const Batch batch = TrainGolden::MakeBatch(curve.at("prompt_lengths"));
    const std::vector<double> losses = curve.at("losses"), norms = curve.at("grad_norms");
    for (size_t step = 0; step < losses.size(); ++step) {
        const auto report = (*trainer)->Step(batch, curve.at("lr").at(step));
        ASSERT_TRUE(report.ok()) << report.error().message;
        const double loss_error = std::abs(report->loss / losses[step] - 1);
        const double norm_error = std::abs(report->grad_norm / norms[step] - 1);
        EXPECT_TRUE(loss_error <= kTolerance) << step << ": " << report->loss;
        EXPECT_TRUE(norm_error <= kTolerance) << step << ": " << report->grad_norm;
    }
}

}  // namespace
}  // namespace weft::train
