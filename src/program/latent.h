// Ops of the Program in the form that ops.h describes: latent attention, the indexer that chooses
// its positions, the indexer that chooses blocks for attention, and attention to pooled windows.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "program/op_row.h"

namespace weft::program {

// The indexer of sparse attention (DeepSeek-AI 2025, "DeepSeek-V3.2"): chooses the K positions to
// which a row attends. It appends `key` to the cache, then scores each position up to the row's
// own:
//     sum over heads h of weights[h] * max(0, q[h] . key)
// and chooses the K highest; ties go to the lower position. `chosen` lists them ascending; unused
// entries at the end are -1 if the row sees fewer than K.
// stride: positions per window; if it is not 1, the op chooses windows instead of positions. A
// window's key is the key of its last row, and other rows have no key. A row sees the windows that
// end at or before it.
// positions: `chosen` lists the positions of the chosen windows, then the row's own and earlier
// ones that are in no window yet; K = windows * stride + stride - 1.
struct IndexTopK {
    static constexpr OpRow kRow{"index_top_k",
                                "q[T,n] key[T,d] weights[T,h] cache[1,d]:state -> chosen[T,K]:i32",
                                Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    int64_t stride = 1;
    bool positions = false;
    // The number of windows that a row chooses, if `chosen` has this many columns.
    int64_t Windows(int64_t columns) const {
        return positions ? (columns + 1 - stride) / stride : columns;
    }
    void Show(auto& show) const {
        if (stride != 1) show("stride", stride);
        show.Flag("positions", positions);
    }
};

// The indexer of block-sparse attention (MiniMax 2026, "MiniMax-M3"): chooses the blocks of `block`
// positions that attention reads for each row and KV head. It appends `key` to the cache, then
// scores each block up to the row's own:
//     max over positions of the block of q[head] . key
// and chooses for each head the K / heads blocks with the highest scores. The `local` last blocks
// are always among them; ties go to the lower block. `chosen` lists the blocks of each head,
// ascending, followed by -1 if the row sees fewer blocks.
struct IndexBlocks {
    static constexpr OpRow kRow{"index_blocks",
                                "q[T,n] key[T,d] cache[1,d]:state -> chosen[T,K]:i32",
                                Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    int64_t heads = 0;  // heads of q: this rank's KV heads
    int64_t block = 0;
    int64_t local = 1;
    void Show(auto& show) const {
        show("heads", heads);
        show("block", block);
        show("local", local);
    }
};

// Latent attention in the absorbed form (kernels/latent.h): the key and value matrices of the heads
// are applied to the query and to the result instead of to the cache. One row of the cache holds a
// position's latent and key. All heads read it: both parts as the key, the latent as the value.
// With `chosen` (the output of index_top_k) a row attends only to the chosen positions. sinks: each
// head has an extra score with a value of zeros. Without `keyed` the key is only the latent
// (GLM-5-next).
struct LatentAttention {
    static constexpr OpRow kRow{
        "latent_attention",
        "q_latent[T,n] (q_key[T,_]) latent[T,_] (key[T,_]) (sinks[h]) (chosen[T,K]:i32)"
        " cache[1,_]:state -> y[T,n]",
        Pass::kInference, Trait::kSeesEarlier | Trait::kAttention};
    int64_t heads = 0;
    float scale = 1;
    bool sinks = false, keyed = true;
    // Numbers of the inputs.
    size_t Latent() const { return keyed ? 2 : 1; }
    size_t Sinks() const { return keyed ? 4 : 2; }
    size_t Chosen() const { return Sinks() + (sinks ? 1 : 0); }
    bool Chooses(size_t inputs) const { return inputs == Chosen() + 2; }
    std::optional<bool> Has(std::string_view operand) const {
        if (operand == "sinks") return sinks;
        return operand == "chosen" ? std::nullopt : std::optional(keyed);
    }
    void Show(auto& show) const {
        show("heads", heads);
        show("scale", scale);
        show.Flag("sinks", sinks);
        show.Flag("keyless", !keyed);
    }
};

// Multiplies the columns of each head by slope[head] * log(position + 1) + offset[head].
struct ScaleHeads {
    static constexpr OpRow kRow{"scale_heads",
                                "x[T,n] positions[T]:i32 slope[h] offset[h] -> y[T,n]", Pass::kBoth,
                                Trait::kRowWise | Trait::kExact, 1};
};
// Each row adds s * log(position + 1) to the gradient of slope and s to the gradient of offset,
// where s is dy . x of a head.
struct ScaleHeadsGrad {
    static constexpr OpRow kRow{"scale_heads_grad",
                                "dy[T,n] x[T,n] positions[T]:i32"
                                " -> dslope[T,h]:exact doffset[T,h]:exact",
                                Pass::kBackward, Trait::kRowWise, 3};
};

struct PickColumns {  // columns [begin, begin + n) of each head
    static constexpr OpRow kRow{"pick_columns", "x[T,_]:part -> y[T,_]", Pass::kBoth,
                                Trait::kRowWise};
    int64_t heads = 1, begin = 0;
    void Show(auto& show) const {
        show("heads", heads);
        show("begin", begin);
    }
};
// x at columns [begin, begin + n) of each head, `rest` at the columns after them, zeros elsewhere.
struct PadHeads {
    static constexpr OpRow kRow{"pad_heads", "x[T,_] (rest[T,_]) -> y[T,_]", Pass::kTraining,
                                Trait::kRowWise | Trait::kCheap};
    int64_t heads = 1, begin = 0;
    void Show(auto& show) const {
        show("heads", heads);
        show("begin", begin);
    }
};

// Attention with one key for all heads, which is also the value (DeepSeek-V4). A row attends to the
// last `window` positions, including its own, and to windows of `stride` positions that end at or
// before it. With `chosen` (the output of index_top_k) it attends only to these windows. A window's
// entry is in the cache row of its last position. stride 0: no windows. Each head has an extra
// score, its sink, with a zero value.
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
