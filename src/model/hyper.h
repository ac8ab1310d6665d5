// Hyper-parameters of a decoder-only transformer, read from a model's metadata.
//
// Key names follow the GGUF specification ("llama.block_count", ...), which HF folders will be
// mapped to as well. Everything is checked here, so that builders may trust it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "formats/model_file.h"

namespace weft::model {

struct Hyper {
    std::string architecture;   // "llama", "qwen2", "qwen3"
    int64_t layers = 0;
    int64_t hidden = 0;         // columns of the residual stream
    int64_t ffn = 0;            // columns of the MLP
    int64_t heads = 0;          // query heads
    int64_t kv_heads = 0;
    int64_t head_dim = 0;
    int64_t rotary_dim = 0;
    int64_t vocab = 0;          // rows of the embedding table
    int64_t context = 0;        // tokens the model was trained for
    float rms_eps = 1e-5f;
    std::vector<float> inverse_frequency;  // [rotary_dim / 2], RoPE scaling applied
    bool tied = false;          // the output matrix is the embedding table
    int64_t group() const { return heads / kv_heads; }
};

// Reads and checks the hyper-parameters. Errors: kUnsupported (names the architecture or feature
// and what is supported), kCorrupt (names the key).
Result<Hyper> ReadHyper(const formats::ModelSource& source);

}  // namespace weft::model
