// Cluster: the ranks of one job. Each rank is a process of this program.
//
// Rank 0 is the process that the user started. The other ranks start in one of these ways:
// `--local N`: rank 0 spawns ranks 1..N-1 as children. `--hosts h1:port,h2:port`: the listening
// worker of each host (WorkerListener) runs one rank; rank i is the i-th host. `--expect-workers
// N`: N workers dial rank 0 (WorkerJoiner). A launcher (launched.h) starts all ranks itself. Every
// other rank has a control connection to rank 0; both ends prove to each other that they have the
// shared key (handshake.h). Data travels over the links of fabric().
//
// Membership. One control thread per process exchanges heartbeats. When a connection ends or a rank
// is silent for timeout_ms, rank 0 decides on a *verdict*, the error with which the job or epoch
// ends on all ranks. Every remaining rank has the verdict within timeout_ms + 1 s of the fault. A
// failure that a rank reports (ReportFailure) becomes a verdict, too. A rank that loses rank 0
// makes its own verdict. Only the first verdict of an epoch counts.
//
// Epochs. With recovery, the loss of a rank other than 0 ends an epoch, not the job. The remaining
// ranks (survivors) enter the next epoch with NextEpoch. A new process replaces the lost rank (rank
// 0 or the host's listening worker starts it, or a worker dials in), or the next epoch has fewer
// ranks. The loss of rank 0 ends the job, because the user's program is rank 0. If workers dial in,
// rank 0 may end an epoch itself, to form an epoch with more ranks (Admit). If that fails, the
// epoch after it is formed without the new workers.
//
// If a process's main thread does not end the process after a verdict, the control thread ends it
// (watchdog_ms), with the verdict's exit status. So no process hangs.
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
// call. The thread that calls Launch must exist as long as the Cluster (so it is the main thread):
// when that thread ends, the kernel kills the child processes.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/folder_limit.h"
#include "base/result.h"
#include "cluster/join/join_check.h"
#include "cluster/links.h"
#include "cluster/members.h"
#include "cluster/worker/memory_claims.h"
#include "net/link.h"

