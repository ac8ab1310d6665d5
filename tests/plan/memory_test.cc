// Memory: the needs in a plan equal those that the ranks report, to the byte, and a plan fits
// exactly if the ranks' own memory check passes.
#include "plan/memory.h"

#include <gtest/gtest.h>

#include <fstream>

#include "backend/device.h"
#include "backend/memory_plan.h"
#include "engine/rank/device_options.h"
#include "engine/rank/rank_options.h"
#include "engine/start/layout_choice.h"
#include "model/builder.h"
#include "plan/predict.h"
#include "plan/shapes.h"
#include "support/pool_device.h"
#include "support/temp_dir.h"

namespace weft::plan {
namespace {

using backend::MemoryKind;
using support::PoolDevice;

Machine Box(MemoryKind pool, int devices) {
    Machine machine;
    machine.name = "box";
    machine.devices = devices;
    machine.pool = pool;
    machine.threads = 2;
    machine.memory = machine.bandwidth = machine.compute = {1e12, Mark::kMeasured, "here"};
    machine.within = LinkTier{devices, {1e10, Mark::kMeasured, ""}, {1e-6, Mark::kMeasured, ""}};
    return machine;
}

ClusterSpec Boxes(MemoryKind pool, int hosts, int devices) {
    ClusterSpec cluster;
    cluster.words = "boxes";
    cluster.hosts.assign(static_cast<size_t>(hosts), Box(pool, devices));
    cluster.wire.bandwidth = {1e9, Mark::kMeasured, ""};
    cluster.wire.latency = {1e-5, Mark::kMeasured, ""};
    return cluster;
}

std::vector<model::Layout> Layouts(int64_t layers) {
    const double most = static_cast<double>(layers) - 1;
    return {{1, 1, {}, {}, 0},        {2, 1, {}, {}, 0},           {1, 2, {}, {}, 0},
            {2, 2, {}, {}, 0},        {2, 1, {3, 1}, {}, 0},       {1, 2, {}, {1, most}, 0},
            {3, 1, {2, 1, 1}, {}, 0}, {2, 2, {1, 2}, {most, 1}, 0}};
}

// The memory that the executable of a rank of this layout uses, made as engine::Rank makes it.
Result<backend::MemoryUse> RealUse(const ModelWalk& walk, const model::Shard& shard,
                                   const engine::Job& job, bool one_host, backend::Device& device) {
    const auto& info = device.info();
    const auto build = engine::BuildOptionsOf(job, shard.layout, info.target);
    WEFT_ASSIGN(const program::Program list,
                model::BuildProgram(walk.hyper(), shard, walk.source(), build));
    const auto compile = engine::CompileOptionsOf(job, shard.layout, list, info.target, one_host);
    WEFT_ASSIGN(const auto executable, device.Compile({list}, compile));
    return executable->memory();
}

// Over models (dense, experts, windows, latent attention), layouts, KV types and contexts: the
// processor's executables, made for all layers.
TEST(Memory, IsThatOfExecutables) {
    backend::DeviceOptions options;
    options.threads = 2;
    const auto device = backend::OpenDevice("cpu", options);
    ASSERT_TRUE(device.ok()) << device.error().message;
    const test::TempDir dir;
    std::ofstream(dir / "config.json")
        << R"({"model_type": "qwen3_5_text", "hidden_size": 512, "num_hidden_layers": 6,
               "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
               "linear_num_key_heads": 2, "linear_num_value_heads": 6, "linear_key_head_dim": 32,
               "linear_value_head_dim": 32, "intermediate_size": 1024, "vocab_size": 1000})";
    const std::string recurrent = dir / "config.json";
    const std::tuple<std::string, DType, Workload> cases[] = {
        {recurrent, DType::kF16, {.context = 300, .batch = 5}},
        {"synthetic:smollm2-135m:q8_0", DType::kF16, {.context = 100, .batch = 3}},
        {"synthetic:smollm2-135m:q4_0:layers=7", DType::kQ8_0, {.context = 4096, .batch = 1}},
        {"synthetic:qwen3-0.6b:q4_k:layers=5", DType::kF32, {.context = 640, .batch = 40}},
        {"synthetic:qwen3-30b-a3b:q4_0:layers=6", DType::kF16, {.context = 512, .chunk = 64}},
        {"synthetic:deepseek-r1:q4_0:layers=6", DType::kF16, {.context = 64, .batch = 2}},
        {"gemma-3-270m:q8_0", DType::kF16, {.context = 2000}},
        {"gpt-oss-20b", DType::kF16, {.context = 2000, .batch = 2}}};
    int compared = 0;
    for (const auto& [model, kv, load] : cases) {
        const auto shape = OpenWalk(model, kv);
        if (!shape.ok()) {
            ADD_FAILURE() << model << ": " << shape.error().message;
            continue;
        }
        for (const model::Layout& layout : Layouts(shape->walk.hyper().layers)) {
            const auto plan = model::PlanShards(shape->walk.hyper(), *shape->source, layout);
            if (!plan.ok()) continue;
            for (const bool one_host : {true, false}) {
                const engine::Job job = load.AsJob(kv);
                MemoryPlanner planner(shape->walk, job);
                for (const model::Shard& shard : plan->shards) {
                    const auto real = RealUse(shape->walk, shard, job, one_host, **device);
                    ASSERT_TRUE(real.ok()) << model << ": " << real.error().message;
                    const auto use = planner.Of(shard, Box(MemoryKind::kHost, 4), one_host);
                    ASSERT_TRUE(use.ok()) << model << ": " << use.error().message;
                    const std::string what = fmt::format("{} tp{} pp{} rank {}", model, layout.tp,
                                                         layout.pp, shard.rank);
                    EXPECT_EQ(use->weights, real->weight_bytes) << what;
                    EXPECT_EQ(use->cache, real->kv_bytes) << what;
                    EXPECT_EQ(use->work, real->arena_bytes) << what;
                    ++compared;
                }
            }
        }
    }
    EXPECT_GT(compared, 150);
}

