// Files: content that is read back, and errors that name the path and the reason.
#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

#include "support/temp_dir.h"

namespace weft {
namespace {

using test::TempDir;

void Write(const std::string& path, const std::string& text) {
    const Status written = WriteFile(path, std::as_bytes(std::span(text)));
    ASSERT_TRUE(written.ok()) << written.error().message;
}

template <typename T>
void ExpectError(const Result<T>& result, ErrorCode code, const std::string& path,
                 const std::string& reason) {
    ASSERT_FALSE(result.ok());
    EXPECT_EQ(result.error().code, code) << result.error().message;
    EXPECT_NE(result.error().message.find(path), std::string::npos) << result.error().message;
    EXPECT_NE(result.error().message.find(reason), std::string::npos) << result.error().message;
}

TEST(File, ReadsAnyRange) {
    const TempDir dir;
    const std::string path = dir / "file";
    Write(path, "0123456789");
    const Result<File> file = File::Open(path);
    ASSERT_TRUE(file.ok());
    EXPECT_EQ(file->size_bytes(), 10u);
    EXPECT_EQ(file->path(), path);
    std::string text(4, ' ');
    ASSERT_TRUE(file->ReadAt(6, std::as_writable_bytes(std::span(text))).ok());
    EXPECT_EQ(text, "6789");
    EXPECT_TRUE(file->ReadAt(10, {}).ok());
    ExpectError(file->ReadAt(7, std::as_writable_bytes(std::span(text))), ErrorCode::kCorrupt, path,
                "ends at byte 10, but 1 more bytes");
    ExpectError(file->ReadAt(~0ull, std::as_writable_bytes(std::span(text))), ErrorCode::kIo, path,
                "cannot read");
}

// Direct reads begin and end anywhere, also at the end of the file; in memory (/dev/shm), too.
TEST(File, DirectReadsReadAnyRange) {
    constexpr size_t kBytes = (3 << 20) + 123;
    std::string text(kBytes, '\0');
    for (size_t i = 0; i < kBytes; ++i) text[i] = static_cast<char>((i * i) >> 7);
    const TempDir dir;
    for (const std::string& folder : {dir.path(), std::string("/dev/shm")}) {
        const std::string path = folder + "/weft-direct-" + std::to_string(::getpid());
        Write(path, text);
        Result<File> file = File::Open(path);
        ASSERT_TRUE(file.ok());
        ::unlink(path.c_str());
        const DirectReads direct;
        for (const size_t offset : {size_t{0}, size_t{1}, size_t{4095}, size_t{4096}, size_t{99991},
                                    kBytes - (size_t{1} << 16)}) {
            for (const size_t length : {size_t{1} << 16, (size_t{1} << 20) + 1, kBytes - 100'000}) {
                if (offset + length > kBytes) continue;
                std::string out(length, '?');
                const Status read = file->ReadAt(offset, std::as_writable_bytes(std::span(out)));
                ASSERT_TRUE(read.ok()) << read.error().message;
                ASSERT_TRUE(out == text.substr(offset, length)) << offset << " " << length;
            }
        }
        std::string out(size_t{1} << 17, '?');
        const Status read = file->ReadAt(kBytes - 1000, std::as_writable_bytes(std::span(out)));
        ASSERT_FALSE(read.ok());
        EXPECT_EQ(read.error().code, ErrorCode::kCorrupt) << read.error().message;
    }
}

TEST(File, MovesKeepTheDescriptor) {
    const TempDir dir;
    Write(dir / "a", "A");
    Write(dir / "b", "B");
    Result<File> a = File::Open(dir / "a"), b = File::Open(dir / "b");
    ASSERT_TRUE(a.ok() && b.ok());
    File moved(std::move(*a));
    moved = std::move(b).value();
    std::string text(1, ' ');
    ASSERT_TRUE(moved.ReadAt(0, std::as_writable_bytes(std::span(text))).ok());
    EXPECT_EQ(text, "B");
}

TEST(File, RefusesOtherThanRegularFiles) {
    const TempDir dir;
    ExpectError(File::Open(dir / "absent"), ErrorCode::kNotFound, dir / "absent", "No such file");
    ExpectError(File::Open(dir.path()), ErrorCode::kIo, dir.path(), "not a regular file");
    const std::string fifo = dir / "fifo";
    ASSERT_EQ(::mkfifo(fifo.c_str(), 0600), 0);
    ExpectError(File::Open(fifo), ErrorCode::kIo, fifo, "not a regular file");  // and does not wait
    if (::geteuid() != 0) {
        Write(dir / "secret", "x");
        ASSERT_EQ(::chmod((dir / "secret").c_str(), 0), 0);
        ExpectError(File::Open(dir / "secret"), ErrorCode::kIo, "secret", "Permission denied");
    }
}

TEST(File, AStampTellsWhetherTheContentChanged) {
    const TempDir dir;
    Write(dir / "a", "some");
    Write(dir / "b", "some");
    const auto opened = File::Open(dir / "a");
    const FileStamp before = opened->Stamp().value();
    EXPECT_EQ(before.size_bytes, 4u);
    EXPECT_FALSE(before.SameContent(File::Open(dir / "b")->Stamp().value()));
    ASSERT_EQ(::chmod((dir / "a").c_str(), 0600), 0);
    EXPECT_TRUE(before.SameContent(opened->Stamp().value()));
    timespec times[2] = {{0, UTIME_OMIT}, {1000, 7}};
    ASSERT_EQ(::utimensat(AT_FDCWD, (dir / "a").c_str(), times, 0), 0);
    EXPECT_FALSE(before.SameContent(opened->Stamp().value()));
    EXPECT_EQ(opened->Stamp()->modified_ns, 1'000'000'000'007);
}

TEST(TextFiles, AreReadCompletelyUpToTheLimit) {
    const TempDir dir;
    std::string content = "line\n";
    content.push_back('\0');
    Write(dir / "text", content);
    EXPECT_EQ(ReadTextFile(dir / "text").value(), content);
    EXPECT_EQ(ReadTextFile(dir / "text", 6).value(), content);
    ExpectError(ReadTextFile(dir / "text", 5), ErrorCode::kUnsupported, "text", "at most 5");
    Write(dir / "text", "");  // a second write replaces
    EXPECT_EQ(ReadTextFile(dir / "text").value(), "");
}

TEST(WriteFile, NamesTheReasonForFailure) {
    const TempDir dir;
    const std::string path = dir / "no" + "/such/folder";
    ExpectError(WriteFile(path, {}), ErrorCode::kNotFound, path, "open for writing");
    ExpectError(WriteFile("/dev/full", std::vector<std::byte>(10)), ErrorCode::kIo, "/dev/full",
                "No space left");
}

}  // namespace
}  // namespace weft
