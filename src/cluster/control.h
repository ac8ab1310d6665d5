// The control thread of one process. Each worker (a rank other than 0) is connected to rank 0.
//
// Rank 0 has a Channel to every worker, and a worker has one to rank 0. The control thread sends
// and receives heartbeats, detects lost and silent ranks, and transfers the frames of collective
// calls. Every failure becomes a *verdict* (VerdictMessage), the error with which all ranks end:
// rank 0 decides on it and sends it to all ranks. Only the first verdict of an epoch counts.
//
// Epochs. A verdict ends the job, or with VerdictMessage::recover only the epoch. The main threads
// of the remaining ranks (survivors) then leave the epoch (EndEpoch, LeaveEpoch), rank 0 replaces
// or drops the lost ranks, and BeginEpoch starts the next epoch. Messages of an older epoch carry
// its number and are dropped.
//
// Threads: the control thread and one main thread, under one lock; any thread may call Failed() and
// RequestStop(). Order of calls: constructor, AddPeer, Start, any other calls, Stop (or
// destructor).
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <ctime>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "cluster/channel.h"
#include "cluster/join/rank_registry.h"
#include "cluster/links.h"
#include "cluster/members.h"
#include "net/link.h"

namespace weft::cluster {

class Control final : public net::PeerMonitor, public RankRegistry {
  public:
    struct Options {
        int rank = 0;  // worker: set later, by its assignment
        int64_t timeout_ms = 5000;
        int64_t watchdog_ms = 700;
        bool local = true;  // workers are children of rank 0
        // Rank 0: true if the user requested a stop, as after RequestStop.
        const std::atomic<bool>* stop = nullptr;
        bool recover = false;  // rank 0: the loss of another rank ends the epoch, not the job
        // Worker: on SIGTERM, which must be blocked, notifies rank 0 and ends.
        bool leave_on_term = false;
        bool child = false;    // worker: child of rank 0's process
        bool gathers = false;  // rank 0: ranks connect one by one (RankRegistry)
        std::shared_ptr<std::atomic<int>> loaded{};  // rank 0: as in ClusterOptions
    };
    explicit Control(const Options& options) : options_(options) {}
    ~Control() override { Stop(); }

    // Call before Start. pid: the rank's process if it is a child of this process, else 0.
    void AddPeer(int rank, Fd fd, const Session& session, pid_t pid);
    Status Start();
    void SetHosts(std::vector<std::string> names);
    std::vector<std::string> hosts() const;
    void SetTransport(std::string transport);
    // Rank 0: links of this epoch; errors name both ends of a stalled link.
    void SetLinks(LinkTable links);
    void SetProgress(std::function<int64_t()> progress);
    // The other ranks see progress of this rank, and wait for it.
    void NoteMove();
    void SetPhase(const char* phase);
    void SetLoaded(int thousandths) { own_loaded_.store(thousandths); }

    // ---- Rank 0, before the job begins; before Complete, a loss does not end the job ----
    void Take(Arrival arrival) override;
    std::vector<Gone> TakeGone() override;
    void Release(int rank, const std::string& why) override;
    bool Complete() override;

    // Rank 0: gives each worker its job; `message` is for any of them. Worker: waits for its job;
    // while another rank moves, its deadline begins again.
    void Assign(const AssignMessage& message);
    Result<AssignMessage> WaitForAssignment(const Deadline& deadline);
    // Worker, before its first epoch: waits for a join request (join_check.h), which the caller
    // must answer, or for an assignment. nullopt: an assignment has arrived.
    Result<std::optional<ExamineMessage>> WaitForJoinRequest(const Deadline& deadline);
    void AnswerJoinRequest(const ExamineMessage& request, const Status& fit);

    // One collective call. Rank 0 calls `combine` with the values of all ranks, by rank. Every rank
    // gets the result; an error of `combine` becomes the verdict. The values of all ranks, and the
    // result, have at most kMostGathered bytes. If a rank that is awaited makes progress, loads
    // weights, or sends or receives a part of a message, its deadline begins again.
    using Combine = std::function<Result<std::string>(const std::vector<std::string>&)>;
    Result<std::string> Round(const std::string& name, const std::string& mine,
                              const Combine& combine, const Deadline& deadline);
    // As Cluster::AllGather.
    Result<std::vector<std::string>> AllGather(const std::string& name, const std::string& mine,
                                               const Deadline& deadline);
    // As Round, with one value per receiver: mine[r] goes to rank r. Returns the values for this
    // rank, by sender.
    Result<std::vector<std::string>> Exchange(const std::string& name,
                                              const std::vector<std::string>& mine,
                                              const Deadline& deadline);

