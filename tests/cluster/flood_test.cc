// Floods of callers without the key, silent ones and ones that send a valid hello, from the peer's
// own address and from others: a listening worker and rank 0's admission serve every peer that has
// the key. Each flood is bounded, and continues during a peer's handshake.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <thread>

#include "base/file.h"
#include "cluster/join/dial.h"
#include "cluster/join/dial_in.h"
#include "cluster/join/gather.h"
#include "cluster/worker/admission_listener.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::Process;

constexpr std::string_view kKeyText = "a-shared-key-of-the-tests";
constexpr int kPeers = 20;
constexpr int kCallersAPeer = 100;
// More callers than may talk at once: the networks with most callers lose places first.
constexpr int kCrowd = 600;
constexpr int kCrowdAddresses = 20;

Bytes TestKey() {
    const auto bytes = std::as_bytes(std::span(kKeyText));
    return Bytes(bytes.begin(), bytes.end());
}

// First bytes of a caller of a listening worker, and of one of rank 0.
Bytes WorkerHello() {
    return ClientHandshake("w", TestKey(), 5000).First();
}
Bytes RankHello() {
    const DialHello hello;
    const View bytes = std::as_bytes(std::span(&hello, 1));
    return Bytes(bytes.begin(), bytes.end());
}

void Send(const Fd& fd, View bytes) {
    [[maybe_unused]] const ssize_t put = ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
}

// Connects from `from` and sends `first`.
Fd Call(uint16_t port, const std::string& from, View first) {
    sockaddr_in own{}, to{};
    own.sin_family = to.sin_family = AF_INET;
    ::inet_pton(AF_INET, from.c_str(), &own.sin_addr);
    to.sin_port = htons(port);
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    ::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own);
    SetResetOnClose(fd.get());
    ::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to);
    Send(fd, first);
    return fd;
}

// Calls from a thread: kCallersAPeer for each peer, as fast as they can.
class Flood {
  public:
    Flood(uint16_t port, std::vector<std::string> addresses, Bytes first)
        : thread_([this, port, addresses = std::move(addresses), first = std::move(first)] {
              std::deque<Fd> open;
              for (size_t made = 0; !ends_.load();) {
                  test::Until([&] { return made < allowed_.load() || ends_.load(); });
                  open.push_back(Call(port, addresses[made++ % addresses.size()], first));
                  made_.store(made);
                  if (open.size() > 400) open.pop_front();
              }
          }) {}
    ~Flood() {
        ends_.store(true);
        thread_.join();
    }
    // Returns once some calls of this peer's share are made, and the rest follow.
    void Begin() {
        const size_t before = made_.load();
        allowed_ += kCallersAPeer;
        EXPECT_TRUE(test::Until([&] { return made_.load() >= before + kCallersAPeer / 4; }));
    }

  private:
    std::atomic<size_t> allowed_{0}, made_{0};
    std::atomic<bool> ends_{false};
    std::thread thread_;
};

std::vector<std::vector<std::string>> Crowds() {
    std::vector<std::string> several;
    for (int i = 1; i <= kCrowdAddresses; ++i) several.push_back(fmt::format("127.0.8.{}", i));
    return {{"127.0.0.1"}, {"127.0.0.9"}, several};
}

