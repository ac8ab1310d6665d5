// HostView: the checks' only source of facts about a host. Every fact is text, named by a path, so
// a live machine and a snapshot look the same:
//
//     Read("sys/class/net/eth0/mtu")     a file, without the leading slash; at most 1 MiB of it
//     Link("sys/class/net/eth0/device")  target of a symbolic link, as written
//                                                                 -> link/sys/class/...
//     List("sys/class/net")              names in a folder, sorted; empty if there is no folder
//     Command("lspci -vv")               output of a program      -> cmd/lspci_-vv
//     Probe("memlock")                   fact that this process finds by a trial (probe.h)
//                                                                 -> probe/memlock
//     Later(path)                        the same source again, after the measurements
//                                                                 -> later/PATH
//
// A view keeps every answer, so all checks see the host at the same moment, and a snapshot can be
// saved. Every answer has a deadline. A view never changes the host. Thread: one at a time.
#pragma once

#include <any>
#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::doctor {

enum class ReadState {
    kFound,
    kAbsent,   // no such file, folder or program, or not in the snapshot
    kRefused,  // it exists, but this process may not read it, or it failed
};

struct Reading {
    ReadState state = ReadState::kAbsent;
    std::string text;  // kFound: the content; kRefused: the reason, in a few words
    bool cut = false;  // the end of the text is missing
    bool found() const { return state == ReadState::kFound; }
    bool refused() const { return state == ReadState::kRefused; }
};

// Content of files by path. The path of a folder ends with '/', and its content is empty.
using SnapshotFiles = std::map<std::string, std::string>;

// Drops the entry of a folder that was also read, or has content.
void DropCoveredFolders(SnapshotFiles& files);

// Path of a command's output in a snapshot: blanks and slashes become underscores.
std::string CommandPath(std::string_view words);

inline constexpr size_t kMostFileBytes = 1 << 20;
inline constexpr size_t kMostListed = 4096;

class HostView {
  public:
    explicit HostView(std::string host) : host_(std::move(host)) {}
    virtual ~HostView() = default;

    const std::string& host() const { return host_; }
    void Rename(std::string host) { host_ = std::move(host); }
    // Whether a source that is absent in the view is absent on the host. True for a live machine
    // and for a snapshot that Weft saved, false for a handmade snapshot, which may be incomplete.
    virtual bool Complete() const = 0;

    Reading Read(const std::string& path);
    Reading Link(const std::string& path) { return Read("link/" + path); }
    Reading Command(const std::string& words);
    Reading Probe(const std::string& name) { return Read("probe/" + name); }
    Reading Later(const std::string& path) { return Read("later/" + path); }
    std::vector<std::string> List(const std::string& path);
    // The file's text without blanks at its ends; "": no such file.
    std::string Text(const std::string& path);
    // The whole text as a number; nullopt: no such file, or another text.
    std::optional<double> Number(const std::string& path);
    // Whether the parent folder lists this file, folder or device.
    bool Has(const std::string& path);

    // Facts that `read` derives from the answers. The result is cached for all checks.
    template <typename Facts>
    const Facts& Derived(Facts (*read)(HostView&)) {
        std::any& kept = derived_[reinterpret_cast<void*>(read)];
        if (!kept.has_value()) kept = read(*this);
        return *std::any_cast<Facts>(&kept);
    }
    // Sets the answer to Read(path).
    void Keep(const std::string& path, Reading reading) {
        answers_[path] = std::move(reading);
        derived_.clear();
    }
    // All answers so far, by path.
    const std::map<std::string, Reading>& answers() const { return answers_; }
    // Reason for each source that could not be read, by path. An empty kernel log counts as unread,
    // because the kernel may hide its lines from a plain user.
    virtual std::map<std::string, std::string> Unread() const;
    // The answers as a snapshot. It has private names; save.h makes one that can be shared.
    SnapshotFiles Recorded() const;

  protected:
    // Read a source of the host. path: its path in a snapshot.
    virtual Reading Fetch(const std::string& path) = 0;
    virtual std::vector<std::string> FetchNames(const std::string& path) = 0;
    // The command whose output has this path in a snapshot; "": no such command was requested.
    std::string WordsOf(const std::string& path) const;

  private:
    std::string host_;
    std::map<std::string, Reading> answers_;
    std::map<std::string, std::vector<std::string>> folders_;
    std::map<std::string, std::string> commands_;  // by path
    std::map<void*, std::any> derived_;            // by the function
};

using Hosts = std::span<const std::unique_ptr<HostView>>;

// Renames hosts with equal names to "NAME (ORIGIN)", for example two that are called "localhost".
// origins: the file or address of each host. If the origin is missing or not distinct either, the
// names are "NAME (2)", "NAME (3)". taken: names that are in use elsewhere.
void MakeNamesDistinct(std::vector<std::unique_ptr<HostView>>& hosts,
                       const std::vector<std::string>& origins = {},
                       std::set<std::string> taken = {});

}  // namespace weft::doctor
