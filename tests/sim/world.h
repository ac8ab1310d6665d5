// A cluster of Weft in the simulated kernel: rank 0 on host 0, a worker on each other host, and a
// job whose steps are sums over all ranks. Runs one plan and checks what must hold afterwards.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "cluster/cluster.h"
#include "cluster/join/handshake.h"
#include "cluster/socket.h"
#include "sim/kernel.h"
#include "sim/plan.h"

namespace weft::sim {

// How rank 0's process ended.
struct Outcome {
    bool ended = false;
    ErrorCode code{};
    std::string error;              // "": the job is complete
    int64_t steps = 0;              // progress so far
    bool complete = false;          // all work of the job was done
    int64_t longest_packet_ns = 0;  // Network::LongestNs at the end
};

// The work of a job. One object serves all processes of a world; they share only data that this
// object passes between them on purpose.
class Workload {
  public:
    virtual ~Workload() = default;
    // Rank 0's process, until the end of the job. last: the short job at the end of a run.
    virtual Status RunRoot(const cluster::ClusterOptions& options, bool last, Outcome& outcome) = 0;
    // Another rank's process, after it has joined.
    virtual Status RunRank(cluster::Cluster& cluster) = 0;
    Disk disk;  // with a folder if the ranks write files
    // After the job: "", or which of its own promises does not hold.
    virtual std::string Check(const Outcome&) const { return ""; }
};

class World {
  public:
    // key_file: a real file with the cluster's key.
    World(const Plan& plan, Workload& workload, std::string key_file);
    ~World();
    // "", or what went wrong.
    std::string Run();
    Kernel& kernel() { return kernel_; }
    const Outcome& outcome() const { return outcome_; }

  private:
    // backwards: its hosts in the reverse order.
    int RankZero(bool last, Outcome& outcome, bool backwards = false);
    void StartRivals();
    bool IsOfJob(const Process& process) const;
    std::string CheckRivals() const;
    int Worker(int host);
    void StartWorker(int host);
    void Begin(const FaultPlan& fault);
    void End(const FaultPlan& fault);
    void SetDisk(const FaultPlan& fault, bool begins);
    void SetWires(const FaultPlan& fault, bool begins);
    Process* RankOf(int host);
    Process* WorkerOf(int host);
    int64_t FaultsEndNs() const;
    std::string Check();
    std::string CheckError(ErrorCode code, const std::string& error) const;
    std::string CheckErrors() const;
    std::string CheckSilence() const;
    std::string CheckTimes() const;
    bool MustRecover() const;
    bool IsPrompt(const Outcome& outcome) const;
    int64_t BeatNs() const;
    bool Heals(const FaultPlan& fault) const;
    bool IsBrief(const FaultPlan& fault) const;
    bool OtherCableServes(const FaultPlan& fault) const;
    std::string RunAnotherJob();
    static Result<int> StartRank(Fd control, const cluster::Session& session, bool local);

    const Plan plan_;
    Workload& workload_;
    const std::string key_file_;
    Kernel kernel_;
    Outcome outcome_;
    std::vector<int> workers_;  // pid of each host's worker; 0: none
    int rank_zero_ = 0;
    // Other jobs without faults: the processes of their rank 0, and how they ended.
    std::vector<int> rivals_;
    std::vector<Outcome> rival_outcomes_;
    int64_t begin_ns_ = 0;
    std::atomic<bool> stop_{false};
    // Faults that met a process of the job, and how far it was then.
    struct Hit {
        FaultPlan fault;
        int64_t at_ns, steps;
    };
    std::vector<Hit> hits_;
    // The errors of the first job's ranks beside rank 0.
    struct RankError {
        std::string process;
        ErrorCode code;
        std::string text;
    };
    std::vector<RankError> rank_errors_;
    bool healed_ = false;  // no more faults: a last job shows that the workers still serve
};

}  // namespace weft::sim
