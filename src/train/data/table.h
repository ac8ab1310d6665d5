// Tables of training data: CSV (RFC 4180) and TSV, with the names of the columns in the first row.
// A field may be quoted; then it may hold delimiters, line ends and, doubled, quotes. A quote
// counts only where a field begins, so 5'10" stays as it is.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::train {

// Finds the ends of rows, byte by byte.
class RowScanner {
  public:
    explicit RowScanner(char delimiter = ',', char line_end = '\n')
        : delimiter_(delimiter), line_end_(line_end) {}

    // Whether `c` ends a row.
    bool Ends(char c) {
        if (quoted_) {
            if (c == '"') quoted_ = false, was_quoted_ = true;
            return false;
        }
        if (c == '"' && (at_begin_ || was_quoted_)) {
            quoted_ = true;  // (a doubled quote opens it again)
            at_begin_ = was_quoted_ = false;
            return false;
        }
        at_begin_ = c == delimiter_ || c == line_end_;
        was_quoted_ = false;
        return c == line_end_;
    }
    bool quoted() const { return quoted_; }

  private:
    char delimiter_, line_end_;
    bool at_begin_ = true, quoted_ = false, was_quoted_ = false;
};

// The delimiter of a table, by its first row: the most frequent of comma, semicolon and tab outside
// of quotes.
char DelimiterOf(std::string_view first_row);

// The fields of one row, without its line end. kCorrupt: a quoted field that does not end, or goes
// on behind its end.
Result<std::vector<std::string>> ParseRow(std::string_view row, char delimiter);

}  // namespace weft::train
