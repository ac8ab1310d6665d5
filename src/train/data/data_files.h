// Expands the paths of --data: replaces folders by the data files in them.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

inline constexpr size_t kMostDataFiles = 512;

// Returns the files in a fixed order. A file in `paths` stays as it is. A folder is replaced by the
// files in it and its subfolders whose names end in .json, .jsonl, .ndjson, .csv, .tsv or .txt (or
// are compressed files of these kinds), sorted by path. Skips hidden files and descriptions of data
// sets (dataset_info.json and similar). Errors: kNotFound (a missing path, a folder without such
// files), kUnsupported (too many files, or a folder with Parquet or Arrow files, which would
// otherwise be ignored), kIo.
Result<std::vector<std::string>> DataFiles(const std::vector<std::string>& paths);

}  // namespace weft::train
