// Detects an RDMA card without an RDMA device, or with one of another protocol.
#include <fmt/format.h>

#include <algorithm>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/fabric_devices.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/pci.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {
namespace {

// Only X722, of the cards of i40e, supports RDMA.
bool IsX722(const NetDevice& device, const std::vector<PciDevice>& cards) {
    const PciDevice* card = FindPci(cards, device.pci);
    if (card == nullptr) return false;
    const int64_t id = Integer(card->device, 16).value_or(0);
    return (id >= 0x37cc && id <= 0x37d3) || Contains(card->name, "X722");
}

// The module that creates RDMA devices for cards of this driver.
const char* RdmaModule(const NetDevice& device, const std::vector<PciDevice>& cards) {
    const std::string& driver = device.driver;
    if (driver == "mlx5_core") return "mlx5_ib";
    if (driver == "mlx4_core" || driver == "mlx4_en") return "mlx4_ib";
    if (driver == "ice" || (driver == "i40e" && IsX722(device, cards))) return "irdma";
    if (driver == "bnxt_en") return "bnxt_re";
    if (driver == "cxgb4") return "iw_cxgb4";
    if (driver == "qede") return "qedr";
    if (driver == "ionic") return "ionic_rdma";
    return nullptr;
}

// An E810 supports either protocol, one at a time.
void LookAtIwarp(const RdmaPort& port, const std::vector<PciDevice>& cards, Findings& out) {
    const PciDevice* card = FindPci(cards, port.pci);
    const bool never =
        port.device.starts_with("cxgb") ||
        (card != nullptr && (card->driver == "i40e" || Contains(card->name, "X722")));
    const std::string read = fmt::format("{}: iWARP", port.Text());
    const char* why =
        "iWARP and RoCE don't understand each other, and Weft's RDMA is RoCE or InfiniBand: what "
        "is left is TCP";
    if (never) return out.Note(read, "RoCE v2", why, "--transport tcp; or a card with RoCE v2");
    const std::string place =
        port.pci.size() == 12
            ? "pci/" + port.pci
            : fmt::format("pci/\"$(basename \"$(readlink -f /sys/class/infiniband/{}/device)\")\"",
                          ShellWord(port.device));
    out.Warn(read, "RoCE v2", why,
             fmt::format("sudo devlink dev param set {0} name enable_iwarp value false cmode "
                         "runtime && sudo devlink dev param set {0} name enable_roce value true "
                         "cmode runtime (Intel's own irdma driver: options irdma roce_ena=1); on "
                         "both hosts",
                         place));
}

const NetDevice* FastestLink(const std::vector<NetDevice>& devices, bool wired) {
    const NetDevice* fastest = nullptr;
    for (const NetDevice& device : devices) {
        if (!device.up || !device.physical || (wired && device.wireless)) continue;
        if (fastest == nullptr || device.megabits > fastest->megabits) fastest = &device;
    }
    return fastest;
}

// Reports software RDMA, which is for tests and should at least use the fast card.
void LookAtSoftware(HostView& view, const RdmaPort& port, bool only, Findings& out) {
    const std::vector<NetDevice> devices = NetDevices(view);
    const std::vector<std::string> names = RdmaInterfaces(view, port);
    const NetDevice* under = names.empty() ? nullptr : FindNetDevice(devices, names.front());
    const NetDevice* fastest = FastestLink(devices, true);
    const bool slower = under != nullptr && fastest != nullptr && fastest->name != under->name &&
                        (under->wireless || fastest->megabits > under->megabits);
    if (slower) {
        return out.Warn(
            fmt::format("{}: over {} ({}), while {} has {}", port.Text(), under->name,
                        under->wireless ? "wireless" : under->SpeedText(), fastest->name,
                        fastest->SpeedText()),
            "RDMA in software over the fastest card, or none",
            "what takes this device sends over the slow network",
            fmt::format("sudo rdma link delete {0} && sudo rdma link add {0} type {1} netdev {2}; "
                        "or --transport tcp, which is faster",
                        ShellWord(port.device), port.device.starts_with("siw") ? "siw" : "rxe",
                        ShellWord(fastest->name)));
    }
    if (!only) return;
    out.Note(port.Text() + ": emulated in software (rdma_rxe)", "a card with RDMA",
             "Soft-RoCE is for tests: the kernel does what a card would, and takes longer than "
             "plain TCP",
             "--transport tcp");
}

// Reports Slingshot, which has no verbs.
bool LookAtSlingshot(HostView& view, const std::vector<PciDevice>& cards, Findings& out) {
    const bool card = std::ranges::any_of(cards, [](const PciDevice& one) {
        return one.vendor == "17db" || one.driver.starts_with("cxi") ||
               Contains(one.name, "Slingshot") || Contains(one.name, "Cassini");
    });
    if (!card && view.List("sys/class/cxi").empty()) return false;
    out.Note("a Slingshot card (cxi), but no RDMA device", "a device under /sys/class/infiniband",
             "Slingshot's RDMA is reached by libfabric (its provider cxi), not by verbs: Weft uses "
             "TCP over hsn0",
             "--transport tcp, with --hosts by the addresses of hsn0, and MTU 9000 there");
    return true;
}

bool IsForRanks(HostView& view, const NetDevice& device) {
    const std::vector<NetDevice> fabric = FabricDevices(view);
    return fabric.empty() ||
           std::ranges::find(fabric, device.name, &NetDevice::name) != fabric.end();
}

// The host is known to have no RDMA device. (Empty output may mean that the program is not
// installed.)
bool KnowsThereIsNone(HostView& view, const std::string& driver, std::string_view module) {
    if (view.Complete() || view.Has("sys/class/infiniband")) return true;
    for (const char* words : {"ibv_devices", "ibv_devinfo"}) {
        const std::string text = CommandLike(view, words).text;
        if (Contains(text, "node GUID") || Contains(text, "No IB devices found")) return true;
    }
    bool loaded = false;
    const std::string modules = view.Command("lsmod").text;
    for (std::string_view line : Lines(modules)) {
        const auto words = Words(line);
        if (words.empty()) continue;
        if (words[0] == module) return false;
        loaded = loaded || words[0] == driver;
    }
    return loaded;
}

// Interfaces of the host; if no card's interface was read, the cards from lspci.
std::vector<NetDevice> CardDevices(HostView& view, const std::vector<PciDevice>& cards) {
    std::vector<NetDevice> devices = NetDevices(view);
    if (view.Complete()) return devices;
    for (const PciDevice& card : cards) {
        const bool told = std::ranges::any_of(devices, [&](const NetDevice& one) {
            return one.pci == card.address || one.driver == card.driver;
        });
        if (told || card.driver.empty() || !card.IsNetwork() || card.is_virtual) continue;
        NetDevice device;
        device.name = card.address;
        device.driver = card.driver;
        device.pci = card.address;
        devices.push_back(std::move(device));
    }
    return devices;
}

void LookForModules(HostView& view, const std::vector<PciDevice>& cards, Findings& out) {
    for (const NetDevice& device : CardDevices(view, cards)) {
        const char* module = RdmaModule(device, cards);
        if (module == nullptr) continue;
        const bool known = KnowsThereIsNone(view, device.driver, module);
        out.Add(known && IsForRanks(view, device) ? Severity::kWarn : Severity::kNote,
                fmt::format("{}: driver {}, but no RDMA device", device.name, device.driver),
                "a device under /sys/class/infiniband",
                "the card could do RDMA; without its module Weft uses TCP, by way of two kernels",
                fmt::format("{} && sudo modprobe -a {} ib_uverbs rdma_ucm",
                            Install(view, kRdmaCore), module));
        std::optional<HostLink> link = PortLink(device);
        if (link) link->kind = plan::LinkKind::kRoce;
        if (link) out.AskCost(TcpQuestion(view, link));
        return;
    }
}

}  // namespace

void RunRdmaDevice(HostView& view, Findings& out) {
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    const std::vector<PciDevice> cards = PciDevices(view);
    if (ports.empty()) {
        if (!LookAtSlingshot(view, cards, out)) LookForModules(view, cards, out);
        return;
    }
    const bool only = std::ranges::all_of(ports, &RdmaPort::software);
    std::string read;
    for (const RdmaPort& port : ports) {
        if (port.software()) {
            LookAtSoftware(view, port, only, out);
        } else if (port.iwarp) {
            LookAtIwarp(port, cards, out);
        } else {
            read += fmt::format("{}{}", read.empty() ? "" : ", ", port.Text());
        }
    }
    if (!read.empty()) out.Ok(read);
}

}  // namespace weft::doctor::checks
