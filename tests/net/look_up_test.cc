// A host name whose name server never answers: the dialler's deadline holds.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <net/if.h>
#include <sched.h>
#include <sys/ioctl.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <fstream>

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

// In a network of its own, with a name server on 127.0.0.1 that takes questions and says nothing.
int DialUnderSilentNameServer(const std::string& resolver) {
    if (::unshare(CLONE_NEWNET | CLONE_NEWNS) != 0) return kNotAllowed;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotAllowed;
    if (::mount(resolver.c_str(), "/etc/resolv.conf", nullptr, MS_BIND, nullptr) != 0) {
        return kNotAllowed;
    }
    if (!BringLoopbackUp()) return kNotAllowed;
    const Fd server(::socket(AF_INET, SOCK_DGRAM, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(53);
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::bind(server.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
        return kNotAllowed;
    }
    const int64_t begin_ns = NowNs();
    const Result<Fd> dialled = DialTcp("a-host-that-nobody-knows.example", 7000, Deadline::In(300));
    const int64_t took_ms = (NowNs() - begin_ns) / 1'000'000;
    if (dialled.ok() || dialled.error().code != ErrorCode::kTimeout) return 1;
    if (dialled.error().message.find("name server") == std::string::npos) return 2;
    return took_ms <= 1300 ? 0 : 3;
}

TEST(LookUp, SilentNameServerEndsWithTheDeadline) {
    const test::TempDir folder;
    const std::string resolver = folder.path() + "/resolv.conf";
    std::ofstream(resolver) << "nameserver 127.0.0.1\noptions timeout:10 attempts:3\n";
    const pid_t child = ::fork();
    if (child == 0) ::_exit(DialUnderSilentNameServer(resolver));
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "needs leave to make namespaces (root)";
    EXPECT_EQ(WEXITSTATUS(status), 0) << "1: no time-out, 2: wrong words, 3: too late";
}

TEST(LookUp, NumericAndKnownNamesAreFound) {
    const Fd listener = ListenTcp("127.0.0.1", 0).value();
    const uint16_t port = BoundPort(listener.get()).value();
    EXPECT_TRUE(DialTcp("127.0.0.1", port, Deadline::In(2000)).ok());
    EXPECT_TRUE(DialTcp("localhost", port, Deadline::In(2000)).ok());
}

}  // namespace
}  // namespace weft::net
