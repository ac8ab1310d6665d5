// Row ops: norms, RoPE, element-wise ops, copies of rows and columns.
#include <algorithm>
#include <bit>
#include <cmath>
#include <complex>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_parts.h"
#include "backend/vulkan/lower_train.h"
#include "backend/vulkan/products.h"
#include "base/check.h"
#include "base/hash.h"

namespace weft::backend::vulkan {
namespace {

using program::Op;
using program::ValueId;

// Workgroup size and count for kernels that loop over many elements.
constexpr int64_t kWalkGroup = 256, kMostWalkGroups = 16384;

int64_t WalkGroups(int64_t count) {
    return std::min((count + kWalkGroup - 1) / kWalkGroup, kMostWalkGroups);
}

// ---- Element by element -------------------------------------------------------------------------

// The functions of map.comp.
enum class RowMap : uint32_t {
    kAdd,
    kAddBias,
    kScale,
    kSoftCap,
    kGateRows,
    kScaleByPosition,
    kSoftplusRows,
    kLimitedSilu,
    kSilu,
    kGeluTanh,
    kClampedSilu,
    kReluSquared,
};
struct MapArgs {
    uint64_t a = 0, b = 0, y = 0;
    uint32_t count = 0, cols = 0;
    float factor = 0;
    uint32_t length = 1, offset = 0;
};

// Runs map.comp on one or two inputs.
Status RunMap(Emitter& e, const Op& op, RowMap map, float factor = 0,
              const Temperature& temperature = {}) {
    const ValueId y = op.outputs[0];
    MapArgs args;
    args.a = e.Address(op.inputs[0]);
    std::vector<Region> reads = {e.All(op.inputs[0])};
    if (map == RowMap::kScaleByPosition) {
        args.b = e.tables().positions;
    } else if (op.inputs.size() > 1) {
        args.b = e.Address(op.inputs[1]);
        reads.push_back(e.All(op.inputs[1]));
    }
    args.y = e.Address(y);
    const int64_t count = e.shape().ElementsOf(e.program().value(y).shape);
    args.count = static_cast<uint32_t>(count);
    args.cols = static_cast<uint32_t>(e.Cols(y));
    const bool gates = map == RowMap::kGateRows || map == RowMap::kSoftplusRows;
    if (gates) args.cols /= static_cast<uint32_t>(e.Cols(op.inputs[1]));
    args.factor = factor;
    args.length = static_cast<uint32_t>(temperature.length);
    args.offset = static_cast<uint32_t>(temperature.offset);
    return e.Run("map", {kWalkGroup, static_cast<uint32_t>(map)}, args, {WalkGroups(count), 1, 1},
                 std::move(reads), {e.All(y)});
}

// ---- Norms --------------------------------------------------------------------------------------

struct NormArgs {
    uint64_t x = 0, weight = 0, squares = 0, y = 0;
    uint64_t codes = 0, scales = 0;
    uint32_t x_stride = 0, cols = 0;
    uint32_t squares_stride = 0, y_stride = 0;
    float whole = 0, eps = 0;
    uint32_t weight_step = 0;
};

// ---- RoPE ---------------------------------------------------------------------------------------

struct RopeShaderArgs {
    uint64_t x = 0, y = 0, positions = 0, fine = 0, coarse = 0;
    uint32_t heads = 0, head_dim = 0, pairs = 0;
    uint32_t step = 0, apart = 0;
    float sign_of_sine = 1;
};
// rope.comp: positions of the fine table. The coarse table has at least kLeastCoarse entries;
// longer contexts double it.
constexpr int64_t kFinePositions = 256, kLeastCoarse = 512;

// Cosines and sines, times `magnitude`, of positions 0, step, 2 step, ... Each is one rotation
// after the last, in float64, with an error below count * 2^-52.
std::vector<float> AnglesOf(const std::vector<float>& inverse_frequency, int64_t count,
                            int64_t step, float magnitude) {
    const size_t pairs = inverse_frequency.size();
    std::vector<float> table(static_cast<size_t>(count) * pairs * 2);
    for (size_t pair = 0; pair < pairs; ++pair) {
        const double angle =
            static_cast<double>(step) * static_cast<double>(inverse_frequency[pair]);
        const std::complex<double> turn(std::cos(angle), std::sin(angle));
        std::complex<double> at(static_cast<double>(magnitude), 0);
        for (size_t i = 0; i < static_cast<size_t>(count); ++i) {
            table[(i * pairs + pair) * 2] = static_cast<float>(at.real());
            table[(i * pairs + pair) * 2 + 1] = static_cast<float>(at.imag());
            at = {at.real() * turn.real() - at.imag() * turn.imag(),
                  at.real() * turn.imag() + at.imag() * turn.real()};
        }
    }
    return table;
}

// ---- Copies -------------------------------------------------------------------------------------

struct CopyColumnsArgs {
    uint64_t x = 0, y = 0, rows = 0;
    uint32_t x_cols = 0, y_cols = 0, head_cols = 0, begin = 0, size = 0;
};

Status RunCopyColumns(Emitter& e, const Op& op, CopyColumnsArgs args) {
    const ValueId x = op.inputs[0], y = op.outputs[0];
    args.x = e.Address(x);
    args.y = e.Address(y);
    args.x_cols = static_cast<uint32_t>(e.Cols(x));
    args.y_cols = static_cast<uint32_t>(e.Cols(y));
    const int64_t pieces = (e.Cols(y) + kWalkGroup - 1) / kWalkGroup;
    return e.Run("copy_columns", {kWalkGroup}, args, {pieces, e.Rows(y), 1}, {e.All(x)},
                 {e.All(y)});
}

}  // namespace

// Each invocation has some columns.
uint32_t NormGroup(int64_t cols) {
    const auto wanted = std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(cols / 4, 1)));
    return static_cast<uint32_t>(std::clamp<uint64_t>(wanted, 32, 256));
}

