// The program under real launchers: mpirun of Open MPI and MPICH, and torchrun's variables.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "base/file.h"
#include "base/printable.h"
#include "net/socket.h"
#include "support/limits.h"
#include "support/nightly.h"
#include "support/paths.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using support::operator+;
using support::RunWeft;
using support::Words;

std::string Slurp(const std::string& path) {
    std::ifstream file(path);
    return std::string(std::istreambuf_iterator<char>(file), {});
}

// Runs one rank and stores its pid and its exit status in files. The script itself succeeds,
// because a launcher that sees one rank fail kills the others and loses their messages.
const std::string kRankScript = "#!/bin/sh\n. " + support::TestData("/../support/wait.sh") + R"(
trap '' TERM
export ASAN_OPTIONS=detect_leaks=0
rank=${OMPI_COMM_WORLD_RANK:-$PMI_RANK}
"$@" & echo $! >"$0.pid.$rank.part"; mv "$0.pid.$rank.part" "$0.pid.$rank"
wait $!; echo $? >"$0.status.$rank.part"; mv "$0.status.$rank.part" "$0.status.$rank"
wait_until [ -e "$0.end" ]
)";

class Launch : public testing::Test {
  protected:
    void SetUp() override {
        model_ = dir_ / "tiny.gguf";
        model::Hyper hyper = support::OddHyper();
        hyper.context = 1 << 16;
        support::WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kQ8_0});
    }
    void Write(const std::string& path, std::string_view text, mode_t mode) {
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
        ::chmod(path.c_str(), mode);
    }
    Words Run(int tokens) const {
        return {
            "run",      model_, "-p", "Hello there", "-n", std::to_string(tokens), "--ignore-eos",
            "--greedy", "-t",   "1"};
    }
    Words Serve() const { return {"serve", model_, "--port", "0", "--json", "-t", "1"}; }
    Words Bench() const {
        return {"bench", model_, "-p", "16", "-n", "4", "-r", "1", "-t", "1", "-o", "jsonl"};
    }
    static Words Train() {
        return {"train",      "synthetic:smollm2-135m",
                "--layers",   "2",
                "--data",     "synthetic:random-tokens:17:8",
                "--seq-len",  "16",
                "--steps",    "2",
                "-t",         "1",
                "--no-output"};
    }
    test::TempDir dir_;
    std::string model_;
};

