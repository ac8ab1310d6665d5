#include "net/wait_policy.h"

#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <span>
#include <vector>

#include "net/share.h"

namespace weft::net {
namespace {

// Longer than any imbalance between two ranks in the same op, short relative to a time slice.
constexpr int64_t kSpinNs = 20'000;
// The time of a decode step's longest op. In a longer wait, the time to wake up (about 50 us) does
// not matter.
constexpr int64_t kYieldNs = 2'000'000;
// Time to yield if other threads need the core: each of a few ranks on the core gets a turn.
constexpr int64_t kCrowdedYieldNs = 100'000;
// During a yield of at least this time, another thread ran.
constexpr int64_t kTakenNs = 20'000;
// The same while the core counts as shared: the other threads then yield early.
constexpr int64_t kSharedNs = 1'000;
// During a yield of at least this time, a thread with work ran: this thread then sleeps until data
// arrive.
constexpr int64_t kBusyNs = 200'000;
constexpr int64_t kCrowdedForNs = 100'000'000;
constexpr int64_t kLongestSleepMs = 20;
// Period of reports to the monitor about a long wait.
constexpr int64_t kTellNs = 50'000'000;
// Longest time between two checks that counts as waiting: a longer pause (a stopped process, an
// overloaded machine) does not mean that the peer is silent.
constexpr int64_t kMostLookNs = 200'000'000;
// Checks after the peer's end, for data that it sent before.
constexpr int kLooksAfterEnd = 2;

}  // namespace

void BaseLink::SetEnd(LinkEnd end, std::string reason) {
    const std::scoped_lock lock(ending_);
    if (this->end() != LinkEnd::kOpen) return;
    end_ns_ = NowNs();
    reason_ = std::move(reason);
    end_.store(end, std::memory_order_release);
}

void ShareAmongThreads(Fabric& fabric) {
    auto* progress = dynamic_cast<Progress*>(fabric.state.get());
    if (progress != nullptr) progress->SetShared();
}

void Progress::Add(BaseLink* link, Data data) {
    links_.push_back(link);
    if (data == Data::kSocket) sockets_.push_back(link);
    if (data != Data::kMemory) wakers_.push_back(link);
}

void Progress::ReceiveAll() {
    for (BaseLink* link : sockets_) link->Receive();
}

void Progress::SetShared() {
    wake_ = Fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    shared_.store(true, std::memory_order_relaxed);
}

void Progress::OnReceived() {
    if (!shared()) return;
    received_.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) == 0) return;
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t put = ::write(wake_.get(), &one, sizeof one);
}

void Progress::SleepOnSockets(int writable, int64_t ms, uint64_t seen) {
    std::array<pollfd, 256> few;
    const size_t links = wakers_.size(), count = links + 1;
    std::vector<pollfd> many(count > few.size() ? count : 0);
    const auto fds = many.empty() ? std::span(few).first(count) : std::span(many);
    for (size_t i = 0; i < links; ++i) {
        const int fd = wakers_[i]->poll_fd();  // poll(2) skips negative ones
        const short events = fd >= 0 && fd == writable ? POLLIN | POLLOUT : POLLIN;
        fds[i] = {fd, events, 0};
    }
    fds[links] = {wake_.get(), POLLIN, 0};
    const bool several = shared();
    if (several) {
        const std::lock_guard lock(sleeping_);
        sleepers_.fetch_add(1, std::memory_order_seq_cst);
    }
    ::poll(fds.data(), fds.size(), received() != seen ? 0 : static_cast<int>(ms));
    if (several) {
        // The last sleeper resets the event: all others have seen it.
        const std::lock_guard lock(sleeping_);
        uint64_t wakes;
        if (sleepers_.fetch_sub(1, std::memory_order_seq_cst) == 1) {
            [[maybe_unused]] const ssize_t got = ::read(wake_.get(), &wakes, sizeof wakes);
        }
    }
    // A waker's byte must be read, or it ends every later sleep at once.
    for (size_t i = 0; i < links; ++i) {
        if (fds[i].revents != 0) wakers_[i]->Receive();
    }
}

const BaseLink* Progress::FirstDead() {
    const BaseLink* first = nullptr;
    for (BaseLink* link : links_) {
        link->Receive();
        if (link->end() == LinkEnd::kOpen || link->end() == LinkEnd::kLeft) continue;
        if (first == nullptr || link->end_ns() < first->end_ns()) first = link;
    }
    return first;
}

void Progress::SetCrowded(int64_t now_ns) {
    crowded_until_ns_.store(now_ns + kCrowdedForNs, std::memory_order_relaxed);
    crowded_.store(true, std::memory_order_relaxed);
}

Waiter::Waiter(Progress& progress, BaseLink& link, const OpTag& tag, const Deadline& deadline,
               int64_t awake_ns)
    : progress_(progress),
      link_(link),
      tag_(tag),
      deadline_(deadline),
      begin_ns_(NowNs()),
      awake_ns_(awake_ns) {
    progress_.ForgetCrowd(begin_ns_);
    const bool crowded = progress_.crowded();
    if (crowded) stage_ = Stage::kYield;
    if (tag.aside) stage_ = Stage::kSleep;
    yield_ns_ = begin_ns_ + (crowded ? 0 : kSpinNs);
    asleep_ns_ = begin_ns_ + (crowded ? std::clamp(awake_ns, kCrowdedYieldNs, kYieldNs) : kYieldNs);
    if (tag.aside) asleep_ns_ = begin_ns_;
}

