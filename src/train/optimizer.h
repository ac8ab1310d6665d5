// The optimizer over all ranks: sums gradients, measures and clips their norm, has each rank's own
// part of the weights updated (train/update), and brings the new weights to those who read them.
#pragma once

#include <cstdint>

#include "backend/training.h"
#include "base/result.h"
#include "train/parallel/groups.h"
#include "train/state.h"
#include "train/update/rule.h"

namespace weft::train {

class Optimizer {
  public:
    // All outlive it.
    Optimizer(backend::TrainingExecutable& training, TrainState& state, TrainGroups& groups,
              UpdateRule& rule)
        : training_(training), state_(state), groups_(groups), rule_(rule) {}

    // Updates made so far.
    int64_t steps() const { return steps_; }
    void set_steps(int64_t steps) { steps_ = steps; }

    // Sums over the data group what a step's passes have not summed, and between the two stages
    // that share a tensor. Then each rank's own part is that of the whole batch.
    Status ReduceGradients();
    // Sum of squares over the whole model, the same on all ranks and for any number of threads.
    Result<double> SumSquares();
    // One update with gradients times `gradient_scale`; then every rank has the new weights.
    Status Update(double learning_rate, double gradient_scale);

  private:
    Status ReduceUnit(const program::Unit& unit);
    Status JoinTied(const program::Unit& unit);
    Status Publish(const program::Unit& unit);

    backend::TrainingExecutable& training_;
    TrainState& state_;
    TrainGroups& groups_;
    UpdateRule& rule_;
    int64_t steps_ = 0;
};

}  // namespace weft::train
