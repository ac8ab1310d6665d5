// Chooses the files of a data set's repository that make up a split, by the Hub's rules
// (https://huggingface.co/docs/hub/datasets-data-files-configuration):
//
//     configs: of the README   the files that its `data_files` name for the split, or those in its
//                              `data_dir`
//     SPLIT-00000-of-00003.*   all files of the split, in any folder
//     other names              files with the split as a word in their path, such as SPLIT.jsonl,
//                              data/SPLIT/x.csv; for `train`, all files if none names a split
//
// Without `configs:`, a configuration is a folder, as in refs/convert/parquet. Of several formats,
// the most frequent one is used. A data set that a program generates (NAME.py) is refused.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/listing.h"
#include "hub/spec.h"

namespace weft::hub {

// info: the response to /api/datasets/OWNER/NAME/revision/REVISION, with the README's header.
// Errors: kNotFound and kUsage list the configurations or splits; kUnsupported: made by a program,
// or more than kMostDataFiles files.
Result<std::vector<RepoFile>> ChooseData(const std::vector<RepoFile>& files, const RepoSpec& spec,
                                         std::string_view info);

}  // namespace weft::hub
