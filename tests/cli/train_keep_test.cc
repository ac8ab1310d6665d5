// weft train loses nothing: unwritable logs, full disks, damaged checkpoints, two jobs in one
// folder, a folder with an earlier result.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>
#include <sstream>

#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/train_case.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class TrainKeep : public TrainCase {
  protected:
    static model::Hyper Wide() {
        model::Hyper hyper = OddHyper();
        hyper.ffn = 256;
        return hyper;
    }
    TrainKeep() : TrainCase(Wide()) {}
    Words Command(const Words& more, const std::string& steps = "10") const {
        return Words{"train",  model_,    "--data", data_,     "--seq-len", "96",
                     "--json", "-t",      "1",      "--lr",    "1e-3",      "--micro-batch",
                     "4",      "--dtype", "f32",    "--steps", steps,       "--output-dir",
                     out_} +
               more;
    }
    static size_t Count(const std::string& text, const std::string& word) {
        size_t count = 0;
        for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
        return count;
    }
    std::string Step(int64_t step) const {
        return fmt::format("{}/checkpoints/step-{:08}", out_, step);
    }
    // Data file of one rank's checkpoint.
    std::string DataFile(int64_t step, int rank = 0) const {
        for (const auto& entry : fs::directory_iterator(Step(step))) {
            const std::string name = entry.path().filename();
            if (name.starts_with(fmt::format("rank-{:05}", rank))) return entry.path();
        }
        return "";
    }
};

TEST_F(TrainKeep, AModelIsWrittenWhateverBecomesOfTheLog) {
    Weft weft(Command({}, "60"));
    ASSERT_TRUE(test::Prints(weft, "\"step\":3,"));
    fs::remove(out_ + "/log.csv");
    fs::create_directory(out_ + "/log.csv");  // (root may write to read-only files)
    for (const auto& entry : fs::directory_iterator(out_)) {
        if (entry.path().filename().string().starts_with("events.")) fs::remove(entry.path());
    }
    const Ran ran = weft.Wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_TRUE(fs::exists(out_ + "/model.gguf"));
    EXPECT_EQ(Count(ran.err, "log.csv"), 1u) << ran.err;
    EXPECT_NE(ran.err.find("Training goes on"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("the log lacks"), std::string::npos) << ran.err;
}

TEST_F(TrainKeep, ALogThatComesBackHasAllRows) {
    SKIP_TO_NIGHT_UNLESS(false);
    Weft weft(Command({}, "60"));
    ASSERT_TRUE(test::Prints(weft, "\"step\":3,"));
    fs::rename(out_ + "/log.csv", out_ + "/kept");
    fs::create_directory(out_ + "/log.csv");
    ASSERT_TRUE(test::Prints(weft, "\"step\":20,"));
    fs::remove(out_ + "/log.csv");
    fs::rename(out_ + "/kept", out_ + "/log.csv");
    const Ran ran = weft.Wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("the log is written again"), std::string::npos) << ran.err;
    EXPECT_EQ(Count(Slurp(out_ + "/log.csv"), "\n"), 61u) << Slurp(out_ + "/log.csv");
}

// A removed log starts again and stays readable.
TEST_F(TrainKeep, ARemovedLogIsBegunAnew) {
    SKIP_TO_NIGHT_UNLESS(false);
    Weft weft(Command({}, "60"));
    ASSERT_TRUE(test::Prints(weft, "\"step\":3,"));
    fs::remove(out_ + "/log.csv");
    ASSERT_EQ(weft.Wait().status, 0);
    std::istringstream log(Slurp(out_ + "/log.csv"));
    std::string header, last;
    std::getline(log, header);
    EXPECT_TRUE(header.starts_with("step,loss,")) << header;
    for (std::string row; std::getline(log, row); last = row) {
        EXPECT_EQ(Count(row, ","), Count(header, ",")) << row;
    }
    EXPECT_TRUE(last.starts_with("60,")) << last;
}

TEST_F(TrainKeep, AFlippedBitInTheLogStopsNoResume) {
    const Words saves = {"--save-every", "5"};
    ASSERT_EQ(RunWeft(Command(saves)).status, 0);
    const std::string good = Slurp(out_ + "/log.csv");
    const size_t third = good.find("\n3,") + 1, fourth = good.find("\n4,") + 1;
    const struct {
        std::string text;
        size_t rows;  // with the header, after two more updates
        bool said;
    } cases[] = {
        {good, 13, false},
        {"sdep" + good.substr(4), 13, true},
        {good.substr(0, third) + "7" + good.substr(third + 1), 12, true},
        {good.substr(0, third + 2) + "x" + good.substr(third + 3), 12, true},
        {good.substr(0, third) + std::string(fourth - third, '\0') + good.substr(fourth), 11, true},
        {good.substr(0, fourth + 5), 6, false},
        {"", 3, false},
        {"another,log\n1,2\n", 3, true}};
    int64_t steps = 10;
    for (const auto& [text, rows, said] : cases) {
        SCOPED_TRACE(text);
        Put(out_ + "/log.csv", text);
        fs::remove_all(dir_ / "copy");
        fs::copy(out_, dir_ / "copy", fs::copy_options::recursive);
        Words words = Command(saves + Words{"--resume", "auto"}, std::to_string(steps + 2));
        *std::ranges::find(words, out_) = dir_ / "copy";
        const Ran ran = RunWeft(words);
        EXPECT_EQ(ran.status, 0) << ran.err;
        const std::string log = Slurp(dir_ / "copy/log.csv");
        EXPECT_EQ(Count(log, "\n"), rows) << log;
        EXPECT_EQ(ran.err.find("log.csv") != std::string::npos, said) << ran.err;
    }
}

