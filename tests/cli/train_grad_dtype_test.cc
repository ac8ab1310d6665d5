// --grad-dtype: the same curve on any ranks and stages with float32 accumulation, the choice of
// auto, and DeepSpeed's grad_accum_dtype.
#include <gtest/gtest.h>

#include <algorithm>

#include "support/hf_folder.h"
#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

using nlohmann::json;

// Bounds of docs/numbers.md for two layouts. Tensor ranks also round their partial sums.
constexpr double kTrainGradDtypeTolerance = 0x1p-9, kTensorRanksTolerance = 0x1p-8;

class GradTypeCli : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = TrainHyper(), .dtype = DType::kF16});
        WriteQuestions(data_, 24);
    }
    Ran Train(const Words& more) const {
        return RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96", "--json", "-t",
                              "1", "--lr", "1e-3"} +
                        more);
    }
    std::vector<json> Lines(const Words& more) const { return LinesOf(Train(more)); }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl";
};

TEST_F(GradTypeCli, TheCurveIsTheSameOnAnyRanks) {
    const Words layouts[] = {
        {"--micro-batch", "1", "--grad-accum", "4"},
        {"--micro-batch", "4", "--recompute", "selective"},
        {"--micro-batch", "2", "--grad-accum", "2", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "2"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "1"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "2"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "2", "--overlap",
         "on"},
        {"--local", "4", "--micro-batch", "1", "--zero", "3", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"},
        {"--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "3"},
        {"--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "2", "--sequence-parallel",
         "on"}};
    size_t turn = 0;
    for (const char* dtype : {"bf16", "f16"}) {
        ++turn;
        const Words wide = {"--dtype", dtype, "--grad-dtype", "f32", "--steps", "3"};
        const auto one = Lines(wide + Words{"--micro-batch", "4"});
        ASSERT_EQ(one.size(), 4u);
        EXPECT_EQ(one.back().at("grad_dtype"), "f32");
        for (const Words& layout : layouts) {
            if (!test::InTurn(turn++, 4)) continue;
            SCOPED_TRACE(dtype + testing::PrintToString(layout));
            const bool tensor_ranks = std::ranges::find(layout, "--tp") != layout.end();
            ExpectAlike(one, Lines(wide + layout),
                        tensor_ranks ? kTensorRanksTolerance : kTrainGradDtypeTolerance);
        }
    }
}

// Tied tables on two stages, experts, and every optimizer.
TEST_F(GradTypeCli, OfEveryKindOfWeight) {
    model::Hyper tied = TrainHyper();
    tied.tied = true;
    WriteTinyGguf(model_, {.hyper = tied, .dtype = DType::kF16});
    const Words wide = {"--grad-dtype", "f32", "--micro-batch", "2",
                        "--grad-accum", "2",   "--steps",       "3"};
    for (const char* optimizer : {"adamw", "sgd", "adafactor", "adam8bit"}) {
        SCOPED_TRACE(optimizer);
        const Words words = wide + Words{"--optimizer", optimizer};
        ExpectAlike(Lines(words), Lines(words + Words{"--local", "2", "--pp", "2"}),
                    kTrainGradDtypeTolerance);
    }
}

TEST_F(GradTypeCli, AutoTakesFloat32WhereManyAreAddedUp) {
    const auto taken = [&](const Words& more) {
        return Lines(more + Words{"--micro-batch", "1", "--steps", "1"}).back().at("grad_dtype");
    };
    EXPECT_EQ(taken({"--grad-accum", "8"}), "bf16");
    EXPECT_EQ(taken({"--grad-accum", "9"}), "f32");
    EXPECT_EQ(taken({"--grad-accum", "5", "--local", "2"}), "f32");
    EXPECT_EQ(taken({"--grad-accum", "9", "--local", "2", "--tp", "2"}), "f32");
    EXPECT_EQ(taken({"--grad-accum", "9", "--grad-dtype", "bf16"}), "bf16");
    EXPECT_EQ(taken({"--dtype", "f32"}), "f32");
    const Ran refused = Train({"--dtype", "f32", "--grad-dtype", "bf16", "--steps", "1"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("--grad-dtype bf16 with --dtype f32"), std::string::npos)
        << refused.err;
}

// Checkpoints are the same with either type.
TEST_F(GradTypeCli, CheckpointsGoOnEitherWay) {
    const Words save = {"--output-dir", dir_ / "out", "--save-every", "2", "--micro-batch", "2"};
    (void)Lines(save + Words{"--grad-dtype", "f32", "--steps", "2"});
    const auto on = Lines(save + Words{"--grad-dtype", "bf16", "--resume", "auto", "--steps", "3"});
    ASSERT_EQ(on.size(), 2u);
    EXPECT_EQ(on[0].at("step"), 3);
}

TEST_F(GradTypeCli, DeepSpeedsGradAccumDtypeIsObeyed) {
    const auto config = [&](const char* accumulate, const char* precision) {
        const json file = {{precision, {{"enabled", true}}},
                           {"data_types", {{"grad_accum_dtype", accumulate}}}};
        WriteText(dir_ / "ds.json", file.dump());
        return dir_ / "ds.json";
    };
    const auto run = [&](const std::string& file, const Words& more = {}) {
        return Train(Words{"--ds-config", file, "--steps", "1"} + more);
    };
    const auto gradients = [&](const Ran& ran) {
        return JsonLines(ran.out).at(0).at("config").at("gradients");
    };
    EXPECT_EQ(gradients(run(config("fp32", "bf16"))), "f32");
    EXPECT_EQ(gradients(run(config("bf16", "bf16"), {"--grad-accum", "16"})), "bf16");
    EXPECT_EQ(gradients(run(config("fp16", "fp16"), {"--grad-accum", "16"})), "f16");
    const Ran other = run(config("fp16", "bf16"));
    EXPECT_EQ(gradients(other), "f32");
    EXPECT_NE(other.err.find("grad_accum_dtype: fp16 is ignored"), std::string::npos) << other.err;
    const Ran refused = run(config("fp32", "bf16"), {"--grad-dtype", "bf16"});
    EXPECT_EQ(refused.status, 2);
    EXPECT_NE(refused.err.find("grad_accum_dtype"), std::string::npos) << refused.err;
}

}  // namespace
}  // namespace weft::support
