// Data of each rank, and the order of passes of a pipeline stage.
#include "train/parallel/layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "train/parallel/groups.h"
#include "train/parallel/pipeline.h"

namespace weft::train {
namespace {

TEST(TrainLayout, EveryRankHasItsOwnPlace) {
    for (const auto& [tp, pp, dp, chunks] : {std::tuple{1, 1, 3, 1},
                                             {2, 1, 2, 1},
                                             {3, 2, 1, 1},
                                             {2, 3, 2, 1},
                                             {2, 2, 2, 3},
                                             {1, 3, 2, 2}}) {
        const int ranks = tp * pp * dp;
        std::set<std::tuple<int, int, int>> places;
        std::multiset<int> shards;
        for (int rank = 0; rank < ranks; ++rank) {
            auto layout = MakeTrainLayout(ranks, rank, {.tp = tp, .pp = pp, .chunks = chunks});
            ASSERT_TRUE(layout.ok()) << layout.error().message;
            EXPECT_EQ(layout->dp, dp);
            EXPECT_EQ(layout->pp(), pp);
            EXPECT_EQ(layout->RankOf(layout->stage, layout->replica, layout->tensor_rank), rank);
            for (int chunk = 0; chunk < chunks; ++chunk) {
                shards.insert(layout->shard(chunk));
            }
            places.insert({layout->stage, layout->replica, layout->tensor_rank});
            for (const auto& group : {layout->TensorGroup(), layout->DataGroup()}) {
                EXPECT_EQ(std::ranges::count(group, rank), 1);
                EXPECT_TRUE(std::ranges::is_sorted(group));
            }
        }
        EXPECT_EQ(places.size(), static_cast<size_t>(ranks));
        for (int shard = 0; shard < tp * pp * chunks; ++shard) {
            EXPECT_EQ(shards.count(shard), static_cast<size_t>(dp)) << shard;
        }
    }
}

TEST(TrainLayout, NeighboursShareLayers) {
    const auto layout = MakeTrainLayout(8, 5, {.tp = 2, .pp = 2, .dp = 2});
    ASSERT_TRUE(layout.ok());
    EXPECT_EQ(layout->TensorGroup(), (std::vector<int>{4, 5}));
    EXPECT_EQ(layout->DataGroup(), (std::vector<int>{5, 7}));
}

TEST(TrainLayout, SharesOfStagesAreThoseOfEachChunk) {
    const auto layout =
        MakeTrainLayout(4, 2, {.tp = 2, .pp = 2, .split = {5, 4, 3, 1}, .chunks = 2});
    ASSERT_TRUE(layout.ok());
    EXPECT_EQ(layout->model.tp_shares, (std::vector<double>{5, 4}));
    EXPECT_EQ(layout->model.pp_shares, (std::vector<double>{3, 1, 3, 1}));
}

TEST(TrainLayout, RefusesWhatDoesNotFit) {
    const std::tuple<int, TrainLayoutOptions, const char*> wrong[] = {
        {4, {.tp = 3, .pp = 1}, "--tp"},
        {4, {.tp = 2, .pp = 2, .dp = 2}, "--tp"},
        {2, {.tp = -1, .pp = 1}, "--tp"},
        {2, {.tp = 1, .pp = 1, .dp = 3}, "--tp"},
        {2, {.tp = 1 << 30, .pp = 1 << 30}, "--tp"},
        {2, {.tp = 2, .chunks = 2}, "--virtual-stages 2 with --pp 1"},
        {2, {.pp = 2, .chunks = 0}, "--virtual-stages 0"}};
    for (const auto& [ranks, words, expected] : wrong) {
        const auto layout = MakeTrainLayout(ranks, 0, words);
        ASSERT_FALSE(layout.ok());
        EXPECT_EQ(layout.error().code, ErrorCode::kUsage);
        EXPECT_NE(layout.error().message.find(expected), std::string::npos);
    }
}

// ---- Pipelines ----------------------------------------------------------------------------------

// Calls `check` for many pipelines, the same each time.
template <typename Check>
void ForManyPipelines(const Check& check) {
    for (const int stages : {1, 2, 3, 4, 5, 8}) {
        for (const int chunks : {1, 2, 3, 5}) {
            if (stages == 1 && chunks > 1) continue;
            for (const int64_t wanted : {1, 2, 3, 4, 6, 9, 16, 25}) {
                const PipelinePlace place{0, stages, chunks};
                SCOPED_TRACE(
                    fmt::format("{} stages, {} chunks, {} micro-batches", stages, chunks, wanted));
                check(place, wanted);
            }
        }
    }
}

TEST(Pipeline, EveryMicroBatchGoesThereAndBackInASlotOfItsOwn) {
    ForManyPipelines([](PipelinePlace place, int64_t wanted) {
        const int64_t micro_batches = PassesOf(place, wanted);
        EXPECT_GE(micro_batches, wanted);
        EXPECT_LT(micro_batches, wanted + place.stages);
        for (place.stage = 0; place.stage < place.stages; ++place.stage) {
            using Work = std::pair<int, int64_t>;  // chunk and micro-batch
            std::map<int, Work> under_way;         // by slot
            std::set<Work> forward, backward;
            for (const StagePass& pass : SchedulePasses(place, micro_batches)) {
                ASSERT_TRUE(pass.slot >= 0 && pass.slot < SlotsOf(place));
                const Work work{pass.chunk, pass.micro_batch};
                if (pass.forward) {
                    EXPECT_TRUE(forward.insert(work).second);
                    EXPECT_TRUE(under_way.emplace(pass.slot, work).second);
                } else {
                    EXPECT_TRUE(backward.insert(work).second);
                    EXPECT_EQ(under_way.at(pass.slot), work);
                    under_way.erase(pass.slot);
                }
            }
            const auto all = static_cast<size_t>(micro_batches * place.chunks);
            EXPECT_EQ(forward.size(), all);
            EXPECT_EQ(backward.size(), all);
        }
    });
}

// Simulates a pipeline's stages and links, with a clock that ticks once per chunk's pass.
class Simulated {
  public:
    // values: number per message; waiting: messages that a link holds before they are received.
    Simulated(const PipelinePlace& place, int64_t micro_batches, bool forward_only, size_t values,
              size_t waiting)
        : place_(place), values_(values), waiting_(waiting) {
        for (int s = 0; s < place.stages; ++s) {
            const PipelinePlace own{s, place.stages, place.chunks};
            const auto passes = forward_only ? ScheduleForward(own, micro_batches)
                                             : SchedulePasses(own, micro_batches);
            stages_.push_back({StepsOf(own, passes)});
        }
    }

