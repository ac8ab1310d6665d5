// Recognizes the files with the records of a data set by their names.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace weft::hub {

// Most files of a split, or of all --data of a job.
inline constexpr size_t kMostDataFiles = 4096;

// "data.csv" from "data.csv.gz".
std::string_view WithoutCompression(std::string_view path);

// ".csv" from "data/Train.CSV.gz", in lower case. Empty: the file holds no records (a hidden file,
// a license, a description of the data, or another format). Training refuses ".arrow" files; their
// format is here so that a folder with such files is an error.
std::string DataFormatOf(std::string_view path);

}  // namespace weft::hub
