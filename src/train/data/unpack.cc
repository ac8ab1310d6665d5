#include "train/data/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "base/confine.h"
#include "base/deadline.h"
#include "base/hash.h"
#include "base/home_folder.h"
#include "base/text.h"
#include "hub/data_format.h"
#include "train/data/parquet.h"

namespace weft::train {
namespace {

constexpr uint64_t kMostUnpackedBytes = (1ull << 40) - 1;
constexpr uint64_t kSurelyFineBytes = 1 << 30;  // accepted for any ratio
constexpr size_t kPieceBytes = 1 << 20;
constexpr uint64_t kCheckEvery = uint64_t{64} << 20;  // bytes between checks of disk space

struct Compression {
    std::string_view head, name;
};
constexpr std::string_view kGzip = "gzip";
constexpr Compression kCompressions[] = {
    {"\x1f\x8b", kGzip},
    {"\x28\xb5\x2f\xfd", "zstd"},
    {{"\xfd"
      "7zXZ\0",
      6},
     "xz"},
    {"BZh", "bzip2"},
};

using Archive = std::unique_ptr<struct archive, int (*)(struct archive*)>;

// Where files are unpacked: the folder of this user in $TMPDIR, /var/tmp or /tmp.
std::string UnpackFolder() {
    const char* const place = std::getenv("TMPDIR");
    // (/tmp is often in memory.)
    std::string folder = ::access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
    if (place != nullptr && *place != '\0') folder = place;
    if (!CheckConfined(folder).ok()) folder = CacheFolder();
    return fmt::format("{}/weft-data-{}", folder, ::geteuid());
}

// Whether only this user may write the folder, which another user may have made.
bool IsOwn(const std::string& folder) {
    struct stat info {};
    return ::lstat(folder.c_str(), &info) == 0 && S_ISDIR(info.st_mode) &&
           info.st_uid == ::geteuid() && (info.st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

// Whether `fd` is still the file of this name.
bool IsNamed(const std::string& path, int fd) {
    struct stat open {
    }, named{};
    return ::fstat(fd, &open) == 0 && ::lstat(path.c_str(), &named) == 0 &&
           open.st_dev == named.st_dev && open.st_ino == named.st_ino;
}

// The unpacked records of one file, written by one process of the host.
class Unpacking {
  public:
    Unpacking(int fd, std::string wanted_by, std::string folder, uint64_t packed_bytes)
        : fd_(fd),
          wanted_by_(std::move(wanted_by)),
          folder_(std::move(folder)),
          most_bytes_(std::min(kMostUnpackedBytes,
                               std::max(kSurelyFineBytes, kMostRatio * packed_bytes))) {}

    Status Write(std::string_view bytes) {
        if (bytes_ % kCheckEvery < bytes.size()) WEFT_TRY(CheckRoom());
        bytes_ += bytes.size();
        while (!bytes.empty()) {
            const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) {
                return MakeError(ErrorCode::kIo, "{}: unpacking it into {}: {}", wanted_by_,
                                 folder_, std::strerror(errno));
            }
            bytes.remove_prefix(static_cast<size_t>(written));
        }
        return {};
    }

  private:
    Status CheckRoom() const {
        struct statvfs disk {};
        const bool known = ::fstatvfs(fd_, &disk) == 0;
        const uint64_t free = known ? uint64_t{disk.f_bavail} * disk.f_frsize : kRoomLeft;
        if (bytes_ > most_bytes_) {
            return MakeError(
                ErrorCode::kUnsupported,
                "{}: unpacked, it has more than {} bytes; at most {} times its size are "
                "expected. Unpack it yourself",
                wanted_by_, most_bytes_, kMostRatio);
        }
        if (free >= kRoomLeft) return {};
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: {} bytes of it are unpacked so far, with {} bytes left in {}; at least "
            "{} are left free. Set TMPDIR to a folder with more room, or unpack it "
            "yourself",
            wanted_by_, bytes_, free, folder_, kRoomLeft);
    }

    const int fd_;
    const std::string wanted_by_, folder_;
    const uint64_t most_bytes_;
    uint64_t bytes_ = 0;
};

using Fill = std::function<Status(Unpacking&)>;

bool Locks(int fd, int how) {
    return ::flock(fd, how | LOCK_NB) == 0;
}

// Deletes files of processes that were killed.
void RemoveAbandoned(const std::string& folder) {
    std::error_code ignored;
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
        const Fd fd(::open(entry.path().c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (fd.valid() && Locks(fd.get(), LOCK_EX)) ::unlink(entry.path().c_str());
    }
}

// Opens the unpacked records of `file`, which one process of the host writes and the others wait
// for. Processes hold a shared lock on the file while they use it, and its writer an exclusive one;
// the mode kWhole marks a file that is complete.
class SharedRecords {
  public:
    SharedRecords(const File& file, const Fill& fill)
        : file_(file), fill_(fill), folder_(UnpackFolder()) {}

    Result<UnpackedFile> Open() {
        struct stat info {};
        if (::stat(file_.path().c_str(), &info) != 0) return Failed(std::strerror(errno));
        const std::string key =
            fmt::format("{} {} {} {}.{} {}", info.st_dev, info.st_ino, info.st_size,
                        info.st_mtim.tv_sec, info.st_mtim.tv_nsec, WEFT_VERSION);
        path_ = folder_ + "/" + Hex(Sha256(std::as_bytes(std::span(key)))).substr(0, 32);
        Deadline still = Deadline::In(kStillMs);
        for (int64_t size = 0;;) {
            WEFT_ASSIGN(Fd fd, OpenNamed());
            struct stat now {};
            ::fstat(fd.get(), &now);
            if (Locks(fd.get(), LOCK_EX)) {
                if (!IsNamed(path_, fd.get())) continue;
                ::fstat(fd.get(), &now);
                if (now.st_size == 0 && (now.st_mode & 0777) != kWhole) return Write(std::move(fd));
                ::unlink(path_.c_str());  // nobody uses it: it may be half of a file
            } else if (Locks(fd.get(), LOCK_SH)) {
                const bool whole = ::fstat(fd.get(), &now) == 0 && (now.st_mode & 0777) == kWhole;
                if (whole && IsNamed(path_, fd.get())) return Opened(std::move(fd));
            } else {
                if (now.st_size != size) still = Deadline::In(kStillMs);
                size = now.st_size;
                if (still.expired()) return Failed("the process that unpacks it has stopped");
                std::this_thread::sleep_for(std::chrono::milliseconds(kPauseMs));
            }
        }
    }

  private:
    static constexpr mode_t kWhole = 0400;
    static constexpr int64_t kStillMs = 600'000, kPauseMs = 20;

    Result<Fd> OpenNamed() const {
        for (int tries = 0; tries < 100; ++tries) {  // (the last user removes the folder)
            if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) break;
            if (!IsOwn(folder_)) return Failed("other users may write there");
            Fd fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
            if (fd.valid()) return fd;
            if (errno != ENOENT && errno != EACCES) break;
            if (errno == EACCES) fd = Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
            if (fd.valid()) return fd;
        }
        return Failed(std::strerror(errno));
    }
    Error Failed(const char* why) const {
        return MakeError(ErrorCode::kIo,
                         "{}: no file for its unpacked records can be made in {}: {}. Set TMPDIR "
                         "to another folder, or unpack it yourself",
                         file_.path(), folder_, why);
    }
    Result<UnpackedFile> Write(Fd fd) {
        RemoveAbandoned(folder_);
        Unpacking to(fd.get(), file_.path(), folder_, file_.size_bytes());
        const Status filled = fill_(to);
        if (!filled.ok() || ::fchmod(fd.get(), kWhole) != 0) {
            ::unlink(path_.c_str());
            ::rmdir(folder_.c_str());
            return filled.ok() ? Failed(std::strerror(errno)) : filled.error();
        }
        const int held = fd.get();
        auto opened = Opened(std::move(fd));
        // (For a moment there is no lock: another process may then write a file of its own.)
        if (opened.ok()) ::flock(held, LOCK_SH);
        return opened;
    }
    Result<UnpackedFile> Opened(Fd fd) const {
        UnpackedName name(path_, std::move(fd));
        WEFT_ASSIGN(File opened, File::Open(path_));
        return UnpackedFile{std::move(opened), std::move(name)};
    }

    const File& file_;
    const Fill& fill_;
    const std::string folder_;
    std::string path_;
};

Error Damaged(const std::string& path, struct archive* from) {
    const char* const why = ::archive_error_string(from);
    return MakeError(ErrorCode::kCorrupt, "{}: it can't be unpacked: {}. Is the file complete?",
                     path, why == nullptr ? "unknown" : why);
}

// The packed file, for libarchive.
struct Packed {
    const File& file;
    uint64_t at = 0;
    std::vector<char> piece = std::vector<char>(kPieceBytes);

