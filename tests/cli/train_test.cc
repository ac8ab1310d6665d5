// weft train as users run it: the same curve on any number of ranks, a result that runs, and errors
// that name the cause.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/limits.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Shorter than a pass, but enough for ranks to find each other.
std::string ShortMs() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return "2000";
#else
    return "400";
#endif
}

class TrainCli : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = TrainHyper(), .dtype = DType::kF16});
        WriteQuestions(data_, 24);
    }
    Ran Train(const Words& more) {
        return RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96", "--json",
                              "--dtype", dtype_, "-t", "1"} +
                        more);
    }
    // The output lines of a successful run.
    std::vector<json> Lines(const Words& more) { return LinesOf(Train(more)); }

    test::TempDir dir_;
    std::string dtype_ = "f32";
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl";
};

// Sums over ranks and micro-batches have other orders: a relative error of 2^-24 for each of some
// hundred terms, and twice that after an update.
TEST_F(TrainCli, TheCurveIsTheSameOnAnyRanks) {
    const auto one =
        Lines({"--steps", "4", "--micro-batch", "2", "--grad-accum", "2", "--lr", "1e-3"});
    ASSERT_EQ(one.size(), 5u);
    EXPECT_TRUE(one[4].at("done"));
    EXPECT_LT(one[3].at("loss"), one[0].at("loss"));
    const Words layouts[] = {
        {"--micro-batch", "4"},
        {"--local", "2", "--micro-batch", "2"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "1"},
        {"--local", "4", "--micro-batch", "1", "--zero", "1"},
        {"--micro-batch", "4", "--recompute", "selective"},
        {"--micro-batch", "4", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "2"},
        {"--local", "3", "--micro-batch", "2", "--grad-accum", "2", "--zero", "3", "--tp", "3"},
        {"--local", "4", "--micro-batch", "1", "--zero", "3", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2"},
        {"--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "3"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"},
        {"--local", "3", "--micro-batch", "1", "--grad-accum", "4", "--pp", "3"},
        {"--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "2"},
        {"--local", "4", "--micro-batch", "2", "--grad-accum", "2", "--pp", "2", "--tp", "2"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2", "--tensor-split", "2,1"},
        {"--local", "3", "--micro-batch", "2", "--grad-accum", "2", "--tp", "3",
         "--sequence-parallel", "on"},
        {"--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "3", "--recompute", "full",
         "--sequence-parallel", "on"},
        {"--local", "4", "--micro-batch", "1", "--grad-accum", "4", "--tp", "2", "--pp", "2",
         "--recompute", "selective", "--sequence-parallel", "on"}};
    for (const Words& layout : test::Some(layouts, 2)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        ExpectAlike(one, Lines(Words{"--steps", "4", "--lr", "1e-3"} + layout), 2e-5);
    }
}

// Overlapped sums equal the others to the bit.
TEST_F(TrainCli, OverlapChangesNothing) {
    const Words layouts[] = {{"--local", "2", "--zero", "3"},
                             {"--local", "3", "--zero", "2", "--grad-accum", "2"},
                             {"--local", "4", "--zero", "3", "--pp", "2", "--grad-accum", "2"},
                             {"--local", "4", "--zero", "3", "--tp", "2"}};
    for (const Words& layout : test::Some(layouts, 3)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const Words common = Words{"--steps", "3", "--micro-batch", "1", "--lr", "1e-3"} + layout;
        ExpectAlike(Lines(common + Words{"--overlap", "off"}),
                    Lines(common + Words{"--overlap", "on"}), 0);
    }
}

// Biases of K and V for heads that both ranks hold.
TEST_F(TrainCli, BiasesOfSharedHeadsLearnAsOne) {
    WriteTinyGguf(model_, {.hyper = TrainHyper("qwen2"), .dtype = DType::kF16});
    const auto one = Lines({"--steps", "4", "--micro-batch", "4", "--lr", "1e-3"});
    for (const Words& layout :
         {Words{"--local", "2", "--micro-batch", "4", "--tp", "2"},
          Words{"--local", "2", "--micro-batch", "4", "--tp", "2", "--sequence-parallel", "on"}}) {
        SCOPED_TRACE(testing::PrintToString(layout));
        ExpectAlike(one, Lines(Words{"--steps", "4", "--lr", "1e-3"} + layout), 2e-5);
    }
}

// Tied embeddings on two stages train as one.
TEST_F(TrainCli, TiedEmbeddingsLearnAsOneOnTwoStages) {
    model::Hyper hyper = TrainHyper();
    hyper.tied = true;
    WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
    const auto one = Lines({"--steps", "4", "--micro-batch", "4", "--lr", "1e-3"});
    const Words layouts[] = {
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"},
        {"--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "3"},
        {"--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "1"}};
    for (const Words& layout : layouts) {
        SCOPED_TRACE(testing::PrintToString(layout));
        ExpectAlike(one, Lines(Words{"--steps", "4", "--lr", "1e-3"} + layout), 2e-5);
    }
}

// Root mean square of relative differences between the losses and norms of two sets of curves,
// after the first update.
double Apart(const std::vector<std::vector<json>>& some,
             const std::vector<std::vector<json>>& others) {
    double sum = 0, count = 0;
    for (size_t i = 0; i < some.size(); ++i) {
        for (size_t step = 1; step + 1 < some[i].size(); ++step) {
            for (const char* field : {"loss", "grad_norm"}) {
                const double off = some[i][step].at(field).get<double>() /
                                       others[i][step].at(field).get<double>() -
                                   1;
                sum += off * off;
                ++count;
            }
        }
    }
    return std::sqrt(sum / count);
}

// In BF16, ranks' gradient sums are rounded once more: 2^-9 of an element, and much less of the
// norm of thousands of them, whose errors are independent. After an update the weights differ in
// bits beyond BF16's, so some round to another neighbor: from then on two runs are two random draws
// of BF16's rounding. The size of a draw's effect is the distance between one BF16 process and
// float32. Two independent draws differ by sqrt(2) times that; the bound of twice leaves the same
// again for chance.
TEST_F(TrainCli, NarrowNumbersGiveTheSameCurveNearly) {
    const Words seeds = {"1", "2", "3"};
    const auto curves = [&](const std::string& dtype, const Words& layout) {
        dtype_ = dtype;
        std::vector<std::vector<json>> all;
        for (const std::string& seed : seeds) {
            all.push_back(Lines(Words{"--steps", "6", "--lr", "1e-3", "--seed", seed} + layout));
        }
        return all;
    };
    const auto wide = curves("f32", {"--micro-batch", "4"});
    const auto one = curves("bf16", {"--micro-batch", "4"});
    const double draw = Apart(one, wide);
    EXPECT_GT(draw, 0x1p-12);  // checks that BF16 runs
    EXPECT_LT(draw, 0x1p-6);
    const Words layouts[] = {
        {"--local", "2", "--micro-batch", "2", "--zero", "3"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "2"},
        {"--local", "2", "--micro-batch", "2"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"},
        {"--micro-batch", "4", "--recompute", "full"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2", "--sequence-parallel", "on"}};
    for (const Words& layout : test::Some(layouts, 3)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const auto many = curves("bf16", layout);
        for (size_t i = 0; i < many.size(); ++i) {
            ASSERT_EQ(many[i].size(), one[i].size());
            ExpectAlike({one[i][0], one[i][1]}, {many[i][0], many[i][1]}, 0x1p-11);
        }
        EXPECT_LE(Apart(many, one), 2 * draw);
        EXPECT_LE(Apart(many, wide), 2 * draw);
    }
}

TEST_F(TrainCli, WhatWasLearntRuns) {
    const std::string out = dir_ / "tuned";
    const auto lines = Lines({"--epochs", "2", "--output-dir", out, "--save-type", "Q8_0"});
    ASSERT_GE(lines.size(), 3u);
    const Ran ran = RunWeft({"run", out + "/model.gguf", "-p", "which a", "-n", "4", "-t", "1"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    std::ifstream log(out + "/log.csv");
    std::string head;
    std::getline(log, head);
    EXPECT_EQ(head, "step,loss,grad_norm,lr,tokens,tokens_per_s,perplexity,mean_token_accuracy");
}

// The folder runs like the file and can be trained further.
TEST_F(TrainCli, TheResultMayBeAHuggingFaceFolder) {
    const std::string gguf = dir_ / "gguf", hf = dir_ / "hf";
    ASSERT_GE(Lines({"--steps", "2", "--output-dir", gguf}).size(), 3u);
    ASSERT_GE(Lines({"--steps", "2", "--output-dir", hf, "--save-format", "hf"}).size(), 3u);
    const auto logits = [](const std::string& model) {
        const Ran ran = RunWeft({"logits", model, "--tokens", "1,2,3,250", "--all", "--json", "-t",
                                 "1", "--reference"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        return json::parse(ran.out).at("logits");
    };
    EXPECT_TRUE(logits(gguf + "/model.gguf") == logits(hf + "/model"));
    model_ = hf + "/model";
    ASSERT_GE(Lines({"--steps", "1", "--output-dir", hf + "/on", "--save-format", "hf"}).size(),
              2u);
}

// One rank has all the work, for far longer than a collective waits for its peers.
TEST_F(TrainCli, RanksOfUnevenWorkWaitForEachOther) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Ran ran = RunTrain({"train",
                              model_,
                              "--data",
                              "synthetic:random-tokens:129:2",
                              "--seq-len",
                              "128",
                              "--micro-batch",
                              "1",
                              "--grad-accum",
                              "4",
                              "--epochs",
                              "1",
                              "--local",
                              "2",
                              "-t",
                              "1",
                              "--json",
                              "--timeout-ms",
                              ShortMs(),
                              "--reference",
                              "--dtype",
                              "f32"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_GT(ran.seconds, 0.8) << "too quick to show anything";
}

TEST_F(TrainCli, ALostRankIsNamed) {
    const struct {
        int signal;
        Words layout;
    } cases[] = {{SIGKILL, {}},
                 {SIGSTOP, {}},
                 {SIGKILL, {"--zero", "3"}},
                 {SIGSTOP, {"--zero", "3", "--overlap", "on"}},
                 {SIGSTOP, {"--tp", "3"}},
                 {SIGKILL, {"--pp", "3", "--grad-accum", "4"}},
                 {SIGSTOP, {"--pp", "3", "--grad-accum", "4"}}};
    for (const auto& [signal, layout] : test::Some(cases, 3)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const std::string timeout_ms = std::to_string(test::TimeoutMs(500));
        Weft weft(Words{"train", model_, "--data", data_, "--seq-len", "96", "--steps", "1000000",
                        "--no-output", "--local", "3", "-t", "1", "--json", "--timeout-ms",
                        timeout_ms} +
                  layout);
        const Deadline begun = test::Limit(20'000);
        test::Prints(weft, "\"step\":3,", begun);
        ASSERT_FALSE(begun.expired()) << weft.Err();
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        ASSERT_EQ(ranks.size(), 2u);
        ASSERT_EQ(::kill(ranks[0], signal), 0);
        const int64_t begin_ns = NowNs();
        const Ran ran = weft.Wait();
        EXPECT_LE(NowNs() - begin_ns, test::LimitNs(4000));
        EXPECT_EQ(ran.status, 3) << ran.err;
        EXPECT_NE(ran.err.find("was lost during"), std::string::npos) << ran.err;
        EXPECT_EQ(std::ranges::count(ran.err, '\n'), 1) << ran.err;
    }
}

// Reported before training, not after days of it.
TEST_F(TrainCli, FullDiskIsReportedBeforeTraining) {
    const std::string out = dir_ / "small", err = dir_ / "err";
    fs::create_directory(out);
    const std::string train = WeftProgram() + " train " + model_ + " --data " + data_ +
                              " --seq-len 96 --steps 3 -t 1 --output-dir " + out;
    const std::string script = "mount -t tmpfs -o size=40k tmpfs " + out + " || exit 77; " + train;
    const int status = WEXITSTATUS(
        std::system(("unshare -m bash -c '" + script + "' 2> " + err + " || exit $?").c_str()));
    std::ifstream file(err);
    const std::string said{std::istreambuf_iterator<char>(file), {}};
    if (said.find("unshare") != said.npos || status == 77) GTEST_SKIP() << said;
    EXPECT_EQ(status, 1) << said;
    EXPECT_NE(said.find("The disk is too full"), said.npos) << said;
    EXPECT_EQ(said.find("step 1"), said.npos) << said;
}

// However far from the start of the data.
TEST_F(TrainCli, ABadRecordOfTheTestPartIsFoundBeforeTheFirstUpdate) {
    const std::string path = dir_ / "odd.jsonl";
    const Words data = {model_, "--data", path, "--test-split", "0.5"};
    // (The side of a record depends on its bytes.)
    for (int i = 0; i < 20; ++i) {
        WriteQuestions(path, 24, true);
        std::ofstream(path, std::ios::app) << json{{"question", "which " + std::to_string(i)}};
        const Ran seen = RunWeft(Words{"train", "data", "inspect"} + data +
                                 Words{"--prompt-type", "1", "--skip-bad", "--json"});
        ASSERT_EQ(seen.status, 0) << seen.err;
        if (json::parse(seen.out).at("test").at("bad") == 1) break;
    }
    const Ran ran = RunTrain(Words{"train"} + data +
                             Words{"--steps", "4", "--eval-every", "2", "--seq-len", "96",
                                   "--no-pack", "--json", "-t", "1"});
    EXPECT_NE(ran.status, 0);
    EXPECT_NE(ran.err.find("line 25"), ran.err.npos) << ran.err;
    EXPECT_EQ(ran.out.find("\"step\""), ran.out.npos) << ran.out;
}

// Requested evaluations are not skipped silently.
TEST_F(TrainCli, EmptyTestPartIsReportedAndRejectedWithEvalEvery) {
    const Words words = {"train",  model_,    "--data", data_,       "--test-split",
                         "1e-9",   "--steps", "1",      "--seq-len", "96",
                         "--json", "-t",      "1"};
    const Ran told = RunTrain(words);
    EXPECT_EQ(told.status, 0) << told.err;
    EXPECT_NE(told.err.find("--test-split 1e-09 has no sample"), told.err.npos) << told.err;
    const Ran refused = RunTrain(words + Words{"--eval-every", "1"});
    EXPECT_EQ(refused.status, 2) << refused.err;
    EXPECT_NE(refused.err.find("Use a larger --test-split"), refused.err.npos) << refused.err;
    EXPECT_EQ(refused.out.find("\"step\""), refused.out.npos) << refused.out;
}

// Answers beyond --seq-len are not trained on, and that is reported; also with --steps.
TEST_F(TrainCli, OmittedRecordsAreReported) {
    std::ofstream file(dir_ / "long.jsonl");
    for (int i = 0; i < 40; ++i) {
        const json row = {{"question", "what"},
                          {"context", std::string(i < 36 ? 300 : 3, 'c')},
                          {"answer", "this"}};
        file << row.dump() << "\n";
    }
    file.close();
    const Words words = {"train",  model_, "--data", dir_ / "long.jsonl", "--seq-len", "96",
                         "--json", "-t",   "1"};
    for (const Words& more : {Words{"--epochs", "2"}, {"--steps", "3"}}) {
        const Ran ran = RunTrain(words + more);
        const json last = LinesOf(ran).back();
        EXPECT_EQ(last.at("samples"), json::parse(R"({"used": 4, "truncated": 36, "too_long": 0,
                                                      "no_loss": 36, "bad": 0})"));
        const std::string told = "36 of 40 samples are left out: 36 have nothing to learn";
        const size_t at = ran.err.find(told);
        EXPECT_NE(at, ran.err.npos) << ran.err;
        EXPECT_EQ(ran.err.find(told, at + 1), ran.err.npos) << ran.err;
        EXPECT_NE(ran.err.find("--long split"), ran.err.npos) << ran.err;
    }
    const Ran split = RunTrain(words + Words{"--steps", "3", "--long", "split"});
    EXPECT_EQ(split.err.find("left out"), split.err.npos) << split.err;
}

TEST_F(TrainCli, ErrorsNameWhatIsWrong) {
    const struct {
        Words words;
        int status;
        const char* expected;
    } cases[] = {
        {{"--zero", "7"}, 2, "--zero"},
        {{"--tp", "2", "--dp", "3", "--local", "4"}, 2, "--tp 2 --dp 3 needs 6 or a multiple"},
        {{"--schedule", "zigzag"}, 2, "zigzag"},
        {{"--micro-batch", "0"}, 2, "--micro-batch 0"},
        {{"--betas", "0.9"}, 2, "--betas"},
        {{"--betas", "0.9,1"}, 2, "--betas 0.9,1"},
        {{"--grad-accum", "99999999999"}, 2, "--grad-accum 99999999999"},
        {{"--save-type", "Q9_9"}, 2, "Q9_9"},
        {{"--save-format", "zip"}, 2, "zip"},
        {{"--save-format", "hf", "--save-type", "Q8_0"}, 2, "F32, F16 or BF16"},
        {{"--lr", "1e9", "--clip", "0", "--steps", "50"}, 1, "diverged"}};
    for (const auto& test : cases) {
        const Ran ran = Train(test.words);
        EXPECT_EQ(ran.status, test.status) << ran.err;
        EXPECT_NE(ran.err.find(test.expected), std::string::npos) << ran.err;
    }
}

}  // namespace
}  // namespace weft::support
