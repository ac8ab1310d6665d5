// `weft train --cp`: ranks divide the rows of sequences and the heads of attention, and the curve
// is that of one rank, in every layout and with every kind of attention that trains.
#include <gtest/gtest.h>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

// Sums over ranks and micro-batches have other orders: as in train_test.cc.
constexpr double kTolerance = 2e-5;

class ContextCli : public testing::Test {
  protected:
    void SetUp() override {
        WriteQuestions(data_, 24);
        Write("llama");
    }
    void Write(const std::string& architecture) {
        WriteTinyGguf(model_, {.hyper = TrainHyper(architecture), .dtype = DType::kF16});
    }
    Ran Train(const Words& more) {
        return RunTrain(Words{"train", model_, "--data", data_, "--seq-len", length_, "--json",
                              "--lr", "1e-3", "-t", "1"} +
                        more);
    }
    void ExpectTheCurveOfOneRank(const Words& common, std::span<const Words> layouts) {
        const auto one = LinesOf(Train(common + Words{"--micro-batch", "4"}));
        ASSERT_GE(one.size(), 4u);
        EXPECT_LT(one[3].at("loss"), one[0].at("loss"));
        for (const Words& layout : layouts) {
            SCOPED_TRACE(testing::PrintToString(layout));
            ExpectAlike(one, LinesOf(Train(common + layout)), kTolerance);
        }
    }

    test::TempDir dir_;
    std::string length_ = "96";
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl";
    const Words plain_ = {"--dtype", "f32", "--steps", "4"};
};

TEST_F(ContextCli, TheCurveIsThatOfOneRank) {
    const Words layouts[] = {
        {"--cp", "2", "--micro-batch", "4"},
        {"--local", "4", "--cp", "2", "--micro-batch", "2", "--zero", "3"},
        {"--cp", "2", "--micro-batch", "1", "--grad-accum", "4", "--zero", "2", "--overlap", "on"},
        {"--cp", "3", "--micro-batch", "4", "--recompute", "full"},
        {"--cp", "2", "--tp", "2", "--micro-batch", "4"},
        {"--cp", "2", "--pp", "2", "--micro-batch", "1", "--grad-accum", "4"},
        {"--local", "8", "--cp", "2", "--tp", "2", "--micro-batch", "2", "--zero", "1",
         "--recompute", "selective"},
        {"--cp", "4", "--micro-batch", "2", "--grad-accum", "2"}};
    const std::vector<Words> some = test::Some(layouts, 3);
    ExpectTheCurveOfOneRank(plain_ + Words{"--test-split", "0.2", "--eval-every", "2"}, some);
}

// Sequences of several samples, of one sample, and of fewer tokens than ranks.
TEST_F(ContextCli, PackedSequencesSeeOnlyThemselves) {
    const Words layouts[] = {{"--cp", "2", "--micro-batch", "4"},
                             {"--cp", "3", "--micro-batch", "2", "--grad-accum", "2"}};
    ExpectTheCurveOfOneRank(plain_ + Words{"--no-pack"}, layouts);
    length_ = "160";
    ExpectTheCurveOfOneRank(plain_, layouts);
}

// Norms of heads, windows, soft caps and experts: attention differs, rows do not.
TEST_F(ContextCli, EveryKindOfAttention) {
    const char* const architectures[] = {"qwen3", "gemma2", "gemma3", "phi3", "olmo2"};
    const Words layout[] = {{"--cp", "2", "--micro-batch", "4"}};
    for (const char* architecture : test::Some(architectures, 2)) {
        SCOPED_TRACE(architecture);
        Write(architecture);
        ExpectTheCurveOfOneRank(plain_, layout);
    }
}

TEST_F(ContextCli, AdaptersAndNarrowTypesTrain) {
    const Words layout[] = {{"--cp", "2", "--micro-batch", "4"}};
    ExpectTheCurveOfOneRank(plain_ + Words{"--lora-rank", "4"}, layout);
    const Words narrow = {"--dtype", "bf16", "--steps", "4"};
    const auto one = LinesOf(Train(narrow + Words{"--micro-batch", "4"}));
    ExpectAlike(one, LinesOf(Train(narrow + layout[0])), 2e-2);
}

TEST_F(ContextCli, WhatItCannotDoIsSaidAtTheStart) {
    const std::pair<Words, const char*> cases[] = {
        {{"--cp", "64"}, "ranks divide the heads of attention"},
        {{"--cp", "2", "--local", "3"}, "--cp 2"},
        {{"--cp", "-1"}, "--cp"},
        {{"--cp", "2", "--tp", "2", "--sequence-parallel", "on"}, "both divide the rows"},
        {{"--cp", "2", "--sample", "hello"}, "--sample with --cp 2"}};
    for (const auto& [words, expected] : cases) {
        SCOPED_TRACE(testing::PrintToString(words));
        const Ran ran = Train(plain_ + words);
        EXPECT_NE(ran.status, 0);
        EXPECT_NE(ran.err.find(expected), std::string::npos) << ran.err;
    }
}

}  // namespace
}  // namespace weft::support
