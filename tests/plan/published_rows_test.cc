// Rows of published measurements (tests/data/plan/published_*.json, new_*.json, later_*.json,
// latest_*.json), predicted: how far errors are off in the half that machines and runtimes were
// fitted on and in the half that was held out, that docs/plan.md says just that, how often they are
// within the printed ±, and who wins.
//
// The first byte of SHA-256 of a row's name decides: odd is held out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "plan/predict.h"
#include "plan/shapes.h"
#include "plan/train_search.h"
#include "support/paths.h"

namespace weft::plan {
namespace {

using RowJson = nlohmann::json;

// spread: a share, one standard deviation. fits: into the memory of each rank.
struct Guess {
    double value = 0, spread = 0;
    bool fits = true;
};

struct HeldRow {
    std::string id, source, unit;
    std::string odd;    // why a row is thought to be wrong, or to lack what matters
    std::string tight;  // why it ran in less memory than is predicted
    std::string list;   // "", "new " or "later "
    std::string place;  // program and machines
    double published = 0;
    Guess predicted;
    bool held_out = false;
    double error() const { return predicted.value / published - 1; }
};

// What faster and slower rows of one comparison are called in the files' `beats`.
struct PublishedWin {
    std::string faster, slower;
};
Result<RowJson> ReadRows(const char* name) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(support::TestData(name)));
    return RowJson::parse(text);
}

Result<Guess> PredictInferenceRow(const RowJson& row, const Library& library) {
    WEFT_ASSIGN(const auto source, OpenShape(row["model"]));
    const DType cache = row.value("kv", "f16") == "q8_0" ? DType::kQ8_0 : DType::kF16;
    WEFT_ASSIGN(const ModelWalk walk, ModelWalk::Make(*source, cache));
    WEFT_ASSIGN(const Cluster cluster, library.ParseCluster(row["machines"]));
    WEFT_ASSIGN(const Runtime runtime, library.FindRuntime(row["runtime"]));
    model::Layout layout;
    layout.tp = row["tp"];
    layout.pp = row["pp"];
    layout.ep = row.value("ep", 1);
    Workload load;
    load.context = row["context"];
    load.batch = row["batch"];
    load.prompt = row.value("prompt", int64_t{0});
    load.depth = row.value("depth", int64_t{0});
    load.chunk = row.value("chunk", load.chunk);
    WEFT_ASSIGN(const Prediction p, Predict(walk, cluster, runtime, layout, load));
    const double token_spread = p.spread / p.tok_s;
    if (row["unit"] == "tok/s") return Guess{p.tok_s, token_spread, p.fits()};
    if (row["unit"] == "prompt tok/s") {
        return Guess{p.prompt_tok_s, p.ttft_spread / p.ttft_s, p.fits()};
    }
    // Tokens that come out: servers read waiting prompts together, so many tokens at once.
    constexpr int64_t kTogether = 2048;
    Workload reading = load;
    reading.batch = 1;
    reading.prompt = std::max(load.prompt, std::min(load.batch * load.prompt, kTogether));
    reading.context = std::max(load.context, reading.prompt);
    WEFT_ASSIGN(const Prediction read, Predict(walk, cluster, runtime, layout, reading));
    const double batch = static_cast<double>(load.batch);
    const double tokens = batch * row["output"].get<double>();
    const double prompts = batch * static_cast<double>(load.prompt);
    const double prompts_s = prompts / read.prompt_tok_s, tokens_s = tokens / p.tok_s;
    const double all_s = prompts_s + tokens_s;
    const double prompt_spread = read.ttft_spread / read.ttft_s;
    return Guess{tokens / all_s, (prompts_s * prompt_spread + tokens_s * token_spread) / all_s,
                 p.fits()};
}

Result<std::unique_ptr<model_files::ModelSource>> TrainedModel(const RowJson& row) {
    if (row.contains("model")) return OpenShape(row["model"]);
    RowJson config = row["shape"];
    config["model_type"] = "llama";
    config["num_key_value_heads"] = config["num_attention_heads"];
    config["rms_norm_eps"] = 1e-5;
    config["max_position_embeddings"] = 1 << 17;
    config["tie_word_embeddings"] = true;
    return MakeShape(config.dump(), row["id"], "");
}

