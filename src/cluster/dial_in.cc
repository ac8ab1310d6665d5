#include "cluster/dial_in.h"

#include <fmt/ranges.h>
#include <poll.h>
#include <pthread.h>

#include <algorithm>
#include <csignal>

#include "base/log.h"
#include "cluster/cluster_impl.h"
#include "cluster/gather.h"

namespace weft::cluster {
namespace {

constexpr size_t kMostWaiting = 64;  // beyond the places of a job
constexpr int64_t kDoorTurnMs = 100;
constexpr int64_t kNextMs = 20;

// Ended, or it speaks before it is spoken to.
bool IsOver(const Arrival& arrival) {
    pollfd entry{arrival.fd.get(), POLLIN | POLLRDHUP, 0};
    return ::poll(&entry, 1, 0) != 0;
}

// How a worker is told where to dial; a host of several networks has several names.
std::string JoinWords(uint16_t port) {
    const std::vector<std::string> own = OwnAddresses();
    const Address address{own.empty() ? SystemHostName() : own[0], port};
    return fmt::format("weft worker --join {} --key-file FILE", address.Text());
}

}  // namespace

Result<std::unique_ptr<DialIn>> DialIn::Open(const std::string& listen, Bytes key,
                                             int64_t timeout_ms, int most_rank) {
    Address address{"", kWorkerPort};
    if (!listen.empty()) {
        WEFT_ASSIGN(address, ParseAddress(listen));
    }
    auto listener = net::ListenTcp(address.host, address.port);
    if (!listener.ok()) {
        return MakeError(listener.error().code,
                         "{}, where workers would dial in. Another port: --listen 0.0.0.0:7001",
                         listener.error().message);
    }
    WEFT_ASSIGN(const uint16_t port, net::BoundPort(listener->get()));
    return std::unique_ptr<DialIn>(
        new DialIn(std::move(*listener), port, std::move(key), timeout_ms, most_rank));
}

DialIn::DialIn(Fd listener, uint16_t port, Bytes key, int64_t timeout_ms, int most_rank)
    : listener_(std::move(listener)),
      port_(port),
      most_rank_(most_rank),
      door_(listener_.get(), most_rank, std::move(key), timeout_ms,
            [this](const DialHello& hello) { return Judge(hello); }) {
    // Signals are the main thread's business.
    sigset_t all, before;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before);
    thread_ = std::thread([this] { Serve(); });
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::pthread_setname_np(thread_.native_handle(), "weft-door");
}

DialIn::~DialIn() {
    ends_.store(true);
    thread_.join();
}

void DialIn::Serve() {
    while (!ends_.load()) {
        auto arrivals = door_.Turn(kDoorTurnMs);
        const std::lock_guard lock(mutex_);
        if (!arrivals.ok()) {
            Log(LogLevel::kError, "no worker can dial in any more: {}", arrivals.error().message);
            return;
        }
        last_refusal_ = door_.last_refusal();
        DropTheGone();
        for (Arrival& arrival : *arrivals) {
            SetKeepAlive(arrival.fd.get());
            waiting_.push_back(std::move(arrival));
        }
    }
}

std::optional<std::string> DialIn::Judge(const DialHello& hello) const {
    if (hello.size != 0) {
        return fmt::format("it is rank {} of {}, of another job", hello.rank, hello.size);
    }
    if (hello.rank < 0 || hello.rank > most_rank_) {
        return fmt::format("it asks to be rank {}; workers are ranks 1 to {}", hello.rank,
                           most_rank_);
    }
    const std::lock_guard lock(mutex_);
    const bool full = waiting_.size() >= kMostWaiting + static_cast<size_t>(most_rank_);
    return full ? std::optional(std::string("too many workers wait already")) : std::nullopt;
}

void DialIn::DropTheGone() {
    std::erase_if(waiting_, IsOver);
}

std::optional<Arrival> DialIn::Next(const std::vector<int>& places) {
    const std::lock_guard lock(mutex_);
    DropTheGone();
    for (auto at = waiting_.begin(); at != waiting_.end() && !places.empty(); ++at) {
        const bool fits = at->rank == 0 || std::ranges::count(places, at->rank) > 0;
        if (!fits) continue;
        Arrival arrival = std::move(*at);
        waiting_.erase(at);
        if (arrival.rank == 0) arrival.rank = places[0];
        return arrival;
    }
    return std::nullopt;
}

std::string DialIn::LastRefusal() const {
    const std::lock_guard lock(mutex_);
    return last_refusal_;
}

Status GatherWorkers(DialIn& door, int size, Company& company, const Gathering& gathering) {
    Roll roll(size, company, gathering);
    const auto here = [&] { return static_cast<size_t>(size) - 1 - roll.Missing().size(); };
    Log(LogLevel::kInfo, "workers dial in at port {}: {}. Waiting for {}", door.port(),
        JoinWords(door.port()), size - 1);
    while (true) {
        WEFT_ASSIGN(const bool complete, roll.Complete());
        if (complete) return {};
        if (roll.expired()) {
            const std::string refusal = door.LastRefusal();
            return MakeError(ErrorCode::kTimeout,
                             "{} of {} workers dialled in within {} (--wait). On each of the "
                             "others: {}{}",
                             here(), size - 1, SecondsText(gathering.deadline.length_ms()),
                             JoinWords(door.port()),
                             refusal.empty() ? "" : ". Turned away: " + refusal);
        }
        while (auto arrival = door.Next(roll.Missing())) {
            const std::string who =
                fmt::format("{} ({})", arrival->host, PeerText(arrival->fd.get()));
            const int rank = arrival->rank;
            roll.Take(std::move(*arrival));
            Log(LogLevel::kInfo, "{} of {} workers are here: {} is rank {}", here(), size - 1, who,
                rank);
        }
        roll.Tell([&] { return fmt::format("{} of {} workers are here", here(), size - 1); });
        std::this_thread::sleep_for(std::chrono::milliseconds(kNextMs));
    }
}

}  // namespace weft::cluster
