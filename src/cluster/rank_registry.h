// Ranks that come one by one, in any order, until all of a job are there.
//
// Whoever has come is kept by heartbeats (control.h); who is lost before all are there ends
// nothing, but is waited for again. The three ways to come share this: workers that rank 0 dials
// (dial.h), workers that dial rank 0 (dial_in.h), ranks of a launcher (gather.h).
#pragma once

#include <atomic>
#include <functional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "cluster/channel.h"

namespace weft::cluster {

// A rank that is there: its connection, on which both ends proved the key.
struct Arrival {
    Fd fd;
    Session session;
    std::string host{};  // the name it gives itself; "": rank 0 has one for it
    int rank = 0;
    std::string from{};  // its address, where it dialled in
    Bytes unread{};      // of its next frame
};
Channel ChannelOf(Arrival arrival);
// "b (10.0.0.2:51840)".
std::string WhoCame(const Arrival& arrival);

// Where they go. Thread: any.
class RankRegistry {
  public:
    virtual ~RankRegistry() = default;
    // Takes a rank whose place is free.
    virtual void Take(Arrival arrival) = 0;
    struct Gone {
        int rank;
        std::string why;
    };
    // Those that were lost since it was last asked; their places are free again.
    virtual std::vector<Gone> TakeGone() = 0;
    // All are there: from here on a loss is the job's. False: some are gone by now.
    virtual bool Complete() = 0;
};

struct Gathering {
    int64_t timeout_ms = 5000;  // of the job: how long a rank may be silent
    Deadline deadline;          // for all to be there
    // May be null. The user's wish to stop.
    const std::atomic<bool>* stop = nullptr;
    bool may_return = true;  // who is lost may come again; else that ends the wait
};

// Who is here of ranks 1 to size - 1. Thread: one.
class RendezvousState {
  public:
    RendezvousState(int size, RankRegistry& registry, const Gathering& gathering);

    bool Has(int rank) const { return here_[static_cast<size_t>(rank)]; }
    std::vector<int> Missing() const;
    // A rank whose place is taken is hung up on.
    void Take(Arrival arrival);
    // Asks who has left, and whether all are here. Errors: kCancelled (the user's wish), kPeerLost.
    Result<bool> Complete();
    // While some are missing: says so after a second and a half, and then every ten.
    void Tell(const std::function<std::string()>& text);
    bool expired() const { return gathering_.deadline.expired(); }

  private:
    RankRegistry& registry_;
    const Gathering gathering_;
    std::vector<bool> here_;
    Deadline quiet_;
};

// "35 s", "10 min", of at least a second.
std::string SecondsText(int64_t ms);

}  // namespace weft::cluster
