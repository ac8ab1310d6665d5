// Predictions of training: sums of parts, memory by formulas and by whole Programs, the pipeline's
// schedule by hand, the search.
#include "plan/train_predict.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "plan/shapes.h"
#include "plan/train_schedule.h"
#include "plan/train_search.h"
#include "plan/weft_rates.h"
#include "program/arena.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "train/trainer.h"

namespace weft::plan {
namespace {

using program::Recompute;

// A job on machines. Not movable, because its members borrow from each other.
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
        cluster = parsed->WithVendorLinks();
        links.emplace(cluster);
        walk = TrainWalk::Make(model, job).value();
    }
    TrainCase(const TrainCase&) = delete;

    TrainPrediction Must(const TrainCut& cut) {
        auto predicted = PredictTraining(*walk, *links, cut);
        EXPECT_TRUE(predicted.ok()) << predicted.error().message;
        return *std::move(predicted);
    }
    TrainPlans MustFind(const TrainSettings& wishes) {
        auto found = SearchTraining(*walk, *links, wishes);
        EXPECT_TRUE(found.ok()) << found.error().message;
        return *std::move(found);
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

// Bytes of P weights on N replicas in BF16 with --zero 0 to 3, as published (see `expected`).
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

// 6 FLOPs per weight of a product and token; attention and other ops add less than 5 %.
TEST(PredictTraining, ArithmeticIsCounted) {
    TrainCase c("llama-3.1-8b", "mi300x", 512);
    const double products = 6.0 * (8.03e9 - 128256.0 * 4096) * 512 * 8;
    const double flops = c.Must(Cut(1, 1, 8, 1)).flops;
    EXPECT_GT(flops, products);
    EXPECT_LT(flops, 1.05 * products);
    // All layouts do the same work (each tensor rank has its own norms).
    EXPECT_NEAR(c.Must(Cut(8, 1, 1)).flops * 8 / flops, 1, 0.01);
    EXPECT_NEAR(c.Must(Cut(1, 8, 1, 0, 8)).flops / flops, 1, 0.01);
}

// The parts' FLOPs and memory against those of a rank's whole Program.
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

// Sequences see only themselves: m of them cost m times as much, in every op.
TEST(PredictTraining, SequencesAddUp) {
    for (const char* model : {"gemma-3-4b", "gpt-oss-20b", "llama-3.2-1b", "qwen3-30b-a3b"}) {
        TrainCase c(model, "a100", 2048);
        const auto parts = c.walk->PartsOf({.recompute = Recompute::kFull});
        ASSERT_TRUE(parts.ok()) << parts.error().message;
        for (const auto& [key, part] : parts.value()->front()) {
            const program::Program& list = part.graph.program.program;
            const auto one = TrainCosts(list, 2048, 1), many = TrainCosts(list, 2048, 8);
            for (size_t i = 0; i < one.size(); ++i) {
                EXPECT_NEAR(many[i].flops, 8 * one[i].flops, 1e-9 * many[i].flops)
                    << model << ": " << program::RowOf(list.ops[i].kind()).name;
            }
        }
    }
}

// The KV cache of completions is that of a rank's Program, also if ranks hold a KV head together.
TEST(PredictTraining, CompletionsTakeEachRanksCache) {
    for (const char* model : {"qwen3-30b-a3b", "llama-3.1-8b"}) {
        TrainCase c(model, "8xmi300x:8,roce-400g", 8192);
        c.job.completions = 64;
        // 65 pages of each completion, the first with the end of its prompt; 64 of each prompt.
        const double tokens = 64.0 * (64 * 65 + (64 / 8 + 2) * 64);
        for (const int tp : {1, 4, 8}) {
            const auto bytes = c.walk->GeneratedBytes(tp, 0);
            ASSERT_TRUE(bytes.ok()) << bytes.error().message;
            const int64_t heads = std::max<int64_t>(1, c.model.hyper().kv_heads / tp);
            const double cache = 2.0 * 2 * tokens *
                                 static_cast<double>(heads * c.model.hyper().head_dim) *
                                 static_cast<double>(c.model.hyper().layers);
            EXPECT_NEAR(*bytes / cache, 1, 1e-6) << model << tp;
        }
    }
}

// Scratch memory of a processor's threads counts.
TEST(PredictTraining, ScratchOfThreadsIsCounted) {
    TrainCut cut;
    cut.recompute = Recompute::kFull;
    const auto work = [&](int threads) {
        TrainCase c("llama-3.2-1b", "epyc-9654", 4096);
        c.cluster.hosts[0].threads = threads;
        return c.Must(cut).memory[0].work;
    };
    EXPECT_GT(work(128), 1.02 * work(1));
}

// The slowest host decides, at any place: an update on A and B takes as long as on B and A.
TEST(PredictTraining, TheOrderOfHostsDoesNotCount) {
    const test::TempDir dir;
    const std::string fast = dir.path() + "/fast.json", slow = dir.path() + "/slow.json";
    for (const std::string& path : {fast, slow}) {
        const double times = path == fast ? 1 : 4;
        const std::string text = fmt::format(
            R"({{"memory": "{} GB, measured: x", "pool": "host", "threads": {:.0f},
                 "bandwidth": "{} GB/s, measured: x", "compute": "{} TFLOP/s, measured: x",
                 "measured": {{"ranks": 1, "op": "1 us, measured: x",
                 "cache": "9 GB/s, measured: x", "attention": "90 GFLOP/s, measured: x",
                 "training": {{"BF16": {{"update": "{} GB/s, measured: x",
                 "step": "1 ms, measured: x", "ops": {{"mat_mul":
                 {{"1024": "{} GFLOP/s"}}}}}}}}}}}})",
            64 / times, 32 / times, 200 / times, 4 / times, 40 / times, 2000 / times);
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
    }
    const TrainCut cut = Cut(1, 1, 2, 1);
    TrainCase one("llama-3.2-1b", fast + "+" + slow), other("llama-3.2-1b", slow + "+" + fast);
    TrainCase both("llama-3.2-1b", "2x" + slow), quick("llama-3.2-1b", "2x" + fast);
    const TrainPrediction p = one.Must(cut), q = other.Must(cut);
    EXPECT_DOUBLE_EQ(p.update_s, q.update_s);
    EXPECT_DOUBLE_EQ(p.parts.update, q.parts.update);
    EXPECT_DOUBLE_EQ(p.share_of_peak, q.share_of_peak);
    EXPECT_DOUBLE_EQ(p.spread, q.spread);
    EXPECT_DOUBLE_EQ(p.worst().total(), q.worst().total());
    EXPECT_EQ(p.room, q.room);
    EXPECT_NEAR(p.parts.products / both.Must(cut).parts.products, 1, 1e-9);
    EXPECT_GT(p.parts.products, 3 * quick.Must(cut).parts.products);
}

