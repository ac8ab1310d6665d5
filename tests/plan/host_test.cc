// Hosts of GPUs whose processor computes the experts that do not fit into the GPUs.
#include "plan/host_part.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "engine/rank/host_ops.h"
#include "plan/launch_command.h"
#include "plan/names.h"
#include "plan/predict.h"
#include "plan/search.h"
#include "plan/shapes.h"
#include "plan/weft_rates.h"
#include "support/run_weft.h"

namespace weft::plan {
namespace {

constexpr const char* kMixtureOfExperts = "gpt-oss-120b";

// A machine file with a GPU of 24 GB and this member "host".
Result<Machine> MachineWithHost(const std::string& host, const std::string& pool = "device") {
    return ParseMachine(R"({"memory": "24 GB, guessed: a test", "pool": ")" + pool +
                            R"(", "bandwidth": "900 GB/s, guessed: a test",
        "compute": "70 TFLOP/s, guessed: a test", "host": )" +
                            host + "}",
                        "box", "box.json");
}

struct Planned {
    std::unique_ptr<model_files::ModelSource> source;
    ModelWalk walk;
    ClusterSpec cluster;
    Prediction best;
};

Planned BestOn(const std::string& model, ClusterSpec cluster, const Workload& load = {}) {
    const Library library = *Library::Open();
    auto source = OpenShape(model);
    EXPECT_TRUE(source.ok()) << source.error().message;
    ModelWalk walk = *ModelWalk::Make(**source, DType::kF16);
    auto plan = Search(walk, cluster, library, load);
    EXPECT_TRUE(plan.ok()) << plan.error().message;
    return {*std::move(source), std::move(walk), std::move(cluster), plan->layouts[0]};
}

Planned BestOn(const std::string& model, const std::string& machines, const Workload& load = {}) {
    auto cluster = Library::Open()->ParseCluster(machines);
    EXPECT_TRUE(cluster.ok()) << cluster.error().message;
    return BestOn(model, *std::move(cluster), load);
}

ClusterSpec ClusterOf(const std::string& host) {
    auto machine = MachineWithHost(host);
    EXPECT_TRUE(machine.ok()) << machine.error().message;
    ClusterSpec cluster;
    cluster.hosts = {*std::move(machine)};
    cluster.wire = *Library::Open()->FindWire("10gbe");
    return cluster;
}

TEST(Host, MemoryStandsBehindItsGpus) {
    const Library library = *Library::Open();
    for (const char* words : {"2xrtx-3090+64gb", "2 x RTX 3090 + 64 GB", "2xrtx-3090+64GB,10gbe",
                              "2xrtx-3090+0.064tb"}) {
        const auto cluster = library.ParseCluster(words);
        ASSERT_TRUE(cluster.ok()) << words << ": " << cluster.error().message;
        ASSERT_EQ(cluster->hosts.size(), 2u);
        for (const Machine& machine : cluster->hosts) {
            ASSERT_TRUE(machine.host) << words;
            EXPECT_NEAR(machine.host->memory.value, 60e9, 1) << words;
        }
        EXPECT_TRUE(library.ParseCluster(cluster->HostWords()).ok()) << cluster->HostWords();
    }
    const auto unlike = library.ParseCluster("strix-halo+rtx-3090:2+64gib-ddr4+rtx-4090,roce");
    ASSERT_TRUE(unlike.ok()) << unlike.error().message;
    EXPECT_FALSE(unlike->hosts[0].host);
    EXPECT_FALSE(unlike->hosts[2].host);
    EXPECT_EQ(unlike->hosts[1].word, "rtx-3090:2+64gib-ddr4");
    EXPECT_NEAR(unlike->hosts[1].host->bandwidth.value, 51.2e9 * kSustained, 1);
    EXPECT_EQ(unlike->hosts[1].devices, 2);
    for (const char* wrong : {"64gb", "strix-halo+64gb", "rtx-3090+64gb+32gb", "rtx-3090+64mb"}) {
        EXPECT_FALSE(library.ParseCluster(wrong).ok()) << wrong;
    }
}

TEST(Host, FilesDescribeIt) {
    const auto box = MachineWithHost(
        R"({"memory": "100 GB, measured: a test", "bandwidth": "50 GB/s, measured: a test",
            "threads": 6, "drive": "5 GB/s, data sheet: a test"})");
    ASSERT_TRUE(box.ok()) << box.error().message;
    EXPECT_EQ(box->host->bandwidth.mark, Mark::kMeasured);
    EXPECT_EQ(box->host->compute.mark, Mark::kGuessed);
    EXPECT_NEAR(box->host->compute.value, 6 * 128e9, 1);
    const auto again = ParseMachine(MachineFileText(*box), "box", "box.json");
    ASSERT_TRUE(again.ok()) << again.error().message;
    EXPECT_EQ(again->host->drive->value, 5e9);
    EXPECT_EQ(again->host->threads, 6);
    EXPECT_FALSE(MachineWithHost(R"({"threads": 6})").ok());
    EXPECT_FALSE(MachineWithHost(R"({"memory": "100 GB, guessed: a test"})", "unified").ok());
}

