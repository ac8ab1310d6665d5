// Cluster: the ranks of one job as processes of this program, and what they know of each other.
//
// Rank 0 is the process that the user started. `--local N` spawns ranks 1..N-1 as children of it;
// `--hosts h1:port,h2:port` asks the listening worker of each host (WorkerListener) to run one
// rank: rank i is the i-th host; `--expect-workers N` lets N workers dial rank 0 (WorkerJoiner); a
// launcher (launched.h) starts all ranks itself. Control
// runs in a star around rank 0, over sockets whose two ends proved one shared key to each other
// (handshake.h); data runs over the links of fabric().
//
// Membership. One control thread a process exchanges heartbeats. A connection that ends, or a rank
// that is silent for timeout_ms, is a *verdict* of rank 0: every survivor has the same error text
// within timeout_ms + 1 s of the fault. A rank that loses rank 0 says so by itself. The first
// verdict of an epoch stands; a report of a failure (ReportFailure) becomes one.
//
// Epochs. Where recovery was asked for, the loss of a rank other than 0 ends an epoch, not the job:
// the survivors go on to the next with NextEpoch, with the lost rank's place taken by a new process
// (started here, or by the worker that listens on its host, or by one that dials in) or with fewer
// ranks. Rank 0 can't be lost: it is the one that the user talks to. Where workers dial in, rank 0
// may end an epoch itself, for one with more ranks (Admit); should that fail, the next one is
// without the newcomers again.
//
// A process whose main thread does not end by itself after a verdict is ended by its control
// thread (watchdog_ms), with the verdict's exit status: nobody hangs.
//
// The first lines of every rank's life:
//
//     rank 0:  WEFT_ASSIGN(auto cluster, Cluster::Launch(options, job));
//     worker:  WEFT_ASSIGN(auto cluster, Cluster::Join(handle));   // `weft worker --handle HANDLE`
//     or:      WEFT_ASSIGN(auto cluster, Cluster::JoinLaunched(launched));
//              RunJob(cluster->job(), *cluster);
//     both:    WEFT_TRY(cluster->Agree("model", fingerprint, Deadline::In(60'000)));
//     at the end, on all:  WEFT_TRY(cluster->Shutdown(Deadline::In(kShutdownMs)));
//     on an error, on any: return cluster->ReportFailure(error);   // ends the job on all ranks
//
// Thread: one thread calls the methods, but for monitor() and RequestStop(), which any thread may.
// Launch must be called on a thread that lives as long as the Cluster does (the main thread): the
// kernel ties the life of the children to it.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "cluster/join_check.h"
#include "cluster/links.h"
#include "cluster/members.h"
#include "net/link.h"

