#include "train/config/ds_apply.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <utility>

namespace weft::train {
namespace {

std::string_view NameOf(Precision precision) {
    switch (precision) {
        case Precision::kF32: return "fp32";
        case Precision::kF16: return "fp16";
        case Precision::kBf16: return "bf16";
    }
    return "";
}

// null: no loss scaling.
nlohmann::ordered_json LossScaleOf(const TrainerOptions& trainer) {
    if (trainer.dtype != DType::kF16) return nullptr;
    const LossScaleOptions& scale = trainer.loss_scale;
    return {{"fixed", scale.fixed},
            {"initial", scale.initial},
            {"window", scale.window},
            {"hysteresis", scale.hysteresis},
            {"consecutive_hysteresis", scale.refills},
            {"least", scale.least}};
}

class Applier {
  public:
    Applier(const DsConfig& config, const std::string& where, const DsGiven& given,
            std::vector<std::string>& notes)
        : config_(config), where_(where), given_(given), notes_(notes) {}

    Status Job(TrainJob& job) {
        job.trainer.micro_batch = config_.micro_batch;
        job.trainer.accumulation = config_.accumulation;
        job.trainer.clip = config_.clip;
        job.drop_last = config_.drop_last;
        WEFT_TRY(ApplyGradType(job.trainer));
        ApplyPrecision(job.trainer);
        WEFT_TRY(ApplyOptimizer(job));
        WEFT_TRY(ApplySchedule(job.schedule));
        ApplyZeroKeys(job.trainer);
        NoteOffload();
        if (config_.activations.given && !given_.recompute) job.trainer.recompute = "full";
        return {};
    }

    Status Save(TrainExportOptions& save) const {
        if (!config_.zero.gather_weights_on_save) return {};
        const std::string type = config_.precision == Precision::kF16 ? "F16" : "BF16";
        if (given_.save_type && save.type != type) {
            return MakeError(
                ErrorCode::kUsage,
                "{}: zero_optimization.stage3_gather_16bit_weights_on_model_save is true, which is "
                "--save-type {}, but the command line says {}. Remove one of the two",
                where_, type, save.type);
        }
        save.type = type;
        return {};
    }

    DsTelling Telling() const {
        DsTelling telling;
        telling.print_every = std::max<int64_t>(1, config_.steps_per_print.value_or(1));
        const auto folder = [](const DsMonitor& monitor) {
            return (monitor.path.empty() ? "." : monitor.path) + "/" + monitor.job;
        };
        if (config_.csv.enabled) telling.csv = folder(config_.csv) + "/log.csv";
        if (config_.tensorboard.enabled) telling.tensorboard = folder(config_.tensorboard);
        return telling;
    }

  private:
    template <typename... Args>
    void Note(fmt::format_string<Args...> format, Args&&... args) {
        notes_.push_back(fmt::format(format, std::forward<Args>(args)...));
    }

    // grad_accum_dtype corresponds to --grad-dtype.
    Status ApplyGradType(TrainerOptions& trainer) {
        if (!config_.accumulate) return {};
        const std::string type = FlagOf(DTypeOf(*config_.accumulate));
        if (given_.grad_dtype && trainer.grad_dtype != "auto" && trainer.grad_dtype != type) {
            return MakeError(ErrorCode::kUsage,
                             "{}: data_types.grad_accum_dtype is {}, but the command line says "
                             "--grad-dtype {}. Remove one of the two",
                             where_, NameOf(*config_.accumulate), trainer.grad_dtype);
        }
        const bool narrow = *config_.accumulate != Precision::kF32;
        if (narrow && *config_.accumulate != config_.precision) {
            Note(
                "data_types.grad_accum_dtype: {} is ignored: gradients that are computed in {} "
                "accumulate in float32",
                NameOf(*config_.accumulate), NameOf(config_.precision));
            trainer.grad_dtype = "f32";
        } else {
            trainer.grad_dtype = type;
        }
        return {};
    }

