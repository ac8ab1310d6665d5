// Collectives over links, for one group of ranks (a TP group, a pair of PP stages, the world).
//
// Every all_reduce adds in an order that does not depend on timing, so all ranks of the group have
// the same bits:
//     one_shot, two_shot    rank order, 0 + 1 + 2 + ...
//     ring                  segment s of n: rank s first, then s + 1, ... around
//     recursive_doubling    pairs, then pairs of pairs, ...; with p the largest power of two up to
//                           the number of ranks, rank r >= p is first added to rank r - p
//     hierarchical          rank order within each host, then the hosts by their lowest rank
// For two ranks all of these give the same bits. kAuto chooses from the group's Tuning by size
// alone, so all ranks choose alike. coll/wire.h states the errors of wire types. Allocates nothing
// after construction, except a buffer at the first use of a narrow wire type or of hierarchical
// sums. One caller at a time.
//
// A group uses its own part of each link's window and its own flags (`Channel`), so several groups
// share the links of one Fabric. A channel serves one Comm in its life (or two Comms of one pair of
// ranks, one per direction). All members call the same collectives in the same order and with the
// same lengths; a member that does not causes kCorrupt. After an error a Comm is unusable and
// repeats the error.
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

// The part of every link's window, and the flags, that a group owns. Groups of one Fabric that
// share a pair of ranks must not overlap.
struct Channel {
    size_t window_begin = 0;  // a multiple of 64
    size_t window_bytes = 0;  // at least 16 KiB; long prompts need 2 MiB or more
    int flag_begin = 0;
    int flag_count = 4;  // uses 4
};

// Times of the last collective (steady clock, ns; comparable between processes of one host): its
// begin on this rank, the arrival of the group's last rank, and its end. end - last_arrival is the
// cost of transfer and sums; last_arrival - begin is the wait for the slowest rank.
struct Timing {
    int64_t begin_ns = 0;
    int64_t last_arrival_ns = 0;
    int64_t end_ns = 0;
    size_t bytes = 0;
};

class Comm {
  public:
    // ranks: the group's members as Fabric ranks, ascending, with this rank. The fabric must
    // outlive the Comm; all waits poll the fabric's monitor. timeout_ms bounds every wait of every
    // operation. Errors: kUsage (a channel too small or outside the links' windows).
    static Result<std::unique_ptr<Comm>> Make(net::Fabric& fabric, std::vector<int> ranks,
                                              Channel channel, int64_t timeout_ms);
    virtual ~Comm() = default;

    virtual int rank() const = 0;  // within the group
    virtual int size() const = 0;

    // Sets the table for kAuto; the default is Tuning::BuiltIn. Call it with the same table on all
    // ranks, between the same two collectives.
    virtual void SetTuning(Tuning tuning) = 0;
    virtual const Tuning& tuning() const = 0;
    // Sets the host of each rank of the group, as arbitrary numbers, for kHierarchical. By default,
    // ranks joined by shm share a host (the first all_reduce, all_gather or reduce_scatter asks all
    // ranks). Call it with the same values on all ranks, before the first of these. Errors: kUsage.
    virtual Status SetHosts(std::span<const int> host_of_rank) = 0;

    // data in: this rank's addend; out: the sum. Any length (longer ones go in pieces). choice:
    // kAuto with a full wire takes algorithm and wire from the table; kAuto with another wire takes
    // only the algorithm.
    virtual Status AllReduce(std::span<float> data, const net::OpTag& tag, Choice choice = {}) = 0;
    virtual Status AllReduce(std::span<double> data, const net::OpTag& tag, Choice choice = {}) = 0;
    // The same sum of doubles, rounded to float in the same pass. data out: undefined.
    virtual Status AllReduce(std::span<double> data, std::span<float> sum, const net::OpTag& tag,
                             Choice choice = {}) = 0;
    // Whether an all_reduce of `bytes` leaves the CPU idle for most of its time, so that
    // computation beside it pays. Decides by the table; without times, true if the group spans
    // hosts. The same on all ranks between the same two collectives.
    virtual bool LeavesCpuIdle(size_t bytes) const = 0;
    // data: size() consecutive parts; part r has counts[r] values (0 is allowed). In: this rank's
    // addends to all parts; out: this rank's part has the sum in rank order, the others are
    // unchanged.
    // by: kHierarchical passes sums from host to host, in the same order (coll/hosts.h); other
    // algorithms send directly to the part's owner. kAuto is hierarchical if the table says so and
    // that reduces the load of the busiest host. The bits are the same.
    virtual Status ReduceScatter(std::span<float> data, std::span<const size_t> counts,
                                 const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // The same for bfloat16 or float16 values (as uint16_t; narrow: kBF16 or kF16), summed in
    // float. `take(begin, sums)` gets the sums of this rank's part piece by piece, with `begin`
    // counted from the part's first value; it may write the piece's values in `data`. Allocates a
    // buffer at its first use.
    using TakeSums = std::function<void(size_t begin, std::span<const float> sums)>;
    virtual Status ReduceScatter(WireType narrow, std::span<const uint16_t> data,
                                 std::span<const size_t> counts, const TakeSums& take,
                                 const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // all: counts.size() consecutive parts; part r has counts[r] bytes from rank r. The caller
    // fills in this rank's part. by: kHierarchical sends a part to one rank of each other host,
    // which distributes it there; other algorithms send it to all ranks.
    virtual Status AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                             const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // out: size() consecutive parts, out_counts[r] bytes for rank r; in: in_counts[r] bytes from
    // rank r, equal to rank r's out_counts[rank()]. Counts may be 0.
    virtual Status AllToAll(std::span<const std::byte> out, std::span<const size_t> out_counts,
                            std::span<std::byte> in, std::span<const size_t> in_counts,
                            const net::OpTag& tag) = 0;
    // data: the root's bytes; the same length on all ranks, any length.
    virtual Status Broadcast(std::span<std::byte> data, int root, const net::OpTag& tag) = 0;
    // Send and Recv transfer data to and from one member of the group. Send returns once `data` may
    // be reused. Up to 4 sends (of at most max_send_bytes() each; longer ones count as several) may
    // be in flight before the peer receives; then Send waits for it.
    virtual Status Send(std::span<const std::byte> data, int to, const net::OpTag& tag) = 0;
    virtual Status Recv(std::span<std::byte> data, int from, const net::OpTag& tag) = 0;
    virtual size_t max_send_bytes() const = 0;
    virtual Status Barrier(const net::OpTag& tag) = 0;

    // Tells deadlock detection that the calling thread begins or ends a wait for another thread of
    // its process that uses groups (PeerMonitor::OnOwnWait). whom: that thread; none: any such
    // thread.
    virtual void SayAwaitsOwn([[maybe_unused]] bool begins,
                              [[maybe_unused]] std::thread::id whom = {}) {}

    virtual Timing last_timing() const = 0;
    // Bytes that this rank has sent with this Comm: payload of all messages of collectives and
    // sends, without headers. Any thread.
    virtual uint64_t sent_bytes() const = 0;
};

}  // namespace weft::coll
