#include "kernels/weight_tiles.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <utility>

#include "kernels/reshape.h"
#include "kernels/weight_rows.h"
#include "tensor/quant.h"

namespace weft::kernels::weight_tiles {
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

constexpr FieldList FieldsOfQ6K() {
    FieldList list;
    list.Add(208, 2, 1), list.Add(192, 1, 16);
    for (int half = 0; half < 2; ++half) {
        for (int i = 0; i < 32; i += 4) {
            list.Add(half * 64 + i, 4, 1), list.Add(half * 64 + 32 + i, 4, 1);
            list.Add(128 + half * 32 + i, 4, 1);
        }
    }
    return list;
}

constexpr FieldList FieldsOf(DType dtype) {
    FieldList list;
    switch (dtype) {
        case DType::kF32:
        case DType::kF16:
        case DType::kBF16: list.Add(0, static_cast<int>(Info(dtype).block_bytes), 1); break;
        case DType::kIQ4_NL:
        case DType::kQ4_0: list.Add(2, 4, 4), list.Add(0, 2, 1); break;
        case DType::kQ4_1: list.Add(4, 4, 4), list.Add(0, 2, 1), list.Add(2, 2, 1); break;
        case DType::kQ5_0: list.Add(6, 4, 4), list.Add(2, 4, 1), list.Add(0, 2, 1); break;
        case DType::kQ5_1:
            list.Add(8, 4, 4), list.Add(4, 4, 1), list.Add(0, 2, 1), list.Add(2, 2, 1);
            break;
        case DType::kQ8_0: list.Add(2, 4, 8), list.Add(0, 2, 1); break;
        case DType::kMXFP4: list.Add(1, 4, 4), list.Add(0, 1, 1); break;
        case DType::kW4: list.Add(4, 4, 4), list.Add(0, 4, 1); break;
        case DType::kW8: list.Add(4, 4, 8), list.Add(0, 4, 1); break;
        case DType::kFP8: list.Add(4, 4, 16), list.Add(0, 4, 1); break;
        case DType::kNVFP4: list.Add(8, 4, 8), list.Add(0, 4, 1), list.Add(4, 1, 4); break;
        case DType::kQ4_K:  // the widened block: d, dmin, 8 scales, 8 minima, quants
            list.Add(0, 2, 1), list.Add(2, 2, 1), list.Add(4, 1, 8), list.Add(12, 1, 8);
            list.Add(20, 4, 32);
            break;
        case DType::kQ5_K:  // the same, with 32 bytes of fifth bits before the quants
            list.Add(0, 2, 1), list.Add(2, 2, 1), list.Add(4, 1, 8), list.Add(12, 1, 8);
            list.Add(20, 4, 8), list.Add(52, 4, 32);
            break;
        case DType::kIQ4_XS:  // the widened block: d, 8 scales, quants
            list.Add(0, 2, 1), list.Add(2, 1, 8), list.Add(10, 4, 32);
            break;
        case DType::kQ2_K:
            list.Add(80, 2, 1), list.Add(82, 2, 1), list.Add(0, 1, 16), list.Add(16, 4, 16);
            break;
        case DType::kQ3_K:  // the widened block: d, 16 scales, a, b, c
            list.Add(0, 2, 1), list.Add(2, 1, 16);
            for (int i = 18; i < 50; i += 4) {
                list.Add(i, 4, 1), list.Add(i + 32, 4, 1), list.Add(i + 64, 4, 1);
            }
            break;
        case DType::kIQ1_S:
            list.Add(0, 2, 1);
            for (int u = 0; u < 8; ++u) list.Add(2 + 4 * u, 4, 1), list.Add(34 + 2 * u, 2, 1);
            break;
        case DType::kIQ1_M:
            list.Add(48, 2, 4);
            for (int u = 0; u < 8; ++u) list.Add(4 * u, 4, 1), list.Add(32 + 2 * u, 2, 1);
            break;
        case DType::kIQ2_XXS: list.Add(0, 2, 1), list.Add(2, 4, 16); break;
        case DType::kIQ2_XS: list.Add(0, 2, 1), list.Add(2, 1, 8), list.Add(10, 4, 16); break;
        case DType::kIQ2_S:
            list.Add(0, 2, 1), list.Add(74, 1, 8), list.Add(66, 1, 8);
            for (int u = 0; u < 8; ++u) list.Add(2 + 4 * u, 4, 1), list.Add(34 + 4 * u, 4, 1);
            break;
        case DType::kIQ3_XXS:
            list.Add(0, 2, 1);
            for (int u = 0; u < 8; ++u) list.Add(2 + 8 * u, 4, 2), list.Add(66 + 4 * u, 4, 1);
            break;
        case DType::kIQ3_S:
            list.Add(0, 2, 1), list.Add(106, 1, 4), list.Add(66, 1, 8);
            for (int u = 0; u < 8; ++u) list.Add(2 + 8 * u, 4, 2), list.Add(74 + 4 * u, 4, 1);
            break;
        case DType::kTQ1_0:  // packed as TQ2_0
        case DType::kTQ2_0: list.Add(64, 2, 1), list.Add(0, 4, 16); break;
        case DType::kQ6_K: list = FieldsOfQ6K(); break;
        case DType::kI32:
        case DType::kF64: break;
    }
    return list;
}

// Copies one field of one row's block into or out of lane `lane` of a packed block.
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

// Copies all fields.
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

// BF16, with pairs of columns adjacent.
void PackPairs(const PackedMatrix& matrix, std::byte* strip, int64_t count, const std::byte* source,
               int64_t stride) {
    std::memset(strip, 0, static_cast<size_t>(StripBytes(matrix.dtype, matrix.cols)));
    for (int64_t lane = 0; lane < count; ++lane) {
        const std::byte* from = source + lane * stride;
        std::byte* to = strip + lane * 4;
        for (int64_t pair = 0; pair < matrix.cols / 2; ++pair) {
            std::memcpy(to + pair * 64, from + pair * 4, 4);
        }
        if (matrix.cols % 2 != 0)
            std::memcpy(to + matrix.cols / 2 * 64, from + matrix.cols * 2 - 2, 2);
    }
}

void UnpackPairs(const PackedMatrix& matrix, int64_t row, float* y) {
    const std::byte* lane = matrix.data + row / kStripRows * StripBytes(matrix.dtype, matrix.cols) +
                            row % kStripRows * 4;
    for (int64_t k = 0; k < matrix.cols; ++k) {
        DequantizeRow(DType::kBF16, {lane + k / 2 * 64 + k % 2 * 2, 2}, {y + k, 1});
    }
}

// Writes the blocks of one row as in the file.
template <DType kType>
void ReadRow(const PackedMatrix& matrix, int64_t row, std::byte* out) {
    constexpr int64_t kElements = Info(kType).block_elements, kBytes = Info(kType).block_bytes;
    std::byte* strip = matrix.data + row / kStripRows * StripBytes(kType, matrix.cols);
    [[maybe_unused]] std::byte shaped[kWidestBlock];
    for (int64_t k = 0; k < matrix.cols; k += kElements, strip += BlockBytes(kType)) {
        if constexpr (kShapedBack<kType>) {
            MoveLane<kType, true>(strip, row % kStripRows, shaped);
            ShapeBack<kType>(shaped, out);
        } else {
            MoveLane<kType, true>(strip, row % kStripRows, out);
        }
        out += kBytes;
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
        if constexpr (kShapedBack<kType>) ShapeBack<kType>(shaped, block);
        // TQ1_0 is packed as TQ2_0.
        constexpr DType kAs = kType == DType::kTQ1_0 ? DType::kTQ2_0 : kType;
        DequantizeRow(kAs, kShapedBack<kType> ? block : shaped,
                      {y + k, static_cast<size_t>(kElements)});
    }
}

// Calls call<kType>() for the type of weights `dtype`.
template <size_t kIndex = 0, typename Call>
void ForType(DType dtype, const Call& call) {
    constexpr DType kType = kDTypes[kIndex].dtype;
    if constexpr (FieldsOf(kType).count != 0) {
        if (dtype == kType) return call.template operator()<kType>();
    }
    if constexpr (kIndex + 1 < kDTypes.size()) return ForType<kIndex + 1>(dtype, call);
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
        if (matrix.dtype == DType::kBF16) {
            PackPairs(matrix, strip, rows, from, source_stride_bytes);
            continue;
        }
        ForType(matrix.dtype, [&]<DType kType>() {
            PackStrip<kType>(matrix, strip, rows, from, source_stride_bytes);
        });
    }
}

void Unpack(const PackedMatrix& matrix, int64_t row_begin, int64_t count, std::byte* out,
            int64_t row_stride_bytes) {
    WEFT_CHECK(row_begin + count <= matrix.rows && matrix.dtype != DType::kTQ1_0);
    for (int64_t row = row_begin; row < row_begin + count; ++row, out += row_stride_bytes) {
        if (matrix.dtype == DType::kBF16) {
            const std::byte* strip =
                matrix.data + row / kStripRows * StripBytes(matrix.dtype, matrix.cols);
            for (int64_t k = 0; k < matrix.cols; ++k) {
                std::memcpy(out + 2 * k, strip + k / 2 * 64 + row % kStripRows * 4 + k % 2 * 2, 2);
            }
            continue;
        }
        ForType(matrix.dtype, [&]<DType kType>() { ReadRow<kType>(matrix, row, out); });
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
        if (args.weight.dtype == DType::kBF16) {
            UnpackPairs(args.weight, row, y);
            continue;
        }
        ForType(args.weight.dtype, [&]<DType kType>() { UnpackRow<kType>(args.weight, row, y); });
    }
}

}  // namespace weft::kernels::weight_tiles
