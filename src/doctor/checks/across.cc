// Compares hosts: addresses, MTU, packet size on the path, ports, clocks, kernels and FEC.
#include <array>

#include "doctor/checks/checks.h"
#include "net/path_mtu.h"

namespace weft::doctor::checks {
namespace {

constexpr double kSlowMs = 2;  // a round trip within one home or rack takes less

// ---- across-mtu: MTU on both ends of a subnet.

struct End {
    HostView* view = nullptr;
    std::string device;
    int mtu = 0;
    std::string mode;  // IPoIB mode: "connected", "datagram"; else ""
    std::string name() const { return view->host() + " " + device; }
};

// Reports IPoIB with one end in connected mode and the other in datagram mode, which has a smaller
// MTU.
bool CheckModes(const std::vector<End>& ends, Findings& out) {
    const End& first = ends.front();
    const auto unlike =
        std::ranges::find_if(ends, [&](const End& end) { return end.mode != first.mode; });
    if (unlike == ends.end() || first.mode.empty() || unlike->mode.empty()) return false;
    const End& connected = first.mode == "connected" ? first : *unlike;
    const End& datagram = first.mode == "connected" ? *unlike : first;
    Report<found::kIpoibModes>(out, first.name(), first.mode, first.mtu, unlike->name(),
                               unlike->mode, unlike->mtu, ShellWord(connected.view->host()),
                               ShellWord(connected.device),
                               SetMtu(*connected.view, connected.device, datagram.mtu));
    return true;
}

// The pair of ends on different hosts whose MTU differs most; nulls: one host has all ends. This
// pair always contains the smallest or the largest MTU of all ends.
struct EndPair {
    const End *least = nullptr, *most = nullptr;
};
EndPair FarthestEnds(const std::vector<End>& ends) {
    const auto [least, most] = std::ranges::minmax_element(ends, {}, &End::mtu);
    EndPair to_least{&*least, nullptr}, to_most{nullptr, &*most};
    for (const End& end : ends) {
        const bool more = to_least.most == nullptr || end.mtu > to_least.most->mtu;
        const bool less = to_most.least == nullptr || end.mtu < to_most.least->mtu;
        if (more && end.view != least->view) to_least.most = &end;
        if (less && end.view != most->view) to_most.least = &end;
    }
    if (to_least.most == nullptr) return {};
    const int rise = to_least.most->mtu - least->mtu, fall = most->mtu - to_most.least->mtu;
    return rise >= fall ? to_least : to_most;
}

// The cure changes the end whose MTU fewer ends have.
void ReportMtus(const std::vector<End>& ends, const End& least, const End& most, Findings& out) {
    const auto like = [&](const End& end) { return std::ranges::count(ends, end.mtu, &End::mtu); };
    const bool lower = like(least) > like(most) && least.mtu >= net::kLeastMtu;
    const End &wrong = lower ? most : least, &right = lower ? least : most;
    Report<found::kMtuDiffers>(
        out, least.name(), least.mtu, most.name(), most.mtu, ShellWord(wrong.view->host()),
        SetMtu(*wrong.view, wrong.device, right.mtu),
        ends.size() == 2
            ? ""
            : fmt::format(" ({} of {} ends have MTU {})", like(right), ends.size(), right.mtu));
}

std::string LinkText(const HostView& view, const Path& path) {
    return fmt::format("{} to {} ({}) by {}", view.host(), path.address, path.peer, path.device);
}

// ---- across-path: packets of the full MTU pass every switch.

// Ethernet's MTU passes switches without jumbo frames; the least MTU of IPv6 passes most tunnels.
void ReportPathMtu(HostView& view, const Path& path, const std::string& link, Findings& out) {
    constexpr int kEthernetMtu = 1500;
    const bool jumbo = path.mtu > kEthernetMtu;
    std::string fix = "raise the MTU of the tunnel between the hosts";
    if (path.mtu > net::kLeastMtu) {
        fix = fmt::format("{} on all hosts: {}",
                          jumbo ? "turn on jumbo frames on the switch's ports, or"
                                : fix + fmt::format(" to {}, or", path.mtu),
                          SetMtu(view, path.device, jumbo ? kEthernetMtu : net::kLeastMtu));
    }
    Report<found::kPathMtu>(out, link, path.mtu,
                            jumbo ? "a device between the hosts (a switch without jumbo frames)"
                                  : "a tunnel between the hosts (VPN, PPPoE, VXLAN)",
                            fix);
}

// large: the answer to a ping with a full packet.
void CheckPath(HostView& view, const Path& path, const Reading& large, Findings& out) {
    constexpr double kFarMs = 10;
    const Reading small = view.Command(PingCommand(path, kSmallPacket));
    const std::string link = LinkText(view, path);
    if (ContainsAny(large.text, "not found|not permitted")) {
        Report<found::kPingUnable>(out, link, path.mtu, Cure(view, "ping"));
    } else if (Contains(large.text, " 0% packet loss")) {
        const auto ms = NumberAfter(large.text, " time=");
        const bool slow = ms && *ms >= kSlowMs;
        ReportAs<found::kPathSlow>(!slow           ? kOk
                                   : *ms >= kFarMs ? kWarn
                                                   : kNote,
                                   out, link, path.mtu,
                                   ms ? fmt::format(", {:g} ms both ways", *ms) : "", kSlowMs);
        const NetDevice* device = slow ? FindNetDevice(view, path.device) : nullptr;
        const auto fast = device == nullptr ? std::nullopt : PortLink(*device);
        if (!fast) return;
        HostLink actual = *fast;
        actual.latency_s = *ms / 2 * 1e-3;
        out.EstimateCost(LinkQuestion(view, actual, *fast));
    } else if (Contains(small.text, " 0% packet loss")) {
        ReportPathMtu(view, path, link, out);
    } else if (!path.vpn) {
        Report<found::kPathNoAnswer>(out, link, path.mtu, path.address);
    }
}

// ---- across-ports: ranks on the hosts can connect to each other.

// The source from which a firewall should accept connections: the subnet of `view` that the path
// uses, or if that is public, only the address.
std::string SourceOf(HostView& view, const Path& path) {
    const NetDevice* device = FindNetDevice(view, path.device);
    const auto to = ParseIpv4(path.address);
    if (device == nullptr || !to) return view.host();
    for (const Ipv4& own : device->addresses) {
        if (Ipv4{to->bits, own.prefix}.network() != own.network()) continue;
        return own.InPrivateNetwork() ? Ipv4{own.network(), own.prefix}.PrefixText() : own.Text();
    }
    return view.host();
}

// Whether a ping over the path got an answer.
bool AnswersPing(HostView& view, const Path& path) {
    return std::ranges::any_of(std::array{path.mtu, kSmallPacket}, [&](int bytes) {
        return Contains(view.Command(PingCommand(path, bytes)).text, " 0% packet loss");
    });
}

// Whether a path of the other kind (over a VPN, or not) leads to the peer and answers.
bool AnswersOtherwise(HostView& view, const Path& path, const std::vector<Path>& paths) {
    return std::ranges::any_of(paths, [&](const Path& other) {
        return other.peer == path.peer && other.vpn != path.vpn && AnswersPing(view, other);
    });
}

// Whether pings were sent over the path and all were lost.
bool LosesPings(HostView& view, const Path& path) {
    return std::ranges::all_of(std::array{path.mtu, kSmallPacket}, [&](int bytes) {
        return Contains(view.Command(PingCommand(path, bytes)).text, " 100% packet loss");
    });
}

// Whether the hosts are in different homes that have the same subnet and a VPN between them: their
// own addresses do not answer, and a round trip over the VPN takes longer than within a home.
bool IsOfTwoHomes(HostView& view, const Path& path, const std::vector<Path>& paths) {
    if (path.vpn || !LosesPings(view, path)) return false;
    return std::ranges::any_of(paths, [&](const Path& other) {
        if (other.peer != path.peer || !other.vpn) return false;
        return std::ranges::any_of(std::array{other.mtu, kSmallPacket}, [&](int bytes) {
            const std::string text = view.Command(PingCommand(other, bytes)).text;
            return NumberAfter(text, " time=").value_or(0) >= kSlowMs;
        });
    });
}

// outcomes: a line "ADDRESS PORT OUTCOME" for each port of each peer (doctor/reach.h). listened:
// whether the peer took part. Returns false if the path was not tested.
bool CheckPorts(HostView& view, const Path& path, std::string_view outcomes, bool listened,
                Findings& out) {
    std::vector<std::string> open, filtered, other;
    for (std::string_view line : Lines(outcomes)) {
        const auto words = Words(line);
        if (words.size() < 3 || words[0] != path.address) continue;
        const std::string port(words[1]);
        if (words[2] == "open") {
            open.push_back(port);
        } else if (words[2] == "filtered") {
            filtered.push_back(port);
        } else {
            other.push_back(fmt::format("{} ({})", port, line.substr(line.find(words[2]))));
        }
    }
    const bool refused = std::ranges::any_of(
        other, [](const std::string& port) { return Contains(port, "refused"); });
    if (path.vpn && open.empty() && !refused && !AnswersPing(view, path)) return false;
    const std::string link = LinkText(view, path);
    if (!filtered.empty()) {
        Report<found::kPortsFiltered>(out, link, ListText(filtered), SourceOf(view, path),
                                      ShellWord(path.peer));
    } else if (!other.empty() && listened) {
        Report<found::kPortsRefused>(out, link, ListText(other), ShellWord(path.peer));
    } else if (!open.empty() && other.empty()) {
        ReportOk(out, "{}: ports {} are open", link, ListText(open));
    } else {
        return false;
    }
    return true;
}

// Whether the peer of the path surely listened while this host connected. A host that did not
// report its time may have logged in too late.
bool Listened(HostView& view, const Path& path, Hosts hosts) {
    if (view.Probe("clock").refused()) return false;
    const auto peer =
        std::ranges::find(hosts, path.peer, [](const auto& one) { return one->host(); });
    return peer == hosts.end() ||
           !((*peer)->Probe("reach").refused() || (*peer)->Probe("clock").refused());
}

// ---- across-kernel: kernels, and instruction sets of processors, on all hosts.

// The instruction sets by which a rank chooses its kernels; "": unknown.
std::string InstructionSets(HostView& view) {
    const Reading cpu = view.Read("proc/cpuinfo");
    for (std::string_view line : Lines(cpu.text)) {
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        const auto flags = Words(line);
        if (IsIn(flags, "avx512bw")) {
            return IsIn(flags, "avx512_vnni") ? "AVX-512 with VNNI" : "AVX-512";
        }
        return IsIn(flags, "avx2") ? "AVX2" : "no AVX2";
    }
    return "";
}

// ---- across-fec: configured error correction (FEC) of both ends; if it differs, the link is down.

struct FecPort {
    std::string host, device;
    bool up = false;
    std::set<std::string> configured;  // "RS", "BaseR", "Off"; empty: automatic
    std::string Text() const {
        return fmt::format(
            "{} {}: FEC {}{}", host, device,
            configured.empty() ? "automatic" : fmt::format("{}", fmt::join(configured, " ")),
            up ? "" : ", no link");
    }
};

// "Configured FEC encodings: Auto Off RS BaseR" from `ethtool --show-fec`. Older versions print
// "Supported/Configured FEC encodings:", which is not a configuration.
std::set<std::string> ConfiguredFec(std::string_view text) {
    std::set<std::string> configured;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        if (!line.starts_with("Configured FEC encoding")) continue;
        for (std::string_view word : Words(After(line, ":"))) {
            if (word == "Auto") return {};
            configured.emplace(word == "None" ? "Off" : word);
        }
    }
    return configured;
}

// The host's port whose FEC is known; nullopt: no such port, or several. With several, it is
// unknown which port is connected to the other host.
std::optional<FecPort> OnlyFecPort(HostView& view) {
    constexpr double kMinMegabits = 25000;  // slower links have no FEC
    std::vector<FecPort> ports;
    for (const NetDevice& device : NetDevices(view)) {
        const double most = std::max(device.most_megabits, device.megabits);
        // The speed of a port without a link may be unknown.
        const bool slow = most > 0 && most < kMinMegabits;
        if (view.Complete() && (!device.physical || device.wireless || slow)) continue;
        const Reading shown = view.Command("ethtool --show-fec " + device.name);
        if (!shown.found()) continue;
        ports.push_back({view.host(), device.name, device.up, ConfiguredFec(shown.text)});
    }
    return ports.size() == 1 ? std::optional(ports.front()) : std::nullopt;
}

}  // namespace

