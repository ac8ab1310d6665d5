// The PCI Express link of each network card and GPU against what the card could do.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr double kEnough = 0.98;   // of the card's most
constexpr double kPayload = 0.85;  // of a link's bytes that are data, at 256 bytes a packet

std::string Fix(const PciDevice& card, const PciDevice* slot) {
    if (card.now.width < card.most.width) {
        if (slot != nullptr && slot->most.known() && slot->most.width <= card.now.width) {
            return fmt::format(
                "the slot under {} has only {} lanes: move the card to a wider one, "
                "or set the slot's bifurcation in the BIOS; without one, "
                "'--ignore pcie-link'",
                slot->address, slot->most.width);
        }
        return "reseat the card (dirty or bent contacts, a riser), or set the slot to x16 in the "
               "BIOS (bifurcation, shared lanes); check with: sudo lspci -vv -s " +
               card.address + " | grep Lnk";
    }
    return "set the slot's speed in the BIOS to the card's generation, update the card's firmware, "
           "and check with: sudo lspci -vv -s " +
           card.address + " | grep Lnk";
}

void Look(const PciDevice& card, const PciDevice* slot, Findings& out) {
    const double now = card.now.GigabytesPerSecond(), most = card.most.GigabytesPerSecond();
    const std::string read = fmt::format("{}: link {}", card.Text(), card.now.Text());
    const std::string expected = fmt::format("{}, as the card can", card.most.Text());
    if (now >= most * kEnough) return out.Ok(read, expected);
    // A GPU that rests lowers its speed, never its width.
    if (card.IsGpu() && card.now.width >= card.most.width) {
        return out.Ok(read + " (resting)", expected);
    }
    std::string why = fmt::format("{} instead of {}: {} instead of {}", card.now.Text(),
                                  card.most.Text(), RateText(now), RateText(most));
    const double port = card.port_gigabits / 8;
    if (port > 0) why += fmt::format("; its port carries {}", RateText(port));
    const bool fails =
        card.IsNetwork() && (port > 0 ? now * kPayload < port : now <= most / 2 * 1.01);
    if (fails) return out.Fail(read, expected, why, Fix(card, slot));
    out.Warn(read, expected, why, Fix(card, slot));
}

void Run(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    for (const PciDevice& card : devices) {
        if (!card.IsNetwork() && !card.IsGpu()) continue;
        if (!card.most.known() || !card.now.known()) continue;
        const PciDevice* slot =
            card.bridges.empty() ? nullptr : FindPci(devices, card.bridges.front());
        Look(card, slot, out);
    }
}

}  // namespace

const Check kPcieLink = {
    .name = "pcie-link",
    .what = "PCI Express speed and width of network cards and GPUs against the card's maximum.",
    .reads =
        "/sys/bus/pci/devices/*/{current,max}_link_{speed,width}, or lspci -vv (LnkCap, "
        "LnkSta)",
    .why =
        "A card for 16 lanes in a slot with 4 has a quarter of its bandwidth: 3.9 GB/s in "
        "place of 15.8 at 8 GT/s.",
    .run = Run,
};

}  // namespace weft::doctor::checks