// 36 layers of 128 experts, each of 3 x 2880 x 2880 weights in MXFP4; 4 experts a token.
TEST(Host, ComputesTheExpertsOfTheFewestLayers) {
    const Workload load{4096, 1, 512, 512};
    const Planned planned = BestOn(kMixtureOfExperts, "rtx-3090+128gb", load);
    const Prediction& p = planned.best;
    ASSERT_TRUE(p.fits());
    const MemoryUse& use = p.memory[0];
    EXPECT_EQ(use.host.of_layers, 36);
    const double expert = 3 * 2880.0 * 2880 * 17 / 32, layer = 128 * expert;
    const auto layers = static_cast<double>(use.host.layers);
    EXPECT_NEAR(static_cast<double>(use.host.weights) / (layers * layer), 1, 0.1);
    EXPECT_LE(use.needed, use.room);
    EXPECT_GT(use.needed + 0.97 * layer, use.room);

    const Machine& machine = planned.cluster.hosts[0];
    const Machine processor = ProcessorOf(*machine.host, 1);
    const double rate = processor.sustained_bytes_per_s() * RatesOfExperts(processor).weights;
    EXPECT_NEAR(p.token.host / (layers * 4 * expert / rate), 1.05, 0.1);
    EXPECT_NEAR(p.token.hand_over, layers * 15e-6, 1e-9);
    EXPECT_EQ(p.token.limit().first, std::string("processor"));
    EXPECT_GT(p.prompt.host, 10 * p.token.host);
    EXPECT_GT(p.prompt.hand_over, p.token.hand_over);
    const RunRequest request{"model.gguf", "", "f16", {}, false};
    const std::string words = LaunchCommand(request, planned.cluster, p, load);
    EXPECT_NE(words.find(" --experts auto"), std::string::npos) << words;
}

// The printed flag leaves the experts to the processor that were planned there: it counts the first
// layers, of which some have none.
TEST(Host, ThePrintedFlagIsThePlacement) {
    for (const char* model : {"gpt-oss-120b", "glm-4.5-air:q4_k_m", "deepseek-v2:q4_k_m"}) {
        const support::Ran ran = support::RunWeft(
            {"plan", model, "--machines", "rtx-3090+256gb", "--json", "--context", "2048"});
        ASSERT_EQ(ran.status, 0) << ran.err;
        const nlohmann::json best = ran.Json()["layouts"][0];
        const nlohmann::json placed = best["experts_on_processor"];
        engine::Job job = Workload{.context = 2048}.AsJob(DType::kF16);
        job.experts = placed["flag"].get<std::string>().substr(std::string("--experts ").size());
        const OpenedShape shape = *OpenWalk(model);
        const auto host_ops = engine::HostOpsOf(job, shape.walk.hyper());
        ASSERT_TRUE(host_ops.ok()) << host_ops.error().message;
        const auto shards = model::PlanShards(shape.walk.hyper(), *shape.source, {});
        MemoryPlanner planner(shape.walk, job);
        const auto cluster = Library::Open()->ParseCluster("rtx-3090+256gb");
        const auto use = planner.Of(shards->shards[0], cluster->hosts[0], true, *host_ops);
        ASSERT_TRUE(use.ok()) << use.error().message;
        EXPECT_EQ(use->host.layers, placed["layers"]) << model << " " << placed["flag"];
        EXPECT_LE(use->total(), use->room) << model;
    }
}

// Published runs of llama.cpp and ik_llama.cpp (docs/plan.md): the GPU, the data-sheet bandwidth of
// the memory channels, and tokens/s. The errors include other numbers of layers on the processor.
TEST(Host, AgreesWithPublishedRuns) {
    struct Run {
        const char* gpu;
        double bytes_per_s;
        int threads;
        const char* model;
        double tok_s;
    };
    constexpr Run kRuns[] = {{"rtx-3090", 80e9, 8, "gpt-oss-120b", 33.1},
                             {"rx-6900-xt", 89.6e9, 12, "gpt-oss-120b", 19},
                             {"rtx-2080", 102.4e9, 10, "qwen3-30b-a3b:q4_k_m", 36.7},
                             {"rtx-2080", 102.4e9, 10, "gpt-oss-20b", 36.4},
                             {"rtx-4080", 204.8e9, 32, "gpt-oss-120b", 25}};
    std::vector<double> errors;
    for (const Run& run : kRuns) {
        auto cluster = Library::Open()->ParseCluster(std::string(run.gpu) + "+128gb");
        ASSERT_TRUE(cluster.ok());
        HostPart& host = *cluster->hosts[0].host;
        host.bandwidth = {run.bytes_per_s, Mark::kDataSheet, "a test"};
        host.threads = run.threads;
        const Prediction p = BestOn(run.model, *cluster, {4096, 1, 2048, 512}).best;
        const double ratio = p.tok_s / run.tok_s;
        EXPECT_LT(ratio, 1.6) << run.gpu << " " << run.model;
        EXPECT_GT(ratio, 1 / 1.6) << run.gpu << " " << run.model;
        EXPECT_LT(std::abs(p.tok_s - run.tok_s), 2 * p.spread) << run.model;
        errors.push_back(std::abs(std::log(ratio)));
    }
    std::ranges::sort(errors);
    EXPECT_LT(errors[2], 0.3);
}

