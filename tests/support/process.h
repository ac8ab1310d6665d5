// A program that a test starts and watches: what it prints (standard output and error together),
// how it ends, and what it leaves behind. Killed, with its children, when the object goes.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "support/slowness.h"

namespace weft::test {

// Processes whose parent is `pid`, in order of their start; zombies too, if asked.
inline std::vector<pid_t> ChildrenOf(pid_t pid, bool zombies = false) {
    std::vector<std::pair<unsigned long long, pid_t>> found;
    DIR* proc = ::opendir("/proc");
    while (const dirent* entry = ::readdir(proc)) {
        const pid_t child = std::atoi(entry->d_name);
        if (child <= 0) continue;
        std::ifstream file("/proc/" + std::string(entry->d_name) + "/stat");
        std::string text;
        std::getline(file, text);  // a process that is gone by now gives an empty one
        const size_t end = text.rfind(')');
        if (end == std::string::npos) continue;
        std::istringstream rest(text.substr(end + 1));
        char state = 0;
        pid_t parent = 0;
        std::string skipped;
        unsigned long long start = 0;
        rest >> state >> parent;
        for (int i = 0; i < 17; ++i) rest >> skipped;
        rest >> start;
        if (parent == pid && (zombies || state != 'Z')) found.emplace_back(start, child);
    }
    ::closedir(proc);
    std::sort(found.begin(), found.end());
    std::vector<pid_t> pids;
    for (const auto& entry : found) pids.push_back(entry.second);
    return pids;
}

// Runs (or waits to be reaped) no more.
inline bool IsGone(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    std::getline(file, text);
    const size_t end = text.rfind(')');
    return end == std::string::npos || text[end + 2] == 'Z';
}

class Process {
  public:
    // words[0]: the path of the program (or its name, found on PATH).
    explicit Process(std::vector<std::string> words) {
        int fds[2];
        WEFT_CHECK(::pipe2(fds, O_CLOEXEC) == 0);
        std::vector<char*> argv;
        for (std::string& word : words) argv.push_back(word.data());
        argv.push_back(nullptr);
        pid_ = ::fork();
        WEFT_CHECK(pid_ >= 0);
        if (pid_ == 0) {
            ::setpgid(0, 0);
            ::dup2(fds[1], STDOUT_FILENO);
            ::dup2(fds[1], STDERR_FILENO);
            ::execvp(argv[0], argv.data());
            ::_exit(126);
        }
        ::setpgid(pid_, pid_);
        ::close(fds[1]);
        out_ = fds[0];
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
        ::kill(-pid_, SIGKILL);
        ::kill(-pid_, SIGCONT);
        if (!reaped_) ::waitpid(pid_, nullptr, 0);
        ::close(out_);
    }

    pid_t pid() const { return pid_; }
    void Signal(int signal) const { ::kill(pid_, signal); }
    void SignalGroup(int signal) const { ::kill(-pid_, signal); }
    const std::string& output() const { return text_; }

    // Reads on until `text` was printed; false at the deadline or the end of the output. A machine
    // that is slow has more time, here and in Wait: what must be in time is measured (end_ns).
    bool ReadUntil(const std::string& text, const Deadline& idle) {
        LenientDeadline deadline(idle);
        while (text_.find(text) == std::string::npos) {
            if (!ReadSome(deadline.now()) && (ended_ || deadline.expired())) {
                return text_.find(text) != std::string::npos;
            }
        }
        return true;
    }
    // Reads everything, waits for the end. The exit status, 128 + signal, or -1 at the deadline.
    int Wait(const Deadline& idle) {
        LenientDeadline deadline(idle);
        while (!reaped_) {
            int status = 0;
            const pid_t got = ::waitpid(pid_, &status, WNOHANG);
            if (got == pid_) {
                reaped_ = true;
                end_ns_ = NowNs();
                status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            } else if (deadline.expired()) {
                return -1;
            } else {
                ReadSome(Deadline::In(2));
            }
        }
        while (ReadSome(Deadline::In(20))) {
        }
        return status_;
    }
    int64_t end_ns() const { return end_ns_; }

  private:
    bool ReadSome(const Deadline& deadline) {
        pollfd entry{out_, POLLIN, 0};
        if (::poll(&entry, 1, static_cast<int>(deadline.left_ms())) <= 0) return false;
        char buffer[4096];
        const ssize_t got = ::read(out_, buffer, sizeof buffer);
        if (got <= 0) {
            if (!deadline.expired() && got == 0) ::usleep(500);
            ended_ = ended_ || got == 0;
            return false;
        }
        text_.append(buffer, static_cast<size_t>(got));
        return true;
    }

    pid_t pid_ = -1;
    int out_ = -1;
    bool reaped_ = false;
    bool ended_ = false;  // of its output
    int status_ = -1;
    int64_t end_ns_ = 0;
    std::string text_;
};

}  // namespace weft::test
