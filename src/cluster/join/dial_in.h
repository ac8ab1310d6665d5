// DialIn: rank 0 listens for workers as long as its job exists. A thread admits workers that prove
// the key (admission_listener.h). Admitted workers wait until a rank has no process (before the job
// begins, or after a loss), or until the job admits more ranks. The thread removes waiting workers
// whose connection ends. If the job is running, it also checks whether each worker could be a rank
// (candidate_check.h), and rejects the others. In a job over named hosts, rank 0 dials the workers
// (recall.h), and DialIn does not listen. Thread: any.
#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/join/candidate_check.h"
#include "cluster/join/rank_registry.h"
#include "cluster/worker/admission_listener.h"

namespace weft::cluster {

class DialIn {
  public:
    // Listens on "host:port" ("": every address and kWorkerPort) for ranks up to `most_rank`.
    // Errors: kUsage, kIo (the port is in use; the message says how to choose another).
    static Result<std::unique_ptr<DialIn>> Open(const std::string& listen, const Bytes& key,
                                                int64_t timeout_ms, int most_rank);
    // Does not listen; Add adds workers.
    static Result<std::unique_ptr<DialIn>> ForHosts(int64_t timeout_ms);
    // Closes the connections of waiting workers.
    ~DialIn();

    // Adds a worker that rank 0 dialed. The worker's process sends heartbeats from now on.
    void Add(Arrival arrival);
    // Whether Add accepts a worker of this host at this address: no worker of the host waits, and
    // the host is not deferred.
    bool MayAdd(const std::string& host, const std::string& from) const;
    // Sends all waiting workers away, with the reason. Returns the names of their hosts.
    std::vector<std::string> SendAllAway(const std::string& why);

    uint16_t port() const { return port_; }
    // Returns the worker that has waited longest for one of the rank numbers `places`. The worker
    // gets the rank that it requests or, if it accepts any, the first of `places`. nullopt: there
    // is no such worker.
    std::optional<Arrival> Next(const std::vector<int>& places);
    // As Next, for a running job: returns only a worker that passed the check for its rank in
    // `request` (request.rank is ignored). Call it repeatedly: it also sends the request to new
    // workers.
    std::optional<Arrival> NextFit(const std::vector<int>& places, const JoinRequest& request);
    // When a worker that is being checked last made progress (NowNs); 0: none did. Workers of hosts
    // that were refused lately do not count.
    int64_t LastMoveNs() const;
    // The workers that are being checked, without those, as text; "": none.
    std::string Checked() const;
    // The worker that was last rejected, and why; "": none.
    std::string LastRefusal() const;
    // Why workers can't dial in any more; nullopt: they can.
    std::optional<Error> Failure() const;

    // Number of waiting workers that could be ranks `size`, `size` + 1, ... 0 if a worker has just
    // come, so that workers that come at the same time join together.
    int PendingJoiners(int size) const;
    // Asks the first `count` pending joiners whether they could be ranks `size`, ... of `request`
    // (whose rank is ignored). reach: returns ExamineMessage::reach for a host; may be
    // null. Call it repeatedly, until it returns true: all of them can.
    bool ValidateJoiners(
        int size, int count, const JoinRequest& request,
        const std::function<std::vector<std::string>(const std::string& host)>& reach = nullptr);
    // Chooses up to `count` workers that passed, and returns their names. A chosen worker may still
    // leave.
    std::vector<std::string> Choose(int size, int count);
    // The chosen workers, with ranks from `size` on.
    std::vector<Arrival> TakeChosen(int size);
    // From now on, PendingJoiners ignores the waiting workers as long as there are `size` ranks.
    // Returns their names.
    std::vector<std::string> RejectJoiners(int size);
    // After a failed join, no worker of the arrival's host may join for a while. The time doubles
    // with each call of Defer, until Forgive.
    void Defer(const Arrival& arrival);
    void Forgive(const Arrival& arrival);

  private:
    struct Waiting {
        Arrival arrival;  // without its connection while it is checked
        int64_t since_ns = 0;
        int passed_over = 0;  // number of ranks at which it was rejected
        std::unique_ptr<CandidateCheck> check{};
        int chosen = 0;  // the rank that it will be; 0: none yet
    };
    struct Deferral {
        int64_t until_ns = 0;
        int times = 0;
    };
    DialIn(Fd listener, uint16_t port, const Bytes& key, int64_t timeout_ms, int most_rank);
    static Result<std::unique_ptr<DialIn>> Begin(std::unique_ptr<DialIn> dial_in);
    void Serve();
    Result<std::vector<Arrival>> AwaitCallers();
    int64_t DeferLocked(const Arrival& arrival, bool doubles = true);
    std::optional<std::string> Judge(const DialHello& hello, bool proved) const;
    void DropDisconnected();
    void TurnScreenings();
    int64_t NapMs() const;
    std::unique_ptr<CandidateCheck> BeginCheck(Arrival& arrival) const;
    bool IsDeferred(const Arrival& arrival) const;
    bool IsFit(Waiting& waiting, int rank, JoinRequest request,
               const std::vector<std::string>& reach = {});
    Arrival Take(size_t index, int rank);
    bool MayJoin(const Waiting& waiting, int size) const;
    std::vector<size_t> Joining(int size) const;

    Fd listener_;
    uint16_t port_;
    int most_rank_;
    int64_t timeout_ms_;
    std::optional<AdmissionListener> admission_;  // used by the thread; nullopt: does not listen
    std::atomic<bool> ends_{false};
    mutable std::mutex mutex_;
    std::deque<Waiting> waiting_;
    std::map<std::string, Deferral> deferred_;  // by host
    std::map<std::string, std::string> told_;   // by host: why it could not join, as last logged
    std::string last_refusal_;
    std::optional<Error> failure_{};
    std::thread thread_;
};

// Waits for workers that dial in, which become ranks 1 to size - 1; a log line counts them. Errors:
// kTimeout (states how many connected), kCancelled, kIo (workers can't dial in any more).
Status GatherWorkers(DialIn& dial_in, int size, RankRegistry& registry, const Gathering& gathering);

}  // namespace weft::cluster
