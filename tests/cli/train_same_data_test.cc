// All ranks must train on the same data, and a resumed job on the data of its checkpoint: files
// that differ between hosts, that changed after a checkpoint, or that only moved.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_adapter.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"
#include "support/wait.h"
#include "train/checkpoint/manifest.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

void ExpectSaid(const Ran& ran, const std::vector<std::string>& said) {
    for (const std::string& word : said) {
        EXPECT_NE(ran.err.find(word), std::string::npos) << ran.err << "\nlacks " << word;
    }
}

// ---- Ranks --------------------------------------------------------------------------------------

// Rank 0 and a worker have different working folders with different data.jsonl files.
class HostsData : public testing::Test {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
        for (const char* host : {"here", "there"}) fs::create_directories(dir_ / host);
        model_ = dir_ / "tiny.gguf";
        WriteTinyGguf(model_, {.hyper = TrainHyper(), .dtype = DType::kF16});
        std::ofstream(dir_ / "key") << "a key for these tests only";
        ::chmod((dir_ / "key").c_str(), 0600);
    }
    static std::unique_ptr<Weft> In(const std::string& folder, const Words& words) {
        const auto before = fs::current_path();
        fs::current_path(folder);
        auto made = std::make_unique<Weft>(words);
        fs::current_path(before);
        return made;
    }
    // Two ranks, one per host.
    Ran Train(const Words& more = {}) const {
        const auto worker =
            In(dir_ / "there", {"worker", "--listen", "127.0.0.1:0", "--key-file", dir_ / "key"});
        const Words words = {"train",
                             model_,
                             "--data",
                             "data.jsonl",
                             "--seq-len",
                             "64",
                             "--steps",
                             "0",
                             "--hosts",
                             fmt::format("127.0.0.1:{}", test::PortOf(*worker)),
                             "--key-file",
                             dir_ / "key",
                             "--micro-batch",
                             "2",
                             "-t",
                             "1",
                             "--json",
                             "--timeout-ms",
                             "3000",
                             "--no-output"};
        Ran ran = In(dir_ / "here", words + more)->Wait(30'000);
        ::kill(worker->pid(), SIGTERM);
        EXPECT_EQ(worker->Wait(5000).status, 0);
        return ran;
    }
    void ExpectRefused(const Ran& ran, const std::vector<std::string>& said) const {
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_LT(ran.seconds, test::LimitSeconds(10));
        ExpectSaid(ran, said);
    }

    test::TempDir dir_;
    std::string model_;
};

TEST_F(HostsData, OtherNumbersOfRecordsAreRefusedAtOnce) {
    WriteQuestions(dir_ / "here/data.jsonl", 20, true);
    WriteQuestions(dir_ / "there/data.jsonl", 8, true);
    ExpectRefused(Train(), {"rank 1 (host 127.0.0.1", "8 records", "20 records", "on rank 0",
                            "data.jsonl", "Copy"});
}

TEST_F(HostsData, OtherContentOfTheSameSizeIsRefused) {
    WriteQuestions(dir_ / "here/data.jsonl", 20, true);
    WriteQuestions(dir_ / "there/data.jsonl", 20, true);
    std::fstream file(dir_ / "there/data.jsonl", std::ios::in | std::ios::out);
    file.seekp(11);  // in the first answer
    file.put('z');
    file.close();
    ExpectRefused(Train({"--zero", "2"}), {"rank 1 (host 127.0.0.1", "checksum", "Copy"});
}

TEST_F(HostsData, RecordsInAnotherOrderAreRefused) {
    WriteQuestions(dir_ / "here/data.jsonl", 20, true);
    std::ifstream in(dir_ / "here/data.jsonl");
    std::vector<std::string> lines;
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    std::ofstream out(dir_ / "there/data.jsonl");
    for (auto line = lines.rbegin(); line != lines.rend(); ++line) out << *line << "\n";
    out.close();
    ExpectRefused(Train(), {"rank 1", "checksum"});
}

