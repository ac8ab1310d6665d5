// Writers of the output of programs.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>

#include "base/json.h"
#include "doctor/firewalld.h"
#include "doctor/iptables_text.h"
#include "doctor/kernel_log.h"
#include "doctor/packet_filter.h"
#include "doctor/save_writers.h"
#include "doctor/text.h"
#include "doctor/ufw.h"

namespace weft::doctor::save {
namespace {

using Json = nlohmann::ordered_json;

constexpr size_t kMostLine = 512;

// "MT27500", "E810-C", "I226-V", "ConnectX-3", "7900", "02": the letters of a maker's models, up
// to five digits, at most one capital.
bool IsModel(std::string_view word) {
    constexpr std::array<std::string_view, 24> kBeginnings = {
        "",   "MT", "E", "I", "X",  "XL", "XXV", "BCM", "RTL", "AQC", "QL", "T",
        "RX", "MI", "W", "V", "GA", "AD", "GB",  "GH",  "NV",  "SFC", "CX", "AX"};
    constexpr std::string_view kDigits = "0123456789", kLarge = "ABCDEFGHIJKLMNOPQRSTUVWXYZ";
    if (word.starts_with("ConnectX-")) {
        return word.size() == 10 && kDigits.find(word[9]) != kDigits.npos;
    }
    if (word.size() == 2 && word.find_first_not_of("0123456789abcdef") == word.npos) return true;
    const size_t letters = std::min(word.find_first_not_of(kLarge), word.size());
    if (std::ranges::find(kBeginnings, word.substr(0, letters)) == kBeginnings.end()) return false;
    word.remove_prefix(letters);
    const size_t digits = std::min(word.find_first_not_of(kDigits), word.size());
    if (digits == 0 || digits > 5) return false;
    word.remove_prefix(digits);
    if (word.starts_with('-')) word.remove_prefix(1);
    return word.empty() || (word.size() == 1 && kLarge.find(word[0]) != kLarge.npos);
}

// "15b3:1003" of makers that checks know or most machines have.
bool IsPciIds(std::string_view word) {
    constexpr std::array<std::string_view, 17> kMakers = {
        "15b3", "8086", "1022", "1002", "14e4", "10de", "10ec", "1d6a", "17db",
        "1425", "1077", "1924", "1dd8", "1d0f", "14c3", "1af4", "1b21"};
    return word.size() == 9 && word[4] == ':' &&
           std::ranges::find(kMakers, word.substr(0, 4)) != kMakers.end() &&
           word.substr(5).find_first_not_of("0123456789abcdef") == word.npos;
}

// The words of a line of lspci that vendors' names are made of (pci.ids).
std::string VendorName(std::string_view text) {
    constexpr std::string_view kWords =
        "Ethernet Infiniband InfiniBand Network VGA compatible 3D Display controller PCI ISA Host "
        "bridge Processing accelerators Non-Volatile memory USB Audio device "
        "Mellanox Technologies NVIDIA Corporation Intel Intel(R) Advanced Micro Devices Inc AMD "
        "AMD/ATI ATI Broadcom Limited Realtek Semiconductor Co Ltd MEDIATEK Corp Qualcomm Atheros "
        "Aquantia Marvell Chelsio Communications QLogic Solarflare Pensando Systems Cornelis "
        "Amazon "
        "Family Controller Connection Adapter Device for SFP SFP+ SFP28 QSFP QSFP+ QSFP28 QSFP56 "
        "backplane Express PCIe Gigabit GbE 2.5GbE 5GbE 10GbE 25GbE 40GbE 50GbE 100GbE 200GbE RDMA "
        "NetXtreme-E NetXtreme Virtual Function BASE-T Lx "
        "Ex Pro Dx Connect-IB BlueField BlueField-2 BlueField-3 Wireless Wi-Fi Bridge Port Root "
        "GPP Switch Downstream Upstream Chipset Series Family-X Strix Strix/Strix Halo Phoenix "
        "Raphael/Granite Ridge Starship/Matisse Rembrandt Granite Dummy Navi Radeon RX XT XTX XTX/"
        "Graphics Pro Instinct Arc Battlemage Thunderbolt USB4 prog-if Normal decode rev ff Cray "
        "Slingshot Cassini Fabric ";
    const auto list = Words(kWords);
    std::string kept;
    for (std::string_view word : Words(text.substr(0, 200))) {
        constexpr std::string_view kAround = "[](){},.:;";
        const size_t begin = word.find_first_not_of(kAround);
        if (begin == word.npos) continue;
        const std::string_view core =
            word.substr(begin, word.find_last_not_of(kAround) + 1 - begin);
        const bool ids = word[0] == '[' && IsPciIds(core);  // "[15b3:1003]" and "[0280]"
        const bool type = core.size() == 4 && word[0] == '[' &&
                          core.find_first_not_of("0123456789abcdef") == core.npos;
        if (!ids && !type && !IsModel(core) && std::ranges::find(list, core) == list.end())
            continue;
        kept += ' ';
        kept += word;
    }
    return kept;
}

// "Speed 8GT/s, Width x4" of a line of lspci.
std::string LinkFields(std::string_view line) {
    const auto speed = NumberAfter(line, "Speed "), width = NumberAfter(line, "Width x");
    if (!speed || !width) return width ? fmt::format("Speed unknown, Width x{:g}", *width) : "";
    return fmt::format("Speed {:g}GT/s, Width x{:g}", *speed, *width);
}

std::string PowerField(std::string_view line) {
    const std::string_view power = After(line, "ASPM ", ";,");
    for (const char* known : {"L0s Enabled", "L1 Enabled", "L0s L1 Enabled", "Disabled"}) {
        if (power == known) return std::string("ASPM ") + known;
    }
    return "";
}

// What is in a slot, the memory's node, and what could not be read.
std::string LspciState(std::string_view line) {
    if (line.starts_with("SltSta:")) {
        return fmt::format("\t\tSltSta:\tPresDet{}\n", Contains(line, "PresDet+") ? '+' : '-');
    }
    const auto node = LeadingNumber(After(line, "NUMA node:"));
    if (node) return fmt::format("\tNUMA node: {:g}\n", *node);
    if (line.starts_with("!!! Unknown header type")) return "\t!!! Unknown header type 7f\n";
    if (line.starts_with("Capabilities: <access denied>")) {
        return "\tCapabilities: <access denied>\n";
    }
    return Contains(line, "DLActive-") ? "\t\tDLActive-\n" : "";
}

// A line of lspci below that of its device; "" where no check reads it.
std::string LspciDetail(std::string_view line, Names& names) {
    const auto hex = [](std::string_view text) { return Integer(text, 16).value_or(0) & 0xff; };
    if (line.starts_with("LnkCap:") || line.starts_with("LnkSta:")) {
        const std::string link = LinkFields(line);
        const char* active = Contains(line, "DLActive-") ? ", DLActive-" : "";
        return link.empty() ? "" : fmt::format("\t\t{}\t{}{}\n", line.substr(0, 7), link, active);
    }
    if (const std::string state = LspciState(line); !state.empty()) return state;
    if (line.starts_with("LnkCtl:")) {
        const std::string power = PowerField(line);
        return power.empty() ? "" : fmt::format("\t\tLnkCtl:\t{};\n", power);
    }
    if (line.starts_with("Bus: primary=")) {
        return fmt::format("\tBus: primary={:02x}, secondary={:02x}, subordinate={:02x}\n",
                           hex(After(line, "primary=", ",")), hex(After(line, "secondary=", ",")),
                           hex(After(line, "subordinate=", ",")));
    }
    if (line.starts_with("Kernel driver in use: ")) {
        const std::string driver = DriverWord(After(line, "in use: "), names);
        return driver.empty() ? "" : fmt::format("\tKernel driver in use: {}\n", driver);
    }
    if (Contains(line, "ACSCtl:")) {
        return fmt::format("\t\tACSCtl:\tReqRedir{}\n", Contains(line, "ReqRedir+") ? '+' : '-');
    }
    return "";
}

// The first word of each of these lines' values that is a number, as "KEY VALUE".
template <size_t N>
std::string NumberLines(std::string_view text, const std::array<std::string_view, N>& keys,
                        std::string_view indent) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        const size_t colon = line.find(':');
        if (colon == line.npos) continue;
        const std::string_view key = line.substr(0, colon);
        const auto value = LeadingNumber(line.substr(colon + 1));
        if (value && std::ranges::find(keys, key) != keys.end()) {
            kept += fmt::format("{}{}: {:.0f}\n", indent, key, *value);
        }
    }
    return kept;
}

