#include "doctor/path.h"

#include <fmt/format.h>

#include <algorithm>

#include "doctor/network.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostPaths = 16;
constexpr int kHeaders = 28;  // IPv4 and ICMP

}  // namespace

std::vector<Path> PathsFrom(HostView& host, Hosts hosts) {
    std::vector<Path> paths;
    const std::vector<NetDevice>& own = NetDevices(host);
    for (const auto& other : hosts) {
        if (other.get() == &host) continue;
        for (const NetDevice& theirs : NetDevices(*other)) {
            for (const Ipv4& to : theirs.addresses) {
                for (const NetDevice& device : own) {
                    const bool shared = std::ranges::any_of(device.addresses, [&](const Ipv4& a) {
                        return a.prefix == to.prefix && a.network() == to.network() &&
                               a.bits != to.bits && !a.IsLoopback() && a.prefix < 32;
                    });
                    if (!shared || !device.up || device.mtu < 576 || paths.size() >= kMostPaths) {
                        continue;
                    }
                    paths.push_back({device.name, to.Text(), other->host(), device.mtu});
                }
            }
        }
    }
    return paths;
}

std::string PingCommand(const Path& path, int bytes) {
    return fmt::format("ping -c 1 -W 1 -M do -s {} {}", std::min(bytes, 65000) - kHeaders,
                       path.address);
}

}  // namespace weft::doctor
