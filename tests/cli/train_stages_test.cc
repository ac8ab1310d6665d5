// weft train --virtual-stages: stages with several model chunks train like one rank.
#include <gtest/gtest.h>

#include <csignal>

#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;

class TrainStages : public testing::Test {
  protected:
    void SetUp() override {
        WriteQuestions(data_, 24);
        Write(false);
    }
    // Seven layers: uneven on two or three stages with any number of chunks.
    void Write(bool tied) const {
        model::Hyper hyper = TrainHyper();
        hyper.layers = 7;
        hyper.tied = tied;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
    }

    Words Command(const Words& more) const {
        return Words{"train",   model_, "--data", data_, "--seq-len", "96",  "--json",
                     "--dtype", "f32",  "-t",     "1",   "--lr",      "1e-3"} +
               more;
    }
    // The output lines of a successful run.
    std::vector<json> Lines(const Words& more) const { return LinesOf(RunTrain(Command(more))); }
    void ExpectTheCurveOfOneRank(const Words& common, const std::vector<Words>& layouts) const {
        const auto one = Lines(common + Words{"--micro-batch", "4"});
        ASSERT_GE(one.size(), 2u);
        for (const Words& layout : test::Some(layouts, 3)) {
            SCOPED_TRACE(testing::PrintToString(layout));
            ExpectAlike(one, Lines(common + Words{"--micro-batch", "1"} + layout), 2e-5);
        }
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl";
};

// 2e-5: as in train_test.cc. Also evaluations: forward passes of any number of micro-batches.
TEST_F(TrainStages, TheCurveIsThatOfOneRank) {
    ExpectTheCurveOfOneRank(
        {"--steps", "4", "--test-split", "0.2", "--eval-every", "2"},
        {{"--local", "2", "--grad-accum", "4", "--pp", "2", "--virtual-stages", "2"},
         {"--local", "2", "--grad-accum", "4", "--pp", "2", "--virtual-stages", "3", "--recompute",
          "full"},
         {"--local", "4", "--grad-accum", "2", "--pp", "2", "--virtual-stages", "2", "--zero", "1"},
         {"--local", "4", "--grad-accum", "2", "--pp", "2", "--virtual-stages", "3", "--zero", "3",
          "--overlap", "on", "--recompute", "selective"},
         {"--local", "4", "--grad-accum", "4", "--pp", "2", "--virtual-stages", "2", "--tp", "2",
          "--sequence-parallel", "on"},
         {"--local", "2", "--grad-accum", "4", "--pp", "2", "--virtual-stages", "2",
          "--tensor-split", "2,1"}});
}

// The chunks run over more than two stages, and an epoch's last batch has a number of micro-batches
// that the stages do not divide: of 24 sequences 15 and 9, in micro-batches of five (the last one
// of four).
TEST_F(TrainStages, ThreeStagesAndBatchesThatDoNotDivide) {
    const Words pipeline = {"--local", "3", "--pp", "3", "--virtual-stages", "2", "--epochs", "1"};
    const std::pair<const char*, Words> cuts[] = {
        {"9", {"--micro-batch", "1", "--grad-accum", "9"}},
        {"6", {"--micro-batch", "2", "--grad-accum", "3"}},
        {"15", {"--micro-batch", "5", "--grad-accum", "3"}}};
    for (const auto& [batch, cut] : test::Some(cuts, 3, 2)) {
        const auto one = Lines({"--epochs", "1", "--micro-batch", batch});
        ASSERT_GE(one.size(), 3u);
        ExpectAlike(one, Lines(pipeline + cut), 2e-5);
    }
}

TEST_F(TrainStages, TiedEmbeddingsLearnAsOne) {
    Write(true);
    ExpectTheCurveOfOneRank(
        {"--steps", "3"},
        {{"--local", "2", "--grad-accum", "4", "--pp", "2", "--virtual-stages", "2"},
         {"--local", "4", "--grad-accum", "2", "--pp", "2", "--virtual-stages", "2", "--zero", "3"},
         {"--local", "4", "--grad-accum", "2", "--pp", "2", "--virtual-stages", "3", "--zero",
          "1"}});
}

TEST_F(TrainStages, AdaptersLearnAsOnOneRank) {
    ExpectTheCurveOfOneRank(
        {"--steps", "3", "--lora", "4"},
        {{"--local", "2", "--grad-accum", "4", "--pp", "2", "--virtual-stages", "2"},
         {"--local", "4", "--grad-accum", "4", "--pp", "2", "--virtual-stages", "3", "--tp", "2"}});
}

// Router loads are passed with the rows from chunk to chunk: the auxiliary loss equals that of one
// rank with the same micro-batches.
TEST_F(TrainStages, RoutersAreBalancedOverChunks) {
    TinyFile file{.hyper = TrainHyper("qwen3moe"), .dtype = DType::kF16};
    file.hyper.layers = 5;
    file.hyper.moe.experts = 6;
    file.hyper.moe.used = 2;
    file.hyper.moe.ffn = 96;
    file.hyper.moe.route.renormalise = true;
    WriteTinyGguf(model_, file);
    const Words common = {"--steps",      "3", "--micro-batch",     "2",
                          "--grad-accum", "2", "--router-aux-loss", "0.05"};
    const auto one = Lines(common);
    ASSERT_TRUE(one.front().contains("aux_loss"));
    for (const Words& layout :
         {Words{"--local", "2", "--pp", "2", "--virtual-stages", "2"},
          Words{"--local", "4", "--pp", "2", "--virtual-stages", "2", "--ep", "2"}}) {
        SCOPED_TRACE(testing::PrintToString(layout));
        ExpectAlike(one, Lines(common + layout), 2e-5);
    }
}

// Any layout reads the checkpoint of any other and continues as if undisturbed.
TEST_F(TrainStages, CheckpointsAreReadByOtherLayouts) {
    const Words common = {"--output-dir", dir_ / "one", "--steps", "6"};
    const auto whole = Lines(common + Words{"--micro-batch", "4"});
    const std::string out = dir_ / "cut";
    const Words layouts[] = {{"--local", "2", "--micro-batch", "2", "--zero", "1"},
                             {"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp",
                              "2", "--virtual-stages", "2"},
                             {"--local", "2", "--micro-batch", "4", "--tp", "2"}};
    int64_t steps = 0;
    for (const Words& layout : layouts) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const auto lines =
            Lines(Words{"--output-dir", out, "--steps", std::to_string(steps + 2), "--save-every",
                        "2", "--resume", "auto", "--schedule", "constant"} +
                  layout);
        ASSERT_EQ(lines.size(), 3u);
        const auto begin = whole.begin() + static_cast<ptrdiff_t>(steps);
        std::vector<json> expected(begin, begin + 2);
        expected.push_back(whole.back());
        ExpectAlike(expected, lines, 2e-5);
        steps += 2;
    }
}

