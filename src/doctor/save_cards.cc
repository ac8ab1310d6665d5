// Writers of what checks of cards read: programs that print for people, and the kernel's files of
// RDMA devices, bonds and modules. Each parses its source with the checks' own reader, and writes
// that again.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "doctor/kernel_release.h"
#include "doctor/network.h"
#include "doctor/network_text.h"
#include "doctor/rdma.h"
#include "doctor/save_writers.h"
#include "doctor/text.h"

namespace weft::doctor::save {
namespace {

constexpr size_t kMostCardLine = 512;

bool IsDigits(std::string_view text, size_t most) {
    return !text.empty() && text.size() <= most &&
           text.find_first_not_of("0123456789") == text.npos;
}

// A number or one of a few words, as options of modules have them.
bool IsPlainValue(std::string_view text) {
    if (text == "Y" || text == "N") return true;
    if (text.starts_with('-')) text.remove_prefix(1);
    return IsDigits(text, 12);
}

// Of ibstat the devices without ports: that there are some.
std::string BareDevices(std::string_view text, Names& names) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        line = Trim(line.substr(0, kMostCardLine));
        if (line.starts_with("CA '")) {
            kept += fmt::format("CA '{}'\n", names.RdmaDevice(After(line, "CA '", "'")));
        } else if (line.starts_with("Firmware version:")) {
            const std::string version = ShortVersion(After(line, ":"), names);
            if (!version.empty()) kept += fmt::format("\tFirmware version: {}", version);
        }
    }
    return kept;
}

constexpr std::array<std::string_view, 9> kOptionModules = {
    "mlx4_core", "mlx5_core", "ttm", "amdgpu", "ice", "irdma", "ixgbe", "i40e", "nvidia"};

bool IsOptionName(std::string_view text) {
    return !text.empty() && text.size() <= 32 &&
           text.find_first_not_of("abcdefghijklmnopqrstuvwxyz_0123456789") == text.npos;
}

}  // namespace

bool IsOptionModule(std::string_view word) {
    return std::ranges::find(kOptionModules, word) != kOptionModules.end();
}

std::string IpText(std::string_view text, Names& names) {
    std::string kept;
    for (const Route& route : ParseRouteText(text)) {
        const std::string to = route.to.prefix == 0
                                   ? "default"
                                   : fmt::format("{}/{}", names.Address(route.to), route.to.prefix);
        kept += fmt::format("{}{} dev {}", to, route.has_gateway ? " via 10.0.0.1" : "",
                            names.Interface(route.device));
        kept += route.metric > 0 ? fmt::format(" metric {:g}\n", route.metric) : "\n";
    }
    int number = 1;
    for (const NetDevice& device : ParseIpText(text)) {
        kept +=
            fmt::format("{}: {}: <> mtu {}", number++, names.Interface(device.name), device.mtu);
        if (!device.master.empty())
            kept += fmt::format(" master {}", names.Interface(device.master));
        if (device.state_read) kept += device.up ? " state UP" : " state DOWN";
        kept += '\n';
        if (SaysInfiniband(text, device.name)) kept += "    link/infiniband\n";
        if (device.addressed && device.addresses.empty()) kept += "    inet6 ::1/128\n";
        for (const Ipv4& address : device.addresses) {
            kept += fmt::format("    inet {}/{}\n", names.Address(address), address.prefix);
        }
    }
    return kept;
}

