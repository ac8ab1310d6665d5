// A Check looks for one common fault on one host or across hosts. Each is a function under checks/
// and a row of checks/checks.inc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/finding.h"
#include "doctor/host_view.h"

namespace weft::doctor {

using Hosts = std::span<const std::unique_ptr<HostView>>;

struct Check {
    const char* name;   // "pcie-link"
    const char* what;   // what it examines, one sentence
    const char* reads;  // its source files and commands
    const char* why;    // cost of the fault
    // One of the two is set (neither: the check needs ranks, doctor/fabric.h). A check without
    // findings found nothing to examine on this host.
    void (*run)(HostView& view, Findings& out) = nullptr;
    void (*across)(Hosts hosts, Findings& out) = nullptr;  // called with at least two hosts
};

// All checks, in the order in which they run: cards first, measurements last.
std::span<const Check> AllChecks();

// Runs the checks named in `only` (empty: all) on every host and across hosts; returns the findings
// host by host. A check that was named in `only` and found nothing to examine adds a note.
// peers: so many of the last hosts take part in across-ports only. Errors: kUsage (no such check).
Result<std::vector<Finding>> RunChecks(Hosts hosts, std::span<const std::string> only,
                                       size_t peers = 0);

// The last section of docs/doctor.md, printed by `weft doctor --list --markdown`.
std::string ChecksPage();

}  // namespace weft::doctor
