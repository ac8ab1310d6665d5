// weft train with DeepSpeed's files, its evaluations, and its report of bytes sent.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "support/nightly.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "train/graph.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class TrainConfig : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = OddHyper(), .dtype = DType::kF16});
        WriteQuestions(data_, 40, true);
    }
    std::string Write(const std::string& text) {
        std::ofstream(dir_ / "ds.json") << text;
        return dir_ / "ds.json";
    }
    Ran Train(const Words& more) {
        return RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96", "-t", "1"} +
                        more);
    }
    // The output lines of a successful run.
    std::vector<json> Lines(const Words& more) {
        const Ran ran = Train(Words{"--json"} + more);
        err_ = ran.err;
        return LinesOf(ran);
    }
    void ExpectRefused(const std::string& text, const Words& more, const std::string& words) {
        const Ran ran = Train(Words{"--ds-config", Write(text)} + more);
        const bool lacks = words.find("not supported") != words.npos;
        EXPECT_EQ(ran.status, lacks ? 1 : 2) << text << ran.err;
        EXPECT_NE(ran.err.find(words), std::string::npos) << ran.err;
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl", err_;
};

TEST_F(TrainConfig, UsersFilesRunUnchanged) {
    const std::string folder = support::TestData("/deepspeed/");
    const std::string out = dir_ / "out";
    const auto large = Lines({"--ds-config", folder + "zero3_70b.json", "--local", "2", "--steps",
                              "2", "--output-dir", out});
    ASSERT_EQ(large.size(), 4u);
    const json& config = large[0].at("config");
    EXPECT_EQ(config.at("zero"), 3);
    EXPECT_EQ(config.at("dp"), 2);
    EXPECT_EQ(config.at("train_batch_size"), 2);
    EXPECT_EQ(config.at("unit_elements"), 58982);  // int(0.9 * 256 * 256)
    EXPECT_EQ(config.at("whole_elements"), 2560);
    EXPECT_EQ(config.at("precision"), "bf16");
    EXPECT_EQ(config.at("clip"), 1);
    EXPECT_EQ(config.at("save_type"), "BF16");
    EXPECT_EQ(config.at("schedule").at("total_steps"), 2);
    EXPECT_EQ(config.at("overlap"), "auto");
    EXPECT_EQ(err_.find("warning"), std::string::npos) << err_;
    // Three million weights of two bytes each, not four.
    EXPECT_LT(fs::file_size(out + "/model.gguf"), 7'500'000u);

    const auto small = Lines({"--ds-config", folder + "zero3_8b.json", "--local", "2", "--steps",
                              "2", "--micro-batch", "2", "--dtype", "f32"});
    ASSERT_EQ(small.size(), 4u);
    EXPECT_EQ(small[0].at("config").at("unit_elements"), 200'000'000);
    EXPECT_EQ(small[0].at("config").at("whole_elements"), 100'000);
    EXPECT_EQ(small[0].at("config").at("train_batch_size"), 4);
    EXPECT_EQ(small[0].at("config").at("precision"), "f32");
    EXPECT_EQ(small[0].at("config").at("save_type"), "F32");
}

// The same job by a file and by flags gives the same bits.
TEST_F(TrainConfig, AFileTrainsAsTheFlagsDo) {
    const std::string file = Write(R"({
        // Comments are fine.
        "train_batch_size": 8, "train_micro_batch_size_per_gpu": "auto",
        "gradient_accumulation_steps": 2, "gradient_clipping": 0.25,
        "optimizer": {"type": "AdamW", "params": {"lr": 2e-3, "betas": [0.8, 0.9], "eps": 1e-6,
                                                  "weight_decay": 0.125}},
        "scheduler": {"type": "WarmupDecayLR", "params": {"warmup_min_lr": 1e-4,
            "warmup_max_lr": "auto", "warmup_num_steps": 3, "warmup_type": "linear",
            "total_num_steps": "auto"}},
        "activation_checkpointing": {},
        "zero_optimization": {"stage": 2}})");
    const auto by_file =
        Lines({"--local", "2", "--ds-config", file, "--micro-batch", "2", "--epochs", "1"});
    ASSERT_GE(by_file.size(), 3u);
    const json& config = by_file[0].at("config");
    EXPECT_EQ(config.at("precision"), "f32");
    EXPECT_EQ(config.at("recompute"), "full");
    EXPECT_EQ(config.at("schedule").at("total_steps"), config.at("steps"));
    EXPECT_EQ(config.at("steps"), by_file.size() - 2);
    EXPECT_NEAR(by_file[1].at("lr"), 1e-4, 1e-12);  // the minimum rate of the warm-up
    const Words flags = {
        "--local",      "2",    "--zero",         "2",     "--micro-batch", "2",
        "--grad-accum", "2",    "--clip",         "0.25",  "--betas",       "0.8,0.9",
        "--eps",        "1e-6", "--weight-decay", "0.125", "--dtype",       "f32",
        "--epochs",     "1",    "--lr",           "1e-4"};
    const auto by_flags = Lines(flags);
    ASSERT_EQ(by_flags.size(), by_file.size() - 1);
    // The first two updates have the minimum rate, which is the flags' constant one.
    for (const size_t step : {0u, 1u, 2u}) {
        if (step + 2 >= by_file.size()) break;
        EXPECT_EQ(by_file[step + 1].at("loss"), by_flags[step].at("loss")) << step;
        EXPECT_EQ(by_file[step + 1].at("grad_norm"), by_flags[step].at("grad_norm")) << step;
    }
}

