// Where the values of a Program live on a Vulkan device. Planned first, so that what does not fit
// is refused before anything is read; allocated by Allocate.
//
// Weights and KV caches are pieces of blocks of at most 1 GiB, a larger value is a block of its
// own. Activations share one arena. What the host reads or writes between submissions (operands of
// transfers, what Read() gets) lies in mapped memory.
//
// Thread: one caller, but for the const functions.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backend/executable.h"
#include "backend/vulkan/dispatch.h"
#include "backend/vulkan/gate.h"
#include "backend/vulkan/weights.h"
#include "base/result.h"
#include "gpu/device.h"
#include "program/program.h"

namespace weft::backend::vulkan {

// A range of one of many buffers.
struct Piece {
    size_t block = 0;
    uint64_t offset = 0, bytes = 0;
};

// Buffers that hold many values.
class Blocks {
  public:
    static constexpr uint64_t kAlign = 256;
    static constexpr uint64_t kMostBytes = uint64_t{1} << 30;

    Piece Take(uint64_t bytes);
    uint64_t total_bytes() const;
    // Whether the device has buffers as large as the largest value. what: for errors.
    // Errors: kUnsupported.
    Status CheckSizes(const gpu::Device& device, const std::string& what) const;
    // Errors: kOutOfMemory.
    Status Allocate(gpu::Device& device);
    const gpu::Buffer& buffer(const Piece& piece) const { return buffers_[piece.block]; }
    uint64_t Address(const Piece& piece) const { return buffer(piece).address() + piece.offset; }
    std::byte* Host(const Piece& piece) const {
        std::byte* const host = buffer(piece).host();
        return host == nullptr ? nullptr : host + piece.offset;
    }
    std::span<const gpu::Buffer> buffers() const { return buffers_; }

  private:
    std::vector<uint64_t> sizes_;
    std::vector<gpu::Buffer> buffers_;
};

// A stack of vectors [m, 1, n] holds floats, as vectors do.
bool HoldsVectors(const program::Shape& shape);

class Buffers {
  public:
    // lives: the Program, as the plan of the arena must see it (Fusion::LivesOf). `program` must
    // live as long as this. Errors: kUnsupported, naming the value whose type no kernel takes.
    Status Plan(const program::Program& program, const program::Program& lives,
                const CompileOptions& options);
    Status CheckSizes(const gpu::Device& device) const {
        WEFT_TRY(weights_.CheckSizes(device, "a weight"));
        return kv_.CheckSizes(device, "a layer's KV cache");
    }
    Status Allocate(gpu::Device& device);

    uint64_t weight_bytes() const { return weights_.total_bytes(); }
    uint64_t kv_bytes() const { return kv_.total_bytes(); }
    uint64_t arena_bytes() const {
        return arena_bytes_ + TransferBytes() + kReadBytes + kTopBytes + kWholeBytes;
    }

    // Of what lies where, by ValueId.
    const Piece& WeightPiece(program::ValueId id) const { return pieces_[Index(id)]; }
    const WeightLayout& Layout(program::ValueId id) const { return layouts_[Index(id)]; }
    const Blocks& weights() const { return weights_; }
    std::span<const gpu::Buffer> kv() const { return kv_.buffers(); }
    std::span<const CachePlace> caches() const { return cache_list_; }

    // Once allocated.
    uint64_t Address(program::ValueId id) const { return addresses_[Index(id)]; }
    const WeightPlace& Weight(program::ValueId id) const { return weight_places_[Index(id)]; }
    const CachePlace& Cache(program::ValueId id) const { return caches_[Index(id)]; }
    const gpu::Buffer& arena() const { return arena_; }
    uint64_t ArenaOffset(program::ValueId id) const {
        return static_cast<uint64_t>(plan_.offsets[Index(id)]);
    }
    bool InArena(program::ValueId id) const { return plan_.offsets[Index(id)] >= 0; }

    // The operand of a transfer that goes to other ranks, and the one that comes from them. What
    // goes to them by the gate has a place of its own: copies have no guard, so that a submission
    // which has given up fills in the others while the host still reads this.
    const gpu::Buffer& transfers() const { return transfers_; }
    uint64_t InOffset() const { return 0; }
    uint64_t OutOffset() const { return operand_bytes_; }
    uint64_t ExchangeOffset() const { return 2 * operand_bytes_; }
    // What Read() and ReadTop() get by submissions of their own.
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
    void PlanTransfers(const program::Program& program, const CompileOptions& options);
    uint64_t TransferBytes() const {
        return 2 * operand_bytes_ + std::min(operand_bytes_, Gate::kMostBytes);
    }
    void Place(const program::Program& program);

    const program::Program* program_ = nullptr;
    int64_t page_tokens_ = 0, kv_pages_ = 0;
    program::ArenaPlan plan_;
    uint64_t arena_bytes_ = 0;
    uint64_t operand_bytes_ = 0;  // of a transfer, at most
    Blocks weights_, kv_;
    std::vector<Piece> pieces_;
    std::vector<WeightLayout> layouts_;
    std::vector<uint64_t> addresses_;
    std::vector<WeightPlace> weight_places_;
    std::vector<CachePlace> caches_, cache_list_;
    gpu::Buffer arena_, transfers_, read_, wanted_;
};

}  // namespace weft::backend::vulkan
