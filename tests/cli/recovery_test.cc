// The weft program when a rank is lost with recovery enabled: the text equals that of an
// undisturbed run, survivors read no weight twice, and no leftovers remain.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <fstream>
#include <sstream>
#include <thread>

#include "support/limits.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

constexpr int kPromptLines = 300;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kTimeoutMs = 4000;
constexpr size_t kAtOnce = 1;
constexpr int64_t kMostMs = 240'000;
#else
constexpr int64_t kTimeoutMs = 3000;
constexpr size_t kAtOnce = 2;
constexpr int64_t kMostMs = 60'000;
#endif
constexpr int kRanks = 3;

struct Loss {
    std::string phase, transport;
    int signal = SIGKILL;
    int victim = 1;
    std::string Text() const {
        return fmt::format("{} of rank {} in {} over {}", signal == SIGKILL ? "kill" : "stop",
                           victim, phase, transport);
    }
};

// "read 30.8 MiB" from the rank's line in the summary.
std::string ReadOf(const std::string& text, int rank) {
    const size_t line = text.rfind(fmt::format("\nrank {} (", rank));
    const size_t read = text.find("; read ", line);
    if (line == std::string::npos || read == std::string::npos) return "none";
    return text.substr(read, text.find('\n', read) - read);
}

class Recovery : public testing::Test {
  protected:
    void SetUp() override {
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);  // adopts orphans
        model_ = dir_ / "tiny.gguf";
        model::Hyper hyper = OddHyper();
        hyper.context = 1 << 20;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kQ8_0});
        std::ofstream file(dir_ / "prompt.txt");
        for (int i = 0; i < kPromptLines; ++i) file << "0123456789";
    }
    void TearDown() override { EXPECT_TRUE(test::ChildrenOf(::getpid()).empty()); }

    Words CommandFor(const std::string& phase, int tokens = 300) const {
        // Generating this model takes a moment, in which the fault can hit.
        if (phase == "load")
            return {"run", "synthetic:smollm2-135m", "-p", "hi", "-n", "8", "-t", "1"};
        if (phase == "prefill") {
            return {"run", model_, "-f", dir_ / "prompt.txt", "--prefill-chunk", "4", "-n",
                    "20",  "-t",   "1",  "--ignore-eos"};
        }
        return {"run", model_, "-p",          "hello", "-n", std::to_string(tokens),
                "-t",  "1",    "--ignore-eos"};
    }
    Words Cluster(const std::string& transport, int ranks = kRanks) const {
        return {"--tp",    std::to_string(ranks), "--transport",
                transport, "--timeout-ms",        std::to_string(timeout_ms_)};
    }

    // Timeouts for runs without a loss, or whose ranks are killed, which is detected at once.
    static Words Calm(const std::string& transport) {
        return {"--tp", std::to_string(kRanks), "--transport", transport};
    }

    static bool WaitForPhase(const std::string& phase, const Weft& weft, int victim) {
        if (phase == "decode") return test::Until([&] { return weft.Out().size() > 20; });
        const bool there = test::Until([&] {
            const std::string err = weft.Err();
            return InPhase(err, 0, phase) && (phase != "load" || InPhase(err, victim, phase));
        });
        if (!there || phase == "load") return there;
        return test::Computes(weft.pid(), 3);
    }

    void Inflict(const Loss& loss, const Ran& undisturbed) {
        SCOPED_TRACE(loss.Text());
        Weft weft(CommandFor(loss.phase) + Cluster(loss.transport) +
                      Words{"--restart-timeout-ms", "20000"},
                  {"WEFT_LOG=debug"});
        const std::vector<pid_t> pids = test::ChildrenAre(weft.pid(), kRanks - 1);
        ASSERT_EQ(pids.size(), size_t{kRanks - 1}) << weft.Err();
        const pid_t victim = pids[static_cast<size_t>(loss.victim - 1)];
        ASSERT_TRUE(WaitForPhase(loss.phase, weft, loss.victim)) << weft.Err();
        ::kill(victim, loss.signal);
        const Ran ran = weft.Wait(kMostMs);
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.out, undisturbed.out) << ran.err;
        EXPECT_TRUE(test::IsGone(victim));
        EXPECT_NE(ran.err.find(fmt::format("rank {} (host ", loss.victim)), std::string::npos);
        EXPECT_NE(ran.err.find("was lost during "), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find("; epoch 2 with 3 ranks after "), std::string::npos) << ran.err;
        // Surviving ranks have read each of their weights once.
        for (int rank = 0; rank < kRanks; ++rank) {
            EXPECT_EQ(ReadOf(ran.err, rank), ReadOf(undisturbed.err, rank)) << ran.err;
        }
    }

    void InflictAll(const std::string& phase) {
        const Ran undisturbed = RunWeft(CommandFor(phase) + Calm("shm"));
        ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
        ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
        std::vector<Loss> losses;
        for (size_t transport : {0, 1}) {
            for (size_t victim : {0, 1}) {
                // A stopped rank is only detected at the deadline.
                for (size_t stop : {0, 1}) {
                    if (!test::InTurn(transport + victim + stop, 2)) continue;
                    if (phase == "prefill" && transport == 0 && !test::Nightly()) continue;
                    if (stop == 1 && phase != "decode" && !test::Nightly()) continue;
                    losses.push_back({phase, transport == 0 ? "shm" : "tcp",
                                      stop == 0 ? SIGKILL : SIGSTOP, static_cast<int>(victim) + 1});
                }
            }
        }
        for (size_t begin = 0; begin < losses.size(); begin += kAtOnce) {
            std::vector<std::thread> threads;
            for (size_t i = begin; i < std::min(begin + kAtOnce, losses.size()); ++i) {
                threads.emplace_back([&, i] { Inflict(losses[i], undisturbed); });
            }
            for (std::thread& thread : threads) thread.join();
        }
    }

    test::TempDir dir_;
    std::string model_;
    const int64_t timeout_ms_ = test::TimeoutMs(kTimeoutMs);
};

