#include "cluster/control.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>
#include <limits>
#include <string_view>

#include "base/log.h"
#include "base/standard_error.h"
#include "base/start_thread.h"
#include "cluster/join/spawn.h"
#include "cluster/worker/stop_signals.h"

namespace weft::cluster {
namespace {

// How long after its connection a child may end.
constexpr int64_t kReapNs = 200 * kNsPerMs;
// Number of timeouts for which a child waits for a starved parent, a parent for a starved child,
// and rank 0 for its own main thread when the job continues.
constexpr int64_t kStarvedTimes = 4;

std::atomic<int> g_stopped_status{ExitStatus(ErrorCode::kCancelled)};
std::atomic<bool (*)()> g_term_taker{nullptr};

Error OutOfTurn(FrameType type) {
    return MakeError(ErrorCode::kCorrupt, "it sent a control frame of type {} out of turn",
                     static_cast<int>(type));
}

}  // namespace

void SetStoppedStatus(int status) {
    g_stopped_status.store(status);
}

void SetTermTaker(bool (*takes)()) {
    g_term_taker.store(takes);
}

// ---- The thread ---------------------------------------------------------------------------------

void Control::AddPeer(int rank, Fd fd, const Session& session, pid_t pid) {
    const Lock lock(mutex_);
    AddPeerLocked(rank, Channel(std::move(fd), session), pid);
}

// Sorted by rank.
void Control::AddPeerLocked(int rank, Channel channel, pid_t pid) {
    const int64_t now = NowNs();
    const auto place = std::ranges::find_if(peers_, [&](const Peer& p) { return p.rank > rank; });
    peers_.insert(place, Peer{.rank = rank,
                              .channel = std::move(channel),
                              .pid = pid,
                              .heard_ns = now,
                              .since_s = std::time(nullptr),
                              .moved_ns = now});
}

Status Control::Start() {
    wake_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!wake_.valid()) {
        return MakeError(ErrorCode::kIo, "cannot make an eventfd: {}", std::strerror(errno));
    }
    if (options_.leave_on_term) {
        sigset_t term;
        ::sigemptyset(&term);
        ::sigaddset(&term, SIGTERM);
        term_ = Fd(::signalfd(-1, &term, SFD_NONBLOCK | SFD_CLOEXEC));
    }
    turn_ns_ = own_moved_ns_ = NowNs();
    stepping_ = std::this_thread::get_id();
    // The main thread handles signals.
    WEFT_TRY(StartThread(thread_, [this] { Loop(); }, {.signals = false}));
    ::pthread_setname_np(thread_.native_handle(), "weft-control");
    return {};
}

void Control::Loop() {
    Lock lock(mutex_);
    while (!stopping_) {
        const int events = Wait(lock);
        const int64_t now = NowNs();
        // A pause of this process (stopped, starved) does not mean that other ranks are silent.
        const int64_t pause = now - turn_ns_;
        if (pause > options_.timeout_ms * kNsPerMs / 2) {
            for (Peer& peer : peers_) peer.heard_ns += pause;
            call_ns_ += pause;
        }
        if (pause > options_.timeout_ms * kNsPerMs) {
            paused_ms_ = pause / kNsPerMs;
            resumed_ns_ = now;
        }
        turn_ns_ = now;
        if (events >= 0) Turn(now);
    }
}

// Sleeps until a socket is ready or the next deadline.
int Control::Wait(Lock& lock) {
    std::vector<pollfd> fds;
    fds.push_back({wake_.get(), POLLIN, 0});
    fds.push_back({term_.get(), POLLIN, 0});
    int64_t due_ns = std::min(beat_ns_ + BeatNs(), NowNs() + 200 * kNsPerMs);
    if (stalled_ >= 0 && !verdict_.has_value()) due_ns = std::min(due_ns, stall_end_ns_);
    for (const Peer& peer : peers_) {
        if (peer.channel.open()) {
            const short want = peer.channel.wants_write() ? POLLIN | POLLOUT : POLLIN;
            fds.push_back({peer.channel.fd(), want, 0});
            due_ns = std::min(due_ns, peer.heard_ns + options_.timeout_ms * kNsPerMs);
        } else if (!peer.gone) {
            due_ns = std::min(due_ns, NowNs() + 2 * kNsPerMs);
        }
    }
    const int64_t left_ms = std::max<int64_t>(0, (due_ns - NowNs() + kNsPerMs - 1) / kNsPerMs);
    lock.unlock();
    const int events = ::poll(fds.data(), fds.size(), static_cast<int>(left_ms));
    lock.lock();
    size_t at = 2;
    for (Peer& peer : peers_) {  // (There may be others by now.)
        const bool known = at < fds.size() && fds[at].fd == peer.channel.fd();
        peer.eventful = !known || fds[at].revents != 0;
        if (known) ++at;
    }
    uint64_t count;
    while (::read(wake_.get(), &count, sizeof count) > 0) {
    }
    return events;
}

