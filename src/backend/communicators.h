// Communicators: the ranks that a Program's transfers run over.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "coll/comm.h"
#include "net/link.h"

namespace weft::backend {

// Sends and receives values between pipeline stages: the transport of a Program's Send and Recv
// ops. Values between two ranks arrive in the order in which they were sent.
class StageLinks {
  public:
    virtual ~StageLinks() = default;
    // Returns once `data` may be reused, whether or not the peer has received it.
    virtual Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) = 0;
    virtual Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) = 0;
};

// StageLinks over a group's sends and receives; a peer is a rank of the group.
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

// Element type in which an all_reduce sends its addends. kF64: the addends' type in memory.
// Otherwise each addend is rounded to float32 (unless it is float32 already) and then to the wire
// type (coll/wire.h); the sums are float32. kAuto: not chosen yet; a step never has it.
enum class SumWire { kAuto, kF64, kF32, kBF16, kQ8 };

// Communicators of a step. Null: the Program has no transfers of that kind.
struct Communicators {
    coll::Comm* tensor = nullptr;
    StageLinks* stages = nullptr;
    // Training only.
    coll::Comm* data = nullptr;   // for zero_all_gather and zero_reduce_scatter
    coll::Comm* tied = nullptr;   // ranks of the first and last stage that share a tensor
    coll::Comm* world = nullptr;  // all ranks
    // Inference only: the wire type of the tensor group's sums. The same on all its ranks.
    SumWire wire = SumWire::kF64;
};

}  // namespace weft::backend
