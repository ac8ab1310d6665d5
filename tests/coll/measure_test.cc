// Measuring: statistics against a plain definition, links and collectives over local meshes, the
// count of wrong data, and a stop request that ends the measurement.
#include "coll/measure.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "coll/autotune.h"
#include "coll/link_probe.h"
#include "support/ranks.h"
#include "support/wait.h"

namespace weft::coll {
namespace {

constexpr int64_t kMeasureTimeoutMs = 20'000;
constexpr size_t kMeasureWindow = size_t{1} << 20;

std::unique_ptr<Comm> CommOver(net::Fabric& fabric) {
    std::vector<int> everyone(static_cast<size_t>(fabric.size));
    std::iota(everyone.begin(), everyone.end(), 0);
    return Comm::Make(fabric, everyone, {.window_bytes = kMeasureWindow}, kMeasureTimeoutMs)
        .value();
}

TEST(Timings, AreThoseOfTheSortedSamples) {
    std::mt19937 random(7);
    for (size_t count : {1, 2, 3, 99, 100, 101, 1000, 2500}) {
        std::vector<float> samples(count);
        for (float& us : samples) us = static_cast<float>(random() % 10'000) / 16;
        std::vector<float> sorted = samples;
        std::ranges::sort(sorted);
        const Timings t = Summarize(samples);
        EXPECT_EQ(t.iterations, static_cast<int64_t>(count));
        EXPECT_EQ(t.min_us, sorted.front());
        EXPECT_EQ(t.max_us, sorted.back());
        // The definition of a percentile: enough samples are not larger, and fewer than enough are
        // smaller.
        const auto holds = [&](double us, double part) {
            const auto below = std::ranges::count_if(sorted, [&](float s) { return s <= us; });
            const auto under = std::ranges::count_if(sorted, [&](float s) { return s < us; });
            const double wanted = part * static_cast<double>(count);
            EXPECT_GE(static_cast<double>(below), wanted - 1e-6);
            EXPECT_LT(static_cast<double>(under), wanted + 1e-6);
        };
        holds(t.typical_us, 0.5);
        holds(t.p99_us, 0.99);
        holds(t.p999_us, 0.999);
        double sum = 0, squares = 0;
        for (float us : sorted) sum += us;
        const double mean = sum / static_cast<double>(count);
        for (float us : sorted) squares += (us - mean) * (us - mean);
        EXPECT_LE(std::abs(t.average_us - mean), 1e-9 * mean);
        EXPECT_LE(std::abs(t.stdev_us - std::sqrt(squares / static_cast<double>(count))),
                  1e-6 * mean);
    }
    EXPECT_EQ(Summarize({}).iterations, 0);
}

TEST(Budget, GivesIterations) {
    EXPECT_EQ(IterationsFor({.iterations = 7}, 100.0), 7);
    EXPECT_EQ(IterationsFor({.iterations = 1 << 30}, 1e-6), kMostIterations);
    EXPECT_EQ(IterationsFor({.seconds = 1}, 0.01), 100);
    EXPECT_EQ(IterationsFor({.seconds = 1}, 0.1), kLeastIterations);
    EXPECT_EQ(IterationsFor({.seconds = 1}, 10.0), 1);
    EXPECT_EQ(IterationsFor({.seconds = 1}, 0.0), kMostIterations);
    const int64_t ago_ns = NowNs() - 6'000'000'000;
    EXPECT_TRUE(IsSpent({.seconds = 1}, ago_ns));
    EXPECT_FALSE(IsSpent({.seconds = 30}, ago_ns));
    EXPECT_FALSE(IsSpent({.iterations = 7, .seconds = 1}, ago_ns));
}

class Links : public testing::TestWithParam<net::Transport> {};

TEST_P(Links, AreProbedAndTheirBytesChecked) {
    auto fabrics = net::MakeLocalFabrics(2, GetParam(), kMeasureWindow).value();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        const bool lead = fabric.rank == 0;
        LinkProbe probe(*fabric.links[lead ? 1 : 0], nullptr, kMeasureTimeoutMs);
        // Twice, and in both directions: flags continue from their last values.
        for (size_t bytes : {size_t{1}, size_t{7}, size_t{64}, size_t{5000}, kMeasureWindow / 2,
                             LinkProbe::MostBytes(kMeasureWindow)}) {
            const auto latency = probe.Latency(bytes, {.iterations = 5}, lead);
            ASSERT_TRUE(latency.ok()) << latency.error().message;
            EXPECT_EQ(latency->iterations, lead ? 5 : 0);
            EXPECT_EQ(latency->min_us > 0, lead);
            for (bool leads : {lead, !lead}) {
                const auto bandwidth = probe.Stream(bytes, {.iterations = 301}, leads);
                ASSERT_TRUE(bandwidth.ok()) << bandwidth.error().message;
                EXPECT_EQ(bandwidth->iterations, leads ? 301 : 0);
                EXPECT_EQ(bandwidth->average_bytes_s > 0, leads);
                EXPECT_GE(bandwidth->peak_bytes_s, bandwidth->average_bytes_s);
            }
        }
        EXPECT_EQ(probe.TakeErrors(), 0);
        const auto large = probe.Latency(kMeasureWindow, {.iterations = 1}, lead);
        ASSERT_FALSE(large.ok());
        EXPECT_EQ(large.error().code, ErrorCode::kUsage);
    });
}

INSTANTIATE_TEST_SUITE_P(Transports, Links,
                         testing::Values(net::Transport::kShm, net::Transport::kTcp));

// A link that does what another one does.
class OtherLink : public net::Link {
  public:
    explicit OtherLink(net::Link& link) : link_(link) {}
    const net::PeerName& peer() const override { return link_.peer(); }
    size_t window_bytes() const override { return link_.window_bytes(); }
    std::span<std::byte> window() override { return link_.window(); }
    uint64_t flag(int index) const override { return link_.flag(index); }
    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const net::OpTag& tag, const Deadline& deadline) override {
        return link_.Put(offset, head, data, flag, value, tag, deadline);
    }
    Status Wait(int flag, uint64_t value, const net::OpTag& tag,
                const Deadline& deadline) override {
        return link_.Wait(flag, value, tag, deadline);
    }

