// Writers of the kernel's files, of configuration and of probes.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

#include "doctor/save_writers.h"
#include "doctor/text.h"

namespace weft::doctor::save {
namespace {

template <size_t N>
bool IsOneOf(const std::array<std::string_view, N>& list, std::string_view word) {
    return std::ranges::find(list, word) != list.end();
}

bool IsNumberName(std::string_view word) {
    const auto value = Number(word);
    return value && word.size() <= 20 && word.find_first_not_of("0123456789.-") == word.npos;
}

bool IsHex(std::string_view word, size_t most) {
    return !word.empty() && word.size() <= most &&
           std::ranges::all_of(word, [](unsigned char c) { return std::isxdigit(c) != 0; });
}

// `between` stands before every word but the first, `begin` before that.
void AddWord(std::string& text, std::string_view word, std::string_view between,
             std::string_view begin = "") {
    text += text.empty() ? begin : between;
    text += word;
}

std::string Line(std::string text) {
    return text.empty() ? text : text + "\n";
}

// "2-1.4" (USB), "0-1.0" (Thunderbolt), with ":1.0" for an interface of it: numbers of up to three
// digits, each after one of `separators`.
bool IsPort(std::string_view word, std::string_view separators) {
    size_t parts = 0;
    for (size_t at = 0; at <= word.size(); ++parts) {
        const size_t end = std::min(word.find_first_of("-.:", at), word.size());
        const bool wrong = parts > 0 && separators.find(word[at - 1]) == separators.npos;
        if (end == at || end - at > 3 || wrong || parts > 8) return false;
        if (word.substr(at, end - at).find_first_not_of("0123456789") != word.npos) return false;
        at = end + 1;
    }
    return true;
}

bool IsBusPlace(std::string_view word) {
    const size_t dash = word.find('-'), colon = word.find(':');
    if (dash == word.npos || dash == 0) return false;
    const bool device = IsPort(word.substr(0, dash), "") &&
                        IsPort(word.substr(dash + 1, colon - std::min(colon, dash + 1)), ".");
    return device && (colon == word.npos || IsPort(word.substr(colon + 1), "."));
}

// Drivers that checks know, and those that most machines have. Of others only that there is one:
// a driver's name may be anybody's own.
bool IsKnownDriver(std::string_view name) {
    constexpr std::string_view kDrivers =
        // network
        "mlx4_core mlx4_en mlx4_ib mlx5_core mlx5_ib mlxsw_core ib_ipoib ice i40e iavf ixgbe "
        "ixgbevf igb igbvf igc e1000 e1000e fm10k idpf irdma bnxt_en bnxt_re bnx2 bnx2x tg3 qede "
        "qed qedr cxgb3 cxgb4 iw_cxgb4 csiostor hfi1 ib_qib ib_mthca ionic efa ena sfc sfc_siena "
        "mana enic be2net nfp hinic hns3 liquidio octeontx2 atlantic alx atl1c r8169 r8168 r8125 "
        "r8126 r8127 r8152 sky2 forcedeth vmxnet3 virtio_net virtio-pci xen-netfront hv_netvsc "
        "gve stmmac dwmac dwc-qos bcmgenet macb mvneta mvpp2 fec cdc_ether cdc_ncm cdc_mbim "
        "ax88179_178a asix smsc95xx lan78xx usbnet aqc111 thunderbolt-net thunderbolt_net bridge "
        "bonding team veth tun dummy macvlan ipvlan wireguard vxlan 802.1Q rxe siw "
        // Wi-Fi
        "iwlwifi mt7921e mt7925e mt7915e ath9k ath10k_pci ath11k_pci ath12k_pci rtw88_8822ce "
        "rtw89_8852be rtw89_8852ce rtw89_8922ae brcmfmac wl "
        // other devices of PCI
        "pcieport shpchp pciehp nvme ahci megaraid_sas mpt3sas smartpqi xhci_hcd xhci-pci ehci-pci "
        "amdgpu radeon i915 xe nouveau nvidia ast mgag200 bochs-drm vfio-pci uio_pci_generic "
        "snd_hda_intel thunderbolt i801_smbus piix4_smbus intel-lpss ccp k10temp amd_sfh_pci "
        "amdxdna skx_uncore intel_vsec ioatdma idxd mei_me other";
    const auto list = Words(kDrivers);
    return std::ranges::find(list, name) != list.end();
}

std::string_view LastPart(std::string_view path) {
    path = Trim(path);
    return path.substr(path.rfind('/') + 1);
}

}  // namespace

// "0000:01:00.0", "10000:e1:00.0" (of a volume of disks: the domain has five digits).
bool IsPciAddress(std::string_view word) {
    if (word.size() < 12 || word.size() > 13) return false;
    const size_t domain = word.size() - 8;
    const std::string_view rest = word.substr(domain);
    return IsHex(word.substr(0, domain), 5) && rest[0] == ':' && rest[3] == ':' && rest[6] == '.' &&
           IsHex(rest.substr(1, 2), 2) && IsHex(rest.substr(4, 2), 2) && IsHex(rest.substr(7), 1);
}

std::string Numbers(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view word : Words(text.substr(0, 256))) {
        if (!IsNumberName(word) && word != "max") return "";
        AddWord(kept, word, " ", "");
    }
    return Line(kept);
}

