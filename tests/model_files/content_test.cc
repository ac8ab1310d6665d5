// Sums of model files: their values, the cache, and the text about copies that differ.
#include "model_files/content.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <memory>

#include "base/hash.h"
#include "support/limits.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

struct Opened {
    explicit Opened(const std::vector<std::string>& paths) {
        for (const std::string& path : paths) {
            files.push_back(std::make_unique<WeightFile>(*WeightFile::Open(path)));
            all.push_back(files.back().get());
        }
    }
    std::vector<std::unique_ptr<WeightFile>> files;
    std::vector<const WeightFile*> all;
};

class ContentTest : public testing::Test {
  protected:
    void SetUp() override { ::setenv("XDG_CACHE_HOME", (dir_ / "cache").c_str(), 1); }
    void TearDown() override { ::unsetenv("XDG_CACHE_HOME"); }
    std::string Write(const std::string& name, const std::string& text) {
        std::ofstream(dir_ / name, std::ios::binary) << text;
        return dir_ / name;
    }
    // A file of two chunks and a part, mostly holes.
    std::string WriteLarge(const std::string& name) {
        const std::string path = Write(name, "begin");
        std::filesystem::resize_file(path, 2 * kSummedBytes + 1000);
        return path;
    }
    static void Put(const std::string& path, uint64_t at, char byte) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(at));
        file.put(byte);
    }
    static Content Read(const std::vector<std::string>& paths, bool anew = false) {
        const Opened opened(paths);
        auto content = ReadContent(opened.all, {.threads = 2, .anew = anew});
        EXPECT_TRUE(content.ok()) << content.error().message;
        return content.ok() ? *content : Content();
    }
    // Reads until the cache has the sums, which a file that was just written does not get.
    static bool Keeps(const std::string& path) {
        const Deadline deadline = test::Limit(10'000);
        while (Read({path}).read_bytes > 0) {
            if (deadline.expired()) return false;
        }
        return true;
    }
    static FileCopy CopyOf(const std::string& host, const std::string& path) {
        return {host, Read({path}).files[0]};
    }

    test::TempDir dir_;
};

std::string SumOf(uint64_t place, std::span<const std::byte> bytes) {
    ByteSum sum;
    sum.Add(place, bytes);
    return fmt::format("{:016x}{:016x}", sum.high, sum.low);
}

TEST_F(ContentTest, SumsAreThoseOfEachChunk) {
    const std::string large = WriteLarge("b");
    Put(large, 2 * kSummedBytes + 7, 'x');
    const Content content = Read({Write("a", "abc"), large, Write("empty", "")});
    ASSERT_EQ(content.files.size(), 3u);
    const auto text = [](const std::string& bytes) { return std::as_bytes(std::span(bytes)); };
    EXPECT_EQ(content.files[0].sums, std::vector<std::string>{SumOf(0, text("abc"))});
    EXPECT_EQ(content.files[1].sums,
              (std::vector<std::string>{SumOf(0, text("begin")), SumOf(0, {}),
                                        SumOf(2 * kSummedBytes + 7, text("x"))}));
    EXPECT_TRUE(content.files[2].sums.empty());
    EXPECT_EQ(content.bytes(), 3 + 2 * kSummedBytes + 1000);
    EXPECT_EQ(content.read_bytes, content.bytes());
}

