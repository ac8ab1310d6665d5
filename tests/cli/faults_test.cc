// The weft program when a rank is killed or stopped, in each phase of a run, on each transport: the
// others end with status 3 within the timeout plus a second. One line names the lost rank and the
// phase. No leftovers remain.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "net/socket.h"
#include "support/leftovers.h"
#include "support/limits.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::support {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kFaultsTimeoutMs = 800;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kFaultsSlackMs = 3000;
#else
constexpr int64_t kFaultsSlackMs = 1000;
#endif

struct Fault {
    std::string phase, transport;
    int signal = SIGKILL;
    int victim = 0;
    std::string Text() const {
        return fmt::format("{} of rank {} in {} over {}", signal == SIGKILL ? "kill" : "stop",
                           victim, phase, transport);
    }
};

class Faults : public testing::Test {
  protected:
    void SetUp() override {
        model_ = dir_ / "tiny.gguf";
        model::Hyper hyper = OddHyper();
        hyper.context = 1 << 20;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kQ8_0});
        // More tokens than any test waits for.
        std::ofstream file(dir_ / "prompt.txt");
        for (int i = 0; i < 4'000; ++i) file << "0123456789";
    }

    Words CommandFor(const Fault& fault) const {
        Words words = {"run", fault.phase == "load" ? "synthetic:llama-3.2-1b" : model_, "-t", "1"};
        if (fault.phase == "prefill") {
            words = words + Words{"-f", dir_ / "prompt.txt", "--prefill-chunk", "4"};
        } else {
            words = words + Words{"-p", "hello", "-n", "500000", "--ignore-eos"};
        }
        return words + Words{"--tp",          std::to_string(kRanks), "--transport",
                             fault.transport, "--timeout-ms",         std::to_string(timeout_ms_)};
    }

    // Waits until the ranks reach the phase of the fault.
    static bool WaitForPhase(const Fault& fault, const Weft& weft,
                             const std::array<pid_t, kRanks>& pids) {
        if (fault.phase == "rendezvous") return true;
        if (fault.phase == "load") {
            return test::Until([&] {
                const std::string err = weft.Err();
                return InPhase(err, 0, "load") && InPhase(err, fault.victim, "load");
            });
        }
        if (fault.phase == "decode") return test::Until([&] { return weft.Out().size() > 5; });
        // Then wait for its steps.
        if (!test::Until([&] { return InPhase(weft.Err(), 0, "prefill"); })) return false;
        return test::Computes(pids[0], 10);
    }

    void Inflict(const Fault& fault) {
        SCOPED_TRACE(fault.Text());
        timeout_ms_ = test::TimeoutMs(kFaultsTimeoutMs);
        Weft weft(CommandFor(fault), {"WEFT_LOG=debug"});
        const std::vector<pid_t> children = test::ChildrenAre(weft.pid(), kRanks - 1);
        ASSERT_EQ(children.size(), size_t{kRanks - 1}) << weft.Err();
        const std::array<pid_t, kRanks> pids = {weft.pid(), children[0], children[1]};
        ASSERT_TRUE(WaitForPhase(fault, weft, pids)) << weft.Err();

        const pid_t victim = pids[static_cast<size_t>(fault.victim)];
        const int64_t begin_ns = NowNs();
        ::kill(victim, fault.signal);
        const Deadline deadline = test::Limit(10'000);
        const auto gone = [&](pid_t pid) { return pid == victim || test::IsGone(pid); };
        const auto told = [&] { return weft.Err().find("was lost") != std::string::npos; };
        // (Ranks that have not met yet print nothing.)
        test::Until([&] { return told() || std::ranges::all_of(pids, gone); }, deadline);
        EXPECT_LE(NowNs() - begin_ns, (timeout_ms_ + test::LimitMs(kFaultsSlackMs)) * 1'000'000);
        for (pid_t pid : pids) {
            test::Until([&] { return gone(pid); }, deadline);
            EXPECT_TRUE(gone(pid));
        }
        EXPECT_LE(NowNs() - begin_ns, (timeout_ms_ + test::LimitMs(kFaultsSlackMs)) * 1'000'000);
        if (fault.victim == 0) ::kill(victim, SIGCONT);
        const Ran ran = weft.Wait(5'000);
        const bool killed = fault.victim == 0 && fault.signal == SIGKILL;
        EXPECT_EQ(ran.status, killed ? 128 + SIGKILL : 3) << ran.err;
        for (pid_t pid : pids) EXPECT_TRUE(test::IsGone(pid));
        CheckOrphans(fault, children);
        CheckWords(fault, WithoutDebug(ran.err));
    }

    // If rank 0 is lost, the others end by themselves with status 3.
    static void CheckOrphans(const Fault& fault, const std::vector<pid_t>& children) {
        for (pid_t pid : children) {
            int status = 0;
            if (::waitpid(pid, &status, WNOHANG) != pid) continue;  // reaped by rank 0
            EXPECT_TRUE(fault.victim == 0) << "an orphan";
            // Until a rank is connected to rank 0, the kernel ends it together with its parent.
            const bool early = fault.phase == "rendezvous" && WIFSIGNALED(status);
            EXPECT_TRUE(early || (WIFEXITED(status) && WEXITSTATUS(status) == 3)) << status;
        }
    }

    static void CheckWords(const Fault& fault, std::string text) {
        // On a busy machine the "GPU" and its host may not meet in time.
        if (SumsWithin()) text = WithoutLines(text, "(as with --gpu-allreduce split)");
        const auto lines = std::ranges::count(text, '\n');
        EXPECT_LE(lines, fault.victim == 0 ? kRanks : 1) << text;
        // If rank 0 dies before its first message, no rank can report it.
        if (fault.victim == 0 && fault.phase == "rendezvous") return;
        EXPECT_NE(text.find(fmt::format("rank {} (host ", fault.victim)), std::string::npos)
            << text;
        EXPECT_NE(text.find("was lost"), std::string::npos) << text;
        const bool steps = fault.phase == "prefill" || fault.phase == "decode";
        const std::string during = steps ? " of step " : "during " + fault.phase;
        // A GPU that reduces within a submission also waits between two all-reduces.
        const bool between = steps && SumsWithin();
        // A fault meant for the rendezvous may hit a later phase.
        const bool later =
            fault.phase == "rendezvous" && text.find("during load") != std::string::npos;
        EXPECT_TRUE(later || between || text.find(during) != std::string::npos) << text;
        if (fault.phase != "rendezvous") {
            EXPECT_NE(text.find(fault.transport), std::string::npos) << text;
        }
    }

    static bool SumsWithin() {
        const char* how = std::getenv("WEFT_TEST_GPU_SUM");
        return how != nullptr && std::string_view(how) == "spin";
    }

    void InflictAll(const std::string& phase, const std::string& transport) {
        for (int signal : {SIGKILL, SIGSTOP}) {
            for (int victim = 0; victim < kRanks; ++victim) {
                const int turn = victim + (signal == SIGSTOP ? 1 : 0) + (transport == "tcp");
                if (!test::InTurn(static_cast<size_t>(turn), 2)) continue;
                Inflict({phase, transport, signal, victim});
            }
        }
        EXPECT_EQ(leftovers_.ListAfter(Deadline::In(5'000)), "");
    }

    // Adopts orphans, so that their exit status can be read.
    test::Leftovers leftovers_;
    test::TempDir dir_;
    std::string model_;
    int64_t timeout_ms_ = kFaultsTimeoutMs;
};

TEST_F(Faults, InRendezvousOverSharedMemory) {
    SKIP_TO_NIGHT_UNLESS(false);
    InflictAll("rendezvous", "shm");
}
TEST_F(Faults, InRendezvousOverTcp) {
    InflictAll("rendezvous", "tcp");
}
TEST_F(Faults, InLoadOverSharedMemory) {
    InflictAll("load", "shm");
}
TEST_F(Faults, InLoadOverTcp) {
    SKIP_TO_NIGHT_UNLESS(false);
    InflictAll("load", "tcp");
}
TEST_F(Faults, InPrefillOverSharedMemory) {
    SKIP_TO_NIGHT_UNLESS(false);
    InflictAll("prefill", "shm");
}
TEST_F(Faults, InPrefillOverTcp) {
    InflictAll("prefill", "tcp");
}
TEST_F(Faults, InDecodeOverSharedMemory) {
    InflictAll("decode", "shm");
}
TEST_F(Faults, InDecodeOverTcp) {
    InflictAll("decode", "tcp");
}

// WEFT_SOAK_RUNS (20) short runs, one after another.
TEST_F(Faults, ManyRunsLeaveNothingBehind) {
    SKIP_TO_NIGHT_UNLESS(false);  // Cluster.NothingIsLeftOverManyRuns runs daily
    const char* wish = std::getenv("WEFT_SOAK_RUNS");
    const int runs = wish != nullptr ? std::atoi(wish) : 20;
    for (int i = 0; i < runs; ++i) {
        const Ran ran = RunWeft({"run", model_, "-p", "hi", "-n", "2", "-t", "1", "--tp", "2",
                                 "--transport", i % 2 == 0 ? "shm" : "tcp"});
        ASSERT_EQ(ran.status, 0) << "run " << i << ": " << ran.err;
        EXPECT_TRUE(test::ChildrenOf(::getpid(), true).empty());
    }
    EXPECT_EQ(leftovers_.ListAfter(Deadline::In(5'000)), "");
}

// Counts a listener that a grandchild holds after its parent has ended, and ignores other programs'
// listeners.
TEST(Leftovers, AreThoseOfOnesOwnProcesses) {
    const Fd foreign = net::ListenTcp("127.0.0.1", 0).value();
    const test::Leftovers leftovers;
    EXPECT_EQ(leftovers.List(), "");
    int said[2];
    ASSERT_EQ(::pipe(said), 0);
    const pid_t child = ::fork();
    if (child == 0) {
        ::close(foreign.get());
        if (const pid_t orphan = ::fork(); orphan != 0) {
            if (::write(said[1], &orphan, sizeof orphan) < 0) ::_exit(1);
            ::_exit(0);
        }
        ::setsid();
        const auto listener = net::ListenTcp("127.0.0.1", 0);
        while (true) ::pause();
    }
    pid_t orphan = 0;
    ASSERT_EQ(::read(said[0], &orphan, sizeof orphan), ssize_t{sizeof orphan});
    ASSERT_EQ(::waitpid(child, nullptr, 0), child);
    const Deadline patience = test::Limit(5'000);
    std::string list;
    test::Until(
        [&] { return (list = leftovers.List()).find("/proc/net/tcp") != std::string::npos; },
        patience);
    EXPECT_NE(list.find("process " + std::to_string(orphan)), std::string::npos) << list;
    EXPECT_NE(list.find("/proc/net/tcp: "), std::string::npos) << list;
    // One line for each of the two listeners.
    EXPECT_EQ(std::ranges::count(list, '\n'), 2) << list;
    ::kill(orphan, SIGKILL);
    EXPECT_EQ(leftovers.ListAfter(Deadline::In(5'000)), "");
    for (int fd : said) ::close(fd);
}

}  // namespace
}  // namespace weft::support
