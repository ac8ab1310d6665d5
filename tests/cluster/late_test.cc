// Hosts of --hosts and of a launcher that are not up yet: rank 0 waits for them, keeps those that
// have connected, and prints which are missing.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <atomic>
#include <filesystem>
#include <thread>

#include "base/file.h"
#include "cluster/join/dial.h"
#include "net/socket.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::Process;
using LateWords = std::vector<std::string>;

class LateHosts : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::string_view key = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(folder_ / "key", std::as_bytes(std::span(key))).ok());
        ::chmod((folder_ / "key").c_str(), 0600);
        for (std::string& address : addresses_) {
            const Fd fd = net::ListenTcp("127.0.0.1", 0).value();
            address = fmt::format("127.0.0.1:{}", net::BoundPort(fd.get()).value());
        }
    }
    std::unique_ptr<Process> Root(const LateWords& more) const {
        LateWords words = {CLUSTER_RANK, "launch", "hosts=" + addresses_[0] + "," + addresses_[1],
                           fmt::format("timeout={}", timeout_ms_), "key=" + (folder_ / "key")};
        words.insert(words.end(), more.begin(), more.end());
        return std::make_unique<Process>(words);
    }
    std::unique_ptr<Process> Worker(int which) const {
        return std::make_unique<Process>(LateWords{
            CLUSTER_RANK, "listen", addresses_[static_cast<size_t>(which)], folder_ / "key"});
    }

    const int64_t timeout_ms_ = test::TimeoutMs(1000);
    const Deadline soon_ = Deadline::In(30'000);
    test::TempDir folder_;
    std::string addresses_[2];
};

TEST_F(LateHosts, AreWaitedForAndNamed) {
    const auto first = Worker(0);
    const auto root = Root({"wait=600000", "steps=3"});
    ASSERT_TRUE(root->ReadUntil("waiting for 1 of 2 workers: " + addresses_[1] + "; for ", soon_))
        << root->output();
    // Longer than a rank may be silent.
    test::Outlast(timeout_ms_ * 3 / 2);
    const auto second = Worker(1);
    EXPECT_EQ(root->Wait(Deadline::In(30'000)), 0) << root->output();
    EXPECT_EQ(root->output().find("is gone"), std::string::npos) << root->output();
}

TEST_F(LateHosts, HostThatLeavesIsAwaitedAgain) {
    auto first = Worker(0);
    const auto root = Root({"wait=600000", "steps=3"});
    ASSERT_TRUE(first->ReadUntil("a job of", soon_)) << first->output();
    first->Signal(SIGKILL);
    ASSERT_TRUE(root->ReadUntil("rank 1 is gone before the job began: ", soon_)) << root->output();
    first = Worker(0);
    const auto second = Worker(1);
    EXPECT_EQ(root->Wait(Deadline::In(30'000)), 0) << root->output();
}

TEST_F(LateHosts, TimeoutNamesTheMissingHosts) {
    const auto first = Worker(0);
    const auto root = Root({fmt::format("wait={}", test::TimeoutMs(2000))});
    EXPECT_NE(root->Wait(Deadline::In(30'000)), 0);
    EXPECT_NE(root->output().find("1 of 2 workers did not connect within "), std::string::npos)
        << root->output();
    EXPECT_NE(root->output().find("worker " + addresses_[1] + ": "), std::string::npos)
        << root->output();
    // The worker that had connected is free again.
    EXPECT_TRUE(first->ReadUntil("the job ended", soon_)) << first->output();
}

TEST_F(LateHosts, AWrongKeyEndsTheWaitAtOnceAndSoDoesAStop) {
    const std::string_view other = "a-key-of-somebody-else";
    ASSERT_TRUE(WriteFile(folder_ / "other", std::as_bytes(std::span(other))).ok());
    ::chmod((folder_ / "other").c_str(), 0600);
    const auto wrong = std::make_unique<Process>(
        LateWords{CLUSTER_RANK, "listen", addresses_[1], folder_ / "other"});
    ASSERT_TRUE(wrong->ReadUntil("listening", soon_));
    const auto root = Root({"wait=600000"});
    EXPECT_EQ(root->Wait(Deadline::In(30'000)), 1) << root->output();
    EXPECT_NE(root->output().find("refused our key"), std::string::npos) << root->output();

    const auto stopped =
        std::make_unique<Process>(LateWords{CLUSTER_RANK, "launch", "hosts=" + addresses_[0],
                                            "wait=600000", "key=" + (folder_ / "key")});
    ASSERT_TRUE(stopped->ReadUntil("waiting for 1 of 1 workers", soon_)) << stopped->output();
    const int64_t begin = NowNs();
    stopped->Signal(SIGINT);
    EXPECT_EQ(stopped->Wait(Deadline::In(10'000)), 130) << stopped->output();
    EXPECT_LT(stopped->end_ns() - begin, test::LimitNs(1500));
}

class NobodyHere : public RankRegistry {
  public:
    void Take(Arrival /*arrival*/) override {}
    void Release(int, const std::string&) override {}
    std::vector<Gone> TakeGone() override { return {}; }
    bool Complete() override { return true; }
};

size_t ThreadsOfThis() {
    const std::filesystem::directory_iterator tasks("/proc/self/task");
    return static_cast<size_t>(std::distance(begin(tasks), end(tasks)));
}

// A host accepts connections and stays silent. The end of the wait interrupts the last call, and
// the error is that of the call before.
TEST(HostCallsEnd, WithTheTrueReason) {
    const Fd mute = net::ListenTcp("127.0.0.1", 0).value();
    const std::string address = fmt::format("127.0.0.1:{}", net::BoundPort(mute.get()).value());
    NobodyHere nobody;
    const Status gathered =
        GatherHosts({address}, Bytes(32), true, nobody,
                    {.timeout_ms = 60'000, .deadline = Deadline::In(3400), .stop = nullptr});
    ASSERT_FALSE(gathered.ok());
    EXPECT_NE(gathered.error().message.find("no answer to the handshake within 3000 ms"),
              std::string::npos)
        << gathered.error().message;
}

// A host accepts the connection and stays silent: a wait that ends leaves no thread behind.
TEST(HostCallsEnd, WithTheWait) {
    const Fd mute = net::ListenTcp("127.0.0.1", 0).value();
    const std::string address = fmt::format("127.0.0.1:{}", net::BoundPort(mute.get()).value());
    std::thread([] {}).join();  // a sanitizer starts its own thread with the first one
    const size_t before = ThreadsOfThis();
    for (const bool patient : {false, true}) {
        std::atomic<bool> stop{false};
        std::thread user([&] {
            EXPECT_TRUE(test::Readable(mute.get())) << "no call";
            stop = true;
        });
        NobodyHere nobody;
        const int64_t begin_ns = NowNs();
        const Status gathered =
            GatherHosts({address, address}, Bytes(32), patient, nobody,
                        {.timeout_ms = 60'000, .deadline = Deadline::In(60'000), .stop = &stop});
        user.join();
        ASSERT_FALSE(gathered.ok());
        EXPECT_EQ(gathered.error().code, ErrorCode::kCancelled) << gathered.error().message;
        EXPECT_LT(NowNs() - begin_ns, test::LimitNs(1500));
        EXPECT_EQ(ThreadsOfThis(), before);
    }
}

}  // namespace
}  // namespace weft::cluster
