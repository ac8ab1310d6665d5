#include "net/verbs_device.h"

#include <arpa/inet.h>
#include <fmt/ranges.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

namespace weft::net {
namespace {

namespace fs = std::filesystem;

constexpr Gid kIpv4Prefix = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 0, 0, 0, 0};
constexpr size_t kIpv4At = 12;
constexpr int kMostGids = 256;  // ibv_global_route::sgid_index has 8 bits
// The kernel fills the first free entry, so this many empty entries mean the end of the table. Each
// file takes up to three system calls.
constexpr int kLongestGidGap = 64;
constexpr uint16_t kMostLid = 0xbfff;  // above: multicast
constexpr uint32_t kMost24 = 0xffffff;

// The first line of a small file; "": it can't be read (empty GIDs return an error).
std::string Line(const fs::path& path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    while (!line.empty() && (line.back() == ' ' || line.back() == '\n')) line.pop_back();
    return line;
}

// Sorted names in a folder; empty if there is no such folder.
std::vector<std::string> NamesIn(const fs::path& folder) {
    std::vector<std::string> names;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(folder, none)) {
        names.push_back(entry.path().filename().string());
    }
    std::sort(names.begin(), names.end());
    return names;
}

std::optional<int> Number(std::string_view text) {
    int value = 0;
    const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
    if (parsed.ec != std::errc() || parsed.ptr != text.data() + text.size() || value < 0) return {};
    return value;
}

// Entries are allocated from the front, so a long gap is the end: reading a file for each of
// hundreds of places takes tens of milliseconds.
std::vector<GidEntry> ListGids(const fs::path& port) {
    std::vector<GidEntry> gids;
    int empty = 0;
    for (int index = 0; index < kMostGids && empty < kLongestGidGap; ++index) {
        const std::string name = std::to_string(index);
        GidEntry entry;
        entry.index = index;
        entry.gid = GidOfAddress(Line(port / "gids" / name));
        ++empty;
        if (entry.gid == Gid{}) continue;
        empty = 0;
        entry.roce_v2 = Line(port / "gid_attrs" / "types" / name) == "RoCE v2";
        gids.push_back(entry);
    }
    return gids;
}

// On a port of another link layer: the address that the port has.
void UseReportedAddress(const fs::path& folder, RdmaPort& port) {
    const std::string lid = Line(folder / "lid");  // "0x1"
    port.infiniband = port.gids.empty() && !lid.empty() && lid != "0x0";
    const bool any_v2 = std::ranges::any_of(port.gids, &GidEntry::roce_v2);
    for (GidEntry& entry : port.gids) entry.roce_v2 = entry.roce_v2 || !any_v2;
}

// The interfaces of a device's port: interfaces of the same PCI function with that dev_port.
std::vector<std::string> ListNetdevs(const fs::path& device, int port) {
    std::vector<std::string> netdevs;
    for (const std::string& name : NamesIn(device / "device" / "net")) {
        if (Number(Line(device / "device" / "net" / name / "dev_port")).value_or(0) == port - 1) {
            netdevs.push_back(name);
        }
    }
    return netdevs;
}

std::string Listed(const std::vector<RdmaPort>& ports) {
    std::vector<std::string> words;
    for (const RdmaPort& port : ports) {
        std::vector<std::string> addresses;
        for (const GidEntry& entry : port.gids) {
            if (entry.roce_v2 && IsIpv4(entry.gid)) addresses.push_back(GidText(entry.gid));
        }
        if (!port.active) addresses.push_back(port.state.empty() ? "state unknown" : port.state);
        words.push_back(addresses.empty()
                            ? port.Name()
                            : fmt::format("{} ({})", port.Name(), fmt::join(addresses, ", ")));
    }
    return words.empty() ? "none" : fmt::format("{}", fmt::join(words, ", "));
}

const GidEntry* FindRoce(const RdmaPort& port, const Gid& gid) {
    for (const GidEntry& entry : port.gids) {
        if (entry.roce_v2 && entry.gid == gid) return &entry;
    }
    return nullptr;
}

