#include "train/less_memory.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace weft::train {
namespace {

constexpr int64_t kLeastSequence = 128, kLoraRank = 16;

using Step = std::optional<Change> (*)(const TrainerOptions& from, int64_t replicas);

std::optional<Change> RecomputeFull(const TrainerOptions& from, int64_t) {
    if (from.recompute == "full" || from.recompute == "auto") return std::nullopt;
    Change change{"--recompute full", from};
    change.options.recompute = "full";
    return change;
}

std::optional<Change> OneSequenceAPass(const TrainerOptions& from, int64_t) {
    if (from.micro_batch == 1) return std::nullopt;
    Change change{"", from};
    change.options.accumulation = from.accumulation * from.micro_batch;
    change.options.micro_batch = 1;
    change.flags = fmt::format("--micro-batch 1 --grad-accum {}", change.options.accumulation);
    return change;
}

std::optional<Change> ShareAll(const TrainerOptions& from, int64_t replicas) {
    if (replicas == 1 || from.zero == 3 || from.pp > 1) return std::nullopt;
    Change change{"--zero 3", from};
    change.options.zero = 3;
    return change;
}

std::optional<Change> NarrowGradients(const TrainerOptions& from, int64_t replicas) {
    if (GradientTypeOf(from, replicas) == from.dtype) return std::nullopt;
    Change change{fmt::format("--grad-dtype {}", FlagOf(from.dtype)), from};
    change.options.grad_dtype = FlagOf(from.dtype);
    return change;
}

std::optional<Change> MomentsIn8Bits(const TrainerOptions& from, int64_t) {
    const bool adam =
        from.update.kind == UpdateKind::kAdamW || from.update.kind == UpdateKind::kAdam;
    // (A checkpoint of Adam, whose decay is in the gradient, does not continue as adam8bit.)
    const bool other = from.resumes && from.update.kind == UpdateKind::kAdam;
    if (!adam || other || from.lora.on()) return std::nullopt;
    Change change{"--optimizer adam8bit", from};
    change.options.update.kind = UpdateKind::kAdam8bit;
    return change;
}

std::optional<Change> AdaptersAlone(const TrainerOptions& from, int64_t) {
    if (from.lora.on() || from.from_scratch || from.resumes) return std::nullopt;
    Change change{fmt::format("--lora {}", kLoraRank), from};
    change.options.lora.rank = kLoraRank;
    return change;
}

std::optional<Change> HalfTheSequence(const TrainerOptions& from, int64_t) {
    const int64_t half = from.sequence / 2;
    // (A completion shares its sequence with the prompt.)
    const bool too_short = half < kLeastSequence || from.grpo.completion_tokens >= half;
    if (too_short || from.resumes) return std::nullopt;
    Change change{fmt::format("--seq-len {}", half), from};
    change.options.sequence = half;
    if (from.grpo.completion_tokens == 0) change.options.grpo.most_tokens = half / 2;
    return change;
}

constexpr Step kSteps[] = {RecomputeFull,  OneSequenceAPass, ShareAll,       NarrowGradients,
                           MomentsIn8Bits, AdaptersAlone,    HalfTheSequence};

}  // namespace

std::vector<Change> ChangesOf(const TrainerOptions& options, int64_t replicas) {
    std::vector<Change> changes;
    for (const Step step : kSteps) {
        const std::optional<Change> change = step(options, replicas);
        if (change && CheckTrainer(change->options).ok()) changes.push_back(*change);
    }
    return changes;
}

std::vector<Change> ChangesTogether(const TrainerOptions& options, int64_t replicas) {
    std::vector<Change> changes;
    Change so_far{"", options};
    const auto add = [&](Step step) {
        const std::optional<Change> change = step(so_far.options, replicas);
        if (!change || !CheckTrainer(change->options).ok()) return false;
        so_far.options = change->options;
        // (A shorter sequence replaces the previous flag.)
        const size_t same = so_far.flags.find(" --seq-len");
        if (step == HalfTheSequence) so_far.flags.resize(std::min(same, so_far.flags.size()));
        so_far.flags += (so_far.flags.empty() ? "" : " ") + change->flags;
        changes.push_back(so_far);
        return true;
    };
    for (const Step step : kSteps) add(step);
    while (add(HalfTheSequence)) {
    }
    return changes;
}

std::string AdviseLessMemory(const TrainerOptions& options, int64_t replicas,
                             const FitsWith& fits) {
    std::vector<std::string> enough;
    for (const Change& change : ChangesOf(options, replicas)) {
        if (fits(change.options)) enough.push_back(change.flags);
    }
    if (!enough.empty()) return fmt::format("It fits with {}.", fmt::join(enough, ", or with "));
    for (const Change& change : ChangesTogether(options, replicas)) {
        if (fits(change.options)) return fmt::format("It fits with {}.", change.flags);
    }
    return "No flag makes it fit here: use more hosts (--tp, --pp, --zero 3), or a smaller model.";
}

}  // namespace weft::train
