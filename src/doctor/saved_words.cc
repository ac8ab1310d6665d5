#include "doctor/saved_words.h"

#include <algorithm>
#include <cctype>
#include <set>

#include "doctor/log_rules.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

// '#' at the end of a word means at most five digits.
constexpr std::string_view kSavedWords = R"(
. .. x x# v# n/a other - * + on off yes no auto none None default max Auto Off RS BaseR LLRS BASER
enabled disabled unknown infinity unlimited soft hard root memlock K M G T KB MB GB TB kB KiB MiB
GT Gb Mb sec s ms us W C Hz MHz GHz bytes byte packets packet pages up down UP DOWN UNKNOWN DORMANT
LOWERLAYERDOWN NOTPRESENT dormant lowerlayerdown notpresent testing full half Full Half datagram
connected Infiniband InfiniBand Ethernet IB RoCE performance powersave schedutil ondemand
conservative userspace interactive powersupersave power always madvise never balance_power
balance_performance pstate epp cpufreq intel_pstate intel_cpufreq acpi-cpufreq amd-pstate
amd-pstate-epp amd_pstate amd_pstate_epp cppc_cpufreq cpufreq-dt pcc-cpufreq intel_idle DMA DMA-FQ
identity blocked active inactive failed activating deactivating Enforcing Permissive Disabled NOP
INIT ARMED ACTIVE ACTIVE_DEFER Active Down Initializing Init Armed Sleep Polling LinkUp LINK_UP
PORT_ACTIVE PORT_DOWN PORT_INIT PORT_ARMED POLLING DISABLED Linkup PHY_TEST
PortConfigurationTraining LinkErrorRecovery Phy Test SDR DDR QDR FDR FDR10 EDR HDR NDR XDR X Gbps
CA RNIC usNIC switch iWARP MT# MT_# hca_id port Port state State phys physical_state phys_state
link link_layer netdev lid sm_lid port_lid base sm Base SM Link layer Rate rate Physical type
Firmware version transport image GUID guid Node System device pd cq qp cm_id mr ctx srq
subnet_prefix ID ID_LIKE debian ubuntu linuxmint pop fedora rhel centos rocky almalinux arch
manjaro nixos opensuse opensuse-leap opensuse-tumbleweed leap tumbleweed suse sles cachyos
endeavouros ol raspbian proxmox gentoo alpine archlinux garuda bazzite bluefin aurora silverblue
kinoite sericea onyx coreos iot sway-atomic cosmic-atomic budgie-atomic asahi generic lowlatency
pve amd64 arm64 aarch64 x86 x86_64 64 arch# fc# el# deb# bpo# lp# rc# rt# rpt rpi rpi# v7 v8 oem
zen lts hwe azure aws gcp raspi server kvm pf Linux linux kernel core headers unsigned vmlinuz boot
package packages is not installed firmware amdgpu amd graphics nvidia mlnx ofed linux-image
linux-base ii hi rdma-core rdma mesa vulkan radeon intel providers ibverbs ibverbs-providers
libibverbs drivers gpu saved git 0ubuntu# AMD RYZEN Ryzen AI MAX Max MAX+ Max+ hypervisor avx2
avx512bw avx512_vnni avx512f fma f16c asimd MemTotal MemAvailable SwapTotal SwapFree partition file
kubernetes containerd confined relay peer-relay so user-space knows
dev zram# Module Installed Memory Device Size Speed Configured Other Reboot required to ensure that
your system benefits from these updates Tcp OutSegs RetransSegs RtoAlgorithm RtoMin RtoMax MaxConn
ActiveOpens PassiveOpens AttemptFails EstabResets CurrEstab InSegs InErrs OutRsts InCsumErrors
locked registered rw refused at cannot register hostname Cannot allocate memory Operation permitted
Permission denied No such or directory supported Invalid argument Input/output error Resource
temporarily unavailable space left Connection regular time it did end within must be exit status
running dmesg read buffer connect the in open filtered one_way all_reduce ping icmp_seq ttl
transmitted received loss found iommu iommu.passthrough intel_iommu amd_iommu amdgpu.gttsize
amdgpu.cwsr_enable ttm.pages_limit ttm.page_pool_size amdttm.pages_limit amdttm.page_pool_size
mem maxcpus nr_cpus nosmp acpi noacpi
pcie_aspm pcie_aspm.policy nomodeset mitigations numa pt force nopt noforce strict initrd options
mlx4_core mlx5_core ttm ice irdma ixgbe i40e log_num_mgm_entry_size port_type_array num_vfs
probe_vf gttsize pages_limit page_pool_size roce_mode enable_guc NVreg_EnableGpuFirmware
NVreg_OpenRmEnableUnsupportedGpus cwsr_enable ppfeaturemask Y N GPU# NIC# SYS NODE PHB PXB PIX NV#
GPU NIC CPU NUMA Affinity balance-rr active-backup balance-xor broadcast 802.3ad balance-tlb
balance-alb load balancing round-robin fault-tolerance xor IEEE Dynamic aggregation transmit
adaptive mlx5 mlx4 asic edge junction mem pkg vram Module# nvidiafb nouveau nvidia_drm
nvidia_modeset nvidia_uvm i915 xe snd_hda_intel current size cdc_ether cdc_ncm r8152 e1000
ax88179_178a BAR Number Of Devices Navi XL GeForce RTX system_u unconfined_u object_r s0 u r
opensm_log_t var_log_t user_home_t admin_home_t unlabeled_t default_t tmp_t var log opensm.log mtu
qdisc noqueue mq fq_codel pfifo_fast master group qlen inet inet6 brd scope global dynamic
noprefixroute forever valid_lft preferred_lft metric via proto static dhcp src linkdown unreachable
infiniband ether loopback BROADCAST MULTICAST LOWER_UP NO-CARRIER LOOPBACK POINTOPOINT NOARP SLAVE
LinkLayer supports alias permanent LnkCap LnkSta LnkCtl Width ASPM L0s L1 Enabled downgraded ok Bus
primary secondary subordinate sec-latency Kernel driver use node SltSta PresDet PresDet+ PresDet-
ACSCtl ReqRedir+ ReqRedir- DLActive+ DLActive- Unknown header Capabilities access Exit Latency
Train- TrErr- SlotClk+ GT/s PCIe Network controller VGA compatible 3D Display PCI ISA Host bridge
Processing accelerators Non-Volatile USB Audio Mellanox Technologies NVIDIA Corporation Intel
Intel(R) R Advanced Micro Inc ATI Broadcom Limited Realtek Semiconductor Co Ltd MEDIATEK Corp
Qualcomm Atheros Aquantia Marvell Chelsio Communications QLogic Solarflare Pensando Systems
Cornelis Amazon Family Controller Adapter for SFP SFP+ SFP28 QSFP QSFP+ QSFP28 QSFP56 backplane
Express Gigabit GbE 2.5GbE 5GbE 10GbE 25GbE 40GbE 50GbE 100GbE 200GbE RDMA NetXtreme-E NetXtreme
Virtual Function BASE-T Lx Ex Pro Dx Connect-IB ConnectX BlueField Wireless Wi-Fi Bridge Root GPP
Switch Downstream Upstream Chipset Series Family-X Strix Halo Phoenix Raphael Granite Ridge
Starship Matisse Rembrandt Dummy Radeon RX XT XTX Graphics Instinct Arc Battlemage Thunderbolt USB4
prog-if Normal decode rev ff Cray Slingshot Cassini Fabric I# E# X# XL# XXV# BCM# RTL# AQC# QL# T#
RX# MI# W# V# GA# AD# GB# GH# SFC# CX# AX# 8060S 8050S Smart PF VF S L bonding team pcieport
mlx4_en mlx4_ib mlx5_ib mlxsw_core ib_ipoib iavf ixgbevf igb igbvf igc e1000e fm10k idpf bnxt_en
bnxt_re bnx2 bnx2x tg3 qede qed qedr cxgb3 cxgb4 iw_cxgb4 csiostor hfi1 ib_qib ib_mthca ionic efa
ena sfc sfc_siena mana enic be2net nfp hinic hns3 liquidio octeontx2 atlantic alx atl1c r8169 r8168
r8125 r8126 r8127 sky2 forcedeth vmxnet3 virtio_net virtio-pci xen-netfront hv_netvsc gve stmmac
dwmac dwc-qos bcmgenet macb mvneta mvpp2 fec cdc_mbim asix smsc95xx lan78xx usbnet aqc111
thunderbolt-net thunderbolt_net veth tun dummy macvlan ipvlan wireguard vxlan 802.1Q rxe siw
cxi_core cxi_ss1 cxi_eth iwlwifi mt7921e mt7925e mt7915e ath9k ath10k_pci ath11k_pci ath12k_pci
rtw88_8822ce rtw89_8852be rtw89_8852ce rtw89_8922ae brcmfmac wl shpchp pciehp nvme ahci
megaraid_sas mpt3sas smartpqi xhci_hcd xhci-pci ehci-pci ast mgag200 bochs-drm vfio-pci
uio_pci_generic thunderbolt i801_smbus piix4_smbus intel-lpss ccp k10temp amd_sfh_pci amdxdna
skx_uncore intel_vsec ioatdma idxd mei_me devices bus pci usb class net CPU# MC# GT# Tile# cxi#
sda# nvme# hwmon# BAR# Slot table chain hook input INPUT output OUTPUT forward FORWARD prerouting
postrouting filter nat mangle raw ip ip6 arp priority policy accept drop reject ACCEPT DROP REJECT
RETURN return jump goto queue continue iif iifname oif oifname saddr daddr dport sport tcp udp icmp
icmpv6 all ct new established related invalid vmap map set elements flags interval ipv4_addr ifname
verdict counter meta l4proto mark th fib protocol dnat snat masquerade comment syn fin rst ack
string mac owner limit hashlimit addrtype pkttype with icmpx admin-prohibited host-prohibited
icmp-host-prohibited icmp-port-unreachable -P -N -A -I -i -o -s -d -p -m -j -g --dport --dports
--sport --ctstate --state --src-range --tcp-flags --reject-with --match-set conntrack multiport
iprange NEW RELATED ESTABLISHED INVALID COMMIT Chain target prot opt out source destination
anywhere references pkts dpt dpts ctstate nixos-fw nixos-fw-accept nixos-fw-refuse
nixos-fw-log-refuse nixos-fw-rpfilter ufw-user-input ufw-before-input ufw-after-input
ufw-reject-input ufw-track-input ufw-skip-to-policy-input ufw-before-logging-input
ufw-after-logging-input ufw-not-local PVEFW-INPUT PVEFW-HOST-IN PVEFW-Drop PVEFW-DropBroadcast
PVEFW-reject PVEFW-smurfs proxmox-firewall firewalld filter_INPUT LIBVIRT_INP DOCKER DOCKER-USER
host-in Status Default deny allow incoming outgoing routed Anywhere ALLOW DENY LIMIT IN OUT Rule
protocols ipset block dmz external home internal libvirt libvirt-routed nm-shared public trusted
work FedoraServer FedoraWorkstation docker docker-forwarding interfaces sources ports services rich
rules rule family ipv4 address value ssh cockpit dhcpv6-client samba-client mdns
Supported Advertised modes partner advertised low low-power quiet cool balanced
balanced-performance max-power manual high profile_standard profile_min_sclk profile_min_mclk
profile_peak SW HW Power Cap Slowdown Thermal Brake Not Clocks SM Utilization Gpu Product Name
Aktiv eingehend microsoft standard WSL# Quadro Tesla TITAN Current Requested Enforced Min Max
)";

