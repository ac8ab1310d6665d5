// LoRA on any subset of a model's matrices: if the layers before an op have nothing to train, no
// gradient flows through it, and no values are kept for a gradient.
#include <gtest/gtest.h>

#include <cmath>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

// As in train_lora_test.cc.
constexpr double kTrainLoraTargetsTolerance = 2e-5;

const char* const kModules[] = {"q_proj",    "k_proj",  "v_proj",   "o_proj",
                                "gate_proj", "up_proj", "down_proj"};

class LoraTargets : public testing::Test {
  protected:
    // Four layers: as many as chunks of two stages with two virtual stages each.
    void SetUp() override { Write("llama", DType::kQ8_0); }
    void Write(const std::string& architecture, DType dtype) {
        TinyFile file{.hyper = TrainHyper(architecture), .dtype = dtype};
        file.hyper.layers = 4;
        if (architecture == "qwen2moe") {
            model::Moe& moe = file.hyper.moe;
            moe.experts = 6;
            moe.used = 2;
            moe.ffn = 96;
            moe.shared_ffn = 128;
        }
        WriteTinyGguf(model_, file);
    }
    // Losses and norms of a successful run.
    std::vector<double> Curve(const std::string& targets, const Words& more) {
        return CurveOf(RunTrain(Words{"train",     model_,
                                      "--data",    "synthetic:random-tokens:25:8",
                                      "--seq-len", "24",
                                      "--json",    "--lr",
                                      "1e-2",      "--lora",
                                      "2",         "--lora-alpha",
                                      "8",         "--lora-targets",
                                      targets,     "-t",
                                      "1",         "--steps",
                                      "2",         "--no-output"} +
                                more));
    }
    // One layout of `of` per day, another for each `turn`.
    void ExpectAnyLayout(const std::string& targets, const std::vector<Words>& layouts,
                         size_t turn = 0, size_t of = 1) {
        SCOPED_TRACE(targets);
        const Words f32 = {"--dtype", "f32"};
        const auto one = Curve(targets, f32 + Words{"--micro-batch", "4", "--recompute", "none"});
        ASSERT_EQ(one.size(), 4u);
        for (size_t i = 0; i < layouts.size(); ++i) {
            if (!test::InTurn(turn + i, of)) continue;
            const Words& layout = layouts[i];
            SCOPED_TRACE(testing::PrintToString(layout));
            ExpectNear(Curve(targets, f32 + layout), one, kTrainLoraTargetsTolerance);
        }
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf";
    const std::vector<Words> layouts_ = {
        {"--micro-batch", "4", "--recompute", "selective"},
        {"--micro-batch", "4", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2", "--sequence-parallel", "on",
         "--recompute", "selective"},
        {"--local", "2", "--micro-batch", "2", "--grad-accum", "2", "--pp", "2", "--recompute",
         "full"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2", "--virtual-stages",
         "2", "--recompute", "selective"},
        {"--local", "2", "--micro-batch", "2", "--zero", "0"},
        {"--local", "2", "--micro-batch", "2", "--zero", "1", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "2", "--zero", "2", "--recompute", "selective"},
        {"--local", "2", "--micro-batch", "2", "--zero", "3", "--recompute", "full"}};
};

TEST_F(LoraTargets, EachModuleOnAnyLayout) {
    for (size_t i = 0; i < std::size(kModules); ++i) {
        ExpectAnyLayout(kModules[i], layouts_, i, 10);
    }
}

TEST_F(LoraTargets, WordsAndPairsOnAnyLayout) {
    size_t turn = 0;
    for (const char* words : {"all", "attn", "mlp", "k_proj,v_proj", "o_proj,down_proj",
                              "gate_proj,up_proj", "v_proj,up_proj"}) {
        ExpectAnyLayout(words, {layouts_[1], layouts_[2], layouts_[4], layouts_[5], layouts_[9]},
                        turn++, 5);
    }
}

// B starts at zero, so the first step's gradients do not depend on which other matrices are
// trained: the squared norms of the parts sum to that of all matrices.
TEST_F(LoraTargets, GradientsAreThoseOfTheWhole) {
    double squares = 0;
    const Words words = {"--dtype", "f32", "--micro-batch", "4"};
    for (const char* module : kModules) {
        const auto part = Curve(module, words);
        ASSERT_EQ(part.size(), 4u) << module;
        EXPECT_GT(part[1], 0) << module;
        squares += part[1] * part[1];
    }
    const auto all = Curve("all", words);
    ASSERT_EQ(all.size(), 4u);
    EXPECT_TRUE(std::abs(std::sqrt(squares) / all[1] - 1) <= kTrainLoraTargetsTolerance)
        << std::sqrt(squares) << " " << all[1];
}

// Operands have 8 (bf16) or 11 bits (f16): a relative error of at most 2^-9 each, averaged over
// many.
TEST_F(LoraTargets, NarrowTypesAreNear) {
    for (const char* module : test::Some(kModules, 3)) {
        SCOPED_TRACE(module);
        const Words batch = {"--micro-batch", "4"};
        const auto wide = Curve(module, batch + Words{"--dtype", "f32"});
        for (const char* dtype : {"bf16", "f16"}) {
            const auto narrow = Curve(module, batch + Words{"--dtype", dtype});
            ASSERT_EQ(narrow.size(), wide.size()) << dtype;
            for (const size_t loss : {0, 2}) {
                EXPECT_TRUE(std::abs(narrow[loss] / wide[loss] - 1) <= 2e-2)
                    << dtype << ": " << narrow[loss] << " " << wide[loss];
            }
        }
    }
}

// Biases on Q, K and V, and experts after attention.
TEST_F(LoraTargets, OtherFamilies) {
    const std::vector<Words> few = {layouts_[1], layouts_[2], layouts_[4]};
    Write("qwen2", DType::kF16);
    size_t turn = 0;
    for (const char* module : {"q_proj", "o_proj", "down_proj"}) {
        ExpectAnyLayout(module, few, turn++, 3);
    }
    Write("qwen2moe", DType::kF16);
    for (const char* module : {"v_proj", "o_proj"}) ExpectAnyLayout(module, few, turn++, 3);
}

// Phi-3 has combined matrices: Q, K and V; gate and up.
TEST_F(LoraTargets, MatricesOfSeveral) {
    Write("phi3", DType::kF16);
    size_t turn = 0;
    for (const char* words : {"qkv_proj", "gate_up_proj", "all"}) {
        ExpectAnyLayout(words, layouts_, turn++, 5);
    }
    EXPECT_NE(RunTrain(Words{"train", model_, "--data", "synthetic:random-tokens:25:8", "--lora",
                             "2", "--lora-targets", "q_proj", "--no-output"})
                  .status,
              0);
}

// Plain gradient descent on one batch lowers the loss by the rate times the squared gradient norm,
// averaged over both ends of a step; the rest is of third order in the step. B starts at zero, so A
// has a gradient only after some steps.
TEST_F(LoraTargets, MatricesOfSeveralGoDownTheirGradient) {
    Write("phi3", DType::kF16);
    for (const char* words : {"qkv_proj", "gate_up_proj"}) {
        SCOPED_TRACE(words);
        const double rate = 2e-2;
        const std::vector<double> curve =
            CurveOf(RunTrain({"train",     model_,       "--data", "synthetic:random-tokens:25:4",
                              "--seq-len", "24",         "--json", "--lr",
                              "2e-2",      "--lora",     "2",      "--lora-alpha",
                              "8",         "-t",         "1",      "--lora-targets",
                              words,       "--steps",    "30",     "--micro-batch",
                              "4",         "--dtype",    "f32",    "--optimizer",
                              "sgd",       "--clip",     "0",      "--weight-decay",
                              "0",         "--no-output"}));
        ASSERT_EQ(curve.size(), 60u);
        for (size_t i = 0; i + 2 < curve.size(); i += 2) {
            const double drop = curve[i] - curve[i + 2];
            const double squares = (curve[i + 1] * curve[i + 1] + curve[i + 3] * curve[i + 3]) / 2;
            EXPECT_FALSE(!(std::abs(drop / (rate * squares) - 1) <= 0.03)) << "step " << i / 2;
        }
    }
}

}  // namespace
}  // namespace weft::support
