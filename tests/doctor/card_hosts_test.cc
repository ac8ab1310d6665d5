// Whole hosts with common cards and networks: healthy hosts with bridges, containers, VPNs, unused
// ports and virtual functions besides the fabric, and hosts with faulty cards.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "doctor/check.h"
#include "doctor/healthy_hosts.h"
#include "doctor/report.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

using test_hosts::Cluster;

using test_hosts::Host;
using Port = Host::Port;
using enum Severity;

std::vector<Finding> CardFindings(const std::vector<SnapshotFiles>& hosts) {
    std::vector<std::unique_ptr<HostView>> views;
    for (const SnapshotFiles& files : hosts) views.push_back(MakeSnapshotView(files, "host"));
    return RunChecks(views, {}).value();
}

std::string WarnedOf(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& f : findings) {
        if (f.severity < kWarn) continue;
        text += fmt::format("{} {} {}: {} | {}\n", f.host, SeverityName(f.severity), f.check,
                            f.read, f.fix);
    }
    return text;
}

// Adds the network devices beside the fabric on a machine that does more than run ranks: bridges of
// virtual machines and containers, VPNs, taps, Wi-Fi.
void AddBystanders(Host& host) {
    for (const char* name : {"docker0", "virbr0", "br-3f2a", "veth12ab34c", "vnet0", "tap100i0",
                             "vmbr1", "fwbr100i0", "wg0", "tailscale0", "lxcbr0", "cni0"}) {
        host.Add({.name = name, .megabits = 10, .mtu = 1500, .up = false});
        host.Remove(std::string("cmd/ethtool_-i_") + name);
    }
    host.Set("sys/class/net/docker0/operstate", "up\n");
    host.Set("link/sys/class/net/veth12ab34c/master", "../docker0");
    host.Set("link/sys/class/net/tap100i0/master", "../fwbr100i0");
}

// Adds the devices on a server's board: a card of 1 Gb/s and the management controller's display.
void AddManagement(Host& host) {
    host.Add({.address = "0000:04:00.0",
              .slot = "0000:00:1c.4",
              .type = 0x0200,
              .vendor = 0x8086,
              .device = 0x1521,
              .kind = "Ethernet controller",
              .name = "Intel Corporation I350 Gigabit Network Connection (rev 01)",
              .driver = "igb",
              .most = {5, 4},
              .slot_most = {8, 4},
              .now = {5, 4}});
    // The screen of its management.
    host.Add({.address = "0000:06:00.0",
              .slot = "0000:05:00.0",
              .type = 0x0300,
              .vendor = 0x1a03,
              .device = 0x2000,
              .kind = "VGA compatible controller",
              .name = "ASPEED Technology, Inc. ASPEED Graphics Family (rev 52)",
              .driver = "ast",
              .most = {5, 1},
              .slot_most = {5, 1},
              .now = {5, 1}});
    host.Set("sys/bus/pci/devices/0000:06:00.0/numa_node", "0\n");
}

// A server of two sockets without a GPU: ConnectX-6 Dx with 100 Gb/s, one of its ports cabled, and
// a port of 1 Gb/s for its management (lspci 3.9, Rocky 9).
Host ServerHost(const std::string& name, int last) {
    Host host(name, test_hosts::Distribution::kRhel9);
    host.Set("etc/os-release",
             "NAME=\"Rocky Linux\"\nID=\"rocky\"\nID_LIKE=\"rhel centos "
             "fedora\"\nVERSION_ID=\"9.7\"\n");
    for (int port = 0; port < 2; ++port) {
        host.Add({.address = fmt::format("0000:c1:00.{}", port),
                  .slot = "0000:c0:01.1",
                  .type = 0x0200,
                  .device = 0x101d,
                  .kind = "Ethernet controller",
                  .name = "Mellanox Technologies MT2892 Family [ConnectX-6 Dx]",
                  .driver = "mlx5_core",
                  .most = {16, 16},
                  .slot_most = {16, 16},
                  .now = {16, 16}});
        host.Set(fmt::format("sys/bus/pci/devices/0000:c1:00.{}/numa_node", port), "1\n");
    }
    AddManagement(host);
    host.Add({.name = "eno1",
              .pci = "0000:04:00.0",
              .driver = "igb",
              .megabits = 1000,
              .address = fmt::format("192.168.1.{}/24", last)});
    host.Add({.name = "ens1f0np0",
              .pci = "0000:c1:00.0",
              .driver = "mlx5_core",
              .megabits = 100000,
              .mtu = 9000,
              .address = fmt::format("10.0.0.{}/24", last)});
    host.Add({.name = "ens1f1np1", .pci = "0000:c1:00.1", .driver = "mlx5_core", .up = false});
    host.AddRdma("mlx5_0", "0000:c1:00.0",
                 {{.layer = "Ethernet",
                   .rate = "100 Gb/sec (4X EDR)",
                   .gid_ipv4 = fmt::format("0a00:{:04x}", last),
                   .interface = "ens1f0np0"}});
    host.AddRdma("mlx5_1", "0000:c1:00.1",
                 {{.state = "1: DOWN",
                   .physical = "3: Disabled",
                   .layer = "Ethernet",
                   .rate = "40 Gb/sec (4X QDR)",
                   .interface = "ens1f1np1"}});
    host.Set("cmd/ethtool_ens1f0np0",
             "Settings for ens1f0np0:\n\tSupported ports: [ Backplane ]\n"
             "\tSupported link modes:   1000baseKX/Full\n\t                        "
             "10000baseKR/Full\n\t                        100000baseCR4/Full\n"
             "\tSupported pause frame use: Symmetric\n\tSpeed: 100000Mb/s\n\tDuplex: Full\n"
             "\tAuto-negotiation: on\n\tLink detected: yes\n");
    host.Set("cmd/ethtool_eno1",
             "Settings for eno1:\n\tSupported link modes:   10baseT/Half 10baseT/Full\n"
             "\t                        1000baseT/Full\n\tSpeed: 1000Mb/s\n\tLink detected: yes\n");
    host.Set("sys/devices/system/node/node1/", "");
    return host;
}

