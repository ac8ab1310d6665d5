#include "fleet/cable_map.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <map>
#include <memory>

#include "net/verbs_device.h"

namespace weft::fleet {
namespace {

constexpr size_t kMostWires = 32;
constexpr int kTurns = 64;  // datagrams dropped in one call

uint32_t WireSpeed(const std::string& interface) {
    std::ifstream file("/sys/class/net/" + interface + "/speed");
    int mbps = 0;
    return file >> mbps && mbps > 0 ? static_cast<uint32_t>(mbps) : 0;
}

std::string RdmaOf(const std::vector<net::RdmaPort>& ports, const std::string& interface) {
    for (const net::RdmaPort& port : ports) {
        const bool on = std::ranges::find(port.netdevs, interface) != port.netdevs.end();
        if (on && port.active) return port.Name();
    }
    return "";
}

std::string AddressText(const in6_addr& address) {
    char text[INET6_ADDRSTRLEN] = "";
    ::inet_ntop(AF_INET6, &address, text, sizeof text);
    return text;
}

sockaddr_in6 GroupAt(int index) {
    sockaddr_in6 to{};
    to.sin6_family = AF_INET6;
    to.sin6_port = htons(kDiscoveryPort);
    to.sin6_scope_id = static_cast<uint32_t>(index);
    ::inet_pton(AF_INET6, kDiscoveryGroup, &to.sin6_addr);
    return to;
}

// A kernel setting of IPv6 on an interface; -1: unknown.
int Ipv6Setting(const std::string& interface, const char* name) {
    std::ifstream file("/proc/sys/net/ipv6/conf/" + interface + "/" + name);
    int value = 0;
    return file >> value ? value : -1;
}

std::string NoAddressTrouble(const std::string& interface) {
    const int disabled = Ipv6Setting(interface, "disable_ipv6");
    if (disabled < 0) {
        return "IPv6 is off on it, as on any interface with an MTU below 1280: ip link set " +
               interface + " mtu 1500";
    }
    if (disabled == 0 && Ipv6Setting(interface, "addr_gen_mode") == 1) {
        return fmt::format(
            "its settings forbid an IPv6 link-local address: ip link set {} addrgenmode eui64, "
            "then down and up; with NetworkManager ipv6.method link-local",
            interface);
    }
    std::string key = interface;  // "eth0.100" has a dot of its own
    std::ranges::replace(key, '.', '/');
    return disabled == 0 ? "it has no IPv6 link-local address"
                         : fmt::format(
                               "it has no IPv6 link-local address: sysctl "
                               "net.ipv6.conf.{}.disable_ipv6=0",
                               key);
}

std::string TroubleOf(const Wire& wire, unsigned flags) {
    if ((flags & IFF_MULTICAST) == 0) return "it has no multicast (a tunnel?)";
    return wire.address.empty() ? NoAddressTrouble(wire.name) : "";
}

bool HasEntry(const std::string& interface, const char* name) {
    return ::access(("/sys/class/net/" + interface + "/" + name).c_str(), F_OK) == 0;
}

// Keeps the interfaces that may lead to hosts, at most kMostWires: cards before bridges and
// tunnels, of which a container host has hundreds. A bridge receives all packets of its ports.
void KeepLeading(std::vector<Wire>& wires) {
    std::erase_if(wires, [](const Wire& wire) {
        return HasEntry(wire.name, "brport") || HasEntry(wire.name, "bonding_slave");
    });
    std::map<std::string, bool> virtual_ones;
    for (const Wire& wire : wires) virtual_ones[wire.name] = !HasEntry(wire.name, "device");
    std::ranges::sort(wires, {}, [&](const Wire& wire) {
        return std::pair(virtual_ones[wire.name], wire.index);
    });
    if (wires.size() > kMostWires) wires.resize(kMostWires);
    std::ranges::sort(wires, {}, &Wire::name);
}

// The interface on which a datagram arrived; 0: unknown.
int IndexOf(msghdr& message) {
    for (cmsghdr* at = CMSG_FIRSTHDR(&message); at != nullptr; at = CMSG_NXTHDR(&message, at)) {
        if (at->cmsg_level != IPPROTO_IPV6 || at->cmsg_type != IPV6_PKTINFO) continue;
        in6_pktinfo info{};
        std::memcpy(&info, CMSG_DATA(at), sizeof info);
        return static_cast<int>(info.ipi6_ifindex);
    }
    return 0;
}

}  // namespace

std::vector<Wire> ListWires() {
    std::map<std::string, std::pair<Wire, unsigned>> found;
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return {};
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
        const unsigned flags = at->ifa_flags;
        const bool leads = (flags & IFF_UP) != 0 && (flags & IFF_RUNNING) != 0;
        if (!leads || (flags & IFF_LOOPBACK) != 0) continue;
        const std::string_view label = at->ifa_name;  // "eth0:1" is an address of eth0
        const std::string name(label.substr(0, label.find(':')));
        auto& [wire, its_flags] = found[name];
        wire.name = name;
        its_flags = flags;
        if (at->ifa_addr == nullptr || at->ifa_addr->sa_family != AF_INET6) continue;
        const in6_addr& address = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr)->sin6_addr;
        if (IN6_IS_ADDR_LINKLOCAL(&address)) wire.address = AddressText(address);
    }
    std::vector<Wire> wires;
    for (auto& [name, each] : found) {
        each.first.index = static_cast<int>(::if_nametoindex(name.c_str()));
        if (each.first.index > 0) wires.push_back(each.first);
    }
    KeepLeading(wires);
    const std::vector<net::RdmaPort> ports = net::ListRdmaPorts();
    for (Wire& wire : wires) {
        wire.mbps = WireSpeed(wire.name);
        wire.rdma = RdmaOf(ports, wire.name);
        wire.trouble = TroubleOf(wire, found[wire.name].second);
    }
    return wires;
}