// Words of the list, and prefixes of words with digits. log: words of the kernel's log, in lower
// case.
struct Vocabulary {
    std::set<std::string_view> words, numbered;
    std::set<std::string, std::less<>> log = {""};
};

const Vocabulary& Known() {
    static const Vocabulary known = [] {
        Vocabulary all;
        for (std::string_view line : Lines(kSavedWords)) {
            for (std::string_view word : Words(line)) {
                const bool numbered = word.size() > 1 && word.ends_with('#');
                if (numbered) word.remove_suffix(1);
                (numbered ? all.numbered : all.words).insert(word);
            }
        }
        const auto add = [&](std::string_view text) {
            for (std::string_view word : Words(text)) {
                all.log.insert(LowerCase(word));
                all.log.insert(LowerCase(Bare(word)));
            }
        };
        for (const LogRule& rule : LogRules()) add(rule.words);
        for (std::string_view word : LogVocabulary()) add(word);
        return all;
    }();
    return known;
}

bool AreHexDigits(std::string_view text, size_t most) {
    return AreDigits(text, most, 16);
}

// "0x15b3", or a longer number that is zero.
bool IsShortHex(std::string_view part) {
    if (!part.starts_with("0x")) return false;
    part.remove_prefix(2);
    return AreHexDigits(part, 6) || (!part.empty() && part.find_first_not_of('0') == part.npos);
}

