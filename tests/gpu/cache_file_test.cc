// The folder of compiled kernels has a bound.
#include "gpu/cache_file.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <string>
#include <vector>

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
        WriteCacheFile(path(i), data);
        std::filesystem::last_write_time(path(i), now - std::chrono::hours(kFiles - i));
    }
    WriteCacheFile(tiles, data);
    std::filesystem::last_write_time(tiles, now - std::chrono::hours(24));
    EXPECT_EQ(ReadCacheFile(path(0)), data);   // used now
    WriteCacheFile(path(kFiles), data, 4000);  // room for three, with their heads
    const bool expected[] = {true, false, false, true, true};
    for (int i = 0; i <= kFiles; ++i) EXPECT_EQ(std::filesystem::exists(path(i)), expected[i]) << i;
    EXPECT_TRUE(std::filesystem::exists(tiles));
    WriteCacheFile(path(5), data, 10);  // the file itself stays
    EXPECT_EQ(ReadCacheFile(path(5)), data);
    EXPECT_FALSE(std::filesystem::exists(path(0)));
}

}  // namespace
}  // namespace weft::gpu
