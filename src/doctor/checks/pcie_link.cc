// Compares the PCI Express link of each network card and GPU with the card's maximum.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr int kFewLanes = 4;  // the least for a fabric's card

std::string Fix(const PciDevice& card, const PciDevice* slot) {
    const std::string look =
        "check with: sudo lspci -vv -s " + ShellWord(card.address) + " | grep Lnk";
    const std::string faster =
        "set the slot's speed in the BIOS to the card's generation (not Auto where that trains "
        "low), reseat the card and its riser or cable, update the card's firmware, and " +
        look;
    const bool slot_known = slot != nullptr && slot->most.known();
    const double both = slot_known ? std::min(slot->most.gigatransfers, card.most.gigatransfers)
                                   : card.most.gigatransfers;
    // The link has all lanes of the slot, but not its speed.
    if (slot_known && slot->most.width <= card.now.width && card.now.gigatransfers < both) {
        return faster;
    }
    if (card.now.width < card.most.width) {
        if (slot != nullptr && slot->most.known() && slot->most.width <= card.now.width) {
            return fmt::format(
                "the slot under {} has only {} lanes: move the card to a wider one, "
                "or set the slot's bifurcation in the BIOS; without one, "
                "'--ignore pcie-link'",
                slot->address, slot->most.width);
        }
        return "reseat the card (dirty or bent contacts, a riser), or set the slot to x16 in the "
               "BIOS (bifurcation, shared lanes); " +
               look;
    }
    return faster;
}

// Data rate of the narrower link.
std::string Narrower(const PciDevice& card) {
    return fmt::format("about {} of data instead of {}; loading takes as much longer",
                       RateText(DataBytes(card.now) / 1e9), RateText(DataBytes(card.most) / 1e9));
}

void AskNarrower(HostView& view, const PciDevice& card, Findings& out) {
    const std::optional<HostLink> link = card.IsNetwork() ? PortLink(view, card) : std::nullopt;
    if (!link || out.empty()) return;
    HostLink so = *link, otherwise = *link;
    so.most_bytes_s = DataBytes(card.now);
    otherwise.most_bytes_s = DataBytes(card.most);
    out.AskCost(LinkQuestion(view, so, otherwise));
}

void Below(const PciDevice& card, const PciDevice* slot, const std::string& read,
           const std::string& expected, bool by_design, Findings& out) {
    const double now = card.now.GigabytesPerSecond(), most = card.most.GigabytesPerSecond();
    std::string why = fmt::format("{} instead of {}: {} instead of {}", card.now.Text(),
                                  card.most.Text(), RateText(now), RateText(most));
    const double port = card.port_gigabits / 8;
    if (port > 0) why += fmt::format("; its port carries {}", RateText(port));
    // The board's design is not a fault, but one lane is too slow for a fabric's card.
    const bool fails = !by_design && card.IsNetwork() &&
                       (port > 0 ? DataBytes(card.now) / 1e9 < port : now <= most / 2 * 1.01);
    // A 1 Gb/s management card.
    if (card.IsNetwork() && !card.fabric && port > 0 && card.port_gigabits <= 1) {
        return out.Note(read, expected, why, Fix(card, slot));
    }
    if (fails) return out.Fail(read, expected, why, Fix(card, slot));
    out.Warn(read, expected, why, Fix(card, slot));
}

// Below any slot for such a card: too few lanes, or the speed of an untrained link (boards for
// cards of 8 GT/s and more have slots as fast).
bool IsFarTooLittle(const PciDevice& card) {
    return card.now.width < std::min(kFewLanes, card.most.width) ||
           (card.now.gigatransfers <= 5 && card.most.gigatransfers >= 8);
}

void LookPcieLink(const PciDevice& card, const std::vector<PciDevice>& devices, Findings& out) {
    const std::string read = fmt::format("{}: link {}", card.Text(), card.now.Text());
    const std::string expected = fmt::format("{}, as the card can", card.most.Text());
    // An idle GPU lowers its speed, never its width.
    const bool rests = card.IsGpu() && card.now.width >= card.most.width;
    const PciDevice* slot = SlotOf(card, devices);
    switch (JudgeLink(card, devices)) {
        case LinkJudgement::kUnknown: return;
        case LinkJudgement::kFull: return out.Ok(read, expected);
        case LinkJudgement::kByDesign:
            if (rests) return out.Ok(read + " (resting)", expected);
            if ((card.fabric || card.IsComputeGpu()) &&
                card.now.width < std::min(kFewLanes, card.most.width)) {
                return Below(card, slot, read, expected, true, out);
            }
            return out.Note(fmt::format("{}: all that its slot has ({}: {})", read, slot->address,
                                        slot->most.Text()),
                            expected, Narrower(card), "");
        case LinkJudgement::kBelow:
            if (rests) return out.Ok(read + " (resting)", expected);
            if (card.IsGpu() && slot != nullptr && card.now.width == slot->most.width) {
                return out.Note(fmt::format("{}: all lanes of its slot ({}: {}); the speed rests",
                                            read, slot->address, slot->most.Text()),
                                expected, Narrower(card), "");
            }
            return Below(card, slot, read, expected, false, out);
        case LinkJudgement::kSlotUnknown:
            if (rests) return out.Ok(read + " (resting)", expected);
            if (card.fabric && IsFarTooLittle(card)) {
                return Below(card, nullptr, read, expected, false, out);
            }
            return out.Note(read + "; what its slot has could not be read", expected,
                            Narrower(card), "sudo lspci -vv tells (LnkCap of the bridge above it)");
    }
}

// Reports a GPU of which the processor maps only 256 MB at a time, although it could map all.
void LookAtBar(const PciDevice& card, Findings& out) {
    if (!card.IsComputeGpu() || card.bar_bytes <= 0 || card.bar_bytes > 256e6) return;
    if (card.most_bar_bytes < 1e9) return;
    out.Warn(fmt::format("{}: Resizable BAR off ({:g} MB of up to {:g} GB)", card.Text(),
                         card.bar_bytes / 1e6, card.most_bar_bytes / 1e9),
             "Resizable BAR on",
             "the processor reaches a small window of the GPU's memory: loading and prompts are "
             "slower, on Intel's Arc much slower",
             "Above 4G Decoding and Resizable BAR on in the BIOS (CSM off; a BIOS update where it "
             "lacks them)");
}

}  // namespace

void RunPcieLink(HostView& view, Findings& out) {
    const std::vector<PciDevice> devices = PciDevices(view);
    for (const PciDevice& card : devices) {
        if (card.lost || card.is_virtual || (!card.IsNetwork() && !card.IsGpu())) continue;
        LookAtBar(card, out);
        const size_t before = out.Count();
        LookPcieLink(card, devices, out);
        const LinkJudgement link = JudgeLink(card, devices);
        const bool narrow = link != LinkJudgement::kFull && link != LinkJudgement::kUnknown;
        if (narrow && out.Count() > before) AskNarrower(view, card, out);
    }
    const bool denied = std::ranges::any_of(devices, [](const PciDevice& card) {
        return card.denied && !card.now.known() && (card.IsNetwork() || card.IsComputeGpu());
    });
    if (!denied || !out.empty()) return;
    out.Note("lspci was not allowed to read the links of cards", "their speed and width",
             "a card in too narrow a slot would not be seen", "sudo lspci -vv");
}

}  // namespace weft::doctor::checks
