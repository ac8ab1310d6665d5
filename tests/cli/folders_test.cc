// weft worker --folders: files of a job in these folders are used; a path that leads elsewhere ends
// the job on rank 0 before the worker opens or creates a file.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "support/wait.h"

namespace weft::support {
namespace {

namespace fs = std::filesystem;

class Folders : public testing::Test {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (const char* folder : {"in", "out"}) {
            fs::create_directories(dir_ / folder);
            WriteTinyGguf((dir_ / folder) + "/tiny.gguf",
                          {.hyper = TrainHyper(), .dtype = DType::kF16});
            WriteQuestions((dir_ / folder) + "/data.jsonl", 8, true);
        }
        fs::create_symlink(dir_ / "out/tiny.gguf", dir_ / "in/link.gguf");
        fs::create_symlink(dir_ / "out", dir_ / "in/away");
        std::ofstream(dir_ / "key") << "a key for these tests only";
        ::chmod((dir_ / "key").c_str(), 0600);
        worker_ = std::make_unique<Weft>(Words{"worker", "--listen", "127.0.0.1:0", "--key-file",
                                               dir_ / "key", "--folders", dir_ / "in"});
        hosts_ = {"--hosts",      fmt::format("127.0.0.1:{}", test::PortOf(*worker_)),
                  "--key-file",   dir_ / "key",
                  "--timeout-ms", "20000",
                  "-t",           "1"};
    }
    void TearDown() override {
        ::kill(worker_->pid(), SIGTERM);
        EXPECT_EQ(worker_->Wait(5000).status, 0);
    }
    Ran Run(const std::string& model, const Words& more = {}) const {
        return RunWeft(Words{"run", dir_ / model, "-p", "hello", "-n", "2", "--tp", "2"} + hosts_ +
                       more);
    }
    // --dp 2: the worker reads data and writes its part of checkpoints.
    Ran Train(const std::string& model, const std::string& data, const std::string& output,
              const Words& more = {}) const {
        return RunWeft(Words{"train", dir_ / model, "--data", dir_ / data, "--output-dir",
                             dir_ / output, "--seq-len", "64", "--steps", "2", "--save-every", "1",
                             "--micro-batch", "2", "--overwrite"} +
                       hosts_ + more);
    }
    // meant: where the path leads.
    void ExpectRefused(const Ran& ran, const std::string& meant) const {
        EXPECT_EQ(ran.status, 1) << ran.err;
        for (const std::string& word : Words{"rank 1 (host 127.0.0.1", dir_ / meant,
                                             " is not in " + (dir_ / "in"), "--folders"}) {
            EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err << "\nlacks " << word;
        }
    }

    test::TempDir dir_;
    std::unique_ptr<Weft> worker_;
    Words hosts_;
};

TEST_F(Folders, AModelInsideRunsAndOthersAreRefused) {
    const Ran inside = Run("in/tiny.gguf");
    EXPECT_EQ(inside.status, 0) << inside.err;
    ExpectRefused(Run("out/tiny.gguf"), "out/tiny.gguf");
    ExpectRefused(Run("in/../out/tiny.gguf"), "out/tiny.gguf");
    ExpectRefused(Run("in/link.gguf"), "out/tiny.gguf");
    // Rank 0 sends its file.
    const Ran fed = Run("out/tiny.gguf", {"--weights-from", "0"});
    EXPECT_EQ(fed.status, 0) << fed.err;
    EXPECT_EQ(fed.out, inside.out);
    WriteTinyAdapter(dir_ / "in/adapter", dir_ / "in/tiny.gguf", {});
    WriteTinyAdapter(dir_ / "out/adapter", dir_ / "in/tiny.gguf", {});
    const Ran adapted = Run("in/tiny.gguf", {"--lora", dir_ / "in/adapter"});
    EXPECT_EQ(adapted.status, 0) << adapted.err;
    ExpectRefused(Run("in/tiny.gguf", {"--lora", dir_ / "in/away/adapter"}), "out/adapter");
    const Ran synthetic = RunWeft(
        Words{"logits", "synthetic:smollm2-135m", "--tokens", "1,2", "--tp", "2", "--json"} +
        hosts_);
    EXPECT_EQ(synthetic.status, 0) << synthetic.err;
}

TEST_F(Folders, TrainingReadsAndWritesInsideOnly) {
    const std::string model = "in/tiny.gguf", data = "in/data.jsonl";
    const Ran inside = Train(model, data, "in/new/run");
    EXPECT_EQ(inside.status, 0) << inside.err;
    ExpectRefused(Train("out/tiny.gguf", data, "in/other"), "out/tiny.gguf");
    ExpectRefused(Train(model, "in/away/data.jsonl", "in/other"), "out/data.jsonl");
    ExpectRefused(Train(model, data, "in/other", {"--resume", dir_ / "out/none"}), "out/none");
    // The worker creates no file of a refused output. (Rank 0, which has no limit, may.)
    for (const char* output : {"out/run", "in/away/run", "in/../out/run"}) {
        ExpectRefused(Train(model, data, output), "out/run");
        EXPECT_FALSE(fs::exists(std::string(dir_ / "out/run/checkpoints"))) << output;
    }
}

// The job names only paths inside, and links there lead out.
TEST_F(Folders, LinksThatTheJobDoesNotNameAreNotFollowed) {
    const std::string model = "in/tiny.gguf", data = "in/data.jsonl";
    fs::create_directories(dir_ / "in/run");
    fs::create_directories(dir_ / "out/elsewhere");
    fs::create_symlink(dir_ / "out/elsewhere", dir_ / "in/run/checkpoints");
    // (With --zero 1, the worker writes its part of the optimizer state. A save that fails is a
    // warning.)
    const Ran saved = Train(model, data, "in/run", {"--zero", "1"});
    EXPECT_EQ(saved.status, 0) << saved.err;
    EXPECT_NE(saved.err.find("is not in " + (dir_ / "in")), std::string::npos) << saved.err;
    for (const auto& file : fs::recursive_directory_iterator(dir_ / "out/elsewhere")) {
        EXPECT_EQ(file.path().string().find("rank-00001"), std::string::npos) << file.path();
    }
    fs::create_directories(dir_ / "in/texts");
    fs::create_symlink(dir_ / "out/data.jsonl", dir_ / "in/texts/train.jsonl");
    ExpectRefused(Train(model, "in/texts", "in/other"), "out/data.jsonl");
    fs::remove(dir_ / "in/texts/train.jsonl");
    fs::create_symlink(dir_ / "in/data.jsonl", dir_ / "in/texts/train.jsonl");
    const Ran inside = Train(model, "in/texts", "in/other");
    EXPECT_EQ(inside.status, 0) << inside.err;
}

TEST_F(Folders, FoldersMustExist) {
    const Ran ran = RunWeft({"worker", "--listen", "127.0.0.1:0", "--key-file", dir_ / "key",
                             "--folders", (dir_ / "in") + "," + (dir_ / "none")});
    EXPECT_EQ(ran.status, 2);
    EXPECT_NE(ran.err.find("none: there is no such folder"), std::string::npos) << ran.err;
}

}  // namespace
}  // namespace weft::support
