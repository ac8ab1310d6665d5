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
#include "doctor/network.h"
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
    ReachOptions many = options;
    many.addresses.clear();
    for (int i = 0; i < 200; ++i) many.addresses.push_back(fmt::format("10.0.1.{}", i));
    many.timeout_ms = 9000;
    EXPECT_EQ(ParseReach(ReachText(many)).addresses, many.addresses);
    EXPECT_EQ(ParseReach(ReachText(many)).timeout_ms, 9000);
    EXPECT_EQ(parsed.timeout_ms, kReachMs);
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

// The findings of a check as "SEVERITY READ" lines.
std::string Texts(const std::vector<Finding>& findings, const std::string& check) {
    std::string text;
    for (const Finding& f : findings) {
        if (f.check == check) text += fmt::format("{} {}\n", SeverityName(f.severity), f.read);
    }
    return text;
}

std::string NumberedAddress(size_t host) {
    return fmt::format("10.7.0.{}", host + 1);
}

// Each pair of 30 hosts counts, the last one, too.
TEST(DoctorReach, AllPairsOfManyHostsAreTested) {
    constexpr size_t kHosts = 30;
    std::vector<SnapshotFiles> hosts(kHosts);
    for (size_t from = 0; from < kHosts; ++from) {
        hosts[from]["cmd/ip_-j_addr"] = AddressesOf(NumberedAddress(from).c_str());
        for (size_t to = 0; to < kHosts; ++to) {
            if (to == from) continue;
            const std::string address = NumberedAddress(to);
            const bool bad = from == kHosts - 1 && to == kHosts - 2;
            hosts[from][CommandPath(PingWords("1472", address))] =
                bad ? "1 packets, 100% packet loss\n" : "1 packets, 0% packet loss\n";
            hosts[from][CommandPath(PingWords("548", address))] = "1 packets, 0% packet loss\n";
            hosts[from]["probe/reach"] +=
                fmt::format("{} 7000 {}\n", address, bad ? "filtered" : "open");
        }
    }
    // One host lacks an answer, and another one did not participate.
    hosts[3].erase(CommandPath(PingWords("1472", NumberedAddress(5))));
    hosts[3]["unread"] = CommandPath(PingWords("1472", NumberedAddress(5))) + ": no time\n";
    hosts[7].erase("probe/reach");
    hosts[7]["unread"] = "probe/reach: ssh failed\n";
    const std::string to_seven = NumberedAddress(7) + " 7000 open";
    std::string& reach = hosts[8]["probe/reach"];
    reach.replace(reach.find(to_seven), to_seven.size(), NumberedAddress(7) + " 7000 refused");
    std::vector<std::unique_ptr<HostView>> views;
    for (size_t i = 0; i < kHosts; ++i) {
        views.push_back(MakeSnapshotView(hosts[i], fmt::format("h{}", i)));
    }
    const std::vector<Finding> findings = RunChecks(views, {}).value();
    const std::string paths = Texts(findings, "across-path"),
                      ports = Texts(findings, "across-ports");
    EXPECT_TRUE(Contains(paths, "fail h29 to 10.7.0.29 (h28) by e1: 576 bytes arrive")) << paths;
    EXPECT_TRUE(Contains(paths, "note h3: 1 of 29 paths to other hosts were not tested: no time"));
    EXPECT_TRUE(Contains(paths, "ok 804 more, 868 in all")) << paths;
    EXPECT_TRUE(Contains(ports, "fail h29 to 10.7.0.29 (h28) by e1: no answer on port 7000"));
    EXPECT_TRUE(Contains(ports, "note h7: its connections to the other hosts were not tested"));
    EXPECT_TRUE(Contains(ports, "note h8: 1 of 29 paths to other hosts were not tested")) << ports;
}

