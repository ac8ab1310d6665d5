// Damaged checkpoints: kills during writes, full disks, wrong bytes. The last complete one remains,
// and an error names the file.
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>

#include "base/file.h"
#include "checkpoint_case.h"
#include "support/wait.h"

namespace weft::train {
namespace {

namespace fs = std::filesystem;

std::string TextOf(const std::string& path) {
    auto text = ReadTextFile(path);
    EXPECT_TRUE(text.ok()) << text.error().message;
    return text.ok() ? *text : "";
}

void Put(const std::string& path, const std::string& text) {
    ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
}

std::vector<std::string> FilesOf(const std::string& folder) {
    std::vector<std::string> paths;
    for (const auto& entry : fs::directory_iterator(folder)) paths.push_back(entry.path());
    std::ranges::sort(paths);  // manifest.json, rank 0's file, rank 1's file
    return paths;
}

class CheckpointFaults : public testing::Test {
  protected:
    void SetUp() override {
        SavingJob job(dir_.path());
        ASSERT_TRUE(job.Save(1, TwoRanks()).ok());
        ASSERT_TRUE(job.Save(2, TwoRanks()).ok());
        files_ = FilesOf(folder_);
        ASSERT_EQ(files_.size(), 3u);
    }
    // The error of opening and reading step 2; the newest valid checkpoint must then be step 1.
    std::string Said() {
        const std::string error = OpenAndReadAll(folder_);
        const auto newest = OpenNewest(dir_.path());
        EXPECT_TRUE(newest.checkpoint);
        if (newest.checkpoint) newest_ = newest.checkpoint->manifest().step;
        return error;
    }

