#include "coll/stream.h"

#include <algorithm>
#include <cstring>

namespace weft::coll {
namespace {

size_t SlotBytes(size_t window_bytes) {
    return window_bytes / Stream::kSlots / 64 * 64;
}

}  // namespace

size_t Stream::PayloadBytes(size_t window_bytes) {
    const size_t slot = SlotBytes(window_bytes);
    return slot <= sizeof(MessageHead) ? 0 : slot - sizeof(MessageHead);
}

Stream::Stream(net::Link& link, size_t window_begin, size_t window_bytes, int flag, Told told)
    : link_(link),
      begin_(window_begin),
      slot_bytes_(SlotBytes(window_bytes)),
      data_flag_(flag),
      credit_flag_(flag + 1),
      told_how_(told) {}

Status Stream::Post(uint64_t kind, int64_t last_arrival_ns, std::span<const std::byte> payload,
                    const net::OpTag& tag, const Deadline& deadline) {
    WEFT_CHECK(payload.size() + sizeof(MessageHead) <= slot_bytes_);
    const uint64_t message = sent_ + 1;
    if (message > kSlots && peer_released_ < message - kSlots) {
        WEFT_TRY(link_.Wait(credit_flag_, message - kSlots, tag, deadline));
        peer_released_ = std::max(peer_released_, link_.flag(credit_flag_));
    }
    MessageHead head;
    head.bytes = payload.size();
    head.kind = kind;
    head.last_arrival_ns = last_arrival_ns;
    if (told_how_ == Told::kInMessages) head.released = told_ = released_;
    WEFT_TRY(link_.Put(SlotAt(message), std::as_bytes(std::span(&head, 1)), payload, data_flag_,
                       message, tag, deadline));
    sent_ = message;
    return {};
}

Status Stream::Await(uint64_t kind, size_t bytes, const std::byte*& payload,
                     int64_t& last_arrival_ns, const net::OpTag& tag, const Deadline& deadline) {
    WEFT_TRY(link_.Wait(data_flag_, awaited_ + 1, tag, deadline));
    awaited_++;
    const std::byte* slot = link_.window().data() + SlotAt(awaited_);
    MessageHead head;
    std::memcpy(&head, slot, sizeof head);
    if (head.bytes != bytes || head.kind != kind || head.released > sent_) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: sent {} bytes of operation {} for {}, expected {} bytes of operation "
                         "{}. The ranks do not run the same program: is it the same model, version "
                         "and layout on all hosts?",
                         peer().Text(), head.bytes, head.kind, tag.Text(), bytes, kind);
    }
    if (told_how_ == Told::kInMessages) peer_released_ = std::max(peer_released_, head.released);
    last_arrival_ns = std::max(last_arrival_ns, head.last_arrival_ns);
    payload = slot + sizeof head;
    return {};
}

Status Stream::Release(const net::OpTag& tag, const Deadline& deadline) {
    released_++;
    const uint64_t untold_at_most = told_how_ == Told::kInMessages ? 2 : 1;
    if (released_ - told_ <= untold_at_most) return {};
    told_ = released_;
    return link_.Put(0, {}, {}, credit_flag_, released_, tag, deadline);
}

}  // namespace weft::coll
