// Reference products with weights. Packed rows have the same blocks as the file, activations are
// float32, and every product uses the dequantized weight. The fast tables are tested against this,
// and `--reference` runs it. Contracts: kernels/kernels.h. `cols`: any number of whole blocks.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::reference {

int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols);
void Pack(const PackedMatrix& matrix, int64_t row_begin, int64_t count, const std::byte* source,
          int64_t source_stride_bytes);
int64_t QuantizedActivationBytes(int64_t cols);  // 64, but unused: matmul reads args.x
void QuantizeActivations(const QuantizeActivationsArgs& args, int part, int parts);
void MatMul(const MatMulArgs& args, int part, int parts);
void Embedding(const EmbeddingArgs& args, int part, int parts);

}  // namespace weft::kernels::reference
