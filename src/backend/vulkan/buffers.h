// Where the values of a Program live on a Vulkan device. Planned first, so that what does not fit
// is refused before anything is read; allocated by Allocate.
//
// A pool of the layout (program/memory_layout.h) is buffers of at most 1 GiB, a larger value has
// one of its own. What the host reads or writes between submissions (operands of transfers, what
// Read() gets) lies in mapped memory. Inputs of a step are tables (step_tables.h).
//
// Thread: one caller, but for the const functions.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/host_signal.h"
#include "backend/vulkan/weights.h"
#include "base/result.h"
#include "gpu/device.h"
#include "program/memory_layout.h"

namespace weft::backend::vulkan {

// All pieces of memory begin at multiples of it.
inline constexpr uint64_t kBufferAlign = 256;

// A byte of a buffer.
struct Spot {
    const gpu::Buffer* buffer = nullptr;
    uint64_t offset = 0;
    uint64_t address() const { return buffer->address() + offset; }
};

// A pool: one buffer after another. What no value of a buffer reaches is not allocated.
class PoolBuffers {
  public:
    static constexpr uint64_t kMostBytes = uint64_t{1} << 30;
    // Bytes of the pool.
    struct Range {
        uint64_t begin = 0, end = 0;
    };
    // ends: of the buffers, ascending; no value lies across one.
    void Plan(const std::vector<uint64_t>& ends, std::span<const Range> values);
    uint64_t total_bytes() const {
        return std::accumulate(sizes_.begin(), sizes_.end(), uint64_t{0});
    }
    uint64_t largest_bytes() const;  // of its buffers
    // Errors: kOutOfMemory.
    Status Allocate(gpu::Device& device);
    Spot At(uint64_t offset) const;
    std::span<const gpu::Buffer> buffers() const { return buffers_; }

  private:
    size_t BufferOf(uint64_t offset) const;
    uint64_t BeginOf(size_t buffer) const { return buffer == 0 ? 0 : ends_[buffer - 1]; }

    std::vector<uint64_t> ends_, sizes_;  // of each
    std::vector<gpu::Buffer> buffers_;
};

// A stack of vectors [m, 1, n] holds floats, as vectors do.
bool HoldsVectors(const program::Shape& shape);

// Where the operands of a transfer lie, in Buffers::transfers(): what goes to other ranks, and what
// comes from them.
struct OperandPlace {
    uint64_t in = 0, out = 0;
};

class Buffers {
  public:
    // lives: the Program, as the plan of the arena must see it (Fusion::LivesOf). `chunked` must
    // live as long as this. Errors: kUnsupported, naming the value whose type no kernel takes.
    Status Plan(const program::ChunkedProgram& chunked, const program::Program& lives,
                const CompileOptions& options);
    Status CheckSizes(const gpu::Device& device) const;
    Status Allocate(gpu::Device& device);

    // Weights, gradients and what an optimizer keeps.
    uint64_t weight_bytes() const;
    uint64_t kv_bytes() const { return Pool(program::Pool::kCache).total_bytes(); }
    uint64_t arena_bytes() const {
        return Pool(program::Pool::kKept).total_bytes() +
               Pool(program::Pool::kBrief).total_bytes() + TransferBytes() + kReadBytes +
               kTopBytes + kWholeBytes;
    }

    const PoolBuffers& Pool(program::Pool pool) const { return pools_[static_cast<size_t>(pool)]; }
    // The planes of weight `id`, which has two or three dimensions.
    const WeightLayout& Layout(program::ValueId id) const { return layouts_[Index(id)]; }
    std::span<const CachePlace> caches() const { return cache_list_; }
    bool InArena(program::ValueId id) const {
        const program::Pool pool = layout_.PlaceOf(id).pool;
        return pool == program::Pool::kKept || pool == program::Pool::kBrief;
    }
    // Whether it has memory here: inputs have none.
    bool Has(program::ValueId id) const {
        const program::Pool pool = layout_.PlaceOf(id).pool;
        return pool != program::Pool::kNone && pool != program::Pool::kInput;
    }

    // Once allocated.
    Spot At(program::ValueId id, int slot) const {
        return Pool(layout_.PlaceOf(id).pool).At(static_cast<uint64_t>(layout_.OffsetOf(id, slot)));
    }
    const WeightPlace& Weight(program::ValueId id) const { return weight_places_[Index(id)]; }
    const CachePlace& Cache(program::ValueId id) const { return caches_[Index(id)]; }

    // The operand of a transfer that goes to other ranks, and the one that comes from them. What
    // goes to them by the host signal has a place of its own: copies have no guard, so that a
    // submission which has given up fills in the others while the host still reads this.
    const gpu::Buffer& transfers() const { return transfers_; }
    uint64_t InOffset() const { return 0; }
    uint64_t OutOffset() const { return operand_bytes_; }
    uint64_t ExchangeOffset() const { return 2 * operand_bytes_; }
    // Of transfers that run beside submissions (CompileOptions::beside): so many may be under way,
    // each with operands in a place of its own, 0 to kPlacesBeside - 1.
    static constexpr int kPlacesBeside = 2;
    OperandPlace PlaceOfTransfer() const { return {InOffset(), OutOffset()}; }
    OperandPlace PlaceBeside(int place) const {
        const uint64_t begin =
            ExchangeOffset() + exchange_bytes() +
            static_cast<uint64_t>(place) * (beside_in_bytes_ + beside_out_bytes_);
        return {begin, begin + beside_in_bytes_};
    }
    // What Read() and ReadTopK() get by submissions of their own.
    static constexpr uint64_t kReadBytes = uint64_t{4} << 20;
    const gpu::Buffer& read() const { return read_; }
    // What steps bring along (WantedRows): Candidate [rows, top], and from kTopBytes on whole rows.
    static constexpr int64_t kMostTopRows = 64, kMostTop = 64;
    static constexpr uint64_t kTopBytes = kMostTopRows * kMostTop * sizeof(Candidate);
    static constexpr uint64_t kWholeBytes = uint64_t{4} << 20;
    const gpu::Buffer& wanted() const { return wanted_; }

  private:
    static size_t Index(program::ValueId id) { return static_cast<size_t>(id); }
    Status PlanWeight(const program::Value& value, size_t index);
    int64_t WeightBytes(program::ValueId id) const;
    void PlanPools(const CompileOptions& options);
    std::vector<PoolBuffers::Range> ValuesIn(program::Pool pool,
                                             const CompileOptions& options) const;
    void PlanTransfers(const program::Program& program, const CompileOptions& options);
    uint64_t exchange_bytes() const { return std::min(operand_bytes_, HostSignal::kMostBytes); }
    uint64_t TransferBytes() const { return PlaceBeside(kPlacesBeside).in; }
    void Place(const program::Program& program);

    const program::Program* program_ = nullptr;
    bool trains_ = false;
    int64_t page_tokens_ = 0, kv_pages_ = 0;
    program::MemoryLayout layout_;
    std::array<PoolBuffers, program::kPools> pools_;
    uint64_t operand_bytes_ = 0;  // of a transfer, at most
    uint64_t beside_in_bytes_ = 0, beside_out_bytes_ = 0;
    std::vector<WeightLayout> layouts_;
    std::vector<WeightPlace> weight_places_;
    std::vector<CachePlace> caches_, cache_list_;
    gpu::Buffer transfers_, read_, wanted_;
};

}  // namespace weft::backend::vulkan
