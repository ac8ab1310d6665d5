// Row ops of training and their gradients, and those of inference on 16-bit activations.
#include <algorithm>
#include <bit>
#include <limits>
#include <string>
#include <utility>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_parts.h"
#include "backend/vulkan/lower_train.h"
#include "backend/vulkan/products.h"

namespace weft::backend::vulkan {
namespace {

using program::Op;
using program::ValueId;

constexpr int64_t kMostCount = std::numeric_limits<uint32_t>::max();

// ---- Element by element -------------------------------------------------------------------------

// The functions of train_map.comp.
enum class TrainMap : uint32_t {
    kAdd,
    kAddBias,
    kScale,
    kSoftCap,
    kGateRows,
    kScaleByPosition,
    kSilu,
    kGeluTanh,
    kClampedSilu,
    kSoftCapGrad,
    kSiluGrad,
    kGeluTanhGrad,
    kZero,
};
struct TrainMapArgs {
    uint64_t a = 0, b = 0, c = 0, y = 0, z = 0;
    uint32_t count = 0, cols = 0;
    float factor = 0;
    uint32_t length = 1, offset = 0;
};

Status RunTrainMap(Emitter& e, const Op& op, TrainMap map, float factor = 0,
                   const Temperature& temperature = {}) {
    WEFT_TRY(CheckCounts(e, op));
    TrainMapArgs args;
    ElementTypes types(e);
    std::vector<Region> reads, writes;
    uint64_t* const from[] = {&args.a, &args.b, &args.c};
    uint64_t* const to[] = {&args.y, &args.z};
    const bool by_position = map == TrainMap::kScaleByPosition;
    if (by_position) args.b = e.tables().positions;
    for (size_t i = 0; i < (by_position ? 1 : op.inputs.size()); ++i) {
        const bool spread = i == 1 && (map == TrainMap::kAddBias || map == TrainMap::kGateRows);
        WEFT_TRY(types.Set(static_cast<int>(i), op.inputs[i], !spread));
        *from[i] = e.Address(op.inputs[i]);
        reads.push_back(e.All(op.inputs[i]));
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
        WEFT_TRY(types.Set(static_cast<int>(3 + i), op.outputs[i]));
        *to[i] = e.Address(op.outputs[i]);
        writes.push_back(e.All(op.outputs[i]));
    }
    const int64_t count = CountOf(e, op.outputs[0]);
    args.count = static_cast<uint32_t>(count);
    args.cols = static_cast<uint32_t>(e.Cols(op.outputs[0]));
    args.factor = factor;
    args.length = static_cast<uint32_t>(temperature.length);
    args.offset = static_cast<uint32_t>(temperature.offset);
    return e.Run("train_map",
                 {kTrainGroup, static_cast<uint32_t>(map), types.packed(), types.wide()}, args,
                 {QuadGroups(count), 1, 1}, std::move(reads), std::move(writes));
}

// ---- Norms --------------------------------------------------------------------------------------

enum class NormMode : uint32_t { kForward, kGrad, kInverse };
struct TrainNormArgs {
    uint64_t x = 0, weight = 0, dy = 0, y = 0, inverse = 0;
    uint32_t units = 0, cols = 0;
    float eps = 0;
};

// A norm over groups of columns of x: a unit of the kernel is one group of one row.
struct NormUnits {
    ValueId x;
    float eps;
    int64_t group;
    int64_t Count(const Emitter& e) const { return CountOf(e, x) / group; }
    TrainNormArgs Args(const Emitter& e) const {
        TrainNormArgs args;
        args.x = e.Address(x);
        args.units = static_cast<uint32_t>(Count(e));
        args.cols = static_cast<uint32_t>(group);
        args.eps = eps;
        return args;
    }
    std::string NameOfInverse() const {
        return fmt::format("inverse rms {} {}", std::bit_cast<uint32_t>(eps), group);
    }
};

Status RunTrainNorm(Emitter& e, const NormUnits& units, NormMode mode, const ElementTypes& types,
                    const TrainNormArgs& args, std::vector<Region> reads,
                    std::vector<Region> writes) {
    return e.Run(
        "train_norm",
        {NormGroup(units.group), static_cast<uint32_t>(mode), types.packed(), types.wide()}, args,
        {RowGroups(units.Count(e)), 1, 1}, std::move(reads), std::move(writes));
}

Result<Region> PlaceInverse(Emitter& e, const NormUnits& units) {
    return e.Scratch("norm inverse", static_cast<uint64_t>(units.Count(e)) * sizeof(float));
}
// float32 [units]: the values that the gradient of the input left, or newly computed ones.
Result<Region> FindInverse(Emitter& e, const NormUnits& units) {
    const Region x = e.All(units.x);
    if (const auto made = e.FindDerived(units.NameOfInverse(), x)) return *made;
    WEFT_ASSIGN(const Region inverse, PlaceInverse(e, units));
    ElementTypes types(e);
    WEFT_TRY(types.Set(0, units.x));
    types.SetRows(units.group);
    TrainNormArgs args = units.Args(e);
    args.inverse = inverse.address;
    WEFT_TRY(RunTrainNorm(e, units, NormMode::kInverse, types, args, {x}, {inverse}));
    e.NoteDerived(units.NameOfInverse(), x, inverse);
    return inverse;
}

// ---- Sums over rows -----------------------------------------------------------------------------

struct TrainSumsArgs {
    uint64_t dy = 0, x = 0, inverse = 0, sums = 0;
    uint32_t rows = 0, cols = 0, block_rows = 0, stride = 0;
};
struct TrainSumsEndArgs {
    uint64_t sums = 0, from = 0, y = 0;
    uint32_t blocks = 0, stride = 0, cols = 0;
};
constexpr int64_t kLeastBlockRows = 64, kMostBlocks = 256;

// Adds the sums to y.
Status AddSums(Emitter& e, const BlockSums& sums, ValueId y) {
    ElementTypes types(e);
    WEFT_TRY(types.Set(0, y));
    WEFT_TRY(types.Set(1, y));
    const Region all = e.All(y);
    return AddBlocks(e, sums,
                     {all.address, all.address, types.packed(), CountOf(e, y), {all}, {all}});
}

// ---- RoPE ---------------------------------------------------------------------------------------

struct TrainRopeArgs {
    uint64_t x = 0, y = 0, positions = 0, fine = 0, coarse = 0;
    uint32_t rows = 0, heads = 0, head_dim = 0, pairs = 0;
    float sign_of_sine = 1;
};

// ---- Copies -------------------------------------------------------------------------------------

enum class CopyMode : uint32_t { kSame, kListed, kFound };
struct TrainCopyArgs {
    uint64_t x = 0, y = 0, list = 0;
    uint32_t x_rows = 0, x_cols = 0, y_rows = 0, y_cols = 0;
    int32_t shift = 0, first_row = 0;
};
struct RowsCopied {
    CopyMode mode = CopyMode::kSame;
    ValueId list = program::kNoValue;
    int64_t shift = 0, first_row = 0;
};

Status RunTrainCopy(Emitter& e, const Op& op, ValueId x, const RowsCopied& how) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId y = op.outputs[0];
    ElementTypes types(e);
    WEFT_TRY(types.Set(0, x));
    WEFT_TRY(types.Set(1, y));
    types.SetRows(e.Cols(x));
    types.SetRows(e.Cols(y));
    types.SetRows(how.shift);
    TrainCopyArgs args;
    args.x = e.Address(x);
    args.y = e.Address(y);
    std::vector<Region> reads = {e.All(x)};
    if (how.list != program::kNoValue) {
        args.list = e.Address(how.list);
        reads.push_back(e.All(how.list));
    }
    args.x_rows = static_cast<uint32_t>(FlatRowsOf(e, x));
    args.x_cols = static_cast<uint32_t>(e.Cols(x));
    args.y_rows = static_cast<uint32_t>(FlatRowsOf(e, y));
    args.y_cols = static_cast<uint32_t>(e.Cols(y));
    args.shift = static_cast<int32_t>(how.shift);
    args.first_row = static_cast<int32_t>(how.first_row);
    const int64_t pieces = (e.Cols(y) + 4 * kTrainGroup - 1) / (4 * kTrainGroup);
    return e.Run("train_copy",
                 {kTrainGroup, static_cast<uint32_t>(how.mode), types.packed(), types.wide()}, args,
                 {RowGroups(args.y_rows), pieces, 1}, std::move(reads), {e.All(y)});
}

struct EmbeddingGradArgs {
    uint64_t dy = 0, dtable = 0, tokens = 0, order = 0;
    uint32_t rows = 0, cols = 0, table_rows = 0;
    int32_t first_row = 0;
};

}  // namespace