void Control::Turn(int64_t now_ns) {
    // After a verdict the request stays, because another epoch may follow.
    if (!verdict_.has_value() && should_stop()) {
        stop_requested_.store(false);
        if (is_root()) {
            Fail({ErrorCode::kCancelled, -1, "stopped by the user", ""});
        } else if (!peers_.empty()) {
            const VerdictMessage report{ErrorCode::kCancelled, -1, "stopped by the user", ""};
            peers_[0].channel.Send(FrameType::kFailure, Encode(Stamped(report)));
        }
    }
    TakeLeave();
    for (Peer& peer : peers_) {
        if (!peer.channel.open() || !(peer.eventful || peer.channel.overrun())) continue;
        peer.channel.Flush();
        auto status = peer.channel.Receive(
            [&](FrameType type, View payload) { OnFrame(peer, type, payload); });
        if (!status.ok()) Broken(peer, status.error().message, false);
        // A long message on a slow network: the rank is not silent, and a call that waits for it
        // progresses.
        const Channel::Moved moved = peer.channel.TakeMoved();
        if (moved.in) peer.heard_ns = NowNs();
        if (moved.in || moved.out) call_ns_ = parts_ns_ = peer.moved_ns = NowNs();
    }
    for (Peer& peer : peers_) CheckPeer(peer, now_ns);
    ReapBuried();
    JudgeStall(now_ns);
    CheckDeadlock(now_ns);
    if (now_ns - beat_ns_ >= BeatNs()) Beat(now_ns);
    Watch(now_ns);
    ++turns_;
    changed_.notify_all();
}

// This process was stopped, but not the job: for the others it is a lost rank.
void Control::TakeLeave() {
    signalfd_siginfo info;
    if (!term_.valid() || ::read(term_.get(), &info, sizeof info) != sizeof info) return;
    if (bool (*const takes)() = g_term_taker.load(); takes != nullptr && takes()) return;
    if (!verdict_.has_value() && !ended_) {
        const VerdictMessage leave{ErrorCode::kPeerLost, options_.rank,
                                   RankTextLocked(options_.rank) + " was lost",
                                   "its worker was asked to end (SIGTERM)"};
        peers_[0].channel.Send(FrameType::kFailure, Encode(Stamped(leave)));
    }
    Supersede({ErrorCode::kCancelled, -1, "this worker was asked to end (SIGTERM)", ""});
    waiting_ = recovering_ = false;
    options_.watchdog_ms = std::max<int64_t>(1, options_.watchdog_ms);
}

// ---- Frames -------------------------------------------------------------------------------------

void Control::OnFrame(Peer& peer, FrameType type, View payload) {
    if (!peer.channel.open()) return;
    peer.heard_ns = NowNs();
    const Status status =
        is_root() ? OnFrameOfWorker(peer, type, payload) : OnFrameOfRoot(type, payload);
    if (!status.ok()) Broken(peer, status.error().message, true);
}

