#include "backend/gpu/dispatch/grid_weights.h"

#include <cstring>

#include "tensor/quant_bytes.h"
#include "tensor/quant_grids.h"

namespace weft::backend::on_gpu {
namespace {

using quant::ByteAt;
using quant::LoadU16;
using quant::LoadU32;

constexpr size_t kUnitsOfBlock = 8;

// Writes a plane from front to end.
class PlaneWriter {
  public:
    explicit PlaneWriter(std::byte*& at) : at_(at) {}
    template <typename T>
    void Put(T value) {
        std::memcpy(at_, &value, sizeof value);
        at_ += sizeof value;
    }
    void Copy(const std::byte* from, size_t bytes) {
        std::memcpy(at_, from, bytes);
        at_ += bytes;
    }

  private:
    std::byte*& at_;
};

// Copies 8 bytes per 32 elements, as in the file.
void PackIq2(const std::byte* block, std::span<std::byte*> planes) {
    PlaneWriter(planes[0]).Copy(block + 2, 8 * kUnitsOfBlock);
}

// Per 32 elements: 4 bytes of indices and 4 of signs; then 8 high index bits and two 4-bit scales.
void PackIq2S(const std::byte* block, std::span<std::byte*> planes) {
    PlaneWriter codes(planes[0]), more(planes[1]);
    for (size_t s = 0; s < kUnitsOfBlock; ++s) {
        codes.Copy(block + 2 + 4 * s, 4);
        codes.Copy(block + 34 + 4 * s, 4);
        more.Copy(block + 66 + s, 1);
        more.Copy(block + 74 + s, 1);
    }
}

// Per 32 elements: 8 bytes of indices, 4 of signs (and the scale).
void PackIq3(const std::byte* block, const std::byte* signs, std::span<std::byte*> planes) {
    PlaneWriter codes(planes[0]);
    for (size_t s = 0; s < kUnitsOfBlock; ++s) {
        codes.Copy(block + 2 + 8 * s, 8);
        codes.Copy(signs + 4 * s, 4);
    }
}

// Per 32 elements: 8 high index bits, and a byte with a 4-bit scale.
void PackIq3SScales(const std::byte* block, std::span<std::byte*> planes) {
    PlaneWriter more(planes[1]);
    for (size_t s = 0; s < kUnitsOfBlock; ++s) {
        more.Copy(block + 66 + s, 1);
        more.Put(
            static_cast<uint8_t>(ByteAt(block, 106 + static_cast<int>(s / 2)) >> s % 2 * 4 & 15));
    }
}

// Plane 0: indices. Plane 1: high bits of indices, and signs of offsets. Plane 2: bytes of two
// 3-bit scales and, in the spare bits, two bits of the block's f16, lowest bits first.
void PackIq1M(const std::byte* block, std::span<std::byte*> planes) {
    PlaneWriter(planes[0]).Copy(block, 32);
    PlaneWriter(planes[1]).Copy(block + 32, 16);
    uint32_t d = 0;
    for (size_t i = 0; i < 4; ++i) {
        d |= static_cast<uint32_t>(LoadU16(block + 48 + 2 * i) >> 12) << 4 * i;
    }
    PlaneWriter scales(planes[2]);
    for (size_t s = 0; s < kUnitsOfBlock; ++s) {
        const uint32_t six = LoadU16(block + 48 + s / 2 * 2) >> s % 2 * 6 & 63;
        scales.Put(static_cast<uint8_t>(six | (d >> 2 * s & 3) << 6));
    }
}

template <size_t kEntries>
void WriteEntries(const std::array<uint16_t, kEntries>& grid, int bits, const uint8_t* values,
                  std::byte* out) {
    const int count = bits == 2 ? 8 : 4;
    for (const uint16_t entry : grid) {
        for (int k = 0; k < count; ++k) {
            *out++ = static_cast<std::byte>(values[entry >> k * bits & ((1 << bits) - 1)]);
        }
    }
}

constexpr uint8_t kMagnitudesOf2[4] = {8, 25, 43, 0};
constexpr uint8_t kMagnitudesOf3Xxs[8] = {4, 12, 20, 28, 36, 44, 52, 62};
constexpr uint8_t kMagnitudesOf3S[8] = {1, 3, 5, 7, 9, 11, 13, 15};
constexpr uint8_t kCodesOf1[4] = {0, 8, 16, 0};

}  // namespace

std::optional<GridForm> GridFormOf(DType dtype) {
    switch (dtype) {
        case DType::kIQ2_XXS: return GridForm{8, 0, 2};
        case DType::kIQ2_XS: return GridForm{8, 1, 2};
        case DType::kIQ2_S: return GridForm{8, 2, 2};
        case DType::kIQ3_XXS: return GridForm{12, 0, 2};
        case DType::kIQ3_S: return GridForm{12, 2, 2};
        case DType::kIQ1_S: return GridForm{4, 2, 2};
        case DType::kIQ1_M: return GridForm{4, 2, 8};
        default: return std::nullopt;
    }
}

void PackGridBlock(DType dtype, const std::byte* block, std::span<std::byte*> planes) {
    switch (dtype) {
        case DType::kIQ2_XXS: PackIq2(block, planes); break;
        case DType::kIQ2_XS:
            PackIq2(block, planes);
            PlaneWriter(planes[1]).Copy(block + 66, 8);
            break;
        case DType::kIQ2_S: PackIq2S(block, planes); break;
        case DType::kIQ3_XXS: PackIq3(block, block + 66, planes); break;
        case DType::kIQ3_S:
            PackIq3(block, block + 74, planes);
            PackIq3SScales(block, planes);
            break;
        case DType::kIQ1_S:
            PlaneWriter(planes[0]).Copy(block + 2, 32);
            PlaneWriter(planes[1]).Copy(block + 34, 16);
            break;
        case DType::kIQ1_M: PackIq1M(block, planes); return;
        default: return;
    }
    const bool more = GridFormOf(dtype)->more_bytes != 0;
    PlaneWriter(planes[more ? 2 : 1]).Copy(block, 2);  // f16
}

size_t GridTableBytes(DType dtype) {
    switch (dtype) {
        case DType::kIQ2_XXS: return 8 * kIq2XxsGrid.size();
        case DType::kIQ2_XS: return 8 * kIq2XsGrid.size();
        case DType::kIQ2_S: return 8 * kIq2SGrid.size();
        case DType::kIQ3_XXS: return 4 * kIq3XxsGrid.size();
        case DType::kIQ3_S: return 4 * kIq3SGrid.size();
        case DType::kIQ1_S:
        case DType::kIQ1_M: return 8 * kIq1Grid.size();
        default: return 0;
    }
}

void WriteGridTable(DType dtype, std::byte* out) {
    switch (dtype) {
        case DType::kIQ2_XXS: return WriteEntries(kIq2XxsGrid, 2, kMagnitudesOf2, out);
        case DType::kIQ2_XS: return WriteEntries(kIq2XsGrid, 2, kMagnitudesOf2, out);
        case DType::kIQ2_S: return WriteEntries(kIq2SGrid, 2, kMagnitudesOf2, out);
        case DType::kIQ3_XXS: return WriteEntries(kIq3XxsGrid, 3, kMagnitudesOf3Xxs, out);
        case DType::kIQ3_S: return WriteEntries(kIq3SGrid, 3, kMagnitudesOf3S, out);
        case DType::kIQ1_S:
        case DType::kIQ1_M: return WriteEntries(kIq1Grid, 2, kCodesOf1, out);
        default: return;
    }
}

}  // namespace weft::backend::on_gpu
