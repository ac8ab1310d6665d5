// Lowering: an op becomes dispatches. Each family of ops is a file lower_FAMILY.cc. lower.cc has
// the Visit() of all ops, which refuses transfers (the executable makes them).
//
// Errors: kUnsupported (an op, a type or a size that no kernel takes: the message names it).
#pragma once

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

// Emits what `op` needs for the emitter's shape.
Status LowerOp(Emitter& emitter, const program::Op& op);
// Whether all ops of the Program can be lowered, before anything is loaded: types, sizes.
Status CheckProgram(const program::Program& program, const gpu::Description& gpu,
                    const Arithmetic& arithmetic, bool trains = false);

// Whether the Lower() of an op takes activations of bfloat16 and float16, and checks the types
// itself. Lowerings of training ops must; of others, those that a specialization here names.
template <typename T>
inline constexpr bool kTakesHalves =
    T::kRow.pass != program::Pass::kInference&& T::kRow.pass != program::Pass::kBoth;

// The definitions are in lower_products.cc, lower_gemm.cc, lower_experts.cc, lower_rows.cc,
// lower_attention.cc, lower_index.cc, lower_recurrent.cc, lower_train_rows.cc,
// lower_train_experts.cc,
// lower_loss.cc, lower_update.cc, lower_adafactor.cc and lower_causal.cc.
#define WEFT_LOWER(name) Status Lower(Emitter& e, const program::Op& op, const program::name& a);
WEFT_OPS(WEFT_LOWER)
#undef WEFT_LOWER

#define WEFT_TAKES_HALVES(name) \
    template <>                 \
    inline constexpr bool kTakesHalves<program::name> = true;
WEFT_TAKES_HALVES(MatMul)
WEFT_TAKES_HALVES(ExpertMatMul)
WEFT_TAKES_HALVES(ExpertSum)
WEFT_TAKES_HALVES(Add)
WEFT_TAKES_HALVES(AddBias)
WEFT_TAKES_HALVES(Scale)
WEFT_TAKES_HALVES(ScaleByPosition)
WEFT_TAKES_HALVES(SoftCap)
WEFT_TAKES_HALVES(GateRows)
WEFT_TAKES_HALVES(Glu)
WEFT_TAKES_HALVES(RmsNorm)
WEFT_TAKES_HALVES(Rope)
WEFT_TAKES_HALVES(SelectRows)
WEFT_TAKES_HALVES(Embedding)
WEFT_TAKES_HALVES(Attention)
#undef WEFT_TAKES_HALVES

// lower_top.cc: of `rows` float32 rows, `stride` elements from one to the next, the `count` best of
// the first `columns` elements, as TopK (backend/top.h) has them: Candidate [rows, count] at `to`.
struct TopRows {
    uint64_t address = 0;
    int64_t rows = 1, stride = 0, columns = 0;
};
Status LowerTop(Emitter& e, const TopRows& from, int64_t count, uint64_t to);
// lower_loss.cc: the first element of a value that is not a finite number, all ones where there is
// none: a uint64_t at `to`.
Status LowerFindNonFinite(Emitter& e, program::ValueId value, Region to);
// lower_attention.cc: copies pages, tables().copies has `count` of them, in all caches given.
Status LowerPageCopies(Emitter& e, std::span<const CachePlace> caches, int64_t count);

}  // namespace weft::backend::vulkan
