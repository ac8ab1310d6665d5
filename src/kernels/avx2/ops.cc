#include "kernels/avx2/ops.h"

#include "kernels/avx2/simd.h"
#include "kernels/reference/ops.h"
#include "kernels/vector_ops.h"

namespace weft::kernels::avx2 {

void RmsNorm(const RmsNormArgs& args, int part, int parts) {
    RmsNormRows<Simd>(args, part, parts);
}

void Rope(const RopeArgs& args, int part, int parts) {
    RopeRows<Simd>(args, part, parts);
}

void KvWrite(const KvWriteArgs& args, int part, int parts) {
    if (args.k_cache.dtype == DType::kQ8_0) return reference::KvWrite(args, part, parts);
    KvWriteRows<Simd>(args, part, parts);
}

void Glu(const GluArgs& args, int part, int parts) {
    GluRows<Simd>(args, part, parts);
}

void Add(const AddArgs& args, int part, int parts) {
    AddRows<Simd>(args, part, parts);
}

void AddBias(const AddBiasArgs& args, int part, int parts) {
    AddBiasRows<Simd>(args, part, parts);
}

void Scale(const ScaleArgs& args, int part, int parts) {
    ScaleRows<Simd>(args, part, parts);
}

void SoftCap(const SoftCapArgs& args, int part, int parts) {
    SoftCapRows<Simd>(args, part, parts);
}

}  // namespace weft::kernels::avx2
