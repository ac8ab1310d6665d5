// Ops of an update: sums of squares, Adam, SGD, Adam with 8-bit moments.
#include <algorithm>
#include <cstring>
#include <span>
#include <utility>

#include "backend/vulkan/lower.h"
#include "backend/vulkan/lower_update.h"
#include "base/check.h"
#include "base/hash.h"
#include "tensor/dynamic_codes.h"

namespace weft::backend::vulkan {
namespace {

using program::Op;
using program::UpdateRun;
using program::ValueId;

// Elements per workgroup: of an update, and of a sum of squares.
constexpr int64_t kUpdateBlock = 4096, kSquaresBlock = 16384;

// Table entry as kernels read it (scalar layout; src/shaders/update.glsl).
struct UpdateRunEntry {
    uint64_t begin = 0, kept = 0, count = 0;
    uint32_t first_block = 0;
    float l2 = 0, decay = 0;
    uint32_t none = 0;
};
struct RunTable {
    Region region;
    uint32_t runs = 0, blocks = 0;
};

// l2, decay: for runs that decay.
Result<RunTable> PlaceRuns(Emitter& e, std::span<const UpdateRun> runs, int64_t block,
                           double l2 = 0, double decay = 0) {
    std::vector<UpdateRunEntry> entries;
    int64_t blocks = 0;
    for (const UpdateRun& run : runs) {
        if (run.count == 0) continue;
        UpdateRunEntry& entry = entries.emplace_back();
        entry.begin = static_cast<uint64_t>(run.begin);
        entry.kept = static_cast<uint64_t>(run.kept);
        entry.count = static_cast<uint64_t>(run.count);
        entry.first_block = static_cast<uint32_t>(blocks);
        entry.l2 = run.decays ? static_cast<float>(l2) : 0.0f;
        entry.decay = run.decays ? static_cast<float>(decay) : 0.0f;
        blocks += (run.count + block - 1) / block;
    }
    RunTable table;
    if (entries.empty()) return table;
    const auto bytes = std::as_bytes(std::span(entries));
    const std::string name =
        fmt::format("update runs {} {} {}", Checksum64(bytes, 0), entries.size(), block);
    WEFT_ASSIGN(table.region, e.Constant(name, bytes.size(), [&](std::span<std::byte> out) {
        std::ranges::copy(bytes, out.begin());
    }));
    table.runs = static_cast<uint32_t>(entries.size());
    table.blocks = static_cast<uint32_t>(blocks);
    return table;
}

// ---- Sums of squares ----------------------------------------------------------------------------

struct AddSquaresArgs {
    uint64_t x = 0, runs = 0, sums = 0;
    uint32_t run_count = 0, blocks = 0;
};
struct AddSquaresEndArgs {
    uint64_t blocks = 0, sums = 0;
    uint32_t count = 0;
};

Status CheckPair(const Emitter& e, ValueId sum) {
    const program::Value& value = e.program().value(sum);
    if (value.dtype == DType::kF32 && value.shape == program::Shape{2}) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{} is {} {}; Vulkan devices need two float32 numbers for a sum of squares",
                     value.name, Info(value.dtype).name, value.shape.Text());
}

// ---- Optimizers ---------------------------------------------------------------------------------

struct DenseUpdateArgs {
    uint64_t gradient = 0, weights = 0, m = 0, v = 0, copy = 0;
    uint64_t runs = 0;
    uint64_t rate = 0, gradient_scale = 0, correction1 = 0, correction2 = 0;
    uint32_t run_count = 0, blocks = 0;
    float beta1 = 0, beta2 = 0, eps = 0;
};
struct Adam8bitArgs {
    uint64_t gradient = 0, weights = 0, m = 0, v = 0, m_scales = 0, v_scales = 0, copy = 0;
    uint64_t codes = 0, runs = 0;
    uint64_t rate = 0, gradient_scale = 0, correction1 = 0, correction2 = 0;
    uint32_t run_count = 0, blocks = 0;
    float beta1 = 0, beta2 = 0, eps = 0;
};

// Operands of an update op: the gradient, the weights, `kept` state values, and a copy of the
// weights or none.
struct UpdateOperands {
    UpdateOperands(const Emitter& e, const Op& op, size_t kept)
        : gradient(op.inputs[0]),
          weights(op.inputs[1]),
          copy(op.inputs.size() > 2 + kept ? op.inputs.back() : program::kNoValue),
          types(e) {
        for (const ValueId id : op.inputs) reads.push_back(e.All(id));
        for (const ValueId id : op.outputs) writes.push_back(e.All(id));
    }
    Status Check(const Emitter& e) {
        WEFT_TRY(CheckFloat32(e, weights));
        WEFT_TRY(types.Set(0, gradient));
        if (copy != program::kNoValue) WEFT_TRY(types.Set(1, copy));
        wide = types.wide() != 0 && e.Address(weights) % 16 == 0;
        return {};
    }
    // Checks a float32 value of the optimizer state.
    Status CheckKept(const Emitter& e, ValueId id) {
        WEFT_TRY(CheckFloat32(e, id));
        wide = wide && e.Address(id) % 16 == 0;
        return {};
    }
    uint64_t CopyAddress(const Emitter& e) const {
        return copy == program::kNoValue ? 0 : e.Address(copy);
    }
    ValueId gradient, weights, copy;
    ElementTypes types;
    bool wide = false;
    std::vector<Region> reads, writes;
};

template <typename Args>
void SetScalars(Emitter& e, Args& args) {
    args.rate = e.UpdateScalar(UpdateScalarKind::kRate);
    args.gradient_scale = e.UpdateScalar(UpdateScalarKind::kGradientScale);
}
template <typename Args>
void SetAdamArgs(Emitter& e, const program::AdamUpdate& a, Args& args) {
    SetScalars(e, args);
    args.beta1 = static_cast<float>(a.beta1);
    args.beta2 = static_cast<float>(a.beta2);
    // Uses the betas that the kernels multiply by, as on the CPU (kernels/dense/update.cc).
    args.correction1 = e.UpdateScalar(UpdateScalarKind::kCorrection, args.beta1);
    args.correction2 = e.UpdateScalar(UpdateScalarKind::kCorrection, args.beta2);
    args.eps = static_cast<float>(a.eps);
}

Status RunDense(Emitter& e, std::string_view shader, UpdateOperands operands, const RunTable& runs,
                DenseUpdateArgs args) {
    args.gradient = e.Address(operands.gradient);
    args.weights = e.Address(operands.weights);
    args.copy = operands.CopyAddress(e);
    args.runs = runs.region.address;
    args.run_count = runs.runs;
    args.blocks = runs.blocks;
    operands.reads.push_back(runs.region);
    return e.Run(shader,
                 {kTrainGroup, operands.types.packed(), operands.wide ? 1u : 0u,
                  static_cast<uint32_t>(kUpdateBlock)},
                 args, {RowGroups(runs.blocks), 1, 1}, std::move(operands.reads),
                 std::move(operands.writes));
}

// For both kinds of codes: 256 values, the 255 midpoints between them, and an unused number.
Result<Region> PlaceCodes(Emitter& e) {
    constexpr size_t kCodes = 256;
    constexpr uint64_t kBytes = 4 * kCodes * sizeof(float);
    return e.Constant("dynamic codes", kBytes, [](std::span<std::byte> out) {
        std::vector<float> table;
        for (const DynamicCodes* codes : {&SignedCodes(), &UnsignedCodes()}) {
            std::vector<float> values, middles(kCodes, 0.0f);
            for (size_t i = 0; i < kCodes; ++i) {
                values.push_back(codes->value(static_cast<uint8_t>(i)));
            }
            for (size_t i = 0; i + 1 < kCodes; ++i) {
                middles[i] = static_cast<float>((double{values[i]} + double{values[i + 1]}) / 2);
            }
            table.insert(table.end(), values.begin(), values.end());
            table.insert(table.end(), middles.begin(), middles.end());
        }
        WEFT_CHECK(table.size() * sizeof(float) == out.size());
        std::memcpy(out.data(), table.data(), out.size());
    });
}

}  // namespace

