// Communicators: the ranks that a Program's transfers run over.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "coll/comm.h"
#include "net/link.h"

namespace weft::backend {

// Sends and receives values between pipeline stages, for the Send and Recv ops of a Program. A rank
// receives the values of one peer in the order in which the peer sent them.
class StageLinks {
  public:
    virtual ~StageLinks() = default;
    // Returns once the caller may overwrite `data`. The peer may not have received it yet.
    virtual Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) = 0;
    virtual Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) = 0;
};

// StageLinks that use the sends and receives of a coll::Comm; `peer` is a rank of that Comm.
class CommLinks final : public StageLinks {
  public:
    explicit CommLinks(coll::Comm& comm) : comm_(comm) {}
    Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override {
        return comm_.Send(data, peer, tag);
    }
    Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override {
        return comm_.Recv(data, peer, tag);
    }

  private:
    coll::Comm& comm_;
};

// Element type in which an all_reduce sends its addends. kF64: the type of the addends in memory.
// With the other types, each addend is rounded to float32 (unless it is float32 already) and then
// to the wire type (coll/wire.h); the sums are float32. kAuto: not chosen yet; a step never has
// this value.
enum class SumWire { kAuto, kF64, kF32, kBF16, kQ8 };

// Rows [begin, begin + count) of a transfer.
struct RowRange {
    int64_t begin = 0, count = 0;
    bool operator==(const RowRange&) const = default;
};

// Communicators of a step. A null pointer means that the Program has no transfers of that kind.
struct Communicators {
    coll::Comm* tensor = nullptr;
    StageLinks* stages = nullptr;
    // Training only.
    coll::Comm* data = nullptr;     // for zero_all_gather and zero_reduce_scatter
    coll::Comm* tied = nullptr;     // ranks of the first and last stage that share a tensor
    coll::Comm* world = nullptr;    // all ranks
    coll::Comm* context = nullptr;  // for all_to_all
    // Inference only: the wire type of sums over the tensor group. All ranks of that group have the
    // same one.
    SumWire wire = SumWire::kF64;
    // The wire type of rows of prompts (StepSequence::prompt_rows). A device that runs a transfer
    // sets prompt_rows to the rows of this transfer that belong to prompts, ascending.
    SumWire prompt_wire = SumWire::kF64;
    std::span<const RowRange> prompt_rows{};
    // Whether steps may run in parts: every rank of the tensor group can (Executable::HasParts).
    bool parts = true;
    // The group that divides the rows of a step (program::RowShare); null: none does.
    const coll::Comm* rows() const { return context != nullptr ? context : tensor; }
};

}  // namespace weft::backend
