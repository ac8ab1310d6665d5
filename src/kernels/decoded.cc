#include "kernels/decoded.h"

#include <cstring>

#include "tensor/quant_parts.h"

namespace weft::kernels {

void DecodeStripBlock(DType dtype, const std::byte* packed, DecodedUnit* units) {
    const DTypeInfo& info = Info(dtype);
    const auto count = static_cast<int>(info.block_elements / 32);
    BlockParts parts;
    for (int row = 0; row < kStripRows; ++row) {
        SplitBlock(dtype, packed + row * info.block_bytes, parts);
        for (int u = 0; u < count; ++u) {
            for (int j = 0; j < 8; ++j) {
                std::memcpy(units[u].q[j][row], parts.q + 32 * u + 4 * j, 4);
            }
            for (int h = 0; h < 2; ++h) {
                units[u].scale[h][row] = parts.scale[2 * u + h];
                units[u].offset[h][row] = parts.offset[2 * u + h];
            }
        }
    }
}

}  // namespace weft::kernels
