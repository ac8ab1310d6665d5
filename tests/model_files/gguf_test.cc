// Reading valid GGUF files: metadata of every type, slices of tensors, split files.
#include "model_files/gguf.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <random>

#include "model_files/content.h"
#include "model_files/gguf_writer.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

using weft::test::TempDir;

std::vector<std::byte> RandomBytesOf(std::mt19937& random, uint64_t size) {
    std::vector<std::byte> bytes(size);
    for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
    return bytes;
}

std::vector<std::byte> BytesOf(std::initializer_list<uint8_t> values) {
    std::vector<std::byte> bytes;
    for (uint8_t value : values) bytes.push_back(std::byte{value});
    return bytes;
}

void AddSmallTensor(GgufWriter& writer, const std::string& name = "t") {
    const int64_t dims[] = {8};
    writer.Tensor(name, DType::kF32, dims, std::vector<std::byte>(32));
}

Result<Gguf> WriteAndOpen(const GgufWriter& writer, const std::string& path) {
    WEFT_TRY(WriteFile(path, writer.File()));
    return Gguf::Open(path);
}

TEST(Gguf, VocabularyOnlyFileOpens) {
    TempDir dir;
    GgufWriter writer;
    writer.String("general.architecture", "llama");
    const auto empty = WriteAndOpen(writer, dir / "empty.gguf");
    ASSERT_FALSE(empty.ok());
    EXPECT_NE(empty.error().message.find("neither tensors nor a tokenizer"), std::string::npos);
    writer.String("tokenizer.ggml.model", "gpt2");
    const auto words = WriteAndOpen(writer, dir / "words.gguf");
    ASSERT_TRUE(words.ok()) << words.error().message;
    EXPECT_TRUE(words->tensors().empty());
    EXPECT_TRUE(words->Fingerprint().ok());
}

TEST(Gguf, GetsMetadataOfEveryType) {
    TempDir dir;
    for (uint32_t version : {2u, 3u}) {
        GgufWriter writer(version);
        writer.Raw("u8", MetaType::kU8, BytesOf({250}));
        writer.Raw("i8", MetaType::kI8, BytesOf({0xfe}));
        writer.U16("u16", 65535);
        writer.Raw("i16", MetaType::kI16, BytesOf({0xfd, 0xff}));
        writer.U32("u32", 4000000000u);
        writer.I32("i32", -7);
        writer.F32("f32", 0.5f);
        writer.Bool("yes", true);
        writer.Bool("no", false);
        writer.String("string",
                      "w\xc3\xa9"
                      "ft\n");
        writer.U64("u64", 18446744073709551615ull);
        writer.Raw("i64", MetaType::kI64,
                   BytesOf({0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff}));
        writer.Raw("f64", MetaType::kF64, BytesOf({0, 0, 0, 0, 0, 0, 0xf8, 0x3f}));
        writer.Strings("strings", std::vector<std::string>{"a", "", "bcd"});
        writer.I32s("ints", std::vector<int32_t>{1, -2, 3});
        writer.F32s("floats", std::vector<float>{1.5f, -2.5f});
        writer.Strings("none", {});
        AddSmallTensor(writer);
        Result<Gguf> gguf = WriteAndOpen(writer, dir / "types.gguf");
        ASSERT_TRUE(gguf.ok()) << gguf.error().message;
        const Metadata& meta = gguf->meta();
        EXPECT_EQ(gguf->version(), version);
        EXPECT_EQ(*meta.U64("u8"), 250u);
        EXPECT_EQ(*meta.Int("i8", -10, 10), -2);
        EXPECT_EQ(*meta.U64("u16"), 65535u);
        EXPECT_EQ(*meta.Int("i16", -3, -3), -3);
        EXPECT_EQ(*meta.U64("u32"), 4000000000u);
        EXPECT_EQ(*meta.Int("i32", -7, 0), -7);
        EXPECT_EQ(*meta.F64("f32"), 0.5);
        EXPECT_EQ(*meta.F64("i32"), -7.0);
        EXPECT_TRUE(*meta.Bool("yes"));
        EXPECT_FALSE(*meta.Bool("no"));
        EXPECT_EQ(*meta.String("string"),
                  "w\xc3\xa9"
                  "ft\n");
        EXPECT_EQ(*meta.U64("u64"), 18446744073709551615ull);
        EXPECT_EQ(*meta.Int("i64", -1, -1), -1);
        EXPECT_EQ(*meta.F64("f64"), 1.5);
        EXPECT_EQ(*meta.Strings("strings"), (std::vector<std::string_view>{"a", "", "bcd"}));
        EXPECT_EQ(*meta.Ints("ints"), (std::vector<int64_t>{1, -2, 3}));
        EXPECT_EQ(*meta.Floats("floats"), (std::vector<float>{1.5f, -2.5f}));
        EXPECT_EQ(*meta.Floats("ints"), (std::vector<float>{1.0f, -2.0f, 3.0f}));
        EXPECT_TRUE(meta.Strings("none")->empty());
        EXPECT_EQ(meta.Find("strings")->TypeName(), "string[3]");
        EXPECT_EQ(Metadata::Text(*meta.Find("strings")), R"(["a", "", "bcd"])");
        EXPECT_EQ(Metadata::Text(*meta.Find("ints")), "[1, -2, 3]");
        EXPECT_EQ(meta.entries().size(), 17u);
        EXPECT_EQ(meta.entries()[0].key, "u8");
    }
}