std::string Hexadecimal(std::string_view text, Names&) {
    text = Trim(text);
    std::string_view digits = text;
    if (digits.starts_with("0x")) digits.remove_prefix(2);
    return IsHex(digits, 8) ? Line(std::string(text)) : "";
}

std::string LinkSpeed(std::string_view text, Names&) {
    const auto words = Words(text.substr(0, 64));
    if (words.empty() || !IsNumberName(words[0])) return "";
    std::string kept(words[0]);
    if (words.size() > 1 && (words[1] == "GT/s" || words[1] == "Gb/s")) {
        AddWord(kept, words[1], " ", " ");
    }
    if (words.size() > 2 && words[2] == "PCIe") kept += " PCIe";
    return Line(kept);
}

std::string Choice(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 52> kWords = {"up",
                                                         "down",
                                                         "unknown",
                                                         "dormant",
                                                         "lowerlayerdown",
                                                         "notpresent",
                                                         "testing",  //
                                                         "full",
                                                         "half",
                                                         "datagram",
                                                         "connected",
                                                         "InfiniBand",
                                                         "Ethernet",  //
                                                         "performance",
                                                         "powersave",
                                                         "schedutil",
                                                         "ondemand",
                                                         "conservative",
                                                         "userspace",
                                                         "interactive",
                                                         "default",
                                                         "powersupersave",
                                                         "always",
                                                         "madvise",
                                                         "never",  //
                                                         "power",
                                                         "balance_power",
                                                         "balance_performance",  //
                                                         "intel_pstate",
                                                         "intel_cpufreq",
                                                         "acpi-cpufreq",
                                                         "amd-pstate",
                                                         "amd-pstate-epp",
                                                         "amd_pstate",
                                                         "amd_pstate_epp",
                                                         "cppc_cpufreq",
                                                         "cpufreq-dt",
                                                         "pcc-cpufreq",
                                                         "intel_idle",  //
                                                         "DMA",
                                                         "DMA-FQ",
                                                         "identity",
                                                         "blocked",
                                                         "auto",  //
                                                         "active",
                                                         "inactive",
                                                         "failed",
                                                         "activating",
                                                         "deactivating",
                                                         "yes",
                                                         "unlimited"};
    std::string kept;
    for (std::string_view word : Words(text.substr(0, 256))) {
        const bool chosen = word.size() > 2 && word.starts_with('[') && word.ends_with(']');
        const std::string_view core = chosen ? word.substr(1, word.size() - 2) : word;
        if (!IsOneOf(kWords, core)) continue;
        AddWord(kept, word, " ", "");
    }
    return Line(kept);
}

std::string PortState(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 16> kStates = {"NOP",       "DOWN",
                                                          "INIT",      "ARMED",
                                                          "ACTIVE",    "ACTIVE_DEFER",
                                                          "Sleep",     "Polling",
                                                          "Disabled",  "PortConfigurationTraining",
                                                          "LinkUp",    "LinkErrorRecovery",
                                                          "Phy",       "Test",
                                                          "<unknown>", "No state change"};
    const size_t colon = text.find(':');
    if (colon == text.npos || !IsNumberName(Trim(text.substr(0, colon)))) return "";
    const std::string_view state = Trim(text.substr(colon + 1));
    if (!IsOneOf(kStates, state) && state != "Phy Test") return "";
    return fmt::format("{}: {}\n", Trim(text.substr(0, colon)), state);
}