// "baseSR4" in "100000baseSR4/Full".
bool IsModeOfEthernet(std::string_view text) {
    if (!text.starts_with("base") || text.size() > 8) return false;
    return std::ranges::all_of(text.substr(4), [](unsigned char c) {
        return std::isupper(c) != 0 || std::isdigit(c) != 0;
    });
}

// The source of a word.
enum class Source { kOutput, kLog };

// "-22", "8.0", "1.3534.0", "40000Mb": at most eleven digits, at most four groups, and a known
// unit. A number of the log may have six digits, and three behind a point, because longer numbers
// may be serial numbers.
bool IsSavedNumber(std::string_view part, Source source) {
    const bool log = source == Source::kLog;
    const size_t most_groups = log ? 2 : 4, most_first = log ? 6 : 11, most_more = log ? 3 : 6;
    if (part.starts_with('-') || part.starts_with('+')) part.remove_prefix(1);
    size_t at = 0;
    for (size_t group = 1;; ++group) {
        const size_t end = std::min(part.find_first_not_of("0123456789", at), part.size());
        if (end == at || end - at > (group == 1 ? most_first : most_more)) return false;
        at = end;
        if (at == part.size()) return true;
        const bool more = part[at] == '.' && at + 1 < part.size() &&
                          std::isdigit(static_cast<unsigned char>(part[at + 1])) != 0;
        if (!more) break;
        if (group == most_groups) return false;
        ++at;
    }
    const std::string_view unit = part.substr(at);
    return Known().words.contains(unit) || IsModeOfEthernet(unit);
}

