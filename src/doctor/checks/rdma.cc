// Checks RDMA: devices, ports, addresses, device files, libraries, packet size.
#include "doctor/checks/checks.h"
#include "doctor/unreadable.h"

namespace weft::doctor::checks {
namespace {

// ---- rdma-device: a card without an RDMA device, or with one of another protocol.

// Whether the card is an X722, whose RDMA is iWARP. Other cards of the driver i40e have no RDMA.
bool IsX722(const PciDevice* card) {
    if (card == nullptr) return false;
    const int64_t id = Integer(card->device, 16).value_or(0);
    return (id >= 0x37cc && id <= 0x37d3) || Contains(card->name, "X722");
}

// The module that creates RDMA devices for cards of this driver; null: none.
const char* RdmaModule(HostView& view, const NetDevice& device) {
    constexpr std::pair<std::string_view, const char*> kModules[] = {
        {"mlx5_core", "mlx5_ib"}, {"mlx4_core", "mlx4_ib"}, {"mlx4_en", "mlx4_ib"},
        {"ice", "irdma"},         {"bnxt_en", "bnxt_re"},   {"cxgb4", "iw_cxgb4"},
        {"qede", "qedr"},         {"ionic", "ionic_rdma"}};
    for (const auto& [driver, module] : kModules) {
        if (device.driver == driver) return module;
    }
    return device.driver == "i40e" && IsX722(FindPci(view, device.pci)) ? "irdma" : nullptr;
}

// An E810 supports either protocol, one at a time.
void CheckIwarp(const RdmaPort& port, Findings& out) {
    const PciDevice* card = FindPci(out.view(), port.pci);
    const bool never = port.device.starts_with("cxgb") || IsX722(card) ||
                       (card != nullptr && card->driver == "i40e");
    if (never) return Report<found::kIwarpOnly>(out, port.Text());
    const std::string path =
        port.pci.size() == 12
            ? "pci/" + port.pci
            : fmt::format("pci/\"$(basename \"$(readlink -f /sys/class/infiniband/{}/device)\")\"",
                          ShellWord(port.device));
    Report<found::kIwarp>(out, port.Text(), path);
}

// Reports software RDMA, which is for tests and should at least use the fast card.
void CheckSoftware(HostView& view, const RdmaPort& port, bool only, Findings& out) {
    const std::vector<std::string> names = RdmaInterfaces(view, port);
    const NetDevice* under = names.empty() ? nullptr : FindNetDevice(view, names.front());
    const NetDevice* fastest = nullptr;
    for (const NetDevice& device : NetDevices(view)) {
        if (!device.up || !device.physical || device.wireless) continue;
        if (fastest == nullptr || device.megabits > fastest->megabits) fastest = &device;
    }
    if (under != nullptr && fastest != nullptr && fastest->name != under->name &&
        (under->wireless || fastest->megabits > under->megabits)) {
        Report<found::kSoftRdmaSlow>(
            out, port.Text(), under->name, under->wireless ? "wireless" : under->SpeedText(),
            fastest->name, fastest->SpeedText(), ShellWord(port.device),
            port.device.starts_with("siw") ? "siw" : "rxe", ShellWord(fastest->name));
    } else if (only) {
        Report<found::kSoftRdma>(out, port.Text());
    }
}

// Slingshot has no verbs.
bool HasSlingshot(HostView& view) {
    return !view.List("sys/class/cxi").empty() ||
           std::ranges::any_of(PciDevices(view), [](const PciDevice& one) {
               return one.vendor == "17db" || one.driver.starts_with("cxi") ||
                      ContainsAny(one.name, "Slingshot|Cassini");
           });
}

// Whether the host certainly has no RDMA device. (Empty output may mean that the program is not
// installed.)
bool StatesNone(HostView& view, const std::string& driver, std::string_view module) {
    if (view.Complete() || view.Has("sys/class/infiniband")) return true;
    for (const char* command : {"ibv_devices", "ibv_devinfo"}) {
        const std::string text = CommandLike(view, command).text;
        if (ContainsAny(text, "node GUID|No IB devices found")) return true;
    }
    bool loaded = false;
    const std::string modules = view.Command("lsmod").text;
    for (const auto& words : WordLines(modules)) {
        if (words[0] == module) return false;
        loaded = loaded || words[0] == driver;
    }
    return loaded;
}

// Interfaces of the host; if no card's interface was read, the cards from lspci.
std::vector<NetDevice> CardDevices(HostView& view) {
    std::vector<NetDevice> devices = NetDevices(view);
    if (view.Complete()) return devices;
    for (const PciDevice& card : PciDevices(view)) {
        const bool listed = std::ranges::any_of(devices, [&](const NetDevice& one) {
            return one.pci == card.address || one.driver == card.driver;
        });
        if (listed || card.driver.empty() || !card.IsNetwork() || card.is_virtual) continue;
        NetDevice& device = devices.emplace_back();
        device.name = device.pci = card.address;
        device.driver = card.driver;
    }
    return devices;
}

void CheckModules(HostView& view, Findings& out) {
    for (const NetDevice& device : CardDevices(view)) {
        const char* module = RdmaModule(view, device);
        if (module == nullptr) continue;
        const bool known = StatesNone(view, device.driver, module);
        ReportAs<found::kRdmaNoDevice>(known && IsForRanks(view, device) ? kWarn : kNote, out,
                                       device.name, device.driver, module);
        std::optional<HostLink> link = PortLink(device);
        if (!link) return;
        link->kind = plan::LinkKind::kRoce;
        return out.EstimateCost(TcpQuestion(view, link));
    }
}

// ---- rdma-gid: RoCE's own address in the port's GID table.

bool IsGood(const RdmaGid& gid) {
    return Contains(gid.type, "RoCE v2") && !gid.ipv4.empty();
}

// Whether an entry of the GID table has a type or an interface but no GID, or a GID but no type.
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
    if (IsIncomplete(view, port, gids)) return Report<found::kGidUnread>(out, port.Text());
    std::vector<std::string> listed;
    bool ipv4 = false;
    for (const RdmaGid& gid : gids) {
        ipv4 = ipv4 || !gid.ipv4.empty();
        listed.push_back(
            fmt::format("{} {} {}", gid.index, gid.ipv4.empty() ? "IPv6" : gid.ipv4, gid.type));
    }
    const std::string read = listed.empty() ? "none" : Joined(listed);
    if (!listed.empty() && LacksRoceV2(view, port)) {
        Report<found::kGidOnlyV1>(out, port.Text(), read, SetLinkType(view, port, true));
    } else if (ipv4) {
        Report<found::kGidNotV2>(out, port.Text(), read);
    } else {
        const std::vector<std::string> interfaces = RdmaInterfaces(view, port);
        ReportAs<found::kGidMissing>(
            other ? kNote : kFail, out, port.Text(), read,
            interfaces.empty() ? "give the port's interface an IPv4 address, and the peer another "
                                 "one of the same subnet"
                               : AddAddress(view, interfaces.front()));
        if (other) return;
    }
    out.EstimateCost(TcpQuestion(view, PortLink(port)));
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

// Queries the distribution's own tool; another installed tool does not have its packages.
Package ReadPackage(HostView& view) {
    const std::string_view distribution = DistributionOf(view);
    const bool any = distribution == "unknown";
    const bool rpm = IsOneOf(distribution, "fedora yum ostree suse");
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
        const bool denied = reading.refused() && ClassifyOutput(reading.text) != Said::kOutput;
        package.missing = package.missing || absent || (reading.refused() && !denied);
        if (reading.found() && !absent) package.version = Trim(reading.text);
    }
    return package;
}

// The private ABI of rdma-core releases (IBVERBS_PABI_VERSION), newest first. libibverbs loads only
// providers of its own ABI; their files are called "libmlx5-rdmav34.so".
struct VerbsAbi {
    Version since;
    int64_t abi;
};
constexpr VerbsAbi kVerbsAbis[] = {{{{65, 0, 0}}, 65}, {{{64, 0, 0}}, 64}, {{{59, 0, 0}}, 59},
                                   {{{57, 0, 0}}, 57}, {{{34, 0, 0}}, 34}, {{{33, 0, 0}}, 33}};
constexpr Version kFirstUnknownAbi = {{66, 0, 0}};

// The system's libibverbs, and its providers for one kind of card.
struct VerbsLibrary {
    std::string version;  // "44.0", that of its rdma-core; "": unknown
    int64_t abi = 0;      // 0: unknown
    std::vector<std::string> providers;
    bool Fits() const {
        const std::string end = fmt::format("-rdmav{}.so", abi);
        return abi == 0 || providers.empty() ||
               std::ranges::any_of(providers,
                                   [&](const std::string& file) { return file.ends_with(end); });
    }
    std::string Text() const {
        return fmt::format("libibverbs{}{}", version.empty() ? "" : " " + version,
                           abi == 0 ? "" : fmt::format(" (ABI {})", abi));
    }
};

// driver: the kernel's driver of the card.
VerbsLibrary ReadVerbsLibrary(HostView& view, std::string_view driver) {
    constexpr std::pair<std::string_view, std::string_view> kProviders[] = {
        {"mlx5_core", "mlx5"},  {"mlx4_core", "mlx4"}, {"ice", "irdma"}, {"i40e", "irdma"},
        {"bnxt_en", "bnxt_re"}, {"cxgb4", "cxgb4"},    {"qede", "qedr"}, {"ionic", "ionic"}};
    constexpr const char* kFolders[] = {"usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu",
                                        "usr/lib64", "usr/lib"};
    VerbsLibrary library;
    for (const std::string folder : kFolders) {
        // "libibverbs.so.1.14.44.0"
        const Reading link = view.Link(folder + "/libibverbs.so.1");
        if (!link.found()) continue;
        library.version = After(After(link.text, ".so.1."), ".");
        const auto version = ParseVersion(library.version);
        for (const auto& [since, abi] : kVerbsAbis) {
            const bool known = version && *version >= since && *version < kFirstUnknownAbi;
            if (known && library.abi == 0) library.abi = abi;
        }
        for (const std::string& file : view.List(folder + "/libibverbs")) {
            for (const auto& [kernel, name] : kProviders) {
                const bool fits =
                    kernel == driver && file.starts_with(fmt::format("lib{}-rdmav", name));
                if (fits) library.providers.push_back(file);
            }
        }
        break;
    }
    return library;
}

// Reports RDMA devices that libibverbs does not see, since it loads no provider for them.
bool CheckProviders(HostView& view, Findings& out) {
    std::set<std::string> seen;
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (port.software() || !seen.insert(port.device).second) continue;
        const PciDevice* card = FindPci(view, port.pci);
        const VerbsLibrary library = ReadVerbsLibrary(view, card == nullptr ? "" : card->driver);
        if (!LacksProvider(view, port.device) && library.Fits()) continue;
        Report<found::kRdmaProvider>(
            out, port.device, library.Text(),
            library.providers.empty() ? "none that is known" : Joined(library.providers));
        out.EstimateCost(TcpQuestion(view));
        return true;
    }
    return false;
}