std::string SavedText(const Json& item, const char* key) {
    const auto found = item.find(key);
    return found != item.end() && found->is_string() ? found->get<std::string>() : "";
}

Json AddressEntry(const Json& item, Names& names) {
    Json kept = Json::object();
    kept["family"] = "inet";
    kept["local"] = names.AddressText(SavedText(item, "local"));
    if (const auto prefix = item.find("prefixlen"); prefix != item.end() && prefix->is_number()) {
        kept["prefixlen"] = *prefix;
    }
    return kept;
}

// One link of `ip -j addr`, or one route of `ip -j route`.
Json IpEntry(const Json& item, Names& names) {
    Json kept = Json::object();
    for (const char* key : {"ifname", "dev", "master"}) {
        if (const std::string name = SavedText(item, key); !name.empty() && name.size() < 64) {
            kept[key] = names.Interface(name);
        }
    }
    for (const char* key : {"mtu", "metric"}) {
        const auto found = item.find(key);
        if (found != item.end() && found->is_number()) kept[key] = *found;
    }
    const std::string state = SavedText(item, "operstate");
    if (state == "UP" || state == "DOWN" || state == "UNKNOWN" || state == "LOWERLAYERDOWN") {
        kept["operstate"] = state;
    }
    if (const std::string to = names.AddressText(SavedText(item, "dst")); !to.empty()) {
        kept["dst"] = to;
    }
    if (const std::string by = SavedText(item, "gateway"); !by.empty()) {
        const std::string shown = names.AddressText(by);
        kept["gateway"] = shown.empty() ? "via" : shown;
    }
    const auto list = item.find("addr_info");
    if (list != item.end() && list->is_array()) {
        kept["addr_info"] = Json::array();
        for (const Json& address : *list) {
            if (address.is_object() && SavedText(address, "family") == "inet" &&
                ParseIpv4(SavedText(address, "local"))) {
                kept["addr_info"].push_back(AddressEntry(address, names));
            }
        }
    }
    return kept;
}

}  // namespace

