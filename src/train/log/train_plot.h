// Curves of training runs as one SVG file: one panel per column, one color per run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/log/train_log.h"

namespace weft::train {

struct TrainPlotOptions {
    // Columns in this order; empty: those present of loss, eval_loss, lr, tokens_per_s, grad_norm.
    std::vector<std::string> columns = {};
    // Weight of the exponential mean: 0: no smoothing; 0.9: about the last ten values. The raw
    // values are drawn faintly behind the curve.
    double smooth = 0;
};

// kUsage: no column to plot (the message lists the columns), or smooth outside [0, 1). Draws at
// most some 2,000 points per curve: the minimum and maximum of each interval.
Result<std::string> TrainPlotSvg(std::span<const TrainSeries> runs,
                                 const TrainPlotOptions& options);

}  // namespace weft::train