std::string StateText(const RdmaPort& port) {
    return fmt::format("{}: state {}, physical {}, {} {}", port.Text(), port.state,
                       port.physical.empty() ? "unknown" : port.physical, port.link_layer,
                       port.rate);
}

struct OtherPorts {
    bool active = false;
    bool on_card = false;         // active, on the same card
    bool on_card_unlike = false;  // active, with the other protocol
    bool unread = false;
};

bool AreOnOneCard(const RdmaPort& a, const RdmaPort& b) {
    return a.device == b.device || (!a.image.empty() && a.image == b.image) ||
           IsOneCard(a.pci, b.pci);
}

// Enables a disabled port.
std::string EnableFix(HostView& view, const RdmaPort& port) {
    const std::vector<std::string> interfaces = RdmaInterfaces(view, port);
    const std::string device = ShellWord(port.device);
    std::string name = interfaces.empty() ? "" : ShellWord(interfaces.front());
    const std::string by_port = fmt::format("sudo ibportstate -C {} {} enable", device, port.port);
    if (name.empty() && !port.ethernet()) return by_port;
    if (name.empty()) {
        name = fmt::format("\"$(rdma link show {}/{} | sed 's/.*netdev //; s/ .*//')\"", device,
                           port.port);
    }
    // ibportstate does not handle Ethernet.
    return fmt::format("sudo ip link set dev {} up{}", name,
                       port.ethernet() ? "" : ", or: " + by_port);
}