    void ApplyPrecision(TrainerOptions& trainer) {
        trainer.dtype = DTypeOf(config_.precision);
        const DsLossScale& scale = config_.loss_scale;
        trainer.loss_scale = {scale.fixed,      std::exp2(static_cast<double>(scale.initial_power)),
                              scale.window,     false,
                              scale.hysteresis, scale.consecutive_hysteresis,
                              scale.least};
        // Gradients are sent in the type in which they are accumulated.
        const int64_t sums = config_.train_batch / std::max<int64_t>(1, config_.micro_batch);
        TrainerOptions counted = trainer;
        counted.accumulation = 1;
        const Precision here = PrecisionOf(GradientTypeOf(counted, sums));
        if (config_.communication && *config_.communication != here) {
            Note(
                "communication_data_type: {} is ignored: gradients of matrices are sent as {}, the "
                "type in which they accumulate (--grad-dtype); sums are computed in float32",
                NameOf(*config_.communication), NameOf(here));
        }
    }

    // torch.optim.Adafactor, as DeepSpeed uses it.
    void ApplyAdafactor(const DsOptimizer& from, UpdateOptions& to) {
        to.eps_square = from.eps;
        to.eps_scale = from.eps_scale;
        to.clip_threshold = from.clip_update;
        to.decay_rate = from.beta2_decay;
        to.scale_parameter = true;
        to.relative_step = false;
        Note(
            "optimizer.type Adafactor: the schedule alone sets the rate; eps is added to the "
            "squares of gradients");
    }

    Status ApplyOptimizer(TrainJob& job) {
        if (!config_.optimizer) return {};
        const DsOptimizer& from = *config_.optimizer;
        if (!from.bias_correction) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: optimizer.params.bias_correction false is not supported: Adam "
                             "corrects its bias",
                             where_);
        }
        UpdateOptions& to = job.trainer.update;
        if (given_.optimizer && to.kind != from.kind) {
            return MakeError(ErrorCode::kUsage,
                             "{}: optimizer.type is {}, but the command line says --optimizer {}. "
                             "Remove one of the two",
                             where_, UpdateName(from.kind), UpdateName(to.kind));
        }
        to.kind = from.kind;
        to.weight_decay = from.weight_decay;
        to.beta1 = from.beta1;
        to.beta2 = from.beta2;
        if (from.kind == UpdateKind::kAdafactor) {
            ApplyAdafactor(from, to);
        } else {
            to.eps = from.eps;
        }
        to.momentum = from.momentum;
        to.dampening = from.dampening;
        to.nesterov = from.nesterov;
        job.schedule.rate = from.lr;
        if (from.weight_decay != 0) {
            Note("optimizer.params.weight_decay: norm weights and biases are not decayed");
        }
        return {};
    }

    Status ApplySchedule(Schedule& schedule) const {
        if (!config_.schedule) return {};
        if (given_.schedule && schedule.kind != config_.schedule->kind) {
            return MakeError(ErrorCode::kUsage,
                             "{}: scheduler.type is {}, but the command line says --schedule {}. "
                             "Remove one of the two",
                             where_, ScheduleName(config_.schedule->kind),
                             ScheduleName(schedule.kind));
        }
        const Schedule& file = *config_.schedule;
        if (schedule.warmup_ratio > 0 || schedule.end > 0 || schedule.end_ratio > 0) {
            return MakeError(ErrorCode::kUsage,
                             "{}: scheduler.type {} has its own warm-up and lowest rate. Remove "
                             "--warmup-ratio, --min-lr and --min-lr-rate",
                             where_, ScheduleName(file.kind));
        }
        if (schedule.total_steps > 0 && schedule.total_steps != file.total_steps) {
            return MakeError(ErrorCode::kUsage,
                             "{}: scheduler.type {} has no end, but the command line says "
                             "--schedule-steps {}. Leave it out, or use WarmupDecayLR or "
                             "WarmupCosineLR",
                             where_, ScheduleName(file.kind), schedule.total_steps);
        }
        schedule = file;
        return {};
    }

