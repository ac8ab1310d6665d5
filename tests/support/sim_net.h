// A network in virtual time with planned faults: links that carry puts or bytes between windows,
// ranks that die or stop, and notes of the control plane.
//
// Puts: a link of one-sided writes; a fault loses, delays, duplicates, reorders, truncates or
// corrupts a whole put. Bytes: frames in a stream, parsed by the FrameReader of TCP links; faults
// apply to bytes. Waits use the real links' Waiter, in virtual time.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "net/frame.h"
#include "net/wait_policy.h"
#include "support/sim_control.h"
#include "support/sim_plan.h"

namespace weft::test {

inline constexpr int kSimRanks = 6;

class SimNet;

class SimLink : public net::BaseLink {
  public:
    SimLink(SimNet& sim, net::Progress& progress, int self, int peer, const char* transport,
            std::span<std::byte> window)
        : BaseLink({peer, "sim", transport}),
          net_(sim),
          progress_(progress),
          self_(self),
          peer_rank_(peer),
          window_(window) {}

    size_t window_bytes() const override { return window_.size(); }
    std::span<std::byte> window() override { return window_; }
    int poll_fd() const override { return -1; }
    Status Wait(int flag, uint64_t value, const net::OpTag& tag, const Deadline& deadline) override;
    // Data for this link arrives, in virtual time.
    virtual void Arrive(std::span<const std::byte> bytes, size_t offset, int flag,
                        uint64_t value) = 0;
    void End(net::LinkEnd end, const char* why) { SetEnd(end, why); }

  protected:
    // Sleeps until something may have changed. False: this rank was killed.
    bool Pause(const Deadline& deadline);

    SimNet& net_;
    net::Progress& progress_;
    int self_;
    int peer_rank_;
    std::span<std::byte> window_;
};

// One-sided writes into the peer's window.
class SimPutLink final : public SimLink {
  public:
    using SimLink::SimLink;
    uint64_t flag(int index) const override { return flags_[static_cast<size_t>(index)]; }
    void Receive() override {}
    Status Put(size_t offset, std::span<const std::byte> head, std::span<const std::byte> data,
               int flag, uint64_t value, const net::OpTag& tag, const Deadline& deadline) override;
    void Arrive(std::span<const std::byte> bytes, size_t offset, int flag,
                uint64_t value) override {
        std::copy(bytes.begin(), bytes.end(),
                  window_.begin() + static_cast<std::ptrdiff_t>(offset));
        uint64_t& mine = flags_[static_cast<size_t>(flag)];
        mine = std::max(mine, value);
    }

  private:
    std::array<uint64_t, net::kFlags> flags_{};
};

class SimNet final : public SimPost, public SimTarget {
  public:
    SimNet() = default;
    SimNet(const SimNet&) = delete;
    SimNet& operator=(const SimNet&) = delete;

    // Starts a plan: all ranks live, nothing is in flight. `timeline` must outlive the run.
    void Begin(const SimPlan& plan, Timeline& timeline, std::string* log) {
        plan_ = &plan;
        timeline_ = &timeline;
        log_ = log;
        random_ = SimRandom(plan.seed ^ 0x51b);
        fired_ = false;
        begin_ns_ = timeline.now();
        flying_.clear();
        free_.clear();
        ranks_ = {};
        for (auto& row : pipes_) row = {};
        deferred_.clear();
        for (int r = 0; r < plan.ranks; r++) MakeFabric(r);
        PlanRankFaults();
    }
    // Destroys the links; no task may use them afterwards.
    void End() {
        for (net::Fabric& fabric : fabrics_) fabric = {};
    }

    net::Fabric& fabric(int rank) { return fabrics_[static_cast<size_t>(rank)]; }
    SimTask& task(int rank) { return tasks_[static_cast<size_t>(rank)]; }
    SimControl& control(int rank) { return controls_[static_cast<size_t>(rank)]; }
    Timeline& timeline() { return *timeline_; }
    // The plan's fault has happened or begun.
    bool fired() const { return fired_; }

