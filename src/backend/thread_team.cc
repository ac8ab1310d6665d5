#include "backend/thread_team.h"

#include "base/deadline.h"
#include "base/log.h"
#include "base/start_thread.h"
#include "hw/cpu.h"
#include "net/wait_policy.h"

namespace weft::backend {
namespace {

// Time that a thread polls before it yields and then sleeps. Within a step, the wait for the next
// barrier is at most as long as the wait for a peer's data. Decode steps are tens of microseconds
// apart.
constexpr int64_t kSpinNs = 200'000;
constexpr int64_t kSharedSpinNs = 5'000;
constexpr int64_t kYieldNs = 500'000;
// With Wait::kSleep, a part that is not late after all wakes nobody: a sleeper wakes some 50 us
// late.
constexpr int64_t kSleepSpinNs = 50'000;
constexpr int kPollsPerClockRead = 64;

}  // namespace

ThreadTeam::ThreadTeam(const TeamOptions& options)
    : size_(options.threads),
      at_barrier_{options.cores_shared ? kSharedSpinNs : kSpinNs, kYieldNs},
      between_runs_(options.rare ? Patience{0, 0} : at_barrier_) {
    const auto cores = [&](int part) -> std::vector<int> {
        if (std::ssize(options.cores) > options.threads) return options.cores;
        const size_t i = static_cast<size_t>(part);
        return i < options.cores.size() ? std::vector{options.cores[i]} : std::vector<int>{};
    };
    if (!options.cores.empty()) owner_.emplace(cores(0));
    for (int part = 1; part < options.threads; ++part) {
        std::thread thread;
        const Status started =
            StartThread(thread, [this, part, own = cores(part)] { Work(part, own); });
        if (!started.ok()) {
            size_ = part;
            Log(LogLevel::kWarning, "this rank computes with {} of {} threads: {}", size_,
                options.threads, started.error().message);
            break;
        }
        threads_.push_back(std::move(thread));
    }
}

ThreadTeam::~ThreadTeam() {
    stop_ = true;
    Announce(start_, start_sleepers_);
    for (std::thread& thread : threads_) thread.join();
}

void ThreadTeam::Run(Function function, void* context) {
    if (size_ == 1) return function(context, 0);
    function_ = function;
    context_ = context;
    Announce(start_, start_sleepers_);
    function(context, 0);
    Barrier();
}

void ThreadTeam::Barrier(Wait wait) {
    if (size_ == 1) return;
    const uint32_t phase = phase_.load(std::memory_order_relaxed);
    if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == size_) {
        arrived_.store(0, std::memory_order_relaxed);
        Announce(phase_, phase_sleepers_);
        return;
    }
    constexpr Patience kBrief{kSleepSpinNs, 0};
    AwaitChange(phase_, phase, phase_sleepers_, wait == Wait::kPoll ? at_barrier_ : kBrief);
}

void ThreadTeam::Work(int part, std::span<const int> cores) {
    RunThisThreadOn(cores);
    uint32_t seen = 0;
    for (;;) {
        AwaitChange(start_, seen, start_sleepers_, between_runs_);
        seen = start_.load(std::memory_order_acquire);
        if (stop_) return;
        function_(context_, part);
        Barrier();
    }
}

void ThreadTeam::AwaitChange(std::atomic<uint32_t>& word, uint32_t old, std::atomic<int>& sleepers,
                             const Patience& patience) {
    for (int i = 0; i < kPollsPerClockRead; ++i) {
        if (word.load(std::memory_order_acquire) != old) return;
        net::SpinPause();
    }
    const int64_t begin = NowNs();
    const int64_t most_ns = patience.spin_ns + patience.yield_ns;
    for (int64_t now = begin; now - begin < most_ns; now = NowNs()) {
        for (int i = 0; i < kPollsPerClockRead; ++i) {
            if (word.load(std::memory_order_acquire) != old) return;
            net::SpinPause();
        }
        if (now - begin > patience.spin_ns) ::sched_yield();
    }
    // The sleeper registers before it checks again (inside wait), and the writer checks for
    // sleepers after its write. Both are sequentially consistent, so no wake-up is lost.
    sleepers.fetch_add(1, std::memory_order_seq_cst);
    while (word.load(std::memory_order_seq_cst) == old) word.wait(old, std::memory_order_acquire);
    sleepers.fetch_sub(1, std::memory_order_relaxed);
}

void ThreadTeam::Announce(std::atomic<uint32_t>& word, std::atomic<int>& sleepers) {
    word.fetch_add(1, std::memory_order_seq_cst);
    if (sleepers.load(std::memory_order_seq_cst) > 0) word.notify_all();
}

}  // namespace weft::backend
