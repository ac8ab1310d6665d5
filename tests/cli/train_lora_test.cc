// LoRA as users run it: the same curve on any ranks, on a quantized model, and after a checkpoint;
// an adapter that can be continued and merged; and errors that name the cause.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Sums over ranks, micro-batches and merged products have other orders: a relative error of 2^-24
// for each of some hundred terms, and twice that after an update.
constexpr double kTrainLoraTolerance = 2e-5;

class LoraCli : public testing::Test {
  protected:
    void SetUp() override { WriteTinyGguf(model_, {.hyper = OddHyper(), .dtype = DType::kQ8_0}); }

    Ran Train(const std::string& model, const Words& more) {
        return RunTrain(Words{"train", model, "--data", "synthetic:random-tokens:49:24",
                              "--seq-len", "48", "--json", "--lr", "1e-2"} +
                        more);
    }
    // Losses and norms of a successful run.
    std::vector<double> Curve(const std::string& model, const Words& more) {
        return CurveOf(Train(model, more));
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf";
    const Words lora_ = {"--lora", "4", "--lora-alpha", "16", "--dtype", "f32", "-t", "1"};
};

TEST_F(LoraCli, TheCurveIsTheSameOnAnyRanks) {
    const Words steps = lora_ + Words{"--steps", "4"};
    const auto one = Curve(model_, steps + Words{"--micro-batch", "4"});
    ASSERT_EQ(one.size(), 8u);
    EXPECT_NE(one[2], one[0]);
    const Words layouts[] = {
        {"--micro-batch", "1", "--grad-accum", "4"},
        {"--micro-batch", "4", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "2"},
        {"--local", "2", "--micro-batch", "2", "--zero", "1"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "2"},
        {"--local", "2", "--micro-batch", "2", "--zero", "3"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2"},
        {"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--pp", "2"},
        {"--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "2", "--recompute", "full"},
        {"--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "2", "--sequence-parallel",
         "on"}};
    for (const Words& layout : test::Some(layouts, 3)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        ExpectNear(Curve(model_, steps + layout), one, kTrainLoraTolerance);
    }
}

// Products read the same floats from both models. (In BF16 a widened embedding is rounded and a
// quantized one is not: a relative error of 2^-9 per number.)
TEST_F(LoraCli, AQuantizedModelGivesTheBitsOfTheWidenedOne) {
    const std::string wide = dir_ / "wide.gguf";
    const Ran ran = RunWeft({"quantize", model_, wide, "F32", "--allow-requantize"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const Words words = {"--lora", "4", "--steps", "3", "-t", "2"};
    const auto packed = Curve(model_, words + Words{"--dtype", "f32"});
    ASSERT_EQ(packed.size(), 6u);
    EXPECT_EQ(packed, Curve(wide, words + Words{"--dtype", "f32"}));
    ExpectNear(Curve(model_, words + Words{"--dtype", "bf16"}),
               Curve(wide, words + Words{"--dtype", "bf16"}), 2e-2);
}

TEST_F(LoraCli, BF16IsNear) {
    Words words = {"--lora", "4", "--lora-alpha", "16", "--steps", "4", "--micro-batch", "4"};
    // Operands have 8 bits: a relative error of 2^-9 each, averaged over many.
    ExpectNear(Curve(model_, words + Words{"--dtype", "bf16"}),
               Curve(model_, words + Words{"--dtype", "f32"}), 2e-2);
}

TEST_F(LoraCli, AnAdapterGoesOnAndIsMerged) {
    const std::string out = dir_ / "tuned", merged = dir_ / "merged.gguf";
    const Words output = {"--output-dir", out};
    ASSERT_EQ(Curve(model_, lora_ + Words{"--steps", "4"} + output).size(), 8u);
    EXPECT_FALSE(fs::exists(out + "/model.gguf"));
    const Ran ran = RunWeft({"merge", model_, "--lora", out, "-o", merged, "--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_GT(ran.Json().at("merged"), 0);
    const Words last = {"--steps", "1", "--dtype", "f32"};
    const auto on = Curve(model_, last + Words{"--lora-from", out});
    const auto whole = Curve(merged, last), plain = Curve(model_, last);
    ASSERT_EQ(on.size(), 2u);
    EXPECT_TRUE(std::abs(on[0] / whole.at(0) - 1) <= kTrainLoraTolerance)
        << on[0] << " " << whole[0];
    EXPECT_GT(std::abs(on[0] / plain.at(0) - 1), 100 * kTrainLoraTolerance)
        << "the adapter says nothing";
}

TEST_F(LoraCli, ACheckpointHasTheAdapters) {
    const std::string whole = dir_ / "whole", parts = dir_ / "parts";
    const auto all = Curve(model_, lora_ + Words{"--steps", "6", "--output-dir", whole});
    ASSERT_EQ(all.size(), 12u);
    const Words words = lora_ + Words{"--output-dir", parts, "--save-every", "3"};
    ASSERT_EQ(Curve(model_, words + Words{"--steps", "3"}).size(), 6u);
    const auto rest = Curve(model_, words + Words{"--steps", "6", "--resume", "auto"});
    EXPECT_EQ(rest, std::vector<double>(all.begin() + 6, all.end()));
}

// New data may come with another seed, because the checkpoint has the adapters.
TEST_F(LoraCli, NewDataMayHaveAnotherSeed) {
    const std::string data = dir_ / "data.jsonl";
    WriteQuestions(data, 24, true);
    const Words words =
        Words{"train", model_,         "--data", data,   "--no-shuffle", "--seq-len",
              "96",    "--save-every", "2",      "--lr", "1e-2",         "--json"} +
        lora_;
    const Words begin = {"--steps", "2"};
    const Words on = {"--steps", "4", "--resume", "auto", "--new-data"};
    std::vector<std::vector<double>> curves;
    for (const std::string seed : {"5", "6"}) {
        const Words folder = {"--output-dir", dir_ / ("seed" + seed)};
        ASSERT_EQ(CurveOf(RunTrain(words + folder + begin)).size(), 4u);
        curves.push_back(CurveOf(RunTrain(words + folder + on + Words{"--seed", seed})));
        EXPECT_EQ(curves.back().size(), 4u);
    }
    EXPECT_EQ(curves[0], curves[1]);
}

TEST_F(LoraCli, NamesInvalidFlags) {
    const struct {
        Words words;
        int status;
        const char* said;
    } cases[] = {{{"--lora", "0", "--lora-from", dir_ / "none"}, 1, "adapter_config.json"},
                 {{"--lora", "-1"}, 2, "--lora -1"},
                 {{"--lora", "0"}, 2, "--lora 0: expected a rank of 1 or more"},
                 {{"--lora", "4", "--lora-targets", "q_proj, nose"}, 2, "has 'nose'"},
                 {{"--lora", "4", "--lora-targets", "q_proj,nose"}, 2, "no layer of"},
                 {{"--lora", "4", "--lora-alpha", "0"}, 2, "--lora-alpha 0"},
                 {{"--lora", "4", "--lora-alpha", "1e38"}, 2, "at most 1048576"},
                 {{"--lora-alpha", "16"}, 2, "--lora-alpha needs --lora RANK"},
                 {{"--lora_alpha=16"}, 2, "--lora-alpha needs --lora RANK"},
                 {{"--lora_target", "q_proj"}, 2, "--lora-targets needs --lora RANK"},
                 {{"--rslora"}, 2, "--rslora needs --lora RANK"},
                 {{"--use_rslora=True"}, 2, "--rslora needs --lora RANK"},
                 {{"--lora_dropout", "0"}, 2, "--lora-dropout needs --lora RANK"},
                 {{"--stage", "dpo"}, 2, "--loss dpo, ipo, orpo"},
                 {{"--rlhf_type=dpo"}, 2, "--loss dpo, ipo, orpo"}};
    for (const auto& [words, status, said] : cases) {
        const Ran ran = Train(model_, Words{"--steps", "1"} + words);
        EXPECT_EQ(ran.status, status) << ran.err;
        EXPECT_NE((ran.err + ran.out).find(said), std::string::npos) << ran.err << ran.out;
    }
}

}  // namespace
}  // namespace weft::support
