#include "train/settings.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <vector>

#include "base/log.h"

namespace weft::train {
namespace {

using model_files::hf::Json;

struct Setting {
    const char *name, *flag;  // in TrainJobToJson and the manifest; on the command line
};
constexpr Setting kOptimizer[] = {{"optimizer", "--optimizer"}};
constexpr Setting kAdapters[] = {{"lora_rank", "--lora"},
                                 {"lora_alpha", "--lora-alpha"},
                                 {"lora_targets", "--lora-targets"},
                                 {"lora_rslora", "--rslora"}};
constexpr Setting kCurve[] = {{"dtype", "--dtype"},
                              {"grad_dtype", "--grad-dtype"},
                              {"rate", "--lr"},
                              {"schedule", "--schedule"},
                              {"weight_decay", "--weight-decay"},
                              {"beta1", "--betas (the first)"},
                              {"beta2", "--betas (the second)"},
                              {"eps", "--eps"},
                              {"momentum", "--momentum"},
                              {"nesterov", "--nesterov"},
                              {"dampening", "the optimizer's dampening"},
                              {"eps_square", "the optimizer's eps[0]"},
                              {"eps_scale", "the optimizer's eps[1]"},
                              {"clip_threshold", "the optimizer's clip_threshold"},
                              {"decay_rate", "the optimizer's decay_rate"},
                              {"scale_parameter", "--scale-parameter"},
                              {"relative_step", "--relative-step"},
                              {"ema", "--ema"},
                              {"average_last", "--average-last"},
                              {"muon_adam_size", "--muon-adjust-lr match_rms_adamw"},
                              {"clip", "--clip"},
                              {"router_aux_loss", "--router-aux-loss"},
                              {"drop_last", "dataloader_drop_last"},
                              {"loss", "--loss"},
                              {"ref_model", "--ref-model"},
                              {"beta", "--beta"},
                              {"label_smoothing", "--label-smoothing"},
                              {"z_loss", "--z-loss"},
                              {"neftune_alpha", "--neftune-alpha"},
                              {"simpo_gamma", "--simpo-gamma"},
                              {"desirable_weight", "--desirable-weight"},
                              {"undesirable_weight", "--undesirable-weight"},
                              {"center_rewards", "--center-rewards-coefficient"},
                              {"contrastive_scale", "--contrastive-scale"},
                              {"pooling", "--pooling"},
                              {"labels", "--num-labels"},
                              {"group", "--group"},
                              {"completion_tokens", "--max-completion-length"},
                              {"temperature", "--temperature"},
                              {"top_p", "--top-p"},
                              {"top_k", "--top-k"},
                              {"kl_beta", "--beta"},
                              {"epsilon", "--epsilon"},
                              {"epsilon_high", "--epsilon-high"},
                              {"iterations", "--num-iterations"},
                              {"loss_type", "--loss-type"},
                              {"scale_rewards", "--scale-rewards"},
                              {"importance_level", "--importance-sampling-level"},
                              {"mask_truncated", "--mask-truncated-completions"},
                              {"reward_commands", "--reward-cmd"},
                              {"reward_regexes", "--reward-regex"},
                              {"reward_schemas", "--reward-json-schema"},
                              {"reward_models", "--reward-model"},
                              {"reward_weights", "--reward-weights"},
                              {"batch", "sequences an update"}};
// Settings that change the loss of an evaluation.
constexpr Setting kLoss[] = {{"loss", "--loss"}};
constexpr Setting kLossTerms[] = {{"ref_model", "--ref-model"},
                                  {"beta", "--beta"},
                                  {"label_smoothing", "--label-smoothing"},
                                  {"simpo_gamma", "--simpo-gamma"},
                                  {"desirable_weight", "--desirable-weight"},
                                  {"undesirable_weight", "--undesirable-weight"},
                                  {"center_rewards", "--center-rewards-coefficient"},
                                  {"contrastive_scale", "--contrastive-scale"},
                                  {"pooling", "--pooling"}};
// Settings of a schedule that is not constant.
constexpr Setting kSchedule[] = {
    {"warmup_steps", "--warmup-steps"}, {"total_steps", "--schedule-steps"},
    {"rate_end", "--min-lr"},           {"warmup_min", "warmup_min_lr"},
    {"log_warmup", "warmup_type log"},  {"decay_steps", "--decay-steps"},
    {"decay_type", "--decay-type"}};

std::string ValueText(const Json& value) {
    if (value.is_boolean()) return value.get<bool>() ? "on" : "off";
    if (value.empty() || value == "") return "none";
    return value.is_string() ? value.get<std::string>() : value.dump();
}

// A setting that both sides have, with different values.
struct Changed {
    std::string flag, was, is;
};

class Comparison {
  public:
    Comparison(const Json& was, const Json& is) : was_(was), is_(is) {}

