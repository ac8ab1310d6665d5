// A Check looks for one common fault, on one host or across hosts. Each check is a function in
// checks/ and a row of checks/checks.inc.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "doctor/finding.h"
#include "doctor/host_view.h"

namespace weft::doctor {

struct Check {
    const char* name;   // "pcie-link"
    const char* what;   // what it examines, one sentence
    const char* reads;  // its source files and commands
    const char* why;    // effect of the fault
    // The check's function: `run` or `across` is set. If both are null, the check needs running
    // ranks (doctor/fabric.h). A function that adds no finding found nothing to examine.
    void (*run)(HostView& view, Findings& out) = nullptr;
    void (*across)(Hosts hosts, Findings& out) = nullptr;  // called with at least two hosts
    bool with_peers = false;  // `across` also gets the peers of RunChecks
};

// All checks, in the order in which they run: cards first, measurements last.
std::span<const Check> AllChecks();

// Errors: kUsage: one of the names is not the name of a check. flag: named in the message.
Status CheckNames(std::string_view flag, std::span<const std::string> names);

// Runs the checks named in `only` (empty: all) on every host and across hosts. Returns the findings
// host by host. If a check named in `only` finds nothing to examine, it adds a note. peers: the
// last `peers` hosts take part only in checks with_peers. Errors: kUsage (no such check).
Result<std::vector<Finding>> RunChecks(Hosts hosts, std::span<const std::string> only,
                                       size_t peers = 0);

// The last section of docs/doctor.md, printed by `weft doctor --list --markdown`.
std::string ChecksPage();

}  // namespace weft::doctor
