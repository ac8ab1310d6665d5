// Whole hosts as snapshots, in the output formats of kernels, drivers and distributions: sysfs
// (Documentation/ABI/*/sysfs-*), lspci 3.13, iproute2, ethtool, firewalld, nft, ibstat.
#pragma once

#include <fmt/format.h>

#include <string>
#include <vector>

#include "doctor/snapshot.h"

namespace weft::doctor::test_hosts {

struct PcieLink {
    double gigatransfers = 8;
    int width = 8;
};

struct Card {
    std::string address = {}, slot = {};  // "0000:01:00.0"; the bridge above it
    int type = 0x0280;                    // base class and subclass
    int vendor = 0x15b3, device = 0x1003;
    std::string kind = "Network controller", name =
                                                 "Mellanox Technologies MT27500 Family "
                                                 "[ConnectX-3]";
    std::string driver = "mlx4_core";
    PcieLink most = {}, slot_most = {}, now = {};
    int aer = 0;  // corrected errors
    std::string aspm = "Disabled";
};

enum class Distribution { kFedora43, kUbuntu2404, kDebian13, kNixOs, kRhel9 };

class Host {
  public:
    Host(const std::string& name, Distribution distribution) : distribution_(distribution) {
        Set("probe/hostname", name + "\n");
        Set("proc/sys/kernel/osrelease", Release() + "\n");
        Set("proc/meminfo",
            "MemTotal:       65215240 kB\nMemFree:        61000000 kB\nSwapTotal:       8388604 "
            "kB\nSwapFree:        8388604 kB\n");
        Set("proc/cpuinfo",
            "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD Ryzen 7 8845HS w/ Radeon "
            "780M Graphics\nflags\t\t: fpu vme sse2 avx2 avx512f avx512bw avx512_vnni\n");
        Set("proc/cmdline", "BOOT_IMAGE=/vmlinuz root=UUID=1b2e ro rhgb quiet iommu=pt\n");
        Set("sys/kernel/mm/transparent_hugepage/enabled", "always [madvise] never\n");
        Set("proc/sys/kernel/numa_balancing", "0\n");
        Set("sys/devices/system/node/node0/", "");
        const std::string policy = "sys/devices/system/cpu/cpufreq/policy0/";
        Set(policy + "scaling_governor", "powersave\n");
        Set(policy + "scaling_driver", "amd-pstate-epp\n");
        Set(policy + "energy_performance_preference", "balance_performance\n");
        Set("proc/sys/net/ipv4/tcp_rmem", "4096\t131072\t67108864\n");
        Set("proc/net/snmp",
            "Tcp: RtoAlgorithm OutSegs RetransSegs\nTcp: 1 1000000 12\nUdp: InDatagrams\nUdp: 4\n");
        Set("cmd/timedatectl_show_--property=NTPSynchronized", "NTPSynchronized=yes\n");
        Set("probe/memlock", "soft unlimited hard unlimited\n");
        Set("probe/lock_memory", "locked 67108864\n");
        Set("probe/cpus", "16\n");
        Set("proc/self/cgroup", "0::/user.slice/user-1000.slice/session-2.scope\n");
        Set("etc/security/limits.d/90-memlock.conf",
            "* soft memlock unlimited\n* hard memlock unlimited\n");
        Set("cmd/systemctl_show_--property=DefaultLimitMEMLOCK", "DefaultLimitMEMLOCK=8388608\n");
        Firewall();
    }

    void Set(const std::string& path, const std::string& text) { files_[path] = text; }
    void Remove(const std::string& path) { files_.erase(path); }