// Reads that load weights, some of them several times and some by columns.
TEST_F(ContentTest, BytesThatWereReadAreNotReadAgain) {
    const std::string path = WriteLarge("a");
    Put(path, kSummedBytes - 3, 'x');
    const Content expected = Read({path}, true);
    const Opened opened({path});
    const WeightFile& file = *opened.files[0];
    std::vector<std::byte> bytes(5000);
    ASSERT_TRUE(file.ReadAt(100, bytes).ok());  // not yet
    HashReads(opened.all);
    ASSERT_TRUE(file.ReadAt(kSummedBytes - 2000, bytes).ok());  // of two chunks
    ASSERT_TRUE(file.ReadAt(kSummedBytes - 2000, bytes).ok());
    ASSERT_TRUE(file.ReadAt(kSummedBytes - 100, bytes).ok());       // in part
    ASSERT_TRUE(file.ReadStrided(0, 10'000, 1000, bytes).ok());     // columns
    ASSERT_TRUE(file.ReadStrided(20'000, 1000, 1000, bytes).ok());  // all columns
    EXPECT_FALSE(KnownContent(opened.all).value().has_value());
    const Content content = ReadContent(opened.all, {}).value();
    EXPECT_EQ(content.Digest(), expected.Digest());
    EXPECT_EQ(content.read_bytes, 2 * kSummedBytes + 1000 - 11'900);
    const auto known = KnownContent(opened.all);
    ASSERT_TRUE(known->has_value());
    EXPECT_EQ((*known)->read_bytes, 0u);
}

TEST_F(ContentTest, AFileThatIsChangedWhileItIsOpenFails) {
    for (const bool is_cut : {false, true}) {
        const std::string path = Write(fmt::format("a{}", is_cut), std::string(10'000, 'w'));
        // (A write in the same tick of the kernel's clock would not be seen.)
        const auto now = std::filesystem::file_time_type::clock::now();
        std::filesystem::last_write_time(path, now - std::chrono::hours(1));
        const Opened opened({path});
        std::vector<std::byte> bytes(100);
        ASSERT_TRUE(opened.files[0]->ReadAt(0, bytes).ok());
        Put(path, 50, 'x');
        if (is_cut) std::filesystem::resize_file(path, 5000);
        const Status read = opened.files[0]->ReadAt(0, bytes);
        ASSERT_FALSE(read.ok());
        EXPECT_NE(read.error().message.find(path + ": the file was changed while Weft used it"),
                  std::string::npos)
            << read.error().message;
        EXPECT_FALSE(ReadContent(opened.all, {}).ok());  // it would read
    }
}

// The bytes of a hole are not compared.
TEST_F(ContentTest, PartialFilesAgreeInWhatBothHave) {
    const auto file = [](std::vector<std::string> sums) {
        return FileContent{.path = "m", .bytes = 3 * kSummedBytes, .sums = std::move(sums)};
    };
    const auto whole = file({"aa", "bb", "cc"});
    const std::vector<FileCopy> alike{
        {"x", whole}, {"y", file({"~1", "bb", "~2"})}, {"z", file({"aa", "~3", "~4"})}};
    EXPECT_EQ(CompareCopies(alike), "");
    const std::vector<FileCopy> other{{"x", whole}, {"y", file({"~1", "bX", "~2"})}};
    EXPECT_NE(CompareCopies(other).find("bytes 67108864 to 134217727"), std::string::npos);
}

TEST_F(ContentTest, UnchangedFilesAreReadOnce) {
    const std::string path = Write("a", "some weights");
    ASSERT_TRUE(Keeps(path));
    const Content cached = Read({path});
    EXPECT_EQ(cached.read_bytes, 0u);
    const Content anew = Read({path}, true);
    EXPECT_EQ(anew.read_bytes, 12u);
    EXPECT_EQ(cached.Digest(), anew.Digest());
    // A write of the same size.
    Put(path, 3, 'X');
    const Content changed = Read({path});
    EXPECT_EQ(changed.read_bytes, 12u);
    EXPECT_NE(changed.Digest(), cached.Digest());
}

// Hosts that were cloned from one image may have other bytes under an equal stamp.
TEST_F(ContentTest, AHostThatSharesTheFolderReadsItsOwnFiles) {
    const std::string path = Write("a", "abc");
    ASSERT_TRUE(Keeps(path));
    enum : int { kReads, kFinds, kNoNamespace };
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        const bool apart =
            ::unshare(CLONE_NEWUTS) == 0 || ::unshare(CLONE_NEWUSER | CLONE_NEWUTS) == 0;
        if (!apart || ::sethostname("clone", 5) != 0) ::_exit(kNoNamespace);
        ::_exit(*KnownContent(Opened({path}).all) ? kFinds : kReads);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFEXITED(status));
    if (WEXITSTATUS(status) == kNoNamespace) {
        GTEST_SKIP() << "this system allows no namespace with a host name of its own";
    }
    EXPECT_EQ(WEXITSTATUS(status), kReads);
    EXPECT_EQ(Read({path}).read_bytes, 0);
}

TEST_F(ContentTest, ABrokenCacheFileCountsAsMissing) {
    const std::string path = Write("a", "some weights");
    ASSERT_TRUE(Keeps(path));
    const Content before = Read({path});
    for (const std::string text : {"", "{}", R"({"stamp": "", "sums": [1]})", "[[[["}) {
        for (const auto& entry : std::filesystem::directory_iterator(dir_ / "cache/weft/content")) {
            std::ofstream(entry.path()) << text;
        }
        const Content again = Read({path});
        EXPECT_EQ(again.read_bytes, 12u) << text;
        EXPECT_EQ(again.Digest(), before.Digest());
    }
}

TEST_F(ContentTest, WithoutACacheFolderFilesAreRead) {
    ::setenv("XDG_CACHE_HOME", "/dev/null", 1);
    const std::string path = Write("a", "some weights");
    EXPECT_EQ(Read({path}).read_bytes, 12u);
    EXPECT_EQ(Read({path}).read_bytes, 12u);
}

TEST_F(ContentTest, AnErrorOfTheProgressEndsTheWork) {
    const Opened opened({WriteLarge("a")});
    uint64_t last = 0;
    const auto content =
        ReadContent(opened.all, {.progress = [&](uint64_t done, uint64_t all) -> Status {
                        EXPECT_GT(done, last);
                        EXPECT_EQ(all, 2 * kSummedBytes + 1000);
                        last = done;
                        if (done < kSummedBytes) return {};
                        return MakeError(ErrorCode::kCancelled, "enough");
                    }});
    ASSERT_FALSE(content.ok());
    EXPECT_EQ(content.error().message, "enough");
    EXPECT_EQ(last, kSummedBytes);
}

TEST_F(ContentTest, AnIdIsOfOneUnchangedCopy) {
    const std::string a = Write("a", "some weights"), b = Write("b", "some weights");
    std::filesystem::create_symlink(a, dir_ / "link");
    const auto id = [](const std::string& path, const std::string& machine = "here") {
        return CopyId(Opened({path}).all, machine);
    };
    EXPECT_EQ(id(a), id(dir_ / "link"));
    EXPECT_NE(id(a), id(b));
    // Machines that were cloned from one disk image have equal inodes and times.
    EXPECT_NE(id(a), id(a, "there"));
    const std::string before = id(a);
    std::filesystem::permissions(a, std::filesystem::perms::owner_read);
    EXPECT_NE(id(a), before);
}

// Stands for a file on NFS: /proc is not among the file systems known to belong to one machine.
TEST_F(ContentTest, AnIdOfAFileOfSeveralMachinesIsTheSameOnEach) {
    const Opened opened({"/proc/self/limits"});
    ASSERT_NE(opened.files[0]->opened().changed_ns % 1'000'000'000, 0);
    EXPECT_EQ(CopyId(opened.all, "here"), CopyId(opened.all, "there"));
}

TEST_F(ContentTest, AReadThatIsCutShortGoesOnWithTheNextFile) {
    const std::string first = Write("a", "some weights"), second = Write("b", "more weights");
    // (Checksums of a file that was just written are not recorded.)
    ASSERT_TRUE(Keeps(Write("later", "c")));
    const Opened opened({first, second});
    const auto cut = ReadContent(opened.all, {.progress = [&](uint64_t done, uint64_t) -> Status {
                                     if (done <= 12) return {};
                                     return MakeError(ErrorCode::kCancelled, "enough");
                                 }});
    ASSERT_FALSE(cut.ok());
    EXPECT_EQ(Read({first, second}).read_bytes, 12u);
}

TEST_F(ContentTest, TheCacheKeepsTheLastFiles) {
    const std::string path = Write("a", "some weights");
    const std::filesystem::path folder = dir_ / "cache/weft/content";
    std::filesystem::create_directories(folder);
    const auto before = std::filesystem::file_time_type::clock::now() - std::chrono::hours(1);
    for (int i = 0; i < 1010; ++i) {
        const auto entry = folder / fmt::format("{}.json", i);
        std::ofstream(entry) << "{}";
        std::filesystem::last_write_time(entry, before + std::chrono::seconds(i));
    }
    ASSERT_TRUE(Keeps(path));
    EXPECT_EQ(Read({path}).read_bytes, 0u);
    const std::filesystem::directory_iterator entries(folder);
    EXPECT_EQ(std::distance(begin(entries), end(entries)), 1000);
    EXPECT_FALSE(std::filesystem::exists(folder / "10.json"));
    EXPECT_TRUE(std::filesystem::exists(folder / "11.json"));
}

// A user sees what the program does for minutes. (A file of holes is read fast.)
TEST_F(ContentTest, ALogLineSaysThatALongReadBegins) {
    const std::string path = Write("a", "begin");
    std::filesystem::resize_file(path, uint64_t{1} << 30);
    const Opened opened({path, Write("b", "end")});
    testing::internal::CaptureStderr();
    const auto stop = [](uint64_t, uint64_t) -> Status {
        return MakeError(ErrorCode::kCancelled, "enough");
    };
    EXPECT_FALSE(ReadContent(opened.all, {.progress = stop}).ok());
    const std::string log = testing::internal::GetCapturedStderr();
    EXPECT_NE(log.find("reading 1.1 GB of " + path + " and 1 more of its files"), log.npos) << log;
}

// ---- Copies -------------------------------------------------------------------------------------

TEST_F(ContentTest, ADifferenceNamesTheRangeAndTheNextStep) {
    const std::string a = WriteLarge("a"), b = WriteLarge("b");
    EXPECT_EQ(CompareCopies(std::vector{CopyOf("x", a), CopyOf("y", b)}), "");
    Put(b, kSummedBytes + 7, 'X');
    EXPECT_EQ(CompareCopies(std::vector{CopyOf("x", a), CopyOf("y", b)}),
              b + " on y differs from that on x: bytes 67108864 to 134217727. Compare 'sha256sum' "
                  "of the file on each host with the publisher's value to find the bad copy, and "
                  "copy the file there again");
    Put(b, 2 * kSummedBytes + 999, 'X');
    const std::string two = CompareCopies(std::vector{CopyOf("x", a), CopyOf("y", b)});
    EXPECT_NE(two.find("bytes 67108864 to 134217727 and 1 more of 3 such ranges."), two.npos)
        << two;
}

TEST_F(ContentTest, TheOddCopyOfThreeIsNamedWhereverItIs) {
    const FileCopy good = CopyOf("", Write("a", "some weights"));
    const FileCopy bad = CopyOf("", Write("b", "some weighty"));
    for (size_t odd = 0; odd < 3; ++odd) {
        std::vector<FileCopy> copies;
        std::string others;
        for (size_t i = 0; i < 3; ++i) {
            copies.push_back({fmt::format("h{}", i), i == odd ? bad.file : good.file});
            if (i != odd) others += (others.empty() ? "" : ", ") + copies.back().host;
        }
        EXPECT_EQ(CompareCopies(copies),
                  fmt::format("{} on h{} differs from that on {}: bytes 0 to 11. 2 of 3 copies "
                              "agree: copy the file again to h{}",
                              bad.file.path, odd, others, odd));
    }
    // Two against two: no copy is odd.
    const std::string tie = CompareCopies(std::vector<FileCopy>{
        {"h0", good.file}, {"h1", bad.file}, {"h2", good.file}, {"h3", bad.file}});
    EXPECT_NE(tie.find("on h1 differs from that on h0, h2: "), tie.npos) << tie;
    EXPECT_NE(tie.find("sha256sum"), tie.npos) << tie;
}

TEST_F(ContentTest, SizesAreComparedFirst) {
    const std::string text = CompareCopies(
        std::vector{CopyOf("x", Write("a", "some weights")), CopyOf("y", Write("b", "some"))});
    EXPECT_NE(text.find(": 4 bytes instead of 12."), text.npos) << text;
}

TEST_F(ContentTest, MessagesShortenToLongerRanges) {
    FileContent file{.path = "m", .bytes = 5 * kSummedBytes - 1, .sums = {}};
    for (int i = 0; i < 5; ++i) file.sums.push_back(std::string(64, static_cast<char>('a' + i)));
    const FileContent same = FileContentFromJson(FileContentToJson(file, 5)).value();
    EXPECT_EQ(same.chunk_bytes, kSummedBytes);
    EXPECT_EQ(same.sums[4], std::string(16, 'e'));
    const FileContent shorter = FileContentFromJson(FileContentToJson(file, 3)).value();
    EXPECT_EQ(shorter.chunk_bytes, 2 * kSummedBytes);
    ASSERT_EQ(shorter.sums.size(), 3u);
    FileContent other = file;
    other.sums[4][60] = 'x';
    const FileContent odd = FileContentFromJson(FileContentToJson(other, 3)).value();
    const std::string text = CompareCopies(std::vector<FileCopy>{{"x", shorter}, {"y", odd}});
    EXPECT_NE(text.find("bytes 268435456 to 335544318."), text.npos) << text;
    EXPECT_FALSE(FileContentFromJson("{}").ok());
}

}  // namespace
}  // namespace weft::model_files