    test::TempDir dir_;
    std::string folder_ = StepFolder(dir_.path(), 2);
    std::vector<std::string> files_;
    int64_t newest_ = 0;
};

TEST_F(CheckpointFaults, EveryWrongByteIsFound) {
    ASSERT_EQ(OpenAndReadAll(folder_), "");
    for (const std::string& path : files_) {
        const std::string good = TextOf(path);
        for (size_t i = 0; i < good.size(); i += path == files_[0] ? 1 : 3) {
            std::string bad = good;
            bad[i] = static_cast<char>(bad[i] ^ (1 << i % 8));
            Put(path, bad);
            const std::string error = OpenAndReadAll(folder_);
            // (Blanks between a manifest's words carry no data.)
            const bool blank = path == files_[0] && std::isspace(good[i]) && std::isspace(bad[i]);
            if (blank) continue;
            const bool version = error.find("version") != error.npos;
            ASSERT_TRUE(error.find(path) != error.npos || version)
                << path << ", byte " << i << ": " << error;
        }
        Put(path, good);
    }
    ASSERT_EQ(OpenAndReadAll(folder_), "");
}

TEST_F(CheckpointFaults, FilesThatAreCutShort) {
    for (const std::string& path : files_) {
        const std::string good = TextOf(path);
        for (const size_t size : {size_t{0}, size_t{7}, good.size() / 2, good.size() - 1}) {
            Put(path, good.substr(0, size));
            const std::string error = Said();
            EXPECT_NE(error.find(path), error.npos) << error;
            EXPECT_EQ(newest_, 1) << path << " of " << size << " bytes";
        }
        Put(path, good + "x");
        const std::string error = Said();
        EXPECT_NE(error.find(path), error.npos) << error;
        EXPECT_EQ(newest_, 1);
        Put(path, good);
    }
}

TEST_F(CheckpointFaults, AMissingFileIsNamed) {
    fs::remove(files_[2]);
    const std::string error = Said();
    EXPECT_NE(error.find(files_[2] + ": this file of the checkpoint is missing (2 of 2)"),
              error.npos)
        << error;
    EXPECT_EQ(newest_, 1);
}

TEST_F(CheckpointFaults, FilesOfTwoCheckpointsAreDetected) {
    const std::vector<std::string> others = FilesOf(StepFolder(dir_.path(), 1));
    ASSERT_EQ(TextOf(others[1]).size(), TextOf(files_[1]).size());
    Put(files_[1], TextOf(others[1]));
    const std::string error = Said();
    EXPECT_NE(error.find(files_[1] + ": its header is not the one"), error.npos) << error;
    EXPECT_EQ(newest_, 1);
}

// A rank saved less than its part: found before any data are read.
TEST_F(CheckpointFaults, IncompleteFolderIsNotACheckpoint) {
    auto ranks = TwoRanks();
    ranks[1][1].region.end -= 1;
    SavingJob job(dir_.path());
    auto manifest = job.Write(3, ranks);
    ASSERT_TRUE(manifest.ok());
    manifest->sequence = 3;
    const Status committed = CommitCheckpoint(dir_.path(), *manifest, 0);
    ASSERT_FALSE(committed.ok());
    // Older versions wrote the manifest.
    const std::string text = ManifestText(*manifest);
    const std::string path = StepFolder(dir_.path(), 3) + "/" + kManifestName;
    ASSERT_TRUE(WriteFile(path, std::as_bytes(std::span(text))).ok());
    const auto opened = Checkpoint::Open(StepFolder(dir_.path(), 3));
    ASSERT_FALSE(opened.ok());
    EXPECT_NE(committed.error().message.find(opened.error().message), std::string::npos);
    EXPECT_NE(opened.error().message.find("adam_m of blk.0.attn_q.weight, 6 x 8, is not complete"),
              std::string::npos)
        << opened.error().message;
    const auto newest = OpenNewest(dir_.path());
    EXPECT_EQ(newest.checkpoint->manifest().step, 2);
    ASSERT_EQ(newest.skipped.size(), 1u);
    EXPECT_EQ(newest.skipped[0], opened.error().message);
}

TEST_F(CheckpointFaults, UnfinishedCheckpointIsReported) {
    SavingJob job(dir_.path());
    ASSERT_TRUE(job.Write(3, TwoRanks()).ok());
    const auto opened = Checkpoint::Open(StepFolder(dir_.path(), 3));
    ASSERT_FALSE(opened.ok());
    EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
    EXPECT_NE(opened.error().message.find("did not finish"), std::string::npos);
    EXPECT_EQ(OpenNewest(dir_.path()).checkpoint->manifest().step, 2);
}

// Saves one step after another, keeping two, until it is killed.
[[noreturn]] void SaveOnAndOn(const std::string& dir, volatile int64_t* saved) {
    SavingJob job(dir);
    for (int64_t step = *saved + 1;; ++step) {
        if (!job.Save(step, TwoRanks(), 2).ok()) ::_exit(1);
        *saved = step;
    }
}

TEST(CheckpointKill, TheLastOneSurvivesAtAnyMoment) {
    const test::TempDir dir;
    void* shared =
        ::mmap(nullptr, sizeof(int64_t), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    ASSERT_NE(shared, MAP_FAILED);
    auto* saved = static_cast<volatile int64_t*>(shared);
    std::mt19937 random(3);
    int kills = 0;
    for (int round = 0; round < 60; ++round) {
        const int64_t before = *saved;
        const pid_t child = ::fork();
        if (child == 0) SaveOnAndOn(dir.path(), saved);
        ASSERT_TRUE(test::Until([&] { return *saved != before; }));
        test::Pace(Draw(random, 4'000)).Next();  // at any moment
        ::kill(child, SIGKILL);
        int status = 0;
        ::waitpid(child, &status, 0);
        kills += WIFSIGNALED(status) ? 1 : 0;
        const auto newest = OpenNewest(dir.path());
        ASSERT_TRUE(newest.checkpoint);
        const int64_t step = newest.checkpoint->manifest().step;
        EXPECT_TRUE(step == *saved || step == *saved + 1) << step << " after " << *saved;
        EXPECT_EQ(ReadAll(*newest.checkpoint), "");
        EXPECT_TRUE(newest.skipped.empty());
    }
    EXPECT_EQ(kills, 60);
    ::munmap(shared, sizeof(int64_t));
}

constexpr int kNotAllowed = 77;

// On a disk of 1 MiB: saves a checkpoint that fits, one that does not, and another that fits.
int SaveOnASmallDisk(const std::string& dir) {
    if (::unshare(CLONE_NEWNS) != 0) return kNotAllowed;
    if (::mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return kNotAllowed;
    if (::mount("tmpfs", dir.c_str(), "tmpfs", 0, "size=1m") != 0) return kNotAllowed;
    SavingJob job(dir);
    if (!job.Save(1, TwoRanks()).ok()) return 1;
    const Array large{"weight", "t", 1024, 512, SafeType::kF32};
    const Status full = job.Save(2, {{{large, TensorRegion::Whole(large)}}});
    if (full.ok()) return 2;
    std::fprintf(stderr, "%s\n", full.error().message.c_str());
    for (const char* part :
         {"step 2", "rank 0", "2.0 MiB", "disk is too full", "Free some space", "are free"}) {
        if (full.error().message.find(part) == std::string::npos) return 3;
    }
    if (OpenNewest(dir).checkpoint->manifest().step != 1) return 4;
    if (OpenAndReadAll(StepFolder(dir, 1)) != "") return 5;
    if (!job.Save(3, TwoRanks(), 1).ok()) return 6;
    const Status read_only =
        ::mount("tmpfs", dir.c_str(), nullptr, MS_REMOUNT | MS_RDONLY, nullptr) == 0
            ? job.Save(4, TwoRanks())
            : Status();
    if (read_only.ok()) return 7;
    std::fprintf(stderr, "%s\n", read_only.error().message.c_str());
    if (read_only.error().message.find("--output-dir") == std::string::npos) return 8;
    return OpenAndReadAll(StepFolder(dir, 3)) == "" ? 0 : 9;
}

TEST(CheckpointDisk, FullAndReadOnlyDisksAreNamedAndHarmNothing) {
    const test::TempDir dir;
    const pid_t child = ::fork();
    if (child == 0) ::_exit(SaveOnASmallDisk(dir.path()));
    int status = 0;
    ::waitpid(child, &status, 0);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNotAllowed) GTEST_SKIP() << "needs leave to mount (root)";
    EXPECT_EQ(WEXITSTATUS(status), 0) << "which check of SaveOnASmallDisk failed";
}

}  // namespace
}  // namespace weft::train
