#include "kernels/reference/ops.h"
#include "kernels/strips.h"
#include "kernels/vector/set.h"

namespace weft::kernels::WEFT_SET {

Kernels Table() {
    Kernels table;
    table.level = Simd::kLevel;
    table.packed_bytes = strips::PackedBytes;
    table.pack = strips::Pack;
    table.prepared_bytes = [](int64_t cols) { return strips::PreparedBytes(cols); };
    table.embedding = strips::Embedding;
    table.sum_squares = reference::SumSquares;
    table.rope_table = reference::RopeTable;
    SetMatMul(table);
    SetRows(table);
    SetAttention(table);
    SetLatent(table);
    SetAdapt(table);
    SetGemm(table);
    SetCausal(table);
    return table;
}

}  // namespace weft::kernels::WEFT_SET
