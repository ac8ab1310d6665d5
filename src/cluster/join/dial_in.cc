#include "cluster/join/dial_in.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>
#include <functional>

#include "base/log.h"
#include "base/start_thread.h"
#include "cluster/cluster_impl.h"
#include "cluster/join/gather.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostWaiting = 64;  // beyond the places of a job
constexpr int64_t kAdmissionTurnMs = 100;
constexpr int64_t kNextMs = 20;
constexpr int64_t kCheckTurnMs = 20;
// Workers that come within this time join together, because each join pauses the job.
constexpr int64_t kTogetherNs = 300'000'000;
// Pause after a worker could not join, before a worker of its host may try again.
constexpr int64_t kFirstDeferralNs = 60'000'000'000;
constexpr int64_t kShortDeferralNs = 3'000'000'000;  // without a path to a rank
constexpr int kMostDoublings = 6;                    // slightly over an hour
constexpr size_t kMostDeferred = 256;

// Whether the connection has ended, or the worker has sent something before rank 0 did.
bool IsOver(const Arrival& arrival) {
    pollfd entry{arrival.fd.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&entry, 1, 0) != 0;
}

// Name and address without the port: other workers of the host have the same fault.
std::string HostKey(const Arrival& arrival) {
    return arrival.host + " " + arrival.from.substr(0, arrival.from.rfind(':'));
}

// The address that a worker should dial; a host on several networks has several.
std::string JoinWords(uint16_t port) {
    const std::vector<std::string> own = OwnAddresses();
    const Address address{own.empty() ? SystemHostName() : own[0], port};
    return fmt::format("weft worker --join {} --key-file FILE", address.Text());
}

}  // namespace

Result<std::unique_ptr<DialIn>> DialIn::Open(const std::string& listen, const Bytes& key,
                                             int64_t timeout_ms, int most_rank) {
    Address address{"", kWorkerPort};
    if (!listen.empty()) {
        WEFT_ASSIGN(address, ParseAddress(listen));
    }
    auto listener = net::ListenTcp(address.host, address.port);
    if (!listener.ok()) {
        return MakeError(listener.error().code,
                         "{}, so workers cannot connect. Use another port: --listen 0.0.0.0:7001",
                         listener.error().message);
    }
    WEFT_ASSIGN(const uint16_t port, net::BoundPort(listener->get()));
    return Begin(std::unique_ptr<DialIn>(
        new DialIn(std::move(*listener), port, key, timeout_ms, most_rank)));
}

Result<std::unique_ptr<DialIn>> DialIn::ForHosts(int64_t timeout_ms) {
    return Begin(std::unique_ptr<DialIn>(new DialIn(Fd(), 0, {}, timeout_ms, 0)));
}

DialIn::DialIn(Fd listener, uint16_t port, const Bytes& key, int64_t timeout_ms, int most_rank)
    : listener_(std::move(listener)), port_(port), most_rank_(most_rank), timeout_ms_(timeout_ms) {
    if (listener_.valid()) {
        admission_.emplace(
            listener_.get(), most_rank, key, timeout_ms,
            [this](const DialHello& hello, bool proved) { return Judge(hello, proved); });
    }
}

DialIn::~DialIn() {
    ends_.store(true);
    if (thread_.joinable()) thread_.join();
}

Result<std::unique_ptr<DialIn>> DialIn::Begin(std::unique_ptr<DialIn> dial_in) {
    // The main thread handles signals.
    WEFT_TRY(
        StartThread(dial_in->thread_, [at = dial_in.get()] { at->Serve(); }, {.signals = false}));
    ::pthread_setname_np(dial_in->thread_.native_handle(), "weft-admission");
    return dial_in;
}

void DialIn::Serve() {
    while (!ends_.load()) {
        auto arrivals = AwaitCallers();
        const std::lock_guard lock(mutex_);
        TurnScreenings();
        if (!arrivals.ok()) {
            failure_ =
                MakeError(arrivals.error().code, "no more workers can connect: {}. Restart the job",
                          arrivals.error().message);
            return;
        }
        if (admission_.has_value()) last_refusal_ = admission_->last_refusal();
        DropDisconnected();
        for (Arrival& arrival : *arrivals) {
            SetKeepAlive(arrival.fd.get());
            // The new worker and the waiting workers together may fill a larger layout.
            for (Waiting& waiting : waiting_) waiting.passed_over = 0;
            waiting_.push_back({std::move(arrival), NowNs()});
        }
    }
}

