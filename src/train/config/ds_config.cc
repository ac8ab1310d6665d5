#include "train/config/ds_config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/file.h"
#include "base/text.h"
#include "model_files/hf/json.h"
#include "train/config/ds_check.h"

namespace weft::train {
namespace {

using Json = nlohmann::json;

constexpr uint64_t kConfigBytes = 16 << 20;
constexpr int64_t kMostSequences = int64_t{1} << 40;

// Reads values from a file that passed CheckDsKeys, and resolves "auto".
class Resolver {
  public:
    Resolver(const Json& json, const std::string& where, const DsFlags& flags, DsConfig& out)
        : json_(json), where_(where), flags_(flags), out_(out) {}

    Status Run() {
        WEFT_TRY(Batches());
        WEFT_TRY(ChoosePrecision());
        const double clip = IsAuto("gradient_clipping") ? 1 : 0;
        WEFT_TRY(Match("gradient_clipping", flags_.clip, clip, out_.clip));
        WEFT_TRY(Optimizer());
        WEFT_TRY(Scheduler());
        WEFT_TRY(Zero());
        return Rest();
    }

  private:
    const Json* Find(std::string_view path) const { return FindDsKey(json_, path); }
    bool IsAuto(std::string_view path) const {
        const Json* value = Find(path);
        return value != nullptr && *value == "auto";
    }
    // Empty if the key is absent, null or "auto".
    std::optional<double> Number(std::string_view path) const {
        const Json* value = Find(path);
        if (value == nullptr || !value->is_number()) return std::nullopt;
        return value->get<double>();
    }
    std::optional<int64_t> Int(std::string_view path) const {
        const auto number = Number(path);
        if (!number) return std::nullopt;
        return static_cast<int64_t>(*number);
    }
    bool Bool(std::string_view path, bool fallback = false) const {
        const Json* value = Find(path);
        return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
    }
    std::string String(std::string_view path, std::string fallback = "") const {
        const Json* value = Find(path);
        return value != nullptr && value->is_string() && *value != "auto"
                   ? value->get<std::string>()
                   : fallback;
    }
    Error Wrong(std::string_view path, std::string_view expected) const {
        const Json* value = Find(path);
        return MakeError(
            ErrorCode::kCorrupt, "{}: {} is {}; expected {}", where_, path,
            value == nullptr ? "absent" : model_files::hf::Shown(value->dump(-1, ' ', true)),
            expected);
    }
    Error Differs(std::string_view path, double file, double flag) const {
        return MakeError(ErrorCode::kUsage,
                         "{}: {} is {}, but the command line says {}. Set it in one place, or "
                         "write \"auto\" into the file",
                         where_, path, file, flag);
    }

    // Takes a number from the file, from the command line (if the file has no number or "auto"), or
    // the fallback. A contradiction is an error.
    Status Match(std::string_view path, std::optional<double> flag, double fallback, double& out) {
        const auto file = Number(path);
        if (file && flag && *file != *flag) return Differs(path, *file, *flag);
        out = file ? *file : flag ? *flag : fallback;
        return {};
    }

    Status Known(std::string_view path, std::optional<int64_t> flag, std::optional<int64_t>& out) {
        const auto file = Int(path);
        if (file && flag && *file != *flag) {
            return Differs(path, static_cast<double>(*file), static_cast<double>(*flag));
        }
        out = file ? file : flag;
        if (out && (*out < 1 || *out > kMostSequences)) {
            return Wrong(path, fmt::format("1 to {}", kMostSequences));
        }
        return {};
    }

