// Checks adapter_config.json, as the package PEFT writes it (its LoraConfig, as of peft 0.21).
//
// A supported adapter is two matrices per weight, which change y = x . W^T to y = x . W^T + scale *
// (x . A^T) . B^T with the model's own W. Every key is one of
//   read      r, rank_pattern, lora_alpha, alpha_pattern, use_rslora, target_modules,
//             target_parameters, lora_dropout, init_lora_weights
//   shown     by the names of the adapter's tensors (exclude_modules, layers_to_transform,
//             layers_pattern), so that the key needs no reading
//   harmless  does not change y: the adapter's origin, its initialization, speed-ups of training
//   applied   changes more than y + ... (DoRA, modules_to_save, biases, rows of the embedding):
//   only
//             for LoraUse::kApply
//   refused   changes y, unless it has an empty value (aLoRA, BD-LoRA, PiSSA's changed base
//   weights,
//             replicated layers, ...)
// Any other key is refused, unless it has an empty value.
// Input is hostile: model_files/hf/json.h.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/hf/json.h"
#include "model_files/lora/plan.h"
#include "tokenizer/regex.h"

namespace weft::model_files {

inline constexpr const char* kAdapterConfigName = "/adapter_config.json";

// A number for the modules whose names end in an expression, as in rank_pattern.
struct ModuleNumber {
    tokenizer::Regex ending;
    double number;
};

// The settings of adapter_config.json.
struct AdapterConfig {
    // rank and alpha: of modules without a pattern. targets: modules of which each layer must have
    // an adapter; "": only the names of the adapter's tensors show which modules have one.
    LoraOptions words;
    std::vector<ModuleNumber> ranks, alphas;
    bool dora = false;
    std::vector<std::string> saved;       // modules_to_save
    std::vector<std::string> parameters;  // target_parameters
    bool scores = false;                  // task_type is SEQ_CLS
    // trainable_token_indices: tokens whose rows were trained, by the end of a module's name; "":
    // the embedding, whatever its name.
    std::map<std::string, std::vector<int64_t>> tokens;
    // `module`: the name in the Hugging Face model. The first pattern that fits counts, as in PEFT.
    int64_t RankOf(const std::string& module) const;
    double AlphaOf(const std::string& module) const;
};

// `text`: the file from which `config` was parsed; it has the order of patterns. Errors:
// kUnsupported, with the key, its value and the next step, for an adapter with refused keys;
// kCorrupt.
Result<AdapterConfig> ParseAdapterConfig(const hf::Config& config, std::string_view text,
                                         LoraUse use);

// The dropout that the adapter in `folder` was trained with; used only to continue training.
Result<double> AdapterDropout(const std::string& folder);

}  // namespace weft::model_files
