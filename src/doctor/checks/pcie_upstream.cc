// Detects bridges and switches above a card that are slower than the card's own link.
#include <fmt/format.h>

#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Ports of Thunderbolt and USB4 tunnels report 2.5 GT/s x4, whatever the cable carries.
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
    } else if (card.port_gigabits > 0 && card.port_gigabits <= 1) {
        return out.Note(read + "; enough for its port", "no narrower link up to the processor",
                        why);
    } else {
        out.Warn(read, "no narrower link up to the processor", why, fix);
    }
    AskUpstream(view, card, narrow->now, out);
}

}  // namespace

void RunPcieUpstream(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    for (const PciDevice& card : devices) {
        // All links above an idle GPU are slow.
        if (!card.IsNetwork() || !card.now.known() || card.lost) continue;
        LookPcieUpstream(view, card, devices, out);
    }
}

}  // namespace weft::doctor::checks
