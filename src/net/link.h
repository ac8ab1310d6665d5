// Links: one-sided puts into a peer's registered memory, and flags.
//
// All communication has one primitive: *put these bytes into my peer's window, then raise its
// flag*. Shared memory uses a copy and a release store; TCP uses a small header and a receiver that
// reads directly into the window; RDMA uses WRITEs on one queue pair.
//
// A Link joins this rank to one peer. Each side owns a window of `window_bytes()` that only the
// other writes, and kFlags flags, 64-bit numbers that the writer only raises. Nothing is
// acknowledged: before a rank reuses a part of a window, its own protocol (a returned flag) must
// show that the peer has read it.
//
// Epochs: a link belongs to one epoch of the cluster; frames of another epoch are dropped.
// Ends: a peer that destroys its Fabric says so, a peer that dies does not. A wait on either fails
// with kPeerLost at once, and names the dead rank if this rank saw one die.
// Deadlines: a wait that expires asks the monitor. A peer that made progress within the deadline's
// length is slow, not dead; and while any rank makes progress, the peer may be waiting for that
// rank. In both cases the wait continues, as it does while bytes arrive. Otherwise the monitor
// makes the error. The monitor also learns of long waits before their deadline, so that it can end
// ranks that wait for each other.
// Thread: one at a time per Fabric (the one that drives communication), except for net/share.h.
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

// Names a peer in error messages: "rank 2 (host b, tcp)".
struct PeerName {
    int rank = 0;
    std::string host;
    std::string transport;
    std::string Text() const;
};

// The operation of a wait, for error messages: "all_reduce #1482 of step 311".
struct OpTag {
    const char* op = "";
    int64_t index = 0;  // running number of the op in its Program
    int64_t step = 0;
    int64_t place = 0;   // progress of the op: messages awaited so far
    bool aside = false;  // other threads compute on this core: waits sleep at once
    std::string Text() const;
};

// Tells waits what the control plane knows of the peers. Implemented by cluster/; may be null.
class PeerMonitor {
  public:
    virtual ~PeerMonitor() = default;
    // Whether a rank of the cluster was lost or a stop was requested. Cheap (one relaxed load).
    virtual bool Failed() const = 0;
    // The cluster's verdict; call it only after Failed() was true.
    virtual Error Failure() const = 0;
    // Failure(), with the op during which this rank noticed it.
    virtual Error FailureDuring([[maybe_unused]] const OpTag& tag) const { return Failure(); }
    // Milliseconds since `rank` last made progress (its counter moved); separates slow peers from
    // dead ones. -1: unknown.
    virtual int64_t SilentMs(int rank) const = 0;
    // Milliseconds since any rank made progress. -1: unknown, only SilentMs counts.
    virtual int64_t StillMs() const { return -1; }
    // A wait on `rank` has lasted some milliseconds, or has ended (rank -1). The cluster uses it to
    // find which rank delays which.
    virtual void OnLongWait([[maybe_unused]] int rank, [[maybe_unused]] const OpTag& tag) {}
    // The calling thread's long wait continues: its link has moved no byte for still_ms, while the
    // thread was checking. Called some times a second.
    virtual void OnStillWaiting([[maybe_unused]] int64_t still_ms) {}
    // The thread that steps through the job begins or ends a wait for another thread of this
    // process that uses the links. whom: that thread; none: any of them.
    virtual void OnOwnWait([[maybe_unused]] bool begins, [[maybe_unused]] std::thread::id whom) {}
    // A data wait on `rank` expired: waits briefly for a better verdict (the rank that is really
    // lost), else returns an error that names `rank` and `tag`.
    virtual Error OnTimeout(int rank, const OpTag& tag, const Deadline& deadline) = 0;
};

class Link {
  public:
    virtual ~Link() = default;
    virtual const PeerName& peer() const = 0;
    virtual size_t window_bytes() const = 0;
    // The memory that the peer writes, and this rank's flags as the peer raised them (acquire).
    virtual std::span<std::byte> window() = 0;
    virtual uint64_t flag(int index) const = 0;
    // Copies `head` and then `data` to byte `offset` of the peer's window, then raises its flag to
    // `value` (release: a reader that sees the flag sees the bytes). If both are empty, only raises
    // the flag. May block on a full socket; receives meanwhile, so two ranks that both send never
    // deadlock. Errors: kPeerLost, kTimeout.
    virtual Status Put(size_t offset, std::span<const std::byte> head,
                       std::span<const std::byte> data, int flag, uint64_t value, const OpTag& tag,
                       const Deadline& deadline) = 0;
    // Hint: the peer's next put has `bytes` bytes for byte `offset` of this rank's window, and
    // nobody reads that part before.
    virtual void Expect([[maybe_unused]] size_t offset, [[maybe_unused]] size_t bytes) {}
    // Least size for which such hints help; the default is never.
    virtual size_t least_expected_bytes() const { return SIZE_MAX; }
    // Returns once this rank's flag is at least `value`. Spins, then yields, then sleeps. Errors:
    // kPeerLost (names the rank), kTimeout.
    virtual Status Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) = 0;
};

// Shared by the links of one Fabric: the monitor, and the receiving side of all its sockets.
class FabricState {
  public:
    virtual ~FabricState() = default;
    // Null: no monitor. The monitor outlives the Fabric.
    virtual void SetMonitor(PeerMonitor* monitor) = 0;
    virtual PeerMonitor* monitor() const { return nullptr; }
};

// All links of this rank: links[r] joins to rank r; links[rank] is null.
struct Fabric {
    int rank = 0;
    int size = 1;
    // The same on all ranks: collectives check the epoch of each message, and with `checksum` all
    // its bytes.
    uint64_t epoch = 0;
    bool checksum = false;
    std::string transport;  // "shm" or "shm+tcp"; "none" for one rank
    std::unique_ptr<FabricState> state;
    std::vector<std::unique_ptr<Link>> links;
};

}  // namespace weft::net
