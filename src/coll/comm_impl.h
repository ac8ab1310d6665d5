// The one Comm there is: private to coll/. comm.cc moves bytes (gather, broadcast, send, ...),
// all_reduce.cc adds them up.
#pragma once

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "coll/comm.h"
#include "coll/stream.h"
#include "coll/ticks.h"

namespace weft::coll {

// What a message belongs to: both ends must mean the same.
enum Kind : uint64_t {
    kOneShotSum = 1,
    kScatter,
    kGather,
    kRingSum,
    kRingGather,
    kParts,
    kCast,
    kMeet,
    kSent,
    kReducePart,
    kToEach,
    kDoubling,
    kFold,
    kUnfold,
    kToLeader,
    kFromLeader
};

class CommImpl final : public Comm {
  public:
    CommImpl(net::Fabric& fabric, const std::vector<int>& ranks, const Channel& channel,
             int64_t timeout_ms);

    int rank() const override { return rank_; }
    int size() const override { return size_; }
    size_t max_send_bytes() const override { return send_payload_; }
    Timing last_timing() const override;
    uint64_t sent_bytes() const override { return sent_bytes_.load(std::memory_order_relaxed); }
    bool LeavesCpuIdle(size_t bytes) const override;
    const Tuning& tuning() const override { return tuning_; }
    void SetTuning(Tuning tuning) override;
    Status SetHosts(std::span<const int> host_of_rank) override;

    Status AllReduce(std::span<float> data, const net::OpTag& tag, Choice choice) override;
    Status AllReduce(std::span<double> data, const net::OpTag& tag, Choice choice) override;
    Status AllReduce(std::span<double> data, std::span<float> sum, const net::OpTag& tag,
                     Choice choice) override;
    Status ReduceScatter(std::span<float> data, std::span<const size_t> counts,
                         const net::OpTag& tag) override;
    Status ReduceScatter(Wire narrow, std::span<const uint16_t> data,
                         std::span<const size_t> counts, const TakeSums& take,
                         const net::OpTag& tag) override;
    Status AllGather(std::span<std::byte> all, std::span<const size_t> counts,
                     const net::OpTag& tag) override;
    Status AllToAll(std::span<const std::byte> out, std::span<const size_t> out_counts,
                    std::span<std::byte> in, std::span<const size_t> in_counts,
                    const net::OpTag& tag) override;
    Status Broadcast(std::span<std::byte> data, int root, const net::OpTag& tag) override;
    Status Send(std::span<const std::byte> data, int to, const net::OpTag& tag) override;
    Status Recv(std::span<std::byte> data, int from, const net::OpTag& tag) override;
    Status Barrier(const net::OpTag& tag) override;
    void SayAwaitsOwn(bool begins, std::thread::id whom) override;

  private:
    // One collective: its name in errors, its deadline, what its values travel as.
    struct Op {
        const net::OpTag& tag;  // ours, whose `place` moves on
        Deadline deadline;
        Wire wire = Wire::kFull;
    };
    // Some ranks of the group, ascending, and where this rank stands among them.
    struct Team {
        std::span<const int> ranks;
        size_t me;
        size_t size() const { return ranks.size(); }
        int ahead(size_t steps) const { return ranks[(me + steps) % ranks.size()]; }
    };
    struct Part {
        size_t begin;
        size_t count;
    };

    Op Begin(size_t bytes, const net::OpTag& tag);
    Status End(Status status);
    // counts: one a rank, together `total`. A caller that says otherwise is a bug.
    void CheckParts(std::span<const size_t> counts, size_t total) const;
    // What is left of rank's part from `done` on, as far as `most` goes.
    static Part PartOf(std::span<const size_t> counts, int rank, size_t done, size_t most);
    Status Gather(std::span<std::byte> all, std::span<const size_t> counts, const Op& op);
    // Learns which ranks share a host, once, where it may matter.
    Status LearnHosts(const Op& op);
    void UseHosts(std::span<const int> host_of_rank);

