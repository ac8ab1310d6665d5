// The optimizer and its options, as users give them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "base/result.h"

namespace weft::train {

enum class UpdateKind { kAdamW, kAdam, kSgd, kAdafactor, kAdam8bit, kLion, kScheduleFree, kMuon };

// "adamw", "adam", "sgd", "adafactor", "adam8bit", "lion", "schedule-free", "muon".
std::string_view UpdateName(UpdateKind kind);
// Also accepts the names of transformers' --optim with the same meaning ("adamw_torch",
// "adamw_8bit").
std::optional<UpdateKind> FindUpdate(std::string_view name);
inline constexpr char kUpdateNames[] =
    "adamw, adam, sgd, adafactor, adam8bit, lion, schedule-free or muon";

// Default weight decay of matrices. Vectors (norm weights, biases) have no weight decay.
inline constexpr double kAdamWDecay = 0.01;

struct UpdateOptions {
    UpdateKind kind = UpdateKind::kAdamW;
    // Adam and SGD add the decay to the gradient; the others subtract it from the weight.
    double weight_decay = kAdamWDecay;
    // All forms of Adam and Lion use these; Muon, for what is no hidden matrix.
    double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
    // SGD uses these; Muon uses the momentum.
    double momentum = 0, dampening = 0;
    bool nesterov = false;
    // Options of Adafactor (Shazeer and Stern 2018), with transformers' names.
    double eps_square = 1e-30;     // added to squared gradients
    double eps_scale = 1e-3;       // lower bound of a tensor's root mean square
    double clip_threshold = 1.0;   // limit of an update's root mean square
    double decay_rate = -0.8;      // second moments decay by 1 - step^decay_rate
    bool scale_parameter = false;  // multiply the rate by the tensor's root mean square
    bool relative_step = false;    // rate min(1e-2, 1 / sqrt(step)) instead of the schedule's
    // Muon: updates of matrices have the size of AdamW's (torch's match_rms_adamw), so both can
    // have one rate. False: torch's original, sqrt(max(1, rows / columns)).
    bool muon_adam_size = true;
    // An average of the weights for the result; at most one of the two.
    double ema = 0;            // decay of a moving average; 0: none
    int64_t average_last = 0;  // mean after each of the last updates; 0: none
};

// The name that checkpoints give the average of the weights: "ema" or "sum". Null without an
// average.
const char* AverageKind(const UpdateOptions& options);

// Bytes of optimizer state per matrix element. Leaves out Adafactor's moments by row and column,
// which are small.
double KeptBytes(const UpdateOptions& options);

// Checks ranges. Errors: kUsage; the message names the flags.
Status CheckUpdate(const UpdateOptions& options);

}  // namespace weft::train
