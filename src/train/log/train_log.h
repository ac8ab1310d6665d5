// Writes logs of a training run, with one row per update, as CSV and TensorBoard's event files.
//
// Columns are fixed at creation. CSV: a head line, then numbers in the shortest form that gives the
// same float64; not-a-number is `nan`. A resumed run continues an existing file with the same
// columns: rows from the next step on are removed, so each step occurs once; damaged rows are
// dropped (log_file.h).
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
#include "train/log/log_writer.h"

namespace weft::train {

struct TrainLogOptions {
    std::string csv = "";                               // a file; empty: none
    std::string tensorboard = "";                       // a folder; empty: none
    std::vector<std::string> columns = {"loss", "lr"};  // after the first column, "step"
    int64_t first_step = 0;  // first step of this run; existing rows from this step on are removed
};

class TrainLog final : public LogWriter {
  public:
    // Errors: kUsage: an invalid column name, or an existing file with other columns.
    static Result<TrainLog> Open(const TrainLogOptions& options);
    // The faults that Open found: files that cannot be read or written, damaged rows.
    const std::vector<std::string>& notes() const { return notes_; }
    // Number of rows that wait or were dropped.
    int64_t missing() const;
    TrainLog(TrainLog&&) noexcept = default;
    TrainLog& operator=(TrainLog&&) noexcept = default;

    // Adds the row's values and its samples.
    Status Add(const LogRow& row) override;
    // Adds a row with one value per column. Not-a-number is a missing value, which is not written
    // to TensorBoard. TensorBoard's tags are "train/COLUMN".
    Status Add(int64_t step, std::span<const double> values);
    // Writes a generated sample: TensorBoard's text "sample/NUMBER" with the prompt and the text
    // after it.
    Status AddSample(int64_t step, size_t number, std::string_view prompt, std::string_view text);

  private:
    explicit TrainLog(TrainLogOptions options) : options_(std::move(options)) {}

    Status GoOn(LogFile& file, int64_t first_step);
    // kept: the error of the CSV file, if any. Returns the first error.
    Status AddEvents(const std::function<Status(EventFile&)>& add, Status kept);

    TrainLogOptions options_;
    std::optional<LogFile> csv_;
    std::optional<EventFile> events_;
    std::vector<std::string> notes_;
};

}  // namespace weft::train
