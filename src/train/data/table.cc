#include "train/data/table.h"

#include <algorithm>
#include <utility>

namespace weft::train {

char DelimiterOf(std::string_view first_row) {
    constexpr std::string_view kDelimiters = ",;\t";
    size_t counts[3] = {};
    bool quoted = false;
    for (const char c : first_row) {
        if (c == '"') quoted = !quoted;
        const size_t at = kDelimiters.find(c);
        if (!quoted && at != kDelimiters.npos) ++counts[at];
    }
    return kDelimiters[static_cast<size_t>(std::ranges::max_element(counts) - counts)];
}

Result<std::vector<std::string>> ParseRow(std::string_view row, char delimiter) {
    std::vector<std::string> fields;
    size_t at = 0;
    for (;;) {
        std::string field;
        if (at < row.size() && row[at] == '"') {
            for (++at;; ++at) {
                const size_t quote = row.find('"', at);
                if (quote == row.npos) {
                    return MakeError(ErrorCode::kCorrupt,
                                     "field {} begins with a quote and has none at its end",
                                     fields.size() + 1);
                }
                field += row.substr(at, quote - at);
                at = quote + 1;
                if (at == row.size() || row[at] != '"') break;
                field += '"';
            }
            if (at < row.size() && row[at] != delimiter) {
                return MakeError(ErrorCode::kCorrupt,
                                 "field {} continues after its closing quote; a quote within a "
                                 "quoted field is written twice",
                                 fields.size() + 1);
            }
        } else {
            const size_t end = std::min(row.find(delimiter, at), row.size());
            field = row.substr(at, end - at);
            at = end;
        }
        fields.push_back(std::move(field));
        if (at >= row.size()) return fields;
        ++at;  // the delimiter
    }
}

}  // namespace weft::train
