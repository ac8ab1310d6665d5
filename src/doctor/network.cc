#include "doctor/network.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "doctor/facts.h"

namespace weft::doctor {
namespace {

using Json = nlohmann::json;

std::string TextOf(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_string() ? found->get<std::string>() : "";
}

double NumberOf(const Json& object, const char* key) {
    const auto found = object.find(key);
    return found != object.end() && found->is_number() ? found->get<double>() : 0;
}

// Limits above the links and addresses of any host that runs ranks.
constexpr size_t kMostLinks = 4096, kMostAddresses = 4096;

// Objects of a JSON list, at most kMostLinks; empty: other text.
std::vector<Json> Objects(const Reading& reading) {
    std::vector<Json> objects;
    if (!reading.found()) return objects;
    Json list = JsonOrDiscarded(reading.text);
    if (!list.is_array()) return objects;
    for (Json& item : list) {
        if (objects.size() == kMostLinks) break;
        if (item.is_object()) objects.push_back(std::move(item));
    }
    return objects;
}

int ClampedMtu(double mtu) {
    return static_cast<int>(std::clamp(mtu, 0.0, 1e6));
}

NetDevice ReadSysfs(HostView& view, const std::string& name) {
    const std::string path = "sys/class/net/" + name;
    NetDevice device;
    device.name = name;
    device.megabits = std::max(0.0, view.Number(path + "/speed").value_or(0));
    device.mtu = ClampedMtu(view.Number(path + "/mtu").value_or(0));
    device.duplex = view.Text(path + "/duplex");
    const std::string state = view.Text(path + "/operstate");
    device.up = state == "up";
    device.state_read = !state.empty();
    device.wireless = view.Has(path + "/wireless") || view.Has(path + "/phy80211");
    device.pci = BaseName(view.Link(path + "/device").text);
    device.physical = !device.pci.empty();
    device.driver = BaseName(view.Link(path + "/device/driver").text);
    device.master = BaseName(view.Link(path + "/master").text);
    return device;
}

// Sets driver, firmware and bus address from `ethtool -i`.
void ReadEthtool(HostView& view, NetDevice& device) {
    const Reading info = view.Command("ethtool -i " + device.name);
    if (!info.found()) return;
    const std::string_view text = info.text;
    if (device.driver.empty()) device.driver = std::string(After(text, "driver: "));
    device.firmware = std::string(After(text, "firmware-version: "));
    if (device.firmware == "N/A") device.firmware.clear();
    const std::string_view bus = After(text, "bus-info: ");
    if (device.pci.empty() && bus.size() >= 12) {
        device.pci = std::string(bus);
        device.physical = true;
    }
}

// Sets the negotiated speed from `ethtool` ("Speed: 100000Mb/s") if sysfs lacks it.
void ReadSpeed(HostView& view, NetDevice& device) {
    const bool asked = device.physical && device.up && !device.wireless;
    if (view.Complete() && !asked) return;
    const Reading settings = view.Command("ethtool " + device.name);
    if (!settings.found()) return;
    device.most_megabits = FastestMode(settings.text);
    if (device.megabits > 0 || view.Complete()) return;
    device.megabits = LeadingNumber(After(settings.text, "Speed:")).value_or(0);
    if (device.duplex.empty() && Contains(settings.text, "Duplex: Half")) device.duplex = "half";
    if (Contains(settings.text, "Link detected: yes")) device.up = device.physical = true;
}

// A link of `ip -j addr`. left: the number of addresses that may still be read.
NetDevice ReadJsonLink(const Json& link, size_t& left) {
    NetDevice device;
    device.name = TextOf(link, "ifname");
    device.addressed = true;
    device.mtu = ClampedMtu(NumberOf(link, "mtu"));
    const std::string state = TextOf(link, "operstate");
    device.up = state == "UP";
    device.state_read = !state.empty();
    device.master = TextOf(link, "master");
    device.lower = TextOf(link, "link");
    const auto list = link.find("addr_info");
    if (list == link.end() || !list->is_array()) return device;
    for (const Json& item : *list) {
        if (!item.is_object() || TextOf(item, "family") != "inet") continue;
        auto address = ParseIpv4(TextOf(item, "local"));
        if (!address) continue;
        const double prefix = NumberOf(item, "prefixlen");
        address->prefix = prefix >= 0 && prefix <= 32 ? static_cast<int>(prefix) : 32;
        if (left == 0) break;
        --left;
        device.addresses.push_back(*address);
    }
    return device;
}

// "3: enp1s0f0np0: <BROADCAST,UP,LOWER_UP> mtu 9000 qdisc mq master br0 state UP group default",
// "4: bond0.100@bond0: <...> ..."
bool ReadLinkLine(std::string_view line, NetDevice& device) {
    const size_t colon = line.find(": ");
    if (colon == line.npos || !Integer(line.substr(0, colon))) return false;
    std::string_view name = line.substr(colon + 2);
    name = name.substr(0, name.find_first_of(":@ "));
    if (name.empty()) return false;
    device.name = std::string(name);
    if (line.substr(colon + 2 + name.size()).starts_with('@')) {
        device.lower = line.substr(colon + 3 + name.size());
        device.lower.resize(std::min(device.lower.find(": "), device.lower.size()));
    }
    const auto words = Words(line);
    for (size_t i = 0; i + 1 < words.size(); ++i) {
        if (words[i] == "mtu") device.mtu = ClampedMtu(LeadingNumber(words[i + 1]).value_or(0));
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
    const auto words = Words(line);
    const bool brief = words.size() >= 2 &&
                       IsOneOf(words[1], "UP DOWN UNKNOWN DORMANT LOWERLAYERDOWN NOTPRESENT") &&
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

using Places = std::map<std::string, size_t, std::less<>>;  // index by name

// Adds what ip prints about an interface.
void AddReported(HostView& view, NetDevice told, Places& places, std::vector<NetDevice>& devices) {
    if (told.name == "lo" || !IsPlainName(told.name)) return;
    const auto place = places.find(told.name);
    if (place == places.end()) {
        if (devices.size() >= kMostLinks) return;
        places[told.name] = devices.size();
        ReadEthtool(view, told);
        return devices.push_back(std::move(told));
    }
    NetDevice& device = devices[place->second];
    if (device.mtu == 0) device.mtu = told.mtu;
    if (device.master.empty()) device.master = told.master;
    if (device.lower.empty()) device.lower = told.lower;
    device.up = device.up || told.up;
    device.state_read = device.state_read || told.state_read;
    if (!told.addressed || device.addressed) return;
    device.addressed = true;
    device.addresses = std::move(told.addresses);
}

// From `ip -j addr`, or in a handmade snapshot from other output of ip.
void AddFromIp(HostView& view, Places& places, std::vector<NetDevice>& devices) {
    size_t addresses_left = kMostAddresses;
    const Reading json = CommandLike(view, "ip -j addr");
    for (const Json& link : Objects(json)) {
        AddReported(view, ReadJsonLink(link, addresses_left), places, devices);
    }
    if (view.Complete() || json.found()) return;
    for (const std::string& command : view.List("cmd")) {
        if (!command.starts_with("ip_") || Contains(command, "route")) continue;
        const Reading text = view.Read("cmd/" + command);
        for (NetDevice& told : ParseIpText(text.text)) {
            AddReported(view, std::move(told), places, devices);
        }
    }
}

// For a handmade snapshot with only ethtool's output of an interface: "cmd/ethtool_-i_eth0",
// "cmd/ethtool_eth0".
void AddEthtoolOnly(HostView& view, Places& places, std::vector<NetDevice>& devices) {
    if (view.Complete()) return;
    for (const std::string& command : view.List("cmd")) {
        constexpr std::string_view kProgram = "ethtool_", kDriver = "-i_";
        std::string_view name = command;
        if (!name.starts_with(kProgram)) continue;
        name.remove_prefix(kProgram.size());
        if (name.starts_with(kDriver)) name.remove_prefix(kDriver.size());
        if (!IsPlainName(name) || devices.size() >= kMostLinks) continue;
        if (!places.try_emplace(std::string(name), devices.size()).second) continue;
        NetDevice device;
        device.name = std::string(name);
        ReadEthtool(view, device);
        devices.push_back(std::move(device));
    }
}

std::vector<NetDevice> ReadDevices(HostView& view) {
    std::vector<NetDevice> devices;
    Places places;
    for (const std::string& name : view.List("sys/class/net")) {
        if (name == "lo" || !IsPlainName(name)) continue;
        places[name] = devices.size();
        devices.push_back(ReadSysfs(view, name));
        // A handmade snapshot seldom has the links that show which devices are physical.
        if (devices.back().physical || !view.Complete()) ReadEthtool(view, devices.back());
    }
    AddFromIp(view, places, devices);
    AddEthtoolOnly(view, places, devices);
    for (NetDevice& device : devices) ReadSpeed(view, device);
    for (const NetDevice& member : devices) {
        const auto master = places.find(member.master);
        if (member.master.empty() || master == places.end() || !member.physical) continue;
        NetDevice& whole = devices[master->second];
        whole.over_card = true;
        if (member.up) whole.megabits = std::max(whole.megabits, member.megabits);
    }
    for (NetDevice& device : devices) {
        const auto place = places.find(device.lower);
        if (place == places.end()) continue;
        const NetDevice& lower = devices[place->second];
        device.over_card = device.over_card || lower.physical || lower.over_card;
        if (device.megabits <= 0) device.megabits = lower.megabits;
    }
    return devices;
}

std::vector<Route> ReadRoutes(HostView& view) {
    std::vector<Route> routes;
    const Reading json = CommandLike(view, "ip -j route");
    if (!json.found() && !view.Complete()) {
        return ParseRouteText(CommandLike(view, "ip route").text);
    }
    for (const Json& item : Objects(json)) {
        const std::string to = TextOf(item, "dst");
        const auto parsed = ParseIpv4(to == "default" ? "0.0.0.0/0" : to);
        if (!parsed) continue;
        routes.push_back({*parsed, !TextOf(item, "gateway").empty(), TextOf(item, "dev"),
                          NumberOf(item, "metric"), TextOf(item, "gateway")});
    }
    return routes;
}

}  // namespace

uint32_t Ipv4::network() const {
    return prefix <= 0 ? 0 : bits & (~0u << (32 - prefix));
}

std::string Ipv4::Text() const {
    return fmt::format("{}.{}.{}.{}", bits >> 24, bits >> 16 & 255, bits >> 8 & 255, bits & 255);
}

std::string Ipv4::PrefixText() const {
    return fmt::format("{}/{}", Text(), prefix);
}

bool Ipv4::Overlaps(const Ipv4& other) const {
    const int common = std::min(prefix, other.prefix);
    return common > 0 && Ipv4{bits, common}.Shares({other.bits, common});
}

std::optional<Ipv4> ParseIpv4(std::string_view text) {
    Ipv4 address;
    const size_t slash = text.find('/');
    if (slash != std::string_view::npos) {
        const auto prefix = Integer(text.substr(slash + 1));
        if (!prefix || *prefix < 0 || *prefix > 32) return {};
        address.prefix = static_cast<int>(*prefix);
        text = text.substr(0, slash);
    }
    const auto parts = Split(text, '.');
    if (parts.size() != 4) return {};
    for (std::string_view part : parts) {
        const auto value = Integer(part);
        if (!value || *value < 0 || *value > 255) return {};
        address.bits = address.bits << 8 | static_cast<uint32_t>(*value);
    }
    return address;
}

std::optional<Ipv4> ParseMappedIpv4(std::string_view gid) {
    if (!gid.starts_with(kMappedIpv4) || gid.size() != kMappedIpv4.size() + 9) return {};
    const auto high = Integer(gid.substr(kMappedIpv4.size(), 4), 16);
    const auto low = Integer(gid.substr(kMappedIpv4.size() + 5, 4), 16);
    if (!high || !low || *high < 0 || *low < 0) return {};
    return Ipv4{static_cast<uint32_t>(*high << 16 | *low), 32};
}

std::string NetDevice::SpeedText() const {
    if (megabits <= 0) return "a speed not known";
    if (megabits < 1000) return fmt::format("{:g} Mb/s", megabits);
    return fmt::format("{:g} Gb/s", megabits / 1000);
}

std::optional<int64_t> NetDevice::VlanId() const {
    constexpr int64_t kLastId = 4094;  // IEEE 802.1Q
    const size_t digits = name.find_last_not_of("0123456789") + 1;
    const std::string_view before = std::string_view(name).substr(0, digits);
    if (lower.empty() || !(before.ends_with('.') || before == "vlan")) return {};
    const auto id = Integer(std::string_view(name).substr(digits));
    return id && *id > 0 && *id <= kLastId ? id : std::nullopt;
}

const std::vector<NetDevice>& NetDevices(HostView& view) {
    return view.Derived(ReadDevices);
}

bool IsPlainName(std::string_view name) {
    return !name.empty() && name.size() < 64 && !name.starts_with('-') &&
           name.find_first_of(" \t/") == name.npos;
}

bool IsOfContainers(std::string_view name) {
    return BeginsWithOneOf(name,
                           "docker br- virbr vnet cni podman lxc lxd veth tap fwbr fwln fwpr cali "
                           "flannel cilium kube- dummy incus");
}

bool IsVpn(std::string_view name) {
    return BeginsWithOneOf(name, "tailscale wg zt nebula");
}

bool IsUsbDriver(std::string_view driver) {
    return IsOneOf(driver, "r8152 ax88179_178a cdc_ncm cdc_ether aqc111");
}

const NetDevice* FindNetDevice(HostView& view, std::string_view name) {
    const std::vector<NetDevice>& devices = NetDevices(view);
    const auto found = std::ranges::find(devices, name, &NetDevice::name);
    return found == devices.end() ? nullptr : &*found;
}

bool IsIpoib(HostView& view, const NetDevice& device, bool unread) {
    const std::string type = view.Text("sys/class/net/" + device.name + "/type");
    return type.empty() ? unread : type == "32";  // ARPHRD_INFINIBAND
}

const std::vector<Route>& Routes(HostView& view) {
    return view.Derived(ReadRoutes);
}

const Route* RouteTo(HostView& view, const Ipv4& to) {
    const Route* best = nullptr;
    for (const Route& route : Routes(view)) {
        if (Ipv4{to.bits, route.to.prefix}.network() != route.to.network()) continue;
        if (best == nullptr || route.to.prefix > best->to.prefix ||
            (route.to.prefix == best->to.prefix && route.metric < best->metric)) {
            best = &route;
        }
    }
    return best;
}

std::vector<NetDevice> ParseIpText(std::string_view text) {
    std::vector<NetDevice> devices;
    // `ip link` prints no addresses, so none is known to be missing.
    const bool addresses = ContainsAny(text, " inet | inet6 ");
    for (std::string_view line : Lines(text)) {
        NetDevice device;
        device.addressed = addresses;
        const bool head = !line.starts_with(' ');
        if (head && (ReadLinkLine(line, device) || ReadBriefLine(line, device))) {
            if (devices.size() >= kMostLinks) break;
            devices.push_back(std::move(device));
            continue;
        }
        // "inet 10.0.0.1/24 brd 10.0.0.255 scope global enp1s0f0np0"
        const auto words = Words(line);
        if (devices.empty() || words.size() < 2 || words[0] != "inet") continue;
        if (const auto address = ParseIpv4(words[1])) {
            devices.back().addresses.push_back(*address);
        }
    }
    return devices;
}

bool IsInfiniband(std::string_view ip, std::string_view interface) {
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
    for (const auto& words : WordLines(text)) {
        const auto to = ParseIpv4(words[0] == "default" ? "0.0.0.0/0" : words[0]);
        if (!to || routes.size() >= kMostLinks) continue;
        Route& route = routes.emplace_back(Route{*to, false, "", 0, ""});
        for (size_t i = 1; i + 1 < words.size(); ++i) {
            if (words[i] == "via") {
                route.has_gateway = true;
                route.gateway = std::string(words[i + 1]);
            }
            if (words[i] == "dev") route.device = std::string(words[i + 1]);
            if (words[i] == "metric") route.metric = LeadingNumber(words[i + 1]).value_or(0);
        }
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

namespace {

// Whether packets may pass. (The kernel does not know the state of a VPN's interface.)
bool MayCarry(const NetDevice& device) {
    return (device.up || IsVpn(device.name)) && device.mtu >= kSmallPacket;
}

void AddPaths(const NetDevice& device, const NetDevice& theirs, const std::string& peer,
              std::vector<Path>& paths) {
    for (const Ipv4& to : theirs.addresses) {
        const bool shared = std::ranges::any_of(device.addresses, [&](const Ipv4& a) {
            return a.Shares(to) && a.bits != to.bits && !a.IsLoopback() && a.prefix < 32;
        });
        if (shared) paths.push_back({device.name, to.Text(), peer, device.mtu});
    }
}

// Tailscale gives each host a subnet of one address, and a VPN's provider may give one address to
// all its customers. A host may be in several VPNs; the names of interfaces show only their kind.
void AddVpnPaths(HostView& host, HostView& other, std::vector<Path>& paths) {
    const auto used = [](const NetDevice& device) {
        return IsVpn(device.name) && MayCarry(device) && !device.addresses.empty();
    };
    for (const NetDevice& own : NetDevices(host)) {
        for (const NetDevice& theirs : NetDevices(other)) {
            if (!used(own) || !used(theirs)) continue;
            if (own.name.substr(0, 2) != theirs.name.substr(0, 2)) continue;  // different VPNs
            const Ipv4& to = theirs.addresses.front();
            const auto same = [&](const Ipv4& a) { return a.bits == to.bits; };
            if (std::ranges::any_of(own.addresses, same)) continue;
            const Route* route = RouteTo(host, to);
            if (route != nullptr && IsVpn(route->device) && route->device != own.name) continue;
            paths.push_back({own.name, to.Text(), other.host(), own.mtu, true});
        }
    }
}

// Lines of `tailscale status`: `100.88.1.2 host-b user@ linux active; relay "fra", tx 12 rx 34`.
std::set<std::string> ReadRelayed(HostView& view) {
    std::set<std::string> addresses;
    const Reading status = TailscaleStatus(view);
    for (std::string_view line : Lines(status.text)) {
        const auto words = Words(line);
        if (words.empty() || !ParseIpv4(words[0])) continue;
        const size_t active = line.find(" active;");
        if (active == line.npos) continue;
        if (ContainsAny(line.substr(active), " relay| peer-relay")) addresses.emplace(words[0]);
    }
    return addresses;
}

}  // namespace

Reading TailscaleStatus(HostView& view) {
    const bool used = std::ranges::any_of(NetDevices(view), [](const NetDevice& device) {
        return device.name.starts_with("tailscale");
    });
    return used || !view.Complete() ? view.Command("tailscale status") : Reading();
}

const std::set<std::string>& RelayedAddresses(HostView& view) {
    return view.Derived(ReadRelayed);
}

std::vector<Path> PathsFrom(HostView& host, Hosts hosts) {
    std::vector<Path> paths;
    for (const auto& other : hosts) {
        if (other.get() == &host) continue;
        const size_t before = paths.size();
        for (const NetDevice& theirs : NetDevices(*other)) {
            for (const NetDevice& device : NetDevices(host)) {
                if (MayCarry(device)) AddPaths(device, theirs, other->host(), paths);
            }
        }
        // Two homes often have the same subnet.
        const bool homes =
            std::ranges::all_of(paths.begin() + static_cast<ptrdiff_t>(before), paths.end(),
                                [](const Path& path) { return ParseIpv4(path.address)->IsHome(); });
        if (homes) AddVpnPaths(host, *other, paths);
    }
    return paths;
}

int PingPayload(int bytes) {
    constexpr int kHeaders = 28;  // IPv4 and ICMP
    return std::min(bytes, 65000) - kHeaders;
}

std::string PingCommand(const Path& path, int bytes) {
    return PingWords(std::to_string(PingPayload(bytes)), path.address);
}

std::string PingWords(std::string_view payload, std::string_view address) {
    return fmt::format("ping -c 1 -W 1 -M do -s {} {}", payload, address);
}

}  // namespace weft::doctor
