#include "backend/gpu/lower/products.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <limits>

#include "base/check.h"
#include "shaders/shaders.h"

namespace weft::backend::on_gpu {
namespace {

// Number of workgroups that every Vulkan device allows in a dimension. For more work, kernels loop.
constexpr int64_t kMostGroups = 65535;

// Whether columns of x can be loaded four at a time in whole units, for all rows. This always holds
// for block types. Units of other types are 4 or 8 columns.
bool HasWholeUnits(DType dtype, int64_t cols) {
    return Info(dtype).quantized || cols % (dtype == DType::kF32 ? 4 : 8) == 0;
}

// Workgroup size of matvec.comp on devices without larger subgroups. Sums within one subgroup need
// no shared memory.
constexpr uint32_t kMatvecInvocations = 32;

// Workgroup size of matvec.comp for a weight and x in int8. An invocation has whole units of
// columns (UNIT of types.glsl). So the usual subgroup leaves most of its lanes idle in a short row,
// such as rows of experts; a smaller one then computes more rows at a time.
uint32_t IntegerSize(const gpu::Description& gpu, const WeightPlace& weight) {
    const uint32_t usual = MatvecSize(gpu);
    if (gpu.subgroup <= kMatvecInvocations || gpu.least_subgroup > kMatvecInvocations) {
        return usual;
    }
    const auto code_bytes =
        static_cast<int64_t>(LayoutOf(weight.dtype, 1, weight.cols).planes[0].row_bytes);
    const int64_t units = weight.cols / (code_bytes >= weight.cols ? 16 : 32);
    const int64_t lanes = CeilDiv(units, usual) * usual;
    const int64_t fewer = CeilDiv(units, kMatvecInvocations) * kMatvecInvocations;
    return 5 * fewer <= 4 * lanes ? kMatvecInvocations : usual;
}

// Invocations of a tile.comp workgroup, and its rows of the weight.
constexpr uint32_t kTileInvocations = 128;
constexpr int64_t kTileWide = 64, kTileRows = 64;

// The most tiles of a product that is divided along the columns (PartsOf).
constexpr int64_t kMostArrivals = 1024;

// Arguments of quantize_x.comp and of halve_x.comp.
struct QuantizeArgs {
    uint64_t x = 0, codes = 0, scales = 0;
    uint32_t blocks = 0, unused = 0;
};
struct HalveArgs {
    uint64_t x = 0, halves = 0, scales = 0;
    uint32_t rows = 0, cols = 0;
};

// x in a narrower type: a plane of elements, then a plane of scales. Made once for all products
// that read the same x.
struct NarrowRows {
    static constexpr uint64_t kScalesUnit = 256;
    Region region;
    uint32_t scales_at = 0;  // in units of kScalesUnit bytes
    uint64_t Scales() const { return region.address + scales_at * kScalesUnit; }
};
constexpr uint64_t kBlockColumns = 32, kBlockScaleBytes = 8;
constexpr uint32_t kNarrowInvocations = 64;
constexpr uint64_t kMostNarrowBytes = std::numeric_limits<uint32_t>::max();

bool IsEmulated(const Emitter& e) {
    return e.arithmetic().matrix == Arithmetic::Matrix::kEmulated;
}

TileShape ShapeOf(const Emitter& e, DType dtype, TileClass rows) {
    const TileShape& tuned = e.arithmetic().shapes.at(DecodingOf(dtype), rows);
    return tuned.invocations != 0 ? tuned : DefaultTile(e.gpu(), rows, EmulatedIf(IsEmulated(e)));
}

// Large tiles read and decode less per product, but only a few large tiles leave much of a GPU
// idle.
TileShape ShapeOf(const Emitter& e, const WeightPlace& weight, int64_t rows, int64_t depth) {
    TileClass size = TileClassOf(rows);
    for (; size > TileClass::k64; size = static_cast<TileClass>(static_cast<int>(size) - 1)) {
        const TileShape shape = ShapeOf(e, weight.dtype, size);
        const int64_t tiles = CeilDiv(rows, shape.rows) * CeilDiv(weight.rows, shape.wide) * depth;
        if (tiles >= e.arithmetic().least_large_tiles) return shape;
    }
    return ShapeOf(e, weight.dtype, size);
}

// The number of parts into which a product of few rows is divided along the columns. Bits depend on
// it, so it follows from the sizes of the weight alone, not from the shape of the tiles.
int64_t PartsOf(const Emitter& e, ProductKind kind, const WeightPlace& weight, int64_t rows) {
    constexpr int64_t kUsualWide = 64, kLeastColumns = 512, kColumns = 256, kMostParts = 16;
    if (kind != ProductKind::kPlain || rows > kMostDividedRows) return 1;
    const int64_t tiles = CeilDiv(weight.rows, kUsualWide);
    const int64_t most = std::min(kMostParts, weight.cols / kLeastColumns);
    const int64_t parts = std::min(e.arithmetic().split_groups / std::max<int64_t>(tiles, 1), most);
    if (parts <= 1) return 1;
    // All parts but the last have the same multiple of kColumns columns (PartOfColumns in
    // tile_matrix.glsl).
    return CeilDiv(weight.cols, CeilDiv(weight.cols, parts * kColumns) * kColumns);
}

uint32_t UnitsOf(uint64_t bytes) {
    return static_cast<uint32_t>((bytes + NarrowRows::kScalesUnit - 1) / NarrowRows::kScalesUnit);
}

// Allocates narrow rows: bytes of elements and of scales.
Result<NarrowRows> PlaceNarrow(Emitter& e, const char* what, uint64_t bytes, uint64_t scales) {
    if (bytes > kMostNarrowBytes) {
        return MakeError(ErrorCode::kUnsupported,
                         "the {} of a step are {} bytes; Vulkan kernels support at most {}. Use a "
                         "smaller --prefill-chunk (weft serve: --step-tokens), or --exact",
                         what, bytes, kMostNarrowBytes);
    }
    NarrowRows rows;
    rows.scales_at = UnitsOf(bytes);
    WEFT_ASSIGN(rows.region, e.Scratch(what, rows.scales_at * NarrowRows::kScalesUnit + scales));
    return rows;
}

// Name of the derived data, and names of scratch memory: for a separate kernel, for the kernel that
// computes x, and for a kernel that also reads such rows.
constexpr const char* kIntegerRows = "int8 rows";
constexpr const char *kMadeWithX = "int8 rows made with x", *kMadeOfGates = "int8 rows of gates";

Result<NarrowRows> PlaceIntegerRows(Emitter& e, const char* where, const Region& x) {
    const uint64_t count = x.bytes / sizeof(float);
    return PlaceNarrow(e, where, count, count / kBlockColumns * kBlockScaleBytes);
}

Result<NarrowRows> EmitIntegerRows(Emitter& e, const Region& x) {
    const uint64_t count = x.bytes / sizeof(float), blocks = count / kBlockColumns;
    if (const auto made = e.FindDerived(kIntegerRows, x)) return NarrowRows{*made, UnitsOf(count)};
    WEFT_ASSIGN(const NarrowRows rows, PlaceIntegerRows(e, kIntegerRows, x));
    QuantizeArgs args;
    args.x = x.address;
    args.codes = rows.region.address;
    args.scales = rows.Scales();
    args.blocks = static_cast<uint32_t>(blocks);
    constexpr uint64_t kEach = kNarrowInvocations * 4 / kBlockColumns;
    const auto groups = static_cast<int64_t>((blocks + kEach - 1) / kEach);
    WEFT_TRY(e.Run("quantize_x", {kNarrowInvocations}, args, {std::min(groups, kMostGroups), 1, 1},
                   {x}, {rows.region}));
    e.NoteDerived(kIntegerRows, x, rows.region);
    return rows;
}

Result<NarrowRows> EmitHalfRows(Emitter& e, const Region& x, int64_t cols) {
    constexpr const char* kWhat = "f16 rows";
    const std::string key = fmt::format("{} of {}", kWhat, cols);
    const auto columns = static_cast<uint64_t>(cols);
    const uint64_t count = x.bytes / sizeof(float) / columns;
    const uint64_t padded = (columns + kBlockColumns - 1) / kBlockColumns * kBlockColumns;
    WEFT_ASSIGN(const NarrowRows rows,
                PlaceNarrow(e, kWhat, count * padded * 2, count * sizeof(float)));
    if (e.FindDerived(key, x) == rows.region) return rows;
    HalveArgs args;
    args.x = x.address;
    args.halves = rows.region.address;
    args.scales = rows.Scales();
    args.rows = static_cast<uint32_t>(count);
    args.cols = static_cast<uint32_t>(columns);
    WEFT_TRY(e.Run("halve_x", {kNarrowInvocations}, args,
                   {std::min(static_cast<int64_t>(count), kMostGroups), 1, 1}, {x}, {rows.region}));
    e.NoteDerived(key, x, rows.region);
    return rows;
}

enum class Operand { kFloats, kIntegers, kHalves };

// The shader of a family ("matvec", "tile") for this weight; also sets x in the form that it reads.
Result<std::string> SetOperand(Emitter& e, std::string family, Operand operand,
                               const WeightPlace& weight, ProductArgs& args,
                               ProductRegions& regions) {
    NarrowRows rows{.region = regions.x};
    switch (operand) {
        case Operand::kFloats: break;
        case Operand::kIntegers: {
            WEFT_ASSIGN(rows, EmitIntegerRows(e, regions.x));
            family += "_dot";
            break;
        }
        case Operand::kHalves: {
            WEFT_ASSIGN(rows, EmitHalfRows(e, regions.x, weight.cols));
            family += e.arithmetic().matrix == Arithmetic::Matrix::kUnits ? "_matrix"
                                                                          : "_matrix_emulated";
            break;
        }
    }
    args.x = rows.region.address;
    args.scales_at = rows.scales_at;
    regions.reads.push_back(rows.region);
    return ShaderOf(family, weight.dtype);
}

Status SetWeight(const WeightPlace& weight, int64_t rows, ProductArgs& args) {
    WEFT_ASSIGN(const PlaneArgs planes, PlanesOf(weight));
    std::ranges::copy(planes.plane, args.plane);
    std::ranges::copy(planes.row_units, args.row_units);
    args.n = static_cast<uint32_t>(weight.rows);
    args.cols = static_cast<uint32_t>(weight.cols);
    args.rows = static_cast<uint32_t>(rows);
    return {};
}

// For matvec.comp: the address for codes of its results, and the number of finished workgroups per
// block. Made once for all products of that size. Kernels restore the numbers to 0.
Result<Region> PlaceEncoder(Emitter& e, const IntegerRows& rows, uint64_t blocks) {
    const uint64_t address[2] = {rows.region.address, rows.scales};
    const std::string name = fmt::format("encoder {} {} {}", address[0], address[1], blocks);
    return e.Constant(name, sizeof address + blocks * sizeof(uint32_t),
                      [&](std::span<std::byte> out) {
                          std::ranges::fill(out, std::byte{0});
                          std::ranges::copy(std::as_bytes(std::span(address)), out.begin());
                      });
}

// Memory of a product in parts: their sums, and a number of finished workgroups per tile, which
// kernels restore to 0. Products of the same x may run at the same time, so each has its own
// memory.
struct PartsPlace {
    std::string name;
    Region sums, arrivals;
};
Result<PartsPlace> PlaceParts(Emitter& e, const Region& x, int64_t count) {
    constexpr int kMostPlaces = 4;
    PartsPlace place;
    for (int i = 0; i < kMostPlaces; ++i) {
        place.name = fmt::format("partial sums {}", i);
        if (!e.FindDerived(place.name, x)) break;
    }
    WEFT_ASSIGN(place.sums, e.Scratch(place.name, static_cast<uint64_t>(count) * sizeof(float)));
    WEFT_ASSIGN(place.arrivals,
                e.Constant("arrivals of " + place.name, kMostArrivals * sizeof(uint32_t),
                           [](std::span<std::byte> out) { std::ranges::fill(out, std::byte{0}); }));
    return place;
}

// Products of a weight and x in f16, by tile_matrix.glsl. blocks: tiles along the rows of x.
Status EmitMatrixTiles(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                       int64_t rows, const TileShape& shape, int64_t blocks, int64_t depth,
                       ProductRegions regions) {
    WEFT_TRY(SetWeight(weight, rows, args));
    WEFT_ASSIGN(const std::string shader,
                SetOperand(e, "tile", Operand::kHalves, weight, args, regions));
    regions.reads.push_back(AllOf(weight));
    const int64_t across = CeilDiv(weight.rows, shape.wide), parts = PartsOf(e, kind, weight, rows);
    PartsPlace place;
    if (parts > 1) {
        WEFT_CHECK(across * blocks <= kMostArrivals);
        WEFT_ASSIGN(place, PlaceParts(e, regions.x, parts * rows * weight.rows));
        args.weights = place.sums.address;
        args.ending = place.arrivals.address;
        regions.writes.push_back(place.sums);
        regions.writes.push_back(place.arrivals);
    }
    const uint32_t subgroups = shape.invocations / e.gpu().subgroup;
    WEFT_TRY(e.Run(shader,
                   {shape.invocations, shape.rows, kind, HasWholeUnits(weight.dtype, weight.cols),
                    subgroups, shape.wide, shape.deep, shape.Down(e.gpu().subgroup), shape.buffers},
                   args, {across, blocks, depth * parts}, std::move(regions.reads),
                   std::move(regions.writes), PinnedSubgroup(e.gpu()), Parts::kAlongY));
    if (parts > 1) e.NoteDerived(place.name, regions.x, place.arrivals);
    return {};
}

void SetGated(const WeightPlace& weight, const Gated& gated, ProductArgs& args,
              ProductRegions& regions) {
    if (gated.up == nullptr) {
        args.weights = gated.gate.address;
        regions.reads.push_back(gated.gate);
        return;
    }
    WEFT_CHECK(weight.dtype == gated.up->dtype && weight.matrices == gated.up->matrices &&
               weight.rows == gated.up->rows && weight.cols == gated.up->cols);
    args.weights = gated.up->address - weight.address;
    args.base = gated.bias;
    regions.reads.push_back(AllOf(*gated.up));
}

}  // namespace

std::string ShaderOf(std::string_view family, DType dtype) {
    std::string name(family);
    name += '_';
    for (const char c : Info(dtype).name) {
        name += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    }
    return name;
}

uint32_t GroupSize(const gpu::Description& gpu) {
    return std::max(64u, gpu.subgroup);
}

uint32_t MatvecSize(const gpu::Description& gpu) {
    return std::max(kMatvecInvocations, gpu.subgroup);
}

uint32_t PinnedSubgroup(const gpu::Description& gpu) {
    return gpu.least_subgroup < gpu.most_subgroup ? gpu.subgroup : 0;
}

void SetSizes(const gpu::Description& gpu, Arithmetic& arithmetic) {
    if (gpu.kind == gpu::Kind::kCpu) return;
    arithmetic.matvec_rows = 4 * kMatvecRows;  // equal on all GPUs, because bits depend on it
    const bool discrete = gpu.kind == gpu::Kind::kDiscrete;
    arithmetic.least_large_tiles = discrete ? 100 : 32;
    arithmetic.split_groups = discrete ? 512 : 160;
}

Result<PlaneArgs> PlanesOf(const WeightPlace& weight) {
    WEFT_TRY(CheckWeightType(weight.dtype, weight.cols));
    const WeightLayout layout = LayoutOf(weight.dtype, weight.matrices * weight.rows, weight.cols);
    if (weight.matrices * weight.rows > std::numeric_limits<int32_t>::max()) {
        return MakeError(
            ErrorCode::kUnsupported,
            "a weight has {} matrices of {} rows; Vulkan kernels support fewer than 2^31 rows",
            weight.matrices, weight.rows);
    }
    PlaneArgs args;
    for (size_t p = 0; p < layout.count; ++p) {
        args.plane[p] = weight.address + layout.planes[p].offset;
        args.row_units[p] = static_cast<uint32_t>(layout.planes[p].row_bytes / 16);
    }
    if (layout.table_bytes != 0) args.plane[3] = weight.address + layout.table_offset;
    return args;
}

Region AllOf(const WeightPlace& weight) {
    return {weight.address,
            LayoutOf(weight.dtype, weight.matrices * weight.rows, weight.cols).bytes};
}

bool IsInteger(const Emitter& e, const WeightPlace& weight) {
    return e.arithmetic().integer && !e.trains() && !e.reference() && HasIntegerCodes(weight.dtype);
}

bool HasMatrixKernels(const gpu::Description& gpu) {
    return !shaders::Find("tile_matrix_q8_0").empty() && TakesMatrixTiles(gpu);
}

bool WantsIntegers(const Emitter& e, program::ValueId x) {
    if (!e.fuses() || !e.arithmetic().integer || e.reference()) return false;
    if (e.Rows(x) > kMatvecRows || e.Cols(x) % static_cast<int64_t>(kBlockColumns) != 0) {
        return false;
    }
    return std::ranges::any_of(e.program().ops, [&](const program::Op& op) {
        return program::WeightInput(op.kind()) && op.inputs[0] == x &&
               IsInteger(e, e.Weight(program::WeightOf(op)));
    });
}

Result<IntegerRows> PlaceIntegers(Emitter& e, program::ValueId x, Int8Place place) {
    WEFT_ASSIGN(const NarrowRows rows,
                PlaceIntegerRows(e, place == Int8Place::kNextToGates ? kMadeOfGates : kMadeWithX,
                                 e.All(x)));
    return IntegerRows{rows.region, rows.Scales()};
}

void NoteIntegers(Emitter& e, program::ValueId x, const IntegerRows& rows) {
    e.NoteDerived(kIntegerRows, e.All(x), rows.region);
}

bool IsForMatrix(const Emitter& e, const WeightPlace& weight) {
    const bool type = weight.dtype == DType::kF16 || HasIntegerCodes(weight.dtype);
    const bool matrix = e.arithmetic().matrix != Arithmetic::Matrix::kNone;
    return matrix && !e.trains() && !e.reference() && type;
}

int64_t TileOf(int64_t rows) {
    return rows <= 16 ? 16 : rows <= 32 ? 32 : kTileRows;
}

Status EmitMatvec(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                  int64_t rows, int64_t depth, ProductRegions regions, const Gated* gated,
                  std::string_view family) {
    WEFT_TRY(SetWeight(weight, rows, args));
    if (gated != nullptr) SetGated(weight, *gated, args, regions);
    const Operand operand = IsInteger(e, weight) ? Operand::kIntegers : Operand::kFloats;
    WEFT_ASSIGN(const std::string shader,
                SetOperand(e, std::string(family), operand, weight, args, regions));
    const bool encodes = gated != nullptr && WantsIntegers(e, gated->y);
    IntegerRows codes;
    if (encodes) {
        WEFT_ASSIGN(codes, PlaceIntegers(e, gated->y, Int8Place::kNextToGates));
        const auto blocks = static_cast<uint64_t>(weight.rows) / kBlockColumns;
        const int64_t units = kind == ProductKind::kExperts ? depth : 1;
        WEFT_ASSIGN(const Region encoder,
                    PlaceEncoder(e, codes, blocks * static_cast<uint64_t>(units)));
        args.ending = encoder.address;
        regions.writes.push_back(codes.region);
        regions.writes.push_back(encoder);
    }
    // Kernels exist for 1, 2, 4 and 8 rows only, so that there are few per type.
    const auto at_once =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(rows, kMatvecRows))));
    // More weight rows per workgroup read x less often; fewer give more workgroups.
    const int64_t many = gated == nullptr ? 2048 : 4096;
    const bool wide = at_once == 1 || e.gpu().subgroup >= 64;  // AMD's
    const int64_t out = wide && weight.rows >= many ? 4 : 2;
    const uint32_t size =
        operand == Operand::kIntegers ? IntegerSize(e.gpu(), weight) : MatvecSize(e.gpu());
    const uint32_t pinned = PinnedSubgroup(e.gpu());
    const bool routes = family == kMatvecRoute;
    const uint32_t glu = gated == nullptr ? 0 : 1 + static_cast<uint32_t>(gated->activation);
    const bool gate_made = gated != nullptr && gated->up == nullptr;
    regions.reads.push_back(AllOf(weight));
    // A software GPU has one memory, so staging only copies.
    const bool stages = e.gpu().kind != gpu::Kind::kCpu;
    WEFT_TRY(e.Run(
        shader,
        {size, at_once, out, kind, HasWholeUnits(weight.dtype, weight.cols), stages, glu, gate_made,
         encodes, routes ? weight.rows : 1},
        args, {std::min(CeilDiv(weight.rows, out), kMostGroups), CeilDiv(rows, at_once), depth},
        std::move(regions.reads), std::move(regions.writes),
        pinned == 0 ? 0 : std::min(size, pinned), Parts::kAlongY));
    if (encodes) NoteIntegers(e, gated->y, codes);
    return {};
}

