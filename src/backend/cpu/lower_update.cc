// Lowers the update of training. Calls point at runs and ranges in the Program, which outlives
// them.
#include <tuple>

#include "backend/cpu/lowering.h"

namespace weft::backend {
namespace {

// Address and length of an op's list, for the arguments of a call.
template <typename T>
void PointAt(const std::vector<T>& list, const T*& first, int64_t& count) {
    first = list.data();
    count = static_cast<int64_t>(list.size());
}

// Adds the runs, and the numbers of the running update.
void FillRuns(Lowering& l, const auto& runs, auto& args) {
    PointAt(runs, args.runs, args.run_count);
    args.numbers = &l.buffers.numbers();
}

// The arguments of all calls that update weights. copy: the index of the input for the copy, if
// there are that many inputs.
void FillUpdate(Lowering& l, const Op& op, size_t copy, const auto& runs, auto& call) {
    FillRuns(l, runs, call);
    dense::UpdatedPart& own = call.own;
    call.Reads(own.g, op.inputs[0]);
    own.g_type = ElementOf(l.TypeOf(op.inputs[0]));
    call.Changes(own.p, op.outputs[0]);
    if (copy >= op.inputs.size()) return;
    call.Changes(own.copy, op.inputs[copy]);
    own.copy_type = ElementOf(l.TypeOf(op.inputs[copy]));
}

void FillAdam(Lowering& l, const Op& op, size_t copy, const program::AdamUpdate& a, auto& call) {
    FillUpdate(l, op, copy, a.runs, call);
    call.Changes(call.m, op.inputs[2]);
    call.Changes(call.v, op.inputs[3]);
    call.beta1 = a.beta1;
    call.beta2 = a.beta2;
    call.eps = a.eps;
    call.l2 = a.l2;
    call.decay = a.decay;
}

// Sums blocks and then their sums, for any number of threads.
template <auto kBlocks, auto kAdd>
Status LowerSquares(Lowering& l, const Op& op, const program::AddSquares& a) {
    KernelCall<kBlocks> blocks(l);
    KernelCall<kAdd> add(l);
    const auto fill = [&](auto& call) {
        PointAt(a.ranges, call.ranges, call.range_count);
        call.type = ElementOf(l.TypeOf(op.inputs[0]));
    };
    fill(blocks);
    fill(add);
    const int64_t count = dense::SquaresBlocks(a.ranges.data(), add.range_count);
    const OperandRegion sums =
        l.ScratchBytes("squares", count * static_cast<int64_t>(sizeof(*add.blocks)));
    blocks.Reads(blocks.x, op.inputs[0]);
    blocks.Writes(blocks.blocks, sums);
    WEFT_TRY(blocks.Push());
    add.Reads(add.blocks, sums);
    add.Changes(add.sum, op.outputs[0]);
    return add.Push();
}

}  // namespace

// Sums are float64, or pairs of float32 if devices of other ranks lack float64.
Status Lower(Lowering& l, const Op& op, const program::AddSquares& a) {
    return l.IsWide(op.outputs[0])
               ? LowerSquares<dense::BlockSquares, dense::AddSquares>(l, op, a)
               : LowerSquares<dense::BlockPairSquares, dense::AddPairSquares>(l, op, a);
}

Status Lower(Lowering& l, const Op& op, const program::AdamUpdate& a) {
    KernelCall<dense::AdamRuns> call(l);
    FillAdam(l, op, 4, a, call);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::Adam8bitUpdate& a) {
    KernelCall<dense::Adam8bitRuns> call(l);
    FillAdam(l, op, 6, a.adam, call);
    call.Changes(call.m_scales, op.inputs[4]);
    call.Changes(call.v_scales, op.inputs[5]);
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::SgdUpdate& a) {
    KernelCall<dense::SgdRuns> call(l);
    const bool kept = a.momentum > 0;
    FillUpdate(l, op, kept ? 3 : 2, a.runs, call);
    if (kept) call.Changes(call.b, op.inputs[2]);
    call.momentum = a.momentum;
    call.dampening = a.dampening;
    call.l2 = a.l2;
    call.nesterov = a.nesterov;
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::LionUpdate& a) {
    KernelCall<dense::LionRuns> call(l);
    FillUpdate(l, op, 3, a.runs, call);
    call.Changes(call.m, op.inputs[2]);
    call.beta1 = a.beta1;
    call.beta2 = a.beta2;
    call.decay = a.decay;
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::ScheduleFreeUpdate& a) {
    KernelCall<dense::ScheduleFreeRuns> call(l);
    FillUpdate(l, op, 4, a.runs, call);
    call.Changes(call.z, op.inputs[2]);
    call.Changes(call.v, op.inputs[3]);
    call.beta1 = a.beta1;
    call.beta2 = a.beta2;
    call.eps = a.eps;
    call.decay = a.decay;
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::ScheduleFreeView& a) {
    KernelCall<dense::ScheduleFreeView> call(l);
    FillRuns(l, a.runs, call);
    call.Reads(call.z, op.inputs[0]);
    call.Changes(call.p, op.inputs[1]);
    call.Changes(call.kept, op.inputs[2]);
    call.beta1 = a.beta1;
    call.averaged = a.averaged;
    if (op.inputs.size() < 4) return call.Push();
    call.Changes(call.copy, op.inputs[3]);
    call.copy_type = ElementOf(l.TypeOf(op.inputs[3]));
    return call.Push();
}

namespace {

// The memory of a Muon step: the matrix, [short side, long side], twice, and two squares.
struct MuonScratch {
    OperandRegion x, next, gram, mixed, row_squares;
    int64_t rows = 0, cols = 0;
};
MuonScratch MuonScratchOf(Lowering& l, const weft::UpdateMatrix& matrix) {
    MuonScratch room;
    std::tie(room.rows, room.cols) = std::minmax(matrix.rows, matrix.cols);
    const int64_t bytes = matrix.rows * matrix.cols * kFloat;
    const int64_t square = room.rows * room.rows * kFloat;
    room.x = l.ScratchBytes("muon x", bytes);
    room.next = l.ScratchBytes("muon next", bytes);
    room.gram = l.ScratchBytes("muon gram", square);
    room.mixed = l.ScratchBytes("muon mixed", square);
    room.row_squares = l.ScratchBytes("muon rows", matrix.rows * kDouble);
    return room;
}

// c [m, n] = a [m, k] b [k, n], or += it. A factor's strides: of its rows, of its columns.
struct MuonFactor {
    const OperandRegion& region;
    int64_t row, col;
};
Status PushMuonProduct(Lowering& l, const MuonFactor& a, const MuonFactor& b,
                       const OperandRegion& c, std::array<int64_t, 3> mnk, bool accumulates) {
    KernelCall<&Kernels::gemm> call(l);
    call.Reads(call.a.data, a.region);
    call.Reads(call.b.data, b.region);
    std::tie(call.a.row, call.a.col) = std::tie(a.row, a.col);
    std::tie(call.b.row, call.b.col) = std::tie(b.row, b.col);
    call.Changes(call.c.data, c);
    std::tie(call.m, call.n, call.k) = std::tie(mnk[0], mnk[1], mnk[2]);
    call.c.stride = call.n;
    call.accumulate = accumulates;
    call.Owns(call.scratch, call.scratch_bytes, l.kernels.gemm_scratch_bytes(call));
    return call.Push();
}

// Five steps of the Newton-Schulz iteration on room.x.
Status PushMuonSteps(Lowering& l, MuonScratch& room) {
    const int64_t rows = room.rows, cols = room.cols;
    for (int step = 0; step < 5; ++step) {
        WEFT_TRY(PushMuonProduct(l, {room.x, cols, 1}, {room.x, 1, cols}, room.gram,
                                 {rows, rows, cols}, false));
        WEFT_TRY(PushMuonProduct(l, {room.gram, rows, 1}, {room.gram, rows, 1}, room.mixed,
                                 {rows, rows, rows}, false));
        KernelCall<dense::MuonMix> mix(l);
        mix.Reads(mix.gram, room.gram);
        mix.Changes(mix.mixed, room.mixed);
        mix.Reads(mix.x, room.x);
        mix.Writes(mix.next, room.next);
        mix.square = rows * rows;
        mix.count = rows * cols;
        WEFT_TRY(mix.Push());
        WEFT_TRY(PushMuonProduct(l, {room.mixed, rows, 1}, {room.x, cols, 1}, room.next,
                                 {rows, cols, rows}, true));
        std::swap(room.x, room.next);
    }
    return {};
}

// The calls of a kernel with MuonArgs.
template <auto kKernel>
Status PushMuon(Lowering& l, const Op& op, const program::MuonUpdate& a,
                const weft::UpdateMatrix& matrix, const MuonScratch& room) {
    KernelCall<kKernel> call(l);
    call.matrix = matrix;
    call.numbers = &l.buffers.numbers();
    call.momentum = a.momentum;
    call.decay = a.decay;
    call.nesterov = a.nesterov;
    call.adam_size = a.adam_size;
    dense::UpdatedPart& own = call.own;
    call.Reads(own.g, op.inputs[0]);
    own.g_type = ElementOf(l.TypeOf(op.inputs[0]));
    call.Changes(own.p, op.outputs[0]);
    call.Changes(call.m, op.inputs[2]);
    call.Changes(call.x, room.x);
    call.Changes(call.row_squares, room.row_squares);
    if (op.inputs.size() > 3) {
        call.Changes(own.copy, op.inputs[3]);
        own.copy_type = ElementOf(l.TypeOf(op.inputs[3]));
    }
    return call.Push();
}

}  // namespace

Status Lower(Lowering& l, const Op& op, const program::MuonUpdate& a) {
    for (const weft::UpdateMatrix& matrix : a.matrices) {
        MuonScratch room = MuonScratchOf(l, matrix);
        WEFT_TRY(PushMuon<dense::MuonStep>(l, op, a, matrix, room));
        WEFT_TRY(PushMuon<dense::MuonScale>(l, op, a, matrix, room));
        WEFT_TRY(PushMuonSteps(l, room));
        WEFT_TRY(PushMuon<dense::MuonApply>(l, op, a, matrix, room));
    }
    return {};
}

Status Lower(Lowering& l, const Op& op, const program::AdafactorSums& a) {
    KernelCall<dense::AdafactorSums> call(l);
    call.Operands(call.g, call.p, call.sums);
    call.g_type = ElementOf(l.TypeOf(op.inputs[0]));
    FillRuns(l, a.runs, call);
    call.moments = a.moments;
    call.sizes = a.sizes;
    return call.Push();
}

Status Lower(Lowering& l, const Op&, const program::AdafactorMoments& a) {
    KernelCall<dense::AdafactorMoments> call(l);
    call.Operands(call.sums, call.moments, call.inverse);
    PointAt(a.tensors, call.tensors, call.tensor_count);
    call.numbers = &l.buffers.numbers();
    call.decay_rate = a.decay_rate;
    call.eps_square = a.eps_square;
    return call.Push();
}

Status Lower(Lowering& l, const Op& op, const program::AdafactorSizes& a) {
    KernelCall<dense::AdafactorRowSizes> rows(l);
    KernelCall<dense::AdafactorAddSizes> add(l);
    const auto fill = [&](auto& call) {
        FillRuns(l, a.runs, call);
        call.g_type = ElementOf(l.TypeOf(op.inputs[0]));
    };
    fill(rows);
    fill(add);
    const int64_t count = dense::AdafactorRows(a.runs.data(), add.run_count);
    const OperandRegion sums = l.ScratchBytes("squares", count * kDouble);
    rows.Reads(rows.g, op.inputs[0]);
    rows.Reads(rows.inverse, op.inputs[1]);
    rows.Writes(rows.rows, sums);
    WEFT_TRY(rows.Push());
    add.Reads(add.rows, sums);
    add.Changes(add.squares, op.outputs[0]);
    return add.Push();
}

Status Lower(Lowering& l, const Op& op, const program::AdafactorUpdate& a) {
    KernelCall<dense::AdafactorUpdate> call(l);
    FillUpdate(l, op, 5, a.runs, call);
    call.Reads(call.inverse, op.inputs[1]);
    call.Reads(call.sums, op.inputs[2]);
    call.Reads(call.squares, op.inputs[3]);
    call.moments = a.moments;
    call.eps_scale = a.eps_scale;
    call.clip_threshold = a.clip_threshold;
    call.decay = a.decay;
    call.scale_parameter = a.scale_parameter;
    call.relative_step = a.relative_step;
    return call.Push();
}

}  // namespace weft::backend
