#include "backend/gpu/lower/lower.h"

namespace weft::backend::on_gpu {
namespace {

using program::Op;

// An op without a Lower() does not link.
template <typename T>
Status LowerAny(Emitter& emitter, const Op& op, const T& attributes) {
    if constexpr (constexpr const char* kWhy = WhyNotLowered<T>(); kWhy != nullptr) {
        return MakeError(ErrorCode::kUnsupported, "{}", kWhy);
    } else {
        return Lower(emitter, op, attributes);
    }
}

}  // namespace

Status LowerOp(Emitter& emitter, const Op& op) {
    return op.attributes.Visit([&](const auto& a) { return LowerAny(emitter, op, a); });
}

}  // namespace weft::backend::on_gpu
