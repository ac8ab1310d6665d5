// When data waits run out although every process answers: who is to blame is rank 0's to say, since
// it alone knows what all ranks wait for (blame.h).
#include <algorithm>
#include <limits>
#include <utility>
#include <vector>

#include "cluster/control.h"

namespace weft::cluster {
namespace {

constexpr int64_t kMs = 1'000'000;
// Before rank 0 judges, the silent get so long to be known as lost. Less than what a data wait
// gives the control plane.
constexpr int64_t kJudgeNs = 400 * kMs;
// Heartbeats in a row that are missing.
constexpr int64_t kMissedBeats = 3;

}  // namespace

int64_t Control::StillMs() const {
    const Lock lock(mutex_);
    const size_t ranks = is_root() ? peers_.size() + 1 : relay_.ranks.size();
    int64_t still = std::numeric_limits<int64_t>::max();
    for (size_t rank = 0; rank < ranks; ++rank) {
        if (static_cast<int>(rank) == options_.rank) continue;
        const int64_t silent = SilentLocked(static_cast<int>(rank));
        if (silent >= 0) still = std::min(still, silent);
    }
    return still == std::numeric_limits<int64_t>::max() ? -1 : still;
}

void Control::OnLongWait(int rank, const net::OpTag& tag) {
    const Lock lock(mutex_);
    wait_ = {rank, tag.step, tag.index, tag.place, tag.op};
}

void Control::SendBeat(int64_t stalled_ms) {
    const Bytes beat = Encode(HeartbeatMessage{own_progress_, wait_, stalled_ms});
    for (Peer& peer : peers_) peer.channel.Send(FrameType::kHeartbeat, beat);
}

// Rank 0: a wait of `rank` ran out, and for `still_ms` nobody has moved.
void Control::Stalled(int rank, int64_t still_ms) {
    if (stalled_ >= 0 || verdict_.has_value()) return;
    stalled_ = rank;
    still_ms_ = still_ms;
    stall_end_ns_ = NowNs() + kJudgeNs;
}

// The rank that has missed heartbeats the longest; -1: none has.
int Control::SilentTooLong(int64_t now_ns) const {
    int64_t longest =
        kJudgeNs + kMissedBeats * std::clamp<int64_t>(options_.timeout_ms / 10, 10, 200) * kMs;
    int found = -1;
    for (const Peer& peer : peers_) {
        if (now_ns - peer.heard_ns <= longest) continue;
        longest = now_ns - peer.heard_ns;
        found = peer.rank;
    }
    return found;
}

void Control::JudgeStall(int64_t now_ns) {
    if (verdict_.has_value()) stalled_ = -1;  // of an epoch that is over
    if (stalled_ < 0 || now_ns < stall_end_ns_) return;
    const int first = std::exchange(stalled_, -1);
    const int silent = SilentTooLong(now_ns);
    if (silent >= 0) {
        Fail({ErrorCode::kPeerLost, -1,
              fmt::format("{}: nobody has moved for {} ms, and it has not been heard of for a "
                          "while. Is the network between the hosts up?",
                          WhoLocked(silent), still_ms_),
              ""});
        return;
    }
    std::vector<LongWait> waits(hosts_.size());
    if (waits.empty()) return;
    waits[0] = wait_;
    for (const Peer& peer : peers_) {
        if (static_cast<size_t>(peer.rank) < waits.size()) {
            waits[static_cast<size_t>(peer.rank)] = peer.wait;
        }
    }
    if (static_cast<size_t>(first) >= waits.size()) return;
    if (waits[static_cast<size_t>(first)].on < 0) return;  // it goes on by now
    const int waiter = WorstWait(waits, first);
    const LongWait& wait = waits[static_cast<size_t>(waiter)];
    const net::OpTag tag{wait.op.c_str(), wait.index, wait.step, wait.place};
    Fail({ErrorCode::kPeerLost, -1,
          fmt::format("{}: no data for {} within {} ms on rank {}, though its process answers. Is "
                      "it stuck, or is the data link between the hosts down?",
                      WhoLocked(wait.on), tag.Text(), still_ms_, waiter),
          ""});
}

}  // namespace weft::cluster
