// Errors that PCI Express corrected by sending again.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

double Count(HostView& view, const std::string& path, std::string_view total) {
    const Reading file = view.Read(path);
    return file.found() ? NumberAfter(file.text, total).value_or(0) : 0;
}

void Run(HostView& view, Findings& out) {
    size_t looked = 0;
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() && !card.IsGpu()) continue;
        const std::string path = "sys/bus/pci/devices/" + card.address;
        if (!view.Has(path + "/aer_dev_correctable")) continue;
        ++looked;
        const double corrected = Count(view, path + "/aer_dev_correctable", "TOTAL_ERR_COR ");
        const double fatal = Count(view, path + "/aer_dev_fatal", "TOTAL_ERR_FATAL ") +
                             Count(view, path + "/aer_dev_nonfatal", "TOTAL_ERR_NONFATAL ");
        const char* fix =
            "reseat the card, change the riser or cable, update the BIOS; as a last resort one "
            "generation less for the slot in the BIOS";
        if (fatal > 0) {
            out.Fail(fmt::format("{}: {} errors that could not be corrected", card.Text(), fatal),
                     "0", "transfers were lost: the driver resets the card, and the job with it",
                     fix);
        } else if (corrected >= 100) {
            out.Warn(fmt::format("{}: {} corrected errors", card.Text(), corrected),
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
    .reads = "/sys/bus/pci/devices/*/aer_dev_{correctable,nonfatal,fatal}",
    .why = "A bad riser or contact shows as retries long before it fails.",
    .run = Run,
};

}  // namespace weft::doctor::checks