std::string Lspci(std::string_view text, Names& names) {
    std::string kept;
    bool inside = false;
    for (std::string_view line : Lines(text)) {
        line = line.substr(0, kMostLine);
        if (!line.empty() && line[0] != '\t' && line[0] != ' ') {
            const std::string_view address = line.substr(0, line.find(' '));
            inside = IsPciAddress(address) || IsPciAddress(fmt::format("0000:{}", address));
            const std::string_view rest = line.substr(std::min(address.size(), line.size()));
            if (inside) kept += fmt::format("{}{}\n", address, VendorName(rest));
        } else if (inside) {
            kept += LspciDetail(Trim(line), names);
        }
    }
    return kept;
}

std::string IpJson(std::string_view text, Names& names) {
    const Json parsed = OrderedJsonOrDiscarded(text);
    if (!parsed.is_array()) return "";
    Json kept = Json::array();
    for (const Json& item : parsed) {
        if (item.is_object()) kept.push_back(IpEntry(item, names));
    }
    return kept.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
}

namespace {

// "16.35.4030 (MT_0000000009)": the version and the board, as Mellanox's cards tell it.
std::string FirmwareText(std::string_view text, Names& names) {
    std::string kept(Trim(std::string_view(ShortVersion(text, names))));
    const auto words = Words(text.substr(0, 256));
    if (names.real() || kept.empty() || words.size() < 2) return kept;
    const std::string_view board = words[1];
    const bool known = board.size() == 15 && board.starts_with("(MT_") && board.ends_with(")") &&
                       board.substr(4, 10).find_first_not_of("0123456789") == board.npos;
    return known ? fmt::format("{} {}", kept, board) : kept;
}

}  // namespace