// In the form of ibstatus, with the fields of a device as ibstat has them.
std::string RdmaPortsText(std::string_view text, Names& names) {
    const std::vector<RdmaPort> ports = ParseRdmaPorts(text);
    std::string kept = ports.empty() ? BareDevices(text, names) : "";
    std::vector<std::string> cards;  // their GUIDs: which ports are of one card
    for (const RdmaPort& port : ports) {
        if (port.device.size() > 64) continue;
        kept += fmt::format("CA '{}'\n", names.RdmaDevice(port.device));
        if (std::string model = CardModel(port.kind, names); !model.empty()) {
            kept += fmt::format("\tCA type: {}", model);
        }
        if (!port.image.empty()) {
            const auto card = std::ranges::find(cards, port.image) - cards.begin();
            if (card == std::ssize(cards)) cards.push_back(port.image);
            kept += fmt::format("\tSystem image GUID: {:#x}\n", card + 1);
        }
        if (port.iwarp) kept += "\ttransport: iWARP (1)\n";
        if (port.no_guid) kept += "\tNode GUID: 0x0000000000000000\n";
        if (std::string version = ShortVersion(port.firmware, names); !version.empty()) {
            kept += fmt::format("\tFirmware version: {}", version);
        }
        kept += fmt::format("\tPort {}:\n", port.port);
        const std::string state = PortState(fmt::format("1: {}", port.state), names);
        const std::string physical = PortState(fmt::format("1: {}", port.physical), names);
        if (!state.empty()) kept += fmt::format("\t\tstate: {}", state);
        if (!physical.empty()) kept += fmt::format("\t\tphys state: {}", physical);
        if (std::string rate = PortRate(port.rate, names); !rate.empty()) {
            kept += fmt::format("\t\trate: {}", rate);
        }
        if (port.lid) kept += fmt::format("\t\tbase lid: {:#x}\n", *port.lid);
        if (port.sm_lid) kept += fmt::format("\t\tsm lid: {:#x}\n", *port.sm_lid);
        if (port.ethernet() || port.infiniband()) {
            kept += fmt::format("\t\tlink_layer: {}\n", port.link_layer);
        }
        if (!port.interface.empty() && port.interface.size() < 64) {
            kept += fmt::format("\t\tnetdev: {}\n", names.Interface(port.interface));
        }
    }
    return kept;
}

std::string Modules(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 8> kCards = {
        "mlx4_core", "mlx5_core", "ice", "bnxt_en", "ionic", "cxgb4", "irdma", "amdgpu"};
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line);
        const bool known = words.size() >= 2 && IsDigits(words[1], 10) &&
                           std::ranges::find(kCards, words[0]) != kCards.end();
        if (known) kept += fmt::format("{} {}\n", words[0], words[1]);
    }
    return kept;
}

// The table of `nvidia-smi topo -m`: names of GPUs and cards, and the kinds of ways.
std::string Topology(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 7> kWays = {"X",   "SYS", "NODE", "PHB",
                                                       "PXB", "PIX", "NV#"};
    std::string kept;
    for (std::string_view line : Lines(text.substr(0, 65536))) {
        std::string row;
        for (std::string_view word : Words(line.substr(0, kMostCardLine))) {
            const bool unit =
                (word.starts_with("GPU") || word.starts_with("NIC")) && IsDigits(word.substr(3), 3);
            if (!unit && std::ranges::find(kWays, word) == kWays.end()) break;
            row += fmt::format("{}{}", row.empty() ? "" : "\t", word);
        }
        if (!row.empty()) kept += row + "\n";
    }
    return kept;
}

std::string MasterName(std::string_view text, Names& names) {
    text = Trim(text);
    text = text.substr(text.rfind('/') + 1);
    return text.empty() || text.size() > 64 ? "" : fmt::format("../{}\n", names.Interface(text));
}

std::string InterfaceList(std::string_view text, Names& names) {
    std::string kept;
    for (std::string_view word : Words(text.substr(0, 4096))) {
        if (word.size() > 64) continue;
        kept += fmt::format("{}{}", kept.empty() ? "" : " ", names.Interface(word));
    }
    return kept.empty() ? "" : kept + "\n";
}

std::string BondMode(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 7> kNames = {
        "balance-rr", "active-backup", "balance-xor", "broadcast",
        "802.3ad",    "balance-tlb",   "balance-alb"};
    const auto words = Words(text.substr(0, 64));
    const bool known = !words.empty() && std::ranges::find(kNames, words[0]) != kNames.end();
    return known ? fmt::format("{}\n", words[0]) : "";
}

std::string BondFile(std::string_view text, Names& names) {
    constexpr std::array<std::string_view, 7> kWords = {"load balancing (round-robin)",
                                                        "fault-tolerance (active-backup)",
                                                        "load balancing (xor)",
                                                        "fault-tolerance (broadcast)",
                                                        "IEEE 802.3ad Dynamic link aggregation",
                                                        "transmit load balancing",
                                                        "adaptive load balancing"};
    std::string kept;
    for (std::string_view words : kWords) {
        if (After(text, "Bonding Mode:").starts_with(words)) {
            kept += fmt::format("Bonding Mode: {}\n", words);
        }
    }
    for (std::string_view line : Lines(text)) {
        const std::string_view part = After(line, "Slave Interface:");
        if (line.starts_with("Slave Interface:") && part.size() < 64) {
            kept += fmt::format("Slave Interface: {}\n", names.Interface(part));
        }
    }
    return kept;
}

std::string CardModel(std::string_view text, Names&) {
    text = Trim(text);
    const bool model = text.starts_with("MT") && IsDigits(text.substr(2), 6);
    return model ? fmt::format("{}\n", text) : "";
}