TEST(Gguf, GettersNameTheWrongKey) {
    TempDir dir;
    GgufWriter writer;
    writer.I32("negative", -1);
    writer.String("text", "four");
    writer.U64("huge", ~0ull);
    writer.Strings("words", std::vector<std::string>{"x"});
    AddSmallTensor(writer);
    Result<Gguf> gguf = WriteAndOpen(writer, dir / "wrong.gguf");
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    const Metadata& meta = gguf->meta();
    EXPECT_EQ(meta.U64("negative").error().message,
              dir / "wrong.gguf" +
                  ": metadata key 'negative': expected an integer of 0 or more, found i32 = -1");
    EXPECT_EQ(meta.U64("absent").error().code, ErrorCode::kNotFound);
    EXPECT_NE(meta.U64("absent").error().message.find("'absent'"), std::string::npos);
    EXPECT_EQ(meta.F64("text").error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(meta.Bool("text").error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(meta.String("huge").error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(meta.Strings("text").error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(meta.Ints("words").error().code, ErrorCode::kCorrupt);
    EXPECT_EQ(meta.Floats("words").error().code, ErrorCode::kCorrupt);
    EXPECT_FALSE(meta.Int("huge", 0, INT64_MAX).ok());
    EXPECT_FALSE(meta.Int("negative", 0, 5).ok());
    EXPECT_EQ(*meta.IntOr("absent", 0, 5, 3), 3);
    EXPECT_EQ(*meta.U64Or("absent", 9), 9u);
    EXPECT_EQ(*meta.StringOr("absent", "x"), "x");
    EXPECT_FALSE(meta.U64Or("text", 9).ok()) << "a wrong type must not hide behind the fallback";
}

TEST(Gguf, KeepsNestedArrays) {
    TempDir dir;
    GgufWriter writer;
    // array of 2 arrays: u8[2] = {1, 2} and u8[0]
    writer.Raw("nested", MetaType::kArray, BytesOf({9, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0,        //
                                                    0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0, 1, 2,  //
                                                    0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}));
    writer.U32("after", 5);
    AddSmallTensor(writer);
    Result<Gguf> gguf = WriteAndOpen(writer, dir / "nested.gguf");
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    EXPECT_EQ(gguf->meta().Find("nested")->TypeName(), "array[2]");
    EXPECT_EQ(*gguf->meta().U64("after"), 5u);
    EXPECT_FALSE(gguf->meta().Ints("nested").ok());
}

// Any slice of any tensor of any type, at any alignment, gives the bytes that were written.
TEST(Gguf, ReadsAnySliceOfAnyTensor) {
    TempDir dir;
    std::mt19937 random(1);
    const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % (uint64_t)n); };
    for (uint32_t alignment : {8u, 32u, 64u, 4096u}) {
        GgufWriter writer(3, alignment);
        std::vector<std::vector<std::byte>> data;
        for (const DTypeInfo& info : kFileDTypes) {
            const int64_t dims[] = {info.block_elements * (1 + below(70)), 1 + below(40),
                                    1 + below(3)};
            const int64_t rows = dims[1] * dims[2];
            data.push_back(
                RandomBytesOf(random, static_cast<uint64_t>(RowBytes(info.dtype, dims[0]) * rows)));
            writer.Tensor(std::string(info.name), info.dtype, dims, data.back());
        }
        Result<Gguf> gguf = WriteAndOpen(writer, dir / "slices.gguf");
        ASSERT_TRUE(gguf.ok()) << gguf.error().message;
        EXPECT_EQ(gguf->alignment(), alignment);
        for (int round = 0; round < 400; ++round) {
            const auto index = static_cast<size_t>(below(static_cast<int64_t>(kFileDTypes.size())));
            const TensorInfo& tensor = gguf->tensors()[index];
            ASSERT_EQ(gguf->FindTensor(kFileDTypes[index].name), &tensor);
            const int64_t block = Info(tensor.dtype).block_elements;
            const int64_t row_begin = below(tensor.rows + 1);
            const int64_t row_count = below(tensor.rows - row_begin + 1);
            const int64_t col_begin = round % 3 == 0 ? 0 : block * below(tensor.cols / block + 1);
            const int64_t most = (tensor.cols - col_begin) / block;
            const int64_t col_count = block * (round % 3 == 0 ? most - below(2) : below(most + 1));
            const auto width = static_cast<size_t>(RowBytes(tensor.dtype, col_count));
            const auto stride = static_cast<size_t>(RowBytes(tensor.dtype, tensor.cols));
            std::vector<std::byte> out(static_cast<size_t>(row_count) * width);
            uint64_t bytes_read = 0;
            ASSERT_TRUE(
                gguf->ReadRows(tensor, row_begin, row_count, col_begin, col_count, out, &bytes_read)
                    .ok());
            EXPECT_EQ(bytes_read, out.size());
            for (int64_t r = 0; r < row_count && width > 0; ++r) {
                const size_t at = static_cast<size_t>(row_begin + r) * stride +
                                  static_cast<size_t>(RowBytes(tensor.dtype, col_begin));
                ASSERT_EQ(std::memcmp(out.data() + static_cast<size_t>(r) * width,
                                      data[index].data() + at, width),
                          0)
                    << tensor.name << " row " << row_begin + r << " cols " << col_begin << "+"
                    << col_count;
            }
        }
    }
}

// Column slices of a tensor with many rows (several mappings) and of long rows (one read each).
TEST(Gguf, ReadsColumnsOfLargeTensors) {
    TempDir dir;
    std::mt19937 random(2);
    const int64_t shapes[][2] = {{64, 40001}, {16384, 130}};
    GgufWriter writer;
    std::vector<std::vector<std::byte>> data;
    for (const auto& dims : shapes) {
        data.push_back(RandomBytesOf(random, static_cast<uint64_t>(dims[0] * dims[1] * 4)));
        writer.Tensor(fmt::format("t{}", dims[0]), DType::kF32, dims, data.back());
    }
    Result<Gguf> gguf = WriteAndOpen(writer, dir / "large.gguf");
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    for (size_t t = 0; t < 2; ++t) {
        const TensorInfo& tensor = gguf->tensors()[t];
        for (const int64_t col_begin : {int64_t{0}, int64_t{1}, tensor.cols / 3}) {
            const int64_t cols = tensor.cols / 2;
            std::vector<std::byte> out(static_cast<size_t>((tensor.rows - 1) * cols * 4));
            ASSERT_TRUE(
                gguf->ReadRows(tensor, 1, tensor.rows - 1, col_begin, cols, out, nullptr).ok());
            for (int64_t r = 1; r < tensor.rows; ++r) {
                ASSERT_EQ(std::memcmp(out.data() + (r - 1) * cols * 4,
                                      data[t].data() + (r * tensor.cols + col_begin) * 4,
                                      static_cast<size_t>(cols * 4)),
                          0)
                    << tensor.name << " row " << r;
            }
        }
    }
}

TEST(Gguf, IdentitySeesMetadataShapesAndEachByte) {
    TempDir dir;
    const auto print = [&](uint32_t value, int64_t cols, uint8_t byte, size_t at) {
        GgufWriter writer;
        writer.U32("key", value);
        std::vector<std::byte> data(static_cast<size_t>(cols) * 4 * 4096);
        data[at] = std::byte{byte};
        const int64_t dims[] = {cols, 4096};
        writer.Tensor("t", DType::kF32, dims, data);
        Result<Gguf> gguf = WriteAndOpen(writer, dir / "print.gguf");
        return std::pair(*gguf->Fingerprint(), *ReadIdentity(*gguf));
    };
    const auto base = print(1, 8, 0, 0);
    EXPECT_EQ(base.first.size(), 64u);
    EXPECT_EQ(base.second.size(), 64u);
    EXPECT_EQ(base, print(1, 8, 0, 0));
    EXPECT_NE(base.first, print(2, 8, 0, 0).first);
    EXPECT_NE(base.first, print(1, 16, 0, 0).first);
    for (const size_t at : {size_t{0}, size_t{8 * 4 * 1000 + 3}, size_t{8 * 4 * 4096 - 1}}) {
        EXPECT_EQ(base.first, print(1, 8, 7, at).first);  // reads no weights
        EXPECT_NE(base.second, print(1, 8, 7, at).second) << at;
    }
}

// A split model in three parts; `edit` may change a part's keys: (no, count, total).
struct Split {
    TempDir dir;
    std::vector<std::byte> bytes[3];
    std::string Path(int part) { return dir / fmt::format("m-{:05}-of-00003.gguf", part + 1); }
    void Write(int part, int no, int count, int total, const std::string& tensor) {
        GgufWriter writer;
        if (part == 0) writer.String("general.architecture", "llama");
        writer.U16("split.no", static_cast<uint16_t>(no));
        writer.U16("split.count", static_cast<uint16_t>(count));
        writer.I32("split.tensors.count", total);
        std::mt19937 random(static_cast<uint32_t>(part));
        bytes[part] = RandomBytesOf(random, 64);
        const int64_t dims[] = {8, 2};
        writer.Tensor(tensor, DType::kF32, dims, bytes[part]);
        ASSERT_TRUE(WriteFile(Path(part), writer.File()).ok());
    }
    Split() {
        for (int part = 0; part < 3; ++part) Write(part, part, 3, 3, fmt::format("t{}", part));
    }
    std::string ErrorOf(int opened) {
        Result<Gguf> gguf = Gguf::Open(Path(opened));
        return gguf.ok() ? "" : gguf.error().message;
    }
};

TEST(GgufSplit, OpensFromAnyPart) {
    Split split;
    for (int opened = 0; opened < 3; ++opened) {
        Result<Gguf> gguf = Gguf::Open(split.Path(opened));
        ASSERT_TRUE(gguf.ok()) << gguf.error().message;
        EXPECT_EQ(*gguf->meta().String("general.architecture"), "llama");
        for (int part = 0; part < 3; ++part) {
            const TensorInfo* tensor = gguf->FindTensor(fmt::format("t{}", part));
            ASSERT_NE(tensor, nullptr);
            EXPECT_EQ(tensor->part, part);
            std::vector<std::byte> out(64);
            ASSERT_TRUE(gguf->ReadRows(*tensor, 0, 2, 0, 8, out, nullptr).ok());
            EXPECT_EQ(out, split.bytes[part]);
        }
    }
}

TEST(GgufSplit, NamesTheMissingPart) {
    Split split;
    std::filesystem::remove(split.Path(1));
    EXPECT_NE(split.ErrorOf(0).find(split.Path(1)), std::string::npos);
    EXPECT_NE(split.ErrorOf(2).find("part 2 of 3"), std::string::npos);
}

TEST(GgufSplit, RefusesAPartOfAnotherModel) {
    Split split;
    std::filesystem::copy_file(split.Path(0), split.Path(2),
                               std::filesystem::copy_options::overwrite_existing);
    EXPECT_NE(split.ErrorOf(0).find("'split.no' is 0"), std::string::npos) << split.ErrorOf(0);
    // A cycle: every part is a link to the first.
    for (int part = 1; part < 3; ++part) {
        std::filesystem::remove(split.Path(part));
        std::filesystem::create_symlink(split.Path(0), split.Path(part));
    }
    EXPECT_NE(split.ErrorOf(1).find("'split.no' is 0"), std::string::npos) << split.ErrorOf(1);
}

TEST(GgufSplit, RefusesWrongCountsAndDuplicates) {
    Split split;
    split.Write(1, 1, 4, 3, "t1");
    EXPECT_NE(split.ErrorOf(0).find("'split.count' is 4"), std::string::npos) << split.ErrorOf(0);
    split.Write(1, 1, 3, 3, "t0");
    EXPECT_NE(split.ErrorOf(0).find("tensor 't0' is in part 1 and in part 2"), std::string::npos)
        << split.ErrorOf(0);
    split.Write(1, 1, 3, 3, "t1");
    split.Write(0, 0, 3, 17, "t0");
    EXPECT_NE(split.ErrorOf(2).find("'split.tensors.count' is 17, but the 3 parts have 3"),
              std::string::npos)
        << split.ErrorOf(2);
    split.Write(0, 0, 65535, 3, "t0");
    EXPECT_NE(split.ErrorOf(0).find("'split.count' is 65535"), std::string::npos);
}

TEST(GgufSplit, RefusesASplitUnderAnotherName) {
    Split split;
    std::filesystem::rename(split.Path(0), split.dir / "alone.gguf");
    Result<Gguf> gguf = Gguf::Open(split.dir / "alone.gguf");
    ASSERT_FALSE(gguf.ok());
    EXPECT_NE(gguf.error().message.find("split.count"), std::string::npos);
}

// The model that ./quickstart downloads, if it is there.
TEST(GgufReal, SmolLM2) {
    const char* home = std::getenv("HOME");
    const char* cache = std::getenv("XDG_CACHE_HOME");
    const std::string folder = cache != nullptr ? cache : std::string(home ? home : "") + "/.cache";
    const char* given = std::getenv("WEFT_MODEL");
    const std::string path =
        given != nullptr ? given : folder + "/weft/SmolLM2-135M-Instruct.Q4_1.gguf";
    if (!std::filesystem::exists(path)) {
        GTEST_SKIP() << path << " is not there: run ./quickstart once, or set WEFT_MODEL";
    }
    Result<Gguf> gguf = Gguf::Open(path);
    ASSERT_TRUE(gguf.ok()) << gguf.error().message;
    EXPECT_EQ(*gguf->meta().U64("llama.block_count"), 30u);
    EXPECT_EQ(gguf->meta().Strings("tokenizer.ggml.tokens")->size(), 49152u);
    const TensorInfo* tensor = gguf->FindTensor("blk.29.ffn_down.weight");
    ASSERT_NE(tensor, nullptr);
    EXPECT_EQ(tensor->dtype, DType::kQ4_1);
    EXPECT_EQ(tensor->cols, 1536);
    EXPECT_EQ(tensor->rows, 576);
}

}  // namespace
}  // namespace weft::model_files