Status Control::OnFrameOfWorker(Peer& peer, FrameType type, View payload) {
    if (type == FrameType::kHeartbeat) {
        WEFT_ASSIGN(HeartbeatMessage beat, Decode<HeartbeatMessage>(payload));
        const bool moves = beat.progress != peer.progress || beat.loaded != peer.loaded;
        if (moves) peer.moved_ns = NowNs();
        peer.progress = beat.progress;
        peer.loaded = beat.loaded;
        peer.rank_waits = std::move(beat.rank_waits);
        if (beat.stalled_ms > 0) Stalled(peer.rank, beat.stalled_ms);
        return {};
    }
    if (type == FrameType::kValue) {
        WEFT_ASSIGN(ValueMessage value, Decode<ValueMessage>(payload));
        if (value.epoch < epoch_) return {};
        if (peer.value.has_value()) {
            return MakeError(ErrorCode::kCorrupt, "it sent '{}' before '{}' was answered",
                             value.name, peer.value->name);
        }
        gathered_bytes_ += value.value.size();
        if (gathered_bytes_ > kMostMessage) value.value.clear();  // the call fails
        peer.value = std::move(value);
        return {};
    }
    if (type == FrameType::kFailure) {
        WEFT_ASSIGN(VerdictMessage report, Decode<VerdictMessage>(payload));
        if (options_.gathers) {  // it leaves, and its place is open again
            return MakeError(ErrorCode::kPeerLost, "{}",
                             report.reason.empty() ? report.text : report.reason);
        }
        if (report.epoch < epoch_) return {};
        if (report.code == ErrorCode::kPeerLost && report.lost_rank == peer.rank) {
            peer.leaves = true;  // its process ends, maybe slowly
            Broken(peer, report.reason, false);
            return {};
        }
        OnReport(peer, std::move(report));
        return {};
    }
    if (type == FrameType::kReady) {
        WEFT_ASSIGN(ReadyMessage ready, Decode<ReadyMessage>(payload));
        if (ready.epoch != epoch_) return {};
        peer.ready = true;
        peer.unreached = std::move(ready.unreached);
        return {};
    }
    if (type == FrameType::kEndAck) {
        if (!ended_) return OutOfTurn(type);
        peer.acked = true;
        return {};
    }
    return MakeError(ErrorCode::kCorrupt,
                     "it sent a control frame of type {}, which only rank 0 may send",
                     static_cast<int>(type));
}

Status Control::OnFrameOfRoot(FrameType type, View payload) {
    if (type == FrameType::kRelay) {
        WEFT_ASSIGN(relay_, Decode<RelayMessage>(payload));
        relay_ns_ = NowNs();
        for (size_t i = 0; i < relay_.ranks.size(); ++i) {
            const size_t rank = static_cast<size_t>(relay_.first) + i;
            if (rank < relayed_.size()) relayed_[rank] = {relay_.ranks[i], relay_ns_};
        }
        return {};
    }
    if (type == FrameType::kAssign) {
        WEFT_ASSIGN(AssignMessage assignment, Decode<AssignMessage>(payload));
        if (assignment.epoch <= epoch_) return {};
        if (assignment_.has_value()) return OutOfTurn(type);
        epoch_ = assignment.epoch;
        hosts_ = assignment.hosts;
        relay_ = {};
        relayed_.assign(hosts_.size(), {});
        options_.rank = assignment.rank;
        assignment_ = std::move(assignment);
        waiting_ = false;  // a later verdict is about the next epoch
        return {};
    }
    if (type == FrameType::kExamine && epoch_ == 0) {
        WEFT_ASSIGN(request_, Decode<ExamineMessage>(payload));
        return {};
    }
    if (type == FrameType::kResult) {
        WEFT_ASSIGN(ResultMessage result, Decode<ResultMessage>(payload));
        if (result.epoch == epoch_) result_ = std::move(result);
        return {};
    }
    if (type == FrameType::kVerdict) {
        WEFT_ASSIGN(VerdictMessage verdict, Decode<VerdictMessage>(payload));
        if (verdict.epoch < epoch_) return {};
        if (!verdict.recover || !waiting_) Fail(std::move(verdict));
        return {};
    }
    if (type == FrameType::kEnd) {
        OnEnd();
        return {};
    }
    return OutOfTurn(type);
}

// A worker's failure. An error of the cluster already names the rank at fault.
void Control::OnReport(const Peer& peer, VerdictMessage report) {
    // A worker that leaves before its assignment arrives has no rank number yet.
    if (report.code == ErrorCode::kPeerLost && report.lost_rank < 0 && !report.reason.empty()) {
        report.lost_rank = peer.rank;
        report.text = RankTextLocked(peer.rank) + " was lost";
    }
    const bool about_cluster = report.code == ErrorCode::kPeerLost ||
                               report.code == ErrorCode::kTimeout ||
                               report.code == ErrorCode::kCancelled;
    if (!about_cluster) report.text = RankTextLocked(peer.rank) + ": " + report.text;
    // A link error about a process that just ended: the cause of its end is known soon, and then
    // reported.
    const bool of_link = report.code == ErrorCode::kPeerLost && report.lost_rank < 0;
    if (of_link && SomePeerEnds()) return;
    report.recover = EndsEpoch(report.code);
    Fail(std::move(report));
}

// Whether a peer's connection has ended for a reason that is not known yet.
bool Control::SomePeerEnds() const {
    return std::ranges::any_of(
        peers_, [](const Peer& peer) { return !peer.channel.open() && !peer.gone && !peer.acked; });
}

