// What is kept of a cluster on each of its hosts, under $XDG_CONFIG_HOME/weft/clusters (or
// ~/.config): NAME.key, its key, and NAME.toml, which may be left out:
//
//     key = "home.key"              # beside this file, or a whole path
//
//     [[host]]
//     name = "b"                    # as 'weft hosts' has it
//     address = "10.0.0.2:7000"     # of its worker; without: found by its beacon
//     ssh = "me@b"                  # for 'weft hosts add' and 'weft submit --to ssh:NAME'
//
// Other keys than these, and names that stand twice, are errors: what is misspelt is not ignored.
#pragma once

#include <string>
#include <string_view>
#include <vector>

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

// Where the files of a cluster are. Errors: kUsage (a name of other than letters, digits and ._-),
// kNotFound (no home folder).
struct ClusterPaths {
    std::string folder, file, key;
};
Result<ClusterPaths> PathsOf(const std::string& cluster);

// path: for errors, which name the line. Errors: kUsage; kUnsupported where this program was built
// without a library for TOML.
Result<ClusterFile> ParseClusterFile(std::string_view text, const std::string& path);
std::string ClusterFileText(const ClusterFile& file);

// Of a cluster that has no file: one without hosts. The path of its key is whole. Errors: those
// above, kIo.
Result<ClusterFile> ReadClusterFile(const std::string& cluster);
// Replaces the file in one step. Comments in it are lost. Errors: kIo.
Status WriteClusterFile(const std::string& cluster, const ClusterFile& file);

// Writes a key that nobody else may read; folders on the way are made. Errors: kIo.
Status WriteKey(const std::string& path, const std::string& key);

}  // namespace weft::fleet
