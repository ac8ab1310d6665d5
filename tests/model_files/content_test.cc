// Hashes of model files: their values, the cache, and the text about copies that differ.
#include "model_files/content.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/hash.h"
#include "support/limits.h"
#include "support/temp_dir.h"

namespace weft::model_files {
namespace {

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
        std::filesystem::resize_file(path, 2 * kHashedBytes + 1000);
        return path;
    }
    static void Put(const std::string& path, uint64_t at, char byte) {
        std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
        file.seekp(static_cast<std::streamoff>(at));
        file.put(byte);
    }
    static Content Read(const std::vector<std::string>& paths, bool anew = false) {
        auto content = ReadContent(paths, {.threads = 2, .anew = anew});
        EXPECT_TRUE(content.ok()) << content.error().message;
        return content.ok() ? *content : Content();
    }
    // Reads until the cache has the hashes, which a file that was just written does not get.
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

TEST_F(ContentTest, HashesAreSha256OfEachChunk) {
    const Content content = Read({Write("a", "abc"), WriteLarge("b"), Write("empty", "")});
    ASSERT_EQ(content.files.size(), 3u);
    EXPECT_EQ(content.files[0].hashes,  // FIPS 180-4, example 1
              std::vector<std::string>{
                  "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"});
    EXPECT_EQ(content.files[1].hashes.size(), 3u);
    const std::vector<std::byte> rest(1000);
    EXPECT_EQ(content.files[1].hashes[2], Hex(Sha256(rest)));
    EXPECT_TRUE(content.files[2].hashes.empty());
    EXPECT_EQ(content.bytes(), 3 + 2 * kHashedBytes + 1000);
    EXPECT_EQ(content.read_bytes, content.bytes());
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

TEST_F(ContentTest, ABrokenCacheFileCountsAsMissing) {
    const std::string path = Write("a", "some weights");
    ASSERT_TRUE(Keeps(path));
    const Content before = Read({path});
    for (const std::string text : {"", "{}", R"({"stamp": "", "hashes": [1]})", "[[[["}) {
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
    const std::string path = WriteLarge("a");
    uint64_t last = 0;
    const auto content =
        ReadContent(std::vector{path}, {.progress = [&](uint64_t done, uint64_t all) -> Status {
                        EXPECT_GT(done, last);
                        EXPECT_EQ(all, 2 * kHashedBytes + 1000);
                        last = done;
                        if (done < kHashedBytes) return {};
                        return MakeError(ErrorCode::kCancelled, "enough");
                    }});
    ASSERT_FALSE(content.ok());
    EXPECT_EQ(content.error().message, "enough");
    EXPECT_EQ(last, kHashedBytes);
}

TEST_F(ContentTest, AnIdIsOfOneUnchangedCopy) {
    const std::string a = Write("a", "some weights"), b = Write("b", "some weights");
    std::filesystem::create_symlink(a, dir_ / "link");
    const auto id = [](const std::string& path) { return CopyId(std::vector{path}).value(); };
    EXPECT_EQ(id(a), id(dir_ / "link"));
    EXPECT_NE(id(a), id(b));
    const auto none = CopyId(std::vector<std::string>{dir_ / "none"});
    ASSERT_FALSE(none.ok());
    EXPECT_EQ(none.error().code, ErrorCode::kIo);
}

// ---- Copies -------------------------------------------------------------------------------------

TEST_F(ContentTest, ADifferenceNamesTheRangeAndTheNextStep) {
    const std::string a = WriteLarge("a"), b = WriteLarge("b");
    EXPECT_EQ(CompareCopies(std::vector{CopyOf("x", a), CopyOf("y", b)}), "");
    Put(b, kHashedBytes + 7, 'X');
    EXPECT_EQ(CompareCopies(std::vector{CopyOf("x", a), CopyOf("y", b)}),
              b + " on y differs from that on x: bytes 67108864 to 134217727. Compare 'sha256sum' "
                  "of the file on each host with the publisher's value to find the bad copy, and "
                  "copy the file there again");
    Put(b, 2 * kHashedBytes + 999, 'X');
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
    FileContent file{.path = "m", .bytes = 5 * kHashedBytes - 1, .hashes = {}};
    for (int i = 0; i < 5; ++i) file.hashes.push_back(std::string(64, static_cast<char>('a' + i)));
    const FileContent same = FileContentFromJson(FileContentToJson(file, 5)).value();
    EXPECT_EQ(same.chunk_bytes, kHashedBytes);
    EXPECT_EQ(same.hashes[4], std::string(16, 'e'));
    const FileContent shorter = FileContentFromJson(FileContentToJson(file, 3)).value();
    EXPECT_EQ(shorter.chunk_bytes, 2 * kHashedBytes);
    ASSERT_EQ(shorter.hashes.size(), 3u);
    FileContent other = file;
    other.hashes[4][60] = 'x';
    const FileContent odd = FileContentFromJson(FileContentToJson(other, 3)).value();
    const std::string text = CompareCopies(std::vector<FileCopy>{{"x", shorter}, {"y", odd}});
    EXPECT_NE(text.find("bytes 268435456 to 335544318."), text.npos) << text;
    EXPECT_FALSE(FileContentFromJson("{}").ok());
}

}  // namespace
}  // namespace weft::model_files
