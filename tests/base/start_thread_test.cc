#include "base/start_thread.h"

#include <grp.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "base/deadline.h"
#include "base/on_threads.h"
#include "support/wait.h"

namespace weft {
namespace {

// Exit status of `act` in a process whose user may have `threads` of them; 77: this user has no
// limit.
int WithFewThreads(rlim_t threads, const std::function<int()>& act) {
    const pid_t pid = ::fork();
    if (pid == 0) {
        // (root has no limit, and a user without processes has all of it.)
        const auto user = static_cast<uid_t>(1'000'000 + ::getpid());
        if (::geteuid() == 0 && (::setgroups(0, nullptr) != 0 || ::setuid(user) != 0)) ::_exit(77);
        const rlimit limit{threads, threads};
        if (::setrlimit(RLIMIT_NPROC, &limit) != 0) ::_exit(77);
        ::_exit(act());
    }
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 100 + WTERMSIG(status);
}

TEST(StartThread, WaitsUntilTheSystemHasAThread) {
    const int status = WithFewThreads(2, [] {
        std::atomic<int> ran{0};
        std::atomic<bool> tries{false}, ended{false};
        std::thread first, second;
        const auto held = [&] {
            tries.wait(false);
            test::GoesOn(::getpid(), 5);
            ++ran;
            ended = true;
        };
        if (!StartThread(first, held).ok()) return 77;  // this user has other processes
        // The second thread is refused until the first has ended, which takes some tries.
        tries = true;
        tries.notify_all();
        if (!StartThread(second, [&] { ++ran; }).ok()) return 1;
        if (!ended) return 3;
        first.join();
        second.join();
        return ran == 2 ? 0 : 2;
    });
    if (status == 77) GTEST_SKIP() << "NOT TESTED: no limit of processes can be set";
    EXPECT_EQ(status, 0);
}

TEST(StartThread, ARefusedThreadIsAnError) {
    const int status = WithFewThreads(1, [] {
        std::thread thread;
        const Status started = StartThread(thread, [] {});
        if (started.ok()) return 77;
        if (thread.joinable()) return 1;
        if (started.error().message.find("ulimit -u") == std::string::npos) return 2;
        std::atomic<int> calls{0};
        const Status all = OnThreads(8, 5, [&](size_t) {
            ++calls;
            return Status();
        });
        if (!all.ok() || calls != 5) return 3;
        const Status at_once = AllAtOnce(2, [&](size_t) { ++calls; });
        return !at_once.ok() && calls == 5 ? 0 : 4;
    });
    if (status == 77) GTEST_SKIP() << "NOT TESTED: no limit of processes can be set";
    EXPECT_EQ(status, 0);
}

TEST(StartThread, WithoutSignals) {
    const auto blocked = [](bool signals) {
        bool is_blocked = false;
        std::thread thread;
        const auto look = [&] {
            sigset_t set;
            ::pthread_sigmask(SIG_SETMASK, nullptr, &set);
            is_blocked = ::sigismember(&set, SIGINT) == 1;
        };
        EXPECT_TRUE(StartThread(thread, look, {.signals = signals}).ok());
        thread.join();
        return is_blocked;
    };
    EXPECT_TRUE(blocked(false));
    EXPECT_FALSE(blocked(true));
}

}  // namespace
}  // namespace weft
