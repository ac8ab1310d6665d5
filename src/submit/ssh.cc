// Plain ssh: a script that starts a rank on each host and exits; the ranks meet on the first host.
#include <fmt/format.h>

#include "base/shell_word.h"
#include "submit/job.h"
#include "submit/quote.h"
#include "submit/ssh_rank.h"

namespace weft::submit {
namespace {

// Runs on each host; bash reads it from ssh, so the user's login shell parses none of it. Needs id,
// key, name, folder, port and command. $1: rank, $2: address where the ranks meet, $3: number of
// ranks.
constexpr const char* kOnHost = R"sh(set -u
umask 077
jobs=${XDG_STATE_HOME:-$HOME/.local/state}/weft/jobs
job=$jobs/$name/$1
for other in "$jobs/$name"/*; do  # hosts with this home may have begun
    [ ! -e "$other" ] || [ "$(cat "$other/id" 2>/dev/null)" = "$id" ] ||
        { echo "the job $name is here already" >&2; exit 1; }
done
mkdir -p "$jobs/$name" && mkdir "$job" || exit
printf "%s\n" "$id" >"$job/id"
printf "%s\n" "$key" >"$job/key"
cd "$folder" || exit
export RANK=$1 MASTER_ADDR=$2 WORLD_SIZE=$3 MASTER_PORT=$port WEFT_LAUNCHER=torchrun
export WEFT_KEY_FILE=$job/key WEFT_JOB=$job
# It outlives this shell, with no terminal; what it ends with is kept.
setsid sh -c 'echo $$ >"$WEFT_JOB/pid"
    "$@"; status=$?
    rm -f "$WEFT_JOB/key"
    echo $status >"$WEFT_JOB/status.new" && mv "$WEFT_JOB/status.new" "$WEFT_JOB/status"
' weft "${command[@]}" </dev/null >"$job/log" 2>&1 &
for try in {1..100}; do  # until 'weft job' finds it
    [ ! -s "$job/pid" ] || exit 0
    sleep 0.1
done
echo "the rank's shell did not start within 10 s" >&2
exit 1
)sh";

// Ends a rank and removes its folder, if it belongs to this submission. Needs id, name and
// find_rank. $1: rank.
constexpr const char* kOffHost = R"sh(set -u
job=${XDG_STATE_HOME:-$HOME/.local/state}/weft/jobs/$name/$1
[ "$(cat "$job/id" 2>/dev/null)" = "$id" ] || exit 0
for try in {1..100}; do
    eval "$find_rank"
    [ -n "$pid" ] || break
    pkill -TERM -P "$pid"
    pkill -CONT -P "$pid"  # a stopped rank takes no signal
    sleep 0.1
done
[ -z "$pid" ] || kill -KILL -- "-$pid"
rm -rf "$job"
rmdir "${job%/*}" 2>/dev/null
exit 0
)sh";

// Runs on this host. Needs on_host and off_host; the loop over the hosts follows. Remote commands
// run in the background, where Ctrl-C does not reach them: a rank whose start was interrupted could
// begin after the search for it. A signal that came during a `wait` can also end the next one, so
// these are repeated until the commands have ended.
constexpr const char* kHere = R"sh(
key=$(head -c 32 /dev/urandom | base64)
id=$(head -c 12 /dev/urandom | base64)
rank=0
started=()
stopped=
said=
# Runs the script $2 on the host $1, with what follows as its words.
there() {
    printf 'id=%s\nkey=%s\n%s' "$id" "$key" "$2" |
        timeout 60 ssh -o BatchMode=yes "$1" bash -s -- "${@:3}"
}
# Ends the rank $1 on the host $2.
take_off() {
    if ! there "$2" "$off_host" "$1"; then
        echo "weft: rank $1 was not ended on $2: it may still run" >&2
    elif [ -z "$stopped" ]; then
        echo "weft: rank $1 was ended on $2" >&2
    fi
}
# A rank was not started, or the user stops this: the job is taken back from all hosts.
take_back() {
    if [ -n "$stopped" ]; then
        give_up
    else
        trap '' INT TERM HUP
        echo "weft: rank $rank was not started on $host" >&2
    fi
    for ((each = 0; each < rank; ++each)); do
        take_off "$each" "${started[each]}" &
    done
    there "$host" "$off_host" "$rank" 2>/dev/null &  # it may have begun
    while [ -n "$(jobs -pr)" ]; do wait; done
    exit "${stopped:-1}"
}
# A signal may run this handler a second time before its first run has ended: it only notes.
stop() {
    stopped=${stopped:-$1}
}
# The user has stopped this: says so once. From here on, signals change nothing.
give_up() {
    trap '' INT TERM HUP
    [ -n "$said" ] || echo "weft: ending the ranks that were started" >&2
    said=1
}
trap 'stop 130' INT
trap 'stop 143' TERM
trap 'stop 129' HUP
# Starts the next rank on $host; $1: where the ranks meet, $2: how many they are.
start() {
    [ -z "$stopped" ] || take_back
    there "$host" "$on_host" "$rank" "$@" &
    local job=$!
    wait $job
    local status=$?
    if [ -n "$stopped" ]; then  # it may begin yet
        give_up
        while kill -0 $job 2>/dev/null; do wait $job; done
    fi
    [ -z "$stopped" ] && [ $status = 0 ] || take_back
    started+=("$host")
    rank=$((rank + 1))
}
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
    const std::string on_host =
        fmt::format("name={}\nfolder={}\nport={}\ncommand=({})\n{}", job.name,
                    job.folder.empty() ? "$HOME" : ShellWord(job.folder), job.port,
                    ShellWords(command), kOnHost);
    const std::string off_host =
        fmt::format("name={}\nfind_rank={}\n{}", job.name, ShellWord(kFindRank), kOffHost);
    const std::string text = fmt::format(
        "#!/bin/bash\n# Made by 'weft submit --to ssh'.\nset -u\non_host={}\noff_host={}{}"
        "for host in {}; do\n    start {} {}\ndone\n[ -z \"$stopped\" ] || take_back\n",
        ShellWord(on_host), ShellWord(off_host), kHere, ShellWords(job.hosts), ShellWord(first),
        job.nodes);
    return NativeFile{job.name + ".sh", text, {"bash"}};
}

}  // namespace weft::submit
