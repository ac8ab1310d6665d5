// The folder of compiled kernels has a bound.
#include "gpu/cache_file.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "base/file.h"
#include "support/temp_dir.h"

namespace weft::gpu {
namespace {

TEST(CacheFile, AFullFolderLosesWhatWasUnusedLongest) {
    const test::TempDir folder;
    const auto path = [&](int i) {
        return folder.path() + "/kernel-" + std::to_string(i) + ".bin";
    };
    const std::string tiles = folder.path() + "/tiles.json";
    const std::vector<std::byte> data(1000, std::byte{7});
    const auto now = std::filesystem::file_time_type::clock::now();
    constexpr int kFiles = 4;
    for (int i = 0; i < kFiles; ++i) {
        ASSERT_TRUE(WriteCacheFile(path(i), data).ok());
        std::filesystem::last_write_time(path(i), now - std::chrono::hours(kFiles - i));
    }
    ASSERT_TRUE(WriteCacheFile(tiles, data).ok());
    std::filesystem::last_write_time(tiles, now - std::chrono::hours(24));
    EXPECT_EQ(ReadCacheFile(path(0)), data);  // used now
    // Room for three, with their heads.
    ASSERT_TRUE(WriteCacheFile(path(kFiles), data, 4000).ok());
    const bool expected[] = {true, false, false, true, true};
    for (int i = 0; i <= kFiles; ++i) EXPECT_EQ(std::filesystem::exists(path(i)), expected[i]) << i;
    EXPECT_TRUE(std::filesystem::exists(tiles));
    ASSERT_TRUE(WriteCacheFile(path(5), data, 10).ok());  // the file itself stays
    EXPECT_EQ(ReadCacheFile(path(5)), data);
    EXPECT_FALSE(std::filesystem::exists(path(0)));
}

// A device has dozens of kernels, whose files fail for one reason.
TEST(CacheFile, AFailureIsToldOnce) {
    const test::TempDir folder;
    ASSERT_TRUE(WriteFile(folder.path() + "/file", std::as_bytes(std::span("text"))).ok());
    const std::vector<std::byte> data(10);
    std::atomic<bool> told = false;
    testing::internal::CaptureStderr();
    for (const char* name : {"a", "b"}) {
        WarnNotStored(WriteCacheFile(folder.path() + "/file/" + name, data), told);
    }
    const std::string said = testing::internal::GetCapturedStderr();
    EXPECT_NE(said.find("cannot store"), std::string::npos) << said;
    EXPECT_EQ(said.find("cannot store"), said.rfind("cannot store")) << said;
}

}  // namespace
}  // namespace weft::gpu