    bool logging() const override { return log_ != nullptr; }
    void Log(const std::string& line) override {
        if (log_ == nullptr) return;
        *log_ += fmt::format("{:>12} {}\n", (timeline_->now() - begin_ns_) / kUs, line);
    }

    // Sends a put of rank `from`, called by Put. False: the rank died of it.
    bool SendPut(int from, int to, size_t offset, std::span<const std::byte> head,
                 std::span<const std::byte> data, int flag, uint64_t value);
    void SendNote(SimNote note) override;
    // The process exits after an error.
    void LeaveEarly(int rank) { Gone(rank, net::LinkEnd::kLeft); }
    void OnEvent(uint64_t what) override;

  private:
    enum class Kind { kPut, kEnd, kNote, kCrash, kPowerOff, kStop, kContinue };
    struct Flying {
        Kind kind;
        int from;
        int to;
        size_t offset;
        int flag;
        uint64_t value;
        net::LinkEnd end;
        std::vector<std::byte> bytes;
        std::optional<SimNote> note;
    };
    struct Pipe {
        int64_t last_ns = 0;  // latest arrival so far
        int64_t last_note_ns = 0;
        uint64_t puts = 0;
    };
    struct RankState {
        uint64_t puts = 0;
        bool gone = false;
    };

    Pipe& PipeOf(int from, int to) {
        return pipes_[static_cast<size_t>(from)][static_cast<size_t>(to)];
    }
    SimLink& LinkAt(int at, int from) {
        return *links_[static_cast<size_t>(at)][static_cast<size_t>(from)];
    }
    int64_t Latency() {
        const int64_t jitter = plan_->jitter_ns == 0 ? 0 : random_.Between(0, plan_->jitter_ns);
        return plan_->latency_ns + jitter + 100;
    }
    bool IsFaultOf(int from, int to) const { return from == plan_->a && to == plan_->b; }
    // Time at which data due at `ns` arrives; kNever: lost.
    int64_t Passes(int from, int to, int64_t ns);
    // at_ns kNever: Depart sets the time.
    size_t Fly(int64_t at_ns, Kind kind, int from, int to);
    void MakeFabric(int rank);
    void PlanRankFaults();
    void Die(int rank, bool told);
    void Gone(int rank, net::LinkEnd end);
    void Cut(int a, int b);
    void Depart(size_t index, int64_t at, bool in_order);
    void Strike(size_t index, int64_t at);