// Calls that all have been answered, or dropped, when the function returns.
std::vector<Fd> AnsweredCrowd(uint16_t port, View first) {
    std::vector<Fd> crowd;
    const auto several = Crowds().back();
    for (size_t i = 0; i < kCrowd; ++i) {
        crowd.push_back(Call(port, several[i % several.size()], first));
    }
    const Deadline deadline = test::Limit(20'000);
    for (const Fd& fd : crowd) {
        pollfd entry{fd.get(), POLLIN, 0};
        EXPECT_EQ(::poll(&entry, 1, static_cast<int>(deadline.left_ms())), 1);
    }
    return crowd;
}

// The next frame received on a connection; its bytes are in `in`.
std::optional<Frame> NextFrame(const Fd& fd, Bytes& in) {
    in.assign(kMostBeforeAuth, {});
    pollfd entry{fd.get(), POLLIN, 0};
    if (::poll(&entry, 1, 20'000) != 1) return std::nullopt;
    const ssize_t got = ::recv(fd.get(), in.data(), in.size(), 0);
    in.resize(got > 0 ? static_cast<size_t>(got) : 0);
    size_t consumed = 0;
    const auto frame = ParseFrame(in, false, &consumed);
    return frame.ok() ? *frame : std::nullopt;
}

class WorkerFlood : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::string path = folder_ / "key";
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(kKeyText))).ok());
        ::chmod(path.c_str(), 0600);
        worker_ = std::make_unique<Process>(
            std::vector<std::string>{CLUSTER_RANK, "listen", "127.0.0.1:0", path});
        ASSERT_TRUE(worker_->ReadUntil("listening on port ", Deadline::In(10'000)));
        ASSERT_TRUE(worker_->ReadUntil("\n", Deadline::In(10'000)));
        port_ = static_cast<uint16_t>(std::atoi(worker_->output().c_str() + 18));
    }
    void ExpectServesAll(const Bytes& first) const {
        for (const auto& addresses : Crowds()) {
            Flood flood(port_, addresses, first);
            for (int peer = 0; peer < kPeers; ++peer) {
                flood.Begin();
                const auto dialled = DialWorker(fmt::format("127.0.0.1:{}", port_), TestKey(), 1000,
                                                test::Limit(10'000));
                EXPECT_TRUE(dialled.ok()) << addresses[0] << ": " << dialled.error().message;
            }
        }
    }

    test::TempDir folder_;
    std::unique_ptr<Process> worker_;
    uint16_t port_ = 0;
};

TEST_F(WorkerFlood, SilentCallersKeepNoJobOut) {
    ExpectServesAll({});
}

TEST_F(WorkerFlood, CallersThatSayHelloKeepNoJobOut) {
    ExpectServesAll(WorkerHello());
}

// A peer that is slow to answer the challenge keeps its place.
TEST_F(WorkerFlood, HandshakeSucceedsDuringAFloodOfHellos) {
    ClientHandshake handshake("w", TestKey(), 1000);
    const Fd fd = Call(port_, "127.0.0.1", handshake.First());
    Bytes in;
    const auto challenge = NextFrame(fd, in);
    ASSERT_TRUE(challenge.has_value());
    const auto crowd = AnsweredCrowd(port_, WorkerHello());
    Send(fd, handshake.On(*challenge).value());
    const auto welcome = NextFrame(fd, in);
    ASSERT_TRUE(welcome.has_value()) << worker_->output();
    EXPECT_TRUE(handshake.On(*welcome).ok());
    EXPECT_TRUE(handshake.done());
}

class AdmissionFlood : public ::testing::Test {
  protected:
    void ExpectAdmitsAll(const Bytes& first) const {
        for (const auto& addresses : Crowds()) {
            Flood flood(dial_in_->port(), addresses, first);
            std::vector<Arrival> ends;
            for (int peer = 0; peer < kPeers; ++peer) {
                flood.Begin();
                EXPECT_TRUE(IsAdmitted(ends)) << addresses[0] << " " << peer;
            }
        }
    }
    // As a worker does, dials again if it is dropped.
    bool IsAdmitted(std::vector<Arrival>& ends) const {
        const Deadline deadline = test::Limit(20'000);
        while (!deadline.expired()) {
            auto fd = net::DialTcp("127.0.0.1", dial_in_->port(), Deadline::In(5000));
            if (!fd.ok()) continue;
            auto end = ProveRank(std::move(*fd), 0, 0, TestKey(), Deadline::In(10'000));
            if (!end.ok()) continue;
            ends.push_back(std::move(*end));
            // (The listener may have dropped it at the same moment.)
            if (test::Until(
                    [&] {
                        return dial_in_->Next({1, 2}).has_value();
                    },
                    test::Limit(1000))) {
                return true;
            }
        }
        return false;
    }

    const std::unique_ptr<DialIn> dial_in_ =
        DialIn::Open("127.0.0.1:0", TestKey(), test::TimeoutMs(1000), 2).value();
};

TEST_F(AdmissionFlood, SilentCallersKeepNoWorkerOut) {
    ExpectAdmitsAll({});
}

TEST_F(AdmissionFlood, CallersThatSayHelloKeepNoWorkerOut) {
    ExpectAdmitsAll(RankHello());
}

TEST_F(AdmissionFlood, HandshakeSucceedsDuringAFloodOfHellos) {
    const Bytes prologue = RankHello();
    const Bytes key = TestKey();
    ServerHandshake handshake(key, {}, prologue);
    const Fd fd = Call(dial_in_->port(), "127.0.0.1", prologue);
    Bytes in;
    const auto hello = NextFrame(fd, in);
    ASSERT_TRUE(hello.has_value());
    const auto crowd = AnsweredCrowd(dial_in_->port(), RankHello());
    Send(fd, handshake.On(*hello).send);
    const auto proof = NextFrame(fd, in);
    ASSERT_TRUE(proof.has_value());
    const auto step = handshake.On(*proof);
    EXPECT_TRUE(step.done) << step.refused;
    Send(fd, step.send);
    const Deadline deadline = test::Limit(20'000);
    bool admitted = false;
    while (!admitted && !deadline.expired()) admitted = dial_in_->Next({1, 2}).has_value();
    EXPECT_TRUE(admitted);
}

}  // namespace
}  // namespace weft::cluster
