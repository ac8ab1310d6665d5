// Connections between hosts: the ports that a host reaches, and the options that name them.
#include "doctor/reach.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <cstdlib>
#include <set>

#include "base/file.h"
#include "doctor/check.h"
#include "doctor/collect.h"
#include "doctor/snapshot.h"
#include "doctor/text.h"
#include "net/socket.h"
#include "support/temp_dir.h"

namespace weft::doctor {
namespace {

TEST(DoctorReach, ConnectsToThePortsOfAPeer) {
    const Fd peer = net::ListenTcp("127.0.0.2", 0).value();
    const uint16_t port = net::BoundPort(peer.get()).value();
    EXPECT_EQ(ReachPeers({.addresses = {"127.0.0.2"}, .ports = {port}}).value(),
              fmt::format("127.0.0.2 {} open\n", port));
    // This host listens, too, unless the port has a listener: then only others are refused.
    const Fd own = net::ListenTcp("127.0.0.1", 0).value();
    const uint16_t refused = net::BoundPort(own.get()).value();
    EXPECT_EQ(
        ReachPeers({.addresses = {"127.0.0.2"}, .ports = {refused}, .timeout_ms = 300}).value(),
        fmt::format("127.0.0.2 {} refused\n", refused));
}

TEST(DoctorReach, OptionsAreParsed) {
    const ReachOptions options{
        .addresses = {"10.0.0.2", "10.0.0.3"}, .ports = {7000, 40123}, .peers = 2};
    const ReachOptions parsed = ParseReach(ReachText(options));
    EXPECT_EQ(parsed.addresses, options.addresses);
    EXPECT_EQ(parsed.ports, options.ports);
    EXPECT_EQ(parsed.peers, options.peers);
    for (const char* text : {"", "x 1 10.0.0.2", "7000 1 b", "70000 1 10.0.0.2"}) {
        EXPECT_TRUE(ParseReach(text).addresses.empty()) << text;
    }
}

std::string AddressesOf(const char* address) {
    return fmt::format(
        R"([{{"ifname":"e1","mtu":1500,"operstate":"UP","addr_info":[{{"family":"inet",)"
        R"("local":"{}","prefixlen":24}}]}}])",
        address);
}

TEST(DoctorReach, ALossyPathIsNamed) {
    const Error error = MakeError(ErrorCode::kTimeout, "no answer within 5 s");
    LossyPath path{"10.0.0.2",
                   {.device = "eth0", .device_mtu = 9000, .largest = 9000, .passed = 1500}};
    const Finding lost = Unreachable("b:7000", error, path);
    EXPECT_EQ(lost.check, "reachable");
    EXPECT_EQ(lost.severity, Severity::kFail);
    EXPECT_EQ(lost.host, "b:7000");
    EXPECT_EQ(lost.read,
              "b:7000 (10.0.0.2 by eth0): packets of 9000 bytes do not arrive there, those of 1500 "
              "do; ssh: no answer within 5 s");
    EXPECT_TRUE(lost.fix.ends_with("sudo ip link set dev eth0 mtu 1500")) << lost.fix;
    path.mtu.device = "";
    path.mtu.passed = 576;
    const Finding tunnel = Unreachable("b", error, path);
    EXPECT_TRUE(tunnel.read.starts_with("b (10.0.0.2): packets of 9000 bytes")) << tunnel.read;
    EXPECT_TRUE(Contains(tunnel.fix, "sudo ip link set dev DEVICE mtu 1280; ")) << tunnel.fix;
    EXPECT_TRUE(Contains(tunnel.fix, "loses packets of 1280 bytes or less, too")) << tunnel.fix;
    const Finding down = Unreachable("b:7000", error, {});
    EXPECT_EQ(down.read, "b:7000: no answer within 5 s");
    EXPECT_EQ(down.fix, "ssh b weft doctor");
}

// A peer is no host of the job, so only the test of ports is about it.
TEST(DoctorReach, PeersTakePartInTheTestOfPortsOnly) {
    const auto across = [](size_t peers) {
        std::vector<std::unique_ptr<HostView>> views;
        views.push_back(MakeSnapshotView({{"cmd/ip_-j_addr", AddressesOf("198.51.100.2")},
                                          {"probe/reach", "198.51.100.1 7000 open\n"}},
                                         "a"));
        views.push_back(MakeSnapshotView({{"cmd/ip_-j_addr", AddressesOf("198.51.100.1")}}, "b"));
        const std::vector<Finding> findings = RunChecks(views, {}, peers).value();
        std::set<std::string> checks;
        for (const Finding& finding : findings) {
            if (finding.check.starts_with("across-")) checks.insert(finding.check);
        }
        return checks;
    };
    EXPECT_EQ(across(1), std::set<std::string>{"across-ports"});
    EXPECT_TRUE(across(0).contains("across-ports"));
    EXPECT_TRUE(across(0).contains("across-mtu"));
}

// Rank 0 of a job runs on this machine, so its ports are tested, too.
TEST(DoctorReach, ThisMachineTakesPart) {
    const test::TempDir dir;
    const std::string tar =
        WriteTar({{"probe/hostname", "a\n"}, {"cmd/ip_-j_addr", AddressesOf("198.51.100.2")}})
            .value();
    ASSERT_TRUE(WriteFile(dir / "a.tar", std::as_bytes(std::span(tar))).ok());
    const std::string ssh = fmt::format(
        "#!/bin/sh\nfor last; do true; done\ncase $last in\n"
        "*--save*) sh -c \"${{last%%;*}}\"; cat {0}/a.tar ;;\n"
        "*--reach*) echo \"$last\" >{0}/reach; echo 198.51.100.1 7000 open ;;\nesac\n",
        dir.path());
    ASSERT_TRUE(WriteFile(dir / "ssh", std::as_bytes(std::span(ssh))).ok());
    ASSERT_EQ(::chmod((dir / "ssh").c_str(), 0755), 0);
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (dir.path() + ":" + path).c_str(), 1);
    const auto here = MakeSnapshotView({{"cmd/ip_-j_addr", AddressesOf("198.51.100.1")}}, "here");
    const auto collected = CollectHosts({"a"}, {}, here.get());
    const auto same = MakeSnapshotView({{"cmd/ip_-j_addr", AddressesOf("198.51.100.2")}}, "a");
    const auto alone = CollectHosts({"a"}, {}, same.get());
    ::setenv("PATH", path.c_str(), 1);
    ASSERT_TRUE(collected.ok()) << collected.error().message;
    EXPECT_TRUE(collected->tested_here);
    EXPECT_TRUE(Contains(here->Probe("reach").text, "198.51.100.2 7000 "));
    EXPECT_EQ(collected->hosts.at(0)->Probe("reach").text, "198.51.100.1 7000 open\n");
    EXPECT_TRUE(Contains(ReadTextFile(dir / "reach").value(), "1 198.51.100.1"));
    ASSERT_TRUE(alone.ok()) << alone.error().message;
    EXPECT_FALSE(alone->tested_here);
}

}  // namespace
}  // namespace weft::doctor
