// What a launcher's environment says: mpirun, srun, torchrun and their kin start the same command
// line N times, and tell each process which of them it is.
//
//     Open MPI                OMPI_COMM_WORLD_RANK, OMPI_COMM_WORLD_SIZE
//     MPICH and its kin       PMI_RANK, PMI_SIZE (Hydra, PALS, srun --mpi=pmi2)
//     Slurm                   SLURM_PROCID, SLURM_STEP_NUM_TASKS (srun; PMIX_RANK with --mpi=pmix)
//     torchrun style          RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT (Ray, weft submit)
//     and those of pods and clouds: one table in launcher.cc, a row a launcher
//
// Under an MPI launcher, MPI itself carries rank 0's address and a fresh key. Elsewhere the ranks
// need both: MASTER_ADDR and MASTER_PORT (Slurm: the step's first host and a port made from the
// job's number, unless they are set), and --key-file or WEFT_KEY_FILE.
// WEFT_MPI=openmpi|mpich|none overrides which MPI library the launcher is taken to belong to;
// WEFT_LAUNCHER=none starts a process by hand where variables of pods stand in the environment;
// another word (torchrun, srun, lws, ...: the table has them) takes that launcher's variables
// alone. Pure: reads nothing but what it is given.
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
    int local_rank = -1;  // among those of its host; -1: not said
    std::string mpi;      // the flavour of net/mpi/library.h; "": no MPI
    std::string host;     // where rank 0 can be met; "": not said
    uint16_t port = 0;
    bool joins_output = false;  // the standard error of all ranks comes out at one place
};

// As ::getenv.
using Environment = std::function<const char*(const char*)>;

// Nullopt: started by hand, or as the only process. Errors: kUsage (variables that contradict each
// other, as a rank beyond the size, or two launchers' that say different things).
Result<std::optional<Launcher>> FindLauncher(const Environment& get);

// How many tasks Slurm gave a job of which this process is the only one, since no srun started it
// (a batch script, a shell of salloc); 1 where that is all there are, or it is no such process.
int LoneTaskOf(const Environment& get);

// The first host of a Slurm list: "node[07-09,12],x" -> "node07".
std::string FirstOfHostList(const std::string& list);

}  // namespace weft::cluster
