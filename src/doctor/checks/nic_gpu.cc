// Checks the distance of network card and GPU on machines with several memory nodes.
#include <fmt/format.h>

#include <algorithm>

#include "doctor/checks/checks.h"
#include "doctor/facts.h"
#include "doctor/pci.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

constexpr double kFastGigabits = 20;
constexpr const char* kFarWhy =
    "what the GPU sends crosses the link between the processors twice: 0.2 to 1 us more for each "
    "message, and half of the bandwidth or less where GPUs and cards talk directly";
constexpr const char* kFarFix =
    "move the card to a slot of the GPU's processor (the board's manual shows which; 'lspci -tv' "
    "and 'nvidia-smi topo -m' show the tree), or start the rank near both: numactl --cpunodebind";

// From a GPU's row of `nvidia-smi topo -m`, "GPU0  X  SYS  SYS  0-31  0": its nearest card.
enum class Way { kNone, kNear, kFar };

Way BestWay(std::string_view row, const std::vector<size_t>& cards) {
    const auto words = Words(row);
    Way best = Way::kNone;
    for (size_t card : cards) {
        if (card + 1 >= words.size()) continue;
        const std::string_view way = words[card + 1];
        if (way == "SYS") best = best == Way::kNone ? Way::kFar : best;
        if (way == "PIX" || way == "PXB" || way == "PHB" || way == "NODE") best = Way::kNear;
    }
    return best;
}

// True if the table lists GPUs and cards.
bool LookAtTable(HostView& view, Findings& out) {
    const Reading table = view.Command("nvidia-smi topo -m");
    if (!table.found()) return false;
    std::vector<size_t> cards;  // columns
    size_t far = 0, all = 0;
    for (std::string_view line : Lines(table.text)) {
        const auto words = Words(line);
        if (words.empty() || Trim(line).starts_with("Legend")) continue;
        if (words[0] == "GPU0" && words.size() > 1 &&
            (words[1] == "GPU1" || words[1] == "NIC0" || words[1].starts_with("mlx"))) {
            for (size_t i = 0; i < words.size(); ++i) {
                if (words[i].starts_with("NIC") || words[i].starts_with("mlx")) cards.push_back(i);
            }
        } else if (words[0].starts_with("GPU") && !cards.empty()) {
            const Way way = BestWay(line, cards);
            if (way == Way::kNone) continue;
            ++all;
            if (way == Way::kFar) ++far;
        }
    }
    if (all == 0) return false;
    const std::string read = fmt::format(
        "nvidia-smi topo -m: {} of {} GPUs reach every network "
        "card by the link between processors (SYS) only",
        far, all);
    const char* expected = "a card beside each GPU (PIX, PXB, PHB or NODE)";
    if (far == all) {
        out.Warn(read, expected, kFarWhy, kFarFix);
    } else if (far > 0) {
        out.Note(read, expected, kFarWhy, kFarFix);
    } else {
        out.Ok("each GPU has a network card beside it");
    }
    return true;
}

}  // namespace

void RunNicGpu(HostView& view, Findings& out) {
    if (LookAtTable(view, out)) return;
    std::vector<PciDevice> gpus, cards;
    for (PciDevice& device : PciDevices(view)) {
        if (device.node < 0 || device.lost || device.is_virtual) continue;
        if (device.IsComputeGpu()) gpus.push_back(device);
        const bool fast = device.fabric || device.port_gigabits >= kFastGigabits;
        if (device.IsNetwork() && fast) cards.push_back(device);
    }
    if (gpus.empty() || cards.empty()) return;
    std::vector<std::string> far;
    for (const PciDevice& gpu : gpus) {
        const bool near = std::ranges::any_of(
            cards, [&](const PciDevice& card) { return card.node == gpu.node; });
        if (!near) far.push_back(fmt::format("{} (node {})", gpu.Text(), gpu.node));
    }
    if (far.empty()) return out.Ok("each GPU has a network card on its memory node");
    std::string where;
    for (const PciDevice& card : cards) {
        where += fmt::format("{}{} on node {}", where.empty() ? "" : ", ", card.Text(), card.node);
    }
    const std::string read =
        fmt::format("{}; GPUs without a card beside them: {}", where, Joined(far));
    const char* expected = "the network card on the GPU's memory node";
    if (far.size() == gpus.size()) return out.Warn(read, expected, kFarWhy, kFarFix);
    out.Note(read, expected, kFarWhy, kFarFix);
}

}  // namespace weft::doctor::checks
