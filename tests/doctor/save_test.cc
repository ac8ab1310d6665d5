// The archive of a host has only the fields of an allow-list. It contains none of the markers
// planted in every source, and the checks find the same in the archive as on the host.
#include "doctor/save.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "base/deadline.h"
#include "base/file.h"
#include "doctor/check.h"
#include "doctor/healthy_hosts.h"
#include "doctor/program.h"
#include "doctor/saved_words.h"
#include "doctor/text.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace weft::doctor {
namespace {

namespace fs = std::filesystem;

using test_hosts::Cluster;
using test_hosts::Distribution;
using test_hosts::Host;
using HostViews = std::vector<std::unique_ptr<HostView>>;

// Runs all checks and gives what would be saved of each host.
std::vector<SnapshotFiles> SavedOf(const std::vector<SnapshotFiles>& hosts,
                                   std::vector<Finding>* findings = nullptr) {
    HostViews views;
    for (const SnapshotFiles& files : hosts) views.push_back(MakeSnapshotView(files, "host"));
    auto found = RunChecks(views, {}).value();
    if (findings != nullptr) *findings = std::move(found);
    std::vector<SnapshotFiles> saved;
    for (const auto& view : views) {
        Pseudonyms names;
        saved.push_back(SavedFiles(view->Recorded(), names));
    }
    return saved;
}

std::vector<Finding> FindingsOf(const std::vector<SnapshotFiles>& hosts) {
    HostViews views;
    for (const SnapshotFiles& files : hosts) views.push_back(MakeSnapshotView(files, "host"));
    return RunChecks(views, {}).value();
}

std::string Outline(const std::vector<Finding>& findings) {
    std::string text;
    for (const Finding& f : findings)
        text += fmt::format("{} {}\n", f.check, SeverityName(f.severity));
    return text;
}

std::string AllOf(const SnapshotFiles& files) {
    std::string text;
    for (const auto& [path, content] : files) text += path + "\n" + content + "\n";
    return text;
}

constexpr const char* kMac = "e4:1d:2d:9a:67:b1";
constexpr const char* kBareMac = "e41d2d9a67b1";

// Whatever a source may carry beside what checks read.
const std::vector<std::string> kMarkers = {
    "hf_SECRETtoken", "weftKEYsecret", "alice",        "mallory-laptop",
    "corp.example",   "MT1421X04521",  "SNR-77",       "e4:1d:2d:9a:67:b1",
    "e41d2d9a67b1",   "e41d:2d9a",     "E41D2D9A67B1", "e4-1d-2d-ff-ff-9a-67-b1",
    "2001:db8:77",    "203.0.113.77",  "cb00:714d",    "fd12:3456",
    "office-vpn",     "secretzone",    "backup-home",  "1b2e-root",
    "passw0rd",       "0x7fffe41d"};

Host Planted() {
    Host host("mallory-laptop.corp.example", Distribution::kFedora43);
    host.Add({.address = "0000:01:00.0",
              .slot = "0000:00:01.1",
              .name = "Mellanox Technologies MT27500 Family [ConnectX-3]",
              .now = {8, 8}});
    for (const char* name : {"enxe41d2d9a67b1", "office-vpn", "enp1s0f0np0", "alice0"}) {
        host.Add({.name = name,
                  .pci = "0000:01:00.0",
                  .driver = "mlx4_core",
                  .megabits = 25000,
                  .mtu = 9000,
                  .address = name[1] == 'n' ? "203.0.113.77/24" : "10.7.0.1/24"});
    }
    host.AddRdma("rocexe41d2d9a67b1", "0000:01:00.0",
                 {{.layer = "Ethernet",
                   .rate = "25 Gb/sec (1X EDR)",
                   .gid_ipv4 = "cb00:714d",
                   .interface = "enxe41d2d9a67b1"}});
    const std::string port = "sys/class/infiniband/rocexe41d2d9a67b1/ports/1/gids/";
    host.Set(port + "0", "fe80:0000:0000:0000:e41d:2d9a:ff03:67b1\n");
    host.Set(port + "1", "fd12:3456:0000:0000:e41d:2d9a:ff03:67b1\n");
    host.Set(port + "2", "2001:0db8:0077:0000:e41d:2d9a:ff03:67b1\n");
    host.Set(
        "cmd/ip_-j_addr",
        fmt::format(R"([{{"ifname":"enxe41d2d9a67b1","altnames":["office-vpn"],"address":"{}",)"
                    R"("mtu":9000,"operstate":"UP","ifalias":"alice","addr_info":[{{"family":)"
                    R"("inet","local":"203.0.113.77","prefixlen":24,"label":"alice"}},)"
                    R"({{"family":"inet6","local":"2001:db8:77::1","prefixlen":64}}]}}])",
                    kMac));
    host.Set("cmd/ip_-j_route",
             R"([{"dst":"default","gateway":"203.0.113.1","dev":"office-vpn","prefsrc":)"
             R"("203.0.113.77","metric":100},{"dst":"203.0.113.0/24","dev":"enxe41d2d9a67b1"}])");
    host.Set(
        "cmd/lspci_-vv",
        fmt::format("01:00.0 Network controller: Mellanox Technologies MT27500 Family "
                    "[ConnectX-3]\n\tSubsystem: alice\n\t\t\t[SN] Serial number: MT1421X04521\n"
                    "\t\t\t[V3] Vendor specific: {}\n\tCapabilities: [148 v1] Device Serial "
                    "Number e4-1d-2d-ff-ff-9a-67-b1\n\t\tLnkCap:\tPort #8, Speed 8GT/s, Width "
                    "x8 SNR-77\n\t\tLnkSta:\tSpeed 8GT/s, Width x8 SNR-77\n\tKernel driver in "
                    "use: mlx4_core\n",
                    kBareMac));
    host.Set(
        "cmd/ibstat",
        "CA 'rocexe41d2d9a67b1'\n\tNode GUID: 0x7fffe41d2d9a67b1\n\tSystem image GUID: "
        "0x7fffe41d2d9a67b4\n\tPort 1:\n\t\tState: Active\n\t\tPort GUID: 0x7fffe41d2d9a67b2\n");
    return host;
}

void PlantFiles(Host& host) {
    host.Set("etc/systemd/system/weft-alice.service",
             "[Service]\nUser=alice\nEnvironment=HF_TOKEN=hf_SECRETtoken\nEnvironment=\"WEFT_KEY="
             "weftKEYsecret\"\nExecStart=/srv/alice/weft serve --key weftKEYsecret\n"
             "LimitMEMLOCK=infinity\n");
    host.Set("etc/systemd/system/backup-home.service", "[Service]\nUser=alice\n");
    host.Set("etc/security/limits.d/10-alice.conf", "alice soft memlock 64 # passw0rd\n");
    host.Set("etc/security/limits.conf", "# alice\n@alice hard memlock unlimited\n");
    host.Set("proc/cmdline",
             "root=UUID=1b2e-root ro iommu=pt systemd.hostname=mallory-laptop "
             "rd.luks.key=passw0rd ip=203.0.113.77::203.0.113.1 amdgpu.x=alice\n");
    host.Set("proc/self/cgroup",
             "0::/user.slice/user-1000.slice/user@1000.service/app-alice-office-vpn.scope\n");
    host.Set(
        "sys/fs/cgroup/user.slice/user-1000.slice/user@1000.service/"
        "app-alice-office-vpn.scope/memory.max",
        "1073741824\n");
    host.Set("proc/self/environ", "HF_TOKEN=hf_SECRETtoken\n");
    host.Set("cmd/ps_aux", "alice 1 weft serve --key weftKEYsecret\n");
    host.Set("cmd/env", "HF_TOKEN=hf_SECRETtoken\nWEFT_KEY=weftKEYsecret\n");
    host.Set("proc/version", "Linux version 6.17.7-300.fc43.x86_64 (alice@corp.example) #1 SMP\n");
    host.Set("proc/sys/kernel/osrelease", "6.17.7-alice-300.fc43.x86_64\n");
    host.Set("proc/cpuinfo", "model name\t: SNR-77\nSerial\t\t: e41d2d9a67b1\nflags\t\t: avx2\n");
    host.Set("proc/meminfo", "MemTotal: 65215240 kB alice\nSecret: hf_SECRETtoken\n");
    host.Set(
        "probe/register_memory/rocexe41d2d9a67b1",
        "refused: rocexe41d2d9a67b1: cannot register 67108864 bytes for alice: Cannot allocate "
        "memory\n");
    host.Set("unread",
             "cmd/dmidecode_-t_memory: sudo: alice is not in the sudoers file\n"
             "etc/alice/secret: Permission denied\n");
}

void PlantCommands(Host& host) {
    host.Set(
        "cmd/dmesg",
        fmt::format(
            "[    0.0] Command line: root=UUID=1b2e-root passw0rd\n[    1.0] DMI: SNR-77 "
            "mallory-laptop\n[    2.0] audit: user alice\n[    3.0] mlx4_core 0000:01:00.0: "
            "node addr {0}\n[    4.0] mlx4_core 0000:01:00.0: High Temperature on {0} of alice "
            "SN MT1421X04521 {1}\n[    5.0] NETDEV WATCHDOG: enxe41d2d9a67b1 (mlx4_core): "
            "transmit queue 3 timed out 5120 ms {1}\n[    6.0] Out of memory: Killed process "
            "1966 (office-vpn) total-vm:1kB, UID:alice\n[    7.0] usb 1-1: SerialNumber: "
            "SNR-77\n[    8.0] mce: [Hardware Error]: PPIN: 0x7fffe41d host mallory-laptop\n",
            kMac, kBareMac));
    host.Set(
        "cmd/nft_list_ruleset",
        fmt::format("table inet secretzone {{\n\tset office-vpn {{\n\t\telements = {{ "
                    "203.0.113.77 comment \"alice\" }}\n\t}}\n\tchain alice {{\n\t\ttype filter "
                    "hook input priority 0; policy drop;\n\t\tiifname \"enxe41d2d9a67b1\" ip "
                    "saddr 203.0.113.77 accept comment \"alice passw0rd\"\n\t\tether saddr {} "
                    "accept\n\t\tip6 saddr 2001:db8:77::1 accept\n\t\tlog prefix \"alice \" "
                    "jump backup-home\n\t}}\n\tchain backup-home {{\n\t\taccept\n\t}}\n}}\n",
                    kMac));
    host.Set(
        "cmd/iptables_-S",
        fmt::format("-P INPUT ACCEPT\n-N alice\n-A INPUT -i office-vpn -s 203.0.113.77/32 -m "
                    "comment --comment \"alice passw0rd\" -j ACCEPT\n-A INPUT -m mac "
                    "--mac-source {} -j alice\n-A alice -m owner --uid-owner alice -j RETURN\n",
                    kMac));
    host.Set("cmd/firewall-cmd_--get-active-zones",
             fmt::format("secretzone\n  interfaces: enxe41d2d9a67b1 office-vpn\n  sources: {} "
                         "203.0.113.77/32 ipset:alice\n",
                         kMac));
    host.Set(
        "cmd/firewall-cmd_--list-all-zones",
        "secretzone (active)\n  target: default\n  services: alice\n  ports: 1025-65535/tcp\n"
        "  rich rules: \n\trule source address=\"203.0.113.77\" log prefix=\"alice\" accept\n");
    host.Set("cmd/ufw_status_verbose",
             "Status: inactive\n22/tcp on office-vpn ALLOW IN 203.0.113.77 # alice passw0rd\n"
             "alice-app ALLOW IN Anywhere\n");
    host.Set("cmd/ethtool_-i_enxe41d2d9a67b1",
             "driver: mlx4_core\nfirmware-version: 2.42.5000\nbus-info: usb-alice-e41d2d9a67b1\n"
             "serial: SNR-77\n");
    host.Set("cmd/ethtool_-S_enxe41d2d9a67b1",
             "NIC statistics:\n     rx_packets: 5\n     alice: 7\n     rx_crc_errors: 0 SNR-77\n");
    host.Set(
        "cmd/dmidecode_-t_memory",
        "Memory Device\n\tSize: 32 GB\n\tSpeed: 5600 MT/s\n\tSerial Number: SNR-77\n\tAsset Tag: "
        "alice\n");
    host.Set("cmd/rdma_resource_show",
             "0: rocexe41d2d9a67b1: pd 3 cq 5 qp 2 cm_id 0 mr 0 comm alice\n");
    host.Set("cmd/rpm_-q_--qf=%{VERSION}_libibverbs", "57.0");
    host.Set("cmd/systemctl_show_--property=DefaultLimitMEMLOCK",
             "DefaultLimitMEMLOCK=8388608\nEnvironment=HF_TOKEN=hf_SECRETtoken\n");
}

TEST(DoctorSave, MarkersInEverySourceStayOut) {
    Host host = Planted();
    PlantFiles(host);
    PlantCommands(host);
    const SnapshotFiles whole = host.Files();
    const std::string before = AllOf(whole);
    for (const std::string& marker : kMarkers) {
        const bool planted =
            Contains(before, marker) || marker == "E41D2D9A67B1" || marker == "2001:db8:77";
        EXPECT_TRUE(planted) << marker;
    }
    const SnapshotFiles saved = SavedOf({whole})[0];
    EXPECT_GT(saved.size(), 60u);
    const std::string tar = WriteTar(saved).value();
    for (const std::string& marker : kMarkers) {
        EXPECT_FALSE(Contains(tar, marker)) << marker;
        for (const auto& [path, text] : saved) {
            EXPECT_FALSE(Contains(path, marker) || Contains(text, marker))
                << marker << " in " << path << ": " << text;
        }
    }
}

enum class Way { kWord, kGlued, kLine, kPair };

bool IsNumeric(std::string_view text) {
    return text.find_first_not_of("0123456789abcdefx. \t\n") == text.npos;
}

// A marker of digits is no marker among numbers: the kernel's numbers are what is saved.
bool Tells(std::string_view marker, Way way, std::string_view path, std::string_view line) {
    if (marker.find_first_not_of("0123456789") != marker.npos) return true;
    const bool version = path.ends_with("fw_ver") || Contains(path, "libibverbs") ||
                         Contains(path, "ibverbs-providers") || path.ends_with("osrelease");
    if (way != Way::kGlued) return version || !IsNumeric(line);
    return version || !IsNumeric(line.substr(line.find_last_of(" \t:=,x.") + 1));
}

std::string WithMarker(std::string_view path, std::string_view text, std::string_view marker,
                       Way way) {
    std::string planted;
    for (std::string_view line : Lines(text)) {
        planted += line;
        if (Tells(marker, way, path, line)) {
            switch (way) {
                case Way::kWord: planted += fmt::format(" {}", marker); break;
                case Way::kGlued: planted += marker; break;
                case Way::kLine: planted += fmt::format("\n{}", marker); break;
                case Way::kPair: planted += fmt::format("\n{0}={0}", marker); break;
            }
        }
        planted += '\n';
    }
    return planted;
}

// A marker as a line, as a word at the end of each line, glued to the last word, and as the name
// of a file; the markers are mixed-case letters, lower-case letters, or digits.
TEST(DoctorSave, MarkersAnywhereStayOut) {
    for (const Cluster& cluster : test_hosts::HealthyClusters()) {
        for (const std::string marker : {"MARKERzq7", "markerzq7", "407193820561"}) {
            for (const Way way : {Way::kWord, Way::kGlued, Way::kLine, Way::kPair}) {
                SnapshotFiles files;
                for (const auto& [path, text] : cluster.hosts[0]) {
                    const bool plain = path.starts_with("cmd/ip_-j") || path.ends_with('/');
                    files[path] = plain ? text : WithMarker(path, text, marker, way);
                    if (!path.ends_with('/')) files[path + "." + marker] = text;
                }
                const SnapshotFiles saved = SavedOf({files})[0];
                for (const auto& [path, text] : saved) {
                    EXPECT_FALSE(Contains(path + text, marker))
                        << cluster.name << " " << path << ": " << text;
                }
            }
        }
    }
}

std::string SavedText(const std::string& path, const std::string& text) {
    Pseudonyms names;
    const SnapshotFiles saved = SavedFiles({{path, text}}, names);
    return saved.empty() ? "(nothing)" : saved.begin()->second;
}

TEST(DoctorSave, VersionsKeepNumbersAndKnownWords) {
    const std::string after = " alice 203.0.113.77 e4:1d:2d:9a:67:b1 hf_SECRET2\n";
    EXPECT_EQ(SavedText("sys/class/infiniband/mlx4_0/fw_ver", "2.42.5000" + after), "2.42.5000\n");
    EXPECT_EQ(SavedText("sys/class/infiniband/mlx4_0/fw_ver", "alice\n"), "");
    EXPECT_EQ(SavedText("opt/rocm/.info/version", "6.4.1-alice" + after), "6.4.1\n");
    EXPECT_EQ(SavedText("sys/module/amdgpu/version", "6.10.5" + after), "6.10.5\n");
    EXPECT_EQ(SavedText("proc/sys/kernel/osrelease", "6.17.7-alice-300.fc43.x86_64\n"),
              "6.17.7-300.fc43.x86_64\n");
    const std::string dpkg = "cmd/dpkg-query_-W_-f=${Version}_ibverbs-providers";
    EXPECT_EQ(SavedText(dpkg, "50.0-2~alice.laptop.corp.example1"), "50.0-2\n");
    EXPECT_EQ(SavedText(dpkg, "1:44.0-2"), "1:44.0-2\n");
    EXPECT_EQ(SavedText("cmd/pacman_-Q_linux-firmware-amdgpu", "linux-firmware-amdgpu 20260110-1"),
              "linux-firmware-amdgpu 20260110-1\n");
    const std::string ethtool = "cmd/ethtool_-i_eth0", driver = "driver: mlx5_core\n";
    EXPECT_EQ(SavedText(ethtool, driver + "firmware-version: 2001:db8:77::1 e4:1d:2d:9a:67:b1\n"),
              driver + "firmware-version: other\n");
    EXPECT_EQ(SavedText(ethtool, driver + "firmware-version: 16.35.4030 (MT_0000000009)\n"),
              driver + "firmware-version: 16.35.4030 (MT_0000000009)\n");
    EXPECT_EQ(SavedText(ethtool, driver + "firmware-version: 16.35.4030 (ALICE)\n"),
              driver + "firmware-version: 16.35.4030\n");
}

TEST(DoctorSave, UnknownDriversAndPlacesAreOther) {
    const std::string ethtool = "cmd/ethtool_-i_eth0";
    EXPECT_EQ(SavedText(ethtool, "driver: mallorysecret\nbus-info: e41d2d9a67b1\n"),
              "driver: other\nbus-info: other\n");
    EXPECT_EQ(SavedText(ethtool, "driver: ice\nbus-info: 0000:01:00.0\n"),
              "driver: ice\nbus-info: 0000:01:00.0\n");
    const std::string place = "link/sys/class/net/eth0/device";
    for (const char* known : {"0000:01:00.0", "2-1.4:1.0", "2-1", "0-1.0"}) {
        EXPECT_EQ(SavedText(place, std::string("../../") + known),
                  std::string("../../") + known + "\n");
    }
    for (const char* other : {"e41d2d9a67b1", "alice", "4071938205", "virtio0", "2-1.e41d"}) {
        EXPECT_EQ(SavedText(place, std::string("../../") + other), "../../other\n") << other;
    }
    EXPECT_EQ(SavedText("link/sys/class/net/eth0/device/driver", "../../drivers/alice"),
              "../../drivers/other\n");
    EXPECT_EQ(SavedText("cmd/lspci_-vv",
                        "01:00.0 Ethernet controller: Intel Corporation ALIC12345xyz SNR77abc "
                        "E810-C [8086:1592] e41d:2d9a SNR77\n\tKernel driver in use: "
                        "e41d2d9a67b1\ne41d2d9a67b1 Bridge\n"),
              "01:00.0 Ethernet controller: Intel Corporation E810-C [8086:1592]\n"
              "\tKernel driver in use: other\n");
}

TEST(DoctorSave, FirewallRulesKeepNoCommentsAndNoNames) {
    Pseudonyms names;
    EXPECT_EQ(
        SavedText("cmd/ufw_status_verbose",
                  "Status: active\nDefault: deny (incoming), allow (outgoing)\n"
                  "80,1024:65535/tcp          ALLOW IN    203.0.113.77\n"
                  "Anywhere on alice0         DENY IN     10.0.0.0/24      # office / alice\n"),
        "Status: active\nDefault: deny (incoming), allow (outgoing)\n"
        "80,1024:65535/tcp          ALLOW IN    " +
            names.AddressText("203.0.113.77") + "\nAnywhere on " + names.Interface("alice0") +
            "         DENY IN     10.0.0.0/24\n");
    EXPECT_EQ(SavedText("cmd/iptables_-S",
                        "-A INPUT -s 10.0.0.0/24 -m comment --comment \"alice's \\\"x\\\"\" -j "
                        "ACCEPT\n-A INPUT -m string --string hf_SECRET2 -j DROP\n"),
              "-A INPUT -s 10.0.0.0/24 -m  -j ACCEPT\n-A INPUT -m string  -j DROP\n");
}

// Checks read IPv4 only. A field is kept if it is a string or a number.
TEST(DoctorSave, OfAddressesOnlyIpv4) {
    EXPECT_EQ(SavedText("cmd/ip_-j_addr",
                        R"([{"ifname":"eth0","link":null,"mtu":true,"metric":{"mtu":1},)"
                        R"("addr_info":[{"family":"inet6","local":"fd12::1","prefixlen":64},)"
                        R"({"family":"inet","local":"10.0.0.1","prefixlen":24},{"local":[]},7,)"
                        R"({"family":"inet"}]},"x"])"),
              R"([{"ifname":"eth0","addr_info":[{"family":"inet","local":"10.0.0.1",)"
              R"("prefixlen":24}]},{}])"
              "\n");
}

TEST(DoctorSave, TheChecksFindTheSameInWhatWasSaved) {
    std::vector<std::vector<SnapshotFiles>> clusters;
    for (const Cluster& cluster : test_hosts::HealthyClusters()) clusters.push_back(cluster.hosts);
    Host planted = Planted();
    PlantFiles(planted);
    PlantCommands(planted);
    clusters.push_back({planted.Files()});
    for (const auto& check : fs::directory_iterator(support::TestData("/../doctor/data"))) {
        for (const auto& entry : fs::directory_iterator(check.path())) {
            std::vector<SnapshotFiles> hosts;
            if (!entry.is_directory()) {
                hosts.push_back(ReadSnapshotFiles(entry.path()).value());
            } else {
                std::vector<fs::path> files;
                for (const auto& file : fs::directory_iterator(entry.path())) files.push_back(file);
                std::ranges::sort(files);
                for (const fs::path& file : files) {
                    hosts.push_back(ReadSnapshotFiles(file).value());
                }
            }
            clusters.push_back(std::move(hosts));
        }
    }
    EXPECT_GT(clusters.size(), 150u);
    for (const auto& hosts : clusters) {
        std::vector<Finding> found;
        const auto saved = SavedOf(hosts, &found);
        EXPECT_EQ(Outline(FindingsOf(saved)), Outline(found)) << AllOf(hosts[0]).substr(0, 4000);
        // Saving what was saved changes nothing.
        const auto again = SavedOf(saved);
        for (size_t i = 0; i < saved.size(); ++i) EXPECT_EQ(AllOf(again[i]), AllOf(saved[i]));
    }
}

TEST(DoctorSave, AddressesKeepTheirSubnets) {
    Pseudonyms names;
    const auto network = [&](const char* text) {
        return Ipv4{ParseIpv4(names.AddressText(text))->bits, 24}.network();
    };
    EXPECT_EQ(names.AddressText("10.1.2.3"), "10.1.2.3");
    EXPECT_EQ(names.AddressText("192.168.1.0/24"), "192.168.1.0/24");
    EXPECT_EQ(names.AddressText("default"), "default");
    EXPECT_EQ(network("203.0.113.77"), network("203.0.113.1"));
    EXPECT_NE(network("203.0.113.77"), network("203.0.114.77"));
    EXPECT_NE(names.AddressText("203.0.113.77"), names.AddressText("203.0.113.78"));
    const Ipv4 shown{network("203.0.113.9"), 24};
    EXPECT_EQ(names.AddressText("203.0.113.0/24"), shown.Text() + "/24");
    EXPECT_EQ(names.AddressText("203.0.113.77"), Pseudonyms().AddressText("203.0.113.77"));
    EXPECT_TRUE(names.AddressText("203.0.113.77").starts_with("198.1"));
    // A short prefix does not let the address through.
    EXPECT_EQ(names.AddressText("203.0.113.77/8"), "198.18.0.0/15");
    EXPECT_EQ(names.AddressText("203.0.113.77/0"), "0.0.0.0/0");
    EXPECT_EQ(names.AddressText("203.0.113.77/1"), "128.0.0.0/1");
    EXPECT_EQ(names.AddressText("10.0.0.0/8"), "10.0.0.0/8");
    EXPECT_EQ(names.Interface("enp1s0f0np0"), "enp1s0f0np0");
    EXPECT_EQ(names.Interface("ib0.8001"), "ib0.8001");
    EXPECT_NE(names.Interface("enxe41d2d9a67b1"), names.Interface("enxe41d2d9a67b2"));
    EXPECT_EQ(Pseudonyms(true).Interface("enxe41d2d9a67b1"), "enxe41d2d9a67b1");
}

TEST(DoctorSave, TheArchiveUnpacksWithTar) {
    const SnapshotFiles saved = SavedOf(test_hosts::HealthyClusters()[0].hosts)[0];
    test::TempDir dir;
    const std::string tar = WriteTar(saved).value();
    ASSERT_TRUE(WriteFile(dir / "a.tar", std::as_bytes(std::span(tar))).ok());
    fs::create_directory(dir / "out");
    const auto ran =
        RunProgram({"tar", "xf", dir / "a.tar", "-C", dir / "out"}, Deadline::In(20'000));
    ASSERT_TRUE(ran.ok()) << ran.error().message;
    EXPECT_EQ(ran->status, 0) << ran->err;
    EXPECT_EQ(ReadSnapshotFiles(dir / "out").value(), saved);
}

TEST(DoctorSave, HostsOfOneNameStayTwo) {
    HostViews views;
    for (int i = 0; i < 3; ++i) {
        views.push_back(MakeSnapshotView({{"probe/hostname", "node\n"}, {"proc/x", "1"}}, "x"));
    }
    MakeNamesDistinct(views);
    EXPECT_EQ(views[0]->host(), "node");
    EXPECT_EQ(views[1]->host(), "node (2)");
    EXPECT_EQ(views[2]->host(), "node (3)");
    EXPECT_EQ(views[2]->Text("proc/x"), "1");
}

TEST(DoctorSave, HostsWithOneNameAreDistinguishedByTheirSource) {
    HostViews views;
    for (const char* name : {"node", "node", "other", "node", "b.tar"}) {
        views.push_back(
            MakeSnapshotView({{"probe/hostname", std::string(name) + "\n"}, {"proc/x", "1"}}, "x"));
    }
    MakeNamesDistinct(views, {"a.tar", "b.tar", "c.tar", "a.tar", "b.tar"});
    EXPECT_EQ(views[0]->host(), "node (a.tar)");
    EXPECT_EQ(views[1]->host(), "node (b.tar)");
    EXPECT_EQ(views[2]->host(), "other");
    EXPECT_EQ(views[3]->host(), "node (a.tar) (2)");
    EXPECT_EQ(views[4]->host(), "b.tar");
}

// The firmware's records are numbered; of a line that begins with somebody else's word not even
// numbers stay, and a watchdog's device is named where the kernel names it.
TEST(DoctorSave, OfTheLogOnlySentencesOfTheKernel) {
    EXPECT_EQ(SavedText("cmd/dmesg", "[    1.0] {3}[Hardware Error]: event severity: alice\n"),
              "[    1.0] [Hardware Error]: event severity:\n");
    EXPECT_EQ(SavedText("cmd/dmesg", "[    1.0] sshd: alice 4711 pcie bus error\n"),
              "[    1.0] pcie bus error\n");
    EXPECT_EQ(SavedText("cmd/dmesg", "[    1.0] xNETDEV WATCHDOG: alice: transmit queue 0\n"),
              "[no line that a check reads]\n");
    // A long line is cut for the check as it is in the archive.
    const std::string tail = std::string(1100, ' ') + "High Temperature";
    EXPECT_EQ(SavedText("cmd/dmesg", "[    1.0] mlx5_core 0000:01:00.0:" + tail + "\n"),
              "[no line that a check reads]\n");
}

// Numbers that may be a serial number, an address or a process stay out of the log.
TEST(DoctorSave, OfTheLogOnlyShortNumbers) {
    const std::string hot = "[1.0] mlx5_core 0000:01:00.0: High Temperature";
    EXPECT_EQ(SavedText("cmd/dmesg", hot + " serial 03231230456 0x4a5b6c 10.1.2.3 203.0.113.9 "
                                           "pid=12345678901\n"),
              hot + "\n");
    for (const char* word :
         {"1234567", "123456.7890", "123456-789012", "123456/789012", "1234,5678,9012", "name=card",
          "pid=1", "(name=card)", "10.1.2.3:80", "10.1.2.3/24", "10.1.2.3-10.1.2.9", "10.1.64",
          "0x4a5b", "2-40719382056"}) {
        EXPECT_EQ(SavedText("cmd/dmesg", fmt::format("{} {}\n", hot, word)), hot + "\n") << word;
    }
    for (const char* word : {"123456", "-22", "31.504", "1024.000", "0x1", "2-1.4:1.0", "27W"}) {
        const std::string line = fmt::format("{} {}\n", hot, word);
        EXPECT_EQ(SavedText("cmd/dmesg", line), line);
    }
}

// A domain of a PCI address has four to eight digits.
TEST(DoctorSave, PciAddressesOfAnyDomainStay) {
    for (const char* word : {"0000:01:00.0", "0000:C1:00.A", "10000:e1:00.0", "8a5b0001:01:00.0"}) {
        EXPECT_TRUE(IsPciAddress(word)) << word;
        const std::string line = fmt::format("[1.0] mlx5_core {}: High Temperature\n", word);
        EXPECT_EQ(SavedText("cmd/dmesg", line), line);
    }
    for (const char* word : {"000:01:00.0", "123456789:01:00.0", "0000:01:00.0.", "000g:01:00.0",
                             "0000:0g:00.0", "0000-01:00.0", "e4:1d:2d:9a:67:b1"}) {
        EXPECT_FALSE(IsPciAddress(word)) << word;
    }
}

// Names that systemd gives stay; of others nothing does, however like those they look.
TEST(DoctorSave, OnlyTheSystemsNamesOfInterfacesStay) {
    for (const char* name :
         {"enp1s0f0np0", "enP2p1s0", "eno1", "ens1f0np0", "end0", "enp0s20f0u1u2i5", "ibp193s0d1",
          "rocep1s0f0v3", "wlp4s0", "eth0", "ib0.8001", "ifb0", "mlx5_bond_0", "thunderbolt0"}) {
        Pseudonyms names;
        EXPECT_EQ(names.Interface(name), name);
    }
    for (const char* name :
         {"enx0242ac110002", "enbob1", "wlalice0", "ensecret1", "encarol2", "bond-bob",
          "veth0a1b2c3", "br-9d3a41f07c2b", "wg-home", "ens1234567"}) {
        Pseudonyms names;
        EXPECT_NE(names.Interface(name), name);
        EXPECT_FALSE(Contains(names.Interface(name), std::string_view(name).substr(3)));
    }
}

// Most entries of a GID table are empty. A host with virtual functions has thousands of them.
TEST(DoctorSave, ManyGidTablesFitInASnapshot) {
    constexpr const char* kNone = "0000:0000:0000:0000:0000:0000:0000:0000\n";
    SnapshotFiles raw;
    for (int device = 0; device < 100; ++device) {
        const std::string port = fmt::format("sys/class/infiniband/mlx5_{}/ports/1/", device);
        for (int n = 0; n < 256; ++n) {
            raw[fmt::format("{}gids/{}", port, n)] =
                n == 3 ? "0000:0000:0000:0000:0000:ffff:0a00:0001\n" : kNone;
            raw[fmt::format("{}gid_attrs/types/{}/", port, n)];
            raw[fmt::format("{}gid_attrs/ndevs/{}/", port, n)];
        }
        raw[port + "gid_attrs/types/3"] = "RoCE v2\n";
    }
    Pseudonyms names(true);
    const std::string tar = WriteTar(SavedFiles(raw, names)).value();
    const auto files = ParseTar(std::as_bytes(std::span(tar)), "tar");
    ASSERT_TRUE(files.ok()) << files.error().message;
    const std::string last = "sys/class/infiniband/mlx5_99/ports/1/";
    EXPECT_EQ(files->at(last + "gid_attrs/types/3"), "RoCE v2\n");
    EXPECT_TRUE(files->contains(last + "gids/3") && files->contains(last + "gids/0"));
    EXPECT_FALSE(files->contains(last + "gids/4") || files->contains(last + "gid_attrs/types/4/"));
}

TEST(DoctorSave, SourcesAreListedAndUnknownOnesOmitted) {
    Pseudonyms names;
    std::vector<SavedSource> sources;
    const SnapshotFiles saved = SavedFiles({{"sys/class/net/eth0/mtu", "1500\n"},
                                            {"sys/class/net/eth1/mtu", "1500\n"},
                                            {"sys/class/net/eth1/address", "x\n"},
                                            {"etc/shadow", "x\n"},
                                            {"sys/class/net/eth0/../mtu", "1500\n"}},
                                           names, &sources);
    EXPECT_EQ(saved, (SnapshotFiles{{"sys/class/net/eth0/mtu", "1500\n"},
                                    {"sys/class/net/eth1/mtu", "1500\n"}}));
    ASSERT_EQ(sources.size(), 1u);
    EXPECT_TRUE(sources[0].path.starts_with("sys/class/net/<if>/<speed|mtu|"));
    EXPECT_EQ(sources[0].files, 2u);
}

}  // namespace
}  // namespace weft::doctor
