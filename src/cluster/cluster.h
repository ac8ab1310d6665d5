// Cluster: the ranks of one job as processes of this program.
//
// Rank 0 is the process that the user started. The other ranks start in one of these ways:
// `--local N`: rank 0 spawns ranks 1..N-1 as children. `--hosts h1:port,h2:port`: the listening
// worker of each host (WorkerListener) runs one rank; rank i is the i-th host. `--expect-workers
// N`: N workers dial rank 0 (WorkerJoiner). A launcher (launched.h) starts all ranks itself.
// Control connections form a star around rank 0; both ends of each prove one shared key to each
// other (handshake.h). Data use the links of fabric().
//
// Membership. One control thread per process exchanges heartbeats. When a connection ends or a rank
// is silent for timeout_ms, rank 0 makes a *verdict*: every survivor has the same error text within
// timeout_ms + 1 s of the fault. A rank that loses rank 0 makes its own verdict. The first verdict
// of an epoch stands; a reported failure (ReportFailure) becomes a verdict.
//
// Epochs. With recovery, the loss of a rank other than 0 ends an epoch, not the job. The survivors
// enter the next epoch with NextEpoch. A new process takes the lost rank's place (rank 0 or the
// host's listening worker starts it, or a worker dials in), or the next epoch has fewer ranks. The
// loss of rank 0 ends the job, because the user talks to it. If workers dial in, rank 0 may end an
// epoch itself, to form one with more ranks (Admit); if that fails, the next epoch drops the new
// workers.
//
// The control thread ends a process whose main thread does not end by itself after a verdict
// (watchdog_ms), with the verdict's exit status, so no process hangs.
//
// The first calls of every rank:
//
//     rank 0:  WEFT_ASSIGN(auto cluster, Cluster::Launch(options, job));
//     worker:  WEFT_ASSIGN(auto cluster, Cluster::Join(handle));   // `weft worker --handle HANDLE`
//     or:      WEFT_ASSIGN(auto cluster, Cluster::JoinLaunched(launched));
//              RunJob(cluster->job(), *cluster);
//     both:    WEFT_TRY(cluster->Agree("model", fingerprint, Deadline::In(60'000)));
//     at the end, on all:  WEFT_TRY(cluster->Shutdown(Deadline::In(kShutdownMs)));
//     on an error, on any: return cluster->ReportFailure(error);   // ends the job on all ranks
//
// Thread: one thread calls the methods, except monitor() and RequestStop(), which any thread may
// call. The thread of Launch must live as long as the Cluster (the main thread): the kernel ties
// the children's life to it.
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

// How other ranks reach this host's data ports, if its addresses do not suffice.
struct DataPortOptions {
    std::string advertise;  // an address that leads here from other hosts; "": none
    std::string ports;      // ports for data listeners: "7001-7010"; "": any
    // Hosts heard on this host's cables (net::NeighboursText); they distinguish cables without
    // addresses. "": unknown.
    std::string neighbours{};
    // Sources of the current `neighbours`, read when an epoch begins: a function (may be null), or
    // the first line of a file ("": no file). An empty result means unknown.
    std::function<std::string()> neighbours_now{};
    std::string neighbours_file{};
};
// Errors: kUsage.
Status CheckDataPortOptions(const DataPortOptions& words);

