// Invalid GGUF files: each is refused with an error that names file, tensor or key, and field;
// nothing crashes, and nothing large is allocated (the asan suite also runs this).
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>

#include "model_files/gguf.h"
#include "model_files/gguf_writer.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

using Bytes = std::vector<std::byte>;

// Writes header fields one by one, so that each can be invalid.
class Raw {
  public:
    Raw(uint32_t version, uint64_t tensors, uint64_t entries) {
        Put<uint32_t>(0x46554747);
        Put(version);
        Put(tensors);
        Put(entries);
    }
    template <typename T>
    Raw& Put(T value) {
        const size_t at = bytes_.size();
        bytes_.resize(at + sizeof value);
        std::memcpy(bytes_.data() + at, &value, sizeof value);
        return *this;
    }
    Raw& Text(std::string_view text) {
        Put<uint64_t>(text.size());
        for (char c : text) Put(c);
        return *this;
    }
    Raw& Entry(std::string_view key, MetaType type) {
        return Text(key).Put(static_cast<uint32_t>(type));
    }
    Raw& Tensor(std::string_view name, std::initializer_list<uint64_t> dims, uint32_t type,
                uint64_t offset) {
        Text(name).Put(static_cast<uint32_t>(dims.size()));
        for (uint64_t dim : dims) Put(dim);
        return Put(type).Put(offset);
    }
    // Pads to the data and adds `size` bytes of it.
    Raw& Data(size_t size) {
        bytes_.resize((bytes_.size() + 31) / 32 * 32 + size);
        return *this;
    }
    const Bytes& bytes() const { return bytes_; }

  private:
    Bytes bytes_;
};

// Parses a copy of exactly the right size, so that asan detects any read beyond it.
Result<GgufHeader> Parse(std::span<const std::byte> bytes) {
    const auto copy = std::make_unique<std::byte[]>(bytes.size());
    if (!bytes.empty()) std::memcpy(copy.get(), bytes.data(), bytes.size());
    Result<GgufHeader> header = ParseGguf({copy.get(), bytes.size()}, bytes.size(), "bad.gguf");
    if (!header.ok()) return header;
    for (MetaEntry& entry : header->entries) entry.key = {};  // they point into the copy
    return header;
}

void ExpectError(const Raw& raw, ErrorCode code, std::initializer_list<const char*> parts) {
    const Result<GgufHeader> header = Parse(raw.bytes());
    ASSERT_FALSE(header.ok()) << "expected an error with: " << *parts.begin();
    EXPECT_EQ(header.error().code, code) << header.error().message;
    EXPECT_NE(header.error().message.find("bad.gguf: "), std::string::npos);
    for (const char* part : parts) {
        EXPECT_NE(header.error().message.find(part), std::string::npos)
            << "'" << part << "' is not in: " << header.error().message;
    }
}

constexpr ErrorCode kCorrupt = ErrorCode::kCorrupt;
constexpr uint64_t kHuge = 1ull << 60;

TEST(GgufHostile, Prelude) {
    ExpectError(Raw(3, kHuge, 0).Data(64), kCorrupt, {"tensor_count is 1152921504606846976"});
    ExpectError(Raw(3, 0, ~0ull).Data(64), kCorrupt, {"metadata_kv_count"});
    ExpectError(Raw(1, 0, 0), ErrorCode::kUnsupported, {"version 1", "2 and 3"});
    ExpectError(Raw(4, 0, 0), ErrorCode::kUnsupported, {"version 4"});
    ExpectError(Raw(0x03000000, 0, 0), ErrorCode::kUnsupported, {"big-endian"});
    const Result<GgufHeader> text = Parse(std::as_bytes(std::span("version https://git-lfs")));
    ASSERT_FALSE(text.ok());
    EXPECT_NE(text.error().message.find("not a GGUF file"), std::string::npos);
    EXPECT_FALSE(Parse({}).ok());
}

