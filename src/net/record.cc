#include "net/record.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/hash.h"

namespace weft::net {
namespace {

static_assert(std::endian::native == std::endian::little, "lengths are sent as they are in memory");

constexpr std::string_view kLabel = "weft data link";
constexpr size_t kLengthBytes = sizeof(uint32_t);
// A reader gets several records from one socket call.
constexpr size_t kBufferBytes = size_t{512} << 10;
static_assert(kBufferBytes >= 2 * (kMostRecord + kRecordExtra));
static_assert(kMostRecord <= FrameReader::kStagingBytes);

LinkKeys::Key KeyOf(const LinkSecret& lower, const LinkSecret& higher, int from, int to,
                    uint64_t epoch) {
    std::array<uint8_t, 2 * sizeof(LinkSecret)> secrets;
    std::copy(lower.begin(), lower.end(), secrets.begin());
    std::copy(higher.begin(), higher.end(), secrets.begin() + sizeof(LinkSecret));
    std::array<std::byte, kLabel.size() + 24> context{};
    const std::array<uint64_t, 3> numbers = {static_cast<uint64_t>(from), static_cast<uint64_t>(to),
                                             epoch};
    std::memcpy(context.data(), kLabel.data(), kLabel.size());
    std::memcpy(context.data() + kLabel.size(), numbers.data(), sizeof numbers);
    const Sha256Digest digest = HmacSha256(std::as_bytes(std::span(secrets)), context);
    LinkKeys::Key key;
    std::copy_n(digest.begin(), key.size(), key.begin());
    return key;
}

}  // namespace

LinkKeys KeysOfLink(const LinkSecret& mine, const LinkSecret& theirs, int rank, int peer,
                    uint64_t epoch) {
    const LinkSecret& lower = rank < peer ? mine : theirs;
    const LinkSecret& higher = rank < peer ? theirs : mine;
    return {KeyOf(lower, higher, rank, peer, epoch), KeyOf(lower, higher, peer, rank, epoch)};
}

RecordSealer::RecordSealer(const LinkKeys::Key& key)
    : gcm_(AesGcm::Direction::kSeal, key),
      records_(std::make_unique_for_overwrite<std::byte[]>(kMostRecords *
                                                           (kMostRecord + kRecordExtra))) {}

std::span<const std::byte> RecordSealer::Seal(std::span<AesGcm::Bytes> parts, size_t records) {
    WEFT_CHECK(records <= kMostRecords);
    size_t bytes = 0;
    for (size_t i = 0; i < records; i++) bytes += SealOne(parts, records_.get() + bytes);
    WEFT_CHECK(bytes > 0);
    return {records_.get(), bytes};
}

// Returns the size of the record; 0: `parts` has no bytes.
size_t RecordSealer::SealOne(std::span<AesGcm::Bytes> parts, std::byte* out) {
    std::array<AesGcm::Bytes, kMostParts> record;
    WEFT_CHECK(parts.size() <= record.size());
    size_t room = kMostRecord;
    for (size_t i = 0; i < parts.size(); i++) {
        record[i] = parts[i].first(std::min(parts[i].size(), room));
        parts[i] = parts[i].subspan(record[i].size());
        room -= record[i].size();
    }
    const auto length = static_cast<uint32_t>(kMostRecord - room);
    if (length == 0) return 0;
    std::memcpy(out, &length, kLengthBytes);
    gcm_.Seal(number_++, {out, kLengthBytes}, record, out + kLengthBytes,
              AesGcm::Tag(out + kLengthBytes + length, AesGcm::kTagBytes));
    return length + kRecordExtra;
}

RecordReader::RecordReader(const LinkKeys::Key& key, FrameReader& frames)
    : frames_(frames),
      gcm_(AesGcm::Direction::kOpen, key),
      buffer_(std::make_unique_for_overwrite<std::byte[]>(kBufferBytes)) {}

iovec RecordReader::Target() {
    // After Consume, the unread bytes are part of one record.
    if (begin_ == end_) {
        begin_ = end_ = 0;
    } else if (kBufferBytes - begin_ < kMostRecord + kRecordExtra) {
        std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
        end_ -= std::exchange(begin_, 0);
    }
    return {buffer_.get() + end_, kBufferBytes - end_};
}

Status RecordReader::Consume(size_t bytes) {
    WEFT_CHECK(bytes <= kBufferBytes - end_);
    end_ += bytes;
    while (end_ - begin_ >= kLengthBytes) {
        uint32_t length;
        std::memcpy(&length, buffer_.get() + begin_, sizeof length);
        if (length == 0 || length > kMostRecord) {
            return MakeError(ErrorCode::kCorrupt, "a record of {} bytes, expected 1 to {}", length,
                             kMostRecord);
        }
        const size_t whole = length + kRecordExtra;
        if (end_ - begin_ < whole) break;
        WEFT_TRY(Open({buffer_.get() + begin_, whole}));
        begin_ += whole;
    }
    return {};
}

// Decrypts a record into the buffer that the FrameReader names: a staging buffer for the first
// record of a frame, and the window for further payload. Nobody reads that part of the window
// before the end of the frame raises its flag.
Status RecordReader::Open(std::span<const std::byte> record) {
    const AesGcm::Bytes length = record.first(kLengthBytes);
    const AesGcm::Bytes sealed = record.subspan(kLengthBytes, record.size() - kRecordExtra);
    std::array<iovec, FrameReader::kTargets> targets;
    frames_.Targets(targets);
    if (targets[0].iov_len < sealed.size()) {
        return MakeError(ErrorCode::kCorrupt, "a record of {} bytes where at most {} fit",
                         sealed.size(), targets[0].iov_len);
    }
    if (!gcm_.Open(number_++, length, sealed, static_cast<std::byte*>(targets[0].iov_base),
                   record.last(AesGcm::kTagBytes))) {
        return MakeError(ErrorCode::kCorrupt,
                         "its data was changed, repeated or dropped on the way. Somebody changes "
                         "the traffic between the hosts, or a network card damages it");
    }
    return frames_.Consume(sealed.size());
}

}  // namespace weft::net