    void Add(const Card& card) {
        Pci(card.slot, 0x0604, 0x1022, 0x150b, "pcieport", card.slot_most, card.now, 0);
        Set("link/sys/bus/pci/devices/" + card.slot, "../../../devices/pci0000:00/" + card.slot);
        Pci(card.address, card.type, card.vendor, card.device, card.driver, card.most, card.now,
            card.aer);
        Set("link/sys/bus/pci/devices/" + card.address,
            "../../../devices/pci0000:00/" + card.slot + "/" + card.address);
        const std::string bus = card.address.substr(5, 2);
        bridges_ += fmt::format(
            "{} PCI bridge: Advanced Micro Devices, Inc. [AMD] Phoenix GPP Bridge (prog-if 00 "
            "[Normal decode])\n\tBus: primary=00, secondary={}, subordinate={}, sec-latency=0\n"
            "\tCapabilities: [58] Express (v2) Root Port (Slot+), MSI 00\n"
            "\t\tLnkCap:\tPort #0, Speed {:g}GT/s, Width x{}, ASPM L1, Exit Latency L1 <64us\n"
            "\t\tLnkCtl:\tASPM Disabled; RCB 64 bytes, LnkDisable- CommClk+\n"
            "\t\tLnkSta:\tSpeed {:g}GT/s, Width x{}\n\tKernel driver in use: pcieport\n\n",
            card.slot.substr(5), bus, bus, card.slot_most.gigatransfers, card.slot_most.width,
            card.now.gigatransfers, card.now.width);
        const bool fast = card.now.gigatransfers >= card.most.gigatransfers;
        const bool wide = card.now.width >= card.most.width;
        cards_ += fmt::format(
            "{} {}: {}\n\tSubsystem: Mellanox Technologies Device 0055\n"
            "\tCapabilities: [48] Vital Product Data\n\t\tProduct Name: CX354A - ConnectX-3 QSFP\n"
            "\t\tRead-only fields:\n\t\t\t[PN] Part number: MCX354A-FCBT\n"
            "\t\t\t[SN] Serial number: MT1421X04521\n\t\t\t[V0] Vendor specific: PCIe Gen3 x8\n"
            "\tCapabilities: [60] Express (v2) Endpoint, IntMsgNum 0\n"
            "\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes\n"
            "\t\tLnkCap:\tPort #8, Speed {:g}GT/s, Width x{}, ASPM L0s, Exit Latency L0s "
            "unlimited\n"
            "\t\tLnkCtl:\tASPM {}; RCB 64 bytes, Disabled- CommClk+\n"
            "\t\tLnkSta:\tSpeed {:g}GT/s{}, Width x{}{}\n{}"
            "\tKernel modules: {}\n\n",
            card.address.substr(5), card.kind, card.name, card.most.gigatransfers, card.most.width,
            card.aspm, card.now.gigatransfers, fast ? "" : " (downgraded)", card.now.width,
            wide ? "" : " (downgraded)",
            card.driver.empty() ? "" : "\tKernel driver in use: " + card.driver + "\n",
            card.vendor == 0x15b3 ? "mlx4_core" : card.driver);
        Set("cmd/lspci_-vv", bridges_ + cards_);
    }

    struct Interface {
        std::string name = {}, pci = {}, driver = {};
        int megabits = 40000, mtu = 1500, type = 1;
        std::string address = {};  // "10.0.0.1/24"; none: ""
        bool up = true;
        std::string mode = {};  // of IPoIB
    };
    void Add(const Interface& net) {
        const std::string path = "sys/class/net/" + net.name + "/";
        if (net.up) Set(path + "speed", fmt::format("{}\n", net.megabits));
        if (net.up && net.type == 1) Set(path + "duplex", "full\n");
        Set(path + "mtu", fmt::format("{}\n", net.mtu));
        Set(path + "type", fmt::format("{}\n", net.type));
        Set(path + "operstate", net.up ? "up\n" : "down\n");
        if (!net.mode.empty()) Set(path + "mode", net.mode + "\n");
        if (!net.pci.empty()) {
            Set("link/" + path + "device", "../../../" + net.pci);
            Set("link/" + path + "device/driver", "../../../../bus/pci/drivers/" + net.driver);
            Set("sys/bus/pci/devices/" + net.pci + "/net/" + net.name + "/", "");
        }
        Set("cmd/ethtool_-i_" + net.name,
            fmt::format("driver: {}\nversion: {}\nfirmware-version: {}\nexpansion-rom-version: "
                        "\nbus-info: {}\nsupports-statistics: yes\n",
                        net.driver, Release(), Firmware(net.driver), net.pci));
        const size_t slash = net.address.find('/');
        const std::string info =
            net.address.empty()
                ? ""
                : fmt::format(R"({{"family":"inet","local":"{}","prefixlen":{},"scope":"global"}},)"
                              R"({{"family":"inet6","local":"fe80::1","prefixlen":64}})",
                              net.address.substr(0, slash), net.address.substr(slash + 1));
        links_ +=
            fmt::format(R"({}{{"ifname":"{}","mtu":{},"operstate":"{}","addr_info":[{}]}})",
                        links_.empty() ? "" : ",", net.name, net.mtu, net.up ? "UP" : "DOWN", info);
        if (!net.address.empty() && net.up) {
            const std::string subnet =
                net.address.substr(0, net.address.rfind('.')) + ".0" + net.address.substr(slash);
            routes_ += fmt::format(R"({}{{"dst":"{}","dev":"{}","protocol":"kernel"}})",
                                   routes_.empty() ? "" : ",", subnet, net.name);
        }
        Set("cmd/ip_-j_addr", "[" + links_ + "]\n");
        Set("cmd/ip_-j_route", "[" + routes_ + "]\n");
    }

