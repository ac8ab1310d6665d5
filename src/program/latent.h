// Latent attention, the indexers that choose its positions or attention's blocks, and attention to
// pooled windows, by rows and structs as ops.h has them.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "program/op_row.h"

namespace weft::program {

// The indexer of sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2"): the K positions that a row
// attends to. `key` goes to the cache; then each position up to the row's own gets the score
//     sum over heads h of weights[h] * max(0, q[h] . key)
// and the K highest are chosen; of equal ones the lower position. `chosen` has them ascending, and
// -1 behind them in rows that see fewer than K.
// stride: windows of so many positions in place of positions. The key of a window is that of its
// last row; other rows have none, and a row sees the windows that end at it or before.
struct IndexTopK {
    static constexpr OpRow kRow{"index_top_k",
                                "q[T,n] key[T,d] weights[T,h] cache[1,d]:state -> chosen[T,K]:i32",
                                Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    int64_t stride = 1;
    void Show(auto& show) const {
        if (stride != 1) show("stride", stride);
    }
};

// The indexer of block-sparse attention (MiniMax 2026, "MiniMax-M3"): the blocks of `block`
// positions that attention of a row and KV head reads. `key` goes to the cache; then each block up
// to the row's own gets the score
//     max over positions of the block of q[head] . key
// and the K / heads highest are chosen for each head, the `local` last ones always; of equal ones
// the lower. `chosen` has them by head, ascending, and -1 behind them where a row sees fewer.
struct IndexBlocks {
    static constexpr OpRow kRow{"index_blocks",
                                "q[T,n] key[T,d] cache[1,d]:state -> chosen[T,K]:i32",
                                Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    int64_t heads = 0;  // of q: this rank's KV heads
    int64_t block = 0;
    int64_t local = 1;
    void Show(auto& show) const {
        show("heads", heads);
        show("block", block);
        show("local", local);
    }
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

// Columns of each head times slope[head] * log(position + 1) + offset[head].
struct ScaleHeads {
    static constexpr OpRow kRow{"scale_heads",
                                "x[T,n] positions[T]:i32 slope[_] offset[_] -> y[T,n]",
                                Pass::kInference, Trait::kRowWise, 1};
};

struct PickColumns {  // columns [begin, begin + n) of each head's
    static constexpr OpRow kRow{"pick_columns", "x[T,_]:part -> y[T,_]", Pass::kInference,
                                Trait::kRowWise};
    int64_t heads = 1, begin = 0;
    void Show(auto& show) const {
        show("heads", heads);
        show("begin", begin);
    }
};

// Attention whose key is the value, too, and the same for all heads (DeepSeek-V4). A row attends to
// the rows of the last `window` positions, its own included, and to windows of `stride` positions
// that end at it or before: to all, or with `chosen` (index_top_k's) to these alone. The row that
// ends a window has its entry. stride 0: there are no windows. Each head has one score more, its
// sink, with a value of zeros.
struct WindowAttention {
    static constexpr OpRow kRow{
        "window_attention",
        "q[T,n] row[T,d] sinks[h] (entry[T,d]) (chosen[T,K]:i32) cache[1,d]:state"
        " (entries[1,d]:state) -> y[T,n]",
        Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    int64_t heads = 0, window = 0, stride = 0;
    float scale = 1;
    bool chooses = false;
    std::optional<bool> Has(std::string_view operand) const {
        return operand == "chosen" ? chooses : stride != 0;
    }
    void Show(auto& show) const {
        show("heads", heads);
        show("scale", scale);
        show("window", window);
        show.Where("stride", stride);
        show.Flag("chooses", chooses);
    }
};

}  // namespace weft::program
