// A rank's work between epochs, without processes: planning a job for fewer ranks, and the error if
// it cannot continue. tests/cli/recovery_test.cc tests the whole program.
#include <gtest/gtest.h>

#include <array>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <memory>
#include <thread>

#include "engine/drafts/draft_model.h"
#include "engine/recovery.h"
#include "net/local.h"
#include "support/fake_cluster.h"
#include "support/flip_bit.h"
#include "support/partial_file.h"
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
    // Devices of one name may be unlike, too: processors.
    const std::vector<std::string> identities = {"avx512", "avx512", "avx2", "avx2"};
    const auto tp = [&](const std::vector<int>& kept) {
        return ReplanJob(job, 4, kept, nullptr, nullptr, identities)->tp;
    };
    EXPECT_EQ(tp({0, 1, 3}), 1);
    EXPECT_EQ(tp({0, 3}), 1);
    EXPECT_EQ(tp({2, 3}), 2);
    EXPECT_EQ(ReplanJob(job, 4, {0, 1, 3})->tp, 3) << "unknown ones";
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

// A rank that rejoins gets a device named for its position, not that of a rank that remained.
TEST(Replan, RanksThatComeBackHaveDevicesThatWereAskedFor) {
    const auto device = [](const Asked& asked, const std::string& now, int ranks,
                           const std::vector<int>& kept) {
        Job job = asked.job;
        job.device = now;
        const auto next = ReplanJob(job, ranks, kept, &asked);
        return next.ok() ? next->device : next.error().message;
    };
    Asked pair{.job = {}, .ranks = 2};
    pair.job.device = "cpu,vulkan";
    EXPECT_EQ(device(pair, "cpu,vulkan", 2, {0}), "cpu");
    EXPECT_EQ(device(pair, "cpu", 1, {0, 1}), "cpu,vulkan");
    EXPECT_EQ(device(pair, "cpu,vulkan", 2, {0, 2}), "cpu,vulkan");
    Asked many{.job = {}, .ranks = 4};
    many.job.device = "cpu,cuda,vulkan,cpu";
    EXPECT_EQ(device(many, "cpu,cuda,vulkan,cpu", 4, {0, 2, 3}), "cpu,vulkan,cpu");
    EXPECT_EQ(device(many, "cpu,vulkan,cpu", 3, {0, 1, 2, 3}), "cpu,vulkan,cpu,cuda");
    EXPECT_EQ(device(many, "cpu", 1, {0, 1, 2}), "cpu,cuda,vulkan");
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
        info.lost = {1};
        info.why = "rank 1 (host b, tcp) was lost during decode: silent for 900 ms";
        return info;
    }

    // Whether a rank whose place changes loads its model again after `change`.
    Status LoadsAgain(const std::function<void()>& change) {
        test::FakeHub hub(1);
        test::FakeCluster cluster(hub, 0, 1);
        cluster.next_epoch = [&](test::FakeCluster& self, const Error& error,
                                 const auto&) -> Result<cluster::EpochInfo> {
            if (error.code != ErrorCode::kPeerLost) return error;
            self.SetCores({1});
            self.Become(0, 1, JobToJson(job_));
            return cluster::EpochInfo();
        };
        std::unique_ptr<Rank> rank;
        std::vector<engine::Recovery> recoveries;
        EXPECT_TRUE(OpenRank(job_, cluster, rank).ok());
        change();
        return Recover(job_, cluster, rank, loss_, recoveries);
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

// A rank whose place changes loads again, and finds another model under the same name.
TEST_F(EngineRecovery, RefusesAModelThatWasReplaced) {
    job_.self_test = true;  // the rank leaves a record, which needs all bytes
    for (const std::string how : {"", "header", "a bit", "cut"}) {
        const bool is_replaced = !how.empty();
        const Status status = LoadsAgain([&] {
            support::TinyFile file{.hyper = support::OddHyper()};
            if (how == "header") file.rope_base = 20000;
            std::filesystem::remove(dir_ / "tiny.gguf");
            support::WriteTinyGguf(dir_ / "tiny.gguf", file);
            if (how == "a bit") support::FlipBit(dir_ / "tiny.gguf");
            if (how == "cut") std::filesystem::resize_file(std::string(dir_ / "tiny.gguf"), 1000);
        });
        ASSERT_EQ(status.ok(), !is_replaced) << how;
        if (status.ok() || how == "cut") continue;
        EXPECT_NE(status.error().message.find("the file has changed since the job began"),
                  std::string::npos)
            << status.error().message;
    }
}

// Ranks of one copy read their weights only, so a later file can't be compared.
TEST_F(EngineRecovery, SaysWhenAFileOfAnUnknownModelWasTouched) {
    EXPECT_TRUE(LoadsAgain([] {}).ok());
    const Status touched = LoadsAgain([this] {
        std::filesystem::last_write_time(std::string(dir_ / "tiny.gguf"),
                                         std::filesystem::file_time_type::clock::now());
    });
    ASSERT_FALSE(touched.ok());
    EXPECT_EQ(touched.error().code, ErrorCode::kDenied);
    EXPECT_TRUE(touched.error().message.ends_with(
        "tiny.gguf: the file was written, fetched or touched since the job began, which has no sum "
        "of the former bytes to compare (its ranks read one copy), and rank 0 has to load it "
        "again. Start the job again"))
        << touched.error().message;
}

// 'weft pull --shard' for other ranks writes into the file.
TEST_F(EngineRecovery, APartialFileMayGrow) {
    support::MakePartial(dir_ / "tiny.gguf");
    const std::string part = std::filesystem::read_symlink(std::string(dir_ / "tiny.gguf"));
    EXPECT_TRUE(LoadsAgain([&] {
                    std::filesystem::last_write_time(part,
                                                     std::filesystem::file_time_type::clock::now());
                }).ok());
    const Status replaced = LoadsAgain([&] {
        std::filesystem::copy_file(part, part + ".new");
        std::filesystem::rename(part + ".new", part);
    });
    EXPECT_EQ(replaced.error().code, ErrorCode::kDenied);
}

// Two heads have no three parts, but the three layers have.
// Ranks 2 and 3 of six are lost, then rank 1 while the others load: ranks 2 and 3 of the second
// epoch are ranks 4 and 5 of the first one.
TEST_F(EngineRecovery, ASecondLossComparesTheDevicesOfTheRanksThatRemain) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 6);
    cluster.Become(0, 1, JobToJson(job_));
    cluster.devices = {"avx512", "avx512", "avx512", "avx512", "avx2", "avx2"};
    job_.self_test = true;
    std::vector<std::pair<int, int>> layouts;
    const auto lose = [&](test::FakeCluster& self, int ranks, const std::vector<int>& kept,
                          const cluster::Cluster::Replan& replan) -> Status {
        Job job = job_;
        job.tp = 2;
        job.pp = ranks / 2;
        self.Become(0, ranks, JobToJson(job));
        WEFT_ASSIGN(const std::string text, replan(kept));
        const Job next = *JobFromJson(text);
        layouts.emplace_back(next.tp, next.pp);
        return {};
    };
    cluster.next_epoch = [&](test::FakeCluster& self, const Error& error,
                             const auto& replan) -> Result<cluster::EpochInfo> {
        if (layouts.empty()) {
            WEFT_TRY(lose(self, 6, {0, 1, 4, 5}, replan));
            self.memory = {"3000000000 2000000000"};  // the epoch fails
            self.Become(0, 1, JobToJson(job_));
            return cluster::EpochInfo();
        }
        WEFT_TRY(lose(self, 4, {0, 2, 3}, replan));
        return error;
    };
    std::unique_ptr<Rank> rank;
    std::vector<engine::Recovery> recoveries;
    Job job = job_;
    ASSERT_TRUE(OpenRank(job, cluster, rank).ok());
    EXPECT_EQ(rank->identities(), cluster.devices);
    EXPECT_FALSE(Recover(job, cluster, rank, loss_, recoveries).ok());
    const std::vector<std::pair<int, int>> expected = {{2, 2}, {1, 3}};
    EXPECT_EQ(layouts, expected);
}

