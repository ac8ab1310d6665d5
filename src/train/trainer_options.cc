// Interprets TrainerOptions and checks which of them exclude each other.
#include <algorithm>
#include <cmath>

#include "model_files/lora/adapter_config.h"
#include "train/trainer.h"

namespace weft::train {
namespace {

Status CheckAdapterDropout(const TrainerOptions& o) {
    if (o.lora.from.empty() || o.lora_without_dropout) return {};
    WEFT_ASSIGN(const double dropout, model_files::AdapterDropout(o.lora.from));
    if (dropout == 0) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{}/adapter_config.json: 'lora_dropout' is {}, and Weft trains adapters "
                     "without dropout. --lora-dropout 0 continues without it",
                     o.lora.from, dropout);
}

// Refuses options that a trainer with --loss grpo does not support.
Status CheckGrpo(const TrainerOptions& o) {
    if (!o.grpo.on) return {};
    WEFT_TRY(CheckGrpo(o.grpo));
    const auto refuse = [](std::string_view flag, std::string_view why) {
        return MakeError(ErrorCode::kUnsupported, "--loss grpo with {}: {}", flag, why);
    };
    const std::string& reference = o.preference.ref_model;
    if (!reference.empty() && o.grpo.beta == 0) {
        return refuse("--ref-model and --beta 0", "the loss has no reference model. Add --beta");
    }
    if (!reference.empty() && o.lora.on()) {
        return refuse("--ref-model and --lora", "the reference is the model before training");
    }
    return {};
}

Status CheckLossTerms(const TrainerOptions& o) {
    const auto is_size = [](double x) { return x >= 0 && std::isfinite(x); };
    if (!is_size(o.z_loss) || !is_size(o.neftune_alpha)) {
        return MakeError(ErrorCode::kUsage,
                         "--z-loss {} --neftune-alpha {}: expected 0 (none) or more", o.z_loss,
                         o.neftune_alpha);
    }
    const double smoothing = o.preference.label_smoothing;
    if (!IsSupervised(o) || (smoothing >= 0 && smoothing < 1)) return {};
    return MakeError(ErrorCode::kUsage, "--label-smoothing {}: expected 0 to below 1", smoothing);
}

Status CheckGradType(const TrainerOptions& o) {
    const std::string_view narrow = FlagOf(o.dtype);
    const bool known = o.grad_dtype == "auto" || o.grad_dtype == "f32";
    if (known || (o.dtype != DType::kF32 && o.grad_dtype == narrow)) return {};
    return MakeError(ErrorCode::kUsage,
                     "--grad-dtype {} with --dtype {}: gradients accumulate in the type in which "
                     "they are computed, or in float32: use auto, f32{}",
                     o.grad_dtype, FlagOf(o.dtype),
                     o.dtype == DType::kF32 ? "" : fmt::format(" or {}", narrow));
}

}  // namespace

Result<program::Recompute> FindRecompute(const std::string& name) {
    if (name == "none" || name == "auto") return program::Recompute::kNone;
    if (name == "selective") return program::Recompute::kSelective;
    if (name == "full") return program::Recompute::kFull;
    return MakeError(ErrorCode::kUsage, "--recompute {}: expected auto, none, selective or full",
                     name);
}

Status CheckContext(int cp, std::string_view answers, bool sequence_parallel) {
    if (cp < 0) return MakeError(ErrorCode::kUsage, "--cp {}: expected 1 or more", cp);
    if (cp <= 1) return {};
    const auto refuse = [&](std::string_view flag, std::string_view why) {
        return MakeError(ErrorCode::kUsage, "--cp {} with {}: {}", cp, flag, why);
    };
    if (!answers.empty()) {
        return refuse(answers, "an answer's loss needs all of its rows on one rank. Use --dp");
    }
    if (sequence_parallel) {
        return refuse("--sequence-parallel on", "both divide the rows. Use one of the two");
    }
    return {};
}

bool IsSupervised(const TrainerOptions& o) {
    return o.preference.loss == LossKind::kTokens;
}

