// Helpers for the lowerings of training: row ops, losses and updates.
//
// A training value is row-major without padding at Emitter::Address(), as float32, bfloat16 or
// float16 (src/shaders/element.glsl). Sums are float32 in an order that depends only on sizes.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

// Elements of a value in this step.
int64_t CountOf(const Emitter& e, program::ValueId id);
// Rows of a value in this step: all dimensions but the last.
int64_t FlatRowsOf(const Emitter& e, program::ValueId id);

// Whether an activation, gradient or view of an op has 16 bits, which no inference kernel takes.
bool HasHalves(const Emitter& e, const program::Op& op);
// Errors: kUnsupported (values of an op that are too large for 32-bit element numbers).
Status CheckCounts(const Emitter& e, const program::Op& op);

// Workgroup sizes and limits. kMostTrainGroups: for kernels that loop over many elements.
// kMostRowGroups: for kernels with a workgroup per row, which loop over further rows.
inline constexpr uint32_t kTrainGroup = 256;
inline constexpr int64_t kMostTrainGroups = 16384, kMostRowGroups = 65535;
// Workgroups for `count` elements, four per invocation.
int64_t QuadGroups(int64_t count);
int64_t RowGroups(int64_t rows);

// The types of a kernel's operands, packed by slot into its specialization constant, and whether
// all operands can be read four elements at a time.
class ElementTypes {
  public:
    explicit ElementTypes(const Emitter& e) : e_(e) {}
    // by_quads: with `wide`, the kernel reads this operand four elements at a time. Errors:
    // kUnsupported (element.glsl lacks the value's type).
    Status Set(int slot, program::ValueId id, bool by_quads = true);
    // Declares rows of `cols` elements, each of which is read four elements at a time.
    void SetRows(int64_t cols) { wide_ = wide_ && cols % 4 == 0; }
    uint32_t packed() const { return packed_; }
    uint32_t wide() const { return wide_ ? 1 : 0; }

  private:
    const Emitter& e_;
    uint32_t packed_ = 0;
    bool wide_ = true;
};
// Errors: kUnsupported.
Result<uint32_t> ElementTypeOf(const Emitter& e, program::ValueId id);
// Errors: kUnsupported (another type than float32).
Status CheckFloat32(const Emitter& e, program::ValueId id);

// Sums each column over rows, in blocks of rows: lower_train_rows.cc.
struct ColumnSums {
    uint64_t dy = 0, x = 0, inverse = 0;  // inverse: not 0: sums of dy * x * inverse[row]
    uint32_t types = 0, wide = 0;         // of dy, x
    int64_t rows = 0, cols = 0;
    std::vector<Region> reads{};
};
struct BlockSums {
    Region region;  // float32 [blocks, stride]
    int64_t blocks = 0, stride = 0;
};
Result<BlockSums> SumBlocks(Emitter& e, const ColumnSums& of);
// to = from + the sums over all blocks.
struct SumsEnd {
    uint64_t from = 0, to = 0;  // from: 0 if nothing is added
    uint32_t types = 0;         // of from, to
    int64_t cols = 0;
    std::vector<Region> reads{}, writes{};
};
Status AddBlocks(Emitter& e, const BlockSums& sums, SumsEnd end);

// 16-bit forms of ops that inference also has.
#define WEFT_LOWER_HALVES(name) \
    Status LowerHalves(Emitter& e, const program::Op& op, const program::name& a);
WEFT_LOWER_HALVES(Add)
WEFT_LOWER_HALVES(AddBias)
WEFT_LOWER_HALVES(Scale)
WEFT_LOWER_HALVES(ScaleByPosition)
WEFT_LOWER_HALVES(SoftCap)
WEFT_LOWER_HALVES(GateRows)
WEFT_LOWER_HALVES(Glu)
WEFT_LOWER_HALVES(RmsNorm)
WEFT_LOWER_HALVES(Rope)
WEFT_LOWER_HALVES(SelectRows)
#undef WEFT_LOWER_HALVES
// Embedding from a row-major table.
Status LowerPlain(Emitter& e, const program::Op& op, const program::Embedding& a);

}  // namespace weft::backend::vulkan
