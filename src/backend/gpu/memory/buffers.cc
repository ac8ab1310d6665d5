#include "backend/gpu/memory/buffers.h"

#include <algorithm>

#include "backend/gpu/memory/step_parts.h"
#include "program/communication.h"
#include "program/placement.h"

namespace weft::backend::on_gpu {
namespace {

using program::ValueId;
constexpr auto kBlock = static_cast<int64_t>(PoolBuffers::kMostBytes);

constexpr uint64_t RoundTo(uint64_t bytes, uint64_t to) {
    return (bytes + to - 1) / to * to;
}

}  // namespace

// ---- Pools --------------------------------------------------------------------------------------

void PoolBuffers::Plan(const std::vector<uint64_t>& ends, std::span<const Range> values) {
    ends_ = ends;
    sizes_.assign(ends.size(), kBufferAlign);
    for (const Range& value : values) {
        const size_t buffer = BufferOf(value.begin);
        const uint64_t used = RoundTo(value.end - BeginOf(buffer), kBufferAlign);
        sizes_[buffer] = std::max(sizes_[buffer], used);
    }
}

// (A value without elements may lie after all others.)
size_t PoolBuffers::BufferOf(uint64_t offset) const {
    const auto index = static_cast<size_t>(std::ranges::upper_bound(ends_, offset) - ends_.begin());
    return std::min(index, ends_.size() - 1);
}

uint64_t PoolBuffers::largest_bytes() const {
    return sizes_.empty() ? 0 : std::ranges::max(sizes_);
}

Status PoolBuffers::Allocate(gpu::Device& device) {
    buffers_.clear();
    for (const uint64_t size : sizes_) {
        WEFT_ASSIGN(gpu::Buffer buffer, device.Allocate(size, gpu::Place::kDevice));
        buffers_.push_back(std::move(buffer));
    }
    return {};
}

Spot PoolBuffers::At(uint64_t offset) const {
    const size_t buffer = BufferOf(offset);
    return {&buffers_[buffer], offset - BeginOf(buffer)};
}

Status Buffers::Plan(const program::ChunkedProgram& chunked, const program::Program& lives,
                     const CompileOptions& options) {
    program_ = &chunked.program;
    trains_ = !chunked.chunks.empty();
    page_tokens_ = options.page_tokens;
    kv_pages_ = options.kv_pages;
    layouts_.assign(program_->values.size(), {});
    for (size_t i = 0; i < program_->values.size(); ++i) {
        const program::Value& value = program_->values[i];
        if (value.storage == program::Storage::kWeight) WEFT_TRY(PlanWeight(value, i));
    }
    PlanStreamed(options);
    program::LayoutOptions layout;
    layout.tokens = options.max_tokens;
    layout.outputs = options.max_outputs;
    layout.positions = options.kv_pages * options.page_tokens;
    layout.state_slots = options.state_slots;
    layout.slots = options.slots;
    layout.keep = options.keep;
    layout.align = static_cast<int64_t>(kBufferAlign);
    layout.block_bytes = kBlock;
    layout.weight_bytes = [this](ValueId id) { return WeightBytes(id); };
    layout_ =
        trains_ ? program::MemoryLayout(chunked, layout) : program::MemoryLayout({lives}, layout);
    parts_ = trains_ ? 0 : MostParts(*program_, options);
    if (parts_ > 0) {
        layout.tokens = PartOptions(options, parts_).max_tokens;
        part_layout_ = program::MemoryLayout({lives}, layout);
        part_bytes_ = RoundTo(static_cast<uint64_t>(part_layout_.PoolBytes(program::Pool::kBrief)),
                              kBufferAlign);
    }
    PlanPools(options);
    PlanTransfers(*program_, options);
    PlanWanted(options);
    return {};
}

Status Buffers::PlanWeight(const program::Value& value, size_t index) {
    const program::Shape& shape = value.shape;
    if (HoldsVectors(shape)) return {};
    const int64_t cols = shape[shape.rank - 1], rows = shape.Elements(0, 0) / cols;
    if (const Status status = CheckWeightType(value.dtype, cols); !status.ok()) {
        return MakeError(status.error().code, "{}: {}", value.name, status.error().message);
    }
    layouts_[index] = LayoutOf(value.dtype, rows, cols);
    return {};
}

void Buffers::PlanStreamed(const CompileOptions& options) {
    ways_ = options.ways;
    streamed_ = program::StreamedWeights(*program_, ways_);
    streamed_index_.assign(program_->values.size(), -1);
    for (size_t i = 0; i < streamed_.size(); ++i) {
        streamed_index_[Index(streamed_[i])] = static_cast<int64_t>(i);
        place_bytes_ = std::max(place_bytes_, RoundTo(Layout(streamed_[i]).bytes, kBufferAlign));
    }
}

// Vectors are float32 in inference; a unit of training keeps its own type.
int64_t Buffers::WeightBytes(ValueId id) const {
    const program::Value& value = program_->value(id);
    if (StreamedIndex(id) >= 0) return 0;
    if (!HoldsVectors(value.shape)) return static_cast<int64_t>(Layout(id).bytes);
    return RowBytes(trains_ ? value.dtype : DType::kF32, value.shape.Elements(0, 0));
}

void Buffers::PlanWanted(const CompileOptions& options) {
    // Training chooses no tokens. (A buffer has at least a block.)
    const int64_t most_top = trains_ ? 1 : options.max_outputs * kMostTop;
    top_bytes_ = RoundTo(static_cast<uint64_t>(most_top) * sizeof(Candidate), kBufferAlign);
    whole_bytes_ = 0;
    for (const ValueId id : options.keep) {
        const program::Value& value = program_->value(id);
        const program::Shape& shape = value.shape;
        if (shape.rank != 2 || shape[0] != program::kOutputs || value.dtype != DType::kF32)
            continue;
        const auto bytes = static_cast<uint64_t>(
            RowBytes(DType::kF32, shape.Elements(options.max_tokens, options.max_outputs)));
        whole_bytes_ = std::max(whole_bytes_, std::min(bytes, kMostWholeBytes));
    }
}

// Buffers end at block boundaries, except for larger values.
void Buffers::PlanPools(const CompileOptions& options) {
    for (size_t p = 0; p < program::kPools; ++p) {
        const auto pool = static_cast<program::Pool>(p);
        auto all = std::max(RoundTo(static_cast<uint64_t>(layout_.PoolBytes(pool)), kBufferAlign),
                            kBufferAlign);
        if (pool == program::Pool::kNone || pool == program::Pool::kInput) continue;
        std::vector<PoolBuffers::Range> values = ValuesIn(pool, options);
        if (values.empty()) continue;
        if (parts_ > 0 && pool == program::Pool::kBrief) {
            values.push_back({0, static_cast<uint64_t>(parts_) * part_bytes_});
            all = std::max(all, values.back().end);
        }
        std::vector<uint64_t> ends;
        for (uint64_t end = PoolBuffers::kMostBytes; end < all; end += PoolBuffers::kMostBytes) {
            ends.push_back(end);
        }
        ends.push_back(all);
        // Inference keeps its arena in one buffer.
        if (!trains_ && pool == program::Pool::kBrief) ends = {all};
        for (const PoolBuffers::Range& value : values) {
            std::erase_if(ends, [&](uint64_t end) { return end > value.begin && end < value.end; });
        }
        pools_[p].Plan(ends, values);
    }
}

std::vector<PoolBuffers::Range> Buffers::ValuesIn(program::Pool pool,
                                                  const CompileOptions& options) const {
    std::vector<PoolBuffers::Range> ranges;
    for (size_t i = 0; i < program_->values.size(); ++i) {
        const auto id = static_cast<ValueId>(i);
        const program::Value& value = program_->values[i];
        if (layout_.PlaceOf(id).pool != pool || value.storage == program::Storage::kView) continue;
        int64_t bytes =
            RowBytes(value.dtype, value.shape.Elements(options.max_tokens, options.max_outputs));
        if (value.storage == program::Storage::kWeight) bytes = WeightBytes(id);
        if (value.storage == program::Storage::kState) {
            bytes = program::StateBytes(value, kv_pages_ * page_tokens_);
        }
        if (value.storage == program::Storage::kSlots) bytes *= options.state_slots;
        const int slots = layout_.SlotStride(pool) > 0 ? options.slots : 1;
        for (int slot = 0; slot < slots; ++slot) {
            const int64_t begin = layout_.OffsetOf(id, slot);
            ranges.push_back({static_cast<uint64_t>(begin), static_cast<uint64_t>(begin + bytes)});
        }
    }
    return ranges;
}

std::vector<PlannedBuffer> Buffers::Planned() const {
    std::vector<PlannedBuffer> planned = {
        {"a weight", Pool(program::Pool::kWeight).largest_bytes(), true},
        {"a layer's KV cache or recurrent state", Pool(program::Pool::kCache).largest_bytes()},
        {"a gradient", Pool(program::Pool::kGradient).largest_bytes(), true},
        {"the optimizer's state of a weight", Pool(program::Pool::kOptimizer).largest_bytes(),
         true},
        {"an activation", Pool(program::Pool::kKept).largest_bytes()},
        {trains_ ? "an activation" : "the activations of a step",
         Pool(program::Pool::kBrief).largest_bytes()},
        {"a layer's experts", place_bytes_},
        {"what the host reads of a step", top_bytes_ + whole_bytes_}};
    for (const uint64_t size : transfer_sizes_) planned.push_back({"an operand of ranks", size});
    return planned;
}

uint64_t Buffers::weight_bytes() const {
    return ring_bytes() + Pool(program::Pool::kWeight).total_bytes() +
           Pool(program::Pool::kGradient).total_bytes() +
           Pool(program::Pool::kOptimizer).total_bytes();
}

uint64_t Buffers::HandedBytes(uint64_t bytes) {
    return RoundTo(bytes, kBufferAlign);
}

void Buffers::PlanTransfers(const program::Program& program, const CompileOptions& options) {
    operand_bytes_ = kBufferAlign;
    uint64_t beside_in = 0, beside_out = 0, handed = 0, most_handed = 0;
    const auto bytes_of = [&](ValueId id) {
        const program::Value& value = program.value(id);
        const int64_t count = value.shape.Elements(options.max_tokens, options.max_outputs);
        return RoundTo(static_cast<uint64_t>(RowBytes(value.dtype, count)), kBufferAlign);
    };
    const auto note = [&](std::span<const ValueId> ids, bool beside, uint64_t& beside_bytes) {
        for (const ValueId id : ids) {
            const uint64_t bytes = bytes_of(id);
            operand_bytes_ = std::max(operand_bytes_, bytes);
            if (beside) beside_bytes = std::max(beside_bytes, bytes);
        }
    };
    for (const program::Op& op : program.ops) {
        handed = program::IsToHost(op) ? handed + bytes_of(op.inputs[0]) : 0;
        most_handed = std::max(most_handed, handed);
        if (!program::IsCommunication(op.kind()) || program::IsToHost(op)) continue;
        const bool beside = parts_ > 0 || (options.beside && program::MayOverlap(op.kind()));
        note(op.inputs, beside, beside_in);
        note(op.outputs, beside, beside_out);
    }
    transfer_sizes_ = {operand_bytes_, operand_bytes_,
                       std::min(operand_bytes_, HostSignal::kMostBytes), most_handed};
    for (int place = 0; place < std::max(kOverlapPlaces, parts_); ++place) {
        transfer_sizes_.insert(transfer_sizes_.end(), {beside_in, beside_out});
    }
}

// ---- Allocating ---------------------------------------------------------------------------------

Status Buffers::Allocate(gpu::Device& device) {
    for (PoolBuffers& pool : pools_) WEFT_TRY(pool.Allocate(device));
    ring_.clear();
    for (size_t i = 0; i < std::min(streamed_.size(), kRingPlaces); ++i) {
        WEFT_ASSIGN(gpu::Buffer place, device.Allocate(place_bytes_, gpu::Place::kDevice));
        ring_.push_back(std::move(place));
    }
    transfers_.clear();
    for (const uint64_t size : transfer_sizes_) {
        gpu::Buffer& buffer = transfers_.emplace_back();
        if (size == 0) continue;
        WEFT_ASSIGN(buffer, device.Allocate(size, gpu::Place::kMeeting));
    }
    WEFT_ASSIGN(read_, device.Allocate(kReadBytes, gpu::Place::kHost));
    WEFT_ASSIGN(wanted_, device.Allocate(top_bytes_ + whole_bytes_, gpu::Place::kHost));
    Place(*program_);
    return {};
}

void Buffers::Place(const program::Program& program) {
    const size_t count = program.values.size();
    weight_places_.assign(count, {});
    caches_.assign(count, {});
    cache_list_.clear();
    for (size_t i = 0; i < count; ++i) {
        const auto id = static_cast<ValueId>(i);
        const program::Value& value = program.values[i];
        const program::Shape& shape = value.shape;
        if (value.storage == program::Storage::kWeight && !HoldsVectors(shape)) {
            weight_places_[i] = {value.dtype, shape.rank == 3 ? shape[0] : 1, shape[shape.rank - 2],
                                 shape[shape.rank - 1], At(id, 0).address()};
        } else if (value.storage == program::Storage::kState) {
            caches_[i] = {
                value.dtype,         shape[0], page_tokens_ / value.row_positions, shape[1],
                At(id, 0).address(), kv_pages_};
            cache_list_.push_back(caches_[i]);
        }
    }
}

}  // namespace weft::backend::on_gpu
