#include "train/parallel/layout.h"

#include <algorithm>

namespace weft::train {

std::vector<int> TrainLayout::TensorGroup() const {
    std::vector<int> group;
    for (int t = 0; t < tp(); ++t) group.push_back(RankOf(stage, replica, t));
    return group;
}

std::vector<int> TrainLayout::DataGroup() const {
    std::vector<int> group;
    for (int d = 0; d < dp; ++d) group.push_back(RankOf(stage, d, tensor_rank));
    return group;
}

Result<TrainLayout> MakeTrainLayout(int ranks, int rank, int tp, int pp, int dp,
                                    const std::vector<double>& split, int ep) {
    const int t = tp == 0 ? std::max(ep, 1) : tp, p = pp == 0 ? 1 : pp;
    const bool sensible = t > 0 && p > 0 && dp >= 0 && t <= ranks && p <= ranks && dp <= ranks;
    const int64_t model_ranks = int64_t{t} * p;
    const int64_t replicas = sensible && dp == 0 ? ranks / model_ranks : dp;
    if (!sensible || replicas < 1 || model_ranks * replicas != ranks) {
        return MakeError(ErrorCode::kUsage,
                         "--tp {} x --pp {} x --dp {}: expected the number of ranks, {}, as their "
                         "product{}",
                         t, p, dp == 0 ? "(what is left)" : std::to_string(dp), ranks,
                         dp == 0 ? fmt::format("; {} does not divide it", model_ranks) : "");
    }
    TrainLayout layout;
    WEFT_ASSIGN(layout.model, model::MakeLayout(static_cast<int>(model_ranks), t, p, split, ep));
    layout.dp = static_cast<int>(replicas);
    layout.rank = rank;
    layout.tensor_rank = rank % t;
    layout.replica = rank / t % layout.dp;
    layout.stage = rank / t / layout.dp;
    return layout;
}

}  // namespace weft::train
