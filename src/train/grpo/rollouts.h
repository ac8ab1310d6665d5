// Rollouts: from a batch of prompts to a batch of completions to learn from. The model in training
// generates them, rank 0 and the reward models judge them, and each has an advantage relative to
// the other completions of its prompt.
//
// Completions without an effect on the weights are excluded from the passes: completions that do
// not count (mask_truncated), and without a reference model completions whose advantage is 0.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "train/data/open.h"
#include "train/grpo/rewards.h"
#include "train/trainer.h"

namespace weft::train {

// The names of Rollout::values.
std::vector<std::string> RolloutNames(const GrpoOptions& options);
// These names, and LossValueNames.
std::vector<std::string> GrpoNames(const GrpoOptions& options);

struct Rollout {
    Batch batch;  // the completions of this rank's replica
    std::vector<double> values;
    int64_t positions = 0;  // of all completions and their prompts
};

class Rollouts {
  public:
    // Rank 0 judges; a reward that takes long ends with the job. All must outlive this object.
    // Errors: those of Rewards::Make and OpenRewardModel.
    static Result<Rollouts> Make(const GrpoOptions& options, const OpenedData& data,
                                 cluster::Cluster& cluster);

    // prompts: the prompts of all ranks. seed: the seed of this batch. Collective. Errors: those of
    // Generator::Run, RewardModels::Score and Rewards::Score; kCorrupt (a token beyond the
    // tokenizer).
    Result<Rollout> Next(Trainer& trainer, const Batch& prompts, uint64_t seed);
    // Whether the last Next failed because completions could not be judged. All ranks then have an
    // error, and nothing has changed.
    bool no_rewards() const { return no_rewards_; }

  private:
    struct Judgement {
        std::vector<double> rewards, means;  // sums of each completion; means of each reward
    };
    Rollouts(const GrpoOptions& options, const OpenedData& data, cluster::Cluster& cluster)
        : options_(options), data_(data), cluster_(cluster) {}
    Result<Judgement> Judge(Trainer& trainer, const Batch& prompts,
                            std::span<const Completion> completions);
    Error FaultOfFirst(const Status& scored);
    Result<std::vector<chat::OrderedJson>> RecordsOf(const Batch& prompts) const;
    Status ScoreOnFirst(Trainer& trainer, std::span<const Judged> judged,
                        std::span<const std::vector<double>> of_models, std::span<double> rewards,
                        std::span<double> means);
    void WarnOfUnrewarded(std::span<const Judged> judged, std::span<const double> rewards);
    bool Counts(const Completion& completion) const {
        return completion.ended || !options_.mask_truncated;
    }
    Sequence SequenceOf(const std::vector<int32_t>& prompt, const Completion& completion,
                        double advantage) const;

    const GrpoOptions& options_;
    const OpenedData& data_;
    cluster::Cluster& cluster_;
    std::optional<Rewards> rewards_;
    bool no_rewards_ = false;
    int64_t most_unrewarded_ = 0;  // completions of an update without a reward
};

}  // namespace weft::train
