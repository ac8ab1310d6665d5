// Logs of a training run: one row per update in CSV, JSON lines and TensorBoard's event files, and
// a reader for plots.
//
// Columns are fixed at creation. CSV: a head line, then numbers in the shortest form that gives the
// same float64; not-a-number is `nan`. JSON lines: one object per row, null for numbers that JSON
// lacks. A resumed run continues an existing file with the same columns: rows from the next step on
// are removed, so each step occurs once; damaged rows are dropped (log_file.h).
//
// A log error must not end a run: rows can be added after any error, and unwritten rows are written
// with a later row if possible.
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
    std::vector<std::string> columns = {"loss", "lr"};  // besides "step", the first column
    int64_t first_step = 0;  // of this run; existing rows from this step on are removed
};

class TrainLog {
  public:
    // Errors: kUsage: an invalid column name, or an existing file with other columns.
    static Result<TrainLog> Open(const TrainLogOptions& options);
    // Findings of Open: an unreadable or unwritable file, or damaged rows.
    const std::vector<std::string>& notes() const { return notes_; }
    // Number of rows that wait or were dropped.
    int64_t missing() const;
    TrainLog(TrainLog&&) noexcept = default;
    TrainLog& operator=(TrainLog&&) noexcept = default;

    // One value per column; not-a-number for a missing value, which TensorBoard does not get.
    // TensorBoard's tags are "train/COLUMN".
    Status Add(int64_t step, std::span<const double> values);
    // Writes a text to TensorBoard and JSON lines ({"step", "name", "text"}).
    Status AddText(int64_t step, std::string_view name, std::string_view text);
    // Writes a generated sample: TensorBoard's text "sample/NUMBER" with the prompt and the text
    // after it, and {"step", "sample": {"prompt", "text"}}.
    Status AddSample(int64_t step, size_t number, std::string_view prompt, std::string_view text);

  private:
    explicit TrainLog(TrainLogOptions options) : options_(std::move(options)) {}

    Status GoOn(LogFile& file, int64_t first_step);
    // kept: the error so far. Returns the first error.
    Status AddTo(std::optional<LogFile>& file, const std::string& line, Status kept);
    Status AddEvents(const std::function<Status(EventFile&)>& add, Status kept);

    TrainLogOptions options_;
    std::optional<LogFile> csv_, jsonl_;
    std::optional<EventFile> events_;
    std::vector<std::string> notes_;
};

// The logged numbers: columns by step.
struct TrainSeries {
    std::string path;
    std::vector<std::string> columns;         // without "step"
    std::vector<int64_t> steps;               // ascending
    std::vector<std::vector<double>> values;  // by column; not-a-number: missing
};

// Reads CSV or JSON lines with a column "step", written by Weft or another program. Hostile input:
// at most 1 GiB, 256 columns, 10 million rows and 2^27 numbers. Ignores a last line without a line
// end. kCorrupt names file and line.
Result<TrainSeries> ReadTrainLog(const std::string& path);

}  // namespace weft::train