// "2-1.4:1.0" for USB, "0-1.0" for Thunderbolt.
bool IsBusPlace(std::string_view word) {
    const size_t dash = word.find('-'), colon = std::min(word.find(':'), word.size());
    if (dash == 0 || dash == word.npos || dash > 3 || colon < dash || word.size() > 16)
        return false;
    if (word.find_first_not_of("0123456789.", dash + 1) < colon) return false;
    return AreDigits(word.substr(0, dash), 3) && dash + 1 < colon &&
           word.find_first_not_of("0123456789.:", colon) == word.npos;
}

bool IsPlaceOfDevice(std::string_view word) {
    // "PCI:0000:01:00", the form of NVIDIA's driver.
    const bool nvidia = word.size() == 14 && word.starts_with("PCI:");
    if (nvidia) return IsPciAddress(std::string(word.substr(4)) + ".0");
    return IsPciAddress(word) || IsBusPlace(word) ||
           (word.size() == 7 && IsPciAddress("0000:" + std::string(word)));
}

bool IsAsciiAlnum(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) != 0;
}

// A hardware address, a GUID or an IPv6 address, but not "system_u:object_r:var_log_t:s0".
bool LooksLikeAddress(std::string_view word) {
    if (word.starts_with("0x")) return word.size() > 8 && !IsShortHex(word);
    size_t inner = 0;
    bool named = true;
    for (std::string_view part : Split(word, ':')) {
        inner += part.empty() ? 0 : 1;
        named = named && !part.empty() && Known().words.contains(part) && !AreDigits(part, 99);
    }
    return (inner > 2 && !named) || Contains(word, "::");
}

// "[15b3:1003]" for widespread vendors.
bool ArePciIds(std::string_view word) {
    constexpr std::string_view kMakers =
        "15b3 8086 1022 1002 14e4 10de 10ec 1d6a 17db 1425 1077 1924 1dd8 1d0f 14c3 1af4 1b21";
    return word.size() == 9 && word[4] == ':' && Contains(kMakers, word.substr(0, 4)) &&
           AreHexDigits(word.substr(5), 4);
}