    static la_ssize_t Read(struct archive* from, void* self, const void** bytes) {
        Packed& packed = *static_cast<Packed*>(self);
        const size_t size =
            std::min<uint64_t>(packed.piece.size(), packed.file.size_bytes() - packed.at);
        const Status read = packed.file.ReadAt(
            packed.at, std::as_writable_bytes(std::span(packed.piece)).first(size));
        if (!read.ok()) {
            ::archive_set_error(from, EIO, "%s", read.error().message.c_str());
            return ARCHIVE_FATAL;
        }
        packed.at += size;
        *bytes = packed.piece.data();
        return static_cast<la_ssize_t>(size);
    }
};

// Unpacks gzip (RFC 1952) with the checksum and the length of each member, which libarchive does
// not check. kCorrupt: cut short, damaged, or followed by other bytes than members and zeros.
Status Gunzip(const File& file, Unpacking& to) {
    const auto damaged = [&](const char* why) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: it can't be unpacked as gzip: {}. Is the file complete?", file.path(),
                         why);
    };
    z_stream z{};
    WEFT_CHECK(::inflateInit2(&z, MAX_WBITS + 16) == Z_OK);
    const std::unique_ptr<z_stream, int (*)(z_stream*)> ends(&z, &::inflateEnd);
    std::vector<Bytef> in(kPieceBytes), out(kPieceBytes);
    bool in_member = true;
    for (uint64_t at = 0; at < file.size_bytes();) {
        const auto piece = std::span(in).first(std::min(in.size(), file.size_bytes() - at));
        WEFT_TRY(file.ReadAt(at, std::as_writable_bytes(piece)));
        at += piece.size();
        z.next_in = piece.data();
        z.avail_in = static_cast<uInt>(piece.size());
        do {
            if (!in_member) {  // tapes and copies may add zeros
                for (; z.avail_in > 0 && *z.next_in == 0; --z.avail_in) ++z.next_in;
                if (z.avail_in == 0) break;
                WEFT_CHECK(::inflateReset(&z) == Z_OK);
            }
            z.next_out = out.data();
            z.avail_out = kPieceBytes;
            const int code = ::inflate(&z, Z_NO_FLUSH);
            const size_t made = out.size() - z.avail_out;
            WEFT_TRY(to.Write({reinterpret_cast<const char*>(out.data()), made}));
            in_member = code != Z_STREAM_END;
            if (in_member && code != Z_OK && code != Z_BUF_ERROR) {
                return damaged(z.msg == nullptr ? ::zError(code) : z.msg);
            }
        } while (z.avail_in > 0 || z.avail_out == 0);
    }
    return in_member ? damaged("it ends too early") : Status();
}

