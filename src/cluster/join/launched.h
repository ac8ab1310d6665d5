// Launched: this process as one of the ranks that a launcher started (launcher.h), for all jobs
// until it ends.
//
//     rank 0:   Launched::Start(...);  ClusterOptions.launched = it;  Cluster::Launch, any number
//               of times;  End(status)
//     others:   Launched::Start(...);  while (Cluster::JoinLaunched(*it) gives one) Work(...);
//               End(status)
//
// Under an MPI launcher, Start calls MPI_Init, and sends rank 0's addresses and a new key to the
// other ranks over MPI. If no link will use MPI, Start then ends MPI. Without MPI, the ranks dial
// rank 0 at the address in Launcher, with the key in a file. Thread: one caller; only that thread
// may use mpi().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "cluster/join/gather.h"
#include "cluster/join/launcher.h"
#include "net/mpi/library.h"

namespace weft::cluster {

struct LaunchOptions {
    std::string key_file;      // "": $WEFT_KEY_FILE, if a key file is required
    bool wants_mpi = false;    // --transport is mpi
    bool may_use_mpi = false;  // --transport is mpi, or auto with ranks on several hosts
    int64_t wait_ms = 0;       // for all ranks to start; 0: a minute
};

class Launched {
  public:
    // Errors: kUsage (no key, no address), kUnsupported (no plug-in), kTimeout, kIo.
    static Result<std::unique_ptr<Launched>> Start(const Launcher& launcher,
                                                   const LaunchOptions& options);

    int rank() const { return launcher_.rank; }
    int size() const { return launcher_.size; }
    // Whether the launcher joins the standard error of all ranks, so that one rank's messages
    // suffice.
    bool shares_output() const { return launcher_.joins_output; }
    net::MpiLibrary* mpi() { return mpi_.get(); }  // null: links do not use MPI

    // Rank 0: waits until all other ranks have connected for one job. Errors: as GatherRanks.
    Status Gather(RankRegistry& registry, int64_t timeout_ms, const std::atomic<bool>* stop);
    // Other ranks: connects to rank 0 for its next job; nullopt: there are no more jobs.
    Result<std::optional<Arrival>> Arrive();

    // Call it last, on all ranks. ok: no rank has failed, so End waits for all ranks and ends MPI;
    // otherwise End makes no MPI calls, and the process must end with _exit.
    Status End(bool ok);

  private:
    explicit Launched(Launcher launcher) : launcher_(std::move(launcher)) {}
    Status MeetByMpi(const LaunchOptions& options);
    Status MeetAtAddress(const LaunchOptions& options);
    Status Listen(const std::string& host, uint16_t port);

    Launcher launcher_;
    Bytes key_;
    std::unique_ptr<net::MpiLibrary> mpi_;
    Fd listener_;                     // rank 0's listener, as long as jobs may follow
    std::vector<Address> addresses_;  // of rank 0
    int64_t start_ms_ = 0;            // for all ranks to start
    bool met_ = false;
    bool gathered_ = false;
};

}  // namespace weft::cluster
