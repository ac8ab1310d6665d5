// Arrow files against records that the package datasets saved (tools/make_arrow_golden.py), and
// damaged files.
#include "train/data/arrow_stream.h"

#include <gtest/gtest.h>

#include <span>

#include "support/memory_file.h"
#include "support/paths.h"
#include "train/data/data_files.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

using test::TempDir;

std::string Golden(const std::string& name) {
    return support::TestData("/arrow/" + name);
}

Result<std::string> Read(const std::string& path) {
    WEFT_ASSIGN(const File file, File::Open(path));
    std::string all;
    const Status read = ReadArrow(file, [&](auto lines) {
        all += lines;
        return Status();
    });
    if (!read.ok()) return read.error();
    return all;
}

TEST(Arrow, RecordsAreThoseOfDatasets) {
    const std::vector<nlohmann::json> expected =
        JsonLines(Must(ReadTextFile(Golden("records.jsonl"))));
    ASSERT_EQ(expected.size(), 5u);
    for (const char* name : {"saved.arrow", "file.arrow"}) {
        EXPECT_EQ(JsonLines(Must(Read(Golden(name)))), expected) << name;
        const RecordFile file = Must(RecordFile::Open(Golden(name)));
        EXPECT_EQ(file.form(), RecordForm::kLines);
        std::string buffer;
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_EQ(nlohmann::json::parse(Must(file.Read(Part::kTrain, i, buffer))), expected[i]);
        }
    }
}

// Columns of JSON texts are values of the record, as in the JSON lines that they come from.
TEST(Arrow, ColumnsOfJsonAreValues) {
    const std::vector<nlohmann::json> expected =
        JsonLines(Must(ReadTextFile(Golden("json.jsonl"))));
    ASSERT_EQ(expected.size(), 4u);
    for (const char* name : {"json.arrow", "json.parquet"}) {
        const RecordFile file = Must(RecordFile::Open(Golden(name)));
        ASSERT_EQ(file.size(Part::kTrain), expected.size());
        std::string buffer;
        for (size_t i = 0; i < expected.size(); ++i) {
            EXPECT_EQ(nlohmann::json::parse(Must(file.Read(Part::kTrain, i, buffer))), expected[i])
                << name;
        }
    }
}

// A text that JSON's parser would read as another number stays a text.
TEST(Arrow, NumbersInColumnsOfJsonKeepTheirDigits) {
    std::string taken;
    const RecordLines::Take take = [&](std::string_view text) {
        taken += text;
        return Status();
    };
    RecordLines lines(take);
    Scalar json;
    json.kind = Scalar::kJson;
    lines.Begin('[');
    for (const std::string_view text :
         {"42", "1.5", "1.50", "18.00", "1e3", "18446744073709551616"}) {
        lines.Value(json, std::as_bytes(std::span(text)), "answer");
    }
    lines.End(']');
    ASSERT_TRUE(lines.EndRecord().ok() && lines.Flush().ok());
    EXPECT_EQ(taken, "[42,1.5,\"1.50\",\"18.00\",\"1e3\",\"18446744073709551616\"]\n");
}

std::vector<nlohmann::json> RecordsOf(const std::string& name) {
    const RecordFile file = Must(RecordFile::Open(Golden(name)));
    std::vector<nlohmann::json> records;
    std::string buffer;
    for (size_t i = 0; i < file.size(Part::kTrain); ++i) {
        records.push_back(nlohmann::json::parse(Must(file.Read(Part::kTrain, i, buffer))));
    }
    return records;
}

// The values are those of the same columns in a Parquet file.
TEST(Arrow, ColumnsOfAllTypesAreThoseOfParquet) {
    const std::vector<nlohmann::json> expected =
        JsonLines(Must(ReadTextFile(Golden("types.jsonl"))));
    ASSERT_EQ(expected.size(), 2u);
    EXPECT_EQ(RecordsOf("types.arrow"), expected);
}

TEST(Arrow, FilesOfPandasAndPolarsAreRead) {
    const std::vector<nlohmann::json> all = JsonLines(Must(ReadTextFile(Golden("types.jsonl"))));
    const std::vector<std::string> pandas = {"text", "kind", "pair", "time", "duration", "when"};
    const std::vector<std::string> polars = {"text",  "view", "views", "when", "bytes",
                                             "price", "kind", "kinds", "pair", "duration"};
    for (const auto& [name, columns] :
         {std::pair("pandas", pandas), {"polars1", polars}, {"polars2", polars}}) {
        std::vector<nlohmann::json> expected(2, nlohmann::json::object());
        for (size_t i = 0; i < expected.size(); ++i) {
            for (const std::string& column : columns) {
                if (all[i].contains(column)) expected[i][column] = all[i][column];
            }
        }
        EXPECT_EQ(RecordsOf(name + std::string(".arrow")), expected) << name;
    }
}

TEST(Arrow, FoldersHaveTheirArrowFiles) {
    const TempDir folder;
    WriteText(folder, "data-00000-of-00001.arrow", Must(ReadTextFile(Golden("saved.arrow"))));
    WriteText(folder, "state.json", "{}");
    const DataFileList list = Must(DataFiles({folder.path()}));
    EXPECT_EQ(list.files, std::vector<std::string>{folder / "data-00000-of-00001.arrow"});
}

TEST(Arrow, OtherFormsAreRefused) {
    const auto packed = RecordFile::Open(Golden("packed.arrow"));
    ASSERT_FALSE(packed.ok());
    EXPECT_NE(packed.error().message.find("packed.arrow: it can't be read as an Arrow file: its "
                                          "columns are compressed. Write it with "
                                          "compression='uncompressed', or as Parquet"),
              std::string::npos)
        << packed.error().message;
}

// No byte that is missing or wrong does more harm than an error.
TEST(Arrow, DamageIsAnErrorOrAnotherText) {
    support::MemoryFile file;
    for (const char* name : {"saved.arrow", "types.arrow", "polars2.arrow"}) {
        const std::string whole = Must(ReadTextFile(Golden(name)));
        const size_t records = JsonLines(Must(Read(Golden(name)))).size();
        size_t errors = 0;
        for (size_t at = 0; at < whole.size(); at += 3) {
            std::string damaged = whole;
            damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 == 0 ? 0x80 : 0x01));
            errors += Read(file.Write(damaged)).ok() ? 0 : 1;
            const auto cut = Read(file.Write(whole.substr(0, at)));
            if (cut.ok()) {
                EXPECT_LE(JsonLines(*cut).size(), records);
            }
        }
        EXPECT_GT(errors, whole.size() / 30) << name;
    }
}

}  // namespace
}  // namespace weft::train
