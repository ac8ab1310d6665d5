#include "net/addresses.h"

#include <arpa/inet.h>
#include <fmt/format.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <net/if_arp.h>
#include <netinet/in.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <fstream>
#include <memory>
#include <tuple>

#include "net/verbs_device.h"

namespace weft::net {
namespace {

// The speed assumed for an interface that does not report one. Any cable has less latency than
// Wi-Fi.
constexpr int kUnknownMbps = 1000, kWirelessMbps = 50;
constexpr size_t kMostName = 64;
constexpr int kBridge = 1, kWireless = 2;  // kinds of interfaces, in packed addresses

// Network order; IPv4 in the first four bytes.
struct Bits {
    int family = 0;
    std::array<uint8_t, 16> bytes{};
    int count() const { return family == AF_INET ? 32 : 128; }
};

Bits BitsOf(const std::string& host) {
    Bits bits;
    if (::inet_pton(AF_INET, host.c_str(), bits.bytes.data()) == 1) {
        bits.family = AF_INET;
    } else if (::inet_pton(AF_INET6, host.c_str(), bits.bytes.data()) == 1) {
        bits.family = AF_INET6;
    }
    return bits;
}

bool InSubnet(const Bits& a, const Bits& b, int prefix) {
    if (a.family == 0 || a.family != b.family || prefix > a.count()) return false;
    for (int bit = 0; bit < prefix; ++bit) {
        const auto at = static_cast<size_t>(bit / 8);
        if (((a.bytes[at] ^ b.bytes[at]) & (0x80 >> (bit % 8))) != 0) return false;
    }
    return true;
}

bool IsAlone(const HostAddress& address) {
    return address.prefix == BitsOf(address.host).count();
}

// Whether both addresses are in one subnet. A single address (/32) is in none.
bool ShareSubnet(const HostAddress& a, const HostAddress& b) {
    const Bits x = BitsOf(a.host), y = BitsOf(b.host);
    const int prefix = std::max(a.prefix, b.prefix);
    return prefix < x.count() && InSubnet(x, y, prefix);
}

// Whether both are link-local, and one was found on the other's cable.
bool ShareCable(const HostAddress& a, const HostAddress& b) {
    const auto hears = [](const HostAddress& one, const HostAddress& other) {
        return std::ranges::find(one.neighbours, other.host) != one.neighbours.end();
    };
    return a.link_local() && b.link_local() && (hears(a, b) || hears(b, a));
}

bool Has(std::span<const HostAddress> addresses, const std::string& host) {
    return std::ranges::find(addresses, host, &HostAddress::host) != addresses.end();
}

int SpeedOf(const std::string& interface) {
    std::ifstream file("/sys/class/net/" + interface + "/speed");
    int mbps = 0;
    return file >> mbps && mbps > 0 ? mbps : 0;
}

bool HasEntry(const std::string& interface, const char* entry) {
    struct stat about {};
    return ::stat(("/sys/class/net/" + interface + entry).c_str(), &about) == 0;
}

// Interfaces of WireGuard and other tunnels have no link layer.
bool HasNoLinkLayer(const std::string& interface) {
    std::ifstream file("/sys/class/net/" + interface + "/type");
    int type = 0;
    return file >> type && type == ARPHRD_NONE;
}

int PrefixOf(const sockaddr* mask) {
    if (mask == nullptr) return 0;
    const bool v4 = mask->sa_family == AF_INET;
    const auto* bytes =
        v4 ? reinterpret_cast<const uint8_t*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
           : reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr.s6_addr;
    int prefix = 0;
    for (int i = 0; i < (v4 ? 4 : 16); ++i) prefix += std::popcount(bytes[i]);
    return prefix;
}

// Calls each(entry, numeric address) for every address of every interface.
template <typename Each>
void EachAddress(const Each& each) {
    ifaddrs* first = nullptr;
    if (::getifaddrs(&first) != 0) return;
    const std::unique_ptr<ifaddrs, decltype(&::freeifaddrs)> owner(first, &::freeifaddrs);
    for (const ifaddrs* at = first; at != nullptr; at = at->ifa_next) {
        if (at->ifa_addr == nullptr) continue;
        char text[INET6_ADDRSTRLEN] = "";
        if (at->ifa_addr->sa_family == AF_INET) {
            const auto* in = reinterpret_cast<const sockaddr_in*>(at->ifa_addr);
            ::inet_ntop(AF_INET, &in->sin_addr, text, sizeof text);
        } else if (at->ifa_addr->sa_family == AF_INET6) {
            const auto* in = reinterpret_cast<const sockaddr_in6*>(at->ifa_addr);
            ::inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text);
        } else {
            continue;
        }
        each(*at, std::string(text));
    }
}

struct DataNet {
    std::string interface;  // "": a subnet
    Bits bits;
    int prefix = 0;
    bool Holds(const HostAddress& address) const {
        if (!interface.empty()) return address.interface == interface;
        return InSubnet(BitsOf(address.host), bits, prefix);
    }
};

Result<std::vector<DataNet>> ParseDataNet(std::string_view words) {
    std::vector<DataNet> nets;
    while (!words.empty()) {
        const std::string_view word = words.substr(0, words.find(','));
        words.remove_prefix(std::min(words.size(), word.size() + 1));
        DataNet net;
        const size_t slash = word.find('/');
        bool good = !word.empty() && word.size() <= kMostName;
        if (slash == std::string_view::npos) {
            net.interface = word;
        } else {
            net.bits = BitsOf(std::string(word.substr(0, slash)));
            const std::string_view digits = word.substr(slash + 1);
            const auto parsed =
                std::from_chars(digits.data(), digits.data() + digits.size(), net.prefix);
            good = good && parsed.ec == std::errc() &&
                   parsed.ptr == digits.data() + digits.size() && net.bits.family != 0 &&
                   net.prefix >= 0 && net.prefix <= net.bits.count();
        }
        if (!good) {
            return MakeError(ErrorCode::kUsage,
                             "--data-net '{}': expected networks such as 10.0.1.0/24 or fd00::/64, "
                             "or interfaces such as eth2",
                             word);
        }
        nets.push_back(std::move(net));
    }
    return nets;
}

// The addresses that other ranks receive.
std::vector<HostAddress> Best(std::vector<HostAddress> addresses) {
    if (addresses.size() <= kMostAddresses) return addresses;
    std::ranges::stable_sort(addresses, {}, [](const HostAddress& address) {
        return std::tuple(address.link_local(), address.bridge, address.is_virtual);
    });
    addresses.resize(kMostAddresses);
    return addresses;
}

int MbpsOf(const HostAddress& address) {
    if (address.speed_mbps > 0) return address.speed_mbps;
    return address.wireless ? kWirelessMbps : kUnknownMbps;
}

// Returns every pair of link-local addresses, because their cables are unknown. Pairs of fast
// interfaces come first. Among equally fast pairs, each interface has one pair before any has two.
std::vector<Way> LinkLocalWays(std::span<const HostAddress> theirs,
                               std::span<const HostAddress> mine) {
    using Key = std::tuple<int, size_t, size_t>;  // -speed, round, place
    const auto is_other = [](const HostAddress& each) { return !each.link_local() || each.bridge; };
    std::vector<HostAddress> own(mine.begin(), mine.end()), others(theirs.begin(), theirs.end());
    std::erase_if(own, is_other);
    std::erase_if(others, is_other);
    std::vector<std::pair<Key, Way>> ways;
    for (size_t m = 0; m < own.size(); ++m) {
        for (size_t t = 0; t < others.size(); ++t) {
            const size_t round = (t + own.size() * others.size() - m) % others.size();
            ways.push_back({Key{-std::min(MbpsOf(own[m]), MbpsOf(others[t])), round, m},
                            Way{own[m].host + "%" + own[m].interface,
                                own[m].host + "%" + others[t].interface}});
        }
    }
    std::ranges::stable_sort(ways, {}, [](const auto& way) { return way.first; });
    std::vector<Way> best;
    for (auto& way : ways) {
        if (best.size() < kMostWays) best.push_back(std::move(way.second));
    }
    return best;
}

}  // namespace