    // ---- From one epoch to the next (control_epoch.cc) ----
    // Any rank: reports `error`, and waits for the verdict or decides on one. OK: only the epoch
    // ends. Otherwise the job has ended, and the error states the reason.
    Status EndEpoch(Error error);
    // Worker: reports to rank 0 that it no longer uses data of the old epoch, and which ranks it
    // could not dial. Call WaitForAssignment next.
    void LeaveEpoch(const std::vector<int>& unreached);
    // Rank 0: waits until all survivors have left the epoch; a rank that has not left by the
    // deadline, nor moved within its length, counts as lost. Returns the lost ranks. Errors:
    // kCancelled (a stop request).
    Result<std::vector<int>> WaitForSurvivors(const Deadline& deadline);
    // Rank 0, after WaitForSurvivors: whether the lost rank reported that its worker was stopped.
    bool HasLeft(int rank) const;
    // Rank 0, after WaitForSurvivors: pairs of survivors of which the first could not dial the
    // second.
    std::vector<std::pair<int, int>> Unreached() const;
    // Rank 0: a new process replaces a lost rank. Any thread.
    void Replace(int rank, Channel channel, pid_t pid);
    // Rank 0: ends the epoch because workers join; `text` names them. Returns the error to pass to
    // EndEpoch, or the error of an earlier loss.
    Error EndForJoiners(const std::string& text);
    // Rank 0, before BeginEpoch: AddNewcomer adds a worker as a rank after the old ranks. Until
    // NoteAllReady, any failure ends only the new epoch, not the job. Dismiss then removes the
    // added workers, and the other ranks continue without them.
    void AddNewcomer(Arrival arrival);
    void Dismiss(const std::vector<int>& newcomers, const std::string& why);
    // Rank 0: returns once all lost children have ended, at the deadline, or when the user requests
    // a stop.
    void AwaitReaped(const Deadline& deadline);
    // Rank 0: begins the next epoch with the ranks `kept` (ascending, rank 0 first), which are
    // renumbered. Returns false if one of these ranks is lost by now.
    bool BeginEpoch(const std::vector<int>& kept, const AssignMessage& message);
    // Rank 0: ends the job on all ranks because there is no next epoch. Returns `error`.
    Error GiveUp(Error error);
    // "rank 2 (host b, tcp) was lost during decode: its process was killed by signal 9 (Killed)".
    std::string LossText() const;
    // Rank 0, any thread: as in cluster.h.
    Membership Members() const;
    void NoteAllReady();
    // Rank 0: this host's address on the connection of each rank.
    std::vector<std::string> OwnAddresses() const;
    bool should_stop() const {
        return stop_requested_.load() || (options_.stop != nullptr && options_.stop->load());
    }

    // The contracts are in cluster.h.
    Error ReportFailure(Error error);
    Status End(const Deadline& deadline);
    bool ShouldReport() const;
    void RequestStop();
    // Ends the control thread and every child process. Before that, announces this rank's end to
    // the others, unless the job has ended already.
    void Stop();

    bool Failed() const override { return failed_.load(std::memory_order_relaxed); }
    Error Failure() const override { return FailureDuring({}); }
    Error FailureDuring(const net::OpTag& tag) const override;
    int64_t SilentMs(int rank) const override;
    int64_t StillMs() const override;
    void OnLongWait(int rank, const net::OpTag& tag) override;
    void OnStillWaiting(int64_t still_ms) override;
    void OnOwnWait(bool begins, std::thread::id whom) override;
    Error OnTimeout(int rank, const net::OpTag& tag, const Deadline& deadline) override;

    // "rank 2 (host b, tcp)".
    std::string Who(int rank) const;

