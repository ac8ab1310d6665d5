// Bridges and switches between a card and the processor that carry less than the card's own link.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Ports of Thunderbolt and USB4 tunnels call themselves 2.5 GT/s x4 whatever the cable carries.
bool IsTunnel(const PciDevice& bridge) {
    return bridge.most.gigatransfers == 2.5 && bridge.most.width == 4;
}

void AskUpstream(HostView& view, const PciDevice& card, const PciLink& narrow, Findings& out) {
    const std::optional<HostLink> link = PortLink(view, card);
    if (!link) return;
    HostLink so = *link, otherwise = *link;
    so.most_bytes_s = DataBytes(narrow);
    otherwise.most_bytes_s = DataBytes(card.now);
    out.AskCost(LinkQuestion(view, so, otherwise));
}

void LookPcieUpstream(HostView& view, const PciDevice& card, const std::vector<PciDevice>& devices,
                      Findings& out) {
    const PciDevice* narrow = nullptr;
    double least = card.now.GigabytesPerSecond() * 0.98;
    for (const std::string& address : card.bridges) {
        const PciDevice* bridge = FindPci(devices, address);
        if (bridge == nullptr || !bridge->now.known() || IsTunnel(*bridge)) continue;
        if (bridge->now.GigabytesPerSecond() >= least) continue;
        least = bridge->now.GigabytesPerSecond();
        narrow = bridge;
    }
    if (narrow == nullptr) {
        if (card.bridges.empty()) return;
        return out.Ok(
            fmt::format("{}: {} bridges above, none narrower", card.Text(), card.bridges.size()));
    }
    const std::string read = fmt::format("{}: link {}, but {} above it has {}", card.Text(),
                                         card.now.Text(), narrow->address, narrow->now.Text());
    const std::string why = fmt::format(
        "everything to the card goes through {}: {} instead of {}, shared with what "
        "else hangs there",
        narrow->address, RateText(least), RateText(card.now.GigabytesPerSecond()));
    const std::string fix =
        "move the card to a slot that is wired to the processor (lspci -tv shows the tree; slots "
        "of the chipset share one x4 link)";
    if (card.IsNetwork() && card.port_gigabits / 8 > least) {
        out.Fail(read, "no narrower link up to the processor", why, fix);
    } else {
        out.Warn(read, "no narrower link up to the processor", why, fix);
    }
    AskUpstream(view, card, narrow->now, out);
}

void RunPcieUpstream(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    for (const PciDevice& card : devices) {
        // A GPU that rests has slow links all the way up.
        if (!card.IsNetwork() || !card.now.known() || card.lost) continue;
        LookPcieUpstream(view, card, devices, out);
    }
}

}  // namespace

const Check kPcieUpstream = {
    .name = "pcie-upstream",
    .what = "A bridge or switch above a network card that is the real limit of its link.",
    .reads = "the tree of /sys/bus/pci/devices, or lspci -vv (bridges' buses, LnkSta)",
    .why =
        "A card at x8 behind a chipset's x4 has the bandwidth of the x4, and shares it with the "
        "drives.",
    .run = RunPcieUpstream,
};

}  // namespace weft::doctor::checks