void Control::OnEnd() {
    ended_ = true;
    // A main thread that waits for the next step's data must notice it.
    if (!ending_) Fail({ErrorCode::kCancelled, -1, "rank 0 has ended the job", ""});
}

// ---- Lost ranks ---------------------------------------------------------------------------------

void Control::Broken(Peer& peer, std::string reason, bool reset) {
    peer.channel.Close(reset);
    peer.ended_ns = NowNs();
    peer.reason = std::move(reason);
    NoteLoss(peer, peer.reason);
    if (peer.pid == 0) Lost(peer, peer.reason);  // for a child, the cause of its end is known soon
}

// Whether rank 0 is silent because the machine starves it: it is a local process that could run,
// and the job has no better rank 0. The kernel shows at once if it is stopped or has ended.
bool Control::IsStarvedParent(int64_t silent_ms) const {
    if (!options_.child || silent_ms >= kStarvedTimes * options_.timeout_ms) return false;
    const pid_t parent = ::getppid();
    std::ifstream file(fmt::format("/proc/{}/stat", parent));
    std::string stat;
    std::getline(file, stat);
    const size_t name_end = stat.rfind(") ");
    if (parent == 1 || name_end == std::string::npos || name_end + 2 >= stat.size()) return false;
    if (IsExiting(parent)) return false;
    return std::string_view("RSD").find(stat[name_end + 2]) != std::string_view::npos;
}

// Whether a rank that this process started is silent because it is starved: one of its threads is
// ready to run, or the kernel delays it. A stopped rank has no such thread.
bool Control::IsStarvedChild(const Peer& peer, int64_t silent_ms) const {
    return peer.pid > 0 && silent_ms < kStarvedTimes * options_.timeout_ms && CouldRun(peer.pid);
}

void Control::CheckPeer(Peer& peer, int64_t now_ns) {
    if (peer.gone) return;
    if (peer.channel.open()) {
        const int64_t silent_ms = (now_ns - peer.heard_ns) / kNsPerMs;
        const bool missed = now_ns - peer.heard_ns > kMissedBeats * BeatNs();
        if (missed && peer.pid > 0 && IsExiting(peer.pid)) {
            Broken(peer, "its process is about to end", true);
            return;
        }
        if (silent_ms < options_.timeout_ms || IsStarvedParent(silent_ms)) return;
        if (IsStarvedChild(peer, silent_ms)) return;
        std::string why = fmt::format(
            "silent for {} ms: its process is stopped, or its host or the link to it is down",
            silent_ms);
        if (peer.pid > 0 && CouldRun(peer.pid)) {
            why = fmt::format(
                "silent for {} ms: its process waits for a core, or is stuck. Reduce the load of "
                "its host",
                silent_ms);
        }
        if (CanRecover()) Exclude(peer, fmt::format("silent for {} ms", silent_ms));
        peer.channel.Close(true);
        Lost(peer, why);
        return;
    }
    std::string how;
    if (peer.pid > 0 && ReapChild(peer.pid, &how)) {
        peer.pid = 0;
        Lost(peer, how);
    } else if (now_ns - peer.ended_ns > kReapNs && !peer.acked &&
               (!verdict_.has_value() || verdict_->recover)) {
        Lost(peer, peer.reason);
    }
}

void Control::Lost(Peer& peer, const std::string& reason) {
    Log(LogLevel::kDebug, "{} is lost: {}", RankTextLocked(peer.rank), reason);
    peer.gone = true;
    NoteLoss(peer, reason);
    if (peer.pid > 0) {
        ::kill(peer.pid, SIGKILL);
        buried_.push_back(peer.pid);
        peer.pid = 0;
    }
    if (options_.gathers || peer.acked || (ended_ && !is_root())) return;
    Fail({ErrorCode::kPeerLost, peer.rank, RankTextLocked(peer.rank) + " was lost",
          reason + PauseText(), epoch_, CanRecover()});
}

std::string Control::PauseText() const {
    const int64_t recent_ms = 1000 + 2 * options_.timeout_ms;
    if (paused_ms_ == 0 || NowNs() - resumed_ns_ > recent_ms * kNsPerMs) return "";
    return fmt::format(", after this process had not run for {} ms", paused_ms_);
}

void Control::Fail(VerdictMessage verdict) {
    // An epoch has one verdict. A verdict that ends the job replaces it, except on rank 0, whose
    // main thread decides that.
    const bool on_top = !is_root() && !verdict.recover && verdict_.has_value() && verdict_->recover;
    if (!verdict_.has_value() || on_top) Supersede(std::move(verdict));
}