TEST_F(HostsData, AnotherAdapterToGoOnFromIsRefused) {
    // One path on both hosts: a link that each resolves in its own working folder.
    for (const char* host : {"here", "there"}) {
        WriteQuestions(dir_ / host + "/data.jsonl", 20, true);
        WriteTinyAdapter(dir_ / host + "/adapter", model_, {.seed = host});
    }
    fs::create_symlink("/proc/self/cwd/adapter", dir_ / "adapter");
    ExpectRefused(Train({"--lora-from", dir_ / "adapter"}), {"rank 1", "--lora-from"});
}

TEST_F(HostsData, CopiesTrain) {
    for (const char* host : {"here", "there"}) {
        WriteQuestions(dir_ / host + "/data.jsonl", 20, true);
    }
    const Ran ran = Train();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_GT(LinesOf(ran).size(), 1u);
}

// ---- Checkpoints --------------------------------------------------------------------------------

class ResumeData : public testing::Test {
  protected:
    void SetUp() override {
        WriteTinyGguf(model_, {.hyper = TrainHyper(), .dtype = DType::kF16});
        WriteQuestions(data_, 40, true);
    }
    Ran Train(const std::string& data, const Words& more, const std::string& model = {}) const {
        return RunWeft(Words{"train", model.empty() ? model_ : model, "--data", data, "--seq-len",
                             "48", "--micro-batch", "4", "--json", "-t", "1", "--output-dir",
                             dir_ / "out", "--save-every", "2"} +
                       more);
    }
    void Begin() const {
        const Ran ran = Train(data_, {"--steps", "4"});
        ASSERT_EQ(ran.status, 0) << ran.err;
    }
    const Words on_ = {"--resume", "auto", "--steps", "6"};

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl";
};

// Equally many records and bytes.
TEST_F(ResumeData, OtherContentIsRefusedUnlessAskedFor) {
    Begin();
    const std::string other = dir_ / "other.jsonl";
    WriteQuestions(other, 40, true);
    std::fstream file(other, std::ios::in | std::ios::out);
    file.seekp(11);  // in the first answer
    file.put('z');
    file.close();
    const Ran refused = Train(other, on_);
    EXPECT_EQ(refused.status, 2) << refused.err;
    ExpectSaid(refused, {"was written with other data", "checksum", "--new-data"});
    const Ran renewed = Train(other, on_ + Words{"--new-data"});
    EXPECT_EQ(renewed.status, 0) << renewed.err;
    std::map<int64_t, json> steps;
    for (const json& line : JsonLines(renewed.out)) steps[line.value("step", int64_t{0})] = line;
    EXPECT_EQ(steps.size(), 3u) << renewed.out;  // 5, 6 and the end
    EXPECT_TRUE(steps.contains(5) && steps.contains(6)) << renewed.out;
}

TEST_F(ResumeData, AFileThatMovedIsTheSame) {
    Begin();
    const std::string moved = dir_ / "moved.txt";
    fs::rename(data_, moved);
    const Ran ran = Train(moved, on_);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(LinesOf(ran).size(), 3u);
}

