// Weights with a code book (IQ1, IQ2, IQ3) in planes. Indices and signs stay as in the file, so
// that they take no more space. The code book is stored once per weight in the form that kernels
// read. src/shaders/grids.glsl reads both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/vulkan/weights.h"

namespace weft::backend::vulkan {

// Bytes per 32 elements: index_bytes in plane 0 (indices, and data of the same width), more_bytes
// in the second plane (0: there is none). The last plane has each block's f16 scale; for IQ1_M, its
// scale words, whose spare bits hold the f16 scale.
struct GridForm {
    int index_bytes = 0, more_bytes = 0;
    int scale_plane_bytes = 0;  // per block of 256 elements
};
std::optional<GridForm> GridFormOf(DType dtype);  // nullopt: a type without a code book

// Writes one block's bytes to its place in each plane, and advances `planes`.
void PackGridBlock(DType dtype, const std::byte* block, std::span<std::byte*> planes);

// The code book, one byte per value: entries of eight values (IQ1, IQ2) or four (IQ3). IQ1's values
// are 8 g + 8, the others are magnitudes.
size_t GridTableBytes(DType dtype);
void WriteGridTable(DType dtype, std::byte* out);

}  // namespace weft::backend::vulkan
