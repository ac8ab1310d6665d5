// The records of a training file. Open reads the file once to find them; then they can be read in
// any order.
//
// Six forms. The extensions .csv, .tsv, .txt, .text and .md (before .gz and similar) choose one;
// otherwise the start of the file does (after optional white space and a UTF-8 mark):
//   lines    one JSON value a line (JSONL); blank lines count for line numbers only
//   array    [ record, record, ... ] in any layout
//   object   { "name": record, ... }, the only object of the file, with only objects as members, as
//            in PubMedQA; the names are dropped
//   stream   records one after another in any layout, as jq prints them; also a single record
//   table    CSV or TSV (table.h), by its extension, or by a column that a record can have
//   text     paragraphs separated by blank lines, if the start of the file (a MiB) has a blank line
//            per 50 other lines; else lines
// Lines end with \n, \r\n, or \r (in a table whose first line ends with it, and in other files
// without another line end). A compressed file is unpacked first (unpack.h). This class finds
// records but does not parse them. An error in a record shows when the record is parsed (record.h).
// Open reports only errors between records, and an array or a quote that does not end.
//
// Memory: 8 bytes per record, 8 bytes per 64 KiB of the file, and a buffer of a MiB. Limits: files
// below 1 TiB, records below 16 MiB.
//
// The content decides whether a record is for training or test: a hash of the record's bytes
// (without blanks) and the seed. So adding, removing or reordering records moves no other record,
// equal records are in the same part, and the share of the test part is right on average.
//
// Errors: kCorrupt and kUnsupported, with the file and the byte in the message; those of File.
// Thread: one thread calls Open; a RecordFile is immutable, so Read may run on any number of
// threads.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "train/data/record_form.h"
#include "train/data/unpack.h"

namespace weft::train {

enum class Part { kTrain, kTest };

struct SplitOptions {
    double test = 0;  // share of the test part, 0 to below 1
    uint64_t seed = 0;
};

class RecordFile {
  public:
    using Form = RecordForm;
    static constexpr uint64_t kMostRecordBytes = (1u << 24) - 1;
    static constexpr uint64_t kMostFileBytes = (1ull << 40) - 1;

    static Result<RecordFile> Open(const std::string& path, const SplitOptions& split = {});

    const std::string& path() const { return path_; }
    Form form() const { return form_; }
    // For a table: its columns, in lower case, and its delimiter.
    const std::vector<std::string>& columns() const { return columns_; }
    char delimiter() const { return delimiter_; }
    bool paragraphs() const { return paragraphs_; }             // of a text; else lines
    uint64_t size_bytes() const { return file_.size_bytes(); }  // unpacked
    // Checksum of all bytes, regardless of the file's name (base/hash.h, Checksum64).
    uint64_t checksum() const { return checksum_; }
    uint64_t size(Part part) const { return List(part).size(); }
    // Number of records that are too long to read; no part contains them.
    uint64_t oversized() const { return oversized_; }
    // The place of the first such record.
    const std::string& first_oversized() const { return first_oversized_; }

    // The record's text, in `buffer`. Precondition: index < size(part).
    Result<std::string_view> Read(Part part, uint64_t index, std::string& buffer) const;

    // "data.jsonl: line 312", "data.json: record 17 (byte 40213)", counted from 1. Reads
    // up to 64 KiB: for errors.
    std::string Where(Part part, uint64_t index) const;

  private:
    friend class RecordScanner;
    RecordFile(std::string path, UnpackedFile opened)
        : path_(std::move(path)), file_(std::move(opened.file)), name_(std::move(opened.name)) {}
    const std::vector<uint64_t>& List(Part part) const {
        return part == Part::kTrain ? train_ : test_;
    }
    std::string WhereByte(uint64_t offset) const;
    uint64_t LineOf(uint64_t offset) const;

    std::string path_;
    File file_;
    UnpackedName name_;
    Form form_ = Form::kLines;
    std::vector<std::string> columns_;
    char delimiter_ = ',', line_end_ = '\n';
    bool paragraphs_ = false;
    uint64_t checksum_ = 0;
    uint64_t oversized_ = 0;
    std::string first_oversized_;
    std::vector<uint64_t> train_, test_;    // 40 bits of offset, 24 of size
    std::vector<uint64_t> lines_at_marks_;  // line ends before byte i * 64 KiB
};

}  // namespace weft::train
