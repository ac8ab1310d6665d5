// Tables of what was measured: read, looked up, written, and what they do to a prediction.
#include "plan/measured.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/trace.h"
#include "plan/measure.h"
#include "plan/op_times.h"
#include "plan/predict.h"
#include "plan/shapes.h"

namespace weft::plan {
namespace {

Figure Fig(double value) {
    return {value, Mark::kMeasured, "here"};
}

Machine MeasuredBox() {
    Machine machine;
    machine.name = "box";
    machine.about = "a box";
    machine.devices = 2;
    machine.memory = Fig(32e9);
    machine.bandwidth = Fig(50e9);
    machine.compute = Fig(400e9);
    machine.within.push_back({2, Fig(10e9), Fig(1e-6)});
    machine.wire = "measured";
    machine.own_wire = Wire{"measured", "tcp", "", Fig(1e9), Fig(30e-6), std::nullopt};
    machine.watts_idle = Fig(10);
    machine.watts_busy = Fig(60);
    Measured& m = machine.measured.emplace();
    m.ranks = 2;
    m.products[DType::kQ8_0] = {{1, 80e9}, {100, 400e9}};
    m.products[DType::kQ4_0] = {{1, 100e9}};
    m.cache = Fig(20e9);
    m.attention = Fig(100e9);
    m.op = Fig(2e-6);
    m.step = Fig(50e-6);
    m.sync = Fig(1e-6);
    m.hop = Fig(7e-6);
    m.all_reduce = {{1024, 5e-6}, {65536, 50e-6}};
    return machine;
}

TEST(Measured, IsLookedUp) {
    const Measured m = *MeasuredBox().measured;
    EXPECT_EQ(m.ProductFlops(DType::kQ8_0, 1), 80e9);
    EXPECT_NEAR(*m.ProductFlops(DType::kQ8_0, 10), std::sqrt(80e9 * 400e9), 1);
    EXPECT_EQ(m.ProductFlops(DType::kQ8_0, 512), 400e9);
    EXPECT_FALSE(m.ProductFlops(DType::kBF16, 1));
    EXPECT_EQ(m.ProductFlops(DType::kQ4_0, 1), 100e9);
    EXPECT_FALSE(m.ProductFlops(DType::kQ4_0, 64)) << "one row says nothing of many";
    EXPECT_EQ(m.AllReduceSeconds(2, 64), 5e-6);
    EXPECT_NEAR(*m.AllReduceSeconds(2, 8192), std::sqrt(5e-6 * 50e-6), 1e-12);
    EXPECT_DOUBLE_EQ(*m.AllReduceSeconds(2, 131072), 100e-6);
    EXPECT_FALSE(m.AllReduceSeconds(3, 1024));
}

TEST(Measured, AFileIsReadAsItWasWritten) {
    const Machine box = MeasuredBox();
    const auto read = ParseMachine(MachineFileText(box), "box", "box.json");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(read->devices, 2);
    EXPECT_NEAR(read->bandwidth.value, 50e9, 1);
    EXPECT_EQ(read->bandwidth.mark, Mark::kMeasured);
    EXPECT_EQ(read->within.size(), 1u);
    EXPECT_NEAR(read->own_wire->latency.value, 30e-6, 1e-12);
    EXPECT_EQ(read->watts_busy->value, 60);
    ASSERT_TRUE(read->measured.has_value());
    EXPECT_EQ(read->measured->ranks, 2);
    for (const auto& [bytes, seconds] : box.measured->all_reduce) {
        EXPECT_NEAR(read->measured->all_reduce.at(bytes), seconds, 1e-6 * seconds);
    }
    EXPECT_NEAR(read->measured->products.at(DType::kQ8_0).at(100), 400e9, 1e4);
    EXPECT_NEAR(read->measured->step.value, 50e-6, 1e-12);
    EXPECT_EQ(read->wire, "measured");
    ASSERT_TRUE(read->measured->hop.has_value());
    EXPECT_NEAR(read->measured->hop->value, 7e-6, 1e-12);
}

TEST(Measured, WhatIsWrongIsSaid) {
    const std::string text = MachineFileText(MeasuredBox());
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = text;
        const size_t at = changed.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return changed.replace(at, from.size(), to);
    };
    for (const auto& [wrong, words] : std::initializer_list<std::pair<std::string, const char*>>{
             {with("\"Q8_0\"", "\"Q9_0\""), "'Q9_0' is no type of weights"},
             {with("\"1024\"", "\"0\""), "'0': expected a whole number above 0"},
             {with("\"1024\"", "\"many\""), "'many': expected a whole number"},
             {with("\"80 GFLOP/s\"", "\"80 GB/s\""), "'80 GB/s' is no quantity"},
             {with("\"ranks\": 2,\n    \"op\"", "\"ranks\": 0,\n    \"op\""), "ranks: expected"},
             {with("\"cache\"", "\"cash\""), "cache: missing"},
             {with("\"sync\"", "\"sink\""), "unknown key 'sink'"}}) {
        const auto machine = ParseMachine(wrong, "box", "box.json");
        ASSERT_FALSE(machine.ok()) << words;
        EXPECT_EQ(machine.error().code, ErrorCode::kUsage);
        EXPECT_NE(machine.error().message.find(words), std::string::npos)
            << machine.error().message;
    }
}

// Worked out by hand: every product by its table, every other op its overhead, a step its own.
TEST(Measured, TablesWin) {
    const auto shape = OpenWalk("llama-3.1-8b:q8_0");
    ASSERT_TRUE(shape.ok());
    const Library library = *Library::Open();
    Cluster cluster;
    cluster.hosts = {MeasuredBox()};
    cluster.wire = *cluster.hosts[0].own_wire;
    const auto predict = [&](const char* runtime, int tp) {
        model::Layout layout;
        layout.tp = tp;
        auto p = Predict(shape->walk, cluster, *library.FindRuntime(runtime), layout,
                         {.context = 64, .prompt = 512});
        EXPECT_TRUE(p.ok()) << p.error().message;
        return *std::move(p);
    };
    const Prediction one = predict("weft", 1);
    const double weights = 8.03e9 - 128256.0 * 4096;
    EXPECT_NEAR(one.token.weights * 80e9 / (2 * weights), 1, 0.02);
    EXPECT_NEAR(one.prompt.compute * 400e9 / (2 * weights * 512), 1, 0.15);
    const Prediction two = predict("weft", 2);
    const double sums = 64;
    EXPECT_NEAR(two.token.sync, sums * 1e-6, 2e-6);
    // The logits are gathered, which was not measured.
    const double gather = coll::AllGatherSeconds(cluster.GroupOf(0, 2), 128256.0 * 4);
    const double sum = *cluster.hosts[0].measured->AllReduceSeconds(2, 8.0 * 4096);  // of doubles
    EXPECT_NEAR(two.token.wire / (sums * sum + gather), 1, 0.03);
    // Another program's overheads are its own.
    cluster.hosts[0].measured->op = Fig(1);
    EXPECT_GT(predict("weft", 1).token.overhead, 1);
    EXPECT_LT(predict("vllm", 1).token.overhead, 0.1);
}

// Three stages whose clocks are far apart, each of 100 us, and messages of 5 us: those are told.
TEST(OpTimesTest, AMessageBetweenStages) {
    std::vector<std::string> traces(3);
    const auto add = [&](int stage, int64_t step, const char* name, double begin, double took) {
        std::string& trace = traces[static_cast<size_t>(stage)];
        trace +=
            fmt::format(R"({}{{"name":"{}","ts":{:.3f},"dur":{:.3f},"args":{{"op":0,"step":{}}}}})",
                        trace.empty() ? "" : ",", name, begin, took, step);
    };
    for (int64_t step = 1; step <= 8; ++step) {
        const double at = 1e6 * static_cast<double>(step), late = step == 3 ? 4000 : 0;
        add(0, step, "mat_mul x", at, 100);
        add(0, step, "send x", at + 100, 1);
        add(0, step, "recv logits", at + 101, 214 + late);  // to at + 315
        for (int stage = 1; stage < 3; ++stage) {
            const double own = at * stage + 5e8 * stage;
            add(stage, step, "recv received", own, 5);
            add(stage, step, "mat_mul x", own + 5, 100);
            add(stage, step, stage == 1 ? "send x" : "send logits", own + 105, 1);
        }
    }
    const auto hop = HopSeconds(traces, 1, 8);
    ASSERT_TRUE(hop.ok()) << hop.error().message;
    EXPECT_NEAR(*hop, 5e-6, 1e-9);
    EXPECT_FALSE(HopSeconds(traces, 20, 30).ok());
    EXPECT_FALSE(HopSeconds({traces[0], "", traces[2]}, 1, 8).ok());
    EXPECT_FALSE(HopSeconds({"{"}, 1, 8).ok());
}

// Timelines as ranks write them.
TEST(OpTimesTest, AreThoseOfTheSlowestRank) {
    const auto shape = OpenWalk("llama-3.2-1b:q8_0");
    ASSERT_TRUE(shape.ok());
    const auto plan = model::PlanShards(shape->walk.hyper(), *shape->source, {2, 1, {}, {}, 0});
    ASSERT_TRUE(plan.ok());
    const auto program =
        model::BuildProgram(shape->walk.hyper(), plan->shards[0], *shape->source, {});
    ASSERT_TRUE(program.ok());
    const auto ops = static_cast<int32_t>(program->ops.size());
    // Each op takes 1 us, of the second rank 2 us, and 1 us lies between them; step 7 is slow.
    std::vector<std::string> traces(2);
    for (int rank = 0; rank < 2; ++rank) {
        for (int64_t number = 4; number < 8; ++number) {
            const int64_t ns = (number == 7 ? 50'000 : 1000) * (rank + 1);
            std::vector<backend::OpTiming> timings;
            for (int32_t op = 0; op < ops; ++op) {
                const int64_t begin_ns = number * 1'000'000'000 + op * (ns + 1000);
                timings.push_back({op, begin_ns, begin_ns + ns, 0});
            }
            engine::AppendTrace(*program, number, timings, rank, traces[static_cast<size_t>(rank)]);
        }
    }
    const auto times = OpTimes::Read(*program, traces);
    ASSERT_TRUE(times.ok()) << times.error().message;
    const program::StepShape token{1, 1, 1, 0};
    int products = 0, sums = 0;
    for (const program::Op& op : program->ops) {
        products += op.kind() == program::OpKind::kMatMul;
        sums += op.kind() == program::OpKind::kAllReduce;
    }
    double seconds = 0, bytes = 0;
    for (const auto& [key, work] : times->Products(token, 4, 7)) {
        EXPECT_EQ(key.second, 1);
        seconds += work.seconds;
        bytes += work.bytes;
    }
    EXPECT_NEAR(seconds, products * 2e-6, 1e-9);
    EXPECT_NEAR(bytes, 1.24e9 / 2 * 34 / 32, 0.03e9);
    // Of a sum the rank that came last.
    EXPECT_NEAR(times->SumsOf(token, 4, 7).seconds, 1e-6, 1e-12);
    const OpTimes::Rest rest = times->RestOf(4, 7);
    EXPECT_NEAR(rest.seconds, rest.ops * 2e-6 + (ops - 1) * 1e-6, 1e-9);
    EXPECT_NEAR(rest.gap_s, 1 - (ops * 2e-6 - 1e-6), 1e-6);
    EXPECT_LE(rest.ops, ops - products - sums);
    EXPECT_NEAR(times->RestOf(7, 7).seconds, rest.ops * 100e-6 + (ops - 1) * 1e-6, 1e-9);
    const auto wrong =
        OpTimes::Read(*program, {R"({"ts":0,"dur":1,"args":{"op":99999,"step":1}})"});
    ASSERT_FALSE(wrong.ok());
    EXPECT_NE(wrong.error().message.find("names op 99999"), std::string::npos);
}

// Two ranks that are held up in turn, each step at another op: while one is, the other waits in the
// next sum. What ops leave of a step knows nothing of it, nor does the cost of a sum.
TEST(OpTimesTest, WaitsForEachOtherAreNoOverhead) {
    const auto shape = OpenWalk("llama-3.2-1b:q8_0");
    ASSERT_TRUE(shape.ok());
    const auto plan = model::PlanShards(shape->walk.hyper(), *shape->source, {2, 1, {}, {}, 0});
    const auto program =
        model::BuildProgram(shape->walk.hyper(), plan->shards[0], *shape->source, {});
    ASSERT_TRUE(program.ok());
    std::vector<int32_t> sums, products;
    for (size_t op = 0; op < program->ops.size(); ++op) {
        const program::OpKind kind = program->ops[op].kind();
        if (kind == program::OpKind::kAllReduce) sums.push_back(static_cast<int32_t>(op));
        if (kind == program::OpKind::kMatMul) products.push_back(static_cast<int32_t>(op));
    }
    constexpr int64_t kLate = 4'000'000;
    std::vector<std::string> traces(2);
    for (int64_t number = 1; number <= 20; ++number) {
        const int32_t slow = products[static_cast<size_t>(number) % (products.size() - 1)];
        const auto next = std::ranges::upper_bound(sums, slow);
        const int32_t sum = next == sums.end() ? sums.back() : *next;
        for (int rank = 0; rank < 2; ++rank) {
            std::vector<backend::OpTiming> timings;
            int64_t at = number * 1'000'000'000;
            for (int32_t op = 0; op < static_cast<int32_t>(program->ops.size()); ++op) {
                const bool late = number % 2 == rank ? op == slow : op == sum;
                const int64_t ns = 1000 + (late ? kLate : 0);
                timings.push_back({op, at, at + ns, 0});
                at += ns;
            }
            engine::AppendTrace(*program, number, timings, rank, traces[static_cast<size_t>(rank)]);
        }
    }
    const auto times = OpTimes::Read(*program, traces);
    ASSERT_TRUE(times.ok()) << times.error().message;
    const OpTimes::Rest rest = times->RestOf(1, 20);
    EXPECT_NEAR(rest.seconds, rest.ops * 1e-6, 1e-9);
    EXPECT_NEAR(times->SumsOf({1, 1, 1, 0}, 1, 20).seconds, 1e-6, 1e-9);
}

}  // namespace
}  // namespace weft::plan