// ---- Shared parts (lower_train.h) ---------------------------------------------------------------

Status CheckCounts(const Emitter& e, const Op& op) {
    for (const auto* ids : {&op.inputs, &op.outputs}) {
        for (const ValueId id : *ids) {
            if (CountOf(e, id) <= kMostCount) continue;
            return MakeError(ErrorCode::kUnsupported,
                             "{} has {} elements; a Vulkan training kernel supports at most {}. "
                             "Use smaller micro-batches.",
                             e.program().value(id).name, CountOf(e, id), kMostCount);
        }
    }
    return {};
}

Result<uint32_t> ElementTypeOf(const Emitter& e, ValueId id) {
    const program::Value& value = e.program().value(id);
    if (value.dtype == DType::kF32) return 0u;
    if (value.dtype == DType::kBF16) return 1u;
    if (value.dtype == DType::kF16) return 2u;
    return MakeError(ErrorCode::kUnsupported,
                     "{} is {}; the Vulkan kernel supports float32, bfloat16 or float16",
                     value.name, Info(value.dtype).name);
}

Status CheckFloat32(const Emitter& e, ValueId id) {
    const program::Value& value = e.program().value(id);
    if (value.dtype == DType::kF32) return {};
    return MakeError(ErrorCode::kUnsupported, "{} is {}; Vulkan devices keep it as float32 only",
                     value.name, Info(value.dtype).name);
}

