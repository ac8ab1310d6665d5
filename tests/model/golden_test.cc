// Every architecture's Programs against transformers, in every layout. The interpreter runs them in
// double, so that only the construction of the Program can cause differences.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "support/golden_models.h"
#include "support/interpreter.h"
#include "support/nightly.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

using program::Storage;
using program::ValueId;

class GoldenModel : public testing::TestWithParam<GoldenCase> {
  protected:
    void SetUp() override {
        const std::string path = dir_ / "golden.gguf";
        WriteGolden(GetParam(), path);
        source_ = model_files::OpenModel(path).value();
        tokens_ = GoldenTokens(GetParam());
        expected_ = Golden(GetParam().name + std::string("/logits"));
    }

    // The weights, tokens and positions of one rank.
    void Bind(World<double>& world, size_t rank) {
        const program::Program& program = world.program(rank);
        for (size_t i = 0; i < program.values.size(); ++i) {
            const program::Value& value = program.values[i];
            std::vector<double>& to = world.at(rank, static_cast<ValueId>(i));
            if (value.storage == Storage::kWeight) to = Read(value);
            if (value.name == "tokens") to.assign(tokens_.begin(), tokens_.end());
            if (value.name != "positions" && value.name != "output_rows") continue;
            for (size_t row = 0; row < tokens_.size(); ++row) {
                to.push_back(static_cast<double>(row));
            }
        }
    }

    std::vector<double> Read(const program::Value& value) const {
        const model_files::TensorInfo* info = source_->FindTensor(value.slice.name);
        const std::vector<float> all = source_->ReadFloats(*info).value();
        const bool vector = value.shape.rank == 1;
        const int64_t rows = vector ? 1 : value.shape[0];
        const int64_t cols = vector ? value.shape[0] : value.shape[value.shape.rank - 1];
        const int64_t first_row = vector ? 0 : program::FileRow(value, 0);
        const int64_t first_col = vector ? value.slice.row_begin : value.slice.col_begin;
        std::vector<double> part;
        for (int64_t row = first_row; row < first_row + rows; ++row) {
            const auto begin = all.begin() + row * info->cols + first_col;
            part.insert(part.end(), begin, begin + cols);
        }
        return part;
    }

    void Check(const model::Layout& layout) {
        const auto hyper = model::ReadHyper(*source_);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        model::BuildOptions options;
        options.context = 64;  // the page that holds the tokens
        World<double> world(Build(*hyper, *source_, layout, options), layout.tp);
        for (size_t rank = 0; rank < world.size(); ++rank) Bind(world, rank);
        const auto rows = static_cast<int32_t>(tokens_.size());
        ASSERT_EQ(world.Run(rows, rows, {{0, rows, 0, {}}}), "");
        const ValueId id = world.program(0).Find("logits");
        ASSERT_NE(id, program::kNoValue);
        const std::vector<double>& logits = world.at(0, id);
        ASSERT_EQ(logits.size(), expected_.size());
        double difference = 0, size = 0;
        for (size_t i = 0; i < logits.size(); ++i) {
            difference += (logits[i] - expected_[i]) * (logits[i] - expected_[i]);
            size += double{expected_[i]} * expected_[i];
        }
        // transformers computes RoPE and norms in float32, and the file is float32.
        EXPECT_LE(std::sqrt(difference / size), 2e-6) << layout.tp << " x " << layout.pp;
    }

    // Spreads layouts over the models of the daily suite.
    static size_t Turn() { return std::string_view(GetParam().name).size(); }

    // "hidden" times the output matrix equals transformers' logits.
    void CheckHidden(const model::Layout& layout, model::Outputs outputs) {
        const model::Hyper hyper = model::ReadHyper(*source_).value();
        model::BuildOptions options;
        options.context = 64;
        options.outputs = outputs;
        World<double> world(Build(hyper, *source_, layout, options), layout.tp);
        for (size_t rank = 0; rank < world.size(); ++rank) Bind(world, rank);
        const auto rows = static_cast<int32_t>(tokens_.size());
        ASSERT_EQ(world.Run(rows, rows, {{0, rows, 0, {}}}), "");
        const bool both = outputs == model::Outputs::kBoth;
        EXPECT_EQ(world.program(0).Find("logits") != program::kNoValue, both);
        const ValueId id = world.program(0).Find("hidden");
        ASSERT_NE(id, program::kNoValue);
        const std::vector<double>& hidden = world.at(0, id);
        const auto columns = static_cast<size_t>(hyper.hidden);
        ASSERT_EQ(hidden.size(), tokens_.size() * columns);
        const char* name = hyper.tied ? "token_embd.weight" : "output.weight";
        const std::vector<float> matrix = source_->ReadFloats(*source_->FindTensor(name)).value();
        const size_t vocab = matrix.size() / columns;
        double difference = 0, size = 0;
        for (size_t i = 0; i < expected_.size(); ++i) {
            double logit = 0;
            for (size_t k = 0; k < columns; ++k) {
                logit += hidden[i / vocab * columns + k] * matrix[i % vocab * columns + k];
            }
            logit *= double{hyper.logit_scale};
            const double cap = double{hyper.logit_cap};
            if (cap != 0) logit = cap * std::tanh(logit / cap);
            difference += (logit - expected_[i]) * (logit - expected_[i]);
            size += double{expected_[i]} * expected_[i];
        }
        EXPECT_LE(std::sqrt(difference / size), 2e-6) << layout.tp << " x " << layout.pp;
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    std::vector<int> tokens_;
    std::vector<float> expected_;
};

INSTANTIATE_TEST_SUITE_P(All, GoldenModel, testing::ValuesIn(GoldenCases()),
                         [](const auto& test) { return std::string(test.param.name); });

TEST_P(GoldenModel, OnOneRank) {
    Check({});
}
TEST_P(GoldenModel, InEveryLayout) {
    const std::vector<model::Layout> layouts = {
        {1, 2, {}, {}}, {2, 2, {}, {}}, {3, 2, {5, 1, 2}, {}}, {2, 1, {}, {}}, {3, 1, {}, {}}};
    for (const model::Layout& layout : test::Some(layouts, 3, Turn())) Check(layout);
}
TEST_P(GoldenModel, HiddenStates) {
    const std::vector<std::pair<model::Layout, model::Outputs>> cases = {
        {{}, model::Outputs::kBoth},
        {{2, 1, {}, {}}, model::Outputs::kBoth},
        {{3, 1, {}, {}}, model::Outputs::kHidden},
        {{2, 2, {}, {}}, model::Outputs::kHidden},
        {{1, 2, {}, {}}, model::Outputs::kHidden}};
    for (const auto& [layout, outputs] : test::Some(cases, 5, Turn())) CheckHidden(layout, outputs);
}

}  // namespace
}  // namespace weft::support