TEST(GgufHostile, Metadata) {
    const auto one = [] { return Raw(3, 0, 1); };
    ExpectError(one().Text("k").Put<uint32_t>(13).Data(64), kCorrupt, {"key 'k'", "type 13"});
    ExpectError(one().Text("").Put<uint32_t>(0).Data(64), kCorrupt, {"entry 1 of 1", "empty"});
    ExpectError(one().Put<uint64_t>(kHuge).Data(64), kCorrupt, {"entry 1 of 1", "key"});
    ExpectError(one().Text(std::string(70000, 'k')).Data(64), kCorrupt, {"70000", "65535"});
    ExpectError(one().Entry("k", MetaType::kString).Put<uint64_t>(kHuge).Data(64), kCorrupt,
                {"key 'k'", "string", "1152921504606846976"});
    for (uint32_t element : {0u, 4u, 7u, 8u, 9u, 12u}) {
        ExpectError(one().Entry("k", MetaType::kArray).Put(element).Put(kHuge).Data(64), kCorrupt,
                    {"key 'k'", "array of 1152921504606846976"});
    }
    ExpectError(one().Entry("k", MetaType::kArray).Put<uint32_t>(77).Put<uint64_t>(1).Data(64),
                kCorrupt, {"key 'k'", "array element type 77"});
    // The third of three strings is longer than the file.
    ExpectError(one()
                    .Entry("k", MetaType::kArray)
                    .Put<uint32_t>(8)
                    .Put<uint64_t>(3)
                    .Text("a")
                    .Text("b")
                    .Put<uint64_t>(500)
                    .Data(64),
                kCorrupt, {"key 'k'", "500"});
    Raw deep = one().Entry("k", MetaType::kArray);
    for (int i = 0; i < 1000; ++i) deep.Put<uint32_t>(9).Put<uint64_t>(1);
    ExpectError(deep.Data(64), kCorrupt, {"key 'k'", "nested"});
    Raw twice(3, 0, 2);
    twice.Entry("k", MetaType::kU8).Put<uint8_t>(1).Entry("k", MetaType::kBool).Put<uint8_t>(1);
    ExpectError(twice.Data(64), kCorrupt, {"'k' occurs twice"});
}

TEST(GgufHostile, Alignment) {
    for (uint32_t bad : {0u, 3u, 48u, 0x80000000u}) {
        Raw raw(3, 0, 1);
        raw.Entry("general.alignment", MetaType::kU32).Put(bad);
        ExpectError(raw.Data(64), kCorrupt, {"general.alignment", "power of two"});
    }
    Raw text(3, 0, 1);
    ExpectError(text.Entry("general.alignment", MetaType::kString).Text("32").Data(64), kCorrupt,
                {"general.alignment"});
}

TEST(GgufHostile, TensorTable) {
    const auto one = [](std::initializer_list<uint64_t> dims, uint32_t type, uint64_t offset) {
        return Raw(3, 1, 0).Tensor("blk.0.w", dims, type, offset).Data(256);
    };
    const char* name = "tensor 'blk.0.w'";
    ASSERT_TRUE(Parse(one({32, 2}, 0, 0).bytes()).ok());
    ExpectError(one({}, 0, 0), kCorrupt, {name, "n_dims is 0"});
    ExpectError(one({1, 1, 1, 1, 1}, 0, 0), kCorrupt, {name, "n_dims is 5"});
    ExpectError(one({32, 0}, 0, 0), kCorrupt, {name, "dims[1] is 0"});
    ExpectError(one({1ull << 40, 1ull << 40}, 0, 0), kCorrupt, {name, "dims[1]", "product"});
    ExpectError(one({~0ull}, 0, 0), kCorrupt, {name, "dims[0]", "product"});
    ExpectError(one({1ull << 32, 1ull << 32, 1, 1}, 0, 0), kCorrupt, {name, "product"});
    ExpectError(one({1ull << 50}, 0, 0), kCorrupt, {name, "4503599627370496 bytes"});
    ExpectError(one({33, 2}, 2, 0), kCorrupt,
                {name, "33", "multiple of 32, the elements of a Q4_0 block"});
    ExpectError(one({32, 2}, 9, 0), ErrorCode::kUnsupported, {name, "Q8_1", "Q4_0", "MXFP4"});
    ExpectError(one({32, 2}, 4, 0), ErrorCode::kUnsupported, {name, "Q4_2", "supported", "BF16"});
    ExpectError(one({32, 2}, 9999, 0), kCorrupt, {name, "type 9999", "supported", "BF16"});
    ExpectError(one({32, 2}, 0, 7), kCorrupt, {name, "offset 7", "alignment 32"});
    ExpectError(one({32, 2}, 0, 32), kCorrupt, {name, "256 bytes at offset 32"});
    ExpectError(one({32, 2}, 0, ~31ull), kCorrupt, {name, "offset 18446744073709551584"});
    ExpectError(Raw(3, 1, 0).Tensor("", {8}, 0, 0).Data(32), kCorrupt, {"tensor 1 of 1", "empty"});
    ExpectError(Raw(3, 1, 0).Tensor(std::string(65, 'n'), {8}, 0, 0).Data(32), kCorrupt,
                {"tensor 1 of 1", "name", "65"});
    ExpectError(Raw(3, 2, 0).Tensor("a", {8}, 0, 0).Tensor("a", {8}, 0, 32).Data(64), kCorrupt,
                {"'a' occurs twice"});
    ExpectError(Raw(3, 2, 0).Tensor("a", {16}, 0, 0).Tensor("b", {8}, 0, 32).Data(64), kCorrupt,
                {"tensor 'b'", "inside tensor 'a'"});
    ExpectError(Raw(3, 1, 0).Tensor("a", {8}, 0, 0), kCorrupt, {"tensor 'a'", "0 bytes of data"});
    ExpectError(Raw(3, 1, 0).Tensor("bell\x07", {0}, 0, 0).Data(32), kCorrupt, {"'bell?'"});
}

