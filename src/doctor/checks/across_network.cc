// Compares addresses, MTU, paths, clocks and kernels across hosts.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>

#include "base/shell_word.h"
#include "doctor/checks/checks.h"
#include "doctor/cost.h"
#include "doctor/facts.h"
#include "doctor/network.h"
#include "doctor/path.h"
#include "doctor/remediation.h"
#include "doctor/text.h"

namespace weft::doctor::checks {

// ---- across-address: Addresses that two hosts share.

void AcrossAddress(Hosts hosts, Findings& out) {
    std::map<uint32_t, std::string> owners;
    size_t count = 0;
    for (const auto& host : hosts) {
        std::map<uint32_t, std::string> own;
        for (const NetDevice& device : NetDevices(*host)) {
            // Container bridges have the same address on every host; that is harmless.
            if (IsOfContainers(device.name)) continue;
            for (const Ipv4& address : device.addresses) {
                if (address.IsLoopback()) continue;
                own[address.bits] = host->host() + " " + device.name;
                ++count;
                const auto taken = owners.find(address.bits);
                if (taken == owners.end() || out.Count() > 16) continue;
                out.Fail(fmt::format("{} is on {} and on {} {}", address.Text(), taken->second,
                                     host->host(), device.name),
                         "an address of its own on each host",
                         "whoever answers ARP first gets the packets: connections fail or stall at "
                         "random",
                         fmt::format("sudo ip addr del {}/{} dev {}, then give it an address "
                                     "that no other host has",
                                     address.Text(), address.prefix, ShellWord(device.name)));
            }
        }
        owners.merge(own);
    }
    if (count > 0 && out.empty()) out.Ok("no address is on two hosts");
}

// ---- across-mtu: MTU on both ends of a subnet.

namespace {

struct End {
    std::string host, device;
    int mtu = 0;
    HostView* view = nullptr;
    std::string mode;  // IPoIB mode: "connected", "datagram"; else ""
};

// Only one end of IPoIB is in connected mode, so the other end can't use its MTU.
bool LookAtModes(const End& least, const End& most, Findings& out) {
    if (least.mode.empty() || most.mode.empty() || least.mode == most.mode) return false;
    const End& connected = least.mode == "connected" ? least : most;
    const End& datagram = least.mode == "connected" ? most : least;
    out.Warn(
        fmt::format("{} {}: IPoIB {}, MTU {}; {} {}: IPoIB {}, MTU {}", least.host, least.device,
                    least.mode, least.mtu, most.host, most.device, most.mode, most.mtu),
        "one mode on all ends of a subnet",
        "what the connected end sends is larger than the other can take: small messages "
        "work, then a transfer hangs",
        fmt::format("on {}: echo datagram | sudo tee /sys/class/net/{}/mode && {}; or "
                    "connected on all, where the cards can (mlx5 can't)",
                    ShellWord(connected.host), ShellWord(connected.device),
                    SetMtu(*connected.view, connected.device, datagram.mtu)));
    return true;
}

}  // namespace

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
                    {host->host(), device.name, device.mtu, host.get(),
                     host->Text("sys/class/net/" + device.name + "/mode")});
            }
        }
    }
    for (const auto& [subnet, ends] : subnets) {
        const End* least = &ends.front();
        const End* most = &ends.front();
        for (const End& end : ends) {
            if (end.mtu < least->mtu) least = &end;
            if (end.mtu > most->mtu) most = &end;
        }
        const End& first = ends.front();
        const auto unlike =
            std::ranges::find_if(ends, [&first](const End& end) { return end.mode != first.mode; });
        if (unlike != ends.end() && LookAtModes(ends.front(), *unlike, out)) continue;
        if (ends.size() < 2 || least->host == most->host) {
            if (ends.size() > 1 && least->mtu == most->mtu) {
                out.Ok(fmt::format("{}/{}: MTU {} on {} ends", Ipv4{subnet.first, 0}.Text(),
                                   subnet.second, least->mtu, ends.size()));
            }
            continue;
        }
        out.Fail(fmt::format("{} {}: MTU {}; {} {}: MTU {}", least->host, least->device, least->mtu,
                             most->host, most->device, most->mtu),
                 "the same MTU on all ends of a subnet",
                 fmt::format("RDMA and large TCP packets above {} bytes are dropped on the way: "
                             "small messages work, then a transfer hangs (RDMA with completion "
                             "error 12 after some seconds)",
                             least->mtu),
                 fmt::format("on {} (and on the switch between them): {}", ShellWord(least->host),
                             SetMtu(*least->view, least->device, most->mtu)));
    }
}

// ---- across-path: Packets of the full MTU pass every switch.

