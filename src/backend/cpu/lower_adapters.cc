// Lowers adapters (kernels/adapt.h). An op makes two calls. The second calls of consecutive ops (Q,
// K and V) follow one another, so that one barrier serves all of them.
#include "backend/cpu/products.h"

namespace weft::backend {
namespace {

using kernels::AdapterPair;
using program::Adapt;

// The arguments that all calls of one op share.
struct Adapted {
    int64_t segment_cols = 0;
    int64_t rank = 0;    // the largest of pairs with b; 0: there are none
    bool whole = false;  // some pair has no b
    Bound rows = Bound::kAdapted;
    // For products of experts.
    ValueId ids = program::kNoValue, weights = program::kNoValue;
    int64_t first_expert = 0;
};

void SetRows(Lowering& l, const Adapted& of, auto& call) {
    call.Binds(call.rows, of.rows);
    if (of.ids == program::kNoValue) return;
    kernels::AdaptedSlots& slots = call.slots;
    slots.used = l.Cols(of.ids);
    slots.first_expert = of.first_expert;
    slots.by_token = !l.IsSlots(l.program.ops[static_cast<size_t>(l.op)].inputs[0]);
    call.Reads(slots.ids, of.ids);
    call.Reads(slots.place, PlacesOfPlan(l));
    if (of.weights != program::kNoValue) call.Reads(slots.weights, of.weights);
    call.built.whole = true;  // places are numbered within the step
}

Status PushAdapted(Lowering& l, const Op& op, const std::vector<AdapterPair>& pairs,
                   const Adapted& of) {
    const ValueId x = op.inputs[0], y = op.outputs[0];
    const bool wide = of.segment_cols != 0;
    const int64_t stride =
        (of.rank + kernels::kStripRows - 1) / kernels::kStripRows * kernels::kStripRows;
    KernelCall<&Kernels::adapt_down> down(l);
    KernelCall<&Kernels::adapt_up> up(l);
    down.pairs = up.pairs = pairs;
    down.u_stride = up.u_stride = stride;
    down.x_stride = up.x_stride = l.Cols(x);
    down.segment_cols = up.segment_cols = of.segment_cols;
    if (stride > 0) {
        const bool experts = of.ids != program::kNoValue;
        const int64_t most = kernels::MostAdaptChunks(l.MostRows(experts ? of.ids : y));
        const OperandRegion u = l.ScratchRows(fmt::format("adapter {}", l.pending.size()),
                                              stride * (wide ? kDouble : kFloat),
                                              experts ? most * l.Cols(of.ids) : most);
        up.Owns(up.scratch, up.scratch_bytes, kernels::AdaptUpScratch(stride));
        SetRows(l, of, down);
        down.Reads(down.x, x);
        wide ? down.Writes(down.wide_u, u) : down.Writes(down.u, u);
        wide ? up.Reads(up.wide_u, u) : up.Reads(up.u, u);
    }
    SetRows(l, of, up);
    if (of.whole) up.Reads(up.x, x);
    if (wide) l.IsWide(y) ? up.Changes(up.wide, y) : up.Changes(up.wide, Unrounded(l, y));
    if (!l.IsWide(y)) up.Changes(up.y, y);
    if (IsRoundedLate(l, y)) {  // all rows are rounded
        up.Rows(up.all_rows, y);
        up.built.whole = true;
    }
    up.y_stride = up.cols = l.Cols(y);
    l.pending.push_back(up.Take());
    return stride > 0 ? down.Push() : Status();
}

Status LowerExperts(Lowering& l, const Op& op, const program::ExpertPairs& a, bool sums) {
    if (!l.adapts) return {};
    const size_t first = sums ? 3 : 2;
    Adapted of;
    of.segment_cols = a.segment_cols;
    of.ids = op.inputs[1];
    if (sums) of.weights = op.inputs[2];
    of.first_expert = a.first_expert;
    WEFT_TRY(Plan(l, op, of.ids, a.first_expert, l.ShapeOf(op.inputs[first])[0]));
    std::vector<AdapterPair>& pairs = l.buffers.pairs().emplace_back();
    const auto matrix = [&](ValueId id) {
        const program::Shape& shape = l.ShapeOf(id);
        return kernels::PackedMatrix{l.TypeOf(id), shape[1], shape[2], l.buffers.At(id)};
    };
    const auto bytes = [](const kernels::PackedMatrix& m) {
        return kernels::AdapterBytes(m.dtype, m.rows, m.cols);
    };
    for (size_t i = 0; i < a.adapters.size(); ++i) {
        AdapterPair& pair = pairs.emplace_back();
        pair.adapter = a.adapters[i];
        pair.a = matrix(op.inputs[first + 2 * i]);
        pair.b = matrix(op.inputs[first + 2 * i + 1]);
        pair.a_bytes = bytes(pair.a);
        pair.b_bytes = bytes(pair.b);
        of.rank = std::max(of.rank, pair.a.rows);
    }
    return PushAdapted(l, op, pairs, of);
}

}  // namespace

bool IsRoundedLate(const Lowering& l, ValueId y) {
    return l.adapts && !l.IsWide(y) && std::ranges::any_of(l.program.ops, [&](const Op& op) {
               if (!program::IsOfAdapters(op.kind()) || op.outputs[0] != y) return false;
               const auto* sum = op.attributes.If<program::AdaptExpertSum>();
               if (sum != nullptr) return sum->pairs.segment_cols != 0;
               const auto* adapt = op.attributes.If<Adapt>();
               return adapt != nullptr && adapt->segment_cols != 0;
           });
}

OperandRegion Unrounded(Lowering& l, ValueId y) {
    return l.ScratchRows("adapted", l.Cols(y) * kDouble, l.MostRows(y));
}

Status Lower(Lowering& l, const Op& op, const Adapt& a) {
    if (!l.adapts) return {};
    Adapted of;
    of.segment_cols = a.segment_cols;
    if (a.of_outputs) of.rows = Bound::kAdaptedOutputs;
    std::vector<AdapterPair>& pairs = l.buffers.pairs().emplace_back();
    for (size_t i = 0; i < a.adapters.size(); ++i) {
        const auto part = [&](Adapt::Part which) { return a.PartOf(op.inputs, i, which); };
        const auto column = [&](ValueId id) {
            return id == program::kNoValue ? nullptr
                                           : reinterpret_cast<const float*>(l.buffers.At(id));
        };
        AdapterPair& pair = pairs.emplace_back();
        pair.adapter = a.adapters[i];
        const ValueId down = part(Adapt::kA), up = part(Adapt::kB);
        if (down != program::kNoValue) pair.a = l.buffers.matrix(down);
        if (up != program::kNoValue) {
            pair.b = l.buffers.matrix(up);
            of.rank = std::max(of.rank, pair.a.rows);
        }
        of.whole = of.whole || (down != program::kNoValue && up == program::kNoValue);
        pair.gain = column(part(Adapt::kGain));
        pair.shift = column(part(Adapt::kShift));
    }
    return PushAdapted(l, op, pairs, of);
}

Status Lower(Lowering& l, const Op& op, const program::AdaptExperts& a) {
    return LowerExperts(l, op, a.pairs, false);
}

Status Lower(Lowering& l, const Op& op, const program::AdaptExpertSum& a) {
    return LowerExperts(l, op, a.pairs, true);
}

}  // namespace weft::backend
