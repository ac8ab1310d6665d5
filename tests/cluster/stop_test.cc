// A server of several ranks that is asked to end: it ends at once with status 0, whichever rank is
// asked first, although it otherwise waits for a lost rank.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/file.h"
#include "net/socket.h"
#include "support/limits.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using support::operator+;
using support::Weft;
using support::Words;
using test::Process;

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int64_t kSoonMs = 10'000;
#else
constexpr int64_t kSoonMs = 2'500;
#endif

class Stop : public ::testing::Test {
  protected:
    void SetUp() override {
        support::WriteTinyGguf(folder_ / "tiny.gguf",
                               {.hyper = support::OddHyper(), .dtype = DType::kQ8_0});
        const std::string_view key = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(folder_ / "key", std::as_bytes(std::span(key))).ok());
        ::chmod((folder_ / "key").c_str(), 0600);
    }
    std::unique_ptr<Process> Worker() {
        auto worker =
            std::make_unique<Process>(Words{support::WeftProgram(), "worker", "--listen",
                                            "127.0.0.1:0", "--key-file", folder_ / "key"});
        EXPECT_TRUE(worker->ReadUntil("; Ctrl-C", Deadline::In(10'000))) << worker->output();
        const size_t port = worker->output().find("(port ");
        hosts_ += (hosts_.empty() ? "127.0.0.1:" : ",127.0.0.1:") +
                  std::to_string(std::atoi(worker->output().c_str() + port + 6));
        return worker;
    }
    Words Hosts() const { return {"--hosts", hosts_, "--key-file", folder_ / "key"}; }
    std::unique_ptr<Weft> Serve(const Words& where) {
        auto server = std::make_unique<Weft>(
            Words{"serve", folder_ / "tiny.gguf", "--port", "0", "--json", "-t", "1"} + where);
        test::Prints(*server, "\"url\"");
        EXPECT_NE(server->Out().find("\"url\""), std::string::npos) << server->Err();
        return server;
    }
    static void ExpectTheEnd(Weft& server, int64_t begin_ns) {
        const support::Ran ran = server.Wait(20'000);
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.err.find("error"), std::string::npos) << ran.err;
        EXPECT_LE(NowNs() - begin_ns, test::LimitNs(kSoonMs)) << ran.err;
    }

    test::TempDir folder_;
    std::string hosts_;
};

TEST_F(Stop, OfLocalRanks) {
    for (const bool all : {false, true}) {
        const auto server = Serve({"--local", "3"});
        const int64_t begin_ns = NowNs();
        if (all) {
            for (const pid_t child : test::ChildrenOf(server->pid())) ::kill(child, SIGTERM);
        }
        ::kill(server->pid(), SIGTERM);
        ExpectTheEnd(*server, begin_ns);
    }
}

// As at a shutdown, or `kill` of all processes: all that do not ignore the signal end.
TEST_F(Stop, OfRankZeroWhoseChildrenAreKilled) {
    const auto server = Serve({"--local", "3"});
    const int64_t begin_ns = NowNs();
    for (const pid_t child : test::ChildrenOf(server->pid())) ::kill(child, SIGKILL);
    ::kill(server->pid(), SIGTERM);
    ExpectTheEnd(*server, begin_ns);
}

TEST_F(Stop, OfAllHostsAtOnce) {
    const auto first = Worker(), second = Worker();
    const auto server = Serve(Hosts());
    const int64_t begin_ns = NowNs();
    for (const pid_t pid : {first->pid(), second->pid(), server->pid()}) ::kill(pid, SIGTERM);
    ExpectTheEnd(*server, begin_ns);
    for (const auto& worker : {first.get(), second.get()}) {
        EXPECT_EQ(worker->Wait(Deadline::In(5000)), 0) << worker->output();
    }
}

// Rank 0 is then waiting for their return.
TEST_F(Stop, OfTheWorkersAndThenOfRankZero) {
    const auto first = Worker(), second = Worker();
    const auto server = Serve(Hosts());
    for (const pid_t pid : {first->pid(), second->pid()}) ::kill(pid, SIGTERM);
    for (const auto& worker : {first.get(), second.get()}) {
        EXPECT_EQ(worker->Wait(Deadline::In(5000)), 0) << worker->output();
    }
    ASSERT_TRUE(test::GoesOn(server->pid(), 10)) << server->Err();
    const int64_t begin_ns = NowNs();
    ::kill(server->pid(), SIGTERM);
    ExpectTheEnd(*server, begin_ns);
}

TEST_F(Stop, OfRankZeroAloneLeavesTheWorkersListening) {
    const auto first = Worker(), second = Worker();
    for (int round = 0; round < 2; ++round) {
        const auto server = Serve(Hosts());
        const int64_t begin_ns = NowNs();
        ::kill(server->pid(), SIGTERM);
        ExpectTheEnd(*server, begin_ns);
    }
}

TEST_F(Stop, WhileRankZeroLoads) {
    Weft server(Words{"serve", "synthetic:smollm2-135m", "--port", "0", "-t", "1", "--local", "2"},
                {"WEFT_LOG=debug"});
    test::Reports(server, "phase: load");
    const int64_t begin_ns = NowNs();
    ::kill(server.pid(), SIGTERM);
    ExpectTheEnd(server, begin_ns);
}

// Under a launcher, while the other rank is missing: rank 0 ends in order, other ranks end at once.
TEST_F(Stop, WhileRanksGather) {
    uint16_t port = 0;
    {
        const Fd free = net::ListenTcp("127.0.0.1", 0).value();
        port = net::BoundPort(free.get()).value();
    }
    for (const int rank : {0, 1}) {
        Weft server(Words{"serve", folder_ / "tiny.gguf", "--port", "0", "-t", "1"},
                    {fmt::format("RANK={}", rank), "WORLD_SIZE=2", "MASTER_ADDR=127.0.0.1",
                     fmt::format("MASTER_PORT={}", port), "WEFT_KEY_FILE=" + (folder_ / "key")});
        if (rank == 0) test::Reports(server, "waiting for rank(s) 1 of 2");
        ASSERT_TRUE(test::GoesOn(server.pid(), 10)) << server.Err();
        const int64_t begin_ns = NowNs();
        ::kill(server.pid(), SIGTERM);
        if (rank == 0) {
            ExpectTheEnd(server, begin_ns);
        } else {
            EXPECT_EQ(server.Wait(5000).status, 128 + SIGTERM);
        }
    }
}

// A job other than a server loses its result, so it prints the reason.
TEST_F(Stop, StoppedWorkerSendsGoodbye) {
    const auto worker = Worker();
    model::Hyper hyper = support::OddHyper();
    hyper.context = 100'100;
    support::WriteTinyGguf(folder_ / "long.gguf", {.hyper = hyper, .dtype = DType::kQ8_0});
    Weft run(Words{"run", folder_ / "long.gguf", "-p", "Hello", "-n", "100000", "--ignore-eos",
                   "-t", "1"} +
             Hosts());
    test::Until([&] { return !run.Out().empty(); });
    ::kill(worker->pid(), SIGTERM);
    const support::Ran ran = run.Wait(10'000);
    EXPECT_EQ(ran.status, 3) << ran.err;
    EXPECT_NE(ran.err.find("rank 1 (host 127.0.0.1, "), std::string::npos) << ran.err;
    EXPECT_NE(ran.err.find("its worker was asked to end (SIGTERM)"), std::string::npos) << ran.err;
    EXPECT_EQ(worker->Wait(Deadline::In(5000)), 0) << worker->output();
}

}  // namespace
}  // namespace weft::cluster
