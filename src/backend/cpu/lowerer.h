// Base of the lowerings of inference and training.
#pragma once

#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cpu/lower.h"

namespace weft::backend {

// Runs a kernel. kKernel is a pointer to a member of the kernel table, or a function that is the
// same for all tables.
template <auto kKernel, typename Args>
void RunKernel(const kernels::Kernels& kernels, const void* args, int part, int parts) {
    const Args& a = *static_cast<const Args*>(args);
    if constexpr (std::is_member_object_pointer_v<decltype(kKernel)>) {
        (kernels.*kKernel)(a, part, parts);
    } else if constexpr (std::is_invocable_v<decltype(kKernel), const Args&, int, int>) {
        kKernel(a, part, parts);
    } else {
        kKernel(kernels, a, part, parts);
    }
}

class Lowerer {
  protected:
    Lowerer(const program::Program& program, const CompileOptions& options,
            const kernels::Kernels& kernels, Buffers& buffers)
        : program_(program), options_(options), kernels_(kernels), buffers_(buffers) {}

    // Regions of scratch memory: ScratchRows() for a number of rows, ScratchBytes() for a fixed
    // number of bytes.
    OperandRegion ScratchRows(const std::string& name, int64_t row_bytes, int64_t rows) {
        return {buffers_.scratch().Take(name, row_bytes * rows), row_bytes, 0};
    }
    OperandRegion ScratchBytes(const std::string& name, int64_t bytes) {
        return {buffers_.scratch().Take(name, bytes), 0, bytes};
    }
    // Adds scratch memory with a separate part for each thread. Sets `size` to the size of one
    // thread's part, in units of `unit` bytes.
    template <typename Args, typename T>
    void Owns(CallOf<Args>& call, T*& address, int64_t& size, int64_t bytes, int64_t unit = 1) {
        call.Owns(address, {buffers_.scratch().TakeOwn(bytes)});
        size = buffers_.scratch().own_bytes() / unit;
    }

    template <auto kKernel, typename Args>
    void SetKernel(CallOf<Args>& call) {
        call.call.run = RunKernel<kKernel, Args>;
    }
    // Adds a call to the current op. The call may access the op's operands only as the op's kRow
    // (program/ops.h) allows.
    void Add(Call call) {
        call.op = op_;
        const program::Op& op = program_.ops[static_cast<size_t>(op_)];
        for (const OperandRef& slot : call.slots) {
            WEFT_CHECK(slot.region.value == program::kNoValue || RowAllows(op, slot));
        }
        calls_.push_back(std::move(call));
    }
    static bool RowAllows(const program::Op& op, const OperandRef& slot) {
        const program::Operands operands = program::OperandsOf(op).value();
        const bool reads = slot.access == MemoryAccess::kRead;
        for (size_t i = 0; i < op.inputs.size(); ++i) {
            const program::Operand& input = *operands.inputs[i];
            const bool written =
                input.state || input.slots || input.spent || input.access == program::Access::kAdd;
            if (op.inputs[i] == slot.region.value && (reads || written)) return true;
        }
        for (size_t i = 0; i < op.outputs.size(); ++i) {
            if (op.outputs[i] == slot.region.value && slot.access == MemoryAccess::kWrite) {
                return true;
            }
        }
        return false;
    }

    static size_t Index(program::ValueId id) { return static_cast<size_t>(id); }
    DType TypeOf(program::ValueId id) const { return program_.value(id).dtype; }
    const program::Shape& ShapeOf(program::ValueId id) const { return program_.value(id).shape; }
    int64_t Cols(program::ValueId id) const {
        const program::Shape& shape = ShapeOf(id);
        return shape[shape.rank - 1];
    }
    Error Unsupported(std::string_view what) const {
        return MakeError(ErrorCode::kUnsupported, "program op {} ({}): {}", op_,
                         program::OpName(program_.ops[static_cast<size_t>(op_)].kind()), what);
    }

    static constexpr int64_t kFloat = sizeof(float), kDouble = sizeof(double);
    const program::Program& program_;
    const CompileOptions& options_;
    const kernels::Kernels& kernels_;
    Buffers& buffers_;
    std::vector<Call> calls_;
    int32_t op_ = 0;
};

}  // namespace weft::backend
