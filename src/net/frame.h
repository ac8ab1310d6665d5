// Frames of a tcp link: a 40-byte header (little-endian), then `length` bytes for the window.
//
//     magic u32 | flag u32 | epoch u64 | offset u64 | length u64 | value u64
//
// FrameReader parses the byte stream of one connection. It owns no socket, so a test or a fuzzer
// can feed it. Targets says where to read the next bytes (payloads go directly into the window,
// other bytes into a small staging buffer); Consume says how many bytes were read. Expect announces
// the place of the next frame, whose payload is then read in place, without the staging buffer.
// The stream is hostile: a frame outside the window, with an unknown flag, or that lowers a flag is
// kCorrupt, and the connection must close. Frames of another epoch are skipped.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "net/link.h"

namespace weft::net {

inline constexpr uint32_t kFrameMagic = 0x57464c31;
inline constexpr uint32_t kGoodbyeFlag = 0xffffffff;  // the peer destroys its Fabric; no payload
// Most bytes of a socket call, so that the data is still in the cache when the peer reads it.
inline constexpr size_t kSocketCallBytes = size_t{256} << 10;

struct FrameHeader {
    uint32_t magic = kFrameMagic;
    uint32_t flag = 0;
    uint64_t epoch = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    uint64_t value = 0;
};
static_assert(sizeof(FrameHeader) == 40);

// Checks a header for a window of window_bytes bytes. Errors: kCorrupt.
Status CheckFrame(const FrameHeader& header, size_t window_bytes);
// Checks that the frame raises its flag (in `flags`) or leaves it. Errors: kCorrupt.
Status CheckRaise(const FrameHeader& header, std::span<const uint64_t, kFlags> flags);

class FrameReader {
  public:
    // window: the peer writes it; it outlives the reader.
    FrameReader(uint64_t epoch, std::span<std::byte> window);

    // Announces that the next frame has `bytes` bytes for `offset`. Nobody may read that part of
    // the window until the frame's flag is raised. A wrong guess only overwrites these bytes. Valid
    // for one frame; does nothing while a frame's payload is being read.
    void Expect(size_t offset, size_t bytes);
    // Destination of the next bytes of the stream: one or two non-empty pieces.
    static constexpr size_t kTargets = 2;
    int Targets(std::array<iovec, kTargets>& out);
    // `bytes` were read into the targets. After an error the reader accepts no more.
    Status Consume(size_t bytes);

    // Any thread: a thread that sees a flag also sees the bytes before it.
    uint64_t flag(int index) const {
        return __atomic_load_n(&flags_[static_cast<size_t>(index)], __ATOMIC_ACQUIRE);
    }
    bool goodbye() const { return goodbye_; }

  private:
    Status ConsumeExpected(size_t bytes);
    Status Begin(const FrameHeader& header);
    void Advance(size_t bytes);

    uint64_t epoch_;
    std::span<std::byte> window_;
    std::array<uint64_t, kFlags> flags_{};
    FrameHeader frame_;  // its payload is being read
    uint64_t payload_left_ = 0;
    bool dropping_ = false;  // that payload is discarded
    bool goodbye_ = false;
    std::unique_ptr<std::byte[]> staging_;  // bytes not read in place
    size_t staged_ = 0;
    size_t expected_offset_ = 0;
    size_t expected_bytes_ = 0;   // 0: no expected frame
    std::vector<std::byte> bin_;  // destination of discarded payloads
};

}  // namespace weft::net
