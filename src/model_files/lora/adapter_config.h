// adapter_config.json, as the package PEFT writes it (its LoraConfig, as of peft 0.21): what Weft
// can compute of it.
//
// An adapter that is taken is two matrices beside each weight, in inference y = x . W^T + scale *
// (x . A^T) . B^T with the model's own W. Every key is one of
//   read      r, lora_alpha, use_rslora, target_modules, exclude_modules, layers_to_transform,
//             lora_dropout, init_lora_weights
//   harmless  says nothing of y: where the adapter came from, how training began or was sped up
//   refused   unless its value means nothing: with it y is another one (DoRA, aLoRA, BD-LoRA,
//             PiSSA's changed base weights, replicated layers, ...)
// A key that is none of them is refused, unless its value means nothing.
// Input is hostile: model_files/hf/json.h.
#pragma once

#include <string>

#include "base/result.h"
#include "model_files/hf/json.h"

namespace weft::model_files {

inline constexpr const char* kAdapterConfigName = "/adapter_config.json";

// Errors: kUnsupported: an adapter that is more than above, naming the key, its value and what to
// do; kCorrupt.
Status CheckAdapterConfig(const hf::Config& config);

// What target_modules mean, as LoraWords::targets has it; "": a pattern, or some are excluded, so
// that the names of the adapter's tensors say it. Errors: kCorrupt.
Result<std::string> AdapterTargets(const hf::Config& config);
// kUnsupported: there are no tensors that could say it.
Error UnknownTargets(const hf::Config& config);

// The dropout that the adapter in `folder` was trained with: of no matter but for going on.
Result<double> AdapterDropout(const std::string& folder);

}  // namespace weft::model_files
