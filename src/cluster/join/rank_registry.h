// Collects ranks that connect one by one, in any order, until all ranks of a job are connected.
//
// Heartbeats keep the connections of these ranks (control.h). If such a rank is lost, the wait
// continues, and another process can become this rank. Three callers use this: for workers that
// rank 0 dials (dial.h), workers that dial rank 0 (dial_in.h), and ranks of a launcher (gather.h).
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "cluster/channel.h"

namespace weft::cluster {

// A connected rank; both ends of the connection proved the key.
struct Arrival {
    Fd fd;
    Session session;
    std::string host{};  // the host's own name; "": rank 0 knows a name
    int rank = 0;
    std::string from{};  // its address, if it dialed in
    Bytes unread{};      // first bytes of its next frame
};
Channel ChannelOf(Arrival arrival);
// "b (10.0.0.2:51840)".
std::string ArrivalText(const Arrival& arrival);

// Receives the ranks. Thread: any.
class RankRegistry {
  public:
    virtual ~RankRegistry() = default;
    // Adds a rank. If its place is taken, the caller ends the job.
    virtual void Take(Arrival arrival) = 0;
    struct Gone {
        int rank;
        std::string why;
    };
    // The ranks lost since the last call; their places are free again.
    virtual std::vector<Gone> TakeGone() = 0;
    // Hangs up on a rank that was taken, with the reason; its place is free again.
    virtual void Release(int rank, const std::string& why) = 0;
    // Call it when all ranks are connected: from now on, a loss ends the job. Returns false if a
    // rank has been lost meanwhile.
    virtual bool Complete() = 0;
};

struct Gathering {
    int64_t timeout_ms = 5000;  // silence after which a rank of the job is lost
    Deadline deadline;          // for all ranks to come
    // May be null. The user's request to stop.
    const std::atomic<bool>* stop = nullptr;
    bool may_return = true;   // a lost rank may come again; false: it ends the wait
    uint64_t ticket = 0;      // of the job, for busy workers (waiting_line.h)
    bool calls_back = false;  // lost ranks of the running job
    std::string place{};      // rank 0's address, which a launcher's ranks dial; for messages
};

// Tracks which of the ranks 1 to size - 1 are connected. Thread: one.
class RendezvousState {
  public:
    RendezvousState(int size, RankRegistry& registry, const Gathering& gathering);

    bool Has(int rank) const { return here_[static_cast<size_t>(rank)]; }
    std::vector<int> Missing() const;
    // Hangs up on a rank whose place is taken.
    void Take(Arrival arrival);
    // Releases all ranks that are connected.
    void ReleaseAll(const std::string& why);
    // Removes lost ranks. Returns whether all ranks are connected. Errors: kCancelled (a stop
    // request), kPeerLost.
    Result<bool> Complete();
    // Logs missing ranks, after 1.5 seconds and then every ten.
    void Tell(const std::function<std::string()>& text);
    bool expired() const { return gathering_.deadline.expired(); }

  private:
    RankRegistry& registry_;
    const Gathering gathering_;
    std::vector<bool> here_;
    Deadline quiet_;
};

// "35 s", "10 min"; at least a second.
std::string SecondsText(int64_t ms);

}  // namespace weft::cluster
