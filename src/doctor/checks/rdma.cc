// Checks RDMA: devices, addresses, device files, libraries, packet size, leaks.
#include "doctor/checks/checks.h"
#include "doctor/fabric_devices.h"
#include "doctor/unreadable.h"

namespace weft::doctor::checks {
namespace {

// ---- rdma-device: a card without an RDMA device, or with one of another protocol.

// The module that creates RDMA devices for cards of this driver; null: none.
const char* RdmaModule(const NetDevice& device, const std::vector<PciDevice>& cards) {
    constexpr std::array<std::pair<std::string_view, const char*>, 8> kModules = {
        {{"mlx5_core", "mlx5_ib"},
         {"mlx4_core", "mlx4_ib"},
         {"mlx4_en", "mlx4_ib"},
         {"ice", "irdma"},
         {"bnxt_en", "bnxt_re"},
         {"cxgb4", "iw_cxgb4"},
         {"qede", "qedr"},
         {"ionic", "ionic_rdma"}}};
    for (const auto& [driver, module] : kModules) {
        if (device.driver == driver) return module;
    }
    // Only X722, of the cards of i40e, supports RDMA.
    const PciDevice* card = FindPci(cards, device.pci);
    if (device.driver != "i40e" || card == nullptr) return nullptr;
    const int64_t id = Integer(card->device, 16).value_or(0);
    return (id >= 0x37cc && id <= 0x37d3) || Contains(card->name, "X722") ? "irdma" : nullptr;
}

// An E810 supports either protocol, one at a time.
void CheckIwarp(HostView& view, const RdmaPort& port, const std::vector<PciDevice>& cards,
                Findings& out) {
    const PciDevice* card = FindPci(cards, port.pci);
    const bool never =
        port.device.starts_with("cxgb") ||
        (card != nullptr && (card->driver == "i40e" || Contains(card->name, "X722")));
    if (never) return Report<found::kIwarpOnly>(view, out, port.Text());
    const std::string path =
        port.pci.size() == 12
            ? "pci/" + port.pci
            : fmt::format("pci/\"$(basename \"$(readlink -f /sys/class/infiniband/{}/device)\")\"",
                          ShellWord(port.device));
    Report<found::kIwarp>(view, out, port.Text(), path);
}

// Reports software RDMA, which is for tests and should at least use the fast card.
void CheckSoftware(HostView& view, const RdmaPort& port, bool only, Findings& out) {
    const std::vector<NetDevice> devices = NetDevices(view);
    const std::vector<std::string> names = RdmaInterfaces(view, port);
    const NetDevice* under = names.empty() ? nullptr : FindNetDevice(devices, names.front());
    const NetDevice* fastest = nullptr;
    for (const NetDevice& device : devices) {
        if (!device.up || !device.physical || device.wireless) continue;
        if (fastest == nullptr || device.megabits > fastest->megabits) fastest = &device;
    }
    if (under != nullptr && fastest != nullptr && fastest->name != under->name &&
        (under->wireless || fastest->megabits > under->megabits)) {
        Report<found::kSoftRdmaSlow>(
            view, out, port.Text(), under->name, under->wireless ? "wireless" : under->SpeedText(),
            fastest->name, fastest->SpeedText(), ShellWord(port.device),
            port.device.starts_with("siw") ? "siw" : "rxe", ShellWord(fastest->name));
    } else if (only) {
        Report<found::kSoftRdma>(view, out, port.Text());
    }
}

// Slingshot has no verbs.
bool HasSlingshot(HostView& view, const std::vector<PciDevice>& cards) {
    return !view.List("sys/class/cxi").empty() ||
           std::ranges::any_of(cards, [](const PciDevice& one) {
               return one.vendor == "17db" || one.driver.starts_with("cxi") ||
                      Contains(one.name, "Slingshot") || Contains(one.name, "Cassini");
           });
}

// The host is known to have no RDMA device. (Empty output may mean that the program is not
// installed.)
bool KnowsThereIsNone(HostView& view, const std::string& driver, std::string_view module) {
    if (view.Complete() || view.Has("sys/class/infiniband")) return true;
    for (const char* command : {"ibv_devices", "ibv_devinfo"}) {
        const std::string text = CommandLike(view, command).text;
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
        const bool listed = std::ranges::any_of(devices, [&](const NetDevice& one) {
            return one.pci == card.address || one.driver == card.driver;
        });
        if (listed || card.driver.empty() || !card.IsNetwork() || card.is_virtual) continue;
        NetDevice device;
        device.name = device.pci = card.address;
        device.driver = card.driver;
        devices.push_back(std::move(device));
    }
    return devices;
}

void CheckModules(HostView& view, const std::vector<PciDevice>& cards, Findings& out) {
    for (const NetDevice& device : CardDevices(view, cards)) {
        const char* module = RdmaModule(device, cards);
        if (module == nullptr) continue;
        const bool known = KnowsThereIsNone(view, device.driver, module);
        ReportAs<found::kRdmaNoDevice>(
            known && IsForRanks(device, FabricDevices(view)) ? Severity::kWarn : Severity::kNote,
            view, out, device.name, device.driver, module);
        std::optional<HostLink> link = PortLink(device);
        if (link) link->kind = plan::LinkKind::kRoce;
        if (link) out.AskCost(TcpQuestion(view, link));
        return;
    }
}

// ---- rdma-gid: RoCE's own address in the port's GID table.

bool IsGood(const RdmaGid& gid) {
    return Contains(gid.type, "RoCE v2") && !gid.ipv4.empty();
}

// An entry has a type or an interface but no GID, or a GID but no type.
bool IsIncomplete(HostView& view, const RdmaPort& port, const std::vector<RdmaGid>& gids) {
    const std::vector<std::string> listed = view.List(port.path + "/gids");
    for (const char* attribute : {"/gid_attrs/types", "/gid_attrs/ndevs"}) {
        for (const std::string& index : view.List(port.path + attribute)) {
            if (!std::ranges::binary_search(listed, index)) return true;
        }
    }
    return std::ranges::any_of(
        gids, [](const RdmaGid& gid) { return gid.type.empty() && !gid.ipv4.empty(); });
}

// other: another port of the host has a good GID.
void CheckGids(HostView& view, const RdmaPort& port, bool other, Findings& out) {
    const std::vector<RdmaGid> gids = RdmaGids(view, port);
    if (const auto good = std::ranges::find_if(gids, IsGood); good != gids.end()) {
        return ReportOk(out, "{}: GID {} is {}, RoCE v2, of {}", port.Text(), good->index,
                        good->ipv4, good->interface);
    }
    if (IsIncomplete(view, port, gids)) return Report<found::kGidUnread>(view, out, port.Text());
    std::vector<std::string> listed;
    bool ipv4 = false;
    for (const RdmaGid& gid : gids) {
        ipv4 = ipv4 || !gid.ipv4.empty();
        listed.push_back(
            fmt::format("{} {} {}", gid.index, gid.ipv4.empty() ? "IPv6" : gid.ipv4, gid.type));
    }
    const std::string read = listed.empty() ? "none" : Joined(listed);
    if (!listed.empty() && LacksRoceV2(view, port)) {
        Report<found::kGidOnlyV1>(
            view, out, port.Text(), read,
            SetLinkType(view, port.pci, PortOfCard(port, RdmaPorts(view)), true, port.mlx4()));
    } else if (ipv4) {
        Report<found::kGidNotV2>(view, out, port.Text(), read, ShellWord(port.device), port.port);
    } else {
        const std::vector<std::string> interfaces = RdmaInterfaces(view, port);
        ReportAs<found::kGidMissing>(
            other ? Severity::kNote : Severity::kFail, view, out, port.Text(), read,
            interfaces.empty() ? "give the port's interface an IPv4 address, and the peer another "
                                 "one of the same subnet"
                               : AddAddress(view, interfaces.front()));
        if (other) return;
    }
    out.AskCost(TcpQuestion(view, PortLink(port)));
}

// ---- rdma-library: the user-space part of RDMA.

// "44.0-2", "2307mlnx47-1", "1:44.0-2".
std::optional<Version> PackageVersion(std::string_view text) {
    text = Trim(text);
    if (text.starts_with("rdma-core ")) text.remove_prefix(10);  // from pacman
    if (const size_t colon = text.find(':'); colon < 3) text = text.substr(colon + 1);
    return ParseVersion(text);
}

struct Package {
    std::string version;
    bool missing = false;  // reported by the distribution's own tool
};

// Asks the distribution's own tool; another installed tool does not know the packages.
Package ReadPackage(HostView& view) {
    const std::string_view distribution = DistributionOf(view);
    const bool any = distribution == "unknown";
    const bool rpm =
        IsIn(std::array<std::string_view, 4>{"fedora", "yum", "ostree", "suse"}, distribution);
    Package package;
    for (const auto& [command, own] : {std::pair("dpkg-query -W -f=${Version} ibverbs-providers",
                                                 any || distribution == "debian"),
                                       std::pair("rpm -q --qf=%{VERSION} libibverbs", any || rpm),
                                       std::pair("pacman -Q rdma-core", distribution == "arch")}) {
        if (!own || !package.version.empty()) continue;
        const Reading reading = view.Command(command);
        // rpm reports it on standard output, in the user's language.
        const bool absent = reading.found() && !PackageVersion(reading.text) &&
                            Contains(reading.text, "libibverbs");
        // A tool that could not run gives no answer.
        const bool denied = reading.refused() && WhatIsSaid(reading.text) != Said::kOutput;
        package.missing = package.missing || absent || (reading.refused() && !denied);
        if (reading.found() && !absent) package.version = Trim(reading.text);
    }
    return package;
}

}  // namespace

void RunRdmaDevice(HostView& view, Findings& out) {
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    const std::vector<PciDevice> cards = PciDevices(view);
    if (ports.empty()) {
        if (HasSlingshot(view, cards)) return Report<found::kSlingshot>(view, out);
        return CheckModules(view, cards, out);
    }
    const bool only_software = std::ranges::all_of(ports, &RdmaPort::software);
    std::vector<std::string> good;
    for (const RdmaPort& port : ports) {
        if (port.software()) {
            CheckSoftware(view, port, only_software, out);
        } else if (port.iwarp) {
            CheckIwarp(view, port, cards, out);
        } else {
            good.push_back(port.Text());
        }
    }
    if (!good.empty()) out.Ok(ListText(good));
}

void RunRdmaGid(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const std::vector<RdmaPort> ports = RdmaPorts(view);
    const bool any_active = std::ranges::any_of(ports, &RdmaPort::active);
    for (const RdmaPort& port : ports) {
        const bool other = std::ranges::any_of(ports, [&](const RdmaPort& one) {
            return (one.device != port.device || one.port != port.port) && one.active() &&
                   std::ranges::any_of(RdmaGids(view, one), IsGood);
        });
        // A port with few facts may be an unused one.
        const bool up = port.active() || (port.state.empty() && !any_active);
        const bool listed = !port.path.empty() && !view.List(port.path + "/gids").empty();
        if (!port.ethernet() || port.iwarp || !up || !listed) continue;
        if (const std::string cloud = CloudInterface(view, port); !cloud.empty()) {
            ReportOk(out, "{}: a virtual function of {}, which has the address", port.Text(),
                     cloud);
        } else {
            CheckGids(view, port, other, out);
        }
    }
}

// ---- rdma-access: device files through which a program uses RDMA.

void RunRdmaAccess(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const std::vector<std::string> devices = Numbered(view, "dev/infiniband", "uverbs");
    if (devices.empty()) {
        if (!view.Complete() && view.List("dev").empty()) return;
        for (const std::string& card : view.List("sys/class/infiniband")) {
            const Reading proof = view.Probe("register_memory/" + card);
            if (!proof.text.starts_with("registered")) continue;
            return Report<found::kRdmaAccessFine>(view, out, card, Trim(proof.text));
        }
        if (HasTag(view, "container")) return Report<found::kRdmaNotInContainer>(view, out);
        Report<found::kRdmaNoNode>(view, out);
        return out.AskCost(TcpQuestion(view));
    }
    for (const std::string& device : devices) {
        const Reading access = view.Probe("access/dev/infiniband/" + device);
        if (!access.found() || Trim(access.text) == "rw") continue;
        Report<found::kRdmaDenied>(view, out, device, Trim(access.text));
        return out.AskCost(TcpQuestion(view));
    }
    Report<found::kRdmaAccessFine>(view, out, "/dev/infiniband", Joined(devices));
}

// ---- rdma-leaks: queue pairs of ended programs, or too many of them.

// "0: mlx5_0: pd 3 cq 5 qp 2 cm_id 0 mr 0 ctx 0 srq 2"
void RunRdmaLeaks(HostView& view, Findings& out) {
    constexpr double kMany = 1000;
    const Reading summary = view.Command("rdma resource show");
    if (!summary.found()) return;
    for (std::string_view line : Lines(summary.text)) {
        const std::string_view device = After(line, ": ", ":");
        const auto pairs = NumberAfter(line, " qp ");
        const double regions = NumberAfter(line, " mr ").value_or(0);
        if (device.empty() || !pairs) continue;
        ReportAs<found::kRdmaLeaks>(
            *pairs < kMany && regions < kMany ? Severity::kOk : Severity::kWarn, view, out, device,
            *pairs, regions, kMany);
    }
}

void RunRdmaLibrary(HostView& view, Findings& out) {
    constexpr Version kOld = {{30, 0, 0}};
    if (!HasRdma(view)) return;
    const auto [text, missing] = ReadPackage(view);
    if (text.empty()) {
        if (missing) Report<found::kRdmaCoreMissing>(view, out);
        return;
    }
    const auto version = PackageVersion(text);
    if (!version) return;
    ReportAs<found::kRdmaCore>(*version >= kOld ? Severity::kOk : Severity::kNote, view, out,
                               text.starts_with("rdma-core ") ? text : "rdma-core " + text);
}

// ---- rdma-mtu: packet size of RoCE, set by the interface's MTU.

void RunRdmaMtu(HostView& view, Findings& out) {
    constexpr int kMaxSize = 4096;
    constexpr int kGap = 20;      // preamble and gap between Ethernet packets
    constexpr int kHeaders = 70;  // of RoCE v2 in an Ethernet packet: IP, UDP, BTH, RETH, checksums
    // Data share of the wire with packets of this size.
    const auto share = [](int size) {
        return static_cast<double>(size) / (size + kHeaders + kGap);
    };
    const std::vector<NetDevice> devices = NetDevices(view);
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || !port.active()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            const NetDevice* device = FindNetDevice(devices, name);
            if (device == nullptr || device->mtu == 0) continue;
            int size = kMaxSize;
            while (size > 256 && device->mtu < size + kHeaders) size /= 2;
            const bool fine = size == kMaxSize;
            ReportAs<found::kRdmaMtu>(fine ? Severity::kOk : Severity::kNote, view, out,
                                      port.Text(), name, device->mtu, size, 8192 / size,
                                      100 * share(size), 100 * share(kMaxSize),
                                      SetMtu(view, name, 9000));
            if (fine) continue;
            AskLinkCost(view, out, PortLink(port), [&](HostLink& actual, HostLink&) {
                actual.share = share(size) / share(kMaxSize);
            });
        }
    }
}

}  // namespace weft::doctor::checks
