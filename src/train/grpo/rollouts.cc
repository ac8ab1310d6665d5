#include "train/grpo/rollouts.h"

#include <algorithm>
#include <cmath>

#include "base/deadline.h"
#include "base/log.h"
#include "base/printable.h"
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

namespace {

// The error of a job that ends.
Status EndOf(cluster::Cluster& cluster) {
    const net::PeerMonitor* const monitor = cluster.monitor();
    if (monitor != nullptr && monitor->Failed()) return monitor->Failure();
    if (!cluster.stop_requested()) return {};
    return MakeError(ErrorCode::kCancelled, "stopped by the user");
}

}  // namespace

Result<Rollouts> Rollouts::Make(const GrpoOptions& options, const OpenedData& data,
                                cluster::Cluster& cluster) {
    Rollouts rollouts(options, data, cluster);
    if (cluster.rank() != 0) return rollouts;
    WEFT_ASSIGN(rollouts.rewards_, Rewards::Make(options, [&cluster] { return EndOf(cluster); }));
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
    no_rewards_ = false;
    std::vector<chat::OrderedJson> records;
    std::vector<Judged> judged;
    if (rewards_ || !options_.models.empty()) {
        WEFT_ASSIGN(records, RecordsOf(prompts));
        for (size_t i = 0; i < completions.size(); ++i) {
            judged.push_back({&records[i / static_cast<size_t>(options_.group)],
                              data_.tokenizer->Decode(completions[i].tokens),
                              completions[i].tokens});
        }
    }
    const auto of_models = trainer.ScoreByModels(judged);
    if (!of_models.ok()) {  // (A reward that is not finite is one on all ranks.)
        no_rewards_ = of_models.error().code == ErrorCode::kCorrupt;
        return of_models.error();
    }
    // 1 if rank 0 has the rewards; the reward of each completion; the mean of each kind of reward.
    std::vector<double> numbers(1 + completions.size() + options_.rewards());
    const auto rewards = std::span(numbers).subspan(1, completions.size());
    const auto means = std::span(numbers).subspan(1 + completions.size());
    const Status scored =
        rewards_ ? ScoreOnFirst(trainer, judged, *of_models, rewards, means) : Status();
    if (!scored.ok()) WEFT_TRY(EndOf(cluster_));
    numbers[0] = scored.ok() ? 1 : 0;
    WEFT_TRY(trainer.ShareFromFirst(std::as_writable_bytes(std::span(numbers))));
    if (numbers[0] == 0) return FaultOfFirst(scored);
    return Judgement{{rewards.begin(), rewards.end()}, {means.begin(), means.end()}};
}

// The fault of rank 0's judges, on all ranks: the first of them to report it ends the job. (No rank
// is lost, also if a judge took too long.)
Error Rollouts::FaultOfFirst(const Status& scored) {
    const auto said = cluster_.AllGather("rewards", scored.ok() ? "" : scored.error().message,
                                         Deadline::In(kAgreeMs));
    if (!said.ok()) return said.error();
    no_rewards_ = true;
    return {ErrorCode::kIo, said->front()};
}

Result<std::vector<chat::OrderedJson>> Rollouts::RecordsOf(const Batch& prompts) const {
    std::vector<chat::OrderedJson> records;
    for (const Sequence& each : prompts.sequences) {
        if (each.begins.empty()) continue;
        WEFT_ASSIGN(chat::OrderedJson record, data_.set->ReadJson(Part::kTrain, each.record));
        records.push_back(std::move(record));
    }
    return records;
}

// The other ranks wait for as long as rewards take, which have a deadline of their own
// (--reward-timeout).
Status Rollouts::ScoreOnFirst(Trainer& trainer, std::span<const Judged> judged,
                              std::span<const std::vector<double>> of_models,
                              std::span<double> rewards, std::span<double> means) {
    const WorkScope judges(cluster_, trainer.executable(), NowNs);
    WEFT_ASSIGN(auto values, rewards_->Score(judged));
    values.insert(values.end(), of_models.begin(), of_models.end());
    std::ranges::copy(rewards_->SumsOf(values), rewards.begin());
    for (size_t i = 0; i < values.size(); ++i) means[i] = MeanOf(values[i]).mean;
    for (const double reward : rewards) {
        if (!(std::abs(reward) > kMostReward)) continue;
        return MakeError(ErrorCode::kCorrupt,
                         "the weighted rewards of a completion sum up to {:g}; expected at most "
                         "{:g}, the largest float32. Use smaller --reward-weights",
                         reward, kMostReward);
    }
    WarnOfUnrewarded(judged, rewards);
    return {};
}

// Warns if more completions of an update lack a reward than ever before.
void Rollouts::WarnOfUnrewarded(std::span<const Judged> judged, std::span<const double> rewards) {
    const auto lacks = [](double reward) { return std::isnan(reward); };
    const auto count = std::ranges::count_if(rewards, lacks);
    if (count <= most_unrewarded_) return;
    most_unrewarded_ = count;
    const auto first = std::ranges::find_if(rewards, lacks) - rewards.begin();
    constexpr size_t kShownBytes = 200;
    const std::string_view text = judged[static_cast<size_t>(first)].text;
    Log(LogLevel::kWarning,
        "{} of {} completions of an update got no reward: each judge gave null. Nothing is learned "
        "from such completions. The first one: '{}'",
        count, rewards.size(), Printable(text.substr(0, kShownBytes)));
}

}  // namespace weft::train
