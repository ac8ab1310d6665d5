// A stream of messages between this rank and one peer, both ways, over one link.
//
// Each direction has kSlots slots in the receiver's window. Message n lies in slot n % kSlots, and
// raises the data flag to n; it may be written once message n - kSlots is known to be released.
// That is known from the sender's side without any acknowledgement wherever the peer sends too:
// each message says how many of ours its sender has released (`Told::kInMessages`). A peer with
// nothing to say raises the credit flag for every third message that it releases, so that it
// never keeps more than two releases to itself.
//
// `Told::kInMessages` is right only where both ranks post and await in one common order of
// operations, each awaiting all that is addressed to it before the next operation, and posting no
// more than two messages of an operation ahead of those that the peer posts in it (so that what
// it waits for was said by flag, or in a message that it has read). Sends and receives have no
// such order: `Told::kByFlag` raises the flag for every second release and says nothing else.
// An operation of another order over a stream of the first kind posts `Told::kByFlag`: then what
// is released is said by flag alone, and two messages are on their way at least before Post waits.
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

// What a message belongs to: both ends must mean the same, or are found out.
enum class Operation : uint8_t {
    kSend,
    kBarrier,
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kBroadcast
};
// The operation in a message's head, with an all_reduce's algorithm and the number of a collective
// in its group; and what it says, for errors.
constexpr uint64_t KindOf(Operation operation, uint64_t number = 0, Algorithm by = {}) {
    return number << 16 | static_cast<uint64_t>(by) << 8 | static_cast<uint64_t>(operation);
}
std::string KindText(uint64_t kind);

enum class Told { kInMessages, kByFlag };

// The first cache line of a slot.
struct alignas(64) MessageHead {
    uint64_t bytes = 0;
    uint64_t kind = 0;         // KindOf what it belongs to
    uint64_t released = 0;     // messages of the receiver's that the sender has done with
    int64_t last_arrival = 0;  // the latest one at this operation that the sender knows of
    uint64_t sequence = 0;     // the first message of a stream is 1
    uint64_t epoch = 0;
    uint64_t checksum = 0;  // of head (this being 0) and payload; 0: none
};
static_assert(sizeof(MessageHead) == 64);

class Stream {
  public:
    static constexpr uint64_t kSlots = 4;
    // The largest payload of a message where a stream owns `window_bytes`.
    static size_t PayloadBytes(size_t window_bytes);

    // Owns flags `flag` (data) and `flag + 1` (credit), and the window from `window_begin` on.
    // epoch and checksum: the Fabric's.
    Stream(net::Link& link, uint64_t epoch, bool checksum, size_t window_begin, size_t window_bytes,
           int flag, Told told);

    const net::PeerName& peer() const { return link_.peer(); }
    // Sends a message. Waits only if the peer is kSlots messages behind. told: how what this rank
    // has released is said beside it; the stream's own way, or kByFlag.
    Status Post(uint64_t kind, int64_t last_arrival, std::span<const std::byte> payload,
                const net::OpTag& tag, const Deadline& deadline, Told told = Told::kInMessages);
    // The next message awaited will have a payload of `bytes`: said early, it may arrive faster.
    void Expect(size_t bytes) {
        if (bytes < least_expected_ || link_.flag(data_flag_) > awaited_) return;
        link_.Expect(SlotAt(awaited_ + 1), sizeof(MessageHead) + bytes);
    }
    // Waits for the next message, which must be of this kind and length (else kCorrupt).
    // payload: in the window, until Release. last_arrival: raised to what the message knows.
    Status Await(uint64_t kind, size_t bytes, const std::byte*& payload, int64_t& last_arrival,
                 const net::OpTag& tag, const Deadline& deadline);
    // The awaited message's slot may be written again. An error (kCorrupt) if it was already: what
    // was read since Await is not to be trusted.
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
    Told told_how_;
    uint64_t sent_ = 0;
    uint64_t peer_released_ = 0;  // of what we sent
    uint64_t awaited_ = 0;
    uint64_t released_ = 0;  // of what we got
    uint64_t told_ = 0;      // how many of those the peer knows, or will
};

}  // namespace weft::coll
