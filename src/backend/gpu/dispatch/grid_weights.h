// Layout in planes (weights.h) of weights with a code book (types IQ1, IQ2, IQ3). Indices and signs
// have the same format as in the file, so they take no more space. The code book is stored once per
// weight, in the layout that kernels read (src/shaders/grids.glsl).
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "tensor/dtype.h"

namespace weft::backend::on_gpu {

// index_bytes: bytes per 32 elements in the first plane (indices, and data of the same width).
// more_bytes: bytes per 32 elements in the second plane; 0: there is no such plane. The last plane
// has each block's float16 scale. For IQ1_M, the last plane has the block's words of small scales,
// whose spare bits hold the float16 scale.
struct GridForm {
    int index_bytes = 0, more_bytes = 0;
    int scale_plane_bytes = 0;  // per block of 256 elements
};
std::optional<GridForm> GridFormOf(DType dtype);  // nullopt: a type without a code book

// Writes one block's bytes to its place in each plane, and advances `planes`.
void PackGridBlock(DType dtype, const std::byte* block, std::span<std::byte*> planes);

// The code book, one byte per value. An entry has eight values (IQ1, IQ2) or four values (IQ3). A
// value g of an IQ1 entry is stored as 8 g + 8; values of other types are magnitudes.
size_t GridTableBytes(DType dtype);
void WriteGridTable(DType dtype, std::byte* out);

}  // namespace weft::backend::on_gpu