// Proxmox VE with virtual functions of a ConnectX-4 Lx for its guests: they have no link.
Host ProxmoxHost() {
    Host host = test_hosts::RoceHost("pve", test_hosts::Distribution::kDebian13, "enp1s0f0np0", 5,
                                     25000, "25 Gb/sec (1X EDR)");
    host.Set("proc/sys/kernel/osrelease", "6.14.11-4-pve\n");
    for (int vf = 2; vf < 4; ++vf) {
        const std::string address = fmt::format("0000:01:00.{}", vf);
        host.Add({.address = address,
                  .slot = "0000:00:01.1",
                  .type = 0x0200,
                  .device = 0x1016,
                  .kind = "Ethernet controller",
                  .name = "Mellanox Technologies MT27710 Family [ConnectX-4 Lx Virtual Function]",
                  .driver = vf == 2 ? "vfio-pci" : "",
                  .now = {0, 0}});
        host.Set("link/sys/bus/pci/devices/" + address + "/physfn", "../0000:01:00.0");
        host.Set("sys/bus/pci/devices/" + address + "/current_link_speed", "Unknown\n");
        host.Set("sys/bus/pci/devices/" + address + "/current_link_width", "0\n");
    }
    AddBystanders(host);
    return host;
}

// InfiniBand with virtual functions that nobody has set up yet.
Host VirtualFunctionsHost() {
    Host host = ServerHost("vf", 7);
    host.AddRdma("mlx5_0", "0000:c1:00.0", {{.rate = "200 Gb/sec (4X HDR)"}});
    host.AddRdma("mlx5_1", "0000:c1:00.1",
                 {{.state = "1: DOWN", .physical = "3: Disabled", .rate = "10 Gb/sec (4X SDR)"}});
    host.AddRdma("mlx5_2", "0000:c1:00.2",
                 {{.state = "1: DOWN",
                   .physical = "5: LinkUp",
                   .rate = "10 Gb/sec (4X SDR)",
                   .lid = 0xffff,
                   .sm_lid = 0}});
    host.Set("sys/class/infiniband/mlx5_2/node_guid", "0000:0000:0000:0000\n");
    host.Add({.name = "ib0",
              .pci = "0000:c1:00.0",
              .driver = "mlx5_core",
              .mtu = 2044,
              .type = 32,
              .address = "10.10.0.7/24",
              .mode = "datagram"});
    host.Set("cmd/firewall-cmd_--get-active-zones",
             "public (default)\n  interfaces: eno1\ntrusted\n  interfaces: ib0 ens1f0np0\n");
    for (const char* device : {"mlx5_0", "mlx5_1", "mlx5_2"}) {
        host.Set(fmt::format("sys/class/infiniband/{}/hca_type", device), "MT4125\n");
    }
    return host;
}

