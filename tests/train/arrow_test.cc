// Arrow files against records that the package datasets saved (tools/make_arrow_golden.py), and
// damaged files.
#include "train/data/arrow_stream.h"

#include <gtest/gtest.h>

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
    const Status read = ReadArrow(file, path.ends_with("file.arrow") ? 8 : 0, [&](auto lines) {
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
                                          "columns are compressed"),
              std::string::npos)
        << packed.error().message;
}

// No byte that is missing or wrong does more harm than an error.
TEST(Arrow, DamageIsAnErrorOrAnotherText) {
    support::MemoryFile file;
    const std::string whole = Must(ReadTextFile(Golden("saved.arrow")));
    size_t errors = 0;
    for (size_t at = 0; at < whole.size(); at += 3) {
        std::string damaged = whole;
        damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 == 0 ? 0x80 : 0x01));
        errors += Read(file.Write(damaged)).ok() ? 0 : 1;
        const auto cut = Read(file.Write(whole.substr(0, at)));
        if (cut.ok()) {
            EXPECT_LT(JsonLines(*cut).size(), 6u);
        }
    }
    EXPECT_GT(errors, whole.size() / 30);
}

}  // namespace
}  // namespace weft::train
