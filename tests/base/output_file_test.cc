// Output files: complete or absent, and written by one process at a time.
#include "base/output_file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <filesystem>
#include <span>
#include <string>

#include "base/file.h"
#include "base/large_file.h"
#include "support/temp_dir.h"

namespace weft {
namespace {

TEST(OutputFile, RefusesExistingFilesAndFullDisks) {
    const test::TempDir dir;
    ASSERT_TRUE(WriteFile(dir / "old", std::as_bytes(std::span("old"))).ok());
    EXPECT_EQ(OutputFile::Create(dir / "old", 10, false).error().code, ErrorCode::kDenied);
    const auto large = OutputFile::Create(dir / "large", uint64_t{1} << 60, false);
    ASSERT_FALSE(large.ok());
    EXPECT_NE(large.error().message.find("GiB are free"), std::string::npos);
    EXPECT_FALSE(OutputFile::Create(dir / "no/such/folder", 10, false).ok());
    EXPECT_FALSE(OutputFile::Create(dir.path(), 10, true).ok()) << "a folder";
    {
        auto first = OutputFile::Create(dir / "old", 4, true);
        ASSERT_TRUE(first.ok());
        const auto second = OutputFile::Create(dir / "old", 4, true);
        ASSERT_FALSE(second.ok()) << "two at once";
        EXPECT_NE(second.error().message.find("another process"), std::string::npos);
        ASSERT_TRUE(first->WriteAt(0, std::as_bytes(std::span("new"))).ok());
        EXPECT_EQ(ReadTextFile(dir / "old").value(), std::string("old\0", 4));
        ASSERT_TRUE(first->Finish().ok());
    }
    EXPECT_EQ(ReadTextFile(dir / "old").value(), std::string("new\0", 4));
    EXPECT_FALSE(std::filesystem::exists(dir / "old.part"));
}

// A file may be too large for the process or for the file system.
TEST(LargeFile, TheAdviceNamesTheLimit) {
    rlimit before{};
    ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
    rlimit small = before;
    small.rlim_cur = 300 << 10;
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
    const std::string limited = LargeFileAdvice();
    ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &before), 0);
    EXPECT_NE(limited.find("at most 300.0 KiB (ulimit -f)"), std::string::npos) << limited;
    if (before.rlim_cur != RLIM_INFINITY) return;
    EXPECT_NE(LargeFileAdvice().find("FAT32: 4 GiB"), std::string::npos);
}

TEST(ReplaceFile, WritesTheTextOrLeavesTheOldFile) {
    const test::TempDir dir;
    const std::string path = dir / "a/b/file";
    ASSERT_TRUE(ReplaceFile(path, "old", 0600, true).ok());
    EXPECT_EQ(std::filesystem::status(path).permissions(),
              std::filesystem::perms::owner_read | std::filesystem::perms::owner_write);
    ASSERT_TRUE(ReplaceFile(path, "new").ok());
    EXPECT_EQ(ReadTextFile(path).value(), "new");
    const Status folder = ReplaceFile(dir / "a", "text");
    ASSERT_FALSE(folder.ok());
    EXPECT_EQ(folder.error().code, ErrorCode::kIo);
    EXPECT_NE(folder.error().message.find("cannot write the file"), std::string::npos);
    const Status below = ReplaceFile(path + "/below/file", "text");
    ASSERT_FALSE(below.ok());
    EXPECT_NE(below.error().message.find("cannot make its folder: Not a directory"),
              std::string::npos)
        << below.error().message;
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir / "a/b"), {}), 1);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(dir.path()), {}), 1);
}

}  // namespace
}  // namespace weft
