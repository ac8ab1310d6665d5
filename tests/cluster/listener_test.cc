// Listening workers keep serving after any data on their port and after any fault of a job.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "base/file.h"
#include "cluster/cluster.h"
#include "cluster/join/dial.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::Process;

class Listener : public ::testing::Test {
  protected:
    void SetUp() override {
        key_file_ = WriteKey("key", "a-shared-key-of-the-tests");
        key_ = ReadKeyFile(key_file_).value();
        for (int i = 0; i < 2; ++i) {
            workers_.push_back(std::make_unique<Process>(
                std::vector<std::string>{CLUSTER_RANK, "listen", "127.0.0.1:0", key_file_}));
            Process& worker = *workers_.back();
            ASSERT_TRUE(worker.ReadUntil("listening on port ", Deadline::In(10'000)));
            ASSERT_TRUE(worker.ReadUntil("\n", Deadline::In(10'000)));
            ports_.push_back(std::atoi(worker.output().c_str() + 18));
        }
    }
    // After each test the listeners serve another job, and end in order when asked.
    void TearDown() override {
        Process good(Root("prefill=2 steps=5"));
        EXPECT_EQ(good.Wait(Deadline::In(10'000)), 0) << good.output();
        for (auto& worker : workers_) {
            const Deadline ends = Deadline::In(5000);  // time for its rank to end
            test::Until([&] { return test::ChildrenOf(worker->pid()).empty(); }, ends);
            worker->Signal(SIGTERM);
            EXPECT_EQ(worker->Wait(Deadline::In(5000)), 0) << worker->output();
            EXPECT_TRUE(
                test::Until([&] { return ::kill(-worker->pid(), 0) != 0; }, test::Limit(500)))
                << "a process is left";
        }
    }

    std::string WriteKey(const char* name, std::string_view text) {
        const std::string path = folder_ / name;
        EXPECT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
        ::chmod(path.c_str(), 0600);
        return path;
    }
    std::string Hosts() const {
        return fmt::format("127.0.0.1:{},localhost:{}", ports_[0], ports_[1]);
    }
    std::vector<std::string> Root(const std::string& words, const std::string& key = "") const {
        std::vector<std::string> command = {
            CLUSTER_RANK,       "launch",
            "transport=tcp",    fmt::format("timeout={}", timeout_ms_),
            "hosts=" + Hosts(), "key=" + (key.empty() ? key_file_ : key)};
        std::string word;
        for (char c : words + " ") {
            if (c != ' ')
                word += c;
            else if (!word.empty())
                command.push_back(std::exchange(word, ""));
        }
        return command;
    }
    const int64_t timeout_ms_ = test::TimeoutMs(1000);

    // Knocks again where the listener drops this call, a random one of many, before it is set up.
    Fd Knock(size_t worker = 0) const {
        const auto port = static_cast<uint16_t>(ports_[worker]);
        for (const Deadline deadline = Deadline::In(10'000);;) {
            Result<Fd> fd = net::DialTcp("127.0.0.1", port, Deadline::In(1000));
            if (fd.ok() || deadline.expired()) return std::move(fd).value();
        }
    }
    // As Knock, from another address of the loopback network.
    Fd KnockFrom(const std::string& host) const {
        sockaddr_in from{}, to{};
        from.sin_family = to.sin_family = AF_INET;
        to.sin_port = htons(static_cast<uint16_t>(ports_[0]));
        ::inet_pton(AF_INET, host.c_str(), &from.sin_addr);
        ::inet_pton(AF_INET, "127.0.0.1", &to.sin_addr);
        Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
        EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&from), sizeof from), 0);
        EXPECT_EQ(::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to), 0);
        return fd;
    }
    // The listener closes the connection before the deadline.
    static bool HungUp(const Fd& fd, const Deadline& deadline) {
        pollfd entry{fd.get(), POLLIN, 0};
        while (!deadline.expired()) {
            char buffer[4096];
            ::poll(&entry, 1, static_cast<int>(deadline.left_ms()));
            const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
            if (got == 0 || (got < 0 && errno != EAGAIN)) return true;
        }
        return false;
    }
    static void Send(const Fd& fd, View bytes) {
        [[maybe_unused]] const ssize_t put =
            ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    pid_t RankOf(size_t worker) const {
        const auto children = test::ChildrenOf(workers_[worker]->pid());
        return children.empty() ? 0 : children[0];
    }

    test::TempDir folder_;
    std::string key_file_;
    Bytes key_;
    std::vector<std::unique_ptr<Process>> workers_;
    std::vector<int> ports_;
};

TEST_F(Listener, ServesOneJobAfterAnother) {
    for (int i = 0; i < 5; ++i) {
        Process root(Root("prefill=2 steps=5"));
        ASSERT_EQ(root.Wait(Deadline::In(10'000)), 0) << root.output();
        EXPECT_NE(root.output().find("done"), std::string::npos);
    }
}

TEST_F(Listener, NamesTheReasonOfARejectedKey) {
    Process root(Root("", WriteKey("other", "a-key-that-nobody-shares")));
    EXPECT_EQ(root.Wait(Deadline::In(10'000)), 1);
    EXPECT_NE(root.output().find("refused our key"), std::string::npos) << root.output();
    EXPECT_TRUE(workers_[0]->ReadUntil("wrong key", Deadline::In(2000)));
    Process none(Root("", folder_ / "absent"));
    EXPECT_EQ(none.Wait(Deadline::In(10'000)), 1);
    EXPECT_NE(none.output().find("absent"), std::string::npos) << none.output();
}

TEST_F(Listener, NamesTheDifferentBuilds) {
    const std::string address = fmt::format("127.0.0.1:{}", ports_[0]);
    const Identity other{kProtocol, {WEFT_VERSION, "1f3da7147a20", "0123456789ab"}};
    const auto hash = DialWorker(address, key_, 1000, Deadline::In(2000), other);
    ASSERT_FALSE(hash.ok());
    EXPECT_EQ(hash.error().code, ErrorCode::kDenied);
    EXPECT_EQ(hash.error().message,
              fmt::format("{}. {}", RefusalText("worker " + address, {}, other.build), kSameBuild));
    EXPECT_TRUE(
        workers_[0]->ReadUntil("protocol hash 0123456789ab), this is weft", Deadline::In(5000)))
        << workers_[0]->output();
    const auto version = DialWorker(address, key_, 1000, Deadline::In(2000),
                                    Identity{kProtocol, {"9.9.9", "1f3da7147a20", "0123456789ab"}});
    ASSERT_FALSE(version.ok());
    EXPECT_EQ(version.error().code, ErrorCode::kDenied);
    EXPECT_NE(version.error().message.find("; worker " + address + " has the older version"),
              std::string::npos)
        << version.error().message;
    const auto protocol = DialWorker(address, key_, 1000, Deadline::In(2000), Identity{99});
    ASSERT_FALSE(protocol.ok());
    EXPECT_EQ(protocol.error().code, ErrorCode::kDenied);
    const std::string words = fmt::format("speaks control protocol {}", kProtocol);
    EXPECT_NE(protocol.error().message.find(words), std::string::npos);
}

TEST_F(Listener, HangsUpOnGarbage) {
    std::vector<Fd> callers;
    for (const char* text :
         {"GET / HTTP/1.1\r\nHost: x\r\n\r\n", "\x16\x03\x01\x02", "\n\n\n\n\n"}) {
        callers.push_back(Knock());
        Send(callers.back(), std::as_bytes(std::span(text, std::strlen(text))));
    }
    callers.push_back(Knock());
    Send(callers.back(), Bytes(5000, std::byte{1}));
    callers.push_back(Knock());  // a well-formed frame at the wrong time
    Bytes end;
    AppendFrame(end, FrameType::kEnd, {});
    Send(callers.back(), end);
    callers.push_back(Knock());  // a hello followed by more data
    ClientHandshake handshake("w", key_, 1000);
    Bytes twice = handshake.First();
    twice.insert(twice.end(), 9, std::byte{0});
    Send(callers.back(), twice);
    for (size_t i = 0; i < callers.size(); ++i) {
        // "\x16\x03..." announces a long frame, which is refused by its size.
        EXPECT_TRUE(HungUp(callers[i], Deadline::In(2000))) << i;
    }
}

TEST_F(Listener, FiftySilentCallersDoNotKeepAJobOut) {
    std::vector<Fd> silent;
    for (int i = 0; i < 50; ++i) silent.push_back(Knock());
    Process root(Root("prefill=2 steps=5"));
    EXPECT_EQ(root.Wait(Deadline::In(5000)), 0) << root.output();
    size_t closed = 0;
    for (const Fd& fd : silent) closed += HungUp(fd, Deadline::In(1)) ? 1 : 0;
    EXPECT_GE(closed, 34u);  // 16 may stay until their deadline
    for (const Fd& fd : silent) EXPECT_TRUE(HungUp(fd, Deadline::In(4000)));
}

// Silent callers from many addresses, after one that is about to prove the key.
TEST_F(Listener, ManyAddressesDisplaceNoCallerThatSpoke) {
    ClientHandshake handshake("w", key_, 1000);
    const Fd fd = Knock();
    Send(fd, handshake.First());
    Bytes in(4096);
    pollfd entry{fd.get(), POLLIN, 0};
    ASSERT_EQ(::poll(&entry, 1, 2000), 1);
    const ssize_t got = ::recv(fd.get(), in.data(), in.size(), 0);
    ASSERT_GT(got, 0);
    size_t consumed = 0;
    const auto frame = ParseFrame(View(in).first(static_cast<size_t>(got)), false, &consumed);
    std::vector<Fd> crowd;
    for (int i = 0; i < 200; ++i) crowd.push_back(KnockFrom(fmt::format("127.0.9.{}", i + 1)));
    size_t dropped = 0;
    for (const Deadline deadline = Deadline::In(1000); dropped < 100 && !deadline.expired();) {
        dropped = 0;
        for (const Fd& other : crowd) dropped += HungUp(other, Deadline::In(1)) ? 1 : 0;
    }
    ASSERT_GE(dropped, 100u);
    Send(fd, handshake.On(**frame).value());
    EXPECT_TRUE(workers_[0]->ReadUntil("begins", Deadline::In(2000))) << workers_[0]->output();
}

TEST_F(Listener, HalfHandshakesAndSlowCallersDisturbNoCaller) {
    ClientHandshake half("w", key_, 1000);
    const Fd first = Knock();
    Send(first, half.First());  // and then nothing
    const Fd slow = Knock();
    const Bytes hello = half.First();
    const test::Pace pieces(20'000);
    for (size_t i = 0; i < 5; ++i) {
        Send(slow, View(hello).subspan(i, 1));
        pieces.Next();
    }
    Process root(Root("prefill=2 steps=5"));
    EXPECT_EQ(root.Wait(Deadline::In(5000)), 0) << root.output();
    EXPECT_TRUE(HungUp(first, Deadline::In(5000)));
    EXPECT_TRUE(HungUp(slow, Deadline::In(5000)));
}

// An eavesdropper records a whole good handshake and replays it.
TEST_F(Listener, AReplayedHandshakeStartsNothing) {
    ClientHandshake handshake("w", key_, 1000);
    const Bytes hello = handshake.First();
    Bytes proof;
    for (int round = 0; round < 2; ++round) {
        const Fd fd = Knock();
        Send(fd, hello);
        Bytes in(4096);
        pollfd entry{fd.get(), POLLIN, 0};
        ASSERT_EQ(::poll(&entry, 1, 2000), 1);
        const ssize_t got = ::recv(fd.get(), in.data(), in.size(), 0);
        ASSERT_GT(got, 0);
        if (round == 0) {
            size_t consumed = 0;
            auto frame = ParseFrame(View(in).first(static_cast<size_t>(got)), false, &consumed);
            proof = handshake.On(**frame).value();
        }
        Send(fd, proof);
        if (round == 0) {
            ASSERT_TRUE(workers_[0]->ReadUntil("begins", Deadline::In(2000)));
        } else {
            EXPECT_TRUE(HungUp(fd, Deadline::In(2000)));
            EXPECT_TRUE(workers_[0]->ReadUntil("wrong key", Deadline::In(2000)));
        }
    }
}

TEST_F(Listener, SurvivesEveryWayAJobCanEnd) {
    struct Case {
        const char* words;
        int status;
        const char* says;
    };
    for (const Case& c : {Case{"error=2 fail_at=load", 1, "rank 2 (host localhost"},
                          Case{"error=0 fail_at=load", 1, "9 GiB"},
                          Case{"gone=1 steps=50 fail_at=decode", 3, "rank 1 (host 127.0.0.1"},
                          Case{"gone=0 steps=50 fail_at=decode", 7, ""},
                          Case{"differ=1", 1, "the model differs"}}) {
        Process root(Root(c.words));
        EXPECT_EQ(root.Wait(Deadline::In(5000)), c.status) << root.output();
        EXPECT_NE(root.output().find(c.says), std::string::npos) << root.output();
    }
    // A signal kills rank 0, or a worker's rank, during the job.
    for (bool kill_root : {true, false}) {
        Process root(Root("steps=100000000"));
        ASSERT_TRUE(root.ReadUntil("at decode", Deadline::In(5000))) << root.output();
        ::kill(kill_root ? root.pid() : RankOf(1), SIGKILL);
        EXPECT_EQ(root.Wait(Deadline::In(5000)), kill_root ? 137 : 3) << root.output();
    }
    EXPECT_TRUE(workers_[0]->ReadUntil("rank 0 (host", Deadline::In(2000)))
        << workers_[0]->output();
}

TEST_F(Listener, AStoppedRankDoesNotKeepTheNextJobOut) {
    Process root(Root("steps=100000000"));
    ASSERT_TRUE(root.ReadUntil("at decode", Deadline::In(5000)));
    const pid_t stopped = RankOf(0);
    ASSERT_GT(stopped, 0);
    ::kill(stopped, SIGSTOP);
    const int64_t begin = NowNs();
    EXPECT_EQ(root.Wait(Deadline::In(5000)), 3) << root.output();
    EXPECT_LE(root.end_ns() - begin, (timeout_ms_ + test::LimitMs(1000)) * 1'000'000);
    EXPECT_NE(root.output().find("rank 1 (host 127.0.0.1, tcp) was lost during all_reduce"),
              std::string::npos)
        << root.output();
    EXPECT_TRUE(workers_[0]->ReadUntil("killed by signal 9", Deadline::In(3000)));
}

TEST_F(Listener, ABusyWorkerRefusesASecondJob) {
    Process first(Root("steps=100000000"));
    ASSERT_TRUE(first.ReadUntil("at decode", Deadline::In(5000)));
    Process second(Root("steps=5"));
    EXPECT_EQ(second.Wait(Deadline::In(5000)), 1);
    EXPECT_NE(second.output().find("is running another job (a job of 127.0.0.1:"),
              std::string::npos)
        << second.output();
    first.Signal(SIGINT);
    EXPECT_EQ(first.Wait(Deadline::In(5000)), ExitStatus(ErrorCode::kCancelled)) << first.output();
}

TEST_F(Listener, AWorkerThatIsNotThereIsNamed) {
    auto words = Root("");
    words[4] = fmt::format("hosts=127.0.0.1:{},127.0.0.1:1", ports_[0]);
    Process root(words);
    EXPECT_EQ(root.Wait(Deadline::In(5000)), 1);
    EXPECT_NE(root.output().find("worker 127.0.0.1:1: "), std::string::npos) << root.output();
    EXPECT_NE(root.output().find("'weft worker --listen'"), std::string::npos) << root.output();
}

TEST_F(Listener, APortInUseIsAnError) {
    const auto taken =
        WorkerListener::Open({fmt::format("127.0.0.1:{}", ports_[0]), key_file_, {"worker"}});
    ASSERT_FALSE(taken.ok());
    EXPECT_EQ(taken.error().code, ErrorCode::kIo);
    EXPECT_EQ(WorkerListener::Open({"127.0.0.1:0", "", {}}).error().code, ErrorCode::kUsage);
}

// A worker reports that it serves before Run() begins; from then on, a service manager may stop it.
TEST(ListenerSignals, ASignalBeforeRunEndsRun) {
    test::TempDir folder;
    const std::string key = folder / "key";
    ASSERT_TRUE(WriteFile(key, std::as_bytes(std::span("a-shared-key-of-the-tests"))).ok());
    ASSERT_EQ(::chmod(key.c_str(), 0600), 0);
    const auto listener = WorkerListener::Open({.listen = "127.0.0.1:0", .key_file = key});
    ASSERT_TRUE(listener.ok()) << listener.error().message;
    ASSERT_EQ(::kill(::getpid(), SIGTERM), 0);
    EXPECT_TRUE((*listener)->Run().ok());
}

}  // namespace
}  // namespace weft::cluster
