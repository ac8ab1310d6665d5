#include "kernels/kernels.h"

#include "kernels/reference/matmul.h"

namespace weft::kernels {
namespace {

constexpr Kernels kReference = {
    .level = CpuLevel::kReference,
    .packed_bytes = reference::PackedBytes,
    .pack = reference::Pack,
    .prepared_bytes = reference::PreparedBytes,
    .prepare = reference::Prepare,
    .matmul = reference::MatMul,
    .embedding = reference::Embedding,
    .rms_norm = nullptr,
    .rope_table = nullptr,
    .rope = nullptr,
    .kv_write = nullptr,
    .attention = nullptr,
    .attention_scratch = nullptr,
    .swiglu = nullptr,
    .add = nullptr,
};

}  // namespace

const Kernels& KernelsFor(CpuLevel level) {
    switch (level) {
        case CpuLevel::kReference: return kReference;
        case CpuLevel::kAvx2: return kReference;
        case CpuLevel::kAvx512: return kReference;
    }
    return kReference;
}

}  // namespace weft::kernels
