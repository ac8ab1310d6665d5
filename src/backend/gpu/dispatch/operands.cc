#include "backend/gpu/dispatch/operands.h"

#include <algorithm>
#include <limits>

namespace weft::backend::on_gpu {
namespace {

using program::Storage;
using program::ValueId;

// Largest number of elements of a value that a kernel counts with 32 bits; reserves the stride of
// its loops.
constexpr int64_t kMostCount = std::numeric_limits<uint32_t>::max() - (int64_t{1} << 24);

// Vectors of weights are float32 in inference, whatever their type in the file.
DType TypeInMemory(const Emitter& e, const program::Value& value) {
    const bool vectors = value.storage == Storage::kWeight && HoldsVectors(value.shape);
    return vectors && !e.trains() ? DType::kF32 : value.dtype;
}

bool IsHalf(DType dtype) {
    return dtype == DType::kBF16 || dtype == DType::kF16;
}

}  // namespace

int64_t CountOf(const Emitter& e, ValueId id) {
    return e.shape().ElementsOf(e.program().value(id).shape);
}

int64_t FlatRowsOf(const Emitter& e, ValueId id) {
    const program::Shape& shape = e.program().value(id).shape;
    return shape.rank < 2 ? CountOf(e, id) : CountOf(e, id) / shape[shape.rank - 1];
}

Result<uint32_t> ElementType(DType dtype) {
    if (dtype == DType::kF32) return 0u;
    if (dtype == DType::kBF16) return 1u;
    if (dtype == DType::kF16) return 2u;
    return MakeError(ErrorCode::kUnsupported,
                     "no Vulkan kernel supports type {} there; expected float32, bfloat16 or "
                     "float16",
                     Info(dtype).name);
}

Status CheckWide(const Emitter& e, ValueId id) {
    const program::Value& value = e.program().value(id);
    const DType dtype = TypeInMemory(e, value);
    if (dtype == DType::kF32 || dtype == DType::kI32) return {};
    return MakeError(ErrorCode::kUnsupported,
                     "{} is {}; the Vulkan kernel supports only float32. Use --device cpu.",
                     value.name, Info(dtype).name);
}

bool HasHalves(const Emitter& e, const program::Op& op) {
    const auto half = [&](ValueId id) {
        const program::Value& value = e.program().value(id);
        const bool fixed = value.storage == Storage::kWeight || value.storage == Storage::kState;
        return !fixed && IsHalf(value.dtype);
    };
    return std::ranges::any_of(op.inputs, half) || std::ranges::any_of(op.outputs, half);
}

int64_t WalkGroups(int64_t count) {
    return std::min(CeilDiv(count, kWalkGroup), kMostWalkGroups);
}
int64_t QuadGroups(int64_t count) {
    return std::min(QuadPieces(count), kMostWalkGroups);
}
int64_t QuadPieces(int64_t cols) {
    return CeilDiv(cols, 4 * kWalkGroup);
}
int64_t RowGroups(int64_t rows) {
    return std::min(rows, kMostRowGroups);
}

// The type number of a value for its slot. Without a slot: 0 if the kernel supports the value.
Result<uint32_t> Operands::TypeOf(ValueId id, int slot) const {
    const program::Value& value = e_.program().value(id);
    if (slot == kNoSlot) {
        WEFT_TRY(CheckWide(e_, id));
    }
    const int64_t count = CountOf(e_, id);
    const bool counted = value.storage != Storage::kWeight && value.storage != Storage::kState;
    if (counted && count_ == Count::kUpTo32Bits && count > kMostCount) {
        return MakeError(ErrorCode::kUnsupported,
                         "{} has {} elements; a Vulkan kernel supports at most {}. Use smaller "
                         "micro-batches.",
                         value.name, count, kMostCount);
    }
    if (slot == kNoSlot) return 0u;
    Result<uint32_t> type = ElementType(TypeInMemory(e_, value));
    if (type.ok()) return type;
    return MakeError(type.error().code, "{}: {}", value.name, type.error().message);
}

uint64_t Operands::Note(ValueId id, int slot, By by, std::vector<Region>& regions) {
    if (id == program::kNoValue) return 0;
    const Result<uint32_t> type = TypeOf(id, slot);
    if (!type.ok()) {
        if (status_.ok()) status_ = type.error();
        return 0;
    }
    const DType dtype = TypeInMemory(e_, e_.program().value(id));
    const Region region{e_.Address(id),
                        static_cast<uint64_t>(weft::RowBytes(dtype, CountOf(e_, id)))};
    regions.push_back(region);
    if (slot != kNoSlot) types_ |= *type << (2 * slot);
    const uint64_t quad_bytes = *type == 0 ? 16 : 8;
    wide_ = wide_ && (by == By::kElements || region.address % quad_bytes == 0);
    return region.address;
}

uint64_t Operands::Reads(ValueId id, By by) {
    return Note(id, kNoSlot, by, reads_);
}
uint64_t Operands::Writes(ValueId id, By by) {
    return Note(id, kNoSlot, by, writes_);
}
uint64_t Operands::Adds(ValueId id, By by) {
    Note(id, kNoSlot, by, reads_);
    return Note(id, kNoSlot, by, writes_);
}
uint64_t Operands::Reads(ValueId id, int slot, By by) {
    return Note(id, slot, by, reads_);
}
uint64_t Operands::Writes(ValueId id, int slot, By by) {
    return Note(id, slot, by, writes_);
}
uint64_t Operands::Adds(ValueId id, int slot, By by) {
    Note(id, slot, by, reads_);
    return Note(id, slot, by, writes_);
}
uint64_t Operands::Reads(const Region& region) {
    reads_.push_back(region);
    return region.address;
}
uint64_t Operands::Writes(const Region& region) {
    writes_.push_back(region);
    return region.address;
}

}  // namespace weft::backend::on_gpu
