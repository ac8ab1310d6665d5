// Errors that PCI Express corrected by sending again.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/kernel_log.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// The kernel writes down a part of them only.
constexpr size_t kManyLogged = 20;

double Count(HostView& view, const std::string& path, std::string_view total) {
    const Reading file = view.Read(path);
    return file.found() ? NumberAfter(file.text, total).value_or(0) : 0;
}

struct Logged {
    size_t corrected = 0, uncorrected = 0;
};

// Lines of the kernel's log about errors on the card's link. Linux 6.8 says "Correctable" where
// older ones say "Corrected", and "Uncorrectable (Fatal)" for "Uncorrected (Fatal)".
Logged LoggedErrors(const std::vector<LogLine>& log, const PciDevice& card) {
    Logged logged;
    for (const auto& [raw, line] : log) {
        if (!Contains(line, "PCIe Bus Error") || !Contains(line, card.address)) continue;
        if (Contains(line, "=Correct")) ++logged.corrected;
        if (Contains(line, "=Uncorrect")) ++logged.uncorrected;
    }
    return logged;
}

void RunPcieErrors(HostView& view, Findings& out) {
    size_t looked = 0;
    const std::vector<LogLine> log = KernelLogLines(CommandLike(view, "dmesg"));
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() && !card.IsGpu()) continue;
        const std::string path = "sys/bus/pci/devices/" + card.address;
        const auto [logged, logged_fatal] = LoggedErrors(log, card);
        const bool counted = view.Has(path + "/aer_dev_correctable");
        if (!counted && logged == 0 && logged_fatal == 0) continue;
        ++looked;
        const double corrected = Count(view, path + "/aer_dev_correctable", "TOTAL_ERR_COR ");
        const double fatal = Count(view, path + "/aer_dev_fatal", "TOTAL_ERR_FATAL ") +
                             Count(view, path + "/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL ");
        const char* fix =
            "reseat the card, change the riser or cable, update the BIOS; as a last resort one "
            "generation less for the slot in the BIOS";
        if (fatal > 0 || logged_fatal > 0) {
            out.Fail(
                fatal > 0
                    ? fmt::format("{}: {} errors that could not be corrected", card.Text(), fatal)
                    : fmt::format("{}: {} lines of errors that could not be corrected "
                                  "in the kernel's log",
                                  card.Text(), logged_fatal),
                "0", "transfers were lost: the driver resets the card, and the job with it", fix);
        } else if (corrected >= 100 || logged >= kManyLogged) {
            out.Warn(corrected >= 100
                         ? fmt::format("{}: {} corrected errors", card.Text(), corrected)
                         : fmt::format("{}: {} lines of corrected errors in the kernel's log",
                                       card.Text(), logged),
                     "fewer than 100",
                     "each is a packet sent again, 1 to 10 us late, and the log fills; a link on "
                     "its way out",
                     fix);
        }
    }
    if (looked > 0 && out.empty()) out.Ok(fmt::format("{} cards without errors", looked));
}

}  // namespace

const Check kPcieErrors = {
    .name = "pcie-errors",
    .what = "Errors on the PCI Express links of cards (AER).",
    .reads = "/sys/bus/pci/devices/*/aer_dev_{correctable,nonfatal,fatal}, dmesg",
    .why = "A bad riser or contact shows as retries long before it fails.",
    .run = RunPcieErrors,
};

}  // namespace weft::doctor::checks
