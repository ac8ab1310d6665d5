// Writes logs of a training run, with one row per update, as CSV, JSON lines and TensorBoard's
// event files. Also reads logs, for plots.
//
// Columns are fixed at creation. CSV: a head line, then numbers in the shortest form that gives the
// same float64; not-a-number is `nan`. JSON lines: one object per row, null for numbers that JSON
// lacks. A resumed run continues an existing file with the same columns: rows from the next step on
// are removed, so each step occurs once; damaged rows are dropped (log_file.h).
//
// A log error must not end a run. So rows can be added after any error, and unwritten rows are
// written with a later row if possible.
// Errors: kIo with the path. Thread: one caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "train/log/event_file.h"
#include "train/log/log_file.h"

namespace weft::train {

struct TrainLogOptions {
    std::string csv = "", jsonl = "";                   // files; empty: none
    std::string tensorboard = "";                       // a folder; empty: none
    std::vector<std::string> columns = {"loss", "lr"};  // after the first column, "step"
    int64_t first_step = 0;  // first step of this run; existing rows from this step on are removed
};

class TrainLog {
  public:
    // Errors: kUsage: an invalid column name, or an existing file with other columns.
    static Result<TrainLog> Open(const TrainLogOptions& options);
    // What Open found: files that cannot be read or written, damaged rows.
    const std::vector<std::string>& notes() const { return notes_; }
    // Number of rows that wait or were dropped.
    int64_t missing() const;
    TrainLog(TrainLog&&) noexcept = default;
    TrainLog& operator=(TrainLog&&) noexcept = default;

    // Adds a row with one value per column. Not-a-number is a missing value, which is not written
    // to TensorBoard. TensorBoard's tags are "train/COLUMN".
    Status Add(int64_t step, std::span<const double> values);
    // Writes a text to TensorBoard and JSON lines ({"step", "name", "text"}).
    Status AddText(int64_t step, std::string_view name, std::string_view text);
    // Writes a generated sample: TensorBoard's text "sample/NUMBER" with the prompt and the text
    // after it, and {"step", "sample": {"prompt", "text"}}.
    Status AddSample(int64_t step, size_t number, std::string_view prompt, std::string_view text);

  private:
    explicit TrainLog(TrainLogOptions options) : options_(std::move(options)) {}

    Status GoOn(LogFile& file, int64_t first_step);
    // kept: the first error of the calls before this one, if any. Returns the first error.
    Status AddTo(std::optional<LogFile>& file, const std::string& line, Status kept);
    Status AddEvents(const std::function<Status(EventFile&)>& add, Status kept);

    TrainLogOptions options_;
    std::optional<LogFile> csv_, jsonl_;
    std::optional<EventFile> events_;
    std::vector<std::string> notes_;
};

// A log that was read.
struct TrainSeries {
    std::string path;
    std::vector<std::string> columns;         // without "step"
    std::vector<int64_t> steps;               // ascending
    std::vector<std::vector<double>> values;  // [column][step]; not-a-number: missing
};

// Reads CSV or JSON lines with a column "step", written by Weft or another program. Hostile input:
// at most 1 GiB, 256 columns, 10 million rows and 2^27 numbers. Ignores a last line without a line
// end. Errors: kCorrupt, with file and line in the message.
Result<TrainSeries> ReadTrainLog(const std::string& path);

}  // namespace weft::train
