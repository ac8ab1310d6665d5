#include "train/grpo/rollouts.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/deadline.h"
#include "train/grpo/loss.h"
#include "train/process_work.h"

namespace weft::train {

std::vector<std::string> RolloutNames(const GrpoOptions& options) {
    std::vector<std::string> names = {"reward", "reward_std", "frac_reward_zero_std",
                                      "completions/mean_length", "completions/clipped_ratio"};
    for (const std::string& name : RewardNames(options)) names.push_back(name + "/mean");
    return names;
}

std::vector<std::string> GrpoNames(const GrpoOptions& options) {
    std::vector<std::string> names = RolloutNames(options);
    for (const std::string& name : LossValueNames(options)) names.push_back(name);
    return names;
}

Result<Rollouts> Rollouts::Make(const GrpoOptions& options, const OpenedData& data,
                                cluster::Cluster& cluster) {
    Rollouts rollouts(options, data, cluster);
    if (cluster.rank() != 0) return rollouts;
    const auto ends = [&cluster]() -> Status {
        const net::PeerMonitor* const monitor = cluster.monitor();
        if (monitor != nullptr && monitor->Failed()) return monitor->Failure();
        if (!cluster.stop_requested()) return {};
        return MakeError(ErrorCode::kCancelled, "stopped by the user");
    };
    WEFT_ASSIGN(rollouts.rewards_, Rewards::Make(options, ends));
    // (Before the data are counted and a large model is loaded.)
    for (const std::string& model : options.models) WEFT_TRY(OpenRewardModel(model));
    return rollouts;
}

namespace {

// The share of groups whose rewards are all equal.
double ShareOfEqual(std::span<const double> rewards, size_t group) {
    double equal = 0;
    for (size_t begin = 0; begin < rewards.size(); begin += group) {
        equal += MeanOf(rewards.subspan(begin, group)).deviation < 1e-8 ? 1 : 0;
    }
    return equal * static_cast<double>(group) / static_cast<double>(rewards.size());
}

}  // namespace

Result<Rollout> Rollouts::Next(Trainer& trainer, const Batch& prompts, uint64_t seed) {
    std::vector<std::vector<int32_t>> tokens;
    for (const Sequence& each : prompts.sequences) {
        if (each.begins.empty()) continue;
        tokens.emplace_back(each.tokens.begin(), each.tokens.begin() + each.used);
    }
    const tokenizer::Tokenizer& tokenizer = *data_.tokenizer;
    Generator::Request request;
    request.prompts = tokens;
    request.ends = [&](int32_t token) { return tokenizer.IsEog(token); };
    request.vocab = std::min<int64_t>(tokenizer.vocab_size(), trainer.hyper().vocab);
    request.seed = seed;
    request.step = trainer.updates();
    WEFT_ASSIGN(const std::vector<Completion> completions, trainer.Generate(request));
    Rollout made;
    WEFT_ASSIGN(const Judgement judged, Judge(trainer, prompts, completions));
    const auto group = static_cast<size_t>(options_.group);
    const auto advantages = AdvantagesOf(judged.rewards, options_.group, options_.scale_rewards);
    const size_t all = completions.size();
    const TrainLayout& layout = trainer.layout();
    const auto replica = static_cast<size_t>(layout.replica),
               replicas = static_cast<size_t>(layout.dp);
    double length = 0, cut = 0;
    for (size_t i = 0; i < all; ++i) {
        length += static_cast<double>(completions[i].tokens.size());
        cut += completions[i].ended ? 0 : 1;
        const auto& prompt = tokens[i / group];
        made.positions += std::ssize(prompt) + std::ssize(completions[i].tokens) - 1;
        if (Counts(completions[i])) made.batch.global_targets += completions[i].tokens.size();
        if (i < all * replica / replicas || i >= all * (replica + 1) / replicas) continue;
        made.batch.sequences.push_back(SequenceOf(prompt, completions[i], advantages[i]));
    }
    made.batch.global_sequences = made.batch.all = all;
    made.batch.first = all * replica / replicas;
    const MeanAndDeviation reward = MeanOf(judged.rewards);
    const auto count = static_cast<double>(all);
    made.values = {reward.mean, reward.deviation, ShareOfEqual(judged.rewards, group),
                   length / count, cut / count};
    made.values.insert(made.values.end(), judged.means.begin(), judged.means.end());
    return made;
}

Sequence Rollouts::SequenceOf(const std::vector<int32_t>& prompt, const Completion& completion,
                              double advantage) const {
    Sequence made;
    if (!Counts(completion) || (advantage == 0 && options_.beta == 0)) return made;
    made.tokens = prompt;
    made.tokens.insert(made.tokens.end(), completion.tokens.begin(), completion.tokens.end() - 1);
    made.targets.assign(prompt.size() - 1, -1);
    made.targets.insert(made.targets.end(), completion.tokens.begin(), completion.tokens.end());
    made.answers.assign(made.tokens.size(), 1);
    made.begins = {0};
    made.used = static_cast<int32_t>(made.tokens.size());
    made.roles = {SampleRole::kPrompt};
    made.reference = {0};
    made.advantage = advantage;
    return made;
}

// Reward models judge on all ranks, all else on rank 0; all ranks get the result.
Result<Rollouts::Judgement> Rollouts::Judge(Trainer& trainer, const Batch& prompts,
                                            std::span<const Completion> completions) {
    std::vector<double> numbers(completions.size() + options_.rewards());
    const auto rewards = std::span(numbers).first(completions.size());
    const auto means = std::span(numbers).subspan(completions.size());
    if (rewards_ || !options_.models.empty()) {
        WEFT_TRY(JudgeInto(trainer, prompts, completions, rewards, means));
    }
    WEFT_TRY(trainer.ShareFromFirst(std::as_writable_bytes(std::span(numbers))));
    return Judgement{{rewards.begin(), rewards.end()}, {means.begin(), means.end()}};
}

// The other ranks wait for as long as rewards take, which have a deadline of their own
// (--reward-timeout).
Result<std::vector<std::vector<double>>> Rollouts::ScoreOnFirst(Trainer& trainer,
                                                                std::span<const Judged> judged) {
    const WorkScope judges(cluster_, trainer.executable(), NowNs);
    return rewards_->Score(judged);
}

Status Rollouts::JudgeInto(Trainer& trainer, const Batch& prompts,
                           std::span<const Completion> completions, std::span<double> rewards,
                           std::span<double> means) {
    std::vector<chat::OrderedJson> records;
    for (const Sequence& each : prompts.sequences) {
        if (each.begins.empty()) continue;
        WEFT_ASSIGN(chat::OrderedJson record, data_.set->ReadJson(Part::kTrain, each.record));
        records.push_back(std::move(record));
    }
    std::vector<Judged> judged;
    for (size_t i = 0; i < completions.size(); ++i) {
        const chat::OrderedJson& record = records[i / static_cast<size_t>(options_.group)];
        judged.push_back(
            {&record, data_.tokenizer->Decode(completions[i].tokens), completions[i].tokens});
    }
    WEFT_ASSIGN(const auto of_models, trainer.ScoreByModels(judged));
    if (!rewards_) return {};
    WEFT_ASSIGN(auto values, ScoreOnFirst(trainer, judged));
    values.insert(values.end(), of_models.begin(), of_models.end());
    std::ranges::copy(rewards_->SumsOf(values), rewards.begin());
    for (size_t i = 0; i < values.size(); ++i) means[i] = MeanOf(values[i]).mean;
    return {};
}

}  // namespace weft::train
