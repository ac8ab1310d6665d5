// Workers that dial in (weft worker --join), and their losses: the answer equals that of an
// undisturbed run, whichever worker replaces which.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/file.h"
#include "net/socket.h"
#include "support/nightly.h"
#include "support/process.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using support::operator+;
using support::OddHyper;
using support::Ran;
using support::RunWeft;
using support::Weft;
using support::WeftProgram;
using support::Words;
using support::WriteTinyGguf;
using test::Process;

class Recruits : public testing::Test {
  protected:
    void SetUp() override {
        const std::string_view key = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(dir_ / "key", std::as_bytes(std::span(key))).ok());
        ::chmod((dir_ / "key").c_str(), 0600);
        model_ = dir_ / "tiny.gguf";
        model::Hyper hyper = OddHyper();
        hyper.context = 1 << 20;
        WriteTinyGguf(model_, {.hyper = hyper, .dtype = DType::kQ8_0});
        const Fd fd = net::ListenTcp("127.0.0.1", 0).value();
        address_ = fmt::format("127.0.0.1:{}", net::BoundPort(fd.get()).value());
    }
    Words Command(int tokens) const {
        return {"run", model_, "-p",          "hello", "-n", std::to_string(tokens),
                "-t",  "1",    "--ignore-eos"};
    }
    Words Dialled(int workers, const Words& more = {}) const {
        return Words{"--tp",
                     std::to_string(workers + 1),
                     "--transport",
                     "tcp",
                     "--expect-workers",
                     std::to_string(workers),
                     "--listen",
                     address_,
                     "--key-file",
                     dir_ / "key",
                     "--timeout-ms",
                     timeout_ms_} +
               more;
    }
    std::unique_ptr<Process> Worker() const {
        return std::make_unique<Process>(
            Words{WeftProgram(), "worker", "--join", address_, "--key-file", dir_ / "key"});
    }

    test::TempDir dir_;
    std::string model_, address_;
    const std::string timeout_ms_ = std::to_string(test::TimeoutMs(1500));
};

TEST_F(Recruits, TheAnswerIsThatOfOneRankAndWorkersServeTheNextCommand) {
    const Ran one = RunWeft(Command(40));
    ASSERT_EQ(one.status, 0) << one.err;
    const auto first = Worker(), second = Worker();
    for (int turn = 0; turn < 2; ++turn) {
        const Ran ran = RunWeft(Command(40) + Dialled(2));
        ASSERT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.out, one.out);
        EXPECT_NE(ran.err.find("2 of 2 workers have connected: "), std::string::npos) << ran.err;
    }
}

TEST_F(Recruits, ALostOneIsReplacedByItselfOrByTheNext) {
    const Ran undisturbed = RunWeft(Command(400));
    ASSERT_EQ(undisturbed.status, 0) << undisturbed.err;
    struct Way {
        int signal;
        bool whole;  // kills the worker and its rank; else only its rank
        bool spare;
    };
    for (const Way& way : {Way{SIGKILL, false, false}, Way{SIGSTOP, false, true},
                           Way{SIGKILL, true, true}, Way{SIGTERM, true, true}}) {
        SCOPED_TRACE(fmt::format("signal {} whole {} spare {}", way.signal, way.whole, way.spare));
        const auto first = Worker(), second = Worker();
        Weft root(Command(400) + Dialled(2, {"--restart-timeout-ms", "60000"}));
        ASSERT_TRUE(test::Until([&] { return root.Out().size() > 20; })) << root.Err();
        const auto spare = way.spare ? Worker() : nullptr;
        const auto children = test::ChildrenOf(second->pid());
        ASSERT_EQ(children.size(), 1u) << second->output();
        if (way.whole) ::kill(second->pid(), way.signal);
        if (way.signal != SIGTERM) ::kill(children[0], way.signal);
        const Ran ran = root.Wait();
        EXPECT_EQ(ran.status, 0) << ran.err;
        EXPECT_EQ(ran.out, undisturbed.out);
        EXPECT_NE(ran.err.find(") takes the place of rank "), std::string::npos) << ran.err;
        EXPECT_NE(ran.err.find("; epoch 2 with 3 ranks after "), std::string::npos) << ran.err;
    }
}

