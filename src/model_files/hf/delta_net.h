// Gated delta nets of Hugging Face folders (Qwen3-Next, Qwen 3.5, OLMo-Hybrid).
#pragma once

#include "model_files/hf/assembly.h"

namespace weft::model_files::hf {

// Which layers have recurrent state.
Result<std::vector<bool>> RecurrentLayers(const Config& config);
Status DeltaNetMeta(const Config& config, MetaWriter& meta);

// The projections of a layer: one tensor with, for each key head, its query, key, values and gates;
// one tensor for each kind, with value heads ordered key head by key head (GGUF files have the
// first one of each key head, then the second of each, and so on); or all separate.
enum class DeltaForm : uint8_t { kTogether, kByKind, kSeparate };
Status AddDeltaNet(Assembly& assembly, int64_t layer, const std::string& prefix, DeltaForm form);

// Attention of the other layers.
inline constexpr Rule kDeltaAttentionRules[] = {
    {"attn_q", "self_attn.q_proj", Form::kLinear, false},
    {"attn_k", "self_attn.k_proj", Form::kLinear, false},
    {"attn_v", "self_attn.v_proj", Form::kLinear, false},
    {"attn_output", "self_attn.o_proj", Form::kLinear, false},
    {"attn_q_norm", "self_attn.q_norm", Form::kNorm, false},
    {"attn_k_norm", "self_attn.k_norm", Form::kNorm, false},
};

// Family::adapted for each form.
Result<std::vector<AdaptedPart>> TogetherParts(const ModelSource& source);
Result<std::vector<AdaptedPart>> ByKindParts(const ModelSource& source);
Result<std::vector<AdaptedPart>> SeparateParts(const ModelSource& source);

}  // namespace weft::model_files::hf
