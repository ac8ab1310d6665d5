// Training of the causal convolution, the gated delta rule and SSD, over whole sequences
// (conv_trained.comp, delta_trained.comp, delta_sums.comp).
#include <algorithm>
#include <cstdint>
#include <span>

#include "backend/gpu/dispatch/operands.h"
#include "backend/gpu/lower/lower.h"
#include "backend/gpu/lower/parts.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;
using program::ValueId;

// ---- Convolution --------------------------------------------------------------------------------

struct TrainedConvArgs {
    uint64_t x = 0, weight = 0, bias = 0, inner = 0, outer = 0, sequences = 0, row_sequence = 0;
    uint64_t dy = 0, y = 0, other = 0;
    uint32_t cols = 0, rows = 0, block_rows = 0;
};
struct ConvSumsArgs {
    uint64_t sums = 0, dw = 0, db = 0;
    uint32_t cols = 0, blocks = 0;
};
constexpr int64_t kConvLanes = 8, kLeastConvRows = 64, kMostConvBlocks = 256;

// A convolution with its operands but the results. inputs: x, weight, then bias and gates, as far
// as the op has them; others may follow.
struct Convolution {
    const program::CausalConv& a;
    std::span<const ValueId> inputs;
    bool biased;
    int64_t Taps(const Emitter& e) const { return e.Cols(inputs[1]); }
    TrainedConvArgs Args(const Emitter& e, Operands& io) const {
        TrainedConvArgs args;
        args.x = io.Reads(inputs[0]);
        args.weight = io.Reads(inputs[1]);
        if (biased) args.bias = io.Reads(inputs[2]);
        if (a.gated) {
            args.inner = io.Reads(inputs[biased ? 3 : 2]);
            args.outer = io.Reads(inputs[biased ? 4 : 3]);
        }
        args.sequences = e.tables().sequences;
        args.row_sequence = e.tables().row_sequence;
        args.cols = static_cast<uint32_t>(e.Cols(inputs[0]));
        args.rows = static_cast<uint32_t>(e.Rows(inputs[0]));
        return args;
    }
    Status Run(const Emitter& e, const Operands& io, std::string_view shader,
               const TrainedConvArgs& args) const {
        return io.Run(shader, {kWalkGroup, Taps(e), a.silu, a.gated}, args,
                      {WalkGroups(int64_t{args.rows} * args.cols), 1, 1});
    }
};

// Computes the gradient of the sum before the activation, and of `outer` if the op has gates and
// `douter` is not kNoValue.
Result<Region> SumGradOf(Emitter& e, const Convolution& conv, ValueId dy, ValueId douter) {
    const uint64_t bytes = e.All(dy).bytes;
    WEFT_ASSIGN(const Region dz, e.Scratch("convolution gradient", bytes));
    Operands io(e);
    TrainedConvArgs args = conv.Args(e, io);
    args.dy = io.Reads(dy);
    args.y = io.Writes(dz);
    if (douter != program::kNoValue) {
        args.other = io.Writes(douter);
    } else if (conv.a.gated) {
        WEFT_ASSIGN(const Region unused, e.Scratch("convolution gate", bytes));
        args.other = io.Writes(unused);
    }
    WEFT_TRY(conv.Run(e, io, "conv_sum_grad", args));
    return dz;
}

// ---- Delta rule ---------------------------------------------------------------------------------

// Rows of the step per dispatch: of the recurrence, and of its gradient (kEvery of the shaders).
constexpr int64_t kRuleRows = 128, kGradRows = 64;
constexpr int64_t kStateColumns = 16, kRuleGroup = 128;

