// A rank of an ssh job on its host, for sh scripts. Each rank has its own folder, because hosts may
// share one home: ~/.local/state/weft/jobs/NAME/RANK. Its files are id (of the submission), key,
// log and pid, and at the end status.
#pragma once

namespace weft::submit {

// Needs the variable job, the rank's folder. Sets pid to the rank's shell, or to nothing if it does
// not run. Checks the process's environment, because after a boot or a reuse the number in the file
// belongs to another process. One line, because any login shell must pass it on.
inline constexpr const char* kFindRank =
    "pid=$(cat \"$job/pid\" 2>/dev/null); "
    "cat \"/proc/$pid/environ\" 2>/dev/null | tr \"\\0\" \"\\n\" | "
    "grep -qxF \"WEFT_JOB=$job\" || pid=";

}  // namespace weft::submit
