// A program that a test starts and watches: its output (standard output and error together), its
// end, and its leftovers. The destructor kills it and its children.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "support/limits.h"

namespace weft::test {

// State, parent and start time of proc_pid_stat(5).
struct StatLine {
    char state = 0;  // 0: no such process
    pid_t parent = 0;
    unsigned long long start = 0;
};

inline StatLine StatLineOf(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text, skipped;
    std::getline(file, text);
    StatLine line;
    const size_t name_end = text.rfind(')');
    if (name_end == std::string::npos) return line;
    std::istringstream rest(text.substr(name_end + 1));
    rest >> line.state >> line.parent;
    for (int field = 5; field < 22; ++field) rest >> skipped;
    rest >> line.start;
    return line;
}

inline std::vector<pid_t> AllProcesses() {
    std::vector<pid_t> pids;
    DIR* open = ::opendir("/proc");
    if (open == nullptr) return pids;
    while (const dirent* entry = ::readdir(open)) {
        if (const int pid = std::atoi(entry->d_name); pid > 0) pids.push_back(pid);
    }
    ::closedir(open);
    return pids;
}

// Processes whose parent is `pid`, in order of their start; includes zombies if requested.
inline std::vector<pid_t> ChildrenOf(pid_t pid, bool zombies = false) {
    std::vector<std::pair<unsigned long long, pid_t>> found;
    for (const pid_t child : AllProcesses()) {
        const StatLine line = StatLineOf(child);
        const bool counts = line.state != 0 && (zombies || line.state != 'Z');
        if (counts && line.parent == pid) found.emplace_back(line.start, child);
    }
    std::sort(found.begin(), found.end());
    std::vector<pid_t> pids;
    for (const auto& entry : found) pids.push_back(entry.second);
    return pids;
}

// Children and further descendants, including zombies.
inline std::vector<pid_t> DescendantsOf(pid_t pid) {
    std::multimap<pid_t, pid_t> children;
    for (const pid_t child : AllProcesses()) {
        const StatLine line = StatLineOf(child);
        if (line.state != 0) children.emplace(line.parent, child);
    }
    std::vector<pid_t> found = {pid};
    for (size_t i = 0; i < found.size(); ++i) {
        const auto [begin, end] = children.equal_range(found[i]);
        for (auto at = begin; at != end; ++at) found.push_back(at->second);
    }
    found.erase(found.begin());
    return found;
}

// The process has ended (it may be a zombie).
inline bool IsGone(pid_t pid) {
    const StatLine line = StatLineOf(pid);
    return line.state == 0 || line.state == 'Z';
}

// A descriptor that can be read once a child has ended (pidfd_open(2)). The caller closes it.
inline int EndOf(pid_t child) {
    const auto fd = static_cast<int>(::syscall(SYS_pidfd_open, child, 0));
    WEFT_CHECK(fd >= 0);
    return fd;
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
        end_ = EndOf(pid_);
    }
    Process(const Process&) = delete;
    Process& operator=(const Process&) = delete;
    ~Process() {
        ::kill(-pid_, SIGKILL);
        ::kill(-pid_, SIGCONT);
        if (!reaped_) ::waitpid(pid_, nullptr, 0);
        ::close(out_);
        ::close(end_);
    }

    pid_t pid() const { return pid_; }
    void Signal(int signal) const { ::kill(pid_, signal); }
    void SignalGroup(int signal) const { ::kill(-pid_, signal); }
    const std::string& output() const { return text_; }

    // Reads until `text` was printed; false: deadline or end of output. Here and in Wait, `idle` is
    // a time on an idle machine; end_ns() is the time at which the process ended.
    bool ReadUntil(const std::string& text, const Deadline& idle) {
        const Deadline deadline = Limit(idle.left_ms());
        while (text_.find(text) == std::string::npos) {
            if (!ReadSome(deadline) && (ended_ || deadline.expired())) {
                return text_.find(text) != std::string::npos;
            }
        }
        return true;
    }
    // Reads all output and waits for the end. Returns the exit status, 128 + signal, or -1 at the
    // deadline.
    int Wait(const Deadline& idle) {
        const Deadline deadline = Limit(idle.left_ms());
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
                pollfd events[] = {{ended_ ? -1 : out_, POLLIN, 0}, {end_, POLLIN, 0}};
                ::poll(events, 2, static_cast<int>(deadline.left_ms()));
                if (events[0].revents != 0) ReadSome(Deadline::In(0));
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
            ended_ = ended_ || got == 0;
            return false;
        }
        text_.append(buffer, static_cast<size_t>(got));
        return true;
    }

    pid_t pid_ = -1;
    int out_ = -1, end_ = -1;
    bool reaped_ = false;
    bool ended_ = false;  // end of output
    int status_ = -1;
    int64_t end_ns_ = 0;
    std::string text_;
};

}  // namespace weft::test