  private:
    struct Peer {
        int rank;
        Channel channel;
        pid_t pid;  // 0: not our child, or reaped
        int64_t heard_ns;
        int64_t ended_ns = 0;  // when the connection ended; 0: it is open
        std::string reason{};  // why it ended
        bool eventful = true;  // its connection may have data to receive, or accept more
        bool gone = false;     // ended, and the cause is known
        bool acked = false;    // said goodbye
        bool leaves = false;   // its worker was stopped
        bool ready = false;    // has left the ended epoch
        int64_t since_s = 0;   // Unix time of its arrival or loss
        bool rejoining = false;
        bool newcomer = false;  // joined in an epoch that is not ready yet
        std::string loss{};     // why it, or its previous process, was lost; "": no loss
        int64_t progress = 0;
        int64_t moved_ns = 0;
        int loaded = -1;
        RankWaits rank_waits{};
        std::optional<ValueMessage> value{};
        std::vector<int32_t> unreached{};  // as in ReadyMessage
    };
    using Lock = std::unique_lock<std::mutex>;

    bool is_root() const { return options_.rank == 0; }
    // Control thread, under the lock.
    void Loop();
    int Wait(Lock& lock);
    // Period of heartbeats.
    int64_t BeatNs() const {
        return std::clamp<int64_t>(options_.timeout_ms / 10, 10, 200) * kNsPerMs;
    }
    static constexpr int64_t kMissedBeats = 3;

    void Turn(int64_t now_ns);
    void OnFrame(Peer& peer, FrameType type, View payload);
    Status OnFrameOfWorker(Peer& peer, FrameType type, View payload);
    Status OnFrameOfRoot(FrameType type, View payload);
    void OnReport(const Peer& peer, VerdictMessage message);
    void OnEnd();
    void TakeLeave();
    void CheckPeer(Peer& peer, int64_t now_ns);
    void Beat(int64_t now_ns);
    RelayMessage NextRelay(int64_t now_ns);
    void SendBeat(int64_t stalled_ms);
    int SlowestLoaded() const;
    // stall.cc
    void Stalled(int rank, int64_t still_ms);
    void JudgeStall(int64_t now_ns);
    void CheckDeadlock(int64_t now_ns);
    RankWaits OwnWaits(int64_t now_ns) const;
    std::vector<RankWaits> AllWaits(int64_t now_ns) const;
    VerdictMessage VerdictOn(const std::vector<CycleWait>& circle) const;
    LongWait& OwnWait();
    int SilentTooLong(int64_t now_ns) const;
    bool IsStarvedParent(int64_t silent_ms) const;
    bool IsStarvedChild(const Peer& peer, int64_t silent_ms) const;
    // A recent stop of this process, which may have caused a loss: the end of a sentence, or "".
    std::string PauseText() const;
    void Watch(int64_t now_ns);
    [[noreturn]] void Leave();

    // Call these under the lock, from either thread.
    int64_t SilentLocked(int rank) const;
    int64_t StillLocked() const;
    void Broken(Peer& peer, std::string reason, bool reset);
    void Lost(Peer& peer, const std::string& reason);
    void SendAssignments(const AssignMessage& message);
    void AddPeerLocked(int rank, Channel channel, pid_t pid);
    static void NoteLoss(Peer& peer, const std::string& why);
    Member MemberOf(const Peer& peer) const;
    void Fail(VerdictMessage verdict);
    void Supersede(VerdictMessage verdict);
    void Finalise();
    void Exclude(Peer& peer, const std::string& why);
    void ReapBuried();
    VerdictMessage Stamped(VerdictMessage verdict) const;
    bool CanRecover() const { return options_.recover && is_root() && !ended_ && !ending_; }
    // Whether an error with this code ends only the epoch.
    bool EndsEpoch(ErrorCode code) const {
        return CanRecover() && (code == ErrorCode::kPeerLost || IsOfTrial(code));
    }
    bool IsOfTrial(ErrorCode code) const {
        return trial_ && CanRecover() && code != ErrorCode::kCancelled;
    }
    // Rank 0 makes `error` the verdict. A worker reports `error`, and waits for rank 0's verdict
    // for answer_ms, but at least half a second.
    void Settle(Lock& lock, Error& error, bool recover, int64_t answer_ms);
    void AwaitVerdict(Lock& lock, int rank, bool broken);
    int64_t HeardNs(int rank) const;
    bool SomePeerEnds() const;
    std::string LossLocked(const net::OpTag& tag) const;
    void Wake() const;
    std::string RankTextLocked(int rank) const;
    std::string LinkWords(int a, int b) const;
    Error Tell(const net::OpTag& tag) const;
    std::string Missing(const std::function<bool(const Peer&)>& is_missing) const;
    bool AllGone() const;
    void KillChildren();
    // Main thread: waits until `ready`, a verdict, or the deadline; true if ready.
    template <typename Ready>
    bool WaitFor(Lock& lock, const Deadline& deadline, const Ready& ready);
    // As WaitFor, but continues after the deadline as long as the awaited ranks have moved within
    // its length: still_ms() is the time since then, or -1 if it is unknown.
    template <typename Ready, typename Still>
    bool WaitWhileMoving(Lock& lock, Deadline deadline, const Ready& ready, const Still& still_ms);
    // Computes the results for all ranks from all values; a single string goes to every rank.
    using Spread = std::function<Result<std::vector<std::string>>(const std::vector<std::string>&)>;
    Result<std::string> RunRound(const std::string& name, const std::string& mine,
                                 const Spread& spread, const Deadline& deadline);
    Result<std::string> RoundOfRoot(Lock& lock, const std::string& name, const std::string& mine,
                                    const Spread& spread, const Deadline& deadline);
    Result<std::string> RoundOfWorker(Lock& lock, const std::string& name, const std::string& mine,
                                      const Deadline& deadline);
    Status EndRoot(Lock& lock, const Deadline& deadline);
    Status EndWorker(Lock& lock, const Deadline& deadline);
    void Linger(Lock& lock, int64_t ms);