// --schedule-steps replaces "auto" of total_num_steps and also counts elsewhere.
TEST_F(TrainConfig, ScheduleStepsCountBesideAScheduler) {
    const auto file = [](const std::string& type, const std::string& more) {
        return R"({"scheduler": {"type": ")" + type + R"(", "params": {"warmup_num_steps": 3)" +
               more + "}}}";
    };
    const std::string automatic = R"(, "total_num_steps": "auto")";
    const auto lines = Lines({"--ds-config", Write(file("WarmupDecayLR", automatic)), "--steps",
                              "2", "--schedule-steps", "40"});
    EXPECT_EQ(lines.at(0).at("config").at("schedule").at("total_steps"), 40);
    ExpectRefused(file("WarmupDecayLR", R"(, "total_num_steps": 30)"), {"--schedule-steps", "40"},
                  "scheduler.params.total_num_steps");
    ExpectRefused(file("WarmupLR", ""), {"--schedule-steps", "40"}, "--schedule-steps 40");
}

TEST_F(TrainConfig, ContradictionsAreNamed) {
    ExpectRefused(R"({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 2,
                      "gradient_accumulation_steps": 2})",
                  {"--local", "2"},
                  "train_batch_size 9 != train_micro_batch_size_per_gpu 2 x "
                  "gradient_accumulation_steps 2 x 2 data-parallel ranks = 8");
    ExpectRefused(R"({"train_batch_size": 9, "train_micro_batch_size_per_gpu": 2,
                      "gradient_accumulation_steps": 2})",
                  {"--local", "2", "--tp", "2"}, "x 1 data-parallel ranks = 4");
    ExpectRefused(R"({"zero_optimization": {"stage": 2}})", {"--zero", "1"},
                  "zero_optimization.stage is 2, but the command line says 1");
    ExpectRefused(R"({"train_micro_batch_size_per_gpu": 4})", {"--micro-batch", "2"},
                  "train_micro_batch_size_per_gpu is 4, but the command line says 2");
    ExpectRefused(R"({"gradient_clipping": 0.5})", {"--clip", "1"},
                  "gradient_clipping is 0.5, but the command line says 1");
    ExpectRefused(R"({"optimizer": {"type": "Adam", "params": {"betas": [0.9, 0.95]}}})",
                  {"--betas", "0.9,0.99"}, "betas[1] is 0.95, but the command line says 0.99");
    ExpectRefused(R"({"scheduler": {"type": "WarmupLR", "params": {"warmup_max_lr": 1e-3}}})",
                  {"--lr", "1e-4"}, "warmup_max_lr is 0.001, but the command line says 0.0001");
    ExpectRefused(R"({"scheduler": {"type": "WarmupLR"}})", {"--schedule", "cosine"},
                  "scheduler.type is WarmupLR, but the command line says --schedule cosine");
    ExpectRefused(R"({"bf16": {"enabled": true}})", {"--dtype", "f32"}, "another precision");
    ExpectRefused(R"({"zero_optimization": {"gather_16bit_weights_on_model_save": true}})",
                  {"--save-type", "F32"}, "--save-type BF16, but the command line says F32");
    ExpectRefused(R"({"optimizer": {"type": "Adam", "params": {"bias_correction": false}}})", {},
                  "bias_correction false is not supported");
    ExpectRefused(R"({"dataloader_drop_last": true, "train_micro_batch_size_per_gpu": 500})", {},
                  "less than one batch of 500 sequences");
}