// The template shows the day; the second run starts on another one. A checkpoint without a day is
// one of an older version, which showed January 1, 1970.
TEST_F(ResumeData, TheDayOfTheStartStays) {
    const std::string model = dir_ / "dated.gguf";
    WriteTinyGguf(model, {.hyper = TrainHyper(),
                          .dtype = DType::kF16,
                          .chat_template = "{{ strftime_now('%d %b %Y') }}{% for m in messages %}"
                                           "<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n"
                                           "{% endfor %}{% if add_generation_prompt %}"
                                           "<|im_start|>assistant\n{% endif %}"});
    // UTC+14 and UTC-12 never have the same day.
    const auto train = [&](const Words& more, const char* zone) {
        return RunWeft(Words{"train", model, "--data", data_, "--prompt-type", "5", "--seq-len",
                             "96", "--micro-batch", "4", "--json", "-t", "1", "--keep-last", "0",
                             "--save-every", "2"} +
                           more,
                       {std::string("TZ=") + zone});
    };
    const auto manifest = [&](const std::string& folder, int step) {
        return dir_ / folder + fmt::format("/checkpoints/step-{:08}/manifest.json", step);
    };
    const auto day = [&](const std::string& folder, int step) {
        return json::parse(std::ifstream(manifest(folder, step))).at("state").at("day");
    };
    const Words whole = {"--output-dir", dir_ / "whole", "--steps", "6"};
    const Words part = {"--output-dir", dir_ / "part", "--steps", "4"};
    const auto east = LinesOf(train(whole, "AAA-14"));
    ASSERT_EQ(train(part, "AAA-14").status, 0);
    const Words on = {"--output-dir", dir_ / "part", "--steps", "6", "--resume", "auto"};
    const auto resumed = LinesOf(train(on, "BBB12"));
    ASSERT_EQ(resumed.size(), 3u);
    EXPECT_EQ(day("part", 6), day("part", 4));
    if (day("whole", 4) == day("part", 4)) {  // else midnight was between the two
        EXPECT_EQ(resumed.at(0).at("loss"), east.at(4).at("loss"));
        EXPECT_EQ(resumed.at(1).at("loss"), east.at(5).at("loss"));
    }
    const auto west = LinesOf(train({"--output-dir", dir_ / "west", "--steps", "6"}, "BBB12"));
    EXPECT_NE(day("west", 4), day("part", 4));
    EXPECT_NE(west.at(0).at("loss"), east.at(0).at("loss"));
    fs::remove_all(dir_ / "part/checkpoints/step-00000006");
    std::ifstream in(manifest("part", 4));
    const std::string text(std::istreambuf_iterator<char>(in), {});
    train::Manifest old = train::ParseManifest(text, "manifest").value();
    old.state.erase("day");
    std::ofstream(manifest("part", 4)) << train::ManifestText(old);
    const Ran earlier = train(on, "BBB12");
    EXPECT_EQ(LinesOf(earlier).size(), 3u);
    EXPECT_EQ(day("part", 6), "");
}

TEST_F(ResumeData, AnotherPromptTypeOrSplitIsRefused) {
    Begin();
    const Ran prompt = Train(data_, on_ + Words{"--prompt-type", "3"});
    EXPECT_EQ(prompt.status, 2) << prompt.err;
    ExpectSaid(prompt, {"--prompt-type 3", "--new-data"});
    const Ran split = Train(data_, on_ + Words{"--test-split", "0.2"});
    EXPECT_EQ(split.status, 2) << split.err;
    ExpectSaid(split, {"--test-split 0.2", "--new-data"});
}

// Unchanged data continue at their position, whether or not new data are allowed.
TEST_F(ResumeData, NewDataThatAreTheOldOnesGoOn) {
    Begin();
    const Ran plain = Train(data_, on_);
    fs::remove_all(dir_ / "out");
    Begin();
    const Ran allowed = Train(data_, on_ + Words{"--new-data"});
    EXPECT_EQ(CurveOf(plain), CurveOf(allowed));
}

// Epochs count the new data: all of them are read, and later runs continue after them.
TEST_F(ResumeData, EpochsOfNewDataBeginAnew) {
    Begin();
    const std::string other = dir_ / "other.jsonl";
    WriteQuestions(other, 24, true);
    const Words epochs = {"--resume", "auto", "--epochs", "2", "--new-data"};
    const auto lines = LinesOf(Train(other, epochs));
    ASSERT_GT(lines.size(), 2u);
    EXPECT_EQ(lines.front().at("step"), 5);
    const auto updates = static_cast<int64_t>(lines.size()) - 1;
    EXPECT_EQ(lines.back().at("steps"), 4 + updates);
    EXPECT_EQ(LinesOf(Train(other, epochs)).size(), 1u) << "nothing is left to do";
}

TEST_F(ResumeData, NewDataNeedsAResume) {
    const Ran ran = Train(data_, {"--steps", "1", "--new-data"});
    EXPECT_EQ(ran.status, 2) << ran.err;
    ExpectSaid(ran, {"--new-data", "--resume"});
}

}  // namespace
}  // namespace weft::support