Result<std::vector<Arrival>> DialIn::AwaitCallers() {
    if (admission_.has_value()) return admission_->Turn(NapMs());
    std::this_thread::sleep_for(std::chrono::milliseconds(NapMs()));
    return std::vector<Arrival>();
}

void DialIn::Add(Arrival arrival) {
    SetKeepAlive(arrival.fd.get());
    const std::lock_guard lock(mutex_);
    for (Waiting& waiting : waiting_) waiting.passed_over = 0;
    Waiting& added = waiting_.emplace_back();
    added.since_ns = NowNs();
    added.check = BeginCheck(arrival);
    added.arrival = std::move(arrival);
}

bool DialIn::MayAdd(const std::string& host, const std::string& from) const {
    Arrival arrival;
    arrival.host = host;
    arrival.from = from;
    const std::lock_guard lock(mutex_);
    const auto waits = [&](const Waiting& waiting) { return waiting.arrival.host == host; };
    return std::ranges::none_of(waiting_, waits) && !IsDeferred(arrival);
}

std::vector<std::string> DialIn::SendAllAway(const std::string& why) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> hosts;
    for (Waiting& waiting : waiting_) {
        hosts.push_back(waiting.arrival.host);
        if (waiting.check != nullptr) waiting.check->SendAway({ErrorCode::kDenied, why});
    }
    waiting_.clear();
    return hosts;
}

int64_t DialIn::NapMs() const {
    const std::lock_guard lock(mutex_);
    const auto checked = [](const Waiting& waiting) { return waiting.check != nullptr; };
    return std::ranges::any_of(waiting_, checked) ? kCheckTurnMs : kAdmissionTurnMs;
}

// Sends the reason to a rejected worker, once; its host is called again later. Needs the lock.
void DialIn::TurnScreenings() {
    for (Waiting& waiting : waiting_) {
        if (waiting.check == nullptr) continue;
        waiting.check->Turn();
        const std::optional<Error>& fault = waiting.check->fault();
        if (!fault.has_value()) continue;
        // (A cable may be mended at any time, and the check costs the ranks nothing.)
        const bool of_path = fault->code == ErrorCode::kTimeout;
        const int64_t later_s = DeferLocked(waiting.arrival, !of_path) / kNsPerMs / 1000;
        std::string why = fault->message;
        while (why.ends_with('.')) why.pop_back();
        const bool news = std::exchange(told_[HostKey(waiting.arrival)], why) != why;
        Log(news ? LogLevel::kWarning : LogLevel::kDebug,
            "{} can't join: {}. The running ranks continue; its host may try again in {} s",
            ArrivalText(waiting.arrival), why, later_s);
        waiting.check->SendAway(*fault);
    }
    std::erase_if(waiting_, [](const Waiting& waiting) {
        return waiting.check != nullptr && waiting.check->fault().has_value();
    });
}

// A worker receives the reason of a rejection after it has proved the key.
std::optional<std::string> DialIn::Judge(const DialHello& hello, bool proved) const {
    if (hello.size != 0) {
        return fmt::format("it is rank {} of {}, of another job", hello.rank, hello.size);
    }
    if (!proved) return std::nullopt;
    if (hello.rank < 0 || hello.rank > most_rank_) {
        return fmt::format("it asks to be rank {}; workers are ranks 1 to {}", hello.rank,
                           most_rank_);
    }
    const std::lock_guard lock(mutex_);
    const bool full = waiting_.size() >= kMostWaiting + static_cast<size_t>(most_rank_);
    return full ? std::optional(std::string("too many workers are waiting already")) : std::nullopt;
}

void DialIn::DropDisconnected() {
    std::erase_if(waiting_, [](const Waiting& waiting) {
        return waiting.check == nullptr && IsOver(waiting.arrival);
    });
}

std::optional<Arrival> DialIn::Next(const std::vector<int>& places) {
    const std::lock_guard lock(mutex_);
    DropDisconnected();
    for (auto at = waiting_.begin(); at != waiting_.end() && !places.empty(); ++at) {
        const int asked = at->arrival.rank;
        const bool fits = asked == 0 || std::ranges::count(places, asked) > 0;
        if (!fits || at->check != nullptr) continue;
        Arrival arrival = std::move(at->arrival);
        waiting_.erase(at);
        if (arrival.rank == 0) arrival.rank = places[0];
        return arrival;
    }
    return std::nullopt;
}

std::optional<Arrival> DialIn::NextFit(const std::vector<int>& places, const JoinRequest& request) {
    const std::lock_guard lock(mutex_);
    DropDisconnected();
    std::vector<int> open = places;
    for (size_t i = 0; i < waiting_.size() && !open.empty(); ++i) {
        const int asked = waiting_[i].arrival.rank;
        const auto place = asked == 0 ? open.begin() : std::ranges::find(open, asked);
        if (place == open.end()) continue;
        if (IsFit(waiting_[i], *place, request)) return Take(i, *place);
        if (!waiting_[i].check->slow()) open.erase(place);
    }
    return std::nullopt;
}

