#include "cluster/join/spawn.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "cluster/worker/stop_signals.h"
#include "hw/cpu.h"

// Linux 5.9, in glibc 2.34's unistd.h; the flag's kernel header conflicts with other headers.
#ifndef CLOSE_RANGE_CLOEXEC
#define CLOSE_RANGE_CLOEXEC (1U << 2)
#endif

namespace weft::cluster {
namespace {

// A thread's state in proc_pid_stat(5). The flags are defined in the kernel's linux/sched.h.
struct ThreadState {
    char state = 0;
    unsigned flags = 0;
    uint64_t pending = 0;  // signals of this thread alone, such as a pending SIGKILL
    bool ends() const {
        constexpr unsigned kExiting = 0x4, kAfterCoreDump = 0x8, kDumpsCore = 0x200;
        constexpr uint64_t kKill = uint64_t{1} << (SIGKILL - 1);
        return (flags & (kExiting | kAfterCoreDump | kDumpsCore)) != 0 || (pending & kKill) != 0;
    }
};

// Empty if there is no such process.
std::vector<ThreadState> ThreadsOf(pid_t pid) {
    std::vector<ThreadState> threads;
    std::error_code error;
    const std::string tasks = fmt::format("/proc/{}/task", pid);
    std::filesystem::directory_iterator task(tasks, error);
    for (; !error && task != std::filesystem::directory_iterator(); task.increment(error)) {
        std::ifstream file(task->path() / "stat");
        std::string stat;
        std::getline(file, stat);
        const size_t name_end = stat.rfind(") ");
        if (name_end == std::string::npos) continue;
        constexpr int kState = 3, kFlags = 9, kPending = 31;  // fields, counted from 1
        std::istringstream rest(stat.substr(name_end + 2));
        ThreadState thread;
        std::string word;
        for (int field = kState; field <= kPending && rest >> word; ++field) {
            if (field == kState) thread.state = word[0];
            const uint64_t number = std::strtoull(word.c_str(), nullptr, 10);
            if (field == kFlags) thread.flags = static_cast<unsigned>(number);
            if (field == kPending) thread.pending = number;
        }
        threads.push_back(thread);
    }
    return threads;
}

// Between fork and exec: only async-signal-safe calls. StopSignals() are blocked since the fork.
// Ignoring a signal discards a pending one, which must not happen to the SIGTERM by which a worker
// ends its rank, however early.
[[noreturn]] void RunChild(char* const* argv, pid_t parent, int control, int session, bool local,
                           std::span<const int> cores) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(3);  // rank 0 ended before the prctl
    RunThisThreadOn(cores);                 // the parent's thread may be pinned to one core
    ::signal(SIGINT, SIG_IGN);
    ::signal(SIGTERM, local ? SIG_IGN : SIG_DFL);
    ::signal(SIGUSR1, SIG_IGN);
    ::signal(SIGCHLD, SIG_DFL);
    const sigset_t held = StopSignals();
    ::sigprocmask(SIG_SETMASK, &held, nullptr);
    const int null = ::open("/dev/null", O_RDONLY);
    if (null >= 0) ::dup2(null, STDIN_FILENO);
    ::dup2(STDERR_FILENO, STDOUT_FILENO);
    ::close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC);
    ::fcntl(control, F_SETFD, 0);
    ::fcntl(session, F_SETFD, 0);
    ::execv("/proc/self/exe", argv);
    ::_exit(127);
}

bool ParseFd(std::string_view text, int* fd) {
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), *fd);
    return parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() &&
           *fd > STDERR_FILENO;
}

Bytes ReadAll(int fd) {
    Bytes bytes(1024);
    size_t size = 0;
    while (size < bytes.size()) {
        const ssize_t got = ::read(fd, bytes.data() + size, bytes.size() - size);
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) break;
        size += static_cast<size_t>(got);
    }
    bytes.resize(size);
    return bytes;
}

RankStarter g_rank_starter = nullptr;

Error SpawnError(const char* what) {
    return MakeError(ErrorCode::kIo, "cannot start a rank: {}: {}", what, std::strerror(errno));
}

}  // namespace