std::string PortRate(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 8> kKinds = {"SDR", "DDR", "QDR", "FDR",
                                                        "EDR", "HDR", "NDR", "XDR"};
    const auto words = Words(text.substr(0, 64));
    if (words.size() < 2 || !IsNumberName(words[0]) || words[1] != "Gb/sec") return "";
    std::string kept = std::string(words[0]) + " Gb/sec";
    std::string_view lanes = words.size() >= 3 ? words[2] : std::string_view();
    if (lanes.ends_with(')')) lanes.remove_suffix(1);
    if (lanes.starts_with('(') && lanes.ends_with('X') &&
        IsNumberName(lanes.substr(1, lanes.size() - 2))) {
        AddWord(kept, lanes, " ", " ");
        std::string_view kind = words.size() >= 4 ? words[3] : std::string_view();
        if (kind.ends_with(')')) kind.remove_suffix(1);
        if (IsOneOf(kKinds, kind) || kind == "FDR10") AddWord(kept, kind, " ", " ");
        kept += ')';
    }
    return Line(kept);
}

std::string ShortVersion(std::string_view text, Names& names) {
    constexpr size_t kMostDigits = 6;
    text = Trim(text.substr(0, 256));
    if (names.real()) return Line(Printable(text.substr(0, 64)));
    if (const size_t epoch = text.find(':'); epoch < 3) text.remove_prefix(epoch + 1);  // "1:44.0"
    std::string kept;
    for (int part = 0; part < 3; ++part) {
        const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
        if (digits == 0 || digits > kMostDigits) break;
        AddWord(kept, text.substr(0, digits), ".");
        text.remove_prefix(digits);
        if (!text.starts_with('.')) break;
        text.remove_prefix(1);
    }
    return Line(kept);
}

std::string Release(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 47> kWords = {
        "generic", "lowlatency", "arch",     "fc",        "x",       "el",     "x86",
        "64",      "aarch",      "amd",      "arm",       "deb",     "bpo",    "zen",
        "lts",     "hardened",   "rt",       "cloud",     "azure",   "aws",    "gcp",
        "oracle",  "oem",        "hwe",      "pve",       "rc",      "git",    "cachyos",
        "default", "tkg",        "xanmod",   "liquorix",  "MANJARO", "NixOS",  "nixos",
        "uek",     "alma",       "rocky",    "debug",     "preempt", "nvidia", "raspi",
        "surface", "edge",       "mainline", "microsoft", "WSL"};
    std::string kept;
    text = Trim(text.substr(0, 128));
    for (size_t at = 0; at < text.size();) {
        const size_t end = std::min(text.find_first_of(".-_+~", at), text.size());
        const std::string_view piece = text.substr(at, end - at);
        const size_t digits = std::min(piece.find_first_of("0123456789"), piece.size());
        const std::string_view letters = piece.substr(0, digits), number = piece.substr(digits);
        const bool plain = number.empty() || (number.size() <= 6 && IsNumberName(number));
        if (plain && (letters.empty() || IsOneOf(kWords, letters))) {
            if (at > 0 && !kept.empty()) kept += text[at - 1];
            kept += piece;
        }
        at = end + 1;
    }
    return Line(kept);
}

std::string Gid(std::string_view text, Names& names) {
    constexpr std::string_view kMapped = "0000:0000:0000:0000:0000:ffff:";
    text = Trim(text);
    if (text.find_first_not_of("0:") == text.npos) return Line(std::string(text.substr(0, 39)));
    if (text.size() == kMapped.size() + 9 && text.starts_with(kMapped)) {
        const auto high = Integer(text.substr(kMapped.size(), 4), 16);
        const auto low = Integer(text.substr(kMapped.size() + 5, 4), 16);
        if (high && low && *high >= 0 && *low >= 0) {
            const auto bits = static_cast<uint32_t>(*high << 16 | *low);
            const auto shown = ParseIpv4(names.Address({bits, 32}));
            return fmt::format("{}{:04x}:{:04x}\n", kMapped, shown->bits >> 16,
                               shown->bits & 0xffff);
        }
    }
    // Of others only whether they are of the link.
    return text.starts_with("fe80:") ? "fe80:0000:0000:0000:0000:0000:0000:0001\n"
                                     : "2001:0db8:0000:0000:0000:0000:0000:0001\n";
}

std::string GidType(std::string_view text, Names&) {
    text = Trim(text);
    const bool known = text == "RoCE v2" || text == "IB/RoCE v1";
    return known ? Line(std::string(text)) : "";
}

std::string Interface(std::string_view text, Names& names) {
    text = Trim(text);
    return text.empty() || text.size() > 64 ? "" : Line(names.Interface(text));
}

