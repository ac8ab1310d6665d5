// Mistral Large 4 as a folder against transformers' logits
// (tests/data/hf/mistralLarge4.safetensors): with every kernel table, in chunks, on tensor ranks
// and on pipeline stages split before, at and after layers whose latents other layers read, and
// from the GGUF file made from the folder.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "coll/comm.h"
#include "model_files/hf/folder.h"
#include "quantize/quantize.h"
#include "support/hf_folder.h"
#include "support/hf_quantize.h"
#include "support/loaded_rank.h"
#include "support/ranks.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

constexpr const char* kLarge4 = "mistralLarge4";
// Some 90 ops in a row, each a sum of at most 192 float32 products: 90 * sqrt(192) * 2^-24.
constexpr double kLarge4Float32 = 7.5e-5;

class MistralLarge4 : public testing::Test {
  protected:
    void SetUp() override {
        const HfGolden golden;
        golden.Write(kLarge4, dir_ / "model");
        WriteText(dir_ / "model/tokenizer.json", SmallTokenizer());
        source_ = model_files::hf::OpenFolder(dir_ / "model").value();
        tokens_ = golden.Tokens(kLarge4);
        expected_ = golden.Floats(kLarge4 + std::string("/logits"));
    }
    // Logits of the first rank; all tensor ranks must agree.
    std::vector<float> Logits(const model::Layout& layout, CpuLevel level, size_t piece,
                              DType kv = DType::kF32) const {
        const model::Hyper hyper = model::ReadHyper(*source_).value();
        model::BuildOptions build;
        build.kv_dtype = kv;
        const std::vector<program::Program> programs = Build(hyper, *source_, layout, build);
        const backend::CpuOptions options{1, {}, true, level};
        if (layout.size() == 1) {
            return LoadedRank(programs.at(0), *source_, options).Logits(tokens_, piece);
        }
        const int ranks = layout.size();
        auto fabrics = net::MakeLocalFabrics(ranks, net::Transport::kShm, size_t{1} << 20).value();
        std::vector<std::vector<float>> got(programs.size());
        test::OnThreads(fabrics, [&](net::Fabric& fabric) {
            std::vector<int> all(static_cast<size_t>(ranks));
            std::iota(all.begin(), all.end(), 0);
            const auto comm =
                coll::Comm::Make(fabric, all, {0, size_t{1} << 20, 0, net::kFlags}, 10'000).value();
            const auto r = static_cast<size_t>(fabric.rank);
            LoadedRank rank(programs[r], *source_, options);
            OneGroup group(*comm);
            if (fabric.rank < layout.tp) {
                got[r] = rank.Logits(tokens_, piece, group.groups);
                return;
            }
            for (size_t at = 0; at < tokens_.size(); at += piece) {
                const size_t count = std::min(piece, tokens_.size() - at);
                const auto some = std::span(tokens_).subspan(at, count);
                EXPECT_TRUE(rank.Run(some, static_cast<int64_t>(at), group.groups).ok());
            }
        });
        if (layout.pp == 1) {
            for (const std::vector<float>& logits : got) EXPECT_EQ(logits, got[0]);
        }
        return got[0];
    }
    double Error(const std::vector<float>& logits) const {
        if (logits.size() != expected_.size()) return NAN;
        double difference = 0, all = 0;
        for (size_t i = 0; i < expected_.size(); ++i) {
            difference += std::pow(static_cast<double>(logits[i]) - expected_[i], 2);
            all += std::pow(static_cast<double>(expected_[i]), 2);
        }
        return std::sqrt(difference / all);
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    std::vector<int32_t> tokens_;
    std::vector<float> expected_;
    const CpuLevel best_ = BestCpuLevel(DetectCpu());
};

TEST_F(MistralLarge4, KernelsOfEveryTableInAnyChunks) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const std::vector<float> whole = Logits({}, level, 64);
        EXPECT_FALSE(!(Error(whole) <= kLarge4Float32)) << CpuLevelName(level) << Error(whole);
        EXPECT_EQ(Logits({}, level, 1), whole) << CpuLevelName(level);
        EXPECT_EQ(Logits({}, level, 5), whole) << CpuLevelName(level);
    }
}

TEST_F(MistralLarge4, TensorRanks) {
    for (const auto& [tp, shares] : {std::pair{2, std::vector<double>{}}, {3, {1, 3, 2}}}) {
        const auto got = Logits(model::MakeLayout(tp, tp, 1, shares).value(), best_, 64);
        EXPECT_FALSE(!(Error(got) <= kLarge4Float32)) << tp << ": " << Error(got);
    }
}

TEST_F(MistralLarge4, StagesHandOnSharedLatents) {
    const std::vector<float> one = Logits({}, best_, 64);
    for (const std::vector<double>& cut : {std::vector<double>{2, 4}, {3, 3}, {5, 1}}) {
        EXPECT_EQ(Logits({1, 2, {}, cut}, best_, 5), one) << "the first stage has " << cut[0];
    }
    EXPECT_EQ(Logits({1, 3, {}, {}}, best_, 64), one);
}

TEST_F(MistralLarge4, TheGgufFileIsTheSameModel) {
    const std::vector<float> folder = Logits({}, best_, 64);
    quantize::QuantizeOptions options;
    options.type = quantize::FindFileType("f32").value();
    const auto plan = quantize::PlanQuantize(*source_, options);
    ASSERT_TRUE(plan.ok()) << plan.error().message;
    ASSERT_TRUE(quantize::WriteQuantized(*source_, *plan, dir_ / "model.gguf", {}).ok());
    source_ = model_files::OpenModel(dir_ / "model.gguf").value();
    EXPECT_EQ(Logits({}, best_, 64), folder);
}

}  // namespace
}  // namespace weft::support
