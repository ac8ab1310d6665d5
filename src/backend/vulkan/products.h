// What the lowerings of products share: the kernel of a weight's type, and its arguments.
#pragma once

#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/weights.h"

namespace weft::backend::vulkan {

// Rows of x that a matvec kernel takes at once; more of them are cut.
inline constexpr int64_t kMatvecRows = 8;

// "matvec_q4_0" of "matvec" and kQ4_0.
std::string ShaderOf(std::string_view family, DType dtype);

// Invocations of a workgroup, a multiple of the subgroup, which is always the device's own where
// there is a choice: a kernel's sums do not depend on what else a compiler thinks of it.
uint32_t GroupSize(const gpu::Description& gpu);
uint32_t PinnedSubgroup(const gpu::Description& gpu);

// Planes as kernels take them: addresses, and rows in units of 16 bytes.
struct PlaneArgs {
    uint64_t plane[WeightLayout::kMostPlanes] = {};
    uint32_t row_units[WeightLayout::kMostPlanes] = {};
};
// kUnsupported: CheckWeightType, or a row of 64 GiB and more.
Result<PlaneArgs> PlanesOf(const WeightPlace& weight);
Region AllOf(const WeightPlace& weight);

// Arguments of matvec.comp and tile.comp.
struct ProductArgs {
    uint64_t plane[WeightLayout::kMostPlanes] = {};
    uint64_t x = 0, y = 0, bias = 0;  // x: its floats, whatever kernels take
    uint64_t ids = 0;                 // of tile.comp: the plan
    uint64_t weights = 0, base = 0;   // of experts' sums, or of a gated product
    uint32_t row_units[WeightLayout::kMostPlanes] = {};
    uint32_t n = 0, cols = 0, rows = 0;
    uint32_t first_expert = 0, experts = 0, used = 0;
    uint32_t by_token = 0;
    uint32_t scales_at = 0;  // of rows in int8 or f16
};
static_assert(sizeof(ProductArgs) == 128);

enum class ProductKind : uint32_t { kPlain, kHeads, kExperts, kSum };

// What a product touches beside its weight. x: all its rows, from args.x on.
struct ProductRegions {
    Region x;
    std::vector<Region> reads, writes;
};

// Whether products of this weight take x in int8, and its tiles in f16.
bool IsInteger(const Emitter& e, const WeightPlace& weight);
bool IsForMatrix(const Emitter& e, const WeightPlace& weight);
// Whether this build has kernels for matrix units, and the device what these need beside them.
bool HasMatrixKernels(const gpu::Description& gpu);

// A second weight, laid out as the first, by whose product (and its bias, or 0) that of the first
// is gated.
struct Gated {
    const WeightPlace& up;
    uint64_t bias = 0;
    Activation activation = Activation::kSilu;
};

// y of `rows` rows of x, `depth` times (matrices, slots or sums: z of matvec.comp). args: all but
// what the weights say. gated: kPlain and kExperts, or null.
Status EmitMatvec(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                  int64_t rows, int64_t depth, ProductRegions regions,
                  const Gated* gated = nullptr);
// The same by tiles of `tile` rows (16, 32 or 64), `blocks` of them.
Status EmitTiles(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                 int64_t rows, int64_t tile, int64_t blocks, int64_t depth, ProductRegions regions);
// That of the two which suits the rows: kPlain or kHeads.
Status EmitProduct(Emitter& e, ProductKind kind, const WeightPlace& weight, const ProductArgs& args,
                   int64_t rows, int64_t depth, ProductRegions regions);

// Rows of a tile, where so many rows are to be multiplied.
int64_t TileOf(int64_t rows);

}  // namespace weft::backend::vulkan