Status ElementTypes::Set(int slot, ValueId id, bool by_quads) {
    WEFT_ASSIGN(const uint32_t type, ElementTypeOf(e_, id));
    packed_ |= type << (2 * slot);
    const uint64_t quad_bytes = type == 0 ? 16 : 8;
    if (by_quads && e_.Address(id) % quad_bytes != 0) wide_ = false;
    return {};
}

Result<BlockSums> SumBlocks(Emitter& e, const ColumnSums& of) {
    const int64_t quads = (of.cols + 3) / 4;
    const auto lanes = static_cast<int64_t>(
        std::min<uint64_t>(std::bit_ceil(static_cast<uint64_t>(quads)), kTrainGroup));
    TrainSumsArgs args;
    args.dy = of.dy;
    args.x = of.x;
    args.inverse = of.inverse;
    args.rows = static_cast<uint32_t>(of.rows);
    args.cols = static_cast<uint32_t>(of.cols);
    args.block_rows =
        static_cast<uint32_t>(std::max(kLeastBlockRows, (of.rows + kMostBlocks - 1) / kMostBlocks));
    args.stride = static_cast<uint32_t>(4 * quads);
    BlockSums sums;
    sums.blocks = (of.rows + args.block_rows - 1) / args.block_rows;
    sums.stride = args.stride;
    const auto bytes = static_cast<uint64_t>(sums.blocks * sums.stride) * sizeof(float);
    WEFT_ASSIGN(sums.region, e.Scratch("column sums", bytes));
    args.sums = sums.region.address;
    WEFT_TRY(e.Run(
        "train_sums",
        {kTrainGroup, of.inverse == 0 ? 0u : 1u, of.types, of.wide, static_cast<uint32_t>(lanes)},
        args, {(quads + lanes - 1) / lanes, sums.blocks, 1}, of.reads, {sums.region}));
    return sums;
}

