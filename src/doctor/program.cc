#include "doctor/program.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>

#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostErrorBytes = 4096;
constexpr int64_t kReapMs = 200;

struct Pipe {
    int ends[2] = {-1, -1};
    Pipe() = default;
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;
    // Only our end does not block: a program that meets EAGAIN loses what it prints.
    bool Open() {
        return ::pipe2(ends, O_CLOEXEC) == 0 && ::fcntl(ends[0], F_SETFL, O_NONBLOCK) == 0;
    }
    void Close(int end) {
        if (ends[end] >= 0) ::close(ends[end]);
        ends[end] = -1;
    }
    ~Pipe() { Close(0), Close(1); }
};

std::string FindProgram(const std::string& name) {
    if (name.find('/') != std::string::npos) return ::access(name.c_str(), X_OK) ? "" : name;
    const char* path = std::getenv("PATH");
    std::string folders = path == nullptr ? "" : path;
    folders += ":/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    for (std::string_view folder : Split(folders, ':')) {
        if (!folder.starts_with('/')) continue;  // never the current folder
        std::string file = std::string(folder) + "/" + name;
        if (::access(file.c_str(), X_OK) == 0) return file;
    }
    return {};
}

std::vector<std::string> Environment() {
    std::vector<std::string> entries;
    for (char** entry = environ; *entry != nullptr; ++entry) {
        if (std::strncmp(*entry, "LC_ALL=", 7) != 0) entries.emplace_back(*entry);
    }
    entries.emplace_back("LC_ALL=C");
    return entries;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
    std::vector<char*> pointers;
    for (std::string& string : strings) pointers.push_back(string.data());
    pointers.push_back(nullptr);
    return pointers;
}

Result<pid_t> Spawn(const std::string& file, std::vector<std::string> words, const Pipe& out,
                    const Pipe& err) {
    std::vector<std::string> environment = Environment();
    posix_spawn_file_actions_t actions;
    posix_spawnattr_t attributes;
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&actions, out.ends[1], STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&actions, err.ends[1], STDERR_FILENO);
    ::posix_spawnattr_init(&attributes);
    sigset_t none, usual;
    ::sigemptyset(&none);
    ::sigemptyset(&usual);
    for (int signal : {SIGPIPE, SIGINT, SIGTERM, SIGHUP, SIGCHLD}) ::sigaddset(&usual, signal);
    ::posix_spawnattr_setsigmask(&attributes, &none);
    ::posix_spawnattr_setsigdefault(&attributes, &usual);
    ::posix_spawnattr_setpgroup(&attributes, 0);
    ::posix_spawnattr_setflags(
        &attributes, POSIX_SPAWN_SETPGROUP | POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    pid_t pid = -1;
    const int failed = ::posix_spawn(&pid, file.c_str(), &actions, &attributes,
                                     Pointers(words).data(), Pointers(environment).data());
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
    if (failed == 0) return pid;
    return MakeError(ErrorCode::kIo, "{}: cannot start: {}", file, std::strerror(failed));
}

// Takes what is there; false at the end. Bytes beyond `most` are read and dropped.
bool Drain(int fd, std::string& text, size_t most, bool* too_much) {
    std::array<char, 65536> buffer;
    for (;;) {
        const ssize_t got = ::read(fd, buffer.data(), buffer.size());
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return errno == EAGAIN;
        if (got == 0) return false;
        const size_t taken = std::min(static_cast<size_t>(got), most - text.size());
        text.append(buffer.data(), taken);
        if (taken < static_cast<size_t>(got)) {
            *too_much = true;
            return true;
        }
    }
}

// True when it ended; it is reaped then.
bool Reap(pid_t pid, const Deadline& deadline, int* status) {
    for (;;) {
        const pid_t got = ::waitpid(pid, status, WNOHANG);
        if (got == pid || (got < 0 && errno != EINTR)) return true;
        if (deadline.expired()) return false;
        ::usleep(1000);
    }
}

void KillGroup(pid_t pid) {
    int ignored = 0;
    ::kill(-pid, SIGKILL);
    Reap(pid, Deadline::In(kReapMs), &ignored);
}

}  // namespace

Result<Ran> RunProgram(const std::vector<std::string>& words, const Deadline& deadline,
                       size_t most_bytes) {
    WEFT_CHECK(!words.empty());
    const std::string file = FindProgram(words[0]);
    if (file.empty()) return MakeError(ErrorCode::kNotFound, "{}: not installed", words[0]);
    Pipe out, err;
    if (!out.Open() || !err.Open()) {
        return MakeError(ErrorCode::kIo, "pipe: {}", std::strerror(errno));
    }
    WEFT_ASSIGN(const pid_t pid, Spawn(file, words, out, err));
    out.Close(1);
    err.Close(1);
    Ran ran;
    bool too_much = false, more_ignored = false;
    bool out_open = true, err_open = true;
    while ((out_open || err_open) && !too_much && !deadline.expired()) {
        std::array<pollfd, 2> polled = {pollfd{out_open ? out.ends[0] : -1, POLLIN, 0},
                                        pollfd{err_open ? err.ends[0] : -1, POLLIN, 0}};
        ::poll(polled.data(), polled.size(), static_cast<int>(deadline.left_ms()));
        if (polled[0].revents != 0) out_open = Drain(out.ends[0], ran.out, most_bytes, &too_much);
        if (polled[1].revents != 0) {
            err_open = Drain(err.ends[0], ran.err, kMostErrorBytes, &more_ignored);
        }
    }
    if (too_much) {
        KillGroup(pid);
        return MakeError(ErrorCode::kUnsupported, "{}: prints more than {} bytes", words[0],
                         most_bytes);
    }
    int status = 0;
    if (!Reap(pid, deadline, &status)) {
        KillGroup(pid);
        return MakeError(ErrorCode::kTimeout, "{}: did not end within {} ms", words[0],
                         deadline.length_ms());
    }
    ran.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
    return ran;
}

}  // namespace weft::doctor
