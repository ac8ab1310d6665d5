#include "backend/gpu/lower/gemm.h"

#include <algorithm>
#include <array>
#include <bit>
#include <limits>
#include <string>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"
#include "backend/gpu/lower/products.h"
#include "base/check.h"

namespace weft::backend::on_gpu {
namespace {

using program::ValueId;

// Arguments of gemm.comp.
struct GemmArgs {
    uint64_t a = 0, b = 0, c = 0;
    uint64_t a_peaks = 0, b_peaks = 0;
    uint64_t plan = 0, factors = 0;
    uint32_t a_stride = 0, b_stride = 0, c_stride = 0;
    uint32_t m = 0, n = 0, k = 0;
    uint32_t split = 0, accumulate = 0;
    uint32_t matrix_rows = 0;
    uint32_t a_used = 1, b_used = 1;
    uint32_t groups = 0, a_count = 0, b_count = 0;
    uint32_t first_matrix = 0, matrices = 0;
};
// Arguments of gemm_peaks.comp.
struct PeakArgs {
    uint64_t x = 0, peaks = 0, plan = 0, factors = 0;
    uint32_t stride = 0, rows = 0, cols = 0, used = 1;
};
// Arguments of gemm_sum.comp.
struct SumArgs {
    uint64_t partial = 0, c = 0;
    uint32_t m = 0, n = 0, c_stride = 0, parts = 0, accumulate = 0;
};

constexpr int64_t kMostTerms = 1'000'000;   // per sum: 62,500 turns of 16
constexpr uint32_t kGemmInvocations = 256;  // of all kernels but those for matrix units
constexpr int64_t kMostGemmGroups = 65535;

// The tile of a gemm.comp workgroup, and specialization constant 10. In the float kernel the
// constant is the number of invocations side by side; in the kernel for matrix units, the terms per
// turn.
struct GemmTile {
    uint32_t invocations = 0;
    int64_t m = 0, n = 0;
    uint32_t shape = 0;
};
constexpr GemmTile kFloatLarge = {kGemmInvocations, 128, 128, 16},
                   kFloatSmall = {kGemmInvocations, 64, 64, 16};
constexpr GemmTile kFloatThinN = {kGemmInvocations, 128, 32, 8},
                   kFloatThinM = {kGemmInvocations, 32, 128, 32};
constexpr GemmTile kMatrixLarge = {256, 128, 128, 32}, kMatrixSmall = {128, 64, 64, 32};

int64_t GemmTilesOf(const GemmTile& tile, int64_t m, int64_t n) {
    return CeilDiv(m, tile.m) * CeilDiv(n, tile.n);
}

bool UsesMatrixUnits(const Emitter& e, const Gemm& gemm) {
    const gpu::Description& gpu = e.gpu();
    return !gemm.exact && e.arithmetic().matrix != Arithmetic::Matrix::kNone && !e.reference() &&
           e.arithmetic().compute == DType::kBF16 && gpu.float16 && gpu.subgroup >= 8 &&
           std::has_single_bit(gpu.subgroup);
}
bool IsEmulated(const Emitter& e) {
    return e.arithmetic().matrix == Arithmetic::Matrix::kEmulated;
}

// Bytes of shared memory that gemm_matrix.glsl needs.
int64_t GemmSharedBytes(const Emitter& e, const GemmTile& tile, GemmForm form) {
    const int64_t deep = tile.shape;
    const auto halves = [&](bool turned, int64_t rows) {
        return turned ? deep * (rows / 4 + 2) * 8 : rows * (deep / 4 + 2) * 8;
    };
    const int64_t storing = std::min<int64_t>(tile.invocations / e.gpu().subgroup, 8);
    const int64_t results = IsEmulated(e) ? tile.m * (tile.n + 4) : storing * 16 * 20;
    return halves(form == GemmForm::kTN, tile.m) + halves(form != GemmForm::kNT, tile.n) +
           4 * (results + tile.m + tile.n + tile.m);
}

GemmTile GemmTileOf(const Emitter& e, const Gemm& gemm, int64_t m, int64_t n, int64_t depth) {
    const int64_t wanted = e.arithmetic().least_large_tiles;
    if (UsesMatrixUnits(e, gemm)) {
        const bool fits = kMatrixLarge.invocations <= e.gpu().most_invocations &&
                          GemmSharedBytes(e, kMatrixLarge, gemm.form) <= e.gpu().shared_bytes;
        const bool large = fits && GemmTilesOf(kMatrixLarge, m, n) * depth >= wanted;
        return large ? kMatrixLarge : kMatrixSmall;
    }
    if (n <= kFloatThinN.n) return kFloatThinN;
    if (m <= kFloatThinM.m) return kFloatThinM;
    const bool large =
        e.gpu().kind != gpu::Kind::kCpu && GemmTilesOf(kFloatLarge, m, n) * depth >= wanted;
    return large ? kFloatLarge : kFloatSmall;
}

// Splits sums of kTN if there would be few workgroups. Sums of the other forms are one chain, so
// that a row does not depend on the number of rows.
int64_t SplitsOf(const Gemm& gemm, const GemmTile& tile, int64_t k) {
    constexpr int64_t kWantedGroups = 256, kLeastTerms = 512;
    if (gemm.form != GemmForm::kTN) return 1;
    const int64_t tiles = std::max<int64_t>(GemmTilesOf(tile, gemm.c.rows, gemm.c.cols), 1);
    return std::clamp<int64_t>(std::min(kWantedGroups / tiles, k / kLeastTerms), 1,
                               kMostGemmGroups);
}

Result<uint32_t> To32(const char* what, int64_t number) {
    if (number >= 0 && number <= std::numeric_limits<uint32_t>::max()) {
        return static_cast<uint32_t>(number);
    }
    return MakeError(ErrorCode::kUnsupported,
                     "a product has {} {}; Vulkan kernels support fewer than 2^32", number, what);
}

uint32_t ElementBytes(DType dtype) {
    return dtype == DType::kF32 ? 4 : 2;
}
// Whether each row begins at a multiple of `bytes`.
bool IsAligned(const GemmMatrix& x, uint64_t bytes) {
    return x.address % bytes == 0 &&
           static_cast<uint64_t>(x.stride) * ElementBytes(x.dtype) % bytes == 0;
}

// Peaks computed by gemm_peaks.comp: `count` peaks per group.
struct Peaks {
    Region region;
    int64_t groups = 1, count = 0;
};

// Peaks of each row of a matrix, or of each column of `matrices` stacked matrices. With `slots`,
// only the rows of these slots count. where: the name of the scratch memory.
struct PeaksOf {
    const char* where;
    GemmMatrix x;
    bool columns = false;
    int64_t matrices = 1;
    const GemmSlots* slots = nullptr;
    int64_t used = 1;
    Region factors{};
};

Result<Peaks> EmitPeaks(Emitter& e, const PeaksOf& of) {
    constexpr int64_t kColumns = 64, kLeastRows = 512, kMostColumnGroups = 16;
    const GemmMatrix& x = of.x;
    Peaks peaks;
    peaks.count = of.columns ? x.cols * of.matrices : x.rows;
    const int64_t rows = x.rows / of.matrices;
    if (of.columns) peaks.groups = std::clamp<int64_t>(rows / kLeastRows, 1, kMostColumnGroups);
    const auto bytes = static_cast<uint64_t>(peaks.groups * peaks.count) * sizeof(uint32_t);
    WEFT_ASSIGN(peaks.region, e.Scratch(of.where, bytes));
    const std::string made = fmt::format("peaks {} {} {} {} {} {}", Info(x.dtype).name, x.rows,
                                         x.cols, x.stride, of.columns, of.matrices);
    if (of.slots == nullptr && e.FindDerived(made, x.All()) == peaks.region) return peaks;
    WEFT_ASSIGN(const uint32_t type, ElementType(x.dtype));
    PeakArgs args;
    args.x = x.address;
    args.peaks = peaks.region.address;
    args.stride = static_cast<uint32_t>(x.stride);
    args.rows = static_cast<uint32_t>(of.columns ? rows : x.rows);
    args.cols = static_cast<uint32_t>(x.cols);
    std::vector<Region> reads = {x.All()};
    if (of.slots != nullptr) {
        args.plan = of.slots->plan.address;
        args.factors = of.factors.address;
        args.used = static_cast<uint32_t>(of.used);
        reads.push_back(of.slots->plan);
        if (of.factors.bytes != 0) reads.push_back(of.factors);
    }
    const std::array<int64_t, 3> groups =
        of.columns ? std::array{CeilDiv(x.cols, kColumns), peaks.groups, of.matrices}
                   : std::array{std::min(x.rows, kMostGemmGroups), int64_t{1}, int64_t{1}};
    WEFT_TRY(e.Run("gemm_peaks", {kGemmInvocations, of.columns, type, IsAligned(x, 16)}, args,
                   groups, std::move(reads), {peaks.region}));
    if (of.slots == nullptr) e.NoteDerived(made, x.All(), peaks.region);
    return peaks;
}

// Puts the peaks of both operands into the arguments.
Status SetPeaks(Emitter& e, const Gemm& gemm, const GemmSlots& slots, GemmArgs& args,
                std::vector<Region>& reads) {
    const bool terms = slots.kind == GemmSlots::Kind::kTerms;
    PeaksOf a{"gemm peaks of a", gemm.a}, b{"gemm peaks of b", gemm.b};
    a.columns = gemm.form == GemmForm::kTN;
    b.columns = gemm.form != GemmForm::kNT;
    if (terms) {
        a.slots = b.slots = &slots;
        a.used = slots.a_used;
        b.used = slots.b_used;
        a.factors = slots.factors;
    }
    if (slots.kind == GemmSlots::Kind::kRows && b.columns) b.matrices = slots.experts;
    WEFT_ASSIGN(const Peaks a_peaks, EmitPeaks(e, a));
    WEFT_ASSIGN(const Peaks b_peaks, EmitPeaks(e, b));
    args.a_peaks = a_peaks.region.address;
    args.b_peaks = b_peaks.region.address;
    args.groups = static_cast<uint32_t>(a_peaks.groups | b_peaks.groups << 16);
    WEFT_ASSIGN(args.a_count, To32("scales", a_peaks.count));
    WEFT_ASSIGN(args.b_count, To32("scales", b_peaks.count));
    reads.push_back(a_peaks.region);
    reads.push_back(b_peaks.region);
    return {};
}

// All arguments except peaks and partial sums.
Result<GemmArgs> GemmArgsOf(const Gemm& gemm, const GemmSlots& slots) {
    const bool turned = gemm.form == GemmForm::kTN;
    GemmArgs args;
    args.a = gemm.a.address;
    args.b = gemm.b.address;
    args.c = gemm.c.address;
    WEFT_ASSIGN(args.a_stride, To32("elements a row", gemm.a.stride));
    WEFT_ASSIGN(args.b_stride, To32("elements a row", gemm.b.stride));
    WEFT_ASSIGN(args.c_stride, To32("elements a row", gemm.c.stride));
    for (const GemmMatrix* x : {&gemm.a, &gemm.b, &gemm.c}) WEFT_TRY(To32("rows", x->rows));
    const int64_t k = turned ? gemm.a.rows : gemm.a.cols;
    if (k > kMostTerms) {
        return MakeError(ErrorCode::kUnsupported,
                         "a product has sums of {} terms; Vulkan kernels support at most {}", k,
                         kMostTerms);
    }
    args.m = static_cast<uint32_t>(gemm.c.rows);
    args.n = static_cast<uint32_t>(gemm.c.cols);
    args.k = args.split = static_cast<uint32_t>(k);
    args.accumulate = gemm.accumulate ? 1 : 0;
    args.a_used = static_cast<uint32_t>(slots.a_used);
    args.b_used = static_cast<uint32_t>(slots.b_used);
    args.plan = slots.plan.address;
    args.factors = slots.factors.address;
    if (slots.kind == GemmSlots::Kind::kNone) return args;
    args.first_matrix = static_cast<uint32_t>(slots.first_matrix);
    args.matrices = static_cast<uint32_t>(slots.experts);
    const GemmMatrix& stack = slots.kind == GemmSlots::Kind::kRows ? gemm.b : gemm.c;
    args.matrix_rows = static_cast<uint32_t>(stack.rows / slots.experts);
    if (slots.kind == GemmSlots::Kind::kTerms) args.m = args.matrix_rows;
    return args;
}

// Adds the partial sums of a product.
Status EmitSum(Emitter& e, const Gemm& gemm, const Region& partial, int64_t parts) {
    SumArgs args;
    args.partial = partial.address;
    args.c = gemm.c.address;
    args.m = static_cast<uint32_t>(gemm.c.rows);
    args.n = static_cast<uint32_t>(gemm.c.cols);
    args.c_stride = static_cast<uint32_t>(gemm.c.stride);
    args.parts = static_cast<uint32_t>(parts);
    args.accumulate = gemm.accumulate ? 1 : 0;
    WEFT_ASSIGN(const uint32_t type, ElementType(gemm.c.dtype));
    std::vector<Region> reads = {partial};
    if (gemm.accumulate) reads.push_back(gemm.c.All());
    const int64_t groups = CeilDiv(gemm.c.rows * gemm.c.cols, kGemmInvocations);
    return e.Run("gemm_sum", {kGemmInvocations, type}, args,
                 {std::min(groups, kMostGemmGroups), 1, 1}, std::move(reads), {gemm.c.All()});
}

bool Fit(const Gemm& gemm, const GemmSlots& slots) {
    const GemmMatrix &a = gemm.a, &b = gemm.b, &c = gemm.c;
    if (slots.kind == GemmSlots::Kind::kRows) {
        return gemm.form == GemmForm::kNT ? a.cols == b.cols : b.cols == c.cols;
    }
    if (slots.kind == GemmSlots::Kind::kTerms) return a.cols * slots.experts == c.rows;
    switch (gemm.form) {
        case GemmForm::kNT: return a.rows == c.rows && b.rows == c.cols && a.cols == b.cols;
        case GemmForm::kNN: return a.rows == c.rows && b.cols == c.cols && a.cols == b.rows;
        case GemmForm::kTN: return a.cols == c.rows && b.cols == c.cols && a.rows == b.rows;
    }
    return false;
}

// Runs the kernel. The kernel writes C, or partial sums of C to scratch memory.
Status EmitGemmTiles(Emitter& e, const Gemm& gemm, const GemmSlots& slots, const GemmTile& tile,
                     const GemmArgs& args, const GemmMatrix& c, int64_t splits,
                     std::vector<Region> reads) {
    WEFT_ASSIGN(const uint32_t a_type, ElementType(gemm.a.dtype));
    WEFT_ASSIGN(const uint32_t b_type, ElementType(gemm.b.dtype));
    WEFT_ASSIGN(const uint32_t c_type, ElementType(c.dtype));
    const uint32_t aligned = (IsAligned(gemm.a, 16) ? 1u : 0u) | (IsAligned(gemm.b, 16) ? 2u : 0u) |
                             (IsAligned(c, c.dtype == DType::kF32 ? 16 : 8) ? 4u : 0u);
    const bool units = UsesMatrixUnits(e, gemm);
    const char* const shader = !units          ? "gemm"
                               : IsEmulated(e) ? "gemm_matrix_emulated"
                                               : "gemm_matrix";
    std::array<int64_t, 3> groups = {CeilDiv(args.n, tile.n), CeilDiv(args.m, tile.m), splits};
    if (slots.kind == GemmSlots::Kind::kRows) groups[1] = slots.blocks;
    if (slots.kind == GemmSlots::Kind::kTerms) groups[2] = slots.experts;
    const uint32_t subgroups = units ? tile.invocations / e.gpu().subgroup : 1;
    const bool brains = gemm.a.dtype == DType::kBF16 && gemm.b.dtype == DType::kBF16;
    const bool rounds = !gemm.exact && e.arithmetic().compute == DType::kBF16 &&
                        (!brains || slots.factors.bytes != 0);
    return e.Run(shader,
                 {tile.invocations, tile.m, tile.n, gemm.form, a_type, b_type, c_type, aligned,
                  slots.kind, rounds, tile.shape, subgroups},
                 args, groups, std::move(reads), {c.All()}, units ? PinnedSubgroup(e.gpu()) : 0,
                 Parts::kAlongY);
}

}  // namespace

Region GemmMatrix::All() const {
    const int64_t elements = rows == 0 ? 0 : (rows - 1) * stride + cols;
    return {address, static_cast<uint64_t>(elements) * ElementBytes(dtype)};
}

GemmMatrix GemmMatrix::Rows(int64_t begin, int64_t count) const {
    GemmMatrix part = *this;
    part.address += static_cast<uint64_t>(begin * stride) * ElementBytes(dtype);
    part.rows = count;
    return part;
}

GemmMatrix GemmMatrix::Columns(int64_t begin, int64_t count) const {
    GemmMatrix part = *this;
    part.address += static_cast<uint64_t>(begin) * ElementBytes(dtype);
    part.cols = count;
    return part;
}

Status EmitGemm(Emitter& e, const Gemm& gemm, const GemmSlots& slots) {
    WEFT_CHECK(Fit(gemm, slots));
    WEFT_ASSIGN(GemmArgs args, GemmArgsOf(gemm, slots));
    const bool grouped = slots.kind != GemmSlots::Kind::kNone;
    GemmTile tile = GemmTileOf(e, gemm, args.m, args.n, grouped ? slots.experts : 1);
    if (slots.kind == GemmSlots::Kind::kRows) {
        tile = UsesMatrixUnits(e, gemm) ? kMatrixSmall : kFloatSmall;
        WEFT_CHECK(slots.tile == tile.m);
    }
    std::vector<Region> reads = {gemm.a.All(), gemm.b.All()};
    if (grouped) reads.push_back(slots.plan);
    if (slots.factors.bytes != 0) reads.push_back(slots.factors);
    if (UsesMatrixUnits(e, gemm)) WEFT_TRY(SetPeaks(e, gemm, slots, args, reads));
    const int64_t wanted = grouped ? 1 : SplitsOf(gemm, tile, args.k);
    // A part may begin at any row, because k counts rows here, so operands stay aligned.
    args.split = static_cast<uint32_t>(CeilDiv(args.k, wanted));
    const int64_t splits = args.split == 0 ? 1 : CeilDiv(args.k, args.split);
    if (splits == 1) {
        args.split = args.k;
        if (gemm.accumulate) reads.push_back(gemm.c.All());
        return EmitGemmTiles(e, gemm, slots, tile, args, gemm.c, 1, std::move(reads));
    }
    const auto bytes = static_cast<uint64_t>(splits * gemm.c.rows * gemm.c.cols) * sizeof(float);
    WEFT_ASSIGN(const Region partial, e.Scratch("gemm partial sums", bytes));
    const GemmMatrix sums{DType::kF32, partial.address, splits * gemm.c.rows, gemm.c.cols,
                          gemm.c.cols};
    args.c = partial.address;
    args.c_stride = args.n;
    args.accumulate = 0;
    WEFT_TRY(EmitGemmTiles(e, gemm, slots, tile, args, sums, splits, std::move(reads)));
    return EmitSum(e, gemm, partial, splits);
}

Result<GemmMatrix> RowsOfWeight(Emitter& e, const WeightPlace& weight, int64_t begin,
                                int64_t count) {
    GemmMatrix matrix{weight.dtype, weight.address, count, weight.cols, weight.cols};
    if (!Info(weight.dtype).quantized) {
        WEFT_TRY(ElementType(weight.dtype));
        const WeightLayout layout =
            LayoutOf(weight.dtype, weight.matrices * weight.rows, weight.cols);
        matrix.stride =
            static_cast<int64_t>(layout.planes[0].row_bytes) / ElementBytes(weight.dtype);
        return matrix.Rows(begin, count);
    }
    matrix.dtype = e.arithmetic().compute;
    const auto bytes = static_cast<uint64_t>(RowBytes(matrix.dtype, count * weight.cols));
    WEFT_ASSIGN(const Region decoded, e.Scratch("decoded weight", bytes));
    WEFT_TRY(EmitDecode(e, weight, begin, count, matrix.dtype, decoded));
    matrix.address = decoded.address;
    return matrix;
}

Result<GemmMatrix> MatrixOf(Emitter& e, ValueId id) {
    const program::Value& value = e.program().value(id);
    if (value.storage == program::Storage::kWeight && !HoldsVectors(value.shape)) {
        const WeightPlace& weight = e.Weight(id);
        return RowsOfWeight(e, weight, 0, weight.matrices * weight.rows);
    }
    WEFT_TRY(ElementType(value.dtype));
    const int64_t cols = e.Cols(id);
    const int64_t count = e.shape().ElementsOf(value.shape);
    return GemmMatrix{value.dtype, e.Address(id), count / cols, cols, cols};
}

bool IsTrainingProduct(const Emitter& e, ValueId x, ValueId weight, ValueId y) {
    const auto half = [&](ValueId id) {
        const DType dtype = e.program().value(id).dtype;
        return dtype == DType::kBF16 || dtype == DType::kF16;
    };
    return half(x) || half(y) || e.program().value(weight).storage != program::Storage::kWeight;
}

const WeightPlace* DecodedWeight(const Emitter& e, ValueId id) {
    const program::Value& value = e.program().value(id);
    const bool decoded = value.storage == program::Storage::kWeight && !HoldsVectors(value.shape) &&
                         Info(value.dtype).quantized;
    return decoded ? &e.Weight(id) : nullptr;
}

int64_t RowsAtOnce(const Emitter& e, const WeightPlace& weight, int64_t unit) {
    const auto row_bytes = static_cast<uint64_t>(RowBytes(e.arithmetic().compute, weight.cols));
    const auto rows = static_cast<int64_t>(e.arithmetic().decoded_bytes / row_bytes);
    return std::min(std::max(rows / unit, int64_t{1}) * unit, weight.matrices * weight.rows);
}

namespace {

// A product with a weight that is decoded in pieces: of columns of C (kNT), or of terms (kNN),
// whose sums are added up in float32.
Status EmitDecodedGemm(Emitter& e, Gemm gemm, const WeightPlace& weight) {
    constexpr int64_t kUnit = 128;
    WEFT_CHECK(gemm.form != GemmForm::kTN);
    const int64_t rows = weight.matrices * weight.rows, piece = RowsAtOnce(e, weight, kUnit);
    const GemmMatrix c = gemm.c;
    const bool by_terms = gemm.form == GemmForm::kNN;
    const bool narrow = by_terms && piece < rows && c.dtype != DType::kF32;
    Region sums;
    if (narrow) {
        const auto bytes = static_cast<uint64_t>(RowBytes(DType::kF32, c.rows * c.cols));
        WEFT_ASSIGN(sums, e.Scratch("gemm sums of pieces", bytes));
        gemm.c = {DType::kF32, sums.address, c.rows, c.cols, c.cols};
    }
    const Gemm whole = gemm;
    for (int64_t begin = 0; begin < rows; begin += piece) {
        const int64_t count = std::min(piece, rows - begin);
        WEFT_ASSIGN(gemm.b, RowsOfWeight(e, weight, begin, count));
        if (!by_terms) gemm.c = whole.c.Columns(begin, count);
        if (by_terms) gemm.a = whole.a.Columns(begin, count);
        gemm.accumulate = (whole.accumulate && !narrow) || (by_terms && begin > 0);
        WEFT_TRY(EmitGemm(e, gemm));
    }
    if (!narrow) return {};
    gemm = whole;
    gemm.c = c;
    return EmitSum(e, gemm, sums, 1);
}

}  // namespace

Status EmitValueGemm(Emitter& e, GemmForm form, ValueId a, ValueId b, ValueId c, GemmEnd end) {
    Gemm gemm;
    gemm.form = form;
    gemm.accumulate = end == GemmEnd::kAdds;
    WEFT_ASSIGN(gemm.a, MatrixOf(e, a));
    WEFT_ASSIGN(gemm.c, MatrixOf(e, c));
    if (const WeightPlace* const weight = DecodedWeight(e, b)) {
        return EmitDecodedGemm(e, gemm, *weight);
    }
    WEFT_ASSIGN(gemm.b, MatrixOf(e, b));
    return EmitGemm(e, gemm);
}

Status Lower(Emitter& e, const program::Op& op, const program::MatMulGradInput&) {
    return EmitValueGemm(e, GemmForm::kNN, op.inputs[0], op.inputs[1], op.outputs[0]);
}
Status Lower(Emitter& e, const program::Op& op, const program::MatMulGradWeight&) {
    return EmitValueGemm(e, GemmForm::kTN, op.inputs[0], op.inputs[1], op.outputs[0],
                         GemmEnd::kAdds);
}

}  // namespace weft::backend::on_gpu