TEST_F(TrainConfig, DeviationsAreNoted) {
    const std::string tb = dir_ / "tb";
    const std::string file = Write(R"({"fp16": {"enabled": true, "loss_scale": 128},
        "steps_per_print": 2, "communication_data_type": "fp32",
        "tensorboard": {"enabled": true, "output_path": ")" +
                                   tb + R"(", "job_name": "x"},
        "csv_monitor": {"enabled": true, "output_path": ")" +
                                   tb + R"(", "job_name": "y"},
        "zero_optimization": {"stage": 3, "offload_optimizer": {"device": "cpu"},
            "offload_param": {"device": "nvme", "nvme_path": "/nowhere"}}})");
    const Ran ran = Train({"--ds-config", file, "--steps", "5"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    for (const char* words :
         {"scale 128", "note: communication_data_type: fp32 is ignored",
          "note: zero_optimization.offload_optimizer: everything stays in the memory",
          "note: zero_optimization.offload_param: everything stays in the memory", "config: {",
          "step 2/5", "step 4/5", "step 5/5"}) {
        EXPECT_NE(ran.err.find(words), std::string::npos) << words << "\n" << ran.err;
    }
    EXPECT_EQ(ran.err.find("step 3/5"), std::string::npos) << ran.err;
    EXPECT_TRUE(fs::exists(tb + "/y/log.csv"));
    EXPECT_FALSE(fs::is_empty(tb + "/x"));
}

// ---- Evaluation -----------------------------------------------------------------------------

std::map<int64_t, double> Evaluations(const std::vector<json>& lines) {
    std::map<int64_t, double> losses;
    for (const json& line : lines) {
        if (line.contains("step") && line.contains("eval_loss")) {
            losses[line.at("step")] = line.at("eval_loss");
        }
    }
    return losses;
}

// With less memory more is recomputed; the trained weights are the same.
TEST_F(TrainConfig, RecomputeIsChosenByMemory) {
    const Words base = {"--json", "--dtype", "f32", "--steps", "2", "--micro-batch", "8"};
    const auto run = [&](const Words& more, const std::string& mib) {
        const Ran ran =
            RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96"} + base + more,
                     {"WEFT_MEMORY_MIB=" + mib});
        return LinesOf(ran);
    };
    // Memory that the model needs, from the error if it is missing.
    const auto needed = [&](const char* recompute) {
        const Ran ran = RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96"} + base +
                                     Words{"--recompute", recompute},
                                 {"WEFT_MEMORY_MIB=1"});
        EXPECT_NE(ran.status, 0);
        const size_t at = ran.out.find("rank 0: ");
        EXPECT_NE(at, std::string::npos) << ran.out << ran.err;
        return std::stoi(ran.out.substr(at + 8));
    };
    const int none = needed("none"), selective = needed("selective"), full = needed("full");
    ASSERT_GT(none, selective + 1);
    ASSERT_GT(selective, full + 1);
    const auto expected = run({"--recompute", "none"}, "");
    ASSERT_EQ(expected.size(), 3u);
    EXPECT_EQ(expected.back().at("recompute"), "none");
    for (const auto& [mib, recompute] :
         {std::pair{none + 1, "none"}, {selective + 1, "selective"}, {full + 1, "full"}}) {
        const auto lines = run({}, std::to_string(mib));
        ASSERT_EQ(lines.size(), 3u);
        EXPECT_EQ(lines.back().at("recompute"), recompute) << mib;
        EXPECT_EQ(lines[1].at("loss"), expected[1].at("loss"));
    }
}

