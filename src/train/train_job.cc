#include "train/train_job.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "base/field_codec.h"
#include "base/utf8.h"
#include "train/data/day.h"

namespace weft::train {
namespace {

constexpr int64_t kMostAccumulation = 1 << 20;

// Stands for the number of updates before the data are counted.
constexpr int64_t kUnknownSteps = int64_t{1} << 40;

bool IsTrainedIn(DType dtype) {
    return dtype == DType::kF32 || dtype == DType::kBF16 || dtype == DType::kF16;
}

std::optional<DType> FindTrainedType(std::string_view name) {
    const auto dtype = DTypeOfName(name);
    return dtype && IsTrainedIn(*dtype) ? dtype : std::nullopt;
}

constexpr auto kGrpoFields = [](auto& g, auto& visit) {
    visit("group", g.group);
    visit("completion_tokens", g.completion_tokens);
    visit("temperature", g.temperature);
    visit("top_p", g.top_p);
    visit("top_k", g.top_k);
    visit("slots", g.slots);
    visit("kl_beta", g.beta);
    visit("epsilon", g.epsilon);
    visit("epsilon_high", g.epsilon_high);
    visit("iterations", g.iterations);
    visit("loss_type", g.loss_type);
    visit("scale_rewards", g.scale_rewards);
    visit("importance_level", g.importance_level);
    visit("mask_truncated", g.mask_truncated);
    visit("reward_commands", g.commands);
    visit("reward_regexes", g.regexes);
    visit("reward_schemas", g.schemas);
    visit.Path("reward_models", g.models, model_files::PathOfModel);
    visit("reward_weights", g.weights);
    visit("reward_timeout", g.reward_timeout_s);
    visit("reward_workers", g.reward_workers);
};

constexpr auto kTrainerFields = [](auto& t, auto& visit) {
    visit.Path("model", t.model, model_files::PathOfModel);
    visit.Named(
        "dtype", t.dtype, [](DType dtype) { return Info(dtype).name; }, FindTrainedType);
    visit("from_scratch", t.from_scratch);
    visit("threads", t.threads);
    visit("reference", t.reference);
    visit("device", t.device);
    visit("grad_dtype", t.grad_dtype);
    visit("loss_scale", t.loss_scale.fixed);
    visit("loss_scale_initial", t.loss_scale.initial);
    visit("loss_scale_window", t.loss_scale.window);
    visit("loss_scale_first_counts", t.loss_scale.first_counts);
    visit("loss_scale_hysteresis", t.loss_scale.hysteresis);
    visit("loss_scale_refills", t.loss_scale.refills);
    visit("loss_scale_least", t.loss_scale.least);
    visit("sequence", t.sequence);
    visit("micro_batch", t.micro_batch);
    visit("accumulation", t.accumulation);
    visit("tp", t.tp);
    visit("pp", t.pp);
    visit("virtual_stages", t.virtual_stages);
    visit("dp", t.dp);
    visit("ep", t.ep);
    visit("cp", t.cp);
    visit("sequence_parallel", t.sequence_parallel);
    visit("split", t.split);
    visit("router_aux_loss", t.router_aux_loss);
    visit("zero", t.zero);
    visit("unit_elements", t.unit_elements);
    visit("whole_elements", t.whole_elements);
    visit("overlap", t.overlap);
    visit("recompute", t.recompute);
    visit("lora_rank", t.lora.rank);
    visit("lora_alpha", t.lora.alpha);
    visit("lora_targets", t.lora.targets);
    visit("lora_rslora", t.lora.rslora);
    visit.Path("lora_from", t.lora.from);
    visit("lora_without_dropout", t.lora_without_dropout);
    visit("without_dropout", t.without_dropout);
    visit.Path("optimizer_folder", t.optimizer_folder);
    visit("clip", t.clip);
    visit("z_loss", t.z_loss);
    visit("neftune_alpha", t.neftune_alpha);
    visit("beta", t.preference.beta);
    visit("label_smoothing", t.preference.label_smoothing);
    visit("simpo_gamma", t.preference.simpo_gamma);
    visit("desirable_weight", t.preference.desirable_weight);
    visit("undesirable_weight", t.preference.undesirable_weight);
    visit.Path("ref_model", t.preference.ref_model, [](const std::string& model) {
        return model.empty() ? Result<std::string>(model) : model_files::PathOfModel(model);
    });
    kGrpoFields(t.grpo, visit);
    visit("center_rewards", t.vectors.center_rewards);
    visit("contrastive_scale", t.vectors.scale);
    visit("time_ops", t.time_ops);
    visit("verify_model", t.verify_model);
};

constexpr auto kUpdateFields = [](auto& u, auto& visit) {
    visit.Named("optimizer", u.kind, UpdateName, FindUpdate);
    visit("beta1", u.beta1);
    visit("beta2", u.beta2);
    visit("eps", u.eps);
    visit("weight_decay", u.weight_decay);
    visit("momentum", u.momentum);
    visit("dampening", u.dampening);
    visit("nesterov", u.nesterov);
    visit("eps_square", u.eps_square);
    visit("eps_scale", u.eps_scale);
    visit("clip_threshold", u.clip_threshold);
    visit("decay_rate", u.decay_rate);
    visit("scale_parameter", u.scale_parameter);
    visit("relative_step", u.relative_step);
    visit("ema", u.ema);
    visit("average_last", u.average_last);
    visit("muon_adam_size", u.muon_adam_size);
};

constexpr auto kDataFields = [](auto& d, auto& visit) {
    visit.Path("data", d.data);
    visit("data_weights", d.weights);
    visit("longs", d.longs);
    visit("control_tokens", d.control_tokens);
    visit("prompt_type", d.prompt_type);
    visit("loss", d.loss);
    visit("labels", d.labels);
    visit("pooling", d.pooling);
    visit("data_sequence", d.sequence);
    visit("test_split", d.test_split);
    visit("seed", d.seed);
    visit("pack", d.pack);
    visit("shuffle", d.shuffle);
    visit("skip_bad", d.skip_bad);
    visit("renewed", d.renewed);
    visit("day", d.day);
};

constexpr auto kJobFields = [](auto& job, auto& visit) {
    visit.Kind(kTrainJobKind);
    kTrainerFields(job.trainer, visit);
    kUpdateFields(job.trainer.update, visit);
    kDataFields(job.data, visit);
    visit.Named("schedule", job.schedule.kind, ScheduleName, FindSchedule);
    visit("rate", job.schedule.rate);
    visit("rate_end", job.schedule.end);
    visit("warmup_min", job.schedule.warmup_min);
    visit("log_warmup", job.schedule.log_warmup);
    visit("warmup_steps", job.schedule.warmup_steps);
    visit("total_steps", job.schedule.total_steps);
    visit("decay_steps", job.schedule.decay_steps);
    visit("decay_type", job.schedule.decay_type);
    visit("warmup_ratio", job.schedule.warmup_ratio);
    visit("rate_end_ratio", job.schedule.end_ratio);
    visit("decay_ratio", job.schedule.decay_ratio);
    visit("steps", job.steps);
    visit("epochs", job.epochs);
    visit("drop_last", job.drop_last);
    visit("eval_every", job.eval_every);
    visit("early_stopping_patience", job.early_stop.patience);
    visit("early_stopping_threshold", job.early_stop.threshold);
    visit("sample_prompts", job.sample.prompts);
    visit("sample_every", job.sample.every);
    visit("sample_tokens", job.sample.tokens);
    visit("sample_temperature", job.sample.temperature);
    visit.Path("save_folder", job.save.folder);
    visit("save_every", job.save.every);
    visit("keep_last", job.save.keep);
    visit("keep_best", job.save.best);
    visit.Path("resume", job.save.resume, [](const std::string& word) {
        return Result<std::string>(word == "auto" ? "" : word);
    });
    visit("max_restarts", job.save.max_restarts);
    visit("interrupts", job.save.interrupts);
    visit("elastic", job.elastic);
    visit("global_batch", job.global_batch);
};

// Checks paths that go into JSON: messages to other ranks, and files beside the result.
Status CheckPaths(const TrainJob& job) {
    std::vector<std::pair<const char*, const std::string*>> paths = {
        {"the model", &job.trainer.model},
        {"--output-dir", &job.save.folder},
        {"--resume", &job.save.resume},
        {"--lora-from", &job.trainer.lora.from},
        {"--ref-model", &job.trainer.preference.ref_model}};
    for (const std::string& path : job.data.data) paths.emplace_back("--data", &path);
    for (const std::string& path : job.trainer.grpo.models) {
        paths.emplace_back("--reward-model", &path);
    }
    for (const auto& [name, path] : paths) {
        if (IsUtf8(*path)) continue;
        return MakeError(
            ErrorCode::kUsage,
            "{}: the path {} is not UTF-8. Rename it, or make a link to it with an ASCII name",
            name,
            nlohmann::json(*path).dump(-1, ' ', true, nlohmann::json::error_handler_t::replace));
    }
    return {};
}

Status CheckSamples(const TrainJob& job) {
    if (job.sample.prompts.empty()) return {};
    if (job.trainer.cp > 1) {
        return MakeError(ErrorCode::kUsage,
                         "--sample with --cp {}: a token's logits would need all ranks of a "
                         "sequence. Leave out --sample",
                         job.trainer.cp);
    }
    if (!job.trainer.vectors.on()) return {};
    return MakeError(ErrorCode::kUsage,
                     "--sample with --loss {}: a model that makes vectors writes no text. Remove "
                     "one of the two",
                     job.data.loss);
}

// Refuses options that a job with --loss grpo does not support.
Status CheckGrpoJob(const TrainJob& job) {
    const GrpoOptions& grpo = job.trainer.grpo;
    if (!grpo.on) return {};
    if (job.data.test_split > 0) {
        return MakeError(ErrorCode::kUsage,
                         "--test-split with --loss grpo: completions are not evaluated. Each "
                         "update reports the reward of new completions");
    }
    if (job.elastic) {
        return MakeError(ErrorCode::kUnsupported,
                         "--elastic with --loss grpo: the completions of an update have a fixed "
                         "number of replicas");
    }
    const int64_t n = grpo.iterations;
    if (n > 0 && (job.save.every % n != 0 || job.steps % n != 0)) {
        return MakeError(ErrorCode::kUsage,
                         "--num-iterations {} with --save-every {} and --steps {}: expected "
                         "multiples of the iterations, because a checkpoint has no completions",
                         n, job.save.every, job.steps);
    }
    return {};
}

}  // namespace

Status CheckTrainJob(const TrainJob& job) {
    WEFT_TRY(CheckPaths(job));
    WEFT_TRY(CheckScheduleOptions(job.schedule));
    WEFT_TRY(CheckSchedule(ForRun(job.schedule, job.steps > 0 ? job.steps : kUnknownSteps)));
    if (job.eval_every < 0 || (job.eval_every > 0 && !(job.data.test_split > 0))) {
        return MakeError(ErrorCode::kUsage,
                         "--eval-every {}: expected 0 (after each epoch) or more, and with it "
                         "--test-split above 0: the share of the data to evaluate on",
                         job.eval_every);
    }
    const StopRule& stop = job.early_stop;
    if (stop.patience < 0 || !(stop.threshold >= 0) || !std::isfinite(stop.threshold)) {
        return MakeError(
            ErrorCode::kUsage,
            "--early-stopping-patience {} --early-stopping-threshold {}: expected 0 or "
            "more",
            stop.patience, stop.threshold);
    }
    if ((stop.patience > 0 || job.save.best) && !(job.data.test_split > 0)) {
        return MakeError(ErrorCode::kUsage,
                         "{} needs --test-split above 0: the share of the data to evaluate on",
                         job.save.best ? "--keep-best" : "--early-stopping-patience");
    }
    if (job.save.best && job.save.folder.empty()) {
        return MakeError(ErrorCode::kUsage, "--keep-best needs --output-dir DIR");
    }
    const bool averages = AverageKind(job.trainer.update) != nullptr;
    if (averages && (job.save.best || (stop.patience > 0 && job.trainer.update.ema == 0))) {
        return MakeError(ErrorCode::kUsage,
                         "{} with {}: the result is either the average of the weights or those of "
                         "one update. Remove one of the two",
                         job.trainer.update.ema > 0 ? "--ema" : "--average-last",
                         job.save.best ? "--keep-best" : "--early-stopping-patience");
    }
    if (job.data.renewed && job.save.resume.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--new-data without --resume: there is no checkpoint to continue from. "
                         "Name one, or remove --new-data");
    }
    WEFT_TRY(CheckGrpoJob(job));
    WEFT_TRY(CheckSamples(job));
    WEFT_TRY(NoonOf(job.data.day));
    WEFT_TRY(CheckSampleOptions(job.sample));
    if (job.global_batch < 0 || (job.elastic && job.global_batch == 0)) {
        return MakeError(ErrorCode::kUsage, "a batch of {} sequences", job.global_batch);
    }
    if (job.trainer.lora.rank < 0) {
        return MakeError(ErrorCode::kUsage, "--lora {}: expected a rank of 1 or more",
                         job.trainer.lora.rank);
    }
    if (job.steps >= 0 && job.epochs >= 1 && job.trainer.accumulation >= 1 &&
        job.trainer.accumulation <= kMostAccumulation) {
        return CheckSaveOptions(job.save);
    }
    return MakeError(ErrorCode::kUsage,
                     "--steps {}, --epochs {}, --grad-accum {}: expected 0 (by epochs) or more, 1 "
                     "or more, 1 to {}",
                     job.steps, job.epochs, job.trainer.accumulation, kMostAccumulation);
}

