// The weft program when a rank is killed or stopped, in each phase of a run, on each transport: the
// others end with status 3 within the timeout and a second, with one line that says who was lost
// during what; and nothing is left behind.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/prctl.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <map>
#include <thread>

#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::support {
namespace {

constexpr int kRanks = 3;
constexpr int64_t kTimeoutMs = 800;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kSanitizerSeconds = 2.0;
#else
constexpr double kSanitizerSeconds = 0;
#endif
constexpr double kBoundSeconds = 1e-3 * kTimeoutMs + 1.0 + kSanitizerSeconds;

struct Fault {
    std::string phase, transport;
    int signal = SIGKILL;
    int victim = 0;
    std::string Text() const {
        return fmt::format("{} of rank {} in {} over {}", signal == SIGKILL ? "kill" : "stop",
                           victim, phase, transport);
    }
};

// Sockets and shared memory with names.
size_t CountLeftovers() {
    size_t count = 0;
    for (const char* table : {"/proc/net/unix", "/proc/net/tcp"}) {
        std::ifstream file(table);
        for (std::string line; std::getline(file, line);) {
            const bool listens = line.find(" 0A ") != std::string::npos;
            count += line.find("weft") != std::string::npos || listens ? 1 : 0;
        }
    }
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
        count += entry.path().filename().string().find("weft") != std::string::npos ? 1 : 0;
    }
    return count;
}

