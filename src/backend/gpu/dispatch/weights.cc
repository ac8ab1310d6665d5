#include "backend/gpu/dispatch/weights.h"

#include <cstring>
#include <optional>

#include "backend/gpu/dispatch/grid_weights.h"
#include "tensor/quant.h"
#include "tensor/quant_parts.h"

namespace weft::backend::on_gpu {
namespace {

// The planes of a block type, in this order (a type may lack some): low bits of codes, high bits of
// codes, scales of sub-blocks, scale of a block. src/shaders/types.glsl reads them.
//
// Elements are stored in units of 32, and within a unit in fours, 4 j + i: byte i of a word has the
// bits of elements 4 j + i, so that one shift and one mask give four bytes.
//     4 bits: nibble j % 2 of word j / 2 of 4;  2 bits: pair j % 4 of word j / 4 of 2
//     1 bit: bit j of one word;                 8 bits: the bytes in order
struct WeightForm {
    int low_bits = 0, high_bits = 0;
    int sub_bytes = 0;       // of the sub-blocks in 256 elements
    int scale_bytes = 0;     // of one block
    int scale_elements = 1;  // elements that share the scale
    int zero = 0;            // code - zero is the integer of BlockParts
};

std::optional<WeightForm> WeightFormOf(DType dtype) {
    switch (dtype) {
        case DType::kF32: return WeightForm{.low_bits = 32};
        case DType::kF16:
        case DType::kBF16: return WeightForm{.low_bits = 16};
        case DType::kQ4_0: return WeightForm{4, 0, 0, 2, 32, 8};
        case DType::kQ4_1: return WeightForm{4, 0, 0, 4, 32, 0};
        case DType::kQ5_0: return WeightForm{4, 1, 0, 2, 32, 16};
        case DType::kQ5_1: return WeightForm{4, 1, 0, 4, 32, 0};
        case DType::kQ8_0: return WeightForm{8, 0, 0, 2, 32, 0};
        case DType::kQ2_K: return WeightForm{2, 0, 16, 4, 256, 0};
        case DType::kQ3_K: return WeightForm{2, 1, 16, 2, 256, 4};
        case DType::kQ4_K: return WeightForm{4, 0, 16, 4, 256, 0};
        case DType::kQ5_K: return WeightForm{4, 1, 16, 4, 256, 0};
        case DType::kQ6_K: return WeightForm{4, 2, 16, 2, 256, 32};
        case DType::kIQ4_NL: return WeightForm{4, 0, 0, 2, 32, 0};
        case DType::kIQ4_XS: return WeightForm{4, 0, 8, 2, 256, 0};
        case DType::kTQ1_0:  // base-3 digits as 2 bits
        case DType::kTQ2_0: return WeightForm{2, 0, 0, 2, 256, 1};
        case DType::kMXFP4: return WeightForm{4, 0, 0, 1, 32, 0};
        case DType::kW4: return WeightForm{4, 0, 0, 4, 32, 0};
        case DType::kW8: return WeightForm{8, 0, 0, 4, 32, 0};
        case DType::kFP8: return WeightForm{8, 0, 0, 4, 64, 0};
        case DType::kNVFP4: return WeightForm{4, 0, 0, 8, 64, 0};  // includes the scale bytes
        case DType::kIQ1_S:
        case DType::kIQ1_M:
        case DType::kIQ2_XXS:
        case DType::kIQ2_XS:
        case DType::kIQ2_S:
        case DType::kIQ3_XXS:
        case DType::kIQ3_S:  // with a code book: GridFormOf
        case DType::kI32:
        case DType::kF64: return std::nullopt;
    }
    return std::nullopt;
}

uint64_t RoundUp(uint64_t bytes, uint64_t to) {
    return (bytes + to - 1) / to * to;
}

// Nibbles as in files: byte i holds elements i and i + 16.
void LoadNibbles(const std::byte* p, uint8_t* codes) {
    for (size_t i = 0; i < 16; ++i) {
        const auto both = std::to_integer<uint8_t>(p[i]);
        codes[i] = both & 15;
        codes[16 + i] = both >> 4;
    }
}

// Offset of the nibbles in a block, for types whose units have 16 bytes of them in that order.
std::optional<size_t> NibblesBegin(DType dtype) {
    if (dtype == DType::kMXFP4) return 1;
    if (dtype == DType::kQ4_0 || dtype == DType::kIQ4_NL) return 2;
    if (dtype == DType::kQ4_1 || dtype == DType::kW4) return 4;
    if (dtype == DType::kQ5_0) return 6;
    if (dtype == DType::kQ5_1 || dtype == DType::kIQ4_XS || dtype == DType::kNVFP4) return 8;
    return std::nullopt;
}

// The codes of all units of one block.
void CodesOf(DType dtype, const WeightForm& form, const std::byte* block,
             std::span<uint8_t> codes) {
    if (const auto begin = NibblesBegin(dtype)) {
        for (size_t unit = 0; unit < codes.size() / 32; ++unit) {
            LoadNibbles(block + *begin + 16 * unit, &codes[32 * unit]);
        }
        if (form.high_bits == 0) return;
        uint32_t fifth = 0;  // Q5_0, Q5_1: lies before the nibbles
        std::memcpy(&fifth, block + *begin - sizeof fifth, sizeof fifth);
        for (size_t i = 0; i < 32; ++i) {
            codes[i] = static_cast<uint8_t>(codes[i] | (fifth >> i & 1) << 4);
        }
        return;
    }
    if (form.low_bits == 8) {
        std::memcpy(codes.data(), block + form.scale_bytes, codes.size());
        return;
    }
    BlockParts parts;
    SplitBlock(dtype, block, parts);
    for (size_t i = 0; i < codes.size(); ++i) {
        codes[i] = static_cast<uint8_t>(parts.q[i] + form.zero);
    }
}

// Writes bits [first, first + bits) of a unit's codes to 4 * bits bytes, four codes at a time. The
// mask removes bits that a shift brings from the neighboring code.
void StoreBits(const uint8_t* codes, int first, int bits, std::byte* out) {
    const int each = 8 / bits;  // number of fours that share a word
    const uint32_t mask = ((1u << bits) - 1) * 0x01010101u;
    for (int word = 0; word < 8 / each; ++word) {
        uint32_t packed = 0;
        for (int k = 0; k < each; ++k) {
            uint32_t four = 0;
            std::memcpy(&four, codes + 4 * (word * each + k), sizeof four);
            packed |= (four >> first & mask) << k * bits;
        }
        std::memcpy(out + 4 * word, &packed, sizeof packed);
    }
}

// Writes the scales of a block's sub-blocks as form.scale_bytes bytes.
void StoreSubScales(DType dtype, const std::byte* block, std::byte* out) {
    const auto at = [&](int i) { return std::to_integer<int>(block[i]); };
    if (dtype == DType::kQ2_K) {  // scale | minimum << 4, per 16 elements
        std::memcpy(out, block, 16);
    } else if (dtype == DType::kQ3_K) {  // int8 for each 16
        for (int s = 0; s < 16; ++s) {
            const int low = at(96 + s % 8) >> s / 8 * 4 & 15;
            const int high = at(104 + s % 4) >> s / 4 * 2 & 3;
            out[s] = static_cast<std::byte>((low | high << 4) - 32);
        }
    } else if (dtype == DType::kQ6_K) {  // int8 for each 16
        std::memcpy(out, block + 192, 16);
    } else if (dtype == DType::kIQ4_XS) {  // int8 for each 32
        const int high = at(2) | at(3) << 8;
        for (int s = 0; s < 8; ++s) {
            const int low = at(4 + s / 2) >> s % 2 * 4 & 15;
            out[s] = static_cast<std::byte>((low | (high >> 2 * s & 3) << 4) - 32);
        }
    } else {  // Q4_K, Q5_K: scale and minimum per 32
        for (int s = 0; s < 8; ++s) {
            const Q4KScale sub = LoadQ4KScale(block + 4, s);
            out[2 * s] = static_cast<std::byte>(sub.scale);
            out[2 * s + 1] = static_cast<std::byte>(sub.min);
        }
    }
}

// Offset of a block's own scale.
int ScaleBegin(DType dtype) {
    if (dtype == DType::kQ2_K) return 80;
    if (dtype == DType::kQ3_K) return 108;
    if (dtype == DType::kQ6_K) return 208;
    if (dtype == DType::kTQ2_0) return 64;
    if (dtype == DType::kTQ1_0) return 52;
    return 0;
}

void PackBlock(DType dtype, const WeightForm& form, const std::byte* block,
               std::array<std::byte*, WeightLayout::kMostPlanes>& out) {
    uint8_t codes[kLargestBlock];
    const auto elements = static_cast<size_t>(Info(dtype).block_elements);
    CodesOf(dtype, form, block, {codes, elements});
    size_t plane = 1;
    for (size_t unit = 0; unit < elements / 32; ++unit) {
        StoreBits(codes + 32 * unit, 0, form.low_bits, out[0]);
        out[0] += 4 * form.low_bits;
        if (form.high_bits == 0) continue;
        StoreBits(codes + 32 * unit, form.low_bits, form.high_bits, out[1]);
        out[1] += 4 * form.high_bits;
    }
    if (form.high_bits != 0) ++plane;
    if (form.sub_bytes != 0) {
        StoreSubScales(dtype, block, out[plane]);
        out[plane++] += form.sub_bytes;
    }
    std::memcpy(out[plane], block + ScaleBegin(dtype), static_cast<size_t>(form.scale_bytes));
    out[plane] += form.scale_bytes;
}

}  // namespace

Status CheckWeightType(DType dtype, int64_t cols) {
    if (!WeightFormOf(dtype) && !GridFormOf(dtype)) {
        return MakeError(ErrorCode::kUnsupported,
                         "no Vulkan kernel supports weights of type {}; --device cpu does",
                         Info(dtype).name);
    }
    if (cols % Info(dtype).block_elements != 0) {
        return MakeError(
            ErrorCode::kUnsupported,
            "a weight of type {} has {} columns, which is not a multiple of its block of {}",
            Info(dtype).name, cols, Info(dtype).block_elements);
    }
    return {};
}

WeightLayout LayoutOf(DType dtype, int64_t rows, int64_t cols) {
    const WeightForm form = WeightFormOf(dtype).value_or(WeightForm{});
    const auto columns = static_cast<uint64_t>(cols);
    WeightLayout layout;
    const auto add = [&](uint64_t row_bytes) {
        Plane& plane = layout.planes[layout.count++];
        plane = {RoundUp(layout.bytes, 256), RoundUp(row_bytes, 16)};
        layout.bytes = plane.offset + plane.row_bytes * static_cast<uint64_t>(rows);
    };
    const auto bits = [&](int each) { return columns * static_cast<uint64_t>(each) / 8; };
    if (const auto grid = GridFormOf(dtype)) {
        add(bits(grid->index_bytes) / 4);
        if (grid->more_bytes != 0) add(bits(grid->more_bytes) / 4);
        add(columns / kLargestBlock * static_cast<uint64_t>(grid->scale_plane_bytes));
        layout.table_offset = RoundUp(layout.bytes, 256);
        layout.table_bytes = GridTableBytes(dtype);
        layout.bytes = layout.table_offset + layout.table_bytes;
        return layout;
    }
    add(bits(form.low_bits));
    if (form.high_bits != 0) add(bits(form.high_bits));
    if (form.sub_bytes != 0) add(columns / 256 * static_cast<uint64_t>(form.sub_bytes));
    if (form.scale_bytes != 0) {
        add(columns / static_cast<uint64_t>(form.scale_elements) *
            static_cast<uint64_t>(form.scale_bytes));
    }
    return layout;
}

void PackRow(DType dtype, int64_t cols, const std::byte* row, std::span<std::byte* const> out) {
    const WeightForm form = WeightFormOf(dtype).value_or(WeightForm{});
    const WeightLayout layout = LayoutOf(dtype, 1, cols);
    std::array<std::byte*, WeightLayout::kMostPlanes> at{};
    for (size_t p = 0; p < layout.count; ++p) {
        at[p] = out[p];
        // The code below may leave a part of the last 16 bytes unwritten.
        std::memset(at[p] + layout.planes[p].row_bytes - 16, 0, 16);
    }
    if (!Info(dtype).quantized) {
        std::memcpy(at[0], row, static_cast<size_t>(RowBytes(dtype, cols)));
        return;
    }
    const DTypeInfo& info = Info(dtype);
    const bool has_book = layout.table_bytes != 0;
    for (int64_t b = 0; b < cols / info.block_elements; ++b) {
        const std::byte* block = row + b * info.block_bytes;
        has_book ? PackGridBlock(dtype, block, at) : PackBlock(dtype, form, block, at);
    }
}

void PackTable(DType dtype, std::byte* out) {
    WriteGridTable(dtype, out);
}

}  // namespace weft::backend::on_gpu