void SetRankStarter(RankStarter starter) {
    g_rank_starter = starter;
}

Result<pid_t> SpawnRank(const std::vector<std::string>& arguments, Fd control,
                        const Session& session, bool local, std::span<const int> cores) {
    if (g_rank_starter != nullptr) return g_rank_starter(std::move(control), session, local);
    int pipe_fds[2];
    if (::pipe2(pipe_fds, O_CLOEXEC) != 0) return SpawnError("pipe");
    const Fd read_end(pipe_fds[0]);
    Fd write_end(pipe_fds[1]);
    const Bytes secret = EncodeSession(session);  // far below a pipe's capacity: never blocks
    if (::write(write_end.get(), secret.data(), secret.size()) !=
        static_cast<ssize_t>(secret.size())) {
        return SpawnError("write to a pipe");
    }
    // The child reads to the end of the pipe. This process closes its end before the fork, because
    // it may be stopped at any later moment.
    write_end = Fd();
    std::vector<std::string> words = {"weft"};
    words.insert(words.end(), arguments.begin(), arguments.end());
    words.push_back("--handle");
    words.push_back(
        fmt::format("{}:{},{}", local ? "local" : "host", control.get(), read_end.get()));
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t parent = ::getpid();
    const sigset_t held = StopSignals();
    sigset_t before;
    ::pthread_sigmask(SIG_BLOCK, &held, &before);
    const pid_t pid = ::fork();
    if (pid == 0) RunChild(argv.data(), parent, control.get(), read_end.get(), local, cores);
    const int fork_errno = errno;
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = fork_errno;
    if (pid < 0) return SpawnError("fork");
    return pid;
}

Result<Inheritance> ReadHandle(const std::string& handle) {
    const size_t colon = handle.find(':');
    const size_t comma = handle.find(',');
    Inheritance inheritance;
    int control = -1, session = -1;
    const std::string kind = handle.substr(0, colon);
    if (colon == std::string::npos || comma == std::string::npos || comma < colon ||
        (kind != "local" && kind != "host") ||
        !ParseFd(std::string_view(handle).substr(colon + 1, comma - colon - 1), &control) ||
        !ParseFd(std::string_view(handle).substr(comma + 1), &session) ||
        ::fcntl(control, F_GETFD) < 0 || ::fcntl(session, F_GETFD) < 0) {
        return MakeError(
            ErrorCode::kUsage,
            "--handle {}: not a valid handle. Weft itself starts 'weft worker --handle'; by hand, "
            "start 'weft worker --listen HOST:PORT --key-file FILE', or --join",
            handle);
    }
    inheritance.local = kind == "local";
    inheritance.control = Fd(control);
    ::fcntl(control, F_SETFD, FD_CLOEXEC);
    const Fd pipe_end(session);
    WEFT_ASSIGN(inheritance.session, DecodeSession(ReadAll(pipe_end.get())));
    return inheritance;
}

bool ReapChild(pid_t pid, std::string* how) {
    int status = 0;
    const pid_t got = ::waitpid(pid, &status, WNOHANG);
    if (got == 0 || (got < 0 && errno == EINTR)) return false;
    if (got > 0 && WIFSIGNALED(status)) {
        *how = fmt::format("its process was killed by signal {} ({})", WTERMSIG(status),
                           ::strsignal(WTERMSIG(status)));
    } else if (got > 0) {
        *how = fmt::format("its process ended with status {}", WEXITSTATUS(status));
    } else {
        *how = "its process ended";
    }
    return true;
}

bool CouldRun(pid_t pid) {
    return std::ranges::any_of(ThreadsOf(pid), [](const ThreadState& thread) {
        return (thread.state == 'R' || thread.state == 'D') && !thread.ends();
    });
}

bool IsExiting(pid_t pid) {
    const std::vector<ThreadState> threads = ThreadsOf(pid);
    return !threads.empty() && std::ranges::all_of(threads, &ThreadState::ends);
}

}  // namespace weft::cluster
