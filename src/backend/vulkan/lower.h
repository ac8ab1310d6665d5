// Lowering: turns an op into dispatches. Each family of ops has a file lower_FAMILY.cc. LowerOp
// (lower.cc) calls the Lower() of the op. LowerOp refuses transfers, because VulkanExecutable runs
// them itself.
//
// Errors: kUnsupported (no kernel takes an op, a type or a size; the message names it).
#pragma once

#include "backend/vulkan/dispatch.h"

namespace weft::backend::vulkan {

// Emits the dispatches of `op` for a step of the shape emitter.shape().
Status LowerOp(Emitter& emitter, const program::Op& op);
// Checks that all ops of the Program can be lowered, with their types and sizes. Called before any
// weight is loaded.
Status CheckProgram(const program::Program& program, const gpu::Description& gpu,
                    const Arithmetic& arithmetic, bool trains = false);

// Whether the Lower() of an op accepts activations of bfloat16 and float16, and checks the types
// itself. It is true for all ops that only training has, and for the ops listed below
// (WEFT_TAKES_HALVES).
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

// The input of LowerTop: `rows` rows of float32, each `stride` elements after the previous one.
// Only the first `columns` elements of a row count.
struct TopRows {
    uint64_t address = 0;
    int64_t rows = 1, stride = 0, columns = 0;
};
// lower_top.cc: from each row, selects the `count` largest elements, in the order of TopK
// (backend/top.h), and writes them to `to` as Candidate [rows, count].
Status LowerTop(Emitter& e, const TopRows& from, int64_t count, uint64_t to);
// lower_loss.cc: writes to `to` the index of a value's first element that is not finite, as
// uint64_t; writes all ones if every element is finite.
Status LowerFindNonFinite(Emitter& e, program::ValueId value, Region to);
// lower_attention.cc: in each cache, copies one page to another for each of the first `count`
// (from, to) pairs in e.tables().copies.
Status LowerPageCopies(Emitter& e, std::span<const CachePlace> caches, int64_t count);

}  // namespace weft::backend::vulkan
