// The files that --data names: files as they are, and the training files of folders.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

inline constexpr size_t kMostDataFiles = 512;

// The files in a fixed order. Of a folder and those below it: names that end in .json, .jsonl,
// .ndjson, .csv, .tsv or .txt, also compressed, in the order of their paths, but for hidden ones
// and descriptions of data sets (dataset_info.json and its like). Errors: kNotFound (nothing there,
// a folder without such files), kUnsupported (too many; a folder with Parquet or Arrow files, which
// would be left out), kIo.
Result<std::vector<std::string>> DataFiles(const std::vector<std::string>& paths);

}  // namespace weft::train
