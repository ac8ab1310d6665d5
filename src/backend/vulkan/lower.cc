#include "backend/vulkan/lower.h"

#include <initializer_list>

#include "backend/vulkan/buffers.h"
#include "backend/vulkan/dry_run.h"
#include "backend/vulkan/weights.h"

namespace weft::backend::vulkan {
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

Status CheckValue(const program::Value& value) {
    using program::Storage;
    if (value.storage == Storage::kWeight) {
        if (HoldsVectors(value.shape)) return {};
        return CheckWeightType(value.dtype, value.shape[value.shape.rank - 1]);
    }
    const bool known = value.storage == Storage::kInput || value.storage == Storage::kState ||
                       value.dtype == DType::kF32 || value.dtype == DType::kI32 ||
                       value.dtype == DType::kBF16 || value.dtype == DType::kF16;
    if (known) return {};
    return MakeError(ErrorCode::kUnsupported, "Vulkan devices have no activations of type {}",
                     Info(value.dtype).name);
}

}  // namespace

Status LowerOp(Emitter& emitter, const Op& op) {
    return op.attributes.Visit([&](const auto& a) { return LowerAny(emitter, op, a); });
}

// Lowers steps of few rows and of many.
Status CheckProgram(const program::Program& program, const gpu::Description& gpu,
                    const Arithmetic& arithmetic, bool trains) {
    for (const program::Value& value : program.values) {
        if (const Status status = CheckValue(value); !status.ok()) {
            return MakeError(status.error().code, "{}: {}", value.name, status.error().message);
        }
    }
    std::vector<StepShape> shapes;
    for (const int32_t rows : {1, 2, 64}) {
        StepShape& shape = shapes.emplace_back();
        shape.rows = shape.outputs = shape.sequences = shape.blocks = rows;
        shape.positions = 256;
        shape.adapted = true;
    }
    WEFT_TRY(ScratchBytes(program, Fusion(), gpu, shapes, false, arithmetic, trains));
    return {};
}

}  // namespace weft::backend::vulkan
