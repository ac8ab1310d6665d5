// The user space half of RDMA.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cures.h"
#include "doctor/facts.h"

namespace weft::doctor::checks {
namespace {

constexpr Version kOld = {{30, 0, 0}};

// "44.0-2", "2307mlnx47-1", "1:44.0-2".
std::optional<Version> PackageVersion(std::string_view text) {
    text = Trim(text);
    if (const size_t colon = text.find(':'); colon < 3) text = text.substr(colon + 1);
    return ParseVersion(text);
}

void Run(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const Reading debian = view.Command("dpkg-query -W -f=${Version} ibverbs-providers");
    const Reading fedora = view.Command("rpm -q --qf=%{VERSION} libibverbs");
    // rpm says it on its standard output.
    const bool absent = fedora.found() && Contains(fedora.text, "is not installed");
    const bool known = debian.found() || (fedora.found() && !absent);
    const std::string text(Trim(debian.found() ? debian.text : fedora.text));
    if (!known) {
        if (debian.refused() || fedora.refused() || absent) {
            out.Warn("no package ibverbs-providers (libibverbs)", "rdma-core 30 or newer",
                     "without the card's provider no program finds it: Weft uses TCP, 10 to 50 us "
                     "a message instead of 2",
                     Install(view, kRdmaCore));
        }
        return;
    }
    const auto version = PackageVersion(text);
    const std::string read = "rdma-core " + text;
    if (!version || *version >= kOld) return out.Ok(read, "30 or newer");
    out.Note(read, "30 or newer",
             "older providers don't know newer cards, and lack relaxed ordering (up to half of the "
             "bandwidth on AMD hosts)",
             "update the distribution's rdma-core");
}

}  // namespace

const Check kRdmaLibrary = {
    .name = "rdma-library",
    .what = "rdma-core, the libraries through which programs use RDMA.",
    .reads = "dpkg-query, rpm",
    .why = "The kernel's half alone is not enough.",
    .run = Run,
};

}  // namespace weft::doctor::checks
