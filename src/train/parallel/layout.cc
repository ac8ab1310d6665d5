#include "train/parallel/layout.h"

#include <algorithm>

namespace weft::train {
namespace {

Status CheckChunks(int stages, int chunks) {
    if (chunks < 1 || chunks > 1024) {
        return MakeError(ErrorCode::kUsage, "--virtual-stages {}: expected 1 to 1024", chunks);
    }
    if (chunks == 1 || stages > 1) return {};
    return MakeError(ErrorCode::kUsage,
                     "--virtual-stages {} with --pp 1: chunks of layers take turns on the stages "
                     "of a pipeline. Use --pp 2 or more, or leave it out",
                     chunks);
}

}  // namespace

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

std::vector<int> TrainLayout::ContextGroup() const {
    std::vector<int> group;
    for (int c = 0; c < cp; ++c) group.push_back(RankOf(stage, stream() * cp + c, tensor_rank));
    return group;
}

Result<TrainLayout> MakeTrainLayout(int ranks, int rank, const TrainLayoutOptions& words) {
    const int t = words.tp == 0 ? std::max(words.ep, 1) : words.tp;
    const int p = words.pp == 0 ? 1 : words.pp, dp = words.dp;
    const int cp = words.cp == 0 ? 1 : words.cp;
    const bool sensible = t > 0 && p > 0 && dp >= 0 && cp > 0 && t <= ranks && p <= ranks &&
                          dp <= ranks && cp <= ranks;
    const int64_t model_ranks = int64_t{t} * p, each = model_ranks * cp;
    const int64_t streams = sensible && dp == 0 ? ranks / each : dp;
    if (!sensible || streams < 1 || each * streams != ranks) {
        return MakeError(ErrorCode::kUsage,
                         "--tp {} x --pp {}{} x --dp {}: expected the number of ranks, {}, as "
                         "their product{}",
                         t, p, cp == 1 ? "" : fmt::format(" x --cp {}", cp),
                         dp == 0 ? "(what is left)" : std::to_string(dp), ranks,
                         dp == 0 ? fmt::format("; {} does not divide it", each) : "");
    }
    WEFT_TRY(CheckChunks(p, words.chunks));
    TrainLayout layout;
    WEFT_ASSIGN(layout.model,
                model::MakeLayout(static_cast<int>(model_ranks), t, p, words.split, words.ep));
    layout.model.whole_blocks = true;
    const std::vector<double> stages = layout.model.pp_shares;
    for (int c = 1; c < words.chunks; ++c) {
        layout.model.pp_shares.insert(layout.model.pp_shares.end(), stages.begin(), stages.end());
    }
    layout.model.pp *= words.chunks;
    layout.chunks = words.chunks;
    layout.cp = cp;
    layout.dp = static_cast<int>(streams * cp);
    layout.rank = rank;
    layout.tensor_rank = rank % t;
    layout.replica = rank / t % layout.dp;
    layout.stage = rank / t / layout.dp;
    return layout;
}

}  // namespace weft::train
