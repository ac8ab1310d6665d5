#include "train/data/record_file.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/hash.h"
#include "train/data/random.h"

namespace weft::train {
namespace {

constexpr uint64_t kBufferBytes = 1 << 20;
constexpr uint64_t kMarkBytes = 16 << 20;
constexpr int kSizeBits = 24;
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";
constexpr std::string_view kBlanks = " \t\n\r";

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

// What a record's bytes hash to, byte by byte (FNV-1a).
class Hash {
  public:
    void Add(char c) { value_ = (value_ ^ static_cast<unsigned char>(c)) * 0x100000001b3ull; }
    // A number from 0 to below 1.
    double Part(uint64_t seed) const { return UnitOf(Mix(value_ ^ Mix(seed))); }

  private:
    uint64_t value_ = 0xcbf29ce484222325ull;
};

Status RefuseOtherFormats(const File& file, std::string_view head) {
    const auto named = [&](std::string_view what) {
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {}; expected JSON lines or a JSON array, uncompressed", file.path(),
                         what);
    };
    if (head.starts_with("\x1f\x8b")) return named("a gzip file");
    if (head.starts_with("\x28\xb5\x2f\xfd")) return named("a zstd file");
    if (head.starts_with("PAR1")) return named("a Parquet file");
    if (head.starts_with("PK\x03\x04")) return named("a zip file");
    if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) return named("UTF-16 text");
    return {};
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
            const size_t next = text.find_first_not_of(kBlanks, i);
            if (next == text.npos || text[next] != '{') return true;
            return open.back() == '{' ? last == ':' : last == '[' || last == ',';
        }
        if (!IsBlank(c)) last = c;
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

}  // namespace

// One pass over the file. Bytes come in order, with their offsets.
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
            if (begin % kMarkBytes == 0) out_.lines_at_marks_.push_back(lines);
            size_t skipped = 0;
            if (begin == 0) {
                WEFT_TRY(ChooseForm(text));
                skipped = text.starts_with(kUtf8Mark) ? kUtf8Mark.size() : 0;
            }
            lines += static_cast<uint64_t>(std::ranges::count(text, '\n'));
            if (out_.form_ == RecordFile::Form::kLines) {
                ScanLines(text.substr(skipped), begin + skipped);
            } else {
                WEFT_TRY(ScanFrame(text.substr(skipped), begin + skipped));
            }
        }
        if (out_.form_ == RecordFile::Form::kLines) {
            EndRecord();
        } else if (!ended_) {
            return Broken(out_.size_bytes(),
                          "the file ends before the records do; is it complete?");
        }
        out_.train_.shrink_to_fit();
        out_.test_.shrink_to_fit();
        if (found_ == 0) {
            return MakeError(ErrorCode::kCorrupt, "{}: no records in {} bytes", out_.path(),
                             out_.size_bytes());
        }
        return {};
    }

  private:
    Status ChooseForm(std::string_view text) {
        WEFT_TRY(RefuseOtherFormats(out_.file_, text));
        if (text.starts_with(kUtf8Mark)) text.remove_prefix(kUtf8Mark.size());
        const auto first = std::ranges::find_if_not(text, IsBlank);
        if (first == text.end()) return {};
        text.remove_prefix(static_cast<size_t>(first - text.begin()));
        if (text[0] == '[') out_.form_ = RecordFile::Form::kArray;
        if (text[0] == '{' && SpansLines(text)) out_.form_ = RecordFile::Form::kObject;
        return {};
    }

    void ScanLines(std::string_view text, uint64_t base) {
        for (size_t i = 0; i < text.size(); ++i) {
            if (text[i] == '\n') {
                EndRecord();
            } else if (!IsBlank(text[i])) {
                AddByte(text[i], base + i);
                if (split_.test == 0) i = LineEnd(text, i, base) - 1;
            }
        }
    }
    // Without hashes, the rest of a line is only searched for its end and its last byte.
    size_t LineEnd(std::string_view text, size_t from, uint64_t base) {
        const size_t end = std::min(text.find('\n', from), text.size());
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

    // A byte outside of strings that is no blank.
    Status FrameByte(char c, uint64_t at) {
        if (ended_) return Broken(at, "something follows the end of the records");
        const bool opens = c == '{' || c == '[';
        const bool closes = c == '}' || c == ']';
        if (depth_ == 0) {  // the frame's own bracket: ChooseForm saw it
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
            named_ = true;  // what came so far was the record's name
            inside_ = false;
            return {};
        }
        AddByte(c, at);
        in_string_ = c == '"';
        if (opens) ++depth_;
        if (closes) --depth_;
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
    bool inside_ = false;  // a record has begun
    bool named_ = false;   // a name and its colon were seen
    bool in_string_ = false, escaped_ = false, ended_ = false;
};

Result<RecordFile> RecordFile::Open(const std::string& path, const SplitOptions& split) {
    if (!(split.test >= 0 && split.test < 1)) {
        return MakeError(ErrorCode::kUsage,
                         "a test part of {} of the records; expected 0 to below 1", split.test);
    }
    WEFT_ASSIGN(File file, File::Open(path));
    if (file.size_bytes() > kMostFileBytes) {
        return MakeError(ErrorCode::kUnsupported, "{}: {} bytes; at most {} are read", path,
                         file.size_bytes(), kMostFileBytes);
    }
    RecordFile records(std::move(file));
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
    if (form_ == Form::kLines) return fmt::format("{}: line {}", path(), LineOf(offset));
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
        lines += static_cast<uint64_t>(std::ranges::count(buffer, '\n'));
        at += buffer.size();
    }
    return lines + 1;
}

}  // namespace weft::train