std::string EthtoolDriver(std::string_view text, Names& names) {
    std::string kept;
    const std::string driver = DriverWord(After(text, "driver: "), names);
    if (!driver.empty()) kept += "driver: " + driver + "\n";
    const std::string firmware = FirmwareText(After(text, "firmware-version: "), names);
    if (!firmware.empty()) kept += fmt::format("firmware-version: {}\n", firmware);
    const std::string_view bus = After(text, "bus-info: ");
    if (!bus.empty()) kept += fmt::format("bus-info: {}\n", BusPlace(bus));
    return kept;
}

std::string EthtoolLink(std::string_view text, Names&) {
    std::string kept;
    const auto speed = LeadingNumber(After(text, "Speed:"));
    if (speed) kept += fmt::format("\tSpeed: {:.0f}Mb/s\n", *speed);
    const double most = FastestMode(text);
    if (most > 0) kept += fmt::format("\tSupported link modes: {:.0f}baseX/Full\n", most);
    for (const char* duplex : {"Full", "Half"}) {
        if (After(text, "Duplex:") == duplex) kept += fmt::format("\tDuplex: {}\n", duplex);
    }
    const std::string_view link = After(text, "Link detected:");
    if (!link.empty()) kept += fmt::format("\tLink detected: {}\n", link == "yes" ? "yes" : "no");
    return kept;
}

std::string EthtoolCoalescing(std::string_view text, Names&) {
    const std::string_view adaptive = After(text, "Adaptive RX:");
    std::string kept = fmt::format("Adaptive RX: {}\n", adaptive.starts_with("on") ? "on" : "off");
    const auto wait = NumberAfter(text, "\nrx-usecs:");
    if (wait) kept += fmt::format("rx-usecs: {:g}\n", *wait);
    return kept;
}

std::string EthtoolPause(std::string_view text, Names&) {
    return fmt::format("RX: {}\nTX: {}\n", After(text, "RX:") == "on" ? "on" : "off",
                       After(text, "TX:") == "on" ? "on" : "off");
}

std::string EthtoolCounters(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 26> kCounters = {
        "rx_total_frames",    "rx_good_frames",        "rx_unicast.nic",    "port.rx_unicast",
        "rx_fcs_err_frames",  "rx_total_discard_pkts", "rx_pfc_frames",     "tx_pfc_frames",
        "rx_crc_errors.nic",  "port.rx_crc_errors",    "rx_dropped.nic",    "port.rx_dropped",
        "rx_packets",         "rx_discards_phy",       "rx_out_of_buffer",  "rx_missed_errors",
        "rx_no_buffer_count", "out_of_sequence",       "rx_crc_errors_phy", "rx_crc_errors",
        "rx_symbol_err_phy",  "link_down_events_phy",  "tx_timeout",        "rx_pause_ctrl_phy",
        "rx_prio3_pause",     "tx_pause_ctrl_phy"};
    return "NIC statistics:\n" + NumberLines(text, kCounters, "     ");
}

std::string Qos(std::string_view text, Names&) {
    std::string kept = "PFC configuration:\n\tenabled  ";
    for (std::string_view word : Words(After(text, "enabled "))) {
        if (word == "0" || word == "1") kept += fmt::format(" {}", word);
    }
    return kept + "\n";
}

std::string Dmesg(std::string_view text, Names& names) {
    std::string kept;
    for (const LogLine& line : KernelLogLines(text, names)) {
        kept += (names.real() ? line.raw : line.known) + "\n";
    }
    return kept;
}

std::string Ufw(std::string_view text, Names& names) {
    return WriteUfw(ParseUfw(text), names);
}

std::string FirewalldState(std::string_view text, Names&) {
    return Trim(text) == "running" ? "running\n" : "not running\n";
}

std::string FirewalldZones(std::string_view text, Names& names) {
    return WriteZones(ParseZones(text), names);
}

std::string Nft(std::string_view text, Names& names) {
    return WriteNft(ParseNft(text), names);
}

std::string Iptables(std::string_view text, Names& names) {
    return WriteIptables(ParseIptables(IptablesRules(text)), names);
}

std::string ClockState(std::string_view text, Names&) {
    for (const char* key : {"System clock synchronized:", "NTP synchronized:"}) {
        const std::string_view value = After(text, key);
        if (value == "yes" || value == "no") return fmt::format("{} {}\n", key, value);
    }
    return "";
}