// A walk that predicted 1 thread does not take its scratch memory for 128.
TEST(PredictTraining, AWalkKeepsScratchByThreads) {
    TrainCut cut;
    cut.recompute = Recompute::kFull;
    TrainCase c("llama-3.2-1b", "epyc-9654", 4096);
    const auto work = [&](int threads) {
        c.cluster.hosts[0].threads = threads;
        return c.Must(cut).memory[0].work;
    };
    const double few = work(1);
    EXPECT_GT(work(128), 1.02 * few);
    EXPECT_EQ(work(1), few);
}

// An update waits for its batch, which each rank reads whole.
TEST(PredictTraining, ReadingTheBatchIsABound) {
    TrainCase c("smollm2-135m", "32xmi300x:8,roce-400g", 4096);
    TrainCut cut;
    cut.dp = 256;
    cut.zero = 1;
    cut.micro_batch = 16;
    const TrainPrediction p = c.Must(cut);
    EXPECT_GT(p.parts.data, 0);
    EXPECT_NEAR(p.tokens_per_s / (8 * 2.7e6), 1, 1e-9);
    cut.dp = 8;
    EXPECT_EQ(c.Must(cut).parts.data, 0);
}

// Ranks 5 to 9 of hosts of 3: neither the first nor the last two are on one host, but 6 to 8 are.
TEST(TrainLinks, NearLinkOfTheMiddleHost) {
    TrainCase c("llama-3.2-1b", "5xh100:3,roce");
    const coll::TierGroup group = c.links->GroupOf(5, 5, 1);
    EXPECT_EQ(group.hosts, 3);
    // Collectives reach 78 % of a data sheet's link.
    EXPECT_DOUBLE_EQ(group.near.bytes_per_s, 0.78 * c.cluster.hosts[0].within->bandwidth.value);
    EXPECT_NE(group.near.bytes_per_s, group.far.bytes_per_s);
}

