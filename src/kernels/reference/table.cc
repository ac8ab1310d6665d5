#include "kernels/reference/elements.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/ops.h"

namespace weft::kernels::reference {

Kernels Table() {
    Kernels table{kGemm, kCausal, kRows, kAdapt, kRecurrent, kSparse};
    table.level = CpuLevel::kReference;
    table.packed_bytes = PackedBytes;
    table.pack = Pack;
    table.activation_format = [](DType) { return ActivationFormat::kNone; };
    table.quantized_bytes = QuantizedActivationBytes;
    table.quantize_activations = QuantizeActivations;
    table.matmul = MatMul;
    table.embedding = Embedding;
    table.sum_squares = SumSquares;
    table.rope_table = RopeTable;
    table.kv_write = KvWrite;
    table.attention = Attention;
    table.attention_scratch = AttentionScratch;
    table.latent_attention = LatentAttention;
    table.soft_cap = SoftCap;
    return table;
}

}  // namespace weft::kernels::reference
