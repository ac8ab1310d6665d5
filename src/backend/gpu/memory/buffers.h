// Memory of a Program's values on a Vulkan device. Plan() computes the sizes, so that Weft can
// refuse a Program that does not fit before it reads any weights. Allocate() allocates the memory.
//
// Values are placed in pools (program/memory_layout.h). Each pool is a list of buffers of at most 1
// GiB; a value larger than that has its own buffer. Memory that is mapped for the host holds the
// operands of transfers and the results of Read(). The inputs of a step are in tables
// (step_tables.h).
//
// Thread: one caller, except for const functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "backend/gpu/device/host_signal.h"
#include "backend/gpu/dispatch/dispatch.h"
#include "backend/gpu/dispatch/weights.h"
#include "base/result.h"
#include "gpu/device.h"
#include "program/memory_layout.h"

namespace weft::backend::on_gpu {

// Alignment of each value in its buffer, in bytes.
inline constexpr uint64_t kBufferAlign = 256;

// The place of a byte: a buffer and the offset in it.
struct Spot {
    const gpu::Buffer* buffer = nullptr;
    uint64_t offset = 0;
    uint64_t address() const { return buffer->address() + offset; }
};

// The buffers of one pool. A buffer ends where its last value ends.
class PoolBuffers {
  public:
    static constexpr uint64_t kMostBytes = uint64_t{1} << 30;
    // A byte range of the pool.
    struct Range {
        uint64_t begin = 0, end = 0;
    };
    // ends: offsets in the pool at which the buffers end, ascending. Each value lies in one buffer.
    void Plan(const std::vector<uint64_t>& ends, std::span<const Range> values);
    uint64_t total_bytes() const {
        return std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{0});
    }
    uint64_t largest_bytes() const;  // size of the largest buffer
    // Errors: kOutOfMemory.
    Status Allocate(gpu::Device& device);
    Spot At(uint64_t offset) const;
    std::span<const gpu::Buffer> buffers() const { return buffers_; }

  private:
    size_t BufferOf(uint64_t offset) const;
    uint64_t BeginOf(size_t buffer) const { return buffer == 0 ? 0 : ends_[buffer - 1]; }

    std::vector<uint64_t> ends_, sizes_;  // of each buffer
    std::vector<gpu::Buffer> buffers_;
};

// Places of a transfer's operands in memory of the host. The operand at `in` is sent to other
// ranks; the operand at `out` is received.
struct OperandPlace {
    Spot in, out;
};

// A buffer that an executable allocates.
struct PlannedBuffer {
    const char* what = "";  // "a weight"
    uint64_t bytes = 0;
    bool of_weight = false;  // steps of fewer rows do not make it smaller
};

class Buffers {
  public:
    // lives: the Program from which the lifetimes of values are read to plan the arena, the memory
    // of activations (Fusion::LivesOf). `chunked` must outlive this object. Steps may run in parts
    // if MostParts(program, options) > 0. Errors: kUnsupported (names the value whose type no
    // kernel supports).
    Status Plan(const program::ChunkedProgram& chunked, const program::Program& lives,
                const CompileOptions& options);
    // The buffers that Allocate() makes; of each pool, only the largest one.
    std::vector<PlannedBuffer> Planned() const;
    Status Allocate(gpu::Device& device);

    // Weights, gradients and optimizer state, and the places of streamed weights.
    uint64_t weight_bytes() const;
    uint64_t kv_bytes() const { return Pool(program::Pool::kCache).total_bytes(); }
    uint64_t arena_bytes() const {
        return Pool(program::Pool::kKept).total_bytes() +
               Pool(program::Pool::kBrief).total_bytes() + host_bytes();
    }
    // The part of arena_bytes() in memory of the host, if the device has its own memory.
    uint64_t host_bytes() const {
        return std::accumulate(transfer_sizes_.begin(), transfer_sizes_.end(),
                               kReadBytes + top_bytes_ + whole_bytes_);
    }

    const PoolBuffers& Pool(program::Pool pool) const { return pools_[static_cast<size_t>(pool)]; }
    // The planes of weight `id`, which has two or three dimensions.
    const WeightLayout& Layout(program::ValueId id) const { return layouts_[Index(id)]; }
    std::span<const CachePlace> caches() const { return cache_list_; }
    // Whether a step of this shape runs the op (program::Way).
    bool Runs(size_t op, const StepShape& shape) const {
        return ways_.empty() || ways_[op] == program::Way::kAlways ||
               (ways_[op] == program::Way::kStreamed) == shape.streams;
    }
    // The streamed weights (program::StreamedWeights): weight i uses slot i mod kRingPlaces of the
    // ring (weight_ring.h). Three slots suffice for two weights of one kernel while the next weight
    // arrives. StreamedIndex: -1 for other values.
    static constexpr size_t kRingPlaces = 3;
    std::span<const program::ValueId> streamed() const { return streamed_; }
    int64_t StreamedIndex(program::ValueId id) const {
        return streamed_.empty() ? -1 : streamed_index_[Index(id)];
    }
    bool InArena(program::ValueId id) const {
        const program::Pool pool = layout_.PlaceOf(id).pool;
        return pool == program::Pool::kKept || pool == program::Pool::kBrief;
    }
    // Whether the value has memory in these buffers; inputs have none.
    bool Has(program::ValueId id) const {
        const program::Pool pool = layout_.PlaceOf(id).pool;
        return pool != program::Pool::kNone && pool != program::Pool::kInput;
    }

