// Slurm: a batch script with one step, which has a rank on each node. The step's variables have
// each rank's number (cluster/join/launcher.h).
#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>

#include "base/shell_word.h"
#include "submit/job.h"
#include "submit/quote.h"

namespace weft::submit {
namespace {

// Seconds of notice for a training job before its time limit or preemption.
constexpr int kNoticeSeconds = 120;

// A job that the user cancelled is no longer RUNNING; Slurm requeues a preempted job itself. srun
// returns the highest status of all ranks: if rank 0 fails by itself (1), the others lose rank 0
// (3). So rank 0's own status decides, unless its node was lost before rank 0 wrote it.
constexpr const char* kEnd = R"sh(
first=$(cat "$WEFT_KEY_FILE.status" 2>/dev/null)
case ${first:-$status} in
75) why="stopped as asked, with a checkpoint" ;;
3) why="a rank was lost" ;;
13[4-9]) why="a signal ended a rank (status ${first:-$status})" ;;  # 128 + signal
*) exit "$status" ;;
esac
if [ "${SLURM_RESTART_COUNT:-0}" -ge @RESTARTS@ ]; then
    echo "weft: $why; all @RESTARTS@ restarts are used"
elif [ "$(squeue --noheader --jobs="$SLURM_JOB_ID" --format=%T)" = RUNNING ]; then
    echo "weft: $why; back to the queue"
    scontrol requeue "$SLURM_JOB_ID" && exit 0
fi
exit "$status"
)sh";

constexpr const char* kBody = R"sh(
set -u
# The ranks prove to each other that they are this job's. The folder is one that all nodes see.
export WEFT_KEY_FILE=$PWD/.weft-$SLURM_JOB_ID.key
(umask 077; head -c 32 /dev/urandom | base64 >"$WEFT_KEY_FILE") || exit
rm -f "$WEFT_KEY_FILE.status"  # of a run whose node was lost
trap 'rm -f "$WEFT_KEY_FILE" "$WEFT_KEY_FILE.status"' EXIT
# A training job that is requeued goes on from its checkpoints.
export WEFT_RESTART=${SLURM_RESTART_COUNT:-0}
# Signals are the step's; this script outlives them to say how it ended.
trap : USR1 TERM
# Ranks that lose one end by themselves, each with the status that says why.
# Without a number of cores, a step has all cores of each node, which may differ.
srun --kill-on-bad-exit=0 --cpu-bind=none \
    ${SLURM_CPUS_PER_TASK:+--cpus-per-task="$SLURM_CPUS_PER_TASK"} \
    bash -c 'trap : USR1 TERM
        "$@"; status=$?
        [ "$SLURM_PROCID" != 0 ] || echo $status >"$WEFT_KEY_FILE.status"
        exit $status' rank \
    @COMMAND@
status=$?
)sh";

std::string Replaced(std::string text, std::string_view what, const std::string& with) {
    for (size_t at = text.find(what); at != text.npos; at = text.find(what, at + with.size())) {
        text.replace(at, what.size(), with);
    }
    return text;
}

// Checks with sbatch's rules, because the file may be submitted much later.
Status CheckSlurm(const JobSpec& job) {
    const auto rest = [](const std::string& text) {
        return text.substr(std::min(text.find_first_not_of("0123456789"), text.size()));
    };
    const std::string unit = rest(job.memory);
    const bool amount =
        job.memory.empty() || (unit.size() < job.memory.size() &&
                               (unit.empty() || std::strchr("KMGT", unit[0]) != nullptr));
    if (!amount) {
        return MakeError(ErrorCode::kUsage, "--memory {}: expected an amount, as 32G", job.memory);
    }
    const bool time =
        job.time.find_first_not_of("0123456789:-") == job.time.npos || job.time == "UNLIMITED";
    if (time) return {};
    return MakeError(ErrorCode::kUsage,
                     "--time {}: expected MINUTES, HOURS:MINUTES:SECONDS or DAYS-HOURS, as sbatch "
                     "takes it",
                     job.time);
}

}  // namespace

Result<NativeFile> WriteSlurm(const JobSpec& job) {
    WEFT_TRY(CheckSlurm(job));
    std::string text = "#!/bin/bash\n# Made by 'weft submit --to slurm'.\n";
    const auto option = [&text](const std::string& words) { text += "#SBATCH " + words + "\n"; };
    const auto given = [&option](const char* name, const std::string& value) {
        if (!value.empty()) option(fmt::format("--{}={}", name, value));
    };
    option("--job-name=" + job.name);
    option(fmt::format("--nodes={}", job.nodes));
    option("--ntasks-per-node=1");
    if (job.cpus > 0) {
        option(fmt::format("--cpus-per-task={}", job.cpus));
    } else {
        option("--exclusive");
    }
    given("mem", job.memory);
    given("time", job.time);
    given("partition", job.partition);
    given("account", job.account);
    option(fmt::format("--output={}-%j.log", job.name));
    option("--open-mode=append");
    const bool train = IsCommand(job, "train");
    if (train || job.restarts > 0) option("--requeue");
    if (train) option(fmt::format("--signal=USR1@{}", kNoticeSeconds));
    for (const std::string& word : job.native) option(word);
    std::vector<std::string> command = {job.program};
    command.insert(command.end(), job.command.begin(), job.command.end());
    if (!job.folder.empty()) text += "\ncd " + ShellWord(job.folder) + " || exit\n";
    text += Replaced(kBody, "@COMMAND@", ShellWords(command));
    text += Replaced(kEnd, "@RESTARTS@", std::to_string(job.restarts));
    return NativeFile{job.name + ".sbatch", text, {"sbatch", "--parsable"}};
}

}  // namespace weft::submit
