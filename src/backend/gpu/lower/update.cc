// Ops of an update: sums of squares, Adam, SGD, Adam with 8-bit moments.
#include <algorithm>
#include <cstring>
#include <span>

#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/update.h"
#include "base/check.h"
#include "base/hash.h"
#include "tensor/dynamic_codes.h"
#include "tensor/sgd.h"

namespace weft::backend::on_gpu {
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

// l2, decay: used by runs that decay.
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
        blocks += CeilDiv(run.count, block);
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

// Operands of an update op with `kept` state values: the gradient (slot 0), the weights, and a copy
// of the weights (slot 1) or none.
template <typename Args>
Operands UpdateOperands(Emitter& e, const Op& op, size_t kept, const RunTable& runs, Args& args) {
    Operands io(e, Operands::Count::kMany);
    args.gradient = io.Reads(op.inputs[0], 0);
    args.weights = io.Adds(op.inputs[1], Operands::By::kQuads);
    args.copy = io.Adds(op.inputs.size() > 2 + kept ? op.inputs.back() : program::kNoValue, 1);
    args.runs = io.Reads(runs.region);
    args.run_count = runs.runs;
    args.blocks = runs.blocks;
    args.rate = e.UpdateScalar(UpdateScalarKind::kRate);
    args.gradient_scale = e.UpdateScalar(UpdateScalarKind::kGradientScale);
    return io;
}
template <typename Args>
void SetAdamArgs(Emitter& e, const program::AdamUpdate& a, Args& args) {
    args.beta1 = static_cast<float>(a.beta1);
    args.beta2 = static_cast<float>(a.beta2);
    // Uses the betas that the kernels multiply by, as on the CPU (kernels/dense/update.cc).
    args.correction1 = e.UpdateScalar(UpdateScalarKind::kCorrection, args.beta1);
    args.correction2 = e.UpdateScalar(UpdateScalarKind::kCorrection, args.beta2);
    args.eps = static_cast<float>(a.eps);
}

Status RunDense(std::string_view shader, const Operands& io, const DenseUpdateArgs& args) {
    return io.Run(shader, {kWalkGroup, io.types(), io.wide(), kUpdateBlock}, args,
                  {RowGroups(args.blocks), 1, 1});
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
    WEFT_ASSIGN(sums.region, e.Scratch("squares", runs.blocks * 2 * sizeof(float)));
    Operands io(e, Operands::Count::kMany);
    AddSquaresArgs args;
    args.x = io.Reads(x, 0);
    args.runs = io.Reads(runs.region);
    args.sums = io.Writes(sums.region);
    args.run_count = runs.runs;
    args.blocks = runs.blocks;
    WEFT_TRY(io.Run("add_squares", {kWalkGroup, io.types(), io.wide(), kSquaresBlock}, args,
                    {RowGroups(runs.blocks), 1, 1}));
    return sums;
}

Status AddSquareBlocks(Emitter& e, const SquareBlocks& blocks, Region to) {
    if (blocks.count == 0) return {};
    const AddSquaresEndArgs args{blocks.region.address, to.address,
                                 static_cast<uint32_t>(blocks.count)};
    const bool single = to.bytes == sizeof(float);
    return e.Run("add_squares_end", {kWalkGroup, single}, args, {1, 1, 1}, {blocks.region, to},
                 {to});
}

Status Lower(Emitter& e, const Op& op, const program::AddSquares& a) {
    WEFT_TRY(CheckPair(e, op.outputs[0]));
    WEFT_ASSIGN(const SquareBlocks blocks, SumSquaresOf(e, op.inputs[0], a.ranges));
    return AddSquareBlocks(e, blocks, e.All(op.outputs[0]));
}

Status Lower(Emitter& e, const Op& op, const program::AdamUpdate& a) {
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, a.runs, kUpdateBlock, a.l2, a.decay));
    DenseUpdateArgs args;
    Operands io = UpdateOperands(e, op, 2, runs, args);
    SetAdamArgs(e, a, args);
    args.m = io.Adds(op.inputs[2], Operands::By::kQuads);
    args.v = io.Adds(op.inputs[3], Operands::By::kQuads);
    return RunDense("adam_update", io, args);
}

