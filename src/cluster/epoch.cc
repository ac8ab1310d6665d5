// The transition to the next epoch, after a rank was lost.
//
//     all        EndEpoch: the verdict is in; the links are released
//     worker     LeaveEpoch: "I have left" to rank 0; waits for an assignment
//     rank 0     WaitForSurvivors; calls lost ranks back (CallBack), or drops them
//     rank 0     BeginEpoch: an assignment of epoch + 1 to each
//     all        Rendezvous, as at the start
#include <algorithm>
#include <thread>
#include <utility>

#include "base/log.h"
#include "base/on_threads.h"
#include "cluster/cluster_impl.h"
#include "cluster/join/dial.h"

namespace weft::cluster {
namespace {

// Most times that an elastic job calls for lost ranks before all ranks are ready again.
constexpr int kMostCalls = 3;
// Longest call of a worker before rank 0 checks for the user's request to stop: the first one, and
// later ones, because a network may be slower than that.
constexpr int64_t kCallMs = 500, kLongCallMs = 2000;
constexpr int64_t kCallNapMs = 50;
// Pause between attempts when all ranks live but can't reach each other.
constexpr int64_t kApartNapMs = 1000;
// Pause after a failed attempt, and after the system refused to start a process. It doubles from
// the first value up to the second.
constexpr int64_t kFirstNapMs = 50, kLongestNapMs = 2000;

int64_t NapMs(int failures) {
    return std::min(kLongestNapMs, kFirstNapMs << std::min(failures - 1, 16));
}
// How long an elastic job that can continue without a lost rank waits for it.
constexpr int64_t kElasticReturnMs = 2000;

}  // namespace

Result<EpochInfo> ClusterImpl::NextEpoch(Error error, const Replan& replan) {
    if (control_ == nullptr) return error;
    const int64_t rejoin_ms = rank_ == 0 ? options_.rejoin_ms : 0;
    EpochInfo info;
    Attempt attempt;
    if (!returning_.has_value()) returning_ = Deadline::In(rejoin_ms);
    attempt.whole = *returning_;
    attempt.brief = Deadline::In(std::min(rejoin_ms, kElasticReturnMs));
    while (true) {
        WEFT_TRY(control_->EndEpoch(error));
        fabric_ = {};
        if (rank_ == 0 && failures_ > 0) NapUnlessStopped(NapMs(failures_));
        ++failures_;
        if (rank_ == 0 && info.why.empty()) info.why = control_->LossText();
        if (attempt.number > kMostAttempts && attempt.whole.expired()) {
            return control_->GiveUp(MakeError(
                ErrorCode::kPeerLost, "{}. {} attempts to continue failed; the last error: {}",
                info.why, attempt.number - 1, error.message));
        }
        const bool call = std::max(calls_, attempt.number - 1) < kMostCalls || !options_.elastic;
        attempt.rejoin = Deadline::In(call ? rejoin_ms : 0);
        attempt.cause = error;
        const Status formed = rank_ == 0 ? FormEpoch(replan, attempt, info) : AwaitEpoch();
        if (formed.ok()) break;
        error = formed.error();
        // (Rank 0 decides on the number of attempts and their time.)
        if (rank_ == 0 && (!attempt.apart || attempt.whole.expired())) ++attempt.number;
        attempt.again = true;
    }
    info.epoch = assignment_.epoch;
    return info;
}

Status ClusterImpl::BeginSmaller(Error error) {
    if (!options_.elastic || !options_.replan) return error;
    const auto next = NextEpoch(std::move(error), [this](const std::vector<int>& kept) {
        return options_.replan(job_, size_, kept);
    });
    return next.ok() ? Status() : Status(next.error());
}

Status ClusterImpl::AwaitEpoch() {
    control_->LeaveEpoch(unreached_);
    WEFT_ASSIGN(const AssignMessage assignment,
                control_->WaitForAssignment(Deadline::In(recover_ms_)));
    return Rendezvous(assignment);
}

// The lost ranks, except joining workers that were rejected.
Result<std::vector<int>> ClusterImpl::AwaitSurvivors() {
    WEFT_ASSIGN(std::vector<int> lost, control_->WaitForSurvivors(Deadline::In(timeout_ms_ + 500)));
    std::erase_if(lost, [&](int rank) { return std::ranges::count(dismissed_, rank) > 0; });
    return lost;
}

std::vector<int> ClusterImpl::Kept(const std::vector<int>& lost) const {
    std::vector<int> kept;
    for (int rank = 0; std::cmp_less(rank, assignment_.hosts.size()); ++rank) {
        const bool gone =
            std::ranges::count(lost, rank) > 0 || std::ranges::count(dismissed_, rank) > 0;
        if (!gone) kept.push_back(rank);
    }
    return kept;
}

Status ClusterImpl::FormEpoch(const Replan& replan, Attempt& attempt, EpochInfo& info) {
    const Deadline& rejoin = attempt.rejoin;
    DismissTrial(info);
    auto lost = AwaitSurvivors();
    if (lost.ok()) DropUnreached(*lost, replan, attempt, info);
    if (!attempt.unreached.empty() && attempt.whole.expired()) {
        return control_->GiveUp(NotLinked(attempt));
    }
    const bool was_whole = assignment_.epoch > kFirstEpoch || !links_.empty();
    if (!was_whole && dismissed_.empty() && attempt.unreached.empty()) {
        return control_->GiveUp(attempt.cause);
    }
    attempt.apart = attempt.again && lost.ok() && lost->empty() && dismissed_.empty();
    if (attempt.apart) {
        NapUnlessStopped(kApartNapMs);
        lost = AwaitSurvivors();
    }
    if (!lost.ok()) return control_->GiveUp(lost.error());
    bool tells = false;
    for (int rank : *lost) {
        const bool known = std::count(info.lost.begin(), info.lost.end(), rank) > 0;
        if (!known) info.lost.push_back(rank);
        tells = tells || !known;
    }
    if (!lost->empty() && !rejoin.expired()) {
        ++calls_;
        std::vector<int> called = *lost;
        const Deadline until = ReturnTime(called, replan, rejoin);
        if (tells) {
            Log(LogLevel::kWarning, "{} lost; waiting up to {:.0f} s for its return",
                NamesOf(*lost), static_cast<double>(until.left_ms()) * 1e-3);
        }
        CallBack(called, until, !options_.elastic || !CheckRestPlans(*lost, replan).ok());
        lost = AwaitSurvivors();
        if (!lost.ok()) return control_->GiveUp(lost.error());
    }
    if (!lost->empty() && !options_.elastic) {
        if (rejoin.expired()) return control_->GiveUp(NotBack(info.why, *lost));
        return MakeError(ErrorCode::kPeerLost, "a rank that had come back was lost again");
    }
    TakeInJoiners(info);
    std::vector<int> kept = Kept(*lost);
    DropSurplus(kept);
    auto next = PlanEpoch(kept, replan);
    if (!next.ok()) {
        return control_->GiveUp(MakeError(
            ErrorCode::kPeerLost, "{}. The job cannot continue with the {} remaining ranks: {}",
            info.why, kept.size(), next.error().message));
    }
    if (!Begin(kept, *next)) {
        return MakeError(ErrorCode::kPeerLost, "another rank was lost meanwhile");
    }
    return Rendezvous(*next);
}

// Handles ranks that live and reach rank 0, but have no data path between them. An elastic job
// drops one rank of each pair if the rest can continue. It drops a rank without a data path to rank
// 0 only after a moment. Other jobs wait for the link.
void ClusterImpl::DropUnreached(const std::vector<int>& lost, const Replan& replan,
                                Attempt& attempt, EpochInfo& info) {
    auto pairs = control_->Unreached();
    for (const int peer : unreached_) pairs.emplace_back(0, peer);
    const auto out = [&](int rank) {
        return std::ranges::count(lost, rank) + std::ranges::count(dismissed_, rank) > 0;
    };
    std::erase_if(pairs, [&](const auto& pair) { return out(pair.first) || out(pair.second); });
    const bool told = !attempt.unreached.empty();
    attempt.unreached.clear();
    attempt.needed.clear();
    if (pairs.empty()) return;
    const std::string words = ApartText(pairs.front().first, pairs.front().second);
    std::erase_if(pairs, [&](const auto& pair) {
        const bool with_root = pair.first == 0 || pair.second == 0;
        return !options_.elastic || (with_root && !attempt.brief.expired());
    });
    const std::vector<int> dropped = RanksToDrop(pairs);
    if (!dropped.empty()) {
        const Status plans = CheckRestPlans(dropped, replan);
        if (!plans.ok()) attempt.needed = plans.error().message;
    }
    if (dropped.empty() || !attempt.needed.empty()) return AwaitLink(words, told, attempt);
    for (const int rank : dropped) {
        Log(LogLevel::kWarning, "{}. The job continues without {} (--elastic)", words,
            control_->Who(rank));
        info.lost.push_back(rank);
    }
    control_->Dismiss(dropped, words);
    dismissed_.insert(dismissed_.end(), dropped.begin(), dropped.end());
}

// told: the wait for the link was already reported to the user.
void ClusterImpl::AwaitLink(const std::string& words, bool told, Attempt& attempt) const {
    attempt.unreached = words;
    if (told || attempt.whole.expired()) return;
    const std::string why =
        attempt.needed.empty()
            ? ""
            : fmt::format(": the job cannot continue without one of them ({})", attempt.needed);
    Log(LogLevel::kWarning, "{}. Waiting up to {} ms (--restart-timeout-ms) for the link{}", words,
        attempt.whole.left_ms(), why);
}

// Whether a job for the ranks without `dropped` exists. Errors: why not.
Status ClusterImpl::CheckRestPlans(const std::vector<int>& dropped, const Replan& replan) const {
    std::vector<int> rest = Kept(dropped);
    const int ranks = static_cast<int>(rest.size());
    const int most = options_.usable_ranks ? options_.usable_ranks(ranks) : ranks;
    if (most >= 1 && most < ranks) rest.resize(static_cast<size_t>(most));
    const auto planned = replan(rest);
    return planned.ok() ? Status() : Status(planned.error());
}

void ClusterImpl::NapUnlessStopped(int64_t ms) const {
    const Deadline deadline = Deadline::In(ms);
    while (!deadline.expired() && !stop_requested() && !control_->should_stop()) {
        std::this_thread::sleep_for(std::chrono::milliseconds(kCallNapMs));
    }
}

// Drops surplus ranks: the job can be sharded only for some numbers of ranks.
void ClusterImpl::DropSurplus(std::vector<int>& kept) {
    const int ranks = static_cast<int>(kept.size());
    const int most = options_.usable_ranks ? options_.usable_ranks(ranks) : ranks;
    if (most < 1 || most >= ranks) return;
    const std::vector<int> surplus(kept.begin() + most, kept.end());
    kept.resize(static_cast<size_t>(most));
    for (const int rank : surplus) {
        Log(LogLevel::kInfo, "{} is not needed: of {} ranks the job can use {}",
            control_->Who(rank), ranks, most);
    }
    control_->Dismiss(surplus, fmt::format("of {} ranks the job can use {}", ranks, most));
    std::erase_if(trial_, [&](int rank) { return std::ranges::count(surplus, rank) > 0; });
    dismissed_.insert(dismissed_.end(), surplus.begin(), surplus.end());
}

// Returns false if a rank of the new epoch is lost.
bool ClusterImpl::Begin(const std::vector<int>& kept, const AssignMessage& next) {
    if (!control_->BeginEpoch(kept, next)) return false;
    const auto renumbered = [&](int rank) {
        return static_cast<int>(std::ranges::find(kept, rank) - kept.begin());
    };
    std::ranges::transform(trial_, trial_.begin(), renumbered);
    if (kept.size() != links_.size()) links_.clear();
    dismissed_.clear();
    if (!options_.hosts.empty()) {
        std::vector<NamedHost> workers;
        for (int rank : kept) workers.push_back(workers_[static_cast<size_t>(rank)]);
        workers_ = std::move(workers);
    }
    RecallAbsent();
    return true;
}

// The assignment of the next epoch, with rank 0's number.
Result<AssignMessage> ClusterImpl::PlanEpoch(const std::vector<int>& kept, const Replan& replan) {
    AssignMessage next = assignment_;
    ++next.epoch;
    next.hosts.clear();
    for (int rank : kept) next.hosts.push_back(assignment_.hosts[static_cast<size_t>(rank)]);
    std::vector<std::string> devices = DeviceWords(assignment_.rdma_device);
    if (devices.size() > 1) {
        devices.resize(std::max(devices.size(), assignment_.hosts.size()));  // "": chosen
        next.rdma_device.clear();
        for (int rank : kept) {
            next.rdma_device += (rank == 0 ? "" : ",") + devices[static_cast<size_t>(rank)];
        }
    }
    const bool same = std::cmp_equal(kept.size(), size_) && kept.back() == size_ - 1;
    WEFT_CHECK(same || replan != nullptr);
    if (replan != nullptr) {
        WEFT_ASSIGN(next.job, replan(kept));
    }
    if (options_.links_of) {
        next.links = options_.links_of(next.job, static_cast<int>(kept.size()));
    }
    if (options_.window_bytes == 0) {
        next.window_bytes =
            WindowBytesFor(next.links, static_cast<int>(kept.size()), options_.local > 1);
    }
    return next;
}

Error ClusterImpl::NotLinked(const Attempt& attempt) const {
    const std::string next = attempt.needed.empty()
                                 ? "mend the link and start the job again, or give --elastic to "
                                   "continue without one of them"
                                 : fmt::format(
                                       "mend the link and start the job again. --elastic cannot "
                                       "continue without one of them: {}",
                                       attempt.needed);
    return MakeError(
        ErrorCode::kPeerLost,
        "{}. Within {} ms (--restart-timeout-ms) this did not change. The job has ended on all "
        "ranks; {}.",
        attempt.unreached, options_.rejoin_ms, next);
}

std::string ClusterImpl::NamesOf(const std::vector<int>& ranks) const {
    std::string names;
    for (int rank : ranks) names += (names.empty() ? "" : ", ") + control_->Who(rank);
    return names;
}

Error ClusterImpl::NotBack(const std::string& why, const std::vector<int>& lost) const {
    const std::string checked = dial_in_ == nullptr ? "" : dial_in_->Checked();
    const std::string still =
        checked.empty() ? ""
                        : fmt::format(
                              " The check whether {} can take a place had not ended: does the "
                              "disk or network file system of its model answer?",
                              checked);
    return MakeError(ErrorCode::kPeerLost,
                     "{}. Within {} ms (--restart-timeout-ms) these ranks did not come back: {}.{} "
                     "The job has ended on all ranks; mend the cause and start it again, or give "
                     "--elastic to continue without them.",
                     why, options_.rejoin_ms, NamesOf(lost), still);
}

// How long to wait for the lost ranks. If an elastic job can continue without them, it waits a
// moment only, and removes ranks from `lost` whose worker was stopped: they can join later.
Deadline ClusterImpl::ReturnTime(std::vector<int>& lost, const Replan& replan,
                                 const Deadline& rejoin) const {
    if (!options_.elastic || !NamesHosts(options_)) return rejoin;
    if (!CheckRestPlans(lost, replan).ok()) return rejoin;
    std::erase_if(lost, [&](int rank) { return control_->HasLeft(rank); });
    return Deadline::In(std::min(kElasticReturnMs, rejoin.left_ms()));
}

// Dials hosts that are not ranks of the new epoch, so that they can join a later one.
void ClusterImpl::RecallAbsent() {
    if (recall_ == nullptr) return;
    for (const NamedHost& host : workers_) {
        const auto known = std::ranges::find(known_hosts_, host.name, &NamedHost::name);
        if (known == known_hosts_.end()) {
            known_hosts_.push_back(host);
        } else {
            known->address = host.address;
        }
    }
    std::vector<std::string> members;
    for (const NamedHost& host : workers_) members.push_back(host.name);
    recall_->Call(known_hosts_, std::move(members));
}

// Starts new processes for lost ranks, as far as possible until the deadline. (Processes or
// descriptors may be short for some seconds.)
// needed: the job cannot continue without the ranks.
void ClusterImpl::CallBack(const std::vector<int>& lost, const Deadline& rejoin, bool needed) {
    if (!options_.hosts.empty()) return CallBackHosts(lost, rejoin);
    if (dial_in_ != nullptr) return AwaitWorkers(lost, rejoin, needed);
    // The lost processes' memory must be free before new ones need it.
    control_->AwaitReaped(rejoin);
    for (int rank : lost) {
        auto started = StartLocalRank(options_, process_cores_);
        for (int refused = 1; !started.ok(); ++refused) {
            if (rejoin.expired() || stop_requested() || control_->should_stop()) return;
            if (refused == 1) {
                Log(LogLevel::kWarning, "{}. Trying again for {} ms (--restart-timeout-ms)",
                    started.error().message, rejoin.left_ms());
            }
            NapUnlessStopped(std::min(NapMs(refused), rejoin.left_ms()));
            started = StartLocalRank(options_, process_cores_);
        }
        control_->Replace(rank, Channel(std::move(started->control), started->session),
                          started->pid);
    }
}

// Any waiting or new worker may replace a lost rank, if it passes the check. A worker may read its
// copy of the model for longer than the ranks wait for others: if the ranks are needed, the time
// begins again with each progress of a worker.
void ClusterImpl::AwaitWorkers(std::vector<int> lost, const Deadline& rejoin, bool needed) {
    Deadline end = rejoin;
    int64_t moved_ns = 0;
    bool told = false;
    while (!lost.empty() && !end.expired() && !stop_requested() && !control_->should_stop()) {
        if (const int64_t last_ns = dial_in_->LastMoveNs(); needed && last_ns > moved_ns) {
            moved_ns = last_ns;
            const Deadline later = Deadline::From(last_ns, rejoin.length_ms());
            if (later.at_ns() > end.at_ns()) end = later;
            control_->NoteMove();
        }
        const std::string checked = told || !rejoin.expired() ? "" : dial_in_->Checked();
        if (!checked.empty()) {
            told = true;
            Log(LogLevel::kInfo,
                "{} still reads the model for the check whether it can take the place of {}; the "
                "job waits while the check makes progress",
                checked, NamesOf(lost));
        }
        if (const std::optional<Error> broken = dial_in_->Failure(); broken.has_value()) {
            return Log(LogLevel::kError, "{}", broken->message);
        }
        auto arrival = dial_in_->NextFit(lost, JoinRequestFor(size_, job_));
        if (!arrival.has_value()) {
            std::this_thread::sleep_for(std::chrono::milliseconds(kCallNapMs));
            continue;
        }
        Log(LogLevel::kInfo, "{} takes the place of rank {}", ArrivalText(*arrival), arrival->rank);
        std::erase(lost, arrival->rank);
        assignment_.hosts[static_cast<size_t>(arrival->rank)] = arrival->host;
        const int rank = arrival->rank;
        control_->Replace(rank, ChannelOf(std::move(*arrival)), 0);
    }
}

void ClusterImpl::CallBackHosts(const std::vector<int>& lost, const Deadline& rejoin) {
    [[maybe_unused]] const Status done = OnThreads(lost.size(), lost.size(), [&](size_t i) {
        CallBackHost(lost[i], rejoin);
        return Status();
    });
}

// All current paths to the worker: the cable used before may be the broken one.
std::vector<std::string> ClusterImpl::WaysToWorker(const NamedHost& host) const {
    std::vector<std::string> ways;
    if (!host.address.empty()) ways.push_back(host.address);
    if (!options_.addresses_now || host.called.empty()) return ways;
    for (std::string& other : options_.addresses_now(host.called)) {
        if (std::ranges::count(ways, other) == 0) ways.push_back(std::move(other));
    }
    return ways;
}

void ClusterImpl::CallBackHost(int rank, const Deadline& rejoin) {
    NamedHost& host = workers_[static_cast<size_t>(rank)];
    const int64_t longest_ms = std::clamp(timeout_ms_, kCallMs, kLongCallMs);
    int64_t call_ms = kCallMs;
    while (!rejoin.expired() && !stop_requested() && !control_->should_stop()) {
        std::optional<Error> refused;
        bool may_come = false;
        for (const std::string& way : WaysToWorker(host)) {
            const Deadline attempt = Deadline::In(std::min(call_ms, rejoin.left_ms()));
            const LineTalk line{
                [this] { return PlaceRequest{.ticket = ticket_, .returns = true}; }};
            auto dialled = DialWorker(way, key_, timeout_ms_, attempt, {}, -1, line);
            if (dialled.ok()) {
                if (way != host.address) {
                    Log(LogLevel::kInfo, "{} is now reached at {}, no longer at {}",
                        control_->Who(rank), way, host.address);
                }
                host.address = way;
                control_->Replace(rank, Channel(std::move(dialled->fd), dialled->session), 0);
                return;
            }
            const ErrorCode code = dialled.error().code;
            const bool final = code == ErrorCode::kDenied || code == ErrorCode::kUsage;
            if (final) refused = dialled.error();
            may_come |= !final;
        }
        if (!may_come && refused.has_value()) {
            return Log(LogLevel::kWarning, "{}", refused->message);
        }
        call_ms = std::min(2 * call_ms, longest_ms);
        std::this_thread::sleep_for(std::chrono::milliseconds(kCallNapMs));
    }
}

// ---- Joining workers ----------------------------------------------------------------------------

int ClusterImpl::PendingJoiners() const {
    if (dial_in_ == nullptr || !options_.elastic || rank_ != 0) return 0;
    if (recall_ != nullptr && recall_->gathers()) return 0;
    return dial_in_->PendingJoiners(size_);
}

Status ClusterImpl::SetDialIn(std::unique_ptr<DialIn> dial_in) {
    dial_in_ = std::move(dial_in);
    if (dial_in_ != nullptr || !options_.elastic || options_.hosts.empty()) return {};
    WEFT_ASSIGN(dial_in_, DialIn::ForHosts(timeout_ms_));
    HostRecall::Options options{key_, timeout_ms_, ticket_,
                                [this](const NamedHost& host) { return WaysToWorker(host); },
                                options_.new_hosts};
    recall_ = std::make_unique<HostRecall>(*dial_in_, std::move(options));
    WEFT_TRY(recall_->Start());
    RecallAbsent();
    return {};
}

// A worker that rank 0 dialed is free for other jobs again, until another host answers.
void ClusterImpl::RejectJoiners(const std::string& why) {
    const char* next = recall_ == nullptr ? " It can replace a lost rank" : "";
    for (const std::string& who : dial_in_->RejectJoiners(size_)) {
        Log(LogLevel::kWarning, "{} waits to join, but {}.{}", who, why, next);
    }
    if (recall_ != nullptr) recall_->Rest(dial_in_->SendAllAway(why));
}

void ClusterImpl::SetJoinFingerprint(std::string terms) {
    terms_ = std::move(terms);
    terms_epoch_ = assignment_.epoch;
}

// The request's rank is a placeholder.
JoinRequest ClusterImpl::JoinRequestFor(int size, const std::string& job) const {
    JoinRequest request;
    request.rank = 1;
    request.size = size;
    request.job = job;
    if (terms_epoch_ == assignment_.epoch) request.terms = terms_;
    return request;
}

// The addresses of the ranks (ExamineMessage::reach) for a worker on a host that was a rank. A host
// whose cable is out has lost some addresses, so addresses of earlier epochs count, too.
std::vector<std::string> ClusterImpl::ReachFrom(const std::string& host) const {
    std::vector<std::string> reach;
    const auto known = addresses_seen_.find(host);
    if (known == addresses_seen_.end()) return reach;
    for (size_t rank = 0; rank < assignment_.hosts.size(); ++rank) {
        const auto theirs = addresses_seen_.find(assignment_.hosts[rank]);
        if (theirs == addresses_seen_.end()) continue;
        const std::string name = fmt::format("rank {} (host {})", rank, theirs->first);
        for (const net::HostAddress& each : theirs->second) {
            const bool link_local = each.host.starts_with("fe80");  // needs the other end's scope
            if (link_local || !net::CommonNetwork({&each, 1}, known->second)) continue;
            if (reach.size() == kMostRanks) return reach;  // of a list in a frame
            reach.push_back(PackStrings({name, each.host}));
        }
    }
    return reach;
}

bool ClusterImpl::ValidateJoiners(int count, const std::string& job) {
    return dial_in_->ValidateJoiners(size_, count, JoinRequestFor(size_ + count, job),
                                     [this](const std::string& host) { return ReachFrom(host); });
}

Status ClusterImpl::Admit(int count) {
    const std::vector<std::string> chosen = dial_in_->Choose(size_, count);
    if (chosen.empty()) return {};
    std::string names;
    for (const std::string& name : chosen) names += (names.empty() ? "" : ", ") + name;
    return control_->EndForJoiners(names + (chosen.size() == 1 ? " joins" : " join"));
}

// The epoch with joining workers failed: rejects them, and they must wait before another try.
void ClusterImpl::DismissTrial(EpochInfo& info) {
    if (trial_.empty()) return;
    const std::string why = control_->LossText();
    std::string names;
    for (const Arrival& arrival : trial_names_) {
        names += (names.empty() ? "" : ", ") + ArrivalText(arrival);
        dial_in_->Defer(arrival);
    }
    info.refused = fmt::format("{} could not join: {}", names, why);
    info.joined.clear();
    control_->Dismiss(trial_, why);
    dismissed_.insert(dismissed_.end(), trial_.begin(), trial_.end());
    trial_.clear();
    trial_names_.clear();
}

// The named host that rank 0 dialed.
NamedHost ClusterImpl::HostOf(const Arrival& arrival) const {
    NamedHost host{arrival.host, "", arrival.from};
    const auto known = std::ranges::find(known_hosts_, arrival.host, &NamedHost::name);
    host.called = known != known_hosts_.end() ? known->called : arrival.host;
    return host;
}

void ClusterImpl::TakeInJoiners(EpochInfo& info) {
    if (dial_in_ == nullptr) return;
    const int size = static_cast<int>(assignment_.hosts.size());
    if (recall_ != nullptr) recall_->Pause();
    for (Arrival& arrival : dial_in_->TakeChosen(size)) {
        if (recall_ != nullptr) workers_.push_back(HostOf(arrival));
        assignment_.hosts.push_back(arrival.host);
        trial_.push_back(arrival.rank);
        info.joined.push_back(ArrivalText(arrival));
        trial_names_.push_back({Fd(), {}, arrival.host, arrival.rank, arrival.from});
        control_->AddNewcomer(std::move(arrival));
    }
}

void ClusterImpl::NoteAllReady() {
    calls_ = failures_ = 0;
    returning_.reset();
    trial_.clear();
    if (dial_in_ != nullptr) {
        for (const Arrival& arrival : trial_names_) dial_in_->Forgive(arrival);
    }
    trial_names_.clear();
    if (control_ != nullptr) control_->NoteAllReady();
}

}  // namespace weft::cluster
