// Compressed files of training data, for readers that read at any place.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace weft::train {

// What compressed the file, by its first bytes: "gzip", "zstd", "xz" or "bzip2"; empty: none.
std::string_view CompressionOf(std::string_view head);

// The name without the suffixes of compressed files: "a.csv.gz" is "a.csv".
std::string_view WithoutCompression(std::string_view path);

// The file; a compressed one unpacked into a temporary file without a name in $TMPDIR (or /var/tmp,
// or /tmp), which keeps kRoomLeft bytes of its disk free. Memory: buffers of 2 MiB, and what the
// compression itself needs, whatever the file holds.
// Errors: those of File, kCorrupt (a damaged or cut file), kUnsupported (too large unpacked: for
// the disk, or more than kMostRatio times its size and a GiB).
Result<File> OpenUnpacked(const std::string& path);

inline constexpr uint64_t kRoomLeft = uint64_t{256} << 20;
inline constexpr uint64_t kMostRatio = 200;

}  // namespace weft::train
