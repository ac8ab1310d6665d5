// Predictions against measured figures of Weft, and memory against known models.
#include <gtest/gtest.h>

#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include "plan/predict.h"
#include "plan/search.h"
#include "plan/shapes.h"
#include "plan/weft_rates.h"
#include "support/paths.h"

namespace weft::plan {
namespace {

constexpr double kClose = 0.15;

// A llama of 7.4 B, as bench/gpu.py makes it: synthetic:llama-3.1-8b without its largest embedding.
struct MeasuredFigure {
    const char *model, *what;
    double measured;
    Workload load;
};

bool Contains(const std::vector<std::string_view>& parts, std::string_view part) {
    return std::ranges::find(parts, part) != parts.end();
}

double PredictedRate(const ClusterSpec& cluster, const MeasuredFigure& figure) {
    const auto shape = OpenWalk(figure.model);
    EXPECT_TRUE(shape.ok()) << shape.error().message;
    const auto p = Predict(shape->walk, cluster, {}, figure.load);
    EXPECT_TRUE(p.ok()) << p.error().message;
    const bool prompt = std::string_view(figure.what).starts_with("prompt");
    return prompt ? p->prompt_tok_s : p->tok_s;
}

void ExpectClose(const ClusterSpec& cluster, const std::vector<MeasuredFigure>& figures) {
    for (const MeasuredFigure& figure : figures) {
        const double predicted = PredictedRate(cluster, figure);
        const double off = predicted / figure.measured - 1;
        std::printf("%-28s %-22s measured %8.1f predicted %8.1f %+5.1f %%\n", figure.model,
                    figure.what, figure.measured, predicted, off * 100);
        EXPECT_TRUE(std::abs(off) <= kClose) << figure.model << " " << figure.what;
    }
}

TEST(Figures, AnH200IsPredicted) {
    const ClusterSpec h200 = *Library::Open()->ParseCluster("h200:1");
    EXPECT_TRUE(IsMeasured(h200.hosts[0]));
    ExpectClose(h200,
                {{"synthetic:llama-3.1-8b:q4_k", "prompt 512", 7000, {.prompt = 512}},
                 {"synthetic:llama-3.1-8b:q4_k", "prompt 2048", 5100, {.prompt = 2048}},
                 {"synthetic:llama-3.1-8b:q4_k", "decode", 247, {.context = 64}},
                 {"synthetic:llama-3.1-8b:q4_k", "decode behind 4096", 195, {.context = 4160}},
                 {"synthetic:llama-3.1-8b:q4_k", "decode of 16", 1695, {64, 16}},
                 {"synthetic:llama-3.1-8b:q4_k", "decode of 32", 2110, {64, 32}},
                 {"synthetic:llama-3.2-1b:q4_0", "decode", 785, {.context = 64}},
                 {"synthetic:llama-3.2-1b:q4_0", "prompt 2048", 23700, {.prompt = 2048}},
                 {"synthetic:qwen3-30b-a3b:q4_k", "decode", 200, {.context = 64}},
                 {"synthetic:qwen3-30b-a3b:q4_k", "prompt 512", 5518, {.prompt = 512}}});
}

// docs/architecture.md, "Weights of several tokens": two cores of an EPYC (Zen 4).
TEST(Figures, TwoCoresArePredicted) {
    const auto cores = ParseMachine(
        R"({"pool": "host", "threads": 2,
            "memory": {"is": "16 GB", "mark": "measured", "source": "x"},
            "bandwidth": {"is": "67 GB/s", "mark": "measured", "source": "weft plan --measure"},
            "compute": {"is": "0.45 TFLOP/s", "mark": "guessed", "source": "64 FLOP a clock"}})",
        "cores", "cores");
    ASSERT_TRUE(cores.ok()) << cores.error().message;
    ClusterSpec cluster;
    cluster.hosts = {*cores};
    ExpectClose(cluster, {{"synthetic:llama-3.2-1b:q4_0:layers=4", "decode of 4", 299, {64, 4}},
                          {"synthetic:llama-3.2-1b:q4_0:layers=4", "decode of 8", 403, {64, 8}},
                          {"synthetic:llama-3.2-1b:q4_0:layers=4", "decode of 16", 504, {64, 16}}});
}

