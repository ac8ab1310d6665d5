// The user space half of RDMA.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"
#include "doctor/unreadable.h"

namespace weft::doctor::checks {
namespace {

constexpr Version kOld = {{30, 0, 0}};

// "44.0-2", "2307mlnx47-1", "1:44.0-2".
std::optional<Version> PackageVersion(std::string_view text) {
    text = Trim(text);
    if (text.starts_with("rdma-core ")) text.remove_prefix(10);  // of pacman
    if (const size_t colon = text.find(':'); colon < 3) text = text.substr(colon + 1);
    return ParseVersion(text);
}

struct Package {
    std::string version;
    bool missing = false;  // the distribution's own tool says so
};

// As the distribution's own tool has it: another one that is installed, too, knows nothing.
Package ReadPackage(HostView& view) {
    const Distribution distribution = DistributionOf(view);
    const bool any = distribution == Distribution::kUnknown;
    const auto ask = [&](const char* words, bool own, Package& package) {
        if (!own || !package.version.empty()) return;
        const Reading reading = view.Command(words);
        // rpm says it on its standard output, in the user's language.
        const bool absent = reading.found() && !PackageVersion(reading.text) &&
                            Contains(reading.text, "libibverbs");
        // That the tool could not be asked is no answer.
        const bool denied = reading.refused() && WhatIsSaid(reading.text) != Said::kOutput;
        package.missing = package.missing || absent || (reading.refused() && !denied);
        if (reading.found() && !absent) package.version = Trim(reading.text);
    };
    Package package;
    using enum Distribution;
    ask("dpkg-query -W -f=${Version} ibverbs-providers", any || distribution == kDebian, package);
    ask("rpm -q --qf=%{VERSION} libibverbs",
        any || distribution == kFedora || distribution == kYum || distribution == kOstree ||
            distribution == kSuse,
        package);
    ask("pacman -Q rdma-core", distribution == kArch, package);
    return package;
}

void RunRdmaLibrary(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const auto [text, missing] = ReadPackage(view);
    if (text.empty()) {
        if (!missing) return;
        return out.Warn("no package ibverbs-providers (libibverbs)", "rdma-core 30 or newer",
                        "without the card's provider no program finds it: Weft uses TCP",
                        Install(view, kRdmaCore));
    }
    const auto version = PackageVersion(text);
    const std::string read = text.starts_with("rdma-core ") ? text : "rdma-core " + text;
    if (!version) return;
    if (*version >= kOld) return out.Ok(read, "30 or newer");
    out.Note(read, "30 or newer",
             "older providers don't know newer cards, and lack relaxed ordering (up to half of the "
             "bandwidth on AMD hosts)",
             "update the distribution's rdma-core");
}

}  // namespace

const Check kRdmaLibrary = {
    .name = "rdma-library",
    .what = "rdma-core, the libraries through which programs use RDMA.",
    .reads = "dpkg-query, rpm or pacman, whichever is the distribution's",
    .why = "The kernel's half alone is not enough.",
    .run = RunRdmaLibrary,
};

}  // namespace weft::doctor::checks
