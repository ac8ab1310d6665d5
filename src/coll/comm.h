// Collectives over links, for one group of ranks (a TP group, a pair of PP stages, the world).
//
// Every all_reduce adds in an order that does not depend on timing, so all ranks of the group have
// the same bits:
//     one_shot, two_shot    rank order, 0 + 1 + 2 + ...
//     ring                  segment s of n: s + (s + 1) + ... + (n - 1) + 0 + ... + (s - 1)
//     recursive_doubling    pairs, then pairs of pairs, ...; with p the largest power of two up to
//                           the number of ranks, rank r >= p is first added to rank r - p
//     hierarchical          rank order within each host, then the hosts by their lowest rank
//     along a tree          each rank's addend, then the sums of its children (coll/tree.h)
// For two ranks all of these give the same bits. kAuto chooses from the group's Tuning by size
// alone, so all ranks choose the same algorithm. coll/wire.h states the rounding errors of wire
// types. A Comm allocates nothing after construction, except a buffer at the first use of a narrow
// wire type or of hierarchical sums. Thread: one caller at a time.
//
// A group uses its own part of each link's window and its own flags (`Channel`), so several groups
// can share the links of one Fabric. A channel can be used by one Comm only (or by two Comms of a
// pair of ranks, one per direction), also after that Comm is destroyed. All members must call the
// same collectives in the same order and with the same lengths; otherwise the result is kCorrupt.
// After an error, a Comm is unusable, and each call returns the same error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "coll/tuning.h"
#include "net/link.h"

namespace weft::coll {

// The part of every link's window, and the flags, that a group owns. The channels of two groups
// must not overlap if the groups have two ranks in common.
struct Channel {
    size_t window_begin = 0;  // a multiple of 64
    size_t window_bytes = 0;  // at least 16 KiB; long prompts need 2 MiB or more
    int flag_begin = 0;
    int flag_count = 4;  // a group needs 4
};

// The links that a group's collectives use: links between all members, or the links of a tree
// (coll/tree.h). Along a tree, a group has all_reduce and broadcast only, with the full wire type.
enum class Paths { kDirect, kTree };

// Times of the last collective, in ns of the steady clock, which is the same in all processes of a
// host: the collective's begin on this rank, the arrival of the group's last rank, and its end on
// this rank. end - last_arrival is the cost of transfer and sums; last_arrival - begin is the wait
// for the slowest rank.
struct Timing {
    int64_t begin_ns = 0;
    int64_t last_arrival_ns = 0;
    int64_t end_ns = 0;
    size_t bytes = 0;
};

class Comm {
  public:
    // ranks: the group's members as numbers of Fabric ranks, ascending; this rank is among them. A
    // group in which two members have no link only sends and receives, unless it uses a tree.
    // paths: the same on all members. `fabric` must outlive the Comm; all waits poll the fabric's
    // monitor. timeout_ms: time limit of each operation. Errors: kUsage (the channel is too small
    // or outside of the links' windows).
    static Result<std::unique_ptr<Comm>> Make(net::Fabric& fabric, std::vector<int> ranks,
                                              Channel channel, int64_t timeout_ms,
                                              Paths paths = Paths::kDirect);
    virtual ~Comm() = default;

    virtual int rank() const = 0;  // number of this rank within the group
    virtual int size() const = 0;

    // Sets the table for kAuto; the default is Tuning::BuiltIn. Call it with the same table on all
    // ranks, between the same two collectives.
    virtual void SetTuning(Tuning tuning) = 0;
    virtual const Tuning& tuning() const = 0;
    // Sets the host of each rank of the group, as arbitrary numbers, for kHierarchical. By default,
    // ranks that are joined by shm share a host; the first all_reduce, all_gather or reduce_scatter
    // exchanges this between the ranks. Call this function before the first such collective, with
    // the same values on all ranks. Errors: kUsage.
    virtual Status SetHosts(std::span<const int> host_of_rank) = 0;

