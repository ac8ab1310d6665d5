#include <cmath>
#include <cstring>

#include "base/check.h"
#include "kernels/reference/ops.h"
#include "tensor/half.h"

namespace weft::kernels::reference {
namespace {

constexpr int64_t kBlock = 32;  // dims that share a scale in Q8_0

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

// The layout of one slot's row, relative to the beginning of its V row or its K group.
struct Layout {
    bool quantized;
    int64_t element;       // bytes of one element
    int64_t begin;         // of element 0 (of a float type)
    int64_t stride;        // bytes from one dim to the next
    int64_t scale_begin;   // Q8_0: of the first block's scale
    int64_t value_begin;   //       of the first block's first value
    int64_t block_stride;  // bytes from one block to the next
};

Layout LayoutOf(const KvCache& cache, bool is_key, int64_t lane) {
    Layout layout{};
    layout.quantized = cache.dtype == DType::kQ8_0;
    const int64_t side = is_key ? kSlotGroup : 1;  // contiguous slots
    layout.element = layout.quantized ? 1 : Info(cache.dtype).block_bytes;
    layout.begin = lane * layout.element;
    layout.stride = side * layout.element;
    layout.scale_begin = lane * 2;
    layout.value_begin = side * 2 + lane;
    layout.block_stride = side * Info(DType::kQ8_0).block_bytes;
    return layout;
}

void ReadRow(const KvCache& cache, const Layout& layout, const std::byte* from, float* out) {
    if (!layout.quantized) {
        for (int64_t d = 0; d < cache.head_dim; ++d) {
            out[d] = LoadFloat(cache.dtype, from + layout.begin + d * layout.stride);
        }
        return;
    }
    for (int64_t d = 0; d < cache.head_dim; ++d) {
        const std::byte* block = from + d / kBlock * layout.block_stride;
        const float scale = F16ToF32(Load<uint16_t>(block + layout.scale_begin));
        const std::byte* at = block + layout.value_begin + d % kBlock * layout.stride;
        out[d] = scale * static_cast<float>(Load<int8_t>(at));
    }
}

// Q8_0 as usual: scale = largest magnitude / 127 in f16, values rounded half away from zero.
void WriteRow(const KvCache& cache, const Layout& layout, const float* row, std::byte* to) {
    if (!layout.quantized) {
        for (int64_t d = 0; d < cache.head_dim; ++d) {
            StoreFloat(cache.dtype, to + layout.begin + d * layout.stride, row[d]);
        }
        return;
    }
    for (int64_t first = 0; first < cache.head_dim; first += kBlock) {
        std::byte* block = to + first / kBlock * layout.block_stride;
        float largest = 0;
        for (int64_t d = first; d < first + kBlock; ++d) {
            largest = std::fmax(largest, std::fabs(row[d]));
        }
        const float scale = largest / 127.0f;
        const float inverse = scale == 0 ? 0.0f : 1.0f / scale;
        Store(block + layout.scale_begin, F32ToF16(scale));
        for (int64_t d = 0; d < kBlock; ++d) {
            const float value = std::round(row[first + d] * inverse);
            const float kept = std::fmin(std::fmax(value, -127.0f), 127.0f);  // NaN becomes -127
            Store(block + layout.value_begin + d * layout.stride, static_cast<int8_t>(kept));
        }
    }
}

}  // namespace

void ReadKey(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out) {
    const int64_t lane = slot % kSlotGroup;
    ReadRow(cache, LayoutOf(cache, true, lane), cache.Row(page, head, slot - lane), out);
}

void ReadValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, float* out) {
    ReadRow(cache, LayoutOf(cache, false, 0), cache.Row(page, head, slot), out);
}

void WriteValue(const KvCache& cache, int64_t page, int64_t head, int64_t slot, const float* row) {
    WriteRow(cache, LayoutOf(cache, false, 0), row, cache.Row(page, head, slot));
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
            const int64_t lane = slot % kSlotGroup;
            WriteRow(keys, LayoutOf(keys, true, lane),
                     args.k + row * args.k_stride + head * keys.head_dim,
                     keys.Row(page, head, slot - lane));
            WriteRow(values, LayoutOf(values, false, 0),
                     args.v + row * args.v_stride + head * values.head_dim,
                     values.Row(page, head, slot));
        }
    }
}

}  // namespace weft::kernels::reference
