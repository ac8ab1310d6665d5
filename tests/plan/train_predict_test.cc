// Predictions of training: sums of their parts, memory against formulas and complete lists of ops,
// and the search.
#include "plan/train_predict.h"

#include <gtest/gtest.h>

#include <cmath>

#include "base/file.h"
#include "plan/shapes.h"
#include "plan/train_search.h"
#include "program/arena.h"
#include "support/paths.h"
#include "train/trainer.h"

namespace weft::plan {
namespace {

using program::Recompute;

// A job on machines; stays where it is, since its parts borrow from each other.
struct TrainCase {
    std::unique_ptr<model_files::ModelSource> source;
    ModelWalk model;
    TrainJob job;
    ClusterSpec cluster;
    std::optional<TrainLinks> links;
    std::optional<TrainWalk> walk;

    TrainCase(const std::string& name, const std::string& machines, int64_t sequence = 1024) {
        source = OpenShape(name).value();
        model = ModelWalk::Make(*source, DType::kF16).value();
        job.sequence = sequence;
        auto parsed = Library::Open()->ParseCluster(machines);
        EXPECT_TRUE(parsed.ok()) << parsed.error().message;
        cluster = *std::move(parsed);
        links.emplace(cluster);
        walk = TrainWalk::Make(model, job).value();
    }
    TrainCase(const TrainCase&) = delete;