Result<DiscoverySocket> DiscoverySocket::Open() {
    Fd fd(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!fd.valid()) {
        return MakeError(ErrorCode::kUnsupported,
                         "hosts find each other by IPv6, which this kernel lacks: {}. Name them "
                         "instead, with --hosts or in the cluster's file",
                         std::strerror(errno));
    }
    const int on = 1, off = 0;
    const auto set = [&](int level, int option, const int& value) {
        return ::setsockopt(fd.get(), level, option, &value, sizeof value) == 0;
    };
    // `weft up` and querying commands share the port; they don't receive each other's datagrams.
    const bool ready = set(SOL_SOCKET, SO_REUSEADDR, on) && set(IPPROTO_IPV6, IPV6_V6ONLY, on) &&
                       set(IPPROTO_IPV6, IPV6_RECVPKTINFO, on) &&
                       set(IPPROTO_IPV6, IPV6_MULTICAST_LOOP, off);
    // Beacons of hundreds of hosts may arrive at once. (The kernel may grant less.)
    set(SOL_SOCKET, SO_RCVBUF, 1 << 20);
    sockaddr_in6 any{};
    any.sin6_family = AF_INET6;
    any.sin6_port = htons(kDiscoveryPort);
    if (!ready || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any) != 0) {
        return MakeError(ErrorCode::kIo, "cannot hear beacons at UDP port {}: {}", kDiscoveryPort,
                         std::strerror(errno));
    }
    return DiscoverySocket(std::move(fd));
}

void DiscoverySocket::Join(std::vector<Wire>& wires) {
    std::vector<std::pair<std::string, int>> there;
    for (const Wire& wire : wires) there.emplace_back(wire.name, wire.index);
    std::erase_if(joined_, [&](const auto& each) {
        return std::ranges::find(there, each) == there.end();  // it disappeared
    });
    for (Wire& wire : wires) {
        const std::pair<std::string, int> key(wire.name, wire.index);
        if (!wire.trouble.empty() || std::ranges::find(joined_, key) != joined_.end()) continue;
        ipv6_mreq request{};
        request.ipv6mr_multiaddr = GroupAt(wire.index).sin6_addr;
        request.ipv6mr_interface = static_cast<unsigned>(wire.index);
        const int done =
            ::setsockopt(fd_.get(), IPPROTO_IPV6, IPV6_JOIN_GROUP, &request, sizeof request);
        if (done != 0 && errno != EADDRINUSE) {
            wire.trouble = fmt::format("no multicast: {}", std::strerror(errno));
        } else {
            joined_.push_back(key);
        }
    }
}

Status DiscoverySocket::Send(const Wire& wire, View bytes) const {
    const sockaddr_in6 to = GroupAt(wire.index);
    const ssize_t put = ::sendto(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                                 reinterpret_cast<const sockaddr*>(&to), sizeof to);
    if (put == static_cast<ssize_t>(bytes.size())) return {};
    return MakeError(ErrorCode::kIo, "{}", std::strerror(errno));
}

std::optional<Datagram> DiscoverySocket::Receive() const {
    for (int turn = 0; turn < kTurns; ++turn) {
        Datagram datagram;
        datagram.bytes.resize(kMostPacket + 1);  // a longer datagram is not a beacon
        sockaddr_in6 from{};
        alignas(cmsghdr) std::array<char, 256> control{};
        iovec part{datagram.bytes.data(), datagram.bytes.size()};
        msghdr message{};
        message.msg_name = &from;
        message.msg_namelen = sizeof from;
        message.msg_iov = &part;
        message.msg_iovlen = 1;
        message.msg_control = control.data();
        message.msg_controllen = control.size();
        const ssize_t got = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return std::nullopt;
        datagram.bytes.resize(static_cast<size_t>(got));
        char name[IF_NAMESIZE] = "";
        const int index = IndexOf(message);
        if (!IN6_IS_ADDR_LINKLOCAL(&from.sin6_addr) || index == 0 ||
            ::if_indextoname(static_cast<unsigned>(index), name) == nullptr) {
            continue;
        }
        datagram.interface = name;
        datagram.address = AddressText(from.sin6_addr);
        return datagram;
    }
    return std::nullopt;
}

}  // namespace weft::fleet
