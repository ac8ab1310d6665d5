// Parts of lowerings that other files, such as those of fused ops (fused.cc), also use.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/gpu/dispatch/dispatch.h"
#include "backend/gpu/dispatch/operands.h"

namespace weft::backend::on_gpu {

// Packs two numbers below 2^16.
inline uint32_t Both(int64_t low, int64_t high) {
    return static_cast<uint32_t>(low) | static_cast<uint32_t>(high) << 16;
}

// norms.cc: number of invocations in a norm's workgroup. This number determines the order in
// which the norm's sum is added.
uint32_t NormGroup(int64_t cols);

// norms.cc: sums of the columns of a matrix. SumBlocks adds each column within blocks of
// rows; AddBlocks then adds the blocks. io: the operands, without the sums; dy has slot 0, x
// slot 1.
struct ColumnSums {
    int64_t rows = 0, cols = 0;
    // If `inverse` is not 0, the sums are of dy * (x - mean) * inverse. The rows have a number of
    // both for each `group` columns; means: 0 if they are zeros.
    uint64_t dy = 0, x = 0, inverse = 0, means = 0;
    int64_t group = 0;
};
struct BlockSums {
    Region region;  // float32 [blocks, stride]
    int64_t blocks = 0, stride = 0;
};
Result<BlockSums> SumBlocks(Emitter& e, const ColumnSums& of, Operands& io);
// Computes `to` (slot 1) = `from` (slot 0; 0: nothing) + the sum over all blocks.
Status AddBlocks(const BlockSums& sums, Operands& io, uint64_t from, uint64_t to, int64_t cols);

// copies.cc: y[r][c] = x[from(r)][c + shift], or zero if there is no such element. Each row has
// `heads` heads. from(r): kSame: r + first_row; kListed: list[r] - first_row; kFound: the index of
// r in the list, which ascends. keeps: an element of y without such an element keeps its value.
enum class CopyMode : uint32_t { kSame, kListed, kFound };
struct RowsCopied {
    CopyMode mode = CopyMode::kSame;
    program::ValueId list = program::kNoValue;
    int64_t shift = 0, first_row = 0, heads = 1;
    bool keeps = false;
};
Status CopyRows(Emitter& e, program::ValueId x, program::ValueId y, const RowsCopied& how);

// rope.cc: tables of the angles of RoPE ops, created once for all ops with the same angles.
struct AngleTables {
    Region fine, coarse;
};
Result<AngleTables> PlaceAngles(Emitter& e, const program::Rope& a);

// mat_mul.cc, experts.cc: emit one kernel that computes a GluRun (fuse.h): the
// products gate and up, and the op `glu`. The step may have at most as many rows as the matvec
// kernels support. gate: null if another kernel has already computed the product gate.
Status LowerGatedMatMul(Emitter& e, const program::Op* gate, const program::Op& up,
                        const program::Op& glu);
Status LowerGatedExperts(Emitter& e, const program::Op* gate, const program::Op& up,
                         const program::Op& glu);

// mat_mul.cc: decodes rows [begin, begin + count) of a weight to contiguous rows of float32,
// bfloat16 or float16.
Status EmitDecode(Emitter& e, const WeightPlace& weight, int64_t begin, int64_t count, DType to,
                  const Region& out);

// experts.cc: the slots of a routing (gemm.h), ordered by expert and divided into
// blocks of at most `tile` slots of one expert (expert_order.comp). Slots of experts that this rank
// does not hold come last. Made once for all ops that share a routing. blocks: an upper bound.
struct SlotOrder {
    Region plan;
    int64_t tile = 0, blocks = 0;
};
Result<SlotOrder> OrderSlots(Emitter& e, program::ValueId ids, int64_t first_expert,
                             int64_t experts, int64_t tile);

// experts.cc: y[t] = base[t] + the sum of weights[slot] * products[slot] over the slots of
// row t (gemm.h), in the order of the slots' experts. products: float32 [slots, n].
struct SlotSum {
    program::ValueId ids = program::kNoValue, y = program::kNoValue;
    program::ValueId weights = program::kNoValue, base = program::kNoValue;  // kNoValue: none
    int64_t first_expert = 0, experts = 0;
};
Status EmitSlotSum(Emitter& e, const SlotSum& sum, const Region& products);

// experts.cc: LowerRoutedMatMul emits one kernel that computes a RouteRun (fuse.h).
// CanRouteInProduct returns whether there is such a kernel for this product.
bool CanRouteInProduct(const Emitter& e, const program::Op& product);
Status LowerRoutedMatMul(Emitter& e, const program::Op& product, const program::Op& route);

// attention.cc: the number that stands for a cache's type in kernels. Errors: kUnsupported (no
// kernel supports rows of this type or size).
Result<uint32_t> CacheType(const program::Op& op, const CachePlace& cache);
// attention.cc: writes the rows of `x` into a cache with one head, at the positions of the
// step's rows. stride: positions per window of the cache; only rows that end a window are written.
Status WriteRow(Emitter& e, const program::Op& op, program::ValueId x, const CachePlace& cache,
                int64_t stride = 1);
// attention.cc: returns the caches of an attention op that has caches.
struct AttentionCaches {
    CachePlace k, v;
};
AttentionCaches CachesOf(const Emitter& e, const program::Op& op);
// attention.cc: the heads' slopes of ALiBi on the device, float32.
Result<Region> PlaceSlopes(Emitter& e, const std::vector<float>& slopes);
// attention.cc: lowers attention over the op's caches, which already contain the step's rows.
Status LowerOverCache(Emitter& e, const program::Op& op, const program::Attention& a);
Status LowerOverCache(Emitter& e, const program::Op& op, const program::LatentAttention& a);
// causal.cc: lowers attention without a cache, over the rows of the step.
Status LowerWithoutCache(Emitter& e, const program::Op& op, const program::Attention& a);

// recurrent.cc: limits of the kernels. dims: of a key. Errors: kUnsupported.
Status CheckTaps(int64_t taps);
Status CheckRule(const program::DeltaRule& a, int64_t heads, int64_t dims);
// recurrent_grad.cc: ops over the whole sequences of the step, without a state.
Status LowerTrained(Emitter& e, const program::Op& op, const program::CausalConv& a);
Status LowerTrained(Emitter& e, const program::Op& op, const program::DeltaRule& a);

}  // namespace weft::backend::on_gpu