// Takes the arrival's connection.
std::unique_ptr<CandidateCheck> DialIn::BeginCheck(Arrival& arrival) const {
    Arrival connection;
    connection.fd = std::move(arrival.fd);
    connection.session = arrival.session;
    return std::make_unique<CandidateCheck>(ChannelOf(std::move(connection)), timeout_ms_);
}

// Asks the worker, unless that was the last question. Needs the lock.
bool DialIn::IsFit(Waiting& waiting, int rank, JoinRequest request,
                   const std::vector<std::string>& reach) {
    request.rank = rank;
    if (waiting.check == nullptr) waiting.check = BeginCheck(waiting.arrival);
    waiting.check->Ask(request, reach);
    return waiting.check->fit();
}

// Removes a worker whose check has passed, and returns it as `rank`. Needs the lock.
Arrival DialIn::Take(size_t index, int rank) {
    const auto at = waiting_.begin() + static_cast<ptrdiff_t>(index);
    Arrival arrival = std::move(at->arrival);
    Channel::Taken taken = at->check->Take();
    arrival.fd = std::move(taken.fd);
    arrival.session = taken.session;
    arrival.unread = std::move(taken.unread);
    arrival.rank = rank;
    waiting_.erase(at);
    return arrival;
}

int64_t DialIn::LastMoveNs() const {
    const std::lock_guard lock(mutex_);
    int64_t last_ns = 0;
    for (const Waiting& waiting : waiting_) {
        if (waiting.check == nullptr || IsDeferred(waiting.arrival)) continue;
        last_ns = std::max(last_ns, waiting.check->moved_ns());
    }
    return last_ns;
}

std::string DialIn::Checked() const {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> who;
    for (const Waiting& waiting : waiting_) {
        if (waiting.check == nullptr || IsDeferred(waiting.arrival)) continue;
        if (!waiting.check->fit()) who.push_back(ArrivalText(waiting.arrival));
    }
    return fmt::format("{}", fmt::join(who, ", "));
}

std::string DialIn::LastRefusal() const {
    const std::lock_guard lock(mutex_);
    return last_refusal_;
}

std::optional<Error> DialIn::Failure() const {
    const std::lock_guard lock(mutex_);
    return failure_;
}

// Whether the waiting worker could be a rank beyond `size` and is fast enough. Needs the lock.
bool DialIn::MayJoin(const Waiting& waiting, int size) const {
    const int asked = waiting.arrival.rank;
    if (waiting.check != nullptr && waiting.check->slow()) return false;
    if (waiting.passed_over == size || (asked > 0 && asked < size)) return false;
    return !IsDeferred(waiting.arrival);
}

// Needs the lock.
bool DialIn::IsDeferred(const Arrival& arrival) const {
    const auto deferral = deferred_.find(HostKey(arrival));
    return deferral != deferred_.end() && deferral->second.until_ns > NowNs();
}

// The waiting workers, by index, for ranks from `size` on. Needs the lock.
std::vector<size_t> DialIn::Joining(int size) const {
    std::map<int, size_t> by_rank;  // the first that requests the rank
    std::vector<size_t> others;
    for (size_t i = 0; i < waiting_.size(); ++i) {
        const int asked = waiting_[i].arrival.rank;
        if (!MayJoin(waiting_[i], size)) continue;
        if (asked == 0) others.push_back(i);
        if (asked != 0) by_rank.emplace(asked, i);
    }
    std::vector<size_t> joining;
    auto other = others.begin();
    for (int rank = size; rank < static_cast<int>(kMostRanks); ++rank) {
        const auto asks = by_rank.find(rank);
        if (asks == by_rank.end() && other == others.end()) break;
        joining.push_back(asks != by_rank.end() ? asks->second : *other++);
    }
    return joining;
}

int DialIn::PendingJoiners(int size) const {
    const std::lock_guard lock(mutex_);
    if (waiting_.empty() || NowNs() - waiting_.back().since_ns < kTogetherNs) return 0;
    return static_cast<int>(Joining(size).size());
}

