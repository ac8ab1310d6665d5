// Communicators: the ranks that a Program's transfers run over.
#pragma once

#include <cstddef>
#include <span>

#include "base/result.h"
#include "coll/comm.h"
#include "net/link.h"

namespace weft::backend {

// Values to and from the ranks that hold other stages of the same pipeline: the peers of a
// Program's Send and Recv. Values between two ranks arrive in the order in which they were sent.
class StageLinks {
  public:
    virtual ~StageLinks() = default;
    // Returns once `data` may be reused, whether or not the peer has received it.
    virtual Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) = 0;
    virtual Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) = 0;
};

// By sends and receives of a group; a peer is a rank of the group.
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

// What the addends of an all_reduce cross the links as. kF64: as they are in memory, of whatever
// type. Else each is rounded to float32 first, where it is not that already, and then to the wire's
// type (coll/wire.h); they are summed in float32. kAuto: not chosen yet, never that of a step.
enum class SumWire { kAuto, kF64, kF32, kBF16, kQ8 };

// Null where the Program has no transfers of a kind.
struct Communicators {
    coll::Comm* tensor = nullptr;
    StageLinks* stages = nullptr;
    // Of training alone.
    coll::Comm* data = nullptr;   // of zero_all_gather and zero_reduce_scatter
    coll::Comm* tied = nullptr;   // the first and the last stage's ranks of one tensor
    coll::Comm* world = nullptr;  // of all ranks
    // Of inference alone: that of the tensor group's sums. The same on all its ranks.
    SumWire wire = SumWire::kF64;
};

}  // namespace weft::backend