namespace {

constexpr double kSlowMs = 2;

void LookAcrossPath(HostView& view, const Path& path, Findings& out) {
    const Reading large = view.Command(PingCommand(path, path.mtu));
    const Reading small = view.Command(PingCommand(path, kSmallPacket));
    if (large.state == ReadState::kAbsent) return;
    const std::string where =
        fmt::format("{} to {} ({}) by {}", view.host(), path.address, path.peer, path.device);
    const std::string expected = fmt::format("packets of {} bytes arrive whole", path.mtu);
    if (Contains(large.text, "not found") || Contains(large.text, "not permitted")) {
        return out.Note(fmt::format("{}: ping can't run there", where), expected,
                        "whether large packets arrive was not tried",
                        Install(view, {"iputils-ping", "iputils", "iputils"}));
    }
    if (Contains(large.text, " 0% packet loss")) {
        const auto ms = NumberAfter(large.text, " time=");
        const std::string read = fmt::format("{}: {} bytes arrive{}", where, path.mtu,
                                             ms ? fmt::format(", {:g} ms both ways", *ms) : "");
        if (!ms || *ms < kSlowMs) return out.Ok(read);
        out.Note(read, fmt::format("below {:g} ms on a cable", kSlowMs),
                 "each of the two sums in a layer of a model waits so long for the other host",
                 "a direct cable or one switch between the hosts; look for power saving "
                 "(pcie-power, nic-coalescing) and a wireless hop");
        const std::vector<NetDevice> devices = NetDevices(view);
        const NetDevice* device = FindNetDevice(devices, path.device);
        const auto otherwise = device == nullptr ? std::nullopt : PortLink(*device);
        if (!otherwise) return;
        HostLink so = *otherwise;
        so.latency_s = *ms / 2 * 1e-3;
        return out.AskCost(LinkQuestion(view, so, *otherwise));
    }
    if (Contains(small.text, " 0% packet loss")) {
        return out.Fail(fmt::format("{}: 576 bytes arrive, {} do not", where, path.mtu), expected,
                        "something between the hosts (a switch without jumbo frames) drops large "
                        "packets: small messages work, transfers hang until their deadline",
                        "jumbo frames on the switch's ports, or on all hosts: " +
                            SetMtu(view, path.device, 1500));
    }
    out.Warn(fmt::format("{}: no answer", where), expected,
             "the peer can't be reached by this address, or does not answer ping",
             "cable, addresses, firewall: ping " + path.address);
}

}  // namespace

void AcrossPath(Hosts hosts, Findings& out) {
    for (const auto& host : hosts) {
        for (const Path& path : PathsFrom(*host, hosts)) {
            if (out.Count() < 64) LookAcrossPath(*host, path, out);
        }
    }
}

// ---- across-clock: Differences between the clocks of hosts.

namespace {

// The host's clock minus the asking machine's, in seconds: between least and most.
struct Offset {
    std::string host;
    double least = 0, most = 0;
    double Distance() const {  // smallest possible distance from zero
        return least > 0 ? least : most < 0 ? -most : 0;
    }
};

}  // namespace

void AcrossClock(Hosts hosts, Findings& out) {
    bool any = false;
    for (const auto& host : hosts) {
        const auto clock = Number(host->Probe("clock").text);
        const std::string asked = host->Probe("clock_asked").text;
        const auto words = Words(asked);
        if (!clock || words.size() != 2) continue;
        const auto before = Number(words[0]), after = Number(words[1]);
        if (!before || !after || *after < *before) continue;
        any = true;
        const Offset offset{host->host(), (*clock - *after) * 1e-9, (*clock - *before) * 1e-9};
        const std::string read = fmt::format("{}: clock {:+.3f} to {:+.3f} s from here",
                                             offset.host, offset.least, offset.most);
        if (offset.Distance() < 0.1) {
            out.Ok(read);
        } else {
            const char* why =
                "logs and timelines of the hosts don't line up; from some minutes on "
                "certificates and tokens look expired";
            const char* fix =
                "sudo timedatectl set-ntp true on all hosts (or chrony, one of them "
                "the server of the others)";
            if (offset.Distance() < 5) {
                out.Note(read, "within 0.1 s", why, fix);
            } else {
                out.Warn(read, "within 0.1 s", why, fix);
            }
        }
    }
    if (!any) return;
}

// ---- across-kernel: Kernels, and instruction sets of processors, on all hosts.

namespace {

// Instruction sets by which a rank chooses its kernels.
std::string Sets(HostView& view) {
    const Reading cpu = view.Read("proc/cpuinfo");
    if (!cpu.found()) return "";
    for (std::string_view line : Lines(cpu.text)) {
        if (!line.starts_with("flags") && !line.starts_with("Features")) continue;
        const auto has = [&](std::string_view flag) {
            const auto words = Words(line);
            return std::find(words.begin(), words.end(), flag) != words.end();
        };
        if (has("avx512bw") && has("avx512_vnni")) return "AVX-512 with VNNI";
        if (has("avx512bw")) return "AVX-512";
        if (has("avx2")) return "AVX2";
        return "no AVX2";
    }
    return "";
}

void Group(std::map<std::string, std::vector<std::string>>& groups, const std::string& key,
           const std::string& host) {
    if (!key.empty()) groups[key].push_back(host);
}

std::string Text(const std::map<std::string, std::vector<std::string>>& groups) {
    std::string words;
    for (const auto& [name, names] : groups) {
        words += fmt::format("{}{} on {}", words.empty() ? "" : "; ", name, Joined(names));
    }
    return words;
}

}  // namespace

void AcrossKernel(Hosts hosts, Findings& out) {
    std::map<std::string, std::vector<std::string>> kernels, sets;
    for (const auto& host : hosts) {
        const auto version = KernelVersion(*host);
        Group(kernels,
              version ? fmt::format("kernel {}.{}", version->part[0], version->part[1]) : "",
              host->host());
        Group(sets, Sets(*host), host->host());
    }
    if (sets.size() > 1) {
        out.Note(Text(sets), "processors of one kind",
                 "ranks of different speed wait for each other: the slowest sets the pace",
                 "--tensor-split, with shares by speed (weft bench on each host tells it)");
    }
    if (kernels.size() > 1) {
        out.Note(Text(kernels), "one kernel",
                 "drivers of cards and GPUs differ with it: what works on one host may hang on "
                 "the other",
                 "the same kernel on all hosts");
    }
    if (out.empty() && !kernels.empty()) out.Ok(Text(kernels));
}

}  // namespace weft::doctor::checks
