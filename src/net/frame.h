// Frames of a tcp link: a 40-byte header (little-endian), then `length` bytes for the window.
//
//     magic u32 | flag u32 | epoch u64 | offset u64 | length u64 | value u64
//
// FrameReader takes the byte stream of one connection apart. It never owns a socket, so that a
// test or a fuzzer can feed it: it says where the next bytes should be read to (payloads go
// straight into the window, all else into a small staging buffer) and then what was read.
// Where the next frame is expected to go may be said in advance (Expect): then its payload is read
// in place, without a detour through the staging buffer.
// The stream is hostile: a frame outside the window, of an unknown flag, or that lowers a flag is
// kCorrupt, and the connection is to be closed. A frame of another epoch is skipped.
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
// A socket call moves no more: its data is still in the cache for the peer.
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

// Whether a header makes sense to the owner of a window of so many bytes. Errors: kCorrupt.
Status CheckFrame(const FrameHeader& header, size_t window_bytes);
// Whether it raises its flag (of those in `flags`) or leaves it. Errors: kCorrupt.
Status CheckRaise(const FrameHeader& header, std::span<const uint64_t, kFlags> flags);

class FrameReader {
  public:
    // `window` is what the peer may write; it outlives the reader.
    FrameReader(uint64_t epoch, std::span<std::byte> window);

    // The next frame will carry `bytes` to `offset`, which nobody reads until its flag is raised. A
    // guess: where it is wrong, only those bytes of the window are written to no purpose. Holds for
    // one frame; does nothing while a frame's payload is being read.
    void Expect(size_t offset, size_t bytes);
    // Where the next bytes of the stream belong: one or two non-empty pieces.
    static constexpr size_t kTargets = 2;
    int Targets(std::array<iovec, kTargets>& out);
    // `bytes` have been read into the targets. After an error the reader takes nothing more.
    Status Consume(size_t bytes);

    // Any thread: who sees a flag sees the bytes that it was raised for.
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
    FrameHeader frame_;  // whose payload is being read
    uint64_t payload_left_ = 0;
    bool dropping_ = false;  // that payload goes nowhere
    bool goodbye_ = false;
    std::unique_ptr<std::byte[]> staging_;  // bytes that are not read in place
    size_t staged_ = 0;
    size_t expected_offset_ = 0;
    size_t expected_bytes_ = 0;   // 0: nothing is expected
    std::vector<std::byte> bin_;  // where dropped payloads go
};

}  // namespace weft::net