Status Lower(Emitter& e, const Op& op, const program::SgdUpdate& a) {
    const bool keeps = a.momentum > 0;
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, a.runs, kUpdateBlock, a.l2));
    DenseUpdateArgs args;
    Operands io = UpdateOperands(e, op, keeps ? 1 : 0, runs, args);
    args.correction1 = e.UpdateScalar(UpdateScalarKind::kFirst);
    args.beta1 = static_cast<float>(a.momentum);
    args.beta2 = SgdTaken(a.momentum, a.dampening);
    args.eps = a.nesterov ? 1.0f : 0.0f;
    if (keeps) args.m = io.Adds(op.inputs[2], Operands::By::kQuads);
    return RunDense("sgd_update", io, args);
}

Status Lower(Emitter& e, const Op& op, const program::LionUpdate& a) {
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, a.runs, kUpdateBlock, 0, a.decay));
    DenseUpdateArgs args;
    Operands io = UpdateOperands(e, op, 1, runs, args);
    args.m = io.Adds(op.inputs[2], Operands::By::kQuads);
    args.beta1 = static_cast<float>(a.beta1);
    args.beta2 = static_cast<float>(a.beta2);
    return RunDense("lion_update", io, args);
}

Status Lower(Emitter& e, const Op& op, const program::ScheduleFreeUpdate& a) {
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, a.runs, kUpdateBlock, 0, a.decay));
    DenseUpdateArgs args;
    Operands io = UpdateOperands(e, op, 2, runs, args);
    args.m = io.Adds(op.inputs[2], Operands::By::kQuads);
    args.v = io.Adds(op.inputs[3], Operands::By::kQuads);
    args.beta1 = static_cast<float>(a.beta1);
    args.beta2 = static_cast<float>(a.beta2);
    args.eps = static_cast<float>(a.eps);
    args.correction1 = e.UpdateScalar(UpdateScalarKind::kAverageShare);
    args.correction2 = e.UpdateScalar(UpdateScalarKind::kCorrection, args.beta2);
    return RunDense("schedule_free_update", io, args);
}

Status Lower(Emitter& e, const Op& op, const program::ScheduleFreeView& a) {
    WEFT_ASSIGN(const RunTable runs, PlaceRuns(e, a.runs, kUpdateBlock));
    DenseUpdateArgs args;
    Operands io(e, Operands::Count::kMany);
    args.m = io.Reads(op.inputs[0], Operands::By::kQuads);
    args.weights = io.Adds(op.inputs[1], Operands::By::kQuads);
    args.gradient = io.Adds(op.inputs[2], 0);
    args.copy = io.Adds(op.inputs.size() > 3 ? op.inputs[3] : program::kNoValue, 1);
    args.runs = io.Reads(runs.region);
    args.run_count = runs.runs;
    args.blocks = runs.blocks;
    args.beta1 = static_cast<float>(1 - 1 / a.beta1);
    args.eps = a.averaged ? 1.0f : 0.0f;
    return RunDense("schedule_free_view", io, args);
}

Status Lower(Emitter& e, const Op& op, const program::Adam8bitUpdate& a) {
    WEFT_ASSIGN(const RunTable runs,
                PlaceRuns(e, a.adam.runs, kStateBlock, a.adam.l2, a.adam.decay));
    WEFT_ASSIGN(const Region codes, PlaceCodes(e));
    Adam8bitArgs args;
    Operands io = UpdateOperands(e, op, 4, runs, args);
    SetAdamArgs(e, a.adam, args);
    args.m = io.Adds(op.inputs[2]);
    args.v = io.Adds(op.inputs[3]);
    args.m_scales = io.Adds(op.inputs[4]);
    args.v_scales = io.Adds(op.inputs[5]);
    args.codes = io.Reads(codes);
    constexpr uint32_t kLanes = kStateBlock / 4;
    return io.Run("adam8bit_update", {kLanes, io.types(), io.wide(), kStateBlock}, args,
                  {RowGroups(runs.blocks), 1, 1});
}

}  // namespace weft::backend::on_gpu
