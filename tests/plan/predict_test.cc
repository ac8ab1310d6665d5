// Predictions: sums of their parts, fitting in memory, and results of the search.
#include "plan/predict.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <fstream>
#include <sstream>

#include "plan/launch_command.h"
#include "plan/names.h"
#include "plan/search.h"
#include "plan/shapes.h"
#include "plan/weft_rates.h"
#include "support/nightly.h"
#include "support/temp_dir.h"

namespace weft::plan {
namespace {

// A model, and the cluster of the prediction.
struct Case {
    Library library;
    std::unique_ptr<model_files::ModelSource> source;
    ModelWalk walk;
    ClusterSpec cluster;

    Result<Prediction> With(int tp, int pp, const Workload& load, int ep = 0) const {
        model::Layout layout;
        layout.tp = tp;
        layout.pp = pp;
        layout.ep = ep;
        return Predict(walk, cluster, layout, load);
    }
    Prediction Must(int tp, int pp, const Workload& load = {}, int ep = 0) const {
        auto prediction = With(tp, pp, load, ep);
        EXPECT_TRUE(prediction.ok()) << prediction.error().message;
        return *std::move(prediction);
    }
};

Case CaseOf(const std::string& model, const std::string& machines) {
    Library library = *Library::Open();
    auto source = OpenShape(model);
    EXPECT_TRUE(source.ok()) << source.error().message;
    ModelWalk walk = *ModelWalk::Make(**source, DType::kF16);
    ClusterSpec cluster = *library.ParseCluster(machines);
    return {std::move(library), *std::move(source), std::move(walk), std::move(cluster)};
}

TEST(Predict, BreakdownsAddUp) {
    const Case c = CaseOf("qwen3-30b-a3b:q8_0", "4xstrix-halo,roce");
    for (const auto& [tp, pp, batch] :
         {std::tuple(1, 1, 1), std::tuple(4, 1, 3), std::tuple(1, 4, 8), std::tuple(2, 2, 5)}) {
        const Prediction p = c.Must(tp, pp, {2048, batch, 0, 512});
        double sum = 0;
        for (const CauseRow<Breakdown>& row : Breakdown::Rows()) {
            EXPECT_GE(p.token.*row.seconds, 0) << row.name;
            sum += p.token.*row.seconds;
        }
        EXPECT_EQ(sum, p.token.total());
        EXPECT_DOUBLE_EQ(p.tok_s * sum, batch);
        EXPECT_EQ(p.prompt.total(), p.ttft_s);
        EXPECT_EQ(p.token.hops > 0, pp > 1);
        EXPECT_EQ(p.token.sync > 0, tp > 1);
        EXPECT_GT(p.spread, 0.05 * p.tok_s);
    }
}

// BF16 weights are read once, and a KV cache of 2 x 8 heads x 128 columns in F16, each at Weft's
// share of the bandwidth.
TEST(Predict, OneRankIsWorkedOutByHand) {
    const Case c = CaseOf("llama-3.1-8b:bf16", "strix-halo");
    const Prediction p = c.Must(1, 1, {4096, 1, 0, 512});
    const double weights = 2 * (8.03e9 - 128256.0 * 4096);
    const WeftRates& share = RatesOfKind(c.cluster.hosts[0]);
    EXPECT_NEAR(p.token.weights * 215e9 * share.weights / weights, 1, 0.01);
    const double cache = 32.0 * 2 * 8 * 128 * 2 * 4097;
    EXPECT_NEAR(p.token.cache * 215e9 * share.cache / cache, 1, 0.01);
    EXPECT_EQ(p.token.wire, 0);
    EXPECT_NEAR(static_cast<double>(p.memory[0].weights), 2 * 8.03e9, 0.01e9);
    EXPECT_EQ(p.memory[0].cache, 32ull * 2 * 8 * 128 * 2 * 4096);
}

// A latent of 512 + 64 columns a position and layer, on every tensor rank.
TEST(Predict, LatentAttentionKeepsLittle) {
    const Case c = CaseOf("deepseek-r1:q4_k_m", "8xstrix-halo");
    const Prediction p = c.Must(8, 1, {4096, 2, 0, 512});
    for (const MemoryUse& use : p.memory) {
        EXPECT_NEAR(static_cast<double>(use.cache), 61.0 * 576 * 2 * 4096 * 2, 1e6);
    }
}

// A batch reads more experts, but not batch times as many.
TEST(Predict, BatchesShareExperts) {
    const Case c = CaseOf("qwen3-235b-a22b:q8_0", "4xstrix-halo");
    const double one = c.Must(4, 1, {512, 1, 0, 512}).token.weights;
    const double eight = c.Must(4, 1, {512, 8, 0, 512}).token.weights;
    EXPECT_GT(eight, 3 * one);
    EXPECT_LT(eight, 7.5 * one);
    // Whole experts: on average a rank reads as much, the unluckiest more.
    const Prediction groups = c.Must(4, 1, {512, 1, 0, 512}, 4);
    EXPECT_GT(groups.token.imbalance, 0.2 * groups.token.weights);
    EXPECT_NEAR(groups.token.weights / one, 1, 0.05);
}

TEST(Predict, LatencyCostsTensorRanks) {
    const Case fast = CaseOf("llama-3.1-8b:q4_0", "4xstrix-halo,roce");
    const Case slow = CaseOf("llama-3.1-8b:q4_0", "4xstrix-halo,tcp");
    EXPECT_GT(fast.Must(4, 1).tok_s, 1.2 * slow.Must(4, 1).tok_s);
    EXPECT_GT(fast.Must(4, 1).tok_s, 2 * fast.Must(1, 4).tok_s);
    // With as many sequences as stages, all stages work.
    EXPECT_GT(fast.Must(1, 4, {512, 4, 0, 512}).tok_s, 3 * fast.Must(1, 4, {512, 1, 0, 512}).tok_s);
}

// The last stage sends the best logits of a row to rank 0, not all of them.
TEST(Predict, StagesSendRowsAndCandidates) {
    const Case c = CaseOf("llama-3.1-8b:q8_0", "2xstrix-halo,2.5gbe");
    const coll::Tier wire = c.cluster.wire.AsTier();
    const double messages =
        coll::MessageSeconds(wire, 4096 * 4) + coll::MessageSeconds(wire, 40 * 8);
    const double own = 2 * RatesOfKind(c.cluster.hosts[0]).hop_s;
    EXPECT_NEAR(c.Must(1, 2, {.context = 512}).token.hops / (messages + own), 1, 1e-9);
}

// Each tensor rank sends the whole row to the next stage; those of a host share its wire.
TEST(Predict, TensorRanksOfAStageShareTheWire) {
    const Case c = CaseOf("llama-3.1-8b:q4_0", "2xrtx-3090:2,2.5gbe");
    const coll::Tier wire = c.cluster.wire.AsTier();
    const double messages =
        coll::MessageSeconds(wire, 2 * 4096 * 4) + coll::MessageSeconds(wire, 40 * 8);
    const double own = 2 * RatesOfKind(c.cluster.hosts[0]).hop_s;
    EXPECT_NEAR(c.Must(2, 2, {.context = 512}).token.hops / (messages + own), 1, 1e-9);
}

// Two sequences keep two stages busy; but a stage that has nearly all layers is busy with one.
TEST(Predict, TheSlowestStageHoldsUpTheOthers) {
    const Case c = CaseOf("llama-3.1-70b:q8_0", "2xstrix-halo,roce");
    model::Layout layout;
    layout.pp = 2;
    layout.pp_shares = {15, 1};
    const auto speed = [&](int64_t batch) {
        const auto p = Predict(c.walk, c.cluster, layout, {512, batch, 0, 512});
        EXPECT_TRUE(p.ok()) << p.error().message;
        return p->tok_s;
    };
    EXPECT_GT(speed(2), speed(1));
    EXPECT_LT(speed(2), 1.2 * speed(1));
}

// Prompts after a context attend to it, and it takes memory of the cache.
TEST(Predict, APromptMayFollowAContext) {
    const Case c = CaseOf("llama-3.1-8b:q8_0", "strix-halo");
    const Prediction first = c.Must(1, 1, {.context = 512, .prompt = 512});
    const Prediction later = c.Must(1, 1, {.context = 512, .prompt = 512, .depth = 32768});
    EXPECT_GT(later.ttft_s, 1.2 * first.ttft_s);
    EXPECT_DOUBLE_EQ(later.prompt_tok_s * later.ttft_s, 512);
    EXPECT_EQ(later.memory[0].cache, first.memory[0].cache / 512 * (512 + 32768));
    EXPECT_DOUBLE_EQ(later.tok_s, first.tok_s);
}

// With K right guesses, a step yields K + 1 tokens; with wrong ones, one token at a higher cost.
TEST(Predict, DraftsPayWhenTheyAreRight) {
    const Case c = CaseOf("llama-3.1-70b:q8_0", "2xstrix-halo,roce");
    const auto small = OpenWalk("llama-3.2-1b:q8_0");
    ASSERT_TRUE(small.ok());
    const double alone = c.Must(2, 1).tok_s;
    const auto with = [&](double accepted) {
        return c.Must(2, 1, {.draft = {&small->walk, 4, accepted}});
    };
    EXPECT_LT(with(0).tok_s, alone);
    EXPECT_GT(with(1).tok_s, 3 * alone);
    EXPECT_NEAR(with(1).tok_s / with(0).tok_s, 5, 1e-9);
    EXPECT_EQ((Workload{.draft = {&small->walk, 2, 0.5}}.yield()), 1.75);
    // A step of the engine has at most 64 drafted tokens, so some sequences have none.
    const Workload wide{.batch = 128, .draft = {&small->walk, 2, 0.5}};
    EXPECT_EQ(wide.rows_each(), 2);
    EXPECT_EQ(wide.yield(), 1.25);
    EXPECT_EQ(wide.AsJob({}).max_outputs, 128 + 64);
    EXPECT_GT(with(0.5).token.draft, 0);
    EXPECT_DOUBLE_EQ(with(0.5).tok_s * with(0.5).token.total(), 1);
    EXPECT_GT(with(0.5).memory[0].weights, c.Must(2, 1).memory[0].weights);
    EXPECT_EQ(with(0.5).memory[1].weights, c.Must(2, 1).memory[1].weights);
}

// A draft model reads a prompt behind the model: as long as alone, less its logits.
TEST(Predict, DraftsReadPromptsToo) {
    const Case model = CaseOf("llama-3.1-70b:q8_0", "2xstrix-halo,roce");
    const Case draft = CaseOf("llama-3.2-1b:q8_0", "strix-halo");
    const auto small = OpenWalk("llama-3.2-1b:q8_0");
    ASSERT_TRUE(small.ok());
    for (const int64_t prompt : {100, 512, 1700}) {
        Workload load{.context = 2048, .prompt = prompt};
        const double alone = draft.Must(1, 1, load).ttft_s, before = model.Must(2, 1, load).ttft_s;
        load.draft = {&small->walk, 4, 0.5};
        const Prediction both = model.Must(2, 1, load);
        EXPECT_DOUBLE_EQ(both.ttft_s, before + both.prompt.draft);
        EXPECT_LE(both.prompt.draft, alone);
        EXPECT_GT(both.prompt.draft, 0.85 * alone) << prompt;
    }
}

// In a pipeline one host works while the others wait for it.
TEST(Predict, IdleHostsDrawIdlePower) {
    const Case c = CaseOf("llama-3.1-70b:q8_0", "4xstrix-halo,roce");
    const Machine& machine = c.cluster.hosts[0];
    const auto watts = [&](int tp, int pp, int64_t batch) {
        const Prediction p = c.Must(tp, pp, {512, batch, 0, 512});
        return *p.joules_per_token * p.tok_s;
    };
    EXPECT_NEAR(watts(4, 1, 1), 4 * machine.watts_busy->value, 1);
    EXPECT_NEAR(watts(1, 4, 1), machine.watts_busy->value + 3 * machine.watts_idle->value, 5);
    EXPECT_GT(watts(1, 4, 4), 3.5 * machine.watts_busy->value);
    // A part of a host's devices is a part of what its devices draw.
    const Case part = CaseOf("qwen3-0.6b:q8_0", "h100");
    const Prediction one = part.Must(1, 1);
    const Machine& host = part.cluster.hosts[0];
    EXPECT_NEAR(*one.joules_per_token * one.tok_s,
                host.watts_idle->value + (host.watts_busy->value - host.watts_idle->value) / 8, 1);
}

// One piece per kind of layer; their total cost is that of the rank's whole Program. So a
// prediction takes as long for 126 layers as for one.
TEST(Walk, PiecesAreTheWholeProgram) {
    for (const auto& [model, kinds] :
         {std::pair("deepseek-r1:q8_0", 2), std::pair("llama-3.1-405b:q8_0", 1),
          std::pair("gpt-oss-20b:mxfp4", 2), std::pair("llama-3.2-1b:q8_0", 1)}) {
        const Case c = CaseOf(model, "2xh200");
        const model::Layout layout{2, 1, {}, {}, 0};
        const auto plan = model::PlanShards(c.walk.hyper(), *c.source, layout);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        for (const model::Shard& shard : plan->shards) {
            const auto whole = model::BuildProgram(c.walk.hyper(), shard, *c.source, {});
            ASSERT_TRUE(whole.ok()) << whole.error().message;
            const auto work = c.walk.WorkOf(shard);
            ASSERT_TRUE(work.ok()) << work.error().message;
            EXPECT_EQ(work->pieces.size(), static_cast<size_t>(kinds) + 2) << model;
            const program::StepShape step{3, 1, 3, 1000};
            program::OpCost sum;
            for (const Piece& piece : work->pieces) {
                const auto costs = program::Cost(piece.program, step);
                for (size_t i = 0; i < costs.size(); ++i) {
                    const auto kind = piece.program.ops[i].kind();
                    if (kind == program::OpKind::kSend || kind == program::OpKind::kRecv) continue;
                    sum.flops += static_cast<double>(piece.count) * costs[i].flops;
                    sum.read_bytes += piece.count * costs[i].read_bytes;
                    sum.written_bytes += piece.count * costs[i].written_bytes;
                    sum.wire_bytes += piece.count * costs[i].wire_bytes;
                }
            }
            const program::OpCost all = program::Total(program::Cost(*whole, step));
            EXPECT_NEAR(sum.flops / all.flops, 1, 1e-9) << model;
            EXPECT_EQ(sum.read_bytes, all.read_bytes) << model;
            EXPECT_EQ(sum.written_bytes, all.written_bytes) << model;
            EXPECT_EQ(sum.wire_bytes, all.wire_bytes) << model;
            uint64_t weights = 0;
            for (const program::Value& value : whole->values) {
                if (value.storage != program::Storage::kWeight) continue;
                weights += static_cast<uint64_t>(RowBytes(value.dtype, value.shape.Elements(0, 0)));
            }
            EXPECT_EQ(work->weight_bytes, weights) << model;
        }
    }
}

TEST(Search, FindsTheLayout) {
    const Case c = CaseOf("deepseek-r1:q4_k_m", "4xstrix-halo,roce");
    const auto plan = Search(c.walk, c.cluster, c.library, {});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->layouts[0].name, "tp4");
    EXPECT_TRUE(plan->layouts[0].fits());
    bool fits = true;
    for (const Prediction& p : plan->layouts) {
        EXPECT_TRUE(fits || !p.fits()) << "those that fit stand first";
        fits = p.fits();
    }
    ASSERT_EQ(plan->what_if.size(), 4u);
    EXPECT_EQ(plan->what_if[0].words, "tcp");
    EXPECT_LT(plan->what_if[0].gain, 0);
    EXPECT_EQ(plan->what_if[1].words, "half the latency");
    EXPECT_GT(plan->what_if[1].gain, 0);
    EXPECT_EQ(plan->what_if[2].words, "5 machines");
}

// MayFit plans the memory of the heaviest rank only. It rejects exactly the layouts in which this
// rank lacks memory, so it never rejects a layout that fits.
TEST(Search, MayFitRejectsOnlyWhatLacksMemory) {
    Case c = CaseOf("qwen3-30b-a3b:q8_0", "2xrtx-3090:4,roce");
    int fitting = 0, rejected = 0, heavier = 0;
    for (const double gigabytes : {2.0, 5.0, 6.0, 9.0, 17.0, 40.0}) {
        for (Machine& host : c.cluster.hosts) host.memory.value = gigabytes * 1e9;
        const Workload load;
        LayoutPredictor predictor(c.walk, load);
        for (const model::Layout& layout : LayoutsOf(c.cluster, c.walk.hyper())) {
            const auto whole = predictor.Predict(c.cluster, layout);
            const auto timed = predictor.Predict(c.cluster, layout, false);
            ASSERT_EQ(whole.ok(), timed.ok());
            if (!whole.ok()) continue;
            const MemoryUse& heaviest = whole->memory[static_cast<size_t>(timed->heaviest_rank)];
            for (const MemoryUse& use : whole->memory) EXPECT_LE(use.weights, heaviest.weights);
            const bool holds = heaviest.needed <= heaviest.room;
            EXPECT_EQ(predictor.MayFit(c.cluster, *timed), holds) << whole->name << gigabytes;
            EXPECT_TRUE(holds || !whole->fits()) << whole->name << gigabytes;
            fitting += whole->fits();
            rejected += !holds;
            heavier += timed->heaviest_rank > 0;
        }
    }
    EXPECT_GT(fitting, 0);
    EXPECT_GT(rejected, 0);
    EXPECT_GT(heavier, 0) << "the heaviest rank is not always rank 0";
}

// Over a slow wire, three of four hosts may be fastest, if the plan of three hosts is.
TEST(Search, EachCountOfHostsIsTried) {
    const Case three = CaseOf("gpt-oss-120b", "3xstrix-halo,10gbe");
    const Case four = CaseOf("gpt-oss-120b", "4xstrix-halo,10gbe");
    const auto of_three = Search(three.walk, three.cluster, three.library, {});
    const auto of_four = Search(four.walk, four.cluster, four.library, {});
    ASSERT_TRUE(of_three.ok() && of_four.ok());
    EXPECT_LE(of_four->layouts[0].answer_s, of_three->layouts[0].answer_s);
    for (const WhatIf& then : of_three->what_if) EXPECT_GE(then.gain, 0) << then.words;
}

// Of unlike hosts not all layouts are tried anew for a question; what is there goes on there.
TEST(Search, MoreIsNoWorse) {
    SKIP_TO_NIGHT_UNLESS(false);
    const Case c = CaseOf("gpt-oss-120b", "4xrtx-3090+4xmi50-32gb,roce");
    const auto plan = Search(c.walk, c.cluster, c.library, {.batch = 4});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    for (const WhatIf& then : plan->what_if) {
        if (then.words == c.cluster.wire.instead) continue;  // tcp: slower
        EXPECT_GE(then.gain, 0) << then.words;
    }
}

// A small model with a short prompt is fastest on a part of a host.
TEST(Search, FewerDevicesAreTried) {
    const Case c = CaseOf("qwen3-0.6b:q8_0", "b200");
    const auto plan = Search(c.walk, c.cluster, c.library, {.prompt = 64});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_EQ(plan->layouts[0].name, "tp1");
}

// Its duration is tested on an idle machine only; here the search must end and find enough layouts.
TEST(Search, ThousandsOfRanks) {
    const Case c = CaseOf("llama-3.1-405b:bf16", "384xh100");
    const auto plan = Search(c.walk, c.cluster, c.library, {});
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    EXPECT_GT(plan->layouts.size(), 50u);
    EXPECT_TRUE(plan->what_if.empty());
    EXPECT_TRUE(std::ranges::any_of(plan->layouts,
                                    [](const Prediction& p) { return p.layout.size() == 3072; }));
}

// The certainty of a figure does not depend on which host comes first.
TEST(Predict, SpreadIsThatOfTheLeastKnownHost) {
    Case c = CaseOf("llama-3.1-8b:q8_0", "1xstrix-halo+1xrtx-4090,10gbe");
    c.cluster.hosts[0].bandwidth.mark = Mark::kMeasured;
    c.cluster.hosts[1].bandwidth.mark = Mark::kGuessed;
    const double one = c.Must(1, 2).spread / c.Must(1, 2).tok_s;
    std::swap(c.cluster.hosts[0], c.cluster.hosts[1]);
    const Prediction swapped = c.Must(1, 2);
    EXPECT_NEAR(one, swapped.spread / swapped.tok_s, 0.01);
    EXPECT_GT(one, 0.15);
    c.cluster.hosts[0].bandwidth.mark = c.cluster.hosts[1].bandwidth.mark = Mark::kMeasured;
    EXPECT_LT(c.Must(1, 2).spread / c.Must(1, 2).tok_s, one);
}

// One more machine never makes the best layout slower, at any place: the layout may omit it.
TEST(Search, ASlowMachineMayBeLeftOut) {
    for (const auto& [few, more, used] : std::initializer_list<std::array<const char*, 3>>{
             {"rtx-4090", "1xrtx-4090+1xraspberry-pi-5,1gbe", "1xrtx-4090"},
             {"rtx-4090", "1xraspberry-pi-5+1xrtx-4090,1gbe", "1xrtx-4090"},
             {"rtx-4090", "1xrtx-4090+1xstrix-halo", "1xrtx-4090"},
             {"h100", "1xh100:8+1xraspberry-pi-5,roce", "1xh100:8"},
             {"2xrtx-4090,roce", "2xrtx-4090+1xraspberry-pi-5+1xstrix-halo,roce", nullptr}}) {
        const Case alone = CaseOf("llama-3.1-8b:q4_0", few),
                   all = CaseOf("llama-3.1-8b:q4_0", more);
        const auto best = Search(alone.walk, alone.cluster, alone.library, {});
        const auto found = Search(all.walk, all.cluster, all.library, {});
        ASSERT_TRUE(best.ok() && found.ok());
        const Prediction& p = found->layouts[0];
        EXPECT_LE(p.answer_s, best->layouts[0].answer_s * (1 + 1e-9)) << more;
        if (used == nullptr) continue;
        EXPECT_EQ(all.cluster.Part(p.used).words, used) << more;
        const std::string run = LaunchCommand({"m", "", "f16", {}}, all.cluster, p, {});
        EXPECT_EQ(run.find("--hosts"), std::string::npos) << run;
    }
}

const Prediction& NamedLayout(const Plan& plan, const std::string& name) {
    const auto found = std::ranges::find(plan.layouts, name, &Prediction::name);
    EXPECT_NE(found, plan.layouts.end()) << name;
    return *found;
}

// tp x pp over two kinds of hosts: the slow stage has few layers, its ranks even shares of them;
// and where each stage has one of either kind, the stages are even and the shares are not.
TEST(Search, UnevenTensorRanksAndStages) {
    const Case stages = CaseOf("llama-3.1-8b:q8_0", "2xstrix-halo+2xrtx-4090,100gbe");
    const auto of_stages = Search(stages.walk, stages.cluster, stages.library, {.batch = 8});
    ASSERT_TRUE(of_stages.ok()) << of_stages.error().message;
    const Prediction& a = NamedLayout(*of_stages, "tp2 pp2");
    ASSERT_EQ(a.layout.pp_shares.size(), 2u);
    EXPECT_EQ(a.layout.pp_shares[0] + a.layout.pp_shares[1], 32);
    EXPECT_GT(a.layout.pp_shares[1], 1.5 * a.layout.pp_shares[0]);
    EXPECT_GT(a.memory[3].weights, a.memory[0].weights);
    EXPECT_LT(a.answer_s, stages.Must(2, 2, {.batch = 8}).answer_s);
    const Case mixed =
        CaseOf("llama-3.1-8b:q8_0", "strix-halo+rtx-4090+strix-halo+rtx-4090,100gbe");
    const auto of_ranks = Search(mixed.walk, mixed.cluster, mixed.library, {.batch = 8});
    ASSERT_TRUE(of_ranks.ok()) << of_ranks.error().message;
    const Prediction& b = NamedLayout(*of_ranks, "tp2 pp2");
    ASSERT_EQ(b.layout.tp_shares.size(), 2u);
    EXPECT_GT(b.layout.tp_shares[1], 2 * b.layout.tp_shares[0]);
    ASSERT_EQ(b.layout.pp_shares.size(), 2u);
    EXPECT_LE(std::abs(b.layout.pp_shares[0] - b.layout.pp_shares[1]), 4);
    EXPECT_LT(b.answer_s, mixed.Must(2, 2, {.batch = 8}).answer_s);
}

// For two stages, the test tries every cut: the search finds the best one, with one sequence (the
// fast machine holds all layers that fit) and with several (both are busy).
TEST(Search, TwoStagesAreCutAtTheBestLayer) {
    SKIP_TO_NIGHT_UNLESS(false);
    for (const int64_t batch : {1, 6}) {
        const Case c = CaseOf("llama-3.1-70b:q4_k_m", "1xstrix-halo+1xrtx-4090,10gbe");
        const Workload load{.context = 1024, .batch = batch};
        const auto plan = Search(c.walk, c.cluster, c.library, load);
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        const Prediction& found = NamedLayout(*plan, "pp2");
        ASSERT_TRUE(found.fits());
        LayoutPredictor predictor(c.walk, load);
        double best = INFINITY, first = 0;
        for (double layers = 1; layers < 80; ++layers) {
            const auto p = predictor.Predict(c.cluster, {1, 2, {}, {layers, 80 - layers}, 0});
            ASSERT_TRUE(p.ok()) << p.error().message;
            if (p->fits() && p->answer_s < best) best = p->answer_s, first = layers;
        }
        EXPECT_NEAR(found.answer_s / best, 1, 1e-6) << "best: " << first << " layers first";
    }
}

TEST(LaunchCommand, SayTheLayout) {
    const Case c = CaseOf("llama-3.1-8b:q8_0", "strix-halo+rtx-4090:2,100gbe");
    model::Layout layout{1, 3, {}, {4, 14, 14}, 0};
    const Workload one{.context = 1000};
    auto p = Predict(c.walk, c.cluster, layout, one);
    ASSERT_TRUE(p.ok()) << p.error().message;
    EXPECT_EQ(LaunchCommand({"llama-3.1-8b:q8_0", "", "f16", {}}, c.cluster, *p, one),
              "weft run llama-3.1-8b:q8_0 --hosts host2:7000,host2:7001 --key-file weft.key --tp 1 "
              "--pp 3 --tensor-split 4,14,14 --device vulkan --ctx 1000");
    const Case two = CaseOf("llama-3.1-8b:q8_0", "raspberry-pi-5:4");
    layout = {2, 2, {}, {20, 12}, 0};
    const Workload many{.context = 512, .batch = 600};
    p = Predict(two.walk, two.cluster, layout, many);
    ASSERT_TRUE(p.ok()) << p.error().message;
    EXPECT_EQ(
        LaunchCommand({"my model.gguf", "a draft.gguf", "q8_0", {}}, two.cluster, *p, many),
        "weft serve 'my model.gguf' --local 4 --tp 2 --pp 2 --tensor-split 1,1,20,12 --ctx 512 "
        "--max-seqs 600 --kv-tokens 307200 --prefill-chunk 600 --kv-dtype q8_0 --draft 'a "
        "draft.gguf' --draft-tokens 4");
    // Tensor ranks of two kinds of GPUs don't prove the same bits.
    const Case unlike = CaseOf("llama-3.1-8b:q8_0", "strix-halo+rtx-4090,100gbe");
    p = Predict(unlike.walk, unlike.cluster, {2, 1, {1, 3}, {}, 0}, one);
    ASSERT_TRUE(p.ok()) << p.error().message;
    EXPECT_TRUE(SkipsSelfTest(unlike.cluster, *p));
    const auto stages = Predict(unlike.walk, unlike.cluster, {1, 2, {}, {}, 0}, one);
    EXPECT_FALSE(SkipsSelfTest(unlike.cluster, *stages)) << "no tensor ranks";
    EXPECT_EQ(
        LaunchCommand({"m", "", "f16", {"b:7000"}}, unlike.cluster, *p, one),
        "weft run m --hosts b:7000 --key-file weft.key --tp 2 --pp 1 --tensor-split 1,3 --device "
        "vulkan --ctx 1000 --skip-self-test");
}

// If a plan uses a part of the hosts, --hosts names only these; the first of them runs the command.
TEST(LaunchCommand, AreOfTheHostsThatAreUsed) {
    const Case c = CaseOf("llama-3.1-8b:q8_0", "raspberry-pi-5+2xrtx-4090:2,100gbe");
    const std::vector<int> used = {1, 2};
    const ClusterSpec part = c.cluster.Part(used);
    EXPECT_EQ(part.words, "2xrtx-4090:2,100gbe");
    auto p = Predict(c.walk, part, {1, 4, {}, {}, 0}, {});
    ASSERT_TRUE(p.ok()) << p.error().message;
    p->used = used;
    EXPECT_NE(
        LaunchCommand({"m", "", "f16", {}}, c.cluster, *p, {})
            .find("--hosts host2:7001,host3:7000,host3:7001 --key-file weft.key --tp 1 --pp 4"),
        std::string::npos);
    EXPECT_NE(LaunchCommand({"m", "", "f16", {"b:1", "b:2", "c:1", "c:2"}}, c.cluster, *p, {})
                  .find("--hosts b:2,c:1,c:2 "),
              std::string::npos);
}

// Published numbers of parameters in billions.
constexpr const char* kBillions = R"(
llama-2-7b=6.74 llama-3.1-70b=70.6 qwen2.5-7b=7.62 qwen3-8b=8.19 qwen3-30b-a3b=30.5
qwen3-235b-a22b=235.1 glm-4.5-air=106.9 glm-4.5=352.8 minimax-m2=228.7 deepseek-r1=671.0
mixtral-8x7b=46.7 llama-3.2-1b=1.24 qwen3-1.7b=1.72 qwen2.5-14b=14.77 gemma-2-27b=27.2
gemma-3-12b=11.77 gemma-3-27b=27.0 mistral-small-24b=23.6 phi-4=14.66 phi-3-mini=3.82
deepseek-v2-lite=15.7 deepseek-v2=235.7 kimi-k2=1026.0 mixtral-8x22b=140.6 olmo-2-32b=32.2
smollm3-3b=3.08 granite-3.3-8b=8.17 command-r=35.0 glm-4-9b=9.4 qwen3-coder-480b-a35b=480.0
glm-4.6=352.8 dots.llm1-142b=142.8 llama-4-scout=107.8 qwen3-next=79.7 qwen3.6-35b-a3b=34.7
qwen3.6-27b=26.9 command-a=111.0 command-r7b=8.03 ernie-4.5-0.3b=0.36 ernie-4.5-21b=21.8
ernie-4.5-300b=300.0 exaone-4.0-1.2b=1.28 exaone-4.0-32b=32.0 gemma-4-26b-a4b=25.2
gemma-4-31b=30.7 glm-4-32b=32.6 hunyuan-a13b=80.4 k-exaone=236.0 laguna-s-2.1=118.0
laguna-xs.2=33.4 ling-1t=999.7 ling-flash-2.0=103.0 ling-mini-2.0=16.3 mimo-v2-flash=309.0
ministral-3-3b=3.43 ministral-3-8b=8.49 olmoe-1b-7b=6.92 qwen3.5-0.8b=0.752 qwen3.5-122b=122.0
qwen3.5-2b=1.88 qwen3.5-397b=397.0 qwen3.5-4b=4.21 qwen3.5-9b=8.95 step-3.5-flash=196.8
trinity-large=398.0 trinity-mini=26.1 trinity-nano=6.12 nemotron-3-nano=31.6
nemotron-3-super=120.7 llama-4-maverick=400.7 lfm2-350m=0.354 lfm2-700m=0.742 lfm2-1.2b=1.17
lfm2-2.6b=2.57 lfm2-8b-a1b=8.34 lfm2.5-8b-a1b=8.47 granite-4.0-h-small=32.2
granite-4.0-h-tiny=6.94 granite-4.0-h-micro=3.19 granite-4.0-h-1b=1.46 falcon-h1-0.5b=0.521
falcon-h1-1.5b=1.55 falcon-h1-3b=3.15 falcon-h1-7b=7.59 falcon-h1-34b=33.6 kimi-linear-48b=49.1
gemma-4-e2b=4.65 gemma-4-e4b=7.52 minimax-m3=428.0 ling-3.0-flash=124.0 glm-5.2=743.9
command-r-plus=103.8 gemma-2b=2.51 gemma-7b=8.54 internlm2-1.8b=1.89 internlm2-7b=7.74
internlm2-20b=19.86 minicpm-2b=2.72 granite-4.0-micro=3.40 granite-4.0-1b=1.63
granite-4.0-350m=0.352 granite-3.1-3b-a800m=3.30 granite-3.1-1b-a400m=1.33
nemotron-nano-9b-v2=8.89 nemotron-nano-12b-v2=12.31 nemotron-super-49b=49.9 lfm2-24b=23.84
muse-glimmer=27.85 mistral-large-4=1050.1 deepseek-v4-flash=284.0 hy4=770.0 glm-5.3-flash=313.3
apertus-8b=8.05 apertus-70b=70.6 starcoder2-3b=3.03 starcoder2-7b=7.17 starcoder2-15b=15.96
phi-3.5-moe=41.9 stablelm-2-1.6b=1.644 stablelm-2-12b=12.14 minitron-4b=4.19 nemotron-4-340b=341.0
afm-4.5b=4.62 glm-4-9b-chat=9.4 olmo-hybrid-7b=7.43 nemotron-3-ultra=550.0
command-a-plus=218.0)";

