// The angles of RoPE (Su et al. 2021) as a model's metadata gives them, scaling applied.
//
//   none, linear   base^(-2i/d), divided by the factor (Chen et al. 2023)
//   dynamic        none, up to the trained context; beyond it, it is not supported
//   Llama 3        divided by the tensor rope_freqs.weight, as GGUF files hold it
//   yarn           a blend of both ends between beta_fast and beta_slow turns over the original
//                  context, and a magnitude for cosines and sines (Peng et al. 2023)
//   longrope       divided by the tensor rope_factors_short.weight up to the original context, by
//                  rope_factors_long.weight where a job takes more, and a magnitude (Ding et al.
//                  2024). Which one is chosen once for a job, from its --ctx.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Rope {
    std::vector<float> inverse_frequency;  // [rotary_dim / 2]
    float magnitude = 1;                   // of cosines and sines
    bool operator==(const Rope&) const = default;
};

// Everything that a file says of RoPE. Layers with a sliding window may turn otherwise than the
// rest (Gemma 3).
struct Ropes {
    Rope all;
    Rope far;                        // longrope beyond original_context; else `all`
    Rope windowed, windowed_far;     // the same of layers with a window
    int64_t original_context = 0;    // what scaling extends; the trained context where unsaid
    double yarn_factor = 1;          // 1 without yarn
    double yarn_log_multiplier = 0;  // yarn: 0.1 mscale_all_dim, as DeepSeek files give it
    double dynamic_factor = 0;       // 0 without dynamic scaling
    // What YaRN extends the original context to; the original context without YaRN.
    int64_t ExtendedContext() const;
    // Of a layer, in a job whose sequences may have `context` tokens.
    const Rope& Of(bool has_window, int64_t context) const {
        const bool beyond = original_context > 0 && context > original_context;
        if (has_window) return beyond ? windowed_far : windowed;
        return beyond ? far : all;
    }
};

// rotary_dim, windowed_dim: of all layers, and of those with a window (0: the same).
// Errors: kUnsupported (another kind of scaling), kCorrupt (naming key or tensor).
Result<Ropes> ReadRopes(const model_files::ModelSource& source, const std::string& architecture,
                        int64_t rotary_dim, int64_t windowed_dim, int64_t context);

}  // namespace weft::model
