// The logs of a run, which continues even if a log can't be written. A warning reports when a fault
// starts, and another line when it ends.
//
// Thread: one caller at a time.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "train/log/queued_writer.h"
#include "train/log/train_log.h"

namespace weft::train {

class LogKeeper {
  public:
    ~LogKeeper() { End(false); }
    // Opens the log files. An existing log with other columns is renamed to "log-1.csv".
    void Open(TrainLogOptions options);
    // Adds a destination that may be slow. name: its flag.
    void AddWriter(std::string name, std::unique_ptr<LogWriter> writer);
    void Add(const LogRow& row);
    // Ends the logs and reports missing rows. done: as in LogWriter. Later calls do nothing.
    void End(bool done);

  private:
    std::optional<TrainLog> log_;
    FaultNote faults_{
        ", and the model will be written; rows wait until the log can be written again",
        "the log is written again"};
    std::vector<std::unique_ptr<QueuedWriter>> queued_;
};

}  // namespace weft::train
