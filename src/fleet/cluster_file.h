// The files of a cluster on each of its hosts, under $XDG_CONFIG_HOME/weft/clusters (or ~/.config):
// NAME.key contains the cluster's key. NAME.toml is optional:
//
//     key = "home.key"              # beside this file, or a whole path
//
//     [[host]]
//     name = "b"                    # as 'weft hosts' has it
//     address = "10.0.0.2:7000"     # of its worker; default: found by the host's beacon
//     ssh = "me@b"                  # for 'weft hosts add' and 'weft submit --to ssh:NAME'
//
// Other keys and repeated names are errors, so a misspelled key is not ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file_lock.h"
#include "base/result.h"

namespace weft::fleet {

struct ClusterHost {
    std::string name, address, ssh;
    bool operator==(const ClusterHost&) const = default;
};

struct ClusterFile {
    std::string key;  // path; "": NAME.key of systemd's credentials, else NAME.key beside the file
    std::vector<ClusterHost> hosts;
    bool operator==(const ClusterFile&) const = default;
};

// Paths of a cluster's files. Errors: kUsage (the name has characters other than letters, digits
// and ._-), kNotFound (no home folder).
struct ClusterPaths {
    std::string folder, file, key;
};
Result<ClusterPaths> PathsOf(const std::string& cluster);

// path: the file's path, which errors name together with the line. Errors: kUsage; kUnsupported:
// this build has no TOML library.
Result<ClusterFile> ParseClusterFile(std::string_view text, const std::string& path);
std::string ClusterFileText(const ClusterFile& file);

// If there is no file, returns a cluster without hosts. The path of the key is absolute. Errors:
// those above, kIo.
Result<ClusterFile> ReadClusterFile(const std::string& cluster);
// Replaces the file atomically. If `file` has only more hosts behind the present ones, the present
// text stays, comments included; otherwise comments are lost. Errors: kIo.
Status WriteClusterFile(const std::string& cluster, const ClusterFile& file);

// The lock of the cluster's file: lock it before ReadClusterFile, release it after
// WriteClusterFile. Errors: as PathsOf and FileLock.
Result<FileLock> LockClusterFile(const std::string& cluster);

// Writes a key that only this user may read, unless the file exists; creates missing folders.
// Returns whether it was written; else another process was first. Errors: kIo.
Result<bool> MakeKey(const std::string& path, const std::string& key);

}  // namespace weft::fleet
