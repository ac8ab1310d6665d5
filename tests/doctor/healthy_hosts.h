// Healthy hosts, with common distributions and cards.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "doctor/hosts.h"

namespace weft::doctor::test_hosts {

struct Cluster {
    std::string name;
    std::vector<SnapshotFiles> hosts;
};

// One of two mini PCs: a ConnectX-3 for 8 lanes in an Oculink slot of 4, one port of two cabled,
// IPoIB as datagrams, Fedora Workstation's default firewall.
inline Host OculinkHost(const std::string& name, int lid, bool manager) {
    Host host(name, Distribution::kFedora43);
    host.Add(
        {.address = "0000:03:00.0", .slot = "0000:00:02.5", .slot_most = {16, 4}, .now = {8, 4}});
    host.Add({.name = "eno1",
              .pci = "0000:02:00.0",
              .driver = "igc",
              .megabits = 2500,
              .address = "192.168.1." + std::to_string(10 + lid) + "/24"});
    host.Add({.name = "ibp3s0",
              .pci = "0000:03:00.0",
              .driver = "ib_ipoib",
              .mtu = 2044,
              .type = 32,
              .address = "10.10.0." + std::to_string(lid) + "/24",
              .mode = "datagram"});
    host.Add({.name = "ibp3s0d1",
              .pci = "0000:03:00.0",
              .driver = "ib_ipoib",
              .mtu = 4092,
              .type = 32,
              .up = false,
              .mode = "datagram"});
    host.AddRdma("mlx4_0", "0000:03:00.0",
                 {{.lid = lid, .sm_lid = 1},
                  {.state = "1: DOWN",
                   .physical = "2: Polling",
                   .rate = "10 Gb/sec (4X SDR)",
                   .lid = 0,
                   .sm_lid = 0}});
    host.Set("cmd/systemctl_is-active_opensm", manager ? "active\n" : "inactive\n");
    host.Set("cmd/firewall-cmd_--get-active-zones",
             "FedoraWorkstation (default)\n  interfaces: ibp3s0 eno1\n");
    host.Set("cmd/firewall-cmd_--list-all",
             "FedoraWorkstation (default, active)\n  target: default\n  ingress-priority: 0\n"
             "  icmp-block-inversion: no\n  interfaces: eno1 ibp3s0\n  sources: \n"
             "  services: dhcpv6-client samba-client ssh\n  ports: 1025-65535/udp 1025-65535/tcp\n"
             "  protocols: \n  forward: yes\n  masquerade: no\n");
    host.Set("cmd/dmesg",
             "[    9.162204] mlx4_core 0000:03:00.0: DMFS high rate steer mode is: disabled "
             "performance optimized steering\n"
             "[    9.162913] mlx4_core 0000:03:00.0: 31.504 Gb/s available PCIe bandwidth, limited "
             "by 8.0 GT/s PCIe x4 link at 0000:00:02.5 (capable of 63.008 Gb/s with 8.0 GT/s PCIe "
             "x8 link)\n"
             "[   10.000000] <mlx4_ib> mlx4_ib_probe: mlx4_ib: Mellanox ConnectX InfiniBand driver "
             "v4.0-0\n");
    return host;
}

// Strix Halo with an E810 for 16 lanes in its slot of 4.
inline Host StrixHaloHost() {
    Host host("halo", Distribution::kUbuntu2404);
    host.Add({.address = "0000:c1:00.0",
              .slot = "0000:00:02.1",
              .type = 0x0200,
              .vendor = 0x8086,
              .device = 0x1592,
              .kind = "Ethernet controller",
              .name = "Intel Corporation Ethernet Controller E810-C for QSFP (rev 02)",
              .driver = "ice",
              .most = {16, 16},
              .slot_most = {16, 4},
              .now = {16, 4}});
    host.Add({.name = "enp193s0f0",
              .pci = "0000:c1:00.0",
              .driver = "ice",
              .megabits = 100000,
              .mtu = 9000,
              .address = "10.20.0.1/24"});
    host.AddRdma("rocep193s0f0", "0000:c1:00.0",
                 {{.layer = "Ethernet",
                   .rate = "100 Gb/sec (4X EDR)",
                   .gid_ipv4 = "0a14:0001",
                   .interface = "enp193s0f0"}});
    host.Set("cmd/dmesg",
             "[    4.118212] ice 0000:c1:00.0: 63.008 Gb/s available PCIe bandwidth, limited by "
             "16.0 GT/s PCIe x4 link at 0000:00:02.1 (capable of 252.048 Gb/s with 16.0 GT/s PCIe "
             "x16 link)\n");
    return host;
}

// A host with a RoCE card that uses all its lanes.
inline Host RoceHost(const std::string& name, Distribution distribution, const std::string& net,
                     int last, int megabits, const std::string& rate) {
    Host host(name, distribution);
    host.Add({.address = "0000:01:00.0",
              .slot = "0000:00:01.1",
              .type = 0x0200,
              .device = 0x1015,
              .kind = "Ethernet controller",
              .name = "Mellanox Technologies MT27710 Family [ConnectX-4 Lx]",
              .driver = "mlx5_core",
              .slot_most = {16, 16},
              .now = {8, 8}});
    host.Add({.name = net,
              .pci = "0000:01:00.0",
              .driver = "mlx5_core",
              .megabits = megabits,
              .mtu = 9000,
              .address = "10.0.0." + std::to_string(last) + "/24"});
    host.AddRdma("mlx5_0", "0000:01:00.0",
                 {{.layer = "Ethernet",
                   .rate = rate,
                   .gid_ipv4 = fmt::format("0a00:{:04x}", last),
                   .interface = net}});
    return host;
}

inline Host ThunderboltHost(const std::string& name, Distribution distribution, int last) {
    Host host(name, distribution);
    host.Add({.name = "thunderbolt0",
              .pci = "0-1.0",
              .driver = "thunderbolt-net",
              .megabits = 0,
              .mtu = 65520,
              .address = "10.30.0." + std::to_string(last) + "/24"});
    const std::string link = "sys/bus/thunderbolt/devices/0-1/";
    host.Set(link + "rx_speed", "20.0 Gb/s\n");
    host.Set(link + "rx_lanes", "2\n");
    host.Set(link + "0-1.0/", "");
    if (distribution == Distribution::kFedora43) {
        host.Set("cmd/firewall-cmd_--get-active-zones",
                 "FedoraWorkstation (default)\n  interfaces: thunderbolt0\n");
    }
    return host;
}

// A desktop with a card of 2.5 Gb/s, and a Wi-Fi card, also of class 0280, whose link is down.
inline Host DesktopHost() {
    Host host("desktop", Distribution::kUbuntu2404);
    host.Add({.address = "0000:02:00.0",
              .slot = "0000:00:02.2",
              .type = 0x0200,
              .vendor = 0x8086,
              .device = 0x125c,
              .kind = "Ethernet controller",
              .name = "Intel Corporation Ethernet Controller I226-V (rev 04)",
              .driver = "igc",
              .most = {5, 1},
              .slot_most = {8, 1},
              .now = {5, 1}});
    host.Add({.address = "0000:04:00.0",
              .slot = "0000:00:02.3",
              .vendor = 0x14c3,
              .device = 0x0616,
              .name = "MEDIATEK Corp. MT7922 802.11ax PCI Express Wireless "
                      "Network Adapter",
              .driver = "mt7921e",
              .most = {5, 1},
              .slot_most = {5, 1},
              .now = {2.5, 1},
              .aer = 300,
              .aspm = "L1 Enabled"});
    host.Add({.name = "enp2s0",
              .pci = "0000:02:00.0",
              .driver = "igc",
              .megabits = 2500,
              .address = "192.168.1.10/24"});
    host.Add(
        {.name = "wlp4s0", .pci = "0000:04:00.0", .driver = "mt7921e", .megabits = 0, .up = false});
    host.Set("sys/class/net/wlp4s0/wireless/", "");
    host.Set("sys/class/net/wlp4s0/phy80211/", "");
    return host;
}

inline Host UfwHost() {
    Host host =
        RoceHost("ufw", Distribution::kUbuntu2404, "enp1s0f0np0", 1, 25000, "25 Gb/sec (1X EDR)");
    host.Set(
        "cmd/ufw_status_verbose",
        "Status: active\nLogging: on (low)\nDefault: deny (incoming), allow (outgoing), "
        "disabled (routed)\nNew profiles: skip\n\nTo                         Action      From\n"
        "--                         ------      ----\n"
        "22/tcp                     ALLOW IN    Anywhere                   # office\n"
        "Anywhere on enp1s0f0np0    ALLOW IN    Anywhere\n");
    return host;
}

inline Host NftHost() {
    Host host =
        RoceHost("nft", Distribution::kDebian13, "enp1s0f0np0", 2, 25000, "25 Gb/sec (1X EDR)");
    host.Set(
        "cmd/nft_list_ruleset",
        "table inet filter {\n\tset cluster {\n\t\ttype ipv4_addr\n\t\telements = { 10.0.0.1, "
        "10.0.0.2 }\n\t}\n\n\tchain input {\n\t\ttype filter hook input priority filter; policy "
        "drop;\n\t\tct state vmap { invalid : drop, established : accept, related : accept }\n"
        "\t\tiifname \"lo\" accept\n\t\tip6 nexthdr ipv6-icmp accept\n\t\ticmp type echo-request "
        "accept\n\t\tjump fabric\n\t\ttcp dport 22 accept\n\t}\n\n\tchain fabric {\n\t\tiifname != "
        "\"enp1s0f0np0\" return\n\t\tip saddr 10.0.0.0/24 counter packets 5 bytes 300 accept "
        "comment \"ranks\"\n\t}\n}\n");
    return host;
}

inline std::vector<Cluster> HealthyClusters() {
    std::vector<Cluster> all;
    all.push_back(
        {"oculink pair", {OculinkHost("a", 1, true).Files(), OculinkHost("b", 2, false).Files()}});
    all.push_back({"oculink pair, one manager standing by",
                   {OculinkHost("a", 1, true).Files(), OculinkHost("b", 2, true).Files()}});
    all.push_back(
        {"oculink pair by hand",
         {OculinkHost("a", 1, true).Files(false), OculinkHost("b", 2, false).Files(false)}});
    all.push_back({"strix halo with E810", {StrixHaloHost().Files()}});
    all.push_back(
        {"debian and nixos with RoCE",
         {RoceHost("debian", Distribution::kDebian13, "enp1s0f0np0", 1, 25000, "25 Gb/sec (1X EDR)")
              .Files(),
          RoceHost("nixos", Distribution::kNixOs, "enp1s0np0", 2, 25000, "25 Gb/sec (1X EDR)")
              .Files()}});
    all.push_back(
        {"rhel with RoCE",
         {RoceHost("rhel", Distribution::kRhel9, "ens1f0np0", 1, 25000, "25 Gb/sec (1X EDR)")
              .Files()}});
    all.push_back({"thunderbolt pair",
                   {ThunderboltHost("a", Distribution::kFedora43, 1).Files(),
                    ThunderboltHost("b", Distribution::kUbuntu2404, 2).Files()}});
    all.push_back({"desktop with Wi-Fi", {DesktopHost().Files()}});
    all.push_back({"ufw that opens an interface", {UfwHost().Files()}});
    all.push_back({"nft with a jump", {NftHost().Files()}});
    return all;
}

}  // namespace weft::doctor::test_hosts
