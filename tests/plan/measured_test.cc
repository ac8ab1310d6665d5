// Tables of measurements: read, looked up and written, and their effect on a prediction.
#include "plan/measured.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "engine/rank/trace.h"
#include "plan/measure.h"
#include "plan/op_times.h"
#include "plan/predict.h"
#include "plan/search.h"
#include "plan/shapes.h"

namespace weft::plan {
namespace {

Figure Fig(double value) {
    return {value, Mark::kMeasured, "here"};
}

const coll::TierGroup kPair{2, 1, {}, {}};  // as MeasuredBox was measured

Machine MeasuredBox() {
    Machine machine;
    machine.name = "box";
    machine.about = "a box";
    machine.pool = backend::MemoryKind::kHost;
    machine.devices = 2;
    machine.memory = Fig(32e9);
    machine.bandwidth = Fig(50e9);
    machine.compute = Fig(400e9);
    machine.within = LinkTier{2, Fig(10e9), Fig(1e-6)};
    machine.wire = "measured";
    machine.own_wire = Wire{"measured", "tcp", "", Fig(1e9), Fig(30e-6), {}};
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
    m.all_gather = {{4096, 4e-6}};
    m.reduce_scatter = {{4096, 6e-6}};
    m.cores = 1;
    m.rest = Fig(10e9);
    m.scores = Fig(70e9);
    m.positions = 40;
    m.experts[DType::kQ8_0] = {{1, 60e9}, {2.3, 90e9}};
    m.kv[DType::kQ8_0] = {Fig(30e9), Fig(90e9)};
    MeasuredRates& alone = m.alone.emplace(m);
    alone.products[DType::kQ8_0] = {{1, 160e9}, {100, 400e9}};
    alone.op = Fig(1e-6);
    TrainingRates& training = m.training[DType::kBF16];
    training.ops[program::OpKind::kMatMul] = {{128, 100e9}, {512, 200e9}};
    training.ops[program::OpKind::kRmsNorm] = {{128, 5e9}};
    training.update = Fig(7e9);
    training.step = Fig(3e-3);
    return machine;
}

// A llama of 8 B in Q8_0 on a box.
struct BoxCase {
    OpenedShape shape = *OpenWalk("llama-3.1-8b:q8_0");
    ClusterSpec cluster;
    BoxCase() {
        cluster.hosts = {MeasuredBox()};
        cluster.wire = *cluster.hosts[0].own_wire;
    }
    Prediction Predict(int tp, int pp, const Workload& load) const {
        auto p = plan::Predict(shape.walk, cluster, {tp, pp, {}, {}, 0}, load);
        EXPECT_TRUE(p.ok()) << p.error().message;
        return *std::move(p);
    }
};

TEST(Measured, IsLookedUp) {
    const Measured m = *MeasuredBox().measured;
    EXPECT_EQ(m.ProductFlops(DType::kQ8_0, 1), 80e9);
    EXPECT_NEAR(*m.ProductFlops(DType::kQ8_0, 10), std::sqrt(80e9 * 400e9), 1);
    EXPECT_EQ(m.ProductFlops(DType::kQ8_0, 512), 400e9);
    EXPECT_FALSE(m.ProductFlops(DType::kBF16, 1));
    EXPECT_EQ(m.ProductFlops(DType::kQ4_0, 1), 100e9);
    EXPECT_FALSE(m.ProductFlops(DType::kQ4_0, 64)) << "one row says nothing of many";
    EXPECT_EQ(m.AllReduceSeconds(kPair, 64), 5e-6);
    EXPECT_NEAR(*m.AllReduceSeconds(kPair, 8192), std::sqrt(5e-6 * 50e-6), 1e-12);
    EXPECT_DOUBLE_EQ(*m.AllReduceSeconds(kPair, 131072), 100e-6);
    EXPECT_FALSE(m.AllReduceSeconds({3, 1, {}, {}}, 1024));
    EXPECT_FALSE(m.AllReduceSeconds({2, 2, {}, {}}, 1024)) << "of ranks on one host";
    EXPECT_EQ(m.AllGatherSeconds(kPair, 4096), 4e-6);
    EXPECT_EQ(m.ReduceScatterSeconds(kPair, 8192), 12e-6);
    EXPECT_FALSE(m.ReduceScatterSeconds({4, 1, {}, {}}, 4096));
    EXPECT_EQ(m.ExpertFlops(DType::kQ8_0, 1), 60e9);
    EXPECT_EQ(m.ExpertFlops(DType::kQ4_0, 1), 100e9) << "where experts were not measured";
    EXPECT_EQ(m.CacheRate(DType::kQ8_0), 30e9);
    EXPECT_EQ(m.CacheRate(DType::kF16), 20e9);
    EXPECT_EQ(m.AttentionFlops(DType::kQ8_0), 90e9);
    const TrainingRates& training = m.training.at(DType::kBF16);
    EXPECT_NEAR(*training.Rate(program::OpKind::kMatMul, 256), std::sqrt(2) * 100e9, 1);
    EXPECT_FALSE(training.Rate(program::OpKind::kGlu, 256));
}

TEST(Measured, AFileIsReadAsItWasWritten) {
    const Machine box = MeasuredBox();
    const std::string text = MachineFileText(box);
    const auto read = ParseMachine(text, "box", "box.json");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_EQ(MachineFileText(*read), text);
    const Measured &was = *box.measured, &is = *read->measured;
    EXPECT_EQ(read->bandwidth.mark, Mark::kMeasured);
    EXPECT_EQ(is.positions, 40);
    EXPECT_EQ(is.products, was.products);
    EXPECT_EQ(is.experts, was.experts);
    EXPECT_EQ(is.alone->products, was.alone->products);
    EXPECT_EQ(is.training.at(DType::kBF16).ops, was.training.at(DType::kBF16).ops);
    for (const auto& [value, expected] : {std::pair(is.step.value, 50e-6),
                                          {is.hop->value, 7e-6},
                                          {is.rest->value, 10e9},
                                          {is.scores->value, 70e9},
                                          {is.kv.at(DType::kQ8_0).attention.value, 90e9},
                                          {is.alone->op.value, 1e-6},
                                          {is.alone->cache.value, 20e9},
                                          {is.training.at(DType::kBF16).update.value, 7e9},
                                          {is.all_reduce.at(1024), 5e-6},
                                          {is.all_gather.at(4096), 4e-6},
                                          {is.reduce_scatter.at(4096), 6e-6},
                                          {read->own_wire->latency.value, 30e-6},
                                          {read->watts_busy->value, 60.0}}) {
        EXPECT_NEAR(value / expected, 1, 1e-6) << expected;
    }
}

// As files of before there were other tables.
TEST(Measured, AnOldFileIsRead) {
    Machine box = MeasuredBox();
    Measured old;
    old.ranks = 2;
    old.products = box.measured->products;
    old.op = old.step = old.sync = Fig(1e-6);
    old.cache = Fig(20e9);
    old.attention = Fig(100e9);
    old.all_reduce = box.measured->all_reduce;
    box.measured = old;
    const auto read = ParseMachine(MachineFileText(box), "box", "box.json");
    ASSERT_TRUE(read.ok()) << read.error().message;
    EXPECT_FALSE(read->measured->alone);
    EXPECT_FALSE(read->measured->rest);
    EXPECT_FALSE(read->measured->cores);
    EXPECT_TRUE(read->measured->training.empty());
}

TEST(Measured, InvalidFilesAreNamed) {
    const std::string text = MachineFileText(MeasuredBox());
    const auto with = [&](const std::string& from, const std::string& to) {
        std::string changed = text;
        const size_t at = changed.find(from);
        EXPECT_NE(at, std::string::npos) << from;
        return changed.replace(at, from.size(), to);
    };
    for (const auto& [wrong, words] : std::initializer_list<std::pair<std::string, const char*>>{
             {with("\"Q8_0\"", "\"Q9_0\""), "'Q9_0' is no type"},
             {with("\"1024\"", "\"0\""), "'0': expected a number above 0"},
             {with("\"1024\"", "\"many\""), "'many': expected a number above 0"},
             {with("\"1024\"", "\"inf\""), "'inf': expected a number above 0"},
             {with("\"mat_mul\"", "\"mat_mull\""), "'mat_mull' is no op"},
             {with("\"5 GB/s\"", "\"5 GFLOP/s\""), "'5 GFLOP/s' is not a quantity"},
             {with("\"update\"", "\"updates\""), "update: missing"},
             {with("\"alone\"", "\"lonely\""), "unknown key 'lonely'"},
             {with("\"experts\"", "\"expert\""), "unknown key 'expert'"},
             {with("\"BF16\"", "\"BF17\""), "'BF17' is no type"},
             {with("\"80 GFLOP/s\"", "\"80 GB/s\""), "'80 GB/s' is not a quantity"},
             {with("\"ranks\": 2,\n    \"cores\"", "\"ranks\": 0,\n    \"cores\""),
              "ranks: expected"},
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
    const BoxCase box;
    const auto predict = [&](int tp) { return box.Predict(tp, 1, {.context = 64, .prompt = 512}); };
    const Prediction one = predict(1);
    const double weights = 8.03e9 - 128256.0 * 4096;
    EXPECT_NEAR(one.token.weights * 160e9 / (2 * weights), 1, 0.02) << "alone";
    EXPECT_NEAR(one.prompt.compute * 400e9 / (2 * weights * 512), 1, 0.15);
    const Prediction two = predict(2);
    EXPECT_NEAR(two.token.weights * 80e9 / weights, 1, 0.02);
    const double sums = 64;
    EXPECT_NEAR(two.token.sync, sums * 1e-6, 2e-6);
    const double gather = *box.cluster.hosts[0].measured->AllGatherSeconds(kPair, 128256.0 * 4);
    const double sum =
        *box.cluster.hosts[0].measured->AllReduceSeconds(kPair, 8.0 * 4096);  // of doubles
    EXPECT_NEAR(two.token.wire / (sums * sum + gather), 1, 0.03);
}

// Tables measured on one host do not apply to ranks that a wire connects, and a wire's tables do
// not apply to another wire.
TEST(Measured, TablesCountForTheirOwnLinksOnly) {
    const std::string path = ::testing::TempDir() + "/measured-links.json";
    const auto time = [&](int devices, const std::string& machines) {
        Machine box = MeasuredBox();
        box.devices = devices;
        for (auto& [size, seconds] : box.measured->all_reduce) seconds = 1;  // as no link is
        const std::string text = MachineFileText(box);
        EXPECT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
        const OpenedShape shape = *OpenWalk("llama-3.1-8b:q8_0");
        const auto cluster = Library::Open()->ParseCluster(machines);
        EXPECT_TRUE(cluster.ok()) << cluster.error().message;
        const auto p = Predict(shape.walk, *cluster, {2, 1, {}, {}, 0}, {.context = 64});
        EXPECT_TRUE(p.ok()) << p.error().message;
        return p->token.wire;
    };
    const double sums = 64;
    EXPECT_GE(time(2, path), sums) << "two ranks of a host, as measured";
    EXPECT_GE(time(1, "2x" + path), sums) << "two hosts, as measured";
    EXPECT_LT(time(2, "2x" + path + ":1"), sums) << "two hosts with one of their ranks";
    EXPECT_LT(time(1, "2x" + path + ",roce"), sums) << "another wire";
    EXPECT_LT(time(1, path + ":2"), sums) << "two ranks of a host";
    EXPECT_LT(time(1, path + "+strix-halo,roce"), sums);
}

// A network whose collectives are five times as slow as computed: the gain of half the latency
// equals that on a cluster without tables.
TEST(Measured, QuestionsCompareComputedTimes) {
    BoxCase box;
    Machine& host = box.cluster.hosts[0];
    host.devices = 1;
    host.measured->hosts = 2;
    for (auto* curve : {&host.measured->all_gather, &host.measured->reduce_scatter}) curve->clear();
    box.cluster.hosts.push_back(host);
    const coll::TierGroup pair = box.cluster.GroupOf(0, 2);
    const auto asked = [&](double times) {
        for (Machine& its : box.cluster.hosts) {
            its.measured->all_reduce.clear();
            for (double bytes = 1024; times > 0 && bytes < 1e9; bytes *= 4) {
                its.measured->all_reduce[bytes] =
                    times * coll::AllReduceSeconds(pair, coll::Algorithm::kAuto, bytes);
            }
        }
        auto plan = Search(box.shape.walk, box.cluster, *Library::Open(), {});
        EXPECT_TRUE(plan.ok()) << plan.error().message;
        return *std::move(plan);
    };
    const Plan computed = asked(0), measured = asked(5);
    EXPECT_EQ(measured.layouts[0].name, "tp2");
    EXPECT_GT(measured.layouts[0].answer_s, 1.02 * computed.layouts[0].answer_s);
    ASSERT_EQ(measured.what_if.size(), computed.what_if.size());
    ASSERT_EQ(measured.what_if[0].words, "half the latency");
    for (size_t i = 0; i < measured.what_if.size(); ++i) {
        const WhatIf& then = measured.what_if[i];
        EXPECT_EQ(then.gain, computed.what_if[i].gain) << then.words;
        EXPECT_NEAR(then.answer_s * (1 + then.gain) / measured.layouts[0].answer_s, 1, 1e-9);
    }
}

TEST(Measured, AttentionOfARowIsTheSumOfItsParts) {
    for (const int64_t context : {63, 1023}) {
        const Prediction p = BoxCase().Predict(1, 1, {.context = context, .prompt = 64});
        const double seen = static_cast<double>(context + 1), layers = 32;
        // (The row's own heads are read and written, too.)
        const double bytes = seen * 4096 + 2 * 16384 + 2 * 4096 + 4096;
        const double flops = seen * 32 * (4 * 128 + 4);
        const double each = (bytes / 20e9 + flops / 70e9) * (1 + 40 / seen);
        EXPECT_NEAR(p.token.cache / (layers * each), 1, 0.01) << context;
    }
}

// Stages that take turns have the bandwidth of one rank; with two steps in flight, of all ranks.
TEST(Measured, StagesThatWaitAreAlone) {
    const auto seconds = [](int64_t batch, int64_t flights) {
        Workload load{.context = 64, .batch = batch, .prompt = 512};
        load.flights = flights;
        return BoxCase().Predict(1, 2, load).token.weights;
    };
    const double weights = 2 * (8.03e9 - 128256.0 * 4096);
    EXPECT_NEAR(seconds(1, 0) * 160e9 / weights, 1, 0.02);
    // Two rows at once: between what one and a hundred have.
    const double two_rows = 160e9 * std::pow(2.5, std::log(2) / std::log(100));
    EXPECT_NEAR(seconds(2, 1) * two_rows / (2 * weights), 1, 0.02) << "one step at a time";
    // A row in each of two stages at a time, the slower of which has the logits.
    EXPECT_NEAR(seconds(2, 0) * 80e9 / weights, 1, 0.06) << "two steps at once";
}

// Three stages of 100 us with clocks far apart, and messages of 5 us: finds a message's time.
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

Result<program::Program> OneOfTwoRanks() {
    const auto shape = OpenWalk("llama-3.2-1b:q8_0");
    const auto plan = model::PlanShards(shape->walk.hyper(), *shape->source, {2, 1, {}, {}, 0});
    return model::BuildProgram(shape->walk.hyper(), plan->shards[0], *shape->source, {});
}

// Timelines as ranks write them.
TEST(OpTimesTest, AreThoseOfTheSlowestRank) {
    const auto program = OneOfTwoRanks();
    ASSERT_TRUE(program.ok());
    const auto ops = static_cast<int32_t>(program->ops.size());
    // Each op takes 1 us (on the second rank 2 us), with 1 us between two ops; step 7 is slow.
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
    for (const auto& [key, work] : times->Products({4, 7, token})) {
        EXPECT_EQ(key.second, 1);
        seconds += work.seconds;
        bytes += work.bytes;
    }
    EXPECT_NEAR(seconds, products * 2e-6, 1e-9);
    EXPECT_NEAR(bytes, 1.24e9 / 2 * 34 / 32, 0.03e9);
    // A sum's time is that of the rank that began it last.
    EXPECT_NEAR(times->SumsOf({4, 7, token}).seconds, 1e-6, 1e-12);
    const OpTimes::Rest rest = times->RestOf({4, 7, token});
    EXPECT_NEAR(rest.seconds, rest.ops * 2e-6 + (ops - 1) * 1e-6, 1e-9);
    EXPECT_NEAR(rest.gap_s, 1 - (ops * 2e-6 - 1e-6), 1e-6);
    EXPECT_LE(rest.ops, ops - products - sums);
    EXPECT_NEAR(times->RestOf({7, 7, token}).seconds, rest.ops * 100e-6 + (ops - 1) * 1e-6, 1e-9);
    const auto wrong =
        OpTimes::Read(*program, {R"({"ts":0,"dur":1,"args":{"op":99999,"step":1}})"});
    ASSERT_FALSE(wrong.ok());
    EXPECT_NE(wrong.error().message.find("names op 99999"), std::string::npos);
}

// Two ranks that are delayed in turn, at another op in each step; meanwhile the other waits in the
// next sum. Neither a step's time outside ops nor the cost of a sum includes the delays.
TEST(OpTimesTest, WaitsForEachOtherAreNoOverhead) {
    const auto program = OneOfTwoRanks();
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
    const OpTimes::Rest rest = times->RestOf({1, 20, {}});
    EXPECT_NEAR(rest.seconds, rest.ops * 1e-6, 1e-9);
    EXPECT_NEAR(times->SumsOf({1, 20, {1, 1, 1, 0}}).seconds, 1e-6, 1e-9);
}

}  // namespace
}  // namespace weft::plan
