#include "cluster/join/rank_registry.h"

#include <algorithm>

#include "base/log.h"

namespace weft::cluster {
namespace {

constexpr int64_t kFirstLineMs = 1500;
constexpr int64_t kLineMs = 10'000;

}  // namespace

Channel ChannelOf(Arrival arrival) {
    return {std::move(arrival.fd), arrival.session, std::move(arrival.unread)};
}

std::string ArrivalText(const Arrival& arrival) {
    return fmt::format("{} ({})", arrival.host, arrival.from);
}

RendezvousState::RendezvousState(int size, RankRegistry& registry, const Gathering& gathering)
    : registry_(registry),
      gathering_(gathering),
      here_(static_cast<size_t>(size)),
      quiet_(Deadline::In(kFirstLineMs)) {
    here_[0] = true;
}

std::vector<int> RendezvousState::Missing() const {
    std::vector<int> missing;
    for (size_t rank = 1; rank < here_.size(); ++rank) {
        if (!here_[rank]) missing.push_back(static_cast<int>(rank));
    }
    return missing;
}

void RendezvousState::Take(Arrival arrival) {
    if (Has(arrival.rank)) return;
    here_[static_cast<size_t>(arrival.rank)] = true;
    registry_.Take(std::move(arrival));
}

void RendezvousState::ReleaseAll(const std::string& why) {
    for (size_t rank = 1; rank < here_.size(); ++rank) {
        if (!here_[rank]) continue;
        here_[rank] = false;
        registry_.Release(static_cast<int>(rank), why);
    }
}

Result<bool> RendezvousState::Complete() {
    if (gathering_.stop != nullptr && gathering_.stop->load()) {
        return MakeError(ErrorCode::kCancelled, "stopped by the user");
    }
    for (const RankRegistry::Gone& gone : registry_.TakeGone()) {
        if (!gathering_.may_return) {
            return MakeError(ErrorCode::kPeerLost, "rank {} was lost before the job began: {}",
                             gone.rank, gone.why);
        }
        here_[static_cast<size_t>(gone.rank)] = false;
        Log(LogLevel::kWarning, "rank {} is gone before the job began: {}", gone.rank, gone.why);
    }
    return Missing().empty() && registry_.Complete();
}

void RendezvousState::Tell(const std::function<std::string()>& text) {
    if (!quiet_.expired()) return;
    quiet_ = Deadline::In(kLineMs);
    const int64_t left_ms = gathering_.deadline.left_ms();
    Log(LogLevel::kInfo, "{}; for {} more", text(), SecondsText(left_ms));
}

std::string SecondsText(int64_t ms) {
    const int64_t s = std::max<int64_t>(1, ms / 1000);
    return s < 120 ? fmt::format("{} s", s) : fmt::format("{} min", s / 60);
}

}  // namespace weft::cluster
