#include "tensor/encode.h"

#include "base/check.h"
#include "cpu_levels.h"
#include "tensor/encode/level.h"
#include "tensor/half.h"
#include "tensor/quant.h"
#include "tensor/quant_bytes.h"

namespace weft {
namespace {

// All levels give the same bits. A level that is not built is replaced by the base level, which
// compiles to NEON on aarch64.
const encode::Level& LevelOf([[maybe_unused]] CpuLevel level) {
#if WEFT_HAS_AVX2
    if (level == CpuLevel::kAvx2 || level == CpuLevel::kAvxVnni) return encode::kAvx2Level;
#endif
#if WEFT_HAS_AVX512
    if (level == CpuLevel::kAvx512 || level == CpuLevel::kAmx) return encode::kAvx512Level;
#endif
    return encode::kBaseLevel;
}

void DecodeBlocks(DType dtype, std::span<const std::byte> src, std::span<float> dst,
                  const encode::Level& level) {
    const DTypeInfo& info = Info(dtype);
    const auto elements = static_cast<size_t>(info.block_elements);
    const std::byte* block = src.data();
    BlockParts parts;
    for (size_t i = 0; i < dst.size(); i += elements, block += info.block_bytes) {
        SplitBlock(dtype, block, parts);
        level.join(parts, &dst[i], static_cast<int>(elements));
    }
}

}  // namespace

bool CanEncode(DType dtype) {
    const bool book = dtype >= DType::kIQ1_S && dtype <= DType::kIQ3_S;
    return book || CanQuantize(dtype);
}

void Encode(const EncodeArgs& args, CpuLevel level) {
    WEFT_CHECK(CanEncode(args.dtype) && args.cols > 0);
    WEFT_CHECK(args.cols % Info(args.dtype).block_elements == 0);
    const auto count = static_cast<int64_t>(args.src.size());
    WEFT_CHECK(count % args.cols == 0);
    WEFT_CHECK(static_cast<int64_t>(args.dst.size()) == RowBytes(args.dtype, count));
    WEFT_CHECK(args.importance.empty() ||
               static_cast<int64_t>(args.importance.size()) == args.cols);
    LevelOf(level).encode(args);
}

void Decode(DType dtype, std::span<const std::byte> src, std::span<float> dst, CpuLevel level) {
    WEFT_CHECK(static_cast<int64_t>(src.size()) ==
               RowBytes(dtype, static_cast<int64_t>(dst.size())));
    if (dtype == DType::kF16) {
        LevelOf(level).f16_to_f32(src.data(), dst.data(), dst.size());
    } else if (dtype == DType::kBF16) {
        for (size_t i = 0; i < dst.size(); ++i) {
            dst[i] = BF16ToF32(quant::LoadU16(src.data() + 2 * i));
        }
    } else if (HasIntegerCodes(dtype)) {
        DecodeBlocks(dtype, src, dst, LevelOf(level));
    } else {
        DequantizeRow(dtype, src, dst);
    }
}

}  // namespace weft
