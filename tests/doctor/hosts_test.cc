// Whole hosts: a healthy host gets no warning, whatever is missing or cut in its snapshot; a faulty
// host is named.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>

#include "base/shell_word.h"
#include "doctor/check.h"
#include "doctor/cost_model.h"
#include "doctor/healthy_hosts.h"
#include "doctor/network.h"
#include "doctor/rdma.h"
#include "doctor/remediation.h"
#include "doctor/report.h"
#include "doctor/text.h"
#include "support/nightly.h"

namespace weft::doctor {
namespace {

using test_hosts::Cluster;
using test_hosts::Distribution;
using test_hosts::HealthyClusters;
using test_hosts::Host;

std::vector<Finding> Look(const std::vector<SnapshotFiles>& hosts) {
    std::vector<std::unique_ptr<HostView>> views;
    for (const SnapshotFiles& files : hosts) views.push_back(MakeSnapshotView(files, "host"));
    return RunChecks(views, {}).value();
}

std::string Warnings(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& f : findings) {
        if (f.severity < Severity::kWarn) continue;
        text += fmt::format("{} {} {}: {} | {}\n", f.host, SeverityName(f.severity), f.check,
                            f.read, f.fix);
    }
    return text;
}

TEST(DoctorHosts, HealthyOnesAreNotWarned) {
    for (const Cluster& cluster : HealthyClusters()) {
        EXPECT_EQ(Warnings(Look(cluster.hosts)), "") << cluster.name;
    }
}

// Less evidence is not a fault.
TEST(DoctorHosts, HealthyOnesAreNotWarnedWithoutAnyOneFile) {
    for (const Cluster& cluster : HealthyClusters()) {
        for (size_t host = 0; host < cluster.hosts.size(); ++host) {
            for (const auto& [path, text] : cluster.hosts[host]) {
                std::vector<SnapshotFiles> less = cluster.hosts;
                less[host].erase(path);
                EXPECT_EQ(Warnings(Look(less)), "") << cluster.name << " without " << path;
            }
        }
    }
}

// Output of several lines that is cut in the middle of a line.
TEST(DoctorHosts, HealthyOnesAreNotWarnedWithAnyOneFileCut) {
    size_t turn = 0;
    for (const Cluster& cluster : HealthyClusters()) {
        for (size_t host = 0; host < cluster.hosts.size(); ++host) {
            for (const auto& [path, text] : cluster.hosts[host]) {
                // Rules that were not reached are a firewall that is closed.
                if (std::ranges::count(text, '\n') < 2 || path == "cmd/ufw_status_verbose")
                    continue;
                ++turn;  // daily some of the places where each is cut
                for (size_t share = 1; share < 12; ++share) {
                    if (!weft::test::InTurn(turn + share, 4)) continue;
                    const size_t length = text.size() * share / 12;
                    if (text.substr(0, length).find('\n') == std::string::npos) continue;
                    std::vector<SnapshotFiles> less = cluster.hosts;
                    less[host][path].resize(length);
                    EXPECT_EQ(Warnings(Look(less)), "")
                        << cluster.name << ": " << path << " cut to " << length;
                }
            }
        }
    }
}

TEST(DoctorHosts, NarrowSlotsAreNotedWithTheirCost) {
    auto findings = Look({test_hosts::OculinkHost("a", 1, true).Files()});
    ASSERT_TRUE(StateCosts(findings).ok());
    const auto note = std::ranges::find_if(findings, [](const Finding& f) {
        return f.check == "pcie-link" && f.severity == Severity::kNote;
    });
    ASSERT_NE(note, findings.end());
    EXPECT_NE(note->read.find("all that its slot has"), std::string::npos) << note->read;
    EXPECT_NE(note->why.find("3.3 GB/s"), std::string::npos) << note->why;
    ASSERT_TRUE(note->cost.has_value());
    EXPECT_NE(note->cost->Text().find("token"), std::string::npos) << note->cost->Text();
}

struct Fault {
    std::string name;
    std::vector<SnapshotFiles> hosts;
    std::string check;
    Severity least;
    std::string words, fix;
};

using Change = std::function<void(Host&)>;

// A ConnectX-3 of class 0280 with 8 lanes at 8 GT/s, changed.
SnapshotFiles ConnectX3(
    test_hosts::Card card, const Change& change = [](Host&) {}) {
    Host host("x3", Distribution::kUbuntu2404);
    card.address = "0000:01:00.0";
    card.slot = "0000:00:01.1";
    host.Add(card);
    if (!card.driver.empty()) {
        host.Add({.name = "ibp1s0",
                  .pci = "0000:01:00.0",
                  .driver = "ib_ipoib",
                  .mtu = 2044,
                  .type = 32,
                  .address = "10.10.0.1/24",
                  .mode = "datagram"});
        host.AddRdma("mlx4_0", "0000:01:00.0", {{}});
    }
    change(host);
    return host.Files();
}

SnapshotFiles Closed(Host host, const std::string& path, const std::string& text) {
    host.Set(path, text);
    return host.Files();
}

std::vector<Fault> CardFaults() {
    const auto only_lspci = [](SnapshotFiles files) {
        std::erase_if(files, [](const auto& file) {
            return Contains(file.first, "sys/") || file.first == "probe/complete";
        });
        return files;
    };
    return {
        {"x1 in a slot of 8",
         {ConnectX3({.now = {8, 1}})},
         "pcie-link",
         Severity::kFail,
         "8 GT/s x1",
         "reseat"},
        {"x4 in a slot of 8",
         {ConnectX3({.now = {8, 4}})},
         "pcie-link",
         Severity::kWarn,
         "8 GT/s x4",
         "reseat"},
        {"a slot of one lane",
         {ConnectX3({.slot_most = {8, 1}, .now = {8, 1}})},
         "pcie-link",
         Severity::kWarn,
         "8 GT/s x1",
         "wider slot"},
        {"2.5 GT/s",
         {ConnectX3({.now = {2.5, 8}})},
         "pcie-link",
         Severity::kFail,
         "2.5 GT/s x8",
         "speed in the BIOS"},
        {"x1 by lspci alone",
         {only_lspci(ConnectX3({.now = {8, 1}}))},
         "pcie-link",
         Severity::kFail,
         "8 GT/s x1",
         "reseat"},
        {"AER",
         {ConnectX3({.now = {8, 8}, .aer = 5220})},
         "pcie-errors",
         Severity::kWarn,
         "5220 corrected errors",
         "reseat"},
    };
}

std::vector<Fault> BoardFaults() {
    return {
        {"ASPM",
         {ConnectX3({.now = {8, 8}, .aspm = "L0s L1 Enabled"})},
         "pcie-power",
         Severity::kWarn,
         "ASPM L0s L1",
         "pcie_aspm"},
        {"no driver",
         {ConnectX3({.driver = "", .now = {8, 8}})},
         "nic-driver",
         Severity::kWarn,
         "no driver",
         "modprobe mlx4_core"},
        {"behind a chipset",
         {ConnectX3({.now = {8, 8}},
                    [](Host& host) {
                        host.Set("link/sys/bus/pci/devices/0000:01:00.0",
                                 "../../../devices/pci0000:00/0000:00:02.1/"
                                 "0000:00:01.1/0000:01:00.0");
                        const std::string up = "sys/bus/pci/devices/0000:00:02.1/";
                        host.Set(up + "class", "0x060400\n");
                        host.Set(up + "max_link_speed", "8.0 GT/s PCIe\n");
                        host.Set(up + "max_link_width", "4\n");
                        host.Set(up + "current_link_speed", "8.0 GT/s PCIe\n");
                        host.Set(up + "current_link_width", "4\n");
                    })},
         "pcie-upstream",
         Severity::kWarn,
         "0000:00:02.1 above it has 8 GT/s x4",
         "wired to"},
        {"no subnet manager",
         {ConnectX3({.now = {8, 8}},
                    [](Host& host) {
                        host.AddRdma("mlx4_0", "0000:01:00.0",
                                     {{.state = "2: INIT", .lid = 0, .sm_lid = 0}});
                    })},
         "rdma-port",
         Severity::kFail,
         "state INIT",
         "opensm"},
    };
}

std::vector<Fault> LogFaults() {
    Host storm = test_hosts::DesktopHost(), hot = test_hosts::UfwHost();
    storm.Remove("sys/bus/pci/devices/0000:02:00.0/aer_dev_correctable");
    std::string lines;
    for (int i = 0; i < 40; ++i) {
        lines += fmt::format(
            "[  {}.1] igc 0000:02:00.0: PCIe Bus Error: severity=Corrected, "
            "type=Physical Layer, (Receiver ID)\n",
            i);
    }
    storm.Set("cmd/dmesg", lines);
    hot.Set("cmd/dmesg",
            "[ 9.1] mlx5_core 0000:01:00.0: temp_warn:183:(pid 0): High temperature "
            "on sensors with bit set 0 1\n");
    return {
        {"AER in the log alone",
         {storm.Files()},
         "pcie-errors",
         Severity::kWarn,
         "40 lines of corrected errors",
         "reseat"},
        {"hot card", {hot.Files()}, "nic-log", Severity::kWarn, "High temperature", "air"},
    };
}

std::vector<Fault> OtherFaults() {
    using test_hosts::RoceHost;
    Host e810 = test_hosts::StrixHaloHost();
    e810.Set("sys/bus/pci/devices/0000:00:02.1/max_link_width", "8\n");
    Host closed_nft = test_hosts::NftHost();
    closed_nft.Set(
        "cmd/nft_list_ruleset",
        "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority "
        "filter; policy accept;\n\t\tjump checks\n\t}\n\n\tchain checks {\n\t\tct state "
        "established,related accept\n\t\tiifname { \"lo\", \"eno1\" } accept\n\t\ttcp dport "
        "{ 22, 80 } accept\n\t\treject with icmpx admin-prohibited\n\t}\n}\n");
    const auto rate = "25 Gb/sec (1X EDR)";
    Host two_a = test_hosts::OculinkHost("a", 1, true),
         two_b = test_hosts::OculinkHost("b", 2, true);
    two_b.Set("sys/class/infiniband/mlx4_0/ports/1/sm_lid", "0x2\n");
    return {
        {"E810 at half of its slot",
         {e810.Files()},
         "pcie-link",
         Severity::kFail,
         "16 GT/s x4",
         ""},
        {"closed nft",
         {closed_nft.Files()},
         "firewall",
         Severity::kWarn,
         "nftables",
         "10.0.0.0/24"},
        {"closed nixos",
         {RoceHost("nixos", Distribution::kNixOs, "enp9s0np0", 2, 25000, rate).Files()},
         "firewall",
         Severity::kWarn,
         "iptables",
         "10.0.0.0/24"},
        {"rhel's public zone",
         {Closed(RoceHost("rhel", Distribution::kRhel9, "ens1f0np0", 1, 25000, rate),
                 "cmd/firewall-cmd_--get-active-zones",
                 "public (default)\n  interfaces: eno1 ens1f0np0\ntrusted\n  interfaces: "
                 "docker0\n")},
         "firewall",
         Severity::kWarn,
         "ens1f0np0 in the zone public",
         "--zone=trusted --add-source=10.0.0.0/24 && "},
        {"two masters",
         {two_a.Files(), two_b.Files()},
         "ib-one-manager",
         Severity::kWarn,
         "opensm runs on a, b",
         "disable"},
    };
}

std::vector<Fault> CableFaults() {
    Host bare = test_hosts::ThunderboltHost("bare", Distribution::kFedora43, 1);
    bare.Set("cmd/ip_-j_addr",
             "[{\"ifname\":\"thunderbolt0\",\"mtu\":65520,\"operstate\":\"UP\","
             "\"addr_info\":[]}]\n");
    Host ring = test_hosts::ThunderboltHost("ring", Distribution::kFedora43, 1);
    ring.Set("cmd/ip_-j_addr",
             "[{\"ifname\":\"thunderbolt0\",\"mtu\":65520,\"operstate\":\"UP\",\"addr_info\":[]},"
             "{\"ifname\":\"thunderbolt1\",\"mtu\":65520,\"operstate\":\"UP\","
             "\"addr_info\":[]}]\n");
    ring.Set("sys/class/net/thunderbolt1/operstate", "up\n");
    ring.Set("sys/class/net/thunderbolt1/mtu", "65520\n");
    return {
        {"thunderbolt without an address",
         {bare.Files()},
         "thunderbolt",
         Severity::kWarn,
         "no IPv4 address",
         "ip addr add"},
        {"two cables without an address",
         {ring.Files()},
         "thunderbolt",
         Severity::kWarn,
         "thunderbolt1: up, MTU 65520, no IPv4 address",
         "sudo ip link set dev thunderbolt1 up (then 'weft up' on each host"},
    };
}

TEST(DoctorHosts, FaultyOnesAreNamed) {
    std::vector<Fault> faults = CardFaults();
    for (Fault& fault : BoardFaults()) faults.push_back(std::move(fault));
    for (Fault& fault : OtherFaults()) faults.push_back(std::move(fault));
    for (Fault& fault : LogFaults()) faults.push_back(std::move(fault));
    for (Fault& fault : CableFaults()) faults.push_back(std::move(fault));
    for (const Fault& fault : faults) {
        const auto findings = Look(fault.hosts);
        const bool found = std::ranges::any_of(findings, [&](const Finding& f) {
            return f.check == fault.check && f.severity >= fault.least &&
                   Contains(f.read, fault.words) && Contains(f.fix, fault.fix);
        });
        EXPECT_TRUE(found) << fault.name << ": " << fault.check << " " << fault.words << "\n"
                           << Warnings(findings);
    }
}

// These hosts have no other fault.
TEST(DoctorHosts, FaultyHostsHaveOnlyTheExpectedWarnings) {
    std::vector<Fault> faults = CardFaults();
    for (Fault& fault : BoardFaults()) faults.push_back(std::move(fault));
    for (const Fault& fault : faults) {
        for (const Finding& f : Look(fault.hosts)) {
            const bool other = f.severity >= Severity::kWarn && f.check != fault.check &&
                               f.check != "ib-subnet-manager" && f.check != "rdma-device";
            EXPECT_FALSE(other) << fault.name << ": " << f.check << ": " << f.read;
        }
    }
}

// Commands are of the host's distribution.
TEST(DoctorHosts, CuresAreOfTheDistribution) {
    const std::vector<std::pair<std::string, std::string>> cures = {
        {"ID=fedora\nVERSION_ID=43\n", "sudo dnf install rdma-core"},
        {"ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n", "sudo dnf install rdma-core"},
        {"ID=ubuntu\nID_LIKE=debian\n", "sudo apt install rdma-core"},
        {"ID=arch\n", "sudo pacman -S rdma-core"},
        {"ID=nixos\n", "nixos-rebuild switch"},
        {"", "sudo apt install rdma-core"}};
    for (const auto& [release, cure] : cures) {
        Host host("h", Distribution::kUbuntu2404);
        host.Add({.address = "0000:01:00.0", .slot = "0000:00:01.1", .now = {8, 8}});
        host.Add({.name = "enp1s0", .pci = "0000:01:00.0", .driver = "mlx4_en"});
        if (!release.empty()) host.Set("etc/os-release", release);
        const auto findings = Look({host.Files()});
        const auto found = std::ranges::find_if(findings, [](const Finding& f) {
            return f.check == "rdma-device" && f.severity == Severity::kWarn;
        });
        ASSERT_NE(found, findings.end());
        EXPECT_NE(found->fix.find(cure), std::string::npos) << found->fix;
    }
}

std::string FixOf(const std::vector<Finding>& findings, const std::string& check) {
    const auto found = std::ranges::find_if(
        findings, [&](const Finding& f) { return f.check == check && f.severity > Severity::kOk; });
    return found == findings.end() ? "(no finding)" : found->fix;
}

TEST(DoctorHosts, CuresKnowMoreDistributions) {
    const std::vector<std::pair<std::string, std::string>> cures = {
        {"ID=\"centos\"\nID_LIKE=\"rhel fedora\"\nVERSION_ID=\"7\"\n", "sudo yum install rdma"},
        {"ID=gentoo\n", "install the package rdma-core"},
        {"ID=alpine\n", "install the package rdma-core"},
        {"ID='arch'\n", "sudo pacman -S rdma-core"},
        {"ID=garuda-soaring\nID_LIKE=archlinux\n", "sudo pacman -S rdma-core"},
        {"ID=fedora\nVARIANT_ID=silverblue\n", "sudo rpm-ostree install"},
        {"ID=bazzite\nID_LIKE=\"fedora\"\n", "sudo rpm-ostree install"},
        {"ID=strange\n", "sudo apt install"}};  // by the kernel's release
    for (const auto& [release, cure] : cures) {
        Host host("h", Distribution::kUbuntu2404);
        host.Add({.address = "0000:01:00.0", .slot = "0000:00:01.1", .now = {8, 8}});
        host.Add({.name = "enp1s0", .pci = "0000:01:00.0", .driver = "mlx4_en"});
        host.Set("etc/os-release", release);
        EXPECT_TRUE(Contains(FixOf(Look({host.Files()}), "rdma-device"), cure)) << release;
        host.Set("proc/sys/kernel/osrelease", "7.1.0\n");
        if (!Contains(release, "strange")) continue;
        EXPECT_TRUE(
            Contains(FixOf(Look({host.Files()}), "rdma-device"), "install the package rdma-core"));
    }
}

TEST(DoctorHosts, FirmwareIsOfTheGpu) {
    const auto fix = [](const char* card, const char* driver, const std::string& release,
                        const std::string& kernel) {
        return FixOf(Look({{{"probe/complete", "yes\n"},
                            {"etc/os-release", release},
                            {"proc/sys/kernel/osrelease", kernel + "\n"},
                            {"cmd/lspci_-vv",
                             fmt::format("00:00.0 Host bridge: X\n\tKernel driver in use: x\n"
                                         "03:00.0 VGA compatible controller: {}\n{}",
                                         card, driver)}}}),
                     "gpu-access");
    };
    constexpr const char *kAmd = "Advanced Micro Devices, Inc. [AMD/ATI] Navi 31 [1002:744c]",
                         *kIntel = "Intel Corporation DG2 [Arc A770] [8086:56a0]";
    constexpr const char* kDebian = "ID=debian\n";
    const std::string amd = "\tKernel driver in use: amdgpu\n";
    EXPECT_TRUE(Contains(fix(kAmd, amd.c_str(), kDebian, "6.14.8-2-pve"),
                         "modprobe amdgpu, and dmesg | grep -i amdgpu shows what the driver lacks "
                         "(firmware: apt install pve-firmware)"));
    EXPECT_TRUE(Contains(
        fix(kAmd, amd.c_str(), "ID=pop\nID_LIKE=\"ubuntu debian\"\n", "6.17.9-76061709-generic"),
        "(firmware: sudo apt install linux-firmware)"));
    for (const std::string driver : {"i915", "xe"}) {
        const std::string used = "\tKernel driver in use: " + driver + "\n";
        EXPECT_EQ(fix(kIntel, used.c_str(), kDebian, "6.12.57+deb13-amd64"),
                  fmt::format("sudo modprobe {0}, and dmesg | grep -i {0} shows what the driver "
                              "lacks",
                              driver));
    }
    EXPECT_EQ(fix(kIntel, "", kDebian, "6.12.57+deb13-amd64"),
              "sudo modprobe xe; 'sudo dmesg' shows what the driver lacks");
}

// A manager that runs here serves one port by default.
TEST(DoctorHosts, ManagersAreNotInstalledTwice) {
    const test_hosts::Host::Port waiting = {.state = "2: INIT", .lid = 0, .sm_lid = 0};
    const auto fix = [&](const char* release, const char* active) {
        Host host("h", Distribution::kFedora43);
        host.Add({.address = "0000:01:00.0", .slot = "0000:00:01.1", .now = {8, 8}});
        host.AddRdma("mlx4_0", "0000:01:00.0", {{}, waiting});
        host.Set("etc/os-release", release);
        host.Set("cmd/systemctl_is-active_opensm", active);
        return FixOf(Look({host.Files()}), "rdma-port");
    };
    EXPECT_TRUE(Contains(fix("ID=fedora\n", "active\n"), "not for mlx4_0 port 2: GUIDS="));
    EXPECT_TRUE(Contains(fix("ID=debian\n", "active\n"), "not for mlx4_0 port 2: PORTS=ALL"));
    EXPECT_TRUE(Contains(fix("ID=nixos\n", "active\n"), "hardware.infiniband.guids"));
    EXPECT_TRUE(Contains(fix("ID=fedora\n", "inactive\n"), "sudo dnf install opensm"));
    EXPECT_TRUE(Contains(fix("ID=arch\n", "inactive\n"), "AUR"));
    EXPECT_FALSE(Contains(fix("ID=nixos\n", "inactive\n"), "systemctl"));
}

TEST(DoctorHosts, CuresOfFirewallsNameTheChain) {
    const auto fix = [](const char* release, const char* table, const char* chain) {
        Host host = test_hosts::NftHost();
        host.Set("etc/os-release", release);
        host.Set("cmd/nft_list_ruleset",
                 fmt::format("table {} {{\n\tchain {} {{\n\t\ttype filter hook input priority "
                             "filter; policy drop;\n\t}}\n}}\n",
                             table, chain));
        return FixOf(Look({host.Files()}), "firewall");
    };
    EXPECT_TRUE(Contains(fix("ID=debian\n", "inet fw", "into"),
                         "nft insert rule inet fw into ip saddr 10.0.0.0/24 accept"));
    EXPECT_TRUE(Contains(fix("ID=debian\n", "ip filter", "INPUT"),
                         "iptables -I INPUT -s 10.0.0.0/24 -j ACCEPT"));
    for (const char* release : {"ID=nixos\n", ""}) {
        EXPECT_TRUE(Contains(fix(release, "inet nixos-fw", "input"),
                             "extraInputRules = \"ip saddr { 10.0.0.0/24 } accept\";"));
    }
}

// A host with a card, and `ip -j addr` with the card's address and that of a VLAN over it.
Host CardHost(const std::string& address, const std::string& vlan = "") {
    Host host = test_hosts::NftHost();
    const auto link = [](const char* more, const std::string& own) {
        const size_t slash = own.find('/');
        return fmt::format(
            R"({{"ifname":"enp1s0f0np0{}"{},"mtu":1500,"operstate":"UP","addr_info":[)"
            R"({{"family":"inet","local":"{}","prefixlen":{}}}]}})",
            more, *more == 0 ? "" : R"(,"link":"enp1s0f0np0")", own.substr(0, slash),
            own.substr(slash + 1));
    };
    host.Set("cmd/ip_-j_addr",
             "[" + link("", address) + (vlan.empty() ? "" : "," + link(".4000", vlan)) + "]\n");
    return host;
}

std::string NftInput(const std::string& rule) {
    return "table inet filter {\n\tchain input {\n\t\ttype filter hook input priority filter; "
           "policy drop;\n\t\t" +
           rule + "\n\t}\n}\n";
}

// The subnet of a public address contains other people's hosts: no cure opens the firewall for it.
TEST(DoctorHosts, CuresOfFirewallsOpenNoPublicNetwork) {
    const auto ufw = [](Host host) {
        host.Set("cmd/ufw_status_verbose",
                 "Status: active\nDefault: deny (incoming), allow (outgoing)\n");
        return host;
    };
    const auto zones = [](Host host) {
        host.Set("cmd/firewall-cmd_--state", "running\n");
        host.Set("cmd/firewall-cmd_--get-active-zones",
                 "public (default)\n  interfaces: enp1s0f0np0 enp1s0f0np0.4000\n");
        return host;
    };
    const auto nft = [](Host host) {
        host.Set("cmd/nft_list_ruleset", NftInput("tcp dport 22 accept"));
        return host;
    };
    const auto iptables = [](Host host) {
        host.Remove("cmd/nft_list_ruleset");
        host.Set("cmd/iptables_-S", "-P INPUT DROP\n");
        return host;
    };
    const auto nixos = [&](Host host) {
        host = nft(host);
        host.Set("etc/os-release", "ID=nixos\n");
        return host;
    };
    for (const auto& wall :
         std::vector<std::function<Host(Host)>>{ufw, zones, nft, iptables, nixos}) {
        const std::string fix = FixOf(Look({wall(CardHost("95.216.10.5/26")).Files()}), "firewall");
        EXPECT_TRUE(Contains(fix, "the other hosts' addresses only")) << fix;
        EXPECT_FALSE(Contains(fix, "95.216") || Contains(fix, "sudo")) << fix;
        const std::string both =
            FixOf(Look({wall(CardHost("95.216.10.5/26", "10.9.0.5/24")).Files()}), "firewall");
        EXPECT_TRUE(Contains(both, "10.9.0.0/24")) << both;
        EXPECT_FALSE(Contains(both, "95.216")) << both;
    }
    // The private VLAN is accepted: that is what ranks need.
    Host good = CardHost("95.216.10.5/26", "10.9.0.5/24");
    good.Set("cmd/nft_list_ruleset", NftInput("iifname \"enp1s0f0np0.4000\" accept"));
    EXPECT_EQ(FixOf(Look({good.Files()}), "firewall"), "(no finding)");
}

// After the cure, the check passes.
TEST(DoctorHosts, CuresOfFirewallsSuffice) {
    struct Wall {
        const char *path, *before, *cure, *after;
    };
    const std::string before = NftInput(""), after = NftInput("ip saddr 10.9.0.0/24 accept");
    const Wall cases[] = {
        {"cmd/ufw_status_verbose", "Status: active\nDefault: deny (incoming)\n",
         "sudo ufw allow from 10.9.0.0/24",
         "Status: active\nDefault: deny (incoming)\n\nTo   Action   From\n--   ------   ----\n"
         "Anywhere                   ALLOW IN    10.9.0.0/24\n"},
        {"cmd/firewall-cmd_--get-active-zones", "public (default)\n  interfaces: enp1s0f0np0\n",
         "sudo firewall-cmd --permanent --zone=trusted --add-source=10.9.0.0/24 && ",
         "public (default)\n  interfaces: enp1s0f0np0\ntrusted\n  sources: 10.9.0.0/24\n"},
        {"cmd/nft_list_ruleset", before.c_str(),
         "sudo nft insert rule inet filter input ip saddr 10.9.0.0/24 accept", after.c_str()},
        {"cmd/iptables_-S", "-P INPUT DROP\n", "sudo iptables -I INPUT -s 10.9.0.0/24 -j ACCEPT",
         "-P INPUT DROP\n-A INPUT -s 10.9.0.0/24 -j ACCEPT\n"},
    };
    for (const Wall& one : cases) {
        Host host = CardHost("10.9.0.5/24");
        host.Remove("cmd/nft_list_ruleset");
        if (Contains(one.path, "firewall-cmd")) host.Set("cmd/firewall-cmd_--state", "running\n");
        host.Set(one.path, one.before);
        const std::string fix = FixOf(Look({host.Files()}), "firewall");
        EXPECT_TRUE(Contains(fix, one.cure)) << fix;
        host.Set(one.path, one.after);
        EXPECT_EQ(FixOf(Look({host.Files()}), "firewall"), "(no finding)") << one.path;
    }
    // A second chain that drops has to accept, too; one of IPv6 does not.
    Host host = CardHost("10.9.0.5/24");
    const std::string six =
        "table ip6 filter {\n\tchain INPUT {\n\t\ttype filter hook input priority filter; policy "
        "drop;\n\t}\n}\n";
    host.Set("cmd/nft_list_ruleset", six + after);
    EXPECT_EQ(FixOf(Look({host.Files()}), "firewall"), "(no finding)");
    std::string second = before;
    second.replace(second.find("inet filter"), 11, "inet second");
    host.Set("cmd/nft_list_ruleset", after + second);
    EXPECT_TRUE(Contains(FixOf(Look({host.Files()}), "firewall"), "inet second input"));
}

// No command contains a placeholder.
TEST(DoctorHosts, CuresAreWhole) {
    Host e810("h", Distribution::kUbuntu2404);
    e810.Add({.address = "0000:01:00.0",
              .slot = "0000:00:01.1",
              .type = 0x0200,
              .vendor = 0x8086,
              .device = 0x1592,
              .driver = ""});
    Host strange = e810;
    strange.Set("sys/bus/pci/devices/0000:01:00.0/vendor", "0x1234\n");
    for (Host* host : {&e810, &strange}) host->Remove("cmd/lspci_-vv");
    EXPECT_TRUE(Contains(FixOf(Look({e810.Files()}), "nic-driver"), "sudo modprobe ice"));
    const std::string fix = FixOf(Look({strange.Files()}), "nic-driver");
    EXPECT_TRUE(Contains(fix, "lspci -k -s 0000:01:00.0") && !Contains(fix, "MODULE")) << fix;
}

// More links than any host of ranks has.
TEST(DoctorHosts, LinksAreBounded) {
    std::string links = "[";
    for (int i = 0; i < 40'000; ++i) {
        links += fmt::format(R"({}{{"ifname":"veth{}","addr_info":[{{"family":"inet",)"
                             R"("local":"10.0.0.1","prefixlen":32}}]}})",
                             i == 0 ? "" : ",", i);
    }
    Host host("h", Distribution::kUbuntu2404);
    host.Set("cmd/ip_-j_addr", links + "]");
    const auto view = MakeSnapshotView(host.Files(), "h");
    const auto devices = NetDevices(*view);
    EXPECT_EQ(devices.size(), 4096u);
    EXPECT_NE(FindNetDevice(*view, "veth7"), nullptr);
}

TEST(DoctorHosts, UnreadableSourcesAreNoted) {
    Host host("h", Distribution::kFedora43);
    host.Add({.name = "enp1s0", .pci = "0000:01:00.0", .driver = "igc", .megabits = 2500});
    host.Remove("cmd/ip_-j_addr");
    host.Set("unread", "cmd/dmesg: dmesg: read kernel buffer failed: Operation not permitted\n");
    const auto findings = Look({host.Files()});
    const auto said = [&](const char* check, const char* words) {
        return std::ranges::any_of(findings, [&](const Finding& f) {
            return f.check == check && f.severity == Severity::kNote && Contains(f.read, words);
        });
    };
    EXPECT_TRUE(said("net-subnet", "could not be read"));
    EXPECT_TRUE(said("nic-log", "Operation not permitted"));
    const std::string report = Report(findings, {.hosts = {"h", "empty"}, .checks = 45});
    EXPECT_NE(report.find("  45 checks: "), std::string::npos) << report;
    EXPECT_NE(report.find(" had nothing to read\n"), std::string::npos) << report;
    EXPECT_NE(report.find("empty\n  45 checks: 45 had nothing to read"), std::string::npos)
        << report;
}

TEST(DoctorHosts, LinesNameUnreadSourcesAndNoGpu) {
    Host host("h", Distribution::kFedora43);
    // A second reading of a source is no source of its own.
    host.Set("unread",
             "cmd/ethtool_-S_eth0: Operation not permitted\n"
             "later/cmd/ethtool_-S_eth0: Operation not permitted\n");
    host.Set("cmd/dmesg", "\n");
    const auto view = MakeSnapshotView(host.Files(), "h");
    EXPECT_EQ(HostLines(*view, false), std::vector<std::string>{"no GPU found"});
    const std::vector<std::string> expected = {
        "no GPU found", "not read: dmesg: empty; 'sudo weft doctor' may read more",
        "not read: ethtool -S eth0: Operation not permitted"};
    EXPECT_EQ(HostLines(*view, true), expected);
    const std::string report =
        Report({}, {.hosts = {"h"}, .verbose = true, .lines = {{"h", expected}}});
    EXPECT_TRUE(Contains(report, "  not read: dmesg: empty")) << report;
    host.Add({.address = "0000:03:00.0",
              .slot = "0000:00:01.1",
              .type = 0x0300,
              .vendor = 0x1002,
              .device = 0x744c,
              .driver = "amdgpu"});
    const auto with_gpu = MakeSnapshotView(host.Files(), "h");
    EXPECT_TRUE(HostLines(*with_gpu, false).empty());
}

// Other cards have no Realtek chip, so their fixes read no interface to find its module.
TEST(DoctorHosts, OnlyFixesForRealtekLookForTheChip) {
    const auto reads = [](const char* fix) {
        const auto view = MakeSnapshotView({{"sys/class/net/eth0/mtu", "1500\n"}}, "h");
        EXPECT_FALSE(FilledFix(*view, fix, "", "eth0").empty());
        return view->answers().contains("sys/class/net/eth0/mtu");
    };
    EXPECT_FALSE(reads("sudo ethtool -K {device} tso off"));
    EXPECT_TRUE(reads("{realtek}"));
    EXPECT_TRUE(reads("install {chip}"));
}

TEST(DoctorHosts, NamesAreQuotedAndPrintedWithoutControls) {
    Host host("evil\x1b[2J\u202ename", Distribution::kUbuntu2404);
    host.Add({.address = "0000:01:00.0", .slot = "0000:00:01.1", .now = {8, 8}});
    for (const char* name : {"$(reboot)", "a;reboot", "it's", "\u202eeth0", "x`id`"}) {
        host.Add({.name = name,
                  .pci = "0000:01:00.0",
                  .driver = "ib_ipoib",
                  .megabits = 100,
                  .mtu = 500,
                  .type = 32,
                  .address = "10.10.0.1/24",
                  .mode = "datagram"});
    }
    host.AddRdma("mlx4_0", "0000:01:00.0", {{}, {}, {}, {}, {}});
    const auto findings = Look({host.Files()});
    bool any = false;
    for (const Finding& finding : findings) {
        any = any || Contains(finding.fix, "'$(reboot)'");
        for (const char* bare : {" $(reboot)", " a;reboot", " it's", " x`id`"}) {
            EXPECT_FALSE(Contains(finding.fix, bare)) << finding.fix;
        }
    }
    EXPECT_TRUE(any) << Warnings(findings);
    const std::string report = Report(findings, {.verbose = true});
    for (const char* hidden : {"\x1b", "\u202e", "\u009b"}) {
        EXPECT_FALSE(Contains(report, hidden));
    }
}

TEST(DoctorText, UnknownStatesOfRdmaPortsStayAsWritten) {
    const auto port = [](const std::string& state, const std::string& physical) {
        const auto ports = ParseRdmaPorts(fmt::format(
            "CA 'mlx5_0'\n\tPort 1:\n\t\tState: {}\n\t\tPhysical state: {}\n", state, physical));
        return fmt::format("{}, {}", ports.at(0).state, ports.at(0).physical);
    };
    EXPECT_EQ(port("Initializing", "LINK_UP (5)"), "INIT, LinkUp");
    EXPECT_EQ(port("PORT_ACTIVE_DEFER (5)", "Phy Test"), "PORT_ACTIVE_DEFER, Phy Test");
    EXPECT_EQ(port(" 7: Strange ", "9: Very_Strange"), "Strange, Very_Strange");
}

TEST(DoctorText, QuotedAndPrintable) {
    EXPECT_EQ(ShellWord("enp1s0f0np0"), "enp1s0f0np0");
    EXPECT_EQ(ShellWord("$(reboot)"), "'$(reboot)'");
    EXPECT_EQ(ShellWord("it's"), "'it'\\''s'");
    EXPECT_EQ(ShellWord(""), "''");
    EXPECT_EQ(Printable("a\x1b[31mb\x7f\xc2\x9b"), "a?[31mb??");
    EXPECT_EQ(Printable("\xe2\x80\xae"
                        "abc\xff\xc3"),
              "?abc??");
    EXPECT_EQ(Printable("\xc0\xaf\xed\xa0\x80"), "?????");
    EXPECT_EQ(Printable("K\xc3\xb6ln \xe6\x97\xa5"), "K\xc3\xb6ln \xe6\x97\xa5");
}

}  // namespace
}  // namespace weft::doctor