Status AddBlocks(Emitter& e, const BlockSums& sums, SumsEnd end) {
    TrainSumsEndArgs args;
    args.sums = sums.region.address;
    args.from = end.from;
    args.y = end.to;
    args.blocks = static_cast<uint32_t>(sums.blocks);
    args.stride = static_cast<uint32_t>(sums.stride);
    args.cols = static_cast<uint32_t>(end.cols);
    end.reads.push_back(sums.region);
    return e.Run("train_sums_end", {kTrainGroup, end.types}, args,
                 {(end.cols + kTrainGroup - 1) / kTrainGroup, 1, 1}, std::move(end.reads),
                 std::move(end.writes));
}

// ---- Element by element -------------------------------------------------------------------------

Status LowerHalves(Emitter& e, const Op& op, const program::Add&) {
    return RunTrainMap(e, op, TrainMap::kAdd);
}
Status LowerHalves(Emitter& e, const Op& op, const program::AddBias&) {
    return RunTrainMap(e, op, TrainMap::kAddBias);
}
Status LowerHalves(Emitter& e, const Op& op, const program::Scale& a) {
    return RunTrainMap(e, op, TrainMap::kScale, a.factor);
}
Status LowerHalves(Emitter& e, const Op& op, const program::ScaleByPosition& a) {
    return RunTrainMap(e, op, TrainMap::kScaleByPosition, a.temperature.beta, a.temperature);
}
Status LowerHalves(Emitter& e, const Op& op, const program::SoftCap& a) {
    return RunTrainMap(e, op, TrainMap::kSoftCap, a.cap);
}
Status Lower(Emitter& e, const Op& op, const program::SoftCapGrad& a) {
    return RunTrainMap(e, op, TrainMap::kSoftCapGrad, a.cap);
}
Status LowerHalves(Emitter& e, const Op& op, const program::GateRows& a) {
    if (e.Cols(op.inputs[1]) != 1 || a.gate != program::RowGate::kSigmoid) {
        return MakeError(ErrorCode::kUnsupported, "gates by head take float32 on Vulkan devices");
    }
    return RunTrainMap(e, op, TrainMap::kGateRows);
}
Status LowerHalves(Emitter& e, const Op& op, const program::Glu& a) {
    if (a.limit != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "units with a limit take float32 on Vulkan devices");
    }
    switch (a.activation) {
        case Activation::kSilu: return RunTrainMap(e, op, TrainMap::kSilu);
        case Activation::kGeluTanh: return RunTrainMap(e, op, TrainMap::kGeluTanh);
        case Activation::kClampedSilu: return RunTrainMap(e, op, TrainMap::kClampedSilu);
    }
    return {};
}
Status Lower(Emitter& e, const Op& op, const program::GluGrad& a) {
    switch (a.activation) {
        case Activation::kSilu: return RunTrainMap(e, op, TrainMap::kSiluGrad);
        case Activation::kGeluTanh: return RunTrainMap(e, op, TrainMap::kGeluTanhGrad);
        case Activation::kClampedSilu: break;
    }
    return MakeError(ErrorCode::kUnsupported, "the activation {} has no gradient",
                     ActivationName(a.activation));
}

// Clears in pieces, because a unit of weights may have more elements than a kernel counts. Works
// for any type of whole 16-bit words, because zero has the same bits.
Status Lower(Emitter& e, const Op& op, const program::Zero&) {
    const Region all = e.All(op.outputs[0]);
    const bool words = all.address % 4 == 0 && all.bytes % 4 == 0;
    const uint32_t type = words ? 0 : 1;  // of y, whose slot is 3
    const uint64_t quad_bytes = words ? 16 : 8, size = words ? 4 : 2;
    constexpr uint64_t kPiece = uint64_t{1} << 31;  // elements
    for (uint64_t at = 0; at < all.bytes; at += kPiece * size) {
        const Region piece{all.address + at, std::min(all.bytes - at, kPiece * size)};
        TrainMapArgs args;
        args.y = piece.address;
        args.count = static_cast<uint32_t>(piece.bytes / size);
        args.cols = 1;
        WEFT_TRY(e.Run("train_map",
                       {kTrainGroup, static_cast<uint32_t>(TrainMap::kZero), type << 6,
                        piece.address % quad_bytes == 0 ? 1u : 0u},
                       args, {QuadGroups(args.count), 1, 1}, {}, {piece}));
    }
    return {};
}

