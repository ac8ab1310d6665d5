// Latent attention and the indexer that chooses its positions, by rows and structs as ops.h has
// them.
#pragma once

#include <cstdint>

#include "program/op_row.h"

namespace weft::program {

// The indexer of sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2"): the K positions that a row
// attends to. `key` goes to the cache; then each position up to the row's own gets the score
//     sum over heads h of weights[h] * max(0, q[h] . key)
// and the K highest are chosen; of equal ones the lower position. `chosen` has them ascending, and
// -1 behind them in rows that see fewer than K.
struct IndexTopK {
    static constexpr OpRow kRow{"index_top_k",
                                "q[T,n] key[T,d] weights[T,h] cache[1,d]:state -> chosen[T,K]:i32",
                                Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    void Show(auto&) const {}
};

// Latent attention, absorbed. A position's latent and key are one row of the cache, which all heads
// read: as key both, as value the latent. With `chosen` (index_top_k's) a row attends to these
// positions alone.
struct LatentAttention {
    static constexpr OpRow kRow{
        "latent_attention",
        "q_latent[T,n] q_key[T,_] latent[T,_] key[T,_] (chosen[T,K]:i32) cache[1,_]:state"
        " -> y[T,n]",
        Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    int64_t heads = 0;
    float scale = 1;
    void Show(auto& show) const {
        show("heads", heads);
        show("scale", scale);
    }
};

}  // namespace weft::program
