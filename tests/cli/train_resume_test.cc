// weft train continues: after a kill from its last checkpoint to the bit, on other ranks and
// layouts within rounding, and by itself after the loss of a rank.
#include <fcntl.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/file.h>

#include <filesystem>
#include <fstream>
#include <map>

#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/train_case.h"
#include "support/wait.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

class TrainResume : public TrainCase {
  protected:
    // Batches of four sequences in any layout.
    Words Command(const std::string& out, const Words& more) const {
        return Words{"train",     model_,
                     "--data",    data_,
                     "--seq-len", "96",
                     "--json",    "-t",
                     "1",         "--lr",
                     "1e-3",      "--schedule",
                     "cosine",    "--warmup-steps",
                     "3",         "--output-dir",
                     out} +
               more;
    }
    std::map<int64_t, json> Train(const std::string& out, const Words& more) const {
        const Ran ran = RunTrain(Command(out, more));
        EXPECT_EQ(ran.status, 0) << ran.err;
        return StepsOf(ran.out);
    }
};

void ExpectSameSteps(const std::map<int64_t, json>& expected, const std::map<int64_t, json>& got,
                     int64_t first, double tolerance) {
    for (int64_t step = first; step <= 10; ++step) {
        SCOPED_TRACE(step);
        ASSERT_TRUE(expected.contains(step) && got.contains(step));
        for (const char* field : {"loss", "grad_norm", "lr"}) {
            const double a = expected.at(step).at(field), b = got.at(step).at(field);
            EXPECT_TRUE(std::abs(a - b) <= tolerance * std::abs(a))
                << field << ": " << a << ", " << b;
        }
        EXPECT_EQ(expected.at(step).at("tokens"), got.at(step).at("tokens"));
    }
}

TEST_F(TrainResume, AfterAKillTheCurveIsTheSameToTheBit) {
    const Words layouts[] = {
        {"--micro-batch", "4", "--dtype", "bf16"},
        {"--micro-batch", "2", "--local", "2", "--zero", "1", "--dtype", "f32"},
        {"--micro-batch", "2", "--local", "2", "--zero", "3", "--dtype", "bf16"},
        {"--micro-batch", "1", "--grad-accum", "4", "--local", "2", "--pp", "2", "--dtype", "f32"},
        {"--micro-batch", "4", "--local", "2", "--tp", "2", "--dtype", "f32"}};
    int number = 0;
    for (const Words& layout : test::Some(layouts, 4, 2)) {
        ++number;
        SCOPED_TRACE(testing::PrintToString(layout));
        const std::string out = dir_ / ("out" + std::to_string(number));
        const auto straight = Train(out + "-straight", layout + Words{"--steps", "10"});
        const Words saving = layout + Words{"--steps", "10", "--save-every", "5"};
        {
            Weft weft(Command(out, saving));
            ASSERT_TRUE(test::Prints(weft, "\"step\":7,")) << weft.Err();
            ASSERT_EQ(::kill(weft.pid(), SIGKILL), 0);
            (void)weft.Wait();
        }
        const auto resumed = Train(out, saving + Words{"--resume", "auto"});
        EXPECT_FALSE(resumed.contains(5)) << "it began at the start";
        ExpectSameSteps(straight, resumed, 6, 0);
        std::ifstream log(out + "/log.csv");
        int64_t rows = -1;  // without the header
        for (std::string line; std::getline(log, line);) ++rows;
        EXPECT_EQ(rows, 10);
        // The job is complete: resuming it trains nothing.
        const auto nothing = Train(out, saving + Words{"--resume", "auto"});
        EXPECT_EQ(nothing.size(), 1u);
    }
}