// Looks up a rank's host without a walk over the hosts, of which there may be thousands.
TEST(TrainLinks, HostsOfRanksAreInATable) {
    TrainCase c("llama-3.2-1b", "2xh100:3+rtx-4090+2xh100,roce");
    std::vector<int> hosts;
    for (int rank = 0; rank < c.links->ranks(); ++rank) {
        hosts.push_back(c.cluster.host_of(rank));
        EXPECT_EQ(c.links->HostOf(rank), hosts.back()) << rank;
    }
    for (Machine& host : c.cluster.hosts) host.devices = 1000;
    for (int rank = 0; rank < c.links->ranks(); ++rank) {
        EXPECT_EQ(c.links->HostOf(rank), hosts[static_cast<size_t>(rank)]) << rank;
    }
}

TEST(PredictTraining, ShapesOfProductsCount) {
    TrainCase c("llama-3.1-8b", "8xh100");
    // Tensor ranks have narrower products, which take more than their share of the time.
    const TrainSeconds one = c.Must(Cut(1, 1, 1)).parts, eight = c.Must(Cut(8, 1, 1)).parts;
    EXPECT_GT(eight.products * 8, 1.1 * one.products);
    EXPECT_LT(eight.products * 8, 2 * one.products);
    // Larger micro-batches are read and written in larger products.
    TrainCut large = Cut(8, 1, 1);
    large.micro_batch = 8;
    EXPECT_LT(c.Must(large).parts.products, 8 * eight.products);
}

// A guessed or data-sheet figure is the peak; a measured or fitted one is the rate of products.
TEST(PredictTraining, GuessedComputeIsAPeak) {
    TrainCase c("llama-3.1-8b", "h100");
    Machine machine = c.cluster.hosts[0];
    machine.products.reset();
    const double tiles = std::min(RatesOfKind(machine).tiles, 0.6);
    for (const auto& [mark, share] : {std::pair(Mark::kGuessed, tiles),
                                      {Mark::kDataSheet, tiles},
                                      {Mark::kFitted, 1.0},
                                      {Mark::kMeasured, 1.0}}) {
        machine.compute.mark = mark;
        EXPECT_DOUBLE_EQ(RatesOf(machine).products, share * machine.compute.value);
    }
}

// A GPT as a Llama: the three matrices of its MLP have as many weights as the GPT's two.
std::string GptConfig(const test::TempDir& dir, int64_t layers, int64_t hidden, int64_t heads,
                      int64_t vocab) {
    const std::string path = fmt::format("{}/{}-{}.json", dir.path(), layers, hidden);
    const nlohmann::json config = {{"architectures", {"LlamaForCausalLM"}},
                                   {"model_type", "llama"},
                                   {"hidden_size", hidden},
                                   {"intermediate_size", hidden * 8 / 3 / 64 * 64},
                                   {"num_attention_heads", heads},
                                   {"num_key_value_heads", heads},
                                   {"num_hidden_layers", layers},
                                   {"vocab_size", vocab},
                                   {"max_position_embeddings", 2048},
                                   {"rms_norm_eps", 1e-5},
                                   {"rope_theta", 10000.0},
                                   {"tie_word_embeddings", false}};
    std::ofstream(path) << config.dump();
    return path;
}

struct PublishedTraining {
    const char* source;
    std::string model;
    const char* machines;
    int64_t sequence;
    TrainCut cut;
    // One of these is published: seconds for 169,015 sequences, seconds for an update, tokens/s of
    // a rank, or FLOP/s of a rank as a share of the data sheet's.
    double epoch_s = 0, update_s = 0, rank_tokens_s = 0, peak = 0;
};

