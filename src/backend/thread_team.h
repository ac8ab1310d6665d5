// A team of pinned threads that runs one function in lock-step, with barriers inside it.
//
// The thread that calls Run() is part 0. Run() wakes the other threads once, so a step costs one
// wake-up, plus at most one barrier per op. Threads spin briefly, then yield, then sleep on a
// futex: an idle team draws no power, and more threads than cores still make progress.
// Thread: one caller of Run() at a time. (The team is smaller if the system refuses threads.)
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <span>
#include <thread>
#include <vector>

#include "hw/cpu.h"

namespace weft::backend {

struct TeamOptions {
    int threads = 1;
    // Thread i is pinned to cores[i]. If there are more cores than threads, each thread may use all
    // cores: otherwise several programs with few threads each would share the first cores and leave
    // the others idle. An empty list means that threads are not pinned.
    std::vector<int> cores;
    bool cores_shared = false;  // other processes use these cores: do not spin for long
    bool rare = false;          // runs are far apart: sleep between them without spinning
};

class ThreadTeam {
  public:
    explicit ThreadTeam(const TeamOptions& options);
    ~ThreadTeam();
    ThreadTeam(const ThreadTeam&) = delete;
    ThreadTeam& operator=(const ThreadTeam&) = delete;

    int size() const { return size_; }
    using Function = void (*)(void* context, int part);
    // Calls function(context, part) on every thread, and returns when all calls have returned.
    void Run(Function function, void* context);
    // Calls run(part) likewise.
    template <typename F>
    void Run(F run) {
        Run([](void* context, int part) { (*static_cast<F*>(context))(part); }, &run);
    }
    // Called within a running function. Returns once every part has called it. kSleep: a part may
    // come late, and other threads need the cores meanwhile.
    enum class Wait { kPoll, kSleep };
    void Barrier(Wait wait = Wait::kPoll);

  private:
    void Work(int part, std::span<const int> cores);
    // Time that a thread polls, and then polls and yields, before it sleeps.
    struct Patience {
        int64_t spin_ns, yield_ns;
    };
    // Waits until `word` is no longer `old`.
    static void AwaitChange(std::atomic<uint32_t>& word, uint32_t old, std::atomic<int>& sleepers,
                            const Patience& patience);
    static void Announce(std::atomic<uint32_t>& word, std::atomic<int>& sleepers);

    int size_;
    Patience at_barrier_, between_runs_;
    Function function_ = nullptr;
    void* context_ = nullptr;
    // The following variables are on separate cache lines, because one thread writes each while
    // others poll it.
    alignas(64) std::atomic<uint32_t> start_{0};
    alignas(64) std::atomic<int> start_sleepers_{0};
    alignas(64) std::atomic<int> arrived_{0};
    alignas(64) std::atomic<uint32_t> phase_{0};
    alignas(64) std::atomic<int> phase_sleepers_{0};
    std::atomic<bool> stop_{false};
    std::vector<std::thread> threads_;
    std::optional<PinnedThread> owner_;  // the thread that created the team; it is part 0
};

}  // namespace weft::backend
