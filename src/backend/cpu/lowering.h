// Lowering of ops: the state of a lowering, and the builder of calls (call.h).
//
// Each op has one Lower(), in the file of its kind: lower_norms.cc, lower_products.cc, ... It
// serves inference and training. In inference, weights are packed and never change, and activations
// are float32. In training, all values are row-major, in the types of the Program.
#pragma once

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "backend/cpu/buffers.h"
#include "backend/cpu/call.h"
#include "backend/executable.h"
#include "kernels/recurrent.h"
#include "kernels/sparse.h"

namespace weft::backend {

using kernels::Kernels;
using program::Op;
using program::ValueId;

inline constexpr int64_t kFloat = sizeof(float), kDouble = sizeof(double), kInt = sizeof(int32_t);

// The element type of a value in kernels: kF32 for all types except bfloat16 and float16.
constexpr dense::Element ElementOf(DType dtype) {
    if (dtype == DType::kBF16) return dense::Element::kBf16;
    return dtype == DType::kF16 ? dense::Element::kF16 : dense::Element::kF32;
}

// A row-major matrix: a value, or scratch memory.
struct RowMajor {
    DType dtype = DType::kF32;
    int64_t cols = 0;
    OperandRegion region{};
};

// A lowering of a Program to one list of calls.
struct Lowering {
    Buffers& buffers;
    const program::ChunkedProgram& chunked = buffers.chunked();
    const program::Program& program = chunked.program;
    const CompileOptions& options = buffers.options();
    const Kernels& kernels = buffers.kernels();
    bool adapts = false;  // the list contains the calls of adapters' ops

    int32_t op = 0;  // index of the current op
    std::vector<Call> calls{};
    std::vector<Call> pending{};  // second calls of adapters' ops, added after the last of these

    // Prepared activations (lower_products.cc).
    struct Activations {
        ValueId value = program::kNoValue;
        kernels::ActivationFormat format{};
        int64_t heads = 1;
        bool operator==(const Activations&) const = default;
    };
    // Scratch memory that calls filled and that later ops may read. It is valid up to the next part
    // of the Program or kept value. A run may begin at that point, with other inputs than earlier
    // ops had (Executable::Write).
    struct Prepared {
        // There are two buffers, so that preparing activations does not wait for readers of the
        // previous ones.
        std::array<Activations, 2> activations{};
        std::vector<std::byte*> rope_tables{};
        ValueId planned_ids = program::kNoValue;  // of the current plan of experts
        ValueId brought_ids = program::kNoValue;  // of the experts brought from the drive
    } prepared{};
    size_t last_activation = 0;
    kernels::PlanExpertsArgs plan{};  // the current plan of experts
    std::vector<std::tuple<std::vector<float>, float, int64_t>> angles{};  // of tables, by number
    std::map<ValueId, kernels::Range> used_columns{};  // of padded values; else 0, 0

    bool trains() const { return !buffers.packs(); }
    dense::Compute compute() const {
        return options.compute == DType::kBF16 ? dense::Compute::kBf16 : dense::Compute::kF32;
    }

    DType TypeOf(ValueId id) const { return program.value(id).dtype; }
    const program::Shape& ShapeOf(ValueId id) const { return program.value(id).shape; }
    int64_t Cols(ValueId id) const { return ShapeOf(id)[ShapeOf(id).rank - 1]; }
    bool IsWide(ValueId id) const { return TypeOf(id) == DType::kF64; }
    // Whether the value has a row for each token and expert.
    bool IsSlots(ValueId id) const { return ShapeOf(id).rank == 3; }
    // Dimension and factor of a value's rows. A vector without a row dimension of the step is one
    // row; [T, K, n] has K rows per T.
    std::pair<int64_t, int64_t> RowsAndFactor(ValueId id) const;
    int64_t MostRows(ValueId id) const;
    // Maximum rows of a sequence in a training step.
    int64_t LongestSequence() const {
        const int64_t most = options.max_tokens;
        return options.longest > 0 ? std::min(options.longest, most) : most;
    }
    // Maximum number of positions of a sequence: a sequence may own all pages.
    int64_t Positions() const { return options.kv_pages * options.page_tokens; }
    // Whether the value is a weight of inference.
    bool IsConstant(ValueId id) const {
        return !trains() && program.value(id).storage == program::Storage::kWeight;
    }

