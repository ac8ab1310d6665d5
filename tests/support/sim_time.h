// Virtual time: events in order, and tasks (the ranks' threads) that run between them on one real
// thread, each on its own stack. Results depend only on the seed.
//
// While a Timeline lives, NowNs(), and so every Deadline, reads its clock. A task runs in zero time
// until it sleeps; then the next event advances the clock.
#pragma once

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif
#if defined(__SANITIZE_THREAD__)
#include <sanitizer/tsan_interface.h>
#endif
#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define WEFT_SIM_OWN_SWITCH 1
#else
#define WEFT_SIM_OWN_SWITCH 0
#endif

namespace weft::test {

// SplitMix64: a few instructions per number, and all seeds are equally good.
class SimRandom {
  public:
    explicit SimRandom(uint64_t seed) : state_(seed) {}
    uint64_t Next() {
        uint64_t z = state_ += 0x9e3779b97f4a7c15;
        z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
        z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
        return z ^ (z >> 31);
    }
    // Same as `count` calls of Next.
    void Skip(uint64_t count) { state_ += count * 0x9e3779b97f4a7c15; }
    // A number from 0 to below - 1.
    uint64_t Below(uint64_t below) { return Next() % below; }
    int64_t Between(int64_t least, int64_t most) {
        return least + static_cast<int64_t>(Below(static_cast<uint64_t>(most - least) + 1));
    }
    bool OneIn(uint64_t n) { return Below(n) == 0; }

  private:
    uint64_t state_;
};

class SimTarget {
  public:
    virtual ~SimTarget() = default;
    virtual void OnEvent(uint64_t what) = 0;
};

class Timeline {
  public:
    Timeline() : before_(std::exchange(virtual_clock_ns, &now_ns_)) {}
    ~Timeline() { virtual_clock_ns = before_; }
    Timeline(const Timeline&) = delete;
    Timeline& operator=(const Timeline&) = delete;

    int64_t now() const { return now_ns_; }
    void At(int64_t ns, SimTarget& target, uint64_t what) {
        heap_.push_back({std::max(ns, now_ns_), order_++, &target, what});
        std::push_heap(heap_.begin(), heap_.end());
    }
    // Time that the running task uses.
    void Pass(int64_t ns) { now_ns_ += ns; }
    // Runs the next event; false: none.
    bool Step() {
        if (heap_.empty()) return false;
        std::pop_heap(heap_.begin(), heap_.end());
        const Event event = heap_.back();
        heap_.pop_back();
        now_ns_ = std::max(now_ns_, event.at_ns);
        event.target->OnEvent(event.what);
        return true;
    }
    uint64_t events() const { return order_; }

  private:
    struct Event {
        int64_t at_ns;
        uint64_t order;
        SimTarget* target;
        uint64_t what;
        // Orders the heap so that its top is the first event.
        bool operator<(const Event& other) const {
            return at_ns != other.at_ns ? at_ns > other.at_ns : order > other.order;
        }
    };

