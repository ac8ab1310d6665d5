#include "cluster/join/launcher.h"

#include <algorithm>
#include <charconv>
#include <string_view>

#include "base/log.h"
#include "cluster/frame.h"

namespace weft::cluster {
namespace {

// Slurm reserves no port: jobs of one host differ in the last digits of their number.
constexpr uint64_t kFirstSlurmPort = 20'000;
constexpr uint64_t kSlurmPorts = 20'000;
// Numbers of steps that srun did not make (batch, interactive and similar) start here.
constexpr uint64_t kFirstSpecialStep = 0xfffffff0;

// A launcher: names of the variables that it sets for each process. "": none.
struct Row {
    const char* name;  // for messages
    const char* word;  // value of WEFT_LAUNCHER
    const char* rank;
    const char* size;
    const char* local_rank;  // among the ranks of its host
    const char* host;        // of rank 0, the first of a list
    const char* port;
    const char* also;  // required additional variable
    const char* mpi;   // MPI library of its processes
    int usual_port;    // if it names a host, but no port
    bool joins_output;
};

// The first matching row counts: an MPI launcher within Slurm sets the variables of both; torchrun
// within a step made this process; and ranks within pods are named by the program that started
// them, not by the pods.
// clang-format off
constexpr Row kRows[] = {
    // name, word, rank, size, local rank, host, port, also, mpi, usual port, joins output
    {"mpirun (Open MPI)", "openmpi", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
     "OMPI_COMM_WORLD_LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "", "openmpi", 0, true},
    // (Hydra, PALS, srun --mpi=pmi2)
    {"mpirun (MPICH)", "mpich", "PMI_RANK", "PMI_SIZE",
     "MPI_LOCALRANKID", "MASTER_ADDR", "MASTER_PORT", "", "mpich", 0, true},
    // (torchrun, Ray Train, Kubeflow's PyTorchJob, weft submit)
    {"RANK and WORLD_SIZE", "torchrun", "RANK", "WORLD_SIZE",
     "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT", "MASTER_PORT", "", 0, false},
    // (A batch script has a rank too; only srun makes a step with several ranks.)
    {"srun", "srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS",
     "SLURM_LOCALID", "MASTER_ADDR", "MASTER_PORT", "SLURM_STEP_ID", "", 0, true},
    // (Kubeflow Trainer sets these for torchrun on each node, not for ranks.)
    {"PET_NODE_RANK and PET_NNODES", "pet", "PET_NODE_RANK", "PET_NNODES",
     "", "PET_MASTER_ADDR", "PET_MASTER_PORT", "PET_MASTER_ADDR", "", 29'400, false},
    {"an indexed Job", "jobset", "JOB_COMPLETION_INDEX", "WORLD_SIZE",
     "", "MASTER_ADDR", "MASTER_PORT", "MASTER_ADDR", "", 29'500, false},
    {"a LeaderWorkerSet", "lws", "LWS_WORKER_INDEX", "LWS_GROUP_SIZE",
     "", "LWS_LEADER_ADDRESS", "MASTER_PORT", "LWS_LEADER_ADDRESS", "", 29'500, false},
    {"SkyPilot", "skypilot", "SKYPILOT_NODE_RANK", "SKYPILOT_NUM_NODES",
     "", "SKYPILOT_NODE_IPS", "MASTER_PORT", "SKYPILOT_NODE_IPS", "", 29'500, false},
    {"dstack", "dstack", "DSTACK_NODE_RANK", "DSTACK_NODES_NUM",
     "", "DSTACK_MASTER_NODE_IP", "MASTER_PORT", "DSTACK_MASTER_NODE_IP", "", 29'500, false},
};
// clang-format on

class Variables {
  public:
    explicit Variables(const Environment& get) : get_(get) {}
    std::string_view Text(const char* name) const {
        const char* value = get_(name);
        return value == nullptr ? std::string_view() : std::string_view(value);
    }
    bool Has(const char* name) const { return !Text(name).empty(); }
    Result<uint64_t> Number(const char* name, uint64_t most) const {
        const std::string_view text = Text(name);
        uint64_t value = 0;
        const auto parsed = std::from_chars(text.data(), text.data() + text.size(), value);
        if (parsed.ec == std::errc() && parsed.ptr == text.data() + text.size() && value <= most) {
            return value;
        }
        return MakeError(ErrorCode::kUsage,
                         "the environment has {}={}, expected a number up to {}. Start weft by a "
                         "launcher, or unset it",
                         name, text, most);
    }

  private:
    const Environment& get_;
};

// A Slurm step names its hosts, and the job's number gives a port.
Status MeetInStep(const Variables& env, Launcher& launcher) {
    launcher.host = FirstOfHostList(std::string(env.Text("SLURM_STEP_NODELIST")));
    WEFT_ASSIGN(const uint64_t job, env.Number("SLURM_JOB_ID", UINT64_MAX));
    WEFT_ASSIGN(const uint64_t step, env.Number("SLURM_STEP_ID", UINT64_MAX));
    launcher.port =
        static_cast<uint16_t>(kFirstSlurmPort + (job * 7 + step % kSlurmPorts) % kSlurmPorts);
    return {};
}

// The address of rank 0 without MPI.
Status FindMeeting(const Variables& env, const Row& row, Launcher& launcher) {
    const std::string_view host = env.Text(row.host);
    if (!host.empty() && (env.Has(row.port) || row.usual_port > 0)) {
        uint64_t port = static_cast<uint64_t>(row.usual_port);
        if (env.Has(row.port)) {
            WEFT_ASSIGN(port, env.Number(row.port, 65'535));
        }
        launcher.host = host.substr(0, host.find_first_of(", \n"));
        // torchrun's own store listens at MASTER_PORT.
        const bool taken = env.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
        launcher.port = static_cast<uint16_t>(taken && port < 65'535 ? port + 1 : port);
        return {};
    }
    return row.also == std::string_view("SLURM_STEP_ID") ? MeetInStep(env, launcher) : Status();
}

// The MPI library of the processes. PMIx does not state the size; the launcher's is used.
Status FindMpi(const Variables& env, const Row& row, Launcher& launcher) {
    launcher.mpi = row.mpi;
    const bool slurm = row.also == std::string_view("SLURM_STEP_ID");
    if (slurm && env.Has("PMIX_RANK")) launcher.mpi = "openmpi";
    if (env.Has("WEFT_MPI")) launcher.mpi = env.Text("WEFT_MPI");
    if (launcher.mpi == "none") launcher.mpi.clear();
    if (launcher.mpi.empty() || launcher.mpi == "openmpi" || launcher.mpi == "mpich") return {};
    return MakeError(ErrorCode::kUsage, "WEFT_MPI={}: expected openmpi, mpich or none",
                     launcher.mpi);
}

// RANK alone may come from anywhere: it counts only with an address.
bool Fits(const Variables& env, const Row& row) {
    if (!env.Has(row.rank) || !env.Has(row.size)) return false;
    if (*row.also != '\0' && !env.Has(row.also)) return false;
    return row.rank != std::string_view("RANK") || env.Has(row.host);
}

constexpr size_t kTorchrunRow = 2;
static_assert(kRows[kTorchrunRow].word == std::string_view("torchrun"));

// Reads a matching row. Returns nullopt if this is the only process.
Result<std::optional<Launcher>> ReadRow(const Variables& env, const Row& row) {
    Launcher launcher;
    launcher.name = row.name;
    launcher.joins_output = row.joins_output;
    WEFT_ASSIGN(const uint64_t size, env.Number(row.size, UINT32_MAX));
    WEFT_ASSIGN(const uint64_t rank, env.Number(row.rank, UINT32_MAX));
    if (size <= 1) return std::optional<Launcher>();
    if (size > kMostRanks || rank >= size) {
        return MakeError(ErrorCode::kUsage,
                         "the environment of {} has {}={} and {}={}; a rank is below the size, "
                         "which is at most {}",
                         row.name, row.rank, rank, row.size, size, kMostRanks);
    }
    launcher.rank = static_cast<int>(rank);
    launcher.size = static_cast<int>(size);
    if (*row.local_rank != '\0' && env.Has(row.local_rank)) {
        WEFT_ASSIGN(const uint64_t local, env.Number(row.local_rank, size - 1));
        launcher.local_rank = static_cast<int>(local);
    }
    WEFT_TRY(FindMpi(env, row, launcher));
    WEFT_TRY(FindMeeting(env, row, launcher));
    return std::optional(std::move(launcher));
}

Status CheckChoice(std::string_view chosen) {
    std::string words;
    for (const Row& row : kRows) {
        if (chosen.empty() || chosen == row.word) return {};
        words += std::string(", ") + row.word;
    }
    return MakeError(ErrorCode::kUsage, "WEFT_LAUNCHER={}: expected none{}", chosen, words);
}

// Variables of two launchers may coexist if they agree.
Status CheckAgreement(const Launcher& one, const Launcher& other) {
    if (one.rank == other.rank && one.size == other.size) return {};
    return MakeError(ErrorCode::kUsage,
                     "the environment says rank {} of {} ({}) and rank {} of {} ({}). Unset what "
                     "is left over, or choose: WEFT_LAUNCHER=torchrun (RANK and WORLD_SIZE) or "
                     "srun",
                     one.rank, one.size, one.name, other.rank, other.size, other.name);
}

}  // namespace

std::string FirstOfHostList(const std::string& list) {
    const size_t end = list.find_first_of("[,");
    std::string host = list.substr(0, end);
    if (end == std::string::npos || list[end] == ',') return host;
    const size_t last = list.find_first_of("-,]", end);
    if (last == std::string::npos) return host;
    host += list.substr(end + 1, last - end - 1);
    const size_t close = list.find(']', end);
    if (close == std::string::npos) return host;
    return host + list.substr(close + 1, list.find_first_of("[,", close) - close - 1);
}

// A pod or a shell may set RANK or WORLD_SIZE for another program. Beside MASTER_ADDR and
// MASTER_PORT the two come from a launcher, whose other ranks wait for this one.
Status CheckHalfLauncher(const Environment& get) {
    const Variables env(get);
    const Row& row = kRows[kTorchrunRow];
    if (!env.Text("WEFT_LAUNCHER").empty() || !env.Has(row.host) || !env.Has(row.port) ||
        env.Has(row.rank) == env.Has(row.size)) {
        return {};
    }
    const bool size = env.Has(row.size);
    if (size && env.Text(row.size) == "1") return {};
    const std::string half = fmt::format(
        "the environment has {}={}, {} and {}, but no value in {}", size ? row.size : row.rank,
        env.Text(size ? row.size : row.rank), row.host, row.port, size ? row.rank : row.size);
    if (get(row.rank) == nullptr) {  // a batch script, from which srun may start the ranks
        Log(LogLevel::kWarning, "{}: this process runs alone", half);
        return {};
    }
    return MakeError(ErrorCode::kUsage,
                     "{}. A launcher sets both for each process: set {}, or ignore them with "
                     "WEFT_LAUNCHER=none",
                     half, size ? row.rank : row.size);
}

int LoneTaskOf(const Environment& get) {
    const Variables env(get);
    const auto number = [&](const char* name) -> uint64_t {
        const auto value = env.Number(name, UINT32_MAX);
        return value.ok() ? *value : 0;
    };
    const bool step = env.Has("SLURM_STEP_ID") && number("SLURM_STEP_ID") < kFirstSpecialStep;
    if (!env.Has("SLURM_JOB_ID") || step) return 1;
    const uint64_t nodes = number("SLURM_JOB_NUM_NODES");
    const uint64_t each = std::max<uint64_t>(1, number("SLURM_NTASKS_PER_NODE"));
    const uint64_t tasks = env.Has("SLURM_NTASKS") ? number("SLURM_NTASKS") : nodes * each;
    return static_cast<int>(std::clamp<uint64_t>(tasks, 1, INT32_MAX));
}

Result<std::optional<Launcher>> FindLauncher(const Environment& get) {
    const Variables env(get);
    const std::string_view chosen = env.Text("WEFT_LAUNCHER");
    if (chosen == "none") return std::optional<Launcher>();
    WEFT_TRY(CheckChoice(chosen));
    // For a process of torchrun, the step or pod around it does not count.
    const bool torchrun = chosen.empty() && env.Has("TORCHELASTIC_RUN_ID");
    std::optional<Launcher> found;
    bool any = false;
    for (const Row& row : kRows) {
        const bool by_torchrun = row.word == std::string_view("torchrun");
        const bool by_srun = row.word == std::string_view("srun");
        if (!Fits(env, row) || (!chosen.empty() && chosen != row.word)) continue;
        if (torchrun && !by_torchrun && Fits(env, kRows[kTorchrunRow])) continue;
        if (found.has_value() && !by_srun) continue;
        any = true;
        WEFT_ASSIGN(const auto launcher, ReadRow(env, row));
        if (!launcher.has_value() && *row.mpi != '\0') return launcher;  // mpirun -n 1
        if (!launcher.has_value()) continue;
        // RANK may come from a shell around the step.
        if (found.has_value()) WEFT_TRY(CheckAgreement(*found, *launcher));
        if (!found.has_value()) found = launcher;
        if (!by_torchrun || torchrun) return found;
    }
    if (any || chosen.empty()) return found;
    return MakeError(ErrorCode::kUsage,
                     "WEFT_LAUNCHER={}: the environment lacks its variables. Unset it, or start "
                     "weft by that launcher",
                     chosen);
}

}  // namespace weft::cluster