namespace weft::cluster {

class Launched;  // launched.h

// How others reach the data ports of this host, where its addresses don't say it.
struct DataPortOptions {
    std::string advertise;  // an address that leads here from other hosts; "": none
    std::string ports;      // that listeners for data may take: "7001-7010"; "": any
    // Hosts that were heard on its cables (net::NeighboursText): with them cables without any
    // address are told apart. "": not known.
    std::string neighbours{};
    // The same as it is now, asked when an epoch begins; "": not known. By a function, which may be
    // null, or as the first line of a file; "": there is none.
    std::function<std::string()> neighbours_now{};
    std::string neighbours_file{};
};
// Errors: kUsage.
Status CheckDataPortOptions(const DataPortOptions& words);

struct ClusterOptions {
    int local = 1;                   // ranks on this machine, this process included
    std::vector<std::string> hosts;  // "host:port" of workers that listen; excludes local > 1
    std::vector<std::string> host_names{};  // how these are called; empty: as `hosts` has them
    // May be null. By its name, where the worker of a host is called now, best first: for hosts
    // that have other cables, or addresses that change. Thread: any, several; answers at once.
    std::function<std::vector<std::string>(const std::string& name)> addresses_now{};
    Launched* launched = nullptr;  // the ranks are those of a launcher; excludes both
    int wait_for = 0;              // workers that dial in (WorkerJoiner); excludes all of these
    std::string listen;            // where: "host:port"; "": every address, kWorkerPort
    std::string key_file;          // the shared key; needed with hosts and wait_for
    // How long ranks of other hosts may take to come before the job begins. 0: hosts answer within
    // three quarters of timeout_ms, a launcher's ranks come in a minute, workers dial in within
    // kWaitForMs.
    int64_t wait_ms = 0;
    std::string transport = "auto";  // of net::TransportNames()
    std::string rdma_device;         // for verbs: one for all ranks, or "A,B,C": one a rank
    int gid_index = -1;              // for verbs; -1: chosen
    std::string data_net;            // networks for data links: "10.0.1.0/24,eth2"; "": chosen
    DataPortOptions data;            // of this host; the ports also of hosts that say none
    bool verbose = false;            // the log says who is linked to whom, over what
    bool checksum = false;           // collectives check every message that comes in
    int64_t timeout_ms = 5000;       // silence after which a rank is lost; 200 at least
    size_t window_bytes = 0;         // of each link, one way; 0: the default of net/
    // Rank 0 ends itself so long after a verdict that its main thread did not take; 0: never.
    int64_t watchdog_ms = 700;
    // Recovery. With one of these, the loss of a rank other than 0 ends the epoch, not the job.
    int64_t rejoin_ms = 0;  // a lost rank is started or called again, for so long; 0: it is not
    bool elastic = false;   // go on without a rank that does not come back, and with newcomers
    // May be null. Of so many ranks, how many the next epoch can have (0: none); the others leave.
    std::function<int(int ranks)> usable_ranks{};
    // May be null. Elastic: the job for the ranks `kept` out of `ranks`, out of `job`, where the
    // job must begin with fewer ranks than asked for, as two of them cannot reach each other. The
    // Cluster's job() and size() then are those of the smaller job.
    std::function<Result<std::string>(const std::string& job, int ranks,
                                      const std::vector<int>& kept)>
        replan{};
    // Set by a signal handler, it asks all ranks to end, like RequestStop (within 200 ms). Outlives
    // the Cluster.
    const std::atomic<bool>* stop = nullptr;
    // May be null. Rank 0 keeps here how much of its weights the slowest rank has loaded, in
    // thousandths; -1: none has begun.
    std::shared_ptr<std::atomic<int>> loaded{};
    // How this program is started as a worker; "--handle HANDLE" is appended.
    std::vector<std::string> worker_arguments = {"worker"};
};

inline constexpr int64_t kWaitForMs = 600'000;
inline constexpr int64_t kMostWaitMs = int64_t{7} * 86'400'000;

// Checks the words of the user alone (counts, host:port, transport, a key file where one is
// needed). Errors: kUsage.
Status CheckOptions(const ClusterOptions& options);
// How many ranks they ask for.
int RanksOf(const ClusterOptions& options);
// Whether ranks are on other hosts, as far as the options say (a launcher's may be anywhere).
inline bool NamesHosts(const ClusterOptions& options) {
    return !options.hosts.empty() || options.wait_for > 0;
}

// What a rank's machine is.
struct HostInfo {
    std::string name;           // as the user wrote it in --hosts, else the system's host name
    std::string boot_id;        // equal: the same running kernel, so shared memory is possible
    std::vector<int> cores;     // that the rank's process may use
    uint64_t memory_bytes = 0;  // available when the rank started
};

// How the job goes on after a loss.
struct EpochInfo {
    int64_t epoch = 0;
    bool same_place = true;           // this rank has the number that it had, and there are as many
    std::vector<int> lost;            // rank 0: who was lost, by the numbers of the old epoch
    std::string why;                  // rank 0: "rank 1 (host b, tcp) was lost during decode: ..."
    std::vector<std::string> joined;  // rank 0: the newcomers of this epoch
    std::string refused;              // rank 0: why those of an attempt before are not in it
};

// How long living ranks may take to leave when a job is over: to give back 100 GB takes seconds, on
// a busy machine many. One that is silent is lost sooner, by its heartbeats.
inline constexpr int64_t kShutdownMs = 60'000;

class Cluster {
  public:
    // On rank 0: starts or reaches all ranks, joins the links, returns once every rank is ready.
    // job: opaque to the cluster, at most 512 KiB; every rank reads it with job().
    // Errors: kUsage, kDenied (key, version), kPeerLost, kTimeout, kIo.
    // With local = 1 and no hosts: no thread, no socket, nothing to fail.
    static Result<std::unique_ptr<Cluster>> Launch(const ClusterOptions& options, std::string job);

