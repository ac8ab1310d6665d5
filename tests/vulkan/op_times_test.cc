// Times of ops, combined from the clocks of device and host.
#include "backend/gpu/record/op_times.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::backend::on_gpu {
namespace {

void ExpectInOrder(std::span<const OpTiming> timings) {
    for (size_t i = 0; i < timings.size(); ++i) {
        EXPECT_LE(timings[i].begin_ns, timings[i].end_ns) << i;
        if (i > 0) {
            EXPECT_LE(timings[i - 1].end_ns, timings[i].begin_ns) << i;
        }
    }
}

TEST(VulkanOpTimes, AreCountedBackFromTheHostsTime) {
    OpTimes times;
    times.BeginStage();
    times.NoteSubmission(std::vector<int32_t>{4, 5}, std::vector<int64_t>{0, 10, 30}, 1000);
    ASSERT_EQ(times.timings().size(), 2u);
    EXPECT_EQ(times.timings()[0].op, 4);
    EXPECT_EQ(times.timings()[0].begin_ns, 970);
    EXPECT_EQ(times.timings()[0].end_ns, 980);
    EXPECT_EQ(times.timings()[1].end_ns, 1000);
}

// The host missed the end of the first submission: its ops, including the one that continues in the
// second, ended earlier.
TEST(VulkanOpTimes, LateNoticeOfASubmissionIsCorrected) {
    OpTimes times;
    times.BeginStage();
    times.NoteSubmission(std::vector<int32_t>{0, 1}, std::vector<int64_t>{0, 50, 100}, 1000);
    times.NoteSubmission(std::vector<int32_t>{1, 2}, std::vector<int64_t>{0, 300, 400}, 1010);
    const std::span<const OpTiming> timings = times.timings();
    ASSERT_EQ(timings.size(), 3u);
    ExpectInOrder(timings);
    EXPECT_EQ(timings[0].begin_ns, 510);
    EXPECT_EQ(timings[1].begin_ns, 560);
    EXPECT_EQ(timings[1].end_ns, 910);  // including its second part
    EXPECT_EQ(timings[2].end_ns, 1010);
}

// Times that the host measured itself stay unchanged.
TEST(VulkanOpTimes, AStageBeginsAfterTimesOfTheHost) {
    OpTimes times;
    times.BeginStage();
    times.NoteSubmission(std::vector<int32_t>{0}, std::vector<int64_t>{0, 100}, 1000);
    times.Note({1, 1000, 1500, 0});
    times.BeginStage();
    times.NoteSubmission(std::vector<int32_t>{2}, std::vector<int64_t>{0, 40}, 1700);
    times.NoteSubmission(std::vector<int32_t>{3}, std::vector<int64_t>{0, 150}, 1710);
    ExpectInOrder(times.timings());
    EXPECT_EQ(times.timings()[1].begin_ns, 1000);
    EXPECT_EQ(times.timings()[1].end_ns, 1500);
    EXPECT_EQ(times.timings()[2].begin_ns, 1520);
}

// A device without timestamps.
TEST(VulkanOpTimes, NothingIsRecordedWithoutTimestamps) {
    OpTimes times;
    times.BeginStage();
    times.NoteSubmission(std::vector<int32_t>{0}, {}, 1000);
    EXPECT_TRUE(times.timings().empty());
}

}  // namespace
}  // namespace weft::backend::on_gpu
