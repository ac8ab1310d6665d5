// The cost of faults: the doctor's figures equal those of `weft plan`, faster links never cost
// more, and an unknown cost has no figure.
#include "doctor/cost_model.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "doctor/check.h"
#include "doctor/hosts.h"
#include "doctor/report.h"
#include "doctor/save.h"
#include "doctor/text.h"

namespace weft::doctor {
namespace {

using test_hosts::Card;
using test_hosts::Distribution;
using test_hosts::Host;
using test_hosts::PcieLink;

enum class Gpu { kNone, kStrixHalo };

constexpr const char* kCard = "0000:c1:00.0";

Card ConnectX5(PcieLink now) {
    Card card;
    card.address = kCard;
    card.slot = "0000:00:03.2";
    card.type = 0x0200;
    card.device = 0x1019;
    card.kind = "Ethernet controller";
    card.name = "Mellanox Technologies MT28800 Family [ConnectX-5 Ex]";
    card.driver = "mlx5_core";
    card.most = {16, 16};
    card.slot_most = {16, 16};
    card.now = now;
    return card;
}

void AddGpu(Host& host) {
    const std::string pci = "sys/bus/pci/devices/0000:c5:00.0/";
    host.Set(pci + "class", "0x030000\n");
    host.Set(pci + "vendor", "0x1002\n");
    host.Set(pci + "device", "0x1586\n");
    const std::string drm = "sys/class/drm/card0/device/";
    host.Set(drm + "vendor", "0x1002\n");
    host.Set(drm + "device", "0x1586\n");
    host.Set(drm + "mem_info_vram_total", "536870912\n");
    host.Set(drm + "mem_info_gtt_total", "123480309760\n");
    host.Set("proc/meminfo", "MemTotal:       131072000 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n");
}

// With a card of 100 Gb/s whose link is `now`.
SnapshotFiles HostWith(PcieLink now, Gpu gpu, int megabits = 100000, bool rdma = true) {
    Host host("a", Distribution::kDebian13);
    if (gpu == Gpu::kStrixHalo) AddGpu(host);
    host.Add(ConnectX5(now));
    Host::Interface net;
    net.name = "ens1";
    net.pci = kCard;
    net.driver = "mlx5_core";
    net.megabits = megabits;
    net.mtu = 9000;
    net.address = "10.0.0.1/24";
    host.Add(net);
    if (rdma) {
        Host::Port port;
        port.layer = "Ethernet";
        port.rate = fmt::format("{} Gb/sec (4X EDR)", megabits / 1000);
        port.gid_ipv4 = "0a00:0001";
        port.interface = "ens1";
        host.AddRdma("mlx5_0", kCard, {port});
    }
    return host.Files();
}

std::vector<Finding> Costs(const SnapshotFiles& files, const std::string& check) {
    std::vector<std::unique_ptr<HostView>> views;
    views.push_back(MakeSnapshotView(files, "a"));
    auto findings = RunChecks(views, std::vector<std::string>{check}).value();
    EXPECT_TRUE(StateCosts(findings).ok());
    std::erase_if(findings, [](const Finding& f) { return !f.cost; });
    return findings;
}

plan::Prediction Planned(const std::string& model, const plan::ClusterSpec& cluster) {
    const auto shape = plan::OpenWalk(model);
    EXPECT_TRUE(shape.ok()) << shape.error().message;
    model::Layout layout;
    layout.tp = cluster.ranks();
    auto p = plan::Predict(shape->walk, cluster, layout, {});
    EXPECT_TRUE(p.ok()) << p.error().message;
    return std::move(*p);
}

// The same two machines by hand: the wire of `weft plan`, and what the slot leaves of it.
TEST(DoctorCost, EqualsThePredictionOfPlan) {
    const auto found = Costs(HostWith({8, 1}, Gpu::kStrixHalo), "pcie-link");
    ASSERT_EQ(found.size(), 1u);
    const Cost& cost = *found[0].cost;
    EXPECT_EQ(cost.machine, "strix-halo");
    EXPECT_EQ(cost.hosts, 2);
    plan::ClusterSpec cluster = *plan::Library::Open()->ParseCluster("2xstrix-halo,roce");
    const plan::Prediction healthy = Planned(cost.healthy.model, cluster);
    EXPECT_DOUBLE_EQ(cost.healthy.tokens_s, healthy.tok_s);
    EXPECT_DOUBLE_EQ(cost.healthy.prompt_s, healthy.ttft_s);
    cluster.wire.bandwidth.value = 8e9 / 8 * 128 / 130 * 0.85;
    const plan::Prediction faulty = Planned(cost.faulty.model, cluster);
    EXPECT_NEAR(cost.faulty.tokens_s / faulty.tok_s, 1, 1e-12);
    EXPECT_NEAR(cost.faulty.prompt_s / faulty.ttft_s, 1, 1e-12);
    EXPECT_NEAR(cost.faulty.wire_token_s, faulty.token.wire + faulty.token.sync, 1e-12);
    EXPECT_LT(cost.faulty.tokens_s, healthy.tok_s);
    const std::string words = cost.Text();
    EXPECT_TRUE(Contains(words, fmt::format("{:.1f} tokens/s now, {:.1f} without the fault",
                                            faulty.tok_s, healthy.tok_s)))
        << words;
    EXPECT_TRUE(Contains(words, cost.faulty.model + " on 2 x strix-halo (tp2)")) << words;
}

TEST(DoctorCost, TcpInPlaceOfRdmaIsPlansTcp) {
    SnapshotFiles files = HostWith({16, 16}, Gpu::kStrixHalo);
    files["probe/access/dev/infiniband/uverbs0"] = "none\n";
    const auto found = Costs(files, "rdma-access");
    ASSERT_EQ(found.size(), 1u);
    const Cost& cost = *found[0].cost;
    const auto library = plan::Library::Open();
    EXPECT_DOUBLE_EQ(cost.faulty.tokens_s,
                     Planned(cost.faulty.model, *library->ParseCluster("2xstrix-halo,tcp")).tok_s);
    EXPECT_DOUBLE_EQ(cost.healthy.tokens_s,
                     Planned(cost.faulty.model, *library->ParseCluster("2xstrix-halo,roce")).tok_s);
}

// The speed of a link that a virtual machine emulates costs nothing.
TEST(DoctorCost, EmulatedLinksHaveNoCost) {
    SnapshotFiles files = HostWith({8, 4}, Gpu::kStrixHalo);
    files.erase("cmd/lspci_-vv");
    files[std::string("link/sys/bus/pci/devices/") + kCard] =
        std::string("../../../devices/pci0000:c0/") + kCard;
    EXPECT_EQ(Costs(files, "pcie-link").size(), 1u);
    files["proc/cpuinfo"] = "flags\t\t: fpu sse2 hypervisor\n";
    EXPECT_TRUE(Costs(files, "pcie-link").empty());
}

// For an unknown host, only the time on the wire is reported, in seconds.
TEST(DoctorCost, UnknownMachinesHaveNoTokens) {
    const auto found = Costs(HostWith({8, 1}, Gpu::kNone), "pcie-link");
    ASSERT_EQ(found.size(), 1u);
    const Cost& cost = *found[0].cost;
    EXPECT_EQ(cost.machine, "");
    EXPECT_EQ(cost.faulty.tokens_s, 0);
    EXPECT_EQ(cost.healthy.prompt_s, 0);
    EXPECT_GT(cost.healthy.wire_token_s, 0);
    EXPECT_GT(cost.faulty.wire_prompt_s, cost.healthy.wire_prompt_s);
    EXPECT_FALSE(Contains(cost.Text(), "tokens/s")) << cost.Text();
    EXPECT_TRUE(Contains(cost.Text(), "2 such hosts")) << cost.Text();
}

TEST(DoctorCost, AbsentFactsGiveNoFigure) {
    const SnapshotFiles whole = HostWith({8, 1}, Gpu::kNone);
    for (const std::string without : {"proc/meminfo", "sys/class/net/ens1/speed"}) {
        SnapshotFiles less = whole;
        EXPECT_EQ(less.erase(without), 1u);
        if (without.ends_with("speed")) less.erase("sys/class/infiniband/mlx5_0/ports/1/rate");
        EXPECT_TRUE(Costs(less, "pcie-link").empty()) << without;
    }
    // A memory module is missing, and the host's read bandwidth is unknown.
    SnapshotFiles modules = whole;
    modules["cmd/dmidecode_-t_memory"] =
        "Memory Device\n\tSize: 16 GB\n\tSpeed: 5600 MT/s\n\tConfigured Memory Speed: 5600 MT/s\n"
        "Memory Device\n\tSize: No Module Installed\n";
    EXPECT_TRUE(Costs(modules, "memory-speed").empty());
}

// More lanes, a faster port, RDMA: never fewer tokens, never a longer prompt. From a rate of 2 GB/s
// on, a prompt's all-reduces are f32 instead of bf16, and no longer overlap computation
// (docs/collectives.md). The one faster port that crosses that rate may cost a prompt 2 % more.
TEST(DoctorCost, FasterLinksNeverCostMore) {
    CostModel model = *CostModel::Open();
    HostFacts host;
    host.gpus["1002:1586"] = 1;
    for (const auto kind : {plan::LinkKind::kTcp, plan::LinkKind::kRoce,
                            plan::LinkKind::kInfiniBand, plan::LinkKind::kThunderbolt}) {
        std::optional<CostFigures> before;
        int longer = 0;
        for (const double gigabits : {0.1, 1.0, 2.5, 5.0, 10.0, 25.0, 40.0, 56.0, 100.0, 400.0}) {
            CostQuestion question;
            question.host = host;
            question.faulty.link = HostLink{.kind = kind, .gigabits = gigabits};
            question.healthy.link = question.faulty.link;
            const bool card = kind != plan::LinkKind::kTcp && kind != plan::LinkKind::kThunderbolt;
            if (card) question.faulty.link = OverTcp(*question.faulty.link);
            const auto cost = model.Answer(question);
            ASSERT_TRUE(cost.has_value()) << gigabits;
            EXPECT_GE(cost->healthy.tokens_s, cost->faulty.tokens_s) << gigabits;
            EXPECT_LE(cost->healthy.prompt_s, cost->faulty.prompt_s) << gigabits;
            if (before) {
                EXPECT_GE(cost->healthy.tokens_s, before->tokens_s) << gigabits;
                const bool crosses = cost->healthy.prompt_s > before->prompt_s;
                longer += crosses ? 1 : 0;
                EXPECT_LE(cost->healthy.prompt_s, 1.02 * before->prompt_s) << gigabits;
                if (crosses) {
                    EXPECT_GT(gigabits, 16) << "2 GB/s are 16 Gbit/s";
                }
            }
            before = cost->healthy;
        }
        EXPECT_LE(longer, 1);
    }
}

TEST(DoctorCost, ModelsThatFitOnlyOtherwiseAreNamed) {
    CostModel model = *CostModel::Open();
    CostQuestion question;
    question.host.gpus["1002:1586"] = 1;
    question.faulty.space_bytes = 32e9;
    question.healthy.space_bytes = 110e9;
    const auto cost = model.Answer(question);
    ASSERT_TRUE(cost.has_value());
    EXPECT_EQ(cost->hosts, 1);
    EXPECT_NE(cost->faulty.model, cost->healthy.model);
    EXPECT_TRUE(Contains(cost->Text(), "now it does not fit")) << cost->Text();
    question.faulty.space_bytes = 1e6;
    const auto none = model.Answer(question);
    ASSERT_TRUE(none.has_value());
    EXPECT_EQ(none->faulty.model, "");
    EXPECT_EQ(none->faulty.tokens_s, 0);
}

// Half the memory's bandwidth: reads take twice as long, and all else stays the same.
TEST(DoctorCost, HalfTheMemoryBandwidthHalvesTheSpeed) {
    CostModel model = *CostModel::Open();
    CostQuestion question;
    question.host.gpus["1002:1586"] = 1;
    question.faulty.bandwidth_share = 0.5;
    const auto cost = model.Answer(question);
    ASSERT_TRUE(cost.has_value());
    const plan::Prediction p =
        Planned(cost->faulty.model, *plan::Library::Open()->ParseCluster("strix-halo"));
    const double read = p.token.weights + p.token.cache + p.token.imbalance;
    EXPECT_NEAR(1 / cost->faulty.tokens_s, p.token.total() + read, 1e-9);
}

// Odd numbers from snapshots: no figure or a finite one.
TEST(DoctorCost, StrangeLinksAreNoTrouble) {
    CostModel model = *CostModel::Open();
    for (const double gigabits : {-1.0, 0.0, 1e-300, 1e300, std::nan("")}) {
        for (const double most : {-1.0, 0.0, 1e300, std::nan("")}) {
            CostQuestion question;
            question.host.memory_bytes = 16e9;
            question.faulty.link = HostLink{.gigabits = gigabits, .most_bytes_s = most};
            question.healthy.link = HostLink{.gigabits = 10};
            const auto cost = model.Answer(question);
            if (!cost) continue;
            EXPECT_TRUE(std::isfinite(cost->faulty.wire_token_s)) << gigabits << " " << most;
            EXPECT_GT(cost->faulty.wire_token_s, 0);
            EXPECT_FALSE(Contains(cost->Text(), "inf")) << cost->Text();
        }
    }
}

// The saved archive gives the same costs.
TEST(DoctorCost, SavedSnapshotsCostTheSame) {
    for (const Gpu gpu : {Gpu::kNone, Gpu::kStrixHalo}) {
        const SnapshotFiles files = HostWith({8, 1}, gpu);
        std::vector<std::unique_ptr<HostView>> views;
        views.push_back(MakeSnapshotView(files, "a"));
        ASSERT_TRUE(RunChecks(views, {}).ok());
        Pseudonyms names(false);
        const SnapshotFiles saved = SavedFiles(views[0]->Recorded(), names);
        const auto before = Costs(files, "pcie-link"), after = Costs(saved, "pcie-link");
        ASSERT_EQ(before.size(), 1u);
        ASSERT_EQ(after.size(), 1u);
        EXPECT_EQ(before[0].cost->Text(), after[0].cost->Text());
    }
}

TEST(DoctorCost, ReportsHaveALineOfIt) {
    const auto found = Costs(HostWith({8, 1}, Gpu::kStrixHalo), "pcie-link");
    ASSERT_EQ(found.size(), 1u);
    const std::string text = Report(found, {});
    EXPECT_TRUE(Contains(text, "          cost      predicted for ")) << text;
}

}  // namespace
}  // namespace weft::doctor
