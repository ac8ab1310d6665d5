// Predictions of training: what adds up, memory against formulas and whole lists, the search.
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
    Cluster cluster;
    std::optional<TrainLinks> links;
    std::optional<TrainWalk> walk;

    TrainCase(const std::string& name, const std::string& machines, const std::string& as = "weft",
              int64_t sequence = 1024) {
        source = OpenShape(name).value();
        model = ModelWalk::Make(*source, DType::kF16).value();
        job.style = *FindTrainStyle(as);
        job.sequence = sequence;
        auto parsed = Library::Open()->ParseCluster(machines);
        EXPECT_TRUE(parsed.ok()) << parsed.error().message;
        cluster = *std::move(parsed);
        links.emplace(cluster);
        walk = TrainWalk::Make(model, job).value();
    }
    TrainCase(const TrainCase&) = delete;

    TrainPrediction Must(const TrainCut& cut, const TrainRisks& risks = {}) {
        auto predicted = PredictTraining(*walk, *links, cut, risks);
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
    for (const char* as : {"weft", "megatron", "deepspeed", "fsdp"}) {
        TrainCase c("llama-3.1-8b", "2xh100", as);
        for (const TrainCut& cut :
             {Cut(1, 1, 16, 3), Cut(8, 1, 2, 1), Cut(2, 4, 2, 0, 8), Cut(1, 1, 16, 0)}) {
            const TrainPrediction p = c.Must(cut);
            double sum = 0;
            for (const TrainSecondsRow& row : TrainSecondsRows()) {
                EXPECT_GE(p.parts.*row.seconds, 0) << as << " " << cut.Name() << " " << row.name;
                sum += p.parts.*row.seconds;
            }
            EXPECT_DOUBLE_EQ(sum, p.update_s);
            EXPECT_DOUBLE_EQ(p.tokens_per_s * p.update_s,
                             static_cast<double>(cut.sequences() * 1024));
        }
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
    TrainCase c("llama-3.1-8b", "mi300x", "weft", 512);
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
            TrainCase c("llama-3.2-1b", "a100", "weft", 512);
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
            const program::Chunk& chunk = graph->program.chunks[0];
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
    for (const auto& [mark, share] : {std::pair(Mark::kGuessed, 0.6),
                                      {Mark::kDataSheet, 0.6},
                                      {Mark::kFitted, 1.0},
                                      {Mark::kMeasured, 1.0}}) {
        machine.compute.mark = mark;
        EXPECT_DOUBLE_EQ(RatesOf(machine).products, share * machine.compute.value);
    }
}

TEST(PredictTraining, WiresAndStylesDiffer) {
    const TrainCut cut = Cut(1, 1, 16, 3);
    TrainCase rdma("llama-3.1-8b", "2xmi300x,roce-8x400g", "deepspeed");
    TrainCase tcp("llama-3.1-8b", "2xmi300x,tcp-8x400g", "deepspeed");
    TrainCase fsdp("llama-3.1-8b", "2xmi300x,tcp-8x400g", "fsdp");
    EXPECT_LT(rdma.Must(cut).parts.shares, 0.5 * tcp.Must(cut).parts.shares);
    EXPECT_LT(fsdp.Must(cut).parts.shares, tcp.Must(cut).parts.shares);  // beside the arithmetic
    // Megatron sums float32 gradients behind the last pass, DeepSpeed BF16 beside it.
    TrainCase megatron("llama-3.1-8b", "2xmi300x", "megatron");
    EXPECT_GT(megatron.Must(Cut(1, 1, 16)).parts.shares, 2 * rdma.Must(Cut(1, 1, 16)).parts.shares);
}

TEST(PredictTraining, RecomputationTakesTimeAndGivesMemory) {
    for (const char* as : {"weft", "megatron"}) {
        TrainCase c("llama-3.1-8b", "a100", as, 2048);
        double seconds = 0, work = 1e30;
        for (const Recompute way : {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
            TrainCut cut = Cut(8, 1, 1);
            cut.recompute = way;
            const TrainPrediction p = c.Must(cut);
            EXPECT_GT(p.update_s, seconds) << as;
            EXPECT_LT(p.worst().total() - p.worst().state, work) << as;
            seconds = p.update_s;
            work = p.worst().work;
        }
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
    const auto refused = PredictTraining(*c.walk, *c.links, cut, {});
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("use 4 or 8"), std::string::npos);
}

// Others keep their own rows of what tensor ranks share out (Korthikanti et al. 2022, table 2, less
// the dropout): of a token and layer what both norms read and write, 8 h; queries, keys and values
// and what attention makes of them, 4 h + 4 kv; gate, up and their product, 6 f; a float32 a head.
TEST(PredictTraining, OthersKeepTheirOwnRows) {
    TrainCase c("llama-3.1-70b", "4xh100", "nemo", 4096);
    TrainCut cut = Cut(8, 4, 1, 0, 8);
    cut.sequence_parallel = true;
    const TrainPrediction p = c.Must(cut);
    const double h = 8192, kv = 1024, f = 28672, heads = 64;
    const double layer = 4096 * (8 * h + 4 * h + 4 * kv + 6 * f + 4 * heads) / 8;
    // Stages 1 and 2 have twenty layers each, and three and two passes under way.
    EXPECT_NEAR(p.memory[1].work - p.memory[2].work, 20 * layer, 1e-3 * 20 * layer);
    // The first stage has one more than the second; the last one what is behind the layers, once.
    EXPECT_NEAR(p.memory[0].work - p.memory[1].work, 20 * layer, 1e-3 * 20 * layer);
    // (Its norm's rows: own ones, and all of them for a while.)
    const double rows = 4096 * 2 * h, logits = 6. * 4096 * 128256 / 8;
    EXPECT_LT(p.memory[3].work, p.memory[2].work - 20 * layer + 3 * rows + logits);
}

TEST(PredictTraining, LossesCostWhatYoungSays) {
    TrainCase c("llama-3.1-8b", "8xh100");
    TrainRisks risks;
    risks.jitter = 0;
    const TrainPrediction safe = c.Must(Cut(1, 1, 64, 3), risks);
    EXPECT_EQ(safe.parts.stragglers, 0);
    EXPECT_EQ(safe.kept_share, 1);
    risks.mean_hours = 8000;  // one of 8 hosts each 1,000 h
    risks.checkpoint_s = 60;
    risks.restart_s = 600;
    const TrainPrediction lossy = c.Must(Cut(1, 1, 64, 3), risks);
    const double mean = 3.6e6, interval = std::sqrt(2 * 60 * mean);
    const double lost = 60 / interval + interval / (2 * mean) + 600 / mean;
    EXPECT_NEAR(lossy.kept_share, 1 / (1 + lost), 1e-12);
    EXPECT_DOUBLE_EQ(lossy.tokens_per_s, safe.tokens_per_s * lossy.kept_share);
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

// Frozen weights are shares in ZeRO-3 of other programs, and whole on Weft's ranks.
TEST(PredictTraining, OthersCutTheModelOfAnAdapterToo) {
    const auto predict = [](const char* style, int zero) {
        TrainCase c("llama-3.1-70b", "a100");
        c.job.lora.rank = 16;
        c.job.style = FindTrainStyle(style).value();
        c.walk = TrainWalk::Make(c.model, c.job).value();
        return c.Must(Cut(1, 1, 8, zero));
    };
    const TrainPrediction whole = predict("deepspeed", 2), shares = predict("deepspeed", 3);
    EXPECT_GT(whole.worst().state, 140e9);
    EXPECT_NEAR(shares.worst().state / whole.worst().state, 1.0 / 8, 0.01);
    EXPECT_TRUE(shares.fits());
    EXPECT_GT(shares.parts.shares, whole.parts.shares);  // the model comes twice
    EXPECT_GT(predict("weft", 3).worst().state, 140e9);
    // Forward passes, and gradients of activations alone.
    EXPECT_NEAR(shares.flops / (8 * 1024 * 70.6e9), 4, 0.4);
}

// Runs of Weft itself, which docs/parallelism.md describes: a core that takes 2.80 s alone.
TEST(PredictTraining, RunsHereAreThoseOfTheDocs) {
    const auto docs = ReadTextFile(support::TestData("/../../docs/parallelism.md"));
    ASSERT_TRUE(docs.ok());
    const auto core = ParseMachine(
        R"({"memory": {"is": "8 GB", "mark": "guessed", "source": "x"},
            "bandwidth": {"is": "10 GB/s", "mark": "guessed", "source": "x"},
            "compute": {"is": "0.29315 TFLOP/s", "mark": "fitted", "source": "x"},
            "products": {"is": "100 %", "mark": "fitted", "source": "x"},
            "attention": {"is": "50 %", "mark": "guessed", "source": "x"}})",
        "core", "core");
    ASSERT_TRUE(core.ok()) << core.error().message;
    TrainRisks even;
    even.jitter = 0;
    const auto seconds = [&](int hosts, const char* wire, int64_t sequence, const TrainCut& cut) {
        TrainCase c("smollm2-135m", "a100", "weft", sequence);
        c.cluster.hosts.assign(static_cast<size_t>(hosts), *core);
        c.cluster.wire = *Library::Open()->FindWire(wire);
        c.links.emplace(c.cluster);
        return c.Must(cut, even).update_s;
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
    TrainCase c("llama-3.1-405b", "16384xh100", "weft", 131072);
    TrainCut cut = Cut(8, 126, 130, 1, 1 << 20);
    cut.micro_batch = 4096;
    const TrainPrediction p = c.Must(cut);
    EXPECT_TRUE(std::isfinite(p.update_s) && p.update_s > 0);
    EXPECT_FALSE(p.fits());
    EXPECT_GT(p.worst().total(), 1e12);
}

// ---- The search ---------------------------------------------------------------------------------

TEST(SearchTraining, FindsNoWorseThanWhatIsAskedFor) {
    TrainCase c("llama-3.1-70b", "8xh100", "megatron", 2048);
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
            TrainCase c("llama-3.2-1b", machines, "fsdp");
            const auto found = SearchTraining(*c.walk, *c.links, wishes);
            ASSERT_TRUE(found.ok()) << found.error().message;
            for (const TrainPrediction& p : found->layouts) {
                EXPECT_GT(p.cut.dp, 1) << p.cut.Name();
                EXPECT_EQ(p.cut.zero, zero);
            }
        }
        TrainCase one("llama-3.2-1b", "h100:1", "fsdp");
        EXPECT_TRUE(SearchTraining(*one.walk, *one.links, wishes).ok());
    }
}