    TrainPrediction Must(const TrainCut& cut) {
        auto predicted = PredictTraining(*walk, *links, cut);
        EXPECT_TRUE(predicted.ok()) << predicted.error().message;
        return *std::move(predicted);
    }
};

TrainCut Cut(int tp, int pp, int dp, int zero = 0, int64_t accumulation = 1) {
    TrainCut cut;
    cut.tp = tp;
    cut.pp = pp;
    cut.dp = dp;
    cut.zero = zero;
    cut.accumulation = accumulation;
    return cut;
}

TEST(PredictTraining, PartsAddUp) {
    TrainCase c("llama-3.1-8b", "2xh100");
    for (const TrainCut& cut :
         {Cut(1, 1, 16, 3), Cut(8, 1, 2, 1), Cut(2, 4, 2, 0, 8), Cut(1, 1, 16, 0)}) {
        const TrainPrediction p = c.Must(cut);
        double sum = 0;
        for (const TrainSecondsRow& row : TrainSecondsRows()) {
            EXPECT_GE(p.parts.*row.seconds, 0) << cut.Name() << " " << row.name;
            sum += p.parts.*row.seconds;
        }
        EXPECT_DOUBLE_EQ(sum, p.update_s);
        EXPECT_DOUBLE_EQ(p.tokens_per_s * p.update_s, static_cast<double>(cut.sequences() * 1024));
    }
}

// Of P weights and N replicas in BF16: 16 P, 4 P + 12 P / N, 2 P + 14 P / N, 16 P / N.
TEST(PredictTraining, StateIsTheFormulas) {
    TrainCase c("llama-3.1-8b", "mi300x");
    c.job.grad_dtype = "bf16";
    const double p = 8.03e9, n = 8;
    const double expected[] = {16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n};
    for (int zero = 0; zero <= 3; ++zero) {
        const TrainPrediction got = c.Must(Cut(1, 1, 8, zero));
        ASSERT_EQ(got.memory.size(), 1u);
        EXPECT_NEAR(got.memory[0].state / expected[zero], 1, 0.002) << zero;
    }
}

// 6 FLOPs a weight of a product and token, and a little for attention and what lies between.
TEST(PredictTraining, ArithmeticIsCounted) {
    TrainCase c("llama-3.1-8b", "mi300x", 512);
    const double products = 6.0 * (8.03e9 - 128256.0 * 4096) * 512 * 8;
    const double flops = c.Must(Cut(1, 1, 8, 1)).flops;
    EXPECT_GT(flops, products);
    EXPECT_LT(flops, 1.05 * products);
    // The same work, whatever the cut (each tensor rank has its own norms).
    EXPECT_NEAR(c.Must(Cut(8, 1, 1)).flops * 8 / flops, 1, 0.01);
    EXPECT_NEAR(c.Must(Cut(1, 8, 1, 0, 8)).flops / flops, 1, 0.01);
}

// Parts of a list against the list as a rank has it: what it computes, and what it takes.
TEST(PredictTraining, PartsAreTheWholeList) {
    for (const Recompute recompute : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        for (const int tp : {1, 2}) {
            TrainCase c("llama-3.2-1b", "a100", 512);
            c.job.grad_dtype = "bf16";
            TrainCut cut = Cut(tp, 1, 1);
            cut.recompute = recompute;
            cut.micro_batch = 2;
            const TrainPrediction p = c.Must(cut);
            model::Layout layout;
            layout.tp = tp;
            const auto plan = model::PlanShards(c.model.hyper(), *c.source, layout);
            train::GraphOptions options;
            options.dtype = options.gradients = DType::kBF16;
            options.recompute = recompute;
            options.sequence = 512;
            const auto graph = train::BuildTrainingGraph(c.model.hyper(), {plan->shards.data(), 1},
                                                         *c.source, options);
            ASSERT_TRUE(graph.ok()) << graph.error().message;
            const auto arena = program::PlanTrainingArena(graph->program, 1024, 1024, {});
            const double whole = static_cast<double>(arena.kept.size_bytes);
            EXPECT_GT(p.memory[0].work, 0.93 * whole) << RecomputeName(recompute) << tp;
            EXPECT_LT(p.memory[0].work, 1.15 * whole) << RecomputeName(recompute) << tp;
            double forward = 0;
            const program::ModelChunk& chunk = graph->program.chunks[0];
            const auto costs = TrainCosts(graph->program.program, 512, 2);
            for (size_t i = chunk.begin; i < chunk.backward_begin; ++i) forward += costs[i].flops;
            EXPECT_NEAR(p.flops / (3 * forward * tp), 1, 1e-9);
        }
    }
}

TEST(PredictTraining, ShapesOfProductsCount) {
    TrainCase c("llama-3.1-8b", "8xh100");
    // Tensor ranks have narrower products, which take longer than a share of the time.
    const TrainSeconds one = c.Must(Cut(1, 1, 1)).parts, eight = c.Must(Cut(8, 1, 1)).parts;
    EXPECT_GT(eight.products * 8, 1.1 * one.products);
    EXPECT_LT(eight.products * 8, 2 * one.products);
    // Larger micro-batches are read and written in larger products.
    TrainCut large = Cut(8, 1, 1);
    large.micro_batch = 8;
    EXPECT_LT(c.Must(large).parts.products, 8 * eight.products);
}

// A guess of the compute is of what a data sheet has; what was measured is what products reach.
TEST(PredictTraining, GuessedComputeIsAPeak) {
    TrainCase c("llama-3.1-8b", "h100");
    Machine machine = c.cluster.hosts[0];
    machine.products.reset();
    const double tiles = RatesOfKind(machine).tiles;
    for (const auto& [mark, share] : {std::pair(Mark::kGuessed, tiles),
                                      {Mark::kDataSheet, tiles},
                                      {Mark::kFitted, 1.0},
                                      {Mark::kMeasured, 1.0}}) {
        machine.compute.mark = mark;
        EXPECT_DOUBLE_EQ(RatesOf(machine).products, share * machine.compute.value);
    }
}

TEST(PredictTraining, RecomputationTakesTimeAndGivesMemory) {
    TrainCase c("llama-3.1-8b", "a100", 2048);
    double seconds = 0, work = 1e30;
    for (const Recompute way : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
        TrainCut cut = Cut(8, 1, 1);
        cut.recompute = way;
        const TrainPrediction p = c.Must(cut);
        EXPECT_GT(p.update_s, seconds);
        EXPECT_LT(p.worst().work, work);
        seconds = p.update_s;
        work = p.worst().work;
    }
}

TEST(PredictTraining, PipelinesAndTheirMemory) {
    TrainCase c("llama-3.1-8b", "a100");
    TrainCut cut = Cut(1, 4, 2, 0, 8);
    const TrainPrediction plain = c.Must(cut);
    EXPECT_GT(plain.parts.bubble, 0.2 * plain.parts.products * 3 / 8);
    // The first stage keeps four micro-batches, the last one, and logits.
    EXPECT_GT(plain.memory[0].work, 2.5 * plain.memory[2].work / 2);
    cut.virtual_stages = 2;
    const TrainPrediction turns = c.Must(cut);
    EXPECT_LT(turns.parts.bubble, 0.75 * plain.parts.bubble);
    EXPECT_GT(turns.memory[0].work, plain.memory[0].work);
    cut.accumulation = 6;
    const auto refused = PredictTraining(*c.walk, *c.links, cut);
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("use 4 or 8"), std::string::npos);
}

TEST(PredictTraining, ExpertsAreCut) {
    TrainCase c("qwen3-30b-a3b", "8xh200");
    TrainCut cut = Cut(8, 1, 8, 1);
    cut.ep = 8;
    const TrainPrediction p = c.Must(cut);
    // 3.3 billion weights are active: not all experts' FLOPs.
    const double tokens = 8 * 1024;
    EXPECT_GT(p.flops, 6 * 2.5e9 * tokens);
    EXPECT_LT(p.flops, 6 * 4.5e9 * tokens);
}

// Adapters of rank 16 beside seven matrices of each layer, on weights that stay as they are.
TEST(PredictTraining, AdaptersTakeLittle) {
    TrainCase all("llama-3.1-8b", "a100");
    const double whole = all.Must(Cut(1, 1, 1)).worst().state;
    for (const auto& [name, tied] : {std::pair("llama-3.1-8b", false), {"llama-3.2-1b", true}}) {
        TrainCase c(name, "a100");
        c.job.lora.rank = 16;
        c.walk = TrainWalk::Make(c.model, c.job).value();
        const model::Hyper& h = c.model.hyper();
        double weights = 0, adapters = 0;
        for (const model_files::TensorInfo& tensor : c.source->tensors()) {
            const auto elements = static_cast<double>(tensor.rows * tensor.cols);
            weights += tensor.dim_count > 1 ? 2 * elements : 4 * elements;
            const bool adapted = tensor.dim_count > 1 && tensor.name.starts_with("blk.");
            if (adapted) adapters += 16.0 * static_cast<double>(tensor.rows + tensor.cols);
        }
        EXPECT_EQ(h.tied, tied);
        const TrainPrediction p = c.Must(Cut(1, 1, 1));
        // Float32 weights, gradients and two moments of each adapter.
        EXPECT_NEAR(p.worst().state / (weights + 16 * adapters), 1, 0.02) << name;
        EXPECT_LT(p.worst().state, 0.2 * whole);
        const TrainPrediction staged = c.Must(Cut(1, 4, 1, 0, 8));
        double sum = 0;
        for (const StageMemory& stage : staged.memory) sum += stage.state;
        EXPECT_GE(sum, 0.999 * p.worst().state) << name;
    }
}

// Runs of Weft itself, which docs/parallelism.md describes: a core that takes 2.80 s alone.
TEST(PredictTraining, RunsHereAreThoseOfTheDocs) {
    const auto docs = ReadTextFile(support::TestData("/../../docs/parallelism.md"));
    ASSERT_TRUE(docs.ok());
    const auto core = ParseMachine(
        R"({"pool": "host", "memory": {"is": "8 GB", "mark": "guessed", "source": "x"},
            "bandwidth": {"is": "10 GB/s", "mark": "guessed", "source": "x"},
            "compute": {"is": "0.29315 TFLOP/s", "mark": "fitted", "source": "x"},
            "products": {"is": "100 %", "mark": "fitted", "source": "x"},
            "attention": {"is": "50 %", "mark": "guessed", "source": "x"}})",
        "core", "core");
    ASSERT_TRUE(core.ok()) << core.error().message;
    const auto seconds = [&](int hosts, const char* wire, int64_t sequence, const TrainCut& cut) {
        TrainCase c("smollm2-135m", "a100", sequence);
        c.cluster.hosts.assign(static_cast<size_t>(hosts), *core);
        c.cluster.wire = *Library::Open()->FindWire(wire);
        c.links.emplace(c.cluster);
        const TrainPrediction p = c.Must(cut);
        return p.update_s - p.parts.stragglers;
    };
    EXPECT_NEAR(seconds(1, "10gbe", 512, Cut(1, 1, 1)), 2.80, 0.005);
    TrainCut turns = Cut(1, 2, 1, 0, 2);
    turns.virtual_stages = 2;
    for (const auto& [measured, predicted] :
         {std::pair(3.42, seconds(2, "2.5gbe", 512, Cut(1, 1, 2, 3))),
          std::pair(1.60, seconds(2, "10gbe", 128, Cut(1, 1, 2, 3))),
          std::pair(4.20, seconds(2, "10gbe", 512, Cut(1, 2, 1, 0, 2))),
          std::pair(3.40, seconds(2, "10gbe", 512, turns))}) {
        const std::string line = fmt::format(" | {:.2f} s | {:.2f} s | {:+.0f} % |", measured,
                                             predicted, (predicted / measured - 1) * 100);
        EXPECT_NE(docs->find(line), std::string::npos) << "docs/parallelism.md lacks" << line;
    }
}

