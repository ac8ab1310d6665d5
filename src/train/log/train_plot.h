// Plots the curves of training runs in one SVG file, with one panel per column and one color per
// run.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "train/log/train_log.h"

namespace weft::train {

struct TrainPlotOptions {
    // Columns to plot, in this order. Empty: loss, eval_loss, lr, tokens_per_s and grad_norm, as
    // far as the logs have them.
    std::vector<std::string> columns = {};
    // Weight of earlier values in the exponential moving average. 0: no smoothing; 0.9: about the
    // last ten values. The raw values are drawn faintly behind the curve.
    double smooth = 0;
};

// Draws at most about 2,000 points per curve: the minimum and maximum of each interval. Errors:
// kUsage: there is no column to plot (the message lists the columns), or `smooth` is not in [0, 1).
Result<std::string> TrainPlotSvg(std::span<const TrainSeries> runs,
                                 const TrainPlotOptions& options);

}  // namespace weft::train
