// Encoders (tests/data/encoders, made by tools/make_encoder_golden.py) against transformers' hidden
// states and scores: kernels of every table, tensor ranks, stages, several texts in a step, and the
// GGUF file made from the folder.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "coll/comm.h"
#include "engine/batch/pooling.h"
#include "model_files/embedding_head.h"
#include "model_files/hf/folder.h"
#include "quantize/quantize.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/interpreter.h"
#include "support/loaded_rank.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

using Rows = std::vector<float>;

struct Text {
    std::vector<int32_t> tokens;
    int32_t second = -1;
};

class Encoders : public testing::TestWithParam<std::string> {
  protected:
    void SetUp() override {
        const HfGolden golden(TestData("/encoders/" + GetParam() + ".safetensors"));
        golden.Write(GetParam(), dir_ / "model");
        WriteText(dir_ / "model/tokenizer.json", SmallTokenizer());
        auto source = model_files::hf::OpenFolder(dir_ / "model");
        ASSERT_TRUE(source.ok()) << source.error().message;
        source_ = std::move(*source);
        const auto hyper = model::ReadHyper(*source_);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        hyper_ = *hyper;
        text_.tokens = golden.Tokens(GetParam());
        if (hyper_.token_types > 1) {
            text_.second = static_cast<int32_t>(golden.Floats(GetParam() + "/second")[0]);
        }
        expected_ = golden.Floats(GetParam() + "/hidden");
        if (golden.Has(GetParam() + "/score")) score_ = golden.Floats(GetParam() + "/score");
    }

    // The largest distance of a row from transformers' row, relative to its length.
    double Error(const Rows& rows) const {
        if (rows.size() != expected_.size()) return INFINITY;
        double most = 0;
        const auto width = static_cast<size_t>(hyper_.hidden);
        for (size_t at = 0; at < rows.size(); at += width) {
            double error = 0, size = 0;
            for (size_t i = at; i < at + width; ++i) {
                error += std::pow(double{rows[i]} - double{expected_[i]}, 2);
                size += std::pow(double{expected_[i]}, 2);
            }
            const double own = std::sqrt(error / size);
            most = own <= most ? most : own;  // NaN stays
        }
        return most;
    }

    std::vector<program::Program> Programs(const model::Layout& layout) const {
        model::BuildOptions build;
        build.kv_dtype = DType::kF32;
        build.outputs = model::Outputs::kHidden;
        return Build(hyper_, *source_, layout, build);
    }

    // Hidden states of the texts, all in one step; empty for stages after the first.
    Rows Run(LoadedRank& rank, const program::Program& program, const std::vector<Text>& texts,
             const backend::Communicators& groups = {}) const {
        std::vector<int32_t> tokens, positions;
        std::vector<int32_t> pages(texts.size());
        std::vector<backend::StepSequence> sequences;
        for (size_t i = 0; i < texts.size(); ++i) {
            pages[i] = static_cast<int32_t>(texts.size() - i);
            const auto rows = static_cast<int32_t>(texts[i].tokens.size());
            backend::StepSequence sequence{static_cast<int32_t>(tokens.size()), rows, 0,
                                           std::span(pages).subspan(i, 1)};
            sequence.second = texts[i].second;
            sequences.push_back(sequence);
            tokens.insert(tokens.end(), texts[i].tokens.begin(), texts[i].tokens.end());
            for (int32_t row = 0; row < rows; ++row) positions.push_back(row);
        }
        backend::Executable& executable = rank.executable();
        const Status status =
            executable.Run(executable.whole(), {1, tokens, positions, sequences, {}}, groups);
        EXPECT_TRUE(status.ok()) << (status.ok() ? "" : status.error().message);
        const program::ValueId hidden = program.Find("hidden");
        if (!status.ok() || hidden == program::kNoValue) return {};
        Rows rows(tokens.size() * static_cast<size_t>(hyper_.hidden));
        EXPECT_TRUE(executable.ReadFloats(hidden, 0, rows).ok());
        return rows;
    }
    Rows OneRank(CpuLevel level, const std::vector<Text>& texts) const {
        const program::Program program = Programs({}).at(0);
        LoadedRank rank(program, *source_, {1, {}, true, level});
        return Run(rank, program, texts);
    }
    // Returns the rows of rank 0.
    Rows Ranks(const model::Layout& layout, backend::Overlap overlap) const {
        const std::vector<program::Program> programs = Programs(layout);
        std::vector<Rows> got(programs.size());
        const auto count = static_cast<int>(programs.size());
        auto fabrics = net::MakeLocalFabrics(count, net::Transport::kShm, size_t{1} << 20).value();
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            std::vector<int> ranks(programs.size());
            std::iota(ranks.begin(), ranks.end(), 0);
            const coll::Channel channel{0, size_t{1} << 20, 0, net::kFlags};
            const auto comm = coll::Comm::Make(fabric, ranks, channel, 10'000).value();
            const auto r = static_cast<size_t>(fabric.rank);
            const CpuLevel best = BestCpuLevel(DetectCpu());
            OneGroup group(*comm);
            LoadedRank rank(programs[r], *source_, {1, {}, true, best}, 64, overlap);
            got[r] = Run(rank, programs[r], {text_}, group.groups);
        });
        return got.at(0);
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    model::Hyper hyper_;
    Text text_;
    Rows expected_, score_;
};

