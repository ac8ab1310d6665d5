// What runs of a program have left behind: theirs alone, whatever else goes on on this machine.
//
// A process that outlives its parent comes to this one (Adopt), so all that was started here, and
// by what was started here, is below it. A socket is counted by the process that holds it:
// listening ones over TCP, and unix sockets with a name of Weft's. Of names in /dev/shm, which
// outlive every process, those that have `weft` in them: no run makes one, so one is a fault,
// whoever made it; names that were there before don't count.
#pragma once

#include <dirent.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "support/process.h"

namespace weft::test {

// Inodes of the sockets that a process holds; none of one that is gone.
inline std::set<std::string> SocketsOf(pid_t pid) {
    std::set<std::string> inodes;
    std::error_code ignored;
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        const std::string target = std::filesystem::read_symlink(entry.path(), ignored).string();
        if (target.starts_with("socket:[")) inodes.insert(target.substr(8, target.size() - 9));
    }
    return inodes;
}

class Leftovers {
  public:
    // Counts from now on.
    Leftovers() : names_(SharedNames()) { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

    // A line for each thing that is left; empty: nothing is.
    std::string List() const {
        std::ostringstream list;
        std::set<std::string> held;
        for (pid_t pid : DescendantsOf(::getpid())) {
            list << "process " << pid << "\n";
            held.merge(SocketsOf(pid));
        }
        for (const char* table : {"/proc/net/unix", "/proc/net/tcp", "/proc/net/tcp6"}) {
            std::ifstream file(table);
            for (std::string line; std::getline(file, line);) {
                if (IsOurs(line, held)) list << table << ": " << line << "\n";
            }
        }
        for (const std::string& name : SharedNames()) {
            if (!names_.contains(name)) list << "/dev/shm/" << name << "\n";
        }
        return list.str();
    }
    // The same once what is about to end has had its time; each zombie is reaped.
    std::string ListAfter(const Deadline& idle) const {
        const Deadline deadline = Limit(idle.left_ms());
        std::string list = List();
        while (!list.empty() && !deadline.expired()) {
            ::usleep(10'000);
            for (pid_t pid : ChildrenOf(::getpid(), true)) {
                if (IsGone(pid)) ::waitpid(pid, nullptr, WNOHANG);
            }
            list = List();
        }
        return list;
    }

  private:
    static std::set<std::string> SharedNames() {
        std::set<std::string> names;
        std::error_code ignored;
        for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", ignored)) {
            const std::string name = entry.path().filename().string();
            if (name.find("weft") != std::string::npos) names.insert(name);
        }
        return names;
    }
    // A socket of ours that listens or has a name of Weft's.
    static bool IsOurs(const std::string& line, const std::set<std::string>& held) {
        const bool named = line.find("weft") != std::string::npos;
        if (!named && line.find(" 0A ") == std::string::npos) return false;
        std::istringstream words(line);
        for (std::string word; words >> word;) {
            if (held.contains(word)) return true;
        }
        return false;
    }

    std::set<std::string> names_;
};

}  // namespace weft::test
