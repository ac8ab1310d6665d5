#include "base/own_folder.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <string>

#include "support/temp_dir.h"

namespace weft {
namespace {

TEST(OwnFolder, IsMadeForItsUserAlone) {
    const test::TempDir room;
    const std::string folder = room.path() + "/a/b";
    ASSERT_TRUE(MakeOwnFolder("--x", folder).ok());
    struct stat info {};
    ASSERT_EQ(::stat(folder.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 07777, 0700u);
    EXPECT_TRUE(MakeOwnFolder("--x", folder).ok()) << "it exists";
}

TEST(OwnFolder, OthersMayNotWriteIt) {
    const test::TempDir room;
    const std::string folder = room.path() + "/a";
    for (const mode_t mode : {0777u, 0720u, 0702u, 01777u}) {
        ASSERT_TRUE(MakeOwnFolder("--x", folder).ok());
        ASSERT_EQ(::chmod(folder.c_str(), mode), 0);
        const Status made = MakeOwnFolder("--x", folder);
        ASSERT_FALSE(made.ok()) << mode;
        EXPECT_EQ(made.error().code, ErrorCode::kDenied);
        ASSERT_EQ(::chmod(folder.c_str(), 0755), 0);
    }
}

// root may write everywhere, also where another user put the files.
TEST(OwnFolder, BelongsToItsUser) {
    const test::TempDir room;
    const std::string folder = room.path() + "/a";
    ASSERT_TRUE(MakeOwnFolder("--x", folder).ok());
    if (::chown(folder.c_str(), 12'345, static_cast<gid_t>(-1)) != 0) {
        GTEST_SKIP() << "only root gives folders away";
    }
    const Status made = MakeOwnFolder("--x", folder);
    ASSERT_FALSE(made.ok());
    EXPECT_EQ(made.error().code, ErrorCode::kDenied);
    EXPECT_NE(made.error().message.find("another user (id 12345)"), std::string::npos);
}

}  // namespace
}  // namespace weft
