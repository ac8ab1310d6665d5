// Shapes of the workgroups of products on matrix units (shaders/tile_matrix.glsl). The shape
// decides how fast a product is; it does not affect the bits. So each device uses the shapes that
// it measured to be the fastest (tune.h).
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "gpu/device.h"
#include "tensor/dtype.h"

namespace weft::backend::on_gpu {

// kEmulated: the kernel that computes products of matrix units with ordinary instructions.
enum class MatrixUnits { kOwn, kEmulated };
constexpr MatrixUnits EmulatedIf(bool emulated) {
    return emulated ? MatrixUnits::kEmulated : MatrixUnits::kOwn;
}

// A workgroup multiplies `rows` rows of x by `wide` rows of the weight, `deep` columns at a time.
struct TileShape {
    uint32_t invocations = 0;  // 0: no shape
    uint32_t rows = 0, wide = 0, deep = 0;
    uint32_t down = 1;     // subgroups that divide the rows (Down)
    uint32_t buffers = 1;  // 2: while one is multiplied, the next columns are written to the other
    auto operator<=>(const TileShape&) const = default;

    // Bytes of shared memory.
    uint32_t SharedBytes(uint32_t subgroup, MatrixUnits units) const;
    // The number of subgroups that divide the rows of x; the others divide the rows of the weight.
    // More than `down` if some subgroups would have nothing to do otherwise.
    uint32_t Down(uint32_t subgroup) const;
    // Whether the device can run it.
    bool Fits(const gpu::Description& gpu, MatrixUnits units) const;
};

// Products are classified by their rows of x: up to 16, 32, 64, 128, and more. Tiles of the first
// three classes have as many rows as the class.
enum class TileClass { k16, k32, k64, k128, kMany };
inline constexpr std::array kTileClasses = {TileClass::k16, TileClass::k32, TileClass::k64,
                                            TileClass::k128, TileClass::kMany};
TileClass TileClassOf(int64_t rows);

// Kinds of weights, by the work to decode them: float16; blocks with one scale; blocks of blocks
// (K types and code books).
enum class Decoding { kPlain, kBlocks, kSuperBlocks };
inline constexpr std::array kDecodings = {Decoding::kPlain, Decoding::kBlocks,
                                          Decoding::kSuperBlocks};
Decoding DecodingOf(DType dtype);

// The shape of each kind of weights and class; without a shape, the default is used.
struct TileShapes {
    std::array<std::array<TileShape, kTileClasses.size()>, kDecodings.size()> shapes{};
    auto operator<=>(const TileShapes&) const = default;
    TileShape& at(Decoding decoding, TileClass rows) {
        return shapes[static_cast<size_t>(decoding)][static_cast<size_t>(rows)];
    }
    const TileShape& at(Decoding decoding, TileClass rows) const {
        return shapes[static_cast<size_t>(decoding)][static_cast<size_t>(rows)];
    }
};

// The shapes of a class that are worth measuring on the device. Not empty if the device runs
// tile_matrix.glsl at all.
std::vector<TileShape> TileCandidates(const gpu::Description& gpu, TileClass rows,
                                      MatrixUnits units);
// The shape of a class if none was measured. The defaults were measured on an H200.
TileShape DefaultTile(const gpu::Description& gpu, TileClass rows, MatrixUnits units);
// Whether the device runs tile_matrix.glsl: whole subgroups, and enough shared memory.
bool TakesMatrixTiles(const gpu::Description& gpu);

}  // namespace weft::backend::on_gpu