struct Published {
    std::string machine, model, decode, prompt, backend;
};

std::vector<Published> ReadPublished() {
    std::vector<Published> rows;
    std::ifstream file(support::TestData("/plan/llama_cpp.tsv"));
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with('#') || line.starts_with("machine\t")) continue;
        std::istringstream cells(line);
        Published row;
        for (std::string* cell :
             {&row.machine, &row.model, &row.decode, &row.prompt, &row.backend}) {
            std::getline(cells, *cell, '\t');
        }
        rows.push_back(row);
    }
    return rows;
}

// The prediction as a multiple of llama.cpp's published speed times the ratio of Weft to llama.cpp.
class PublishedRows {
  public:
    void Add(const Published& row, const char* what, double predicted, const std::string& published,
             double ratio) {
        if (published.empty()) return;
        // (Weft was not compared with llama.cpp on processors.)
        const double expected = std::stod(published) * (row.backend == "CPU" ? 1 : ratio);
        const double share = predicted / expected;
        std::printf("%-20s %-28s %-6s expected %8.1f predicted %8.1f x %.2f\n", row.machine.c_str(),
                    row.model.c_str(), what, expected, predicted, share);
        EXPECT_TRUE(share >= 0.6 && share <= 1.6) << row.machine << " " << row.model << " " << what;
        errors_.push_back(std::max(share, 1 / share) - 1);
    }
    size_t count() const { return errors_.size(); }
    std::ptrdiff_t Within(double error) const {
        return std::ranges::count_if(errors_, [&](double e) { return e <= error; });
    }
    double Quantile(double at) {
        std::ranges::sort(errors_);
        return errors_[static_cast<size_t>(at * static_cast<double>(errors_.size() - 1))];
    }

  private:
    std::vector<double> errors_;
};

// Owners' reports of llama.cpp: DeepSeek V4 Flash on a Strix Halo by ROCm (Vulkan: 9 tok/s), and
// GLM 5.3 Flash over two of them.
TEST(Figures, OpsWithoutAMeasuredRowCountAsOwnersReport) {
    struct Report {
        const char *model, *machines;
        int stages;
        double tok_s;
    };
    for (const auto& [model, machines, stages, tok_s] :
         {Report{"deepseek-v4-flash:q2_k", "strix-halo", 1, 16},
          Report{"glm-5.3-flash:q4_k_m", "2xstrix-halo", 2, 10}}) {
        const ClusterSpec cluster = *Library::Open()->ParseCluster(machines);
        const auto shape = OpenWalk(model);
        ASSERT_TRUE(shape.ok()) << shape.error().message;
        EXPECT_TRUE(Contains(shape->walk.unmeasured(), "several residual streams")) << model;
        EXPECT_TRUE(Contains(shape->walk.unmeasured(), "an indexer")) << model;
        model::Layout layout;
        layout.pp = stages;
        const auto p = Predict(shape->walk, cluster, layout, {.context = 4096});
        ASSERT_TRUE(p.ok()) << p.error().message;
        EXPECT_TRUE(p->tok_s >= 0.6 * tok_s && p->tok_s <= 1.6 * tok_s) << model << p->tok_s;
        EXPECT_TRUE(p->spread >= kUnmeasuredSpread * p->tok_s) << model;
    }
    for (const Published& row : ReadPublished()) {
        const auto shape = OpenWalk(row.model);
        ASSERT_TRUE(shape.ok()) << shape.error().message;
        EXPECT_TRUE(shape->walk.unmeasured().empty()) << row.model;
    }
}

