// Ops that compute each element from the elements at its place, and their gradients.
#include <algorithm>
#include <cstdint>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

// The functions of map.comp.
enum class Map : uint32_t {
#define MAP(name, number) name = (number),
#include "shaders/maps.glsl"
#undef MAP
};
struct MapArgs {
    uint64_t a = 0, b = 0, c = 0, y = 0, z = 0;
    uint32_t count = 0, cols = 0;
    float factor = 0;
    uint32_t length = 1, offset = 0;
    Xielu xielu{};
};

Status RunMap(Emitter& e, const Op& op, Map map, float factor = 0,
              const Temperature& temperature = {}, const Xielu& xielu = {}) {
    using By = Operands::By;
    Operands io(e);
    MapArgs args;
    uint64_t* const from[] = {&args.a, &args.b, &args.c};
    uint64_t* const to[] = {&args.y, &args.z};
    const bool by_position = map == Map::kScaleByPosition;
    const bool gates =
        map == Map::kGateRows || map == Map::kSoftplusRows || map == Map::kProductRows;
    if (by_position) args.b = e.tables().positions;
    for (size_t i = 0; i < (by_position ? 1 : op.inputs.size()); ++i) {
        const bool spread = i == 1 && (gates || map == Map::kAddBias);
        *from[i] = io.Reads(op.inputs[i], static_cast<int>(i), spread ? By::kElements : By::kQuads);
    }
    for (size_t i = 0; i < op.outputs.size(); ++i) {
        *to[i] = io.Writes(op.outputs[i], static_cast<int>(3 + i));
    }
    const int64_t count = CountOf(e, op.outputs[0]), cols = e.Cols(op.outputs[0]);
    args.count = static_cast<uint32_t>(count);
    args.cols = static_cast<uint32_t>(gates ? cols / e.Cols(op.inputs[1]) : cols);
    args.factor = factor;
    args.length = static_cast<uint32_t>(temperature.length);
    args.offset = static_cast<uint32_t>(temperature.offset);
    args.xielu = xielu;
    return io.Run("map", {kWalkGroup, map, io.types(), io.wide()}, args, {QuadGroups(count), 1, 1});
}

// Runs a function of x and of what the kernel computes for each row from `b` and `c`.
Status RunRowMap(Emitter& e, const Op& op, Map map, ValueId b, ValueId c, MapArgs args) {
    const ValueId x = op.inputs[0];
    Operands io(e);
    args.a = io.Reads(x, 0);
    args.b = io.Reads(b);
    args.c = io.Reads(c);
    args.y = io.Writes(op.outputs[0], 3);
    args.count = static_cast<uint32_t>(CountOf(e, x));
    args.cols = static_cast<uint32_t>(e.Cols(x));
    return io.Run("map", {kWalkGroup, map, io.types(), io.wide()}, args,
                  {QuadGroups(args.count), 1, 1});
}

struct GateRowsGradArgs {
    uint64_t dy = 0, x = 0, gate = 0, dx = 0, dgate = 0;
    uint32_t rows = 0, cols = 0;
};

struct ScaleHeadsArgs {
    uint64_t x = 0, positions = 0, slope = 0, offset = 0, y = 0;
    uint32_t cols = 0, heads = 0;
};
struct ScaleHeadsGradArgs {
    uint64_t dy = 0, x = 0, positions = 0, dslope = 0, doffset = 0;
    uint32_t units = 0, heads = 0, dims = 0;
};

}  // namespace

