// Ranks whose copies of the model differ in one byte do not start; equal copies run, and are summed
// once. --verify-model sums them at each start.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "base/file.h"
#include "support/flip_bit.h"
#include "support/partial_file.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

namespace fs = std::filesystem;

// Rank 0 and each worker have a working folder with a copy of tiny.gguf.
class VerifyModel : public testing::Test {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        fs::create_directories(dir_ / "here");
        WriteTinyGguf(dir_ / "here/tiny.gguf", {.hyper = OddHyper(), .dtype = DType::kQ8_0});
        for (const char* folder : {"there", "third"}) {
            fs::create_directories(dir_ / folder);
            fs::copy_file(dir_ / "here/tiny.gguf", (dir_ / folder) + "/tiny.gguf");
        }
        std::ofstream(dir_ / "key") << "a key for these tests only";
        ::chmod((dir_ / "key").c_str(), 0600);
    }
    std::unique_ptr<Weft> In(const std::string& folder, const Words& words) const {
        const auto before = fs::current_path();
        fs::current_path(std::string(dir_ / folder));
        auto made =
            std::make_unique<Weft>(words, Words{"XDG_CACHE_HOME=" + (dir_ / "cache/" + folder)});
        fs::current_path(before);
        return made;
    }
    // A rank in each folder; the first one is rank 0.
    Ran Run(const std::vector<std::string>& folders, const Words& more) const {
        return RunJob(folders,
                      Words{"run", "tiny.gguf", "-p", "hello", "-n", "4", "--ignore-eos"} + more);
    }
    Ran RunJob(const std::vector<std::string>& folders, const Words& job) const {
        std::vector<std::unique_ptr<Weft>> workers;
        std::string hosts;
        for (size_t i = 1; i < folders.size(); ++i) {
            workers.push_back(
                In(folders[i], {"worker", "--listen", "127.0.0.1:0", "--key-file", dir_ / "key"}));
            hosts += fmt::format("{}127.0.0.1:{}", hosts.empty() ? "" : ",",
                                 test::PortOf(*workers.back()));
        }
        Ran ran = In(folders[0], job + Words{"-t", "1", "--timeout-ms", "20000", "--hosts", hosts,
                                             "--key-file", dir_ / "key"})
                      ->Wait();
        for (const auto& worker : workers) {
            ::kill(worker->pid(), SIGTERM);
            EXPECT_EQ(worker->Wait(5000).status, 0);
        }
        return ran;
    }
    void Damage(const std::string& folder) const { FlipBit((dir_ / folder) + "/tiny.gguf"); }

    const test::TempDir dir_;
};

// The place of the last digit of "lora_alpha": 16.
int64_t PlaceOfAlpha(const std::string& path) {
    const std::string text = ReadTextFile(path).value(), name = "\"lora_alpha\":";
    const size_t at = text.find_first_of("0123456789", text.find(name));
    EXPECT_NE(at, text.npos) << text;
    return static_cast<int64_t>(at + 1);
}

void ExpectSays(const Ran& ran, const std::vector<std::string>& said) {
    for (const std::string& word : said) {
        EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err << "\nlacks " << word;
    }
}

TEST_F(VerifyModel, OneOtherByteIsFound) {
    Damage("there");
    for (const Words& layout : {Words{"--tp", "2"}, Words{"--pp", "2"}, Words{"--verify-model"}}) {
        const Ran ran = Run({"here", "there"}, layout);
        EXPECT_EQ(ran.status, 1) << ran.err;
        EXPECT_EQ(ran.out, "");
        const auto size = fs::file_size(std::string(dir_ / "here/tiny.gguf"));
        ExpectSays(ran,
                   {"tiny.gguf on rank 1 (host 127.0.0.1", ") differs from that on rank 0 (host ",
                    fmt::format(": bytes 0 to {}. Compare 'sha256sum'", size - 1)});
    }
}

TEST_F(VerifyModel, AnAdapterWithOneOtherByteIsFound) {
    for (const char* folder : {"here", "there"}) {
        WriteTinyAdapter((dir_ / folder) + "/adapter", (dir_ / folder) + "/tiny.gguf", {});
    }
    const Words words = {"--tp", "2", "--lora", "adapter"};
    EXPECT_EQ(Run({"here", "there"}, words).status, 0);
    for (const char* const name : {"adapter_model.safetensors", "adapter_config.json"}) {
        const std::string path = (dir_ / "there/adapter/") + name;
        const int64_t at = path.ends_with("json") ? PlaceOfAlpha(path) : -1;
        FlipBit(path, at);
        const Ran ran = Run({"here", "there"}, words);
        EXPECT_EQ(ran.status, 1) << ran.err;
        ExpectSays(ran, {fmt::format("adapter/{} on rank 1 (host 127.0.0.1", name)});
        FlipBit(path, at);
    }
}