class Mpi : public Launch, public testing::WithParamInterface<const char*> {
  protected:
    void SetUp() override {
#if defined(__SANITIZE_THREAD__)
        GTEST_SKIP() << "the thread sanitizer does not see into MPI libraries";
#endif
        Launch::SetUp();
        const std::string flavour = GetParam();
        mpirun_ = "mpirun." + flavour;
        const std::string which = "command -v " + mpirun_ + " >/dev/null 2>&1";
        if (std::system(which.c_str()) != 0 || WeftPlugin().empty()) {
            GTEST_SKIP() << "no " << mpirun_ << ", or no plug-in for it: install "
                         << (flavour == "openmpi" ? "libopenmpi-dev openmpi-bin"
                                                  : "libmpich-dev mpich");
        }
    }
    // Next to the program, not next to this test.
    std::string WeftPlugin() const {
        const std::string program = support::WeftProgram();
        const std::string path =
            program.substr(0, program.rfind('/')) + "/weft_mpi_" + std::string(GetParam()) + ".so";
        return ::access(path.c_str(), R_OK) == 0 ? path : "";
    }
    // The launcher's words before the program's words.
    Words Launcher(int ranks) const {
        Words words = {mpirun_};
        if (std::string(GetParam()) == "openmpi") {
            words = words + Words{"--allow-run-as-root", "--oversubscribe", "--bind-to", "none"};
        }
        return words + Words{"-n", std::to_string(ranks)};
    }
    // A shell that separates standard output and standard error.
    test::Process Start(int ranks, const Words& arguments, const std::string& rank_script = "") {
        std::string line = "export ASAN_OPTIONS=detect_leaks=0; exec";
        for (const std::string& word : Launcher(ranks)) line += " '" + word + "'";
        if (!rank_script.empty()) line += " '" + rank_script + "'";
        line += " '" + support::WeftProgram() + "'";
        for (const std::string& word : arguments) line += " '" + word + "'";
        return test::Process(
            {"sh", "-c", line + " >'" + (dir_ / "out") + "' 2>'" + (dir_ / "err") + "'"});
    }
    int RunMpi(int ranks, const Words& arguments) {
        test::Process mpirun = Start(ranks, arguments);
        const int status = mpirun.Wait(Deadline::In(30'000));
        out_ = Slurp(dir_ / "out");
        err_ = Slurp(dir_ / "err");
        return status;
    }
    void LoseRank(int victim, int signal);
    void StopServer(const std::string& transport, const std::vector<int>& first,
                    const std::vector<int>& then);
    int servers_ = 0;
    std::string mpirun_, out_, err_;
};

INSTANTIATE_TEST_SUITE_P(Launchers, Mpi, testing::Values("openmpi", "mpich"),
                         [](const auto& made) { return std::string(made.param); });

TEST_P(Mpi, TheTextIsThatOfLocalRanks) {
    for (int ranks : {2, 3}) {
        const support::Ran local = RunWeft(Run(12) + Words{"--local", std::to_string(ranks)});
        ASSERT_EQ(local.status, 0) << local.err;
        // Ranks of MPI libraries spin; a rank without a core for seconds is not lost.
        const Words words = Run(12) + Words{"--transport", "mpi", "--timeout-ms",
                                            std::to_string(test::TimeoutMs(5000))};
        ASSERT_EQ(RunMpi(ranks, words), 0) << err_;
        // Only rank 0 prints the text. (Open MPI gives a rank a terminal.)
        EXPECT_EQ(PrintableLines(out_), PrintableLines(local.out));
        EXPECT_NE(err_.find("over mpi"), std::string::npos) << err_;
        EXPECT_EQ(err_.find("error"), std::string::npos) << err_;
    }
}

TEST_P(Mpi, OtherTransportsNeedTheLauncherOnly) {
    SKIP_TO_NIGHT_UNLESS(std::string(GetParam()) == "mpich");
    const support::Ran one = RunWeft(Run(12) + Words{"--local", "2"});
    ASSERT_EQ(RunMpi(2, Run(12)), 0) << err_;
    EXPECT_EQ(out_, one.out);
    EXPECT_NE(err_.find("over shm"), std::string::npos) << err_;
    ASSERT_EQ(RunMpi(2, Run(12) + Words{"--transport", "tcp"}), 0) << err_;
    EXPECT_EQ(out_, one.out);
    EXPECT_NE(err_.find("over tcp"), std::string::npos) << err_;
}

// Long prompts travel as bulk messages; several jobs run one after another on the same ranks.
TEST_P(Mpi, LargeMessagesAndSeveralJobsOfOneLaunch) {
    const Words bench = {"bench", model_, "-p", "200",         "-n",      "4",  "-r",
                         "1",     "-t",   "1",  "--transport", "mpi,shm", "-o", "jsonl"};
    ASSERT_EQ(RunMpi(2, bench), 0) << err_;
    EXPECT_EQ(std::ranges::count(out_, '\n'), 4) << out_;
    EXPECT_NE(out_.find("\"mpi\""), std::string::npos) << out_;
}

TEST_P(Mpi, UsageErrorsAreReportedOnce) {
    EXPECT_NE(RunMpi(2, Run(4) + Words{"--local", "2"}), 0);
    const size_t first = err_.find("weft: error: mpirun");
    ASSERT_NE(first, std::string::npos) << err_;
    EXPECT_EQ(err_.find("weft: error", first + 1), std::string::npos) << err_;
    EXPECT_NE(RunMpi(2, Words{"run", dir_ / "none.gguf", "-p", "x", "--transport", "mpi"}), 0);
    EXPECT_NE(err_.find("none.gguf"), std::string::npos) << err_;
}

// Every command with ranks, without flags that only some accept.
TEST_P(Mpi, EveryCommandRuns) {
    SKIP_TO_NIGHT_UNLESS(false);  // under variables every command runs daily
    EXPECT_EQ(RunMpi(2, Bench()), 0) << err_;
    EXPECT_NE(out_.find("\"tp\":2"), std::string::npos) << out_;
    EXPECT_EQ(RunMpi(2, Train()), 0) << err_;
    EXPECT_EQ(
        RunMpi(2, Words{"net", "lat", "--net-table", "off", "--sizes", "64", "--iters", "20"}), 0)
        << err_;
    for (const char* transport : {"auto", "mpi"}) {
        StopServer(transport, {0}, {});
    }
}

TEST_P(Mpi, ServerEndsCleanlyWhicheverRankIsStoppedFirst) {
    StopServer("auto", {0, 1, 2}, {});
    StopServer("auto", {2, 1, 0}, {0, 1, 2});  // a launcher may repeat the signal
    StopServer("auto", {1, 2}, {0});
}

// A server of three ranks. `first` get SIGTERM, and `then` after they have taken it.
void Mpi::StopServer(const std::string& transport, const std::vector<int>& first,
                     const std::vector<int>& then) {
    const std::string script = dir_ / fmt::format("server{}.sh", servers_++);
    Write(script, kRankScript, 0755);
    Write(dir_ / "out", "", 0600);  // of the previous server
    test::Process mpirun = Start(3, Serve() + Words{"--transport", transport}, script);
    test::Until([&] { return Slurp(dir_ / "out").find("\"url\"") != std::string::npos; });
    ASSERT_NE(Slurp(dir_ / "out").find("\"url\""), std::string::npos) << Slurp(dir_ / "err");
    const auto stop = [&](int rank) {
        const pid_t pid = std::atoi(Slurp(script + ".pid." + std::to_string(rank)).c_str());
        ASSERT_GT(pid, 0);
        ::kill(pid, SIGTERM);
        test::Until([&] { return !test::IsPending(pid, SIGTERM); });
    };
    for (const int rank : first) stop(rank);
    const int64_t begin_ns = NowNs();
    for (const int rank : then) stop(rank);
    for (int rank = 0; rank < 3; ++rank) {
        const std::string status = script + ".status." + std::to_string(rank);
        test::Until([&] { return !Slurp(status).empty(); });
        EXPECT_EQ(Slurp(status), "0\n") << "rank " << rank << "\n" << Slurp(dir_ / "err");
    }
    EXPECT_LE(NowNs() - begin_ns, test::LimitNs(2000)) << Slurp(dir_ / "err");
    Write(script + ".end", "", 0600);
    EXPECT_EQ(mpirun.Wait(Deadline::In(10'000)), 0) << Slurp(dir_ / "err");
    EXPECT_EQ(Slurp(dir_ / "err").find("error"), std::string::npos) << Slurp(dir_ / "err");
}

// MPI belongs to one thread: options that need a second thread are refused; other training runs.
TEST_P(Mpi, TrainingIsOneThreads) {
    const Words train = {"train",       "synthetic:smollm2-135m",
                         "--layers",    "2",
                         "--data",      "synthetic:random-tokens:17:8",
                         "--seq-len",   "16",
                         "--steps",     "1",
                         "-t",          "1",
                         "--no-output", "--transport",
                         "mpi"};
    // Several rounds: whichever rank ends first, rank 0's messages come before the launcher's end.
    for (int round = 0; round < (weft::test::Nightly() ? 4 : 1); ++round) {
        EXPECT_NE(RunMpi(2, train + Words{"--pp", "2"}), 0);
        EXPECT_NE(err_.find("--transport tcp"), std::string::npos) << err_;
    }
    EXPECT_EQ(RunMpi(2, train + Words{"--zero", "2", "--overlap", "on"}), 0) << err_;
}

// The others end within the deadline and name the victim.
void Mpi::LoseRank(int victim, int signal) {
    const std::string script = dir_ / "rank.sh";
    Write(script, kRankScript, 0755);
    const int64_t timeout_ms = test::TimeoutMs(1000);
    // More tokens than the victim can generate before it is killed.
    test::Process mpirun = Start(
        3, Run(50'000) + Words{"--timeout-ms", std::to_string(timeout_ms), "--transport", "mpi"},
        script);
    test::Until([&] { return !Slurp(dir_ / "out").empty(); });
    const pid_t pid = std::atoi(Slurp(script + ".pid." + std::to_string(victim)).c_str());
    ASSERT_GT(pid, 0) << Slurp(dir_ / "err");
    const int64_t begin_ns = NowNs();
    ::kill(pid, signal);
    for (int rank = 0; rank < 3; ++rank) {
        if (rank == victim) continue;
        const std::string status = script + ".status." + std::to_string(rank);
        test::Until([&] { return !Slurp(status).empty(); });
        EXPECT_EQ(Slurp(status), "3\n") << "rank " << rank << "\n" << Slurp(dir_ / "err");
    }
    EXPECT_LE(NowNs() - begin_ns, (timeout_ms + test::LimitMs(1500)) * 1'000'000);
    ::kill(pid, SIGKILL);
    Write(script + ".end", "", 0600);
    EXPECT_GE(mpirun.Wait(Deadline::In(10'000)), 0) << "the launcher did not end";
    const std::string err = Slurp(dir_ / "err");
    EXPECT_NE(err.find(fmt::format("error: rank {} (host ", victim)), std::string::npos) << err;
    EXPECT_NE(err.find(", mpi) was lost"), std::string::npos) << err;
}

TEST_P(Mpi, AKilledRankIsNamed) {
    LoseRank(1, SIGKILL);
}

TEST_P(Mpi, AKilledRankZeroIsNamed) {
    LoseRank(0, SIGKILL);
}

TEST_P(Mpi, AStoppedRankIsNamed) {
    LoseRank(2, SIGSTOP);
}

// ---- Without MPI --------------------------------------------------------------------------------

TEST_F(Launch, RanksOfVariablesMeetByAddressAndKey) {
    const std::string key = dir_ / "key";
    Write(key, "a-shared-key-of-the-tests", 0600);
    const uint16_t port = [] {
        const Fd free = net::ListenTcp("127.0.0.1", 0).value();
        return net::BoundPort(free.get()).value();
    }();
    const support::Ran one = RunWeft(Run(12) + Words{"--local", "2"});
    const auto variables = [&](const char* rank) {
        return Words{std::string("RANK=") + rank, "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                     fmt::format("MASTER_PORT={}", port), "WEFT_KEY_FILE=" + key};
    };
    support::Weft follower(Run(12), variables("1"));
    const support::Ran ran = RunWeft(Run(12), variables("0"));
    EXPECT_EQ(ran.status, 0) << ran.err;
    EXPECT_EQ(ran.out, one.out);
    const support::Ran followed = follower.Wait(5000);
    EXPECT_EQ(followed.status, 0) << followed.err;
    EXPECT_EQ(followed.out, "");
}

uint16_t FreePort() {
    const Fd free = net::ListenTcp("127.0.0.1", 0).value();
    return net::BoundPort(free.get()).value();
}

// The variables of torchrun, or of srun.
Words VariablesOf(bool slurm, int rank, uint16_t port, const std::string& key) {
    const Words meet = {"MASTER_ADDR=127.0.0.1", fmt::format("MASTER_PORT={}", port),
                        "WEFT_KEY_FILE=" + key};
    if (!slurm) {
        return Words{fmt::format("RANK={}", rank), fmt::format("LOCAL_RANK={}", rank),
                     "WORLD_SIZE=2"} +
               meet;
    }
    return Words{fmt::format("SLURM_PROCID={}", rank),
                 "SLURM_STEP_NUM_TASKS=2",
                 "SLURM_NTASKS=2",
                 "SLURM_JOB_ID=7",
                 "SLURM_STEP_ID=0",
                 "SLURM_STEP_NODELIST=localhost"} +
           meet;
}

TEST_F(Launch, EveryCommandRunsUnderVariables) {
    const std::string key = dir_ / "key";
    Write(key, "a-shared-key-of-the-tests", 0600);
    for (const bool slurm : {false, true}) {
        const Words commands[] = {Run(8), Bench(), Train()};
        for (const Words& command : weft::test::Some(commands, slurm ? 3 : 1)) {
            SCOPED_TRACE(command[0]);
            const uint16_t port = FreePort();
            support::Weft root(command, VariablesOf(slurm, 0, port, key));
            support::Weft follower(command, VariablesOf(slurm, 1, port, key));
            const support::Ran ran = root.Wait();
            EXPECT_EQ(ran.status, 0) << ran.err;
            EXPECT_EQ(follower.Wait(10'000).status, 0);
        }
    }
}

TEST_F(Launch, ARankZeroThatCannotBeginEndsTheOthersAtOnce) {
    const std::string key = dir_ / "key";
    Write(key, "a-shared-key-of-the-tests", 0600);
    const uint16_t port = FreePort();
    const Words command = {"run", dir_ / "none.gguf", "-p", "x"};
    support::Weft root(command, VariablesOf(false, 0, port, key));
    support::Weft follower(command, VariablesOf(false, 1, port, key));
    const support::Ran ran = root.Wait(20'000);
    EXPECT_EQ(ran.status, 1);
    EXPECT_NE(ran.err.find("none.gguf"), std::string::npos) << ran.err;
    const support::Ran followed = follower.Wait(20'000);
    EXPECT_EQ(followed.status, 3) << followed.err;
    EXPECT_LT(followed.seconds, test::LimitSeconds(6));
    EXPECT_NE(followed.err.find("rank 0 ended before the job began"), std::string::npos)
        << followed.err;
}

TEST_F(Launch, ProcessesOfOneRankAllSaySo) {
    const std::string key = dir_ / "key";
    Write(key, "a-shared-key-of-the-tests", 0600);
    const uint16_t port = FreePort();
    const auto variables = [&](int rank) {
        return VariablesOf(false, rank, port, key) + Words{"WORLD_SIZE=3"};
    };
    support::Weft root(Run(4), variables(0)), one(Run(4), variables(1)), two(Run(4), variables(1));
    for (support::Weft* process : {&root, &one, &two}) {
        const support::Ran ran = process->Wait(20'000);
        EXPECT_EQ(ran.status, 2) << ran.err;
        EXPECT_NE(ran.err.find("two processes are rank 1 of 3"), std::string::npos) << ran.err;
        EXPECT_LT(ran.seconds, test::LimitSeconds(6));
    }
}

TEST_F(Launch, AServerUnderVariablesEndsAtOnceWithAllItsRanks) {
    const std::string key = dir_ / "key";
    Write(key, "a-shared-key-of-the-tests", 0600);
    for (const bool slurm : {false, true}) {
        const uint16_t port = FreePort();
        support::Weft root(Serve(), VariablesOf(slurm, 0, port, key));
        support::Weft follower(Serve(), VariablesOf(slurm, 1, port, key));
        test::Prints(root, "\"url\"");
        const int64_t begin_ns = NowNs();
        for (const pid_t pid : {root.pid(), follower.pid()}) ::kill(pid, SIGTERM);
        const support::Ran served = root.Wait(10'000);
        EXPECT_NE(served.out.find("\"url\""), std::string::npos) << served.err;
        EXPECT_EQ(served.status, 0) << served.err;
        EXPECT_EQ(follower.Wait(10'000).status, 0);
        EXPECT_LE(NowNs() - begin_ns, test::LimitNs(2000)) << served.err;
    }
}

TEST_F(Launch, MissingHostsAreNamed) {
    const Words variables = {"RANK=0", "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=1"};
    const support::Ran keyless = RunWeft(Run(4), variables);
    EXPECT_EQ(keyless.status, 2);
    EXPECT_NE(keyless.err.find("--key-file"), std::string::npos) << keyless.err;
    const support::Ran by_hand = RunWeft(Run(4) + Words{"--local", "2", "--transport", "mpi"});
    EXPECT_EQ(by_hand.status, 2);
    EXPECT_NE(by_hand.err.find("mpirun -n 2 weft run"), std::string::npos) << by_hand.err;
    const support::Ran no_plugin =
        RunWeft(Run(4), {"PMI_RANK=0", "PMI_SIZE=2", "WEFT_PLUGIN_DIR=" + (dir_ / "")});
    EXPECT_EQ(no_plugin.status, 1);
    EXPECT_NE(no_plugin.err.find("weft_mpi_mpich.so"), std::string::npos) << no_plugin.err;
}

}  // namespace
}  // namespace weft::cluster
