// Multi-head latent attention (DeepSeek-AI 2024): what a model's metadata says of it.
//
// Keys: attention.kv_lora_rank, attention.q_lora_rank, rope.dimension_count, and the columns of a
// head, attention.key_length_mla and value_length_mla (older files: key_length, value_length).
// Tensors: blk.N.attn_q_a and attn_q_b (or attn_q), attn_kv_a_mqa, and for each head attn_k_b
// [rank, nope] and attn_v_b [value, rank] (older files: both in attn_kv_b, keys transposed).
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "model_files/model_file.h"

namespace weft::model {

struct Latent {
    int64_t rank = 0;    // columns of the latent that is cached; 0: the model has none
    int64_t q_rank = 0;  // of the query's latent; 0: queries are projected at once
    int64_t nope = 0;    // columns of a head's key that are not rotated
    int64_t rope = 0;    // and that are, shared by all heads
    int64_t value = 0;   // columns of a head's value
};

// rank == 0 where the model has none. Errors: kCorrupt, kUnsupported, naming the key.
Result<Latent> ReadLatent(const model_files::ModelSource& source, const std::string& architecture);

}  // namespace weft::model
