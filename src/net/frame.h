// Frames of a tcp link. A frame carries one put (link.h): a 40-byte header (little-endian), then
// `length` bytes for the window.
//
//     magic u32 | flag u32 | epoch u64 | offset u64 | length u64 | value u64
//
// FrameReader parses the byte stream of one connection. It owns no socket, so a test or a fuzzer
// can call it with any bytes. Targets returns the buffers into which the caller reads the next
// bytes: payload goes directly into the window, headers go into a small staging buffer. The caller
// then passes the number of bytes to Consume. Expect announces the position of the next frame's
// payload, so that even a payload that arrives together with its header is read directly into the
// window. The stream is hostile input. A frame that is outside the window, has an unknown flag, or
// lowers a flag gives kCorrupt, and the caller must close the connection. Frames of another epoch
// are skipped.
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
// Flag number of a goodbye, a frame without payload: the peer destroys its Fabric.
inline constexpr uint32_t kGoodbyeFlag = 0xffffffff;
// Most bytes that one socket call sends or receives, so that the data is still in the cache when
// the peer reads it.
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

// Checks that the frame fits a window of window_bytes bytes, and its other fields. Errors:
// kCorrupt.
Status CheckFrame(const FrameHeader& header, size_t window_bytes);
// Checks that the frame does not lower its flag. flags: the current values. Errors: kCorrupt.
Status CheckRaise(const FrameHeader& header, std::span<const uint64_t, kFlags> flags);

class FrameReader {
  public:
    // Large enough for a typical all-reduce (hidden sizes up to 4096 floats) in one socket call:
    // copying 16 KiB from the cache costs less than a second call.
    static constexpr size_t kStagingBytes = size_t{20} << 10;

    // window: the memory that the peer writes; must outlive the reader.
    FrameReader(uint64_t epoch, std::span<std::byte> window);

    // Announces that the next frame has `bytes` bytes for byte `offset` of the window. Nobody may
    // read that part of the window until the frame's flag is raised. If the next frame is a
    // different one, the only effect is that these bytes are overwritten. Valid for one frame. Does
    // nothing while a frame's payload is being read.
    void Expect(size_t offset, size_t bytes);
    // Returns the number of buffers for the next bytes of the stream, 1 or 2, and sets `out` to
    // them. None is empty.
    static constexpr size_t kTargets = 2;
    int Targets(std::array<iovec, kTargets>& out);
    // The caller has read `bytes` bytes into the buffers from Targets. After an error, do not call
    // the reader again.
    Status Consume(size_t bytes);

    // Thread: any. A thread that sees a flag's value also sees the bytes that were put before it.
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
    FrameHeader frame_;  // the frame whose payload is being read
    uint64_t payload_left_ = 0;
    bool dropping_ = false;  // the payload of frame_ is discarded
    bool goodbye_ = false;
    std::unique_ptr<std::byte[]> staging_;  // bytes that are not read directly into the window
    size_t staged_ = 0;
    size_t expected_offset_ = 0;
    size_t expected_bytes_ = 0;   // 0: no expected frame
    std::vector<std::byte> bin_;  // destination of discarded payloads
};

}  // namespace weft::net
