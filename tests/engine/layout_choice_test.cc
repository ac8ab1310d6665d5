// The choice between tensor ranks and stages from measured times, if the user names neither.
#include "engine/start/layout_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cluster/cluster_impl.h"
#include "support/fake_cluster.h"

namespace weft::engine {
namespace {

// Times of all-reduces over two hosts: a latency, plus bytes that cross once in each direction.
coll::Tuning MeasuredTable(double latency_us, double bytes_per_s) {
    coll::Tuning tuning = coll::Tuning::BuiltIn({.ranks = 2, .hosts = 2, .over_tcp = true});
    std::vector<coll::TuningRow> rows;
    for (const int bits : {10, 16, 20, 24}) {
        const size_t bytes = size_t{1} << bits;
        rows.push_back({bytes,
                        {coll::Algorithm::kOneShot, coll::WireType::kFull},
                        latency_us + static_cast<double>(bytes) / bytes_per_s * 1e6});
    }
    EXPECT_TRUE(tuning.Set(coll::Collective::kAllReduce, rows).ok());
    return tuning;
}

// gpt-oss-120b on two hosts that read 200 GB/s.
// The pairs of ranks that a job of `ranks` ranks links.
std::vector<std::pair<int, int>> PairsOf(const Job& job, int ranks) {
    std::vector<std::pair<int, int>> pairs;
    for (const auto& pair : LinksOf(JobToJson(job), ranks).pairs)
        pairs.emplace_back(pair.a, pair.b);
    return pairs;
}

TEST(LayoutLinks, StagesNeedTheirNeighborsAndTheWayBack) {
    using Pairs = std::vector<std::pair<int, int>>;
    Job job;
    job.model = "m";
    EXPECT_EQ(PairsOf(job, 2), Pairs());  // all
    job.pp = 4;
    EXPECT_EQ(PairsOf(job, 4), (Pairs{{0, 1}, {1, 2}, {2, 3}, {0, 3}}));
    const cluster::LinkNeeds links = LinksOf(JobToJson(job), 4);
    EXPECT_TRUE(links.Find(3, 0)->few_bytes);
    EXPECT_FALSE(links.Find(0, 1)->few_bytes);
    EXPECT_FALSE(links.spare);
    job.feed = true;  // rank 0 sends the weights
    EXPECT_EQ(PairsOf(job, 4), (Pairs{{0, 1}, {1, 2}, {2, 3}, {0, 2}, {0, 3}}));
    EXPECT_FALSE(LinksOf(JobToJson(job), 4).Find(3, 0)->few_bytes);
    job.feed = false;
    job.tp = job.pp = 2;
    EXPECT_EQ(PairsOf(job, 4), (Pairs{{0, 1}, {0, 2}, {1, 3}, {2, 3}}));
    job.pp = 1;
    job.tp = 4;
    EXPECT_EQ(PairsOf(job, 4), Pairs());
    // If the layout is still open, all pairs get a link.
    job.tp = job.pp = 0;
    EXPECT_EQ(PairsOf(job, 3), (Pairs{{0, 1}, {1, 2}, {0, 2}}));
    EXPECT_TRUE(LinksOf(JobToJson(job), 3).spare);
    EXPECT_TRUE(LinksOf("no job", 3).pairs.empty());
}

// A described job counts the windows of the links that the job has.
TEST(LayoutLinks, WindowsAreThoseOfTheLinks) {
    Job job;
    job.model = "m";
    for (const auto& [tp, pp] : {std::pair{1, 1},
                                 {2, 1},
                                 {1, 2},
                                 {1, 3},
                                 {1, 64},
                                 {2, 2},
                                 {3, 4},
                                 {8, 2},
                                 {40, 5},
                                 {300, 1},
                                 {150, 2}}) {
        job.tp = tp;
        job.pp = pp;
        const int ranks = tp * pp;
        const cluster::LinkNeeds needs = LinksOf(JobToJson(job), ranks);
        model::Layout layout;
        layout.tp = tp;
        layout.pp = pp;
        for (int turn = 0; turn < 2 * ranks; ++turn) {
            const int rank = turn / 2;
            const bool local = turn % 2 == 1;
            const size_t window = cluster::WindowBytesFor(needs, ranks, local);
            const auto links = needs.pairs.empty()
                                   ? ranks - 1
                                   : std::ranges::count_if(needs.pairs, [&](const auto& pair) {
                                         return pair.a == rank || pair.b == rank;
                                     });
            EXPECT_EQ(WindowsBytes(layout, rank, local), static_cast<uint64_t>(links) * window)
                << "tp " << tp << " pp " << pp << " rank " << rank;
        }
    }
}

// Each pair is listed once, also for many ranks, where a search for each pair would take hours.
TEST(LayoutLinks, EachPairOnce) {
    Job job;
    job.model = "m";
    for (const auto& [tp, pp] : {std::pair{1, 3}, {1, 4}, {2, 2}, {2, 3}, {3, 2}, {512, 8}}) {
        for (const bool feed : {false, true}) {
            job.tp = tp;
            job.pp = pp;
            job.feed = feed;
            const int ranks = tp * pp;
            const auto pairs = PairsOf(job, ranks);
            // Pairs within tensor groups, from stage to stage, and of rank 0 with the last stage or
            // with all ranks.
            const int beside = feed ? ranks - 1 - tp : pp > 2 ? 1 : 0;
            EXPECT_EQ(std::ssize(pairs), pp * tp * (tp - 1) / 2 + (pp - 1) * tp + beside);
            if (ranks > 100) continue;
            EXPECT_EQ(std::set(pairs.begin(), pairs.end()).size(), pairs.size());
        }
    }
}

LayoutCosts LargeModel(int64_t prompt, int64_t answer = 512) {
    LayoutCosts costs;
    costs.ranks = 2;
    costs.layers = 36;
    costs.sum_bytes = costs.prompt_sum_bytes = 2880 * 4;
    costs.prompt = prompt;
    costs.answer = answer;
    costs.token_bytes = 3.2e9;
    costs.bytes_per_s = 200e9;
    return costs;
}

TEST(LayoutChoice, AFastWireIsForTensorRanks) {
    const coll::Tuning rdma = MeasuredTable(5, 11e9), ethernet = MeasuredTable(60, 1.1e9);
    EXPECT_FALSE(EstimateLayouts(LargeModel(20'480), rdma).stages_win());
    EXPECT_TRUE(EstimateLayouts(LargeModel(20'480), ethernet).stages_win());
    // With a short prompt and a long answer, decode decides.
    EXPECT_FALSE(EstimateLayouts(LargeModel(128, 4096), ethernet).stages_win());
    // Embedding requests run prefill only.
    EXPECT_TRUE(EstimateLayouts(LargeModel(4096, 0), rdma).stages_win());
    // A slow wire cancels the gain per token.
    EXPECT_TRUE(EstimateLayouts(LargeModel(1), MeasuredTable(400, 0.1e9)).stages_win());
}

TEST(LayoutChoice, LongerPromptsAndSlowerWiresAreForStages) {
    for (const double latency_us : {5.0, 60.0, 200.0}) {
        double before = INFINITY;
        for (const double gigabytes : {0.1, 0.3, 1.1, 5.0, 11.0}) {
            const auto seconds =
                EstimateLayouts(LargeModel(4096), MeasuredTable(latency_us, gigabytes * 1e9));
            const double share = seconds.tensor / seconds.stages;
            EXPECT_LT(share, before) << latency_us << " us, " << gigabytes << " GB/s";
            before = share;
        }
        const coll::Tuning table = MeasuredTable(latency_us, 1e9);
        bool stages = false;
        for (const int64_t prompt : {1, 100, 512, 1000, 4096, 20'000, 100'000}) {
            const bool now = EstimateLayouts(LargeModel(prompt), table).stages_win();
            EXPECT_TRUE(now || !stages) << prompt;
            stages = now;
        }
        EXPECT_TRUE(stages) << latency_us;
    }
}

// Each sum of a token has the tail, but only a few messages between stages.
TEST(LayoutChoice, ATailIsForStages) {
    const coll::Tuning ethernet = MeasuredTable(60, 1.1e9);
    LayoutCosts costs = LargeModel(128, 4096);
    const LayoutSeconds calm = EstimateLayouts(costs, ethernet);
    ASSERT_FALSE(calm.stages_win());
    costs.tail_s = 1e-3;
    const LayoutSeconds jittery = EstimateLayouts(costs, ethernet);
    EXPECT_TRUE(jittery.stages_win());
    // 72 sums a token, and one of the prompt's chunk; two messages.
    EXPECT_NEAR(jittery.tensor - calm.tensor, 72 * (4096 + 1) * 1e-3, 1e-6);
    EXPECT_NEAR(jittery.stages - calm.stages, 2 * (4096 + 1) * 1e-3, 1e-6);
}

// The tail includes two standard errors of the mean, because a short series may miss rare, long
// delays.
TEST(LayoutChoice, TheTailHasTheDoubtOfAShortSeries) {
    const coll::Tuning table = MeasuredTable(60, 1.1e9);
    LayoutCosts costs = LargeModel(128, 4096);
    const double typical_us = coll::PredictedUs(table, 2880 * 4);
    costs.SetTail({.mean_us = typical_us + 100, .error_us = 30}, table);
    EXPECT_NEAR(costs.tail_s, 160e-6, 1e-9);
    costs.SetTail({.mean_us = typical_us / 2, .error_us = 0}, table);
    EXPECT_EQ(costs.tail_s, 0);
    // 36 layers with two sums each, over two ranks.
    EXPECT_NEAR(costs.piece_bytes(), 3.2e9 / 144, 1);
}

// Tensor ranks also gather a token's logits; the last stage sends only what rank 0 requested.
TEST(LayoutChoice, LogitsAreForStages) {
    const coll::Tuning table = MeasuredTable(60, 1.1e9);
    LayoutCosts costs = LargeModel(128, 4096);
    const LayoutSeconds before = EstimateLayouts(costs, table);
    costs.logits_bytes = 600'000;
    const LayoutSeconds now = EstimateLayouts(costs, table);
    EXPECT_NEAR(now.tensor - before.tensor, 4096 * coll::PredictedUs(table, 300'000) * 1e-6, 1e-9);
    EXPECT_EQ(now.stages, before.stages);
}

TEST(LayoutChoice, NearlyEqualTimesChooseStages) {
    EXPECT_TRUE((LayoutSeconds{.tensor = 1, .stages = 1.05}.stages_win()));
    EXPECT_FALSE((LayoutSeconds{.tensor = 1, .stages = 1.15}.stages_win()));
    EXPECT_FALSE(LayoutSeconds().stages_win()) << "nothing was measured";
}

TEST(LayoutChoice, UnmeasuredNetworksChooseNothing) {
    const coll::Tuning none = coll::Tuning::BuiltIn({.ranks = 2, .hosts = 2, .over_tcp = true});
    EXPECT_FALSE(EstimateLayouts(LargeModel(100'000), none).stages_win());
    LayoutCosts unknown = LargeModel(100'000);
    unknown.bytes_per_s = 0;
    EXPECT_FALSE(EstimateLayouts(unknown, MeasuredTable(60, 1.1e9)).stages_win());
}

TEST(LayoutChoice, AppliesOnlyWithoutLayoutFlags) {
    test::FakeHub hub(2);
    net::Fabric fabric;
    fabric.links.resize(2);
    test::FakeCluster cluster(hub, 0, 2, std::move(fabric));
    EXPECT_TRUE(ChoosesLayout(Job(), cluster));
    EXPECT_FALSE(MeasuresLayouts(Job(), cluster)) << "both ranks are on one host";
    cluster.SetBoot(1, "another boot");
    EXPECT_TRUE(ChoosesLayout(Job(), cluster));
    EXPECT_TRUE(MeasuresLayouts(Job(), cluster));
    for (const auto& said : {+[](Job& job) { job.tp = 2; }, +[](Job& job) { job.pp = 2; },
                             +[](Job& job) { job.ep = 2; }}) {
        Job job;
        said(job);
        EXPECT_FALSE(ChoosesLayout(job, cluster));
    }
    // Such jobs are tensor ranks, unless the devices differ.
    for (const auto& said : {+[](Job& job) {
                                 job.split = {2, 1};
                             },
                             +[](Job& job) { job.draft_head = true; }}) {
        Job job;
        said(job);
        EXPECT_TRUE(ChoosesLayout(job, cluster));
        EXPECT_FALSE(MeasuresLayouts(job, cluster));
    }
    test::FakeCluster apart(hub, 0, 2);
    EXPECT_FALSE(ChoosesLayout(Job(), apart)) << "a host that may join has no links";
}

TEST(LayoutChoice, UnlikeDevicesAreThoseWithOtherBits) {
    EXPECT_TRUE(AreAlike({}));
    EXPECT_TRUE(AreAlike({"", "cpu-avx2", "cpu-avx2", ""}));
    EXPECT_FALSE(AreAlike({"cpu-avx2", "", "cpu-avx512"}));
    EXPECT_FALSE(AreAlike({"cpu-avx2", "cpu-avx2", "vulkan-1"}));
}

}  // namespace
}  // namespace weft::engine