struct ClusterOptions {
    int local = 1;                   // ranks on this machine, this process included
    std::vector<std::string> hosts;  // "host:port" of workers that listen; excludes local > 1
    std::vector<std::string> host_names{};  // names of these hosts; empty: as in `hosts`
    // May be null. Current addresses of a host's worker by the host's name, best first, for hosts
    // whose cables or addresses change. Thread: any, several at once; must not block.
    std::function<std::vector<std::string>(const std::string& name)> addresses_now{};
    Launched* launched = nullptr;  // ranks of a launcher; excludes both
    int wait_for = 0;              // number of workers that dial in (WorkerJoiner); excludes all of
                                   // these
    std::string listen;            // address for them: "host:port"; "": every address, kWorkerPort
    std::string key_file;          // the shared key; required for hosts and wait_for
    // Time for ranks of other hosts to come before the job begins. 0: hosts answer within three
    // quarters of timeout_ms, a launcher's ranks come within a minute, workers dial in within
    // kWaitForMs.
    int64_t wait_ms = 0;
    std::string transport = "auto";  // one of net::TransportNames()
    std::string rdma_device;         // for verbs: one for all ranks, or "A,B,C": one per rank
    int gid_index = -1;              // for verbs; -1: chosen
    std::string data_net;            // networks for data links: "10.0.1.0/24,eth2"; "": chosen
    DataPortOptions data;            // this host's options; its ports also apply to hosts that name
                                     // none
    bool verbose = false;            // log the links between ranks and their transports
    bool checksum = false;           // collectives verify every received message
    int64_t timeout_ms = 5000;       // silence after which a rank is lost; at least 200
    size_t window_bytes = 0;         // window of each link, per direction; 0: the default of net/
    // Rank 0's control thread ends the process this long after a verdict that the main thread did
    // not take; 0: never.
    int64_t watchdog_ms = 700;
    // Recovery. With either of these, the loss of a rank other than 0 ends the epoch, not the job.
    int64_t rejoin_ms = 0;  // how long to restart or call a lost rank; 0: not at all
    bool elastic = false;   // continue without ranks that do not return, and with ranks that join
    // May be null. How many of `ranks` ranks the next epoch can use (0: none); the others leave.
    std::function<int(int ranks)> usable_ranks{};
    // May be null. With elastic, when two ranks cannot reach each other and the job must begin with
    // fewer ranks: returns the job for the ranks `kept` of `ranks`, derived from `job`. The
    // Cluster's job() and size() are then those of the smaller job.
    std::function<Result<std::string>(const std::string& job, int ranks,
                                      const std::vector<int>& kept)>
        replan{};
    // A signal handler sets it to end all ranks, as RequestStop does (within 200 ms). Outlives the
    // Cluster.
    const std::atomic<bool>* stop = nullptr;
    // May be null. Rank 0 stores here the load progress of the slowest rank, in thousandths of its
    // weights; -1: none has begun.
    std::shared_ptr<std::atomic<int>> loaded{};
    // Arguments that start this program as a worker; "--handle HANDLE" is appended.
    std::vector<std::string> worker_arguments = {"worker"};
};

inline constexpr int64_t kWaitForMs = 600'000;
inline constexpr int64_t kMostWaitMs = int64_t{7} * 86'400'000;

// Checks the options alone (counts, host:port, transport, a key file if required). Errors: kUsage.
Status CheckOptions(const ClusterOptions& options);
// Number of ranks that the options ask for.
int RanksOf(const ClusterOptions& options);
// Whether ranks are on other hosts, as far as the options tell (a launcher's may be anywhere).
inline bool NamesHosts(const ClusterOptions& options) {
    return !options.hosts.empty() || options.wait_for > 0;
}

// A rank's machine.
struct HostInfo {
    std::string name;           // as in --hosts, else the system's host name
    std::string boot_id;        // equal: same running kernel, so shared memory is possible
    std::vector<int> cores;     // cores that the rank's process may use
    uint64_t memory_bytes = 0;  // available when the rank started
};

// The state after a recovery.
struct EpochInfo {
    int64_t epoch = 0;
    bool same_place = true;           // this rank kept its number, and the number of ranks is the
                                      // same
    std::vector<int> lost;            // rank 0: the lost ranks, by their old numbers
    std::string why;                  // rank 0: "rank 1 (host b, tcp) was lost during decode: ..."
    std::vector<std::string> joined;  // rank 0: workers that joined in this epoch
    std::string refused;              // rank 0: why the workers of an earlier attempt did not join
};

// Time for living ranks to leave when a job ends: freeing 100 GB takes seconds, and much longer on
// a busy machine. Heartbeats detect a silent rank sooner.
inline constexpr int64_t kShutdownMs = 60'000;

class Cluster {
  public:
    // Rank 0: starts or reaches all ranks, joins the links, returns once every rank is ready. job:
    // opaque to the cluster, at most 512 KiB; every rank reads it with job().
    // Errors: kUsage, kDenied (key, version), kPeerLost, kTimeout, kIo. With local = 1 and no
    // hosts, it uses neither threads nor sockets.
    static Result<std::unique_ptr<Cluster>> Launch(const ClusterOptions& options, std::string job);