namespace weft::cluster {

class Launched;  // launched.h

// How other ranks reach this host's data ports, if its addresses do not suffice.
struct DataPortOptions {
    std::string advertise;  // an address that leads here from other hosts; "": none
    std::string ports;      // ports for data listeners: "7001-7010"; "": any
    // Hosts that discovery found on this host's cables (net::NeighboursText). The list shows which
    // hosts are on the same cable, which link-local addresses do not. "": unknown.
    std::string neighbours{};
    // The source of the current `neighbours` when an epoch begins: a function (may be null), or the
    // first line of a file ("": no file). An empty result means unknown.
    std::function<std::string()> neighbours_now{};
    std::string neighbours_file{};
};
// Errors: kUsage.
Status CheckDataPortOptions(const DataPortOptions& words);

struct ClusterOptions {
    int local = 1;                   // number of ranks on this machine, including this process
    std::vector<std::string> hosts;  // "host:port" of listening workers, or paths to them
                                     // (dial.h); requires local = 1
    std::vector<std::string> host_names{};  // names of these hosts; empty: those in `hosts`
    // Returns the current addresses of the worker on host `name`, best first, for hosts whose
    // cables or addresses change. May be null. Called on any thread, by several at once; must not
    // block.
    std::function<std::vector<std::string>(const std::string& name)> addresses_now{};
    // With elastic: returns the hosts whose workers may join although the job did not begin with
    // them. If null, no worker may join. Called like addresses_now.
    std::function<std::vector<std::string>()> new_hosts{};
    Launched* launched = nullptr;  // set if a launcher started the ranks; requires local = 1 and no
                                   // hosts
    int wait_for = 0;              // number of workers that dial in (WorkerJoiner); excludes the
                                   // ways above
    std::string listen;            // address that these workers dial, "host:port"; "": every
                                   // address, kWorkerPort
    std::string key_file;          // the shared key; required for hosts and wait_for
    // How long rank 0 waits for ranks of other hosts before the job begins. 0: three quarters of
    // timeout_ms for hosts, a minute for a launcher's ranks, kWaitForMs for workers that dial in.
    int64_t wait_ms = 0;
    std::string transport = "auto";  // one of net::TransportNames()
    std::string rdma_device;         // for verbs: one for all ranks, or "A,B,C": one per rank
    int gid_index = -1;              // for verbs; -1: chosen
    std::string data_net;            // networks for data links: "10.0.1.0/24,eth2"; "": chosen
    DataPortOptions data;            // options of this host; its ports also apply to hosts that
                                     // name none
    bool verbose = false;            // log the links between ranks and their transports
    bool checksum = false;           // collectives verify every received message
    bool plain_links = false;        // tcp links between hosts are not encrypted
    int64_t timeout_ms = 5000;       // a rank that is silent for this time is lost; at least 200
    size_t window_bytes = 0;         // window of each link, per direction; 0: the default of net/
    // Rank 0: if the main thread does not react to a verdict within this time, the control thread
    // ends the process; 0: never.
    int64_t watchdog_ms = 700;
    // Recovery. If rejoin_ms or elastic is set, the loss of a rank other than 0 ends the epoch, not
    // the job.
    int64_t rejoin_ms = 0;  // how long to try to start or dial a lost rank again; 0: do not try
    bool elastic = false;   // continue without ranks that do not return, and with ranks that join
    // Returns how many of `ranks` ranks the next epoch can use (0: none); the other ranks leave.
    // May be null.
    std::function<int(int ranks)> usable_ranks{};
    // Returns the data links that `job` needs with `ranks` ranks. If null, each rank needs a link
    // to each other rank.
    std::function<LinkNeeds(const std::string& job, int ranks)> links_of{};
    // Whether errors of the first links name the layouts that need fewer.
    bool names_layouts = false;
    // With elastic: called if two ranks cannot reach each other, so that the job must begin with
    // fewer ranks. Returns `job`, changed for the ranks `kept` of `ranks` ranks. The Cluster then
    // has the job() and size() of the smaller job. May be null.
    std::function<Result<std::string>(const std::string& job, int ranks,
                                      const std::vector<int>& kept)>
        replan{};
    // When true, all ranks end, as after RequestStop, within 200 ms. A signal handler may set it.
    // Must outlive the Cluster.
    const std::atomic<bool>* stop = nullptr;
    // Rank 0 stores here how far the slowest rank has loaded its weights, in thousandths; -1: not
    // begun. May be null.
    std::shared_ptr<std::atomic<int>> loaded{};
    // Arguments that start this program as a worker; "--handle HANDLE" is appended.
    std::vector<std::string> worker_arguments = {"worker"};
};

inline constexpr int64_t kWaitForMs = 600'000;
inline constexpr int64_t kMostWaitMs = int64_t{7} * 86'400'000;

// Checks the options without contacting hosts (counts, host:port, transport, a key file if
// required). Errors: kUsage.
Status CheckOptions(const ClusterOptions& options);
// Number of ranks that the options request.
int RanksOf(const ClusterOptions& options);
// Whether the options name other hosts or workers. (The ranks of a launcher may be on any host.)
inline bool NamesHosts(const ClusterOptions& options) {
    return !options.hosts.empty() || options.wait_for > 0;
}

// A rank's machine.
struct HostInfo {
    std::string name;           // as in --hosts, else the system's host name
    std::string boot_id;        // equal: same running kernel; the host name, if the kernel hides it
    std::vector<int> cores;     // ids of the cores that the rank's process may use
    uint64_t memory_bytes = 0;  // most that was available when an epoch began
    std::string memory_group{};  // the control group whose limit memory_bytes is; "": none
    uint64_t total_bytes = 0;    // memory of the whole machine; 0: unknown
};
// The machine of this process, whose rank may use these cores.
HostInfo ThisHost(const std::vector<int>& cores);

// The result of NextEpoch.
struct EpochInfo {
    int64_t epoch = 0;
    std::vector<int> lost;            // rank 0: the lost ranks, by their old numbers
    std::string why;                  // rank 0: "rank 1 (host b, tcp) was lost during decode: ..."
    std::vector<std::string> joined;  // rank 0: workers that joined in this epoch
    std::string refused;              // rank 0: why workers that tried to join could not
};

// How long Shutdown waits for ranks to end: freeing 100 GB takes seconds, and much longer on a busy
// machine. (Heartbeats detect a silent rank sooner.)
inline constexpr int64_t kShutdownMs = 60'000;

class Cluster {
  public:
    // Rank 0: starts or dials all ranks, connects the links, and returns when every rank is ready.
    // job: a text of at most 512 KiB that the cluster does not interpret; every rank gets it from
    // job().
    // Errors: kUsage, kDenied (key, version), kPeerLost, kTimeout, kIo. A job of one rank uses
    // neither threads nor sockets.
    static Result<std::unique_ptr<Cluster>> Launch(const ClusterOptions& options, std::string job);

    // Worker: `handle` is the word after --handle on its command line. validator: decides whether
    // this host could be a rank of a running job; null: it always could. folders: see folders().
    // From now on SIGINT, SIGTERM and SIGUSR1 are blocked in this process (stop_signals.h), and a
    // message on its control connection ends it. Logs errors that no other process can print; the
    // caller only exits with the error's status.
    static Result<std::unique_ptr<Cluster>> Join(const std::string& handle,
                                                 const DataPortOptions& data = {},
                                                 const JoinValidator& validator = nullptr,
                                                 const FolderLimit& folders = {});

