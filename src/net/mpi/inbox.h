// Messages of an mpi link: their format, and the receiver's parser.
//
// A small put is one message: a frame's header (net/frame.h), two numbers, and the bytes of the
// put. For a larger put, this message has only the first bytes and the MPI tag of a second, "bulk"
// message. The bulk message has the other bytes, which are received directly into the window.
//
//     frame (40 bytes) | bulk tag u32 | number of bytes in this message u32 | bytes
//
// The frame's epoch is a random number that the receiver offered for this link, so messages for an
// earlier link between the two ranks are dropped. MpiInbox makes no MPI calls: it parses the bytes
// of messages, and writes the window and the flags. The messages are hostile input. Thread: one
// caller.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "base/result.h"
#include "net/frame.h"

namespace weft::net {

struct MpiHeader {
    FrameHeader frame;
    uint32_t bulk_tag = 0;    // 0: the message has all bytes
    uint32_t bytes_here = 0;  // how many of the frame.length bytes this message has
};
static_assert(sizeof(MpiHeader) == 48);

class MpiInbox {
  public:
    // window: the memory that the peer writes; must outlive the inbox.
    MpiInbox(uint64_t token, std::span<std::byte> window) : token_(token), window_(window) {}

    // Describes the bulk message that follows the message just taken: its MPI tag, and where to
    // receive its bytes.
    struct Bulk {
        uint32_t tag = 0;
        std::span<std::byte> into;
    };
    // Processes one message. If the result is a Bulk, receive that bulk message, and call
    // BulkArrived before the next Take. Errors: kCorrupt; the inbox then accepts no more messages.
    Result<std::optional<Bulk>> Take(std::span<const std::byte> message);
    void BulkArrived();

    uint64_t flag(int index) const { return flags_[static_cast<size_t>(index)]; }
    uint64_t dropped() const { return dropped_; }

  private:
    uint64_t token_;
    std::span<std::byte> window_;
    std::array<uint64_t, kFlags> flags_{};
    FrameHeader bulk_frame_;  // frame of the bulk message that has not arrived yet
    uint64_t dropped_ = 0;
};

}  // namespace weft::net
