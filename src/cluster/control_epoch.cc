// The transition between epochs: the main thread's side of Control after the loss of a rank.
#include <algorithm>
#include <csignal>
#include <set>

#include "base/check.h"
#include "cluster/control.h"
#include "cluster/join/spawn.h"

namespace weft::cluster {
namespace {

Clock::time_point TimeOf(const Deadline& deadline) {
    return Clock::time_point(std::chrono::nanoseconds(deadline.at_ns()));
}

}  // namespace

VerdictMessage Control::Stamped(VerdictMessage verdict) const {
    verdict.epoch = epoch_;
    return verdict;
}

std::string Control::LossText() const {
    const Lock lock(mutex_);
    return verdict_.has_value() ? LossLocked({}) : std::string();
}

// Keeps the time of the first call for a loss, and the more specific text of the last call.
void Control::NoteLoss(Peer& peer, const std::string& why) {
    if (peer.loss.empty() || peer.rejoining) peer.since_s = std::time(nullptr);
    peer.rejoining = false;
    peer.loss = why.empty() ? "its connection ended" : why;
}

Member Control::MemberOf(const Peer& peer) const {
    const auto index = static_cast<size_t>(peer.rank);
    Member member{.rank = peer.rank,
                  .host = index < hosts_.size() ? hosts_[index] : "",
                  .since_s = peer.since_s};
    const bool lost = !peer.loss.empty() && !peer.acked;
    if (lost) member.state = peer.rejoining ? MemberState::kRejoining : MemberState::kLost;
    if (lost) member.why = peer.loss;
    return member;
}

Membership Control::Members() const {
    const Lock lock(mutex_);
    Membership members{
        .ranks = {Member{
            .rank = options_.rank, .host = hosts_.empty() ? "" : hosts_[0], .since_s = began_s_}},
        .departed = departed_};
    for (const Peer& peer : peers_) members.ranks.push_back(MemberOf(peer));
    return members;
}

void Control::NoteAllReady() {
    const Lock lock(mutex_);
    trial_ = false;
    for (Peer& peer : peers_) {
        peer.newcomer = false;
        if (!peer.rejoining) continue;
        peer.rejoining = false;
        peer.loss.clear();
        peer.since_s = std::time(nullptr);
    }
}

Status Control::EndEpoch(Error error) {
    Lock lock(mutex_);
    // A survivor needs rank 0's answer: a delayed rank 0 answers late, and a lost rank 0 leads to a
    // verdict within the same time.
    Settle(lock, error, EndsEpoch(error.code), options_.timeout_ms);
    if (verdict_.has_value() && verdict_->recover && !ended_) {
        recovering_ = true;
        return {};
    }
    taken_ = true;
    if (ended_ && !is_root()) peers_[0].channel.Send(FrameType::kEndAck, {});
    if (!verdict_.has_value() || error.message == told_) return error;
    return Tell({});
}

void Control::LeaveEpoch(const std::vector<int>& unreached) {
    const Lock lock(mutex_);
    // A verdict that ends the job stays valid.
    if (verdict_.has_value() && verdict_->recover) {
        verdict_.reset();
        failed_.store(false, std::memory_order_release);
    }
    waiting_ = true;
    recovering_ = false;
    told_.clear();
    transport_.clear();
    rounds_ = 0;
    own_waits_.clear();
    result_.reset();
    assignment_.reset();
    peers_[0].channel.Send(FrameType::kReady, Encode(ReadyMessage{epoch_, unreached}));
    Wake();
}

// Notifies a rank that it was dropped, in case its connection still works.
void Control::Exclude(Peer& peer, const std::string& why) {
    const VerdictMessage verdict{
        ErrorCode::kPeerLost,
        peer.rank,
        fmt::format(
            "{} was given up by rank 0 ({}): the other ranks continue without it, and it ends",
            RankTextLocked(peer.rank), why),
        "",
        epoch_,
        false};
    peer.channel.Send(FrameType::kVerdict, Encode(verdict));
    peer.channel.Close(false);
}

Result<std::vector<int>> Control::WaitForSurvivors(const Deadline& deadline) {
    Lock lock(mutex_);
    const auto settled = [](const Peer& peer) { return peer.gone || peer.ready; };
    const auto done = [&] { return std::all_of(peers_.begin(), peers_.end(), settled); };
    Deadline end = deadline;
    while (!done() && !end.expired() && !should_stop()) {
        const Deadline nap = Deadline::In(std::min<int64_t>(50, end.left_ms()));
        changed_.wait_until(lock, TimeOf(nap), done);
        // A rank that still finishes a long op is slow, not lost (Watch).
        for (const Peer& peer : peers_) {
            const int64_t end_ns = peer.moved_ns + deadline.length_ms() * kNsPerMs;
            if (!settled(peer) && end_ns > end.at_ns()) {
                end = Deadline::From(peer.moved_ns, deadline.length_ms());
            }
        }
    }
    if (should_stop()) return MakeError(ErrorCode::kCancelled, "stopped by the user");
    std::vector<int> lost;
    for (Peer& peer : peers_) {
        if (!settled(peer)) {
            const std::string why =
                fmt::format("it did not leave epoch {} within {} ms", epoch_, deadline.length_ms());
            if (peer.channel.open()) Exclude(peer, why);
            Lost(peer, why);
        }
        if (peer.gone) lost.push_back(peer.rank);
    }
    return lost;
}

bool Control::HasLeft(int rank) const {
    const Lock lock(mutex_);
    return std::ranges::any_of(
        peers_, [&](const Peer& peer) { return peer.rank == rank && peer.gone && peer.leaves; });
}

// Skips rank numbers that are wrong, because they come from other hosts.
std::vector<std::pair<int, int>> Control::Unreached() const {
    const Lock lock(mutex_);
    std::set<int> survivors = {0};
    for (const Peer& peer : peers_) {
        if (!peer.gone) survivors.insert(survivors.end(), peer.rank);
    }
    std::vector<std::pair<int, int>> pairs;
    for (const Peer& peer : peers_) {
        for (const int32_t other : peer.unreached) {
            if (!peer.gone && other != peer.rank && survivors.contains(other)) {
                pairs.emplace_back(peer.rank, other);
            }
        }
    }
    return pairs;
}

void Control::Replace(int rank, Channel channel, pid_t pid) {
    const Lock lock(mutex_);
    const int64_t now = NowNs();
    const auto peer = std::ranges::find(peers_, rank, &Peer::rank);
    WEFT_CHECK(peer != peers_.end());
    *peer = Peer{.rank = rank,
                 .channel = std::move(channel),
                 .pid = pid,
                 .heard_ns = now,
                 .ready = true,
                 .since_s = std::time(nullptr),
                 .rejoining = true,
                 .loss = std::move(peer->loss),
                 .moved_ns = now};
    Wake();
}

Error Control::EndForJoiners(const std::string& text) {
    const Lock lock(mutex_);
    Fail({ErrorCode::kPeerLost, -1, text, "", epoch_, true});
    Error error = Tell({});
    told_ = error.message;
    return error;
}

void Control::AddNewcomer(Arrival arrival) {
    const Lock lock(mutex_);
    const int rank = arrival.rank;
    WEFT_CHECK(rank > 0 && std::ranges::count(peers_, rank, &Peer::rank) == 0);
    hosts_.resize(static_cast<size_t>(rank));
    hosts_.push_back(arrival.host);
    AddPeerLocked(rank, ChannelOf(std::move(arrival)), 0);
    for (Peer& peer : peers_) {
        if (peer.rank == rank) peer.ready = peer.newcomer = true;
    }
    Wake();
}

void Control::Dismiss(const std::vector<int>& newcomers, const std::string& why) {
    const Lock lock(mutex_);
    trial_ = false;
    for (Peer& peer : peers_) {
        if (std::ranges::count(newcomers, peer.rank) == 0) continue;
        if (peer.channel.open()) Exclude(peer, why);
        if (!peer.newcomer) NoteLoss(peer, why);
        peer.gone = true;
        if (peer.pid > 0) buried_.push_back(std::exchange(peer.pid, 0));
    }
}

void Control::AwaitReaped(const Deadline& deadline) {
    Lock lock(mutex_);
    while (!buried_.empty() && !deadline.expired() && !should_stop()) {
        Wake();
        changed_.wait_until(lock, TimeOf(Deadline::In(5)), [&] { return buried_.empty(); });
    }
}

bool Control::BeginEpoch(const std::vector<int>& kept, const AssignMessage& message) {
    const Lock lock(mutex_);
    WEFT_CHECK(message.epoch > epoch_ && kept.size() == message.hosts.size());
    WEFT_CHECK(!kept.empty() && kept.front() == 0);
    WEFT_CHECK(std::ranges::adjacent_find(kept, std::ranges::greater_equal()) == kept.end());
    const auto place = [&](int rank) { return std::find(kept.begin(), kept.end(), rank); };
    for (const Peer& peer : peers_) {
        if (place(peer.rank) != kept.end() && (peer.gone || !peer.ready)) return false;
    }
    for (const Peer& peer : peers_) {
        if (place(peer.rank) != kept.end() || peer.newcomer) continue;
        departed_.push_back(MemberOf(peer));
        departed_.back().epoch = epoch_;
    }
    std::erase_if(peers_, [&](const Peer& peer) { return place(peer.rank) == kept.end(); });
    WEFT_CHECK(peers_.size() + 1 == kept.size());
    trial_ = std::ranges::any_of(peers_, [](const Peer& peer) { return peer.newcomer; });
    verdict_.reset();
    failed_.store(false, std::memory_order_release);
    recovering_ = taken_ = false;
    stalled_ = -1;
    own_waits_.clear();
    told_.clear();
    transport_.clear();
    links_.clear();
    rounds_ = 0;
    gathered_bytes_ = 0;
    epoch_ = message.epoch;
    hosts_ = message.hosts;
    for (Peer& peer : peers_) {
        peer.rank = static_cast<int>(place(peer.rank) - kept.begin());
        peer.ready = false;
        peer.value.reset();
        peer.unreached.clear();
        peer.rank_waits = {};
        peer.moved_ns = NowNs();
    }
    SendAssignments(message);
    return true;
}

// Turns a verdict that ends an epoch into one that ends the job.
void Control::Finalise() {
    if (!is_root() || !verdict_.has_value() || !verdict_->recover) return;
    VerdictMessage verdict = std::move(*verdict_);
    verdict.recover = false;
    Supersede(std::move(verdict));
}

Error Control::GiveUp(Error error) {
    const Lock lock(mutex_);
    recovering_ = false;
    taken_ = true;
    Supersede({error.code, -1, error.message, ""});
    told_ = error.message;
    return error;
}

std::vector<std::string> Control::OwnAddresses() const {
    const Lock lock(mutex_);
    std::vector<std::string> addresses(1);
    for (const Peer& peer : peers_) addresses.push_back(LocalHost(peer.channel.fd()));
    return addresses;
}

// Does not wait: killed children end in their own time.
void Control::ReapBuried() {
    std::string how;
    std::erase_if(buried_, [&](pid_t pid) { return ReapChild(pid, &how); });
}

}  // namespace weft::cluster
