// Collectives over links, for one group of ranks (a TP group, a pair of PP stages, the world).
//
// Every all_reduce adds in an order that does not depend on timing, so that all ranks of the group
// hold the same bits:
//     one_shot, two_shot    rank order, 0 + 1 + 2 + ...
//     ring                  segment s of n: rank s first, then s + 1, ... around
//     recursive_doubling    pairs, then pairs of pairs, ...; of n ranks those from the largest
//                           power of two p on are first added to ranks 0, 1, ... (r to r - p)
//     hierarchical          rank order within each host, then the hosts by their lowest rank
// For two ranks these are all the same bits. What kAuto picks is read from the group's Tuning by
// size alone, so it is the same on all ranks. What a wire type loses: coll/wire.h.
// Allocates nothing after construction, but for a buffer at the first use of a narrow wire type or
// of sums that go from host to host. One caller at a time.
//
// A group uses its own part of each link's window and its own flags (`Channel`), so that several
// groups share the links of one Fabric; a channel serves one Comm in its life (or two of one pair,
// each for one way). All members call the same collectives in one order and length; a rank that
// does not is found out (kCorrupt). After an error a Comm is of no more use and repeats the error.
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

// Which part of every link's window, and which flags, a group owns. Groups of one Fabric that
// share a pair of ranks must not overlap.
struct Channel {
    size_t window_begin = 0;  // a multiple of 64
    size_t window_bytes = 0;  // at least 16 KiB; 2 MiB and more suit long prompts
    int flag_begin = 0;
    int flag_count = 4;  // 4 are used
};

// When the last collective began here, when the last rank of the group arrived, and when it ended
// (steady clock, ns; comparable between processes of one host). end - last_arrival is what the
// wire and the sums cost; last_arrival - begin is waiting for the slower rank.
struct Timing {
    int64_t begin_ns = 0;
    int64_t last_arrival_ns = 0;
    int64_t end_ns = 0;
    size_t bytes = 0;
};

class Comm {
  public:
    // ranks: the group's members as Fabric ranks, ascending; this rank among them. The fabric
    // outlives the Comm (its monitor is the one that waits ask). timeout_ms bounds every wait of
    // every operation. Errors: kUsage (a channel too small or outside the links' windows).
    static Result<std::unique_ptr<Comm>> Make(net::Fabric& fabric, std::vector<int> ranks,
                                              Channel channel, int64_t timeout_ms);
    virtual ~Comm() = default;

    virtual int rank() const = 0;  // within the group
    virtual int size() const = 0;

    // The table that kAuto looks into, Tuning::BuiltIn at first. The same on all ranks, set between
    // the same two collectives.
    virtual void SetTuning(Tuning tuning) = 0;
    virtual const Tuning& tuning() const = 0;
    // Which host each rank of the group is on, as numbers of any kind, for kHierarchical. Where it
    // is not said, ranks that are joined by shm are one host (found out by asking all others in the
    // first all_reduce, all_gather or reduce_scatter). The same on all ranks, before the first of
    // these. Errors: kUsage.
    virtual Status SetHosts(std::span<const int> host_of_rank) = 0;

    // data in: this rank's addend; out: the sum. Any length (longer ones go in pieces).
    // choice: kAuto with a full wire takes algorithm and wire from the table; kAuto with another
    // wire takes the algorithm only.
    virtual Status AllReduce(std::span<float> data, const net::OpTag& tag, Choice choice = {}) = 0;
    virtual Status AllReduce(std::span<double> data, const net::OpTag& tag, Choice choice = {}) = 0;
    // The same sum of doubles, rounded to float in the pass that adds up. data out: anything.
    virtual Status AllReduce(std::span<double> data, std::span<float> sum, const net::OpTag& tag,
                             Choice choice = {}) = 0;
    // Whether an all_reduce of so many bytes leaves the CPU idle for most of its time, so that it
    // is worth the while to compute beside it: by the table, or where that has no times, wherever
    // a group spans hosts. The same on all ranks between the same two collectives.
    virtual bool LeavesCpuIdle(size_t bytes) const = 0;
    // data: size() parts one after another, part r being counts[r] values (0 is fine). In: this
    // rank's addends to all parts; out: its own part holds the sum in rank order, the others are as
    // they were.
    // by: kHierarchical passes sums on from host to host, in the same order (coll/hosts.h), where
    // any other lets all send to the part's owner. kAuto: the table says, and whether the sums are
    // less for the busiest host than the addends. The bits are the same.
    virtual Status ReduceScatter(std::span<float> data, std::span<const size_t> counts,
                                 const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // The same of values that are bfloat16 or float16 (as uint16_t; narrow: kBF16 or kF16), summed
    // in float: `take(begin, sums)` is given the sums of this rank's part piece by piece, `begin`
    // of each counted from the part's first value, and may write the piece's own values of `data`.
    // Allocates a buffer at its first use.
    using TakeSums = std::function<void(size_t begin, std::span<const float> sums)>;
    virtual Status ReduceScatter(WireType narrow, std::span<const uint16_t> data,
                                 std::span<const size_t> counts, const TakeSums& take,
                                 const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // all: counts.size() parts one after another, part r being counts[r] bytes from rank r; this
    // rank's part is filled in by the caller beforehand.
    // by: kHierarchical sends a part to one rank of each other host, which passes it on there,
    // where any other sends it to all.
    virtual Status AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                             const net::OpTag& tag, Algorithm by = Algorithm::kAuto) = 0;
    // out: size() parts one after another, out_counts[r] bytes for rank r; in: in_counts[r] bytes
    // from rank r, which are rank r's out_counts[rank()]. Any counts, 0 too.
    virtual Status AllToAll(std::span<const std::byte> out, std::span<const size_t> out_counts,
                            std::span<std::byte> in, std::span<const size_t> in_counts,
                            const net::OpTag& tag) = 0;
    // data: the root's bytes, everywhere the same length, any length.
    virtual Status Broadcast(std::span<std::byte> data, int root, const net::OpTag& tag) = 0;
    // To and from one member of the group. Send returns once the bytes are on their way and `data`
    // may be reused; up to 4 sends (of at most max_send_bytes() each; longer ones count as several)
    // may be in flight before the peer receives, then Send waits for it.
    virtual Status Send(std::span<const std::byte> data, int to, const net::OpTag& tag) = 0;
    virtual Status Recv(std::span<std::byte> data, int from, const net::OpTag& tag) = 0;
    virtual size_t max_send_bytes() const = 0;
    virtual Status Barrier(const net::OpTag& tag) = 0;

    // The caller steps through the job, and waits for another thread of its process that uses such
    // groups (begins), or no longer does: where ranks wait for each other in vain, that is known.
    // whom: which thread; none: it may be any of them.
    virtual void SayAwaitsOwn([[maybe_unused]] bool begins,
                              [[maybe_unused]] std::thread::id whom = {}) {}

    virtual Timing last_timing() const = 0;
    // What this rank has sent since the Comm was made: the payload of all messages of collectives
    // and sends, without their heads. Any thread.
    virtual uint64_t sent_bytes() const = 0;
};

}  // namespace weft::coll