    OperandRegion Of(ValueId id) const;
    RowMajor RowMajorOf(ValueId id) const { return {TypeOf(id), Cols(id), Of(id)}; }
    // Regions of scratch memory: for a number of rows of the step, or for a number of bytes.
    OperandRegion ScratchRows(const std::string& name, int64_t row_bytes, int64_t rows);
    OperandRegion ScratchBytes(const std::string& name, int64_t bytes);
    // The regions of the current plan of experts (kernels/experts.h). PlanCount: number of rows
    // whose expert this rank has.
    OperandRegion PlanBegin();
    OperandRegion PlanCount();

    // Adds a call. It may access its op's operands only as the op's kRow (program/ops.h) allows.
    void Add(Call call);
    Error Unsupported(std::string_view what) const;
};

// Lowers one op: adds its calls to `l`. Errors: kUnsupported. An op without a Lower() does not
// link. LowerTransfer() lowers all transfers.
#define WEFT_LOWER(name) Status Lower(Lowering& l, const Op& op, const program::name& a);
WEFT_OPS(WEFT_LOWER)
#undef WEFT_LOWER
Status LowerTransfer(Lowering& l, const Op& op);

// ---- Kernels ------------------------------------------------------------------------------------

// A kernel is a member of a kernel table, or a function that is the same for all tables. The
// kernel's parameters are (args, part, parts), or (table, args, part, parts) for a function that
// needs the table; or (args, scratch, part, parts) if its arguments hold the scratch memory of all
// parts.
template <typename Args>
struct WithScratch : Args {
    std::byte* scratch = nullptr;
    int64_t scratch_bytes = 0;
};

template <typename Args>
Args ArgsOf(void (*)(const Args&, int, int));
template <typename Args>
Args ArgsOf(void (*)(const Kernels&, const Args&, int, int));
template <typename Table, typename Args>
Args ArgsOf(void (*Table::*)(const Args&, int, int));
template <typename Table, typename Args>
WithScratch<Args> ArgsOf(void (*Table::*)(const Args&, std::span<std::byte>, int, int));

// The kernel, for the table's instruction set.
template <typename Kernel, typename Table>
Kernel KernelOf(const Kernels& kernels, Kernel Table::*member) {
    return kernels.*member;
}
template <typename Function>
Function* KernelOf(const Kernels&, Function* function) {
    return function;
}

template <auto kKernel, typename Args>
void RunKernel(const Kernels& kernels, const void* args, int part, int parts) {
    const Args& a = *static_cast<const Args*>(args);
    const auto run = KernelOf(kernels, kKernel);
    if constexpr (std::is_invocable_v<decltype(run), const Args&, int, int>) {
        run(a, part, parts);
    } else if constexpr (std::is_invocable_v<decltype(run), const Kernels&, const Args&, int,
                                             int>) {
        run(kernels, a, part, parts);
    } else {
        std::byte* const own = a.scratch + part * a.scratch_bytes;
        run(a, {own, static_cast<size_t>(a.scratch_bytes)}, part, parts);
    }
}

// ---- Calls --------------------------------------------------------------------------------------

// Builds a call of the current op. KernelCall's functions set operands among the arguments of the
// call: pointers, matrices (dense/element.h), KV caches, slots of recurrent state, and operands of
// transfers.
class CallBuilder {
  public:
    CallBuilder(const CallBuilder&) = delete;
    CallBuilder& operator=(const CallBuilder&) = delete;

    Call built;  // the call, except for its arguments

    // Sets the op's operands, all or the first of them, in the order of the op's kRow. An operand
    // to which the op adds is an output.
    template <typename... Operand>
    void Operands(Operand&... operands) {
        size_t index = 0;
        const auto access = [&](auto& operand) {
            const auto [id, how] = OperandAt(index++);
            Access(operand, how, id);
        };
        (access(operands), ...);
    }
    // from: a value, and then `first` is the element at which the operand begins; or a region or a
    // row-major matrix, and then `first` is the byte.
    template <typename Operand, typename From>
    void Reads(Operand& operand, const From& from, int64_t first = 0) {
        Access(operand, MemoryAccess::kRead, from, first);
    }
    template <typename Operand, typename From>
    void Writes(Operand& operand, const From& from, int64_t first = 0) {
        Access(operand, MemoryAccess::kWrite, from, first);
    }
    template <typename Operand, typename From>
    void Changes(Operand& operand, const From& from, int64_t first = 0) {
        Access(operand, MemoryAccess::kChange, from, first);
    }
    // Scratch memory of `count` elements with a separate part for each thread. Sets `size` to the
    // elements of one part.
    template <typename T>
    void Owns(T*& address, int64_t& size, int64_t count) {
        constexpr auto kUnit = static_cast<int64_t>(sizeof(T));
        Scratch& scratch = l_.buffers.scratch();
        Access(address, MemoryAccess::kOwn, OperandRegion{scratch.TakeOwn(count * kUnit)});
        size = scratch.own_bytes() / kUnit;
    }
    // BindCall stores the number of rows of `like` in `count`, times `factor`. In inference, rows
    // of [T, K, n] count only if this rank has their expert.
    void Rows(int64_t& count, ValueId like, int64_t factor = 1);
    // The row count of an operand whose row dimension differs.
    void MoreRows(int64_t& count, ValueId like);
    template <typename T>
    void Binds(T& address, Bound what) {
        built.bound = what;
        built.bound_at = At(&address);
    }

