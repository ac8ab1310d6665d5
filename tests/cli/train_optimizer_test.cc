// weft train with each optimizer: the same curve on any ranks, checkpoints that continue, also in
// other layouts, and DeepSpeed's files that name one.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

using nlohmann::json;

class TrainOptimizer : public testing::Test {
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
    // Steps of a successful run: all lines except the last, which is stored.
    std::vector<json> Steps(const Words& more) {
        const Ran ran = Train(more);
        std::vector<json> lines = LinesOf(ran);
        err_ = ran.err;
        if (!lines.empty()) last_ = lines.back();
        std::erase_if(lines, [](const json& line) { return !line.contains("loss"); });
        return lines;
    }
    static void ExpectAlike(const std::vector<json>& one, const std::vector<json>& other,
                            size_t skip, double tolerance) {
        ASSERT_EQ(other.size() + skip, one.size());
        for (size_t i = 0; i < other.size(); ++i) {
            for (const char* field : {"loss", "grad_norm"}) {
                const double expected = one[skip + i].at(field), got = other[i].at(field);
                EXPECT_TRUE(std::abs(got - expected) <= tolerance * std::abs(expected))
                    << field << " of line " << i << ": " << got << " not " << expected;
            }
        }
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl", err_;
    std::string dtype_ = "f32";
    json last_;
};

struct Kind {
    Words flags;
    double cut;   // between layouts that split no matrix
    double cuts;  // between layouts that do
};

// As in tests/cli/train_test.cc, sums have other orders: 2e-5. Adafactor divides gradients by sums
// of their squares, including tiny ones with larger relative errors: twice that. 8-bit Adam's
// numbers jump by a code if a sum's rounding crosses the midpoint between two (1e-4 of elements,
// each by at most an eighth of itself). If a matrix is split over ranks, its blocks differ: each
// number is then off by up to half a step, 1/128 of its block's largest, in either direction, and
// an update by about as much; a mean over thousands of elements shows less than a tenth of that.
const Kind kKinds[] = {{{"--optimizer", "adam", "--weight-decay", "0.1"}, 2e-5, 2e-5},
                       {{"--optimizer", "sgd", "--lr", "0.05"}, 2e-5, 2e-5},
                       {{"--optimizer", "sgd", "--momentum", "0.9", "--lr", "0.05"}, 2e-5, 2e-5},
                       {{"--optimizer", "adafactor", "--scale-parameter"}, 4e-5, 4e-5},
                       {{"--optim", "adamw_8bit"}, 1e-4, 1e-3},
                       {{"--optimizer", "lion", "--lr", "1e-4"}, 2e-5, 2e-5},
                       {{"--optimizer", "schedule-free", "--warmup-steps", "2"}, 2e-5, 2e-5}};

TEST_F(TrainOptimizer, TheCurveIsTheSameOnAnyRanks) {
    const struct {
        Words words;
        bool cuts;
    } layouts[] = {
        {{"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "3"}, false},
        {{"--local", "3", "--micro-batch", "4", "--tp", "3"}, true},
        {{"--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "1"},
         false}};
    size_t turn = 0;
    for (const Kind& kind : kKinds) {
        const Words all = Words{"--steps", "4", "--lr", "1e-3"};
        const bool own_rate = std::ranges::find(kind.flags, "--lr") != kind.flags.end();
        const Words flags = (own_rate ? Words{"--steps", "4"} : all) + kind.flags;
        const auto one = Steps(flags + Words{"--micro-batch", "4"});
        ASSERT_EQ(one.size(), 4u);
        EXPECT_LT(one[3].at("loss"), one[0].at("loss"));
        for (const auto& [words, cuts] : test::Some(layouts, 3, turn++)) {
            SCOPED_TRACE(testing::PrintToString(kind.flags) + testing::PrintToString(words));
            ExpectAlike(one, Steps(flags + words), 0, cuts ? kind.cuts : kind.cut);
        }
    }
}

// Equal to the bit in the same layout, close in another one.
TEST_F(TrainOptimizer, CheckpointsGoOn) {
    const Words from = {"--local", "2", "--micro-batch", "2", "--zero", "3"};
    const Words to = {"--local", "4", "--micro-batch", "1", "--zero", "1"};
    int number = 0;
    for (const Kind& kind : kKinds) {
        SCOPED_TRACE(testing::PrintToString(kind.flags));
        const std::string out = dir_ / ("out" + std::to_string(++number));
        const Words flags = kind.flags + Words{"--steps", "4"};
        const auto straight = Steps(
            flags + from + Words{"--output-dir", out, "--save-every", "2", "--keep-last", "0"});
        const Words resume = {"--resume", out + "/checkpoints/step-00000002"};
        ExpectAlike(straight, Steps(flags + from + resume), 2, 0);
        if (!test::InTurn(static_cast<size_t>(number), 2)) continue;
        ExpectAlike(straight, Steps(flags + to + resume), 2, kind.cut);
    }
}

// Matrices must be whole on a rank: pipeline stages and replicas have them.
TEST_F(TrainOptimizer, MuonNeedsWholeMatrices) {
    const Words flags = {"--optimizer", "muon", "--steps", "4", "--lr", "1e-3"};
    const std::string out = dir_ / "out";
    const Words save = {"--output-dir", out, "--save-every", "2", "--keep-last", "0"};
    const auto one = Steps(flags + Words{"--micro-batch", "4"} + save);
    ASSERT_EQ(one.size(), 4u);
    EXPECT_LT(one[3].at("loss"), one[0].at("loss"));
    const Words resume = {"--resume", out + "/checkpoints/step-00000002"};
    ExpectAlike(one, Steps(flags + Words{"--micro-batch", "4"} + resume), 2, 0);
    ExpectAlike(one, Steps(flags + Words{"--local", "2", "--micro-batch", "2"} + resume), 2, 2e-5);
    ExpectAlike(one,
                Steps(flags + Words{"--local", "2", "--pp", "2", "--micro-batch", "2",
                                    "--grad-accum", "2", "--zero", "1"}),
                0, 2e-5);
    for (const Words& words :
         {Words{"--local", "2", "--tp", "2"}, Words{"--local", "2", "--zero", "1"}}) {
        const Ran ran = Train(flags + words);
        EXPECT_EQ(ran.status, 1) << ran.err;
        EXPECT_NE(ran.err.find("Muon updates whole matrices"), std::string::npos) << ran.err;
    }
}

// The weights that evaluations read, and the result, are the average; training does not notice.
TEST_F(TrainOptimizer, ScheduleFreeEvaluatesAndWritesTheAverage) {
    const Words flags = {"--optimizer", "schedule-free", "--steps",      "4",
                         "--lr",        "1e-2",          "--test-split", "0.3"};
    for (const char* dtype : {"f32", "bf16"}) {
        dtype_ = dtype;
        const std::string out = dir_ / dtype;
        const Words two = flags + Words{"--micro-batch", "2"};
        const auto plain = Steps(two);
        ExpectAlike(plain, Steps(two + Words{"--eval-every", "1"}), 0, 0);
        const auto lines =
            Steps(flags + Words{"--local", "2", "--zero", "2", "--micro-batch", "1", "--eval-every",
                                "1", "--keep-best", "--output-dir", out, "--save-type", "F32"});
        ExpectAlike(plain, lines, 0, dtype_ == "f32" ? 2e-5 : 0.02);
        // The written model has the loss of its evaluation.
        const double best = last_.at("best_eval_loss");
        const Ran ran = RunTrain({"train", out + "/model.gguf", "--data", data_, "--seq-len", "96",
                                  "--json", "--dtype", dtype_, "-t", "1", "--test-split", "0.3",
                                  "--steps", "1", "--lr", "0", "--no-output"});
        const std::vector<json> written = LinesOf(ran);
        ASSERT_FALSE(written.empty()) << ran.err;
        const double got = written.front().at("eval_loss");
        EXPECT_TRUE(std::abs(got - best) <= 1e-5 * best) << got << " not " << best;
    }
}

// An optimizer continues only from its own state; 8-bit Adam's state is Adam's.
TEST_F(TrainOptimizer, ACheckpointOfAnotherOptimizerIsRefused) {
    const std::string out = dir_ / "out";
    ASSERT_EQ(Steps({"--optimizer", "sgd", "--momentum", "0.9", "--steps", "2", "--output-dir", out,
                     "--save-every", "2"})
                  .size(),
              2u);
    const Words resume = {"--steps", "3", "--resume", out};
    const Ran ran = Train(resume);
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("--optimizer sgd, and this command has --optimizer adamw"),
              std::string::npos)
        << ran.err;
    const std::string narrow = dir_ / "narrow";
    ASSERT_EQ(Steps({"--optimizer", "adam8bit", "--steps", "2", "--output-dir", narrow,
                     "--save-every", "2"})
                  .size(),
              2u);
    EXPECT_EQ(Steps({"--steps", "3", "--resume", narrow}).size(), 1u);
}

TEST_F(TrainOptimizer, DeepSpeedsFilesNameOne) {
    const auto by_file = [&](const char* optimizer) {
        std::ofstream(dir_ / "ds.json")
            << R"({"gradient_clipping": 1, "optimizer": )" << optimizer << "}";
        return Steps({"--steps", "3", "--ds-config", dir_ / "ds.json"});
    };
    const auto flags = [&](const Words& words) {
        return Steps(words + Words{"--steps", "3", "--lr", "1e-2"});
    };
    ExpectAlike(flags({"--optimizer", "sgd", "--momentum", "0.5", "--nesterov"}),
                by_file(R"({"type": "SGD", "params": {"lr": 1e-2, "momentum": 0.5,
                            "nesterov": true}})"),
                0, 0);
    ExpectAlike(flags({"--optimizer", "adam", "--weight-decay", "0.5"}),
                by_file(R"({"type": "Adam", "params": {"lr": 1e-2, "adam_w_mode": false,
                            "weight_decay": 0.5}})"),
                0, 0);
    ExpectAlike(flags({"--weight-decay", "0.5"}),
                by_file(R"({"type": "Adam", "params": {"lr": 1e-2, "weight_decay": 0.5}})"), 0, 0);
    ExpectAlike(flags({"--optimizer", "adafactor", "--scale-parameter"}),
                by_file(R"({"type": "Adafactor", "params": {"lr": 1e-2}})"), 0, 0);
    const Ran ran = Train({"--steps", "3", "--ds-config", dir_ / "ds.json", "--optimizer", "sgd"});
    EXPECT_EQ(ran.status, 2);
    EXPECT_NE(ran.err.find("optimizer.type is adafactor, but the command line says"),
              std::string::npos)
        << ran.err;
}

TEST_F(TrainOptimizer, ErrorsNameTheFlag) {
    const std::pair<Words, const char*> cases[] = {
        {{"--optimizer", "rmsprop"}, "--optimizer rmsprop: expected adamw"},
        {{"--optimizer", "sgd", "--momentum", "1"}, "--momentum 1"},
        {{"--optimizer", "sgd", "--nesterov"}, "--nesterov needs a --momentum"}};
    for (const auto& [words, expected] : cases) {
        const Ran ran = Train(words);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find(expected), std::string::npos) << ran.err;
    }
}

}  // namespace
}  // namespace weft::support