// Chunks of layers need not be even: 126 layers in 16 stages are searched in up to 7 chunks each.
TEST(SearchTraining, ChunksMayBeUneven) {
    TrainCase c("llama-3.1-405b", "2048xh100", "nemo", 8192);
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
    TrainCase c("llama-3.1-405b", "384xh100", "weft", 2048);
    TrainWishes wishes;
    wishes.global_batch = 3072;
    const auto found = SearchTraining(*c.walk, *c.links, wishes);
    ASSERT_TRUE(found.ok()) << found.error().message;
    EXPECT_TRUE(found->layouts[0].fits());
    EXPECT_LT(found->bounded, 30000);
    EXPECT_LT(found->predicted, 400);
}

TEST(SearchTraining, SaysWhatCanNotBe) {
    TrainCase c("llama-3.1-8b", "2xh100", "megatron");
    const auto error = [&](const TrainWishes& wishes) {
        const auto found = SearchTraining(*c.walk, *c.links, wishes);
        EXPECT_FALSE(found.ok());
        return found.ok() ? "" : found.error().message;
    };
    TrainWishes wishes;
    wishes.tp = 3;
    EXPECT_EQ(
        error(wishes),
        "16 ranks are no multiple of --tp 3 x --pp 1 x --cp 1: say --dp, or change the layout");
    wishes.dp = 1;
    EXPECT_NE(error(wishes).find("32 heads are no multiple of --tp 3"), std::string::npos);
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
    TrainCase c("llama-3.1-8b", "mi300x", "deepspeed", 1024);
    TrainCut cut = Cut(1, 1, 8, 3);
    const auto most = MostThatFits(*c.walk, *c.links, cut, 0.9);
    ASSERT_TRUE(most.ok());
    cut.micro_batch = *most;
    EXPECT_LE(c.Must(cut).worst().total(), 0.9 * c.links->device().room);
    ++cut.micro_batch;
    EXPECT_GT(c.Must(cut).worst().total(), 0.9 * c.links->device().room);
}