// Published training with other programs, DeepSpeed's publication states no sequence length (1,024
// fills the memory as published), Frontier's no layout for 22 B.
TEST(PredictTraining, IsNearPublishedTraining) {
    const test::TempDir dir;
    const auto gpt = [&](int64_t layers, int64_t hidden, int64_t heads, int64_t vocab = 51200) {
        return GptConfig(dir, layers, hidden, heads, vocab);
    };
    const auto cut = [](int tp, int pp, int dp, int zero, int64_t micro, int64_t accumulation,
                        Recompute way, int chunks = 1) {
        TrainCut made = Cut(tp, pp, dp, zero, accumulation);
        made.micro_batch = micro;
        made.recompute = way;
        made.virtual_stages = chunks;
        return made;
    };
    const Recompute none = Recompute::kNone, some = Recompute::kSelective, full = Recompute::kFull;
    const char *metrum = "metrum.ai, MI300X with RDMA", *megatron = "arXiv 2205.05198, table 5",
               *mosaic = "mosaicml/llm-foundry", *frontier = "arXiv 2312.12705",
               *tcp = "2xmi300x,tcp-8x400g", *roce = "2xmi300x,roce-8x400g", *b8 = "llama-3.1-8b",
               *b70 = "llama-3.1-70b";
    const PublishedTraining rows[] = {
        {metrum, b8, "mi300x", 1024, cut(1, 1, 8, 3, 24, 1, none), 1980},
        {metrum, b8, tcp, 1024, cut(1, 1, 16, 3, 24, 1, none), 1220},
        {metrum, b8, roce, 1024, cut(1, 1, 16, 3, 24, 1, none), 1071},
        {metrum, b70, "mi300x", 1024, cut(1, 1, 8, 3, 2, 1, some), 20420},
        {metrum, b70, tcp, 1024, cut(1, 1, 16, 3, 5, 1, some), 17160},
        {metrum, b70, roce, 1024, cut(1, 1, 16, 3, 5, 1, some), 8120},
        {megatron, gpt(48, 6144, 64), "a100", 2048, cut(8, 1, 1, 0, 4, 1, full), 0, 1.42},
        {megatron, gpt(96, 12288, 96), "8xa100", 2048, cut(8, 8, 1, 0, 1, 64, full, 3), 0, 18.13},
        {mosaic, gpt(32, 4096, 32, 50432), "h100", 2048, cut(1, 1, 8, 3, 6, 1, none), 0, 0, 10643},
        {mosaic, gpt(48, 7168, 56, 50432), "16xh100", 2048, cut(1, 1, 128, 3, 8, 1, full), 0, 0,
         2199},
        {frontier, gpt(48, 6144, 48), "2xmi250x", 2048, cut(2, 8, 1, 0, 1, 128, none), 0, 0, 0,
         0.3838},
        {frontier, gpt(128, 25600, 160), "384xmi250x", 2048, cut(8, 64, 6, 1, 1, 1600, full), 0, 0,
         0, 0.3196}};
    for (const PublishedTraining& row : rows) {
        TrainCase c(row.model, row.machines, row.sequence);
        const TrainPrediction p = c.Must(row.cut);
        const double ratio = row.epoch_s > 0    ? p.SecondsOf(169015) / row.epoch_s
                             : row.update_s > 0 ? p.update_s / row.update_s
                             : row.rank_tokens_s > 0
                                 ? row.rank_tokens_s / (p.tokens_per_s / p.cut.ranks())
                                 : row.peak / p.share_of_peak;
        std::printf("%-28s %-22s %-24s time x %.2f\n", row.source, row.machines,
                    row.cut.Name().c_str(), ratio);
        EXPECT_TRUE(ratio > 0.75 && ratio < 1.33) << row.source << " " << row.machines;
    }
}

