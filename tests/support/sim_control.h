// A model of the control plane (cluster/control.h) in virtual time: heartbeats in a star around
// rank 0, silent ranks, closed connections, verdicts, and wait times.
//
// It follows Control step by step where a verdict depends on it: which rank notices a fault first,
// which report arrives first, the age of relayed progress. Frames travel as SimNote.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cluster/watch/root_cause.h"
#include "net/link.h"
#include "support/sim_plan.h"

namespace weft::test {

struct SimVerdict {
    ErrorCode code;
    std::string text;
    std::string reason;
};

enum class SimNoteKind { kBeat, kRelay, kStall, kFailure, kVerdict, kEnd };

struct SimNote {
    int from;
    int to;
    SimNoteKind kind;
    int64_t progress;
    std::vector<int64_t> idle_ms;  // by rank
    std::optional<SimVerdict> verdict;
    cluster::LongWait wait{};  // for a beat, and for a stall
};

// Carries notes, and stops ranks.
class SimPost {
  public:
    virtual ~SimPost() = default;
    virtual void SendNote(SimNote note) = 0;
    virtual void Log(const std::string& line) = 0;
    virtual bool logging() const = 0;
};

class SimControl final : public net::PeerMonitor, public SimTarget {
  public:
    void Start(Timeline& timeline, SimPost& post, SimTask& task, int rank, int ranks,
               int64_t timeout_ms) {
        timeline_ = &timeline;
        post_ = &post;
        task_ = &task;
        rank_ = rank;
        timeout_ns_ = timeout_ms * kMs;
        verdict_.reset();
        told_.clear();
        progress_ = beat_progress_ = 0;
        silent_.assign(static_cast<size_t>(ranks), 0);
        relay_ns_ = 0;
        const int64_t now = timeline.now();
        turn_ns_ = moved_ns_ = now;
        peers_.assign(static_cast<size_t>(ranks), {now, now, 0, false});
        waits_.assign(static_cast<size_t>(ranks), {});
        stalled_ = -1;
        stopped_ = dead_ = false;
        paused_ms_ = 0;
        timeline.At(now + rank * kMs, *this, 0);
    }
    void Progress() { progress_++; }
    void Stop() { stopped_ = true; }
    void Continue() {
        stopped_ = false;
        Turn();
    }
    void Die() { dead_ = true; }
    bool dead() const { return dead_; }
    bool stopped() const { return stopped_; }

    void Take(const SimNote& note) {
        if (dead_) return;
        Peer& peer = peers_[static_cast<size_t>(note.from)];
        if (peer.gone) return;
        peer.heard_ns = timeline_->now();
        switch (note.kind) {
            case SimNoteKind::kBeat:
                if (note.progress != peer.progress) peer.moved_ns = timeline_->now();
                peer.progress = note.progress;
                waits_[static_cast<size_t>(note.from)] = note.wait;
                break;
            case SimNoteKind::kStall:
                waits_[static_cast<size_t>(note.from)] = note.wait;
                Stalled(note.from);
                break;
            case SimNoteKind::kRelay:
                silent_ = note.idle_ms;
                relay_ns_ = timeline_->now();
                break;
            case SimNoteKind::kFailure: {
                SimVerdict report = *note.verdict;
                const bool about_cluster = report.code == ErrorCode::kPeerLost ||
                                           report.code == ErrorCode::kTimeout ||
                                           report.code == ErrorCode::kCancelled;
                if (!about_cluster) report.text = Who(note.from) + ": " + report.text;
                Fail(std::move(report));
                break;
            }
            case SimNoteKind::kVerdict: Fail(*note.verdict); break;
            case SimNoteKind::kEnd: Lost(note.from, "closed its connection"); break;
        }
    }

