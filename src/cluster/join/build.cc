#include "cluster/join/build.h"

#include <fmt/format.h>

#include <charconv>
#include <compare>
#include <string_view>
#include <system_error>
#include <vector>

namespace weft::cluster {
namespace {

// "0.10.2" as {0, 10, 2}; a part that is not a number ends it. (The text may come from another
// host.)
std::vector<int> NumbersOf(std::string_view version) {
    std::vector<int> numbers;
    while (!version.empty()) {
        int number = 0;
        const char* end = version.data() + version.size();
        const auto [at, error] = std::from_chars(version.data(), end, number);
        if (error != std::errc()) break;
        numbers.push_back(number);
        if (at == end || *at != '.') break;
        version.remove_prefix(static_cast<size_t>(at - version.data()) + 1);
    }
    return numbers;
}

}  // namespace

// Weak, so that the compiler does not spread the text over its callers: tests of two builds replace
// it in the program.
[[gnu::weak]] const char* Version() {
    return WEFT_VERSION;
}

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
    return a.protocol_hash == b.protocol_hash;
}

bool BuildsDiffer(const Build& a, const Build& b) {
    const auto known = [](const Build& build) {
        return !build.commit.empty() && build.commit != "unknown";
    };
    return a.version != b.version || (known(a) && known(b) && a.commit != b.commit);
}

std::string RefusalText(const std::string& name, const Build& theirs, const Build& ours) {
    const auto order = NumbersOf(theirs.version) <=> NumbersOf(ours.version);
    const std::string older = order < 0   ? "; " + name + " has the older version"
                              : order > 0 ? "; this is the older version"
                                          : "";
    return fmt::format(
        "{} runs {}, this is {}: their messages or ops differ, so they cannot work together{}",
        name, BuildText(theirs), BuildText(ours), older);
}

std::string DifferenceText(const std::string& name, const Build& theirs, const Build& ours) {
    if (!BuildsDiffer(theirs, ours)) return "";
    return fmt::format(
        "{} runs weft {} of commit {}, this is weft {} of commit {}: they can work together, but "
        "results and speed may differ",
        name, theirs.version, theirs.commit, ours.version, ours.commit);
}

std::string BuildRemark(const std::string& name, const Build& theirs, const Build& ours) {
    return CanWorkTogether(theirs, ours) ? DifferenceText(name, theirs, ours)
                                         : RefusalText(name, theirs, ours);
}

}  // namespace weft::cluster
