#include "train/data/record_form.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <optional>

#include "base/text.h"
#include "base/utf8.h"
#include "hub/data_format.h"
#include "train/data/table.h"

namespace weft::train {
namespace {

constexpr std::string_view kUtf8Bom = "\xEF\xBB\xBF";
constexpr std::string_view kBlankBytes = " \t\n\r";

// The first bytes of Arrow files, and the line of Python that writes one ({0}) as Parquet ({1}):
// streams (save_to_disk of the package datasets, and its cache), and both versions of Feather.
constexpr const char* kFromStream =
    "import datasets; datasets.load_dataset('arrow', data_files={0}, "
    "split='train').to_parquet({1})";
constexpr const char* kFromFeather =
    "import pyarrow.feather, pyarrow.parquet; "
    "pyarrow.parquet.write_table(pyarrow.feather.read_table({0}), {1})";
constexpr const char* kFromFolder = "import datasets; datasets.load_from_disk({0}).to_parquet({1})";
constexpr struct {
    std::string_view magic;
    const char* convert;
} kArrow[] = {{"\xff\xff\xff\xff", kFromStream}, {"ARROW1", kFromFeather}, {"FEA1", kFromFeather}};

// The string as a literal of Python.
std::string PythonString(std::string_view text) {
    std::string quoted = "'";
    for (const char c : text) {
        if (static_cast<unsigned char>(c) < ' ') {
            quoted += fmt::format("\\x{:02x}", int{c});
            continue;
        }
        if (c == '\'' || c == '\\') quoted += '\\';
        quoted += c;
    }
    return quoted + "'";
}

Status RefuseOtherFormats(const std::string& path, std::string_view head) {
    const auto named = [&](std::string_view what) {
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: {}; expected Parquet, JSON lines, a JSON array, CSV, TSV or plain text, also "
            "compressed with gzip, zstd, xz or bzip2",
            path, what);
    };
    for (const auto& [magic, convert] : kArrow) {
        if (!head.starts_with(magic)) continue;
        // (A folder of save_to_disk has several such files and this one.)
        namespace fs = std::filesystem;
        const fs::path folder = fs::path(path).parent_path();
        std::error_code absent;
        const bool saved = fs::exists(folder / "state.json", absent);
        const fs::path from = saved ? folder : fs::path(path);
        return MakeError(
            ErrorCode::kUnsupported,
            "{}: an Arrow file, which Weft does not read. Write {} as Parquet with "
            "this line of Python, and train on the result: {}",
            path, saved ? "its folder" : "each such file",
            fmt::format(fmt::runtime(saved ? kFromFolder : convert), PythonString(from.string()),
                        PythonString(fs::path(from).replace_extension(".parquet").string())));
    }
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

// The last suffix of a name without its compression suffix: ".csv".
std::string SuffixOf(const std::string& path) {
    const std::string name = LowerCase(std::string(hub::WithoutCompression(path)));
    const size_t dot = name.rfind('.');
    return dot == name.npos || name.find('/', dot) != name.npos ? "" : name.substr(dot);
}

std::string_view TrimBlanks(std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of(kBlankBytes), text.size());
    return text.substr(begin, text.find_last_not_of(kBlankBytes) + 1 - begin);
}

// The first line end: '\n', or '\r' if no '\n' follows it. quotes: quoted fields may contain both.
char LineEndOf(std::string_view text, bool quotes) {
    bool quoted = false;
    for (size_t at = 0; at < text.size(); ++at) {
        at = text.find_first_of("\"\r\n", at);
        if (at == text.npos) break;
        if (text[at] == '"') quoted = quotes && !quoted;
        if (text[at] == '"' || quoted) continue;
        const size_t next = text.find_first_not_of('\r', at);
        if (text[at] == '\r' && (next == text.npos || text[next] != '\n')) return '\r';
        return '\n';
    }
    return '\n';
}

// Parses Excel's first line, which names the delimiter.
std::optional<char> DelimiterLine(std::string_view row) {
    const std::string line = LowerCase(row.starts_with('"') ? row.substr(1) : row);
    if (!line.starts_with("sep=") || line.size() > 6) return {};
    return line.size() == 4 ? '\t' : line[4];  // (trimming removed a tab)
}

std::string_view FirstRow(std::string_view text, char line_end) {
    RowScanner scanner(',', line_end);
    const auto end = std::ranges::find_if(text, [&](char c) { return scanner.Ends(c); });
    return TrimBlanks(text.substr(0, static_cast<size_t>(end - text.begin())));
}

// Whether columns form a record, or its start.
bool IsHeader(const std::vector<std::string>& columns) {
    constexpr std::string_view kKnown[] = {"messages",    "conversations", "conversation", "prompt",
                                           "instruction", "question",      "text",         "query"};
    return std::ranges::any_of(kKnown, [&](std::string_view name) {
        return std::ranges::find(columns, name) != columns.end();
    });
}

// Whether blank lines separate paragraphs: at least one gap per kMostLines lines. A few stray blank
// lines between records of one line each do not turn thousands of records into a few.
bool HasParagraphs(std::string_view text, char line_end) {
    constexpr size_t kMostLines = 50;
    size_t lines = 0, gaps = 0;
    bool gap = false;
    for (text = TrimBlanks(text); !text.empty();) {
        const size_t end = std::min(text.find(line_end), text.size());
        const bool blank = text.substr(0, end).find_first_not_of(kBlankBytes) == text.npos;
        lines += blank ? 0 : 1;
        gaps += blank && !gap ? 1 : 0;
        gap = blank;
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return gaps * kMostLines >= lines;
}

// Whether a text that begins with '{' continues after its first line, outside strings: then it is
// one object over several lines. False if the next line begins with '{' where JSON does not allow
// it: then the first of many records is truncated.
bool SpansLines(std::string_view text, char line_end) {
    std::string open;  // brackets
    bool in_string = false;
    char last = 0;  // last nonblank byte of the line
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (c == line_end) {
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

// prose: the name declares text, which may begin with a bracket.
bool LooksLikeJson(std::string_view text, bool prose) {
    if (text[0] != '{' && text[0] != '[') return false;
    const size_t next = text.find_first_not_of(kBlankBytes, 1);
    return !prose || (next != text.npos && text[next] == (text[0] == '{' ? '"' : '{'));
}

// The first object of a text that begins with '{', as far as the text reaches.
struct FirstObject {
    size_t objects = 0, others = 0;  // members whose values are objects, and others
    size_t end = std::string_view::npos;
};

FirstObject FirstObjectOf(std::string_view text) {
    FirstObject found;
    size_t depth = 0;
    bool in_string = false, named = false;
    for (size_t i = 0; i < text.size(); ++i) {
        const char c = text[i];
        if (in_string) {
            if (c == '\\') ++i;
            if (c == '"') in_string = false;
            continue;
        }
        if (kBlankBytes.find(c) != kBlankBytes.npos) continue;
        if (named && c != ',' && c != '}') ++(c == '{' ? found.objects : found.others);
        named = depth == 1 && c == ':';
        in_string = c == '"';
        if (c == '{' || c == '[') ++depth;
        if ((c == '}' || c == ']') && --depth == 0) {
            found.end = i + 1;
            return found;
        }
    }
    return found;
}

// An object whose members are all objects holds records by name. Any other object is a record: if
// more objects follow on its line, or it spans lines, the form is a stream.
RecordForm JsonForm(std::string_view text, char line_end) {
    if (text[0] == '[') return RecordForm::kArray;
    if (text[0] != '{') return RecordForm::kLines;
    const FirstObject first = FirstObjectOf(text);
    if (SpansLines(text, line_end)) {
        return first.others > 0 ? RecordForm::kStream : RecordForm::kObject;
    }
    const bool ends = first.end != text.npos;
    const size_t next = ends ? text.find_first_not_of(kBlankBytes, first.end) : text.npos;
    const size_t line = std::min(text.find(line_end), text.size());
    if (next < line && text[next] == '{') return RecordForm::kStream;
    const bool alone = ends ? next == text.npos : line == text.size() && first.objects > 1;
    const bool keyed = first.objects > 0 && first.others == 0;
    return alone && keyed ? RecordForm::kObject : RecordForm::kLines;
}

// Reads the format of a table if the text is one: if its first row names columns of records.
bool ReadHeader(std::string_view head, bool tabs, FormChoice& choice) {
    choice.line_end = LineEndOf(head, true);
    std::string_view row = FirstRow(head, choice.line_end);
    const auto delimiter = DelimiterLine(row);
    if (delimiter) {
        const size_t end = std::min(head.find(choice.line_end), head.size() - 1) + 1;
        choice.begin += end;
        row = FirstRow(head.substr(end), choice.line_end);
    }
    choice.delimiter = tabs ? '\t' : delimiter.value_or(DelimiterOf(row));
    return delimiter || IsHeader(ColumnsOf(row, choice.delimiter));
}

}  // namespace

std::vector<std::string> ColumnsOf(std::string_view first_row, char delimiter) {
    const auto fields = ParseRow(first_row, delimiter);
    std::vector<std::string> columns;
    if (!fields.ok()) return columns;
    for (const std::string& field : *fields) columns.push_back(LowerCase(Trim(field)));
    return columns;
}

Result<FormChoice> ChooseForm(const std::string& path, std::string_view head) {
    WEFT_TRY(RefuseOtherFormats(path, head));
    FormChoice choice;
    if (head.starts_with(kUtf8Bom)) choice.begin = kUtf8Bom.size();
    head.remove_prefix(choice.begin);
    const size_t first = head.find_first_not_of(kBlankBytes);
    if (first == head.npos) return choice;
    const std::string suffix = SuffixOf(path);
    const bool table = suffix == ".csv" || suffix == ".tsv";
    const bool prose = suffix == ".txt" || suffix == ".text" || suffix == ".md";
    const bool json = suffix == ".json" || suffix == ".jsonl" || suffix == ".ndjson";
    const std::string_view text = head.substr(first);
    if (!table && head.find('\n') == head.npos) choice.line_end = LineEndOf(head, false);
    if (!table && (json || LooksLikeJson(text, prose))) {
        choice.form = JsonForm(text, choice.line_end);
        return choice;
    }
    if (!table) WEFT_TRY(CheckText(path, head));
    choice.form = RecordForm::kText;
    choice.paragraphs = HasParagraphs(head, choice.line_end);
    FormChoice as_table = choice;
    as_table.form = RecordForm::kTable;
    const bool named = !prose && ReadHeader(head, suffix == ".tsv", as_table);
    return table || named ? as_table : choice;
}

}  // namespace weft::train
