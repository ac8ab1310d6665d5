// A Check: one thing that people got wrong, looked for on one host or across hosts. Each is a
// function under checks/, and a line in checks/checks.inc.
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
    const char* what;   // what it looks at, one sentence
    const char* reads;  // the files and commands
    const char* why;    // what the fault costs
    // One of the two (none: it needs ranks, doctor/fabric.h). A check that says nothing has nothing
    // to look at on this host.
    void (*run)(HostView& view, Findings& out) = nullptr;
    void (*across)(Hosts hosts, Findings& out) = nullptr;  // called with two hosts or more
};

// All checks, in the order in which they run: from the card outwards, the measurements last.
std::span<const Check> AllChecks();

// Runs the checks named in `only` (all, where it is empty) on every host and across them, and
// gives the findings host by host. A check that was asked for by name and had nothing to look at
// says so in a note. Errors: kUsage (no check of that name).
Result<std::vector<Finding>> RunChecks(Hosts hosts, std::span<const std::string> only);

// `weft doctor --list --markdown`: the page docs/doctor.md.
std::string ChecksPage();

}  // namespace weft::doctor
