// HostRecall: rank 0 of an elastic job over named hosts (--hosts, --cluster) dials the hosts that
// are not ranks of the job now, until their workers answer. A worker that answers waits in DialIn
// until the job admits it, like a worker that dialed in, or is sent away (Rest). Thread: any.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "cluster/join/dial_in.h"

namespace weft::cluster {

// A host of the job, whether or not it is a rank now.
struct NamedHost {
    std::string name;     // in messages; unique within the job
    std::string called;   // its name for ClusterOptions::addresses_now; "": none
    std::string address;  // "host:port" of its worker, as last used
};

class HostRecall {
  public:
    struct Options {
        Bytes key;
        int64_t timeout_ms = 5000;
        uint64_t ticket = 0;  // of the job, in the workers' lines
        // All current addresses of the host's worker. Called on the thread; must not block.
        std::function<std::vector<std::string>(const NamedHost&)> ways{};
        // Names of further hosts to dial. May be null. Called like `ways`.
        std::function<std::vector<std::string>()> new_hosts{};
    };
    // waiting: gets the workers that answer; must outlive this object.
    HostRecall(DialIn& waiting, Options options);
    // Begins to dial. Errors: kIo.
    Status Start();
    ~HostRecall();
    HostRecall(const HostRecall&) = delete;
    HostRecall& operator=(const HostRecall&) = delete;

    // From now on, dials each host of `known` that is not in `members` (by name). Replaces the
    // lists of the last call. Also dials the hosts of Options::new_hosts.
    void Call(std::vector<NamedHost> known, std::vector<std::string> members);
    // Dials no host until the next Call. No worker is added to DialIn afterwards.
    void Pause();
    // The workers of these hosts were sent away. The hosts are dialed again with the next host that
    // answers, because the job may have use for all of them together, or after some minutes.
    void Rest(const std::vector<std::string>& hosts);
    // A host has answered in the present round of calls; others may follow.
    bool gathers() const { return gathers_; }

  private:
    void Serve();
    std::vector<NamedHost> Absent() const;
    bool EndRest();
    void Dial(const NamedHost& host);
    bool ShouldDial(const NamedHost& host) const;
    bool Nap(int64_t ms) const;
    void Explain(const NamedHost& host, const Error& error);

    DialIn& waiting_;
    const Options options_;
    const Fd cancel_;  // readable: the thread ends
    mutable std::mutex mutex_;
    bool calls_ = false;
    std::vector<NamedHost> known_;
    std::vector<std::string> members_;
    std::set<std::string> resting_;    // names of hosts, since the last Call
    Deadline rest_ = Deadline::In(0);  // of the resting hosts
    std::atomic<bool> gathers_{false};
    // Thread only: hosts whose worker refused for good, until when, and what was logged.
    struct Refusal {
        Deadline until = Deadline::In(0);
        std::string told{};
    };
    std::map<std::string, Refusal> refused_;
    std::thread thread_;
};

}  // namespace weft::cluster
