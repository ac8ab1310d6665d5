// Checks adapter_config.json, as the package PEFT writes it (its LoraConfig, as of peft 0.21).
//
// A supported adapter is two matrices per weight, which change y = x . W^T to y = x . W^T + scale *
// (x . A^T) . B^T with the model's own W. Every key is one of
//   read      r, lora_alpha, use_rslora, target_modules, exclude_modules, layers_to_transform,
//             lora_dropout, init_lora_weights
//   harmless  does not change y: the adapter's origin, its initialization, speed-ups of training
//   refused   changes y, unless it has an empty value (DoRA, aLoRA, BD-LoRA, PiSSA's changed base
//             weights, replicated layers, ...)
// Any other key is refused, unless it has an empty value.
// Input is hostile: model_files/hf/json.h.
#pragma once

#include <string>

#include "base/result.h"
#include "model_files/hf/json.h"

namespace weft::model_files {

inline constexpr const char* kAdapterConfigName = "/adapter_config.json";

// Errors: kUnsupported, with the key, its value and the next step, for an adapter with refused
// keys; kCorrupt.
Status CheckAdapterConfig(const hf::Config& config);

// target_modules in the form of LoraOptions::targets. "": target_modules is a pattern or
// exclude_modules is set, so the targets must be taken from the names of the adapter's tensors.
// Errors: kCorrupt.
Result<std::string> AdapterTargets(const hf::Config& config);
// Makes the error kUnsupported: the targets can't be taken from tensor names, since there are no
// tensors.
Error UnknownTargets(const hf::Config& config);

// The dropout that the adapter in `folder` was trained with; used only to continue training.
Result<double> AdapterDropout(const std::string& folder);

}  // namespace weft::model_files
