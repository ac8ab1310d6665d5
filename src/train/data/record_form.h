// What form a file of training data has, by its name and its begin (record_file.h says the rules).
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::train {

enum class RecordForm { kLines, kArray, kObject, kStream, kTable, kText };

struct FormChoice {
    RecordForm form = RecordForm::kLines;
    char delimiter = ',';     // of a table
    bool paragraphs = false;  // text has blank lines
    char line_end = '\n';     // or '\r', as on old Macs
    size_t begin = 0;         // of what is read: behind a UTF-8 mark and Excel's line "sep=;"
};

// head: the begin of the file, unpacked. kUnsupported: another format, named; bytes that are no
// text.
Result<FormChoice> ChooseForm(const std::string& path, std::string_view head);

// The names of a table's columns, in lower case; none where the row is broken.
std::vector<std::string> ColumnsOf(std::string_view first_row, char delimiter);

}  // namespace weft::train
