// Reads a launcher's environment: mpirun, srun, torchrun and similar start the same command line N
// times, and pass each process its rank.
//
//     Open MPI                OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//     MPICH and its kin       PMI_RANK, PMI_SIZE (Hydra, PALS, srun --mpi=pmi2)
//     Slurm                   SLURM_PROCID, SLURM_STEP_NUM_TASKS (srun; PMIX_RANK with --mpi=pmix)
//     torchrun style          RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (Ray, weft submit)
//     pods and clouds         see the table in launcher.cc, which has a row for each launcher
//
// Under an MPI launcher, MPI carries rank 0's address and a new key. Under other launchers the
// ranks need both from the user: MASTER_ADDR and MASTER_PORT (Slurm without them: the step's first
// host, and a port derived from the job's number), and --key-file or WEFT_KEY_FILE.
// WEFT_MPI=openmpi|mpich|none overrides the launcher's MPI library. WEFT_LAUNCHER=none ignores the
// environment, to start a process by hand in a pod that sets variables; another value (torchrun,
// srun, lws, ...: see the table) reads only that launcher's variables. Pure.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "base/result.h"

namespace weft::cluster {

struct Launcher {
    std::string name;  // "mpirun (Open MPI)", for messages
    int rank = 0;
    int size = 1;
    int local_rank = -1;  // among the ranks of its host; -1: unknown
    std::string mpi;      // the flavor of net/mpi/library.h; "": no MPI
    std::string host;     // where rank 0 can be reached; "": unknown
    uint16_t port = 0;
    bool joins_output = false;  // standard error of all ranks appears in one place
};

// As ::getenv.
using Environment = std::function<const char*(const char*)>;

// Returns nullopt for a process that was started by hand or is the only one. Errors: kUsage
// (contradicting variables: a rank beyond the size, or two launchers that disagree).
Result<std::optional<Launcher>> FindLauncher(const Environment& get);

// Call it if there is no launcher and the command names no ranks. Errors: kUsage (RANK or
// WORLD_SIZE lacks a value beside the address of rank 0). Warns if RANK is not set at all.
Status CheckHalfLauncher(const Environment& get);

// Number of tasks in the Slurm job, if this process is the only one because srun did not start it
// (a batch script, a shell of salloc); 1: a single task, or another situation.
int LoneTaskOf(const Environment& get);

// The first host of a Slurm list: "node[07-09,12],x" -> "node07".
std::string FirstOfHostList(const std::string& list);

}  // namespace weft::cluster