// A box with memory for experts is offered where it is the cheapest that is fast enough.
TEST(Host, IsOfferedWithMemoryForExperts) {
    const support::Words asked{"plan",       "gpt-oss-120b", "--want", "15tok/s",
                               "--machines", "rtx-3090",     "--json"};
    const support::Ran ran = support::RunWeft(asked);
    ASSERT_EQ(ran.status, 0) << ran.err;
    const std::string first = ran.Json()["enough"][0]["machines"];
    EXPECT_EQ(first, "rtx-3090+64gb") << ran.out;
    const support::Ran dense = support::RunWeft(
        {"plan", "llama-3.1-70b:q4_0", "--want", "5tok/s", "--machines", "rtx-3090", "--json"});
    ASSERT_EQ(dense.status, 0) << dense.err;
    EXPECT_EQ(dense.out.find("gb\""), std::string::npos) << "no experts, no use of memory";
}

TEST(Host, ChangesNothingIfTheModelFits) {
    for (const char* model : {"gpt-oss-20b", "llama-3.1-8b:q4_0"}) {
        const Prediction with = BestOn(model, "rtx-3090+128gb").best;
        const Prediction without = BestOn(model, "rtx-3090").best;
        EXPECT_EQ(with.UseOfHost(), nullptr);
        EXPECT_EQ(with.tok_s, without.tok_s);
        EXPECT_EQ(with.ttft_s, without.ttft_s);
        EXPECT_EQ(with.worst().needed, without.worst().needed);
    }
    EXPECT_FALSE(BestOn("llama-3.1-70b:q4_0", "rtx-3090+128gb").best.fits());
}

TEST(Host, MemoryIsChecked) {
    const Prediction p = BestOn(kMixtureOfExperts, "rtx-3090+32gb").best;
    EXPECT_FALSE(p.fits());
    const auto [needed, room] = p.worst().tightest();
    EXPECT_EQ(room, 30e9);
    EXPECT_GT(needed, room);
}

// The GPUs of a host divide its memory and bandwidth, and each holds more layers' experts.
TEST(Host, IsSharedByItsGpus) {
    const Planned two = BestOn(kMixtureOfExperts, "rtx-3090:2+128gb");
    const Prediction one = BestOn(kMixtureOfExperts, "rtx-3090+128gb").best;
    ASSERT_TRUE(two.best.fits());
    ASSERT_EQ(two.best.layout.size(), 2);
    double host = 0;
    for (const MemoryUse& use : two.best.memory) host += use.host.total();
    EXPECT_DOUBLE_EQ(two.best.memory[0].host.needed, host);
    EXPECT_LT(host, one.memory[0].host.needed - 15e9);
    EXPECT_LT(two.best.token.host, 0.6 * one.token.host);

    model::Layout layout;
    layout.tp = 2;
    const Workload load{};
    const Prediction tensor = *Predict(two.walk, two.cluster, layout, load);
    const double of_rank = static_cast<double>(tensor.memory[0].host.weights);
    const double of_one = static_cast<double>(one.memory[0].host.weights);
    // Each rank has half of each expert, at half of the bandwidth.
    EXPECT_NEAR(tensor.token.host / one.token.host, 2 * of_rank / of_one, 0.1);
}

TEST(Host, DriveHoldsWhatItsMemoryDoesNot) {
    const std::string host = R"({"memory": "30 GB, guessed: a test", "bandwidth":
        "60 GB/s, measured: a test", "drive": "5 GB/s, measured: a test"})";
    const Workload load{};
    const Planned planned = BestOn(kMixtureOfExperts, ClusterOf(host), load);
    const Prediction& p = planned.best;
    ASSERT_TRUE(p.fits());
    const HostUse& use = p.memory[0].host;
    EXPECT_EQ(use.layers, 36);
    EXPECT_NEAR(use.needed, 30e9, 1);
    const double expert = 3 * 2880.0 * 2880 * 17 / 32, read = 36 * 4 * expert * use.on_drive;
    EXPECT_NEAR(p.token.drive / (read / 5e9), 1, 0.03);
    const RunRequest request{"model.gguf", "", "f16", {}, false};
    const std::string words = LaunchCommand(request, planned.cluster, p, load);
    EXPECT_NE(words.find(" --experts cpu --weights-on-drive"), std::string::npos) << words;
}

