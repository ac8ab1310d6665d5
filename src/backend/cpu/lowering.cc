#include "backend/cpu/lowering.h"

namespace weft::backend {
namespace {

// Whether the op's kRow (program/ops.h) allows the access.
bool RowAllows(const Op& op, const OperandRef& slot) {
    const program::Operands operands = program::OperandsOf(op).value();
    const bool reads = slot.access == MemoryAccess::kRead;
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        const program::Operand& input = *operands.inputs[i];
        const bool written =
            input.state || input.slots || input.spent || input.access == program::Access::kAdd;
        if (op.inputs[i] == slot.region.value && (reads || written)) return true;
    }
    const bool is_output = std::ranges::find(op.outputs, slot.region.value) != op.outputs.end();
    return is_output && slot.access == MemoryAccess::kWrite;
}

}  // namespace

std::pair<int64_t, int64_t> Lowering::RowsAndFactor(ValueId id) const {
    const program::Shape& shape = ShapeOf(id);
    if (shape.rank == 1) return {shape[0] < 0 ? shape[0] : 1, 1};
    return {shape[0], shape.rank == 3 ? shape[1] : 1};
}

int64_t Lowering::MostRows(ValueId id) const {
    const auto [dim, factor] = RowsAndFactor(id);
    return program::BindDim(dim, options.max_tokens, options.max_outputs) * factor;
}

OperandRegion Lowering::Of(ValueId id) const {
    const program::Value& value = program.value(id);
    OperandRegion region{buffers.At(id), 0, 0, id, buffers.SlotStride(id)};
    if (value.storage == program::Storage::kState) {
        region.bytes = program::StateBytes(value, Positions());
    } else if (value.storage == program::Storage::kSlots) {
        region.bytes = program::SlotBytes(value) * options.state_slots;
    } else {
        const program::Shape& shape = value.shape;
        const int64_t elements = shape.Elements(options.max_tokens, options.max_outputs);
        region.bytes = RowBytes(value.dtype, elements);
        if (shape[0] < 0) region.row_bytes = RowBytes(value.dtype, shape.Elements(1, 1));
    }
    return region;
}

OperandRegion Lowering::ScratchRows(const std::string& name, int64_t row_bytes, int64_t rows) {
    return {buffers.scratch().Take(name, row_bytes * rows), row_bytes, row_bytes * rows};
}

OperandRegion Lowering::ScratchBytes(const std::string& name, int64_t bytes) {
    return {buffers.scratch().Take(name, bytes), 0, bytes};
}

OperandRegion Lowering::PlanBegin() {
    return ScratchBytes("plan", (plan.count + 1) * kInt);
}

OperandRegion Lowering::PlanCount() {
    OperandRegion region = PlanBegin();
    region.data += plan.count * kInt;
    region.bytes = kInt;
    return region;
}

void Lowering::Add(Call call) {
    const Op& of = program.ops[static_cast<size_t>(call.op)];
    for (const OperandRef& slot : call.slots) {
        WEFT_CHECK(slot.region.value == program::kNoValue || RowAllows(of, slot));
    }
    const auto* const attention = of.attributes.If<program::Attention>();
    const bool alone = of.Is(program::Trait::kRowWise | program::Trait::kSeesEarlier) &&
                       (attention == nullptr || !attention->ahead);
    call.whole = call.whole || !alone;
    calls.push_back(std::move(call));
}

Error Lowering::Unsupported(std::string_view what) const {
    return MakeError(ErrorCode::kUnsupported, "program op {} ({}): {}", op,
                     program::OpName(program.ops[static_cast<size_t>(op)].kind()), what);
}

// ---- Calls --------------------------------------------------------------------------------------

CallBuilder::CallBuilder(Lowering& lowering, const void* args)
    : l_(lowering),
      op_(lowering.program.ops[static_cast<size_t>(lowering.op)]),
      args_(static_cast<const std::byte*>(args)) {
    built.op = l_.op;
    built.rows.dim = l_.RowsAndFactor((op_.outputs.empty() ? op_.inputs : op_.outputs)[0]).first;
}

void CallBuilder::Rows(int64_t& count, ValueId like, int64_t factor) {
    const auto [dim, of_dim] = l_.RowsAndFactor(like);
    built.rows = {At(&count), dim, of_dim * factor};
    if (l_.trains() || !l_.IsSlots(like)) return;
    const OperandRegion counted = l_.PlanCount();
    built.rows_from = reinterpret_cast<const int32_t*>(counted.data);
    built.slots.push_back({OperandRef::kNowhere, MemoryAccess::kRead, counted});
}

void CallBuilder::MoreRows(int64_t& count, ValueId like) {
    const auto [dim, of_dim] = l_.RowsAndFactor(like);
    built.more_rows = {At(&count), dim, of_dim};
}

std::pair<ValueId, MemoryAccess> CallBuilder::OperandAt(size_t index) const {
    const program::Operands operands = program::OperandsOf(op_).value();
    const auto adds = [](const program::Operand* x) { return x->access == program::Access::kAdd; };
    const auto added = std::ranges::count_if(operands.outputs, adds);
    const size_t read = op_.inputs.size() - static_cast<size_t>(added);
    if (index < read) {
        const bool changes = operands.inputs[index]->slots;
        return {op_.inputs[index], changes ? MemoryAccess::kChange : MemoryAccess::kRead};
    }
    const bool changes = adds(operands.outputs[index - read]);
    return {op_.outputs[index - read], changes ? MemoryAccess::kChange : MemoryAccess::kWrite};
}

}  // namespace weft::backend
