// Reads the records of an Arrow file as JSON lines: the streams that the package datasets writes
// (save_to_disk, and its cache), and Arrow files (Feather version 2) without compression.
//
// Format: https://arrow.apache.org/docs/format/Columnar.html. Columns may be null, booleans,
// numbers, dates, times, durations, strings, lists, maps (a list of keys and values), structs of
// these, and dictionaries of values without parts; the lines have the values that Parquet's have
// (record_lines.h). Debian 12 has no library for Arrow, and a data set needs only this small part
// of it.
//
// The file is hostile: each offset and length is checked against what is left (record_lines.h).
#pragma once

#include <string_view>

#include "base/file.h"
#include "base/result.h"
#include "train/data/record_lines.h"

namespace weft::train {

// Whether a file with these first bytes (8 or more) is an Arrow file.
bool IsArrow(std::string_view head);

// Calls take with the JSON lines of the records. Memory: a batch and the dictionaries (each below
// kMostColumnBytes) and a record's line. Errors: kCorrupt, kUnsupported (a type, a compression),
// with the file; those of File and of take.
Status ReadArrow(const File& file, const RecordLines::Take& take);

}  // namespace weft::train