// Unlike ranks have become stages. With the host that joins, there are as many ranks as the user
// asked for, and they remain stages: four of a model with three layers.
TEST_F(EngineRecovery, SpaceIsThatOfTheLayoutAfterTheJoin) {
    model::Hyper hyper = support::OddHyper();
    hyper.heads = hyper.kv_heads = 2;
    support::WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = hyper});
    Job stages = job_, asked = job_;
    stages.pp = 3;
    asked.tp = asked.pp = 2;
    job_.self_test = true;
    const auto fits = [&](const char* first) {
        test::FakeHub hub(1);
        test::FakeCluster cluster(hub, 0, 1);
        cluster.devices = {first, "avx2", "avx2"};
        std::unique_ptr<Rank> rank;
        EXPECT_TRUE(OpenRank(job_, cluster, rank).ok());
        return SpaceFor(1, stages, 3, {.job = asked, .ranks = 4}, *rank).ok();
    };
    EXPECT_TRUE(fits("avx2"));
    EXPECT_FALSE(fits("avx512"));
}

TEST_F(EngineRecovery, UsesStagesIfTheModelCannotBeCut) {
    model::Hyper hyper = support::OddHyper();
    hyper.heads = hyper.kv_heads = 2;
    support::WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = hyper});
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    const auto rank = *Rank::Make(job_, cluster);
    const auto planned = [&](int tp, int pp, const std::vector<int>& kept) {
        Job job = job_;
        job.tp = tp;
        job.pp = pp;
        const Job next = *ReplanJob(job, tp * pp, kept, nullptr, rank.get());
        return std::pair(next.tp, next.pp);
    };
    EXPECT_EQ(planned(2, 2, {0, 1, 3}), std::pair(1, 3));
    EXPECT_EQ(planned(2, 2, {0, 1}), std::pair(2, 1));
    EXPECT_EQ(planned(1, 3, {0, 1}), std::pair(1, 2));
    // Neither works.
    EXPECT_EQ(planned(2, 3, {0, 1, 2, 3, 4}), std::pair(5, 1));
    // A joining rank does not turn tensor ranks into stages, which take longer per token.
    EXPECT_EQ(planned(2, 1, {0, 1, 2}), std::pair(3, 1));
    Job pair = job_;
    pair.tp = 2;
    EXPECT_FALSE(SpaceFor(3, pair, 2, {.job = pair, .ranks = 2}, *rank).ok());
    // No more ranks than named devices.
    Job alone = job_;
    pair.device = "cpu,cpu";
    EXPECT_EQ(*SpaceFor(3, alone, 1, {.job = pair, .ranks = 2}, *rank), 1);
    EXPECT_FALSE(SpaceFor(1, pair, 2, {.job = pair, .ranks = 2}, *rank).ok());
}

