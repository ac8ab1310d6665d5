// Published measurements of inference (tests/data/plan/rows.json), on which runtimes were fitted:
// how far predictions are off, that docs/plan.md says just that, and who wins.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "plan/predict.h"
#include "plan/shapes.h"
#include "support/paths.h"

namespace weft::plan {
namespace {

struct PublishedRow {
    std::string id;
    double published = 0, predicted = 0;
    double error() const { return predicted / published - 1; }
    std::string Line() const {
        return fmt::format("| {} | {:.1f} | {:.1f} | {:+.1f} % |", id, published, predicted,
                           error() * 100);
    }
};

std::map<std::string, PublishedRow> PredictRows() {
    const auto text = ReadTextFile(support::TestData("/plan/rows.json"));
    EXPECT_TRUE(text.ok());
    const auto library = Library::Open();
    std::map<std::string, PublishedRow> rows;
    for (const auto& json : nlohmann::json::parse(*text)) {
        const auto source = OpenShape(json["model"]);
        EXPECT_TRUE(source.ok()) << source.error().message;
        const auto walk = ModelWalk::Make(**source, DType::kF16);
        const auto cluster = library->ParseCluster(json["machines"]);
        const auto runtime = library->FindRuntime(json["runtime"]);
        model::Layout layout;
        layout.tp = json["tp"];
        layout.pp = json["pp"];
        const auto p = Predict(*walk, *cluster, *runtime, layout, {json["context"], 1, 0, 512});
        EXPECT_TRUE(p.ok()) << p.error().message;
        EXPECT_TRUE(p->fits()) << json;
        rows[json["id"]] = {json["id"], json["tok_s"], p->tok_s};
    }
    return rows;
}

TEST(Rows, ErrorsAreThoseOfTheDocs) {
    const auto docs = ReadTextFile(support::TestData("/../../docs/plan.md"));
    ASSERT_TRUE(docs.ok());
    const auto rows = PredictRows();
    EXPECT_EQ(rows.size(), 11u);
    for (const auto& [id, row] : rows) {
        EXPECT_NE(docs->find(row.Line()), std::string::npos)
            << "docs/plan.md lacks: " << row.Line();
        EXPECT_LT(std::abs(row.error()), 0.07) << id;  // as far as a fitted figure may be off
    }
}

TEST(Rows, TheRightOneWins) {
    const auto rows = PredictRows();
    for (const auto& [faster, slower] : std::initializer_list<std::pair<const char*, const char*>>{
             {"s000-2-rdma", "s000-2-tcp"},
             {"lhl-gpt-oss-120b-1", "lhl-gpt-oss-120b-2"},
             {"exo-qwen3-235b-a22b-2", "exo-qwen3-235b-a22b-1"},
             {"spark-graphs", "spark-eager"}}) {
        EXPECT_GT(rows.at(faster).published, rows.at(slower).published);
        EXPECT_GT(rows.at(faster).predicted, rows.at(slower).predicted) << faster;
    }
}

}  // namespace
}  // namespace weft::plan