TEST_F(TrainKeep, ATerminalThatIsGoneEndsNothing) {
    SKIP_TO_NIGHT_UNLESS(false);
    for (const char* to :
         {"> /dev/full 2> /dev/full", ">&- 2>&-", "2>&1 | head -c 300 > /dev/null"}) {
        fs::remove_all(out_);
        std::string line = WeftProgram();
        for (const std::string& word : Command({})) line += " " + word;
        (void)std::system(("bash -c '" + line + " " + to + "'").c_str());
        EXPECT_TRUE(fs::exists(out_ + "/model.gguf")) << to;
    }
}

// DeepSpeed's files often print only every 10 or 2,000 updates.
TEST_F(TrainKeep, StepsPerPrintSilencesNoTerminal) {
    Put(dir_ / "ds.json", R"({"train_micro_batch_size_per_gpu": 4, "steps_per_print": 1000000})");
    Words words = Command({"--ds-config", dir_ / "ds.json"});
    std::erase(words, "--json");
    const Ran ran = RunWeft(words);
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("step 1/10"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("step 10/10"), std::string::npos) << ran.err;
}

// All ranks skip a damaged checkpoint, wherever the damage is and whichever rank would read it.
TEST_F(TrainKeep, AutoPassesOverWhatIsDamaged) {
    const Words two = {"--local", "2", "--zero", "1", "--save-every", "5", "--keep-last", "3"};
    ASSERT_EQ(RunWeft(Command(two)).status, 0);
    const Ran straight = RunWeft(Command(two + Words{"--resume", "auto"}, "12"));
    ASSERT_EQ(straight.status, 0) << straight.err;
    const auto expected = StepsOf(straight.out);
    fs::rename(out_, dir_ / "good");
    const auto flip = [](const std::string& path, int64_t from_end) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekg(-from_end, std::ios::end);
        const int byte = file.get();
        file.seekp(-from_end, std::ios::end);
        file.put(static_cast<char>(byte ^ 4));
    };
    const struct {
        const char* what;
        std::function<void()> damage;
    } cases[] = {{"a bit of rank 0's data", [&] { flip(DataFile(12), 9); }},
                 {"a bit of rank 1's data", [&] { flip(DataFile(12, 1), 9); }},
                 {"a cut file",
                  [&] { fs::resize_file(DataFile(12, 1), fs::file_size(DataFile(12, 1)) / 2); }},
                 {"an empty file", [&] { fs::resize_file(DataFile(12), 0); }},
                 {"a missing file", [&] { fs::remove(DataFile(12, 1)); }},
                 {"a damaged manifest", [&] { flip(Step(12) + "/manifest.json", 200); }},
                 {"an empty manifest", [&] { fs::resize_file(Step(12) + "/manifest.json", 0); }},
                 {"no manifest", [&] { fs::remove(Step(12) + "/manifest.json"); }},
                 {"files of another step",
                  [&] {
                      fs::copy_file(DataFile(10, 1), DataFile(12, 1),
                                    fs::copy_options::overwrite_existing);
                  }},
                 {"a manifest that can't be read", [&] {
                      fs::remove(Step(12) + "/manifest.json");
                      fs::create_directory(Step(12) + "/manifest.json");
                  }}};
    size_t turn = 0;
    for (const auto& [what, damage] : cases) {
        ++turn;
        for (const Words& layout : {two, Words{"--save-every", "5", "--keep-last", "3"}}) {
            if (!test::InTurn(turn++, 5)) continue;
            SCOPED_TRACE(what + std::string(" on ") + std::to_string(layout.size()));
            fs::remove_all(out_);
            fs::copy(dir_ / "good", out_, fs::copy_options::recursive);
            damage();
            const Ran ran = RunWeft(Command(layout + Words{"--resume", "auto"}, "12"));
            EXPECT_EQ(ran.status, 0) << ran.err;
            const auto steps = StepsOf(ran.out);
            EXPECT_FALSE(steps.contains(10));
            ASSERT_TRUE(steps.contains(11) && steps.contains(12)) << ran.err;
            if (layout == two) {
                EXPECT_EQ(steps.at(11).at("loss"), expected.at(11).at("loss"));
                EXPECT_EQ(steps.at(12).at("grad_norm"), expected.at(12).at("grad_norm"));
            }
            const bool unfinished = std::string(what) == "no manifest";
            EXPECT_EQ(ran.err.find("step-00000012") == std::string::npos, unfinished) << ran.err;
            EXPECT_NE(ran.err.find("going on from " + Step(10)), std::string::npos) << ran.err;
            // Step 5 is still one of three good ones, because damaged ones do not count.
            for (const int64_t step : {5, 10}) EXPECT_TRUE(fs::exists(DataFile(step))) << step;
            EXPECT_TRUE(fs::exists(Step(12) + "/manifest.json"));
        }
    }
}