// Sets the current verdict.
void Control::Supersede(VerdictMessage verdict) {
    verdict_ = std::move(verdict);
    verdict_->epoch = epoch_;
    failed_ns_ = NowNs();
    failed_.store(true, std::memory_order_release);
    if (is_root()) {
        const Bytes payload = Encode(*verdict_);
        for (Peer& peer : peers_) {
            if (peer.channel.open()) peer.channel.Send(FrameType::kVerdict, payload);
        }
    }
    changed_.notify_all();
    Wake();
}

// -1: no rank has begun.
int Control::SlowestLoaded() const {
    int least = own_loaded_, most = least;
    for (const Peer& peer : peers_) {
        least = std::min(least, peer.loaded);
        most = std::max(most, peer.loaded);
    }
    return most < 0 ? -1 : std::max(least, 0);
}

void Control::Beat(int64_t now_ns) {
    beat_ns_ = now_ns;
    if (progress_) {
        const int64_t progress = progress_();
        if (progress != own_progress_) own_moved_ns_ = now_ns;
        own_progress_ = progress;
    }
    const int loaded = own_loaded_.load();
    if (std::exchange(own_loaded_before_, loaded) != loaded) own_moved_ns_ = now_ns;
    if (!is_root()) {
        SendBeat(0);
        return;
    }
    if (options_.loaded != nullptr) options_.loaded->store(SlowestLoaded());
    const Bytes relay = Encode(NextRelay(now_ns));
    for (Peer& peer : peers_) peer.channel.Send(FrameType::kRelay, relay);
}

// A relay with all ranks of a large job would use more bandwidth than data does.
RelayMessage Control::NextRelay(int64_t now_ns) {
    RelayMessage relay;
    const size_t ranks = peers_.size() + 1;
    const auto idle_ms = [&](size_t rank) {
        return (now_ns - (rank == 0 ? own_moved_ns_ : peers_[rank - 1].moved_ns)) / kNsPerMs;
    };
    relay.busiest_ms = relay.others_ms = std::numeric_limits<uint32_t>::max();
    for (size_t rank = 0; rank < ranks; ++rank) {
        const int64_t idle = std::max<int64_t>(idle_ms(rank), 0);
        if (relay.busiest < 0 || idle < relay.busiest_ms) {
            relay.others_ms = std::exchange(relay.busiest_ms, idle);
            relay.busiest = rank == 0 ? 0 : peers_[rank - 1].rank;
        } else {
            relay.others_ms = std::min(relay.others_ms, idle);
        }
    }
    if (relay_first_ >= ranks) relay_first_ = 0;
    relay.first = static_cast<int32_t>(relay_first_);
    for (; relay_first_ < ranks && relay.ranks.size() < kMostRelayed; ++relay_first_) {
        const size_t rank = relay_first_;
        const int64_t heard_ns = rank == 0 ? now_ns : peers_[rank - 1].heard_ns;
        relay.ranks.push_back({idle_ms(rank), (now_ns - heard_ns) / kNsPerMs});
    }
    return relay;
}

// Ends a process whose main thread does not notice the job's end.
void Control::Watch(int64_t now_ns) {
    if (!verdict_.has_value() || options_.watchdog_ms == 0 || recovering_) return;
    int64_t patience_ms = options_.watchdog_ms;
    // A survivor may have long ops to finish before it can leave the epoch, so its time, at least
    // one timeout, counts from its last progress. Rank 0 gets more time, because a busy machine may
    // starve it and no rank can continue without it.
    int64_t begin_ns = failed_ns_;
    if (verdict_->recover) {
        const int64_t times = is_root() ? kStarvedTimes : 1;
        patience_ms = std::max(patience_ms, times * options_.timeout_ms);
        begin_ns = std::max(begin_ns, own_moved_ns_);
    }
    if (taken_) patience_ms += 5000;  // it is ending; freeing a large model takes a while
    if (ended_) patience_ms = options_.timeout_ms;
    if (now_ns - begin_ns > patience_ms * kNsPerMs) Leave();
}

void Control::Leave() {
    const Error error = Tell({});
    const bool report = is_root() || !options_.local || verdict_->lost_rank == 0;
    if (report && !taken_ && !ended_) LogLine(LogLevel::kError, error.message);
    KillChildren();
    const bool stopped = error.code == ErrorCode::kCancelled;
    FlushErr();
    ::_exit(ended_ ? 0 : stopped ? g_stopped_status.load() : ExitStatus(error.code));
}

}  // namespace weft::cluster
