#include "kernels/strips.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "tensor/half.h"
#include "tensor/quant.h"

namespace weft::kernels::strips {
namespace {

// `count` elements of `size` bytes at `offset` of a row's block.
struct Field {
    int offset = 0, size = 0, count = 0;
};

// The fields of a type in packed order.
struct FieldList {
    std::array<Field, 50> fields = {};
    int count = 0;
    constexpr void Add(int offset, int size, int field_count) {
        fields[static_cast<size_t>(count++)] = {offset, size, field_count};
    }
    // Where field `index` begins in a packed block.
    constexpr int64_t Begin(size_t index) const {
        int64_t bytes = 0;
        for (size_t f = 0; f < index; ++f) bytes += fields[f].size * fields[f].count;
        return bytes * kStripRows;
    }
};

constexpr FieldList FieldsOf(DType dtype) {
    FieldList list;
    switch (FormOf(dtype)) {
        case Form::kFloats:
        case Form::kPlainBlocks: list.Add(0, static_cast<int>(Info(dtype).block_bytes), 1); break;
        case Form::kQ4_0: list.Add(2, 4, 4), list.Add(0, 2, 1); break;
        case Form::kQ4_1: list.Add(4, 4, 4), list.Add(0, 2, 1), list.Add(2, 2, 1); break;
        case Form::kQ5_0: list.Add(6, 4, 4), list.Add(2, 4, 1), list.Add(0, 2, 1); break;
        case Form::kQ5_1:
            list.Add(8, 4, 4), list.Add(4, 4, 1), list.Add(0, 2, 1), list.Add(2, 2, 1);
            break;
        case Form::kQ8_0: list.Add(2, 4, 8), list.Add(0, 2, 1); break;
        case Form::kIQ4_NL: list.Add(2, 4, 4), list.Add(0, 2, 1); break;
        case Form::kMXFP4: list.Add(1, 4, 4), list.Add(0, 1, 1); break;
        case Form::kW4: list.Add(4, 4, 4), list.Add(0, 4, 1); break;
        case Form::kW8: list.Add(4, 4, 8), list.Add(0, 4, 1); break;
        case Form::kQ4_K:  // the widened block: d, dmin, 8 scales, 8 minima, quants
            list.Add(0, 2, 1), list.Add(2, 2, 1), list.Add(4, 1, 8), list.Add(12, 1, 8);
            list.Add(20, 4, 32);
            break;
        case Form::kQ5_K:  // the same, with 32 bytes of fifth bits before the quants
            list.Add(0, 2, 1), list.Add(2, 2, 1), list.Add(4, 1, 8), list.Add(12, 1, 8);
            list.Add(20, 4, 8), list.Add(52, 4, 32);
            break;
        case Form::kIQ4_XS:  // the widened block: d, 8 scales, quants
            list.Add(0, 2, 1), list.Add(2, 1, 8), list.Add(10, 4, 32);
            break;
        case Form::kQ6_K:
            list.Add(208, 2, 1), list.Add(192, 1, 16);
            for (int half = 0; half < 2; ++half) {
                for (int i = 0; i < 32; i += 4) {
                    list.Add(half * 64 + i, 4, 1), list.Add(half * 64 + 32 + i, 4, 1);
                    list.Add(128 + half * 32 + i, 4, 1);
                }
            }
            break;
    }
    return list;
}

constexpr int kWidestBlock = 256;

// Types whose block is packed in another shape than the file's, below.
template <DType kType>
constexpr bool kReshaped =
    kType == DType::kQ4_K || kType == DType::kQ5_K || kType == DType::kIQ4_XS ||
    kType == DType::kQ5_0 || kType == DType::kQ5_1;

// The packed 6-bit scales and minima of Q4_K and Q5_K as bytes; the `rest` follows.
void WidenScales(const std::byte* block, size_t rest, std::byte* wide) {
    std::memcpy(wide, block, 4);
    for (int j = 0; j < 8; ++j) {
        const Q4KScale sub = LoadQ4KScale(block + 4, j);
        wide[4 + j] = static_cast<std::byte>(sub.scale);
        wide[12 + j] = static_cast<std::byte>(sub.min);
    }
    std::memcpy(wide + 20, block + 16, rest);
}

void NarrowScales(const std::byte* wide, size_t rest, std::byte* block) {
    std::fill(block, block + 16, std::byte{0});
    std::memcpy(block, wide, 4);
    for (int j = 0; j < 8; ++j) {
        StoreQ4KScale(block + 4, j,
                      {std::to_integer<int>(wide[4 + j]), std::to_integer<int>(wide[12 + j])});
    }
    std::memcpy(block + 16, wide + 20, rest);
}

// IQ4_XS: f16 d, u16 of high pairs and 4 bytes of low nibbles of eight scales; 32 is zero.
void WidenIq4Xs(const std::byte* block, std::byte* wide) {
    std::memcpy(wide, block, 2);
    uint16_t high;
    std::memcpy(&high, block + 2, sizeof high);
    for (int s = 0; s < 8; ++s) {
        const int low = std::to_integer<int>(block[4 + s / 2]) >> s % 2 * 4 & 15;
        wide[2 + s] = static_cast<std::byte>((low | (high >> 2 * s & 3) << 4) - 32);
    }
    std::memcpy(wide + 10, block + 8, 128);
}

void NarrowIq4Xs(const std::byte* wide, std::byte* block) {
    std::fill(block, block + 8, std::byte{0});
    std::memcpy(block, wide, 2);
    uint16_t high = 0;
    for (int s = 0; s < 8; ++s) {
        const int scale = static_cast<int8_t>(wide[2 + s]) + 32;
        block[4 + s / 2] |= static_cast<std::byte>((scale & 15) << s % 2 * 4);
        high = static_cast<uint16_t>(high | (scale >> 4) << 2 * s);
    }
    std::memcpy(block + 2, &high, sizeof high);
    std::memcpy(block + 8, wide + 10, 128);
}

// Fifth bits: bit k = 4g + i of the file is bit g of byte i here (kBack: the other way).
template <bool kBack>
void MoveFifthBits(std::byte* at) {
    uint32_t from, to = 0;
    std::memcpy(&from, at, sizeof from);
    for (int k = 0; k < 32; ++k) {
        const int here = k % 4 * 8 + k / 4;
        to |= (from >> (kBack ? here : k) & 1) << (kBack ? k : here);
    }
    std::memcpy(at, &to, sizeof to);
}

template <DType kType>
void Reshape(const std::byte* block, std::byte* shaped) {
    constexpr auto kBytes = static_cast<size_t>(Info(kType).block_bytes);
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
        WidenScales(block, kBytes - 16, shaped);
    } else if constexpr (kType == DType::kIQ4_XS) {
        WidenIq4Xs(block, shaped);
    } else {
        std::memcpy(shaped, block, kBytes);
        MoveFifthBits<false>(shaped + (kType == DType::kQ5_0 ? 2 : 4));
    }
}

template <DType kType>
void ShapeBack(const std::byte* shaped, std::byte* block) {
    constexpr auto kBytes = static_cast<size_t>(Info(kType).block_bytes);
    if constexpr (kType == DType::kQ4_K || kType == DType::kQ5_K) {
        NarrowScales(shaped, kBytes - 16, block);
    } else if constexpr (kType == DType::kIQ4_XS) {
        NarrowIq4Xs(shaped, block);
    } else {
        std::memcpy(block, shaped, kBytes);
        MoveFifthBits<true>(block + (kType == DType::kQ5_0 ? 2 : 4));
    }
}

// One field of one row's block into or out of lane `lane` of a packed block.
template <DType kType, size_t kIndex, bool kOut>
[[gnu::always_inline]] inline void MoveField(std::byte* packed, int64_t lane, std::byte* block) {
    static constexpr FieldList kList = FieldsOf(kType);
    constexpr Field kField = kList.fields[kIndex];
    constexpr int64_t kBegin = kList.Begin(kIndex);
    constexpr auto kSize = static_cast<size_t>(kField.size);
    std::byte* inside = packed + kBegin + lane * kField.size;
    std::byte* own = block + kField.offset;
#pragma GCC unroll 32
    for (int i = 0; i < kField.count; ++i, inside += kSize * kStripRows, own += kSize) {
        kOut ? std::memcpy(own, inside, kSize) : std::memcpy(inside, own, kSize);
    }
}

// All fields of it.
template <DType kType, bool kOut>
void MoveLane(std::byte* packed, int64_t lane, std::byte* block) {
    [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
        (MoveField<kType, kIndex, kOut>(packed, lane, block), ...);
    }
    (std::make_index_sequence<static_cast<size_t>(FieldsOf(kType).count)>());
}

template <DType kType>
void PackStrip(const PackedMatrix& matrix, std::byte* strip, int64_t count, const std::byte* source,
               int64_t stride) {
    constexpr int64_t kElements = Info(kType).block_elements, kBytes = Info(kType).block_bytes;
    const int64_t blocks = matrix.cols / kElements;
    [[maybe_unused]] std::byte shaped[kWidestBlock];
    for (int64_t b = 0; b < blocks; ++b, strip += BlockBytes(kType)) {
        if (count < kStripRows) std::memset(strip, 0, static_cast<size_t>(BlockBytes(kType)));
        for (int64_t lane = 0; lane < count; ++lane) {
            const std::byte* block = source + lane * stride + b * kBytes;
            if constexpr (kReshaped<kType>) {
                Reshape<kType>(block, shaped);
                block = shaped;
            }
            MoveLane<kType, false>(strip, lane, const_cast<std::byte*>(block));  // only read
        }
    }
}

template <DType kType>
void UnpackRow(const PackedMatrix& matrix, int64_t row, float* y) {
    constexpr int64_t kElements = Info(kType).block_elements;
    std::byte* strip = matrix.data + row / kStripRows * StripBytes(kType, matrix.cols);
    std::byte shaped[kWidestBlock];
    [[maybe_unused]] std::byte block[kWidestBlock];
    for (int64_t k = 0; k < matrix.cols; k += kElements, strip += BlockBytes(kType)) {
        MoveLane<kType, true>(strip, row % kStripRows, shaped);
        if constexpr (kReshaped<kType>) ShapeBack<kType>(shaped, block);
        DequantizeRow(kType, kReshaped<kType> ? block : shaped,
                      {y + k, static_cast<size_t>(kElements)});
    }
}

// Calls with<kType>() for the type of `dtype`.
template <typename Call>
void ForType(DType dtype, const Call& call) {
    switch (dtype) {
        case DType::kF32: return call.template operator()<DType::kF32>();
        case DType::kF16: return call.template operator()<DType::kF16>();
        case DType::kBF16: return call.template operator()<DType::kBF16>();
        case DType::kQ4_0: return call.template operator()<DType::kQ4_0>();
        case DType::kQ4_1: return call.template operator()<DType::kQ4_1>();
        case DType::kQ8_0: return call.template operator()<DType::kQ8_0>();
        case DType::kQ4_K: return call.template operator()<DType::kQ4_K>();
        case DType::kQ6_K: return call.template operator()<DType::kQ6_K>();
        case DType::kQ5_0: return call.template operator()<DType::kQ5_0>();
        case DType::kQ5_1: return call.template operator()<DType::kQ5_1>();
        case DType::kQ2_K: return call.template operator()<DType::kQ2_K>();
        case DType::kQ3_K: return call.template operator()<DType::kQ3_K>();
        case DType::kQ5_K: return call.template operator()<DType::kQ5_K>();
        case DType::kIQ1_S: return call.template operator()<DType::kIQ1_S>();
        case DType::kIQ1_M: return call.template operator()<DType::kIQ1_M>();
        case DType::kIQ2_XXS: return call.template operator()<DType::kIQ2_XXS>();
        case DType::kIQ2_XS: return call.template operator()<DType::kIQ2_XS>();
        case DType::kIQ2_S: return call.template operator()<DType::kIQ2_S>();
        case DType::kIQ3_XXS: return call.template operator()<DType::kIQ3_XXS>();
        case DType::kIQ3_S: return call.template operator()<DType::kIQ3_S>();
        case DType::kIQ4_NL: return call.template operator()<DType::kIQ4_NL>();
        case DType::kIQ4_XS: return call.template operator()<DType::kIQ4_XS>();
        case DType::kTQ1_0: return call.template operator()<DType::kTQ1_0>();
        case DType::kTQ2_0: return call.template operator()<DType::kTQ2_0>();
        case DType::kMXFP4: return call.template operator()<DType::kMXFP4>();
        case DType::kW4: return call.template operator()<DType::kW4>();
        case DType::kW8: return call.template operator()<DType::kW8>();
        case DType::kI32:
        case DType::kF64: break;
    }
    WEFT_CHECK(!"I32 weights");
}

}  // namespace

