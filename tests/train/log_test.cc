// Event files parsed by independent code; CSV written, resumed and truncated. tensorboard_test.py
// opens an event file with TensorBoard's reader.
#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "base/crc32c.h"
#include "train/data_case.h"
#include "train/log/event_file.h"
#include "train/log/train_log.h"

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
    ASSERT_TRUE(log.AddSample(0, 1, "a *text* of ", "\xC3\xA9").ok());
}

TEST(TrainLog, WritesRowsThatReadBackTheSame) {
    const TempDir folder;
    const TrainLogOptions options{.csv = folder / "x/t.csv", .columns = {"loss", "lr", "z"}};
    TrainLog log = Must(TrainLog::Open(options));
    for (int64_t step = 0; step < 50; ++step) {
        const double values[] = {1.0 / (3 + static_cast<double>(step)), 1e-300,
                                 step == 4 ? NAN : -2};
        ASSERT_TRUE(log.Add(step, values).ok());
    }
    std::ifstream file(options.csv);
    std::string line;
    std::getline(file, line);
    EXPECT_EQ(line, "step,loss,lr,z");
    for (int64_t step = 0; step < 50; ++step) {
        ASSERT_TRUE(std::getline(file, line)) << step;
        const char* at = line.c_str();
        char* end = nullptr;
        EXPECT_EQ(std::strtoll(at, &end, 10), step);
        EXPECT_EQ(std::strtod(end + 1, &end), 1.0 / (3 + static_cast<double>(step)));
        EXPECT_EQ(std::strtod(end + 1, &end), 1e-300);
        EXPECT_EQ(std::isnan(std::strtod(end + 1, &end)), step == 4);
        EXPECT_EQ(*end, '\0') << line;
    }
    EXPECT_FALSE(std::getline(file, line));
}

TEST(TrainLog, AResumedRunGoesOnWhereItStopped) {
    const TempDir folder;
    TrainLogOptions options{.csv = folder / "t.csv", .columns = {"loss"}};
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
    add(6, 8, 2);
    const std::string rows = "step,loss\n0,1\n1,1\n2,1\n3,1\n4,1\n5,1\n6,2\n7,2\n";
    EXPECT_EQ(Slurp(options.csv), rows);
    options.columns = {"other"};
    const auto other = TrainLog::Open(options);
    ASSERT_FALSE(other.ok());
    EXPECT_EQ(other.error().code, ErrorCode::kUsage);
    EXPECT_EQ(Slurp(options.csv), rows);
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
    const TrainLogOptions options{
        .csv = folder / "a/t.csv", .tensorboard = folder / "a", .columns = {"loss"}};
    TrainLog log = Must(TrainLog::Open(options));
    const double value = 2;
    const auto add = [&](int64_t step) { return log.Add(step, std::span(&value, 1)).ok(); };
    ASSERT_TRUE(add(0));
    std::filesystem::rename(folder / "a", folder / "b");
    ASSERT_TRUE(WriteFile(folder / "a", {}).ok());  // a file in the folder's place
    EXPECT_FALSE(add(1));
    EXPECT_FALSE(add(2));
    EXPECT_EQ(log.missing(), 2);
    std::filesystem::remove(folder / "a");
    std::filesystem::rename(folder / "b", folder / "a");
    EXPECT_TRUE(add(3));
    EXPECT_EQ(log.missing(), 0);
    EXPECT_EQ(Slurp(options.csv), "step,loss\n0,2\n1,2\n2,2\n3,2\n");
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

}  // namespace
}  // namespace weft::train
