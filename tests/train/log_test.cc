// Event files parsed by independent code; CSV and JSON lines written, read, resumed and truncated;
// plots. tensorboard_test.py opens an event file with TensorBoard's reader.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/crc32c.h"
#include "base/utf8.h"
#include "train/data_case.h"
#include "train/log/event_file.h"
#include "train/log/train_plot.h"

namespace weft::train {
namespace {

using test::TempDir;

std::string Slurp(const std::string& path) {
    return Must(ReadTextFile(path));
}

TEST(Crc32c, HasTheCheckValueOfItsStandard) {
    EXPECT_EQ(Crc32c(std::as_bytes(std::span("123456789", 9))), 0xe3069283u);
}

// Fields of a protocol buffer by number: integers as they are, others as bytes.
std::multimap<uint32_t, std::string> Fields(std::string_view bytes) {
    std::multimap<uint32_t, std::string> fields;
    size_t at = 0;
    const auto varint = [&] {
        uint64_t value = 0;
        for (int shift = 0; at < bytes.size(); shift += 7) {
            const auto byte = static_cast<uint8_t>(bytes[at++]);
            value |= static_cast<uint64_t>(byte & 0x7f) << shift;
            if (byte < 0x80) break;
        }
        return value;
    };
    while (at < bytes.size()) {
        const uint64_t key = varint();
        const uint64_t type = key & 7;
        if (type == 0) {
            fields.emplace(key >> 3, std::to_string(static_cast<int64_t>(varint())));
            continue;
        }
        const size_t size = type == 1 ? 8 : type == 5 ? 4 : varint();
        fields.emplace(key >> 3, bytes.substr(at, size));
        at += size;
    }
    return fields;
}

std::string One(const std::multimap<uint32_t, std::string>& fields, uint32_t number) {
    EXPECT_EQ(fields.count(number), 1u) << number;
    return fields.count(number) == 1 ? fields.find(number)->second : "";
}

// The events of a file; verifies every checksum.
std::vector<std::string> Events(const std::string& text) {
    std::vector<std::string> events;
    size_t at = 0;
    const auto masked = [](std::string_view data) {
        const uint32_t crc = Crc32cPortable(std::as_bytes(std::span(data)));
        return ((crc >> 15) | (crc << 17)) + 0xa282ead8u;
    };
    while (at + 12 <= text.size()) {
        uint64_t size = 0;
        uint32_t head = 0, tail = 0;
        std::memcpy(&size, text.data() + at, 8);
        std::memcpy(&head, text.data() + at + 8, 4);
        EXPECT_EQ(head, masked(std::string_view(text).substr(at, 8)));
        if (size > text.size() - at - 16) break;
        events.push_back(text.substr(at + 12, size));
        std::memcpy(&tail, text.data() + at + 12 + size, 4);
        EXPECT_EQ(tail, masked(events.back()));
        at += 16 + size;
    }
    EXPECT_EQ(at, text.size());
    return events;
}

TEST(EventFile, HoldsFramedProtocolBuffers) {
    const TempDir folder;
    std::string path;
    {
        EventFile file = Must(EventFile::Create(folder / "a/b"));
        path = file.path();
        ASSERT_TRUE(file.AddScalar("train/loss", 300, 2.5).ok());
        ASSERT_TRUE(file.AddScalar("train/loss", 301, NAN).ok());
        ASSERT_TRUE(file.AddText("config", 7, "**bold**").ok());
    }
    EXPECT_NE(path.find("/a/b/events.out.tfevents."), std::string::npos);
    const auto events = Events(Slurp(path));
    ASSERT_EQ(events.size(), 4u);
    EXPECT_EQ(One(Fields(events[0]), 3), "brain.Event:2");
    const auto scalar = Fields(events[1]);
    EXPECT_EQ(One(scalar, 2), "300");
    double wall_time = 0;
    std::memcpy(&wall_time, One(scalar, 1).data(), 8);
    EXPECT_GT(wall_time, 1.6e9);
    const auto value = Fields(One(Fields(One(scalar, 5)), 1));
    EXPECT_EQ(One(value, 1), "train/loss");
    float number = 0;
    std::memcpy(&number, One(value, 2).data(), 4);
    EXPECT_EQ(number, 2.5f);
    const auto text = Fields(One(Fields(One(Fields(events[3]), 5)), 1));
    EXPECT_EQ(One(Fields(One(text, 8)), 8), "**bold**");
    EXPECT_EQ(One(Fields(One(Fields(One(text, 9)), 1)), 1), "text");
}

// Run by tensorboard_test.py, which names the folder.
TEST(EventFile, ForTensorBoard) {
    const char* folder = std::getenv("WEFT_EVENT_FOLDER");
    const TempDir own;
    TrainLog log = Must(TrainLog::Open(
        {.tensorboard = folder != nullptr ? folder : own.path(), .columns = {"loss", "lr"}}));
    for (int step = 0; step < 300; ++step) {
        const double values[] = {4.0 / (1 + step), 1e-3 * step};
        ASSERT_TRUE(log.Add(step, values).ok());
    }
    ASSERT_TRUE(log.AddText(0, "config", "a *text* of \xC3\xA9").ok());
}

TEST(TrainLog, WritesRowsThatReadBackTheSame) {
    const TempDir folder;
    const TrainLogOptions options{
        .csv = folder / "x/t.csv", .jsonl = folder / "t.jsonl", .columns = {"loss", "lr", "z"}};
    TrainLog log = Must(TrainLog::Open(options));
    for (int64_t step = 0; step < 50; ++step) {
        const double values[] = {1.0 / (3 + static_cast<double>(step)), 1e-300,
                                 step == 4 ? NAN : -2};
        ASSERT_TRUE(log.Add(step, values).ok());
    }
    ASSERT_TRUE(log.AddText(3, "note", "a\xff\nb").ok());
    EXPECT_TRUE(Slurp(options.csv).starts_with("step,loss,lr,z\n0,0.3333333333333333,1e-300,-2\n"));
    for (const std::string& path : {options.csv, options.jsonl}) {
        const TrainSeries series = Must(ReadTrainLog(path));
        EXPECT_EQ(series.columns, options.columns);
        ASSERT_EQ(series.steps.size(), 50u);
        for (size_t i = 0; i < 50; ++i) {
            EXPECT_EQ(series.values[0][i], 1.0 / (3 + static_cast<double>(i)));
            EXPECT_EQ(std::isnan(series.values[2][i]), i == 4);
        }
    }
}

TEST(TrainLog, AResumedRunGoesOnWhereItStopped) {
    const TempDir folder;
    TrainLogOptions options{
        .csv = folder / "t.csv", .jsonl = folder / "t.jsonl", .columns = {"loss"}};
    const auto add = [&](int64_t from, int64_t to, double value) {
        options.first_step = from;
        TrainLog log = Must(TrainLog::Open(options));
        for (int64_t step = from; step < to; ++step) {
            ASSERT_TRUE(log.Add(step, std::span(&value, 1)).ok());
        }
    };
    add(0, 10, 1);
    // Killed in the middle of a line.
    std::ofstream(options.csv, std::ios::app) << "10,0.";
    std::ofstream(options.jsonl, std::ios::app) << "{\"step\": 1";
    EXPECT_EQ(Must(ReadTrainLog(options.csv)).steps.size(), 10u);
    EXPECT_EQ(Must(ReadTrainLog(options.jsonl)).steps.size(), 10u);
    add(6, 8, 2);
    for (const std::string& path : {options.csv, options.jsonl}) {
        const TrainSeries series = Must(ReadTrainLog(path));
        EXPECT_EQ(series.steps, (std::vector<int64_t>{0, 1, 2, 3, 4, 5, 6, 7})) << path;
        EXPECT_EQ(series.values[0], (std::vector<double>{1, 1, 1, 1, 1, 1, 2, 2})) << path;
    }
    options.columns = {"other"};
    const auto other = TrainLog::Open(options);
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, ErrorCode::kUsage);
    EXPECT_EQ(Must(ReadTrainLog(options.csv)).steps.size(), 8u);
}

// Readable lines of a damaged file stay.
TEST(TrainLog, AResumedRunLeavesBrokenRowsOut) {
    const TempDir folder;
    const TrainLogOptions options{.csv = folder / "t.csv", .columns = {"loss"}, .first_step = 9};
    const std::string head = "step,loss\n";
    const struct {
        std::string text, expected;
        size_t notes;
    } cases[] = {
        {head + "0,4\n1,3,3\n2,2\n", head + "0,4\n2,2\n", 1},
        {head + "0,4\n1,3\n2,2\n", head + "0,4\n1,3\n2,2\n", 0},
        {"stdp,loss\n0,4\n", head + "0,4\n", 1},  // a flipped bit in the header
        {head + "0,4\n5,3\n2,2\n3,1\n", head + "0,4\n2,2\n3,1\n", 1},  // and in steps
        {head + "4,4\n1,3\n2,2\n", head + "1,3\n2,2\n", 1},
        {head + "0,4\n1,x\n2,nan\n", head + "0,4\n2,nan\n", 1},
        {head + "0,4\n" + std::string(9, '\0') + "\n2,2\n", head + "0,4\n2,2\n", 1},
        {head + "0,4\n1,3\n2,", head + "0,4\n1,3\n", 0},  // killed within a line
        {head + "0,4\n9,3\n10,1\n", head + "0,4\n", 0},   // these steps will be logged again
        {head + "0,4\n1,3\n\xff\xfe\n", head + "0,4\n1,3\n", 0},
        {"", head, 0},
        {"step", head, 1}};
    for (const auto& [text, expected, notes] : cases) {
        ASSERT_TRUE(WriteFile(options.csv, std::as_bytes(std::span(text))).ok());
        const TrainLog log = Must(TrainLog::Open(options));
        EXPECT_EQ(Slurp(options.csv), expected) << text;
        EXPECT_EQ(log.notes().size(), notes) << text;
    }
}

TEST(TrainLog, RowsWaitUntilTheyCanBeWritten) {
    const TempDir folder;
    const TrainLogOptions options{.csv = folder / "a/t.csv",
                                  .jsonl = folder / "a/t.jsonl",
                                  .tensorboard = folder / "a",
                                  .columns = {"loss"}};
    TrainLog log = Must(TrainLog::Open(options));
    const double value = 2;
    const auto add = [&](int64_t step) { return log.Add(step, std::span(&value, 1)).ok(); };
    ASSERT_TRUE(add(0));
    std::filesystem::rename(folder / "a", folder / "b");
    ASSERT_TRUE(WriteFile(folder / "a", {}).ok());  // a file in the folder's place
    EXPECT_FALSE(add(1));
    EXPECT_FALSE(add(2));
    EXPECT_EQ(log.missing(), 4);
    std::filesystem::remove(folder / "a");
    std::filesystem::rename(folder / "b", folder / "a");
    EXPECT_TRUE(add(3));
    EXPECT_EQ(log.missing(), 0);
    EXPECT_EQ(Slurp(options.csv), "step,loss\n0,2\n1,2\n2,2\n3,2\n");
    EXPECT_EQ(Must(ReadTrainLog(options.jsonl)).steps.size(), 4u);
    // After removal, the file starts again with its header.
    std::filesystem::remove(options.csv);
    EXPECT_TRUE(add(4));
    EXPECT_EQ(Slurp(options.csv), "step,loss\n4,2\n");
}

TEST(TrainLog, FewRowsWaitForeverAndNoneWithoutBound) {
    const TempDir folder;
    LogFile file(folder / "away/t.csv", "step,loss\n");
    const std::string line = "1," + std::string(1 << 20, '2') + "\n";
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(file.Add(line).ok());
    EXPECT_LE(file.waiting() * static_cast<int64_t>(line.size()),
              static_cast<int64_t>(LogFile::kMostWaitingBytes));
    EXPECT_EQ(file.waiting() + file.dropped(), 10);
}

TEST(TrainLog, ReadsOthersLogsAndNamesBrokenLines) {
    const TempDir folder;
    const auto read = [&](std::string_view text) {
        return ReadTrainLog(WriteText(folder, "log", text));
    };
    const TrainSeries csv = Must(read("loss,step\r\n2.5,3\r\n\r\n1,4\r\nx,5\r\n"));
    EXPECT_EQ(csv.steps, (std::vector<int64_t>{3, 4, 5}));
    EXPECT_EQ(csv.values[0][1], 1);
    EXPECT_TRUE(std::isnan(csv.values[0][2]));
    const TrainSeries jsonl =
        Must(read("{\"step\": 1, \"a\": 2}\n{\"step\": 2, \"b\": true}\n"
                  "{\"step\": 2, \"b\": 7}\n"));
    EXPECT_EQ(jsonl.steps, (std::vector<int64_t>{1, 2}));
    EXPECT_EQ(jsonl.columns, (std::vector<std::string>{"a", "b"}));
    EXPECT_TRUE(std::isnan(jsonl.values[0][1]));
    EXPECT_EQ(jsonl.values[1][1], 7);
    for (const auto& [text, words] : std::initializer_list<std::pair<const char*, const char*>>{
             {"", "no rows"},
             {"a,b\n1,2\n", "line 1: expected a head line"},
             {"step,a\n1,2\n1,2,3\n", "line 3: 3 columns; the head line has 2"},
             {"step,a\n-1,2\n", "line 2: no step"},
             {"{\"step\": 1}\n{]\n", "line 2: not a JSON object"},
             {"{\"stop\": 1}\n{}\n", "line 1: no 'step'"}}) {
        const auto series = read(text);
        ASSERT_FALSE(series.ok()) << text;
        EXPECT_NE(series.error().message.find(words), std::string::npos) << series.error().message;
    }
}

size_t Count(const std::string& text, std::string_view word) {
    size_t count = 0;
    for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) ++count;
    return count;
}