// ---- Norms --------------------------------------------------------------------------------------

Status LowerHalves(Emitter& e, const Op& op, const program::RmsNorm& a) {
    WEFT_TRY(CheckCounts(e, op));
    if (a.whole != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "a norm by sums over ranks needs float32 on Vulkan devices");
    }
    if (a.centered || a.apart) {
        return MakeError(ErrorCode::kUnsupported, "a norm {} needs float32 on Vulkan devices",
                         a.centered ? "without the mean" : "of groups with weights of their own");
    }
    const ValueId y = op.outputs[0];
    const NormUnits units{op.inputs[0], a.eps, a.group};
    TrainNormArgs args = units.Args(e);
    args.y = e.Address(y);
    ElementTypes types(e);
    types.SetRows(a.group);
    WEFT_TRY(types.Set(0, units.x));
    WEFT_TRY(types.Set(3, y));
    std::vector<Region> reads = {e.All(units.x)};
    if (!a.plain) {
        args.weight = e.Address(op.inputs[1]);
        WEFT_TRY(types.Set(1, op.inputs[1]));
        reads.push_back(e.All(op.inputs[1]));
    }
    return RunTrainNorm(e, units, NormMode::kForward, types, args, std::move(reads), {e.All(y)});
}

Status Lower(Emitter& e, const Op& op, const program::RmsNormGradInput& a) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId dy = op.inputs[0], weight = op.inputs[2], dx = op.outputs[0];
    const NormUnits units{op.inputs[1], a.eps, a.group};
    const Region x = e.All(units.x);
    WEFT_ASSIGN(const Region inverse, PlaceInverse(e, units));
    TrainNormArgs args = units.Args(e);
    args.dy = e.Address(dy);
    args.weight = e.Address(weight);
    args.y = e.Address(dx);
    args.inverse = inverse.address;
    ElementTypes types(e);
    types.SetRows(a.group);
    WEFT_TRY(types.Set(0, units.x));
    WEFT_TRY(types.Set(1, weight));
    WEFT_TRY(types.Set(2, dy));
    WEFT_TRY(types.Set(3, dx));
    WEFT_TRY(RunTrainNorm(e, units, NormMode::kGrad, types, args, {x, e.All(weight), e.All(dy)},
                          {e.All(dx), inverse}));
    if (!e.All(dx).Overlaps(x)) e.NoteDerived(units.NameOfInverse(), x, inverse);
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::RmsNormGradWeight& a) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId dy = op.inputs[0];
    const NormUnits units{op.inputs[1], a.eps, a.group};
    if (units.Count(e) == 0) return {};
    WEFT_ASSIGN(const Region inverse, FindInverse(e, units));
    ElementTypes types(e);
    types.SetRows(a.group);
    WEFT_TRY(types.Set(0, dy));
    WEFT_TRY(types.Set(1, units.x));
    ColumnSums sums{e.Address(dy), e.Address(units.x), inverse.address, types.packed(),
                    types.wide()};
    sums.rows = units.Count(e);
    sums.cols = a.group;
    sums.reads = {e.All(dy), e.All(units.x), inverse};
    WEFT_ASSIGN(const BlockSums blocks, SumBlocks(e, sums));
    return AddSums(e, blocks, op.outputs[0]);
}

Status Lower(Emitter& e, const Op& op, const program::BiasGrad&) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId dy = op.inputs[0];
    if (CountOf(e, dy) == 0) return {};
    ElementTypes types(e);
    types.SetRows(e.Cols(dy));
    WEFT_TRY(types.Set(0, dy));
    ColumnSums sums{e.Address(dy), 0, 0, types.packed(), types.wide()};
    sums.rows = FlatRowsOf(e, dy);
    sums.cols = e.Cols(dy);
    sums.reads = {e.All(dy)};
    WEFT_ASSIGN(const BlockSums blocks, SumBlocks(e, sums));
    return AddSums(e, blocks, op.outputs[0]);
}