// Whether a port that is down is meant to be used: its interface has an address, or the driver
// reported a plugged cable.
bool IsMeantToBeUsed(HostView& view, const RdmaPort& port) {
    for (const std::string& name : RdmaInterfaces(view, port)) {
        const NetDevice* device = FindNetDevice(view, name);
        // A link-local address is assigned automatically.
        if (device != nullptr && !std::ranges::all_of(device->addresses, &Ipv4::IsLinkLocal)) {
            return true;
        }
    }
    bool plugged = false;
    for (const LogLine& line : KernelLogLines(view)) {
        if (port.pci.empty() || PciAddressIn(line.known) != port.pci) continue;
        const auto module = NumberAfter(line.lower, "module ");
        if (!module || static_cast<int64_t>(*module) != port.port - 1) continue;
        if (Contains(line.lower, "cable plugged")) plugged = true;
        if (Contains(line.lower, "cable unplugged")) plugged = false;
    }
    return plugged;
}

void EstimateRateCost(const RdmaPort& port, double gigabits, Findings& out) {
    const auto link = PortLink(port);
    if (!link || gigabits <= link->gigabits) return;
    EstimateLinkCost(out, link,
                     [&](HostLink&, HostLink& expected) { expected.gigabits = gigabits; });
}

void CheckActive(const RdmaPort& port, Findings& out) {
    const std::string read = StateText(port);
    const double min_rate = LeastRateOf(port);
    const char* generation = min_rate >= 56   ? "FDR 56 Gb/s or more"
                             : min_rate >= 40 ? "QDR 40 or FDR 56 Gb/s"
                                              : "QDR 40, FDR 56, EDR 100 Gb/s";
    const bool slow = min_rate > 0 && port.gigabits > 0 && port.gigabits < min_rate * 0.7;
    const bool sdr = Contains(port.rate, "SDR") && port.gigabits <= 10;
    if (!port.infiniband()) {
        out.Ok(read);
    } else if (Contains(port.rate, "(1X")) {  // one of four lanes: "25 Gb/sec (1X EDR)"
        Report<found::kPortOneLane>(out, read, port.gigabits / 8, port.gigabits / 2);
        EstimateRateCost(port, port.gigabits * 4, out);
    } else if (slow || sdr) {
        Report<found::kPortSlow>(out, read, generation, port.gigabits / 8);
        EstimateRateCost(port, min_rate, out);
    } else if (Contains(port.rate, "DDR") && port.gigabits <= 20) {
        // DDR is also the full speed of cards before ConnectX-2.
        Report<found::kPortDdr>(out, read, generation);
    } else {
        out.Ok(read);
    }
}

