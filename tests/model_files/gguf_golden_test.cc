// Files made by gguf-py (tools/make_gguf_golden.py): metadata of every type and tensors, whole
// and split.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "model_files/gguf.h"
#include "support/paths.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

const std::string kFolder = support::TestData();

void ExpectMetadata(const Metadata& meta) {
    EXPECT_EQ(*meta.String("general.architecture"), "llama");
    EXPECT_EQ(*meta.U64("test.u8"), 200u);
    EXPECT_EQ(*meta.Int("test.i8", -128, 127), -100);
    EXPECT_EQ(*meta.U64("test.u16"), 60000u);
    EXPECT_EQ(*meta.Int("test.i16", -32768, 0), -30000);
    EXPECT_EQ(*meta.U64("test.u32"), 4000000000u);
    EXPECT_EQ(*meta.Int("test.i32", INT32_MIN, 0), -2000000000);
    EXPECT_EQ(*meta.F64("test.f32"), static_cast<double>(0.1f));
    EXPECT_EQ(*meta.U64("test.u64"), (1ull << 63) + 1);
    EXPECT_EQ(*meta.Int("test.i64", INT64_MIN, 0), -(1ll << 62));
    EXPECT_EQ(*meta.F64("test.f64"), 0.1);
    EXPECT_TRUE(*meta.Bool("test.bool"));
    EXPECT_EQ(*meta.String("test.string"),
              "w\xc3\xa9"
              "ft \xf0\x9f\xa7\xb6");
    EXPECT_EQ(*meta.Ints("test.ints"), (std::vector<int64_t>{1, -2, 3}));
    EXPECT_EQ(*meta.Floats("test.floats"), (std::vector<float>{0.5f, -1.25f}));
    EXPECT_EQ(*meta.Strings("test.strings"),
              (std::vector<std::string_view>{"", "a", "\xe6\xbc\xa2\xe5\xad\x97"}));
    EXPECT_EQ(*meta.Ints("test.bools"), (std::vector<int64_t>{1, 0}));
}

struct Expected {
    const char* name;
    DType dtype;
    uint8_t first[4];  // as printed by the script
};
constexpr Expected kMatrices[] = {
    {"f16", DType::kF16, {0x0a, 0x15, 0xc8, 0x34}},
    {"bf16", DType::kBF16, {0xa1, 0x3a, 0x99, 0x3e}},
    {"q4_0", DType::kQ4_0, {0x09, 0x35, 0x48, 0x79}},
    {"q4_1", DType::kQ4_1, {0x1d, 0x34, 0x09, 0xc1}},
    {"q8_0", DType::kQ8_0, {0x13, 0x25, 0x00, 0x0f}},
};

void ExpectTensors(const Gguf& gguf) {
    ASSERT_EQ(gguf.tensors().size(), 6u);
    const TensorInfo* ramp = gguf.FindTensor("ramp");
    ASSERT_NE(ramp, nullptr);
    EXPECT_EQ(ramp->dim_count, 3);
    EXPECT_EQ(ramp->dims, (std::array<int64_t, 4>{4, 3, 2, 1}));
    const Result<std::vector<float>> values = gguf.ReadFloats(*ramp);
    ASSERT_TRUE(values.ok());
    for (size_t i = 0; i < 24; ++i) EXPECT_EQ((*values)[i], static_cast<float>(i));
    const Result<std::vector<float>> exact = gguf.ReadFloats(*gguf.FindTensor("bf16"));
    for (const Expected& expected : kMatrices) {
        const TensorInfo* tensor = gguf.FindTensor(expected.name);
        ASSERT_NE(tensor, nullptr) << expected.name;
        EXPECT_EQ(tensor->dtype, expected.dtype);
        EXPECT_EQ(tensor->cols, 64);
        EXPECT_EQ(tensor->rows, 3);
        std::vector<std::byte> raw(tensor->bytes);
        ASSERT_TRUE(gguf.ReadRows(*tensor, 0, 3, 0, 64, raw, nullptr).ok());
        EXPECT_EQ(std::memcmp(raw.data(), expected.first, 4), 0) << expected.name;
        // All tensors hold the same matrix: half a 4-bit step over a range of 6 is 0.25.
        const Result<std::vector<float>> floats = gguf.ReadFloats(*tensor);
        for (size_t i = 0; i < floats->size(); ++i) {
            EXPECT_LE(std::abs((*floats)[i] - (*exact)[i]), 0.25f) << expected.name << " " << i;
        }
    }
}

TEST(GgufGolden, ReadsFilesOfGgufPy) {
    const Result<Gguf> gguf = Gguf::Open(kFolder + "/gguf_golden.gguf");
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    ExpectMetadata(gguf->meta());
    ExpectTensors(*gguf);
}

TEST(GgufGolden, ReadsSplitFilesOfGgufPy) {
    for (const char* part : {"00001", "00002"}) {
        const Result<Gguf> gguf =
            Gguf::Open(fmt::format("{}/gguf_golden_split-{}-of-00002.gguf", kFolder, part));
        ASSERT_TRUE(gguf.ok()) << gguf.error().message;
        ExpectMetadata(gguf->meta());
        ExpectTensors(*gguf);
    }
    // A part whose name has a number that no part has.
    const test::TempDir folder;
    for (const char* part : {"00001", "00002"}) {
        const std::string name = fmt::format("gguf_golden_split-{}-of-00002.gguf", part);
        std::filesystem::copy_file(kFolder + "/" + name, folder / name);
    }
    for (const char* part : {"00000", "00003"}) {
        const std::string name = folder / fmt::format("gguf_golden_split-{}-of-00002.gguf", part);
        std::filesystem::copy_file(kFolder + "/gguf_golden_split-00001-of-00002.gguf", name);
        const Result<Gguf> gguf = Gguf::Open(name);
        ASSERT_FALSE(gguf.ok());
        EXPECT_EQ(gguf.error().code, ErrorCode::kCorrupt);
    }
}

}  // namespace
}  // namespace weft::model_files
