#include "kernels/kernels.h"

#include "kernels/reference/matmul.h"
#include "kernels/reference/ops.h"

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
    .rms_norm = reference::RmsNorm,
    .rope_table = reference::RopeTable,
    .rope = reference::Rope,
    .kv_write = reference::KvWrite,
    .attention = reference::Attention,
    .attention_scratch = reference::AttentionScratch,
    .swiglu = reference::SwiGlu,
    .add = reference::Add,
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
