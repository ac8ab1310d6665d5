// Generates the list of checks in docs/doctor.md.
#include <fmt/format.h>

#include "doctor/check.h"

namespace weft::doctor {

std::string ChecksPage() {
    std::string page = "## The checks\n";
    for (const Check& check : AllChecks()) {
        page += fmt::format("\n### {}\n\n{}{}\n\n- reads: {}\n- why: {}\n", check.name, check.what,
                            check.across == nullptr ? "" : " Needs two hosts or more.", check.reads,
                            check.why);
    }
    return page;
}

}  // namespace weft::doctor
