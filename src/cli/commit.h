// From which commit this program was built. Its source is made by the build (cmake/commit.cmake),
// so that a new commit compiles this one file again and no other.
#pragma once

namespace weft::cli {

// "1f3da7147a20", "1f3da7147a20-dirty" where files had changed since, "unknown" where neither git
// nor an archive made by it says so.
const char* Commit();
// The day of the commit, "2025-06-01"; "" where that is unknown.
const char* CommitDate();

}  // namespace weft::cli