Status EmitTiles(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                 int64_t rows, int64_t tile, int64_t blocks, int64_t depth,
                 ProductRegions regions) {
    if (IsForMatrix(e, weight)) {
        return EmitMatrixTiles(e, kind, weight, args, rows,
                               ShapeOf(e, weight.dtype, TileClassOf(tile)), blocks, depth,
                               std::move(regions));
    }
    WEFT_TRY(SetWeight(weight, rows, args));
    const Operand operand = IsInteger(e, weight) ? Operand::kIntegers : Operand::kFloats;
    WEFT_ASSIGN(const std::string shader, SetOperand(e, "tile", operand, weight, args, regions));
    regions.reads.push_back(AllOf(weight));
    return e.Run(shader,
                 {kTileInvocations, tile, kind, HasWholeUnits(weight.dtype, weight.cols), 1}, args,
                 {CeilDiv(weight.rows, kTileWide), blocks, depth}, std::move(regions.reads),
                 std::move(regions.writes), 0, Parts::kAlongY);
}

Status EmitProduct(Emitter& e, ProductKind kind, const WeightPlace& weight, const ProductArgs& args,
                   int64_t rows, int64_t depth, ProductRegions regions) {
    const bool matrix = IsForMatrix(e, weight);
    if (e.reference() || rows <= (matrix ? kMatvecRows : e.arithmetic().matvec_rows)) {
        return EmitMatvec(e, kind, weight, args, rows, depth, std::move(regions));
    }
    if (matrix) {
        const TileShape shape = ShapeOf(e, weight, rows, depth);
        return EmitMatrixTiles(e, kind, weight, args, rows, shape, CeilDiv(rows, shape.rows), depth,
                               std::move(regions));
    }
    const int64_t tile = TileOf(rows);
    return EmitTiles(e, kind, weight, args, rows, tile, CeilDiv(rows, tile), depth,
                     std::move(regions));
}

}  // namespace weft::backend::on_gpu
