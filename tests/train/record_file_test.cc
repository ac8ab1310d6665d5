// Records in files of every format and layout, split by content; and broken files.
#include "train/data/record_file.h"

#include <gtest/gtest.h>

#include <map>
#include <set>

#include "train/data/data_files.h"
#include "train/data_case.h"

namespace weft::train {
namespace {

using test::TempDir;

std::vector<std::string> All(const RecordFile& file, Part part = Part::kTrain) {
    std::vector<std::string> records;
    std::string buffer;
    for (uint64_t i = 0; i < file.size(part); ++i) {
        records.emplace_back(Must(file.Read(part, i, buffer)));
    }
    return records;
}

std::string RecordFileErrorOf(const std::string& text) {
    const TempDir folder;
    const auto file = RecordFile::Open(WriteText(folder, "data.json", text));
    return file.ok() ? "" : file.error().message;
}

TEST(RecordFile, FindsRecordsOfEveryForm) {
    const TempDir folder;
    const std::vector<std::string> wanted = {R"({"a": "x, ] } \" {"})", R"({"b": [1, {"c": 2}]})",
                                             "{}"};
    const std::pair<std::string, RecordFile::Form> cases[] = {
        {wanted[0] + "\n" + wanted[1] + "\n" + wanted[2], RecordFile::Form::kLines},
        {"\n\n  " + wanted[0] + " \r\n\r\n" + wanted[1] + "\r\n\t\n" + wanted[2] + "\n\n",
         RecordFile::Form::kLines},
        {"\xEF\xBB\xBF" + wanted[0] + "\n" + wanted[1] + "\n" + wanted[2] + "\n",
         RecordFile::Form::kLines},
        {"[" + wanted[0] + "," + wanted[1] + "," + wanted[2] + "]", RecordFile::Form::kArray},
        {"\xEF\xBB\xBF\n [\n " + wanted[0] + "\n ,\n" + wanted[1] + " , " + wanted[2] + "\n]\n ",
         RecordFile::Form::kArray},
        {"{\n \"one, [\": " + wanted[0] + ",\n \"t\\\"wo\":" + wanted[1] + ", \"3\" :\n" +
             wanted[2] + "\n}\n",
         RecordFile::Form::kObject},
    };
    for (const auto& [text, form] : cases) {
        const RecordFile file = Must(RecordFile::Open(WriteText(folder, "f", text)));
        EXPECT_EQ(file.form(), form) << text;
        EXPECT_EQ(All(file), wanted) << text;
        EXPECT_EQ(file.size(Part::kTest), 0u);
        // The same with hashes, which use another code path.
        const RecordFile split = Must(RecordFile::Open(folder / "f", {.test = 1e-12}));
        EXPECT_EQ(All(split), wanted) << text;
    }
}

TEST(RecordFile, PlacesAreCountedFromOne) {
    const TempDir folder;
    const RecordFile lines =
        Must(RecordFile::Open(WriteText(folder, "l.jsonl", "\n{\"a\": 1}\n\n\n{\"b\": 2}\n")));
    EXPECT_TRUE(lines.Where(Part::kTrain, 0).ends_with("l.jsonl: line 2"));
    EXPECT_TRUE(lines.Where(Part::kTrain, 1).ends_with("l.jsonl: line 5"));
    const RecordFile array = Must(RecordFile::Open(WriteText(folder, "a.json", "[{}, {}]")));
    EXPECT_TRUE(array.Where(Part::kTrain, 1).ends_with("a.json: record 2 (byte 5)"));
}