TEST_F(Recovery, InLoad) {
    InflictAll("load");
}
TEST_F(Recovery, InPrefill) {
    InflictAll("prefill");
}
TEST_F(Recovery, InDecode) {
    InflictAll("decode");
}

// Three ranks, two, one: the same text.
TEST_F(Recovery, ElasticDownToOneRank) {
    const Ran undisturbed = RunWeft(CommandFor("decode") + Calm("shm"));
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    Weft weft(CommandFor("decode") + Calm("shm") + Words{"--elastic"});
    const std::vector<pid_t> pids = test::ChildrenAre(weft.pid(), 2);
    ASSERT_EQ(pids.size(), 2u) << weft.Err();
    ASSERT_TRUE(WaitForPhase("decode", weft, 1));
    ::kill(pids[0], SIGKILL);
    ASSERT_TRUE(test::Reports(weft, "epoch 2 with 2 ranks")) << weft.Err();
    ::kill(pids[1], SIGKILL);
    const Ran ran = weft.Wait(kMostMs);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, undisturbed.out) << ran.err;
    EXPECT_NE(ran.err.find("epoch 3 with 1 rank after"), std::string::npos) << ran.err;
    // The former rank 2 is rank 1 of two.
    EXPECT_NE(ran.err.rfind("rank 1 (host "), ran.err.find("rank 1 (host ")) << ran.err;
}

