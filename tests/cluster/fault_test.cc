// Every rank is killed and stopped in every phase on every transport. Within the timeout plus a
// second, the others know which rank failed, report it once, and no process remains.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "support/limits.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::IsGone;
using test::Process;

// Sanitizers make process start and end take ten times as long.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kFaultTimeoutMs = 2500;
constexpr size_t kAtOnce = 3;
#else
constexpr int64_t kFaultTimeoutMs = 1500;
constexpr size_t kAtOnce = 4;
#endif
constexpr int kRanks = 3;

// The job's --timeout-ms, and the time in which its survivors must have ended.
struct Times {
    int64_t timeout_ms = test::TimeoutMs(kFaultTimeoutMs);
    int64_t BoundNs() const { return timeout_ms * 1'000'000 + test::LimitNs(1000); }
};

struct Fault {
    std::string phase;
    int victim;
    int signal;
    std::string transport;
    bool deaf = false;  // loading does not check the monitor
    std::string Text() const {
        return fmt::format("{} of rank {} in {} over {}{}", signal == SIGKILL ? "kill" : "stop",
                           victim, phase, transport, deaf ? ", deaf" : "");
    }
};

// gtest's assertions work in any thread here.
void Inflict(const Fault& fault) {
    SCOPED_TRACE(fault.Text());
    const bool prefill = fault.phase == "prefill";
    const Times times;
    Process root({CLUSTER_RANK, "launch", fmt::format("local={}", kRanks),
                  fmt::format("timeout={}", times.timeout_ms), "transport=" + fault.transport,
                  fmt::format("load={}", fault.phase == "load" ? 60'000 : 0),
                  fmt::format("prefill={}", prefill ? 100'000'000 : 2), "steps=100000000",
                  fmt::format("deaf={}", fault.deaf ? 1 : 0)});
    std::map<int, pid_t> pids;
    for (int rank = 0; rank < kRanks; ++rank) {
        ASSERT_TRUE(root.ReadUntil(fmt::format("rank {} pid", rank), Deadline::In(20'000)))
            << root.output();
        const size_t at = root.output().find(fmt::format("rank {} pid ", rank));
        pids[rank] = std::atoi(root.output().c_str() + at + 11);
    }
    ASSERT_TRUE(root.ReadUntil("at " + fault.phase, Deadline::In(20'000))) << root.output();
    ASSERT_TRUE(test::GoesOn(pids[fault.victim], 10)) << root.output();

    const Deadline patience = Deadline::In(2 * times.BoundNs() / 1'000'000);
    const int64_t begin_ns = NowNs();
    ::kill(pids[fault.victim], fault.signal);
    EXPECT_TRUE(root.ReadUntil("was lost", patience)) << root.output();
    const int64_t took = NowNs() - begin_ns;
    EXPECT_LE(NowNs() - begin_ns, times.BoundNs());
    if (fault.signal == SIGSTOP) {
        EXPECT_GE(took, (times.timeout_ms - 500) * 1'000'000) << root.output();
    }
    for (int rank = 0; rank < kRanks; ++rank) {
        test::Until([&] { return rank == fault.victim || IsGone(pids[rank]); }, patience);
    }
    EXPECT_LE(NowNs() - begin_ns, times.BoundNs());
    if (fault.victim == 0) root.Signal(SIGCONT);  // it must notice by itself, and end
    const int status = root.Wait(Deadline::In(5000));
    EXPECT_EQ(status, fault.victim == 0 && fault.signal == SIGKILL ? 128 + SIGKILL : 3)
        << root.output();
    for (const auto& [rank, pid] : pids) EXPECT_TRUE(IsGone(pid)) << "rank " << rank;

    const std::string named = fmt::format("rank {} (host ", fault.victim);
    EXPECT_NE(root.output().find(named), std::string::npos) << root.output();
    const std::string during =
        fault.phase == "load" ? "was lost during load: " : "was lost during all_reduce #";
    EXPECT_NE(root.output().find(during), std::string::npos) << root.output();
    if (fault.victim != 0) {
        EXPECT_EQ(root.output().find("was lost"), root.output().rfind("was lost")) << root.output();
    }
    const std::string why = fault.signal == SIGSTOP ? "silent for "
                            : fault.victim == 0     ? "its process ended"
                                                    : "was killed by signal 9";
    EXPECT_NE(root.output().find(why), std::string::npos) << root.output();
}

// Runs several at once, because they mostly wait.
void InflictAll(const std::vector<Fault>& faults) {
    for (size_t begin = 0; begin < faults.size(); begin += kAtOnce) {
        std::vector<std::thread> threads;
        for (size_t i = begin; i < std::min(begin + kAtOnce, faults.size()); ++i) {
            threads.emplace_back([&faults, i] { Inflict(faults[i]); });
        }
        for (std::thread& thread : threads) thread.join();
    }
}

std::vector<Fault> FaultInPhase(const std::string& phase) {
    std::vector<Fault> faults;
    size_t turn = 0;
    for (const char* transport : {"shm", "tcp"}) {
        for (int signal : {SIGKILL, SIGSTOP}) {
            for (int victim = 0; victim < kRanks; ++victim) {
                if (test::InTurn(turn++, 2)) faults.push_back({phase, victim, signal, transport});
            }
        }
        ++turn;
    }
    return faults;
}

// (cli/faults_test.cc kills and stops ranks of the program in each phase daily.)
TEST(Fault, InLoad) {
    SKIP_TO_NIGHT_UNLESS(false);
    InflictAll(FaultInPhase("load"));
}
TEST(Fault, InPrefill) {
    SKIP_TO_NIGHT_UNLESS(false);
    InflictAll(FaultInPhase("prefill"));
}
TEST(Fault, InDecode) {
    InflictAll(FaultInPhase("decode"));
}

// The control thread ends the process if its main thread does not check the monitor.
TEST(Fault, DuringALoadThatPollsNoLink) {
    std::vector<Fault> faults;
    size_t turn = 0;
    for (int signal : {SIGKILL, SIGSTOP}) {
        for (int victim = 0; victim < kRanks; ++victim) {
            if (!test::InTurn(turn++, 2)) continue;
            faults.push_back({"load", victim, signal, "shm", true});
        }
    }
    InflictAll(faults);
}

// Before a worker's first message, the others wait for it in the rendezvous.
TEST(Fault, InRendezvous) {
    ::setenv("WEFT_STOP_BEFORE_JOIN", "1", 1);
    for (int signal : {SIGKILL, SIGSTOP}) {
        const Times times;
        const std::string timeout = fmt::format("timeout={}", times.timeout_ms);
        const int64_t begin_ns = NowNs();
        Process root({CLUSTER_RANK, "launch", "local=3", timeout});
        const std::vector<pid_t> children = test::ChildrenAre(root.pid(), 2);
        ASSERT_EQ(children.size(), 2u);
        ASSERT_TRUE(test::Until([&] { return test::StatLineOf(children[1]).state == 'T'; }));
        ::kill(children[1], signal);
        const int status = root.Wait(Deadline::In(5000));
        EXPECT_LE(NowNs() - begin_ns, times.BoundNs());
        EXPECT_EQ(status, 3) << root.output();
        const char* expected =
            signal == SIGKILL ? "was lost during rendezvous: its process was killed by signal 9"
                              : "was lost during rendezvous: silent for ";
        EXPECT_NE(root.output().find(expected), std::string::npos) << root.output();
        for (pid_t child : children) EXPECT_TRUE(IsGone(child));
    }
    // Rank 0 ends while its workers are stopped: they end with it.
    Process root({CLUSTER_RANK, "launch", "local=3", fmt::format("timeout={}", kFaultTimeoutMs)});
    const std::vector<pid_t> children = test::ChildrenAre(root.pid(), 2);
    root.Signal(SIGKILL);
    root.Wait(Deadline::In(2000));
    const Deadline patience = test::Limit(50);
    for (pid_t child : children) {
        test::Until([&] { return IsGone(child); }, patience);
        EXPECT_TRUE(IsGone(child));
    }
    ::unsetenv("WEFT_STOP_BEFORE_JOIN");
}

// All processes are stopped together (Ctrl-Z, a suspended machine) and continue.
TEST(Fault, AllStoppedAndContinuedGoOn) {
    constexpr int64_t kStoppedTimeoutMs = 400;
    Process root({CLUSTER_RANK, "launch", "local=2", fmt::format("timeout={}", kStoppedTimeoutMs),
                  "load=1200"});
    ASSERT_TRUE(root.ReadUntil("rank 1 pid", Deadline::In(10'000)));
    ASSERT_TRUE(root.ReadUntil("rank 0 pid", Deadline::In(10'000)));
    root.SignalGroup(SIGSTOP);
    test::Outlast(2 * kStoppedTimeoutMs);
    root.SignalGroup(SIGCONT);
    EXPECT_EQ(root.Wait(Deadline::In(10'000)), 0) << root.output();
}

}  // namespace
}  // namespace weft::cluster
