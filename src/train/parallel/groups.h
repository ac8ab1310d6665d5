// The groups of ranks that training talks in, over the links of one Fabric.
#pragma once

#include <memory>

#include "backend/cpu/training.h"
#include "base/result.h"
#include "cluster/cluster.h"
#include "coll/comm.h"
#include "train/parallel/layout.h"

namespace weft::train {

// Values to and from neighbouring stages. Sends go out on a thread of their own, so that two
// stages that send to each other at once (one forward, one backward) never wait for each other;
// at most so many bytes wait to be sent as one value each way.
class StageMail final : public backend::StageLinks {
  public:
    StageMail(const TrainLayout& layout, std::unique_ptr<coll::Comm> to_next_forward,
              std::unique_ptr<coll::Comm> to_next_backward,
              std::unique_ptr<coll::Comm> to_previous_forward,
              std::unique_ptr<coll::Comm> to_previous_backward);
    ~StageMail() override;
    Status Send(std::span<const std::byte> data, int peer, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int peer, const net::OpTag& tag) override;
    // Whole values: once all that was given to Send is on its way.
    uint64_t sent_bytes() const;

  private:
    class Sender;
    bool IsNext(int peer) const { return peer / layout_.tp() == layout_.stage + 1; }
    const TrainLayout layout_;
    std::unique_ptr<coll::Comm> next_forward_, next_backward_, previous_forward_,
        previous_backward_;
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
    backend::TrainingGroups ForSteps() const { return {tensor.get(), data.get(), stages.get()}; }
};

// Waits in these groups are long, for ranks come to a collective when their work is done: who is
// lost is found out by the cluster's heartbeats, which end every wait. Errors: coll's.
Result<TrainGroups> JoinGroups(cluster::Cluster& cluster, const TrainLayout& layout);

}  // namespace weft::train