// With any spelling of the folder's path, checkpoints are kept and found.
TEST_F(TrainKeep, AFolderMayBeSpelledInAnyWay) {
    SKIP_TO_NIGHT_UNLESS(false);
    const auto before = fs::current_path();
    for (const char* folder : {"tuned/", ".", "./", "a//b"}) {
        SCOPED_TRACE(folder);
        const std::string here = dir_ / "here";
        fs::remove_all(here);
        fs::create_directories(here + "/a");
        fs::current_path(here);
        for (const char* steps : {"4", "6"}) {
            Words words =
                Command({"--save-every", "2", "--keep-last", "1", "--resume", "auto"}, steps);
            *std::ranges::find(words, out_) = folder;
            const Ran ran = RunWeft(words);
            EXPECT_EQ(ran.status, 0) << ran.err;
            const std::string last = fmt::format("checkpoints/step-0000000{}/manifest.json", steps);
            EXPECT_TRUE(fs::exists(fs::path(folder) / last)) << ran.err;
            EXPECT_EQ(StepsOf(ran.out).contains(4), std::string(steps) == "4");
        }
        fs::current_path(before);
    }
}

TEST_F(TrainKeep, WhereNoneIsWholeNothingIsBegun) {
    SKIP_TO_NIGHT_UNLESS(false);
    ASSERT_EQ(RunWeft(Command({"--save-every", "5"})).status, 0);
    for (const int64_t step : {5, 10}) fs::resize_file(DataFile(step), 100);
    // The second attempt does not change them either.
    for (int attempt = 0; attempt < 2; ++attempt) {
        const Ran ran = RunWeft(Command({"--save-every", "5", "--resume", "auto"}, "12"));
        EXPECT_EQ(ran.status, 1) << ran.err;
        EXPECT_NE(ran.err.find("none of the 2 checkpoints"), std::string::npos) << ran.err;
        EXPECT_FALSE(StepsOf(ran.out).contains(1)) << ran.out;
        for (const int64_t step : {5, 10}) EXPECT_TRUE(fs::exists(Step(step) + "/manifest.json"));
    }
    // Checkpoints put aside are kept as well.
    fs::remove(out_ + "/model.gguf");
    for (const int64_t step : {5, 10}) fs::rename(Step(step), Step(step) + ".bad");
    const Ran aside = RunWeft(Command({"--save-every", "5", "--resume", "auto"}, "12"));
    EXPECT_EQ(aside.status, 1) << aside.err;
    EXPECT_NE(aside.err.find("none of the 2 checkpoints"), std::string::npos) << aside.err;
    EXPECT_NE(aside.err.find(".bad was found damaged"), std::string::npos) << aside.err;
    EXPECT_EQ(RunWeft(Command({"--save-every", "5"}, "12")).status, 2);
    EXPECT_EQ(RunWeft(Command({"--save-every", "5", "--overwrite"}, "6")).status, 0);
}

// A malformed manifest is put aside like damaged data; otherwise it would take space forever.
TEST_F(TrainKeep, ADamagedManifestIsPutAside) {
    ASSERT_EQ(RunWeft(Command({"--save-every", "5"})).status, 0);
    Put(Step(10) + "/manifest.json", "{");
    // Leftovers of a killed save are removed.
    fs::create_directories(Step(7));
    Put(Step(7) + "/rank-00000-00000000.safetensors", std::string(5000, 'x'));
    Put(out_ + "/adapter_model.safetensors.part", "x");
    Put(out_ + "/notes.part", "mine");
    const Ran ran = RunWeft(Command({"--resume", "auto"}, "6"));
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_TRUE(StepsOf(ran.out).contains(6)) << ran.err;
    EXPECT_TRUE(fs::exists(Step(10) + ".bad")) << ran.err;
    EXPECT_FALSE(fs::exists(Step(10)));
    EXPECT_FALSE(fs::exists(Step(7))) << ran.err;
    EXPECT_FALSE(fs::exists(out_ + "/adapter_model.safetensors.part"));
    EXPECT_TRUE(fs::exists(out_ + "/notes.part"));
}

// A job that failed at a bad record may skip bad records; none was before the checkpoint.
TEST_F(TrainKeep, BadRecordsMayBeSkippedFromACheckpointOn) {
    const Words saves = {"--save-every", "2"};
    ASSERT_EQ(RunWeft(Command(saves, "2")).status, 0);
    const Ran on = RunWeft(Command(saves + Words{"--resume", "auto", "--skip-bad"}, "4"));
    EXPECT_EQ(on.status, 0) << on.err;
    EXPECT_FALSE(StepsOf(on.out).contains(1));
    EXPECT_TRUE(StepsOf(on.out).contains(3));
    // After that, the position in the data does not count them.
    const Ran back = RunWeft(Command(saves + Words{"--resume", "auto"}, "6"));
    EXPECT_EQ(back.status, 2) << back.err;
    EXPECT_NE(back.err.find("--skip-bad"), std::string::npos) << back.err;
}

