// Kernel calls: what the CPU makes of a Program.
//
// A call holds a kernel's arguments by value, and beside them an OperandRef for each address among
// them: where it stands, what the call does with the bytes there, and how many they are. Barriers
// (barriers.cc), halves of a step (two_batch_overlap.h) and the binding of a step walk the slots;
// none of them knows a kernel. An address gets into the arguments by CallOf alone, which makes its
// slot: so a kernel reads and writes nothing that they do not know of.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <type_traits>
#include <vector>

#include "backend/step.h"
#include "base/check.h"
#include "kernels/adapt.h"
#include "kernels/kernels.h"
#include "kernels/recurrent.h"
#include "program/program.h"

namespace weft::backend {

// Bytes that a call touches: `row_bytes` for each row of the step (T or R, whichever the call's
// are), or `bytes` in all. Where they are by rows, the address moves with the first row. In slot i
// the address is i * slot_stride farther on.
struct OperandRegion {
    std::byte* data = nullptr;
    int64_t row_bytes = 0, bytes = 0;
    program::ValueId value = program::kNoValue;  // whose bytes they are; none: scratch
    int64_t slot_stride = 0;
    int64_t Bytes(int64_t rows) const { return row_bytes != 0 ? rows * row_bytes : bytes; }
};

enum class MemoryAccess : uint8_t {
    kRead,
    kWrite,
    kChange,  // reads and writes
    kOwn,     // scratch, of which each thread has its own part
};

// One address of a call.
struct OperandRef {
    static constexpr uint16_t kNowhere = UINT16_MAX;
    uint16_t at = kNowhere;  // bytes from the beginning of the arguments
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
    static constexpr size_t kBytes = 336;
    alignas(8) std::array<std::byte, kBytes> bytes_{};
};

enum class CallKind : uint8_t { kKernel, kAllReduce, kTransfer };  // (any other transfer)

// A step binds addresses, numbers of rows, and one of these: the rows of its sequences, the same
// with their state slots, the rows with an adapter, the order of the tokens (dense/lookup.h), or
// the first of the rank's own rows.
enum class Bound : uint8_t { kNothing, kSequences, kStates, kAdapted, kTokenOrder, kFirstOwnRow };

// A number of rows, int64_t among the arguments: `factor` for each row of dimension `dim`.
struct RowCount {
    uint16_t at = OperandRef::kNowhere;
    int64_t dim = program::kTokens;
    int64_t factor = 1;
};

struct Call {
    void (*run)(const kernels::Kernels& kernels, const void* args, int part, int parts) = nullptr;
    int32_t op = 0;  // of the Program
    CallKind kind = CallKind::kKernel;
    bool barrier = false;   // wait for the team before it
    bool whole = false;     // reads any rows, or writes all: can not be cut by rows
    bool light = false;     // so little for one row that one thread makes it sooner than a team
    bool beside = false;    // a transfer that may run on a thread of its own, beside later calls
    int32_t waits_for = 0;  // 1 + the last of those that must have ended before it; 0: none
    Bound bound = Bound::kNothing;
    uint16_t bound_at = 0;
    RowCount rows;       // where there are none, the call is left out
    RowCount more_rows;  // of an operand that has rows of another dimension
    // Not null: a call over a value with a row for each token and expert. It has as many rows as
    // experts of this rank were chosen, which is known when the plan (kernels/experts.h) is made.
    const int32_t* rows_from = nullptr;
    // Of an all_reduce: the calls after it that finish the same rows (residual, norm, prepared
    // form) while they are in the first-level cache. Thread 0 makes them with it where there is
    // one row, and the team meets once after them in place of once for each.
    int32_t tail = 0;
    int64_t slot = 0;  // of the step, that its addresses are of
    std::vector<OperandRef> slots;
    CallArgs args;