    // Out: T, or float where doubles are to be rounded. `sum` may be `data`.
    template <typename T, typename Out>
    Status Reduce(std::span<T> data, std::span<Out> sum, const net::OpTag& tag, Choice choice);
    template <typename T, typename Out>
    Status ReduceAll(std::span<T> data, std::span<Out> sum, Algorithm algorithm, const Op& op);
    template <typename T>
    Status ReducePiece(const Team& team, std::span<T> piece, Algorithm algorithm, const Op& op);
    template <typename T, typename Out>
    Status OneShot(const Team& team, std::span<T> data, std::span<Out> sum, size_t most,
                   const Op& op);
    template <typename T>
    Status TwoShot(const Team& team, std::span<T> data, const Op& op);
    template <typename T>
    Status Ring(const Team& team, std::span<T> data, const Op& op);
    template <typename T>
    Status RingSum(const Team& team, std::span<T> data, const Op& op);
    template <typename T>
    Status RingGather(const Team& team, std::span<T> data, const Op& op);
    template <typename T>
    Status Doubling(const Team& team, std::span<T> data, const Op& op);
    template <typename T>
    Status Hierarchical(std::span<T> data, const Op& op);

    // Sends values in the form of the wire. What was sent is valid until the next but one.
    template <typename T>
    Status PostValues(int to, Kind kind, std::span<const T> values, const Op& op);
    template <typename T>
    Status PostToAll(const Team& team, Kind kind, std::span<const T> values,
                     std::span<const std::byte>& sent, const Op& op);
    template <typename T>
    std::span<const std::byte> OnWire(std::span<const T> values, Wire wire);
    // Awaits such values. They lie in the window, until Release.
    template <typename T>
    Status AwaitValues(int from, Kind kind, size_t count, const std::byte*& bytes, const Op& op);
    // Awaits such values, copies them out, and releases them.
    template <typename T>
    Status TakeValues(int from, Kind kind, std::span<T> out, const Op& op);
    // Awaits the same message of values of type T from all others of the team, and sums all in team
    // order into `sum`. `sent`: this rank's addend on the wire.
    template <typename T, typename Out>
    Status SumTeam(const Team& team, Kind kind, std::span<Out> sum, std::span<const std::byte> sent,
                   const Op& op);

    Stream& To(int rank) { return *collective_[static_cast<size_t>(rank)]; }
    int Ahead(int steps) const { return (rank_ + steps) % size_; }
    Status Post(int to, Kind kind, std::span<const std::byte> payload, const Op& op) {
        CountSent(payload.size());
        return To(to).Post(kind, last_arrival_, payload, op.tag, op.deadline);
    }
    void CountSent(size_t bytes) { sent_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
    Status Await(int from, Kind kind, size_t bytes, const std::byte*& payload, const Op& op) {
        tag_.place++;
        return To(from).Await(kind, bytes, payload, last_arrival_, op.tag, op.deadline);
    }
    // Awaits a message and copies it out.
    Status Take(int from, Kind kind, std::span<std::byte> out, const Op& op);
    Status Release(int from, const Op& op) { return To(from).Release(op.tag, op.deadline); }

    net::FabricState* links_;  // of the fabric; null: none
    int rank_ = 0;
    int size_;
    int64_t timeout_ms_;
    bool across_hosts_ = false;  // some link is not shm
    size_t payload_;             // of a collective's message
    size_t send_payload_;
    std::vector<std::optional<Stream>> collective_;  // by rank of the group; none for ourselves
    std::vector<std::optional<Stream>> sends_;
    std::vector<const std::byte*> addends_;  // by place in a team: where its addend lies
    std::vector<std::byte> on_wire_;         // our values in a narrow wire type, two messages
    size_t on_wire_half_ = 0;
    std::vector<float> sums_;  // of a piece of narrow values
    std::vector<int> everyone_;
    bool hosts_known_ = false;
    int host_mark_ = 0;         // the lowest rank that is joined to us by shm, or ourselves
    std::vector<int> host_;     // the ranks of our host, ascending; we are at my_place_
    std::vector<int> leaders_;  // the lowest rank of each host, ascending; ours is at my_host_
    size_t my_place_ = 0, my_host_ = 0;
    Tuning tuning_;
    bool tuning_given_ = false;
    // Of the last collective: Timing, in ticks.
    TickClock clock_;
    int64_t begin_ = 0, last_arrival_ = 0, end_ = 0;
    size_t bytes_ = 0;
    std::atomic<uint64_t> sent_bytes_ = 0;
    net::OpTag tag_;  // of the operation that is under way
    Status failed_;
};

}  // namespace weft::coll
