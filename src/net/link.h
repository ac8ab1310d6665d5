// Links: one-sided puts into a peer's registered memory, and flags.
//
// The one primitive of all communication: *put these bytes into my peer's window, then raise its
// flag*. Shared memory does it with a copy and a release store, TCP with a small header and a
// receiver that reads straight into the window, RDMA (later) with two WRITEs on one queue pair.
//
// A Link joins this rank to one peer. The peer owns a window of `window_bytes()` that only we
// write, and we own one that only it writes. Beside the window lie kFlags flags, each a 64-bit
// number that the writer only ever raises. Nothing is acknowledged: whoever reuses a part of a
// window must know from its own protocol (a flag that came back) that the peer has read it.
//
// Epochs: a link belongs to one epoch of the cluster; a frame of another epoch is dropped.
// Ends: a peer that destroys its Fabric says so, one that dies does not; a wait on either fails
// with kPeerLost at once, and names the rank that died if this rank saw one die.
// Deadlines: a wait that runs out asks the monitor. A peer that showed progress within the
// deadline's length is slow, not dead, and while any rank shows some, the peer may be waiting for
// that one: the wait goes on, as it does while bytes come. Otherwise the monitor words the error.
// Of a long wait the monitor hears before, so that it may end ranks that wait for each other.
// Thread: one at a time per Fabric (who drives communication), but for net/share.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"

namespace weft::net {

inline constexpr int kFlags = 16;

// Who a peer is, for error messages: "rank 2 (host b, tcp)".
struct PeerName {
    int rank = 0;
    std::string host;
    std::string transport;
    std::string Text() const;
};

// What a wait is part of, for error messages: "all_reduce #1482 of step 311".
struct OpTag {
    const char* op = "";
    int64_t index = 0;  // running number of the op in its Program
    int64_t step = 0;
    int64_t place = 0;   // how far the op has got: messages awaited so far
    bool aside = false;  // others compute on this core meanwhile: waits sleep at once
    std::string Text() const;
};

// Tells waits what the control plane knows. Implemented by cluster/; a null monitor is allowed.
class PeerMonitor {
  public:
    virtual ~PeerMonitor() = default;
    // Cheap (one relaxed load): has any rank of the cluster been lost, or was a stop asked for?
    virtual bool Failed() const = 0;
    // The cluster's verdict; only after Failed() was true.
    virtual Error Failure() const = 0;
    // The same, saying that it was noticed during `tag`.
    virtual Error FailureDuring([[maybe_unused]] const OpTag& tag) const { return Failure(); }
    // Milliseconds since `rank` last showed progress (its progress counter moved), so that a slow
    // peer is told from a dead one. -1: not known.
    virtual int64_t SilentMs(int rank) const = 0;
    // Milliseconds since any rank of the cluster did. -1: not known, SilentMs decides alone.
    virtual int64_t StillMs() const { return -1; }
    // A wait on `rank` has lasted for some milliseconds, or such a wait is over (rank -1): so the
    // cluster can tell who holds up whom.
    virtual void OnLongWait([[maybe_unused]] int rank, [[maybe_unused]] const OpTag& tag) {}
    // The calling thread's long wait goes on, and for still_ms nothing of its link has moved, while
    // the thread looked: told some times a second.
    virtual void OnStillWaiting([[maybe_unused]] int64_t still_ms) {}
    // The thread that steps through the job waits for another thread of this process, which uses
    // the links (begins), or no longer does. whom: which one; none: it may be any.
    virtual void OnOwnWait([[maybe_unused]] bool begins, [[maybe_unused]] std::thread::id whom) {}
    // Called when a data wait on `rank` ran out: waits a short while for a better verdict (the
    // rank that is really lost), else returns an error that names `rank` and `tag`.
    virtual Error OnTimeout(int rank, const OpTag& tag, const Deadline& deadline) = 0;
};

class Link {
  public:
    virtual ~Link() = default;
    virtual const PeerName& peer() const = 0;
    virtual size_t window_bytes() const = 0;
    // The memory that the peer writes, and what it has raised our flags to (acquire).
    virtual std::span<std::byte> window() = 0;
    virtual uint64_t flag(int index) const = 0;
    // Copies `head` and then `data` to byte `offset` of the peer's window, then raises its flag to
    // `value` (release: who sees the flag sees the bytes). Both may be empty: that raises the flag
    // alone. May block on a full socket; keeps receiving meanwhile, so two ranks that both send
    // never deadlock. Errors: kPeerLost, kTimeout.
    virtual Status Put(size_t offset, std::span<const std::byte> head,
                       std::span<const std::byte> data, int flag, uint64_t value, const OpTag& tag,
                       const Deadline& deadline) = 0;
    // A hint: the next thing that the peer puts will be `bytes` at byte `offset` of our window,
    // where nobody reads until then.
    virtual void Expect([[maybe_unused]] size_t offset, [[maybe_unused]] size_t bytes) {}
    // From how many bytes on such hints are of use; never, unless a transport says otherwise.
    virtual size_t least_expected_bytes() const { return SIZE_MAX; }
    // Returns once our flag is at least `value`. Spins, then yields, then sleeps.
    // Errors: kPeerLost (names the rank), kTimeout.
    virtual Status Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) = 0;
};

// What the links of one Fabric share: the monitor, and the receiving side of all its sockets.
class FabricState {
  public:
    virtual ~FabricState() = default;
    // Null: no monitor. It outlives the Fabric.
    virtual void SetMonitor(PeerMonitor* monitor) = 0;
    virtual PeerMonitor* monitor() const { return nullptr; }
};

// All links of this rank: links[r] joins to rank r; links[rank] is null.
struct Fabric {
    int rank = 0;
    int size = 1;
    // The same on all ranks: collectives check the epoch of each message, and with `checksum` every
    // byte of it.
    uint64_t epoch = 0;
    bool checksum = false;
    std::string transport;  // of the links, as "shm" or "shm+tcp"; "none" for one rank
    std::unique_ptr<FabricState> state;
    std::vector<std::unique_ptr<Link>> links;
};

}  // namespace weft::net
