// The log of a run, which continues even if the log can't be written. A warning reports when a
// fault starts, and another when it ends.
//
// Thread: one caller at a time.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "train/log/train_log.h"
#include "train/sample.h"

namespace weft::train {

class LogKeeper {
  public:
    // An existing log with other columns is renamed to "log-1.csv".
    void Open(TrainLogOptions options);
    // Adds one value per column, and the generated samples.
    void Add(int64_t step, std::span<const double> values, std::span<const SampleText> samples);
    // Ends the log and reports missing rows.
    void End();

  private:
    void Note(const Status& status);

    std::optional<TrainLog> log_;
    bool faulty_ = false;
};

}  // namespace weft::train
