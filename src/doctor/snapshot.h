// A snapshot of a host holds the sources that checks read, as files named by their paths.
//
// Three formats are read: a folder; a tar file (plain or compressed); and a text file in the format
// of `tail -n +1 FILE...`, with "==> PATH <==" above each file:
//
//     ==> sys/class/net/eth0/mtu <==
//     1500
//
// A symbolic link in a snapshot represents its target text and is never followed. Weft saves it as
// "link/PATH.to" (older versions: "link/PATH"). "unread" lists the sources that could not be read,
// as lines "PATH: why". The host's name is in "probe/hostname"; without this file, it is the name
// of the snapshot. If the snapshot has "probe/complete" (Weft saves it), sources that it lacks were
// absent on the host.
//
// A snapshot is hostile input. Limits: 20,000 files, as many folders, and 64 MiB in all. An entry
// over 4 MiB counts as unreadable. Names with ".." or special characters are refused. Errors:
// kNotFound, kIo, kCorrupt, kUnsupported.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "doctor/host_view.h"

namespace weft::doctor {

Result<SnapshotFiles> ReadSnapshotFiles(const std::string& path);
Result<SnapshotFiles> ParseTar(std::span<const std::byte> bytes, const std::string& name);
Result<SnapshotFiles> ParseTextSnapshot(std::string_view text, const std::string& name);
// Whether the file is a snapshot that Weft saved.
bool IsSavedSnapshot(const std::string& path);
// Detects the format by the first bytes.
Result<SnapshotFiles> ParseSnapshot(std::string_view bytes, const std::string& name);
// Returns an uncompressed tar file in ustar format (pax for long names). Times and owners are 0.
Result<std::string> WriteTar(const SnapshotFiles& files);

std::unique_ptr<HostView> MakeSnapshotView(SnapshotFiles files, std::string name);
// ReadSnapshotFiles and MakeSnapshotView. The view's name is the last part of `path`.
Result<std::unique_ptr<HostView>> OpenSnapshot(const std::string& path);

inline constexpr const char* kLinkEnd = ".to";

}  // namespace weft::doctor