// ---- across-address: addresses that two hosts share.

void AcrossAddress(Hosts hosts, Findings& out) {
    std::map<uint32_t, std::string> owners;
    bool any = false;
    for (const auto& host : hosts) {
        std::map<uint32_t, std::string> own;
        for (const NetDevice& device : NetDevices(*host)) {
            // Container bridges have the same address on every host; that is harmless.
            if (IsOfContainers(device.name)) continue;
            for (const Ipv4& address : device.addresses) {
                if (address.IsLoopback()) continue;
                // A VPN's provider may give one address to all its customers.
                if (IsVpn(device.name) && address.prefix == 32) continue;
                own[address.bits] = host->host() + " " + device.name;
                any = true;
                const auto taken = owners.find(address.bits);
                if (taken == owners.end()) continue;
                Report<found::kAddressTwice>(out, address.Text(), taken->second, own[address.bits],
                                             address.prefix, ShellWord(device.name));
            }
        }
        owners.merge(own);
    }
    if (any && out.empty()) out.Ok("no address is on two hosts");
}

void AcrossMtu(Hosts hosts, Findings& out) {
    std::map<std::pair<uint32_t, int>, std::vector<End>> subnets;
    for (const auto& host : hosts) {
        for (const NetDevice& device : NetDevices(*host)) {
            for (const Ipv4& address : device.addresses) {
                if (address.IsLoopback() || address.IsLinkLocal() || address.prefix >= 32 ||
                    device.mtu == 0 || !device.up || IsOfContainers(device.name)) {
                    continue;
                }
                subnets[{address.network(), address.prefix}].push_back(
                    {host.get(), device.name, device.mtu,
                     host->Text("sys/class/net/" + device.name + "/mode")});
            }
        }
    }
    for (const auto& [subnet, ends] : subnets) {
        if (ends.size() < 2 || CheckModes(ends, out)) continue;
        const auto [least, most] = FarthestEnds(ends);
        if (std::ranges::all_of(ends,
                                [mtu = ends[0].mtu](const End& end) { return end.mtu == mtu; })) {
            ReportOk(out, "{}/{}: MTU {} on {} ends", Ipv4{subnet.first, 0}.Text(), subnet.second,
                     ends[0].mtu, ends.size());
        } else if (least != nullptr) {
            ReportMtus(ends, *least, *most, out);
        }
    }
}