    // Valid after Allocate(). slot: the slot of training, or the number (from 1) of a part of a
    // step in parts (step_parts.h). The parts share the memory of the whole step's arena.
    Spot At(program::ValueId id, int slot) const {
        if (const int64_t streamed = StreamedIndex(id); streamed >= 0) {
            return {&ring_[static_cast<size_t>(streamed) % kRingPlaces], 0};
        }
        if (parts_ > 0 && slot > 0 && layout_.PlaceOf(id).pool == program::Pool::kBrief) {
            return Pool(program::Pool::kBrief)
                .At(static_cast<uint64_t>(slot - 1) * part_bytes_ +
                    static_cast<uint64_t>(part_layout_.OffsetOf(id, 0)));
        }
        return Pool(layout_.PlaceOf(id).pool).At(static_cast<uint64_t>(layout_.OffsetOf(id, slot)));
    }
    const WeightPlace& Weight(program::ValueId id) const { return weight_places_[Index(id)]; }
    const CachePlace& Cache(program::ValueId id) const { return caches_[Index(id)]; }

    // The operands of a transfer. Each place has a buffer of its own, so that none is larger than
    // the operand's value. An operand that is sent through the host signal has a separate place,
    // Exchange(). The reason: after a submission has given up an exchange, its kernels do nothing
    // (guard.glsl), but its copies still run. The copies may overwrite the operands of other
    // transfers while the host still reads the operand of the exchange.
    OperandPlace PlaceOfTransfer() const { return {{&transfers_[0], 0}, {&transfers_[1], 0}}; }
    Spot Exchange() const { return {&transfers_[2], 0}; }
    uint64_t operand_bytes() const { return operand_bytes_; }  // of the largest operand
    // For transfers that run beside submissions (CompileOptions::beside). At most kOverlapPlaces
    // such transfers run at once. Each has its own buffer for its operands; these buffers are
    // numbered from 0 to kOverlapPlaces - 1. In a step in parts, each part has such a buffer.
    static constexpr int kOverlapPlaces = 2;
    OperandPlace OverlapPlace(int place) const {
        const size_t first = kOverlaps + 2 * static_cast<size_t>(place);
        return {{&transfers_[first], 0}, {&transfers_[first + 1], 0}};
    }
    // The values that the device hands to the host's processor for a run (program/placement.h), one
    // after another. HandedBytes: the space for a value of this size.
    static uint64_t HandedBytes(uint64_t bytes);
    Spot HandedAt(uint64_t offset) const { return {&transfers_[kHanded], offset}; }
    // Results of Read() and ReadTopK(), which submit commands of their own outside of steps.
    static constexpr uint64_t kReadBytes = uint64_t{4} << 20;
    const gpu::Buffer& read() const { return read_; }
    // Results that steps copy to the host (WantedRows): first the largest elements as Candidate
    // [rows, top], then, from byte top_bytes() on, whole rows of at most whole_bytes() in all.
    // The buffer holds CompileOptions::max_outputs rows: the kMostTop largest elements of each, and
    // the rows of each kept value, up to kMostWholeBytes.
    static constexpr int64_t kMostTop = 64;
    static constexpr uint64_t kMostWholeBytes = uint64_t{64} << 20;
    uint64_t top_bytes() const { return top_bytes_; }
    uint64_t whole_bytes() const { return whole_bytes_; }
    const gpu::Buffer& wanted() const { return wanted_; }

  private:
    static size_t Index(program::ValueId id) { return static_cast<size_t>(id); }
    Status PlanWeight(const program::Value& value, size_t index);
    int64_t WeightBytes(program::ValueId id) const;
    void PlanPools(const CompileOptions& options);
    std::vector<PoolBuffers::Range> ValuesIn(program::Pool pool,
                                             const CompileOptions& options) const;
    void PlanWanted(const CompileOptions& options);
    void PlanTransfers(const program::Program& program, const CompileOptions& options);
    void Place(const program::Program& program);

    void PlanStreamed(const CompileOptions& options);
    uint64_t ring_bytes() const { return std::min(streamed_.size(), kRingPlaces) * place_bytes_; }

    const program::Program* program_ = nullptr;
    std::vector<program::Way> ways_;
    std::vector<program::ValueId> streamed_;
    std::vector<int64_t> streamed_index_;  // by value
    uint64_t place_bytes_ = 0;             // of a streamed weight
    bool trains_ = false;
    int64_t page_tokens_ = 0, kv_pages_ = 0;
    program::MemoryLayout layout_;
    int parts_ = 0;                      // most parts of a step; 0: steps do not run in parts
    program::MemoryLayout part_layout_;  // the arena of a part
    uint64_t part_bytes_ = 0;
    std::array<PoolBuffers, program::kPools> pools_;
    uint64_t operand_bytes_ = 0, whole_bytes_ = 0, top_bytes_ = 0;
    // The buffers of transfers: the operands of PlaceOfTransfer(), Exchange(), the values of a run,
    // and the operands of each OverlapPlace(). A size of 0: no such buffer.
    static constexpr size_t kHanded = 3, kOverlaps = 4;
    std::vector<uint64_t> transfer_sizes_;
    std::vector<gpu::Buffer> transfers_;
    std::vector<WeightLayout> layouts_;
    std::vector<WeightPlace> weight_places_;
    std::vector<CachePlace> caches_, cache_list_;
    std::vector<gpu::Buffer> ring_;
    gpu::Buffer read_, wanted_;
};

}  // namespace weft::backend::on_gpu