    // On a worker: `handle` is the word after --handle on its command line. examiner: answers for
    // this host where a job that runs asks whether it could be a rank of it; null: it could. From
    // here on this process holds SIGINT, SIGTERM and SIGUSR1 (stop_signals.h) and ends through the
    // control plane. An error that nobody else can print is logged here: the caller only leaves
    // with its exit status.
    static Result<std::unique_ptr<Cluster>> Join(const std::string& handle,
                                                 const DataPortOptions& data = {},
                                                 const JoinValidator& validator = nullptr);

    // On rank 1 and above of a launcher's: the next job of rank 0. Null: there is no more. Signals
    // and errors as for Join.
    static Result<std::unique_ptr<Cluster>> JoinLaunched(Launched& launched,
                                                         const DataPortOptions& data = {});

    // Tells the others, if there was neither Shutdown nor a verdict. Rank 0 leaves no child behind.
    virtual ~Cluster() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual const std::string& job() const = 0;
    virtual const HostInfo& host(int rank) const = 0;
    // The cores that this rank may pin its threads to: this machine's, shared out over its ranks.
    // With more ranks than cores every rank gets all of them, and cores_shared() is true: do not
    // pin, do not spin for long.
    virtual const std::vector<int>& cores() const = 0;
    virtual bool cores_shared() const = 0;
    virtual int64_t timeout_ms() const = 0;

    virtual net::Fabric& fabric() = 0;
    // Rank 0: how all ranks are linked in this epoch. Elsewhere empty.
    virtual LinkTable links() const { return {}; }
    virtual net::PeerMonitor* monitor() = 0;  // of this Cluster; null when size() is 1

    // A number that grows while this rank works (ops done). Called from the control thread about
    // five times a second, until it is set to null; must be cheap and safe to call from there.
    virtual void SetProgress(std::function<int64_t()> progress) = 0;
    // What the job is doing, for error texts: "load", "prefill", "decode". A string literal.
    virtual void SetPhase(const char* phase) = 0;
    // How much of its weights this rank has loaded, of 1000.
    virtual void SetLoaded(int /*thousandths*/) {}

    // Collective calls: every rank makes the same ones in the same order. All of them end early
    // with the verdict when a rank is lost, and make one of a failure of their own. A deadline
    // counts from when other ranks last showed progress: one that is slow is not missing.
    //
    // value must equal rank 0's. kDenied names the first host that differs, and both values.
    virtual Status Agree(const std::string& name, const std::string& value,
                         const Deadline& deadline) = 0;
    // Small values (1 MiB for all ranks together) of every rank, by rank, on every rank.
    virtual Result<std::vector<std::string>> AllGather(const std::string& name,
                                                       const std::string& mine,
                                                       const Deadline& deadline) = 0;
    virtual Status Barrier(const std::string& name, const Deadline& deadline) = 0;
    // The clean end, within `deadline` (kShutdownMs). Rank 0: tells all, waits until they ended,
    // reaps its children. Worker: waits for rank 0's word. A worker that waits for data when rank 0
    // shuts down gets kCancelled from monitor(); its Shutdown then succeeds.
    virtual Status Shutdown(const Deadline& deadline) = 0;

    // This rank cannot go on because of `error`: ends the job on all ranks. Returns the cluster's
    // verdict, which is `error` itself unless another rank's loss explains it (then it says which,
    // during what). The caller prints it if should_report(), and leaves with its exit status.
    virtual Error ReportFailure(Error error) = 0;
    // Whether this process prints failures: rank 0, a rank of another host, and every rank when
    // it is rank 0 that was lost.
    virtual bool should_report() const = 0;

    // Whether a loss may be got over (ClusterOptions::rejoin_ms, elastic), on every rank.
    virtual bool recovers() const = 0;
    // Every rank calls it after an error of a step, a link or a collective call, in place of
    // ReportFailure, once nothing uses fabric() any more. Where the verdict is the loss of a rank
    // other than 0, the survivors form the next epoch: rank(), size(), job(), host(), cores() and
    // fabric() are those of the next one, and no message of an older one is believed. A loss on the
    // way starts it again, a few times. Otherwise the job is over: the error is as ReportFailure's.
    //
    // replan: on rank 0, called for the next epoch: kept[i] is the old number of the new rank i, or
    // one beyond the old size for a newcomer. size() and job() are still those of the old epoch.
    // Returns the job for them; its error ends the job.
    using Replan = std::function<Result<std::string>(const std::vector<int>& kept)>;
    virtual Result<EpochInfo> NextEpoch(Error error, const Replan& replan) = 0;