int64_t PackedBytes(DType dtype, int64_t rows, int64_t cols) {
    return (rows + kStripRows - 1) / kStripRows * StripBytes(dtype, cols);
}

void Pack(const PackedMatrix& matrix, int64_t row_begin, int64_t count, const std::byte* source,
          int64_t source_stride_bytes) {
    WEFT_CHECK(row_begin % kStripRows == 0 && row_begin + count <= matrix.rows);
    for (int64_t done = 0; done < count; done += kStripRows) {
        std::byte* strip =
            matrix.data + (row_begin + done) / kStripRows * StripBytes(matrix.dtype, matrix.cols);
        const int64_t rows = std::min(kStripRows, count - done);
        const std::byte* from = source + done * source_stride_bytes;
        ForType(matrix.dtype, [&]<DType kType>() {
            PackStrip<kType>(matrix, strip, rows, from, source_stride_bytes);
        });
    }
}

void Embedding(const EmbeddingArgs& args, int part, int parts) {
    const Range share = Share(args.count, 1, part, parts);
    for (int64_t i = share.begin; i < share.end; ++i) {
        const int64_t row = args.tokens[i] - args.first_row;
        float* y = args.y + i * args.y_stride;
        if (row < 0 || row >= args.weight.rows) {
            std::fill(y, y + args.weight.cols, 0.0f);
            continue;
        }
        ForType(args.weight.dtype, [&]<DType kType>() { UnpackRow<kType>(args.weight, row, y); });
    }
}

}  // namespace weft::kernels::strips
