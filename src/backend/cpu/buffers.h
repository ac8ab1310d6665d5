// Memory of a Program on the CPU: a mapping for each pool of its layout, and scratch memory.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "backend/cpu/call.h"
#include "backend/cpu/expert_store.h"
#include "backend/cpu/memory.h"
#include "backend/executable.h"
#include "kernels/dense/update.h"
#include "kernels/experts.h"
#include "kernels/kernels.h"
#include "program/memory_layout.h"

namespace weft::backend {

namespace dense = kernels::dense;

// Scratch memory of a lowered Program. The Program is lowered twice: the first lowering counts the
// bytes without allocating them; the second one uses the allocated memory.
class Scratch {
  public:
    // Memory that a call uses, or that passes data between calls. Requests with the same name get
    // the same memory, sized for the largest of them. PlaceBarriers orders accesses to scratch
    // memory as it does for all other memory.
    std::byte* Take(const std::string& name, int64_t bytes);
    // Scratch memory with a separate part for each thread, because threads may be in different
    // calls at the same time. All calls share this memory, sized for the largest request.
    std::byte* TakeOwn(int64_t bytes_of_thread);
    int64_t own_bytes() const { return own_bytes_; }

    std::span<const std::byte> bytes() const {
        return {memory_.data(), static_cast<size_t>(memory_.size_bytes())};
    }
    int64_t TotalBytes(int threads) const;
    // Ends the counting of bytes and allocates the memory.
    Status Allocate(int threads);

  private:
    struct Part {
        std::string name;
        int64_t bytes = 0, offset = 0;
    };
    std::vector<Part> parts_;
    int64_t own_bytes_ = 0;
    Memory memory_;
};

// Rows of a piece of a matrix that has about `bytes`, in whole strips.
int64_t PieceRows(const kernels::PackedMatrix& matrix, int64_t bytes);
// Reads `count` rows of a matrix from `row` on, and packs them. The matrix begins with row
// first_row of its weight. raw: memory for the rows.
Status LoadPiece(const kernels::PackedMatrix& matrix, int64_t row, int64_t count, int64_t first_row,
                 const RowSource& source, ExpertStore::Pack pack, std::vector<std::byte>& raw);

// Memory of all values.
class Buffers {
  public:
    // Allocates nothing. Before Allocate(), addresses are not valid; they serve only to count
    // bytes.
    Buffers(const program::ChunkedProgram& chunked, const CompileOptions& options,
            const kernels::Kernels& kernels, std::vector<int> cores = {});
    const program::ChunkedProgram& chunked() const { return chunked_; }
    const CompileOptions& options() const { return options_; }
    const kernels::Kernels& kernels() const { return kernels_; }
    // Errors: kOutOfMemory.
    Status Allocate();
    // Divides CompileOptions::drive_memory, if there is any: experts get what the other values and
    // the scratch memory of so many threads leave. Call this after LowerProgram. Errors:
    // kOutOfMemory.
    Status PlanDrive(int threads);
    // Reads a weight. Thread: several threads may load different weights at once.
    Status Load(program::ValueId id, const RowSource& source);
    // Executable::ReadRows, of one matrix.
    bool CanReadRows(program::ValueId id) const;
    void ReadRows(program::ValueId id, int64_t row_begin, int64_t count,
                  std::span<std::byte> out) const;

    // Address of a value's first byte; null: no op uses the value.
    std::byte* At(program::ValueId id, int slot = 0) const;
    int64_t SlotStride(program::ValueId id) const {
        return layout_.SlotStride(layout_.PlaceOf(id).pool);
    }
    std::span<std::byte> PoolBytes(program::Pool pool) const;
    // Weights in packed form. Only Programs without chunks have them; other weights are row-major.
    kernels::PackedMatrix matrix(program::ValueId id) const;
    kernels::PackedStack stack(program::ValueId id) const;
    kernels::KvCache cache(program::ValueId id) const;
    bool packs() const { return chunked_.chunks.empty(); }

    // Experts on the drive; empty: all weights are in memory.
    ExpertStore& experts() { return experts_; }
    const ExpertStore& experts() const { return experts_; }
    bool IsOnDrive(program::ValueId weight) const;

    Scratch& scratch() { return scratch_; }
    const Scratch& scratch() const { return scratch_; }
    // Lists that calls point to: one for each lowered op of adapters.
    std::deque<std::vector<kernels::AdapterPair>>& pairs() { return pairs_; }
    // Scalars of the running update.
    dense::UpdateNumbers& numbers() { return numbers_; }
    MemoryUse Use(int threads) const;

  private:
    bool IsAdapter(program::ValueId id) const;
    int64_t WeightBytes(program::ValueId id) const;
    int64_t StrideOf(program::ValueId stack) const;

    const program::ChunkedProgram& chunked_;
    const program::Program& program_;
    const CompileOptions& options_;
    const kernels::Kernels& kernels_;
    program::MemoryLayout layout_;
    std::array<Memory, program::kPools> pools_;
    bool allocated_ = false;
    std::deque<std::vector<kernels::AdapterPair>> pairs_;
    dense::UpdateNumbers numbers_;
    ExpertStore experts_;
    std::mutex loading_;  // of experts_
    Scratch scratch_;
};

}  // namespace weft::backend