class Faults : public testing::Test {
  protected:
    void SetUp() override {
        // Orphans come to us, so that their exit status can be read.
        ::prctl(PR_SET_CHILD_SUBREAPER, 1);
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
            words = words + Words{"-f", dir_ / "prompt.txt", "--chunk", "4"};
        } else {
            words = words + Words{"-p", "hello", "-n", "500000", "--ignore-eos"};
        }
        return words + Words{"--tp",          std::to_string(kRanks), "--transport",
                             fault.transport, "--timeout-ms",         std::to_string(kTimeoutMs)};
    }

    // Waits until the ranks are where the fault shall strike.
    static bool WaitForPhase(const Fault& fault, const Weft& weft,
                             const std::array<pid_t, kRanks>& pids) {
        const Deadline deadline = Deadline::In(30'000);
        const auto until = [&](const auto& ready) {
            while (!ready() && !deadline.expired()) ::usleep(500);
            return ready();
        };
        if (fault.phase == "rendezvous") return true;
        if (fault.phase == "load") {
            return until([&] {
                const std::string err = weft.Err();
                return InPhase(err, 0, "load") && InPhase(err, fault.victim, "load");
            });
        }
        if (fault.phase == "decode") return until([&] { return weft.Out().size() > 5; });
        // Then into its steps.
        if (!until([&] { return InPhase(weft.Err(), 0, "prefill"); })) return false;
        const int64_t before = CpuTicks(pids[0]);
        return until([&] { return CpuTicks(pids[0]) >= before + 10; });
    }

    static int64_t CpuTicks(pid_t pid) {
        std::ifstream file(fmt::format("/proc/{}/stat", pid));
        const std::string text{std::istreambuf_iterator<char>(file), {}};
        std::istringstream rest(text.substr(std::min(text.size(), text.rfind(')') + 1)));
        std::string word;
        int64_t ticks = 0;
        for (int field = 3; field <= 15 && rest >> word; ++field) {
            if (field >= 14) ticks += std::atoll(word.c_str());
        }
        return ticks;
    }

    void Inflict(const Fault& fault) {
        SCOPED_TRACE(fault.Text());
        Weft weft(CommandFor(fault), {"WEFT_LOG=debug"});
        std::vector<pid_t> children;
        const Deadline patience = Deadline::In(10'000);
        while (children.size() < kRanks - 1 && !patience.expired()) {
            children = test::ChildrenOf(weft.pid());
        }
        ASSERT_EQ(children.size(), size_t{kRanks - 1}) << weft.Err();
        const std::array<pid_t, kRanks> pids = {weft.pid(), children[0], children[1]};
        ASSERT_TRUE(WaitForPhase(fault, weft, pids)) << weft.Err();

        const pid_t victim = pids[static_cast<size_t>(fault.victim)];
        const int64_t begin_ns = NowNs();
        ::kill(victim, fault.signal);
        const Deadline deadline = Deadline::In(10'000);
        for (pid_t pid : pids) {
            while (pid != victim && !test::IsGone(pid) && !deadline.expired()) ::usleep(500);
            EXPECT_TRUE(pid == victim || test::IsGone(pid));
        }
        EXPECT_LE(static_cast<double>(NowNs() - begin_ns) * 1e-9, kBoundSeconds);
        if (fault.victim == 0) ::kill(victim, SIGCONT);
        const Ran ran = weft.Wait(5'000);
        const bool killed = fault.victim == 0 && fault.signal == SIGKILL;
        EXPECT_EQ(ran.status, killed ? 128 + SIGKILL : 3) << ran.err;
        for (pid_t pid : pids) EXPECT_TRUE(test::IsGone(pid));
        CheckOrphans(fault, children);
        CheckWords(fault, WithoutDebug(ran.err));
    }

    // Where rank 0 is gone, the others end by themselves, with status 3.
    static void CheckOrphans(const Fault& fault, const std::vector<pid_t>& children) {
        for (pid_t pid : children) {
            int status = 0;
            if (::waitpid(pid, &status, WNOHANG) != pid) continue;  // rank 0 has reaped it
            EXPECT_TRUE(fault.victim == 0) << "an orphan";
            // Before a rank listens to rank 0, the kernel ends it along with its parent.
            const bool early = fault.phase == "rendezvous" && WIFSIGNALED(status);
            EXPECT_TRUE(early || (WIFEXITED(status) && WEXITSTATUS(status) == 3)) << status;
        }
    }

    static void CheckWords(const Fault& fault, const std::string& text) {
        const auto lines = std::ranges::count(text, '\n');
        EXPECT_LE(lines, fault.victim == 0 ? kRanks : 1) << text;
        // A rank that dies before its first word leaves nobody who can speak of rank 0.
        if (fault.victim == 0 && fault.phase == "rendezvous") return;
        EXPECT_NE(text.find(fmt::format("rank {} (host ", fault.victim)), std::string::npos)
            << text;
        EXPECT_NE(text.find("was lost"), std::string::npos) << text;
        const std::string during = fault.phase == "prefill" || fault.phase == "decode"
                                       ? " of step "
                                       : "during " + fault.phase;
        // The fault meant for the rendezvous may find the ranks beyond it.
        const bool later =
            fault.phase == "rendezvous" && text.find("during load") != std::string::npos;
        EXPECT_TRUE(later || text.find(during) != std::string::npos) << text;
        if (fault.phase != "rendezvous") {
            EXPECT_NE(text.find(fault.transport), std::string::npos) << text;
        }
    }

    void InflictAll(const std::string& phase, const std::string& transport) {
        const size_t before = CountLeftovers();
        for (int signal : {SIGKILL, SIGSTOP}) {
            for (int victim = 0; victim < kRanks; ++victim) {
                Inflict({phase, transport, signal, victim});
            }
        }
        // Other tests may come and go at the same time, but what is left stays.
        const Deadline deadline = Deadline::In(5'000);
        while (CountLeftovers() > before && !deadline.expired()) ::usleep(10'000);
        EXPECT_LE(CountLeftovers(), before);
    }

    test::TempDir dir_;
    std::string model_;
};

TEST_F(Faults, InRendezvousOverSharedMemory) {
    InflictAll("rendezvous", "shm");
}
TEST_F(Faults, InRendezvousOverTcp) {
    InflictAll("rendezvous", "tcp");
}
TEST_F(Faults, InLoadOverSharedMemory) {
    InflictAll("load", "shm");
}
TEST_F(Faults, InLoadOverTcp) {
    InflictAll("load", "tcp");
}
TEST_F(Faults, InPrefillOverSharedMemory) {
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

// Short runs, one after the other: WEFT_SOAK_RUNS of them (20).
TEST_F(Faults, ManyRunsLeaveNothingBehind) {
    const char* wish = std::getenv("WEFT_SOAK_RUNS");
    const int runs = wish != nullptr ? std::atoi(wish) : 20;
    const size_t before = CountLeftovers();
    for (int i = 0; i < runs; ++i) {
        const Ran ran = RunWeft({"run", model_, "-p", "hi", "-n", "2", "-t", "1", "--tp", "2",
                                 "--transport", i % 2 == 0 ? "shm" : "tcp"});
        ASSERT_EQ(ran.status, 0) << "run " << i << ": " << ran.err;
        EXPECT_TRUE(test::ChildrenOf(::getpid(), true).empty());
    }
    const Deadline deadline = Deadline::In(5'000);
    while (CountLeftovers() > before && !deadline.expired()) ::usleep(10'000);
    EXPECT_LE(CountLeftovers(), before);
}

}  // namespace
}  // namespace weft::support