// Hosts of different subnets are not tested, which is not the same as fine.
TEST(DoctorReach, HostsWithoutACommonSubnetAreNamed) {
    std::vector<std::unique_ptr<HostView>> views;
    for (const char* address : {"10.1.0.1", "10.1.0.2", "10.2.0.1"}) {
        const bool last = views.size() == 2;
        const std::string reach = last                ? "\n"
                                  : views.size() == 0 ? "10.1.0.2 7000 open\n"
                                                      : "10.1.0.1 7000 open\n";
        views.push_back(
            MakeSnapshotView({{"cmd/ip_-j_addr", AddressesOf(address)}, {"probe/reach", reach}},
                             fmt::format("h{}", views.size())));
    }
    const std::string ports = Texts(RunChecks(views, {}).value(), "across-ports");
    EXPECT_TRUE(Contains(ports, "note 2 pairs of hosts share no IPv4 subnet")) << ports;
    EXPECT_TRUE(Contains(ports, "h0 and h2, h1 and h2")) << ports;
}

std::string WithVpn(const char* address, const char* vpn) {
    return fmt::format(
        R"([{{"ifname":"e1","mtu":1500,"operstate":"UP","addr_info":[{{"family":"inet",)"
        R"("local":"{}","prefixlen":24}}]}},{{"ifname":"wg0","mtu":1420,"addr_info":[{{)"
        R"("family":"inet","local":"{}","prefixlen":32}}]}}])",
        address, vpn);
}

// Hosts that may be in different VPNs, or are customers of one provider, are not said to fail.
TEST(DoctorReach, AVpnIsTestedOnlyIfItAnswers) {
    struct Answer {
        const char *vpn, *outcome, *ping;
        std::vector<const char*> ports;
        const char* path;
    };
    const char* apart = "note 1 pairs of hosts share no IPv4 subnet";
    const char* filtered = "fail h0 to 10.71.9.2 (h1) by wg0: no answer on port 7000";
    for (const Answer& one : std::vector<Answer>{
             {"10.64.3.1", "open", "0%", {apart}, ""},  // both hosts have this address
             {"10.71.9.2", "filtered", "100%", {apart}, ""},
             {"10.71.9.2", "failed: No route to host", "100%", {apart}, ""},
             {"10.71.9.2", "filtered", "0%", {filtered}, "ok h0 to 10.71.9.2 (h1) by wg0"},
             {"10.71.9.2", "refused", "100%", {"fail h0 to", "port 7000 (refused)"}, ""},
             {"10.71.9.2", "open", "100%", {"ok h0 to", "ok h1 to"}, ""}}) {
        SCOPED_TRACE(fmt::format("{} {} {}", one.vpn, one.outcome, one.ping));
        std::vector<std::unique_ptr<HostView>> views;
        const char* vpns[] = {"10.64.3.1", one.vpn};
        for (size_t host = 0; host < 2; ++host) {
            const std::string peer = vpns[1 - host];
            const std::string ping = fmt::format("1 packets, {} packet loss\n", one.ping);
            SnapshotFiles files = {
                {"cmd/ip_-j_addr", WithVpn(host == 0 ? "10.1.0.5" : "10.2.0.5", vpns[host])},
                {"probe/reach", fmt::format("{} 7000 {}\n", peer, one.outcome)}};
            for (const char* payload : {"1392", "548"}) {
                files[CommandPath(PingWords(payload, peer))] = ping;
            }
            views.push_back(MakeSnapshotView(files, fmt::format("h{}", host)));
        }
        const std::vector<Finding> findings = RunChecks(views, {}).value();
        const std::string ports = Texts(findings, "across-ports"),
                          path = Texts(findings, "across-path");
        for (const char* text : one.ports) EXPECT_TRUE(Contains(ports, text)) << ports;
        EXPECT_EQ(Contains(ports, "no IPv4 subnet"), one.ports[0] == apart) << ports;
        EXPECT_TRUE(Contains(path, one.path)) << path;
        EXPECT_FALSE(Contains(path, "warn")) << path;
        EXPECT_FALSE(Contains(Texts(findings, "across-address"), "fail"));
    }
}