    // The main thread's side, called within its task.
    bool Failed() const override { return verdict_.has_value(); }
    Error Failure() const override { return FailureDuring({}); }
    Error FailureDuring(const net::OpTag& tag) const override { return Tell(tag); }
    int64_t SilentMs(int rank) const override {
        const auto index = static_cast<size_t>(rank);
        const int64_t now = timeline_->now();
        if (rank_ == 0) return (now - peers_[index].moved_ns) / kMs;
        if (relay_ns_ == 0) return -1;
        return silent_[index] + (now - relay_ns_) / kMs;
    }
    int64_t StillMs() const override {
        int64_t still = std::numeric_limits<int64_t>::max();
        for (int r = 0; r < static_cast<int>(peers_.size()); r++) {
            if (r != rank_) still = std::min(still, SilentMs(r));
        }
        return still;
    }
    void OnLongWait(int rank, const net::OpTag& tag) override {
        waits_[static_cast<size_t>(rank_)] = {rank, tag.step, tag.index, tag.place, tag.op};
    }
    Error OnTimeout(int rank, const net::OpTag& tag, const Deadline& deadline) override {
        const bool expired = deadline.expired();
        OnLongWait(rank, tag);
        if (expired && rank_ == 0) Stalled(0);
        if (expired && rank_ != 0) {
            post_->SendNote({rank_, 0, SimNoteKind::kStall, 0, {}, {}, waits_[Own()]});
        }
        WaitForVerdict(700);
        if (verdict_.has_value()) return Tell(tag);
        if (rank_ != 0 && Unheard(0)) rank = 0;
        told_ = fmt::format("{}: {} {}", Who(rank), expired ? "no data for" : "link broke during",
                            tag.Text());
        return Error{ErrorCode::kPeerLost, told_};
    }
    Error ReportFailure(const Error& error) {
        const bool secondary =
            error.code == ErrorCode::kPeerLost || error.code == ErrorCode::kTimeout;
        if (secondary && error.message != told_) WaitForVerdict(200);
        const SimVerdict report{error.code, error.message, ""};
        if (!verdict_.has_value() && rank_ == 0) Fail(report);
        if (!verdict_.has_value()) {
            post_->SendNote({rank_, 0, SimNoteKind::kFailure, 0, {}, report, {}});
            WaitForVerdict(500);
        }
        if (!verdict_.has_value() || error.message == told_) return error;
        return Tell({});
    }

    void OnEvent(uint64_t what) override {
        if (dead_) return;
        if (what == 1) return JudgeStall();
        timeline_->At(timeline_->now() + Period(), *this, 0);
        if (!stopped_) Turn();
    }

  private:
    static constexpr int64_t kStallNs = 400 * kMs;
    struct Peer {
        int64_t heard_ns;
        int64_t moved_ns;
        int64_t progress;
        bool gone;
    };

    size_t Own() const { return static_cast<size_t>(rank_); }
    bool Unheard(int rank) const {
        const int64_t heard = peers_[static_cast<size_t>(rank)].heard_ns;
        return timeline_->now() - heard > 3 * Period() + kStallNs;
    }
    int64_t Period() const { return std::clamp<int64_t>(timeout_ns_ / 10, 10 * kMs, 200 * kMs); }
    // Rank 0: a wait expired on some rank and no rank progresses. Before it names a rank to blame,
    // rank 0 waits a moment, because silent ranks may turn out to be lost.
    void Stalled(int rank) {
        if (stalled_ >= 0) return;
        stalled_ = rank;
        stall_end_ns_ = timeline_->now() + kStallNs;
        timeline_->At(stall_end_ns_, *this, 1);
    }
    void JudgeStall() {
        if (stalled_ < 0 || verdict_.has_value()) return;
        int blamed = -1;
        int64_t longest = 3 * Period() + kStallNs;
        for (int r = 1; r < static_cast<int>(peers_.size()); r++) {
            const int64_t silent = timeline_->now() - peers_[static_cast<size_t>(r)].heard_ns;
            if (silent > longest) {
                longest = silent;
                blamed = r;
            }
        }
        if (blamed < 0 && waits_[static_cast<size_t>(stalled_)].on >= 0) {
            const int worst = cluster::RootWait(waits_, stalled_);
            blamed = waits_[static_cast<size_t>(worst)].on;
        }
        if (blamed >= 0) Fail({ErrorCode::kPeerLost, Who(blamed) + ": no data", ""});
    }

    static std::string Who(int rank) { return net::PeerName{rank, "sim", "sim"}.Text(); }