    // Two of the three numbers determine the third; the micro-batch and accumulation default to 1.
    Status Batches() {
        std::optional<int64_t> all, micro, steps;
        WEFT_TRY(Known("train_batch_size", flags_.train_batch, all));
        WEFT_TRY(Known("train_micro_batch_size_per_gpu", flags_.micro_batch, micro));
        WEFT_TRY(Known("gradient_accumulation_steps", flags_.accumulation, steps));
        const int64_t ranks = flags_.ranks;
        if (ranks < 1 || ranks > (1 << 20)) {
            return MakeError(ErrorCode::kUsage, "{} data-parallel ranks; expected 1 to {}", ranks,
                             1 << 20);
        }
        if (all && micro && !steps) {
            steps = *all / ranks / *micro;
        } else if (all && !micro) {
            if (!steps) steps = 1;
            micro = *all / ranks / *steps;
        }
        out_.micro_batch = micro.value_or(1);
        out_.accumulation = steps.value_or(1);
        int64_t product = 0;
        if (__builtin_mul_overflow(out_.micro_batch, out_.accumulation, &product) ||
            __builtin_mul_overflow(product, ranks, &product) || product > kMostSequences) {
            return MakeError(ErrorCode::kUsage, "{}: {} x {} x {} sequences an update; at most {}",
                             where_, out_.micro_batch, out_.accumulation, ranks, kMostSequences);
        }
        out_.train_batch = all.value_or(product);
        if (out_.train_batch == product) return {};
        return MakeError(ErrorCode::kUsage,
                         "{}: train_batch_size {} != train_micro_batch_size_per_gpu {} x "
                         "gradient_accumulation_steps {} x {} data-parallel ranks = {}. Change one "
                         "of them, or write \"auto\"",
                         where_, out_.train_batch, out_.micro_batch, out_.accumulation, ranks,
                         product);
    }

    Status ChoosePrecision() {
        const Precision asked = flags_.precision.value_or(Precision::kBf16);
        const auto enabled = [&](const std::string& path, Precision kind) {
            return IsAuto(path) ? asked == kind : Bool(path);
        };
        const bool half = enabled("fp16.enabled", Precision::kF16);
        const bool brain = enabled("bf16.enabled", Precision::kBf16);
        if (half && brain) {
            return MakeError(ErrorCode::kUsage,
                             "{}: fp16.enabled and bf16.enabled are both true; one precision can "
                             "be chosen",
                             where_);
        }
        out_.precision = half ? Precision::kF16 : brain ? Precision::kBf16 : Precision::kF32;
        const bool silent = Find("fp16") == nullptr && Find("bf16") == nullptr;
        if (silent && flags_.precision) out_.precision = *flags_.precision;
        if (flags_.precision && *flags_.precision != out_.precision) {
            return MakeError(ErrorCode::kUsage,
                             "{}: fp16 and bf16 select another precision than the command line. "
                             "Write \"auto\" into the file",
                             where_);
        }
        DsLossScale& scale = out_.loss_scale;
        WEFT_TRY(Match("fp16.loss_scale", flags_.loss_scale, 0, scale.fixed));
        scale.initial_power = Int("fp16.initial_scale_power").value_or(scale.initial_power);
        scale.window = Int("fp16.loss_scale_window").value_or(scale.window);
        scale.hysteresis = Int("fp16.hysteresis").value_or(scale.hysteresis);
        scale.consecutive_hysteresis = Bool("fp16.consecutive_hysteresis");
        scale.least = Number("fp16.min_loss_scale").value_or(scale.least);
        if (scale.least > std::exp2(static_cast<double>(scale.initial_power))) {
            return Wrong("fp16.min_loss_scale", "no more than 2^initial_scale_power");
        }
        return {};
    }

    Result<UpdateKind> KindOf(std::string_view said) {
        const std::string name = LowerCase(said);
        if (name == "adamw") return UpdateKind::kAdamW;
        if (name == "sgd") return UpdateKind::kSgd;
        if (name == "adafactor") return UpdateKind::kAdafactor;
        if (name == "adam") {
            const bool decoupled = Bool("optimizer.params.adam_w_mode", true);
            return decoupled ? UpdateKind::kAdamW : UpdateKind::kAdam;
        }
        return MakeError(ErrorCode::kUnsupported,
                         "{}: optimizer.type is '{}'; expected AdamW, Adam, SGD or Adafactor. "
                         "--optimizer selects others, such as lion and muon",
                         where_, model_files::hf::Shown(name));
    }

