#include "base/descriptor_writer.h"

#include <poll.h>
#include <pthread.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "base/start_thread.h"

namespace weft {
namespace {

// The process's cores before any of its threads was pinned.
struct Cores {
    Cores() : known(::sched_getaffinity(0, sizeof set, &set) == 0) {}
    cpu_set_t set{};
    bool known;
};
const Cores g_cores;

// The kernel sends SIGPIPE to the thread whose write failed: with the default action the process
// then ends, as a program without threads would.
void TakeBrokenPipes() {
    sigset_t pipe;
    ::sigemptyset(&pipe);
    ::sigaddset(&pipe, SIGPIPE);
    ::pthread_sigmask(SIG_UNBLOCK, &pipe, nullptr);
}

}  // namespace

// The queue of one process. It is never freed, since threads log until the process ends.
struct DescriptorWriter::State {
    explicit State(State* of_parent) : parent(of_parent) {}
    State* const parent;
    const pid_t pid = ::getpid();
    std::mutex mutex;
    std::condition_variable queued, wrote;
    std::deque<std::string> texts;
    size_t bytes = 0;  // of all queued texts, with the one being written
    uint64_t posted = 0, written = 0;
    uint64_t dropped = 0;  // since the last notice
    bool started = false;
    bool stalled = false;

    void Append(std::string_view text) {
        if (text.empty()) return;
        texts.emplace_back(text);
        bytes += text.size();
        ++posted;
        queued.notify_one();
    }
};

DescriptorWriter::State& DescriptorWriter::Mine() {
    State* state = state_.load();
    while (state == nullptr || state->pid != ::getpid()) {
        State* const fresh = new State(state);
        if (state_.compare_exchange_strong(state, fresh)) return *fresh;
        delete fresh;
    }
    return *state;
}

uint64_t DescriptorWriter::Queue(State& state, std::string_view text, Priority priority) {
    size_t room = state.dropped > 0 ? kMostBytes / 2 : kMostBytes;  // one notice for many drops
    if (priority == Priority::kUrgent) room = kMostBytes + kReserveBytes;
    // (If nothing else is queued, a text larger than the limit is accepted.)
    if (state.bytes > 0 && state.bytes + text.size() > room) {
        ++state.dropped;
        return 0;
    }
    if (state.parent != nullptr) {  // sanitizers allow no new threads after such a fork
        Put(text);
        return state.posted;
    }
    if (!state.started) {
        std::thread writer;
        const ThreadOptions options{.wait_ms = 0, .signals = false};
        if (!StartThread(
                 writer, [this, &state] { Run(state); }, options)
                 .ok()) {
            Put(text);
            return state.posted;
        }
        writer.detach();
        state.started = true;
    }
    ReportDropped(state);
    state.Append(text);
    return state.posted;
}

void DescriptorWriter::ReportDropped(State& state) {
    if (const uint64_t count = std::exchange(state.dropped, 0); count > 0) {
        state.Append(notice_(count));
    }
}

void DescriptorWriter::Post(std::string_view text, Priority priority) {
    State& state = Mine();
    const std::lock_guard lock(state.mutex);
    Queue(state, text, priority);
}

void DescriptorWriter::Write(std::string_view text, Priority priority) {
    State& state = Mine();
    std::unique_lock lock(state.mutex);
    const uint64_t number = Queue(state, text, priority);
    if (state.stalled) return;
    const bool out = state.wrote.wait_for(lock, std::chrono::milliseconds(kPatienceMs),
                                          [&] { return state.written >= number; });
    if (!out) state.stalled = true;
}

bool DescriptorWriter::Flush(int64_t stall_ms) {
    State& state = Mine();
    std::unique_lock lock(state.mutex);
    const uint64_t last = state.posted;
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(10 * stall_ms);
    while (state.written < last) {
        const uint64_t before = state.written;
        const auto until =
            std::min(end, std::chrono::steady_clock::now() + std::chrono::milliseconds(stall_ms));
        if (!state.wrote.wait_until(lock, until, [&] { return state.written > before; })) {
            return false;
        }
    }
    return true;
}

void DescriptorWriter::Run(State& state) {
    TakeBrokenPipes();
    if (g_cores.known) ::pthread_setaffinity_np(::pthread_self(), sizeof g_cores.set, &g_cores.set);
    std::unique_lock lock(state.mutex);
    for (;;) {
        state.queued.wait(lock, [&] { return !state.texts.empty(); });
        const std::string text = std::move(state.texts.front());
        state.texts.pop_front();
        lock.unlock();
        Put(text);
        lock.lock();
        state.bytes -= text.size();
        ++state.written;
        if (state.texts.empty()) {
            state.stalled = false;
            ReportDropped(state);
        }
        state.wrote.notify_all();
    }
}

// Also waits for a descriptor that another process made non-blocking.
void DescriptorWriter::Put(std::string_view text) {
    while (!text.empty()) {
        const ssize_t put = ::write(fd_, text.data(), text.size());
        if (put >= 0) {
            text.remove_prefix(static_cast<size_t>(put));
        } else if (errno == EAGAIN) {
            pollfd entry{fd_, POLLOUT, 0};
            ::poll(&entry, 1, -1);
        } else if (errno != EINTR) {
            int none = 0;
            error_.compare_exchange_strong(none, errno);
            return;
        }
    }
}

}  // namespace weft
