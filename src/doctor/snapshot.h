// Snapshots of a host: what its checks read, as files named by their paths.
//
// Three forms are read: a folder; a tar file (plain or compressed); and a text file in the form
// that `tail -n +1 FILE...` prints, "==> PATH <==" above each file:
//
//     ==> sys/class/net/eth0/mtu <==
//     1500
//
// A symbolic link stands for the words that it points to, and is never followed. In what Weft saves
// "link/PATH.to" holds them (an older one: "link/PATH"). What could not be read when the snapshot
// was made is in "unread", a line each: "PATH: why". The host's name is in
// "probe/hostname", else it is the snapshot's own. With "probe/complete" in it, what it does not
// hold was not there (Weft saves it so).
//
// A snapshot is hostile input: at most 20,000 entries and 64 MiB in all; an entry of more than
// 4 MiB is one that could not be read; names that climb out ("..") or are not plain are refused.
// Errors: kNotFound, kIo, kCorrupt, kUnsupported.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "doctor/host_view.h"

namespace weft::doctor {

// The files of a snapshot by their paths; the value of a folder is empty, its name ends with '/'.
using SnapshotFiles = std::map<std::string, std::string>;

Result<SnapshotFiles> ReadSnapshotFiles(const std::string& path);
Result<SnapshotFiles> ParseTar(std::span<const std::byte> bytes, const std::string& name);
Result<SnapshotFiles> ParseTextSnapshot(std::string_view text, const std::string& name);
// Either of them, by how it begins.
Result<SnapshotFiles> ParseSnapshot(std::string_view bytes, const std::string& name);
// As an uncompressed ustar (pax where names are long) with times and owners of 0.
Result<std::string> WriteTar(const SnapshotFiles& files);

std::unique_ptr<HostView> MakeSnapshotView(SnapshotFiles files, std::string name);
// Both at once; named after the last part of `path`.
Result<std::unique_ptr<HostView>> OpenSnapshot(const std::string& path);

inline constexpr const char* kLinkEnd = ".to";

// Passes every question on to `view` and remembers the answers. The snapshot of them holds only
// what save.h lets through.
class RecordingView : public HostView {
  public:
    explicit RecordingView(HostView& view) : view_(view) {}
    std::string host() const override { return view_.host(); }
    bool Complete() const override { return view_.Complete(); }
    Reading Read(const std::string& path) override;
    Reading Link(const std::string& path) override;
    std::vector<std::string> List(const std::string& path) override;
    Reading Command(const std::string& words) override;
    Reading Probe(const std::string& name) override;
    Reading Later(const std::string& path) override;

    // Once; names gives the pseudonyms. raw: as it was read, for nobody else's eyes.
    SnapshotFiles TakeRaw();
    SnapshotFiles Take();

  private:
    Reading Keep(const std::string& path, Reading reading);
    HostView& view_;
    SnapshotFiles files_;
    std::map<std::string, std::string> unread_;
};

}  // namespace weft::doctor
