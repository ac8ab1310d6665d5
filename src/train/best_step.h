// The evaluation with the lowest loss so far, and the rule by which training stops early.
#pragma once

#include <cstdint>
#include <optional>

#include "base/result.h"
#include "model_files/hf/json.h"

namespace weft::train {

struct StopRule {
    int64_t patience = 0;  // evaluations in a row without progress that end training; 0: any
    double threshold = 0;  // progress: a loss that is lower by more than this than any before
};

class BestStep {
  public:
    explicit BestStep(const StopRule& rule) : rule_(rule) {}

    // Notes the loss of an evaluation after update `step`. Returns whether it is the lowest.
    bool Note(double loss, int64_t step);
    bool ends() const { return rule_.patience > 0 && since_ >= rule_.patience; }
    int64_t step() const { return step_; }  // 0: there was no evaluation
    double loss() const { return loss_; }
    int64_t since() const { return since_; }  // evaluations after the last one with progress

    // For a checkpoint. Errors: kCorrupt.
    model_files::hf::Json ToJson() const;
    Status Restore(const model_files::hf::Json& state);

  private:
    const StopRule rule_;
    double loss_ = 0;
    int64_t step_ = 0, since_ = 0;
};

}  // namespace weft::train
