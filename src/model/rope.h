// RoPE (Su et al. 2021): frequencies from a model's metadata, with scaling applied.
//
//   none, linear   base^(-2i/d), divided by the factor (Chen et al. 2023)
//   dynamic        as none up to the trained context; longer contexts are not supported
//   Llama 3        divided by the tensor rope_freqs.weight of GGUF files
//   yarn           frequencies with fewer than beta_slow turns over the original context are
//                  interpolated, those with more than beta_fast turns are unchanged, and those
//                  between are blended; also a factor on cosines and sines (Peng et al. 2023)
//   longrope       divided by the tensor rope_factors_short.weight for contexts up to the original
//                  one, else by rope_factors_long.weight; also a factor on cosines and sines (Ding
//                  et al. 2024). The tensor is chosen once per job, by --ctx or --seq-len.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Rope {
    std::vector<float> inverse_frequency;  // [rotary_dim / 2]
    float magnitude = 1;                   // factor on cosines and sines
    bool operator==(const Rope&) const = default;
};

// All RoPE settings of a file. Windowed layers may have other settings (Gemma 3).
struct Ropes {
    Rope all;
    Rope far;                      // longrope: for contexts beyond original_context; otherwise
                                   // equal to `all`
    Rope windowed, windowed_far;   // the same for windowed layers
    int64_t original_context = 0;  // the context that scaling extends; default: the trained context
    double yarn_factor = 1;        // 1: no yarn
    double yarn_log_multiplier = 0;  // yarn: 0.1 mscale_all_dim, as in DeepSeek files
    double dynamic_factor = 0;       // 0: no dynamic scaling
    // The context that YaRN extends to; the original context without YaRN.
    int64_t ExtendedContext() const;
    void TurnBack();  // negates all angles
    // RoPE of a layer in a job whose sequences may have `context` tokens.
    const Rope& Of(bool has_window, int64_t context) const {
        const bool beyond = original_context > 0 && context > original_context;
        if (has_window) return beyond ? windowed_far : windowed;
        return beyond ? far : all;
    }
};

// rotary_dim: number of rotated dims of a head. windowed_dim: the same for windowed layers; 0:
// rotary_dim. Errors: kUnsupported (an unknown kind of scaling), kCorrupt (the message names key or
// tensor).
Result<Ropes> ReadRopes(const model_files::ModelSource& source, const std::string& architecture,
                        int64_t rotary_dim, int64_t windowed_dim, int64_t context);

}  // namespace weft::model
