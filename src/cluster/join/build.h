// Describes the build of this program, and decides whether two builds may work in one cluster.
//
// CMake computes the protocol hash from the source files that define the messages between ranks and
// the ops of a Program (cmake/protocol_files.txt). Builds of different hashes refuse each other.
// Builds of different versions or commits with the same hash work together, with a warning, so that
// the hosts of a cluster may be upgraded one after another.
#pragma once

#include <string>

namespace weft::cluster {

// "0.1.0".
const char* Version();
// "1f3da7147a20"; "1f3da7147a20-dirty" if files differed from the commit; "unknown" if the sources
// come neither from git nor from an archive that git made, and in test programs. cmake/commit.cmake
// writes the commit into one small source file, so a new commit recompiles only that file.
const char* Commit();
// The day of the commit, "2025-06-01"; "" if unknown.
const char* CommitDate();
// "9f86d081884c". Computed by cmake/protocol_hash.cmake.
const char* ProtocolHash();

// Size limits for commits and protocol hashes from other processes.
inline constexpr size_t kMostCommit = 64, kMostProtocolHash = 16;

struct Build {
    std::string version = Version();
    std::string commit = Commit();
    std::string protocol_hash = ProtocolHash();
    bool operator==(const Build&) const = default;
};

// "weft 0.9.0 (commit 1f3da7147a20, protocol hash 9f86d081884c)". A build without a commit or hash,
// such as an older one, is "weft 0.9.0 (no protocol hash)".
std::string BuildText(const Build& build);
bool CanWorkTogether(const Build& a, const Build& b);
// Whether the versions differ, or both commits are known and differ. Two "-dirty" builds of one
// commit count as equal.
bool BuildsDiffer(const Build& a, const Build& b);

// The advice that ends RefusalText and DifferenceText.
inline constexpr const char* kSameBuild =
    "Install the same build on every host ('weft hosts add USER@HOST' copies this program)";
// Why two builds cannot work together, and which one is older: "b runs weft ..., this is weft ...:
// their messages or ops differ, so they cannot work together; b has the older version".
std::string RefusalText(const std::string& name, const Build& theirs, const Build& ours);
// "b runs weft 0.1.0 of commit ..., this is weft 0.2.0 of commit ...: ..."; "": the builds do not
// differ.
std::string DifferenceText(const std::string& name, const Build& theirs, const Build& ours);
// RefusalText or DifferenceText; "": neither applies.
std::string BuildRemark(const std::string& name, const Build& theirs, const Build& ours = {});

}  // namespace weft::cluster
