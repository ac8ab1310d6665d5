// weft train --dtype f16: all ranks of any layout skip overflowing steps, report them, and keep the
// scale across a checkpoint.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "support/nightly.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "train/checkpoint/manifest.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class TrainFloat16 : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = TrainHyper(), .dtype = DType::kF16});
        WriteQuestions(data_, 24);
    }
    Ran Train(const Words& more) const {
        return RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96", "-t", "1"} +
                        more);
    }
    // The output lines of a successful run.
    std::vector<json> Lines(const Words& more) const {
        const Ran ran = Train(more + Words{"--json"});
        EXPECT_EQ(ran.status, 0) << ran.err;
        std::vector<json> lines;
        std::istringstream out(ran.out);
        for (std::string line; std::getline(out, line);) {
            lines.push_back(json::parse(line));
            if (lines.back().contains("config")) lines.pop_back();
        }
        return lines;
    }
    std::string Write(const std::string& text) const {
        const std::string file = dir_ / "ds.json";
        std::ofstream(file) << text;
        return file;
    }
    void ExpectRefused(const Words& more, int status, const char* expected) const {
        const Ran ran = Train(more);
        EXPECT_EQ(ran.status, status) << ran.err;
        EXPECT_NE(ran.err.find(expected), std::string::npos) << ran.err;
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl";
};

int64_t SkippedOf(const std::vector<json>& lines) {
    return std::ranges::count_if(lines, [](const json& line) {
        return line.contains("step") && line.at("skipped") == true;
    });
}

// Layouts round sums at different places: 2^-12 of a gradient's element, and twice that after an
// update. The set of skipped steps is the same.
void Float16ExpectAlike(const std::vector<json>& one, const std::vector<json>& other,
                        double tolerance) {
    ASSERT_EQ(other.size(), one.size());
    for (size_t step = 0; step + 1 < one.size(); ++step) {
        SCOPED_TRACE(step);
        for (const char* field : {"skipped", "loss_scale", "tokens", "lr"}) {
            EXPECT_EQ(one[step].at(field), other[step].at(field)) << field;
        }
        for (const char* field : {"loss", "grad_norm"}) {
            const json &expected = one[step].at(field), &got = other[step].at(field);
            ASSERT_EQ(expected.is_null(), got.is_null()) << field;
            if (expected.is_null()) continue;
            const double ratio = got.get<double>() / expected.get<double>();
            EXPECT_TRUE(std::abs(ratio - 1) <= tolerance) << field << ": " << got << expected;
        }
    }
}

TEST_F(TrainFloat16, EveryLayoutSkipsTheSameSteps) {
    // It starts with a scale at which everything overflows, and doubles it after four steps.
    const Words words = {"--ds-config",
                         Write(R"({"fp16": {"enabled": true, "initial_scale_power": 28,
                                            "hysteresis": 1, "loss_scale_window": 3},
                                   "gradient_clipping": 1.0})"),
                         "--schedule",
                         "cosine",
                         "--warmup-steps",
                         "3",
                         "--steps",
                         "30",
                         "--lr",
                         "1e-4"};
    const auto one = Lines(words + Words{"--micro-batch", "4"});
    ASSERT_EQ(one.size(), 31u);
    EXPECT_GT(SkippedOf(one), 5);
    EXPECT_LT(SkippedOf(one), 20);
    EXPECT_EQ(one[0].at("loss_scale"), 0x1p28);
    EXPECT_TRUE(one[0].at("grad_norm").is_null());
    EXPECT_EQ(one.back().at("skipped"), SkippedOf(one));
    EXPECT_LT(one[29].at("loss"), one[0].at("loss"));
    // The schedule does not advance meanwhile: the first update has the first rate.
    const auto first = std::ranges::find(
        one, json(false), [](const json& l) { return l.value("skipped", json(true)); });
    EXPECT_EQ(first->at("lr"), one[0].at("lr"));
    const Words layouts[] = {
        {"--local", "2", "--micro-batch", "2"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "1"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "2", "--zero", "2"},
        {"--local", "4", "--micro-batch", "1", "--zero", "3"},
        {"--local", "2", "--micro-batch", "4", "--tp", "2"},
        {"--local", "4", "--micro-batch", "2", "--tp", "2", "--zero", "3", "--recompute", "full",
         "--sequence-parallel", "on"},
        {"--local", "2", "--micro-batch", "1", "--grad-accum", "4", "--pp", "2"},
        {"--local", "4", "--micro-batch", "1", "--grad-accum", "2", "--pp", "2", "--zero", "2"}};
    for (const Words& layout : test::Some(layouts, 3)) {
        SCOPED_TRACE(testing::PrintToString(layout));
        Float16ExpectAlike(one, Lines(words + layout), 1e-3);
    }
}

