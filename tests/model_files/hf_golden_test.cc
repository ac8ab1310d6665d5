// Hugging Face folders against transformers (tests/data/hf_golden.safetensors, made by
// tools/make_hf_golden.py): logits of the same files.
#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "model_files/hf/folder.h"
#include "support/hf_folder.h"
#include "support/loaded_rank.h"
#include "support/run_weft.h"
#include "support/temp_dir.h"

namespace weft::support {
namespace {

// The error of float32 sums over three layers.
constexpr double kBound = 5e-4;

// Reads of some rows and columns equal those parts of a full read.
void CheckSlices(const model_files::ModelSource& source) {
    std::mt19937 random(5);
    const auto below = [&](int64_t n) {
        return static_cast<int64_t>(random() % static_cast<uint64_t>(n));
    };
    for (const model_files::TensorInfo& t : source.tensors()) {
        std::vector<std::byte> whole(t.bytes), part;
        ASSERT_TRUE(source.ReadRows(t, 0, t.rows, 0, t.cols, whole, nullptr).ok()) << t.name;
        const int64_t unit = Info(t.dtype).block_elements;
        for (int repeat = 0; repeat < 8; ++repeat) {
            const int64_t row = below(t.rows), rows = 1 + below(t.rows - row);
            const int64_t col = below(t.cols / unit), cols = 1 + below(t.cols / unit - col);
            const auto row_bytes = static_cast<size_t>(RowBytes(t.dtype, cols * unit));
            part.resize(static_cast<size_t>(rows) * row_bytes);
            uint64_t read = 0;
            const Status status =
                source.ReadRows(t, row, rows, col * unit, cols * unit, part, &read);
            ASSERT_TRUE(status.ok()) << status.error().message;
            EXPECT_EQ(read, part.size());
            for (int64_t r = 0; r < rows; ++r) {
                const auto at = static_cast<size_t>((row + r) * RowBytes(t.dtype, t.cols) +
                                                    RowBytes(t.dtype, col * unit));
                ASSERT_EQ(std::memcmp(part.data() + static_cast<size_t>(r) * row_bytes,
                                      whole.data() + at, row_bytes),
                          0)
                    << t.name << " row " << row + r << " columns from " << col * unit;
            }
        }
    }
}

class HfFolder : public testing::TestWithParam<std::string> {
  protected:
    void Check(int shards) {
        const test::TempDir dir;
        const std::string folder = dir / "model";
        const HfGolden golden;
        golden.Write(GetParam(), folder, shards);
        const auto source = model_files::hf::OpenFolder(folder);
        ASSERT_TRUE(source.ok()) << source.error().message;
        const auto hyper = model::ReadHyper(**source);
        ASSERT_TRUE(hyper.ok()) << hyper.error().message;
        model::BuildOptions build;
        build.kv_dtype = DType::kF32;
        const auto plan = model::PlanShards(*hyper, **source, {});
        ASSERT_TRUE(plan.ok()) << plan.error().message;
        const auto program = model::BuildProgram(*hyper, plan->shards[0], **source, build);
        ASSERT_TRUE(program.ok()) << program.error().message;
        backend::CpuOptions options;
        options.level = CpuLevel::kReference;
        LoadedRank rank(*program, **source, options);
        const std::vector<int32_t> tokens = golden.Tokens(GetParam());
        const std::vector<float> expected = golden.Floats(GetParam() + "/logits");
        const std::vector<float> logits = rank.Logits(tokens, 5);
        ASSERT_EQ(logits.size(), expected.size());
        const size_t vocab = expected.size() / tokens.size();
        for (size_t row = 0; row < tokens.size(); ++row) {
            EXPECT_LE(RelativeL2(std::span(logits).subspan(row * vocab, vocab),
                                 std::span(expected).subspan(row * vocab, vocab)),
                      kBound)
                << "row " << row;
        }
    }
};

TEST_P(HfFolder, LogitsAreThoseOfTransformers) {
    Check(1);
}

TEST_P(HfFolder, ShardsAreTheSameModel) {
    Check(3);
}

TEST_P(HfFolder, AnySliceIsThatOfTheWhole) {
    const test::TempDir dir;
    HfGolden().Write(GetParam(), dir / "model");
    const auto source = model_files::hf::OpenFolder(dir / "model");
    ASSERT_TRUE(source.ok()) << source.error().message;
    CheckSlices(**source);
}

INSTANTIATE_TEST_SUITE_P(Golden, HfFolder, testing::ValuesIn(HfGolden().Cases()),
                         [](const auto& one) { return one.param; });

}  // namespace
}  // namespace weft::support