// Measured with DeepSpeed: 2.1 times.
TEST(PredictTraining, RdmaShowsBetweenTwoHosts) {
    TrainCase tcp("llama-3.1-70b", "2xmi300x,tcp-8x400g"),
        rdma("llama-3.1-70b", "2xmi300x,roce-8x400g");
    TrainCut cut = Cut(1, 1, 16, 3);
    cut.micro_batch = 5;
    cut.recompute = Recompute::kSelective;
    EXPECT_GT(tcp.Must(cut).update_s, 1.5 * rdma.Must(cut).update_s);
}

// Arithmetic takes twice as long. It hides most collectives, so an update takes nearly twice as
// long, too.
TEST(PredictTraining, SinglePrecisionIsSlower) {
    TrainCase half("llama-3.1-8b", "2xh100", 2048), single("llama-3.1-8b", "2xh100", 2048);
    single.job.dtype = DType::kF32;
    TrainCut cut = Cut(1, 1, 16, 3);
    cut.micro_batch = 4;
    const TrainPrediction fast = half.Must(cut), slow = single.Must(cut);
    EXPECT_NEAR(slow.parts.products / fast.parts.products, 2, 0.01);
    EXPECT_NEAR(slow.parts.attention / fast.parts.attention, 2, 0.01);
    EXPECT_NEAR(slow.update_s / fast.update_s, 2, 0.3);
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
}

TEST(PredictTraining, ExpertsAreCut) {
    TrainCase c("qwen3-30b-a3b", "8xh200");
    TrainCut cut = Cut(8, 1, 8, 1);
    cut.ep = 8;
    const TrainPrediction p = c.Must(cut);
    // 3.3 billion weights are active.
    const double tokens = 8 * 1024;
    EXPECT_GT(p.flops, 6 * 2.5e9 * tokens);
    EXPECT_LT(p.flops, 6 * 4.5e9 * tokens);
}

// Adapters of rank 16 on seven matrices of each layer; the model's weights are frozen.
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

// Predictions of the runs in docs/parallelism.md: one core takes 2.80 s alone.
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

// ---- The pipeline's schedule --------------------------------------------------------------------

std::vector<ChunkSeconds> Even(int chunks, double forward, double backward, double hop = 0) {
    return std::vector<ChunkSeconds>(static_cast<size_t>(chunks), {forward, backward, hop, hop});
}

// 1F1B of M micro-batches on P even stages ends after M + P - 1 forward and backward passes; the
// last stage ends P - 1 backward passes before the first. With V chunks, the pipeline fills and
// drains in a V-th of the time.
TEST(WalkPipeline, EvenStages) {
    for (const auto& [stages, chunks, m] : {std::tuple(1, 1, 9),
                                            {2, 1, 1},
                                            {3, 1, 4},
                                            {4, 1, 2},
                                            {7, 1, 200},
                                            {2, 2, 4},
                                            {4, 3, 8},
                                            {8, 3, 64}}) {
        const PipelineWalk walk = WalkPipeline(stages, chunks, Even(stages * chunks, 1, 2), m);
        EXPECT_DOUBLE_EQ(walk.end[0], 3.0 * (m * chunks + stages - 1)) << stages << ' ' << m;
        for (const double busy : walk.busy) EXPECT_DOUBLE_EQ(busy, 3.0 * m * chunks);
        if (chunks > 1) continue;
        EXPECT_DOUBLE_EQ(walk.end.back(), walk.end[0] - 2.0 * (stages - 1));
    }
}

TEST(WalkPipeline, SchedulesWorkedOutByHand) {
    struct Schedule {
        int chunks;
        std::vector<ChunkSeconds> seconds;
        int64_t micro_batches;
        std::vector<double> end, busy;
    };
    for (const Schedule& c : {
             // The table of docs/parallelism.md, and the same without interleaving.
             Schedule{2, Even(4, 1, 1), 4, {18, 17}, {16, 16}},
             Schedule{1, Even(2, 2, 2), 4, {20, 18}, {16, 16}},
             // The second stage is twice as slow:
             //     stage 0   F0 0-1, F1 1-2, B0 5-6, B1 9-10
             //     stage 1   F0 1-3, B0 3-5, F1 5-7, B1 7-9
             Schedule{1, {{1, 1, 0, 0}, {2, 2, 0, 0}}, 2, {10, 9}, {4, 8}},
             // Messages of 0.5: F 0-1, sent by 1.5, F 1.5-2.5, B 2.5-3.5, sent by 4, B 4-5.
             Schedule{1, Even(2, 1, 1, 0.5), 1, {5, 3.5}, {2, 2}},
         }) {
        const PipelineWalk walk = WalkPipeline(2, c.chunks, c.seconds, c.micro_batches);
        EXPECT_EQ(walk.end, c.end);
        EXPECT_EQ(walk.busy, c.busy);
    }
}

