#include "cluster/build.h"

#include <fmt/format.h>

namespace weft::cluster {

// The program has its own (cmake/commit.cmake). Weak, so that a new commit does not rebuild this
// library.
[[gnu::weak]] const char* Commit() {
    return "unknown";
}

[[gnu::weak]] const char* CommitDate() {
    return "";
}

std::string BuildText(const Build& build) {
    if (build.protocol_hash.empty()) {
        return fmt::format("weft {} (no protocol hash)", build.version);
    }
    return fmt::format("weft {} (commit {}, protocol hash {})", build.version, build.commit,
                       build.protocol_hash);
}

bool CanWorkTogether(const Build& a, const Build& b) {
    return a.version == b.version && a.protocol_hash == b.protocol_hash;
}

bool CommitsDiffer(const Build& a, const Build& b) {
    const auto known = [](const Build& build) {
        return !build.commit.empty() && build.commit != "unknown";
    };
    return known(a) && known(b) && a.commit != b.commit;
}

std::string RefusalText(const std::string& name, const Build& theirs, const Build& ours) {
    return fmt::format("{} runs {}, this is {}: their {} differ, so they cannot work together",
                       name, BuildText(theirs), BuildText(ours),
                       theirs.version == ours.version ? "messages or ops" : "versions");
}

std::string CommitText(const std::string& name, const Build& theirs, const Build& ours) {
    if (!CommitsDiffer(theirs, ours)) return "";
    return fmt::format(
        "{} runs weft of commit {}, this is commit {}: they can work together, but results and "
        "speed may differ",
        name, theirs.commit, ours.commit);
}

std::string BuildRemark(const std::string& name, const Build& theirs, const Build& ours) {
    return CanWorkTogether(theirs, ours) ? CommitText(name, theirs, ours)
                                         : RefusalText(name, theirs, ours);
}

}  // namespace weft::cluster