// The protocol that the port does not have now.
const char* OtherProtocol(const RdmaPort& port) {
    return port.ethernet() ? "InfiniBand" : "Ethernet";
}

void CheckDown(HostView& view, const RdmaPort& port, const OtherPorts& others, Findings& out) {
    // The port may be the unused one of a card with two ports and one cable.
    const bool idle = IsOneOf(port.physical, "Polling Disabled");
    std::string read = StateText(port);
    if (others.on_card && idle) {
        return ReportOk(out, "{}: not in use, another port of the card is", read);
    }
    std::string fix = port.physical == "Disabled"
                          ? EnableFix(view, port)
                          : "plug in the cable on both ends, try another cable, set the same "
                            "speed and FEC on both ends; 'rdma link' shows the state";
    if (port.mellanox()) {
        fix += fmt::format("; if the other end uses {}, set this port to it: {}",
                           OtherProtocol(port), SetLinkType(view, port, port.ethernet()));
    }
    if (others.unread) read += "; the state of another port could not be read";
    ReportAs<found::kPortDown>(others.active || others.unread ? kNote : kFail, out, read,
                               others.active && !others.unread
                                   ? "another port is up"
                                   : "no link: Weft falls back to another network",
                               fix);
}

void CheckPort(HostView& view, const RdmaPort& port, const OtherPorts& others, Findings& out) {
    const std::string read = StateText(port);
    if (port.active()) return CheckActive(port, out);
    if (port.no_guid && port.infiniband()) {
        // A virtual function without GUIDs never comes up.
        return ReportAs<found::kPortNoGuid>(others.active || others.unread ? kNote : kFail, out,
                                            read);
    }
    if (port.state == "INIT" || port.state == "ARMED") {
        return Report<found::kPortNoManager>(out, read, StartManager(view, port));
    }
    // A VPI card supports both protocols, separately for each port.
    if (others.on_card_unlike && port.mellanox()) {
        const bool meant = IsMeantToBeUsed(view, port);
        return ReportAs<found::kPortProtocol>(
            meant ? kWarn : kNote, out, read, OtherProtocol(port),
            meant ? "a port of a VPI card in the wrong mode stays down: its cable carries nothing"
                  : "the mode does not matter while no cable is in the port",
            SetLinkType(view, port, port.ethernet()));
    }
    CheckDown(view, port, others, out);
}

}  // namespace