  private:
    net::Link& link_;
};

// A link that changes a byte of each put before it sends it.
class WrongLink final : public OtherLink {
  public:
    using OtherLink::OtherLink;
    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const net::OpTag& tag, const Deadline& deadline) override {
        std::vector<std::byte> bytes(data.begin(), data.end());
        if (!bytes.empty()) bytes[bytes.size() / 2] ^= std::byte{4};
        return OtherLink::Put(offset, head, bytes, flag, value, tag, deadline);
    }
};

// A link whose core another program occupies after the first puts.
class CrowdedLink final : public OtherLink {
  public:
    using OtherLink::OtherLink;
    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const net::OpTag& tag, const Deadline& deadline) override {
        if (++puts_ > 200) test::Pace(5'000).Next();
        return OtherLink::Put(offset, head, data, flag, value, tag, deadline);
    }
    int puts() const { return puts_; }

  private:
    int puts_ = 0;
};

TEST(LinkProbe, CountsWrongBytes) {
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, kMeasureWindow).value();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        const bool lead = fabric.rank == 0;
        WrongLink wrong(*fabric.links[lead ? 1 : 0]);
        LinkProbe probe(lead ? wrong : *fabric.links[lead ? 1 : 0], nullptr, kMeasureTimeoutMs);
        ASSERT_TRUE(probe.Latency(1000, {.iterations = 3}, lead).ok());
        EXPECT_EQ(probe.TakeErrors() > 0, !lead);
        ASSERT_TRUE(probe.Stream(1000, {.iterations = 3}, lead).ok());
        EXPECT_EQ(probe.TakeErrors() > 0, !lead);
        EXPECT_EQ(probe.TakeErrors(), 0);
    });
}

// The number of rounds that the first ones' time suggests for the budget would take minutes.
TEST(LinkProbe, EndsSoonWhereItsCoreIsTaken) {
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, kMeasureWindow).value();
    const int64_t begin_ns = NowNs();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        const bool lead = fabric.rank == 0;
        CrowdedLink crowded(*fabric.links[lead ? 1 : 0]);
        LinkProbe probe(lead ? crowded : *fabric.links[lead ? 1 : 0], nullptr, kMeasureTimeoutMs);
        const auto latency = probe.Latency(8, {.seconds = 0.05}, lead);
        ASSERT_TRUE(latency.ok()) << latency.error().message;
        EXPECT_EQ(latency->iterations > 0, lead);
        ASSERT_TRUE(probe.Stream(8, {.seconds = 0.05}, lead).ok());
    });
    EXPECT_LT(SecondsSince(begin_ns), 60);
}

