#include "train/evaluate.h"

#include <cmath>

namespace weft::train {

namespace {

// Adds the means of a batch to the means of all batches, whose targets include the batch's.
void AddMeans(const std::vector<double>& batch, int64_t targets, Evaluation& all) {
    all.values.resize(batch.size(), 0);
    const double share = static_cast<double>(targets) / static_cast<double>(all.targets);
    for (size_t i = 0; i < batch.size(); ++i) {
        double& mean = all.values[i];
        mean += share * (batch[i] - mean);
    }
}

}  // namespace

Result<Evaluation> EvaluateAll(Trainer& trainer, Loader loader) {
    Evaluation all;
    double sum = 0;
    while (true) {
        WEFT_ASSIGN(const auto batch, loader.Next());
        if (!batch) break;
        if (batch->global_targets == 0) continue;
        WEFT_ASSIGN(const StepReport report, trainer.Evaluate(*batch));
        sum += report.loss * static_cast<double>(report.targets);
        all.targets += report.targets;
        AddMeans(report.values, report.targets, all);
        all.stopped = report.stop_requests > 0;
        if (all.stopped) return all;
    }
    all.loss = sum / static_cast<double>(all.targets);
    if (std::isfinite(all.loss)) return all;
    return MakeError(
        ErrorCode::kCorrupt,
        "the loss over the {} targets of the test part is {}: training has diverged "
        "(use a lower --lr or a longer warm-up), or the model has no finite loss for a "
        "record of the test part",
        all.targets, all.loss);
}

}  // namespace weft::train