std::string PciPlace(std::string_view text, Names&) {
    std::string kept = "../../../devices";
    for (std::string_view part : Split(Trim(text.substr(0, 1024)), '/')) {
        if (IsPciAddress(part)) AddWord(kept, part, "/", "/");
    }
    return Line(kept);
}

std::string BusPlace(std::string_view text) {
    const std::string_view last = LastPart(text.substr(0, 1024));
    return IsPciAddress(last) || IsBusPlace(last) ? std::string(last) : "device";
}

std::string DevicePlace(std::string_view text, Names&) {
    return Line("../../" + BusPlace(text));
}

std::string DriverWord(std::string_view text, const Names& names) {
    const std::string_view last = LastPart(text.substr(0, 1024));
    if (last.empty()) return "";
    const bool plain = last.size() <= 32 && std::ranges::all_of(last, [](unsigned char c) {
                           return std::isalnum(c) != 0 || c == '_' || c == '-';
                       });
    return IsKnownDriver(last) || (names.real() && plain) ? std::string(last) : "other";
}

std::string DriverName(std::string_view text, Names& names) {
    const std::string driver = DriverWord(text, names);
    return driver.empty() ? "" : Line("../../drivers/" + driver);
}

std::string AerCounts(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 3> kTotals = {"TOTAL_ERR_COR", "TOTAL_ERR_FATAL",
                                                         "TOTAL_ERR_NONFATAL"};
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line);
        if (words.size() == 2 && IsOneOf(kTotals, words[0]) && IsNumberName(words[1])) {
            kept += fmt::format("{} {}\n", words[0], words[1]);
        }
    }
    return kept;
}

std::string KfdNode(std::string_view text, Names&) {
    const auto version = NumberAfter(text, "gfx_target_version ");
    return version ? fmt::format("gfx_target_version {:.0f}\n", *version) : "";
}

std::string CpuInfo(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 8> kFlags = {
        "hypervisor", "avx2", "avx512bw", "avx512_vnni", "avx512f", "fma", "f16c", "asimd"};
    std::string kept, flags;
    bool named = false;
    for (std::string_view line : Lines(text)) {
        const std::string_view key = Trim(line.substr(0, line.find(':')));
        if (key == "model name" && !named) {
            named = Contains(line, "RYZEN AI MAX") || Contains(line, "Ryzen AI Max");
            if (named) kept += "model name\t: AMD RYZEN AI MAX+\n";
        } else if ((key == "flags" || key == "Features") && flags.empty()) {
            flags = std::string(key) + "\t\t:";
            for (std::string_view word : Words(After(line, ":"))) {
                if (IsOneOf(kFlags, word)) AddWord(flags, word, " ", " ");
            }
        }
    }
    return kept + Line(flags);
}

std::string MemoryInfo(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 4> kFields = {"MemTotal", "MemAvailable", "SwapTotal",
                                                         "SwapFree"};
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const std::string_view key = line.substr(0, line.find(':'));
        const auto value = LeadingNumber(After(line, ":"));
        if (IsOneOf(kFields, key) && value) kept += fmt::format("{}: {:.0f} kB\n", key, *value);
    }
    return kept;
}

// What is on zram, and the sizes; other drives and files stay unnamed.
std::string Swaps(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line);
        if (words.size() < 4) continue;
        const auto size = Integer(words[2]), used = Integer(words[3]);
        if (!size || !used) continue;
        const std::string_view place = words[0].starts_with("/dev/zram") ? "/dev/zram0" : "/drive";
        kept += fmt::format("{} partition {} {} 0\n", place, *size, *used);
    }
    return kept;
}

std::string KernelParameters(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 14> kNames = {"iommu",
                                                         "iommu.passthrough",
                                                         "intel_iommu",
                                                         "amd_iommu",
                                                         "amdgpu.gttsize",
                                                         "amdgpu.cwsr_enable",
                                                         "ttm.pages_limit",
                                                         "ttm.page_pool_size",
                                                         "amdttm.pages_limit",
                                                         "amdttm.page_pool_size",
                                                         "pcie_aspm",
                                                         "pcie_aspm.policy",
                                                         "nomodeset",
                                                         "mitigations"};
    constexpr std::array<std::string_view, 12> kValues = {
        "pt",      "on",          "off",       "soft",           "force",   "nopt",
        "noforce", "performance", "powersave", "powersupersave", "default", "auto"};
    std::string kept;
    for (std::string_view word : Words(text.substr(0, 65536))) {
        const size_t equals = std::min(word.find('='), word.size());
        // Who hands the kernel its initramfs tells where its parameters are kept.
        if (word.starts_with("initrd=\\")) AddWord(kept, "initrd=\\", " ");
        if (!IsOneOf(kNames, word.substr(0, equals))) continue;
        std::string values;
        if (equals < word.size()) {
            for (std::string_view value : Split(word.substr(equals + 1), ',')) {
                if (!IsNumberName(value) && !IsOneOf(kValues, value)) continue;
                AddWord(values, value, ",", "=");
            }
            if (values.empty()) continue;
        }
        AddWord(kept, word.substr(0, equals), " ");
        kept += values;
    }
    return kept + "\n";
}

