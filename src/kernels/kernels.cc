#include "kernels/kernels.h"

#include "kernels/amx/matmul.h"
#include "kernels/avx2/matmul.h"
#include "kernels/avx2/ops.h"
#include "kernels/avx512/matmul.h"
#include "kernels/avx512/ops.h"
#include "kernels/reference/matmul.h"
#include "kernels/reference/ops.h"
#include "kernels/strips.h"

namespace weft::kernels {
namespace {

Prepared Never(DType) {
    return Prepared::kNone;
}

Prepared AsInt8(DType weight) {
    return Info(weight).quantized ? Prepared::kInt8 : Prepared::kNone;
}

Prepared AsInt8OrBF16(DType weight) {
    return weight == DType::kBF16 ? Prepared::kBF16 : AsInt8(weight);
}

constexpr Kernels kReference = {
    .level = CpuLevel::kReference,
    .packed_bytes = reference::PackedBytes,
    .pack = reference::Pack,
    .prepared_as = Never,
    .prepared_bytes = reference::PreparedBytes,
    .prepare = reference::Prepare,
    .matmul = reference::MatMul,
    .embedding = reference::Embedding,
    .rms_norm = reference::RmsNorm,
    .sum_squares = reference::SumSquares,
    .rope_table = reference::RopeTable,
    .rope = reference::Rope,
    .kv_write = reference::KvWrite,
    .attention = reference::Attention,
    .attention_scratch = reference::AttentionScratch,
    .glu = reference::Glu,
    .add = reference::Add,
    .add_bias = reference::AddBias,
    .scale = reference::Scale,
    .soft_cap = reference::SoftCap,
};

constexpr Kernels kAvx2 = {
    .level = CpuLevel::kAvx2,
    .packed_bytes = strips::PackedBytes,
    .pack = strips::Pack,
    .prepared_as = AsInt8,
    .prepared_bytes = strips::PreparedBytes,
    .prepare = avx2::Prepare,
    .matmul = avx2::MatMul,
    .embedding = strips::Embedding,
    .rms_norm = avx2::RmsNorm,
    .sum_squares = reference::SumSquares,
    .rope_table = reference::RopeTable,
    .rope = avx2::Rope,
    .kv_write = avx2::KvWrite,
    .attention = avx2::Attention,
    .attention_scratch = avx2::AttentionScratch,
    .glu = avx2::Glu,
    .add = avx2::Add,
    .add_bias = avx2::AddBias,
    .scale = avx2::Scale,
    .soft_cap = avx2::SoftCap,
};

constexpr Kernels kAvx512 = {
    .level = CpuLevel::kAvx512,
    .packed_bytes = strips::PackedBytes,
    .pack = strips::Pack,
    .prepared_as = AsInt8OrBF16,
    .prepared_bytes = strips::PreparedBytes,
    .prepare = avx512::Prepare,
    .matmul = avx512::MatMul,
    .embedding = strips::Embedding,
    .rms_norm = avx512::RmsNorm,
    .sum_squares = reference::SumSquares,
    .rope_table = reference::RopeTable,
    .rope = avx512::Rope,
    .kv_write = avx512::KvWrite,
    .attention = avx512::Attention,
    .attention_scratch = avx512::AttentionScratch,
    .glu = avx512::Glu,
    .add = avx512::Add,
    .add_bias = avx512::AddBias,
    .scale = avx512::Scale,
    .soft_cap = avx512::SoftCap,
};

// AVX-512's but for matrices.
constexpr Kernels kAmx = [] {
    Kernels kernels = kAvx512;
    kernels.level = CpuLevel::kAmx;
    kernels.matmul = amx::MatMul;
    return kernels;
}();

}  // namespace

const Kernels& KernelsFor(CpuLevel level) {
    switch (level) {
        case CpuLevel::kReference: return kReference;
        case CpuLevel::kAvx2: return kAvx2;
        case CpuLevel::kAvx512: return kAvx512;
        case CpuLevel::kAmx: return kAmx;
    }
    return kReference;
}

}  // namespace weft::kernels
