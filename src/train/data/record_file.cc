#include "train/data/record_file.h"

#include <algorithm>
#include <set>

#include "base/hash.h"
#include "model_files/hf/json.h"
#include "train/data/random.h"
#include "train/data/record_form.h"
#include "train/data/table.h"
#include "train/data/unpack.h"

namespace weft::train {
namespace {

constexpr uint64_t kBufferBytes = 1 << 20;
constexpr uint64_t kMarkBytes = 64 << 10;
static_assert(kBufferBytes % kMarkBytes == 0);
constexpr int kSizeBits = 24;

uint64_t Pack(uint64_t offset, uint64_t size) {
    return offset << kSizeBits | size;
}
uint64_t OffsetOf(uint64_t packed) {
    return packed >> kSizeBits;
}
uint64_t SizeOf(uint64_t packed) {
    return packed & RecordFile::kMostRecordBytes;
}

bool IsBlank(char c) {
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

// Hash of a record's bytes (FNV-1a).
class Hash {
  public:
    void Add(char c) { value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ull; }
    // A number in [0, 1).
    double Part(uint64_t seed) const { return UnitOf(Mix(value_ ^ Mix(seed))); }

  private:
    uint64_t value_ = 0xcbf29ce484222325ull;
};

}  // namespace

// One pass over the file. Bytes arrive in order, with their offsets.
class RecordScanner {
  public:
    RecordScanner(RecordFile& out, const SplitOptions& split) : out_(out), split_(split) {}

    Status Run() {
        std::string buffer(kBufferBytes, '\0');
        uint64_t lines = 0;
        for (uint64_t begin = 0; begin < out_.size_bytes(); begin += kBufferBytes) {
            const uint64_t size = std::min(kBufferBytes, out_.size_bytes() - begin);
            WEFT_TRY(
                out_.file_.ReadAt(begin, std::as_writable_bytes(std::span(buffer.data(), size))));
            const std::string_view text(buffer.data(), size);
            out_.checksum_ = Checksum64(std::as_bytes(std::span(text)), out_.checksum_);
            size_t skipped = 0;
            if (begin == 0) {
                WEFT_ASSIGN(skipped, Choose(text));
            }
            for (size_t at = 0; at < size; at += kMarkBytes) {
                out_.lines_at_marks_.push_back(lines);
                lines += static_cast<uint64_t>(
                    std::ranges::count(text.substr(at, kMarkBytes), out_.line_end_));
            }
            WEFT_TRY(Scan(text.substr(skipped), begin + skipped));
        }
        WEFT_TRY(End());
        out_.train_.shrink_to_fit();
        out_.test_.shrink_to_fit();
        return {};
    }

  private:
    using Form = RecordForm;

    // text: the start of the file. Returns the offset of the first record.
    Result<size_t> Choose(std::string_view text) {
        WEFT_ASSIGN(const FormChoice choice, ChooseForm(out_.path(), text));
        out_.form_ = choice.form;
        out_.delimiter_ = choice.delimiter;
        out_.line_end_ = choice.line_end;
        rows_ = RowScanner(choice.delimiter, choice.line_end);
        out_.paragraphs_ = choice.paragraphs;
        return choice.begin;
    }

    Status Scan(std::string_view text, uint64_t base) {
        switch (out_.form_) {
            case Form::kLines: ScanLines(text, base); return {};
            case Form::kText: ScanText(text, base); return {};
            case Form::kTable: return ScanRows(text, base);
            case Form::kArray:
            case Form::kObject:
            case Form::kStream: return ScanFrame(text, base);
        }
        return {};
    }

    Status End() {
        switch (out_.form_) {
            case Form::kLines:
            case Form::kText: EndRecord(); return {};
            case Form::kTable:
                if (!rows_.quoted()) return EndRow();
                return MakeError(ErrorCode::kCorrupt,
                                 "{}: a field begins with a quote that nothing closes",
                                 out_.WhereByte(begin_));
            case Form::kArray:
            case Form::kObject: break;
            case Form::kStream: ended_ = depth_ == 0; break;
        }
        if (ended_) return {};
        return Broken(out_.size_bytes(), "the file ends before the records do; is it complete?");
    }

    // Paragraphs, or lines.
    void ScanText(std::string_view text, uint64_t base) {
        for (size_t i = 0; i < text.size(); ++i) {
            if (!IsBlank(text[i])) {
                AddByte(text[i], base + i);
                in_line_ = true;
            } else if (text[i] == out_.line_end_) {
                if (!out_.paragraphs_ || !in_line_) EndRecord();
                in_line_ = false;
            }
        }
    }

