#include "train/data/record_form.h"

#include <algorithm>
#include <cctype>

#include "base/utf8.h"
#include "train/data/table.h"
#include "train/data/unpack.h"

namespace weft::train {
namespace {

constexpr std::string_view kUtf8Bom = "\xEF\xBB\xBF";
constexpr std::string_view kBlankBytes = " \t\n\r";

Status RefuseOtherFormats(const std::string& path, std::string_view head) {
    const auto named = [&](std::string_view what) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}; expected JSON lines, a JSON array, CSV, TSV or plain text, also "
                         "compressed with gzip, zstd, xz or bzip2",
                         path, what);
    };
    if (head.starts_with("PAR1")) return named("a Parquet file");
    if (head.starts_with("ARROW1")) return named("an Arrow file");
    if (head.starts_with("PK\x03\x04")) return named("a zip file");
    if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) return named("UTF-16 text");
    return {};
}

Status CheckText(const std::string& path, std::string_view head) {
    head.remove_suffix(IncompleteTail(head));
    if (IsUtf8(head) && head.find('\0') == head.npos) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}: neither JSON nor text in UTF-8. Convert another encoding of text with "
                     "iconv",
                     path);
}

std::string LowerCase(std::string_view text) {
    std::string lower(text);
    std::ranges::transform(lower, lower.begin(),
                           [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return lower;
}

// The name's last suffix, without that of a compression: ".csv".
std::string SuffixOf(const std::string& path) {
    const std::string name = LowerCase(WithoutCompression(path));
    const size_t dot = name.rfind('.');
    return dot == name.npos || name.find('/', dot) != name.npos ? "" : name.substr(dot);
}

std::string_view TrimBlanks(std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of(kBlankBytes), text.size());
    return text.substr(begin, text.find_last_not_of(kBlankBytes) + 1 - begin);
}

std::string_view FirstRow(std::string_view text) {
    RowScanner scanner;
    const auto end = std::ranges::find_if(text, [&](char c) { return scanner.Ends(c); });
    return TrimBlanks(text.substr(0, static_cast<size_t>(end - text.begin())));
}

// Columns that alone make a record, or its begin.
bool IsHeader(const std::vector<std::string>& columns) {
    constexpr std::string_view kKnown[] = {"messages",    "conversations", "prompt",
                                           "instruction", "question",      "text"};
    return std::ranges::any_of(kKnown, [&](std::string_view name) {
        return std::ranges::find(columns, name) != columns.end();
    });
}

bool HasBlankLine(std::string_view text) {
    text = TrimBlanks(text);
    for (size_t at = text.find('\n'); at != text.npos; at = text.find('\n', at + 1)) {
        const size_t next = text.find_first_not_of(" \t\r", at + 1);
        if (next != text.npos && text[next] == '\n') return true;
    }
    return false;
}

// Whether a text that begins with '{' goes on after its first line, outside of strings: then it is
// one object over several lines. Not where the next line begins with '{' at a place where JSON has
// none: then the first of many records lacks its end.
bool SpansLines(std::string_view text) {
    std::string open;  // brackets
    bool in_string = false;
    char last = 0;  // before the end of the line, no blank
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == '\n') {
            if (in_string || open.empty()) return false;
            const size_t next = text.find_first_not_of(kBlankBytes, i);
            if (next == text.npos || text[next] != '{') return true;
            return open.back() == '{' ? last == ':' : last == '[' || last == ',';
        }
        if (kBlankBytes.find(c) == kBlankBytes.npos) last = c;
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
        } else if (c == '"') {
            in_string = true;
        } else if (c == '{' || c == '[') {
            open += c;
        } else if (c == '}' || c == ']') {
            open.pop_back();
            if (open.empty()) return false;
        }
    }
    return false;
}

// prose: the name says that it is text, which may begin with a bracket.
bool LooksLikeJson(std::string_view text, bool prose) {
    if (text[0] != '{' && text[0] != '[') return false;
    const size_t next = text.find_first_not_of(kBlankBytes, 1);
    return !prose || (next != text.npos && text[next] == (text[0] == '{' ? '"' : '{'));
}

RecordForm JsonForm(std::string_view text) {
    if (text[0] == '[') return RecordForm::kArray;
    return text[0] == '{' && SpansLines(text) ? RecordForm::kObject : RecordForm::kLines;
}

}  // namespace

std::vector<std::string> ColumnsOf(std::string_view first_row, char delimiter) {
    const auto fields = ParseRow(first_row, delimiter);
    std::vector<std::string> columns;
    if (!fields.ok()) return columns;
    for (const std::string& field : *fields) columns.push_back(LowerCase(TrimBlanks(field)));
    return columns;
}

Result<FormChoice> ChooseForm(const std::string& path, std::string_view head) {
    WEFT_TRY(RefuseOtherFormats(path, head));
    if (head.starts_with(kUtf8Bom)) head.remove_prefix(kUtf8Bom.size());
    const size_t first = head.find_first_not_of(kBlankBytes);
    if (first == head.npos) return FormChoice{};
    const std::string suffix = SuffixOf(path);
    const bool table = suffix == ".csv" || suffix == ".tsv";
    const bool prose = suffix == ".txt" || suffix == ".text" || suffix == ".md";
    const bool json = suffix == ".json" || suffix == ".jsonl" || suffix == ".ndjson";
    const std::string_view text = head.substr(first);
    if (!table && (json || LooksLikeJson(text, prose))) return FormChoice{JsonForm(text)};
    if (!table) WEFT_TRY(CheckText(path, head));
    const std::string_view row = FirstRow(head);
    FormChoice choice{RecordForm::kText, DelimiterOf(row), HasBlankLine(head)};
    if (suffix == ".tsv") choice.delimiter = '\t';
    const bool named = !prose && IsHeader(ColumnsOf(row, choice.delimiter));
    if (table || named) choice.form = RecordForm::kTable;
    return choice;
}

}  // namespace weft::train
