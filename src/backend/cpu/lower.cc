#include "backend/cpu/lower.h"

#include <algorithm>

#include "backend/cpu/lowering.h"

namespace weft::backend {
namespace {

using program::OpKind;
using program::Pass;

Status CheckTypes(const Lowering& l, const Op& op) {
    const std::optional<size_t> weight = program::WeightInput(op.kind());
    for (size_t i = 0; i < op.inputs.size(); ++i) {
        const program::Value& value = l.program.value(op.inputs[i]);
        const bool reads = weight == i || op.kind() == OpKind::kEmbedding;
        if (Info(value.dtype).quantized && !reads) {
            return l.Unsupported(fmt::format("training cannot read {} of type {}", value.name,
                                             Info(value.dtype).name));
        }
    }
    const bool wide = !op.outputs.empty() && l.IsWide(op.outputs[0]);
    const bool of_pass = static_cast<size_t>(l.op) < l.chunked.chunks.back().end;
    return wide && of_pass ? l.Unsupported("a training pass needs float32 sums") : Status();
}

Status CheckOp(const Lowering& l, const Op& op) {
    const Pass pass = program::RowOf(op.kind()).pass;
    if (l.trains()) {
        if (pass == Pass::kInference) return l.Unsupported("can not be trained on the CPU");
        return CheckTypes(l, op);
    }
    if (pass == Pass::kInference || pass == Pass::kBoth) return {};
    return l.Unsupported("is a training op, but the Program is for inference");
}

// Whether a run may begin with the current op.
bool BeginsPart(const Lowering& l) {
    const auto at = static_cast<size_t>(l.op);
    return std::ranges::any_of(l.chunked.chunks, [&](const program::ModelChunk& chunk) {
        return at == chunk.begin || at == chunk.backward_begin;
    });
}

void TakePending(Lowering& l) {
    for (Call& call : l.pending) l.Add(std::move(call));
    l.pending.clear();
}

Status LowerOp(Lowering& l, const Op& op) {
    return op.attributes.Visit([&]<typename T>(const T& a) {
        if constexpr (T::kRow.Is(program::Trait::kTransfer)) {
            return LowerTransfer(l, op);
        } else {
            return Lower(l, op, a);
        }
    });
}

Result<std::vector<Call>> LowerOps(Lowering l) {
    const auto is_kept = [&](ValueId id) {
        return std::ranges::find(l.options.keep, id) != l.options.keep.end();
    };
    for (const Op& op : l.program.ops) {
        if (BeginsPart(l)) l.prepared = {};
        if (!program::IsOfAdapters(op.kind())) TakePending(l);
        WEFT_TRY(CheckOp(l, op));
        WEFT_TRY(LowerOp(l, op));
        if (std::ranges::any_of(op.outputs, is_kept)) l.prepared = {};
        ++l.op;
    }
    TakePending(l);
    PlaceBarriers(l.calls);
    if (!l.trains()) FuseEpilogues(l.calls);
    if (l.options.beside) PlaceWaits(l.calls);
    return std::move(l.calls);
}

Result<CallLists> LowerLists(Buffers& buffers) {
    buffers.pairs().clear();
    CallLists lists;
    Lowering l{buffers};
    WEFT_ASSIGN(lists.plain, LowerOps(l));
    l.adapts = std::ranges::any_of(l.program.ops, program::IsOfAdapters, &Op::kind);
    if (l.adapts) {
        WEFT_ASSIGN(lists.adapted, LowerOps(l));
    }
    return lists;
}

}  // namespace

Status CountScratch(Buffers& buffers) {
    const auto lowered = LowerLists(buffers);
    return lowered.ok() ? Status() : lowered.error();
}

Result<CallLists> LowerProgram(Buffers& buffers, int threads) {
    WEFT_TRY(CountScratch(buffers));
    WEFT_TRY(buffers.scratch().Allocate(threads));
    return LowerLists(buffers);
}

}  // namespace weft::backend