// DGX Spark: two PCIe functions for each of the two ports of a ConnectX-7, four lanes each; one
// cable. Its driver says at each boot that the slot's power is insufficient.
Host SparkHost(const std::string& name, int last) {
    Host host(name, test_hosts::Distribution::kUbuntu2404);
    host.Set("etc/os-release", "ID=ubuntu\nID_LIKE=debian\nVERSION_ID=\"24.04\"\n");
    host.Set("proc/sys/kernel/osrelease", "6.11.0-1016-nvidia\n");
    int number = 0;
    for (const char* domain : {"0000", "0002"}) {
        for (int port = 0; port < 2; ++port) {
            const std::string address = fmt::format("{}:01:00.{}", domain, port);
            host.Add({.address = address,
                      .slot = fmt::format("{}:00:00.0", domain),
                      .type = 0x0200,
                      .device = 0x1021,
                      .kind = "Ethernet controller",
                      .name = "Mellanox Technologies MT2910 Family [ConnectX-7]",
                      .driver = "mlx5_core",
                      .most = {32, 16},
                      .slot_most = {32, 4},
                      .now = {32, 4}});
            const std::string net =
                fmt::format("en{}p1s0f{}np{}", number < 2 ? "" : "P2", port, port);
            const bool up = port == 1;
            host.Add({.name = net,
                      .pci = address,
                      .driver = "mlx5_core",
                      .megabits = 200000,
                      .mtu = 9000,
                      .address = up ? fmt::format("192.168.{}.{}/24", 100 + number, last) : "",
                      .up = up});
            host.AddRdma(fmt::format("roce{}p1s0f{}", number < 2 ? "" : "P2", port), address,
                         {{.state = up ? "4: ACTIVE" : "1: DOWN",
                           .physical = up ? "5: LinkUp" : "3: Disabled",
                           .layer = "Ethernet",
                           .rate = up ? "200 Gb/sec (4X HDR)" : "40 Gb/sec (4X QDR)",
                           .gid_ipv4 = fmt::format("c0a8:{:02x}{:02x}", 100 + number, last),
                           .interface = net}});
            ++number;
        }
    }
    host.Set("cmd/dmesg",
             "[   12.1] mlx5_core 0000:01:00.0: mlx5_pcie_event:301:(pid 512): Detected "
             "insufficient power on the PCIe slot (27W).\n");
    return host;
}

// Thor 2 with PFC for RoCE, set by iproute2's dcb.
Host ThorHost() {
    Host host(std::string("thor"), test_hosts::Distribution::kDebian13);
    host.Add({.address = "0000:41:00.0",
              .slot = "0000:40:01.1",
              .type = 0x0200,
              .vendor = 0x14e4,
              .device = 0x1760,
              .kind = "Ethernet controller",
              .name = "Broadcom Inc. and subsidiaries BCM57608 10Gb/25Gb/50Gb/100Gb/200Gb/400Gb "
                      "Ethernet (rev 11)",
              .driver = "bnxt_en",
              .most = {32, 16},
              .slot_most = {32, 16},
              .now = {32, 16}});
    host.Add({.name = "enp65s0np0",
              .pci = "0000:41:00.0",
              .driver = "bnxt_en",
              .megabits = 400000,
              .mtu = 9000,
              .address = "10.40.0.1/24"});
    host.AddRdma("bnxt_re0", "0000:41:00.0",
                 {{.layer = "Ethernet",
                   .rate = "400 Gb/sec (4X NDR)",
                   .gid_ipv4 = "0a28:0001",
                   .interface = "enp65s0np0"}});
    host.Set("cmd/ethtool_-a_enp65s0np0",
             "Pause parameters for enp65s0np0:\nAutonegotiate:\toff\nRX:\t\toff\nTX:\t\toff\n");
    host.Set("cmd/dcb_pfc_show_dev_enp65s0np0",
             "pfc-cap 8 macsec-bypass off delay 0\npg-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off "
             "7:off\nprio-pfc 0:off 1:off 2:off 3:on 4:off 5:off 6:off 7:off\n");
    host.Set("cmd/dcb_app_show_dev_enp65s0np0", "dscp-prio 26:3 48:7\n");
    return host;
}

// A Raspberry Pi 5 as a third host: no PCI card, Ethernet on the chip.
Host PiHost() {
    Host host("pi", test_hosts::Distribution::kDebian13);
    host.Set("proc/sys/kernel/osrelease", "6.12.47+rpt-rpi-2712\n");
    host.Add({.name = "eth0",
              .pci = "1f00100000.ethernet",
              .driver = "macb",
              .megabits = 1000,
              .address = "192.168.1.30/24"});
    host.Add({.name = "wlan0", .pci = "mmc1:0001:1", .driver = "brcmfmac", .up = false});
    host.Set("sys/class/net/wlan0/wireless/", "");
    return host;
}

