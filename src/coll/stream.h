// A stream of messages between this rank and one peer, both ways, over one link.
//
// Each direction has kSlots slots in the receiver's window. Message n uses slot n % kSlots and
// raises the data flag to n. The sender may write it once it knows that message n - kSlots was
// released. If the peer sends too, each of its messages says how many messages it has released
// (`Told::kInMessages`), so no acknowledgment is needed. A peer with nothing to send raises the
// credit flag for every third message that it releases, so at most two releases are unreported.
//
// `Told::kInMessages` needs a common order of operations. Each rank awaits all messages of an
// operation before the next operation, and posts at most two messages of an operation ahead of the
// peer's posts in it. A release that Post needs to know of has then been reported, by flag or in a
// message that this rank has read. Sends and receives have no common order: with `Told::kByFlag`
// the receiver raises the flag for every second release, and messages report none. Over a
// kInMessages stream, an operation with another order posts with `Told::kByFlag`: its messages
// report no releases, and at least two messages are in flight before Post waits.
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

// The operation of a message; a mismatch between both ends is detected.
enum class Operation : uint8_t {
    kSend,
    kBarrier,
    kAllReduce,
    kAllGather,
    kReduceScatter,
    kAllToAll,
    kBroadcast
};
// Value for a message's header: the operation, an all_reduce's algorithm, and the number of a
// collective in its group.
constexpr uint64_t KindOf(Operation operation, uint64_t number = 0, Algorithm by = {}) {
    return number << 16 | static_cast<uint64_t>(by) << 8 | static_cast<uint64_t>(operation);
}
std::string KindText(uint64_t kind);

enum class Told { kInMessages, kByFlag };

// The first cache line of a slot.
struct alignas(64) MessageHead {
    uint64_t bytes = 0;
    uint64_t kind = 0;         // KindOf its operation
    uint64_t released = 0;     // number of the receiver's messages that the sender has released
    int64_t last_arrival = 0;  // latest arrival at this operation that the sender knows
    uint64_t sequence = 0;     // from 1
    uint64_t epoch = 0;
    uint64_t checksum = 0;  // of header (with 0 here) and payload; 0: none
};
static_assert(sizeof(MessageHead) == 64);

class Stream {
  public:
    static constexpr uint64_t kSlots = 4;
    // Largest payload of a message in a stream with `window_bytes`.
    static size_t PayloadBytes(size_t window_bytes);

    // Owns flags `flag` (data) and `flag + 1` (credit), and the window from `window_begin` on.
    // epoch and checksum: the Fabric's.
    Stream(net::Link& link, uint64_t epoch, bool checksum, size_t window_begin, size_t window_bytes,
           int flag, Told told);

    const net::PeerName& peer() const { return link_.peer(); }
    // Sends a message. Waits only if the peer is kSlots messages behind. told: how to report this
    // rank's releases: the stream's own way, or kByFlag.
    Status Post(uint64_t kind, int64_t last_arrival, std::span<const std::byte> payload,
                const net::OpTag& tag, const Deadline& deadline, Told told = Told::kInMessages);
    // Announces that the next awaited message has a payload of `bytes`; it may then arrive faster.
    void Expect(size_t bytes) {
        if (bytes < least_expected_ || link_.flag(data_flag_) > awaited_) return;
        link_.Expect(SlotAt(awaited_ + 1), sizeof(MessageHead) + bytes);
    }
    // Waits for the next message, of this kind and length (else kCorrupt). payload: in the window,
    // until Release. last_arrival: raised to the message's value.
    Status Await(uint64_t kind, size_t bytes, const std::byte*& payload, int64_t& last_arrival,
                 const net::OpTag& tag, const Deadline& deadline);
    // Frees the awaited message's slot. kCorrupt: the slot was already overwritten, so the data
    // read since Await are invalid.
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
    uint64_t peer_released_ = 0;  // of messages from this rank
    uint64_t awaited_ = 0;
    uint64_t released_ = 0;  // of messages from the peer
    uint64_t told_ = 0;      // releases that the peer knows of, or soon will
};

}  // namespace weft::coll
