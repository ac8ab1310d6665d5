// Reads DeepSpeed's configuration files, resolves "auto", and reports unsupported keys.
//
// Format: JSON with comments and trailing commas (https://www.deepspeed.ai/docs/config-json/; names
// and defaults as of deepspeed 0.19.8). Every key is one of
//   mapped    it sets a field below
//   the same  Weft always does what the key requests, or the key has no effect: no message
//   warned    no effect in Weft; the warning states the reason, or names a replacement
//   refused   training would differ from the request: kUnsupported, which names the key
// The table is DsKeys(); docs/deepspeed.md shows it. An unknown key is a warning that names the
// nearest known key.
//
// "auto" is resolved as in transformers' Trainer: batch sizes, clipping, optimizer and scheduler
// come from the command line. With hidden size h, reduce_bucket_size is h * h,
// stage3_prefetch_bucket_size is int(0.9 * h * h), and stage3_param_persistence_threshold is 10 *
// h. Defaults if neither the file nor the command line sets a value: lr 5e-5, betas 0.9 and 0.999,
// eps 1e-8, weight decay 0, clipping at 1, no warm-up, a micro-batch of 1, and accumulation of 1.
// For any other key, "auto" means the default, with a warning. A file without gradient_clipping
// does not clip, as in DeepSpeed.
//
// Errors: kCorrupt: invalid JSON, or a value of the wrong type or out of range; the message has the
// key's path, the expected and the actual value. kUsage: contradictions within the file, or between
// file and command line (such as train_batch_size != micro-batch x accumulation x ranks).
// kUnsupported: refused keys, and optimizers and schedulers that Weft lacks.
// Hostile input: the text may have at most 16 MiB and 32 levels of nesting.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tensor/dtype.h"
#include "train/schedule.h"
#include "train/update/options.h"

namespace weft::train {

enum class Precision { kF32, kF16, kBf16 };
constexpr DType DTypeOf(Precision precision) {
    if (precision == Precision::kF32) return DType::kF32;
    return precision == Precision::kF16 ? DType::kF16 : DType::kBF16;
}
constexpr Precision PrecisionOf(DType dtype) {
    if (dtype == DType::kF32) return Precision::kF32;
    return dtype == DType::kF16 ? Precision::kF16 : Precision::kBf16;
}

// Values from the command line; empty: not given.
struct DsFlags {
    int64_t ranks = 1;        // data-parallel ranks
    int64_t hidden_size = 0;  // of the model; 0: unknown, so "auto" bucket sizes are errors
    std::optional<int64_t> micro_batch, accumulation, train_batch;
    // If total_steps is "auto" and not given here, it becomes 0: the steps of the run.
    std::optional<int64_t> warmup_steps, total_steps;
    std::optional<int64_t> stage;  // ZeRO stage
    std::optional<double> clip, lr, beta1, beta2, eps, weight_decay;
    std::optional<Precision> precision;  // for "auto" in fp16 and bf16; empty: bf16
    std::optional<double> loss_scale;    // 0: dynamic
};

struct DsOptimizer {
    UpdateKind kind = UpdateKind::kAdamW;
    double lr = 1e-3;
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;  // Adam, AdamW
    double weight_decay = 0;
    bool bias_correction = true;
    double momentum = 0, dampening = 0;  // SGD
    bool nesterov = false;
    double beta2_decay = -0.8, eps_scale = 1e-3, clip_update = 1;  // Adafactor; eps as above
};

// Loss scaling: the section "fp16".
struct DsLossScale {
    double fixed = 0;  // 0: dynamic
    int64_t initial_power = 16, window = 1000, hysteresis = 2;
    bool consecutive_hysteresis = false;
    double least = 1;
};

enum class DsDevice { kNone, kCpu, kNvme };

struct DsOffload {
    DsDevice device = DsDevice::kNone;
    std::string path;  // nvme_path
    double ratio = 1;
};

struct DsZero {
    int stage = 0;
    std::optional<bool> overlap_comm;  // empty: Weft's default
    // Elements; empty: Weft's default.
    std::optional<int64_t> reduce_bucket, allgather_bucket, prefetch_bucket;
    int64_t persistence_threshold = 100'000;  // elements
    bool gather_weights_on_save = false;
    DsOffload optimizer, parameters;
};

struct DsActivations {
    bool given = false;  // the file has the section
    bool on_cpu = false;
};

struct DsMonitor {
    bool enabled = false;
    std::string path, job = "DeepSpeedJobName";
};

struct DsConfig {
    int64_t train_batch = 1, micro_batch = 1, accumulation = 1;
    std::optional<DsOptimizer> optimizer;
    std::optional<Schedule> schedule;
    double clip = 1;  // 0: none
    Precision precision = Precision::kF32;
    DsLossScale loss_scale;
    DsZero zero;
    DsActivations activations;
    std::optional<Precision> communication;  // communication_data_type
    std::optional<Precision> accumulate;     // data_types.grad_accum_dtype
    std::optional<int64_t> steps_per_print;
    bool drop_last = false;  // dataloader_drop_last
    DsMonitor tensorboard, csv;
    std::vector<std::string> warnings;  // "zero_optimization.x: ..."
};

// `where` names the text in errors: the file's path.
Result<DsConfig> ParseDsConfig(std::string_view text, const std::string& where,
                               const DsFlags& flags);
Result<DsConfig> ReadDsConfig(const std::string& path, const DsFlags& flags);

enum class DsType { kSection, kWhole, kBool, kInt, kNumber, kString, kNumbers, kAny };
enum class DsUse { kMapped, kSame, kWarned, kRefused };

// One known key. A section has a row, too.
struct DsKey {
    std::string_view path;  // "zero_optimization.stage"
    DsType type;
    DsUse use;
    std::string_view here;       // what the key means in Weft
    double least = 0, most = 0;  // valid range of a number
    bool fills_auto = false;     // accepts "auto"
};
std::span<const DsKey> DsKeys();

}  // namespace weft::train
