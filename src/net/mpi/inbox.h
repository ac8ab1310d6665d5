// Messages of an mpi link: what they look like, and what the receiver makes of them.
//
// A put is one message while it is small: a frame's header (net/frame.h), two words, the bytes.
// Of a larger put the message has the first bytes only (its head); the rest follows as a bulk
// message under the tag that the message names, which is received straight into the window.
//
//     frame 40 | bulk tag u32 | bytes here u32 | those bytes
//
// The frame's epoch is a random number that the receiver offered for this one link, so that a
// message meant for an earlier link between the two is dropped.
// Pure: bytes in, window and flags out; no MPI. The messages are hostile. Thread: one.
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
    uint32_t bulk_tag = 0;    // 0: all bytes are here
    uint32_t bytes_here = 0;  // of frame.length
};
static_assert(sizeof(MpiHeader) == 48);

class MpiInbox {
  public:
    // window: what the peer may write; outlives the inbox.
    MpiInbox(uint64_t token, std::span<std::byte> window) : token_(token), window_(window) {}

    // What is still to come of the message just taken.
    struct Bulk {
        uint32_t tag = 0;
        std::span<std::byte> into;
    };
    // Takes one message. If it returns a Bulk, the next thing to call is BulkArrived, once those
    // bytes are there. Errors: kCorrupt; the inbox takes nothing more after it.
    Result<std::optional<Bulk>> Take(std::span<const std::byte> message);
    void BulkArrived();

    uint64_t flag(int index) const { return flags_[static_cast<size_t>(index)]; }
    uint64_t dropped() const { return dropped_; }

  private:
    uint64_t token_;
    std::span<std::byte> window_;
    std::array<uint64_t, kFlags> flags_{};
    FrameHeader bulk_frame_;  // whose bytes are awaited
    uint64_t dropped_ = 0;
};

}  // namespace weft::net