struct TrainedRuleArgs {
    uint64_t q = 0, k = 0, v = 0, decay = 0, beta = 0, a = 0, dt = 0;
    uint64_t y = 0, kept = 0, sequences = 0;
    uint32_t heads_and_keys = 0, cols = 0, first_heads = 0, group_and_cycle = 0;
    float query_scale = 1, key_scale = 1, floor = 0;
    uint32_t first_row = 0, rows = 0;
};
struct RuleGradArgs {
    uint64_t q = 0, k = 0, v = 0, decay = 0, beta = 0, a = 0, dt = 0;
    uint64_t dy = 0, dv = 0, room = 0, kept = 0, sequences = 0;
    uint32_t heads_and_keys = 0, cols = 0, first_heads = 0, group_and_cycle = 0;
    float query_scale = 1, key_scale = 1, floor = 0;
    uint32_t first_row = 0;
};
struct RuleKeysArgs {
    uint64_t room = 0, dq = 0, dk = 0;
    uint32_t heads_and_keys = 0, cols = 0, first_heads = 0, group_and_cycle = 0;
    uint32_t first_row = 0, rows = 0;
};
struct RuleGatesArgs {
    uint64_t room = 0, decay = 0, beta = 0, a = 0, dt = 0;
    uint64_t ddecay = 0, dbeta = 0, da = 0, dskip = 0;
    uint32_t heads = 0, cols = 0, first_row = 0, rows = 0;
    float floor = 0;
};

// A rule and its sizes. inputs: q, k, v, decay, beta, a, dt; with SSD: q, k, v, decay, a, dt, skip.
struct Rule {
    const program::DeltaRule& a;
    std::span<const ValueId> inputs;
    int64_t heads, dims, cols, rows;

    Rule(const Emitter& e, const program::DeltaRule& rule, std::span<const ValueId> of)
        : a(rule),
          inputs(of),
          heads(e.program().value(of[rule.ssd ? 4 : 5]).shape[0]),
          dims(e.Cols(of[0]) / rule.key_heads),
          cols(e.Cols(of[2]) / heads),
          rows(e.Rows(of[2])) {}

    int64_t Blocks() const { return CeilDiv(cols, kStateColumns); }
    uint64_t StateBytes() const {
        return static_cast<uint64_t>(heads * Blocks() * dims * kStateColumns) * sizeof(float);
    }
    // delta_sums.glsl
    uint64_t SpaceBytes() const {
        const int64_t fades = a.by_channel ? dims : 1;
        const int64_t sums = kGradRows * heads * Blocks() * (2 * dims + fades + 2);
        return (2 + kGradRows) * StateBytes() + static_cast<uint64_t>(sums) * sizeof(float);
    }
    void SetSizes(auto& args) const {
        args.heads_and_keys = Both(heads, a.key_heads);
        args.cols = static_cast<uint32_t>(cols);
        args.first_heads = Both(a.first_head, a.first_key_head);
        args.group_and_cycle = Both(a.group, a.cycle);
    }
    // The operands and sizes of delta_trained.comp. kept: states.
    void Fill(const Emitter& e, Operands& io, auto& args) const {
        // `skip` replaces beta.
        uint64_t* const rule[] = {&args.q,    &args.k, &args.v, &args.decay,
                                  &args.beta, &args.a, &args.dt};
        uint64_t* const ssd[] = {&args.q, &args.k,  &args.v,   &args.decay,
                                 &args.a, &args.dt, &args.beta};
        for (size_t i = 0; i < 7; ++i) *(a.ssd ? ssd : rule)[i] = io.Reads(inputs[i]);
        args.sequences = e.tables().sequences;
        SetSizes(args);
        args.query_scale = a.query_scale;
        args.key_scale = a.key_scale;
        args.floor = a.floor;
    }
};

Status CheckTrained(const Op& op, const Rule& rule) {
    if (rule.a.ssd && rule.a.by_channel) return TrainsOnCpuOnly(op, "with rates by channel");
    return CheckRule(rule.a, rule.heads, rule.dims);
}