// Saved within a run of steps without overflow, with part of the hysteresis used up.
TEST_F(TrainFloat16, ACheckpointGoesOnToTheBit) {
    const std::string file = Write(R"({"fp16": {"enabled": true, "initial_scale_power": 30,
                                                "hysteresis": 2, "loss_scale_window": 4}})");
    size_t turn = 0;
    for (const Words& layout :
         {Words{"--micro-batch", "2", "--local", "2", "--zero", "3"}, Words{"--micro-batch", "4"},
          Words{"--micro-batch", "4", "--local", "2", "--tp", "2"}}) {
        if (!test::InTurn(turn++, 3)) continue;
        SCOPED_TRACE(testing::PrintToString(layout));
        const std::string out = dir_ / ("out" + std::to_string(layout.size()));
        const Words words =
            layout + Words{"--ds-config", file,           "--schedule", "linear",      "--steps",
                           "30",          "--save-every", "7",          "--keep-last", "0"};
        const auto straight = Lines(words + Words{"--output-dir", out});
        ASSERT_EQ(straight.size(), 31u);
        EXPECT_GT(SkippedOf(straight), 3);
        const char* const saved[] = {"step-00000021", "step-00000007", "step-00000028"};
        for (const char* from : test::Some(saved, 3)) {
            const auto resumed = Lines(words + Words{"--output-dir", out + from, "--resume",
                                                     out + "/checkpoints/" + from});
            const size_t done = straight.size() - resumed.size();
            ASSERT_EQ(done, static_cast<size_t>(std::atoi(from + 5)));
            for (size_t i = 0; i + 1 < resumed.size(); ++i) {
                json expected = straight[done + i], got = resumed[i];
                for (json* line : {&expected, &got}) {
                    line->erase("tokens_per_s"), line->erase("flops_per_s");
                }
                EXPECT_EQ(expected, got);
            }
            EXPECT_EQ(resumed.back().at("skipped"), straight.back().at("skipped"));
            fs::remove_all(out + from);
        }
        fs::remove_all(out);
    }
}

// Missing values start as in a new run.
TEST_F(TrainFloat16, OlderCheckpointsLoad) {
    const std::string out = dir_ / "out";
    const Words words = {"--micro-batch",    "4",  "--schedule", "linear",
                         "--schedule-steps", "10", "--steps",    "6"};
    const Words half = {"--dtype", "f16", "--loss-scale", "1024"};
    const auto straight =
        Lines(words + half + Words{"--save-every", "3", "--keep-last", "0", "--output-dir", out});
    const std::string folder = out + "/checkpoints/step-00000003", file = folder + "/manifest.json";
    std::ifstream in(file);
    auto manifest =
        *train::ParseManifest(std::string{std::istreambuf_iterator<char>(in), {}}, file);
    const auto write = [&] { std::ofstream(file) << train::ManifestText(manifest); };
    EXPECT_EQ(manifest.state.at("loss_scale"), json({1024.0, 0, 1}));
    EXPECT_EQ(manifest.state.erase("loss_scale"), 1u);
    EXPECT_EQ(manifest.state.erase("updates"), 1u);
    write();
    const auto resumed = Lines(words + half + Words{"--resume", folder});
    ASSERT_EQ(resumed.size(), 4u);
    for (size_t i = 0; i < 3; ++i) {
        EXPECT_EQ(resumed[i].at("loss"), straight[3 + i].at("loss"));
        EXPECT_EQ(resumed[i].at("lr"), straight[3 + i].at("lr"));
    }
    const Words dynamic = words + Words{"--dtype", "f16", "--resume", folder};
    EXPECT_EQ(Lines(dynamic).front().at("loss_scale"), 65536);
    // The job also resumes with another type.
    EXPECT_EQ(Lines(words + Words{"--dtype", "bf16", "--resume", folder}).size(), 4u);
    manifest.state["loss_scale"] = {512.0, 3, 1};
    write();
    EXPECT_EQ(Lines(dynamic).front().at("loss_scale"), 512);
    manifest.state["updates"] = 4;
    write();
    ExpectRefused(dynamic, 1, "4 updates in 3 steps");
    manifest.state["updates"] = 3;
    for (const json& wrong : {json({0.0, 3, 1}), json({"x", 3, 1}), json({512.0, 3}), json(7)}) {
        manifest.state["loss_scale"] = wrong;
        write();
        const Ran ran = Train(dynamic);
        EXPECT_EQ(ran.status, 1) << ran.err;
        EXPECT_NE(ran.err.find(wrong == json({0.0, 3, 1}) ? "a loss scale of 0" : "its state"),
                  std::string::npos)
            << ran.err;
    }
}

