// The log of a run that goes on whatever becomes of its log: faults are warnings, said once when
// they begin and once when they are over.
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
    // Another log that is in the way (other columns) is kept beside, as "log-1.csv".
    void Open(TrainLogOptions options);
    // One value a column, and what the model said.
    void Add(int64_t step, std::span<const double> values, std::span<const SampleText> samples);
    // The run is over: what is missing is said.
    void End();

  private:
    void Note(const Status& status);

    std::optional<TrainLog> log_;
    bool faulty_ = false;
};

}  // namespace weft::train
