// Published measurements of training (tests/data/plan/training_rows.json), on which machines were
// fitted: how far predictions are off, that docs/plan.md says just that, and who wins.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "plan/shapes.h"
#include "plan/train_search.h"
#include "support/paths.h"

namespace weft::plan {
namespace {

using nlohmann::json;

struct TrainingRow {
    std::string unit;
    double published = 0, predicted = 0;
    double error() const { return predicted / published - 1; }
    std::string Line(const std::string& id) const {
        return fmt::format("| {} | {} {} | {:.{}f} | {:+.1f} % |", id, published, unit, predicted,
                           published < 100 ? 2 : 0, error() * 100);
    }
};

Result<std::unique_ptr<model_files::ModelSource>> ModelOf(const json& row) {
    if (row.contains("model")) return OpenShape(row["model"]);
    json config = row["shape"];
    config["model_type"] = "llama";
    config["num_key_value_heads"] = config["num_attention_heads"];
    config["rms_norm_eps"] = 1e-5;
    config["max_position_embeddings"] = 4096;
    config["tie_word_embeddings"] = true;
    return MakeShape(config.dump(), row["id"], "");
}

TrainPrediction PredictRow(const json& row, const Library& library) {
    const auto source = ModelOf(row);
    EXPECT_TRUE(source.ok()) << source.error().message;
    const auto model = ModelWalk::Make(**source, DType::kF16);
    TrainJob job;
    job.style = *FindTrainStyle(row["as"]);
    job.sequence = row["seq_len"];
    auto walk = TrainWalk::Make(*model, job);
    const auto cluster = library.ParseCluster(row["machines"]);
    EXPECT_TRUE(cluster.ok()) << cluster.error().message;
    const TrainLinks links(*cluster);
    TrainCut cut;
    cut.tp = row.value("tp", 1);
    cut.pp = row.value("pp", 1);
    cut.dp = links.ranks() / (cut.tp * cut.pp);
    cut.zero = row.value("zero", 0);
    cut.virtual_stages = row.value("virtual_stages", 1);
    cut.micro_batch = row["micro_batch"];
    cut.accumulation = row.value("grad_accum", 1);
    const bool full = row["recompute"] == "full";
    cut.recompute = full ? program::Recompute::kFull : program::Recompute::kNone;
    const auto prediction = PredictTraining(*walk, links, cut, {});
    EXPECT_TRUE(prediction.ok()) << prediction.error().message;
    return *prediction;
}

std::map<std::string, TrainingRow> PredictTrainingRows() {
    const auto text = ReadTextFile(support::TestData("/plan/training_rows.json"));
    EXPECT_TRUE(text.ok());
    const auto library = Library::Open();
    std::map<std::string, TrainingRow> rows;
    for (const json& row : json::parse(*text)) {
        const TrainPrediction p = PredictRow(row, *library);
        EXPECT_TRUE(p.fits()) << row["id"];
        TrainingRow& out = rows[row["id"]];
        out.unit = row["unit"];
        out.published = row["published"];
        out.predicted =
            out.unit == "s an update"       ? p.update_s
            : out.unit == "tokens/s a rank" ? p.tokens_per_s / p.cut.ranks()
            : out.unit == "TFLOP/s a rank"
                ? p.flops / p.update_s / p.cut.ranks() * 1e-12
                : std::ceil(row["epoch"].get<double>() / static_cast<double>(p.cut.sequences())) *
                      p.update_s;
    }
    return rows;
}

TEST(TrainingRows, ErrorsAreThoseOfTheDocs) {
    const auto docs = ReadTextFile(support::TestData("/../../docs/plan.md"));
    ASSERT_TRUE(docs.ok());
    const auto rows = PredictTrainingRows();
    EXPECT_EQ(rows.size(), 11u);
    std::vector<double> errors;
    for (const auto& [id, row] : rows) {
        EXPECT_NE(docs->find(row.Line(id)), std::string::npos)
            << "docs/plan.md lacks: " << row.Line(id);
        errors.push_back(std::abs(row.error()));
    }
    std::ranges::sort(errors);
    EXPECT_LT(errors[errors.size() / 2], 0.07);
    EXPECT_LT(errors.back(), 0.13);
}

TEST(TrainingRows, TheRightOneWins) {
    const auto rows = PredictTrainingRows();
    // Seconds of an epoch: fewer are better.
    for (const auto& [faster, slower] : std::initializer_list<std::pair<const char*, const char*>>{
             {"metrum-8b-two-hosts-RoCE", "metrum-8b-two-hosts-TCP"},
             {"metrum-8b-two-hosts-TCP", "metrum-8b-one-host"},
             {"metrum-70b-two-hosts-RoCE", "metrum-70b-two-hosts-TCP"},
             {"metrum-70b-two-hosts-TCP", "metrum-70b-one-host"}}) {
        EXPECT_LT(rows.at(faster).published, rows.at(slower).published);
        EXPECT_LT(rows.at(faster).predicted, rows.at(slower).predicted) << faster;
    }
}

}  // namespace
}  // namespace weft::plan