TEST(Shapes, AllHaveTheirSize) {
    std::istringstream table(kBillions);
    for (std::string row; table >> row;) {
        const std::string name = row.substr(0, row.find('='));
        const double expected = std::stod(row.substr(row.find('=') + 1));
        const auto source = OpenShape(name + ":bf16");
        ASSERT_TRUE(source.ok()) << source.error().message;
        double elements = 0;
        for (const auto& t : (*source)->tensors()) {
            elements += static_cast<double>(t.cols) * static_cast<double>(t.rows);
        }
        EXPECT_NEAR(elements * 1e-9 / expected, 1, 0.005) << name;
    }
    for (const std::string& name : ShapeNames()) {
        const auto source = OpenShape(name);
        ASSERT_TRUE(source.ok()) << source.error().message;
        EXPECT_TRUE(ModelWalk::Make(**source, DType::kF16).ok()) << name;
    }
    // Files of these types have 11.27 and 60.87 GiB.
    EXPECT_NEAR(static_cast<double>((*OpenShape("gpt-oss-20b"))->TotalBytes()) * 0x1p-30, 11.27,
                0.05);
    EXPECT_NEAR(static_cast<double>((*OpenShape("gpt-oss-120b:f16"))->TotalBytes()) * 0x1p-30,
                60.87, 0.1);
}