    void Look(std::span<const Setting> settings, std::vector<Changed>& found) const {
        for (const Setting& setting : settings) {
            const auto was = was_.find(setting.name), is = is_.find(setting.name);
            if (was == was_.end() || is == is_.end() || *was == *is) continue;
            found.push_back({setting.flag, ValueText(*was), ValueText(*is)});
        }
    }

    // An adapter that is continued brings its own rank, alpha and targets.
    void LookAtAdapters(std::vector<Changed>& found) const {
        if (!was_.contains("lora_rank")) return;
        const auto from = [](const Json& job) { return job.value("lora_from", "") != ""; };
        const auto on = [&](const Json& job) { return from(job) || job.value("lora_rank", 0) > 0; };
        if (on(was_) != on(is_)) {
            const auto text = [&](const Json& job) {
                if (from(job)) return std::string("an adapter");
                return on(job) ? "--lora " + ValueText(job.at("lora_rank")) : std::string("none");
            };
            found.push_back({"adapters:", text(was_), text(is_)});
        } else if (on(is_) && !from(was_) && !from(is_)) {
            Look(kAdapters, found);
        }
    }

  private:
    const Json& was_;
    const Json& is_;
};

std::string ListText(const std::vector<Changed>& found, bool was) {
    std::vector<std::string> words;
    for (const Changed& one : found) words.push_back(one.flag + " " + (was ? one.was : one.is));
    return fmt::format("{}", fmt::join(words, ", "));
}

// Both optimizers are AdamW with the same two moments, so each can continue from the other.
bool IsAdamW(const Json& settings) {
    const std::string name = settings.value("optimizer", "");
    return name == "adamw" || name == "adam8bit";
}

}  // namespace

Json SettingsOf(const TrainJob& job, int64_t batch) {
    const Json all = Json::parse(TrainJobToJson(job), nullptr, false);
    Json settings = {{"batch", batch}, {"lora_from", all.value("lora_from", "")}};
    for (const std::span<const Setting> some :
         {std::span<const Setting>(kOptimizer), std::span<const Setting>(kAdapters),
          std::span<const Setting>(kCurve), std::span<const Setting>(kSchedule)}) {
        for (const Setting& setting : some) {
            if (const auto at = all.find(setting.name); at != all.end()) settings[at.key()] = *at;
        }
    }
    settings["dtype"] = FlagOf(job.trainer.dtype);
    // (The meaning of "auto" depends on the replicas.)
    const int64_t replicas =
        batch / std::max<int64_t>(1, job.trainer.micro_batch * job.trainer.accumulation);
    settings["grad_dtype"] = FlagOf(GradientTypeOf(job.trainer, replicas));
    return settings;
}

Status CompareSettings(const Json& state, const TrainJob& job, int64_t batch,
                       const std::string& checkpoint, bool says) {
    Json was = state.value("settings", Json::object());
    if (!was.is_object()) was = Json::object();
    if (const auto named = state.find("optimizer"); named != state.end()) was["optimizer"] = *named;
    const Json is = SettingsOf(job, batch);
    const Comparison comparison(was, is);
    std::vector<Changed> fixed, curve;
    try {
        const bool same_state = IsAdamW(was) && IsAdamW(is);
        comparison.Look(kOptimizer, same_state ? curve : fixed);
        comparison.LookAtAdapters(fixed);
        comparison.Look(kCurve, curve);
        const bool constant = is.at("schedule") == "constant" && is.at("warmup_steps") == 0;
        if (!constant) comparison.Look(kSchedule, curve);
    } catch (const Json::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "{}: its settings: {}", checkpoint, error.what());
    }
    if (!fixed.empty()) {
        return MakeError(
            ErrorCode::kUsage,
            "{} was written with {}, and this command has {}. Use the checkpoint's values to "
            "continue from it; or omit --resume and start over in another --output-dir",
            checkpoint, ListText(fixed, true), ListText(fixed, false));
    }
    if (!curve.empty() && says) {
        Log(LogLevel::kWarning,
            "{} was written with {}, and training goes on with {}. Use the checkpoint's values to "
            "keep its curve",
            checkpoint, ListText(curve, true), ListText(curve, false));
    }
    return {};
}