// A VPN is tested behind another one in any order of the interfaces: one of another kind, or one of
// the same kind that joins the host to others alone.
TEST(DoctorReach, AVpnBehindAnotherOneIsTested) {
    for (const char* works : {"tailscale0", "wg1"}) {
        for (const bool last : {false, true}) {
            SCOPED_TRACE(fmt::format("{} {}", works, last));
            std::vector<std::unique_ptr<HostView>> views;
            for (const int host : {1, 2}) {
                const auto device = [](const char* name, const std::string& address) {
                    return fmt::format(R"({{"ifname":"{}","mtu":1420,"addr_info":[{{"family":)"
                                       R"("inet","local":"{}","prefixlen":32}}]}})",
                                       name, address);
                };
                const std::string one = device("wg0", fmt::format("10.2.0.{}", host)),
                                  two = device(works, fmt::format("100.64.0.{}", host));
                const std::string peer = fmt::format("100.64.0.{}", 3 - host);
                views.push_back(MakeSnapshotView(
                    {{"cmd/ip_-j_addr", fmt::format("[{},{}]", last ? one : two, last ? two : one)},
                     {"cmd/ip_-j_route",
                      fmt::format(R"([{{"dst":"{}","dev":"{}"}}])", peer, works)},
                     {"probe/reach",
                      fmt::format("10.2.0.{} 7000 filtered\n{} 7000 open\n", 3 - host, peer)},
                     {CommandPath(PingWords("1392", peer)), "1 packets, 0% packet loss\n"}},
                    fmt::format("h{}", host)));
            }
            const std::vector<Finding> findings = RunChecks(views, {}).value();
            const std::string ports = Texts(findings, "across-ports"),
                              paths = Texts(findings, "across-path");
            const std::string ok = fmt::format("ok h1 to 100.64.0.2 (h2) by {}", works);
            EXPECT_TRUE(Contains(ports, ok)) << ports;
            EXPECT_TRUE(Contains(paths, ok)) << paths;
            for (const char* wrong : {"fail", "warn", "no IPv4 subnet", "10.2.0."}) {
                EXPECT_FALSE(Contains(ports + paths, wrong)) << ports << paths;
            }
        }
    }
}

// A host that did not report its time may have logged in too late to listen while the others tried.
TEST(DoctorReach, ARefusalByALateHostIsNoFault) {
    for (const size_t late : {0, 1, 2}) {
        std::vector<std::unique_ptr<HostView>> views;
        for (size_t host = 0; host < 2; ++host) {
            SnapshotFiles files = {{"cmd/ip_-j_addr", AddressesOf(NumberedAddress(host).c_str())},
                                   {"probe/reach", NumberedAddress(1 - host) + " 7000 refused\n"}};
            if (host == late) files["unread"] = "probe/clock: date did not end\n";
            views.push_back(MakeSnapshotView(files, fmt::format("h{}", host)));
        }
        const std::string ports = Texts(RunChecks(views, {}).value(), "across-ports");
        EXPECT_EQ(Contains(ports, "fail "), late == 2) << ports;
        EXPECT_EQ(Contains(ports, "note h0: 1 of 1 paths"), late < 2) << ports;
    }
}

