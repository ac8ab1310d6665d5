// HostView: what the checks may know of a host. Everything is text, named by a path, so that a
// live machine and a snapshot of one look the same:
//
//     Read("sys/class/net/eth0/mtu")     a file, without the leading slash; at most 1 MiB of it
//     Link("sys/class/net/eth0/device")  where a symbolic link points, as it is written there
//                                                                 -> link/sys/class/...
//     List("sys/class/net")              names in a folder, sorted; none where there is no folder
//     Command("lspci -vv")               what a program prints    -> cmd/lspci_-vv
//     Probe("memlock")                   what this process finds out by trying (probe.h)
//                                                                 -> probe/memlock
//     Later(path)                        Read or Command again, after the measurements
//                                                                 -> later/PATH
//
// A view answers at once or within its deadlines, never hangs, and never changes the host.
// Thread: one at a time.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace weft::doctor {

enum class ReadState {
    kFound,
    kAbsent,   // no such file, folder or program; or a snapshot that doesn't hold it
    kRefused,  // it is there, but this process may not read it, or it failed
};

struct Reading {
    ReadState state = ReadState::kAbsent;
    std::string text;  // kFound: the content; kRefused: why, in a few words
    bool cut = false;  // the end is missing
    bool found() const { return state == ReadState::kFound; }
    bool refused() const { return state == ReadState::kRefused; }
};

// The path that a command's output has in a snapshot: blanks and slashes become underscores.
std::string CommandPath(std::string_view words);

inline constexpr const char* kEmptyLog = "empty; 'sudo weft doctor' may read more";
inline constexpr size_t kMostFileBytes = 1 << 20;
inline constexpr size_t kMostListed = 4096;

class HostView {
  public:
    virtual ~HostView() = default;

    virtual std::string host() const = 0;
    // Whether what is not in it is not there: true of a live machine and of a snapshot that Weft
    // saved, false of one made by hand, which need not hold everything.
    virtual bool Complete() const = 0;
    virtual Reading Read(const std::string& path) = 0;
    virtual Reading Link(const std::string& path) = 0;
    virtual std::vector<std::string> List(const std::string& path) = 0;
    virtual Reading Command(const std::string& words) = 0;
    virtual Reading Probe(const std::string& name) = 0;
    virtual Reading Later(const std::string& path) = 0;
    // Why each source that was asked for could not be read, by its path. An empty log of the kernel
    // is one: a plain user may see nothing of it.
    virtual std::map<std::string, std::string> Unread() const { return {}; }

    // The file's text without blanks at its ends; "" where there is none.
    std::string Text(const std::string& path);
    // Whether its folder lists it: a file, a folder or a device.
    bool Has(const std::string& path);
};

}  // namespace weft::doctor