    Status Optimizer() {
        if (Find("optimizer") == nullptr) return {};
        DsOptimizer made;
        WEFT_ASSIGN(made.kind, KindOf(String("optimizer.type")));
        const std::string base = "optimizer.params.";
        // torch's and DeepSpeed's default if the file omits it, the Trainer's default for "auto".
        const bool adafactor = made.kind == UpdateKind::kAdafactor;
        const double lr = IsAuto(base + "lr") ? 5e-5 : adafactor ? 1e-2 : 1e-3;
        WEFT_TRY(Match(base + "lr", flags_.lr, lr, made.lr));
        WEFT_TRY(Match(base + "weight_decay", flags_.weight_decay, 0, made.weight_decay));
        WEFT_TRY(Betas(made));
        WEFT_TRY(Epsilon(made));
        made.bias_correction = Bool(base + "bias_correction", true);
        made.momentum = Number(base + "momentum").value_or(0);
        made.dampening = Number(base + "dampening").value_or(0);
        made.nesterov = Bool(base + "nesterov");
        made.beta2_decay = Number(base + "beta2_decay").value_or(made.beta2_decay);
        made.clip_update = Number(base + "d").value_or(made.clip_update);
        if (made.nesterov && (made.momentum == 0 || made.dampening != 0)) {
            return Wrong(base + "nesterov", "a momentum without dampening");
        }
        out_.optimizer = made;
        return {};
    }

    Status Betas(DsOptimizer& made) {
        const Json* betas = Find("optimizer.params.betas");
        std::optional<double> file1, file2;
        if (betas != nullptr && betas->is_array()) {
            if (betas->size() != 2) return Wrong("optimizer.params.betas", "two numbers");
            file1 = betas->at(0).get<double>();
            file2 = betas->at(1).get<double>();
            if (*file1 >= 1 || *file2 >= 1) {
                return Wrong("optimizer.params.betas", "two numbers from 0 to below 1");
            }
        }
        if (file1 && flags_.beta1 && *file1 != *flags_.beta1) {
            return Differs("optimizer.params.betas[0]", *file1, *flags_.beta1);
        }
        if (file2 && flags_.beta2 && *file2 != *flags_.beta2) {
            return Differs("optimizer.params.betas[1]", *file2, *flags_.beta2);
        }
        made.beta1 = file1 ? *file1 : flags_.beta1.value_or(made.beta1);
        made.beta2 = file2 ? *file2 : flags_.beta2.value_or(made.beta2);
        return {};
    }

    Status Epsilon(DsOptimizer& made) {
        const std::string_view path = "optimizer.params.eps";
        const Json* eps = Find(path);
        const auto fits = [](const Json& value) {
            return value.is_number() && value.get<double>() >= 0 && value.get<double>() <= 1;
        };
        if (made.kind == UpdateKind::kAdafactor) {
            made.eps = 1e-30;
            if (eps == nullptr || *eps == "auto") return {};
            if (!eps->is_array() || eps->size() != 2 || !fits(eps->at(1)) ||
                (!fits(eps->at(0)) && !eps->at(0).is_null())) {
                return Wrong(path, "two numbers from 0 to 1");
            }
            if (eps->at(0).is_number()) made.eps = eps->at(0).get<double>();
            made.eps_scale = eps->at(1).get<double>();
            return {};
        }
        if (eps != nullptr && *eps != "auto" && !fits(*eps)) {
            return Wrong(path, "a number from 0 to 1");
        }
        return Match(path, flags_.eps, 1e-8, made.eps);
    }