    Status ScanRows(std::string_view text, uint64_t base) {
        for (size_t i = 0; i < text.size(); ++i) {
            if (!in_line_) {
                in_line_ = true;
                begin_ = base + i;
                hash_ = Hash();
            }
            if (rows_.Ends(text[i])) {
                WEFT_TRY(EndRow());
            } else if (!IsBlank(text[i])) {
                inside_ = true;
                if (split_.test > 0) hash_.Add(text[i]);
                last_ = base + i;
            } else if (text[i] != '\r') {
                last_ = base + i;
            }
        }
        return {};
    }

    // A row may begin or end with blanks, which belong to a field. The first row names the columns.
    Status EndRow() {
        in_line_ = false;
        if (!inside_) return {};  // a blank line
        end_ = last_ + 1;
        if (!out_.columns_.empty()) {
            EndRecord();
            return {};
        }
        inside_ = false;
        std::string row(std::min<uint64_t>(end_ - begin_, kBufferBytes), '\0');
        WEFT_TRY(out_.file_.ReadAt(begin_, std::as_writable_bytes(std::span(row))));
        out_.columns_ = ColumnsOf(row, out_.delimiter_);
        if (!out_.columns_.empty()) return CheckColumns();
        return MakeError(ErrorCode::kCorrupt, "{}: the first row does not name the columns",
                         out_.WhereByte(begin_));
    }

    // (Spreadsheets write columns without names and values.)
    Status CheckColumns() const {
        std::set<std::string_view> seen{};
        for (const std::string& name : out_.columns_) {
            if (name.empty() || seen.insert(name).second) continue;
            return MakeError(ErrorCode::kCorrupt,
                             "{}: the first row has the column '{}' twice (in upper or lower "
                             "case). Rename one of them, or remove it",
                             out_.WhereByte(begin_), model_files::hf::Shown(name));
        }
        return {};
    }

    void ScanLines(std::string_view text, uint64_t base) {
        for (size_t i = 0; i < text.size(); ++i) {
            if (text[i] == out_.line_end_) {
                EndRecord();
            } else if (!IsBlank(text[i])) {
                AddByte(text[i], base + i);
                if (split_.test == 0) i = LineEnd(text, i, base) - 1;
            }
        }
    }
    // Without hashes, the rest of a line is only searched for its end and its last byte.
    size_t LineEnd(std::string_view text, size_t from, uint64_t base) {
        const size_t end = std::min(text.find(out_.line_end_, from), text.size());
        size_t last = end - 1;
        while (last > from && IsBlank(text[last])) --last;
        end_ = base + last + 1;
        return end;
    }

    Status ScanFrame(std::string_view text, uint64_t base) {
        for (size_t i = 0; i < text.size(); ++i) {
            const char c = text[i];
            if (in_string_) {
                AddByte(c, base + i);
                if (escaped_) {
                    escaped_ = false;
                } else if (c == '\\') {
                    escaped_ = true;
                } else if (c == '"') {
                    in_string_ = false;
                }
            } else if (!IsBlank(c)) {
                WEFT_TRY(FrameByte(c, base + i));
            }
        }
        return {};
    }

    // Handles a byte outside strings that is not blank.
    Status FrameByte(char c, uint64_t at) {
        if (out_.form_ == Form::kStream) return StreamByte(c, at);
        if (ended_) return Broken(at, "something follows the end of the records");
        const bool opens = c == '{' || c == '[';
        const bool closes = c == '}' || c == ']';
        if (depth_ == 0) {  // the bracket of the frame, which ChooseForm has seen
            depth_ = 1;
            return {};
        }
        if (depth_ == 1 && (c == ',' || closes)) {
            const bool empty = closes && found_ == 0 && !inside_ && !named_;
            if (!inside_ && !empty) return Broken(at, "a record is missing");
            EndRecord();
            named_ = false;
            if (!closes) return {};
            if (c != (out_.form_ == RecordFile::Form::kArray ? ']' : '}')) {
                return Broken(at, "brackets do not match");
            }
            ended_ = true;
            depth_ = 0;
            return {};
        }
        if (depth_ == 1 && c == ':' && out_.form_ == RecordFile::Form::kObject && !named_) {
            named_ = true;  // the bytes so far were the record's name
            inside_ = false;
            return {};
        }
        AddByte(c, at);
        in_string_ = c == '"';
        if (opens) ++depth_;
        if (closes) --depth_;
        return {};
    }