// A file that stays open keeps its disk space after its checkpoint was removed, so with little disk
// space the job would fail at a later save.
TEST_F(TrainResume, TheOldCheckpointIsNotKeptOpen) {
    const std::string out = dir_ / "out";
    for (const Words& layout : {Words{}, Words{"--local", "2", "--micro-batch", "1"}}) {
        fs::remove_all(out);
        const Words saving = layout + Words{"--save-every", "2", "--keep-last", "1"};
        (void)Train(out, saving + Words{"--steps", "2"});
        Weft weft(Command(out, saving + Words{"--steps", "100000", "--resume", "auto"}));
        ASSERT_TRUE(test::Prints(weft, "\"step\":7,")) << weft.Err();
        std::vector<pid_t> pids = test::DescendantsOf(weft.pid());
        pids.push_back(weft.pid());
        for (const pid_t pid : pids) {
            std::error_code gone;
            for (fs::directory_iterator at(fmt::format("/proc/{}/fd", pid), gone), end;
                 !gone && at != end; at.increment(gone)) {
                const std::string file = fs::read_symlink(at->path(), gone).string();
                EXPECT_EQ(file.find("step-00000002"), std::string::npos) << file;
            }
        }
        ASSERT_EQ(::kill(weft.pid(), SIGKILL), 0);
        (void)weft.Wait();
    }
}

// Sums have other orders: a relative error of 2^-24 for each of some hundred terms, and twice that
// after the update.
TEST_F(TrainResume, OtherRanksAndLayoutsGoOnAlike) {
    model::Hyper small = TrainHyper();
    small.tied = true;
    WriteTinyGguf(model_, {.hyper = small, .dtype = DType::kF16});
    const Words f32 = {"--dtype", "f32"};
    const auto straight =
        Train(dir_ / "straight", f32 + Words{"--micro-batch", "4", "--steps", "10"});
    const struct {
        Words from, to;
    } pairs[] = {
        {{"--local", "4", "--micro-batch", "1", "--zero", "2"}, {"--micro-batch", "4"}},
        {{"--micro-batch", "4"}, {"--local", "2", "--micro-batch", "2", "--zero", "3"}},
        {{"--local", "2", "--micro-batch", "2", "--zero", "3"},
         {"--local", "3", "--tp", "3", "--micro-batch", "4"}},
        {{"--local", "3", "--tp", "3", "--micro-batch", "4"},
         {"--local", "4", "--pp", "2", "--zero", "1", "--micro-batch", "1", "--grad-accum", "2"}},
        {{"--local", "4", "--pp", "2", "--zero", "1", "--micro-batch", "1", "--grad-accum", "2"},
         {"--local", "2", "--micro-batch", "1", "--grad-accum", "2"}}};
    int number = 0;
    for (const auto& [from, to] : test::Some(pairs, 3)) {
        SCOPED_TRACE(testing::PrintToString(from) + " to " + testing::PrintToString(to));
        const std::string out = dir_ / ("out" + std::to_string(++number));
        Train(out, f32 + from + Words{"--steps", "10", "--save-every", "4", "--keep-last", "0"});
        const auto resumed = Train(
            out + "-on",
            f32 + to + Words{"--steps", "10", "--resume", out + "/checkpoints/step-00000004"});
        EXPECT_FALSE(resumed.contains(4));
        ExpectSameSteps(straight, resumed, 5, 2e-5);
    }
}

// With epochs, the remaining data are counted in the new batches.
TEST_F(TrainResume, OtherBatchesGoOnToTheEndOfTheData) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Words epoch = {"--epochs", "1", "--no-pack", "--micro-batch", "1", "--dtype", "f32"};
    const Words one = epoch + Words{"--save-every", "10", "--keep-last", "0"};
    const Words two = one + Words{"--local", "2"};
    const struct {
        const Words &from, &to;
        std::string at;
        int64_t next, last;
    } cases[] = {{one, two, "step-00000030", 31, 35},
                 {two, one, "step-00000010", 11, 30},
                 {one, one, "step-00000030", 31, 40}};
    int number = 0;
    for (const auto& [from, to, at, next, last] : cases) {
        SCOPED_TRACE(testing::PrintToString(from) + " to " + testing::PrintToString(to));
        const std::string out = dir_ / ("out" + std::to_string(++number));
        Train(out, from);
        const auto resumed = Train(out + "-on", to + Words{"--resume", out + "/checkpoints/" + at});
        EXPECT_EQ(resumed.at(0).at("steps"), last);
        EXPECT_EQ(std::next(resumed.begin())->first, next);
        EXPECT_EQ(resumed.rbegin()->first, last);
        // The schedule has ended, and the last update is saved.
        EXPECT_LT(resumed.at(last).at("lr"), 2e-5);
        EXPECT_TRUE(fs::exists(fmt::format("{}-on/checkpoints/step-{:08}", out, last)));
    }
}

