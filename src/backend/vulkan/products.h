// Helpers for the lowerings of products: the kernel for a weight's type, and its arguments.
#pragma once

#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/weights.h"

namespace weft::backend::vulkan {

// Maximum rows of x for one run of a matvec kernel; more rows are split.
inline constexpr int64_t kMatvecRows = 8;

// "matvec_q4_0" from "matvec" and kQ4_0.
std::string ShaderOf(std::string_view family, DType dtype);

// Invocations of a workgroup, a multiple of the subgroup. The subgroup size is always pinned to the
// device's own if there is a choice, so that a kernel's sums do not depend on the compiler's
// choice.
uint32_t GroupSize(const gpu::Description& gpu);
// Workgroup size of matvec.comp and of kernels with the same bits (route.comp).
uint32_t MatvecSize(const gpu::Description& gpu);
uint32_t PinnedSubgroup(const gpu::Description& gpu);

// A weight's planes as kernel arguments: addresses, and row sizes in units of 16 bytes.
struct PlaneArgs {
    uint64_t plane[WeightLayout::kMostPlanes] = {};
    uint32_t row_units[WeightLayout::kMostPlanes] = {};
};
// Errors: kUnsupported (as CheckWeightType, or a row of 64 GiB or more).
Result<PlaneArgs> PlanesOf(const WeightPlace& weight);
Region AllOf(const WeightPlace& weight);

// Arguments of matvec.comp and tile.comp.
struct ProductArgs {
    uint64_t plane[WeightLayout::kMostPlanes] = {};
    uint64_t x = 0, y = 0, bias = 0;  // x: its float32 form, even if kernels read another
    uint64_t ids = 0;                 // the plan (tile.comp)
    uint64_t weights = 0, base = 0;   // for sums of experts, or gated products
    uint64_t ending = 0;              // for conversions of the results by the same kernel
    uint32_t row_units[WeightLayout::kMostPlanes] = {};
    uint32_t n = 0, cols = 0, rows = 0;
    uint16_t first_expert = 0, experts = 0, used = 0;
    uint16_t by_token = 0;
    uint32_t scales_at = 0;  // for rows in int8 or f16
};
static_assert(sizeof(ProductArgs) == 128);

enum class ProductKind : uint32_t { kPlain, kHeads, kExperts, kSum };

// Memory that a product touches besides its weight. x: all rows, from args.x on.
struct ProductRegions {
    Region x;
    std::vector<Region> reads, writes;
};

// x in int8: codes, then scales (dot.glsl).
struct IntegerRows {
    Region region;
    uint64_t scales = 0;  // address
};
// Whether the kernel that computes a value also converts it to int8 (codes.glsl), because products
// read it in int8 in steps of up to the rows of a matvec.
bool WantsIntegers(const Emitter& e, program::ValueId x);
// PlaceIntegers: scratch memory for the int8 rows of such a kernel. NoteIntegers: the kernel has
// written them. gates: the kernel also reads int8 rows of x, so the new rows have their own place.
Result<IntegerRows> PlaceIntegers(Emitter& e, program::ValueId x, bool gates = false);
void NoteIntegers(Emitter& e, program::ValueId x, const IntegerRows& rows);

// Whether products with this weight read x in int8; whether their tiles read it in f16.
bool IsInteger(const Emitter& e, const WeightPlace& weight);
bool IsForMatrix(const Emitter& e, const WeightPlace& weight);
// Whether this build has kernels for matrix units, and the device has the other features that they
// need.
bool HasMatrixKernels(const gpu::Description& gpu);

// The other half of a gated product: y = act(gate) * up.
struct Gated {
    Activation activation = Activation::kSilu;
    program::ValueId y = program::kNoValue;
    // Not null: the product is the gate; `up` is the weight of up, in the same layout, and `bias`
    // its bias or 0. Null: the product is up, and `gate` holds the gate's rows.
    const WeightPlace* up = nullptr;
    uint64_t bias = 0;
    Region gate{};
};

// Multiplies `rows` rows of x, `depth` times (matrices, slots or sums: z of matvec.comp). args:
// everything except the weight's part. gated: for kPlain and kExperts, or null. family: first part
// of the shader's name.
Status EmitMatvec(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                  int64_t rows, int64_t depth, ProductRegions regions, const Gated* gated = nullptr,
                  const char* family = "matvec");
// As EmitMatvec, with `blocks` tiles of `tile` rows (16, 32 or 64).
Status EmitTiles(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                 int64_t rows, int64_t tile, int64_t blocks, int64_t depth, ProductRegions regions);
// Calls EmitMatvec or EmitTiles, by the number of rows. kind: kPlain or kHeads.
Status EmitProduct(Emitter& e, ProductKind kind, const WeightPlace& weight, const ProductArgs& args,
                   int64_t rows, int64_t depth, ProductRegions regions);

// Sets the sizes at which products switch kernels: measured on an H200, estimated for integrated
// GPUs.
void SetSizes(const gpu::Description& gpu, Arithmetic& arithmetic);

// Tile size for a product of `rows` rows.
int64_t TileOf(int64_t rows);

}  // namespace weft::backend::vulkan
