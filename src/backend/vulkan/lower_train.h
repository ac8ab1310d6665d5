// Helpers for the lowerings of training: row ops, losses and updates.
//
// Values of training lie at Emitter::Address(), row-major without padding, as float32, bfloat16 or
// float16 (src/shaders/element.glsl). Sums are computed in float32, in an order that depends only
// on the sizes of the operands.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <vector>

#include "backend/vulkan/operands.h"

namespace weft::backend::vulkan {

// Errors: kUnsupported (values of an op that are too large for 32-bit element numbers).
Status CheckCounts(const Emitter& e, const program::Op& op);

inline constexpr uint32_t kTrainGroup = kWalkGroup;

// The types of a kernel's operands, packed into one specialization constant with a slot for each
// operand. wide() says whether the kernel can read four elements at a time.
class ElementTypes {
  public:
    explicit ElementTypes(const Emitter& e) : e_(e) {}
    // by_quads: the kernel reads this operand four elements at a time if wide() is true. Errors:
    // kUnsupported (element.glsl lacks the value's type).
    Status Set(int slot, program::ValueId id, bool by_quads = true);
    // Declares that the kernel reads rows of `cols` elements, four elements at a time.
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

// lower_train_rows.cc: sums of the columns of a matrix. SumBlocks adds each column within blocks of
// rows; AddBlocks then adds the blocks.
struct ColumnSums {
    uint64_t dy = 0, x = 0, inverse = 0;  // if `inverse` is not 0, the sums are of dy * x *
                                          // inverse[row]
    uint32_t types = 0, wide = 0;         // types of dy and x
    int64_t rows = 0, cols = 0;
    std::vector<Region> reads{};
};
struct BlockSums {
    Region region;  // float32 [blocks, stride]
    int64_t blocks = 0, stride = 0;
};
Result<BlockSums> SumBlocks(Emitter& e, const ColumnSums& of);
// AddBlocks computes `to` = `from` + the sum over all blocks.
struct SumsEnd {
    uint64_t from = 0, to = 0;  // from: 0 if nothing is added
    uint32_t types = 0;         // types of `from` and `to`
    int64_t cols = 0;
    std::vector<Region> reads{}, writes{};
};
Status AddBlocks(Emitter& e, const BlockSums& sums, SumsEnd end);

// LowerHalves() lowers an op that inference also has, for values with a type of 16 bits.
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
// Lowers an embedding whose table is row-major.
Status LowerPlain(Emitter& e, const program::Op& op, const program::Embedding& a);

}  // namespace weft::backend::vulkan
