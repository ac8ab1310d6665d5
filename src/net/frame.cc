#include "net/frame.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace weft::net {
namespace {

static_assert(std::endian::native == std::endian::little, "frames are sent as they are in memory");

constexpr size_t kBinBytes = size_t{16} << 10;
// Largest expected payload that is read in place.
constexpr size_t kMostExpected = size_t{144} << 10;
constexpr size_t kStagingCapacity =
    std::max(FrameReader::kStagingBytes, sizeof(FrameHeader) + kMostExpected);

}  // namespace

Status CheckFrame(const FrameHeader& header, size_t window_bytes) {
    if (header.magic != kFrameMagic) {
        return MakeError(ErrorCode::kCorrupt, "a frame begins with {:#010x}, expected {:#010x}",
                         header.magic, kFrameMagic);
    }
    const bool goodbye = header.flag == kGoodbyeFlag;
    if (!goodbye && header.flag >= static_cast<uint32_t>(kFlags)) {
        return MakeError(ErrorCode::kCorrupt, "a frame raises flag {}, expected below {}",
                         header.flag, kFlags);
    }
    if (header.offset > window_bytes || header.length > window_bytes - header.offset ||
        (goodbye && header.length != 0)) {
        return MakeError(ErrorCode::kCorrupt,
                         "a frame of {} bytes at offset {} does not fit the window of {} bytes",
                         header.length, header.offset, window_bytes);
    }
    return {};
}

Status CheckRaise(const FrameHeader& header, std::span<const uint64_t, kFlags> flags) {
    if (header.value >= flags[header.flag]) return {};
    return MakeError(ErrorCode::kCorrupt, "a frame lowers flag {} from {} to {}", header.flag,
                     flags[header.flag], header.value);
}

FrameReader::FrameReader(uint64_t epoch, std::span<std::byte> window)
    : epoch_(epoch),
      window_(window),
      staging_(std::make_unique_for_overwrite<std::byte[]>(kStagingCapacity)) {}

void FrameReader::Expect(size_t offset, size_t bytes) {
    if (payload_left_ > 0 || bytes > kMostExpected) return;
    if (offset > window_.size() || bytes > window_.size() - offset) return;
    expected_offset_ = offset;
    expected_bytes_ = bytes;
}

int FrameReader::Targets(std::array<iovec, kTargets>& out) {
    if (expected_bytes_ > 0) {
        out[0] = {staging_.get() + staged_, sizeof(FrameHeader) - staged_};
        out[1] = {window_.data() + expected_offset_, expected_bytes_};
        return 2;
    }
    const iovec rest{staging_.get() + staged_, kStagingBytes - staged_};
    if (payload_left_ == 0) {
        out[0] = rest;
        return 1;
    }
    if (dropping_) {
        bin_.resize(kBinBytes);
        out[0] = {bin_.data(), static_cast<size_t>(std::min<uint64_t>(payload_left_, kBinBytes))};
    } else {
        std::byte* at = window_.data() + frame_.offset + (frame_.length - payload_left_);
        out[0] = {at, static_cast<size_t>(std::min<uint64_t>(payload_left_, kSocketCallBytes))};
    }
    if (out[0].iov_len < payload_left_) return 1;
    out[1] = rest;
    return 2;
}

// Handles the first bytes of a frame that was read in place; if the guess was wrong, moves them
// together into the staging buffer.
Status FrameReader::ConsumeExpected(size_t bytes) {
    const size_t in_all = staged_ + bytes;
    const size_t expected = expected_bytes_;
    WEFT_CHECK(in_all <= sizeof(FrameHeader) + expected);
    staged_ = in_all;
    if (in_all < sizeof(FrameHeader)) return {};
    expected_bytes_ = 0;
    FrameHeader header;
    std::memcpy(&header, staging_.get(), sizeof header);
    const size_t in_place = in_all - sizeof header;
    if (header.epoch == epoch_ && header.flag != kGoodbyeFlag &&
        header.offset == expected_offset_ && header.length == expected) {
        staged_ = 0;
        WEFT_TRY(Begin(header));
        Advance(in_place);
        return {};
    }
    std::memcpy(staging_.get() + sizeof header, window_.data() + expected_offset_, in_place);
    return {};
}

Status FrameReader::Consume(size_t bytes) {
    if (expected_bytes_ > 0) {
        WEFT_TRY(ConsumeExpected(bytes));
    } else {
        if (payload_left_ > 0) {
            std::array<iovec, kTargets> targets;
            Targets(targets);
            const size_t in_place = std::min(bytes, targets[0].iov_len);
            Advance(in_place);
            bytes -= in_place;
        }
        WEFT_CHECK(bytes <= kStagingBytes - staged_);
        staged_ += bytes;
    }
    size_t at = 0;
    for (;;) {
        const size_t left = staged_ - at;
        if (payload_left_ > 0) {
            const size_t take = static_cast<size_t>(std::min<uint64_t>(payload_left_, left));
            if (take == 0) break;
            if (!dropping_) {
                std::memcpy(window_.data() + frame_.offset + (frame_.length - payload_left_),
                            staging_.get() + at, take);
            }
            Advance(take);
            at += take;
            continue;
        }
        if (left < sizeof(FrameHeader)) break;
        FrameHeader header;
        std::memcpy(&header, staging_.get() + at, sizeof header);
        at += sizeof header;
        WEFT_TRY(Begin(header));
    }
    // The rest is shorter than a header.
    if (at > 0 && at < staged_) std::memmove(staging_.get(), staging_.get() + at, staged_ - at);
    staged_ -= at;
    return {};
}

Status FrameReader::Begin(const FrameHeader& header) {
    WEFT_TRY(CheckFrame(header, window_.size()));
    dropping_ = header.epoch != epoch_;
    if (dropping_) {
        // A frame of an ended epoch: skipped.
    } else if (header.flag == kGoodbyeFlag) {
        goodbye_ = true;
        return {};
    } else {
        WEFT_TRY(CheckRaise(header, flags_));
    }
    frame_ = header;
    payload_left_ = header.length;
    if (payload_left_ == 0) Advance(0);
    return {};
}

// Counts `bytes` more of the payload, and raises the flag once it is complete.
void FrameReader::Advance(size_t bytes) {
    payload_left_ -= bytes;
    if (payload_left_ > 0 || dropping_) return;
    __atomic_store_n(&flags_[frame_.flag], frame_.value, __ATOMIC_RELEASE);
}

}  // namespace weft::net