    struct Port {
        std::string state = "4: ACTIVE", physical = "5: LinkUp", layer = "InfiniBand",
                    rate = "40 Gb/sec (4X QDR)";
        int lid = 1, sm_lid = 1;
        std::string gid_ipv4 = {}, interface = {};  // of RoCE
    };
    void AddRdma(const std::string& device, const std::string& pci,
                 const std::vector<Port>& ports) {
        const std::string path = "sys/class/infiniband/" + device + "/";
        Set(path + "fw_ver", "2.42.5000\n");
        Set("link/" + path + "device", "../../../" + pci);
        Set("sys/bus/pci/devices/" + pci + "/infiniband/" + device + "/", "");
        Set("dev/infiniband/uverbs0/", "");
        Set("probe/access/dev/infiniband/uverbs0", "rw\n");
        Set("probe/register_memory/" + device, "registered 67108864\n");
        for (size_t i = 0; i < ports.size(); ++i) {
            const Port& port = ports[i];
            const std::string folder = fmt::format("{}ports/{}/", path, i + 1);
            Set(folder + "state", port.state + "\n");
            Set(folder + "phys_state", port.physical + "\n");
            Set(folder + "link_layer", port.layer + "\n");
            Set(folder + "rate", port.rate + "\n");
            Set(folder + "lid", fmt::format("{:#x}\n", port.lid));
            Set(folder + "sm_lid", fmt::format("{:#x}\n", port.sm_lid));
            Set(folder + "counters/symbol_error", "0\n");
            Set("later/" + folder + "counters/symbol_error", "0\n");
            Set(folder + "gids/0", "fe80:0000:0000:0000:e41d:2d03:001d:67b1\n");
            if (port.interface.empty()) continue;
            Set(folder + "gid_attrs/types/0", "IB/RoCE v1\n");
            Set(folder + "gid_attrs/ndevs/0", port.interface + "\n");
            Set(folder + "gids/3", "0000:0000:0000:0000:0000:ffff:" + port.gid_ipv4 + "\n");
            Set(folder + "gid_attrs/types/3", "RoCE v2\n");
            Set(folder + "gid_attrs/ndevs/3", port.interface + "\n");
        }
    }

    // complete: as made by `weft doctor --save`; a snapshot made by hand may lack files.
    SnapshotFiles Files(bool complete = true) const {
        SnapshotFiles files = files_;
        if (complete) files["probe/complete"] = "yes\n";
        return files;
    }