TEST(Figures, OtherDevicesAreComputedFromLlamaCpp) {
    const Library library = *Library::Open();
    PublishedRows decode, prompts;
    const std::vector<Published> rows = ReadPublished();
    ASSERT_GT(rows.size(), 40U);
    for (const Published& row : rows) {
        const auto cluster = library.ParseCluster(row.machine);
        ASSERT_TRUE(cluster.ok()) << cluster.error().message;
        EXPECT_FALSE(IsMeasured(cluster->hosts[0])) << row.machine;
        const MeasuredFigure figure{row.model.c_str(), "", 0, {.context = 192, .prompt = 512}};
        const auto shape = OpenWalk(figure.model);
        ASSERT_TRUE(shape.ok()) << shape.error().message;
        const auto p = Predict(shape->walk, *cluster, {}, figure.load);
        ASSERT_TRUE(p.ok()) << p.error().message;
        decode.Add(row, "decode", p->tok_s, row.decode, kDecodeRatio);
        prompts.Add(row, "prompt", p->prompt_tok_s, row.prompt, kPromptRatio);
    }
    // (docs/plan.md has these figures.)
    std::printf(
        "%zu predictions, %td within 30 %%; median error: decode %.0f %%, prompts %.0f %%\n",
        decode.count() + prompts.count(), decode.Within(0.3) + prompts.Within(0.3),
        decode.Quantile(0.5) * 100, prompts.Quantile(0.5) * 100);
    EXPECT_LT(decode.Quantile(0.5), 0.12);
    EXPECT_LT(decode.Quantile(0.8), 0.3);
    EXPECT_LT(prompts.Quantile(0.5), 0.25);
    EXPECT_LT(prompts.Quantile(0.75), 0.35);
}

// Devices of one vendor, oldest first; families of one generation have equal numbers.
const std::map<std::string, std::pair<std::string, int>>& Generations() {
    static const std::map<std::string, std::pair<std::string, int>> kGenerations = {
        {"pascal", {"NVIDIA", 0}},
        {"pascal-hbm", {"NVIDIA", 0}},
        {"volta", {"NVIDIA", 1}},
        {"turing", {"NVIDIA", 2}},
        {"gtx-16", {"NVIDIA", 2}},
        {"turing-pro", {"NVIDIA", 2}},
        {"ampere", {"NVIDIA", 3}},
        {"ampere-pro", {"NVIDIA", 3}},
        {"ampere-hbm", {"NVIDIA", 3}},
        {"ada", {"NVIDIA", 4}},
        {"ada-pro", {"NVIDIA", 4}},
        {"hopper", {"NVIDIA", 4}},
        {"blackwell", {"NVIDIA", 5}},
        {"blackwell-pro", {"NVIDIA", 5}},
        {"blackwell-hbm", {"NVIDIA", 5}},
        {"gcn", {"AMD", 0}},
        {"gcn-hbm", {"AMD", 1}},
        {"rdna1", {"AMD", 1}},
        {"cdna", {"AMD", 2}},
        {"rdna2", {"AMD", 2}},
        {"rdna3", {"AMD", 3}},
        {"rdna4", {"AMD", 4}},
        {"alchemist", {"Intel", 0}},
        {"battlemage", {"Intel", 1}}};
    return kGenerations;
}

Prediction OneDevice(const Library& library, const ModelWalk& walk, const std::string& name) {
    const auto machine = WithDevices(*library.FindMachine(name), 1);
    ClusterSpec cluster;
    cluster.hosts = {*machine};
    const auto p = Predict(walk, cluster, {}, {.context = 512, .prompt = 512});
    EXPECT_TRUE(p.ok()) << name << ": " << p.error().message;
    return p.ok() ? *p : Prediction{};
}

