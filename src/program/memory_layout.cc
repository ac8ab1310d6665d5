#include "program/memory_layout.h"

namespace weft::program {
namespace {

int64_t RoundUp(int64_t bytes, int64_t to) {
    return (bytes + to - 1) / to * to;
}

Pool PoolOf(Storage storage) {
    switch (storage) {
        case Storage::kWeight: return Pool::kWeight;
        case Storage::kGradient: return Pool::kGradient;
        case Storage::kOptimizer: return Pool::kOptimizer;
        case Storage::kState:
        case Storage::kSlots: return Pool::kCache;
        case Storage::kInput: return Pool::kInput;
        case Storage::kActivation:
        case Storage::kView: break;
    }
    return Pool::kNone;
}

int64_t BytesOf(const Program& program, ValueId id, const LayoutOptions& options) {
    const Value& value = program.value(id);
    if (value.storage == Storage::kState) return StateBytes(value, options.positions);
    if (value.storage == Storage::kSlots) return SlotBytes(value) * options.state_slots;
    if (value.storage == Storage::kWeight && options.weight_bytes) return options.weight_bytes(id);
    return RowBytes(value.dtype, value.shape.Elements(options.tokens, options.outputs));
}

}  // namespace

MemoryLayout::MemoryLayout(const ChunkedProgram& chunked, const LayoutOptions& options) {
    places_.resize(chunked.program.values.size());
    PlaceLasting(chunked.program, options);
    PlaceActivations(chunked, options);
    PlaceViews(chunked.program);
    for (const Pool pool : {Pool::kInput, Pool::kKept}) {
        int64_t& bytes = bytes_[Index(pool)];
        if (options.slots > 1 && options.block_bytes > 0)
            bytes = RoundUp(bytes, options.block_bytes);
        strides_[Index(pool)] = bytes;
        bytes *= options.slots;
    }
}

void MemoryLayout::PlaceLasting(const Program& program, const LayoutOptions& options) {
    for (size_t i = 0; i < places_.size(); ++i) {
        const Pool pool = PoolOf(program.values[i].storage);
        if (pool == Pool::kNone) continue;
        int64_t& size = bytes_[Index(pool)];
        const int64_t bytes =
            RoundUp(BytesOf(program, static_cast<ValueId>(i), options), options.align);
        places_[i] = {pool, WithinBlock(size, bytes, options.block_bytes)};
        size = places_[i].offset + bytes;
        const bool large = options.block_bytes > 0 && bytes > options.block_bytes;
        if (large) size = RoundUp(size, options.block_bytes);
    }
}

void MemoryLayout::PlaceActivations(const ChunkedProgram& chunked, const LayoutOptions& options) {
    const Program& program = chunked.program;
    if (chunked.chunks.empty()) {
        const auto plan = options.in_halves ? PlanArenaInHalves : PlanArena;
        return Put(plan(program, options.tokens, options.outputs, options.keep), Pool::kBrief);
    }
    const TrainingArenaPlan plan =
        PlanTrainingArena(chunked, options.tokens, options.outputs,
                          {options.slots > 1, options.overlap, options.block_bytes});
    Put(plan.kept, Pool::kKept);
    Put(plan.brief, Pool::kBrief);
}

void MemoryLayout::Put(const ArenaPlan& plan, Pool pool) {
    bytes_[Index(pool)] = plan.size_bytes;
    for (size_t i = 0; i < places_.size(); ++i) {
        if (plan.offsets[i] >= 0) places_[i] = {pool, plan.offsets[i]};
    }
}

void MemoryLayout::PlaceViews(const Program& program) {
    for (size_t i = 0; i < places_.size(); ++i) {
        const Value& value = program.values[i];
        if (value.storage != Storage::kView) continue;
        places_[i] = PlaceOf(value.base);
        places_[i].offset += RowBytes(value.dtype, value.base_begin);
    }
}

}  // namespace weft::program