// The replacement is killed before it is ready, and so is the next one.
TEST_F(Recovery, FromALossDuringRecovery) {
    const Ran undisturbed = RunWeft(CommandFor("decode") + Calm("tcp"));
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    Weft weft(CommandFor("decode") + Cluster("tcp") + Words{"--restart-timeout-ms", "20000"});
    const std::vector<pid_t> pids = test::ChildrenAre(weft.pid(), 2);
    ASSERT_EQ(pids.size(), 2u) << weft.Err();
    ASSERT_TRUE(WaitForPhase("decode", weft, 1));
    ::kill(pids[0], SIGKILL);
    pid_t last = pids[1];
    for (int again = 0; again < 2; ++again) {
        pid_t next = last;
        ASSERT_TRUE(test::Until([&] {
            const std::vector<pid_t> now = test::ChildrenOf(weft.pid());
            next = now.empty() ? last : now.back();
            return next != last;
        }));
        test::Until([&] { return test::CpuTicks(next) >= again || test::IsGone(next); });
        ::kill(next, SIGKILL);
        last = next;
    }
    const Ran ran = weft.Wait(kMostMs);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, undisturbed.out) << ran.err;
}

// A rank dies at every start: the job ends and reports its attempts.
TEST_F(Recovery, GivesUpAfterManyLosses) {
    Weft weft(CommandFor("decode", 100'000) + Cluster("shm", 2) +
              Words{"--restart-timeout-ms", "2000"});
    pid_t last = 0;
    ASSERT_TRUE(WaitForPhase("decode", weft, 0));
    const Deadline deadline = Deadline::In(kMostMs);
    // Ends before the last line of output: after it, the leak checker is a child, too.
    const auto over = [&] {
        return test::IsGone(weft.pid()) || weft.Err().find("error:") != std::string::npos;
    };
    while (!over() && !deadline.expired()) {
        for (pid_t pid : test::ChildrenOf(weft.pid())) {
            if (pid != last) ::kill(last = pid, SIGKILL);
        }
    }
    const Ran ran = weft.Wait(10'000);
    EXPECT_EQ(ran.status, 3) << ran.err;
    EXPECT_NE(ran.err.find("was lost"), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("attempts to continue failed"), std::string::npos) << ran.err;
}

// A rank returns each time and dies each time while it loads: the others continue without it.
TEST_F(Recovery, ElasticDropsRanksThatNeverBecomeReady) {
    SKIP_TO_NIGHT_UNLESS(false);
    // Large enough to be hit during its load on a busy machine.
    const Words command = {"run", "synthetic:llama-3.2-1b", "-p", "hi", "-n", "2", "-t", "1"};
    const Ran undisturbed = RunWeft(command);
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    Weft weft(command + Cluster("shm", 2) + Words{"--elastic", "--restart-timeout-ms", "20000"},
              {"WEFT_LOG=debug"});
    const auto loads = [&] {
        const std::string err = weft.Err(), line = "[rank 1] debug: phase: load";
        int count = 0;
        for (size_t at = err.find(line); at != std::string::npos; at = err.find(line, at + 1)) {
            ++count;
        }
        return count;
    };
    const auto over = [&] {
        return weft.Err().find("with 1 rank after") != std::string::npos ||
               weft.Err().find("error:") != std::string::npos || test::IsGone(weft.pid());
    };
    int killed = 0;
    while (test::Until([&] { return loads() > killed || over(); }) && !over()) {
        ++killed;
        const std::vector<pid_t> ranks = test::ChildrenOf(weft.pid());
        if (!ranks.empty()) ::kill(ranks.back(), SIGKILL);
    }
    const Ran ran = weft.Wait(kMostMs);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, undisturbed.out) << ran.err;
    EXPECT_NE(ran.err.find("with 1 rank after"), std::string::npos) << ran.err;
    EXPECT_EQ(killed, 4) << ran.err;  // the first one and three replacements
}

TEST_F(Recovery, RankZeroIsTheJob) {
    Weft weft(CommandFor("decode", 100'000) + Cluster("shm") + Words{"--elastic"});
    const std::vector<pid_t> pids = test::ChildrenAre(weft.pid(), 2);
    ASSERT_EQ(pids.size(), 2u) << weft.Err();
    ASSERT_TRUE(WaitForPhase("decode", weft, 1));
    const int64_t begin_ns = NowNs();
    ::kill(weft.pid(), SIGKILL);
    EXPECT_TRUE(test::Until([&] { return test::IsGone(pids[0]) && test::IsGone(pids[1]); }));
    EXPECT_LE(NowNs() - begin_ns, (timeout_ms_ + test::LimitMs(1000)) * 1'000'000);
    EXPECT_EQ(weft.Wait(1000).status, 128 + SIGKILL);
    for (pid_t pid : pids) ::waitpid(pid, nullptr, WNOHANG);
}

TEST_F(Recovery, IsReportedInJson) {
    // Long enough that the loss never comes after the last token, when there is nothing to replay.
    Weft weft(CommandFor("decode", 2'500) + Cluster("shm") +
                  Words{"--restart-timeout-ms", "20000", "--json"},
              {"WEFT_LOG=debug"});
    const std::vector<pid_t> pids = test::ChildrenAre(weft.pid(), 2);
    ASSERT_EQ(pids.size(), 2u) << weft.Err();
    ASSERT_TRUE(WaitForPhase("prefill", weft, 2));
    ::kill(pids[1], SIGKILL);
    const Ran ran = weft.Wait(kMostMs);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const nlohmann::json recoveries = ran.Json()["recoveries"];
    ASSERT_EQ(recoveries.size(), 1u);
    EXPECT_EQ(recoveries[0]["lost_ranks"], std::vector<int>{2});
    EXPECT_EQ(recoveries[0]["epoch"], 2);
    EXPECT_EQ(recoveries[0]["ranks"], 3);
    EXPECT_GT(recoveries[0]["seconds"].get<double>(), 0.0);
    // Without the flags the JSON object has no recovery members.
    const Ran plain = RunWeft(CommandFor("decode") + Cluster("shm") + Words{"--json"});
    EXPECT_FALSE(plain.Json().contains("recoveries"));
}

// ---- Ranks of other hosts ----------------------------------------------------------------------

// Long enough not to end before the fault.
constexpr int kManyTokens = 1500;

class RecoveryOverHosts : public Recovery {
  protected:
    void SetUp() override {
        Recovery::SetUp();
        key_ = dir_ / "key";
        std::ofstream(key_) << "a key for these tests only";
        ::chmod(key_.c_str(), 0600);
    }
    std::unique_ptr<Weft> Listen(int port = 0) const {
        return std::make_unique<Weft>(
            Words{"worker", "--listen", fmt::format("127.0.0.1:{}", port), "--key-file", key_});
    }
    Words Hosts(int first, int second) const {
        return {"--hosts",      fmt::format("127.0.0.1:{},127.0.0.1:{}", first, second),
                "--key-file",   key_,
                "--timeout-ms", std::to_string(timeout_ms_),
                "--transport",  "tcp"};
    }

    std::string key_;
};

// A host fails with all its processes, and its worker is started again.
TEST_F(RecoveryOverHosts, ARestartedWorkerRejoins) {
    const Ran undisturbed = RunWeft(CommandFor("decode", kManyTokens) + Calm("tcp"));
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    auto first = Listen();
    auto second = Listen();
    const int port = test::PortOf(*first);
    Weft weft(CommandFor("decode", kManyTokens) + Hosts(port, test::PortOf(*second)) +
              Words{"--restart-timeout-ms", "20000"});
    ASSERT_TRUE(WaitForPhase("decode", weft, 0)) << weft.Err();
    const std::vector<pid_t> rank = test::ChildrenOf(first->pid());
    ASSERT_EQ(rank.size(), 1u) << weft.Err();
    ::kill(first->pid(), SIGKILL);
    ::kill(rank[0], SIGKILL);
    EXPECT_EQ(first->Wait(1000).status, 128 + SIGKILL);
    auto again = Listen(port);
    const Ran ran = weft.Wait(kMostMs);
    EXPECT_EQ(ran.status, 0) << ran.err << again->Err();
    EXPECT_EQ(ran.out, undisturbed.out) << ran.err;
    EXPECT_NE(ran.err.find("; epoch 2 with 3 ranks after "), std::string::npos) << ran.err;
    EXPECT_EQ(ReadOf(ran.err, 2), ReadOf(undisturbed.err, 2));
    ::kill(again->pid(), SIGTERM);
    ::kill(second->pid(), SIGTERM);
    EXPECT_EQ(again->Wait(5000).status, 0);
    EXPECT_EQ(second->Wait(5000).status, 0);
    ::waitpid(rank[0], nullptr, 0);
}

// A host that sleeps beyond the deadline is excluded by the others.
TEST_F(RecoveryOverHosts, AHostThatWakesUpLateIsExcluded) {
    SKIP_TO_NIGHT_UNLESS(false);  // the simulated cluster stops hosts at many moments
    const Ran undisturbed = RunWeft(CommandFor("decode", kManyTokens) + Calm("tcp"));
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    auto first = Listen();
    auto second = Listen();
    Weft weft(CommandFor("decode", kManyTokens) +
              Hosts(test::PortOf(*first), test::PortOf(*second)) + Words{"--elastic"});
    ASSERT_TRUE(WaitForPhase("decode", weft, 0)) << weft.Err();
    const std::vector<pid_t> rank = test::ChildrenOf(first->pid());
    ASSERT_EQ(rank.size(), 1u) << weft.Err();
    ::kill(first->pid(), SIGSTOP);
    ::kill(rank[0], SIGSTOP);
    ASSERT_TRUE(test::Reports(weft, "; epoch 2 with 2")) << weft.Err();
    // Its late messages are ignored while the others work.
    ::kill(rank[0], SIGCONT);
    EXPECT_TRUE(test::Until([&] { return test::IsGone(rank[0]); }));
    ::kill(first->pid(), SIGCONT);
    const Ran ran = weft.Wait(kMostMs);
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, undisturbed.out) << ran.err;
    EXPECT_NE(first->Err().find("rank 1 (host 127.0.0.1:"), std::string::npos) << first->Err();
    EXPECT_NE(first->Err().find("the other ranks continue without it"), std::string::npos)
        << first->Err();
    for (auto* worker : {first.get(), second.get()}) ::kill(worker->pid(), SIGTERM);
    EXPECT_EQ(first->Wait(5000).status, 0);
    EXPECT_EQ(second->Wait(5000).status, 0);
}

TEST_F(RecoveryOverHosts, NoRankReturnsInTime) {
    auto first = Listen();
    auto second = Listen();
    Weft weft(CommandFor("decode", 100'000) + Hosts(test::PortOf(*first), test::PortOf(*second)) +
              Words{"--restart-timeout-ms", "600"});
    ASSERT_TRUE(WaitForPhase("decode", weft, 0)) << weft.Err();
    const std::vector<pid_t> rank = test::ChildrenOf(first->pid());
    const int64_t begin_ns = NowNs();
    ::kill(first->pid(), SIGKILL);
    for (pid_t pid : rank) ::kill(pid, SIGKILL);
    const Ran ran = weft.Wait(kMostMs);
    EXPECT_LE(NowNs() - begin_ns, (600 + timeout_ms_ + test::LimitMs(1500)) * 1'000'000);
    EXPECT_EQ(ran.status, 3);
    EXPECT_NE(
        ran.err.find(
            "Within 600 ms (--restart-timeout-ms) these ranks did not come back: rank 1 (host "),
        std::string::npos)
        << ran.err;
    EXPECT_NE(ran.err.find(" lost; waiting up to 1 s for its return"), std::string::npos)
        << ran.err;
    // The excluded worker is free for the next job.
    EXPECT_TRUE(test::Until([&] { return test::ChildrenOf(second->pid()).empty(); }));
    ::kill(second->pid(), SIGTERM);
    EXPECT_EQ(second->Wait(5000).status, 0);
    first->Wait(1000);
    for (pid_t pid : rank) ::waitpid(pid, nullptr, 0);
}

}  // namespace
}  // namespace weft::support
