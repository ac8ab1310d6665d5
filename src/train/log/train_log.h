// Logs of a training run: one row an update, into CSV, JSON lines and TensorBoard's event files,
// and read back for plots.
//
// Columns are fixed when the log is made. CSV: a head line, then numbers in their shortest form
// that gives the same float64; not-a-number is `nan`. JSON lines: one object a row, null for
// numbers that JSON lacks. An existing file is gone on with, where its columns are the same (a
// resumed run): rows from the step that comes next on are cut off, so that a step is there once;
// damaged ones are left out (log_file.h).
//
// A log is no reason to end a run: after any error it can be added to, and what could not be
// written comes with a later row where it still can.
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
    std::vector<std::string> columns = {"loss", "lr"};  // beside "step", which comes first
    int64_t first_step = 0;                             // of this run; later rows are cut off
};

class TrainLog {
  public:
    // Errors: kUsage: a column that is no plain word, or another file's columns are others.
    static Result<TrainLog> Open(const TrainLogOptions& options);
    // What Open found: a file that can't be read or written, or that had damaged rows.
    const std::vector<std::string>& notes() const { return notes_; }
    // Rows that wait to be written, or were given up.
    int64_t missing() const;
    TrainLog(TrainLog&&) noexcept = default;
    TrainLog& operator=(TrainLog&&) noexcept = default;

    // One value a column; not-a-number, which TensorBoard doesn't get, where the row has none.
    // TensorBoard's tags are "train/COLUMN".
    Status Add(int64_t step, std::span<const double> values);
    // Into TensorBoard and JSON lines ({"step", "name", "text"}).
    Status AddText(int64_t step, std::string_view name, std::string_view text);
    // What a model said: TensorBoard's text "sample/NUMBER", the prompt and the text behind it, and
    // {"step", "sample": {"prompt", "text"}}.
    Status AddSample(int64_t step, size_t number, std::string_view prompt, std::string_view text);

  private:
    explicit TrainLog(TrainLogOptions options) : options_(std::move(options)) {}

    Status GoOn(LogFile& file, int64_t first_step);
    // kept: the first error of all.
    Status AddTo(std::optional<LogFile>& file, const std::string& line, Status kept);
    Status AddEvents(const std::function<Status(EventFile&)>& add, Status kept);

    TrainLogOptions options_;
    std::optional<LogFile> csv_, jsonl_;
    std::optional<EventFile> events_;
    std::vector<std::string> notes_;
};

// What was logged: columns of numbers by step.
struct TrainSeries {
    std::string path;
    std::vector<std::string> columns;         // without "step"
    std::vector<int64_t> steps;               // ascending
    std::vector<std::vector<double>> values;  // by column; not-a-number where a row has none
};

// A CSV file or JSON lines with a column "step", as above or of others' making. Hostile input: at
// most 1 GiB, 256 columns, 10 million rows and 2^27 numbers. A last line without its end is passed
// over. kCorrupt names file and line.
Result<TrainSeries> ReadTrainLog(const std::string& path);

}  // namespace weft::train