TEST_F(VerifyModel, TheOddOneOfThreeIsNamed) {
    Damage("here");
    const Ran ran = Run({"here", "there", "third"}, {"--tp", "3"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    ExpectSays(ran, {"tiny.gguf on rank 0 (host ", " differs from that on rank 1 (host 127.0.0.1",
                     "2 of 3 copies agree: copy the file again to rank 0 (host "});
}

TEST_F(VerifyModel, EqualCopiesRunAndAreSummedOnce) {
    const Words words = {"--tp", "2"};
    const auto sums = [&] { return fs::exists(std::string(dir_ / "cache/there/weft/content")); };
    const Ran plain = Run({"here", "there"}, words);
    ASSERT_EQ(plain.status, 0) << plain.err;
    EXPECT_TRUE(sums());
    const Ran ran = Run({"here", "there"}, words + Words{"--verify-model"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, plain.out);
    ExpectSays(ran, {"--verify-model: 2 copies of the model are equal (", "; read "});
    Damage("there");
    EXPECT_EQ(Run({"here", "there"}, words).status, 1);
}

TEST_F(VerifyModel, TrainingComparesToo) {
    for (const char* folder : {"here", "there"}) {
        WriteTinyGguf((dir_ / folder) + "/tiny.gguf", {.hyper = OddHyper()});
    }
    const Words job = {"train",         "tiny.gguf", "--data",  "synthetic:random-tokens:20:8",
                       "--seq-len",     "16",        "--steps", "1",
                       "--verify-model"};
    const Words train = job + Words{"--no-output"};
    const Ran equal = RunJob({"here", "there"}, train);
    EXPECT_EQ(equal.status, 0) << equal.err;
    ExpectSays(equal, {"--verify-model: 2 copies of the model are equal ("});
    Damage("there");
    const Ran ran = RunJob({"here", "there"}, train);
    EXPECT_EQ(ran.status, 1) << ran.err;
    ExpectSays(ran, {"tiny.gguf on rank 1 (host 127.0.0.1"});
    const Words elastic = {"--elastic", "--local",      "2",         "--save-every",
                           "1",         "--output-dir", dir_ / "out"};
    const Ran refused = In("here", job + elastic)->Wait();
    EXPECT_EQ(refused.status, 2) << refused.err;
    ExpectSays(refused, {"--verify-model does not work with --elastic"});
}

TEST_F(VerifyModel, TrainingResumesWithAPartOfTheModel) {
    const std::string model = dir_ / "here/tiny.gguf";
    WriteTinyGguf(model, {.hyper = OddHyper()});
    const Words job = Words{"train", model, "-t", "1", "--seq-len", "16", "--save-every", "1"} +
                      Words{"--data", "synthetic:random-tokens:20:8", "--output-dir", dir_ / "out"};
    const Ran first = In("here", job + Words{"--steps", "1"})->Wait();
    ASSERT_EQ(first.status, 0) << first.err;
    MakePartial(model);
    const Ran more = In("here", job + Words{"--steps", "2", "--resume", "auto"})->Wait();
    EXPECT_EQ(more.status, 0) << more.err;
    ExpectSays(more, {"Weft compares the metadata and shapes of ", "a part of the files here"});
}

TEST_F(VerifyModel, RanksOfOneCopyCompareNothing) {
    const std::string model = dir_ / "here/tiny.gguf";
    const Words run = {"run", model, "-p", "hello", "-n", "2", "-t", "1"};
    // No sums are stored if ranks may join or rejoin, either: no rank has read the whole file.
    const Ran may_recover =
        In("here", run + Words{"--tp", "2", "--restart-timeout-ms", "1000"})->Wait();
    EXPECT_EQ(may_recover.status, 0) << may_recover.err;
    EXPECT_FALSE(fs::exists(std::string(dir_ / "cache/here/weft/content")));
    const Ran ran = RunWeft(run + Words{"--tp", "2", "--verify-model"});
    EXPECT_EQ(ran.status, 0) << ran.err;
    ExpectSays(ran, {"--verify-model: the copy of the model is summed (", "; read "});
    const Ran alone = RunWeft(run + Words{"--verify-model"});
    EXPECT_EQ(alone.status, 0) << alone.err;
    ExpectSays(alone, {"--verify-model: the copy of the model is summed (", "; read "});
    const Ran fed = RunWeft(run + Words{"--tp", "2", "--verify-model", "--weights-from", "0"});
    EXPECT_EQ(fed.status, 2);
    ExpectSays(fed, {"--verify-model", "--weights-from 0"});
}

}  // namespace
}  // namespace weft::support
