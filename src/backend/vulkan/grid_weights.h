// Weights whose values come out of a code book (IQ1, IQ2, IQ3), in planes: indices and signs as the
// file has them, so that they take its bytes; and the book as kernels read it, once a weight.
// src/shaders/grids.glsl reads both.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "backend/vulkan/weights.h"

namespace weft::backend::vulkan {

// Bytes of 32 elements: of indices and what is as wide (plane 0), and of what has a plane of its
// own (0: none). The scale of a block is an f16 in the last plane, but of IQ1_M, where it is in the
// spare bits of plane 2.
struct GridForm {
    int index_bytes = 0, more_bytes = 0;
    int scale_plane_bytes = 0;  // of a block of 256
};
std::optional<GridForm> GridFormOf(DType dtype);  // none: no such type

// One block's bytes to where it stands in each plane, which it moves on.
void PackGridBlock(DType dtype, const std::byte* block, std::span<std::byte*> planes);

// Entries of a code book, a byte a value: eight of them (IQ1, IQ2) or four (IQ3). IQ1's are 8 g +
// 8, the others the magnitudes.
size_t GridTableBytes(DType dtype);
void WriteGridTable(DType dtype, std::byte* out);

}  // namespace weft::backend::vulkan
