// Estimates of machines that are not here: against formulas, and against published epochs.
#include "train/estimate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "base/file.h"
#include "support/paths.h"

namespace weft::train {
namespace {

Machines MachinesOf(const std::string& name) {
    const std::string path = support::TestData("/../../bench/machines/" + name + ".json");
    const auto text = ReadTextFile(path);
    EXPECT_TRUE(text.ok());
    const auto machines = ReadMachines(*text, name);
    EXPECT_TRUE(machines.ok()) << machines.error().message;
    return *machines;
}

TrainEstimate Estimate(const TrainerOptions& options, const Machines& machines) {
    const auto source = model_files::OpenModel(options.model);
    EXPECT_TRUE(source.ok());
    const auto estimate = EstimateTraining(options, **source, machines);
    EXPECT_TRUE(estimate.ok()) << estimate.error().message;
    return *estimate;
}

TrainerOptions Options(const char* model, int zero) {
    TrainerOptions options;
    options.model = model;
    options.dtype = DType::kBF16;
    options.grad_dtype = "bf16";  // as those who published
    options.zero = zero;
    options.sequence = 512;
    options.micro_batch = 1;
    return options;
}

// docs/parallelism.md says what is taken from where. Epochs of 80 % of 211,269 questions.
TEST(Estimate, PublishedEpochs) {
    const struct {
        const char *model, *machines;
        double epoch_s;
    } rows[] = {{"synthetic:llama-3.1-8b", "mi300x_one", 1980},
                {"synthetic:llama-3.1-8b", "mi300x_two_tcp", 1220},
                {"synthetic:llama-3.1-8b", "mi300x_two_roce", 1071},
                {"synthetic:llama-3.1-70b", "mi300x_one", 20420},
                {"synthetic:llama-3.1-70b", "mi300x_two_tcp", 17160},
                {"synthetic:llama-3.1-70b", "mi300x_two_roce", 8120}};
    for (const auto& row : rows) {
        SCOPED_TRACE(std::string(row.model) + " " + row.machines);
        TrainerOptions options = Options(row.model, 3);
        options.micro_batch = 0;
        const TrainEstimate estimate = Estimate(options, MachinesOf(row.machines));
        const double epoch_s =
            169015.0 / static_cast<double>(estimate.sequences) * estimate.update_s;
        EXPECT_NEAR(epoch_s / row.epoch_s, 1, 0.2);
        EXPECT_TRUE(estimate.fits);
    }
}

// Of P weights and N replicas in BF16: 16 P, 4 P + 12 P / N, 2 P + 14 P / N, 16 P / N.
TEST(Estimate, StateIsTheFormulas) {
    const double p = 8.03e9, n = 8;
    const double expected[] = {16 * p, 4 * p + 12 * p / n, 2 * p + 14 * p / n, 16 * p / n};
    for (int zero = 0; zero <= 3; ++zero) {
        const TrainEstimate estimate =
            Estimate(Options("synthetic:llama-3.1-8b", zero), MachinesOf("mi300x_one"));
        ASSERT_EQ(estimate.stages.size(), 1u);
        const double bytes = static_cast<double>(estimate.stages[0].state_bytes);
        EXPECT_NEAR(bytes / expected[zero], 1, 0.01) << zero;
    }
}

// 6 FLOPs a weight of a product and token, and a little for attention and what lies between.
TEST(Estimate, ArithmeticIsCounted) {
    const TrainEstimate estimate =
        Estimate(Options("synthetic:llama-3.1-8b", 1), MachinesOf("mi300x_one"));
    const double products = 6.0 * (8.03e9 - 128256.0 * 4096) * 512 * 8;
    EXPECT_GT(static_cast<double>(estimate.flops), products);
    EXPECT_LT(static_cast<double>(estimate.flops), 1.1 * products);
    TrainerOptions full = Options("synthetic:llama-3.1-8b", 1);
    full.recompute = "full";
    const TrainEstimate again = Estimate(full, MachinesOf("mi300x_one"));
    // (Not again: the loss, and what is only added to the residual stream.)
    EXPECT_GT(static_cast<double>(again.flops), 1.15 * static_cast<double>(estimate.flops));
    EXPECT_LT(static_cast<double>(again.flops), 1.34 * static_cast<double>(estimate.flops));
    EXPECT_LT(again.stages[0].work_bytes, estimate.stages[0].work_bytes / 2);
}

// 405 billion weights on 3,072 ranks, and as many tokens a pass as may be asked for: 6 FLOPs a
// weight and token, and more for attention.
TEST(Estimate, NothingOverflows) {
    Machines machines = MachinesOf("mi300x_two_roce");
    machines.hosts = 384;
    machines.ranks_per_host = 8;
    for (const auto& [micro_batch, sequence, accumulation] :
         {std::tuple(int64_t{1}, int64_t{8192}, int64_t{1024}),
          std::tuple(int64_t{4096}, int64_t{131072}, int64_t{1} << 20)}) {
        TrainerOptions options = Options("synthetic:llama-3.1-405b", 1);
        options.tp = 8;
        options.pp = 16;
        options.sequence = sequence;
        options.micro_batch = micro_batch;
        options.accumulation = accumulation;
        options.recompute = "none";
        const TrainEstimate estimate = Estimate(options, machines);
        const double tokens =
            static_cast<double>(estimate.sequences) * static_cast<double>(sequence);
        EXPECT_EQ(estimate.sequences, micro_batch * accumulation * 24);
        const double least = 6 * (405.8e9 - 128256.0 * 16384) * tokens;
        EXPECT_GT(estimate.flops, least);
        EXPECT_LT(estimate.flops, 4 * least);
        EXPECT_GT(estimate.update_s, 0);
        EXPECT_GT(estimate.tokens_per_s(sequence), 0);
        for (const StageEstimate& stage : estimate.stages) {
            EXPECT_GT(stage.work_bytes, uint64_t{1} << 30);
            EXPECT_LE(stage.work_bytes, uint64_t{1} << 62);
            EXPECT_GT(stage.compute_s, 0);
            EXPECT_GE(stage.idle_s, 0);
        }
    }
}

TEST(Estimate, PipelinesFillAndEmpty) {
    TrainerOptions options = Options("synthetic:llama-3.1-8b", 0);
    options.pp = 4;
    options.accumulation = 8;
    const TrainEstimate estimate = Estimate(options, MachinesOf("mi300x_one"));
    ASSERT_EQ(estimate.stages.size(), 4u);
    for (const StageEstimate& stage : estimate.stages) {
        // (Three of 8 + 3 passes, and more where another stage is slower.)
        EXPECT_GE(stage.idle_s, 0.25 * (stage.update_s - stage.idle_s) * 3 / 8);
        EXPECT_GT(stage.waited_s, 0);
    }
}

// Chunks that take turns fill and empty the pipeline in a share of the time, send more, and keep
// activations of (V - 1) P + 2 (P - 1) + 1 chunks on the first stage.
TEST(Estimate, ChunksShortenTheBubble) {
    TrainerOptions options = Options("synthetic:llama-3.1-8b", 0);
    options.pp = 4;
    options.accumulation = 8;
    const TrainEstimate plain = Estimate(options, MachinesOf("mi300x_one"));
    options.virtual_stages = 2;
    const TrainEstimate chunks = Estimate(options, MachinesOf("mi300x_one"));
    ASSERT_EQ(chunks.stages.size(), 4u);
    EXPECT_EQ(chunks.flops, plain.flops);
    EXPECT_LT(chunks.update_s, plain.update_s);
    double slowest = 0, wire_s = 0, plain_wire_s = 0;
    for (size_t s = 0; s < 4; ++s) {
        const StageEstimate& stage = chunks.stages[s];
        slowest = std::max(slowest, stage.update_s - stage.idle_s);
        wire_s += stage.wire_s;
        plain_wire_s += plain.stages[s].wire_s;
    }
    EXPECT_GT(wire_s, plain_wire_s);
    for (size_t s = 0; s < 4; ++s) {
        const StageEstimate& stage = chunks.stages[s];
        const double own = stage.update_s - stage.idle_s;
        // (3 / 2 passes in 8 are 0.1875; the optimizer's part is no pass, hence the bounds.)
        EXPECT_GE(stage.idle_s, 0.14 * own);
        EXPECT_LE(stage.idle_s, slowest - own + 0.1875 * slowest);
    }
    const double kept = static_cast<double>(chunks.stages[0].work_bytes) /
                        static_cast<double>(plain.stages[0].work_bytes);
    // 11 chunks of a half each for 4 micro-batches, of five layers, the largest, for four.
    EXPECT_GT(kept, 11.0 / 2 / 4);
    EXPECT_LT(kept, 11.0 / 2 / 4 * 5 / 4);
    options.accumulation = 6;
    const auto source = model_files::OpenModel(options.model);
    const auto refused = EstimateTraining(options, **source, MachinesOf("mi300x_one"));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("use 4 or 8"), std::string::npos)
        << refused.error().message;
}

TEST(Estimate, WhatCanNotBeIsSaid) {
    TrainerOptions options = Options("synthetic:llama-3.1-70b", 0);
    EXPECT_FALSE(Estimate(options, MachinesOf("mi300x_one")).fits);
    options.micro_batch = 0;
    const auto source = model_files::OpenModel(options.model);
    const auto none = EstimateTraining(options, **source, MachinesOf("mi300x_one"));
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kOutOfMemory);
    for (const auto& [text, words] : std::initializer_list<std::pair<const char*, const char*>>{
             {"[1]", "expected a JSON object"},
             {"{", "expected a JSON object"},
             {R"({"hosts": 0})", "hosts: expected a whole number from 1 to 1048576"},
             {R"({"hosts": 0.5})", "hosts: expected a whole number"},
             {R"({"hosts": 4294967297})", "hosts: expected a whole number"},
             {R"({"hosts": 1, "ranks_per_host": "two"})",
              "ranks_per_host: expected a whole number"},
             {R"({"hosts": 1048576, "ranks_per_host": 1048576, "flops_per_s": 1,
                  "memory_bytes_per_s": 1, "memory_bytes": 1, "within": {"bytes_per_s": 1},
                  "between": {"bytes_per_s": 1}})",
              "more than 1048576 ranks"},
             {R"({"hosts": 1, "ranks_per_host": 1, "flops_per_s": 1e-300})",
              "flops_per_s: expected a number from 1 to 1e+24"},
             {R"({"hosts": 1, "ranks_per_host": 1, "flops_per_s": 1, "memory_bytes_per_s": 1,
                  "memory_bytes": 1e25})",
              "memory_bytes: expected a number from 1 to 1e+18"},
             {R"({"hosts": 1, "ranks_per_host": 2, "flops_per_s": 1, "memory_bytes_per_s": 1,
                  "memory_bytes": 1, "within": {"bytes_per_s": 1, "latency_s": -1}})",
              "within.latency_s: expected a number from 0 to 3600"},
             {R"({"hosts": 1, "ranks_per_host": 2, "flops_per_s": 1, "memory_bytes_per_s": 1,
                  "memory_bytes": 1})",
              "within.bytes_per_s: expected a number"},
             {R"({"hosts": 2, "ranks_per_host": 1, "flops_per_s": 1, "memory_bytes_per_s": 1,
                  "memory_bytes": 1, "between": {"bytes_per_s": 1, "overlaps": 3}})",
              "between.overlaps: expected true or false"}}) {
        const auto machines = ReadMachines(text, "m.json");
        ASSERT_FALSE(machines.ok()) << text;
        EXPECT_NE(machines.error().message.find(words), std::string::npos)
            << machines.error().message;
    }
    // (No stack would hold a copy of this.)
    const std::string deep =
        R"({"hosts": 2, "between": )" + std::string(1 << 20, '[') + std::string(1 << 20, ']') + "}";
    EXPECT_FALSE(ReadMachines(deep, "m.json").ok());
}

}  // namespace
}  // namespace weft::train