bool IsKnownPart(std::string_view part, Source source) {
    const bool log = source == Source::kLog;
    if (log && Known().log.contains(LowerCase(part))) return true;
    if (IsKnownWord(part) || IsSavedNumber(part, source) || (!log && IsShortHex(part))) return true;
    const size_t dash = part.find('-', 1);
    if (dash == part.npos || part.find('-', dash + 1) != part.npos) return false;
    const std::string_view first = part.substr(0, dash), second = part.substr(dash + 1);
    const auto known = [&](std::string_view half) {
        return IsKnownWord(half) || IsSavedNumber(half, source) ||
               (half.size() == 1 && half[0] <= 'Z');
    };
    return known(first) && known(second);
}

constexpr std::string_view kPunctuation = "()[]{}<>,:;=/\\'\"!@|*#%&";

// End of the part of a word, or of an address with its prefix, that begins at `at`.
size_t EndOfPart(std::string_view word, size_t at) {
    size_t end = std::min(word.find_first_of(kPunctuation, at), word.size());
    if (end >= word.size() || word[end] != '/' || !ParseIpv4(word.substr(at, end - at))) return end;
    const size_t after = std::min(word.find_first_not_of("0123456789", end + 1), word.size());
    return ParseIpv4(word.substr(at, after - at)) ? after : end;
}

std::string SavedPart(std::string_view part, Source source, Pseudonyms& names) {
    if (const std::string address = names.AddressText(part); part != "default" && !address.empty())
        return source == Source::kLog ? "" : address;
    const size_t dash = part.find('-');
    if (source == Source::kOutput && dash != part.npos && ParseIpv4(part.substr(0, dash))) {
        const std::string first = names.AddressText(part.substr(0, dash));
        const std::string last = names.AddressText(part.substr(dash + 1));
        return last.empty() ? "" : first + "-" + last;
    }
    const bool ends = part.size() > 2 && part.ends_with('.');  // "Inc."
    if (ends && IsKnownPart(part.substr(0, part.size() - 1), source)) return std::string(part);
    return IsKnownPart(part, source) ? std::string(part) : "";
}

std::string SavedWord(std::string_view word, UnknownWord unknown, Source source,
                      Pseudonyms& names) {
    const std::string_view core = Bare(word);
    const auto begin = static_cast<size_t>(core.data() - word.data());
    if (core.empty()) return std::string(word);
    if (IsPlaceOfDevice(core) || ArePciIds(core)) return std::string(word);
    if (begin == 1 && word[0] == '[' && AreHexDigits(core, 4)) return std::string(word);  // [0280]
    if (LooksLikeAddress(core)) return unknown == UnknownWord::kDrop ? "" : names.Number(core);
    std::string kept;
    for (size_t at = 0; at < word.size();) {
        const size_t end = EndOfPart(word, at);
        if (end == at) {
            kept += word[at++];
            continue;
        }
        std::string part = SavedPart(word.substr(at, end - at), source, names);
        const bool bus = word.starts_with("primary=") || word.starts_with("secondary=") ||
                         word.starts_with("subordinate=");
        if (bus && AreHexDigits(word.substr(at, end - at), 2)) part = word.substr(at, end - at);
        if (part.empty() && unknown == UnknownWord::kDrop) return "";
        kept += part.empty() ? names.Interface(word.substr(at, end - at)) : part;
        at = end;
    }
    return kept;
}

// name="/dev/dri/renderD128": the name of a device file is not private.
bool IsDeviceFile(std::string_view bare) {
    constexpr size_t kMostName = 24;
    const size_t quote = bare.find("=\"");
    if (quote == bare.npos) return false;
    const std::string_view path = bare.substr(quote + 2);
    return BeginsWithOneOf(path, "/dev/infiniband/ /dev/dri/ /dev/kfd /dev/nvidia nvidia") &&
           path.size() < kMostName + std::string_view("/dev/infiniband/").size() &&
           path.find_first_not_of(
               "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/"
               "_-") == path.npos;
}

}  // namespace

bool IsKnownWord(std::string_view word) {
    if (Known().words.contains(word) || IsUsualDeviceName(word)) return true;
    const size_t digits = word.find_last_not_of("0123456789") + 1;
    if (digits == 0 || digits == word.size() || !Known().numbered.contains(word.substr(0, digits)))
        return false;
    const size_t first = std::min(word.find_first_not_of('0', digits), word.size());
    return word.size() - first <= 5;
}

