#include "base/on_threads.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <barrier>
#include <set>
#include <thread>
#include <vector>

namespace weft {
namespace {

TEST(OnThreads, EachCallOnce) {
    for (const size_t threads : {size_t{0}, size_t{1}, size_t{3}, size_t{50}}) {
        for (const size_t count : {size_t{0}, size_t{1}, size_t{7}}) {
            std::vector<std::atomic<int>> calls(count);
            const Status status = OnThreads(threads, count, [&](size_t i) {
                ++calls.at(i);
                return Status();
            });
            EXPECT_TRUE(status.ok());
            for (const auto& times : calls) EXPECT_EQ(times, 1) << threads << ", " << count;
        }
    }
}

TEST(OnThreads, UsesTheGivenNumberOfThreadsIncludingTheCaller) {
    constexpr size_t kThreads = 3;
    std::barrier all(kThreads);  // a call that waits for ever has too few threads beside it
    std::set<std::thread::id> ids;
    std::mutex mutex;
    const Status status = OnThreads(kThreads, kThreads, [&](size_t) {
        all.arrive_and_wait();
        const std::lock_guard lock(mutex);
        ids.insert(std::this_thread::get_id());
        return Status();
    });
    EXPECT_TRUE(status.ok());
    EXPECT_EQ(ids.size(), kThreads);
    EXPECT_TRUE(ids.contains(std::this_thread::get_id()));
}

TEST(AllAtOnce, EachCallOnItsOwnThread) {
    for (const size_t count : {size_t{0}, size_t{1}, size_t{4}}) {
        std::barrier all(static_cast<std::ptrdiff_t>(std::max<size_t>(count, 1)));
        std::vector<std::thread::id> ids(count);
        const Status status = AllAtOnce(count, [&](size_t i) {
            all.arrive_and_wait();
            ids[i] = std::this_thread::get_id();
        });
        EXPECT_TRUE(status.ok());
        EXPECT_EQ(std::set(ids.begin(), ids.end()).size(), count);
        EXPECT_TRUE(count == 0 || ids[0] == std::this_thread::get_id());
    }
}

TEST(OnThreads, NoneBeginsAfterAnError) {
    for (const size_t threads : {size_t{1}, size_t{4}}) {
        std::atomic<size_t> calls = 0;
        const Status status = OnThreads(threads, 1000, [&](size_t i) -> Status {
            ++calls;
            if (i < 2) return {};
            return MakeError(ErrorCode::kIo, "the call of {}", i);
        });
        ASSERT_FALSE(status.ok());
        EXPECT_EQ(status.error().code, ErrorCode::kIo);
        // Each thread fails once at most.
        EXPECT_LE(calls, 2 + threads);
    }
}

}  // namespace
}  // namespace weft
