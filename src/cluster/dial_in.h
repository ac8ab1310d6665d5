// Workers that dial in: rank 0 listens for as long as its job lives, and a thread of its own takes
// in who proves the key (door.h). They wait here, silent, until a rank has no process: before the
// job begins, and after one was lost; or until the job makes room for newcomers. Of each waiting
// worker the end of its connection is noticed.
// Thread: any.
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

#include "cluster/company.h"
#include "cluster/door.h"

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
    // Whom it last turned away, and why; "": nobody.
    std::string LastRefusal() const;
    // Why nobody can dial in any more; nullopt: they can.
    std::optional<Error> Failure() const;

    // How many of those who wait could be ranks `size`, `size` + 1, ... Nobody while others have
    // just come: they join together.
    int Newcomers(int size) const;
    // Up to `count` of them, with their ranks.
    std::vector<Arrival> TakeNewcomers(int size, int count);
    // They are no newcomers for as long as there are `size` ranks. Who they are.
    std::vector<std::string> PassOver(int size);
    // A host whose worker could not join is no newcomer for a while, twice as long each time, until
    // it is forgiven.
    void Defer(const Arrival& arrival);
    void Forgive(const Arrival& arrival);

  private:
    struct Waiting {
        Arrival arrival;
        int64_t since_ns = 0;
        int passed_over = 0;  // of how many ranks it was to be one more
    };
    struct Deferral {
        int64_t until_ns = 0;
        int times = 0;
    };
    DialIn(Fd listener, uint16_t port, Bytes key, int64_t timeout_ms, int most_rank);
    void Serve();
    std::optional<std::string> Judge(const DialHello& hello) const;
    void DropTheGone();
    bool MayJoin(const Waiting& waiting, int size) const;
    std::vector<size_t> Joining(int size) const;

    Fd listener_;
    uint16_t port_;
    int most_rank_;
    Door door_;  // of the thread
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
Status GatherWorkers(DialIn& door, int size, Company& company, const Gathering& gathering);

}  // namespace weft::cluster