  private:
    std::string Release() const {
        switch (distribution_) {
            case Distribution::kFedora43: return "6.17.7-300.fc43.x86_64";
            case Distribution::kUbuntu2404: return "6.14.0-37-generic";
            case Distribution::kDebian13: return "6.12.57+deb13-amd64";
            case Distribution::kNixOs: return "6.12.58";
            case Distribution::kRhel9: return "5.14.0-611.5.1.el9_7.x86_64";
        }
        return "";
    }
    static std::string Firmware(const std::string& driver) {
        if (driver == "mlx4_core" || driver == "mlx4_en" || driver == "ib_ipoib")
            return "2.42.5000";
        if (driver == "mlx5_core") return "16.35.4030 (MT_0000000008)";
        if (driver == "ice") return "4.40 0x8001c967 1.3534.0";
        return "N/A";
    }
    void Firewall() {
        switch (distribution_) {
            case Distribution::kFedora43:
                Set("cmd/firewall-cmd_--state", "running\n");
                Set("cmd/firewall-cmd_--get-active-zones",
                    "FedoraWorkstation (default)\n  interfaces: eno1\n");
                Set("cmd/rpm_-q_--qf=%{VERSION}_libibverbs", "57.0");
                break;
            case Distribution::kRhel9:
                Set("cmd/firewall-cmd_--state", "running\n");
                Set("cmd/firewall-cmd_--get-active-zones",
                    "public (default)\n  interfaces: eno1\ntrusted\n  interfaces: ens1f0np0\n");
                Set("cmd/rpm_-q_--qf=%{VERSION}_libibverbs", "54.0");
                break;
            case Distribution::kUbuntu2404:
                Set("cmd/ufw_status_verbose", "Status: inactive\n");
                Set("cmd/iptables_-S", "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n");
                Set("cmd/dpkg-query_-W_-f=${Version}_ibverbs-providers", "50.0-2ubuntu0.2");
                break;
            case Distribution::kDebian13:
                Set("cmd/nft_list_ruleset", "");
                Set("cmd/dpkg-query_-W_-f=${Version}_ibverbs-providers", "56.1-1");
                break;
            case Distribution::kNixOs:
                Set("cmd/iptables_-S",
                    "-P INPUT ACCEPT\n-P FORWARD ACCEPT\n-P OUTPUT ACCEPT\n-N nixos-fw\n"
                    "-N nixos-fw-accept\n-N nixos-fw-log-refuse\n-N nixos-fw-refuse\n"
                    "-A INPUT -j nixos-fw\n-A nixos-fw -i lo -j nixos-fw-accept\n"
                    "-A nixos-fw -i enp1s0np0 -j nixos-fw-accept\n"
                    "-A nixos-fw -m conntrack --ctstate RELATED,ESTABLISHED -j nixos-fw-accept\n"
                    "-A nixos-fw -p tcp -m tcp --dport 22 -j nixos-fw-accept\n"
                    "-A nixos-fw -p icmp -m icmp --icmp-type 8 -j nixos-fw-accept\n"
                    "-A nixos-fw -j nixos-fw-log-refuse\n-A nixos-fw-accept -j ACCEPT\n"
                    "-A nixos-fw-log-refuse -p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -j LOG "
                    "--log-prefix \"refused connection: \" --log-level 6\n"
                    "-A nixos-fw-log-refuse -m pkttype ! --pkt-type unicast -j nixos-fw-refuse\n"
                    "-A nixos-fw-log-refuse -j nixos-fw-refuse\n-A nixos-fw-refuse -j DROP\n");
                break;
        }
    }
    void Pci(const std::string& address, int type, int vendor, int device,
             const std::string& driver, const PcieLink& most, const PcieLink& now, int aer) {
        const std::string path = "sys/bus/pci/devices/" + address + "/";
        Set(path + "class", fmt::format("{:#08x}\n", type << 8));
        Set(path + "vendor", fmt::format("{:#06x}\n", vendor));
        Set(path + "device", fmt::format("{:#06x}\n", device));
        Set(path + "max_link_speed", fmt::format("{:.1f} GT/s PCIe\n", most.gigatransfers));
        Set(path + "max_link_width", fmt::format("{}\n", most.width));
        Set(path + "current_link_speed", fmt::format("{:.1f} GT/s PCIe\n", now.gigatransfers));
        Set(path + "current_link_width", fmt::format("{}\n", now.width));
        Set(path + "aer_dev_correctable",
            fmt::format("RxErr {}\nBadTLP 0\nBadDLLP 0\nRollover 0\nTimeout 0\nNonFatalErr 0\n"
                        "CorrIntErr 0\nHeaderOF 0\nTOTAL_ERR_COR {}\n",
                        aer, aer));
        Set(path + "aer_dev_nonfatal", "Undefined 0\nDLP 0\nTOTAL_ERR_NONFATAL 0\n");
        Set(path + "aer_dev_fatal", "Undefined 0\nDLP 0\nTOTAL_ERR_FATAL 0\n");
        if (!driver.empty()) {
            Set("link/" + path + "driver", "../../../../bus/pci/drivers/" + driver);
        }
    }

    Distribution distribution_;
    SnapshotFiles files_;
    std::string bridges_, cards_, links_, routes_;
};

}  // namespace weft::doctor::test_hosts
