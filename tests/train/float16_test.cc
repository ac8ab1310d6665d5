// Training in float16 with loss scaling: the curve, overflows, and losses that no scale can fix.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "support/nightly.h"
#include "support/temp_dir.h"
#include "support/train_golden.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

using support::TrainGolden;

class Float16 : public testing::Test {
  protected:
    void SetUp() override {
        TrainGolden::WriteFolder(folder_.path());
        auto cluster = cluster::Cluster::Launch({}, "");
        ASSERT_TRUE(cluster.ok()) << cluster.error().message;
        cluster_ = std::move(*cluster);
    }

    std::unique_ptr<Trainer> Make(DType dtype, const LossScaleOptions& scale = {},
                                  UpdateKind update = UpdateKind::kAdamW) {
        TrainerOptions options;
        options.model = folder_.path();
        options.threads = 2;
        options.sequence = TrainGolden::kLength - 1;
        options.micro_batch = 4;
        options.accumulation = 2;
        options.dtype = dtype;
        options.loss_scale = scale;
        options.update.kind = update;
        if (update == UpdateKind::kSgd) options.update.weight_decay = 0;
        auto trainer = Trainer::Make(options, *cluster_);
        EXPECT_TRUE(trainer.ok()) << trainer.error().message;
        return trainer.ok() ? std::move(*trainer) : nullptr;
    }
    StepReport Step(Trainer& trainer, double rate = kRate) {
        const auto report = trainer.Step(batch_, rate);
        EXPECT_TRUE(report.ok()) << report.error().message;
        return report.ok() ? *report : StepReport{};
    }
    std::vector<StepReport> Steps(Trainer& trainer, int count, double rate = kRate) {
        std::vector<StepReport> reports;
        for (int i = 0; i < count; ++i) reports.push_back(Step(trainer, rate));
        return reports;
    }

    static constexpr double kRate = 1e-3;
    const test::TempDir folder_;
    std::unique_ptr<cluster::Cluster> cluster_;
    const Batch batch_ = TrainGolden::MakeBatch(std::vector<int>(TrainGolden::kSequences, 0));
};

LossScaleOptions Fixed(double scale) {
    LossScaleOptions options;
    options.fixed = scale;
    return options;
}
LossScaleOptions From(double initial) {
    LossScaleOptions options;
    options.initial = initial;
    return options;
}

// docs/numbers.md: a step has an error of at most 2^-11 of a nat, and each update an error of a few
// units (2^-12) of its change of the loss; here eight units of the loss's fall so far.
TEST_F(Float16, TheCurveIsThatOfFloat32Nearly) {
    SKIP_TO_NIGHT_UNLESS(false);  // AnyScaleHasTheSameCurve compares daily
    const auto wide = Make(DType::kF32), half = Make(DType::kF16), brain = Make(DType::kBF16);
    const std::vector<StepReport> expected = Steps(*wide, 20), got = Steps(*half, 20);
    const std::vector<StepReport> coarse = Steps(*brain, 20);
    double doublings = 0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double fall = expected[0].loss - expected[i].loss;
        const double error = std::abs(got[i].loss - expected[i].loss);
        EXPECT_TRUE(error <= 0x1p-11 + 8 * 0x1p-12 * fall) << i << ": " << error;
        EXPECT_EQ(got[i].loss_scale, 65536);
        EXPECT_FALSE(got[i].skipped);
        const double coarse_error = std::abs(coarse[i].loss - expected[i].loss);
        doublings += std::log2((coarse_error + 1e-12) / (error + 1e-12));
    }
    EXPECT_LT(expected.back().loss, expected.front().loss / 2);
    // BF16's unit is 2^3 times float16's, and so is the mean ratio of errors. The ratio of one step
    // is random (the deviation of its log2 is 2.3), and so is that of the largest errors. If
    // float16 were no more precise than BF16, the mean of log2 over 20 steps would be 0.
    doublings /= static_cast<double>(got.size());
    EXPECT_GT(doublings, 1.5) << "no more precise than BF16";
    RecordProperty("doublings", std::to_string(doublings));
    EXPECT_FALSE(expected[0].loss_scale.has_value());
}

