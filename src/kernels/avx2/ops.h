// The op kernels for AVX2. What they compute is defined by reference/ops.h; attention and the
// row-wise kernels are the templates of tiled_attention.h and vector_ops.h.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::avx2 {

void RmsNorm(const RmsNormArgs& args, int part, int parts);
void Rope(const RopeArgs& args, int part, int parts);
void KvWrite(const KvWriteArgs& args, int part, int parts);
void Attention(const AttentionArgs& args, int part, int parts);
int64_t AttentionScratch(int64_t head_dim, int64_t group);
void Glu(const GluArgs& args, int part, int parts);
void Add(const AddArgs& args, int part, int parts);
void AddBias(const AddBiasArgs& args, int part, int parts);
void Scale(const ScaleArgs& args, int part, int parts);
void SoftCap(const SoftCapArgs& args, int part, int parts);

}  // namespace weft::kernels::avx2