void AcrossPath(Hosts hosts, Findings& out) {
    for (const auto& host : hosts) {
        size_t untested = 0;
        std::string why;
        const std::vector<Path> paths = PathsFrom(*host, hosts);
        for (const Path& path : paths) {
            if (path.vpn && AnswersOtherwise(*host, path, paths)) continue;
            if (path.vpn && RelayedAddresses(*host).contains(path.address)) {
                Report<found::kPathRelayed>(out, LinkText(*host, path));
                continue;
            }
            if (IsOfTwoHomes(*host, path, paths)) {
                Report<found::kPathTwoHomes>(out, LinkText(*host, path));
                continue;
            }
            const Reading large = host->Command(PingCommand(path, path.mtu));
            if (large.found()) CheckPath(*host, path, large, out);
            if (!large.refused()) continue;
            ++untested;
            why = large.text;
        }
        if (untested == 0) continue;
        Report<found::kPathsUntested>(out, host->host(), untested, paths.size(), why);
    }
}

void AcrossPorts(Hosts hosts, Findings& out) {
    std::set<std::pair<std::string, std::string>> joined;
    std::vector<std::string> tested;  // hosts
    for (const auto& host : hosts) {
        const Reading outcomes = host->Probe("reach");
        if (outcomes.refused()) {
            Report<found::kPortsUntested>(out, host->host(), outcomes.text,
                                          ShellWord(host->host()));
        }
        if (!outcomes.found()) continue;
        tested.push_back(host->host());
        size_t untested = 0;
        const std::vector<Path> paths = PathsFrom(*host, hosts);
        for (const Path& path : paths) {
            // across-path reports such a path.
            const bool other =
                path.vpn ? AnswersOtherwise(*host, path, paths) : IsOfTwoHomes(*host, path, paths);
            if (other) continue;
            const bool listened = Listened(*host, path, hosts);
            const bool checked = CheckPorts(*host, path, outcomes.text, listened, out);
            if (checked || !path.vpn) joined.insert(std::minmax(host->host(), path.peer));
            if (!checked && !path.vpn) ++untested;
        }
        if (untested > 0) Report<found::kPortsPartly>(out, host->host(), untested, paths.size());
    }
    std::vector<std::string> apart;  // pairs of hosts
    for (size_t a = 0; a < tested.size(); ++a) {
        for (size_t b = a + 1; b < tested.size(); ++b) {
            if (joined.contains(std::minmax(tested[a], tested[b]))) continue;
            apart.push_back(tested[a] + " and " + tested[b]);
        }
    }
    if (!apart.empty()) Report<found::kPortsApart>(out, Joined(apart), apart.size());
}

