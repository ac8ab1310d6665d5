// Errors for DeepSeek-V4's ops, which have no GPU kernels. Target::pools_windows = false makes
// BuildProgram refuse them earlier.
#include "backend/vulkan/lower.h"

namespace weft::backend::vulkan {
namespace {

Status None(const program::Op& op) {
    return MakeError(ErrorCode::kUnsupported, "{}: GPUs have no kernel for it",
                     program::OpName(op.kind()));
}

}  // namespace

Status Lower(Emitter&, const program::Op& op, const program::StreamWeights&) {
    return None(op);
}
Status Lower(Emitter&, const program::Op& op, const program::MergeStreams&) {
    return None(op);
}
Status Lower(Emitter&, const program::Op& op, const program::MixStreams&) {
    return None(op);
}
Status Lower(Emitter&, const program::Op& op, const program::PoolWindows&) {
    return None(op);
}
Status Lower(Emitter&, const program::Op& op, const program::WindowAttention&) {
    return None(op);
}

}  // namespace weft::backend::vulkan