TEST_F(TrainResume, ALostRankComesBack) {
    const Words layout = {"--local", "3",  "--micro-batch", "1",
                          "--zero",  "1",  "--dtype",       "f32",
                          "--steps", "10", "--timeout-ms",  std::to_string(test::TimeoutMs(1000))};
    const auto straight = Train(dir_ / "straight", layout);
    Weft weft(Command(dir_ / "out", layout + Words{"--save-every", "2", "--keep-last", "1"}));
    for (const char* at : {"\"step\":5,", "\"step\":8,"}) {
        ASSERT_TRUE(test::Prints(weft, at)) << weft.Err();
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        ASSERT_EQ(ranks.size(), 2u);
        ASSERT_EQ(::kill(ranks[0], SIGKILL), 0);
    }
    const Ran ran = weft.Wait();
    ASSERT_EQ(ran.status, 0) << ran.err;
    const auto lines = StepsOf(ran.out);
    EXPECT_EQ(lines.at(0).at("restarts"), 2) << ran.err;
    ExpectSameSteps(straight, lines, 1, 0);
    EXPECT_NE(ran.err.find("training goes on from"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("step-0000000"), std::string::npos) << ran.err;
    const auto kept = fs::directory_iterator(dir_ / "out/checkpoints");
    EXPECT_EQ(std::distance(begin(kept), end(kept)), 1);
}

// A rank may also be lost while the result is written: the last checkpoint has everything.
TEST_F(TrainResume, ARankThatIsLostWhileTheResultIsWritten) {
    SKIP_TO_NIGHT_UNLESS(false);
    const std::string out = dir_ / "out", part = out + "/model.gguf.part";
    Weft weft(Command(out, {"--local", "2", "--zero", "3", "--micro-batch", "2", "--steps", "10",
                            "--save-every", "4"}));
    ASSERT_TRUE(test::Prints(weft, "\"step\":3,")) << weft.Err();
    // As if another process were writing it: the result is retried.
    const int fd = ::open(part.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
    ASSERT_GE(fd, 0);
    ASSERT_EQ(::flock(fd, LOCK_EX), 0);
    test::Reports(weft, "Weft tries again");
    const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
    ASSERT_EQ(ranks.size(), 1u) << weft.Err();
    ASSERT_EQ(::kill(ranks[0], SIGKILL), 0);
    ::close(fd);
    const Ran ran = weft.Wait();
    ASSERT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(StepsOf(ran.out).at(0).at("restarts"), 1) << ran.err;
    EXPECT_NE(ran.err.find("step-00000010"), std::string::npos) << ran.err;
    EXPECT_TRUE(fs::exists(out + "/model.gguf"));
}

// Also without --save-every: whichever rank is killed while the result is written, --resume auto
// writes it, and the error of a lost rank says so.
TEST_F(TrainResume, TheResultIsWrittenAfterACheckpoint) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Words steps = {"--micro-batch", "2",
                         "--steps",       "6",
                         "--timeout-ms",  std::to_string(test::TimeoutMs(2000))};
    const struct {
        Words words;
        std::string result;
    } cases[] = {
        {{}, "model.gguf"},
        {{"--local", "2", "--zero", "3"}, "model.gguf"},
        {{"--local", "2", "--pp", "2", "--lora", "2"}, "adapter_model.safetensors"},
        {{"--local", "2", "--zero", "1", "--save-format", "hf"}, "model/model.safetensors"}};
    for (const auto& [words, result] : cases) {
        SCOPED_TRACE(result);
        const std::string out =
            dir_ / (std::to_string(words.size()) + fs::path(result).stem().string());
        const std::string path = out + "/" + result;
        Weft weft(Command(out, steps + words));
        ASSERT_TRUE(test::Prints(weft, "\"step\":2,")) << weft.Err();
        // As if another process were writing it: the result is retried.
        fs::create_directories(fs::path(path).parent_path());
        const int fd = ::open((path + ".part").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
        ASSERT_GE(fd, 0);
        ASSERT_EQ(::flock(fd, LOCK_EX), 0);
        test::Reports(weft, "Weft tries again");
        const std::vector<pid_t> others = test::ChildrenOf(weft.pid());
        ASSERT_EQ(::kill(others.empty() ? weft.pid() : others[0], SIGKILL), 0);
        ::close(fd);
        const Ran ran = weft.Wait();
        const std::string checkpoint = out + "/checkpoints/step-00000006";
        EXPECT_TRUE(fs::exists(checkpoint + "/manifest.json")) << ran.err;
        if (!others.empty()) {
            EXPECT_EQ(ran.status, 3) << ran.err;
            EXPECT_NE(ran.err.find("--resume auto goes on from " + checkpoint), std::string::npos)
                << ran.err;
        }
        const Ran on = RunWeft(Command(out, steps + words + Words{"--resume", "auto"}));
        EXPECT_EQ(on.status, 0) << on.err;
        EXPECT_FALSE(StepsOf(on.out).contains(6)) << on.out;
        EXPECT_TRUE(fs::exists(path)) << on.err;
    }
}

// That checkpoint, and no other, is removed after the result is complete.
TEST_F(TrainResume, TheCheckpointBeforeTheResultIsRemoved) {
    SKIP_TO_NIGHT_UNLESS(false);
    const std::string out = dir_ / "out";
    const auto train = [&](const Words& words) {
        const Ran ran = RunWeft(Command(out, words));
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_TRUE(fs::exists(out + "/model.gguf")) << ran.err;
    };
    for (const Words& ranks : {Words{}, Words{"--local", "2", "--zero", "3"}}) {
        fs::remove_all(out);
        train(ranks + Words{"--steps", "2"});
        EXPECT_FALSE(fs::exists(out + "/checkpoints"));
    }
    train({"--steps", "4", "--save-every", "2", "--overwrite"});
    fs::remove(out + "/model.gguf");
    train({"--steps", "5", "--resume", "auto", "--keep-last", "1"});
    std::vector<std::string> kept;
    for (const auto& entry : fs::directory_iterator(out + "/checkpoints")) {
        kept.push_back(entry.path().filename());
    }
    std::ranges::sort(kept);
    EXPECT_EQ(kept, (std::vector<std::string>{"step-00000002", "step-00000004"}));
}

// The script of `weft submit` starts the same command again, marked as a restart.
TEST_F(TrainResume, ARestartOfTheSameCommandGoesOn) {
    const Words saves = {"--save-every", "2"};
    const Words again = {"WEFT_RESTART=1"};
    const std::string other = dir_ / "other";
    (void)Train(other, saves + Words{"--steps", "2"});
    const auto lose_result = [](const std::string& out) { fs::remove(out + "/model.gguf"); };
    for (const Words& more : {Words{}, Words{"--overwrite"}, Words{"--resume", other}}) {
        SCOPED_TRACE(more.size());
        const std::string out = dir_ / ("out-" + std::to_string(more.size()));
        // The first start runs the command as written; --overwrite discards another job's
        // checkpoints.
        if (more == Words{"--overwrite"}) (void)Train(out, saves + Words{"--steps", "8"});
        const Words words = saves + more;
        const Ran first = RunWeft(Command(out, words + Words{"--steps", "4"}),
                                  {more.empty() ? "WEFT_RESTART=1" : "WEFT_RESTART=0"});
        ASSERT_EQ(first.status, 0) << first.err;
        EXPECT_EQ(StepsOf(first.out).contains(1), more != Words({"--resume", other}));
        // Twice: this job's checkpoints stay after the first start has cleared the folder.
        for (const char* steps : {"6", "8"}) {
            lose_result(out);
            const Ran ran = RunWeft(Command(out, words + Words{"--steps", steps}), again);
            EXPECT_EQ(ran.status, 0) << ran.err;
            EXPECT_NE(ran.err.find("restart 1 of this job"), std::string::npos) << ran.err;
            const auto lines = StepsOf(ran.out);
            EXPECT_FALSE(lines.contains(std::atoi(steps) - 2)) << ran.err;
            EXPECT_TRUE(lines.contains(std::atoi(steps))) << ran.err;
        }
        lose_result(out);
        if (!more.empty()) continue;
        const Ran plain = RunWeft(Command(out, words + Words{"--steps", "9"}));
        EXPECT_EQ(plain.status, 2) << plain.err;
        // A start with --overwrite that failed before it cleared the folder is repeated.
        const Ran anew = RunWeft(Command(out, words + Words{"--steps", "2", "--overwrite"}), again);
        EXPECT_EQ(anew.status, 0) << anew.err;
        EXPECT_TRUE(StepsOf(anew.out).contains(1)) << anew.err;
    }
}

// At most the requested number of restarts, and none without checkpoints.
TEST_F(TrainResume, RestartsAreCounted) {
    const Words layout = {
        "--local",      "2",      "--micro-batch", "2",
        "--steps",      "100000", "--timeout-ms",  std::to_string(test::TimeoutMs(1000)),
        "--save-every", "3"};
    Weft weft(Command(dir_ / "out", layout + Words{"--max-restarts", "1"}));
    for (const char* at : {"\"step\":5,", "\"step\":20,"}) {
        ASSERT_TRUE(test::Prints(weft, at)) << weft.Err();
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        ASSERT_EQ(ranks.size(), 1u);
        ASSERT_EQ(::kill(ranks[0], SIGKILL), 0);
    }
    const Ran ran = weft.Wait();
    EXPECT_EQ(ran.status, 3) << ran.err;
    EXPECT_NE(ran.err.find("was lost during"), std::string::npos) << ran.err;
}

// Settings that affect stored state must agree; settings that only change the curve are reported
// with both values.
TEST_F(TrainResume, OtherSettingsAreNamed) {
    const std::string out = dir_ / "out";
    const Words base = {"--micro-batch", "4", "--save-every", "2"};
    Train(out, base + Words{"--steps", "4"});
    const auto resumed = [&](const Words& more, const std::string& steps = "6") {
        fs::remove_all(dir_ / "copy");
        fs::copy(out, dir_ / "copy", fs::copy_options::recursive);
        Words words = Command(dir_ / "copy", base + Words{"--resume", "auto", "--steps", steps});
        for (size_t i = 0; i < more.size(); i += 2) {
            const auto given = std::ranges::find(words, more[i]);
            if (given == words.end()) {
                words.insert(words.end(), {more[i], more[i + 1]});
            } else {
                *std::next(given) = more[i + 1];
            }
        }
        return RunTrain(words);
    };
    const std::string checkpoint = "copy/checkpoints/step-00000004";
    const struct {
        Words words;
        std::string was, is;
    } refused[] = {
        {{"--optimizer", "sgd"}, "--optimizer adamw", "--optimizer sgd"},
        {{"--optimizer", "adam"}, "--optimizer adamw", "--optimizer adam"},
        {{"--lora", "4"}, "adapters: none", "adapters: --lora 4"},
    };
    for (const auto& [words, was, is] : refused) {
        const Ran ran = resumed(words);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find("was written with " + was), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find("this command has " + is), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find(checkpoint), std::string::npos) << ran.err;
        EXPECT_FALSE(StepsOf(ran.out).contains(5));
    }
    const struct {
        Words words;
        std::string was, is;
    } told[] = {
        {{"--lr", "5e-4"}, "--lr 0.001", "--lr 0.0005"},
        {{"--schedule", "linear"}, "--schedule cosine", "--schedule linear"},
        {{"--dtype", "f32"}, "--dtype bf16", "--dtype f32"},
        {{"--grad-dtype", "f32"}, "--grad-dtype bf16", "--grad-dtype f32"},
        {{"--warmup-steps", "1"}, "--warmup-steps 3", "--warmup-steps 1"},
        {{"--grad-accum", "2"}, "sequences an update 4", "sequences an update 8"},
        {{}, "--schedule-steps 4", "--schedule-steps 6"},
    };
    size_t turn = 0;
    for (const auto& [words, was, is] : told) {
        if (!test::InTurn(turn++, 4)) continue;
        const Ran ran = resumed(words);
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_NE(ran.err.find(was), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find("goes on with"), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find(is), std::string::npos) << ran.err;
        EXPECT_TRUE(StepsOf(ran.out).contains(6));
    }
    const Ran same = resumed({"--schedule-steps", "4", "--grad-dtype", "bf16"});
    EXPECT_EQ(same.err.find("was written with"), std::string::npos) << same.err;
    const Ran fewer = resumed({}, "3");
    EXPECT_EQ(fewer.status, 2) << fewer.err;
    EXPECT_NE(fewer.err.find("is at step 4, and --steps 3"), std::string::npos) << fewer.err;
}

// No update remains: the result is written again, and no loss is reported.
TEST_F(TrainResume, TheResultIsWrittenAgain) {
    const std::string out = dir_ / "out";
    const Words base = {"--micro-batch", "4", "--save-every", "2"};
    Train(out, base + Words{"--steps", "4"});
    Words words = Command(out, base + Words{"--resume", "auto", "--steps", "4"});
    std::erase(words, "--json");
    fs::remove(out + "/model.gguf");
    const Ran none = RunTrain(words);
    EXPECT_EQ(none.status, 0) << none.err;
    EXPECT_NE(none.err.find("is at step 4 of 4"), std::string::npos) << none.err;
    EXPECT_EQ(none.err.find("loss 0.0000"), std::string::npos) << none.err;
    EXPECT_TRUE(fs::exists(out + "/model.gguf"));
}

TEST_F(TrainResume, OtherAdaptersAreRefused) {
    const std::string out = dir_ / "out";
    const Words base = {"--micro-batch", "4", "--save-every", "2",
                        "--steps",       "2", "--lora-alpha", "8"};
    Train(out, base + Words{"--lora", "4", "--lora-targets", "attn"});
    const struct {
        Words words;
        std::string was, is;
    } cases[] = {
        {{"--lora", "8", "--lora-targets", "attn"}, "--lora 4", "--lora 8"},
        {{"--lora", "4"}, "--lora-targets attn", "--lora-targets all"},
        {{"--lora", "4", "--lora-targets", "attn", "--rslora"}, "--rslora off", "--rslora on"},
    };
    for (const auto& [words, was, is] : cases) {
        const Ran ran = RunTrain(Command(out, base + words + Words{"--resume", "auto"}));
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find(was), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find(is), std::string::npos) << ran.err;
    }
    const Ran none = RunTrain(Command(
        out, {"--micro-batch", "4", "--save-every", "2", "--steps", "2", "--resume", "auto"}));
    EXPECT_EQ(none.status, 2) << none.err;
    EXPECT_NE(none.err.find("adapters: --lora 4"), std::string::npos) << none.err;
    EXPECT_NE(none.err.find("adapters: none"), std::string::npos) << none.err;
}