TEST_F(TrainKeep, AFileSystemWithoutLocksIsWrittenTo) {
    const Words environment = {"LD_PRELOAD=" WEFT_NO_LOCKS,
                               "ASAN_OPTIONS=verify_asan_link_order=0"};
    for (const char* steps : {"4", "6"}) {
        const Ran ran =
            RunWeft(Command({"--save-every", "2", "--resume", "auto"}, steps), environment);
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_NE(ran.err.find("supports no locks"), std::string::npos) << ran.err;
        EXPECT_TRUE(fs::exists(Step(std::atoi(steps)) + "/manifest.json"));
        EXPECT_TRUE(fs::exists(out_ + "/model.gguf"));
        fs::remove(out_ + "/model.gguf");
    }
}

// A foreign file at the log's path is kept, whatever it contains.
TEST_F(TrainKeep, AFileInTheLogsPlaceIsKept) {
    fs::create_directories(out_);
    Put(out_ + "/log.csv", "what I have learnt so far");
    const Ran ran = RunWeft(Command({}, "2"));
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(Slurp(out_ + "/log-1.csv"), "what I have learnt so far");
    EXPECT_TRUE(Slurp(out_ + "/log.csv").starts_with("step,loss,"));
}

// A restarted job that ended early must not look like the previous one.
TEST_F(TrainKeep, WhatIsBegunAnewHasNoOldResult) {
    SKIP_TO_NIGHT_UNLESS(false);
    ASSERT_EQ(RunWeft(Command({}, "2")).status, 0);
    ASSERT_TRUE(fs::exists(out_ + "/model.gguf"));
    {
        Weft weft(Command({"--overwrite"}, "1000000"));
        ASSERT_TRUE(test::Prints(weft, "\"step\":3,"));
        EXPECT_FALSE(fs::exists(out_ + "/model.gguf"));
        ASSERT_EQ(::kill(weft.pid(), SIGKILL), 0);
        (void)weft.Wait();
    }
    // A model in the folder that is trained further stays.
    ASSERT_EQ(RunWeft(Command({"--overwrite"}, "2")).status, 0);
    Words further = Command({"--overwrite", "--save-format", "hf"}, "1000000");
    *std::ranges::find(further, model_) = out_ + "/model.gguf";
    Weft weft(further);
    ASSERT_TRUE(test::Prints(weft, "\"step\":3,"));
    EXPECT_TRUE(fs::exists(out_ + "/model.gguf"));
}

TEST_F(TrainKeep, OneJobAtATimeInAFolder) {
    Weft first(Command({"--save-every", "5"}, "1000000"));
    ASSERT_TRUE(test::Prints(first, "\"step\":6,"));
    const std::string before = Slurp(out_ + "/log.csv");
    for (const Words& more : {Words{}, Words{"--resume", "auto"}, Words{"--overwrite"}}) {
        const Ran second = RunWeft(Command(more));
        EXPECT_EQ(second.status, 1) << second.err;
        EXPECT_NE(second.err.find("another weft train writes there: process " +
                                  std::to_string(first.pid())),
                  std::string::npos)
            << second.err;
    }
    EXPECT_TRUE(Slurp(out_ + "/log.csv").starts_with(before));
    // However the job ends, the folder is no longer locked.
    ASSERT_EQ(::kill(first.pid(), SIGKILL), 0);
    const int64_t last = StepsOf(first.Wait().out).rbegin()->first;
    const Ran next = RunWeft(Command({"--resume", "auto"}, std::to_string(last + 5)));
    EXPECT_EQ(next.status, 0) << next.err;
}

TEST_F(TrainKeep, AnEarlierResultIsNotOverwrittenUnasked) {
    for (const Words& kind : {Words{}, Words{"--save-format", "hf"}, Words{"--lora", "2"}}) {
        fs::remove_all(out_);
        ASSERT_EQ(RunWeft(Command(kind, "2")).status, 0);
        const std::string log = Slurp(out_ + "/log.csv");
        for (const Words& more : {Words{}, Words{"--resume", "auto"}}) {
            const Ran ran = RunWeft(Command(kind + more, "2"));
            EXPECT_EQ(ran.status, 2) << ran.err;
            EXPECT_NE(ran.err.find("--overwrite"), std::string::npos) << ran.err;
        }
        EXPECT_EQ(Slurp(out_ + "/log.csv"), log);
        const Ran anew = RunWeft(Command(kind + Words{"--overwrite"}, "3"));
        EXPECT_EQ(anew.status, 0) << anew.err;
        EXPECT_EQ(Count(Slurp(out_ + "/log.csv"), "\n"), 4u);
    }
    // Checkpoints of a killed job count as work, too.
    fs::remove_all(out_);
    ASSERT_EQ(RunWeft(Command({"--save-every", "2"}, "4")).status, 0);
    fs::remove(out_ + "/model.gguf");
    const Ran ran = RunWeft(Command({"--save-every", "2"}, "4"));
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("--resume auto"), std::string::npos) << ran.err;
    EXPECT_EQ(
        RunWeft(Command({"--save-every", "2", "--overwrite", "--resume", "auto"}, "4")).status, 2);
    // A later job in the same folder does not use the older job's checkpoints as its own.
    ASSERT_EQ(RunWeft(Command({"--save-every", "2", "--overwrite"}, "2")).status, 0);
    EXPECT_FALSE(fs::exists(Step(4)));
    EXPECT_TRUE(fs::exists(Step(2)));
}

