// Parts of lowerings that runs of fused ops (lower_fused.cc) have, too.
#pragma once

#include <cstdint>
#include <vector>

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

// lower_rows.cc: invocations of a norm's workgroup, which the order of its sum depends on.
uint32_t NormGroup(int64_t cols);

// lower_rows.cc: tables of an op's angles, made once for all ops with the same.
struct AngleTables {
    Region fine, coarse;
};
Result<AngleTables> PlaceAngles(Emitter& e, const program::Rope& a);

// lower_products.cc, lower_experts.cc: two products of the same rows, of which there are as many as
// a matvec takes at most, and their gate, by one kernel (GluRun of fuse.h). gate: null where its
// rows are made already.
Status LowerGatedMatMul(Emitter& e, const program::Op* gate, const program::Op& up,
                        const program::Op& glu);
Status LowerGatedExperts(Emitter& e, const program::Op* gate, const program::Op& up,
                         const program::Op& glu);

// lower_products.cc: rows [begin, begin + count) of a weight to float32, bfloat16 or float16, one
// behind the other.
Status EmitDecode(Emitter& e, const WeightPlace& weight, int64_t begin, int64_t count, DType to,
                  const Region& out);

// lower_experts.cc: y[t] = base[t] + the sum over the slots of row t, in the order of their
// experts, of weights[slot] * products[slot]. products: float32 [slots, n].
struct SlotSum {
    program::ValueId ids = program::kNoValue, y = program::kNoValue;
    program::ValueId weights = program::kNoValue, base = program::kNoValue;  // or none
    int64_t first_expert = 0, experts = 0;
};
Status EmitSlotSum(Emitter& e, const SlotSum& sum, const Region& products);

// lower_experts.cc: a product and the routing by it, as one kernel, where that may be.
bool CanRouteInProduct(const Emitter& e, const program::Op& product);
Status LowerRoutedMatMul(Emitter& e, const program::Op& product, const program::Op& route);

// lower_attention.cc: the type of a cache, as kernels number it. Errors: kUnsupported, where a
// kernel takes no such rows.
Result<uint32_t> CacheType(const program::Op& op, const CachePlace& cache);
// lower_attention.cc: a row of `x` for each row of the step into a cache of one head.
Status WriteRow(Emitter& e, const program::Op& op, program::ValueId x, const CachePlace& cache);
// lower_attention.cc: the caches of an op of attention that has them. Errors: kUnsupported, if
// their types differ.
struct AttentionCaches {
    CachePlace k, v;
};
Result<AttentionCaches> CachesOf(const Emitter& e, const program::Op& op);
// lower_attention.cc: attention over its caches, where its rows stand already.
Status LowerOverCache(Emitter& e, const program::Op& op, const program::Attention& a);
Status LowerOverCache(Emitter& e, const program::Op& op, const program::LatentAttention& a);
// lower_causal.cc: attention without a cache, over the rows of the step.
Status LowerCausal(Emitter& e, const program::Op& op, const program::Attention& a);

}  // namespace weft::backend::vulkan
