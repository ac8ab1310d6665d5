#include "backend/vulkan/buffers.h"

#include <algorithm>

#include "program/timeline.h"

namespace weft::backend::vulkan {
namespace {

constexpr uint64_t RoundTo(uint64_t bytes, uint64_t to) {
    return (bytes + to - 1) / to * to;
}

}  // namespace

Piece Blocks::Take(uint64_t bytes) {
    const uint64_t size = RoundTo(std::max<uint64_t>(bytes, 1), kAlign);
    const bool fits = !sizes_.empty() && sizes_.back() + size <= kMostBytes;
    if (!fits) sizes_.push_back(0);
    const Piece piece{sizes_.size() - 1, sizes_.back(), bytes};
    sizes_.back() += size;
    return piece;
}

uint64_t Blocks::total_bytes() const {
    uint64_t sum = 0;
    for (const uint64_t size : sizes_) sum += size;
    return sum;
}

Status Blocks::CheckSizes(const gpu::Device& device, const std::string& what) const {
    const uint64_t most = device.most_buffer_bytes();
    for (const uint64_t size : sizes_) {
        if (size <= most) continue;
        return MakeError(ErrorCode::kUnsupported,
                         "{}: {} needs a buffer of {} bytes; most of one: {}. Use more ranks "
                         "(--tp), a smaller --ctx, or --device cpu.",
                         device.description().name, what, size, most);
    }
    return {};
}

Status Blocks::Allocate(gpu::Device& device) {
    buffers_.clear();
    for (const uint64_t size : sizes_) {
        WEFT_ASSIGN(gpu::Buffer buffer, device.Allocate(size, gpu::Place::kDevice));
        buffers_.push_back(std::move(buffer));
    }
    return {};
}

bool HoldsVectors(const program::Shape& shape) {
    return shape.rank == 1 || (shape.rank == 3 && shape[1] == 1);
}

Status Buffers::Plan(const program::Program& program, const program::Program& lives,
                     const CompileOptions& options) {
    program_ = &program;
    page_tokens_ = options.page_tokens;
    kv_pages_ = options.kv_pages;
    const size_t count = program.values.size();
    pieces_.resize(count);
    layouts_.resize(count);
    for (size_t i = 0; i < count; ++i) {
        const program::Value& value = program.values[i];
        if (value.storage == program::Storage::kWeight) {
            WEFT_TRY(PlanWeight(value, i));
        } else if (value.storage == program::Storage::kState) {
            const int64_t positions = options.kv_pages * options.page_tokens;
            pieces_[i] = kv_.Take(static_cast<uint64_t>(program::StateBytes(value, positions)));
        }
    }
    plan_ = program::PlanArena(lives, options.max_tokens, options.max_outputs, options.keep);
    arena_bytes_ = std::max<uint64_t>(static_cast<uint64_t>(plan_.size_bytes), Blocks::kAlign);
    PlanTransfers(program, options);
    return {};
}

Status Buffers::PlanWeight(const program::Value& value, size_t index) {
    const program::Shape& shape = value.shape;
    if (HoldsVectors(shape)) {
        const int64_t bytes = shape.Elements(0, 0) * static_cast<int64_t>(sizeof(float));
        pieces_[index] = weights_.Take(static_cast<uint64_t>(bytes));
        return {};
    }
    const int64_t cols = shape[shape.rank - 1], rows = shape.Elements(0, 0) / cols;
    if (const Status status = CheckWeightType(value.dtype, cols); !status.ok()) {
        return MakeError(status.error().code, "{}: {}", value.name, status.error().message);
    }
    layouts_[index] = LayoutOf(value.dtype, rows, cols);
    pieces_[index] = weights_.Take(layouts_[index].bytes);
    return {};
}

void Buffers::PlanTransfers(const program::Program& program, const CompileOptions& options) {
    uint64_t most = Blocks::kAlign;
    for (const program::Op& op : program.ops) {
        if (!program::IsTransfer(op.kind())) continue;
        for (const auto* ids : {&op.inputs, &op.outputs}) {
            for (const program::ValueId id : *ids) {
                const program::Value& value = program.value(id);
                const int64_t count = value.shape.Elements(options.max_tokens, options.max_outputs);
                most = std::max(most, static_cast<uint64_t>(RowBytes(value.dtype, count)));
            }
        }
    }
    operand_bytes_ = RoundTo(most, Blocks::kAlign);
}

Status Buffers::Allocate(gpu::Device& device) {
    WEFT_TRY(weights_.Allocate(device));
    WEFT_TRY(kv_.Allocate(device));
    WEFT_ASSIGN(transfers_, device.Allocate(TransferBytes(), gpu::Place::kMeeting));
    WEFT_ASSIGN(read_, device.Allocate(kReadBytes, gpu::Place::kHost));
    WEFT_ASSIGN(wanted_, device.Allocate(kTopBytes + kWholeBytes, gpu::Place::kHost));
    WEFT_ASSIGN(arena_, device.Allocate(arena_bytes_, gpu::Place::kDevice));
    Place(*program_);
    return {};
}

void Buffers::Place(const program::Program& program) {
    const size_t count = program.values.size();
    addresses_.assign(count, 0);
    weight_places_.resize(count);
    caches_.resize(count);
    cache_list_.clear();
    for (size_t i = 0; i < count; ++i) {
        const program::Value& value = program.values[i];
        const program::Shape& shape = value.shape;
        if (value.storage == program::Storage::kWeight) {
            addresses_[i] = weights_.Address(pieces_[i]);
            if (HoldsVectors(shape)) continue;
            const bool stack = shape.rank == 3;
            weight_places_[i] = {value.dtype, stack ? shape[0] : 1, shape[shape.rank - 2],
                                 shape[shape.rank - 1], addresses_[i]};
        } else if (value.storage == program::Storage::kState) {
            caches_[i] = {value.dtype, shape[0], page_tokens_, shape[1], kv_.Address(pieces_[i]),
                          kv_pages_};
            cache_list_.push_back(caches_[i]);
        } else if (plan_.offsets[i] >= 0) {
            addresses_[i] = arena_.address() + static_cast<uint64_t>(plan_.offsets[i]);
        }
    }
}

}  // namespace weft::backend::vulkan
