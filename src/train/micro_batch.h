// A micro-batch as a step of the training Program: rows of several sequences, without padding.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "base/result.h"
#include "train/data/loader.h"

namespace weft::train {

class MicroBatch {
  public:
    // Each sample attends only to itself. If no target is left for this rank, one row with weight
    // zero stands in, because all ranks must run the same collectives.
    // vocab: rows of the embedding; model: its name. Errors: kUsage (tokens beyond the vocabulary).
    Status Fill(std::span<const Sequence> sequences, int64_t vocab, const std::string& model);

    bool empty() const { return empty_; }
    int64_t targets() const { return empty_ ? 0 : static_cast<int64_t>(targets_.size()); }
    int64_t positions() const { return empty_ ? 0 : static_cast<int64_t>(tokens_.size()); }
    // The views point into this object.
    backend::Step Step(int64_t number, float loss_gradient) const;

  private:
    bool empty_ = true;
    std::vector<int32_t> tokens_, positions_, output_rows_, targets_;
    std::vector<backend::StepSequence> sequences_;
};

}  // namespace weft::train