    int64_t now_ns_ = 1'000'000'000;
    uint64_t order_ = 0;
    std::vector<Event> heap_;
    const int64_t* before_;
};

// A stack that can be left and re-entered. Only for SimTask.
class Coroutine {
  public:
    Coroutine() {
        void* data = ::mmap(nullptr, kStackBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
        WEFT_CHECK(data != MAP_FAILED);
        stack_ = static_cast<std::byte*>(data);
        // A guard page: an overflow must not write into another stack.
        WEFT_CHECK(::mprotect(stack_, kGuardBytes, PROT_NONE) == 0);
#if defined(__SANITIZE_THREAD__)
        tsan_ = __tsan_create_fiber(0);
#endif
    }
    ~Coroutine() {
#if defined(__SANITIZE_THREAD__)
        __tsan_destroy_fiber(tsan_);
#endif
        ::munmap(stack_, kStackBytes);
    }
    Coroutine(const Coroutine&) = delete;
    Coroutine& operator=(const Coroutine&) = delete;

    // The first Enter calls `body`, which must end with a call of Leave and never return.
    void Prepare(std::function<void()> body) {
        body_ = std::move(body);
#if WEFT_SIM_OWN_SWITCH
        auto* top = reinterpret_cast<uint64_t*>(stack_ + kStackBytes);
        *--top = 0;  // return address of Begin
        *--top = reinterpret_cast<uint64_t>(&Begin);
        for (int saved = 0; saved < 6; saved++) *--top = 0;
        inside_ = top;
#else
        ::getcontext(&inside_);
        inside_.uc_stack.ss_sp = stack_ + kGuardBytes;
        inside_.uc_stack.ss_size = kStackBytes - kGuardBytes;
        inside_.uc_link = nullptr;
        ::makecontext(&inside_, &Begin, 0);
#endif
    }

    void Enter() {
        Entering() = this;
#if WEFT_SIM_OWN_SWITCH
        Switch(&outside_, inside_);
#else
        Announce(&outside_fake_, stack_ + kGuardBytes, kStackBytes - kGuardBytes);
#if defined(__SANITIZE_THREAD__)
        tsan_outside_ = __tsan_get_current_fiber();
        __tsan_switch_to_fiber(tsan_, 0);
#endif
        ::swapcontext(&outside_, &inside_);
        Arrive(outside_fake_, nullptr, nullptr);
#endif
    }
    void Leave() {
#if WEFT_SIM_OWN_SWITCH
        Switch(&inside_, outside_);
#else
        Announce(&inside_fake_, outside_bottom_, outside_bytes_);
#if defined(__SANITIZE_THREAD__)
        __tsan_switch_to_fiber(tsan_outside_, 0);
#endif
        ::swapcontext(&inside_, &outside_);
        Arrive(inside_fake_, &outside_bottom_, &outside_bytes_);
#endif
    }

  private:
    static constexpr size_t kStackBytes = size_t{2} << 20;
    static constexpr size_t kGuardBytes = 4096;

    static Coroutine*& Entering() {
        static thread_local Coroutine* entering = nullptr;
        return entering;
    }
    static void Begin() {
        Coroutine* self = Entering();
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(nullptr, &self->outside_bottom_, &self->outside_bytes_);
#endif
        self->body_();
        WEFT_CHECK(false);
    }

#if WEFT_SIM_OWN_SWITCH
    // Saves the callee-saved registers (System V ABI) and switches stacks.
    __attribute__((naked, noinline)) static void Switch(void** /*save*/, void* /*load*/) {
        asm volatile(
            "pushq %rbp\n\tpushq %rbx\n\tpushq %r12\n\tpushq %r13\n\tpushq %r14\n\tpushq %r15\n\t"
            "movq %rsp, (%rdi)\n\tmovq %rsi, %rsp\n\t"
            "popq %r15\n\tpopq %r14\n\tpopq %r13\n\tpopq %r12\n\tpopq %rbx\n\tpopq %rbp\n\tret");
    }
    void* inside_ = nullptr;
    void* outside_ = nullptr;
#else
    void Announce([[maybe_unused]] void** fake, [[maybe_unused]] const void* bottom,
                  [[maybe_unused]] size_t bytes) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_start_switch_fiber(fake, bottom, bytes);
#endif
    }
    static void Arrive([[maybe_unused]] void* fake, [[maybe_unused]] const void** bottom,
                       [[maybe_unused]] size_t* bytes) {
#if defined(__SANITIZE_ADDRESS__)
        __sanitizer_finish_switch_fiber(fake, bottom, bytes);
#endif
    }
    ucontext_t inside_;
    ucontext_t outside_;
    void* inside_fake_ = nullptr;
    void* outside_fake_ = nullptr;
    const void* outside_bottom_ = nullptr;
    size_t outside_bytes_ = 0;
#endif
#if defined(__SANITIZE_THREAD__)
    void* tsan_ = nullptr;
    void* tsan_outside_ = nullptr;
#endif
    std::byte* stack_;
    std::function<void()> body_;
};

// A thread in virtual time. It may be stopped (it does not run until Continue) or killed: every
// sleep then returns false at once, so objects on its stack are destroyed.
class SimTask final : public SimTarget {
  public:
    static constexpr int64_t kNever = std::numeric_limits<int64_t>::max();

    // Starts at the time of the first event after now.
    void Start(Timeline& timeline, std::function<void()> body) {
        timeline_ = &timeline;
        body_ = std::move(body);
        done_ = stopped_ = killed_ = waking_ = false;
        coroutine_.Prepare([this] {
            body_();
            done_ = true;
            for (;;) coroutine_.Leave();
        });
        asleep_ = true;
        Wake();
    }
    bool done() const { return done_; }
    bool killed() const { return killed_; }
    bool stopped() const { return stopped_; }

    // Called within the task. Sleeps until `ns` or Wake. False: killed.
    bool SleepUntil(int64_t ns) {
        if (killed_) return false;
        asleep_ = true;
        if (ns != kNever)
            timeline_->At(ns, *this, ++nap_);
        else
            ++nap_;
        coroutine_.Leave();
        return !killed_;
    }
    // Ends the task's sleep, whatever it waits for.
    void Wake() {
        if (!asleep_ || done_ || waking_) return;
        waking_ = true;
        timeline_->At(timeline_->now(), *this, nap_);
    }
    void Stop() { stopped_ = true; }
    void Continue() {
        stopped_ = false;
        Wake();
    }
    void Kill() {
        killed_ = true;
        stopped_ = false;
        Wake();
    }

    void OnEvent(uint64_t nap) override {
        if (done_ || !asleep_ || nap != nap_) return;
        waking_ = false;
        if (stopped_) return;
        asleep_ = false;
        ++nap_;
        coroutine_.Enter();
    }

  private:
    Timeline* timeline_ = nullptr;
    Coroutine coroutine_;
    std::function<void()> body_;
    uint64_t nap_ = 0;  // number of the sleep that an event ends
    bool asleep_ = false;
    bool waking_ = false;  // a Wake is pending
    bool done_ = false;
    bool stopped_ = false;
    bool killed_ = false;
};

}  // namespace weft::test
