#include "train/data/unpack.h"

#include <archive.h>
#include <archive_entry.h>
#include <sys/statvfs.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "base/confine.h"
#include "base/home_folder.h"
#include "train/data/arrow_stream.h"
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

// A file that is deleted when it is closed.
class TemporaryFile {
  public:
    // packed_bytes: size of the compressed file.
    static Result<TemporaryFile> Make(const std::string& wanted_by, uint64_t packed_bytes) {
        const char* const place = std::getenv("TMPDIR");
        TemporaryFile made;
        made.most_bytes_ =
            std::min(kMostUnpackedBytes, std::max(kSurelyFineBytes, kMostRatio * packed_bytes));
        // (/tmp is often in memory.)
        made.folder_ = ::access("/var/tmp", W_OK) == 0 ? "/var/tmp" : "/tmp";
        if (place != nullptr && *place != '\0') made.folder_ = place;
        if (!CheckConfined(made.folder_).ok()) made.folder_ = CacheFolder();
        made.path_ = made.folder_ + "/weft-data-XXXXXX";
        made.fd_ = ::mkstemp(made.path_.data());
        if (made.fd_ >= 0) return made;
        return MakeError(ErrorCode::kIo,
                         "{}: no file for its unpacked records can be made in {}: {}. Set TMPDIR "
                         "to another folder, or unpack it yourself",
                         wanted_by, made.folder_, std::strerror(errno));
    }
    TemporaryFile(TemporaryFile&& other) noexcept
        : folder_(std::move(other.folder_)),
          path_(std::move(other.path_)),
          fd_(std::exchange(other.fd_, -1)),
          bytes_(other.bytes_),
          most_bytes_(other.most_bytes_) {}
    TemporaryFile& operator=(TemporaryFile&&) = delete;
    ~TemporaryFile() {
        if (fd_ < 0) return;
        ::close(fd_);
        ::unlink(path_.c_str());
    }

    Status Write(const std::string& wanted_by, std::string_view bytes) {
        if (bytes_ % kCheckEvery < bytes.size()) WEFT_TRY(CheckRoom(wanted_by));
        bytes_ += bytes.size();
        while (!bytes.empty()) {
            const ssize_t written = ::write(fd_, bytes.data(), bytes.size());
            if (written < 0 && errno == EINTR) continue;
            if (written <= 0) {
                return MakeError(ErrorCode::kIo, "{}: unpacking it into {}: {}", wanted_by, folder_,
                                 std::strerror(errno));
            }
            bytes.remove_prefix(static_cast<size_t>(written));
        }
        return {};
    }

    Result<File> Reopen() const { return File::Open(path_); }

  private:
    TemporaryFile() = default;

    Status CheckRoom(const std::string& wanted_by) const {
        struct statvfs disk {};
        const bool known = ::fstatvfs(fd_, &disk) == 0;
        const uint64_t free = known ? uint64_t{disk.f_bavail} * disk.f_frsize : kRoomLeft;
        if (bytes_ > most_bytes_) {
            return MakeError(
                ErrorCode::kUnsupported,
                "{}: unpacked, it has more than {} bytes; at most {} times its size are "
                "expected. Unpack it yourself",
                wanted_by, most_bytes_, kMostRatio);
        }
        if (free >= kRoomLeft) return {};
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: {} bytes of it are unpacked so far, with {} bytes left in {}; at least "
            "{} are left free. Set TMPDIR to a folder with more room, or unpack it "
            "yourself",
            wanted_by, bytes_, free, folder_, kRoomLeft);
    }

    std::string folder_, path_;
    int fd_ = -1;
    uint64_t bytes_ = 0, most_bytes_ = 0;
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
Status Gunzip(const File& file, TemporaryFile& to) {
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
            WEFT_TRY(to.Write(file.path(), {reinterpret_cast<const char*>(out.data()), made}));
            in_member = code != Z_STREAM_END;
            if (in_member && code != Z_OK && code != Z_BUF_ERROR) {
                return damaged(z.msg == nullptr ? ::zError(code) : z.msg);
            }
        } while (z.avail_in > 0 || z.avail_out == 0);
    }
    return in_member ? damaged("it ends too early") : Status();
}

Result<File> Unpack(const File& file, uint64_t begin, std::string_view compression) {
    const std::string& path = file.path();
    WEFT_ASSIGN(TemporaryFile to, TemporaryFile::Make(path, file.size_bytes()));
    if (compression == kGzip) {
        WEFT_TRY(Gunzip(file, to));
        return to.Reopen();
    }
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
    if (header == ARCHIVE_EOF) return to.Reopen();
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
        WEFT_TRY(to.Write(path, {piece.data(), static_cast<size_t>(count)}));
    }
    // (libarchive ignores what follows a bzip2 stream.)
    const uint64_t used = begin + static_cast<uint64_t>(::archive_filter_bytes(from.get(), -1));
    if (used >= file.size_bytes()) return to.Reopen();
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

}  // namespace

std::string_view CompressionOf(std::string_view head) {
    for (const Compression& each : kCompressions) {
        if (head.starts_with(each.head)) return each.name;
    }
    return "";
}

Result<File> OpenUnpacked(const std::string& path) {
    WEFT_ASSIGN(File file, File::Open(path));
    WEFT_ASSIGN(const std::string first, HeadAt(file, 0));
    const auto arrow = ArrowBegin(first);
    if (arrow || first.starts_with(kParquetMagic)) {
        WEFT_ASSIGN(TemporaryFile to, TemporaryFile::Make(path, file.size_bytes()));
        const auto take = [&](std::string_view lines) { return to.Write(path, lines); };
        WEFT_TRY(arrow ? ReadArrow(file, *arrow, take) : ReadParquet(file, take));
        return to.Reopen();
    }
    WEFT_ASSIGN(const uint64_t begin, BeginOf(file));
    WEFT_ASSIGN(const std::string head, HeadAt(file, begin));
    const std::string_view compression = CompressionOf(head);
    if (compression.empty()) return file;
    return Unpack(file, begin, compression);
}

}  // namespace weft::train