    void WaitForVerdict(int64_t ms) {
        const int64_t end = timeline_->now() + ms * kMs;
        while (!verdict_.has_value() && timeline_->now() < end) {
            if (!task_->SleepUntil(end)) return;
        }
    }
    Error Tell(const net::OpTag& tag) const {
        std::string text = verdict_.has_value() ? verdict_->text : "killed";
        if (verdict_.has_value() && !verdict_->reason.empty()) {
            if (tag.op[0] != '\0') text += " during " + tag.Text();
            text += ": " + verdict_->reason;
        }
        if (tag.op[0] != '\0') told_ = text;
        return Error{verdict_.has_value() ? verdict_->code : ErrorCode::kCancelled, text};
    }

    // One turn of the control thread: sends a beat and checks for silent ranks.
    void Turn() {
        const int64_t now = timeline_->now();
        const int64_t pause = now - turn_ns_;
        if (pause > timeout_ns_ / 2) {
            for (Peer& peer : peers_) peer.heard_ns += pause;
        }
        if (pause > timeout_ns_) paused_ms_ = pause / kMs;
        turn_ns_ = now;
        const int ranks = static_cast<int>(peers_.size());
        for (int r = 0; r < ranks; r++) {
            if (r == rank_ || (rank_ != 0 && r != 0)) continue;
            const Peer& peer = peers_[static_cast<size_t>(r)];
            const int64_t silent = now - peer.heard_ns;
            if (!peer.gone && silent >= timeout_ns_) {
                Lost(r, fmt::format("silent for {} ms", silent / kMs));
            }
        }
        if (progress_ != beat_progress_) moved_ns_ = now;
        beat_progress_ = progress_;
        if (rank_ != 0) {
            post_->SendNote({rank_, 0, SimNoteKind::kBeat, progress_, {}, {}, waits_[Own()]});
            return;
        }
        std::vector<int64_t> idle;
        for (int r = 0; r < ranks; r++) {
            const int64_t moved = r == 0 ? moved_ns_ : peers_[static_cast<size_t>(r)].moved_ns;
            idle.push_back((now - moved) / kMs);
        }
        for (int r = 1; r < ranks; r++) {
            post_->SendNote({0, r, SimNoteKind::kRelay, 0, idle, {}, {}});
        }
    }
    void Lost(int rank, std::string reason) {
        Peer& peer = peers_[static_cast<size_t>(rank)];
        if (peer.gone) return;
        peer.gone = true;
        if (paused_ms_ > 0) reason += fmt::format(", after a pause of {} ms", paused_ms_);
        Fail({ErrorCode::kPeerLost, Who(rank) + " was lost", std::move(reason)});
    }
    void Fail(SimVerdict verdict) {
        if (verdict_.has_value()) return;
        verdict_ = std::move(verdict);
        if (post_->logging()) {
            post_->Log(fmt::format("rank {}: verdict: {}", rank_, verdict_->text));
        }
        if (rank_ == 0) {
            for (int r = 1; r < static_cast<int>(peers_.size()); r++) {
                post_->SendNote({0, r, SimNoteKind::kVerdict, 0, {}, verdict_, {}});
            }
        }
        task_->Wake();
    }

    Timeline* timeline_ = nullptr;
    SimPost* post_ = nullptr;
    SimTask* task_ = nullptr;
    int rank_ = 0;
    int64_t timeout_ns_ = 0;
    std::optional<SimVerdict> verdict_;
    mutable std::string told_;
    std::vector<cluster::LongWait> waits_;  // by rank; a worker knows its own
    int stalled_ = -1;                      // rank 0: the first rank to report
    int64_t stall_end_ns_ = 0;
    int64_t progress_ = 0;       // of the main thread
    int64_t beat_progress_ = 0;  // at the last beat
    int64_t moved_ns_ = 0;
    std::vector<Peer> peers_;
    std::vector<int64_t> silent_;
    int64_t relay_ns_ = 0;
    int64_t turn_ns_ = 0;
    int64_t paused_ms_ = 0;
    bool stopped_ = false;
    bool dead_ = false;
};

}  // namespace weft::test
