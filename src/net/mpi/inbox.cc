#include "net/mpi/inbox.h"

#include <cstring>

namespace weft::net {

Result<std::optional<MpiInbox::Bulk>> MpiInbox::Take(std::span<const std::byte> message) {
    if (message.size() < sizeof(MpiHeader)) {
        return MakeError(ErrorCode::kCorrupt, "a message of {} bytes, less than its header",
                         message.size());
    }
    MpiHeader header;
    std::memcpy(&header, message.data(), sizeof header);
    const FrameHeader& frame = header.frame;
    const std::span<const std::byte> here = message.subspan(sizeof header);
    // A message of an earlier link: its bulk, if any, stays with MPI, and no later one has that
    // tag.
    if (frame.magic == kFrameMagic && frame.epoch != token_) {
        dropped_++;
        return std::optional<Bulk>();
    }
    WEFT_TRY(CheckFrame(frame, window_.size()));
    const bool right = frame.flag != kGoodbyeFlag && header.bytes_here == here.size() &&
                       here.size() <= frame.length &&
                       (header.bulk_tag != 0) == (here.size() < frame.length);
    if (!right) {
        return MakeError(
            ErrorCode::kCorrupt,
            "a message has {} bytes, but its header says {} of {}, the rest under tag {}",
            here.size(), header.bytes_here, frame.length, header.bulk_tag);
    }
    WEFT_TRY(CheckRaise(frame, flags_));
    std::byte* at = window_.data() + frame.offset;
    if (!here.empty()) std::memcpy(at, here.data(), here.size());
    if (header.bulk_tag == 0) {
        flags_[frame.flag] = frame.value;
        return std::optional<Bulk>();
    }
    bulk_frame_ = frame;
    return std::optional(
        Bulk{header.bulk_tag, window_.subspan(frame.offset + here.size(),
                                              static_cast<size_t>(frame.length) - here.size())});
}

void MpiInbox::BulkArrived() {
    flags_[bulk_frame_.flag] = bulk_frame_.value;
}

}  // namespace weft::net
