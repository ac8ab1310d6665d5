// Parquet files of pyarrow, polars and duckdb against the same records as JSON lines
// (tools/make_parquet_golden.py), and damaged files.
#include "train/data/parquet.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <span>

#include "support/memory_file.h"
#include "support/paths.h"
#include "train/data/data_files.h"
#include "train/data/record.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

using test::TempDir;

std::string Golden(const std::string& name) {
    return support::TestData("/parquet/" + name);
}

Result<std::string> Read(const std::string& path) {
    WEFT_ASSIGN(const File file, File::Open(path));
    std::string all;
    const Status read = ReadParquet(file, [&](std::string_view lines) {
        all += lines;
        return Status();
    });
    if (!read.ok()) return read.error();
    return all;
}

void ExpectLines(const std::string& name, const std::vector<nlohmann::json>& expected) {
    const auto read = Read(Golden(name));
    ASSERT_TRUE(read.ok()) << read.error().message;
    const std::vector<nlohmann::json> lines = JsonLines(*read);
    ASSERT_EQ(lines.size(), expected.size()) << name;
    for (size_t i = 0; i < lines.size(); ++i) EXPECT_EQ(lines[i], expected[i]) << name << " " << i;
}

// Whether this build has the library of a codec.
bool IsLeftOut(const std::string& name) {
    const auto read = Read(Golden(name));
    return !read.ok() && read.error().message.find("built without") != std::string::npos;
}

TEST(Parquet, RecordsAreThoseOfTheJsonLines) {
    const auto expected = JsonLines(Must(ReadTextFile(Golden("records.jsonl"))));
    ASSERT_EQ(expected.size(), 120u);
    for (const char* name : {"none.parquet", "snappy.parquet", "gzip.parquet", "zstd.parquet",
                             "lz4.parquet", "plain.parquet", "deltas1.parquet", "deltas2.parquet",
                             "polars.parquet", "duckdb.parquet", "duckdb2.parquet"}) {
        if (!IsLeftOut(name)) ExpectLines(name, expected);
    }
}

TEST(Parquet, OtherTypesAreText) {
    ExpectLines("times.parquet", JsonLines(Must(ReadTextFile(Golden("times.jsonl")))));
    ExpectLines("int96.parquet", {{{"old", "2024-02-29T23:59:58.123000000"}},
                                  {{"old", "1969-12-31T23:59:59.500000000"}}});
}

// Bytes that are no text, ids of a fixed size and numbers out of range keep no file from being
// read.
TEST(Parquet, ColumnsOfAllTypesAreRead) {
    ExpectLines("types.parquet", JsonLines(Must(ReadTextFile(Golden("types.jsonl")))));
}

// Columns of JSON texts are values of the record, as in the JSON lines that they come from.
TEST(Parquet, ColumnsOfJsonAreValues) {
    ExpectLines("json.parquet", JsonLines(Must(ReadTextFile(Golden("json.jsonl")))));
}

// A text that JSON's parser would read as another number stays a text.
TEST(Parquet, NumbersInColumnsOfJsonKeepTheirDigits) {
    std::string taken;
    const RecordLines::Take take = [&](std::string_view text) {
        taken += text;
        return Status();
    };
    RecordLines lines(take);
    Scalar type;
    type.kind = Scalar::kJson;
    lines.Begin('[');
    for (const std::string_view text :
         {"42", "1.5", "1.50", "18.00", "1e3", "18446744073709551616"}) {
        lines.Value(type, std::as_bytes(std::span(text)), "answer");
    }
    lines.End(']');
    ASSERT_TRUE(lines.EndRecord().ok() && lines.Flush().ok());
    EXPECT_EQ(taken, "[42,1.5,\"1.50\",\"18.00\",\"1e3\",\"18446744073709551616\"]\n");
}

// Bytes without an annotation are a text if they are UTF-8, and else an error where a record needs
// them; a string that is not UTF-8 damages the file.
TEST(Parquet, BytesThatAreNotUtf8NameTheirColumnAndRow) {
    std::string taken;
    const RecordLines::Take take = [&](std::string_view text) {
        taken += text;
        return Status();
    };
    RecordLines lines(take);
    const std::string key = RecordLines::KeyOf("text");
    const auto add = [&](Scalar::Kind kind, std::string_view text) {
        Scalar type;
        type.kind = kind;
        lines.Begin('{');
        lines.Key(key);
        lines.Value(type, std::as_bytes(std::span(text)), "text");
        lines.End('}');
        return lines.EndRecord();
    };
    ASSERT_TRUE(add(Scalar::kBytes, "caf\xC3\xA9").ok());
    ASSERT_TRUE(add(Scalar::kBytes, "caf\xE9").ok());
    try {
        (void)add(Scalar::kText, "caf\xE9");
        ADD_FAILURE() << "taken as a text";
    } catch (const ColumnFault& fault) {
        EXPECT_EQ(fault.what, "the string of column 'text' in row 3 is not UTF-8");
    }
    ASSERT_TRUE(lines.Flush().ok());
    const size_t first = taken.find('\n') + 1, second = taken.find('\n', first);
    EXPECT_EQ(Must(ParseRecord(taken.substr(0, first))).index(),
              Must(ParseRecord("{\"text\": \"x\"}")).index());
    const auto refused = ParseRecord(taken.substr(first, second - first));
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(refused.error().message.starts_with(
        "'text' is a value that is not read, such as bytes that are not UTF-8; expected a string"))
        << refused.error().message;
}

TEST(Parquet, FilesAndFoldersAreData) {
    const TempDir folder;
    std::filesystem::create_directories(folder / "data");
    const std::string file = Must(ReadTextFile(Golden("none.parquet")));
    WriteText(folder, "data/train-00000-of-00002.parquet", file);
    WriteText(folder, "data/train-00001-of-00002.parquet", file);
    WriteText(folder, "data/test-00000-of-00001.parquet", file);
    const DataFileList list = Must(DataFiles({folder.path()}));
    EXPECT_EQ(list.files, (std::vector<std::string>{folder / "data/train-00000-of-00002.parquet",
                                                    folder / "data/train-00001-of-00002.parquet"}));
    const RecordFile records = Must(RecordFile::Open(list.files[0]));
    EXPECT_EQ(records.form(), RecordForm::kLines);
    EXPECT_EQ(records.size(Part::kTrain), 120u);
}

TEST(Parquet, OtherFormsAreRefused) {
    const auto refused = [](const std::string& name, const char* what) {
        const auto read = RecordFile::Open(Golden(name));
        ASSERT_FALSE(read.ok());
        EXPECT_NE(read.error().message.find(what), std::string::npos) << read.error().message;
    };
    refused("brotli.parquet",
            "brotli.parquet: it can't be read as a Parquet file: column 'id' is "
            "compressed with brotli, which is not read");
}

// No byte that is missing or wrong does more harm than an error.
TEST(Parquet, DamageIsAnErrorOrAnotherText) {
    support::MemoryFile file;
    for (const char* name : {"deltas1.parquet", "duckdb2.parquet", "plain.parquet"}) {
        if (IsLeftOut(name)) continue;
        const std::string whole = Must(ReadTextFile(Golden(name)));
        size_t errors = 0;
        for (size_t at = 0; at < whole.size(); at += 11) {
            std::string damaged = whole;
            damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 == 0 ? 0x80 : 0x01));
            errors += Read(file.Write(damaged)).ok() ? 0 : 1;
            EXPECT_FALSE(Read(file.Write(whole.substr(0, at))).ok());
        }
        EXPECT_GT(errors, whole.size() / 100);
    }
}

}  // namespace
}  // namespace weft::train