Result<Guess> PredictTrainedRow(const RowJson& row, const Library& library) {
    WEFT_ASSIGN(const auto source, TrainedModel(row));
    WEFT_ASSIGN(const ModelWalk model, ModelWalk::Make(*source, DType::kF16));
    TrainJob job;
    WEFT_ASSIGN(job.style, FindTrainStyle(row["as"]));
    job.sequence = row["seq_len"];
    job.eight_bit = row.value("dtype", "bf16") == "fp8";
    WEFT_ASSIGN(TrainWalk walk, TrainWalk::Make(model, job));
    WEFT_ASSIGN(const Cluster cluster, library.ParseCluster(row["machines"]));
    const TrainLinks links(cluster);
    TrainCut cut;
    cut.tp = row.value("tp", 1);
    cut.pp = row.value("pp", 1);
    cut.cp = row.value("cp", 1);
    cut.dp = links.ranks() / (cut.tp * cut.pp * cut.cp);
    cut.zero = row.value("zero", 0);
    cut.virtual_stages = row.value("virtual_stages", 1);
    cut.sequence_parallel = row.value("sequence_parallel", false);
    cut.micro_batch = row["micro_batch"];
    cut.accumulation = row.value("grad_accum", 1);
    for (const auto way : {program::Recompute::kSelective, program::Recompute::kFull}) {
        if (row["recompute"] == RecomputeName(way)) cut.recompute = way;
    }
    WEFT_ASSIGN(const TrainPrediction p, PredictTraining(walk, links, cut, {}));
    const double rank_flops = p.flops / p.update_s / cut.ranks() * 1e-12;
    double value = rank_flops * 4 / 3;  // hardware's: a second forward pass counts
    if (row["unit"] == "s an update") value = p.update_s;
    if (row["unit"] == "tokens/s a rank") value = p.tokens_per_s / cut.ranks();
    if (row["unit"] == "TFLOP/s a rank") value = rank_flops;
    return Guess{value, p.spread, p.fits()};
}

// The lists: the first ones, and three that were predicted before anything was fitted on them.
struct RowList {
    const char* file;
    bool trained;
    const char* name;
};
constexpr RowList kLists[] = {{"/plan/published_inference.json", false, ""},
                              {"/plan/published_training.json", true, ""},
                              {"/plan/new_inference.json", false, "new "},
                              {"/plan/new_training.json", true, "new "},
                              {"/plan/later_inference.json", false, "later "},
                              {"/plan/later_training.json", true, "later "},
                              {"/plan/latest_inference.json", false, "latest "},
                              {"/plan/latest_training.json", true, "latest "}};

// All lists. Errors: those of predictions, naming the row.
Result<std::vector<HeldRow>> PredictPublished() {
    WEFT_ASSIGN(const Library library, Library::Open());
    std::vector<HeldRow> rows;
    for (const RowList& list : kLists) {
        WEFT_ASSIGN(const RowJson all, ReadRows(list.file));
        for (const RowJson& row : all) {
            const std::string id = row["id"];
            const auto predicted =
                list.trained ? PredictTrainedRow(row, library) : PredictInferenceRow(row, library);
            if (!predicted.ok()) {
                return MakeError(predicted.error().code, "{}: {}", id, predicted.error().message);
            }
            const bool held_out = Sha256(std::as_bytes(std::span(id)))[0] & 1;
            const std::string program = row[list.trained ? "as" : "runtime"];
            const std::string machines = row["machines"];
            rows.push_back({id, row["source"], row["unit"], row.value("odd", ""),
                            row.value("tight", ""), list.name,
                            program + ", " + machines.substr(0, machines.find(',')),
                            row["published"], *predicted, held_out});
        }
    }
    return rows;
}

Result<std::vector<PublishedWin>> PublishedWins() {
    std::vector<PublishedWin> wins;
    for (const RowList& list : kLists) {
        WEFT_ASSIGN(const RowJson all, ReadRows(list.file));
        for (const RowJson& row : all) {
            if (row.contains("beats")) wins.push_back({row["id"], row["beats"]});
        }
    }
    return wins;
}

// Of one kind and one half: how many rows, the median error, and how many are within a quarter.
struct Errors {
    std::vector<double> all;
    void Add(double error) { all.push_back(std::abs(error)); }
    double median() {
        std::ranges::sort(all);
        return all.empty() ? 0 : all[all.size() / 2];
    }
    int64_t Within(double most) const {
        return std::ranges::count_if(all, [&](double error) { return error <= most; });
    }
};

const char* KindOf(const HeldRow& row) {
    if (row.unit == "prompt tok/s") return "prompts";
    return row.unit == "tok/s" || row.unit == "out tok/s" ? "tokens" : "training";
}

