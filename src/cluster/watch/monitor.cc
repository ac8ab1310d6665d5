// The main thread's side of Control: collective calls, verdicts, the end of the job.
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <utility>

#include "base/log.h"
#include "cluster/control.h"
#include "cluster/gather_rounds.h"

namespace weft::cluster {
namespace {

constexpr int64_t kVerdictWaitMs = 700;  // time that a data wait gives the control plane
constexpr int64_t kReportWaitMs = 200;   // the same for a report of a lost peer
constexpr int64_t kAnswerWaitMs = 500;   // rank 0's answer to a report
constexpr int64_t kLingerMs = 400;       // time for the others to leave after a verdict
constexpr int64_t kBuryMs = 5000;        // for killed children to end
constexpr size_t kMostReport = 8192;
constexpr size_t kMostHead = 512;  // bytes of a message beside its value

Error TooMany(const std::string& name, size_t bytes) {
    return MakeError(ErrorCode::kUnsupported,
                     "'{}': the values of all ranks have {} bytes; at most {} are possible", name,
                     bytes, kMostGathered);
}

Clock::time_point MonitorTime(const Deadline& deadline) {
    return Clock::time_point(std::chrono::nanoseconds(deadline.at_ns()));
}

}  // namespace

void Control::SetHosts(std::vector<std::string> names) {
    const Lock lock(mutex_);
    hosts_ = std::move(names);
}

std::vector<std::string> Control::hosts() const {
    const Lock lock(mutex_);
    return hosts_;
}

void Control::SetTransport(std::string transport) {
    const Lock lock(mutex_);
    transport_ = std::move(transport);
}

void Control::SetLinks(LinkTable links) {
    const Lock lock(mutex_);
    links_ = std::move(links);
}

void Control::SetProgress(std::function<int64_t()> progress) {
    const Lock lock(mutex_);
    progress_ = std::move(progress);
    own_moved_ns_ = NowNs();
}

void Control::NoteMove() {
    const Lock lock(mutex_);
    own_moved_ns_ = NowNs();
}

void Control::Wake() const {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(wake_.get(), &one, sizeof one);
}

void Control::RequestStop() {
    stop_requested_.store(true);
    Wake();
}

template <typename Ready>
bool Control::WaitFor(Lock& lock, const Deadline& deadline, const Ready& ready) {
    changed_.wait_until(lock, MonitorTime(deadline),
                        [&] { return ready() || verdict_.has_value(); });
    return ready();
}

// ---- Words --------------------------------------------------------------------------------------

std::string Control::RankTextLocked(int rank) const {
    const auto index = static_cast<size_t>(rank);
    const std::string host = index < hosts_.size() ? hosts_[index] : "unknown";
    if (transport_.empty()) return fmt::format("rank {} (host {})", rank, host);
    return net::PeerName{rank, host, transport_}.Text();
}

// " Their link: tcp, 10.0.1.1 (eth1) - 10.0.1.2 (eth1)."; "": it has no addresses.
std::string Control::LinkWords(int a, int b) const {
    const std::string link = LinkText(links_, a, b);
    return link.empty() ? "" : fmt::format(" Their link: {}.", link);
}

std::string Control::Who(int rank) const {
    const Lock lock(mutex_);
    return RankTextLocked(rank);
}

// The verdict, with this rank's current operation.
std::string Control::LossLocked(const net::OpTag& tag) const {
    std::string text = verdict_->text;
    if (verdict_->reason.empty()) return text;
    const char* phase = phase_.load(std::memory_order_relaxed);
    if (tag.op[0] != '\0') {
        text += " during " + tag.Text();
    } else if (phase != nullptr) {
        text += fmt::format(" during {}", phase);
    }
    return text + ": " + verdict_->reason;
}

Error Control::Tell(const net::OpTag& tag) const {
    WEFT_CHECK(verdict_.has_value());
    const VerdictMessage& verdict = *verdict_;
    std::string text = LossLocked(tag);
    if (!verdict.reason.empty()) {
        text += ". The job has ended on all ranks; mend the cause and start it again.";
    }
    if (tag.op[0] != '\0') told_ = text;
    return Error{verdict.code, std::move(text)};
}

Error Control::FailureDuring(const net::OpTag& tag) const {
    const Lock lock(mutex_);
    return Tell(tag);
}

std::string Control::Missing(const std::function<bool(const Peer&)>& is_missing) const {
    std::string text;
    for (const Peer& peer : peers_) {
        if (is_missing(peer)) text += (text.empty() ? "" : ", ") + RankTextLocked(peer.rank);
    }
    return text;
}

// ---- Queries of net/ ----------------------------------------------------------------------------

int64_t Control::SilentMs(int rank) const {
    const Lock lock(mutex_);
    return SilentLocked(rank);
}

int64_t Control::SilentLocked(int rank) const {
    const int64_t now = NowNs();
    if (is_root()) {
        for (const Peer& peer : peers_) {
            if (peer.rank == rank) return (now - peer.moved_ns) / kNsPerMs;
        }
        return -1;
    }
    const auto index = static_cast<size_t>(rank);
    if (index >= relayed_.size() || relayed_[index].at_ns == 0) return -1;
    return relayed_[index].rank.idle_ms + (now - relayed_[index].at_ns) / kNsPerMs;
}

// Waits so that the control plane can name the lost rank. On a starved machine the control thread
// may not have checked yet, or the cause of a process's end may not be known yet. broken: the
// rank's link broke, which also happens if its process ends. The control connection may report that
// end later than the link, so only a message that the rank sent a while after the break shows that
// it lives.
void Control::AwaitVerdict(Lock& lock, int rank, bool broken) {
    const int64_t turns = turns_;
    const int64_t alive_ns = broken ? NowNs() + kVerdictWaitMs * kNsPerMs : 0;
    WaitFor(lock, Deadline::In(kVerdictWaitMs), [] { return false; });
    WaitFor(lock, Deadline::In(options_.timeout_ms),
            [&] { return turns_ >= turns + 2 && !SomePeerEnds() && HeardNs(rank) >= alive_ns; });
}

// When the rank last sent data on its control connection, as far as they have arrived.
int64_t Control::HeardNs(int rank) const {
    for (const Peer& peer : peers_) {
        if (peer.rank == rank) return peer.heard_ns;
    }
    const auto index = static_cast<size_t>(rank);
    if (index >= relayed_.size()) return 0;
    return relayed_[index].at_ns - relayed_[index].rank.silent_ms * kNsPerMs;
}

Error Control::OnTimeout(int rank, const net::OpTag& tag, const Deadline& deadline) {
    const bool expired = deadline.expired();
    Lock lock(mutex_);
    // After a broken link, the wait has lasted only a moment.
    OwnWait() = {rank, tag.step, tag.index, tag.place, tag.op, expired ? deadline.length_ms() : 0};
    if (expired && is_root()) Stalled(0, deadline.length_ms());
    if (expired && !is_root()) SendBeat(deadline.length_ms());
    Wake();
    const int64_t begin_ns = NowNs();
    AwaitVerdict(lock, rank, !expired);
    if (verdict_.has_value()) return Tell(tag);
    // Rank 0 would have reported this by now, unless rank 0 itself is unreachable.
    if (!is_root() && SilentTooLong(NowNs()) == 0) rank = 0;
    std::string text;
    if (expired) {
        text = fmt::format(
            "{}: no data for {} within {} ms, though its process answers. Is it "
            "stuck, or is the data link between the hosts down?",
            RankTextLocked(rank), tag.Text(), deadline.length_ms());
    } else if (HeardNs(rank) >= begin_ns + kVerdictWaitMs * kNsPerMs) {
        text = fmt::format(
            "{}: the data link broke during {}{}, though its process answers. Is the "
            "network between the hosts sound?",
            RankTextLocked(rank), tag.Text(), PauseText());
    } else {
        text = fmt::format(
            "{}: the data link broke during {}{}, and its process has not answered for {} ms. Was "
            "it killed, or is its host or the network down?",
            RankTextLocked(rank), tag.Text(), PauseText(), (NowNs() - begin_ns) / kNsPerMs);
    }
    told_ = text;
    return Error{ErrorCode::kPeerLost, std::move(text)};
}

// ---- Before the job begins ----------------------------------------------------------------------

void Control::Take(Arrival arrival) {
    const Lock lock(mutex_);
    const auto at = static_cast<size_t>(arrival.rank);
    if (!arrival.host.empty() && at < hosts_.size()) hosts_[at] = arrival.host;
    const int rank = arrival.rank;
    AddPeerLocked(rank, ChannelOf(std::move(arrival)), 0);
    Wake();
}

std::vector<RankRegistry::Gone> Control::TakeGone() {
    const Lock lock(mutex_);
    std::vector<Gone> gone;
    for (const Peer& peer : peers_) {
        if (peer.gone) gone.push_back({peer.rank, peer.loss});
    }
    std::erase_if(peers_, [](const Peer& peer) { return peer.gone; });
    return gone;
}

void Control::Release(int rank, const std::string& why) {
    const Lock lock(mutex_);
    const VerdictMessage verdict{ErrorCode::kCancelled, -1, why, ""};
    for (Peer& peer : peers_) {
        if (peer.rank != rank || !peer.channel.open()) continue;
        peer.channel.Send(FrameType::kVerdict, Encode(verdict));
        peer.channel.Close(false);
    }
    std::erase_if(peers_, [&](const Peer& peer) { return peer.rank == rank; });
}

bool Control::Complete() {
    const Lock lock(mutex_);
    const auto there = [](const Peer& peer) { return peer.channel.open(); };
    if (!std::ranges::all_of(peers_, there)) return false;
    options_.gathers = false;
    return true;
}

// ---- Assignment and collective calls ------------------------------------------------------------

void Control::SendAssignments(const AssignMessage& message) {
    const auto shared = std::make_shared<const Bytes>(EncodeSharedPart(message));
    for (Peer& peer : peers_) {
        const Bytes own = EncodeOwnPart(peer.rank, PeerHost(peer.channel.fd()));
        peer.channel.SendShared(FrameType::kAssign, shared, own);
    }
    Wake();
}

void Control::Assign(const AssignMessage& message) {
    const Lock lock(mutex_);
    epoch_ = message.epoch;
    SendAssignments(message);
}

void Control::SetPhase(const char* phase) {
    const char* before = phase_.exchange(phase, std::memory_order_relaxed);
    if (phase != before && phase != nullptr) Log(LogLevel::kDebug, "phase: {}", phase);
}

Result<AssignMessage> Control::WaitForAssignment(const Deadline& deadline) {
    Lock lock(mutex_);
    Deadline end = deadline;
    while (!WaitFor(lock, end, [&] { return assignment_.has_value(); })) {
        if (verdict_.has_value()) return Tell({});
        // Rank 0 waits as long as a survivor moves (WaitForSurvivors).
        const int64_t still_ms = StillLocked();
        if (still_ms < 0 || still_ms >= deadline.length_ms()) {
            return MakeError(ErrorCode::kTimeout, "rank 0 gave no job within {} ms",
                             deadline.length_ms());
        }
        end = Deadline::In(deadline.length_ms() - still_ms);
    }
    waiting_ = false;
    return *assignment_;
}

Result<std::optional<ExamineMessage>> Control::WaitForJoinRequest(const Deadline& deadline) {
    Lock lock(mutex_);
    WaitFor(lock, deadline, [&] { return assignment_.has_value() || request_.has_value(); });
    if (assignment_.has_value()) return std::optional<ExamineMessage>();
    if (request_.has_value()) return std::exchange(request_, std::nullopt);
    if (verdict_.has_value()) return Tell({});
    return MakeError(ErrorCode::kTimeout, "rank 0 gave no job within {} ms", deadline.length_ms());
}

void Control::AnswerJoinRequest(const ExamineMessage& request, const Status& fit) {
    ExaminedMessage answer{request.number, fit.ok()};
    if (!fit.ok()) {
        answer.code = fit.error().code;
        answer.why = fit.error().message.substr(0, kMostWhy);
    }
    const Lock lock(mutex_);
    peers_[0].channel.Send(FrameType::kExamined, Encode(answer));
    Wake();
}

Result<std::string> Control::Round(const std::string& name, const std::string& mine,
                                   const Combine& combine, const Deadline& deadline) {
    const auto spread =
        [&](const std::vector<std::string>& values) -> Result<std::vector<std::string>> {
        WEFT_ASSIGN(std::string combined, combine(values));
        return std::vector<std::string>{std::move(combined)};
    };
    return RunRound(name, mine, spread, deadline);
}

// Values of many bytes follow in a second round, when all ranks have agreed that they are not too
// many: an error is then the same on every rank, and the job may continue.
Result<std::vector<std::string>> Control::AllGather(const std::string& name,
                                                    const std::string& mine,
                                                    const Deadline& deadline) {
    GatherRounds rounds(name);
    const auto first = [&](const auto& heads) { return rounds.Heads(heads); };
    WEFT_ASSIGN(std::string packed, Round(name, GatherRounds::HeadOf(mine), first, deadline));
    if (packed == GatherRounds::kRestFollows) {
        const auto rest = [&](const auto& rests) { return rounds.Rests(rests); };
        const std::string& long_value = GatherRounds::IsLong(mine) ? mine : "";
        // (The first round may have lasted longer than the limit, if ranks moved.)
        WEFT_ASSIGN(packed, Round(name, long_value, rest, Deadline::In(deadline.length_ms())));
    }
    return rounds.ValuesOf(packed, hosts().size());
}

Result<std::vector<std::string>> Control::Exchange(const std::string& name,
                                                   const std::vector<std::string>& mine,
                                                   const Deadline& deadline) {
    const auto spread =
        [&](const std::vector<std::string>& values) -> Result<std::vector<std::string>> {
        std::vector<RankedStrings> to(values.size());
        for (size_t from = 0; from < values.size(); ++from) {
            WEFT_ASSIGN(RankedStrings words, UnpackRanked(values[from], values.size()));
            for (auto& [rank, word] : words) to[rank].emplace_back(from, std::move(word));
        }
        std::vector<std::string> packed;
        for (const RankedStrings& words : to) packed.push_back(PackRanked(words));
        return packed;
    };
    RankedStrings sent;
    for (size_t rank = 0; rank < mine.size(); ++rank) {
        if (!mine[rank].empty()) sent.emplace_back(rank, mine[rank]);
    }
    WEFT_ASSIGN(const std::string packed, RunRound(name, PackRanked(sent), spread, deadline));
    WEFT_ASSIGN(RankedStrings words, UnpackRanked(packed, mine.size()));
    std::vector<std::string> got(mine.size());
    for (auto& [rank, word] : words) got[rank] = std::move(word);
    return got;
}

Result<std::string> Control::RunRound(const std::string& name, const std::string& mine,
                                      const Spread& spread, const Deadline& deadline) {
    if (mine.size() > kMostGathered) return TooMany(name, mine.size());
    Lock lock(mutex_);
    ++rounds_;
    call_ = fmt::format("'{}'", name);
    call_ns_ = NowNs();
    auto result = is_root() ? RoundOfRoot(lock, name, mine, spread, deadline)
                            : RoundOfWorker(lock, name, mine, deadline);
    call_.clear();
    return result;
}

// As a data wait (net/wait_policy.h): what moves is not late.
template <typename Ready, typename Still>
bool Control::WaitWhileMoving(Lock& lock, Deadline deadline, const Ready& ready,
                              const Still& still_ms) {
    while (!WaitFor(lock, deadline, ready) && !verdict_.has_value()) {
        const int64_t still = still_ms();
        if (still < 0 || still >= deadline.length_ms()) return false;
        deadline = Deadline::From(NowNs() - still * kNsPerMs, deadline.length_ms());
    }
    return ready();
}

Result<std::string> Control::RoundOfRoot(Lock& lock, const std::string& name,
                                         const std::string& mine, const Spread& spread,
                                         const Deadline& deadline) {
    const auto missing = [](const Peer& peer) { return !peer.value.has_value(); };
    // A missing rank may wait for another missing one, but for none that is here.
    const auto still_ms = [&] {
        int64_t moved_ns = 0;
        for (const Peer& peer : peers_) {
            if (missing(peer)) moved_ns = std::max(moved_ns, peer.moved_ns);
        }
        return (NowNs() - moved_ns) / kNsPerMs;
    };
    const auto all = [&] { return std::ranges::none_of(peers_, missing); };
    WaitWhileMoving(lock, deadline, all, still_ms);
    if (verdict_.has_value()) return Tell({});
    const std::string absent = Missing(missing);
    if (!absent.empty()) {
        Fail({ErrorCode::kPeerLost, -1,
              fmt::format("'{}' was not reached within {} ms by {}", name, deadline.length_ms(),
                          absent),
              "", epoch_, CanRecover()});
        return Tell({});
    }
    std::vector<std::string> values = {mine};
    for (Peer& peer : peers_) {
        if (peer.value->number != rounds_ || peer.value->name != name) {
            Fail({ErrorCode::kCorrupt, -1,
                  fmt::format("{} is at '{}' (call {}) while rank 0 is at '{}' (call {})",
                              RankTextLocked(peer.rank), peer.value->name, peer.value->number, name,
                              rounds_),
                  "", epoch_, IsOfTrial(ErrorCode::kCorrupt)});
            return Tell({});
        }
        values.push_back(std::move(peer.value->value));
        peer.value.reset();
    }
    const size_t bytes = mine.size() + std::exchange(gathered_bytes_, 0);
    call_.clear();  // it waits no more
    lock.unlock();  // it may call back for names
    Result<std::vector<std::string>> result = TooMany(name, bytes);
    if (bytes <= kMostMessage) result = spread(values);
    lock.lock();
    for (size_t i = 0; result.ok() && i < result->size(); ++i) {
        const size_t size = (*result)[i].size();
        if (size > kMostMessage - kMostHead) result = TooMany(name, size);
    }
    if (!result.ok()) {
        const Error& error = result.error();
        Fail({error.code, -1, error.message, "", epoch_, IsOfTrial(error.code)});
        return Tell({});
    }
    if (verdict_.has_value()) return Tell({});
    const bool one = result->size() == 1;
    WEFT_CHECK(one || result->size() == values.size());
    std::shared_ptr<const Bytes> message;
    for (size_t i = 0; i < peers_.size(); ++i) {
        if (message == nullptr || !one) {
            const std::string& to = (*result)[one ? 0 : i + 1];
            message = std::make_shared<const Bytes>(Encode(ResultMessage{rounds_, to, epoch_}));
        }
        peers_[i].channel.SendShared(FrameType::kResult, message);
    }
    Wake();
    return std::move((*result)[0]);
}

Result<std::string> Control::RoundOfWorker(Lock& lock, const std::string& name,
                                           const std::string& mine, const Deadline& deadline) {
    if (verdict_.has_value()) return Tell({});
    result_.reset();
    peers_[0].channel.Send(FrameType::kValue, Encode(ValueMessage{rounds_, name, mine, epoch_}));
    Wake();
    // Rank 0's own deadline comes first: its verdict names the missing ranks.
    const Deadline later = Deadline::In(deadline.left_ms() + kAnswerWaitMs);
    const auto still_ms = [&]() -> int64_t {
        const int64_t still = StillLocked();
        return still < 0 ? still : std::min(still, (NowNs() - parts_ns_) / kNsPerMs);
    };
    WaitWhileMoving(
        lock, later, [&] { return result_.has_value(); }, still_ms);
    if (result_.has_value() && result_->number == rounds_) {
        std::string value = std::move(result_->value);
        result_.reset();
        return value;
    }
    if (verdict_.has_value()) return Tell({});
    return MakeError(ErrorCode::kTimeout, "{}: no answer to '{}' within {} ms", RankTextLocked(0),
                     name, later.length_ms());
}

// ---- Failure and end ----------------------------------------------------------------------------

// Turns this rank's error into the verdict, unless there is a better one.
void Control::Settle(Lock& lock, Error& error, bool recover, int64_t answer_ms) {
    const bool secondary = error.code == ErrorCode::kPeerLost || error.code == ErrorCode::kTimeout;
    if (secondary && error.message != told_) {
        WaitFor(lock, Deadline::In(kReportWaitMs), [] { return false; });
    }
    if (error.message.size() > kMostReport) error.message.resize(kMostReport);
    const VerdictMessage report{error.code, -1, error.message, "", epoch_, recover};
    if (!verdict_.has_value() && is_root()) Fail(report);
    if (!verdict_.has_value()) {
        peers_[0].channel.Send(FrameType::kFailure, Encode(report));
        Wake();
        WaitFor(lock, Deadline::In(std::max(kAnswerWaitMs, answer_ms)), [] { return false; });
    }
}

Error Control::ReportFailure(Error error) {
    Lock lock(mutex_);
    Settle(lock, error, false, 0);
    Finalise();
    taken_ = true;
    if (ended_ && !is_root()) peers_[0].channel.Send(FrameType::kEndAck, {});
    if (!verdict_.has_value()) return error;
    // The text returned to a data wait names the op; the bare verdict does not.
    if (error.message == told_) return error;
    return Tell({});
}

bool Control::ShouldReport() const {
    const Lock lock(mutex_);
    if (is_root() || !options_.local) return true;
    return verdict_.has_value() && verdict_->lost_rank == 0;
}

bool Control::AllGone() const {
    return std::all_of(peers_.begin(), peers_.end(), [](const Peer& peer) { return peer.gone; });
}

Status Control::End(const Deadline& deadline) {
    Lock lock(mutex_);
    ending_ = true;
    const Status status = is_root() ? EndRoot(lock, deadline) : EndWorker(lock, deadline);
    taken_ = true;
    return status;
}

Status Control::EndRoot(Lock& lock, const Deadline& deadline) {
    if (verdict_.has_value()) return Tell({});
    ended_ = true;
    for (Peer& peer : peers_) peer.channel.Send(FrameType::kEnd, {});
    Wake();
    if (WaitFor(lock, deadline, [&] { return AllGone(); })) return {};
    if (!verdict_.has_value()) {
        Fail({ErrorCode::kTimeout, -1,
              fmt::format("the job is over, but within {} ms these ranks did not end: {}",
                          deadline.length_ms(), Missing([](const Peer& p) { return !p.gone; })),
              ""});
    }
    return Tell({});
}

Status Control::EndWorker(Lock& lock, const Deadline& deadline) {
    call_ = "the end of the job";
    call_ns_ = NowNs();
    WaitFor(lock, deadline, [&] { return ended_; });
    call_.clear();
    if (ended_) {
        peers_[0].channel.Send(FrameType::kEndAck, {});
        return {};
    }
    if (verdict_.has_value()) return Tell({});
    return MakeError(ErrorCode::kTimeout, "{} did not end the job within {} ms", RankTextLocked(0),
                     deadline.length_ms());
}

// Gives the others a moment to read the last message: closing a socket with unread bytes discards
// what was sent last.
void Control::Linger(Lock& lock, int64_t ms) {
    const Deadline deadline = Deadline::In(ms);
    if (is_root()) {
        changed_.wait_until(lock, MonitorTime(deadline), [&] { return AllGone(); });
        return;
    }
    changed_.wait_until(lock, MonitorTime(deadline),
                        [&] { return !peers_[0].channel.wants_write(); });
}

void Control::Stop() {
    if (thread_.joinable()) {
        Lock lock(mutex_);
        progress_ = nullptr;
        taken_ = true;
        const VerdictMessage left{ErrorCode::kPeerLost, -1,
                                  RankTextLocked(options_.rank) + " left the job", ""};
        if (!verdict_.has_value() && !ended_) {
            if (is_root())
                Fail(left);
            else
                peers_[0].channel.Send(FrameType::kFailure, Encode(Stamped(left)));
        }
        Finalise();
        Linger(lock, kLingerMs);
        stopping_ = true;
        Wake();
        lock.unlock();
        thread_.join();
    }
    for (Peer& peer : peers_) peer.channel.Close(!peer.gone && is_root());
    KillChildren();
}

void Control::KillChildren() {
    for (Peer& peer : peers_) {
        if (peer.pid <= 0) continue;
        ::kill(peer.pid, SIGKILL);
        buried_.push_back(std::exchange(peer.pid, 0));
    }
    // All children end at the same time; unmapping memory takes a while with few cores.
    const Deadline deadline = Deadline::In(kBuryMs);
    while (!buried_.empty() && !deadline.expired()) {
        ReapBuried();
        if (!buried_.empty()) ::usleep(500);
    }
}

}  // namespace weft::cluster
