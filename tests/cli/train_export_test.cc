// Results of weft train and weft merge: refused before the work if the format can't hold the model;
// a full disk loses no work.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/hf_folder.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "support/wait.h"

namespace weft::support {
namespace {

namespace fs = std::filesystem;

class TrainExport : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = TrainHyper()});
        WriteQuestions(data_, 24);
    }
    Words Command(const Words& more) const {
        return Words{"train",   model_, "--data", data_, "--seq-len",    "96", "--json",
                     "--dtype", "f32",  "-t",     "1",   "--output-dir", out_} +
               more;
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl", out_ = dir_ / "out";
};

// A tokenizer, a metadata key and biases that a folder can't hold, on one rank and on several with
// recovery.
TEST_F(TrainExport, WhatHasNoPlaceIsRefusedBeforeTheFirstUpdate) {
    std::vector<std::pair<TinyFile, std::string>> cases;
    cases.push_back({{.hyper = TrainHyper()}, "deepseek-v3"});
    cases.back().first.tokenizer = tokenizer::TinyBytePair({"h e"});
    cases.back().first.tokenizer->pre = "deepseek-v3";
    cases.push_back(
        {{.hyper = TrainHyper(), .numbers = {{"attention.scale", 0.2}}}, "attention.scale"});
    cases.push_back({{.hyper = TrainHyper()}, "a bias of ffn_up"});
    cases.back().first.vectors["blk.0.ffn_up.bias"] = std::vector<float>(320, 0.1f);
    for (const auto& [file, expected] : cases) {
        WriteTinyGguf(model_, file);
        for (const Words& more :
             {Words{}, Words{"--local", "2", "--zero", "3", "--save-every", "2"}}) {
            const Ran ran = RunWeft(Command(Words{"--save-format", "hf", "--steps", "4"} + more));
            EXPECT_EQ(ran.status, 1) << ran.err;
            EXPECT_NE(ran.err.find(expected), std::string::npos) << ran.err;
            EXPECT_NE(ran.err.find("--save-format gguf"), std::string::npos) << ran.err;
            EXPECT_EQ(ran.out.find("\"step\""), std::string::npos) << ran.out;
            EXPECT_FALSE(fs::exists(out_ + "/model"));
            EXPECT_FALSE(fs::exists(out_ + "/checkpoints"));
        }
        const Ran gguf = RunWeft(Command({"--steps", "1", "--overwrite"}));
        EXPECT_EQ(gguf.status, 0) << gguf.err;
        fs::remove_all(out_);
    }
}

// Vectors that a file holds as a column, and an op that adds to two gradients of a unit.
TEST_F(TrainExport, Mamba2IsSavedAndCut) {
    const HfGolden golden(TestData("/families/graniteHybrid.safetensors"));
    const std::string folder = dir_ / "granite";
    golden.Write("graniteHybrid", folder);
    const Words command = {"train",     folder, "--data", "synthetic:random-tokens:33:24",
                           "--seq-len", "32",   "--json", "--dtype",
                           "f32",       "-t",   "1",      "--lr",
                           "1e-3"};
    const Words saved = Words{"--micro-batch", "2", "--output-dir", out_};
    const std::vector<double> one =
        CurveOf(RunTrain(command + saved + Words{"--steps", "3", "--save-every", "2"}));
    EXPECT_TRUE(fs::exists(out_ + "/model.gguf"));
    const Ran again = RunWeft(command + saved + Words{"--steps", "5", "--resume", "auto"});
    EXPECT_EQ(again.status, 0) << again.err;
    for (const char* zero : {"2", "3"}) {
        ExpectNear(CurveOf(RunTrain(command + Words{"--no-output", "--steps", "3", "--local", "2",
                                                    "--zero", zero})),
                   one, 1e-5);
    }
}

// A refused job removes nothing of the previous job.
TEST_F(TrainExport, ARefusedJobLeavesTheOneBefore) {
    ASSERT_EQ(RunWeft(Command({"--steps", "2", "--save-every", "1"})).status, 0);
    TinyFile odd{.hyper = TrainHyper(), .numbers = {{"attention.scale", 0.2}}};
    WriteTinyGguf(model_, odd);
    const Ran ran = RunWeft(Command({"--steps", "2", "--overwrite", "--save-format", "hf"}));
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_TRUE(fs::exists(out_ + "/model.gguf"));
    EXPECT_TRUE(fs::exists(out_ + "/checkpoints/step-00000002/manifest.json"));
}

