// The doctor's findings on measured links: invented reports on a host whose cards a snapshot
// describes.
#include "doctor/fabric.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "doctor/snapshot.h"
#include "support/temp_dir.h"

namespace weft::doctor {
namespace {

constexpr const char* kAddress =
    R"([{"ifname":"lo","addr_info":[{"family":"inet","local":"127.0.0.1","prefixlen":8}]},)"
    R"({"ifname":"eth0","mtu":9000,"operstate":"UP","flags":["UP","LOWER_UP"],)"
    R"("addr_info":[{"family":"inet","local":"10.77.0.1","prefixlen":24}]}])";
constexpr const char* kRoute = R"([{"dst":"10.77.0.0/24","dev":"eth0","protocol":"kernel"}])";

// A host with one card of `megabits` at 10.77.0.1/24.
class FabricJudgement : public testing::Test {
  protected:
    std::unique_ptr<HostView> Host(int megabits, bool rdma) {
        Write("cmd/ip_-j_addr", kAddress);
        Write("cmd/ip_-j_route", kRoute);
        Write("sys/class/net/eth0/speed", fmt::format("{}\n", megabits));
        Write("sys/class/net/eth0/mtu", "9000\n");
        Write("sys/class/net/eth0/operstate", "up\n");
        if (rdma) {
            const std::string port = "sys/class/infiniband/mlx5_0/ports/1/";
            Write(port + "state", "4: ACTIVE\n");
            Write(port + "phys_state", "5: LinkUp\n");
            Write(port + "link_layer", "Ethernet\n");
            Write(port + "rate", "100 Gb/sec (4X EDR)\n");
        }
        auto view = OpenSnapshot(dir_.path());
        EXPECT_TRUE(view.ok()) << view.error().message;
        return std::move(*view);
    }

    struct Link {
        int from, to;
        std::string transport;
        double us, gigabytes;
        int64_t errors = 0;
    };

    static std::vector<Finding> Look(HostView& here, const std::vector<Link>& links) {
        fabric::NetReport latency, bandwidth;
        latency.hosts = {"a", "b", "c"};
        latency.links.assign(3, std::vector<std::string>(3));
        for (const Link& link : links) {
            const auto from = static_cast<size_t>(link.from), to = static_cast<size_t>(link.to);
            latency.links[from][to] = latency.links[to][from] = link.transport;
            fabric::NetRow row;
            row.from = link.from, row.to = link.to;
            row.timings.typical_us = link.us;
            row.timings.p99_us = 2 * link.us;
            row.errors = link.errors;
            latency.rows.push_back(row);
            row.errors = 0;
            row.average_bytes_s = link.gigabytes * 1e9;
            bandwidth.rows.push_back(row);
        }
        return JudgeFabric(here, {"10.77.0.2:7000", "10.77.0.3:7000"}, latency, bandwidth);
    }

    static std::string Severities(const std::vector<Finding>& findings) {
        std::string all;
        for (const Finding& f : findings) all += fmt::format("{} ", SeverityName(f.severity));
        return all;
    }

  private:
    void Write(const std::string& path, const std::string& text) {
        const std::filesystem::path full = std::filesystem::path(dir_.path()) / path;
        std::filesystem::create_directories(full.parent_path());
        std::ofstream(full) << text;
    }

    test::TempDir dir_;
};

TEST_F(FabricJudgement, AGoodLinkIsWell) {
    const auto here = Host(25000, true);
    const auto found = Look(*here, {{0, 1, "verbs", 4, 2.9}});
    ASSERT_EQ(Severities(found), "ok ");
    EXPECT_EQ(found[0].host, "a to b");
    EXPECT_NE(found[0].read.find("4.0 us"), std::string::npos) << found[0].read;
    EXPECT_NE(found[0].expected.find("2.50 GB/s"), std::string::npos) << found[0].expected;
}

TEST_F(FabricJudgement, LatencyIsJudgedByTheKindOfLink) {
    const auto slow = Host(1000, false);
    EXPECT_EQ(Severities(Look(*slow, {{0, 1, "tcp", 150, 0.117}})), "ok ");
    EXPECT_EQ(Severities(Look(*slow, {{0, 1, "tcp", 250, 0.117}})), "warn ");
    const auto fast = Host(10000, false);
    EXPECT_EQ(Severities(Look(*fast, {{0, 1, "tcp", 150, 1.1}})), "warn ");
    EXPECT_EQ(Severities(Look(*fast, {{0, 1, "tcp", 40, 1.1}})), "ok ");
    EXPECT_EQ(Severities(Look(*fast, {{0, 1, "verbs", 40, 1.1}})), "warn ");
}

TEST_F(FabricJudgement, HalfOfTheCardIsASlotOrTheMtu) {
    const auto here = Host(100000, true);
    const auto found = Look(*here, {{0, 1, "verbs", 4, 6.2}});
    ASSERT_EQ(Severities(found), "warn ");
    EXPECT_NE(found[0].why.find("100 Gb/s"), std::string::npos) << found[0].why;
    EXPECT_NE(found[0].fix.find("pcie-link"), std::string::npos) << found[0].fix;
}

TEST_F(FabricJudgement, TcpDespiteAnRdmaPortIsNotedWithACommand) {
    const auto here = Host(25000, true);
    const auto found = Look(*here, {{0, 1, "tcp", 30, 2.0}});
    ASSERT_EQ(Severities(found), "warn ");
    EXPECT_NE(found[0].fix.find("--transport verbs --hosts 10.77.0.2:7000"), std::string::npos);
}

TEST_F(FabricJudgement, TcpWithoutARdmaPortIsWell) {
    const auto here = Host(25000, false);
    EXPECT_EQ(Severities(Look(*here, {{0, 1, "tcp", 30, 2.0}})), "ok ");
}

TEST_F(FabricJudgement, TheOneSlowLinkOfThree) {
    const auto here = Host(10000, false);
    const auto found =
        Look(*here, {{0, 1, "tcp", 40, 1.15}, {0, 2, "tcp", 40, 1.15}, {1, 2, "tcp", 40, 0.11}});
    EXPECT_EQ(Severities(found), "ok ok warn ");
    EXPECT_EQ(found.back().host, "b to c");
}

TEST_F(FabricJudgement, ChangedDataFails) {
    const auto here = Host(10000, false);
    EXPECT_EQ(Severities(Look(*here, {{0, 1, "tcp", 40, 1.15, 3}})), "fail ");
}

}  // namespace
}  // namespace weft::doctor
