// A stream of messages between this rank and one peer, in both directions, over one link.
//
// Each direction has kSlots slots in the receiver's window. Message n uses slot n % kSlots and
// raises the data flag to n. The sender may write message n once the receiver has reported the
// release of message n - kSlots, which had the same slot. If the receiver sends messages, too, each
// of them states how many messages it has released (`ReleaseReport::kInMessages`), so no
// acknowledgment is needed. A receiver that has nothing to send raises the credit flag for every
// third message that it releases, so at most two releases are unreported.
//
// `ReleaseReport::kInMessages` requires that both ranks run the same operations in the same order.
// Each rank must await all messages of an operation before the next operation. Within an operation,
// it may post at most two messages more than the peer has posted. Under these rules, the peer
// reports each release that Post needs, by the flag or in a message that this rank has read. Sends
// and receives have no such common order. For them there is `ReleaseReport::kByFlag`: the receiver
// raises the credit flag for every second release, and messages report no releases. An operation
// that does not follow the rules of `ReleaseReport::kInMessages` can also post with
// `ReleaseReport::kByFlag` over a kInMessages stream: then its messages report no releases, and at
// least two messages may be in flight before Post waits.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "base/deadline.h"
#include "base/result.h"
#include "coll/tuning.h"
#include "net/link.h"

namespace weft::coll {

// The operation of a message. The receiver detects a message of another operation than it expects.
enum class Operation : uint8_t {
    kSend,
    kBarrier,
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kBroadcast
};
// The value of MessageHead::kind: the operation, the algorithm of an all_reduce, and the number of
// the collective in its group.
constexpr uint64_t KindOf(Operation operation, uint64_t number = 0, Algorithm by = {}) {
    return number << 16 | static_cast<uint64_t>(by) << 8 | static_cast<uint64_t>(operation);
}
std::string KindText(uint64_t kind);

enum class ReleaseReport { kInMessages, kByFlag };

// The first cache line of a slot.
struct alignas(64) MessageHead {
    uint64_t bytes = 0;
    uint64_t kind = 0;         // KindOf() the message's operation
    uint64_t released = 0;     // how many of the receiver's own messages the sender has released
    int64_t last_arrival = 0;  // latest time at which a rank entered this operation, as far as the
                               // sender has received it
    uint64_t sequence = 0;     // from 1
    uint64_t epoch = 0;
    uint64_t checksum = 0;  // checksum of header (with 0 in this field) and payload; 0: none
};
static_assert(sizeof(MessageHead) == 64);

class Stream {
  public:
    static constexpr uint64_t kSlots = 4;
    // Largest payload of a message in a stream with `window_bytes`.
    static size_t PayloadBytes(size_t window_bytes);

    // The stream owns the flags `flag` (data) and `flag + 1` (credit), and window_bytes bytes of
    // the window from window_begin on. epoch and checksum: from the Fabric.
    Stream(net::Link& link, uint64_t epoch, bool checksum, size_t window_begin, size_t window_bytes,
           int flag, ReleaseReport told);

    const net::PeerName& peer() const { return link_.peer(); }
    // Sends a message. Waits only if the peer has not released one of the last kSlots messages.
    // told: how this rank reports its releases, which is the stream's `told` or kByFlag.
    Status Post(uint64_t kind, int64_t last_arrival, std::span<const std::byte> payload,
                const net::OpTag& tag, const Deadline& deadline,
                ReleaseReport told = ReleaseReport::kInMessages);
    // Announces that the next message to await has a payload of `bytes`, so that the link can
    // prepare for it and the message may arrive faster.
    void Expect(size_t bytes) {
        if (bytes < least_expected_ || link_.flag(data_flag_) > awaited_) return;
        link_.Expect(SlotAt(awaited_ + 1), sizeof(MessageHead) + bytes);
    }
    // Waits for the next message; the error is kCorrupt if it has another kind or length. payload:
    // points into the window and is valid until Release. last_arrival: raised to the message's
    // value if that is later.
    Status Await(uint64_t kind, size_t bytes, const std::byte*& payload, int64_t& last_arrival,
                 const net::OpTag& tag, const Deadline& deadline);
    // Frees the slot of the awaited message. Errors: kCorrupt (the slot was already overwritten, so
    // the data read since Await is invalid).
    Status Release(const net::OpTag& tag, const Deadline& deadline);

  private:
    size_t SlotAt(uint64_t message) const { return begin_ + message % kSlots * slot_bytes_; }
    MessageHead HeadOf(uint64_t message) const;
    Error OutOfStep(const MessageHead& head, uint64_t expected, const net::OpTag& tag) const;

    net::Link& link_;
    size_t least_expected_;
    const std::byte* window_;
    uint64_t epoch_;
    bool checksum_;
    size_t begin_;
    size_t slot_bytes_;
    int data_flag_;
    int credit_flag_;
    ReleaseReport release_report_;
    uint64_t sent_ = 0;
    uint64_t peer_released_ = 0;  // of messages from this rank
    uint64_t awaited_ = 0;
    uint64_t released_ = 0;  // of messages from the peer
    uint64_t told_ = 0;      // number of releases that were reported to the peer
};

}  // namespace weft::coll