// ---- RoPE and copies ----------------------------------------------------------------------------

Status LowerHalves(Emitter& e, const Op& op, const program::Rope& a) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId x = op.inputs[0], y = op.outputs[0];
    const int64_t pairs = a.rotary_dim / 2, heads = e.Cols(y) / a.head_dim;
    ElementTypes types(e);
    types.SetRows(a.head_dim);
    types.SetRows(a.neighbours ? a.rotary_dim : pairs);
    WEFT_TRY(types.Set(0, x));
    WEFT_TRY(types.Set(1, y));
    WEFT_ASSIGN(const AngleTables angles, PlaceAngles(e, a));
    TrainRopeArgs args;
    args.x = e.Address(x);
    args.y = e.Address(y);
    args.positions = e.tables().positions;
    args.fine = angles.fine.address;
    args.coarse = angles.coarse.address;
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, y));
    args.heads = static_cast<uint32_t>(heads);
    args.head_dim = static_cast<uint32_t>(a.head_dim);
    args.pairs = static_cast<uint32_t>(pairs);
    args.sign_of_sine = a.sign;
    const bool wide = types.wide() != 0;
    const int64_t dims = wide && a.neighbours ? a.head_dim : a.head_dim - pairs;
    const int64_t units = heads * (wide ? dims / 4 : dims);
    return e.Run("train_rope", {kTrainGroup, types.packed(), types.wide(), a.neighbours ? 1u : 0u},
                 args, {RowGroups(args.rows), (units + kTrainGroup - 1) / kTrainGroup, 1},
                 {e.All(x), angles.fine, angles.coarse}, {e.All(y)});
}

Status LowerPlain(Emitter& e, const Op& op, const program::Embedding& a) {
    return RunTrainCopy(e, op, op.inputs[1], {CopyMode::kListed, op.inputs[0], 0, a.first_row});
}
Status LowerHalves(Emitter& e, const Op& op, const program::SelectRows&) {
    return RunTrainCopy(e, op, op.inputs[0], {CopyMode::kListed, op.inputs[1]});
}
Status Lower(Emitter& e, const Op& op, const program::SelectRowsGrad&) {
    return RunTrainCopy(e, op, op.inputs[0], {CopyMode::kFound, op.inputs[1]});
}
Status Lower(Emitter& e, const Op& op, const program::SliceRows&) {
    return RunTrainCopy(e, op, op.inputs[0], {.first_row = e.shape().own_begin});
}
Status Lower(Emitter& e, const Op& op, const program::SliceColumns& a) {
    return RunTrainCopy(e, op, op.inputs[0], {.shift = a.begin});
}
Status Lower(Emitter& e, const Op& op, const program::PadColumns& a) {
    return RunTrainCopy(e, op, op.inputs[0], {.shift = -a.begin});
}

Status Lower(Emitter& e, const Op& op, const program::EmbeddingGrad& a) {
    WEFT_TRY(CheckCounts(e, op));
    const ValueId dy = op.inputs[0], tokens = op.inputs[1], table = op.outputs[0];
    ElementTypes types(e);
    types.SetRows(e.Cols(dy));
    WEFT_TRY(types.Set(0, dy));
    WEFT_TRY(types.Set(1, table));
    EmbeddingGradArgs args;
    args.dy = e.Address(dy);
    args.dtable = e.Address(table);
    args.tokens = e.Address(tokens);
    args.order = e.tables().token_order;
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, dy));
    args.cols = static_cast<uint32_t>(e.Cols(dy));
    args.table_rows = static_cast<uint32_t>(FlatRowsOf(e, table));
    args.first_row = static_cast<int32_t>(a.first_row);
    const int64_t pieces = (e.Cols(dy) + 4 * kTrainGroup - 1) / (4 * kTrainGroup);
    return e.Run("embedding_grad", {kTrainGroup, types.packed(), types.wide()}, args,
                 {RowGroups(args.rows), pieces, 1}, {e.All(dy), e.All(tokens), e.All(table)},
                 {e.All(table)});
}

}  // namespace weft::backend::vulkan