// An incomplete first line is a bad record, not the start of a multi-line object.
TEST(RecordFile, AFirstLineWithoutItsEndIsALine) {
    const TempDir folder;
    const std::string more = "\n{\"text\": \"b\"}\n{\"text\": \"c\"}\n";
    for (const std::string first :
         {R"({"text": "a")", R"({"text": "a",)", "{", R"({"messages": [{"role": "user"})",
          R"({"messages": [{"role": "user"}])"}) {
        for (const std::string gap : {"", " \r", "\n\n "}) {
            const RecordFile file =
                Must(RecordFile::Open(WriteText(folder, "f.jsonl", first + gap + more)));
            EXPECT_EQ(file.form(), RecordFile::Form::kLines) << first;
            ASSERT_EQ(file.size(Part::kTrain), 3u) << first;
            EXPECT_EQ(All(file)[0], first);
            EXPECT_TRUE(file.Where(Part::kTrain, 0).ends_with("f.jsonl: line 1")) << first;
        }
    }
    for (const std::string whole : {"{\"a\":\n{},\n\"b\": {}}", "{\n\"a\": {}}"}) {
        const RecordFile file = Must(RecordFile::Open(WriteText(folder, "f.json", whole)));
        EXPECT_EQ(file.form(), RecordFile::Form::kObject) << whole;
    }
    for (const std::string whole : {"{\"a\": [\n{},\n{}]}", "{\"a\": [{},\n{}],\n\"b\": {}}"}) {
        const RecordFile file = Must(RecordFile::Open(WriteText(folder, "f.json", whole)));
        EXPECT_EQ(All(file), std::vector<std::string>{whole});
    }
}

// An object of records is read alike in every layout, and so is a single record.
TEST(RecordFile, LayoutDoesNotMatter) {
    const TempDir folder;
    const auto all = [&](const std::string& text) {
        const auto file = RecordFile::Open(WriteText(folder, "f.json", text), {.test = 1e-12});
        return file.ok() ? All(*file) : std::vector<std::string>{file.error().message};
    };
    const chat::OrderedJson keyed{{"a 1", {{"text", "x } , \" { y"}, {"n", {1, {{"z", 2}}}}}},
                                  {"b: 2", {{"text", "z"}}}};
    const chat::OrderedJson one{{"meta", {{"id", 3}}}, {"text", "x } , \" { y"}, {"n", {1}}};
    for (const int indent : {-1, 0, 1, 4}) {
        for (const std::string end : {"", "\n", "\r\n \n"}) {
            const auto records = all(keyed.dump(indent) + end);
            ASSERT_EQ(records.size(), 2u) << indent;
            EXPECT_EQ(chat::OrderedJson::parse(records[0]), keyed["a 1"]);
            EXPECT_EQ(chat::OrderedJson::parse(records[1]), keyed["b: 2"]);
            const auto single = all(one.dump(indent) + end);
            ASSERT_EQ(single.size(), 1u) << indent;
            EXPECT_EQ(chat::OrderedJson::parse(single[0]), one);
            // Several records in a row, as jq prints them.
            const auto many = all(one.dump(indent) + end + one.dump(indent) + "\n" + one.dump(-1));
            ASSERT_EQ(many.size(), 3u) << indent << many[0];
            for (const std::string& each : many) EXPECT_EQ(chat::OrderedJson::parse(each), one);
        }
    }
    // More records in one line than fit the first buffer.
    chat::OrderedJson large;
    for (int i = 0; i < 3000; ++i) large[std::to_string(i)] = {{"text", std::string(1000, 'x')}};
    EXPECT_EQ(all(large.dump()).size(), 3000u);
    // JSON lines stay lines, whatever their members hold.
    const std::string line = R"({"a": {"text": "x"}})";
    EXPECT_EQ(all(line + "\n" + line + "\n").size(), 2u);
    EXPECT_EQ(all("{}"), std::vector<std::string>{"{}"});
    const std::string cut = one.dump(1).substr(0, one.dump(1).size() - 2);
    EXPECT_NE(all(cut)[0].find("the file ends before the records do"), std::string::npos);
    EXPECT_NE(all(one.dump(1) + "\n, " + one.dump(1))[0].find("after 1 records: expected '{'"),
              std::string::npos);
}