    // Rank 0: what all ranks of this epoch have in common, opaque: who wants to join is compared
    // with it (join_check.h). Forgotten with the epoch.
    virtual void SetJoinFingerprint(std::string /*terms*/) {}
    // Rank 0 of a job that is elastic and waits for workers: how many more have dialled in, and
    // could be ranks of the next epoch. Cheap.
    virtual int PendingJoiners() const { return 0; }
    // Rank 0: asks the first `count` of them whether they could be ranks size(), ... of this job
    // for size() + count ranks, while the others work. True: all of them said so. Cheap; to be
    // called again until then, or until PendingJoiners() is another number: who could not be a rank
    // is sent away with the reason, which goes to the log, and for a while its host has no
    // newcomer.
    virtual bool ValidateJoiners(int /*count*/, const std::string& /*job*/) { return true; }
    // Rank 0: those that wait now are left out of PendingJoiners for as long as there are as many
    // ranks; `why` goes to the log. They still may take a lost rank's place.
    virtual void RejectJoiners(const std::string& /*why*/) {}
    // Rank 0, between two steps: ends the epoch so that up to `count` of those that ValidateJoiners
    // found fit join. The error is for NextEpoch. OK: they have left meanwhile, and nothing has
    // happened.
    virtual Status Admit(int /*count*/) { return {}; }

    // Rank 0: how all ranks are. Thread: any.
    virtual Membership Members() const { return {}; }
    // Rank 0: all ranks of the epoch are ready; those that were rejoining are up, newcomers stay.
    virtual void NoteAllReady() {}

    // Asks all ranks to end: monitor()->Failed() becomes true with kCancelled. May be called from
    // a signal handler.
    virtual void RequestStop() = 0;
    // Rank 0: whether the user asked to stop. What runs without waiting for others looks at it.
    virtual bool stop_requested() const = 0;
};

// `weft worker --listen HOST:PORT --key-file F`: serves one job after another, each in a fresh
// process, so that nothing a job does harms the listener.
class WorkerListener {
  public:
    struct Options {
        std::string listen;  // "host:port"; port 0: any (then `port()` tells)
        std::string key_file;
        std::vector<std::string> worker_arguments = {"worker"};  // as in ClusterOptions
        // What is added to these, asked when a job begins; may be null.
        std::function<std::vector<std::string>()> more_arguments{};
    };
    // Errors: kUsage, kIo (address in use), kNotFound and kUnsupported (key file).
    static Result<std::unique_ptr<WorkerListener>> Open(const Options& options);
    virtual ~WorkerListener() = default;

    virtual int port() const = 0;
    // Serves until SIGINT or SIGTERM (which it takes over), then ends a running job and returns.
    virtual Status Run() = 0;
};

// `weft worker --join HOST:PORT --key-file F`: dials a rank 0 that waits for workers
// (--expect-workers), serves its job in a process of its own, and dials again: until it is asked to
// end.
class WorkerJoiner {
  public:
    struct Options {
        std::string join;  // "host:port" of rank 0
        std::string key_file;
        int rank = 0;         // that it asks to be; 0: any
        bool once = false;    // end with the first job, and its status
        int64_t wait_ms = 0;  // give up where nobody had a job for so long; 0: never
        std::vector<std::string> worker_arguments = {"worker"};  // as in ClusterOptions
    };
    // Errors: kUsage, kNotFound and kUnsupported (key file).
    static Result<std::unique_ptr<WorkerJoiner>> Open(const Options& options);
    virtual ~WorkerJoiner() = default;

    // Until SIGINT or SIGTERM (which it takes over), then ends a running job and returns. The exit
    // status: 0, or with `once` that of the job. Errors: kTimeout (wait_ms), kDenied (with `once`:
    // rank 0 has another key or version), kIo.
    virtual Result<int> Run() = 0;
};

}  // namespace weft::cluster
