// The default KV cache, on other machines than this one: it fits into every rank's memory, and uses
// what is free. A server of several models starts if each of them alone does.
#include "plan/this_host.h"

#include <gtest/gtest.h>

#include "backend/memory_plan.h"
#include "engine/engine.h"
#include "engine/rank/cache_size.h"
#include "engine/rank/host_ops.h"
#include "engine/rank/rank_options.h"
#include "model/builder.h"
#include "model/hyper.h"
#include "model/shard.h"
#include "plan/memory.h"
#include "plan/walk.h"
#include "program/placement.h"
#include "support/run_weft.h"
#include "support/wait.h"

namespace weft::plan {
namespace {

using backend::MemoryKind;

constexpr double kGb = 1e9;

struct Host {
    const char* what;
    MemoryKind kind;
    int devices;  // ranks of a host
    int hosts;
    double device_gb, host_gb;
};

LocalDevices DevicesOf(const Host& host, bool is_auto) {
    LocalDevices devices;
    for (int i = 0; i < host.devices; ++i) {
        auto& tried = devices.emplace_back();
        const bool gpu = host.kind != MemoryKind::kHost;
        if (gpu) tried.push_back({fmt::format("vulkan:{}", i), {.kind = host.kind}});
        if (!gpu || is_auto) tried.push_back({"cpu", {.kind = MemoryKind::kHost}});
    }
    return devices;
}

MemoryBytes FreeOf(const Host& host) {
    MemoryBytes free{{"", static_cast<uint64_t>(host.host_gb * kGb)}};
    for (int i = 0; i < host.devices && host.kind != MemoryKind::kHost; ++i) {
        free[fmt::format("vulkan:{}", i)] = static_cast<uint64_t>(host.device_gb * kGb);
    }
    return free;
}

engine::Job JobOf(const char* model, int tp, int pp, int64_t max_seqs = 32) {
    engine::Job job;
    job.model = model;
    job.tp = tp;
    job.pp = pp;
    EXPECT_TRUE(engine::SizeCache(job, {.max_seqs = max_seqs}).ok()) << model;
    job.max_outputs = max_seqs;
    return job;
}

// Bytes of a whole cache of the job's first ranks, by the planner of memory.
double CacheBytes(const engine::Job& job, const Host& host) {
    const auto source = model_files::OpenModel(job.model);
    const auto walk = ModelWalk::Make(**source, job.kv_dtype);
    const auto layout = model::MakeLayout(host.devices * host.hosts, job.tp, job.pp, {}, 0);
    const auto shards = model::PlanShards(walk->hyper(), **source, *layout);
    MemoryPlanner planner(*walk, job);
    double bytes = 0;
    for (int rank = 0; rank < host.devices; ++rank) {
        Machine machine;
        machine.pool = host.kind;
        machine.memory.value = 1e15;
        const auto use =
            planner.Of(shards->shards[static_cast<size_t>(rank)], machine, host.hosts == 1);
        bytes += use.ok() ? static_cast<double>(use->cache) : 0;
    }
    return bytes;
}

TEST(ThisHost, TheCacheFitsAndTakesWhatIsThere) {
    constexpr auto kHost = MemoryKind::kHost, kDevice = MemoryKind::kDevice,
                   kUnified = MemoryKind::kUnified;
    struct Machines {
        Host host;
        const char* model;
        bool stages = false, is_auto = false;
    };
    const Machines cases[] = {
        {{"a host", kHost, 1, 1, 0, 60}, "synthetic:llama-3.1-8b:q4_0"},
        {{"2 hosts", kHost, 1, 2, 0, 60}, "synthetic:llama-3.1-70b:q6_k"},
        {{"2 hosts, stages", kHost, 1, 2, 0, 60}, "synthetic:llama-3.1-70b:q6_k", true},
        {{"4 hosts", kHost, 1, 4, 0, 60}, "synthetic:qwen3-235b-a22b:q4_0"},
        {{"2 unified hosts", kUnified, 1, 2, 115, 115}, "synthetic:qwen3-235b-a22b:q4_0"},
        {{"2 cards", kDevice, 2, 1, 24, 60}, "synthetic:llama-3.1-70b:q4_0"},
        {{"2 cards, auto", kDevice, 2, 1, 24, 60}, "synthetic:llama-3.1-70b:q4_0", false, true},
        {{"8 GPUs", kDevice, 8, 1, 190, 1500}, "synthetic:llama-3.1-405b:q8_0"},
        {{"8 GPUs, auto", kDevice, 8, 1, 190, 1500}, "synthetic:llama-3.1-405b:q8_0", false, true},
        {{"8 local ranks, latent", kHost, 8, 1, 0, 512}, "synthetic:deepseek-r1:q4_0"},
        {{"2 hosts of 2 cards, stages", kDevice, 2, 2, 24, 60},
         "synthetic:llama-3.1-70b:q6_k",
         true},
    };
    for (const Machines& each : cases) {
        SCOPED_TRACE(each.host.what);
        const int ranks = each.host.devices * each.host.hosts;
        engine::Job job = JobOf(each.model, each.stages ? 1 : ranks, each.stages ? ranks : 1);
        const int64_t most = job.kv_tokens;
        engine::Job least = job;
        engine::FitCache(least, *model::ReadHyper(**model_files::OpenModel(job.model)), 64, 0);
        const MemoryBytes free = FreeOf(each.host);
        const auto needs = NeedsHere(job, ranks, DevicesOf(each.host, each.is_auto), free);
        ASSERT_TRUE(needs.ok()) << needs.error().message;
        double share = 0;  // of the fullest memory with a part of the cache
        for (const auto& [memory, bytes] : *needs) {
            const double all = static_cast<double>(free.at(memory));
            const bool smallest = job.kv_tokens == least.kv_tokens;
            EXPECT_LE(static_cast<double>(bytes), (smallest ? 1 : 0.9) * all) << memory;
            EXPECT_TRUE(!smallest || each.host.device_gb == 24) << "a sequence of 8192 tokens";
            share = std::max(share, static_cast<double>(bytes) / all);
        }
        const bool gpu = each.host.kind != kHost;
        const double room = (gpu ? each.host.device_gb * each.host.devices : each.host.host_gb);
        EXPECT_TRUE(job.kv_tokens == most || share > 0.88 ||
                    CacheBytes(job, each.host) >= 0.35 * room * kGb)
            << job.kv_tokens << " of " << most << " tokens, the fullest memory at " << share;
        EXPECT_GE(job.kv_tokens, job.ctx);
        EXPECT_TRUE(!gpu || needs->at("") < 1e9 * each.host.devices) << "the ranks are on the GPUs";
    }
}

// Real ranks agree on the size that their machine's memory allows.
TEST(ThisHost, RealRanksHaveThisCache) {
    const char* const model = "synthetic:smollm2-135m:q4_0";
    const Host host{"here", MemoryKind::kHost, 2, 1, 0, 0};
    for (const auto& [tp, pp] : {std::pair(2, 1), {1, 2}}) {
        engine::Job job = JobOf(model, tp, pp);
        job.threads = 1;
        const auto needs = NeedsHere(job, 2, DevicesOf(host, false), {{"", uint64_t{1000} << 20}});
        ASSERT_TRUE(needs.ok()) << needs.error().message;
        support::Weft server({"serve", model, "--local", "2", "--tp", std::to_string(tp), "--pp",
                              std::to_string(pp), "-t", "1", "--port", "0", "--json"},
                             {"WEFT_MEMORY_MIB=1000"});
        ASSERT_TRUE(test::Until([&] { return server.Out().find('}') != std::string::npos; }))
            << server.Err();
        const auto said = nlohmann::json::parse(server.Out(), nullptr, false);
        EXPECT_EQ(said["ctx"], job.ctx);
        EXPECT_EQ(said["kv_tokens"], job.kv_tokens) << "--tp " << tp;
        EXPECT_GT(job.kv_tokens, job.ctx + 4096);
        ::kill(server.pid(), SIGTERM);
        EXPECT_EQ(server.Wait().status, 0);
    }
}

// If a model fits alone, it fits as one of several of which one is loaded.
TEST(ThisHost, NeedsAreThoseOfTheDevicesThatALoadChooses) {
    struct Machines {
        Host host;
        const char* model;
        const char* memory;  // of the weights
        double least_gb, most_gb;
        bool is_auto = true;
    };
    constexpr auto kDevice = MemoryKind::kDevice;
    for (const Machines& each : {
             Machines{
                 {"an old card", kDevice, 1, 1, 2, 64}, "synthetic:llama-3.1-8b:q4_0", "", 4.5, 57},
             Machines{{"a card", kDevice, 1, 1, 24, 64},
                      "synthetic:llama-3.1-8b:q4_0",
                      "vulkan:0",
                      4.5,
                      21.6},
             Machines{{"2 cards", kDevice, 2, 1, 24, 64},
                      "synthetic:llama-3.1-70b:q4_0",
                      "vulkan:1",
                      20,
                      21.7},
             Machines{{"2 cards", kDevice, 2, 1, 24, 64},
                      "synthetic:llama-3.1-70b:q4_0",
                      "vulkan:1",
                      20,
                      21.7,
                      false},
             Machines{{"2 small cards", kDevice, 2, 1, 16, 64},
                      "synthetic:llama-3.1-70b:q4_0",
                      "",
                      40,
                      58},
             Machines{{"a card and experts", kDevice, 1, 1, 12, 64},
                      "synthetic:qwen3-30b-a3b:q4_0",
                      "",
                      8,
                      20},
             Machines{{"unified", MemoryKind::kUnified, 1, 1, 96, 96},
                      "synthetic:llama-3.1-70b:q4_0",
                      "vulkan:0",
                      40,
                      87},
         }) {
        SCOPED_TRACE(each.host.what);
        engine::Job job = JobOf(each.model, each.host.devices, 1);
        const MemoryBytes free = FreeOf(each.host);
        const auto needs =
            NeedsHere(job, each.host.devices, DevicesOf(each.host, each.is_auto), free);
        ASSERT_TRUE(needs.ok()) << needs.error().message;
        for (const auto& [memory, bytes] : *needs) EXPECT_LE(bytes, free.at(memory)) << memory;
        const double gb = static_cast<double>(needs->at(each.memory)) / kGb;
        EXPECT_GE(gb, each.least_gb) << each.memory;
        EXPECT_LE(gb, each.most_gb) << each.memory;
    }
}

// Bytes of a rank's whole Program, as its device compiles it: on the card, and on the host.
std::pair<double, double> PlacedBytes(const engine::Job& job, int rank, int ranks) {
    const auto source = model_files::OpenModel(job.model);
    const auto hyper = model::ReadHyper(**source);
    const auto layout = model::MakeLayout(ranks, job.tp, job.pp, {}, 0);
    const auto shards = model::PlanShards(*hyper, **source, *layout);
    const backend::DescribedDevice card{MemoryKind::kDevice, 1, false}, host{};
    const program::Target target = backend::TargetOf(card);
    const auto program =
        model::BuildProgram(*hyper, shards->shards[static_cast<size_t>(rank)], **source,
                            engine::BuildOptionsOf(job, *layout, target));
    auto options = engine::CompileOptionsOf(job, *layout, *program, target, true);
    const auto host_ops = engine::HostOpsOf(job, *hyper);
    const auto placed =
        program::PlaceOps(*program, program::ChooseHostOps(*program, *host_ops), options.keep);
    EXPECT_TRUE(placed.ok()) << placed.error().message;
    options.keep.clear();
    const auto bytes = [&](const program::Program& side, const backend::DescribedDevice& device) {
        const auto use = backend::PlanMemory({side}, options, device);
        EXPECT_TRUE(use.ok()) << use.error().message;
        return static_cast<double>(use->weight_bytes + use->kv_bytes + use->arena_bytes);
    };
    return {bytes(placed->device, card), bytes(placed->host, host)};
}

// Needs are those of the ops that --experts and --gpu-layers give to the processor.
TEST(ThisHost, NeedsFollowTheFlagsThatPlaceOps) {
    struct Flags {
        const char* experts;
        int64_t gpu_layers = -1;
        int ranks = 1;
        bool stages = false;
    };
    for (const Flags& each :
         {Flags{"gpu"}, Flags{"cpu"}, Flags{"cpu:10"}, Flags{"0.25"}, Flags{"cpu", -1, 2},
          Flags{"cpu:30", -1, 2, true}, Flags{"", 20}, Flags{"cpu:40", 30, 2, true}}) {
        SCOPED_TRACE(fmt::format("--experts '{}' --gpu-layers {}", each.experts, each.gpu_layers));
        const Host host{"cards", MemoryKind::kDevice, each.ranks, 1, 80, 200};
        engine::Job job = JobOf("synthetic:qwen3-30b-a3b:q4_0", each.stages ? 1 : each.ranks,
                                each.stages ? each.ranks : 1, 8);
        job.experts = each.experts;
        job.gpu_layers = each.gpu_layers;
        const auto needs = NeedsHere(job, each.ranks, DevicesOf(host, false), FreeOf(host));
        ASSERT_TRUE(needs.ok()) << needs.error().message;
        double on_host = 0;
        for (int rank = 0; rank < each.ranks; ++rank) {
            const auto [card, beside] = PlacedBytes(job, rank, each.ranks);
            on_host += beside + static_cast<double>(engine::kRankBytes);
            const auto planned = static_cast<double>(needs->at(fmt::format("vulkan:{}", rank)));
            // (The plan keeps the activations of all layers of a stage on the card.)
            EXPECT_GT(planned / card, 0.97) << "rank " << rank;
            EXPECT_LT(planned / card, 1.05) << "rank " << rank;
        }
        EXPECT_NEAR(static_cast<double>(needs->at("")) / on_host, 1, 0.03);
    }
}

// Only --device auto moves experts that no flag places.
TEST(ThisHost, ANamedDeviceKeepsItsExperts) {
    const Host host{"a card", MemoryKind::kDevice, 1, 1, 12, 64};
    for (const bool is_auto : {false, true}) {
        engine::Job job = JobOf("synthetic:qwen3-30b-a3b:q4_0", 1, 1);
        const auto needs = NeedsHere(job, 1, DevicesOf(host, is_auto), FreeOf(host));
        ASSERT_TRUE(needs.ok()) << needs.error().message;
        EXPECT_EQ(static_cast<double>(needs->at("vulkan:0")) > 12 * kGb, !is_auto);
    }
    engine::Job dense = JobOf("synthetic:llama-3.1-8b:q4_0", 1, 1);
    dense.experts = "cpu";
    const auto refused = NeedsHere(dense, 1, DevicesOf(host, false), FreeOf(host));
    ASSERT_FALSE(refused.ok());
    EXPECT_NE(refused.error().message.find("the model has no experts"), std::string::npos);
}

// Memory beside the weights counts for each local rank.
TEST(ThisHost, EachLocalRankKeepsPages) {
    const Host host{"a host", MemoryKind::kHost, 2, 1, 0, 60};
    const auto need = [&](int64_t ram) {
        engine::Job job = JobOf("synthetic:smollm2-135m:q8_0", 2, 1, 1);
        job.cache_ram = ram;
        const auto needs = NeedsHere(job, 2, DevicesOf(host, false), FreeOf(host));
        EXPECT_TRUE(needs.ok());
        return needs.ok() ? needs->at("") : 0;
    };
    EXPECT_EQ(need(int64_t{1} << 30), need(0) + (uint64_t{2} << 30));
}

}  // namespace
}  // namespace weft::plan
