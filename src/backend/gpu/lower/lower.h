// Lowering: turns an op into dispatches. Each family of ops has a file in this folder. LowerOp
// (lower.cc) calls the Lower() of the op. LowerOp refuses transfers, because GpuExecutable runs
// them itself.
//
// Errors: kUnsupported (no kernel supports an op, a type or a size; the message names it).
#pragma once

#include <string_view>
#include <type_traits>

#include "backend/gpu/dispatch/dispatch.h"

namespace weft::backend::on_gpu {

// Emits the dispatches of `op` for a step of the shape emitter.shape().
Status LowerOp(Emitter& emitter, const program::Op& op);

// The definitions are in the families' files. Ops with a reason in WhyNotLowered() have none.
#define WEFT_LOWER(name) Status Lower(Emitter& e, const program::Op& op, const program::name& a);
WEFT_OPS(WEFT_LOWER)
#undef WEFT_LOWER

// The message for ops that GPUs cannot train yet.
inline constexpr const char* kCpuOnly =
    "GPUs do not train it yet. Train this model on the processor (--device cpu)";

// The error of an op in a form that only the processor trains.
inline Error TrainsOnCpuOnly(const program::Op& op, std::string_view what) {
    return MakeError(ErrorCode::kUnsupported, "{} {}: {}", program::OpName(op.kind()), what,
                     kCpuOnly);
}

// Why no Vulkan kernel computes an op of this type; nullptr: one does.
template <typename T>
constexpr const char* WhyNotLowered() {
    if (T::kRow.Is(program::Trait::kTransfer)) return "a transfer; it is not computed";
    if (std::is_same_v<T, program::LinearCrossEntropy> ||
        std::is_same_v<T, program::LinearCrossEntropyGrad>) {
        return "it has to be expanded first (program/loss.h)";
    }
    return nullptr;
}

// The input of LowerTop: `rows` rows of float32, each `stride` elements after the previous one.
// Only the first `columns` elements of a row count.
struct TopRows {
    uint64_t address = 0;
    int64_t rows = 1, stride = 0, columns = 0;
};
// top.cc: from each row, selects the `count` largest elements, in the order of TopK
// (backend/top.h), and writes them to `to` as Candidate [rows, count].
Status LowerTop(Emitter& e, const TopRows& from, int64_t count, uint64_t to);
// attention.cc: in each cache, copies one page to another for each of the first `count`
// (from, to) pairs in e.tables().copies.
Status LowerPageCopies(Emitter& e, std::span<const CachePlace> caches, int64_t count);

}  // namespace weft::backend::on_gpu