// The GID of a RoCE port when no address selects one: the first of IPv4, else the first.
const GidEntry* AnyRoce(const RdmaPort& port) {
    const GidEntry* any = nullptr;
    for (const GidEntry& entry : port.gids) {
        if (!entry.roce_v2) continue;
        if (IsIpv4(entry.gid)) return &entry;
        if (any == nullptr) any = &entry;
    }
    return any;
}

Error Inactive(const RdmaPort& port) {
    return MakeError(ErrorCode::kNotFound, "RDMA port {} is not active (state '{}'). {}",
                     port.Name(), port.state,
                     port.infiniband ? "Is the cable in, and does a subnet manager (opensm) run?"
                                     : "Is the cable in, and the interface up ('ip link')?");
}

// The path over `port`: with the requested GID, with the GID of `address`, or with any GID.
Result<RdmaPath> PathOver(const RdmaPort& port, int gid_index, const Gid& address) {
    if (!port.active) return Inactive(port);
    RdmaPath path{port.device, port.port, port.infiniband, 0, {}};
    const GidEntry* entry = nullptr;
    if (gid_index >= 0) {
        for (const GidEntry& each : port.gids) {
            if (each.index == gid_index) entry = &each;
        }
        if (entry == nullptr) {
            return MakeError(ErrorCode::kUsage,
                             "--gid-index {}: port {} has no GID there. 'rdma link' and "
                             "/sys/class/infiniband/{}/ports/{}/gids list them.",
                             gid_index, port.Name(), port.device, port.port);
        }
        if (!port.infiniband && !entry->roce_v2) {
            return MakeError(ErrorCode::kUsage,
                             "--gid-index {}: that GID of port {} is not of type RoCE v2, which "
                             "routed Ethernet needs. Leave --gid-index out, and weft picks one.",
                             gid_index, port.Name());
        }
    } else if (port.infiniband) {
        entry = port.gids.empty() ? nullptr : &port.gids.front();
    } else {
        entry = FindRoce(port, address);
        if (entry == nullptr) entry = AnyRoce(port);
        if (entry == nullptr) {
            return MakeError(ErrorCode::kNotFound,
                             "RDMA port {} has no GID of type RoCE v2. Give its interface an "
                             "address: 'ip address add 10.0.0.1/24 dev ...'.",
                             port.Name());
        }
    }
    if (entry != nullptr) {
        path.gid_index = entry->index;
        path.gid = entry->gid;
    }
    return path;
}

Result<RdmaPath> ChooseNamed(const std::vector<RdmaPort>& ports, const RdmaSetting& wish,
                             const Gid& address) {
    const size_t colon = wish.device.find(':');
    const std::string device = wish.device.substr(0, colon);
    std::optional<int> number;
    if (colon != std::string::npos) {
        number = Number(std::string_view(wish.device).substr(colon + 1));
        if (!number) {
            return MakeError(ErrorCode::kUsage, "--rdma-device {}: expected DEVICE or DEVICE:PORT",
                             wish.device);
        }
    }
    const RdmaPort* found = nullptr;
    for (const RdmaPort& port : ports) {
        if (port.device != device || (number && port.port != *number)) continue;
        if (found == nullptr || (!found->active && port.active)) found = &port;
    }
    if (found != nullptr) return PathOver(*found, wish.gid_index, address);
    return MakeError(ErrorCode::kNotFound,
                     "--rdma-device {}: no such device or port. This host has: {}", wish.device,
                     Listed(ports));
}

}  // namespace

std::string GidText(const Gid& gid) {
    char text[INET6_ADDRSTRLEN] = "";
    if (IsIpv4(gid)) {
        ::inet_ntop(AF_INET, gid.data() + kIpv4At, text, sizeof text);
    } else {
        ::inet_ntop(AF_INET6, gid.data(), text, sizeof text);
    }
    return text;
}

bool IsIpv4(const Gid& gid) {
    return std::equal(gid.begin(), gid.begin() + kIpv4At, kIpv4Prefix.begin());
}