// A laptop with a Thunderbolt dock, whose network card it is; the dock is no host.
Host DockHost() {
    Host host = test_hosts::DesktopHost();
    const std::string dock = "sys/bus/thunderbolt/devices/0-1/";
    host.Set(dock + "authorized", "1\n");
    host.Set(dock + "device_name", "TS4\n");
    host.Set(dock + "rx_speed", "10.0 Gb/s\n");
    host.Set(dock + "rx_lanes", "2\n");
    AddBystanders(host);
    return host;
}

// Two ports of a card as an active-backup bond: one link stands by.
Host BondHost() {
    Host host = ServerHost("bond", 9);
    host.Add({.name = "bond0", .megabits = 100000, .mtu = 9000, .address = "10.0.7.9/24"});
    host.Set("sys/class/net/bond0/bonding/mode", "active-backup 1\n");
    host.Set("sys/class/net/bond0/bonding/slaves", "ens1f0np0 ens1f1np1\n");
    host.Set("link/sys/class/net/ens1f0np0/master", "../bond0");
    host.Set("link/sys/class/net/ens1f1np1/master", "../bond0");
    return host;
}

Host SlingshotHost() {
    Host host("nid001", test_hosts::Distribution::kRhel9);
    host.Add({.address = "0000:21:00.0",
              .slot = "0000:20:01.1",
              .type = 0x0200,
              .vendor = 0x17db,
              .device = 0x0501,
              .kind = "Ethernet controller",
              .name = "Cray Inc Device 0501 (rev 02)",
              .driver = "cxi_ss1",
              .most = {16, 16},
              .slot_most = {16, 16},
              .now = {16, 16}});
    host.Add({.name = "hsn0",
              .pci = "0000:21:00.0",
              .driver = "cxi_ss1",
              .megabits = 200000,
              .mtu = 9000,
              .address = "10.100.0.1/16"});
    host.Set("sys/class/cxi/cxi0/", "");
    host.Set("cmd/firewall-cmd_--get-active-zones", "trusted\n  interfaces: hsn0\n");
    return host;
}

std::vector<Cluster> HealthyCards() {
    Host oculink_by_eth = test_hosts::OculinkHost("a", 1, true);
    oculink_by_eth.Set("sys/class/infiniband/mlx4_0/ports/2/link_layer", "Ethernet\n");
    Host bystanders = test_hosts::UfwHost();
    AddBystanders(bystanders);
    return {
        {"server", {ServerHost("a", 1).Files()}},
        {"two servers", {ServerHost("a", 1).Files(), ServerHost("b", 2).Files()}},
        {"server by hand", {ServerHost("a", 1).Files(false)}},
        {"proxmox with virtual functions", {ProxmoxHost().Files()}},
        {"virtual functions not set up", {VirtualFunctionsHost().Files()}},
        {"DGX Sparks", {SparkHost("s1", 1).Files(), SparkHost("s2", 2).Files()}},
        {"Thor 2 with PFC", {ThorHost().Files()}},
        {"Raspberry Pi", {PiHost().Files()}},
        {"dock", {DockHost().Files()}},
        {"bond", {BondHost().Files()}},
        {"Slingshot", {SlingshotHost().Files()}},
        {"an uncabled port that senses Ethernet", {oculink_by_eth.Files()}},
        {"docker, libvirt, VPNs", {bystanders.Files()}},
    };
}

TEST(DoctorCardHosts, HealthyOnesAreNotWarned) {
    for (const Cluster& cluster : HealthyCards()) {
        EXPECT_EQ(WarnedOf(CardFindings(cluster.hosts)), "") << cluster.name;
    }
}

// Less evidence is not a fault.
TEST(DoctorCardHosts, HealthyOnesAreNotWarnedWithoutAnyOneFile) {
    for (const Cluster& cluster : HealthyCards()) {
        for (const auto& [path, text] : cluster.hosts.front()) {
            std::vector<SnapshotFiles> less = {cluster.hosts.front()};
            less.front().erase(path);
            EXPECT_EQ(WarnedOf(CardFindings(less)), "") << cluster.name << " without " << path;
        }
    }
}

struct CardFault {
    std::string name;
    std::vector<SnapshotFiles> hosts;
    std::string check;
    Severity severity;
    std::string words, fix;
};

Host Infiniband(const std::string& rate, const std::string& kind) {
    Host host = test_hosts::OculinkHost("a", 1, true);
    host.AddRdma("mlx4_0", "0000:03:00.0", {{.rate = rate}});
    host.Set("sys/class/infiniband/mlx4_0/hca_type", kind + "\n");
    return host;
}

