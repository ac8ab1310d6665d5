// Damaged safetensors files and indexes: errors name file and tensor.
#include "model_files/hf/safetensors.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "support/hf_folder.h"
#include "support/temp_dir.h"

namespace weft::model_files::hf {
namespace {

using support::SafeBytes;

std::vector<std::byte> File(const std::string& header, size_t data_bytes) {
    const uint64_t length = header.size();
    std::vector<std::byte> bytes(8 + header.size() + data_bytes);
    std::memcpy(bytes.data(), &length, 8);
    std::memcpy(bytes.data() + 8, header.data(), header.size());
    return bytes;
}

Result<std::vector<SafeTensor>> SafetensorsParse(const std::string& header, size_t data_bytes) {
    const std::vector<std::byte> bytes = File(header, data_bytes);
    return ParseSafetensors(bytes, bytes.size(), "x.safetensors");
}

std::string Entry(const std::string& name, const std::string& rest) {
    return "\"" + name + "\":{" + rest + "}";
}

TEST(Safetensors, ReadsNamesShapesAndOffsets) {
    const std::string a = Entry("a", R"("dtype":"BF16","shape":[2,3],"data_offsets":[8,20])");
    const std::string b = Entry("b", R"("shape":[],"data_offsets":[0,8],"dtype":"I64")");
    const auto read =
        SafetensorsParse("{\"__metadata__\":{\"format\":\"pt\"}," + a + "," + b + "}  ", 20);
    ASSERT_TRUE(read.ok()) << read.error().message;
    ASSERT_EQ(read->size(), 2u);
    EXPECT_EQ((*read)[0].name, "a");
    EXPECT_EQ((*read)[0].type, SafeType::kBF16);
    EXPECT_EQ((*read)[0].shape, (std::vector<int64_t>{2, 3}));
    EXPECT_EQ((*read)[0].bytes, 12u);
    EXPECT_EQ((*read)[0].offset - (*read)[1].offset, 8u);
    EXPECT_TRUE((*read)[1].shape.empty());
}

struct Broken {
    const char *what, *header;
    const char* message;  // part of the error
};
void PrintTo(const Broken& broken, std::ostream* out) {
    *out << broken.what;
}

class BrokenHeader : public testing::TestWithParam<Broken> {};

TEST_P(BrokenHeader, IsAnErrorThatNamesFileAndTensor) {
    const auto read = SafetensorsParse(GetParam().header, 16);
    ASSERT_FALSE(read.ok());
    EXPECT_NE(read.error().message.find("x.safetensors"), std::string::npos);
    EXPECT_NE(read.error().message.find(GetParam().message), std::string::npos)
        << read.error().message;
}

INSTANTIATE_TEST_SUITE_P(
    Safetensors, BrokenHeader,
    testing::Values(
        Broken{"no JSON", "{\"t\":", "not valid JSON"},
        Broken{"no object", "[1,2]", "expected an object"},
        Broken{"empty", "{}", "the last 16 bytes"},
        Broken{"no dtype", R"({"t":{"shape":[4],"data_offsets":[0,16]}})", "'t': no 'dtype'"},
        Broken{"no shape", R"({"t":{"dtype":"F32","data_offsets":[0,16]}})", "'t': no 'shape'"},
        Broken{"no offsets", R"({"t":{"dtype":"F32","shape":[4]}})", "'t': no 'data_offsets'"},
        Broken{"unknown dtype", R"({"t":{"dtype":"F33","shape":[4],"data_offsets":[0,16]}})",
               "'t' is of dtype 'F33'"},
        Broken{"one offset", R"({"t":{"dtype":"F32","shape":[4],"data_offsets":[0]}})",
               "'t': data_offsets has 1"},
        Broken{"negative dim", R"({"t":{"dtype":"F32","shape":[-4],"data_offsets":[0,16]}})",
               "'t': the header has a negative number"},
        Broken{"fraction", R"({"t":{"dtype":"F32","shape":[4.5],"data_offsets":[0,16]}})",
               "'t': the header has a fraction"},
        Broken{"backwards", R"({"t":{"dtype":"F32","shape":[4],"data_offsets":[16,0]}})",
               "'t': its data is bytes 16 to 0"},
        Broken{"past the end", R"({"t":{"dtype":"F32","shape":[5],"data_offsets":[0,20]}})",
               "Is the download complete?"},
        Broken{"too few bytes", R"({"t":{"dtype":"F32","shape":[5],"data_offsets":[0,16]}})",
               "'t': 5 elements of F32 take 20 bytes"},
        Broken{"overflow",
               R"({"t":{"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,16]}})",
               "makes it too large"},
        Broken{"overlap",
               R"({"t":{"dtype":"F32","shape":[3],"data_offsets":[0,12]},)"
               R"("u":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
               "'u' overlaps tensor 't'"},
        Broken{"hole", R"({"t":{"dtype":"F32","shape":[3],"data_offsets":[4,16]}})",
               "4 bytes of data in front of tensor 't'"},
        Broken{"twice",
               R"({"t":{"dtype":"F32","shape":[2],"data_offsets":[0,8]},)"
               R"("t":{"dtype":"F32","shape":[2],"data_offsets":[8,16]}})",
               "'t': the name occurs twice"},
        Broken{"field twice",
               R"({"t":{"dtype":"F32","shape":[4],"shape":[4],"data_offsets":[0,16]}})",
               "'t': 'shape' occurs twice"},
        Broken{"nested", R"({"t":{"dtype":{"x":{"y":[[[]]]}}}})", "'t': the header has an object"},
        Broken{"many dims",
               R"({"t":{"dtype":"F32","shape":[1,1,1,1,1,1,1,1,4],"data_offsets":[0,16]}})",
               "'t': the header has a number"}));

