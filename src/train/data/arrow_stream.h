// Reads the records of an Arrow file as JSON lines: the streams that the package datasets writes
// (save_to_disk, and its cache), and Arrow files (Feather version 2) without compression.
//
// Format: https://arrow.apache.org/docs/format/Columnar.html. Columns may be null, booleans,
// integers, floating-point numbers, strings, lists and structs of these. Debian 12 has no library
// for Arrow or Parquet, and of Arrow's format a data set needs only this small part. Parquet has
// several encodings and compressions, so it is refused.
//
// The file is hostile: each offset and length is checked against what is left, and types nest at
// most kMostDepth deep.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/result.h"

namespace weft::train {

// Returns the offset at which the messages of an Arrow file begin. head: its first 16 bytes.
// Returns nothing if the file is not an Arrow file.
std::optional<uint64_t> ArrowBegin(std::string_view head);

// Calls take with the JSON lines of each batch of records. Memory: a batch (below kMostBatchBytes)
// and its lines. Errors: kCorrupt, kUnsupported (a type, a compression, a dictionary), with the
// file; those of File and of take.
inline constexpr uint64_t kMostBatchBytes = uint64_t{1} << 30;
Status ReadArrow(const File& file, uint64_t begin,
                 const std::function<Status(std::string_view lines)>& take);

}  // namespace weft::train