// One port InfiniBand, the other Ethernet with an address.
Host MixedPortsHost() {
    Host vpi = test_hosts::OculinkHost("a", 1, true);
    vpi.Set("sys/class/infiniband/mlx4_0/ports/2/link_layer", "Ethernet\n");
    vpi.Set("sys/class/infiniband/mlx4_0/ports/2/gid_attrs/ndevs/0", "enp3s0d1\n");
    vpi.Add({.name = "enp3s0d1",
             .pci = "0000:03:00.0",
             .driver = "mlx4_en",
             .address = "10.20.0.1/24",
             .up = false});
    return vpi;
}

// RDMA files of one active port.
SnapshotFiles PortFiles(const std::string& host, const std::string& device, const std::string& kind,
                        bool infiniband) {
    const std::string folder = "sys/class/infiniband/" + device;
    return {{"probe/hostname", host + "\n"},
            {folder + "/hca_type", kind + "\n"},
            {folder + "/node_type", "1: CA\n"},
            {folder + "/ports/1/state", "4: ACTIVE\n"},
            {folder + "/ports/1/phys_state", "5: LinkUp\n"},
            {folder + "/ports/1/link_layer", infiniband ? "InfiniBand\n" : "Ethernet\n"},
            {folder + "/ports/1/rate", "100 Gb/sec (4X EDR)\n"}};
}

// A guest with a virtual function that has no GUID.
Host GuestHost() {
    Host guest("guest", test_hosts::Distribution::kRhel9);
    guest.AddRdma("mlx5_0", "0000:00:05.0",
                  {{.state = "1: DOWN",
                    .physical = "5: LinkUp",
                    .rate = "10 Gb/sec (4X SDR)",
                    .lid = 0xffff,
                    .sm_lid = 0}});
    guest.Set("sys/class/infiniband/mlx5_0/node_guid", "0000:0000:0000:0000\n");
    return guest;
}

// IPoIB in a partition that the port has not.
Host PartitionHost() {
    Host partition = test_hosts::OculinkHost("a", 1, true);
    partition.Add({.name = "ibp3s0.8001",
                   .pci = "0000:03:00.0",
                   .driver = "ib_ipoib",
                   .mtu = 2044,
                   .type = 32,
                   .address = "10.11.0.1/24",
                   .mode = "datagram"});
    partition.Set("sys/class/net/ibp3s0.8001/pkey", "0x8001\n");
    partition.Set("sys/class/infiniband/mlx4_0/ports/1/pkeys/0", "0xffff\n");
    partition.Set("sys/class/infiniband/mlx4_0/ports/1/pkeys/1", "0x0000\n");
    return partition;
}

// Hosts whose ports have different protocols.
std::vector<CardFault> ProtocolFaults() {
    return {
        {"InfiniBand against a card of Ethernet alone",
         {PortFiles("a", "mlx5_0", "MT4123", true), PortFiles("b", "mlx5_0", "MT4117", false)},
         "across-cards",
         kWarn,
         "InfiniBand on a (mlx5_0 port 1); RoCE on b",
         "LINK_TYPE_P1=2"},
        {"InfiniBand against another vendor's card",
         {PortFiles("a", "bnxt_re0", "", false), PortFiles("b", "mlx5_0", "MT4129", true)},
         "across-cards",
         kWarn,
         "InfiniBand on b",
         "connect it to the Ethernet switch"},
        {"most hosts have InfiniBand",
         {PortFiles("a", "mlx5_0", "MT4123", true), PortFiles("b", "mlx5_0", "MT4123", true),
          PortFiles("c", "mlx5_0", "MT4123", false)},
         "across-cards",
         kWarn,
         "RoCE on c",
         "on c: "},
        {"InfiniBand alone against Ethernet alone",
         {PortFiles("a", "mlx5_0", "MT4113", true), PortFiles("b", "mlx5_0", "MT4127", false)},
         "across-cards",
         kWarn,
         "InfiniBand on a",
         "use cards of one kind"},
    };
}