    // Ranks 1 and above of a launcher: joins the next job of rank 0. Returns null if there are no
    // more jobs. Signals and errors are as for Join.
    static Result<std::unique_ptr<Cluster>> JoinLaunched(Launched& launched,
                                                         const DataPortOptions& data = {});

    // Tells the other ranks that this rank ends, if neither Shutdown nor a verdict has. Rank 0 ends
    // all its child processes.
    virtual ~Cluster() = default;

    virtual int rank() const = 0;
    virtual int size() const = 0;
    virtual const std::string& job() const = 0;
    // The folders in which this process may open and create files that rank 0 names.
    const FolderLimit& folders() const { return folders_; }
    // The memory of this host that the other jobs of the worker have claimed.
    const MemoryClaims& claims() const { return claims_; }
    void SetClaims(MemoryClaims claims) { claims_ = std::move(claims); }
    virtual const HostInfo& host(int rank) const = 0;
    // Ids of the cores to which this rank may pin its threads: its part of the machine's cores. If
    // there are more ranks than cores, every rank gets all cores and cores_shared() is true; then
    // do not pin threads, and do not spin for long.
    virtual const std::vector<int>& cores() const = 0;
    virtual bool cores_shared() const = 0;
    virtual int64_t timeout_ms() const = 0;

    // Has no link to a rank that the job does not need, or that this rank does not reach
    // (LinkNeeds).
    virtual net::Fabric& fabric() = 0;
    // Rank 0: the links between the ranks in this epoch. Empty on other ranks.
    virtual LinkTable links() const { return {}; }
    virtual net::PeerMonitor* monitor() = 0;  // this Cluster's monitor; null when size() is 1

    // progress: returns a number that grows while this rank works (such as the number of ops done).
    // The control thread calls `progress` about five times a second, until SetProgress(nullptr). It
    // must be cheap and safe on that thread.
    virtual void SetProgress(std::function<int64_t()> progress) = 0;
    // The phase of the job, for error texts: "load", "prefill", "decode". A string literal.
    virtual void SetPhase(const char* phase) = 0;
    // Load progress of this rank, in thousandths of its weights.
    virtual void SetLoaded(int /*thousandths*/) {}

    // Collective calls: every rank makes the same calls in the same order. When a rank is lost,
    // these calls fail at once with the verdict. If a call fails for another reason, that error
    // becomes the verdict. A deadline restarts when other ranks make progress, so a slow rank does
    // not count as missing.
    //
    // Checks that `value` is the same on all ranks. Errors: kDenied; the message has the first host
    // whose value differs from rank 0's, and both values.
    virtual Status Agree(const std::string& name, const std::string& value,
                         const Deadline& deadline) = 0;
    // Returns the values `mine` of all ranks, by rank, on every rank. Errors: kUnsupported, without
    // a verdict, on every rank: the values have more than 64 MiB together.
    virtual Result<std::vector<std::string>> AllGather(const std::string& name,
                                                       const std::string& mine,
                                                       const Deadline& deadline) = 0;
    virtual Status Barrier(const std::string& name, const Deadline& deadline) = 0;
    // Ends the job without an error; deadline: kShutdownMs from now. Rank 0 notifies all ranks,
    // waits until they have ended, and reaps its child processes. A worker waits for rank 0's
    // message. A worker that waits for data when rank 0 shuts down gets kCancelled from monitor();
    // its Shutdown then succeeds.
    virtual Status Shutdown(const Deadline& deadline) = 0;

    // Ends the job on all ranks because this rank failed with `error`. Returns the verdict: `error`
    // itself or, if the loss of another rank explains it, an error that names that rank and its
    // phase. The caller prints the verdict if should_report(), and exits with the verdict's status.
    virtual Error ReportFailure(Error error) = 0;
    // Whether this process prints failures: rank 0, a rank of another host, and every rank after
    // the loss of rank 0.
    virtual bool should_report() const = 0;

    // Whether the job may recover from a loss (ClusterOptions::rejoin_ms, elastic), on every rank.
    virtual bool recovers() const = 0;
    // Every rank calls this instead of ReportFailure after an error of a step, a link or a
    // collective call, when nothing uses fabric() any more. If the verdict is the loss of a rank
    // other than 0, the survivors form the next epoch: rank(), size(), job(), host(), cores() and
    // fabric() change, and messages of older epochs are dropped. If another rank is lost meanwhile,
    // NextEpoch starts again, a few times. With any other verdict the job has ended; errors are as
    // for ReportFailure.
    //
    // replan: rank 0 calls it to get the job for the next epoch. kept[i] is the old number of the
    // new rank i; for a worker that joins, it is at least the old size. size() and job() still
    // belong to the old epoch. An error of `replan` ends the job.
    using Replan = std::function<Result<std::string>(const std::vector<int>& kept)>;
    virtual Result<EpochInfo> NextEpoch(Error error, const Replan& replan) = 0;