// Messages of 8 MB, far more than a socket buffer: stages send on separate threads while they
// receive on the same connection. (Shared memory has no such limit and gives the same bits.)
TEST_F(TrainStages, LargeActivationsGoOverSockets) {
    model::Hyper hyper = TrainHyper();
    hyper.layers = 4;
    hyper.hidden = 2048;
    hyper.ffn = 128;
    hyper.heads = hyper.kv_heads = 2;
    hyper.context = 1024;
    WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
    const Words common = {"train",     model_, "--data",        "synthetic:random-tokens:1025:16",
                          "--seq-len", "1024", "--micro-batch", "1",
                          "--steps",   "2",    "--json",        "-t",
                          "1",         "--lr", "1e-4"};
    const Words layouts[] = {
        {"--local", "2", "--pp", "2", "--grad-accum", "2", "--virtual-stages", "2"},
        {"--local", "4", "--tp", "2", "--zero", "3", "--overlap", "on"},
        {"--local", "2", "--pp", "2", "--grad-accum", "2"}};
    for (const Words& layout : test::Some(layouts, 3)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        std::vector<json> losses[2];
        for (const bool sockets : {false, true}) {
            const Ran ran =
                RunTrain(common + layout + Words{"--transport", sockets ? "tcp" : "shm"});
            ASSERT_EQ(ran.status, 0) << ran.err;
            std::istringstream out(ran.out);
            for (std::string line; std::getline(out, line);) {
                const json parsed = json::parse(line);
                if (parsed.contains("loss")) losses[sockets].push_back(parsed.at("loss"));
            }
        }
        EXPECT_EQ(losses[0].size(), 2u);
        EXPECT_EQ(losses[1], losses[0]);
    }
}

TEST_F(TrainStages, ALostRankIsNamed) {
    for (const int signal : {SIGKILL, SIGSTOP}) {
        Weft weft(Words{"train",
                        model_,
                        "--data",
                        data_,
                        "--seq-len",
                        "96",
                        "--steps",
                        "1000000",
                        "--local",
                        "3",
                        "-t",
                        "1",
                        "--json",
                        "--timeout-ms",
                        std::to_string(test::TimeoutMs(500)),
                        "--pp",
                        "3",
                        "--virtual-stages",
                        "2",
                        "--grad-accum",
                        "6",
                        "--no-output"});
        const Deadline begun = test::Limit(20'000);
        test::Prints(weft, "\"step\":3,", begun);
        ASSERT_FALSE(begun.expired()) << weft.Err();
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        ASSERT_EQ(ranks.size(), 2u);
        ASSERT_EQ(::kill(ranks[0], signal), 0);
        const Ran ran = weft.Wait();
        EXPECT_EQ(ran.status, 3) << ran.err;
        EXPECT_NE(ran.err.find("was lost during"), std::string::npos) << ran.err;
        EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
    }
}

TEST_F(TrainStages, ErrorsSayWhatWouldDo) {
    const struct {
        Words words;
        int status;
        const char* expected;
    } cases[] = {
        {{"--local", "2", "--pp", "2", "--virtual-stages", "2", "--grad-accum", "5"},
         2,
         "5 is 2 x 2 + 1: use 4 or 6"},
        {{"--local", "3", "--pp", "3", "--virtual-stages", "2"}, 2, "1 is 0 x 3 + 1: use 3"},
        {{"--local", "2", "--virtual-stages", "2"}, 2, "--virtual-stages 2 with --pp 1"},
        {{"--local", "2", "--pp", "2", "--virtual-stages", "4", "--grad-accum", "2"},
         1,
         "7 layers cannot be cut into --pp 2 x --virtual-stages 4 = 8 chunks: use "
         "--virtual-stages 3"}};
    for (const auto& test : cases) {
        const Ran ran = RunTrain(Command(test.words));
        EXPECT_EQ(ran.status, test.status) << ran.err;
        EXPECT_NE(ran.err.find(test.expected), std::string::npos) << ran.err;
    }
}

}  // namespace
}  // namespace weft::support