// Products alone are in FP8, the logits' are not, and operands are cast before.
TEST(PredictTraining, ProductsInEightBits) {
    const auto of = [](bool eight_bit) {
        TrainCase c("llama-3.1-8b", "h100", "torchtitan", 8192);
        c.job.eight_bit = eight_bit;
        return c.Must(Cut(1, 1, 8, 3));
    };
    const TrainPrediction wide = of(false), narrow = of(true);
    EXPECT_LT(narrow.parts.products, 0.75 * wide.parts.products);
    EXPECT_GT(narrow.parts.products, 0.5 * wide.parts.products);
    EXPECT_DOUBLE_EQ(narrow.parts.attention, wide.parts.attention);
    EXPECT_DOUBLE_EQ(narrow.flops, wide.flops);
}

TEST(PredictTraining, EightBitsNeedAProgramAndADevice) {
    for (const auto& [machines, as] : {std::pair("h100", "weft"), std::pair("a100", "nemo")}) {
        TrainCase c("llama-3.1-8b", machines, as);
        c.job.eight_bit = true;
        const auto refused = PredictTraining(*c.walk, *c.links, Cut(1, 1, 8, 1), {});
        ASSERT_FALSE(refused.ok()) << as;
        EXPECT_NE(refused.error().message.find("FP8"), std::string::npos);
    }
}

