// Stopping weft train: signals to any rank at any time, and a time limit. All ranks save together,
// the status says so, and a resumed job gives the losses of an uninterrupted one.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <map>

#include "support/limits.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/train_case.h"
#include "support/wait.h"
#include "train/stop.h"

namespace weft::support {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

constexpr int kStopped = 75;
constexpr int64_t kSteps = 30;

// Receivers of a signal: a launcher, scancel or kill reach one rank, a terminal all.
enum class To { kRank0, kLast, kGroup };

class TrainStop : public TrainCase {
  protected:
    TrainStop() : TrainCase(TrainHyper()) {
        ::signal(SIGINT, SIG_DFL);  // (background jobs of a shell ignore it)
    }
    Words Command(const std::string& out, const Words& more) const {
        return Words{"train",
                     model_,
                     "--data",
                     data_,
                     "--seq-len",
                     "96",
                     "--json",
                     "-t",
                     "1",
                     "--lr",
                     "1e-3",
                     "--schedule",
                     "cosine",
                     "--dtype",
                     "f32",
                     "--steps",
                     std::to_string(kSteps),
                     "--output-dir",
                     out} +
               more;
    }
    static void Send(const Weft& weft, int signal, To to) {
        if (to != To::kLast) {
            const pid_t pid = to == To::kGroup ? -weft.pid() : weft.pid();
            ASSERT_EQ(::kill(pid, signal), 0);
            return;
        }
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        ASSERT_FALSE(ranks.empty());
        ASSERT_EQ(::kill(ranks.back(), signal), 0);
    }
    static void ExpectOrderly(const Ran& ran) {
        EXPECT_EQ(ran.status, kStopped) << ran.err;
        EXPECT_EQ(ran.err.find("lost"), std::string::npos) << ran.err;
        EXPECT_EQ(ran.err.find("error"), std::string::npos) << ran.err;
    }
    // Stops after step `at` and resumes: the losses of `straight`, to the bit.
    void ExpectGoesOn(const std::string& out, const Words& words, int signal, To to, int64_t at,
                      const std::map<int64_t, json>& straight) {
        SCOPED_TRACE(testing::PrintToString(words) + " signal " + std::to_string(signal) + " to " +
                     std::to_string(static_cast<int>(to)) + " at " + std::to_string(at));
        Weft weft(Command(out, words));
        ASSERT_TRUE(test::Prints(weft, "\"step\":" + std::to_string(at) + ",")) << weft.Err();
        Send(weft, signal, to);
        const Ran ran = weft.Wait();
        ExpectOrderly(ran);
        const auto before = StepsOf(ran.out);
        const int64_t last = before.rbegin()->first;
        ASSERT_LT(last, kSteps) << "too quick to be stopped";
        ASSERT_TRUE(before.contains(0)) << ran.out;
        EXPECT_EQ(before.at(0).at("done"), false);
        EXPECT_EQ(before.at(0).at("exit_status"), kStopped);
        const std::string checkpoint = before.at(0).at("checkpoint");
        EXPECT_TRUE(fs::exists(checkpoint + "/manifest.json")) << checkpoint;
        EXPECT_FALSE(fs::exists(out + "/model.gguf"));
        const Ran on = RunWeft(Command(out, words + Words{"--resume", "auto"}));
        ASSERT_EQ(on.status, 0) << on.err;
        const auto after = StepsOf(on.out);
        EXPECT_FALSE(after.contains(last)) << "a step is done twice";
        for (int64_t step = 1; step <= kSteps; ++step) {
            const auto& line = step <= last ? before : after;
            ASSERT_TRUE(line.contains(step)) << step;
            for (const char* field : {"loss", "grad_norm", "lr", "tokens"}) {
                EXPECT_EQ(line.at(step).at(field), straight.at(step).at(field))
                    << field << " of step " << step;
            }
        }
        EXPECT_TRUE(fs::exists(out + "/model.gguf"));
    }
};

TEST_F(TrainStop, AnySignalToAnyRankSavesAndGoesOnToTheBit) {
    const struct {
        Words words;
        std::vector<std::pair<int, To>> signals;
    } cases[] = {
        {{"--micro-batch", "4"},
         {{SIGHUP, To::kRank0}, {SIGTERM, To::kRank0}, {SIGUSR1, To::kRank0}}},
        {{"--micro-batch", "2", "--local", "2", "--zero", "1"},
         {{SIGUSR1, To::kLast}, {SIGTERM, To::kRank0}, {SIGHUP, To::kGroup}}},
        {{"--micro-batch", "4", "--local", "2", "--tp", "2"},
         {{SIGHUP, To::kLast}, {SIGUSR1, To::kGroup}}},
        {{"--micro-batch", "1", "--grad-accum", "4", "--local", "2", "--pp", "2"},
         {{SIGINT, To::kGroup}, {SIGTERM, To::kLast}}},
        {{"--micro-batch", "1", "--local", "4", "--tp", "2", "--zero", "3", "--grad-accum", "2"},
         {{SIGTERM, To::kGroup}}}};
    int number = 0;
    for (const auto& [words, signals] : cases) {
        if (!test::InTurn(static_cast<size_t>(number++), 5)) continue;
        const std::string out = dir_ / ("out" + std::to_string(number));
        const Ran straight = RunWeft(Command(out + "-straight", words));
        ASSERT_EQ(straight.status, 0) << straight.err;
        const auto expected = StepsOf(straight.out);
        int64_t at = number;  // the first step, and later ones
        for (const auto& [signal, to] : signals) {
            ExpectGoesOn(out + "-" + std::to_string(at), words, signal, to, at, expected);
            at += 4;
            if (!test::Nightly()) break;
        }
    }
}

// A save is in progress at every moment; a launcher's repeated signal counts once.
TEST_F(TrainStop, DuringASave) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Words words = {"--micro-batch", "2", "--local", "2", "--zero", "2", "--save-every", "1"};
    const Ran straight = RunWeft(Command(dir_ / "straight", words));
    ASSERT_EQ(straight.status, 0) << straight.err;
    const auto expected = StepsOf(straight.out);
    ExpectGoesOn(dir_ / "one", words, SIGTERM, To::kRank0, 5, expected);
    Weft weft(Command(dir_ / "two", words));
    ASSERT_TRUE(test::Prints(weft, "\"step\":3,"));
    Send(weft, SIGTERM, To::kGroup);
    Send(weft, SIGTERM, To::kGroup);
    Send(weft, SIGTERM, To::kRank0);
    ExpectOrderly(weft.Wait());
}