    Status Scheduler() {
        if (Find("scheduler") == nullptr) return {};
        const std::string type = String("scheduler.type"), base = "scheduler.params.";
        const auto kind = FindSchedule(type);
        if (!kind || !type.starts_with("Warmup")) {
            return MakeError(ErrorCode::kUnsupported,
                             "{}: scheduler.type is '{}'; expected WarmupLR, WarmupDecayLR or "
                             "WarmupCosineLR",
                             where_, model_files::hf::Shown(type));
        }
        Schedule made{.kind = *kind};
        const bool cosine = *kind == ScheduleKind::kWarmupCosineLr;
        const double lr = out_.optimizer ? out_.optimizer->lr : flags_.lr.value_or(5e-5);
        const bool own = *kind == ScheduleKind::kWarmupDecayLr && !IsAuto(base + "warmup_max_lr");
        const auto most = Number(base + "warmup_max_lr");
        if (!cosine && most && flags_.lr && *most != *flags_.lr) {
            return Differs(base + "warmup_max_lr", *most, *flags_.lr);
        }
        made.rate = cosine ? lr : most.value_or(own ? 1e-3 : lr);
        made.warmup_min =
            Number(base + (cosine ? "warmup_min_ratio" : "warmup_min_lr")).value_or(0);
        made.end = cosine ? Number(base + "cos_min_ratio").value_or(1e-4) : 0;
        WEFT_TRY(Steps(base + "warmup_num_steps", flags_.warmup_steps, 1000, made.warmup_steps));
        if (*kind != ScheduleKind::kWarmupLr) {
            WEFT_TRY(Steps(base + "total_num_steps", flags_.total_steps, 0, made.total_steps));
            if (made.total_steps == 0 && !IsAuto(base + "total_num_steps")) {
                return Wrong(base + "total_num_steps",
                             "the number of updates, in the file or on "
                             "the command line");
            }
        }
        const std::string shape = String(base + "warmup_type", "log");
        if (shape != "log" && shape != "linear") {
            out_.warnings.push_back(
                fmt::format("{}warmup_type: '{}' is not known; Weft uses 'log', as DeepSpeed does",
                            base, model_files::hf::Shown(shape)));
        }
        made.log_warmup = shape != "linear";
        Schedule whole = made;
        if (whole.total_steps == 0) whole.total_steps = std::max<int64_t>(1, made.warmup_steps);
        const Status checked = CheckSchedule(whole);
        if (!checked.ok())
            return Error{checked.error().code, where_ + ": " + checked.error().message};
        out_.schedule = made;
        return {};
    }

    Status Steps(const std::string& path, std::optional<int64_t> flag, int64_t fallback,
                 int64_t& out) {
        const auto file = Int(path);
        if (file && flag && *file != *flag) {
            return Differs(path, static_cast<double>(*file), static_cast<double>(*flag));
        }
        out = file ? *file : flag ? *flag : IsAuto(path) ? 0 : fallback;
        return {};
    }

    // A size that "auto" derives from the hidden size.
    template <typename Number>
    Status Sized(std::string_view path, double of_hidden, Number& out) {
        if (!IsAuto(path)) {
            if (const auto said = Int(path)) out = *said;
            return {};
        }
        if (flags_.hidden_size <= 0) return Wrong(path, "a number: the model's width isn't known");
        out = static_cast<int64_t>(of_hidden);
        return {};
    }

    Status Offload(const std::string& base, bool old_form, DsOffload& out) {
        const std::string device = String(base + ".device", old_form ? "cpu" : "none");
        if (device != "none" && device != "cpu" && device != "nvme") {
            return Wrong(base + ".device", "none, cpu or nvme");
        }
        out.device = device == "cpu"    ? DsDevice::kCpu
                     : device == "nvme" ? DsDevice::kNvme
                                        : DsDevice::kNone;
        out.path = String(base + ".nvme_path");
        out.ratio = Number(base + ".ratio").value_or(1);
        if (out.device == DsDevice::kNvme && out.path.empty()) {
            return Wrong(base + ".nvme_path", "a folder, since the device is nvme");
        }
        return {};
    }