Status CheckTrainer(const TrainerOptions& o) {
    if (o.from_scratch && o.lora.on()) {
        return MakeError(ErrorCode::kUsage,
                         "--lora with --from-scratch: adapters would train, but the random weights "
                         "would not. Remove one of the two");
    }
    if (o.update.kind == UpdateKind::kMuon && o.lora.on()) {
        return MakeError(ErrorCode::kUsage,
                         "--optimizer muon with --lora: Muon updates the matrices of layers, and "
                         "with --lora only adapters train. Use --optimizer adamw");
    }
    WEFT_TRY(CheckAdapterDropout(o));
    if (o.sequence < 1 || o.sequence > 1 << 20 || o.micro_batch < 1 || o.micro_batch > 4096) {
        return MakeError(ErrorCode::kUsage,
                         "--seq-len {} and --micro-batch {}: expected 1 to {}, and 1 to {}",
                         o.sequence, o.micro_batch, 1 << 20, 4096);
    }
    if (!(o.clip >= 0)) {
        return MakeError(ErrorCode::kUsage, "--clip {}: expected 0 (none) or more", o.clip);
    }
    WEFT_TRY(CheckPreference(o.preference));
    WEFT_TRY(CheckLossTerms(o));
    WEFT_TRY(CheckGrpo(o));
    const bool answers = o.grpo.on || o.preference.on() || o.vectors.on();
    WEFT_TRY(CheckContext(o.cp,
                          answers ? fmt::format("--loss {}", LossName(o.preference.loss)) : "",
                          o.sequence_parallel));
    WEFT_TRY(CheckVectors(o.vectors));
    WEFT_TRY(CheckUpdate(o.update));
    WEFT_TRY(CheckLossScale(o.loss_scale));
    if (o.zero < 0 || o.zero > 3) {
        return MakeError(ErrorCode::kUsage, "--zero {}: expected a stage of 0 to 3", o.zero);
    }
    if (o.overlap != "auto" && o.overlap != "on" && o.overlap != "off") {
        return MakeError(ErrorCode::kUsage, "--overlap {}: expected auto, on or off", o.overlap);
    }
    WEFT_TRY(CheckGradType(o));
    if (o.ep < 0 || o.router_aux_loss > 1e6) {
        return MakeError(ErrorCode::kUsage,
                         "--ep {} --router-aux-loss {}: expected 0 or more, and at most 1e6", o.ep,
                         o.router_aux_loss);
    }
    if (o.unit_elements < 1) {
        return MakeError(ErrorCode::kUsage, "units of {} weights: expected 1 or more",
                         o.unit_elements);
    }
    WEFT_TRY(CheckTurns(o));
    const auto recompute = FindRecompute(o.recompute);
    return recompute.ok() ? Status() : recompute.error();
}

Status CheckTurns(const TrainerOptions& o) {
    const int64_t stages = std::max(o.pp, 1), over = o.accumulation % stages;
    if (o.virtual_stages <= 1 || over == 0) return {};
    const int64_t below = o.accumulation - over;
    return MakeError(ErrorCode::kUsage,
                     "--virtual-stages {} with --pp {} takes micro-batches {} at a time, and "
                     "--grad-accum {} is {} x {} + {}: use {}{}",
                     o.virtual_stages, stages, stages, o.accumulation, below / stages, stages, over,
                     below > 0 ? fmt::format("{} or ", below) : "", below + stages);
}

const char* FlagOf(DType dtype) {
    if (dtype == DType::kF32) return "f32";
    return dtype == DType::kF16 ? "f16" : "bf16";
}

DType GradientTypeOf(const TrainerOptions& o, int64_t replicas) {
    if (o.grad_dtype == "f32") return DType::kF32;
    const bool many = o.grad_dtype == "auto" && o.accumulation * replicas > kNarrowSums;
    return many ? DType::kF32 : o.dtype;
}

TrainLayoutOptions LayoutWordsOf(const TrainerOptions& o) {
    return {o.tp, o.pp, o.dp, o.split, o.ep, o.virtual_stages, o.cp};
}

}  // namespace weft::train
