#include "coll/stream.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/crc32c.h"

namespace weft::coll {
namespace {

size_t SlotBytes(size_t window_bytes) {
    return window_bytes / Stream::kSlots / 64 * 64;
}

uint64_t ChecksumOf(MessageHead head, std::span<const std::byte> payload) {
    head.checksum = 0;
    return Crc32c(payload, Crc32c(std::as_bytes(std::span(&head, 1))));
}

}  // namespace

std::string KindText(uint64_t kind) {
    static constexpr const char* kNames[] = {
        "send", "barrier", "all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast"};
    const uint64_t operation = kind & 0xff, algorithm = kind >> 8 & 0xff, number = kind >> 16;
    if (operation >= std::size(kNames) || algorithm >= kAlgorithms.size()) {
        return fmt::format("unknown operation {:#x}", kind);
    }
    std::string text = kNames[operation];
    if (algorithm > 0) text += fmt::format(" by {}", AlgorithmName(kAlgorithms[algorithm]));
    if (number > 0) text += fmt::format(" (collective {})", number);
    return text;
}

size_t Stream::PayloadBytes(size_t window_bytes) {
    const size_t slot = SlotBytes(window_bytes);
    return slot <= sizeof(MessageHead) ? 0 : slot - sizeof(MessageHead);
}

Stream::Stream(net::Link& link, uint64_t epoch, bool checksum, size_t window_begin,
               size_t window_bytes, int flag, ReleaseReport told)
    : link_(link),
      least_expected_(link.least_expected_bytes()),
      window_(link.window().data()),
      epoch_(epoch),
      checksum_(checksum),
      begin_(window_begin),
      slot_bytes_(SlotBytes(window_bytes)),
      data_flag_(flag),
      credit_flag_(flag + 1),
      release_report_(told) {}

Status Stream::Post(uint64_t kind, int64_t last_arrival, std::span<const std::byte> payload,
                    const net::OpTag& tag, const Deadline& deadline, ReleaseReport told) {
    WEFT_CHECK(payload.size() + sizeof(MessageHead) <= slot_bytes_);
    const uint64_t message = sent_ + 1;
    if (message > kSlots && peer_released_ < message - kSlots) {
        WEFT_TRY(link_.Wait(credit_flag_, message - kSlots, tag, deadline));
        const uint64_t released = link_.flag(credit_flag_);
        if (released > sent_) {
            return MakeError(ErrorCode::kCorrupt, "{}: released {} messages for {}, got only {}",
                             peer().Text(), released, tag.Text(), sent_);
        }
        peer_released_ = std::max(peer_released_, released);
    }
    MessageHead head;
    head.bytes = payload.size();
    head.kind = kind;
    head.last_arrival = last_arrival;
    head.sequence = message;
    head.epoch = epoch_;
    const bool tells =
        release_report_ == ReleaseReport::kInMessages && told == ReleaseReport::kInMessages;
    if (tells) head.released = told_ = released_;
    if (checksum_) head.checksum = ChecksumOf(head, payload);
    WEFT_TRY(link_.Put(SlotAt(message), std::as_bytes(std::span(&head, 1)), payload, data_flag_,
                       message, tag, deadline));
    sent_ = message;
    return {};
}

Status Stream::Await(uint64_t kind, size_t bytes, const std::byte*& payload, int64_t& last_arrival,
                     const net::OpTag& tag, const Deadline& deadline) {
    Expect(bytes);
    WEFT_TRY(link_.Wait(data_flag_, awaited_ + 1, tag, deadline));
    const MessageHead head = HeadOf(awaited_ + 1);
    if (head.sequence != awaited_ + 1 || head.epoch != epoch_) {
        return OutOfStep(head, awaited_ + 1, tag);
    }
    if (head.bytes != bytes || head.kind != kind || head.released > sent_) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: sent {} bytes of {} for {}, expected {} bytes of {}. The ranks do "
                         "not run the same program: is it the same model, version and layout on "
                         "all hosts?",
                         peer().Text(), head.bytes, KindText(head.kind), tag.Text(), bytes,
                         KindText(kind));
    }
    const std::span data(window_ + SlotAt(awaited_ + 1) + sizeof head, bytes);
    if (checksum_ && head.checksum != ChecksumOf(head, data)) {
        return MakeError(ErrorCode::kCorrupt,
                         "{}: message {} for {} has checksum {:#010x}, expected {:#010x}: its {} "
                         "bytes were changed on the way. 'weft doctor' checks the link.",
                         peer().Text(), head.sequence, tag.Text(), head.checksum,
                         ChecksumOf(head, data), bytes);
    }
    awaited_++;
    if (release_report_ == ReleaseReport::kInMessages)
        peer_released_ = std::max(peer_released_, head.released);
    last_arrival = std::max(last_arrival, head.last_arrival);
    payload = data.data();
    return {};
}

Status Stream::Release(const net::OpTag& tag, const Deadline& deadline) {
    released_++;
    const MessageHead head = HeadOf(released_);
    if (head.sequence != released_) return OutOfStep(head, released_, tag);
    const uint64_t untold_at_most = release_report_ == ReleaseReport::kInMessages ? 2 : 1;
    if (released_ - told_ <= untold_at_most) return {};
    told_ = released_;
    return link_.Put(0, {}, {}, credit_flag_, released_, tag, deadline);
}

MessageHead Stream::HeadOf(uint64_t message) const {
    MessageHead head;
    std::memcpy(&head, window_ + SlotAt(message), sizeof head);
    return head;
}

Error Stream::OutOfStep(const MessageHead& head, uint64_t expected, const net::OpTag& tag) const {
    return MakeError(
        ErrorCode::kCorrupt,
        "{}: message {} of epoch {} arrived in place of message {} of epoch {}, which was "
        "announced for {}. The link lost, repeated or reordered data: 'weft doctor' checks it.",
        peer().Text(), head.sequence, head.epoch, expected, epoch_, tag.Text());
}

}  // namespace weft::coll