    const SimPlan* plan_ = nullptr;
    Timeline* timeline_ = nullptr;
    std::string* log_ = nullptr;
    SimRandom random_{0};
    bool fired_ = false;
    int64_t begin_ns_ = 0;
    std::array<SimTask, kSimRanks> tasks_;
    std::array<SimControl, kSimRanks> controls_;
    std::array<net::Fabric, kSimRanks> fabrics_;
    std::array<std::array<SimLink*, kSimRanks>, kSimRanks> links_{};
    std::array<std::array<Pipe, kSimRanks>, kSimRanks> pipes_{};
    std::array<RankState, kSimRanks> ranks_{};
    std::array<std::array<std::vector<std::byte>, kSimRanks>, kSimRanks> windows_;
    std::vector<Flying> flying_;
    std::vector<size_t> free_;
    std::vector<SimNote> deferred_;  // for stopped processes
};

// ---- Links --------------------------------------------------------------------------------------

inline bool SimLink::Pause(const Deadline& deadline) {
    const int64_t now = net_.timeline().now();
    const int64_t next =
        deadline.at_ns() > now ? deadline.at_ns() : now + deadline.length_ms() * kMs / 16;
    return net_.task(self_).SleepUntil(next);
}

inline Status SimLink::Wait(int flag, uint64_t value, const net::OpTag& tag,
                            const Deadline& deadline) {
    if (this->flag(flag) >= value) return {};
    net::Waiter waiter(progress_, *this, tag, deadline);
    for (;;) {
        progress_.ReceiveAll();
        if (this->flag(flag) >= value) return {};
        WEFT_TRY(waiter.Check());
        if (end() != net::LinkEnd::kOpen) continue;
        if (!Pause(deadline)) return Error{ErrorCode::kCancelled, "killed"};
    }
}

inline Status SimPutLink::Put(size_t offset, std::span<const std::byte> head,
                              std::span<const std::byte> data, int flag, uint64_t value,
                              const net::OpTag&, const Deadline&) {
    WEFT_CHECK(offset <= window_bytes() && head.size() <= window_bytes() - offset &&
               data.size() <= window_bytes() - offset - head.size());
    if (!net_.SendPut(self_, peer_rank_, offset, head, data, flag, value)) {
        return Error{ErrorCode::kCancelled, "killed"};
    }
    return {};
}

// ---- The network --------------------------------------------------------------------------------

inline void SimNet::MakeFabric(int rank) {
    const auto at = static_cast<size_t>(rank);
    auto progress = std::make_unique<net::Progress>();
    progress->SetMonitor(&controls_[at]);
    net::Fabric& fabric = fabrics_[at];
    fabric.rank = rank;
    fabric.size = plan_->ranks;
    fabric.epoch = plan_->seed % 1000 + 1;
    fabric.checksum = plan_->checksum;
    fabric.transport = "sim";
    fabric.links.resize(static_cast<size_t>(plan_->ranks));
    for (int peer = 0; peer < plan_->ranks; peer++) {
        if (peer == rank) continue;
        std::vector<std::byte>& window = windows_[at][static_cast<size_t>(peer)];
        window.assign(plan_->window_bytes, std::byte{0xee});
        const bool near = plan_->host[at] == plan_->host[static_cast<size_t>(peer)];
        const char* transport = near && !plan_->bytes ? "shm" : "tcp";
        auto link = std::make_unique<SimPutLink>(*this, *progress, rank, peer, transport, window);
        progress->Add(link.get(), net::Progress::Data::kSocket);
        links_[at][static_cast<size_t>(peer)] = link.get();
        fabric.links[static_cast<size_t>(peer)] = std::move(link);
    }
    fabric.state = std::move(progress);
}

inline size_t SimNet::Fly(int64_t at_ns, Kind kind, int from, int to) {
    size_t index = flying_.size();
    if (free_.empty()) {
        flying_.emplace_back();
    } else {
        index = free_.back();
        free_.pop_back();
    }
    Flying& made = flying_[index];
    made.kind = kind;
    made.from = from;
    made.to = to;
    if (at_ns != SimTask::kNever) timeline_->At(at_ns, *this, index);
    return index;
}

inline int64_t SimNet::Passes(int from, int to, int64_t ns) {
    if (plan_->fault != SimFault::kPartition) return ns;
    const bool apart = ((plan_->side >> from) & 1) != ((plan_->side >> to) & 1);
    const int64_t begin = begin_ns_ + plan_->at_ns;
    if (!apart || ns < begin) return ns;
    fired_ = true;
    if (plan_->length_ns == SimTask::kNever) return SimTask::kNever;
    // The end is unknown: data sent meanwhile is sent again.
    return std::max(ns, begin + plan_->length_ns);
}

inline void SimNet::PlanRankFaults() {
    const int64_t at = begin_ns_ + plan_->at_ns;
    const bool by_time = !plan_->by_count;
    if (plan_->fault == SimFault::kCrash && by_time) Fly(at, Kind::kCrash, plan_->a, plan_->a);
    if (plan_->fault == SimFault::kPowerOff && by_time) {
        Fly(at, Kind::kPowerOff, plan_->a, plan_->a);
    }
    if (plan_->fault == SimFault::kStop) {
        Fly(at, Kind::kStop, plan_->a, plan_->a);
        if (plan_->length_ns != SimTask::kNever) {
            Fly(at + plan_->length_ns, Kind::kContinue, plan_->a, plan_->a);
        }
    }
}

inline bool SimNet::SendPut(int from, int to, size_t offset, std::span<const std::byte> head,
                            std::span<const std::byte> data, int flag, uint64_t value) {
    if (task(from).killed()) return false;
    const bool dies = plan_->by_count && from == plan_->a &&
                      ranks_[static_cast<size_t>(from)].puts++ == plan_->at &&
                      (plan_->fault == SimFault::kCrash || plan_->fault == SimFault::kPowerOff);
    if (dies && plan_->amount % 2 == 0) {
        Die(from, plan_->fault == SimFault::kCrash);
        return false;
    }
    Pipe& pipe = PipeOf(from, to);
    const bool struck = IsFaultOf(from, to) && pipe.puts == plan_->at;
    pipe.puts++;
    if (LinkAt(from, to).end() == net::LinkEnd::kOpen) {
        const size_t index = Fly(SimTask::kNever, Kind::kPut, from, to);
        Flying& put = flying_[index];
        put.offset = offset;
        put.flag = flag;
        put.value = value;
        put.bytes.assign(head.begin(), head.end());
        put.bytes.insert(put.bytes.end(), data.begin(), data.end());
        const int64_t wire = static_cast<int64_t>(put.bytes.size()) / 4;
        const int64_t at = std::max(pipe.last_ns, timeline_->now() + Latency() + wire);
        if (struck) {
            Strike(index, at);
        } else {
            Depart(index, at, true);
        }
    }
    if (dies) Die(from, plan_->fault == SimFault::kCrash);
    return !dies;
}

// It arrives at `at`, or after a partition, or never. in_order: later data does not overtake it.
inline void SimNet::Depart(size_t index, int64_t at, bool in_order) {
    const Flying& put = flying_[index];
    const int from = put.from;
    const int to = put.to;
    at = Passes(from, to, at);
    if (at == SimTask::kNever) {
        free_.push_back(index);
        if (in_order) PipeOf(from, to).last_ns = SimTask::kNever;  // nor does later data
        return;
    }
    if (in_order) PipeOf(from, to).last_ns = at;
    timeline_->At(at, *this, index);
}

// Applies the plan's fault to this put.
inline void SimNet::Strike(size_t index, int64_t at) {
    const SimFault fault = plan_->fault;
    const int64_t length = std::min(plan_->length_ns, 3 * plan_->timeout_ms * kMs);
    std::vector<std::byte>& bytes = flying_[index].bytes;
    fired_ = true;
    switch (fault) {
        case SimFault::kDelay: return Depart(index, at + length, true);
        case SimFault::kReorder: return Depart(index, at + length, false);
        case SimFault::kDrop: free_.push_back(index); return;
        case SimFault::kDuplicate: {
            const size_t twin = Fly(SimTask::kNever, Kind::kPut, plan_->a, plan_->b);
            const Flying& put = flying_[index];
            Flying& again = flying_[twin];
            again.offset = put.offset;
            again.flag = put.flag;
            again.value = put.value;
            again.bytes = put.bytes;
            Depart(twin, at + length, false);
            return Depart(index, at, true);
        }
        case SimFault::kTruncate:
            if (!bytes.empty()) bytes.resize(plan_->amount % bytes.size());
            return Depart(index, at, true);
        case SimFault::kCorrupt:
            if (bytes.empty() || plan_->amount % 8 == 0) {
                flying_[index].value ^= uint64_t{1} << (plan_->amount / 8 % 64);
            } else {
                const size_t bit = plan_->amount / 8 % (8 * bytes.size());
                bytes[bit / 8] ^= std::byte{1} << (bit % 8);
            }
            return Depart(index, at, true);
        case SimFault::kCut:
            free_.push_back(index);
            Cut(plan_->a, plan_->b);
            return;
        case SimFault::kNone:
        case SimFault::kSlow:
        case SimFault::kPartition:
        case SimFault::kCrash:
        case SimFault::kPowerOff:
        case SimFault::kStop: break;
    }
    fired_ = fault == SimFault::kPartition && fired_;
    Depart(index, at, true);
}

inline void SimNet::SendNote(SimNote note) {
    if (controls_[static_cast<size_t>(note.from)].dead() && note.kind != SimNoteKind::kEnd) return;
    Pipe& pipe = PipeOf(note.from, note.to);
    const int64_t sent = timeline_->now() + Latency() + 50 * kUs;
    const int64_t at = Passes(note.from, note.to, std::max(pipe.last_note_ns, sent));
    if (at == SimTask::kNever) return;
    pipe.last_note_ns = at;
    const size_t index = Fly(at, Kind::kNote, note.from, note.to);
    flying_[index].note = std::move(note);
}

inline void SimNet::OnEvent(uint64_t what) {
    const Flying& event = flying_[what];
    const int from = event.from;
    const int to = event.to;
    switch (event.kind) {
        case Kind::kPut:
            if (logging()) {
                Log(fmt::format("{} -> {}: {} bytes at {}, flag {} = {}", from, to,
                                event.bytes.size(), event.offset, event.flag, event.value));
            }
            if (LinkAt(to, from).end() == net::LinkEnd::kOpen) {
                LinkAt(to, from).Arrive(event.bytes, event.offset, event.flag, event.value);
            }
            task(to).Wake();
            break;
        case Kind::kEnd:
            LinkAt(to, from).End(event.end, event.end == net::LinkEnd::kLeft ? "left" : "died");
            task(to).Wake();
            break;
        case Kind::kNote: {
            SimNote note = *std::move(flying_[what].note);
            if (controls_[static_cast<size_t>(to)].stopped()) {
                deferred_.push_back(std::move(note));
            } else {
                controls_[static_cast<size_t>(to)].Take(note);
            }
            break;
        }
        case Kind::kCrash: Die(from, true); break;
        case Kind::kPowerOff: Die(from, false); break;
        case Kind::kStop:
            fired_ = true;
            Log(fmt::format("rank {} is stopped", from));
            task(from).Stop();
            control(from).Stop();
            break;
        case Kind::kContinue:
            Log(fmt::format("rank {} goes on", from));
            task(from).Continue();
            control(from).Continue();
            for (const SimNote& note : deferred_) control(from).Take(note);
            deferred_.clear();
            break;
    }
    free_.push_back(what);
}

inline void SimNet::Die(int rank, bool told) {
    if (task(rank).done()) return;
    fired_ = true;
    Log(fmt::format("rank {} {}", rank, told ? "dies" : "has no power"));
    task(rank).Kill();
    if (told) {
        Gone(rank, net::LinkEnd::kDied);
    } else {
        ranks_[static_cast<size_t>(rank)].gone = true;
        control(rank).Die();
    }
}

// The kernel closes the process's connections after all sent data.
inline void SimNet::Gone(int rank, net::LinkEnd end) {
    RankState& state = ranks_[static_cast<size_t>(rank)];
    if (state.gone) return;
    state.gone = true;
    for (int peer = 0; peer < plan_->ranks; peer++) {
        if (peer == rank) continue;
        Pipe& pipe = PipeOf(rank, peer);
        const int64_t at = Passes(rank, peer, std::max(pipe.last_ns, timeline_->now() + Latency()));
        if (at != SimTask::kNever) {
            pipe.last_ns = at;
            flying_[Fly(at, Kind::kEnd, rank, peer)].end = end;
        }
        if (rank == 0 || peer == 0) SendNote({rank, peer, SimNoteKind::kEnd, 0, {}, {}, {}});
    }
    control(rank).Die();
}

inline void SimNet::Cut(int a, int b) {
    Log(fmt::format("the link of {} and {} is cut", a, b));
    for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
        const int64_t at = std::max(PipeOf(from, to).last_ns, timeline_->now() + Latency());
        flying_[Fly(at, Kind::kEnd, from, to)].end = net::LinkEnd::kDied;
    }
}

}  // namespace weft::test