// The scale does not matter if no value underflows or overflows: each element of a gradient is
// rounded twice (once per pass), here at other bits. (SGD's updates depend on the size of
// gradients; Adam's do not.)
TEST_F(Float16, AnyScaleHasTheSameCurve) {
    constexpr double kSgdRate = 0.5;
    const auto wide = Make(DType::kF32, {}, UpdateKind::kSgd);
    const std::vector<StepReport> expected = Steps(*wide, 8, kSgdRate);
    EXPECT_LT(expected.back().loss, expected.front().loss - 0.5);
    for (const double scale : test::Some(std::vector{3000.0, 0x1p12}, 2)) {
        const auto half = Make(DType::kF16, Fixed(scale), UpdateKind::kSgd);
        const std::vector<StepReport> got = Steps(*half, 8, kSgdRate);
        for (size_t i = 0; i < got.size(); ++i) {
            const double fall = expected[0].loss - expected[i].loss;
            const double error = std::abs(got[i].loss - expected[i].loss);
            EXPECT_TRUE(error <= 0x1p-11 + 8 * 0x1p-12 * fall) << i << ": " << error;
        }
        EXPECT_TRUE(std::abs(got[0].grad_norm / expected[0].grad_norm - 1) <= 0x1p-10);
    }
}

TEST_F(Float16, StepsThatOverflowChangeNothing) {
    const auto trainer = Make(DType::kF16, Fixed(0x1p40));
    const std::vector<StepReport> reports = Steps(*trainer, 3);
    for (const StepReport& report : reports) {
        EXPECT_TRUE(report.skipped);
        EXPECT_FALSE(std::isfinite(report.grad_norm));
        EXPECT_EQ(report.loss, reports[0].loss);
        EXPECT_EQ(report.loss_scale, 0x1p40);
    }
    EXPECT_EQ(trainer->updates(), 0);
    EXPECT_EQ(trainer->progress().skipped, 3);
}

// Skipped steps leave no trace: the rest equals, to the bit, a run that starts at the final scale.
TEST_F(Float16, TheScaleFallsUntilNothingOverflows) {
    SKIP_TO_NIGHT_UNLESS(false);  // cli/train_float16_test.cc falls daily
    const auto trainer = Make(DType::kF16, From(0x1p40));
    StepReport report = Step(*trainer);
    int skipped = 0;
    for (; report.skipped && skipped < 40; ++skipped) {
        EXPECT_EQ(report.loss_scale, std::ldexp(0x1p40, -skipped));
        report = Step(*trainer);
    }
    ASSERT_GT(skipped, 5);
    EXPECT_EQ(trainer->progress().skipped, skipped);
    const auto straight = Make(DType::kF16, From(std::ldexp(0x1p40, -skipped)));
    for (int i = 0; i < 5; ++i) {
        const StepReport expected = Step(*straight);
        EXPECT_FALSE(report.skipped);
        EXPECT_EQ(report.loss, expected.loss) << i;
        EXPECT_EQ(report.grad_norm, expected.grad_norm) << i;
        EXPECT_EQ(report.loss_scale, expected.loss_scale) << i;
        report = Step(*trainer);
    }
}

// The loss itself overflows: the scale is halved to its minimum; then the error names the op.
TEST_F(Float16, ALossThatIsNoNumberEndsAtTheLowestScale) {
    const auto trainer = Make(DType::kF16, From(4));
    EXPECT_FALSE(Step(*trainer, 1e9).skipped);
    for (const double scale : {4, 2}) {
        const StepReport report = Step(*trainer);
        EXPECT_TRUE(report.skipped);
        EXPECT_EQ(report.loss_scale, scale);
        EXPECT_FALSE(std::isfinite(report.loss));
    }
    const auto ended = trainer->Step(batch_, kRate);
    ASSERT_FALSE(ended.ok());
    EXPECT_EQ(ended.error().code, ErrorCode::kCorrupt);
    for (const char* words :
         {"step 4: the loss is", "a loss scale of 1, which", "rank 0, op ", "--dtype bf16"}) {
        EXPECT_NE(ended.error().message.find(words), std::string::npos) << ended.error().message;
    }
    const auto fixed = Make(DType::kF16, Fixed(4));
    EXPECT_FALSE(Step(*fixed, 1e9).skipped);
    EXPECT_FALSE(fixed->Step(batch_, kRate).ok());
}

}  // namespace
}  // namespace weft::train