    // A unit is both gathered and reduced at once, so the smallest bucket applies.
    void ApplyZeroKeys(TrainerOptions& trainer) const {
        const DsZero& zero = config_.zero;
        trainer.zero = zero.stage;
        const auto& gathered = zero.stage == 3 ? zero.prefetch_bucket : zero.allgather_bucket;
        if (zero.reduce_bucket || gathered) {
            const int64_t least =
                std::min(zero.reduce_bucket.value_or(INT64_MAX), gathered.value_or(INT64_MAX));
            trainer.unit_elements = std::max<int64_t>(1, least);
        }
        if (zero.overlap_comm && !given_.overlap) {
            trainer.overlap = *zero.overlap_comm ? "auto" : "off";
        }
        trainer.whole_elements = zero.stage == 3 ? zero.persistence_threshold : 0;
    }

    void NoteOffload() {
        const auto note = [&](const char* key, const DsOffload& offload) {
            if (offload.device == DsDevice::kNone) return;
            Note("zero_optimization.{}: everything stays in the memory of the device that trains{}",
                 key, offload.device == DsDevice::kNvme ? ": nothing goes to nvme_path" : "");
        };
        note("offload_optimizer", config_.zero.optimizer);
        note("offload_param", config_.zero.parameters);
    }

    const DsConfig& config_;
    const std::string& where_;
    const DsGiven& given_;
    std::vector<std::string>& notes_;
};

}  // namespace

Status ApplyDsConfig(const DsConfig& config, const std::string& where, const DsGiven& given,
                     TrainJob& job, TrainExportOptions& save, DsTelling& telling,
                     std::vector<std::string>& notes) {
    Applier applier(config, where, given, notes);
    WEFT_TRY(applier.Job(job));
    WEFT_TRY(applier.Save(save));
    telling = applier.Telling();
    return {};
}

nlohmann::ordered_json ResolvedJson(const TrainJob& job, const TrainExportOptions& save,
                                    const TrainLayout& layout, int64_t steps) {
    const TrainerOptions& t = job.trainer;
    const Schedule& s = job.schedule;
    return {{"train_batch_size", t.micro_batch * t.accumulation * layout.streams()},
            {"micro_batch", t.micro_batch},
            {"accumulation", t.accumulation},
            {"dp", layout.streams()},
            {"tp", layout.tp()},
            {"pp", layout.pp()},
            {"steps", steps},
            {"precision", FlagOf(t.dtype)},
            {"gradients", FlagOf(GradientTypeOf(t, layout.dp))},
            {"loss_scale", LossScaleOf(t)},
            {"zero", t.zero},
            {"unit_elements", t.unit_elements},
            {"whole_elements", t.whole_elements},
            {"overlap", t.overlap},
            {"recompute", t.recompute},
            {"optimizer",
             {{"type", UpdateName(t.update.kind)},
              {"lr", s.rate},
              {"betas", {t.update.beta1, t.update.beta2}},
              {"eps", t.update.eps},
              {"weight_decay", t.update.weight_decay},
              {"momentum", t.update.momentum},
              {"dampening", t.update.dampening},
              {"nesterov", t.update.nesterov},
              {"clip_threshold", t.update.clip_threshold},
              {"decay_rate", t.update.decay_rate},
              {"scale_parameter", t.update.scale_parameter}}},
            {"schedule",
             {{"type", ScheduleName(s.kind)},
              {"warmup_steps", s.warmup_steps},
              {"warmup_min", s.warmup_min},
              {"log_warmup", s.log_warmup},
              {"end", s.end},
              {"total_steps", s.total_steps == 0 ? steps : s.total_steps}}},
            {"clip", t.clip},
            {"drop_last", job.drop_last},
            {"save_type", save.type}};
}

}  // namespace weft::train