TEST_F(TrainConfig, TheTestPartIsEvaluated) {
    const Words base = {"--test-split", "0.3", "--dtype", "f32", "--lr", "1e-3", "--no-pack"};
    const std::string out = dir_ / "out";
    const auto by_epoch =
        Lines(base + Words{"--epochs", "3", "--micro-batch", "4", "--output-dir", out});
    const auto epochs = Evaluations(by_epoch);
    const auto steps = static_cast<int64_t>(by_epoch.size()) - 1;
    EXPECT_EQ(epochs.size(), 3u);
    EXPECT_TRUE(epochs.contains(steps));
    EXPECT_LT(epochs.rbegin()->second, epochs.begin()->second);
    const json& last = by_epoch.back();
    EXPECT_EQ(last.at("eval_loss"), epochs.at(steps));
    EXPECT_GT(last.at("eval_s"), 0);
    EXPECT_GT(last.at("epoch_s"), 0);
    EXPECT_GT(by_epoch.front().at("flops_per_s"), 0);
    EXPECT_GT(last.at("peak_flops_per_s"), 1e6);
    double seconds = 0;
    for (const json& line : by_epoch) {
        if (!line.contains("step")) continue;
        seconds += line.at("tokens").get<double>() / line.at("tokens_per_s").get<double>();
    }
    EXPECT_NEAR(last.at("epoch_s").get<double>() * 3, seconds, 1e-6 * seconds);
    std::ifstream log(out + "/log.csv");
    std::string head, first;
    std::getline(log, head);
    std::getline(log, first);
    EXPECT_EQ(head,
              "step,loss,grad_norm,lr,tokens,tokens_per_s,perplexity,eval_loss,eval_perplexity,"
              "mean_token_accuracy,eval_mean_token_accuracy");
    EXPECT_TRUE(first.ends_with(",nan") && first.find(",nan,nan,") != first.npos) << first;

    // More frequent evaluations change no bit of the result; other ranks give the same losses
    // (within rounding of sums, as in train_test.cc).
    const auto often =
        Lines(base + Words{"--epochs", "3", "--micro-batch", "4", "--eval-every", "2"});
    ASSERT_EQ(often.size(), by_epoch.size());
    for (size_t i = 0; i + 1 < often.size(); ++i) {
        EXPECT_EQ(often[i].at("loss"), by_epoch[i].at("loss"));
        const auto step = static_cast<int64_t>(i) + 1;
        EXPECT_EQ(often[i].contains("eval_loss"), step % 2 == 0 || step == steps);
    }
    for (const Words& layout : {Words{"--zero", "3"}, Words{"--pp", "2", "--micro-batch", "4"},
                                Words{"--zero", "1", "--grad-accum", "2", "--micro-batch", "1"}}) {
        if (!test::Nightly()) break;
        SCOPED_TRACE(testing::PrintToString(layout));
        const bool alone = layout[0] == "--pp";
        Words words = base + Words{"--epochs", "3", "--local", "2"} + layout;
        if (!alone && layout.size() == 2) words = words + Words{"--micro-batch", "2"};
        const auto other = Evaluations(Lines(words));
        ASSERT_EQ(other.size(), epochs.size());
        for (const auto& [step, loss] : epochs) {
            EXPECT_TRUE(std::abs(other.at(step) / loss - 1) <= 2e-5)
                << step << ": " << other.at(step) << " and " << loss;
        }
    }
    const Ran none = Train({"--eval-every", "2"});
    EXPECT_EQ(none.status, 2);
    EXPECT_NE(none.err.find("--eval-every 2"), std::string::npos) << none.err;
}

