// Finds leftovers of a program's runs, independent of other activity on the machine.
//
// Orphaned processes are adopted by this process (Adopt), so every process that was started here,
// directly or indirectly, is a descendant. A socket is attributed to the process that holds it:
// listening TCP sockets, and unix sockets with Weft's names. Names in /dev/shm outlive processes.
// Runs create no names with `weft`, so any such name is a fault, whichever process made it, unless
// it existed before.
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

// Inodes of the sockets that a process holds; empty if it has ended.
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
    // Starts counting.
    Leftovers() : names_(SharedNames()) { ::prctl(PR_SET_CHILD_SUBREAPER, 1); }

    // One line per leftover; empty: none.
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
    // As List, after processes that are ending have had time to end; reaps zombies.
    std::string ListAfter(const Deadline& idle) const {
        std::string list;
        Until(
            [&] {
                for (pid_t pid : ChildrenOf(::getpid(), true)) {
                    if (IsGone(pid)) ::waitpid(pid, nullptr, WNOHANG);
                }
                return (list = List()).empty();
            },
            Limit(idle.left_ms()));
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
    // Whether a socket belongs to a descendant, and listens or has one of Weft's names.
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