    Status Zero() {
        const std::string base = "zero_optimization.";
        DsZero& zero = out_.zero;
        const auto stage = Int(base + "stage");
        if (stage && flags_.stage && *stage != *flags_.stage) {
            return Differs(base + "stage", static_cast<double>(*stage),
                           static_cast<double>(*flags_.stage));
        }
        zero.stage = static_cast<int>(stage ? *stage : flags_.stage.value_or(0));
        if (Find(base + "overlap_comm") != nullptr && !IsAuto(base + "overlap_comm")) {
            zero.overlap_comm = Bool(base + "overlap_comm");
        }
        const auto h = static_cast<double>(flags_.hidden_size);
        WEFT_TRY(Sized(base + "reduce_bucket_size", h * h, zero.reduce_bucket));
        WEFT_TRY(Sized(base + "stage3_prefetch_bucket_size", 0.9 * h * h, zero.prefetch_bucket));
        WEFT_TRY(
            Sized(base + "stage3_param_persistence_threshold", 10 * h, zero.persistence_threshold));
        zero.allgather_bucket = Int(base + "allgather_bucket_size");
        zero.gather_weights_on_save = Bool(base + "stage3_gather_16bit_weights_on_model_save");
        WEFT_TRY(Offload(base + "offload_optimizer", Bool(base + "cpu_offload"), zero.optimizer));
        WEFT_TRY(
            Offload(base + "offload_param", Bool(base + "cpu_offload_params"), zero.parameters));
        if (zero.parameters.device != DsDevice::kNone && zero.stage != 3) {
            return MakeError(ErrorCode::kUsage,
                             "{}: {}offload_param needs stage 3, the file has {}", where_, base,
                             zero.stage);
        }
        return {};
    }

    Status TypeOf(std::string_view path, std::optional<Precision>& out) {
        const std::string name = String(path);
        if (name.empty()) return {};
        if (name == "fp32" || name == "float32" || name == "torch.float32") {
            out = Precision::kF32;
        } else if (name == "fp16" || name == "float16" || name == "torch.float16") {
            out = Precision::kF16;
        } else if (name == "bf16" || name == "bfp16" || name == "bfloat16" ||
                   name == "torch.bfloat16") {
            out = Precision::kBf16;
        } else {
            return Wrong(path, "fp32, fp16 or bf16");
        }
        return {};
    }

    DsMonitor Monitor(const std::string& base) const {
        return {Bool(base + ".enabled"), String(base + ".output_path"),
                String(base + ".job_name", "DeepSpeedJobName")};
    }

    Status Rest() {
        out_.activations.given = Find("activation_checkpointing") != nullptr;
        out_.activations.on_cpu = Bool("activation_checkpointing.cpu_checkpointing");
        WEFT_TRY(TypeOf("communication_data_type", out_.communication));
        WEFT_TRY(TypeOf("data_types.grad_accum_dtype", out_.accumulate));
        out_.steps_per_print = Int("steps_per_print");
        out_.drop_last = Bool("dataloader_drop_last");
        out_.tensorboard = Monitor("tensorboard");
        out_.csv = Monitor("csv_monitor");
        return {};
    }

    const Json& json_;
    const std::string& where_;
    const DsFlags& flags_;
    DsConfig& out_;
};

}  // namespace

Result<DsConfig> ParseDsConfig(std::string_view text, const std::string& where,
                               const DsFlags& flags) {
    if (text.size() > kConfigBytes) {
        return MakeError(ErrorCode::kCorrupt, "{}: {} bytes; at most {} are read", where,
                         text.size(), kConfigBytes);
    }
    WEFT_ASSIGN(const Json json, ParseDsJson(text, where));
    DsConfig config;
    WEFT_TRY(CheckDsKeys(json, where, config.warnings));
    WEFT_TRY(Resolver(json, where, flags, config).Run());
    return config;
}

Result<DsConfig> ReadDsConfig(const std::string& path, const DsFlags& flags) {
    WEFT_ASSIGN(const std::string text, ReadTextFile(path, kConfigBytes));
    return ParseDsConfig(text, path, flags);
}

}  // namespace weft::train