    template <typename Args>
    const Args& As() const {
        return *static_cast<const Args*>(args.data());
    }
    // True for calls that communicate: only thread 0 makes them.
    bool communicates() const { return kind != CallKind::kKernel; }
    // Its rows are R, not T.
    bool per_output() const { return rows.dim == program::kOutputs; }
    // One part of it; nothing of those that communicate.
    void Run(const kernels::Kernels& kernels, int part, int parts) const {
        if (run == nullptr) return;
        if (rows_from == nullptr) return run(kernels, args.data(), part, parts);
        CallArgs counted = args;
        counted.Store(rows.at, static_cast<int64_t>(*rows_from));
        run(kernels, counted.data(), part, parts);
    }
};

// What a step binds.
struct Bindings {
    int64_t tokens = 0, outputs = 0;
    int64_t slot = 0;
    std::span<const kernels::Sequence> sequences{};
    std::span<const kernels::StateSequence> states{};
    std::span<const kernels::AdaptedRow> adapted{};  // rows with an adapter, by adapter
    const int32_t* token_order = nullptr;
    // This rank's rows of T where tensor ranks share them out.
    int64_t own_begin = 0, own_rows = 0;

    int64_t RowsOf(int64_t dim) const {
        return program::SharingRanks(dim) > 0 ? own_rows : program::BindDim(dim, tokens, outputs);
    }
};
void BindCall(Call& call, const Bindings& to);

// A call in the making.
template <typename Args>
class CallOf {
  public:
    Args args{};  // sizes and constants; addresses by the functions below
    Call call;

    template <typename T>
    void Reads(T*& address, const OperandRegion& region, int64_t first_byte = 0) {
        Add(address, MemoryAccess::kRead, region, first_byte);
    }
    template <typename T>
    void Writes(T*& address, const OperandRegion& region, int64_t first_byte = 0) {
        Add(address, MemoryAccess::kWrite, region, first_byte);
    }
    template <typename T>
    void Changes(T*& address, const OperandRegion& region) {
        Add(address, MemoryAccess::kChange, region, 0);
    }
    template <typename T>
    void Owns(T*& address, const OperandRegion& region) {
        Add(address, MemoryAccess::kOwn, region, 0);
    }
    // `region` holds how many rows there are.
    void RowsFrom(const OperandRegion& region) {
        call.rows_from = reinterpret_cast<const int32_t*>(region.data);
        call.slots.push_back({OperandRef::kNowhere, MemoryAccess::kRead, region});
    }
    // rows * factor goes there. dim: none for calls whose rows Push() says.
    void Rows(int64_t& count, int64_t factor = 1) {
        call.rows.at = At(&count);
        call.rows.factor = factor;
    }
    void RowsOf(int64_t& count, int64_t dim, int64_t factor = 1) {
        call.rows = {At(&count), dim, factor};
    }
    void MoreRowsOf(int64_t& count, int64_t dim, int64_t factor = 1) {
        call.more_rows = {At(&count), dim, factor};
    }
    template <typename T>
    void Binds(T& address, Bound what) {
        call.bound = what;
        call.bound_at = At(&address);
    }
    Call Take() {
#if __has_builtin(__builtin_clear_padding)
        __builtin_clear_padding(&args);  // no old address stays between members
#endif
        call.args.Set(args);
        return std::move(call);
    }

  private:
    template <typename T>
    void Add(T*& address, MemoryAccess access, const OperandRegion& region, int64_t first_byte) {
        WEFT_CHECK(region.data != nullptr);
        address = reinterpret_cast<T*>(region.data + first_byte);
        call.slots.push_back({At(&address), access, region});
    }
    uint16_t At(const void* member) const {
        const auto* begin = reinterpret_cast<const std::byte*>(&args);
        return static_cast<uint16_t>(static_cast<const std::byte*>(member) - begin);
    }
};

// Of a transfer: the operands that RunTransfer (transfer.h) is given.
struct TransferArgs {
    std::byte* in = nullptr;   // null: the op has none
    std::byte* out = nullptr;  // the same
    DType in_dtype = DType::kF32, out_dtype = DType::kF32;
    int64_t in_cols = 0, out_cols = 0, rows = 0;
    int64_t out_rows = -1;  // where they differ; else -1
};

}  // namespace weft::backend
