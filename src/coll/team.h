// A team: some ranks of a group in one operation, and the steps of its algorithm.
//
// The number of a member in the team is its place. All members post and await the same messages in
// the same order. Values are sent in the team's wire type (coll/wire.h). Every wait ends at the
// operation's deadline. Errors: those of Stream. Allocates nothing, except a buffer at the first
// use of a narrow wire type. Thread: the thread that uses the Comm.
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
    // The view of at most `count` values from `begin` on.
    Values Sub(size_t begin, size_t count) const {
        begin = std::min(begin, size_);
        return {static_cast<std::byte*>(at_) + begin * value_bytes_, std::min(count, size_ - begin),
                value_bytes_};
    }
    // Divides the values into `parts` parts of whole cache lines, as equal as possible, and returns
    // part `index`. The last parts may be empty.
    Values Segment(size_t parts, size_t index) const;
    // Copies the values to `out`, which must have the same length. Rounds doubles if `out` has
    // floats. `out` may be this view.
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

// State that all operations of a Comm share.
struct Group {
    std::vector<std::optional<Stream>> streams;  // by rank of the group; nullopt for this rank
    std::vector<int> everyone;                   // 0, 1, ...
    size_t me = 0;
    size_t message_bytes = 0;   // the largest payload
    bool across_hosts = false;  // some link is not shm
    Hosts hosts;
    std::atomic<uint64_t> sent_bytes = 0;

    // State of the current operation.
    uint64_t kind = 0;
    net::OpTag tag;  // OpTag::place grows with each awaited message
    Deadline deadline = Deadline::In(0);
    int64_t last_arrival = 0;  // in ticks
    ReleaseReport told = ReleaseReport::kInMessages;

    std::vector<const std::byte*> addends;  // for each place, the address of the member's addend
    std::vector<std::byte> on_wire;         // space for two messages with values of this rank in a
                                            // narrow wire type
    size_t on_wire_half = 0;
};

class Team {
  public:
    // ranks: numbers within the group, ascending; this rank has place `me`. value_bytes: size of a
    // value.
    Team(Group& group, std::span<const int> ranks, size_t me, size_t value_bytes, WireType wire)
        : group_(group), ranks_(ranks), me_(me), value_bytes_(value_bytes), wire_(wire) {}
    // A team of all ranks, for bytes or for values without conversion.
    explicit Team(Group& group, size_t value_bytes = 1, WireType wire = WireType::kFull)
        : Team(group, group.everyone, group.me, value_bytes, wire) {}
    // Returns a team of other ranks for the same operation, with the same type of values.
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
    // Maximum number of values in a message, rounded down to whole blocks of the wire types.
    size_t MessageValues() const {
        return WireValues(wire_, group_.message_bytes, value_bytes_) / kQ8Block * kQ8Block;
    }

    // Reports this rank's progress in the operation. From the progress of all ranks,
    // cluster/watch/root_cause.h finds the rank that delays all others. Without a call of At(), the
    // progress is the number of awaited messages, which is enough if all ranks await the same
    // number. event: events must be numbered so that a rank in an event waits only for ranks in
    // earlier events.
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
    // Announces that the next message from each other member has `bytes` bytes, so that it may
    // arrive faster.
    void ExpectFromOthers(size_t bytes) const {
        for (size_t step = 1; step < size(); step++) To(Ahead(step)).Expect(bytes);
    }
    // payload: points into the window and is valid until Release.
    Status Await(size_t place, size_t bytes, const std::byte*& payload) const {
        group_.tag.place++;
        return To(place).Await(group_.kind, bytes, payload, group_.last_arrival, group_.tag,
                               group_.deadline);
    }
    Status Release(size_t place) const { return To(place).Release(group_.tag, group_.deadline); }
    // Awaits a message, copies it to `out` and releases it.
    Status Take(size_t place, std::span<std::byte> out) const;

    // ---- Values
    // Converts `values` to the wire type. The result is valid until the second call from now, and
    // only while `values` do not change.
    std::span<const std::byte> OnWire(Values values) const;
    // Decodes a result of OnWire(). The values are the same as on the ranks that receive it.
    void FromWire(std::span<const std::byte> bytes, Values out) const;
    Status PostValues(size_t place, Values values) const { return Post(place, OnWire(values)); }
    // bytes: `count` values in the wire type. It points into the window and is valid until Release.
    Status AwaitValues(size_t place, size_t count, std::span<const std::byte>& bytes) const;
    // Awaits a message, decodes it to `out` and releases it.
    Status TakeValues(size_t place, Values out) const;
    // Awaits a message from each other member and sums all addends in the order of places. Rounds
    // doubles if `sum` has floats. own: this rank's addend in the wire type; it may be in the
    // memory of `sum`.
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
