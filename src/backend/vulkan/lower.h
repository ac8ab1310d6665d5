// Lowering: an op of inference becomes dispatches. A family of ops is a file lower_FAMILY.cc;
// lower.cc has the Visit() of all ops, in which those of training, and transfers (which the
// executable makes), are refused by name.
//
// Errors: kUnsupported (an op, a type or a size that no kernel takes: the message names it).
#pragma once

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

// Emits what `op` needs for the emitter's shape.
Status LowerOp(Emitter& emitter, const program::Op& op);
// Whether all ops of the Program can be lowered, before anything is loaded: types, sizes.
Status CheckProgram(const program::Program& program, const gpu::Description& gpu,
                    const Arithmetic& arithmetic);

// Of each op: lower_products.cc, lower_experts.cc, lower_rows.cc, lower_attention.cc. (Those of
// training, and transfers, have none.)
#define WEFT_LOWER(name) Status Lower(Emitter& e, const program::Op& op, const program::name& a);
WEFT_OPS(WEFT_LOWER)
#undef WEFT_LOWER

// lower_top.cc: of `rows` float32 rows, `stride` elements from one to the next, the `count` best of
// the first `columns` elements, as TopOf (backend/top.h) has them: Candidate [rows, count] at `to`.
struct TopRows {
    uint64_t address = 0;
    int64_t rows = 1, stride = 0, columns = 0;
};
Status LowerTop(Emitter& e, const TopRows& from, int64_t count, uint64_t to);
// lower_attention.cc: copies pages, tables().copies has `count` of them, in all caches given.
Status LowerPageCopies(Emitter& e, std::span<const CachePlace> caches, int64_t count);

}  // namespace weft::backend::vulkan
