// A rank's work between epochs, without processes: planning a job for fewer ranks, and the error if
// it cannot continue. tests/cli/recovery_test.cc tests the whole program.
#include <gtest/gtest.h>

#include "engine/recovery.h"
#include "support/fake_cluster.h"
#include "support/temp_dir.h"
#include "support/tiny_gguf.h"

namespace weft::engine {
namespace {

Job Planned(int ranks, int tp, int pp, const std::vector<double>& split, std::vector<int> kept) {
    Job job;
    job.tp = tp;
    job.pp = pp;
    job.split = split;
    auto next = ReplanJob(job, ranks, kept);
    EXPECT_TRUE(next.ok());
    return next.ok() ? *next : Job();
}

TEST(Replan, KeepsTheKindOfLayoutAndTheShares) {
    const Job tensor = Planned(3, 0, 0, {3, 2, 1}, {0, 2});
    EXPECT_EQ(tensor.tp, 2);
    EXPECT_EQ(tensor.pp, 1);
    EXPECT_EQ(tensor.split, (std::vector<double>{3, 1}));
    const Job pipeline = Planned(3, 1, 3, {3, 2, 1}, {0, 1});
    EXPECT_EQ(pipeline.tp, 1);
    EXPECT_EQ(pipeline.pp, 2);
    EXPECT_EQ(pipeline.split, (std::vector<double>{3, 2}));
    const Job mixed = Planned(6, 2, 3, {}, {0, 1, 2, 3});
    EXPECT_EQ(mixed.tp, 2);
    EXPECT_EQ(mixed.pp, 2);
    const Job odd = Planned(4, 2, 2, {}, {0, 2, 3});
    EXPECT_EQ(odd.tp * odd.pp, 3);
    const Job alone = Planned(2, 2, 1, {2, 1}, {0});
    EXPECT_EQ(alone.tp * alone.pp, 1);
}

TEST(Replan, RanksKeepTheirDevicesAndUnlikeOnesBecomeStages) {
    Job job;
    job.tp = job.pp = 2;
    job.device = "vulkan:0,vulkan:0,cpu,cpu";
    const auto stages = ReplanJob(job, 4, {0, 1, 3});
    ASSERT_TRUE(stages.ok());
    EXPECT_EQ(stages->device, "vulkan:0,vulkan:0,cpu");
    EXPECT_EQ(stages->tp, 1);
    EXPECT_EQ(stages->pp, 3);
    const auto alike = ReplanJob(job, 4, {0, 1});
    ASSERT_TRUE(alike.ok());
    EXPECT_EQ(alike->device, "vulkan:0,vulkan:0");
    EXPECT_EQ(alike->tp, 2);
    job.device = "auto";
    EXPECT_EQ(ReplanJob(job, 4, {0, 1, 3})->device, "auto");
}

// Ranks beyond the previous ones are newcomers.
TEST(Replan, GrowsInTheMannerThatWasAskedFor) {
    const auto grown = [](const Asked& asked, int ranks, std::vector<int> kept) {
        auto next = ReplanJob(asked.job, ranks, kept, &asked);
        EXPECT_TRUE(next.ok());
        return next.ok() ? *next : Job();
    };
    Asked tensor{.job = {}, .ranks = 2};
    tensor.job.split = {3, 1};
    const Job three = grown(tensor, 2, {0, 1, 2});
    EXPECT_EQ(three.tp, 3);
    EXPECT_EQ(three.split, (std::vector<double>{3, 1, 2}));
    Asked stages{.job = {}, .ranks = 2};
    stages.job.pp = 2;
    EXPECT_EQ(grown(stages, 2, {0, 1, 2, 3}).pp, 4);
    EXPECT_EQ(grown(stages, 2, {0, 1, 2, 3}).tp, 1);
    // A newcomer replaced a lost rank.
    EXPECT_EQ(grown(stages, 2, {0, 2}).pp, 2);
    Asked both{.job = {}, .ranks = 4};
    both.job.tp = both.job.pp = 2;
    EXPECT_EQ(grown(both, 4, {0, 1, 2, 3, 4, 5}).pp, 3);
    EXPECT_EQ(grown(both, 4, {0, 1, 2, 3, 4}).tp, 5);
}

// A lone survivor of tensor ranks, or of a grid, returns to the requested layout.
TEST(Replan, RanksThatComeBackHaveTheLayoutThatWasAskedFor) {
    Asked asked{.job = {}, .ranks = 4};
    asked.job.tp = asked.job.pp = 2;
    const auto alone = ReplanJob(asked.job, 4, {0}, &asked);
    ASSERT_TRUE(alone.ok());
    const auto two = ReplanJob(*alone, 1, {0, 1}, &asked);
    ASSERT_TRUE(two.ok());
    EXPECT_EQ(two->tp, 2);
    const auto all = ReplanJob(*two, 2, {0, 1, 2, 3}, &asked);
    ASSERT_TRUE(all.ok());
    EXPECT_EQ(all->tp, 2);
    EXPECT_EQ(all->pp, 2);
}

class EngineRecovery : public testing::Test {
  protected:
    void SetUp() override {
        support::WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = support::OddHyper()});
        job_.model = dir_ / "tiny.gguf";
        job_.ctx = 64;
        job_.chunk = 16;
        job_.threads = 1;
        job_.self_test = false;
    }
    static Result<cluster::EpochInfo> LoseTheOther(test::FakeCluster& cluster,
                                                   const cluster::Cluster::Replan& replan) {
        WEFT_ASSIGN(std::string job, replan({0}));
        cluster.Become(0, 1, std::move(job));
        cluster::EpochInfo info;
        info.epoch = 2;
        info.same_place = false;
        info.lost = {1};
        info.why = "rank 1 (host b, tcp) was lost during decode: silent for 900 ms";
        return info;
    }

