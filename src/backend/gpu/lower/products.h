// Helpers for the lowerings of products: the kernel for a weight's type, and its arguments.
#pragma once

#include "backend/gpu/dispatch/dispatch.h"
#include "backend/gpu/dispatch/weights.h"

namespace weft::backend::on_gpu {

// Maximum number of rows of x in one dispatch of a matvec kernel. A product of more rows is emitted
// as several dispatches.
inline constexpr int64_t kMatvecRows = 8;
// Maximum number of rows of a product that matrix units compute in parts
// (Arithmetic::split_groups).
inline constexpr int64_t kMostDividedRows = 128;

// "matvec_q4_0" from "matvec" and kQ4_0.
std::string ShaderOf(std::string_view family, DType dtype);

// Number of invocations in a workgroup, a multiple of the subgroup size. If a device has several
// subgroup sizes, kernels request its default size (PinnedSubgroup). So the order of a kernel's
// sums does not depend on a choice of the driver's compiler.
uint32_t GroupSize(const gpu::Description& gpu);
// Workgroup size of matvec.comp and of kernels whose results must equal its results bit for bit
// (route.comp).
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
    // x: address of the float32 rows. EmitMatvec and EmitTiles replace it by the address of an int8
    // or f16 copy if the kernel reads the copy.
    uint64_t x = 0, y = 0, bias = 0;
    uint64_t ids = 0;  // the plan of experts (tile.comp)
    // kSum: the experts' weights, and the base that is added (or 0). Gated products: set by
    // EmitMatvec.
    uint64_t weights = 0, base = 0;
    // Address of data for the last workgroup, which converts the results to int8 or chooses experts
    // (matvec.comp); 0: none.
    uint64_t ending = 0;
    uint32_t row_units[WeightLayout::kMostPlanes] = {};
    uint32_t n = 0, cols = 0, rows = 0;
    uint16_t first_expert = 0, experts = 0, used = 0;
    uint16_t by_token = 0;
    uint32_t scales_at = 0;  // for rows in int8 or f16
};
static_assert(sizeof(ProductArgs) == 128);

enum class ProductKind : uint32_t { kPlain, kHeads, kExperts, kSum };

// Memory that a product reads or writes in addition to the weight. x: all rows of x, which begin at
// args.x.
struct ProductRegions {
    Region x;
    std::vector<Region> reads, writes;
};

// Rows of x in int8: first the codes, then the scales (dot.glsl).
struct IntegerRows {
    Region region;
    uint64_t scales = 0;  // address
};
// Whether the kernel that computes `x` also converts it to int8 (codes.glsl). The kernel does so if
// products read `x` in int8 and the step has at most as many rows as the matvec kernels support.
bool WantsIntegers(const Emitter& e, program::ValueId x);
// PlaceIntegers returns scratch memory for the int8 rows that such a kernel writes. NoteIntegers
// notes that the kernel has written them. kNextToGates: the kernel that writes these int8 rows may
// also read int8 rows that an earlier kernel wrote, so the new rows get separate scratch memory.
enum class Int8Place { kUsual, kNextToGates };
Result<IntegerRows> PlaceIntegers(Emitter& e, program::ValueId x,
                                  Int8Place place = Int8Place::kUsual);
void NoteIntegers(Emitter& e, program::ValueId x, const IntegerRows& rows);

// IsInteger: whether products with this weight read x in int8. IsForMatrix: whether the tile
// kernels of products with this weight read x in f16; this has priority over IsInteger.
bool IsInteger(const Emitter& e, const WeightPlace& weight);
bool IsForMatrix(const Emitter& e, const WeightPlace& weight);
// Whether this build has the kernels for matrix units, and the device has what they need besides
// matrix units (float16, a suitable subgroup size, enough shared memory).
bool HasMatrixKernels(const gpu::Description& gpu);

// The second product of a gated product, y = act(gate) * up.
struct Gated {
    Activation activation = Activation::kSilu;
    program::ValueId y = program::kNoValue;
    // up: if not null, the kernel computes both products: first gate, with the weight passed to
    // EmitMatvec, then up, with this weight. This weight has the type and sizes of gate's weight;
    // `bias` is the address of the bias of up, or 0. If null, the kernel computes only up, with the
    // weight passed to EmitMatvec, and `gate` holds the computed rows of gate.
    const WeightPlace* up = nullptr;
    uint64_t bias = 0;
    Region gate{};
};

// The family of shaders that multiply by a router's weight and then choose experts.
inline constexpr std::string_view kMatvecRoute = "matvec_route";

// Multiplies `rows` rows of x by the weight. depth: the number of workgroups along z (matvec.comp):
// 1 for kPlain, matrices for kHeads, slots for kExperts, rows of the step for kSum. args: all
// arguments except those that describe the weight. gated: for kPlain and kExperts, or null. family:
// first part of the shader's name.
Status EmitMatvec(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                  int64_t rows, int64_t depth, ProductRegions regions, const Gated* gated = nullptr,
                  std::string_view family = "matvec");
// As EmitMatvec, with `blocks` tiles of `tile` rows (16, 32 or 64).
Status EmitTiles(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                 int64_t rows, int64_t tile, int64_t blocks, int64_t depth, ProductRegions regions);
// Calls EmitMatvec or EmitTiles, by the number of rows. kind: kPlain or kHeads.
Status EmitProduct(Emitter& e, ProductKind kind, const WeightPlace& weight, const ProductArgs& args,
                   int64_t rows, int64_t depth, ProductRegions regions);

// Sets the sizes at which products switch to other kernels. The sizes were measured on an H200 and
// are estimates for integrated GPUs.
void SetSizes(const gpu::Description& gpu, Arithmetic& arithmetic);

// Tile size for a product of `rows` rows.
int64_t TileOf(int64_t rows);

}  // namespace weft::backend::on_gpu
