// Base of the lowerings of inference: stores the addresses and sizes of an op's values in the
// arguments of calls.
#pragma once

#include <utility>

#include "backend/cpu/lowerer.h"

namespace weft::backend {

class InferenceCalls : protected Lowerer {
  protected:
    using Lowerer::Lowerer;
    using Op = program::Op;
    using ValueId = program::ValueId;

    // rows_like: a value whose first dimension is the call's rows.
    template <auto kKernel, typename Args>
    Status Push(CallOf<Args>& call, ValueId rows_like) {
        call.call.run = RunKernel<kKernel, Args>;
        return Push(call.Take(), rows_like);
    }
    Status Push(Call call, ValueId rows_like) {
        call.rows.dim = ShapeOf(rows_like)[0];
        const Op& op = program_.ops[static_cast<size_t>(op_)];
        const bool alone = op.Is(program::Trait::kRowWise | program::Trait::kSeesEarlier);
        call.whole = call.whole || !alone;
        Add(std::move(call));
        return {};
    }

    // The bytes of an activation, an input, a cache or a recurrent state.
    OperandRegion Of(ValueId id) const {
        const program::Value& value = program_.value(id);
        if (value.storage == program::Storage::kState) {
            const int64_t positions = options_.kv_pages * options_.page_tokens;
            return {buffers_.At(id), 0, program::StateBytes(value, positions), id};
        }
        if (value.storage == program::Storage::kSlots) {
            return {buffers_.At(id), 0, program::SlotBytes(value) * options_.state_slots, id};
        }
        return {buffers_.At(id), RowBytes(value.dtype, value.shape.Elements(1, 1)), 0, id};
    }
    // In() adds a float32 operand, from column `begin` on. Out() adds a result.
    template <typename Args>
    void In(CallOf<Args>& call, kernels::dense::ConstMatrix& x, ValueId id, int64_t begin = 0) {
        call.Reads(x.data, Of(id), begin * kFloat);
        x.stride = Cols(id);
    }
    template <typename Args>
    void Out(CallOf<Args>& call, kernels::dense::Matrix& y, ValueId id, int64_t begin = 0) {
        call.Writes(y.data, Of(id), begin * kFloat);
        y.stride = Cols(id);
    }
    // Address of a weight vector, which never changes.
    const float* Vector(ValueId id) const {
        WEFT_CHECK(program_.value(id).storage == program::Storage::kWeight);
        return reinterpret_cast<const float*>(buffers_.At(id));
    }
    bool IsWide(ValueId id) const { return TypeOf(id) == DType::kF64; }
    template <typename Args>
    void OwnsFloats(CallOf<Args>& call, int64_t floats) {
        Owns(call, call.args.scratch, call.args.scratch_floats, floats * kFloat, kFloat);
    }
    template <typename Args>
    void ChangesSlots(CallOf<Args>& call, ValueId state) {
        call.args.state.slot_floats = program::SlotBytes(program_.value(state)) / kFloat;
        call.Changes(call.args.state.data, Of(state));
    }
};

}  // namespace weft::backend