std::string Property(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const size_t equals = std::min(line.find('='), line.size());
        const std::string_view key = line.substr(0, equals);
        if (key != "NTPSynchronized" && key != "DefaultLimitMEMLOCK") continue;
        const std::string_view value = Trim(line.substr(std::min(equals + 1, line.size())));
        const bool known = value == "yes" || value == "no" || value == "infinity";
        if (known || Integer(value)) kept += fmt::format("{}={}\n", key, value);
    }
    return kept;
}

namespace {

// The version out of what dpkg-query, rpm or `pacman -Q` ("NAME VERSION") print.
std::string_view SavedPackageVersion(std::string_view text, std::string* name) {
    constexpr std::array<std::string_view, 4> kNames = {"linux-firmware", "linux-firmware-amdgpu",
                                                        "rdma-core", "vulkan-radeon"};
    const auto words = Words(text.substr(0, kMostLine));
    if (words.empty()) return {};
    const bool named = words.size() > 1 && std::ranges::find(kNames, words[0]) != kNames.end();
    if (named) *name = fmt::format("{} ", words[0]);
    return words[named ? 1 : 0];
}

}  // namespace

std::string Package(std::string_view text, Names& names) {
    if (Contains(text, "is not installed")) return "package is not installed\n";
    std::string name;
    std::string_view whole = SavedPackageVersion(text, &name);
    if (!names.real()) whole.remove_prefix(whole.find(':') + 1);  // an epoch; npos + 1: nothing
    const std::string version = ShortVersion(whole, names);
    return version.empty() ? "" : name + version;
}

std::string DatedPackage(std::string_view text, Names& names) {
    std::string name;
    const std::string_view version = SavedPackageVersion(text, &name);
    const auto date = DateIn(version);
    if (names.real() || !date) return Package(text, names);
    return fmt::format("{}{}\n", name, *date);
}

std::string RdmaResources(std::string_view text, Names& names) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line.substr(0, kMostLine));
        if (words.size() < 3 || !LeadingNumber(words[0]) || !words[1].ends_with(':')) continue;
        const std::string_view device = words[1].substr(0, words[1].size() - 1);
        kept += fmt::format("{:.0f}: {}:", *LeadingNumber(words[0]), names.RdmaDevice(device));
        for (const char* key : {"pd", "cq", "qp", "mr"}) {
            const auto count = NumberAfter(line, fmt::format(" {} ", key));
            if (count) kept += fmt::format(" {} {:.0f}", key, *count);
        }
        kept += '\n';
    }
    return kept;
}

std::string MemoryModules(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        if (line == "Memory Device") kept += "Memory Device\n";
        for (std::string_view key : {"Size: ", "Speed: ", "Configured Memory Speed: "}) {
            if (!line.starts_with(key)) continue;
            const auto words = Words(line.substr(key.size()));
            const auto value = words.empty() ? std::nullopt : Number(words[0]);
            const bool unit =
                words.size() > 1 && (words[1] == "GB" || words[1] == "MB" || words[1] == "MT/s" ||
                                     words[1] == "MHz" || words[1] == "TB" || words[1] == "kB");
            if (value) {
                kept += fmt::format("\t{}{:g} {}\n", key, *value, unit ? words[1] : "");
            } else if (Contains(line, "No Module")) {
                kept += fmt::format("\t{}No Module Installed\n", key);
            }
        }
    }
    return kept;
}

std::string Ping(std::string_view text, Names&) {
    std::string kept;
    for (const char* reason : {"not found", "not permitted"}) {
        if (Contains(text, reason)) kept += fmt::format("ping: {}\n", reason);
    }
    if (const auto time = NumberAfter(text, " time=")) {
        kept += fmt::format("64 bytes: icmp_seq=1 time={:g} ms\n", *time);
    }
    for (std::string_view line : Lines(text)) {
        const auto sent = LeadingNumber(line), lost = NumberAfter(line, "received, ");
        if (!Contains(line, "packet loss") || !sent || !lost) continue;
        kept += fmt::format("{:.0f} packets transmitted, {:.0f} received, {:g}% packet loss\n",
                            *sent, NumberAfter(line, "transmitted, ").value_or(0), *lost);
    }
    return kept;
}

}  // namespace weft::doctor::save