// The memory of all layers is computed from a few of them, on a GPU as well.
TEST(Memory, FewLayersStandForAll) {
    for (const char* model :
         {"gemma-3-12b:q4_k_m", "deepseek-v2-lite:q8_0", "gpt-oss-20b", "qwen3-30b-a3b:q4_k_m",
          "llama-4-scout:q4_k_m", "qwen3-next:q4_k_m", "qwen3.6-27b:q4_k_m"}) {
        const auto shape = OpenWalk(model);
        ASSERT_TRUE(shape.ok()) << shape.error().message;
        const engine::Job job = Workload{.context = 1024, .batch = 2}.AsJob(DType::kF16);
        for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kDevice}) {
            for (const model::Layout& layout :
                 {model::Layout{1, 1, {}, {}, 0}, model::Layout{2, 2, {}, {}, 0}}) {
                const auto plan = model::PlanShards(shape->walk.hyper(), *shape->source, layout);
                ASSERT_TRUE(plan.ok()) << plan.error().message;
                MemoryPlanner planner(shape->walk, job);
                const model::Shard& shard = plan->shards.back();
                const auto use = planner.Of(shard, Box(kind, 1), false);
                ASSERT_TRUE(use.ok()) << use.error().message;
                const backend::DescribedDevice device{kind, 2, false};
                const auto target = backend::TargetOf(device);
                const auto list = model::BuildProgram(shape->walk.hyper(), shard, *shape->source,
                                                      engine::BuildOptionsOf(job, layout, target));
                ASSERT_TRUE(list.ok()) << list.error().message;
                const auto compile = engine::CompileOptionsOf(job, layout, *list, target, false);
                const auto whole = backend::PlanMemory({*list}, compile, device);
                ASSERT_TRUE(whole.ok()) << whole.error().message;
                EXPECT_EQ(use->weights, whole->weight_bytes) << model << layout.tp;
                EXPECT_EQ(use->cache, whole->kv_bytes) << model << layout.tp;
                EXPECT_EQ(use->work, whole->arena_bytes) << model << layout.tp;
            }
        }
    }
}