// Runs the recurrence. Keeps the state before every `every`-th row. y: 0 if it is not needed.
Status RunRule(Emitter& e, Operands& io, const Rule& rule, uint64_t y, const Region& kept,
               int64_t every) {
    TrainedRuleArgs args;
    rule.Fill(e, io, args);
    args.y = y;
    io.Reads(kept);
    args.kept = io.Writes(kept);
    for (int64_t first = 0; first < rule.rows; first += kRuleRows) {
        args.first_row = static_cast<uint32_t>(first);
        args.rows = static_cast<uint32_t>(std::min(kRuleRows, rule.rows - first));
        WEFT_TRY(io.Run("delta_trained",
                        {kRuleGroup, rule.dims, rule.a.by_channel, rule.a.ssd, every}, args,
                        {rule.Blocks(), rule.heads, e.shape().sequences}));
    }
    return {};
}
Result<Region> PlaceKept(Emitter& e, const Rule& rule, int64_t every) {
    const auto states = static_cast<uint64_t>(CeilDiv(rule.rows, every));
    return e.Scratch("delta rule states", states * rule.StateBytes());
}

// The operands of the kernels that add up the blocks' addends.
struct RuleSums {
    Operands keys_io, gates_io;
    RuleKeysArgs keys;
    RuleGatesArgs gates;

    RuleSums(Emitter& e, const Op& op, const Rule& rule, const Region& room)
        : keys_io(e), gates_io(e) {
        const bool ssd = rule.a.ssd;
        keys.room = keys_io.Reads(room);
        keys.dq = keys_io.Writes(op.outputs[0]);
        keys.dk = keys_io.Writes(op.outputs[1]);
        rule.SetSizes(keys);
        gates.room = gates_io.Reads(room);
        gates.decay = gates_io.Reads(rule.inputs[3]);
        if (!ssd) gates.beta = gates_io.Reads(rule.inputs[4]);
        gates.a = gates_io.Reads(rule.inputs[ssd ? 4 : 5]);
        gates.dt = gates_io.Reads(rule.inputs[ssd ? 5 : 6]);
        gates.ddecay = gates_io.Writes(op.outputs[3]);
        if (!ssd) gates.dbeta = gates_io.Writes(op.outputs[4]);
        gates.da = gates_io.Writes(op.outputs[ssd ? 4 : 5]);
        if (ssd) gates.dskip = gates_io.Writes(op.outputs[5]);
        gates.heads = static_cast<uint32_t>(rule.heads);
        gates.cols = static_cast<uint32_t>(rule.cols);
        gates.floor = rule.a.floor;
    }
    Status Run(const Rule& rule, uint32_t first_row, uint32_t rows) {
        keys.first_row = gates.first_row = first_row;
        keys.rows = gates.rows = rows;
        const bool by_channel = rule.a.by_channel, ssd = rule.a.ssd;
        const int64_t elements = rows * rule.a.key_heads * rule.dims;
        WEFT_TRY(keys_io.Run("delta_keys_grad", {kWalkGroup, rule.dims, by_channel, ssd, kGradRows},
                             keys, {WalkGroups(elements), 1, 1}));
        const uint32_t group = NormGroup(by_channel ? rule.dims : 1);
        return gates_io.Run("delta_gates_grad", {group, rule.dims, by_channel, ssd, kGradRows},
                            gates, {RowGroups(rows * rule.heads), 1, 1});
    }
};

}  // namespace

Status LowerTrained(Emitter& e, const Op& op, const program::CausalConv& a) {
    const Convolution conv{a, op.inputs, a.biased(op.inputs.size())};
    WEFT_TRY(CheckTaps(conv.Taps(e)));
    Operands io(e);
    TrainedConvArgs args = conv.Args(e, io);
    args.y = io.Writes(op.outputs[0]);
    return conv.Run(e, io, "conv_trained", args);
}

Status Lower(Emitter& e, const Op& op, const program::CausalConvGrad& a) {
    const std::span inputs = std::span(op.inputs).subspan(1);
    const Convolution conv{a.forward, inputs, inputs.size() % 2 == 1};
    WEFT_TRY(CheckTaps(conv.Taps(e)));
    const bool gated = a.forward.gated;
    const ValueId douter = gated ? op.outputs[2] : program::kNoValue;
    WEFT_ASSIGN(const Region dz, SumGradOf(e, conv, op.inputs[0], douter));
    Operands io(e);
    TrainedConvArgs args = conv.Args(e, io);
    args.dy = io.Reads(dz);
    args.y = io.Writes(op.outputs[0]);
    if (gated) args.other = io.Writes(op.outputs[1]);
    return conv.Run(e, io, "conv_input_grad", args);
}