std::vector<CardFault> RdmaFaults() {
    Host eth = test_hosts::OculinkHost("b", 2, false);
    eth.AddRdma("mlx4_0", "0000:03:00.0",
                {{.state = "1: DOWN", .physical = "3: Disabled", .layer = "Ethernet"},
                 {.state = "1: DOWN", .physical = "3: Disabled", .layer = "Ethernet"}});
    Host iwarp = test_hosts::StrixHaloHost();
    iwarp.Set("sys/class/infiniband/rocep193s0f0/node_type", "4: RNIC\n");
    Host no_irdma = test_hosts::StrixHaloHost();
    for (const auto& [path, text] : test_hosts::StrixHaloHost().Files()) {
        if (Contains(path, "infiniband")) no_irdma.Remove(path);
    }
    return {
        {"VPI port as Ethernet",
         {MixedPortsHost().Files()},
         "rdma-port",
         kWarn,
         "the other port of the card speaks InfiniBand",
         "LINK_TYPE_P2=1"},
        {"mixed protocols",
         {test_hosts::OculinkHost("a", 1, true).Files(), eth.Files()},
         "across-cards",
         kWarn,
         "InfiniBand on a (mlx4_0 port 1); RoCE on b",
         "on b: echo ib | sudo tee"},
        {"FDR at DDR",
         {Infiniband("20 Gb/sec (4X DDR)", "MT4099").Files()},
         "rdma-port",
         kWarn,
         "20 Gb/sec (4X DDR)",
         "cable"},
        {"EDR at QDR",
         {Infiniband("40 Gb/sec (4X QDR)", "MT4115").Files()},
         "rdma-port",
         kOk,
         "40 Gb/sec",
         ""},
        {"EDR at DDR",
         {Infiniband("20 Gb/sec (4X DDR)", "MT4115").Files()},
         "rdma-port",
         kWarn,
         "20 Gb/sec (4X DDR)",
         "cable"},
        {"iWARP",
         {iwarp.Files()},
         "rdma-device",
         kWarn,
         "iWARP",
         "devlink dev param set pci/0000:c1:00.0 name enable_roce value true"},
        {"irdma absent",
         {no_irdma.Files()},
         "rdma-device",
         kWarn,
         "driver ice, but no RDMA device",
         "modprobe -a irdma"},
        {"a guest's function without a GUID",
         {GuestHost().Files()},
         "rdma-port",
         kFail,
         "no GUID",
         "node_guid"},
        {"partition absent",
         {PartitionHost().Files()},
         "ib-ipoib",
         kWarn,
         "partition 0x8001; the port has 0xffff",
         "partitions.conf"},
    };
}

// RDMA in software over the port of 1 Gb/s.
Host RxeHost() {
    Host rxe = ServerHost("a", 1);
    rxe.Set("sys/class/infiniband/rxe0/ports/1/state", "4: ACTIVE\n");
    rxe.Set("sys/class/infiniband/rxe0/ports/1/phys_state", "5: LinkUp\n");
    rxe.Set("sys/class/infiniband/rxe0/ports/1/link_layer", "Ethernet\n");
    rxe.Set("sys/class/infiniband/rxe0/parent", "eno1\n");
    return rxe;
}

// A GPU on the other processor's memory node.
Host FarHost() {
    Host far = ServerHost("a", 1);
    far.Add({.address = "0000:17:00.0",
             .slot = "0000:16:01.0",
             .type = 0x0302,
             .vendor = 0x10de,
             .device = 0x2684,
             .kind = "3D controller",
             .name = "NVIDIA Corporation AD102GL [RTX 6000 Ada Generation] (rev a1)",
             .driver = "nvidia",
             .most = {16, 16},
             .slot_most = {16, 16},
             .now = {2.5, 16}});
    far.Set("sys/bus/pci/devices/0000:17:00.0/numa_node", "0\n");
    far.Set("usr/share/vulkan/icd.d/nvidia_icd.json/", "");
    return far;
}

std::vector<CardFault> EthernetFaults() {
    Host lanes = test_hosts::StrixHaloHost();
    lanes.Set("sys/class/net/enp193s0f0/speed", "25000\n");
    lanes.Set("sys/class/infiniband/rocep193s0f0/ports/1/rate", "25 Gb/sec (1X EDR)\n");
    Host modes = ServerHost("a", 1);
    modes.Set("sys/class/net/ens1f0np0/speed", "25000\n");
    Host bridged = test_hosts::ThunderboltHost("a", test_hosts::Distribution::kFedora43, 1);
    bridged.Set("link/sys/class/net/thunderbolt0/master", "../bridge0");
    bridged.Set("cmd/ip_-j_addr",
                R"([{"ifname":"thunderbolt0","mtu":1500,"operstate":"UP","master":"bridge0",)"
                R"("addr_info":[]}])");
    Host slow = test_hosts::ThunderboltHost("a", test_hosts::Distribution::kFedora43, 1);
    slow.Set("sys/bus/thunderbolt/devices/0-1/rx_speed", "10.0 Gb/s\n");
    Host rr = BondHost();
    rr.Set("sys/class/net/bond0/bonding/mode", "balance-rr 0\n");
    Host priority = ThorHost();
    priority.Set("cmd/dcb_app_show_dev_enp65s0np0", "dscp-prio 26:5 48:7\n");
    return {
        {"25 on an E810 for 100",
         {lanes.Files()},
         "nic-speed",
         kWarn,
         "enp193s0f0: 25 Gb/s of 100 that its port can do",
         "QSFP28"},
        {"25 on a ConnectX-6 Dx for 100",
         {modes.Files()},
         "nic-speed",
         kWarn,
         "ens1f0np0: 25 Gb/s of 100",
         "QSFP28"},
        {"a bridge over Thunderbolt",
         {bridged.Files()},
         "thunderbolt",
         kWarn,
         "a port of the bridge bridge0",
         "ip link set dev thunderbolt0 nomaster"},
        {"Thunderbolt at 10 Gb/s a lane",
         {slow.Files()},
         "thunderbolt",
         kWarn,
         "10 Gb/s x2",
         "40 Gb/s"},
        {"balance-rr under RoCE",
         {rr.Files()},
         "bond-mode",
         kWarn,
         "bond0: mode balance-rr",
         "mode=active-backup"},
        {"PFC for another priority",
         {priority.Files()},
         "roce-flow-control",
         kWarn,
         "RoCE (DSCP 26) goes by priority 5",
         "dscp-prio 26:3"},
        {"rxe over the management's port",
         {RxeHost().Files()},
         "rdma-device",
         kWarn,
         "rxe0 port 1: over eno1 (1 Gb/s), while ens1f0np0 has 100 Gb/s",
         "rdma link delete rxe0"},
        {"GPU and card on two nodes",
         {FarHost().Files()},
         "nic-gpu",
         kWarn,
         "(node 0)",
         "GPU's processor"},
    };
}