    // Worker: `handle` is the word after --handle on its command line. validator: decides whether
    // this host could be a rank of a running job; null: it could. From here on this process holds
    // SIGINT, SIGTERM and SIGUSR1 (stop_signals.h) and ends through the control plane. Logs errors
    // that no other process can print; the caller only exits with the status.
    static Result<std::unique_ptr<Cluster>> Join(const std::string& handle,
                                                 const DataPortOptions& data = {},
                                                 const JoinValidator& validator = nullptr);

    // Ranks 1 and above of a launcher: the next job of rank 0. Null: no more jobs. Signals and
    // errors as for Join.
    static Result<std::unique_ptr<Cluster>> JoinLaunched(Launched& launched,
                                                         const DataPortOptions& data = {});

    // Tells the other ranks that this rank ends, unless Shutdown or a verdict came first. Rank 0
    // leaves no child behind.
    virtual ~Cluster() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual const std::string& job() const = 0;
    virtual const HostInfo& host(int rank) const = 0;
    // Cores that this rank may pin its threads to: its part of the machine's cores. With more ranks
    // than cores, every rank gets all cores and cores_shared() is true: do not pin threads, and do
    // not spin for long.
    virtual const std::vector<int>& cores() const = 0;
    virtual bool cores_shared() const = 0;
    virtual int64_t timeout_ms() const = 0;

    virtual net::Fabric& fabric() = 0;
    // Rank 0: the links between all ranks in this epoch. Empty on other ranks.
    virtual LinkTable links() const { return {}; }
    virtual net::PeerMonitor* monitor() = 0;  // this Cluster's monitor; null when size() is 1

    // progress: returns a number that grows while this rank works (ops done). The control thread
    // calls it about five times a second, until it is set to null. It must be cheap and safe on
    // that thread.
    virtual void SetProgress(std::function<int64_t()> progress) = 0;
    // The phase of the job, for error texts: "load", "prefill", "decode". A string literal.
    virtual void SetPhase(const char* phase) = 0;
    // Load progress of this rank, in thousandths of its weights.
    virtual void SetLoaded(int /*thousandths*/) {}

    // Collective calls: every rank makes the same calls in the same order. All of them end early
    // with the verdict when a rank is lost; their own failure becomes a verdict. A deadline
    // restarts when other ranks show progress, so a slow rank does not count as missing.
    //
    // value must equal rank 0's. kDenied names the first host that differs, and both values.
    virtual Status Agree(const std::string& name, const std::string& value,
                         const Deadline& deadline) = 0;
    // Small values (1 MiB for all ranks together) of every rank, by rank, on every rank.
    virtual Result<std::vector<std::string>> AllGather(const std::string& name,
                                                       const std::string& mine,
                                                       const Deadline& deadline) = 0;
    virtual Status Barrier(const std::string& name, const Deadline& deadline) = 0;
    // Ends the job in order, within `deadline` (kShutdownMs). Rank 0: tells all ranks, waits until
    // they ended, reaps its children. Worker: waits for rank 0's message. A worker that waits for
    // data when rank 0 shuts down gets kCancelled from monitor(); its Shutdown then succeeds.
    virtual Status Shutdown(const Deadline& deadline) = 0;

    // Ends the job on all ranks because this rank failed with `error`. Returns the cluster's
    // verdict: `error` itself, unless the loss of another rank explains it (the text names that
    // rank and its phase). The caller prints the verdict if should_report(), and exits with its
    // status.
    virtual Error ReportFailure(Error error) = 0;
    // Whether this process prints failures: rank 0, a rank of another host, and every rank after
    // the loss of rank 0.
    virtual bool should_report() const = 0;

    // Whether the job may recover from a loss (ClusterOptions::rejoin_ms, elastic), on every rank.
    virtual bool recovers() const = 0;
    // Every rank calls this after an error of a step, a link or a collective call, in place of
    // ReportFailure, once nothing uses fabric(). If the verdict is the loss of a rank other than 0,
    // the survivors form the next epoch: rank(), size(), job(), host(), cores() and fabric()
    // change, and messages of older epochs are dropped. Another loss meanwhile restarts the
    // transition, a few times. Otherwise the job is over; errors as ReportFailure.
    //
    // replan: rank 0 calls it for the next epoch: kept[i] is the old number of the new rank i, or a
    // number beyond the old size for a joining worker. size() and job() are still those of the old
    // epoch. Returns the job for these ranks; its error ends the job.
    using Replan = std::function<Result<std::string>(const std::vector<int>& kept)>;
    virtual Result<EpochInfo> NextEpoch(Error error, const Replan& replan) = 0;