    test::TempDir dir_;
    Job job_;
    const Error loss_{ErrorCode::kPeerLost, "rank 1 was lost"};
};

// A model on two ranks does not fit into the memory of one: the error names the loss and the lack
// of memory.
TEST_F(EngineRecovery, RefusesFewerRanksWhereTheModelDoesNotFit) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 2);
    cluster.Become(0, 2, JobToJson(job_));
    cluster.next_epoch = [](test::FakeCluster& self, const Error& error,
                            const auto& replan) -> Result<cluster::EpochInfo> {
        if (self.size() == 1) return error;  // the next error ends the job
        self.memory = {"3000000000 2000000000"};
        return LoseTheOther(self, replan);
    };
    std::unique_ptr<Rank> rank;
    std::vector<engine::Recovery> recoveries;
    const Status status = Recover(job_, cluster, rank, loss_, recoveries);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    const std::string& text = status.error().message;
    EXPECT_TRUE(
        text.starts_with("rank 1 (host b, tcp) was lost during decode: silent for 900 ms. "
                         "The job could not continue with 1 of 2 ranks: "))
        << text;
    EXPECT_NE(text.find("does not fit into the memory of a: rank 0: 2861 MiB"), std::string::npos)
        << text;
    EXPECT_TRUE(recoveries.empty());
}

TEST_F(EngineRecovery, ReportsRecoveries) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 2);
    cluster.Become(0, 2, JobToJson(job_));
    cluster.next_epoch = [](test::FakeCluster& self, const Error&, const auto& replan) {
        return LoseTheOther(self, replan);
    };
    std::unique_ptr<Rank> rank;
    std::vector<engine::Recovery> recoveries;
    const Status status = Recover(job_, cluster, rank, loss_, recoveries);
    ASSERT_TRUE(status.ok()) << status.error().message;
    ASSERT_NE(rank, nullptr);
    ASSERT_EQ(recoveries.size(), 1u);
    EXPECT_EQ(recoveries[0].lost, std::vector<int>{1});
    EXPECT_EQ(recoveries[0].ranks, 1);
    EXPECT_EQ(recoveries[0].text.find("rank 1 (host b, tcp) was lost during decode: silent for "
                                      "900 ms; epoch 2 with 1 rank after "),
              0u)
        << recoveries[0].text;
    EXPECT_EQ(job_.tp * job_.pp, 1);
}

// Without the flags a loss ends the job with its error.
TEST_F(EngineRecovery, DoesNothingUnlessAsked) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 2);
    std::unique_ptr<Rank> rank;
    std::vector<engine::Recovery> recoveries;
    const Status status = Recover(job_, cluster, rank, loss_, recoveries);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().message, loss_.message);
}

}  // namespace
}  // namespace weft::engine
