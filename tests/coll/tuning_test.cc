// Tuning tables: looked up by size, encoded as JSON and decoded; invalid tables are refused.
#include "coll/tuning.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <random>

namespace weft::coll {
namespace {

TEST(Tuning, BuiltInTablesFollowTheGroup) {
    const auto choice = [](GroupShape shape, size_t bytes) {
        const Choice made = Tuning::BuiltIn(shape).For(Collective::kAllReduce, bytes);
        EXPECT_EQ(WireType::kFull, made.wire);
        return made.algorithm;
    };
    EXPECT_EQ(Algorithm::kOneShot, choice({2, 1, false}, 8192));
    EXPECT_EQ(Algorithm::kTwoShot, choice({2, 1, false}, size_t{1} << 20));
    EXPECT_EQ(Algorithm::kOneShot, choice({2, 2, true}, size_t{256} << 10));
    EXPECT_EQ(Algorithm::kTwoShot, choice({2, 2, true}, size_t{1} << 20));
    EXPECT_EQ(Algorithm::kOneShot, choice({8, 8, true}, 64));
    EXPECT_EQ(Algorithm::kTwoShot, choice({8, 8, true}, size_t{1} << 20));
    EXPECT_EQ(Algorithm::kRing, choice({8, 8, true}, size_t{64} << 20));
    EXPECT_EQ(Algorithm::kHierarchical, choice({8, 2, true}, 8192));
    // The leaders of many hosts don't send each other everything, if that is much.
    EXPECT_EQ(Algorithm::kHierarchical, choice({8, 2, true}, size_t{1} << 30));
    EXPECT_EQ(Algorithm::kHierarchical, choice({32, 4, true}, size_t{1} << 20));
    EXPECT_EQ(Algorithm::kRing, choice({32, 4, true}, size_t{2} << 20));
    EXPECT_EQ(Algorithm::kRing, choice({256, 32, true}, size_t{1} << 20));
}

TEST(Tuning, GathersAndSumsGoByHostsThatHoldSeveralRanks) {
    const auto choice = [](Collective collective, GroupShape shape, size_t bytes) {
        return Tuning::BuiltIn(shape).For(collective, bytes).algorithm;
    };
    const auto gather = Collective::kAllGather, scatter = Collective::kReduceScatter;
    EXPECT_EQ(Algorithm::kHierarchical, choice(gather, {4, 2, true}, 64));
    EXPECT_EQ(Algorithm::kOneShot, choice(gather, {4, 4, true}, size_t{1} << 20));
    EXPECT_EQ(Algorithm::kOneShot, choice(gather, {4, 1, false}, size_t{1} << 20));
    // A quarter of the bytes is saved for one wait more, counted as 96 KB.
    EXPECT_EQ(Algorithm::kOneShot, choice(scatter, {4, 2, true}, size_t{384} << 10));
    EXPECT_EQ(Algorithm::kHierarchical, choice(scatter, {4, 2, true}, size_t{385} << 10));
    EXPECT_EQ(Algorithm::kHierarchical, choice(scatter, {16, 2, true}, size_t{32} << 10));
    EXPECT_EQ(Algorithm::kOneShot, choice(scatter, {4, 4, true}, size_t{1} << 30));
    EXPECT_EQ(Algorithm::kOneShot, choice(Collective::kAllToAll, {4, 2, true}, size_t{1} << 20));
}

TEST(Tuning, JsonBringsBackTheTable) {
    std::mt19937 random(1);
    for (int round = 0; round < 50; round++) {
        Tuning tuning = Tuning::BuiltIn({.ranks = 3});
        for (Collective collective : kCollectives) {
            std::vector<TuningRow> rows;
            for (size_t bytes = random() % 100, n = 1 + random() % 5; n > 0; n--) {
                const Choice choice{kAlgorithms[1 + random() % 5], kWires[random() % 3]};
                rows.push_back({bytes, choice, static_cast<double>(random() % 10'000) / 8});
                bytes += 1 + random() % 100'000;
            }
            ASSERT_TRUE(tuning.Set(collective, rows).ok());
            for (size_t i = 0; i < rows.size(); i++) {
                EXPECT_EQ(rows[i].choice, tuning.For(collective, rows[i].max_bytes));
                const size_t next = std::min(i + 1, rows.size() - 1);
                EXPECT_EQ(rows[next].choice, tuning.For(collective, rows[i].max_bytes + 1));
            }
        }
        const auto again = Tuning::FromJson(tuning.ToJson());
        ASSERT_TRUE(again.ok()) << again.error().message;
        EXPECT_TRUE(*again == tuning);
    }
}

TEST(Tuning, JsonThatIsNoTableIsRefused) {
    const std::string good = Tuning::BuiltIn({.ranks = 4}).ToJson();
    const auto refused = [](const std::string& text) {
        const auto made = Tuning::FromJson(text);
        return !made.ok() && made.error().code == ErrorCode::kCorrupt;
    };
    EXPECT_FALSE(refused(good));
    for (size_t length = 0; length < good.size(); length += 7) {
        EXPECT_TRUE(refused(good.substr(0, length))) << length;
    }
    const auto with = [&](const char* name, const nlohmann::json& value) {
        nlohmann::json json = nlohmann::json::parse(good);
        json["all_reduce"][0][name] = value;
        return refused(json.dump());
    };
    EXPECT_TRUE(with("max_bytes", -1));
    EXPECT_TRUE(with("max_bytes", "8"));
    EXPECT_TRUE(with("algorithm", "auto"));
    EXPECT_TRUE(with("algorithm", "magic"));
    EXPECT_TRUE(with("wire", "f64"));
    EXPECT_TRUE(with("p50_us", -1));
    EXPECT_TRUE(with("p50_us", nullptr));
    for (const char* text : {"", "[]", "null", "{}", "{\"all_reduce\": 3}", "[[[[[[[["}) {
        EXPECT_TRUE(refused(text)) << text;
    }
    nlohmann::json json = nlohmann::json::parse(good);
    json["broadcast"] = nlohmann::json::array();
    EXPECT_TRUE(refused(json.dump()));
}

// The cost of a byte comes from the times of 8 KiB and 64 KiB, or of the sizes that a slow wire
// left time to measure.
TEST(Tuning, WhatAByteCostsLeavesLatencyOut) {
    Tuning tuning = Tuning::BuiltIn({.ranks = 2, .hosts = 2, .over_tcp = true});
    EXPECT_EQ(UsAByte(tuning), 0);
    const Choice one{Algorithm::kOneShot, WireType::kFull};
    ASSERT_TRUE(tuning.Set(Collective::kAllReduce, {{8192, one, 300}}).ok());
    EXPECT_EQ(UsAByte(tuning), 0);  // unknown whether latency or bytes take the time
    ASSERT_TRUE(tuning
                    .Set(Collective::kAllReduce, {{256, one, 100},
                                                  {1024, one, 104},
                                                  {8192, one, 104 + 7168 * 0.5},
                                                  {4194304, one, 9e6}})
                    .ok());
    EXPECT_DOUBLE_EQ(UsAByte(tuning), 0.5);
    ASSERT_TRUE(tuning
                    .Set(Collective::kAllReduce, {{1024, one, 100},
                                                  {8192, one, 200},
                                                  {16384, one, 500},
                                                  {65536, one, 200 + 57344 * 0.25},
                                                  {262144, one, 9e6}})
                    .ok());
    EXPECT_DOUBLE_EQ(UsAByte(tuning), 0.25);
    ASSERT_TRUE(tuning.Set(Collective::kAllReduce, {{8192, one, 30}, {65536, one, 20}}).ok());
    EXPECT_EQ(UsAByte(tuning), 0);  // a machine that was busy for a moment
}

TEST(Tuning, NamesAreReadBack) {
    for (Algorithm algorithm : kAlgorithms) {
        EXPECT_EQ(algorithm, ParseAlgorithm(AlgorithmName(algorithm)).value());
    }
    for (WireType wire : kWires) EXPECT_EQ(wire, ParseWire(WireName(wire)).value());
    EXPECT_EQ(WireType::kFull, ParseWire("f32").value());
    EXPECT_EQ(ErrorCode::kUsage, ParseWire("f16").error().code);
    EXPECT_EQ(ErrorCode::kUsage, ParseAlgorithm("").error().code);
}

}  // namespace
}  // namespace weft::coll
