// The communicators of a training rank, over the links of one Fabric.
#pragma once

#include <memory>

#include "backend/executable.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "coll/comm.h"
#include "train/parallel/layout.h"

namespace weft::train {

// Sends values to neighboring stages, and receives values from them. A separate thread sends, so
// two stages that send to each other at once (one forward, one backward) never wait for each other.
// At most two values wait to be sent in each direction. With several chunks per stage, the last
// stage and the first stage are neighbors, too, and a `peer` is the number of a chunk (layout.h).
class StageMail final : public backend::StageLinks {
  public:
    // Two communicators of this rank and the neighbor, one for the forward and one for the backward
    // direction, and the neighbor's rank in both (place). Both null: there is no neighbor.
    struct Neighbour {
        std::unique_ptr<coll::Comm> forward, backward;
        int place = 0;
    };
    StageMail(const TrainLayout& layout, Neighbour next, Neighbour previous);
    ~StageMail() override;
    Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override;
    // Sets the chunk of the stage to which the next Sends and Recvs belong.
    void SetChunk(int chunk) { number_ = chunk * layout_.pp() + layout_.stage; }
    // Number of bytes sent. Call it after all values given to Send have been sent.
    uint64_t sent_bytes() const;

  private:
    class Sender;
    bool IsNext(int peer) const { return peer / layout_.tp() == number_ + 1; }
    const TrainLayout layout_;
    int number_ = 0;  // position of the chunk in the pipeline
    Neighbour next_, previous_;
    std::unique_ptr<Sender> to_next_, to_previous_;
};

// All communicators of a rank. One is null if this rank is alone in its group.
struct TrainGroups {
    std::unique_ptr<coll::Comm> world, tensor, data, context;
    std::unique_ptr<StageMail> stages;
    // This rank's group for tied embeddings: ranks of the first and the last stage that hold the
    // same rows of the tied tensor.
    std::unique_ptr<coll::Comm> tied;

    // Bytes sent by this rank in all groups since their creation (coll::Comm::sent_bytes).
    uint64_t sent_bytes() const;
    backend::Communicators ForSteps() const {
        return {tensor.get(), stages.get(), data.get(), tied.get(), world.get(), context.get()};
    }
};

// The data links that the groups of a job with `ranks` ranks use. layout: of any rank. Up to 64
// ranks, and if a data or tensor group has all ranks, each rank has a link to each other, except in
// a pipeline of 3 to 6 ranks: its links join neighbors, and rank 0 with each rank.
cluster::LinkNeeds LinksOf(const TrainLayout& layout, int ranks);

// Whether any link uses MPI, whose calls must all come from one thread.
bool UsesMpi(const net::Fabric& fabric);

// Makes the communicators. Waits in these groups may be long, because each rank reaches a
// collective only when its work is done. The cluster's heartbeats detect lost ranks and end every
// wait. Errors: errors of coll/; kUnsupported (pipeline stages over MPI).
Result<TrainGroups> JoinGroups(cluster::Cluster& cluster, const TrainLayout& layout);

}  // namespace weft::train