TEST_F(TrainKeep, WhereTheResultGoesIsAskedForFirst) {
    const Ran ran = RunWeft({"train", model_, "--data", data_, "--steps", "1"});
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("--output-dir"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("--no-output"), std::string::npos) << ran.err;
    EXPECT_EQ(RunWeft(Command({"--no-output"})).status, 2);
    Put(dir_ / "file", "x");
    const Ran file =
        RunWeft({"train", model_, "--data", data_, "--steps", "1", "--output-dir", dir_ / "file"});
    EXPECT_EQ(file.status, 1) << file.err;
}

// ---- Disk space ---------------------------------------------------------------------------------

// A separate disk of `kib` KiB, which is OUT in the script; nullopt: mounting is not permitted.
class TrainRoom : public TrainKeep {
  protected:
    std::optional<int> OnDisk(int kib, const std::string& script, const Words& words) {
        fs::create_directories(out_);
        std::string train = WeftProgram();
        for (const std::string& word : words) train += " " + word;
        Put(dir_ / "script", "mount -t tmpfs -o size=" + std::to_string(kib) + "k tmpfs " + out_ +
                                 " || exit 77\nOUT=" + out_ + "\nKEPT=" + (dir_ / "kept") + "\n. " +
                                 TestData("/../support/wait.sh") + "\ntrain() { " + train +
                                 " \"$@\"; }\n" + script +
                                 "\nstatus=$?\ncp -r $OUT $KEPT\nexit $status\n");
        const int status = WEXITSTATUS(std::system(
            ("unshare -m bash " + (dir_ / "script") + " > " + (dir_ / "said") + " 2>&1").c_str()));
        said_ = Slurp(dir_ / "said");
        if (said_.find("unshare") != said_.npos || status == 77) return std::nullopt;
        return status;
    }
    // Size of the written model (float32); below: of a checkpoint.
    uint64_t ModelKib() {
        Words words = Command({"--save-every", "1"}, "1");
        EXPECT_EQ(RunWeft(words).status, 0);
        const uint64_t model = fs::file_size(out_ + "/model.gguf") / 1024 + 1;
        checkpoint_kib_ = fs::file_size(DataFile(1)) / 1024 + 1;
        fs::remove_all(out_);
        return model;
    }
    uint64_t checkpoint_kib_ = 0;
    std::string said_;
};

TEST_F(TrainRoom, IsLookedAtBeforeTheFirstUpdate) {
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    const auto refused = OnDisk(model + checkpoint + 64, "train", Command({"--save-every", "2"}));
    if (!refused) GTEST_SKIP() << said_;
    EXPECT_EQ(*refused, 1) << said_;
    EXPECT_NE(said_.find("are free, and"), std::string::npos) << said_;
    EXPECT_NE(said_.find("2 checkpoints of"), std::string::npos) << said_;
    EXPECT_EQ(said_.find("0.00 GiB"), std::string::npos) << said_;
    EXPECT_EQ(said_.find("\"step\""), std::string::npos) << said_;
    fs::remove_all(dir_ / "kept");
    const auto warned = OnDisk(model + 2 * checkpoint + 400, "train",
                               Command({"--save-every", "2", "--keep-last", "4"}));
    EXPECT_EQ(*warned, 0) << said_;
    EXPECT_NE(said_.find("the space for the result stays reserved"), std::string::npos) << said_;
    EXPECT_NE(said_.find("was removed"), std::string::npos) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
    EXPECT_TRUE(fs::exists(dir_ / "kept/checkpoints/step-00000010/manifest.json")) << said_;
}

// Another program fills the disk for good: training stops at the first checkpoint that can't be
// written, and the previous one stays complete.
TEST_F(TrainRoom, ADiskThatStaysFullEndsAtTheLastGoodCheckpoint) {
    SKIP_TO_NIGHT_UNLESS(false);  // TrainFullDisk ends daily
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    // Fills repeatedly, because each removed file frees space.
    const std::string script =
        "rm -f $OUT.log; train > $OUT.log 2>&1 & pid=$!\n"
        "wait_until grep -qs '\"step\":7,' $OUT.log\n"
        "fills() { dd if=/dev/zero bs=4k 2> /dev/null >> $OUT/filler; [ -z \"$(jobs -r)\" ]; }\n"
        "wait_until fills\n"
        "wait $pid; status=$?; cat $OUT.log; rm $OUT/filler; (exit $status)\n";
    size_t turn = 0;
    for (const Words& ranks : {Words{"--local", "2", "--zero", "3"}, Words{}}) {
        if (!test::InTurn(turn++, 2)) continue;
        SCOPED_TRACE(ranks.size());
        const Words words = Words{"--save-every", "3", "--keep-last", "2"} + ranks;
        fs::remove_all(dir_ / "kept");
        const auto status = OnDisk(model + 4 * checkpoint + 400, script, Command(words, "100000"));
        if (!status) GTEST_SKIP() << said_;
        EXPECT_EQ(*status, 1) << said_;
        EXPECT_NE(said_.find("because a checkpoint could not be written"), said_.npos) << said_;
        EXPECT_NE(said_.find("are free"), said_.npos) << said_;
        EXPECT_NE(said_.find("--resume auto goes on from " + out_), said_.npos) << said_;
        EXPECT_FALSE(fs::exists(dir_ / "kept/model.gguf"));
        // After space is freed, it continues as if undisturbed.
        fs::rename(dir_ / "kept", out_ + "-on");
        Words on = Command(words + Words{"--resume", "auto"}, "40");
        *std::ranges::find(on, out_) = out_ + "-on";
        const Ran resumed = RunWeft(on);
        EXPECT_EQ(resumed.status, 0) << resumed.err;
        Words whole = Command(ranks, "40");
        *std::ranges::find(whole, out_) = out_ + "-whole";
        const Ran straight = RunWeft(whole);
        const auto expected = StepsOf(straight.out), got = StepsOf(resumed.out);
        ASSERT_TRUE(got.contains(40)) << resumed.err;
        EXPECT_EQ(got.at(40).at("loss"), expected.at(40).at("loss"));
        fs::remove_all(out_ + "-on");
        fs::remove_all(out_ + "-whole");
    }
}

