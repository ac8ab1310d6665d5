#include "cluster/worker/waiting_line.h"

#include <algorithm>
#include <span>
#include <tuple>

#include "base/deadline.h"
#include "base/hash.h"

namespace weft::cluster {
namespace {

constexpr uint64_t kMostNumber = uint64_t{1} << 62;  // keeps later numbers representable

}  // namespace

uint64_t NewTicket() {
    uint64_t ticket = 0;
    while (ticket == 0) RandomBytes(std::as_writable_bytes(std::span(&ticket, 1)));
    return ticket;
}

WaitingLine::Turn WaitingLine::Call(const PlaceRequest& request, int free, int64_t now_ns) {
    std::erase_if(entries_, [&](const Entry& entry) { return entry.until_ns <= now_ns; });
    Turn turn;
    auto found = std::ranges::find(entries_, request.ticket, &Entry::ticket);
    const bool known = request.ticket != 0 && found != entries_.end();
    if (!known && (request.ticket == 0 || entries_.size() >= kMostInLine)) {
        turn.answer.waiting = static_cast<int32_t>(entries_.size());
        turn.answer.free = free > turn.answer.waiting;
        turn.taken = turn.answer.free && request.take;
        return turn;
    }
    const uint64_t asked = std::min(request.number, kMostNumber);
    Entry entry{asked == 0 ? last_ + 1 : asked, request.ticket};
    if (known) {
        entry = *found;
        entry.number = std::max(entry.number, asked);
        entries_.erase(found);
    }
    entry.until_ns = std::max(entry.until_ns, now_ns + kAbsentMs * kNsPerMs);
    last_ = std::max(last_, entry.number);
    const auto before = [&](const Entry& other) {
        return std::tie(other.number, other.ticket) < std::tie(entry.number, entry.ticket);
    };
    const auto at = std::ranges::find_if_not(entries_, before);
    const auto ahead = static_cast<int32_t>(at - entries_.begin());
    turn.answer.number = entry.number;
    turn.answer.free = ahead < free;
    turn.taken = turn.answer.free && request.take;
    if (turn.taken) return turn;
    entries_.insert(at, entry);
    turn.entered = !known;
    turn.answer.place = ahead + 1;
    turn.answer.waiting = static_cast<int32_t>(entries_.size());
    return turn;
}

void WaitingLine::Keep(uint64_t ticket, int64_t until_ns) {
    if (ticket == 0) return;
    std::erase_if(entries_, [&](const Entry& entry) { return entry.ticket == ticket; });
    entries_.insert(entries_.begin(), {0, ticket, until_ns});
}

}  // namespace weft::cluster