std::string NodeType(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 4> kTypes = {"1: CA", "2: switch", "4: RNIC",
                                                        "5: usNIC"};
    text = Trim(text);
    return std::ranges::find(kTypes, text) != kTypes.end() ? fmt::format("{}\n", text) : "";
}

std::string ZeroGuid(std::string_view text, Names&) {
    const bool zero = Trim(text).find_first_not_of("0:") == text.npos && text.size() > 8;
    return zero ? "0000:0000:0000:0000\n" : "";
}

std::string SensorName(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 18> kSensorWords = {
        "mlx5",    "mlx4", "bnxt_en", "ice",  "i40e", "ixgbe",    "cxgb4", "atlantic", "amdgpu",
        "nouveau", "xe",   "i915",    "asic", "edge", "junction", "mem",   "pkg",      "vram"};
    text = Trim(text);
    const bool module = text.starts_with("Module") && IsDigits(text.substr(6), 2);
    const bool known = std::ranges::find(kSensorWords, text) != kSensorWords.end();
    return module || known ? fmt::format("{}\n", text) : "";
}

std::string Fec(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 7> kKinds = {"Auto",  "Off",  "None", "RS",
                                                        "BaseR", "LLRS", "BASER"};
    std::string kept;
    for (std::string_view line : Lines(text.substr(0, 4096))) {
        line = Trim(line);
        if (!line.starts_with("Configured FEC encoding")) continue;
        kept += "Configured FEC encodings:";
        for (std::string_view word : Words(After(line, ":"))) {
            const bool known = std::ranges::find(kKinds, word) != kKinds.end();
            if (known) kept += fmt::format(" {}", word);
        }
        kept += '\n';
    }
    return kept;
}

std::string EventDriver(std::string_view text, Names& names) {
    const std::string driver = DriverWord(After(text.substr(0, kMostCardLine), "DRIVER="), names);
    return driver.empty() ? "" : fmt::format("DRIVER={}\n", driver);
}

// The first word of `text` that is a kernel's release; "" without.
std::string FirstRelease(std::string_view text, Names& names) {
    for (size_t at = 0; at < text.size() && at < kMostCardLine; ++at) {
        const bool begins =
            IsDigits(text.substr(at, 1), 1) &&
            (at == 0 || std::string_view(" -/\"'=>").find(text[at - 1]) != std::string_view::npos);
        if (!begins) continue;
        std::string_view word = text.substr(at);
        word = word.substr(0, std::min(word.find_first_of(" \"'\n"), word.size()));
        if (word.ends_with(".conf")) word.remove_suffix(5);
        const std::string release(Trim(std::string_view(Release(word, names))));
        if (release.find('.') != release.npos) return release;
    }
    return "";
}

// Which kernel the boot loader takes: the release, or the entry's number.
std::string LoaderChoice(std::string_view text, Names& names) {
    std::string kept;
    for (std::string_view line : Lines(text.substr(0, 65536))) {
        line = Trim(line);
        for (std::string_view key : {"saved_entry=", "default "}) {
            if (!line.starts_with(key)) continue;
            const std::string release = FirstRelease(line.substr(key.size()), names);
            if (!release.empty()) kept += fmt::format("{}{}\n", key, release);
        }
    }
    return kept;
}

// The release of "/boot/vmlinuz-6.17.8-300.fc43.x86_64" or of a pin.
std::string ChosenRelease(std::string_view text, Names& names) {
    const std::string release = FirstRelease(Trim(text), names);
    return release.empty() ? "" : release + "\n";
}

std::string GrubParameters(std::string_view text, Names& names) {
    std::string words, kept;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        if (line.starts_with("GRUB_DEFAULT=")) {
            std::string_view entry = line.substr(line.find('=') + 1);
            while (entry.starts_with('"') || entry.starts_with('\'')) entry.remove_prefix(1);
            const std::string release = FirstRelease(entry, names);
            const std::string_view number = entry.substr(0, entry.find_first_not_of("0123456789"));
            if (!release.empty()) kept += fmt::format("GRUB_DEFAULT=\"{}\"\n", release);
            if (release.empty() && IsDigits(number, 3)) {
                kept += fmt::format("GRUB_DEFAULT={}\n", number);
            }
        }
        if (!line.starts_with("GRUB_CMDLINE_LINUX")) continue;
        words += ' ';
        words += line.substr(std::min(line.find('='), line.size() - 1) + 1);
    }
    std::ranges::replace_if(
        words, [](char c) { return c == '"' || c == '\''; }, ' ');
    const std::string parameters = KernelParameters(words, names);
    if (!parameters.empty()) {
        kept += fmt::format("GRUB_CMDLINE_LINUX=\"{}\"\n", Trim(std::string_view(parameters)));
    }
    return kept;
}