Status MakeAbsolute(TrainJob& job) {
    SaveOptions& words = job.save;
    const auto change = [](std::string& path) -> Status {
        std::error_code failed;
        const std::filesystem::path whole =
            std::filesystem::absolute(path, failed).lexically_normal();
        if (failed) return MakeError(ErrorCode::kIo, "{}: {}", path, failed.message());
        // (One spelling: "tuned/" and "." end with a slash here.)
        path = whole.has_filename() ? whole : whole.parent_path();
        return {};
    };
    if (!words.folder.empty()) WEFT_TRY(change(words.folder));
    std::string& adapter = job.trainer.lora.from;
    if (!adapter.empty()) WEFT_TRY(change(adapter));
    return words.resume.empty() || words.resume == "auto" ? Status() : change(words.resume);
}

void TakeDataWords(TrainJob& job) {
    job.trainer.sequence = job.data.sequence > 0 ? job.data.sequence : kDefaultSequence;
    job.trainer.lora.seed = job.trainer.seed = job.data.seed;
    job.trainer.preference.loss = FindLoss(job.data.loss).value_or(LossKind::kTokens);
    GrpoOptions& grpo = job.trainer.grpo;
    grpo.on = job.trainer.preference.loss == LossKind::kGrpo;
    grpo.day = job.data.day;
    VectorOptions& vectors = job.trainer.vectors;
    vectors.loss = job.trainer.preference.loss;
    vectors.labels = vectors.loss == LossKind::kReward ? 1 : job.data.labels;
    vectors.pooling = job.data.pooling;
    if (vectors.loss == LossKind::kClassification) vectors.texts = 1;
    const int64_t asked = grpo.completion_tokens;
    grpo.most_tokens = asked > 0 ? asked : std::max<int64_t>(job.trainer.sequence / 2, 1);
    job.data.completion = grpo.on ? grpo.most_tokens : 0;
}

std::string TrainJobToJson(const TrainJob& job) {
    return EncodeFields(job, kJobFields);
}

Result<TrainJob> TrainJobFromJson(const std::string& text, const FolderLimit& limit) {
    TrainJob job;
    WEFT_TRY(DecodeFields("training job from rank 0", text, kJobFields, job, limit));
    WEFT_TRY(CheckTrainJob(job));
    return job;
}

Result<TrainJob> TrainJobOf(const cluster::Cluster& cluster) {
    return TrainJobFromJson(cluster.job(), cluster.folders());
}

}  // namespace weft::train
