// A process that has confined itself changes no file outside of its folders, and reads none there.
#include "base/confine.h"

#include <gtest/gtest.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>

#include "base/file.h"
#include "base/output_file.h"
#include "support/temp_dir.h"

namespace weft {
namespace {

namespace fs = std::filesystem;

class ConfineTest : public testing::Test {
  protected:
    void SetUp() override {
        for (const char* folder : {"in", "out", "cache"}) fs::create_directories(dir_ / folder);
        for (const char* file : {"in/file", "out/file"}) std::ofstream(dir_ / file) << "x";
        limit_ = FolderLimit::Make({dir_ / "in"}).value();
    }

    test::TempDir dir_;
    FolderLimit limit_;
};

// Exit status of a child process that confines itself and then runs `act`, which returns a status.
int Confined(const FolderLimit& limit, const std::function<int()>& act) {
    const pid_t pid = ::fork();
    if (pid == 0) ::_exit(Confine(limit).ok() ? act() : 100);
    int status = 0;
    ::waitpid(pid, &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 101;
}

TEST_F(ConfineTest, AConfinedProcessOpensNoFileOutsideThroughLinks) {
    ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1);
    fs::create_symlink(dir_ / "out", dir_ / "in/away");
    fs::create_symlink(dir_ / "out/file", dir_ / "in/link");
    fs::create_symlink(dir_ / "in/file", dir_ / "in/near");
    EXPECT_EQ(Confined(limit_,
                       [&] {
                           if (!File::Open(dir_ / "in/file").ok()) return 1;
                           if (!File::Open(dir_ / "in/near").ok()) return 2;
                           for (const char* path : {"in/away/file", "in/link", "out/file"}) {
                               const auto opened = File::Open(dir_ / path);
                               if (opened.ok() || opened.error().code != ErrorCode::kDenied)
                                   return 3;
                               if (opened.error().message.find("--folders") == std::string::npos)
                                   return 4;
                           }
                           if (!OutputFile::Create(dir_ / "in/new", 1, false).ok()) return 5;
                           const auto made = OutputFile::Create(dir_ / "in/away/new", 1, false);
                           if (made.ok() || made.error().code != ErrorCode::kDenied) return 6;
                           return 0;
                       }),
              0);
    EXPECT_FALSE(fs::exists(std::string(dir_ / "out/new.part")));
}

// Calls that look at no path are refused by the kernel.
TEST_F(ConfineTest, AConfinedProcessChangesNothingOutside) {
    if (::syscall(444, nullptr, 0, 1) < 1) GTEST_SKIP() << "this kernel has no Landlock";
    ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1);
    fs::create_symlink(dir_ / "out", dir_ / "in/away");
    EXPECT_EQ(Confined(limit_,
                       [&] {
                           std::error_code error;
                           if (std::ofstream(dir_ / "in/away/new")) return 1;
                           if (std::ofstream(dir_ / "out/file", std::ios::app)) return 2;
                           fs::create_directories(dir_ / "in/away/folder", error);
                           if (!error) return 3;
                           fs::remove(dir_ / "in/away/file", error);
                           if (!error) return 4;
                           fs::rename(dir_ / "in/away/file", dir_ / "in/away/other", error);
                           if (!error) return 5;
                           fs::create_symlink("/", dir_ / "in/away/root", error);
                           if (!error) return 6;
                           fs::create_directories(dir_ / "in/a/b", error);
                           if (error || !std::ofstream(dir_ / "in/a/b/file")) return 7;
                           fs::rename(dir_ / "in/a", dir_ / "in/c", error);
                           if (error) return 8;
                           fs::remove_all(dir_ / "in/c", error);
                           return error ? 9 : 0;
                       }),
              0);
    EXPECT_TRUE(fs::exists(std::string(dir_ / "out/file")));
}

}  // namespace
}  // namespace weft