// More than a buffer and more than a mark, with records across the boundaries.
TEST(RecordFile, BordersOfBuffersAreNoBorders) {
    const TempDir folder;
    std::string lines, array = "[";
    constexpr int kCount = 5000;
    const auto record = [](int i) {
        return fmt::format("{{\"text\": \"{} \\\\ {} \\\"\"}}", i,
                           std::string(static_cast<size_t>(i * 7919 % 9000), 'x'));
    };
    for (int i = 0; i < kCount; ++i) {
        lines += record(i) + "\n";
        array += fmt::format("{}{}", i == 0 ? "" : ",", record(i));
    }
    ASSERT_GT(lines.size(), 17u << 20);
    const RecordFile by_line = Must(RecordFile::Open(WriteText(folder, "l", lines)));
    const RecordFile in_array = Must(RecordFile::Open(WriteText(folder, "a", array + "]")));
    const RecordFile split = Must(RecordFile::Open(folder / "l", {.test = 0.25, .seed = 3}));
    ASSERT_EQ(by_line.size(Part::kTrain), static_cast<uint64_t>(kCount));
    ASSERT_EQ(in_array.size(Part::kTrain), static_cast<uint64_t>(kCount));
    ASSERT_EQ(split.size(Part::kTrain) + split.size(Part::kTest), static_cast<uint64_t>(kCount));
    std::string buffer;
    for (uint64_t i = 0; i < kCount; ++i) {
        EXPECT_EQ(Must(by_line.Read(Part::kTrain, i, buffer)), record(static_cast<int>(i)));
        EXPECT_EQ(Must(in_array.Read(Part::kTrain, i, buffer)), record(static_cast<int>(i)));
    }
    for (uint64_t i = 0; i < kCount; i += 7) {
        EXPECT_TRUE(by_line.Where(Part::kTrain, i).ends_with(fmt::format(": line {}", i + 1)));
    }
    EXPECT_TRUE(in_array.Where(Part::kTrain, 4999).find("record 5000 ") != std::string::npos);
}

// The side of a record depends only on its bytes and the seed.
TEST(RecordFile, SplitsByContent) {
    const TempDir folder;
    std::string few, many, array = "[\n";
    constexpr int kCount = 4000;
    for (int i = 0; i < kCount; ++i) {
        const std::string record = fmt::format("{{\"text\": \"number {}\"}}", i);
        many = record + "\n" + many;  // also in another order
        if (i % 2 == 0) few += record + "\n";
        array += fmt::format("{}  {{\"text\":\"number {}\"}}", i == 0 ? "" : ",\n", i);
    }
    const SplitOptions split{.test = 0.2, .seed = 7};
    const RecordFile all = Must(RecordFile::Open(WriteText(folder, "many", many), split));
    const RecordFile half = Must(RecordFile::Open(WriteText(folder, "few", few), split));
    const RecordFile other =
        Must(RecordFile::Open(WriteText(folder, "array", array + "\n]"), split));
    // 4,000 draws of 0.2: a standard deviation of 25; six are allowed.
    EXPECT_NEAR(static_cast<double>(all.size(Part::kTest)), 0.2 * kCount, 6 * 25.3);
    const auto in_test = All(all, Part::kTest);
    const std::set<std::string> test(in_test.begin(), in_test.end());
    for (const std::string& record : All(half, Part::kTest)) EXPECT_TRUE(test.contains(record));
    for (const std::string& record : All(half)) EXPECT_FALSE(test.contains(record));
    EXPECT_EQ(other.size(Part::kTest), all.size(Part::kTest));
    const RecordFile seeded = Must(RecordFile::Open(folder / "many", {.test = 0.2, .seed = 8}));
    EXPECT_NE(All(seeded, Part::kTest), in_test);
    EXPECT_FALSE(RecordFile::Open(folder / "many", {.test = 1}).ok());
}

