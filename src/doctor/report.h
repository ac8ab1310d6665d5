// Prints findings for a terminal: host by host, the worst first, all ok ones in one line.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/host_view.h"

namespace weft::doctor {

struct ReportStyle {
    std::vector<std::string> hosts = {};  // all hosts, also those without findings
    size_t checks = 0;                    // number of checks per host; 0: unknown
    bool verbose = false;                 // print each ok finding
    std::map<std::string, std::vector<std::string>> lines =
        {};  // extra lines of a host, after its findings
    bool colour = false;
    size_t columns = 100;
};

// Lines that are not findings: "no GPU found"; with `verbose` also each unreadable source.
std::vector<std::string> HostLines(HostView& view, bool verbose);

std::string Report(std::span<const Finding> findings, const ReportStyle& style);

}  // namespace weft::doctor
