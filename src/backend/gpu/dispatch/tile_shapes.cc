#include "backend/gpu/dispatch/tile_shapes.h"

#include <algorithm>
#include <bit>

namespace weft::backend::on_gpu {
namespace {

constexpr uint32_t kFragment = 16;  // rows and columns of a matrix of sums
// Matrices of sums of a subgroup. With more, RADV keeps them in scratch memory (32 KiB of a wave).
constexpr uint32_t kMostSums = 16;

// Rows of the tiles of a class, at most 64.
uint32_t RowsOf(TileClass rows) {
    return rows == TileClass::k16 ? 16 : rows == TileClass::k32 ? 32 : 64;
}

// Shapes for few rows. The weight is read once, so a tile keeps many bytes of it in flight: either
// by many columns at a time, or by two buffers. A wide tile reads x less often.
std::vector<TileShape> NarrowShapes(TileClass rows) {
    const uint32_t r = RowsOf(rows), down = r == 16 ? 1 : 2;
    return {{128, r, 32, 128, down, 1},
            {128, r, 64, 128, down, 1},
            {128, r, 64, 64, down, 2},
            {256, r, 128, 64, down, 1}};
}

// The smallest shape. If it does not fit a device, no shape fits.
TileShape LeastShape(TileClass rows) {
    return {128, RowsOf(rows), 64, 32, 2, 1};
}

constexpr TileShape kLarge = {512, 128, 128, 64, 4, 1};

std::vector<TileShape> AllShapes(TileClass rows) {
    switch (rows) {
        case TileClass::k16:
        case TileClass::k32:
        case TileClass::k64: return NarrowShapes(rows);
        case TileClass::k128:
            return {{128, 64, 64, 64, 2, 2},
                    {256, 64, 128, 64, 2, 1},
                    {256, 128, 64, 64, 4, 1},
                    {256, 128, 128, 32, 2, 2}};
        // With subgroups of 32, a subgroup has these fragments: 2 x 2, 4 x 2, 4 x 2, 4 x 4, 4 x 4,
        // 2 x 2. With subgroups of 64, the fourth and fifth do not fit.
        case TileClass::kMany:
            return {kLarge,
                    {256, 128, 128, 64, 2, 1},
                    {256, 128, 128, 32, 2, 2},
                    {128, 128, 128, 32, 2, 1},
                    {256, 256, 128, 32, 4, 1},
                    {256, 64, 128, 64, 2, 1}};
    }
    return {};
}

}  // namespace

uint32_t TileShape::SharedBytes(uint32_t subgroup, MatrixUnits units) const {
    constexpr uint32_t kStored = 16 * 20, kBookAndFlagBytes = 80;
    const uint32_t storing = std::min(invocations / subgroup, buffers == 1 ? 8u : 4u);
    const uint32_t sums = units == MatrixUnits::kEmulated ? rows * (wide + 4) : storing * kStored;
    const uint32_t bounds_and_slots = 2 * wide + rows;
    return buffers * (rows + wide) * (deep / 4 + 2) * 8 + (sums + bounds_and_slots) * 4 +
           kBookAndFlagBytes;
}

uint32_t TileShape::Down(uint32_t subgroup) const {
    const uint32_t subgroups = invocations / subgroup;
    const uint32_t needed = std::min(subgroups * kFragment / wide, rows / kFragment);
    return std::min(std::max(std::min(down, subgroups), needed), rows / kFragment);
}

bool TileShape::Fits(const gpu::Description& gpu, MatrixUnits units) const {
    const uint32_t sums = rows / kFragment * wide / kFragment;
    return gpu.subgroup <= invocations / 2 && invocations <= gpu.most_invocations &&
           sums <= kMostSums * (invocations / gpu.subgroup) &&
           SharedBytes(gpu.subgroup, units) <= gpu.shared_bytes;
}

TileClass TileClassOf(int64_t rows) {
    return rows <= 16    ? TileClass::k16
           : rows <= 32  ? TileClass::k32
           : rows <= 64  ? TileClass::k64
           : rows <= 128 ? TileClass::k128
                         : TileClass::kMany;
}

Decoding DecodingOf(DType dtype) {
    const DTypeInfo& info = Info(dtype);
    if (!info.quantized) return Decoding::kPlain;
    return info.block_elements > 32 ? Decoding::kSuperBlocks : Decoding::kBlocks;
}

std::vector<TileShape> TileCandidates(const gpu::Description& gpu, TileClass rows,
                                      MatrixUnits units) {
    std::vector<TileShape> shapes = AllShapes(rows);
    std::erase_if(shapes, [&](const TileShape& shape) { return !shape.Fits(gpu, units); });
    const TileShape usual = DefaultTile(gpu, rows, units);
    if (std::ranges::find(shapes, usual) == shapes.end()) shapes.push_back(usual);
    return shapes;
}

TileShape DefaultTile(const gpu::Description& gpu, TileClass rows, MatrixUnits units) {
    if (units == MatrixUnits::kEmulated) return LeastShape(rows);
    if (rows >= TileClass::k128 && kLarge.Fits(gpu, MatrixUnits::kOwn)) return kLarge;
    // All narrow classes have the shape of the largest one.
    TileShape narrow = {128, 64, 32, 128, 2, 1}, small = {128, 64, 64, 64, 2, 1};
    const bool keeps_busy = gpu.kind == gpu::Kind::kDiscrete && narrow.Fits(gpu, MatrixUnits::kOwn);
    TileShape usual = LeastShape(rows);
    if (keeps_busy) {
        usual = narrow;
    } else if (small.Fits(gpu, MatrixUnits::kOwn)) {
        usual = small;
    }
    usual.rows = RowsOf(rows);
    return usual;
}

bool TakesMatrixTiles(const gpu::Description& gpu) {
    const TileShape least = LeastShape(TileClass::k64);
    return gpu.float16 && gpu.subgroup >= 8 && std::has_single_bit(gpu.subgroup) &&
           least.Fits(gpu, MatrixUnits::kOwn) && least.Fits(gpu, MatrixUnits::kEmulated);
}

}  // namespace weft::backend::on_gpu