Status Lower(Emitter& e, const Op& op, const program::CausalConvGradWeight& a) {
    const Convolution conv{a.forward, std::span(op.inputs).subspan(1), a.biased};
    const int64_t taps = conv.Taps(e);
    WEFT_TRY(CheckTaps(taps));
    WEFT_ASSIGN(const Region dz, SumGradOf(e, conv, op.inputs[0], program::kNoValue));
    Operands io(e), end_io(e);
    TrainedConvArgs args = conv.Args(e, io);
    const int64_t block_rows = std::max(kLeastConvRows, CeilDiv(args.rows, kMostConvBlocks));
    const int64_t blocks = CeilDiv(args.rows, block_rows), sums = (taps + 1) * args.cols;
    WEFT_ASSIGN(
        const Region parts,
        e.Scratch("convolution sums", static_cast<uint64_t>(blocks * sums) * sizeof(float)));
    args.dy = io.Reads(dz);
    args.y = io.Writes(parts);
    args.block_rows = static_cast<uint32_t>(block_rows);
    WEFT_TRY(io.Run("conv_weight_grad", {kWalkGroup, taps, a.forward.silu, a.forward.gated}, args,
                    {CeilDiv(args.cols, kWalkGroup / kConvLanes), blocks, 1}));
    ConvSumsArgs end;
    end.sums = end_io.Reads(parts);
    end.dw = end_io.Adds(op.outputs[0]);
    if (a.biased) end.db = end_io.Adds(op.outputs[1]);
    end.cols = args.cols;
    end.blocks = static_cast<uint32_t>(blocks);
    return end_io.Run("conv_weight_grad_end", {kWalkGroup, taps, a.forward.silu, a.forward.gated},
                      end, {CeilDiv(sums, kWalkGroup), 1, 1});
}

Status LowerTrained(Emitter& e, const Op& op, const program::DeltaRule& a) {
    const Rule rule(e, a, op.inputs);
    WEFT_TRY(CheckTrained(op, rule));
    WEFT_ASSIGN(const Region kept, PlaceKept(e, rule, kRuleRows));
    Operands io(e);
    const uint64_t y = io.Writes(op.outputs[0]);
    return RunRule(e, io, rule, y, kept, kRuleRows);
}

// First computes the recurrence again and keeps states; then processes the rows in reverse order,
// kGradRows at a time.
Status Lower(Emitter& e, const Op& op, const program::DeltaRuleGrad& a) {
    const Rule rule(e, a.forward, std::span(op.inputs).subspan(1));
    WEFT_TRY(CheckTrained(op, rule));
    WEFT_ASSIGN(const Region kept, PlaceKept(e, rule, kGradRows));
    WEFT_ASSIGN(const Region room, e.Scratch("delta rule gradient", rule.SpaceBytes()));
    Operands again(e), io(e);
    WEFT_TRY(RunRule(e, again, rule, 0, kept, kGradRows));
    RuleGradArgs args;
    rule.Fill(e, io, args);
    args.dy = io.Reads(op.inputs[0]);
    args.dv = io.Writes(op.outputs[2]);
    args.kept = io.Reads(kept);
    io.Reads(room);
    args.room = io.Writes(room);
    RuleSums sums(e, op, rule, room);
    for (int64_t piece = CeilDiv(rule.rows, kGradRows); piece-- > 0;) {
        const int64_t first = piece * kGradRows;
        args.first_row = static_cast<uint32_t>(first);
        WEFT_TRY(io.Run("delta_grad",
                        {kRuleGroup, rule.dims, rule.a.by_channel, rule.a.ssd, kGradRows}, args,
                        {rule.Blocks(), rule.heads, e.shape().sequences}));
        WEFT_TRY(sums.Run(rule, args.first_row,
                          static_cast<uint32_t>(std::min(kGradRows, rule.rows - first))));
    }
    return {};
}

}  // namespace weft::backend::on_gpu