Gid GidOfAddress(const std::string& address) {
    const std::string bare = address.substr(0, address.find('%'));  // "fe80::1%eth0"
    Gid gid{};
    if (::inet_pton(AF_INET6, bare.c_str(), gid.data()) == 1) return gid;
    gid = kIpv4Prefix;
    if (::inet_pton(AF_INET, bare.c_str(), gid.data() + kIpv4At) == 1) return gid;
    return {};
}

bool IsLoopbackAddress(const std::string& address) {
    const Gid gid = GidOfAddress(address);
    return gid == GidOfAddress("::1") || (IsIpv4(gid) && gid[kIpv4At] == 127);
}

std::string RdmaPort::Name() const {
    return fmt::format("{}:{}", device, port);
}

std::vector<RdmaPort> ListRdmaPorts(const HostRoots& roots) {
    std::vector<RdmaPort> ports;
    const fs::path root = fs::path(roots.sys) / "class" / "infiniband";
    for (const std::string& device : NamesIn(root)) {
        for (const std::string& name : NamesIn(root / device / "ports")) {
            const std::optional<int> number = Number(name);
            if (!number) continue;
            const fs::path folder = root / device / "ports" / name;
            RdmaPort port;
            port.device = device;
            port.port = *number;
            const std::string layer = Line(folder / "link_layer");
            port.infiniband = layer == "InfiniBand";
            port.other_layer = !port.infiniband && layer != "Ethernet";
            port.state = Line(folder / "state");
            port.active = port.state.find("ACTIVE") != std::string::npos;
            port.netdevs = ListNetdevs(root / device, *number);
            port.gids = ListGids(folder);
            if (port.other_layer) UseReportedAddress(folder, port);
            ports.push_back(std::move(port));
        }
    }
    return ports;
}

Result<RdmaPath> ChooseRdmaPath(const std::vector<RdmaPort>& ports,
                                const std::vector<LocalAddress>& addresses,
                                const RdmaSetting& wish) {
    const Gid address = GidOfAddress(wish.address);
    if (!wish.device.empty()) return ChooseNamed(ports, wish, address);
    const auto active = [](const RdmaPort& port) { return port.active; };
    if (wish.address.empty() || IsLoopbackAddress(wish.address)) {
        // Within the host any active port reaches itself.
        Result<RdmaPath> path = MakeError(ErrorCode::kNotFound, "there is no RDMA port");
        for (const RdmaPort& port : ports) {
            path = PathOver(port, wish.gid_index, address);
            if (path.ok()) return path;
        }
        return path;
    }
    for (const RdmaPort& port : ports) {
        if (FindRoce(port, address) != nullptr) return PathOver(port, wish.gid_index, address);
    }
    std::string netdev;
    for (const LocalAddress& local : addresses) {
        if (GidOfAddress(local.address) == address) netdev = local.netdev;
    }
    for (const RdmaPort& port : ports) {
        const auto& own = port.netdevs;
        if (port.infiniband && std::find(own.begin(), own.end(), netdev) != own.end()) {
            return PathOver(port, wish.gid_index, address);
        }
    }
    // An InfiniBand fabric or a cable needs no IP: a single active port needs no choice.
    if (std::count_if(ports.begin(), ports.end(), active) == 1) {
        const RdmaPort& only = *std::find_if(ports.begin(), ports.end(), active);
        if (only.infiniband || only.other_layer) return PathOver(only, wish.gid_index, address);
    }
    return MakeError(
        ErrorCode::kNotFound,
        "the peers reach this host at {}{}, but no RDMA port has that address. RDMA ports: {}. "
        "Name the hosts by the addresses of those ports, or give --rdma-device.",
        wish.address, netdev.empty() ? "" : fmt::format(" (interface {})", netdev), Listed(ports));
}

