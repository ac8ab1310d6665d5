// Unpacks compressed training files for readers with random access.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace weft::train {

// The compression of a file, from its first bytes: "gzip", "zstd", "xz" or "bzip2"; empty: none.
std::string_view CompressionOf(std::string_view head);

// Opens the file. A compressed file is unpacked, and an Arrow or Parquet file becomes JSON
// lines, in an unnamed temporary file in $TMPDIR (or /var/tmp, or /tmp). Unpacking fails if less
// than kRoomLeft bytes of that disk would stay free. Memory: buffers of 2 MiB and the
// decompressor's own, for any file size; of Arrow and Parquet files, at most kMostColumnBytes and a
// record. Errors: those of File, kCorrupt (a damaged or truncated
// file), kUnsupported (the unpacked file does not fit on the disk, or is larger than both 1 GiB and
// kMostRatio times the compressed file).
Result<File> OpenUnpacked(const std::string& path);

inline constexpr uint64_t kRoomLeft = uint64_t{256} << 20;
inline constexpr uint64_t kMostRatio = 200;

}  // namespace weft::train
