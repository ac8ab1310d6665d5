// Checks the PCI Express links of network cards and GPUs: speed, bridges above, power saving.
#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"

namespace weft::doctor::checks {
namespace {

// ---- pcie-link: the link against the maximum of the card and of its slot.

constexpr int kMinFabricLanes = 4;

std::string LinkFix(const PciDevice& card, const PciDevice* slot) {
    const bool slot_known = slot != nullptr && slot->most.known();
    const double common = slot_known ? std::min(slot->most.gigatransfers, card.most.gigatransfers)
                                     : card.most.gigatransfers;
    const bool all_lanes = slot_known && slot->most.width <= card.now.width;
    const std::string lspci =
        "check with: sudo lspci -vv -s " + ShellWord(card.address) + " | grep Lnk";
    if (card.now.width >= card.most.width || (all_lanes && card.now.gigatransfers < common)) {
        return "set the slot's speed in the BIOS to the card's generation instead of Auto, reseat "
               "the card and its riser or cable, update the card's firmware; " +
               lspci;
    }
    if (!all_lanes) {
        return "reseat the card (dirty or bent contacts, a riser), or set the slot to x16 in the "
               "BIOS (bifurcation, shared lanes); " +
               lspci;
    }
    return fmt::format(
        "the slot under {} has only {} lanes: move the card to a wider slot, or set "
        "the slot's bifurcation in the BIOS; without a wider slot: --ignore "
        "pcie-link",
        slot->address, slot->most.width);
}

void ReportNarrowLink(HostView& view, const PciDevice& card, const PciDevice* slot, bool by_design,
                      Findings& out) {
    const double now = card.now.GigabytesPerSecond(), most = card.most.GigabytesPerSecond();
    const double port = card.port_gigabits / 8;
    // The board's design is not a fault, but one lane is too slow for a fabric's card.
    const bool fails = !by_design && card.IsNetwork() &&
                       (port > 0 ? DataBytes(card.now) / 1e9 < port : now <= most / 2 * 1.01);
    // A narrow link that still carries its port costs nothing.
    const bool carries = card.IsNetwork() && port > 0 && DataBytes(card.now) / 1e9 >= port;
    ReportAs<found::kLinkNarrow>(
        carries ? Severity::kNote
        : fails ? Severity::kFail
                : Severity::kWarn,
        view, out, card.Text(), card.now.Text(), card.most.Text(), RateText(now), RateText(most),
        port > 0 ? fmt::format("; its port carries {}", RateText(port)) : "", LinkFix(card, slot));
}

// Below any slot for such a card: too few lanes, or the speed of an untrained link (boards for
// cards of 8 GT/s and more have slots as fast).
bool IsFarBelowAnySlot(const PciDevice& card) {
    return card.now.width < std::min(kMinFabricLanes, card.most.width) ||
           (card.now.gigatransfers <= 5 && card.most.gigatransfers >= 8);
}

void CheckLink(HostView& view, const PciDevice& card, const std::vector<PciDevice>& devices,
               LinkJudgement judgement, Findings& out) {
    if (judgement == LinkJudgement::kUnknown) return;
    const std::string name = card.Text(), now = card.now.Text(), most = card.most.Text();
    if (judgement == LinkJudgement::kFull) {
        return Report<found::kLinkFull>(view, out, name, now, most, "");
    }
    // An idle GPU lowers its speed, never its width.
    if (card.IsGpu() && card.now.width >= card.most.width) {
        return Report<found::kLinkFull>(view, out, name, now, most, " (idle)");
    }
    const PciDevice* slot = SlotOf(card, devices);
    const std::string rate = RateText(DataBytes(card.now) / 1e9),
                      most_rate = RateText(DataBytes(card.most) / 1e9);
    switch (judgement) {
        case LinkJudgement::kUnknown:
        case LinkJudgement::kFull: return;
        case LinkJudgement::kByDesign:
            if ((card.fabric || card.IsComputeGpu()) &&
                card.now.width < std::min(kMinFabricLanes, card.most.width)) {
                return ReportNarrowLink(view, card, slot, true, out);
            }
            return Report<found::kLinkByDesign>(view, out, name, now, most, rate, most_rate,
                                                slot->address, slot->most.Text());
        case LinkJudgement::kBelow:
            if (card.IsGpu() && slot != nullptr && card.now.width == slot->most.width) {
                return Report<found::kLinkGpuIdle>(view, out, name, now, most, rate, most_rate,
                                                   slot->address, slot->most.Text());
            }
            return ReportNarrowLink(view, card, slot, false, out);
        case LinkJudgement::kSlotUnknown:
            if (card.fabric && IsFarBelowAnySlot(card)) {
                return ReportNarrowLink(view, card, nullptr, false, out);
            }
            return Report<found::kLinkSlotUnread>(view, out, name, now, most, rate, most_rate);
        case LinkJudgement::kBridgeHidden:
            return Report<found::kLinkBridgeHidden>(view, out, name, now, most);
    }
}

// Reports a GPU of which the processor maps only 256 MB at a time, although it could map all.
void CheckBar(HostView& view, const PciDevice& card, Findings& out) {
    if (!card.IsComputeGpu() || card.bar_bytes <= 0 || card.bar_bytes > 256e6) return;
    if (card.most_bar_bytes < 1e9) return;
    Report<found::kBarSmall>(view, out, card.Text(), card.bar_bytes / 1e6,
                             card.most_bar_bytes / 1e9);
}

// ---- pcie-upstream: bridges and switches above a card that are slower than the card's own link.

// Ports of Thunderbolt and USB4 tunnels report 2.5 GT/s x4, whatever the cable carries.
bool IsTunnel(const PciDevice& bridge) {
    return bridge.most.gigatransfers == 2.5 && bridge.most.width == 4;
}

void CheckUpstream(HostView& view, const PciDevice& card, const std::vector<PciDevice>& devices,
                   Findings& out) {
    const PciDevice* narrow = nullptr;
    double min_rate = card.now.GigabytesPerSecond() * 0.98;
    for (const std::string& address : card.bridges) {
        const PciDevice* bridge = FindPci(devices, address);
        if (bridge == nullptr || !bridge->now.known() || IsTunnel(*bridge)) continue;
        if (bridge->now.GigabytesPerSecond() >= min_rate) continue;
        min_rate = bridge->now.GigabytesPerSecond();
        narrow = bridge;
    }
    if (narrow == nullptr) {
        if (card.bridges.empty()) return;
        return ReportOk(out, "{}: {} bridges above, none narrower", card.Text(),
                        card.bridges.size());
    }
    const bool fails = card.IsNetwork() && card.port_gigabits / 8 > min_rate;
    const bool enough = card.port_gigabits > 0 && !fails;
    const std::string rate = RateText(min_rate),
                      card_rate = RateText(card.now.GigabytesPerSecond());
    if (enough) {
        return Report<found::kUpstreamEnough>(view, out, card.Text(), card.now.Text(),
                                              narrow->address, narrow->now.Text(), rate, card_rate);
    }
    ReportAs<found::kUpstreamNarrow>(fails ? Severity::kFail : Severity::kWarn, view, out,
                                     card.Text(), card.now.Text(), narrow->address,
                                     narrow->now.Text(), rate, card_rate);
    AskLinkCost(view, out, PortLink(view, card), [&](HostLink& actual, HostLink& expected) {
        actual.most_bytes_s = DataBytes(narrow->now);
        expected.most_bytes_s = DataBytes(card.now);
    });
}

}  // namespace

void RunPcieLink(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    bool denied = false;
    for (const PciDevice& card : devices) {
        denied = denied ||
                 (card.denied && !card.now.known() && (card.IsNetwork() || card.IsComputeGpu()));
        if (card.lost || card.is_virtual || (!card.IsNetwork() && !card.IsGpu())) continue;
        CheckBar(view, card, out);
        const size_t before = out.Count();
        const LinkJudgement judgement = JudgeLink(view, card, devices);
        CheckLink(view, card, devices, judgement, out);
        // The speed of an emulated link costs nothing.
        const bool slow =
            judgement != LinkJudgement::kFull && judgement != LinkJudgement::kBridgeHidden;
        if (out.Count() == before || !slow || !card.IsNetwork()) continue;
        AskLinkCost(view, out, PortLink(view, card), [&](HostLink& actual, HostLink& expected) {
            actual.most_bytes_s = DataBytes(card.now);
            expected.most_bytes_s = DataBytes(card.most);
        });
    }
    if (denied && out.empty()) Report<found::kLinkDenied>(view, out);
}

void RunPcieUpstream(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    for (const PciDevice& card : devices) {
        // All links above an idle GPU are slow.
        if (card.IsNetwork() && card.now.known() && !card.lost) {
            CheckUpstream(view, card, devices, out);
        }
    }
}

// ---- pcie-power: links that sleep between messages (ASPM).

void RunPciePower(HostView& view, Findings& out) {
    bool any = false;
    const std::vector<NetDevice> fabric = FabricDevices(view);
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() || !card.now.known()) continue;
        any = true;
        if (!Contains(card.power, "L1")) continue;
        // For other cards drivers enable it by default (r8169, igc).
        const bool unused = !fabric.empty() && std::ranges::find(fabric, card.address,
                                                                 &NetDevice::pci) == fabric.end();
        ReportAs<found::kAspmCard>(card.fabric && !unused ? Severity::kWarn : Severity::kNote, view,
                                   out, card.Text(), card.power);
    }
    const std::string policy = view.Text("sys/module/pcie_aspm/parameters/policy");
    if (Contains(policy, "[powersave]") || Contains(policy, "[powersupersave]")) {
        Report<found::kAspmPolicy>(view, out, policy);
    } else if (any && out.empty()) {
        ReportOk(out, "no network card's link sleeps{}",
                 policy.empty() ? "" : "; policy " + policy);
    }
}

}  // namespace weft::doctor::checks
