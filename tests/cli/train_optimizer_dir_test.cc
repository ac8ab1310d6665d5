// `weft train --optimizer-dir`: the optimizer's state in a file gives the same numbers as in
// memory, and no file remains.
#include <gtest/gtest.h>

#include <filesystem>

#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

namespace fs = std::filesystem;

class OptimizerDir : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = TrainHyper(), .dtype = DType::kF16});
        WriteQuestions(data_, 24);
        fs::create_directory(state_);
        const Ran ran = Train({"--steps", "1", "--optimizer-dir", state_});
        if (ran.err.find("files there are in memory") != std::string::npos) {
            GTEST_SKIP() << "temporary files of this host are in memory";
        }
    }
    Ran Train(const Words& more) {
        return RunTrain(Words{"train", model_, "--data", data_, "--seq-len", "96", "--json", "--lr",
                              "1e-3", "--micro-batch", "4", "-t", "1"} +
                        more);
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl", state_ = dir_ / "state";
};

TEST_F(OptimizerDir, TheNumbersAreThoseOfMemory) {
    const Words layouts[] = {{"--dtype", "bf16"},
                             {"--optimizer", "adam8bit"},
                             {"--local", "2", "--zero", "2", "--dtype", "f32"},
                             {"--lora-rank", "4"}};
    for (const Words& layout : layouts) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const Words words = Words{"--steps", "4"} + layout;
        ExpectAlike(LinesOf(Train(words)), LinesOf(Train(words + Words{"--optimizer-dir", state_})),
                    0);
        EXPECT_TRUE(fs::is_empty(state_));
    }
}

TEST_F(OptimizerDir, ACheckpointHasTheState) {
    const Words words = {"--steps", "6", "--dtype", "f32"}, on_drive = {"--optimizer-dir", state_};
    const auto whole = LinesOf(Train(words));
    const Words out = {"--output-dir", dir_ / "out", "--save-every", "3"};
    LinesOf(
        Train(Words{"--steps", "3", "--schedule", "constant", "--dtype", "f32"} + out + on_drive));
    const auto rest = LinesOf(Train(words + out + on_drive + Words{"--resume", "auto"}));
    ASSERT_GE(rest.size(), 3u);
    EXPECT_EQ(rest[2].at("loss"), whole[5].at("loss"));
}

TEST_F(OptimizerDir, AFolderThatDoesNotDoIsNamed) {
    const std::pair<std::string, const char*> cases[] = {
        {dir_ / "none", "none: no file for the optimizer's state"},
        {data_, "data.jsonl: no file for the optimizer's state"},
        {"/dev/shm", "files there are in memory"}};
    for (const auto& [folder, expected] : cases) {
        if (!fs::exists("/dev/shm") && folder == "/dev/shm") continue;
        const Ran ran = Train({"--steps", "1", "--optimizer-dir", folder});
        EXPECT_NE(ran.status, 0) << folder;
        EXPECT_NE(ran.err.find(expected), std::string::npos) << ran.err;
    }
}

}  // namespace
}  // namespace weft::support
