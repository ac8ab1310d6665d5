#include "doctor/cost.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/facts.h"
#include "doctor/gpu.h"

namespace weft::doctor {
namespace {

// Share of a PCI Express link's bytes that is data, with packets of 256 bytes.
constexpr double kPayload = 0.85;
constexpr const char* kStrixHalo = "1002:1586";

std::string Digits(double value) {
    if (value >= 1e6) return fmt::format("{:.1e}", value);
    return fmt::format("{:.{}f}", value, value < 1 ? 2 : value < 100 ? 1 : 0);
}

std::string TimeText(double seconds) {
    return seconds < 1 ? Digits(seconds * 1e3) + " ms" : Digits(seconds) + " s";
}

// "9.1 tokens/s now, 11.4 without the fault"
std::string Both(const std::string& faulty, const std::string& healthy, const char* unit = "") {
    if (faulty == healthy) return fmt::format("{}{} with and without the fault", faulty, unit);
    return fmt::format("{}{} now, {} without the fault", faulty, unit, healthy);
}

bool IsOn(const std::string& link, const std::string& address) {
    return !address.empty() && link.ends_with("/" + address);
}

// Whether this is the only fast card of a handmade copy without links. RDMA devices then belong to
// it.
bool IsOnlyCard(HostView& view, const PciDevice& card) {
    if (view.Complete() || !card.fabric) return false;
    const std::vector<PciDevice>& all = PciDevices(view);
    return std::ranges::count_if(all, &PciDevice::fabric) == 1;
}

}  // namespace

HostFacts FactsOf(HostView& view) {
    HostFacts facts;
    facts.memory_bytes = MemInfo(view, "MemTotal").value_or(0);
    for (const PciDevice& device : PciDevices(view)) {
        const bool named = !device.vendor.empty() && !device.device.empty();
        if (device.IsGpu() && named) ++facts.gpus[device.Id()];
    }
    for (const AmdGpu& gpu : AmdGpus(view)) {
        // The PCI id was not read, but the kernel's name of the GPU was.
        if (facts.gpus.empty() && gpu.IsStrixHalo()) facts.gpus[kStrixHalo] = 1;
        if (gpu.unified && facts.memory_bytes > 0) {
            facts.unified_bytes = facts.memory_bytes + gpu.vram_bytes;
        }
    }
    return facts;
}

double DataBytes(const PciLink& link) {
    return link.known() ? link.GigabytesPerSecond() * 1e9 * kPayload : 0;
}

std::optional<HostLink> PortLink(const RdmaPort& port) {
    if (!port.active() || port.gigabits <= 0) return std::nullopt;
    HostLink link;
    link.kind = port.ethernet() ? plan::LinkKind::kRoce : plan::LinkKind::kInfiniBand;
    link.gigabits = port.gigabits;
    return link;
}

std::optional<HostLink> PortLink(const NetDevice& device) {
    if (!device.up || device.wireless || device.megabits <= 0) return std::nullopt;
    HostLink link;
    link.gigabits = device.megabits / 1000;
    return link;
}

std::optional<HostLink> PortLink(HostView& view, const PciDevice& card) {
    std::optional<HostLink> fastest;
    const auto take = [&](const std::optional<HostLink>& link) {
        if (link && (!fastest || link->gigabits > fastest->gigabits)) fastest = link;
    };
    const std::vector<std::string> listed =
        view.List("sys/bus/pci/devices/" + card.address + "/infiniband");
    const bool only = IsOnlyCard(view, card);
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (only && port.pci.empty()) take(PortLink(port));
        const Reading place = view.Link("sys/class/infiniband/" + port.device + "/device");
        const bool mine = std::ranges::find(listed, port.device) != listed.end();
        if (mine || IsOn(std::string(Trim(std::string_view(place.text))), card.address)) {
            take(PortLink(port));
        }
    }
    if (fastest) return fastest;
    for (const NetDevice& device : NetDevices(view)) {
        if (device.pci == card.address) take(PortLink(device));
    }
    return fastest;
}

HostLink OverTcp(HostLink link) {
    link.kind = plan::LinkKind::kTcp;
    link.share = 1;
    return link;
}

CostQuestion LinkQuestion(HostView& view, const HostLink& faulty, const HostLink& healthy) {
    CostQuestion question;
    question.host = FactsOf(view);
    question.faulty.link = faulty;
    question.healthy.link = healthy;
    return question;
}

std::optional<CostQuestion> TcpQuestion(HostView& view, std::optional<HostLink> link) {
    if (!link) {
        for (const RdmaPort& port : RdmaPorts(view)) {
            const std::optional<HostLink> other = PortLink(port);
            if (other && (!link || other->gigabits > link->gigabits)) link = other;
        }
    }
    if (!link) return std::nullopt;
    return LinkQuestion(view, OverTcp(*link), *link);
}

std::string Cost::Text() const {
    const std::string& model = healthy.model;
    const std::string place = machine.empty() ? fmt::format("{} such hosts", hosts)
                                              : fmt::format("{} x {}", hosts, machine);
    std::string text = fmt::format("predicted for {} on {} (tp{}): ", model, place, tensor_ranks);
    if (machine.empty()) {
        return text +
               fmt::format("{} per token on the link; a prompt of {} tokens {}",
                           Both(TimeText(faulty.wire_token_s), TimeText(healthy.wire_token_s)),
                           prompt,
                           Both(TimeText(faulty.wire_prompt_s), TimeText(healthy.wire_prompt_s)));
    }
    const auto speed = [](const CostFigures& figures) { return Digits(figures.tokens_s); };
    if (faulty.model != model) {
        text += fmt::format("{} tokens/s without the fault; now it does not fit", speed(healthy));
        if (faulty.model.empty()) return text;
        return text + fmt::format("; the largest model that fits, {}: {} tokens/s", faulty.model,
                                  speed(faulty));
    }
    return text + fmt::format("{}; a prompt of {} tokens {}",
                              Both(speed(faulty), speed(healthy), " tokens/s"), prompt,
                              Both(TimeText(faulty.prompt_s), TimeText(healthy.prompt_s)));
}

}  // namespace weft::doctor
