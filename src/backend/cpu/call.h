// Calls: the form into which the CPU backend lowers a Program. A call runs one kernel.
//
// A call holds a kernel's arguments by value. For each address among the arguments it also has an
// OperandRef: the offset of the address in the arguments, the kind of access, and the number of
// bytes. Three parts of the code read these OperandRefs and need not know the kernel: placing
// barriers (barriers.cc), splitting a step into parts (step_parts.h), and binding a step
// (BindCall). Only OpCall (lowering.h) stores an address in the arguments, and it also adds the
// OperandRef. So the OperandRefs cover all memory that a kernel touches.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "backend/step.h"
#include "backend/transfer.h"
#include "base/check.h"
#include "kernels/adapt.h"
#include "kernels/kernels.h"
#include "kernels/recurrent.h"
#include "program/program.h"

namespace weft::backend {

// Bytes that a call may touch: `bytes` in the largest step. If `row_bytes` is not 0, each row of
// the step has that many bytes, and the address depends on the call's first row. In step slot i
// (Step::slot) the address is i * slot_stride bytes higher.
struct OperandRegion {
    std::byte* data = nullptr;
    int64_t row_bytes = 0, bytes = 0;
    program::ValueId value = program::kNoValue;  // the value in these bytes; kNoValue: scratch
    int64_t slot_stride = 0;
};

enum class MemoryAccess : uint8_t {
    kRead,
    kWrite,
    kChange,  // reads and writes
    kOwn,     // scratch with a separate part for each thread
};

// One address of a call.
struct OperandRef {
    static constexpr uint16_t kNowhere = UINT16_MAX;
    uint16_t at = kNowhere;  // byte offset in the arguments
    MemoryAccess access = MemoryAccess::kRead;
    OperandRegion region;
};

// The arguments of any kernel.
class CallArgs {
  public:
    template <typename Args>
    void Set(const Args& args) {
        static_assert(std::is_trivially_copyable_v<Args> && sizeof(Args) <= kBytes &&
                      alignof(Args) <= 8);
        std::memcpy(bytes_.data(), &args, sizeof(Args));
    }
    const void* data() const { return bytes_.data(); }
    template <typename T>
    T Load(uint16_t at) const {
        T value;
        std::memcpy(&value, bytes_.data() + at, sizeof(T));
        return value;
    }
    template <typename T>
    void Store(uint16_t at, T value) {
        std::memcpy(bytes_.data() + at, &value, sizeof(T));
    }
    std::span<const std::byte> bytes() const { return bytes_; }

  private:
    static constexpr size_t kBytes = 344;
    alignas(8) std::array<std::byte, kBytes> bytes_{};
};

// kTransfer: any other transfer. kBring: brings experts from the drive (expert_store.h).
enum class CallKind : uint8_t { kKernel, kAllReduce, kTransfer, kBring };

// Data of a step that is bound to a call, besides addresses and row counts: the rows of the step's
// sequences, the same rows with their state slots, the rows with an adapter, the output rows with
// one, the order of the tokens (dense/lookup.h), or this rank's first row.
enum class Bound : uint8_t {
    kNothing,
    kSequences,
    kStates,
    kAdapted,
    kAdaptedOutputs,
    kTokenOrder,
    kFirstOwnRow
};

// A row count (int64_t) among the arguments: the number of rows of dimension `dim`, times `factor`.
struct RowCount {
    uint16_t at = OperandRef::kNowhere;
    int64_t dim = program::kTokens;
    int64_t factor = 1;
};

struct Call {
    void (*run)(const kernels::Kernels& kernels, const void* args, int part, int parts) = nullptr;
    int32_t op = 0;  // index in the Program
    CallKind kind = CallKind::kKernel;
    bool barrier = false;   // wait for the team before this call
    bool whole = false;     // may read any row, or writes all; cannot be split by rows
    bool light = false;     // one row is faster on one thread than on a team
    bool beside = false;    // a transfer that may run on the side thread, beside later calls
    int32_t waits_for = 0;  // 1 + index of the last call that must end before this one; 0: none
    Bound bound = Bound::kNothing;
    uint16_t bound_at = 0;
    RowCount rows;       // a call without rows is skipped
    RowCount more_rows;  // row count of another operand, which may have another row dimension
    // If not null, the call works on a value with one row for each pair of a token and one of its
    // experts. The row count is the number of such pairs with an expert of this rank. The count is
    // stored here when the plan (kernels/experts.h) is made.
    const int32_t* rows_from = nullptr;
    // all_reduce only: the number of following calls that continue with the same rows (residual,
    // norm, quantized activations) while those rows are in the L1 cache. If there is one row,
    // thread 0 runs these calls after the all_reduce, so the team has one barrier after them
    // instead of one after each call.
    int32_t tail = 0;
    int64_t slot = 0;  // step slot that the addresses belong to
    std::vector<OperandRef> slots;
    CallArgs args;

    template <typename Args>
    const Args& As() const {
        return *static_cast<const Args*>(args.data());
    }
    // Whether the call communicates, or reads the drive. Only thread 0 runs such calls.
    bool communicates() const { return kind != CallKind::kKernel; }
    // Whether the call's rows are output rows (R), not rows of the step (T).
    bool per_output() const { return rows.dim == program::kOutputs; }
    // Runs one part. Does nothing for calls that communicate.
    void Run(const kernels::Kernels& kernels, int part, int parts) const {
        if (run == nullptr) return;
        if (rows_from == nullptr) return run(kernels, args.data(), part, parts);
        CallArgs counted = args;
        counted.Store(rows.at, static_cast<int64_t>(*rows_from));
        run(kernels, counted.data(), part, parts);
    }
};

// Data of a step that is bound to the calls.
struct Bindings {
    int64_t tokens = 0, outputs = 0;
    int64_t slot = 0;
    std::span<const kernels::Sequence> sequences{};
    std::span<const kernels::StateSequence> states{};
    // Rows, and output rows, with an adapter, by adapter.
    std::span<const kernels::AdaptedRow> adapted{}, adapted_outputs{};
    const int32_t* token_order = nullptr;
    // This rank's rows of T, if tensor ranks divide the rows.
    int64_t own_begin = 0, own_rows = 0;

    int64_t RowsOf(int64_t dim) const {
        return program::SharingRanks(dim) > 0 ? own_rows : program::BindDim(dim, tokens, outputs);
    }
};
void BindCall(Call& call, const Bindings& to);

// Arguments of kBring: the stack that the next call reads, and the choice of its experts
// (ExpertStore).
struct BringArgs {
    const int32_t* begin = nullptr;
    int64_t ids = program::kNoValue;  // of the first stack of a choice; others: kNoValue
    int64_t weight = program::kNoValue;
    int64_t rows = 0;
};

// Arguments of a transfer: the operands of RunTransfer.
struct TransferArgs {
    HostValue in, out;
};

}  // namespace weft::backend