// Ranks with as many heads, but other numbers of KV heads in windowed layers or of recurrent heads,
// have the memory of their own Programs.
TEST(Memory, RanksOfUnevenCutsAreTheirOwn) {
    int differ = 0;
    for (const char* model : {"mimo-v2-flash", "qwen3-next:q4_k_m", "gemma-4-31b:q4_k_m"}) {
        const auto shape = OpenWalk(model);
        ASSERT_TRUE(shape.ok()) << shape.error().message;
        const Workload load{.context = 8192, .batch = 8};
        for (const int tp : {3, 5}) {
            const model::Layout layout{tp, 1, {}, {}, 0};
            const auto cluster =
                Library::Open()->ParseCluster(fmt::format("{}xstrix-halo,roce", tp));
            const auto p = Predict(shape->walk, *cluster, layout, load);
            if (!p.ok()) continue;
            const auto plan = model::PlanShards(shape->walk.hyper(), *shape->source, layout);
            for (const model::Shard& shard : plan->shards) {
                MemoryPlanner alone(shape->walk, load.AsJob(shape->walk.kv_dtype()));
                const auto own = alone.Of(shard, cluster->hosts[0], false);
                ASSERT_TRUE(own.ok()) << own.error().message;
                const MemoryUse& found = p->memory[static_cast<size_t>(shard.rank)];
                EXPECT_EQ(found.total(), own->total()) << model << tp << " rank " << shard.rank;
                differ += found.total() != p->memory[0].total();
            }
        }
    }
    EXPECT_GT(differ, 4);
}

// A layout's memory does not depend on the layouts that were planned before it.
TEST(Memory, IsTheSameInASearch) {
    const auto shape = OpenWalk("synthetic:qwen3-0.6b:q4_0", DType::kF16);
    ASSERT_TRUE(shape.ok()) << shape.error().message;
    const engine::Job job = Workload{.context = 4096, .chunk = 2048}.AsJob(DType::kF16);
    for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kDevice, MemoryKind::kUnified}) {
        MemoryPlanner search(shape->walk, job);
        int differ = 0;
        for (const model::Layout& layout : Layouts(shape->walk.hyper().layers)) {
            const auto plan = model::PlanShards(shape->walk.hyper(), *shape->source, layout);
            if (!plan.ok()) continue;
            uint64_t work[2] = {};
            for (const bool one_host : {true, false}) {
                MemoryPlanner alone(shape->walk, job);
                const auto own = alone.Of(plan->shards[0], Box(kind, 4), one_host);
                const auto found = search.Of(plan->shards[0], Box(kind, 4), one_host);
                ASSERT_TRUE(own.ok() && found.ok());
                EXPECT_EQ(own->total(), found->total()) << layout.tp << "x" << layout.pp;
                work[one_host ? 1 : 0] = own->work;
            }
            differ += work[0] != work[1];
        }
        EXPECT_GT(differ, 0) << "hosts matter";
    }
}

TEST(Memory, TypicalLayersHaveEachNeighbourhood) {
    const std::vector<int> alike(30, 0);
    EXPECT_EQ(TypicalLayers(alike), 6);
    EXPECT_EQ(TypicalLayers(std::vector<int>(29, 0)), 5);
    EXPECT_EQ(TypicalLayers(std::vector<int>{0}), 1);
    EXPECT_EQ(TypicalLayers(std::vector<int>{0, 1}), 2);
    std::vector<int> dense_first(61, 1);
    dense_first[0] = dense_first[1] = dense_first[2] = 0;
    EXPECT_EQ(TypicalLayers(dense_first), 9);
    std::vector<int> last_apart(20, 0);
    last_apart.back() = 1;
    EXPECT_EQ(TypicalLayers(last_apart), 20) << "no shorter list ends so";
}

