// The log of a run that continues despite log faults: a warning reports the start of a fault and
// its end, once each.
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
    // A log with other columns at this path is renamed to "log-1.csv".
    void Open(TrainLogOptions options);
    // One value per column, and the generated samples.
    void Add(int64_t step, std::span<const double> values, std::span<const SampleText> samples);
    // Ends the log and reports missing rows.
    void End();

  private:
    void Note(const Status& status);

    std::optional<TrainLog> log_;
    bool faulty_ = false;
};

}  // namespace weft::train
