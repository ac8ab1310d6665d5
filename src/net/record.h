// Sealed records: what an encrypted tcp link sends in place of bare frames (frame.h).
//
//     length u32 | ciphertext, `length` bytes | tag, 16 bytes
//
// AES-128-GCM encrypts each record under the key of its direction (LinkKeys). The number of the
// record in its direction is the nonce, and `length` is authenticated, so a record that is changed,
// repeated, dropped or moved ends the link. A record holds bytes of one frame. No byte of a record
// counts before its tag was checked.
//
// These classes use no socket. Thread: one at a time for each object.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/aes_gcm.h"
#include "base/result.h"
#include "net/frame.h"

namespace weft::net {

// Random bytes that one rank of a pair draws for the keys of their link.
using LinkSecret = std::array<uint8_t, 32>;

// AES-128 keys of one rank's end of a link.
struct LinkKeys {
    using Key = std::array<uint8_t, 16>;
    Key send{}, receive{};
};

// The keys of `rank` for its link to `peer`: each direction has its own key, which depends on both
// secrets, both ranks and the epoch.
LinkKeys KeysOfLink(const LinkSecret& mine, const LinkSecret& theirs, int rank, int peer,
                    uint64_t epoch);

// A record and its clear text fit a first-level cache. The 256 bytes are for the headers of a
// message of a power of two.
inline constexpr size_t kMostRecord = (size_t{16} << 10) + 256;
inline constexpr size_t kRecordExtra = sizeof(uint32_t) + AesGcm::kTagBytes;

class RecordSealer {
  public:
    // A header, a head and data.
    static constexpr size_t kMostParts = 3;
    static constexpr size_t kMostRecords = 8;  // of one call

    explicit RecordSealer(const LinkKeys::Key& key);
    // Seals the first bytes of `parts` as at most `records` records, and removes them from `parts`.
    // Returns the records, which stay valid until the next call.
    std::span<const std::byte> Seal(std::span<AesGcm::Bytes> parts, size_t records = kMostRecords);

  private:
    size_t SealOne(std::span<AesGcm::Bytes> parts, std::byte* out);

    AesGcm gcm_;
    uint64_t number_ = 0;
    std::unique_ptr<std::byte[]> records_;
};

class RecordReader {
  public:
    // frames: gets the frames; must outlive the reader.
    RecordReader(const LinkKeys::Key& key, FrameReader& frames);
    // The buffer for the next bytes of the connection; not empty.
    iovec Target();
    // The caller has read `bytes` bytes into Target(). Errors: kCorrupt (the connection must end).
    Status Consume(size_t bytes);

  private:
    Status Open(std::span<const std::byte> record);

    FrameReader& frames_;
    AesGcm gcm_;
    uint64_t number_ = 0;
    std::unique_ptr<std::byte[]> buffer_;
    size_t begin_ = 0, end_ = 0;  // the unread bytes in buffer_
};

}  // namespace weft::net
