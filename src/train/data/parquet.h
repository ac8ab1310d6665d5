// Reads the records of a Parquet file as JSON lines.
//
// Format: https://github.com/apache/parquet-format. Debian 12 has no library for Parquet. Data
// pages of versions 1 and 2, all encodings in use (parquet_values.h), the codecs of
// parquet_codec.h. Columns may be booleans, integers, floating-point numbers, decimals, dates,
// timestamps, strings, lists, maps (a list of keys and values) and structs of these. Records are
// assembled from the levels of their columns ("Dremel: Interactive Analysis of Web-Scale Datasets",
// 2010).
//
// The file is hostile: each size is checked against the remaining bytes (record_lines.h).
#pragma once

#include "base/file.h"
#include "base/result.h"
#include "train/data/record_lines.h"

namespace weft::train {

inline constexpr std::string_view kParquetMagic = "PAR1";

// Calls take with the JSON lines of the records. Memory: a page and a dictionary of each column
// (all together below kMostColumnBytes), the footer (at most 64 MiB) and a record's line. Errors:
// kCorrupt, kUnsupported (a type, an encoding, a codec, encryption), with the file; those of File
// and of take.
Status ReadParquet(const File& file, const RecordLines::Take& take);

}  // namespace weft::train
