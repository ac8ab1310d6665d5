// Workers that dial in: rank 0 listens for as long as its job lives, and a thread of its own takes
// in who proves the key (admission_listener.h). They wait here, silent, until a rank has no
// process: before the job begins, and after one was lost; or until the job makes room for
// newcomers. Of each waiting worker the end of its connection is noticed. Who comes to a job that
// runs is asked first whether it could be its rank (candidate_check.h); the thread sees to that,
// too, and sends away who could not. Thread: any.
#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "cluster/admission_listener.h"
#include "cluster/candidate_check.h"
#include "cluster/rank_registry.h"

namespace weft::cluster {

class DialIn {
  public:
    // Listens on "host:port" ("": every address and kWorkerPort) for ranks up to `most_rank`.
    // Errors: kUsage, kIo (the port is taken: says how to choose another).
    static Result<std::unique_ptr<DialIn>> Open(const std::string& listen, Bytes key,
                                                int64_t timeout_ms, int most_rank);
    // Hangs up on who waits.
    ~DialIn();

    uint16_t port() const { return port_; }
    // The worker that waits longest for one of these places, with its rank: the one it asks for, or
    // the first. Nullopt: nobody.
    std::optional<Arrival> Next(const std::vector<int>& places);
    // The same in a job that runs: of those who say that they could be that rank of `request`
    // (whose rank does not count). To be called again and again; who comes is asked.
    std::optional<Arrival> NextFit(const std::vector<int>& places, const JoinRequest& request);
    // Whom it last turned away, and why; "": nobody.
    std::string LastRefusal() const;
    // Why nobody can dial in any more; nullopt: they can.
    std::optional<Error> Failure() const;

    // How many of those who wait could be ranks `size`, `size` + 1, ... Nobody while others have
    // just come: they join together.
    int PendingJoiners(int size) const;
    // Asks the first `count` of them whether they could be ranks `size`, ... of `request` (whose
    // rank does not count). True: they all say so. To be called again and again.
    bool ValidateJoiners(int size, int count, const JoinRequest& request);
    // Of those who said so, up to `count` are to join: who they are. They still may leave.
    std::vector<std::string> Choose(int size, int count);
    // The chosen ones, with their ranks from `size` on.
    std::vector<Arrival> TakeChosen(int size);
    // They are no newcomers for as long as there are `size` ranks. Who they are.
    std::vector<std::string> RejectJoiners(int size);
    // A host whose worker could not join is no newcomer for a while, twice as long each time, until
    // it is forgiven.
    void Defer(const Arrival& arrival);
    void Forgive(const Arrival& arrival);

  private:
    struct Waiting {
        Arrival arrival;  // without its connection where it is screened
        int64_t since_ns = 0;
        int passed_over = 0;  // of how many ranks it was to be one more
        std::unique_ptr<CandidateCheck> check{};
        int chosen = 0;  // the rank that it is to be; 0: none yet
    };
    struct Deferral {
        int64_t until_ns = 0;
        int times = 0;
    };
    DialIn(Fd listener, uint16_t port, Bytes key, int64_t timeout_ms, int most_rank);
    void Serve();
    int64_t DeferLocked(const Arrival& arrival);
    std::optional<std::string> Judge(const DialHello& hello, bool proved) const;
    void DropTheGone();
    void TurnScreenings();
    int64_t NapMs() const;
    bool IsFit(Waiting& waiting, int rank, JoinRequest request);
    Arrival Take(size_t index, int rank);
    bool MayJoin(const Waiting& waiting, int size) const;
    std::vector<size_t> Joining(int size) const;

    Fd listener_;
    uint16_t port_;
    int most_rank_;
    int64_t timeout_ms_;
    AdmissionListener admission_;  // of the thread
    std::atomic<bool> ends_{false};
    mutable std::mutex mutex_;
    std::deque<Waiting> waiting_;
    std::map<std::string, Deferral> deferred_;  // by host
    std::string last_refusal_;
    std::optional<Error> failure_{};
    std::thread thread_;
};

// Ranks 1 to size - 1 are the workers that dial in; a line says how many are there. Errors:
// kTimeout (how many came), kCancelled, kIo (nobody can dial in any more).
Status GatherWorkers(DialIn& dial_in, int size, RankRegistry& registry, const Gathering& gathering);

}  // namespace weft::cluster
