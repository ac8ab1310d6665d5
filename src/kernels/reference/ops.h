// Scalar definitions of every kernel except those for weight matrices (matmul.h) and those in
// elements.h: plain float32, in the order of the formula. Arguments, shapes and the meaning of
// (part, parts) are in kernels/args.h.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::reference {

Kernels Table();

void SumSquares(const SumSquaresArgs& args, int part, int parts);
void RopeTable(const RopeTableArgs& args, int part, int parts);
void KvWrite(const KvWriteArgs& args, int part, int parts);
void Attention(const AttentionArgs& args, int part, int parts);
int64_t AttentionScratch(int64_t head_dim, int64_t group);
void BlockAttention(const BlockAttentionArgs& args, int part, int parts);
void LatentAttention(const LatentAttentionArgs& args, int part, int parts);
void SoftCap(const SoftCapArgs& args, int part, int parts);

// Read one head's K or V of one slot, as floats. These functions define the layout of a cache for
// all kernels.
void ReadKey(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out);
void ReadValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out);
// Writes one row of a V cache.
void WriteValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, const float* row);

}  // namespace weft::kernels::reference
