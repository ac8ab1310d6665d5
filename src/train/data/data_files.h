// Expands the paths of --data: files stay, folders become their data files.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

inline constexpr size_t kMostDataFiles = 512;

// The files in a fixed order: given files as they are, and from each folder (with subfolders) the
// files with names that end in .json, .jsonl, .ndjson, .csv, .tsv or .txt, also compressed, sorted
// by path. Skips hidden files and descriptions of data sets (dataset_info.json and similar).
// Errors: kNotFound (a missing path, a folder without such files), kUnsupported (too many files; a
// folder with Parquet or Arrow files, which would be skipped), kIo.
Result<std::vector<std::string>> DataFiles(const std::vector<std::string>& paths);

}  // namespace weft::train