// The result can't be renamed into place: the trained weights are in a checkpoint, although none
// was requested, and --resume auto writes the result from it.
TEST_F(TrainExport, AFailedResultLeavesACheckpoint) {
    const struct {
        Words words;
        std::string result;
    } cases[] = {{{}, "model.gguf"},
                 {{"--save-format", "hf", "--local", "2", "--zero", "3"}, "model/config.json"},
                 {{"--lora", "2", "--local", "2"}, "adapter_model.safetensors"}};
    for (const auto& [words, result] : test::Some(cases, 3, 1)) {
        SCOPED_TRACE(result);
        fs::remove_all(out_);
        Weft weft(Command(words + Words{"--steps", "60"}));
        test::Prints(weft, "\"step\":1,");
        fs::create_directories(out_ + "/" + result + "/in the way");
        const Ran ran = weft.Wait();
        EXPECT_EQ(ran.status, 1) << ran.err;
        const std::string checkpoint = out_ + "/checkpoints/step-00000060";
        EXPECT_NE(ran.err.find("Checkpoint " + checkpoint + " has all updates"), std::string::npos)
            << ran.err;
        EXPECT_TRUE(fs::exists(checkpoint + "/manifest.json")) << ran.err;
        fs::remove_all(out_ + "/" + result);
        const Ran on = RunWeft(Command(words + Words{"--steps", "60", "--resume", "auto"}));
        EXPECT_EQ(on.status, 0) << on.err;
        EXPECT_TRUE(fs::is_regular_file(out_ + "/" + result)) << on.err;
    }
}

TEST_F(TrainExport, AMergeIsRefusedBeforeItWrites) {
    ASSERT_EQ(RunWeft(Command({"--steps", "1", "--lora", "2"})).status, 0);
    TinyFile odd{.hyper = TrainHyper()};
    odd.tokenizer = tokenizer::TinyBytePair({"h e"});
    odd.tokenizer->pre = "deepseek-v3";
    WriteTinyGguf(model_, odd);
    const Ran ran =
        RunWeft({"merge", model_, "--lora", out_, "-o", dir_ / "merged", "--save-format", "hf"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_NE(ran.err.find("deepseek-v3"), std::string::npos) << ran.err;
    EXPECT_FALSE(fs::exists(dir_ / "merged"));
}

// Families formerly refused as folders are written, and run like their files.
TEST_F(TrainExport, MoreFamiliesBecomeFolders) {
    const char* const architectures[] = {"granite", "olmo2", "smollm3", "phi3"};
    for (const char* architecture : test::Some(architectures, 2)) {
        SCOPED_TRACE(architecture);
        model::Hyper hyper = TrainHyper(architecture);
        hyper.tied = architecture == std::string("smollm3");
        WriteTinyGguf(model_, {.hyper = hyper});
        const std::string gguf = dir_ / (architecture + std::string("-gguf"));
        const std::string hf = dir_ / (architecture + std::string("-hf"));
        for (const auto& [out, format] : {std::pair{gguf, "gguf"}, std::pair{hf, "hf"}}) {
            out_ = out;
            const Ran ran = RunWeft(Command({"--steps", "2", "--save-format", format}));
            ASSERT_EQ(ran.status, 0) << ran.err;
        }
        const auto logits = [](const std::string& model) {
            const Ran ran = RunWeft({"logits", model, "--tokens", "1,2,3,250", "--all", "--json",
                                     "-t", "1", "--reference"});
            EXPECT_EQ(ran.status, 0) << ran.err;
            return ran.Json().at("logits");
        };
        EXPECT_TRUE(logits(gguf + "/model.gguf") == logits(hf + "/model"));
    }
}

// OLMo 2 normalizes q and k over all heads: ranks that have some of them sum their squares.
TEST_F(TrainExport, Olmo2TrainsOnRanksThatShareItsHeads) {
    WriteTinyGguf(model_, {.hyper = TrainHyper("olmo2")});
    const auto curve = [&](const Words& more) {
        return CurveOf(RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96", "--json",
                                      "--dtype", "f32", "-t", "1", "--steps", "4", "--lr", "1e-3"} +
                                more));
    };
    const std::vector<double> one = curve({"--micro-batch", "2"});
    ExpectNear(curve({"--micro-batch", "1", "--grad-accum", "2", "--local", "2", "--pp", "2"}), one,
               1e-5);
    ExpectNear(curve({"--local", "2", "--zero", "3"}), one, 1e-5);
    ExpectNear(curve({"--micro-batch", "2", "--local", "2", "--tp", "2"}), one, 1e-5);
}

}  // namespace
}  // namespace weft::support