TEST(Safetensors, RefusesAnImpossibleLength) {
    std::vector<std::byte> bytes = File("{}", 0);
    for (const uint64_t length : {uint64_t{3}, kMostHeaderBytes + 1, UINT64_MAX}) {
        std::memcpy(bytes.data(), &length, 8);
        const auto read = ParseSafetensors(bytes, bytes.size(), "x.safetensors");
        ASSERT_FALSE(read.ok());
        EXPECT_NE(read.error().message.find("x.safetensors: the header length is"),
                  std::string::npos);
    }
    EXPECT_FALSE(ParseSafetensors(std::span(bytes).first(5), 5, "x").ok());
}

TEST(Safetensors, EveryTruncationIsAnError) {
    const std::map<std::string, SafeBytes> tensors = {
        {"a", {"F32", {3}, std::vector<std::byte>(12)}}, {"b", {"U8", {}, {std::byte{1}}}}};
    const std::vector<std::byte> bytes = support::SafetensorsFile(tensors);
    ASSERT_TRUE(ParseSafetensors(bytes, bytes.size(), "x").ok());
    for (size_t size = 0; size < bytes.size(); ++size) {
        const auto read = ParseSafetensors(std::span(bytes).first(size), size, "x");
        ASSERT_FALSE(read.ok()) << size;
        EXPECT_NE(read.error().message.find("Is the download complete?"), std::string::npos)
            << size << ": " << read.error().message;
    }
}

// ---- Indexes and folders ------------------------------------------------------------------------

TEST(ShardIndex, MustStayInItsFolder) {
    for (const char* name : {"../x.safetensors", "/etc/x.safetensors", "a/b.safetensors",
                             "..\\\\x.safetensors", "x.pt", "", "x\\u0000.safetensors"}) {
        const auto index =
            ParseIndex(std::string(R"({"weight_map":{"t":")") + name + "\"}}", "index.json");
        ASSERT_FALSE(index.ok()) << name;
        EXPECT_NE(index.error().message.find("index.json: tensor 't'"), std::string::npos);
    }
    EXPECT_FALSE(ParseIndex(R"({"weight_map":{}})", "i").ok());
    EXPECT_FALSE(ParseIndex(R"({"weight_map":{"t":3}})", "i").ok());
    EXPECT_FALSE(ParseIndex(R"([])", "i").ok());
    EXPECT_FALSE(ParseIndex(std::string(100000, '['), "i").ok());
}

class Shards : public testing::Test {
  protected:
    void Write(const std::string& name, const std::map<std::string, SafeBytes>& tensors) {
        ASSERT_TRUE(WriteFile(dir_ / name, support::SafetensorsFile(tensors)).ok());
    }
    void Index(const std::string& text) {
        support::WriteText(dir_ / "model.safetensors.index.json", text);
    }
    std::string Error() {
        const auto opened = TensorFiles::Open(dir_.path());
        return opened.ok() ? "" : opened.error().message;
    }
    const SafeBytes one_{"U8", {1}, {std::byte{1}}};
    test::TempDir dir_;
};

TEST_F(Shards, AreFoundByTheirIndex) {
    EXPECT_NE(Error().find("neither model.safetensors nor"), std::string::npos);
    Write("a.safetensors", {{"s", one_}});
    Write("b.safetensors", {{"t", one_}});
    Index(R"({"weight_map":{"s":"a.safetensors","t":"b.safetensors"}})");
    const auto opened = TensorFiles::Open(dir_.path());
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    ASSERT_NE(opened->Find("t"), nullptr);
    EXPECT_EQ(opened->Find("t")->shard, 1);
    EXPECT_EQ(opened->Find("u"), nullptr);
}