    // Rank 0: sets the properties that all ranks of this epoch share, and that workers must match
    // to join (join_check.h). The cluster does not interpret the text, and clears it when the epoch
    // ends.
    virtual void SetJoinFingerprint(std::string /*terms*/) {}
    // Rank 0 of an elastic job for which workers dial in: number of waiting workers that could be
    // ranks of the next epoch. Cheap.
    virtual int PendingJoiners() const { return 0; }
    // Rank 0: checks whether the first `count` of these workers could be ranks size(), size() + 1,
    // ... of `job`, which is for size() + count ranks. The current ranks work meanwhile. Returns
    // true once all workers have passed. Cheap; call it again until it returns true or
    // PendingJoiners() changes. A worker that does not pass is rejected and the reason logged; for
    // a while, no worker of its host may join.
    virtual bool ValidateJoiners(int /*count*/, const std::string& /*job*/) { return true; }
    // Rank 0: PendingJoiners ignores the workers that wait now, as long as the number of ranks
    // stays the same. Logs `why`. These workers may still replace a lost rank.
    virtual void RejectJoiners(const std::string& /*why*/) {}
    // Rank 0, between two steps: ends the epoch so that up to `count` workers that passed
    // ValidateJoiners can join. Returns an error to pass to NextEpoch. OK: the workers have left,
    // and the epoch continues.
    virtual Status Admit(int /*count*/) { return {}; }

    // Rank 0: the state of all ranks. Thread: any.
    virtual Membership Members() const { return {}; }
    // Rank 0 calls it when all ranks of the epoch are ready. Ranks in state kRejoining become kUp,
    // and ranks that joined are no longer removed if the epoch fails.
    virtual void NoteAllReady() {}

    // Asks all ranks to end: monitor()->Failed() becomes true with kCancelled. A signal handler may
    // call it.
    virtual void RequestStop() = 0;
    // Rank 0: whether the user requested a stop. Long code that does not wait for other ranks
    // should check this.
    virtual bool stop_requested() const = 0;

  protected:
    FolderLimit folders_;
    MemoryClaims claims_;
};

// The worker of a host on one of this host's cables.
struct NeighborWorker {
    std::string name;
    std::vector<std::string> addresses;  // "host:port", best first
};

// `weft worker --listen HOST:PORT --key-file F`: serves jobs, each in a new process, so that no job
// can harm the listener. Callers that find no free place wait in line (waiting_line.h).
class WorkerListener {
  public:
    struct Options {
        std::string listen;  // "host:port"; port 0: any (see port())
        std::string key_file;
        std::vector<std::string> worker_arguments = {"worker"};  // as in ClusterOptions
        // Called when a job begins, for further arguments; may be null.
        std::function<std::vector<std::string>()> more_arguments{};
        // Returns the hosts on this host's cables, to which callers may be forwarded. May be null.
        std::function<std::vector<NeighborWorker>()> neighbors{};
        int jobs = 1;  // most jobs at a time; with more than one, each gets a part of the cores
    };
    // Blocks SIGINT, SIGTERM, SIGHUP and SIGCHLD in the calling thread until the listener is
    // destroyed; Run receives them. Errors: kUsage, kIo (address in use), kNotFound and
    // kUnsupported (key file).
    static Result<std::unique_ptr<WorkerListener>> Open(const Options& options);
    virtual ~WorkerListener() = default;

    virtual int port() const = 0;
    // Serves jobs until SIGINT or SIGTERM, which it handles. Then it ends the running jobs and
    // returns.
    virtual Status Run() = 0;
};

// `weft worker --join HOST:PORT --key-file F`: dials a rank 0 that waits for workers
// (--expect-workers), runs a rank of that job in a separate process, and then dials again, until it
// gets a signal to end.
class WorkerJoiner {
  public:
    struct Options {
        std::string join;  // "host:port" of rank 0
        std::string key_file;
        int rank = 0;         // the rank that this worker requests; 0: any
        bool once = false;    // end after the first job, with its exit status
        int64_t wait_ms = 0;  // give up after this long without a job; 0: never
        std::vector<std::string> worker_arguments = {"worker"};  // as in ClusterOptions
    };
    // Errors: kUsage, kNotFound and kUnsupported (key file).
    static Result<std::unique_ptr<WorkerJoiner>> Open(const Options& options);
    virtual ~WorkerJoiner() = default;

    // Runs until SIGINT or SIGTERM, which it handles; then it ends a running job. Returns the exit
    // status: 0 or, with `once`, the job's status. Errors: kTimeout (wait_ms), kDenied (with
    // `once`: rank 0 has another key or version), kIo.
    virtual Result<int> Run() = 0;
};

}  // namespace weft::cluster