TEST(Figures, MoreBandwidthAndComputeAreNotSlower) {
    // An A100 takes longer for an op than a GeForce, and the P100 has no products of 8 bits
    // (published runs in tests/data/plan/llama_cpp.tsv). The A30 is computed like the A100. For
    // GCN and CDNA with HBM, and for Alchemist, the fit says that llama.cpp reads about half of the
    // bandwidth.
    const std::set<std::string> kExceptions = {"a30", "a100-40gb", "p100"};
    const std::set<std::string> kSlowFamilies = {"gcn-hbm", "cdna", "alchemist"};
    constexpr double kRoom = 6e9;
    const Library library = *Library::Open();
    const auto shape = OpenWalk("llama-2-7b:q4_0");
    ASSERT_TRUE(shape.ok());
    struct Device {
        const Machine* machine;
        std::string vendor;
        int generation;
        double tok_s;
    };
    std::vector<Device> devices;
    for (const auto& [name, machine] : library.machines()) {
        const auto found = Generations().find(machine.family);
        if (found == Generations().end() || machine.shares_memory()) continue;
        if (machine.memory.value < kRoom || machine.bandwidth.mark != Mark::kDataSheet) continue;
        if (kExceptions.contains(name) || kSlowFamilies.contains(machine.family)) continue;
        devices.push_back({&machine, found->second.first, found->second.second,
                           OneDevice(library, shape->walk, name).tok_s});
    }
    ASSERT_GT(devices.size(), 90U);
    for (const Device& device : devices) {
        for (const Device& older : devices) {
            const Machine &its = *device.machine, &other = *older.machine;
            if (device.vendor != older.vendor || device.generation < older.generation ||
                its.bandwidth.value < other.bandwidth.value ||
                its.compute.value < other.compute.value) {
                continue;
            }
            EXPECT_TRUE(device.tok_s >= 0.98 * older.tok_s)
                << its.name << " " << device.tok_s << ", " << other.name << " " << older.tok_s;
        }
    }
}

// Cards with the same chip read prompts at like speeds, whatever the rate of their F32
// accumulators.
TEST(Figures, ProfessionalCardsReadPromptsAsGeForceCards) {
    const Library library = *Library::Open();
    const auto shape = OpenWalk("llama-2-7b:q4_0");
    ASSERT_TRUE(shape.ok());
    struct Pair {
        const char *professional, *geforce;
        double least, most;
    };
    for (const Pair& pair :
         {Pair{"rtx-a6000", "rtx-3090", 0.8, 1.3}, Pair{"a10", "rtx-3090", 0.5, 1},
          Pair{"l40s", "rtx-4090", 0.8, 1.3}, Pair{"l40", "rtx-4090", 0.8, 1.3},
          Pair{"rtx-6000-ada", "rtx-4090", 0.8, 1.3}, Pair{"rtx-pro-6000", "rtx-5090", 0.8, 1.3},
          Pair{"quadro-rtx-8000", "rtx-2080-ti", 0.8, 1.35}, Pair{"t4", "rtx-2080", 0.4, 1}}) {
        const double ratio = OneDevice(library, shape->walk, pair.professional).prompt_tok_s /
                             OneDevice(library, shape->walk, pair.geforce).prompt_tok_s;
        EXPECT_TRUE(ratio >= pair.least && ratio <= pair.most) << pair.professional << " " << ratio;
    }
}

// Combinations that people run, and combinations that are known not to load.
TEST(Figures, KnownModelsFit) {
    const Library library = *Library::Open();
    struct Known {
        const char *model, *machines;
        bool fits;
    };
    for (const Known& known :
         {Known{"gpt-oss-120b", "strix-halo", true}, Known{"gpt-oss-120b", "dgx-spark", true},
          Known{"gpt-oss-120b", "2xrtx-3090", false},
          Known{"qwen3-235b-a22b:q4_k_m", "strix-halo", false},
          Known{"qwen3-235b-a22b:q4_k_m", "2xstrix-halo", true},
          Known{"llama-3.1-70b:q4_k_m", "rtx-3090:2", true},
          Known{"llama-3.1-70b:q8_0", "rtx-3090:2", false},
          Known{"llama-3.1-70b:q8_0", "rtx-3090:4", true},
          Known{"deepseek-r1:q4_k_m", "2xstrix-halo", false},
          Known{"deepseek-r1:q4_k_m", "4xstrix-halo", true},
          Known{"deepseek-r1:q8_0", "h200", true}, Known{"qwen3-30b-a3b:q4_k_m", "rtx-4090", true},
          Known{"llama-3.1-8b:bf16", "raspberry-pi-5", false}}) {
        const auto shape = OpenWalk(known.model);
        ASSERT_TRUE(shape.ok()) << shape.error().message;
        const auto best = FindBest(shape->walk, *library.ParseCluster(known.machines), {});
        EXPECT_EQ(best.ok(), known.fits) << known.model << " on " << known.machines;
    }
}

}  // namespace
}  // namespace weft::plan
