// Measures one link: latency and bandwidth of puts between two ranks, as perftest's ib_write_lat
// and ib_write_bw do over verbs.
//
// Both ranks of a link create a LinkProbe and call the same methods in the same order with the same
// size. One of them, the leader (lead = true), gets the results. A probe owns the whole window and
// all flags of its link for the life of the Fabric: no Comm may use that link. Before each timing,
// the receiver verifies that puts of this size deliver known bytes.
// Errors: those of the link, and the failure that `monitor` reports (such as kCancelled).
// Thread: the one that drives communication.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/result.h"
#include "coll/timings.h"
#include "net/link.h"

namespace weft::coll {

struct Bandwidth {
    int64_t iterations = 0;
    double average_bytes_s = 0;
    double peak_bytes_s = 0;  // rate of the fastest batch of puts
    double messages_s = 0;
    Timings timings;  // time per put; one sample for each batch
};

class LinkProbe {
  public:
    // The largest size of a put that fits into a window of this size.
    static size_t MostBytes(size_t window_bytes);

    // monitor: polled for a request to stop; may be null. timeout_ms: time limit of each wait.
    LinkProbe(net::Link& link, const net::PeerMonitor* monitor, int64_t timeout_ms);

    // One-way time of a put: half a round trip. The rank that does not lead gets zeros.
    Result<Timings> Latency(size_t bytes, const Budget& budget, bool lead);
    // The leader sends with many puts in flight. The other rank gets zeros.
    Result<Bandwidth> Stream(size_t bytes, const Budget& budget, bool lead);
    // Number of bytes received with a wrong value since the last call.
    int64_t TakeErrors();

  private:
    enum class Order : uint64_t { kEnd, kCheck, kRun };
    // For each batch: the start of its first put, and the arrival of its credit (the flag by which
    // the receiver reports the batch).
    struct Marks {
        std::vector<int64_t> posted_ns, credited_ns;
    };
    struct Request {
        Order order = Order::kEnd;
        uint64_t count = 0;
    };

    Status Put(size_t offset, size_t bytes, int flag, uint64_t value);
    Status Wait(int flag, uint64_t value);
    Status Ask(const Request& request);
    Result<Request> Take();
    Status CheckMonitor() const;
    Status Reserve(size_t bytes);

    Status PingPong(size_t bytes, uint64_t count, bool lead, bool check, std::vector<float>* us);
    Status Flow(size_t bytes, uint64_t count, bool lead, bool check, Marks* marks);
    static void AddStretches(const Marks& marks, uint64_t a_credit, size_t bytes,
                             Bandwidth& result);
    void Fill(size_t bytes, uint64_t message);
    void Check(size_t offset, size_t bytes, uint64_t message);
    uint64_t SlotsFor(size_t bytes) const;

    net::Link& link_;
    const net::PeerMonitor* monitor_;
    int64_t timeout_ms_;
    std::vector<std::byte> source_;
    // Values of the flags on this rank and at the peer.
    uint64_t asked_ = 0, pings_ = 0, flowed_ = 0, credited_ = 0;
    int64_t errors_ = 0;
};

}  // namespace weft::coll