Status Unpack(const File& file, uint64_t begin, std::string_view compression, Unpacking& to) {
    const std::string& path = file.path();
    if (compression == kGzip) return Gunzip(file, to);
    const Archive from(::archive_read_new(), &::archive_read_free);
    if (from == nullptr) return MakeError(ErrorCode::kOutOfMemory, "{}: no memory", path);
    ::archive_read_support_filter_zstd(from.get());
    ::archive_read_support_filter_xz(from.get());
    ::archive_read_support_filter_bzip2(from.get());
    ::archive_read_support_format_raw(from.get());
    ::archive_read_support_format_empty(from.get());
    Packed packed{file, begin};
    if (::archive_read_open(from.get(), &packed, nullptr, &Packed::Read, nullptr) != ARCHIVE_OK) {
        return Damaged(path, from.get());
    }
    struct archive_entry* entry = nullptr;
    const int header = ::archive_read_next_header(from.get(), &entry);
    if (header == ARCHIVE_EOF) return {};
    if (header != ARCHIVE_OK) return Damaged(path, from.get());
    if (::archive_filter_count(from.get()) < 2) {  // only the filter "none": not compressed
        return MakeError(ErrorCode::kCorrupt,
                         "{}: it can't be unpacked: it begins like a {} file, but is not one. Is "
                         "the file complete?",
                         path, compression);
    }
    std::vector<char> piece(kPieceBytes);
    for (;;) {
        const la_ssize_t count = ::archive_read_data(from.get(), piece.data(), piece.size());
        if (count == 0) break;
        if (count < 0) return Damaged(path, from.get());
        WEFT_TRY(to.Write({piece.data(), static_cast<size_t>(count)}));
    }
    // (libarchive ignores what follows a bzip2 stream.)
    const uint64_t used = begin + static_cast<uint64_t>(::archive_filter_bytes(from.get(), -1));
    if (used >= file.size_bytes()) return {};
    return MakeError(ErrorCode::kCorrupt,
                     "{}: it can't be unpacked: {} bytes after its end are not {}. Is the file "
                     "damaged?",
                     path, file.size_bytes() - used, compression);
}

