// The groups of ranks that training talks in, over the links of one Fabric.
#pragma once

#include <memory>

#include "backend/executable.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "coll/comm.h"
#include "train/parallel/layout.h"

namespace weft::train {

// Values to and from neighbouring stages. Sends go out on a thread of their own, so that two
// stages that send to each other at once (one forward, one backward) never wait for each other;
// at most two values wait to be sent each way. Where stages have several chunks, the last stage is
// the neighbour before the first, and peers are numbers of chunks (layout.h).
class StageMail final : public backend::StageLinks {
  public:
    // Groups of two, one for what goes forward and one for what goes back, and which of the two the
    // neighbour is. Both null where there is none.
    struct Neighbour {
        std::unique_ptr<coll::Comm> forward, backward;
        int place = 0;
    };
    StageMail(const TrainLayout& layout, Neighbour next, Neighbour previous);
    ~StageMail() override;
    Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override;
    // The Sends and Recvs to come are of this chunk of the stage.
    void SetChunk(int chunk) { number_ = chunk * layout_.pp() + layout_.stage; }
    // Whole values: once all that was given to Send is on its way.
    uint64_t sent_bytes() const;

  private:
    class Sender;
    bool IsNext(int peer) const { return peer / layout_.tp() == number_ + 1; }
    const TrainLayout layout_;
    int number_ = 0;  // on the way of a micro-batch
    Neighbour next_, previous_;
    std::unique_ptr<Sender> to_next_, to_previous_;
};

// Null where there is nobody else in a group.
struct TrainGroups {
    std::unique_ptr<coll::Comm> world, tensor, data;
    std::unique_ptr<StageMail> stages;
    // The first and the last stage's ranks that hold the same rows of a tensor that both have.
    std::unique_ptr<coll::Comm> tied;

    // By this rank, in all of them, since they were made (coll::Comm::sent_bytes).
    uint64_t sent_bytes() const;
    backend::Communicators ForSteps() const {
        return {tensor.get(), stages.get(), data.get(), tied.get(), world.get()};
    }
};

// Whether any link goes over MPI, whose calls are all one thread's.
bool UsesMpi(const net::Fabric& fabric);

// Waits in these groups are long, for ranks come to a collective when their work is done: who is
// lost is found out by the cluster's heartbeats, which end every wait. Errors: coll's;
// kUnsupported (pipelines over MPI).
Result<TrainGroups> JoinGroups(cluster::Cluster& cluster, const TrainLayout& layout);

}  // namespace weft::train
