// Prints findings for a terminal, host by host: the worst first, and all findings that are ok in
// one line.
#pragma once

#include <map>
#include <span>
#include <string>
#include <vector>

#include "doctor/finding.h"
#include "doctor/host_view.h"

namespace weft::doctor {

struct ReportStyle {
    std::vector<std::string> hosts = {};  // all hosts, including hosts without findings
    size_t checks = 0;                    // number of checks per host; 0: unknown
    bool verbose = false;                 // print each finding, even if it is ok
    std::map<std::string, std::vector<std::string>> lines =
        {};  // extra lines of a host, after its findings
    bool colour = false;
    size_t columns = 100;
};

// Lines about a host besides its findings, such as "no GPU found"; with `verbose`, also each source
// that could not be read.
std::vector<std::string> HostLines(HostView& view, bool verbose);

std::string Report(std::span<const Finding> findings, const ReportStyle& style);

}  // namespace weft::doctor
