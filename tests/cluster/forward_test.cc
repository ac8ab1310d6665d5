// Workers that forward callers to their neighbors: a chain of three, where each knows the next.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <csignal>
#include <cstdlib>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/file.h"
#include "cluster/join/dial.h"
#include "cluster/join/handshake.h"
#include "net/socket.h"
#include "support/limits.h"
#include "support/process.h"
#include "support/temp_dir.h"

namespace weft::cluster {
namespace {

using test::Process;

class Forward : public ::testing::Test {
  protected:
    void SetUp() override {
        WriteKey(key_file_, "a-shared-key-of-the-tests");
        key_ = ReadKeyFile(key_file_).value();
        StartWorker({});
        StartWorker({"neighbor=d@" + addresses_[0]});
        StartWorker({"neighbor=c@" + addresses_[1]});
        first_ = addresses_[2];
    }
    // Each worker ends when asked, also with open connections.
    void TearDown() override {
        for (auto& worker : workers_) {
            worker->Signal(SIGTERM);
            EXPECT_EQ(worker->Wait(Deadline::In(20'000)), 0) << worker->output();
        }
    }
    static void WriteKey(const std::string& path, std::string_view text) {
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
        ::chmod(path.c_str(), 0600);
    }
    void StartWorker(const std::vector<std::string>& more) {
        std::vector<std::string> words = {CLUSTER_RANK, "listen", "127.0.0.1:0", key_file_};
        words.insert(words.end(), more.begin(), more.end());
        workers_.push_back(std::make_unique<Process>(words));
        ASSERT_TRUE(workers_.back()->ReadUntil("listening on port ", Deadline::In(20'000)));
        ASSERT_TRUE(workers_.back()->ReadUntil("\n", Deadline::In(20'000)));
        addresses_.push_back(
            fmt::format("127.0.0.1:{}", std::atoi(workers_.back()->output().c_str() + 18)));
    }

    test::TempDir folder_;
    const std::string key_file_ = folder_ / "key";
    Bytes key_;
    std::vector<std::string> addresses_;
    std::vector<std::unique_ptr<Process>> workers_;
    std::string first_;
};

TEST_F(Forward, APathIsCutAtItsNames) {
    EXPECT_EQ(PathOf("b:7000").first, "b:7000");
    EXPECT_TRUE(PathOf("b:7000").names.empty());
    EXPECT_EQ(PathOf("[fe80::1%e]:7000>c>d").first, "[fe80::1%e]:7000");
    EXPECT_EQ(PathOf("b:7000>c>d").names, (std::vector<std::string>{"c", "d"}));
}

TEST_F(Forward, WorkersNameTheirNeighborsAndAnswerBehindThem) {
    const auto ask = [&](const std::string& path) {
        const auto answer = QueryWorker(path, key_, Deadline::In(20'000));
        EXPECT_TRUE(answer.ok()) << answer.error().message;
        return answer.ok() ? answer->neighbors : std::vector<std::string>{"?"};
    };
    EXPECT_EQ(ask(first_), std::vector<std::string>{"c"});
    EXPECT_EQ(ask(first_ + ">c"), std::vector<std::string>{"d"});
    EXPECT_EQ(ask(first_ + ">c>d"), std::vector<std::string>());
}

TEST_F(Forward, AJobRunsOnAHostBehindTwoOthers) {
    Process root({CLUSTER_RANK, "launch", "transport=tcp",
                  fmt::format("timeout={}", test::TimeoutMs(1000)), "hosts=" + first_ + ">c>d",
                  "key=" + key_file_, "prefill=2", "steps=5"});
    EXPECT_EQ(root.Wait(Deadline::In(30'000)), 0) << root.output();
    EXPECT_TRUE(workers_[2]->ReadUntil("forwards ", Deadline::In(20'000)));
}

TEST_F(Forward, BytesPassToAPortInBothDirections) {
    const Fd port = net::ListenTcp("127.0.0.1", 0).value();
    const auto number = net::BoundPort(port.get()).value();
    const auto caller = DialForwarded(first_ + ">c>d", number, key_, Deadline::In(20'000));
    ASSERT_TRUE(caller.ok()) << caller.error().message;
    Fd callee;
    for (pollfd entry{port.get(), POLLIN, 0}; !callee.valid(); callee = net::Accept(port.get())) {
        ASSERT_GT(::poll(&entry, 1, 20'000), 0);
    }
    net::SetBlocking(caller->get(), true);
    net::SetBlocking(callee.get(), true);
    for (const auto& [from, to] :
         {std::pair(caller->get(), callee.get()), std::pair(callee.get(), caller->get())}) {
        std::string sent(size_t{3} << 20, 'a');
        for (size_t i = 0; i < sent.size(); i += 97) sent[i] = static_cast<char>('b' + i % 23);
        std::thread sender([&, fd = from] {
            for (size_t at = 0; at < sent.size();) {
                const ssize_t put = ::send(fd, &sent[at], sent.size() - at, MSG_NOSIGNAL);
                if (put <= 0) return;
                at += static_cast<size_t>(put);
            }
        });
        std::string got(sent.size(), ' ');
        EXPECT_EQ(::recv(to, got.data(), got.size(), MSG_WAITALL),
                  static_cast<ssize_t>(sent.size()));
        sender.join();
        EXPECT_TRUE(got == sent);
    }
    callee.Reset();  // the other end receives an end of the connection
    char byte;
    EXPECT_EQ(::recv(caller->get(), &byte, 1, 0), 0);
}

TEST_F(Forward, OnlyCallersWithTheKeyAreForwarded) {
    const auto other_file = folder_ / "other";
    WriteKey(other_file, "another-key-of-the-tests");
    const Bytes other = ReadKeyFile(other_file).value();
    EXPECT_EQ(QueryWorker(first_ + ">c", other, Deadline::In(2000)).error().code,
              ErrorCode::kDenied);
    EXPECT_FALSE(QueryWorker(first_ + ">x", key_, Deadline::In(1000)).ok());
    EXPECT_TRUE(workers_[2]->ReadUntil("no cable leads to that host", Deadline::In(20'000)));
    // System services of neighbors.
    const auto low = DialForwarded(first_ + ">c", 22, key_, Deadline::In(2000));
    char byte;
    EXPECT_TRUE(!low.ok() || ::recv(low->get(), &byte, 1, MSG_WAITALL) <= 0);
}

}  // namespace
}  // namespace weft::cluster