// Rounds that are not walked take as long as the last one walked.
TEST(WalkPipeline, ManyMicroBatchesAreAsIfWalked) {
    std::vector<ChunkSeconds> chunks;
    for (int i = 0; i < 8; ++i) chunks.push_back({1 + 0.1 * i, 2 - 0.05 * i, 0.3, 0.2});
    for (const int64_t m : {44, 100, 403}) {
        const PipelineWalk whole = WalkPipeline(8, 1, chunks, m, 1000);
        const PipelineWalk some = WalkPipeline(8, 1, chunks, m);
        // A micro-batch has a forward and a backward pass on each of 8 stages. Two walks of 6
        // rounds of 8 micro-batches and a remainder are simulated.
        EXPECT_EQ(whole.passes, m * 2 * 8) << m;
        EXPECT_LT(some.passes, 2 * (7 * 8) * 2 * 8) << m;
        for (size_t s = 0; s < 8; ++s) {
            EXPECT_NEAR(some.end[s] / whole.end[s], 1, 1e-3) << m;
            EXPECT_NEAR(some.busy[s] / whole.busy[s], 1, 1e-12);
        }
    }
}

TEST(TransferSeconds, HideBehindOps) {
    const auto seconds = [](const UnitSeconds& unit, bool overlap, double contention = 0) {
        return TransferSeconds(std::vector<UnitSeconds>(3, unit), overlap, contention);
    };
    EXPECT_DOUBLE_EQ(seconds({2, 1, 0}, false), 3);
    EXPECT_DOUBLE_EQ(seconds({2, 1, 0}, true), 1);         // only the first gather
    EXPECT_DOUBLE_EQ(seconds({2, 1, 0}, true, 0.1), 1.2);  // the two others slow the ops
    EXPECT_DOUBLE_EQ(seconds({4, 1, 1}, false), 6);
    EXPECT_DOUBLE_EQ(seconds({4, 1, 1}, true), 2);  // nothing runs beside the last sum
    // The wire is the limit: it is never idle before the last ops.
    EXPECT_DOUBLE_EQ(seconds({2, 3, 0}, true), 3 + 3 + 3 + 2 - 6);
    // g 0-3; g 3-6 beside ops 3-4, sum 6-7; ops 6-7, g 7-10, sum 10-11; ops 10-11, sum 11-12.
    EXPECT_DOUBLE_EQ(seconds({1, 3, 1}, true), 12 - 3);
}

// ---- The search ---------------------------------------------------------------------------------