    Status StreamByte(char c, uint64_t at) {
        if (depth_ == 0 && c != '{') return Broken(at, "expected '{', the begin of a record");
        AddByte(c, at);
        in_string_ = c == '"';
        if (c == '{' || c == '[') ++depth_;
        if ((c == '}' || c == ']') && --depth_ == 0) EndRecord();
        return {};
    }

    void AddByte(char c, uint64_t at) {
        if (!inside_) {
            inside_ = true;
            begin_ = at;
            hash_ = Hash();
        }
        if (split_.test > 0 && !IsBlank(c)) hash_.Add(c);
        end_ = at + 1;
    }

    void EndRecord() {
        if (!inside_) return;
        inside_ = false;
        ++found_;
        const uint64_t size = end_ - begin_;
        if (size > RecordFile::kMostRecordBytes) {
            if (out_.oversized_++ == 0) {
                out_.first_oversized_ = fmt::format("{}: record {} (byte {}) has {} bytes",
                                                    out_.path(), found_, begin_, size);
            }
            return;
        }
        const bool test = split_.test > 0 && hash_.Part(split_.seed) < split_.test;
        (test ? out_.test_ : out_.train_).push_back(Pack(begin_, size));
    }

    Error Broken(uint64_t at, std::string_view what) const {
        return MakeError(ErrorCode::kCorrupt, "{}: byte {}, after {} records: {}", out_.path(), at,
                         found_, what);
    }

    RecordFile& out_;
    const SplitOptions split_;
    Hash hash_;
    uint64_t begin_ = 0, end_ = 0, found_ = 0;
    uint64_t depth_ = 0;
    bool inside_ = false;  // inside a record
    bool named_ = false;   // after a name and its colon
    bool in_string_ = false, escaped_ = false, ended_ = false;
    RowScanner rows_;
    uint64_t last_ = 0;     // last byte of the row so far
    bool in_line_ = false;  // text: the line has words; table: a row has begun
};

Result<RecordFile> RecordFile::Open(const std::string& path, const SplitOptions& split) {
    if (!(split.test >= 0 && split.test < 1)) {
        return MakeError(ErrorCode::kUsage,
                         "a test part of {} of the records; expected 0 to below 1", split.test);
    }
    WEFT_ASSIGN(UnpackedFile opened, OpenUnpacked(path));
    const File& file = opened.file;
    if (file.size_bytes() > kMostFileBytes) {
        return MakeError(ErrorCode::kUnsupported, "{}: {} bytes; at most {} are read", path,
                         file.size_bytes(), kMostFileBytes);
    }
    RecordFile records(path, std::move(opened));
    WEFT_TRY(RecordScanner(records, split).Run());
    return records;
}

Result<std::string_view> RecordFile::Read(Part part, uint64_t index, std::string& buffer) const {
    const std::vector<uint64_t>& list = List(part);
    WEFT_CHECK(index < list.size());
    buffer.resize(SizeOf(list[index]));
    WEFT_TRY(file_.ReadAt(OffsetOf(list[index]), std::as_writable_bytes(std::span(buffer))));
    return std::string_view(buffer);
}

std::string RecordFile::Where(Part part, uint64_t index) const {
    return WhereByte(OffsetOf(List(part)[index]));
}

std::string RecordFile::WhereByte(uint64_t offset) const {
    const bool by_line = form_ == Form::kLines || form_ == Form::kTable || form_ == Form::kText;
    if (by_line) return fmt::format("{}: line {}", path(), LineOf(offset));
    const uint64_t key = Pack(offset, 0);
    const auto before = [&](const std::vector<uint64_t>& list) {
        return std::ranges::lower_bound(list, key) - list.begin();
    };
    return fmt::format("{}: record {} (byte {})", path(), before(train_) + before(test_) + 1,
                       offset);
}

uint64_t RecordFile::LineOf(uint64_t offset) const {
    const uint64_t mark = std::min(offset / kMarkBytes, uint64_t{lines_at_marks_.size()} - 1);
    uint64_t lines = lines_at_marks_[mark];
    std::string buffer;
    for (uint64_t at = mark * kMarkBytes; at < offset;) {
        buffer.resize(std::min(kBufferBytes, offset - at));
        if (!file_.ReadAt(at, std::as_writable_bytes(std::span(buffer))).ok()) break;
        lines += static_cast<uint64_t>(std::ranges::count(buffer, line_end_));
        at += buffer.size();
    }
    return lines + 1;
}

}  // namespace weft::train
