// A team: some ranks of a group in one operation, and the steps of its algorithm.
//
// Members are numbered by their place in the team. All members post and await the same messages in
// one order. Values travel in the team's wire type (coll/wire.h). Every wait ends at the
// operation's deadline; errors are the Stream's. Allocates nothing, except a buffer at the first
// use of a narrow wire type. Thread: the Comm's.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "coll/hosts.h"
#include "coll/stream.h"
#include "coll/tuning.h"
#include "coll/wire.h"

namespace weft::coll {

// A view of consecutive floats or doubles.
class Values {
  public:
    Values(std::span<float> values) : Values(values.data(), values.size(), sizeof(float)) {}
    Values(std::span<double> values) : Values(values.data(), values.size(), sizeof(double)) {}

    size_t size() const { return size_; }
    bool empty() const { return size_ == 0; }
    size_t value_bytes() const { return value_bytes_; }
    std::span<const std::byte> bytes() const {
        return {static_cast<const std::byte*>(at_), size_ * value_bytes_};
    }
    // At most `count` values from `begin` on.
    Values Sub(size_t begin, size_t count) const {
        begin = std::min(begin, size_);
        return {static_cast<std::byte*>(at_) + begin * value_bytes_, std::min(count, size_ - begin),
                value_bytes_};
    }
    // One of `parts` parts of whole cache lines, as equal as possible; the last ones may be empty.
    Values Segment(size_t parts, size_t index) const;
    // Copies to `out`, of the same length; rounds if only `out` has floats. `out` may be this view.
    void CopyTo(Values out) const;
    // Calls call(std::span<float>) or call(std::span<double>).
    template <typename Call>
    void With(const Call& call) const {
        if (value_bytes_ == sizeof(float)) {
            call(std::span(static_cast<float*>(at_), size_));
        } else {
            call(std::span(static_cast<double*>(at_), size_));
        }
    }

  private:
    Values(void* at, size_t size, size_t value_bytes)
        : at_(at), size_(size), value_bytes_(value_bytes) {}

    void* at_;
    size_t size_;
    size_t value_bytes_;
};

// Shared by the operations of one Comm.
struct Group {
    std::vector<std::optional<Stream>> streams;  // by rank of the group; none for this rank
    std::vector<int> everyone;                   // 0, 1, ...
    size_t me = 0;
    size_t message_bytes = 0;   // the largest payload
    bool across_hosts = false;  // some link is not shm
    Hosts hosts;
    std::atomic<uint64_t> sent_bytes = 0;

    // State of the current operation.
    uint64_t kind = 0;
    net::OpTag tag;  // its `place` advances
    Deadline deadline = Deadline::In(0);
    int64_t last_arrival = 0;  // in ticks
    Told told = Told::kInMessages;

    std::vector<const std::byte*> addends;  // by place: address of the addend
    std::vector<std::byte> on_wire;         // this rank's values in a narrow wire type, two
                                            // messages
    size_t on_wire_half = 0;
};

class Team {
  public:
    // ranks: of the group, ascending; this rank is at place `me`. value_bytes: size of a value.
    Team(Group& group, std::span<const int> ranks, size_t me, size_t value_bytes, WireType wire)
        : group_(group), ranks_(ranks), me_(me), value_bytes_(value_bytes), wire_(wire) {}
    // A team of all ranks, for bytes or for values without conversion.
    explicit Team(Group& group, size_t value_bytes = 1, WireType wire = WireType::kFull)
        : Team(group, group.everyone, group.me, value_bytes, wire) {}
    // A team of other ranks in the same operation, with the same type of values.
    Team Of(std::span<const int> ranks, size_t me, WireType wire) const {
        return {group_, ranks, me, value_bytes_, wire};
    }

    const Group& group() const { return group_; }
    size_t size() const { return ranks_.size(); }
    size_t me() const { return me_; }
    int rank(size_t place) const { return ranks_[place]; }
    size_t Ahead(size_t steps) const { return (me_ + steps) % size(); }
    // Space for the address of each member's addend.
    std::span<const std::byte*> addends() const { return std::span(group_.addends).first(size()); }
    WireType wire() const { return wire_; }
    // Maximum number of values in a message, in whole blocks of any wire type.
    size_t MessageValues() const {
        return WireValues(wire_, group_.message_bytes, value_bytes_) / kQ8Block * kQ8Block;
    }

    // Reports this rank's progress in the operation, from which cluster/root_cause.h finds the rank
    // that delays all others. Without a call, the progress is the number of awaited messages, which
    // suffices if all ranks await equally many. event: numbered such that ranks in an event wait
    // only for ranks in earlier events.
    void At(size_t event) const {
        group_.tag.place = static_cast<int64_t>((1 + event) * (size() + 2));
    }

    // ---- Bytes: a message of at most group().message_bytes
    Status Post(size_t place, std::span<const std::byte> payload) const {
        group_.sent_bytes.fetch_add(payload.size(), std::memory_order_relaxed);
        return To(place).Post(group_.kind, group_.last_arrival, payload, group_.tag,
                              group_.deadline, group_.told);
    }
    Status PostToOthers(std::span<const std::byte> payload) const;
    // Announces that the next message from each other member has `bytes`; it may then arrive
    // faster.
    void ExpectFromOthers(size_t bytes) const {
        for (size_t step = 1; step < size(); step++) To(Ahead(step)).Expect(bytes);
    }
    // payload: in the window, until Release.
    Status Await(size_t place, size_t bytes, const std::byte*& payload) const {
        group_.tag.place++;
        return To(place).Await(group_.kind, bytes, payload, group_.last_arrival, group_.tag,
                               group_.deadline);
    }
    Status Release(size_t place) const { return To(place).Release(group_.tag, group_.deadline); }
    // Awaits, copies out, releases.
    Status Take(size_t place, std::span<std::byte> out) const;

    // ---- Values
    // Converts to the wire type. The result is valid until the call after the next one, and only
    // while `values` do not change.
    std::span<const std::byte> OnWire(Values values) const;
    // Decodes `bytes` of OnWire, with the same result as on the other ranks.
    void FromWire(std::span<const std::byte> bytes, Values out) const;
    Status PostValues(size_t place, Values values) const { return Post(place, OnWire(values)); }
    // bytes: `count` values in the wire type, in the window until Release.
    Status AwaitValues(size_t place, size_t count, std::span<const std::byte>& bytes) const;
    // Awaits, reads, releases.
    Status TakeValues(size_t place, Values out) const;
    // Awaits a message from each other member and sums all in the order of places; rounds doubles
    // if `sum` has floats. own: this rank's addend in the wire type; may be in `sum`.
    Status Sum(Values sum, std::span<const std::byte> own) const;

  private:
    Stream& To(size_t place) const { return *group_.streams[static_cast<size_t>(ranks_[place])]; }

    Group& group_;
    std::span<const int> ranks_;
    size_t me_;
    size_t value_bytes_;
    WireType wire_;
};

}  // namespace weft::coll