// Another program fills the disk completely after some checkpoints.
class TrainFullDisk : public TrainRoom {
  protected:
    // before: done to $OUT first, while the ranks are stopped. after: done when the disk has space
    // again.
    std::optional<int> Fill(const Words& words, int keep, const std::string& before = "true",
                            const std::string& after = "true") {
        const auto kib = static_cast<int>(ModelKib() + 4 * checkpoint_kib_ + 400);
        const std::string script =
            "STEPS=100000; rm -f $OUT.log; train > $OUT.log 2>&1 & pid=$!\n"
            "wait_until grep -qs '\"step\":11,' $OUT.log\n"
            "rank=$(cat /proc/$pid/task/$pid/children)\n"
            "all=\"$rank $(cat /proc/$rank/task/*/children)\"\n"
            // Waits until all kept checkpoints are complete and no save has begun.
            "quiet() { n=0; for d in $OUT/checkpoints/step-*; do\n"
            "  [ -e $d/manifest.json ] || return 1; n=$((n + 1)); done; [ $n = " +
            std::to_string(keep) +
            " ]; }\n"
            "stopped() { kill -STOP $all; quiet || { kill -CONT $all; false; }; }\n"
            "wait_until stopped\n" +
            before +
            "\ndd if=/dev/zero bs=64k of=$OUT/filler 2> /dev/null; kill -CONT $all\n"
            "wait $pid; status=$?; cat $OUT.log; rm $OUT/filler\n" +
            after + "\n(exit $status)\n";
        fs::remove_all(dir_ / "kept");
        const Words saves = {"--save-every", "3", "--keep-last", std::to_string(keep)};
        return OnDisk(kib, script, Command(saves + words, "$STEPS"));
    }
    std::vector<std::string> Kept() const {
        std::vector<std::string> kept;
        std::error_code none;
        for (const auto& entry : fs::directory_iterator(dir_ / "kept/checkpoints", none)) {
            if (fs::exists(entry.path() / "manifest.json")) kept.push_back(entry.path().filename());
        }
        std::ranges::sort(kept);
        return kept;
    }
};

// The last update's checkpoint replaces the oldest one.
TEST_F(TrainFullDisk, ACheckpointReplacesAnOlderOne) {
    const Words layouts[] = {
        {"--local", "2", "--zero", "3"}, {}, {"--local", "2", "--pp", "2", "--optimizer", "sgd"}};
    for (const Words& ranks : test::Some(layouts, 3)) {
        SCOPED_TRACE(ranks.size());
        const auto status = Fill(ranks, 2);
        if (!status) GTEST_SKIP() << said_;
        EXPECT_EQ(*status, 1) << said_;
        const std::vector<std::string> kept = Kept();
        ASSERT_EQ(kept.size(), 2u) << said_;
        const int64_t last = std::stoll(kept[1].substr(5));
        EXPECT_NE(said_.find(fmt::format("training stopped after step {}", last)), said_.npos)
            << said_;
        EXPECT_NE(said_.find("--resume auto goes on from " + Step(last)), said_.npos) << said_;
    }
}

// The only checkpoint is never removed, and the second attempt is reported.
TEST_F(TrainFullDisk, TheOnlyCheckpointStays) {
    const auto status = Fill({}, 1);
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 1) << said_;
    const std::vector<std::string> kept = Kept();
    ASSERT_EQ(kept.size(), 1u) << said_;
    EXPECT_NE(said_.find("The second try failed, too: "), said_.npos) << said_;
    EXPECT_NE(said_.find("--resume auto goes on from " + out_ + "/checkpoints/" + kept[0]),
              said_.npos)
        << said_;
}

// No error names a removed checkpoint, and --resume auto reports that there is none.
TEST_F(TrainFullDisk, ARemovedCheckpointIsNotNamed) {
    SKIP_TO_NIGHT_UNLESS(false);
    const auto status = Fill({}, 2, "rm -rf $OUT/checkpoints/*",
                             "rm -f $OUT/model.gguf; STEPS=2; train --resume auto");
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 1) << said_;
    EXPECT_EQ(said_.find("--resume auto goes on from"), said_.npos) << said_;
    EXPECT_NE(said_.find("There is no earlier checkpoint"), said_.npos) << said_;
    EXPECT_NE(said_.find("has no checkpoint, though an earlier job has written there"), said_.npos)
        << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf")) << said_;
}

