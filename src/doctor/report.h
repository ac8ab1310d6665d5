// Findings as text for a terminal: host by host, the worst first, what is well in one line.
#pragma once

#include <span>
#include <string>

#include "doctor/finding.h"

namespace weft::doctor {

struct ReportStyle {
    std::vector<std::string> hosts = {};  // all that were looked at, also those without a finding
    size_t checks = 0;                    // how many looked at each of them; 0: not told
    bool verbose = false;                 // every ok too
    bool colour = false;
    size_t columns = 100;
};

std::string Report(std::span<const Finding> findings, const ReportStyle& style);

}  // namespace weft::doctor
