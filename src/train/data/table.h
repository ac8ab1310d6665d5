// Tables of training data: CSV (RFC 4180) and TSV, with column names in the first row. A quoted
// field may contain delimiters, line ends and doubled quotes. Only a quote at the start of a field
// opens a quoted field, so 5'10" is unchanged.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace weft::train {

// Finds the ends of a table's rows. Call Ends for each byte in order.
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
            quoted_ = true;  // (a doubled quote reopens the field)
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

// The delimiter of a table: the most frequent of comma, semicolon and tab in its first row, outside
// quotes.
char DelimiterOf(std::string_view first_row);

// The fields of one row, without its line end. kCorrupt: an unterminated quoted field, or text
// after its closing quote.
Result<std::vector<std::string>> ParseRow(std::string_view row, char delimiter);

}  // namespace weft::train
