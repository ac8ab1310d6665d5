// Folders of separate draft heads, EAGLE-3 and DFlash: config.json and the tensors of the layers
// with their own ends (model/draft_head.h). Exporters of EAGLE-3 heads name the layer "midlayer"
// (EAGLE, SpecForge, ModelOpt) or "layers.0" (speculators). speculators nests the layers' keys in
// transformer_layer_config. z-lab nests other keys of DFlash heads in dflash_config.
//
// OpenFolder opens such a folder as a source of architecture "eagle3" or "dflash" with the tensors
// blk.N.*, fc.weight, output_norm.weight and hidden_norm.weight (of EAGLE-3 heads
// blk.0.hidden_norm.weight); output.weight, which DFlash heads may lack; and, if the folder has
// them, token_embd.weight and d2t.weight [draft vocabulary], the model's token of each draft token.
// Keys beside those of every model, after "eagle3." or "dflash.": target_layers (the layers whose
// input the head reads), target_length (columns of the model's residual stream), folder. Of EAGLE-3
// heads: norm_before_residual, norm_output. Of DFlash heads: block_size, mask_token_id, input_scale
// (factor on embeddings), ahead (layers in which rows of a block see later rows).
// Sources: Li et al. 2025, "EAGLE-3"; Chen et al. 2026, "DFlash"; the heads of z-lab, vLLM, SGLang
// and speculators.
#pragma once

#include <string>

#include "model_files/hf/family.h"

namespace weft::model_files::hf {

inline constexpr std::string_view kHeadArchitectures[] = {"eagle3", "dflash"};

// Whether a config.json describes a draft head for another model.
bool IsDraftHead(const Config& config);
// The family of such a config.json. (Family::adjust names a kind of head that is not supported.)
const Family& HeadFamily(const Config& config);
bool IsHeadFamily(const Family& family);
// Whether `path` is a folder with such a config.json.
bool IsDraftFolder(const std::string& path);
// Tokens that the head of such a folder drafts in one run; 0: one at a time, or an error.
int64_t BlockOfFolder(const std::string& path);

}  // namespace weft::model_files::hf