std::vector<LocalAddress> ListLocalAddresses() {
    std::vector<LocalAddress> found;
    EachAddress([&](const ifaddrs& at, std::string text) {
        found.push_back({std::move(text), at.ifa_name});
    });
    return found;
}

Result<std::vector<HostAddress>> ListHostAddresses(std::string_view words) {
    std::vector<HostAddress> found;
    EachAddress([&](const ifaddrs& at, std::string text) {
        const bool up = (at.ifa_flags & IFF_UP) != 0 && (at.ifa_flags & IFF_RUNNING) != 0;
        const bool loopback = (at.ifa_flags & IFF_LOOPBACK) != 0;
        if (!up || (loopback && IsLoopbackAddress(text))) return;
        const std::string_view label = at.ifa_name;  // "eth0:1" is an address of eth0
        const std::string name(label.substr(0, label.find(':')));
        HostAddress address{std::move(text),
                            PrefixOf(at.ifa_netmask),
                            name,
                            SpeedOf(name),
                            HasEntry(name, "/bridge"),
                            (at.ifa_flags & IFF_POINTOPOINT) != 0 || HasNoLinkLayer(name),
                            !HasEntry(name, "/device")};
        address.wireless = HasEntry(name, "/phy80211") || HasEntry(name, "/wireless");
        // Traffic to a port of a bridge or bond belongs to the bridge or bond. (A container host
        // has many ports.)
        const bool port = HasEntry(name, "/brport") || HasEntry(name, "/bonding_slave");
        if (!port || !address.link_local()) found.push_back(std::move(address));
    });
    std::ranges::stable_sort(found, {}, [](const HostAddress& address) {
        return std::tuple(address.link_local(), BitsOf(address.host).family == AF_INET6);
    });
    return OnDataNet(found, words);
}