bool DialIn::ValidateJoiners(
    int size, int count, const JoinRequest& request,
    const std::function<std::vector<std::string>(const std::string& host)>& reach) {
    const std::lock_guard lock(mutex_);
    DropDisconnected();
    const std::vector<size_t> joining = Joining(size);
    if (joining.size() < static_cast<size_t>(count)) return false;
    bool all = true;
    for (int i = 0; i < count; ++i) {
        Waiting& waiting = waiting_[joining[static_cast<size_t>(i)]];
        all &= IsFit(waiting, size + i, request,
                     reach ? reach(waiting.arrival.host) : std::vector<std::string>());
    }
    return all;
}

std::vector<std::string> DialIn::Choose(int size, int count) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> names;
    for (Waiting& waiting : waiting_) waiting.chosen = 0;
    for (const size_t i : Joining(size)) {
        Waiting& waiting = waiting_[i];
        const bool fit = waiting.check != nullptr && waiting.check->fit();
        if (!fit || std::cmp_equal(names.size(), count)) break;
        names.push_back(ArrivalText(waiting.arrival));
        waiting.chosen = size + static_cast<int>(names.size()) - 1;
    }
    return names;
}

std::vector<Arrival> DialIn::TakeChosen(int size) {
    const std::lock_guard lock(mutex_);
    std::vector<Arrival> taken;
    for (int rank = size; rank < static_cast<int>(kMostRanks); ++rank) {
        const auto who = std::ranges::find(waiting_, rank, &Waiting::chosen);
        if (who == waiting_.end() || !who->check->fit()) continue;
        Arrival arrival = Take(static_cast<size_t>(who - waiting_.begin()),
                               size + static_cast<int>(taken.size()));
        if (arrival.fd.valid()) taken.push_back(std::move(arrival));
    }
    for (Waiting& waiting : waiting_) waiting.chosen = 0;
    return taken;
}

std::vector<std::string> DialIn::RejectJoiners(int size) {
    const std::lock_guard lock(mutex_);
    std::vector<std::string> who;
    for (Waiting& waiting : waiting_) {
        if (!MayJoin(waiting, size)) continue;
        waiting.passed_over = size;
        who.push_back(ArrivalText(waiting.arrival));
    }
    return who;
}

void DialIn::Defer(const Arrival& arrival) {
    const std::lock_guard lock(mutex_);
    DeferLocked(arrival);
}

// Returns the deferral time. Needs the lock.
int64_t DialIn::DeferLocked(const Arrival& arrival, bool doubles) {
    if (deferred_.size() >= kMostDeferred) {
        deferred_.clear();
        told_.clear();
    }
    Deferral& deferral = deferred_[HostKey(arrival)];
    int64_t length_ns = kShortDeferralNs;
    if (doubles) length_ns = kFirstDeferralNs << std::min(deferral.times++, kMostDoublings);
    deferral.until_ns = NowNs() + length_ns;
    return length_ns;
}

void DialIn::Forgive(const Arrival& arrival) {
    const std::lock_guard lock(mutex_);
    deferred_.erase(HostKey(arrival));
    told_.erase(HostKey(arrival));
}

Status GatherWorkers(DialIn& dial_in, int size, RankRegistry& registry,
                     const Gathering& gathering) {
    RendezvousState rendezvous(size, registry, gathering);
    const auto here = [&] { return static_cast<size_t>(size) - 1 - rendezvous.Missing().size(); };
    Log(LogLevel::kInfo, "workers connect to port {}: {}. Waiting for {}", dial_in.port(),
        JoinWords(dial_in.port()), size - 1);
    while (true) {
        WEFT_ASSIGN(const bool complete, rendezvous.Complete());
        if (complete) return {};
        if (const std::optional<Error> broken = dial_in.Failure(); broken.has_value()) {
            return *broken;
        }
        if (rendezvous.expired()) {
            const std::string refusal = dial_in.LastRefusal();
            return MakeError(ErrorCode::kTimeout,
                             "{} of {} workers connected within {} (--wait). Run on each of the "
                             "other hosts: {}{}",
                             here(), size - 1, SecondsText(gathering.deadline.length_ms()),
                             JoinWords(dial_in.port()),
                             refusal.empty() ? "" : ". Turned away: " + refusal);
        }
        while (auto arrival = dial_in.Next(rendezvous.Missing())) {
            const std::string who = ArrivalText(*arrival);
            const int rank = arrival->rank;
            rendezvous.Take(std::move(*arrival));
            Log(LogLevel::kInfo, "{} of {} workers have connected: {} is rank {}", here(), size - 1,
                who, rank);
        }
        rendezvous.Tell(
            [&] { return fmt::format("{} of {} workers have connected", here(), size - 1); });
        std::this_thread::sleep_for(std::chrono::milliseconds(kNextMs));
    }
}

}  // namespace weft::cluster
