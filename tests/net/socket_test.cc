// Sockets under adverse conditions: a name whose first address is silent, hosts behind firewalls,
// full queues, and peers that send more descriptors than one.
#include "net/socket.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "net/local.h"
#include "net/offer.h"
#include "net/reach.h"
#include "support/limits.h"
#include "support/temp_dir.h"
#include "support/wait.h"

namespace weft::net {
namespace {

constexpr int kNotPossible = 77;

size_t OpenDescriptors() {
    const std::filesystem::directory_iterator all("/proc/self/fd");
    return static_cast<size_t>(std::distance(begin(all), end(all)));
}

// ---- Several addresses --------------------------------------------------------------------------

bool BringUp() {
    const Fd fd(::socket(AF_INET, SOCK_DGRAM, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// Calls of a listener that accepts none: later ones get no answer.
std::vector<Fd> FillBacklog(const std::string& host, uint16_t port) {
    std::vector<Fd> calls;
    for (int i = 0; i < 4; ++i) {
        Result<Fd> call = DialTcp(host, port, Deadline::In(200));
        if (!call.ok()) return calls;
        calls.push_back(*std::move(call));
    }
    return {};
}

// In a network of its own, where "two" has the silent address ::1 before 127.0.0.1.
int DialName(const std::string& names, bool second_listens) {
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return kNotPossible;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotPossible;
    if (::mount(names.c_str(), "/etc/hosts", nullptr, MS_BIND, nullptr) != 0) return kNotPossible;
    if (!BringUp()) return kNotPossible;
    const Result<Fd> silent = ListenTcp("::1", 7000);
    if (!silent.ok() || ::listen(silent->get(), 0) != 0) return kNotPossible;
    const std::vector<Fd> calls = FillBacklog("::1", 7000);
    if (calls.empty()) return kNotPossible;
    Fd second;
    if (second_listens) {
        Result<Fd> made = ListenTcp("127.0.0.1", 7000);
        if (!made.ok()) return kNotPossible;
        second = *std::move(made);
    }
    const int64_t most_ms = second_listens ? 60'000 : 1000, begin_ns = NowNs();
    const Result<Fd> dialled = DialTcp("two", 7000, Deadline::In(most_ms));
    const int64_t took_ms = (NowNs() - begin_ns) / kNsPerMs;
    if (second_listens) return dialled.ok() && took_ms < 20'000 ? 0 : 1;
    // The address that refuses does not end the wait for the silent one.
    if (dialled.ok() || dialled.error().code != ErrorCode::kTimeout) return 2;
    return took_ms >= most_ms && took_ms < most_ms + 10'000 ? 0 : 3;
}

TEST(DialTcp, ASilentAddressKeepsNoOtherFromBeingReached) {
    const test::TempDir folder;
    const std::string names = folder.path() + "/hosts";
    std::ofstream(names) << "::1 two\n127.0.0.1 two\n";
    for (const bool second_listens : {true, false}) {
        const pid_t child = ::fork();
        if (child == 0) ::_exit(DialName(names, second_listens));
        int status = 0;
        ASSERT_EQ(::waitpid(child, &status, 0), child);
        ASSERT_TRUE(WIFEXITED(status));
        if (WEXITSTATUS(status) == kNotPossible) GTEST_SKIP() << "needs root and namespaces";
        EXPECT_EQ(WEXITSTATUS(status), 0) << second_listens;
    }
}

TEST(DialTcp, AnAddressThatRefusesIsAnErrorAtOnce) {
    const Fd taken = ListenTcp("127.0.0.1", 0).value();
    const uint16_t port = BoundPort(taken.get()).value();
    const int64_t begin_ns = NowNs();
    const Result<Fd> dialled = DialTcp("127.0.0.3", port, Deadline::In(60'000));
    ASSERT_FALSE(dialled.ok());
    EXPECT_EQ(dialled.error().code, ErrorCode::kIo) << dialled.error().message;
    EXPECT_LT(NowNs() - begin_ns, test::LimitNs(5000));
}

// ---- Knocks -------------------------------------------------------------------------------------

// In a network of its own, on a cable whose other end does not answer. 10.7.0.8 has a link-layer
// address, as a host whose firewall drops packets; no host has 10.7.0.9.
int KnockOnACable() {
    if (::unshare(CLONE_NEWNET) != 0) return kNotPossible;
    const auto run = [](const char* command) { return std::system(command) == 0; };
    if (!run("ip link set lo up && ip link add weft0 type veth peer name weft1 && "
             "ip link set weft0 up && ip link set weft1 up && ip addr add 10.7.0.1/24 dev weft0 && "
             "ip neigh add 10.7.0.8 lladdr 02:00:00:00:00:08 dev weft0 && "
             "ip route add default via 10.7.0.8 && ip route add unreachable 192.0.2.2")) {
        return kNotPossible;
    }
    std::ofstream("/proc/sys/net/ipv4/neigh/weft0/retrans_time_ms") << "20";
    const auto knock = [](std::initializer_list<std::string> hosts) {
        return KnockAt(std::vector<std::string>(hosts), Deadline::In(500));
    };
    using enum Reach;
    // 192.0.2.1 is in no network of this host: its cable is gone.
    const auto found = knock({"127.0.0.1", "10.7.0.8", "10.7.0.9", "192.0.2.1", "192.0.2.2", "x"});
    if (found != std::vector{kAnswers, kSilent, kNone, kNone, kNone, kNone}) return 1;
    // The own end of the cable is out.
    if (!run("ip link set weft1 down")) return kNotPossible;
    return knock({"10.7.0.8"}) == std::vector{kNone} ? 0 : 2;
}

TEST(KnockAt, TellsSilenceFromAHostThatIsNotThere) {
    const pid_t child = ::fork();
    if (child == 0) ::_exit(KnockOnACable());
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNotPossible) GTEST_SKIP() << "needs root, namespaces and ip(8)";
    EXPECT_EQ(WEXITSTATUS(status), 0);
}

// ---- Queues -------------------------------------------------------------------------------------

TEST(DialUnix, WaitsWhileTheQueueIsFull) {
    const std::string name = "weft-test-" + std::to_string(::getpid());
    const Fd listener = ListenUnix(name).value();
    ASSERT_EQ(::listen(listener.get(), 0), 0);
    const Fd first = DialUnix(name, Deadline::In(0)).value();
    ASSERT_FALSE(DialUnix(name, Deadline::In(0)).ok()) << "the queue holds more than one";
    std::atomic<pid_t> dialer = 0;
    bool dialled = false;
    std::thread second([&] {
        dialer = ::gettid();
        dialer.notify_all();
        dialled = DialUnix(name, Deadline::In(60'000)).ok();
    });
    dialer.wait(0);
    EXPECT_TRUE(test::Sleeps(dialer));
    EXPECT_TRUE(Accept(listener.get()).valid());
    second.join();
    EXPECT_TRUE(dialled);
}

TEST(Accept, WithoutADescriptorTheCallerStays) {
    const Fd listener = ListenTcp("127.0.0.1", 0).value();
    const Fd call =
        DialTcp("127.0.0.1", BoundPort(listener.get()).value(), Deadline::In(5000)).value();
    rlimit limit{};
    ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &limit), 0);
    rlimit none = limit;
    none.rlim_cur = static_cast<rlim_t>(Fd(::dup(call.get())).get());
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &none), 0);
    const bool accepted = Accept(listener.get()).valid();
    const int error = errno;
    ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &limit), 0);
    EXPECT_FALSE(accepted);
    EXPECT_TRUE(IsExhausted(error)) << error;
    EXPECT_TRUE(Accept(listener.get()).valid());
}

// ---- Descriptors --------------------------------------------------------------------------------

// Sends one byte with `count` copies of a descriptor.
void SendDescriptors(int socket, int fd, size_t count) {
    char byte = 'x';
    iovec piece{&byte, 1};
    std::vector<char> control(CMSG_SPACE(count * sizeof(int)));
    msghdr header{};
    header.msg_iov = &piece;
    header.msg_iovlen = 1;
    header.msg_control = control.data();
    header.msg_controllen = control.size();
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(count * sizeof(int));
    const std::vector<int> all(count, fd);
    std::memcpy(CMSG_DATA(rights), all.data(), count * sizeof(int));
    ::sendmsg(socket, &header, MSG_NOSIGNAL);
}

TEST(RecvWithFd, KeepsOneDescriptorAndClosesTheRest) {
    for (const size_t count : {1, 2, 3, 4, 5, 50, 250}) {
        int pair[2];
        ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
        const Fd near(pair[0]), far(pair[1]);
        const size_t before = OpenDescriptors();
        std::array<std::byte, 40> message;
        {
            Fd received;
            SendDescriptors(far.get(), far.get(), count);
            EXPECT_EQ(RecvWithFd(near.get(), message, received), count == 1 ? 1 : 0) << count;
            EXPECT_TRUE(received.valid());
            EXPECT_EQ(OpenDescriptors(), before + 1) << count;
            // A second message with a descriptor.
            const int first = received.get();
            SendDescriptors(far.get(), far.get(), 1);
            EXPECT_EQ(RecvWithFd(near.get(), message, received), 0);
            EXPECT_EQ(received.get(), first);
        }
        EXPECT_EQ(OpenDescriptors(), before) << count;
    }
}

// Any process of the host can call a rank that forms its links over shared memory.
TEST(Fabric, StrangersLeaveNoDescriptors) {
    const size_t before = OpenDescriptors();
    {
        std::vector<std::unique_ptr<FabricBuilder>> builders;
        for (int rank = 0; rank < 2; ++rank) {
            FabricOptions options;
            options.rank = rank;
            options.size = 2;
            options.transport = Transport::kShm;
            options.window_bytes = size_t{64} << 10;
            builders.push_back(FabricBuilder::Make(options).value());
        }
        std::vector<std::string> offers[2];
        for (int to = 0; to < 2; ++to) {
            for (const auto& from : builders) offers[to].push_back(from->OfferTo(to));
        }
        const std::string name = DecodeOffer(offers[1][0])->unix_name;
        std::vector<Fd> strangers;
        for (int i = 0; i < 20; ++i) {
            strangers.push_back(DialUnix(name, Deadline::In(1000)).value());
            for (int message = 0; message < 5; ++message) {
                SendDescriptors(strangers.back().get(), strangers.back().get(), 2);
            }
        }
        // Rank 0 reads their bytes until the deadline, because rank 1 connects too late.
        const size_t there = OpenDescriptors();
        EXPECT_FALSE(builders[0]->Connect(offers[0], Deadline::In(300)).ok());
        EXPECT_LE(OpenDescriptors(), there + strangers.size());
    }
    EXPECT_EQ(OpenDescriptors(), before);
}

}  // namespace
}  // namespace weft::net