    // data in: this rank's addend; out: the sum. `data` may have any length. choice: if the
    // algorithm is kAuto and the wire type is kFull, both are taken from the table; with kAuto and
    // another wire type, only the algorithm is taken from the table. With `steady`, the algorithm
    // is one_shot for two ranks, hierarchical for hosts of several ranks, else two_shot.
    virtual Status AllReduce(std::span<float> data, const net::OpTag& tag, Choice choice = {}) = 0;
    virtual Status AllReduce(std::span<double> data, const net::OpTag& tag, Choice choice = {}) = 0;
    // The same sum of doubles, rounded to floats and stored in `sum`. data out: undefined.
    virtual Status AllReduce(std::span<double> data, std::span<float> sum, const net::OpTag& tag,
                             Choice choice = {}) = 0;
    // Whether an all_reduce of `bytes` leaves the CPU idle for most of its time, so that it is
    // worthwhile to compute at the same time. Decides by the times in the table. If it has none,
    // returns true if the group has ranks on several hosts. All ranks get the same result if they
    // call this between the same two collectives.
    virtual bool LeavesCpuIdle(size_t bytes) const = 0;
    // An all_reduce that takes this many us per byte or more waits for the network: over tcp on
    // loopback, which needs only the CPU, it takes 0.2 ns per byte, and 0.35 between distant cores;
    // over 10 Gbit/s 0.85.
    static constexpr double kIdleUsAByte = 0.6e-3;
    // data: size() consecutive parts; part r has counts[r] values (0 is allowed). In: this rank's
    // addends for all parts. Out: this rank's part has the sum in rank order; the other parts are
    // unchanged.
    // by: kHierarchical passes sums from host to host, in the same order (coll/hosts.h); other
    // algorithms send directly to the part's owner. kAuto is hierarchical if the table says so and
    // this reduces the traffic of the busiest host. All give the same bits.
    virtual Status ReduceScatter(std::span<float> data, std::span<const size_t> counts,
                                 const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // A ReduceScatter for values of 16 bits, passed as uint16_t. narrow: their type, kBF16 or kF16.
    // Sums are computed in float. take(begin, sums) is called for each piece of this rank's part.
    // `begin` is the index of the piece's first value in that part. `take` may overwrite the
    // piece's values in `data`. The first call allocates a buffer.
    using TakeSums = std::function<void(size_t begin, std::span<const float> sums)>;
    virtual Status ReduceScatter(WireType narrow, std::span<const uint16_t> data,
                                 std::span<const size_t> counts, const TakeSums& take,
                                 const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // all: counts.size() consecutive parts; part r has counts[r] bytes, which come from rank r. The
    // caller fills in this rank's part. by: kHierarchical sends a part to one rank of each other
    // host, which distributes it there; other algorithms send it to all ranks.
    virtual Status AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                             const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // out: size() consecutive parts, of which part r has out_counts[r] bytes for rank r. in: size()
    // consecutive parts, of which part r has in_counts[r] bytes from rank r; rank r must pass the
    // same number as out_counts[rank()]. Counts may be 0.
    virtual Status AllToAll(std::span<const std::byte> out, std::span<const size_t> out_counts,
                            std::span<std::byte> in, std::span<const size_t> in_counts,
                            const net::OpTag& tag) = 0;
    // data in: the bytes of rank `root`; out: the same bytes on all ranks. All ranks must pass the
    // same length.
    virtual Status Broadcast(std::span<std::byte> data, int root, const net::OpTag& tag) = 0;
    // Send and Recv transfer data to and from one member of the group. Send returns once the caller
    // may overwrite `data`. Up to 4 sends of at most max_send_bytes() each may be in flight before
    // the peer receives (a longer one counts as several). A further Send waits for the peer.
    virtual Status Send(std::span<const std::byte> data, int to, const net::OpTag& tag) = 0;
    virtual Status Recv(std::span<std::byte> data, int from, const net::OpTag& tag) = 0;
    virtual size_t max_send_bytes() const = 0;
    virtual Status Barrier(const net::OpTag& tag) = 0;

    // Tells deadlock detection (PeerMonitor::OnOwnWait) that the calling thread begins or ends a
    // wait for another thread of this process, which uses Comms. whom: that thread; if it is empty,
    // any such thread.
    virtual void SetAwaitsOwn([[maybe_unused]] bool begins,
                              [[maybe_unused]] std::thread::id whom = {}) {}

    virtual Timing last_timing() const = 0;
    // Bytes that this rank has sent with this Comm: payload of all messages of collectives and
    // sends, without headers. Thread: any.
    virtual uint64_t sent_bytes() const = 0;
};

}  // namespace weft::coll
