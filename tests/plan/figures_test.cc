// Predictions against measured figures of Weft, and memory against known models.
#include <gtest/gtest.h>

#include <fstream>
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
    double Quantile(double at) {
        std::ranges::sort(errors_);
        return errors_[static_cast<size_t>(at * static_cast<double>(errors_.size() - 1))];
    }

  private:
    std::vector<double> errors_;
};

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
    std::printf("median error: decode %.0f %%, prompts %.0f %%\n", decode.Quantile(0.5) * 100,
                prompts.Quantile(0.5) * 100);
    EXPECT_LT(decode.Quantile(0.5), 0.12);
    EXPECT_LT(decode.Quantile(0.8), 0.3);
    EXPECT_LT(prompts.Quantile(0.5), 0.25);
    EXPECT_LT(prompts.Quantile(0.75), 0.35);
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