// There is no good checkpoint yet: the save uses the space reserved for the model, then the model
// is written.
TEST_F(TrainRoom, AFirstCheckpointWithoutRoomTakesThatOfTheModel) {
    SKIP_TO_NIGHT_UNLESS(false);
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    const auto script = [&](int left) {
        return "rm -f $OUT.log; train > $OUT.log 2>&1 & pid=$!\n"
               "wait_until grep -qs '\"step\":2,' $OUT.log\n"
               "rank=$(cat /proc/$pid/task/$pid/children); kill -STOP $rank\n"
               "free=$(df -k --output=avail $OUT | tail -1)\n"
               "dd if=/dev/zero bs=1k count=$((free - " +
               std::to_string(left) +
               ")) of=$OUT/filler 2> /dev/null; kill -CONT $rank\n"
               "wait $pid; status=$?; cat $OUT.log; rm $OUT/filler; (exit $status)\n";
    };
    const Words words = Command({"--save-every", "20"}, "100");
    const auto saved = OnDisk(model + 3 * checkpoint + 400, script(checkpoint + 300), words);
    if (!saved) GTEST_SKIP() << said_;
    EXPECT_EQ(*saved, 1) << said_;
    EXPECT_NE(said_.find("--resume auto goes on from " + out_), said_.npos) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/checkpoints/step-00000020/manifest.json")) << said_;
    fs::remove_all(dir_ / "kept");
    const auto rescued = OnDisk(model + 3 * checkpoint + 400, script(model + 200), words);
    EXPECT_EQ(*rescued, 1) << said_;
    EXPECT_NE(said_.find("Weft wrote the current model to"), said_.npos) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
    fs::remove_all(dir_ / "kept");
    const auto none = OnDisk(model + 3 * checkpoint + 400, script(0), words);
    EXPECT_EQ(*none, 1) << said_;
    EXPECT_NE(said_.find("There is no earlier checkpoint"), said_.npos) << said_;
}

// Incomplete and damaged checkpoints are removed first to make space.
TEST_F(TrainRoom, LeftoversGoFirst) {
    (void)ModelKib();
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    const std::string script =
        "STEPS=2; train || exit 1\nrm $OUT/model.gguf\n"
        "cp -r $OUT/checkpoints/step-00000002 $OUT/checkpoints/step-00000001.bad\n"
        "mkdir $OUT/checkpoints/step-00000003\n"
        "cp $OUT/checkpoints/step-00000002/rank* $OUT/checkpoints/step-00000003\n"
        "STEPS=4; train --resume auto\n";
    const auto status = OnDisk(3 * checkpoint + 200, script,
                               Command({"--save-every", "2", "--keep-last", "1"}, "$STEPS"));
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 0) << said_;
    EXPECT_FALSE(fs::exists(dir_ / "kept/checkpoints/step-00000003")) << said_;
    EXPECT_NE(said_.find("step-00000001.bad was removed"), said_.npos) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/checkpoints/step-00000004/manifest.json"));
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
}

// Without --save-every, there is space for the checkpoint of a stop, or a message says that there
// is none.
TEST_F(TrainRoom, AStopWithoutRoomForItsCheckpointWritesTheModel) {
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    const int kib = model + 150;
    ASSERT_LT(kib, checkpoint);
    const std::string script =
        "train > $OUT.log 2>&1 & pid=$!\n"
        "wait_until grep -q '\"step\":6,' $OUT.log\n"
        "kill $(cat /proc/$pid/task/$pid/children)\n"
        "wait $pid; status=$?; cat $OUT.log; (exit $status)\n";
    const auto status = OnDisk(kib, script, Command({}, "1000000"));
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 1) << said_;
    EXPECT_NE(said_.find("are needed for the checkpoint of a stop"), said_.npos) << said_;
    EXPECT_NE(said_.find("Weft wrote the current model to"), said_.npos) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
    fs::remove_all(dir_ / "kept");
    const auto limited = OnDisk(kib, "train --time-limit 60", Command({}, "1000000"));
    EXPECT_EQ(*limited, 1) << said_;
    EXPECT_EQ(said_.find("\"step\""), said_.npos) << said_;
    EXPECT_NE(said_.find("leave --time-limit out"), said_.npos) << said_;
}

// Checkpoints may be on another disk, whose space is checked; they stay there.
TEST_F(TrainRoom, CheckpointsMayLieOnAnotherDisk) {
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    const std::string large = std::to_string(3 * checkpoint + 300), other = dir_ / "other";
    fs::create_directories(other);
    const std::string script = "mount -t tmpfs -o size=" + large + "k tmpfs " + other +
                               " || exit 77\nln -s " + other +
                               " $OUT/checkpoints\n"
                               "train && train --overwrite && [ -L $OUT/checkpoints ]\n";
    const auto status = OnDisk(model + 300, script, Command({"--save-every", "2"}, "4"));
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 0) << said_;
    EXPECT_EQ(said_.find("too full"), said_.npos) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
    // The checkpoints' disk is full, the model's is not.
    fs::remove_all(dir_ / "kept");
    const std::string little = std::to_string(checkpoint + 64);
    const auto full = OnDisk(model + 9 * checkpoint,
                             "mount -t tmpfs -o size=" + little + "k tmpfs " + other +
                                 " || exit 77\nln -s " + other + " $OUT/checkpoints\ntrain\n",
                             Command({"--save-every", "2"}, "4"));
    EXPECT_EQ(*full, 1) << said_;
    EXPECT_NE(said_.find("2 checkpoints of"), said_.npos) << said_;
}

