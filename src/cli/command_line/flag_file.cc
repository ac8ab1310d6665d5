#include "cli/command_line/flag_file.h"

#include <algorithm>
#include <utility>

#include "base/json.h"
#include "base/text.h"

namespace weft::cli {
namespace {

class Reader {
  public:
    explicit Reader(std::string_view text) : rest_(text) {
        constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";
        if (rest_.starts_with(kByteOrderMark)) rest_.remove_prefix(kByteOrderMark.size());
    }

    Result<std::vector<FlagLine>> Read() {
        std::vector<FlagLine> lines;
        for (SkipLines(); !rest_.empty(); SkipLines()) {
            if (rest_[0] == '[') return Wrong("a file of flags has no [tables]");
            FlagLine line;
            WEFT_ASSIGN(line.name, Text("=\n#"));
            SkipBlanks();
            line.values = {"true"};
            if (Take('=')) {
                WEFT_ASSIGN(line.values, Values());
            }
            SkipBlanks();
            if (!AtEndOfLine()) return Wrong("expected the line's end after the value");
            lines.push_back(std::move(line));
        }
        return lines;
    }

  private:
    Error Wrong(const char* why) const {
        return MakeError(ErrorCode::kUsage, "line {}: {}", line_, why);
    }
    bool AtEndOfLine() const { return rest_.empty() || rest_[0] == '\n' || rest_[0] == '#'; }
    bool Take(char c) {
        const bool there = rest_.starts_with(c);
        rest_.remove_prefix(there ? 1 : 0);
        return there;
    }
    void SkipBlanks() {
        rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r"), rest_.size()));
    }
    // Skips blanks, comments and ends of lines.
    void SkipLines() {
        for (SkipBlanks(); !rest_.empty(); SkipBlanks()) {
            if (rest_[0] == '#' || rest_[0] == ';') {
                rest_.remove_prefix(std::min(rest_.find('\n'), rest_.size()));
            } else if (Take('\n')) {
                ++line_;
            } else {
                return;
            }
        }
    }

    Result<std::vector<std::string>> Values() {
        std::vector<std::string> values;
        SkipBlanks();
        if (!Take('[')) {
            if (AtEndOfLine()) return Wrong("the value is missing");
            WEFT_ASSIGN(values.emplace_back(), Text("\n#"));
            return values;
        }
        for (SkipLines(); !Take(']'); SkipLines()) {
            if (rest_.empty()) return Wrong("the list has no ']'");
            WEFT_ASSIGN(values.emplace_back(), Text(",]\n#"));
            SkipLines();
            if (!Take(',') && !rest_.starts_with(']')) return Wrong("expected ',' or ']'");
        }
        return values;
    }

    // "8192" for TOML's "8_192"; other texts stay unchanged.
    static std::string WithoutUnderscores(std::string text) {
        const size_t sign = text.starts_with('-') ? 1 : 0;
        const bool digits = text.find_first_not_of("0123456789_", sign) == text.npos;
        const bool joins =
            !text.starts_with('_') && !text.ends_with('_') && text.find("__") == text.npos;
        if (digits && joins) std::erase(text, '_');
        return text;
    }

    // A string, or a text up to any of `ends`.
    Result<std::string> Text(std::string_view ends) {
        const char quote = rest_[0];
        if (quote != '"' && quote != '\'') {
            const std::string_view text = rest_.substr(0, rest_.find_first_of(ends));
            rest_.remove_prefix(text.size());
            return WithoutUnderscores(std::string(Trim(text)));
        }
        size_t end = 1;
        while (end < rest_.size() && rest_[end] != quote && rest_[end] != '\n') {
            end += quote == '"' && rest_[end] == '\\' ? 2 : 1;
        }
        if (end >= rest_.size() || rest_[end] != quote) return Wrong("a string has no end");
        const std::string_view text = rest_.substr(0, end + 1);
        rest_.remove_prefix(text.size());
        if (quote == '\'') return std::string(text.substr(1, end - 1));
        // JSON's strings have the same escapes, but no tabs.
        std::string json;
        for (const char c : text) json += c == '\t' ? "\\t" : std::string(1, c);
        const nlohmann::json parsed = JsonOrDiscarded(json);
        if (!parsed.is_string()) return Wrong("a string has an unknown escape: '...' has none");
        return parsed.get<std::string>();
    }

    std::string_view rest_;
    int line_ = 1;
};

}  // namespace

Result<std::vector<FlagLine>> ParseFlagLines(std::string_view text) {
    return Reader(text).Read();
}

}  // namespace weft::cli
