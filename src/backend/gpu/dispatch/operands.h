// The operands of a dispatch. Each is named once: its address goes to the kernel's arguments, its
// region to the dispatch, and its type is checked.
//
//     Operands io(e);
//     args.x = io.Reads(x);        // float32 or int32
//     args.y = io.Writes(y, 1);    // any float type; the kernel finds it in bits 2 and 3 of
//     types() return io.Run("shader", {kWalkGroup, io.types(), io.wide()}, args, {RowGroups(rows),
//     1, 1});
//
// Values lie at Emitter::Address(), row-major without padding (src/shaders/element.glsl). Sums of
// kernels are computed in float32, in an order that depends only on the sizes of the operands.
//
// Errors: kUnsupported, from Run(): a type that the kernel does not support; more elements than a
// kernel can index.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <vector>

#include "backend/gpu/dispatch/dispatch.h"

namespace weft::backend::on_gpu {

// Number of elements of a value in this step.
int64_t CountOf(const Emitter& e, program::ValueId id);
// Number of rows of a value in this step: the product of all dimensions but the last.
int64_t FlatRowsOf(const Emitter& e, program::ValueId id);

// The number that stands for an element type in shaders (element.glsl). Errors: kUnsupported (the
// shaders lack the type).
Result<uint32_t> ElementType(DType dtype);

// Errors: kUnsupported (the value is neither float32 nor int32 in device memory).
Status CheckWide(const Emitter& e, program::ValueId id);

// Whether an activation, gradient or view of an op has a type of 16 bits.
bool HasHalves(const Emitter& e, const program::Op& op);

// kWalkGroup: workgroup size of kernels that walk over elements. kMostWalkGroups: maximum number of
// their workgroups if an invocation loops over many elements. kMostRowGroups: the same for kernels
// in which a workgroup computes one row at a time and loops over rows.
inline constexpr uint32_t kWalkGroup = 256;
inline constexpr int64_t kMostWalkGroups = 16384, kMostRowGroups = 65535;
// Number of workgroups for `count` elements if an invocation walks over single elements.
int64_t WalkGroups(int64_t count);
// Number of workgroups for `count` elements if each invocation computes four elements at a time,
// and along the columns of a row. RowGroups: number of workgroups for rows.
int64_t QuadGroups(int64_t count);
int64_t QuadPieces(int64_t cols);
int64_t RowGroups(int64_t rows);

class Operands {
  public:
    // kMany: the kernel has 64-bit element numbers.
    enum class Count { kUpTo32Bits, kMany };
    explicit Operands(Emitter& e, Count count = Count::kUpTo32Bits) : e_(e), count_(count) {}

    // Each function returns the operand's address, or 0 for kNoValue. Adds: the kernel reads and
    // writes the operand. by: kQuads: if wide() is true, it accesses four elements at a time.
    // Without a slot, the kernel supports only float32 or int32.
    enum class By { kQuads, kElements };
    uint64_t Reads(program::ValueId id, By by = By::kElements);
    uint64_t Writes(program::ValueId id, By by = By::kElements);
    uint64_t Adds(program::ValueId id, By by = By::kElements);
    // With a slot, the kernel supports float32, bfloat16 and float16.
    uint64_t Reads(program::ValueId id, int slot, By by = By::kQuads);
    uint64_t Writes(program::ValueId id, int slot, By by = By::kQuads);
    uint64_t Adds(program::ValueId id, int slot, By by = By::kQuads);
    // Memory that is not a value, such as scratch memory.
    uint64_t Reads(const Region& region);
    uint64_t Writes(const Region& region);

    // Declares that the kernel reads rows of `cols` elements, four elements at a time.
    void SetRows(int64_t cols) { wide_ = wide_ && cols % 4 == 0; }
    // The types of the operands with slots, two bits each.
    uint32_t types() const { return types_; }
    // Whether the kernel can read four elements at a time.
    bool wide() const { return wide_; }

    // Emits a dispatch. May be called several times.
    template <typename Args>
    Status Run(std::string_view shader, std::initializer_list<SpecConstant> constants,
               const Args& args, std::array<int64_t, 3> groups, uint32_t subgroup = 0,
               Parts parts = Parts::kOne, int32_t sum = -1) const {
        WEFT_TRY(status_);
        return e_.Run(shader, constants, args, groups, reads_, writes_, subgroup, parts, sum);
    }

  private:
    static constexpr int kNoSlot = -1;
    uint64_t Note(program::ValueId id, int slot, By by, std::vector<Region>& regions);
    Result<uint32_t> TypeOf(program::ValueId id, int slot) const;

    Emitter& e_;
    const Count count_;
    std::vector<Region> reads_, writes_;
    uint32_t types_ = 0;
    bool wide_ = true;
    Status status_;
};

}  // namespace weft::backend::on_gpu