// Ranks that read at the same time never get more than the drive's rate together.
TEST(Host, ItsRanksShareTheDrive) {
    ClusterSpec cluster = ClusterOf(R"({"memory": "8 GB, guessed: a test", "bandwidth":
        "60 GB/s, measured: a test", "drive": "5 GB/s, measured: a test"})");
    cluster.hosts[0] = *WithDevices(cluster.hosts[0], 2);
    const auto source = OpenShape(kMixtureOfExperts);
    const ModelWalk walk = *ModelWalk::Make(**source, DType::kF16);
    const double expert = 3 * 2880.0 * 2880 * 17 / 32;
    for (const auto& [tp, pp] : {std::pair(1, 1), {2, 1}, {1, 2}}) {
        model::Layout layout;
        layout.tp = tp;
        layout.pp = pp;
        const auto p = Predict(walk, cluster, layout, {});
        ASSERT_TRUE(p.ok()) << p.error().message;
        double share = 0;
        for (const MemoryUse& use : p->memory) share += use.host.on_drive / (tp * pp);
        EXPECT_GT(share, 0.3) << p->name;
        EXPECT_NEAR(p->token.drive * 5e9 / (36 * 4 * expert * share), 1, 0.05) << p->name;
    }
}

// The flags are the job's: all ranks leave all experts to the host, or none reads from the drive.
TEST(Host, TheDriveIsForAllRanksOrNone) {
    const auto source = OpenShape("qwen3-235b-a22b:q4_k_m");
    const ModelWalk walk = *ModelWalk::Make(**source, DType::kF16);
    model::Layout layout;
    layout.tp = 8;
    for (const char* memory : {"60 GB", "12 GB"}) {
        ClusterSpec cluster =
            ClusterOf(fmt::format(R"({{"memory": "{}, guessed: a test", "bandwidth":
            "60 GB/s, measured: a test", "drive": "5 GB/s, measured: a test"}})",
                                  memory));
        cluster.hosts[0] = *WithDevices(cluster.hosts[0], 8);
        const auto p = Predict(walk, cluster, layout, {});
        ASSERT_TRUE(p.ok()) << p.error().message;
        const bool drive = std::string_view(memory) == "12 GB";
        for (const MemoryUse& use : p->memory) {
            EXPECT_EQ(use.host.on_drive > 0, drive) << memory << ", rank " << use.rank;
            EXPECT_TRUE(!drive || use.host.layers == use.host.of_layers) << use.rank;
        }
        EXPECT_TRUE(drive || p->fits()) << memory;
        const std::string words = LaunchCommand({"m.gguf", "", "f16", {}, false}, cluster, *p, {});
        EXPECT_EQ(words.find("--weights-on-drive") != words.npos, drive) << words;
    }
}

TEST(Host, CommandSaysWhereExpertsAre) {
    using support::operator+;
    const support::Words asked{"plan", "gpt-oss-120b", "--machines", "rtx-3090+128gb"};
    const support::Ran table = support::RunWeft(asked);
    ASSERT_EQ(table.status, 0) << table.err;
    for (const char* words : {"experts: those of ", " of 36 layers on the processor", "processor ",
                              "run: weft run", "--experts auto", "DDR5-5000"}) {
        EXPECT_NE(table.out.find(words), std::string::npos) << words << "\n" << table.out;
    }
    const support::Ran ran = support::RunWeft(asked + support::Words{"--json"});
    ASSERT_EQ(ran.status, 0) << ran.err;
    const nlohmann::json best = ran.Json()["layouts"][0];
    EXPECT_EQ(best["fits"], true);
    EXPECT_EQ(best["experts_on_processor"]["of_layers"], 36);
    EXPECT_EQ(best["experts_on_processor"]["drive_share"], 0);
    EXPECT_GT(best["memory"][0]["host_bytes"].get<double>(), 30e9);
}

TEST(Host, NoteNamesGuesses) {
    const auto guessed = Library::Open()->ParseCluster("2xrtx-3090+64gb-ddr4");
    EXPECT_NE(HostNote(*guessed).find("DDR4-3200"), std::string::npos) << HostNote(*guessed);
    const ClusterSpec known = ClusterOf(
        R"({"memory": "100 GB, measured: a test", "bandwidth": "50 GB/s, measured: a test",
            "compute": "1 TFLOP/s, measured: a test"})");
    EXPECT_EQ(HostNote(known), "");
}

}  // namespace
}  // namespace weft::plan