TEST(PredictTraining, NothingOverflows) {
    TrainCase c("llama-3.1-405b", "16384xh100", 131072);
    TrainCut cut = Cut(8, 126, 130, 1, 1 << 20);
    cut.micro_batch = 4096;
    const TrainPrediction p = c.Must(cut);
    EXPECT_TRUE(std::isfinite(p.update_s) && p.update_s > 0);
    EXPECT_FALSE(p.fits());
    EXPECT_GT(p.worst().total(), 1e12);
}

// ---- The search ---------------------------------------------------------------------------------

TEST(SearchTraining, FindsNoWorseThanWhatIsAskedFor) {
    TrainCase c("llama-3.1-70b", "8xh100", 2048);
    TrainWishes wishes;
    wishes.global_batch = 256;
    const auto found = SearchTraining(*c.walk, *c.links, wishes);
    ASSERT_TRUE(found.ok()) << found.error().message;
    const TrainPrediction& best = found->layouts[0];
    EXPECT_TRUE(best.fits());
    for (size_t i = 1; i < found->layouts.size(); ++i) {
        if (!found->layouts[i].fits()) break;
        EXPECT_LE(found->layouts[i].tokens_per_s, found->layouts[i - 1].tokens_per_s);
    }
    for (const auto& [tp, pp] : {std::pair(8, 4), std::pair(4, 8), std::pair(8, 8)}) {
        for (const Recompute way : {Recompute::kSelective, Recompute::kFull}) {
            TrainCut cut = Cut(tp, pp, 64 / tp / pp, 1, 256 / (64 / tp / pp));
            cut.sequence_parallel = true;
            cut.recompute = way;
            const TrainPrediction p = c.Must(cut);
            if (p.fits()) {
                EXPECT_LE(p.tokens_per_s, best.tokens_per_s * (1 + 1e-9)) << cut.Name();
            }
        }
    }
}

