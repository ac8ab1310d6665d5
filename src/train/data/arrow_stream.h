// Reads the records of an Arrow file as JSON lines: the streams that the package datasets writes
// (save_to_disk, and its cache), and Arrow files (Feather version 2) without compression.
//
// Format: https://arrow.apache.org/docs/format/Columnar.html. Columns may be null, booleans,
// integers, floating-point numbers, decimals, dates, timestamps, strings, lists and structs of
// these. Debian 12 has no library for Arrow, and a data set needs only this small part of it.
//
// The file is hostile: each offset and length is checked against what is left (record_lines.h).
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "train/data/record_lines.h"

namespace weft::train {

// Returns the offset at which the messages of an Arrow file begin. head: its first 16 bytes.
// Returns nothing if the file is not an Arrow file.
std::optional<uint64_t> ArrowBegin(std::string_view head);

// Calls take with the JSON lines of the records. Memory: a batch (below kMostColumnBytes) and a
// record's line. Errors: kCorrupt, kUnsupported (a type, a compression, a dictionary), with the
// file; those of File and of take.
Status ReadArrow(const File& file, uint64_t begin, const RecordLines::Take& take);

}  // namespace weft::train
