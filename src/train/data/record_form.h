// Determines the form of a training file from its name and its start (rules: record_file.h).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::train {

enum class RecordForm { kLines, kArray, kObject, kStream, kTable, kText };

struct FormChoice {
    RecordForm form = RecordForm::kLines;
    char delimiter = ',';     // between the fields of a table
    bool paragraphs = false;  // the text is paragraphs, else lines
    char line_end = '\n';     // or '\r', as on old Macs
    size_t begin = 0;         // first byte to read: after a UTF-8 mark and Excel's line "sep=;"
};

// head: the start of the file, unpacked. Errors: kUnsupported: binary data, or another format,
// which the message names.
Result<FormChoice> ChooseForm(const std::string& path, std::string_view head);

// The column names of a table, in lower case; empty if the row is invalid.
std::vector<std::string> ColumnsOf(std::string_view first_row, char delimiter);

}  // namespace weft::train