// The output of programs about the same faults.
const std::string kLspci =
    "01:00.0 Network controller [0280]: Mellanox Technologies MT27500 Family [ConnectX-3] "
    "[15b3:1003]\n\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n"
    "\t\tLnkCap:\tPort #8, Speed 8GT/s, Width x8, ASPM L0s, Exit Latency L0s unlimited\n"
    "\t\tLnkSta:\tSpeed 2.5GT/s (downgraded), Width x1 (downgraded)\n"
    "\tKernel driver in use: mlx4_core\n";
const std::string kDevinfo =
    "hca_id:\tmlx5_0\n\ttransport:\t\t\tInfiniBand (0)\n\tfw_ver:\t\t\t\t16.35.2000\n"
    "\tnode_guid:\t\t\t0c42:a103:0079:1a2e\n\tvendor_part_id:\t\t\t4119\n"
    "\tphys_port_cnt:\t\t\t1\n\t\tport:\t1\n\t\t\tstate:\t\t\tPORT_INIT (2)\n"
    "\t\t\tmax_mtu:\t\t4096 (5)\n\t\t\tsm_lid:\t\t\t0\n\t\t\tport_lid:\t\t65535\n"
    "\t\t\tlink_layer:\t\tInfiniBand\n";
const std::string kIbstat =
    "CA 'mlx4_0'\n\tCA type: MT4099\n\tNumber of ports: 1\n\tFirmware version: 2.42.5000\n"
    "\tNode GUID: 0x0002c90300a1b2c0\n\tPort 1:\n\t\tState: Active\n\t\tPhysical state: "
    "LinkUp\n"
    "\t\tRate: 20\n\t\tBase lid: 1\n\t\tSM lid: 1\n\t\tLink layer: InfiniBand\n";
const std::string kIbstatus =
    "Infiniband device 'mlx4_0' port 1 status:\n\tdefault gid:\t fe80::1\n\tbase lid:\t 0x0\n"
    "\tsm lid:\t\t 0x0\n\tstate:\t\t 2: INIT\n\tphys state:\t 5: LinkUp\n"
    "\trate:\t\t 56 Gb/sec (4X FDR)\n\tlink_layer:\t InfiniBand\n";
const std::string kLink = "link mlx5_0/1 state DOWN physical_state DISABLED netdev enp1s0f0np0 \n";
const std::string kIp =
    "2: ib0: <BROADCAST,MULTICAST,UP,LOWER_UP> mtu 2044 qdisc mq state UP group default qlen "
    "256\n    link/infiniband 80:00:02:08:fe:80:00:00 brd 00:ff:ff:ff\n"
    "    inet6 fe80::202:c903:a1:b2c1/64 scope link \n";
const std::string kUname = "5.14.0-611.5.1.el9_7.x86_64\n";

