// Whole environments of launchers, as their processes have them: which row of the table applies,
// and the error if two contradict each other.
#include <gtest/gtest.h>

#include <map>

#include "cluster/join/launcher.h"

namespace weft::cluster {
namespace {

using Variables = std::map<std::string, std::string>;

Result<std::optional<Launcher>> Look(const Variables& variables) {
    return FindLauncher([&](const char* name) -> const char* {
        const auto found = variables.find(name);
        return found == variables.end() ? nullptr : found->second.c_str();
    });
}

// The union of both sets of variables; `more` takes precedence.
Variables Together(Variables variables, const Variables& more) {
    for (const auto& [name, value] : more) variables[name] = value;
    return variables;
}

// Task 1 of 3 of `srun` in a heterogeneous job of Slurm 22.05.
const Variables& Step() {
    static const Variables step = {{"SLURM_HET_SIZE", "2"},
                                   {"SLURM_JOB_ID", "4711"},
                                   {"SLURM_JOB_ID_HET_GROUP_0", "4711"},
                                   {"SLURM_JOB_ID_HET_GROUP_1", "4712"},
                                   {"SLURM_LOCALID", "0"},
                                   {"SLURM_NNODES", "3"},
                                   {"SLURM_NODEID", "1"},
                                   {"SLURM_NPROCS", "3"},
                                   {"SLURM_NTASKS", "3"},
                                   {"SLURM_PROCID", "1"},
                                   {"SLURM_STEPID", "0"},
                                   {"SLURM_STEP_ID", "0"},
                                   {"SLURM_STEP_NODELIST", "n[0-2]"},
                                   {"SLURM_STEP_NUM_NODES", "3"},
                                   {"SLURM_STEP_NUM_TASKS", "3"},
                                   {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"}};
    return step;
}

// Process 5 of 8 of torchrun, the second of the second node.
const Variables& Torchrun() {
    static const Variables torchrun = {{"GROUP_RANK", "1"},
                                       {"GROUP_WORLD_SIZE", "2"},
                                       {"LOCAL_RANK", "1"},
                                       {"LOCAL_WORLD_SIZE", "4"},
                                       {"MASTER_ADDR", "n0"},
                                       {"MASTER_PORT", "29500"},
                                       {"OMP_NUM_THREADS", "1"},
                                       {"RANK", "5"},
                                       {"ROLE_RANK", "5"},
                                       {"ROLE_WORLD_SIZE", "8"},
                                       {"TORCHELASTIC_MAX_RESTARTS", "0"},
                                       {"TORCHELASTIC_RESTART_COUNT", "0"},
                                       {"TORCHELASTIC_RUN_ID", "none"},
                                       {"TORCHELASTIC_USE_AGENT_STORE", "True"},
                                       {"WORLD_SIZE", "8"}};
    return torchrun;
}

struct Expected {
    const char* name;
    int rank, size, local_rank;
    const char* host;
    int port;
    const char* mpi;
};

void ExpectFound(const Variables& variables, const Expected& expected) {
    const auto found = Look(variables);
    ASSERT_TRUE(found.ok()) << found.error().message;
    ASSERT_TRUE(found->has_value()) << expected.name;
    const Launcher& launcher = **found;
    EXPECT_EQ(launcher.name, expected.name);
    EXPECT_EQ(launcher.rank, expected.rank) << expected.name;
    EXPECT_EQ(launcher.size, expected.size) << expected.name;
    EXPECT_EQ(launcher.local_rank, expected.local_rank) << expected.name;
    EXPECT_EQ(launcher.host, expected.host) << expected.name;
    if (expected.port > 0) {
        EXPECT_EQ(launcher.port, expected.port) << expected.name;
    }
    EXPECT_EQ(launcher.mpi, expected.mpi) << expected.name;
}

TEST(LauncherTable, WholeEnvironments) {
    ExpectFound(Step(), {"srun", 1, 3, 0, "n0", 0, ""});
    ExpectFound(Together(Step(), {{"PMIX_RANK", "1"}, {"PMIX_NAMESPACE", "slurm.pmix.4711.0"}}),
                {"srun", 1, 3, 0, "n0", 0, "openmpi"});
    ExpectFound(Torchrun(), {"RANK and WORLD_SIZE", 5, 8, 1, "n0", 29501, ""});
    // Open MPI 4 and 5 within a Slurm step, from mpirun in a batch script.
    ExpectFound(Together(Step(), {{"OMPI_COMM_WORLD_RANK", "2"},
                                  {"OMPI_COMM_WORLD_SIZE", "4"},
                                  {"OMPI_COMM_WORLD_LOCAL_RANK", "0"},
                                  {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                                  {"OMPI_COMM_WORLD_NODE_RANK", "0"},
                                  {"OMPI_UNIVERSE_SIZE", "4"},
                                  {"PMIX_RANK", "2"}}),
                {"mpirun (Open MPI)", 2, 4, 0, "", 0, "openmpi"});
    // Hydra, and launchers built on it.
    ExpectFound({{"PMI_RANK", "3"},
                 {"PMI_SIZE", "4"},
                 {"PMI_FD", "7"},
                 {"MPI_LOCALNRANKS", "2"},
                 {"MPI_LOCALRANKID", "1"}},
                {"mpirun (MPICH)", 3, 4, 1, "", 0, "mpich"});
    // A pod of Kubeflow's PyTorchJob has both kinds of torchrun's variables; they count differently
    // if a pod runs several processes.
    ExpectFound({{"RANK", "1"},
                 {"WORLD_SIZE", "2"},
                 {"MASTER_ADDR", "tune-master-0"},
                 {"MASTER_PORT", "23456"},
                 {"PET_NODE_RANK", "1"},
                 {"PET_NNODES", "4"},
                 {"PET_MASTER_ADDR", "tune-master-0"},
                 {"PET_MASTER_PORT", "23456"}},
                {"RANK and WORLD_SIZE", 1, 2, -1, "tune-master-0", 23456, ""});
    // A pod of a TrainJob.
    ExpectFound({{"JOB_COMPLETION_INDEX", "1"},
                 {"PET_NNODES", "3"},
                 {"PET_NPROC_PER_NODE", "1"},
                 {"PET_NODE_RANK", "1"},
                 {"PET_MASTER_ADDR", "tune-node-0-0.tune"},
                 {"PET_MASTER_PORT", "29400"}},
                {"PET_NODE_RANK and PET_NNODES", 1, 3, -1, "tune-node-0-0.tune", 29400, ""});
    // LeaderWorkerSet: the leader is number 0 and knows its own address.
    ExpectFound({{"LWS_GROUP_SIZE", "3"},
                 {"LWS_LEADER_ADDRESS", "weft-0.weft.ml"},
                 {"LWS_WORKER_INDEX", "0"},
                 {"KUBERNETES_SERVICE_HOST", "10.96.0.1"}},
                {"a LeaderWorkerSet", 0, 3, -1, "weft-0.weft.ml", 29500, ""});
    ExpectFound({{"SKYPILOT_NODE_RANK", "1"},
                 {"SKYPILOT_NUM_NODES", "2"},
                 {"SKYPILOT_NODE_IPS", "10.0.0.7\n10.0.0.8"},
                 {"SKYPILOT_NUM_GPUS_PER_NODE", "1"},
                 {"SKYPILOT_TASK_ID", "sky-2025-06-01-12-00-00-000000_tune_1"}},
                {"SkyPilot", 1, 2, -1, "10.0.0.7", 29500, ""});
    ExpectFound({{"DSTACK_NODE_RANK", "0"},
                 {"DSTACK_NODES_NUM", "2"},
                 {"DSTACK_MASTER_NODE_IP", "10.1.0.1"},
                 {"DSTACK_NODES_IPS", "10.1.0.1\n10.1.0.2"},
                 {"DSTACK_GPUS_PER_NODE", "0"},
                 {"DSTACK_RUN_NAME", "tune"}},
                {"dstack", 0, 2, -1, "10.1.0.1", 29500, ""});
}

// The nearest launcher counts: the one that started this process, not that launcher's own launcher.
TEST(LauncherTable, OneLauncherWithinAnother) {
    const Variables& torchrun = Torchrun();
    const Expected by_torchrun{"RANK and WORLD_SIZE", 5, 8, 1, "n0", 29501, ""};
    // `srun torchrun`, one per node; likewise with an MPI's process manager.
    ExpectFound(Together(Step(), torchrun), by_torchrun);
    ExpectFound(Together(Together(Step(), {{"PMI_RANK", "1"}, {"PMI_SIZE", "3"}}), torchrun),
                by_torchrun);
    ExpectFound(Together({{"OMPI_COMM_WORLD_RANK", "1"}, {"OMPI_COMM_WORLD_SIZE", "2"}}, torchrun),
                by_torchrun);
    ExpectFound(Together({{"LWS_WORKER_INDEX", "1"},
                          {"LWS_GROUP_SIZE", "2"},
                          {"LWS_LEADER_ADDRESS", "weft-0.weft"}},
                         torchrun),
                by_torchrun);
    // Ray's nodes as steps of one task each; its driver numbers the ranks.
    const Variables ray = {
        {"RANK", "1"}, {"WORLD_SIZE", "2"}, {"MASTER_ADDR", "10.0.0.1"}, {"MASTER_PORT", "40001"}};
    ExpectFound(
        Together(Together(Step(), {{"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}}), ray),
        {"RANK and WORLD_SIZE", 1, 2, -1, "10.0.0.1", 40001, ""});
    // `mpirun -n 1` in one of several pods: one process, as requested.
    const auto alone = Look({{"OMPI_COMM_WORLD_RANK", "0"},
                             {"OMPI_COMM_WORLD_SIZE", "1"},
                             {"LWS_WORKER_INDEX", "1"},
                             {"LWS_GROUP_SIZE", "2"},
                             {"LWS_LEADER_ADDRESS", "weft-0.weft"}});
    ASSERT_TRUE(alone.ok());
    EXPECT_FALSE(alone->has_value());
}

// A batch script exports variables common to all tasks, and srun starts several.
TEST(LauncherTable, ContradictingVariablesAreNamed) {
    const Variables meeting = {{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
    const Variables exported = Together(Step(), Together(meeting, {{"WORLD_SIZE", "3"}}));
    ExpectFound(exported, {"srun", 1, 3, 0, "n0", 29500, ""});
    ExpectFound(Together(exported, {{"RANK", "1"}}),
                {"RANK and WORLD_SIZE", 1, 3, -1, "n0", 29500, ""});
    const auto stale = Look(Together(exported, {{"RANK", "0"}}));
    ASSERT_FALSE(stale.ok());
    EXPECT_EQ(stale.error().code, ErrorCode::kUsage);
    EXPECT_NE(stale.error().message.find("rank 0 of 3 (RANK and WORLD_SIZE) and rank 1 of 3 "
                                         "(srun)"),
              std::string::npos)
        << stale.error().message;
    ExpectFound(Together(exported, {{"RANK", "0"}, {"WEFT_LAUNCHER", "srun"}}),
                {"srun", 1, 3, 0, "n0", 29500, ""});
    ExpectFound(Together(exported, {{"RANK", "0"}, {"WEFT_LAUNCHER", "torchrun"}}),
                {"RANK and WORLD_SIZE", 0, 3, -1, "n0", 29500, ""});
}

// Half of torchrun's pair: this process would run alone, while the other ranks wait for it.
TEST(LauncherTable, HalfOfAPairIsAnError) {
    const Variables meeting = {{"MASTER_ADDR", "n0"}, {"MASTER_PORT", "29500"}};
    const auto check = [](const Variables& variables) {
        return CheckHalfLauncher([&](const char* name) {
            const auto found = variables.find(name);
            return found == variables.end() ? nullptr : found->second.c_str();
        });
    };
    for (const Variables& half :
         {Variables{{"RANK", ""}, {"WORLD_SIZE", "2"}},
          Variables{{"RANK", "0"}, {"WORLD_SIZE", ""}}, Variables{{"RANK", "1"}}}) {
        const Status refused = check(Together(meeting, half));
        ASSERT_FALSE(refused.ok());
        EXPECT_EQ(refused.error().code, ErrorCode::kUsage);
        const std::string& said = refused.error().message;
        EXPECT_NE(said.find("both for each process: set "), said.npos) << said;
        EXPECT_TRUE(check(half).ok()) << "without an address of rank 0 they are another program's";
        EXPECT_TRUE(check(Together(Together(meeting, half), {{"WEFT_LAUNCHER", "none"}})).ok());
        EXPECT_TRUE(Look(Together(meeting, half)).ok()) << "flags may name the ranks";
    }
    EXPECT_TRUE(check(Together(meeting, {{"WORLD_SIZE", "2"}})).ok()) << "a batch script";
    const auto alone = Look(Together(meeting, {{"WORLD_SIZE", "1"}}));
    ASSERT_TRUE(alone.ok());
    EXPECT_FALSE(alone->has_value());
}

TEST(LauncherTable, InvalidVariablesAreNamed) {
    const std::pair<Variables, const char*> wrong[] = {
        {Together(Torchrun(), {{"RANK", "8"}}), "RANK=8 and WORLD_SIZE=8"},
        {Together(Torchrun(), {{"WORLD_SIZE", "eight"}}), "WORLD_SIZE=eight"},
        {Together(Torchrun(), {{"LOCAL_RANK", "8"}}), "LOCAL_RANK=8"},
        {Together(Torchrun(), {{"MASTER_PORT", "65536"}}), "MASTER_PORT=65536"},
        {Together(Step(), {{"SLURM_PROCID", "3"}}), "SLURM_PROCID=3 and SLURM_STEP_NUM_TASKS=3"},
        {Together(Step(), {{"SLURM_JOB_ID", "4711_2"}}), "SLURM_JOB_ID=4711_2"},
        // An elastic PyTorchJob gives a range.
        {{{"PET_NODE_RANK", "1"}, {"PET_NNODES", "1:4"}, {"PET_MASTER_ADDR", "a"}},
         "PET_NNODES=1:4"},
        {{{"LWS_WORKER_INDEX", "2"}, {"LWS_GROUP_SIZE", "2"}, {"LWS_LEADER_ADDRESS", "a"}},
         "LWS_WORKER_INDEX=2 and LWS_GROUP_SIZE=2"},
        {Together(Step(), {{"WEFT_LAUNCHER", "slurm"}}),
         "WEFT_LAUNCHER=slurm: expected none, openmpi"},
        {Together(Step(), {{"WEFT_LAUNCHER", "lws"}}), "WEFT_LAUNCHER=lws: the environment lacks"},
    };
    for (const auto& [variables, said] : wrong) {
        const auto found = Look(variables);
        ASSERT_FALSE(found.ok()) << said;
        EXPECT_EQ(found.error().code, ErrorCode::kUsage) << said;
        EXPECT_NE(found.error().message.find(said), std::string::npos) << found.error().message;
    }
}

}  // namespace
}  // namespace weft::cluster
