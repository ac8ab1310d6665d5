// Every architecture on the CPU backend against transformers: reference and fast kernels, whole
// prompts and pieces, one rank.
#include <gtest/gtest.h>

#include <algorithm>

#include "hw/cpu.h"
#include "support/golden_models.h"
#include "support/loaded_rank.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

class GoldenBackend : public testing::TestWithParam<GoldenCase> {
  protected:
    void SetUp() override {
        const std::string path = dir_ / "golden.gguf";
        WriteGolden(GetParam(), path);
        source_ = model_files::OpenModel(path).value();
        for (int token : GoldenTokens(GetParam())) tokens_.push_back(token);
        expected_ = Golden(GetParam().name + std::string("/logits"));
    }

    std::vector<float> Logits(CpuLevel level, DType kv_dtype, size_t piece) {
        model::BuildOptions options;
        options.kv_dtype = kv_dtype;
        options.context = 64;
        const model::Hyper hyper = model::ReadHyper(*source_).value();
        const program::Program program = Build(hyper, *source_, {}, options).at(0);
        backend::CpuOptions cpu;
        cpu.level = level;
        cpu.threads = 2;
        LoadedRank rank(program, *source_, cpu);
        return rank.Logits(tokens_, piece);
    }

    double Error(const std::vector<float>& logits) const {
        EXPECT_EQ(logits.size(), expected_.size());
        double difference = 0, size = 0;
        for (size_t i = 0; i < expected_.size(); ++i) {
            const double apart = double{logits[i]} - expected_[i];
            difference += apart * apart;
            size += double{expected_[i]} * expected_[i];
        }
        return std::sqrt(difference / size);
    }

    test::TempDir dir_;
    std::unique_ptr<model_files::ModelSource> source_;
    std::vector<int32_t> tokens_;
    std::vector<float> expected_;
};

INSTANTIATE_TEST_SUITE_P(All, GoldenBackend, testing::ValuesIn(GoldenCases()),
                         [](const auto& test) { return std::string(test.param.name); });

// Some 30 ops in a row, each a sum of at most 144 float32 products: 30 * sqrt(144) * 2^-24. The f16
// cache rounds to 2^-11. Rows have the same bits for any prefill chunks.
TEST_P(GoldenBackend, EqualsTransformers) {
    for (CpuLevel level : UsableCpuLevels(DetectCpu())) {
        const std::vector<float> exact = Logits(level, DType::kF32, 64);
        EXPECT_LE(Error(exact), 2.2e-5) << CpuLevelName(level);
        EXPECT_EQ(Logits(level, DType::kF32, 5), exact) << CpuLevelName(level);
        EXPECT_LE(Error(Logits(level, DType::kF16, 64)), 2e-3) << CpuLevelName(level);
    }
}

}  // namespace
}  // namespace weft::support
