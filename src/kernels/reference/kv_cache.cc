#include <cstring>

#include "kernels/cache_blocks.h"
#include "kernels/reference/ops.h"
#include "tensor/half.h"
#include "tensor/quant.h"

namespace weft::kernels::reference {
namespace {

template <typename T>
T Load(const std::byte* at) {
    T value;
    std::memcpy(&value, at, sizeof value);
    return value;
}

template <typename T>
void Store(std::byte* at, T value) {
    std::memcpy(at, &value, sizeof value);
}

float LoadFloat(DType dtype, const std::byte* at) {
    if (dtype == DType::kF32) return Load<float>(at);
    const uint16_t half = Load<uint16_t>(at);
    return dtype == DType::kF16 ? F16ToF32(half) : BF16ToF32(half);
}

void StoreFloat(DType dtype, std::byte* at, float value) {
    if (dtype == DType::kF32) return Store(at, value);
    Store(at, dtype == DType::kF16 ? F32ToF16(value) : F32ToBF16(value));
}

// The position of one slot's row in its V row or its K group: `side` slots alternate, and the row
// is number `lane` of them.
struct Layout {
    int64_t side, lane;
    // Offset of byte i of a row whose elements, or parts of a block, have `bytes` bytes.
    int64_t At(int64_t i, int64_t bytes) const { return i * side + lane * bytes; }
};

constexpr Layout kRowLayout{1, 0};
Layout KeyLayout(int64_t slot) {
    return {kSlotGroup, slot % kSlotGroup};
}

// Calls on(i, offset, bytes) for each part of a block: its bytes [i, i + bytes), at `offset` in the
// cache.
template <typename OnPart>
void ForParts(DType dtype, const Layout& layout, OnPart on) {
    const int64_t halves = 2 * CacheBlockHalves(dtype);
    for (int64_t i = 0; i < halves; i += 2) on(i, layout.At(i, 2), 2);
    for (int64_t i = halves; i < Info(dtype).block_bytes; ++i) on(i, layout.At(i, 1), 1);
}

void ReadRow(const KvCache& cache, const Layout& layout, const std::byte* from, float* out) {
    const DTypeInfo& type = Info(cache.dtype);
    if (!type.quantized) {
        for (int64_t d = 0; d < cache.head_dim; ++d) {
            out[d] =
                LoadFloat(cache.dtype, from + layout.At(d * type.block_bytes, type.block_bytes));
        }
        return;
    }
    std::byte block[kMostCacheBlockBytes];
    for (int64_t first = 0; first < cache.head_dim; first += kCacheBlock) {
        ForParts(cache.dtype, layout, [&](int64_t i, int64_t offset, size_t bytes) {
            std::memcpy(block + i, from + offset, bytes);
        });
        DequantizeRow(cache.dtype, block, {out + first, kCacheBlock});
        from += type.block_bytes * layout.side;
    }
}

void WriteRow(const KvCache& cache, const Layout& layout, const float* row, std::byte* to) {
    const DTypeInfo& type = Info(cache.dtype);
    if (!type.quantized) {
        for (int64_t d = 0; d < cache.head_dim; ++d) {
            StoreFloat(cache.dtype, to + layout.At(d * type.block_bytes, type.block_bytes), row[d]);
        }
        return;
    }
    std::byte block[kMostCacheBlockBytes];
    for (int64_t first = 0; first < cache.head_dim; first += kCacheBlock) {
        EncodeCacheBlock(cache.dtype, row + first, block);
        ForParts(cache.dtype, layout, [&](int64_t i, int64_t offset, size_t bytes) {
            std::memcpy(to + offset, block + i, bytes);
        });
        to += type.block_bytes * layout.side;
    }
}

}  // namespace

void ReadKey(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out) {
    const Layout layout = KeyLayout(slot);
    ReadRow(cache, layout, cache.Row(page, head, slot - layout.lane), out);
}

void ReadValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out) {
    ReadRow(cache, kRowLayout, cache.Row(page, head, slot), out);
}

void WriteValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, const float* row) {
    WriteRow(cache, kRowLayout, row, cache.Row(page, head, slot));
}

void KvWrite(const KvWriteArgs& args, int part, int parts) {
    const KvCache& keys = args.k_cache;
    const KvCache& values = args.v_cache;
    for (const Sequence& sequence : args.sequences) {
        // Head by head, so that parts share few cache lines.
        const Range share = Share(sequence.row_count * keys.kv_heads, 1, part, parts);
        for (int64_t unit = share.begin; unit < share.end; ++unit) {
            const int64_t head = unit / sequence.row_count;
            const int64_t index = unit % sequence.row_count;
            const int64_t row = sequence.row_begin + index;
            const int64_t position = sequence.position + index;
            const int64_t page = sequence.pages[static_cast<size_t>(position / keys.page_tokens)];
            const int64_t slot = position % keys.page_tokens;
            const Layout layout = KeyLayout(slot);
            WriteRow(keys, layout, args.k + row * args.k_stride + head * keys.head_dim,
                     keys.Row(page, head, slot - layout.lane));
            WriteRow(values, kRowLayout, args.v + row * args.v_stride + head * values.head_dim,
                     values.Row(page, head, slot));
        }
    }
}

}  // namespace weft::kernels::reference