INSTANTIATE_TEST_SUITE_P(All, Encoders, testing::ValuesIn(CasesIn("/encoders")),
                         [](const auto& one) { return one.param; });

constexpr double kClose = 1e-5;

TEST_P(Encoders, KernelsOfEveryTable) {
    for (const CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const double error = Error(OneRank(level, {text_}));
        EXPECT_TRUE(error <= kClose) << CpuLevelName(level) << ": " << error;
    }
}

// The rows of a text have the same bits beside other texts, which they do not see.
TEST_P(Encoders, TextsInOneStepDoNotMix) {
    const CpuLevel best = BestCpuLevel(DetectCpu());
    const Text shorter{{7, 9, 11, 30, 31}, -1};
    const Rows alone = OneRank(best, {text_}), other = OneRank(best, {shorter});
    Rows both = OneRank(best, {shorter, text_});
    ASSERT_EQ(both.size(), alone.size() + other.size());
    EXPECT_TRUE(std::equal(other.begin(), other.end(), both.begin()));
    both.erase(both.begin(), both.begin() + std::ssize(other));
    EXPECT_EQ(both, alone);
}

TEST_P(Encoders, TensorRanksAndStages) {
    for (const model::Layout& layout :
         {model::Layout{2, 1, {}, {}}, {3, 1, {}, {}}, {1, 2, {}, {}}, {2, 2, {}, {}}}) {
        if (layout.tp > 1 && layout.pp > 1) continue;  // needs two groups
        for (const auto overlap : {backend::Overlap::kNever, backend::Overlap::kAlways}) {
            const double error = Error(Ranks(layout, overlap));
            EXPECT_TRUE(error <= kClose) << layout.tp << " x " << layout.pp << ": " << error;
        }
    }
}

TEST_P(Encoders, Scores) {
    const auto head = model_files::ReadEmbeddingHead(*source_);
    ASSERT_TRUE(head.ok()) << head.error().message;
    ASSERT_EQ(head->scores, !score_.empty());
    if (score_.empty()) return;
    engine::Pooler pooler(head->poolings, std::ssize(text_.tokens), hyper_.hidden);
    pooler.Add(OneRank(BestCpuLevel(DetectCpu()), {text_}), 0);
    const auto score = head->Apply(pooler.Finish().value());
    ASSERT_TRUE(score.ok() && score->size() == 1);
    EXPECT_NEAR(score->at(0), score_[0], 1e-5 * std::max(1.0f, std::fabs(score_[0])));
}

// The F32 file that `weft quantize` makes of the folder is the same model.
TEST_P(Encoders, AsGguf) {
    const CpuLevel best = BestCpuLevel(DetectCpu());
    const Rows folder = OneRank(best, {text_});
    const auto before = model_files::ReadEmbeddingHead(*source_).value();
    quantize::QuantizeOptions options;
    options.type = quantize::FindFileType("F32").value();
    const auto plan = quantize::PlanQuantize(*source_, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    const std::string path = dir_ / "model.gguf";
    const auto written = quantize::WriteQuantized(*source_, *plan, path, {});
    ASSERT_TRUE(written.ok()) << written.error().message;
    source_ = model_files::OpenModel(path).value();
    const auto hyper = model::ReadHyper(*source_);
    ASSERT_TRUE(hyper.ok()) << hyper.error().message;
    hyper_ = *hyper;
    EXPECT_EQ(OneRank(best, {text_}), folder);
    const auto head = model_files::ReadEmbeddingHead(*source_);
    ASSERT_TRUE(head.ok()) << head.error().message;
    EXPECT_EQ(head->scores, before.scores);
    EXPECT_EQ(head->poolings, before.poolings);
}

TEST_P(Encoders, WriteNoText) {
    const model::ShardPlan plan = model::PlanShards(hyper_, *source_, {}).value();
    for (const bool cache : {true, false}) {  // false: training
        model::BuildOptions build;
        build.cache = cache;
        const auto refused = model::BuildProgram(hyper_, plan.shards[0], *source_, build);
        ASSERT_FALSE(refused.ok());
        EXPECT_NE(refused.error().message.find("no text"), std::string::npos)
            << refused.error().message;
    }
}

}  // namespace
}  // namespace weft::support
