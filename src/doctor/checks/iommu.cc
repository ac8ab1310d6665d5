// Address translation and access control between cards and memory.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/gpu.h"
#include "doctor/pci.h"
#include "doctor/remediation.h"

namespace weft::doctor::checks {
namespace {

// The type of the first IOMMU group that has one: "DMA-FQ", "identity"; "" where none was read.
std::string GroupType(HostView& view) {
    constexpr const char* kGroups = "sys/kernel/iommu_groups";
    for (const std::string& group : Numbered(view, kGroups, "")) {
        std::string type = view.Text(fmt::format("{}/{}/type", kGroups, group));
        if (!type.empty()) return type;
    }
    return "";
}

// "ACSCtl: SrcValid+ TransBlk- ReqRedir+ CmpltRedir+ ..." on a bridge.
bool RedirectsPeers(std::string_view lspci) {
    for (std::string_view line : Lines(lspci)) {
        if (Contains(line, "ACSCtl:") && Contains(line, "ReqRedir+")) return true;
    }
    return false;
}

void RunIommu(HostView& view, Findings& out) {
    const bool rdma = HasRdma(view);
    const bool gpu = !AmdGpus(view).empty();
    if (!rdma && !gpu) return;
    const Reading parameters = view.Read("proc/cmdline");
    const std::string type = GroupType(view);
    const std::string& line = parameters.text;
    const bool passes = Contains(line, "iommu=pt") || Contains(line, "iommu.passthrough=1");
    const bool off = Contains(line, "amd_iommu=off") || Contains(line, "intel_iommu=off") ||
                     Contains(line, "iommu=off");
    const std::string state = off ? "off" : passes ? "passing through" : "not asked for";
    if (type.starts_with("DMA") && !passes && !off) {
        out.Note("IOMMU translating every access of cards", "iommu=pt (or off)",
                 rdma
                     ? "each 4 KiB of a transfer needs a translation: 5 to 30 % of bandwidth, and "
                       "up to 1 us a message"
                     : "each access of the GPU to memory is translated: 2 to 6 % of token speed on "
                       "APUs",
                 AddParameter(view, "iommu=pt"));
    }
    const Reading lspci = CommandLike(view, "lspci -vv");
    if (rdma && gpu && lspci.found() && RedirectsPeers(lspci.text)) {
        out.Note("ACS redirects requests between cards (ReqRedir+ on a bridge)",
                 "ReqRedir- on the bridges between the card and the GPU",
                 "card and GPU talk by way of the root complex: GPU memory is reached at half the "
                 "speed or not at all",
                 "switch ACS off in the BIOS; or with setpci on those bridges, ECAP_ACS+6.w=0000");
    }
    if (!out.empty() || (!parameters.found() && type.empty())) return;
    out.Ok("IOMMU " + (type.empty() || off || passes ? state : "of type " + type));
}

}  // namespace

const Check kIommu = {
    .name = "iommu",
    .what = "IOMMU mode and ACS, where there is RDMA or a GPU.",
    .reads = "/proc/cmdline, /sys/kernel/iommu_groups/*/type, lspci -vv (ACSCtl)",
    .why = "Translation of each access costs bandwidth and latency that nobody asked for.",
    .run = RunIommu,
};

}  // namespace weft::doctor::checks
