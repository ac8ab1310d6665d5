// Curves of training runs as one SVG file: a panel for each column, the runs in one colour each.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/log/train_log.h"

namespace weft::train {

struct TrainPlotOptions {
    // Columns, in this order; empty: loss, eval_loss, lr, tokens_per_s, grad_norm, those there are.
    std::vector<std::string> columns = {};
    // Exponential mean of a curve's values: 0: none; 0.9: the last ten or so. The values themselves
    // are drawn faintly behind it.
    double smooth = 0;
};

// kUsage: no column to plot (the message lists those there are), smooth not from 0 to below 1.
// At most some 2,000 points of a curve are drawn: the least and the highest of each piece.
Result<std::string> TrainPlotSvg(std::span<const TrainSeries> runs,
                                 const TrainPlotOptions& options);

}  // namespace weft::train
