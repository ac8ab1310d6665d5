// Passes of a training Program on the CPU: in any order of slots, and with links and probes that
// fail at any point.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "net/local.h"
#include "support/pass_run.h"
#include "support/ranks.h"
#include "support/slow_comm.h"

namespace weft::train {
namespace {

using support::Micro;
using support::PassRun;
using support::SlowComm;
using support::TrainingCase;
using support::TrainingRank;

// ---- Orders -------------------------------------------------------------------------------------

const TrainingCase kOrderCases[] = {
    {.recompute = program::Recompute::kSelective},
    {.architecture = "qwen3moe", .experts = true, .balance = true},
    {.architecture = "qwen3moe",
     .experts = true,
     .recompute = program::Recompute::kFull,
     .zero = {.stage = 3, .prefetch_elements = 900},
     .balance = true,
     .beside = true},
    {.architecture = "qwen2", .tied = true, .zero = {.stage = 2}, .cap = 4, .beside = true},
};

struct OrderResult {
    std::vector<std::vector<float>> losses;  // in the order of backward passes
    std::vector<float> gradients;
    bool operator==(const OrderResult&) const = default;
};

// One pass after another.
OrderResult PlainOrder(PassRun& run, const std::vector<Micro>& micros) {
    OrderResult result;
    EXPECT_TRUE(run.executable().ZeroFill(program::Pool::kGradient).ok());
    for (const Micro& micro : micros) {
        EXPECT_TRUE(run.Forward(micro).ok());
        EXPECT_TRUE(run.Backward(micro).ok());
        result.losses.push_back(run.Losses(micro));
    }
    result.gradients = run.Gradients();
    return result;
}

// The same backward passes, with other passes in flight and other reads in between.
OrderResult OddOrder(PassRun& run, const std::vector<Micro>& micros) {
    const Micro other(9, 21);
    OrderResult result;
    const auto back = [&](size_t micro, int slot) {
        EXPECT_TRUE(run.Backward(micros[micro], slot).ok());
        result.losses.push_back(run.Losses(micros[micro]));
    };
    EXPECT_TRUE(run.executable().ZeroFill(program::Pool::kGradient).ok());
    EXPECT_TRUE(run.Forward(micros[1], 0).ok());
    EXPECT_TRUE(run.Forward(micros[0], 2).ok());
    EXPECT_TRUE(run.Evaluate(other, 1).ok());
    back(0, 2);
    EXPECT_TRUE(run.Predict(other, 2).ok());
    EXPECT_TRUE(run.Evaluate(micros[2], 1).ok());
    back(1, 0);
    EXPECT_TRUE(run.Predict(micros[3], 0).ok());
    back(2, 1);
    EXPECT_TRUE(run.Evaluate(other, 1).ok());
    back(3, 0);
    result.gradients = run.Gradients();
    return result;
}

TEST(Passes, AnyOrderOfSlotsGivesTheSameBits) {
    const std::vector<Micro> micros = {Micro(0), Micro(1, 12), Micro(2, 40), Micro(3, 33)};
    for (const TrainingCase& c : kOrderCases) {
        SCOPED_TRACE(c.Name());
        TrainingRank rank(c);
        OrderResult first;
        for (const int threads : {1, 2, 3}) {
            PassRun run(rank, c, threads);
            const OrderResult plain = PlainOrder(run, micros), odd = OddOrder(run, micros);
            if (first.gradients.empty()) first = plain;
            EXPECT_TRUE(plain == first) << threads << " threads";
            EXPECT_TRUE(odd == first) << threads << " threads";
        }
    }
}

// Evaluation and training passes give equal losses, and a pass reads the rows of its own slot.
TEST(Passes, EvaluationGivesTheLossesOfTheBackwardPass) {
    for (const TrainingCase& c : kOrderCases) {
        SCOPED_TRACE(c.Name());
        TrainingRank rank(c);
        PassRun run(rank, c, 2);
        const Micro micro(4), other(5, 40);
        ASSERT_TRUE(run.Forward(micro, 1).ok());
        const float balance = c.balance ? run.Balance() : 0;
        ASSERT_TRUE(run.Backward(micro, 1).ok());
        const std::vector<float> losses = run.Losses(micro);
        ASSERT_TRUE(run.Predict(micro, 0).ok());
        const std::vector<float> predicted = run.Predicted();
        ASSERT_TRUE(run.Evaluate(other, 2).ok());
        ASSERT_TRUE(run.Evaluate(micro, 1).ok());
        EXPECT_EQ(run.Evaluated(micro), losses);
        EXPECT_TRUE(!c.balance || run.Balance() == balance);
        double sum = 0;
        for (const float logit : predicted) sum += std::exp(double{logit});
        const double target = predicted[static_cast<size_t>(micro.targets[0])];
        EXPECT_NEAR(std::log(sum) - target, losses[0], 1e-5);
    }
}

// ---- Faults -------------------------------------------------------------------------------------

// Transfers over the tensor group and the data group, in all parts and in the update.
TrainingCase FaultCase(bool beside) {
    TrainingCase c{.architecture = "qwen3", .zero = {.stage = 3, .ranks = 2}, .tp = 2};
    c.zero.prefetch_elements = beside ? 900 : 0;
    c.beside = beside;
    return c;
}

// Links outlive the executable, which may have transfers in flight when it ends.
struct FaultLinks {
    SlowComm tensor{2, 0}, data{2, 0}, world{2, 0};
    void Join(PassRun& run) {
        run.groups.tensor = &tensor;
        run.groups.data = &data;
        run.groups.world = &world;
    }
};

// Number of collectives of a link in one step.
int CountCollectives(TrainingRank& rank, const TrainingCase& c, SlowComm FaultLinks::*link) {
    FaultLinks links;
    PassRun run(rank, c, 1);
    links.Join(run);
    (links.*link).fails_after = 1 << 20;
    EXPECT_TRUE(run.All(Micro(0)).ok());
    return (1 << 20) - (links.*link).fails_after;
}

// The first `after` collectives succeed.
void ExpectFault(TrainingRank& rank, const TrainingCase& c, int threads, SlowComm FaultLinks::*link,
                 int after, const std::vector<float>& weights) {
    FaultLinks links;
    PassRun run(rank, c, threads);
    links.Join(run);
    (links.*link).fails_after = after;
    const Micro micro(0);
    const std::vector<float> before = run.Weights();
    const Status status = run.All(micro);
    ASSERT_FALSE(status.ok()) << "after " << after;
    EXPECT_EQ(status.error().code, ErrorCode::kPeerLost);
    (links.*link).fails_after = INT32_MAX;
    const Status next = run.Forward(micro);
    EXPECT_EQ(next.ok(), !c.beside);
    if (c.beside || run.Weights() != before) return;
    // State left by the failed step does no harm.
    ASSERT_TRUE(run.executable().ZeroFill(program::Pool::kGradient).ok());
    ASSERT_TRUE(run.All(micro).ok());
    EXPECT_EQ(run.Weights(), weights);
}

TEST(Passes, ALinkThatFailsAnywhereEndsTheStep) {
    for (const bool beside : {false, true}) {
        const TrainingCase c = FaultCase(beside);
        TrainingRank rank(c);
        std::vector<float> weights;
        {
            FaultLinks links;
            PassRun run(rank, c, 2);
            links.Join(run);
            ASSERT_TRUE(run.All(Micro(0)).ok());
            weights = run.Weights();
        }
        for (SlowComm FaultLinks::*link :
             {&FaultLinks::tensor, &FaultLinks::data, &FaultLinks::world}) {
            const int count = CountCollectives(rank, c, link);
            ASSERT_GT(count, 0);
            for (const int threads : {1, 2, 3}) {
                for (int after = 0; after < count; after += 1 + count / 6) {
                    ExpectFault(rank, c, threads, link, after, weights);
                }
                ExpectFault(rank, c, threads, link, count - 1, weights);
            }
        }
    }
}

// A probe sees each op once, in order, and ends the step if it fails; the next step runs.
TEST(Passes, AProbeThatFailsEndsTheStep) {
    for (const TrainingCase& c : kOrderCases) {
        SCOPED_TRACE(c.Name());
        TrainingRank rank(c);
        for (const int threads : {1, 2}) {
            PassRun run(rank, c, threads);
            const std::vector<Micro> micros = {Micro(0)};
            const OrderResult expected = PlainOrder(run, micros);
            std::vector<int32_t> seen;
            const auto probe = [&](int32_t fails_at) {
                run.executable().SetProbe([&, fails_at](int32_t op, int64_t rows) -> Status {
                    EXPECT_GE(rows, 0);
                    seen.push_back(op);
                    if (op == fails_at) return MakeError(ErrorCode::kCancelled, "op {}", op);
                    return {};
                });
            };
            probe(-1);
            EXPECT_TRUE(PlainOrder(run, micros) == expected);
            EXPECT_TRUE(std::ranges::is_sorted(seen));
            EXPECT_EQ(std::ranges::adjacent_find(seen), seen.end());
            const std::vector<int32_t> all = seen;
            for (size_t i = 0; i < all.size(); i += 1 + all.size() / 4) {
                seen.clear();
                probe(all[i]);
                Status status = run.Forward(micros[0]);
                if (status.ok()) status = run.Backward(micros[0]);
                ASSERT_FALSE(status.ok());
                EXPECT_EQ(status.error().code, ErrorCode::kCancelled);
                EXPECT_EQ(seen.back(), all[i]);
                run.executable().SetProbe(nullptr);
                EXPECT_TRUE(PlainOrder(run, micros) == expected) << "after op " << all[i];
            }
        }
    }
}

// ---- Ranks that share rows ----------------------------------------------------------------------

// Losses of each rank of a tensor group, with a thread per rank.
std::vector<std::vector<float>> LossesOnRanks(TrainingCase c, const Micro& micro) {
    constexpr size_t kWindow = size_t{1} << 20;
    std::vector<std::unique_ptr<TrainingRank>> ranks;
    for (c.shard = 0; c.shard < c.tp; ++c.shard) ranks.push_back(std::make_unique<TrainingRank>(c));
    auto fabrics = net::MakeLocalFabrics(c.tp, net::Transport::kShm, kWindow).value();
    std::vector<std::vector<float>> losses(ranks.size());
    test::OnThreads(fabrics, [&](net::Fabric& fabric) {
        std::vector<int> group(ranks.size());
        std::iota(group.begin(), group.end(), 0);
        const auto comm =
            coll::Comm::Make(fabric, group, {0, kWindow, 0, net::kFlags}, 10'000).value();
        const auto r = static_cast<size_t>(fabric.rank);
        PassRun run(*ranks[r], c, 1);
        run.groups.tensor = run.groups.world = comm.get();
        const Status status = run.All(micro);
        ASSERT_TRUE(status.ok()) << status.error().message;
        ASSERT_TRUE(run.Forward(micro).ok());
        ASSERT_TRUE(run.Backward(micro).ok());
        losses[r] = run.Losses(micro);  // after an update
    });
    return losses;
}

// Passes also run for steps in which some ranks have no row.
TEST(Passes, RanksWithoutRowsTakePart) {
    TrainingCase c{.architecture = "qwen3", .logits_bytes = 1 << 20};
    for (const int32_t rows : {1, 2, 5}) {
        const Micro micro(0, rows);
        c.tp = 1;
        c.row_shares = false;
        const std::vector<float> expected = LossesOnRanks(c, micro)[0];
        c.tp = 3;
        for (const bool shares : {false, true}) {
            c.row_shares = shares;
            for (const std::vector<float>& losses : LossesOnRanks(c, micro)) {
                ASSERT_EQ(losses.size(), expected.size());
                for (size_t i = 0; i < losses.size(); ++i) {
                    EXPECT_NEAR(losses[i], expected[i], 1e-4);
                }
            }
        }
    }
}

}  // namespace
}  // namespace weft::train