// One program or form of a fault, without sysfs.
std::vector<CardFault> FormsOfFaults() {
    return {
        {"lspci -nnvv",
         {{{"cmd/lspci_-nnvv", kLspci}}},
         "pcie-link",
         kFail,
         "2.5 GT/s x1",
         "reseat"},
        {"sudo lspci -vvv",
         {{{"cmd/sudo_lspci_-vvv", kLspci}}},
         "pcie-link",
         kFail,
         "2.5 GT/s x1",
         "reseat"},
        {"ibv_devinfo",
         {{{"cmd/ibv_devinfo", kDevinfo}, {"cmd/uname_-r", kUname}}},
         "rdma-port",
         kFail,
         "mlx5_0 port 1: state INIT",
         "sudo dnf install opensm"},
        {"ibstat at DDR", {{{"cmd/ibstat", kIbstat}}}, "rdma-port", kWarn, "20 Gb/sec", "cable"},
        {"ibstatus", {{{"cmd/ibstatus", kIbstatus}}}, "rdma-port", kFail, "state INIT", "opensm"},
        {"rdma link",
         {{{"cmd/rdma_link", kLink}}},
         "rdma-port",
         kFail,
         "state DOWN",
         "sudo ip link set dev enp1s0f0np0 up"},
        {"ip addr",
         {{{"cmd/ip_addr", kIp}, {"cmd/ibstat", kIbstat}}},
         "ib-ipoib",
         kWarn,
         "no IPv4 address",
         "sudo ip addr add"},
    };
}

TEST(DoctorCardHosts, FaultyOnesAreNamed) {
    for (const auto& list : {RdmaFaults(), ProtocolFaults(), EthernetFaults(), FormsOfFaults()}) {
        for (const CardFault& fault : list) {
            const auto findings = CardFindings(fault.hosts);
            const bool found = std::ranges::any_of(findings, [&](const Finding& f) {
                return f.check == fault.check && f.severity == fault.severity &&
                       Contains(f.read, fault.words) && Contains(f.fix, fault.fix);
            });
            EXPECT_TRUE(found) << fault.name << ": " << fault.check << " " << fault.words << "\n"
                               << WarnedOf(findings);
            for (const Finding& f : findings) EXPECT_FALSE(Contains(f.fix, "{dev")) << f.fix;
        }
    }
}

// If a user runs lspci, it prints nothing about links: a finding notes this and is not a fault.
TEST(DoctorCardHosts, UnreadableLspciFieldsAreNoted) {
    const SnapshotFiles files = {
        {"cmd/lspci_-vv",
         "01:00.0 Network controller: Mellanox Technologies MT27500 Family [ConnectX-3]\n"
         "\tSubsystem: Mellanox Technologies Device 0055\n\tCapabilities: <access denied>\n"
         "\tKernel driver in use: mlx4_core\n\tKernel modules: mlx4_core\n"}};
    const auto findings = CardFindings({files});
    EXPECT_EQ(WarnedOf(findings), "");
    EXPECT_TRUE(std::ranges::any_of(findings, [](const Finding& f) {
        return f.check == "pcie-link" && f.severity == kNote && f.fix == "sudo lspci -vv";
    }));
}

// The last lines of a card name its driver and its modules: they may be missing at the end of a
// copied output, and nowhere else.
TEST(DoctorCardHosts, TheLastCardOfLspciMayBeCut) {
    const std::string first =
        "01:00.0 Network controller [0280]: Mellanox Technologies MT27800 [ConnectX-5] "
        "[15b3:1017]\n\tSubsystem: Mellanox Technologies Device 0055\n";
    const std::string second =
        "02:00.0 Network controller [0280]: Mellanox Technologies MT27800 [ConnectX-5] "
        "[15b3:1017]\n\tSubsystem: Mellanox Technologies Device 0055\n";
    const std::string driver = "\tKernel driver in use: mlx5_core\n";
    const std::string modules = "\tKernel modules: mlx5_core\n";
    const auto warned = [](const std::string& text) {
        return WarnedOf(CardFindings({SnapshotFiles{{"cmd/lspci_-nnvv", text}}}));
    };
    EXPECT_EQ(warned(first + driver + modules + second), "");
    EXPECT_TRUE(Contains(warned(first + driver + modules + second + modules), "02:00.0"));
    EXPECT_TRUE(Contains(warned(first + second + driver + modules), "01:00.0"));
}

// A card of the log that the whole list of devices no longer holds.
TEST(DoctorCardHosts, CardsThatWentAway) {
    Host host = ServerHost("a", 1);
    host.Set("cmd/dmesg",
             "[    3.1] mlx5_core 0000:81:00.0: firmware version: 16.35.4030\n"
             "[    3.2] mlx5_core 0000:81:00.0: 126.016 Gb/s available PCIe bandwidth (8.0 GT/s "
             "PCIe x16 link)\n");
    const std::string warned = WarnedOf(CardFindings({host.Files()}));
    EXPECT_TRUE(Contains(warned, "mlx5_core 0000:81:00.0 is in the kernel's log, but no longer"))
        << warned;
}

}  // namespace
}  // namespace weft::doctor
