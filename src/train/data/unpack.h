// Unpacks compressed training files for readers with random access.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "base/fd.h"
#include "base/file.h"
#include "base/result.h"

namespace weft::train {

// The compression of a file, from its first bytes: "gzip", "zstd", "xz" or "bzip2"; empty: none.
std::string_view CompressionOf(std::string_view head);

// The name of an unpacked file. The host's last process that releases it deletes the file.
class UnpackedName {
  public:
    UnpackedName() = default;
    // fd: has a shared lock on the file.
    UnpackedName(std::string path, Fd fd) : path_(std::move(path)), fd_(std::move(fd)) {}
    UnpackedName(UnpackedName&&) noexcept = default;
    UnpackedName& operator=(UnpackedName&&) = delete;
    ~UnpackedName();

  private:
    std::string path_;
    Fd fd_;
};

struct UnpackedFile {
    File file;
    UnpackedName name;  // without a file, if `file` is the requested file
};

// Opens the file. A compressed file is unpacked, and a Parquet file becomes JSON lines,
// in a file in a folder of this user in $TMPDIR (or /var/tmp, or /tmp). The processes of a host
// share that file: one writes it, and the others wait as long as it grows. Unpacking fails if less
// than kRoomLeft bytes of that disk would stay free. Memory: buffers of 2 MiB and of the
// decompressor, for any file size; for Parquet files, at most kMostColumnBytes and a record.
// Errors: those of File, kCorrupt (a damaged or truncated file), kUnsupported (the unpacked file
// does not fit on the disk, or is larger than both 1 GiB and kMostRatio times the compressed file),
// kIo (no file can be made).
Result<UnpackedFile> OpenUnpacked(const std::string& path);

inline constexpr uint64_t kRoomLeft = uint64_t{256} << 20;
inline constexpr uint64_t kMostRatio = 200;

}  // namespace weft::train