TEST_F(TrainFloat16, SkippedStepIsReportedEverywhere) {
    const std::string out = dir_ / "out";
    const Words words = {"--dtype", "f16", "--loss-scale", "1e12", "--micro-batch", "4",
                         "--steps", "2",   "--output-dir", out};
    const Ran ran = Train(words);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("scale 1e+12  overflow: skipped"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("2 steps (2 skipped)"), std::string::npos) << ran.err;
    std::ifstream log(out + "/log.csv");
    std::string head, row;
    std::getline(log, head);
    std::getline(log, row);
    EXPECT_EQ(head,
              "step,loss,grad_norm,lr,tokens,tokens_per_s,perplexity,"
              "mean_token_accuracy,loss_scale,skipped");
    EXPECT_TRUE(row.ends_with(",1000000000000,1")) << row;
    EXPECT_NE(row.find(",nan,"), std::string::npos) << row;
}

// The same file of an older job, in its usual form.
TEST_F(TrainFloat16, DeepSpeedsSectionIsObeyed) {
    const std::string file = Write(R"({"fp16": {"enabled": "auto", "loss_scale": 0,
        "initial_scale_power": 12, "loss_scale_window": 500, "hysteresis": 3,
        "consecutive_hysteresis": true, "min_loss_scale": 2},
        "bf16": {"enabled": "auto"},
        "zero_optimization": {"stage": 2, "stage3_gather_16bit_weights_on_model_save": true}})");
    const Words words = {"--ds-config", file, "--steps", "2", "--micro-batch", "4"};
    const auto config = [&](const Words& more) {
        const Ran ran = Train(words + Words{"--json"} + more);
        EXPECT_EQ(ran.status, 0) << ran.err;
        return json::parse(ran.out.substr(0, ran.out.find('\n'))).at("config");
    };
    const json half = config({"--dtype", "f16"});
    EXPECT_EQ(half.at("precision"), "f16");
    EXPECT_EQ(half.at("save_type"), "F16");
    EXPECT_EQ(half.at("loss_scale"), json({{"fixed", 0.0},
                                           {"initial", 4096.0},
                                           {"window", 500},
                                           {"hysteresis", 3},
                                           {"consecutive_hysteresis", true},
                                           {"least", 2.0}}));
    EXPECT_EQ(config({"--dtype", "f16", "--loss-scale", "dynamic"}), half);
    EXPECT_EQ(config({"--dtype", "bf16"}).at("loss_scale"), nullptr);
    const std::string fixed = Write(R"({"fp16": {"enabled": true, "loss_scale": 128}})");
    EXPECT_EQ(Lines(words).front().at("loss_scale"), 128);
    EXPECT_EQ(Lines(words + Words{"--loss-scale", "128"}).front().at("loss_scale"), 128);
    ExpectRefused(words + Words{"--loss-scale", "64"}, 2, "fp16.loss_scale is 128");
    ExpectRefused(words + Words{"--dtype", "bf16"}, 2, "another precision");
}

TEST_F(TrainFloat16, ErrorsNameWhatIsWrong) {
    ExpectRefused({"--dtype", "bf16", "--loss-scale", "128"}, 2, "--loss-scale 128 with --dtype");
    ExpectRefused({"--loss-scale", "dynamic"}, 2, "--loss-scale dynamic with --dtype");
    for (const char* scale : {"0", "-4", "fast", "inf", "nan", "128x", ""}) {
        ExpectRefused({"--dtype", "f16", "--loss-scale", scale}, 2, "--loss-scale");
    }
    ExpectRefused({"--dtype", "f16", "--lr", "1e9", "--clip", "0", "--steps", "50"}, 1,
                  "which Weft does not lower further");
    ExpectRefused({"--dtype", "f8"}, 2, "--dtype");
}

}  // namespace
}  // namespace weft::support
