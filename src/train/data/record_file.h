// The records of a training file, found in one pass over it, then read one by one in any order.
//
// Six forms. Names that end in .csv, .tsv, .txt, .text or .md say which (behind .gz and its like);
// else the begin of the file says it (white space and a UTF-8 mark in front are fine):
//   lines    one JSON value a line (JSONL); blank lines count for line numbers only
//   array    [ record, record, ... ] in any layout
//   object   { "name": record, ... }, the only object of the file and all its members objects, as
//            PubMedQA comes; the names are dropped
//   stream   records one behind the other in any layout, as jq prints them; a single one, too
//   table    CSV or TSV (table.h), told by the name, or by a column that a record can have
//   text     paragraphs, with blank lines between them; lines, if there are no blank lines
// Lines end with \n, \r\n, or (the first line end of a table, the only ones of other files) \r.
// A compressed file is unpacked first (unpack.h). Records are cut out here, not parsed: a broken
// one is an error when it is parsed (record.h), and only a broken frame (text between records, an
// array that does not end, a quote that does not end) is one here.
//
// Memory: 8 bytes a record, a buffer of a mebibyte and 8 bytes for each 16 MiB of the file,
// whatever the records' sizes. Limits: files below 1 TiB, records below 16 MiB.
//
// The split into training and test records is by content: a hash of the record's bytes (blanks left
// out) and the seed decides, so that adding, removing or reordering records moves no other, equal
// records are on the same side, and the share is met in the mean.
//
// Errors: kCorrupt or kUnsupported name the file and the byte; those of File.
// Thread: Open by one; a RecordFile never changes, so that Read may run on any number.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "base/result.h"
#include "train/data/record_form.h"

namespace weft::train {

enum class Part { kTrain, kTest };

struct SplitOptions {
    double test = 0;  // the test part's share, 0 to below 1
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
    // Of a table: its columns, in lower case, and what separates them.
    const std::vector<std::string>& columns() const { return columns_; }
    char delimiter() const { return delimiter_; }
    uint64_t size_bytes() const { return file_.size_bytes(); }  // unpacked
    // Of all bytes, whatever the file is called (base/hash.h, Checksum64).
    uint64_t checksum() const { return checksum_; }
    uint64_t size(Part part) const { return List(part).size(); }
    // Records that are too long to be read; they are in no part.
    uint64_t oversized() const { return oversized_; }
    // The place of the first of them.
    const std::string& first_oversized() const { return first_oversized_; }

    // The record's text, in `buffer`. Precondition: index < size(part).
    Result<std::string_view> Read(Part part, uint64_t index, std::string& buffer) const;

    // "data.jsonl: line 312", "data.json: record 17 (byte 40213)", counted from 1. Slow: for
    // errors.
    std::string Where(Part part, uint64_t index) const;

  private:
    friend class RecordScanner;
    RecordFile(std::string path, File file) : path_(std::move(path)), file_(std::move(file)) {}
    const std::vector<uint64_t>& List(Part part) const {
        return part == Part::kTrain ? train_ : test_;
    }
    std::string WhereByte(uint64_t offset) const;
    uint64_t LineOf(uint64_t offset) const;

    std::string path_;
    File file_;
    Form form_ = Form::kLines;
    std::vector<std::string> columns_;
    char delimiter_ = ',', line_end_ = '\n';
    uint64_t checksum_ = 0;
    uint64_t oversized_ = 0;
    std::string first_oversized_;
    std::vector<uint64_t> train_, test_;    // 40 bits of offset, 24 of size
    std::vector<uint64_t> lines_at_marks_;  // line ends before byte i * 16 MiB
};

}  // namespace weft::train
