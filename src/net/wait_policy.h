// How a rank waits for a peer: it spins, then yields, then sleeps, until the deadline ends the
// wait.
//
// The links of one Fabric share one Progress. It has the monitor and all links, because a wait on
// one link receives on the sockets of all links, and finds the peer that died first. A Waiter is
// one wait on one link:
//
//     Waiter waiter(progress, link, tag, deadline);
//     while (!arrived()) {
//         WEFT_TRY(waiter.Check());        // the monitor's failure, a dead peer, the deadline
//         switch (waiter.Next()) ...       // spin, yield or sleep
//     }
//
// Spinning is short, and yielding ends early if other threads need the core. So ranks make progress
// even if there are more ranks than cores.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/result.h"
#include "net/link.h"

namespace weft::net {

// Whether and how a link ended. kLeft: the peer destroyed its Fabric. kDied: the connection ended
// without a goodbye. kBroke: the link itself failed, or its data broke the protocol (see
// BaseLink::reason); the peer may be alive.
enum class LinkEnd { kOpen, kLeft, kDied, kBroke };

// The part of a link that Progress and the other links of the Fabric use.
class BaseLink : public Link {
  public:
    explicit BaseLink(PeerName peer) : peer_(std::move(peer)) {}
    const PeerName& peer() const final { return peer_; }
    LinkEnd end() const { return end_.load(std::memory_order_acquire); }
    int64_t end_ns() const { return end_ns_; }
    const std::string& reason() const { return reason_; }
    // Receives what has arrived, without blocking, and detects a lost peer.
    virtual void Receive() = 0;
    // Descriptor for poll(2); -1: none.
    virtual int poll_fd() const = 0;
    // Number of bytes received and sent, for links whose messages take long. While this number
    // grows, the peer is slow, but alive.
    virtual uint64_t moved_bytes() const { return 0; }

  protected:
    void SetEnd(LinkEnd end, std::string reason);

  private:
    PeerName peer_;
    std::mutex ending_;
    std::atomic<LinkEnd> end_ = LinkEnd::kOpen;  // set after end_ns_ and reason_
    int64_t end_ns_ = 0;
    std::string reason_;
};

class Progress final : public FabricState {
  public:
    void SetMonitor(PeerMonitor* monitor) override { monitor_ = monitor; }
    PeerMonitor* monitor() const override { return monitor_; }
    // How a link's data arrives: in memory only (kMemory); over its socket, which must be read
    // (kSocket); or in memory, with a socket that only wakes a sleeping thread (kMemoryAndWakes).
    enum class Data { kMemory, kSocket, kMemoryAndWakes };
    void Add(BaseLink* link, Data data);

    // Receives on every link whose data arrives over a socket.
    void ReceiveAll();
    bool has_sockets() const { return !sockets_.empty(); }
    // Whether several threads use the links (net/share.h).
    bool shared() const { return shared_.load(std::memory_order_relaxed); }
    void SetShared();
    // A link has read its socket: if threads share the links, wakes those that sleep, because the
    // data may be theirs.
    void OnReceived();
    // Number of calls of OnReceived so far.
    uint64_t received() const { return received_.load(std::memory_order_seq_cst); }
    // Sleeps until a socket of any link has data, or until the socket `writable` (-1: none) accepts
    // data, but at most `ms` milliseconds. seen: received() before the caller looked for its data;
    // if another thread has received since, does not sleep.
    void SleepOnSockets(int writable, int64_t ms, uint64_t seen);
    // Checks every link. Returns the link that ended first with kDied or kBroke; null: none.
    const BaseLink* FirstDead();

    // Whether other threads recently needed this core. If so, waits yield at once.
    bool crowded() const { return crowded_.load(std::memory_order_relaxed); }
    void SetCrowded(int64_t now_ns);
    // Whether this thread's count of context switches grew since the last call.
    bool SwitchesChanged(int64_t switches) {
        const int64_t before = switches_.exchange(switches, std::memory_order_relaxed);
        return before >= 0 && before != switches;
    }
    // Call it from time to time. Resets crowded() after some time, so that it is measured again.
    void ForgetCrowd(int64_t now_ns) {
        if (crowded() && now_ns >= crowded_until_ns_.load(std::memory_order_relaxed)) {
            crowded_.store(false, std::memory_order_relaxed);
        }
    }

  private:
    PeerMonitor* monitor_ = nullptr;
    std::vector<BaseLink*> links_;
    std::vector<BaseLink*> sockets_;  // links whose sockets must be read for data
    std::vector<BaseLink*> wakers_;   // links whose sockets only wake a sleeping thread
    std::atomic<bool> shared_ = false, crowded_ = false;
    std::atomic<uint64_t> received_ = 0;
    std::atomic<int> sleepers_ = 0;  // threads in SleepOnSockets, if the links are shared
    std::mutex sleeping_;            // guards changes of sleepers_
    Fd wake_;                        // readable: a thread has received since sleepers_ was 0
    std::atomic<int64_t> crowded_until_ns_ = 0;
    std::atomic<int64_t> switches_ = -1;  // -1: not read yet
};

enum class Stage { kSpin, kYield, kSleep };

class Waiter {
  public:
    // awake_ns: stay awake for this time even if other threads need the core, because sleep on this
    // link costs more than sleep on a socket. Limited to the normal time awake.
    Waiter(Progress& progress, BaseLink& link, const OpTag& tag, const Deadline& deadline,
           int64_t awake_ns = 0);
    ~Waiter();
    Waiter(const Waiter&) = delete;
    Waiter& operator=(const Waiter&) = delete;
    // Call it whenever the awaited data has not arrived yet. An error ends the wait.
    Status Check();
    Stage Next() const { return stage_; }
    // How long the wait has lasted.
    int64_t waited_ns() const { return NowNs() - begin_ns_; }
    // Longest sleep before the next Check.
    int64_t sleep_ms() const { return sleep_ms_; }
    // Yields the core, and detects whether another thread used it.
    void Yield();

  private:
    Error Ended();
    Status Expired();
    void Tell(PeerMonitor& monitor, int64_t now_ns);

    Progress& progress_;
    BaseLink& link_;
    const OpTag& tag_;
    Deadline deadline_;
    int64_t begin_ns_;
    int64_t awake_ns_;
    int64_t yield_ns_;   // when yielding starts
    int64_t asleep_ns_;  // when sleeping starts
    int64_t sleep_ms_ = 1;
    Stage stage_ = Stage::kSpin;
    int looks_after_end_ = 0;
    bool reported_ = false;  // this long wait was reported to the monitor
    int64_t told_ns_ = 0;    // time of the last OnStillWaiting
    int64_t looked_ns_ = 0, still_ns_ = 0;
    uint64_t moved_bytes_ = 0;
    int64_t moved_ns_ = 0;  // when moved_bytes_ last grew; 0: never
};

// One turn of a spin loop.
inline void SpinPause() {
#if defined(__x86_64__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    asm volatile("yield");
#endif
}

}  // namespace weft::net