Status CheckRdmaHost(const std::vector<RdmaPort>& ports, const HostRoots& roots) {
    if (ports.empty()) {
        return MakeError(
            ErrorCode::kNotFound,
            "this host has no RDMA device: {}/class/infiniband is empty. Is the card's "
            "driver loaded ('lspci -k', 'rdma link')? Soft-RoCE over any Ethernet: "
            "'modprobe rdma_rxe && rdma link add rxe0 type rxe netdev eth0'.",
            roots.sys);
    }
    std::error_code none;
    if (!fs::exists(fs::path(roots.dev) / "infiniband", none)) {
        return MakeError(ErrorCode::kNotFound,
                         "{}/infiniband is missing, though RDMA port {} exists. Load the module "
                         "('modprobe ib_uverbs'); in a container pass the devices in "
                         "('--device={}/infiniband').",
                         roots.dev, ports.front().Name(), roots.dev);
    }
    return {};
}

Status CheckRdmaDevice(const std::string& device, const HostRoots& roots) {
    const fs::path nodes = fs::path(roots.sys) / "class" / "infiniband_verbs";
    for (const std::string& name : NamesIn(nodes)) {
        if (Line(nodes / name / "ibdev") != device) continue;
        const std::string node = (fs::path(roots.dev) / "infiniband" / name).string();
        if (::access(node.c_str(), R_OK | W_OK) == 0) return {};
        if (errno == EACCES || errno == EPERM) {
            return MakeError(ErrorCode::kDenied,
                             "no permission for {} (RDMA device {}). Allow it: 'chmod a+rw {}', or "
                             "a udev rule; rdma-core's own rules do so.",
                             node, device, node);
        }
        return MakeError(ErrorCode::kNotFound,
                         "{} (RDMA device {}): {}. In a container pass the devices in "
                         "('--device={}/infiniband').",
                         node, device, std::strerror(errno), roots.dev);
    }
    return MakeError(ErrorCode::kNotFound,
                     "RDMA device {} has no uverbs node. Load the module: 'modprobe ib_uverbs'.",
                     device);
}

Error RegistrationError(size_t bytes, uint64_t limit_bytes, int error) {
    if (error == ENOMEM && limit_bytes != ~uint64_t{0}) {
        return MakeError(
            ErrorCode::kOutOfMemory,
            "registering {} KiB for RDMA failed: this process may lock {} KiB in memory ('ulimit "
            "-l'). Raise it: '* soft memlock unlimited' and '* hard memlock unlimited' in "
            "/etc/security/limits.conf, then log in again; LimitMEMLOCK=infinity in a systemd "
            "unit; '--ulimit memlock=-1' for a container.",
            bytes >> 10, limit_bytes >> 10);
    }
    return MakeError(ErrorCode::kOutOfMemory, "registering {} KiB for RDMA failed: {}", bytes >> 10,
                     std::strerror(error));
}

bool Plausible(const VerbsAddress& address, uint64_t window_bytes) {
    const bool lid =
        address.infiniband ? address.lid > 0 && address.lid <= kMostLid : address.lid == 0;
    const bool gid = address.infiniband || address.gid != Gid{};
    return lid && gid && address.mtu >= 1 && address.mtu <= 5 && address.qpn > 1 &&
           address.qpn <= kMost24 && address.psn <= kMost24 && address.region != 0 &&
           address.region % 64 == 0 && window_bytes <= ~uint64_t{0} - kVerbsWindowAt &&
           address.region <= ~uint64_t{0} - kVerbsWindowAt - window_bytes;
}

std::string WhyNotJoined(const VerbsAddress& a, const VerbsAddress& b) {
    const auto layer = [](const VerbsAddress& end) {
        return end.infiniband ? "InfiniBand" : "RoCE (Ethernet)";
    };
    if (a.infiniband != b.infiniband) {
        return fmt::format("one end is {}, the other {}", layer(a), layer(b));
    }
    if (!a.infiniband && IsIpv4(a.gid) != IsIpv4(b.gid)) {
        return fmt::format("one end's GID is {}, the other's {}: IPv4 and IPv6", GidText(a.gid),
                           GidText(b.gid));
    }
    return "";
}

}  // namespace weft::net
