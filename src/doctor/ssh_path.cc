#include "doctor/ssh_path.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "doctor/path.h"
#include "doctor/program.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr int64_t kAskMs = 10'000;  // for a busy machine; normal answers take at most a second
constexpr int kMostPing = 65000;

// The address that ssh connects to, by its configuration; "": it uses a jump host or proxy.
std::string SshAddress(const std::string& name) {
    const Result<Ran> ran = RunProgram({"ssh", "-G", "--", name}, Deadline::In(kAskMs), 1 << 20);
    if (!ran.ok() || ran->status != 0) return "";
    std::string address;
    for (std::string_view line : Lines(ran->out)) {
        const auto words = Words(line);
        if (words.size() < 2) continue;
        const bool by_other = words[0] == "proxyjump" || words[0] == "proxycommand";
        if (by_other && words[1] != "none") return "";
        if (words[0] == "hostname") address = std::string(words[1]);
    }
    return address;
}

using Addresses = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

Addresses Resolve(const std::string& host) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_DGRAM;
    addrinfo* found = nullptr;
    if (::getaddrinfo(host.c_str(), "22", &hints, &found) != 0) found = nullptr;
    return {found, [](addrinfo* list) {
                if (list != nullptr) ::freeaddrinfo(list);
            }};
}

std::string NumericAddress(const sockaddr* address, socklen_t length) {
    std::array<char, NI_MAXHOST> text{};
    const int failed =
        ::getnameinfo(address, length, text.data(), text.size(), nullptr, 0, NI_NUMERICHOST);
    return failed == 0 ? text.data() : "";
}

// The interface with this address.
std::string DeviceOf(const std::string& address) {
    ifaddrs* list = nullptr;
    if (::getifaddrs(&list) != 0) return "";
    std::string device;
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
        if (one->ifa_addr == nullptr) continue;
        const int family = one->ifa_addr->sa_family;
        if (family != AF_INET && family != AF_INET6) continue;
        const socklen_t length = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
        if (NumericAddress(one->ifa_addr, length) == address) device = one->ifa_name;
    }
    ::freeifaddrs(list);
    return device;
}

// The route to the address, found with a connected datagram socket, without sending packets.
std::optional<LostPackets> SshWayTo(const addrinfo& to) {
    const int fd = ::socket(to.ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) return {};
    LostPackets way;
    sockaddr_storage own{};
    socklen_t length = sizeof own, size = sizeof way.mtu;
    const bool v6 = to.ai_family == AF_INET6;
    const bool good = ::connect(fd, to.ai_addr, to.ai_addrlen) == 0 &&
                      ::getsockopt(fd, v6 ? IPPROTO_IPV6 : IPPROTO_IP, v6 ? IPV6_MTU : IP_MTU,
                                   &way.mtu, &size) == 0 &&
                      ::getsockname(fd, reinterpret_cast<sockaddr*>(&own), &length) == 0;
    ::close(fd);
    if (!good) return {};
    way.address = NumericAddress(to.ai_addr, to.ai_addrlen);
    way.device = DeviceOf(NumericAddress(reinterpret_cast<const sockaddr*>(&own), length));
    return way;
}

// Runs `ping` with one packet of `bytes` in all, without fragmentation.
bool Arrives(const LostPackets& way, int bytes, bool* tried) {
    const int headers = Contains(way.address, ":") ? 48 : 28;
    const Result<Ran> ran =
        RunProgram({"ping", "-c", "1", "-W", "1", "-M", "do", "-s",
                    std::to_string(std::min(bytes, kMostPing) - headers), way.address},
                   Deadline::In(kAskMs), 1 << 16);
    *tried = ran.ok() && Contains(ran->out, "packets transmitted");
    return *tried && Contains(ran->out, " 0% packet loss");
}

}  // namespace

std::optional<LostPackets> FindLostPackets(const std::string& name) {
    const std::string host = SshAddress(name);
    if (host.empty()) return {};
    const Addresses found = Resolve(host);
    for (const addrinfo* one = found.get(); one != nullptr; one = one->ai_next) {
        const auto way = SshWayTo(*one);
        if (!way || way->address.empty() || way->mtu <= kSmallPacket) continue;
        bool tried = false;
        if (!Arrives(*way, kSmallPacket, &tried)) continue;
        // Two attempts, because one packet may be lost by chance.
        bool whole = false;
        for (int i = 0; i < 2 && !whole; ++i) whole = Arrives(*way, way->mtu, &tried);
        return whole || !tried ? std::nullopt : way;
    }
    return {};
}

}  // namespace weft::doctor
