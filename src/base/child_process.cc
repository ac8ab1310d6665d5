#include "base/child_process.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "base/check.h"
#include "base/fd.h"
#include "base/start_thread.h"

namespace weft {
namespace {

constexpr size_t kMaxErrorBytes = 64 << 10;
constexpr int64_t kPollMs = 60'000;  // poll(2) takes an int
constexpr int64_t kPollWithoutPidfdMs = 20;
constexpr int64_t kReapMs = 200;

struct Pipe {
    Fd read_end, write_end;
    // Only the read end does not block: a program that meets EAGAIN loses its output.
    bool Open() {
        int ends[2];
        if (::pipe2(ends, O_CLOEXEC) != 0) return false;
        read_end = Fd(ends[0]);
        write_end = Fd(ends[1]);
        return ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
    }
};

std::string FindProgram(const std::string& name, bool path_only) {
    if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) ? "" : name;
    const char* path = std::getenv("PATH");
    std::string folders = path == nullptr ? "" : path;
    if (!path_only) folders += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    for (size_t at = 0; at < folders.size();) {
        const size_t end = std::min(folders.find(':', at), folders.size());
        const std::string folder = folders.substr(at, end - at);
        at = end + 1;
        if (!folder.starts_with('/')) continue;  // never the current folder
        std::string file = folder + "/" + name;
        if (::access(file.c_str(), X_OK) == 0) return file;
    }
    return {};
}

std::vector<std::string> Environment(bool c_locale) {
    std::vector<std::string> entries;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (!c_locale || std::strncmp(*entry, "LC_ALL=", 7) != 0) entries.emplace_back(*entry);
    }
    if (c_locale) entries.emplace_back("LC_ALL=C");
    return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
}

// Reads until the pipe is empty or closed; closes `fd` at the end of the stream. Bytes beyond
// `limit` are dropped. Returns whether there were any.
bool Drain(Fd& fd, std::string& text, size_t limit) {
    std::array<char, 65536> buffer;
    while (fd.get() >= 0) {
        const ssize_t got = ::read(fd.get(), buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0 && errno == EAGAIN) return false;
        if (got <= 0) {
            fd.Reset();
            return false;
        }
        const size_t taken = std::min(static_cast<size_t>(got), limit - text.size());
        text.append(buffer.data(), taken);
        if (taken < static_cast<size_t>(got)) return true;
    }
    return false;
}

class Child {
  public:
    Child(pid_t pid, bool own_group)
        : pid_(pid),
          own_group_(own_group),
          pidfd_(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0))) {}
    int pidfd() const { return pidfd_.get(); }
    // Reaps the child if it has ended.
    bool HasEnded() {
        const pid_t got = ::waitpid(pid_, &status_, WNOHANG);
        return got == pid_ || (got < 0 && errno != EINTR);
    }
    void Kill() {
        ::kill(own_group_ ? -pid_ : pid_, SIGKILL);
        for (const Deadline reaped = Deadline::In(kReapMs); !HasEnded() && !reaped.expired();) {
            ::usleep(1000);
        }
    }
    int status() const {
        return WIFSIGNALED(status_) ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
    }

  private:
    const pid_t pid_;
    const bool own_group_;
    const Fd pidfd_;
    int status_ = 0;
};

int NapMs(const std::optional<Deadline>& deadline, const Child& child) {
    const int64_t most_ms = child.pidfd() < 0 ? kPollWithoutPidfdMs : kPollMs;
    return static_cast<int>(deadline ? std::min(deadline->left_ms(), most_ms) : most_ms);
}

}  // namespace

Result<pid_t> StartChild(const std::string& file, std::vector<std::string> words,
                         const ChildOptions& options, int out, int err) {
    std::vector<std::string> environment = Environment(options.c_locale);
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    if (options.input >= 0) {
        ::posix_spawn_file_actions_adddup2(&actions, options.input, STDIN_FILENO);
    } else if (!options.interactive) {
        ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    }
    if (out >= 0) ::posix_spawn_file_actions_adddup2(&actions, out, STDOUT_FILENO);
    if (err >= 0) ::posix_spawn_file_actions_adddup2(&actions, err, STDERR_FILENO);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    ::sigemptyset(&none);
    ::sigemptyset(&usual);
    for (int signal : {SIGPIPE, SIGXFSZ, SIGINT, SIGTERM, SIGHUP, SIGCHLD, SIGUSR1})
        ::sigaddset(&usual, signal);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &usual);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    const int group = options.interactive ? 0 : POSIX_SPAWN_SETPGROUP;
    ::posix_spawnattr_setflags(
        &attributes, static_cast<short>(group | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF));
    pid_t pid = -1;
    const int failed = ::posix_spawn(&pid, file.c_str(), &actions, &attributes,
                                     Pointers(words).data(), Pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (failed == 0) return pid;
    std::string why = std::strerror(failed);
    // (Without permission for the file, clone3 itself is permitted: it finds no arguments.)
    if (failed == EPERM && ::syscall(SYS_clone3, nullptr, 0) < 0 && errno == EPERM) {
        why += std::string(". ") + kForbidsClone3;
    }
    return MakeError(ErrorCode::kIo, "{}: cannot start: {}", file, why);
}

Result<ChildResult> RunChild(std::vector<std::string> words,
                             const std::optional<Deadline>& deadline, const ChildOptions& options) {
    WEFT_CHECK(!words.empty());
    const std::string name = options.name.empty() ? words[0] : options.name;
    const std::string file = FindProgram(words[0], options.interactive);
    if (file.empty()) return MakeError(ErrorCode::kNotFound, "{}: not installed", words[0]);
    Pipe out, err;
    if ((options.capture_output && !out.Open()) || (!options.interactive && !err.Open())) {
        return MakeError(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
    }
    WEFT_ASSIGN(const pid_t pid,
                StartChild(file, words, options, out.write_end.get(), err.write_end.get()));
    out.write_end.Reset();
    err.write_end.Reset();
    Child child(pid, !options.interactive);
    ChildResult result;
    for (bool ended = false; !ended;) {
        std::array<pollfd, 3> polled = {pollfd{out.read_end.get(), POLLIN, 0},
                                        pollfd{err.read_end.get(), POLLIN, 0},
                                        pollfd{child.pidfd(), POLLIN, 0}};
        ::poll(polled.data(), polled.size(), NapMs(deadline, child));
        ended = child.HasEnded();  // before the last read: a child of the child may hold the pipes
        const bool floods = Drain(out.read_end, result.out, options.max_output_bytes);
        Drain(err.read_end, result.err, kMaxErrorBytes);
        if (!floods && (ended || !deadline || !deadline->expired())) continue;
        if (!ended) child.Kill();
        if (floods) {
            return MakeError(ErrorCode::kUnsupported, "{} printed more than {} bytes", name,
                             options.max_output_bytes);
        }
        return MakeError(ErrorCode::kTimeout, "{} did not end within {} ms", name,
                         deadline->length_ms());
    }
    result.status = child.status();
    return result;
}

}  // namespace weft
