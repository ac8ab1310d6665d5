// NVFP4 tensors of GGUF files against gguf-py (tests/data/gguf_nvfp4.gguf, made by
// tools/make_gguf_nvfp4_golden.py).
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/file.h"
#include "model_files/gguf.h"
#include "model_files/gguf_writer.h"
#include "model_files/nvfp4.h"
#include "support/paths.h"
#include "support/temp_dir.h"
#include "tensor/quant.h"

namespace weft::model_files {
namespace {

const std::string kGolden = support::TestData("/gguf_nvfp4.gguf");

TEST(GgufNvfp4, ScalesAreFoldedIn) {
    const Result<Gguf> gguf = Gguf::Open(kGolden);
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    EXPECT_EQ(gguf->FindTensor("b.scale"), nullptr);
    EXPECT_EQ(gguf->FindTensor("b.input_scale"), nullptr);
    for (const std::string name : {"a", "b", "c"}) {
        const TensorInfo* tensor = gguf->FindTensor(name + ".weight");
        ASSERT_NE(tensor, nullptr);
        EXPECT_EQ(tensor->dtype, DType::kNVFP4);
        const Result<std::vector<float>> values = gguf->ReadFloats(*tensor);
        ASSERT_TRUE(values.ok()) << values.error().message;
        const auto expected = gguf->ReadFloats(*gguf->FindTensor(name + ".expected"));
        ASSERT_EQ(values->size(), expected->size());
        for (size_t i = 0; i < values->size(); ++i) {
            const float most = name == "a" ? 0 : 0x1p-22f * std::fabs((*expected)[i]);
            ASSERT_TRUE(std::fabs((*values)[i] - (*expected)[i]) <= most) << name << " " << i;
        }
    }
}

TEST(GgufNvfp4, RowsAndColumnsAreThoseOfTheWhole) {
    const Result<Gguf> gguf = Gguf::Open(kGolden);
    ASSERT_TRUE(gguf.ok());
    const TensorInfo& tensor = *gguf->FindTensor("c.weight");
    const Result<std::vector<float>> whole = gguf->ReadFloats(tensor);
    for (int64_t row = 0; row < tensor.rows; ++row) {
        for (int64_t rows = 1; row + rows <= tensor.rows; rows += 2) {
            std::vector<std::byte> raw(static_cast<size_t>(rows * RowBytes(tensor.dtype, 64)));
            uint64_t bytes = 0;
            ASSERT_TRUE(gguf->ReadRows(tensor, row, rows, 64, 64, raw, &bytes).ok());
            EXPECT_EQ(bytes, static_cast<uint64_t>(rows * 36));
            std::vector<float> floats(static_cast<size_t>(rows * 64));
            DequantizeRow(tensor.dtype, raw, floats);
            for (int64_t i = 0; i < rows * 64; ++i) {
                const int64_t at = (row + i / 64) * 128 + 64 + i % 64;
                ASSERT_EQ(floats[static_cast<size_t>(i)], (*whole)[static_cast<size_t>(at)]);
            }
        }
    }
}

TEST(GgufNvfp4, NonFiniteScalesAreNamed) {
    const auto bytes = ReadTextFile(kGolden);
    ASSERT_TRUE(bytes.ok());
    const Result<Gguf> gguf = Gguf::Open(kGolden);
    const test::TempDir dir;
    for (const auto& [name, value] : {std::pair{"a.weight", 0x7f}, std::pair{"a.weight", 0x81}}) {
        auto broken = *bytes;
        broken[gguf->FindTensor(name)->offset + 36] = static_cast<char>(value);
        const std::string path = dir / "broken.gguf";
        ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(broken))).ok());
        const Result<Gguf> opened = Gguf::Open(path);
        ASSERT_TRUE(opened.ok());
        const auto values = opened->ReadFloats(*opened->FindTensor(name));
        ASSERT_FALSE(values.ok());
        EXPECT_NE(values.error().message.find("tensor 'a.weight': row 0: a scale of 16 weights"),
                  std::string::npos)
            << values.error().message;
    }
}

// A file of NVFP4 tensors [2, 64] of zeros; some have a scale.
std::vector<std::byte> FileOf(const std::vector<std::pair<std::string, bool>>& tensors) {
    GgufWriter writer;
    for (const auto& [name, has_scale] : tensors) {
        // Q4_0 has the same number of bytes; the type is replaced below.
        writer.Tensor(name + ".weight", DType::kQ4_0, std::vector<int64_t>{64, 2},
                      std::vector<std::byte>(2 * 36));
        const std::vector<float> scale = {2};
        if (!has_scale) continue;
        const auto bytes = std::as_bytes(std::span(scale));
        writer.Tensor(name + ".scale", DType::kF32, std::vector<int64_t>{1},
                      {bytes.begin(), bytes.end()});
    }
    std::vector<std::byte> file = writer.File();
    for (const auto& [name, has_scale] : tensors) {
        const std::string text = name + ".weight";
        const auto found = std::ranges::search(file, std::as_bytes(std::span(text)));
        const std::byte* dims = &*found.begin() + text.size();
        std::byte* type = file.data() + (dims - file.data()) + 4 + 2 * 8;
        *type = std::byte{kGgufNvfp4};
    }
    return file;
}

TEST(GgufNvfp4, ScaleMissingInOneLayerIsAnError) {
    const test::TempDir dir;
    const std::string path = dir / "model.gguf";
    const auto error_of = [&](const std::vector<std::pair<std::string, bool>>& tensors) {
        EXPECT_TRUE(WriteFile(path, FileOf(tensors)).ok());
        const Result<Gguf> gguf = Gguf::Open(path);
        return gguf.ok() ? std::string() : gguf.error().message;
    };
    EXPECT_EQ(error_of({{"blk.0.a", true}, {"blk.1.a", true}, {"output", false}}), "");
    EXPECT_EQ(error_of({{"blk.0.a", false}, {"blk.1.a", false}, {"output", true}}), "");
    for (const int without : {0, 11}) {
        const std::string missing = "blk." + std::to_string(without) + ".a";
        const std::string error = error_of({{"blk.0.a", without != 0}, {"blk.11.a", without == 0}});
        EXPECT_NE(error.find("'" + missing + ".weight' has no '" + missing + ".scale'"),
                  std::string::npos)
            << error;
    }
}

}  // namespace
}  // namespace weft::model_files