// ---- across-clock: differences between the clocks of hosts.

void AcrossClock(Hosts hosts, Findings& out) {
    for (const auto& host : hosts) {
        const auto clock = Number(host->Probe("clock").text);
        const std::string asked = host->Probe("clock_asked").text;
        const auto words = Words(asked);
        if (!clock || words.size() != 2) continue;
        const auto before = Number(words[0]), after = Number(words[1]);
        if (!before || !after || *after < *before) continue;
        // The host's clock minus this machine's, in seconds, lies between these two bounds.
        const double least = (*clock - *after) * 1e-9, most = (*clock - *before) * 1e-9;
        const double distance = std::max({least, -most, 0.0});
        ReportAs<found::kClockOffset>(distance < 0.1 ? kOk
                                      : distance < 5 ? kNote
                                                     : kWarn,
                                      out, host->host(), least, most);
    }
}

void AcrossKernel(Hosts hosts, Findings& out) {
    HostGroups kernels, sets;
    for (const auto& host : hosts) {
        const auto version = KernelVersion(*host);
        const std::string set = InstructionSets(*host);
        if (!set.empty()) sets[set].push_back(host->host());
        if (!version) continue;
        kernels[fmt::format("kernel {}.{}", version->part[0], version->part[1])].push_back(
            host->host());
    }
    if (sets.size() > 1) Report<found::kProcessorsDiffer>(out, TextOf(sets));
    if (kernels.size() > 1) Report<found::kKernelsDiffer>(out, TextOf(kernels));
    if (out.empty() && !kernels.empty()) out.Ok(TextOf(kernels));
}

void AcrossFec(Hosts hosts, Findings& out) {
    std::vector<FecPort> ports;
    for (const auto& host : hosts) {
        if (auto port = OnlyFecPort(*host)) ports.push_back(std::move(*port));
    }
    for (size_t a = 0; a < ports.size(); ++a) {
        for (size_t b = a + 1; b < ports.size(); ++b) {
            const FecPort &one = ports[a], &two = ports[b];
            const bool common = one.configured.empty() || two.configured.empty() ||
                                std::ranges::any_of(one.configured, [&](const std::string& fec) {
                                    return two.configured.contains(fec);
                                });
            const bool down = !one.up || !two.up;
            const Severity severity = common ? kOk : down ? kWarn : kNote;
            ReportAs<found::kFecDiffers>(
                severity, out, one.Text(), two.Text(),
                down ? "a link whose ends differ in FEC stays down"
                     : "with a switch between the hosts, each end has its own FEC",
                ShellWord(one.host), ShellWord(one.device), ShellWord(two.host),
                ShellWord(two.device));
        }
    }
}

}  // namespace weft::doctor::checks
