#include "base/folder_limit.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "support/temp_dir.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class FolderLimitTest : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* folder : {"in/sub", "in2", "out"}) fs::create_directories(dir_ / folder);
        for (const char* file : {"in/file", "out/file"}) std::ofstream(dir_ / file) << "x";
        limit_ = FolderLimit::Make({dir_ / "in"}).value();
    }
    bool Allows(const std::string& path) const {
        const Status status = limit_.Check(path);
        EXPECT_TRUE(status.ok() || status.error().code == ErrorCode::kDenied);
        return status.ok();
    }

    test::TempDir dir_;
    FolderLimit limit_;
};

TEST_F(FolderLimitTest, FilesInTheFolderAreAllowed) {
    for (const char* path : {"in", "in/", "in/file", "in/none", "in/sub/a/b/c", "in/sub/../file",
                             "in/./sub", "out/../in/file", "in/none/../other"}) {
        EXPECT_TRUE(Allows(dir_ / path)) << path;
    }
    EXPECT_TRUE(Allows(""));
}

TEST_F(FolderLimitTest, OtherFilesAreDenied) {
    for (const char* path :
         {"out/file", "in/../out/file", "in/sub/../../out", "in2", "in2/file", "", "in/..",
          "in/none/../../out/file", "none", "in/sub/../../in2/none"}) {
        EXPECT_FALSE(Allows(std::string(dir_ / "") + path)) << path;
    }
    EXPECT_FALSE(Allows("/etc/passwd"));
    EXPECT_FALSE(Allows("relative"));
    EXPECT_FALSE(Allows("/"));
}

TEST_F(FolderLimitTest, LinksCountAsWhatTheyLeadTo) {
    fs::create_symlink(dir_ / "out", dir_ / "in/away");
    fs::create_symlink(dir_ / "out/file", dir_ / "in/file_away");
    fs::create_symlink(dir_ / "out/none", dir_ / "in/dangling");
    fs::create_symlink("sub", dir_ / "in/within");
    fs::create_symlink(dir_ / "in", dir_ / "out/back");
    fs::create_symlink("loop", dir_ / "in/loop");
    for (const char* path : {"in/away", "in/away/file", "in/away/new", "in/file_away",
                             "in/dangling", "in/dangling/new", "in/loop", "in/away/../file"}) {
        EXPECT_FALSE(Allows(dir_ / path)) << path;
    }
    for (const char* path : {"in/within/new", "out/back/file", "out/back/new", "in/within/.."}) {
        EXPECT_TRUE(Allows(dir_ / path)) << path;
    }
}

TEST_F(FolderLimitTest, AFolderMayBeGivenByALink) {
    fs::create_symlink(dir_ / "in", dir_ / "link");
    limit_ = FolderLimit::Make({dir_ / "link", dir_ / "in2"}).value();
    EXPECT_EQ(limit_.folders()[0], fs::canonical(std::string(dir_ / "in")));
    EXPECT_TRUE(Allows(dir_ / "link/file"));
    EXPECT_TRUE(Allows(dir_ / "in/file"));
    EXPECT_TRUE(Allows(dir_ / "in2/new"));
    EXPECT_FALSE(Allows(dir_ / "out/file"));
}

TEST_F(FolderLimitTest, TheErrorNamesPathAndFolders) {
    const std::string said = limit_.Check(dir_ / "in/../out/file").error().message;
    EXPECT_EQ(said, fmt::format("{0}/in/../out/file ({0}/out/file) is not in {0}/in, where this "
                                "worker may read and write (--folders). Use a path there, or start "
                                "the worker with this folder, too",
                                fs::canonical(dir_.path()).string()));
    EXPECT_TRUE(FolderLimit().Check("/etc/passwd").ok());
    for (const char* folder : {"none", "in/file", "a,b"}) {
        fs::create_directories(dir_ / "a,b");
        const auto made = FolderLimit::Make({dir_ / folder});
        ASSERT_FALSE(made.ok()) << folder;
        EXPECT_EQ(made.error().code, ErrorCode::kUsage);
    }
}

}  // namespace
}  // namespace weft