class PublishedRows : public testing::Test {
  protected:
    static void SetUpTestSuite() {
        auto predicted = PredictPublished();
        ASSERT_TRUE(predicted.ok()) << predicted.error().message;
        rows_ = new std::vector<HeldRow>(*std::move(predicted));
    }
    static void TearDownTestSuite() { delete rows_; }
    static std::string Docs() {
        const auto docs = ReadTextFile(support::TestData("/../../docs/plan.md"));
        EXPECT_TRUE(docs.ok());
        return docs.ok() ? *docs : "";
    }
    static std::map<std::string, Errors> Sums() {
        std::map<std::string, Errors> sums;
        for (const HeldRow& row : *rows_) {
            const std::string half = row.held_out ? "held out" : "open";
            sums[fmt::format("{}{}, {}", row.list, KindOf(row), half)].Add(row.error());
        }
        return sums;
    }
    static inline std::vector<HeldRow>* rows_ = nullptr;
};

TEST_F(PublishedRows, MediansStayWithTheirBoundsInBothHalves) {
    const std::string docs = Docs();
    for (auto& [name, errors] : Sums()) {
        const std::string line =
            fmt::format("| {} | {} | {:.1f} % | {} | {} |", name, errors.all.size(),
                        errors.median() * 100, errors.Within(0.10), errors.Within(0.25));
        EXPECT_NE(docs.find(line), std::string::npos) << "docs/plan.md lacks: " << line;
        const bool prompts = name.find("prompts") != name.npos, held = name.ends_with("held out");
        const bool is_new = !name.starts_with("tokens") && !name.starts_with("prompts") &&
                            !name.starts_with("training");
        const bool later_tokens = name == "later tokens, held out";
        // Eight rows; and many of programs that no style is of.
        const bool few = name.starts_with("later training");
        const bool others = name.starts_with("latest training");
        EXPECT_GT(errors.all.size(), few ? 1u : 10u) << name;
        const double tokens =
            later_tokens ? 0.25 : (few || others ? 0.15 : (is_new || held ? 0.12 : 0.1));
        const double most = prompts ? (is_new ? 0.3 : 0.2) : tokens;
        EXPECT_FALSE(!(errors.median() <= most)) << line;
        const int quarters = prompts || later_tokens ? 2 : 3;
        EXPECT_GE(4 * errors.Within(0.25), quarters * std::ssize(errors.all)) << line;
    }
}

// What is further off than a quarter says what is known of it, and the docs how many these are.
TEST_F(PublishedRows, WhatIsFarOffSaysWhy) {
    int64_t far = 0;
    for (const HeldRow& row : *rows_) {
        if (std::abs(row.error()) <= 0.25) continue;
        ++far;
        EXPECT_FALSE(row.odd.empty())
            << row.id << ": " << row.published << ", predicted " << row.predicted.value;
    }
    const std::string line = fmt::format("{} of {} rows", far, rows_->size());
    EXPECT_NE(Docs().find(line), std::string::npos) << "docs/plan.md lacks: " << line;
}

// How many of `rows` are off by more than a quarter, whatever factor all predictions of them have.
int64_t LeftByBestFactor(const std::vector<const HeldRow*>& rows) {
    auto best = std::ssize(rows);
    const auto off = [&](double factor) {
        return std::ranges::count_if(rows, [&](const HeldRow* row) {
            return std::abs(factor * (1 + row->error()) - 1) > 0.25 + 1e-9;
        });
    };
    // One that puts a row at the edge of its quarter is as good as any.
    for (const HeldRow* row : rows) {
        for (const double edge : {0.75, 1.25}) {
            best = std::min<int64_t>(best, off(edge / (1 + row->error())));
        }
    }
    return best;
}

// What no figure of a machine or a program can mend: rows of one program on the same machines that
// contradict each other, or the model of a step.
TEST_F(PublishedRows, TheDocsSayWhatNoFigureMends) {
    std::map<std::string, std::vector<const HeldRow*>> groups;
    for (const HeldRow& row : *rows_) groups[row.place + KindOf(row)].push_back(&row);
    int64_t left = 0, alone = 0;
    for (const auto& [name, rows] : groups) {
        left += LeftByBestFactor(rows);
        alone += rows.size() == 1 ? 1 : 0;
    }
    const std::string line =
        fmt::format("{} of them would stay: {} groups, {} of one row", left, groups.size(), alone);
    EXPECT_NE(Docs().find(line), std::string::npos) << "docs/plan.md lacks: " << line;
}