// "10000:e1:00.0": a domain has four to eight digits; Intel's VMD has five.
bool IsPciAddress(std::string_view word) {
    if (word.size() < 12 || word.size() > 16) return false;
    const std::string lower = LowerCase(word);
    const size_t domain = lower.size() - 8;
    const std::string_view all = lower, rest = all.substr(domain);
    return AreHexDigits(all.substr(0, domain), 8) && rest[0] == ':' && rest[3] == ':' &&
           rest[6] == '.' && AreHexDigits(rest.substr(1, 2), 2) &&
           AreHexDigits(rest.substr(4, 2), 2) && AreHexDigits(rest.substr(7), 1);
}

std::string SavedWords(std::string_view line, UnknownWord unknown, Pseudonyms& names) {
    constexpr size_t kMostLine = 8192;
    line = line.substr(0, kMostLine);
    if (names.real() && unknown == UnknownWord::kRename) return Printable(line);
    std::string kept;
    for (size_t at = 0; at < line.size();) {
        const size_t word = std::min(line.find_first_not_of(" \t", at), line.size());
        const size_t end = std::min(line.find_first_of(" \t", word), line.size());
        std::string shown =
            SavedWord(line.substr(word, end - word), unknown, Source::kOutput, names);
        const bool revision = end - word == 3 && line[end - 1] == ')' && kept.ends_with("(rev") &&
                              AreHexDigits(line.substr(word, 2), 2);  // "(rev c8)"
        if (revision) shown = line.substr(word, 3);
        if (!shown.empty()) kept += std::string(line.substr(at, word - at)) + shown;
        at = end;
    }
    return kept;
}

std::string SavedLogWord(std::string_view word, Pseudonyms& names) {
    constexpr ptrdiff_t kMostDigits = 9;  // "1024.000"
    const std::string_view bare = Bare(word);
    if (IsDeviceFile(bare)) return std::string(word);
    if (bare.empty() || bare.starts_with("pid=") || bare.starts_with("name=")) return "";
    const auto& log = Known().log;
    if (log.contains(LowerCase(word)) || log.contains(LowerCase(bare))) return std::string(word);
    // Several short numbers in one word may be parts of a longer one.
    const auto digits = std::ranges::count_if(bare, [](char c) { return c >= '0' && c <= '9'; });
    if (digits > kMostDigits && !IsPciAddress(bare)) return "";
    std::string shown = SavedWord(word, UnknownWord::kDrop, Source::kLog, names);
    if (!shown.empty()) return shown;
    // "MES(0x0)", "severity(3)", "SLOT(0)": the word before its argument.
    const std::string_view before = word.substr(0, word.find('('));
    return log.contains(LowerCase(before)) ? std::string(before) : "";
}

std::string SavedVersion(std::string_view line, const Pseudonyms& names) {
    constexpr std::string_view kJoints = "-._+~:=/\"'";
    if (names.real()) return Printable(line.substr(0, 256));
    std::string kept;
    for (std::string_view word : Words(line.substr(0, 512))) {
        std::string shown;
        bool number = false;
        for (size_t at = 0; at < word.size();) {
            const size_t end = std::min(word.find_first_of(kJoints, at), word.size());
            std::string_view part = word.substr(at, end - at);
            // "58mlnx43" -> "58"
            const size_t tail = part.find_first_not_of("0123456789");
            if (tail > 0 && tail < part.size() && part[tail] > 'f' && !IsKnownWord(part)) {
                part = part.substr(0, tail);
            }
            const bool digits = AreDigits(part, 8);
            if (digits || (Known().words.contains(part) && IsAsciiAlnum(part[0])) ||
                (!part.empty() && IsKnownWord(part) && part.size() < 10)) {
                if (!shown.empty()) shown += at == 0 ? '-' : word[at - 1];
                shown += part;
            }
            number = number || digits;
            at = end + 1;
        }
        if (!shown.empty()) kept += (kept.empty() ? "" : " ") + shown;
        if (number) break;
    }
    return kept;
}

}  // namespace weft::doctor
