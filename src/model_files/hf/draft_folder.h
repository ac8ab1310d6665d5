// Folders of EAGLE-3 draft heads: config.json and the tensors of one layer with its own ends
// (model/draft_head.h). Exporters name the layer "midlayer" (EAGLE, SpecForge, ModelOpt) or
// "layers.0" (speculators, which nests the layer's keys in transformer_layer_config).
//
// OpenFolder opens such a folder as a source of architecture "eagle3" with the tensors blk.0.*,
// blk.0.hidden_norm.weight, fc.weight, output_norm.weight, output.weight and, if the folder has
// them, token_embd.weight and d2t.weight [draft vocabulary], the model's token of each draft token.
// Keys beside those of every model: eagle3.target_layers (the layers whose input the head reads),
// eagle3.target_length (columns of the model's residual stream), eagle3.norm_before_residual,
// eagle3.norm_output, eagle3.folder.
// Sources: Li et al. 2025, "EAGLE-3"; the heads of vLLM, SGLang and speculators.
#pragma once

#include <string>

#include "model_files/hf/family.h"

namespace weft::model_files::hf {

inline constexpr std::string_view kEagleArchitecture = "eagle3";

extern const Family kEagleFamily;
// Whether a config.json describes a draft head for another model.
bool IsDraftHead(const Config& config);
// Whether `path` is a folder with such a config.json.
bool IsDraftFolder(const std::string& path);

}  // namespace weft::model_files::hf