// A job could not resume from the model or adapter that its own result replaced.
TEST_F(TrainResume, AResultOverItsInputIsRefused) {
    const std::string out = dir_ / "out";
    const auto bytes = [](const std::string& path) {
        std::ifstream file(path, std::ios::binary);
        return std::string(std::istreambuf_iterator<char>(file), {});
    };
    const struct {
        Words first, more;
        std::string input, file;
    } cases[] = {
        {{}, {}, out + "/model.gguf", out + "/model.gguf"},
        {{}, {}, out, out + "/model.gguf"},
        {{"--save-format", "hf"},
         {"--save-format", "hf"},
         out + "/model/",
         out + "/model/model.safetensors"},
        {{"--lora", "2"}, {"--lora-from", out}, model_, out + "/adapter_model.safetensors"}};
    for (const auto& [first, more, input, file] : cases) {
        SCOPED_TRACE(input);
        fs::remove_all(out);
        Train(out, first + Words{"--steps", "1"});
        const std::string before = bytes(file);
        ASSERT_FALSE(before.empty());
        for (const char* mode : {"--overwrite", "--no-pack"}) {
            Words words = Command(out, more + Words{"--steps", "2", mode});
            words[1] = input;
            const Ran ran = RunWeft(words);
            EXPECT_EQ(ran.status, 2) << ran.err;
            EXPECT_NE(ran.err.find("the result would replace"), std::string::npos) << ran.err;
        }
        EXPECT_EQ(bytes(file), before);
        // Another folder may be named.
        Words words = Command(dir_ / "next", more + Words{"--steps", "1", "--overwrite"});
        words[1] = input;
        EXPECT_EQ(RunWeft(words).status, 0);
    }
}