std::string KernelVersionLine(std::string_view text, Names& names) {
    const std::string release = Release(After(text, "Linux version ", " "), names);
    return release.empty() ? "" : "Linux version " + release;
}

std::string ProcessLimits(std::string_view text, Names&) {
    const std::string_view line = After(text, "Max locked memory");
    const auto words = Words(line);
    if (words.size() < 2) return "";
    for (std::string_view word : {words[0], words[1]}) {
        if (!IsNumberName(word) && word != "unlimited") return "";
    }
    return fmt::format("Max locked memory         {} {} bytes\n", words[0], words[1]);
}

std::string TcpSegments(std::string_view text, Names&) {
    std::string names_line = "Tcp:", values = "Tcp:";
    std::vector<std::string_view> titles;
    for (std::string_view line : Lines(text)) {
        if (!line.starts_with("Tcp:")) continue;
        const auto words = Words(line);
        if (titles.empty()) {
            titles = words;
            continue;
        }
        for (size_t i = 1; i < std::min(titles.size(), words.size()); ++i) {
            if (titles[i] != "OutSegs" && titles[i] != "RetransSegs") continue;
            if (!IsNumberName(words[i])) continue;
            AddWord(names_line, titles[i], " ", " ");
            AddWord(values, words[i], " ", " ");
        }
        return names_line + "\n" + values + "\n";
    }
    return "";
}

std::string GroupPath(std::string_view path) {
    constexpr std::array<std::string_view, 10> kUsual = {
        "system.slice", "user.slice",     "machine.slice", "init.scope",   "weft.slice",
        "docker",       "kubepods.slice", "kubepods",      "weft.service", "session.slice"};
    std::string kept;
    for (std::string_view part : Split(path, '/')) {
        if (part.empty()) continue;
        AddWord(kept, IsOneOf(kUsual, part) ? part : "group", "/", "/");
    }
    return kept;
}

std::string ControlGroup(std::string_view text, Names&) {
    const size_t at = text.find("0::");
    if (at == text.npos) return "";
    const std::string path = GroupPath(After(text, "0::"));
    return fmt::format("0::{}\n", path.empty() ? "/" : path);
}

std::string LoginLimits(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line.substr(0, line.find('#')));
        if (words.size() < 4 || words[2] != "memlock") continue;
        if (words[1] != "soft" && words[1] != "hard" && words[1] != "-") continue;
        if (!IsNumberName(words[3]) && words[3] != "unlimited" && words[3] != "infinity") continue;
        const std::string_view who = words[0];
        const char* shown = who == "*"             ? "*"
                            : who == "root"        ? "root"
                            : who.starts_with('@') ? "@group"
                                                   : "user";
        kept += fmt::format("{} {} memlock {}\n", shown, words[1], words[3]);
    }
    return kept;
}

std::string UnitLimits(std::string_view text, Names&) {
    std::string kept = "[Service]\n";
    for (std::string_view line : Lines(text)) {
        line = Trim(line);
        const std::string_view key = Trim(line.substr(0, line.find('=')));
        if (key != "LimitMEMLOCK" || !Contains(line, "=")) continue;
        std::string values;
        for (std::string_view value : Split(line.substr(line.find('=') + 1), ':')) {
            value = Trim(value);
            std::string_view number = value;
            if (!number.empty() && std::string_view("KMGTPE").find(number.back()) != number.npos) {
                number.remove_suffix(1);
            }
            if (!IsNumberName(number) && value != "infinity") continue;
            AddWord(values, value, ":", "");
        }
        kept += "LimitMEMLOCK=" + values + "\n";
    }
    return kept;
}

