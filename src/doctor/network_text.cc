// Parses the plain output of iproute2 and ethtool.
#include "doctor/network_text.h"

#include <algorithm>
#include <array>

#include "doctor/network.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

constexpr size_t kMostTextLinks = 4096;

// "3: enp1s0f0np0: <BROADCAST,UP,LOWER_UP> mtu 9000 qdisc mq master br0 state UP group default",
// "4: bond0.100@bond0: <...> ..."
bool ReadLinkLine(std::string_view line, NetDevice& device) {
    const size_t colon = line.find(": ");
    if (colon == line.npos || !Integer(line.substr(0, colon))) return false;
    std::string_view name = line.substr(colon + 2);
    name = name.substr(0, name.find_first_of(":@ "));
    if (name.empty()) return false;
    device.name = std::string(name);
    const auto words = Words(line);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] == "mtu") {
            device.mtu =
                static_cast<int>(std::clamp(LeadingNumber(words[i + 1]).value_or(0), 0.0, 1e6));
        }
        if (words[i] == "master") device.master = std::string(words[i + 1]);
        if (words[i] == "state") {
            device.up = words[i + 1] == "UP";
            device.state_read = true;
        }
    }
    return true;
}

// "enp1s0  UP  10.0.0.1/24 fe80::1/64" from `ip -br addr`, "enp1s0  UP  02:00:.. <...>" from `ip
// -br link`.
bool ReadBriefLine(std::string_view line, NetDevice& device) {
    constexpr std::array<std::string_view, 6> kStates = {"UP",      "DOWN",           "UNKNOWN",
                                                         "DORMANT", "LOWERLAYERDOWN", "NOTPRESENT"};
    const auto words = Words(line);
    const bool brief = words.size() >= 2 && std::ranges::find(kStates, words[1]) != kStates.end() &&
                       !words[0].ends_with(':');
    if (!brief) return false;
    device.name = std::string(words[0].substr(0, words[0].find('@')));
    device.up = words[1] == "UP";
    device.state_read = true;
    const bool link = Contains(line, "<");
    device.addressed = !link;
    for (size_t i = 2; i < words.size() && !link; ++i) {
        if (const auto address = ParseIpv4(words[i])) device.addresses.push_back(*address);
    }
    return true;
}

// "inet 10.0.0.1/24 brd 10.0.0.255 scope global enp1s0f0np0"
void ReadInetLine(std::string_view line, NetDevice& device) {
    const auto words = Words(line);
    if (words.size() < 2 || words[0] != "inet") return;
    if (const auto address = ParseIpv4(words[1])) device.addresses.push_back(*address);
}

}  // namespace

std::vector<NetDevice> ParseIpText(std::string_view text) {
    std::vector<NetDevice> devices;
    // `ip link` prints no addresses, so none is known to be missing.
    const bool addresses = Contains(text, " inet ") || Contains(text, " inet6 ");
    for (std::string_view line : Lines(text)) {
        NetDevice device;
        if (!line.starts_with(' ') && ReadLinkLine(line, device)) {
            if (devices.size() >= kMostTextLinks) break;
            device.addressed = addresses;
            devices.push_back(std::move(device));
        } else if (!line.starts_with(' ') && ReadBriefLine(line, device)) {
            if (devices.size() >= kMostTextLinks) break;
            devices.push_back(std::move(device));
        } else if (!devices.empty()) {
            ReadInetLine(Trim(line), devices.back());
        }
    }
    return devices;
}

bool SaysInfiniband(std::string_view ip, std::string_view interface) {
    bool here = false;
    for (std::string_view line : Lines(ip)) {
        NetDevice device;
        if (!line.starts_with(' ') && ReadLinkLine(line, device)) {
            here = device.name == interface;
        } else if (here && Trim(line).starts_with("link/infiniband")) {
            return true;
        }
    }
    return false;
}

std::vector<Route> ParseRouteText(std::string_view text) {
    std::vector<Route> routes;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line);
        if (words.empty() || routes.size() >= kMostTextLinks) continue;
        const auto to = ParseIpv4(words[0] == "default" ? "0.0.0.0/0" : words[0]);
        if (!to) continue;
        Route route{*to, false, "", 0};
        for (size_t i = 1; i + 1 < words.size(); ++i) {
            if (words[i] == "via") route.has_gateway = true;
            if (words[i] == "dev") route.device = std::string(words[i + 1]);
            if (words[i] == "metric") route.metric = LeadingNumber(words[i + 1]).value_or(0);
        }
        routes.push_back(std::move(route));
    }
    return routes;
}

double FastestMode(std::string_view ethtool) {
    double fastest = 0;
    bool inside = false;
    for (std::string_view line : Lines(ethtool)) {
        line = Trim(line);
        if (line.starts_with("Supported link modes:")) {
            inside = true;
            line.remove_prefix(21);
        } else if (inside && Contains(line, ":")) {
            break;
        }
        if (!inside) continue;
        for (std::string_view mode : Words(line)) {
            const size_t base = mode.find("base");
            const auto speed = base == mode.npos ? std::nullopt : Number(mode.substr(0, base));
            if (speed && *speed <= 1.6e6) fastest = std::max(fastest, *speed);
        }
    }
    return fastest;
}

}  // namespace weft::doctor