// With epochs: a checkpoint beyond their end.
TEST_F(TrainResume, FewerEpochsAreRefused) {
    SKIP_TO_NIGHT_UNLESS(false);
    const std::string out = dir_ / "out";
    const Words base = {"--micro-batch", "4", "--save-every", "5"};
    Train(out, base + Words{"--epochs", "2"});
    fs::remove_all(out + "/checkpoints/step-00000020");
    const Ran ran = RunTrain(Command(out, base + Words{"--epochs", "1", "--resume", "auto"}));
    EXPECT_EQ(ran.status, 2) << ran.err;
    EXPECT_NE(ran.err.find("is in epoch 2, and --epochs 1"), std::string::npos) << ran.err;
}

TEST_F(TrainResume, ErrorsNameWhatIsWrong) {
    const std::string out = dir_ / "out";
    Train(out, {"--micro-batch", "4", "--steps", "4", "--save-every", "2"});
    std::string file;
    for (const auto& entry : fs::directory_iterator(out + "/checkpoints/step-00000004")) {
        if (entry.path().extension() == ".safetensors") file = entry.path();
    }
    const auto expect = [&](const std::string& folder, const Words& more, int status,
                            const std::string& expected) {
        const Ran ran =
            RunTrain(Command(folder, Words{"--micro-batch", "4", "--steps", "6"} + more));
        EXPECT_EQ(ran.status, status) << ran.err;
        EXPECT_NE(ran.err.find(expected), std::string::npos) << ran.err;
    };
    expect(dir_ / "new", {"--resume", dir_ / "nowhere"}, 1, "--resume");
    expect(out, {"--resume", "auto", "--seed", "7"}, 2, "was written with other data");
    expect(out, {"--save-every", "-1"}, 2, "--save-every -1");
    {
        std::fstream bytes(file, std::ios::in | std::ios::out | std::ios::binary);
        bytes.seekp(-5, std::ios::end);
        bytes.put('x');
    }
    // A path to a step's folder selects exactly that one.
    expect(dir_ / "new", {"--resume", out + "/checkpoints/step-00000004"}, 1, file);
    // The older one is complete.
    const Ran ran =
        RunTrain(Command(out, {"--micro-batch", "4", "--steps", "4", "--resume", "auto"}));
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_NE(ran.err.find(file), std::string::npos) << ran.err;
    EXPECT_TRUE(StepsOf(ran.out).contains(3));
    EXPECT_TRUE(fs::exists(out + "/checkpoints/step-00000004.bad")) << ran.err;
    const Ran no_folder = RunTrain({"train", model_, "--data", data_, "--save-every", "2"});
    EXPECT_EQ(no_folder.status, 2) << no_folder.err;
    EXPECT_NE(no_folder.err.find("--output-dir"), std::string::npos) << no_folder.err;
}

}  // namespace
}  // namespace weft::support
