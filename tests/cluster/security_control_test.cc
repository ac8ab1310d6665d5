// A caller without the key gets nothing from a listening worker, however it tries. A dialer whose
// peer is not a worker gets an error in time that names the address.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <atomic>
#include <deque>
#include <filesystem>
#include <fstream>
#include <random>
#include <thread>

#include "base/file.h"
#include "cluster/cluster.h"
#include "cluster/join/dial.h"
#include "net/socket.h"
#include "support/process.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::cluster {
namespace {

using test::Process;

class SecurityControl : public ::testing::Test {
  protected:
    void SetUp() override {
        const std::string path = folder_ / "key";
        const std::string_view text = "a-shared-key-of-the-tests";
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
        ::chmod(path.c_str(), 0600);
        key_ = ReadKeyFile(path).value();
        worker_ = std::make_unique<Process>(
            std::vector<std::string>{CLUSTER_RANK, "listen", "127.0.0.1:0", path});
        ASSERT_TRUE(worker_->ReadUntil("listening on port ", Deadline::In(10'000)));
        ASSERT_TRUE(worker_->ReadUntil("\n", Deadline::In(10'000)));
        port_ = std::atoi(worker_->output().c_str() + 18);
    }
    void TearDown() override {
        worker_->Signal(SIGTERM);
        EXPECT_EQ(worker_->Wait(Deadline::In(5000)), 0) << worker_->output();
    }

    std::string Address() const { return fmt::format("127.0.0.1:{}", port_); }
    Fd Knock() const {
        return net::DialTcp("127.0.0.1", static_cast<uint16_t>(port_), Deadline::In(2000)).value();
    }
    static void Send(const Fd& fd, View bytes) {
        [[maybe_unused]] const ssize_t put =
            ::send(fd.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    }
    // Data received until the worker closes, or for this time.
    static Bytes Answer(const Fd& fd, int64_t ms) {
        Bytes all;
        const Deadline deadline = Deadline::In(ms);
        pollfd entry{fd.get(), POLLIN, 0};
        while (::poll(&entry, 1, static_cast<int>(deadline.left_ms())) > 0) {
            std::byte buffer[4096];
            const ssize_t got = ::recv(fd.get(), buffer, sizeof buffer, MSG_DONTWAIT);
            if (got <= 0) break;
            all.insert(all.end(), buffer, buffer + got);
        }
        return all;
    }
    size_t FdsOfWorker() const {
        size_t count = 0;
        const std::string path = fmt::format("/proc/{}/fd", worker_->pid());
        for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(path)) {
            count++;
        }
        return count;
    }
    size_t KibOfWorker() const {
        std::ifstream file(fmt::format("/proc/{}/status", worker_->pid()));
        std::string word;
        size_t kib = 0;
        while (file >> word) {
            if (word == "VmRSS:") file >> kib;
        }
        return kib;
    }
    // A caller with the key succeeds with its handshake.
    void ExpectServes(int64_t ms) const {
        const auto dialled = DialWorker(Address(), key_, 1000, Deadline::In(ms));
        EXPECT_TRUE(dialled.ok()) << dialled.error().message;
    }

    test::TempDir folder_;
    Bytes key_;
    std::unique_ptr<Process> worker_;
    int port_ = 0;
};

TEST_F(SecurityControl, TenThousandSilentConnectionsKeepNoJobOut) {
    constexpr size_t kWanted = 10'000;
    rlimit limit;
    ASSERT_EQ(0, ::getrlimit(RLIMIT_NOFILE, &limit));
    const rlim_t before = limit.rlim_cur;
    limit.rlim_cur = std::min<rlim_t>(limit.rlim_max, kWanted + 200);
    ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &limit));
    const size_t count = std::min<size_t>(kWanted, limit.rlim_cur - 100);
    [[maybe_unused]] const size_t kib_before = KibOfWorker();
    {
        std::vector<Fd> silent;
        silent.reserve(count);
        std::atomic<size_t> open = 0;
        std::thread crowd([&] {
            sockaddr_in to{};
            to.sin_family = AF_INET;
            to.sin_port = htons(static_cast<uint16_t>(port_));
            to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
            for (size_t i = 0; i < count; i++) {
                silent.emplace_back(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                // The kernel queues the part of a crowd that the port cannot accept at once.
                if (i % 32 != 0) net::SetBlocking(silent.back().get(), false);
                ::connect(silent.back().get(), reinterpret_cast<sockaddr*>(&to), sizeof to);
                open++;
            }
        });
        EXPECT_TRUE(test::Until([&] { return open >= count / 10; }));
        ExpectServes(10'000);  // while the crowd connects
        crowd.join();
        EXPECT_LE(FdsOfWorker(), 40u);
#if !defined(__SANITIZE_THREAD__) && !defined(__SANITIZE_ADDRESS__)  // they keep freed memory
        EXPECT_LE(KibOfWorker(), kib_before + 8192);
#endif
        if (count < kWanted) fmt::print("only {} files may be open here\n", count);
    }
    limit.rlim_cur = before;
    ASSERT_EQ(0, ::setrlimit(RLIMIT_NOFILE, &limit));
}

// Callers with a proper greeting stay silent afterwards, repeatedly from several threads; from
// another address, or from the caller's own.
TEST_F(SecurityControl, ACrowdThatTalksKeepsNoJobOut) {
    HelloMessage hello;
    hello.version = "0.1.0";
    hello.timeout_ms = 5000;
    Bytes greeting;
    AppendFrame(greeting, FrameType::kHello, Encode(hello));
    for (const char* from : {"127.0.0.9", "127.0.0.1"}) {
        std::atomic<bool> over = false;
        std::atomic<int64_t> talked = 0;
        std::vector<std::thread> crowd;
        for (int thread = 0; thread < 3; thread++) {
            crowd.emplace_back([&] {
                sockaddr_in own{}, to{};
                own.sin_family = to.sin_family = AF_INET;
                ::inet_pton(AF_INET, from, &own.sin_addr);
                to.sin_port = htons(static_cast<uint16_t>(port_));
                to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
                std::deque<Fd> open;
                while (!over) {
                    Fd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
                    ::bind(fd.get(), reinterpret_cast<sockaddr*>(&own), sizeof own);
                    SetResetOnClose(fd.get());
                    if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&to), sizeof to) != 0) {
                        std::this_thread::yield();
                        continue;
                    }
                    Send(fd, greeting);
                    talked++;
                    open.push_back(std::move(fd));
                    if (open.size() > 64) open.pop_front();
                }
            });
        }
        for (int job = 0; job < 5; job++) {
            const int64_t more = talked + 200;
            ASSERT_TRUE(test::Until([&] { return talked >= more; }));
            ExpectServes(10'000);
        }
        over = true;
        for (std::thread& thread : crowd) thread.join();
        // 16 silent callers, 128 that sent a hello, and the worker's own descriptors.
        EXPECT_LE(FdsOfWorker(), 16u + 128u + 29u) << from;
    }
}

// Frames of every type, well-formed and malformed, before the key is proved: the worker reveals no
// version, host or job, and sends only a challenge to a proper greeting.
TEST_F(SecurityControl, NothingIsSentBeforeTheKeyIsProved) {
    std::mt19937 random(11);
    for (int type = 0; type <= 20; type++) {
        for (size_t size : {size_t{0}, size_t{44}, size_t{900}}) {
            Bytes payload(size);
            for (std::byte& byte : payload) byte = static_cast<std::byte>(random());
            Bytes bytes;
            AppendFrame(bytes, static_cast<FrameType>(type), payload);
            const Fd fd = Knock();
            Send(fd, bytes);
            const Bytes answer = Answer(fd, 500);
            EXPECT_LE(answer.size(), 32u) << "type " << type << " of " << size;
            const std::string text(reinterpret_cast<const char*>(answer.data()), answer.size());
            EXPECT_EQ(std::string::npos, text.find(WEFT_VERSION)) << type;
        }
    }
    ExpectServes(5000);
}

TEST_F(SecurityControl, AWrongProofLearnsNothingMore) {
    Bytes other = key_;
    other.back() ^= std::byte{1};
    ClientHandshake handshake("w", other, 1000);
    const Fd fd = Knock();
    Send(fd, handshake.First());
    pollfd entry{fd.get(), POLLIN, 0};
    ASSERT_EQ(1, ::poll(&entry, 1, 2000));
    Bytes in(4096);
    const ssize_t got = ::recv(fd.get(), in.data(), in.size(), 0);
    ASSERT_GT(got, 0);
    size_t consumed = 0;
    const auto frame = ParseFrame(View(in).first(static_cast<size_t>(got)), false, &consumed);
    ASSERT_TRUE(frame.ok() && frame->has_value());
    EXPECT_EQ(FrameType::kChallenge, (*frame)->type);
    EXPECT_EQ(static_cast<size_t>(got), consumed);
    Send(fd, handshake.On(**frame).value());
    const Bytes answer = Answer(fd, 2000);
    const auto refusal = ParseFrame(answer, false, &consumed);
    ASSERT_TRUE(refusal.ok() && refusal->has_value());
    ASSERT_EQ(FrameType::kRefuse, (*refusal)->type);
    const RefuseMessage why = Decode<RefuseMessage>((*refusal)->payload).value();
    EXPECT_EQ(Refusal::kWrongKey, why.reason);
    EXPECT_EQ("", why.version);
    EXPECT_EQ(answer.size(), consumed) << "something behind the refusal";
    ExpectServes(5000);
}

// A peer at the worker's address accepts the connection and stops at each stage in turn.
TEST_F(SecurityControl, DialerDropsStalledAndMalformedPeers) {
    enum Stage { kSilent, kHalf, kChallenge, kGarbage, kHuge, kClosed };
    for (const Stage stage : {kSilent, kHalf, kChallenge, kGarbage, kHuge, kClosed}) {
        const Fd port = net::ListenTcp("127.0.0.1", 0).value();
        net::SetBlocking(port.get(), true);
        const std::string address = fmt::format("127.0.0.1:{}", net::BoundPort(port.get()).value());
        std::thread impostor([&] {
            const Fd fd = net::Accept(port.get());
            net::SetBlocking(fd.get(), true);
            Bytes hello(4096);
            const ssize_t got = ::recv(fd.get(), hello.data(), hello.size(), 0);
            ServerHandshake handshake(key_);
            size_t consumed = 0;
            const auto frame =
                ParseFrame(View(hello).first(static_cast<size_t>(got)), false, &consumed);
            Bytes answer = handshake.On(**frame).send;
            if (stage == kSilent || stage == kClosed) answer.clear();
            if (stage == kHalf) answer.resize(answer.size() / 2);
            if (stage == kGarbage) answer.assign(300, std::byte{'x'});
            if (stage == kHuge) answer.assign(8, std::byte{0xff});
            Send(fd, answer);
            if (stage == kClosed) return;
            while (::recv(fd.get(), hello.data(), hello.size(), 0) > 0) continue;
        });
        const int64_t begin = NowNs();
        const auto dialled = DialWorker(address, key_, 1000, Deadline::In(300));
        const int64_t ms = (NowNs() - begin) / 1'000'000;
        impostor.join();
        ASSERT_FALSE(dialled.ok()) << stage;
        EXPECT_LE(ms, 2000) << stage;
        EXPECT_NE(std::string::npos, dialled.error().message.find(address))
            << dialled.error().message;
        const bool in_time = stage == kSilent || stage == kHalf || stage == kChallenge;
        EXPECT_EQ(in_time, dialled.error().code == ErrorCode::kTimeout)
            << stage << ": " << dialled.error().message;
    }
}

// A worker with many callers drops most calls; the dialer retries more than a second's calls.
TEST_F(SecurityControl, DialerGoesOnAfterManyDroppedCalls) {
    const Fd port = net::ListenTcp("127.0.0.1", 0).value();
    net::SetBlocking(port.get(), true);
    const std::string address = fmt::format("127.0.0.1:{}", net::BoundPort(port.get()).value());
    const Fd enough(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    std::thread dropper([&] {
        for (int call = 0; call < 150; call++) {
            const Fd fd = net::Accept(port.get());
            SetResetOnClose(fd.get());
        }
        ::eventfd_write(enough.get(), 1);
    });
    const auto dialled = DialWorker(address, key_, 1000, Deadline::In(20'000), {}, enough.get());
    EXPECT_FALSE(dialled.ok());
    uint64_t seen = 0;
    EXPECT_EQ(0, ::eventfd_read(enough.get(), &seen)) << "it gave up earlier";
    // (Accept has no deadline: call until the dropper has seen enough.)
    while (seen == 0 && ::eventfd_read(enough.get(), &seen) != 0) {
        [[maybe_unused]] const auto more = DialWorker(address, key_, 1000, Deadline::In(200));
    }
    dropper.join();
}

}  // namespace
}  // namespace weft::cluster
