// Transparent huge pages: what the TLB reaches while weights stream through it.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

void RunHugePages(HostView& view, Findings& out) {
    const std::string enabled = view.Text("sys/kernel/mm/transparent_hugepage/enabled");
    if (enabled.empty()) return;
    const std::string read = fmt::format("transparent_hugepage/enabled: {}", enabled);
    if (!Contains(enabled, "[never]")) return out.Ok(read, "madvise or always");
    out.Warn(read, "madvise or always",
             "with pages of 4 KiB a TLB of 2,048 entries reaches 8 MiB in place of 4 GiB: "
             "reading weights is 5 to 20 % slower",
             "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled; to keep it: " +
                 AddParameter(view, "transparent_hugepage=madvise"));
}

}  // namespace

const Check kHugePages = {
    .name = "huge-pages",
    .what = "Transparent huge pages.",
    .reads = "/sys/kernel/mm/transparent_hugepage/enabled",
    .why =
        "Decoding reads all weights for each token; with small pages much of that is page "
        "walks.",
    .run = RunHugePages,
};

}  // namespace weft::doctor::checks