// All of them ran.
TEST_F(PublishedRows, WhatRanFits) {
    std::map<bool, int> all;  // by whether they train
    for (const HeldRow& row : *rows_) {
        EXPECT_NE(row.predicted.fits, !row.tight.empty()) << row.list << row.id << row.tight;
        ++all[std::string_view(KindOf(row)) == "training"];
    }
    for (const auto& [trains, count] : all) {
        const std::string line =
            fmt::format("Of {} rows of {} that ran", count, trains ? "training" : "inference");
        EXPECT_NE(Docs().find(line), std::string::npos) << "docs/plan.md lacks: " << line;
    }
}

// "OOM" in XiongjieDai/GPU-Benchmarks-on-LLM-Inference.
TEST(PublishedLacks, WhatDidNotFitDoesNot) {
    const Library library = Library::Open().value();
    const Runtime runtime = library.FindRuntime("llama.cpp-cuda-2024").value();
    for (const auto& [model, machines] :
         std::vector<std::pair<const char*, const char*>>{{"llama-3.1-70b:q4_k_m", "rtx-3090"},
                                                          {"llama-3.1-70b:q4_k_m", "rtx-4090"},
                                                          {"llama-3.1-70b:q4_k_m", "rtx-4080:2"},
                                                          {"llama-3.1-70b:f16", "rtx-3090:4"},
                                                          {"llama-3.1-70b:f16", "rtx-a6000:2"},
                                                          {"llama-3.1-70b:f16", "a100"}}) {
        const auto source = OpenShape(model).value();
        const ModelWalk walk = ModelWalk::Make(*source, DType::kF16).value();
        const Cluster cluster = library.ParseCluster(machines).value();
        model::Layout layout;
        layout.pp = std::string_view(machines) == "a100" ? 1 : cluster.ranks();
        Workload load;
        load.context = 512;
        const auto p = Predict(walk, cluster, runtime, layout, load);
        ASSERT_TRUE(p.ok()) << p.error().message;
        EXPECT_FALSE(p->fits()) << model << " on " << machines;
    }
}

// The printed ± is one standard deviation: 68.3 % of normal errors are within it. Rows of a source
// err together, so that the share of n sources is off by sqrt(0.683 x 0.317 / n); twice that.
TEST_F(PublishedRows, TwoThirdsOfTheHeldOutErrorsAreWithinTheSpread) {
    constexpr double kWithin = 0.683;
    struct Kind {
        double rows = 0, within = 0;
        std::set<std::string> sources;
    };
    std::map<std::string, Kind> kinds;
    for (const HeldRow& row : *rows_) {
        if (!row.held_out) continue;
        Kind& kind = kinds[KindOf(row)];
        kind.rows += 1;
        kind.within += std::abs(row.error()) <= row.predicted.spread ? 1 : 0;
        kind.sources.insert(row.source);
    }
    EXPECT_EQ(kinds.size(), 3u);
    const std::string docs = Docs();
    for (const auto& [name, kind] : kinds) {
        const double share = kind.within / kind.rows;
        const auto sources = static_cast<double>(kind.sources.size());
        const double most = 2 * std::sqrt(kWithin * (1 - kWithin) / sources);
        EXPECT_FALSE(!(std::abs(share - kWithin) <= most)) << name << ": " << share;
        const std::string line =
            fmt::format("{:.0f} % of {} held-out rows of {}", share * 100, kind.rows, name);
        EXPECT_NE(docs.find(line), std::string::npos) << "docs/plan.md lacks: " << line;
    }
}

// Where it doesn't, one of the two says why.
TEST_F(PublishedRows, TheRightOneWins) {
    const auto wins = PublishedWins();
    ASSERT_TRUE(wins.ok());
    EXPECT_GT(wins->size(), 45u);
    std::map<std::string, const HeldRow*> by_id;
    for (const HeldRow& row : *rows_) by_id[row.id] = &row;
    int right = 0;
    for (const auto& [faster, slower] : *wins) {
        const HeldRow &a = *by_id.at(faster), &b = *by_id.at(slower);
        ASSERT_EQ(a.unit, b.unit);
        const bool seconds = a.unit == "s an update";
        EXPECT_EQ(a.published > b.published, !seconds) << faster;
        const bool wins_too = (a.predicted.value > b.predicted.value) != seconds;
        right += wins_too;
        EXPECT_TRUE(wins_too || !a.odd.empty() || !b.odd.empty())
            << faster << " " << a.predicted.value << ", " << slower << " " << b.predicted.value;
    }
    const std::string line = fmt::format("right winner in {} of {}", right, wins->size());
    EXPECT_NE(Docs().find(line), std::string::npos) << "docs/plan.md lacks: " << line;
}

}  // namespace
}  // namespace weft::plan