Result<SquareBlocks> SumSquaresOf(Emitter& e, ValueId x,
                                  std::span<const program::ElementRange> ranges) {
    std::vector<UpdateRun> list;
    for (const program::ElementRange& range : ranges) {
        list.push_back({range.begin, 0, range.end - range.begin});
    }
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, list, kSquaresBlock));
    SquareBlocks sums{{}, runs.blocks};
    if (runs.blocks == 0) return sums;
    ElementTypes types(e);
    WEFT_TRY(types.Set(0, x));
    AddSquaresArgs args;
    args.x = e.Address(x);
    args.runs = runs.region.address;
    WEFT_ASSIGN(sums.region, e.Scratch("squares", runs.blocks * 2 * sizeof(float)));
    args.sums = sums.region.address;
    args.run_count = runs.runs;
    args.blocks = runs.blocks;
    WEFT_TRY(
        e.Run("add_squares",
              {kTrainGroup, types.packed(), types.wide(), static_cast<uint32_t>(kSquaresBlock)},
              args, {RowGroups(runs.blocks), 1, 1}, {e.All(x), runs.region}, {sums.region}));
    return sums;
}

Status AddSquareBlocks(Emitter& e, const SquareBlocks& blocks, Region to) {
    if (blocks.count == 0) return {};
    const AddSquaresEndArgs args{blocks.region.address, to.address,
                                 static_cast<uint32_t>(blocks.count)};
    const bool single = to.bytes == sizeof(float);
    return e.Run("add_squares_end", {kTrainGroup, single ? 1u : 0u}, args, {1, 1, 1},
                 {blocks.region, to}, {to});
}

