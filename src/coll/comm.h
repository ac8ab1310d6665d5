// Collectives over links, for one group of ranks (a TP group, a pair of PP stages, the world).
//
// Every all_reduce adds in an order that does not depend on timing, so that all ranks of the group
// hold the same bits: one-shot and two-shot in rank order (0 + 1 + 2 + ...), ring in ring order
// (segment s of n: rank s first, then s + 1, ... around; the same as rank order for two ranks).
// Which algorithm kAuto picks depends on size and group alone, so it is the same on all ranks.
// Allocates nothing after construction. One caller at a time.
//
// A group uses its own part of each link's window and its own flags (`Channel`), so that several
// groups share the links of one Fabric; a channel serves one Comm in the life of its Fabric.
// All members call the same collectives in the same order, with the same lengths; a rank that
// does not is found out (kCorrupt). After an error a Comm is of no more use and repeats the error.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "net/link.h"

namespace weft::coll {

enum class Algorithm { kAuto, kOneShot, kTwoShot, kRing };
const char* AlgorithmName(Algorithm algorithm);

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

    // data in: this rank's addend; out: the sum. Any length (longer ones go in pieces).
    virtual Status AllReduce(std::span<float> data, const net::OpTag& tag,
                             Algorithm algorithm = Algorithm::kAuto) = 0;
    virtual Status AllReduce(std::span<double> data, const net::OpTag& tag,
                             Algorithm algorithm = Algorithm::kAuto) = 0;
    // all: counts.size() parts one after another, part r being counts[r] bytes from rank r; this
    // rank's part is filled in by the caller beforehand.
    virtual Status AllGather(std::span<std::byte> all, std::span<const size_t> counts,
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

    virtual const Timing& last_timing() const = 0;
};

}  // namespace weft::coll