std::string ModuleOptionLines(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line.substr(0, line.find('#')));
        if (words.size() < 3 || words[0] != "options" || !IsOptionModule(words[1])) continue;
        std::string options;
        for (size_t i = 2; i < words.size(); ++i) {
            const size_t equals = words[i].find('=');
            if (equals == words[i].npos || !IsOptionName(words[i].substr(0, equals))) continue;
            if (IsPlainValue(words[i].substr(equals + 1))) options += fmt::format(" {}", words[i]);
        }
        if (!options.empty()) kept += fmt::format("options {}{}\n", words[1], options);
    }
    return kept;
}

std::string OptionValue(std::string_view text, Names&) {
    text = Trim(text);
    return IsPlainValue(text) ? fmt::format("{}\n", text) : "";
}

// Of packages that wait for a boot only those that checks know.
std::string WaitingPackages(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 5> kKinds = {"linux-image", "linux-base", "nvidia",
                                                        "amdgpu", "mlnx"};
    std::string kept;
    for (std::string_view word : Words(text.substr(0, 65536))) {
        for (std::string_view kind : kKinds) {
            if (word.starts_with(kind)) kept += fmt::format("{}\n", kind);
        }
    }
    return kept;
}

std::string RebootAnswer(std::string_view text, Names&) {
    return Contains(text, "Reboot is required") ? "Reboot is required\n" : "no\n";
}

// "kernel-core-6.17.8-300.fc43.x86_64": the releases alone.
std::string KernelPackages(std::string_view text, Names& names) {
    std::string kept;
    for (std::string_view line : Lines(text.substr(0, 1 << 20))) {
        const auto words = Words(line);
        if (words.size() == 2 && words[0].starts_with("linux") && words[0].size() < 16) {
            const std::string release = Release(words[1], names);
            if (!release.empty()) kept += fmt::format("{} {}", words[0], release);
            continue;
        }
        for (std::string_view word : words) {
            for (std::string_view begin : {"kernel-core-", "kernel-", "linux-image-", "vmlinuz-"}) {
                if (!word.starts_with(begin)) continue;
                const std::string release = Release(word.substr(begin.size()), names);
                const bool installed = words[0] == "ii";
                if (!release.empty()) {
                    kept += fmt::format("{}{}{}", installed ? "ii " : "", begin, release);
                }
                break;
            }
        }
    }
    return kept;
}

// "system_u:object_r:var_log_t:s0 /var/log/opensm.log": the type alone.
std::string SecurityLabel(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 7> kTypes = {
        "opensm_log_t", "var_log_t", "user_home_t", "admin_home_t",
        "unlabeled_t",  "default_t", "tmp_t"};
    for (std::string_view word : Words(text.substr(0, kMostCardLine))) {
        const auto parts = Split(word, ':');
        if (parts.size() < 3 || !parts[2].ends_with("_t")) continue;
        const bool known = std::ranges::find(kTypes, parts[2]) != kTypes.end();
        return fmt::format("u:r:{}:s0\n", known ? parts[2] : "other_t");
    }
    return "";
}

std::string SecurityState(std::string_view text, Names&) {
    for (const char* state : {"Enforcing", "Permissive", "Disabled"}) {
        if (Trim(text) == state) return fmt::format("{}\n", state);
    }
    return "";
}

// "prio-pfc 0:off 3:on", "dscp-prio 26:3" of `dcb`; "Enabled: 3", "PFC enabled: 3" of others.
std::string Priorities(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view key : {"prio-pfc ", "dscp-prio ", "PFC enabled:", "Enabled:"}) {
        std::string line;
        for (std::string_view word : Words(After(text, key))) {
            const size_t colon = std::min(word.find_first_of(":,"), word.size());
            const std::string_view rest = word.substr(std::min(colon + 1, word.size()));
            const bool value = rest.empty() || rest == "on" || rest == "off" || IsDigits(rest, 2);
            if (IsDigits(word.substr(0, colon), 2) && value) line += fmt::format(" {}", word);
        }
        if (!line.empty()) kept += fmt::format("{}{}\n", key, line);
        if (!line.empty() && key == "PFC enabled:") break;
    }
    return kept;
}

}  // namespace weft::doctor::save
