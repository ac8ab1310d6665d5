// Plain ssh: a script that starts a rank on each host and leaves; the ranks meet on the first host.
// On each host the job has a folder, ~/.local/state/weft/jobs/NAME: key, log, pid, and at the end
// status.
#include <fmt/format.h>

#include "base/shell_word.h"
#include "submit/job.h"
#include "submit/quote.h"

namespace weft::submit {
namespace {

// On each host, read by bash from ssh, so that no word of it is seen by the shell that the user has
// there. Above it stand key, name, folder, port and command. $1: rank, $2: where the ranks meet,
// $3: how many they are.
constexpr const char* kOnHost = R"sh(set -u
umask 077
jobs=${XDG_STATE_HOME:-$HOME/.local/state}/weft/jobs
mkdir -p "$jobs" && mkdir "$jobs/$name" || { echo "the job $name is here already" >&2; exit 1; }
printf "%s\n" "$key" >"$jobs/$name/key"
cd "$folder" || exit
export RANK=$1 MASTER_ADDR=$2 WORLD_SIZE=$3 MASTER_PORT=$port WEFT_LAUNCHER=torchrun
export WEFT_KEY_FILE=$jobs/$name/key WEFT_JOB=$jobs/$name
# It outlives this shell, with no terminal; what it ends with is kept.
setsid sh -c 'echo $$ >"$WEFT_JOB/pid"
    "$@"; status=$?
    rm -f "$WEFT_JOB/key"
    echo $status >"$WEFT_JOB/status.new" && mv "$WEFT_JOB/status.new" "$WEFT_JOB/status"
' weft "${command[@]}" </dev/null >"$jobs/$name/log" 2>&1 &
)sh";

}  // namespace

Result<NativeFile> WriteSsh(const JobSpec& job) {
    if (!job.target.place.empty() && job.hosts.empty()) {
        return MakeError(ErrorCode::kUsage,
                         "--to ssh:{}: that cluster names no hosts. Name them: --to ssh --hosts "
                         "user@a,user@b",
                         job.target.place);
    }
    if (job.hosts.size() != static_cast<size_t>(job.nodes)) {
        return MakeError(ErrorCode::kUsage,
                         "--to ssh: {} hosts were named for -N {}. Name as many with --hosts a,b,c "
                         "or --hostfile",
                         job.hosts.size(), job.nodes);
    }
    for (const std::string& host : job.hosts) {
        if (host.empty() || host[0] == '-' ||
            host.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"
                                   "._-@:[]%") != host.npos) {
            return MakeError(ErrorCode::kUsage, "--hosts '{}': expected HOST or USER@HOST", host);
        }
    }
    std::vector<std::string> command = {job.program};
    command.insert(command.end(), job.command.begin(), job.command.end());
    const std::string first = job.hosts[0].substr(job.hosts[0].find('@') + 1);
    const std::string remote =
        fmt::format("name={}\nfolder={}\nport={}\ncommand=({})\n{}", job.name,
                    job.folder.empty() ? "$HOME" : ShellWord(job.folder), job.port,
                    ShellWords(command), kOnHost);
    const std::string text = fmt::format(
        "#!/bin/bash\n# Made by 'weft submit --to ssh'.\nset -u\non_host={}\n"
        "key=$(head -c 32 /dev/urandom | base64)\nrank=0\nfor host in {}; do\n"
        "    printf 'key=%s\\n%s' \"$key\" \"$on_host\" |\n"
        "        ssh -o BatchMode=yes \"$host\" bash -s -- \"$rank\" {} {} || {{\n"
        "        echo \"weft: rank $rank was not started on $host\" >&2\n        exit 1\n    }}\n"
        "    rank=$((rank + 1))\ndone\n",
        ShellWord(remote), ShellWords(job.hosts), ShellWord(first), job.nodes);
    return NativeFile{job.name + ".sh", text, {"bash"}};
}

}  // namespace weft::submit