TEST(TrainPlot, DrawsAPanelAColumnAndALineARun) {
    TrainSeries run{.path = "a<b&c", .columns = {"loss", "lr", "odd"}, .steps = {}, .values = {}};
    run.values.resize(3);
    for (int64_t step = 0; step < 5000; ++step) {
        run.steps.push_back(step);
        run.values[0].push_back(step == 17 ? NAN : 10 / (1.0 + static_cast<double>(step)));
        run.values[1].push_back(1e-4);
        run.values[2].push_back(5);
    }
    const TrainSeries runs[] = {run, run};
    const std::string svg = Must(TrainPlotSvg(runs, {}));
    EXPECT_TRUE(svg.starts_with("<svg xmlns="));
    EXPECT_TRUE(svg.ends_with("</svg>\n"));
    EXPECT_EQ(Count(svg, "<polyline"), 4u);  // loss and lr of two runs
    EXPECT_EQ(Count(svg, "a&lt;b&amp;c"), 2u);
    EXPECT_EQ(svg.find("nan"), svg.npos);
    EXPECT_LT(svg.size(), 200'000u);  // the 5,000 points of a curve are thinned
    const std::string smooth =
        Must(TrainPlotSvg(std::span(runs, 1), {.columns = {"odd"}, .smooth = 0.9}));
    EXPECT_EQ(Count(smooth, "<polyline"), 2u);
    const auto unknown = TrainPlotSvg(runs, {.columns = {"x"}});
    ASSERT_FALSE(unknown.ok());
    EXPECT_NE(unknown.error().message.find("'loss' 'lr' 'odd'"), std::string::npos);
    EXPECT_FALSE(TrainPlotSvg(runs, {.columns = {}, .smooth = 1}).ok());
}

// Numbers at the limits of float64, or too close for ticks between them.
TEST(TrainPlot, AnyNumbersGiveAPlotOfNumbers) {
    const std::vector<std::vector<double>> curves = {{-1.7e308, 1.7e308}, {-1e300, 1e300},
                                                     {5e-324, 5e-324},    {0, 5e-324},
                                                     {1, 1 + 2.3e-16},    {1e300, 1e300}};
    for (const std::vector<double>& curve : curves) {
        for (const int64_t step : {int64_t{0}, int64_t{9'000'000'000'000'000}}) {
            const TrainSeries run{"run", {"loss"}, {step, step + 1}, {curve}};
            const std::string svg = Must(TrainPlotSvg({&run, 1}, {.columns = {}, .smooth = 0.5}));
            EXPECT_EQ(svg.find("nan"), svg.npos) << curve[0] << " to " << curve[1];
            EXPECT_EQ(svg.find("inf"), svg.npos) << curve[0] << " to " << curve[1];
            EXPECT_EQ(Count(svg, "<polyline"), std::abs(curve[0]) > 1e300 ? 0u : 2u);
            EXPECT_GE(Count(svg, "<line "), 4u) << curve[0] << " to " << curve[1];
            EXPECT_LE(Count(svg, "<line "), 20u) << curve[0] << " to " << curve[1];
        }
    }
}

TEST(TrainPlot, TextIsUtf8WhateverTheFilesIs) {
    const TrainSeries run{"a\xff\xe2\x82z", {"l\xc3\xa9\x80\x01s"}, {1, 2}, {{1, 2}}};
    const std::string svg = Must(TrainPlotSvg({&run, 1}, {.columns = run.columns, .smooth = 0}));
    EXPECT_NE(svg.find(">l\xc3\xa9\xef\xbf\xbd s</text>"), svg.npos) << svg;
    EXPECT_TRUE(IsUtf8(svg));
}

}  // namespace
}  // namespace weft::train
