#include "backend/vulkan/lower.h"

#include <algorithm>
#include <initializer_list>
#include <type_traits>

#include "backend/vulkan/buffers.h"
#include "backend/vulkan/dry_run.h"
#include "backend/vulkan/weights.h"

namespace weft::backend::vulkan {
namespace {

using program::Op;
using program::Trait;

bool IsHalf(const Emitter& emitter, program::ValueId id) {
    const program::Value& value = emitter.program().value(id);
    const bool half = value.dtype == DType::kBF16 || value.dtype == DType::kF16;
    return half && value.storage == program::Storage::kActivation;
}

// Ops that program::ExpandLoss replaces by others.
template <typename T>
constexpr bool kExpanded = std::is_same_v<T, program::LinearCrossEntropy> ||
                           std::is_same_v<T, program::LinearCrossEntropyGrad>;

// An op without a Lower() does not link.
template <typename T>
Status LowerAny(Emitter& emitter, const Op& op, const T& attributes) {
    if constexpr (T::kRow.Is(Trait::kTransfer)) {
        return MakeError(ErrorCode::kUnsupported, "a transfer; it is not computed");
    } else if constexpr (kExpanded<T>) {
        return MakeError(ErrorCode::kUnsupported, "it has to be expanded first (program/loss.h)");
    } else {
        const auto half = [&](program::ValueId id) { return IsHalf(emitter, id); };
        if (!kTakesHalves<T> &&
            (std::ranges::any_of(op.inputs, half) || std::ranges::any_of(op.outputs, half))) {
            return MakeError(
                ErrorCode::kUnsupported,
                "its Vulkan kernel supports only float32 activations. Use --device cpu.");
        }
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
