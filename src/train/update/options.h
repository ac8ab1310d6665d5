// Which optimizer updates weights, and its numbers, as users give them.
#pragma once

#include <optional>
#include <string_view>

#include "base/result.h"

namespace weft::train {

enum class UpdateKind { kAdamW, kAdam, kSgd, kAdafactor, kAdam8bit };

// "adamw", "adam", "sgd", "adafactor", "adam8bit".
std::string_view UpdateName(UpdateKind kind);
// These, and those of transformers' --optim that mean one of them ("adamw_torch", "adamw_8bit").
std::optional<UpdateKind> FindUpdate(std::string_view name);
inline constexpr char kUpdateNames[] = "adamw, adam, sgd, adafactor or adam8bit";

// Of matrices only: vectors (norm weights, biases) are not decayed.
inline constexpr double kAdamWDecay = 0.01;

struct UpdateOptions {
    UpdateKind kind = UpdateKind::kAdamW;
    // AdamW, Adafactor and 8-bit Adam take it off the weight, Adam and SGD add it to the gradient.
    double weight_decay = kAdamWDecay;
    // Adam's three.
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    // SGD.
    double momentum = 0, dampening = 0;
    bool nesterov = false;
    // Adafactor (Shazeer and Stern 2018), named as transformers has them.
    double eps_square = 1e-30;    // added to squares of gradients
    double eps_scale = 1e-3;      // the least that a tensor's size counts
    double clip_threshold = 1.0;  // of an update's root mean square
    double decay_rate = -0.8;     // second moments keep 1 - step^decay_rate
    bool scale_parameter = false;  // the rate is times the root mean square of the tensor
    bool relative_step = false;    // the rate is min(1e-2, 1 / sqrt(step)), not the schedule's
};

// Of an element of a matrix, beside its weight (Adafactor's rows and columns are next to nothing).
double KeptBytes(const UpdateOptions& options);

// Numbers that make sense. Errors: kUsage, naming the flags.
Status CheckUpdate(const UpdateOptions& options);

}  // namespace weft::train