  protected:
    CallBuilder(Lowering& lowering, const void* args);
    Lowering& l_;
    const Op& op_;

  private:
    std::pair<ValueId, MemoryAccess> OperandAt(size_t index) const;
    template <typename T>
    void Access(T*& address, MemoryAccess access, const OperandRegion& region, int64_t first = 0) {
        WEFT_CHECK(region.data != nullptr);
        address = reinterpret_cast<T*>(region.data + first);
        built.slots.push_back({At(&address), access, region});
    }
    template <typename T>
    void Access(T*& address, MemoryAccess access, ValueId id, int64_t first = 0) {
        if (l_.IsConstant(id)) {  // a vector of float32
            address = reinterpret_cast<T*>(l_.buffers.At(id) + first * kFloat);
        } else {
            Access(address, access, l_.Of(id), RowBytes(l_.TypeOf(id), first));
        }
    }
    template <typename Matrix>
    void Access(Matrix& x, MemoryAccess access, const RowMajor& from, int64_t first = 0) {
        Access(x.data, access, from.region, first);
        x.stride = from.cols;
        x.type = ElementOf(from.dtype);
    }
    template <typename Matrix>
    void Access(Matrix& x, MemoryAccess access, ValueId id, int64_t first = 0) {
        Access(x, access, l_.RowMajorOf(id), RowBytes(l_.TypeOf(id), first));
    }
    void Access(kernels::KvCache& cache, MemoryAccess access, ValueId id, int64_t = 0) {
        cache = l_.buffers.cache(id);
        Access(cache.data, access, id);
    }
    void Access(kernels::StateSlots& slots, MemoryAccess access, ValueId id, int64_t = 0) {
        slots.slot_floats = program::SlotBytes(l_.program.value(id)) / kFloat;
        Access(slots.data, access, id);
    }
    void Access(HostValue& value, MemoryAccess access, ValueId id, int64_t = 0) {
        value.dtype = l_.TypeOf(id);
        value.cols = l_.Cols(id);
        Access(value.data, access, id);
    }
    uint16_t At(const void* member) const {
        return static_cast<uint16_t>(static_cast<const std::byte*>(member) - args_);
    }

    const std::byte* args_;
};

// The arguments of a call. The caller sets sizes and constants, CallBuilder's functions operands.
template <typename Args>
class OpCall : public Args, public CallBuilder {
  public:
    explicit OpCall(Lowering& lowering)
        : Args{}, CallBuilder(lowering, static_cast<const Args*>(this)) {}

    void RowsAndCols(ValueId like) {
        Rows(this->rows, like);
        this->cols = l_.Cols(like);
    }
    Call Take() {
        Args args = *this;
#if __has_builtin(__builtin_clear_padding)
        __builtin_clear_padding(&args);  // the padding between members contains no old address
#endif
        built.args.Set(args);
        return std::move(built);
    }
    Status Push() {
        l_.Add(Take());
        return {};
    }
    // Push() of a call with the rows and columns of `like`, or of the op's first output.
    Status PushRows(ValueId like) {
        RowsAndCols(like);
        return Push();
    }
    Status PushRows() {
        return PushRows(op_.outputs[0]);
    }
};

// The arguments of a call of a kernel.
template <auto kKernel, typename Args = decltype(ArgsOf(kKernel))>
class KernelCall : public OpCall<Args> {
  public:
    explicit KernelCall(Lowering& lowering) : OpCall<Args>(lowering) {
        this->built.run = RunKernel<kKernel, Args>;
    }
};

}  // namespace weft::backend