TEST_F(Recruits, WithoutAnotherTheLossIsNamedOrTheOthersGoOn) {
    for (const bool elastic : {false, true}) {
        const auto first = Worker(), second = Worker();
        Weft root(Command(800) + Dialled(2, elastic
                                                ? Words{"--elastic", "--restart-timeout-ms", "200"}
                                                : Words{"--restart-timeout-ms", "200"}));
        ASSERT_TRUE(test::Until([&] { return root.Out().size() > 20; })) << root.Err();
        const auto children = test::ChildrenOf(second->pid());
        second->Signal(SIGKILL);
        for (const pid_t child : children) ::kill(child, SIGKILL);
        const Ran ran = root.Wait();
        EXPECT_EQ(ran.status, elastic ? 0 : 3) << ran.err;
        if (elastic) {
            EXPECT_NE(ran.err.find("; epoch 2 with 2 ranks after "), std::string::npos) << ran.err;
        } else {
            EXPECT_NE(ran.err.find("these ranks did not come back: rank "), std::string::npos)
                << ran.err;
        }
    }
}

TEST_F(Recruits, WhatDoesNotFitTogetherIsRefusedWithTheNextStep) {
    const Words key = {"--key-file", dir_ / "key"};
    const std::vector<std::pair<Words, std::string>> wrong = {
        {Command(1) + Words{"--expect-workers", "1"}, "--expect-workers needs --key-file"},
        {Command(1) + key + Words{"--expect-workers", "1", "--local", "2"},
         "remove --local, --hosts"},
        {Command(1) + key + Words{"--expect-workers", "1", "--hosts", "b"},
         "remove --local, --hosts"},
        {Command(1) + key + Words{"--expect-workers", "0"}, "--expect-workers"},
        {Command(1) + key + Words{"--listen", "0.0.0.0"}, "it needs --expect-workers N"},
        {Command(1) + key + Words{"--expect-workers", "1", "--wait", "10x"},
         "expected such as 90s"},
        {Command(1) + key + Words{"--expect-workers", "1", "--wait", "8d"}, "at most 7d"},
        {{"worker", "--join", "a"}, "--key-file FILE"},
        {Words{"worker", "--join", "a", "--listen", "b"} + key, "exclude each other"},
        {Words{"worker", "--listen", "127.0.0.1:0", "--once"} + key, "need --join"},
        {Words{"worker", "--join", "a:b"} + key, "'a:b' is not HOST:PORT"},
        {{"worker", "--handle", "local:1,2"}, "--handle local:1,2: not a valid handle"},
    };
    for (const auto& [words, said] : wrong) {
        const Ran ran = RunWeft(words);
        EXPECT_EQ(ran.status, 2) << said << ran.err;
        EXPECT_NE(ran.err.find(said), std::string::npos) << ran.err;
    }
}

// A port that another program has.
TEST_F(Recruits, AnotherPortIsNamedWhereThisOneIsTaken) {
    const Fd taken = net::ListenTcp("127.0.0.1", 0).value();
    const std::string port = std::to_string(net::BoundPort(taken.get()).value());
    const Ran ran = RunWeft(Command(1) + Words{"--expect-workers", "1", "--listen",
                                               "127.0.0.1:" + port, "--key-file", dir_ / "key"});
    EXPECT_EQ(ran.status, 1) << ran.err;
    EXPECT_NE(ran.err.find("Use another port: --listen"), std::string::npos) << ran.err;
}

// If one host lacks the model, all ranks end at once, and the error names the host.
TEST_F(Recruits, ABadModelPathOnOneHostEndsAllAtOnce) {
    const std::string elsewhere = dir_ / "only-here";
    ASSERT_EQ(::mkdir(elsewhere.c_str(), 0700), 0);
    const auto worker =
        std::make_unique<Process>(Words{"sh", "-c", "cd / && exec \"$@\"", "sh", WeftProgram(),
                                        "worker", "--join", address_, "--key-file", dir_ / "key"});
    const auto began = NowNs();
    Words words{"sh",
                "-c",
                "cd \"$0\" && exec \"$@\"",
                std::string(dir_ / ""),
                WeftProgram(),
                "run",
                "tiny.gguf",
                "-p",
                "hello",
                "-n",
                "2"};
    Process root(words + Dialled(1));
    EXPECT_EQ(root.Wait(Deadline::In(30'000)), 1) << root.output();
    EXPECT_LT(root.end_ns() - began, test::LimitNs(10'000));
    EXPECT_NE(root.output().find("rank 1 (host "), std::string::npos) << root.output();
    EXPECT_NE(root.output().find("tiny.gguf"), std::string::npos) << root.output();
}

}  // namespace
}  // namespace weft::cluster