Status CheckDataNet(std::string_view words) {
    const auto parsed = ParseDataNet(words);
    return parsed.ok() ? Status() : Status(parsed.error());
}

Result<std::vector<HostAddress>> OnDataNet(const std::vector<HostAddress>& addresses,
                                           std::string_view words) {
    WEFT_ASSIGN(const std::vector<DataNet> nets, ParseDataNet(words));
    if (nets.empty()) return Best(addresses);
    std::vector<HostAddress> on;
    std::string others;
    for (const HostAddress& address : addresses) {
        const auto holds = [&](const DataNet& net) { return net.Holds(address); };
        if (std::ranges::any_of(nets, holds)) on.push_back(address);
        others += fmt::format("{}{}/{} on {}", others.empty() ? "" : ", ", address.host,
                              address.prefix, address.interface);
    }
    if (!on.empty()) return Best(std::move(on));
    return MakeError(ErrorCode::kNotFound,
                     "--data-net {}: this host has no such address. It has: {}", words,
                     others.empty() ? "none that is up" : others);
}

std::vector<Way> WaysFrom(std::span<const HostAddress> theirs, std::span<const HostAddress> mine,
                          const std::string& known) {
    using Key = std::tuple<int, bool, int, bool>;  // distance, bridge, -speed, not the known one
    std::vector<std::pair<Key, Way>> ways;
    const auto add = [&](int far, bool bridge, int mbps, const std::string& host) {
        ways.push_back({Key{far, bridge, -mbps, host != known}, Way{host, host}});
    };
    bool common = false;
    for (const HostAddress& address : mine) {
        for (const HostAddress& their : theirs) {
            if (!ShareCable(address, their)) continue;
            common = true;
            ways.push_back({Key{0, address.bridge || their.bridge,
                                -std::min(MbpsOf(address), MbpsOf(their)), address.host != known},
                            Way{address.host + "%" + address.interface,
                                address.host + "%" + their.interface}});
        }
        if (address.link_local() || Has(theirs, address.host)) continue;
        const bool named = address.host == known;
        const bool meant = named && (address.tunnel || IsAlone(address));
        const HostAddress* fastest = nullptr;
        for (const HostAddress& their : theirs) {
            if (!ShareSubnet(address, their)) continue;
            if (fastest == nullptr || MbpsOf(their) > MbpsOf(*fastest)) fastest = &their;
        }
        if (fastest != nullptr) {
            common = true;
            add(meant ? -1 : 0, !named && (address.bridge || fastest->bridge),
                std::min(MbpsOf(address), MbpsOf(*fastest)), address.host);
        } else if (named) {
            add(meant ? -1 : 1, false, 0, address.host);
        } else {
            add(2, address.bridge, MbpsOf(address), address.host);
        }
    }
    if (!known.empty() && !Has(mine, known) && !Has(theirs, known)) add(1, false, 0, known);
    if (!common) {
        for (Way& way : LinkLocalWays(theirs, mine)) {
            ways.push_back({Key{3, false, 0, true}, std::move(way)});
        }
    }
    std::ranges::stable_sort(ways, {}, [](const auto& way) { return way.first; });
    std::vector<Way> best;
    for (auto& way : ways) {
        if (best.size() < kMostWays) best.push_back(std::move(way.second));
    }
    return best;
}

std::optional<std::pair<HostAddress, HostAddress>> CommonNetwork(
    std::span<const HostAddress> theirs, std::span<const HostAddress> mine) {
    for (const HostAddress& a : mine) {
        for (const HostAddress& b : theirs) {
            const bool bridge = a.bridge || b.bridge || a.link_local() || a.host == b.host;
            if (ShareCable(a, b) || (!bridge && ShareSubnet(a, b))) return std::pair(b, a);
        }
    }
    return std::nullopt;
}