std::string OsRelease(std::string_view text, Names&) {
    constexpr std::array<std::string_view, 38> kKnown = {
        "debian",      "ubuntu",        "linuxmint",    "pop",           "fedora",
        "rhel",        "centos",        "rocky",        "almalinux",     "arch",
        "manjaro",     "nixos",         "opensuse",     "opensuse-leap", "opensuse-tumbleweed",
        "suse",        "sles",          "cachyos",      "endeavouros",   "ol",
        "raspbian",    "proxmox",       "gentoo",       "alpine",        "archlinux",
        "garuda",      "bazzite",       "bluefin",      "aurora",        "silverblue",
        "kinoite",     "sericea",       "onyx",         "coreos",        "iot",
        "sway-atomic", "cosmic-atomic", "budgie-atomic"};
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const size_t equals = std::min(line.find('='), line.size());
        const std::string_view key = line.substr(0, equals);
        if (key != "ID" && key != "ID_LIKE" && key != "VERSION_ID" && key != "VARIANT_ID") continue;
        std::string values(line.substr(std::min(equals + 1, line.size())));
        std::erase_if(values, [](char c) { return c == '"' || c == '\''; });
        std::string words;
        for (std::string_view word : Words(values)) {
            const bool fits = key == "VERSION_ID" ? IsNumberName(word) : IsOneOf(kKnown, word);
            if (fits) AddWord(words, word, " ");
        }
        if (!words.empty()) kept += fmt::format("{}=\"{}\"\n", key, words);
    }
    return kept;
}

std::string HostName(std::string_view text, Names& names) {
    text = Trim(text);
    return text.empty() ? "" : Line(names.Host(text));
}

std::string Reason(std::string_view text) {
    constexpr std::array<std::string_view, 22> kPhrases = {
        "dmesg: read kernel buffer failed: Operation not permitted",
        "connect to 127.0.0.1: Operation not permitted",
        "Operation not permitted",
        "Permission denied",
        "Cannot allocate memory",
        "No such file or directory",
        "No such device",
        "Operation not supported",
        "Invalid argument",
        "Input/output error",
        "Resource temporarily unavailable",
        "No space left on device",
        "Connection refused",
        "not a regular file",
        "no time left for it",
        "did not end within",
        "must be root",
        "not installed",
        "exit status",
        "not running",
        "is not available"};
    for (std::string_view phrase : kPhrases) {
        if (Contains(text, phrase)) return std::string(phrase);
    }
    return "it could not be read";
}

std::string Outcome(std::string_view text, Names& names) {
    text = Trim(text);
    const auto words = Words(text.substr(0, 256));
    if (words.empty()) return "";
    if (text == "rw") return "rw\n";
    if ((words[0] == "locked" || words[0] == "registered") && words.size() == 2 &&
        IsNumberName(words[1])) {
        return Line(std::string(text));
    }
    if (words[0] == "soft" && words.size() == 4 && words[2] == "hard") {
        for (std::string_view word : {words[1], words[3]}) {
            if (!IsNumberName(word) && word != "unlimited") return "";
        }
        return fmt::format("soft {} hard {}\n", words[1], words[3]);
    }
    if (text.starts_with("refused at ") && words.size() > 2) {
        const std::string_view bytes = words[2].substr(0, words[2].find(':'));
        if (IsNumberName(bytes)) return fmt::format("refused at {}: {}\n", bytes, Reason(text));
    }
    if (text.starts_with("refused: ")) {
        // "mlx5_0: cannot register 67108864 bytes: Cannot allocate memory. ..."
        const std::string_view device = After(text, "refused: ", ":");
        const auto bytes = NumberAfter(text, "cannot register ");
        std::string kept = "refused: ";
        if (bytes && !device.empty() && device.size() < 64 && !Contains(device, " ")) {
            kept +=
                fmt::format("{}: cannot register {:.0f} bytes: ", names.RdmaDevice(device), *bytes);
        }
        return kept + Reason(text) + "\n";
    }
    return Reason(text) + "\n";
}

std::string Times(std::string_view text, Names&) {
    std::string kept;
    for (std::string_view line : Lines(text)) {
        const auto words = Words(line);
        if (words.size() != 4 || (words[0] != "one_way" && words[0] != "all_reduce")) continue;
        if (!IsNumberName(words[1]) || !IsNumberName(words[2]) || !IsNumberName(words[3])) continue;
        kept += fmt::format("{} {} {} {}\n", words[0], words[1], words[2], words[3]);
    }
    return kept;
}

}  // namespace weft::doctor::save