Waiter::~Waiter() {
    if (reported_ && progress_.monitor() != nullptr) progress_.monitor()->OnLongWait(-1, tag_);
}

Status Waiter::Check() {
    PeerMonitor* monitor = progress_.monitor();
    if (monitor != nullptr && monitor->Failed()) return monitor->FailureDuring(tag_);
    if (link_.end() != LinkEnd::kOpen && ++looks_after_end_ >= kLooksAfterEnd) return Ended();
    const int64_t now = NowNs();
    if (now >= deadline_.at_ns()) WEFT_TRY(Expired());
    if (now >= asleep_ns_) {
        // The longer the wait, the longer the sleep: a tenth of the time waited so far.
        stage_ = Stage::kSleep;
        const bool is_long = now - begin_ns_ >= (tag_.aside ? kYieldNs : 0);
        if (is_long && monitor != nullptr) Tell(*monitor, now);
        sleep_ms_ = std::clamp<int64_t>((now - begin_ns_) / 10'000'000, 1, kLongestSleepMs);
        sleep_ms_ = std::clamp<int64_t>((deadline_.at_ns() - now) / 1'000'000 + 1, 1, sleep_ms_);
    } else if (now >= yield_ns_) {
        stage_ = Stage::kYield;
    }
    return {};
}

void Waiter::Tell(PeerMonitor& monitor, int64_t now_ns) {
    const uint64_t moved_bytes = link_.moved_bytes();
    if (!reported_) {
        monitor.OnLongWait(link_.peer().rank, tag_);
        reported_ = true;
        told_ns_ = now_ns;
    } else if (moved_bytes != moved_bytes_) {
        still_ns_ = 0;
        moved_ns_ = now_ns;
    } else {
        still_ns_ += std::min(now_ns - looked_ns_, kMostLookNs);
    }
    moved_bytes_ = moved_bytes;
    looked_ns_ = now_ns;
    if (now_ns - told_ns_ < kTellNs) return;
    monitor.OnStillWaiting(still_ns_ / 1'000'000);
    told_ns_ = now_ns;
}

void Waiter::Yield() {
    const int64_t before = NowNs();
    sched_yield();
    const int64_t after = NowNs();
    if (after - before < (progress_.crowded() ? kSharedNs : kTakenNs)) return;
    // If no other thread ran, an interrupt or a pause of the virtual machine made the yield long.
    rusage usage{};
    ::getrusage(RUSAGE_THREAD, &usage);
    if (!progress_.SwitchesChanged(usage.ru_nivcsw)) return;
    progress_.SetCrowded(after);
    if (after - before >= kBusyNs) {
        asleep_ns_ = std::min(asleep_ns_, std::max(after, begin_ns_ + awake_ns_));
    }
}

// The peer ended. The monitor, or another link of this rank, may have the rank that ended first.
Error Waiter::Ended() {
    if (progress_.monitor() != nullptr) {
        const Deadline verdict = Deadline::In(deadline_.length_ms());
        Error error = progress_.monitor()->OnTimeout(link_.peer().rank, tag_, verdict);
        if (link_.end() == LinkEnd::kBroke) error.message += " The link: " + link_.reason() + ".";
        return error;
    }
    const BaseLink* first = progress_.FirstDead();
    const BaseLink& gone = first != nullptr ? *first : link_;
    return MakeError(ErrorCode::kPeerLost,
                     "{}: {} before {} was done, {} ms into waiting for rank {}. Is the process "
                     "alive? Its own last lines say why it ended.",
                     gone.peer().Text(), gone.reason(), tag_.Text(),
                     (NowNs() - begin_ns_) / 1'000'000, link_.peer().rank);
}

// The deadline has passed: extends it if some rank is slow, or names the silent one.
Status Waiter::Expired() {
    PeerMonitor* monitor = progress_.monitor();
    const int64_t length_ms = deadline_.length_ms();
    if (monitor == nullptr) {
        return MakeError(ErrorCode::kTimeout,
                         "{}: no data for {} within {} ms (waited {} ms). Is the process alive, "
                         "and the network between the hosts up?",
                         link_.peer().Text(), tag_.Text(), length_ms,
                         (NowNs() - begin_ns_) / 1'000'000);
    }
    int64_t quiet_ms = monitor->StillMs();
    if (quiet_ms < 0) quiet_ms = monitor->SilentMs(link_.peer().rank);
    if (moved_ns_ != 0) {  // slow, but data arrive
        const int64_t moved_ms = (NowNs() - moved_ns_) / 1'000'000;
        quiet_ms = quiet_ms < 0 ? moved_ms : std::min(quiet_ms, moved_ms);
    }
    if (quiet_ms < 0 || quiet_ms >= length_ms) {
        return monitor->OnTimeout(link_.peer().rank, tag_, deadline_);
    }
    deadline_ = Deadline::From(NowNs() - quiet_ms * 1'000'000, length_ms);
    return {};
}

}  // namespace weft::net