// At the border: with one byte less a plan refuses, and so do the ranks that would run it, on
// memory that a host's ranks share, and on each rank's own.
TEST(Memory, APlanAdmitsWhatRanksAdmit) {
    const auto shape = OpenWalk("synthetic:smollm2-135m:q8_0");
    ASSERT_TRUE(shape.ok());
    for (const MemoryKind kind : {MemoryKind::kHost, MemoryKind::kUnified, MemoryKind::kDevice}) {
        for (const auto& [hosts, devices] : {std::pair(1, 2), std::pair(2, 1), std::pair(2, 2)}) {
            ClusterSpec cluster = Boxes(kind, hosts, devices);
            model::Layout layout;
            layout.tp = devices;
            layout.pp = hosts;
            const auto needs = [&] {
                const auto p = Predict(shape->walk, cluster, layout, {.context = 1024});
                EXPECT_TRUE(p.ok()) << p.error().message;
                return *p;
            };
            const Prediction roomy = needs();
            ASSERT_TRUE(roomy.fits());
            // The largest need: of a host's ranks together (shared memory), or of one rank.
            const bool shared = kind != MemoryKind::kDevice;
            uint64_t fullest = 0;
            for (int host = 0; host < hosts; ++host) {
                uint64_t sum = 0;
                for (int d = 0; d < devices; ++d) {
                    const MemoryUse& use = roomy.memory[static_cast<size_t>(host * devices + d)];
                    const uint64_t own = use.weights + use.cache + use.work + use.process;
                    sum = shared ? sum + own : std::max(sum, own);
                }
                fullest = std::max(fullest, sum);
            }
            for (const uint64_t room : {fullest, fullest - 1}) {
                const double each = static_cast<double>(room) / (shared ? devices : 1);
                for (Machine& machine : cluster.hosts) machine.memory.value = each;
                const Prediction p = needs();
                // The same question by ranks.
                std::vector<cluster::RankNeeds> ranks;
                for (const MemoryUse& use : p.memory) {
                    PoolDevice device({kind, room, room, 0}, "vulkan:0");
                    const uint64_t host =
                        engine::kRankBytes + engine::WindowsBytes(layout, use.rank);
                    auto need =
                        engine::MemoryNeeds(device, use.weights + use.cache + use.work, host);
                    if (!shared) need.back().memory += fmt::format(" {}", use.rank);
                    ranks.push_back({use.rank / devices, std::move(need)});
                }
                const bool admitted = !cluster::FindLack(ranks).has_value();
                EXPECT_EQ(p.fits(), admitted) << static_cast<int>(kind) << hosts << devices;
                EXPECT_EQ(p.fits(), room == fullest) << static_cast<int>(kind) << hosts << devices;
            }
        }
    }
}

TEST(Memory, ACacheThatNoHeadTakesIsRefused) {
    const auto source = MakeShape(
        R"({"model_type": "qwen3", "hidden_size": 640, "num_hidden_layers": 2,
            "num_attention_heads": 8, "num_key_value_heads": 8, "intermediate_size": 1024,
            "vocab_size": 1024, "head_dim": 80})",
        "small", "q8_0");
    ASSERT_TRUE(source.ok()) << source.error().message;
    for (const auto& [kv, fits] : {std::pair(DType::kF16, true), std::pair(DType::kQ8_0, false)}) {
        const auto walk = ModelWalk::Make(**source, kv);
        ASSERT_TRUE(walk.ok()) << walk.error().message;
        const ClusterSpec one = Boxes(MemoryKind::kHost, 1, 1);
        const auto p = Predict(*walk, one, {}, {});
        EXPECT_EQ(p.ok(), fits);
        if (fits || p.ok()) continue;
        EXPECT_NE(p.error().message.find("needs heads of a multiple of 32"), std::string::npos);
    }
}

}  // namespace
}  // namespace weft::plan