Status Lower(Emitter& e, const Op& op, const program::AddSquares& a) {
    WEFT_TRY(CheckPair(e, op.outputs[0]));
    WEFT_ASSIGN(const SquareBlocks blocks, SumSquaresOf(e, op.inputs[0], a.ranges));
    return AddSquareBlocks(e, blocks, e.All(op.outputs[0]));
}

Status Lower(Emitter& e, const Op& op, const program::AdamUpdate& a) {
    UpdateOperands operands(e, op, 2);
    WEFT_TRY(operands.Check(e));
    for (const size_t i : {2, 3}) WEFT_TRY(operands.CheckKept(e, op.inputs[i]));
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, a.runs, kUpdateBlock, a.l2, a.decay));
    DenseUpdateArgs args;
    SetAdamArgs(e, a, args);
    args.m = e.Address(op.inputs[2]);
    args.v = e.Address(op.inputs[3]);
    return RunDense(e, "adam_update", std::move(operands), runs, args);
}

Status Lower(Emitter& e, const Op& op, const program::SgdUpdate& a) {
    const bool keeps = a.momentum > 0;
    UpdateOperands operands(e, op, keeps ? 1 : 0);
    WEFT_TRY(operands.Check(e));
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, a.runs, kUpdateBlock, a.l2));
    DenseUpdateArgs args;
    SetScalars(e, args);
    args.correction1 = e.UpdateScalar(UpdateScalarKind::kFirst);
    args.beta1 = static_cast<float>(a.momentum);
    args.beta2 = static_cast<float>(1 - a.dampening);
    args.eps = a.nesterov ? 1.0f : 0.0f;
    if (keeps) {
        WEFT_TRY(operands.CheckKept(e, op.inputs[2]));
        args.m = e.Address(op.inputs[2]);
    }
    return RunDense(e, "sgd_update", std::move(operands), runs, args);
}

Status Lower(Emitter& e, const Op& op, const program::Adam8bitUpdate& a) {
    UpdateOperands operands(e, op, 4);
    WEFT_TRY(operands.Check(e));
    for (const size_t i : {4, 5}) WEFT_TRY(CheckFloat32(e, op.inputs[i]));
    WEFT_ASSIGN(const RunTable runs,
                PlaceRuns(e, a.adam.runs, kStateBlock, a.adam.l2, a.adam.decay));
    WEFT_ASSIGN(const Region codes, PlaceCodes(e));
    Adam8bitArgs args;
    SetAdamArgs(e, a.adam, args);
    args.gradient = e.Address(operands.gradient);
    args.weights = e.Address(operands.weights);
    uint64_t* const kept[] = {&args.m, &args.v, &args.m_scales, &args.v_scales};
    for (size_t i = 0; i < std::size(kept); ++i) *kept[i] = e.Address(op.inputs[2 + i]);
    args.copy = operands.CopyAddress(e);
    args.codes = codes.address;
    args.runs = runs.region.address;
    args.run_count = runs.runs;
    args.blocks = runs.blocks;
    operands.reads.push_back(codes);
    operands.reads.push_back(runs.region);
    constexpr uint32_t kLanes = kStateBlock / 4;
    return e.Run("adam8bit_update",
                 {kLanes, operands.types.packed(), operands.wide ? 1u : 0u,
                  static_cast<uint32_t>(kStateBlock)},
                 args, {RowGroups(runs.blocks), 1, 1}, std::move(operands.reads),
                 std::move(operands.writes));
}

}  // namespace weft::backend::vulkan
