// Training models with experts as users run it: the same curve on any ranks with the load-balance
// loss, readable results, a quantized model with adapters on its attention, and errors that name
// the cause.
#include <gtest/gtest.h>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

using nlohmann::json;

// Sums over ranks and micro-batches have other orders: a relative error of 2^-24 for each of some
// hundred terms, and twice that after an update.
constexpr double kTolerance = 2e-5;

class ExpertsCli : public testing::Test {
  protected:
    void SetUp() override { Write("qwen3moe", DType::kF16); }

    void Write(const std::string& architecture, DType dtype) {
        TinyFile file{.hyper = TrainHyper(architecture), .dtype = dtype};
        model::Moe& moe = file.hyper.moe;
        moe.experts = 6;
        moe.used = 2;
        moe.ffn = 96;
        moe.shared_ffn = architecture == "qwen2moe" ? 128 : 0;
        moe.route.renormalise = architecture != "qwen2moe";
        WriteTinyGguf(model_, file);
    }
    Ran Train(const std::string& model, const Words& more) {
        return RunTrain(Words{"train", model, "--data", "synthetic:random-tokens:49:24",
                              "--seq-len", "48", "--json", "--lr", "1e-3", "-t", "1"} +
                        more);
    }
    // Losses, norms and load-balance losses of a successful run.
    std::vector<double> Curve(const std::string& model, const Words& more) {
        return CurveOf(Train(model, more));
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf";
    const Words plain_ = {"--dtype", "f32", "--steps", "4"};
};

// A pass's load-balance loss covers its own rows, so layouts with equally many passes per batch
// agree.
TEST_F(ExpertsCli, TheCurveIsTheSameOnAnyRanks) {
    const Words words = plain_ + Words{"--router-aux-loss", "0.05"};
    const auto one = Curve(model_, words + Words{"--micro-batch", "2", "--grad-accum", "2"});
    ASSERT_EQ(one.size(), 12u);
    EXPECT_LT(one[9], one[0]);
    const Words layouts[] = {
        {"--micro-batch", "2", "--grad-accum", "2", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "2"},
        {"--local", "2", "--micro-batch", "2", "--zero", "3"},
        {"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--tp", "2"},
        {"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--ep", "2"},
        {"--local", "3", "--micro-batch", "2", "--grad-accum", "2", "--ep", "3", "--zero", "3"},
        {"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--ep", "2", "--tensor-split",
         "2,1"},
        {"--local", "4", "--micro-batch", "2", "--ep", "2"},
        {"--local", "4", "--micro-batch", "2", "--ep", "2", "--zero", "2"},
        {"--local", "4", "--micro-batch", "2", "--grad-accum", "2", "--ep", "2", "--pp", "2"},
        {"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--pp", "2"},
        {"--local", "4", "--micro-batch", "2", "--grad-accum", "2", "--ep", "2", "--tp", "4"},
        {"--local", "3", "--micro-batch", "2", "--grad-accum", "2", "--ep", "3",
         "--sequence-parallel", "on", "--recompute", "full"},
        {"--local", "4", "--micro-batch", "2", "--ep", "2", "--zero", "3", "--sequence-parallel",
         "on"}};
    for (const Words& layout : test::Some(layouts, 3, 1)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        ExpectNear(Curve(model_, words + layout), one, kTolerance);
    }
}

// Experts have no adapters, so a stage with only experts has nothing to train.
TEST_F(ExpertsCli, AStageWithoutATargetIsNamed) {
    TinyFile file{.hyper = TrainHyper("qwen3moe"), .dtype = DType::kF16};
    file.hyper.layers = 4;
    file.hyper.moe.experts = 6;
    file.hyper.moe.used = 2;
    file.hyper.moe.ffn = 96;
    file.hyper.moe.route.renormalise = true;
    file.form.dense_layers = 2;
    WriteTinyGguf(model_, file);
    const Words mlp = plain_ + Words{"--lora", "4", "--lora-targets", "mlp"};
    EXPECT_EQ(Train(model_, mlp).status, 0);
    for (const Words& stages :
         {Words{"--local", "2", "--pp", "2"},
          {"--local", "2", "--pp", "2", "--virtual-stages", "2", "--grad-accum", "2"}}) {
        const Ran ran = Train(model_, mlp + stages);
        EXPECT_EQ(ran.status, 1) << ran.err;
        EXPECT_NE(ran.err.find("--lora-targets"), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find("layers 2 to "), std::string::npos) << ran.err;
    }
}

// Adafactor's moments are per expert, and 8-bit Adam's blocks lie within one expert, so they do not
// depend on its rank. (tests/cli/train_optimizer_test.cc derives the tolerances. Experts see few
// tokens, so many squares are near zero, where a code's error is up to half of the number. Hence
// 8-bit Adam uses the bound for cut blocks.)
TEST_F(ExpertsCli, OptimizersOfFewBytesLearnTheSame) {
    const std::pair<const char*, double> kinds[] = {{"adafactor", 4e-5}, {"adam8bit", 1e-3}};
    size_t turn = 0;
    for (const auto& [optimizer, tolerance] : kinds) {
        const Words words = plain_ + Words{"--optimizer", optimizer};
        const auto one = Curve(model_, words + Words{"--micro-batch", "4"});
        const Words layouts[] = {
            {"--local", "2", "--micro-batch", "2", "--zero", "3"},
            {"--local", "3", "--micro-batch", "2", "--grad-accum", "2", "--ep", "3"}};
        for (const Words& layout : test::Some(layouts, 2, turn++)) {
            SCOPED_TRACE(optimizer + testing::PrintToString(layout));
            ExpectNear(Curve(model_, words + layout), one, tolerance);
        }
    }
}

TEST_F(ExpertsCli, SharedExpertsLearnToo) {
    Write("qwen2moe", DType::kF16);
    const auto one = Curve(model_, plain_ + Words{"--micro-batch", "4"});
    ASSERT_EQ(one.size(), 8u);
    for (const Words& layout : {Words{"--local", "2", "--micro-batch", "4", "--ep", "2"},
                                Words{"--local", "2", "--micro-batch", "2", "--grad-accum", "2",
                                      "--pp", "2", "--recompute", "selective"}}) {
        SCOPED_TRACE(testing::PrintToString(layout));
        ExpectNear(Curve(model_, plain_ + layout), one, kTolerance);
    }
}

// In BF16, ranks' gradient sums are rounded once more (2^-9 of an element). After an update, an
// expert choice may change if two scores are that close, which is so for one of several hundred
// choices; a step has 576. Such a row has 1/200 of the batch's weight and changes the loss little;
// norms and load-balance losses include a few of them fully.
TEST_F(ExpertsCli, NarrowNumbersGiveTheSameCurveNearly) {
    const Words words = {"--dtype", "bf16", "--steps", "4", "--router-aux-loss", "0.05"};
    const auto one = Curve(model_, words + Words{"--micro-batch", "2", "--grad-accum", "2"});
    for (const Words& layout :
         {Words{"--local", "2", "--micro-batch", "2", "--zero", "3"},
          Words{"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--ep", "2"}}) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const auto other = Curve(model_, words + layout);
        ASSERT_EQ(other.size(), one.size());
        for (size_t i = 0; i < one.size(); ++i) {
            const double most = i < 3 ? 0x1p-9 : i % 3 == 0 ? 0x1p-8 : 0x1p-6;
            EXPECT_TRUE(std::abs(other[i] / one[i] - 1) <= most)
                << "number " << i << ": " << other[i] << ", expected " << one[i];
        }
    }
}