TEST(Measure, EndsSoonWhereItsCoreIsTaken) {
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, kMeasureWindow).value();
    const int64_t begin_ns = NowNs();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        const size_t other = fabric.rank == 0 ? 1 : 0;
        const auto link = std::move(fabric.links[other]);
        auto crowded = std::make_unique<CrowdedLink>(*link);
        const CrowdedLink& counting = *crowded;
        fabric.links[other] = std::move(crowded);
        const auto comm = CommOver(fabric);
        const auto figures =
            Measure(*comm, {Collective::kAllReduce, 64, {}}, {.seconds = 0.05}, nullptr);
        ASSERT_TRUE(figures.ok()) << figures.error().message;
        EXPECT_GT(figures->timings.iterations, 0);
        EXPECT_EQ(figures->errors, 0);
        EXPECT_GT(counting.puts(), 0);
    });
    EXPECT_LT(SecondsSince(begin_ns), 60);
}

TEST(Measure, ChecksEveryCollective) {
    for (int ranks : {2, 3, 5}) {
        auto fabrics = net::MakeLocalFabrics(ranks, net::Transport::kShm, kMeasureWindow).value();
        test::OnThreads(fabrics, [ranks](net::Fabric& fabric) {
            const auto comm = CommOver(fabric);
            for (Collective collective : kCollectives) {
                for (size_t wholes : {size_t{1}, size_t{37}, size_t{9000}}) {
                    const size_t bytes = wholes * WholeBytes(collective, ranks);
                    const auto figures =
                        Measure(*comm, {collective, bytes, {}}, {.iterations = 2}, nullptr);
                    ASSERT_TRUE(figures.ok()) << figures.error().message;
                    EXPECT_EQ(figures->errors, 0) << CollectiveName(collective) << bytes;
                    EXPECT_EQ(figures->timings.iterations, 2);
                }
            }
            for (Algorithm algorithm : kAlgorithms) {
                for (WireType wire : kWires) {
                    const Question question{Collective::kAllReduce, 4444, {algorithm, wire}};
                    const auto figures = Measure(*comm, question, {.iterations = 1}, nullptr);
                    ASSERT_TRUE(figures.ok()) << figures.error().message;
                    EXPECT_EQ(figures->errors, 0) << AlgorithmName(algorithm) << WireName(wire);
                }
            }
        });
    }
}

// The ranks compute as often as they sum, so that no rank waits for a sum that another one skips.
TEST(Series, AlternatesWithComputing) {
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, kMeasureWindow).value();
    std::array<int, 2> computed{};
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const auto comm = CommOver(fabric);
        int& own = computed[static_cast<size_t>(fabric.rank)];
        const auto compute = [&] {
            ++own;
            return Status();
        };
        for (const double seconds : {0.0, 0.02}) {
            const auto series =
                MeasureSeries(*comm, {.bytes = 4096, .compute = compute, .seconds = seconds});
            ASSERT_TRUE(series.ok()) << series.error().message;
            EXPECT_GT(series->mean_us, 0);
            EXPECT_FALSE(!(series->error_us >= 0 && series->error_us <= 1e7));
            if (seconds == 0) {
                EXPECT_EQ(own, 8);
            }
        }
        ASSERT_TRUE(MeasureSeries(*comm, {.bytes = 4096, .seconds = 0}).ok());
    });
    EXPECT_EQ(computed[0], computed[1]);
    EXPECT_GT(computed[0], 8);
}

// A busy host delays the sums; the network takes no longer for them.
TEST(Series, TellsASlowRankFromASlowNetwork) {
    constexpr int64_t kSlowMs = 20;
    auto fabrics = net::MakeLocalFabrics(3, net::Transport::kShm, kMeasureWindow).value();
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        const auto comm = CommOver(fabric);
        const auto compute = [&] {
            const Deadline slow = Deadline::In(fabric.rank == 2 ? kSlowMs : 0);
            while (!slow.expired()) std::this_thread::yield();
            return Status();
        };
        const auto series = MeasureSeries(*comm, {.bytes = 4096, .compute = compute, .seconds = 0});
        ASSERT_TRUE(series.ok()) << series.error().message;
        if (fabric.rank != 0) return;
        EXPECT_FALSE(!(series->mean_us < 500 * kSlowMs)) << series->mean_us;
        EXPECT_EQ(series->slowest, 2);
        EXPECT_FALSE(!(series->slowest_us >= 1000 * kSlowMs)) << series->slowest_us;
        EXPECT_FALSE(!(series->fastest_us < series->slowest_us)) << series->fastest_us;
    });
}