// Hosts without a shared folder: each of their disks holds the kept number of checkpoints.
TEST_F(TrainRoom, OtherHostsKeepNoOldCheckpoints) {
    Put(dir_ / "key", "a key for these tests only");
    fs::permissions(dir_ / "key", fs::perms::owner_read | fs::perms::owner_write);
    const std::string weft = WeftProgram(), key = dir_ / "key";
    const std::string script =
        "mkdir " + (dir_ / "there") + "\n" + weft + " worker --listen 127.0.0.1:0 --key-file " +
        key +
        " 2> $OUT.worker & worker=$!\n"
        "wait_until grep -q '(port' $OUT.worker\n"
        "port=$(sed -n 's/.*(port \\([0-9]*\\)).*/\\1/p' $OUT.worker)\n"
        "unshare -m bash -c \"mount -t tmpfs tmpfs $OUT; exec $TRAIN --hosts 127.0.0.1:$port "
        "--key-file " +
        key + "; \"; status=$?\nkill $worker; wait $worker\n(exit $status)\n";
    Words words = Command({"--save-every", "2", "--keep-last", "2", "--zero", "1"});
    *std::ranges::find(words, "4") = "2";
    std::string train = weft;
    for (const std::string& word : words) train += " " + word;
    const auto status = OnDisk(40'000, "TRAIN=\"" + train + "\"\n" + script, words);
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 0) << said_;
    // (The copy has what the worker saw.)
    std::vector<std::string> there;
    for (const auto& entry : fs::directory_iterator(dir_ / "kept/checkpoints")) {
        there.push_back(entry.path().filename());
    }
    std::ranges::sort(there);
    EXPECT_EQ(there, (std::vector<std::string>{"step-00000008", "step-00000010"})) << said_;
}

// Without a checkpoint, no other copy of the trained weights exists: writing is retried until it
// succeeds.
TEST_F(TrainRoom, TheModelIsTriedAgainForLongWithoutACheckpoint) {
    SKIP_TO_NIGHT_UNLESS(false);
    const auto model = static_cast<int>(ModelKib());
    const std::string script =
        "train > $OUT.log 2>&1 & pid=$!\n"
        "wait_until grep -q '\"step\":3,' $OUT.log\n"
        "rank=$(cat /proc/$pid/task/$pid/children); kill -STOP $rank\n"
        "dd if=/dev/zero of=$OUT/filler bs=4k 2> /dev/null; kill -CONT $rank\n"
        "tries() { grep -q 'tries again until' $OUT.log || [ -z \"$(jobs -r)\" ]; }\n"
        "wait_until tries\n"
        "rm $OUT/filler; wait $pid; status=$?; cat $OUT.log; (exit $status)\n";
    const auto status = OnDisk(model + 400, script, Command({"--local", "2"}, "40"));
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 0) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
}

// At the end there is no space for the model; another program frees some, or does not.
TEST_F(TrainRoom, TheModelIsTriedAgain) {
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    for (const bool mends : {true, false}) {
        fs::remove_all(dir_ / "kept");
        // (Data added after the start of the last checkpoint leave no space for the model.)
        const std::string script =
            "train > $OUT.log 2>&1 & pid=$!\n"
            "wait_until [ -e $OUT/checkpoints/step-00000010/manifest.json ]\n"
            "kill -STOP $pid; dd if=/dev/zero of=$OUT/filler bs=4k 2> /dev/null; kill -CONT "
            "$pid\n" +
            std::string(mends ? "tries() { grep -q 'Weft tries again' $OUT.log || "
                                "[ -z \"$(jobs -r)\" ]; }\nwait_until tries; rm $OUT/filler\n"
                              : "") +
            "wait $pid; status=$?; cat $OUT.log; rm -f $OUT/filler; (exit $status)\n";
        const auto status = OnDisk(model + 3 * checkpoint + 300, script,
                                   Command({"--save-every", "10", "--keep-last", "1"}));
        if (!status) GTEST_SKIP() << said_;
        // it finished too early
        if (said_.find("Weft tries again") == std::string::npos) continue;
        EXPECT_EQ(*status, mends ? 0 : 1) << said_;
        EXPECT_EQ(fs::exists(dir_ / "kept/model.gguf"), mends);
        EXPECT_TRUE(fs::exists(dir_ / "kept/checkpoints/step-00000010/manifest.json")) << said_;
        if (mends) continue;
        EXPECT_NE(said_.find("with --resume auto writes it"), std::string::npos) << said_;
    }
}

// A file size limit is handled like other errors.
TEST_F(TrainKeep, AFileSizeLimitKeepsTheLastCheckpoint) {
    std::string line = WeftProgram();
    for (const std::string& word : Command({"--save-every", "5"})) line += " " + word;
    const std::string err = dir_ / "err";
    const int status = WEXITSTATUS(
        std::system(("bash -c 'ulimit -f 8; " + line + "' 2> " + err + " > /dev/null").c_str()));
    EXPECT_EQ(status, 1) << Slurp(err);
    EXPECT_NE(Slurp(err).find("ulimit -f"), std::string::npos) << Slurp(err);
}

}  // namespace
}  // namespace weft::support
