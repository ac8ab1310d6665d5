// Links: one-sided puts into a peer's registered memory, and flags.
//
// All communication uses one operation, a *put*: write bytes into the peer's window, then raise one
// of the peer's flags. In shared memory, a put is a copy and a release store. Over TCP, it is a
// small header and the bytes, which the receiver reads directly into the window. Over RDMA, it is
// WRITEs on one queue pair.
//
// A Link joins this rank to one peer. Each side owns a window of `window_bytes()` bytes that only
// the other side writes, and kFlags flags. A flag is a 64-bit number that only the other side
// raises. A put is not acknowledged. So before a rank writes to the same part of a window again,
// the peer must have raised a flag which means that it has read the earlier bytes.
//
// Epochs: a link belongs to one epoch of the cluster; frames of another epoch are dropped.
// Ends: a peer that destroys its Fabric sends a goodbye; a peer that dies does not. In both cases,
// a wait on the peer fails with kPeerLost at once. If this rank saw a rank die, the error names
// that rank.
// Deadlines: when a wait's deadline passes, the wait queries the PeerMonitor. If the peer made
// progress within the length of the deadline, the peer is slow, not dead. If another rank made
// progress, the peer may be waiting for that rank. In both cases the wait continues, and also while
// bytes arrive. Otherwise the wait fails with the error of the monitor. Links also report long
// waits to the monitor before their deadline, so that it can end the job if ranks wait for each
// other. Thread: one at a time for all links of a Fabric; see net/share.h for several threads.
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

// The operation that waits, for error messages: "all_reduce #1482 of step 311".
struct OpTag {
    const char* op = "";
    int64_t index = 0;  // index of the op in its Program
    int64_t step = 0;
    int64_t place = 0;   // progress of the op: number of messages that it has awaited so far
    bool aside = false;  // other threads compute on this core, so waits sleep at once
    std::string Text() const;
};

// Gives waits the state of the peers that the control connections report. Implemented by cluster/;
// a Fabric may have none.
class PeerMonitor {
  public:
    virtual ~PeerMonitor() = default;
    // Whether a rank of the cluster was lost or a stop was requested. Cheap (one relaxed load).
    virtual bool Failed() const = 0;
    // The cluster's verdict; call it only after Failed() was true.
    virtual Error Failure() const = 0;
    // Failure(); the message also names the op during which this rank noticed the failure.
    virtual Error FailureDuring([[maybe_unused]] const OpTag& tag) const { return Failure(); }
    // Milliseconds since `rank` last made progress (its progress counter changed). Tells slow peers
    // from dead ones. -1: unknown.
    virtual int64_t SilentMs(int rank) const = 0;
    // Milliseconds since any rank made progress. -1: unknown; then only SilentMs counts.
    virtual int64_t StillMs() const { return -1; }
    // A wait on `rank` has lasted some milliseconds; rank -1: that wait has ended. The cluster uses
    // this to find which rank delays which.
    virtual void OnLongWait([[maybe_unused]] int rank, [[maybe_unused]] const OpTag& tag) {}
    // The calling thread's long wait continues: for still_ms, the thread has checked the link, and
    // no byte has moved. Called some times a second.
    virtual void OnStillWaiting([[maybe_unused]] int64_t still_ms) {}
    // The job's main thread begins or ends a wait for another thread of this process that uses the
    // links. whom: that thread; a default id: any of these threads.
    virtual void OnOwnWait([[maybe_unused]] bool begins, [[maybe_unused]] std::thread::id whom) {}
    // The deadline of a wait on `rank` has passed. Waits briefly for a Failure() that names the
    // rank that is really lost, and returns it; otherwise returns an error that names `rank` and
    // `tag`.
    virtual Error OnTimeout(int rank, const OpTag& tag, const Deadline& deadline) = 0;
};

class Link {
  public:
    virtual ~Link() = default;
    virtual const PeerName& peer() const = 0;
    virtual size_t window_bytes() const = 0;
    // The memory that the peer writes, and this rank's flags, which the peer raises. (flag() is an
    // acquire load.)
    virtual std::span<std::byte> window() = 0;
    virtual uint64_t flag(int index) const = 0;
    // Copies `head` and then `data` to byte `offset` of the peer's window, then raises the peer's
    // flag number `flag` to `value` (release: a reader that sees the value sees the bytes). If
    // `head` and `data` are empty, only raises the flag. May block on a full socket. Receives
    // meanwhile, so two ranks that both send never deadlock. Errors: kPeerLost, kTimeout.
    virtual Status Put(size_t offset, std::span<const std::byte> head,
                       std::span<const std::byte> data, int flag, uint64_t value, const OpTag& tag,
                       const Deadline& deadline) = 0;
    // Hint: the peer's next put has `bytes` bytes for byte `offset` of this rank's window, and
    // nobody reads that part of the window before the put arrives.
    virtual void Expect([[maybe_unused]] size_t offset, [[maybe_unused]] size_t bytes) {}
    // Least number of bytes for which such hints help. Default: they never help.
    virtual size_t least_expected_bytes() const { return SIZE_MAX; }
    // Returns when this rank's flag number `flag` is at least `value`. Spins, then yields, then
    // sleeps. Errors: kPeerLost (the message names the rank), kTimeout.
    virtual Status Wait(int flag, uint64_t value, const OpTag& tag, const Deadline& deadline) = 0;
};

// State that the links of one Fabric share: the monitor, and the receiving side of all sockets.
class FabricState {
  public:
    virtual ~FabricState() = default;
    // Null removes the monitor. The monitor must outlive the Fabric.
    virtual void SetMonitor(PeerMonitor* monitor) = 0;
    virtual PeerMonitor* monitor() const { return nullptr; }
};

// All links of this rank. links[r] is the link to rank r; links[rank] is null, and so are links
// that the job does not need (net::LinkNeed).
struct Fabric {
    int rank = 0;
    int size = 1;
    // The same on all ranks. Collectives check the epoch of each message and, with `checksum`, all
    // bytes of the message.
    uint64_t epoch = 0;
    bool checksum = false;
    std::string transport;  // "shm" or "shm+tcp"; "none" for one rank
    std::unique_ptr<FabricState> state;
    std::vector<std::unique_ptr<Link>> links;
};

}  // namespace weft::net
