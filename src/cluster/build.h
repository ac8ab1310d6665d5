// Which build of weft this program is, and whether two builds may work in one cluster.
//
// The protocol hash is made by the build from the sources that define what ranks exchange and the
// ops of a Program (cmake/protocol_files.txt). Builds of different versions or hashes refuse each
// other. Builds of different commits with the same hash work together, with a warning.
#pragma once

#include <string>

namespace weft::cluster {

// "1f3da7147a20", "1f3da7147a20-dirty" where files had changed since, "unknown" where neither git
// nor an archive made by it tells. In the program from cmake/commit.cmake, which writes one small
// file, so that a new commit compiles no other; in programs of tests "unknown".
const char* Commit();
// The day of the commit, "2025-06-01"; "" where that is unknown.
const char* CommitDate();
// "9f86d081884c". Made by cmake/protocol_hash.cmake.
const char* ProtocolHash();

// Texts of other processes are at most so long (bytes).
inline constexpr size_t kMostCommit = 64, kMostProtocolHash = 16;

struct Build {
    std::string version = WEFT_VERSION;
    std::string commit = Commit();
    std::string protocol_hash = ProtocolHash();
    bool operator==(const Build&) const = default;
};

// "weft 0.9.0 (commit 1f3da7147a20, protocol hash 9f86d081884c)". A build that tells no commit or
// hash, which an older one does not, is "weft 0.9.0 (no protocol hash)".
std::string BuildText(const Build& build);
bool CanWorkTogether(const Build& a, const Build& b);
// False where either commit is unknown. Two dirty trees of one commit count as the same.
bool CommitsDiffer(const Build& a, const Build& b);

// What to do about either text below.
inline constexpr const char* kSameBuild =
    "Install the same build on every host ('weft hosts add USER@HOST' copies this program)";
// "b runs weft ..., this is weft ...: their versions differ": why they cannot work together.
std::string RefusalText(const std::string& name, const Build& theirs, const Build& ours);
// "b runs weft of commit ..., this is commit ...: ..."; "": their commits do not differ.
std::string CommitText(const std::string& name, const Build& theirs, const Build& ours);
// Either of them; "": neither is due.
std::string BuildRemark(const std::string& name, const Build& theirs, const Build& ours = {});

}  // namespace weft::cluster