// Two ranks share a sequence: as many pairs of positions and FLOPs as before, half the rows on
// each.
TEST(PredictTraining, ContextRanksShareASequence) {
    TrainCase c("llama-3.1-8b", "h100", "torchtitan", 32768);
    TrainCut shared = Cut(1, 1, 4, 3);
    shared.cp = 2;
    const TrainPrediction whole = c.Must(Cut(1, 1, 8, 3)), half = c.Must(shared);
    EXPECT_EQ(half.cut.ranks(), 8);
    EXPECT_EQ(half.cut.Name(), "tp1 cp2 dp4 zero3");
    EXPECT_NEAR(half.flops, whole.flops / 2, 1e-3 * whole.flops);
    EXPECT_NEAR(half.parts.attention, whole.parts.attention / 2, 1e-3 * whole.parts.attention);
    EXPECT_NEAR(half.memory[0].work, whole.memory[0].work / 2, 0.2 * whole.memory[0].work);
    EXPECT_NEAR(half.memory[0].state, whole.memory[0].state, 1e-6 * whole.memory[0].state);
    EXPECT_GT(half.parts.tensor, 0);
    EXPECT_DOUBLE_EQ(whole.parts.tensor, 0);
}

TEST(PredictTraining, ContextRanksNeedFusedAttentionOfAnotherProgram) {
    for (const char* as : {"weft", "megatron"}) {
        TrainCase c("llama-3.1-8b", "h100", as);
        TrainCut cut = Cut(1, 1, 4);
        cut.cp = 2;
        const auto refused = PredictTraining(*c.walk, *c.links, cut, {});
        ASSERT_FALSE(refused.ok()) << as;
        EXPECT_NE(refused.error().message.find("--cp 2"), std::string::npos);
    }
}

// The search leaves room for context ranks.
TEST(SearchTraining, ContextRanksAreLeftOutOfReplicas) {
    TrainCase c("llama-3.1-8b", "2xh100", "torchtitan", 8192);
    TrainWishes wishes;
    wishes.cp = 4;
    const auto found = SearchTraining(*c.walk, *c.links, wishes);
    ASSERT_TRUE(found.ok()) << found.error().message;
    for (const TrainPrediction& p : found->layouts) {
        EXPECT_EQ(p.cut.cp, 4);
        EXPECT_EQ(p.cut.ranks(), 16) << p.cut.Name();
    }
}

}  // namespace
}  // namespace weft::plan
