// Groups made of measured links.
#include "fabric/predict.h"

#include <gtest/gtest.h>

namespace weft::fabric {
namespace {

// The report of ranks on `hosts`: 64 B take `near` us within a host and `far` us between two hosts.
NetReport LinksOf(NetOp op, const std::vector<std::string>& hosts, double near, double far) {
    NetReport report;
    report.op = op;
    report.hosts = hosts;
    for (int from = 0; from < report.ranks(); ++from) {
        for (int to = 0; to < report.ranks(); ++to) {
            if (from == to || (op == NetOp::kLatency && from > to)) continue;
            const bool within = hosts[static_cast<size_t>(from)] == hosts[static_cast<size_t>(to)];
            NetRow row;
            row.from = from, row.to = to;
            row.size = op == NetOp::kLatency ? kSmallPut : kLargePut;
            if (op == NetOp::kLatency) row.timings.typical_us = within ? near : far;
            if (op == NetOp::kBandwidth) row.average_bytes_s = within ? near : far;
            report.rows.push_back(row);
        }
    }
    return report;
}

// Two workers on each host, by the addresses at which they were called.
TEST(FabricPredict, RanksThatShareMemoryAreOneHost) {
    const std::vector<std::string> hosts = {"a", "a", "b", "b"}, names = {"a", "a:1", "b:2", "b:3"};
    NetReport latency = LinksOf(NetOp::kLatency, hosts, 1, 10);
    NetReport bandwidth = LinksOf(NetOp::kBandwidth, hosts, 10e9, 1e9);
    latency.hosts = bandwidth.hosts = names;
    ASSERT_TRUE(GroupOf(latency, bandwidth).has_value());
    EXPECT_EQ(GroupOf(latency, bandwidth)->hosts, 4);
    latency.links = {{"-", "shm", "tcp", "tcp"},
                     {"shm", "-", "tcp", "tcp"},
                     {"tcp", "tcp", "-", "shm"},
                     {"tcp", "tcp", "shm", "-"}};
    const auto group = GroupOf(latency, bandwidth);
    ASSERT_TRUE(group.has_value());
    EXPECT_EQ(group->hosts, 2);
    EXPECT_EQ(group->near.bytes_per_s, 10e9);
}

TEST(FabricPredict, TiersAreTheSlowestLinks) {
    const std::vector<std::string> hosts = {"a", "a", "b", "b"};
    NetReport latency = LinksOf(NetOp::kLatency, hosts, 1, 10);
    NetReport bandwidth = LinksOf(NetOp::kBandwidth, hosts, 10e9, 1e9);
    bandwidth.rows[1].average_bytes_s = 0.5e9;  // rank 0 to 2
    const auto group = GroupOf(latency, bandwidth);
    ASSERT_TRUE(group.has_value());
    EXPECT_EQ(group->ranks, 4);
    EXPECT_EQ(group->hosts, 2);
    EXPECT_NEAR(group->near.latency_s, 1e-6 - 64 / 10e9, 1e-15);
    EXPECT_EQ(group->near.bytes_per_s, 10e9);
    EXPECT_EQ(group->far.bytes_per_s, 0.5e9);
    EXPECT_NEAR(group->far.latency_s, 10e-6 - 64 / 1e9, 1e-15);
}

TEST(FabricPredict, WhatWasNotMeasuredIsNotPredicted) {
    const std::vector<std::string> hosts = {"a", "b"};
    const NetReport latency = LinksOf(NetOp::kLatency, hosts, 1, 10);
    NetReport bandwidth = LinksOf(NetOp::kBandwidth, hosts, 10e9, 1e9);
    EXPECT_FALSE(GroupOf(latency, {}));
    EXPECT_FALSE(GroupOf({}, {}));
    bandwidth.rows.pop_back();
    EXPECT_FALSE(GroupOf(latency, bandwidth));
    bandwidth.rows.emplace_back().average_bytes_s = 0;
    EXPECT_FALSE(GroupOf(latency, bandwidth));
}

}  // namespace
}  // namespace weft::fabric
