// What runtimes reach of a machine: shares of memory, cache and compute, messages in and between
// hosts, and other names of programs.
#include <gtest/gtest.h>

#include "plan/predict.h"
#include "plan/shapes.h"

namespace weft::plan {
namespace {

// One model on machines, with a runtime that a test changes.
struct RuntimeCase {
    Library library = *Library::Open();
    std::unique_ptr<model_files::ModelSource> source;
    ModelWalk walk;
    Cluster cluster;
    Runtime runtime;

    RuntimeCase(const char* model, const char* machines, const char* name) {
        source = OpenShape(model).value();
        walk = ModelWalk::Make(*source, DType::kF16).value();
        cluster = library.ParseCluster(machines).value();
        runtime = library.FindRuntime(name).value().On(cluster.hosts[0]);
    }
    RuntimeCase(const RuntimeCase&) = delete;
    Prediction Must(const Workload& load, int tp = 1, int pp = 1) const {
        model::Layout layout;
        layout.tp = tp;
        layout.pp = pp;
        auto prediction = Predict(walk, cluster, runtime, layout, load);
        EXPECT_TRUE(prediction.ok()) << prediction.error().message;
        return *std::move(prediction);
    }
};

TEST(Runtime, TheCacheIsReadAtItsShare) {
    RuntimeCase c("llama-2-7b:q4_0", "strix-halo", "vllm-cuda");
    const Workload deep{.context = 32768};
    const Prediction whole = c.Must(deep);
    c.runtime.cache_share.value = 0.5;
    const Prediction half = c.Must(deep);
    EXPECT_NEAR(half.token.cache, 2 * whole.token.cache, 1e-9);
    EXPECT_DOUBLE_EQ(half.token.weights, whole.token.weights);
    c.runtime.grouped_share.value = 0.1;  // its heads have keys of their own
    EXPECT_DOUBLE_EQ(c.Must(deep).token.cache, half.token.cache);
}

TEST(Runtime, SharedHeadsHaveAShareOfTheirOwn) {
    RuntimeCase c("llama-3.1-8b:q4_0", "strix-halo", "vllm-cuda");
    const Workload deep{.context = 32768};
    const double whole = c.Must(deep).token.cache;
    c.runtime.grouped_share.value = 0.25;
    EXPECT_NEAR(c.Must(deep).token.cache, 4 * whole, 1e-9);
}

TEST(Runtime, WeightsAreReadAtTheirShareAndAtMostSoFast) {
    RuntimeCase c("llama-2-7b:q4_0", "h100", "vllm");
    const double rate = c.cluster.hosts[0].sustained_bytes_per_s();
    c.runtime.packed_share.value = 1;
    EXPECT_DOUBLE_EQ(c.runtime.WeightRate(c.cluster.hosts[0], DType::kQ4_0), rate);
    c.runtime.memory_share.value = 0.8;
    c.runtime.low_bit_share.value = 0.5;
    EXPECT_DOUBLE_EQ(c.runtime.WeightRate(c.cluster.hosts[0], DType::kQ4_0), 0.8 * rate);
    EXPECT_DOUBLE_EQ(c.runtime.WeightRate(c.cluster.hosts[0], DType::kQ4_K), 0.8 * rate);
    EXPECT_DOUBLE_EQ(c.runtime.WeightRate(c.cluster.hosts[0], DType::kQ3_K), 0.4 * rate);
    c.runtime.memory_most = Figure{rate / 4, Mark::kGuessed, ""};
    EXPECT_DOUBLE_EQ(c.runtime.WeightRate(c.cluster.hosts[0], DType::kQ4_0), rate / 4);
    EXPECT_GT(c.Must({.context = 1}).token.weights, 3.5e9 / (rate / 4));
}

TEST(Runtime, QuantizedWeightsAreUnpackedOnTheWayWhereMemoryIsFast) {
    const Library library = *Library::Open();
    Runtime runtime = *library.FindRuntime("vllm-cuda");
    runtime.packed_share.value = 0.5;
    const Machine a100 = *library.FindMachine("a100"), spark = *library.FindMachine("dgx-spark");
    const Machine h100 = *library.FindMachine("h100");
    const double rate = a100.sustained_bytes_per_s();
    EXPECT_DOUBLE_EQ(runtime.WeightRate(a100, DType::kQ4_0), rate / 2);
    EXPECT_DOUBLE_EQ(runtime.WeightRate(a100, DType::kQ8_0), rate / 2);
    EXPECT_DOUBLE_EQ(runtime.WeightRate(a100, DType::kBF16), rate);
    EXPECT_DOUBLE_EQ(runtime.WeightRate(spark, DType::kQ4_0), spark.sustained_bytes_per_s());
    // Weights of eight bits are multiplied as they are where the device does that.
    EXPECT_DOUBLE_EQ(runtime.WeightRate(h100, DType::kQ8_0), h100.sustained_bytes_per_s());
}

TEST(Runtime, LessThanFourBitsAreUnpackedMoreSlowlyInPromptsToo) {
    const Library library = *Library::Open();
    Runtime runtime = *library.FindRuntime("llama.cpp-rocm");
    const Machine halo = *library.FindMachine("strix-halo");
    const double four = runtime.ProductFlops(halo, DType::kQ4_K);
    EXPECT_DOUBLE_EQ(runtime.ProductFlops(halo, DType::kQ3_K), four * runtime.low_bit_share.value);
    EXPECT_DOUBLE_EQ(runtime.ProductFlops(halo, DType::kQ5_K), four);
}

TEST(Runtime, EightBitsHaveTheDevicesOwnRate) {
    const Library library = *Library::Open();
    const Runtime trt = *library.FindRuntime("tensorrt-llm");
    const Machine h100 = *library.FindMachine("h100"), a100 = *library.FindMachine("a100");
    EXPECT_DOUBLE_EQ(trt.ProductFlops(h100, DType::kQ8_0), 1979e12 * trt.eight_bit_share->value);
    EXPECT_DOUBLE_EQ(trt.ProductFlops(h100, DType::kBF16), 989e12 * trt.compute_share.value);
    EXPECT_DOUBLE_EQ(trt.ProductFlops(a100, DType::kQ8_0),
                     312e12 * trt.compute_share.value * trt.unpack_share.value);
    // Sums in F16 are twice as fast on a GeForce, up to what the program's kernels reach.
    const Runtime cuda = *library.FindRuntime("llama.cpp-cuda");
    const Machine small = *library.FindMachine("rtx-3060");
    EXPECT_DOUBLE_EQ(cuda.ProductFlops(small, DType::kF16), 51e12 * cuda.compute_share.value);
    EXPECT_DOUBLE_EQ(cuda.ProductFlops(h100, DType::kF16), cuda.compute_most->value);
}

TEST(Runtime, Bf16HasItsOwnSharesAndExpertsOthers) {
    RuntimeCase c("qwen3-30b-a3b:bf16", "strix-halo", "vllm-cuda");
    const Workload short_prompt{.context = 512};
    const Prediction whole = c.Must(short_prompt);
    c.runtime.bf16_expert_memory.value = 0.25;
    const Prediction slow = c.Must(short_prompt);
    EXPECT_GT(slow.token.weights, 2 * whole.token.weights);
    EXPECT_LT(slow.token.weights, 4 * whole.token.weights);  // the rest is not experts
    const Machine& machine = c.cluster.hosts[0];
    c.runtime.bf16_share.value = 0.5;
    c.runtime.bf16_expert_share.value = 0.125;
    const double wide = c.runtime.ProductFlops(machine, DType::kF16);
    EXPECT_DOUBLE_EQ(c.runtime.ProductFlops(machine, DType::kBF16), wide / 2);
    EXPECT_DOUBLE_EQ(c.runtime.ProductFlops(machine, DType::kBF16, true), wide / 8);
    EXPECT_GT(c.Must(short_prompt).prompt.compute, 2 * slow.prompt.compute);
}

TEST(Runtime, AttentionOfPromptsHasARateForHeadsThatShareKeys) {
    const Workload deep{.context = 32768, .prompt = 512, .depth = 32000};
    for (const char* model : {"llama-2-7b:q4_0", "llama-3.1-8b:q4_0"}) {
        RuntimeCase c(model, "strix-halo", "vllm-cuda");
        const bool grouped = c.walk.hyper().heads > c.walk.hyper().kv_heads;
        const double before = c.Must(deep).prompt.compute;
        c.runtime.grouped_attention_share.value /= 4;
        const double after = c.Must(deep).prompt.compute;
        EXPECT_EQ(after > 1.5 * before, grouped) << model;
        EXPECT_EQ(after == before, !grouped) << model;
    }
}

TEST(Runtime, WhatIsNoProductHasAShareOfTheBandwidth) {
    RuntimeCase c("llama-2-7b:q4_0", "strix-halo", "vllm-cuda");
    const Prediction whole = c.Must({.context = 8});
    c.runtime.rest_share.value = 0.01;
    const Prediction slow = c.Must({.context = 8});
    EXPECT_DOUBLE_EQ(slow.token.cache, whole.token.cache);
    // Norms, sums, rotations and gates: some 0.3 MB a layer.
    const double rate = c.cluster.hosts[0].sustained_bytes_per_s();
    EXPECT_NEAR(slow.token.weights - whole.token.weights, 99 * 32 * 0.33e6 / rate,
                99 * 32 * 0.1e6 / rate);
}

// The first host's link carries each other's addend, and then the sum to each.
TEST(Runtime, InAStarTheFirstHostsLinkCarriesAll) {
    RuntimeCase c("llama-2-7b:q4_0", "8xraspberry-pi-5,1gbe", "distributed-llama-2024");
    ASSERT_TRUE(c.runtime.star);
    c.runtime.crowd_share.value = 1;  // a large switch
    const double syncs = static_cast<double>(*SyncsOfToken(c.walk, 2));
    const double one = 2 * (c.cluster.wire.latency.value + 4096 / c.cluster.wire.bandwidth.value);
    const double two = c.Must({.context = 8}, 2).token.wire;
    EXPECT_NEAR(two, syncs * one, 0.1 * two);  // logits are gathered, too
    const double six = 2 * 6 * 4096 / c.cluster.wire.bandwidth.value;
    EXPECT_NEAR(c.Must({.context = 8}, 8).token.wire - two, syncs * six, 0.35 * syncs * six);
}

TEST(Runtime, SyncsAndMessagesWithinAHostCostLess) {
    RuntimeCase near("llama-3.1-8b:bf16", "h100", "vllm");
    RuntimeCase far("llama-3.1-8b:bf16", "2xdgx-spark,roce-200g", "vllm");
    const double syncs = near.Must({}, 2).token.sync / near.runtime.sync_within.value;
    EXPECT_NEAR(far.Must({}, 2).token.sync / far.runtime.sync.value, syncs, 1e-6);
    EXPECT_LT(near.runtime.sync_within.value, far.runtime.sync.value);
    RuntimeCase cards("llama-3.1-8b:q8_0", "rtx-3090:2", "llama.cpp-cuda");
    EXPECT_LT(cards.Must({}, 1, 2).token.hops, 2 * cards.runtime.hop.value);
}

TEST(Runtime, RelayedMessagesTravelTwice) {
    RuntimeCase c("llama-3.1-8b:q8_0", "4xstrix-halo,5gbe", "llama.cpp-rpc");
    ASSERT_TRUE(c.runtime.relay);
    const double relayed = c.Must({}, 1, 4).token.hops;
    const double two = c.Must({}, 1, 2).token.hops;
    c.runtime.relay = false;
    const double straight = c.Must({}, 1, 4).token.hops;
    EXPECT_DOUBLE_EQ(c.Must({}, 1, 2).token.hops, two);  // both are the first host's
    // Of four messages those from the second to the third host and on to the fourth.
    const double one = (relayed - straight) / 2;
    EXPECT_NEAR(straight + 2 * one, relayed, 1e-12);
    EXPECT_GT(one, c.runtime.hop.value);
}

// Some experts are popular: a batch meets fewer of them than if all were chosen alike.
TEST(Runtime, ABatchMeetsFewerExpertsThanEvenChoicesWould) {
    RuntimeCase c("gpt-oss-120b:mxfp4", "dgx-spark", "vllm");
    const auto weights = [&](int64_t batch) {
        const Prediction p = c.Must({.context = 1, .batch = batch});
        return p.token.weights + p.token.imbalance;
    };
    const double rate = c.cluster.hosts[0].sustained_bytes_per_s();
    // What is not experts is under 3.5 GB; 36 layers of 128 experts in MXFP4 are 60.7 GB.
    const double experts = 60.7e9 / rate / 128;
    const double one = weights(1);
    EXPECT_NEAR((weights(16) - one) / experts, 37 - 4, 3);
    EXPECT_LT(weights(16) - one, 0.8 * (51 - 4) * experts);
    EXPECT_LT(weights(512), 1.01 * (one + 124 * experts));
}

// What of reading and computing runs beside each other: all of it, none of it.
TEST(Runtime, ProductsReadAndComputeBesideEachOther) {
    const Workload some_rows{.context = 64, .prompt = 64, .chunk = 64};
    for (const char* model : {"llama-2-7b:q4_0", "llama-2-7b:f16"}) {
        RuntimeCase c(model, "rtx-3090", "vllm-cuda");
        const Prediction beside = c.Must(some_rows);
        c.runtime.overlap.value = 0;
        const Prediction apart = c.Must(some_rows);
        EXPECT_DOUBLE_EQ(apart.token.total(), beside.token.total());
        const double more = apart.ttft_s - beside.ttft_s;
        if (std::string_view(model).ends_with("f16")) {
            EXPECT_DOUBLE_EQ(more, 0);  // nothing to unpack
            continue;
        }
        // 6.48 billion weights of layers in 18 bytes for 32, and 64 rows of 2 FLOPs a weight. What
        // the seven products of a layer read and write of a row: 78,080 values of 4 bytes.
        const Machine& machine = c.cluster.hosts[0];
        const double bytes = 6.48e9 * 18 / 32 + 64 * 32 * 78080.0 * 4;
        const double reading = bytes / c.runtime.WeightRate(machine, DType::kQ4_0);
        const double computing = 64 * 2 * 6.48e9 / c.runtime.ProductFlops(machine, DType::kQ4_0);
        const double less = std::min(reading, computing);
        EXPECT_NEAR(more, less, 0.02 * less);
    }
}

// Of up to eight rows, each costs arithmetic of a vector; of nine the matrix units are used.
TEST(Runtime, FewRowsRunAsVectors) {
    RuntimeCase c("llama-2-7b:q4_0", "rtx-3090", "vllm");
    const auto seconds = [&](int64_t batch) {
        return c.Must({.context = 1, .batch = batch}).token.total();
    };
    const double eight = seconds(8), nine = seconds(9);
    c.runtime.vector_share = Figure{0.01, Mark::kGuessed, ""};
    // 6.6 billion weights, 2 FLOPs each and row, at a hundredth of 71 TFLOP/s.
    EXPECT_NEAR(seconds(8), 8 * 2 * 6.6e9 / 0.71e12, 0.1 * seconds(8));
    EXPECT_GT(seconds(8), 5 * eight);
    EXPECT_DOUBLE_EQ(seconds(9), nine);
}

TEST(Runtime, ChoosingExpertsTakesItsTimeOnceALayer) {
    RuntimeCase c("qwen3-30b-a3b:q4_k_m", "rtx-3090", "vllm");
    const double before = c.Must({}).token.overhead;
    c.runtime.route.value = 10e-6;
    EXPECT_NEAR(c.Must({}).token.overhead - before, 48 * 10e-6, 1e-9);  // layers
}

// DeepSeek's experts have 2,048 columns: of eight tensor ranks each has 256, in four groups 1,024.
TEST(Runtime, NarrowSlicesOfExpertsTakeLonger) {
    const auto overhead = [](const char* model, int ep, double seconds) {
        RuntimeCase c(model, "h200", "tensorrt-llm");
        c.runtime.narrow_experts.value = seconds;
        model::Layout layout;
        layout.tp = 8;
        layout.ep = ep;
        return Predict(c.walk, c.cluster, c.runtime, layout, {}).value().token.overhead;
    };
    const double more = 58 * 10e-6;  // layers with experts
    EXPECT_NEAR(overhead("deepseek-r1:fp8", 1, 10e-6) - overhead("deepseek-r1:fp8", 1, 0), more,
                1e-9);
    EXPECT_DOUBLE_EQ(overhead("deepseek-r1:fp8", 4, 10e-6), overhead("deepseek-r1:fp8", 4, 0));
    EXPECT_DOUBLE_EQ(overhead("deepseek-r1:q4_0", 1, 10e-6), overhead("deepseek-r1:q4_0", 1, 0));
}

// gpt-oss chooses 4 of 32 experts: 8 rows that read theirs anew read 32, else 21 (evenly met) at
// most.
TEST(Runtime, ExpertsMayBeReadAnewForEachRow) {
    RuntimeCase c("gpt-oss-20b:mxfp4", "m2-ultra", "llama.cpp-metal");
    c.runtime.vector_share.reset();  // the memory holds all up
    const auto weights = [&](int64_t batch, int anew) {
        c.runtime.experts_anew = anew;
        return c.Must({.context = 1, .batch = batch}).token.weights;
    };
    const double one = weights(1, 0);
    EXPECT_NEAR(weights(1, 32), one, 0.01 * one);
    const double rest = one - (weights(2, 32) - one);  // what all rows share
    EXPECT_NEAR(weights(8, 32), rest + 8 * (one - rest), 0.01 * one);
    EXPECT_LT(weights(8, 0), rest + 5.3 * (one - rest));
    EXPECT_DOUBLE_EQ(weights(32, 32), weights(32, 0));
}

// Six query heads that share a KV head are read in twos, so that it is read three times.
TEST(Runtime, GroupsThatAreNoPowerOfTwoReadTheCacheAgain) {
    const Workload deep{.context = 32768};
    for (const auto& [model, reads] : std::initializer_list<std::pair<const char*, double>>{
             {"minimax-m2:q4_0", 3}, {"glm-4.6:q4_0", 3}, {"llama-3.1-8b:q4_0", 1}}) {
        RuntimeCase c(model, "strix-halo", "vllm-cuda");
        c.runtime.reread_share.value = 0;
        const double once = c.Must(deep).token.cache;
        c.runtime.reread_share.value = 0.5;
        EXPECT_NEAR(c.Must(deep).token.cache, once * (1 + 0.5 * (reads - 1)), 1e-9) << model;
    }
}

TEST(Runtime, ManyHostsThatSendToOneOverflowASwitch) {
    RuntimeCase c("llama-2-7b:q4_0", "8xraspberry-pi-5,1gbe", "distributed-llama-2024");
    c.runtime.crowd_share.value = 1;
    const double four = c.Must({.context = 8}, 4).token.wire;
    const double eight = c.Must({.context = 8}, 8).token.wire;
    c.runtime.crowd_share.value = 0.25;
    EXPECT_DOUBLE_EQ(c.Must({.context = 8}, 4).token.wire, four);
    EXPECT_GT(c.Must({.context = 8}, 8).token.wire, 2.5 * eight);
    EXPECT_LT(c.Must({.context = 8}, 8).token.wire, 4 * eight);
}

TEST(Runtime, AProgramRunsTheBackendOfEachMachine) {
    const Library library = *Library::Open();
    const Runtime any = *library.FindRuntime("llama.cpp");
    for (const auto& [machine, backend] :
         std::initializer_list<std::pair<const char*, const char*>>{
             {"rtx-3060", "llama.cpp-cuda"},
             {"strix-halo", "llama.cpp-vulkan-mesa"},
             {"arc-b580", "llama.cpp-vulkan-mesa"},
             {"m3-ultra", "llama.cpp-metal"},
             {"raspberry-pi-5", "llama.cpp-cpu"}}) {
        EXPECT_EQ(any.On(*library.FindMachine(machine)).name, backend) << machine;
        RuntimeCase both("llama-3.1-8b:q4_0", machine, "llama.cpp");
        both.runtime = any;
        RuntimeCase its("llama-3.1-8b:q4_0", machine, backend);
        EXPECT_DOUBLE_EQ(both.Must({}).tok_s, its.Must({}).tok_s) << machine;
        EXPECT_DOUBLE_EQ(both.Must({}).ttft_s, its.Must({}).ttft_s) << machine;
    }
    EXPECT_EQ(library.FindRuntime("lm-studio")->name, "llama.cpp");
    EXPECT_EQ(library.FindRuntime("ollama")->On(*library.FindMachine("strix-halo")).name,
              "llama.cpp-rocm");
    const Runtime weft = *library.FindRuntime("weft");
    EXPECT_EQ(weft.On(*library.FindMachine("m3-ultra")).name, "weft");
}

// On processors products reach what was seen, not AMX's peak; desktops are below that anyway.
TEST(Runtime, ProcessorsReadPromptsAsOneWasSeenTo) {
    for (const char* name : {"ik_llama.cpp", "llama.cpp-cpu"}) {
        RuntimeCase server("deepseek-r1:q4_k_m", "xeon-6980p", name);
        const Prediction p = server.Must({.context = 1024, .prompt = 512});
        EXPECT_NEAR(p.prompt_tok_s / 93, 1, 0.02) << name;
        RuntimeCase desktop("llama-2-7b:q4_0", "core-i9-14900k", name);
        const double all = desktop.Must({.context = 512}).ttft_s;
        desktop.runtime.compute_most.reset();
        EXPECT_DOUBLE_EQ(desktop.Must({.context = 512}).ttft_s, all) << name;
    }
    const Library library = *Library::Open();
    const Runtime ik = *library.FindRuntime("ik-llama");
    EXPECT_EQ(ik.On(*library.FindMachine("rtx-3090")).name, "ik_llama.cpp-cuda");
    EXPECT_EQ(ik.On(*library.FindMachine("xeon-6980p")).name, "ik_llama.cpp-cpu");
}

// All machines of the library have a backend: none is of an unknown maker.
TEST(Runtime, TheMakerOfEachMachineIsKnown) {
    const Library library = *Library::Open();
    for (const auto& [name, machine] : library.machines()) {
        EXPECT_NE(machine.maker, Maker::kOther) << name;
        const bool host = machine.pool == backend::MemoryKind::kHost;
        EXPECT_EQ(machine.maker == Maker::kProcessor, host) << name;
    }
}

TEST(Runtime, NotEveryProgramRunsEverywhere) {
    const Library library = *Library::Open();
    const auto runs = [&](const char* program, const char* machine) {
        return library.FindRuntime(program)->RunsOn(*library.FindMachine(machine));
    };
    EXPECT_TRUE(runs("exo", "m3-ultra"));
    EXPECT_FALSE(runs("exo", "mi50-32gb"));
    EXPECT_TRUE(runs("vllm", "mi300x"));  // its backend for AMD does
    EXPECT_FALSE(runs("vllm", "m3-ultra"));
    EXPECT_FALSE(runs("trt-llm", "mi300x"));
    for (const char* machine : {"m3-ultra", "mi50-32gb", "h100", "arc-b580", "epyc-9654"}) {
        EXPECT_TRUE(runs("llama.cpp", machine)) << machine;
        const bool mac = std::string_view(machine) == "m3-ultra";  // Weft runs on Linux
        EXPECT_EQ(runs("weft", machine), !mac) << machine;
    }
}

TEST(Runtime, ProgramsHaveOtherNames) {
    const Library library = *Library::Open();
    EXPECT_EQ(library.FindRuntime("trt-llm")->name, "tensorrt-llm");
    EXPECT_EQ(library.FindRuntime("exo")->name, "exo-mlx");
    EXPECT_EQ(library.FindRuntime("mlx-lm")->name, "mlx");
    EXPECT_EQ(library.FindRuntime("dllama")->name, "distributed-llama");
    EXPECT_FALSE(library.FindRuntime("llama").ok());
}

TEST(Runtime, PublishedWithExpertsOfFourBits) {
    const auto bytes = [](const char* name) {
        uint64_t sum = 0;
        const auto source = OpenShape(name).value();
        for (const model_files::TensorInfo& tensor : source->tensors()) {
            sum += static_cast<uint64_t>(RowBytes(tensor.dtype, tensor.cols * tensor.rows));
        }
        return static_cast<double>(sum);
    };
    const double four = bytes("kimi-k2:4bit");
    EXPECT_DOUBLE_EQ(bytes("kimi-k2-thinking"), bytes("kimi-k2-thinking:4bit"));
    EXPECT_GT(bytes("kimi-k2-thinking"), four + 12e9);  // the attention's and the ends' in BF16
    EXPECT_LT(bytes("kimi-k2-thinking"), four + 25e9);
    EXPECT_DOUBLE_EQ(bytes("kimi-k2-thinking:q8_0"), bytes("kimi-k2:q8_0"));
}

}  // namespace
}  // namespace weft::plan