Result<AngleTables> PlaceAngles(Emitter& e, const program::Rope& a) {
    int64_t coarse = kLeastCoarse;
    while (coarse * kFinePositions < e.shape().positions) coarse *= 2;
    const uint64_t key = Checksum64(std::as_bytes(std::span(a.inverse_frequency)),
                                    std::bit_cast<uint32_t>(a.magnitude));
    const auto place = [&](std::string name, int64_t count, int64_t step, float magnitude) {
        name = fmt::format("{} {} {}", name, key, count);
        const uint64_t bytes =
            static_cast<uint64_t>(count) * 2 * a.inverse_frequency.size() * sizeof(float);
        return e.Constant(name, bytes, [&, count, step, magnitude](std::span<std::byte> out) {
            const std::vector<float> table = AnglesOf(a.inverse_frequency, count, step, magnitude);
            WEFT_CHECK(table.size() * sizeof(float) == out.size());
            std::memcpy(out.data(), table.data(), out.size());
        });
    };
    AngleTables tables;
    WEFT_ASSIGN(tables.fine, place("rope fine", kFinePositions, 1, 1.0f));
    WEFT_ASSIGN(tables.coarse, place("rope coarse", coarse, kFinePositions, a.magnitude));
    return tables;
}

Status Lower(Emitter& e, const Op& op, const program::Add& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    return RunMap(e, op, RowMap::kAdd);
}
Status Lower(Emitter& e, const Op& op, const program::AddBias& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    return RunMap(e, op, RowMap::kAddBias);
}
Status Lower(Emitter& e, const Op& op, const program::Scale& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    return RunMap(e, op, RowMap::kScale, a.factor);
}
Status Lower(Emitter& e, const Op& op, const program::ScaleByPosition& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    return RunMap(e, op, RowMap::kScaleByPosition, a.temperature.beta, a.temperature);
}
Status Lower(Emitter& e, const Op& op, const program::SoftCap& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    return RunMap(e, op, RowMap::kSoftCap, a.cap);
}
Status Lower(Emitter& e, const Op& op, const program::GateRows& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    const bool softplus = a.gate == program::RowGate::kSoftplus;
    return RunMap(e, op, softplus ? RowMap::kSoftplusRows : RowMap::kGateRows);
}
Status Lower(Emitter& e, const Op& op, const program::Glu& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    if (a.limits_gate) {
        return MakeError(ErrorCode::kUnsupported, "glu: no GPU kernel limits gates");
    }
    if (a.limit != 0) return RunMap(e, op, RowMap::kLimitedSilu, a.limit);
    switch (a.activation) {
        case Activation::kSilu: return RunMap(e, op, RowMap::kSilu);
        case Activation::kGeluTanh: return RunMap(e, op, RowMap::kGeluTanh);
        case Activation::kClampedSilu: return RunMap(e, op, RowMap::kClampedSilu);
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::ReluSquared&) {
    return RunMap(e, op, RowMap::kReluSquared);
}

Status Lower(Emitter& e, const Op& op, const program::RmsNorm& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    const ValueId x = op.inputs[0], y = op.outputs[0];
    const int64_t cols = e.Cols(y);
    NormArgs args;
    args.x = e.Address(x);
    args.y = e.Address(y);
    std::vector<Region> reads = {e.All(x)};
    if (!a.plain) args.weight = e.Address(op.inputs[1]);
    if (a.apart) args.weight_step = static_cast<uint32_t>(a.group);
    args.whole = static_cast<float>(a.group);
    if (a.whole != 0) {
        const ValueId squares = op.inputs.back();
        args.squares = e.Address(squares) + static_cast<uint64_t>(a.square) * sizeof(float);
        args.squares_stride = static_cast<uint32_t>(e.Cols(squares));
        args.whole = static_cast<float>(a.whole);
        reads.push_back(e.All(squares));
    }
    args.eps = a.eps;
    args.x_stride = static_cast<uint32_t>(cols);
    args.cols = static_cast<uint32_t>(a.group);
    std::vector<Region> writes = {e.All(y)};
    const bool encodes = a.group == cols && WantsIntegers(e, y);
    IntegerRows codes;
    if (encodes) {
        WEFT_ASSIGN(codes, PlaceIntegers(e, y));
        args.codes = codes.region.address;
        args.scales = codes.scales;
        writes.push_back(codes.region);
    }
    WEFT_TRY(e.Run("norm", {NormGroup(a.group), 0, encodes ? 1u : 0u, a.centered ? 1u : 0u}, args,
                   {cols / a.group, e.Rows(y), 1}, std::move(reads), std::move(writes),
                   PinnedSubgroup(e.gpu())));
    if (encodes) NoteIntegers(e, y, codes);
    return {};
}

// Emits a dispatch for each input.
Status Lower(Emitter& e, const Op& op, const program::SumSquares& a) {
    const ValueId y = op.outputs[0];
    if (e.program().value(y).dtype != DType::kF32) {
        return MakeError(ErrorCode::kUnsupported,
                         "sum_squares of {} is not float32: GPUs have no float64 sums",
                         e.program().value(y).name);
    }
    for (size_t i = 0; i < a.columns.size(); ++i) {
        const ValueId x = op.inputs[i];
        NormArgs args;
        args.x = e.Address(x) + static_cast<uint64_t>(a.columns[i].begin) * sizeof(float);
        args.y = e.Address(y) + i * sizeof(float);
        args.x_stride = static_cast<uint32_t>(e.Cols(x));
        args.y_stride = static_cast<uint32_t>(e.Cols(y));
        args.cols = static_cast<uint32_t>(a.columns[i].count);
        WEFT_TRY(e.Run("norm", {NormGroup(a.columns[i].count), 1, 0, 0}, args, {1, e.Rows(y), 1},
                       {e.All(x)}, {e.All(y)}, PinnedSubgroup(e.gpu())));
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::Rope& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    if (a.last || a.behind != 0) {
        return MakeError(ErrorCode::kUnsupported,
                         "rope: GPU kernels rotate only the first columns");
    }
    const ValueId x = op.inputs[0], y = op.outputs[0];
    const int64_t pairs = a.rotary_dim / 2, heads = e.Cols(y) / a.head_dim;
    RopeShaderArgs args;
    WEFT_ASSIGN(const AngleTables angles, PlaceAngles(e, a));
    args.fine = angles.fine.address;
    args.coarse = angles.coarse.address;
    args.x = e.Address(x);
    args.y = e.Address(y);
    args.positions = e.tables().positions;
    args.heads = static_cast<uint32_t>(heads);
    args.head_dim = static_cast<uint32_t>(a.head_dim);
    args.pairs = static_cast<uint32_t>(pairs);
    args.step = a.neighbours ? 2 : 1;
    args.apart = a.neighbours ? 1 : static_cast<uint32_t>(pairs);
    args.sign_of_sine = a.sign;
    const int64_t pieces = (heads * (a.head_dim - pairs) + kWalkGroup - 1) / kWalkGroup;
    return e.Run("rope", {kWalkGroup}, args, {pieces, e.Rows(y), 1},
                 {e.All(x), angles.fine, angles.coarse}, {e.All(y)});
}

Status Lower(Emitter& e, const Op& op, const program::SelectRows& a) {
    if (HasHalves(e, op)) return LowerHalves(e, op, a);
    CopyColumnsArgs args;
    args.rows = e.tables().output_rows;
    args.head_cols = args.size = static_cast<uint32_t>(e.Cols(op.outputs[0]));
    return RunCopyColumns(e, op, args);
}

Status Lower(Emitter& e, const Op& op, const program::PickColumns& a) {
    CopyColumnsArgs args;
    args.head_cols = static_cast<uint32_t>(e.Cols(op.inputs[0]) / a.heads);
    args.begin = static_cast<uint32_t>(a.begin);
    args.size = static_cast<uint32_t>(e.Cols(op.outputs[0]) / a.heads);
    return RunCopyColumns(e, op, args);
}

}  // namespace weft::backend::vulkan
