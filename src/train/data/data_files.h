// Expands the words of --data: replaces folders by the data files in them, and data sets of the Hub
// (hf:datasets/OWNER/NAME, hub/spec.h) by the files of the split in the cache folder.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"

namespace weft::train {

struct DataFileList {
    std::vector<std::string> files;
    std::vector<size_t> ends;           // by path: the number of files up to its last one
    std::vector<std::string> left_out;  // files of other splits than the training split
    bool from_folder = false;           // a path is a folder, or a data set of the Hub
};

// Returns the files in a fixed order. A file in `paths` stays as it is. A folder is replaced by the
// files in it and its subfolders, also those behind links, whose names end in .json, .jsonl,
// .ndjson, .csv, .tsv, .txt or .parquet in upper or lower case (or are compressed files of these
// kinds, or .arrow, which training refuses), sorted by path. A folder counts once, however many
// links lead to it. Skips hidden files, descriptions of data sets (dataset_info.json and similar)
// and texts about them (LICENSE.txt and similar).
//
// If a file's path in the folder has the word "train" (or "training"), the files with "test",
// "valid", "val", "dev", "eval" or a longer form of these words are skipped, as the package
// datasets assigns files to splits.
//
// Errors: kNotFound (a missing path, a folder without such files), kUnsupported (too many files or
// folders), kIo; those of hub::FindCachedData.
Result<DataFileList> DataFiles(const std::vector<std::string>& paths);

}  // namespace weft::train
