// RoPE of a Hugging Face folder, as transformers 5.24 reads it (modeling_rope_utils.py).
//
// config.json spells RoPE in several ways (rope_parameters, for all layers or for each type of
// layer; rope_theta and rope_scaling), and families differ in defaults. ResolveRope turns all of
// them into one complete form; everything else reads that form. A key is honored, or refused by
// name.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "model_files/gguf_writer.h"
#include "model_files/hf/json.h"

namespace weft::model_files::hf {

class MetaWriter;

// How a family differs from the rest in RoPE.
struct RopeTraits {
    bool by_layer_type = false;  // rope_parameters has full_attention and sliding_attention
    // The key of config.json with the base of layers with a window, where rope_parameters names
    // none. Empty: rope_parameters must name it.
    std::string_view windowed_base = {};
    bool partial = false;           // partial_rotary_factor is honored
    bool windowed_partial = false;  // in layers with a window, too, which must have the same
    bool only_longrope = false;     // the one scaling of the family; "yarn" is an old name of it
    // mrope_section is honored: the pairs of a head that turn by time, height and width, which are
    // the same for text. "mrope" is an old name of the default.
    bool mrope = false;
    // llama_4_scaling_beta is honored: queries grow with their position.
    bool temperature = false;
};

// Replaces rope_parameters, rope_scaling and rope_theta by the complete form. `defaults`: the
// family's, which `config` has already where it says nothing else.
// Errors: kUnsupported (a kind of scaling), kCorrupt or kNotFound (a key, named).
Result<Config> ResolveRope(const Config& config, const RopeTraits& traits, const Config& defaults);

// The complete form, of layers without a window.
struct RopeConfig {
    // "default", "linear", "dynamic", "yarn", "longrope", "llama3", "proportional"
    std::string type = "default";
    double theta = 10000;
    double rotated = 1;           // share of a head's dims (proportional: of its pairs)
    double factor = 1;            // of the type
    int64_t original = 0;         // yarn, longrope, llama3: the context that is extended
    double attention_factor = 1;  // yarn, longrope: of cosines and sines
    Config params;                // what else the type has
};
// Of a resolved config.
Result<RopeConfig> ReadRope(const Config& config);

// Dims of a head that RoPE turns, and how many of them are rotated. With "proportional" all are,
// most by nothing.
Result<int64_t> HeadDim(const Config& config);
Result<int64_t> RotaryDim(const Config& config, int64_t head_dim);

// Llama 3's divisors of RoPE's frequencies, [rotary / 2]: the tensor rope_freqs.weight.
Result<std::vector<float>> Llama3Factors(const RopeConfig& rope, int64_t rotary_dim);

// The vectors of RoPE's scaling that a GGUF file has as tensors: [rotary / 2] each.
struct RopeVector {
    std::string tensor;
    std::vector<float> factors;
};
Result<std::vector<RopeVector>> RopeVectors(const Config& config);

// The keys "rope.scaling.*". attn_factor is the ratio of the magnitude to the one that readers
// derive from the type. Files of olmo2 have the magnitude itself as yarn_attn_factor, as
// llama.cpp's converter writes it.
Status WriteRopeScaling(const Config& config, MetaWriter& meta);

// The key rope.dimension_sections from a resolved mrope_section, or from `usual` where config.json
// has none.
Status WriteRopeSections(const Config& config, MetaWriter& meta, std::vector<int64_t> usual);

// The keys "attention.temperature_*", where a resolved config has a llama_4_scaling_beta.
Status WriteTemperature(const Config& config, MetaWriter& meta);

// The base of RoPE in layers with a window.
Status WriteWindowedBase(const Config& config, MetaWriter& meta);

}  // namespace weft::model_files::hf