// ---- Bytes ----------------------------------------------------------------------------------

struct Sent {
    int64_t vectors = 0, matrices = 0;  // elements of units, with alignment
    int64_t gathered = 0;               // elements gathered in a pass of stage 3
};

// Counted from the list of ops.
Sent Count(const std::string& model, int stage, int64_t unit_elements) {
    const auto source = model_files::OpenModel(model);
    const auto hyper = model::ReadHyper(**source);
    const auto plan = model::PlanShards(*hyper, **source, {});
    train::GraphOptions options;
    options.zero.stage = stage;
    options.zero.ranks = 2;
    options.zero.unit_elements = unit_elements;
    const auto graph = train::BuildTrainingGraph(*hyper, plan->shards, **source, options);
    EXPECT_TRUE(graph.ok());
    Sent sent;
    for (const program::FlatBucket& unit : graph->units) {
        (unit.whole ? sent.vectors : sent.matrices) += unit.elements;
    }
    const program::Program& program = graph->program.program;
    for (const program::Op& op : program.ops) {
        if (op.kind() != program::OpKind::kZeroAllGather) continue;
        sent.gathered += program.value(op.outputs[0]).shape.Elements(0, 0);
    }
    return sent;
}

// For P elements, each of two ranks sends 2 P / 2 in all_reduce, and P / 2 in reduce_scatter and
// all_gather. In addition six float64 numbers per update: loss, positions, load balance, requests
// to stop and to grow, norm.
TEST_F(TrainConfig, BytesSentAreTheFormulas) {
    constexpr int64_t kSteps = 2, kPasses = 3;
    for (const int stage : {0, 1, 2, 3}) {
        SCOPED_TRACE(stage);
        const std::string file = Write(R"({"zero_optimization": {"reduce_bucket_size": 300000,
            "stage3_prefetch_bucket_size": 300000, "stage3_param_persistence_threshold": 0}})");
        const auto lines = Lines({"--ds-config", file, "--zero", std::to_string(stage), "--local",
                                  "2", "--dtype", "f32", "--steps", std::to_string(kSteps),
                                  "--micro-batch", "1", "--grad-accum", std::to_string(kPasses)});
        ASSERT_EQ(lines.size(), 2u + kSteps);
        const Sent sent = Count(model_, stage, 300000);
        int64_t elements = 0;
        if (stage == 0) elements = sent.vectors + sent.matrices;
        if (stage == 1) elements = sent.vectors + sent.matrices / 2 + sent.matrices / 2;
        if (stage == 2) elements = sent.vectors + kPasses * sent.matrices / 2 + sent.matrices / 2;
        if (stage == 3) {
            elements = sent.vectors + kPasses * (sent.gathered + sent.matrices) / 2;
            // Twice per unit, except units with which the backward pass begins.
            EXPECT_GT(sent.gathered, 3 * sent.matrices / 2);
            EXPECT_LT(sent.gathered, 2 * sent.matrices);
        }
        for (const json& bytes : lines.back().at("wire_bytes")) {
            EXPECT_EQ(bytes, kSteps * (4 * elements + 56));
        }
        EXPECT_EQ(lines.back().at("peak_rss_bytes").size(), 2u);
    }
}

TEST_F(TrainConfig, HelpReadsWell) {
    const Ran ran = RunWeft({"train", "--help"});
    EXPECT_EQ(ran.status, 0);
    EXPECT_NE(ran.out.find("Usage: weft train "), std::string::npos) << ran.out;
    EXPECT_EQ(ran.out.find("train run"), std::string::npos) << ran.out;
    EXPECT_EQ(ran.out.find("{false}"), std::string::npos) << ran.out;
}

}  // namespace
}  // namespace weft::support
