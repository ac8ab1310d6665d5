#include "kernels/reference/ops.h"
#include "kernels/vector/set.h"
#include "kernels/weight_tiles.h"

namespace weft::kernels::WEFT_SET {

Kernels Table() {
    Kernels table;
    table.level = Simd::kLevel;
    table.packed_bytes = weight_tiles::PackedBytes;
    table.pack = weight_tiles::Pack;
    table.quantized_bytes = [](int64_t cols) {
        return weight_tiles::QuantizedActivationBytes(cols);
    };
    table.embedding = weight_tiles::Embedding;
    table.sum_squares = reference::SumSquares;
    table.rope_table = reference::RopeTable;
    SetMatMul(table);
    SetRows(table);
    SetAttention(table);
    SetLatent(table);
    SetAdapt(table);
    SetGemm(table);
    SetCausal(table);
    SetRecurrent(table);
    SetSparse(table);
    return table;
}

}  // namespace weft::kernels::WEFT_SET