// ZeRO that is asked for is not dropped by layouts of one replica; one rank has no other.
TEST(SearchTraining, ZeroThatIsAskedForHasReplicas) {
    TrainWishes wishes;
    for (const int zero : {2, 3}) {
        wishes.zero = zero;
        for (const char* machines : {"h100:2", "h100"}) {
            TrainCase c("llama-3.2-1b", machines);
            const auto found = SearchTraining(*c.walk, *c.links, wishes);
            ASSERT_TRUE(found.ok()) << found.error().message;
            for (const TrainPrediction& p : found->layouts) {
                EXPECT_GT(p.cut.dp, 1) << p.cut.Name();
                EXPECT_EQ(p.cut.zero, zero);
            }
        }
        TrainCase one("llama-3.2-1b", "h100:1");
        EXPECT_TRUE(SearchTraining(*one.walk, *one.links, wishes).ok());
    }
}

// Chunks of layers need not be even: 126 layers in 16 stages are searched in up to 7 chunks each.
TEST(SearchTraining, ChunksMayBeUneven) {
    TrainCase c("llama-3.1-405b", "2048xh100", 8192);
    TrainWishes wishes;
    wishes.tp = 8;
    wishes.pp = 16;
    wishes.sequence_parallel = true;
    wishes.global_batch = 2048;
    const auto found = SearchTraining(*c.walk, *c.links, wishes);
    ASSERT_TRUE(found.ok()) << found.error().message;
    for (const int chunks : {2, 3, 4, 5, 7}) {
        wishes.virtual_stages = chunks;
        const auto asked = SearchTraining(*c.walk, *c.links, wishes);
        ASSERT_TRUE(asked.ok()) << asked.error().message;
        if (!asked->layouts[0].fits()) continue;
        EXPECT_GE(found->layouts[0].tokens_per_s, asked->layouts[0].tokens_per_s * (1 - 1e-9))
            << chunks;
    }
    EXPECT_GT(found->layouts[0].cut.virtual_stages, 1);
}

