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
// Of matvec.comp, and of what has the bits of its other forms (route.comp).
uint32_t MatvecSize(const gpu::Description& gpu);
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
    uint64_t ending = 0;              // of what results are made to by the same kernel
    uint32_t row_units[WeightLayout::kMostPlanes] = {};
    uint32_t n = 0, cols = 0, rows = 0;
    uint16_t first_expert = 0, experts = 0, used = 0;
    uint16_t by_token = 0;
    uint32_t scales_at = 0;  // of rows in int8 or f16
};
static_assert(sizeof(ProductArgs) == 128);

enum class ProductKind : uint32_t { kPlain, kHeads, kExperts, kSum };

// What a product touches beside its weight. x: all its rows, from args.x on.
struct ProductRegions {
    Region x;
    std::vector<Region> reads, writes;
};

// x in int8: codes, and behind them scales (dot.glsl).
struct IntegerRows {
    Region region;
    uint64_t scales = 0;  // address
};
// Whether the kernel that makes a value makes it to int8, too (codes.glsl): products read it so, in
// steps of as many rows as a matvec takes.
bool WantsIntegers(const Emitter& e, program::ValueId x);
// Their place, for such a kernel, which says after it has run that they are there. gates: the
// kernel reads such rows itself.
Result<IntegerRows> PlaceIntegers(Emitter& e, program::ValueId x, bool gates = false);
void NoteIntegers(Emitter& e, program::ValueId x, const IntegerRows& rows);

// Whether products of this weight take x in int8, and its tiles in f16.
bool IsInteger(const Emitter& e, const WeightPlace& weight);
bool IsForMatrix(const Emitter& e, const WeightPlace& weight);
// Whether this build has kernels for matrix units, and the device what these need beside them.
bool HasMatrixKernels(const gpu::Description& gpu);

// What gates a product, or is gated by it: y = act(gate) * up.
struct Gated {
    Activation activation = Activation::kSilu;
    program::ValueId y = program::kNoValue;
    // The product is the gate, and this, laid out as its weight, that of up, whose bias (or 0) is
    // `bias`. Null: the product is up, and `gate` has the rows of the gate.
    const WeightPlace* up = nullptr;
    uint64_t bias = 0;
    Region gate{};
};

// y of `rows` rows of x, `depth` times (matrices, slots or sums: z of matvec.comp). args: all but
// what the weights say. gated: kPlain and kExperts, or null. family: of shaders.
Status EmitMatvec(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                  int64_t rows, int64_t depth, ProductRegions regions, const Gated* gated = nullptr,
                  const char* family = "matvec");
// The same by tiles of `tile` rows (16, 32 or 64), `blocks` of them.
Status EmitTiles(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                 int64_t rows, int64_t tile, int64_t blocks, int64_t depth, ProductRegions regions);
// That of the two which suits the rows: kPlain or kHeads.
Status EmitProduct(Emitter& e, ProductKind kind, const WeightPlace& weight, const ProductArgs& args,
                   int64_t rows, int64_t depth, ProductRegions regions);

// Which products take which kernels: measured on an H200, guessed for an integrated GPU.
void SetSizes(const gpu::Description& gpu, Arithmetic& arithmetic);

// Rows of a tile, where so many rows are to be multiplied.
int64_t TileOf(int64_t rows);

}  // namespace weft::backend::vulkan