// Nothing is trained yet: all ranks end at once, without a checkpoint.
TEST_F(TrainStop, BeforeTheFirstUpdate) {
    WriteQuestions(data_, 30'000, true);
    for (const auto& [ranks, to] :
         {std::pair{1, To::kRank0}, {2, To::kRank0}, {2, To::kLast}, {2, To::kGroup}}) {
        SCOPED_TRACE(std::to_string(ranks) + " " + std::to_string(static_cast<int>(to)));
        std::string name = std::to_string(ranks);
        name += "-" + std::to_string(static_cast<int>(to));
        const std::string out = dir_ / name;
        Weft weft(Words{"train", model_, "--data", data_, "--seq-len", "96", "-t", "1", "--epochs",
                        "50", "--local", std::to_string(ranks), "--output-dir", out});
        std::vector<pid_t> pids = test::ChildrenAre(weft.pid(), static_cast<size_t>(ranks) - 1);
        pids.push_back(weft.pid());
        ASSERT_TRUE(test::Until([&] { return fs::exists(out + "/.weft-train.lock"); }));
        // The ranks have met and count the work.
        for (const pid_t pid : pids) ASSERT_TRUE(test::Computes(pid, 10));
        const int64_t begin_ns = NowNs();
        Send(weft, SIGTERM, to);
        const Ran ran = weft.Wait();
        EXPECT_EQ(ran.status, kStopped) << ran.err;
        EXPECT_EQ(ran.err.find("lost,"), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find("stopped by"), std::string::npos) << ran.err;
        EXPECT_LE(NowNs() - begin_ns, test::LimitNs(5000));
        EXPECT_FALSE(fs::exists(out + "/checkpoints"));
    }
}

// An update with the reference kernels takes minutes; a second signal does not wait for it.
TEST_F(TrainStop, ASecondSignalEndsAtOnce) {
    for (const char* ranks : {"1", "2"}) {
        if (*ranks == '1' && !test::Nightly()) continue;
        SCOPED_TRACE(ranks);
        Weft weft({"train", "synthetic:smollm2-135m:layers=4", "--data",
                   "synthetic:random-tokens:257:64", "--seq-len", "256", "--micro-batch", "4",
                   "--reference", "-t", "1", "--local", ranks, "--output-dir",
                   dir_ / ("second" + std::string(ranks)), "--steps", "3"});
        ASSERT_TRUE(test::Reports(weft, "million parameters")) << weft.Err();
        ASSERT_TRUE(test::Computes(weft.pid(), 5));
        Send(weft, SIGTERM, To::kGroup);
        // For longer than a launcher repeats a signal; its ranks have one thread.
        ASSERT_TRUE(test::Computes(weft.pid(), 60)) << "an update is too quick to show anything";
        const int64_t most_ns = test::LimitNs(4000), begin_ns = NowNs();
        Send(weft, SIGTERM, To::kGroup);
        const Ran ran = weft.Wait();
        EXPECT_LE(NowNs() - begin_ns, most_ns);
        EXPECT_TRUE(ran.status == 130 || ran.status == 128 + SIGTERM) << ran.status << ran.err;
        EXPECT_EQ(ran.err.find("was lost"), std::string::npos) << ran.err;
    }
}

TEST_F(TrainStop, ATimeLimitIsKept) {
    const Words layouts[] = {{"--local", "2"}, {}};
    for (const Words& ranks : test::Some(layouts, 2)) {
        const std::string out = dir_ / ("limit" + std::to_string(ranks.size()));
        const Words words =
            Words{"train", model_, "--data",  data_,     "--seq-len",    "96", "--json",
                  "-t",    "1",    "--steps", "1000000", "--output-dir", out} +
            ranks;
        const Ran ran = RunWeft(words + Words{"--time-limit", "2s"});
        ExpectOrderly(ran);
        EXPECT_LE(ran.seconds, test::LimitSeconds(3));
        EXPECT_NE(ran.err.find("time limit"), std::string::npos) << ran.err;
        const int64_t last = JsonLines(ran.out).back().at("steps");
        const Ran on = RunWeft(words + Words{"--time-limit", "0:02", "--resume", "auto"});
        ExpectOrderly(on);
        EXPECT_EQ(JsonLines(on.out).front().at("step"), last + 1);
    }
    for (const char* wrong : {"", "4x", "-1s", "0", "1:", "h", "1h30"}) {
        const Ran ran = RunWeft(Command(dir_ / "wrong", {"--time-limit", wrong}));
        if (*wrong == 0) continue;  // none
        EXPECT_EQ(ran.status, 2) << wrong << ran.err;
        EXPECT_NE(ran.err.find("--time-limit"), std::string::npos) << ran.err;
    }
}

// A rank is lost while the stop's checkpoint is written: the job does not wait for a replacement.
TEST_F(TrainStop, ARankThatIsLostWhileTheStopIsSaved) {
    SKIP_TO_NIGHT_UNLESS(false);
    const std::string out = dir_ / "out";
    const Words words = {"train",
                         "synthetic:smollm2-135m",
                         "--layers",
                         "1",
                         "--data",
                         "synthetic:random-tokens:17:64",
                         "--seq-len",
                         "16",
                         "--steps",
                         "1000000",
                         "--lora",
                         "2",
                         "--output-dir",
                         out,
                         "--json",
                         "-t",
                         "1"};
    Weft weft(words + Words{"--local", "2", "--zero", "1", "--save-every", "5"});
    ASSERT_TRUE(test::Prints(weft, "\"step\":8,")) << weft.Err();
    const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
    ASSERT_EQ(ranks.size(), 1u);
    ASSERT_EQ(::kill(weft.pid(), SIGTERM), 0);
    ASSERT_TRUE(test::Reports(weft, "is written, then this job stops")) << weft.Err();
    ASSERT_EQ(::kill(ranks[0], SIGKILL), 0);
    const int64_t begin_ns = NowNs();
    const Ran ran = weft.Wait();
    EXPECT_LE((NowNs() - begin_ns) / 1'000'000, test::LimitMs(20'000));
    EXPECT_EQ(ran.status, kStopped) << ran.err;
    EXPECT_EQ(ran.err.find("could not be written"), std::string::npos) << ran.err;
    const Ran on = RunWeft(words + Words{"--time-limit", "1s", "--resume", "auto"});
    EXPECT_EQ(on.status, kStopped) << on.err;
    EXPECT_GE(JsonLines(on.out).front().at("step"), 6) << on.err;
}

// Workers on other hosts receive the signal, as from a fleet's service manager, and pass it to
// their ranks.
TEST_F(TrainStop, HostsThatAreAllAskedAtOnceSave) {
    std::ofstream(dir_ / "key") << "a key for these tests only";
    fs::permissions(dir_ / "key", fs::perms::owner_read | fs::perms::owner_write);
    const struct {
        bool zero, worker;
        Words more;
    } cases[] = {{true, true, {}}, {false, true, {}}, {true, true, {"--save-every", "100000"}}};
    int number = 0;
    for (const auto& [zero, to_worker, more] : cases) {
        SCOPED_TRACE(++number);
        Weft worker({"worker", "--listen", "127.0.0.1:0", "--key-file", dir_ / "key"});
        const int port = test::PortOf(worker);
        const std::string out = dir_ / std::to_string(number);
        Words words = Command(out, {"--hosts", "127.0.0.1:" + std::to_string(port), "--key-file",
                                    dir_ / "key", "--micro-batch", "2"});
        *std::ranges::find(words, std::to_string(kSteps)) = "1000000";
        Weft weft(words + more);
        ASSERT_TRUE(test::Prints(weft, "\"step\":5,")) << weft.Err();
        if (to_worker) ::kill(worker.pid(), SIGTERM);
        if (zero) ::kill(weft.pid(), SIGTERM);
        const int64_t begin_ns = NowNs();
        const Ran ran = weft.Wait();
        ExpectOrderly(ran);
        EXPECT_LE((NowNs() - begin_ns) / 1'000'000, test::LimitMs(20'000));
        const std::string checkpoint = JsonLines(ran.out).back().at("checkpoint");
        EXPECT_TRUE(fs::exists(checkpoint + "/manifest.json")) << checkpoint;
        EXPECT_EQ(worker.Wait().status, 0) << worker.Err();
    }
}

// A record that cannot be used ends the job after the updates before it are saved, whether or not a
// save of them is due or has begun. Without the record, the job then continues with the same bits.
TEST_F(TrainStop, ABadRecordLosesNoUpdate) {
    std::ifstream good(data_);
    std::ofstream mixed(dir_ / "mixed.jsonl");
    std::string line;
    for (int i = 1; std::getline(good, line); ++i) {
        mixed << (i == 7 ? "{\"neither\": 1}\n" : "") << line << "\n";
    }
    mixed.close();
    fs::rename(dir_ / "mixed.jsonl", data_);
    const struct {
        Words layout;
        int64_t last;  // complete update before the record
    } cases[] = {{{}, 6}, {{"--save-every", "6"}, 6}, {{"--save-every", "4", "--local", "2"}, 3}};
    for (const auto& [layout, last] : cases) {
        SCOPED_TRACE(testing::PrintToString(layout));
        const Words words = layout + Words{"--no-shuffle", "--no-pack"};
        const std::string out = dir_ / fmt::format("bad{}", layout.size());
        const auto straight = StepsOf(RunWeft(Command(out, words + Words{"--skip-bad"})).out);
        fs::remove_all(out);
        const Ran ran = RunWeft(Command(out, words));
        EXPECT_EQ(ran.status, 1) << ran.err;
        const std::string saved = fmt::format("checkpoints/step-{:08}", last);
        for (const std::string_view said : {std::string_view("line 7"), std::string_view(saved),
                                            std::string_view("--resume auto --skip-bad")}) {
            EXPECT_NE(ran.err.find(said), std::string::npos) << said << " in " << ran.err;
        }
        EXPECT_TRUE(fs::exists(out + "/" + saved + "/manifest.json"));
        const Ran on = RunWeft(Command(out, words + Words{"--skip-bad", "--resume", "auto"}));
        ASSERT_EQ(on.status, 0) << on.err;
        const auto after = StepsOf(on.out);
        EXPECT_FALSE(after.contains(last));
        for (int64_t step = last + 1; step <= kSteps; ++step) {
            ASSERT_TRUE(after.contains(step)) << step;
            EXPECT_EQ(after.at(step).at("loss"), straight.at(step).at("loss")) << step;
        }
    }
}

TEST_F(TrainStop, ADivergenceLosesNoUpdate) {
    for (const Words& ranks : {Words{}, Words{"--local", "2"}}) {
        const std::string out = dir_ / fmt::format("far{}", ranks.size());
        Words words = Command(out, ranks + Words{"--clip", "0"});
        *std::ranges::find(words, "1e-3") = "1e9";
        const Ran ran = RunWeft(words);
        EXPECT_EQ(ran.status, 1) << ran.err;
        EXPECT_NE(ran.err.find("diverged"), std::string::npos) << ran.err;
        const auto steps = StepsOf(ran.out);
        ASSERT_FALSE(steps.empty()) << ran.err;
        const std::string saved = fmt::format("checkpoints/step-{:08}", steps.rbegin()->first);
        EXPECT_NE(ran.err.find(saved), std::string::npos) << ran.err;
        EXPECT_TRUE(fs::exists(out + "/" + saved + "/manifest.json"));
    }
}

// The time limit counts from the start of the program. The exit status does not ask to queue the
// job again, because it would end at the same update each time.
TEST_F(TrainStop, ATimeLimitIsKeptWhileTheDataAreCounted) {
    WriteQuestions(data_, 200'000, true);
    const Ran ran = RunWeft({"train", model_, "--data", data_, "--seq-len", "96", "-t", "1",
                             "--epochs", "50", "--output-dir", dir_ / "out", "--time-limit", "1s"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_NE(ran.err.find("time limit"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("Use a longer --time-limit, or --steps"), std::string::npos) << ran.err;
    EXPECT_LE(ran.seconds, test::LimitSeconds(3));
}

// So are the log-probabilities of the reference model, which come before the first update.
TEST_F(TrainStop, ATimeLimitIsKeptWhileTheReferenceIsRead) {
    std::ofstream pairs(data_);
    for (int i = 0; i < 100'000; ++i) {
        pairs << fmt::format(R"({{"prompt":"{}","chosen":"yes","rejected":"no"}})", i) << "\n";
    }
    pairs.close();
    const Ran ran =
        RunWeft({"train", model_, "--data", data_, "--loss", "dpo", "--seq-len", "96", "-t", "1",
                 "--steps", "5", "--output-dir", dir_ / "out", "--time-limit", "1s"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_NE(ran.err.find("log-probabilities of the reference model. Use a longer --time-limit"),
              std::string::npos)
        << ran.err;
}

// Shells start background jobs with an ignored SIGINT; SIGTERM still counts.
TEST_F(TrainStop, AnIgnoredInterruptStaysIgnored) {
    SKIP_TO_NIGHT_UNLESS(false);
    std::string line = WeftProgram();
    for (const std::string& word : Command(dir_ / "out", {"--local", "2", "--micro-batch", "2"})) {
        line += " " + (word == std::to_string(kSteps) ? "1000000" : word);
    }
    const std::string out = dir_ / "said";
    std::ofstream(dir_ / "script")
        << "trap '' INT\n"
        << line << " > " << out << " 2>&1 & pid=$!\n"
        << ". " << TestData("/../support/wait.sh") << "\nwait_until grep -q '\"step\":3,' " << out
        << "\nkill -INT $pid $(cat /proc/$pid/task/$pid/children)\nlines=$(wc -l < " << out << ")\n"
        << "more() { [ $(wc -l < " << out << ") -gt $((lines + 20)) ]; }\nwait_until more\n"
        << "kill -TERM $pid; wait $pid\n";
    const int status = std::system(("timeout 60 bash " + (dir_ / "script")).c_str());
    std::ifstream said(out);
    EXPECT_EQ(WEXITSTATUS(status), kStopped)
        << std::string{std::istreambuf_iterator<char>(said), {}};
}

// All ranks respect nohup's setting. Without nohup, a hangup asks them to stop, and a second one
// does not interrupt the stop.
TEST_F(TrainStop, AnIgnoredHangupStaysIgnored) {
    std::string line = WeftProgram();
    for (const std::string& word : Command(dir_ / "out", {"--local", "2", "--micro-batch", "2"})) {
        line += " " + (word == std::to_string(kSteps) ? "1000000" : word);
    }
    const std::string out = dir_ / "said";
    const std::string all = "$pid $(cat /proc/$pid/task/$pid/children)\n";
    std::ofstream(dir_ / "script")
        << "(trap '' HUP; exec " << line << " > " << out << " 2>&1) & pid=$!\n"
        << ". " << TestData("/../support/wait.sh") << "\nwait_until grep -q '\"step\":3,' " << out
        << "\nkill -HUP " << all << "lines=$(wc -l < " << out << ")\n"
        << "more() { [ $(wc -l < " << out << ") -gt $((lines + 20)) ]; }\nwait_until more\n"
        << "kill -TERM $pid; wait $pid\n";
    const auto said = [&] {
        std::ifstream file(out);
        return std::string{std::istreambuf_iterator<char>(file), {}};
    };
    const std::string run = "timeout 60 bash " + (dir_ / "script");
    EXPECT_EQ(WEXITSTATUS(std::system(run.c_str())), kStopped) << said();
    Words again = Command(dir_ / "out", {"--local", "2", "--micro-batch", "2", "--resume", "auto"});
    *std::ranges::find(again, std::to_string(kSteps)) = "1000000";
    Weft weft(again);
    ASSERT_TRUE(test::Prints(weft, "\"step\":")) << weft.Err();
    const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
    const auto send = [&](int signal) {
        for (const pid_t rank : ranks) ::kill(rank, signal);
    };
    send(SIGSTOP);
    ::kill(weft.pid(), SIGHUP);
    test::Outlast(train::kRepeatMs + 200);
    ::kill(weft.pid(), SIGHUP);
    send(SIGCONT);
    const Ran ran = weft.Wait();
    EXPECT_EQ(ran.status, kStopped) << ran.err;
    EXPECT_NE(ran.out.find("\"checkpoint\""), std::string::npos) << ran.out;
}

// Without an output folder there is nothing to save.
TEST_F(TrainStop, WithoutAFolderItEnds) {
    Weft weft({"train", model_, "--data", data_, "--seq-len", "96", "--json", "-t", "1", "--steps",
               "1000000", "--no-output"});
    ASSERT_TRUE(test::Prints(weft, "\"step\":3,"));
    Send(weft, SIGTERM, To::kRank0);
    EXPECT_EQ(weft.Wait().status, 130);
}

}  // namespace
}  // namespace weft::support