    // All stages finish; fails if messages arrive in another order than sent.
    bool Runs() {
        for (bool any = true; any;) {
            any = false;
            for (int s = 0; s < place_.stages; ++s) {
                while (Advance(s)) any = true;
            }
        }
        return std::ranges::all_of(
            stages_, [](const Stage& stage) { return stage.next == stage.steps.size(); });
    }
    // ticks: end of the last stage's last pass; below: working time of a stage.
    int64_t ticks() const {
        int64_t last = 0;
        for (const Stage& stage : stages_) last = std::max(last, stage.now);
        return last;
    }

  private:
    enum class Kind { kSend, kRecv, kWork };
    // A value from or to chunk `number` on a micro-batch's path.
    struct Message {
        int number = 0;
        int64_t micro_batch = 0;
        size_t value = 0;
        bool operator==(const Message&) const = default;
    };
    struct Step {
        Kind kind = Kind::kWork;
        bool forward = false;
        Message message;  // its number at the receiver
    };
    struct Stage {
        std::vector<Step> steps;
        size_t next = 0;
        int64_t now = 0;
    };
    struct Sent {
        Message message;
        int64_t at = 0;
    };

    std::vector<Step> StepsOf(const PipelinePlace& own,
                              const std::vector<StagePass>& passes) const {
        std::vector<Step> steps;
        const int last = own.stages * own.chunks - 1;
        for (const StagePass& pass : passes) {
            const int number = pass.chunk * own.stages + own.stage;
            const int to = number + (pass.forward ? 1 : -1);
            const bool receives = number != (pass.forward ? 0 : last);
            for (size_t v = 0; v < values_ && receives; ++v) {
                steps.push_back({Kind::kRecv, pass.forward, {number, pass.micro_batch, v}});
            }
            steps.push_back({Kind::kWork, pass.forward, {}});
            for (size_t v = 0; v < values_ && to >= 0 && to <= last; ++v) {
                steps.push_back({Kind::kSend, pass.forward, {to, pass.micro_batch, v}});
            }
        }
        return steps;
    }

    // Link between neighbors, forward or backward, from stage s.
    std::deque<Sent>& Mail(int s, bool forward) { return mail_[{s, forward}]; }

    bool Advance(int s) {
        Stage& stage = stages_[static_cast<size_t>(s)];
        if (stage.next == stage.steps.size()) return false;
        const Step& step = stage.steps[stage.next];
        if (step.kind == Kind::kWork) {
            ++stage.now;
        } else if (step.kind == Kind::kSend) {
            std::deque<Sent>& mail = Mail(s, step.forward);
            if (mail.size() >= waiting_) return false;
            mail.push_back({step.message, stage.now});
        } else {
            const int from = (s + (step.forward ? -1 : 1) + place_.stages) % place_.stages;
            std::deque<Sent>& mail = Mail(from, step.forward);
            if (mail.empty()) return false;
            EXPECT_EQ(mail.front().message, step.message);
            stage.now = std::max(stage.now, mail.front().at);
            mail.pop_front();
        }
        ++stage.next;
        return true;
    }

