#include "backend/vulkan/products.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <limits>

namespace weft::backend::vulkan {
namespace {

// Vulkan's least limit of workgroups in a dimension; kernels go on from there in a loop.
constexpr int64_t kMostGroups = 65535;

// Columns of x are loaded by fours and in whole units, where all rows allow it. Types of blocks
// always do; the others have units of 4 and 8.
bool HasWholeUnits(DType dtype, int64_t cols) {
    return Info(dtype).quantized || cols % (dtype == DType::kF32 ? 4 : 8) == 0;
}

// Of tile.comp: invocations of a workgroup, and rows of the weight that it takes.
constexpr uint32_t kTileInvocations = 128;
constexpr int64_t kTileWide = 64;

// Arguments of quantize_x.comp.
struct QuantizeArgs {
    uint64_t x = 0, codes = 0, scales = 0;
    uint32_t blocks = 0, unused = 0;
};

// Floats in int8, as quantize_x.comp lays them out: made once for all products that read them.
struct IntegerRows {
    Region region;
    uint32_t scales_at = 0;  // in units of kScalesUnit bytes
};
constexpr uint64_t kScalesUnit = 256, kBlockColumns = 32, kBlockScaleBytes = 8;
constexpr uint32_t kQuantizeInvocations = 64;

Result<IntegerRows> EmitIntegerRows(Emitter& e, const Region& x) {
    constexpr const char* kScratch = "int8 rows";
    const uint64_t count = x.bytes / sizeof(float), blocks = count / kBlockColumns;
    IntegerRows rows;
    const uint64_t codes = (count + kScalesUnit - 1) / kScalesUnit * kScalesUnit;
    rows.scales_at = static_cast<uint32_t>(codes / kScalesUnit);
    if (const Region* made = e.FindMade(kScratch, x); made != nullptr) {
        rows.region = *made;
        return rows;
    }
    if (blocks > std::numeric_limits<uint32_t>::max() / kBlockColumns) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} activations of a step are to be products' operands; Vulkan kernels "
                         "in int8 take 2^32. Use a smaller --chunk, or --exact",
                         count);
    }
    WEFT_ASSIGN(rows.region, e.Scratch(kScratch, codes + blocks * kBlockScaleBytes));
    QuantizeArgs args;
    args.x = x.address;
    args.codes = rows.region.address;
    args.scales = rows.region.address + codes;
    args.blocks = static_cast<uint32_t>(blocks);
    constexpr uint64_t kEach = kQuantizeInvocations * 4 / kBlockColumns;
    const auto groups = static_cast<int64_t>((blocks + kEach - 1) / kEach);
    WEFT_TRY(e.Run("quantize_x", {kQuantizeInvocations}, args,
                   {std::min(groups, kMostGroups), 1, 1}, {x}, {rows.region}));
    e.NoteMade(kScratch, x, rows.region);
    return rows;
}

// The shader of a family ("matvec", "tile") for this weight, and x as it takes it.
Result<std::string> SetOperand(Emitter& e, std::string_view family, const WeightPlace& weight,
                               ProductArgs& args, ProductRegions& regions) {
    if (!IsInteger(e, weight)) {
        regions.reads.push_back(regions.x);
        return ShaderOf(family, weight.dtype);
    }
    WEFT_ASSIGN(const IntegerRows rows, EmitIntegerRows(e, regions.x));
    args.x = rows.region.address;
    args.scales_at = rows.scales_at;
    regions.reads.push_back(rows.region);
    return ShaderOf(std::string(family) + "_dot", weight.dtype);
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

uint32_t PinnedSubgroup(const gpu::Description& gpu) {
    return gpu.least_subgroup < gpu.most_subgroup ? gpu.subgroup : 0;
}

Result<PlaneArgs> PlanesOf(const WeightPlace& weight) {
    WEFT_TRY(CheckWeightType(weight.dtype, weight.cols));
    const WeightLayout layout = LayoutOf(weight.dtype, weight.matrices * weight.rows, weight.cols);
    if (weight.matrices * weight.rows > std::numeric_limits<int32_t>::max()) {
        return MakeError(ErrorCode::kUnsupported,
                         "a weight has {} matrices of {} rows; Vulkan kernels count to 2^31 rows",
                         weight.matrices, weight.rows);
    }
    PlaneArgs args;
    for (size_t p = 0; p < layout.count; ++p) {
        args.plane[p] = weight.address + layout.planes[p].offset;
        args.row_units[p] = static_cast<uint32_t>(layout.planes[p].row_bytes / 16);
    }
    return args;
}

Region AllOf(const WeightPlace& weight) {
    return {weight.address,
            LayoutOf(weight.dtype, weight.matrices * weight.rows, weight.cols).bytes};
}

bool IsInteger(const Emitter& e, const WeightPlace& weight) {
    return e.arithmetic().integer && !e.reference() && Info(weight.dtype).quantized;
}

int64_t TileOf(int64_t rows) {
    return rows <= 16 ? 16 : rows <= 32 ? 32 : 64;
}

Status EmitMatvec(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                  int64_t rows, int64_t depth, ProductRegions regions) {
    WEFT_TRY(SetWeight(weight, rows, args));
    WEFT_ASSIGN(const std::string shader, SetOperand(e, "matvec", weight, args, regions));
    // Few kernels a type: 1, 2, 4 or 8 rows.
    const auto at_once =
        static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(std::min(rows, kMatvecRows))));
    // More rows of the weight a workgroup read x less often; fewer make more workgroups.
    const int64_t out = at_once == 1 && weight.rows >= 2048 ? 4 : 2;
    regions.reads.push_back(AllOf(weight));
    // A processor has one memory: what is staged there is copied for nothing.
    const bool stages = e.gpu().kind != gpu::Kind::kCpu;
    return e.Run(shader,
                 {GroupSize(e.gpu()), static_cast<uint32_t>(at_once), static_cast<uint32_t>(out),
                  static_cast<uint32_t>(kind), HasWholeUnits(weight.dtype, weight.cols) ? 1u : 0u,
                  stages ? 1u : 0u},
                 args,
                 {std::min((weight.rows + out - 1) / out, kMostGroups),
                  (rows + at_once - 1) / at_once, depth},
                 std::move(regions.reads), std::move(regions.writes), PinnedSubgroup(e.gpu()));
}

Status EmitTiles(Emitter& e, ProductKind kind, const WeightPlace& weight, ProductArgs args,
                 int64_t rows, int64_t tile, int64_t blocks, int64_t depth,
                 ProductRegions regions) {
    WEFT_TRY(SetWeight(weight, rows, args));
    WEFT_ASSIGN(const std::string shader, SetOperand(e, "tile", weight, args, regions));
    regions.reads.push_back(AllOf(weight));
    return e.Run(shader,
                 {kTileInvocations, static_cast<uint32_t>(tile), static_cast<uint32_t>(kind),
                  HasWholeUnits(weight.dtype, weight.cols) ? 1u : 0u},
                 args, {(weight.rows + kTileWide - 1) / kTileWide, blocks, depth},
                 std::move(regions.reads), std::move(regions.writes));
}

Status EmitProduct(Emitter& e, ProductKind kind, const WeightPlace& weight, const ProductArgs& args,
                   int64_t rows, int64_t depth, ProductRegions regions) {
    if (e.reference() || rows <= kMatvecRows) {
        return EmitMatvec(e, kind, weight, args, rows, depth, std::move(regions));
    }
    const int64_t tile = TileOf(rows);
    return EmitTiles(e, kind, weight, args, rows, tile, (rows + tile - 1) / tile, depth,
                     std::move(regions));
}

}  // namespace weft::backend::vulkan