    Options options_;
    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    std::thread thread_;
    Fd wake_;
    Fd term_;  // a signalfd; invalid: control does not handle SIGTERM
    std::atomic<bool> failed_{false};
    std::atomic<bool> stop_requested_{false};
    std::atomic<const char*> phase_{nullptr};

    std::vector<Peer> peers_;
    std::vector<pid_t> buried_;  // lost children, not reaped yet
    std::vector<Member> departed_;
    int64_t began_s_ = std::time(nullptr);
    std::vector<std::string> hosts_;
    std::string transport_;
    LinkTable links_;  // rank 0
    std::function<int64_t()> progress_;
    std::atomic<int> own_loaded_{-1};
    int64_t own_progress_ = 0;
    int own_loaded_before_ = -1;
    int64_t own_moved_ns_ = 0;

    std::optional<VerdictMessage> verdict_;
    int64_t failed_ns_ = 0;
    mutable std::string told_;  // the last text returned to a data wait
    int64_t epoch_ = 0;         // 0: no assignment yet
    bool recovering_ = false;   // the main thread is forming the next epoch
    bool waiting_ = false;      // worker: has left the old epoch
    bool trial_ = false;        // rank 0: the epoch has joining workers and is not ready yet
    bool taken_ = false;        // the main thread has taken the verdict
    bool ending_ = false;       // the main thread is in End
    bool ended_ = false;        // rank 0 reported that the job is over
    bool stopping_ = false;

    std::optional<AssignMessage> assignment_;
    std::optional<ExamineMessage> request_;
    int64_t rounds_ = 0;
    size_t gathered_bytes_ = 0;  // rank 0: of all values that have arrived for this call
    std::optional<ResultMessage> result_;
    // Long waits of this process's threads; the stepping thread is the one that called Start.
    struct ThreadWait {
        std::thread::id thread;
        LongWait wait;
    };
    std::vector<ThreadWait> own_waits_;
    std::thread::id stepping_;
    int own_waiting_ = 0;      // above 0: stepping_ waits for another thread of this process
    std::thread::id awaited_;  // the awaited thread; default: any
    std::string call_;         // the collective call in which stepping_ waits; empty: none
    int64_t call_ns_ = 0;      // start of that wait, or when a part of a message last moved
    int stalled_ = -1;         // rank 0: the rank whose wait timed out first; -1: none
    int64_t stall_end_ns_ = 0;
    int64_t still_ms_ = 0;
    RelayMessage relay_;  // the last one
    int64_t relay_ns_ = 0;
    struct Relayed {
        RelayMessage::Rank rank;
        int64_t at_ns = 0;  // 0: unknown
    };
    std::vector<Relayed> relayed_;  // worker: by rank
    size_t relay_first_ = 0;        // rank 0: first rank of the next relay
    int64_t parts_ns_ = 0;          // worker: when a part of a message last moved
    int64_t turn_ns_ = 0;
    int64_t turns_ = 0;  // of the control thread
    int64_t beat_ns_ = 0;
    int64_t paused_ms_ = 0;   // duration of the last stop of this process, if longer than the
                              // timeout
    int64_t resumed_ns_ = 0;  // when it continued after that stop
};

}  // namespace weft::cluster
