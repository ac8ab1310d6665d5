#include "cluster/launcher.h"

#include <charconv>
#include <string_view>

#include "cluster/frame.h"

namespace weft::cluster {
namespace {

// Slurm says nothing of a free port: jobs of one host differ in the last digits of their number.
constexpr uint64_t kFirstSlurmPort = 20'000;
constexpr uint64_t kSlurmPorts = 20'000;

struct Family {
    const char* name;
    const char* rank;
    const char* size;
    const char* mpi;
};

// In this order: an MPI launcher under Slurm sets both.
constexpr Family kFamilies[] = {
    {"mpirun (Open MPI)", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "openmpi"},
    {"mpirun (MPICH)", "PMI_RANK", "PMI_SIZE", "mpich"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", ""},
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", ""},
};

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

// Where the ranks meet without MPI.
Status FindMeeting(const Variables& env, bool slurm, Launcher& launcher) {
    if (env.Has("MASTER_ADDR") && env.Has("MASTER_PORT")) {
        WEFT_ASSIGN(const uint64_t port, env.Number("MASTER_PORT", 65'535));
        launcher.host = env.Text("MASTER_ADDR");
        // torchrun's own store listens at MASTER_PORT itself.
        const bool taken = env.Text("TORCHELASTIC_USE_AGENT_STORE") == "True";
        launcher.port = static_cast<uint16_t>(taken && port < 65'535 ? port + 1 : port);
        return {};
    }
    if (!slurm) return {};
    launcher.host = FirstOfHostList(std::string(env.Text("SLURM_STEP_NODELIST")));
    WEFT_ASSIGN(const uint64_t job, env.Number("SLURM_JOB_ID", UINT64_MAX));
    WEFT_ASSIGN(const uint64_t step, env.Number("SLURM_STEP_ID", UINT64_MAX));
    launcher.port =
        static_cast<uint16_t>(kFirstSlurmPort + (job * 7 + step % kSlurmPorts) % kSlurmPorts);
    return {};
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

Result<std::optional<Launcher>> FindLauncher(const Environment& get) {
    const Variables env(get);
    for (const Family& family : kFamilies) {
        if (!env.Has(family.rank) || !env.Has(family.size)) continue;
        const bool slurm = family.rank == std::string_view("SLURM_PROCID");
        // A batch script has a rank too; only srun makes a step of several.
        if (slurm && !env.Has("SLURM_STEP_ID")) continue;
        const bool by_hand = family.rank == std::string_view("RANK");
        if (by_hand && !(env.Has("MASTER_ADDR") && env.Has("MASTER_PORT"))) continue;
        Launcher launcher;
        launcher.name = family.name;
        launcher.mpi = family.mpi;
        WEFT_ASSIGN(const uint64_t size, env.Number(family.size, UINT32_MAX));
        WEFT_ASSIGN(const uint64_t rank, env.Number(family.rank, UINT32_MAX));
        if (size <= 1) return std::optional<Launcher>();
        if (size > kMostRanks || rank >= size) {
            return MakeError(ErrorCode::kUsage,
                             "the environment of {} has {}={} and {}={}; a rank is below the size, "
                             "which is at most {}",
                             family.name, family.rank, rank, family.size, size, kMostRanks);
        }
        launcher.rank = static_cast<int>(rank);
        launcher.size = static_cast<int>(size);
        if (slurm && env.Has("PMIX_RANK")) launcher.mpi = "openmpi";
        if (env.Has("WEFT_MPI")) launcher.mpi = env.Text("WEFT_MPI");
        if (launcher.mpi == "none") launcher.mpi.clear();
        if (!launcher.mpi.empty() && launcher.mpi != "openmpi" && launcher.mpi != "mpich") {
            return MakeError(ErrorCode::kUsage, "WEFT_MPI={}: expected openmpi, mpich or none",
                             launcher.mpi);
        }
        WEFT_TRY(FindMeeting(env, slurm, launcher));
        return std::optional(std::move(launcher));
    }
    return std::optional<Launcher>();
}

}  // namespace weft::cluster