TEST(RecordFile, BrokenFramesNameTheByte) {
    const auto said = [](const std::string& text, std::string_view words) {
        const std::string error = RecordFileErrorOf(text);
        EXPECT_NE(error.find(words), std::string::npos) << text << "\n" << error;
        EXPECT_NE(error.find("data.json"), std::string::npos) << error;
    };
    said("[{}, {}", "ends before the records do");
    said("[{\"a\": \"", "ends before the records do");
    said("[{}, , {}]", "byte 5, after 1 records: a record is missing");
    said("[{},]", "byte 4, after 1 records: a record is missing");
    said("[{}] {}", "byte 5, after 1 records: something follows");
    said("[{}}", "byte 3, after 1 records: brackets");
    said("{\n\"a\": }", "a record is missing");
    said("\x1f\x8b\x08", "gzip");
    said("PAR1xxxx", "Parquet");
    said("\xff\xfe{", "UTF-16");
}

// The error has the line of Python that writes the file as Parquet.
TEST(RecordFile, ArrowFilesAreRefused) {
    const TempDir folder;
    const std::string arrow = folder / "a-0.arrow", parquet = folder / "a-0.parquet";
    const auto said = [&](const std::string& head, const std::string& python) {
        WriteText(folder, "a-0.arrow", head + std::string(100, '\0'));
        EXPECT_EQ(Must(DataFiles({folder.path()})).files, std::vector<std::string>{arrow});
        const auto opened = RecordFile::Open(arrow);
        ASSERT_FALSE(opened.ok());
        EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
        EXPECT_EQ(opened.error().message,
                  arrow +
                      ": an Arrow file, which Weft does not read. Write each such file as Parquet "
                      "with this line of Python, and train on the result: " +
                      python);
    };
    const std::string feather =
        "import pyarrow.feather, pyarrow.parquet; pyarrow.parquet.write_"
        "table(pyarrow.feather.read_table('" +
        arrow + "'), '" + parquet + "')";
    said("ARROW1", feather);
    said("FEA1", feather);
    said("\xff\xff\xff\xff\x10", "import datasets; datasets.load_dataset('arrow', data_files='" +
                                     arrow + "', split='train').to_parquet('" + parquet + "')");
    // All files of a folder of save_to_disk.
    WriteText(folder, "state.json", "{}");
    const std::string message = RecordFile::Open(arrow).error().message;
    EXPECT_NE(message.find("Write its folder as Parquet"), message.npos) << message;
    EXPECT_TRUE(message.ends_with("load_from_disk('" + folder.path() + "').to_parquet('" +
                                  folder.path() + ".parquet')"))
        << message;
}

// The line is Python for any path.
TEST(RecordFile, ArrowPathsAreStringsOfPython) {
    const TempDir folder;
    std::filesystem::create_directories(folder / "it's");
    WriteText(folder, "it's/a\\b\n.arrow", "ARROW1" + std::string(100, '\0'));
    const std::string message = RecordFile::Open(folder / "it's/a\\b\n.arrow").error().message;
    const std::string python = "read_table('" + folder.path() + "/it\\'s/a\\\\b\\x0a.arrow'), '" +
                               folder.path() + "/it\\'s/a\\\\b\\x0a.parquet')";
    EXPECT_TRUE(message.ends_with(python)) << message << "\n" << python;
}

TEST(RecordFile, TooLongRecordsAreCountedAndLeftOut) {
    const TempDir folder;
    const std::string text = "{\"text\": \"" + std::string(17 << 20, 'y') + "\"}\n{}\n";
    const RecordFile file = Must(RecordFile::Open(WriteText(folder, "f", text)));
    EXPECT_EQ(file.oversized(), 1u);
    EXPECT_NE(file.first_oversized().find("record 1 (byte 0)"), std::string::npos);
    EXPECT_EQ(All(file), std::vector<std::string>{"{}"});
}

TEST(RecordFile, AFileThatShrankIsAnError) {
    const TempDir folder;
    const RecordFile file = Must(RecordFile::Open(WriteText(folder, "f", "{}\n{\"a\": 1}\n")));
    WriteText(folder, "f", "{}");
    std::string buffer;
    EXPECT_TRUE(file.Read(Part::kTrain, 0, buffer).ok());
    EXPECT_EQ(file.Read(Part::kTrain, 1, buffer).error().code, ErrorCode::kCorrupt);
}

}  // namespace
}  // namespace weft::train