// A checkpoint of two expert groups continues on one rank, and the result runs from a GGUF file and
// from a folder.
TEST_F(ExpertsCli, WhatWasLearntGoesOnAndRuns) {
    const std::string whole = dir_ / "whole", part = dir_ / "part", on = dir_ / "on";
    const Words batch = {"--micro-batch", "2", "--dtype", "f32", "--schedule", "constant"};
    const auto all =
        Curve(model_, batch + Words{"--steps", "4", "--output-dir", whole, "--save-format", "hf"});
    ASSERT_EQ(Curve(model_, batch + Words{"--steps", "2", "--ep", "2", "--local", "2",
                                          "--output-dir", part, "--save-every", "2"})
                  .size(),
              4u);
    const auto rest = Curve(model_, batch + Words{"--steps", "4", "--resume", part, "--output-dir",
                                                  on, "--save-type", "F32"});
    // (An update changes weights with rounding-only gradients by the whole rate in either
    // direction: after three updates on two layouts the difference was 2e-5.)
    ExpectNear(rest, {all.begin() + 4, all.end()}, 5 * kTolerance);
    const auto logits = [](const std::string& model) {
        const Ran ran = RunWeft({"logits", model, "--tokens", "1,2,3,250", "--all", "--json", "-t",
                                 "1", "--reference"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        return json::parse(ran.out).at("logits").get<std::vector<std::vector<double>>>();
    };
    const auto file = logits(on + "/model.gguf"), folder = logits(whole + "/model");
    ASSERT_EQ(file.size(), folder.size());
    // (The folder is BF16.)
    for (size_t row = 0; row < file.size(); ++row) {
        for (size_t i = 0; i < file[row].size(); ++i) {
            EXPECT_NEAR(file[row][i], folder[row][i], 0.05) << row << " " << i;
        }
    }
}

// Experts of a block type are dequantized one at a time, with the numbers of the same model in
// floats.
TEST_F(ExpertsCli, AdaptersBesideTheAttentionOfAQuantizedModel) {
    const Words lora = {"--lora",  "4", "--lora-targets", "attn", "--dtype", "f32",
                        "--steps", "3", "--lora-alpha",   "16"};
    Write("qwen3moe", DType::kQ8_0);
    const auto quantized = Curve(model_, lora);
    ASSERT_EQ(quantized.size(), 6u);
    ExpectNear(Curve(model_, lora + Words{"--local", "2", "--ep", "2"}), quantized, kTolerance);
    TinyFile file{.hyper = TrainHyper("qwen3moe"), .dtype = DType::kQ8_0, .dequantized = true};
    file.hyper.moe.experts = 6;
    file.hyper.moe.used = 2;
    file.hyper.moe.ffn = 96;
    WriteTinyGguf(model_, file);
    EXPECT_EQ(Curve(model_, lora), quantized);
}

TEST_F(ExpertsCli, ErrorsNameWhatIsWrong) {
    const struct {
        Words words;
        int status;
        const char* expected;
    } cases[] = {{{"--ep", "2", "--tp", "3", "--local", "3"}, 2, "--ep 2 does not divide --tp 3"},
                 {{"--ep", "7", "--local", "7"}, 1, "--ep 7 needs a model with at least that many"},
                 {{"--router-aux-loss", "-1"}, 2, "--router-aux-loss"},
                 {{"--lora", "4", "--lora-targets", "gate_proj"}, 1, "mlp.experts.0.gate_proj"}};
    for (const auto& test : cases) {
        const Ran ran = Train(model_, test.words);
        EXPECT_EQ(ran.status, test.status) << ran.err;
        EXPECT_NE(ran.err.find(test.expected), std::string::npos) << ran.err;
    }
    WriteTinyGguf(model_, {.hyper = TrainHyper(), .dtype = DType::kF16});
    const Ran dense = Train(model_, {"--router-aux-loss", "0.1"});
    EXPECT_EQ(dense.status, 2) << dense.err;
    EXPECT_NE(dense.err.find("has no experts to be balanced"), std::string::npos) << dense.err;
}

}  // namespace
}  // namespace weft::support
