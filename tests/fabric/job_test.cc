// The job of `weft net` as JSON: encoded and decoded; invalid JSON is refused.
#include "fabric/job.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/field_codec.h"

namespace weft::fabric {
namespace {

NetJob Sample() {
    NetJob job;
    job.op = NetOp::kAllToAll;
    job.sizes = {1, 64, kMostNetBytes};
    job.budget = {.iterations = 17, .seconds = 0.25};
    job.algorithms = {"one_shot", "auto"};
    job.wires = {"q8"};
    job.net_table = NetTable::kRemeasure;
    return job;
}

TEST(NetJob, ThereAndBack) {
    for (NetOp op : kNetOps) {
        NetJob job = Sample();
        job.op = op;
        const std::string text = NetJobToJson(job);
        EXPECT_EQ(KindOfMessage(text), kNetJobKind);
        const auto again = NetJobFromJson(text);
        ASSERT_TRUE(again.ok()) << again.error().message;
        EXPECT_EQ(again->op, op);
        EXPECT_EQ(again->sizes, job.sizes);
        EXPECT_EQ(again->budget.iterations, 17);
        EXPECT_EQ(again->budget.seconds, 0.25);
        EXPECT_EQ(again->algorithms, job.algorithms);
        EXPECT_EQ(again->wires, job.wires);
        EXPECT_EQ(again->net_table, NetTable::kRemeasure);
    }
}

TEST(NetJob, MalformedJobsAreRejected) {
    const std::string good = NetJobToJson(Sample());
    for (size_t length = 0; length < good.size(); ++length) {
        EXPECT_FALSE(NetJobFromJson(good.substr(0, length)).ok());
    }
    const auto refused = [&](const char* field, const nlohmann::json& value) {
        nlohmann::json json = nlohmann::json::parse(good);
        json[field] = value;
        const auto made = NetJobFromJson(json.dump());
        EXPECT_FALSE(made.ok()) << field << value;
    };
    refused("op", "fly");
    refused("op", 1);
    refused("sizes", nlohmann::json::array());
    refused("sizes", {0});
    refused("sizes", {-5});
    refused("sizes", {kMostNetBytes + 1});
    refused("sizes", std::vector<int>(100'000, 8));
    refused("iterations", -1);
    refused("iterations", 1 << 30);
    refused("seconds", 0);
    refused("seconds", -1);
    refused("seconds", 1e9);
    refused("algorithms", {"magic"});
    refused("algorithms", {"ring"});  // of all-reduces alone
    refused("algorithms", nlohmann::json::array());
    refused("wires", {"f64"});
    refused("net_table", "sometimes");
}

TEST(NetRow, ThereAndBack) {
    NetRow row;
    row.from = 1;
    row.to = 2;
    row.size = 4096;
    row.algorithm = "two_shot";
    row.wire = "bf16";
    row.timings = {9, 1, 2, 3, 4, 5, 6, 7};
    row.average_bytes_s = 1e9;
    row.peak_bytes_s = 2e9;
    row.messages_s = 3e6;
    row.errors = 11;
    const std::string text = NetRowToJson(row);
    const auto again = NetRowFromJson(text);
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(NetRowToJson(*again), text);
    EXPECT_EQ(again->timings.p999_us, 7);
    for (size_t length = 0; length < text.size(); ++length) {
        EXPECT_FALSE(NetRowFromJson(text.substr(0, length)).ok());
    }
}

TEST(NetRow, BandwidthsAreThoseOfNcclTests) {
    NetRow row;
    row.size = 1'000'000;
    row.timings.typical_us = 100;
    EXPECT_LE(std::abs(AlgorithmBandwidth(row) - 1e10), 1.0);
    EXPECT_LE(std::abs(BusFactor(NetOp::kAllReduce, 2) - 1), 1e-12);
    EXPECT_LE(std::abs(BusFactor(NetOp::kAllReduce, 4) - 1.5), 1e-12);
    EXPECT_LE(std::abs(BusFactor(NetOp::kAllGather, 4) - 0.75), 1e-12);
    EXPECT_LE(std::abs(BusFactor(NetOp::kAllToAll, 4) - 0.75), 1e-12);
    EXPECT_EQ(BusFactor(NetOp::kLatency, 4), 1);
}

}  // namespace
}  // namespace weft::fabric
