// weft train loses nothing: logs that can't be written, disks that are full, checkpoints that are
// damaged, two jobs in one folder, a folder with an earlier result.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <optional>

#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/train_run.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class TrainKeep : public testing::Test {
  protected:
    void SetUp() override {
        model::Hyper hyper = OddHyper();
        hyper.tied = true;
        hyper.ffn = 256;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kF16});
        WriteQuestions(data_, 40);
    }
    Words Command(const Words& more, const std::string& steps = "10") const {
        return Words{"train",  model_,    "--data", data_,     "--seq-len", "96",
                     "--json", "-t",      "1",      "--lr",    "1e-3",      "--micro-batch",
                     "4",      "--dtype", "f32",    "--steps", steps,       "--output-dir",
                     out_} +
               more;
    }
    static std::map<int64_t, json> StepsOf(const std::string& text) {
        std::map<int64_t, json> steps;
        for (const json& line : JsonLines(text)) steps[line.value("step", int64_t{0})] = line;
        return steps;
    }
    static bool WaitFor(const Weft& weft, const std::string& text) {
        const Deadline deadline = Deadline::In(60'000);
        while (weft.Out().find(text) == std::string::npos) {
            if (deadline.expired()) return false;
            ::usleep(1'000);
        }
        return true;
    }
    static size_t Count(const std::string& text, const std::string& word) {
        size_t count = 0;
        for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
        return count;
    }
    std::string Slurp(const std::string& path) const {
        std::ifstream file(path, std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    static void Put(const std::string& path, const std::string& text) {
        std::ofstream(path, std::ios::binary | std::ios::trunc) << text;
    }
    std::string Step(int64_t step) const {
        return fmt::format("{}/checkpoints/step-{:08}", out_, step);
    }
    // Of one rank's checkpoint.
    std::string DataFile(int64_t step, int rank = 0) const {
        for (const auto& entry : fs::directory_iterator(Step(step))) {
            const std::string name = entry.path().filename();
            if (name.starts_with(fmt::format("rank-{:05}", rank))) return entry.path();
        }
        return "";
    }

    test::TempDir dir_;
    std::string model_ = dir_ / "tiny.gguf", data_ = dir_ / "data.jsonl", out_ = dir_ / "out";
};

// ---- Logs ---------------------------------------------------------------------------------------

TEST_F(TrainKeep, AModelIsWrittenWhateverBecomesOfTheLog) {
    Weft weft(Command({}, "60"));
    ASSERT_TRUE(WaitFor(weft, "\"step\":3,"));
    fs::remove(out_ + "/log.csv");
    fs::create_directory(out_ + "/log.csv");  // (root may write to files that nobody may write to)
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
    Weft weft(Command({}, "60"));
    ASSERT_TRUE(WaitFor(weft, "\"step\":3,"));
    fs::rename(out_ + "/log.csv", out_ + "/kept");
    fs::create_directory(out_ + "/log.csv");
    ASSERT_TRUE(WaitFor(weft, "\"step\":20,"));
    fs::remove(out_ + "/log.csv");
    fs::rename(out_ + "/kept", out_ + "/log.csv");
    const Ran ran = weft.Wait();
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("the log is written again"), std::string::npos) << ran.err;
    EXPECT_EQ(Count(Slurp(out_ + "/log.csv"), "\n"), 61u) << Slurp(out_ + "/log.csv");
}

// A log that was removed is begun anew, and can be read.
TEST_F(TrainKeep, ARemovedLogIsBegunAnew) {
    Weft weft(Command({}, "60"));
    ASSERT_TRUE(WaitFor(weft, "\"step\":3,"));
    fs::remove(out_ + "/log.csv");
    ASSERT_EQ(weft.Wait().status, 0);
    EXPECT_TRUE(Slurp(out_ + "/log.csv").starts_with("step,loss,"));
    EXPECT_EQ(RunWeft({"train", "plot", out_ + "/log.csv", "-o", dir_ / "o.svg"}).status, 0);
}

TEST_F(TrainKeep, AFlippedBitInTheLogStopsNoResume) {
    const Words saves = {"--save-every", "5"};
    ASSERT_EQ(RunWeft(Command(saves)).status, 0);
    const std::string good = Slurp(out_ + "/log.csv");
    const size_t third = good.find("\n3,") + 1, fourth = good.find("\n4,") + 1;
    const struct {
        std::string text;
        size_t rows;  // with the head, after two more updates
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
    for (const char* to :
         {"> /dev/full 2> /dev/full", ">&- 2>&-", "2>&1 | head -c 300 > /dev/null"}) {
        fs::remove_all(out_);
        std::string line = WeftProgram();
        for (const std::string& word : Command({})) line += " " + word;
        (void)std::system(("bash -c '" + line + " " + to + "'").c_str());
        EXPECT_TRUE(fs::exists(out_ + "/model.gguf")) << to;
    }
}

// DeepSpeed's files ask for a line every 10 or 2,000 updates.
TEST_F(TrainKeep, StepsPerPrintSilencesNoTerminal) {
    Put(dir_ / "ds.json", R"({"train_micro_batch_size_per_gpu": 4, "steps_per_print": 1000000})");
    Words words = Command({"--ds-config", dir_ / "ds.json"});
    std::erase(words, "--json");
    const Ran ran = RunWeft(words);
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find("step 1/10"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("step 10/10"), std::string::npos) << ran.err;
}

// ---- Checkpoints --------------------------------------------------------------------------------

// All ranks pass over what is damaged, wherever the damage is and whoever would have read it.
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
    for (const auto& [what, damage] : cases) {
        for (const Words& layout : {two, Words{"--save-every", "5", "--keep-last", "3"}}) {
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
            // Step 5 is one of three good ones still: what is damaged does not count.
            for (const int64_t step : {5, 10}) EXPECT_TRUE(fs::exists(DataFile(step))) << step;
            EXPECT_TRUE(fs::exists(Step(12) + "/manifest.json"));
        }
    }
}

TEST_F(TrainKeep, WhereNoneIsWholeNothingIsBegun) {
    ASSERT_EQ(RunWeft(Command({"--save-every", "5"})).status, 0);
    for (const int64_t step : {5, 10}) fs::resize_file(DataFile(step), 100);
    const Ran ran = RunWeft(Command({"--save-every", "5", "--resume", "auto"}, "12"));
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_NE(ran.err.find("none of the 2 checkpoints"), std::string::npos) << ran.err;
    EXPECT_EQ(RunWeft(Command({"--save-every", "5", "--overwrite"}, "6")).status, 0);
}

// ---- Folders ------------------------------------------------------------------------------------

TEST_F(TrainKeep, OneJobAtATimeInAFolder) {
    Weft first(Command({"--save-every", "5"}, "1000000"));
    ASSERT_TRUE(WaitFor(first, "\"step\":6,"));
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
    // However it ends, the folder is free then.
    ASSERT_EQ(::kill(first.pid(), SIGKILL), 0);
    (void)first.Wait();
    EXPECT_EQ(RunWeft(Command({"--resume", "auto"}, "5")).status, 0);
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
    // Checkpoints of a job that was killed are work, too.
    fs::remove_all(out_);
    ASSERT_EQ(RunWeft(Command({"--save-every", "2"}, "4")).status, 0);
    fs::remove(out_ + "/model.gguf");
    const Ran ran = RunWeft(Command({"--save-every", "2"}, "4"));
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("--resume auto"), std::string::npos) << ran.err;
    EXPECT_EQ(
        RunWeft(Command({"--save-every", "2", "--overwrite", "--resume", "auto"}, "4")).status, 2);
    // A later run of the same folder doesn't take the older job's for its own.
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

// ---- Room ---------------------------------------------------------------------------------------

// On a disk of `kib` KiB of its own, which is OUT of the script; nullopt without leave to mount.
class TrainRoom : public TrainKeep {
  protected:
    std::optional<int> OnDisk(int kib, const std::string& script, const Words& words) {
        fs::create_directories(out_);
        std::string train = WeftProgram();
        for (const std::string& word : words) train += " " + word;
        Put(dir_ / "script", "mount -t tmpfs -o size=" + std::to_string(kib) + "k tmpfs " + out_ +
                                 " || exit 77\nOUT=" + out_ + "\nKEPT=" + (dir_ / "kept") +
                                 "\ntrain() { " + train + " \"$@\"; }\n" + script +
                                 "\nstatus=$?\ncp -r $OUT $KEPT\nexit $status\n");
        const int status = WEXITSTATUS(std::system(
            ("unshare -m bash " + (dir_ / "script") + " > " + (dir_ / "said") + " 2>&1").c_str()));
        said_ = Slurp(dir_ / "said");
        if (said_.find("unshare") != said_.npos || status == 77) return std::nullopt;
        return status;
    }
    // Of the model as it is written (float32), and of a checkpoint.
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
    EXPECT_NE(said_.find("the model's room is kept"), std::string::npos) << said_;
    EXPECT_NE(said_.find("was removed"), std::string::npos) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
    EXPECT_TRUE(fs::exists(dir_ / "kept/checkpoints/step-00000010/manifest.json")) << said_;
}

// Somebody else fills the disk, and for a while there is no room for a checkpoint, nor for a log.
TEST_F(TrainRoom, ADiskThatIsFullForAMomentLosesNothing) {
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    const std::string script =
        "train > $OUT.log 2>&1 & pid=$!\n"
        "until grep -q '\"step\":6,' $OUT.log; do sleep 0.02; done\n"
        "dd if=/dev/zero of=$OUT/filler bs=4k 2> /dev/null\n"
        "until grep -q '\"step\":40,' $OUT.log; do sleep 0.02; done\n"
        "rm $OUT/filler\n"
        "wait $pid; status=$?; cat $OUT.log; (exit $status)\n";
    const auto status = OnDisk(model + 4 * checkpoint + 400, script,
                               Command({"--save-every", "2", "--keep-last", "2"}, "150"));
    if (!status) GTEST_SKIP() << said_;
    EXPECT_EQ(*status, 0) << said_;
    EXPECT_TRUE(fs::exists(dir_ / "kept/model.gguf"));
    EXPECT_TRUE(fs::exists(dir_ / "kept/checkpoints/step-00000150/manifest.json"));
    EXPECT_NE(said_.find("checkpoints are saved again"), std::string::npos) << said_;
    EXPECT_EQ(Count(said_, "Training goes on; until a checkpoint"), 1u) << said_;
    EXPECT_EQ(Count(Slurp(dir_ / "kept/log.csv"), "\n"), 151u);
}

// At the end there is no room for the model, and somebody makes some; or nobody does.
TEST_F(TrainRoom, TheModelIsTriedAgain) {
    const auto model = static_cast<int>(ModelKib());
    const auto checkpoint = static_cast<int>(checkpoint_kib_);
    for (const bool mends : {true, false}) {
        fs::remove_all(dir_ / "kept");
        // (What is filled after the last checkpoint began leaves no room for the model.)
        const std::string script =
            "train > $OUT.log 2>&1 & pid=$!\n"
            "until [ -e $OUT/checkpoints/step-00000010/manifest.json ]; do sleep 0.001; done\n"
            "kill -STOP $pid; dd if=/dev/zero of=$OUT/filler bs=4k 2> /dev/null; kill -CONT "
            "$pid\n" +
            std::string(mends ? "sleep 1.5; rm $OUT/filler\n" : "") +
            "wait $pid; status=$?; cat $OUT.log; rm -f $OUT/filler; (exit $status)\n";
        const auto status = OnDisk(model + 3 * checkpoint + 300, script,
                                   Command({"--save-every", "10", "--keep-last", "1"}));
        if (!status) GTEST_SKIP() << said_;
        if (said_.find("It is tried again") == std::string::npos) continue;  // it was too quick
        EXPECT_EQ(*status, mends ? 0 : 1) << said_;
        EXPECT_EQ(fs::exists(dir_ / "kept/model.gguf"), mends);
        EXPECT_TRUE(fs::exists(dir_ / "kept/checkpoints/step-00000010/manifest.json")) << said_;
        if (mends) continue;
        EXPECT_NE(said_.find("--resume auto goes on"), std::string::npos) << said_;
    }
}

// A limit of file sizes is an error like any other.
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
