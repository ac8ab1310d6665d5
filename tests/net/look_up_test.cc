// A host name whose name server never answers, or answers late: the dialler's deadline holds, and a
// later call has the answer.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <fstream>
#include <thread>

#include "net/socket.h"
#include "support/temp_dir.h"

namespace weft::net {
namespace {

constexpr int kNotAllowed = 77;

bool BringLoopbackUp() {
    const Fd fd(::socket(AF_INET, SOCK_DGRAM, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo");
    request.ifr_flags = IFF_UP | IFF_RUNNING;
    return ::ioctl(fd.get(), SIOCSIFFLAGS, &request) == 0;
}

// A network of the caller's own, with a name server on 127.0.0.1 that receives queries and does not
// answer. An invalid descriptor: not possible.
Fd SilentNameServer(const std::string& resolver) {
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return {};
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return {};
    if (::mount(resolver.c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) != 0) return {};
    if (!BringLoopbackUp()) return {};
    Fd server(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) return {};
    return server;
}

int DialUnderSilentNameServer(const std::string& resolver) {
    const Fd server = SilentNameServer(resolver);
    if (!server.valid()) return kNotAllowed;
    const int64_t begin_ns = NowNs();
    const Result<Fd> dialled = DialTcp("a-host-that-nobody-knows.example", 7000, Deadline::In(300));
    const int64_t took_ms = (NowNs() - begin_ns) / 1'000'000;
    if (dialled.ok() || dialled.error().code != ErrorCode::kTimeout) return 1;
    if (dialled.error().message.find("name server") == std::string::npos) return 2;
    return took_ms <= 1300 ? 0 : 3;
}

// Receives the two questions of a lookup (IPv4 and IPv6), calls `before`, and then answers them:
// 127.0.0.1. Later questions get no answer.
template <typename Before>
void AnswerOneLookUp(int server, const Before& before) {
    struct Question {
        std::string bytes;
        sockaddr_in from{};
    };
    std::array<Question, 2> questions;
    for (Question& question : questions) {
        std::array<char, 512> buffer;
        socklen_t length = sizeof question.from;
        const ssize_t got = ::recvfrom(server, buffer.data(), buffer.size(), 0,
                                       reinterpret_cast<sockaddr*>(&question.from), &length);
        question.bytes.assign(buffer.data(), static_cast<size_t>(std::max<ssize_t>(got, 0)));
    }
    before();
    for (Question& question : questions) {
        std::string& bytes = question.bytes;
        const size_t end = bytes.find('\0', 12);  // of the name; its type and class follow
        const bool v4 = bytes[end + 2] == 1;
        bytes.resize(end + 5);
        bytes.replace(2, 10,
                      std::string("\x81\x80\0\1\0", 5) + (v4 ? '\1' : '\0') + std::string(4, '\0'));
        if (v4) bytes += std::string("\xc0\x0c\0\1\0\1\0\0\0\x3c\0\4\x7f\0\0\1", 16);
        ::sendto(server, bytes.data(), bytes.size(), 0,
                 reinterpret_cast<const sockaddr*>(&question.from), sizeof question.from);
    }
}

int DialUnderSlowNameServer(const std::string& resolver) {
    const Fd server = SilentNameServer(resolver);
    if (!server.valid()) return kNotAllowed;
    const Result<Fd> listener = ListenTcp("127.0.0.1", 7000);
    if (!listener.ok()) return kNotAllowed;
    const auto dial = [](int64_t ms) { return DialTcp("slow.example", 7000, Deadline::In(ms)); };
    std::atomic<bool> gave_up = false;
    std::thread answers([&] { AnswerOneLookUp(server.get(), [&] { gave_up.wait(false); }); });
    const bool early = dial(300).ok();
    gave_up = true;
    gave_up.notify_all();
    answers.join();
    return early ? 4 : dial(5000).ok() ? 0 : 5;
}

void RunInChild(int (*dial)(const std::string&)) {
    const test::TempDir folder;
    const std::string resolver = folder.path() + "/resolv.conf";
    std::ofstream(resolver) << "nameserver 127.0.0.1\noptions timeout:10 attempts:3\n";
    const pid_t child = ::fork();
    if (child == 0) ::_exit(dial(resolver));
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "needs leave to make namespaces (root)";
    EXPECT_EQ(WEXITSTATUS(status), 0)
        << "1: no time-out, 2: wrong words, 3: too late, 4: too early, 5: the answer was lost";
}

TEST(LookUp, SilentNameServerEndsWithTheDeadline) {
    RunInChild(DialUnderSilentNameServer);
}

// A name takes longer than each call, as those for a lost rank: a later call has the answer.
TEST(LookUp, ALateAnswerIsForTheNextCall) {
    RunInChild(DialUnderSlowNameServer);
}

TEST(LookUp, NumericAndKnownNamesAreFound) {
    const Fd listener = ListenTcp("127.0.0.1", 0).value();
    const uint16_t port = BoundPort(listener.get()).value();
    EXPECT_TRUE(DialTcp("127.0.0.1", port, Deadline::In(2000)).ok());
    EXPECT_TRUE(DialTcp("localhost", port, Deadline::In(2000)).ok());
}

}  // namespace
}  // namespace weft::net
