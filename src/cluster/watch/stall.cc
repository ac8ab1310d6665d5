// Stalls in which every process answers: only rank 0 has all ranks' waits. Ranks that wait in a
// cycle (wait_graph.h) end the job if none of their waits has progressed for timeout_ms. If a data
// wait expires first, rank 0 names the rank to blame (root_cause.h).
#include <algorithm>
#include <utility>
#include <vector>

#include "cluster/control.h"

namespace weft::cluster {
namespace {

// Before rank 0 judges, silent ranks have this time to be recognized as lost. Shorter than the time
// for which a data wait waits for the control plane.
constexpr int64_t kJudgeNs = 400 * kNsPerMs;
// Ranks of a cycle that an error names.
constexpr size_t kMostNamed = 8;

}  // namespace

int64_t Control::StillMs() const {
    const Lock lock(mutex_);
    return StillLocked();
}

// The least time since the last progress of another rank; -1: unknown.
int64_t Control::StillLocked() const {
    const int64_t now = NowNs();
    if (!is_root()) {
        if (relay_.busiest < 0) return -1;
        const bool own = relay_.busiest == options_.rank;
        return (own ? relay_.others_ms : relay_.busiest_ms) + (now - relay_ns_) / kNsPerMs;
    }
    int64_t still = -1;
    for (const Peer& peer : peers_) {
        const int64_t idle = (now - peer.moved_ns) / kNsPerMs;
        still = still < 0 ? idle : std::min(still, idle);
    }
    return still;
}

// ---- Progress of the ranks ----------------------------------------------------------------------

// The wait of the calling thread.
LongWait& Control::OwnWait() {
    const auto self = std::this_thread::get_id();
    const auto found = std::ranges::find(own_waits_, self, &ThreadWait::thread);
    if (found != own_waits_.end()) return found->wait;
    own_waits_.push_back({self, {}});
    return own_waits_.back().wait;
}

void Control::OnLongWait(int rank, const net::OpTag& tag) {
    const Lock lock(mutex_);
    if (rank >= 0) {
        OwnWait() = {rank, tag.step, tag.index, tag.place, tag.op};
    } else {
        std::erase_if(own_waits_, [self = std::this_thread::get_id()](const ThreadWait& own) {
            return own.thread == self;
        });
    }
}

void Control::OnStillWaiting(int64_t still_ms) {
    const Lock lock(mutex_);
    OwnWait().still_ms = still_ms;
}

void Control::OnOwnWait(bool begins, std::thread::id whom) {
    if (std::this_thread::get_id() != stepping_) return;
    const Lock lock(mutex_);
    own_waiting_ += begins ? 1 : -1;
    awaited_ = begins ? whom : std::thread::id();
}

RankWaits Control::OwnWaits(int64_t now_ns) const {
    RankWaits rank_waits;
    // If the stepping thread waits for another thread, that thread's waits count as the rank's. If
    // that thread waits for nothing, the rank computes.
    const bool known = own_waiting_ > 0 && awaited_ != std::thread::id();
    for (const ThreadWait& own : own_waits_) {
        const bool steps = own.thread == stepping_ || (known && own.thread == awaited_);
        (steps ? rank_waits.waits : rank_waits.beside).push_back(own.wait);
    }
    rank_waits.awaits_own = own_waiting_ > 0 && !known;
    if (call_.empty()) return rank_waits;
    LongWait wait{0, -1, rounds_, 0, call_, (now_ns - call_ns_) / kNsPerMs};
    if (!is_root() && !result_.has_value()) rank_waits.waits.push_back(wait);
    for (const Peer& peer : peers_) {
        if (!is_root() || peer.value.has_value()) continue;
        wait.on = peer.rank;
        rank_waits.waits.push_back(wait);
    }
    return rank_waits;
}

// The waits of all ranks, by rank. A rank without a recent heartbeat may have continued.
std::vector<RankWaits> Control::AllWaits(int64_t now_ns) const {
    std::vector<RankWaits> all_waits(hosts_.size());
    if (all_waits.empty()) return all_waits;
    all_waits[0] = OwnWaits(now_ns);
    for (const Peer& peer : peers_) {
        const bool heard = now_ns - peer.heard_ns < options_.timeout_ms * kNsPerMs / 2;
        if (heard && static_cast<size_t>(peer.rank) < all_waits.size()) {
            all_waits[static_cast<size_t>(peer.rank)] = peer.rank_waits;
        }
    }
    return all_waits;
}

// If all ranks of the cycle wait in one op, no rank runs a wrong op: a message was lost. In
// different ops that is possible, too: a rank that got a message which another did not is a few ops
// ahead. Another epoch has new links, so it may succeed; callers limit the number of epochs.
VerdictMessage Control::VerdictOn(const std::vector<CycleWait>& circle) const {
    const auto op_of = [](const CycleWait& each) { return OpOf(each.wait); };
    const std::string op = op_of(circle[0]);
    const bool in_one_op = std::ranges::all_of(
        circle, [&](const std::string& other) { return other == op; }, op_of);
    std::string text;
    for (size_t i = 0; i < circle.size(); ++i) {
        const LongWait& wait = circle[i].wait;
        if (i == kMostNamed) text += fmt::format("; and {} more", circle.size() - i);
        if (i >= kMostNamed) continue;
        const std::string link = LinkText(links_, circle[i].rank, wait.on);
        text += fmt::format("{}{} waits for rank {} in {} for {} ms{}", i == 0 ? "" : "; ",
                            RankTextLocked(circle[i].rank), wait.on, OpOf(wait), wait.still_ms,
                            link.empty() ? "" : " (" + link + ")");
    }
    text += in_one_op
                ? ". A message between them did not arrive: is the data link between the hosts "
                  "down? 'weft doctor' checks it."
                : ". They wait in different ops, so none can continue: a message between them did "
                  "not arrive (is the data link between the hosts down? 'weft doctor' checks it), "
                  "or their states differ. Do all ranks have the same data, flags and files?";
    return {ErrorCode::kPeerLost, -1, std::move(text), "", epoch_, CanRecover()};
}

void Control::CheckDeadlock(int64_t now_ns) {
    if (!is_root() || verdict_.has_value() || ended_ || epoch_ == 0) return;
    const auto waits_long = [&](const RankWaits& rank_waits) {
        const auto is_long = [&](const LongWait& wait) {
            return wait.still_ms >= options_.timeout_ms;
        };
        return std::ranges::any_of(rank_waits.waits, is_long) ||
               std::ranges::any_of(rank_waits.beside, is_long);
    };
    const bool may_be =
        std::ranges::any_of(peers_, [&](const Peer& peer) { return waits_long(peer.rank_waits); });
    if (!may_be) return;  // a cycle has at least two ranks
    const std::vector<RankWaits> all_waits = AllWaits(now_ns);
    const std::vector<int> stuck = FindDeadlock(all_waits, options_.timeout_ms);
    if (stuck.empty()) return;
    Fail(VerdictOn(CycleOf(all_waits, stuck)));
}

// ---- An expired wait ----------------------------------------------------------------------------

void Control::SendBeat(int64_t stalled_ms) {
    const Bytes beat =
        Encode(HeartbeatMessage{own_progress_, OwnWaits(NowNs()), stalled_ms, own_loaded_.load()});
    for (Peer& peer : peers_) peer.channel.Send(FrameType::kHeartbeat, beat);
}

// Rank 0: a wait of `rank` expired, and no rank has made progress for `still_ms`.
void Control::Stalled(int rank, int64_t still_ms) {
    if (stalled_ >= 0 || verdict_.has_value()) return;
    stalled_ = rank;
    still_ms_ = still_ms;
    stall_end_ns_ = NowNs() + kJudgeNs;
}

// The rank that has missed heartbeats the longest; -1: none.
int Control::SilentTooLong(int64_t now_ns) const {
    int64_t longest = kJudgeNs + kMissedBeats * BeatNs();
    int found = -1;
    for (const Peer& peer : peers_) {
        if (now_ns - peer.heard_ns <= longest) continue;
        longest = now_ns - peer.heard_ns;
        found = peer.rank;
    }
    return found;
}

void Control::JudgeStall(int64_t now_ns) {
    if (verdict_.has_value()) stalled_ = -1;  // of an ended epoch
    if (stalled_ < 0 || now_ns < stall_end_ns_) return;
    const int first = std::exchange(stalled_, -1);
    const int silent = SilentTooLong(now_ns);
    if (silent >= 0) {
        Fail({ErrorCode::kPeerLost, -1,
              fmt::format("{}: no rank made progress for {} ms, and this rank sent nothing for a "
                          "while. Is the network between the hosts up?",
                          RankTextLocked(silent), still_ms_),
              "", epoch_, CanRecover()});
        return;
    }
    std::vector<LongWait> waits;
    for (const RankWaits& rank_waits : AllWaits(now_ns)) {
        const bool beside = rank_waits.waits.empty();
        const std::vector<LongWait>& all = beside ? rank_waits.beside : rank_waits.waits;
        waits.push_back(all.empty() ? LongWait() : all.front());
    }
    if (static_cast<size_t>(first) >= waits.size()) return;
    if (waits[static_cast<size_t>(first)].on < 0) return;  // it has continued
    const int waiter = RootWait(waits, first);
    const LongWait& wait = waits[static_cast<size_t>(waiter)];
    Fail({ErrorCode::kPeerLost, -1,
          fmt::format("{}: no data for {} within {} ms on rank {}, though its process answers. Is "
                      "it stuck, or is the data link between the hosts down?{}",
                      RankTextLocked(wait.on), OpOf(wait), still_ms_, waiter,
                      LinkWords(waiter, wait.on)),
          "", epoch_, CanRecover()});
}

}  // namespace weft::cluster