// The best layout against predictions of cuts that the searcher did not choose. They include chunks
// of uneven numbers of layers: 126 layers in 16 stages of up to 7 chunks. The time of a search is
// the number of cuts that it bounds and predicts.
TEST(SearchTraining, FindsNoWorseThanExplicitCuts) {
    struct SearchCase {
        const char *model, *machines;
        int64_t sequence, batch;
        std::vector<std::array<int, 3>> cuts;  // tp, pp, virtual stages
    };
    for (const SearchCase& searched :
         {SearchCase{"llama-3.1-70b", "8xh100", 2048, 256, {{8, 4, 1}, {4, 8, 1}, {8, 8, 1}}},
          SearchCase{"llama-3.1-405b",
                     "2048xh100",
                     8192,
                     2048,
                     {{8, 16, 2}, {8, 16, 3}, {8, 16, 4}, {8, 16, 5}, {8, 16, 7}}},
          SearchCase{"llama-3.1-405b", "384xh100", 2048, 3072, {}}}) {
        TrainCase c(searched.model, searched.machines, searched.sequence);
        TrainSettings wishes;
        wishes.global_batch = searched.batch;
        const TrainPlans found = c.MustFind(wishes);
        EXPECT_LT(found.bounded, 30000) << searched.machines;
        EXPECT_LT(found.predicted, 400) << searched.machines;
        EXPECT_TRUE(found.layouts[0].fits());
        EXPECT_TRUE(std::ranges::is_sorted(found.layouts, &TrainPrediction::IsBetterThan));
        int fitting = 0;
        for (const auto& [tp, pp, chunks] : searched.cuts) {
            const int dp = c.links->ranks() / tp / pp;
            for (const Recompute way :
                 {Recompute::kNone, Recompute::kSelective, Recompute::kFull}) {
                TrainCut cut = Cut(tp, pp, dp, dp > 1 ? 1 : 0, searched.batch / dp);
                cut.virtual_stages = chunks;
                cut.sequence_parallel = true;
                cut.recompute = way;
                const TrainPrediction asked = c.Must(cut);
                if (!asked.fits(kSearchedFill)) continue;
                ++fitting;
                EXPECT_GE(found.layouts[0].tokens_per_s, asked.tokens_per_s * (1 - 1e-9))
                    << cut.Name();
            }
        }
        EXPECT_EQ(fitting > 0, !searched.cuts.empty()) << searched.machines;
    }
}

// The fastest layout takes 97 % of the memory.
TEST(SearchTraining, RoomyLayoutsAreFirst) {
    TrainCase c("llama-3.1-70b", "mi300x", 1024);
    TrainSettings wishes;
    wishes.tp = wishes.pp = 1;
    wishes.zero = 3;
    wishes.micro_batch = 2;
    const TrainPlans found = c.MustFind(wishes);
    const TrainPrediction& first = found.layouts[0];
    EXPECT_TRUE(first.fits(0.95));
    EXPECT_TRUE(std::ranges::any_of(found.layouts, [&](const TrainPrediction& p) {
        return p.fits() && !p.fits(0.95) && p.tokens_per_s > first.tokens_per_s;
    }));
}

// With --zero 2 or 3, layouts of one replica are dropped, unless there is one rank.
TEST(SearchTraining, ZeroThatIsAskedForHasReplicas) {
    TrainSettings wishes;
    for (const int zero : {2, 3}) {
        wishes.zero = zero;
        for (const char* machines : {"h100:2", "h100"}) {
            TrainCase c("llama-3.2-1b", machines);
            for (const TrainPrediction& p : c.MustFind(wishes).layouts) {
                EXPECT_GT(p.cut.dp, 1) << p.cut.Name();
                EXPECT_EQ(p.cut.zero, zero);
            }
        }
        TrainCase one("llama-3.2-1b", "h100:1");
        EXPECT_FALSE(one.MustFind(wishes).layouts.empty());
    }
}

// With --pp 2, two ranks are two stages of one tensor rank.
TEST(SearchTraining, LayoutsHaveReplicas) {
    TrainCase c("llama-3.2-1b", "2xraspberry-pi-5");
    TrainSettings wishes;
    wishes.pp = 2;
    for (const TrainPrediction& p : c.MustFind(wishes).layouts) EXPECT_EQ(p.cut.ranks(), 2);
}

TEST(SearchTraining, TakesTheMostThatFits) {
    TrainCase c("llama-3.1-8b", "mi300x", 1024);
    TrainSettings wishes;
    wishes.tp = wishes.pp = 1;
    wishes.zero = 3;
    wishes.recompute = Recompute::kNone;
    TrainCut cut = Cut(1, 1, 8, 3);
    for (const TrainPrediction& p : c.MustFind(wishes).layouts) {
        if (p.fits(kSearchedFill)) cut.micro_batch = std::max(cut.micro_batch, p.cut.micro_batch);
    }
    EXPECT_TRUE(c.Must(cut).fits(kSearchedFill));
    ++cut.micro_batch;
    EXPECT_FALSE(c.Must(cut).fits(kSearchedFill));
}

}  // namespace
}  // namespace weft::plan