// The table of transformers: a whole file comes before an index, which may be an older one.
TEST_F(Shards, AWholeFileComesFirst) {
    const struct {
        bool single, index, shards;
        const char* read;  // the tensor that is found; "": an error
    } kFolders[] = {{true, false, false, "whole"}, {true, false, true, "whole"},
                    {true, true, false, "whole"},  {true, true, true, "whole"},
                    {false, true, true, "part"},   {false, true, false, ""},
                    {false, false, true, ""},      {false, false, false, ""}};
    for (const auto& folder : kFolders) {
        for (const auto& entry : std::filesystem::directory_iterator(dir_.path())) {
            std::filesystem::remove(entry);
        }
        if (folder.single) Write("model.safetensors", {{"whole", one_}});
        if (folder.index) Index(R"({"weight_map":{"part":"a.safetensors"}})");
        if (folder.shards) Write("a.safetensors", {{"part", one_}});
        const auto opened = TensorFiles::Open(dir_.path());
        std::string read;
        if (opened.ok()) {
            EXPECT_EQ(opened->tensors().size(), 1u);
            read = opened->tensors()[0].name;
        }
        EXPECT_EQ(read, folder.read) << folder.single << folder.index << folder.shards;
    }
}

// An edited model may keep the former tensor in another shard; the index names the new one.
TEST_F(Shards, TheIndexDecides) {
    const SafeBytes other{"U8", {1}, {std::byte{2}}};
    for (const bool first : {true, false}) {
        Write("a.safetensors", {{"s", first ? one_ : other}, {"t", other}});
        Write("b.safetensors", {{"s", first ? other : one_}, {"u", other}});
        Index(fmt::format(R"({{"weight_map":{{"s":"{}.safetensors","t":"a.safetensors",)"
                          R"("u":"b.safetensors"}}}})",
                          first ? "a" : "b"));
        const auto opened = TensorFiles::Open(dir_.path());
        ASSERT_TRUE(opened.ok()) << opened.error().message;
        EXPECT_EQ(opened->tensors().size(), 3u);
        const SafeTensor* tensor = opened->Find("s");
        ASSERT_NE(tensor, nullptr);
        std::byte value{};
        ASSERT_TRUE(opened->file(*tensor).ReadAt(tensor->offset, std::span(&value, 1)).ok());
        EXPECT_EQ(value, std::byte{1}) << first;
    }
}

// A snapshot of the Hub's cache that was copied without its blobs.
TEST_F(Shards, LinksToMissingFilesAreNamed) {
    const auto link = [&](const char* name) {
        std::filesystem::create_symlink("../../blobs/gone", dir_ / name);
    };
    const auto expect = [&](const char* name) {
        const std::string error = Error();
        for (const char* word : {name, "../../blobs/gone, which does not exist", "cp -L"}) {
            EXPECT_NE(error.find(word), std::string::npos) << word << ": " << error;
        }
    };
    support::WriteText(dir_ / "config.json", "{}");
    link("model.safetensors");
    expect("model.safetensors");
    std::filesystem::remove(dir_ / "model.safetensors");
    Index(R"({"weight_map":{"s":"a.safetensors"}})");
    link("a.safetensors");
    expect("a.safetensors");
    std::filesystem::remove(dir_ / "model.safetensors.index.json");
    link("model.safetensors.index.json");
    expect("model.safetensors.index.json");
    std::filesystem::remove(dir_ / "model.safetensors.index.json");
    expect("a.safetensors");  // among others, of no known name
    Write("model.safetensors", {{"s", one_}});
    link("model.safetensors.index.json");
    link("README.json");
    EXPECT_EQ(Error(), "");  // needs neither of these
}

TEST_F(Shards, MissingOrDifferentOnesAreErrors) {
    Write("a.safetensors", {{"s", one_}});
    Index(R"({"weight_map":{"s":"a.safetensors","t":"b.safetensors"}})");
    EXPECT_NE(Error().find("shard b.safetensors of 2"), std::string::npos) << Error();
    Write("b.safetensors", {{"u", one_}});
    EXPECT_NE(Error().find("tensor 't' is not in b.safetensors"), std::string::npos) << Error();
    Write("b.safetensors", {{"t", one_}});
    EXPECT_EQ(Error(), "");
    Write("a.safetensors", {{"s", one_}, {"u", one_}});
    Write("b.safetensors", {{"t", one_}, {"u", one_}});
    EXPECT_NE(Error().find("tensor 'u' is in"), std::string::npos) << Error();
    Write("a.safetensors", {{"s", one_}, {"t", one_}});
    Write("b.safetensors", {});
    EXPECT_NE(Error().find("tensor 't' is not in b.safetensors"), std::string::npos) << Error();
}

}  // namespace
}  // namespace weft::model_files::hf