std::string NeighboursText(std::span<const Neighbour> neighbours) {
    std::string text;
    for (const Neighbour& each : neighbours.first(std::min(neighbours.size(), kMostNeighbours))) {
        text += fmt::format("{}{}={}", text.empty() ? "" : ",", each.interface, each.address);
    }
    return text;
}

Result<std::vector<Neighbour>> ParseNeighbours(std::string_view text) {
    std::vector<Neighbour> neighbours;
    while (!text.empty()) {
        const std::string_view word = text.substr(0, text.find(','));
        text.remove_prefix(std::min(text.size(), word.size() + 1));
        const size_t equals = std::min(word.find('='), word.size());
        Neighbour each{std::string(word.substr(0, equals)),
                       std::string(word.substr(std::min(equals + 1, word.size())))};
        const bool good = !each.interface.empty() && each.interface.size() <= kMostName &&
                          BitsOf(each.address).family == AF_INET6;
        if (!good || neighbours.size() >= kMostNeighbours) {
            return MakeError(ErrorCode::kUsage, "'{}': expected INTERFACE=ADDRESS, at most {}",
                             word, kMostNeighbours);
        }
        neighbours.push_back(std::move(each));
    }
    return neighbours;
}

void AddNeighbours(std::span<const Neighbour> neighbours, std::vector<HostAddress>& addresses) {
    for (HostAddress& address : addresses) {
        if (!address.link_local()) continue;
        for (const Neighbour& each : neighbours) {
            if (each.interface == address.interface) address.neighbours.push_back(each.address);
        }
    }
}

std::string PackAddresses(std::span<const HostAddress> addresses) {
    std::string text;
    for (const HostAddress& a : addresses) {
        std::string heard;
        for (const std::string& each : a.neighbours) heard += (heard.empty() ? "" : ",") + each;
        text += fmt::format("{} {} {} {} {} {}\n", a.host, a.prefix, a.interface, a.speed_mbps,
                            (a.bridge ? kBridge : 0) | (a.wireless ? kWireless : 0),
                            heard.empty() ? "-" : heard);
    }
    return text;
}

Result<std::vector<HostAddress>> UnpackAddresses(std::string_view text) {
    std::vector<HostAddress> addresses;
    while (!text.empty()) {
        const std::string_view line = text.substr(0, text.find('\n'));
        text.remove_prefix(std::min(text.size(), line.size() + 1));
        std::array<std::string_view, 6> words;
        size_t at = 0;
        bool good = addresses.size() < kMostAddresses;
        for (std::string_view& word : words) {
            const size_t begin = std::min(at, line.size());
            word = line.substr(begin, line.find(' ', begin) - begin);
            at = begin + word.size() + 1;
            const size_t most = &word == &words.back() ? kMostNeighbours * kMostName : kMostName;
            good = good && !word.empty() && word.size() <= most;
        }
        good = good && at == line.size() + 1;
        const auto number = [&](std::string_view word, int most) {
            int value = 0;
            const auto parsed = std::from_chars(word.data(), word.data() + word.size(), value);
            good = good && parsed.ec == std::errc() && parsed.ptr == word.data() + word.size() &&
                   value >= 0 && value <= most;
            return value;
        };
        HostAddress address{std::string(words[0]), number(words[1], 128), std::string(words[2]),
                            number(words[3], 100'000'000)};
        const int kind = number(words[4], kBridge | kWireless);
        address.bridge = (kind & kBridge) != 0;
        address.wireless = (kind & kWireless) != 0;
        for (std::string_view heard = words[5] == "-" ? "" : words[5]; !heard.empty();) {
            const std::string_view each = heard.substr(0, heard.find(','));
            heard.remove_prefix(std::min(heard.size(), each.size() + 1));
            good = good && address.neighbours.size() < kMostNeighbours &&
                   BitsOf(std::string(each)).family == AF_INET6;
            if (good) address.neighbours.emplace_back(each);
        }
        if (!good || BitsOf(address.host).family == 0) {
            return MakeError(ErrorCode::kCorrupt, "a malformed list of a host's addresses");
        }
        addresses.push_back(std::move(address));
    }
    return addresses;
}

std::string NetworkOf(const std::string& from) {
    std::string host = from.substr(0, from.rfind(':'));
    if (host.size() > 2 && host.front() == '[') host = host.substr(1, host.size() - 2);
    in6_addr address{};
    if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
    const uint8_t* at = address.s6_addr;
    return fmt::format("{:x}:{:x}:{:x}:{:x}", at[0] << 8 | at[1], at[2] << 8 | at[3],
                       at[4] << 8 | at[5], at[6] << 8 | at[7]);
}

}  // namespace weft::net