TEST(Shapes, AConfigIsEnough) {
    const test::TempDir dir;
    std::ofstream(dir / "config.json")
        << R"({"model_type": "qwen3", "hidden_size": 1024, "num_hidden_layers": 4,
               "num_attention_heads": 16, "num_key_value_heads": 8, "intermediate_size": 3072,
               "vocab_size": 1000, "head_dim": 128, "tie_word_embeddings": true})";
    const std::string folder = (dir / "config.json").substr(0, (dir / "config.json").size() - 12);
    for (const std::string& word : {std::string(dir / "config.json"), folder, folder + ":q8_0"}) {
        const auto source = OpenShape(word);
        ASSERT_TRUE(source.ok()) << source.error().message;
        EXPECT_NE((*source)->FindTensor("blk.3.ffn_down.weight"), nullptr) << word;
    }
    EXPECT_EQ((*OpenShape(folder + ":q8_0"))->FindTensor("blk.3.ffn_down.weight")->dtype,
              DType::kQ8_0);
    for (const auto& [word, said] : std::initializer_list<std::pair<std::string, const char*>>{
             {"llama-9", "no well-known model of that name; those like it are llama-2-7b"},
             {"qwen3-8b:q9", "q9"},
             {"hf:nobody/qwen3-9b", "those like it are qwen3-"},
             {"hf:nobody/nothing", "A path of its config.json does as well, or 'weft pull"},
             {"nowhere/config.json", "nowhere/config.json"}}) {
        const auto wrong = OpenShape(word);
        ASSERT_FALSE(wrong.ok()) << word;
        EXPECT_NE(wrong.error().message.find(said), std::string::npos) << wrong.error().message;
    }
    // The error names the file by its full name.
    std::ofstream(dir / "mine.json") << R"({"model_type": "qwen3", "hidden_size": -4096})";
    const auto mine = OpenShape(dir / "mine.json");
    ASSERT_FALSE(mine.ok());
    EXPECT_NE(mine.error().message.find("/mine.json: 'num_hidden_layers' is missing"),
              std::string::npos)
        << mine.error().message;
}

}  // namespace
}  // namespace weft::plan
