// The scalar definitions of every kernel but the weight matrices': plain float32, in the order that
// the formula is read. Arguments, shapes and the meaning of (part, parts) are in kernels/kernels.h.
#pragma once

#include "kernels/kernels.h"

namespace weft::kernels::reference {

void RmsNorm(const RmsNormArgs& args, int part, int parts);
void SumSquares(const SumSquaresArgs& args, int part, int parts);
void RopeTable(const RopeTableArgs& args, int part, int parts);
void Rope(const RopeArgs& args, int part, int parts);
void KvWrite(const KvWriteArgs& args, int part, int parts);
void Attention(const AttentionArgs& args, int part, int parts);
int64_t AttentionScratch(int64_t head_dim, int64_t group);
void Glu(const GluArgs& args, int part, int parts);
void Add(const AddArgs& args, int part, int parts);
void AddBias(const AddBiasArgs& args, int part, int parts);
void Scale(const ScaleArgs& args, int part, int parts);
void SoftCap(const SoftCapArgs& args, int part, int parts);

// One gated unit: act(gate) * up.
float Gated(Activation activation, float gate, float up);

// One head's K and V of one slot, as floats: what any kernel means by the contents of a cache.
void ReadKey(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out);
void ReadValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out);
// Writes one plain row.
void WriteValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, const float* row);

}  // namespace weft::kernels::reference