bool IsSameLoss(const Json& state, const TrainJob& job) {
    const auto was = state.find("settings");
    if (was == state.end() || !was->is_object()) return true;
    const Json is = SettingsOf(job, 0);
    const Comparison comparison(*was, is);
    std::vector<Changed> found;
    comparison.Look(kLoss, found);
    // (An evaluation of tokens has the cross-entropy without other terms.)
    if (!IsSupervised(job.trainer)) comparison.Look(kLossTerms, found);
    return found.empty();
}

Status CheckGoesOn(const Checkpoint& checkpoint, const TrainJob& job, int64_t batch, int64_t steps,
                   const Cursor& at, bool says) {
    const int64_t done = checkpoint.manifest().step;
    const auto epochs = static_cast<uint64_t>(job.epochs);
    const bool past = at.epoch > epochs || (at.epoch == epochs && (at.index > 0 || at.given > 0));
    if (job.steps == 0 && past) {
        return MakeError(ErrorCode::kUsage,
                         "{} is in epoch {}, and --epochs {} ends before it: use a larger "
                         "--epochs to continue",
                         checkpoint.folder(), at.epoch + 1, job.epochs);
    }
    if (done > steps) {
        return MakeError(ErrorCode::kUsage,
                         "{} is at step {}, and --steps {} ends before it: --steps {} writes "
                         "its result, a larger number continues",
                         checkpoint.folder(), done, steps, done);
    }
    if (done == steps && says) {
        Log(LogLevel::kInfo,
            "{} is at step {} of {}: nothing is left to train, and the result is written from "
            "it. Larger --steps or --epochs continue",
            checkpoint.folder(), done, steps);
    }
    return CompareSettings(checkpoint.manifest().state, job, batch, checkpoint.folder(),
                           says && done < steps);
}

void NoteProgress(const TrainerProgress& progress, const UpdateOptions& update, Json& state) {
    state["updates"] = progress.updates;
    if (const char* average = AverageKind(update); average != nullptr) {
        state["average"] = {{average, progress.averaged}};
    }
    if (update.kind == UpdateKind::kScheduleFree) {
        state["schedule_free"] = {progress.most_rate, progress.squared_rates};
    }
    if (const auto& scale = progress.loss_scale) {
        state["loss_scale"] = {scale->scale, scale->steps, scale->hysteresis};
    }
}

Result<TrainerProgress> ProgressOf(const Checkpoint& checkpoint, const UpdateOptions& update) {
    const Manifest& manifest = checkpoint.manifest();
    const std::string& folder = checkpoint.folder();
    const Json& state = manifest.state;
    TrainerProgress progress;
    try {
        progress.updates = state.value("updates", manifest.step);
        progress.skipped = manifest.step - progress.updates;
        const auto average = state.find("average");
        const char* const kind = AverageKind(update);
        if (average != state.end() && kind != nullptr) {
            progress.averaged = average->value(kind, int64_t{0});
        }
        if (const auto rates = state.find("schedule_free"); rates != state.end()) {
            progress.most_rate = rates->at(0).get<double>();
            progress.squared_rates = rates->at(1).get<double>();
        }
        if (const auto scale = state.find("loss_scale"); scale != state.end()) {
            progress.loss_scale =
                LossScaleState{scale->at(0).get<double>(), scale->at(1).get<int64_t>(),
                               scale->at(2).get<int64_t>()};
        }
    } catch (const std::exception& error) {
        return MakeError(ErrorCode::kCorrupt, "{}: its state: {}", folder, error.what());
    }
    if (progress.updates >= 0 && progress.skipped >= 0 && progress.averaged >= 0) return progress;
    return MakeError(ErrorCode::kCorrupt, "{}: its state: {} updates in {} steps", folder,
                     progress.updates, manifest.step);
}

}  // namespace weft::train
