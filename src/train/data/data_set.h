// A set of samples that can be read in any order: files of records, or random tokens.
//
// Specifications:
//   PATH                                  files of records (record_file.h, record.h), and folders
//                                         of such files (data_files.h); one or more
//   synthetic:random-tokens[:LENGTH[:COUNT]]
//                                         COUNT (65,536) samples of LENGTH (sequence + 1) random
//                                         tokens, all of them learned: measures speed without
//                                         data. The last samples are the test part (split.test).
//
// Errors of Read: kCorrupt, kUnsupported or kUsage for an invalid record (which a Loader may skip);
// any other code for a file that can't be read. The message has the place in the data.
// Thread: except for SetNow, a DataSet is immutable; Read may run on any number of threads.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/data/encoder.h"
#include "train/data/record_file.h"
#include "train/data/text_record.h"

namespace weft::train {

struct DataOptions {
    std::vector<std::string> specs;
    SplitOptions split = {};
    LossKind loss = LossKind::kTokens;  // a preference: records are preferences (preference.h)
    int64_t sequence = 1024;            // length of random samples, without the last token
    TextForm texts{};                   // of records of texts (text_record.h)
};

// Identifies the content of the samples, regardless of the files' locations.
struct DataContent {
    uint64_t records = 0, bytes = 0, checksum = 0;
};

// Whether one of the specifications is synthetic.
bool IsSynthetic(const std::vector<std::string>& specs);

class DataSet {
  public:
    // Copies the encoder. The tokenizer and the chat of the encoder must outlive the DataSet.
    static Result<std::unique_ptr<DataSet>> Open(const DataOptions& options,
                                                 const Encoder& encoder);
    virtual ~DataSet() = default;
    DataSet(const DataSet&) = delete;
    DataSet& operator=(const DataSet&) = delete;

    // Sets EncoderOptions::now_s. Precondition: no other thread uses the DataSet.
    virtual void SetNow(int64_t /*now_s*/) {}
    virtual uint64_t size(Part part) const = 0;
    // For each specification, the number of its records in the part.
    virtual std::vector<uint64_t> SizesOf(Part part) const { return {size(part)}; }
    // Precondition: index < size(part).
    virtual Result<Sample> Read(Part part, uint64_t index) const = 0;
    // A record as JSON. Precondition and errors: as for Read; kUnsupported (random tokens).
    virtual Result<chat::OrderedJson> ReadJson(Part /*part*/, uint64_t /*index*/) const {
        return MakeError(ErrorCode::kUnsupported, "{} has no records", Name());
    }
    // Texts of each record (contrastive).
    virtual int64_t texts() const { return 1; }
    // Name for messages: "data.jsonl (JSON lines)".
    virtual std::string Name() const = 0;
    // One line that names the files and their records, "2 files, 120 records: a.jsonl (JSON lines),
    // b.csv (CSV)", and the files of folders that Weft leaves out.
    virtual std::string Summary() const { return Name(); }
    // Whether Weft chose what it reads: the files of a folder, or the records of a text.
    virtual bool Chooses() const { return false; }
    virtual DataContent content() const = 0;
    // Number of records that are too long to read; no part contains them.
    virtual uint64_t oversized() const { return 0; }
    virtual std::string first_oversized() const { return ""; }
    // Returns a new note for the user about the records read so far; "": no new note.
    virtual std::string TakeNote() const { return ""; }

    // Random tokens without a tokenizer, for tests and for models without one.
    static Result<std::unique_ptr<DataSet>> RandomTokens(const DataOptions& options,
                                                         int32_t vocab_size);

  protected:
    DataSet() = default;
};

}  // namespace weft::train
