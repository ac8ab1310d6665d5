#include "cluster/watch/recall.h"

#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/log.h"
#include "base/start_thread.h"
#include "cluster/join/dial.h"

namespace weft::cluster {
namespace {

constexpr int64_t kTurnMs = 1000;  // between two calls of one host
constexpr int64_t kCallMs = 500;   // longest call
// Pause after a wrong key or version, which time alone does not fix.
constexpr int64_t kRefusedMs = 30'000;
// The reason why a worker was sent away may end without another host (a full disk of checkpoints).
constexpr int64_t kRestMs = 300'000;

}  // namespace

HostRecall::HostRecall(DialIn& waiting, Options options)
    : waiting_(waiting),
      options_(std::move(options)),
      cancel_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {}

Status HostRecall::Start() {
    // The main thread handles signals.
    WEFT_TRY(StartThread(thread_, [this] { Serve(); }, {.signals = false}));
    ::pthread_setname_np(thread_.native_handle(), "weft-recall");
    return {};
}

HostRecall::~HostRecall() {
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(cancel_.get(), &one, sizeof one);
    if (thread_.joinable()) thread_.join();
}

void HostRecall::Call(std::vector<NamedHost> known, std::vector<std::string> members) {
    const std::lock_guard lock(mutex_);
    known_ = std::move(known);
    members_ = std::move(members);
    resting_.clear();
    calls_ = true;
}

void HostRecall::Pause() {
    const std::lock_guard lock(mutex_);
    calls_ = false;
}

void HostRecall::Rest(const std::vector<std::string>& hosts) {
    const std::lock_guard lock(mutex_);
    resting_.insert(hosts.begin(), hosts.end());
    rest_ = Deadline::In(kRestMs);
}

// Returns false if the thread has to end.
bool HostRecall::Nap(int64_t ms) const {
    pollfd entry{cancel_.get(), POLLIN, 0};
    return ::poll(&entry, 1, static_cast<int>(ms)) <= 0;
}

void HostRecall::Serve() {
    while (Nap(kTurnMs)) {
        for (const NamedHost& host : Absent()) Dial(host);
        if (EndRest()) {
            for (const NamedHost& host : Absent()) Dial(host);
        }
        gathers_ = false;
    }
}

// Returns whether hosts rested until now.
bool HostRecall::EndRest() {
    const std::lock_guard lock(mutex_);
    if (resting_.empty() || (!gathers_ && !rest_.expired())) return false;
    resting_.clear();
    return true;
}

std::vector<NamedHost> HostRecall::Absent() const {
    const std::vector<std::string> others =
        options_.new_hosts ? options_.new_hosts() : std::vector<std::string>();
    const std::lock_guard lock(mutex_);
    if (!calls_) return {};
    std::vector<NamedHost> absent = known_;
    for (const std::string& name : others) {
        const auto is_it = [&](const NamedHost& host) { return host.called == name; };
        if (std::ranges::none_of(absent, is_it)) absent.push_back({name, name, ""});
    }
    std::erase_if(absent, [&](const NamedHost& host) {
        return std::ranges::count(members_, host.name) > 0 || resting_.contains(host.name);
    });
    return absent;
}

// Needs the lock.
bool HostRecall::ShouldDial(const NamedHost& host) const {
    return calls_ && std::ranges::count(members_, host.name) == 0;
}

void HostRecall::Dial(const NamedHost& host) {
    if (const auto at = refused_.find(host.name); at != refused_.end()) {
        if (!at->second.until.expired()) return;
    }
    const LineTalk line{
        [this] { return PlaceRequest{.ticket = options_.ticket, .returns = true}; }};
    for (const std::string& way : options_.ways(host)) {
        if (!waiting_.MayAdd(host.name, way)) return;
        auto dialled = DialWorker(way, options_.key, options_.timeout_ms, Deadline::In(kCallMs), {},
                                  cancel_.get(), line);
        if (!dialled.ok()) {
            Explain(host, dialled.error());
            continue;
        }
        refused_.erase(host.name);
        const std::lock_guard lock(mutex_);
        if (!ShouldDial(host)) return;
        Arrival arrival;
        arrival.fd = std::move(dialled->fd);
        arrival.session = dialled->session;
        arrival.host = host.name;
        arrival.from = way;
        Log(LogLevel::kInfo, "{} answers at {} and may join", host.name, way);
        gathers_ = true;
        return waiting_.Add(std::move(arrival));
    }
}

// Logs why a host cannot join (a wrong key, other flags), but not that it is down.
void HostRecall::Explain(const NamedHost& host, const Error& error) {
    if (error.code != ErrorCode::kDenied && error.code != ErrorCode::kUsage) return;
    Refusal& refusal = refused_[host.name];
    refusal.until = Deadline::In(kRefusedMs);
    if (std::exchange(refusal.told, error.message) == error.message) return;
    Log(LogLevel::kWarning, "{} cannot join: {}", host.name, error.message);
}

}  // namespace weft::cluster