// Runs CollectHosts with a shell script as ssh. $before: the host; $last: the command.
Result<Collected> CollectBy(const test::TempDir& dir, const std::string& cases,
                            const std::vector<std::string>& hosts,
                            const CollectOptions& options = {.timeout_ms = 20'000},
                            HostView* here = nullptr) {
    const std::string ssh = fmt::format(
        "#!/bin/sh\nfor word; do before=$last; last=$word; done\ncd {}\ncase $last in\n{}\nesac\n",
        dir.path(), cases);
    EXPECT_TRUE(WriteFile(dir / "ssh", std::as_bytes(std::span(ssh))).ok());
    ::chmod((dir / "ssh").c_str(), 0755);
    const std::string path = std::getenv("PATH");
    ::setenv("PATH", (dir.path() + ":" + path).c_str(), 1);
    auto collected = CollectHosts(hosts, options, here);
    ::setenv("PATH", path.c_str(), 1);
    return collected;
}

void WriteHost(const test::TempDir& dir, const std::string& name, const std::string& address) {
    const std::string tar = WriteTar({{"probe/hostname", name + "\n"},
                                      {"cmd/ip_-j_addr", AddressesOf(address.c_str())}})
                                .value();
    ASSERT_TRUE(WriteFile(dir / (name + ".tar"), std::as_bytes(std::span(tar))).ok());
}

// A host pings all others; a small packet is sent only if the large one got no answer. A host's
// missing answers are not tested.
TEST(DoctorReach, AllPathsOfAHostArePinged) {
    constexpr size_t kHosts = 20;
    const test::TempDir dir;
    std::vector<std::string> names;
    for (size_t i = 0; i < kHosts; ++i) {
        names.push_back(fmt::format("h{}", i));
        WriteHost(dir, names.back(), NumberedAddress(i));
    }
    const std::string ping =
        "#!/bin/sh\ntest \"$8 $9\" = '1472 10.7.0.20' && lost=100\n"
        "echo \"PING $9\n\n1 packets, ${lost-0}% packet loss\"; exit ${lost-0}\n";
    ASSERT_TRUE(WriteFile(dir / "ping", std::as_bytes(std::span(ping))).ok());
    ASSERT_EQ(::chmod((dir / "ping").c_str(), 0755), 0);
    const auto collected = CollectBy(dir,
                                     "*--save*) sh -c \"${last%%;*}\"; cat $before.tar ;;\n"
                                     "*ping*) test $before = h0 || exit 255; sh -c \"$last\" ;;",
                                     names);
    ASSERT_TRUE(collected.ok()) << collected.error().message;
    const std::string paths = Texts(RunChecks(collected->hosts, {}).value(), "across-path");
    EXPECT_TRUE(Contains(paths, "ok h0 to 10.7.0.19 (h18) by e1: 1500 bytes arrive")) << paths;
    EXPECT_TRUE(Contains(paths, "fail h0 to 10.7.0.20 (h19) by e1: 576 bytes arrive")) << paths;
    EXPECT_TRUE(Contains(paths,
                         "note h1: 19 of 19 paths to other hosts were not tested: it said "
                         "nothing"))
        << paths;
    HostView& first = *collected->hosts.front();
    EXPECT_TRUE(first.Command(PingWords("548", "10.7.0.20")).found());
    EXPECT_FALSE(first.Command(PingWords("548", "10.7.0.19")).found());
}

// A slow login has as much time as the user gave.
TEST(DoctorReach, ALoginMayTakeTheWholeTime) {
    const test::TempDir dir;
    WriteHost(dir, "a", "198.51.100.2");
    const auto collected = CollectBy(dir,
                                     "*--save*) sh -c \"${last%%;*}\"; cat $before.tar ;;\n"
                                     "date*) exec tail -f /dev/null ;;",
                                     {"a"}, {.timeout_ms = 1500});
    ASSERT_TRUE(collected.ok()) << collected.error().message;
    ASSERT_EQ(collected->hosts.size(), 1u);
    const Reading clock = collected->hosts[0]->Probe("clock");
    EXPECT_TRUE(Contains(clock.text, "within 1500 ms")) << clock.text;
}

// This machine needs no path to the hosts, so a missing path is no fault.
TEST(DoctorReach, AMachineThatOnlyAsksIsNotApart) {
    for (const bool with_here : {false, true}) {
        const test::TempDir dir;
        WriteHost(dir, "a", "198.51.100.2");
        const auto here = MakeSnapshotView({{"cmd/ip_-j_addr", AddressesOf("10.1.0.1")}}, "here");
        const auto collected =
            CollectBy(dir, "*--save*) sh -c \"${last%%;*}\"; cat $before.tar ;;", {"a"},
                      {.timeout_ms = 20'000, .with_here = with_here}, here.get());
        ASSERT_TRUE(collected.ok()) << collected.error().message;
        EXPECT_EQ(here->Probe("reach").found(), with_here);
    }
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