// The first bytes of the file from `at` on.
Result<std::string> HeadAt(const File& file, uint64_t at) {
    std::string head(std::min<uint64_t>(8, file.size_bytes() - at), '\0');
    WEFT_TRY(file.ReadAt(at, std::as_writable_bytes(std::span(head))));
    return head;
}

// The start of the data: after the skippable frames with which pzstd's files begin
// (https://github.com/facebook/zstd/blob/dev/doc/zstd_compression_format.md#skippable-frames).
Result<uint64_t> BeginOf(const File& file) {
    for (uint64_t at = 0;;) {
        WEFT_ASSIGN(const std::string head, HeadAt(file, at));
        const auto byte = [&](size_t i) { return static_cast<uint8_t>(head[i]); };
        const bool skippable =
            head.size() == 8 && head.substr(1, 3) == "\x2a\x4d\x18" && byte(0) >> 4 == 5;
        if (!skippable) return at > 0 && CompressionOf(head).empty() ? uint64_t{0} : at;
        uint64_t bytes = 0;
        for (size_t i = 0; i < 4; ++i) bytes |= uint64_t{byte(4 + i)} << (8 * i);
        if (bytes > file.size_bytes() - at - 8) return uint64_t{0};  // damaged, or another format
        at += 8 + bytes;
    }
}

// Whether the name is one of a format whose files have a header even without records.
bool HasHeader(const std::string& path) {
    const std::string name = LowerCase(path);
    return hub::WithoutCompression(name) != name || name.ends_with(".parquet") ||
           name.ends_with(".arrow");
}

}  // namespace

std::string_view CompressionOf(std::string_view head) {
    for (const Compression& each : kCompressions) {
        if (head.starts_with(each.head)) return each.name;
    }
    return "";
}

UnpackedName::~UnpackedName() {
    if (!fd_.valid() || !Locks(fd_.get(), LOCK_EX)) return;  // others use it
    if (!IsNamed(path_, fd_.get())) return;
    ::unlink(path_.c_str());
    ::rmdir(std::filesystem::path(path_).parent_path().c_str());  // if it is empty
}

Result<UnpackedFile> OpenUnpacked(const std::string& path) {
    WEFT_ASSIGN(File file, File::Open(path));
    WEFT_ASSIGN(const std::string first, HeadAt(file, 0));
    if (first.starts_with(kParquetMagic)) {
        const Fill fill = [&](Unpacking& to) {
            return ReadParquet(file, [&](std::string_view lines) { return to.Write(lines); });
        };
        return SharedRecords(file, fill).Open();
    }
    WEFT_ASSIGN(const uint64_t begin, BeginOf(file));
    WEFT_ASSIGN(const std::string head, HeadAt(file, begin));
    const std::string_view compression = CompressionOf(head);
    if (file.size_bytes() == 0 && HasHeader(path)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: it has 0 bytes, and a file of this kind has a header even without "
                         "records. Is the file complete?",
                         path);
    }
    if (compression.empty()) return UnpackedFile{std::move(file), {}};
    const Fill fill = [&](Unpacking& to) { return Unpack(file, begin, compression, to); };
    return SharedRecords(file, fill).Open();
}

}  // namespace weft::train
