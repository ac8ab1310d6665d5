// Findings as text for a terminal: host by host, the worst first, what is well in one line.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/host_view.h"

namespace weft::doctor {

struct ReportStyle {
    std::vector<std::string> hosts = {};  // all that were looked at, also those without a finding
    size_t checks = 0;                    // how many looked at each of them; 0: not told
    bool verbose = false;                 // every ok too
    std::map<std::string, std::vector<std::string>> lines =
        {};  // more of a host, after its findings
    bool colour = false;
    size_t columns = 100;
};

// What is not a finding: "no GPU found", and with `verbose` each source that could not be read.
std::vector<std::string> HostLines(HostView& view, bool verbose);

std::string Report(std::span<const Finding> findings, const ReportStyle& style);

}  // namespace weft::doctor