    const PipelinePlace place_;
    const size_t values_, waiting_;
    std::vector<Stage> stages_;
    std::map<std::pair<int, bool>, std::deque<Sent>> mail_;
};

// With the minimum capacity of links: two values until they are received (StageMail), where a pass
// sends one or (with a router's load) two.
TEST(Pipeline, NoStagesEverWaitForEachOther) {
    ForManyPipelines([](const PipelinePlace& place, int64_t wanted) {
        for (const size_t values : {1u, 2u}) {
            const int64_t passes = PassesOf(place, wanted);
            EXPECT_TRUE(Simulated(place, passes, false, values, 2).Runs());
            EXPECT_TRUE(Simulated(place, wanted, true, values, 2).Runs());
        }
    });
    // (The simulation detects a deadlock: a stage sends two values at once over links with space
    // for one.)
    EXPECT_FALSE(Simulated({0, 2, 2}, 4, false, 2, 1).Runs());
}

// Each stage is idle for (stages - 1) passes forward and as many backward. With V chunks these
// passes are V times shorter (Narayanan et al. 2021, 2.2): bubble = (P - 1) / V of M.
TEST(Pipeline, ChunksShortenTheBubble) {
    for (const int stages : {2, 3, 4, 8}) {
        for (const int chunks : {1, 2, 4}) {
            for (const int64_t rounds : {1, 2, 5}) {
                const int64_t passes = rounds * stages;
                Simulated pipeline({0, stages, chunks}, passes, false, 1, 2);
                ASSERT_TRUE(pipeline.Runs());
                const int64_t work = 2 * passes * chunks;
                EXPECT_EQ(pipeline.ticks(), work + 2 * (stages - 1))
                    << stages << " stages, " << chunks << " chunks, " << passes;
            }
        }
    }
}

std::string Order(const PipelinePlace& place, int64_t micro_batches) {
    std::string order;
    for (const StagePass& pass : SchedulePasses(place, micro_batches)) {
        order += place.chunks == 1
                     ? std::string(pass.forward ? "f" : "b")
                     : fmt::format("{}{}{} ", pass.forward ? "f" : "b",
                                   static_cast<char>('A' + pass.chunk), pass.micro_batch);
    }
    return order;
}

// A chain's ends exchange the gradient of tied embeddings, which is few bytes; interleaved stages
// also send activations there.
TEST(Pipeline, EndsOfAChainSendFewBytesWithoutChunks) {
    for (const int chunks : {1, 2}) {
        const auto layout = MakeTrainLayout(4, 0, {.pp = 4, .chunks = chunks});
        ASSERT_TRUE(layout.ok());
        const cluster::LinkNeeds links = LinksOf(*layout, 4);
        ASSERT_NE(links.Find(0, 3), nullptr);
        EXPECT_EQ(links.Find(0, 3)->few_bytes, chunks == 1);
        EXPECT_FALSE(links.Find(0, 1)->few_bytes);
    }
}

// The last stage runs backward at once; each earlier stage is one pass further ahead.
TEST(Pipeline, OneForwardOneBackward) {
    EXPECT_EQ(Order({2, 3, 1}, 4), "fbfbfbfb");
    EXPECT_EQ(Order({1, 3, 1}, 4), "ffbfbfbb");
    EXPECT_EQ(Order({0, 3, 1}, 4), "fffbfbbb");
}

// Chunks A and B alternate every two micro-batches; at most 2 (P - s - 1) + (V - 1) P + 1 are kept.
TEST(Pipeline, ChunksTakeTurns) {
    EXPECT_EQ(Order({1, 2, 2}, 4),
              "fA0 fA1 fB0 bB0 fB1 bB1 fA2 bA0 fA3 bA1 fB2 bB2 fB3 bB3 bA2 bA3 ");
    EXPECT_EQ(Order({0, 2, 2}, 4),
              "fA0 fA1 fB0 fB1 fA2 bB0 fA3 bB1 fB2 bA0 fB3 bA1 bB2 bB3 bA2 bA3 ");
    EXPECT_EQ(SlotsOf({0, 2, 2}), 5);
    EXPECT_EQ(SlotsOf({1, 2, 2}), 3);
    EXPECT_EQ(SlotsOf({0, 4, 3}), 15);
    EXPECT_EQ(SlotsOf({3, 4, 3}), 9);
}

}  // namespace
}  // namespace weft::train