Status Lower(Emitter& e, const Op& op, const program::Add&) {
    return RunMap(e, op, Map::kAdd);
}
Status Lower(Emitter& e, const Op& op, const program::AddBias&) {
    return RunMap(e, op, Map::kAddBias);
}
Status Lower(Emitter& e, const Op& op, const program::Scale& a) {
    return RunMap(e, op, Map::kScale, a.factor);
}
Status Lower(Emitter& e, const Op& op, const program::ScaleByPosition& a) {
    return RunMap(e, op, Map::kScaleByPosition, a.temperature.beta, a.temperature);
}
Status Lower(Emitter& e, const Op& op, const program::SoftCap& a) {
    return RunMap(e, op, Map::kSoftCap, a.cap);
}
Status Lower(Emitter& e, const Op& op, const program::SoftCapGrad& a) {
    return RunMap(e, op, Map::kSoftCapGrad, a.cap);
}
Status Lower(Emitter& e, const Op& op, const program::Activate& a) {
    switch (a.kind) {
        case Ungated::kReluSquared: return RunMap(e, op, Map::kReluSquared);
        case Ungated::kGeluTanh: return RunMap(e, op, Map::kGeluAlone);
        case Ungated::kXielu: return RunMap(e, op, Map::kXielu, 0, {}, a.xielu);
        case Ungated::kRelu: return RunMap(e, op, Map::kRelu);
        case Ungated::kGelu: return RunMap(e, op, Map::kGelu);
        case Ungated::kSilu: return RunMap(e, op, Map::kSiluAlone);
        case Ungated::kClamp: return RunMap(e, op, Map::kClamp, a.xielu.above);
    }
    return {};
}
Status Lower(Emitter& e, const Op& op, const program::ActivateGrad& a) {
    switch (a.kind) {
        case Ungated::kReluSquared: return RunMap(e, op, Map::kReluSquaredGrad);
        case Ungated::kGeluTanh: return RunMap(e, op, Map::kGeluAloneGrad);
        case Ungated::kXielu: return RunMap(e, op, Map::kXieluGrad, 0, {}, a.xielu);
        case Ungated::kRelu: return RunMap(e, op, Map::kReluGrad);
        case Ungated::kGelu: return RunMap(e, op, Map::kExactGeluGrad);
        case Ungated::kSilu: return RunMap(e, op, Map::kSiluAloneGrad);
        case Ungated::kClamp: return RunMap(e, op, Map::kClampGrad, a.xielu.above);
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::GateRows& a) {
    switch (a.gate) {
        case program::RowGate::kSigmoid: return RunMap(e, op, Map::kGateRows);
        case program::RowGate::kSoftplus: return RunMap(e, op, Map::kSoftplusRows);
        case program::RowGate::kProduct: return RunMap(e, op, Map::kProductRows);
    }
    return {};
}
Status Lower(Emitter& e, const Op& op, const program::GateRowsGrad& a) {
    const ValueId dy = op.inputs[0];
    const int64_t gates = e.Cols(op.inputs[2]), cols = e.Cols(dy) / gates;  // a row for each gate
    Operands io(e);
    io.SetRows(cols);
    GateRowsGradArgs args;
    args.dy = io.Reads(dy, 0);
    args.x = io.Reads(op.inputs[1], 1);
    args.gate = io.Reads(op.inputs[2]);
    args.dx = io.Writes(op.outputs[0], 2);
    args.dgate = io.Writes(op.outputs[1]);
    args.rows = static_cast<uint32_t>(FlatRowsOf(e, dy) * gates);
    args.cols = static_cast<uint32_t>(cols);
    const bool one = cols == 1;
    const int64_t groups = one ? WalkGroups(args.rows) : RowGroups(args.rows);
    return io.Run("gate_rows_grad",
                  {one ? kWalkGroup : NormGroup(cols), io.types(), io.wide(), a.gate, one}, args,
                  {groups, 1, 1});
}

Status Lower(Emitter& e, const Op& op, const program::Glu& a) {
    if (a.limit != 0) {
        return RunMap(e, op, a.limits_gate ? Map::kLimitedGate : Map::kLimitedSilu, a.limit);
    }
    switch (a.activation) {
        case Activation::kSilu: return RunMap(e, op, Map::kSilu);
        case Activation::kGeluTanh: return RunMap(e, op, Map::kGeluTanh);
        case Activation::kClampedSilu: return RunMap(e, op, Map::kClampedSilu);
    }
    return {};
}
Status Lower(Emitter& e, const Op& op, const program::GluGrad& a) {
    if (a.limit != 0) {
        const Map map = a.limits_gate ? Map::kLimitedGateGrad : Map::kLimitedSiluGrad;
        return RunMap(e, op, map, a.limit);
    }
    switch (a.activation) {
        case Activation::kSilu: return RunMap(e, op, Map::kSiluGrad);
        case Activation::kGeluTanh: return RunMap(e, op, Map::kGeluTanhGrad);
        case Activation::kClampedSilu: return RunMap(e, op, Map::kClampedSiluGrad);
    }
    return {};
}

Status Lower(Emitter& e, const Op& op, const program::Sparsify& a) {
    MapArgs args;
    args.factor = a.deviations;
    args.xielu.above = static_cast<float>(a.whole);
    return RunRowMap(e, op, Map::kSparsify, op.inputs[1], program::kNoValue, args);
}

Status Lower(Emitter& e, const Op& op, const program::IdentityExperts& a) {
    MapArgs args;
    args.length = static_cast<uint32_t>(e.Cols(op.inputs[1]));
    args.offset = static_cast<uint32_t>(a.first);
    return RunRowMap(e, op, Map::kIdentities, op.inputs[2], op.inputs[1], args);
}

Status Lower(Emitter& e, const Op& op, const program::ScaleHeads&) {
    const ValueId x = op.inputs[0], slope = op.inputs[2];
    Operands io(e);
    ScaleHeadsArgs args;
    args.x = io.Reads(x, 0);
    args.positions = e.tables().positions;
    args.slope = io.Reads(slope);
    args.offset = io.Reads(op.inputs[3]);
    args.y = io.Writes(op.outputs[0], 1);
    args.cols = static_cast<uint32_t>(e.Cols(x));
    args.heads = static_cast<uint32_t>(e.program().value(slope).shape[0]);
    return io.Run("scale_heads", {kWalkGroup, io.types()}, args,
                  {CeilDiv(e.Cols(x), kWalkGroup), e.shape().rows, 1});
}

Status Lower(Emitter& e, const Op& op, const program::ScaleHeadsGrad&) {
    const ValueId x = op.inputs[1];
    const int64_t heads = e.Cols(op.outputs[0]), dims = e.Cols(x) / heads;
    Operands io(e);
    io.SetRows(dims);
    ScaleHeadsGradArgs args;
    args.dy = io.Reads(op.inputs[0], 0);
    args.x = io.Reads(x, 1);
    args.positions = e.tables().positions;
    args.dslope = io.Writes(op.outputs[0]);
    args.doffset = io.Writes(op.outputs[1]);
    args.units = static_cast<uint32_t>(FlatRowsOf(e, x) * heads);
    args.heads = static_cast<uint32_t>(heads);
    args.dims = static_cast<uint32_t>(dims);
    return io.Run("scale_heads_grad", {NormGroup(dims), io.types(), io.wide()}, args,
                  {RowGroups(args.units), 1, 1});
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
        MapArgs args;
        args.y = piece.address;
        args.count = static_cast<uint32_t>(piece.bytes / size);
        args.cols = 1;
        WEFT_TRY(e.Run("map", {kWalkGroup, Map::kZero, type << 6, piece.address % quad_bytes == 0},
                       args, {QuadGroups(args.count), 1, 1}, {}, {piece}));
    }
    return {};
}

}  // namespace weft::backend::on_gpu
