// This process as one of the ranks that a launcher started (launcher.h), for its whole life.
//
//     rank 0:   Launched::Start(...);  ClusterOptions.launched = it;  Cluster::Launch as often as
//               it likes;  End(status)
//     others:   Launched::Start(...);  while (Cluster::JoinLaunched(*it) gives one) Work(...);
//               End(status)
//
// Under an MPI launcher Start runs MPI_Init, and MPI carries rank 0's addresses and a fresh key to
// the others; where no link will use MPI it is ended at once. Without MPI the ranks meet where the
// launcher says, with the key of a file.
// Thread: one, which is then the one that may use mpi().
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/result.h"
#include "cluster/gather.h"
#include "cluster/launcher.h"
#include "net/mpi/library.h"

namespace weft::cluster {

struct LaunchOptions {
    std::string key_file;      // "": $WEFT_KEY_FILE, where one is needed
    bool wants_mpi = false;    // a transport of the command line is mpi
    bool may_use_mpi = false;  // or auto, where hosts differ
    int64_t wait_ms = 0;       // for all ranks to have started; 0: a minute
};

class Launched {
  public:
    // Errors: kUsage (no key, no address), kUnsupported (no plug-in), kTimeout, kIo.
    static Result<std::unique_ptr<Launched>> Start(const Launcher& launcher,
                                                   const LaunchOptions& options);

    int rank() const { return launcher_.rank; }
    int size() const { return launcher_.size; }
    // Whether the launcher joins the standard error of all ranks, so that one rank's words do.
    bool shares_output() const { return launcher_.joins_output; }
    net::MpiLibrary* mpi() { return mpi_.get(); }  // null: links do not use it

    // Rank 0: all others, for one job. Errors: as of GatherRanks.
    Status Gather(RankRegistry& registry, int64_t timeout_ms, const std::atomic<bool>* stop);
    // The others: rank 0's next job; nullopt when there is no more.
    Result<std::optional<Arrival>> Arrive();

    // Call last, on all ranks. ok: the clean end, which waits for all; else MPI is left as it is,
    // and the process has to end with _exit.
    Status End(bool ok);

  private:
    explicit Launched(Launcher launcher) : launcher_(std::move(launcher)) {}
    Status MeetByMpi(const LaunchOptions& options);
    Status MeetAtAddress(const LaunchOptions& options);
    Status Listen(const std::string& host, uint16_t port);

    Launcher launcher_;
    Bytes key_;
    std::unique_ptr<net::MpiLibrary> mpi_;
    Fd listener_;                     // rank 0's, for as long as jobs may come
    std::vector<Address> addresses_;  // of rank 0
    int64_t start_ms_ = 0;            // for all ranks to have started
    bool met_ = false;
    bool gathered_ = false;
};

}  // namespace weft::cluster