TEST(Series, EndsWithTheComputingThatFails) {
    auto pair = net::MakeLocalFabrics(2, net::Transport::kShm, kMeasureWindow).value();
    test::OnThreads(pair, [&](net::Fabric& fabric) {
        const auto comm = CommOver(fabric);
        const auto series = MeasureSeries(
            *comm, {.bytes = 4096, .compute = [] {
                        return Status(MakeError(ErrorCode::kPeerLost, "the device is gone"));
                    }});
        ASSERT_FALSE(series.ok());
        EXPECT_EQ(series.error().message, "the device is gone");
    });
}

TEST(Autotune, AllRanksHoldTheSameSoundTable) {
    for (int ranks : {2, 3}) {
        auto fabrics = net::MakeLocalFabrics(ranks, net::Transport::kShm, kMeasureWindow).value();
        std::vector<std::string> tables(static_cast<size_t>(ranks));
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            const auto comm = CommOver(fabric);
            const Tuning before = comm->tuning();
            const auto tuning = MeasureTuning(*comm, {.seconds = 0.02});
            ASSERT_TRUE(tuning.ok()) << tuning.error().message;
            tables[static_cast<size_t>(fabric.rank)] = tuning->ToJson();
            comm->SetTuning(*tuning);
            const auto& rows = tuning->rows(Collective::kAllReduce);
            EXPECT_GT(rows.front().p50_us, 0);
            for (const TuningRow& row : rows) EXPECT_EQ(row.choice.wire, WireType::kFull);
            for (Collective other : {Collective::kAllGather, Collective::kAllToAll}) {
                EXPECT_EQ(tuning->rows(other), before.rows(other));
            }
            // A table just measured holds; one whose times are a million times too long does not.
            Tuning wrong = *tuning;
            std::vector<TuningRow> slow = rows;
            for (TuningRow& row : slow) row.p50_us *= 1e6;
            ASSERT_TRUE(wrong.Set(Collective::kAllReduce, slow).ok());
            const auto holds = TuningHolds(*comm, wrong, nullptr);
            ASSERT_TRUE(holds.ok());
            EXPECT_FALSE(*holds);
            // Nor can a table without times be wrong.
            EXPECT_TRUE(TuningHolds(*comm, before, nullptr).value());
            ASSERT_TRUE(
                Measure(*comm, {Collective::kAllReduce, 8192, {}}, {.iterations = 3}, nullptr)
                    .ok());
        });
        for (const std::string& table : tables) EXPECT_EQ(table, tables[0]);
    }
}

TEST(Autotune, PredictsBetweenMeasuredSizes) {
    Tuning tuning = Tuning::BuiltIn({.ranks = 2});
    EXPECT_EQ(PredictedUs(tuning, 8192), 0);
    const Choice one{Algorithm::kOneShot, WireType::kFull};
    ASSERT_TRUE(
        tuning.Set(Collective::kAllReduce, {{1000, one, 2}, {3000, one, 6}, {9000, one, 0}}).ok());
    EXPECT_EQ(PredictedUs(tuning, 10), 2);
    EXPECT_EQ(PredictedUs(tuning, 1000), 2);
    EXPECT_LE(std::abs(PredictedUs(tuning, 2000) - 4), 1e-9);
    EXPECT_LE(std::abs(PredictedUs(tuning, 6000) - 12), 1e-9);
}

// A monitor that has a verdict from the beginning.
class Stopped final : public net::PeerMonitor {
  public:
    bool Failed() const override { return true; }
    Error Failure() const override { return {ErrorCode::kCancelled, "stopped"}; }
    int64_t SilentMs(int) const override { return -1; }
    Error OnTimeout(int, const net::OpTag&, const Deadline&) override { return Failure(); }
};

TEST(Measure, EndsWhenTheMonitorReportsAFailure) {
    auto fabrics = net::MakeLocalFabrics(2, net::Transport::kShm, kMeasureWindow).value();
    test::OnThreads(fabrics, [](net::Fabric& fabric) {
        const Stopped stopped;
        const auto comm = CommOver(fabric);
        const auto figures =
            Measure(*comm, {Collective::kAllReduce, 64, {}}, {.seconds = 3000}, &stopped);
        ASSERT_FALSE(figures.ok());
        EXPECT_EQ(figures.error().code, ErrorCode::kCancelled);
    });
}

}  // namespace
}  // namespace weft::coll
