// Checks the PCI Express links of network cards and GPUs: speed, bridges above, power saving,
// errors, and cards that left the bus.
#include "doctor/checks/checks.h"

namespace weft::doctor::checks {
namespace {

// ---- pcie-link: the link against the maximum of the card and of its slot.

constexpr int kMinFabricLanes = 4;
constexpr const char* kMoveCard =
    "move the card to a slot that is wired to the processor (lspci -tv shows the tree; slots of "
    "the "
    "chipset share one x4 link)";

std::string LinkFix(const PciDevice& card, const PciDevice* slot) {
    const bool slot_known = slot != nullptr && slot->most.known();
    const double common = slot_known ? std::min(slot->most.gigatransfers, card.most.gigatransfers)
                                     : card.most.gigatransfers;
    const bool all_lanes = slot_known && slot->most.width <= card.now.width;
    const char* fix =
        "reseat the card (dirty or bent contacts, a riser), or set the slot to x16 in the BIOS "
        "(bifurcation, shared lanes)";
    if (card.now.width >= card.most.width || (all_lanes && card.now.gigatransfers < common)) {
        fix =
            "set the slot's speed in the BIOS to the card's generation instead of Auto, reseat the "
            "card and its riser or cable, update the card's firmware";
    } else if (all_lanes) {
        return fmt::format(
            "the slot under {} has only {} lanes: move the card to a wider slot, or set the slot's "
            "bifurcation in the BIOS; without a wider slot: --ignore pcie-link",
            slot->address, slot->most.width);
    }
    return fmt::format("{}; check with: sudo lspci -vv -s {} | grep Lnk", fix,
                       ShellWord(card.address));
}

void ReportNarrowLink(const PciDevice& card, const PciDevice* slot, bool by_design, Findings& out) {
    const double now = card.now.GigabytesPerSecond(), most = card.most.GigabytesPerSecond();
    const double port = card.port_gigabits / 8;
    const bool carries = port > 0 && DataBytes(card.now) / 1e9 >= port;
    // The board's design is not a fault, but one lane is too slow for a fabric's card. A narrow
    // link that still carries its port costs nothing.
    const bool fails = !by_design && card.IsNetwork() && (port > 0 || now <= most / 2 * 1.01);
    ReportAs<found::kLinkNarrow>(
        carries ? kNote
        : fails ? kFail
                : kWarn,
        out, card.Text(), card.now.Text(), card.most.Text(), RateText(now), RateText(most),
        port > 0 ? fmt::format("; its port carries {}", RateText(port)) : "", LinkFix(card, slot));
}

void CheckLink(const PciDevice& card, LinkJudgement judgement, Findings& out) {
    const std::string name = card.Text(), now = card.now.Text(), most = card.most.Text();
    const std::string rate = RateText(DataBytes(card.now) / 1e9),
                      most_rate = RateText(DataBytes(card.most) / 1e9);
    const PciDevice* slot = SlotOf(out.view(), card);
    const bool few_lanes = card.now.width < std::min(kMinFabricLanes, card.most.width);
    // An idle GPU lowers its speed, never its width.
    const bool idle = card.IsGpu() && card.now.width >= card.most.width;
    if (judgement != LinkJudgement::kUnknown && judgement != LinkJudgement::kFull && idle) {
        return Report<found::kLinkFull>(out, name, now, most, " (idle)");
    }
    switch (judgement) {
        case LinkJudgement::kUnknown: return;
        case LinkJudgement::kFull: return Report<found::kLinkFull>(out, name, now, most, "");
        case LinkJudgement::kByDesign:
            if ((card.fabric || card.IsComputeGpu()) && few_lanes) {
                return ReportNarrowLink(card, slot, true, out);
            }
            return Report<found::kLinkByDesign>(out, name, now, most, rate, most_rate,
                                                slot->address, slot->most.Text());
        case LinkJudgement::kBelow:
            if (card.IsGpu() && slot != nullptr && card.now.width == slot->most.width) {
                return Report<found::kLinkGpuIdle>(out, name, now, most, rate, most_rate,
                                                   slot->address, slot->most.Text());
            }
            return ReportNarrowLink(card, slot, false, out);
        case LinkJudgement::kSlotUnknown:
            // No slot for such a card is this slow: too few lanes, or the speed of an untrained
            // link (boards for cards of 8 GT/s and more have slots of that speed).
            if (card.fabric &&
                (few_lanes || (card.now.gigatransfers <= 5 && card.most.gigatransfers >= 8))) {
                return ReportNarrowLink(card, nullptr, false, out);
            }
            return Report<found::kLinkSlotUnread>(out, name, now, most, rate, most_rate);
        case LinkJudgement::kBridgeHidden:
            return Report<found::kLinkBridgeHidden>(out, name, now, most);
    }
}

// Reports a GPU of which the processor maps only 256 MB at a time, although it could map all.
void CheckBar(const PciDevice& card, Findings& out) {
    if (!card.IsComputeGpu() || card.bar_bytes <= 0 || card.bar_bytes > 256e6) return;
    if (card.most_bar_bytes < 1e9) return;
    Report<found::kBarSmall>(out, card.Text(), card.bar_bytes / 1e6, card.most_bar_bytes / 1e9);
}

// Asks for the cost of a link with the data rate of `now` instead of `most`.
void EstimatePcieCost(const PciDevice& card, const PciLink& now, const PciLink& most,
                      Findings& out) {
    EstimateLinkCost(out, PortLink(out.view(), card), [&](HostLink& actual, HostLink& expected) {
        actual.most_bytes_s = DataBytes(now);
        expected.most_bytes_s = DataBytes(most);
    });
}

// ---- pcie-upstream: bridges and switches above a card that are slower than the card's own link.

// Ports of Thunderbolt and USB4 tunnels report 2.5 GT/s x4, whatever the cable carries.
bool IsTunnel(const PciDevice& bridge) {
    return bridge.most.gigatransfers == 2.5 && bridge.most.width == 4;
}

void CheckUpstream(const PciDevice& card, Findings& out) {
    const PciDevice* narrow = nullptr;
    double min_rate = card.now.GigabytesPerSecond() * 0.98;
    for (const std::string& address : card.bridges) {
        const PciDevice* bridge = FindPci(out.view(), address);
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
    const bool fails = card.port_gigabits / 8 > min_rate;
    const bool enough = card.port_gigabits > 0 && !fails;
    ReportAs<found::kUpstreamNarrow>(
        fails    ? kFail
        : enough ? kNote
                 : kWarn,
        out, card.Text(), card.now.Text(), narrow->address, narrow->now.Text(), RateText(min_rate),
        RateText(card.now.GigabytesPerSecond()), enough ? "; enough for its port" : "",
        enough ? "" : kMoveCard);
    if (!enough) EstimatePcieCost(card, narrow->now, card.now, out);
}

// ---- pcie-errors: errors that a retransmission corrected, and errors that it could not.

constexpr size_t kManyLogged = 20;  // the kernel logs only a part of the errors

struct ErrorCount {
    size_t corrected = 0, uncorrected = 0;
    bool any() const { return corrected + uncorrected > 0; }
    ErrorCount Larger(const ErrorCount& other) const {
        return {std::max(corrected, other.corrected), std::max(uncorrected, other.uncorrected)};
    }
};

// The kernel logs one error in two lines: the root port's "AER: Corrected error message received
// from 0000:01:00.0" ("AER: Multiple Corrected error received: 0000:01:00.0"), then the card's
// "PCIe Bus Error: severity=Corrected". Each form is counted by itself, and the larger count is
// used.
struct LoggedErrors {
    ErrorCount by_card, by_port;
    ErrorCount count() const { return by_card.Larger(by_port); }
};
using ErrorsByAddress = std::map<std::string, LoggedErrors, std::less<>>;

// Linux 6.8 prints "Correctable" where older kernels print "Corrected", and "Uncorrectable (Fatal)"
// for "Uncorrected (Fatal)".
void CountLine(std::string_view lower, LoggedErrors& logged) {
    if (Contains(lower, "pcie bus error")) {
        logged.by_card.corrected += Contains(lower, "=correct");
        logged.by_card.uncorrected += Contains(lower, "=uncorrect");
    }
    if (!Contains(lower, "aer:") || !ContainsAny(lower, "error received:|error message received")) {
        return;
    }
    const bool uncorrected = Contains(lower, "uncorrect");
    logged.by_port.uncorrected += uncorrected;
    logged.by_port.corrected += !uncorrected && Contains(lower, "correct");
}

// Errors by each address in a line: the address of the card and of the port above it.
ErrorsByAddress ReadLoggedErrors(HostView& view) {
    ErrorsByAddress all;
    for (const LogLine& line : KernelLogLines(view)) {
        LoggedErrors one;
        CountLine(line.lower, one);
        if (!one.count().any()) continue;
        std::set<std::string_view> addresses;
        for (std::string_view word : Words(line.known)) {
            if (const auto address = PciAddressIn(word); !address.empty()) {
                addresses.insert(address);
            }
        }
        for (std::string_view address : addresses) CountLine(line.lower, all[std::string(address)]);
    }
    return all;
}

// Errors of the card's link. Either end may report them, and a line may name both ends, so the
// larger count is used for the link.
ErrorCount ErrorsOfLink(const ErrorsByAddress& logged, const PciDevice& card) {
    ErrorCount count;
    for (const std::string& end : {card.address, card.bridges.empty() ? "" : card.bridges[0]}) {
        if (const auto at = logged.find(end); at != logged.end()) {
            count = count.Larger(at->second.count());
        }
    }
    return count;
}

void CheckErrors(HostView& view, const PciDevice& card, const ErrorCount& logged, Findings& out) {
    const auto counter = [&](const char* kind, std::string_view total) {
        const Reading file =
            view.Read(fmt::format("sys/bus/pci/devices/{}/aer_dev_{}", card.address, kind));
        return file.found() ? NumberAfter(file.text, total).value_or(0) : 0;
    };
    const double corrected = counter("correctable", "TOTAL_ERR_COR ");
    const double fatal =
        counter("fatal", "TOTAL_ERR_FATAL ") + counter("nonfatal", "TOTAL_ERR_NONFATAL ");
    if (fatal > 0) {
        Report<found::kAerFatal>(out, card.Text(), fatal);
    } else if (logged.uncorrected > 0) {
        Report<found::kAerFatalLogged>(out, card.Text(), logged.uncorrected);
    } else if (corrected >= 100) {
        Report<found::kAerCorrected>(out, card.Text(), corrected);
    } else if (logged.corrected >= kManyLogged) {
        Report<found::kAerCorrectedLogged>(out, card.Text(), logged.corrected);
    }
}

// For a snapshot with only the log: the driver in a line identifies the device.
void CheckUnlisted(HostView& view, const ErrorsByAddress& logged, Findings& out) {
    std::string worst;
    ErrorCount count;
    size_t max_weight = kManyLogged - 1;
    for (const auto& [address, errors] : logged) {
        const ErrorCount one = errors.count();
        const size_t weight = one.corrected + one.uncorrected * kManyLogged;
        if (weight > max_weight) worst = address, count = one, max_weight = weight;
    }
    if (worst.empty()) return;
    std::string_view driver;
    for (const LogLine& line : KernelLogLines(view)) {
        if (!Contains(line.known, worst)) continue;
        if (driver.empty()) driver = NetworkDriverIn(line.known);
        if (driver.empty()) driver = GpuDriverIn(line.known);
    }
    const std::string name = driver.empty() ? worst : fmt::format("{} ({})", worst, driver);
    if (count.uncorrected > 0) {
        Report<found::kAerFatalLogged>(out, name, count.uncorrected);
    } else {
        Report<found::kAerCorrectedLogged>(out, name, count.corrected);
    }
}

// ---- pcie-absent: cards that left the bus or did not come up.

// A driver that is loaded only if the host has such a card.
struct CardDriver {
    std::string_view module, vendor;
    const char* card;
};
constexpr CardDriver kCardDrivers[] = {{"mlx4_core", "15b3", "ConnectX-3"},
                                       {"mlx5_core", "15b3", "ConnectX"},
                                       {"ice", "8086", "E810"},
                                       {"bnxt_en", "14e4", "Broadcom NetXtreme-E"},
                                       {"ionic", "1dd8", "Pensando"},
                                       {"cxgb4", "1425", "Chelsio"}};

bool HasModule(HostView& view, std::string_view module) {
    if (view.Has("sys/module/" + std::string(module))) return true;
    const Reading list = view.Command("lsmod");
    return list.found() && std::ranges::any_of(WordLines(list.text), [&](const auto& words) {
               return words.size() >= 2 && words[0] == module && LeadingNumber(words[1]);
           });
}

// Cards whose registers read as ones, and slots with a card whose link did not come up.
void CheckListed(const std::vector<PciDevice>& devices, Findings& out) {
    for (const PciDevice& card : devices) {
        if (card.lost && (card.IsNetwork() || card.IsGpu() || card.type == 0)) {
            Report<found::kCardLost>(out, card.Text());
        }
    }
    for (const PciDevice& port : devices) {
        if (!port.IsBridge() || !port.slot_filled || port.link_active || port.now.known()) continue;
        const bool used = std::ranges::any_of(devices, [&](const PciDevice& one) {
            return !one.bridges.empty() && one.bridges.front() == port.address;
        });
        if (!used) Report<found::kCardLinkDown>(out, port.Text());
    }
}

// Reports a driver's card that the log names and that is no longer listed.
void CheckLogged(HostView& view, Findings& out) {
    std::set<std::string_view> reported;
    for (const LogLine& line : KernelLogLines(view)) {
        const std::string_view driver = NetworkDriverIn(line.known);
        const std::string_view address = PciAddressIn(line.known);
        if (driver.empty() || address.empty() || FindPci(view, address) != nullptr) continue;
        const bool known =
            std::ranges::find(kCardDrivers, driver, &CardDriver::module) != std::end(kCardDrivers);
        if (known && reported.insert(address).second) {
            Report<found::kCardGone>(out, driver, address);
        }
    }
}

}  // namespace

void RunPcieLink(HostView& view, Findings& out) {
    bool denied = false;
    for (const PciDevice& card : PciDevices(view)) {
        denied = denied ||
                 (card.denied && !card.now.known() && (card.IsNetwork() || card.IsComputeGpu()));
        if (card.lost || card.is_virtual || (!card.IsNetwork() && !card.IsGpu())) continue;
        CheckBar(card, out);
        const size_t before = out.Count();
        const LinkJudgement judgement = JudgeLink(view, card);
        CheckLink(card, judgement, out);
        // The speed of an emulated link costs nothing.
        const bool slow =
            judgement != LinkJudgement::kFull && judgement != LinkJudgement::kBridgeHidden;
        if (out.Count() > before && slow && card.IsNetwork()) {
            EstimatePcieCost(card, card.now, card.most, out);
        }
    }
    if (denied && out.empty()) Report<found::kLinkDenied>(out);
}

void RunPcieUpstream(HostView& view, Findings& out) {
    for (const PciDevice& card : PciDevices(view)) {
        // All links above an idle GPU are slow.
        if (card.IsNetwork() && card.now.known() && !card.lost) CheckUpstream(card, out);
    }
}

// ---- pcie-power: links that sleep between messages (ASPM).

void RunPciePower(HostView& view, Findings& out) {
    bool any = false;
    const std::vector<NetDevice>& fabric = FabricDevices(view);
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() || !card.now.known()) continue;
        any = true;
        if (!Contains(card.power, "L1")) continue;
        // Drivers of other cards, such as r8169 and igc, enable power saving by default.
        const bool used = fabric.empty() ||
                          std::ranges::find(fabric, card.address, &NetDevice::pci) != fabric.end();
        ReportAs<found::kAspmCard>(card.fabric && used ? kWarn : kNote, out, card.Text(),
                                   card.power);
    }
    const std::string policy = view.Text("sys/module/pcie_aspm/parameters/policy");
    if (ContainsAny(policy, "[powersave]|[powersupersave]")) {
        Report<found::kAspmPolicy>(out, policy);
    } else if (any && out.empty()) {
        ReportOk(out, "no network card's link sleeps{}",
                 policy.empty() ? "" : "; policy " + policy);
    }
}

