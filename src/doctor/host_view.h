// HostView: the checks' only source of facts about a host. All facts are text, named by a path, so
// a live machine and a snapshot look the same:
//
//     Read("sys/class/net/eth0/mtu")     a file, without the leading slash; at most 1 MiB of it
//     Link("sys/class/net/eth0/device")  target of a symbolic link, as written
//                                                                 -> link/sys/class/...
//     List("sys/class/net")              names in a folder, sorted; empty if there is no folder
//     Command("lspci -vv")               output of a program      -> cmd/lspci_-vv
//     Probe("memlock")                   result of a trial in this process (probe.h)
//                                                                 -> probe/memlock
//     Later(path)                        Read or Command again, after the measurements
//                                                                 -> later/PATH
//
// A view answers within its deadlines and never changes the host. Thread: one at a time.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::doctor {

enum class ReadState {
    kFound,
    kAbsent,   // no such file, folder or program; or the snapshot lacks it
    kRefused,  // it exists, but this process may not read it, or it failed
};

struct Reading {
    ReadState state = ReadState::kAbsent;
    std::string text;  // kFound: the content; kRefused: the reason, in a few words
    bool cut = false;  // the end is missing
    bool found() const { return state == ReadState::kFound; }
    bool refused() const { return state == ReadState::kRefused; }
};

// Path of a command's output in a snapshot: blanks and slashes become underscores.
std::string CommandPath(std::string_view words);

inline constexpr const char* kEmptyLog = "empty; 'sudo weft doctor' may read more";
inline constexpr size_t kMostFileBytes = 1 << 20;
inline constexpr size_t kMostListed = 4096;

class HostView {
  public:
    virtual ~HostView() = default;

    virtual std::string host() const = 0;
    // Absent in the view means absent on the host: true of a live machine and of a snapshot that
    // Weft saved; false of a handmade snapshot, which may be incomplete.
    virtual bool Complete() const = 0;
    virtual Reading Read(const std::string& path) = 0;
    virtual Reading Link(const std::string& path) = 0;
    virtual std::vector<std::string> List(const std::string& path) = 0;
    virtual Reading Command(const std::string& words) = 0;
    virtual Reading Probe(const std::string& name) = 0;
    virtual Reading Later(const std::string& path) = 0;
    // Reason for each source that could not be read, by path. Includes an empty kernel log, because
    // a plain user may not see its lines.
    virtual std::map<std::string, std::string> Unread() const { return {}; }

    // The file's text without blanks at its ends; "": no such file.
    std::string Text(const std::string& path);
    // The parent folder lists this file, folder or device.
    bool Has(const std::string& path);
};

}  // namespace weft::doctor