void RunRdmaDevice(HostView& view, Findings& out) {
    const std::vector<RdmaPort>& ports = RdmaPorts(view);
    if (ports.empty()) {
        return HasSlingshot(view) ? Report<found::kSlingshot>(out) : CheckModules(view, out);
    }
    const bool only_software = std::ranges::all_of(ports, &RdmaPort::software);
    std::vector<std::string> good;
    for (const RdmaPort& port : ports) {
        if (port.software()) {
            CheckSoftware(view, port, only_software, out);
        } else if (port.iwarp) {
            CheckIwarp(port, out);
        } else {
            good.push_back(port.Text());
        }
    }
    if (!good.empty()) out.Ok(ListText(good));
}

void RunRdmaGid(HostView& view, Findings& out) {
    if (!HasRdma(view)) return;
    const std::vector<RdmaPort>& ports = RdmaPorts(view);
    const bool any_active = std::ranges::any_of(ports, &RdmaPort::active);
    for (const RdmaPort& port : ports) {
        const bool other = std::ranges::any_of(ports, [&](const RdmaPort& one) {
            return (one.device != port.device || one.port != port.port) && one.active() &&
                   std::ranges::any_of(RdmaGids(view, one), IsGood);
        });
        // A port with few known facts may be unused.
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
        const std::string proven = ProvenDevice(view);
        if (!proven.empty()) return Report<found::kRdmaAccessFine>(out, proven);
        if (HasTag(view, "container")) return Report<found::kRdmaNotInContainer>(out);
        Report<found::kRdmaNoNode>(out);
        return out.EstimateCost(TcpQuestion(view));
    }
    for (const std::string& device : devices) {
        const Reading access = view.Probe("access/dev/infiniband/" + device);
        if (!access.found() || Trim(access.text) == "rw") continue;
        Report<found::kRdmaDenied>(out, device, Trim(access.text));
        return out.EstimateCost(TcpQuestion(view));
    }
    Report<found::kRdmaAccessFine>(out, "/dev/infiniband: " + Joined(devices));
}

void RunRdmaLibrary(HostView& view, Findings& out) {
    constexpr Version kOld = {{30, 0, 0}};
    if (!HasRdma(view)) return;
    const auto [text, missing] = ReadPackage(view);
    if (text.empty()) {
        if (missing) return Report<found::kRdmaCoreMissing>(out);
        CheckProviders(view, out);
        return;
    }
    if (CheckProviders(view, out)) return;
    const auto version = PackageVersion(text);
    if (!version) return;
    ReportUnless<found::kRdmaCore>(*version >= kOld, out,
                                   text.starts_with("rdma-core ") ? text : "rdma-core " + text);
}

// ---- rdma-mtu: packet size of RoCE, set by the interface's MTU.

void RunRdmaMtu(HostView& view, Findings& out) {
    constexpr int kMaxSize = 4096;
    constexpr int kGap = 20;      // preamble and gap between Ethernet packets
    constexpr int kHeaders = 70;  // of RoCE v2 in an Ethernet packet: IP, UDP, BTH, RETH, checksums
    // Share of the wire's bytes that is data, with packets of this size.
    const auto share = [](int size) {
        return static_cast<double>(size) / (size + kHeaders + kGap);
    };
    for (const RdmaPort& port : RdmaPorts(view)) {
        if (!port.ethernet() || !port.active()) continue;
        for (const std::string& name : RdmaInterfaces(view, port)) {
            const NetDevice* device = FindNetDevice(view, name);
            if (device == nullptr || device->mtu == 0) continue;
            int size = kMaxSize;
            while (size > 256 && device->mtu < size + kHeaders) size /= 2;
            const bool fine = size == kMaxSize;
            ReportUnless<found::kRdmaMtu>(fine, out, port.Text(), name, device->mtu, size,
                                          8192 / size, 100 * share(size), 100 * share(kMaxSize),
                                          SetMtu(view, name, 9000));
            if (fine) continue;
            EstimateLinkCost(out, PortLink(port), [&](HostLink& actual, HostLink&) {
                actual.share = share(size) / share(kMaxSize);
            });
        }
    }
}

void RunRdmaPort(HostView& view, Findings& out) {
    const std::vector<RdmaPort>& ports = RdmaPorts(view);
    for (const RdmaPort& port : ports) {
        OtherPorts others;
        for (const RdmaPort& other : ports) {
            const bool on_card = other.active() && AreOnOneCard(port, other);
            others.active |= other.active() && !other.software();
            others.on_card |= on_card;
            others.on_card_unlike |= on_card && !port.link_layer.empty() &&
                                     !other.link_layer.empty() &&
                                     port.link_layer != other.link_layer;
            others.unread |= other.state.empty();
        }
        if (!port.state.empty()) CheckPort(view, port, others, out);
    }
}

}  // namespace weft::doctor::checks