void RunPcieErrors(HostView& view, Findings& out) {
    size_t checked = 0;
    const ErrorsByAddress logged = ReadLoggedErrors(view);
    for (const PciDevice& card : PciDevices(view)) {
        if (!card.IsNetwork() && !card.IsGpu()) continue;
        const ErrorCount of_link = ErrorsOfLink(logged, card);
        const bool counted =
            view.Has("sys/bus/pci/devices/" + card.address + "/aer_dev_correctable");
        if (!counted && !of_link.any()) continue;
        ++checked;
        CheckErrors(view, card, of_link, out);
    }
    if (PciDevices(view).empty()) CheckUnlisted(view, logged, out);
    if (checked > 0 && out.empty()) ReportOk(out, "{} cards without errors", checked);
}

void RunPcieAbsent(HostView& view, Findings& out) {
    const std::vector<PciDevice>& devices = PciDevices(view);
    CheckListed(devices, out);
    if (!HasAllPci(view)) return;
    CheckLogged(view, out);
    if (!out.empty()) return;
    for (const CardDriver& driver : kCardDrivers) {
        const bool present = std::ranges::any_of(devices, [&](const PciDevice& one) {
            return one.vendor == driver.vendor || one.driver == driver.module || one.fabric;
        });
        if (present || !RdmaPorts(view).empty() || !HasModule(view, driver.module)) continue;
        return Report<found::kCardAbsent>(out, driver.module, driver.card);
    }
    if (!devices.empty()) ReportOk(out, "{} devices, none lost", devices.size());
}

}  // namespace weft::doctor::checks