// A rank within its timeout does not count as lost because a request queries the ranks.
TEST_F(EngineRecovery, ReportsWaitAsLongAsTheTimeout) {
    for (const int64_t timeout_ms : {1000, 60'000}) {
        test::FakeHub hub(1);
        test::FakeCluster cluster(hub, 0, 1);
        cluster.patience_ms = timeout_ms;
        job_.trace = true;
        const auto rank = *Rank::Make(job_, cluster);
        ASSERT_TRUE(rank->GatherReports().ok());
        for (const char* name : {"report", "trace size"}) {
            EXPECT_EQ(cluster.waits_ms.at(name), std::max<int64_t>(5000, timeout_ms)) << name;
        }
    }
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

// Two ranks, as threads, in two epochs.
class TwoEpochs : public testing::Test {
  protected:
    struct Epoch {
        Job job;
        net::Transport transport = net::Transport::kShm;
        std::vector<int> cores = {0};
    };
    void SetUp() override {
        support::WriteTinyGguf(dir_ / "tiny.gguf", {.hyper = support::OddHyper()});
    }
    Job JobOf(int tp, int pp, std::vector<double> split = {}) {
        Job job;
        job.model = dir_ / "tiny.gguf";
        job.ctx = job.chunk = 256;
        job.threads = 1;
        job.self_test = false;
        job.tp = tp;
        job.pp = pp;
        job.split = std::move(split);
        return job;
    }
    // is_new: whether rank 1 of the second epoch is another process.
    void Run(const Epoch& first, const Epoch& second, bool is_new) {
        kept_.assign(2, 0);
        shares_.assign(2, "");
        arenas_.assign(2, 0);
        sizes_.assign(2, {});
        auto fabrics = *net::MakeLocalFabrics(2, first.transport, 4 << 20);
        auto next = *net::MakeLocalFabrics(2, second.transport, 4 << 20);
        test::FakeHub hub(2);
        const auto work = [&](size_t r) {
            const auto number = static_cast<int>(r);
            test::FakeCluster cluster(hub, number, 2, std::move(fabrics[r]));
            cluster.Become(number, 2, JobToJson(first.job));
            cluster.SetCores(first.cores);
            Job agreed;
            cluster.next_epoch = [&](test::FakeCluster& self, const Error&, const auto&) {
                self.fabric() = std::move(next[r]);
                self.SetCores(second.cores);
                Job job = second.job;
                if (job.cache_share > 0) {  // as rank 0 replans it
                    job.ctx = agreed.ctx;
                    job.kv_tokens = agreed.kv_tokens;
                    job.fits_ctx = false;
                    job.cache_agreed = true;
                }
                self.Become(number, 2, JobToJson(job));
                return Result<cluster::EpochInfo>(cluster::EpochInfo());
            };
            Job job = first.job;
            std::unique_ptr<Rank> rank;
            std::vector<engine::Recovery> recoveries;
            Status status = OpenRank(job, cluster, rank);
            EXPECT_TRUE(status.ok()) << status.error().message;
            agreed = rank->job();
            EXPECT_TRUE(cluster.Barrier("agreed", Deadline::In(10'000)).ok());
            if (r == 0 && between_) between_();
            EXPECT_TRUE(cluster.Barrier("between", Deadline::In(10'000)).ok());
            const std::weak_ptr<backend::Device> before = rank->device();
            if (is_new && r == 1) rank.reset();
            const Error loss{ErrorCode::kPeerLost, "rank 1 was lost"};
            status = Recover(job, cluster, rank, loss, recoveries);
            ASSERT_TRUE(status.ok()) << r << ": " << status.error().message;
            kept_[r] = before.expired() ? 0 : 1;
            shares_[r] = rank->Report().share;
            arenas_[r] = rank->memory().arena_bytes;
            sizes_[r] = {agreed.ctx, rank->job().ctx, rank->kv_pages()};
            status = Step(*rank, r);
            EXPECT_TRUE(status.ok()) << r << ": " << status.error().message;
            rank->LeaveEpoch();
        };
        std::thread other([&] { work(1); });
        work(0);
        other.join();
    }
    // A prompt long enough for parts (backend/cpu/overlap.h).
    static Status Step(Rank& rank, size_t r) {
        StepData step;
        if (r == 1) WEFT_TRY(rank.Receive(step));
        if (r == 0) {
            StepData::Sequence sequence;
            sequence.pages = {0, 1, 2, 3};
            step.number = 1;
            step.Append(std::vector<int32_t>(200, 5), 0, std::move(sequence));
            step.output_rows = {199};
        }
        return rank.Run(step);
    }

    test::TempDir dir_;
    std::vector<int> kept_;
    std::vector<std::string> shares_;
    std::vector<uint64_t> arenas_;  // bytes of activations
    // The context of the first epoch, and context and pages of the second one.
    std::vector<std::array<int64_t, 3>> sizes_;
    std::function<void()> between_;  // called between the epochs
};

// A loss and a join in one epoch leave number and count, and change the shares.
TEST_F(TwoEpochs, ARankKeepsItsWeightsOnlyIfItsShardIsTheSame) {
    const Epoch before{JobOf(1, 2, {2, 1})};
    Run(before, before, false);
    EXPECT_EQ(kept_, (std::vector<int>{1, 1}));
    Run(before, before, true);
    EXPECT_EQ(kept_, (std::vector<int>{1, 0}));
    EXPECT_EQ(shares_, (std::vector<std::string>{"layers 0 to 1", "layers 2 to 2"}));
    Run(before, {JobOf(1, 2, {1, 3})}, true);
    EXPECT_EQ(kept_, (std::vector<int>{0, 0}));
    EXPECT_EQ(shares_, (std::vector<std::string>{"layers 0 to 0", "layers 1 to 2"}));
    Run(before, {JobOf(2, 1)}, true);
    EXPECT_EQ(kept_, (std::vector<int>{0, 0}));
    Run({JobOf(2, 1, {2, 1})}, {JobOf(2, 1, {1, 2})}, true);
    EXPECT_EQ(kept_, (std::vector<int>{0, 0}));
    // Another rank on the host uses some of its cores.
    Run(before, {before.job, net::Transport::kShm, {1}}, true);
    EXPECT_EQ(kept_, (std::vector<int>{0, 0}));
}

// A worker of another host takes the place of one on rank 0's host, and the reverse.
TEST_F(TwoEpochs, TensorRanksAgreeOnOverlap) {
    const Epoch near{JobOf(2, 1)}, far{JobOf(2, 1), net::Transport::kTcp};
    Run(near, near, false);
    const auto in_wholes = arenas_;
    Run(far, far, false);
    const auto in_parts = arenas_;
    EXPECT_NE(in_wholes, in_parts);
    for (const bool is_new : {false, true}) {
        Run(near, far, is_new);
        EXPECT_EQ(arenas_, in_parts);
        EXPECT_EQ(kept_, (std::vector<int>{1, is_new ? 0 : 1}));
        Run(far, near, is_new);
        EXPECT_EQ(arenas_, in_wholes);
        EXPECT_EQ(kept_, (std::vector<int>{1, is_new ? 0 : 1}));
    }
}

// A rank that compiles again after another one was lost has the cache of the new rank, although
// there is more memory now.
TEST_F(TwoEpochs, ARankThatCompilesAgainKeepsTheContext) {
    support::TinyFile file{.hyper = support::OddHyper()};
    file.hyper.context = 131072;
    support::WriteTinyGguf(dir_ / "tiny.gguf", file);
    Job job = JobOf(2, 1);
    job.ctx = job.kv_tokens = file.hyper.context;
    job.cache_share = 0.4;
    job.fits_ctx = true;
    ::setenv("WEFT_MEMORY_MIB", "250", 1);
    between_ = [] { ::setenv("WEFT_MEMORY_MIB", "2000", 1); };
    Run({job}, {job, net::Transport::kTcp}, true);
    ::unsetenv("WEFT_MEMORY_MIB");
    EXPECT_EQ(kept_, (std::vector<int>{1, 0}));
    EXPECT_EQ(sizes_[0], sizes_[1]);
    EXPECT_EQ(sizes_[0][0], sizes_[0][1]);
    EXPECT_LT(sizes_[0][0], job.ctx);
}

// The control thread reads the progress of a rank's executable, so the rank reports no progress
// while it replaces the executable.
class WatchedDevice final : public backend::Device {
  public:
    WatchedDevice(std::shared_ptr<backend::Device> device, const test::FakeCluster& cluster)
        : device_(std::move(device)), cluster_(cluster) {}
    const backend::DeviceInfo& info() const override { return device_->info(); }
    backend::MemoryPool pool() const override { return device_->pool(); }
    Result<std::unique_ptr<backend::Executable>> Compile(
        program::ChunkedProgram program, const backend::CompileOptions& options) override {
        quiet_ = !cluster_.progress;
        ++compiled_;
        return device_->Compile(std::move(program), options);
    }
    backend::ThreadTeam& host_team() override { return device_->host_team(); }
    double MeasurePeak(DType compute) override { return device_->MeasurePeak(compute); }
    int compiled() const { return compiled_; }
    bool quiet() const { return quiet_; }  // in the last Compile

  private:
    std::shared_ptr<backend::Device> device_;
    const test::FakeCluster& cluster_;
    int compiled_ = 0;
    bool quiet_ = true;
};

TEST_F(EngineRecovery, ARankTellsNoProgressWhileItCompilesAgain) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    const auto device = std::make_shared<WatchedDevice>(*backend::OpenDevice("cpu", {}), cluster);
    job_.kv_tokens = 1 << 20;
    job_.cache_share = 1e-9;
    const auto rank = Rank::Make(job_, cluster, nullptr, device);
    ASSERT_TRUE(rank.ok()) << rank.error().message;
    const Status entered = (*rank)->Enter();
    ASSERT_TRUE(entered.ok()) << entered.error().message;
    EXPECT_LT((*rank)->job().kv_tokens, job_.kv_tokens);
    EXPECT_EQ(device->compiled(), 2);
    EXPECT_TRUE(device->quiet());
    EXPECT_TRUE(cluster.progress);
}

// Ranks that would run different programs do not start.
TEST_F(TwoEpochs, UnlikeLayoutsAreAnError) {
    std::vector<Job> others(4, JobOf(1, 2, {2, 1}));
    others[0].split = {1, 2};
    others[1].ctx = 128;
    others[2].kv_dtype = DType::kF32;
    others[3].overlap = backend::Overlap::kAlways;
    for (const Job& job : others) {
        test::FakeHub hub(2);
        auto fabrics = *net::MakeLocalFabrics(2, net::Transport::kShm, 4 << 20);
        const auto enter = [&](size_t r) {
            test::FakeCluster cluster(hub, static_cast<int>(r), 2, std::move(fabrics[r]));
            auto rank = Rank::Make(r == 0 ? JobOf(1, 2, {2, 1}) : job, cluster);
            ASSERT_TRUE(rank.ok()) << rank.error().message;
            const Status status = (*rank)->Enter();
            ASSERT_FALSE(status.ok());
            EXPECT_NE(status.error().message.find("the layout differs"), std::string::npos)
                << status.error().message;
        };
        std::thread other([&] { enter(1); });
        enter(0);
        other.join();
    }
}

// After a recovery that opened another device, the draft model moves there: two pinned teams of
// threads would compete for the cores.
TEST_F(TwoEpochs, ADraftModelFollowsTheDevice) {
    test::FakeHub hub(1);
    test::FakeCluster cluster(hub, 0, 1);
    auto first = *Rank::Make(JobOf(1, 1), cluster), second = *Rank::Make(JobOf(1, 1), cluster);
    ASSERT_TRUE(first->Enter().ok() && second->Enter().ok());
    const auto draft = DraftModel::Open(dir_ / "tiny.gguf", 1, *first, nullptr);
    ASSERT_TRUE(draft.ok()) << draft.error().message;
    const std::weak_ptr<backend::Device> device = first->device();
    first.reset();
    EXPECT_FALSE(device.expired());
    const Status moved = (*draft)->Serve(*second);
    ASSERT_TRUE(moved.ok()) << moved.error().message;
    EXPECT_TRUE(device.expired());
    // The same device, with a larger KV cache.
    Job large = JobOf(1, 1);
    large.ctx = 512;
    const auto third = *Rank::Make(large, cluster, nullptr, second->device());
    ASSERT_TRUE(third->Enter().ok());
    EXPECT_TRUE((*draft)->Serve(*third).ok());
    const std::vector<int32_t> text = {5, 6, 7}, pages = {7};
    std::vector<int32_t> guess;
    const Sampler sampler{SamplerOptions()};
    const DraftText wanted{
        .tokens = text, .pages = pages, .count = 1, .sampler = &sampler, .draft = &guess};
    const Status guessed = (*draft)->Guess({&wanted, 1});
    EXPECT_TRUE(guessed.ok()) << guessed.error().message;
    EXPECT_EQ(guess.size(), 1u);
}

}  // namespace
}  // namespace weft::engine
