// RoPE settings of a Hugging Face folder, as transformers 5.24 reads them (modeling_rope_utils.py).
//
// config.json has several spellings of RoPE (rope_parameters, for all layers or by layer type;
// rope_theta and rope_scaling), and families differ in defaults. ResolveRope converts all of them
// to one complete form, which all other code reads. Every key is either applied or refused by name.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/gguf_writer.h"
#include "model_files/hf/json.h"

namespace weft::model_files::hf {

class MetaWriter;

// A family's deviations from the usual RoPE settings.
struct RopeTraits {
    bool by_layer_type = false;  // rope_parameters has full_attention and sliding_attention
    // The config.json key for the RoPE base of windowed layers, if rope_parameters lacks that base.
    // Empty: rope_parameters must have it.
    std::string_view windowed_base = {};
    bool partial = false;           // partial_rotary_factor is applied
    bool windowed_partial = false;  // also in windowed layers, with the same value
    bool windowed_share = false;    // windowed layers have a share of their own
    bool only_longrope = false;     // the family's only scaling; "yarn" is an old name for it
    // mrope_section is accepted: it divides the pairs of a head into time, height and width, which
    // have equal positions in text. "mrope" is an old name for the default.
    bool mrope = false;
    bool reads_interleave = false;  // rope_interleave may be false (latent.h)
    // llama_4_scaling_beta is applied: queries are scaled by a factor that grows with the position.
    bool temperature = false;
    // Keys of GGUF: yarn_log_multiplier is this many times mscale_all_dim; a magnitude is written
    // whole, or as a factor on the one that readers derive.
    double log_multiplier = 0.1;
    bool whole_magnitude = false;
};

// Replaces rope_parameters, rope_scaling and rope_theta by the complete form. `defaults`: the
// family's defaults, which `config` already contains.
// Errors: kUnsupported (a kind of scaling), kCorrupt or kNotFound (naming the key).
Result<Config> ResolveRope(const Config& config, const RopeTraits& traits, const Config& defaults);

// The complete form, for layers without a window.
struct RopeConfig {
    // "default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"
    std::string type = "default";
    double theta = 10000;
    double rotated = 1;           // part of a head's dims (proportional: of a head's pairs)
    double factor = 1;            // scaling factor of the type
    int64_t original = 0;         // yarn, longrope, llama3: context length before scaling
    double attention_factor = 1;  // yarn, longrope: factor on cosines and sines
    Config params;                // the type's other parameters
};
// `config` must be resolved.
Result<RopeConfig> ReadRope(const Config& config);

// Dims of a head, and the number of them that RoPE rotates. With "proportional" RoPE rotates all
// dims, but most of them by an angle of 0.
Result<int64_t> HeadDim(const Config& config);
Result<int64_t> RotaryDim(const Config& config, int64_t head_dim);

// Llama 3's divisors of the frequencies, [rotary / 2]: the tensor rope_freqs.weight.
Result<std::vector<float>> Llama3Factors(const RopeConfig& rope, int64_t rotary_dim);

// Vectors of RoPE scaling that are tensors in a GGUF file: [rotary / 2] each.
struct RopeVector {
    std::string tensor;
    std::vector<float> factors;
};
Result<std::vector<RopeVector>> RopeVectors(const Config& config);

// Writes the keys "rope.scaling.*". attn_factor is the magnitude (the factor on cosines and sines)
// divided by the magnitude that readers derive from the type. Files of olmo2 have the magnitude
// itself, as yarn_attn_factor, because llama.cpp's converter writes it so.
Status WriteRopeScaling(const Config& config, MetaWriter& meta);

// Writes rope.dimension_sections from a resolved mrope_section; `usual`: the default.
Status WriteRopeSections(const Config& config, MetaWriter& meta, std::vector<int64_t> usual);

// Writes "attention.temperature_*" if the resolved config has llama_4_scaling_beta.
Status WriteTemperature(const Config& config, MetaWriter& meta);

// Writes the RoPE base of windowed layers.
Status WriteWindowedBase(const Config& config, MetaWriter& meta);

}  // namespace weft::model_files::hf