// How long a search takes is how many cuts it bounds and walks.
TEST(SearchTraining, WalksFew) {
    TrainCase c("llama-3.1-405b", "384xh100", 2048);
    TrainWishes wishes;
    wishes.global_batch = 3072;
    const auto found = SearchTraining(*c.walk, *c.links, wishes);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_TRUE(found->layouts[0].fits());
    EXPECT_LT(found->bounded, 30000);
    EXPECT_LT(found->predicted, 400);
}

TEST(SearchTraining, SaysWhatCanNotBe) {
    TrainCase c("llama-3.1-8b", "2xh100");
    const auto error = [&](const TrainWishes& wishes) {
        const auto found = SearchTraining(*c.walk, *c.links, wishes);
        EXPECT_FALSE(found.ok());
        return found.ok() ? "" : found.error().message;
    };
    TrainWishes wishes;
    wishes.tp = 3;
    EXPECT_EQ(error(wishes),
              "16 ranks are no multiple of --tp 3 x --pp 1: say --dp, or change the layout");
    wishes = {};
    wishes.tp = 32;
    EXPECT_NE(error(wishes).find("are 32 ranks; 2xh100 has 16"), std::string::npos);
    wishes = {};
    wishes.pp = 1;
    wishes.tp = 1;
    wishes.micro_batch = 3;
    wishes.global_batch = 64;
    EXPECT_NE(error(wishes).find("don't make --global-batch 64"), std::string::npos);
    wishes = {};
    wishes.pp = 2;
    wishes.tp = 1;
    wishes.virtual_stages = 3;
    wishes.accumulation = 5;
    EXPECT_NE(error(wishes).find("use 4 or 6"), std::string::npos);
}

TEST(SearchTraining, TakesTheMostThatFits) {
    TrainCase c("llama-3.1-8b", "mi300x", 1024);
    TrainCut cut = Cut(1, 1, 8, 3);
    const auto most = MostThatFits(*c.walk, *c.links, cut, 0.9);
    ASSERT_TRUE(most.ok());
    cut.micro_batch = *most;
    EXPECT_LE(c.Must(cut).worst().total(), 0.9 * c.links->device().room);
    ++cut.micro_batch;
    EXPECT_GT(c.Must(cut).worst().total(), 0.9 * c.links->device().room);
}

}  // namespace
}  // namespace weft::plan