GgufWriter SmallFile() {
    GgufWriter writer;
    writer.String("general.architecture", "llama");
    writer.Strings("tokens", std::vector<std::string>{"a", "bc", ""});
    writer.F32s("scores", std::vector<float>{1, 2, 3});
    writer.U32("llama.block_count", 1);
    const int64_t dims[] = {32, 3};
    writer.Tensor("a.weight", DType::kQ8_0, dims, Bytes(102));
    writer.Tensor("b.weight", DType::kF32, dims, Bytes(384));
    return writer;
}

TEST(GgufHostile, TruncatedAnywhere) {
    const Bytes whole = SmallFile().File();
    ASSERT_TRUE(Parse(whole).ok());
    for (size_t size = 0; size < whole.size(); ++size) {
        const Result<GgufHeader> header = Parse(std::span(whole).first(size));
        ASSERT_FALSE(header.ok()) << "cut to " << size << " of " << whole.size();
        EXPECT_EQ(header.error().code, kCorrupt) << header.error().message;
    }
}

TEST(GgufHostile, AnyByteChanged) {
    const GgufWriter writer = SmallFile();
    const Bytes whole = writer.File();
    std::mt19937 random(5);
    int refused = 0;
    for (int round = 0; round < 20000; ++round) {
        Bytes bytes = whole;
        const int changes = 1 + static_cast<int>(random() % 3);
        for (int i = 0; i < changes; ++i) {
            bytes[random() % writer.Header().size()] = static_cast<std::byte>(random());
        }
        const Result<GgufHeader> header = Parse(bytes);
        if (header.ok()) {
            for (const TensorInfo& tensor : header->tensors) {
                ASSERT_LE(tensor.offset + tensor.bytes, bytes.size());
            }
        } else {
            ++refused;
            ASSERT_LT(header.error().message.size(), 600u);
        }
    }
    EXPECT_GT(refused, 5000);
}

TEST(GgufHostile, NotGgufFiles) {
    weft::test::TempDir dir;
    EXPECT_EQ(Gguf::Open(dir / "absent.gguf").error().code, ErrorCode::kNotFound);
    EXPECT_FALSE(Gguf::Open(dir.path()).ok());
    ASSERT_TRUE(WriteFile(dir / "empty.gguf", {}).ok());
    EXPECT_NE(Gguf::Open(dir / "empty.gguf").error().message.find("empty.gguf"), std::string::npos);
    ASSERT_TRUE(WriteFile(dir / "none.gguf", GgufWriter().File()).ok());
    EXPECT_NE(Gguf::Open(dir / "none.gguf").error().message.find("neither tensors"),
              std::string::npos);
}

// A file that is truncated after it was opened gives an error, not a SIGBUS.
TEST(GgufHostile, TruncatedWhileOpen) {
    weft::test::TempDir dir;
    const Bytes whole = SmallFile().File();
    ASSERT_TRUE(WriteFile(dir / "cut.gguf", whole).ok());
    Result<Gguf> gguf = Gguf::Open(dir / "cut.gguf");
    ASSERT_TRUE(gguf.ok());
    ASSERT_EQ(truncate((dir / "cut.gguf").c_str(), static_cast<off_t>(whole.size() - 200)), 0);
    const TensorInfo& tensor = *gguf->FindTensor("b.weight");
    Bytes out(tensor.bytes);
    const Status status = gguf->ReadRows(tensor, 0, 3, 0, 32, out, nullptr);
    ASSERT_FALSE(status.ok());
    EXPECT_NE(status.error().message.find("cut.gguf"), std::string::npos);
    Bytes columns(3 * 64);
    EXPECT_FALSE(gguf->ReadRows(tensor, 0, 3, 0, 16, columns, nullptr).ok());
}

}  // namespace
}  // namespace weft::model_files