    // Rank 0: the common properties of all ranks of this epoch, opaque to the cluster; joining
    // workers are compared with them (join_check.h). Cleared with the epoch.
    virtual void SetJoinFingerprint(std::string /*terms*/) {}
    // Rank 0 of an elastic job that waits for workers: number of workers that dialed in and could
    // be ranks of the next epoch. Cheap.
    virtual int PendingJoiners() const { return 0; }
    // Rank 0: asks the first `count` pending joiners whether they could be ranks size(), ... of
    // `job` (for size() + count ranks), while the current ranks work. True: all passed. Cheap; call
    // it again until it returns true or PendingJoiners() changes. A worker that does not pass is
    // rejected, the log has the reason, and for a while no worker of its host may join.
    virtual bool ValidateJoiners(int /*count*/, const std::string& /*job*/) { return true; }
    // Rank 0: PendingJoiners leaves out the waiting workers while the number of ranks stays; the
    // log has `why`. They may still take a lost rank's place.
    virtual void RejectJoiners(const std::string& /*why*/) {}
    // Rank 0, between two steps: ends the epoch so that up to `count` workers that passed
    // ValidateJoiners join. The error is for NextEpoch. OK: the workers have left and nothing has
    // changed.
    virtual Status Admit(int /*count*/) { return {}; }

    // Rank 0: the state of all ranks. Thread: any.
    virtual Membership Members() const { return {}; }
    // Rank 0 calls it when all ranks of the epoch are ready: rejoining ranks become kUp, and joined
    // ranks stay.
    virtual void NoteAllReady() {}

    // Asks all ranks to end: monitor()->Failed() becomes true with kCancelled. A signal handler may
    // call it.
    virtual void RequestStop() = 0;
    // Rank 0: whether the user asked to stop. Check it in code that runs long without waiting for
    // other ranks.
    virtual bool stop_requested() const = 0;
};

// `weft worker --listen HOST:PORT --key-file F`: serves one job after another, each in a new
// process, so that no job can harm the listener.
class WorkerListener {
  public:
    struct Options {
        std::string listen;  // "host:port"; port 0: any (see port())
        std::string key_file;
        std::vector<std::string> worker_arguments = {"worker"};  // as in ClusterOptions
        // Further arguments, read when a job begins; may be null.
        std::function<std::vector<std::string>()> more_arguments{};
    };
    // Errors: kUsage, kIo (address in use), kNotFound and kUnsupported (key file).
    static Result<std::unique_ptr<WorkerListener>> Open(const Options& options);
    virtual ~WorkerListener() = default;

    virtual int port() const = 0;
    // Serves until SIGINT or SIGTERM (it handles both), then ends a running job and returns.
    virtual Status Run() = 0;
};

// `weft worker --join HOST:PORT --key-file F`: dials a rank 0 that waits for workers
// (--expect-workers), serves its job in a separate process, and dials again, until it is asked to
// end.
class WorkerJoiner {
  public:
    struct Options {
        std::string join;  // "host:port" of rank 0
        std::string key_file;
        int rank = 0;         // the rank that it asks for; 0: any
        bool once = false;    // end after the first job, with its exit status
        int64_t wait_ms = 0;  // give up after this long without a job; 0: never
        std::vector<std::string> worker_arguments = {"worker"};  // as in ClusterOptions
    };
    // Errors: kUsage, kNotFound and kUnsupported (key file).
    static Result<std::unique_ptr<WorkerJoiner>> Open(const Options& options);
    virtual ~WorkerJoiner() = default;

    // Runs until SIGINT or SIGTERM (it handles both), then ends a running job. Returns the exit
    // status: 0, or with `once` that of the job. Errors: kTimeout (wait_ms), kDenied (with `once`:
    // rank 0 has another key or version), kIo.
    virtual Result<int> Run() = 0;
};

}  // namespace weft::cluster
