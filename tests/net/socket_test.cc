// Sockets under adverse conditions: a name whose first address is silent.
#include "net/socket.h"

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
#include <vector>

#include "support/limits.h"
#include "support/temp_dir.h"

namespace weft::net {
namespace {

constexpr int kNotPossible = 77;

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

}  // namespace
}  // namespace weft::net
