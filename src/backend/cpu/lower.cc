#include "backend/cpu/lower.h"

namespace weft::backend {

Status CountScratch(const program::ChunkedProgram& chunked, const CompileOptions& options,
                    const kernels::Kernels& kernels, Buffers& buffers) {
    if (!chunked.chunks.empty()) {
        const auto lowered = LowerTraining(chunked, options, kernels, buffers);
        return lowered.ok() ? Status() : lowered.error();
    }
    const auto lowered = LowerInference(chunked.program, options, kernels, buffers);
    return lowered.ok() ? Status() : lowered.error();
}

Result<CallLists> Lower(const program::ChunkedProgram& chunked, const CompileOptions& options,
                        const kernels::Kernels& kernels, int threads, Buffers& buffers) {
    WEFT_TRY(CountScratch(chunked, options, kernels, buffers));
    WEFT_TRY(buffers.scratch().Allocate(threads));
    if (chunked.chunks.empty()) {
        return LowerInference(chunked.program, options, kernels, buffers);
    }
    CallLists lists;
    WEFT_ASSIGN(lists.plain, LowerTraining(chunked, options, kernels, buffers));
    return lists;
}

}  // namespace weft::backend
